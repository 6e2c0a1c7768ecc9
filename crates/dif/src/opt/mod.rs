//! The optimizer: less code for the kernel to verify and run, with the same results.
//!
//! Blocks are in topological order and D has no loops. So one forward walk sees every definition
//! before its uses and every predecessor before its block. A single pass ([`simplify`]) finds
//! constants, copies, equal subexpressions and dead branches, without the worklists that loops
//! would need. Then [`flow`] threads jumps and merges blocks, and [`dead`] walks backward once. One
//! pass can create opportunities for another, so the passes run a bounded number of times. Each is
//! linear.
//!
//! A number in memory of the kernel is loaded once where one load comes before the others on every
//! path: inlines of the D libraries read a header many times. So a clause sees the kernel's memory
//! as it was at the first load. Where that succeeded, the others would not have faulted. A clause
//! that waits (`chill()`) or sends a signal loads each time.
//!
//! These must not change: values, faults (kind, value and action; the *offset* counts instructions
//! and does change), the order of effects, and the fault of an unused operation. [`crate::eval`]
//! computes folded instructions, with the same functions as the interpreter.

mod dead;
mod flow;
mod fold;
mod simplify;

use crate::ir::{Function, Module};

/// Maximum number of rounds. Later rounds rarely find enough to be worth their time.
const ROUNDS: usize = 6;

/// Optimizes every clause.
pub fn optimize(module: &mut Module) {
    let mut clauses = std::mem::take(&mut module.clauses);
    for clause in &mut clauses {
        optimize_function(module, &mut clause.func);
    }
    module.clauses = clauses;
}

/// Optimizes one function of a module, whose tables are only read. The function must have passed
/// the verifier.
pub fn optimize_function(module: &Module, function: &mut Function) {
    for _ in 0..ROUNDS {
        let before = function.clone();
        simplify::run(module, function);
        dead::run(function);
        flow::run(function);
        // This cannot fail: no pass adds a backward edge. If one did, the verifier would report it.
        if function.normalize().is_err() || *function == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
