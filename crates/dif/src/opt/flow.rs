//! Jumps: what only passes on is passed by, what follows one way only is joined.
//!
//! `/a && b/` becomes a block whose only content is "branch on what you are given", entered with 0 from one side. Taking
//! that side straight to where 0 leads removes the flag and the second test from the predicate of every such clause.

use crate::ir::{Block, Function, Op, Term, Value};

/// Threads, then joins.
pub(super) fn run(function: &mut Function) {
    thread(function);
    // Blocks passed by are unreached now; their edges must not count as ways into others.
    if function.normalize().is_ok() {
        join(function);
    }
}

/// Blocks without instructions whose parameters serve only their own end: a jump to one can do what it does.
fn passable(function: &Function) -> Vec<bool> {
    let mut owner: Vec<Option<usize>> = vec![None; function.values.len()];
    for (b, block) in function.blocks.iter().enumerate() {
        for p in &block.params {
            if let Some(o) = owner.get_mut(p.0 as usize) {
                *o = Some(b);
            }
        }
    }
    let mut passable: Vec<bool> =
        function.blocks.iter().enumerate().map(|(b, block)| b != 0 && block.insts.is_empty()).collect();
    for (b, block) in function.blocks.iter().enumerate() {
        let mut seen = |v: Value| {
            if let Some(Some(o)) = owner.get(v.0 as usize)
                && *o != b
            {
                passable[*o] = false;
            }
        };
        block.insts.iter().for_each(|i| i.op.for_each_use(&mut seen));
        block.term.for_each_use(&mut seen);
    }
    passable
}

fn thread(function: &mut Function) {
    let passable = passable(function);
    let mut constants: Vec<Option<i64>> = vec![None; function.values.len()];
    for (_, inst) in function.instructions() {
        if let (Op::Const(n), Some(v)) = (&inst.op, inst.result)
            && let Some(c) = constants.get_mut(v.0 as usize)
        {
            *c = Some(*n);
        }
    }
    // Backward, so that what a block passes to has already been threaded itself.
    for b in (0..function.blocks.len()).rev() {
        let mut term = function.blocks[b].term.clone();
        match &mut term {
            Term::Jump(to, args) if passable[to.0 as usize] => term = entered(function, *to, args),
            Term::Branch { cond, then, other } => {
                for (edge, truth) in [(then, true), (other, false)] {
                    if passable[edge.0.0 as usize] {
                        redirect(function, edge, (*cond, truth), &constants);
                    }
                }
            }
            Term::Jump(..) | Term::Return | Term::PredicateFalse => {}
        }
        function.blocks[b].term = term;
    }
}

/// The end of a block, as one who enters it with these arguments sees it.
fn entered(function: &Function, block: Block, args: &[Value]) -> Term {
    let target = &function.blocks[block.0 as usize];
    let mut term = target.term.clone();
    term.map_uses(|v| {
        target.params.iter().position(|p| *p == v).and_then(|i| args.get(i)).copied().unwrap_or(v)
    });
    term
}

/// Takes one way of a branch past a passable block, where it is known which way that block goes: `known` is a value
/// and whether it is other than 0 on this way.
fn redirect(
    function: &Function,
    edge: &mut (Block, Vec<Value>),
    known: (Value, bool),
    constants: &[Option<i64>],
) {
    match entered(function, edge.0, &edge.1) {
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

/// Appends a block that only one jump leads to to the block that jumps.
fn join(function: &mut Function) {
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
