//! Binary operators, `?:`, and assignment.
//!
//! Typing follows `types::rules`: nothing is promoted to `int`, and the type of higher rank wins.
//! Constants are folded with the same 64-bit arithmetic as at run time, so that folding cannot
//! change a result.

use diagnostics::{Span, Tag};
use syntax::ast::{self, BinaryOp};
use types::TypeId;

use crate::objects::Target;
use crate::program::{Arith, Expr, ExprKind, Logic, Place, Relation, Repr, Scope};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::state::scopes::VarType;

fn relation(op: BinaryOp) -> Option<Relation> {
    Some(match op {
        BinaryOp::Eq => Relation::Eq,
        BinaryOp::Ne => Relation::Ne,
        BinaryOp::Lt => Relation::Lt,
        BinaryOp::Le => Relation::Le,
        BinaryOp::Gt => Relation::Gt,
        BinaryOp::Ge => Relation::Ge,
        _ => return None,
    })
}

impl Checker<'_> {
    pub(crate) fn binary(
        &mut self,
        op: BinaryOp,
        left: &ast::Expr,
        right: &ast::Expr,
        span: Span,
    ) -> CheckResult<Expr> {
        let l = self.value(left);
        if let (Ok(l), Some(relation), ast::ExprKind::Ident(name)) = (&l, relation(op), &right.kind)
            && self.types.is_enum(l.ty)
            && let Some(value) = self.types.enumerator_of(l.ty, &name.text)
        {
            if self.scopes.var(crate::program::Scope::Global, &name.text).is_some() {
                let message = format!(
                    "ambiguous use of operator {}: {} is both a {} enum tag and a global scalar",
                    op.text(),
                    name.text,
                    self.name(l.ty)
                );
                return self.fail(Tag::D_IDENT_AMBIG, right.span, message);
            }
            let r = self.int(value, l.ty, right.span);
            let l = l.clone();
            return self.compare(relation, op, l, r, span);
        }
        let r = self.value(right);
        let (l, r) = (l?, r?);
        self.reject_dynamic(&[&l, &r], op.text(), span)?;
        if let Some(relation) = relation(op) {
            return self.compare(relation, op, l, r, span);
        }
        self.compute(op, l, r, op.text(), span)
    }

    pub(crate) fn incompatible<T>(&mut self, l: &Expr, text: &str, r: &Expr, span: Span) -> CheckResult<T> {
        let message = format!(
            "operands have incompatible types: \"{}\" {text} \"{}\"",
            self.name(l.ty),
            self.name(r.ty)
        );
        self.fail(Tag::D_OP_INCOMPAT, span, message)
    }

    /// All operators except comparisons and assignments. `text` is the operator as printed in
    /// messages.
    fn compute(&mut self, op: BinaryOp, l: Expr, r: Expr, text: &str, span: Span) -> CheckResult<Expr> {
        let integers = self.types.is_integer(l.ty) && self.types.is_integer(r.ty);
        match op {
            BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Mod
                if !integers =>
            {
                let message = format!("operator {text} requires operands of integral type");
                return self.fail(Tag::D_OP_INT, span, message);
            }
            BinaryOp::Mul | BinaryOp::Div if !integers => {
                let message = format!("operator {text} requires operands of arithmetic type");
                return self.fail(Tag::D_OP_ARITH, span, message);
            }
            BinaryOp::LogAnd | BinaryOp::LogOr | BinaryOp::LogXor => return self.logic(op, l, r, span),
            BinaryOp::Div | BinaryOp::Mod if r.as_const() == Some(0) => {
                return self.fail(Tag::D_DIV_ZERO, span, "expression contains division by zero");
            }
            BinaryOp::Add | BinaryOp::Sub if !integers => return self.pointer_arithmetic(op, l, r, span),
            _ => {}
        }
        let promoted = self.types.arithmetic(l.ty, r.ty).unwrap_or(TypeId::INT);
        let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
        let ty = if shift { l.ty } else { promoted };
        let signed = self.types.is_signed(ty);
        let op = match (op, signed) {
            (BinaryOp::Add, _) => Arith::Add,
            (BinaryOp::Sub, _) => Arith::Sub,
            (BinaryOp::Mul, _) => Arith::Mul,
            (BinaryOp::Div, true) => Arith::Sdiv,
            (BinaryOp::Div, false) => Arith::Udiv,
            (BinaryOp::Mod, true) => Arith::Srem,
            (BinaryOp::Mod, false) => Arith::Urem,
            (BinaryOp::BitAnd, _) => Arith::And,
            (BinaryOp::BitOr, _) => Arith::Or,
            (BinaryOp::BitXor, _) => Arith::Xor,
            (BinaryOp::Shl, _) => Arith::Shl,
            (_, true) => Arith::Ashr,
            (_, false) => Arith::Lshr,
        };
        if let (Some(a), Some(b)) = (l.as_const(), r.as_const())
            && let Some(value) = arith::bin(op, a, b)
        {
            return Ok(self.int(value, ty, span));
        }
        Ok(Expr { kind: ExprKind::Arith(op, Box::new(l), Box::new(r)), ty, span })
    }

    fn logic(&mut self, op: BinaryOp, l: Expr, r: Expr, span: Span) -> CheckResult<Expr> {
        let message = format!("operator {} requires operands of scalar type", op.text());
        let l = self.scalar(l, Tag::D_OP_SCALAR, span, &message)?;
        let r = self.scalar(r, Tag::D_OP_SCALAR, span, &message)?;
        let logic = match op {
            BinaryOp::LogAnd => Logic::And,
            BinaryOp::LogOr => Logic::Or,
            _ => Logic::Xor,
        };
        let kind = match (l.as_const(), r.as_const()) {
            (Some(a), Some(b)) => ExprKind::Int(i64::from(match logic {
                Logic::And => a != 0 && b != 0,
                Logic::Or => a != 0 || b != 0,
                Logic::Xor => (a != 0) != (b != 0),
            })),
            _ => ExprKind::Logic(logic, Box::new(l), Box::new(r)),
        };
        Ok(Expr { kind, ty: TypeId::INT, span })
    }

    /// `p + n`, `n + p`, `p - n`, `p - q`.
    fn pointer_arithmetic(&mut self, op: BinaryOp, l: Expr, r: Expr, span: Span) -> CheckResult<Expr> {
        if self.types.is_string(l.ty) || self.types.is_string(r.ty) {
            return match (self.types.is_integer(l.ty), self.types.is_integer(r.ty)) {
                (false, true) if op == BinaryOp::Add => Ok(self.tail(l, r, span)),
                (true, false) if op == BinaryOp::Add => Ok(self.tail(r, l, span)),
                _ => self.incompatible(&l, op.text(), &r, span),
            };
        }
        // Size of the pointer's target. `void *` and function pointers have none.
        let step = |c: &Self, e: &Expr| {
            let (target, _) = c.types.pointee(e.ty)?;
            if c.types.is_void(target) || c.types.is_function(target) {
                return None;
            }
            c.types.size(target).filter(|s| *s > 0).map(|s| s as i64)
        };
        let long = TypeId::LONG;
        let (lstep, rstep) = (step(self, &l), step(self, &r));
        let (ls, rs) = (self.types.is_integer(l.ty), self.types.is_integer(r.ty));
        let opaque = |c: &Self, e: &Expr| {
            let target = c.types.pointee(e.ty).map(|(t, _)| t);
            target.is_some_and(|t| c.types.is_void(t) || c.types.is_function(t))
        };
        let mixed = opaque(self, &l) && (rs || opaque(self, &r)) || ls && opaque(self, &r);
        if mixed {
            return self.incompatible(&l, op.text(), &r, span);
        }
        let (pointer, number, size) = match (lstep, rstep) {
            (Some(size), None) if rs => (l, r, size),
            (None, Some(size)) if ls && op == BinaryOp::Add => (r, l, size),
            (Some(size), Some(_)) if op == BinaryOp::Sub && self.types.pointers_compatible(l.ty, r.ty) => {
                let (l, r) = (self.convert(l, long), self.convert(r, long));
                let bytes =
                    Expr { kind: ExprKind::Arith(Arith::Sub, Box::new(l), Box::new(r)), ty: long, span };
                let ty = self.row_type("ptrdiff_t");
                let size = Box::new(self.int(size, long, span));
                return Ok(Expr { kind: ExprKind::Arith(Arith::Sdiv, Box::new(bytes), size), ty, span });
            }
            _ => return self.incompatible(&l, op.text(), &r, span),
        };
        let ty = self.types.decay(pointer.ty);
        let by = match number.as_const() {
            Some(n) => self.int(crate::convert::scaled(n, size), long, span),
            None => {
                let number = self.convert(number, long);
                let size = Box::new(self.int(size, long, span));
                Expr { kind: ExprKind::Arith(Arith::Mul, Box::new(number), size), ty: long, span }
            }
        };
        let arith = if op == BinaryOp::Add { Arith::Add } else { Arith::Sub };
        Ok(Expr { kind: ExprKind::Arith(arith, Box::new(pointer), Box::new(by)), ty, span })
    }

    fn compare(
        &mut self,
        relation: Relation,
        op: BinaryOp,
        l: Expr,
        r: Expr,
        span: Span,
    ) -> CheckResult<Expr> {
        let t = self.types;
        let int = |kind| Ok(Expr { kind, ty: TypeId::INT, span });
        if t.is_integer(l.ty) && t.is_integer(r.ty) {
            let signed = t.arithmetic(l.ty, r.ty).is_none_or(|ty| t.is_signed(ty));
            if let (Some(a), Some(b)) = (l.as_const(), r.as_const()) {
                return int(ExprKind::Int(i64::from(arith::cmp(relation.cond(signed), a, b))));
            }
            return int(ExprKind::Compare { relation, signed, left: Box::new(l), right: Box::new(r) });
        }
        let zero = |e: &Expr| e.as_const() == Some(0);
        let stringish = |e: &Expr| t.is_string_like(e.ty) || zero(e);
        if (t.is_string(l.ty) || t.is_string(r.ty)) && stringish(&l) && stringish(&r) {
            let (l, r) = (self.to_string(l), self.to_string(r));
            return int(ExprKind::CompareStr(relation, Box::new(l), Box::new(r)));
        }
        let pointers = (zero(&l) && t.is_pointer(r.ty))
            || (zero(&r) && t.is_pointer(l.ty))
            || t.pointers_compatible(l.ty, r.ty);
        if pointers {
            return int(ExprKind::Compare { relation, signed: false, left: Box::new(l), right: Box::new(r) });
        }
        self.incompatible(&l, op.text(), &r, span)
    }

    pub(crate) fn conditional(
        &mut self,
        cond: &ast::Expr,
        then: &ast::Expr,
        otherwise: &ast::Expr,
        span: Span,
    ) -> CheckResult<Expr> {
        let c = self.value(cond)?;
        self.reject_dynamic(&[&c], "?:", cond.span)?;
        let c =
            self.scalar(c, Tag::D_OP_SCALAR, cond.span, "operator ?: expression must be of scalar type")?;
        // A constant condition selects one branch. The other branch is not even typed.
        if let Some(v) = c.as_const() {
            return self.expr(if v != 0 { then } else { otherwise });
        }
        for arm in [then, otherwise] {
            if self.action_name(arm).is_some() {
                return self.fail(Tag::D_OP_ACT, arm.span, "action cannot be used in a conditional context");
            }
        }
        let (a, b) = (self.value(then), self.value(otherwise));
        let (a, b) = (a?, b?);
        self.reject_dynamic(&[&a, &b], "?:", span)?;
        let t = self.types;
        let zero = |e: &Expr| e.as_const() == Some(0);
        let ty = if t.is_integer(a.ty) && t.is_integer(b.ty) {
            if t.compatible(a.ty, b.ty) { Some(a.ty) } else { t.arithmetic(a.ty, b.ty) }
        } else if t.is_string(a.ty) && (t.is_string_like(b.ty) || zero(&b))
            || t.is_string(b.ty) && (t.is_string_like(a.ty) || zero(&a))
        {
            Some(TypeId::STRING)
        } else if t.is_pointer(a.ty) && zero(&b) {
            Some(t.decay(a.ty))
        } else if t.is_pointer(b.ty) && zero(&a) {
            Some(t.decay(b.ty))
        } else if t.is_pointer(a.ty) && t.is_pointer(b.ty) && t.pointers_compatible(a.ty, b.ty) {
            let a_void = t.pointee(a.ty).is_some_and(|(p, _)| t.is_void(p));
            Some(t.decay(if a_void { b.ty } else { a.ty }))
        } else if t.is_void(a.ty) && t.is_void(b.ty) {
            Some(TypeId::VOID)
        } else if t.is_sou(a.ty) && t.compatible(a.ty, b.ty) {
            return self.conditional_object(c, a, b, span);
        } else {
            None
        };
        let Some(ty) = ty else {
            return self.fail(Tag::D_OP_INCOMPAT, span, "operator ?: operands must have compatible types");
        };
        let arm = |c: &Self, e: Expr| if c.types.is_string(ty) { c.to_string(e) } else { e };
        let (a, b) = (arm(self, a), arm(self, b));
        Ok(Expr { kind: ExprKind::Cond(Box::new(c), Box::new(a), Box::new(b)), ty, span })
    }

    /// A conditional expression of struct type: selects one of two addresses.
    fn conditional_object(&mut self, c: Expr, a: Expr, b: Expr, span: Span) -> CheckResult<Expr> {
        let ty = a.ty;
        match (a.kind, b.kind) {
            (ExprKind::Deref { addr: a, user }, ExprKind::Deref { addr: b, user: other })
                if user == other =>
            {
                let address = a.ty;
                let kind = ExprKind::Cond(Box::new(c), a, b);
                let addr = Box::new(Expr { kind, ty: address, span });
                Ok(Expr { kind: ExprKind::Deref { addr, user }, ty, span })
            }
            _ => self.unsupported(span, "a choice between a struct of the process and another"),
        }
    }

    pub(crate) fn assign(
        &mut self,
        op: Option<BinaryOp>,
        target: &ast::Expr,
        value: &ast::Expr,
        span: Span,
    ) -> CheckResult<Expr> {
        let text = op.map_or("=".to_string(), |op| format!("{}=", op.text()));
        let (place, id) = match self.target(target, &text, span)? {
            Target::Var(place, id) => (place, id),
            Target::Memory(place, ty) => {
                let value = self.value(value)?;
                return self.assign_memory(op, (place, ty), value, &text, span);
            }
            Target::Object(object) => {
                let value = self.assigned(value)?;
                return self.assign_object(op, object, value, &text, span);
            }
        };
        let value = self.assigned(value);
        let value = match value {
            Ok(value) => value,
            Err(wrong) => {
                self.poison(id);
                return Err(wrong);
            }
        };
        if op.is_none() && matches!(value.kind, ExprKind::Xlated { .. }) {
            return self.store_translated(place, id, value, span);
        }
        if self.reject_dynamic(&[&value], &text, span).is_err() {
            self.poison(id);
            return Err(ErrorReported);
        }
        if op.is_none()
            && let Some(kind) = self.clear_translated(place.clone(), id, &value)
        {
            return Ok(Expr { kind, ty: TypeId::INT, span });
        }
        let known = match self.scopes.var_info(id).ty {
            VarType::Known(ty, _) => Some(ty),
            VarType::Poisoned => return Err(ErrorReported),
            VarType::Pending => None,
        };
        match op {
            None => {
                let ty = match known {
                    Some(ty) => ty,
                    None => self.first_type(id, &value, span)?,
                };
                if let VarType::Known(_, Repr::Bytes { .. }) = self.scopes.var_info(id).ty {
                    let dynamic =
                        matches!(place, Place::Elem(..)) || self.scopes.var_info(id).scope == Scope::Thread;
                    if dynamic && value.as_const() == Some(0) {
                        return Ok(Expr { kind: ExprKind::Delete(place), ty: TypeId::INT, span });
                    }
                    let object = self.read_place(place, id, ty, span);
                    return self.assign_object(None, object, value, &text, span);
                }
                self.store(place, ty, value, &text, span)
            }
            Some(op) => {
                let ty = match known {
                    Some(ty) => ty,
                    None => self.count_type(id),
                };
                let old = Expr { kind: ExprKind::Old, ty, span: target.span };
                self.update(place, old, op, value, &text, false, span)
            }
        }
    }

    /// The type of a variable at its first assignment.
    fn first_type(&mut self, id: crate::program::VarId, value: &Expr, span: Span) -> CheckResult<TypeId> {
        let ty = match value.kind {
            // The type is `string`: the variable copies the characters, not their address.
            ExprKind::Array { .. } if self.types.is_string_like(value.ty) => TypeId::STRING,
            _ => self.types.decay(value.ty),
        };
        if self.types.is_void(ty) {
            self.poison(id);
            let message = "operands have incompatible types: \"<DYN>\" = \"void\"";
            return self.fail(Tag::D_OP_INCOMPAT, span, message);
        }
        match self.storable(ty, span) {
            Ok(repr) => {
                self.scopes.vars[id.0 as usize].ty = VarType::Known(ty, repr);
                Ok(ty)
            }
            Err(wrong) => {
                self.poison(id);
                Err(wrong)
            }
        }
    }

    /// The type of a variable whose first use is `++`, `--`, a compound assignment, or the operand
    /// of a unary operator.
    pub(crate) fn count_type(&mut self, id: crate::program::VarId) -> TypeId {
        let ty = self.row_type("int64_t");
        self.scopes.vars[id.0 as usize].ty =
            VarType::Known(ty, crate::program::Repr::Int { size: 8, signed: true });
        ty
    }

    pub(crate) fn poison(&mut self, id: crate::program::VarId) {
        let var = &mut self.scopes.vars[id.0 as usize];
        if var.ty == VarType::Pending {
            var.ty = VarType::Poisoned;
        }
    }

    pub(crate) fn store(
        &mut self,
        place: Place,
        ty: TypeId,
        value: Expr,
        text: &str,
        span: Span,
    ) -> CheckResult<Expr> {
        if !self.fits(ty, &value) {
            let l = Expr { kind: ExprKind::Old, ty, span };
            return self.incompatible(&l, text, &value, span);
        }
        let deletes = value.as_const() == Some(0) && matches!(place, Place::Elem(..));
        let value = match place {
            Place::Var(_) | Place::Elem(..) => self.held(value, ty),
            Place::Memory(_) | Place::Char { .. } => self.coerce(value, ty),
        };
        let kind = if deletes { ExprKind::Delete(place) } else { ExprKind::Assign(place, Box::new(value)) };
        Ok(Expr { kind, ty, span })
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn update(
        &mut self,
        place: Place,
        old: Expr,
        op: BinaryOp,
        value: Expr,
        text: &str,
        post: bool,
        span: Span,
    ) -> CheckResult<Expr> {
        let ty = old.ty;
        if self.types.is_array(ty) {
            let name = self.name(ty);
            let message = format!("operator {text} may not be applied to operand of type \"{name}\"");
            return self.fail(Tag::D_OP_ARRFUN, span, message);
        }
        let additive = matches!(op, BinaryOp::Add | BinaryOp::Sub);
        if additive && (self.types.is_string(ty) || self.types.is_string(value.ty)) {
            return self.incompatible(&old, text, &value, span);
        }
        if additive && !(self.types.is_integer(ty) && self.types.is_integer(value.ty)) {
            let sized = self.types.pointee(ty).is_some_and(|(p, _)| {
                !self.types.is_void(p) && !self.types.is_function(p) && self.types.size(p).is_some()
            });
            if !sized {
                let message = format!("operator {text} requires left-hand scalar operand of known size");
                return self.fail(Tag::D_OP_VFPTR, span, message);
            }
            if !self.types.is_integer(value.ty) {
                return self.incompatible(&old, text, &value, span);
            }
        }
        let new = self.compute(op, old, value, text, span)?;
        let new = match place {
            Place::Var(_) | Place::Elem(..) => self.held(new, ty),
            Place::Memory(_) | Place::Char { .. } => self.convert(new, ty),
        };
        let new = Box::new(new);
        Ok(Expr { kind: ExprKind::Update { place, new, post }, ty, span })
    }

    /// `++` and `--`.
    pub(crate) fn step(
        &mut self,
        operand: &ast::Expr,
        down: bool,
        post: bool,
        span: Span,
    ) -> CheckResult<Expr> {
        let text = if down { "--" } else { "++" };
        let (place, ty) = match self.target(operand, text, span)? {
            Target::Var(place, id) => match self.scopes.var_info(id).ty {
                VarType::Known(ty, _) => (place, ty),
                VarType::Poisoned => return Err(ErrorReported),
                VarType::Pending => (place, self.count_type(id)),
            },
            Target::Memory(place, ty) => (place, ty),
            Target::Object(object) => {
                let name = self.name(object.ty);
                let message = format!("operator {text} may not be applied to operand of type \"{name}\"");
                return self.fail(Tag::D_OP_SCALAR, span, message);
            }
        };
        if self.types.is_string(ty) {
            let message = format!("operator {text} requires operand of scalar type");
            return self.fail(Tag::D_OP_SCALAR, span, message);
        }
        if let Some((target, _)) = self.types.pointee(ty)
            && (self.types.is_void(target) || self.types.is_function(target))
        {
            let message = format!("operator {text} requires an operand of known size");
            return self.fail(Tag::D_OP_VFPTR, span, message);
        }
        let op = if down { BinaryOp::Sub } else { BinaryOp::Add };
        let old = Expr { kind: ExprKind::Old, ty, span: operand.span };
        let one = self.int(1, TypeId::INT, span);
        self.update(place, old, op, one, text, post, span)
    }
}
