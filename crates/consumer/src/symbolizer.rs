//! What the consumer asks of whoever knows symbols.
//!
//! A trait and not the `symbols` crate itself: what is printed must be testable to the column without a kernel.

use plane::desc::AddrForm;

/// Addresses to names.
pub trait Symbolizer {
    /// A kernel address: `` module`function+0x1c `` in [`AddrForm::Address`], without the offset in `Symbol` and
    /// `Function`, the module alone in `Module`; `0x…` where nothing is known.
    fn kernel(&mut self, addr: u64, form: AddrForm) -> String;

    /// The same for an address of a process.
    fn user(&mut self, pid: u32, addr: u64, form: AddrForm) -> String;

    /// Where the symbol (or, for `Module`, the module) that holds a kernel address starts; the address itself where that
    /// is not known. Keys made of `sym()` and `mod()` are aggregated by it.
    fn kernel_start(&mut self, addr: u64, _form: AddrForm) -> u64 {
        addr
    }

    /// The same for an address of a process.
    fn user_start(&mut self, _pid: u32, addr: u64, _form: AddrForm) -> u64 {
        addr
    }
}

/// Knows no symbols: every address is shown in hexadecimal.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbolizer for NoSymbols {
    fn kernel(&mut self, addr: u64, _form: AddrForm) -> String {
        format!("0x{addr:x}")
    }

    fn user(&mut self, _pid: u32, addr: u64, _form: AddrForm) -> String {
        format!("0x{addr:x}")
    }
}
