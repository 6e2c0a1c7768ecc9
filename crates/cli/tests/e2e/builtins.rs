//! Built-in variables, compared with the workload or with other values of the same firing.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_clock;
use crate::tool::{dtrace, workload};

tests! {
    uregs_are_the_registers_of_the_calling_process uregs_of_a_kernel_thread_fault
    caller_is_the_second_frame_of_the_stack stackdepth_is_the_number_of_printed_frames
    ipl_is_the_context_level_of_the_probe threadname_is_the_name_of_the_thread
    zonename_is_the_name_of_the_container ids_and_cpu_are_those_of_the_firing
    built_ins_that_linux_lacks_are_rejected
}

const GETPPID: i64 = libc::SYS_getppid;

fn uregs_are_the_registers_of_the_calling_process() -> Verdict {
    // row builtin.uregs
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 40),
        "-n",
        &format!(
            "syscall::getppid:entry /pid == $target && uregs[R_ERR] == {GETPPID} && uregs[R_RAX] == -38 && uregs[R_CS] == 0x33 \
             && (uregs[R_SS] & 3) == 3 && uregs[R_PC] > 0 && uregs[R_PC] >> 47 == 0 && uregs[R_SP] >> 47 == 0 && uregs[R_DS] == 0/ \
             {{ @ = count(); }}"
        ),
    ])
    .code(0);
    assert_eq!(o.last_number(), 40, "{o:?}");
    // rdi is the first argument. rip is the address behind the instruction, which is also the
    // stack's first frame.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("badclose", 30),
        "-n",
        "syscall::close:entry /pid == $target && arg0 == 0x7fff0001/ \
         { @same[uregs[R_RDI] == arg0] = count(); @[uaddr(uregs[R_PC])] = count(); @u[ustack(1)] = count(); }",
    ])
    .code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(words[..2], ["1", "30"], "{o:?}");
    assert_eq!(words[2], words[4], "{o:?}");
    Pass
}

fn uregs_of_a_kernel_thread_fault() -> Verdict {
    // An idle thread, or a child of the thread that makes the others: one of them is switched off
    // all the time.
    let switch = "rawtp:sched::sched_switch /pid == 0 || ppid == 2/";
    let script = format!(
        "{switch} {{ n++; }} {switch} {{ x = uregs[R_R0]; bad++; }} {switch} {{ exit(0); }} \
         END {{ printf(\"%d %d\\n\", n > 0, bad); }}"
    );
    let o = dtrace(&["-qn", &script]).code(0);
    assert_eq!(o.out, "1 0\n\n", "{o:?}");
    assert!(o.err.contains("invalid address (0x0) in action #1"), "{o:?}");
    Pass
}

fn caller_is_the_second_frame_of_the_stack() -> Verdict {
    // row builtin.caller, builtin.ucaller
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 1),
        "-n",
        "syscall::getppid:entry /pid == $target/ { stack(2); sym(caller); ustack(2); uaddr(ucaller); }",
    ])
    .code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    // The C library keeps no frame pointers, so the user's second frame may have the address 0,
    // which ends a stack.
    let (second, caller, user, ucaller) = match words[..] {
        [_, second, caller, _, user, ucaller] => (second, caller, user, ucaller),
        [_, second, caller, _, ucaller] => (second, caller, "0x0", ucaller),
        _ => panic!("{o:?}"),
    };
    let name = |frame: &str| frame.split('+').next().unwrap_or("").to_string();
    assert_eq!(name(second), caller, "{o:?}");
    assert_eq!(user, ucaller, "{o:?}");
    // The tracer's own frames are not part of a stack.
    assert!(!o.out.contains("bpf"), "{o:?}");
    Pass
}

