//! The clause that is checked.

use std::sync::Arc;

use diagnostics::Span;
use plane::desc::LayoutBuilder;
use probes::{Attributes, ProbeInfo};

use crate::program::{ClausePattern, Derived, Expr};

/// One description of a clause, with the probes that no earlier description of the clause matches.
#[derive(Clone, Debug)]
pub(crate) struct DescriptionMatch {
    pub(crate) pattern: ClausePattern,
    pub(crate) probes: Arc<[ProbeInfo]>,
}

impl DescriptionMatch {
    /// True if it is the same one.
    pub(crate) fn is(&self, other: &DescriptionMatch) -> bool {
        self.pattern.span == other.pattern.span && Arc::ptr_eq(&self.probes, &other.probes)
    }
}

/// A derived probe, in the clause that is checked.
#[derive(Clone, Debug)]
pub(crate) struct DerivedProbe {
    pub(crate) probe: ProbeInfo,
    pub(crate) natives: Arc<[Expr]>,
}

/// What `args[]`, `argN` and the names of the probe mean in the current clause.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArgsContext {
    /// The description for which the clause is checked; `None` outside of clauses.
    pub(crate) described: Option<DescriptionMatch>,
    /// All probes of the clause.
    pub(crate) probes: Arc<[ProbeInfo]>,
    /// A description of the clause can match probes of a family of processes.
    pub(crate) family: bool,
    /// Indexes of the arguments used.
    pub(crate) used: Vec<usize>,
    /// Numbers of the `argN` used, if definitions pass arguments of the clause's probes on in
    /// another order.
    pub(crate) raw: Vec<u8>,
    /// Whether they do so, once it is known.
    pub(crate) reordered: Option<bool>,
    /// The files of the clause's processes that names are scoped to, and whether the name of a
    /// variable is.
    pub(crate) objects: Vec<(String, bool)>,
    /// Of a clause of a derived probe: that probe, whose native arguments are the clause's.
    pub(crate) firing: Option<DerivedProbe>,
}

/// What the parts of a clause have in common.
pub(crate) struct ClauseContext {
    pub(crate) span: Span,
    pub(crate) program: usize,
    pub(crate) patterns: Vec<ClausePattern>,
    pub(crate) probes: Arc<[ProbeInfo]>,
    pub(crate) derived: Option<Derived>,
    /// The condition under which a derived probe fires.
    pub(crate) guard: Option<Expr>,
    /// It is checked again, for another base of a derived probe.
    pub(crate) again: bool,
}

/// What of speculations the statements of a clause have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeculationState {
    pub(crate) speculates: bool,
    pub(crate) commits: bool,
    /// A data-recording action or an aggregation.
    pub(crate) records: bool,
    /// A destructive action that records. The original does not count it as data-recording.
    pub(crate) records_effect: bool,
}

/// What was collected of the current clause.
#[derive(Debug)]
pub(crate) struct ClauseState {
    pub(crate) layout: LayoutBuilder,
    pub(crate) actions: Vec<plane::desc::Action>,
    /// For each action, the expressions of its values.
    pub(crate) names: Vec<Vec<Arc<str>>>,
    pub(crate) attributes: Attributes,
    /// True if something in it needs `-w`.
    pub(crate) destructive: bool,
    /// What of speculations it has done so far.
    pub(crate) speculation: SpeculationState,
}

impl Default for ClauseState {
    fn default() -> Self {
        ClauseState {
            layout: LayoutBuilder::default(),
            actions: Vec::new(),
            names: Vec::new(),
            attributes: Attributes::STABLE,
            destructive: false,
            speculation: SpeculationState::default(),
        }
    }
}
