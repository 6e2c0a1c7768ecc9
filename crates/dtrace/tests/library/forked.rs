//! A program that forks while it has sessions.

use std::collections::BTreeSet;
use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dtrace::provider::bpf_sys::{ObjectKind, ids};
use dtrace::{Error, Options, Session, System, Text};
use testing::dir::Dir;

use crate::tool::own_program;
use crate::{Test, Verdict};

pub(crate) const TESTS: &[Test] = &[
    ("forked::a_child_does_not_keep_probes_that_its_parent_closes", closed),
    ("forked::a_child_cannot_use_a_session_and_dropping_it_there_changes_nothing", unused),
];

fn session(script: &str, command: Option<&str>) -> Session<Text<Vec<u8>>> {
    dtrace::close_in_forked_children();
    let options = Options { quiet: true, ..Options::default() };
    let builder = Session::builder(&System::live()).program(script).options(options);
    let builder = command.into_iter().fold(builder, |builder, command| builder.command(command));
    builder.start(Text::new(Vec::new())).unwrap()
}

/// Forks a child that ends with what `body` returns.
fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child does what is tested, and ends without the handlers of this program.
    match unsafe { libc::fork() } {
        0 => {
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(99);
            // SAFETY: as above.
            unsafe { libc::_exit(status) }
        }
        child if child > 0 => child,
        _ => panic!("{}", std::io::Error::last_os_error()),
    }
}

fn status_of(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours, for which nobody else waits.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WEXITSTATUS(status) + 256 * libc::WTERMSIG(status)
}

/// What the kernel numbers, and how `/proc` names the number of an open one.
const KINDS: [(ObjectKind, &str); 2] = [(ObjectKind::Prog, "prog_id:"), (ObjectKind::Map, "map_id:")];

/// The programs and maps that this process has open, by their place in [`KINDS`] and their id. Other
/// processes make others.
fn open() -> BTreeSet<(usize, u32)> {
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
    let id = |text: String| {
        let number = |word| text.lines().find_map(|l| l.strip_prefix(word)?.trim().parse().ok());
        KINDS.iter().enumerate().find_map(|(kind, (_, word))| Some((kind, number(word)?)))
    };
    texts.filter_map(id).collect()
}

/// Those of the whole machine.
fn there() -> BTreeSet<(usize, u32)> {
    let ids = |(number, (kind, _)): (usize, &(ObjectKind, &str))| {
        ids(*kind).unwrap().into_iter().map(move |id| (number, id))
    };
    KINDS.iter().enumerate().flat_map(ids).collect()
}

fn closed() -> Verdict {
    // What this process has open beside, as the trial of facilities.
    let before = open();
    let traced = session("syscall::getppid:entry { @ = count(); } profile-97 { @p = count(); }", None);
    let own: BTreeSet<_> = open().difference(&before).copied().collect();
    for kind in [0, 1] {
        assert!(own.iter().any(|(of, _)| *of == kind), "{own:?}");
    }
    let (mut wait, release) = std::io::pipe().unwrap();
    let other_end = release.as_raw_fd();
    let child = fork(|| {
        // SAFETY: the child's copy of the end that the parent closes.
        unsafe { libc::close(other_end) };
        hold(&mut wait)
    });
    drop(traced);
    // The kernel frees them a while after the last descriptor was closed.
    let start = Instant::now();
    loop {
        let there = there();
        let kept: Vec<_> = own.intersection(&there).collect();
        if kept.is_empty() {
            break;
        }
        assert!(start.elapsed() < testing::HANG_LIMIT, "{kept:?} are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    // It lived meanwhile: it waits for this.
    // SAFETY: asks for nothing but whether the process is there.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) }, 0);
    drop(release);
    assert_eq!(status_of(child), 0);
    Verdict::Pass
}

/// Waits until the other end is closed.
fn hold(wait: &mut PipeReader) -> i32 {
    let mut byte = [0];
    i32::from(wait.read(&mut byte).is_err())
}

fn unused() -> Verdict {
    let dir = Dir::new("forked");
    let (stop, counts) = (dir.join("stop"), dir.join("counts"));
    let command =
        format!("{} --workload until 1 {} {}", own_program().display(), stop.display(), counts.display());
    let script = "syscall::getppid:entry /pid == $target/ { @ = count(); @s[ustack(1)] = count(); }";
    let mut traced = Some(session(script, Some(&command)));
    let child = fork(|| {
        let mut copy = traced.take().unwrap();
        let refused = [
            matches!(copy.ready(), Err(Error::Forked)),
            matches!(copy.finish(), Err(Error::Forked)),
            matches!(copy.deliver_aggregations(), Err(Error::Forked)),
            matches!(copy.stopper(), Err(Error::Forked)),
            copy.descriptors().is_empty(),
        ];
        copy.abort();
        drop(copy);
        i32::from(refused.contains(&false))
    });
    assert_eq!(status_of(child), 0);
    // Another gives the sink back.
    let child = fork(|| i32::from(!traced.take().unwrap().into_sink().into_output().is_empty()));
    assert_eq!(status_of(child), 0);
    let mut traced = traced.take().unwrap();
    std::fs::write(&stop, "").unwrap();
    traced.run().unwrap();
    let text = String::from_utf8(traced.into_sink().into_output()).unwrap();
    let calls = std::fs::read_to_string(&counts).unwrap();
    assert_eq!(text.split_whitespace().next(), Some(calls.trim()), "{text}");
    Verdict::Pass
}
