//! The kernel's types, and data reached from the current thread.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{binary, dtrace, workload};

tests! {
    curthread_matches_the_built_in_variables pointer_chains_through_kernel_structs_are_followed
    arrays_and_strings_in_kernel_structs_are_read direct_and_checked_loads_give_the_same_value
    bit_fields_of_kernel_structs_are_read pointer_arithmetic_scales_by_the_type
    functions_have_an_address_and_a_type kernel_variables_have_their_value_and_type
    per_cpu_variables_are_read_on_the_current_cpu types_of_modules_are_found
    load_averages_are_those_of_proc unknown_kernel_names_are_rejected_with_a_hint
}

fn curthread_matches_the_built_in_variables() -> Verdict {
    if let Some(skip) = no_types() {
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

/// The values of these expressions in one firing of getppid in a process of its own, each as
/// decimal digits.
#[track_caller]
fn once(declare: &str, expressions: &[&str]) -> Vec<String> {
    let traces: String = expressions.iter().map(|e| format!("printf(\"%d\\n\", (int64_t)({e}));")).collect();
    let script = format!("{declare} syscall::getppid:entry /pid == $target/ {{ {traces} exit(0); }}");
    let o = dtrace(&["-q", "-c", &workload("reset", 1), "-n", &script]).code(0);
    assert_eq!(o.err, "", "{o:?}");
    let lines: Vec<String> = o.out.lines().filter(|l| !l.is_empty()).map(String::from).collect();
    assert_eq!(lines.len(), expressions.len(), "{o:?}");
    lines
}

/// Checks that all of these are 1.
#[track_caller]
fn hold(declare: &str, facts: &[&str]) {
    for (fact, value) in facts.iter().zip(once(declare, facts)) {
        assert_eq!(value, "1", "{fact}");
    }
}

fn pointer_chains_through_kernel_structs_are_followed() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The words of the command line, each with its NUL, are the bytes between two addresses of the
    // process.
    let words: usize = workload("reset", 1).split(' ').map(|w| w.len() + 1).sum();
    hold(
        "",
        &[
            &format!("curthread->mm->arg_end - curthread->mm->arg_start == {words}"),
            "curthread->signal->nr_threads == 1",
            "curthread->group_leader->thread_pid->numbers[0].nr == curthread->tgid",
            "curthread->real_parent->tgid == $pid",
            "curthread->real_parent->real_parent->real_parent != NULL",
            "curthread->thread_pid->level == curthread->group_leader->thread_pid->level",
            "curthread->mm->mm_users.counter >= 1 && curthread->mm->mm_users.counter < 4",
            "curthread->files->fdt->max_fds >= 64",
            "((struct vmlinux`task_struct *)curthread)->pid == curthread->pid",
            "&curthread->real_parent->pid == &((struct task_struct *)curthread->real_parent)->pid",
            "sizeof (curthread->thread_info) == sizeof (struct thread_info)",
            "offsetof(struct task_struct, comm) == (uintptr_t)&curthread->comm - (uintptr_t)curthread",
            "(enum pid_type)arg0 == PIDTYPE_PID || (enum pid_type)arg0 != PIDTYPE_PID",
            "PIDTYPE_TGID",
        ],
    );
    Pass
}

fn arrays_and_strings_in_kernel_structs_are_read() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours and large enough.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    let here = std::env::current_dir().unwrap();
    let here = here.file_name().map_or("/".into(), |n| n.to_string_lossy().into_owned());
    hold(
        "struct grid { char m[4][4]; struct { short s; } parts[3]; };",
        &[
            &format!("curthread->nsproxy->uts_ns->name.nodename == \"{}\"", host.trim()),
            &format!("curthread->signal->rlim[{}].rlim_cur == {}", libc::RLIMIT_STACK, limit.rlim_cur),
            &format!("stringof(curthread->fs->pwd.dentry->d_name.name) == \"{here}\""),
            "curthread->comm == execname && execname == curthread->comm",
            "strlen(curthread->comm) == strlen(execname)",
            "curthread->comm < \"\\xff\" && curthread->comm != \"\"",
            "((struct grid *)&curthread->comm)->m[1][2] == curthread->comm[6]",
            "*((struct grid *)&curthread->comm)->m[1] == curthread->comm[4]",
            "((struct grid *)&curthread->comm)->m[arg0 & 0][(arg0 & 0) + 1] == curthread->comm[1]",
            "((struct grid *)((char *)&curthread->comm - 16))->parts[2].s == *(short *)&curthread->comm[4]",
            "*curthread->comm == curthread->comm[0] && *(curthread->comm + 1) == curthread->comm[1]",
        ],
    );
    // A name that fills its array up to the NUL, as a key, in a variable, and in a record.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("reset", 1),
        "-n",
        "syscall::getppid:entry /pid == $target/ { name = curthread->comm; a[curthread->comm] = 3; \
           @[curthread->comm] = count(); trace(curthread->comm); printf(\" %s %d %d\", name, a[execname], \
           sizeof (curthread->comm)); }",
    ])
    .code(0);
    let comm = o.out.split_whitespace().next().unwrap_or_default().to_string();
    assert!(!comm.is_empty() && o.out.starts_with(&format!("{comm} {comm} 3 16")), "{o:?}");
    let counted = o.out.lines().last().unwrap_or_default();
    assert_eq!(counted.split_whitespace().collect::<Vec<_>>(), [&*comm, "1"], "{o:?}");
    Pass
}

