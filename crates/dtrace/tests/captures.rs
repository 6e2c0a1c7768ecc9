//! Captures of sessions of the interpreter: a replay of a script prints what the script has printed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::capture::{Content, Firing as Stored, Place, Reader, Region, Word, Writer};
use dtrace::capture::{self, Head, Messages, Recorder, Replay};
use dtrace::events::{self, Action, Drop, DropKind, Event, Field, Int, Value};
use dtrace::interpreter::{Firing, GivenProbes, Interpreter, Memory};
use dtrace::options::Options;
use dtrace::{
    Macros, Message, Program, Provider, Record, Session, Setup, Sink, Source, Status, System, Text,
};

use crate::given::{self, Given, without_privileges};

/// Where a file or a text goes.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl dtrace::Output for Shared {
    fn messages(&mut self, messages: &[Message]) -> io::Result<()> {
        messages.iter().try_for_each(|message| writeln!(self.0.lock().unwrap(), "{message}"))
    }
}

/// Runs a session to its end; the status.
fn run<S: Sink>(session: &mut Session<S>) -> i32 {
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    session.finish().unwrap()
}

fn compiled(script: &str, options: &mut Options, providers: Vec<Box<dyn Provider>>) -> Program {
    let source = Source::Script("script".into(), script.into());
    let setup = Setup { providers, ..Setup::default() };
    let program = dtrace::compile_as(&System::live(), &[source], &Macros::default(), options, setup);
    program.unwrap_or_else(|e| panic!("{e}"))
}

/// The text of a program, and its status.
fn printed(program: &Program, options: Options, interpreter: Interpreter) -> (String, i32) {
    let out = Shared::default();
    let mut session = Session::interpret(program, options, interpreter, Text::new(out.clone())).unwrap();
    let status = run(&mut session);
    (String::from_utf8(out.take()).unwrap(), status)
}

/// The file of a capture. `Err`: why the program cannot be captured.
fn captured(program: &Program, options: Options, interpreter: Interpreter) -> Result<Vec<u8>, String> {
    let machine = Record::default().to_bytes();
    let captured = capture::of_program(program, options, Head::default(), machine)
        .map_err(|e| e.messages(false).join(" "))?;
    let (file, text) = (Shared::default(), Shared::default());
    let sink = Recorder::new(file.clone(), &captured, Text::new(text)).unwrap();
    let mut session =
        Session::interpret(&captured.program, captured.options.clone(), interpreter, sink).unwrap();
    run(&mut session);
    Ok(file.take())
}

/// The text of a program over a capture, its status, and what is said besides.
fn replayed(file: Vec<u8>, program: &Program, options: Options) -> (String, i32, Messages) {
    let replay = Replay::open(Box::new(io::Cursor::new(file))).unwrap();
    let (interpreter, notes, messages) = replay.interpreter(program, &options).unwrap();
    assert_eq!(notes, [""; 0]);
    let (text, status) = printed(program, options, interpreter);
    (text, status, messages)
}

#[test]
fn a_replay_of_a_script_prints_what_the_script_printed() {
    without_privileges();
    let mut compared = Vec::new();
    for entry in std::fs::read_dir(given::directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "d") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let script = std::fs::read_to_string(&path).unwrap();
        let given = Given::of(&script);
        let mut options = given.options();
        // A capture takes everything; these are about buffers that are too small.
        if options.bufpolicy != Default::default() || name.contains("drops") || name.contains("exit_full") {
            continue;
        }
        let program = compiled(&script, &mut options, given.providers());
        let file = match captured(&program, options.clone(), given.interpreter()) {
            Ok(file) => file,
            Err(why) => {
                assert!(why.contains("cannot be captured"), "{name}: {why}");
                continue;
            }
        };
        let live = printed(&program, options.clone(), given.interpreter());
        let (text, status, messages) = replayed(file, &program, options);
        assert_eq!((text, status), live, "{name}");
        assert_eq!(messages.lines(), [""; 0], "{name}");
        compared.push(name);
    }
    assert!(compared.len() >= 8, "{compared:?}");
}

/// Two firings that read a path, of which one cannot be read.
fn firings() -> Interpreter {
    let memory: Arc<Memory> = Memory::new().user(0x1000, b"/etc/passwd\0".to_vec()).into();
    let firing = |time, path| Firing {
        time,
        pid: 7,
        tid: 8,
        uid: 3,
        execname: "cat".into(),
        args: vec![0, path],
        memory: memory.clone(),
        ..Firing::of("syscall::openat:entry")
    };
    Interpreter::new([firing(1, 0x1000), firing(2, 0x9000)])
}

