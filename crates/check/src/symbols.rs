//! External symbols: `` `jiffies ``, `` module`symbol ``, `` &`symbol ``.
//!
//! The address comes from the kernel's symbol table, through [`Symbols`]. The type comes from BTF,
//! which has the types of functions and of per-CPU variables only. A table ([`WELL_KNOWN`]) has the
//! types of the few other symbols that are common in scripts for Linux. For the rest, the script
//! must state the type: `` *(int *)&`symbol ``.
//!
//! **Per-CPU variables.** The symbol is the address of the first copy. The copy of the CPU on which
//! the probe fires is at offset `__per_cpu_offset[cpu]`. Both `` `symbol `` and `` &`symbol ``
//! refer to that copy.

use diagnostics::{Span, Tag, nearest};
use syntax::ast;
use types::{TypeId, Types};

use crate::context::NoSymbol;
use crate::foreign;
use crate::program::{Arith, Builtin, Expr, ExprKind, IntBuiltin};
use crate::session::{Checker, did_you_mean};
use crate::state::recovery::CheckResult;

/// Variables whose type is not in BTF and has been the same in every kernel for twenty years.
pub const WELL_KNOWN: &[(&str, &str)] = &[
    ("avenrun", "unsigned long [3]"),
    ("init_mm", "struct mm_struct"),
    ("init_pid_ns", "struct pid_namespace"),
    ("init_task", "struct task_struct"),
    ("init_uts_ns", "struct uts_namespace"),
    ("jiffies", "unsigned long"),
    ("jiffies_64", "uint64_t"),
    ("linux_banner", "const char [0]"),
    ("max_pfn", "unsigned long"),
    ("nr_threads", "int"),
    ("saved_command_line", "char *"),
    ("system_state", "enum system_states"),
];

/// The meaning of a symbol.
enum Symbol {
    /// An enumerator of the kernel.
    Constant(TypeId, i64),
    /// An object with its address, and its type if known.
    Object(Expr, Option<TypeId>),
}

