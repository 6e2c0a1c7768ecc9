//! Symbols of addresses in processes: in programs that end at once, and in hostile programs.
//!
//! The test generates its programs (`testing::elf`). `dtsym_NAME` waits for a byte on its standard
//! input, makes one call, and ends.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testing::elf::{
    AFTER_CALL, AFTER_CALL_IN_BODY, Elf, GLOBAL_FUNCTION, JIT_ADDRESS, TEXT, calls, calls_from_jit_code,
};
use testing::eventually;
use testing::fuse::Fuse;

use crate::Verdict::{self, Pass, Skip};
use crate::machine::is_guest;
use crate::tool::{LIMIT, Output, dtrace, finish, printed, signal, start, workload};

tests! {
    libc_frames_are_named_for_programs_that_live_a_millisecond
    mappings_made_just_before_exit_are_named hostile_debug_links_are_not_followed
    a_file_system_that_never_answers_does_not_block_the_tracer
    only_the_perf_map_of_the_process_itself_is_used files_are_opened_in_the_root_of_the_process
    names_of_symbols_files_and_jit_code_are_escaped
    addresses_without_a_symbol_are_places_in_the_file
}

/// One call of each program, with its stack.
/// Other tests have such programs at the same time.
const CALLS: &str = "syscall::getppid:entry /progenyof($ppid) && substr(execname, 0, 6) == \"dtsym_\"/ { @[execname, ustack()] = count(); }";

/// A directory for one test.
pub(crate) struct TestDir(pub(crate) testing::dir::Dir);

impl TestDir {
    pub(crate) fn new(test: &str) -> TestDir {
        TestDir(testing::dir::Dir::new(&format!("symbols-{test}")))
    }

    /// Writes a program. Returns its path.
    pub(crate) fn program(&self, name: &str, elf: &Elf) -> String {
        let path = self.0.join(format!("dtsym_{name}"));
        std::fs::write(&path, elf.bytes()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

pub(crate) fn one_call() -> Elf {
    Elf { code: calls(1), ..Elf::default() }
}

/// Starts a program that waits for its byte.
pub(crate) fn waiting(path: &str) -> Child {
    Command::new(path).stdin(Stdio::piped()).spawn().unwrap()
}

/// Waits until such a program waits for its byte: all pages that it needs are mapped.
fn wait_until_it_reads(child: &Child) {
    let (path, read) = (format!("/proc/{}/syscall", child.id()), format!("{} ", libc::SYS_read));
    eventually("its reading", LIMIT, || std::fs::read_to_string(&path).unwrap().starts_with(&read));
}

fn fifo(path: &Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the string outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
}

/// The printed name of a program's only frame.
#[track_caller]
fn frame<'a>(o: &'a Output, program: &str) -> &'a str {
    let mut lines = o.out.lines().map(str::trim).skip_while(|l| *l != format!("dtsym_{program}"));
    lines.nth(1).unwrap_or_else(|| panic!("no frame of {program}: {o:?}"))
}

/// Traces waiting processes, releases them when all probes are enabled, and waits for the end.
#[track_caller]
fn trace_waiting(mut children: Vec<Child>, more: &[&str]) -> Output {
    let tracer = begin_waiting(&mut children, more);
    let o = finish(tracer);
    children.iter_mut().for_each(|c| drop(c.wait()));
    o
}

fn begin_waiting(children: &mut [Child], more: &[&str]) -> Child {
    let pids: Vec<String> = children.iter().map(|c| c.id().to_string()).collect();
    let mut words = vec!["-qn", "BEGIN { printf(\"begun\\n\"); }", "-n", CALLS];
    words.extend(pids.iter().flat_map(|pid| ["-p", pid]));
    words.extend(more);
    let mut tracer = start(&words);
    printed(&mut tracer);
    children.iter_mut().for_each(|c| c.stdin.take().unwrap().write_all(b"x").unwrap());
    tracer
}

fn libc_frames_are_named_for_programs_that_live_a_millisecond() -> Verdict {
    let target = workload("getppid", 1);
    let mut words = vec!["-q"];
    let count = if is_guest() { 20 } else { 100 };
    words.extend(["-c", &target].repeat(count));
    let script = "syscall::getppid:entry /ppid == $pid/ { @[ustack(1)] = count(); }";
    words.extend(["-n", script]);
    let o = dtrace(&words).code(0);
    let frames: Vec<&str> =
        o.out.lines().map(str::trim).filter(|l| l.contains("libc.so.6`syscall+0x")).collect();
    if !o.out.contains("libc.so.6`") && !o.out.contains("0x") {
        return Skip("another C library".into());
    }
    assert_eq!(frames.len(), count, "{o:?}");
    Pass
}

fn mappings_made_just_before_exit_are_named() -> Verdict {
    let place = TestDir::new("late");
    // getppid(); return
    let code = b"\xb8\x6e\0\0\0\x0f\x05\xc3".to_vec();
    let symbols = vec![("called".into(), 0, 8, GLOBAL_FUNCTION)];
    let library = place.program("library", &Elf { code, symbols, ..Elf::default() });
    let me = std::env::current_exe().unwrap();
    let spawn = || {
        let mut command = Command::new(&me);
        command.args(["--workload", "mapped", &library]).stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..10).map(|_| spawn()).collect();
    let pids: Vec<String> = children.iter().map(|c| c.id().to_string()).collect();
    let script =
        format!("syscall::getppid:entry /ppid == {}/ {{ @[ustack(1)] = count(); }}", std::process::id());
    let mut words = vec!["-qn", "BEGIN { printf(\"begun\\n\"); }", "-n", &script];
    words.extend(pids.iter().flat_map(|pid| ["-p", pid]));
    let mut tracer = start(&words);
    printed(&mut tracer);
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"x").unwrap();
    }
    let o = finish(tracer).code(0);
    for child in &mut children {
        assert_eq!(child.wait().unwrap().code(), Some(0), "{o:?}");
    }
    assert_eq!(o.out.matches("dtsym_library`called+0x7").count(), 10, "{o:?}");
    Pass
}

