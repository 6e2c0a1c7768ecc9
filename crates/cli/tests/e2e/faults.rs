//! Faults: ERROR fires, the rest of the clause is skipped, the next clause runs.

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::tool::{Output, dtrace, workload};

tests! {
    division_by_zero_faults a_read_of_an_invalid_user_address_faults
    a_read_of_an_invalid_kernel_address_faults
    every_address_that_cannot_be_read_faults_with_loads_of_every_size a_number_that_is_zero_is_read_without_a_fault
    error_gets_the_arguments_of_the_fault
    a_fault_in_a_predicate_skips_the_clause a_fault_in_error_is_counted_as_a_drop
    output_before_a_fault_is_discarded_with_its_clause
    invalid_addresses_fault_in_every_kind_of_probe a_user_address_faults_when_read_as_kernel_memory
    a_null_pointer_in_a_member_chain_faults missing_user_memory_faults_in_every_kind_of_probe
    an_unmapped_page_is_read_where_the_program_may_sleep
    a_clause_that_faults_at_each_firing_prints_few_lines_with_all_counts
    an_action_that_fails_at_each_firing_prints_few_lines
    a_string_that_is_not_in_memory_yet_is_read_as_the_message_says
    a_descriptor_that_is_read_as_a_string_is_told_from_an_address
}

/// The faults that the messages of an output report, and the lines that report them.
fn reported(o: &Output) -> (u64, usize) {
    let lines = o.err.lines().filter(|l| l.contains("error"));
    let count = |line: &str| match line.strip_prefix("dtrace: error on enabled probe ID ") {
        Some(_) => 1,
        None => line
            .strip_prefix("dtrace: ")
            .and_then(|l| l.split_once(" more errors of a clause, the first on "))
            .unwrap()
            .0
            .parse()
            .unwrap(),
    };
    (lines.clone().map(count).sum(), lines.count())
}

