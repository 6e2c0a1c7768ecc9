//! What is shown of each kind of event.

use std::borrow::Cow;

use events::{
    Action, AddrForm, AggFunc, AggValue, Argument, Calls, Column, Drop, DropKind, Event, Firing, Format,
    Growth, Interval, Part, Record, Sink, Stack, Symbol, SymbolName, ThreadName, Value,
};

use timeline::{Pair, Timeline};

use crate::generate::Generator;
use crate::read::{Kind, Trace, Track};
use crate::{Fed, START, int, probe, string, traced};

fn slice(name: &str, depth: usize, begin: u64, end: u64) -> (String, usize, u64, u64) {
    (name.into(), depth, begin, end)
}

#[test]
fn entries_and_returns_are_slices_of_their_threads() {
    let mut fed = Fed::new();
    let function = |name: &str| probe(&format!("pid7:a.out:main:{name}"), Calls::None);
    let call = |name: &str| probe(&format!("syscall:vmlinux:read:{name}"), Calls::System);
    fed.fire(10, (7, 7), &function("entry"), vec![]);
    fed.fire(20, (7, 7), &call("entry"), vec![traced("arg0", int(3))]);
    fed.fire(30, (7, 8), &call("entry"), vec![]);
    fed.fire(40, (7, 7), &call("return"), vec![traced("arg1", int(-1))]);
    fed.fire(50, (7, 8), &call("return"), vec![]);
    fed.fire(60, (7, 7), &function("return"), vec![]);
    let trace = fed.end();
    let expected = [slice("a.out`main", 0, 10, 60), slice("read", 1, 20, 40), slice("read", 0, 30, 50)];
    assert_eq!(trace.described(), expected);
    assert_eq!(
        trace.slices().iter().map(|s| trace.tracks[&s.track].tid).collect::<Vec<_>>(),
        [Some(7), Some(7), Some(8)]
    );
    let annotations: Vec<_> = trace.events.iter().flat_map(|event| event.annotations.clone()).collect();
    assert_eq!(annotations, [("arg0".into(), "3".into()), ("arg1".into(), "-1".into())]);
    assert_eq!(fed.0.losses(), Vec::<String>::new());
}

#[test]
fn what_does_not_match_is_dropped_or_closed_and_counted() {
    let mut fed = Fed::new();
    let of = |function: &str, name: &str| probe(&format!("fbt:vmlinux:{function}:{name}"), Calls::Kernel);
    fed.fire(5, (7, 7), &of("early", "return"), vec![]);
    fed.fire(10, (7, 7), &of("outer", "entry"), vec![]);
    fed.fire(11, (7, 7), &of("lost", "entry"), vec![]);
    fed.fire(20, (7, 7), &of("outer", "return"), vec![]);
    fed.fire(30, (7, 7), &of("last", "entry"), vec![]);
    let trace = fed.end();
    let expected = [
        slice("vmlinux`outer", 0, 10, 20),
        slice("vmlinux`lost", 1, 11, 20),
        slice("vmlinux`last", 0, 30, 30),
    ];
    assert_eq!(trace.described(), expected);
    assert_eq!(fed.0.losses(), ["1 return without an entry", "2 calls without a return"]);
    let last: Vec<_> = trace.instants().iter().map(|event| event.name.clone().unwrap()).collect();
    assert_eq!(last, fed.0.losses());
}

#[test]
fn clauses_of_a_firing_are_one_slice() {
    let mut fed = Fed::new();
    let call = |name: &str| probe(&format!("syscall:vmlinux:read:{name}"), Calls::System);
    fed.fire(10, (7, 7), &call("entry"), vec![]);
    fed.fire(10, (7, 7), &call("entry"), vec![traced("probefunc", string(b"read"))]);
    fed.fire(11, (7, 7), &call("return"), vec![]);
    fed.fire(11, (7, 7), &call("return"), vec![]);
    let trace = fed.end();
    assert_eq!(trace.described(), [slice("read", 0, 10, 11)]);
    assert_eq!(trace.instants()[0].annotations, [("probefunc".to_string(), "read".to_string())]);
    assert_eq!(fed.0.losses(), Vec::<String>::new());
}

#[test]
fn a_probe_that_names_what_is_called_may_have_its_return_elsewhere() {
    let mut fed = Fed::new();
    fed.fire(1, (7, 7), &probe("python7:libpython3.so:enter_frame:function-entry", Calls::None), vec![]);
    fed.fire(2, (7, 7), &probe("python7:libpython3.so:leave_frame:function-return", Calls::None), vec![]);
    assert_eq!(fed.end().described(), [slice("function", 0, 1, 2)]);
}

