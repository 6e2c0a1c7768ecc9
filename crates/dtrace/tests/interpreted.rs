//! Sessions of the interpreter: every script of `tests/interpreted` over its firings, with its
//! exact output, messages and status, as a user without privileges, with no call of BPF or perf.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dtrace::events::{
    Action, Argument, Clock, Encoder, Event, Format, Host, Int, Occasion, Packet, Reader, Value,
};
use dtrace::interpreter::{Firing, GivenProbes, Interpreter, Memory};
use dtrace::options::Options;
use dtrace::provider::{EnabledProbe, Env, OpenChanges, ProbeSource, Provider, ProviderFacts, Unit};
use dtrace::{Error, Field, Json, Macros, Message, Program, Session, Setup, Sink, Source, Status, Text};

use crate::given::{self, Given, without_ids, without_privileges};

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>, Arc<Mutex<String>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for Output {
    fn messages(&mut self, messages: &[Message]) -> std::io::Result<()> {
        let mut text = self.1.lock().unwrap();
        messages.iter().for_each(|m| text.push_str(&format!("{m}\n")));
        Ok(())
    }
}

/// Text, and the encoded events.
type Sinks = (Text<Output>, Encoder<Vec<u8>>);

fn sinks(out: &Output) -> Sinks {
    (Text::new(out.clone()), Encoder::new(Vec::new()))
}

/// The text of the encoded events is that of the session.
#[track_caller]
fn compare_events(encoded: &[u8], text: &str) {
    let mut reader = Reader::new(encoded);
    let copy = Output::default();
    let mut rendered = Text::of_stored_events(copy.clone());
    while let Some(event) = reader.next_event().unwrap() {
        rendered.event(&event).unwrap();
    }
    rendered.flush().unwrap();
    assert_eq!(copy.text(), text);
}

