//! What a program was told when it was first checked.
//!
//! A program that runs is checked again when others are enabled, and its clauses must keep their
//! numbers and what they record. Both depend on what its descriptions match, on the bases of its
//! derived probes, on `defined()`, on the types and definitions of arguments, on files of
//! processes, and on types and symbols of the kernel. All of these change as modules are loaded and
//! unloaded and as processes come and end. So each answer is recorded, and a program that is
//! checked again gets it from the record: it is checked for what it was compiled for, also where
//! that is gone. So the check of what runs does not grow with all that came since either.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use probes::{Args, Definition, Pattern, ProbeDesc, ProbeId, ProbeInfo, UserObject};
use types::btf::KernelBtf;

use crate::context::NoSymbol;

/// Answers by the number of the program that asked, and by what it asked.
pub(crate) type Answers<K, V> = HashMap<(usize, K), V>;

/// A file that processes run, or what is not there; `None` if there are no processes.
pub(crate) type ObjectFound = Option<Result<Arc<dyn UserObject>, String>>;

/// The address of a symbol, and its module.
pub(crate) type SymbolFound = Result<(u64, String), NoSymbol>;

/// See the [module](self). The number in each key is that of the program.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What a description of the program itself matched.
    pub(crate) described: Answers<Pattern, Arc<[ProbeInfo]>>,
    /// The probe of an id that the program describes.
    pub(crate) ids: Answers<ProbeId, Option<ProbeInfo>>,
    /// What a description of a library matched.
    pub(crate) matched: Answers<Pattern, Arc<[ProbeInfo]>>,
    /// The derived probes without a base.
    pub(crate) absent: Answers<Pattern, Vec<ProbeInfo>>,
    /// The values of `defined()`.
    pub(crate) defined: HashMap<(usize, Pattern, Option<u64>), bool>,
    /// The arguments of probes, as their providers give them.
    pub(crate) args: Answers<Arc<ProbeDesc>, Args>,
    /// What files say of their probes.
    pub(crate) definitions: Answers<Arc<ProbeDesc>, Arc<Definition>>,
    /// Which of these were parsed then, by their numbers.
    pub(crate) parsed: Answers<u32, bool>,
    /// The files that processes run, by the provider and their name.
    pub(crate) objects: Answers<(String, String), ObjectFound>,
    /// The kernel's types as each program saw them.
    pub(crate) kernels: HashMap<usize, Arc<KernelBtf>>,
    /// Addresses of symbols of the kernel, by the module and their name.
    pub(crate) symbols: Answers<(Option<String>, String), SymbolFound>,
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
    /// not asked then. Clauses for the same probes are best given one list, by which they are known
    /// to be for the same.
    fn came(&self, program: usize, pattern: &Pattern) -> Option<Arc<[ProbeInfo]>> {
        let _ = (program, pattern);
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
