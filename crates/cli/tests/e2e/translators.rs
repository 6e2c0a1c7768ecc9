//! Translators: processes, threads, CPUs and files as the D libraries describe them, and
//! translators of scripts.

use crate::Verdict::{self, Pass, Skip};
use crate::machine::no_types;
use crate::tool::{dtrace, under, workload};

tests! {
    character_arrays_of_translators_have_their_declared_type curpsinfo_describes_the_current_process
    curpsinfo_contains_its_thread execargs_is_one_string curlwpsinfo_describes_the_current_thread
    fds_describes_the_files_of_a_process fds_of_an_unused_descriptor_is_empty
    cwd_and_root_are_the_directories_of_the_process curcpu_describes_the_current_cpu
    a_translated_pointer_can_be_stored_and_passed_on scripts_can_define_translators
    a_missing_member_is_an_error_only_where_it_is_used every_translated_member_passes_the_verifier
    translated_members_are_more_stable_than_kernel_types paths_longer_than_strsize_are_truncated
}

// row builtin.curpsinfo, expression.translated-member, translator.dynamic
fn curpsinfo_describes_the_current_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 7),
        "-n",
        "syscall::getppid:entry /curpsinfo->pr_pid == $target/ { @[curpsinfo->pr_pid == pid && curpsinfo->pr_ppid == ppid \
         && curpsinfo->pr_ppid == $pid && curpsinfo->pr_uid == uid && curpsinfo->pr_gid == gid \
         && curpsinfo->pr_euid == $euid && curpsinfo->pr_egid == $egid && curpsinfo->pr_fname == execname \
         && curpsinfo->pr_sid == $sid && curpsinfo->pr_nlwp == 1 && curpsinfo->pr_dmodel == PR_MODEL_LP64 \
         && curpsinfo->pr_addr == (uintptr_t)curthread && curpsinfo->pr_rssize > 0 \
         && curpsinfo->pr_size > curpsinfo->pr_rssize && curpsinfo->pr_wstat == 0 ? \"right\" : \"wrong\"] = count(); } \
         END { printa(\"%s %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "right 7", "{o:?}");
    Pass
}

fn character_arrays_of_translators_have_their_declared_type() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The idiom of iosnoop: an array is cast to a pointer, and the pointer is read.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("named", 1),
        "-n",
        "syscall::getppid:entry /pid == $target && execname == \"first\"/ { this->p = curpsinfo; \
         printf(\"%d %d|%s|%s|%s|%c%c|\", sizeof(this->p->pr_psargs), sizeof(curlwpsinfo->pr_name), curlwpsinfo->pr_name, \
         stringof((char *)curlwpsinfo->pr_name), stringof((char *)curlwpsinfo->pr_name + 1), curlwpsinfo->pr_name[0], \
         *curlwpsinfo->pr_name); \
         printf(\"%d %d\\n\", stringof((char *)this->p->pr_psargs) == this->p->pr_psargs, \
         strlen((*this->p).pr_fname) == strlen(this->p->pr_fname)); @[curlwpsinfo->pr_name] = count(); } \
         END { printa(\"%s %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim_end(), "80 16|first|first|irst|ff|1 1\nfirst 1", "{o:?}");
    Pass
}

fn curpsinfo_contains_its_thread() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // A thread that has been joined may be counted a little longer.
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("named", 3),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[curpsinfo->pr_lwp.pr_name, curpsinfo->pr_lwp.pr_lwpid == tid, \
         curpsinfo->pr_pid == tid, curpsinfo->pr_nlwp == 3 ? 2 : curpsinfo->pr_nlwp, \
         walltimestamp / 1000000000 - curpsinfo->pr_start.tv_sec < 120 && \
         walltimestamp / 1000000000 >= curpsinfo->pr_start.tv_sec && \
         curpsinfo->pr_lwp.pr_start.tv_sec >= curpsinfo->pr_start.tv_sec] = count(); } \
         END { printa(\"%s %d %d %d %d %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "first 1 0 2 1 3\nsecond 1 0 2 1 6", "{o:?}");
    Pass
}

// row builtin.execargs
fn execargs_is_one_string() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let command = workload("getppid", 1);
    let o = dtrace(&[
        "-q",
        "-c",
        &command,
        "-n",
        "syscall::getppid:entry /pid == $target/ { printf(\"%s\\n%s\\n\", execargs, curpsinfo->pr_psargs); exit(0); }",
    ])
    .code(0);
    let short: String = command.chars().take(79).collect();
    assert_eq!(o.out.trim_end(), format!("{command}\n{short}"), "{o:?}");
    // For a process that is not the current one, only the name is known.
    let o = dtrace(&[
        "-qn",
        "BEGIN { printf(\"%s %s\\n\", xlate <psinfo_t *> (curthread->real_parent)->pr_psargs, \
         stringof(curthread->real_parent->comm)); exit(0); }",
    ])
    .code(0);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    assert!(words.len() >= 2 && words[..words.len() / 2] == words[words.len() / 2..], "{o:?}");
    Pass
}

