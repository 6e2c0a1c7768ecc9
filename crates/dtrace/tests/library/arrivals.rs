//! Probes that come and go while a session runs, of a provider that a user of the library brings:
//! by the same trait for methods of attaching and the same trait for sources as the built-in ones.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bpf_sys::features::{Facility, Features};
use dtrace::events::{Event, NoticeKind};
use dtrace::options::Options;
use dtrace::{Field, Macros, Provider, Session, Source, Status};

use crate::later::{ATTACHING, KINDS, Later, SAME, cpu_time, fire, touch};
use crate::tool::{Losses, Output, Traced, sink, take_reports};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("arrivals::a_thousand_probes_of_a_known_shape_load_no_program", thousand),
    ("arrivals::a_row_that_is_reused_fires_for_its_new_probe_only", reuse),
    ("arrivals::names_in_records_and_keys_outlive_their_probes", names),
    ("arrivals::an_arrival_that_fails_halfway_leaves_nothing", transaction),
    ("arrivals::probes_that_the_kernel_rejects_are_left_out", rejected),
    ("arrivals::clauses_that_compare_names_run_for_later_probes", texts),
    ("arrivals::the_text_of_a_later_probes_name_needs_no_program_of_its_own", name_texts),
    ("arrivals::pages_that_clauses_of_later_probes_read_are_faulted_in", pages),
    ("arrivals::a_kind_of_arguments_is_compiled_once", kinds),
    ("arrivals::clauses_with_arguments_are_what_they_were_when_their_probes_have_gone", args_gone),
    ("arrivals::probes_whose_arguments_do_not_fit_the_clause_do_not_keep_others_from_firing", unfit),
    ("arrivals::later_probes_enable_the_clauses_that_match_them", matching),
    ("arrivals::derived_probes_fire_at_bases_that_come_and_go", derived),
    ("arrivals::a_clause_with_an_error_at_a_later_base_keeps_no_other_from_firing", wrong_at_base),
    ("arrivals::defined_in_clauses_of_later_probes_is_about_all_probes_of_that_time", defined),
    ("arrivals::fixed_programs_are_unloaded_when_their_probes_go", fixed),
    ("arrivals::programs_without_sites_are_unloaded_and_loaded_again", idle),
    ("arrivals::a_probe_without_a_cookie_leaves_the_programs_of_other_providers_growing", providers),
    ("arrivals::a_unit_that_fails_leaves_the_others_of_its_change", partial),
    ("arrivals::clauses_that_are_added_leave_the_known_shapes", added),
    ("arrivals::a_session_that_ends_during_a_removal_is_exact", ending),
    ("arrivals::rows_are_free_without_a_snapshot_by_the_clock", snapshots),
];

fn cannot() -> Option<Verdict> {
    let why = Features::running().why_not(Facility::RawTpCookie)?;
    Some(Verdict::Skip(format!("raw tracepoints have no cookies: {why}")))
}

/// A session, and what the test knows about its probes.
struct Running {
    session: Traced,
    output: Output,
    later: Later,
    /// How often each live probe fired.
    live: BTreeMap<String, u64>,
    /// How often the others fired.
    gone: BTreeMap<String, u64>,
    notices: Vec<String>,
}

impl Running {
    fn start(script: &str, settings: &[(&str, &str)]) -> Running {
        Running::with(Later::new(), script, settings)
    }

    fn with(later: Later, script: &str, settings: &[(&str, &str)]) -> Running {
        Running::beside(later, &[], script, settings)
    }

