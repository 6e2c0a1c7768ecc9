//! The kernel's symbols, from `/proc/kallsyms`.
//!
//! The file is read once, at the first lookup, in chunks. The kernel's formatting takes nearly all
//! of that time. The table is compact (16 bytes per symbol and one buffer of all names), sorted by
//! address, and searched by bisection. The file is read again if no symbol contains an address that
//! a module or a BPF program loaded since may have ([`NEAR`]), but not more often than once a
//! second, and in at most a twentieth of the time ([`SHARE`]): a clause may ask for the names of
//! any addresses.
//!
//! **Aliases.** Several symbols often share an address. The choice is deterministic and prefers the
//! name that users expect: a function before a section marker, the 64-bit system call before the
//! 32-bit one, global before weak before local, then the order of the file, which the kernel itself
//! uses. The aliases can still be found by name.
//!
//! **Hidden addresses.** Without privilege (`kernel.kptr_restrict`) every address reads as 0. Then
//! no names are available, [`Kernel::status`] reports it, and addresses are printed as numbers.

mod table;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::name::Name;
pub use table::KernelSymbol;
use table::{CORE, KERNEL_START, Symbol, Table};

/// Minimum interval between two reads of the file, from end to start.
const REREAD: Duration = Duration::from_secs(1);

/// The interval is at least this many times the duration of the last read.
const SHARE: u32 = 20;

/// Modules and BPF programs are nearer than this to the kernel's own symbols, so that relative
/// calls reach them. What lies further below is data without a name, as in the direct map.
const NEAR: u64 = 1 << 31;

/// The state of the kernel's symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelStatus {
    /// Not read yet.
    Unread,
    /// Loaded; the number of symbols.
    Ready(usize),
    /// The kernel hides addresses (`kernel.kptr_restrict`, or no privilege).
    Hidden,
    /// The file cannot be read.
    Unavailable(String),
}

/// Symbols in the format of `/proc/kallsyms` that are not in a file: those of a recorded machine.
pub trait SymbolText: std::fmt::Debug + Send + Sync {
    /// The text, made when it is first needed; or why there is none.
    fn text(&self) -> Result<Vec<u8>, String>;
}

/// Where the symbols are.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    /// They never change.
    Given(Arc<dyn SymbolText>),
}

impl Source {
    fn read(&self) -> Result<Table, String> {
        match self {
            Source::File(path) => {
                let table = std::fs::File::open(path).and_then(Table::read);
                table.map_err(|error| format!("{}: {error}", path.display()))
            }
            Source::Given(given) => Table::read(given.text()?.as_slice()).map_err(|e| e.to_string()),
        }
    }
}

/// The kernel's symbols.
#[derive(Debug)]
pub struct Kernel {
    source: Source,
    table: Option<Table>,
    status: KernelStatus,
    /// When the file may be read again. `None`: it was never read.
    next_read: Option<Instant>,
    /// Names that were returned before, by address of the symbol.
    names: HashMap<u64, Arc<str>>,
}

impl Default for Kernel {
    fn default() -> Self {
        Self::at("/proc/kallsyms")
    }
}

impl Kernel {
    /// The running kernel. Reads nothing.
    pub fn new() -> Kernel {
        Self::default()
    }

    /// Symbols of a file in the format of `/proc/kallsyms`. Reads nothing.
    pub fn at(path: impl Into<PathBuf>) -> Kernel {
        Kernel::of(Source::File(path.into()))
    }

    /// Symbols that are given. Reads nothing.
    pub fn given(text: Arc<dyn SymbolText>) -> Kernel {
        Kernel::of(Source::Given(text))
    }

    fn of(source: Source) -> Kernel {
        let status = KernelStatus::Unread;
        Kernel { source, table: None, status, next_read: None, names: HashMap::new() }
    }

    /// Whether names are available, and why not. Reads nothing.
    pub fn status(&self) -> &KernelStatus {
        &self.status
    }

    /// Reads the symbols if they were not read before.
    pub fn load(&mut self) -> &KernelStatus {
        if self.next_read.is_none() {
            self.read();
        }
        &self.status
    }

