//! What a definition may say: types, and expressions that read.
//!
//! The whole tree is looked at, with the expressions in types, and what is not listed here as
//! harmless is an error. So a function or a variable that D gets later is not one of definitions.

use std::collections::HashSet;

use diagnostics::{Diagnostic, Span, Tag};
use syntax::ast::{
    DeclPartKind, DeclSpecs, Declarator, Expr, ExprKind, Item, Params, Program, StorageClass, TypeName,
    TypeSpecKind, UnaryOp,
};

/// Functions without an effect, whose value depends on nothing but their arguments and the memory
/// of the process.
const FUNCTIONS: [&str; 30] = [
    "basename",
    "cleanpath",
    "copyin",
    "copyinstr",
    "dirname",
    "getmajor",
    "getminor",
    "htonl",
    "htonll",
    "htons",
    "index",
    "inet_ntoa",
    "inet_ntoa6",
    "inet_ntop",
    "json",
    "lltostr",
    "ntohl",
    "ntohll",
    "ntohs",
    "rindex",
    "strchr",
    "strjoin",
    "strlen",
    "strrchr",
    "strstr",
    "strtoll",
    "substr",
    "tolower",
    "toupper",
    "memstr",
];

/// Built-in variables that say who fires the probe and when.
const VARIABLES: [&str; 12] = [
    "NULL",
    "cpu",
    "errno",
    "execname",
    "gid",
    "pid",
    "ppid",
    "tid",
    "timestamp",
    "uid",
    "vtimestamp",
    "walltimestamp",
];

/// What is not allowed in a definition.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    let mut walk = Walk { faults: Vec::new(), names: HashSet::new(), params: Vec::new() };
    for item in &program.items {
        walk.item(item);
    }
    walk.faults
}

struct Walk<'p> {
    faults: Vec<Diagnostic>,
    /// The inlines and enumerators of the definition so far.
    names: HashSet<&'p str>,
    /// The parameters of the translator or inline.
    params: Vec<&'p str>,
}

impl<'p> Walk<'p> {
    fn refuse(&mut self, span: Span, what: &str) {
        let message = format!("the definition of a provider only declares types and reads: {what}");
        let help = "it is made of types, inlines, translators and a provider block";
        self.faults.push(Diagnostic::new(Tag::D_PROV_INCOMPAT, span, message).with_help(help));
    }