const OPENS: &str = "syscall::openat:entry { printf(\"%s %d %s\\n\", execname, pid, copyinstr(arg1)); }";

fn quiet() -> Options {
    Options { quiet: true, ..Options::default() }
}

/// The file of a capture of [`OPENS`].
fn opens() -> Vec<u8> {
    capture_of(OPENS)
}

fn capture_of(script: &str) -> Vec<u8> {
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    captured(&program, options, firings()).unwrap()
}

fn asked(script: &str) -> (String, Vec<String>) {
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    let (text, _, messages) = replayed(opens(), &program, options);
    (text, messages.lines())
}

#[test]
fn another_program_finds_what_was_read_and_is_told_what_was_not() {
    without_privileges();
    let (text, said) = asked("syscall::openat:entry { @[execname] = count(); }");
    assert_eq!((text.split_whitespace().collect::<Vec<_>>(), said.len()), (vec!["cat", "2"], 0));
    let (text, said) = asked("syscall::openat:entry { printf(\"%d\\n\", uid); }");
    assert_eq!(text, "0\n0\n\n");
    assert_eq!(said, ["not in the capture, and 0 or empty in this replay: uid (of some or all firings)"]);
    let (_, said) = asked("syscall::openat:entry /pid == 7/ { trace(*(int *)copyin(arg1 + 64, 4)); }");
    assert!(
        said.len() == 1 && said[0].starts_with("2 reads of memory that is not in the capture"),
        "{said:?}"
    );
}

#[test]
fn a_text_that_was_cut_is_not_taken_for_a_whole_one() {
    without_privileges();
    let file = capture_of(&OPENS.replacen("syscall", "#pragma D option strsize=8\nsyscall", 1));
    let mut options = quiet();
    let program = compiled(OPENS, &mut options, Vec::new());
    let (text, _, messages) = replayed(file, &program, options);
    assert!(!text.contains("/etc"), "{text}");
    let said = messages.lines();
    assert!(said.len() == 1 && said[0].contains("not in the capture"), "{said:?}");
}

#[test]
fn a_predicate_that_assigns_has_its_effect_in_a_replay() {
    without_privileges();
    let script =
        "int n; syscall::openat:entry /n++ >= 1/ { printf(\"%d\\n\", n); } END { printf(\"end %d\\n\", n); }";
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    let (live, _) = printed(&program, options.clone(), firings());
    let (text, _, _) = replayed(capture_of(script), &program, options);
    assert_eq!((text.as_str(), live.as_str()), ("2\nend 2\n\n", "2\nend 2\n\n"));
}

#[test]
fn a_probe_that_was_not_captured_and_destructive_actions_are_refused() {
    without_privileges();
    for (script, why) in [
        ("syscall::close:entry { trace(pid); }", ":close:entry is not in the capture: -l --replay lists"),
        ("syscall::openat:entry { stop(); }", "a replay performs no destructive actions"),
    ] {
        let program = compiled(script, &mut quiet(), Vec::new());
        let replay = Replay::open(Box::new(io::Cursor::new(opens()))).unwrap();
        let e = replay.interpreter(&program, &quiet()).err().unwrap().to_string();
        assert!(e.contains(why), "{e}");
    }
    let probes = "syscall::openat:entry, syscall::openat:return { trace(pid); }";
    let program = compiled(probes, &mut quiet(), Vec::new());
    let replay = Replay::open(Box::new(io::Cursor::new(opens()))).unwrap();
    let (_, notes, _) = replay.interpreter(&program, &quiet()).unwrap();
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 2 probes are not in the capture"), "{notes:?}");
}

#[test]
fn what_cannot_be_captured_is_refused_when_the_capture_begins() {
    without_privileges();
    for (script, why) in [
        ("syscall::openat:entry { jstack(); }", "jstack()"),
        ("syscall::openat:entry { self->s = speculation(); }", "speculations"),
        ("syscall::openat:entry { stop(); }", "destructive"),
    ] {
        let mut options = Options { destructive: true, ..quiet() };
        let program = compiled(script, &mut options, Vec::new());
        let said = captured(&program, options, firings()).unwrap_err();
        assert!(said.contains("the script cannot be captured") && said.contains(why), "{script}: {said}");
    }
}

