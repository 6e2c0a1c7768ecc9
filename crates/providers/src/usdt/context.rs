//! The context of programs at sites of USDT: how a firing finds its probe and its arguments.
//!
//! All sites of a program have the same operands of the arguments that its clauses use, so an
//! argument is one load of a saved register, one read of the process's memory, or a constant.

use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Alu, Builder, Helper, Jmp, Label, Size, V};
use usdt::{Address, Argument, Register, Source};

/// The arguments that the clauses of a program use, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operands(pub(super) Vec<(u8, Argument)>);

impl Operands {
    fn get(&self, n: u8) -> Option<&Argument> {
        self.0.iter().find(|(number, _)| *number == n).map(|(_, argument)| argument)
    }
}

impl Context for Operands {
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    /// Each provider is that of the process which fires.
    fn is_of_any_process(&self) -> bool {
        true
    }

    /// The code has nothing of its probes but the operands.
    fn shape(&self) -> Option<String> {
        Some(format!("usdt {:?}", self.0))
    }

    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        match self.get(n).map(|argument| (argument, &argument.source)) {
            Some((argument, Source::Constant(value))) => b.imm(argument.converted(*value as u64)),
            Some((argument, Source::Register(register))) => part(b, ctx, argument, *register),
            _ => b.imm(0),
        }
    }

    fn is_in_memory(&self, n: u8) -> bool {
        self.get(n).is_some_and(|a| matches!(a.source, Source::Memory(_) | Source::Unreadable(_)))
    }

    fn operand(&self, b: &mut Builder, ctx: V, n: u8, at: V, bad: Label) -> V {
        match self.get(n).map(|argument| (argument, &argument.source)) {
            Some((argument, Source::Memory(address))) => {
                let found = sum(b, ctx, address);
                b.set(at, found);
                read(b, argument, at, bad)
            }
            // In a form that leaves the code behind reachable for the verifier.
            _ => {
                let zero = b.imm(0);
                b.br(Jmp::Eq, zero, 0, bad);
                b.imm(0)
            }
        }
    }
}

/// A register of the process. Operands name no others than those of the machine.
fn register(b: &mut Builder, ctx: V, number: u8) -> V {
    let machine = b.machine();
    let offset = machine.operands.get(usize::from(number)).copied().unwrap_or(machine.result);
    b.load(Size::B8, ctx, offset)
}

/// The part of a register that an argument is in.
fn part(b: &mut Builder, ctx: V, argument: &Argument, from: Register) -> V {
    let whole = register(b, ctx, from.number);
    let shifted = if from.first == 0 { whole } else { b.shr(whole, 8 * i64::from(from.first)) };
    extended(b, shifted, argument.size.min(from.bytes), argument.signed)
}

/// The low bytes of a value, extended to 64 bits.
fn extended(b: &mut Builder, value: V, bytes: u8, signed: bool) -> V {
    let unused = 64 - 8 * i64::from(bytes.clamp(1, 8));
    if unused == 0 {
        return value;
    }
    let high = b.shl(value, unused);
    if signed { b.sar(high, unused) } else { b.shr(high, unused) }
}

/// The address of an operand.
fn sum(b: &mut Builder, ctx: V, address: &Address) -> V {
    let all = b.copy(address.offset);
    if let Some(base) = address.base {
        let base = register(b, ctx, base);
        b.update(Alu::Add, all, base);
    }
    if let Some((index, scale)) = address.index {
        let index = register(b, ctx, index);
        let scaled = b.shl(index, i64::from(scale.trailing_zeros()));
        b.update(Alu::Add, all, scaled);
    }
    if address.from_site {
        let site = b.load(Size::B8, ctx, b.machine().ip);
        b.update(Alu::Add, all, site);
    }
    all
}

/// Reads a value of the process's memory.
fn read(b: &mut Builder, argument: &Argument, at: V, bad: Label) -> V {
    let width = match argument.size {
        1 => Size::B1,
        2 => Size::B2,
        4 => Size::B4,
        _ => Size::B8,
    };
    let to = b.stack(8);
    let (address, bytes) = (b.slot_addr(to, 0), b.imm(i64::from(argument.size)));
    let failed = b.call(Helper::PROBE_READ_USER, &[address, bytes, at]);
    b.br(Jmp::Ne, failed, 0, bad);
    let value = b.slot_load(width, to, 0);
    if argument.signed { extended(b, value, argument.size, true) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_tests::compare;

    #[test]
    fn operands_are_found_on_each_machine() {
        let argument = |source| Argument { size: 4, signed: true, source };
        let register = |number| Source::Register(Register { number, first: 0, bytes: 8 });
        let memory =
            Address { offset: -24, base: Some(6), index: Some((1, 4)), from_site: false, symbol: None };
        let at_site = Address { base: None, index: None, from_site: true, ..memory.clone() };
        let sources =
            [register(0), register(5), register(15), Source::Memory(memory), Source::Memory(at_site)];
        let operands = Operands((0..).zip(sources.map(argument)).collect());
        compare("usdt", &operands, &[0, 1, 2, 3, 4]);
    }
}
