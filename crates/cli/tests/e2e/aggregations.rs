//! Aggregations: exact sums, printing, sorting, clear.

use crate::Verdict::{self, Pass};
use crate::tool::{dtrace, suppressed_of, workload};

tests! {
    normalizing_by_zero_aborts_the_session every_aggregating_function_gives_its_value
    keys_of_each_type_are_printed aggregations_are_printed_sorted_by_value
    printa_applies_its_format_to_each_entry clearing_while_tracing_loses_no_count
    values_are_counted_in_their_quantize_buckets many_keys_are_counted_exactly
    aggregation_drops_are_reported_when_the_table_is_full counts_of_all_cpus_are_summed
    lquantize_compares_64_bits printa_prints_several_aggregations_side_by_side
    per_cpu_values_match_counts_by_cpu
}

// row variable.aggregation, format.aggregation-entry
fn every_aggregating_function_gives_its_value() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { @c = count(); @s = sum(5); @s = sum(-2); @mi = min(3); @mi = min(-4); @ma = max(3); @ma = max(9); \
         @a = avg(10); @a = avg(5); exit(0); } END { printa(\"%@d %@d %@d %@d %@d\\n\", @c, @s, @mi, @ma, @a); }",
    ])
    .code(0);
    assert_eq!(o.out, "1 3 -4 9 7\n\n", "{o:?}");
    Pass
}

fn normalizing_by_zero_aborts_the_session() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { @ = sum(7); n = 0; normalize(@, n); } BEGIN { trace(1); exit(0); }"])
        .code(1);
    assert_eq!(
        (o.out.as_str(), o.err.as_str()),
        ("", "dtrace: processing aborted: Invalid normalization\n"),
        "{o:?}"
    );
    Pass
}

fn keys_of_each_type_are_printed() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { @a[execname, 1, \"lit\", probename] = sum(2); x = \"str\"; @b[x] = sum(3); @b[x] = sum(4); exit(0); }",
    ])
    .code(0);
    let row = format!("  {:<50} {:8}  {:<50}  {:<50} {:16}", "dtrace", 1, "lit", "BEGIN", 2);
    assert!(o.out.contains(&row), "{o:?}");
    assert!(o.out.contains(&format!("  {:<50} {:16}", "str", 7)), "{o:?}");
    Pass
}

// row sort.value
fn aggregations_are_printed_sorted_by_value() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { @[\"b\"] = sum(2); @[\"a\"] = sum(3); @[\"c\"] = sum(1); exit(0); }"])
        .code(0);
    let keys: Vec<&str> = o.out.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(keys, ["c", "b", "a"], "{o:?}");
    Pass
}

// row conversion.@
fn printa_applies_its_format_to_each_entry() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { @x[\"k\", 7] = sum(2); @y[\"k\", 7] = sum(5); printa(\"%s %d = %@d\\n\", @x); \
         printa(\"%s/%d: %@u %@u\\n\", @x, @y); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "k 7 = 2\nk/7: 2 5\n\n", "{o:?}");
    Pass
}

/// The sum of the printed, cleared and remaining values is the number of firings.
fn clearing_while_tracing_loses_no_count() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "switchrate=20ms",
        "-x",
        "aggrate=10ms",
        "-c",
        &workload("getppid", 400_000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @n[\"n\"] = count(); } \
         tick-20ms { printa(\"%s %@d\\n\", @n); clear(@n); } END { printa(\"%s %@d\\n\", @n); }",
    ])
    .code(0);
    let sum: i64 = o.out.lines().filter_map(|l| l.strip_prefix("n ")?.trim().parse::<i64>().ok()).sum();
    // A busy machine may hold back firings of the tick, and a kernel that preempts the program of
    // the system call suppresses firings of that.
    let programs = ["syscall:vmlinux:getppid:entry", "syscall_entry"];
    let missed: i64 = programs.iter().map(|program| suppressed_of(&o, program)).sum();
    assert!(sum <= 400_000 && sum + missed >= 400_000, "{sum} and {missed}: {o:?}");
    let known =
        ["of tick-20ms on CPU", "of syscall:vmlinux:getppid:entry suppressed", "of syscall_entry suppressed"];
    assert!(o.err.lines().all(|l| known.iter().any(|k| l.contains(k))), "{o:?}");
    Pass
}

