//! Anonymous tracing: `-A`, what the boot executes, and `-a`, below a directory of the test's own.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};

use testing::dir::Dir;
use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::leaves_nothing::{ids, nothing_new};
use crate::tool::{Output, binary, cpus, finish, pin, printed, signal, spawn};

tests! {
    a_claim_prints_what_a_session_prints_before_and_after_it
    a_claim_that_only_prints_ends_the_session_and_there_is_only_one
    what_nobody_claimed_before_the_shutdown_is_there_after_the_next_boot
    a_claim_prints_in_other_formats_with_other_options
    what_another_version_has_recorded_is_not_taken
    what_cannot_be_printed_is_not_taken
    times_since_1970_are_by_the_clock_as_it_was_last
    whoever_is_killed_the_other_ends_and_nothing_is_left_in_the_kernel
    what_has_no_space_is_counted
    what_ended_by_itself_can_be_claimed
    an_enabling_is_stored_replaced_and_removed
    what_a_boot_or_a_claim_cannot_do_is_refused
    what_others_could_have_written_is_not_traced_or_printed
    what_does_not_start_at_the_boot_is_said_to_who_claims_it
}

const NOTHING: &str = "dtrace: could not enable tracing: No anonymous tracing state\n";

/// A system call that nobody else makes: the id of a session that does not exist.
const NOBODY: i32 = 0x7eae_0000;

fn call(id: i32, times: u32) {
    // SAFETY: a plain system call, without an effect.
    (0..times).for_each(|_| _ = unsafe { libc::getsid(id) });
}

/// A machine of the test's own, as far as files are concerned.
struct Machine(Dir);

impl Machine {
    fn new(name: &str) -> Machine {
        Machine(Dir::new(&format!("anonymous-{name}")))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let is_ours = words.iter().any(|w| w.starts_with("-A") || w.starts_with("-a") || *w == "--anonymous");
        command.args(is_ours.then(|| format!("-xanonroot={}", self.0.display()))).args(words);
        command
    }

    fn start(&self, words: &[&str]) -> Child {
        spawn(&mut self.command(words)).unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Output {
        finish(self.start(words))
    }

    /// Stores an enabling.
    #[track_caller]
    fn store(&self, words: &[&str]) {
        self.run(&[&["-A"], words].concat()).code(0);
    }

    /// Begins to trace what is stored, as the boot does, once everything is traced.
    #[track_caller]
    fn boot(&self) -> Child {
        let socket = self.0.join("notify");
        let _ = std::fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_nonblocking(true).unwrap();
        let mut child = spawn(self.command(&["--anonymous"]).env("NOTIFY_SOCKET", &socket)).unwrap();
        let mut bytes = [0; 16];
        eventually("it is ready", crate::tool::LIMIT, || {
            manager.recv(&mut bytes).is_ok() || child.try_wait().unwrap().is_some()
        });
        assert!(bytes.starts_with(b"READY=1"), "{}", finish(child).err);
        child
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    fn has(&self, below: &str) -> bool {
        self.path(below).symlink_metadata().is_ok()
    }

    /// Nobody can claim anything.
    #[track_caller]
    fn nothing_to_claim(&self) {
        let o = self.run(&["-a"]).code(1);
        assert_eq!((o.out.as_str(), o.err.as_str()), ("", NOTHING));
    }
}

fn of_calls(id: i32) -> String {
    format!("syscall::getsid:entry /arg0 == {id} && pid == {}/", std::process::id())
}

/// A program whose whole text is known.
fn script(id: i32) -> String {
    let calls = of_calls(id);
    format!(
        "BEGIN {{ printf(\"begin\"); }} {calls} {{ this->n = n++; trace(this->n); trace(execname); }} \
         {calls} {{ printf(\"%d of %s\\n\", n, probefunc); @calls[execname, probename] = count(); @ = quantize(n); }} \
         syscall::getsid:entry /arg0 == {id} && n == 5/ {{ printa(@calls); }} END {{ printf(\"end after %d\", n); }}"
    )
}

fn a_claim_prints_what_a_session_prints_before_and_after_it() -> Verdict {
    let machine = Machine::new("claim");
    let id = NOBODY;
    let program = machine.path("program.d");
    std::fs::write(&program, script(id)).unwrap();
    let program = program.to_str().unwrap();
    // All of it is on one CPU, whose number is printed.
    let cpu = cpus()[0];
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            pin(0, cpu);
            for options in [&[][..], &["-q"], &["-x", "aggsortrev"]] {
                let words = [options, &["-s", program]].concat();
                let mut session = crate::tool::start(&words);
                printed(&mut session);
                call(id, 9);
                signal(&session, libc::SIGINT);
                let live = finish(session).code(0);

                machine.store(&words);
                // The text of the boot is that which was stored.
                std::fs::rename(program, machine.path("moved")).unwrap();
                let traces = machine.boot();
                std::fs::rename(machine.path("moved"), program).unwrap();
                call(id, 4);
                let mut claim = machine.start(&["-a"]);
                printed(&mut claim);
                call(id, 5);
                signal(&claim, libc::SIGINT);
                let claim = finish(claim).code(0);
                assert_eq!((claim.out, claim.err.as_str()), (live.out, ""));
                finish(traces).code(0);
                machine.nothing_to_claim();
            }
        });
        done.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    Pass
}

