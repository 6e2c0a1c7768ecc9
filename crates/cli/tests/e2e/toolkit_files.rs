//! Tools for programs, system calls and files.

use crate::Verdict::{self, Pass};
use crate::machine::no_functions;
use crate::tool::workload;
use crate::toolkit::{Program, lines_with, run, start};

tests! {
    execsnoop_prints_each_program_with_its_arguments
    opensnoop_prints_each_open_with_its_result
    rwsnoop_prints_each_write_with_its_bytes_and_file
    errinfo_prints_and_counts_calls_that_fail
    procsystime_counts_the_calls_of_a_program
    syscallbypid_counts_the_calls_of_each_process
    shortlived_counts_processes_by_program_and_parent shortlived_sums_the_time_of_threads
    killsnoop_prints_each_signal_with_its_result
    killsnoop_selects_by_result_sender_and_target
    filebyproc_and_pathopens_name_the_files_that_are_opened
    procsystime_prints_totals_only_where_they_are_chosen
    dtruss_prints_calls_with_arguments_and_results
    dtruss_decodes_flags_and_modes_and_shows_each_argument_of_a_call
    dtruss_follows_children
    fsslower_prints_calls_by_their_time
    cachestat_counts_hits_of_files_in_memory
    cachestat_counts_what_is_read_from_a_device_and_what_is_written
}

fn execsnoop_prints_each_program_with_its_arguments() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("execsnoop", &["-e", "-c", &program.name]);
    let (path, me) = (program.path().display().to_string(), std::process::id());
    let first = program.run(&["-c", "exit 0", "x", "b  c"]);
    let second = program.run(&["-c", "exit 0", "tab\there"]);
    program.run(&["-c", "no-such-program; exit 0"]);
    let o = tracing.end().code(0);
    let lines = lines_with(&o, &path);
    assert_eq!(lines.len(), 3, "{o:?}");
    assert_eq!(lines[0], format!("0 {first} {me} {path} -c exit 0 x b c"), "{o:?}");
    assert_eq!(lines[1], format!("0 {second} {me} {path} -c exit 0 tab\\there"), "{o:?}");
    assert_eq!(
        o.out.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["UID", "PID", "PPID", "ARGS"]
    );
    Pass
}

fn opensnoop_prints_each_open_with_its_result() -> Verdict {
    let program = Program::shell("tk");
    let (there, none) = (program.file("there"), program.file("none"));
    std::fs::write(&there, "text").unwrap();
    let script = format!("exec 7<{there}; exec 8<{there}; (: <{none}); true");
    let tracing = start("opensnoop", &["-e", "-n", &program.name]);
    let pid = program.run(&["-c", &script]);
    let o = tracing.end().code(0);
    let lines = lines_with(&o, &program.file("there"));
    let row = |fd: i32| format!("0 {pid} {} {fd} 0 {there}", program.name);
    assert_eq!(lines, [row(3), row(3)], "{o:?}");
    let failed = lines_with(&o, &none);
    assert!(failed.len() == 1 && failed[0].ends_with(&format!("{} -1 2 {none}", program.name)), "{o:?}");
    // Only failures; only one path; only one process.
    let traced = [start("opensnoop", &["-x", "-n", &program.name]), start("opensnoop", &["-f", &there])];
    let pid = program.run(&["-c", &script]);
    let [failures, of_path] = traced.map(|tracing| tracing.end().code(0));
    assert_eq!(
        (lines_with(&failures, &none).len(), lines_with(&failures, &there).len()),
        (1, 0),
        "{failures:?}"
    );
    let row = format!("0 {pid} {} 3 {there}", program.name);
    assert_eq!(lines_with(&of_path, "/"), [&*row, &*row], "{of_path:?}");
    let tracing = start("opensnoop", &["-x", "-p", &std::process::id().to_string()]);
    // SAFETY: the kernel does not read at such an address.
    unsafe { libc::syscall(libc::SYS_open, 8, 0) };
    let bad = tracing.end().code(0);
    let lines = lines_with(&bad, "<bad address>");
    assert!(lines.len() == 1 && lines[0].ends_with(" -1 14 <bad address>"), "{bad:?}");
    Pass
}

