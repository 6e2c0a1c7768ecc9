//! `--live`: aggregations in a terminal, as somebody sees them who types keys.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use testing::{HANG_LIMIT, eventually};

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{binary, dtrace, pseudo_terminal, signal};

tests! {
    a_table_has_the_numbers_and_keys_change_what_is_shown
    a_key_that_is_chosen_narrows_the_question
    a_terminal_is_left_as_it_was_after_every_end
    a_terminal_that_goes_takes_no_results_with_it
    what_is_no_terminal_and_other_formats_are_refused
}

const ROWS: u16 = 24;
const COLUMNS: u16 = 100;

fn number(of_cells: u16) -> NonZero<u16> {
    NonZero::new(of_cells).unwrap()
}

/// A session in a terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// The session's end of the terminal, which is asked for its settings.
    theirs: OwnedFd,
    before: String,
    /// Nobody reads any more.
    closed: Arc<AtomicBool>,
}

fn settings(terminal: &OwnedFd) -> String {
    // SAFETY: the C library fills the struct.
    let settings = unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings), 0);
        settings
    };
    let libc::termios { c_iflag, c_oflag, c_cflag, c_lflag, c_cc, .. } = settings;
    format!("{c_iflag:x} {c_oflag:x} {c_cflag:x} {c_lflag:x} {c_cc:?}")
}

