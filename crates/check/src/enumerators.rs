//! The names of enumerators, for libraries: `_enumerator[value]`.
//!
//! As with the properties of CPUs, the lookup is compiled into the program: a tree of comparisons
//! finds the value among those of its type on the running kernel.

use diagnostics::{Span, Tag};
use syntax::ast;
use types::{Kind, TypeId};

use crate::program::{Expr, ExprKind};
use crate::runs::choice;
use crate::session::Checker;
use crate::state::recovery::CheckResult;

/// The name of a value that is none of its type's.
const UNKNOWN: &str = "<unknown>";

impl Checker<'_> {
    /// `_enumerator[value]` and `_enumerator[value, prefix]`: the name of the enumerator, without
    /// the prefix.
    pub(crate) fn enumerator_name(&mut self, keys: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        let (Some(value), rest) = (keys.first(), keys.get(1..).unwrap_or_default()) else {
            return self.fail(Tag::D_PROTO_LEN, span, "_enumerator[ ] takes a value and a prefix");
        };
        let value = self.value(value)?;
        let prefix = match rest {
            [] => String::new(),
            [ast::Expr { kind: ast::ExprKind::Str(prefix), .. }] => prefix.text(),
            _ => return self.fail(Tag::D_PROTO_LEN, span, "_enumerator[ ] takes a value and a prefix"),
        };
        if !matches!(self.types.base_kind(value.ty), Kind::Enum { .. }) {
            let message = format!("_enumerator[ ] takes an enumeration, not {}", self.name(value.ty));
            return self.fail(Tag::D_PROTO_ARG, span, message);
        }
        let mut names: Vec<(i64, String)> = self
            .types
            .enumerators(value.ty)
            .iter()
            .map(|(name, value)| (*value, name.strip_prefix(&*prefix).unwrap_or(name).to_string()))
            .collect();
        // Of several names the first counts.
        names.sort_by_key(|(value, _)| *value);
        names.dedup_by_key(|(value, _)| *value);
        let mut runs = vec![(i64::MIN, UNKNOWN.to_string())];
        for (at, (value, name)) in names.iter().enumerate() {
            runs.push((*value, name.clone()));
            let next = value.saturating_add(1);
            if names.get(at + 1).is_none_or(|(following, _)| *following != next) {
                runs.push((next, UNKNOWN.to_string()));
            }
        }
        let value = self.convert(value, TypeId::LONG);
        let (value, outer) = self.bind(value);
        let name = |name: Option<&String>| {
            let text = name.map_or(UNKNOWN, String::as_str);
            Expr { kind: ExprKind::Str(text.as_bytes().to_vec()), ty: TypeId::STRING, span }
        };
        let tree = choice(&value, &runs, &name);
        Ok(self.within(outer, tree))
    }
}