fn rwsnoop_prints_each_write_with_its_bytes_and_file() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("rwsnoop", &["-P", "-n", &program.name]);
    let (pid, me) = (program.run(&["--workload", "write", "8"]), std::process::id());
    let o = tracing.end().code(0);
    let row = |bytes: u32| format!("0 {pid} {me} {} W {bytes} /dev/null", program.name);
    let expected: Vec<String> = (0..8).map(|n| row(1 << n)).collect();
    assert_eq!(lines_with(&o, "/dev/null"), expected, "{o:?}");
    Pass
}

fn errinfo_prints_and_counts_calls_that_fail() -> Verdict {
    let program = Program::workload("tk");
    let counting = start("errinfo", &["-c", "-n", &program.name]);
    let printing = start("errinfo", &["-n", &program.name]);
    let pid = program.run(&["--workload", "badclose", "50"]);
    let (counted, printed) = (counting.end().code(0), printing.end().code(0));
    let row = format!("{} close 9 Bad file descriptor", program.name);
    assert_eq!(lines_with(&counted, " close "), [format!("{row} 50")], "{counted:?}");
    let lines = lines_with(&printed, " close ");
    assert_eq!(lines, vec![format!("{pid} {row}"); 50], "{printed:?}");
    Pass
}

fn procsystime_counts_the_calls_of_a_program() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("procsystime", &["-a", "-T", "-n", &program.name]);
    program.run(&["--workload", "getppid", "700"]);
    let o = tracing.end().code(0);
    let of_call = lines_with(&o, " getppid ");
    assert_eq!(of_call.len(), 3, "{o:?}");
    assert_eq!(of_call[2], "getppid 700", "{o:?}");
    let number = |line: &str| line.split_whitespace().last().unwrap().parse::<u64>().unwrap();
    let totals: Vec<u64> = lines_with(&o, "TOTAL:").iter().map(|l| number(l)).collect();
    let [elapsed, cpu, calls] = totals[..] else { panic!("{o:?}") };
    assert!(elapsed >= number(&of_call[0]) && cpu >= number(&of_call[1]) && calls > 700, "{o:?}");
    assert!(number(&of_call[0]) > 700 && number(&of_call[1]) > 700, "{o:?}");
    // A command of its own.
    let command = workload("getppid", 300);
    let words: Vec<&str> = std::iter::once("-c").chain(command.split(' ')).collect();
    let o = run("procsystime", &words).code(0);
    assert_eq!(lines_with(&o, " getppid "), ["getppid 300"], "{o:?}");
    Pass
}

fn procsystime_prints_totals_only_where_they_are_chosen() -> Verdict {
    let command = workload("getppid", 300);
    for (options, totals) in [("-a", 0), ("-c", 0), ("-e", 0), ("-o", 0), ("-aT", 3), ("-cT", 1)] {
        let words: Vec<&str> = std::iter::once(options).chain(command.split(' ')).collect();
        let o = run("procsystime", &words).code(0);
        assert_eq!(lines_with(&o, "TOTAL:").len(), totals, "{options}: {o:?}");
        // No number without a name.
        let bare = o.out.lines().filter(|l| l.trim().parse::<u64>().is_ok());
        assert_eq!(bare.collect::<Vec<_>>(), [""; 0], "{options}: {o:?}");
    }
    Pass
}

fn syscallbypid_counts_the_calls_of_each_process() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("syscallbypid", &[]);
    let pids =
        [program.run(&["--workload", "getppid", "300"]), program.run(&["--workload", "getppid", "200"])];
    let o = tracing.end().code(0);
    let mut lines = lines_with(&o, " getppid ");
    lines.retain(|l| l.contains(&program.name));
    let row = |pid: u32, n: u32| format!("{pid} {} getppid {n}", program.name);
    assert_eq!(lines, [row(pids[1], 200), row(pids[0], 300)], "{o:?}");
    Pass
}

