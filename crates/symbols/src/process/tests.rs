//! Symbolization of the test's own process and of children, with a real reader.

use super::*;
use std::sync::Arc;

use proc::maps::MappedFile;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn symbols_test_landmark(x: u64) -> u64 {
    std::hint::black_box(x).wrapping_mul(3)
}

fn landmark() -> u64 {
    symbols_test_landmark as extern "C" fn(u64) -> u64 as usize as u64
}

#[test]
fn functions_of_the_own_process_are_found() {
    let pid = std::process::id();
    let mut p = Processes::default();
    let name = p.name(pid, 0, landmark());
    assert_eq!(name.symbol.as_deref(), Some("symbols_test_landmark"));
    assert_eq!(name.offset, 0);
    assert!(name.module.as_deref().is_some_and(|m| m.starts_with("symbols-")), "{name}");
    let path = std::env::current_exe().unwrap();
    assert_eq!(name.path.as_deref(), path.to_str());
    let second = p.name(pid, 0, landmark() + 1);
    assert!(second.to_string().ends_with("`symbols_test_landmark+0x1"), "{second}");
    assert_eq!(p.func_start(pid, 0, landmark() + 1), landmark());
    assert!(p.module_start(pid, 0, landmark()) < landmark());
    assert_eq!(p.name(pid, 0, 0x10).to_string(), "0x10");
    let names = p.names(pid, 0, &[landmark() + 1, 0x10, landmark()]);
    assert_eq!(names[0], second);
    assert_eq!(names[1].to_string(), "0x10");
    assert_eq!(names[2], name);
}

#[test]
fn rust_names_are_demangled_unless_raw_ones_are_wanted() {
    let pid = std::process::id();
    let addr = own_vdso_base as fn() -> Option<u64> as usize as u64;
    let mut p = Processes::default();
    let name = p.name(pid, 0, addr).to_string();
    assert!(name.ends_with("symbols::process::own_vdso_base"), "{name}");
    p.set_raw_names(true);
    assert!(p.name(pid, 0, addr).to_string().contains("`_"), "{}", p.name(pid, 0, addr));
}

#[test]
fn the_vdso_has_symbols() {
    let pid = std::process::id();
    let Some(base) = own_vdso_base() else {
        testing::skipped!("no vdso");
        return;
    };
    let mut p = Processes::default();
    let name = (0..0x2000).step_by(16).map(|o| p.name(pid, 0, base + o)).find(|n| n.symbol.is_some());
    let name = name.expect("some symbol");
    println!("{name}");
    assert_eq!(name.module.as_deref(), Some("[vdso]"));
}

