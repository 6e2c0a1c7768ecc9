//! Emission of eBPF from allocated MIR: moves around calls, jump distances, relocations, line info.
//!
//! Objects that the kernel must resolve stay symbolic here. A [`Code`] names its maps, and only the
//! loader patches file descriptors into it. A golden file therefore shows the code that is loaded.

use std::collections::{BTreeMap, BTreeSet};

use diagnostics::Span;

use crate::error::CodegenError;
use crate::frame::STACK_LIMIT;
use crate::mir::{Alu, AtomicOp, Const, Func, Inst, Label, MapRef, Operand, Param, V, commutes};
use crate::regalloc::{Allocated, allocate};
use crate::simplify::thread_jumps;
use bpf_sys::insn::{Atomic, INSTRUCTIONS_MAX, Insn, Reg, Size};

/// A function of a [`Code`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuncInfo {
    /// Its name.
    pub name: String,
    /// Its first slot.
    pub start: u32,
    /// Its parameters. The parameter of the first function is the context.
    pub params: Vec<Param>,
    /// The verifier checks it on its own.
    pub global: bool,
}

/// Machine code with symbolic maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The slots.
    pub insns: Vec<Insn>,
    /// Slots whose immediate is replaced by the map's descriptor.
    pub relocs: Vec<(u32, MapRef)>,
    /// Slots whose immediate is replaced by the number of the copy.
    pub copies: Vec<u32>,
    /// The functions in order; the first is the program.
    pub funcs: Vec<FuncInfo>,
    /// The first slot of each stretch of code, with the D text it comes from.
    pub lines: Vec<(u32, Span)>,
}

/// Maximum number of instructions of a function. A jump reaches 32,767 slots. The kernel inserts
/// instructions (it inlines map look-ups) before it patches the jumps.
const FUNCTION_MAX: usize = 22_000;

/// The kernel's limit on functions of a program (`BPF_MAX_SUBPROGS`).
const FUNCTIONS_MAX: usize = 256;

/// Allocates registers and emits. `funcs[0]` is the program.
pub fn assemble(funcs: Vec<Func>) -> Result<Code, CodegenError> {
    let mut allocated = funcs.into_iter().map(allocate).collect::<Result<Vec<_>, _>>()?;
    remove_uncalled(&mut allocated);
    if allocated.len() > FUNCTIONS_MAX {
        let message = format!(
            "too many clauses in one program: {} functions, the kernel allows {FUNCTIONS_MAX}",
            allocated.len()
        );
        return Err(CodegenError { span: None, message });
    }
    check_stack(&allocated)?;
    let mut code = Code::default();
    let mut calls: Vec<(u32, String)> = Vec::new();
    for f in allocated {
        let start = code.insns.len() as u32;
        code.funcs.push(FuncInfo {
            name: f.func.name.clone(),
            start,
            params: f.func.param_types.clone(),
            global: f.func.global,
        });
        emit(f, &mut code, &mut calls)?;
    }
    let starts: BTreeMap<&str, u32> = code.funcs.iter().map(|f| (f.name.as_str(), f.start)).collect();
    for (at, name) in calls {
        let Some(start) = starts.get(name.as_str()) else {
            return Err(CodegenError { span: None, message: format!("no subprogram {name}") });
        };
        code.insns[at as usize].imm = *start as i32 - at as i32 - 1;
    }
    if code.insns.len() > INSTRUCTIONS_MAX {
        let message = format!(
            "too many clauses in one program: {} instructions, the kernel allows {INSTRUCTIONS_MAX}",
            code.insns.len()
        );
        return Err(CodegenError { span: None, message });
    }
    Ok(code)
}

/// Removes subprograms that are not called, or only from pruned code. The verifier rejects such
/// subprograms.
fn remove_uncalled(funcs: &mut Vec<Allocated>) {
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut work: Vec<usize> = vec![0];
    while let Some(f) = work.pop().and_then(|i| funcs.get(i)) {
        for (inst, _) in &f.func.insts {
            if let Inst::CallSub { name, .. } | Inst::FuncAddr { name, .. } = inst
                && wanted.insert(name.clone())
            {
                work.extend(funcs.iter().position(|f| f.func.name == *name));
            }
        }
    }
    let mut first = true;
    funcs.retain(|f| std::mem::take(&mut first) || wanted.contains(&f.func.name));
}