// row format.histogram
fn values_are_counted_in_their_quantize_buckets() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { @ = quantize(0); @ = quantize(1); @ = quantize(2); @ = quantize(3); @ = quantize(-1); exit(0); }",
    ])
    .code(0);
    let rows: Vec<(i64, i64)> = o
        .out
        .lines()
        .filter(|l| l.contains('|'))
        .map(|l| {
            let first = l.split_whitespace().next().unwrap().parse().unwrap();
            (first, l.split_whitespace().last().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(rows, [(-2, 0), (-1, 1), (0, 1), (1, 1), (2, 2), (4, 0)], "{o:?}");
    Pass
}

fn many_keys_are_counted_exactly() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[i++] = count(); }",
    ])
    .code(0);
    let ones = o.out.lines().filter(|l| l.split_whitespace().last() == Some("1")).count();
    assert_eq!(ones, 5000, "{}", o.err);
    Pass
}

fn aggregation_drops_are_reported_when_the_table_is_full() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "aggsize=4k",
        "-x",
        "aggrate=10s",
        "-c",
        &workload("getppid", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[i++] = count(); }",
    ])
    .code(0);
    let printed = o.out.lines().filter(|l| l.split_whitespace().last() == Some("1")).count() as u64;
    let dropped: u64 = o
        .err
        .lines()
        .filter(|l| l.contains("aggregation drop"))
        .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    assert!(dropped > 0, "{o:?}");
    assert_eq!(printed + dropped, 5000, "{}", o.err);
    Pass
}

fn counts_of_all_cpus_are_summed() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[cpu] = count(); @all = sum(1); } END { printa(\"all %@d\\n\", @all); }",
    ])
    .code(0);
    assert_eq!(o.value_of("all"), 20_000, "{o:?}");
    Pass
}

fn lquantize_compares_64_bits() -> Verdict {
    let text = "BEGIN { x = 4294967297; @ = lquantize(4294967297, 0, 3); @ = lquantize(x, 0, 3); @ = lquantize(-4294967295, 0, 3); \
                @ = lquantize(2147483648, 0, 3); exit(0); }";
    let o = dtrace(&["-qn", text]).code(0);
    let rows: Vec<(&str, &str)> = o
        .out
        .lines()
        .filter_map(|l| l.split_once('|'))
        .map(|(value, bar)| (value.trim(), bar.trim_start_matches('@').trim()))
        .collect();
    assert_eq!(rows, [("< 0", "1"), ("0", "0"), ("1", "0"), ("2", "0"), (">= 3", "3")], "{o:?}");
    Pass
}

/// A key that is missing in one aggregation shows 0. With more conversions than aggregations, the
/// last aggregation is repeated.
fn printa_prints_several_aggregations_side_by_side() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { @x[\"a\", 1] = count(); @y[\"b\", 1] = sum(3); @y[\"a\", 1] = sum(2); @q[\"a\", 1] = quantize(3); \
         printa(\"%s %d %@d %@d %@d\\n\", @x, @y); printa(@x, @y); printa(\"%s%@d|\", @q); \
         printa(\"[%-5s] [%3d] %@#x %@5u\\n\", @y, @x); exit(0); }",
    ])
    .code(0);
    let row = |key: &str, x: i64, y: i64| format!("  {key:<50} {:>8} {x:>16} {y:>16}\n", 1);
    let head =
        format!("\n{:>16} {:>41} {:<9}\n", "value", "------------- Distribution -------------", "count");
    let bar = |value: u32, at: usize, count: u32| format!("{value:>16} |{:<40} {count:<9}\n", "@".repeat(at));
    let distribution = format!("a{head}{}{}{}|", bar(1, 0, 0), bar(2, 40, 1), bar(4, 0, 0));
    let expected = format!(
        "b 1 0 3 3\na 1 1 2 2\n\n{}{}{distribution}[a    ] [  1] 0x2     1\n[b    ] [  1] 0x3     0\n\n",
        row("b", 0, 3),
        row("a", 1, 2)
    );
    assert_eq!(o.out, expected);
    Pass
}

/// The values of the CPUs equal those that the same program counts by `cpu`.
fn per_cpu_values_match_counts_by_cpu() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-xaggpercpu",
        "-c",
        &workload("threads", 5000),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @all = count(); @by[cpu] = count(); } \
         END { printa(\"%d %@d\\n\", @by); printa(@all); }",
    ])
    .code(0);
    let words = |l: &str| l.split_whitespace().map(String::from).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = o.out.lines().map(words).filter(|w| !w.is_empty()).collect();
    let mut by: Vec<(String, String)> =
        rows.iter().filter(|w| w.len() == 2).map(|w| (w[0].clone(), w[1].clone())).collect();
    by.sort();
    let mut each: Vec<(String, String)> = rows
        .iter()
        .filter(|w| w.len() == 3 && w[0] == "[CPU")
        .map(|w| (w[1].trim_end_matches(']').to_string(), w[2].clone()))
        .collect();
    each.sort();
    assert_eq!(each, by, "{o:?}");
    assert!(rows.contains(&vec!["20000".to_string()]), "{o:?}");
    Pass
}
