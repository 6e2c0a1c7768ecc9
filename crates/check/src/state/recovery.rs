//! What errors and missing probes leave undecided.

use std::collections::{HashMap, HashSet};

use diagnostics::{FileId, Sink, Tag};
use syntax::ast::Item;

use crate::program::Scope;

/// An error has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorReported;

pub(crate) type CheckResult<T> = Result<T, ErrorReported>;

/// The errors that affect later checks.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Positions of the parser's errors, sorted.
    pub(crate) syntax: HashMap<FileId, Vec<u32>>,
    /// Doubtful names, for which no error is reported.
    pub(crate) doubtful: HashSet<String>,
    /// True if a description of the current clause is an error.
    pub(crate) wrong_description: bool,
}

/// An error in a `#` line does not affect the text around it.
fn is_pragma(tag: Tag) -> bool {
    tag.name().starts_with("D_PRAG")
}

impl Recovery {
    /// Creates the state from the parser's errors.
    pub(crate) fn new(sink: &Sink) -> Self {
        let mut syntax: HashMap<FileId, Vec<u32>> = HashMap::new();
        for span in sink.iter().filter(|d| !is_pragma(d.tag)).filter_map(|d| d.span) {
            syntax.entry(span.file).or_default().push(span.start);
        }
        syntax.values_mut().for_each(|all| all.sort_unstable());
        Self { syntax, ..Self::default() }
    }

    pub(crate) fn has_syntax_error(&self, item: &Item) -> bool {
        let span = item.span();
        self.syntax.get(&span.file).is_some_and(|all| {
            all.get(all.partition_point(|at| *at < span.start)).is_some_and(|at| *at <= span.end)
        })
    }
}

/// The state of deferring clauses.
#[derive(Debug, Default)]
pub(crate) struct DeferralState {
    /// Variables (with a scope) and aggregations that a deferred clause would define.
    pub(crate) names: HashSet<(Option<Scope>, String)>,
    /// True if the current clause has no probes and can be deferred.
    pub(crate) may: bool,
    /// True if the current clause must be deferred.
    pub(crate) does: bool,
}