    fn read(&mut self) {
        let start = Instant::now();
        self.names.clear();
        match self.source.read() {
            Err(why) => {
                self.table = None;
                self.status = KernelStatus::Unavailable(why);
            }
            Ok(table) if table.symbols.is_empty() => {
                self.table = None;
                self.status = if table.has_lines {
                    KernelStatus::Hidden
                } else {
                    KernelStatus::Unavailable("no symbols".into())
                };
            }
            Ok(table) => {
                self.status = KernelStatus::Ready(table.symbols.len());
                self.table = Some(table);
            }
        }
        let end = Instant::now();
        self.next_read = Some(end + REREAD.max((end - start) * SHARE));
    }

    /// Whether another read of the file may find the address.
    fn is_stale(&self, addr: u64) -> bool {
        let Some(table) = self.table.as_ref().filter(|_| matches!(self.source, Source::File(_))) else {
            return false;
        };
        let lowest = table.symbols.first().map_or(addr, |s| s.addr.saturating_sub(NEAR));
        addr >= lowest
            && table.find(addr).is_none()
            && self.next_read.is_none_or(|next| next <= Instant::now())
    }

    /// The name of an address.
    pub fn name(&mut self, addr: u64) -> Name {
        if addr < KERNEL_START {
            return Name::unknown(addr);
        }
        self.load();
        if self.is_stale(addr) {
            self.read();
        }
        let Some(table) = &self.table else { return Name::unknown(addr) };
        let Some(symbol) = table.find(addr) else { return Name::unknown(addr) };
        let name = self.names.entry(symbol.addr).or_insert_with(|| table.text(symbol).into());
        Name {
            addr,
            module: table.modules.get(symbol.module as usize).map(|m| m.name.clone()),
            symbol: Some(name.clone()),
            offset: addr - symbol.addr,
            in_file: None,
            path: None,
        }
    }

    /// Start of the symbol that contains an address, otherwise the address: the key of `func()` and
    /// `sym()`.
    pub fn func_start(&mut self, addr: u64) -> u64 {
        self.name(addr).start()
    }

    /// Lowest symbol of the module that contains an address, otherwise the address: the key of
    /// `mod()`.
    pub fn module_start(&mut self, addr: u64) -> u64 {
        self.name(addr);
        let module = self.table.as_ref().and_then(|t| {
            let symbol = t.find(addr)?;
            t.modules.get(symbol.module as usize)
        });
        module.map_or(addr, |m| m.start)
    }

    /// Lowest and highest symbol of a module (`vmlinux`: the kernel itself).
    pub fn module_range(&mut self, module: &str) -> Option<(u64, u64)> {
        self.load();
        let table = self.table.as_ref()?;
        table.modules.iter().find(|m| *m.name == *module).map(|m| (m.start, m.end))
    }