/// Numbers in the task itself are loaded without a helper. At an offset that is not constant they
/// are read by the helper.
fn direct_and_checked_loads_give_the_same_value() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let members = [
        "pid",
        "tgid",
        "prio",
        "static_prio",
        "normal_prio",
        "policy",
        "flags",
        "exit_state",
        "exit_signal",
        "pdeath_signal",
        "personality",
        "start_time",
        "start_boottime",
        "thread_info.flags",
        "rt_priority",
        "nr_cpus_allowed",
        "on_cpu",
        "on_rq",
        "se.on_rq",
        "rt.time_slice",
        "parent_exec_id",
        "self_exec_id",
        "sas_ss_sp",
        "nvcsw",
        "trace_recursion",
        "thread.trap_nr",
        "se.vruntime",
        "__state",
        "jobctl",
    ];
    let facts: Vec<String> =
        members.iter().map(|m| format!("curthread->{m} == *(&curthread->{m} + (arg9 & 0))")).collect();
    hold("", &facts.iter().map(String::as_str).collect::<Vec<_>>());
    // A read that does not match a member works too.
    hold(
        "struct two { short low; short high; };",
        &[
            "((struct two *)&curthread->pid)->low == (short)curthread->pid",
            "*(uint64_t *)&curthread->pid == ((uint64_t)(unsigned int)curthread->tgid << 32 | (unsigned int)curthread->pid)",
            "(curthread + 1 - 1)->pid == curthread->pid",
            "((struct task_struct *)((char *)curthread + 4))->pid == curthread->tgid",
            "*(int *)((char *)curthread + offsetof(struct task_struct, tgid)) == $target",
        ],
    );
    Pass
}

fn bit_fields_of_kernel_structs_are_read() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The workload sets its scheduling to be reset on fork. No other bit of that word is set.
    hold(
        "struct low { unsigned a:3, b:7, c:1; int d:5; long e:40; }; \
         struct wide { unsigned long w:64; }; typedef struct low low_t;",
        &[
            "curthread->sched_reset_on_fork",
            "curthread->sched_reset_on_fork == 1 && !curthread->in_execve",
            "((low_t *)&curthread->comm)->a == (curthread->comm[0] & 7)",
            "((low_t *)&curthread->comm)->b == (((*(unsigned short *)&curthread->comm) >> 3) & 0x7f)",
            "((low_t *)&curthread->comm)->c == (((*(unsigned short *)&curthread->comm) >> 10) & 1)",
            "((low_t *)&curthread->comm)->d == (((*(int *)&curthread->comm) << 48) >> 59)",
            "((low_t *)&curthread->comm)->e == (((*(long *)&curthread->comm) << 8) >> 24)",
            "((struct wide *)&curthread->comm)->w == *(unsigned long *)&curthread->comm",
        ],
    );
    Pass
}

