//! Assignable places in memory: variables that are structs, unions or arrays, their members and
//! elements, and the targets of pointers to D memory.
//!
//! Every such place is an address. If known, it names the variable (or the element of an
//! associative array) that contains it. Whether a pointer refers to writable memory is known only
//! at run time. But addresses that come from the kernel and not from a variable of the program are
//! rejected here, as in the original.

use diagnostics::{Span, Tag};
use syntax::ast::{self, BinaryOp};
use types::{Kind, TypeId};

use crate::program::{Arith, Expr, ExprKind, Form, LARGEST, Memory, Place, Repr, VarId};
use crate::session::Checker;
use crate::state::recovery::CheckResult;

/// The target of an assignment.
pub(crate) enum Target {
    /// A variable, or an element of an associative array.
    Var(Place, VarId),
    /// A scalar in memory, of this type.
    Memory(Place, TypeId),
    /// A struct, a union or a floating-point number in memory.
    Object(Expr),
}

/// The address from which an address was computed.
fn root(addr: &Expr) -> &Expr {
    match &addr.kind {
        ExprKind::Arith(_, base, _) => root(base),
        ExprKind::Array { addr, .. } | ExprKind::Convert { value: addr, .. } => root(addr),
        _ => addr,
    }
}

/// True for an address in a variable of the program.
pub(crate) fn is_in_variable(addr: &Expr) -> bool {
    matches!(root(addr).kind, ExprKind::AddrVar(_) | ExprKind::ElemAddr(..))
}

/// True for an address in an element of an associative array. Such an address is valid only for a
/// short time.
pub(crate) fn in_element(addr: &Expr) -> bool {
    matches!(root(addr).kind, ExprKind::ElemAddr(..))
}

/// False for an address that is certainly in kernel memory.
fn may_write(addr: &Expr) -> bool {
    match &root(addr).kind {
        ExprKind::AddrVar(_)
        | ExprKind::ElemAddr(..)
        | ExprKind::Read(_)
        | ExprKind::MemoryCall { .. }
        | ExprKind::CopyObject { .. }
        | ExprKind::Assign(..)
        | ExprKind::Update { .. } => true,
        ExprKind::Load { addr, user: false, .. } => may_write(addr),
        ExprKind::Cond(_, a, b) => may_write(a) && may_write(b),
        ExprKind::Comma(_, b) => may_write(b),
        _ => false,
    }
}