fn hostile_debug_links_are_not_followed() -> Verdict {
    let place = TestDir::new("links");
    let dir = &place.0;
    // The matching file, which may be used only in the directories of debug files.
    let symbols = vec![("named".into(), 0, 200, GLOBAL_FUNCTION)];
    let debug = Elf { symbols, ..one_call() }.bytes();
    let sum = testing::elf::checksum(&debug);
    std::fs::create_dir_all(dir.join(".debug")).unwrap();
    std::fs::create_dir_all(dir.join("elsewhere")).unwrap();
    std::fs::write(dir.join(".debug/good"), &debug).unwrap();
    std::fs::write(dir.join("elsewhere/outside"), &debug).unwrap();
    fifo(&dir.join("fifo"));
    symlink("/dev/zero", dir.join("device")).unwrap();
    File::create(dir.join("sparse")).unwrap().set_len(40 << 30).unwrap();
    let absolute = dir.join("elsewhere/outside").into_os_string().into_string().unwrap();
    let links = ["good", "fifo", "device", "sparse", &absolute, "elsewhere/outside", "../outside"];
    let names = ["good", "fifo", "device", "sparse", "absolute", "relative", "dots"];
    let mut words = vec!["-q".to_string()];
    for (name, link) in names.iter().zip(links) {
        let elf = Elf { debug_link: Some((link.into(), sum)), ..one_call() };
        words.extend(["-c".into(), place.program(name, &elf)]);
    }
    // A mapped file of terabytes. Addresses behind its end have no name.
    let large = place.program("large", &one_call());
    File::options().write(true).open(&large).unwrap().set_len(40 << 30).unwrap();
    words.extend(["-c".into(), large, "-n".into(), CALLS.into()]);
    let o = dtrace(&words.iter().map(String::as_str).collect::<Vec<_>>()).code(0);
    assert_eq!(o.err, "", "{o:?}");
    assert_eq!(frame(&o, "good"), format!("dtsym_good`named+{AFTER_CALL:#x}"));
    for name in &names[1..] {
        assert_eq!(frame(&o, name), format!("dtsym_{name}+{:#x}", TEXT + AFTER_CALL), "{o:?}");
    }
    // It is not read.
    assert_eq!(frame(&o, "large"), format!("dtsym_large`{:#x}", TEXT + AFTER_CALL), "{o:?}");
    Pass
}

fn addresses_without_a_symbol_are_places_in_the_file() -> Verdict {
    let place = TestDir::new("places");
    let program = place.program("bare", &one_call());
    // The text is at another offset of the file than its address.
    let at = TEXT + AFTER_CALL;
    let run = |more: &[&str], script: &str| {
        let mut words = vec!["-q", "-c", &program, "-n", script];
        words.extend(more);
        dtrace(&words).code(0)
    };
    const SCRIPT: &str = "syscall::getppid:entry /pid == $target/ { ustack(1); uaddr(ucaller); usym(ucaller); umod(ucaller); }";
    let o = run(&[], SCRIPT);
    let words: Vec<&str> = o.out.split_whitespace().collect();
    let in_file = format!("dtsym_bare+{at:#x}");
    assert_eq!(words[0], in_file, "{o:?}");
    let o = run(&["-x", "uaddrs=address"], SCRIPT);
    assert_eq!(o.out.split_whitespace().next(), Some(&*format!("dtsym_bare`{at:#x}")), "{o:?}");
    let o = run(&["--format", "json"], SCRIPT);
    assert!(
        o.out.contains(&format!(
            "\"object\":\"dtsym_bare\",\"path\":\"{program}\",\"fileaddress\":\"{at:#x}\""
        )),
        "{o:?}"
    );
    let folded = place.0.join("x.folded").display().to_string();
    let count = "syscall::getppid:entry /pid == $target/ { @[ustack(1)] = count(); }";
    run(&["--flame", &folded], count);
    assert_eq!(std::fs::read_to_string(&folded).unwrap(), format!("{in_file} 1\n"));
    Pass
}

