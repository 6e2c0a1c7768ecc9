//! The providers irq and softirq, against the kernel's own events and its lists of interrupts.

use std::collections::{BTreeMap, BTreeSet};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{Output, dtrace, workload};

tests! {
    handlers_of_interrupts_have_the_number_and_the_name_of_proc_interrupts
    soft_interrupts_have_the_vector_and_the_name_of_proc_softirqs
    each_datagram_is_received_in_a_soft_interrupt
}

/// The lines that begin with a word, without it, in order.
fn lines<'a>(o: &'a Output, word: &str) -> BTreeSet<&'a str> {
    o.out.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect()
}

/// Of each interrupt with a number: how often it came, and the names of its devices.
fn interrupts() -> BTreeMap<i64, (i64, String)> {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap();
    let row = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let count = rest.split_whitespace().map_while(|w| w.parse::<i64>().ok()).sum();
        Some((number.parse().ok()?, (count, rest.to_string())))
    };
    text.lines().filter_map(row).collect()
}

const HANDLERS: &str = "
irq:::handler-entry { @name[args[0]->irq_number, args[0]->irq_name] = count(); @[\"entry\", args[0]->irq_number, 0] = count(); }
irq:::handler-exit { @[\"exit\", args[0]->irq_number, args[1]] = count(); }
irq:::handler-entry /args[0]->irq_handler == 0/ { @[\"entry\", -1, -1] = count(); }
rawtp:irq::irq_handler_entry { @base[\"entry\", arg0, 0] = count(); }
rawtp:irq::irq_handler_exit { @base[\"exit\", arg0, arg2] = count(); }
END
{
	printa(\"name %d %@d %s\\n\", @name);
	printa(\"stable %s %d %d %@d\\n\", @);
	printa(\"kernel %s %d %d %@d\\n\", @base);
}";

fn handlers_of_interrupts_have_the_number_and_the_name_of_proc_interrupts() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let before = interrupts();
    // Reads that a disk or a file server answers. A test cannot make other interrupts.
    let file = std::env::current_exe().unwrap();
    let reads = format!("dd if={} of=/dev/null bs=64k count=100 iflag=direct status=none", file.display());
    let o = dtrace(&["-q", "-c", &reads, "-n", HANDLERS]);
    let after = interrupts();
    let o = match o.code {
        Some(0) => o,
        _ => return Skip(format!("no file can be read without the cache: {}", o.err)),
    };
    assert_eq!(lines(&o, "stable"), lines(&o, "kernel"), "{o:?}");
    let all = lines(&o, "name");
    if all.is_empty() {
        return Skip("no interrupt came".into());
    }
    for row in all {
        let words: Vec<&str> = row.splitn(3, ' ').collect();
        let (number, count, name) = (words[0].parse().unwrap(), words[1].parse::<i64>().unwrap(), words[2]);
        let (since, names) = &after[&number];
        assert!(names.contains(name), "{row}: {names}");
        // Between the two readings there were at least as many.
        let until = before.get(&number).map_or(0, |(count, _)| *count);
        assert!(count <= since - until, "{row}: {until} to {since}");
    }
    Pass
}

const SOFT: &str = "
softirq:::entry, softirq:::exit, softirq:::raise { @[probename, args[0]] = count(); @name[args[0], args[1]] = count(); }
rawtp:irq::softirq_entry { @base[\"entry\", (uint32_t)arg0] = count(); }
rawtp:irq::softirq_exit { @base[\"exit\", (uint32_t)arg0] = count(); }
rawtp:irq::softirq_raise { @base[\"raise\", (uint32_t)arg0] = count(); }
END
{
	printa(\"stable %s %d %@d\\n\", @);
	printa(\"kernel %s %d %@d\\n\", @base);
	printa(\"name %d %s\\n\", @name);
}";

fn soft_interrupts_have_the_vector_and_the_name_of_proc_softirqs() -> Verdict {
    let text = std::fs::read_to_string("/proc/softirqs").unwrap();
    let names: Vec<&str> = text.lines().filter_map(|l| Some(l.split_once(':')?.0.trim())).collect();
    let o = dtrace(&["-q", "-c", &workload("sleeps", 300), "-n", SOFT]).code(0);
    assert!(!lines(&o, "stable").is_empty(), "{o:?}");
    assert_eq!(lines(&o, "stable"), lines(&o, "kernel"), "{o:?}");
    for row in lines(&o, "name") {
        let (vector, name) = row.split_once(' ').unwrap();
        assert_eq!(names.get(vector.parse::<usize>().unwrap()), Some(&name), "{o:?}");
    }
    Pass
}

fn each_datagram_is_received_in_a_soft_interrupt() -> Verdict {
    // Each is raised by the thread that sends.
    let script = "softirq:::raise /pid == $target && args[1] == \"NET_RX\"/ { @[probename] = count(); } \
        END { printa(\"%s %@d\\n\", @); }";
    let o = dtrace(&["-q", "-c", &workload("datagrams", 100), "-n", script]).code(0);
    if o.out.contains("no network") {
        return Skip("no network".into());
    }
    // By IPv4 and IPv6.
    assert!(o.value_of("raise") >= 200, "{o:?}");
    Pass
}
