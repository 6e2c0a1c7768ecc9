//! Gives values their symbols: from what a record has to what an event says.

use events::{AddrForm, Form, Shape, Symbol, SymbolName, Value};
use plane::stacks::Stack;

use crate::pad::up_to;
use crate::raw::{Raw, Space, number};
use crate::symbolizer::{Process, Symbolizer};

/// Symbol lookup for the values of events.
pub(crate) struct Names<'a> {
    pub(crate) symbols: &'a mut dyn Symbolizer,
    /// The process of `%A` on a plain address.
    pub(crate) target: Option<u32>,
    /// Frames of stacks have names.
    pub(crate) of_stacks: bool,
}

/// Addresses that are prepared at once.
const AT_ONCE: usize = 1 << 16;

/// The addresses of a stack of a process.
fn addresses(stack: &Stack) -> impl Iterator<Item = (Process, u64)> + '_ {
    let process = Process { pid: stack.tgid, time: stack.time };
    stack.pcs.iter().take_while(|pc| **pc != 0).map(move |pc| (process, *pc))
}

impl Names<'_> {
    /// The value with its symbols.
    pub(crate) fn value<'v>(&mut self, raw: Raw<'v>) -> Value<'v> {
        match raw {
            Raw::Int(int) => Value::Int(int),
            Raw::Str(text, size) => Value::Str { text: text.into(), size },
            Raw::Address(text, size) => Value::Str { text: text.as_bytes().to_vec().into(), size },
            Raw::Name(text, size) => Value::Name { text: text.into(), size },
            Raw::Bytes(bytes) => Value::Bytes(bytes.into()),
            Raw::Stack(stack) => Value::Stack(self.stack(&stack)),
            Raw::KernelAddr(addr, form) => Value::Symbol(self.kernel(addr, form).into()),
            Raw::UserAddr { pid, addr, form } => {
                Value::Symbol(self.user(Process::now(pid), addr, form).into())
            }
        }
    }

    /// The value of an argument whose conversion prints an address.
    pub(crate) fn argument<'v>(&mut self, raw: Raw<'v>, address: Option<Space>) -> Value<'v> {
        let (Raw::Int(int), Some(space)) = (&raw, address) else { return self.value(raw) };
        let addr = int.as_unsigned();
        let symbol = match (space, self.target) {
            (Space::Kernel, _) => self.kernel(addr, AddrForm::Address),
            (Space::Target, Some(pid)) => self.user(Process::now(pid), addr, AddrForm::Address),
            (Space::Target, None) => {
                let name = SymbolName::default();
                Symbol::new(addr, None, AddrForm::Address, name)
            }
        };
        Value::Symbol(symbol.into())
    }

    fn kernel(&mut self, address: u64, form: AddrForm) -> Symbol {
        Symbol::new(address, None, form, self.symbols.kernel(address))
    }

    fn user(&mut self, process: Process, address: u64, form: AddrForm) -> Symbol {
        let name = self.symbols.user(process, address);
        Symbol::new(address, Some(process.pid), form, name)
    }

    fn stack(&mut self, stack: &Stack) -> events::Stack {
        let process = Process { pid: stack.tgid, time: stack.time };
        let pcs = stack.pcs.iter().take_while(|pc| **pc != 0);
        if !self.of_stacks {
            let process = (stack.tgid != 0).then_some(stack.tgid);
            let plain = |pc: &u64| Symbol::new(*pc, process, AddrForm::Address, SymbolName::default());
            return events::Stack { process, frames: pcs.map(plain).collect() };
        }
        if stack.tgid == 0 {
            let frames = pcs.map(|pc| self.kernel(*pc, AddrForm::Address)).collect();
            return events::Stack { process: None, frames };
        }
        self.symbols.prepare(&addresses(stack).collect::<Vec<_>>());
        let frames = pcs.map(|pc| self.user(process, *pc, AddrForm::Address)).collect();
        events::Stack { process: Some(stack.tgid), frames }
    }

    /// Looks up all symbols of the keys together.
    pub(crate) fn prepare<'k>(&mut self, keys: impl Iterator<Item = Raw<'k>>) {
        let mut wanted: Vec<(Process, u64)> = Vec::new();
        for key in keys {
            match key {
                Raw::Stack(stack) if stack.tgid != 0 && self.of_stacks => wanted.extend(addresses(&stack)),
                Raw::UserAddr { pid, addr, .. } => wanted.push((Process::now(pid), addr)),
                _ => {}
            }
            if wanted.len() >= AT_ONCE {
                self.symbols.prepare(&std::mem::take(&mut wanted));
            }
        }
        if !wanted.is_empty() {
            self.symbols.prepare(&wanted);
        }
    }

    /// The functions that pointers in a printed value point to, each once.
    pub(crate) fn functions(&mut self, shape: &Shape, bytes: &[u8]) -> Vec<Symbol> {
        let mut all = Vec::new();
        self.find_functions(shape, bytes, &mut all);
        all
    }

    fn find_functions(&mut self, shape: &Shape, bytes: &[u8], all: &mut Vec<Symbol>) {
        let bytes = up_to(bytes, shape.size as usize);
        match &shape.form {
            Form::FunctionPointer => {
                let address = number(bytes);
                if address != 0 && all.iter().all(|s| s.address != address) {
                    all.push(self.kernel(address, AddrForm::Symbol));
                }
            }
            Form::Array(element) => {
                for part in bytes.chunks(element.size.max(1) as usize) {
                    self.find_functions(element, part, all);
                }
            }
            Form::Sou(members) => {
                for member in members.iter().filter(|m| m.bits.is_none()) {
                    let bytes = bytes.get(member.offset as usize..).unwrap_or_default();
                    self.find_functions(&member.shape, bytes, all);
                }
            }
            _ => {}
        }
    }
}
