//! The contexts of programs at system calls: how a firing finds its probe, its arguments and its
//! result.

use bpf_codegen::arch::{FastEntry, Mark};
use bpf_codegen::context::{Context, Index, StackStart};
use bpf_codegen::mir::{Alu, Builder, Helper, Jmp, Label, Size, V};

use super::names::{NARROW_BASE, SPACE};

/// How the saved registers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regs {
    /// Directly: the verifier knows the pointer's type (`tp_btf`).
    Direct,
    /// With a helper (raw tracepoints and functions).
    Checked,
}

/// How a program tells a 32-bit call from a 64-bit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompatTest {
    /// By `thread_info.status`, at this offset of `task_struct`, unless the registers already show
    /// it.
    Status(i16),
    /// By the caller's code segment, on kernels without BTF. A 64-bit program that uses `int 0x80`
    /// counts as a 64-bit caller.
    Registers,
}

/// The context of `sys_enter(regs, id)` and `sys_exit(regs, ret)`.
pub(super) struct ByTracepoint {
    pub(super) on_return: bool,
    pub(super) regs: Regs,
    pub(super) compat: CompatTest,
    /// Some probed call has a 64-bit number.
    pub(super) wide: bool,
    /// Some probed call has a 32-bit number.
    pub(super) narrow: bool,
    /// The call numbers that are probed, if they are few.
    pub(super) only: Vec<u32>,
}

/// Reads eight bytes at `base + off`.
fn read(b: &mut Builder, how: Regs, base: V, off: i16) -> V {
    match how {
        Regs::Direct => b.load(Size::B8, base, off),
        Regs::Checked => {
            let to = b.stack(8);
            b.slot_store(Size::B8, to, 0, 0);
            let dst = b.slot_addr(to, 0);
            let size = b.imm(8);
            let from = b.add(base, i64::from(off));
            b.call(Helper::PROBE_READ_KERNEL, &[dst, size, from]);
            b.slot_load(Size::B8, to, 0)
        }
    }
}

/// Goes to `unknown` unless the registers are as the 64-bit SYSCALL instruction leaves them: cx and
/// r11 have copies of the next address and of the flags. Reading the task takes a call of a helper,
/// which costs more than the rest of a small program (19 ns with return thunks); these loads cost
/// nothing measurable. After `int 0x80`, cx and r11 are the caller's own. They equal the next
/// address and the flags only if the caller arranges it.
fn entered_by_syscall(b: &mut Builder, saved: V, unknown: Label) {
    let Some(FastEntry { copies, segment: (at, value) }) = b.machine().fast_entry else {
        return b.jmp(unknown);
    };
    for (at_entry, copy) in copies {
        let at_entry = b.load(Size::B8, saved, at_entry);
        let copy = b.load(Size::B8, saved, copy);
        b.br(Jmp::Ne, at_entry, copy, unknown);
    }
    // Two bytes, because kernels with FRED have another member in the rest of the word.
    let segment = b.load(Size::B2, saved, at);
    b.br(Jmp::Ne, segment, i64::from(value), unknown);
}

impl CompatTest {
    /// Goes to `yes` in a 32-bit call, whose saved registers are read as `how` says.
    fn branch(self, b: &mut Builder, how: Regs, saved: V, yes: Label) {
        match self {
            CompatTest::Status(offset) => {
                let (wide, ask) = (b.label(), b.label());
                if how == Regs::Direct {
                    entered_by_syscall(b, saved, ask);
                    b.jmp(wide);
                }
                b.bind(ask);
                let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
                let status = b.load(Size::B4, task, offset);
                b.br(Jmp::Set, status, i64::from(b.machine().narrow_status), yes);
                b.bind(wide);
            }
            CompatTest::Registers => {
                let Mark { at, mask, value } = b.machine().narrow;
                let word = read(b, how, saved, at);
                let word = b.alu(Alu::And, word, mask);
                b.br(Jmp::Eq, word, i64::from(value), yes);
            }
        }
    }
}

impl Context for ByTracepoint {
    fn index(&self, b: &mut Builder, ctx: V, out: Label) -> Index {
        let saved = b.load(Size::B8, ctx, 0);
        let call = b.machine().call;
        let nr = if self.on_return { read(b, self.regs, saved, call) } else { b.load(Size::B8, ctx, 8) };
        // x32 calls share the 64-bit numbers below 512. A value that is no call number (-1 after
        // sigreturn) leaves here.
        let nr = b.alu32(Alu::And, nr, i64::from(!b.machine().call_bits));
        if !self.only.is_empty() {
            let probed = b.label();
            for number in &self.only {
                b.br(Jmp::Eq, nr, i64::from(*number), probed);
            }
            b.jmp(out);
            b.bind(probed);
        }
        b.br(Jmp::Ge, nr, i64::from(NARROW_BASE), out);
        let (compat, done) = (b.label(), b.label());
        let index = b.copy(nr);
        self.compat.branch(b, self.regs, saved, compat);
        if !self.wide {
            b.jmp(out);
        }
        b.jmp(done);
        b.bind(compat);
        if self.narrow {
            b.update(Alu::Add, index, i64::from(NARROW_BASE));
        } else {
            b.jmp(out);
        }
        b.bind(done);
        // For the verifier: on some kernels it loses the bound at the addition.
        b.update(Alu::And, index, i64::from(SPACE - 1));
        Index::V(index)
    }