fn a_claim_that_only_prints_ends_the_session_and_there_is_only_one() -> Verdict {
    let machine = Machine::new("once");
    let id = NOBODY + 1;
    machine.nothing_to_claim();
    machine.store(&[
        "-qn",
        &format!(
            "BEGIN {{ trace(\"begin \"); }} END {{ trace(\"end\"); }} {} {{ @ = count(); }}",
            of_calls(id)
        ),
    ]);
    let traces = machine.boot();
    call(id, 7);
    let o = machine.run(&["-ae"]).code(0);
    assert_eq!(
        (o.out.split_whitespace().collect::<Vec<_>>().join(" "), o.err.as_str()),
        ("begin end 7".into(), "")
    );
    finish(traces).code(0);
    machine.nothing_to_claim();
    let traces = machine.boot();
    // Nobody else traces it at the same time.
    let o = machine.run(&["--anonymous"]).code(1);
    assert!(o.err.contains("another process traces what is stored"), "{}", o.err);
    let mut claim = machine.start(&["-a"]);
    printed(&mut claim);
    machine.nothing_to_claim();
    let o = machine.run(&["-ae"]).code(1);
    assert_eq!((o.out.as_str(), o.err.as_str()), ("", NOTHING));
    signal(&claim, libc::SIGINT);
    assert!(finish(claim).code(0).out.contains("end"));
    finish(traces).code(0);
    machine.nothing_to_claim();
    Pass
}

