//! Variables and elements of associative arrays as assignment targets. Their first assignment
//! creates them.

use diagnostics::{Span, Tag};
use plane::builtin::UREGS;
use plane::desc::AddrForm;
use syntax::ast;
use types::{Kind, TypeId};

use crate::columns::{Column, StrUses};
use crate::objects::is_in_variable;
use crate::program::{Arith, Builtin, Expr, ExprKind, IntBuiltin, LARGEST, Place, Repr, Scope, VarId};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::VarType;
use crate::tables::{self, VariableKind};

/// A variable that an expression names.
struct Named<'e> {
    scope: Scope,
    name: &'e str,
}

fn named(e: &ast::Expr) -> Option<Named<'_>> {
    match &e.kind {
        ast::ExprKind::Ident(name) => Some(Named { scope: Scope::Global, name: &name.text }),
        ast::ExprKind::SelfVar(name) => Some(Named { scope: Scope::Thread, name: &name.text }),
        ast::ExprKind::ThisVar(name) => Some(Named { scope: Scope::Clause, name: &name.text }),
        _ => None,
    }
}

impl Checker<'_> {
    /// The variable or element that `target` names, as the target of operator `text`. A new
    /// variable is created. `None` when `target` is neither.
    pub(crate) fn place(
        &mut self,
        target: &ast::Expr,
        text: &str,
        span: Span,
    ) -> CheckResult<Option<(Place, VarId)>> {
        if let Some(Named { scope, name }) = named(target) {
            if scope == Scope::Global {
                self.require_variable(name, text, span)?;
            }
            let id = match self.scopes.var(scope, name) {
                Some(id) => id,
                None => self.scopes.add_var(scope, name, VarType::Pending, None),
            };
            let info = self.scopes.var_info(id);
            if info.key.is_some() {
                let message =
                    format!("{} '{}' may not be referenced as scalar", info.kind_word(), info.full_name());
                return self.fail(Tag::D_IDENT_BADREF, target.span, message);
            }
            return Ok(Some((Place::Var(id), id)));
        }
        if let ast::ExprKind::Index { base, keys } = &target.kind
            && let Some(Named { scope, name }) = named(base)
            && let Some((id, values)) = self.element(scope, name, keys, true, target.span)?
        {
            return Ok(Some((Place::Elem(id, values), id)));
        }
        if let ast::ExprKind::Agg(_) = &target.kind {
            let message = format!("operator {text} requires modifiable lvalue as an operand");
            return self.fail(Tag::D_OP_LVAL, span, message);
        }
        Ok(None)
    }

    /// True if a global name is a built-in variable, an inline, or bound here, and so no variable
    /// of the program.
    fn is_defined_otherwise(&self, name: &str) -> bool {
        self.bound_name(name).is_some()
            || self.scopes.names.inlines.contains_key(name)
            || tables::variable(name).is_some()
    }

    /// Creates the operand of a unary operator, if it names a variable of threads or clauses, or an
    /// element of an array, that nothing before it has declared or assigned: as an `int64_t`, as in
    /// the original. A global scalar is left to be an error.
    pub(crate) fn create_operand(&mut self, operand: &ast::Expr, text: &str, span: Span) -> CheckResult<()> {
        let (named, is_element) = match &operand.kind {
            ast::ExprKind::Index { base, .. } => (named(base), true),
            _ => (named(operand), false),
        };
        let Some(Named { scope, name }) = named else { return Ok(()) };
        if scope == Scope::Global {
            if !is_element || self.is_defined_otherwise(name) || tables::function(name).is_some() {
                return Ok(());
            }
            self.define_from_libraries(name);
            if self.is_defined_otherwise(name) {
                return Ok(());
            }
        }
        if self.scopes.var(scope, name).is_some() {
            return Ok(());
        }
        self.require_not_deferred(Tag::D_VAR_UNDEF, Some(scope), name, span)?;
        self.require_not_doubtful(name)?;
        if let Some((_, id)) = self.place(operand, text, span)?
            && self.scopes.var_info(id).ty == VarType::Pending
        {
            self.count_type(id);
        }
        Ok(())
    }

    /// Reports an error for a global name that is not a variable.
    fn require_variable(&mut self, name: &str, text: &str, span: Span) -> CheckResult<()> {
        self.scope_alone(name, span)?;
        if self.scopes.var(Scope::Global, name).is_none() {
            self.define_from_libraries(name);
        }
        if self.scopes.names.inlines.contains_key(name) || self.bound_name(name).is_some() {
            let message = format!("operator {text} requires modifiable lvalue as an operand");
            return self.fail(Tag::D_OP_LVAL, span, message);
        }
        if tables::variable(name).is_some() {
            let message = format!("operator {text} can only be applied to a writable variable");
            return self.fail(Tag::D_OP_WRITE, span, message);
        }
        if let Some(row) = tables::function(name) {
            let message = format!("{} '{name}' may not be referenced as scalar", row.kind.word());
            return self.fail(Tag::D_IDENT_BADREF, span, message);
        }
        Ok(())
    }

    /// `base[keys]` as a value.
    pub(crate) fn index(&mut self, base: &ast::Expr, keys: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        if let ast::ExprKind::Agg(agg) = &base.kind {
            let message =
                format!("improper attempt to reference @{} as a multi-dimensional array", agg.name.text);
            return self.fail(Tag::D_AGG_MDIM, span, message);
        }
        if let ast::ExprKind::Symbol { module: None, name } = &base.kind
            && name.text == "hp_avenrun"
            && self.symbol_at(None, "hp_avenrun").is_err()
        {
            return self.load_average(keys, span);
        }
        if let Some(Named { scope: Scope::Global, name }) = named(base)
            && let Some(row) = tables::variable(name)
            && let tables::VariableKind::CpuFact(fact) = row.kind
            && let [cpu] = keys
        {
            return self.cpu_property(fact, cpu, span);
        }
        if let Some(Named { scope, name }) = named(base) {
            if scope == Scope::Global
                && self.scopes.var(scope, name).is_none()
                && tables::variable(name).is_none()
            {
                self.define_from_libraries(name);
            }
            let inline =
                self.scopes.names.inlines.get(name).filter(|i| scope == Scope::Global && i.params.is_some());
            if let (Some(inline), None) = (inline.cloned(), self.bound_name(name)) {
                let shown = format!("{name}[ ]");
                return self.call_inline((name, &shown), &inline, keys, span);
            }
            if scope == Scope::Global
                && self.bound_name(name).is_none()
                && let Some(row) = tables::variable(name)
            {
                match row.kind {
                    VariableKind::Registers => return self.register(name, keys, span),
                    VariableKind::TypedArgs => return self.typed_arg(keys, span),
                    VariableKind::EnumeratorName => return self.enumerator_name(keys, span),
                    _ => {}
                }
            }
            let is_array = scope != Scope::Global || !self.is_defined_otherwise(name);
            if is_array && let Some((id, values)) = self.element(scope, name, keys, false, span)? {
                return match self.scopes.var_info(id).ty {
                    VarType::Known(ty, _) => Ok(self.read_place(Place::Elem(id, values), id, ty, span)),
                    VarType::Poisoned => Err(ErrorReported),
                    VarType::Pending => self.undefined(scope, name, span),
                };
            }
        }
        let pointer = self.value(base)?;
        let pointer = self.text_array(pointer);
        let [key] = keys else {
            let name = named(base).map_or("expression", |n| n.name).to_string();
            let message = format!("cannot access {name} as an associative array");
            return self.fail(Tag::D_ARR_BADREF, span, message);
        };
        let index = self.value(key)?;
        let string = self.types.is_string(pointer.ty);
        let target = match self.types.pointee(pointer.ty) {
            Some((target, _)) => target,
            None if string => TypeId::CHAR,
            None => return self.dereference(pointer, span),
        };
        if !self.types.is_integer(index.ty) {
            let message = format!(
                "operands have incompatible types: \"{}\" + \"{}\"",
                self.name(pointer.ty),
                self.name(index.ty)
            );
            return self.fail(Tag::D_OP_INCOMPAT, span, message);
        }
        if string {
            let rest = self.tail(pointer, index, span);
            return self.dereference(rest, span);
        }
        let size = self.types.size(target).unwrap_or(0) as i64;
        // By an old C convention, an array of one element at the end of a struct has a variable
        // length.
        if let (Some(bytes), Some(n)) = (pointer.array_bytes(), index.as_const())
            && let Some(count) = (bytes as i64).checked_div(size)
            && !(0..count.max(1)).contains(&n)
            && (count > 1 || n < 0 || is_in_variable(&pointer))
        {
            let message = format!("index outside array bounds: {n}, max allowed is {}", count - 1);
            return self.fail(Tag::D_ARR_BOUNDS, key.span, message);
        }
        let long = TypeId::LONG;
        let index = self.bounded(&pointer, size, index);
        let size = Box::new(self.int(size, long, span));
        let offset = match index.as_const() {
            Some(n) => self.int(crate::convert::scaled(n, size.as_const().unwrap_or(0)), long, span),
            None => {
                let index = Box::new(self.convert(index, long));
                Expr { kind: ExprKind::Arith(Arith::Mul, index, size), ty: long, span }
            }
        };
        let ty = pointer.ty;
        let sum = ExprKind::Arith(Arith::Add, Box::new(pointer), Box::new(offset));
        self.dereference(Expr { kind: sum, ty, span }, span)
    }

    /// `uregs[index]`. The index must be a constant, so that the program reads one known register.
    fn register(&mut self, name: &str, keys: &[ast::Expr], span: Span) -> CheckResult<Expr> {
        let row = tables::variable(name);
        self.uses_word("associative array", name, span);
        let [key] = keys else {
            let n = keys.len();
            let s = if n == 1 { "" } else { "s" };
            let message = format!("{name}[ ] prototype mismatch: {n} arg{s} passed, 1 expected");
            return self.fail(Tag::D_REGS_PROTO, span, message);
        };
        let index = self.value(key)?;
        let Some(n) = index.as_const() else {
            let message = format!(
                "{name}[ ] argument #1 is incompatible with prototype:\n\tprototype: integer constant\n\t \
                 argument: {}",
                self.name(index.ty)
            );
            return self.fail(Tag::D_REGS_TYPE, key.span, message);
        };
        match u8::try_from(n) {
            Ok(n) if n < UREGS => {
                let ty = self.row_type(row.map_or("uint64_t", |r| r.ty));
                Ok(Expr { kind: ExprKind::Builtin(Builtin::Int(IntBuiltin::Ureg(n))), ty, span })
            }
            _ => self.fail_with(
                Tag::D_REGS_IDX,
                key.span,
                format!("index {n} is out of range for array {name}"),
                Some(format!("indexes are R_R15 (0) to R_TRAPNO ({})", UREGS - 1)),
            ),
        }
    }

    /// The element `name[keys]`. `None` when the name is a typed scalar, which is indexed as a
    /// pointer.
    fn element(
        &mut self,
        scope: Scope,
        name: &str,
        keys: &[ast::Expr],
        create: bool,
        span: Span,
    ) -> CheckResult<Option<(VarId, Vec<Expr>)>> {
        if scope == Scope::Global {
            self.scope_alone(name, span)?;
        }
        if scope == Scope::Global && create {
            self.require_variable(name, "=", span)?;
        }
        let known = self.scopes.var(scope, name);
        if let Some(id) = known
            && self.scopes.var_info(id).key.is_none()
        {
            return match self.scopes.var_info(id).ty {
                VarType::Known(..) => Ok(None),
                VarType::Poisoned => Err(ErrorReported),
                VarType::Pending => self.undefined(scope, name, span),
            };
        }
        if known.is_none() {
            if scope == Scope::Clause {
                let message = format!("local variables may not be used as associative arrays: {name}");
                return self.fail(Tag::D_ARR_LOCAL, span, message);
            }
            if !create {
                return match tables::function(name) {
                    Some(row) if scope == Scope::Global => {
                        let message = format!(
                            "{} '{name}' may not be referenced as associative array",
                            row.kind.word()
                        );
                        self.fail(Tag::D_IDENT_BADREF, span, message)
                    }
                    _ if scope == Scope::Global => self.unknown_name(name, span),
                    _ => self.undefined(scope, name, span),
                };
            }
        }
        let mut values = Vec::with_capacity(keys.len());
        let mut wrong = false;
        for (i, key) in keys.iter().enumerate() {
            let given = match &key.kind {
                ast::ExprKind::Agg(_) => Some("<DYN>"),
                _ if self.is_void_call(key) => Some("void"),
                _ => self.action_name(key).and_then(tables::function).map(|row| row.ret),
            };
            if let Some(given) = given {
                let message =
                    format!("{given} expression may not be used as associative array index: key #{}", i + 1);
                let _: CheckResult<()> = self.fail(Tag::D_KEY_TYPE, key.span, message);
                wrong = true;
                continue;
            }
            match self.value(key) {
                Ok(value) => values.push(value),
                Err(_) => wrong = true,
            }
        }
        if wrong {
            if known.is_none() {
                self.scopes.add_var(scope, name, VarType::Poisoned, Some(Vec::new()));
            }
            return Err(ErrorReported);
        }
        let id = match known {
            Some(id) => {
                if self.scopes.var_info(id).ty == VarType::Poisoned {
                    return Err(ErrorReported);
                }
                values = self.match_key(id, values, span)?;
                id
            }
            None => {
                values = values.into_iter().map(|v| self.text_of_array(v)).collect();
                let mut columns = Vec::with_capacity(values.len());
                for (i, value) in values.iter().enumerate() {
                    columns.push(self.key_column(value, "associative array", i)?);
                }
                let types = columns.iter().map(|c| c.0).collect::<Vec<_>>();
                values = values.into_iter().zip(types).map(|(v, ty)| self.coerce_key(v, ty)).collect();
                self.scopes.add_var(scope, name, VarType::Pending, Some(columns))
            }
        };
        Ok(Some((id, values)))
    }

    /// Type and column of a key expression at its first use.
    pub(crate) fn key_column(&mut self, value: &Expr, what: &str, i: usize) -> CheckResult<(TypeId, Column)> {
        let ty = self.types.decay(value.ty);
        match self.repr(ty).filter(|_| !matches!(value.kind, ExprKind::Array { .. })) {
            Some(Repr::Str) => Ok((ty, Column::Str(StrUses::of(value.str_source())))),
            Some(Repr::Int { size, signed }) => {
                Ok((ty, Column::Int { size, signed, whole: self.is_whole(value) }))
            }
            _ if let Some(size) = self.key_size(ty) => Ok((ty, Column::Bytes { size })),
            Some(Repr::Bytes { .. }) | None => {
                let name = self.name(ty);
                let message = format!("{name} expression may not be used as {what} index: key #{}", i + 1);
                self.fail(Tag::D_KEY_TYPE, value.span, message)
            }
        }
    }

    /// Checks the key for a known array, and widens the array's columns as needed.
    fn match_key(&mut self, id: VarId, values: Vec<Expr>, span: Span) -> CheckResult<Vec<Expr>> {
        let info = self.scopes.var_info(id).clone();
        let key = info.key.clone().unwrap_or_default();
        let prefix = info.full_name();
        self.check_signature(&prefix, &key, &values, span)?;
        let values: Vec<Expr> =
            values.into_iter().zip(&key).map(|(v, (ty, _))| self.coerce_key(v, *ty)).collect();
        let joined: Vec<(TypeId, Column)> = key
            .iter()
            .zip(&values)
            .map(|((ty, column), value)| (*ty, column.join(self.column_for(value, *ty))))
            .collect();
        self.scopes.vars[id.0 as usize].key = Some(joined);
        Ok(values)
    }

    /// Compares number and types of keys with those of the first use. `prefix` is the name as
    /// printed in messages.
    pub(crate) fn check_signature(
        &mut self,
        prefix: &str,
        key: &[(TypeId, Column)],
        values: &[Expr],
        span: Span,
    ) -> CheckResult<()> {
        if key.len() != values.len() {
            let s = if values.len() == 1 { "" } else { "s" };
            let message = format!(
                "{prefix}[ ] prototype mismatch: {} key{s} passed, {} expected",
                values.len(),
                key.len()
            );
            return self.fail(Tag::D_PROTO_LEN, span, message);
        }
        for (i, ((ty, _), value)) in key.iter().zip(values).enumerate() {
            if !self.fits(*ty, value) {
                let message = format!(
                    "{prefix}[ ] key #{} is incompatible with prototype:\n\tprototype: {}\n\t      key: {}",
                    i + 1,
                    self.name(*ty),
                    self.name(value.ty)
                );
                return self.fail(Tag::D_PROTO_ARG, value.span, message);
            }
        }
        Ok(())
    }

    /// Converts a key value. String-like values become strings, and structs become the values of
    /// their members. An integer keeps its own type, because the column takes the widest, but is
    /// truncated to it, so that equal values of one type are one key in every width; that of a
    /// variable is whole.
    pub(crate) fn coerce_key(&self, value: Expr, ty: TypeId) -> Expr {
        if self.types.is_string(ty) {
            return self.to_string(value);
        }
        if let (ExprKind::Deref { addr, user }, Some(size)) = (&value.kind, self.key_size(value.ty)) {
            let padding = self.types.padding(value.ty, size).into();
            let kind = ExprKind::KeyObject { addr: addr.clone(), user: *user, size, padding };
            return Expr { kind, ..value };
        }
        if self.is_whole(&value) {
            return value;
        }
        let own = self.types.decay(value.ty);
        self.convert(value, own)
    }

    /// Size of a struct or union that may be a key. The limit is that of a variable.
    pub(crate) fn key_size(&self, ty: TypeId) -> Option<u32> {
        let size = self.types.size(ty).filter(|s| self.types.is_sou(ty) && (1..=LARGEST).contains(s))?;
        u32::try_from(size).ok()
    }

    /// The column that a key value needs at a position of type `ty`.
    pub(crate) fn column_for(&self, value: &Expr, ty: TypeId) -> Column {
        match self.repr(self.types.decay(value.ty)).or_else(|| self.repr(ty)) {
            Some(Repr::Str) => Column::Str(StrUses::of(value.str_source())),
            Some(Repr::Int { size, signed }) => Column::Int { size, signed, whole: self.is_whole(value) },
            _ if let Some(size) = self.key_size(ty) => Column::Bytes { size },
            Some(Repr::Bytes { .. }) | None => match self.types.base_kind(ty) {
                Kind::Usymaddr => Column::UserAddr(AddrForm::Symbol),
                _ => Column::KernelAddr(AddrForm::Symbol),
            },
        }
    }
}