    fn arg(&self, b: &mut Builder, ctx: V, index: Index, n: u8) -> V {
        if self.on_return {
            return if n < 2 { result(b, ctx, Returned::Tracepoint) } else { b.imm(0) };
        }
        let machine = b.machine();
        let (Some(wide), Some(narrow)) =
            (machine.call_args.get(usize::from(n)), machine.narrow_call_args.get(usize::from(n)))
        else {
            return b.imm(0);
        };
        let saved = b.load(Size::B8, ctx, 0);
        let value = read(b, self.regs, saved, *wide);
        let value = b.copy(value);
        if let (Index::V(index), true) = (index, self.narrow) {
            let done = b.label();
            b.br(Jmp::Lt, index, i64::from(NARROW_BASE), done);
            let short = read(b, self.regs, saved, *narrow);
            let short = b.low32(short);
            b.set(value, short);
            b.bind(done);
        }
        value
    }

    fn errno(&self, b: &mut Builder, ctx: V, _index: Index) -> V {
        if self.on_return { errno(b, ctx, Returned::Tracepoint) } else { b.imm(0) }
    }

    /// The program and `bpf_trace_run2`. Some kernels differ: see [`Context::behind_tracepoint`].
    fn tracer_frames(&self) -> u8 {
        2
    }

    fn behind_tracepoint(&self) -> bool {
        true
    }

    fn stack_start(&self) -> Option<StackStart> {
        Some(StackStart::Caller)
    }
}

/// The context of a function `__x64_sys_NAME(const struct pt_regs *regs)`. The cookie is the index.
pub(super) struct ByFunction {
    pub(super) on_return: bool,
    pub(super) compat: CompatTest,
    /// There is one probe, so the cookie is not needed.
    pub(super) single: bool,
}

impl Context for ByFunction {
    fn index(&self, b: &mut Builder, ctx: V, _out: Label) -> Index {
        if self.single {
            return Index::Const(0);
        }
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        if self.on_return {
            return if n < 2 { result(b, ctx, Returned::Function) } else { b.imm(0) };
        }
        let machine = b.machine();
        let (Some(wide), Some(narrow)) =
            (machine.call_args.get(usize::from(n)), machine.narrow_call_args.get(usize::from(n)))
        else {
            return b.imm(0);
        };
        // The first argument of the function points to the caller's saved registers.
        let saved = b.load(Size::B8, ctx, machine.args[0]);
        let value = read(b, Regs::Checked, saved, *wide);
        let value = b.copy(value);
        let (compat, done) = (b.label(), b.label());
        self.compat.branch(b, Regs::Checked, saved, compat);
        b.jmp(done);
        b.bind(compat);
        let short = read(b, Regs::Checked, saved, *narrow);
        let short = b.low32(short);
        b.set(value, short);
        b.bind(done);
        value
    }

    fn stack_start(&self) -> Option<StackStart> {
        (!self.on_return).then_some(StackStart::Function)
    }

    fn caller_frame(&self) -> u8 {
        u8::from(!self.on_return)
    }

    fn errno(&self, b: &mut Builder, ctx: V, _index: Index) -> V {
        if self.on_return { errno(b, ctx, Returned::Function) } else { b.imm(0) }
    }
}

/// Where a program finds the result of a call.
#[derive(Clone, Copy)]
enum Returned {
    /// In the second argument of `sys_exit`.
    Tracepoint,
    /// In the result register.
    Function,
}

fn raw_result(b: &mut Builder, ctx: V, at: Returned) -> V {
    match at {
        Returned::Tracepoint => b.load(Size::B8, ctx, 8),
        Returned::Function => b.load(Size::B8, ctx, b.machine().result),
    }
}

/// The least result, as an unsigned number, that is an error (`MAX_ERRNO`).
const FIRST_ERROR: i64 = -4095;

/// The result in D: -1 if the call failed.
fn result(b: &mut Builder, ctx: V, at: Returned) -> V {
    let raw = raw_result(b, ctx, at);
    let value = b.copy(raw);
    let done = b.label();
    b.br(Jmp::Lt, value, FIRST_ERROR, done);
    b.set(value, -1);
    b.bind(done);
    value
}

/// The error of a failed call, else 0. ERESTARTSYS (512) to ERESTART_RESTARTBLOCK (516) are never
/// seen by a caller, and are EINTR.
fn errno(b: &mut Builder, ctx: V, at: Returned) -> V {
    let raw = raw_result(b, ctx, at);
    let value = b.copy(0);
    let done = b.label();
    b.br(Jmp::Lt, raw, FIRST_ERROR, done);
    let error = b.neg(raw);
    b.set(value, error);
    b.br(Jmp::Lt, value, 512, done);
    b.br(Jmp::Gt, value, 516, done);
    b.set(value, 4);
    b.bind(done);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_tests::compare;

    #[test]
    fn calls_are_found_on_each_machine() {
        let tracepoint = |on_return, regs, compat| ByTracepoint {
            on_return,
            regs,
            compat,
            wide: true,
            narrow: true,
            only: Vec::new(),
        };
        let typed = tracepoint(false, Regs::Direct, CompatTest::Status(16));
        compare("syscall-typed-entry", &typed, &[0, 3, 5, 6]);
        let untyped = tracepoint(true, Regs::Checked, CompatTest::Registers);
        compare("syscall-return", &untyped, &[0, 2]);
        let function = |on_return| ByFunction { on_return, compat: CompatTest::Registers, single: false };
        compare("syscall-function-entry", &function(false), &[0, 5]);
        compare("syscall-function-return", &function(true), &[1]);
    }
}