/// Checks that the deepest call chain fits the stack. The kernel rounds every frame up to 32 bytes.
fn check_stack(funcs: &[Allocated]) -> Result<(), CodegenError> {
    fn depth(
        name: &str,
        by_name: &BTreeMap<&str, &Allocated>,
        memo: &mut BTreeMap<String, u32>,
        level: u32,
    ) -> u32 {
        if let Some(d) = memo.get(name) {
            return *d;
        }
        let Some(f) = by_name.get(name) else { return 0 };
        if level > 8 {
            return STACK_LIMIT;
        }
        let below = f
            .func
            .insts
            .iter()
            .filter_map(|(i, _)| match i {
                Inst::CallSub { name, .. } | Inst::FuncAddr { name, .. } => {
                    Some(depth(name, by_name, memo, level + 1))
                }
                _ => None,
            })
            .max()
            .unwrap_or(0);
        let total = f.depth.max(1).div_ceil(32) * 32 + below;
        memo.insert(name.to_owned(), total);
        total
    }
    let by_name = funcs.iter().map(|f| (f.func.name.as_str(), f)).collect();
    let mut memo = BTreeMap::new();
    for f in funcs {
        let total = depth(&f.func.name, &by_name, &mut memo, 0);
        if total > STACK_LIMIT {
            return Err(CodegenError {
                span: f.func.insts.iter().find_map(|(_, s)| *s),
                message: format!(
                    "needs {total} bytes of stack with its subprograms; the kernel allows {STACK_LIMIT}"
                ),
            });
        }
    }
    Ok(())
}

fn reg(v: V) -> Reg {
    Reg::new(v.0 as u8).unwrap_or(Reg::R0)
}

/// Emits a parallel move. `temp` is no destination and, in a cycle, no source.
fn parallel(mut moves: Vec<(Reg, Reg)>, temp: Reg, out: &mut Vec<Insn>) {
    moves.retain(|(d, s)| d != s);
    while !moves.is_empty() {
        let free = moves.iter().position(|(d, _)| !moves.iter().any(|(_, s)| s == d));
        match free {
            Some(i) => {
                let (d, s) = moves.remove(i);
                out.push(Insn::mov64(d, s));
            }
            None => {
                let (_, s) = moves[0];
                out.push(Insn::mov64(temp, s));
                for (_, source) in &mut moves {
                    if *source == s {
                        *source = temp;
                    }
                }
            }
        }
    }
}

fn small(o: Operand) -> Result<Reg, i32> {
    match o {
        Operand::V(v) => Ok(reg(v)),
        Operand::Imm(i) => Err(i as i32),
    }
}

fn constant(dst: Reg, value: i64, out: &mut Vec<Insn>) {
    if let Ok(i) = i32::try_from(value) {
        out.push(Insn::mov64_imm(dst, i));
    } else if let Ok(u) = u32::try_from(value) {
        out.push(Insn::mov32_imm(dst, u as i32));
    } else {
        out.extend(Insn::ld_imm64(dst, value as u64));
    }
}

