//! The watcher on the running kernel.

use std::process::{Command, Stdio};
use std::time::Duration;

use testing::{HANG_LIMIT, eventually};

use super::*;

fn cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let ranges = text.trim().split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    ranges.flatten().collect()
}

/// `None` without the privilege (CAP_PERFMON).
fn open(ring_bytes: usize) -> Option<Watcher> {
    Watcher::open_with(&cpus(), ring_bytes, Limits::default()).ok()
}

fn run(command: &str) -> u32 {
    let mut child = Command::new("sh").args(["-c", command]).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    pid
}

fn files(image: &Image) -> Vec<String> {
    let name = |m: &Mapping| match &m.object {
        Object::File(file) => Some(String::from_utf8_lossy(&file.path).into_owned()),
        _ => None,
    };
    image.mappings().filter_map(name).collect()
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_process_that_has_ended_is_known_with_its_programs_and_their_mappings() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    let pid = run("exec true");
    w.update();
    let images = w.images(pid).to_vec();
    // The fork of this process, the shell, and what it executed.
    assert_eq!(images.iter().map(|i| i.generation.execs).collect::<Vec<_>>(), [0, 1, 2], "{images:?}");
    assert!(images.iter().all(|i| i.ended.is_some() && i.parent == std::process::id()));
    let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    assert!(files(&images[0]).contains(&own) || images[0].mappings().next().is_none(), "{images:?}");
    for (image, name) in images[1..].iter().zip(["sh", "true"]) {
        assert_eq!(&image.name[..], name.as_bytes());
        assert!(files(image).iter().any(|f| f.ends_with("libc.so.6")), "{image:?}");
        assert!(image.mappings().any(|m| m.object == Object::Vdso), "{image:?}");
    }
    let libc = images[2].mappings().find_map(|m| match &m.object {
        Object::File(file) if file.path.ends_with(b"libc.so.6") => Some(file.clone()),
        _ => None,
    });
    let libc = libc.unwrap();
    assert!(libc.build_id.is_some() || libc.inode != 0);
    let here = std::fs::read_link("/proc/self/ns/mnt").unwrap().to_string_lossy().into_owned();
    assert!(here.contains(&libc.mount_namespace.to_string()), "{here} {libc:?}");
}

#[test]
fn processes_that_run_already_are_read_from_proc() {
    if open(RING).is_none() {
        return testing::skipped!("perf's side-band cannot be opened");
    }
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let mut w = open(RING).unwrap();
    assert!(w.images(child.id()).is_empty());
    assert!(w.scan(later()));
    // The child may have been before its exec; then a record has told of it.
    w.update();
    let image = w.images(child.id()).last().unwrap();
    assert!(image.ended.is_none());
    assert!(files(image).iter().any(|f| f.ends_with("sleep")), "{image:?}");
    assert!(w.running().any(|(pid, _)| pid == std::process::id()));
    assert!(w.cgroup(child.id()).is_some_and(|path| path.starts_with('/')));
    child.kill().unwrap();
    child.wait().unwrap();
    w.update();
    assert!(w.images(child.id()).last().unwrap().ended.is_some());
    assert!(w.cgroup(child.id()).is_some());
}

#[test]
fn lost_records_are_noticed_and_running_processes_are_read_again() {
    // The smallest ring: a page holds about three processes.
    let Some(mut w) = open(1) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    w.update();
    w.take_lost();
    let known_to_end = Command::new("sleep").arg("0.05").spawn().unwrap();
    let (ends, mut child) = (known_to_end.id(), known_to_end);
    w.update();
    for _ in 0..100 {
        run("true");
    }
    let mut runs = Command::new("sleep").arg("100").spawn().unwrap();
    child.wait().unwrap();
    for _ in 0..50 {
        run("true");
    }
    // The kernel reports a loss with the next record for which there is space.
    w.update();
    for _ in 0..4 {
        run("true");
        w.update();
    }
    assert!(w.take_lost() > 0);
    let is_known = |w: &Watcher| w.images(runs.id()).last().is_some_and(|i| files(i).len() > 1);
    eventually("both processes", HANG_LIMIT, || {
        w.update();
        w.scan(later());
        is_known(&w) && w.images(ends).last().is_none_or(|i| i.ended.is_some())
    });
    let image = w.images(runs.id()).last().unwrap();
    assert!(image.ended.is_none() && files(image).iter().any(|f| f.ends_with("sleep")), "{image:?}");
    assert!(w.images(ends).last().is_none_or(|i| i.ended.is_some()));
    runs.kill().unwrap();
    runs.wait().unwrap();
}

