//! The clauses of a program in order, each behind its test.

use std::ops::Range;

use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Builder, Label, Size, V};
use bpf_codegen::routines::{self, near};
use bpf_codegen::select::{ClauseInstance, Firing, SlotParts, clause, is_this_int};
use bpf_codegen::{Result, Session};
use plane::control::Activity;

use super::dispatch::{Table, clause_test};
use super::facts::may_exit;
use super::spec::{ClauseUse, ProgramSpec};

/// Emits some of the program's clauses, each behind its test. Jumps to `stopped` when one of them
/// ended the session.
pub(super) fn clauses(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    firing: &Firing<'_>,
    b: &mut Builder,
    range: Range<usize>,
    stopped: Label,
) -> Result<()> {
    for i in range {
        let (c, skip) = (&spec.clauses[i], b.label());
        clause_test(b, spec, table, c, firing.index, skip);
        clause(session, firing, b, ClauseInstance { number: c.clause, epid_base: c.epid_base })?;
        b.bind(skip);
        gate_behind(session, spec, b, i, stopped);
    }
    Ok(())
}

/// The gate behind a clause that may have ended the session, which jumps to `stopped`: the clauses
/// behind it do not run, as in the original. END and ERROR run to their end.
pub(super) fn gate_behind(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    b: &mut Builder,
    i: usize,
    stopped: Label,
) {
    let more = i + 1 < spec.clauses.len();
    if more && spec.activity != Activity::Draining && may_exit(session, spec, spec.clauses[i].clause) {
        routines::gate(b, spec.activity, stopped);
    }
}

/// Registers for `this->` integers, and zeros for the `this->` variables in the slot.
pub(super) fn clear_this(
    b: &mut Builder,
    session: &Session<'_>,
    slot: Option<V>,
    parts: SlotParts,
    clauses: &[ClauseUse],
) -> Vec<Option<V>> {
    let vars = session.module.vars.iter();
    let places = session.layout.this.iter();
    let this = vars.zip(places).map(|(v, at)| (is_this_int(v) && at.is_none()).then(|| b.copy(0))).collect();
    let size = parts.temps - parts.this;
    if let Some(slot) = slot
        && size > 0
    {
        let (base, at) = near(b, slot, parts.this, size);
        routines::zero(b, base, at, size);
    }
    // Objects may be long, so they are cleared only where these clauses can reach them. Without
    // objects in the session, the slot has no space for them.
    let module = session.module;
    if let Some(slot) = slot
        && session.layout.d_memory.word > parts.objects
        && session.layout.reaches_objects(module, clauses.iter().map(|c| &module.clauses[c.clause]))
    {
        let mut at = 0;
        while at < session.layout.objects {
            let bytes = (session.layout.objects - at).min(4096);
            let base = b.add(slot, parts.objects + at);
            routines::zero(b, base, 0, bytes);
            at += bytes;
        }
    }
    for word in [parts.token, parts.result].into_iter().flatten() {
        let Some(slot) = slot else { continue };
        let (base, at) = near(b, slot, word, 8);
        b.store(Size::B8, base, at, 0);
    }
    this
}

/// The arguments of ERROR's clauses: `arg1` epid, `arg2` action, `arg3` DIF offset, `arg4` fault,
/// `arg5` value.
pub(super) struct ErrorContext {
    pub(super) epid: V,
    pub(super) head: V,
    pub(super) value: V,
}

impl Context for ErrorContext {
    fn arg(&self, b: &mut Builder, _: V, _: Index, n: u8) -> V {
        match n {
            1 => b.copy(self.epid),
            2 => {
                let action = b.shr(self.head, 16);
                b.and(action, 0xffff)
            }
            3 => b.shr(self.head, 32),
            4 => b.and(self.head, 0xffff),
            5 => b.copy(self.value),
            _ => b.imm(0),
        }
    }

    fn has_stacks(&self) -> bool {
        false
    }
}