fn what_nobody_claimed_before_the_shutdown_is_there_after_the_next_boot() -> Verdict {
    let machine = Machine::new("shutdown");
    let id = NOBODY + 2;
    let store = |name: &str| {
        let calls = of_calls(id);
        machine.store(&["-qn", &format!("{calls} {{ @ = count(); }} END {{ printa(\"{name} %@d\", @); }}")]);
    };
    store("first");
    let traces = machine.boot();
    call(id, 3);
    signal(&traces, libc::SIGTERM);
    finish(traces).code(0);
    assert_eq!(
        machine.path("var/lib/dtrace/anonymous/events").metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(!machine.has("var/lib/dtrace/anonymous/log") && !machine.has("run/dtrace/anonymous/socket"));
    // The next boot: its own session comes first, and what is older stays.
    store("second");
    let traces = machine.boot();
    call(id, 4);
    assert!(machine.run(&["-ae"]).code(0).out.contains("second 4"));
    finish(traces).code(0);
    let o = machine.run(&["-a"]).code(0);
    assert!(o.out.contains("first 3") && o.err.is_empty(), "{o:?}");
    machine.nothing_to_claim();
    // What each boot leaves is kept.
    for (name, calls) in [("third", 1), ("fourth", 2)] {
        store(name);
        let traces = machine.boot();
        call(id, calls);
        signal(&traces, libc::SIGTERM);
        finish(traces).code(0);
    }
    for text in ["fourth 2", "third 1"] {
        assert!(machine.run(&["-ae"]).code(0).out.contains(text), "{text}");
    }
    machine.nothing_to_claim();
    Pass
}

fn a_claim_prints_in_other_formats_with_other_options() -> Verdict {
    let machine = Machine::new("formats");
    let id = NOBODY + 3;
    let program = format!("{} {{ printf(\"call %d\\n\", n++); @[n] = count(); }}", of_calls(id));
    machine.store(&["-n", &program]);
    let session = |words: &[&str]| {
        let traces = machine.boot();
        call(id, 3);
        let o = machine.run(&[&["-ae"], words].concat()).code(0);
        finish(traces).code(0);
        assert_eq!(o.err, "", "{words:?}");
        o.out
    };
    let text = session(&[]);
    assert!(text.contains("FUNCTION:NAME") && text.contains("call 2"), "{text}");
    let quiet = session(&["-q"]);
    assert!(!quiet.contains("FUNCTION:NAME") && quiet.contains("call 0\ncall 1\ncall 2\n"), "{quiet}");
    let file = machine.path("out.txt");
    assert_eq!(session(&["-o", file.to_str().unwrap()]), "");
    assert_eq!(std::fs::read_to_string(&file).unwrap().matches("call").count(), 3);
    let json = testing::json::lines(&session(&["--format", "json"]));
    let of = |kind: &str| json.iter().filter(|line| line["event"] == kind).count();
    assert_eq!((of("start"), of("record"), of("aggregation"), of("end")), (1, 3, 1, 1));
    let file = machine.path("out.json");
    assert!(session(&["--to", file.to_str().unwrap()]).contains("call 1"));
    assert_eq!(testing::json::lines(&std::fs::read_to_string(&file).unwrap()).len(), json.len());
    Pass
}

const EVENTS: &str = "var/lib/dtrace/anonymous/events";

/// The beginning of a recording, without its wall clock.
fn head(version: &str, events: u32) -> String {
    format!("dtrace anonymous recording 1 {version} {events} ")
}

fn what_another_version_has_recorded_is_not_taken() -> Verdict {
    let machine = Machine::new("version");
    machine.store(&["-qn", "BEGIN { trace(\"begin\"); }"]);
    let traces = machine.boot();
    signal(&traces, libc::SIGTERM);
    finish(traces).code(0);
    let bytes = std::fs::read(machine.path(EVENTS)).unwrap();
    let own = head(env!("CARGO_PKG_VERSION"), dtrace_events());
    assert!(bytes.starts_with(own.as_bytes()), "{}", String::from_utf8_lossy(&bytes[..128]));
    let mut other = head("9.8", 99).into_bytes();
    other.extend([b' '; 128]);
    other.truncate(127);
    other.push(b'\n');
    let refused = |says: &str| {
        let o = machine.run(&["-ae"]).code(1);
        let known = o.err.contains("dtrace 9.8 has recorded it, in a format that this one");
        assert!(known && o.err.contains(says) && o.out.is_empty(), "{}", o.err);
    };
    std::fs::write(machine.path(EVENTS), [&other, &bytes[128..]].concat()).unwrap();
    refused("var/lib/dtrace/anonymous/events: ");
    refused("claim it with that one, or remove the file");
    std::fs::write(machine.path(EVENTS), &bytes).unwrap();
    // A session that runs goes on: nobody has claimed it.
    let listener = UnixListener::bind(machine.path("run/dtrace/anonymous/socket")).unwrap();
    let said = std::thread::scope(|scope| {
        let session = scope.spawn(|| {
            let (mut claim, _) = listener.accept().unwrap();
            claim.write_all(&other).unwrap();
            let mut said = Vec::new();
            claim.read_to_end(&mut said).map(|_| said)
        });
        refused(&format!("it goes on; claim it with /proc/{}/exe -a", std::process::id()));
        session.join().unwrap().unwrap()
    });
    assert_eq!(said, b"");
    drop(listener);
    assert_eq!(machine.run(&["-ae"]).code(0).out.trim(), "begin");
    machine.nothing_to_claim();
    Pass
}

/// The version of the events.
fn dtrace_events() -> u32 {
    dtrace::events::VERSION
}

fn what_cannot_be_printed_is_not_taken() -> Verdict {
    let machine = Machine::new("unprinted");
    machine.store(&["-qn", "BEGIN { trace(\"begin\"); }"]);
    let traces = machine.boot();
    let o = machine.run(&["-ae", "--format", "heat"]).code(1);
    assert!(o.err.contains("it is written to a file") && o.out.is_empty(), "{}", o.err);
    // Who connects and says nothing claims nothing, and others are served after it.
    let silent = UnixStream::connect(machine.path("run/dtrace/anonymous/socket")).unwrap();
    (&silent).read_exact(&mut [0; 128]).unwrap();
    drop(silent);
    let silent = UnixStream::connect(machine.path("run/dtrace/anonymous/socket")).unwrap();
    assert_eq!(machine.run(&["-ae"]).code(0).out.trim(), "begin");
    drop(silent);
    finish(traces).code(0);
    machine.nothing_to_claim();
    Pass
}

fn times_since_1970_are_by_the_clock_as_it_was_last() -> Verdict {
    let machine = Machine::new("clock");
    let program = "BEGIN { printf(\"%Y|%d|%d|%d\\n\", walltimestamp, walltimestamp, timestamp, walltimestamp + 0); exit(0); }";
    machine.store(&["-qn", program]);
    finish(machine.boot()).code(0);
    // As if the machine had been 20 years behind, and its clock was set before it went down.
    const YEARS: i64 = 20 * 365 * 86400 * 1_000_000_000;
    let mut bytes = std::fs::read(machine.path(EVENTS)).unwrap();
    let text = String::from_utf8(bytes[..128].to_vec()).unwrap();
    assert_eq!(text.split_whitespace().next_back(), Some("0"), "nobody has set it");
    let mut known = head(env!("CARGO_PKG_VERSION"), dtrace_events()) + &YEARS.to_string();
    known = format!("{known:<127}\n");
    bytes[..128].copy_from_slice(known.as_bytes());
    std::fs::write(machine.path(EVENTS), bytes).unwrap();
    let o = machine.run(&["-a"]).code(0);
    let words: Vec<&str> = o.out.trim().split('|').collect();
    let [year, wall, time, computed] = words[..] else { panic!("{o:?}") };
    let [wall, time, computed] = [wall, time, computed].map(|n| n.parse::<i64>().unwrap());
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let minute = 60_000_000_000;
    assert!(time > 0 && (wall - YEARS).abs_diff(now) < minute, "{o:?}");
    // What is computed of it is as it was recorded.
    assert!(computed.abs_diff(now) < minute, "{o:?}");
    let seconds = wall / 1_000_000_000;
    let date = Command::new("date").args([format!("-d@{seconds}"), "+%Y %b %e %T".into()]).output().unwrap();
    assert_eq!(year, String::from_utf8(date.stdout).unwrap().trim());
    Pass
}

fn whoever_is_killed_the_other_ends_and_nothing_is_left_in_the_kernel() -> Verdict {
    let machine = Machine::new("killed");
    let before = ids();
    let id = NOBODY + 4;
    machine
        .store(&["-qn", &format!("BEGIN {{ trace(\"begin \"); }} {} {{ trace(\"call \"); }}", of_calls(id))]);
    let (traces, mut claim) = (machine.boot(), machine.start(&["-a"]));
    printed(&mut claim);
    claim.kill().unwrap();
    finish(claim);
    finish(traces).code(0);
    machine.nothing_to_claim();
    let (mut traces, mut claim) = (machine.boot(), machine.start(&["-a"]));
    printed(&mut claim);
    traces.kill().unwrap();
    finish(traces);
    let o = finish(claim).code(1);
    assert!(o.err.contains("what was recorded ends before its session does"), "{}", o.err);
    machine.nothing_to_claim();
    // Nobody had claimed it: what was on the disk is there.
    let mut traces = machine.boot();
    call(id, 2);
    let log = machine.path("var/lib/dtrace/anonymous/log");
    let text = || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).matches("call ").count();
    eventually("it is on the disk", crate::tool::LIMIT, || text() >= 2);
    traces.kill().unwrap();
    finish(traces);
    let o = machine.run(&["-a"]).code(1);
    assert_eq!(o.out, "begin call call ");
    assert!(o.err.contains("what was recorded ends before its session does"), "{}", o.err);
    machine.nothing_to_claim();
    nothing_new(&before);
    Pass
}

