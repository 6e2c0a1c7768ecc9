//! A blob: its sections, and its types decoded in place.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use super::asked::Ids;
use super::names::NameIndex;
use super::source::Data;

/// Type kinds, as numbered in the format.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BtfKind {
    Int = 1,
    Ptr,
    Array,
    Struct,
    Union,
    Enum,
    Fwd,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Func,
    FuncProto,
    Var,
    Datasec,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

impl BtfKind {
    pub(super) fn of(info: u32) -> Option<BtfKind> {
        use BtfKind::*;
        const KINDS: [BtfKind; 19] = [
            Int, Ptr, Array, Struct, Union, Enum, Fwd, Typedef, Volatile, Const, Restrict, Func, FuncProto,
            Var, Datasec, Float, DeclTag, TypeTag, Enum64,
        ];
        KINDS.get(((info >> 24) & 0x1f).checked_sub(1)? as usize).copied()
    }

    /// Number of bytes after the type's header.
    pub(super) fn extra(self, vlen: usize) -> usize {
        match self {
            BtfKind::Int | BtfKind::Var | BtfKind::DeclTag => 4,
            BtfKind::Array => 12,
            BtfKind::Struct | BtfKind::Union | BtfKind::Datasec | BtfKind::Enum64 => 12 * vlen,
            BtfKind::Enum | BtfKind::FuncProto => 8 * vlen,
            _ => 0,
        }
    }
}

/// Why BTF is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// The file is unreadable.
    Io(String),
    /// The blob is malformed: the problem and its byte offset.
    Malformed(&'static str, usize),
}

impl std::fmt::Display for BtfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BtfError::Io(text) => f.write_str(text),
            BtfError::Malformed(what, at) => write!(f, "malformed BTF: {what} at byte {at}"),
        }
    }
}

impl std::error::Error for BtfError {}

/// The file of a process whose types a blob has.
pub trait Origin: std::fmt::Debug + Send + Sync {
    /// Identifies the file. Types of one name are the same type only if their files are.
    fn file(&self) -> u64;

    /// The definition of a struct or union that a blob only names: `id` in this blob, otherwise
    /// what has this name.
    fn complete(&self, id: u32, union: bool, name: &str) -> Option<(Arc<Btf>, u32)>;
}

/// A BTF blob.
pub struct Btf {
    data: Data,
    origin: Option<Arc<dyn Origin>>,
    pub(super) base: Option<Arc<Btf>>,
    /// Start of the type section, in bytes from the start of the blob.
    pub(super) types: usize,
    pub(super) strings: std::ops::Range<usize>,
    pub(super) first_id: u32,
    pub(super) first_string: u32,
    /// Offset of each type, in bytes from the start of the type section.
    pub(super) offsets: Vec<u32>,
    pub(super) names: OnceLock<NameIndex>,
    pub(super) lookups: AtomicU32,
    /// The types that were looked at, if that is noted.
    pub(super) asked: Option<Ids>,
}

impl std::fmt::Debug for Btf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Btf({} types from {})", self.offsets.len(), self.first_id)
    }
}

