//! What the descriptions of libraries meant when a program was first checked.
//!
//! A program that runs is checked again when others are enabled, and its clauses must keep their
//! numbers. Which clauses it has depends on the bases of its derived probes, on `defined()` and on
//! the types of the bases' arguments. All of these change as modules are loaded and unloaded. So
//! each answer is recorded, and a program that is checked again gets it from the record. Nor does
//! it ask what its own descriptions match: of probes that came later it gets none, and those that
//! it had are recorded, so that the check of what runs does not grow with all that came since.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use probes::{Args, Pattern, ProbeDesc, ProbeId, ProbeInfo};

/// See the [module](self). The number in each key is that of the program.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What a description of the program itself matched.
    pub(crate) described: HashMap<(usize, Pattern), Arc<[ProbeInfo]>>,
    /// What a description of a library matched.
    pub(crate) matched: HashMap<(usize, Pattern), Arc<[ProbeInfo]>>,
    /// The values of `defined()`.
    pub(crate) defined: HashMap<(usize, Pattern, Option<u64>), bool>,
    /// The derived probes that existed, of those that a program describes.
    pub(crate) derived: HashSet<(usize, ProbeId)>,
    /// The arguments of bases.
    pub(crate) args: HashMap<Arc<ProbeDesc>, Args>,
    /// The declarations of a library that a program has, by the number of the library.
    pub(crate) locals: HashMap<(usize, usize), Vec<usize>>,
    /// The descriptions of bases, of all clauses of libraries that a program can need: also of
    /// those that match nothing yet.
    pub bases: Vec<(usize, Pattern)>,
}

/// Which probes the descriptions of the programs may match. A probe that appeared after a program
/// was enabled belongs to another program.
pub trait Visibility {
    /// True if descriptions of a program may match this probe.
    fn is_visible(&self, program: usize, probe: ProbeId) -> bool;

    /// Set for a program that has the clauses of another one for derived probes, for bases of these
    /// that came later.
    fn later_bases(&self, program: usize) -> Option<LaterBases<'_>> {
        let _ = program;
        None
    }

    /// True if a program has clauses of others for probes that came later, and its descriptions
    /// match no others.
    fn is_for_later(&self, program: usize) -> bool {
        let _ = program;
        false
    }

    /// The probes that a description of such a program matches, if they are known: the catalog is
    /// not asked then.
    fn came(&self, program: usize, pattern: &Pattern) -> Option<Vec<ProbeInfo>> {
        let _ = (program, pattern);
        None
    }

    /// Those of some probes that still exist. `None`: all of them.
    fn existing(&self, probes: &[ProbeInfo]) -> Option<Vec<ProbeInfo>> {
        let _ = probes;
        None
    }

    /// True if a program runs: it was checked before.
    fn is_running(&self, program: usize) -> bool {
        let _ = program;
        false
    }

    /// What was recorded of the programs that run.
    fn record(&self) -> Option<&Record> {
        None
    }
}

impl<F: Fn(usize, ProbeId) -> bool> Visibility for F {
    fn is_visible(&self, program: usize, probe: ProbeId) -> bool {
        self(program, probe)
    }
}

/// The bases of a program for later bases.
#[derive(Clone, Copy, Debug)]
pub struct LaterBases<'a> {
    /// The program whose clauses these are. They share the variables of libraries.
    pub origin: usize,
    /// The probes that came.
    pub ids: &'a BTreeSet<u32>,
}
