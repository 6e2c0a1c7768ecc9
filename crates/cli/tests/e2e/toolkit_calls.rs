//! Tools that print calls about files, sockets and threads, as they are made. Calls of this process
//! are known by paths, ports and numbers that no other has.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;

use crate::Verdict::{self, Pass};
use crate::machine::no_types;
use crate::toolkit::{Program, rows_with, start};
use crate::toolkit_net::me;

tests! {
    bindsnoop_prints_each_address_that_a_socket_is_bound_to
    solisten_prints_each_socket_that_listens
    mountsnoop_prints_mounts_and_unmounts_that_fail_too
    mountsnoop_prints_what_the_newer_calls_mount
    filelife_prints_the_age_of_files_that_were_made_and_removed
    filelife_follows_names_and_forgets_what_others_remove
    filegone_prints_what_is_removed_and_renamed
    filetop_and_fileslower_show_the_bytes_of_each_file
    filetop_prints_only_so_many_lines
    tools_for_files_leave_out_what_is_no_regular_file
    statsnoop_prints_each_path_with_its_error
    syncsnoop_prints_each_call_that_writes_a_file_out
    threadsnoop_prints_each_thread_but_the_first
    naptime_prints_the_time_that_a_thread_asks_for
    naptime_reads_a_request_before_the_kernel_writes_the_rest_to_it
}

/// The id of this process, as an operand.
fn own_pid() -> String {
    std::process::id().to_string()
}

/// Lines without their first words: the time of day has four.
fn without(words: usize, lines: &[String]) -> Vec<String> {
    lines.iter().map(|l| l.splitn(words + 1, ' ').last().unwrap().to_string()).collect()
}

fn bindsnoop_prints_each_address_that_a_socket_is_bound_to() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let path = place.file("socket");
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let [all, failed] =
        [&["-p", &own_pid()][..], &["-x", "-p", &own_pid()]].map(|words| start("bindsnoop", words));
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let again = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).unwrap();
    let local = UnixListener::bind(&path).unwrap();
    let (all, failed) = (all.end().code(0), failed.end().code(0));
    assert!(again.is_err());
    let row = |fd: i32, result: i32, what: &str| format!("{} {fd} {result} {what}", me());
    let of_port = |o| {
        let mut lines = rows_with(o, &format!(" {port} "));
        // The descriptor of the call that failed is not known.
        lines.iter_mut().filter(|l| l.contains(" -98 ")).for_each(|l| *l = format!("{port} is in use"));
        lines
    };
    let v4 = row(v4.as_raw_fd(), 0, &format!("{port} 127.0.0.1"));
    let v6 = row(v6.as_raw_fd(), 0, &format!("{port} ::1"));
    assert_eq!(of_port(&all), [v4, format!("{port} is in use"), v6], "{all:?}");
    assert_eq!(rows_with(&all, &path), [row(local.as_raw_fd(), 0, &format!("- {path}"))], "{all:?}");
    assert_eq!(of_port(&failed), [format!("{port} is in use")], "{failed:?}");
    assert_eq!(rows_with(&failed, &path), [""; 0], "{failed:?}");
    Pass
}

fn solisten_prints_each_socket_that_listens() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let local = UnixListener::bind(place.file("socket")).unwrap();
    let fds = [v4.as_raw_fd(), v6.as_raw_fd(), local.as_raw_fd()];
    let tracing = start("solisten", &["-p", &own_pid()]);
    // Queues of a length that no other test has.
    for (fd, backlog) in fds.iter().zip([1711, 1712, 1713]) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::listen(*fd, backlog) }, 0);
    }
    // SAFETY: as above. There is no such descriptor.
    assert_eq!(unsafe { libc::listen(99_999, 1714) }, -1);
    let o = tracing.end().code(0);
    let [a, b] = [&v4, &v6].map(|l| l.local_addr().unwrap().port());
    let expected = [
        format!("{} {} 1711 0 TCP {a} 127.0.0.1", me(), fds[0]),
        format!("{} {} 1712 0 TCP {b} ::1", me(), fds[1]),
        format!("{} {} 1713 0 - - -", me(), fds[2]),
        format!("{} 99999 1714 -9 - - -", me()),
    ];
    assert_eq!(rows_with(&o, " 171"), expected, "{o:?}");
    Pass
}