#[test]
fn files_that_no_process_maps_any_more_are_closed_and_come_again() {
    // It has mapped all its files when it answers.
    let start = || {
        use std::io::{Read, Write};
        let (input, output) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let mut child = std::process::Command::new("cat").stdin(input).stdout(output).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    };
    let mut p = Processes::default();
    let held = |p: &mut Processes, pid| -> Vec<(FileId, bool)> {
        let mut files: Vec<FileId> = p.mapped(pid).unwrap().into_iter().map(|m| m.file).collect();
        files.dedup();
        files
            .into_iter()
            .map(|id| (id, p.mapped_file(id).is_some_and(|file| file.handle().is_some())))
            .collect()
    };
    let mut child = start();
    let before = held(&mut p, child.id());
    assert!(!before.is_empty() && before.iter().all(|(_, held)| *held), "{before:?}");
    let now = Instant::now();
    // As long as it runs, they are held.
    for times in [1, 2, 3] {
        assert!(p.close_unmapped(now + files::KEEP * times) && !p.close_unmapped(now + files::KEEP * times));
    }
    let is_held = |p: &Processes| before.iter().any(|(id, _)| p.mapped_file(*id).unwrap().handle().is_some());
    assert!(is_held(&p));
    child.kill().unwrap();
    child.wait().unwrap();
    p.close_unmapped(now + files::KEEP * 4);
    assert!(is_held(&p));
    p.close_unmapped(now + files::KEEP * 5);
    assert!(!is_held(&p));
    // The next process has the same files.
    let mut child = start();
    let after = held(&mut p, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(after.iter().all(|file| before.contains(file)), "{before:?} {after:?}");
}

/// The address map of a process.
fn map_of(pid: u32) -> Map {
    maps::parse(&std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default())
}

fn numbers_of(map: &Map, wanted: impl Fn(&MappedFile) -> bool) -> Vec<Backing> {
    let all = (0..).zip(&map.files).filter(|(_, f)| wanted(f));
    all.map(|(number, _)| Backing::File(number)).collect()
}

fn is_libc(file: &MappedFile) -> bool {
    String::from_utf8_lossy(&file.path).contains("libc.so")
}

/// The address at which a process has mapped an offset of a file.
fn at_offset(pid: u32, offset: u64, wanted: impl Fn(&MappedFile) -> bool) -> Option<u64> {
    let map = map_of(pid);
    let numbers = numbers_of(&map, wanted);
    let hit = |m: &&Mapping| {
        numbers.contains(&m.backing) && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
    };
    map.mappings.iter().find(hit).map(|m| m.start + (offset - m.offset))
}

/// A process that sleeps and has libc mapped.
fn sleeper() -> Option<std::process::Child> {
    let child = std::process::Command::new("sleep").arg("600").spawn().ok()?;
    testing::eventually("libc", testing::HANG_LIMIT, || {
        let map = map_of(child.id());
        let numbers = numbers_of(&map, is_libc);
        // Four mappings: the dynamic linker has mapped all of libc.
        map.mappings.iter().filter(|m| numbers.contains(&m.backing)).count() >= 4
    });
    Some(child)
}

/// The file offset of an address of this process.
fn offset_of(addr: u64) -> Option<u64> {
    maps::find(&map_of(std::process::id()).mappings, addr).map(|m| m.file_offset(addr))
}

/// File offset of a function of this process's libc, which the child maps from the same file.
fn getpid_offset() -> Option<u64> {
    unsafe extern "C" {
        fn getpid() -> i32;
    }
    offset_of(getpid as unsafe extern "C" fn() -> i32 as usize as u64)
}

#[test]
fn an_exited_process_is_symbolized_if_it_was_seen() {
    let (Some(mut child), Some(offset)) = (sleeper(), getpid_offset()) else {
        testing::skipped!("no sleep with a libc of its own");
        return;
    };
    let pid = child.id();
    let addr = at_offset(pid, offset, is_libc).unwrap();
    let mut p = Processes::default();
    p.note(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    p.begin_batch();
    let name = p.name(pid, 0, addr + 2);
    assert!(name.module.as_deref().is_some_and(|m| m.starts_with("libc.so")), "{name}");
    assert!(name.symbol.as_deref().is_some_and(|s| s.contains("getpid")), "{name}");
    assert_eq!(name.offset, 2);
    // A process that was first seen after its exit has no names.
    let mut late = Processes::default();
    assert_eq!(late.name(pid, 0, addr), Name::unknown(addr));
    // Without a watcher nothing says which program ran at a time.
    assert_eq!(p.name(pid, 7, addr + 2), name);
}

/// A copy of this test, running and then unlinked.
struct Copy {
    child: std::process::Child,
    name: String,
    landmark: u64,
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unlinked_copy(test: &str) -> Option<Copy> {
    let name = format!("symbols-{test}-{}", std::process::id());
    let copy = std::env::temp_dir().join(&name);
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    // The copy runs a test that only sleeps.
    let child = testing::start_written(
        std::process::Command::new(&copy)
            .args(["--exact", "process::tests::sleeps_on_request", "--nocapture"])
            .env("SYMBOLS_TEST_SLEEP", "1")
            .stdout(std::process::Stdio::null()),
    );
    let Ok(child) = child else {
        testing::report_skip(test, format_args!("cannot run a copy in {}: {child:?}", copy.display()));
        return None;
    };
    let mut copied = Copy { child, name, landmark: 0 };
    let (pid, offset) = (copied.child.id(), offset_of(landmark()).unwrap());
    let is_copy = |file: &MappedFile| file.path == copy.as_os_str().as_encoded_bytes();
    copied.landmark =
        testing::eventually("the mapping", testing::HANG_LIMIT, || at_offset(pid, offset, is_copy));
    std::fs::remove_file(&copy).unwrap();
    Some(copied)
}

#[test]
fn a_deleted_program_keeps_its_symbols() {
    let Some(copy) = unlinked_copy("deleted") else { return };
    let mut p = Processes::default();
    p.note(copy.child.id());
    let (pid, name, addr) = (copy.child.id(), copy.name.clone(), copy.landmark);
    drop(copy);
    assert_eq!(p.name(pid, 0, addr + 1).to_string(), format!("{name}`symbols_test_landmark+0x1"));
}

#[test]
fn a_reader_that_blocks_is_abandoned_and_replaced() {
    let Some(copy) = unlinked_copy("stuck") else { return };
    let (pid, addr) = (copy.child.id(), copy.landmark);
    let mut p = Processes::default();
    let long = Duration::from_secs(600);
    p.set_limits(long, 64 << 20);
    p.note(pid);
    let reader = p.reader.pid().unwrap();
    p.set_limits(Duration::from_millis(100), 64 << 20);
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(reader as i32, libc::SIGSTOP) };
    let name = p.name(pid, 0, addr);
    assert_eq!(name.to_string(), format!("{}`{addr:#x}", copy.name));
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("reading the symbols of "), "{messages:?}");
    assert!(messages[0].ends_with("takes longer than 100 ms: its addresses are shown as numbers"));
    // That file is not queried again. A new reader resolves all others.
    p.set_limits(long, 64 << 20);
    assert_eq!(p.name(pid, 0, addr + 1).symbol, None);
    assert_eq!(p.reader.pid(), None);
    assert_eq!(p.name(std::process::id(), 0, landmark()).symbol.as_deref(), Some("symbols_test_landmark"));
    assert_ne!(p.reader.pid(), Some(reader));
    assert_eq!(p.take_messages(), [""; 0]);
}

#[test]
fn readers_are_replaced_a_bounded_number_of_times() {
    let mut p = Processes::default();
    p.set_limits(Duration::from_secs(60), 64 << 20);
    let me = std::process::id();
    for n in 0..24 {
        p.begin_batch();
        p.name(me, n, landmark());
        if let Some(reader) = p.reader.pid() {
            // SAFETY: a child that was not waited for.
            unsafe { libc::kill(reader as i32, libc::SIGKILL) };
        }
    }
    let messages = p.take_messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].contains("perhaps for want of memory (option symmem, 64m)"), "{messages:?}");
    assert!(messages[1].starts_with("reading symbols has cost 600 s: for now"), "{messages:?}");
    p.begin_batch();
    // Symbols that were resolved stay.
    assert_eq!(p.name(me, 0, landmark()).symbol.as_deref(), Some("symbols_test_landmark"));
    assert_eq!(p.name(me, 0, landmark() + 1).symbol, None);
}

