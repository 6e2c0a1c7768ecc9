//! How a firing of a kernel function knows its probe, its arguments and its result.

use bpf::arch::{FUNCTION_ARGS, regs};
use bpf::mir::{Builder, Helper, Label, Size, V};
use bpf::program::{Context, Index};

/// By the registers at the function's first instruction, or behind its return. The cookie is the index.
pub(super) struct ByRegisters {
    pub(super) on_return: bool,
    /// One probe alone: no need to ask for the cookie.
    pub(super) single: bool,
}

/// Bytes of a word of the stack.
const WORD: i64 = 8;

/// The argument whose index says how many are in registers: the first on the stack, behind the return address.
fn on_stack(b: &mut Builder, sp: V, n: usize) -> V {
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let dst = b.slot_addr(to, 0);
    let size = b.imm(8);
    let from = b.add(sp, WORD * (1 + (n - FUNCTION_ARGS.len()) as i64));
    b.call(Helper::PROBE_READ_KERNEL, &[dst, size, from]);
    b.slot_load(Size::B8, to, 0)
}

/// By the trampoline's account of the call. The cookie is the index.
pub(super) struct ByTrampoline {
    pub(super) on_return: bool,
    /// One probe alone.
    pub(super) single: bool,
}

impl Context for ByTrampoline {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        if self.single {
            return Index::Const(0);
        }
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    /// A helper knows how many arguments this function has: the same code serves all.
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

    /// The program and the trampoline; behind a return, the function that has returned, too.
    fn tracer_frames(&self) -> u8 {
        2 + u8::from(self.on_return)
    }

    /// A function that has returned is no frame any more.
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

    /// A function that has returned is no frame any more.
    fn caller_frame(&self) -> u8 {
        u8::from(!self.on_return)
    }

    /// At the return, `arg0` would be the offset of the instruction that returns, which no means tells: 0.
    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        match (self.on_return, n) {
            (true, 1) => b.load(Size::B8, ctx, regs::AX),
            (true, _) => b.imm(0),
            (false, n) => match FUNCTION_ARGS.get(usize::from(n)) {
                Some(at) => b.load(Size::B8, ctx, *at),
                None => {
                    let sp = b.load(Size::B8, ctx, regs::SP);
                    on_stack(b, sp, usize::from(n))
                }
            },
        }
    }
}
