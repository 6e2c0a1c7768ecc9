//! The kernel's types and what hangs on the current thread.

use crate::Verdict::{self, Pass, Skip};
use crate::tool::{dtrace, workload};

tests! {
    the_current_thread_is_who_the_built_ins_say
}

/// Why this machine cannot say what its kernel's types are, if so.
fn no_btf() -> Option<Verdict> {
    let btf = "/sys/kernel/btf/vmlinux";
    std::fs::metadata(btf).is_err().then(|| Skip(format!("no {btf}")))
}

fn the_current_thread_is_who_the_built_ins_say() -> Verdict {
    if let Some(skip) = no_btf() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 100),
        "-n",
        "syscall::getppid:entry /pid == $target/ { \
           n++; same += curthread->tgid == $target; \
           parent += curthread->real_parent->tgid == curthread->group_leader->real_parent->tgid; \
           comm += stringof(curthread->comm) == execname; leader += curthread->group_leader == curthread; \
           mm += curthread->mm == curthread->active_mm; \
           user += curthread->cred->uid.val == uid && curthread->cred->gid.val == gid; } \
         END { printf(\"%d %d %d %d %d %d %d\", n, same, parent, comm, leader, mm, user); }",
    ])
    .code(0);
    assert_eq!(o.out, "100 100 100 100 100 100 100\n", "{o:?}");
    Pass
}