#[test]
fn firings_are_counted_and_a_capture_that_was_cut_short_says_so() {
    let open = |file: &[u8]| Replay::open(Box::new(io::Cursor::new(file.to_vec()))).unwrap();
    let file = opens();
    let (head, counts, messages) = open(&file).counts().unwrap();
    assert_eq!(head.probes.len(), 1);
    assert!(head.probes[0].1.ends_with(":openat:entry") && counts == [2], "{head:?} {counts:?}");
    assert_eq!(messages.lines(), [""; 0]);
    let (_, _, messages) = open(&file[..file.len() - 8]).counts().unwrap();
    let said = messages.lines();
    assert!(said.iter().any(|line| line.ends_with("it was cut short")), "{said:?}");
}

/// A capture of [`OPENS`] whose firings and losses are these.
fn written(firings: &[Stored], losses: &[(String, u64)]) -> Vec<u8> {
    let file = opens();
    let reader = Reader::open(&file[..], 1 << 20).unwrap();
    let mut writer = Writer::new(Vec::new(), reader.head(), reader.machine()).unwrap();
    losses.iter().for_each(|(what, count)| writer.loss(what, *count));
    firings.iter().for_each(|firing| writer.firing(firing).unwrap());
    writer.finish(0).unwrap()
}

fn asked_of(file: Vec<u8>, script: &str) -> (String, Vec<String>) {
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    let (text, _, messages) = replayed(file, &program, options);
    (text, messages.lines())
}

/// A capture that begins at 1 s, with a firing each 0.1 s from 1.1 s to 3 s.
fn timed() -> Vec<u8> {
    let file = opens();
    let reader = Reader::open(&file[..], 1 << 20).unwrap();
    let mut head = reader.head().clone();
    head.clock = (1_000_000_000, 500_000_000_000);
    // Of END, too.
    head.probes.push((2, "dtrace:::END".into()));
    let mut writer = Writer::new(Vec::new(), &head, reader.machine()).unwrap();
    let words = vec![(Word::Pid, 7)];
    for n in 1..=20 {
        let firing =
            Stored { time: 1_000_000_000 + n * 100_000_000, words: words.clone(), ..Stored::default() };
        writer.firing(&firing).unwrap();
    }
    writer.firing(&Stored { probe: 1, time: 3_250_000_000, words, ..Stored::default() }).unwrap();
    writer.finish(0).unwrap()
}

