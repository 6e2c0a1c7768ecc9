//! The contexts of programs at kernel functions: how a firing finds its probe, its arguments and
//! its result.

use bpf_codegen::context::{Context, Index, StackStart};
use bpf_codegen::mir::{Builder, Helper, Label, Size, V};

/// The context of a kprobe: the registers at the function's first instruction, or after its return.
/// The cookie is the index.
pub(super) struct ByRegisters {
    pub(super) on_return: bool,
    /// There is one probe, so the cookie is not needed.
    pub(super) single: bool,
}

/// The size of a word of the stack in bytes.
const WORD: i64 = 8;

/// Argument `n`, which is on the stack. Some machines have the return address before the first such
/// argument.
fn on_stack(b: &mut Builder, sp: V, n: usize) -> V {
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let dst = b.slot_addr(to, 0);
    let size = b.imm(8);
    let machine = b.machine();
    let from = b.add(sp, machine.stack_args + WORD * (n - machine.args.len()) as i64);
    b.call(Helper::PROBE_READ_KERNEL, &[dst, size, from]);
    b.slot_load(Size::B8, to, 0)
}

/// The context of a trampoline: the arguments of the call. The cookie is the index.
pub(super) struct ByTrampoline {
    pub(super) on_return: bool,
    /// There is one probe.
    pub(super) single: bool,
}

impl Context for ByTrampoline {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        if self.single {
            return Index::Const(0);
        }
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    /// A helper loads the argument and knows how many there are, so that the same code serves all
    /// functions.
    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        if self.on_return && n != 1 {
            return b.imm(0);
        }
        let to = b.stack(8);
        b.slot_store(Size::B8, to, 0, 0);
        let dst = b.slot_addr(to, 0);
        if self.on_return {
            b.call(Helper::GET_FUNC_RET, &[ctx, dst]);
        } else {
            let number = b.imm(i64::from(n));
            b.call(Helper::GET_FUNC_ARG, &[ctx, number, dst]);
        }
        b.slot_load(Size::B8, to, 0)
    }

    /// The program and the trampoline; at a return also the function that has returned.
    fn tracer_frames(&self) -> u8 {
        2 + u8::from(self.on_return)
    }

    fn stack_start(&self) -> Option<StackStart> {
        Some(StackStart::Trampoline)
    }

    /// A function that has returned has no frame.
    fn caller_frame(&self) -> u8 {
        u8::from(!self.on_return)
    }
}

impl Context for ByRegisters {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        if self.single {
            return Index::Const(0);
        }
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    fn shape(&self) -> Option<String> {
        Some(format!("registers of a function, on return: {}", self.on_return))
    }

    /// Where a function has returned, the kernel has replaced the address to which it returns.
    fn stack_start(&self) -> Option<StackStart> {
        (!self.on_return).then_some(StackStart::Function)
    }

    /// A function that has returned has no frame.
    fn caller_frame(&self) -> u8 {
        u8::from(!self.on_return)
    }

    /// At the return, `arg0` is 0: no kernel facility tells the offset of the return instruction.
    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        match (self.on_return, n) {
            (true, 1) => b.load(Size::B8, ctx, b.machine().result),
            (true, _) => b.imm(0),
            (false, n) => match b.machine().args.get(usize::from(n)) {
                Some(at) => b.load(Size::B8, ctx, *at),
                None => {
                    let sp = b.load(Size::B8, ctx, b.machine().sp);
                    on_stack(b, sp, usize::from(n))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_tests::compare;

    #[test]
    fn arguments_and_results_are_found_on_each_machine() {
        let of = |on_return| ByRegisters { on_return, single: true };
        compare("fbt-entry", &of(false), &[0, 3, 5, 6, 8, 9]);
        compare("fbt-return", &of(true), &[0, 1]);
    }
}
