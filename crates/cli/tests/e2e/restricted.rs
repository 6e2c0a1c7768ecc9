//! Machines that lack a facility: types, tracefs, memory, reads of kernel memory.
//!
//! The facility is hidden from the traced run alone, in a mount namespace or memory cgroup of its
//! own. A lockdown cannot be undone, so its test needs a kernel that was booted with it. The VM
//! tier boots one.

use std::fs;

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{Output, dtrace, under, workload};

tests! {
    system_calls_are_traced_without_kernel_types system_calls_are_traced_without_a_tracefs_mount
    buffers_shrink_when_memory_is_limited a_locked_down_kernel_rejects_reads_of_kernel_memory
}

/// Runs `dtrace` in a mount namespace of its own, after a shell command. The error says why that is
/// impossible.
fn hidden(prepare: &str, words: &[&str]) -> Result<Output, String> {
    let script = format!("{{ {prepare}; }} || exit 99; exec \"$0\" \"$@\"");
    let unshare = ["unshare", "--mount", "sh", "-c", &script];
    let o = under(&unshare, words).ok_or("no command unshare")?;
    if o.code == Some(99) || o.err.contains("unshare:") { Err(o.err.trim().to_string()) } else { Ok(o) }
}

fn system_calls_are_traced_without_kernel_types() -> Verdict {
    const HIDE: &str = "mount --bind /dev/null /sys/kernel/btf/vmlinux";
    let target = workload("open", 30);
    let script = "syscall::openat:entry /pid == $target && execname != \"x\"/ { self->p = copyinstr(arg1); } \
                  syscall::openat:return /self->p != NULL && errno/ { @[self->p, errno] = count(); }";
    let o = match hidden(HIDE, &["-q", "-c", &target, "-n", script]) {
        Ok(o) => o.code(0),
        Err(why) => return Skip(why),
    };
    assert_eq!(o.value_of("/etc/hostname-that-is-not-there"), 30, "{o:?}");
    let Ok(o) = hidden(HIDE, &["-n", "BEGIN { trace(ppid); exit(0); }"]) else { return Pass };
    let o = o.code(1);
    assert!(o.err.contains("ppid needs the kernel's types"), "{o:?}");
    assert!(o.err.contains("1:15"), "{o:?}");
    Pass
}

fn system_calls_are_traced_without_a_tracefs_mount() -> Verdict {
    let hide =
        "for d in /sys/kernel/tracing /sys/kernel/debug; do ! [ -d $d ] || mount -t tmpfs none $d; done";
    let script = "syscall::getppid:entry /pid == $target/ { @ = count(); } profile-97hz { @p = count(); }";
    match hidden(hide, &["-q", "-c", &workload("getppid", 500), "-n", script]) {
        Ok(o) => assert!(o.code(0).out.contains(" 500\n")),
        Err(why) => return Skip(why),
    }
    Pass
}

fn buffers_shrink_when_memory_is_limited() -> Verdict {
    const GROUP: &str = "/sys/fs/cgroup/dtrace-e2e";
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if !controllers.contains("memory") {
        return Skip("no memory controller of cgroup v2 here".into());
    }
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    let made = fs::create_dir(GROUP).and_then(|()| fs::write(format!("{GROUP}/memory.max"), "24M"));
    if made.is_err() {
        let _ = fs::remove_dir(GROUP);
        return Skip("no memory cgroup can be made here".into());
    }
    let enter = format!("echo $$ >{GROUP}/cgroup.procs");
    let script = "syscall::getppid:entry { trace(1); } tick-50ms { exit(0); }";
    let small = hidden(&enter, &["-b", "64m", "-n", script]);
    let manual = hidden(&enter, &["-b", "64m", "-x", "bufresize=manual", "-n", script]);
    let _ = fs::remove_dir(GROUP);
    match (small, manual) {
        (Ok(small), Ok(manual)) => {
            assert!(small.code(0).err.contains("buffer size lowered to"));
            assert!(manual.code(1).err.contains("Cannot allocate memory"));
            Pass
        }
        (Err(why), _) | (_, Err(why)) => Skip(why),
    }
}

fn a_locked_down_kernel_rejects_reads_of_kernel_memory() -> Verdict {
    let state = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if !state.contains("[confidentiality]") {
        return Skip("this kernel is not locked down".into());
    }
    let target = workload("open", 30);
    let script = "syscall::openat:entry /pid == $target/ { @[copyinstr(arg1), ppid == $pid] = count(); }";
    let o = dtrace(&["-q", "-c", &target, "-n", script]).code(0);
    assert_eq!(o.value_of("/etc/hostname-that-is-not-there"), 30, "{o:?}");
    let o = dtrace(&["-n", "BEGIN { trace(stringof((char *)0xffffffff81000000)); exit(0); }"]).code(1);
    assert!(o.err.contains("locked down (confidentiality)"), "{o:?}");
    assert!(!o.err.contains("a fault of dtrace"), "{o:?}");
    Pass
}