/// A decoded type. Numbers are BTF type ids; 0 is `void`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Def<'a> {
    Int { name: &'a str, size: u32, bits: u8, bit_offset: u8, signed: bool, char: bool, bool: bool },
    Pointer(u32),
    Array { elem: u32, len: u32 },
    Sou { union: bool, name: &'a str, size: u32, members: Members<'a> },
    Enum { name: &'a str, size: u32, signed: bool, values: Values<'a> },
    Fwd { union: bool, name: &'a str },
    Typedef { name: &'a str, target: u32 },
    Volatile(u32),
    Const(u32),
    Restrict(u32),
    Func { name: &'a str, proto: u32 },
    FuncProto { ret: u32, params: Params<'a> },
    Var { name: &'a str, ty: u32 },
    Datasec { name: &'a str, vars: Vars<'a> },
    Float { name: &'a str, size: u32 },
    DeclTag,
    TypeTag { name: &'a str, target: u32 },
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfMember<'a> {
    /// Empty for an anonymous one.
    pub name: &'a str,
    /// Its type.
    pub ty: u32,
    /// Bits from the start of the struct.
    pub bit_offset: u64,
    /// Width of a bit-field.
    pub bits: Option<u8>,
}

/// A parameter; type 0 is `...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// May be empty.
    pub name: &'a str,
    /// Its type.
    pub ty: u32,
}

/// A type that is not decoded yet.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    btf: &'a Btf,
    /// Offset of the header, from the start of the blob.
    at: usize,
    pub(super) name: u32,
    pub(super) info: u32,
    pub(super) size_or_type: u32,
}

impl<'a> Raw<'a> {
    pub(super) fn kind(&self) -> Option<BtfKind> {
        BtfKind::of(self.info)
    }

    pub(super) fn vlen(&self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn flag(&self) -> bool {
        self.info >> 31 != 0
    }

    pub(super) fn name(&self) -> &'a str {
        self.btf.string(self.name).unwrap_or("")
    }

    /// A word after the header.
    pub(super) fn word(&self, index: usize) -> u32 {
        self.btf.u32(self.at + 12 + 4 * index).unwrap_or(0)
    }
}

impl Btf {
    /// Parses a blob. `base` is the blob that a split blob (a kernel module's) extends.
    pub fn parse(bytes: impl Into<Vec<u8>>, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        Self::from_data(Data::Owned(bytes.into()), base)
    }

    /// Reads and parses a file.
    pub fn open(path: &std::path::Path, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        let data = Data::open(path).map_err(|e| BtfError::Io(format!("{}: {e}", path.display())))?;
        Self::from_data(data, base)
    }

    fn from_data(data: Data, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        use BtfError::Malformed;
        let bytes = data.bytes();
        let word = |at: usize| read_u32(bytes, at).ok_or(Malformed("header cut short", at));
        match word(0)? & 0xff_ffff {
            0x01_eb9f => {}
            0x01_9feb => return Err(Malformed("foreign byte order", 0)),
            w if w & 0xffff == 0xeb9f => return Err(Malformed("unknown version", 2)),
            _ => return Err(Malformed("no BTF magic", 0)),
        }
        let header = word(4)? as usize;
        if header < 24 {
            return Err(Malformed("header too short", 4));
        }
        let section = |at: usize, what: &'static str| {
            let start = header.checked_add(word(at)? as usize).ok_or(Malformed(what, at))?;
            let end = start.checked_add(word(at + 4)? as usize).ok_or(Malformed(what, at))?;
            if end > bytes.len() { Err(Malformed(what, at)) } else { Ok(start..end) }
        };
        let types = section(8, "types beyond the end")?;
        let strings = section(16, "strings beyond the end")?;
        if types.len() > u32::MAX as usize / 2 {
            return Err(Malformed("too many types", 12));
        }
        if !strings.is_empty() && bytes.get(strings.end - 1) != Some(&0) {
            return Err(Malformed("strings not terminated", strings.end - 1));
        }
        let (first_id, first_string) = match &base {
            None => (1, 0),
            Some(base) => (
                base.end_id(),
                base.first_string
                    .checked_add(base.strings.len() as u32)
                    .ok_or(Malformed("too many strings", 20))?,
            ),
        };
        let offsets = index(bytes.get(types.clone()).unwrap_or_default(), types.start)?;
        if (first_id as usize).saturating_add(offsets.len()) > i32::MAX as usize {
            return Err(Malformed("too many types", 12));
        }
        Ok(Btf {
            types: types.start,
            strings,
            first_id,
            first_string,
            offsets,
            base,
            data,
            origin: None,
            names: OnceLock::new(),
            lookups: AtomicU32::new(0),
            asked: None,
        })
    }

    /// The blob itself, as it was given or is in its file.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// The same blob, with the types of a file that processes run: its pointers are to user memory.
    #[must_use]
    pub fn of_process(self, origin: Arc<dyn Origin>) -> Btf {
        Btf { origin: Some(origin), ..self }
    }

    /// The file of a process; `None` for a kernel's blob.
    pub fn origin(&self) -> Option<&Arc<dyn Origin>> {
        self.origin.as_ref()
    }

    /// The blob that this one extends.
    pub fn base(&self) -> Option<&Arc<Btf>> {
        self.base.as_ref()
    }

    /// The first id that is defined in this blob. Lower ids are those of its base.
    pub fn first_id(&self) -> u32 {
        self.first_id
    }

    /// One more than the last id.
    pub fn end_id(&self) -> u32 {
        self.first_id + self.offsets.len() as u32
    }

    fn u32(&self, at: usize) -> Option<u32> {
        read_u32(self.data.bytes(), at)
    }

    /// Bytes from the start of a string to the end of the section, including the NUL and what
    /// follows.
    pub(super) fn string_tail(&self, offset: u32) -> Option<&[u8]> {
        if offset < self.first_string {
            return self.base.as_ref()?.string_tail(offset);
        }
        let at = self.strings.start.checked_add((offset - self.first_string) as usize)?;
        self.data.bytes().get(at..self.strings.end)
    }

    fn string(&self, offset: u32) -> Option<&str> {
        let tail = self.string_tail(offset)?;
        let end = tail.iter().position(|b| *b == 0)?;
        std::str::from_utf8(tail.get(..end)?).ok()
    }

    pub(crate) fn raw(&self, id: u32) -> Option<Raw<'_>> {
        if id < self.first_id {
            return self.base.as_ref()?.raw(id);
        }
        let index = (id - self.first_id) as usize;
        if let Some(asked) = &self.asked {
            asked.note(index);
        }
        let at = self.types + *self.offsets.get(index)? as usize;
        self.raw_at(at)
    }

    pub(super) fn raw_at(&self, at: usize) -> Option<Raw<'_>> {
        let head = self.data.bytes().get(at..at + 12)?;
        let word = |i: usize| read_u32(head, i).unwrap_or(0);
        Some(Raw { btf: self, at, name: word(0), info: word(4), size_or_type: word(8) })
    }

    /// Ids of the types of a kind that are defined in this blob, with the offsets of their names.
    /// There are more than a hundred thousand types: nothing else of them is decoded.
    pub(super) fn names_of_kind(&self, kind: BtfKind) -> impl Iterator<Item = (u32, u32)> {
        let (bytes, start) = (self.data.bytes(), self.types);
        (self.first_id..).zip(&self.offsets).filter_map(move |(id, at)| {
            let head = bytes.get(start + *at as usize..)?.first_chunk::<8>()?;
            let [n0, n1, n2, n3, info @ ..] = *head;
            (BtfKind::of(u32::from_le_bytes(info)) == Some(kind))
                .then(|| (id, u32::from_le_bytes([n0, n1, n2, n3])))
        })
    }

    /// Decodes a type. `None` for `void` (id 0) and ids that do not exist.
    pub fn def(&self, id: u32) -> Option<Def<'_>> {
        let raw = self.raw(id)?;
        let (name, size, target) = (raw.name(), raw.size_or_type, raw.size_or_type);
        Some(match raw.kind()? {
            BtfKind::Int => {
                let word = raw.word(0);
                Def::Int {
                    name,
                    size,
                    bits: word as u8,
                    bit_offset: (word >> 16) as u8,
                    signed: (word >> 24) & 1 != 0,
                    char: (word >> 24) & 2 != 0,
                    bool: (word >> 24) & 4 != 0,
                }
            }
            BtfKind::Ptr => Def::Pointer(target),
            BtfKind::Array => Def::Array { elem: raw.word(0), len: raw.word(2) },
            kind @ (BtfKind::Struct | BtfKind::Union) => {
                Def::Sou { union: kind == BtfKind::Union, name, size, members: Members(Entries::of(raw)) }
            }
            BtfKind::Enum | BtfKind::Enum64 => {
                Def::Enum { name, size, signed: raw.flag(), values: Values(Entries::of(raw)) }
            }
            BtfKind::Fwd => Def::Fwd { union: raw.flag(), name },
            BtfKind::Typedef => Def::Typedef { name, target },
            BtfKind::Volatile => Def::Volatile(target),
            BtfKind::Const => Def::Const(target),
            BtfKind::Restrict => Def::Restrict(target),
            BtfKind::Func => Def::Func { name, proto: target },
            BtfKind::FuncProto => Def::FuncProto { ret: target, params: Params(Entries::of(raw)) },
            BtfKind::Var => Def::Var { name, ty: target },
            BtfKind::Datasec => Def::Datasec { name, vars: Vars(Entries::of(raw)) },
            BtfKind::Float => Def::Float { name, size },
            BtfKind::DeclTag => Def::DeclTag,
            BtfKind::TypeTag => Def::TypeTag { name, target },
        })
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Offsets of all types.
fn index(section: &[u8], start: usize) -> Result<Vec<u32>, BtfError> {
    use BtfError::Malformed;
    // The kernel's types have 28 bytes on average.
    let mut offsets = Vec::with_capacity(section.len() / 24);
    let mut at = 0usize;
    while at < section.len() {
        let bad = |what| Malformed(what, start + at);
        let info = read_u32(section, at + 4).ok_or(bad("type cut short"))?;
        let kind = BtfKind::of(info).ok_or(bad("unknown kind of type"))?;
        offsets.push(at as u32);
        let next = at + 12 + kind.extra((info & 0xffff) as usize);
        if next > section.len() {
            return Err(bad("type cut short"));
        }
        at = next;
    }
    offsets.shrink_to_fit();
    Ok(offsets)
}

/// Iterates over the entries after a type's header: members, values, parameters or variables.
#[derive(Clone)]
struct Entries<'a> {
    raw: Raw<'a>,
    next: usize,
}

impl<'a> Entries<'a> {
    fn of(raw: Raw<'a>) -> Self {
        Self { raw, next: 0 }
    }

    /// The words of the next entry, which has `N` words.
    fn take<const N: usize>(&mut self) -> Option<[u32; N]> {
        if self.next >= self.raw.vlen() {
            return None;
        }
        let first = self.next * N;
        self.next += 1;
        Some(std::array::from_fn(|i| self.raw.word(first + i)))
    }

    fn text(&self, name: u32) -> &'a str {
        self.raw.btf.string(name).unwrap_or("")
    }
}

macro_rules! entries {
    ($(#[$doc:meta] $name:ident => $item:ty, |$p:ident| $take:expr;)*) => {$(
        #[$doc]
        #[derive(Clone)]
        pub struct $name<'a>(Entries<'a>);

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_list().entries(self.clone()).finish()
            }
        }

        impl<'a> Iterator for $name<'a> {
            type Item = $item;
            fn next(&mut self) -> Option<Self::Item> {
                let $p = &mut self.0;
                $take
            }
        }
    )*};
}

