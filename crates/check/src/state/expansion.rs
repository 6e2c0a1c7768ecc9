//! Stored trees that are checked where they are used: values of inlines and of translators'
//! members.

use std::collections::{HashMap, HashSet};

use crate::program::Expr;

/// Maximum number of uses of inlines and of members of translators in one use. More is an error:
/// some that double each other at each step.
pub(crate) const MAX_NESTED: u32 = 1 << 14;

/// The same in one session. Each definition that doubles another takes time before it is an error.
pub(crate) const MAX_USES: u32 = 1 << 19;

/// The uses of inlines and of members of translators: each is checked in its place.
#[derive(Default)]
pub(crate) struct Expansions {
    /// All uses.
    pub(crate) all: u32,
    /// Those in the outermost use that is checked, with itself.
    pub(crate) nested: u32,
    pub(crate) depth: u32,
    /// The members that are checked: the number of the translator, and the name.
    pub(crate) members: Vec<(usize, String)>,
}

impl Expansions {
    /// For a definition of a program, which may be made to take long.
    pub(crate) fn of_definition() -> Expansions {
        Expansions { all: MAX_USES - MAX_NESTED, ..Expansions::default() }
    }
}

/// The tree that is checked, in the trees around it.
#[derive(Default)]
pub(crate) struct Expansion {
    pub(crate) uses: Expansions,
    /// Names bound to expressions while a stored tree is checked. Only the last set is visible.
    pub(crate) bound: Vec<HashMap<String, Expr>>,
    next_bound: u32,
    /// The bound values that have all 64 bits of a variable, whatever their type.
    pub(crate) whole_bound: HashSet<u32>,
    /// Nonzero while uses do not count for the clause that contains them.
    pub(crate) suspended: u32,
    /// Nesting of expressions in expressions.
    pub(crate) depth: u32,
}

impl Expansion {
    /// The number of another bound value.
    pub(crate) fn new_bound(&mut self) -> u32 {
        let id = self.next_bound;
        self.next_bound += 1;
        id
    }
}
