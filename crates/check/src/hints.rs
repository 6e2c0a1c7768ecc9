//! Hints for names that another tracing language has, and for descriptions that match nothing.
//!
//! The tables have the words of bpftrace and what D has in their place. A description that is
//! proposed has been tried: it matches a probe.

use probes::{Catalog, Pattern};

/// Variables of bpftrace, sorted, and the D expression for each.
const VARIABLES: &[(&str, &str)] = &[
    ("cgroup", "`curthread->cgroups` has the cgroups of the thread"),
    ("comm", "`execname`"),
    ("cpid", "`$target`"),
    ("curtask", "`curthread`"),
    ("elapsed", "`timestamp`, minus what BEGIN has stored of it"),
    ("func", "`probefunc`"),
    ("jiffies", "`` `jiffies ``"),
    ("kstack", "`stack()`"),
    ("ncpus", "`` `nr_cpu_ids ``"),
    ("nsecs", "`timestamp`"),
    ("pcomm", "`curthread->group_leader->comm`"),
    ("probe", "`probeprov`, `probemod`, `probefunc` and `probename`"),
    ("retval", "`arg1`, in a return probe"),
    ("username", "`uid`"),
    ("ustack", "`ustack()`"),
];

/// Functions of bpftrace, sorted, and the D expression for each.
const FUNCTIONS: &[(&str, &str)] = &[
    ("buf", "`tracemem(address, bytes)`"),
    ("delete", "`a[key] = 0` for an associative array, `trunc(@a)` for an aggregation"),
    ("hist", "`@a = quantize(x)`"),
    ("join", "`printf()` with one `%s` for each string"),
    ("kaddr", "``&`symbol``"),
    ("kptr", "the pointer itself"),
    ("kstack", "`stack(frames)`"),
    ("ksym", "`sym(address)`"),
    ("lhist", "`@a = lquantize(x, min, max, step)`"),
    ("nsecs", "`timestamp`"),
    ("ntop", "`inet_ntop(family, address)`"),
    ("reg", "`uregs[number]`"),
    ("signal", "`raise(signal)`, with -w"),
    ("skboutput", "`freopen(\"file\")` and `pcap(skb, PCAP_ETHER)`, with -w"),
    ("stats", "`@a = avg(x)` and `@b = count()`"),
    ("str", "`copyinstr(address)` for a string of the process, `stringof(address)` for one of the kernel"),
    ("strerror", "`errno`, whose names are in <errno.h>"),
    ("strftime", "`printf(\"%Y\", walltimestamp)`"),
    ("strncmp", "`==`, of `substr(string, 0, length)`"),
    ("time", "`printf(\"%Y\", walltimestamp)`"),
    ("uptr", "the pointer itself, with `copyin()`"),
    ("zero", "`clear(@a)`"),
];