fn shortlived_counts_processes_by_program_and_parent() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("shortlived", &[]);
    // A shell that starts five others.
    let name = program.path().display().to_string();
    let pid = program.run(&["-c", &format!("for n in 1 2 3 4 5; do {name} -c 'exit 0'; done; exit 0")]);
    let o = tracing.end().code(0);
    let lines = lines_with(&o, &program.name);
    assert_eq!(lines.len(), 1, "{o:?}");
    assert!(lines[0].starts_with(&format!("{} 6 ", program.name)), "{o:?}");
    let mut of_parent = lines_with(&o, &format!("{pid} "));
    of_parent.retain(|l| l.starts_with(&format!("{pid} ")));
    assert!(of_parent.len() == 1 && of_parent[0].starts_with(&format!("{pid} 5 ")), "{o:?}");
    Pass
}

fn shortlived_sums_the_time_of_threads() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("shortlived", &[]);
    // Four threads, each with so many milliseconds of its own.
    let pid = program.run(&["--workload", "spinners", "100"]);
    let o = tracing.end().code(0);
    let row = lines_with(&o, &program.name);
    let words: Vec<&str> = row.first().map(|l| l.split(' ').collect()).unwrap_or_default();
    let [_, count, time, life] = words[..] else { panic!("{pid}: {o:?}") };
    let [time, life] = [time, life].map(|w| w.parse::<i64>().unwrap());
    assert_eq!(count, "1", "{o:?}");
    // What threads need to begin and end is theirs too. The kernel adds to the time at each tick of
    // its clock.
    assert!((360_000..800_000).contains(&time) && life >= time / 4, "{o:?}");
    Pass
}

fn killsnoop_selects_by_result_sender_and_target() -> Verdict {
    let program = Program::shell("tk");
    let me = std::process::id().to_string();
    let (failed, mine, to_me) =
        (start("killsnoop", &["-x"]), start("killsnoop", &["-p", &me]), start("killsnoop", &["-t", &me]));
    let pid = program.run(&["-c", &format!("kill -0 {me}; kill -0 4194399; kill -0 $$; exit 0")]);
    let all = [failed, mine, to_me].map(|tracing| {
        let o = tracing.end().code(0);
        let mut lines = lines_with(&o, &format!(" {} ", program.name));
        // The time is four words.
        lines.iter_mut().for_each(|l| *l = l.splitn(5, ' ').last().unwrap_or_default().to_string());
        lines
    });
    let row = |to: &str, result: i32| vec![format!("{pid} {} 0 {to} {result}", program.name)];
    assert_eq!(all, [row("4194399", -3), vec![], row(&me, 0)]);
    Pass
}

fn killsnoop_prints_each_signal_with_its_result() -> Verdict {
    let program = Program::shell("tk");
    let tracing = start("killsnoop", &[]);
    let pid = program.run(&["-c", "trap : USR1; kill -USR1 $$; kill -0 $$; kill -0 4194399; exit 0"]);
    let o = tracing.end().code(0);
    // The time is four words.
    let of = lines_with(&o, &format!(" {} ", program.name));
    let lines: Vec<&str> = of.iter().map(|l| l.splitn(5, ' ').last().unwrap()).collect();
    let name = &program.name;
    let row = |signal: i32, to: u32, result: i32| format!("{pid} {name} {signal} {to} {result}");
    assert_eq!(lines, [row(10, pid, 0), row(0, pid, 0), row(0, 4194399, -3)], "{o:?}");
    // With a value, and by a descriptor of the process.
    let tracing = start("killsnoop", &["-p", &std::process::id().to_string()]);
    let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let pid = child.id();
    // SAFETY: a signal that does nothing to a process of ours; an all-zero `siginfo_t` is valid.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_code = libc::SI_QUEUE;
        libc::syscall(libc::SYS_rt_sigqueueinfo, pid, libc::SIGCONT, &raw const info);
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGCONT, 0, 0);
        libc::close(fd as i32);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let o = tracing.end().code(0);
    let sent = lines_with(&o, &format!(" {pid} "));
    let signals: Vec<Option<&str>> = sent.iter().map(|l| l.rsplit(' ').nth(2)).collect();
    assert_eq!(signals, [Some("18"), Some("18"), Some("9")], "{o:?}");
    Pass
}

