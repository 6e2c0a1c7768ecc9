//! Captures of everything: programs that are written later print what sessions have printed.

use testing::dir::Dir;

use crate::Verdict::{self, Pass};
use crate::tool::{Output, binary, dtrace, workload};

tests! {
    a_capture_of_everything_prints_what_a_session_beside_it_printed
    every_firing_is_captured_whatever_the_clauses_say
    members_of_psinfo_are_captured_where_they_are_asked_for
    a_word_that_no_capture_has_is_refused
}

/// Captures probes over a command.
#[track_caller]
fn capture(dir: &Dir, words: &[&str], command: &str) -> Output {
    let file = dir.join("file").display().to_string();
    // An emulated CPU has no time to read while it is traced.
    let first = ["--capture", &file, "-x", "bufsize=48m"];
    let o = dtrace(&[&first[..], words, &["-c", command]].concat()).code(0);
    assert!(o.err.contains("captured ") && !o.err.contains("drop"), "{o:?}");
    o
}

#[track_caller]
fn ask(dir: &Dir, words: &[&str]) -> Output {
    let file = dir.join("file").display().to_string();
    dtrace(&[&["-q", "--replay", &file][..], words].concat()).code(0)
}

/// Nothing in it is of one session: clocks of two sessions differ.
const QUESTIONS: &str = r#"
syscall:::entry /execname == "capjob"/ { @calls[probefunc] = count(); self->ts = timestamp; }
syscall:::return /self->ts/ { @done[probefunc, errno] = quantize(timestamp >= self->ts); self->ts = 0; }
syscall::openat:entry /execname == "capjob"/ { self->path = arg1; }
syscall::openat:return /self->path/ {
	printf("%s opens %s: %d\n", execname, copyinstr(self->path), errno);
	self->path = 0;
}
syscall::execve:entry { self->program = arg0; }
syscall::execve:return /self->program && execname == "sh" && errno/ { printf("no %s\n", copyinstr(self->program)); }
proc:::exec-success /execname == "capjob"/ { printf("%s|%d|%d\n", curpsinfo->pr_psargs, uid, gid); }
proc:::exit /execname == "capjob"/ { printf("exit %d\n", arg0); }
sched:::off-cpu /execname == "capjob"/ { @switches = count(); }
sched:::on-cpu /execname == "capjob"/ { @switched = count(); }
"#;

/// The job begins when the session traces.
const JOB: &str = "./capjob /nonexistent/of/a/capture /etc/passwd >/dev/null 2>&1
./capjob /dev/null
/nonexistent/program 2>/dev/null
exec ./capjob /dev/null
";

fn a_capture_of_everything_prints_what_a_session_beside_it_printed() -> Verdict {
    let dir = Dir::new("captures");
    std::fs::write(dir.join("questions.d"), QUESTIONS).unwrap();
    std::fs::write(dir.join("job.sh"), JOB).unwrap();
    std::fs::copy("/bin/cat", dir.join("capjob")).unwrap();
    let (here, bin) = (dir.display(), binary().display().to_string());
    let live = format!("cd '{here}'; exec '{bin}' -q -o live -s questions.d -c 'sh job.sh' 2>messages\n");
    std::fs::write(dir.join("live.sh"), live).unwrap();
    let o = capture(
        &dir,
        &["-n", "syscall:::, sched:::on-cpu, sched:::off-cpu, proc:::exec-success, proc:::exit"],
        &format!("sh {}", dir.join("live.sh").display()),
    );
    let live = std::fs::read_to_string(dir.join("live")).unwrap();
    let messages = std::fs::read_to_string(dir.join("messages")).unwrap();
    // Firings that the kernel suppressed are missing in one of them.
    println!("{} {messages}", o.err);
    let replay = ask(&dir, &["-s", &dir.join("questions.d").display().to_string()]);
    assert!(live.contains("capjob opens /nonexistent/of/a/capture: 2\n"), "{live}");
    assert!(live.contains("no /nonexistent/program\n"), "{live}");
    assert!(live.contains("exit 1\n") && live.matches("capjob /dev/null|").count() == 2, "{live}");
    assert_eq!(replay.out, live, "{replay:?}");
    // A kernel that preempts programs of tracepoints suppresses some, which the capture says.
    let is_suppressed = |line: &str| line.ends_with(" that the kernel suppressed");
    assert!(replay.err.lines().all(is_suppressed), "{}", replay.err);
    Pass
}

fn every_firing_is_captured_whatever_the_clauses_say() -> Verdict {
    let dir = Dir::new("captures");
    let program = "syscall::getppid: /pid == 0/ { trace(1); exit(3); }";
    capture(&dir, &["-n", program], &workload("getppid", 100));
    for (question, answer) in [
        ("syscall::getppid:entry /pid == $target/ { @ = count(); }", 100),
        ("syscall::getppid:return /pid == $target && arg1 == ppid/ { @ = count(); }", 100),
        ("syscall::getppid:return /pid == $target && tid == pid && uid == 0 && !errno/ { @ = count(); }", 100),
        ("syscall::getppid:entry { self->at = timestamp; self->cpu = vtimestamp; }
          syscall::getppid:return /self->at && timestamp > self->at && vtimestamp >= self->cpu/ { @ = count(); }", 100),
        ("syscall::getppid:entry /progenyof($target) && ipl == 0 && walltimestamp > 0/ { @ = count(); }", 100),
        ("BEGIN { self->n = 1; } END { @ = sum(self->n); }", 1),
    ] {
        let o = ask(&dir, &["-n", question]);
        assert_eq!((o.last_number(), o.err.as_str()), (answer, ""), "{question}: {o:?}");
    }
    Pass
}

fn members_of_psinfo_are_captured_where_they_are_asked_for() -> Verdict {
    let dir = Dir::new("captures");
    let words = ["-x", "capture=psinfo", "-n", "syscall::getppid:entry"];
    capture(&dir, &words, &workload("getppid", 10));
    let question = "syscall::getppid:entry /pid == $target && curpsinfo->pr_pid == pid &&
        curpsinfo->pr_ppid == ppid && curlwpsinfo->pr_lwpid == tid && curpsinfo->pr_fname == execname/ { @ = count(); }";
    let o = ask(&dir, &["-n", question]);
    assert_eq!((o.last_number(), o.err.as_str()), (10, ""), "{o:?}");
    // What is not asked for is said.
    std::fs::remove_file(dir.join("file")).unwrap();
    capture(&dir, &["-n", "syscall::getppid:entry"], &workload("getppid", 10));
    let o = ask(&dir, &["-n", "syscall::getppid:entry { @ = sum(curpsinfo->pr_pgid); }"]);
    assert!(o.err.contains("reads of memory that is not in the capture"), "{o:?}");
    Pass
}

fn a_word_that_no_capture_has_is_refused() -> Verdict {
    let o = dtrace(&["-x", "capture=everything", "--capture", "x", "-n", "BEGIN"]).code(1);
    assert!(o.err.contains("it takes stack, ustack, psinfo, with commas between"), "{o:?}");
    Pass
}