fn emit(mut a: Allocated, code: &mut Code, calls: &mut Vec<(u32, String)>) -> Result<(), CodegenError> {
    a.func.insts.retain(|(i, _)| !matches!(i, Inst::Mov { dst, src, w32: false } if dst == src));
    thread_jumps(&mut a.func);
    let start = code.insns.len();
    let mut labels: BTreeMap<Label, usize> = BTreeMap::new();
    let mut jumps: Vec<(usize, Label, Option<Span>)> = Vec::new();
    let arrive =
        a.params.iter().enumerate().filter_map(|(i, r)| Some((Reg::new((*r)?)?, Reg::arg(i as u8)?)));
    parallel(arrive.collect(), Reg::R0, &mut code.insns);
    let mut line = None;
    for (inst, span) in &a.func.insts {
        if span.is_some() && *span != line && !matches!(inst, Inst::Bind { .. }) {
            line = *span;
            if let Some(span) = span {
                code.lines.push((code.insns.len() as u32, *span));
            }
        }
        match inst {
            Inst::Bind { label } => {
                labels.insert(*label, code.insns.len());
            }
            Inst::Jmp { to } => {
                jumps.push((code.insns.len(), *to, *span));
                code.insns.push(Insn::ja(0));
            }
            Inst::Br { cond, w32, a, b, to } => {
                jumps.push((code.insns.len(), *to, *span));
                code.insns.push(match (small(*b), w32) {
                    (Ok(b), false) => Insn::jmp(*cond, reg(*a), b, 0),
                    (Err(i), false) => Insn::jmp_imm(*cond, reg(*a), i, 0),
                    (Ok(b), true) => Insn::jmp32(*cond, reg(*a), b, 0),
                    (Err(i), true) => Insn::jmp32_imm(*cond, reg(*a), i, 0),
                });
            }
            Inst::CallSub { args, dst, name } => {
                arguments(args, &mut code.insns);
                calls.push((code.insns.len() as u32, name.clone()));
                code.insns.push(Insn::call_pseudo(0));
                result(*dst, &mut code.insns);
            }
            Inst::FuncAddr { dst, name } => {
                calls.push((code.insns.len() as u32, name.clone()));
                code.insns.extend(Insn::ld_func(reg(*dst), 0));
            }
            Inst::Const { dst, value } => {
                let at = code.insns.len() as u32;
                match value {
                    Const::Int(i) => constant(reg(*dst), *i, &mut code.insns),
                    Const::Map(map) => {
                        code.relocs.push((at, *map));
                        code.insns.extend(Insn::ld_map_fd(reg(*dst), 0));
                    }
                    Const::MapValue(map, off) => {
                        code.relocs.push((at, *map));
                        code.insns.extend(Insn::ld_map_value(reg(*dst), 0, *off));
                    }
                    Const::Copy => {
                        code.copies.push(at);
                        code.insns.extend(Insn::ld_imm64(reg(*dst), 0));
                    }
                    Const::Ksym(id) => code.insns.extend(Insn::ld_btf_id(reg(*dst), id.0, 0)),
                }
            }
            _ => plain(inst, &a.frame, &mut code.insns),
        }
    }
    if code.insns.len() - start > FUNCTION_MAX {
        return Err(CodegenError {
            span: None,
            message: format!(
                "clauses too long: {} has {} instructions, {FUNCTION_MAX} at most",
                a.func.name,
                code.insns.len() - start
            ),
        });
    }
    for (at, label, span) in jumps {
        let distance = labels.get(&label).map(|to| *to as i64 - at as i64 - 1);
        code.insns[at].off = distance.and_then(|d| i16::try_from(d).ok()).ok_or_else(|| CodegenError {
            span,
            message: format!(
                "clauses too long: {} has {} instructions, the kernel's jumps reach {}",
                a.func.name,
                code.insns.len() - start,
                i16::MAX
            ),
        })?;
    }
    Ok(())
}

fn arguments(args: &[V], out: &mut Vec<Insn>) {
    let moves = args.iter().enumerate().filter_map(|(i, v)| Some((Reg::arg(i as u8)?, reg(*v))));
    parallel(moves.collect(), Reg::R0, out);
}

fn result(dst: Option<V>, out: &mut Vec<Insn>) {
    if let Some(d) = dst {
        mov(reg(d), Reg::R0, out);
    }
}

fn mov(dst: Reg, src: Reg, out: &mut Vec<Insn>) {
    if dst != src {
        out.push(Insn::mov64(dst, src));
    }
}