fn what_has_no_space_is_counted() -> Verdict {
    let machine = Machine::new("space");
    let id = NOBODY + 5;
    let calls = of_calls(id);
    machine.store(&[
        "-x",
        "anonsize=16k",
        "-qn",
        &format!("{calls} {{ printf(\"call\\n\"); @ = count(); }} END {{ printa(\"all %@d\\n\", @); }}"),
    ]);
    const ALL: usize = 5000;
    let traces = machine.boot();
    call(id, ALL as u32);
    signal(&traces, libc::SIGTERM);
    finish(traces).code(0);
    assert!(machine.path("var/lib/dtrace/anonymous/events").metadata().unwrap().len() <= 17 << 10);
    let o = machine.run(&["-ae"]).code(0);
    let dropped = |line: &str| {
        let (count, of) = line.strip_prefix("dtrace: ")?.split_once(' ')?;
        of.starts_with("drop").then(|| count.parse::<usize>().unwrap())
    };
    let (kept, lost) = (o.out.matches("call\n").count(), o.err.lines().filter_map(dropped).sum::<usize>());
    assert!(kept > 50 && lost > 0, "{kept} and {lost}");
    assert_eq!(kept + lost, ALL, "{}", o.err);
    assert!(o.out.contains(&format!("\nall {ALL}\n")), "{}", o.out);
    assert!(o.err.lines().all(|line| line.contains(" on CPU ")), "{}", o.err);
    Pass
}

