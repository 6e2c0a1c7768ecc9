//! Memory: what files of processes may take of it, and what is said where there is too little.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use crate::Verdict::{self, Pass, Skip};
use crate::stable_cgroup::Memory;
use crate::tool::{Output, dtrace, finish, printed, start, under};

tests! {
    a_program_with_very_many_functions_takes_little_memory
    what_a_session_needs_is_said_where_ulimit_allows_less
    what_a_session_needs_is_said_where_its_cgroup_allows_less
    what_is_said_to_be_needed_is_enough
}

/// The functions of the program.
const FUNCTIONS: usize = 200_000;

/// What a session may have for its list of them. They took 1,500 bytes each, and now take less than
/// 400.
const MOST: u64 = 176 << 20;

/// An ELF program that waits for a signal, with functions of four bytes.
fn program(functions: usize) -> Vec<u8> {
    const BASE: u64 = 0x400_000;
    const CODE: u64 = 0x1000;
    // mov $SYS_pause, %eax; syscall; jmp to the beginning
    let wait = [0xb8, libc::SYS_pause as u8, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    let (mut code, mut symbols, mut names) = (Vec::new(), vec![0; 24], vec![0]);
    for n in 0..functions {
        let (name, address) = (names.len() as u32, BASE + CODE + code.len() as u64);
        names.extend_from_slice(format!("function_number_{n}\0").as_bytes());
        symbols.extend_from_slice(&name.to_le_bytes());
        // A global function in the first section.
        symbols.extend_from_slice(&[0x12, 0, 1, 0]);
        symbols.extend_from_slice(&address.to_le_bytes());
        symbols.extend_from_slice(&4u64.to_le_bytes());
        code.extend_from_slice(&[0x90, 0x90, 0x90, 0xc3]);
    }
    let entry = BASE + CODE + code.len() as u64;
    code.extend_from_slice(&wait);
    let sections_names = b"\0.text\0.symtab\0.strtab\0";
    let symbols_at = CODE + code.len() as u64;
    let names_at = symbols_at + symbols.len() as u64;
    let last_at = names_at + names.len() as u64;
    let sections_at = (last_at + sections_names.len() as u64).next_multiple_of(8);
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0");
    [entry, 64, sections_at].iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    file.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 5, 0, 4, 0]);
    // One segment, which is read and executed.
    file.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    let bytes = symbols_at;
    [0, BASE, BASE, bytes, bytes, 0x1000].iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    file.resize(CODE as usize, 0);
    for part in [&code, &symbols, &names, &sections_names.to_vec()] {
        file.extend_from_slice(part);
    }
    file.resize(sections_at as usize, 0);
    let mut section = |name: u32, kind: u32, words: [u64; 4], (link, info): (u32, u32), each: u64| {
        [name, kind].iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
        words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
        [link, info].iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
        [1, each].iter().for_each(|word: &u64| file.extend_from_slice(&word.to_le_bytes()));
    };
    section(0, 0, [0; 4], (0, 0), 0);
    section(1, 1, [6, BASE + CODE, CODE, code.len() as u64], (0, 0), 0);
    section(7, 2, [0, 0, symbols_at, symbols.len() as u64], (3, 1), 24);
    section(15, 3, [0, 0, names_at, names.len() as u64], (0, 0), 0);
    section(0, 3, [0, 0, last_at, sections_names.len() as u64], (0, 0), 0);
    file
}

/// A program that runs, and ends with the test.
struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(&self.1);
    }
}

