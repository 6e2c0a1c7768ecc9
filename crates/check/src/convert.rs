//! Values and conversions.
//!
//! D computes in 64 bits, and a variable holds 64 bits. The static type of a value matters only
//! when it is cast, stored in memory or recorded. Until then an expression of type `int` may have
//! more than 32 significant bits. What that means depends on where they come from ([`Range`]):
//! those of a variable are its value, whatever its type, and a constant is computed as a variable
//! with its value would be; those of other arithmetic are an overflow, and a conversion to a wider
//! type first truncates the value to its own type. Constants are converted at compile time.

use diagnostics::{Span, Tag};
use types::{Int, IntClass, Kind, TypeId};

use crate::program::{Builtin, Expr, ExprKind, IntBuiltin, Place};
use crate::session::Checker;
use crate::state::recovery::CheckResult;

/// What is known of the 64 bits of an integer expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// They are a value of its type.
    Within,
    /// They are the value of a variable, or computed with one or from constants: they may be more
    /// than its type holds, and count.
    Whole,
    /// Those beyond its type are not part of the value.
    Beyond,
}

/// The low `size` bytes of a value, extended.
pub(crate) fn truncate(value: i64, size: u8, signed: bool) -> i64 {
    arith::ext(size * 8, signed, value)
}

/// A constant index in bytes, computed as at run time.
pub(crate) fn scaled(index: i64, size: i64) -> i64 {
    arith::bin(arith::BinOp::Mul, index, size).unwrap_or_default()
}