impl Output {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[track_caller]
fn compile(source: Source, options: &mut Options, given: &Given) -> Program {
    dtrace::compile_with(&dtrace::System::live(), &[source], &Macros::default(), options, given.providers())
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Output, messages and status of a session.
fn run(mut session: Session<Sinks>, out: &Output) -> String {
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    let status = session.finish().unwrap();
    let messages = out.1.lock().unwrap().clone();
    compare_events(session.sink().1.get_ref(), &out.text());
    format!("{}== messages\n{messages}== status {status}\n", out.text())
}

#[test]
fn scripts_have_their_golden_output_without_privileges_and_bpf() {
    without_privileges();
    testing::golden::compare(&given::directory(), "d", "txt", |path, script| {
        let given = Given::of(script);
        let mut options = given.options();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let program = compile(Source::Script(name, script.into()), &mut options, &given);
        let out = Output::default();
        let session = Session::interpret(&program, options, given.interpreter(), sinks(&out)).unwrap();
        without_ids(&program, run(session, &out))
    });
}

fn start(
    script: &str,
    firings: impl IntoIterator<Item = Firing, IntoIter: Send + 'static>,
) -> (Session<Sinks>, Output) {
    without_privileges();
    let mut options = Options::default();
    options.set("quiet", None).unwrap();
    let source = Source::Specifier(Field::Name, script.into());
    let program = compile(source, &mut options, &Given::default());
    let out = Output::default();
    let session = Session::interpret(&program, options, Interpreter::new(firings), sinks(&out)).unwrap();
    (session, out)
}

#[test]
fn programs_that_are_enabled_later_fire_from_then_on() {
    let firing = |pid| Firing { pid, ..Firing::of("syscall::getpid:entry") };
    let (mut session, out) =
        start("syscall::getpid:entry { n++; printf(\"first %d\\n\", pid); }", (1..=4).map(firing));
    session.work(None, Duration::ZERO).unwrap();
    session.work(None, Duration::ZERO).unwrap();
    let more = "BEGIN { printf(\"more after %d\\n\", n); } \
                syscall::getpid:entry { @[probefunc] = count(); printf(\"second %d\\n\", n); } \
                syscall::getpid:return { printf(\"never\\n\"); }";
    let source = Source::Specifier(Field::Name, more.into());
    let matched = session.enable(&[source], &Macros::default()).ok().unwrap();
    assert_eq!(matched, [3]);
    let expected = "first 1\nfirst 2\nmore after 2\nfirst 3\nsecond 3\nfirst 4\nsecond 4\n";
    assert_eq!(run(session, &out), format!("{expected}\n  getpid{:60}2\n== messages\n== status 0\n", ""));
}

#[test]
fn an_endless_sequence_of_firings_ends_by_exit_or_by_a_stopper() {
    let endless = || (0..).map(|time| Firing { time, ..Firing::of("syscall::getpid:entry") });
    let script = "syscall::getpid:entry /++n == 100000/ { exit(7); } END { printf(\"%d\\n\", n); }";
    let (session, out) = start(script, endless());
    assert_eq!(run(session, &out), "100000\n\n== messages\n== status 7\n");

    let (mut session, _out) = start("syscall::getpid:entry { n++; }", endless());
    let stopper = session.stopper().unwrap();
    // It works, and no firing ends it.
    assert_eq!(session.work(None, Duration::ZERO).unwrap(), Status::Working);
    std::thread::spawn(move || stopper.stop());
    testing::eventually("the end by a stopper", testing::HANG_LIMIT, || {
        session.work(None, Duration::from_secs(1)).unwrap() != Status::Working
    });
    assert_eq!(session.finish().unwrap(), 0);
}

#[test]
fn a_session_of_the_interpreter_is_ready_until_its_firings_end() {
    let (mut session, out) =
        start("syscall::getpid:entry { trace(pid); }", [Firing::of("syscall::getpid:entry")]);
    assert!(session.descriptors().is_empty() && session.next_deadline() <= Instant::now());
    while session.ready().unwrap() == Status::Working {}
    session.finish().unwrap();
    assert_eq!(out.text().trim(), "0");
}

#[test]
fn destructive_programs_are_rejected_without_permission() {
    let mut options = Options::default();
    let source = Source::Specifier(Field::Name, "BEGIN { stop(); }".into());
    let program = compile(source, &mut options, &Given::default());
    let e =
        Session::interpret(&program, options, Interpreter::new([]), sinks(&Output::default())).err().unwrap();
    assert_eq!(e.to_string(), "could not enable tracing: Destructive actions not allowed");
}

/// The events of a script over one firing, as they are read from the encoding.
fn events(script: &str, options: &[&str], more: Option<&str>) -> Vec<Event<'static>> {
    let mut set = Options::default();
    for name in options {
        set.set(name, None).unwrap();
    }
    let program = compile(Source::Specifier(Field::Name, script.into()), &mut set, &Given::default());
    let firing = |time| Firing { pid: 7, tid: 8, time, ..Firing::of("syscall::getpid:entry") };
    let out = Output::default();
    let interpreter = Interpreter::new((1..=2).map(firing));
    let mut session = Session::interpret(&program, set, interpreter, sinks(&out)).unwrap();
    if let Some(more) = more {
        session.work(None, Duration::ZERO).unwrap();
        let source = Source::Specifier(Field::Name, more.into());
        session.enable(&[source], &Macros::default()).ok().unwrap();
    }
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    session.finish().unwrap();
    let mut reader = Reader::new(&session.sink().1.get_ref()[..]);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        all.push(event.into_owned());
    }
    all
}

/// The names of the fields of the first record of a probe, with those of the arguments in brackets.
fn field_names(events: &[Event<'_>]) -> Vec<String> {
    let firing = events.iter().find_map(|event| match event {
        Event::Record(record) if &*record.firing.probe.name == "entry" => Some(record),
        _ => None,
    });
    let fields = &firing.unwrap().fields;
    let name = |field: &dtrace::events::Field<'_>| match &field.action {
        Action::Printf { args, .. } => {
            let names: Vec<&str> = args.iter().map(|arg| &*arg.name).collect();
            format!("{}[{}]", field.name, names.join("; "))
        }
        _ => field.name.to_string(),
    };
    fields.iter().map(name).collect()
}

/// The names of the columns of keys, by aggregation.
fn key_names(events: &[Event<'_>]) -> Vec<(String, Vec<String>)> {
    let all = events.iter().filter_map(|event| match event {
        Event::Aggregation(all) => Some(all),
        _ => None,
    });
    let names = |all: &dtrace::events::Aggregation<'_>| {
        let columns: Vec<&str> = all.columns.iter().map(|c| &*c.name).collect();
        (columns.join(","), all.keys.iter().map(|key| key.to_string()).collect())
    };
    all.map(names).collect()
}

