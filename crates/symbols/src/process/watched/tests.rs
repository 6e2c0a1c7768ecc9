//! Processes that have ended before their addresses are looked up.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proc::watcher::Generation;

use super::*;

fn cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let ranges = text.trim().split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    ranges.flatten().collect()
}

/// Names by a watcher; `None` without the privilege.
fn watching() -> Option<(Processes, SharedWatcher)> {
    let watcher = Arc::new(Mutex::new(Watcher::open(&cpus()).ok()?));
    let mut processes = Processes::default();
    processes.set_watcher(Some(watcher.clone()));
    while !processes.watch() {}
    Some((processes, watcher))
}

fn run(program: &Path) -> u32 {
    let mut child = Command::new(program).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    pid
}

/// The entry point of an ELF file, as an offset in the file.
fn entry_offset(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (entry, first) = (word(24), word(32) as usize);
    let count = u16::from_le_bytes(bytes[56..58].try_into().unwrap()) as usize;
    let segments = (0..count).map(|n| first + n * 56);
    let holds = |at: &usize| (word(at + 16)..word(at + 16) + word(at + 32)).contains(&entry);
    let loads = segments.filter(|at| bytes[*at] == 1);
    let at = loads.into_iter().find(holds).unwrap();
    entry - word(at + 16) + word(at + 8)
}

/// The address of an offset of a file in the last program of a pid.
fn address_in(watcher: &Mutex<Watcher>, pid: u32, file: &str, offset: u64) -> u64 {
    let mut watcher = lock(watcher);
    watcher.update();
    let image = watcher.images(pid).last().unwrap();
    let hit = image.mappings().find(|m| match &m.object {
        Object::File(f) => {
            f.path.ends_with(file.as_bytes()) && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
        }
        _ => false,
    });
    let mapping = hit.unwrap_or_else(|| panic!("{image:?}"));
    mapping.start + (offset - mapping.offset)
}

/// This test's executable, which has symbols, ends at once when it only lists its tests.
fn own_copy(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("symbols-{name}-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    path
}

#[test]
fn processes_that_were_never_read_have_names_after_their_end() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let program = own_copy("ended");
    let offset = entry_offset(&program);
    let mut ended = Vec::new();
    for _ in 0..20 {
        let mut child = Command::new(&program).arg("--list").stdout(Stdio::null()).spawn().unwrap();
        child.wait().unwrap();
        ended.push(child.id());
    }
    let file = program.file_name().unwrap().to_str().unwrap();
    for pid in ended {
        let addr = address_in(&watcher, pid, file, offset);
        assert_eq!(p.name(pid, 0, addr).to_string(), format!("{file}`_start"));
        assert_eq!(p.func_start(pid, 0, addr + 1), addr);
        assert!(p.module_start(pid, 0, addr) < addr);
    }
    assert_eq!(p.take_messages(), [""; 0]);
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn a_file_that_is_removed_after_it_was_seen_has_names() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let program = own_copy("removed");
    let (file, offset) = (program.file_name().unwrap().to_str().unwrap().to_owned(), entry_offset(&program));
    let mut child = Command::new(&program).arg("--list").stdout(Stdio::null()).spawn().unwrap();
    child.wait().unwrap();
    p.watch();
    std::fs::remove_file(&program).unwrap();
    let addr = address_in(&watcher, child.id(), &file, offset);
    assert_eq!(p.name(child.id(), 0, addr).to_string(), format!("{file}`_start"));
}

#[test]
fn a_file_that_another_one_has_replaced_has_no_wrong_names() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let program = own_copy("replaced");
    let (file, offset) = (program.file_name().unwrap().to_str().unwrap().to_owned(), entry_offset(&program));
    let mut child = Command::new(&program).arg("--list").stdout(Stdio::null()).spawn().unwrap();
    child.wait().unwrap();
    // Not seen by `watch` before the path names another file.
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/true", &program).unwrap();
    let addr = address_in(&watcher, child.id(), &file, offset);
    assert_eq!(p.name(child.id(), 0, addr).to_string(), format!("{file}`0x{addr:x}"));
    std::fs::remove_file(&program).unwrap();
}