impl Checker<'_> {
    /// The representation of a variable of this type. Reports an error if there is none.
    pub(crate) fn storable(&mut self, ty: TypeId, span: Span) -> CheckResult<Repr> {
        if let Some(repr) = self.repr(ty) {
            return Ok(repr);
        }
        let name = self.name(ty);
        match (self.types.base_kind(ty), self.types.size(ty)) {
            (Kind::Sou { .. } | Kind::Array { .. }, Some(size)) if size > LARGEST => {
                let message = format!("variable of {size} bytes is too big: at most {LARGEST} are allowed");
                self.fail(Tag::D_DECL_ARRBIG, span, message)
            }
            // A floating-point number is kept as its bytes, as D computes with none.
            (Kind::Sou { .. } | Kind::Array { .. } | Kind::Float { .. }, Some(size)) if size > 0 => {
                Ok(Repr::Bytes { size: size as u32 })
            }
            _ => self.unsupported(span, format!("a variable of type \"{name}\"")),
        }
    }

    /// A value that is assigned, or of an assignment: a floating-point number is an object there.
    pub(crate) fn assigned(&mut self, value: &ast::Expr) -> CheckResult<Expr> {
        let value = self.expr(value)?;
        match (&value.kind, self.types.base_kind(value.ty)) {
            (ExprKind::Deref { .. }, Kind::Float { .. }) => Ok(value),
            _ => self.rvalue(value),
        }
    }

    /// The place that operator `text` changes.
    pub(crate) fn target(&mut self, target: &ast::Expr, text: &str, span: Span) -> CheckResult<Target> {
        if let Some((place, id)) = self.place(target, text, span)? {
            return Ok(Target::Var(place, id));
        }
        let (object, bits) = match &target.kind {
            ast::ExprKind::Member { base, arrow, name } => self.member(base, *arrow, name, target.span)?,
            _ => (self.expr(target)?, None),
        };
        let object = match self.character(object, text, span)? {
            Ok(place) => return Ok(Target::Memory(place, TypeId::CHAR)),
            Err(object) => object,
        };
        let ExprKind::Deref { addr, user } = object.kind else {
            let message = format!("operator {text} requires modifiable lvalue as an operand");
            return self.fail(Tag::D_OP_LVAL, span, message);
        };
        if user || !may_write(&addr) {
            let message = format!("operator {text} can only be applied to a writable variable");
            return self.fail(Tag::D_OP_WRITE, span, message);
        }
        if let Some(found) = bits {
            let Some(access) = found.bit_access() else {
                return self.unsupported(span, "a bit-field that crosses a word");
            };
            let signed = self.types.is_signed(found.ty);
            let addr = self.displace(*addr, access.offset as i64, target.span);
            let (shift, bits) = (access.shift, access.bits);
            let form = Form::Bits { size: access.size, shift, bits, signed };
            let place = Place::Memory(Memory { addr: Box::new(addr), form });
            return Ok(Target::Memory(place, found.ty));
        }
        let form = match self.types.base_kind(object.ty) {
            Kind::String => Form::Str,
            Kind::Sou { .. } | Kind::Float { .. } => {
                return Ok(Target::Object(Expr { kind: ExprKind::Deref { addr, user }, ..object }));
            }
            Kind::Array { .. } | Kind::Function { .. } => {
                let name = self.name(object.ty);
                let message = format!("operator {text} may not be applied to operand of type \"{name}\"");
                return self.fail(Tag::D_OP_ARRFUN, span, message);
            }
            _ => match self.repr(object.ty) {
                Some(Repr::Int { size, signed }) => Form::Int { size, signed },
                _ => {
                    let name = self.name(object.ty);
                    return self.unsupported(span, format!("assigning a value of type \"{name}\""));
                }
            },
        };
        Ok(Target::Memory(Place::Memory(Memory { addr, form }), object.ty))
    }

    /// The place of a character of a string: `s[n]`, `*s`, `*(s + n)`. Any other expression is
    /// returned unchanged.
    fn character(&mut self, e: Expr, text: &str, span: Span) -> CheckResult<Result<Place, Expr>> {
        let ExprKind::Call { name: "_first", args, .. } = &e.kind else { return Ok(Err(e)) };
        let [of] = &args[..] else { return Ok(Err(e)) };
        let (mut string, mut index) = (of, None);
        while let ExprKind::Call { name: "_tail", args, .. } = &string.kind
            && let [whole, from] = &args[..]
        {
            index = Some(match index {
                None => from.clone(),
                Some(more) => {
                    let sum = ExprKind::Arith(Arith::Add, Box::new(from.clone()), Box::new(more));
                    Expr { kind: sum, ty: TypeId::LONG, span }
                }
            });
            string = whole;
        }
        let index = index.unwrap_or_else(|| self.int(0, TypeId::LONG, span));
        let last = i64::from(self.cx.options.string_size()) - 1;
        if let Some(n) = index.as_const().filter(|n| !(0..=last).contains(n)) {
            let message = format!("index outside array bounds: {n}, max allowed is {last}");
            return self.fail(Tag::D_ARR_BOUNDS, index.span, message);
        }
        match &string.kind {
            ExprKind::Read(place) => {
                Ok(Ok(Place::Char { string: Box::new(place.clone()), index: Box::new(index) }))
            }
            // A string in memory is its bytes. (The result of `stringof` of a number is not a
            // place.)
            ExprKind::LoadStr { addr, user: false, max: None } if self.types.is_pointer(addr.ty) => {
                if !may_write(addr) {
                    let message = format!("operator {text} can only be applied to a writable variable");
                    return self.fail(Tag::D_OP_WRITE, span, message);
                }
                let count = i64::from(self.cx.options.string_size());
                let index = match index.as_const() {
                    Some(_) => index,
                    None => {
                        let kind = ExprKind::Bounded { index: Box::new(index), count };
                        Expr { kind, ty: TypeId::LONG, span }
                    }
                };
                let kind = ExprKind::Arith(Arith::Add, addr.clone(), Box::new(index));
                let addr = Box::new(Expr { kind, ty: TypeId::CHAR_PTR, span });
                let form = Form::Int { size: 1, signed: true };
                Ok(Ok(Place::Memory(Memory { addr, form })))
            }
            ExprKind::Builtin(_) | ExprKind::KernelArg(_) | ExprKind::FamilyProbeprov => {
                let message = format!("operator {text} can only be applied to a writable variable");
                self.fail(Tag::D_OP_WRITE, span, message)
            }
            _ => Ok(Err(e)),
        }
    }

    /// Assignment to a scalar in memory.
    pub(crate) fn assign_memory(
        &mut self,
        op: Option<BinaryOp>,
        (place, ty): (Place, TypeId),
        value: Expr,
        text: &str,
        span: Span,
    ) -> CheckResult<Expr> {
        self.reject_dynamic(&[&value], text, span)?;
        match op {
            None => self.store(place, ty, value, text, span),
            Some(op) => {
                let old = Expr { kind: ExprKind::Old, ty, span };
                self.update(place, old, op, value, text, false, span)
            }
        }
    }

    /// Assignment of a struct, a union or a floating-point number: only of the same type.
    pub(crate) fn assign_object(
        &mut self,
        op: Option<BinaryOp>,
        object: Expr,
        value: Expr,
        text: &str,
        span: Span,
    ) -> CheckResult<Expr> {
        self.reject_dynamic(&[&value], text, span)?;
        let ty = object.ty;
        if self.types.is_array(ty) {
            let name = self.name(ty);
            let message = format!("operator {text} may not be applied to operand of type \"{name}\"");
            return self.fail(Tag::D_OP_ARRFUN, span, message);
        }
        if op.is_some() || !self.fits(ty, &value) {
            return self.incompatible(&object, text, &value, span);
        }
        let size = self.types.size(ty).unwrap_or(0);
        if !(1..=LARGEST).contains(&size) {
            let message =
                format!("object of {size} bytes cannot be copied: 1 to {LARGEST} bytes are allowed");
            return self.fail(Tag::D_DECL_ARRBIG, span, message);
        }
        let size = size as u32;
        match (object.kind, value.kind) {
            (ExprKind::Deref { addr: dst, user: false }, ExprKind::Deref { addr: src, user }) => {
                let kind = ExprKind::CopyObject { dst, src, user, size };
                let addr = Expr { kind, ty: self.types.pointer(ty), span };
                Ok(Expr { kind: ExprKind::Deref { addr: Box::new(addr), user: false }, ty, span })
            }
            _ => self.unsupported(span, "a struct that is not in memory"),
        }
    }

    /// An index into an array of the program. It is checked at run time.
    pub(crate) fn bounded(&self, pointer: &Expr, size: i64, index: Expr) -> Expr {
        match pointer.array_bytes().and_then(|bytes| (bytes as i64).checked_div(size)) {
            Some(count) if is_in_variable(pointer) && index.as_const().is_none() => {
                let (ty, span) = (index.ty, index.span);
                Expr { kind: ExprKind::Bounded { index: Box::new(index), count }, ty, span }
            }
            _ => index,
        }
    }

    /// A string as a pointer to its characters.
    pub(crate) fn string_address(&self, e: Expr) -> Expr {
        let span = e.span;
        Expr { kind: ExprKind::StrAddr(Box::new(e)), ty: TypeId::CHAR_PTR, span }
    }
}