    fn item(&mut self, item: &'p Item) {
        match item {
            Item::Pragma(_) => {}
            Item::Clause(clause) => self.refuse(clause.span, "this is a clause"),
            Item::Provider(block) => {
                for list in block.probes.iter().flat_map(|p| [Some(&p.native), p.translated.as_ref()]) {
                    self.params(list);
                }
            }
            Item::Declaration(d) => {
                let is_typedef = d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef);
                if !d.declarators.is_empty() && !is_typedef {
                    self.refuse(d.span, "this is a variable");
                }
                self.specs(&d.specs);
                d.declarators.iter().for_each(|declarator| self.declarator(declarator));
            }
            Item::Inline(inline) => {
                self.specs(&inline.specs);
                self.declarator(&inline.declarator);
                self.params(inline.params.as_ref());
                let params = inline.params.iter().flat_map(|p| &p.list);
                self.params = params.filter_map(|p| Some(&*p.declarator.name.as_ref()?.text)).collect();
                self.expr(&inline.value);
                self.params.clear();
                self.names.extend(inline.declarator.name.as_ref().map(|n| &*n.text));
            }
            Item::Translator(t) => {
                self.type_name(&t.output);
                self.specs(&t.input.specs);
                self.declarator(&t.input.declarator);
                self.params = t.input.declarator.name.iter().map(|n| &*n.text).collect();
                t.members.iter().for_each(|m| self.expr(&m.value));
                self.params.clear();
            }
        }
    }

    fn params(&mut self, params: Option<&'p Params>) {
        for param in params.iter().flat_map(|p| &p.list) {
            self.specs(&param.specs);
            self.declarator(&param.declarator);
        }
    }

    fn type_name(&mut self, name: &'p TypeName) {
        self.specs(&name.specs);
        self.declarator(&name.declarator);
    }

    fn specs(&mut self, specs: &'p DeclSpecs) {
        let module = match &specs.ty.kind {
            TypeSpecKind::Named { module, .. } => module,
            TypeSpecKind::Record(record) => {
                for member in record.members.iter().flatten() {
                    self.specs(&member.specs);
                    member.declarators.iter().for_each(|d| self.declarator(d));
                }
                &record.module
            }
            TypeSpecKind::Enum(e) => {
                for enumerator in e.enumerators.iter().flatten() {
                    enumerator.value.iter().for_each(|value| self.expr(value));
                    self.names.insert(&enumerator.name.text);
                }
                &e.module
            }
            TypeSpecKind::Error | TypeSpecKind::Void | TypeSpecKind::String | TypeSpecKind::Arith { .. } => {
                return;
            }
        };
        if let Some(module) = module {
            self.refuse(module.span, "this is a type of another file");
        }
    }

    fn declarator(&mut self, declarator: &'p Declarator) {
        if let Some(bits) = &declarator.bits {
            self.expr(bits);
        }
        for part in &declarator.parts {
            match &part.kind {
                DeclPartKind::Pointer(_) | DeclPartKind::Array(None) => {}
                DeclPartKind::Array(Some(size)) => self.expr(size),
                DeclPartKind::Tuple(params) => {
                    self.refuse(params.span, "this is an associative array");
                    self.params(Some(params));
                }
                DeclPartKind::Function(params) => self.params(Some(params)),
            }
        }
    }

    fn expr(&mut self, e: &'p Expr) {
        match &e.kind {
            ExprKind::Error | ExprKind::Int(_) | ExprKind::Char(_) | ExprKind::Str(_) => {}
            ExprKind::Ident(name) => {
                let word = &*name.text;
                if !self.params.contains(&word) && !self.names.contains(word) && !VARIABLES.contains(&word) {
                    let what = format!("{word} is no parameter, inline or enumerator of it");
                    self.refuse(e.span, &what);
                }
            }
            ExprKind::Symbol { .. } | ExprKind::DefinedSymbol { .. } => {
                self.refuse(e.span, "this is a symbol of the kernel");
            }
            ExprKind::SelfVar(_) | ExprKind::ThisVar(_) => self.refuse(e.span, "this is a variable"),
            ExprKind::Agg(_) => self.refuse(e.span, "this is an aggregation"),
            ExprKind::DefinedProbe { .. } => self.refuse(e.span, "this is a probe"),
            ExprKind::Assign { target, value, .. } => {
                self.refuse(e.span, "this is an assignment");
                self.expr(target);
                self.expr(value);
            }
            ExprKind::Postfix { operand, .. } => {
                self.refuse(e.span, "this is an assignment");
                self.expr(operand);
            }
            ExprKind::Unary { op, operand } => {
                if matches!(op, UnaryOp::PreInc | UnaryOp::PreDec) {
                    self.refuse(e.span, "this is an assignment");
                }
                self.expr(operand);
            }
            ExprKind::Call { callee, args } => {
                let name = match &callee.kind {
                    ExprKind::Ident(name) => &*name.text,
                    _ => "",
                };
                if !FUNCTIONS.contains(&name) {
                    self.refuse(e.span, &format!("this is a call of {name}( )"));
                }
                args.iter().for_each(|arg| self.expr(arg));
            }
            ExprKind::Index { base, keys } => {
                self.expr(base);
                keys.iter().for_each(|key| self.expr(key));
            }
            ExprKind::Member { base, .. } => self.expr(base),
            ExprKind::SizeofExpr(operand) | ExprKind::Stringof(operand) => self.expr(operand),
            ExprKind::SizeofType(ty) | ExprKind::Offsetof { ty, .. } | ExprKind::Defined { ty, .. } => {
                self.type_name(ty);
            }
            ExprKind::Xlate { ty, operand } | ExprKind::Cast { ty, operand } => {
                self.type_name(ty);
                self.expr(operand);
            }
            ExprKind::Binary { left, right, .. } | ExprKind::Comma { left, right } => {
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Cond { cond, then, otherwise } => {
                self.expr(cond);
                self.expr(then);
                self.expr(otherwise);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;

    #[test]
    fn what_is_allowed_is_there_and_has_no_effect() {
        for name in FUNCTIONS {
            assert!(tables::function(name).is_some() && !tables::is_destructive(name), "{name}");
        }
        for name in VARIABLES {
            assert!(tables::variable(name).is_some(), "{name}");
        }
    }
}