impl Checker<'_> {
    /// `` `symbol `` as an object or function in memory.
    pub(crate) fn symbol(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        span: Span,
    ) -> CheckResult<Expr> {
        if let Some(found) = self.user_variable(module, name, span) {
            let (addr, ty) = found?;
            return Ok(Expr { kind: ExprKind::Deref { addr: Box::new(addr), user: true }, ty, span });
        }
        match self.find_symbol(module, name, span)? {
            Symbol::Constant(ty, value) => Ok(self.int(value, ty, span)),
            Symbol::Object(addr, Some(ty)) => {
                Ok(Expr { kind: ExprKind::Deref { addr: Box::new(addr), user: false }, ty, span })
            }
            Symbol::Object(_, None) => self.no_type(module, name, "int", span),
        }
    }

    /// Reports that the type of a symbol is unknown. The way out is part of the message, because
    /// tools and `-xerrtags` do not print help.
    fn no_type<T>(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        ty: &str,
        span: Span,
    ) -> CheckResult<T> {
        let full = full_name(module, name);
        let cast = if ty == "int" { format!(" or (int){full}") } else { String::new() };
        let message = format!(
            "no symbolic type information is available for {full}: say what it is, as in *({ty} *)&{full}{cast}"
        );
        self.fail(Tag::D_SYM_NOTYPES, span, message)
    }

    /// The address of a symbol of unknown type; `None` if the type is known.
    pub(crate) fn untyped_symbol(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        span: Span,
    ) -> CheckResult<Option<Expr>> {
        if let Some(found) = self.user_variable(module, name, span) {
            return found.map(|_| None);
        }
        match self.find_symbol(module, name, span)? {
            Symbol::Object(addr, None) => Ok(Some(addr)),
            Symbol::Object(_, Some(_)) | Symbol::Constant(..) => Ok(None),
        }
    }

    /// `` defined(`symbol) ``: a constant. Nothing of the symbol is used, so the stability is not
    /// that of one.
    pub(crate) fn has_symbol(&mut self, module: Option<&ast::Name>, name: &ast::Name, span: Span) -> Expr {
        let (scope, word) = (module.map(|m| m.text.as_str()), name.text.as_str());
        if let Some(object) = scope.and_then(|scope| self.user_object(scope, true)) {
            let found = object.and_then(|object| object.variable(word));
            return self.int(i64::from(matches!(found, Ok(Some(_)))), TypeId::INT, span);
        }
        // The types are there. The symbols may have to be read.
        let exists = self.enumerator(scope, word).is_some() || self.symbol_at(scope, word).is_ok();
        self.int(i64::from(exists), TypeId::INT, span)
    }

    fn enumerator(&mut self, module: Option<&str>, name: &str) -> Option<(TypeId, i64)> {
        match module {
            None => self.types.find_enumerator(name),
            Some(module) => self.types.find_enumerator_in(module, name),
        }
    }

    /// `` (type)`symbol ``, for a symbol whose type only the cast gives: a number, a pointer, or a
    /// string's characters.
    pub(crate) fn symbol_as(
        &mut self,
        to: TypeId,
        addr: Expr,
        (module, name): (Option<&ast::Name>, &ast::Name),
        span: Span,
    ) -> CheckResult<Expr> {
        if self.types.is_string(to) {
            return Ok(self.load_string(addr, span));
        }
        if self.types.is_integer(to) || self.types.is_pointer(to) && !self.types.is_array(to) {
            let addr = Box::new(Expr { ty: self.types.pointer(to), ..addr });
            return self.rvalue(Expr { kind: ExprKind::Deref { addr, user: false }, ty: to, span });
        }
        let ty = if self.types.is_sou(to) { self.name(to) } else { "int".into() };
        self.no_type(module, name, &ty, span)
    }

    /// `` &`symbol ``
    pub(crate) fn symbol_address(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        span: Span,
    ) -> CheckResult<Expr> {
        if let Some(found) = self.user_variable(module, name, span) {
            return found.map(|(addr, _)| addr);
        }
        match self.find_symbol(module, name, span)? {
            Symbol::Constant(..) => {
                self.fail(Tag::D_ADDROF_LVAL, span, "unacceptable operand for unary & operator")
            }
            Symbol::Object(addr, ty) => {
                let ty = ty.map_or(TypeId::VOID_PTR, |ty| self.types.pointer(ty));
                Ok(Expr { ty, span, ..addr })
            }
        }
    }

    fn find_symbol(
        &mut self,
        module: Option<&ast::Name>,
        name: &ast::Name,
        span: Span,
    ) -> CheckResult<Symbol> {
        self.uses("external symbol", &full_name(module, name), probes::Attributes::PRIVATE, span);
        let scope = module.map(|m| m.text.as_str());
        let word = name.text.as_str();
        let why = match self.symbol_at(scope, word) {
            Ok((at, owner)) => {
                let addr = self.int(at as i64, TypeId::ULONG, span);
                let known = self.types.find_variable(&owner, word);
                if let Some((ty, true)) = known {
                    return Ok(Symbol::Object(self.this_cpu_address(addr, span)?, Some(ty)));
                }
                let ty = known.map(|(ty, _)| ty).or_else(|| self.types.find_function(&owner, word));
                return Ok(Symbol::Object(addr, ty.or_else(|| well_known(self.types, &owner, word))));
            }
            Err(why) => why,
        };
        if let Some((ty, value)) = self.enumerator(scope, word) {
            return Ok(Symbol::Constant(ty, value));
        }
        let full = full_name(module, name);
        let foreign = foreign::word(foreign::Kind::Variable, word);
        let (what, help) = match why {
            NoSymbol::Hidden(why) => ("Symbol table is not available", Some(why)),
            NoSymbol::Module => ("Unknown module name", None),
            NoSymbol::FunctionsOnly => {
                let help = "this kernel's symbol table has functions only (CONFIG_KALLSYMS_ALL is not set)";
                ("Unknown symbol name", Some(help.into()))
            }
            NoSymbol::Name => {
                let names = if self.sink.may_suggest() { self.cx.symbols.like(word) } else { Vec::new() };
                let prefix = scope.unwrap_or_default();
                let near = nearest(word, names.iter().map(String::as_str));
                ("Unknown symbol name", near.map(|n| did_you_mean(&format!("{prefix}`{n}"))))
            }
        };
        let help = foreign.or(help);
        self.fail_with(Tag::D_IDENT_UNDEF, span, format!("failed to resolve {full}: {what}"), help)
    }

    /// `` `hp_avenrun[n] ``: a load average with 16 bits behind the point, as scripts for other
    /// systems read it. Linux has 11.
    pub(crate) fn load_average(&mut self, keys: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        let name = ast::Name { text: "avenrun".into(), span };
        let base = ast::Expr { kind: ast::ExprKind::Symbol { module: None, name }, span };
        let value = self.index(&base, keys, span)?;
        let value = Box::new(self.rvalue(value)?);
        let ty = TypeId::ULONG;
        let scale = Box::new(self.int(1 << (16 - 11), ty, span));
        Ok(Expr { kind: ExprKind::Arith(Arith::Mul, value, scale), ty, span })
    }

    /// The address of this CPU's copy.
    fn this_cpu_address(&mut self, first: Expr, span: Span) -> CheckResult<Expr> {
        let long = TypeId::ULONG;
        let table = match self.symbol_at(None, "__per_cpu_offset") {
            Ok((table, _)) => self.int(table as i64, long, span),
            // A kernel for a single CPU: there is only the first copy.
            Err(_) => return Ok(first),
        };
        let cpu = Expr { kind: ExprKind::Builtin(Builtin::Int(IntBuiltin::Cpu)), ty: TypeId::INT, span };
        let arith = |op, a, b| Expr { kind: ExprKind::Arith(op, Box::new(a), Box::new(b)), ty: long, span };
        let row = arith(Arith::Mul, cpu, self.int(8, long, span));
        let entry = Box::new(arith(Arith::Add, table, row));
        let load = ExprKind::Load { addr: entry, size: 8, signed: false, user: false };
        Ok(arith(Arith::Add, first, Expr { kind: load, ty: long, span }))
    }
}

fn full_name(module: Option<&ast::Name>, name: &ast::Name) -> String {
    format!("{}`{}", module.map_or("", |m| m.text.as_str()), name.text)
}

fn well_known(types: &Types, module: &str, name: &str) -> Option<TypeId> {
    let row = WELL_KNOWN.iter().find(|(word, _)| *word == name && module == "vmlinux")?;
    types.find(row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_symbols_are_sorted_by_name() {
        assert!(WELL_KNOWN.is_sorted());
    }
}
