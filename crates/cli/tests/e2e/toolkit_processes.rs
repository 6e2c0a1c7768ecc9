//! Tools that print and count what processes do: their beginning and end, signals, bytes, users and
//! capabilities.

use crate::Verdict::{self, Pass};
use crate::machine::{no_functions, no_types};
use crate::tool::Output;
use crate::toolkit::{Program, distribution, rows_with, run, start};
use crate::toolkit_io::dd;
use crate::toolkit_net::me;

tests! {
    exitsnoop_prints_how_each_process_ended
    pidpersec_counts_the_processes_of_every_second
    sigdist_counts_signals_by_sender_and_receiver
    lastwords_prints_the_last_calls_of_a_program
    mmapfiles_counts_the_files_that_are_mapped
    descriptors_and_sizes_of_reads_and_writes_are_counted
    bytes_are_summed_by_program_and_kind_of_file
    calls_are_counted_by_program_and_by_call
    creatbyproc_prints_files_that_are_new
    setuids_prints_each_change_of_the_user
    shellsnoop_prints_what_a_shell_prints
    capable_prints_each_question_for_a_capability
    shmsnoop_prints_each_call_with_its_arguments
    crash_prints_the_signal_and_the_stack
}

/// Reads and writes three times 5,000 bytes.
fn copy(program: &Program) -> u32 {
    let file = format!("of={}", program.file("out"));
    program.run(&["if=/dev/zero", &file, "bs=5000", "count=3", "status=none"])
}

/// The words behind the time of day.
fn behind_time(line: &str) -> String {
    line.splitn(5, ' ').last().unwrap_or_default().to_string()
}

fn exitsnoop_prints_how_each_process_ended() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::shell("tk");
    let [all, failed] =
        [&["-n", &program.name][..], &["-x", "-n", &program.name]].map(|words| start("exitsnoop", words));
    let scripts = ["exit 0", "exit 7", "kill -9 $$"];
    let pids = scripts.map(|script| program.run(&["-c", script]));
    let (all, failed) = (all.end().code(0), failed.end().code(0));
    let rows = |o: &Output| -> Vec<String> {
        // The age is the fourth word.
        let row = |l: &String| {
            let words = behind_time(l);
            let words: Vec<&str> = words.split(' ').collect();
            [&words[..3], &words[4..]].concat().join(" ")
        };
        rows_with(o, &program.name).iter().map(row).collect()
    };
    let ends = ["code 0", "code 7", "signal 9"];
    let row = |n: usize| format!("{} {} {} {}", pids[n], std::process::id(), program.name, ends[n]);
    assert_eq!(rows(&all), [row(0), row(1), row(2)], "{all:?}");
    assert_eq!(rows(&failed), [row(1), row(2)], "{failed:?}");
    Pass
}

fn pidpersec_counts_the_processes_of_every_second() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("pidpersec", &[]);
    program.run(&["--workload", "spawn", "60"]);
    let o = tracing.end().code(0);
    let numbers = o.out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(4)?.parse::<u64>().ok());
    assert!(numbers.sum::<u64>() >= 61, "{o:?}");
    Pass
}

fn sigdist_counts_signals_by_sender_and_receiver() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("sigdist", &[]);
    program.run(&["-c", "trap : USR1; for n in 1 2 3 4 5; do kill -USR1 $$; done; exit 0"]);
    let o = tracing.end().code(0);
    let row = format!("{0} {0} 10 5", program.name);
    assert_eq!(
        rows_with(&o, &format!("{0} ", program.name)).iter().filter(|l| **l == row).count(),
        1,
        "{o:?}"
    );
    Pass
}

fn lastwords_prints_the_last_calls_of_a_program() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("lastwords", &[&program.name]);
    let pid = program.run(&["-c", "cd /; cd /dt-no-such-directory 2>/dev/null; exit 3"]);
    let o = tracing.wait().code(0);
    let lines = rows_with(&o, &format!(" {pid} {pid} "));
    // Behind the time.
    let words: Vec<&str> = lines.iter().filter_map(|l| Some(l.split_once(' ')?.1)).collect();
    assert_eq!(words.last(), Some(&&*format!("{pid} {pid} exit_group 3 0")), "{o:?}");
    assert!(words.contains(&&*format!("{pid} {pid} chdir 0 0")), "{o:?}");
    assert!(words.contains(&&*format!("{pid} {pid} chdir -1 2")), "{o:?}");
    Pass
}

fn mmapfiles_counts_the_files_that_are_mapped() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("mmapfiles", &[]);
    program.run(&["-c", "exit 0"]);
    program.run(&["-c", "exit 0"]);
    let o = tracing.end().code(0);
    let lines = rows_with(&o, &format!("{} ", program.name));
    assert!(lines.contains(&format!("{} 2 /etc/ld.so.cache", program.name)), "{o:?}");
    Pass
}

