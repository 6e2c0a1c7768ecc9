//! Captures of sessions of the interpreter: a replay of a script prints what the script has printed.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dtrace::capture::{self, Head, Messages, Recorder, Replay};
use dtrace::interpreter::{Firing, Interpreter, Memory};
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
    let (interpreter, notes, messages) = replay.interpreter(program).unwrap();
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
        let e = replay.interpreter(&program).err().unwrap().to_string();
        assert!(e.contains(why), "{e}");
    }
    let probes = "syscall::openat:entry, syscall::openat:return { trace(pid); }";
    let program = compiled(probes, &mut quiet(), Vec::new());
    let replay = Replay::open(Box::new(io::Cursor::new(opens()))).unwrap();
    let (_, notes, _) = replay.interpreter(&program).unwrap();
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 2 probes are not in the capture"), "{notes:?}");
}

#[test]
fn what_cannot_be_captured_is_refused_when_the_capture_begins() {
    without_privileges();
    for (script, why) in [
        ("syscall::openat:entry { stack(); }", "stacks"),
        ("syscall::openat:entry { @[ustack()] = count(); }", "stacks"),
        ("syscall::openat:entry { printf(\"%a\", arg0); }", "names of addresses"),
        ("syscall::openat:entry { trace(caller); }", "caller"),
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
