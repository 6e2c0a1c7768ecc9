//! The addresses of functions.
//!
//! `kprobe_multi` takes the address of the function's *symbol*. The kernel's list of traceable
//! functions has the address of the instruction that the kernel patches; on machines with branch
//! protection an `endbr64` stands before it. So the kernel's code is read to see whether there is
//! one ([`bpf_sys::kernel_read`]), which is much faster than reading the symbols. If the code
//! cannot be read, the symbols decide. On kernels before 6.5 the list has no addresses: there a
//! symbol gives the address if its name is unique.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::HashMap;

use system::System;

use super::functions::Function;
use crate::arch::{MARK, is_mark};

/// The address of each function; 0 if the kernel does not tell.
pub(super) fn of(functions: &[Function<'_>], system: &System) -> Vec<u64> {
    if system.is_live() && MARK > 0 && functions.iter().all(|f| f.site != 0) {
        let before: Vec<u64> = functions.iter().map(|f| f.site - MARK).collect();
        if let Ok(words) = bpf_sys::kernel_read::words(&before) {
            let entry = |(f, word): (&Function<'_>, u32)| if is_mark(word) { f.site - MARK } else { f.site };
            return functions.iter().zip(words).map(entry).collect();
        }
    }
    let mut kernel = system.symbols();
    resolve(functions, kernel.symbols().map(|s| (s.addr, s.name, s.module)))
}

fn resolve<'k>(
    functions: &[Function<'_>],
    symbols: impl Iterator<Item = (u64, &'k str, &'k str)>,
) -> Vec<u64> {
    if functions.iter().any(|f| f.site != 0) {
        let mut starts: Vec<u64> = symbols.map(|(address, ..)| address).collect();
        starts.sort_unstable();
        let entry = |f: &Function<'_>| {
            let places = [f.site, f.site.wrapping_sub(MARK)];
            places.into_iter().find(|at| starts.binary_search(at).is_ok()).unwrap_or(0)
        };
        return functions.iter().map(entry).collect();
    }
    let key = |f: &Function<'_>| (f.name.to_string(), f.module.to_string());
    let mut found: HashMap<(String, String), Vec<u64>> =
        functions.iter().map(|f| (key(f), Vec::new())).collect();
    let mut sought = (String::new(), String::new());
    for (address, name, module) in symbols {
        sought.0.clear();
        sought.0.push_str(name);
        sought.1.clear();
        sought.1.push_str(module);
        if let Some(all) = found.get_mut(&sought).filter(|all| !all.contains(&address)) {
            all.push(address);
        }
    }
    let only = |f: &Function<'_>| match found.get(&key(f)).map(Vec::as_slice) {
        Some([one]) => *one,
        _ => 0,
    };
    functions.iter().map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &'static str, module: &'static str, site: u64) -> Function<'static> {
        Function { name, module, site }
    }

    #[test]
    fn branch_targets_are_recognized() {
        let word = |bytes| u32::from_le_bytes(bytes);
        assert!(is_mark(word([0xf3, 0x0f, 0x1e, 0xfa])) && is_mark(word([0x66, 0x0f, 0x1f, 0x00])));
        assert!(!is_mark(word([0x90; 4])) && !is_mark(word([0xcc; 4])) && !is_mark(0));
    }

    #[test]
    fn the_patched_address_leads_to_the_symbol() {
        let all = [
            function("plain", "vmlinux", 0x100),
            function("checked", "vmlinux", 0x204),
            function("dup", "vmlinux", 0x300),
            function("dup", "vmlinux", 0x404),
            function("nowhere", "vmlinux", 0x500),
        ];
        let symbols = [(0x100, "plain"), (0x200, "checked"), (0x300, "dup"), (0x400, "dup")];
        let symbols = symbols.map(|(at, name)| (at, name, "vmlinux"));
        assert_eq!(resolve(&all, symbols.into_iter()), [0x100, 0x200, 0x300, 0x400, 0]);
    }

    #[test]
    fn a_unique_name_leads_to_the_symbol() {
        let all = [function("one", "vmlinux", 0), function("two", "vmlinux", 0), function("two", "nfs", 0)];
        let symbols = [
            (0x100, "one", "vmlinux"),
            (0x100, "one", "vmlinux"),
            (0x200, "two", "vmlinux"),
            (0x300, "two", "vmlinux"),
            (0x400, "two", "nfs"),
        ];
        assert_eq!(resolve(&all, symbols.into_iter()), [0x100, 0, 0x400]);
        // Entry and return of a function.
        assert_eq!(resolve(&[all[0], all[2], all[0]], symbols.into_iter()), [0x100, 0x400, 0x100]);
    }
}