entries! {
    /// Members of a struct or union, in order.
    Members => BtfMember<'a>, |p| member(p);
    /// Names and values of an enumeration, in order.
    Values => (&'a str, i64), |p| value(p);
    /// Parameters of a function, in order; type 0 is `...`.
    Params => Param<'a>, |p| p.take::<2>().map(|[name, ty]| Param { name: p.text(name), ty });
    /// Variables of a section: type id of the variable, offset, size.
    Vars => (u32, u32, u32), |p| p.take::<3>().map(|[var, offset, size]| (var, offset, size));
}

fn member<'a>(p: &mut Entries<'a>) -> Option<BtfMember<'a>> {
    let [name, ty, offset] = p.take::<3>()?;
    let name = p.text(name);
    if p.raw.flag() {
        let bits = (offset >> 24) as u8;
        let bit_offset = u64::from(offset & 0xff_ffff);
        return Some(BtfMember { name, ty, bit_offset, bits: (bits != 0).then_some(bits) });
    }
    // Without the flag, a bit-field is a member of an integer type narrower than its storage.
    let mut member = BtfMember { name, ty, bit_offset: u64::from(offset), bits: None };
    if let Some(Def::Int { size, bits, bit_offset, .. }) = p.raw.btf.def(ty)
        && (u32::from(bits) != size.saturating_mul(8) || bit_offset != 0)
    {
        member.bits = Some(bits);
        member.bit_offset += u64::from(bit_offset);
    }
    Some(member)
}

fn value<'a>(p: &mut Entries<'a>) -> Option<(&'a str, i64)> {
    let signed = p.raw.flag();
    if p.raw.kind() == Some(BtfKind::Enum64) {
        let [name, low, high] = p.take::<3>()?;
        return Some((p.text(name), ((u64::from(high) << 32) | u64::from(low)) as i64));
    }
    let [name, value] = p.take::<2>()?;
    let value = if signed { i64::from(value as i32) } else { i64::from(value) };
    Some((p.text(name), value))
}
