//! `--format perfetto`: timelines of sessions on the running kernel.

use std::path::Path;
use std::process::Command;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, workload};
use crate::trace::Trace;

tests! {
    a_timeline_has_a_slice_for_each_call
    a_timeline_has_records_counters_stacks_and_cpus
    pairs_of_probes_are_slices_by_a_value
    slices_that_can_be_none_are_refused
    the_descriptors_of_perfetto_read_a_timeline
}

fn read(file: &str) -> Trace {
    Trace::read(&std::fs::read(file).unwrap())
}

fn slices(trace: &Trace, name: &str) -> usize {
    trace.slices().iter().filter(|slice| slice.name == name).count()
}

fn a_timeline_has_a_slice_for_each_call() -> Verdict {
    let dir = testing::dir::Dir::new("timeline-slices");
    let file = dir.join("x.pftrace").into_os_string().into_string().unwrap();
    let words = workload("getppid", 500);
    let script = "syscall::getppid:entry, syscall::getppid:return /pid == $target/ {}";
    let o = dtrace(&["-q", "--to", &file, "-c", &words, "-n", script]).code(0);
    assert_eq!(o.err, "");
    let trace = read(&file);
    assert_eq!((slices(&trace, "getppid"), trace.slices().len()), (500, 500));
    let all = trace.slices();
    let track = &trace.tracks[&all[0].track];
    assert!(track.tid.is_some() && track.pid == track.tid, "{track:?}");
    // The workload runs in this program, and may have ended before anybody asked for its name.
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert!(track.name.as_deref().is_none_or(|name| name == own.trim_end()), "{track:?}");
    assert!(
        all.iter().all(|slice| slice.track == all[0].track && slice.depth == 0 && slice.end > slice.begin)
    );
    let clocks = &trace.clocks;
    assert!(clocks[&1] > 1_700_000_000_000_000_000 && clocks[&3] == clocks[&64], "{clocks:?}");
    // What returns only is said, unless -q.
    let script = "syscall::getppid:return /pid == $target/ {}";
    let o = dtrace(&["--to", &file, "-c", &words, "-n", script]).code(0);
    assert!(o.err.contains("x.pftrace: 500 returns without an entry"), "{}", o.err);
    let trace = read(&file);
    assert_eq!(trace.slices().len(), 0);
    assert!(trace.instants().iter().any(|e| e.name.as_deref() == Some("500 returns without an entry")));
    Pass
}

fn a_timeline_has_records_counters_stacks_and_cpus() -> Verdict {
    let dir = testing::dir::Dir::new("timeline-all");
    let file = dir.join("x").into_os_string().into_string().unwrap();
    let words = workload("stacks-slowly", 30);
    let script = "syscall::nanosleep:entry, syscall::clock_nanosleep:entry /pid == $target/ \
                  { trace(execname); ustack(); @calls[probefunc] = count(); } \
                  syscall::nanosleep:return, syscall::clock_nanosleep:return /pid == $target/ {} \
                  BEGIN { printf(\"%s\", \"begins\"); } \
                  sched:::on-cpu, sched:::off-cpu /pid == $target/ {}";
    let format = format!("perfetto={file}");
    let o = dtrace(&["-q", "-xevery=50ms", "--format", &format, "-c", &words, "-n", script]).code(0);
    let trace = read(&file);
    let calls: Vec<_> =
        trace.slices().into_iter().filter(|slice| slice.name.ends_with("nanosleep")).collect();
    assert!(!calls.is_empty(), "{}", o.err);
    let of_calls = |event: &&crate::trace::Happened| event.name.as_deref() == Some(calls[0].name.as_str());
    let begun: Vec<_> = trace.events.iter().filter(of_calls).collect();
    assert!(begun.iter().all(|event| event.stack.len() > 1), "{:?}", begun[0]);
    let track = &trace.tracks[&calls[0].track];
    assert_eq!(track.name.as_ref(), Some(&begun[0].annotations[0].1), "the thread is named by execname");
    let counted: i64 = trace.counter(&calls[0].name).iter().map(|(_, value)| value).sum();
    assert_eq!(counted, calls.len() as i64, "the increments of the counter are the calls");
    let begin = trace.instants().into_iter().find(|e| e.name.as_deref() == Some("dtrace:::BEGIN")).unwrap();
    assert_eq!(begin.annotations[0], ("printf".to_string(), "begins".to_string()));
    let is_cpu = |slice: &&crate::trace::Slice| {
        trace.tracks[&slice.track].name.as_deref().is_some_and(|name| name.starts_with("CPU "))
    };
    assert!(trace.slices().iter().filter(is_cpu).count() > 1);
    Pass
}

