//! What the clauses of a program do, as far as the code around them depends on it.

use bpf_codegen::Session;
use dif::ir::{IntBuiltin, Module, Op};

use super::spec::{ClauseUse, ProgramSpec};

pub(super) fn has(module: &Module, clause: usize, what: impl Fn(&Op) -> bool) -> bool {
    module.clauses[clause].func.blocks.iter().flat_map(|b| &b.insts).any(|i| what(&i.op))
}

pub(super) fn may_fault(session: &Session<'_>, clause: usize) -> bool {
    session.module.clauses[clause].func.may_fault(&session.layout.null_vars)
}

/// True when the clause may end the session: by its own `exit()`, or by one in a clause of ERROR.
pub(super) fn may_exit(session: &Session<'_>, spec: &ProgramSpec<'_>, clause: usize) -> bool {
    let module = session.module;
    let exits = |clause| has(module, clause, |o| matches!(o, Op::Exit(_)));
    exits(clause) || (may_fault(session, clause) && spec.error.clauses.iter().any(|c| exits(c.clause)))
}

pub(super) fn reads_vtime(module: &Module, spec: &ProgramSpec<'_>) -> bool {
    let reads = |c: &ClauseUse| has(module, c.clause, |o| *o == Op::Builtin(IntBuiltin::Vtimestamp));
    spec.clauses.iter().chain(spec.error.clauses).any(reads)
}

pub(super) fn uses_slot(session: &Session<'_>, spec: &ProgramSpec<'_>) -> bool {
    let module = session.module;
    let needs = |c: &ClauseUse| session.layout.needs_slot(module, c.clause);
    let faults = || spec.clauses.iter().any(|c| may_fault(session, c.clause));
    spec.clauses.iter().any(needs) || (spec.error.clauses.iter().any(needs) && faults())
}

pub(super) fn names_probe(module: &Module, spec: &ProgramSpec<'_>) -> bool {
    let names = |o: &Op| match o {
        Op::Builtin(IntBuiltin::ProbeId | IntBuiltin::ProviderPid) => true,
        Op::BuiltinStr(s) => *s != dif::ir::StrBuiltin::Execname,
        _ => false,
    };
    spec.clauses.iter().any(|c| has(module, c.clause, names))
}