    /// With other providers besides that of the test's probes.
    fn beside(later: Later, others: &[&Later], script: &str, settings: &[(&str, &str)]) -> Running {
        let mut options = Options::default();
        for (name, value) in
            [("zdefs", ""), ("aggrate", "20ms"), ("switchrate", "20ms"), ("statusrate", "50ms")]
                .iter()
                .chain(settings)
        {
            options.set(name, Some(*value).filter(|v| !v.is_empty())).unwrap();
        }
        let source = Source::Specifier(Field::Name, script.into());
        let all = others.iter().copied().chain([&later]);
        let providers = all.map(|later| Box::new(later.clone()) as Box<dyn Provider>).collect();
        let program = dtrace::compile_with(
            &dtrace::System::live(),
            &[source],
            &Macros::default(),
            &mut options,
            providers,
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let output = Output::default();
        let session = Session::start(&program, options, Vec::new(), sink(&output)).unwrap();
        Running { session, output, later, live: BTreeMap::new(), gone: BTreeMap::new(), notices: Vec::new() }
    }

    fn work(&mut self, ms: u64) {
        assert_eq!(self.session.work(None, Duration::from_millis(ms)).unwrap(), Status::Working);
        let mut losses = Losses::default();
        for report in take_reports(&mut self.session) {
            match report {
                Event::Notice(n)
                    if n.kind == NoticeKind::Detail
                        || n.text.starts_with("not enabled: ")
                        || n.text.contains(" are not enabled: ") =>
                {
                    self.notices.push(n.text.into_owned());
                }
                Event::Suppressed(s) => {
                    testing::suppressed::note(format!("{s:?}"));
                    losses.suppressed += s.count;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(losses.suppressed, 0);
    }

    fn add(&mut self, names: &[&str]) {
        self.later.add(names);
        self.work(0);
        self.live.extend(names.iter().map(|n| ((*n).to_owned(), 0)));
    }

    fn remove(&mut self, names: &[&str]) {
        self.later.remove(names);
        self.work(0);
        for name in names {
            let (name, count) = self.live.remove_entry(*name).unwrap();
            *self.gone.entry(name).or_default() += count;
        }
    }

    fn fire(&mut self, times: u64) {
        (0..times).for_each(|_| fire());
        self.live.values_mut().for_each(|n| *n += times);
    }

    /// Ends the session, and compares its only aggregation with what has fired.
    #[track_caller]
    fn end(mut self) -> String {
        self.session.finish().unwrap();
        let text = self.output.text();
        let mut want = self.gone;
        for (name, count) in self.live {
            *want.entry(name).or_default() += count;
        }
        want.retain(|_, n| *n > 0);
        let mut got = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["=", name, count] = words[..] {
                assert_eq!(got.insert(name.to_owned(), count.parse::<u64>().unwrap()), None);
            }
        }
        assert_eq!(got, want, "{text}\n{:?}", self.notices);
        text
    }

    /// Works until `done`.
    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Running) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < testing::HANG_LIMIT, "{what}");
            self.work(20);
        }
    }
}

/// The descriptors of this process whose names begin like this.
fn descriptors(kind: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = links.filter_map(|l| std::fs::read_link(l.path()).ok());
    names.filter(|n| n.to_string_lossy().starts_with(kind)).count()
}

/// The maps that are mapped into memory.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|l| l.contains("bpf-map")).count()
}

/// The programs, links and maps of this process.
fn kernel_objects() -> [usize; 3] {
    ["bpf-prog", "bpf_link", "bpf-map"].map(|kind| descriptors(&format!("anon_inode:{kind}")))
}

const COUNT: &str =
    "later:::hit /pid == $pid/ { @[probefunc] = count(); } END { printa(\"= %s %@d\\n\", @); }";

fn name(n: usize) -> String {
    format!("place_{n}")
}

fn thousand() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    const ALL: usize = 1000;
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    run.add(&[&name(0)]);
    run.fire(1);
    run.work(1);
    let (programs, links) = (descriptors("anon_inode:bpf-prog"), descriptors("anon_inode:bpf_link"));
    let (all, chunks) = (descriptors(""), mapped());
    let (start, mut own) = (Instant::now(), Duration::ZERO);
    let attaching = || Duration::from_nanos(ATTACHING.load(Ordering::Relaxed));
    let kernel = attaching();
    for n in 1..ALL {
        let before = cpu_time();
        run.add(&[&name(n)]);
        own += cpu_time() - before;
        if n % 100 == 0 {
            run.fire(2);
            run.work(1);
        }
    }
    let own = own - (attaching() - kernel);
    println!(
        "{ALL} arrivals in {:?}, {:?} of our own CPU time each",
        start.elapsed(),
        own / (ALL as u32 - 1)
    );
    // The figure is a matter of the benchmarks (section `arrivals`): an emulated CPU takes 20 times
    // as long.
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs, "a program was loaded for a known shape");
    assert_eq!(descriptors("anon_inode:bpf_link"), links + ALL - 1);
    assert!(mapped() > chunks, "{}, {chunks} before", mapped());
    run.fire(3);
    // Half of them, one by one; then the rest at once.
    let odd: Vec<String> = (1..ALL).step_by(2).map(name).collect();
    for name in &odd {
        run.remove(&[name]);
    }
    run.fire(2);
    let even: Vec<String> = (2..ALL).step_by(2).map(name).collect();
    run.remove(&even.iter().map(String::as_str).collect::<Vec<_>>());
    run.fire(5);
    run.until("links are closed", |_| descriptors("anon_inode:bpf_link") == links);
    // The chunks of the table are taken away, except one in advance.
    run.until("chunks are taken away", |_| mapped() <= chunks + 1);
    // The spare chunk of the table may have been installed in between.
    assert!(descriptors("") <= all + 2, "{} descriptors, {all} before", descriptors(""));
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs);
    run.end();
    Verdict::Pass
}

