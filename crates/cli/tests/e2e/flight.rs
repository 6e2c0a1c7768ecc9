//! Captures that keep the last moments: what is in their files, and when they are written.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};

use testing::dir::Dir;
use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, Output, binary, dtrace, finish, signal, spawn};

tests! {
    a_capture_with_a_ring_has_the_last_firings_in_order_and_no_earlier_ones
    snap_writes_the_moments_until_it_and_tracing_goes_on
    calls_of_snap_have_a_limit_and_the_others_are_counted
    a_script_of_its_own_calls_snap_and_exit
    a_signal_writes_the_last_moments_and_another_one_ends
    snap_and_options_without_such_a_capture_are_refused
    a_service_that_dies_leaves_its_last_moments
}

/// Sends no signal to processes that cannot be, with numbers in their ids: who else calls kill()
/// while a test runs is one of few.
fn kills(count: u32) -> String {
    format!("exec 2>/dev/null; i=0; while [ $i -lt {count} ]; do kill -0 $((5000000+i)); i=$((i+1)); done\n")
}

/// These numbers in a capture, of the processes that it is about.
#[track_caller]
fn numbers(file: &str, who: &str) -> Vec<u32> {
    let question =
        format!("syscall::kill:entry /{who} && arg0 >= 5000000/ {{ printf(\"%d\\n\", arg0 - 5000000); }}");
    let o = dtrace(&["-q", "--replay", file, "-n", &question]).code(0);
    o.out.lines().filter_map(|line| line.parse().ok()).collect()
}

#[track_caller]
fn assert_consecutive(numbers: &[u32]) {
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
}

struct Flight {
    dir: Dir,
}

