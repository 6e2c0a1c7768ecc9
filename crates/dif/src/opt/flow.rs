//! Control flow: threads jumps past blocks that only forward, and merges a block with its only
//! successor.
//!
//! `/a && b/` becomes a block that only branches on its parameter, and one predecessor passes the
//! constant 0. Threading that edge directly to the target for 0 removes the flag and the second
//! test from the predicate of every such clause.

use crate::ir::{Block, Function, Op, Term, Value};

/// Threads jumps, then merges blocks.
pub(super) fn run(function: &mut Function) {
    thread(function);
    // Bypassed blocks are now unreachable. Their edges must not count as predecessors.
    if function.normalize().is_ok() {
        merge(function);
    }
}

/// For each block, whether it only forwards: it has no instructions, and only its own terminator
/// uses its parameters. A jump to such a block can be replaced by its terminator.
fn forwarding_blocks(function: &Function) -> Vec<bool> {
    let mut owner: Vec<Option<usize>> = vec![None; function.values.len()];
    for (b, block) in function.blocks.iter().enumerate() {
        for p in &block.params {
            if let Some(o) = owner.get_mut(p.0 as usize) {
                *o = Some(b);
            }
        }
    }
    let mut forwarding_blocks: Vec<bool> =
        function.blocks.iter().enumerate().map(|(b, block)| b != 0 && block.insts.is_empty()).collect();
    for (b, block) in function.blocks.iter().enumerate() {
        let mut seen = |v: Value| {
            if let Some(Some(o)) = owner.get(v.0 as usize)
                && *o != b
            {
                forwarding_blocks[*o] = false;
            }
        };
        block.insts.iter().for_each(|i| i.op.for_each_use(&mut seen));
        block.term.for_each_use(&mut seen);
    }
    forwarding_blocks
}

fn thread(function: &mut Function) {
    let forwarding_blocks = forwarding_blocks(function);
    let mut constants: Vec<Option<i64>> = vec![None; function.values.len()];
    for (_, inst) in function.instructions() {
        if let (Op::Const(n), Some(v)) = (&inst.op, inst.result)
            && let Some(c) = constants.get_mut(v.0 as usize)
        {
            *c = Some(*n);
        }
    }
    // Backward, so that the successors are already threaded.
    for b in (0..function.blocks.len()).rev() {
        let mut term = function.blocks[b].term.clone();
        match &mut term {
            Term::Jump(to, args) if forwarding_blocks[to.0 as usize] => {
                term = entered_terminator(function, *to, args)
            }
            Term::Branch { cond, then, other } => {
                for (edge, truth) in [(then, true), (other, false)] {
                    if forwarding_blocks[edge.0.0 as usize] {
                        redirect(function, edge, (*cond, truth), &constants);
                    }
                }
            }
            Term::Jump(..) | Term::Return | Term::PredicateFalse => {}
        }
        function.blocks[b].term = term;
    }
}

/// The terminator of a block, when the block is entered_terminator with these arguments.
fn entered_terminator(function: &Function, block: Block, args: &[Value]) -> Term {
    let target = &function.blocks[block.0 as usize];
    let mut term = target.term.clone();
    term.map_uses(|v| {
        target.params.iter().position(|p| *p == v).and_then(|i| args.get(i)).copied().unwrap_or(v)
    });
    term
}

/// Moves one edge of a branch past a forwarding block whose branch is decided on that edge. `known`
/// is a value, and whether it is nonzero on this edge.
fn redirect(
    function: &Function,
    edge: &mut (Block, Vec<Value>),
    known: (Value, bool),
    constants: &[Option<i64>],
) {
    match entered_terminator(function, edge.0, &edge.1) {
        Term::Jump(to, args) => *edge = (to, args),
        Term::Branch { cond, then, other } => {
            let constant = constants.get(cond.0 as usize).copied().flatten().map(|n| n != 0);
            let truth = if cond == known.0 { Some(known.1) } else { constant };
            match truth {
                Some(true) => *edge = then,
                Some(false) => *edge = other,
                None => {}
            }
        }
        Term::Return | Term::PredicateFalse => {}
    }
}

/// Appends a block with only one predecessor to that predecessor, if it ends in a jump.
fn merge(function: &mut Function) {
    let n = function.blocks.len();
    let mut ways = vec![0u32; n];
    for block in &function.blocks {
        block.term.for_each_edge(|to, _| ways[to.0 as usize] += 1);
    }
    let mut new: Vec<Value> = (0..function.values.len() as u32).map(Value).collect();
    for b in 0..n {
        rename(function, b, &new);
        while let Term::Jump(to, args) = &function.blocks[b].term {
            let to = to.0 as usize;
            if ways[to] != 1 {
                break;
            }
            let args = args.clone();
            for (p, a) in function.blocks[to].params.clone().into_iter().zip(args) {
                if let Some(slot) = new.get_mut(p.0 as usize) {
                    *slot = a;
                }
            }
            rename(function, to, &new);
            let insts = std::mem::take(&mut function.blocks[to].insts);
            let term = std::mem::replace(&mut function.blocks[to].term, Term::Return);
            function.blocks[to].params.clear();
            function.blocks[b].insts.extend(insts);
            function.blocks[b].term = term;
        }
    }
}

fn rename(function: &mut Function, block: usize, new: &[Value]) {
    let lookup = |v: Value| new.get(v.0 as usize).copied().unwrap_or(v);
    let block = &mut function.blocks[block];
    block.insts.iter_mut().for_each(|i| i.op.map_uses(lookup));
    block.term.map_uses(lookup);
}