fn an_action_that_fails_at_each_firing_prints_few_lines() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { freopen(\"/nosuch/%d\", arg0); }";
    let target = workload("getppid", 200);
    let words = ["-wq", "-c", &target, "-n", script];
    let o = dtrace(&words).code(0);
    let (errors, lines) = reported(&o);
    assert_eq!(errors, 200, "{o:?}");
    assert!(
        (6..60).contains(&lines) && o.err.matches("couldn't freopen() \"/nosuch/").count() == lines,
        "{o:?}"
    );
    let all = dtrace(&[&["-x", "faultlines=all"], &words[..]].concat()).code(0);
    assert_eq!(reported(&all), (200, 200));
    Pass
}

/// ERROR sees every one.
fn a_clause_that_faults_at_each_firing_prints_few_lines_with_all_counts() -> Verdict {
    const COUNT: u32 = 3000;
    let script = "syscall::getppid:entry /pid == $target/ { trace(*(int *)arg0); } \
                  syscall::getppid:entry /pid == $target/ { x = 1 / (arg0 - arg0); } \
                  ERROR { @ = count(); } END { printa(\"%@d\\n\", @); }";
    let target = workload("getppid", COUNT);
    let words = ["-q", "-x", "switchrate=20ms", "-c", &target, "-n", script];
    let o = dtrace(&words).code(0);
    let (faults, lines) = reported(&o);
    assert_eq!((faults, o.last_number()), (2 * u64::from(COUNT), 2 * i64::from(COUNT)), "{o:?}");
    // Five of each clause, then one a second; the run takes far less than a minute.
    assert!((12..120).contains(&lines), "{o:?}");
    for kind in ["invalid address (0x0) in action #1", "divide-by-zero in action #1"] {
        assert!(o.err.lines().filter(|l| l.contains(kind)).count() >= 6, "{o:?}");
    }
    let all = dtrace(&[&["-x", "faultlines=all"], &words[..]].concat()).code(0);
    assert_eq!(reported(&all), (2 * u64::from(COUNT), 2 * COUNT as usize));
    let json = dtrace(&[&["--format", "json"], &words[..]].concat()).code(0);
    let counts =
        testing::json::lines(&json.out).into_iter().filter(|l| l.get("event").is_some_and(|e| e == "fault"));
    let counts: Vec<u64> = counts.map(|l| l.get("count").map_or(1, |n| n.as_u64().unwrap())).collect();
    assert_eq!(counts.iter().sum::<u64>(), 2 * u64::from(COUNT));
    assert_eq!(counts.len(), reported(&json).1);
    Pass
}

// row unit.fault-ends-clause
fn division_by_zero_faults() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { trace(1); z = 0; x = 5 / z; printf(\"no\"); } BEGIN { printf(\"next %d\\n\", x); exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "next 0\n\n", "{o:?}");
    let line = o.err.lines().next().unwrap();
    assert!(
        line.starts_with(
            "dtrace: error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): divide-by-zero in action #3"
        ),
        "{o:?}"
    );
    Pass
}

fn a_read_of_an_invalid_user_address_faults() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { s = copyinstr(1); printf(\"no\"); } END { printf(\"end\\n\"); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "end\n\n", "{o:?}");
    assert!(o.err.contains("invalid address (0x1) in action #1"), "{o:?}");
    Pass
}

// row expression.load-fault
fn a_read_of_an_invalid_kernel_address_faults() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { x = *(int *)0x10; printf(\"no\"); } BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("invalid address (0x10) in action #1"), "{o:?}");
    assert_eq!(o.out, "\n");
    Pass
}

/// Of NULL, of a process, of no page tables (not canonical), of the linear map where there is no
/// memory, of the vsyscall page, and the last one.
const UNREADABLE: [&str; 8] = [
    "0x0",
    "0x7fffffffe000",
    "0x8000000000000000",
    "0xfe00000000000000",
    "0xff00000000000000",
    "0xffff7fffffffff00",
    "0xffffffffff600000",
    "0xfffffffffffffff8",
];

fn every_address_that_cannot_be_read_faults_with_loads_of_every_size() -> Verdict {
    for ty in ["uint8_t", "int16_t", "uint32_t", "int64_t"] {
        let reads: String =
            UNREADABLE.iter().map(|at| format!("BEGIN {{ x = *({ty} *){at}; printf(\"no\"); }} ")).collect();
        let o = dtrace(&["-qn", &format!("{reads} BEGIN {{ printf(\"%d\", x); exit(0); }}")]).code(0);
        assert_eq!(o.out, "0\n", "{ty}: {o:?}");
        for at in UNREADABLE {
            assert!(o.err.contains(&format!("invalid address ({at}) in action #1")), "{ty} {at}: {o:?}");
        }
    }
    Pass
}

fn a_number_that_is_zero_is_read_without_a_fault() -> Verdict {
    // The name of this process, behind its NUL, as numbers of all sizes, and its first letters.
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-qn",
        "BEGIN { this->c = (uintptr_t)&curthread->comm; this->at = this->c + 8;
            printf(\"%s %x %x %x %x \", execname, *(uint8_t *)this->at, *(uint16_t *)this->at, *(uint32_t *)this->at,
                *(uint64_t *)this->at);
            printf(\"%x %x %x %x %x\\n\", *(uint8_t *)this->c, *(int16_t *)this->c, *(uint32_t *)this->c,
                *(uint64_t *)this->c, *(uint16_t *)(this->c + 5));
            exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "dtrace 0 0 0 0 64 7464 61727464 656361727464 65\n\n", "{o:?}");
    Pass
}

fn error_gets_the_arguments_of_the_fault() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "BEGIN { z = 0; } BEGIN { trace(1); x = 1 / z; } \
         ERROR { printf(\"%d %d %d %d\\n\", arg1, arg2, arg4, arg5); } BEGIN { exit(0); }",
    ])
    .code(0);
    assert_eq!(o.out, "2 2 4 0\n\n", "{o:?}");
    assert!(o.err.contains("divide-by-zero"), "the message stays: {o:?}");
    Pass
}