fn what_ended_by_itself_can_be_claimed() -> Verdict {
    let machine = Machine::new("exit");
    machine.store(&["-qn", "BEGIN { trace(\"begin \"); exit(3); } END { trace(\"end\"); }"]);
    for word in ["-a", "-ae"] {
        finish(machine.boot()).code(3);
        let o = machine.run(&[word]).code(3);
        assert_eq!((o.out.trim(), o.err.as_str()), ("begin end", ""));
        machine.nothing_to_claim();
    }
    Pass
}

fn an_enabling_is_stored_replaced_and_removed() -> Verdict {
    let machine = Machine::new("stored");
    let file = machine.path("program.d");
    std::fs::write(&file, "BEGIN { trace($$1); trace($2); }").unwrap();
    let o = machine.run(&["-A"]).code(0);
    let (stored, unit) = ("etc/dtrace/anonymous.d/enabling", "etc/systemd/system/dtrace-anonymous.service");
    let (whole, whole_unit) = (machine.path(stored), machine.path(unit));
    assert_eq!(o.err, format!("dtrace: no anonymous enabling in {}\n", whole.display()));
    let saved = format!(
        "dtrace: saved anonymous enabling in {}\ndtrace: added the unit {}\ndtrace: reboot to enable changes\n",
        whole.display(),
        whole_unit.display()
    );
    let cleaned = format!("dtrace: cleaned up old anonymous enabling in {}\n", whole.display());
    let o = machine.run(&["-Aqs", file.to_str().unwrap(), "word", "7"]).code(0);
    assert_eq!((o.out.as_str(), o.err), ("", saved.clone()));
    let mode = |path: &PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&whole), mode(&whole.parent().unwrap().into()), mode(&whole_unit)),
        (0o600, 0o700, 0o644)
    );
    let text = std::fs::read_to_string(&whole_unit).unwrap();
    assert!(text.contains(&format!("ExecStart=\"{}\" --anonymous\n", binary().display())), "{text}");
    assert!(text.contains("Before=sysinit.target") && text.contains("DefaultDependencies=no"), "{text}");
    // The boot waits for no disk: another unit, which it does not wait for, knows that one.
    assert!(!text.contains("RequiresMountsFor"), "{text}");
    let saving = machine.path("etc/systemd/system/multi-user.target.wants/dtrace-anonymous-saved.service");
    let saves = std::fs::read_to_string(&saving).unwrap();
    assert!(saves.contains("RequiresMountsFor=/var/lib/dtrace") && !saves.contains("sysinit"), "{saves}");
    let command = format!("ExecStop=\"{}\" --anonymous-save\n", binary().display());
    assert!(saves.contains(&command), "{saves}");
    let link = machine.path("etc/systemd/system/sysinit.target.wants/dtrace-anonymous.service");
    assert_eq!(std::fs::read_to_string(link).unwrap(), text);
    // Operands are those of the enabling.
    let traces = machine.boot();
    assert_eq!(machine.run(&["-ae"]).code(0).out.trim(), "word7");
    finish(traces).code(0);
    let before = std::fs::read(&whole).unwrap();
    let o = machine.run(&["-A", "-n", "BEGIN { x = ; }"]).code(1);
    assert!(o.err.contains("syntax error"), "{}", o.err);
    assert_eq!(std::fs::read(&whole).unwrap(), before);
    let o = machine.run(&["-A", "-q", "-n", "BEGIN"]).code(0);
    assert_eq!(o.err, format!("{cleaned}{saved}"));
    let o = machine.run(&["-A"]).code(0);
    assert_eq!(o.err, format!("{cleaned}dtrace: cleaned up the unit {}\n", whole_unit.display()));
    assert!(!machine.has("etc/dtrace/anonymous.d") && !machine.has(unit));
    for target in ["sysinit", "multi-user"] {
        let wants = machine.path(&format!("etc/systemd/system/{target}.target.wants"));
        assert!(wants.read_dir().unwrap().next().is_none(), "{target}");
    }
    let o = machine.run(&["--anonymous"]).code(1);
    assert!(o.err.contains("is not there: store an enabling with dtrace -A"), "{}", o.err);
    Pass
}

