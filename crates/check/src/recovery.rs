//! Suppresses errors that only follow from other errors.
//!
//! - A clause with a syntax error is checked for the variables that it assigns. Its other errors
//!   are dropped.
//! - A name is *doubtful* if an erroneous declaration would have defined it, or if it occurs in
//!   text that could not be parsed. Using an undefined doubtful name is not reported.
//! - If a description of a clause matches nothing, the probes of the clause are unknown, so
//!   `args[]` has no types there.
//!
//! A variable or aggregation whose first assignment is an error is poisoned in the symbol tables
//! ([`crate::state::scopes`]). An expression with an erroneous operand has no type
//! ([`ErrorReported`]).

use syntax::ast::{Item, Program};
use types::{Kind, TypeId};

use crate::session::Checker;
use crate::state::libraries;
use crate::state::recovery::{CheckResult, ErrorReported};

impl Checker<'_> {
    /// Checks a program's item with `check`, and suppresses errors that only follow from the item's
    /// errors, now or later.
    pub(crate) fn recovering(&mut self, item: &Item, check: impl FnOnce(&mut Self)) {
        let before = self.sink.iter().len();
        self.sink.set_item(Some(item.span()));
        check(self);
        self.sink.set_item(None);
        if self.sink.iter().len() > before && !matches!(item, Item::Clause(_)) {
            let doubtful = &mut self.recovery.doubtful;
            libraries::defined(item, &mut |_, word| doubtful.extend([word.to_string()]));
        }
        if self.recovery.has_syntax_error(item) {
            self.sink.split_off(before);
        }
    }

    /// Marks every identifier in unparsed text as doubtful: from an item with a syntax error to the
    /// next item.
    pub(crate) fn doubt_unparsed(&mut self, program: &Program) {
        let Some(errors) = self.recovery.syntax.get(&program.file) else { return };
        let mut starts: Vec<u32> = program.items.iter().map(|i| i.span().start).collect();
        // A pragma inside a clause is parsed as an item after the clause.
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

    /// Fails silently if the declaration of a name is an error.
    pub(crate) fn require_not_doubtful(&self, name: &str) -> CheckResult<()> {
        if self.recovery.doubtful.contains(name) { Err(ErrorReported) } else { Ok(()) }
    }

    /// Fails silently if the declaration of a type is an error.
    pub(crate) fn require_type_not_doubtful(&self, ty: TypeId) -> CheckResult<()> {
        match self.types.base_kind(ty) {
            Kind::Sou { tag: Some(tag), .. } | Kind::Enum { tag: Some(tag), .. } => {
                self.require_not_doubtful(&tag)
            }
            _ => Ok(()),
        }
    }
}
