//! The name of an address.

use std::fmt;
use std::sync::Arc;

/// The name of an address. `Display` prints DTrace's format of a stack frame:
/// `` module`symbol+0xoffset ``, without `+0x0`; without a symbol `module+0xaddress` in the file of
/// a process, and `` module`0xaddress ``; `0xaddress` without a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The address that was looked up.
    pub addr: u64,
    /// Kernel: `vmlinux` or the module. Process: the base name of the object.
    pub module: Option<Arc<str>>,
    /// The symbol. It is only present with a module.
    pub symbol: Option<Arc<str>>,
    /// Offset in the symbol; 0 without a symbol.
    pub offset: u64,
    /// Without a symbol: the address in the file of a process's object, as the file's headers have
    /// it.
    pub in_file: Option<u64>,
    /// The path of the object as its process sees it, escaped for output; `None` where there is no
    /// file, or none that is known.
    pub path: Option<Arc<str>>,
}

impl Name {
    /// An address without a name.
    pub fn unknown(addr: u64) -> Name {
        Name { addr, module: None, symbol: None, offset: 0, in_file: None, path: None }
    }

    /// Start of the symbol, otherwise the address itself: the key of `func()` and `usym()`.
    pub fn start(&self) -> u64 {
        self.addr.wrapping_sub(self.offset)
    }

    /// The format of `func()`, `sym()` and `usym()`: without the offset.
    pub fn without_offset(&self) -> impl fmt::Display + '_ {
        Short(self)
    }

    /// The format of `mod()` and `umod()`: the module, otherwise the address.
    pub fn module_only(&self) -> impl fmt::Display + '_ {
        Module(self)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Short(self))?;
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "+{offset:#x}"),
        }
    }
}

struct Short<'a>(&'a Name);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.module, &self.0.symbol) {
            (Some(module), Some(symbol)) => write!(f, "{module}`{symbol}"),
            (Some(module), None) => match self.0.in_file {
                Some(address) => write!(f, "{module}+{address:#x}"),
                None => write!(f, "{module}`{:#x}", self.0.addr),
            },
            (None, _) => write!(f, "{:#x}", self.0.addr),
        }
    }
}

struct Module<'a>(&'a Name);

impl fmt::Display for Module<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.module {
            Some(module) => f.write_str(module),
            None => write!(f, "{:#x}", self.0.addr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_in_dtrace_s_format() {
        let name = |module: Option<&str>, symbol: Option<&str>, offset| Name {
            addr: 0xffff_0010,
            module: module.map(Into::into),
            symbol: symbol.map(Into::into),
            offset,
            in_file: None,
            path: None,
        };
        let in_file = Name { in_file: Some(0x1f40), ..name(Some("libc.so.6"), None, 0) };
        for (name, full, short, module) in [
            (
                name(Some("vmlinux"), Some("vfs_read"), 0x1f),
                "vmlinux`vfs_read+0x1f",
                "vmlinux`vfs_read",
                "vmlinux",
            ),
            (name(Some("ext4"), Some("ext4_map"), 0), "ext4`ext4_map", "ext4`ext4_map", "ext4"),
            (name(Some("libc.so.6"), None, 0), "libc.so.6`0xffff0010", "libc.so.6`0xffff0010", "libc.so.6"),
            (in_file, "libc.so.6+0x1f40", "libc.so.6+0x1f40", "libc.so.6"),
            (name(None, None, 0), "0xffff0010", "0xffff0010", "0xffff0010"),
        ] {
            assert_eq!(name.to_string(), full);
            assert_eq!(name.without_offset().to_string(), short);
            assert_eq!(name.module_only().to_string(), module);
        }
    }
}