fn row(table: &[(&str, &'static str)], word: &str) -> Option<String> {
    let at = table.binary_search_by_key(&word, |(w, _)| w).ok()?;
    Some(format!("in D it is {}", table[at].1))
}

/// What D has for a variable of bpftrace.
pub(crate) fn variable(word: &str) -> Option<String> {
    row(VARIABLES, word)
}

/// What D has for a function of bpftrace.
pub(crate) fn function(word: &str) -> Option<String> {
    row(FUNCTIONS, word)
}

/// The D description for one of bpftrace: `kprobe:vfs_read` is `fbt::vfs_read:entry`. `Err` where D
/// has no such probes yet.
fn bpftrace(text: &str) -> Option<Result<String, &'static str>> {
    let (kind, rest) = text.split_once(':')?;
    let fields: Vec<&str> = rest.split(':').collect();
    let last = fields.last().copied().unwrap_or_default();
    let first = fields.first().copied().unwrap_or_default();
    // A module may stand before the function.
    let module = if fields.len() > 1 { first } else { "" };
    Some(Ok(match kind {
        "kprobe" | "k" | "fentry" | "kfunc" | "f" => format!("fbt:{module}:{last}:entry"),
        "kretprobe" | "kr" | "fexit" | "kretfunc" | "fr" => format!("fbt:{module}:{last}:return"),
        "tracepoint" | "t" => match (last.strip_prefix("sys_enter_"), last.strip_prefix("sys_exit_")) {
            (Some(call), _) => format!("syscall::{call}:entry"),
            (_, Some(call)) => format!("syscall::{call}:return"),
            _ => format!("sdt:{first}::{last}"),
        },
        "rawtracepoint" | "rt" => format!("rawtp:{module}::{last}"),
        "interval" | "i" if fields.len() == 2 => format!("profile:::tick-{last}{first}"),
        "profile" | "p" if fields.len() == 2 => format!("profile:::profile-{last}{first}"),
        "software" | "s" | "hardware" | "h" => format!("cpc:::{first}-all-{last}"),
        "uprobe" | "u" | "uretprobe" | "ur" => {
            return Some(Err("in D they are probes of the provider `pid`: pid$target:a.out:main:entry"));
        }
        "usdt" | "U" => {
            return Some(Err("in D the name of their provider has the process: PROVIDER$target:::NAME"));
        }
        _ => return None,
    }))
}

/// What a description that matches nothing may have meant: a description that matches.
pub(crate) fn description(text: &str, catalog: &dyn Catalog) -> Option<String> {
    let matches = |candidate: &String| {
        let fields: Vec<&str> = candidate.split(':').collect();
        let Ok([a, b, c, d]) = <[&str; 4]>::try_from(fields) else { return false };
        let Ok(pattern) = Pattern::from_fields([a, b, c, d]) else { return false };
        catalog.matches(&pattern).is_ok_and(|found| !found.is_empty())
    };
    match bpftrace(text) {
        Some(Ok(candidate)) if matches(&candidate) => return Some(format!("in D it is `{candidate}`")),
        Some(Ok(candidate)) => {
            return Some(format!("in D it would be `{candidate}`, which matches no probe here"));
        }
        Some(Err(why)) => return Some(why.into()),
        None => {}
    }
    let fields: Vec<&str> = text.split(':').collect();
    // Fields are counted from the right, which those who leave out the last one do not expect.
    let candidates: Vec<String> = match &fields[..] {
        [function] => vec![format!("syscall::{function}:entry"), format!("fbt::{function}:entry")],
        [a, b] => vec![
            format!("{a}:::{b}"),
            format!("{a}::{b}:entry"),
            format!("{a}::{b}:"),
            format!("sdt:{a}::{b}"),
            format!("fbt:{a}:{b}:entry"),
        ],
        [a, b, c] => vec![
            format!("{a}:{b}:{c}:entry"),
            format!("{a}:{b}:{c}:"),
            format!("{a}::{b}:{c}"),
            format!("{a}:{b}::{c}"),
        ],
        [a, b, c, ""] => vec![format!("{a}:{b}::{c}"), format!("{a}:::{c}")],
        _ => Vec::new(),
    };
    let found = candidates.iter().find(|c| !c.contains(['*', '?', '[']) && matches(c))?;
    Some(format!("fields are counted from the right: did you mean `{found}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;
    use probes::{ListCatalog, ProbeDesc};

    #[test]
    fn the_tables_are_sorted_and_name_words_that_d_has() {
        for table in [VARIABLES, FUNCTIONS] {
            assert!(table.is_sorted_by_key(|(w, _)| w));
        }
        for (_, text) in VARIABLES.iter().chain(FUNCTIONS) {
            // A kernel symbol has a backquote of its own.
            let text: String = text.split("``").step_by(2).collect();
            for quoted in text.split('`').skip(1).step_by(2) {
                let other = |c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_';
                let word: &str = quoted.split(other).next().unwrap_or_default();
                let known = word == "stringof"
                    || tables::variable(word).is_some()
                    || tables::function(word).is_some();
                assert!(word.len() < 2 || known, "{text}: {word}");
            }
        }
    }

    #[test]
    fn words_that_d_has_too_are_not_in_the_tables_unless_they_mean_something_else() {
        for (word, _) in FUNCTIONS {
            assert!(tables::function(word).is_none(), "{word}");
        }
    }

    #[test]
    fn descriptions_of_bpftrace_and_misplaced_fields_become_descriptions_that_match() {
        let mut list = ListCatalog::default();
        list.add(ProbeDesc::new("fbt", "vmlinux", "vfs_write", "entry"));
        list.add(ProbeDesc::new("fbt", "vmlinux", "vfs_write", "return"));
        list.add(ProbeDesc::new("syscall", "vmlinux", "openat", "entry"));
        list.add(ProbeDesc::new("sdt", "sched", "", "sched_switch"));
        list.add(ProbeDesc::new("profile", "", "", "tick-1s"));
        for (text, says) in [
            ("kprobe:vfs_write", "in D it is `fbt::vfs_write:entry`"),
            ("kretprobe:vfs_write", "in D it is `fbt::vfs_write:return`"),
            ("kprobe:nosuch", "in D it would be `fbt::nosuch:entry`, which matches no probe here"),
            ("tracepoint:syscalls:sys_enter_openat", "in D it is `syscall::openat:entry`"),
            ("tracepoint:sched:sched_switch", "in D it is `sdt:sched::sched_switch`"),
            ("interval:s:1", "in D it is `profile:::tick-1s`"),
            (
                "uprobe:/bin/sh:main",
                "in D they are probes of the provider `pid`: pid$target:a.out:main:entry",
            ),
            ("fbt::vfs_write", "fields are counted from the right: did you mean `fbt::vfs_write:entry`?"),
            (
                "fbt:vfs_write:entry",
                "fields are counted from the right: did you mean `fbt::vfs_write:entry`?",
            ),
            ("syscall:openat", "fields are counted from the right: did you mean `syscall::openat:entry`?"),
            ("profile:tick-1s", "fields are counted from the right: did you mean `profile:::tick-1s`?"),
            (
                "sched:sched_switch",
                "fields are counted from the right: did you mean `sdt:sched::sched_switch`?",
            ),
            ("vfs_write", "fields are counted from the right: did you mean `fbt::vfs_write:entry`?"),
        ] {
            assert_eq!(description(text, &list).as_deref(), Some(says), "{text}");
        }
        assert_eq!(description("fbt::nosuch", &list), None);
    }
}