/// Emits an instruction that needs no labels and no relocations.
fn plain(inst: &Inst, frame: &[i16], out: &mut Vec<Insn>) {
    match inst {
        Inst::Mov { dst, src, w32: false } => mov(reg(*dst), reg(*src), out),
        Inst::Mov { dst, src, w32: true } => out.push(Insn::mov32(reg(*dst), reg(*src))),
        Inst::Alu { op, w32, dst, a, b } => alu(*op, *w32, reg(*dst), reg(*a), small(*b), out),
        Inst::Neg { dst, a } => {
            mov(reg(*dst), reg(*a), out);
            out.push(Insn::neg64(reg(*dst)));
        }
        Inst::ToBe { bits, dst, a } => {
            mov(reg(*dst), reg(*a), out);
            out.push(Insn::to_be(reg(*dst), i32::from(*bits)));
        }
        Inst::Load { w, dst, base, off } => out.push(Insn::ldx(*w, reg(*dst), reg(*base), *off)),
        Inst::Store { w, base, off, src } => out.push(match small(*src) {
            Ok(src) => Insn::stx(*w, reg(*base), *off, src),
            Err(imm) => Insn::st(*w, reg(*base), *off, imm),
        }),
        Inst::SlotAddr { dst, slot, off } => {
            out.push(Insn::mov64(reg(*dst), Reg::R10));
            out.push(Insn::alu64_imm(Alu::Add, reg(*dst), i32::from(frame[slot.0 as usize] + off)));
        }
        Inst::FramePointer { dst } => out.push(Insn::mov64(reg(*dst), Reg::R10)),
        Inst::SlotLoad { w, dst, slot, off } => {
            out.push(Insn::ldx(*w, reg(*dst), Reg::R10, frame[slot.0 as usize] + off));
        }
        Inst::SlotStore { w, slot, off, src } => {
            let off = frame[slot.0 as usize] + off;
            out.push(match small(*src) {
                Ok(src) => Insn::stx(*w, Reg::R10, off, src),
                Err(imm) => Insn::st(*w, Reg::R10, off, imm),
            });
        }
        Inst::Atomic { op, w, dst, base, off, src } => {
            let operand = dst.map_or(reg(*src), reg);
            mov(operand, reg(*src), out);
            let operation = match (op, dst.is_some()) {
                (AtomicOp::Add, false) => Atomic::Add,
                (AtomicOp::And, false) => Atomic::And,
                (AtomicOp::Or, false) => Atomic::Or,
                (AtomicOp::Xor, false) => Atomic::Xor,
                (AtomicOp::Add, true) => Atomic::FetchAdd,
                (AtomicOp::And, true) => Atomic::FetchAnd,
                (AtomicOp::Or, true) => Atomic::FetchOr,
                (AtomicOp::Xor, true) => Atomic::FetchXor,
                (AtomicOp::Xchg, _) => Atomic::Xchg,
            };
            out.push(atomic(*w, operation, reg(*base), *off, operand));
        }
        Inst::CmpXchg { w, dst, base, off, expected, new } => {
            mov(Reg::R0, reg(*expected), out);
            out.push(atomic(*w, Atomic::CmpXchg, reg(*base), *off, reg(*new)));
            mov(reg(*dst), Reg::R0, out);
        }
        Inst::Call { helper, args, dst } => {
            arguments(args, out);
            out.push(Insn::call(*helper));
            result(*dst, out);
        }
        Inst::Kfunc { id, args, dst } => {
            arguments(args, out);
            out.push(Insn::call_kfunc(id.0, 0));
            result(*dst, out);
        }
        Inst::Exit { value } => {
            match small(*value) {
                Ok(v) => mov(Reg::R0, v, out),
                Err(imm) => out.push(Insn::mov64_imm(Reg::R0, imm)),
            }
            out.push(Insn::exit());
        }
        Inst::Const { .. }
        | Inst::CallSub { .. }
        | Inst::FuncAddr { .. }
        | Inst::Br { .. }
        | Inst::Jmp { .. }
        | Inst::Bind { .. } => {}
    }
}

fn atomic(w: Size, operation: Atomic, base: Reg, off: i16, src: Reg) -> Insn {
    match w {
        Size::B4 => Insn::atomic32(operation, base, off, src),
        _ => Insn::atomic64(operation, base, off, src),
    }
}