#[test]
fn values_are_named_by_their_expressions() {
    let script = "syscall::getpid:entry { this->x = 3; this->b = alloca(8); trace(pid); trace(this->x  +\n /* twice */ (1 * 2)); \
                  printf(\"%d %s %d\\n\", tid , strjoin(\"a  b\", execname), arg0 ? 1:2); stack(); \
                  tracemem(this->b, 8); print(this->x); exit(this->x); }";
    let names = field_names(&events(script, &[], None));
    let printf = "[tid; strjoin(\"a  b\", execname); arg0 ? 1:2]";
    assert_eq!(names, ["pid", "this->x + (1 * 2)", printf, "stack()", "this->b", "this->x", "this->x"]);
}

#[test]
fn columns_of_keys_are_named_by_their_expressions() {
    let script = "syscall::getpid:entry { @a[pid, execname, arg0 + 1] = count(); @b[pid] = sum(1); @b[tid] = sum(2); \
                  @c[ppid] = max(1); @d[uid] = max(2); @[probefunc] = count(); printa(@c, @d); printa(@c); }";
    let names = |more| {
        let mut all = key_names(&events(script, &["quiet"], more));
        all.sort();
        all.dedup();
        all
    };
    let named = |name: &str, keys: &[&str]| (name.into(), keys.iter().map(|key| key.to_string()).collect());
    // The statements of @b differ, and so do @c and @d.
    let alone = [
        named("_", &["probefunc"]),
        named("a", &["pid", "execname", "arg0 + 1"]),
        named("b", &[""]),
        named("c", &["ppid"]),
        named("c,d", &[""]),
    ];
    assert_eq!(names(None), alone);
    // A program that is enabled later names a column otherwise.
    let mut with_another = alone.clone();
    with_another[1].1[2] = String::new();
    let more = "syscall::getpid:entry { @a[pid, execname, arg1] = count(); }";
    assert_eq!(names(Some(more)), with_another);
}

#[test]
fn records_have_process_and_thread_ids_when_the_option_is_set() {
    let script = "syscall::getpid:entry { trace(1); } syscall::getpid:entry { } \
                  syscall::getpid:entry { if (arg0 == 0) { printf(\"%s\", execname); } else { trace(2); } }";
    let ids = |options: &[&str]| -> Vec<_> {
        let records = events(script, options, None).into_iter().filter_map(|event| match event {
            Event::Record(record) => Some((record.firing.pid, record.firing.tid)),
            _ => None,
        });
        records.collect()
    };
    assert_eq!(ids(&[]), [(None, None); 6]);
    assert_eq!(ids(&["processids"]), [(Some(7), Some(8)); 6]);
}

/// The events of a session that has ended.
fn events_of(session: &Session<Sinks>) -> Vec<Event<'static>> {
    let mut reader = Reader::new(&session.sink().1.get_ref()[..]);
    std::iter::from_fn(|| reader.next_event().unwrap().map(Event::into_owned)).collect()
}