fn a_file_system_that_never_answers_does_not_block_the_tracer() -> Verdict {
    let place = TestDir::new("fuse");
    let elf = Elf { debug_link: Some((b"x".into(), 1)), ..one_call() };
    let linked = place.program("linked", &elf);
    let fuse = match Fuse::mount(&place.0.join(".debug"), vec![("dtsym_mapped", one_call().bytes())]) {
        Ok(fuse) => fuse,
        Err(why) => return Skip(why),
    };
    let mapped = place.0.join(".debug/dtsym_mapped").into_os_string().into_string().unwrap();
    let mut stuck = [waiting(&mapped), waiting(&mapped)];
    // A page that is not mapped yet would block for ever.
    stuck.iter().for_each(wait_until_it_reads);
    fuse.stop_answering();
    let plain =
        place.program("plain", &Elf { symbols: vec![("f".into(), 0, 99, GLOBAL_FUNCTION)], ..one_call() });
    let [first, second] = &mut stuck;
    // A reader that waits is given ten times the CPU time that it may use.
    let limit = if is_guest() { 500 } else { 200 };
    let option = format!("symtimeout={limit}ms");
    let mut words = vec!["-q", "-x", &option, "-c", &linked, "-n", "BEGIN { printf(\"begun\\n\"); }"];
    let pid = first.id().to_string();
    words.extend(["-p", &pid, "-c", &plain, "-n", CALLS]);
    let mut tracer = start(&words);
    printed(&mut tracer);
    first.stdin.take().unwrap().write_all(b"x").unwrap();
    let o = finish(tracer).code(0);
    assert_eq!(frame(&o, "linked"), format!("dtsym_linked`{:#x}", TEXT + AFTER_CALL), "{o:?}");
    assert_eq!(frame(&o, "mapped"), format!("dtsym_mapped`{:#x}", TEXT + AFTER_CALL), "{o:?}");
    // Other processes are symbolized as usual.
    assert_eq!(frame(&o, "plain"), format!("dtsym_plain`f+{AFTER_CALL:#x}"), "{o:?}");
    let told = o
        .err
        .matches(&format!("takes longer than {} ms, 10 times the option symtimeout", 10 * limit))
        .count();
    assert_eq!(told, 1, "{o:?}");

    // Signals are handled while the lookup waits, whatever its timeout, which is longer than a run
    // may be.
    let (before, timeout) = (fuse.unanswered(), format!("symtimeout={}s", 2 * LIMIT.as_secs()));
    let mut tracer = begin_waiting(std::slice::from_mut(second), &["-x", &timeout]);
    eventually("a lookup that waits", LIMIT, || fuse.unanswered() > before);
    assert!(tracer.try_wait().unwrap().is_none());
    signal(&tracer, libc::SIGTERM);
    finish(tracer);
    drop(fuse);
    stuck.iter_mut().for_each(|c| drop(c.wait()));
    Pass
}

fn only_the_perf_map_of_the_process_itself_is_used() -> Verdict {
    let place = TestDir::new("perf");
    let made = Elf { code: calls_from_jit_code(1), ..Elf::default() };
    let names = ["good", "none", "fifo", "device", "linked", "owner", "large", "sparse", "old"];
    let children: Vec<Child> = names.iter().map(|n| waiting(&place.program(n, &made))).collect();
    let line = format!("{JIT_ADDRESS:x} 100 made by the runtime\n");
    let mut maps = Vec::new();
    for (name, child) in names.iter().zip(&children) {
        let path = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
        let write = || std::fs::write(&path, &line).unwrap();
        let large = |size: u64| {
            write();
            File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
        };
        match *name {
            "good" => write(),
            "fifo" => fifo(&path),
            "device" => symlink("/dev/zero", &path).unwrap(),
            // The valid map of another process.
            "linked" => symlink(format!("/tmp/perf-{}.map", children[0].id()), &path).unwrap(),
            "owner" => {
                write();
                std::os::unix::fs::chown(&path, Some(54321), None).unwrap();
            }
            "large" => large((64 << 20) + 1),
            "sparse" => large(40 << 30),
            "old" => {
                write();
                let year = std::time::SystemTime::now() - Duration::from_secs(365 * 24 * 3600);
                File::options().write(true).open(&path).unwrap().set_modified(year).unwrap();
            }
            _ => {}
        }
        maps.push(path);
    }
    let good = children[0].id();
    let o = trace_waiting(children, &[]);
    maps.iter().for_each(|path| drop(std::fs::remove_file(path)));
    let o = o.code(0);
    assert_eq!(frame(&o, "good"), format!("perf-{good}.map`made by the runtime+{AFTER_CALL_IN_BODY:#x}"));
    for name in &names[1..] {
        assert_eq!(frame(&o, name), format!("{:#x}", JIT_ADDRESS + AFTER_CALL_IN_BODY), "{name}: {o:?}");
    }
    assert_eq!(o.err, "", "{o:?}");
    Pass
}