impl Flight {
    fn new(job: &str) -> Flight {
        let dir = Dir::new("flight");
        std::fs::write(dir.join("job.sh"), job).unwrap();
        Flight { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        let first = ["--capture", &self.path("file"), "-x", "bufpolicy=ring", "-x", "bufsize=256k"];
        let last = ["-c", &format!("sh {}", self.path("job.sh"))];
        first.iter().chain(more).chain(&last).map(|word| (*word).to_owned()).collect()
    }

    fn run(&self, more: &[&str]) -> Output {
        let words = self.words(more);
        dtrace(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The files of snapshots whose names end so.
    fn snapshots(&self, end: &str) -> Vec<String> {
        let names = std::fs::read_dir(&*self.dir).unwrap().map(|entry| entry.unwrap().path());
        let named = |path: &PathBuf| path.display().to_string().ends_with(end);
        names.filter(named).map(|path| path.display().to_string()).collect()
    }
}

const KILLS: &str = "syscall::kill:";
const TARGET: &str = "pid == $target";

fn a_capture_with_a_ring_has_the_last_firings_in_order_and_no_earlier_ones() -> Verdict {
    let flight = Flight::new(&kills(3000));
    let o = flight.run(&["-n", KILLS]).code(0);
    let numbers = numbers(&flight.path("file"), TARGET);
    assert_consecutive(&numbers);
    assert_eq!(numbers.last(), Some(&2999), "{o:?}");
    assert!(numbers[0] > 0 && numbers.len() > 100, "{numbers:?}");
    // How much time it holds is said, then and later.
    assert!(o.err.contains(" firings of the last "), "{o:?}");
    let info = dtrace(&["--capture-info", &flight.path("file")]).code(0).out;
    let time = info.lines().find_map(|line| line.strip_prefix("time: ")?.strip_suffix(" s")).unwrap();
    assert!(o.err.contains(&format!(" of the last {time} s")), "{o:?} {info}");
    assert!(info.contains("the last moments, written for: end\n"), "{info}");
    assert_eq!(flight.snapshots("").len(), 2, "the job and a file");
    Pass
}

fn snap_writes_the_moments_until_it_and_tracing_goes_on() -> Verdict {
    let flight = Flight::new(&kills(3000));
    let when = "syscall::kill:entry /pid == $target && arg0 == 5001500/ { self->here = 1; }
        syscall::kill:return /self->here/ { self->here = 0; snap(strjoin(\"../at 1500\\n\", execname)); }";
    let o = flight.run(&["-n", KILLS, "-n", when]).code(0);
    let files = flight.snapshots(".___at_1500_sh");
    assert_eq!(files.len(), 1, "{o:?}");
    let at = numbers(&files[0], TARGET);
    assert_consecutive(&at);
    assert!(at[0] > 0 && at.contains(&1500), "{at:?}");
    let question =
        ["-q", "--replay", &files[0], "-n", "syscall::kill:return /pid == $target/ { @ = count(); }"];
    let count = dtrace(&question).code(0).last_number();
    // The first return may be of an entry before, and the last entry have no return yet.
    assert!((at.len() - 1..=at.len() + 1).contains(&(count as usize)), "{count} {}", at.len());
    // The reason is whole, and forges no lines.
    let info = dtrace(&["--capture-info", &files[0]]).code(0).out;
    assert!(info.contains("the last moments, written for: ../at 1500\\nsh\n"), "{info}");
    assert!(o.err.contains(&format!("dtrace: wrote {}: ", files[0])), "{o:?}");
    let end = numbers(&flight.path("file"), TARGET);
    assert_consecutive(&end);
    assert_eq!(end.last(), Some(&2999), "{o:?}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    Pass
}

fn calls_of_snap_have_a_limit_and_the_others_are_counted() -> Verdict {
    let snap = "syscall::kill:return /pid == $target && errno/ { snap(\"no\"); }";
    for (options, most) in [(&[][..], 1), (&["-x", "snaprate=1us", "-x", "snapmax=3"][..], 3)] {
        let flight = Flight::new(&kills(500));
        let o = flight.run(&[options, &["-n", KILLS, "-n", snap]].concat()).code(0);
        let mut files = flight.snapshots(".no");
        files.extend((2..10).flat_map(|n| flight.snapshots(&format!(".no-{n}"))));
        assert!((1..=most).contains(&files.len()), "{files:?} {o:?}");
        let counted = |what: &str| -> usize {
            let line = o.err.lines().find(|line| line.contains(what)).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let (refused, late) = (counted(" of snap() wrote no file"), counted(" of snap() came at the end"));
        assert_eq!(refused + late + files.len(), 500, "{files:?} {o:?}");
        // None is left unfinished.
        assert!(!flight.snapshots("").iter().any(|file| file.ends_with(".part")), "{o:?}");
    }
    // END comes behind the last look: its moment is that of the end.
    let flight = Flight::new(&kills(5));
    let o = flight.run(&["-n", KILLS, "-n", "END { snap(\"late\"); }"]).code(0);
    let said = format!("dtrace: 1 call of snap() came at the end: {} has it\n", flight.path("file"));
    assert!(o.err.contains(&said), "{o:?}");
    Pass
}

fn a_script_of_its_own_calls_snap_and_exit() -> Verdict {
    let flight = Flight::new(&kills(1000));
    let script = "int n;
        syscall::kill:entry /pid == $target && arg0 >= 5000000/ { printf(\"%d\\n\", arg0 - 5000000); n++; }
        syscall::kill:entry /n == 300/ { snap(\"three hundred\"); n++; }
        syscall::kill:entry /n >= 600/ { exit(7); }";
    std::fs::write(flight.dir.join("script.d"), script).unwrap();
    let o = flight.run(&["--capture-for", &flight.path("script.d")]).code(7);
    assert_eq!(flight.snapshots(".three_hundred").len(), 1, "{o:?}");
    let replay = |file: &str| {
        let o = dtrace(&["-q", "--replay", file, "-s", &flight.path("script.d")]);
        o.out.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>()
    };
    let at = replay(&flight.snapshots(".three_hundred")[0]);
    assert_consecutive(&at);
    assert!(at.len() >= 200, "{at:?}");
    let end = replay(&flight.path("file"));
    assert_consecutive(&end);
    assert!(end.last().is_some_and(|last| (580..1000).contains(last)), "{end:?}");
    Pass
}

fn a_signal_writes_the_last_moments_and_another_one_ends() -> Verdict {
    let flight = Flight::new("");
    let wait = format!(
        "{}: >{}\nuntil [ -e {} ]; do sleep 0.05; done\n",
        kills(200),
        flight.path("done"),
        flight.path("go")
    );
    std::fs::write(flight.dir.join("job.sh"), wait).unwrap();
    // A ring that has space for the signals of tests beside, thousands, until it is written.
    let words = flight.words(&["-x", "bufsize=8m", "-n", KILLS]);
    let dtrace = spawn(Command::new(binary()).args(&words)).unwrap();
    let exists = |name: &str| flight.dir.join(name).exists().then_some(());
    eventually("the job is done", LIMIT, || exists("done"));
    signal(&dtrace, libc::SIGUSR1);
    let files = eventually("a file", LIMIT, || Some(flight.snapshots(".signal")).filter(|f| !f.is_empty()));
    assert_eq!(numbers(&files[0], TARGET), (0..200).collect::<Vec<_>>());
    signal(&dtrace, libc::SIGUSR1);
    eventually("another one", LIMIT, || (flight.snapshots(".signal").len() == 2).then_some(()));
    signal(&dtrace, libc::SIGTERM);
    let o = finish(dtrace).code(0);
    std::fs::write(flight.dir.join("go"), "").unwrap();
    assert!(o.err.contains("dtrace: captured ") && o.err.matches("dtrace: wrote ").count() == 2, "{o:?}");
    assert_eq!(numbers(&flight.path("file"), TARGET), (0..200).collect::<Vec<_>>());
    Pass
}

fn snap_and_options_without_such_a_capture_are_refused() -> Verdict {
    let snap = "syscall::getppid:entry { snap(\"x\"); }";
    let hint = "snap( ) writes the last moments of a capture: add --capture FILE -x bufpolicy=ring";
    for (words, why) in [
        (&["-n", snap][..], hint),
        (&["--capture", "x", "-n", snap], hint),
        (&["-x", "bufpolicy=ring", "-n", snap], hint),
        (&["--capture", "-", "-x", "bufpolicy=ring", "-n", "syscall::getppid:entry"], "are written to files"),
        (&["-x", "capture=stack", "-n", "BEGIN"], "says what --capture records: add --capture FILE"),
    ] {
        let o = dtrace(words).code(1);
        assert!(o.err.contains(why), "{words:?}: {o:?}");
    }
    let o = dtrace(&["-x", "errtags", "-n", snap]).code(1);
    assert!(o.err.contains("[D_SNAP_CAPTURE] in action list: snap( )"), "{o:?}");
    Pass
}

/// The command line of a unit of systemd, as that executes it.
fn command_line(unit: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let value = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix("Environment=")).unwrap();
        let own = settings.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let begins =
            |word: &str| Some(word.trim_matches('"').strip_prefix(name)?.strip_prefix('=')?.to_owned());
        own.or_else(|| split(line).iter().find_map(|word| begins(word))).unwrap_or_default()
    };
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = Vec::new();
    for word in split(&line.replace("%i", &value("%i"))) {
        match word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
            // Several words, or none.
            Some(name) => words.extend(split(&value(name))),
            None => {
                let mut word = word;
                while let Some((before, (name, after))) =
                    word.split_once("${").and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
                {
                    word = format!("{before}{}{after}", value(name));
                }
                words.push(word);
            }
        }
    }
    words
}

/// Words, where quotes keep spaces.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Waits until a service says that it is ready.
fn ready(socket: &UnixDatagram, dtrace: &mut Child) {
    socket.set_nonblocking(true).unwrap();
    eventually("READY=1", LIMIT, || {
        let mut bytes = [0; 100];
        let received = socket.recv(&mut bytes).is_ok_and(|n| bytes[..n].starts_with(b"READY=1"));
        (received || dtrace.try_wait().unwrap().is_some()).then_some(())
    });
}

fn a_service_that_dies_leaves_its_last_moments() -> Verdict {
    let unit = include_str!("../../../../docs/flight/dtrace-flight@.service");
    let flight = Flight::new(&format!("{}kill -KILL $$\n", kills(300)));
    let (here, socket) = (flight.dir.display().to_string(), flight.path("notify"));
    std::fs::copy("/bin/sh", flight.dir.join("flightjob")).unwrap();
    let probes = "syscall::kill:, proc:::exit";
    let settings =
        [("%i", "flightjob"), ("STATE_DIRECTORY", &*here), ("INVOCATION_ID", "run"), ("PROBES", probes)];
    let words = command_line(unit, &settings);
    assert_eq!(words[..3], ["dtrace".to_owned(), "--capture".into(), flight.path("run")]);
    let notify = UnixDatagram::bind(&socket).unwrap();
    let mut dtrace = spawn(Command::new(binary()).args(&words[1..]).env("NOTIFY_SOCKET", &socket)).unwrap();
    ready(&notify, &mut dtrace);
    let job = |what: &str| {
        let mut job = Command::new(flight.dir.join("flightjob"));
        job.args(["-c", what]).status().unwrap()
    };
    // One that ends is no concern.
    assert!(job("exit 0").success());
    let script = std::fs::read_to_string(flight.dir.join("job.sh")).unwrap();
    assert!(!job(&script).success());
    let files = eventually("a file", LIMIT, || {
        Some(flight.snapshots(".flightjob_died"))
            .filter(|files| !files.is_empty() || dtrace.try_wait().unwrap().is_some())
    });
    signal(&dtrace, libc::SIGTERM);
    let o = finish(dtrace).code(0);
    assert_eq!(files.len(), 1, "{o:?}");
    let numbers = numbers(&files[0], "execname == \"flightjob\"");
    assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "{o:?}");
    Pass
}
