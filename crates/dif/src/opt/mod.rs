//! The optimizer: less code for the kernel to verify and run, the same answers.
//!
//! Blocks stand in topological order and nothing loops, so one forward walk sees every definition before its uses and
//! every way into a block before the block: constants, copies, equal subexpressions and dead branches are all found in a
//! single pass ([`simplify`]), without the worklists that loops would need. Then [`flow`] threads jumps and joins
//! blocks, [`dead`] walks once backward. What one pass uncovers for another is taken up by running them again, a bounded
//! number of times; each is linear.
//!
//! What must not change: values, faults (kind, value, action; the *offset* counts instructions and so does change), the
//! order of effects, and that an unused operation that may fault still faults. Instructions are folded by
//! [`crate::eval`], the interpreter's own functions.

mod dead;
mod flow;
mod fold;
mod simplify;

use crate::ir::{Function, Module};

/// Rounds at most; what a later round finds is rarely worth its time.
const ROUNDS: usize = 6;

/// Optimizes every clause.
pub fn optimize(module: &mut Module) {
    let mut clauses = std::mem::take(&mut module.clauses);
    for clause in &mut clauses {
        optimize_function(module, &mut clause.func);
    }
    module.clauses = clauses;
}

/// Optimizes one function of a module (whose tables are only read). It must have passed the verifier.
pub fn optimize_function(module: &Module, function: &mut Function) {
    for _ in 0..ROUNDS {
        let before = function.clone();
        simplify::run(module, function);
        dead::run(function);
        flow::run(function);
        // Cannot fail: no pass adds an edge that leads back. Were it to, the verifier would tell.
        if function.normalize().is_err() || *function == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