fn reuse() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    // The heartbeats come with the first probe.
    run.add(&["first"]);
    let base = descriptors("anon_inode:bpf_link");
    for round in 0..20 {
        let names: Vec<String> = (0..10).map(|n| format!("round_{round}_{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        run.add(&names);
        run.fire(3);
        run.remove(&names[..7]);
        run.fire(2);
        run.remove(&names[7..]);
        run.fire(1);
        // Every other round waits until its rows are free.
        if round % 2 == 0 {
            run.until("links are closed", |_| descriptors("anon_inode:bpf_link") <= base);
            (0..10).for_each(|_| run.work(10));
        }
    }
    run.end();
    Verdict::Pass
}

fn names() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let script = "later:::hit /pid == $pid/ { @[probefunc] = count(); printf(\"hit %s %d\", probefunc, epid); } \
                  END { printa(\"\\n= %s %@d\", @); }";
    let mut run = Running::start(script, &[]);
    run.add(&["first"]);
    run.add(&["second"]);
    // Removed before the records are read, and long before the last snapshot.
    run.fire(2);
    run.remove(&["first"]);
    run.fire(1);
    (0..50).for_each(|_| run.work(10));
    run.add(&["third"]);
    run.fire(4);
    let text = run.end();
    let shown = |name: &str| {
        let is = |l: &&str| l.contains(&format!("{name}:hit")) && l.contains(&format!("hit {name} "));
        text.lines().filter(is).count()
    };
    assert_eq!([shown("first"), shown("second"), shown("third")], [2, 7, 4], "{text}");
    Verdict::Pass
}

fn transaction() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    run.add(&["first"]);
    let (links, programs) = (descriptors("anon_inode:bpf_link"), descriptors("anon_inode:bpf-prog"));
    run.later.add(&["whole_1", "whole_2", "fail_3", "whole_4"]);
    run.work(0);
    assert!(run.notices.iter().any(|n| n.contains("are not enabled: ")), "{:?}", run.notices);
    run.fire(3);
    assert_eq!(descriptors("anon_inode:bpf_link"), links);
    run.later.remove(&["whole_1", "whole_2", "fail_3", "whole_4"]);
    run.add(&["whole_1", "after"]);
    run.fire(2);
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs);
    run.end();
    // Also where the first arrival fails.
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    let programs = descriptors("anon_inode:bpf-prog");
    run.later.add(&["whole_1", "fail_2"]);
    run.work(0);
    run.fire(3);
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs);
    run.add(&["whole_3"]);
    // The clauses, and the heartbeat, which the failed arrival did not leave.
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs + 2);
    run.fire(2);
    run.end();
    Verdict::Pass
}

fn rejected() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    for round in 0..3 {
        let [a, b, c] = ["a", "reject", "c"].map(|n| format!("{n}_{round}"));
        run.later.add(&[&a, &b, &c]);
        run.work(0);
        run.live.extend([(a, 0), (c, 0)]);
        run.fire(2);
        run.later.remove(&[&b]);
        run.work(0);
    }
    run.end();
    Verdict::Pass
}

fn texts() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let script = "later:::hit /pid == $pid && probefunc != \"no\" && strstr(probefunc, \"_\") != NULL/ \
                  { @[strjoin(probefunc, \"!\")] = count(); } END { printa(\"= %s %@d\\n\", @); }";
    let mut run = Running::start(script, &[("quiet", "")]);
    for round in 0..3 {
        let names = [format!("a_{round}"), "no".into(), format!("b_{round}")];
        let names: Vec<&str> =
            names.iter().map(String::as_str).filter(|n| *n != "no" || round == 1).collect();
        run.later.add(&names);
        run.work(0);
        run.live.extend(names.iter().filter(|n| **n != "no").map(|n| (format!("{n}!"), 0)));
        run.fire(2);
    }
    run.end();
    Verdict::Pass
}

