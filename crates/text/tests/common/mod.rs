//! Functions of this machine's libraries.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A library that is read whole.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
    /// Address to size: the functions of `.dynsym`, and of `.symtab` where there is one.
    pub(crate) functions: BTreeMap<u64, u64>,
    /// Address, offset in the file and length of what is executable.
    segments: Vec<(u64, u64, u64)>,
}

fn number(bytes: &[u8], at: u64, width: u64) -> u64 {
    let mut word = [0; 8];
    let at = at as usize;
    if let Some(found) = bytes.get(at..at + width as usize) {
        word[..found.len()].copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}

impl Library {
    /// Reads a library by its soname: one that this process has mapped, or in the usual directory.
    pub(crate) fn named(soname: &str) -> Option<Library> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).map(PathBuf::from);
        let usual = Path::new("/usr/lib/x86_64-linux-gnu").join(soname);
        let is_it = |p: &PathBuf| p.file_name().is_some_and(|n| n == soname);
        let path = mapped.chain([usual]).find(|p| is_it(p) && p.exists())?;
        let bytes = std::fs::read(&path).ok()?;
        let mut library = Library { path, bytes, functions: BTreeMap::new(), segments: Vec::new() };
        library.parse();
        Some(library)
    }

    fn parse(&mut self) {
        let b = &self.bytes;
        let (programs, sections) = (number(b, 32, 8), number(b, 40, 8));
        for n in 0..number(b, 56, 2) {
            let at = programs + n * 56;
            let is_code = number(b, at, 4) == 1 && number(b, at + 4, 4) & 1 != 0;
            if is_code {
                self.segments.push((number(b, at + 16, 8), number(b, at + 8, 8), number(b, at + 32, 8)));
            }
        }
        for n in 0..number(b, 60, 2) {
            let at = sections + n * 64;
            let is_symbols = matches!(number(b, at + 4, 4), 2 | 11);
            let (start, size) = (number(b, at + 24, 8), number(b, at + 32, 8));
            for at in (start..start + size).step_by(24).filter(|_| is_symbols) {
                let (kind, section) = (number(b, at + 4, 1) & 0xf, number(b, at + 6, 2));
                let (address, size) = (number(b, at + 8, 8), number(b, at + 16, 8));
                if matches!(kind, 2 | 10) && section != 0 && size != 0 {
                    let known = self.functions.entry(address).or_insert(size);
                    *known = size.max(*known);
                }
            }
        }
    }

    /// The offset in the file of an address.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        let holds = |s: &&(u64, u64, u64)| (s.0..s.0 + s.2).contains(&address);
        self.segments.iter().find(holds).map(|s| address - s.0 + s.1)
    }

    /// The code of a function.
    pub(crate) fn code(&self, address: u64, size: u64) -> Option<&[u8]> {
        let at = self.file_offset(address)? as usize;
        self.bytes.get(at..at.checked_add(size as usize)?)
    }

    /// Every function: its address, its code, the symbols inside.
    pub(crate) fn each(&self, mut visit: impl FnMut(u64, &[u8], &[u64])) {
        for (address, size) in &self.functions {
            let inside: Vec<u64> = self.functions.range(address + 1..address + size).map(|f| *f.0).collect();
            if let Some(code) = self.code(*address, *size) {
                visit(*address, code, &inside);
            }
        }
    }
}