// row predicate.fault
fn a_fault_in_a_predicate_skips_the_clause() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { z = 0; } BEGIN /1 \u{25} z/ { printf(\"no\"); } BEGIN { exit(0); }"])
        .code(0);
    assert!(o.err.contains("divide-by-zero in predicate"), "{o:?}");
    Pass
}

fn a_fault_in_error_is_counted_as_a_drop() -> Verdict {
    let o = dtrace(&["-qn", "BEGIN { z = 0; x = 1 / z; } ERROR { y = 1 / z; } BEGIN { exit(0); }"]).code(0);
    assert!(o.err.contains("1 error in ERROR probe enabling"), "{o:?}");
    Pass
}

// row unit.fault-discards-record
fn output_before_a_fault_is_discarded_with_its_clause() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-x",
        "faultlines=all",
        "-c",
        &workload("getppid", 100),
        "-n",
        "syscall::getppid:entry /pid == $target/ { n++; printf(\"r %d\\n\", 10 / (n % 2)); }",
    ])
    .code(0);
    assert_eq!(o.out.lines().filter(|l| *l == "r 10").count(), 50, "{o:?}");
    assert_eq!(o.err.lines().filter(|l| l.contains("divide-by-zero")).count(), 50, "{o:?}");
    Pass
}

/// Loads that fault, with the address in the report.
const BAD: [(&str, &str); 6] = [
    ("*(int *)0", "0x0"),
    ("*(char *)0x10", "0x10"),
    // The poison value in a freed list entry of the kernel.
    ("*(int *)0xdead000000000100", "0xdead000000000100"),
    ("((struct { int a[4]; struct { long x; } b; } *)0)->b.x", "0x10"),
    ("strlen(stringof((char *)0xdead000000000122))", "0xdead000000000122"),
    ("(int)((unsigned short *)0xdead000000000000)[8]", "0xdead000000000010"),
];

fn invalid_addresses_fault_in_every_kind_of_probe() -> Verdict {
    let target = workload("getppid", 1);
    for (load, address) in BAD {
        // (probe and predicate, words before, the action that faults). The clause behind it still
        // runs.
        let mut places =
            vec![("BEGIN", vec![]), ("syscall::getppid:entry /pid == $target/", vec!["-c", &target])];
        if dtrace(&["-qn", "tick-10ms { exit(0); }"]).code == Some(0) {
            places.push(("tick-20ms", vec![]));
        }
        for (probe, words) in places {
            let script = format!(
                "{probe} {{ ok++; trace(\"gone\"); x = {load}; after++; printf(\"no %d\", x); }} \
                 {probe} {{ printf(\"%d %d %d\\n\", ok, after, x); exit(0); }} \
                 ERROR {{ printf(\"%d %d 0x%x\\n\", arg2, arg4, arg5); }}"
            );
            let words: Vec<&str> = ["-q"].into_iter().chain(words).chain(["-n", &script]).collect();
            let o = dtrace(&words).code(0);
            assert_eq!(o.out, format!("3 1 {address}\n1 0 0\n\n"), "{probe} {load}: {o:?}");
            let name = probe.split(' ').next().unwrap();
            // A busy machine may have suppressed firings of a clock, which has a line of its own.
            let mut lines = o.err.lines().filter(|l| l.starts_with("dtrace: error on enabled probe ID "));
            let line = lines.next().unwrap_or_default();
            assert!(
                line.contains(&format!(
                    "{}): invalid address ({address}) in action #3 at DIF offset ",
                    &name[name.len() - 4..]
                )),
                "{o:?}"
            );
        }
    }
    Pass
}

fn a_user_address_faults_when_read_as_kernel_memory() -> Verdict {
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("write", 8),
        "-n",
        "syscall::write:entry /pid == $target/ { n++; last = arg1; x = *(char *)arg1; wrong++; } \
         syscall::write:entry /pid == $target/ { s = stringof((char *)arg1); wrong++; } \
         ERROR /arg4 == 1 && arg5 == last/ { faults++; } \
         END { printf(\"%d %d %d\", n, faults, wrong); }",
    ])
    .code(0);
    assert_eq!(o.out, "8 16 0\n", "{o:?}");
    Pass
}

