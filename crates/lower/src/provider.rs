//! `probeprov` in clauses whose probes can be of a family of processes.
//!
//! There the name of a provider is two values: a string known before the firing and the process id
//! that follows it, 0 if none does. A column that holds only names of providers has both. Elsewhere
//! the text is made from them.

use check::program::{Expr, ExprKind, Relation};
use dif::ir::{BinOp, Cond, Datum, IntBuiltin, StrBuiltin, Subr, Value, VarId};

use crate::Lowering;

impl Lowering<'_> {
    /// String and process id of a name of a provider, or of a constant.
    pub(crate) fn provider(&mut self, e: &Expr) -> [Value; 2] {
        match &e.kind {
            ExprKind::FamilyProbeprov => {
                let name = self.b.builtin_str(StrBuiltin::ProbeProv);
                [name, self.b.builtin(IntBuiltin::ProviderPid)]
            }
            ExprKind::Let { id, value, body } => {
                let value = self.value(value);
                self.bound.insert(*id, value);
                self.provider(body)
            }
            _ => {
                let name = self.value(e);
                [name, self.b.int(0)]
            }
        }
    }

    /// The text of `probeprov`. Without branches, so that what follows is verified once: no digits
    /// follow where the id is 0.
    pub(crate) fn provider_text(&mut self) -> Value {
        let name = self.b.builtin_str(StrBuiltin::ProbeProv);
        let pid = self.b.builtin(IntBuiltin::ProviderPid);
        let base = self.b.int(10);
        let digits = self.b.call(Subr::Lltostr, vec![pid, base]);
        let zero = self.b.int(0);
        let none = self.b.cmp(Cond::Eq, pid, zero);
        let all = self.b.int(i64::from(i32::MAX));
        let digits = self.b.call(Subr::Substr, vec![digits, none, all]);
        self.b.call(Subr::Strjoin, vec![name, digits])
    }

    /// `probeprov == "pid123"`, without its text. `None` for another comparison.
    pub(crate) fn compare_provider(&mut self, relation: Relation, l: &Expr, r: &Expr) -> Option<Value> {
        let family = |e: &Expr| matches!(e.kind, ExprKind::FamilyProbeprov);
        let text = match (&l.kind, &r.kind) {
            (_, ExprKind::Str(text)) if family(l) => text,
            (ExprKind::Str(text), _) if family(r) => text,
            _ => return None,
        };
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        // A longer constant is truncated.
        let whole = text.len() < self.module.strsize as usize;
        if !whole || !matches!(relation, Relation::Eq | Relation::Ne) {
            return None;
        }
        let name = self.b.builtin_str(StrBuiltin::ProbeProv);
        let pid = self.b.builtin(IntBuiltin::ProviderPid);
        let mut same = self.is_provider(name, pid, text, 0);
        if let Some((prefix, number)) = split(text) {
            let other = self.is_provider(name, pid, prefix, number);
            same = self.b.bin(BinOp::Or, same, other);
        }
        if relation == Relation::Ne {
            let zero = self.b.int(0);
            same = self.b.cmp(Cond::Eq, same, zero);
        }
        Some(same)
    }

    fn is_provider(&mut self, name: Value, pid: Value, text: &[u8], number: u32) -> Value {
        let id = self.module.intern(text);
        let (text, number) = (self.b.string(id), self.b.int(number.into()));
        let same_name = self.b.str_cmp(Cond::Eq, name, text);
        let same_pid = self.b.cmp(Cond::Eq, pid, number);
        self.b.bin(BinOp::And, same_name, same_pid)
    }

    /// The values of an array's key.
    pub(crate) fn array_key(&mut self, var: VarId, keys: &[Expr]) -> Vec<Value> {
        let columns = self.module.vars.get(var.0 as usize).and_then(|v| v.key.clone()).unwrap_or_default();
        let mut values = Vec::with_capacity(keys.len());
        for (n, key) in keys.iter().enumerate() {
            match columns.get(n).map(|f| f.datum) {
                Some(Datum::Provider) => values.extend(self.provider(key)),
                Some(Datum::Address { .. }) => values.extend(self.address(key)),
                _ => values.push(self.value(key)),
            }
        }
        values
    }
}

/// Prefix and process id of a name of a family: a number without leading zeros, and not 0, behind
/// what does not end with a digit.
fn split(name: &[u8]) -> Option<(&[u8], u32)> {
    let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (prefix, number) = name.split_at_checked(name.len() - digits)?;
    let canonical = number.first().is_some_and(|b| *b != b'0') && !prefix.is_empty();
    let number = std::str::from_utf8(number).ok()?.parse().ok();
    number.filter(|_| canonical).map(|number| (prefix, number))
}
