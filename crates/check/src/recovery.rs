//! Errors that only follow from other errors are not reported.
//!
//! - A clause with a syntax error is checked for the variables that it assigns, and its other errors are dropped.
//! - A name that an erroneous declaration would have made, or that stands in text that could not be parsed, is *doubtful*:
//!   that it is unknown is no error.
//! - The probes of a clause are not known where a description of it matches nothing, so `args[]` has no types there.
//!
//! A variable or aggregation whose first assignment is wrong is poisoned, which the symbol tables know ([`crate::session`]),
//! and an expression with a wrong operand has no type ([`Wrong`]).

use std::collections::{HashMap, HashSet};

use diagnostics::{FileId, Sink, Tag};
use syntax::ast::{Item, Program};
use types::{Kind, TypeId};

use crate::library;
use crate::session::{Checker, Checks, Wrong};

/// What is known of errors so far.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Where the parser found errors, sorted.
    syntax: HashMap<FileId, Vec<u32>>,
    /// Names of which no error is reported.
    doubtful: HashSet<String>,
    /// A description of the clause being checked is wrong.
    pub(crate) wrong_description: bool,
}

/// An error in a `#` line leaves the text around it as it is.
fn is_pragma(tag: Tag) -> bool {
    tag.name().starts_with("D_PRAG")
}

impl Recovery {
    /// From the errors of the parser.
    pub(crate) fn new(sink: &Sink) -> Self {
        let mut syntax: HashMap<FileId, Vec<u32>> = HashMap::new();
        for span in sink.iter().filter(|d| !is_pragma(d.tag)).filter_map(|d| d.span) {
            syntax.entry(span.file).or_default().push(span.start);
        }
        syntax.values_mut().for_each(|all| all.sort_unstable());
        Self { syntax, ..Self::default() }
    }

    fn has_syntax_error(&self, item: &Item) -> bool {
        let span = item.span();
        self.syntax.get(&span.file).is_some_and(|all| {
            all.get(all.partition_point(|at| *at < span.start)).is_some_and(|at| *at <= span.end)
        })
    }
}

impl Checker<'_> {
    /// Checks a program's item with `check`; what only follows from its errors is not reported, then or later.
    pub(crate) fn recovering(&mut self, item: &Item, check: impl FnOnce(&mut Self)) {
        let before = self.sink.iter().len();
        self.sink.enter_item(Some(item.span()));
        check(self);
        self.sink.enter_item(None);
        if self.sink.iter().len() > before && !matches!(item, Item::Clause(_)) {
            let doubtful = &mut self.recovery.doubtful;
            library::defined(item, &mut |_, word| doubtful.extend([word.to_string()]));
        }
        if self.recovery.has_syntax_error(item) {
            self.sink.take_back(before);
        }
    }

    /// Every word of text that could not be parsed is doubtful: from the item with a syntax error to the next item.
    pub(crate) fn doubt_unparsed(&mut self, program: &Program) {
        let Some(errors) = self.recovery.syntax.get(&program.file) else { return };
        let mut starts: Vec<u32> = program.items.iter().map(|i| i.span().start).collect();
        // A pragma inside a clause is an item after it.
        starts.sort_unstable();
        let mut done = 0;
        for at in errors {
            let next = starts.partition_point(|start| start <= at);
            let from = next.checked_sub(1).and_then(|i| starts.get(i)).copied().unwrap_or(0).max(done);
            let to = starts.get(next).copied().unwrap_or(program.span.end);
            if from < to {
                let text = self.cx.map.text(program.file).get(from as usize..to as usize).unwrap_or("");
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let words = words.filter(|w| !w.is_empty());
                self.recovery.doubtful.extend(words.map(str::to_string));
                done = to;
            }
        }
    }

    /// Fails silently for a name whose declaration is wrong.
    pub(crate) fn not_doubtful(&self, name: &str) -> Checks<()> {
        if self.recovery.doubtful.contains(name) { Err(Wrong) } else { Ok(()) }
    }

    /// Fails silently for a type whose declaration is wrong.
    pub(crate) fn not_doubtful_type(&self, ty: TypeId) -> Checks<()> {
        match self.types.base_kind(ty) {
            Kind::Sou { tag: Some(tag), .. } | Kind::Enum { tag: Some(tag), .. } => self.not_doubtful(&tag),
            _ => Ok(()),
        }
    }
}