impl Terminal {
    fn start(words: &[&str]) -> Option<Terminal> {
        let (ours, theirs) = pseudo_terminal(ROWS, COLUMNS)?;
        let before = settings(&theirs);
        let of_child = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(binary());
        command.args(words).env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        command.stdin(of_child()).stdout(of_child()).stderr(of_child());
        // SAFETY: two system calls: the terminal is that of its session, so `^C` is a signal.
        let child = unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0);
                Ok(())
            });
            command.spawn().unwrap()
        };
        let screen = Arc::new(Mutex::new(vt100::Parser::new(number(ROWS), number(COLUMNS), 0)));
        let (shown, mut reader) = (Arc::clone(&screen), ours.try_clone().unwrap());
        let closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closed);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while !stop.load(Ordering::SeqCst) {
                let mut polled = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid entry.
                if unsafe { libc::poll(&raw mut polled, 1, 20) } == 1 {
                    let Ok(length @ 1..) = reader.read(&mut part) else { break };
                    shown.lock().unwrap().process(&part[..length]);
                }
            }
        });
        Some(Terminal { child, keyboard: ours, screen, theirs, before, closed })
    }

    fn contents(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows something that is right.
    #[track_caller]
    fn shows(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        eventually(what, HANG_LIMIT, || {
            let shown = self.contents();
            if is_right(&shown) { Ok(shown) } else { Err(format!("\n{shown}")) }
        })
    }

    /// Waits until a line has all of these words, in order.
    #[track_caller]
    fn has(&self, words: &[&str]) -> String {
        self.shows(&format!("{words:?}"), |shown| shown.lines().any(|line| in_order(line, words)))
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end and what the terminal has to show then, and gives the status.
    #[track_caller]
    fn ends(mut self, what: &str, is_right: impl Fn(&str) -> bool) -> Option<i32> {
        let status = eventually("the end", HANG_LIMIT, || self.child.try_wait().unwrap());
        // What it wrote last is on its way.
        self.shows(what, is_right);
        let screen = self.screen.lock().unwrap();
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
        drop(screen);
        assert_eq!(settings(&self.theirs), self.before);
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn in_order(line: &str, words: &[&str]) -> bool {
    let mut rest = line;
    words.iter().all(|word| match rest.find(word) {
        Some(at) => {
            rest = &rest[at + word.len()..];
            true
        }
        None => false,
    })
}

/// Calls of this process, which the session counts.
fn call(count: u32) {
    for n in 0..count {
        // SAFETY: a system call without arguments; the number is for the tracer.
        unsafe { libc::syscall(libc::SYS_getppid, n) };
    }
}

const SKIP: &str = "no pseudo-terminal";

fn a_table_has_the_numbers_and_keys_change_what_is_shown() -> Verdict {
    let pid = std::process::id().to_string();
    let script = "syscall::getppid:entry /pid == $1/ { @calls[arg0 % 3, execname] = count(); @sizes = quantize(1000); \
                  calls++; } \
                  syscall::getppid:entry /pid == $1 && calls == 1/ { printf(\"printed\\n\"); }";
    let started = Terminal::start(&["--live", "-q", "-x", "every=100ms", "-n", script, &pid]);
    let Some(mut t) = started else { return Skip(SKIP.into()) };
    t.has(&["0 of 0 keys"]);
    call(1000);
    // The greatest first.
    let shown = t.shows("three keys", |shown| {
        let lines: Vec<&str> = shown.lines().collect();
        lines.len() > 4 && in_order(lines[2], &["0", "334"]) && in_order(lines[3], &["1", "333"])
    });
    assert!(
        in_order(
            shown.lines().next().unwrap(),
            &["@calls[arg0 % 3, execname] = count()", "1 of 2", "3 of 3 keys"]
        ),
        "{shown}"
    );
    assert!(
        in_order(shown.lines().nth(1).unwrap(), &["arg0 % 3", "execname", "count▼", "in ", " s"]),
        "{shown}"
    );
    // By the key, the greatest last, and then first.
    t.types("\x1b[D\x1b[D");
    t.has(&["arg0 % 3▲", "execname", "count "]);
    t.types("r");
    t.shows("the greatest key first", |shown| {
        shown.lines().nth(2).is_some_and(|line| in_order(line, &["2", "333"]))
    });
    // A filter, and everything again.
    t.types("/e2e\r");
    t.has(&["3 of 3 keys", "/e2e"]);
    t.types("/nobody\r");
    t.has(&["0 of 3 keys", "/e2enobody"]);
    t.types("\x1b");
    t.shows("no filter", |shown| {
        shown.lines().next().is_some_and(|line| in_order(line, &["3 of 3 keys"]) && !line.contains('/'))
    });
    // What is paused stays; what comes meanwhile is there afterwards.
    t.types("p");
    t.has(&["[paused]"]);
    call(3);
    t.types("\t");
    t.has(&["@sizes = quantize()", "2 of 2", "[paused]"]);
    t.has(&["512 |█", " 1000"]);
    t.types("p");
    t.has(&["512 |█", " 1003"]);
    t.types("d");
    t.has(&["syscall::getppid:entry", "count()"]);
    t.types("t");
    t.has(&["printed"]);
    t.types("?");
    t.has(&["Enter", "only what has the key"]);
    // The screen is drawn in its new size.
    t.types("?");
    let size = libc::winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
    t.screen.lock().unwrap().screen_mut().set_size(number(12), number(60));
    // SAFETY: the kernel reads the size.
    assert_eq!(unsafe { libc::ioctl(t.theirs.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    t.shows("the keys in the last line", |shown| {
        shown.lines().count() == 12 && shown.lines().nth(11).is_some_and(|line| line.starts_with("? help"))
    });
    t.types("q");
    // At the end everything is printed, as without a screen.
    let bar = "|@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
    let status = t.ends("what is printed", |shown| {
        shown.lines().any(|line| line.split_whitespace().eq(["512", bar, "1003"]))
    });
    assert_eq!(status, Some(0));
    Pass
}

fn a_key_that_is_chosen_narrows_the_question() -> Verdict {
    let pid = std::process::id().to_string();
    let script = "syscall::getppid:entry /pid == $1/ { @[execname, arg0] = count(); }";
    let started = Terminal::start(&["--live", "-q", "-x", "every=100ms", "-n", script, &pid]);
    let Some(mut t) = started else { return Skip(SKIP.into()) };
    t.has(&["0 of 0 keys"]);
    // Nothing is chosen.
    call(3);
    t.has(&["3 of 3 keys"]);
    t.types("\r");
    t.has(&["choose a row with the arrows first"]);
    t.types("\x7f");
    t.has(&["this is the question as it was asked"]);
    // The second row by its key, which is 1.
    t.types("\x1b[C\x1b[C\x1b[C\x1b[B\x1b[B\r");
    t.has(&["0 of 0 keys", "narrowed 1×"]);
    t.types("d");
    t.has(&["/(pid == $1) && (execname) == \"", "(arg0) == 1/"]);
    t.types("d");
    call(3);
    t.shows("the one key, once", |shown| {
        let lines: Vec<&str> = shown.lines().collect();
        in_order(lines[0], &["1 of 1 keys", "narrowed 1×"])
            && lines.len() > 2
            && in_order(lines[2], &["1", "1"])
    });
    t.types("\x7f");
    t.shows("the first question", |shown| shown.contains("0 of 0 keys") && !shown.contains("narrowed"));
    call(2);
    t.has(&["2 of 2 keys"]);
    t.types("q");
    let status = t.ends("two keys", |shown| shown.lines().filter(|line| !line.is_empty()).count() == 2);
    assert_eq!(status, Some(0));
    // A command would be executed again.
    let words = "sleep 1000";
    let started = Terminal::start(&[
        "--live",
        "-q",
        "-x",
        "every=100ms",
        "-c",
        words,
        "-n",
        "syscall:::entry /pid == $target/ { @[probefunc] = count(); }",
    ]);
    let Some(mut t) = started else { return Skip(SKIP.into()) };
    t.has(&["openat"]);
    t.types("\x1b[B\r");
    t.has(&["the command of -c would start again"]);
    t.types("q");
    assert_eq!(t.ends("what is printed", |shown| shown.contains("openat")), Some(0));
    Pass
}

fn a_terminal_is_left_as_it_was_after_every_end() -> Verdict {
    let script = "tick-10ms { @[\"tick\"] = count(); } END { printf(\"the end\\n\"); }";
    let words = ["--live", "-q", "-x", "every=50ms", "-n", script];
    type End = (&'static str, fn(&mut Terminal));
    let ends: [End; 3] = [
        ("^C", |t| t.types("\x03")),
        ("SIGTERM", |t| signal(&t.child, libc::SIGTERM)),
        ("the terminal's end", |t| signal(&t.child, libc::SIGHUP)),
    ];
    for (name, end) in ends {
        let Some(mut t) = Terminal::start(&words) else { return Skip(SKIP.into()) };
        t.has(&["tick"]);
        end(&mut t);
        assert_eq!(t.ends(name, |shown| shown.contains("the end")), Some(0));
    }
    // What ends a process at once takes its results, and not the terminal.
    for number in [libc::SIGQUIT, libc::SIGABRT, libc::SIGSEGV, libc::SIGUSR1, libc::SIGXCPU] {
        let Some(t) = Terminal::start(&words) else { return Skip(SKIP.into()) };
        t.has(&["tick"]);
        signal(&t.child, number);
        assert_eq!(t.ends(&format!("signal {number}"), |_| true), None);
    }
    // The script ends the session, with messages that the screen would have covered.
    let script = "tick-100ms { @ = count(); n++; } tick-10ms /n == 1/ { trace(*(int *)0); n++; } tick-100ms /n > 5/ { exit(3); }";
    let Some(t) = Terminal::start(&["--live", "-q", "-x", "every=50ms", "-n", script]) else {
        return Skip(SKIP.into());
    };
    assert_eq!(t.ends("the message", |shown| shown.contains("invalid address (0x0)")), Some(3));
    Pass
}

fn a_terminal_that_goes_takes_no_results_with_it() -> Verdict {
    let dir = testing::dir::Dir::new("live-gone");
    let file = dir.join("out").into_os_string().into_string().unwrap();
    let script = "tick-10ms { @[\"tick\"] = count(); } END { printf(\"the end\\n\"); }";
    let words = ["--live", "-q", "-x", "every=50ms", "-o", &file, "-n", script];
    let Some(mut t) = Terminal::start(&words) else { return Skip(SKIP.into()) };
    t.has(&["tick"]);
    // What is no key stops nothing.
    t.keyboard.write_all(b"\xc3\x1b[\x1bO\xff\0").unwrap();
    t.types("d");
    t.has(&["the end"]);
    t.closed.store(true, Ordering::SeqCst);
    t.keyboard = File::open("/dev/null").unwrap();
    let status = eventually("the end", HANG_LIMIT, || t.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("the end") && text.contains("tick"), "{text}");
    Pass
}

fn what_is_no_terminal_and_other_formats_are_refused() -> Verdict {
    let o = dtrace(&["--live", "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("--live needs a terminal"), "{}", o.err);
    let o = dtrace(&["--live", "--format", "json", "-n", "BEGIN { exit(0); }"]).code(1);
    assert!(o.err.contains("write other formats to files"), "{}", o.err);
    dtrace(&["--live", "-e", "-n", "BEGIN { exit(0); }"]).code(0);
    Pass
}