fn alu(op: Alu, w32: bool, dst: Reg, a: Reg, b: Result<Reg, i32>, out: &mut Vec<Insn>) {
    // `dst = b op a` when the result is in b's register. The allocator allows that for commutative
    // operations only.
    let (a, b) = match b {
        Ok(b) if b == dst && a != dst && commutes(op) => (b, Ok(a)),
        b => (a, b),
    };
    mov(dst, a, out);
    out.push(match (b, w32) {
        (Ok(b), false) => Insn::alu64(op, dst, b),
        (Err(i), false) => Insn::alu64_imm(op, dst, i),
        (Ok(b), true) => Insn::alu32(op, dst, b),
        (Err(i), true) => Insn::alu32_imm(op, dst, i),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::{Builder, Helper, Jmp};
    use bpf_sys::disasm;

    fn listing(b: Builder) -> String {
        let (main, subs) = b.finish();
        let code = assemble(std::iter::once(main).chain(subs).collect()).unwrap();
        disasm::listing(&code.insns)
    }

    #[test]
    fn a_value_that_is_live_across_a_call_gets_a_saved_register() {
        let mut b = Builder::new("main", 1);
        let ctx = b.param(0);
        let now = b.call(Helper::KTIME_GET_NS, &[]);
        let x = b.load(Size::B8, ctx, 8);
        let sum = b.add(now, x);
        b.exit(sum);
        assert_eq!(
            listing(b),
            "   0  r6 = r1\n   1  call ktime_get_ns\n   2  r1 = *(u64 *)(r6 +8)\n   3  r0 += r1\n   4  exit\n"
        );
    }

    #[test]
    fn arguments_in_each_others_registers_are_swapped() {
        let mut b = Builder::new("main", 2);
        let (x, y) = (b.param(0), b.param(1));
        let r = b.call(Helper::KTIME_GET_NS, &[y, x]);
        b.exit(r);
        assert_eq!(
            listing(b),
            "   0  r0 = r2\n   1  r2 = r1\n   2  r1 = r0\n   3  call ktime_get_ns\n   4  exit\n"
        );
    }

    #[test]
    fn compare_exchange_uses_r0_and_preserves_other_registers() {
        let mut b = Builder::new("main", 1);
        let base = b.param(0);
        let old = b.load(Size::B8, base, 0);
        let new = b.add(old, 1);
        let seen = b.cmpxchg(base, 0, old, new);
        let same = b.label();
        b.br(Jmp::Eq, seen, old, same);
        b.exit(1);
        b.bind(same);
        b.exit(new);
        let text = listing(b);
        assert!(text.contains("r0 = atomic_cmpxchg((u64 *)(r1 +0), r0, r3)"), "{text}");
    }

    #[test]
    fn values_are_spilled_when_registers_run_out() {
        let mut b = Builder::new("main", 1);
        let ctx = b.param(0);
        let values: Vec<_> = (0..20).map(|i| b.load(Size::B8, ctx, i * 8)).collect();
        b.call(Helper::KTIME_GET_NS, &[]);
        let mut sum = b.imm(0);
        for v in values {
            sum = b.add(sum, v);
        }
        b.exit(sum);
        let text = listing(b);
        assert!(text.contains("(r10 -"), "{text}");
    }

    #[test]
    fn a_program_with_too_much_stack_is_rejected_with_the_size() {
        let mut b = Builder::new("main", 0);
        let s = b.stack(520);
        b.slot_store(Size::B8, s, 0, 1);
        b.exit(0);
        let (main, _) = b.finish();
        assert_eq!(
            assemble(vec![main]).unwrap_err().message,
            "needs 520 bytes of stack; the kernel allows 512"
        );
    }

    #[test]
    fn a_program_with_too_many_functions_is_rejected_with_the_number() {
        let mut b = Builder::new("main", 1);
        for i in 0..256 {
            b.call_global(&format!("f{i}"), &[], |b| b.exit(0));
        }
        b.exit(0);
        let (main, subs) = b.finish();
        let error = assemble(std::iter::once(main).chain(subs).collect()).unwrap_err();
        let text = "too many clauses in one program: 257 functions, the kernel allows 256";
        assert_eq!(error.message, text);
    }

    #[test]
    fn a_branch_over_a_jump_is_inverted() {
        let mut b = Builder::new("main", 1);
        let x = b.param(0);
        let (yes, no) = (b.label(), b.label());
        b.br(Jmp::Eq, x, 0, yes);
        b.jmp(no);
        b.bind(yes);
        b.exit(1);
        b.bind(no);
        b.exit(2);
        assert_eq!(
            listing(b),
            "   0  if r1 != 0 goto 3\n   1  r0 = 1\n   2  exit\n   3  r0 = 2\n   4  exit\n"
        );
    }
}