// row builtin.curlwpsinfo
fn curlwpsinfo_describes_the_current_thread() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    // The tests may have a nice value. Priorities of time-sharing threads are 120 plus that value.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let nice: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 50),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[curlwpsinfo->pr_lwpid == tid && curlwpsinfo->pr_state == SONPROC \
         && curlwpsinfo->pr_sname == 'O' && curlwpsinfo->pr_onpro == cpu && curlwpsinfo->pr_name == execname \
         && curlwpsinfo->pr_nice == $1 && curlwpsinfo->pr_pri == 120 + $1 && curlwpsinfo->pr_clname == \"TS\" \
         && curlwpsinfo->pr_flag == 0 && curlwpsinfo->pr_bindpset == -1 && curlwpsinfo->pr_lgrp == lgrp ? \"right\" : \
         \"wrong\", curlwpsinfo->pr_syscall] = count(); } END { printa(\"%s %d %@d\\n\", @); }",
        &nice.to_string(),
    ])
    .code(0);
    assert_eq!(o.out.trim(), format!("right {} 200", libc::SYS_getppid), "{o:?}");
    Pass
}

/// File system and mount point of a path, from this process's mounts.
pub(crate) fn mount_of(path: &str) -> (String, String) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut best = ("".to_string(), "".to_string());
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (point, dash) = (words[4], words.iter().position(|w| *w == "-").unwrap());
        let holds = path == point || path.starts_with(&format!("{}/", point.trim_end_matches('/')));
        if holds && point.len() >= best.1.len() {
            best = (words[dash + 1].split('.').next().unwrap().to_string(), point.to_string());
        }
    }
    best
}

// row builtin.fds, subroutine.d_path
fn fds_describes_the_files_of_a_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("files", 1),
        "-n",
        "syscall::read:entry /pid == $target && arg2 == 1013/ { printf(\"read %s %s %s %d %s %s %d\\n\", \
         fds[arg0].fi_pathname, fds[arg0].fi_name, fds[arg0].fi_dirname, fds[arg0].fi_offset, fds[arg0].fi_fs, \
         fds[arg0].fi_mount, fds[arg0].fi_oflags & (O_ACCMODE | O_APPEND)); } \
         syscall::write:entry /pid == $target && arg2 == 1017/ { printf(\"null %s %d %d\\n\", fds[arg0].fi_pathname, \
         (fds[arg0].fi_oflags & O_ACCMODE) == O_WRONLY, (fds[arg0].fi_oflags & O_APPEND) != 0); } \
         syscall::write:entry /pid == $target && arg2 == 1019/ { printf(\"pipe %s %s %s\\n\", fds[arg0].fi_pathname, \
         fds[arg0].fi_name, fds[arg0].fi_mount); }",
    ])
    .code(0);
    let line = |word: &str| o.out.lines().filter(|l| l.starts_with(word)).collect::<Vec<_>>();
    let path = std::fs::canonicalize("/etc/passwd").unwrap();
    let (path, dir) = (path.to_str().unwrap(), path.parent().unwrap().to_str().unwrap());
    let name = path.rsplit('/').next().unwrap();
    let (fs, mount) = mount_of(path);
    assert_eq!(line("read"), [format!("read {path} {name} {dir} 5 {fs} {mount} 0")], "{o:?}");
    assert_eq!(line("null"), ["null /dev/null 1 1"], "{o:?}");
    // The workload prints the name of its pipe in /proc.
    let pipes = line("pipe");
    let said = pipes.iter().find(|l| l.split(' ').count() == 2).unwrap().to_string();
    let name = said.split(' ').nth(1).unwrap();
    assert!(pipes.contains(&&*format!("{said} {name} <unknown>")), "{o:?}");
    Pass
}

fn fds_of_an_unused_descriptor_is_empty() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("badclose", 9),
        "-n",
        "syscall::close:entry /pid == $target && fds[arg0].fi_name == \"<none>\"/ { @[fds[arg0].fi_pathname, \
         fds[arg0].fi_fs, fds[-1].fi_dirname, fds[arg0].fi_offset] = count(); } \
         END { printa(\"%s %s %s %d %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "<none> <none> <none> 0 9", "{o:?}");
    Pass
}

