//! Reads words of kernel memory outside of any probe.
//!
//! The words are read by a program that user space runs directly. A map holds the addresses, and
//! the program replaces each address with the word at that address. For the first bytes of a few
//! functions, this is a hundred times faster than reading all symbols.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use crate::insn::{Alu, Helper, Insn, Jmp, Reg, Size};
use crate::{Map, MapSpec, Mmap, Prog, ProgKind, ProgSpec, SysError};

/// Addresses of one run. The verifier processes the loop as many times.
const AT_ONCE: usize = 128;

/// The four bytes at each address, as a number. 0 where there is no memory.
pub fn words(addresses: &[u64]) -> Result<Vec<u32>, SysError> {
    KernelReader::open()?.words(addresses)
}

/// Kernel memory that can be read.
#[derive(Debug)]
pub struct KernelReader {
    memory: Mmap,
    words: Prog,
    map: Map,
}

impl KernelReader {
    /// Loads the program.
    pub fn open() -> Result<KernelReader, SysError> {
        let bytes = 8 * AT_ONCE as u32;
        let map = Map::create(&MapSpec::mmapable("dt_peek", bytes, 1))?;
        let memory = map.mmap(true)?;
        let words = load(&program(map.as_fd().as_raw_fd(), bytes))?;
        Ok(KernelReader { memory, words, map })
    }

    /// The four bytes at each address, as a number. 0 where there is no memory.
    pub fn words(&self, addresses: &[u64]) -> Result<Vec<u32>, SysError> {
        let mut found = Vec::with_capacity(addresses.len());
        for some in addresses.chunks(AT_ONCE) {
            let places = || self.memory.words().iter().take(some.len());
            for (place, address) in places().zip(some) {
                place.store(*address, Ordering::Relaxed);
            }
            self.words.test_run(&[], None)?;
            found.extend(places().map(|place| place.load(Ordering::Relaxed) as u32));
        }
        Ok(found)
    }

    /// The eight bytes at an address. 0 where there is no memory.
    pub fn word(&self, address: u64) -> Result<u64, SysError> {
        let halves = self.words(&[address, address.wrapping_add(4)])?;
        Ok(halves.iter().rev().fold(0, |word, half| word << 32 | u64::from(*half)))
    }

    /// The address of the `task_struct` of this thread.
    pub fn current_task(&self) -> Result<u64, SysError> {
        let mut insns = vec![Insn::call(Helper::GET_CURRENT_TASK)];
        insns.extend(Insn::ld_map_value(Reg::R6, self.map.as_fd().as_raw_fd(), 0));
        insns.extend([Insn::stx(Size::B8, Reg::R6, 0, Reg::R0), Insn::mov64_imm(Reg::R0, 0), Insn::exit()]);
        load(&insns)?.test_run(&[], None)?;
        Ok(self.memory.words().first().map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

fn load(insns: &[Insn]) -> Result<Prog, SysError> {
    let spec = ProgSpec::new(ProgKind::RawTracepoint, "peek", insns);
    Prog::load(&spec).map_err(|refusal| refusal.error)
}

/// Replaces each word of the map's value by the memory at the address in that word.
fn program(map: i32, bytes: u32) -> Vec<Insn> {
    const WORD: i16 = -8;
    let mut insns = Insn::ld_map_value(Reg::R6, map, 0).to_vec();
    let body = [
        Insn::mov64(Reg::R8, Reg::R6),
        Insn::alu64(Alu::Add, Reg::R8, Reg::R7),
        Insn::st(Size::B8, Reg::R10, WORD, 0),
        Insn::mov64(Reg::R1, Reg::R10),
        Insn::alu64_imm(Alu::Add, Reg::R1, WORD as i32),
        Insn::mov64_imm(Reg::R2, 4),
        Insn::ldx(Size::B8, Reg::R3, Reg::R8, 0),
        Insn::call(Helper::PROBE_READ_KERNEL),
        Insn::ldx(Size::B8, Reg::R1, Reg::R10, WORD),
        Insn::stx(Size::B8, Reg::R8, 0, Reg::R1),
        Insn::alu64_imm(Alu::Add, Reg::R7, 8),
    ];
    insns.push(Insn::mov64_imm(Reg::R7, 0));
    insns.extend(body);
    insns.extend([
        Insn::jmp_imm(Jmp::Lt, Reg::R7, bytes as i32, -(body.len() as i16) - 1),
        Insn::mov64_imm(Reg::R0, 0),
        Insn::exit(),
    ]);
    insns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_banner_is_read_at_its_address() {
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let banner = symbols.lines().find_map(|l| l.strip_suffix(" linux_banner")?.split(' ').next());
        let Some(banner) = banner.and_then(|a| u64::from_str_radix(a, 16).ok()).filter(|a| *a != 0) else {
            testing::skipped!("its address is hidden");
            return;
        };
        // More addresses than one run takes, a last run that is not full, and an invalid address in
        // between.
        let mut addresses: Vec<u64> = (0..200).map(|n| banner + n % 3 * 4).collect();
        addresses[100] = 16;
        match words(&addresses) {
            Ok(found) => {
                let text = b"Linux version";
                let word = |n: usize| u32::from_le_bytes([text[n], text[n + 1], text[n + 2], text[n + 3]]);
                let expected: Vec<u32> =
                    (0..200).map(|n| if n == 100 { 0 } else { word(n % 3 * 4) }).collect();
                assert_eq!(found, expected);
            }
            Err(e) => testing::skipped!("{e}"),
        }
    }

    #[test]
    fn a_word_is_read_at_the_address_of_this_thread() {
        let kernel = types::btf::KernelBtf::running();
        let Ok(btf) = kernel.vmlinux() else { return testing::skipped!("this kernel has no types") };
        let offset = |member: &str| u64::from(btf.field(member).unwrap().offset());
        match KernelReader::open() {
            Ok(reader) => {
                let task = reader.current_task().unwrap();
                // Two numbers of 32 bits: the ids of the thread and of the process.
                let pids = reader.word(task + offset("task_struct.pid")).unwrap();
                let tgid = reader.words(&[task + offset("task_struct.tgid")]).unwrap();
                assert_eq!(((pids >> 32) as u32, pids != 0), (tgid[0], true));
                assert_eq!(reader.word(16).unwrap(), 0);
            }
            Err(e) => testing::skipped!("{e}"),
        }
    }
}