fn filebyproc_and_pathopens_name_the_files_that_are_opened() -> Verdict {
    let program = Program::shell("tk");
    let there = program.file("there");
    std::fs::write(&there, "text").unwrap();
    let (by_program, by_path) = (start("filebyproc", &[]), start("pathopens", &[]));
    let base = program.dir.file_name().unwrap().display().to_string();
    let script =
        format!("cd {0}; exec 7<there; exec 7<../{base}/there; exec 7<{0}/there", program.dir.display());
    program.run(&["-c", &script]);
    let (by_program, by_path) = (by_program.end().code(0), by_path.end().code(0));
    let row = |file: &str| format!("{} {file}", program.name);
    let expected = [row("there"), row(&format!("../{base}/there")), row(&there)];
    let mut lines = lines_with(&by_program, "there");
    lines.retain(|l| l.starts_with(&program.name));
    assert_eq!(lines, expected, "{by_program:?}");
    assert_eq!(lines_with(&by_path, &there), [format!("3 {there}")], "{by_path:?}");
    Pass
}

fn dtruss_prints_calls_with_arguments_and_results() -> Verdict {
    let program = Program::shell("tk");
    let (file, none) = (program.file("file"), program.file("none"));
    let script = format!("exec 7>{file}; echo 'a b' >&7; rm {none} 2>/dev/null; exit 3");
    let tracing = start("dtruss", &["-L", "-n", &program.name]);
    program.run(&["-c", &script]);
    let o = tracing.end().code(0);
    let opened = lines_with(&o, &file);
    let row = format!("openat(AT_FDCWD, \"{file}\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3 0");
    assert_eq!(opened, [row], "{o:?}");
    let written = lines_with(&o, "a b");
    assert_eq!(written, ["write(0x1, \"a b\\n\", 0x4) = 4 0"], "{o:?}");
    assert_eq!(lines_with(&o, "exit_group(0x3)"), ["exit_group(0x3)"], "{o:?}");
    // Counts, one call, times, stacks of a command.
    let command = workload("getppid", 300);
    let words = |options: &[&'static str]| -> Vec<String> {
        options.iter().map(ToString::to_string).chain(command.split(' ').map(String::from)).collect()
    };
    let dtruss = |options: &[&'static str]| {
        let words = words(options);
        run("dtruss", &words.iter().map(String::as_str).collect::<Vec<_>>()).code(0)
    };
    assert_eq!(lines_with(&dtruss(&["-c"]), "getppid"), ["getppid 300"]);
    let o = dtruss(&["-a", "-t", "getppid"]);
    let lines = lines_with(&o, "= ");
    let mut calls = lines.iter().filter(|l| l.contains("getppid("));
    assert_eq!(calls.clone().count(), 300, "{o:?}");
    let me = std::process::id();
    // The parent is the tool.
    assert!(calls.all(|l| l.ends_with(" 0") && !l.ends_with(&format!("= {me} 0"))), "{o:?}");
    assert_eq!(lines.len(), 301, "{o:?}");
    Pass
}

/// Makes the calls of [`dtruss_decodes_flags_and_modes_and_shows_each_argument_of_a_call`], in its
/// directory.
pub(crate) fn decoded() {
    let (file, none) = (c"decoded", c"no-such-file");
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let (shown, none_flags) = (libc::O_APPEND | libc::O_NONBLOCK, libc::O_DIRECTORY);
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let mine = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: strings that end with 0 and live, and memory that only this code uses.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), flags, 0o640);
        libc::syscall(libc::SYS_open, none.as_ptr(), none_flags, 0);
        libc::syscall(libc::SYS_pwrite64, fd, c"abc".as_ptr(), 3, 5);
        libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD);
        libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, shown);
        libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL);
        libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 100);
        libc::syscall(libc::SYS_socket, libc::AF_INET6, kind, 0);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let memory = libc::syscall(libc::SYS_mmap, 0, 0x2000, prot, mine, 0xffff_ffff_u64, 0_i64);
        libc::syscall(libc::SYS_mprotect, memory, 0x1000, libc::PROT_NONE);
        libc::syscall(libc::SYS_munmap, memory, 0x2000);
        libc::syscall(libc::SYS_copy_file_range, 999, 0, 998, 0, 16, 0_i64);
        libc::syscall(libc::SYS_unlink, file.as_ptr());
        libc::syscall(libc::SYS_getppid);
    }
}

