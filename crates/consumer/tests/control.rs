//! Control characters in the output: what is escaped, and where the output decides.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use consumer::{Options, Output, Process, Symbolizer};
use events::{Calls, Probe, SymbolName};
use plane::desc::{Action, AddrForm, AggFunc, Datum, Field};
use plane::shape::{Form, Shape};
use plane::stacks::Stack;

use crate::common::{I64, Memory, STR, Session, V, probe};

const COMM: Datum = Datum::Name { size: 16 };
const HOSTILE: &str = "a\x1b[31m\nb\t\u{e9}\u{9b}";
/// [`HOSTILE`] as data at a terminal: every control character but tab and newline is escaped. (In a
/// name these are escaped, too.)
const AT_TERMINAL: &str = "a\\033[31m\nb\t\u{e9}\\302\\233";

/// Every address has a name with control characters.
struct Hostile;

impl Symbolizer for Hostile {
    fn kernel(&mut self, _addr: u64) -> SymbolName {
        SymbolName::new(Some("mod".into()), Some("k\x1bx\n".into()), 0)
    }
    fn user(&mut self, _process: Process, _addr: u64) -> SymbolName {
        SymbolName::new(Some("so".into()), Some("u\x1bx\r".into()), 0)
    }
}

/// What a session prints to an output of each kind: a file, a terminal.
fn both(
    options: &Options,
    run: impl Fn(&mut dyn FnMut(&[Datum], &dyn Fn(&[Field]) -> Vec<Action>, &[V])) + Copy,
) -> [String; 2] {
    fn go<W: Output + Send>(
        mut session: Session<W>,
        run: impl Fn(&mut dyn FnMut(&[Datum], &dyn Fn(&[Field]) -> Vec<Action>, &[V])),
    ) -> Session<W> {
        let p = probe(1, "fbt::f:entry");
        run(&mut |data, actions, values| {
            let epid = session.clause(&p, data, |fields| actions(fields));
            session.record(0, epid, values);
        });
        session.drain();
        session
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut file = go(Session::with(Vec::new(), Box::new(Hostile), options.clone()), run);
    let mut terminal = go(Session::with(Memory::terminal(), Box::new(Hostile), options.clone()), run);
    assert_eq!(text(&file.copied()), text(file.out()));
    assert_eq!(text(&terminal.copied()), text(&terminal.out().text));
    [text(file.out()), text(&terminal.out().text)]
}

fn quiet() -> Options {
    Options { quiet: true, ..Options::default() }
}

fn printf(format: &str, fields: &[Field]) -> Vec<Action> {
    vec![Action::Printf { format: format.into(), args: fields.to_vec() }]
}

#[test]
fn strings_of_printf_are_escaped_at_a_terminal_only() {
    let [file, terminal] = both(&quiet(), |clause| {
        clause(&[STR, I64], &|f| printf("\x1b[1m%s|%c\n", f), &[V::S(HOSTILE), V::N(0x1b)]);
        clause(&[COMM], &|f| printf("%s\n", f), &[V::S("x\x1b")]);
    });
    assert_eq!(file, format!("\x1b[1m{HOSTILE}|\x1b\nx\x1b\n"));
    // The format is the program's own text.
    assert_eq!(terminal, format!("\x1b[1m{AT_TERMINAL}|\\033\nx\\033\n"));
}

#[test]
fn columns_count_what_is_printed() {
    let [file, terminal] = both(&quiet(), |clause| {
        clause(&[STR, STR], &|f| printf("[%8s|%-8.2s]\n", f), &[V::S("a\x1b"), V::S("\x1bbc")]);
    });
    assert_eq!(file, "[      a\x1b|\x1bb      ]\n");
    assert_eq!(terminal, "[   a\\033|\\033b   ]\n");
}

#[test]
fn names_are_escaped_wherever_they_go() {
    let address = Datum::KernelAddr(AddrForm::Symbol);
    let user = Datum::UserAddr(AddrForm::Symbol);
    for options in [quiet(), Options::default()] {
        let outputs = both(&options, |clause| {
            let trace = |f: &[Field]| f.iter().map(|f| Action::Trace(*f)).collect();
            clause(&[COMM, address, user], &trace, &[V::S("c\x1b\n"), V::N(1), V::U(2, 3)]);
            clause(&[I64, address], &|f| printf("%a %s\n", f), &[V::N(1), V::N(1)]);
        });
        for text in outputs {
            for shown in ["c\\033\\n", "mod`k\\033x\\n", "so`u\\033x\\r", "mod`k\\033x\\n mod`k\\033x\\n\n"] {
                assert!(text.contains(shown), "{shown:?} in {text:?}");
            }
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}

#[test]
fn frames_and_functions_in_print_are_escaped() {
    let outputs = both(&quiet(), |clause| {
        let pointer = Shape { name: "void (*)(void)".into(), size: 8, form: Form::FunctionPointer };
        let shape = Arc::new(pointer);
        clause(&[Datum::Bytes { size: 8 }], &|f| vec![Action::Print(f[0], shape.clone())], &[V::B(&[1; 8])]);
        let string = Arc::new(Shape { name: "string".into(), size: 32, form: Form::String });
        clause(
            &[Datum::Bytes { size: 32 }],
            &|f| vec![Action::Print(f[0], string.clone())],
            &[V::B(b"p\x1b\n")],
        );
    });
    for text in outputs {
        assert_eq!(text, "void (*)(void) mod`k\\033x\\n\nstring \"p\\033\\n\"\n");
    }
    let mut s = Session::with(Vec::new(), Box::new(Hostile), quiet());
    let epid = s.traces(&probe(1, "p:m:f:n"), &[Datum::KernelStack { frames: 2 }]);
    s.kernel.stacks.insert(9, Stack { tgid: 0, time: 0, pcs: vec![0x11, 0x12], ..Stack::default() });
    s.record(0, epid, &[V::N(9)]);
    s.drain();
    let frame = format!("{:14}mod`k\\033x\\n\n", "");
    assert_eq!(s.output(), format!("\n{frame}{frame}"));
}

#[test]
fn keys_that_are_names_are_escaped_and_other_strings_at_a_terminal() {
    fn fill<W: Output + Send>(mut s: Session<W>) -> Session<W> {
        let agg = s.aggregation("a", AggFunc::Count, &[COMM, STR]);
        s.add(agg, &[V::S("c\n"), V::S("k\x1b\n")], &[1]);
        s.finish();
        s
    }
    let mut file = fill(Session::new(quiet()));
    assert_eq!(file.output(), format!("\n  {:<50}  {:<50} {:>16}\n", "c\\n", "k\x1b\n", 1));
    let mut terminal = fill(Session::with(Memory::terminal(), Box::new(Hostile), quiet()));
    let shown = String::from_utf8(terminal.out().text.clone()).unwrap();
    assert_eq!(shown, format!("\n  {:<50}  {:<50} {:>16}\n", "c\\n", "k\\033\n", 1));
    // The drawn forms, too.
    let options = Options { agghist: true, ..quiet() };
    let mut drawn = fill(Session::new(options));
    assert!(drawn.output().contains("             c\\n              k\x1b\n |@"), "{:?}", drawn.output());
}

#[test]
fn rows_and_messages_escape_the_names_of_probes() {
    let hostile = Arc::new(Probe::new(7, ["p", "m\x1b", "f\n1", "n\u{9b}"].map(Into::into), Calls::None));
    for flowindent in [false, true] {
        let mut s = Session::new(Options { flowindent, ..Options::default() });
        let epid = s.traces(&hostile, &[]);
        s.record(0, epid, &[]);
        s.fault(epid, 1, 1, 0, 0);
        s.drain();
        let text = s.output();
        let row = text.lines().nth(1).unwrap();
        if flowindent {
            assert_eq!(row, format!("  0 {:<41} ", "| f\\n1:n\\302\\233"));
        } else {
            assert_eq!(row, format!("  0      7 {:>32} ", "f\\n1:n\\302\\233"));
        }
        let messages = s.messages();
        assert!(messages[0].contains("(ID 7: p:m\\033:f\\n1:n\\302\\233)"), "{messages:?}");
    }
}

#[test]
fn messages_escape_the_files_and_commands_that_they_quote() {
    let mut s = Session::new(quiet());
    let p = probe(1, "p:m:f:n");
    let epid =
        s.clause(&p, &[STR], |f| vec![Action::Freopen { format: Some("%s".into()), args: f.to_vec() }]);
    s.record(0, epid, &[V::S("/nonexistent\x1b[2J\n/x")]);
    s.drain();
    let messages = s.messages();
    assert!(messages[0].contains("freopen() \"/nonexistent\\033[2J\\n/x\": "), "{messages:?}");
}

#[test]
fn freopen_asks_the_new_output_whether_it_is_a_terminal() {
    let path = std::env::temp_dir().join(format!("consumer-control-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut s = Session::with(Memory::terminal(), Box::new(Hostile), quiet());
    let p = probe(1, "p:m:f:n");
    let name = path.to_str().unwrap().to_string();
    let print = s.clause(&p, &[STR], |f| printf("%s;", f));
    let file = s.clause(&p, &[], |_| vec![Action::Freopen { format: Some(name.clone()), args: vec![] }]);
    let back = s.clause(&p, &[], |_| vec![Action::Freopen { format: None, args: vec![] }]);
    s.record(0, print, &[V::S("1\x1b")]);
    s.record(0, file, &[]);
    s.record(0, print, &[V::S("2\x1b")]);
    s.record(0, back, &[]);
    s.record(0, print, &[V::S("3\x1b")]);
    s.drain();
    let in_file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(in_file, b"2\x1b;");
    assert_eq!(s.out().text, b"1\\033;3\\033;");
}

/// An output that only grows.
#[derive(Default)]
struct Growing(Vec<u8>);

impl std::io::Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Output for Growing {
    fn truncate(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
}

#[test]
fn an_output_that_cannot_be_truncated_is_an_error_of_the_effect() {
    let mut out = consumer::Effects::new(Growing::default());
    std::io::Write::write_all(&mut out, b"before").unwrap();
    let truncated = out.perform(&events::Effect::Ftruncate);
    assert!(matches!(truncated, Err(events::SinkError::Effect(_))), "{truncated:?}");
    // What was printed is not lost, and more can follow.
    std::io::Write::write_all(&mut out, b" after").unwrap();
    std::io::Write::flush(&mut out).unwrap();
    assert_eq!(out.into_output().0, b"before after");
}
