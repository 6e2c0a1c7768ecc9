//! The examples that a beginner starts from, each on a workload whose size is known.

use std::process::{Child, Command};
use std::time::Duration;

use dtrace::Target;
use testing::dir::Dir;

use crate::tool::own_program;
use crate::{Test, Verdict};

// The examples are programs of their own; here their `main`s are not used.
#[allow(dead_code)]
#[path = "../../examples/count_calls.rs"]
mod count_calls;
#[allow(dead_code)]
#[path = "../../examples/events.rs"]
mod events;
#[allow(dead_code)]
#[path = "../../examples/slow_queries.rs"]
mod slow_queries;
#[allow(dead_code)]
#[path = "../../examples/to_json.rs"]
mod to_json;
#[allow(dead_code)]
#[path = "../../examples/top.rs"]
mod top;

pub(crate) const TESTS: &[Test] = &[
    ("beginners::count_calls_counts_each_call_of_the_command", counted),
    ("beginners::to_json_writes_a_line_with_the_process_for_each_file", as_json),
    ("beginners::top_shows_the_calls_of_each_interval_once", shown),
    ("beginners::events_connects_to_a_session_and_prints_each_record", connected),
    ("beginners::slow_queries_prints_the_slow_ones_of_a_service", slow),
];

/// A file in the directory of a test.
fn file(dir: &Dir, name: &str) -> String {
    dir.join(name).display().to_string()
}

fn command(words: &str) -> String {
    format!("{} --workload {words}", own_program().display())
}

fn spawn(words: &[&str]) -> Child {
    Command::new(own_program()).arg("--workload").args(words).spawn().unwrap()
}

fn counted() -> Verdict {
    let text = String::from_utf8(count_calls::run(&command("2 300"), Vec::new()).unwrap()).unwrap();
    for call in ["getppid", "chdir"] {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(call));
        assert_eq!(line.and_then(|line| line.split_whitespace().nth(1)), Some("600"), "{call} in {text}");
    }
    Verdict::Pass
}

fn as_json() -> Verdict {
    let dir = Dir::new("to-json");
    let (opened, lines) = (file(&dir, "opened"), file(&dir, "lines"));
    std::fs::write(&opened, "").unwrap();
    to_json::run(&lines, &command(&format!("open 40 {opened}"))).unwrap();
    let text = std::fs::read_to_string(&lines).unwrap();
    let mine: Vec<&str> = text.lines().filter(|line| line.contains(&format!("\"{opened}: "))).collect();
    assert_eq!(mine.len(), 40, "{text}");
    let of = |line: &str, name: &str| -> u64 {
        let rest = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name}: {line}")).1;
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    let first = of(mine[0], "pid");
    assert!(mine.iter().all(|line| of(line, "pid") == first && of(line, "tid") == first), "{text}");
    Verdict::Pass
}

/// The workload begins when the session runs. The differences of all intervals are its calls.
fn shown() -> Verdict {
    let dir = Dir::new("top");
    let (stop, counts) = (file(&dir, "stop"), file(&dir, "counts"));
    let mut child: Option<Child> = None;
    let (mut seen, mut intervals) = (0, 0);
    top::run("getppid", Duration::from_millis(20), |calls| {
        let Some(running) = &mut child else {
            child = Some(spawn(&["until", "1", &stop, &counts]));
            return true;
        };
        // Before the counts are looked at: what it does later is in the next ones.
        let ended = running.try_wait().unwrap().is_some();
        let mine = calls.iter().find(|((pid, _), _)| *pid == i128::from(running.id()));
        if let Some(((_, name), n)) = mine {
            assert!(name.starts_with("library"), "{name}");
            (seen, intervals) = (seen + n, intervals + 1);
        }
        if intervals == 5 {
            std::fs::write(&stop, "").unwrap();
        }
        !(ended && mine.is_none())
    })
    .unwrap();
    let made: i64 = std::fs::read_to_string(&counts).unwrap().trim().parse().unwrap();
    assert_eq!(seen, made, "in {intervals} intervals");
    assert!(intervals >= 5, "{intervals}");
    Verdict::Pass
}

/// The service is held from the moment at which it is grabbed until it is traced.
fn slow() -> Verdict {
    let dir = Dir::new("slow");
    let go = file(&dir, "go");
    let mut child = spawn(&["service", &go]);
    let service = Target::grab(child.id() as i32).unwrap();
    std::fs::write(&go, "").unwrap();
    let limit = Duration::from_millis(100);
    let text = slow_queries::run(service, "dt_library_query", limit, Vec::new()).unwrap();
    let text = String::from_utf8(text).unwrap();
    for n in 0..4 {
        let of_this = |line: &&str| line.ends_with(&format!(" ms: select slow {n}"));
        let lines: Vec<&str> = text.lines().filter(of_this).collect();
        let [line] = &lines[..] else { panic!("{n}: {text}") };
        let millis: u64 = line.split_once(" ms").unwrap().0.trim().parse().unwrap();
        assert!(millis >= 150, "{line}");
    }
    // Whoever traces a child has waited for it, too.
    let _ = child.wait();
    Verdict::Pass
}

fn connected() -> Verdict {
    let dir = Dir::new("events");
    let path = file(&dir, "socket");
    let socket = dtrace::events::Socket::bind(&path).unwrap();
    let mut out = Vec::new();
    let reader = std::thread::spawn(move || events::run(&path, &mut out).map(|n| (n, out)).unwrap());
    testing::eventually("the example is connected", testing::HANG_LIMIT, || socket.readers() == 1);
    let mut session = dtrace::Session::builder(&dtrace::System::live())
        .program("syscall::getppid:entry /pid == $target/ { trace(tid); }")
        .command(command("2 300"))
        .start(socket)
        .unwrap();
    session.run().unwrap();
    let (records, out) = reader.join().unwrap();
    let lines = String::from_utf8(out).unwrap();
    let of_call = lines.lines().filter(|line| line.ends_with(" getppid:entry")).count();
    assert_eq!((records, of_call), (600, 600), "{lines}");
    Verdict::Pass
}
