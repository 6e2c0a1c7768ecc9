//! The kernel's list of traceable functions, in tracefs.
//!
//! The list is read when a description first needs it, and stored as text: 50,000 lines, two
//! megabytes. Functions are searched in the text, so that a description costs one pass and the
//! probes that it matches, and not a name for each function. A function is identified by its line.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use system::System;

use super::functions::Function;

/// The module name of functions in the kernel itself.
pub(super) const CORE: &str = "vmlinux";

/// The name of entries without a function (a weak function that another one replaced).
const INVALID: &str = "__ftrace_invalid_address__";

/// The list's text.
#[derive(Debug, Default)]
pub(super) struct List {
    text: String,
    /// The offset of each line.
    lines: Vec<u32>,
}

impl List {
    /// Reads the list of a machine.
    pub(super) fn read(system: &System) -> Result<List, String> {
        system.functions().map(List::of)
    }

    /// True if this process may read the list.
    pub(super) fn exists(system: &System) -> bool {
        system.may_list_functions()
    }

    pub(super) fn of(text: String) -> List {
        // Offsets have 32 bits.
        let mut lines = Vec::with_capacity(text.len() / 32);
        let mut at = 0;
        while let (Ok(start), Some(length)) = (u32::try_from(at), text[at..].find('\n')) {
            lines.push(start);
            at += length + 1;
        }
        if at < text.len() && u32::try_from(text.len()).is_ok() {
            lines.push(at as u32);
        }
        List { text, lines }
    }

    /// How many lines it has.
    pub(super) fn lines(&self) -> u32 {
        self.lines.len() as u32
    }

    /// True if the list has functions of a module.
    pub(super) fn has_module(&self, name: &str) -> bool {
        self.text.contains(&format!("[{name}]"))
    }

    /// A list of the functions of some modules.
    pub(super) fn only(&self, wanted: impl Fn(&str) -> bool) -> List {
        let ends = self.lines.iter().skip(1).map(|next| *next as usize).chain([self.text.len()]);
        let lines =
            self.lines.iter().map(|at| *at as usize).zip(ends).filter_map(|(at, end)| self.text.get(at..end));
        List::of(lines.filter(|line| function(line).is_some_and(|f| wanted(f.module))).collect())
    }

    /// The function of a line.
    pub(super) fn at(&self, line: u32) -> Option<Function<'_>> {
        let line = line as usize;
        let start = *self.lines.get(line)? as usize;
        let end = self.lines.get(line + 1).map_or(self.text.len(), |next| *next as usize);
        function(&self.text[start..end])
    }

    /// The functions whose names begin with a prefix, in the order of their lines, each with its
    /// line.
    pub(super) fn starting(&self, prefix: &str) -> impl Iterator<Item = (u32, Function<'_>)> {
        let ends = self.lines.iter().skip(1).map(|next| *next as usize).chain([self.text.len()]);
        let lines = (0..).zip(self.lines.iter().map(|at| *at as usize).zip(ends));
        let bytes = self.text.as_bytes();
        // Most lines have an address and another name. These cost one comparison.
        let other = move |start: usize| {
            let name = if bytes.get(start + ADDRESS) == Some(&b' ') { start + ADDRESS + 1 } else { start };
            bytes.get(name..).is_some_and(|rest| !rest.starts_with(prefix.as_bytes()))
                && bytes.get(start..).is_some_and(|rest| !rest.starts_with(prefix.as_bytes()))
        };
        let functions = lines.filter(move |(_, (start, _))| prefix.is_empty() || !other(*start));
        let functions =
            functions.filter_map(|(line, (start, end))| Some((line, function(&self.text[start..end])?)));
        functions.filter(move |(_, f)| f.name.starts_with(prefix))
    }
}

/// The number of digits of an address.
const ADDRESS: usize = 16;

/// Parses a line: `[address] name [module]`.
fn function(line: &str) -> Option<Function<'_>> {
    let mut rest = line.trim_ascii_end();
    let mut site = 0;
    if let Some((address, after)) = rest.split_at_checked(ADDRESS)
        && let Some(after) = after.strip_prefix(' ')
        && let Ok(address) = u64::from_str_radix(address, 16)
    {
        (site, rest) = (address, after);
    }
    let (name, module) = match rest.bytes().position(|b| b <= b' ') {
        None => (rest, CORE),
        Some(end) => (&rest[..end], rest[end..].trim_ascii().strip_prefix('[')?.strip_suffix(']')?),
    };
    let function = Function { name, module, site };
    let known = !name.is_empty() && !name.starts_with(INVALID) && !name.contains(':');
    (known && !function.is_tracer()).then_some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &List, prefix: &str) -> Vec<String> {
        list.starting(prefix)
            .map(|(line, f)| format!("{line} {}`{} {:x}", f.module, f.name, f.site))
            .collect()
    }

    #[test]
    fn lists_with_and_without_addresses_are_read() {
        let addresses = List::of(
            "ffffffff81002014 vfs_read\nffffffff81002084 dup\nffffffff81002084 migrate_disable\n\
             ffffffffc02ea974 dup [overlay]\nffffffffc02ea9d0 ovl.isra.0\t[overlay]\nffffffff81003000 last"
                .into(),
        );
        let expected = [
            "0 vmlinux`vfs_read ffffffff81002014",
            "1 vmlinux`dup ffffffff81002084",
            "3 overlay`dup ffffffffc02ea974",
            "4 overlay`ovl.isra.0 ffffffffc02ea9d0",
            "5 vmlinux`last ffffffff81003000",
        ];
        assert_eq!(names(&addresses, ""), expected);
        assert_eq!(names(&addresses, "dup"), expected[1..3]);
        assert_eq!(names(&addresses, "ffff"), [""; 0]);
        assert!(addresses.has_module("overlay") && !addresses.has_module("over"));
        assert_eq!(names(&addresses.only(|m| m == "overlay"), "")[1], expected[3].replace("4 ", "1 "));
        assert_eq!(addresses.at(4).map(|f| f.name), Some("ovl.isra.0"));
        assert_eq!((addresses.at(2), addresses.at(6)), (None, None));
        let plain = List::of("__ftrace_invalid_address___496\nvfs_read\nnfs_read [nfs]\n\n".into());
        assert_eq!(names(&plain, ""), ["1 vmlinux`vfs_read 0", "2 nfs`nfs_read 0"]);
        assert_eq!(names(&plain, "nfs_"), ["2 nfs`nfs_read 0"]);
        // A name of sixteen letters is no address.
        let long = List::of("abcdefabcdefabcx [m]\nsixteen_letters_ [m]\n".into());
        assert_eq!(names(&long, ""), ["0 m`abcdefabcdefabcx 0", "1 m`sixteen_letters_ 0"]);
        assert_eq!(names(&long, "six"), ["1 m`sixteen_letters_ 0"]);
    }
}