const TIMES: &str = "BEGIN { printf(\"begin %d\\n\", timestamp / 1000000); }
    syscall::openat:entry { @ = count(); last = timestamp / 1000000; }
    END { printf(\"end %d last %d\\n\", timestamp / 1000000, last); }";

#[test]
fn a_part_of_a_capture_begins_and_ends_at_its_cuts() {
    without_privileges();
    for (from, to, expected) in [
        (None, None, "begin 1000 end 3250 last 3000 20"),
        (Some(500), Some(1000), "begin 1500 end 2000 last 2000 6"),
        (Some(550), Some(1050), "begin 1550 end 2050 last 2000 5"),
        (None, Some(50), "begin 1000 end 1050 last 0"),
        (Some(1950), None, "begin 2950 end 3250 last 3000 1"),
        (Some(5000), None, "begin 6000 end 6000 last 0"),
        (None, Some(50_000), "begin 1000 end 3250 last 3000 20"),
    ] {
        let millis = |time: Option<u64>| time.map(Duration::from_millis);
        let mut options = Options { from: millis(from), to: millis(to), ..quiet() };
        let program = compiled(TIMES, &mut options, Vec::new());
        let (text, _, messages) = replayed(timed(), &program, options);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words.join(" "), expected, "{from:?} {to:?}");
        assert_eq!(messages.lines(), [""; 0], "{from:?} {to:?}");
    }
    let mut options =
        Options { from: Some(Duration::from_secs(2)), to: Some(Duration::from_secs(1)), ..quiet() };
    let program = compiled(TIMES, &mut options, Vec::new());
    let replay = Replay::open(Box::new(io::Cursor::new(timed()))).unwrap();
    let e = replay.interpreter(&program, &options).err().unwrap().to_string();
    assert_eq!(e, "option to: it is before the time of from");
}

#[test]
fn ticks_of_a_program_fire_in_captured_time_until_the_end() {
    without_privileges();
    let script = "syscall::openat:entry { n++; } tick-500ms { printf(\"%d %d %d\\n\", timestamp / 1000000, walltimestamp / 1000000, n); } tick-1s { printf(\"second\\n\"); }";
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    let (text, _, messages) = replayed(timed(), &program, options);
    // Clocks that are due at one time are in the order of their intervals.
    let expected = "1500 500500 4\n2000 501000 9\nsecond\n2500 501500 14\n3000 502000 19\nsecond\n\n";
    assert_eq!(text, expected);
    assert_eq!(messages.lines(), [""; 0]);
    // From a cut on, and until one.
    let (from, to) = (Some(Duration::from_millis(600)), Some(Duration::from_millis(1700)));
    let mut options = Options { from, to, ..quiet() };
    let program = compiled(script, &mut options, Vec::new());
    let (text, ..) = replayed(timed(), &program, options);
    assert_eq!(text, "2100 501100 5\n2600 501600 10\nsecond\n\n");
    // What runs on each CPU is known of what was captured only.
    let program = compiled("profile-97 { @ = count(); }", &mut quiet(), Vec::new());
    let replay = Replay::open(Box::new(io::Cursor::new(timed()))).unwrap();
    let e = replay.interpreter(&program, &quiet()).err().unwrap().to_string();
    assert!(e.contains("profile:::profile-97 is not in the capture, and what runs on each CPU"), "{e}");
}

#[test]
fn a_preview_names_what_a_program_reads_and_the_capture_does_not_have() {
    without_privileges();
    let preview = |script: &str| {
        let program = compiled(script, &mut quiet(), Vec::new());
        Replay::open(Box::new(io::Cursor::new(timed()))).unwrap().preview(&program).unwrap()
    };
    assert_eq!(preview("syscall::openat:entry { trace(pid); trace(timestamp); trace(probefunc); }"), [""; 0]);
    let said = preview(
        "syscall::openat:entry /pid/ { trace(uid); trace(execname); } syscall::close:entry, tick-1s {}",
    );
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("1 of 2 probes are not in the capture: syscall:"), "{said:?}");
    let lacks = "2 of 3 variables that the program reads are not in the capture: uid in syscall:";
    assert!(said[1].starts_with(lacks) && said[1].contains(", execname in syscall:"), "{said:?}");
}

#[test]
fn names_that_are_no_text_are_replayed_byte_for_byte() {
    without_privileges();
    let execname = Some(Content::Bytes(vec![b'a', 0xff, 0xc3]));
    let file = written(&[Stored { execname, ..Stored::default() }], &[]);
    let script = "syscall::openat:entry /strlen(execname) == 3/ { trace(\"three\"); }";
    let (text, said) = asked_of(file, script);
    assert_eq!((text.trim(), said), ("three", Vec::new()));
}

#[test]
fn names_texts_and_paths_that_were_cut_are_not_taken_for_whole_ones() {
    without_privileges();
    let short = "#pragma D option strsize=4\n";
    let name = "syscall::openat:entry { printf(\"%s\\n\", execname); }";
    let execname = Some(Content::Start(b"bas".to_vec()));
    let file = written(&[Stored { execname, ..Stored::default() }], &[]);
    let (text, said) = asked_of(file.clone(), &format!("{short}{name}"));
    assert_eq!((text.trim(), said), ("bas", Vec::new()));
    let (text, said) = asked_of(file, name);
    assert_eq!((text.trim(), said.len()), ("", 1), "{said:?}");
    // The name of the capture is from a script with such an option.
    let (text, said) = asked_of(capture_of(&format!("#pragma D option strsize=3\n{name}")), name);
    assert_eq!((text.trim(), said.len()), ("", 1), "{said:?}");
    // Arguments have no end where they were cut, and are no memory.
    let region = |content| Region { place: Place::Arguments, address: 0x1000, content };
    let arguments = |content| written(&[Stored { memory: vec![region(content)], ..Stored::default() }], &[]);
    let ask = |to: u64| format!("syscall::openat:entry {{ trace(_args(0x1000, {to})); }}");
    let whole = arguments(Content::Bytes(b"sh a".to_vec()));
    let (text, said) = asked_of(whole.clone(), &ask(0x1005));
    assert_eq!((text.trim(), said), ("sh a", Vec::new()));
    let (_, said) = asked_of(whole.clone(), "syscall::openat:entry { trace(copyinstr(0x1000)); }");
    assert!(said[0].contains("memory that is not in the capture"), "{said:?}");
    let (_, said) = asked_of(arguments(Content::Start(b"sh a".to_vec())), &ask(0x1100));
    assert!(said[0].contains("memory that is not in the capture"), "{said:?}");
}

