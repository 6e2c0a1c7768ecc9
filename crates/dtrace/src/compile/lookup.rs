//! Names that the parser and the checker look up: typedefs of the libraries and of the kernel,
//! symbols of the kernel.

use std::cell::RefCell;

use check::NoSymbol;
use symbols::KernelStatus;
use syntax::{Libraries, TypeNames};
use system::System;
use types::btf::{BtfKind, KernelBtf};

/// Typedefs that a text may use without declaring them, for the parser: the libraries', then the
/// kernel's (a module's only where the text names the module). D's own words are no types.
pub(crate) struct TypedefNames<'a> {
    pub(crate) libraries: &'a Libraries,
    pub(crate) kernel: &'a KernelBtf,
}

impl TypeNames for TypedefNames<'_> {
    fn is_type(&self, name: &str) -> bool {
        let typedef = &[BtfKind::Typedef];
        let is_word = || check::tables::variable(name).is_some() || check::tables::function(name).is_some();
        match name.rsplit_once('`') {
            Some((module, name)) => {
                self.kernel.module(module).is_some_and(|btf| btf.find(typedef, name).is_some())
            }
            None if self.libraries.is_type(name) => true,
            None if is_word() => false,
            None => self.kernel.vmlinux().is_ok_and(|btf| btf.find(typedef, name).is_some()),
        }
    }
}

/// The kernel's symbols, which are read when a program names the first one.
pub(crate) struct KernelSymbols(RefCell<symbols::Kernel>);

impl KernelSymbols {
    /// Those of a machine.
    pub(crate) fn of(system: &System) -> KernelSymbols {
        KernelSymbols(RefCell::new(system.symbols()))
    }
}

impl check::Symbols for KernelSymbols {
    fn address(&self, module: Option<&str>, name: &str) -> Result<(u64, String), NoSymbol> {
        let mut kernel = self.0.borrow_mut();
        match kernel.load() {
            KernelStatus::Hidden => {
                let why = "the kernel hides the addresses of its symbols; see kernel.kptr_restrict";
                return Err(NoSymbol::Hidden(why.into()));
            }
            KernelStatus::Unavailable(why) => return Err(NoSymbol::Hidden(why.clone())),
            KernelStatus::Unread | KernelStatus::Ready(_) => {}
        }
        if let Some(found) = kernel.find(module, name) {
            return Ok((found.addr, found.module.into()));
        }
        Err(match module.is_none_or(|m| kernel.has_module(m)) {
            false => NoSymbol::Module,
            true if kernel.has_data() => NoSymbol::Name,
            true => NoSymbol::FunctionsOnly,
        })
    }

    fn like(&self, wrong: &str) -> Vec<String> {
        self.0.borrow_mut().names_like(wrong)
    }
}