#[test]
fn a_reader_that_its_alarm_ends_was_too_slow() {
    let mut p = Processes::default();
    p.set_limits(Duration::from_secs(60), 64 << 20);
    let me = std::process::id();
    p.name(me, 0, landmark());
    let reader = p.reader.pid().expect("it answered");
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(reader as i32, libc::SIGALRM) };
    p.begin_batch();
    p.name(me, 1, landmark() + 1);
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("takes longer than 60000 ms"), "{messages:?}");
}

#[test]
fn an_interrupt_ends_the_wait_and_shortens_those_that_follow() {
    let mut p = Processes::default();
    p.set_limits(Duration::from_secs(600), 64 << 20);
    let me = std::process::id();
    let libc_function = sysconf_address();
    p.note(me);
    let stop = |p: &Processes| {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(p.reader.pid().unwrap() as i32, libc::SIGSTOP) };
    };
    stop(&p);
    p.set_interrupted(Some(Arc::new(|| true)));
    assert_eq!(p.name(me, 0, landmark()).symbol, None);
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].ends_with("was interrupted: its addresses are shown as numbers"), "{messages:?}");
    // While the interrupt lasts, no request is sent, and no object counts as failed.
    for _ in 0..10 {
        assert_eq!(p.name(me, 0, libc_function).symbol, None);
    }
    assert_eq!(p.take_messages(), [""; 0]);
    // The interrupt was handled: other files are resolved, and a reader that is stuck has a shorter
    // deadline.
    p.set_interrupted(None);
    assert!(p.name(me, 0, libc_function).symbol.is_some());
    stop(&p);
    assert_eq!(p.name(me, 0, libc_function + 1).symbol, None);
    assert_shortened(&mut p);
}

#[test]
fn an_interrupt_during_no_wait_shortens_those_that_follow() {
    let mut p = Processes::default();
    p.set_limits(Duration::from_secs(600), 64 << 20);
    let me = std::process::id();
    p.note(me);
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(p.reader.pid().unwrap() as i32, libc::SIGSTOP) };
    p.interrupt();
    assert_eq!(p.name(me, 0, landmark()).symbol, None);
    assert_shortened(&mut p);
}

