//! Completions over a system that is given.

use std::collections::BTreeSet;

use probes::{Family, FieldKind, Pattern, ProbeDesc};

use super::{Names, Target, World, complete, description, settings, shortened, values};

/// A system with these probes.
struct Given {
    probes: Vec<ProbeDesc>,
    families: Vec<Family>,
}

fn given(probes: &[&str]) -> Given {
    let desc = |text: &&str| {
        let [provider, module, function, name] = text.split(':').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        ProbeDesc::new(provider, module, function, name)
    };
    let probes: Vec<ProbeDesc> = probes.iter().map(desc).collect();
    let one: BTreeSet<&str> = probes.iter().map(|p| &*p.provider).filter(|p| !p.ends_with('7')).collect();
    let mut families: Vec<Family> = one.into_iter().map(Family::one).collect();
    families.extend([Family::of_any_processes(), Family::of_processes("pid")]);
    Given { probes, families }
}

impl World for Given {
    fn families(&self) -> Vec<Family> {
        self.families.clone()
    }

    fn named_alone(&self) -> Vec<String> {
        vec!["dtrace".into(), "profile".into()]
    }

    fn names(&self, pattern: &Pattern, field: FieldKind) -> Names {
        let mut names = Names::default();
        let found = self.probes.iter().filter(|probe| pattern.matches(probe));
        found.for_each(|probe| names.push(probe.field(field)));
        names
    }

    fn processes(&self, text: &str) -> Vec<(u32, String)> {
        let all = [(7, "cat"), (70, "node"), (81, "sh")];
        let fits = all.into_iter().filter(|(pid, _)| pid.to_string().starts_with(text));
        fits.map(|(pid, name)| (pid, name.to_string())).collect()
    }
}

fn system() -> Given {
    given(&[
        "dtrace:::BEGIN",
        "dtrace:::END",
        "io:vmlinux::start",
        "io:vmlinux::done",
        "profile:::tick-1",
        "profile:::tick-10",
        "sdt:irq::raise",
        "sdt:sched::switch",
        "syscall:vmlinux:read:entry",
        "syscall:vmlinux:read:return",
        "syscall:vmlinux:readv:entry",
        "syscall:vmlinux:write:entry",
        "pid7:a.out:main:entry",
        "pid7:libc.so.6:malloc:entry",
        "pid7:libc.so.6:mallopt:entry",
        "pid7:libc.so.6:operator new(unsigned long):entry",
        "web7:a.out:serve:request",
    ])
}

/// The texts for a description of `-n`; those that need more end with `…`.
fn of(text: &str) -> Vec<String> {
    with(FieldKind::Name, text, Target::None)
}

fn with(last: FieldKind, text: &str, target: Target) -> Vec<String> {
    let found = complete(&system(), last, text, target);
    found.into_iter().map(|c| c.text + if c.continues { "…" } else { "" }).collect()
}

#[test]
fn a_description_is_completed_part_by_part() {
    assert_eq!(of("s"), ["sdt:…", "syscall:…"]);
    // The module is the same for all, so the functions follow at once; of sdt it is not.
    let calls = ["syscall:::…", "syscall::read:…", "syscall::readv:…", "syscall::write:…"];
    assert_eq!(of("sy"), calls);
    assert_eq!(of("syscall:"), calls);
    assert_eq!(of("sdt:"), ["sdt::…", "sdt:irq:…", "sdt:sched:…"]);
    assert_eq!(of("sdt:s"), ["sdt:sched::switch"]);
    assert_eq!(of("syscall::rea"), ["syscall::read:…", "syscall::readv:…"]);
    assert_eq!(of("syscall::read:"), ["syscall::read:entry", "syscall::read:return"]);
    assert_eq!(of("syscall::read:e"), ["syscall::read:entry"]);
    assert_eq!(of("syscall:vml"), calls.map(|c| c.replace("syscall:", "syscall:vmlinux")));
    assert_eq!(of("io:"), ["io:::done", "io:::start"]);
    assert_eq!(of("syscall::*v:"), ["syscall::*v:entry"]);
    assert_eq!(of("nothing"), [""; 0]);
    assert_eq!(of("a:b:c:d:e"), [""; 0]);
}

#[test]
fn names_that_stand_alone_are_completed_too() {
    assert_eq!(of("B"), ["BEGIN"]);
    assert_eq!(of("ti"), ["tick-1", "tick-10"]);
    let all = of("");
    assert!(all.contains(&"BEGIN".into()) && all.contains(&"io:…".into()) && all.contains(&"tick-1".into()));
    // With another option than -n they are no names.
    assert_eq!(with(FieldKind::Function, "B", Target::None), [""; 0]);
}

#[test]
fn the_last_part_is_that_of_the_option() {
    assert_eq!(with(FieldKind::Provider, "s", Target::None), ["sdt", "syscall"]);
    assert_eq!(with(FieldKind::Provider, "syscall:", Target::None), [""; 0]);
    assert_eq!(with(FieldKind::Module, "sdt:", Target::None), ["sdt:irq", "sdt:sched"]);
    assert_eq!(with(FieldKind::Function, "syscall::w", Target::None), ["syscall::write"]);
}