fn a_null_pointer_in_a_member_chain_faults() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // A running process has no parent waiting in vfork(), so this pointer is NULL.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 3),
        "-n",
        "syscall::getppid:entry /pid == $target/ { n++; null += curthread->vfork_done == NULL; \
           x = curthread->vfork_done->done; wrong++; } \
         syscall::getppid:entry /pid == $target/ { y = *(int *)&curthread->vfork_done->wait; wrong++; } \
         syscall::getppid:entry /pid == $target && curthread->vfork_done->done == 0/ { wrong++; } \
         ERROR { @[arg2, arg4, arg5 < 4096] = count(); } END { printf(\"%d %d %d\", n, null, wrong); }",
    ])
    .code(0);
    assert!(o.out.starts_with("3 3 0\n"), "{o:?}");
    let mut rows: Vec<String> = o
        .out
        .lines()
        .skip(1)
        .filter(|l| !l.is_empty())
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    rows.sort();
    assert_eq!(rows, ["0 1 1 3", "1 1 1 3", "3 1 1 3"], "{o:?}");
    Pass
}

/// Invalid user memory: an expression, and the address of the fault.
const BAD_USER: [(&str, &str); 6] = [
    ("strlen(copyinstr(1))", "0x1"),
    ("strlen(copyinstr(0))", "0x0"),
    ("strlen(copyinstr(0xffff888000000000))", "0xffff888000000000"),
    ("*(int *)copyin(0x10, 8)", "0x10"),
    ("*(char *)copyin(0xffffffff81000000, 4)", "0xffffffff81000000"),
    ("*(int *)copyin(0x7ffffffff000, 4096)", "0x7ffffffff000"),
];

fn missing_user_memory_faults_in_every_kind_of_probe() -> Verdict {
    let target = workload("getppid", 1);
    let clock = dtrace(&["-qn", "tick-10ms { exit(0); }"]).code == Some(0);
    for (load, address) in BAD_USER {
        let entry = "syscall::getppid:entry /pid == $target/";
        let back = "syscall::getppid:return /pid == $target/";
        let mut places = vec![("BEGIN", vec![]), (entry, vec!["-c", &target]), (back, vec!["-c", &target])];
        if clock {
            places.push(("tick-20ms", vec![]));
        }
        for (probe, words) in places {
            let script = format!(
                "{probe} {{ ok++; x = {load}; after++; }} {probe} {{ printf(\"%d %d %d\\n\", ok, after, x); exit(0); }} \
                 ERROR {{ printf(\"%d %d 0x%x\\n\", arg2, arg4, arg5); }}"
            );
            let words: Vec<&str> = ["-q"].into_iter().chain(words).chain(["-n", &script]).collect();
            let o = dtrace(&words).code(0);
            assert_eq!(o.out, format!("2 1 {address}\n1 0 0\n\n"), "{probe} {load}: {o:?}");
            let line = o.err.lines().next().unwrap_or_default();
            let text = format!("): invalid address ({address}) in action #2 at DIF offset ");
            assert!(line.contains(&text), "{probe} {load}: {o:?}");
        }
    }
    Pass
}

/// A program may wait for a page at the entry of a system call.
fn waits_for_pages() -> bool {
    dtrace(&["-vV"]).code(0).out.lines().any(|l| {
        let mut words = l.split_whitespace();
        words.next() == Some("sleepable_calls") && words.next() == Some("yes")
    })
}

const COLD: &str = "/etc/hostname-that-is-cold";

/// What messages say behind some words, once for each message that has them.
fn said<'a>(o: &'a Output, words: &str) -> Vec<&'a str> {
    o.err.lines().filter_map(|l| l.split_once(words)).map(|(_, rest)| rest).collect()
}