// row builtin.cwd, builtin.root
fn cwd_and_root_are_the_directories_of_the_process() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    for dir in ["/usr/share", "/", "/sys/kernel", "/proc"] {
        let script =
            "BEGIN { printf(\"%s %s %d\\n\", cwd, d_path(&curthread->fs->pwd), root == cwd); exit(0); }";
        let Some(o) = under(&["env", "-C", dir], &["-qn", script]) else { return Skip("no env".into()) };
        let o = o.code(0);
        // In a changed root the two differ.
        let same = o.out.trim_end().ends_with(" 1");
        assert_eq!(o.out.trim_end(), format!("{dir} {dir} {}", i32::from(same)), "{o:?}");
        assert!(!same || dir == "/", "{o:?}");
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &format!("env -C /usr/share {}", workload("getppid", 4)),
        "-n",
        "syscall::getppid:entry /pid == $target/ { @[cwd] = count(); } END { printa(\"%s %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "/usr/share 4", "{o:?}");
    Pass
}

// row builtin.curcpu, builtin.pset, builtin.chip, builtin.lgrp
fn curcpu_describes_the_current_cpu() -> Verdict {
    let o = dtrace(&[
        "-qn",
        "profile-100hz { @[cpu, curcpu->cpu_id, curcpu->cpu_chip, chip, curcpu->cpu_lgrp, lgrp, curcpu->cpu_pset, pset, \
         curcpu->cpu_info.pi_state] = count(); } tick-200ms { exit(0); } END { printa(\"%d %d %d %d %d %d %d %d %d\\n\", @); }",
    ])
    .code(0);
    let number =
        |path: String| std::fs::read_to_string(path).map_or(-1, |t| t.trim().parse::<i32>().unwrap());
    let p = dtrace(&[
        "-qn",
        "BEGIN { printf(\"%s|%s|%d\", curcpu->cpu_info.pi_processor_type, curcpu->cpu_info.pi_fputypes, \
         curcpu->cpu_info.pi_clock); exit(0); }",
    ])
    .code(0);
    let (words, clock) = p.out.trim_end().rsplit_once('|').unwrap();
    let fpu = if cfg!(target_arch = "x86_64") { "i387 compatible" } else { "" };
    assert_eq!(words, format!("{}|{fpu}", std::env::consts::ARCH), "{p:?}");
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let clock: i32 = clock.parse().unwrap();
    assert!(clock > 100 || clock == -1 && !cpuinfo.contains("cpu MHz"), "{p:?}");
    let mut seen = 0;
    for line in o.out.lines().filter(|l| !l.trim().is_empty()) {
        let n: Vec<i32> = line.split(' ').map(|w| w.parse().unwrap()).collect();
        let dir = format!("/sys/devices/system/cpu/cpu{}", n[0]);
        let chip = number(format!("{dir}/topology/physical_package_id"));
        let nodes =
            std::fs::read_dir(&dir).unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
        let node = nodes.filter_map(|n| n.strip_prefix("node")?.parse().ok()).next().unwrap_or(0);
        assert_eq!(n, [n[0], n[0], chip, chip, node, node, 0, 0, 2], "{o:?}");
        seen += 1;
    }
    assert!(seen > 0, "{o:?}");
    Pass
}

fn a_translated_pointer_can_be_stored_and_passed_on() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("threads", 20),
        "-n",
        "syscall::getppid:entry /pid == $target/ { self->p = curlwpsinfo; a[tid] = xlate <psinfo_t *> (curthread); } \
         syscall::getppid:return /self->p->pr_lwpid == tid && a[tid]->pr_pid == $target/ { this->q = self->p; \
         @[this->q->pr_addr == (uintptr_t)curthread, a[tid]->pr_addr == (uintptr_t)curthread->group_leader] = count(); \
         self->p = 0; a[tid] = 0; } END { printa(\"%d %d %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "1 1 80", "{o:?}");
    Pass
}

// row translator.static, translator.defined
fn scripts_can_define_translators() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let o = dtrace(&[
        "-q",
        "-c",
        &workload("getppid", 5),
        "-n",
        "struct who { int id; int parent; string name; int missing; }; \
         translator struct who < struct task_struct *T > { id = T->tgid; \
         parent = defined(struct task_struct, nothing) ? T->nothing : T->real_parent->tgid; \
         name = defined(struct nothing_at_all) ? \"no\" : stringof(T->comm); }; \
         inline struct who *me = xlate <struct who *> (curthread); \
         syscall::getppid:entry /me->id == $target/ { @[me->parent == $pid, me->name == execname, \
         xlate <struct who> (curthread->real_parent).id == ppid, defined(struct task_struct, real_parent.real_parent.comm), \
         defined(pid_t) + 2 * defined(nothing_t)] = count(); } \
         END { printa(\"%d %d %d %d %d %@d\\n\", @); }",
    ])
    .code(0);
    assert_eq!(o.out.trim(), "1 1 1 1 1 5", "{o:?}");
    Pass
}