fn what_a_boot_or_a_claim_cannot_do_is_refused() -> Verdict {
    let machine = Machine::new("refused");
    let refused = |words: &[&str], says: &str| {
        let o = machine.run(words).code(1);
        assert!(o.err.contains(says) && o.out.is_empty(), "{words:?}: {}", o.err);
        assert!(!machine.has("etc"), "{words:?}");
    };
    let store = |words: &[&str], says: &str| refused(&[&["-A", "-n", "BEGIN"], words].concat(), says);
    store(&["-c", "true"], "leave out -c and -p");
    store(&["-p", "1"], "leave out -c and -p");
    store(&["-a"], "leave out one of them");
    store(&["-e"], "leave out -e");
    store(&["-o", "x"], "give them to dtrace -a");
    store(&["--to", "x.json"], "give them to dtrace -a");
    store(&["--format", "json"], "give them to dtrace -a");
    store(&["--flame", "x.svg"], "give them to dtrace -a");
    store(&["--live"], "give them to dtrace -a");
    store(&["--replay", "x"], "leave out the options that read or write a file");
    store(&["-x", "listen=127.0.0.1:0"], "-x listen: there is no server at the boot");
    store(&["-C"], "there is no preprocessor at the boot");
    store(&["-L", "/tmp"], "libraries are not stored");
    store(&["-x", "deadmaninterval=0"], "nobody could end");
    store(
        &["-n", "BEGIN { system(\"true\"); }"],
        "could not enable tracing: Destructive actions not allowed",
    );
    store(&["-n", "nobody:::"], "does not match any probes");
    refused(
        &["-a", "-n", "BEGIN"],
        "could not enable tracing: can't claim anonymous state and enable probes",
    );
    refused(&["-a", "-c", "true"], "leave out -c and -p");
    refused(&["-a", "-l"], "-a claims what was traced since the boot");
    refused(&["-a", "--events", "x"], "-a claims what was traced since the boot");
    refused(
        &["-x", "anonsize=1m", "-n", "BEGIN"],
        "the options anonsize and initramfs are of anonymous tracing",
    );
    refused(&["--anonymous", "-n", "BEGIN"], "leave out -a and the programs");
    let o = machine.run(&["-Al"]);
    assert!(o.err.contains("only one of the [-AGhlV] options"), "{}", o.err);
    machine.run(&["-A", "-w", "-n", "BEGIN { system(\"true\"); }"]).code(0);
    Pass
}