/// The first child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

fn files_are_opened_in_the_root_of_the_process() -> Verdict {
    let place = TestDir::new("root");
    for dir in ["usr/lib/debug", "tmp", "proc"] {
        std::fs::create_dir_all(place.0.join(dir)).unwrap();
    }
    let symbols = vec![("inside".into(), 0, 200, GLOBAL_FUNCTION)];
    let debug = Elf { symbols, ..one_call() }.bytes();
    std::fs::write(place.0.join("usr/lib/debug/x"), &debug).unwrap();
    let link = Some((b"x".to_vec(), testing::elf::checksum(&debug)));
    place.program("stripped", &Elf { debug_link: link, ..one_call() });
    place.program("made", &Elf { code: calls_from_jit_code(1), ..Elf::default() });
    let root = format!("--root={}", place.0.display());
    let mut seen = Vec::new();
    for name in ["stripped", "made"] {
        let program = format!("/dtsym_{name}");
        let words = ["--pid", "--fork", "--mount", "--kill-child", &root, &program];
        let child = Command::new("unshare").args(words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = child else { return Skip("no unshare".into()) };
        let inner = eventually("the program", LIMIT, || {
            let inner = child_of(child.id()).filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.starts_with("dtsym_"))
            });
            (inner.is_some() || child.try_wait().unwrap().is_some()).then_some(inner)
        });
        let Some(inner) = inner else { return Skip("unshare cannot make a container here".into()) };
        // In its own pid namespace the program is the first process.
        std::fs::write(place.0.join("tmp/perf-1.map"), format!("{JIT_ADDRESS:x} 100 inside\n")).unwrap();
        let pid = inner.to_string();
        let mut tracer = start(&["-qn", "BEGIN { printf(\"begun\\n\"); }", "-n", CALLS, "-p", &pid]);
        printed(&mut tracer);
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        let o = finish(tracer).code(0);
        child.wait().unwrap();
        seen.push(frame(&o, name).to_string());
    }
    let stripped = format!("dtsym_stripped`inside+{AFTER_CALL:#x}");
    assert_eq!(seen, [stripped, format!("perf-1.map`inside+{AFTER_CALL_IN_BODY:#x}")]);
    Pass
}

fn names_of_symbols_files_and_jit_code_are_escaped() -> Verdict {
    let place = TestDir::new("escapes");
    let symbols = vec![("f\x1b[2J\n\x7f".into(), 0, 200, GLOBAL_FUNCTION)];
    let named = place.program("a\x1b\n", &Elf { symbols, ..one_call() });
    let made = place.program("made", &Elf { code: calls_from_jit_code(1), ..Elf::default() });
    let children = vec![waiting(&named), waiting(&made)];
    let map = PathBuf::from(format!("/tmp/perf-{}.map", children[1].id()));
    std::fs::write(&map, format!("{JIT_ADDRESS:x} 100 m\x1b]0;t\x07\u{9b}\n")).unwrap();
    let pid = children[1].id();
    let o = trace_waiting(children, &[]);
    std::fs::remove_file(&map).unwrap();
    let o = o.code(0);
    // The name of the process is the name of its file.
    let shown = frame(&o, "a\\033\\n");
    assert_eq!(shown, format!("dtsym_a\\033\\n`f\\033[2J\\n\\177+{AFTER_CALL:#x}"), "{o:?}");
    let shown = frame(&o, "made");
    let expected = format!("perf-{pid}.map`m\\033]0;t\\a\\302\\233+{AFTER_CALL_IN_BODY:#x}");
    assert_eq!(shown, expected, "{o:?}");
    assert!(!o.out.contains('\x1b'), "{o:?}");
    Pass
}