#[test]
fn other_records_are_instants_with_their_values() {
    let mut fed = Fed::new();
    let format = Format::parse("%s took %d\n").unwrap();
    let arg = |name: &str, value: Value<'static>| Argument { name: Cow::Owned(name.into()), value };
    let args = vec![arg("execname", string(b"bash")), arg("this->d", int(12))];
    let printf =
        events::Field { name: "".into(), action: Action::Printf { format: Cow::Owned(format), args } };
    fed.fire(9, (7, 8), &probe("io:::start", Calls::None), vec![printf, traced("", int(0))]);
    let trace = fed.end();
    let all = trace.instants();
    assert_eq!((all.len(), all[0].time, all[0].name.as_deref()), (1, 9, Some("io:::start")));
    let expected = [("printf", "bash took 12"), ("execname", "bash"), ("this->d", "12"), ("arg1", "0")];
    assert_eq!(all[0].annotations, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    let thread = Track { name: Some("bash".into()), pid: Some(7), tid: Some(8), ..Track::default() };
    assert_eq!(trace.tracks[&all[0].track], thread, "the thread has the name that the record has");
    assert!(trace.tracks.values().any(|track| track.tid.is_none() && track.pid == Some(7)));
}

#[test]
fn stacks_are_call_stacks_which_are_written_once() {
    let symbol = |process, module: &str, name: &str| {
        let name = SymbolName::new(Some(module.into()), Some(name.into()), 4);
        Symbol::new(0x10, process, AddrForm::Address, name)
    };
    let user = |names: &[&str]| {
        let frames = names.iter().map(|name| symbol(Some(7), "libc.so.6", name)).collect();
        traced("ustack()", Value::Stack(Stack { process: Some(7), frames }))
    };
    let kernel =
        traced("stack()", Value::Stack(Stack { process: None, frames: vec![symbol(None, "ext4", "f")] }));
    let mut fed = Fed::new();
    let tick = probe("profile:::97hz", Calls::None);
    for time in [1, 2] {
        fed.fire(time, (7, 7), &tick, vec![kernel.clone(), user(&["inner", "main"])]);
    }
    fed.fire(3, (7, 7), &tick, vec![user(&["main"]), user(&["other"])]);
    let trace = fed.end();
    let all = trace.instants();
    assert_eq!(all[0].stack, ["libc.so.6`main", "libc.so.6`inner", "ext4`f"]);
    assert_eq!((&all[1].stack, all[1].annotations.len()), (&all[0].stack, 0));
    assert_eq!(all[2].stack, ["libc.so.6`main"]);
    assert_eq!(all[2].annotations, [("ustack()".to_string(), "libc.so.6`other+0x4".to_string())]);
    let bytes = fed.0.output();
    assert_eq!(bytes.windows(5).filter(|window| window == b"inner").count(), 1);
}

#[test]
fn threads_that_records_do_not_name_are_asked_for() {
    let ask: ThreadName = |pid, tid| (tid != 9).then(|| format!("{pid}\n{tid}").into_bytes());
    let mut fed = Fed::of(Timeline::new(Vec::new()));
    fed.0.set_thread_name(ask);
    let tick = probe("profile:::97hz", Calls::None);
    fed.fire(1, (7, 8), &tick, vec![]);
    fed.fire(2, (9, 9), &tick, vec![]);
    fed.fire(3, (7, 8), &tick, vec![traced("execname", string(b"bash"))]);
    fed.fire(4, (7, 7), &probe("sched:vmlinux:x:on-cpu", Calls::None), vec![]);
    let trace = fed.end();
    let names: Vec<_> = trace.tracks.values().filter(|track| track.pid.is_some()).cloned().collect();
    let named = |name: Option<&str>, pid, tid| Track {
        name: name.map(Into::into),
        pid: Some(pid),
        tid,
        ..Track::default()
    };
    let expected = [
        named(Some("bash"), 7, Some(8)),
        named(Some("7\\n7"), 7, None),
        named(None, 9, Some(9)),
        named(None, 9, None),
        named(Some("7\\n7"), 7, Some(7)),
    ];
    assert_eq!(names, expected);
    assert_eq!(trace.slices()[0].name, "7\\n7 7");
}

#[test]
fn cpus_have_tracks_of_the_threads_that_run() {
    let mut fed = Fed::new();
    let (on, off) =
        (probe("sched:vmlinux:x:on-cpu", Calls::None), probe("sched:vmlinux:x:off-cpu", Calls::None));
    fed.fire(1, (7, 8), &off, vec![]);
    fed.fire(2, (7, 7), &on, vec![traced("execname", string(b"bash"))]);
    fed.fire(3, (7, 7), &off, vec![]);
    fed.fire(3, (7, 7), &off, vec![]);
    fed.fire(4, (7, 8), &on, vec![]);
    fed.fire(5, (9, 9), &on, vec![]);
    let trace = fed.end();
    let expected = [slice("bash 7", 0, 2, 3), slice("thread 8", 0, 4, 5), slice("thread 9", 0, 5, 5)];
    assert_eq!(trace.described(), expected);
    let track = &trace.tracks[&trace.slices()[0].track];
    assert_eq!(track.name.as_deref(), Some("CPU 0"));
    assert_eq!(trace.tracks[&track.parent.unwrap()].name.as_deref(), Some("CPUs"));
    assert_eq!(fed.0.losses(), Vec::<String>::new(), "what ran at the begin is no loss");
}

#[test]
fn pairs_of_probes_are_slices_by_their_key() {
    let pair = Pair::parse("io:::start(arg0)..io:::done(1)").unwrap();
    let mut fed = Fed::of(Timeline::with_pairs(Vec::new(), vec![pair]));
    let (start, done) = (probe("io:::start", Calls::None), probe("io:::done", Calls::None));
    let key = |n: i64| vec![traced("arg0", int(n)), traced("execname", string(b"bash"))];
    fed.fire(1, (7, 7), &done, key(9));
    fed.fire(2, (7, 7), &start, key(5));
    fed.fire(3, (8, 8), &start, key(6));
    fed.fire(4, (0, 0), &done, key(5));
    fed.fire(5, (7, 7), &start, key(7));
    fed.fire(6, (0, 0), &done, key(6));
    fed.fire(7, (7, 7), &start, key(7));
    fed.fire(8, (7, 7), &start, vec![]);
    fed.fire(9, (7, 7), &start, key(-131_367_501_198_528));
    fed.fire(9, (7, 7), &done, key(-131_367_501_198_528));
    let trace = fed.end();
    let expected = [
        slice("5", 0, 2, 4),
        slice("6", 0, 3, 6),
        slice("7", 0, 5, 7),
        slice("7", 0, 7, 9),
        slice("0xffff88859ec18b40", 0, 9, 9),
    ];
    assert_eq!(trace.described(), expected);
    assert_eq!(trace.instants()[0].name.as_deref(), Some("io:::start"), "a record without the key");
    let tracks: Vec<u64> = trace.slices().iter().map(|slice| slice.track).collect();
    assert!(tracks[0] != tracks[1] && tracks[2] == tracks[0], "{tracks:?}");
    let of = |track: u64| trace.tracks[&track].name.as_deref();
    assert_eq!((of(tracks[0]), of(tracks[1])), (Some("io:::start(arg0)..io:::done(1)"), of(tracks[0])));
    assert_eq!(fed.0.losses(), ["1 end of a slice without a begin", "2 begins of slices without an end"]);
}

#[test]
fn a_pair_of_which_no_record_has_the_key_is_said() {
    let pair = Pair::parse("io:::start(arg0)..io:::done(arg9)").unwrap();
    let mut fed = Fed::of(Timeline::with_pairs(Vec::new(), vec![pair]));
    let (start, done) = (probe("io:::start", Calls::None), probe("io:::done", Calls::None));
    let key = || vec![traced("arg0", int(1))];
    fed.fire(1, (7, 7), &start, key());
    fed.fire(2, (7, 7), &done, key());
    let expected = [
        "1 begin of a slice without an end",
        "io:::start(arg0)..io:::done(arg9): no record with its key ends a slice",
    ];
    fed.end();
    assert_eq!(fed.0.losses(), expected);
}

fn interval(begin: u64, name: &str, function: AggFunc, rows: &[(&str, i64)]) -> Event<'static> {
    let value = |number: i64| {
        let mut words = vec![0; function.value_size() as usize / 8];
        words[0] = number as u64;
        AggValue { function, words: words.into(), normal: 1, cpus: Vec::new(), absent: false }
    };
    let rows = rows.iter().map(|(key, number)| Growth {
        key: if key.is_empty() { vec![] } else { vec![string(key.as_bytes())] },
        increment: value(*number),
        total: value(99),
    });
    let column = Column { name: Cow::Owned(name.into()), function };
    Event::Interval(Interval::new(START + begin, START + begin + 100, column, rows.collect()))
}