fn mountsnoop_prints_mounts_and_unmounts_that_fail_too() -> Verdict {
    let target = std::ffi::CString::new(format!("/dt-no-such-{}", own_pid())).unwrap();
    let tracing = start("mountsnoop", &[]);
    // SAFETY: strings that live across the calls. There is no such directory.
    let results = unsafe {
        let flags = libc::MS_RDONLY | libc::MS_NOSUID;
        let mounted =
            libc::mount(c"dt-source".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), flags, std::ptr::null());
        (mounted, libc::umount2(target.as_ptr(), libc::MNT_DETACH))
    };
    let o = tracing.end().code(0);
    assert_eq!(results, (-1, -1));
    let target = target.to_string_lossy();
    let expected = [
        format!("{} mount -2 tmpfs 3 {target} dt-source", me()),
        format!("{} umount2 -2 - 2 {target} -", me()),
    ];
    assert_eq!(rows_with(&o, &target), expected, "{o:?}");
    Pass
}

fn mountsnoop_prints_what_the_newer_calls_mount() -> Verdict {
    let target = std::ffi::CString::new(format!("/dt-no-such-{}", own_pid())).unwrap();
    let tracing = start("mountsnoop", &[]);
    // SAFETY: strings that live across the calls, and descriptors of our own. What is made has no
    // place, and is gone with its descriptor.
    let results = unsafe {
        let (set_string, create, from_fd) = (1, 6, 4);
        let context = libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0);
        libc::syscall(libc::SYS_fsconfig, context, set_string, c"source".as_ptr(), c"dt-new".as_ptr(), 0);
        libc::syscall(libc::SYS_fsconfig, context, create, 0, 0, 0);
        let mount = libc::syscall(libc::SYS_fsmount, context, 0, 0);
        let moved = |to: *const libc::c_char| {
            libc::syscall(libc::SYS_move_mount, mount, c"".as_ptr(), libc::AT_FDCWD, to, from_fd)
        };
        let first = moved(target.as_ptr());
        libc::close(mount as i32);
        libc::close(context as i32);
        // The descriptors have other files now.
        let closed = moved(target.as_ptr());
        [context.signum(), mount.signum(), first, closed]
    };
    let o = tracing.end().code(0);
    if results[0] < 0 || results[1] < 0 {
        return Verdict::Skip("this user may mount nothing".into());
    }
    assert_eq!(results[2..], [-1, -1]);
    let target = target.to_string_lossy();
    let rows = rows_with(&o, &target);
    let expected = format!("{} move_mount -2 tmpfs 4 {target} dt-new", me());
    assert!(rows.len() == 2 && rows[0] == expected, "{o:?}");
    assert!(rows[1].contains(" - 4 ") && rows[1].ends_with(" -"), "{o:?}");
    Pass
}

fn filelife_prints_the_age_of_files_that_were_made_and_removed() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let (old, new) = (place.file("old"), place.file("new"));
    std::fs::write(&old, "text").unwrap();
    let tracing = start("filelife", &["-p", &own_pid()]);
    std::fs::write(&new, "text").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    std::fs::remove_file(&new).unwrap();
    std::fs::remove_file(&old).unwrap();
    let o = tracing.end().code(0);
    assert_eq!(rows_with(&o, &old), [""; 0], "{o:?}");
    let rows = without(4, &rows_with(&o, &new));
    let [row] = &rows[..] else { panic!("{o:?}") };
    let age = row.strip_prefix(&format!("{} ", me())).and_then(|l| l.strip_suffix(&format!(" {new}")));
    assert!(age.and_then(|a| a.parse::<u64>().ok()).is_some_and(|a| a >= 30), "{o:?}");
    Pass
}

fn filelife_follows_names_and_forgets_what_others_remove() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let place = Program::shell("tk");
    let (made, renamed, other, old) =
        (place.file("made"), place.file("renamed"), place.file("other"), place.file("old"));
    std::fs::write(&old, "text").unwrap();
    let tracing = start("filelife", &["-p", &own_pid()]);
    std::fs::write(&made, "text").unwrap();
    std::fs::rename(&made, &renamed).unwrap();
    std::fs::remove_file(&renamed).unwrap();
    // Another process removes this one. An old file has its name then, and is not one that was
    // made.
    std::fs::write(&other, "text").unwrap();
    assert!(std::process::Command::new("rm").arg(&other).status().unwrap().success());
    std::fs::hard_link(&old, &other).unwrap();
    std::fs::remove_file(&other).unwrap();
    let o = tracing.end().code(0);
    let rows = rows_with(&o, &place.dir.display().to_string());
    assert!(rows.len() == 1 && rows[0].ends_with(&format!(" {renamed}")), "{o:?}");
    Pass
}