fn what_others_could_have_written_is_not_traced_or_printed() -> Verdict {
    let machine = Machine::new("hostile");
    machine.store(&["-qn", "BEGIN { trace(\"begin\"); }"]);
    let (dir, file) = ("etc/dtrace/anonymous.d", "etc/dtrace/anonymous.d/enabling");
    let mode = |below: &str, mode: u32| {
        std::fs::set_permissions(machine.path(below), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |says: &str| {
        let o = machine.run(&["--anonymous"]).code(1);
        assert!(o.err.contains(says), "{}", o.err);
        // It is said to who claims it, once.
        let o = machine.run(&["-a"]).code(1);
        assert!(o.err.contains(says) && o.err.ends_with(NOTHING), "{}", o.err);
        machine.nothing_to_claim();
    };
    mode(dir, 0o770);
    refused("others can write it (mode 770)");
    mode(dir, 0o700);
    mode(file, 0o666);
    refused("others can write it (mode 666)");
    mode(file, 0o600);
    let bytes = std::fs::read(machine.path(file)).unwrap();
    std::fs::write(machine.path(file), &bytes[..bytes.len() - 2]).unwrap();
    refused("is damaged: byte ");
    std::fs::rename(machine.path(file), machine.path("other")).unwrap();
    symlink(machine.path("other"), machine.path(file)).unwrap();
    refused("it is no regular file");
    // What is claimed, too.
    std::fs::remove_file(machine.path(file)).unwrap();
    machine.store(&["-qn", "BEGIN { trace(\"begin\"); }"]);
    let traces = machine.boot();
    mode("run/dtrace/anonymous", 0o777);
    let o = machine.run(&["-a"]).code(1);
    assert!(o.err.contains("others can write it (mode 777)") && o.out.is_empty(), "{}", o.err);
    mode("run/dtrace/anonymous", 0o700);
    signal(&traces, libc::SIGTERM);
    finish(traces).code(0);
    let events = EVENTS;
    mode(events, 0o602);
    let o = machine.run(&["-a"]).code(1);
    assert!(o.err.contains("others can write it (mode 602)") && o.out.is_empty(), "{}", o.err);
    mode(events, 0o600);
    std::fs::write(machine.path(events), "text that is no stream of events".repeat(8)).unwrap();
    let o = machine.run(&["-a"]).code(1);
    assert!(o.err.contains("events: it is no recording of dtrace"), "{}", o.err);
    Pass
}

fn what_does_not_start_at_the_boot_is_said_to_who_claims_it() -> Verdict {
    let machine = Machine::new("fails");
    machine.store(&["-qn", "BEGIN { trace(\"begin\"); }"]);
    let file = machine.path("etc/dtrace/anonymous.d/enabling");
    // The kernel that boots has no such probe.
    let text = std::fs::read_to_string(&file).unwrap().replace("BEGIN", "NOONE");
    std::fs::write(&file, text).unwrap();
    let said = machine.run(&["--anonymous"]).code(1).err;
    assert!(said.contains("NOONE"), "{said}");
    assert!(!machine.has("run/dtrace/anonymous/socket") && !machine.has("run/dtrace/anonymous/log"));
    let o = machine.run(&["-a"]).code(1);
    assert_eq!((o.out.as_str(), o.err), ("", format!("{said}{NOTHING}")));
    machine.nothing_to_claim();
    Pass
}