fn pointer_arithmetic_scales_by_the_type() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    hold(
        "",
        &[
            "&curthread[2] - curthread == 2",
            "(uintptr_t)(curthread + 1) - (uintptr_t)curthread == sizeof (struct task_struct)",
            "(uintptr_t)(1 + curthread) == (uintptr_t)&curthread[1]",
            "(curthread + 5) - 5 == curthread && curthread - -1 > curthread",
            "curthread != NULL && NULL != curthread && !!curthread && curthread > (struct task_struct *)0",
            "(void *)curthread == curthread && curthread == (struct task_struct *)(uint64_t)curthread",
            "&(&curthread->pid)[1] - &curthread->pid == 1",
            "(char *)&curthread->tgid - (char *)&curthread->pid == \
             offsetof(struct task_struct, tgid) - offsetof(struct task_struct, pid)",
            "curthread->tasks.next->prev == &curthread->tasks",
        ],
    );
    Pass
}

/// The address of a symbol of the kernel itself. `None` where the kernel has no such symbol or
/// hides it.
pub(crate) fn address(name: &str) -> Option<u64> {
    let all = std::fs::read_to_string("/proc/kallsyms").ok()?;
    let line = all.lines().find(|l| l.split_whitespace().nth(2) == Some(name))?;
    u64::from_str_radix(line.split_whitespace().next()?, 16).ok().filter(|a| *a != 0)
}

fn functions_have_an_address_and_a_type() -> Verdict {
    let Some(at) = address("vfs_read") else { return Skip("no symbol vfs_read to be seen".into()) };
    let o = dtrace(&[
        "-qn",
        "BEGIN { printf(\"%p %p %d \", &`vfs_read, `vfs_read, &vmlinux`vfs_read == `vfs_read); \
         sym((uintptr_t)`vfs_read); trace(`PIDTYPE_SID); trace(vmlinux`PIDTYPE_TGID); exit(0); }",
    ])
    .code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    assert_eq!(words, [&*format!("{at:x}"), &format!("{at:x}"), "1", "vmlinux`vfs_read", "31"], "{o:?}");
    Pass
}

// row variable.external, variable.external-address
fn kernel_variables_have_their_value_and_type() -> Verdict {
    if address("jiffies").is_none() {
        let o = dtrace(&["-qn", "BEGIN { trace(`jiffies); }"]).code(1);
        assert!(o.err.contains("failed to resolve `jiffies"), "{o:?}");
        return Skip("no symbols of variables to be seen".into());
    }
    let version = std::fs::read_to_string("/proc/version").unwrap_or_default();
    let o = dtrace(&[
        "-qn",
        "BEGIN { this->j = `jiffies; printf(\"%d %d %d\\n\", `jiffies - this->j < 1000, \
           `jiffies - *(unsigned long *)&`jiffies < 1000, (`jiffies & 0xffffffff) - (`jiffies_64 & 0xffffffff) + 1000 < 2000); \
         printf(\"%s %d %d\\n\", `init_task.comm, `init_task.pid, `init_task.real_parent == &`init_task); \
         printf(\"%s\", stringof(&`linux_banner)); trace(`system_state == SYSTEM_RUNNING); \
         printf(\" %d %d %d\", (int)`overflowuid, *(int *)&`overflowuid == (short)`overflowuid + 65536, \
           (uintptr_t)&`overflowuid == (uintptr_t)(int *)&vmlinux`overflowuid); exit(0); }",
    ])
    .code(0);
    let lines: Vec<&str> = o.out.lines().collect();
    assert_eq!(lines[..3], ["1 1 1", "swapper/0 0 1", version.trim()], "{o:?}");
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    assert_eq!(lines[3].trim(), format!("1 {} 1 1", overflow.trim()), "{o:?}");
    let o = dtrace(&["-xerrtags", "-qn", "BEGIN { trace(`loops_per_jiffy); }"]).code(1);
    assert!(o.err.contains("[D_SYM_NOTYPES]"), "{o:?}");
    assert!(o.err.contains("as in *(int *)&`loops_per_jiffy or (int)`loops_per_jiffy"), "{o:?}");
    Pass
}