fn filegone_prints_what_is_removed_and_renamed() -> Verdict {
    let place = Program::shell("tk");
    let (a, b, dir) = (place.file("a"), place.file("b"), place.file("dir"));
    std::fs::write(&a, "text").unwrap();
    std::fs::create_dir(&dir).unwrap();
    let tracing = start("filegone", &["-p", &own_pid()]);
    std::fs::rename(&a, &b).unwrap();
    assert!(std::fs::remove_file(&a).is_err());
    std::fs::remove_file(&b).unwrap();
    std::fs::remove_dir(&dir).unwrap();
    let o = tracing.end().code(0);
    let row = |what: String| format!("{} {what}", me());
    let expected = [format!("RENAME {a} -> {b}"), format!("REMOVE {b}"), format!("REMOVE {dir}")].map(row);
    let rows = without(4, &rows_with(&o, &place.dir.display().to_string()));
    assert_eq!(rows, expected, "{o:?}");
    Pass
}

fn filetop_and_fileslower_show_the_bytes_of_each_file() -> Verdict {
    let program = Program::new("tkdd", Some("/bin/dd"));
    let file = program.file("out");
    let top = start("filetop", &["-C", "-n", &program.name, "3600"]);
    let [all, slow] = ["0", "600000"].map(|time| start("fileslower", &["-n", &program.name, time]));
    let pid = program.run(&["if=/dev/zero", &format!("of={file}"), "bs=1000", "count=3"]);
    let (top, all, slow) = (top.end().code(0), all.end().code(0), slow.end().code(0));
    let row = format!("{pid} {} 3000 0 3 0 3000 {file}", program.name);
    assert_eq!(rows_with(&top, &file), [row], "{top:?}");
    // /dev/zero is no file.
    assert_eq!(rows_with(&top, "/dev/zero"), [""; 0], "{top:?}");
    // The latency is before the file.
    let row = |l: &String| {
        let words: Vec<&str> = l.split(' ').skip(4).collect();
        [&words[..4], &words[5..]].concat().join(" ")
    };
    let rows: Vec<String> = rows_with(&all, &file).iter().map(row).collect();
    assert_eq!(rows, vec![format!("{} {pid} W 1000 {file}", program.name); 3], "{all:?}");
    assert_eq!(rows_with(&slow, &program.name), [""; 0], "{slow:?}");
    Pass
}

fn filetop_prints_only_so_many_lines() -> Verdict {
    let program = Program::new("tkdd", Some("/bin/dd"));
    let top = start("filetop", &["-C", "-r", "2", "-n", &program.name, "3600"]);
    // Other files than these are read by the loader.
    for (name, size) in [("a", "100000"), ("b", "300000"), ("c", "200000")] {
        program.run(&[
            "if=/dev/zero",
            &format!("of={}", program.file(name)),
            &format!("bs={size}"),
            "count=9",
        ]);
    }
    let o = top.end().code(0);
    let rows = rows_with(&o, &program.name);
    let files: Vec<&str> = rows.iter().filter_map(|l| l.rsplit('/').next()).collect();
    assert_eq!(files, ["c", "b"], "{o:?}");
    Pass
}

fn tools_for_files_leave_out_what_is_no_regular_file() -> Verdict {
    if let Some(skip) = no_types() {
        return skip;
    }
    let program = Program::new("tkdd", Some("/bin/dd"));
    let (pipe, file) = (program.file("pipe"), program.file("file"));
    if !std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
        return Verdict::Skip("mkfifo is not installed".into());
    }
    let tools = [&["filetop", "-C", "-n"][..], &["fileslower", "-n"], &["fsslower", "-n"]];
    let mut tracing = Vec::new();
    for words in tools {
        let zero: &[&str] = if words[0] == "filetop" { &["3600"] } else { &["0"] };
        tracing.push(start(words[0], &[&words[1..], &[&program.name], zero].concat()));
    }
    // A pipe with a name is on the file system of a file.
    let mut reader =
        std::process::Command::new("cat").arg(&pipe).stdout(std::process::Stdio::null()).spawn().unwrap();
    program.run(&["if=/dev/zero", &format!("of={pipe}"), "bs=1000", "count=3"]);
    program.run(&["if=/dev/zero", &format!("of={file}"), "bs=1000", "count=3"]);
    reader.wait().unwrap();
    for t in tracing {
        let o = t.end().code(0);
        assert_eq!(rows_with(&o, &pipe), [""; 0], "{o:?}");
        assert!(!rows_with(&o, &file).is_empty(), "{o:?}");
    }
    Pass
}

