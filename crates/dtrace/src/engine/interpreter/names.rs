//! Names of addresses that were captured with the firings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use consumer::{Process, Symbolizer};
use events::{AddrForm, SymbolName};

/// By process (none for the kernel) and address. The last name is that of the program that the
/// process executed last. Clones are of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapturedNames(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    names: HashMap<(Option<u32>, u64), SymbolName>,
    /// The address that stands for all of a module.
    modules: HashMap<(Option<u32>, Arc<str>), u64>,
}

impl CapturedNames {
    /// Adds names.
    pub(crate) fn learn(&self, new: Vec<(Option<u32>, u64, SymbolName)>) {
        if !new.is_empty() {
            let known = new.into_iter().map(|(process, address, name)| ((process, address), name));
            self.with(|table| table.names.extend(known));
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn name(&self, process: Option<u32>, address: u64) -> SymbolName {
        self.with(|table| table.names.get(&(process, address)).cloned()).unwrap_or_default()
    }

    /// The address by which a name of this form is aggregated. It has the name, too.
    fn start(&self, process: Option<u32>, address: u64, form: AddrForm) -> u64 {
        self.with(|table| {
            let Some(name) = table.names.get(&(process, address)).cloned() else { return address };
            match (form, &name.symbol, &name.module) {
                (AddrForm::Symbol | AddrForm::Function | AddrForm::Guest, Some(_), _) => {
                    let start = address.wrapping_sub(name.offset);
                    let mut whole = name.clone();
                    whole.offset = 0;
                    table.names.insert((process, start), whole);
                    start
                }
                (AddrForm::Module, _, Some(module)) => {
                    *table.modules.entry((process, module.clone())).or_insert(address)
                }
                _ => address,
            }
        })
    }
}

impl Symbolizer for CapturedNames {
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
