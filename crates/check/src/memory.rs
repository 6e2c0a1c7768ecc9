//! Actions that record raw memory: `trace()`, `print()`, `tracemem()`, and format arguments that
//! are not scalars.
//!
//! An object is recorded from its address, byte for byte. For `print()` the consumer also gets a
//! description of the bytes ([`Shape`]), because the consumer knows no types.

use std::sync::Arc;

use diagnostics::{Span, Tag};
use plane::desc::{Action, Datum, RECORD_MAX};
use plane::packet;
use plane::shape::{DEPTH, Form, Member, Shape};
use probes::ArgPart;
use syntax::ast;
use types::{BitAccess, IntClass, Kind, TypeId};

use crate::actions::Recorded;
use crate::columns::Column;
use crate::program::{
    Builtin, Expr, ExprKind, Form as PlaceForm, IntBuiltin, KeyValue, Memory, MemoryCall, Place, StmtKind,
};
use crate::session::Checker;
use crate::state::recovery::{CheckResult, ErrorReported};
use crate::tables::FunctionRow;

/// Maximum size of an object or dump in a record.
const LONGEST: u64 = 1 << 16;

impl Checker<'_> {
    /// The address of an object, whether it is in user memory, and its size if known.
    fn object_address(&self, e: &Expr) -> Option<(Expr, bool, Option<u64>)> {
        match &e.kind {
            ExprKind::Deref { addr, user } => Some(((**addr).clone(), *user, self.types.size(e.ty))),
            ExprKind::Array { addr, bytes } => {
                let user = self.types.pointee(e.ty).is_some_and(|(_, user)| user);
                Some(((**addr).clone(), user, Some(*bytes)))
            }
            _ => None,
        }
    }

    /// The type of an object. For an array, the array type and not the type of its address.
    pub(crate) fn object_type(&self, e: &Expr) -> TypeId {
        match (&e.kind, self.types.pointee(e.ty)) {
            (ExprKind::Array { bytes, .. }, Some((elem, _))) => {
                let each = self.types.size(elem).unwrap_or(1).max(1);
                self.types.array(elem, bytes / each)
            }
            _ => e.ty,
        }
    }

    /// A value as `trace()` and `print()` record it. Arrays, structs and unions are recorded as
    /// their bytes.
    fn recorded_scalar_or_object(&mut self, func: &str, e: Expr) -> CheckResult<Recorded> {
        match self.types.base_kind(e.ty) {
            Kind::Sou { .. } => {
                self.require_complete(e.ty, e.span)?;
                self.recorded_object(func, e)
            }
            Kind::Float { .. } => self.recorded_float(func, e),
            _ => {
                let value = self.rvalue(e)?;
                let value = self.text_array(value);
                match value.kind {
                    // The characters of an array whose size is not known end with a NUL.
                    ExprKind::Array { bytes: 0, .. } if self.types.is_string_like(value.ty) => {
                        let text = self.to_string(value);
                        self.recorded_value(text)
                    }
                    ExprKind::Array { .. } => self.recorded_object(func, value),
                    _ => self.recorded_value(value),
                }
            }
        }
    }

    pub(crate) fn recorded_object(&mut self, func: &str, e: Expr) -> CheckResult<Recorded> {
        let (ty, span) = (self.object_type(&e), e.span);
        let name = self.name(ty);
        let Some((addr, user, size)) = self.object_address(&e) else {
            return self.unsupported(span, format!("recording a value of type \"{name}\""));
        };
        let size = match size {
            Some(size @ 1..=LONGEST) => size as u32,
            Some(0) | None => {
                let message =
                    format!("{func}( ) may not be applied to a value of unknown size of type \"{name}\"");
                return self.fail(Tag::D_PROTO_ARG, span, message);
            }
            Some(size) => {
                let message =
                    format!("{func}( ) of {size} bytes: a record holds at most {LONGEST} of a value");
                return self.fail(Tag::D_PRINT_SIZE, span, message);
            }
        };
        Ok(Recorded {
            ty,
            column: Column::Bytes { size },
            value: KeyValue::Bytes { addr, user, len: None },
            span,
        })
    }

    /// Floating-point numbers can only be recorded, as raw bits.
    fn recorded_float(&mut self, func: &str, e: Expr) -> CheckResult<Recorded> {
        let size = self.types.size(e.ty).unwrap_or(0) as u8;
        match (self.object_address(&e), size) {
            (Some((addr, user, _)), 4 | 8) => {
                let (ty, span) = (e.ty, e.span);
                let load = ExprKind::Load { addr: Box::new(addr), size, signed: false, user };
                let value = KeyValue::Expr(Expr { kind: load, ty: TypeId::ULONG, span });
                Ok(Recorded { ty, column: Column::Int { size, signed: true, whole: false }, value, span })
            }
            _ => self.recorded_object(func, e),
        }
    }

    /// An argument of a format. A `char` array is recorded as text, a floating-point number as raw
    /// bits.
    pub(crate) fn format_value(&mut self, func: &str, e: Expr) -> CheckResult<Recorded> {
        match self.types.base_kind(e.ty) {
            Kind::Float { .. } => return self.recorded_float(func, e),
            Kind::Sou { .. } => return self.recorded_object(func, e),
            _ => {}
        }
        let value = self.rvalue(e)?;
        let value = self.text_array(value);
        match value.kind {
            ExprKind::Array { bytes: 1.., .. } if self.types.is_string_like(value.ty) => {
                self.recorded_object(func, value)
            }
            // The address of any other array, for `%p`.
            ExprKind::Array { addr, .. } if !self.types.is_string_like(value.ty) => {
                self.recorded_value(Expr { ty: value.ty, span: value.span, ..*addr })
            }
            _ => self.recorded_value(value),
        }
    }

    /// `trace(e)` and `print(e)`.
    pub(crate) fn trace(&mut self, func: &str, arg: &ast::Expr) -> CheckResult<StmtKind> {
        let prints = func == "print";
        let tag = |trace, print| if prints { print } else { trace };
        if let ast::ExprKind::Agg(_) = arg.kind {
            let message = format!("{func}( ) may not be applied to an aggregation");
            let help = prints.then(|| "did you mean `printa`?".to_string());
            return self.fail_with(tag(Tag::D_TRACE_AGG, Tag::D_PRINT_AGG), arg.span, message, help);
        }
        let recorded = if !prints && Self::recordable(arg).is_some() {
            self.recorded(arg)?
        } else {
            let value = if self.is_void_call(arg) { self.typed(arg)? } else { self.expr(arg)? };
            if self.types.is_void(value.ty) {
                let message = format!("{func}( ) may not be applied to a void expression");
                return self.fail(tag(Tag::D_TRACE_VOID, Tag::D_PRINT_VOID), arg.span, message);
            }
            if value.ty == TypeId::DYN {
                let message = format!("{func}( ) may not be applied to a dynamic expression");
                return self.fail(tag(Tag::D_TRACE_DYN, Tag::D_PRINT_DYN), arg.span, message);
            }
            self.recorded_scalar_or_object(func, value)?
        };
        let field = self.clause.layout.push(recorded.column.datum(self.cx.options.string_size()));
        let action = match prints {
            true => Action::Print(field, Arc::new(self.shape(recorded.ty, DEPTH))),
            false => Action::Trace(field),
        };
        self.act(action, &[arg.span]);
        Ok(StmtKind::Record(vec![(field, recorded.value)]))
    }

    /// The description of the bytes of a type.
    fn shape(&self, ty: TypeId, depth: u32) -> Shape {
        let types = self.types;
        let name = types.name(ty).replace(" <anonymous>", "");
        let size = types.size(ty).unwrap_or(0) as u32;
        let Some(below) = depth.checked_sub(2) else {
            return Shape { name: name.into(), size, form: Form::Int { signed: false } };
        };
        let form = match types.base_kind(ty) {
            Kind::Int(int) if int.class == IntClass::Char => Form::Char { signed: int.signed },
            Kind::Int(int) => Form::Int { signed: int.signed },
            Kind::Float { .. } => Form::Float,
            Kind::Pointer { target, .. } if types.is_function(target) => Form::FunctionPointer,
            Kind::Pointer { .. } => Form::Pointer,
            Kind::Enum { int, .. } => Form::Enum { signed: int.signed, names: types.enumerators(ty) },
            Kind::String => Form::String,
            Kind::Array { elem, .. } => Form::Array(Arc::new(self.shape(elem, below))),
            Kind::Sou { .. } => {
                let members = types.members(ty);
                Form::Sou(members.iter().map(|m| self.member_shape(m, below)).collect())
            }
            _ => Form::Int { signed: false },
        };
        Shape { name: name.into(), size, form }
    }

    fn member_shape(&self, m: &types::Member, depth: u32) -> Member {
        let shape = self.shape(m.ty, depth);
        let access = m.bits.and_then(|bits| BitAccess::of(m.bit_offset, bits));
        let (offset, bits) = match access {
            Some(a) => (a.offset, Some((a.shift, a.bits))),
            None => (m.bit_offset / 8, None),
        };
        Member { name: m.name.clone(), offset: offset as u32, bits, shape }
    }

    /// `tracemem(addr, n[, dynamic])`.
    pub(crate) fn tracemem(
        &mut self,
        row: &FunctionRow,
        args: &[ast::Expr],
        span: Span,
    ) -> CheckResult<StmtKind> {
        let func = row.name;
        let (addr, size, dynamic) = match args {
            [addr, size] => (addr, size, None),
            [addr, size, dynamic] => (addr, size, Some(dynamic)),
            [_, _, _, extra, ..] => {
                let message =
                    format!("{func}( ) prototype mismatch: {} args passed, at most 3 expected", args.len());
                return self.fail(Tag::D_TRACEMEM_ARGS, extra.span, message);
            }
            _ => return self.check_length(row, args.len(), span).map(|()| StmtKind::Record(Vec::new())),
        };
        let name = addr.span;
        let addr = self.value(addr)?;
        if !self.types.is_pointer(addr.ty) && !self.types.is_integer(addr.ty) {
            let message = format!(
                "{func}( ) argument #1 is incompatible with prototype:\n\tprototype: pointer or integer\n\t \
                 argument: {}",
                self.name(addr.ty)
            );
            return self.fail(Tag::D_TRACEMEM_ADDR, addr.span, message);
        }
        let message =
            format!("{func}( ) argument #2 must be a non-zero positive integral constant expression");
        let size = self.dump_size(func, size, Tag::D_TRACEMEM_SIZE, &message)?;
        let dynamic = match dynamic {
            None => None,
            Some(e) => {
                let value = self.value(e)?;
                let message = format!("{func}( ) argument #3 must be of scalar type");
                let value = self.scalar(value, Tag::D_TRACEMEM_DYNSIZE, e.span, &message)?;
                Some(self.convert(value, TypeId::ULONG))
            }
        };
        Ok(self.dump(name, addr, size, dynamic))
    }

    /// `pcap(skb, protocol)`. The socket buffer is a pointer to one, or an address as a number: raw
    /// arguments are numbers.
    pub(crate) fn pcap(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<StmtKind> {
        let [skb, protocol] = args else { return Err(ErrorReported) };
        let (source, span) = (skb.span, protocol.span);
        let skb = self.value(skb)?;
        if !self.is_socket_buffer(&skb) {
            let name = self.name(self.object_type(&skb));
            let message = format!(
                "{func}( ) argument #1 is incompatible with prototype:\n\tprototype: struct sk_buff *\n\t \
                 argument: {name}"
            );
            let help = "a socket buffer is args[n] of a tracepoint of packets, or (struct sk_buff *)arg0 where arg0 is \
                        its address";
            return self.fail_with(Tag::D_PCAP_ADDR, source, message, Some(help.into()));
        }
        let protocol = self.value(protocol)?;
        let message = format!(
            "{func}( ) argument #2 must be a link type from 0 to 65535, such as PCAP_IP or PCAP_ETHER"
        );
        let number = self.types.is_integer(protocol.ty);
        if !number || protocol.as_const().is_some_and(|n| !(0..=0xffff).contains(&n)) {
            return self.fail(Tag::D_PCAP_PROTO, span, message);
        }
        let (skb, protocol) = (self.convert(skb, TypeId::ULONG), self.convert(protocol, TypeId::INT));
        let time = Expr {
            kind: ExprKind::Builtin(Builtin::Int(IntBuiltin::Walltimestamp)),
            ty: TypeId::LONG,
            span: source,
        };
        let limit = self.cx.options.pcapsize.clamp(1, packet::LONGEST);
        let layout = &mut self.clause.layout;
        let at = layout.push(Datum::Int { size: 8, signed: false });
        let bytes = layout.push(Datum::Bytes { size: packet::size(limit) });
        let link = layout.push(Datum::Int { size: 4, signed: true });
        self.act(Action::Pcap { packet: bytes, protocol: link, time: at }, &[source]);
        Ok(StmtKind::Record(vec![
            (at, KeyValue::Expr(time)),
            (link, KeyValue::Expr(protocol)),
            (bytes, KeyValue::Packet(skb)),
        ]))
    }

    /// True for a pointer to a `struct sk_buff` of the kernel, a `void *`, and a number
    /// that has the size of an address.
    fn is_socket_buffer(&self, e: &Expr) -> bool {
        if matches!(e.kind, ExprKind::Array { .. } | ExprKind::Deref { .. }) {
            return false;
        }
        match self.types.pointee(e.ty) {
            Some((target, user)) => {
                let kernel = !user && self.types.base_kind(e.ty) != Kind::String;
                let named = matches!(
                    self.types.base_kind(target),
                    Kind::Sou { union: false, tag: Some(tag), .. } if &*tag == "sk_buff"
                );
                kernel && (named || self.types.is_void(target))
            }
            None => self.types.is_integer(e.ty) && self.types.size(e.ty) == Some(8),
        }
    }

    /// `printm(n, memref(addr, size))`: at most `n` bytes of the memory at `addr`. A `memref`
    /// written in the call itself needs no scratch memory.
    pub(crate) fn printm(&mut self, func: &str, args: &[ast::Expr]) -> CheckResult<StmtKind> {
        let [size, memory] = args else { return Err(ErrorReported) };
        let message =
            format!("{func}( ) argument #1 must be a non-zero positive integral constant expression");
        let size = self.dump_size(func, size, Tag::D_PRINTM_SIZE, &message)?;
        let reference = match &memory.kind {
            ast::ExprKind::Call { callee, args } => match &callee.kind {
                ast::ExprKind::Ident(name) if name.text == "memref" => Some(args),
                _ => None,
            },
            _ => None,
        };
        let Some([addr, length]) = reference.map(Vec::as_slice) else {
            return self.printm_reference(func, size, memory);
        };
        let (addr, length) = (self.value(addr)?, self.value(length)?);
        if !self.types.is_pointer(addr.ty) && !self.types.is_integer(addr.ty) {
            let message = format!(
                "memref( ) argument #1 is incompatible with prototype:\n\tprototype: pointer or integer\n\t \
                 argument: {}",
                self.name(addr.ty)
            );
            return self.fail(Tag::D_PRINTM_ADDR, addr.span, message);
        }
        let message = "memref( ) argument #2 must be of scalar type";
        let length = self.scalar(length, Tag::D_PRINTM_ADDR, memory.span, message)?;
        let length = self.convert(length, TypeId::ULONG);
        Ok(self.dump(memory.span, addr, size, Some(length)))
    }

    /// The same for a reference in a variable: an address, followed by the length.
    fn printm_reference(&mut self, func: &str, size: u32, memory: &ast::Expr) -> CheckResult<StmtKind> {
        let value = self.value(memory)?;
        let words = self.types.pointee(value.ty).is_some_and(|(to, _)| self.types.size(to) == Some(8));
        let (reference, computed) = self.bind(value);
        if !words || computed.is_some() {
            let message = format!("{func}( ) argument #2 must be a memory reference");
            let help = Some("memref(address, size)".to_string());
            return self.fail_with(Tag::D_PRINTM_ADDR, memory.span, message, help);
        }
        let word = |c: &Self, at| {
            let addr = Box::new(c.displace(reference.clone(), at, memory.span));
            let kind = ExprKind::Load { addr, size: 8, signed: false, user: false };
            Expr { kind, ty: TypeId::ULONG, span: memory.span }
        };
        let (addr, length) = (word(self, 0), word(self, 8));
        Ok(self.dump(memory.span, addr, size, Some(length)))
    }

    /// `memref(address, size)`: stores both in scratch memory.
    pub(crate) fn memref(&mut self, values: Vec<Expr>, span: Span) -> Expr {
        let ty = self.types.pointer(self.types.find("uintptr_t").unwrap_or(TypeId::ULONG));
        let stores = values.into_iter().zip([0, 8]).map(|(value, at)| (at, 8, value)).collect();
        self.stored(16, stores, ty, span)
    }

    /// An object whose parts are arguments: a copy in scratch memory.
    pub(crate) fn object_of_parts(&mut self, parts: &[ArgPart], ty: TypeId, span: Span) -> Expr {
        let value = |part: &ArgPart| {
            let kind = ExprKind::Builtin(Builtin::Int(IntBuiltin::Arg(part.from)));
            (i64::from(part.offset), part.size, Expr { kind, ty: TypeId::LONG, span })
        };
        let bytes = self.types.size(ty).unwrap_or(0);
        let inside = |part: &&ArgPart| u64::from(part.offset) + u64::from(part.size) <= bytes;
        let stores = parts.iter().filter(inside).map(value).collect();
        let pointer = self.types.user_pointer(ty);
        let addr = Box::new(self.stored(bytes, stores, pointer, span));
        Expr { kind: ExprKind::Deref { addr, user: true }, ty, span }
    }

    /// Takes scratch memory, stores values (offset, size, value) in it, and gives its address.
    fn stored(&mut self, bytes: u64, values: Vec<(i64, u8, Expr)>, ty: TypeId, span: Span) -> Expr {
        let id = self.expansion.new_bound();
        let size = self.int(i64::try_from(bytes).unwrap_or(i64::MAX), TypeId::ULONG, span);
        let allocation = ExprKind::MemoryCall { call: MemoryCall::Alloca, args: vec![size], user: false };
        let reference = Expr { kind: ExprKind::Bound(id), ty, span };
        let stores = values.into_iter().map(|(at, size, value)| {
            let addr = Box::new(self.displace(reference.clone(), at, span));
            let place = Place::Memory(Memory { addr, form: PlaceForm::Int { size, signed: false } });
            Expr { kind: ExprKind::Assign(place, Box::new(value)), ty: TypeId::ULONG, span }
        });
        let stores: Vec<Expr> = stores.collect();
        let body = stores.into_iter().rev().fold(reference, |then, store| Expr {
            kind: ExprKind::Comma(Box::new(store), Box::new(then)),
            ty,
            span,
        });
        let value = Box::new(Expr { kind: allocation, ty, span });
        Expr { kind: ExprKind::Let { id, value, body: Box::new(body) }, ty, span }
    }

    /// The size of a dump, a constant that a record can hold. It may be one of a type that a
    /// process has described.
    fn dump_size(&mut self, func: &str, size: &ast::Expr, tag: Tag, message: &str) -> CheckResult<u32> {
        let bytes = self.positive(size, tag, message)?;
        match u32::try_from(bytes) {
            Ok(bytes @ ..=RECORD_MAX) => Ok(bytes),
            _ => {
                let message = format!("{func}( ) of {bytes} bytes: a record holds at most {RECORD_MAX}");
                self.fail(tag, size.span, message)
            }
        }
    }

    /// Records memory for a hexdump. `name` is the expression of the memory.
    fn dump(&mut self, name: Span, addr: Expr, size: u32, dynamic: Option<Expr>) -> StmtKind {
        let user = self.types.pointee(addr.ty).is_some_and(|(_, user)| user);
        let addr = self.convert(addr, TypeId::VOID_PTR);
        let bytes = self.clause.layout.push(Datum::Bytes { size });
        let len =
            dynamic.map(|value| (self.clause.layout.push(Datum::Int { size: 8, signed: false }), value));
        self.act(Action::Tracemem { bytes, len: len.as_ref().map(|(field, _)| *field) }, &[name]);
        StmtKind::Record(vec![(bytes, KeyValue::Bytes { addr, user, len })])
    }
}