fn name_texts() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    // String functions, a variable, a copy, a value that is a name or a constant, and comparisons.
    let script = "later:::hit /pid == $pid && strstr(probefunc, \"place\") != NULL && probefunc < \"q\"/ { \
                  last = probefunc; this->mixed = strlen(probefunc) > 8 ? \"long\" : probefunc; \
                  @[strjoin(this->mixed, strjoin(\"/\", last))] = count(); \
                  printf(\"\\nhit %s %s\", last, substr(probename, 1)); } \
                  END { printa(\"\\n= %s %@d\", @); }";
    let mut run = Running::start(script, &[("quiet", "")]);
    let key = |name: &str| format!("{}/{name}", if name.len() > 8 { "long" } else { name });
    let mut programs = None;
    // The names fill more than one chunk of their table.
    for round in 0..40 {
        let names: Vec<String> = (0..20).map(|n| name(20 * round + n)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        run.later.add(&names);
        run.work(0);
        run.live.extend(names.iter().map(|n| (key(n), 0)));
        run.fire(2);
        run.work(1);
        let now = descriptors("anon_inode:bpf-prog");
        assert_eq!(*programs.get_or_insert(now), now, "a program was loaded for a known shape");
        run.later.remove(&names);
        run.work(0);
        for name in &names {
            let (name, count) = run.live.remove_entry(&key(name)).unwrap();
            run.gone.insert(name, count);
        }
    }
    let text = run.end();
    let hits = |n: usize| text.lines().filter(|l| *l == format!("hit {} it", name(n))).count();
    assert_eq!([hits(0), hits(7), hits(512), hits(799)], [2; 4], "{text}");
    Verdict::Pass
}

/// A file of pages, each with a text of its own, mapped without any of them.
struct Pages {
    memory: *mut libc::c_void,
    path: std::path::PathBuf,
}

const PAGE: usize = 4096;
const PAGES: usize = 8;