fn stackdepth_is_the_number_of_printed_frames() -> Verdict {
    // row builtin.stackdepth, builtin.ustackdepth
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 1),
        "-n",
        "syscall::getppid:entry /pid == $target/ { printf(\"%d %d\", stackdepth, ustackdepth); stack(100); printf(\"--\"); ustack(100); }",
    ])
    .code(0);
    let (kernel, user) = o.out.split_once("--").unwrap();
    let mut lines = kernel.lines();
    let first: Vec<usize> =
        lines.next().unwrap_or("").split_whitespace().map(|w| w.parse().unwrap()).collect();
    let count = |text: &str| text.lines().filter(|l| l.starts_with("   ")).count();
    assert_eq!(first[0], count(kernel), "{o:?}");
    // The last frame may have the address 0, where a program keeps no frame pointers, and is not
    // printed.
    assert!(first[1] == count(user) || first[1] == count(user) + 1, "{o:?}");
    assert!(first[0] > 1 && first[1] > 0, "{o:?}");
    Pass
}

fn ipl_is_the_context_level_of_the_probe() -> Verdict {
    // row builtin.ipl
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 20),
        "-n",
        "BEGIN { printf(\"%d\\n\", ipl); } syscall::getppid:entry /pid == $target/ { @ = count(); @l = max(ipl); } \
         END { printa(\"%@d \", @); printa(\"%@d\", @l); }",
    ])
    .code(0);
    assert_eq!(o.out, "0\n20 0\n", "{o:?}");
    if let Some(skip) = no_clock() {
        return skip;
    }
    let o = dtrace(&["-qn", "tick-20ms { printf(\"%d\\n\", ipl); exit(0); }"]).code(0);
    assert_eq!(o.out, "2\n\n", "{o:?}");
    Pass
}

fn threadname_is_the_name_of_the_thread() -> Verdict {
    // row builtin.threadname
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("named", 7),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[threadname] = count(); }",
    ])
    .code(0);
    assert_eq!((o.value_of("first"), o.value_of("second")), (7, 14), "{o:?}");
    Pass
}

fn zonename_is_the_name_of_the_container() -> Verdict {
    // row builtin.zonename
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("container", 12),
        "-n",
        "BEGIN { printf(\"%s\\n\", zonename); } syscall::getppid:entry /pid == $target/ { @[zonename] = count(); }",
    ])
    .code(0);
    if o.err.contains("status 77") {
        return Skip("cgroups cannot be mounted, or namespaces not be made".into());
    }
    assert!(o.out.starts_with("global\n"), "{o:?}");
    assert_eq!(o.value_of("dt-zone.scope"), 12, "{o:?}");
    Pass
}

fn ids_and_cpu_are_those_of_the_firing() -> Verdict {
    // row builtin.uid, builtin.gid, builtin.id, builtin.cpu
    let list = dtrace(&["-l", "-n", "syscall::getppid:entry"]).code(0);
    let id: i64 = list.out.lines().nth(1).and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap();
    // The record contains its CPU and its probe.
    let o = dtrace(&[
        "-c",
        &workload("getppid", 5),
        "-n",
        "syscall::getppid:entry /pid == $target/ { printf(\"%d %d %d %d\", cpu, id, uid == $uid, gid == $gid); }",
    ])
    .code(0);
    let rows: Vec<Vec<&str>> = o.out.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
    let rows: Vec<_> = rows.iter().filter(|r| !r.is_empty()).collect();
    assert_eq!(rows.len(), 5, "{o:?}");
    for row in rows {
        assert_eq!((row[3], row[4]), (row[0], row[1]), "{o:?}");
        assert_eq!((row[1].parse(), row[5], row[6]), (Ok(id), "1", "1"), "{o:?}");
    }
    Pass
}

fn built_ins_that_linux_lacks_are_rejected() -> Verdict {
    let names = ["dispatchqaddr", "jailname", "jid", "machtimestamp", "pthread_self"];
    for name in names {
        let o = dtrace(&["-n", &format!("BEGIN {{ trace({name}); }}")]).code(1);
        assert!(
            o.err.contains(&format!("built-in variable '{name}' has no meaning on Linux: there are")),
            "{o:?}"
        );
    }
    Pass
}
