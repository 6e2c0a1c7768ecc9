//! Where functions begin.
//!
//! A link to many functions tells its program which one fired by the address that the *symbol* has, and wants to be given
//! that address; the kernel's list of traceable functions has the place that it patches, which on machines with checked
//! branches lies behind an `endbr64`. So the symbols decide. Without addresses in the list (kernels before 6.5) a name says
//! where its function is if only one has it.

use std::collections::HashMap;

use super::functions::Function;

/// Length of `endbr64`.
const ENDBR: u64 = 4;

/// The first byte of each function; 0 where the symbols do not tell.
pub(super) fn of(functions: &[&Function]) -> Vec<u64> {
    let mut kernel = symbols::Kernel::new();
    resolve(functions, kernel.symbols().map(|s| (s.addr, s.name, s.module)))
}

fn resolve<'k>(functions: &[&Function], symbols: impl Iterator<Item = (u64, &'k str, &'k str)>) -> Vec<u64> {
    if functions.iter().any(|f| f.site != 0) {
        let mut starts: Vec<u64> = symbols.map(|(address, ..)| address).collect();
        starts.sort_unstable();
        let entry = |f: &&Function| {
            let places = [f.site, f.site.wrapping_sub(ENDBR)];
            places.into_iter().find(|at| starts.binary_search(at).is_ok()).unwrap_or(0)
        };
        return functions.iter().map(entry).collect();
    }
    let key = |f: &Function| (f.name.to_string(), f.module.to_string());
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
    let only = |f: &&Function| match found.get(&key(f)).map(Vec::as_slice) {
        Some([one]) => *one,
        _ => 0,
    };
    functions.iter().map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, module: &str, site: u64) -> Function {
        Function { name: name.into(), module: module.into(), site }
    }

    #[test]
    fn by_the_place_that_is_patched() {
        let all = [
            function("plain", "vmlinux", 0x100),
            function("checked", "vmlinux", 0x204),
            function("dup", "vmlinux", 0x300),
            function("dup", "vmlinux", 0x404),
            function("nowhere", "vmlinux", 0x500),
        ];
        let symbols = [(0x100, "plain"), (0x200, "checked"), (0x300, "dup"), (0x400, "dup")];
        let symbols = symbols.map(|(at, name)| (at, name, "vmlinux"));
        let all: Vec<&Function> = all.iter().collect();
        assert_eq!(resolve(&all, symbols.into_iter()), [0x100, 0x200, 0x300, 0x400, 0]);
    }

    #[test]
    fn by_name_where_it_is_the_only_one() {
        let all = [function("one", "vmlinux", 0), function("two", "vmlinux", 0), function("two", "nfs", 0)];
        let symbols = [
            (0x100, "one", "vmlinux"),
            (0x100, "one", "vmlinux"),
            (0x200, "two", "vmlinux"),
            (0x300, "two", "vmlinux"),
            (0x400, "two", "nfs"),
        ];
        let all: Vec<&Function> = all.iter().collect();
        assert_eq!(resolve(&all, symbols.into_iter()), [0x100, 0, 0x400]);
    }
}