fn pairs_of_probes_are_slices_by_a_value() -> Verdict {
    let dir = testing::dir::Dir::new("timeline-pairs");
    let file = dir.join("x.pftrace").into_os_string().into_string().unwrap();
    let words = workload("getppid", 200);
    let pair = "slices=syscall::getppid:entry(n)..getppid:return(2)";
    let script = "int n; syscall::getppid:entry /pid == $target/ { n++; printf(\"%d\", n); } \
                  syscall::getppid:return /pid == $target/ { trace(execname); trace(n); }";
    let o = dtrace(&["-q", "-x", pair, "--to", &file, "-c", &words, "-n", script]).code(0);
    assert_eq!(o.err, "");
    let trace = read(&file);
    let names: Vec<String> = trace.slices().into_iter().map(|slice| slice.name).collect();
    assert_eq!(names, (1..=200).map(|n| n.to_string()).collect::<Vec<_>>());
    let track = &trace.tracks[&trace.slices()[0].track];
    assert_eq!(track.name.as_deref(), pair.strip_prefix("slices="));
    let o = dtrace(&["-q", "-x", "slices=io:::start..io:::done", "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("as in io:::start(arg0)..io:::done(arg0)"), "{}", o.err);
    Pass
}

fn slices_that_can_be_none_are_refused() -> Verdict {
    let dir = testing::dir::Dir::new("timeline-none");
    let file = dir.join("x.pftrace").into_os_string().into_string().unwrap();
    let words = workload("getppid", 1);
    let script = "syscall::getppid:entry, syscall::getppid:return /pid == $target/ { trace(tid); }";
    let refused = |pair: &str, more: &[&str]| {
        let option = format!("slices={pair}");
        dtrace(&[&["-q", "-x", &option, "-c", &words, "-n", script], more].concat()).code(1).err
    };
    let pair = "syscall::getppid:entry(tid)..syscall::getppid:return(tid)";
    let err = refused(pair, &[]);
    assert!(err.contains(&format!("-x slices={pair}: it is of a timeline: name a file")), "{err}");
    let err = refused("syscall::getppid:entry(tid)..syscall::getpid:return(tid)", &["--to", &file]);
    assert!(err.contains("probe description syscall::getpid:return does not match any probes"), "{err}");
    // The option has the same macro as the program.
    let err = refused("pid$target::none:entry(1)..syscall::getppid:return(1)", &["--to", &file]);
    let pid = err.split("probe description pid").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    assert!(pid.parse::<u32>().is_ok() && err.contains("::none:entry does not match"), "{err}");
    assert!(!std::path::Path::new(&file).exists());
    // What never had its key is said at the end.
    let option = "slices=syscall::getppid:entry(tid)..syscall::getppid:return(pid)";
    let o = dtrace(&["-x", option, "--to", &file, "-c", &words, "-n", script]).code(0);
    assert!(o.err.contains("(pid): no record with its key ends a slice"), "{}", o.err);
    Pass
}

/// A function of Python: a message of protobuf, and all in it, has only the fields of its
/// descriptors.
pub(crate) const KNOWN: &str = "
from google.protobuf.unknown_fields import UnknownFieldSet
def known(message):
    assert not len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            try: values = list(value)
            except TypeError: values = [value]
            for one in values: known(one)
";

/// Counts what is in a trace by the descriptors that Perfetto publishes for Python.
const COUNT: &str = "
import sys
from collections import Counter
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
known(trace)
names, open_slices, done = {}, Counter(), Counter()
stacks = {}
for packet in trace.packet:
    for name in packet.interned_data.event_names: names[name.iid] = name.name
    if packet.HasField('track_event'):
        event = packet.track_event
        stacks.setdefault(event.track_uuid, [])
        if event.type == 1: stacks[event.track_uuid].append(names[event.name_iid])
        if event.type == 2: done[stacks[event.track_uuid].pop()] += 1
assert not any(stacks.values())
print(' '.join(f'{name}={count}' for name, count in sorted(done.items())))
";

/// A Python that has packages, made in a directory.
pub(crate) fn python(dir: &Path, packages: &[&str]) -> Result<std::path::PathBuf, String> {
    let run = |program: &Path, words: &[&str]| {
        let done = Command::new(program).args(words).output().map_err(|e| e.to_string())?;
        let wrong = String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or_default().to_string();
        if done.status.success() { Ok(()) } else { Err(wrong) }
    };
    let place = dir.join("python");
    run(Path::new("python3"), &["-m", "venv", &place.to_string_lossy()])?;
    let python = place.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--timeout=20", "--retries=1"];
    run(&python, &[&install, packages].concat())?;
    Ok(python)
}

fn the_descriptors_of_perfetto_read_a_timeline() -> Verdict {
    let dir = testing::dir::Dir::new("timeline-python");
    let python = match python(&dir, &["perfetto", "protobuf"]) {
        Ok(python) => python,
        Err(why) => return Skip(format!("no package perfetto of Python: {why}")),
    };
    let file = dir.join("x.pftrace").into_os_string().into_string().unwrap();
    let words = workload("getppid", 300);
    let script = "syscall::getppid:entry, syscall::getppid:return /pid == $target/ { trace(execname); stack(); @[execname] = count(); } \
                  BEGIN { printf(\"%s\", \"<script>\\\"{{%s\\n\"); }";
    dtrace(&["-q", "--to", &file, "-c", &words, "-n", script]).code(0);
    let counted = Command::new(python).args(["-c", &format!("{KNOWN}{COUNT}"), &file]).output().unwrap();
    let (text, wrong) = (String::from_utf8_lossy(&counted.stdout), String::from_utf8_lossy(&counted.stderr));
    assert_eq!(text.trim(), "getppid=300", "{wrong}");
    Pass
}