impl Pages {
    fn new() -> Pages {
        let path = std::env::temp_dir().join(format!("dtrace-pages-{}", std::process::id()));
        let mut bytes = vec![0; PAGES * PAGE];
        for (n, page) in bytes.chunks_mut(PAGE).enumerate() {
            let text = format!("page_{n}");
            page[..text.len()].copy_from_slice(text.as_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: a new mapping, unmapped when the value is dropped.
        let memory = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        Pages { memory, path }
    }

    /// Passes the address of each page to the probed function, when no page is mapped.
    fn touch(&self) {
        for n in 0..PAGES {
            // SAFETY: the mapping is private and of a file: its pages come back with the same
            // content.
            unsafe { libc::madvise(self.memory, PAGES * PAGE, libc::MADV_DONTNEED) };
            touch(self.memory.cast::<u8>().wrapping_add(n * PAGE));
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nothing else uses the mapping.
        unsafe { libc::munmap(self.memory, PAGES * PAGE) };
        let _ = std::fs::remove_file(&self.path);
    }
}

fn pages() -> Verdict {
    let script = "later::a*:hit /pid == $pid/ { @[copyinstr(arg0)] = count(); } \
                  later::*b:hit /pid == $pid/ { @[copyinstr(arg0 + 1)] = count(); } \
                  END { printa(\"= %s %@d\\n\", @); }";
    let mut run = Running::with(
        Later::of_function(testing::offset_in_file(touch as *const () as u64).unwrap()),
        script,
        &[("quiet", "")],
    );
    let pages = Pages::new();
    let mut count = |text: &str, times: u64| {
        for n in 0..PAGES {
            *run.gone.entry(format!("{text}_{n}")).or_default() += times;
        }
    };
    count("page", 7);
    count("age", 9);
    run.later.add(&["ab"]);
    run.work(0);
    pages.touch();
    let programs = descriptors("anon_inode:bpf-prog");
    let links = descriptors("anon_inode:bpf_link");
    run.later.add(&["aa", "cb", "other"]);
    run.work(0);
    pages.touch();
    // The program that faults in the pages is at each probe too.
    assert_eq!(descriptors("anon_inode:bpf_link"), links + 4);
    run.later.add(&["db"]);
    run.work(0);
    pages.touch();
    run.later.remove(&["ab", "cb"]);
    run.work(0);
    // The links of an arrival are closed together.
    run.until("links are closed", |_| descriptors("anon_inode:bpf_link") == links + 4);
    pages.touch();
    run.later.add(&["eb"]);
    run.work(0);
    pages.touch();
    run.later.remove(&["aa", "db"]);
    run.work(0);
    run.until("links are closed", |_| descriptors("anon_inode:bpf_link") == links);
    assert_eq!(descriptors("anon_inode:bpf-prog"), programs, "a program was loaded for a known shape");
    run.end();
    Verdict::Pass
}

/// The sum of the argument, which is 1 by every type. BEGIN gives the aggregation its type.
const SUM: &str = "BEGIN { @[\"\"] = sum((long)0); } \
                   later:::hit /pid == $pid/ { @[probefunc] = sum((long)args[0]); } \
                   END { printa(\"= %s %@d\\n\", @); }";

fn kinds() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(SUM, &[("quiet", "")]);
    let programs = descriptors("anon_inode:bpf-prog");
    let kind = |n: usize, round: usize| format!("kind_{n}_{round}");
    let add = |run: &mut Running, names: &[String]| {
        run.add(&names.iter().map(String::as_str).collect::<Vec<_>>());
    };
    // All at once, and then one or some of them again and again.
    add(&mut run, &(0..SAME).map(|n| kind(n, 0)).collect::<Vec<_>>());
    run.fire(1);
    run.work(1);
    let known = descriptors("anon_inode:bpf-prog");
    // Values of 64 bits are the same code by all their types.
    assert!(known - programs <= SAME + 1, "{} programs", known - programs);
    for round in 1..100 {
        let some = if round % 10 == 0 { (0..KINDS.len()).collect() } else { vec![round % KINDS.len()] };
        add(&mut run, &some.iter().map(|n| kind(*n, round)).collect::<Vec<_>>());
        run.fire(1);
        run.work(1);
    }
    assert_eq!(descriptors("anon_inode:bpf-prog"), known, "a program was loaded for a known shape");
    run.end();
    Verdict::Pass
}

/// Programs are enabled after probes have gone of which the types of arguments are known no more.
fn args_gone() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(SUM, &[("quiet", "")]);
    let enable = |run: &mut Running, n: usize| {
        let script = format!("later::kind_{n}_more:hit /pid == $pid/ {{ @more{n}[args[0]] = count(); }}");
        let source = Source::Specifier(Field::Name, script);
        run.session.enable(&[source], &Macros::default()).unwrap_or_else(|e| panic!("{e}"));
    };
    for n in 0..KINDS.len() {
        let names = [format!("kind_{n}_a"), format!("kind_{n}_more")];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        enable(&mut run, n);
        run.add(&names);
        run.fire(2);
        run.work(1);
        run.remove(&names);
    }
    // All clauses are there, and none has a probe.
    enable(&mut run, KINDS.len());
    run.add(&["kind_0_again", "kind_1_more"]);
    run.fire(3);
    let unexpected: Vec<&String> = run.notices.iter().filter(|n| !n.contains(": matched ")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    run.end();
    Verdict::Pass
}

fn unfit() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(SUM, &[("quiet", "")]);
    run.later.add(&["kind_0_a", "without_argument", "kind_2_a"]);
    run.work(0);
    assert!(run.notices.iter().any(|n| n.contains("index 0 is out of range")), "{:?}", run.notices);
    run.live.extend([("kind_0_a".into(), 0), ("kind_2_a".into(), 0)]);
    run.fire(3);
    run.end();
    Verdict::Pass
}

fn matching() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let script = "later::a*:hit /pid == $pid/ { @[probefunc] = count(); } \
                  later::*b:hit /pid == $pid/ { @[probename] = count(); } \
                  later::ab:hit /pid == $pid/ { @[probefunc] = count(); } END { printa(\"= %s %@d\\n\", @); }";
    let mut run = Running::start(script, &[("quiet", "")]);
    let before = descriptors("anon_inode:bpf-prog");
    // All three clauses, then each part of them.
    for name in ["ab", "aa", "cb", "other"] {
        run.later.add(&[name]);
        run.work(0);
        run.fire(0);
    }
    // The clauses and the heartbeat.
    assert_eq!(descriptors("anon_inode:bpf-prog"), before + 2);
    (0..5).for_each(|_| fire());
    run.live.extend([("ab".into(), 10), ("aa".into(), 5), ("hit".into(), 10)]);
    run.end();
    Verdict::Pass
}

/// A library with a base that has types, bases without, and state that a probe of the start
/// assigns.
const DERIVED: &str = "provider mine { probe hit(int WHERE, int CALLS, int KIND); probe other(); };
self int calls;
syscall::sched_get_priority_min:entry { self->calls++; }
syscall::sched_get_priority_max:entry { other(); }
later::kind_0_first:hit { hit(1, self->calls, args[0]); }
later::second:hit, later::third:hit { hit(2, self->calls, 0); }
later::second:hit /defined(later::third:hit)/ { other(); }
";