#[test]
fn aggregations_are_counters_by_interval() {
    let mut fed = Fed::new();
    fed.event(&interval(100, "reads", AggFunc::Count, &[("bash", 3), ("sh", 4)]));
    fed.event(&interval(100, "_", AggFunc::Max, &[("", -8)]));
    fed.event(&interval(200, "reads", AggFunc::Count, &[("sh", 5)]));
    fed.event(&interval(200, "_", AggFunc::Max, &[]));
    fed.event(&interval(300, "spread", AggFunc::Quantize, &[("sh", 7)]));
    let trace = fed.end();
    assert_eq!(trace.counter("bash"), [(100, 3), (200, 0)]);
    assert_eq!(trace.counter("sh"), [(100, 4), (200, 5), (300, 7), (400, 0), (400, 0)]);
    assert_eq!(trace.counter("@"), [(100, -8)], "no maximum is not 0");
    let groups: Vec<_> = trace.tracks.values().filter(|track| track.parent.is_none()).collect();
    assert_eq!(
        groups.iter().map(|track| track.name.as_deref().unwrap()).collect::<Vec<_>>(),
        ["@reads", "@", "@spread"]
    );
}

#[test]
fn keys_beyond_a_number_have_no_counter_and_are_counted() {
    let mut fed = Fed::new();
    let names: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    let rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    fed.event(&interval(100, "many", AggFunc::Count, &rows));
    let trace = fed.end();
    assert_eq!(trace.tracks.values().filter(|track| track.is_counter).count(), 4096);
    assert_eq!(fed.0.losses(), ["904 values of keys without a counter"]);
}