#[test]
fn aggregations_are_delivered_on_demand_and_still_at_the_end() {
    let firing = |time: u64| Firing { time, pid: time as i32, ..Firing::of("syscall::getpid:entry") };
    let script = "syscall::getpid:entry { @sum = sum(pid); @n[pid] = count(); } END { printa(@n); }";
    let (mut session, out) = start(script, (1..=3).map(firing));
    // Each turn executes what the firings give, up to the next record; there is none.
    session.work(None, Duration::ZERO).unwrap();
    session.deliver_aggregations().unwrap();
    assert_eq!(out.text().split_whitespace().collect::<Vec<_>>(), ["6", "1", "1", "2", "1", "3", "1"]);
    run(session, &out);

    let (mut session, _out) = start(script, (1..=3).map(firing));
    session.work(None, Duration::ZERO).unwrap();
    session.deliver_aggregations().unwrap();
    session.finish().unwrap();
    let rows = events_of(&session).into_iter().filter_map(|event| match event {
        Event::Aggregation(all) => {
            Some((all.columns[0].name.clone().into_owned(), all.occasion, all.time, all.rows.len()))
        }
        _ => None,
    });
    let named = |name: &str, occasion, rows| (name.to_owned(), occasion, Some(3), rows);
    let expected = [
        named("sum", Occasion::Demand, 1),
        named("n", Occasion::Demand, 3),
        named("n", Occasion::Printa, 3),
        named("sum", Occasion::End, 1),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn drops_and_messages_have_the_time_at_which_they_were_found() {
    let firing = |time| Firing { time, ..Firing::of("syscall::getpid:entry") };
    let script = "syscall::getpid:entry /timestamp == 7/ { setopt(\"nothing\"); }
                  syscall::getpid:entry { a[timestamp] = 1; } ERROR { x = *(int *)0; }
                  syscall::getpid:entry /timestamp == 8/ { x = *(int *)0; }";
    let (mut session, _out) = start(script, (7..=9).map(firing));
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    session.finish().unwrap();
    let times: Vec<_> = events_of(&session)
        .into_iter()
        .filter_map(|event| match event {
            Event::Drop(drop) => Some((drop.kind.help(), drop.time)),
            Event::Notice(notice) => Some(("notice", notice.time)),
            _ => None,
        })
        .collect();
    assert_eq!(times, [("notice", Some(7)), (dtrace::events::DropKind::DoubleError.help(), Some(9))]);
}

/// Works until the firings end, and finishes.
fn complete(session: &mut Session<Sinks>) -> i32 {
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    session.finish().unwrap()
}

const GETPID: &str = "syscall::getpid:entry";

#[test]
fn end_fires_once_however_often_a_session_is_finished() {
    let script = "BEGIN { n = 3; } END { printf(\"end\\n\"); exit(n); }";
    let (mut session, out) = start(script, []);
    assert_eq!(complete(&mut session), 3);
    assert_eq!(session.finish().unwrap(), 3);
    assert_eq!(out.text(), "end\n\n");
    assert!(session.deliver_aggregations().is_err());
    let (_, encoder) = session.into_sink();
    let bytes = encoder.into_inner().unwrap();
    let mut reader = Reader::new(&bytes[..]);
    let mut ends = 0;
    while let Some(event) = reader.next_event().unwrap() {
        ends += usize::from(matches!(event, Event::End { status: 3 }));
    }
    assert_eq!(ends, 1);

    let (mut session, out) = start(script, []);
    session.abort();
    assert_eq!(session.finish().unwrap_err().to_string(), "could not finish: the session is over");
    assert_eq!(out.text(), "");
}

/// Five are messages of their own; the others wait for a second to pass, which does not.
#[test]
fn faults_that_were_only_counted_are_messages_of_a_session_that_is_aborted() {
    let (mut session, out) = start("syscall::getpid:entry { x = *(int *)0; }", vec![Firing::of(GETPID); 8]);
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    assert_eq!(out.1.lock().unwrap().lines().count(), 5);
    session.abort();
    let messages = out.1.lock().unwrap().clone();
    assert!(messages.lines().count() == 6 && messages.contains("\n3 more errors"), "{messages}");
}

#[test]
fn drops_and_faults_precede_the_stop_and_the_end() {
    let script = "syscall::getpid:entry { @ = count(); } ERROR { x = *(int *)0; } END { x = *(int *)0; }";
    let (mut session, _out) = start(script, [Firing::of(GETPID)]);
    complete(&mut session);
    let events = events_of(&session);
    let at = |is: fn(&Event<'_>) -> bool| events.iter().position(is).unwrap();
    let (drop, fault) = (at(|e| matches!(e, Event::Drop(_))), at(|e| matches!(e, Event::Fault(_))));
    let (stop, rows) = (at(|e| matches!(e, Event::Stop)), at(|e| matches!(e, Event::Aggregation(_))));
    assert!(fault < stop && drop < stop && stop < rows, "{events:?}");
    assert_eq!(events.last(), Some(&Event::End { status: 0 }));
}

#[test]
fn the_start_of_an_interpreted_session_is_that_of_its_firings() {
    let tracer = Firing { time: 7, walltime: 9, ..Firing::default() };
    let host = Host::new("there", "1.2", "m", 64);
    for given in [None, Some(host)] {
        let mut options = Options::default();
        let program =
            compile(Source::Specifier(Field::Name, "BEGIN".into()), &mut options, &Given::default());
        let mut interpreter = Interpreter::new([]).with_tracer(tracer.clone()).with_cpus(2);
        if let Some(host) = &given {
            interpreter = interpreter.with_host(host.clone());
        }
        let out = Output::default();
        let session = Session::interpret(&program, options, interpreter, sinks(&out)).unwrap();
        let mut session = session;
        complete(&mut session);
        let all = events_of(&session);
        let Some(Event::Start(start)) = all.first() else { panic!("{all:?}") };
        assert_eq!(start.clock, Clock { time: 7, wall: 9 });
        assert_eq!(start.host, given.unwrap_or(Host::new("", "", "", 2)));
    }
}

/// Each second of the firings, however long the test takes.
#[test]
fn drops_of_given_firings_are_reported_by_their_clock() {
    let firing = |n: u64| Firing { time: n * 300_000_000, ..Firing::of(GETPID) };
    let script = "syscall::getpid:entry { x = *(int *)0; } ERROR { x = *(int *)0; }";
    let found = || {
        let (mut session, _out) = start(script, (1..=8).map(firing));
        complete(&mut session);
        let drops = events_of(&session).into_iter().filter_map(|event| match event {
            Event::Drop(drop) => Some((drop.count, drop.time)),
            _ => None,
        });
        drops.collect::<Vec<_>>()
    };
    let expected = [(4, Some(1_200_000_000)), (4, Some(2_400_000_000))];
    assert_eq!((found(), found()), (expected.to_vec(), expected.to_vec()));
}

/// A provider with a source of changes, which must not be opened.
struct Changing(GivenProbes);

impl Provider for Changing {
    fn facts(&self) -> ProviderFacts {
        self.0.facts()
    }

    fn probes(&self) -> &dyn ProbeSource {
        self.0.probes()
    }

    fn changes(&self) -> Option<OpenChanges<'_>> {
        Some(Box::new(|| panic!("a source of this system was opened")))
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        self.0.plan(probes, env)
    }
}

#[test]
fn programs_that_are_enabled_in_an_interpreted_session_open_no_source_of_this_system() {
    let mut options = Options::default();
    options.set("zdefs", None).unwrap();
    let provider = Changing(GivenProbes::new("later").probe("", "", "here", &[]));
    let source = || Source::Specifier(Field::Name, "later:::h* { @ = count(); }".into());
    let providers = vec![Box::new(provider) as Box<dyn Provider>];
    let program = dtrace::compile_with(
        &dtrace::System::live(),
        &[source()],
        &Macros::default(),
        &mut options,
        providers,
    )
    .unwrap();
    let out = Output::default();
    let mut session = Session::interpret(&program, options, Interpreter::new([]), sinks(&out)).unwrap();
    session.enable(&[source()], &Macros::default()).unwrap();
    assert!(session.descriptors().is_empty());
    complete(&mut session);
}

#[test]
fn a_sink_that_needs_process_ids_is_refused_where_the_program_has_none() {
    let source = || Source::Specifier(Field::Name, format!("{GETPID} {{ trace(1); }}"));
    let ids = |program: &Program, options| {
        let session = Session::interpret(program, options, Interpreter::new([]), Json::new(Vec::new()));
        session.map(drop).map_err(|e| e.to_string())
    };
    for (processids, is_refused) in [(false, true), (true, false)] {
        let mut options = Options { processids, ..Options::default() };
        let program = compile(source(), &mut options, &Given::default());
        // What is set afterwards comes too late for it.
        let started = ids(&program, Options { processids: true, ..options });
        assert_eq!(started.is_err(), is_refused, "{started:?}");
        assert!(started.err().is_none_or(|why| why.contains("processids")));
    }
}

#[test]
fn compiling_ends_when_it_is_told_to() {
    let source = Source::Specifier(Field::Name, format!("{GETPID} {{ trace(1); }}"));
    let setup = Setup { stop: Box::new(|| true), ..Setup::default() };
    let (system, macros) = (dtrace::System::live(), Macros::default());
    let stopped = dtrace::compile_as(&system, &[source], &macros, &mut Options::default(), setup);
    assert!(matches!(stopped.map(drop).map_err(|e| e.error), Err(Error::Interrupted)));
}

#[test]
fn paths_of_files_are_those_that_were_given() {
    let memory = Memory::new().path(0x1000, "/etc/passwd").into();
    let firing = Firing { args: vec![0x1000, 0x2000], memory, ..Firing::of(GETPID) };
    let script = "syscall::getpid:entry { printf(\"%s\\n\", d_path((struct path *)arg0)); \
                  printf(\"%s\\n\", d_path((struct path *)arg1)); }";
    let (mut session, out) = start(script, [firing]);
    complete(&mut session);
    let fault = events_of(&session).into_iter().find_map(|event| match event {
        Event::Fault(fault) => Some(fault.value),
        _ => None,
    });
    assert_eq!((out.text().trim(), fault), ("", Some(0x2000)));
    let script = "syscall::getpid:entry { printf(\"%s\\n\", d_path((struct path *)arg0)); }";
    let memory = Memory::new().path(0x1000, "/etc/passwd").into();
    let (mut session, out) = start(script, [Firing { args: vec![0x1000], memory, ..Firing::of(GETPID) }]);
    complete(&mut session);
    assert_eq!(out.text().trim(), "/etc/passwd");
}

#[test]
fn packets_of_socket_buffers_are_those_that_were_given() {
    let memory = Memory::new().packet(0x1000, *b"\x45 a packet").into();
    let firing = Firing { args: vec![0x1000, 0x2000], memory, walltime: 17, ..Firing::of(GETPID) };
    let script =
        "syscall::getpid:entry { pcap(arg0, PCAP_IP); } syscall::getpid:entry { pcap(arg1, PCAP_IP); }";
    let (mut session, _) = start(script, [firing]);
    complete(&mut session);
    let events = events_of(&session);
    let packets: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Record(record) => Some(&record.fields),
            _ => None,
        })
        .flatten()
        .map(|field| field.action.clone())
        .collect();
    let packet = Packet { protocol: 12, time: 17, length: 10, bytes: b"\x45 a packet".as_slice().into() };
    assert_eq!(packets, [Action::Packet(packet)]);
    let fault = events.into_iter().find_map(|event| match event {
        Event::Fault(fault) => Some(fault.value),
        _ => None,
    });
    assert_eq!(fault, Some(0x2000));
}