#[test]
fn a_text_with_a_limit_has_no_end_where_the_limit_is() {
    without_privileges();
    let memory: Arc<Memory> = Memory::new().user(0x1000, b"/etc/passwd\0".to_vec()).into();
    let firing = Firing { args: vec![0, 0x1000], memory, ..Firing::of("syscall::openat:entry") };
    let script = "syscall::openat:entry { printf(\"%s\\n\", copyinstr(arg1, 4)); }";
    let mut options = quiet();
    let program = compiled(script, &mut options, Vec::new());
    let file = captured(&program, options, Interpreter::new([firing])).unwrap();
    let (text, said) = asked_of(file.clone(), script);
    assert_eq!((text.trim(), said), ("/etc", Vec::new()));
    let (text, said) = asked_of(file, "syscall::openat:entry { printf(\"%s\\n\", copyinstr(arg1)); }");
    assert!(!text.contains("/etc") && said.len() == 1, "{text} {said:?}");
}

/// A capture of [`OPENS`] that has begun, and its file.
fn recorder() -> (Shared, capture::Captured, Recorder<Shared, Text<Shared>>) {
    let mut options = quiet();
    let program = compiled(OPENS, &mut options, Vec::new());
    let machine = Record::default().to_bytes();
    let captured =
        capture::of_program(&program, options, Head::default(), machine).unwrap_or_else(|_| panic!());
    let file = Shared::default();
    let sink = Recorder::new(file.clone(), &captured, Text::new(Shared::default())).unwrap();
    (file, captured, sink)
}

#[test]
fn memory_that_changed_while_a_firing_read_it_is_told() {
    without_privileges();
    let (file, captured, mut sink) = recorder();
    // Each read of the memory of this process finds what is there then.
    let field = |name: &'static str, value| Field { name: name.into(), action: Action::Trace(value) };
    let number = |bits, size| Value::Int(Int { bits, size, signed: false });
    let read = |address, bytes: &'static [u8]| {
        let value = field("value", Value::Bytes(bytes.into()));
        [field("bytes user", number(2, 1)), field("address", number(address, 8)), value]
    };
    let reads = [(16, &b"ab"[..]), (16, b"ab"), (17, b"bx"), (18, b"y"), (18, b"z")];
    let fields = reads.into_iter().flat_map(|(address, bytes)| read(address, bytes));
    let fields = [field("outcome", number(1, 1))].into_iter().chain(fields).collect();
    let probe =
        events::Probe::new(captured.head.probes[0].0, ["", "", "", ""].map(Into::into), Default::default());
    let firing = events::Firing::new(1, 0, 1, Cow::Owned(probe.into()));
    sink.event(&Event::Record(events::Record { firing, part: events::Part::WHOLE, fields })).unwrap();
    sink.event(&Event::End { status: 0 }).unwrap();
    let replay = Replay::open(Box::new(io::Cursor::new(file.take()))).unwrap();
    let (_, counts, messages) = replay.counts().unwrap();
    assert_eq!(counts, [1]);
    assert_eq!(
        messages.lines(),
        ["the capture lacks 2 values of memory that changed while a firing read it: it has the first ones"]
    );
}

#[test]
fn probes_with_the_characters_of_patterns_in_their_names_are_themselves() {
    without_privileges();
    let providers = || -> Vec<Box<dyn Provider>> {
        let given = GivenProbes::new("given").probe("m", "other", "entry", &[]).probe("m", "*", "entry", &[]);
        vec![Box::new(given)]
    };
    let script = "given:::entry { printf(\"%s\\n\", probefunc); }";
    let mut options = quiet();
    let program = compiled(script, &mut options, providers());
    let firings = || Interpreter::new([Firing::of("given:m:*:entry"), Firing::of("given:m:other:entry")]);
    let live = printed(&program, options.clone(), firings());
    assert_eq!(live.0.trim(), "*\nother");
    let file = captured(&program, options.clone(), firings()).unwrap();
    let (text, status, _) = replayed(file, &program, options);
    assert_eq!((text, status), live);
}