fn dtruss_decodes_flags_and_modes_and_shows_each_argument_of_a_call() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("dtruss", &["-L", "-n", &program.name]);
    let status = program.command(&["--workload", "decodes", "1"]).current_dir(&program.dir).status().unwrap();
    assert!(status.success());
    let o = tracing.end().code(0);
    let lines = lines_with(&o, "(");
    let Some(from) = lines.iter().position(|l| l.contains("\"decoded\"")) else { panic!("{o:?}") };
    let result = |line: &String| line.rsplit(' ').nth(1).unwrap_or_default().to_string();
    let (fd, memory) = (result(&lines[from]), result(&lines[from + 8]));
    let socket = result(&lines[from + 7]);
    assert!(memory.starts_with("0x7f"), "{o:?}");
    let expected = [
        format!("openat(AT_FDCWD, \"decoded\", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0640) = {fd} 0"),
        "open(\"no-such-file\", O_RDONLY|O_DIRECTORY) = -1 Err#2".into(),
        format!("pwrite64(0x{fd}, \"abc\", 0x3, 0x5) = 3 0"),
        format!("fcntl(0x{fd}, F_GETFD) = 1 0"),
        format!("fcntl(0x{fd}, F_SETFL, O_RDONLY|O_APPEND|O_NONBLOCK) = 0 0"),
        format!("fcntl(0x{fd}, F_GETFL) = 0x8c02 0"),
        format!("fcntl(0x{fd}, F_DUPFD_CLOEXEC, 0x64) = 100 0"),
        format!("socket(AF_INET6, SOCK_DGRAM|SOCK_CLOEXEC, 0x0) = {socket} 0"),
        format!("mmap(0x0, 0x2000, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0x0) = {memory} 0"),
        format!("mprotect({memory}, 0x1000, PROT_NONE) = 0 0"),
        format!("munmap({memory}, 0x2000) = 0 0"),
        "copy_file_range(0x3e7, 0x0, 0x3e6, 0x0, 0x10, 0x0) = -1 Err#9".into(),
        "unlink(\"decoded\") = 0 0".into(),
        format!("getppid() = {} 0", std::process::id()),
    ];
    assert_eq!(
        lines[from..].iter().take(expected.len()).collect::<Vec<_>>(),
        expected.iter().collect::<Vec<_>>(),
        "{o:?}"
    );
    Pass
}

fn dtruss_follows_children() -> Verdict {
    let program = Program::shell("tk");
    let file = program.file("file");
    let script = format!("(exec 7>{file}.child); sh -c 'exec 7>{file}.program'; true");
    let opens = |options: &[&str]| {
        let tracing = start("dtruss", &[options, &["-t", "openat", "-n", &program.name]].concat());
        program.run(&["-c", &script]);
        let o = tracing.end().code(0);
        (lines_with(&o, &format!("{file}.child")).len(), lines_with(&o, &format!("{file}.program")).len())
    };
    assert_eq!(opens(&["-f"]), (1, 1));
    // The child has the name of its parent, the program another.
    assert_eq!(opens(&[]), (1, 0));
    Pass
}