fn descriptors_and_sizes_of_reads_and_writes_are_counted() -> Verdict {
    let program = dd();
    let tracing = ["fddist", "readdist", "writedist", "rwbypid"].map(|tool| start(tool, &[]));
    let pid = copy(&program);
    let [fds, reads, writes, calls] = tracing.map(|t| t.end().code(0));
    let count = |o: &Output, of: &str, value: &str| {
        distribution(o, of).iter().find(|(v, _)| v == value).map(|(_, n)| *n)
    };
    // The program reads from 0 and writes to 1.
    for fd in ["0", "1"] {
        assert_eq!(count(&fds, &program.name, fd), Some(3), "{fds:?}");
    }
    let of = format!("{pid} {}", program.name);
    assert_eq!(count(&reads, &of, "4096"), Some(3), "{reads:?}");
    assert_eq!(distribution(&writes, &of), [("4096".to_string(), 3)], "{writes:?}");
    let lines = rows_with(&calls, &of);
    assert!(lines.contains(&format!("{of} W 3")), "{calls:?}");
    Pass
}

fn bytes_are_summed_by_program_and_kind_of_file() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let (once, twice) = (dd(), Program::new("tkde", Some("/bin/dd")));
    let tracing = ["readbytes", "writebytes", "rwbytype"].map(|tool| start(tool, &[]));
    let pid = copy(&once);
    copy(&twice);
    copy(&twice);
    let [read, written, kinds] = tracing.map(|t| t.end().code(0));
    let bytes = |o: &Output, of: &Program| {
        rows_with(o, &of.name).iter().find_map(|l| l.rsplit(' ').next()?.parse::<i64>().ok()).unwrap_or(0)
    };
    assert_eq!((bytes(&written, &once), bytes(&written, &twice)), (15_000, 30_000), "{written:?}");
    // The loader reads too.
    assert!(bytes(&read, &once) >= 15_000, "{read:?}");
    assert_eq!(bytes(&read, &twice), 2 * bytes(&read, &once), "{read:?}");
    let lines = rows_with(&kinds, &format!("{pid} {}", once.name));
    for row in ["character R 15000", "regular W 15000"] {
        assert!(lines.contains(&format!("{pid} {} {row}", once.name)), "{row}: {kinds:?}");
    }
    Pass
}

fn calls_are_counted_by_program_and_by_call() -> Verdict {
    let program = Program::workload("tk");
    let tracing =
        [("syscallbyproc", &[][..]), ("syscallbysysc", &[]), ("topsysproc", &["-C", "-r", "1000", "3600"])];
    let tracing = tracing.map(|(tool, words)| start(tool, words));
    program.run(&["--workload", "getppid", "20000"]);
    let [programs, calls, top] = tracing.map(|t| t.end().code(0));
    let number = |o: &Output, of: &str| {
        let lines = rows_with(o, of);
        lines.iter().find_map(|l| l.strip_prefix(&format!("{of} "))?.parse::<i64>().ok()).unwrap_or(0)
    };
    // The program makes some calls of its own.
    let own = number(&programs, &program.name);
    assert!((20_000..21_000).contains(&own), "{programs:?}");
    assert_eq!(number(&top, &program.name), own, "{top:?}");
    assert!(number(&calls, "getppid") >= 20_000, "{calls:?}");
    Pass
}

fn creatbyproc_prints_files_that_are_new() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let (old, new) = (place.file("old"), place.file("new"));
    std::fs::write(&old, "text").unwrap();
    let tracing = start("creatbyproc", &[]);
    std::fs::write(&old, "text").unwrap();
    std::fs::write(&new, "text").unwrap();
    let o = tracing.end().code(0);
    let rows: Vec<String> =
        rows_with(&o, &place.dir.display().to_string()).iter().map(|l| behind_time(l)).collect();
    // An overlay creates the file in its upper file system too, and the paths are those of their file
    // systems.
    match is_overlay(&place.dir) {
        true => assert!(rows.len() == 2 && rows.iter().all(|row| row.ends_with(&new)), "{o:?}"),
        false => assert_eq!(rows, [format!("{} {new}", me())], "{o:?}"),
    }
    Pass
}

/// True for the root of a guest.
fn is_overlay(dir: &std::path::Path) -> bool {
    let said = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output().unwrap();
    said.stdout.starts_with(b"overlay")
}