#[test]
fn the_words_of_a_file_are_no_lines_of_messages_and_their_kinds_are_few() {
    without_privileges();
    let forged = "nothing\ndtrace: \u{1b}[2Jall is well".to_owned();
    let (_, said) = asked_of(written(&[], &[(forged, 7)]), OPENS);
    assert_eq!(said, [r"the capture lacks 7 nothing\ndtrace: \033[2Jall is well"]);
    let many: Vec<_> = (0..10_000).map(|n| (format!("of kind {n}"), 1)).collect();
    let (_, said) = asked_of(written(&[], &many), OPENS);
    assert_eq!(said.len(), 17);
    assert!(said.iter().any(|line| line == "the capture lacks 9984 things of other kinds"), "{said:?}");
}

#[test]
fn a_capture_that_is_killed_has_told_its_losses_and_names_its_machine() {
    without_privileges();
    let (file, _, mut sink) = recorder();
    for kind in [DropKind::Principal, DropKind::Principal, DropKind::Dynamic] {
        sink.event(&Event::Drop(Drop::new(kind, 0, 5))).unwrap();
    }
    sink.flush().unwrap();
    let replay = Replay::open(Box::new(io::Cursor::new(file.take()))).unwrap();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(replay.head().host, name.trim_end());
    let (_, _, messages) = replay.counts().unwrap();
    assert_eq!(
        messages.lines(),
        [
            "the capture lacks 10 records that were dropped",
            "the capture lacks 5 variables of the script for which there was no memory",
            "the capture has no end: it was cut short",
        ]
    );
}

/// A session that keeps the last firings, until the first one calls `snap()`, and what it writes.
#[test]
fn a_ring_is_captured_while_the_session_runs_and_at_its_end() {
    without_privileges();
    let script =
        "syscall::openat:entry { trace(arg0); } syscall::openat:entry /arg0 == 1995/ { snap(\"here\"); }";
    let mut options = Options {
        bufpolicy: dtrace::options::Policy::Ring,
        bufsize: dtrace::options::Bytes(16 << 10),
        ..quiet()
    };
    let source = Source::Script("script".into(), script.into());
    let setup = || Setup { snaps: |_| true, ..Setup::default() };
    let program = dtrace::compile_as(&System::live(), &[source], &Macros::default(), &mut options, setup());
    let program = program.unwrap_or_else(|e| panic!("{e}"));
    let firing = |n: u64| Firing { time: n, args: vec![n], ..Firing::of("syscall::openat:entry") };
    let machine = Record::default().to_bytes();
    let captured =
        capture::of_program(&program, options.clone(), Head::default(), machine).unwrap_or_else(|_| panic!());
    let (file, part) = (Shared::default(), Shared::default());
    let sink = Recorder::new(file.clone(), &captured, Text::new(Shared::default())).unwrap();
    let interpreter = Interpreter::new((1..=4000).map(firing));
    let mut session =
        Session::interpret(&captured.program, captured.options.clone(), interpreter, sink).unwrap();
    let mut snaps = 0;
    while session.work(None, Duration::ZERO).unwrap() == Status::Working {
        if session.snaps() > snaps {
            snaps = session.snaps();
            session.sink_mut().begin_snapshot(part.clone());
            session.snapshot().unwrap();
            let snapshot = session.sink_mut().end_snapshot(None).unwrap();
            assert_eq!(snapshot.reason, b"here");
            assert!(snapshot.from < 1995 && snapshot.until >= 1995, "{snapshot:?}");
        }
    }
    session.finish().unwrap();
    assert_eq!(snaps, 1);
    // What is asked later is the script, without a snapshot.
    let numbers = |file: Vec<u8>| -> (Vec<u64>, Option<String>) {
        let question = "syscall::openat:entry { printf(\"%d\\n\", arg0); }";
        let program = compiled(question, &mut quiet(), Vec::new());
        let (text, _, messages) = replayed(file, &program, quiet());
        (text.lines().filter_map(|line| line.parse().ok()).collect(), messages.reason())
    };
    for (file, last, reason) in [(part.take(), None, "here"), (file.take(), Some(4000), "end")] {
        let (all, why) = numbers(file);
        assert!(all.windows(2).all(|pair| pair[0] + 1 == pair[1]) && all[0] > 1, "{all:?}");
        assert!(last.map_or(all.contains(&1995), |last| all.last() == Some(&last)), "{all:?}");
        assert_eq!(why.as_deref(), Some(reason));
    }
}