/// The most memory that a process has had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn a_program_with_very_many_functions_takes_little_memory() -> Verdict {
    let path = std::env::temp_dir().join(format!("dt-many-functions-{}", std::process::id()));
    fs::write(&path, program(FUNCTIONS)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let child = match Command::new(&path).spawn() {
        Ok(child) => Running(child, path),
        Err(e) => return Skip(format!("no program can be run here: {e}")),
    };
    let pid = child.0.id();
    let mut listing = start(&["-ln", &format!("pid{pid}:a.out::entry")]);
    // The whole list is known before its first line is printed, and the pipe takes a small part of
    // it.
    printed(&mut listing);
    let peak = peak(listing.id());
    let o = finish(listing).code(0);
    println!("{} MB for {FUNCTIONS} functions", peak >> 20);
    assert_eq!(o.out.lines().count(), FUNCTIONS + 1, "{}", o.err);
    assert!(peak < MOST, "{} MB", peak >> 20);
    // One that is named takes no more than in any other program.
    let o = dtrace(&["-ln", &format!("pid{pid}:a.out:function_number_7:entry")]).code(0);
    assert_eq!(o.out.lines().count(), 2, "{o:?}");
    Pass
}

/// Sizes that are more than each limit, whatever the number of CPUs is.
const LARGE: [&str; 7] = [
    "-b",
    "128m",
    "-xaggsize=128m",
    "-n",
    "BEGIN { @[\"begun\"] = count(); trace(1); exit(0); }",
    "-n",
    "syscall::getpgid:entry { @[\"called\"] = count(); trace(1); }",
];

fn with_large_sizes(wrapper: &[&str], more: &[&str]) -> Option<Output> {
    under(wrapper, &[more, &LARGE].concat())
}

/// The sizes are lowered, or it is said what is needed.
fn is_said(wrapper: &[&str], limit: &str, name: &str) -> Verdict {
    let Some(o) = with_large_sizes(wrapper, &["-q", "-xbufresize=manual"]) else {
        return Skip("no shell".into());
    };
    let o = o.code(1);
    let begin = "dtrace: could not enable tracing: cannot create the buffers and tables: Cannot allocate memory (it needs about ";
    assert!(o.err.starts_with(begin) && o.out.is_empty(), "{o:?}");
    assert!(o.err.contains(&format!("MB; the limit is {limit} MB: raise {name}")), "{o:?}");
    assert!(
        o.err.contains("or lower -") && o.err.contains("-b (") && o.err.contains("-x aggsize ("),
        "{o:?}"
    );
    let o = with_large_sizes(wrapper, &["-q"]).unwrap().code(0);
    assert_eq!(o.value_of("begun"), 1, "{o:?}");
    assert!(o.err.contains("dtrace: aggregation size lowered to "), "{o:?}");
    Pass
}

fn what_a_session_needs_is_said_where_ulimit_allows_less() -> Verdict {
    is_said(&["sh", "-c", "ulimit -v 307200; exec \"$0\" \"$@\""], "300", "ulimit -v")
}

fn what_a_session_needs_is_said_where_its_cgroup_allows_less() -> Verdict {
    let Some(group) = Memory::limited("64M") else { return Skip("no memory cgroup can be made here".into()) };
    let enter = format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", group.0.display());
    is_said(&["sh", "-c", &enter], "64", "/")
}

/// A session with large arrays, whose tables the kernel makes with buckets, in a group that has so
/// much memory.
fn with_arrays(most: &str) -> Option<Output> {
    let group = Memory::limited(most)?;
    let enter = format!("echo $$ >{}/cgroup.procs; exec \"$0\" \"$@\"", group.0.display());
    let script = "BEGIN { a[1] = 1; exit(0); } syscall::getpgid:entry { a[pid] = 1; @[\"called\"] = count(); trace(1); }";
    under(
        &["sh", "-c", &enter],
        &["-q", "-xbufresize=manual", "-xdynvarsize=64m", "-xaggsize=1m", "-b", "1m", "-n", script],
    )
}

fn what_is_said_to_be_needed_is_enough() -> Verdict {
    let Some(o) = with_arrays("24M") else { return Skip("no memory cgroup can be made here".into()) };
    let o = o.code(1);
    let need =
        o.err.split_once("it needs about ").and_then(|(_, rest)| rest.split_once(" MB")).map(|(n, _)| n);
    let need: u64 = need.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{o:?}"));
    // What a session has before it asks differs by a little each time.
    with_arrays(&format!("{}M", need + 1)).unwrap().code(0);
    Pass
}
