//! What the running kernel accepts, beside what the crate says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use bpf_sys::features::{Facility, Features};
use bpf_sys::insn::{Alu, Atomic, Helper, Insn, Jmp, Reg};
use bpf_sys::{AttachType, Link, Map, MapSpec, Prog, ProgKind, ProgSpec, UprobeTarget};
use text::uprobe::NOP10;
use text::{Function, Kernel, Refusal, Uses, uprobe};

use crate::common::Library;

/// Ends the test with a message when the kernel lacks a facility.
macro_rules! need {
    ($facility:ident) => {
        if let Some(reason) = Features::running().why_not(Facility::$facility) {
            testing::skipped!("{reason}");
            return;
        }
    };
}

/// Bytes of an instruction and what follows it.
const SLOT: usize = 32;

/// For each instruction, whether the kernel accepts a probe at it.
///
/// Where no process has a file mapped, the kernel accepts probes everywhere in it. When the file is
/// mapped, it looks at the instructions and writes breakpoints only at those that it accepts. So
/// one link tells all of them, where an attempt for each would take minutes.
fn accepted(instructions: &[Vec<u8>]) -> Vec<bool> {
    const BREAKPOINT: u8 = 0xcc;
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = testing::memory_dir().join(format!("dtrace-text-{pid}-{number}"));
    let mut bytes = Vec::new();
    for code in instructions {
        bytes.extend(code);
        bytes.resize(bytes.len().next_multiple_of(SLOT), 0x90);
    }
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    let offsets: Vec<u64> = (0..instructions.len() as u64).map(|slot| slot * SLOT as u64).collect();
    let link = Link::uprobe_multi(&nothing(), &target(&path, &offsets));
    std::fs::remove_file(&path).unwrap();
    let link = link.unwrap();
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing in it is executed.
    let memory = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes.len(), protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: the mapping has these bytes and is read by nobody else; the kernel wrote the
    // breakpoints when it was made.
    let first = |slot: usize| unsafe { memory.cast::<u8>().add(slot * SLOT).read_volatile() };
    let accepted = (0..instructions.len()).map(|slot| first(slot) == BREAKPOINT).collect();
    // SAFETY: the mapping is ours, and nothing refers to it.
    unsafe { libc::munmap(memory, bytes.len()) };
    drop(link);
    accepted
}

fn nothing() -> Prog {
    let code = [Insn::mov64_imm(Reg::R0, 0), Insn::exit()];
    let spec =
        ProgSpec { attach: AttachType::UprobeMulti, ..ProgSpec::new(ProgKind::Kprobe, "nothing", &code) };
    Prog::load(&spec).map_err(|e| e.error).unwrap()
}

/// Probes of this process alone.
fn target<'a>(path: &'a Path, offsets: &'a [u64]) -> UprobeTarget<'a> {
    let pid = Some(std::process::id());
    UprobeTarget { path: path.as_os_str(), offsets, cookies: &[], semaphores: &[], pid, is_return: false }
}

fn running_kernel() -> Kernel {
    let features = Features::running();
    let accepts_nop10 = accepted(&[NOP10.to_vec()]) == [true];
    assert_eq!(features.has(Facility::UprobeNop10), accepts_nop10);
    Kernel::tried(accepts_nop10, !features.has(Facility::UprobeNop5))
}

/// Every opcode in every map, with the prefixes that matter, and with two ModRM bytes.
fn every_opcode() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let prefixes: [&[u8]; 10] =
        [&[], &[0x66], &[0xf2], &[0xf3], &[0x48], &[0x41], &[0xf0], &[0x2e], &[0x3e], &[0x64]];
    let maps: [&[u8]; 10] = [
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc5, 0xf9],
        &[0xc5, 0xf8],
        &[0xc4, 0xe2, 0x79],
        &[0xc4, 0xe3, 0x79],
        &[0x62, 0xf1, 0x7d, 0x48],
        &[0x62, 0xf2, 0x7d, 0x48],
    ];
    for (n, map) in maps.iter().enumerate() {
        let prefixes = if n < 2 { &prefixes[..] } else { &prefixes[..1] };
        for prefix in prefixes {
            for opcode in 0..=u8::MAX {
                for modrm in [0xc0, 0x10] {
                    let mut code = [prefix, map, &[opcode, modrm][..]].concat();
                    code.resize(16, 0);
                    all.push(code);
                }
            }
        }
    }
    all
}

