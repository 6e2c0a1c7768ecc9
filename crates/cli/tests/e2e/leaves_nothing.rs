//! Nothing of a session stays in the kernel, however the session ends.

use std::io::Read;

use testing::eventually;

use crate::Verdict::{self, Pass};
use crate::tool::{LIMIT, dtrace, finish, printed, signal, start};

tests! {
    nothing_is_left_after_exit nothing_is_left_after_an_error nothing_is_left_after_sigkill
    nothing_is_left_after_sigkill_with_every_tracepoint nothing_is_left_after_sigkill_with_a_target
}

/// Ids of all programs, maps and links in the kernel.
pub(crate) fn ids() -> [Vec<u32>; 3] {
    use bpf_sys::{ObjectKind, ids};
    [ObjectKind::Prog, ObjectKind::Map, ObjectKind::Link].map(|k| ids(k).unwrap())
}

/// Objects that other tools hold open, from their `fdinfo`. A target of ours does not count,
/// because it must not inherit any, and neither does a process that closes them for a tracer.
fn others() -> String {
    let mut held = String::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let comm = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if !matches!(comm.trim(), "sleep" | "dtrace-attach" | "dtrace-closer") {
            let files = std::fs::read_dir(process.path().join("fdinfo")).into_iter().flatten().flatten();
            files.for_each(|f| held += &std::fs::read_to_string(f.path()).unwrap_or_default());
        }
    }
    held
}

/// Waits until all objects that are new since `before` are gone, except those of other tools. Fails
/// if an object stays.
#[track_caller]
pub(crate) fn nothing_new(before: &[Vec<u32>; 3]) {
    let new = |now: &[Vec<u32>; 3], seen: &[Vec<u32>; 3]| -> Vec<Vec<u32>> {
        let fresh = |(n, b): (&Vec<u32>, &Vec<u32>)| n.iter().filter(|i| !b.contains(i)).copied().collect();
        now.iter().zip(seen).map(fresh).collect()
    };
    // Objects created from now on are not ours, because the tracer is dead.
    let suspects = new(&ids(), before);
    eventually("a kernel without our programs, maps and links", LIMIT, || {
        let mut left = new(&ids(), before);
        left.iter_mut().zip(&suspects).for_each(|(l, s)| l.retain(|id| s.contains(id)));
        if left.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let others = others();
        for (ids, kind) in left.iter_mut().zip(["prog_id", "map_id", "link_id"]) {
            ids.retain(|id| !others.contains(&format!("{kind}:\t{id}\n")));
        }
        if left.iter().all(Vec::is_empty) { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// The first line names the target.
const EVERYTHING: &str = "BEGIN { printf(\"%d\\n\", $target); } syscall::: { @[execname, probefunc] = count(); self->x[arg0] = timestamp; } \
                          profile-97hz { @s[stack(), ustack()] = count(); } tick-10ms { trace(1); }";

fn nothing_is_left_after_exit() -> Verdict {
    let before = ids();
    dtrace(&["-q", "-o", "/dev/null", "-n", EVERYTHING, "-n", "tick-300ms { exit(0); }"]).code(0);
    nothing_new(&before);
    Pass
}

fn nothing_is_left_after_an_error() -> Verdict {
    let before = ids();
    dtrace(&["-n", "BEGIN { x = ; }"]).code(1);
    dtrace(&["-c", "/nonexistent/x", "-n", EVERYTHING]).code(1);
    nothing_new(&before);
    Pass
}

fn nothing_is_left_after_sigkill() -> Verdict {
    let before = ids();
    let mut child = start(&["-q", "-n", EVERYTHING]);
    printed(&mut child);
    signal(&child, libc::SIGKILL);
    let _ = finish(child);
    nothing_new(&before);
    Pass
}

/// Two programs on each of a thousand tracepoints. The kernel is slow at detaching the first of
/// two.
fn nothing_is_left_after_sigkill_with_every_tracepoint() -> Verdict {
    let before = ids();
    let script = "BEGIN { printf(\"begun\\n\"); } rawtp:::, sdt:::, syscall::: { @[probeprov] = count(); }";
    let mut child = start(&["-q", "-Zn", script]);
    printed(&mut child);
    signal(&child, libc::SIGKILL);
    let _ = finish(child);
    nothing_new(&before);
    Pass
}

fn nothing_is_left_after_sigkill_with_a_target() -> Verdict {
    let before = ids();
    let mut child = start(&["-q", "-c", "sleep 1000", "-n", EVERYTHING]);
    printed(&mut child);
    let mut text = [0; 16];
    let length = child.stdout.as_mut().unwrap().read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let target: i32 = text.lines().next().and_then(|pid| pid.parse().ok()).unwrap();
    // Before it runs, a target ends with its tracer.
    eventually("a target that runs", LIMIT, || {
        std::fs::read_to_string(format!("/proc/{target}/stat")).unwrap_or_default().contains(") S ")
    });
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    nothing_new(&before);
    // The target continues to run.
    // SAFETY: a process whose parent is init.
    assert_eq!(unsafe { libc::kill(target, libc::SIGKILL) }, 0, "{text}");
    Pass
}
