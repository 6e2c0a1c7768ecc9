//! What a program uses of the probes that libraries declare.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use probes::ProbeInfo;

use super::clause::DerivedProbe;
use crate::derivations::ClauseNumber;
use crate::program::{ClausePattern, Expr, Stmt, VarId};

/// What one program uses of the libraries.
#[derive(Default)]
pub(crate) struct ProgramDerivations {
    /// The declared probes that fire.
    pub(crate) wanted: HashMap<(String, String), ProbeInfo>,
    /// The clauses of libraries that this needs.
    pub(crate) needed: BTreeSet<ClauseNumber>,
    /// `None` while they are made.
    pub(crate) instances: BTreeMap<ClauseNumber, Option<Vec<Instance>>>,
    /// The libraries whose declared variables are.
    pub(crate) with_locals: BTreeSet<usize>,
    /// Those whose parameters are wrong: that is reported, and their clauses are not checked.
    pub(crate) wrong: HashSet<(String, String)>,
    /// The variables in which a native argument is stored that a clause uses.
    pub(crate) used: HashSet<VarId>,
}

/// Where a probe fires.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) pattern: ClausePattern,
    /// The probes of the kernel.
    pub(crate) probes: Arc<[ProbeInfo]>,
    /// The condition under which the probe fires there.
    pub(crate) guard: Option<Expr>,
    pub(crate) derived: Option<DerivedProbe>,
    /// The place among all that fires there.
    pub(crate) order: Vec<u32>,
}

/// A clause of a library at one base.
pub(crate) struct Instance {
    pub(crate) base: Base,
    pub(crate) predicate: Option<Expr>,
    /// Each with the statements before it.
    pub(crate) fired: Vec<Fired>,
    /// The statements after the last.
    pub(crate) rest: Vec<Stmt>,
    /// Set where the clause is in the program in pieces: the predicate holds.
    pub(crate) holds: Option<VarId>,
}

/// A firing of a probe.
pub(crate) struct Fired {
    pub(crate) key: (String, String),
    pub(crate) before: Vec<Stmt>,
    pub(crate) natives: Arc<[Expr]>,
    /// Of a clause in pieces: the variable that says that it fires, and those of the arguments.
    pub(crate) stored: Option<(VarId, Vec<VarId>)>,
}