#[test]
fn a_large_buffer_takes_memory_only_for_what_is_recorded() {
    let resident = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    without_privileges();
    let mut options = Options::default();
    options.set("bufsize", Some("256m")).unwrap();
    let source = Source::Specifier(Field::Name, "syscall::getpid:entry { trace(pid); }".into());
    let program = compile(source, &mut options, &Given::default());
    let before = resident();
    let interpreter = Interpreter::new([Firing::of(GETPID)]).with_cpus(4);
    let mut session = Session::interpret(&program, options, interpreter, sinks(&Output::default())).unwrap();
    complete(&mut session);
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 10, "{grown} KiB");
}

#[test]
fn a_record_is_split_by_an_option_only_if_the_output_changes() {
    let parts = |option: &str| {
        let script = format!("syscall::getpid:entry {{ trace(1); setopt({option}); trace(2); }}");
        let (mut session, _out) = start(&script, [Firing::of(GETPID)]);
        complete(&mut session);
        events_of(&session).iter().filter(|e| matches!(e, Event::Record(_))).count()
    };
    // The session is quiet already; the rate is none of the output's options; the third does not
    // exist.
    for option in ["\"quiet\"", "\"switchrate\", \"7s\"", "\"nothing\""] {
        assert_eq!(parts(option), 1, "{option}");
    }
    assert_eq!(parts("\"quiet\", \"no\""), 2);
}