/// The kernel computes new ones every five seconds.
fn load_averages_are_those_of_proc() -> Verdict {
    let script = "BEGIN { printf(\"%d %d\\n\", hp_avenrun[-1], hp_avenrun[3]); } \
         syscall::read:entry /pid == $target/ \
         { self->a = hp_avenrun[0]; self->b = hp_avenrun[1]; self->c = hp_avenrun[2]; self->in = 1; } \
         syscall::read:return /self->in && pid == $target/ \
         { printf(\"read %d %d %d %d %d %d %d\\n\", arg1, self->a, self->b, self->c, hp_avenrun[0], hp_avenrun[1], hp_avenrun[2]); \
           self->in = 0; }";
    let words = ["-q", "-c", "cat /proc/loadavg", "-n", script];
    if address("avenrun").is_none() {
        let o = dtrace(&words).code(1);
        assert!(o.err.contains("failed to resolve `avenrun"), "{o:?}");
        return Skip("no symbols of variables to be seen".into());
    }
    let o = dtrace(&words).code(0);
    let of_proc = o.out.lines().find(|l| l.contains('/')).unwrap();
    let printed: Vec<&str> = of_proc.split(' ').take(3).collect();
    // The text is as /proc makes it: rounded, of averages in units of 1/2048.
    let shown = |average: u64| {
        let average = average / 32 + 2048 / 200;
        format!("{}.{:02}", average / 2048, average % 2048 * 100 / 2048)
    };
    let reads = o.out.lines().filter_map(|l| l.strip_prefix("read "));
    let mut reads = reads.map(|l| l.split(' ').map(|n| n.parse::<i64>().unwrap()).collect::<Vec<_>>());
    let of_text = reads.rfind(|read| read[0] == of_proc.len() as i64 + 1).unwrap();
    for (n, printed) in printed.iter().enumerate() {
        // The kernel may compute new ones within the call.
        let [before, after] = [of_text[1 + n], of_text[4 + n]].map(|n| shown(n as u64));
        assert!(*printed == before || *printed == after, "{before} {after}: {o:?}");
    }
    assert!(o.out.starts_with("0 0\n"), "{o:?}");
    Pass
}

fn per_cpu_variables_are_read_on_the_current_cpu() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    if address("runqueues").is_none() {
        return Skip("no symbol runqueues to be seen".into());
    }
    hold("", &["`runqueues.curr == curthread", "`runqueues.cpu == cpu", "(&`runqueues)->curr == curthread"]);
    Pass
}

fn types_of_modules_are_found() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let modules: Vec<String> = std::fs::read_dir("/sys/kernel/btf")
        .map(|d| d.flatten().filter_map(|e| e.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    let Some(module) = modules.iter().find(|m| *m != "vmlinux") else {
        return Skip("no module with types is loaded".into());
    };
    // The kernel's own types are visible in the module too.
    let script = format!(
        "BEGIN {{ trace(sizeof (struct {module}`task_struct) == sizeof (struct task_struct)); exit(0); }}"
    );
    let o = dtrace(&["-qn", &script]).code(0);
    assert_eq!(o.out.trim(), "1", "{o:?}");
    Pass
}

fn unknown_kernel_names_are_rejected_with_a_hint() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for (program, tag, help) in [
        ("BEGIN { trace(sizeof (struct task_strcut)); }", "D_SIZEOF_TYPE", "`struct task_struct`"),
        ("BEGIN { trace(curthread->pidd); }", "D_TYPE_MEMBER", "`pid`"),
        ("BEGIN { trace((struct nosuchmodule`x *)0); }", "D_TYPE_ERR", "module nosuchmodule is not loaded"),
        ("BEGIN { trace(curthread->comm[16]); }", "D_ARR_BOUNDS", "max allowed is 15"),
        ("BEGIN { curthread->pid = 1; }", "D_OP_WRITE", "writable variable"),
        ("BEGIN { trace(&curthread->sched_reset_on_fork); }", "D_ADDROF_BITFIELD", "bit-field"),
        ("BEGIN { trace(&vmlinux`vfs_raed); }", "D_IDENT_UNDEF", "vmlinux`vfs_raed"),
    ] {
        let tagged = dtrace(&["-xerrtags", "-qn", program]).code(1);
        let o = dtrace(&["-qn", program]).code(1);
        assert!(tagged.err.contains(&format!("[{tag}]")) && o.err.contains(help), "{program}: {o:?}");
    }
    // Without the kernel's types, a message says so.
    let script = format!(
        "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec {} -n 'BEGIN {{ trace(curthread->pid); }}'",
        binary().display()
    );
    let o = std::process::Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    let err = String::from_utf8_lossy(&o.unwrap().stderr).into_owned();
    assert!(err.contains("cannot read the kernel's types") && err.contains("1:15"), "{err}");
    Pass
}