impl Checker<'_> {
    /// Converts an object in memory to its value: scalars are loaded, arrays become pointers,
    /// structs are unchanged.
    pub(crate) fn rvalue(&mut self, e: Expr) -> CheckResult<Expr> {
        let ExprKind::Deref { addr, user } = e.kind else { return Ok(e) };
        let load = |addr, size, signed| ExprKind::Load { addr, size, signed, user };
        let (kind, ty) = match self.types.base_kind(e.ty) {
            Kind::Int(int) | Kind::Enum { int, .. } if int.size <= 8 => {
                (load(addr, int.size, int.signed), e.ty)
            }
            Kind::Pointer { target, userland } => {
                // A pointer read from user memory points into user memory.
                let ty = if user && !userland { self.types.user_pointer(target) } else { e.ty };
                (load(addr, 8, false), ty)
            }
            Kind::Array { elem, .. } => {
                let ty = if user { self.types.user_pointer(elem) } else { self.types.pointer(elem) };
                let bytes = self.types.size(e.ty).unwrap_or(0);
                (ExprKind::Array { addr, bytes }, ty)
            }
            Kind::String => (ExprKind::LoadStr { addr, user, max: None }, TypeId::STRING),
            Kind::Function { .. } => return Ok(Expr { ty: self.types.pointer(e.ty), ..*addr }),
            Kind::Float { .. } => {
                let name = self.name(e.ty);
                let message = format!(
                    "a value of type \"{name}\" can only be assigned and recorded (trace, print, printf): D has no \
                     floating-point operations"
                );
                return self.fail(Tag::D_UNSUPPORTED, e.span, message);
            }
            Kind::Sou { .. } => {
                self.require_complete(e.ty, e.span)?;
                return Ok(Expr { kind: ExprKind::Deref { addr, user }, ..e });
            }
            _ => return Ok(Expr { kind: ExprKind::Deref { addr, user }, ..e }),
        };
        Ok(Expr { kind, ty, span: e.span })
    }

    /// Reports an error for a struct or union of which only the tag is known.
    pub(crate) fn require_complete(&mut self, ty: TypeId, span: Span) -> CheckResult<()> {
        self.types.complete(ty);
        if !matches!(self.types.base_kind(ty), Kind::Sou { complete: false, .. }) {
            return Ok(());
        }
        let message = format!(
            "operator * cannot be applied to a forward declaration: no {} definition is available",
            self.name(ty)
        );
        self.require_type_not_doubtful(ty)?;
        let help = self.near_tag(ty);
        self.fail_with(Tag::D_OP_INCOMPLETE, span, message, help)
    }

    /// What is known of the bits of an expression whose type is `int`.
    fn range_of(&self, e: &Expr, int: Int) -> Range {
        if int.size >= 8 || int.class == IntClass::Bool {
            return Range::Within;
        }
        let in_variable = |place: &Place| match place {
            Place::Var(_) | Place::Elem(..) => Range::Whole,
            Place::Memory(_) | Place::Char { .. } => Range::Within,
        };
        // Of several operands.
        let any_whole = |operands: &[&Expr], otherwise: Range| {
            let whole = operands.iter().any(|x| self.range(x) == Range::Whole);
            if whole { Range::Whole } else { otherwise }
        };
        match &e.kind {
            ExprKind::Int(v) if truncate(*v, int.size, int.signed) == *v => Range::Within,
            ExprKind::Int(_) => Range::Whole,
            ExprKind::Builtin(Builtin::Int(IntBuiltin::Arg(_))) | ExprKind::KernelArg(_) => Range::Beyond,
            ExprKind::Builtin(_)
            | ExprKind::Old
            | ExprKind::Not(_)
            | ExprKind::Compare { .. }
            | ExprKind::CompareStr(..)
            | ExprKind::Logic(..)
            | ExprKind::Truth(_)
            | ExprKind::Load { .. }
            | ExprKind::Call { .. }
            | ExprKind::Delete(_) => Range::Within,
            ExprKind::Bound(id) if self.expansion.whole_bound.contains(id) => Range::Whole,
            ExprKind::Bound(_) => Range::Within,
            ExprKind::Read(place) | ExprKind::Assign(place, _) | ExprKind::Update { place, .. } => {
                in_variable(place)
            }
            ExprKind::Convert { size, signed, .. } if *size == int.size && *signed == int.signed => {
                Range::Within
            }
            ExprKind::Neg(v) | ExprKind::BitNot(v) => any_whole(&[v], Range::Beyond),
            ExprKind::Arith(_, l, r) => any_whole(&[l, r], Range::Beyond),
            ExprKind::Cond(_, a, b) => {
                let within = |x: &Expr| {
                    self.types.as_int(x.ty).is_some_and(|i| i == int) && self.range(x) == Range::Within
                };
                any_whole(&[a, b], if within(a) && within(b) { Range::Within } else { Range::Beyond })
            }
            ExprKind::Comma(_, b) | ExprKind::Let { body: b, .. } => self.range_of(b, int),
            _ => Range::Beyond,
        }
    }

    fn range(&self, e: &Expr) -> Range {
        self.types.as_int(e.ty).map_or(Range::Within, |int| self.range_of(e, int))
    }

    /// True if a record or key has to hold all 64 bits of a value, whatever the size of its type.
    pub(crate) fn is_whole(&self, e: &Expr) -> bool {
        self.range(e) == Range::Whole
    }

    fn narrow(&self, e: Expr, size: u8, signed: bool) -> Expr {
        let (ty, span) = (e.ty, e.span);
        if let ExprKind::Int(v) = e.kind {
            return Expr { kind: ExprKind::Int(truncate(v, size, signed)), ty, span };
        }
        Expr { kind: ExprKind::Convert { size, signed, value: Box::new(e) }, ty, span }
    }

    /// Converts between integers, or reinterprets an integer as a pointer or a pointer as an
    /// integer.
    pub(crate) fn convert(&self, e: Expr, to: TypeId) -> Expr {
        let span = e.span;
        let from = self.types.as_int(e.ty);
        let Some(target) = self.types.as_int(to) else {
            // To a pointer: the value in 64 bits.
            let e = match from {
                Some(int) if self.range_of(&e, int) == Range::Beyond => self.narrow(e, int.size, int.signed),
                _ => e,
            };
            return Expr { ty: to, ..e };
        };
        if target.class == IntClass::Bool {
            if from.is_some_and(|i| i.class == IntClass::Bool) {
                return Expr { ty: to, ..e };
            }
            // Bits beyond the type are not part of the value: a char of 256 is 0.
            let e = match from {
                Some(int) if self.range_of(&e, int) == Range::Beyond => self.narrow(e, int.size, int.signed),
                _ => e,
            };
            return match e.kind {
                ExprKind::Int(v) => self.int(i64::from(v != 0), to, span),
                _ => Expr { kind: ExprKind::Truth(Box::new(e)), ty: to, span },
            };
        }
        let from = from.unwrap_or(Int { size: 8, signed: false, class: IntClass::Plain });
        let mut e = e;
        let range = self.range_of(&e, from);
        if target.size > from.size {
            if range == Range::Beyond {
                e = self.narrow(e, from.size, from.signed);
            }
            if target.size < 8 && (from.signed && !target.signed || range == Range::Whole) {
                e = self.narrow(e, target.size, target.signed);
            }
        } else if target.size < 8 {
            let same = target.size == from.size && target.signed == from.signed;
            if !(same && range == Range::Within) {
                e = self.narrow(e, target.size, target.signed);
            }
        }
        Expr { ty: to, ..e }
    }

    /// Converts to a string what D accepts as one: a string, `char *`, `char []`, or the constant
    /// 0.
    pub(crate) fn to_string(&self, e: Expr) -> Expr {
        let span = e.span;
        if self.types.is_string(e.ty) {
            return e;
        }
        if e.as_const() == Some(0) {
            return Expr { kind: ExprKind::Null, ty: TypeId::STRING, span };
        }
        self.load_string(e, span)
    }

    /// The string at an address. An array is read up to its size, because its last byte need not be
    /// NUL.
    pub(crate) fn load_string(&self, e: Expr, span: Span) -> Expr {
        let e = match self.characters(e) {
            Ok(text) => return Expr { span, ..text },
            Err(e) => e,
        };
        let user = self.types.pointee(e.ty).is_some_and(|(_, user)| user);
        let max = e.array_bytes().filter(|b| *b < u64::from(self.cx.options.string_size()));
        let max = max.map(|b| Box::new(self.int(b as i64, TypeId::LONG, span)));
        let addr = Box::new(self.convert(e, TypeId::ULONG));
        Expr { kind: ExprKind::LoadStr { addr, user, max }, ty: TypeId::STRING, span }
    }

    /// The string from which an array or pointer to characters was made. `Err` is the unchanged
    /// value.
    pub(crate) fn characters(&self, e: Expr) -> Result<Expr, Expr> {
        let (ty, span) = (e.ty, e.span);
        match e.kind {
            ExprKind::StrAddr(text) => Ok(*text),
            ExprKind::Array { addr, bytes } => self.characters(*addr).map_err(|addr| Expr {
                kind: ExprKind::Array { addr: Box::new(addr), bytes },
                ty,
                span,
            }),
            ExprKind::Let { id, value, body } => {
                let with = |kind: Box<Expr>| ExprKind::Let { id, value, body: kind };
                match self.characters(*body) {
                    Ok(text) => Ok(Expr { kind: with(Box::new(text)), ty: TypeId::STRING, span }),
                    Err(body) => Err(Expr { kind: with(Box::new(body)), ty, span }),
                }
            }
            kind => Err(Expr { kind, ty, span }),
        }
    }

    /// An array made from a string's characters, as that string. Any other value is unchanged.
    pub(crate) fn text_array(&self, e: Expr) -> Expr {
        match e.kind {
            ExprKind::Array { .. } => self.characters(e).unwrap_or_else(|e| e),
            _ => e,
        }
    }

    /// An array of characters as a string, for recording, as a key, or as a variable's first value.
    /// Pointers are unchanged.
    pub(crate) fn text_of_array(&self, e: Expr) -> Expr {
        if matches!(e.kind, ExprKind::Array { .. }) && self.types.is_string_like(e.ty) {
            return self.to_string(e);
        }
        e
    }

    /// True if an argument, key or assigned value fits a type.
    pub(crate) fn fits(&self, to: TypeId, e: &Expr) -> bool {
        let zero = e.as_const() == Some(0);
        if self.types.is_pointer(to) && self.types.is_integer(e.ty) {
            return zero;
        }
        if self.types.is_string(to) && zero {
            return true;
        }
        self.types.assignable(to, e.ty)
    }

    /// A value that [`Checker::fits`] the type of a variable, as the variable holds it: an integer
    /// with all its bits, but for a `bool`, which is 0 or 1.
    pub(crate) fn held(&self, e: Expr, ty: TypeId) -> Expr {
        match self.types.as_int(ty) {
            Some(int) if int.class != IntClass::Bool && self.types.is_integer(e.ty) => Expr { ty, ..e },
            _ => self.coerce(e, ty),
        }
    }

    /// A value that [`Checker::fits`] the type of an inline or of its parameter: what is computed
    /// of variables keeps their 64 bits, as a variable would.
    pub(crate) fn taken(&self, e: Expr, ty: TypeId) -> Expr {
        if self.is_whole(&e) { self.held(e, ty) } else { self.coerce(e, ty) }
    }

    /// Converts a value that [`Checker::fits`] a type.
    pub(crate) fn coerce(&self, e: Expr, to: TypeId) -> Expr {
        if self.types.is_string(to) { self.to_string(e) } else { self.convert(e, to) }
    }

    /// Requires a scalar: an integer or a pointer. An array is not a scalar, though its address is
    /// a pointer.
    pub(crate) fn scalar(&mut self, e: Expr, tag: Tag, span: Span, message: &str) -> CheckResult<Expr> {
        let array = matches!(e.kind, ExprKind::Array { .. });
        if !array && (self.types.is_integer(e.ty) || self.types.is_pointer(e.ty)) {
            Ok(e)
        } else {
            self.fail(tag, span, message)
        }
    }
}