#[test]
fn an_error_of_compiling_shows_the_line_that_it_is_about() {
    let source = Source::Specifier(Field::Name, "BEGIN { trace(nothing); }".into());
    let e = dtrace::compile(&dtrace::System::live(), &[source], &Macros::default(), &mut Options::default())
        .err()
        .unwrap();
    let e: Box<dyn std::error::Error + Send + Sync> = e.into();
    assert!(e.to_string().contains("nothing") && e.source().is_some(), "{e}");
}

#[test]
fn the_iterator_of_probes_gives_what_is_listed() {
    let mut listed = Vec::new();
    dtrace::list::all(&dtrace::System::live(), &mut listed, false).unwrap();
    let listed = String::from_utf8(listed).unwrap();
    // Those that processes describe come and go.
    let is_fixed = |provider: &str| !provider.ends_with(|c: char| c.is_ascii_digit());
    let rows = listed.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let all: Vec<u32> = rows.filter(|row| is_fixed(row[1])).map(|row| row[0].parse().unwrap()).collect();
    let probes = dtrace::list::probes(&dtrace::System::live()).filter(|p| is_fixed(&p.desc.provider));
    assert_eq!(probes.map(|p| p.id.0).collect::<Vec<_>>(), all);
    let first = dtrace::list::probes(&dtrace::System::live()).next().unwrap();
    assert_eq!((first.id.0, first.desc.to_string().as_str()), (1, "dtrace:::BEGIN"));
}

#[test]
fn formats_are_rendered_without_a_session() {
    let format = Format::parse("<%5d %-4s>").unwrap();
    let argument = |value| Argument { name: "".into(), value };
    let values = [Value::Int(Int::new(7, 4, true)), Value::Str { text: b"ab"[..].into(), size: 3 }];
    assert_eq!(dtrace::render(&format, &values.map(argument)), b"<    7 ab  >");
}