/// The wait that ended was not of the 600 seconds that were allowed.
#[track_caller]
fn assert_shortened(p: &mut Processes) {
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("takes longer than 500 ms:"), "{messages:?}");
}

fn sysconf_address() -> u64 {
    libc::sysconf as unsafe extern "C" fn(i32) -> i64 as usize as u64
}

#[test]
fn without_memory_for_symbols_addresses_are_numbers() {
    let mut p = Processes::default();
    let me = std::process::id();
    p.set_limits(Duration::from_secs(60), 64 << 10);
    let name = p.name(me, 0, landmark());
    assert_eq!(name.symbol, None, "{name}");
    assert_eq!(p.name(me, 0, landmark()), name);
}

#[test]
fn sleeps_on_request() {
    if std::env::var_os("SYMBOLS_TEST_SLEEP").is_some() {
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
}

#[test]
fn jit_code_is_named_by_the_perf_map_of_its_process() {
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    let mut p = Processes::default();
    p.note(pid);
    // Inserts an anonymous mapping, as if a JIT compiler had created it.
    let fake = Mapping { start: 0x1000, end: 0x3000, offset: 0, backing: Backing::Anonymous, is_code: true };
    p.processes.get_mut(&pid).unwrap().mappings.insert(0, fake);
    p.mappings += 1;
    assert_eq!(p.name(pid, 0, 0x1004).to_string(), "0x1004");
    if std::fs::write(&path, "1000 20 made.up\n").is_err() {
        testing::skipped!("cannot write {path}");
        return;
    }
    p.begin_batch();
    assert_eq!(p.name(pid, 0, 0x1004).to_string(), format!("perf-{pid}.map`made.up+0x4"));
    // The held map is still read when its path names another file.
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    p.begin_batch();
    let names = p.names(pid, 0, &[0x1004, 0x2004]).into_iter().map(|n| n.to_string());
    assert_eq!(names.collect::<Vec<_>>(), [format!("perf-{pid}.map`made.up+0x4"), "0x2004".into()]);
    std::fs::remove_file(path).unwrap();
}

/// Sets how many descriptors a process may have.
fn limit_descriptors(pid: u32, most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let pid = pid as libc::pid_t;
    // SAFETY: the structs live across the calls.
    unsafe {
        assert_eq!(libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit), 0);
        limit.rlim_cur = most;
        assert_eq!(libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_file_that_cannot_be_opened_for_want_of_descriptors_is_reported_and_tried_again() {
    let Some(offset) = getpid_offset() else {
        testing::skipped!("no libc");
        return;
    };
    let pid = std::process::id();
    let addr = at_offset(pid, offset, is_libc).unwrap();
    let mut p = Processes::default();
    assert_eq!(p.name(pid, 0, landmark()).symbol.as_deref(), Some("symbols_test_landmark"));
    let reader = p.reader.pid().unwrap();
    // The standard ones. What the reader has open is above.
    limit_descriptors(reader, 3);
    for _ in 0..2 {
        let name = p.name(pid, 0, addr + 2);
        assert!(name.symbol.is_none() && name.module.is_some(), "{name}");
    }
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("too many open files"), "{messages:?}");
    limit_descriptors(reader, 64);
    p.objects.retry_now();
    let name = p.name(pid, 0, addr + 2);
    assert!(name.symbol.as_deref().is_some_and(|s| s.contains("getpid")), "{name}");
    assert_eq!(p.reader.pid(), Some(reader));
}

#[test]
fn files_that_are_open_are_closed_for_others_if_there_are_no_descriptors() {
    let pid = std::process::id();
    let mut p = Processes::default();
    let Some(offset) = getpid_offset() else {
        testing::skipped!("no libc");
        return;
    };
    let addr = at_offset(pid, offset, is_libc).unwrap();
    assert_eq!(p.name(pid, 0, landmark()).symbol.as_deref(), Some("symbols_test_landmark"));
    // The standard ones, a file, and the handle and the root of the next one.
    limit_descriptors(p.reader.pid().unwrap(), 6);
    for addr in [addr + 2, landmark() + 1, addr + 3, landmark() + 2] {
        assert!(p.name(pid, 0, addr).symbol.is_some(), "{}", p.name(pid, 0, addr));
    }
    assert_eq!(p.take_messages(), [""; 0]);
}