/// The descriptors of this process that are of a file.
fn descriptors_of(file: &str) -> usize {
    descriptors_in(std::process::id(), file)
}

fn descriptors_in(pid: u32, file: &str) -> usize {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    all.filter_map(target).filter(|to| to.to_string_lossy().contains(file)).count()
}

#[test]
fn a_removed_file_is_closed_a_while_after_its_end_and_keeps_its_names() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let program = own_copy("closed");
    let (file, offset) = (program.file_name().unwrap().to_str().unwrap().to_owned(), entry_offset(&program));
    let pid = run_list(&program);
    p.watch();
    let held = descriptors_of(&file);
    std::fs::remove_file(&program).unwrap();
    if held == 0 {
        return testing::skipped!("paths of temporary files ask a file server here");
    }
    let now = Instant::now();
    p.close_unused(now);
    assert!(descriptors_of(&file) > 0);
    // A few files without a path are read in each call, and other tests have some.
    until(|| {
        p.close_unused(now + files::KEEP);
        descriptors_of(&file) == 0
    });
    // The reader has the names and not the file.
    assert_eq!(descriptors_in(p.reader.pid().unwrap(), &file), 0);
    let addr = address_in(&watcher, pid, &file, offset);
    assert_eq!(p.name(pid, 0, addr).to_string(), format!("{file}`_start"));
}

/// Waits for other tests, which watch the same processes until they end.
#[track_caller]
fn until(done: impl FnMut() -> bool) {
    testing::eventually("the condition", testing::HANG_LIMIT, done);
}