fn wrong_at_base() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let text = "typedef struct place { int p_number; } place_t;\n\
                translator place_t < int N > { p_number = N; };\n\
                provider mine { probe hit(int N : place_t *N); probe other(int N); };\n\
                later::first:hit, later::second:hit { hit(1); other(2); }\n";
    let directory = std::env::temp_dir().join(format!("dtrace-arrivals-wrong-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("mine.d"), text).unwrap();
    // A struct is no key, and the last clause needs the variable of a wrong one.
    let script = "mine:::hit /pid == $pid/ { @wrong[args[0]] = count(); number = args[0]->p_number; } \
                  mine:::hit /pid == $pid/ { @n[\"hit\", args[0]->p_number] = count(); } \
                  mine:::other /pid == $pid/ { @n[\"other\", args[0]] = count(); } \
                  mine:::other /pid == $pid && number + args[0]/ { @n[\"never\", args[0]] = count(); } \
                  later:::hit /pid == $pid/ { @[probefunc] = count(); } \
                  END { printa(\"= %s %@d\\n\", @); }";
    let mut run = Running::start(script, &[("quiet", ""), ("libdir", &directory.display().to_string())]);
    std::fs::remove_dir_all(&directory).unwrap();
    let errors = |run: &mut Running| {
        let all: Vec<String> = run.notices.drain(..).filter(|n| n.contains("are not enabled")).collect();
        let key = "<DYN> expression may not be used as aggregation index";
        [key, "number begins in a clause"].map(|text| all.iter().filter(|n| n.contains(text)).count())
    };
    // One that is no base comes first.
    run.add(&["none"]);
    assert_eq!(errors(&mut run), [0, 0]);
    run.add(&["first"]);
    assert_eq!(errors(&mut run), [1, 1]);
    run.fire(3);
    // What was said is not said again.
    run.add(&["second"]);
    assert_eq!(errors(&mut run), [0, 0]);
    run.fire(4);
    let before = kernel_objects()[0];
    run.remove(&["first"]);
    run.until("its program is unloaded", |_| kernel_objects()[0] < before);
    run.fire(5);
    let text = run.end();
    let count = |name: &str, number: &str| {
        let words = |l: &&str| l.split_whitespace().take(2).eq([name, number]);
        let row = text.lines().find(words).and_then(|l| l.split_whitespace().last());
        row.map_or(0, |n| n.parse::<u64>().unwrap())
    };
    assert_eq!((count("hit", "1"), count("other", "2"), count("never", "2")), (16, 16, 0), "{text}");
    Verdict::Pass
}

fn derived() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let directory = std::env::temp_dir().join(format!("dtrace-arrivals-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("mine.d"), DERIVED).unwrap();
    let script = "int last; \
                  mine:::hit /pid == $pid/ { last = arg1; @[arg0, arg1] = count(); } \
                  mine:::hit /pid == $pid/ { kind = args[2]; } \
                  later::k*:hit /pid == $pid/ { @k[probefunc, 0] = count(); } \
                  mine:::other /pid == $pid/ { @o[\"other\", last] = count(); } \
                  END { printa(\"= %d:%d %@d\\n\", @); printa(\"= %s:%d %@d\\n\", @k); \
                  printa(\"= %s:%d %@d\\n\", @o); }";
    let mut run = Running::start(script, &[("quiet", ""), ("libdir", &directory.display().to_string())]);
    std::fs::remove_dir_all(&directory).unwrap();
    let calls = || {
        // SAFETY: calls without arguments in memory.
        unsafe { (0..2).for_each(|_| _ = libc::sched_get_priority_min(libc::SCHED_OTHER)) };
        // SAFETY: as above.
        unsafe { libc::sched_get_priority_max(libc::SCHED_OTHER) };
    };
    let add = |run: &mut Running, name: &str, times| {
        run.later.add(&[name]);
        run.work(0);
        run.fire(times);
    };
    let remove = |run: &mut Running, name: &str| {
        let before = kernel_objects()[0];
        run.later.remove(&[name]);
        run.work(0);
        run.until("its program is unloaded", |_| kernel_objects()[0] < before);
    };
    calls();
    add(&mut run, "kind_0_first", 3);
    remove(&mut run, "kind_0_first");
    run.fire(1);
    add(&mut run, "second", 2);
    add(&mut run, "kind_0_first", 4);
    add(&mut run, "third", 1);
    // The running session has a script more, with the bases of now.
    let more = "mine:::hit /pid == $pid/ { @o[\"more\", 0] = count(); }";
    run.session.enable(&[Source::Specifier(Field::Name, more.into())], &Macros::default()).unwrap();
    run.fire(5);
    calls();
    run.fire(6);
    let first = [("1:2", 3 + 4 + 1 + 5), ("1:4", 6), ("kind_0_first:0", 3 + 4 + 1 + 5 + 6)];
    let second = [("2:2", 2 + 4 + 2 + 10), ("2:4", 12)];
    let others = [("other:0", 1), ("other:2", 1), ("more:0", 15 + 18)];
    let all = first.into_iter().chain(second).chain(others);
    run.live.extend(all.map(|(name, n)| (name.to_owned(), n)));
    let matched = run.notices.iter().filter(|n| n.starts_with("the test changed: matched"));
    assert_eq!(matched.count(), 4, "{:?}", run.notices);
    run.end();
    Verdict::Pass
}

fn defined() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    // Of probes of the start, of the ones that came, of one before them, and of none. Those of a
    // glob that come one by one share a program, and with it the answer.
    let script = "later::first:hit, later::second:hit \
                  /pid == $pid && defined(syscall::read:entry) && !defined(later::nosuch:hit)/ \
                  { @[probefunc, defined(later::first:hit) + 2 * defined(later::second:hit)] = count(); } \
                  later::third:hit /pid == $pid/ { @[probefunc, defined(later::second:hit)] = count(); } \
                  END { printa(\"= %s:%d %@d\\n\", @); }";
    let mut run = Running::start(script, &[("quiet", "")]);
    for names in [&["first", "second"][..], &["third"]] {
        run.later.add(names);
        run.work(0);
        run.fire(2);
    }
    run.live.extend([("first:3".into(), 4), ("second:3".into(), 4), ("third:1".into(), 2)]);
    run.end();
    Verdict::Pass
}

fn fixed() -> Verdict {
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    run.add(&["plain_first"]);
    run.fire(1);
    let before = kernel_objects();
    for round in 0..4 {
        let names: Vec<String> = (0..3).map(|n| format!("plain_{round}_{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // One arrival, and one for each.
        if round % 2 == 0 {
            run.add(&names);
        } else {
            names.iter().for_each(|name| run.add(&[name]));
        }
        let now = kernel_objects();
        assert_eq!([now[0], now[1]], [before[0] + 3, before[1] + 3]);
        run.fire(3);
        run.remove(&names[..1]);
        run.until("a link is closed", |_| kernel_objects()[1] == before[1] + 2);
        run.fire(2);
        run.remove(&names[1..]);
        // The chunk in advance is installed in another thread, perhaps after `before`.
        run.until("all is released", |_| {
            let now = kernel_objects();
            now[..2] == before[..2] && now[2] <= before[2] + 1
        });
        run.fire(1);
    }
    let suppressed = run.session.suppressed().unwrap();
    if suppressed.iter().any(|(_, count)| *count > 0) {
        testing::suppressed::note(format!("{suppressed:?}"));
    }
    assert_eq!(suppressed, [("later".to_owned(), 0)]);
    run.end();
    Verdict::Pass
}

fn idle() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    const SHAPES: usize = 11;
    let clause = |n| format!("later::shape_{n}_*:hit /pid == $pid/ {{ @[probefunc] = count(); }} ");
    let script: String = (0..SHAPES).map(clause).collect();
    let mut run =
        Running::start(&format!("{script} END {{ printa(\"= %s %@d\\n\", @); }}"), &[("quiet", "")]);
    let name = |n: usize, round: usize| format!("shape_{n}_{round}");
    // The heartbeats come with the first probe.
    run.add(&[&name(0, 0)]);
    let before = kernel_objects();
    (1..SHAPES).for_each(|n| run.add(&[&name(n, 0)]));
    assert_eq!(kernel_objects()[0], before[0] + SHAPES - 1);
    for round in 0..3 {
        run.fire(2);
        (0..SHAPES).for_each(|n| run.remove(&[&name(n, round)]));
        // Eight programs stay loaded.
        run.until("programs are unloaded", |_| kernel_objects()[0] == before[0] - 1 + 8);
        run.until("links are closed", |_| kernel_objects()[1] == before[1] - 1);
        run.fire(1);
        if round == 1 {
            // One that was unloaded is loaded again, for nothing.
            run.later.add(&["shape_0_fail"]);
            run.work(0);
            assert!(run.notices.iter().any(|n| n.contains("a place that fails")), "{:?}", run.notices);
            run.until("the program is unloaded again", |_| kernel_objects()[0] == before[0] - 1 + 8);
            run.later.remove(&["shape_0_fail"]);
            run.work(0);
        }
        (0..SHAPES).for_each(|n| run.add(&[&name(n, round + 1)]));
        assert_eq!(kernel_objects()[0], before[0] + SHAPES - 1);
    }
    run.fire(3);
    run.end();
    Verdict::Pass
}

fn providers() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let script = "later:::hit,others:::hit /pid == $pid/ { @[probefunc] = count(); } \
                  END { printa(\"= %s %@d\\n\", @); }";
    let others = Later::named("others");
    let mut run = Running::beside(Later::new(), &[&others], script, &[("quiet", "")]);
    others.add(&["plain_other"]);
    run.work(0);
    run.live.insert("plain_other".into(), 0);
    run.add(&["a"]);
    let programs = kernel_objects()[0];
    run.add(&["b", "c"]);
    assert_eq!(kernel_objects()[0], programs, "the program of the provider does not grow");
    run.fire(2);
    run.end();
    Verdict::Pass
}

fn partial() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    // The first arrival is compiled, the next has a known shape, the last a fixed program.
    for (round, kind) in ["apart", "apart", "plain"].iter().enumerate() {
        let [a, b, c] = ["a", "fail", "c"].map(|n| format!("{kind}_{n}_{round}"));
        run.later.add(&[&a, &b, &c]);
        run.work(0);
        let says = |n: &String| n.starts_with("not enabled: ") && n.contains(&b) && !n.contains(&a);
        assert!(run.notices.iter().any(says), "{:?}", run.notices);
        run.live.extend([(a, 0), (c, 0)]);
        run.fire(2);
        run.later.remove(&[&b]);
        run.work(0);
    }
    run.fire(1);
    run.end();
    Verdict::Pass
}