    /// Finds a symbol by name, in the given module; without one, in the kernel, then in the first
    /// module that has it. The search includes offset symbols (per-CPU variables).
    pub fn find(&mut self, module: Option<&str>, name: &str) -> Option<KernelSymbol<'_>> {
        self.load();
        let table = self.table.as_ref()?;
        let of = |list: &'_ [Symbol]| {
            let named = list.iter().filter(|s| table.is_named(s, name));
            let found = named.map(|s| table.shown(s)).filter(|s| module.is_none_or(|m| m == s.module));
            found.min_by_key(|s| (s.module != CORE, s.kind.is_ascii_lowercase(), s.addr))
        };
        of(&table.symbols).or_else(|| of(&table.offsets))
    }

    /// The addresses of symbols of the kernel itself, each by its name: the first one with that
    /// name. One pass over all symbols.
    pub fn addresses(&mut self, names: &[&str]) -> Vec<Option<u64>> {
        self.load();
        let mut found = vec![None; names.len()];
        let Some(table) = self.table.as_ref() else { return found };
        for symbol in table.symbols.iter().filter(|s| s.module == 0) {
            for (name, found) in names.iter().zip(&mut found) {
                if found.is_none() && table.is_named(symbol, name) {
                    *found = Some(symbol.addr);
                }
            }
        }
        found
    }

    /// True when the module has symbols.
    pub fn has_module(&mut self, module: &str) -> bool {
        self.load();
        self.table.as_ref().is_some_and(|t| t.modules.iter().any(|m| *m.name == *module))
    }

    /// True when the kernel itself has symbols of variables, and not only of functions
    /// (`CONFIG_KALLSYMS_ALL`).
    pub fn has_data(&mut self) -> bool {
        self.load();
        // Without that option only a few section markers have these types, and they are global.
        let data = |s: &Symbol| s.module == 0 && matches!(s.kind, b'd' | b'b');
        self.table.as_ref().is_some_and(|t| t.symbols.iter().any(data))
    }

    /// Candidates for a misspelt name: similar length, same first letter.
    pub fn names_like(&mut self, wrong: &str) -> Vec<String> {
        self.load();
        let Some(table) = self.table.as_ref() else { return Vec::new() };
        let like = |s: &&Symbol| {
            let n = table.text(s);
            n.len().abs_diff(wrong.len()) <= 2 && n.chars().next() == wrong.chars().next()
        };
        let all = table.symbols.iter().chain(&table.offsets);
        all.filter(like).map(|s| table.text(s).to_owned()).collect()
    }

    /// The address ranges of the functions whose names satisfy `wanted`. A range ends at the next
    /// symbol.
    pub fn ranges(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
        self.load();
        let symbols = self.table.as_ref().map_or(&[][..], |t| &t.symbols);
        let named = |s: &Symbol| self.table.as_ref().is_some_and(|t| wanted(t.text(s)));
        let text =
            symbols.iter().enumerate().filter(|(_, s)| matches!(s.kind | 0x20, b't' | b'w') && named(s));
        let next = |(i, s): (usize, &Symbol)| {
            let after = symbols.iter().skip(i).find(|n| n.addr > s.addr)?;
            Some((s.addr, after.addr))
        };
        text.filter_map(next).collect()
    }

    /// All symbols in the order of their addresses.
    pub fn symbols(&mut self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.load();
        self.table.iter().flat_map(Table::symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
000000000001c2b0 A __preempt_count
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t local_first
ffffffff81000100 T the_global
ffffffff81000100 W the_weak
ffffffff81000200 T __softirqentry_text_start
ffffffff81000200 T __do_softirq
ffffffff81000400 T _etext
ffffffff82000000 D some_data
ffffffffc0201000 t mod_func\t[ext4]
ffffffffc0200000 T mod_init\t[ext4]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_x\t[bpf]
not a line
ffffffffc0300010 x
";

    fn kernel(text: &str, test: &str) -> (Kernel, PathBuf) {
        let path = std::env::temp_dir().join(format!("symbols-kernel-{test}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        (Kernel::at(&path), path)
    }

    #[test]
    fn addresses_get_module_symbol_and_offset() {
        let (mut k, path) = kernel(TEXT, "names");
        assert_eq!(k.status(), &KernelStatus::Unread);
        for (addr, text) in [
            (0xffffffff81000110, "vmlinux`the_global+0x10"),
            (0xffffffff81000100, "vmlinux`the_global"),
            (0xffffffff81000200, "vmlinux`__do_softirq"),
            (0xffffffff81000000, "vmlinux`_stext"),
            (0xffffffff81000401, "0xffffffff81000401"),
            (0xffffffff80ffffff, "0xffffffff80ffffff"),
            (0xffffffff82000008, "vmlinux`some_data+0x8"),
            (0xffffffff84000008, "0xffffffff84000008"),
            (0xffffffffc0200ff0, "ext4`mod_init+0xff0"),
            (0xffffffffc0201004, "ext4`mod_func+0x4"),
            (0xffffffffc0300001, "bpf`bpf_prog_6deef7357e7b4530_x+0x1"),
            (0, "0x0"),
            (0x7f0000001234, "0x7f0000001234"),
            (u64::MAX, "0xffffffffffffffff"),
        ] {
            assert_eq!(k.name(addr).to_string(), text);
        }
        assert_eq!(k.find(None, "__preempt_count").map(|s| s.addr), Some(0x1c2b0));
        assert_eq!(k.find(Some("ext4"), "mod_init").map(|s| s.addr), Some(0xffffffffc0200000));
        assert_eq!(k.find(Some("ext4"), "the_global"), None);
        assert_eq!(k.names_like("the_globel"), ["the_global", "the_weak"]);
        assert!(!k.has_data() && k.has_module("ext4") && !k.has_module("xfs"));
        assert_eq!(k.func_start(0xffffffff81000110), 0xffffffff81000100);
        assert_eq!(k.func_start(0x1234), 0x1234);
        assert_eq!(k.module_start(0xffffffffc0201004), 0xffffffffc0200000);
        assert_eq!(k.module_range("ext4"), Some((0xffffffffc0200000, 0xffffffffc0201000)));
        assert_eq!(
            k.find(None, "mod_func").map(|s| (s.addr, s.module.to_string())),
            Some((0xffffffffc0201000, "ext4".into()))
        );
        assert_eq!(k.ranges(|n| n.ends_with("global")), [(0xffffffff81000100, 0xffffffff81000200)]);
        assert_eq!(k.find(Some("vmlinux"), "mod_func"), None);
        assert_eq!(k.find(None, "local_first").map(|s| s.kind), Some('t'));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn hidden_kernel_addresses_are_reported() {
        let (mut k, path) = kernel("0000000000000000 T _stext\n0000000000000000 t x\n", "hidden");
        assert_eq!(k.name(0xffffffff81000110).to_string(), "0xffffffff81000110");
        assert_eq!(k.status(), &KernelStatus::Hidden);
        std::fs::remove_file(path).unwrap();
        let mut none = Kernel::at("/nonexistent/kallsyms");
        assert!(matches!(none.load(), KernelStatus::Unavailable(_)));
        assert_eq!(none.name(0xffffffff81000110).to_string(), "0xffffffff81000110");
        assert_eq!(none.symbols().count(), 0);
    }

    #[test]
    fn only_addresses_near_the_symbols_cause_another_read() {
        let (mut k, path) = kernel(TEXT, "stale");
        k.load();
        std::fs::write(&path, format!("{TEXT}ffffffffc0400000 t later_func\t[xfs]\n")).unwrap();
        let soon = k.next_read;
        assert_eq!(k.name(0xffffffffc0400008).symbol, None);
        assert_eq!(k.next_read, soon, "the interval has not passed");
        k.next_read = Some(Instant::now());
        let passed = k.next_read;
        assert_eq!(k.name(0xffff_8880_1234_5678).symbol, None);
        assert_eq!(k.next_read, passed, "no symbol is so far below");
        assert_eq!(k.name(0xffffffffc0400008).to_string(), "xfs`later_func+0x8");
        assert!(k.next_read > passed);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn lines_across_chunks_are_whole() {
        let mut text = String::new();
        for i in 0..20_000u64 {
            text.push_str(&format!("{:016x} t symbol_number_{i}\n", 0xffffffff81000000 + i * 16));
        }
        let table = Table::read(text.trim_end().as_bytes()).unwrap();
        assert_eq!(table.symbols.len(), 20_000);
        assert!(table.symbols().enumerate().all(|(i, s)| s.name == format!("symbol_number_{i}")));
    }

    #[test]
    fn the_running_kernel_is_read() {
        let mut k = Kernel::new();
        let start = Instant::now();
        let status = k.load().clone();
        let took = start.elapsed();
        let KernelStatus::Ready(n) = status else {
            testing::skipped!("{status:?}");
            return;
        };
        println!("{n} symbols in {took:?}");
        let read = k.find(None, "vfs_read").unwrap().addr;
        assert_eq!(k.name(read + 4).to_string(), "vmlinux`vfs_read+0x4");
        assert_eq!(k.func_start(read + 4), read);
        assert_eq!(k.name(read).module_only().to_string(), "vmlinux");
        let (start, end) = k.module_range("vmlinux").unwrap();
        assert!(start <= read && read < end);
        assert_eq!(k.module_start(read), start);
    }
}
