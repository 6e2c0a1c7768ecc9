//! The definitions of programs that were used, with their names.

use std::collections::HashMap;
use std::sync::Arc;

use probes::ArgType;

use super::scopes::Names;

/// The names that are exchanged.
#[derive(Default)]
pub(crate) struct Space {
    pub(crate) types: types::Names,
    pub(crate) names: Names,
}

/// The types of a probe's arguments, if its definition gives them.
type DefinedArgs = Option<Arc<[ArgType]>>;

/// The definitions that were used.
#[derive(Default)]
pub(crate) struct Defined {
    /// The definition whose names are in use.
    pub(crate) current: Option<u32>,
    /// The definition whose translators are wanted.
    pub(crate) wanted: Option<u32>,
    /// Names that are not in use.
    pub(crate) spaces: HashMap<Option<u32>, Space>,
    /// Whether a definition can be used.
    pub(crate) usable: HashMap<u32, bool>,
    /// The types of arguments, by definition and probe.
    pub(crate) args: HashMap<(u32, Arc<str>), DefinedArgs>,
    /// What is wrong with definitions, or with clauses for the probes of a definition.
    pub(crate) messages: Vec<String>,
}

impl Defined {
    /// True if the translators of a definition are to be considered, or those of no definition.
    pub(crate) fn is_visible(&self, definition: Option<u32>) -> bool {
        definition.is_none() || definition == self.current || definition == self.wanted
    }
}