#[test]
fn the_last_description_of_a_text_is_completed() {
    assert_eq!(of("io:::start, syscall::w"), ["io:::start, syscall::write:entry"]);
    assert_eq!(of("BEGIN { x = \"}\"; } EN"), ["BEGIN { x = \"}\"; } END"]);
    for text in ["BEGIN ", "BEGIN { ", "BEGIN { if (x) { } ", "BEGIN /ex", "BEGIN /x/", "BEGIN { \"\\\"}"] {
        assert_eq!(description(text), None, "{text}");
        assert_eq!(of(text), [""; 0], "{text}");
    }
    assert_eq!(description("BEGIN /x/ { } \n"), Some(15));
}

#[test]
fn a_provider_of_processes_has_its_number_or_target() {
    assert_eq!(of("p"), ["pid…", "profile:…"]);
    assert_eq!(of("pid"), ["pid70:…", "pid7:…", "pid81:…"]);
    assert_eq!(of("pid8"), ["pid81:…"]);
    let later = |text: &str| with(FieldKind::Name, text, Target::Later);
    assert_eq!(later("pi"), ["pid$target:…"]);
    assert_eq!(later("pid$target:"), [""; 0]);
    assert_eq!(of("pid$1:"), [""; 0]);
}

#[test]
fn files_and_functions_of_a_process_are_completed() {
    let target = |text: &str| with(FieldKind::Name, text, Target::Process(7));
    assert_eq!(target("pi"), ["pid$target::…", "pid$target:a.out:…", "pid$target:libc.so.6:…"]);
    assert_eq!(
        target("pid$target::ma"),
        ["pid$target::main:…", "pid$target::malloc:…", "pid$target::mallopt:…"]
    );
    assert_eq!(of("pid7::mai"), ["pid7::main:entry"]);
    // A name with a blank is left out.
    assert_eq!(of("pid7:libc.so.6:o"), [""; 0]);
    assert_eq!(target("w"), ["web$target:::request"]);
    assert_eq!(of("web7"), ["web7:::request"]);
    assert_eq!(of("w"), [""; 0], "processes are not searched for providers without a number");
}

#[test]
fn names_are_in_order_and_each_is_there_once() {
    let mut names = Names::default();
    ["b", "b", "", "a", "b", "ab"].into_iter().for_each(|name| names.push(name));
    assert_eq!(names.iter().count(), 5);
    assert_eq!(names.sorted(), ["", "a", "ab", "b"]);
    assert!(Names::default().sorted().is_empty());
}

#[test]
fn of_too_many_names_the_beginnings_are_given() {
    let names = ["tcp_a", "tcp_ab", "tcp_b", "udp_a", "udp_b", "x"];
    assert_eq!(shortened(&names, 0, 6).len(), 6);
    assert_eq!(
        shortened(&names, 0, 5),
        [("tcp_a", false), ("tcp_b", true), ("udp_a", true), ("udp_b", true), ("x", true)]
    );
    assert_eq!(shortened(&names, 0, 3), [("tcp_", false), ("udp_", false), ("x", true)]);
    // However few are allowed, what is inserted is right.
    assert_eq!(shortened(&names, 0, 1), [("t", false), ("u", false), ("x", true)]);
    let many: Vec<String> = (0..10_000).map(|n| format!("f{n:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let found = shortened(&many, 1, 500);
    assert_eq!((found.len(), found[0]), (100, ("f00", false)));
}

#[test]
fn options_and_their_values_are_completed() {
    let texts = |all: Vec<super::Candidate>| all.into_iter().map(|c| c.text).collect::<Vec<_>>();
    assert_eq!(texts(settings("buf")), ["bufpolicy=", "bufresize=", "bufsize="]);
    assert_eq!(texts(settings("bufp")), ["bufpolicy="]);
    assert_eq!(texts(settings("bufpolicy=")), ["bufpolicy=switch", "bufpolicy=fill", "bufpolicy=ring"]);
    assert_eq!(texts(settings("bufpolicy=r")), ["bufpolicy=ring"]);
    assert_eq!(texts(settings("bufsize=")), ["bufsize=4m"]);
    assert_eq!(texts(settings("exith")), ["exithold="]);
    assert_eq!(texts(settings("exithold=")), ["exithold=yes", "exithold=no"]);
    assert_eq!(texts(settings("quiet")), ["quiet", "quietresize"]);
    assert_eq!(texts(settings("libdir=")), [""; 0]);
    assert_eq!(texts(values("oformat", "")), ["text", "json", "csv"]);
    for row in crate::options::TABLE {
        assert!(settings(row.name).iter().any(|c| c.text.trim_end_matches('=') == row.name), "{}", row.name);
    }
}