fn fsslower_prints_calls_by_their_time() -> Verdict {
    let program = Program::new("tkdd", Some("/bin/dd"));
    let file = program.file("out");
    let [all, slow] = ["0", "600000"].map(|time| start("fsslower", &["-n", &program.name, time]));
    program.run(&["if=/dev/zero", &format!("of={file}"), "bs=1000", "count=3", "conv=fsync"]);
    let (all, slow) = (all.end().code(0), slow.end().code(0));
    // The time of day is four words. The latency is before the file.
    let row = |l: &String| {
        let words: Vec<&str> = l.split(' ').skip(6).collect();
        [&words[..3], &words[4..]].concat().join(" ")
    };
    let lines: Vec<String> = lines_with(&all, &file).iter().map(row).collect();
    let expected = ["O 0 0", "W 1000 0", "W 1000 0", "W 1000 1", "S 0 0"].map(|l| format!("{l} {file}"));
    assert_eq!(lines, expected, "{all:?}");
    assert_eq!(lines_with(&slow, &program.name), [""; 0], "{slow:?}");
    Pass
}

/// Hits, misses, pages that are written and the ratio, which `cachestat` shows of commands.
fn cached(commands: &str) -> [u64; 4] {
    let tracing = start("cachestat", &["3600"]);
    crate::blocks::run(commands).unwrap();
    let o = tracing.end().code(0);
    let row = |l: &str| -> Option<Vec<u64>> {
        l.split_whitespace().map(|w| w.trim_end_matches('%').parse().ok()).collect()
    };
    let rows: Vec<Vec<u64>> = o.out.lines().filter_map(row).filter(|r| !r.is_empty()).collect();
    let [Ok(row)] = rows.iter().map(|r| r.as_slice().try_into()).collect::<Vec<_>>()[..] else {
        panic!("{o:?}")
    };
    row
}

fn cachestat_counts_what_is_read_from_a_device_and_what_is_written() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let device = match crate::toolkit_io::device("tk-cache") {
        Ok(device) => device,
        Err(skip) => return skip,
    };
    // Its pages are in the cache while somebody has it open.
    let _open = std::fs::File::open(&device.path).unwrap();
    crate::blocks::run(&format!("blockdev --flushbufs {}", device.path)).unwrap();
    // 4 MB: 1,024 pages, of which the kernel may take up to 16 as one. Reading them again is 64
    // hits at least, each time.
    let read = format!("dd if={} of=/dev/null bs=64k count=64", device.path);
    let cold = cached(&read);
    let warm = cached(&format!("for n in 1 2 3 4 5 6 7 8; do {read}; done"));
    assert!(cold[1] >= 64 && warm[1] < cold[1] / 2, "{cold:?} {warm:?}");
    assert!(warm[0] >= 8 * 64 - warm[1] && warm[3] > 50, "{cold:?} {warm:?}");
    let written = cached(&format!("dd if=/dev/zero of={} bs=64k count=64 conv=notrunc", device.path));
    assert!(written[2] >= 64 && warm[2] < written[2] / 2, "{warm:?} {written:?}");
    Pass
}

fn cachestat_counts_hits_of_files_in_memory() -> Verdict {
    if let Some(skip) = no_functions() {
        return skip;
    }
    let program = Program::new("tkdd", Some("/bin/dd"));
    let file = testing::memory_dir().join(&program.name);
    std::fs::write(&file, vec![b'x'; 4 << 20]).unwrap();
    let tracing = start("cachestat", &["3600"]);
    for _ in 0..2 {
        program.run(&[&format!("if={}", file.display()), "of=/dev/null", "bs=4096"]);
    }
    let o = tracing.end().code(0);
    let _ = std::fs::remove_file(&file);
    let rows: Vec<Vec<u64>> = o
        .out
        .lines()
        .filter_map(|l| l.split_whitespace().map(|w| w.trim_end_matches('%').parse().ok()).collect())
        .collect();
    let rows: Vec<&Vec<u64>> = rows.iter().filter(|r| !r.is_empty()).collect();
    let [row] = rows[..] else { panic!("{o:?}") };
    let [hits, misses, _, ratio] = row[..] else { panic!("{o:?}") };
    assert!(hits >= 2000 && ratio == 100 * hits / (hits + misses), "{o:?}");
    Pass
}