fn added() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let mut run = Running::start(COUNT, &[("quiet", "")]);
    run.add(&["first"]);
    let enable = |run: &mut Running, script: &str| {
        let source = Source::Specifier(Field::Name, script.into());
        let enabled = run.session.enable(&[source], &Macros::default());
        enabled.unwrap_or_else(|e| panic!("{e}"));
    };
    enable(&mut run, "later::other*:hit /pid == $pid/ { @[\"other\"] = count(); }");
    let programs = kernel_objects()[0];
    run.add(&["second", "third"]);
    assert_eq!(kernel_objects()[0], programs, "a program was loaded for a known shape");
    run.fire(2);
    // Both clauses have no shape yet.
    run.add(&["other_1"]);
    assert_eq!(kernel_objects()[0], programs + 1);
    run.live.insert("other".into(), 0);
    run.fire(3);
    enable(&mut run, "ERROR { @[\"fault\"] = count(); }");
    run.add(&["fourth"]);
    assert_eq!(kernel_objects()[0], programs + 2, "the shape does not have the new clause of ERROR");
    run.fire(1);
    run.end();
    Verdict::Pass
}

fn ending() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    let before = kernel_objects();
    for wait in [0, 1, 3, 10] {
        let mut run = Running::start(COUNT, &[("quiet", "")]);
        run.add(&["stays", "goes_1", "goes_2"]);
        run.add(&["plain_goes"]);
        run.fire(4);
        run.remove(&["goes_1", "plain_goes"]);
        run.work(wait);
        run.remove(&["goes_2"]);
        run.end();
        testing::eventually("the end of the objects", testing::HANG_LIMIT, || {
            let now = kernel_objects();
            if now == before { Ok(()) } else { Err(format!("{now:?}, {before:?} before")) }
        });
    }
    Verdict::Pass
}

fn snapshots() -> Verdict {
    if let Some(skip) = cannot() {
        return skip;
    }
    // The clock alone would take a snapshot after an hour. More than the rows of two chunks, so the
    // table has three at the end if no row is free before.
    let mut run = Running::start(COUNT, &[("quiet", ""), ("aggrate", "1hour")]);
    run.add(&["stays"]);
    let names: Vec<String> = (0..1100).map(|n| format!("goes_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let chunks = mapped();
    run.add(&names);
    // Three chunks, and one in advance, which another thread installs; the one before may have been
    // counted already.
    run.until("chunks are there", |_| mapped() > chunks + 1);
    run.fire(1);
    run.remove(&names);
    run.until("rows are free", |_| mapped() <= chunks + 1);
    run.fire(1);
    run.end();
    Verdict::Pass
}