#[test]
fn a_library_that_is_loaded_later_and_code_without_a_file_are_known() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.read(std::process::id());
    let code = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping, which is never written or executed.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, code, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    w.update();
    let image = w.image_with(std::process::id(), at as u64).unwrap();
    assert_eq!(image.find(at as u64).unwrap().object, Object::Anonymous);
    // SAFETY: the mapping is not used any more.
    unsafe { libc::munmap(at, 4096) };
}

#[test]
fn the_descriptor_is_readable_when_a_ring_fills() {
    use std::os::fd::AsRawFd;
    let Some(mut w) = open(32 << 10) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.update();
    for _ in 0..50 {
        run("true");
    }
    let fd = w.poll_fd().as_raw_fd();
    assert!(crate::poll_readable(&[fd], Duration::from_secs(60)).unwrap()[0]);
}

#[test]
fn the_namespace_that_a_process_enters_is_known_when_it_executes_a_program() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    let child = Command::new("unshare").args(["--mount", "sleep", "100"]).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return testing::skipped!("no unshare") };
    let pid = child.id();
    let name = |w: &Watcher| w.images(pid).last().map(|image| image.name.clone());
    let has_ended = eventually("the program", HANG_LIMIT, || {
        w.update();
        let has_ended = child.try_wait().unwrap().is_some();
        (has_ended || name(&w).as_deref() == Some(b"sleep")).then_some(has_ended)
    });
    if has_ended {
        return testing::skipped!("no mount namespace can be made here");
    }
    let own = w.images(std::process::id()).last().unwrap().mount_namespace();
    let entered = w.images(pid).last().unwrap().mount_namespace();
    assert!(own != 0 && entered != 0 && own != entered, "{own} {entered}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_that_blocks_its_map_does_not_block_the_watcher() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let dir = std::env::temp_dir().join(format!("watcher-blocked-{}", std::process::id()));
    let fuse = match testing::fuse::Fuse::mount(&dir, vec![("file", vec![1; 8192])]) {
        Ok(fuse) => fuse,
        Err(why) => return testing::skipped!("{why}"),
    };
    let blocked = fuse.process_that_blocks_its_map("file").unwrap();
    w.read_again();
    eventually("all other processes", HANG_LIMIT, || w.scan(Instant::now() + Duration::from_millis(2)));
    // All others are known.
    assert!(w.images(std::process::id()).last().unwrap().mappings().next().is_some());
    if w.scanner.blocked() == 0 {
        drop(fuse);
        blocked.wait();
        return testing::skipped!("the map of a process that maps a file can be read here");
    }
    // Nothing waits for it again, and it is reported once.
    assert!(!w.read(blocked.pid));
    w.read_if_unread(blocked.pid);
    assert_eq!(w.scanner.blocked(), 1);
    eventually("the time", HANG_LIMIT, || w.blocked.iter().all(|reading| reading.since.elapsed() >= BLOCKED));
    assert_eq!((w.take_blocked(), w.take_blocked()), (vec![blocked.pid], vec![]));
    // When the reading returns, the process can be read again.
    drop(fuse);
    blocked.wait();
    eventually("the end of the reading", HANG_LIMIT, || w.scanner.blocked() == 0);
    assert!(w.scan(later()) && w.blocked.is_empty() && w.scanner.blocked() == 0);
}

#[test]
fn while_records_are_lost_all_the_time_proc_is_read_again_once_a_second() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    let mut times = vec![w.read_at];
    eventually("two more readings", HANG_LIMIT, || {
        w.is_stale = true;
        w.update();
        // A reading is completed before the next one begins.
        let (is_complete, began) = (w.unread.is_empty(), w.read_at);
        w.is_stale = true;
        w.update();
        assert!(is_complete || w.read_at == began);
        w.scan(later());
        if w.read_at != times[times.len() - 1] {
            times.push(w.read_at);
        }
        times.len() == 3
    });
    assert!(times.windows(2).all(|t| t[1] - t[0] >= READ_INTERVAL), "{times:?}");
}

