//! Removes instructions and block parameters whose values are unused.

use crate::ir::{Function, Op, Value};

/// Walks backward once: all uses of an instruction's value are seen before the instruction.
pub(super) fn run(function: &mut Function) {
    let safe = safe_divisors(function);
    // It is not known here which variables are never NULL.
    let nulls = function.nulls(&[]);
    let mut used = vec![false; function.values.len()];
    let is_used = |used: &[bool], v: Value| used.get(v.0 as usize).copied().unwrap_or(true);
    let mut unused_params: Vec<Vec<bool>> = vec![Vec::new(); function.blocks.len()];
    for b in (0..function.blocks.len()).rev() {
        let mut block = std::mem::take(&mut function.blocks[b].insts);
        // The arguments for an unused parameter are removed with it. The target block comes later,
        // so it is already processed.
        function.blocks[b].term.for_each_edge_mut(|to, args| {
            drop_marked(args, unused_params.get(to.0 as usize).map_or(&[], Vec::as_slice));
        });
        let mut mark = |v: Value| {
            if let Some(u) = used.get_mut(v.0 as usize) {
                *u = true;
            }
        };
        function.blocks[b].term.for_each_use(&mut mark);
        let mut keep = vec![true; block.len()];
        for (i, inst) in block.iter().enumerate().rev() {
            let wanted = inst.result.is_some_and(|v| is_used(&used, v));
            let faults =
                inst.op.may_fault() && !divides_safely(&inst.op, &safe) || inst.op.takes_null(&nulls);
            if wanted || faults || !inst.op.is_removable() {
                inst.op.for_each_use(|v| {
                    if let Some(u) = used.get_mut(v.0 as usize) {
                        *u = true;
                    }
                });
            } else {
                keep[i] = false;
            }
        }
        let mut keep = keep.into_iter();
        block.retain(|_| keep.next().unwrap_or(true));
        function.blocks[b].insts = block;
        let unused: Vec<bool> = function.blocks[b].params.iter().map(|p| !is_used(&used, *p)).collect();
        drop_marked(&mut function.blocks[b].params, &unused);
        unused_params[b] = unused;
    }
}

/// Removes the entries whose mark is set.
pub(super) fn drop_marked(list: &mut Vec<Value>, marks: &[bool]) {
    let mut marks = marks.iter();
    list.retain(|_| !marks.next().copied().unwrap_or(false));
}

/// For each value, whether it is a constant other than 0.
fn safe_divisors(function: &Function) -> Vec<bool> {
    let mut safe = vec![false; function.values.len()];
    for (_, inst) in function.instructions() {
        if let (Op::Const(n), Some(v)) = (&inst.op, inst.result)
            && let Some(s) = safe.get_mut(v.0 as usize)
        {
            *s = *n != 0;
        }
    }
    safe
}

fn divides_safely(op: &Op, safe: &[bool]) -> bool {
    matches!(op, Op::Bin(_, _, d) if safe.get(d.0 as usize).copied().unwrap_or(false))
}
