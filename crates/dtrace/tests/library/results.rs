//! Results as data: one session with two sinks, and its events read back without the session.

use std::time::{Duration, Instant};

use dtrace::events::{Action, Encoder, Event, Occasion, Reader, Value};
use dtrace::options::Options;
use dtrace::{Message, MessageKind, Session, Sink, Status, Text};

use crate::tool::{compile, workload};
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("results::text_of_decoded_events_is_the_text_of_the_session", same_text),
    ("results::suppressed_firings_of_tracepoints_are_those_of_named_probes", suppressed_names),
    ("results::events_have_values_names_and_the_order_of_the_session", contents),
];

/// Results and messages in one text, in the order in which they are written.
#[derive(Default)]
struct All(Vec<u8>, Vec<Message>);

impl std::io::Write for All {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for All {
    fn messages(&mut self, messages: &[Message]) -> std::io::Result<()> {
        self.1.extend_from_slice(messages);
        Ok(())
    }
}

/// Runs a script on a workload; the text, its messages, and the encoded events.
fn traced(script: &str, set: &[(&str, Option<&str>)]) -> (All, Vec<u8>) {
    let target = workload(2, 300);
    let mut options = Options::default();
    for (name, value) in set {
        options.set(name, *value).unwrap();
    }
    let program = compile(script, &mut options, target.pid() as u64);
    let sinks = (Text::new(All::default()), Encoder::new(Vec::new()));
    let mut session = Session::start(&program, options, vec![target], sinks).unwrap();
    let start = Instant::now();
    while session.work(None, Duration::from_millis(50)).unwrap() == Status::Working {
        assert!(start.elapsed() < testing::HANG_LIMIT, "no end");
    }
    assert_eq!(session.finish().unwrap(), 0);
    let (text, encoder) = session.sink_mut();
    (std::mem::take(text.output_mut()), std::mem::take(encoder.get_mut()))
}

fn suppressed_names() -> Verdict {
    let mut options = Options::default();
    let script = "rawtp:::sched_switch, rawtp:::sched_process_exit /pid == $target/ { @ = count(); }";
    let program = compile(script, &mut options, 0);
    let mut session = Session::start(&program, options, Vec::new(), Text::new(All::default())).unwrap();
    let names: Vec<String> = session.suppressed().unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name.starts_with("rawtp:sched::sched_")), "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with("rawtp") || name.contains(':')), "{names:?}");
    session.finish().unwrap();
    Verdict::Pass
}

fn decoded(bytes: &[u8]) -> Vec<Event<'static>> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        all.push(event.into_owned());
    }
    all
}

const SCRIPTS: &[&str] = &[
    // Rows, strings, symbols, stacks, structs, and everything that aggregates.
    "syscall::getppid:entry /pid == $target/ { \
         trace(timestamp); trace(execname); printf(\"%s %d %-20s|%Y\\n\", probefunc, cpu, execname, walltimestamp); \
         stack(3); ustack(3); sym((uintptr_t)curthread); trace(probename); tracemem(curthread, 8); \
         @n[execname, probefunc] = count(); @[stack(4)] = count(); @u[ustack(3)] = count(); \
         @q[cpu] = quantize(timestamp % 5000); @l = lquantize(pid % 100, 0, 100, 10); \
         @a = avg(cpu); @s = stddev(timestamp % 100); @m = max(timestamp); @f[func(arg0)] = sum(1); } \
     END { printa(@n); printa(\"%20s %-10s %@8d\\n\", @n); normalize(@n, 10); printa(@n); clear(@n); \
           printa(\"%k %@d\\n\", @u); print(*curthread->cred); printf(\"%a %p\\n\", (uintptr_t)curthread, 16); }",
    // Faults, a change of options, an early exit.
    "syscall::getppid:entry /pid == $target && n++ == 3/ { trace(*(int *)n); } \
     syscall::getppid:entry /pid == $target && m++ == 9/ { trace(1); setopt(\"quiet\"); trace(2); exit(0); } \
     END { trace(3); }",
];

fn same_text() -> Verdict {
    let sets: [&[(&str, Option<&str>)]; 4] = [
        &[],
        &[("quiet", None), ("stackindent", Some("3")), ("droptags", None)],
        &[
            ("flowindent", None),
            ("aggzoom", None),
            ("agghist", None),
            ("aggpack", None),
            ("encoding", Some("utf8")),
        ],
        &[
            ("quiet", None),
            ("rawbytes", None),
            ("aggsortkey", None),
            ("aggsortrev", None),
            ("aggpercpu", None),
        ],
    ];
    for script in SCRIPTS {
        for set in sets {
            let (direct, bytes) = traced(script, set);
            let mut text = Text::of_stored_events(All::default());
            for event in decoded(&bytes) {
                text.event(&event).unwrap();
            }
            text.flush().unwrap();
            let copy = text.into_output();
            let show = |all: &All| String::from_utf8_lossy(&all.0).into_owned();
            assert!(!direct.0.is_empty(), "{}", show(&direct));
            assert!(direct.0 == copy.0, "{set:?}\n{}\nis not\n{}", show(&copy), show(&direct));
            let sorted = |all: &All| {
                let mut texts: Vec<String> = all.1.iter().map(|m| m.text.clone()).collect();
                texts.sort();
                texts
            };
            assert_eq!(sorted(&direct), sorted(&copy));
        }
    }
    Verdict::Pass
}

fn contents() -> Verdict {
    let script = "syscall::getppid:entry /pid == $target/ { trace(execname); @n[probefunc] = count(); } \
                  syscall::getppid:entry /pid == $target && !f++/ { trace(*(int *)8); }";
    let (direct, bytes) = traced(script, &[("quiet", None)]);
    let events = decoded(&bytes);
    let Some(Event::Start(start)) = events.first() else { panic!("{:?}", events.first()) };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(start.host.release, release.trim());
    assert!(start.host.cpus > 0 && start.clock.time > 0 && start.clock.wall > 0);
    assert_eq!(events.last(), Some(&Event::End { status: 0 }));

    let (mut records, mut faults, mut last, mut rows) = (0, 0, start.clock.time, Vec::new());
    for event in &events {
        match event {
            Event::Record(record) => {
                records += 1;
                let (firing, probe) = (&record.firing, &record.firing.probe);
                assert!(firing.time >= last, "records are in the order of time");
                last = firing.time;
                assert_eq!(
                    (&*probe.provider, &*probe.function, &*probe.name),
                    ("syscall", "getppid", "entry")
                );
                let [field] = &record.fields[..] else { panic!("{record:?}") };
                let Action::Trace(Value::Name { text, .. }) = &field.action else { panic!("{field:?}") };
                assert!(text.starts_with(b"library"), "{text:?}");
            }
            Event::Fault(fault) => {
                faults += 1;
                assert_eq!((fault.value, fault.kind), (8, dtrace::events::FaultKind::BadAddr));
            }
            Event::Aggregation(all) => {
                assert_eq!((all.occasion, &*all.columns[0].name), (Occasion::End, "n"));
                rows.extend(all.rows.iter().map(|row| (row.key.clone(), row.values[0].number())));
            }
            _ => {}
        }
    }
    assert_eq!((records, faults), (600, 1));
    assert!(
        direct.1.iter().any(|m| m.kind == MessageKind::Fault && m.text.contains("invalid address (0x8)"))
    );
    let [(key, count)] = &rows[..] else { panic!("{rows:?}") };
    assert!(matches!(&key[..], [Value::Str { text, .. }] if &**text == b"getppid"), "{key:?}");
    assert_eq!(*count, Some(600));
    Verdict::Pass
}