#[test]
fn a_child_does_not_have_the_mappings_of_a_program_that_its_parent_executed_later() {
    let text = "exec 3<&0; read x; ( read y ) <&3 & exec sleep 100";
    let mut parent = Command::new("sh").args(["-c", text]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = parent.stdin.take().unwrap();
    let pid = parent.id();
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let own = program(std::process::id());
    eventually("the shell", HANG_LIMIT, || program(pid) != own);
    let Some(mut w) = open(RING) else {
        parent.kill().unwrap();
        parent.wait().unwrap();
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let shell = program(pid);
    // The shell forks and executes a program before the watcher has read it.
    io::Write::write_all(&mut input, b"\n").unwrap();
    eventually("the program", HANG_LIMIT, || {
        w.update();
        w.images(pid).last().is_some_and(|image| files(image).iter().any(|file| file.ends_with("sleep")))
    });
    let child = w.running().find(|(_, image)| image.parent == pid).unwrap().0;
    assert_eq!(program(child), shell);
    let has = |w: &Watcher, name: &str| files(&w.images(child)[0]).iter().any(|file| file.ends_with(name));
    // A reading that took too long is repeated.
    eventually("the mappings of the child", HANG_LIMIT, || {
        w.scan(later());
        let known = || format!("{shell:?}, {:?}", w.images(child));
        has(&w, &shell.to_string_lossy()).then_some(()).ok_or_else(known)
    });
    assert!(!has(&w, "sleep"), "{:?}", w.images(child));
    let image = &w.images(child)[0];
    assert_ne!(image.mount_namespace(), 0);
    parent.kill().unwrap();
    parent.wait().unwrap();
}

#[test]
fn the_child_of_a_parent_that_cannot_be_read_is_read_itself() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    // No process has this number, and a record has told a part of what it has mapped.
    let (pid, parent) = (child.id(), 5_000_000);
    // A record of a fork that is much later begins another process.
    eventually("the time", HANG_LIMIT, || {
        w.update();
        w.images(pid).last().is_some_and(|image| image.began + 2 * table::SAME_START < ring::now())
    });
    let (start, end, offset, path) = (0x1000, 0x2000, 0, b"/part".to_vec());
    let file = FileIdentity::Inode((0, 0), 1);
    let map = Event::Map { pid: parent, start, end, offset, file, path };
    let fork = Event::Fork { pid, tid: pid, ppid: parent };
    for event in [map, fork] {
        w.pending.push(Record { time: ring::now(), event });
    }
    w.unread.push(parent);
    eventually("what the child has mapped", HANG_LIMIT, || {
        w.update();
        files(w.images(pid).last().unwrap()).iter().any(|file| file.ends_with("sleep"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_cpu_that_cannot_be_watched_is_no_reason_to_read_proc_again() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let all = cpus();
    w.follow_cpus(&all[..1]).unwrap();
    // The CPUs behind the missing one are watched.
    assert!(w.follow_cpus(&[&all[..1], &[1 << 20]].concat()).is_err());
    assert!(!w.is_stale);
    assert!(w.follow_cpus(&[&[1 << 20], &all[..]].concat()).is_err());
    assert_eq!((w.rings.len(), w.is_stale), (all.len(), all.len() > 1));
}

#[test]
fn a_cpu_that_was_offline_is_watched_again() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    let all = cpus();
    w.follow_cpus(&all[..1]).unwrap();
    assert_eq!(w.rings.iter().map(Ring::cpu).collect::<Vec<_>>(), all[..1]);
    // Perhaps on the CPU that is not watched: it is found when `/proc` is read.
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    w.follow_cpus(&all).unwrap();
    assert_eq!(w.rings.len(), all.len());
    eventually("the process", HANG_LIMIT, || {
        w.update();
        w.scan(later());
        w.images(child.id()).last().is_some_and(|i| &*i.name == b"sleep")
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_changes_of_a_process_are_told_in_order() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    w.scan(later());
    w.update();
    let mut cursor = w.cursor();
    let pid = run("exec true");
    w.update();
    let Changes { list, missed } = w.changes(&mut cursor);
    assert!(!missed);
    let (mut text, mut libc) = (String::new(), 0);
    for change in list {
        match change {
            Change::Started { pid: p, .. } if p == pid => text.push('s'),
            Change::Executed { pid: p, .. } if p == pid => text.push('x'),
            Change::Ended { pid: p, .. } if p == pid => text.push('e'),
            Change::Mapped { pid: p, file, .. } if p == pid => {
                libc += u32::from(file.path.ends_with(b"libc.so.6"));
            }
            _ => {}
        }
    }
    // A process, `sh`, `true`, and the end. Each program ends before the next one begins.
    assert_eq!((&text[..], libc), ("sexexe", 2));
}

#[test]
fn a_process_whose_parent_was_not_read_yet_has_the_mount_namespace_of_its_parent() {
    let Some(mut w) = open(RING) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let pid = run("exec true");
    w.update();
    let here = std::fs::read_link("/proc/self/ns/mnt").unwrap().to_string_lossy().into_owned();
    for image in &w.images(pid)[1..] {
        assert!(here.contains(&format!("[{}]", image.mount_namespace())), "{here} {image:?}");
    }
}
