//! What a program is compiled from: the probes of one attachment and the clauses that they enable.

use bpf_codegen::context::{Context, Probe, ProbeSet};
#[cfg(doc)]
use bpf_codegen::mir::MapRef;
use bpf_sys::{AttachType, ProgKind};
use plane::control::Activity;

/// A clause in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClauseUse {
    /// Its index in the module.
    pub clause: usize,
    /// The probes for which it runs.
    pub probes: ProbeSet,
    /// The enabled-probe id for probe index 0. For probe `i` the id is `epid_base + i`.
    pub epid_base: u32,
}

/// The probe ERROR, which is part of every program whose clauses may fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorProbe<'a> {
    /// The probe, whose index is 0.
    pub probe: Probe,
    /// Its clauses in program order.
    pub clauses: &'a [ClauseUse],
}

/// The parameters of a program.
pub struct ProgramSpec<'a> {
    /// The name in the kernel's lists and in messages.
    pub name: &'a str,
    /// The program's kind.
    pub kind: ProgKind,
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target, 0 for none.
    pub attach_btf_id: u32,
    /// The activity in which it runs: `Active` for probes, `Warmup` for BEGIN, `Draining` for END.
    pub activity: Activity,
    /// The provider's part.
    pub context: &'a dyn Context,
    /// Its probes by index; at least one.
    pub probes: &'a [Probe],
    /// Its clauses in program order.
    pub clauses: &'a [ClauseUse],
    /// The program serves probes that come later: it finds the probe in a row of the probe table
    /// ([`plane::probe_table`]), and has none of its own. The `epid_base` of a clause is then its
    /// position.
    pub growing: bool,
    /// The probe that a fault fires.
    pub error: ErrorProbe<'a>,
    /// Number of the program's table in the session ([`MapRef::Table`]).
    pub table: u32,
}