fn statsnoop_prints_each_path_with_its_error() -> Verdict {
    let place = Program::shell("tk");
    let (there, none) = (place.file("there"), place.file("none"));
    std::fs::write(&there, "text").unwrap();
    let [all, failed] =
        [&["-p", &own_pid()][..], &["-x", "-p", &own_pid()]].map(|words| start("statsnoop", words));
    assert!(std::fs::metadata(&there).is_ok() && std::fs::symlink_metadata(&none).is_err());
    let (all, failed) = (all.end().code(0), failed.end().code(0));
    let row = |errno: i32, path: &str| format!("{} {errno} {path}", me());
    let dir = place.dir.display().to_string();
    assert_eq!(rows_with(&all, &dir), [row(0, &there), row(2, &none)], "{all:?}");
    assert_eq!(rows_with(&failed, &dir), [row(2, &none)], "{failed:?}");
    Pass
}

fn syncsnoop_prints_each_call_that_writes_a_file_out() -> Verdict {
    let place = Program::shell("tk");
    let path = place.file("file");
    let file = std::fs::File::create(&path).unwrap();
    let tracing = start("syncsnoop", &["-p", &own_pid()]);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    // SAFETY: no pointers. There is no such descriptor.
    assert_eq!(unsafe { libc::fsync(99_999) }, -1);
    let o = tracing.end().code(0);
    // Latency and result are before the file.
    let rows = without(4, &rows_with(&o, &path));
    let calls: Vec<&str> = rows.iter().filter_map(|l| l.rsplitn(4, ' ').last()).collect();
    assert_eq!(calls, [format!("{} fsync", me()), format!("{} fdatasync", me())], "{o:?}");
    let results: Vec<&str> = rows.iter().filter_map(|l| l.rsplit(' ').nth(1)).collect();
    assert_eq!(results, ["0", "0"], "{o:?}");
    // A call that fails too.
    assert_eq!(rows_with(&o, " -9 ").len(), 1, "{o:?}");
    Pass
}

fn threadsnoop_prints_each_thread_but_the_first() -> Verdict {
    let program = Program::workload("tk");
    let tracing = start("threadsnoop", &["-n", &program.name]);
    let pid = program.run(&["--workload", "threads", "1"]);
    let o = tracing.end().code(0);
    let rows = without(4, &rows_with(&o, &program.name));
    let start = format!("{pid} {} {pid} ", program.name);
    let mut threads: Vec<u32> = rows.iter().filter_map(|l| l.strip_prefix(&start)?.parse().ok()).collect();
    threads.dedup();
    assert!(rows.len() == 4 && threads.len() == 4 && !threads.contains(&pid), "{o:?}");
    Pass
}

fn naptime_prints_the_time_that_a_thread_asks_for() -> Verdict {
    let program = Program::new("tkslp", Some("/bin/sleep"));
    let tracing = start("naptime", &["-n", &program.name]);
    let pid = program.run(&["0.25"]);
    let o = tracing.end().code(0);
    let rows = without(4, &rows_with(&o, &program.name));
    let [row] = &rows[..] else { panic!("{o:?}") };
    let comm = me();
    let slept = row.strip_prefix(&format!("{comm} {pid} {} 250000 ", program.name));
    assert!(slept.and_then(|w| w.parse::<u64>().ok()).is_some_and(|us| us >= 250_000), "{o:?}");
    Pass
}

/// Does nothing, so that a call is interrupted.
extern "C" fn interrupted(_: libc::c_int) {}

fn naptime_reads_a_request_before_the_kernel_writes_the_rest_to_it() -> Verdict {
    // SAFETY: a function that does nothing, for a signal that nobody else here uses. Without
    // SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupted as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGRTMAX(), &raw const action, std::ptr::null_mut()), 0);
    }
    let tracing = start("naptime", &["-p", &own_pid()]);
    let sleeper = std::thread::spawn(|| {
        let mut time = libc::timespec { tv_sec: 1000, tv_nsec: 0 };
        // SAFETY: one struct, for the time and for what is left of it.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw mut time, &raw mut time) };
        time.tv_sec
    });
    use std::os::unix::thread::JoinHandleExt;
    let thread = sleeper.as_pthread_t();
    // A signal before it sleeps has no effect.
    while !sleeper.is_finished() {
        // SAFETY: a thread that is not joined.
        unsafe { libc::pthread_kill(thread, libc::SIGRTMAX()) };
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let left = sleeper.join().unwrap();
    let o = tracing.end().code(0);
    assert!(left < 1000, "{left}");
    let asked = rows_with(&o, " 1000000000 ").len();
    assert_eq!((asked, o.err.as_str()), (1, ""), "{o:?}");
    Pass
}
