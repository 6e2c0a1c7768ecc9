//! Simplification of MIR, before registers are allocated and again when code is emitted:
//! unreachable code, constants that fit an instruction, jumps to jumps.
//!
//! DIF is optimized already, so only what selection and the routines leave behind is found here.

use std::collections::{BTreeMap, BTreeSet};

use crate::liveness::blocks;
use crate::mir::{Alu, Const, Func, Inst, Label, Operand, V, commutes};

/// Removes unreachable instructions, which the verifier rejects.
pub(crate) fn prune(f: &mut Func) {
    let nodes = blocks(f);
    let mut seen = vec![false; nodes.len()];
    let mut work = vec![0];
    while let Some(b) = work.pop() {
        if b < nodes.len() && !std::mem::replace(&mut seen[b], true) {
            work.extend(&nodes[b].next);
        }
    }
    if seen.iter().all(|s| *s) {
        return;
    }
    let mut keep = vec![false; f.insts.len()];
    for (node, seen) in nodes.iter().zip(&seen) {
        keep[node.start..node.end].fill(*seen);
    }
    let mut i = 0;
    f.insts.retain(|_| {
        i += 1;
        keep[i - 1]
    });
}

/// Folds constants into immediates.
pub(crate) fn fold(f: &mut Func) {
    let mut value: Vec<Option<i64>> = vec![None; f.regs as usize];
    let mut defs = vec![0u32; f.regs as usize];
    for p in &f.params {
        defs[p.0 as usize] += 1;
    }
    for (inst, _) in &f.insts {
        if let Some(d) = inst.def() {
            defs[d.0 as usize] += 1;
            if let Inst::Const { value: Const::Int(i), .. } = inst {
                value[d.0 as usize] = Some(*i);
            }
        }
    }
    let known = |v: V| value[v.0 as usize].filter(|_| defs[v.0 as usize] == 1);
    let short = |o: &mut Operand| {
        if let Operand::V(v) = *o
            && let Some(i) = known(v)
            && i32::try_from(i).is_ok()
        {
            *o = Operand::Imm(i);
        }
    };
    for (inst, _) in &mut f.insts {
        match inst {
            Inst::Alu { op, w32, a, b, .. } => {
                if let Operand::V(bv) = *b
                    && commutes(*op)
                    && known(*a).is_some()
                    && known(bv).is_none()
                {
                    (*a, *b) = (bv, Operand::V(*a));
                }
                // A constant divisor of 0 cannot be encoded, and a shift count must be below the
                // width.
                let fits = |i: i64| match op {
                    Alu::Div | Alu::Mod => i != 0,
                    Alu::Lsh | Alu::Rsh | Alu::Arsh => (0..if *w32 { 32 } else { 64 }).contains(&i),
                    _ => true,
                };
                if let Operand::V(bv) = *b
                    && known(bv).is_some_and(fits)
                {
                    short(b);
                }
            }
            Inst::Br { b, .. } => short(b),
            Inst::Store { src, .. } | Inst::SlotStore { src, .. } => short(src),
            Inst::Exit { value } => short(value),
            Inst::Mov { dst, src, w32: false } => {
                if let Some(i) = known(*src) {
                    *inst = Inst::Const { dst: *dst, value: Const::Int(i) };
                }
            }
            _ => {}
        }
    }
}

/// Removes jumps to jumps, jumps to the next instruction, and jumps over jumps.
pub(crate) fn thread_jumps(f: &mut Func) {
    for _ in 0..4 {
        let mut first: BTreeMap<Label, usize> = BTreeMap::new();
        for (i, (inst, _)) in f.insts.iter().enumerate() {
            if let Inst::Bind { label } = inst {
                first.insert(*label, i);
            }
        }
        let real = |mut i: usize| {
            while let Some((Inst::Bind { .. }, _)) = f.insts.get(i) {
                i += 1;
            }
            i
        };
        let follow = |mut l: Label| {
            for _ in 0..16 {
                match first.get(&l).map(|i| real(*i)).and_then(|i| f.insts.get(i)) {
                    Some((Inst::Jmp { to }, _)) if *to != l => l = *to,
                    _ => break,
                }
            }
            l
        };
        let targets = f.insts.iter().filter_map(|(inst, _)| match inst {
            Inst::Jmp { to } | Inst::Br { to, .. } => Some(*to),
            _ => None,
        });
        let wanted: BTreeSet<Label> = targets.collect();
        let mut edits: Vec<(usize, Option<Inst>)> = Vec::new();
        for (i, (inst, _)) in f.insts.iter().enumerate() {
            let next = real(i + 1);
            let lands = |l: &Label| first.get(l).map(|i| real(*i));
            match inst {
                Inst::Jmp { to } | Inst::Br { to, .. } if lands(to) == Some(next) => edits.push((i, None)),
                Inst::Jmp { to } if follow(*to) != *to => {
                    edits.push((i, Some(Inst::Jmp { to: follow(*to) })))
                }
                Inst::Br { cond, w32, a, b, to } => {
                    // `if c goto L; goto M; L:` becomes `if !c goto M; L:`, unless another jump
                    // targets the `goto`.
                    let after = real(i + 1);
                    let alone = f.insts[i + 1..after].iter().all(|(between, _)| match between {
                        Inst::Bind { label } => !wanted.contains(label),
                        _ => true,
                    });
                    if let Some((Inst::Jmp { to: over }, _)) = f.insts.get(after)
                        && alone
                        && lands(to) == Some(real(after + 1))
                        && let Some(negated) = cond.negate()
                    {
                        let br = Inst::Br { cond: negated, w32: *w32, a: *a, b: *b, to: *over };
                        edits.push((i, Some(br)));
                        edits.push((after, None));
                    } else if follow(*to) != *to {
                        let br = Inst::Br { cond: *cond, w32: *w32, a: *a, b: *b, to: follow(*to) };
                        edits.push((i, Some(br)));
                    }
                }
                _ => {}
            }
        }
        if edits.is_empty() {
            break;
        }
        let mut gone = vec![false; f.insts.len()];
        for (i, edit) in edits {
            match edit {
                Some(inst) if !gone[i] => f.insts[i].0 = inst,
                Some(_) => {}
                None => gone[i] = true,
            }
        }
        let mut i = 0;
        f.insts.retain(|_| {
            i += 1;
            !gone[i - 1]
        });
        prune(f);
    }
}