// row translator.per-member-error
fn a_missing_member_is_an_error_only_where_it_is_used() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let dir = std::env::temp_dir().join(format!("dtrace-e2e-lib-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text = "struct mine { int good; int bad; };\n\
                translator struct mine < struct task_struct *T > { good = T->tgid; bad = T->nothing; };\n\
                inline struct mine *me = xlate <struct mine *> (curthread);\n";
    std::fs::write(dir.join("mine.d"), text).unwrap();
    let lib = dir.to_str().unwrap();
    let good = dtrace(&["-L", lib, "-qn", "BEGIN { trace(me->good == pid); exit(0); }"]);
    let bad = dtrace(&["-L", lib, "-xerrtags", "-qn", "BEGIN { trace(me->bad); exit(0); }"]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(good.code(0).out.trim(), "1");
    let bad = bad.code(1);
    let wanted = "[D_TYPE_MEMBER] in action list: member bad of struct mine is not available on this kernel: nothing is not a \
                  member of struct task_struct";
    assert!(bad.err.contains(wanted), "{bad:?}");
    Pass
}

/// All members of every translated type in one clause, which the verifier must accept.
fn every_translated_member_passes_the_verifier() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let lwp = "pr_flag pr_lwpid pr_addr pr_wchan pr_stype pr_state pr_sname pr_nice pr_syscall pr_oldpri pr_cpu pr_pri \
               pr_pctcpu pr_start.tv_sec pr_start.tv_nsec pr_time.tv_sec pr_clname pr_name pr_onpro pr_bindpro pr_bindpset \
               pr_lgrp";
    let ps = "pr_flag pr_nlwp pr_pid pr_ppid pr_pgid pr_sid pr_uid pr_euid pr_gid pr_egid pr_addr pr_size pr_rssize \
              pr_ttydev pr_pctcpu pr_pctmem pr_start.tv_sec pr_time.tv_nsec pr_ctime.tv_sec pr_fname pr_psargs pr_wstat \
              pr_argc pr_argv pr_envp pr_arglen pr_dmodel pr_taskid pr_projid pr_nzomb pr_poolid pr_zoneid pr_contract \
              pr_jailid pr_lwp.pr_state";
    let file = "fi_name fi_dirname fi_pathname fi_offset fi_fs fi_mount fi_oflags";
    let cpu = "cpu_id cpu_pset cpu_chip cpu_lgrp cpu_info.pi_state cpu_info.pi_processor_type cpu_info.pi_fputypes \
               cpu_info.pi_clock";
    let mut script = String::new();
    let mut count = 0;
    for (value, members) in
        [("curlwpsinfo->", lwp), ("curpsinfo->", ps), ("fds[0].", file), ("curcpu->", cpu)]
    {
        let members: Vec<&str> = members.split_whitespace().collect();
        for some in members.chunks(12) {
            script += "BEGIN { ";
            some.iter().for_each(|m| script += &format!("trace({value}{m}); trace(\"\\n\"); "));
            script += "} ";
        }
        count += members.len();
    }
    let o = dtrace(&["-qn", &format!("{script} BEGIN {{ exit(0); }}")]).code(0);
    assert_eq!(o.out.trim_end_matches('\n').lines().count(), count, "{o:?}");
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

fn translated_members_are_more_stable_than_kernel_types() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let least = ["-x", "amin=Stable/Stable/Common", "-xerrtags", "-en"];
    let run = |script: &str| dtrace(&[&least[..], &[script]].concat());
    run("dtrace:::BEGIN { trace(curpsinfo->pr_ppid); trace(fds[0].fi_name); trace(curcpu->cpu_chip); trace(cwd); }").code(0);
    let o = run("dtrace:::BEGIN { trace(curthread->tgid); }").code(1);
    assert!(o.err.contains("[D_ATTR_MIN]"), "{o:?}");
    Pass
}

fn paths_longer_than_strsize_are_truncated() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let dir = "/usr/share";
    for size in [8, 10, 16, 24] {
        let size = format!("strsize={size}");
        let words = [
            "-x",
            &size,
            "-qn",
            "BEGIN { trace(d_path(&curthread->fs->pwd)); trace(sizeof (string)); exit(0); }",
        ];
        let Some(o) = under(&["env", "-C", dir], &words) else { return Skip("no env".into()) };
        let o = o.code(0);
        let text = o.out.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let strsize: usize = text[digits.len()..].parse().unwrap();
        assert_eq!(digits, &dir[..dir.len().min(strsize - 1)], "{o:?}");
    }
    Pass
}
