//! The sites of probes in files and in processes.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use probes::{Definition, ProbeDesc, ProbeId};
use proc::share::Owner;
use symbols::ProbeSite;

use crate::contract::method::{HeldFile, HeldProcess};

/// What a site is like: the number of the definition, and size and sign of each argument.
pub(super) type Form = (Option<u32>, Vec<(u8, bool)>);

/// What the sites of a probe in one file are like.
pub(super) type Forms = BTreeSet<Form>;

/// A site in a file.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) described: ProbeSite,
    /// What the file says of its provider.
    pub(super) definition: Option<Arc<Definition>>,
}

impl Deref for Site {
    type Target = ProbeSite;

    fn deref(&self) -> &ProbeSite {
        &self.described
    }
}

impl Site {
    /// What it has to have in common with others of a probe.
    pub(super) fn form(&self) -> Form {
        let number = self.definition.as_ref().map(|definition| definition.number);
        (number, self.arguments.iter().map(|a| (a.size, a.signed)).collect())
    }
}

/// A site in a process.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The process. `None`: all that run the file.
    pub(super) process: Option<Arc<HeldProcess>>,
    pub(super) file: Arc<HeldFile>,
    pub(super) site: Arc<Site>,
}

/// The probes of a file that came or went.
pub(super) struct FileChange {
    /// The process. `None`: they are those of all processes.
    pub(super) pid: Option<u32>,
    /// The number of the file.
    pub(super) number: u64,
    /// Its name as a module.
    pub(super) name: Arc<str>,
    pub(super) came: Vec<(Arc<ProbeDesc>, Vec<Target>)>,
    pub(super) went: Vec<ProbeId>,
    /// Who brought them.
    pub(super) by: Owner,
}