fn run_list(program: &Path) -> u32 {
    let mut child = Command::new(program).arg("--list").stdout(Stdio::null()).spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn a_file_system_can_be_unmounted_a_while_after_its_last_program_has_ended() {
    let Some((mut p, _watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let place = std::env::temp_dir().join(format!("symbols-mounted-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        let _ = std::fs::remove_dir(&place);
        return testing::skipped!("nothing can be mounted here");
    }
    let program = place.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    run_list(&program);
    p.watch();
    let unmount = || {
        let status = Command::new("umount").arg(&place).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let held = descriptors_of(place.to_str().unwrap());
    let now = Instant::now();
    p.close_unused(now);
    assert!(held == 0 || !unmount());
    until(|| {
        p.close_unused(now + files::KEEP);
        unmount()
    });
    std::fs::remove_dir(&place).unwrap();
}

#[test]
fn a_program_of_another_mount_namespace_that_was_seen_running_keeps_its_names() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let program = own_copy("namespace");
    let (file, offset) = (program.file_name().unwrap().to_str().unwrap().to_owned(), entry_offset(&program));
    // A program that only this namespace has, and which ends with it.
    let text = "mount -t tmpfs none /mnt && cp $0 /mnt && /mnt/$1 --list >/dev/null && echo done; read x";
    let mut shell = Command::new("unshare");
    let shell = shell.args(["--mount", "sh", "-c", text]).args([program.as_os_str(), file.as_ref()]);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut shell) = shell else { return testing::skipped!("no unshare") };
    let mut line = [0; 5];
    let ran = std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line);
    std::fs::remove_file(&program).unwrap();
    if ran.is_err() {
        shell.wait().unwrap();
        return testing::skipped!("no mount namespace can be made here");
    }
    while !p.watch() {}
    drop(shell.stdin.take());
    shell.wait().unwrap();
    p.watch();
    let pid = {
        let watcher = lock(&watcher);
        let is_it = |m: &proc::watcher::Mapping| matches!(&m.object, Object::File(f) if f.path.starts_with(b"/mnt/") && f.path.ends_with(file.as_bytes()));
        let ran = |pid: &u32| watcher.images(*pid).iter().any(|image| image.mappings().any(is_it));
        (shell.id()..shell.id() + 1000).find(ran).unwrap()
    };
    let addr = address_in(&watcher, pid, &file, offset);
    assert_eq!(p.name(pid, 0, addr).to_string(), format!("{file}`_start"));
}

#[test]
fn an_earlier_program_of_a_process_keeps_its_names() {
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let mut child = Command::new("sh").args(["-c", "exec sleep 600"]).spawn().unwrap();
    let pid = child.id();
    let sh = loop {
        let mut watcher = lock(&watcher);
        watcher.update();
        let last = watcher.images(pid).last();
        if last.is_some_and(|i| &*i.name == b"sleep" && i.mappings().any(is_libc)) {
            let sh = watcher.images(pid).iter().find(|i| i.generation.execs == 1).unwrap().clone();
            assert_eq!(
                Generation { execs: 2, ..sh.generation },
                watcher.images(pid).last().unwrap().generation
            );
            break sh;
        }
    };
    let libc = sh.mappings().find(|m| is_libc(m)).unwrap();
    let name = p.name(pid, 0, libc.start + 0x40);
    assert!(name.module.as_deref().is_some_and(|m| m.starts_with("libc")));
    // The program at a time has no addresses of the one after it.
    let (during, after) = (sh.ended.unwrap() - 1, sh.ended.unwrap());
    let module = |p: &mut Processes, time, addr| p.name(pid, time, addr).module;
    assert_eq!(module(&mut p, during, libc.start + 0x40), name.module);
    assert_eq!(module(&mut p, after, libc.start + 0x40), None);
    let sleep = address_of(&watcher, pid, "sleep");
    assert_eq!(module(&mut p, during, sleep), None);
    assert_eq!(module(&mut p, after, sleep).as_deref(), Some("sleep"));
    assert_eq!(p.module_start(pid, during, sleep), sleep);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// An address of a mapped file in the last program of a pid.
fn address_of(watcher: &Mutex<Watcher>, pid: u32, file: &str) -> u64 {
    let watcher = lock(watcher);
    let is_it = |m: &&proc::watcher::Mapping| matches!(&m.object, Object::File(f) if f.path.ends_with(file.as_bytes()));
    watcher.images(pid).last().unwrap().mappings().find(is_it).unwrap().start
}

#[test]
fn a_map_is_dropped_when_the_watcher_forgets_its_program() {
    let limits = proc::watcher::Limits { images: 3, ..Default::default() };
    let Ok(watcher) = Watcher::open_with(&cpus(), 256 << 10, limits) else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let mut p = Processes::default();
    p.set_watcher(Some(Arc::new(Mutex::new(watcher))));
    while !p.watch() {}
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    until(|| {
        p.see(child.id());
        p.processes.get(&child.id()).is_some_and(|p| p.program.is_some())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    p.watch();
    assert!(p.is_program_current(child.id()) || p.processes.contains_key(&child.id()));
    let mut others = 0;
    while p.processes.contains_key(&child.id()) && others < 1000 {
        run(Path::new("/bin/true"));
        others += 1;
        p.watch();
    }
    assert!(others < 1000);
    assert_eq!(p.mappings, p.processes.values().map(|p| p.mappings.len()).sum::<usize>());
}

fn is_libc(m: &proc::watcher::Mapping) -> bool {
    matches!(&m.object, Object::File(f) if String::from_utf8_lossy(&f.path).contains("libc.so"))
}

#[test]
fn a_running_process_is_read_once_while_it_runs_the_same_program() {
    let Some((mut p, _watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let pid = std::process::id();
    let addr = run as fn(&Path) -> u32 as usize as u64;
    let name = p.name(pid, 0, addr).to_string();
    assert!(name.ends_with("watched::tests::run"), "{name}");
    assert!(p.is_program_current(pid));
    // A new batch asks the watcher, not the reader.
    p.begin_batch();
    let before = p.processes.get(&pid).unwrap().read;
    p.prepare(&[(pid, 0, addr)]);
    assert_eq!(p.processes.get(&pid).unwrap().read, before);
    assert_eq!(p.name(pid, 0, addr).to_string(), name);
    // Neither does a process of which an address was seen, until it maps more code.
    p.begin_batch();
    p.see(pid);
    assert_eq!(p.processes.get(&pid).unwrap().read, before);
    let code = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping, which is never written or executed.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, code, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    p.see(pid);
    assert_eq!(p.processes.get(&pid).unwrap().read, p.batch);
    // SAFETY: the mapping is not used any more.
    unsafe { libc::munmap(at, 4096) };
    let other = run(Path::new("/bin/true"));
    p.see(other);
    assert!(!p.processes.contains_key(&other), "it has ended");
    assert!(!p.is_program_current(other));
}

#[test]
fn a_program_alone_in_its_root_has_names_once_one_was_seen_running() {
    use std::os::unix::process::CommandExt;
    let Some((mut p, watcher)) = watching() else {
        return testing::skipped!("perf's side-band cannot be opened");
    };
    let root = testing::dir::Dir::new("symbols-alone");
    let file = format!("alone-{}", std::process::id());
    let program = root.join(&file);
    let source = root.join("alone.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(int c, char **v) { return c > 1 && getchar(); }\n")
        .unwrap();
    let mut cc = Command::new("cc");
    let built = cc.args(["-static", "-Wl,--build-id", "-o"]).args([&program, &source]).stderr(Stdio::null());
    if !built.status().is_ok_and(|status| status.success()) {
        return testing::skipped!("no C compiler that links statically");
    }
    let start = |words: &[&str]| {
        let path = std::ffi::CString::new(root.as_os_str().as_encoded_bytes()).unwrap();
        let mut command = Command::new(format!("/{file}"));
        // SAFETY: two system calls with a string that outlives them.
        let alone = unsafe {
            command.pre_exec(move || match libc::chroot(path.as_ptr()) + libc::chdir(c"/".as_ptr()) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        alone.args(words).stdin(Stdio::piped()).spawn()
    };
    let Ok(mut first) = start(&[]) else { return testing::skipped!("no root of its own can be had here") };
    // It has ended before anybody looks.
    first.wait().unwrap();
    p.watch();
    let mut second = start(&["waits"]).unwrap();
    let pid = second.id();
    until(|| {
        let mut watcher = lock(&watcher);
        watcher.update();
        let is_it = |m: &proc::watcher::Mapping| matches!(&m.object, Object::File(f) if f.path.ends_with(file.as_bytes()));
        watcher.images(pid).last().is_some_and(|image| image.mappings().any(is_it))
    });
    p.watch();
    drop(second.stdin.take());
    second.wait().unwrap();
    p.watch();
    let offset = entry_offset(&program);
    for pid in [pid, first.id()] {
        let addr = address_in(&watcher, pid, &file, offset);
        assert_eq!(p.name(pid, 0, addr).to_string(), format!("{file}`_start"));
    }
    // It is closed a while after the last process has ended, and the next one leads to it again.
    let held = |p: &mut Processes| {
        let object = lock(&watcher).images(pid).last().and_then(|image| {
            image.mappings().find_map(|m| match &m.object {
                Object::File(f) if f.path.ends_with(file.as_bytes()) => Some(f.clone()),
                _ => None,
            })
        });
        let id = p.objects.note_watched(&object.unwrap());
        p.is_held(id)
    };
    let now = Instant::now();
    until(|| {
        p.close_unused(now);
        p.close_unused(now + files::KEEP);
        !held(&mut p)
    });
    let mut third = start(&["waits"]).unwrap();
    until(|| {
        p.watch();
        held(&mut p)
    });
    drop(third.stdin.take());
    third.wait().unwrap();
}
