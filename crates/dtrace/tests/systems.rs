//! Machines as values: what is asked of one is not seen with another, and nothing is asked of the
//! running one.

use dtrace::options::Options;
use dtrace::{Blob, Bytes, Field, Macros, Program, Record, Session, Setup, Source, System, Text};
use types::btf::synth::Builder;

/// A kernel that has a task with this member, this function and this tracepoint.
fn kernel(release: &str, member: &str, function: &str, event: &str) -> System {
    let mut b = Builder::default();
    let int = b.int("int", 4, 1);
    b.sou(false, "task_struct", 4, &[(member, int, 0)]);
    b.func(function, int, &[]);
    let mut record = Record {
        types: vec![("vmlinux".into(), Blob::new(b.finish()))],
        functions: Ok(Blob::new(format!("{function}\n").into_bytes())),
        events: Ok(vec![("group".into(), event.into())]),
        ..Record::default()
    };
    record.features.release = release.into();
    record.features.facilities = vec![("raw_tp".into(), Ok(())), ("kprobe_multi".into(), Ok(()))];
    record.set_formats([("group", event, "ID: 7\nfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n")]);
    let symbols =
        format!("ffffffff91000000 T _text\nffffffff91000100 T {function}\nffffffff92000000 B _end\n");
    record.set_symbols(&symbols);
    // As the record of a machine elsewhere comes.
    System::recorded(&record.to_bytes()).unwrap()
}

fn compiled(system: &System, text: &str) -> Result<Program, String> {
    let source = Source::Specifier(Field::Name, text.into());
    let setup = Setup { shown_only: true, ..Setup::default() };
    let program = dtrace::compile_as(system, &[source], &Macros::default(), &mut Options::default(), setup);
    program.map_err(|e| e.messages(true).join("\n"))
}

const PROGRAMS: [[&str; 3]; 4] = [
    [
        "BEGIN { trace(((struct task_struct *)arg0)->before); }",
        "BEGIN { trace(((struct task_struct *)arg0)->after); }",
        "[D_TYPE_MEMBER]",
    ],
    ["fbt::old_function:entry", "fbt::new_function:entry", "[D_PDESC_ZERO]"],
    [
        "sdt:group::old_event { trace(args[0]); }",
        "sdt:group::new_event { trace(args[0]); }",
        "[D_PDESC_ZERO]",
    ],
    ["BEGIN { trace((long)&`old_function); }", "BEGIN { trace((long)&`new_function); }", "[D_"],
];

#[test]
fn a_script_is_told_for_two_kernels_and_the_running_one_in_one_program() {
    let old = kernel("1.0-old", "before", "old_function", "old_event");
    let new = kernel("2.0-new", "after", "new_function", "new_event");
    let live = System::live();
    // Each is asked twice, before and after the others.
    for round in 0..2 {
        for [of_old, of_new, tag] in PROGRAMS {
            assert!(compiled(&old, of_old).is_ok(), "{round} {of_old}: {:?}", compiled(&old, of_old).err());
            assert!(compiled(&new, of_new).is_ok(), "{round} {of_new}: {:?}", compiled(&new, of_new).err());
            for (system, text) in [(&old, of_new), (&new, of_old), (&live, of_old), (&live, of_new)] {
                let why = compiled(system, text).err().unwrap_or_else(|| panic!("{round} {text}"));
                if !system.is_live() {
                    assert!(why.contains(tag), "{text}: {why}");
                }
            }
        }
    }
}

#[test]
fn the_list_of_a_machine_is_its_own() {
    let list = |system: &System| {
        let mut out = Vec::new();
        dtrace::list::all(system, &mut out, false).unwrap();
        String::from_utf8(out).unwrap()
    };
    let old = list(&kernel("1.0-old", "before", "old_function", "old_event"));
    let new = list(&kernel("2.0-new", "after", "new_function", "new_event"));
    for (text, mine, other) in [(&old, "old", "new"), (&new, "new", "old")] {
        for word in
            [format!("{mine}_function entry"), format!("{mine}_function return"), format!("{mine}_event")]
        {
            assert!(text.contains(&word), "{word}");
        }
        assert!(!text.contains(&format!("{other}_")));
    }
    // Processes are of the running machine.
    let providers = |text: &str| {
        text.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).map(String::from).collect()
    };
    let all: std::collections::BTreeSet<String> = providers(&old);
    assert!(
        all.contains("profile") && !all.iter().any(|p| p.ends_with(|c: char| c.is_ascii_digit())),
        "{all:?}"
    );
}

#[test]
fn a_program_for_another_machine_does_not_run_here() {
    let program = compiled(&kernel("1.0-old", "m", "f", "e"), "BEGIN").unwrap();
    let session = Session::start(&program, Options::default(), Vec::new(), Text::new(Vec::new()));
    let why = session.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(why.contains("compiled for another machine (Linux 1.0-old)"), "{why}");
}

#[test]
fn an_option_with_a_value_that_it_may_not_have_is_an_error_before_anything_is_compiled() {
    let source = Source::Specifier(Field::Name, "BEGIN".into());
    for shown_only in [true, false] {
        let mut options = Options { strsize: Bytes::mib(1), ..Options::default() };
        let setup = Setup { shown_only, ..Setup::default() };
        let system = kernel("1.0-old", "m", "f", "e");
        let done = dtrace::compile_as(
            &system,
            std::slice::from_ref(&source),
            &Macros::default(),
            &mut options,
            setup,
        );
        let why = done.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.starts_with("failed to set strsize=1m: Invalid value"), "{why}");
    }
}

#[test]
fn processes_are_no_part_of_a_record() {
    let system = kernel("1.0-old", "m", "f", "e");
    let text = format!("pid{}:::entry", std::process::id());
    let why = compiled(&system, &text).err().unwrap();
    assert!(why.contains("the record of a machine has no processes"), "{why}");
}