fn setuids_prints_each_change_of_the_user() -> Verdict {
    let tracing = start("setuids", &[]);
    // SAFETY: no pointers. The users stay what they are.
    let results =
        unsafe { [libc::syscall(libc::SYS_setresuid, 0, 0, 0), libc::syscall(libc::SYS_setreuid, -1, 0)] };
    // The user of files, whose number before is the result.
    // SAFETY: as above.
    let files = unsafe { libc::syscall(libc::SYS_setfsuid, 0) };
    let o = tracing.end().code(0);
    if results != [0, 0] || files != 0 {
        return Verdict::Skip("this user may not become root".into());
    }
    let own = std::process::id();
    let mut lines = rows_with(&o, " setre");
    lines.extend(rows_with(&o, " setfsuid "));
    let rows: Vec<Vec<&str>> = lines.iter().map(|l| l.split(' ').collect()).collect();
    let rows: Vec<String> =
        rows.iter().filter(|r| r[0] == own.to_string()).map(|r| r[3..8].join(" ")).collect();
    assert_eq!(rows, ["setresuid 0 0 0 0", "setreuid 0 0 0 0", "setfsuid 0 0 0 0"], "{o:?}");
    Pass
}

fn shellsnoop_prints_what_a_shell_prints() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("shellsnoop", &["-n", &program.name]);
    let pid = program.run(&["-c", "echo hello; printf 'a\\tb'; echo bad >&2; exit 0"]);
    let o = tracing.end().code(0);
    let row = |text: &str| format!("{pid} {} {} {text}", std::process::id(), program.name);
    assert_eq!(rows_with(&o, &program.name), [row("hello\\n"), row("a\\tb"), row("bad\\n")], "{o:?}");
    Pass
}

fn capable_prints_each_question_for_a_capability() -> Verdict {
    let has_tracepoint = crate::tool::dtrace(&["-ln", "rawtp:capability::cap_capable"]).code == Some(0);
    if !has_tracepoint && let Some(skip) = no_functions() {
        return skip;
    }
    let own = std::process::id().to_string();
    let [all, denied] = [&["-p", &own][..], &["-x", "-p", &own]].map(|words| start("capable", words));
    for _ in 0..3 {
        // SAFETY: no pointers. The kernel asks for the capability first, and wrong numbers reboot
        // nothing.
        assert_eq!(unsafe { libc::syscall(libc::SYS_reboot, 1, 2, 3, 0) }, -1);
    }
    let (all, denied) = (all.end().code(0), denied.end().code(0));
    let rows: Vec<String> = rows_with(&all, " CAP_SYS_BOOT ").iter().map(|l| behind_time(l)).collect();
    // SAFETY: no arguments.
    let uid = unsafe { libc::geteuid() };
    let row = format!("{uid} {} 22 CAP_SYS_BOOT ", me());
    assert!(rows.len() == 3 && rows.iter().all(|l| l.starts_with(&row)), "{all:?}");
    let refused = rows.iter().filter(|l| !l.ends_with(" 0")).count();
    assert_eq!(rows_with(&denied, " CAP_SYS_BOOT ").len(), refused, "{denied:?}");
    Pass
}

fn shmsnoop_prints_each_call_with_its_arguments() -> Verdict {
    let tracing = start("shmsnoop", &["-p", &std::process::id().to_string()]);
    // SAFETY: a segment of our own, which is attached where the kernel likes and removed.
    let (id, address) = unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, 12_345, libc::IPC_CREAT | 0o600);
        let address = libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY);
        libc::shmdt(address);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        (id, address as usize)
    };
    let o = tracing.end().code(0);
    let expected = [
        format!("{} shmget {id} key 0x0, 12345 bytes, flags 01600", me()),
        format!("{} shmat {address:x} id {id}, flags 010000", me()),
        format!("{} shmdt 0 address 0x{address:x}", me()),
        format!("{} shmctl 0 id {id}, command 0", me()),
    ];
    assert_eq!(rows_with(&o, " shm"), expected, "{o:?}");
    Pass
}

fn crash_prints_the_signal_and_the_stack() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("crash", &[]);
    let pid = program.run(&["-c", "trap : USR1; kill -USR1 $$; kill -SEGV $$"]);
    let o = tracing.end().code(0);
    let lines = rows_with(&o, &format!(" {} PID {pid} ", program.name));
    let [line] = &lines[..] else { panic!("{o:?}") };
    // SAFETY: no arguments.
    let uid = unsafe { libc::getuid() };
    let expected = format!(
        "{} PID {pid} PPID {} UID {uid} signal 11 code 0 address 0x0",
        program.name,
        std::process::id()
    );
    assert_eq!(behind_time(line), expected, "{o:?}");
    assert!(o.out.contains("`kill+0x"), "{o:?}");
    let refused = run("lastwords", &[]).code(2);
    assert!(refused.err.starts_with("lastwords: the name of a program is needed\n"), "{refused:?}");
    Pass
}
