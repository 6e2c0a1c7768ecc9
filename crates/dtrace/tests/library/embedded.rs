//! A session in the event loop of another program: the example of the library, run as it is.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use std::time::Instant;

use dtrace::options::Options;
use dtrace::{Session, Status, Target, Text};

use crate::tool::{Output, compile, own_program};
use crate::{Test, Verdict};

// The example is a program of its own; here its `main` is not used.
#[allow(dead_code)]
#[path = "../../examples/event_loop.rs"]
mod event_loop;

#[allow(dead_code)]
#[path = "../../examples/provider.rs"]
mod provider;

pub(crate) use event_loop::run;

pub(crate) const TESTS: &[Test] = &[
    ("embedded::an_event_loop_serves_a_session_a_descriptor_and_a_timer", in_a_loop),
    ("embedded::a_provider_is_made_of_what_the_library_exports", of_the_example),
    ("embedded::exit_wakes_an_event_loop_long_before_its_deadline", woken),
];

/// Every call of the workload is counted, every line of the input is answered while the session
/// runs, and the timer of the program goes on.
fn in_a_loop() -> Verdict {
    let dir = std::env::temp_dir().join(format!("dt-embedded-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (stop, counts) = (dir.join("stop"), dir.join("counts"));
    let me = own_program();
    let target = format!("{} --workload until 1 {} {}", me.display(), stop.display(), counts.display());
    let mut child = Command::new(&me)
        .args(["--workload", "embedded", &target])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for n in 0..20 {
        let line = format!("line {n}\n");
        input.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        assert_eq!(answer, line);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Its end is no event that repeats for ever.
    drop(input);
    std::fs::write(&stop, "").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let number = |word: &str| -> u64 {
        let of = |l: &str| l.strip_prefix(word)?.trim().parse().ok();
        rest.lines().find_map(of).unwrap_or_else(|| panic!("no {word} in {rest}"))
    };
    let calls: u64 = std::fs::read_to_string(&counts).unwrap().trim().parse().unwrap();
    assert_eq!(number("getppid "), calls);
    assert!(number("ticks ") >= 10, "{rest}");
    std::fs::remove_dir_all(&dir).unwrap();
    Verdict::Pass
}

/// The example uses nothing but the library: see `a_user_of_the_library_needs_no_crate_below_it`.
fn of_the_example() -> Verdict {
    let text = provider::run().unwrap();
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["10", "55"]);
    Verdict::Pass
}

/// The descriptors alone wake the loop: all rates are minutes. It does not spin either.
fn woken() -> Verdict {
    let dir = std::env::temp_dir().join(format!("dt-woken-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (stop, counts) = (dir.join("stop"), dir.join("counts"));
    let me = own_program();
    let command = format!("{} --workload until 1 {} {}", me.display(), stop.display(), counts.display());
    let target = Target::create(command).unwrap();
    let mut options = Options::default();
    for rate in ["switchrate", "aggrate", "statusrate"] {
        options.set(rate, Some("5m")).unwrap();
    }
    options.set("quiet", None).unwrap();
    let script = "syscall::getppid:entry /pid == $target && ++n == 200/ { exit(3); }";
    let program = compile(script, &mut options, target.pid() as u64);
    let mut session = Session::start(&program, options, vec![target], Text::new(Output::default())).unwrap();
    let (start, mut waits) = (Instant::now(), 0);
    while session.ready().unwrap() == Status::Working {
        assert!(start.elapsed() < testing::HANG_LIMIT, "no end");
        let deadline = session.next_deadline();
        let fds: Vec<_> = session.descriptors().iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
        proc::poll_readable(&fds, deadline.saturating_duration_since(Instant::now())).unwrap();
        waits += 1;
    }
    assert!(waits < 100, "{waits} waits");
    assert_eq!(session.finish().unwrap(), 3);
    std::fs::write(&stop, "").unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Verdict::Pass
}