/// Instructions whose first byte is a breakpoint's say nothing.
fn is_certain(code: &[u8], kernel: Kernel) -> bool {
    let said = uprobe::step(code, 0, kernel);
    // What no instruction of this processor family is, the kernel may accept or not.
    code.first() != Some(&0xcc) && !matches!(said, Err(Refusal::Undecodable { .. } | Refusal::Unusual))
}

#[test]
fn the_kernel_accepts_every_opcode_that_is_said_to_be_accepted_and_no_other() {
    need!(UprobeMulti);
    let kernel = running_kernel();
    let mut cases = every_opcode();
    cases.extend([
        vec![0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        vec![0x0f, 0x1f, 0x44, 0, 0],
        vec![0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        NOP10.to_vec(),
    ]);
    let mut rng = testing::rng::Rng::new(0x7e87);
    cases.extend((0..20_000).map(|_| (0..15).map(|_| rng.bits() as u8).collect()));
    cases.retain(|code| is_certain(code, kernel));
    let mut wrong = Vec::new();
    let mut counts = [0; 3];
    for (slot, does) in accepted(&cases).into_iter().enumerate() {
        let bytes = &cases[slot];
        let said = uprobe::step(bytes, (slot * SLOT) as u64, kernel);
        let is_said_refused = said.is_err_and(|e| e.is_by_kernel());
        counts[if is_said_refused { 1 } else { usize::from(said.is_err()) * 2 }] += 1;
        if is_said_refused == does {
            wrong.push(format!("{bytes:02x?}: said {said:?}, the kernel accepts: {does}"));
        }
    }
    println!("{kernel:?}: accepted {}, refused {}, accepted and harmful {}", counts[0], counts[1], counts[2]);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn the_kernel_accepts_every_entry_of_libc_that_is_said_to_be_accepted_in_one_link() {
    need!(UprobeMulti);
    let Some(library) = Library::named("libc.so.6") else { return testing::skipped!("no libc.so.6") };
    let kernel = running_kernel();
    let (mut accepted, mut refused, mut harmful) = (Vec::new(), Vec::new(), 0);
    let moved = Uses::NOTHING.and_argument(0);
    library.each(|address, code, inside| {
        let offset = library.file_offset(address).unwrap();
        match uprobe::step(code, address, kernel) {
            Ok(_) => accepted.push(offset),
            Err(e) if e.is_by_kernel() => refused.push((offset, e)),
            Err(_) => harmful += 1,
        }
        let function = Function::decode(code, address, inside);
        accepted.extend(function.entry(kernel, moved).map(|entry| offset + entry.offset));
        accepted
            .extend(function.returns(kernel).into_iter().flatten().map(|site| offset + site.offset as u64));
    });
    accepted.sort_unstable();
    accepted.dedup();
    println!("{} places, {} refused, {harmful} harmful", accepted.len(), refused.len());
    assert!(accepted.len() > 1000);
    let link = Link::uprobe_multi(&nothing(), &target(&library.path, &accepted));
    assert!(link.is_ok(), "{link:?}");
    drop(link);
    for (offset, refusal) in refused {
        let link = Link::uprobe_multi(&nothing(), &target(&library.path, &[offset]));
        assert!(link.is_err(), "libc+{offset:#x}: {refusal}");
    }
}

/// Adds 1 to the word of the map that the cookie numbers.
fn counter(map: &Map, words: usize) -> Prog {
    let mut code = vec![Insn::call(Helper::GET_ATTACH_COOKIE)];
    code.extend(Insn::ld_map_value(Reg::R1, map.as_raw_fd(), 0));
    code.extend([
        Insn::jmp_imm(Jmp::Ge, Reg::R0, words as i32, 4),
        Insn::alu64_imm(Alu::Lsh, Reg::R0, 3),
        Insn::alu64(Alu::Add, Reg::R1, Reg::R0),
        Insn::mov64_imm(Reg::R2, 1),
        Insn::atomic64(Atomic::Add, Reg::R1, 0, Reg::R2),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    let spec =
        ProgSpec { attach: AttachType::UprobeMulti, ..ProgSpec::new(ProgKind::Kprobe, "counter", &code) };
    Prog::load(&spec).map_err(|e| format!("{}: {}", e.error, e.log)).unwrap()
}

/// A shell that waits for a line, does this and that with libc, and ends.
fn waiting_shell() -> (Child, ChildStdin) {
    const WORK: &str = "echo ready; read line; i=0; while [ $i -lt 50 ]; do i=$((i + 1)); \
        printf '%s %d %x\\n' name $i $i >/dev/null; a=${a#x}x; case $a in *y*) ;; esac; done; \
        cd /; echo * /etc/*.conf >/dev/null; test -e /etc/passwd; export A=$i; ulimit -n >/dev/null";
    let mut shell = Command::new("/bin/sh")
        .args(["-c", WORK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // The only thing that it now sleeps in is `read`.
    let stat = format!("/proc/{}/stat", shell.id());
    let is_waiting = || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") S "));
    testing::eventually("the shell's waiting", testing::HANG_LIMIT, is_waiting);
    let input = shell.stdin.take().unwrap();
    (shell, input)
}

#[test]
fn a_probe_that_is_moved_fires_as_often_as_one_at_the_first_instruction() {
    need!(UprobeMulti);
    let Some(library) = Library::named("libc.so.6") else { return testing::skipped!("no libc.so.6") };
    let kernel = running_kernel();
    let mut pairs = Vec::new();
    library.each(|address, code, inside| {
        let offset = library.file_offset(address).unwrap();
        let moved = Function::decode(code, address, inside).entry(kernel, Uses::NOTHING);
        let is_first_accepted = uprobe::step(code, address, kernel).is_ok();
        if let Some(moved) = moved.ok().filter(|moved| moved.offset != 0 && is_first_accepted) {
            pairs.push([offset, offset + moved.offset]);
        }
    });
    let offsets = pairs.as_flattened();
    let cookies: Vec<u64> = (0..offsets.len() as u64).collect();
    let map = Map::create(&MapSpec::mmapable("counts", offsets.len() as u32 * 8, 1)).unwrap();
    let counts = map.mmap(false).unwrap();
    let (mut shell, input) = waiting_shell();
    let target = UprobeTarget { cookies: &cookies, pid: Some(shell.id()), ..target(&library.path, offsets) };
    let link = Link::uprobe_multi(&counter(&map, offsets.len()), &target).unwrap();
    drop(input);
    assert!(shell.wait().unwrap().success());
    drop(link);
    let count = |word: usize| counts.load(word * 8, Ordering::SeqCst).unwrap();
    let (mut fired, mut firings) = (0, 0);
    for (n, [first, moved]) in pairs.iter().enumerate() {
        let (at_first, at_moved) = (count(2 * n), count(2 * n + 1));
        assert_eq!(at_first, at_moved, "libc+{first:#x}, moved to +{:#x}", moved - first);
        fired += usize::from(at_first > 0);
        firings += at_first;
    }
    println!("{} functions have a probe that is moved, {fired} were called, {firings} times", pairs.len());
    assert!(fired >= 5 && firings >= 50, "{fired} functions were called {firings} times");
}