fn a_string_that_is_not_in_memory_yet_is_read_as_the_message_says() -> Verdict {
    let script = "syscall::openat:entry /pid == $target/ { @[copyinstr(arg1)] = count(); }";
    let target = workload("coldnames", 25);
    let o = dtrace(&["-q", "-c", &target, "-n", script]).code(0);
    let advice = said(&o, "; keep the address, and read it at the return: ");
    if waits_for_pages() {
        assert_eq!(advice.len(), 0, "{o:?}");
        return Pass;
    }
    assert!(reported(&o).0 >= 25, "{o:?}");
    let [idiom] = advice[..] else { panic!("{o:?}") };
    let o = dtrace(&["-q", "-c", &target, "-n", idiom]).code(0);
    // Tests beside this one may read the same name.
    assert!(o.out.matches(COLD).count() >= 25, "{o:?}");
    Pass
}

fn a_descriptor_that_is_read_as_a_string_is_told_from_an_address() -> Verdict {
    let target = workload("coldnames", 25);
    let number = "has a descriptor or another number in arg0";
    let run = |body: &str| {
        let script = format!("syscall::open*:entry /pid == $target/ {{ {body} }}");
        dtrace(&["-q", "-c", &target, "-n", &script]).code(0)
    };
    let o = run("trace(copyinstr(arg0));");
    let of = said(&o, number);
    assert!(matches!(of[..], [rest] if rest.contains(": its string is in arg1")), "{o:?}");
    assert!(o.err.contains(&format!("dtrace: syscall:vmlinux:openat:entry {number}")), "{o:?}");
    assert_eq!(said(&o, "keep the address").len(), 0, "{o:?}");
    // Through a variable that another clause assigns.
    let o = run("this->path = arg0; } syscall::open*:entry /pid == $target/ { trace(copyinstr(this->path));");
    assert_eq!(said(&o, number).len(), 1, "{o:?}");
    // A clause that reads what the call has is not wrong, and a bad address is what it is.
    let o = run("trace(copyinstr(probefunc == \"open\" ? arg0 : arg1));");
    assert_eq!(said(&o, number).len(), 0, "{o:?}");
    let o = run("trace(copyinstr(1));");
    assert!(said(&o, "invalid address (0x1)").len() > 1, "{o:?}");
    assert_eq!(said(&o, number).len() + said(&o, "keep the address").len(), 0, "{o:?}");
    Pass
}

fn an_unmapped_page_is_read_where_the_program_may_sleep() -> Verdict {
    let waits = waits_for_pages();
    let cold = COLD;
    // Attached to the system call's function where the kernel allows that, and to the tracepoint.
    for probes in ["syscall::openat:entry", "syscall::*at*:entry, syscall::getp*:entry"] {
        let o = dtrace(&[
            "-q",
            "-c",
            &workload("coldnames", 25),
            "-n",
            &format!(
                "{probes} /pid == $target && probefunc == \"openat\"/ {{ \
                   self->name = arg1; this->start = arg1 + 1; \
                   @entry[copyinstr(arg1), stringof(copyin(this->start, 3))] = count(); }} \
                 ERROR /arg4 == 1 && (arg5 == self->name || arg5 == self->name + 1)/ {{ @faults = count(); }} \
                 syscall::openat:return /self->name/ {{ @return[copyinstr(self->name)] = count(); self->name = 0; }} \
                 END {{ printa(\"faults %@d\\n\", @faults); printa(\"entry %s %s %@d\\n\", @entry); \
                       printa(\"return %s %@d\\n\", @return); }}"
            ),
        ])
        .code(0);
        let number = |before: &str| {
            o.out.lines().find_map(|l| l.strip_prefix(before)?.parse::<u32>().ok()).unwrap_or(0)
        };
        let (entry, faults) = (number(&format!("entry {cold} etc ")), number("faults "));
        // Without sleepable programs nothing is read at the entry, and ERROR gets the address. With
        // sleepable programs, the kernel skips the program for a thread while another thread of
        // that CPU is in it.
        assert!(if waits { entry >= 1 } else { entry == 0 }, "{probes}: {o:?}");
        assert!(entry + faults >= 25 && entry <= 25, "{probes}: {o:?}");
        // At the return the kernel has mapped the page.
        assert!(o.out.contains(&format!("return {cold} 25\n")), "{probes}: {o:?}");
        println!("{entry} of 25 names read at the entry");
    }
    Pass
}
