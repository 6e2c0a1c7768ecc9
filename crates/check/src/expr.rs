//! Expressions: constants, names, unary operators, members, `sizeof` and similar operators.

use arith::UnOp;
use diagnostics::{Span, Tag};
use syntax::ast::{self, IntLitType, UnaryOp};
use types::{Kind, TypeId};

use crate::objects::in_element;
use crate::program::{Arith, Builtin, Expr, ExprKind, Place, Scope, StrBuiltin, VarId};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::VarType;
use crate::tables::{self, Fact, VariableKind};
use crate::{foreign, hints};

/// Maximum nesting of expressions. Deeper nesting is certainly an error, and would overflow the
/// stack.
pub(crate) const MAX_DEPTH: u32 = 512;

impl Checker<'_> {
    /// Checks an expression and returns its value.
    pub(crate) fn value(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        let e = self.expr(e)?;
        self.rvalue(e)
    }

    /// Checks an expression. Objects in memory remain objects.
    pub(crate) fn expr(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        if self.expansion.depth >= MAX_DEPTH {
            return self.fail(Tag::D_SYNTAX, e.span, "expression is nested too deeply");
        }
        self.expansion.depth += 1;
        let out = self.expr_kind(e);
        self.expansion.depth -= 1;
        out
    }

    fn expr_kind(&mut self, e: &ast::Expr) -> CheckResult<Expr> {
        use ast::ExprKind as K;
        let span = e.span;
        match &e.kind {
            K::Error => Err(ErrorReported),
            K::Int(lit) => Ok(self.int(lit.value as i64, int_type(lit.ty()), span)),
            K::Char(value) => Ok(self.int(*value as i64, TypeId::INT, span)),
            K::Str(lit) => Ok(Expr { kind: ExprKind::Str(lit.bytes.clone()), ty: TypeId::STRING, span }),
            K::Ident(name) => self.ident(name, span),
            K::Symbol { module, name } => self.symbol(module.as_ref(), name, span),
            K::SelfVar(name) => self.scoped(Scope::Thread, name, span),
            K::ThisVar(name) => self.scoped(Scope::Clause, name, span),
            K::Agg(agg) => {
                let message = format!("aggregation @{} may not be used in an expression", agg.name.text);
                self.fail(Tag::D_OP_ACT, span, message)
            }
            K::Index { base, keys } => self.index(base, keys, span),
            K::Member { base, arrow, name } => {
                let (object, bits) = self.member(base, *arrow, name, span)?;
                match bits {
                    None => Ok(object),
                    Some(bits) => self.bit_field(object, bits),
                }
            }
            K::Call { callee, args } => self.call(callee, args, span),
            K::Unary { op, operand } => self.unary(*op, operand, span),
            K::Postfix { decrement, operand } => self.step(operand, *decrement, true, span),
            K::SizeofExpr(operand) => self.sizeof_expr(operand, span),
            K::SizeofType(ty) => {
                let ty = self.type_name(ty)?;
                self.sizeof(ty, span)
            }
            K::Stringof(operand) => {
                let value = self.typed(operand)?;
                self.stringof(value, span)
            }
            K::Offsetof { ty, member } => self.offsetof(ty, member, span),
            K::Xlate { ty, operand } => self.xlate(ty, operand, span),
            K::DefinedProbe { probe, arg } => {
                let holds = self.has_probe(probe, *arg);
                Ok(self.int(i64::from(holds), TypeId::INT, span))
            }
            K::Defined { ty, path } => Ok(self.defined(ty, path, span)),
            K::DefinedSymbol { module, name } => Ok(self.has_symbol(module.as_ref(), name, span)),
            K::Cast { ty, operand } => {
                let to = self.type_name(ty);
                if let (Ok(to), K::Symbol { module, name }) = (to, &operand.kind)
                    && let Some(addr) = self.untyped_symbol(module.as_ref(), name, operand.span)?
                {
                    let name = (module.as_ref(), name);
                    return self.symbol_as(to, addr, name, span);
                }
                let value = match to {
                    // An action has no value, not even a void one.
                    Ok(to) if !self.types.is_void(to) => self.typed(operand)?,
                    _ => self.value(operand)?,
                };
                self.cast(to?, value, span)
            }
            K::Binary { op, left, right, .. } => self.binary(*op, left, right, span),
            K::Cond { cond, then, otherwise } => self.conditional(cond, then, otherwise, span),
            K::Assign { op, target, value } => self.assign(*op, target, value, span),
            K::Comma { left, right } => {
                for side in [left, right] {
                    if self.action_name(side).is_some() {
                        return self.fail(Tag::D_OP_ACT, side.span, "operator , operands cannot be actions");
                    }
                }
                let (left, right) = (self.value(left), self.value(right));
                let (left, right) = (left?, right?);
                self.reject_dynamic(&[&left, &right], ",", span)?;
                let ty = right.ty;
                Ok(Expr { kind: ExprKind::Comma(Box::new(left), Box::new(right)), ty, span })
            }
        }
    }

    /// The action that an expression calls, if the expression is such a call.
    pub(crate) fn action_name<'e>(&self, e: &'e ast::Expr) -> Option<&'e str> {
        let ast::ExprKind::Call { callee, .. } = &e.kind else { return None };
        let ast::ExprKind::Ident(name) = &callee.kind else { return None };
        let row = tables::function(&name.text)?;
        matches!(row.kind, tables::FunctionKind::Action(_)).then_some(name.text.as_str())
    }

    fn ident(&mut self, name: &ast::Name, span: Span) -> CheckResult<Expr> {
        let word = name.text.as_str();
        self.scope_alone(word, span)?;
        if let Some(bound) = self.bound_name(word) {
            return Ok(Expr { span, ..bound.clone() });
        }
        if let Some(inline) = self.scopes.names.inlines.get(word).cloned().filter(|_| !self.is_too_new(word))
        {
            return self.use_inline(word, &inline, span);
        }
        if let Some(id) = self.scopes.var(Scope::Global, word).filter(|_| !self.is_too_new(word)) {
            if let Some(attributes) = self.pragma_attributes(word) {
                self.uses("scalar", word, attributes, span);
            }
            return self.read_var(id, span);
        }
        if let Some(row) = tables::variable(word).filter(|_| !self.is_too_new(word)) {
            self.uses_word("scalar", word, span);
            return match row.kind {
                VariableKind::Builtin(builtin) => {
                    let Some(ty) = self.types.find(row.ty) else {
                        let message =
                            format!("failed to resolve type {} of {word}: Unknown type name", row.ty);
                        let help = self.types.kernel_error();
                        let help = help.map(|e| format!("cannot read the kernel's types: {e}"));
                        return self.fail_with(Tag::D_TYPE_ERR, span, message, help);
                    };
                    let other = self.derived_builtin(builtin, ty, span);
                    if let Some(value) = other.or_else(|| self.mapped_arg(builtin, ty, span)) {
                        return Ok(value);
                    }
                    let kind = match builtin {
                        Builtin::Str(StrBuiltin::ProbeProv) if self.args.family => ExprKind::FamilyProbeprov,
                        _ => ExprKind::Builtin(builtin),
                    };
                    Ok(Expr { kind, ty, span })
                }
                VariableKind::Null => Ok(self.int(0, self.row_type(row.ty), span)),
                VariableKind::Registers | VariableKind::TypedArgs => {
                    let message = format!("associative array '{word}' may not be referenced as scalar");
                    let help = match row.kind {
                        VariableKind::TypedArgs => {
                            "arguments have numbers: args[0] is the first, and `dtrace -lv` shows their types"
                        }
                        _ => "it has an index: uregs[R_PC]",
                    };
                    self.fail_with(Tag::D_IDENT_BADREF, span, message, Some(help.into()))
                }
                VariableKind::NotOnLinux(why) => {
                    let message = format!("built-in variable '{word}' has no meaning on Linux: {why}");
                    self.fail(Tag::D_VAR_UNSUP, span, message)
                }
                VariableKind::Fact(fact) => {
                    let facts = self.cx.options.facts.read();
                    let text = |text: &str| ExprKind::Str(text.as_bytes().to_vec());
                    let value = match fact {
                        Fact::ProcessorType | Fact::FpuTypes => {
                            let fputypes = fact == Fact::FpuTypes;
                            let kind = text(if fputypes { &facts.fputypes } else { &facts.processor_type });
                            return Ok(Expr { kind, ty: TypeId::STRING, span });
                        }
                        Fact::Boottime => facts.boottime,
                        Fact::Pagesize => facts.pagesize as i64,
                        Fact::Tick => facts.tick as i64,
                        Fact::PidNamespace => i64::from(facts.pid_namespace),
                    };
                    Ok(self.int(value, self.row_type(row.ty), span))
                }
                VariableKind::CpuFact(_) | VariableKind::EnumeratorName => {
                    let message = format!("array '{word}' may not be referenced as scalar");
                    self.fail(Tag::D_IDENT_BADREF, span, message)
                }
            };
        }
        if let Some(row) = tables::function(word) {
            let message = format!("{} '{word}' may not be referenced as scalar", row.kind.word());
            let help = hints::variable(word).unwrap_or_else(|| format!("it is called: {word}( )"));
            return self.fail_with(Tag::D_IDENT_BADREF, span, message, Some(help));
        }
        // Libraries come first: the kernel's types are not read for a name that a library defines.
        if self.types.declared_enumerator(word).is_none() && self.define_from_libraries(word) {
            return self.ident(name, span);
        }
        if let Some((ty, value)) = self.types.find_enumerator(word) {
            return Ok(self.int(value, ty, span));
        }
        self.unknown_name(word, span)
    }

    /// Reports an undefined global name.
    pub(crate) fn unknown_name<T>(&mut self, word: &str, span: Span) -> CheckResult<T> {
        self.require_not_deferred(Tag::D_IDENT_UNDEF, Some(Scope::Global), word, span)?;
        self.require_not_doubtful(word)?;
        let foreign = || foreign::word(foreign::Kind::Variable, word);
        let help = self.version_error(word).or_else(|| hints::variable(word)).or_else(foreign);
        let help = help.or_else(|| self.near_name(word));
        let message = format!("failed to resolve {word}: Unknown variable name");
        self.fail_with(Tag::D_IDENT_UNDEF, span, message, help)
    }

    /// `self` and `this` are only allowed before `->` and a name.
    pub(crate) fn scope_alone(&mut self, word: &str, span: Span) -> CheckResult<()> {
        match word {
            "self" | "this" => {
                let message = format!("{word} must be followed by operator -> and the name of a variable");
                self.fail(Tag::D_OP_IDENT, span, message)
            }
            _ => Ok(()),
        }
    }

    fn scoped(&mut self, scope: Scope, name: &ast::Name, span: Span) -> CheckResult<Expr> {
        match self.scopes.var(scope, &name.text) {
            Some(id) => self.read_var(id, span),
            None => self.undefined(scope, &name.text, span),
        }
    }

    pub(crate) fn undefined<T>(&mut self, scope: Scope, name: &str, span: Span) -> CheckResult<T> {
        // As it is written: the names of a library's variables have a prefix.
        let name = name.rsplit_once('%').map_or(name, |(_, name)| name);
        self.require_not_deferred(Tag::D_VAR_UNDEF, Some(scope), name, span)?;
        self.require_not_doubtful(name)?;
        let help = self.near_var(scope, name);
        let message = format!("{}{name} has not yet been declared or assigned", scope.prefix());
        self.fail_with(Tag::D_VAR_UNDEF, span, message, help)
    }

    fn read_var(&mut self, id: VarId, span: Span) -> CheckResult<Expr> {
        let info = self.scopes.var_info(id);
        if info.key.is_some() {
            let message =
                format!("{} '{}' may not be referenced as scalar", info.kind_word(), info.full_name());
            return self.fail(Tag::D_IDENT_BADREF, span, message);
        }
        match info.ty {
            VarType::Known(ty, _) => Ok(self.read_place(Place::Var(id), id, ty, span)),
            VarType::Poisoned => Err(ErrorReported),
            VarType::Pending => {
                let (scope, name) = (info.scope, info.name.clone());
                self.undefined(scope, &name, span)
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, operand: &ast::Expr, span: Span) -> CheckResult<Expr> {
        match op {
            UnaryOp::PreInc | UnaryOp::PreDec => {
                return self.step(operand, op == UnaryOp::PreDec, false, span);
            }
            UnaryOp::AddrOf => return self.address_of(operand, span),
            UnaryOp::Deref => {}
            UnaryOp::Plus | UnaryOp::Neg | UnaryOp::BitNot | UnaryOp::Not => {
                self.create_operand(operand, op.text(), span)?;
            }
        }
        let value = match op {
            UnaryOp::Deref => self.typed(operand)?,
            _ => self.value(operand)?,
        };
        // The target of a translated pointer is the translated object.
        if let (UnaryOp::Deref, ExprKind::Xlated { translator, pointer: true, input }) = (op, &value.kind) {
            return Ok(self.translated(*translator, false, (**input).clone(), span));
        }
        self.reject_dynamic(&[&value], op.text(), span)?;
        let integer = self.types.is_integer(value.ty);
        let constant = value.as_const();
        let ty = value.ty;
        let text = op.text();
        let kind = match op {
            UnaryOp::Deref => return self.dereference(value, span),
            UnaryOp::Plus | UnaryOp::Neg if !integer => {
                let message = format!("operator {text} requires an operand of arithmetic type");
                return self.fail(Tag::D_OP_ARITH, span, message);
            }
            UnaryOp::BitNot if !integer => {
                let message = format!("operator {text} requires an operand of integral type");
                return self.fail(Tag::D_OP_INT, span, message);
            }
            UnaryOp::Plus => return Ok(Expr { span, ..value }),
            UnaryOp::Neg => match (constant, self.types.as_int(ty)) {
                // A minus and a literal are one constant: -1U is 4294967295, as in C. A value that
                // is unsigned by a cast or a name is computed in 64 bits, as at run time.
                (Some(v), Some(i)) if !i.signed && matches!(operand.kind, ast::ExprKind::Int(_)) => {
                    ExprKind::Int(crate::convert::truncate(arith::un(UnOp::Neg, v), i.size, false))
                }
                (Some(v), _) => ExprKind::Int(arith::un(UnOp::Neg, v)),
                (None, _) => ExprKind::Neg(Box::new(value)),
            },
            UnaryOp::BitNot => match constant {
                Some(v) => ExprKind::Int(arith::un(UnOp::Not, v)),
                None => ExprKind::BitNot(Box::new(value)),
            },
            _ => {
                let message = format!("operator {text} requires an operand of scalar type");
                let value = self.scalar(value, Tag::D_OP_SCALAR, span, &message)?;
                let kind = match constant {
                    Some(v) => ExprKind::Int(i64::from(v == 0)),
                    None => ExprKind::Not(Box::new(value)),
                };
                return Ok(Expr { kind, ty: TypeId::INT, span });
            }
        };
        Ok(Expr { kind, ty, span })
    }

    /// `*e`
    pub(crate) fn dereference(&mut self, value: Expr, span: Span) -> CheckResult<Expr> {
        let value = self.text_array(value);
        if self.types.is_string(value.ty) {
            let kind = ExprKind::Call { name: "_first", args: vec![value], user: false };
            return Ok(Expr { kind, ty: TypeId::CHAR, span });
        }
        let Some((target, user)) = self.types.pointee(value.ty) else {
            return self.fail(Tag::D_DEREF_NONPTR, span, "cannot dereference non-pointer type");
        };
        if self.types.is_void(target) {
            return self.fail(Tag::D_DEREF_VOID, span, "cannot dereference pointer to void");
        }
        if self.types.is_function(target) {
            return self.fail(Tag::D_DEREF_FUNC, span, "cannot dereference pointer to function");
        }
        Ok(Expr { kind: ExprKind::Deref { addr: Box::new(value), user }, ty: target, span })
    }

    /// `s + n` for a string: the rest of the string from that position.
    pub(crate) fn tail(&self, s: Expr, n: Expr, span: Span) -> Expr {
        if n.as_const() == Some(0) {
            return Expr { span, ..s };
        }
        let n = self.convert(n, TypeId::LONG);
        let kind = ExprKind::Call { name: "_tail", args: vec![s, n], user: false };
        Expr { kind, ty: TypeId::STRING, span }
    }

    fn address_of(&mut self, operand: &ast::Expr, span: Span) -> CheckResult<Expr> {
        use ast::ExprKind as K;
        let object = match &operand.kind {
            K::Symbol { module, name } => return self.symbol_address(module.as_ref(), name, span),
            K::Agg(_) => {
                return self.fail(Tag::D_ADDROF_VAR, span, "cannot take address of dynamic variable");
            }
            K::Member { base, arrow, name } => {
                let (object, bits) = self.member(base, *arrow, name, operand.span)?;
                if bits.is_some() {
                    return self.fail(Tag::D_ADDROF_BITFIELD, span, "cannot take address of bit-field");
                }
                object
            }
            _ => self.expr(operand)?,
        };
        match object.kind {
            ExprKind::Deref { addr, .. } if in_element(&addr) => {
                self.fail(Tag::D_ADDROF_VAR, span, "cannot take address of dynamic variable")
            }
            ExprKind::Deref { addr, user } => {
                let ty =
                    if user { self.types.user_pointer(object.ty) } else { self.types.pointer(object.ty) };
                Ok(Expr { ty, span, ..*addr })
            }
            ExprKind::Read(_) | ExprKind::Builtin(_) | ExprKind::KernelArg(_) | ExprKind::FamilyProbeprov => {
                self.fail(Tag::D_ADDROF_VAR, span, "cannot take address of dynamic variable")
            }
            ExprKind::Xlated { .. } => {
                self.fail(Tag::D_ADDROF_VAR, span, "cannot take address of dynamic object")
            }
            _ => self.fail(Tag::D_ADDROF_LVAL, span, "unacceptable operand for unary & operator"),
        }
    }

    /// The member as an object in memory. For a bit-field the object is the struct, and the access
    /// is returned too.
    pub(crate) fn member(
        &mut self,
        base: &ast::Expr,
        arrow: bool,
        name: &ast::Name,
        span: Span,
    ) -> CheckResult<(Expr, Option<types::ResolvedMember>)> {
        let op = if arrow { "->" } else { "." };
        let object = if arrow { self.value(base)? } else { self.expr(base)? };
        if let ExprKind::Xlated { pointer, .. } = object.kind {
            if pointer != arrow {
                return self.wrong_operator(&object, arrow, span);
            }
            return Ok((self.translated_member(object, name, span)?, None));
        }
        let object = if arrow {
            if !matches!(self.types.base_kind(object.ty), Kind::Pointer { .. } | Kind::Array { .. }) {
                return self.fail(Tag::D_OP_PTR, span, format!("operator {op} must be applied to a pointer"));
            }
            let (target, user) = self.types.pointee(object.ty).unwrap_or((TypeId::VOID, false));
            Expr { kind: ExprKind::Deref { addr: Box::new(object), user }, ty: target, span }
        } else {
            object
        };
        let type_name = self.name(object.ty);
        self.types.complete(object.ty);
        let Kind::Sou { complete, .. } = self.types.base_kind(object.ty) else {
            let message = if arrow {
                format!(
                    "operator -> cannot be applied to pointer to type \"{type_name}\"; must be applied to a \
                     struct or union pointer"
                )
            } else {
                format!(
                    "operator . cannot be applied to type \"{type_name}\"; must be applied to a struct or union"
                )
            };
            return self.fail(Tag::D_OP_SOU, span, message);
        };
        if !complete {
            let message = format!(
                "operator {op} cannot be applied to a forward declaration: no {type_name} definition is available"
            );
            self.require_type_not_doubtful(object.ty)?;
            let help = self.near_tag(object.ty);
            return self.fail_with(Tag::D_OP_INCOMPLETE, span, message, help);
        }
        let Some(found) = self.types.member(object.ty, &name.text) else {
            let has = |member: &str| self.types.member(object.ty, member).is_some();
            let help = foreign::member(&name.text, has).or_else(|| self.near_member(object.ty, &name.text));
            let message = format!("{} is not a member of {type_name}", name.text);
            return self.fail_with(Tag::D_TYPE_MEMBER, name.span, message, help);
        };
        let ExprKind::Deref { addr, user } = object.kind else {
            return self.unsupported(span, "a member of a struct that is not in memory");
        };
        if found.bits.is_some() {
            return Ok((Expr { kind: ExprKind::Deref { addr, user }, ty: object.ty, span }, Some(found)));
        }
        let addr = Box::new(self.displace(*addr, found.offset() as i64, span));
        Ok((Expr { kind: ExprKind::Deref { addr, user }, ty: found.ty, span }, None))
    }

    /// Reports `.` after a translated pointer, or `->` after a translated struct.
    fn wrong_operator<T>(&mut self, object: &Expr, arrow: bool, span: Span) -> CheckResult<T> {
        let ty = self.name(self.translated_type(object));
        if arrow {
            return self.fail(Tag::D_OP_PTR, span, "operator -> must be applied to a pointer");
        }
        let message =
            format!("operator . cannot be applied to type \"{ty}\"; must be applied to a struct or union");
        self.fail_with(Tag::D_OP_SOU, span, message, Some("did you mean `->`?".into()))
    }

    /// An address plus a number of bytes.
    pub(crate) fn displace(&self, addr: Expr, bytes: i64, span: Span) -> Expr {
        if bytes == 0 {
            return addr;
        }
        let ty = addr.ty;
        let by = Box::new(self.int(bytes, TypeId::LONG, span));
        Expr { kind: ExprKind::Arith(Arith::Add, Box::new(addr), by), ty, span }
    }

    /// Reads a bit-field: loads, shifts left, and shifts right with its sign.
    fn bit_field(&mut self, object: Expr, found: types::ResolvedMember) -> CheckResult<Expr> {
        let span = object.span;
        let (Some(access), ExprKind::Deref { addr, user }) = (found.bit_access(), object.kind) else {
            return self.unsupported(span, "a bit-field that crosses a word");
        };
        let signed = self.types.is_signed(found.ty);
        let addr = Box::new(self.displace(*addr, access.offset as i64, span));
        let load = ExprKind::Load { addr, size: access.size, signed: false, user };
        let long = |kind| Box::new(Expr { kind, ty: TypeId::LONG, span });
        let up = 64 - i64::from(access.shift) - i64::from(access.bits);
        let up = ExprKind::Arith(Arith::Shl, long(load), Box::new(self.int(up, TypeId::INT, span)));
        let down = Box::new(self.int(64 - i64::from(access.bits), TypeId::INT, span));
        let op = if signed { Arith::Ashr } else { Arith::Lshr };
        Ok(Expr { kind: ExprKind::Arith(op, long(up), down), ty: found.ty, span })
    }

    fn sizeof_expr(&mut self, operand: &ast::Expr, span: Span) -> CheckResult<Expr> {
        match &operand.kind {
            ast::ExprKind::Str(lit) => {
                let ty = self.row_type("size_t");
                return Ok(self.int(lit.bytes.len() as i64 + 1, ty, span));
            }
            ast::ExprKind::Member { base, arrow, name } => {
                if let Some(ty) = self.translated_member_type(base, &name.text) {
                    return self.sizeof(ty, span);
                }
                let (object, bits) = self.member(base, *arrow, name, operand.span)?;
                if bits.is_some() {
                    return self.fail(Tag::D_SIZEOF_BITFIELD, span, "cannot apply sizeof to a bit-field");
                }
                return self.sizeof(object.ty, span);
            }
            ast::ExprKind::Symbol { module: Some(module), name }
                if let Some(ty) = self.user_typedef(module, &name.text) =>
            {
                return self.sizeof(ty, span);
            }
            // Dynamic and void expressions have no size.
            ast::ExprKind::Agg(_) => return self.sizeof(TypeId::VOID, span),
            _ if self.is_void_call(operand) => return self.sizeof(TypeId::VOID, span),
            _ => {}
        }
        let object = self.expr(operand)?;
        self.sizeof(object.ty, span)
    }

    fn sizeof(&mut self, ty: TypeId, span: Span) -> CheckResult<Expr> {
        match self.types.size(ty) {
            Some(size) if size > 0 => {
                let ty = self.row_type("size_t");
                Ok(self.int(size as i64, ty, span))
            }
            _ => {
                self.require_type_not_doubtful(ty)?;
                let help = self.near_tag(ty);
                let message = "cannot apply sizeof to an operand of unknown size";
                self.fail_with(Tag::D_SIZEOF_TYPE, span, message, help)
            }
        }
    }

    fn offsetof(&mut self, ty: &ast::TypeName, member: &ast::Name, span: Span) -> CheckResult<Expr> {
        let ty = self.type_name(ty)?;
        if !self.types.is_sou(ty) || self.types.size(ty).is_none() {
            self.require_type_not_doubtful(ty)?;
            let help = if self.types.is_sou(ty) { self.near_tag(ty) } else { None };
            let message = "offsetof operand must be a struct or union type";
            return self.fail_with(Tag::D_OFFSETOF_TYPE, span, message, help);
        }
        let Some(found) = self.types.member(ty, &member.text) else {
            let help = self.near_member(ty, &member.text);
            let message = format!("failed to determine offset of {}: Member name not found", member.text);
            return self.fail_with(Tag::D_UNKNOWN, member.span, message, help);
        };
        if found.bits.is_some() {
            let message = format!("cannot take offset of a bit-field: {}", member.text);
            return self.fail(Tag::D_OFFSETOF_BITFIELD, span, message);
        }
        let size_t = self.row_type("size_t");
        Ok(self.int(found.offset() as i64, size_t, span))
    }

    pub(crate) fn stringof(&mut self, value: Expr, span: Span) -> CheckResult<Expr> {
        if self.types.is_string(value.ty) {
            return Ok(Expr { span, ..value });
        }
        if !self.types.is_scalar(value.ty) {
            let name = self.name(value.ty);
            let message = format!("cannot apply stringof to a value of type {name}");
            return self.fail(Tag::D_STRINGOF_TYPE, span, message);
        }
        Ok(self.load_string(value, span))
    }

    fn cast(&mut self, to: TypeId, value: Expr, span: Span) -> CheckResult<Expr> {
        // An array converts to a pointer to its elements, but not to a number.
        let array = matches!(value.kind, ExprKind::Array { .. }) && self.types.is_integer(to);
        if array || !self.types.castable(to, value.ty) {
            let from = self.object_type(&value);
            let message =
                format!("invalid cast expression: \"{}\" to \"{}\"", self.name(from), self.name(to));
            return self.fail(Tag::D_CAST_INVAL, span, message);
        }
        if self.types.is_string(to) {
            return self.stringof(value, span);
        }
        if self.types.is_void(to) || !(self.types.is_integer(to) || self.types.is_pointer(to)) {
            return Ok(Expr { ty: to, span, ..value });
        }
        let value = match value.kind {
            // An array in a cast is a pointer like any other.
            ExprKind::Array { addr, .. } => *addr,
            kind => Expr { kind, ..value },
        };
        Ok(Expr { span, ..self.convert(value, to) })
    }
}

fn int_type(ty: IntLitType) -> TypeId {
    match ty {
        IntLitType::Int => TypeId::INT,
        IntLitType::UInt => TypeId::UINT,
        IntLitType::Long => TypeId::LONG,
        IntLitType::ULong => TypeId::ULONG,
        IntLitType::LongLong => TypeId::LLONG,
        IntLitType::ULongLong => TypeId::ULLONG,
    }
}