#[test]
fn messages_are_instants_and_times_may_go_back() {
    let mut fed = Fed::new();
    fed.fire(100, (7, 7), &probe("a:b:c:d", Calls::None), vec![]);
    let mut drop = Drop::new(DropKind::Principal, 1, 5);
    drop.time = Some(START + 50);
    fed.event(&Event::Drop(drop));
    fed.fire(101, (7, 7), &probe("a:b:c:d", Calls::None), vec![]);
    let trace = fed.end();
    let all: Vec<_> = trace.instants().iter().map(|e| (e.time, e.name.clone().unwrap())).collect();
    assert_eq!(all, [(100, "a::c:d".into()), (50, "5 drops on CPU 1".into()), (101, "a::c:d".into())]);
}

#[test]
fn records_without_a_thread_are_instants_of_their_cpu() {
    let mut fed = Fed::new();
    let call = probe("syscall:vmlinux:read:entry", Calls::System);
    let firing = Firing::new(START + 1, 3, 1, Cow::Borrowed(&call));
    fed.event(&Event::Record(Record { firing, part: Part::WHOLE, fields: vec![] }));
    let trace = fed.end();
    assert_eq!(trace.instants().len(), 1);
    assert_eq!(trace.tracks[&trace.instants()[0].track].name.as_deref(), Some("records, CPU 3"));
}

#[test]
fn threads_beyond_a_number_are_described_again() {
    let mut fed = Fed::new();
    let call = |name: &str| probe(&format!("syscall:vmlinux:read:{name}"), Calls::System);
    let (entry, back) = (call("entry"), call("return"));
    fed.fire(0, (1, 1), &entry, vec![]);
    for tid in 2..70_000 {
        fed.fire(1, (tid, tid), &entry, vec![]);
        fed.fire(2, (tid, tid), &back, vec![]);
    }
    fed.fire(3, (1, 1), &back, vec![]);
    let trace = fed.end();
    assert_eq!(trace.slices().len(), 69_999);
    assert_eq!(trace.described()[0], slice("read", 0, 0, 3), "a thread with an open call is kept");
    assert_eq!(trace.events.iter().filter(|event| event.kind == Kind::Begin).count(), 69_999);
    assert_eq!(fed.0.losses(), Vec::<String>::new());
}

#[test]
fn any_events_are_a_timeline_whose_slices_nest() {
    for seed in 0..300 {
        let mut generator = Generator::new(seed);
        let pairs = vec![Pair::parse("*(1)..*(2)").unwrap()];
        let mut timeline = Timeline::with_pairs(Vec::new(), if seed % 2 == 0 { pairs } else { Vec::new() });
        for _ in 0..30 {
            timeline.event(&generator.event()).unwrap();
        }
        timeline.aborted();
        timeline.flush().unwrap();
        Trace::read(timeline.output()).slices();
    }
}
