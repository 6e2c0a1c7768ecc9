//! Symbols that the caller gives.

use std::collections::BTreeMap;
use std::ops::Range;

use consumer::{Process, Symbolizer};
use events::{AddrForm, SymbolName};

/// Symbols of the kernel and of processes. An address without one is printed as a number.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// By process id (none for the kernel) and start.
    all: BTreeMap<(Option<u32>, u64), Symbol>,
}

#[derive(Clone, Debug)]
struct Symbol {
    end: u64,
    module: String,
    name: String,
}

impl Symbols {
    /// No symbols.
    pub fn new() -> Symbols {
        Symbols::default()
    }

    /// Adds a symbol of the kernel.
    #[must_use]
    pub fn kernel(self, range: Range<u64>, module: &str, name: &str) -> Symbols {
        self.with(None, range, module, name)
    }

    /// Adds a symbol of a process.
    #[must_use]
    pub fn user(self, pid: i32, range: Range<u64>, module: &str, name: &str) -> Symbols {
        self.with(Some(pid as u32), range, module, name)
    }

    fn with(mut self, pid: Option<u32>, range: Range<u64>, module: &str, name: &str) -> Symbols {
        let symbol = Symbol { end: range.end, module: module.into(), name: name.into() };
        self.all.insert((pid, range.start), symbol);
        self
    }

    fn find(&self, pid: Option<u32>, address: u64) -> Option<(u64, &Symbol)> {
        let (at, symbol) = self.all.range((pid, 0)..=(pid, address)).next_back()?;
        (address < symbol.end).then_some((at.1, symbol))
    }

    fn name(&self, pid: Option<u32>, address: u64) -> SymbolName {
        let Some((start, Symbol { module, name, .. })) = self.find(pid, address) else {
            return SymbolName::default();
        };
        SymbolName::new(Some(module.as_str().into()), Some(name.as_str().into()), address - start)
    }

    /// The first address that a name of this form covers.
    fn start(&self, pid: Option<u32>, address: u64, form: AddrForm) -> u64 {
        let Some((start, symbol)) = self.find(pid, address) else { return address };
        match form {
            AddrForm::Address => address,
            AddrForm::Symbol | AddrForm::Function | AddrForm::Guest => start,
            AddrForm::Module => {
                let same = self.all.iter().find(|(at, s)| at.0 == pid && s.module == symbol.module);
                same.map_or(start, |(at, _)| at.1)
            }
        }
    }
}

impl Symbolizer for Symbols {
    fn kernel(&mut self, addr: u64) -> SymbolName {
        self.name(None, addr)
    }

    fn user(&mut self, process: Process, addr: u64) -> SymbolName {
        self.name(Some(process.pid), addr)
    }

    fn guest(&mut self, pid: u32, addr: u64) -> SymbolName {
        self.name(Some(pid), addr)
    }

    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        self.start(None, addr, form)
    }

    fn user_start(&mut self, process: Process, addr: u64, form: AddrForm) -> u64 {
        self.start(Some(process.pid), addr, form)
    }
}
