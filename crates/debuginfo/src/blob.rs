//! Writes BTF. A type has a number before it has contents, because types refer to each other.

use std::collections::HashMap;

/// Kinds, as numbered in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    FuncProto = 13,
    Float = 16,
    Enum64 = 19,
}

/// Encodings of integers.
pub(crate) const SIGNED: u32 = 1;
/// See [`SIGNED`].
pub(crate) const CHAR: u32 = 2;
/// See [`SIGNED`].
pub(crate) const BOOL: u32 = 4;

/// The most members, enumerators or parameters of one type.
pub(crate) const MAX_PARTS: usize = 0xffff;

/// Names may overlap in a file: the most bytes of them in one answer. Those behind are left out.
pub(crate) const MAX_NAMES: usize = 16 << 20;

/// A member of a struct or union.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) ty: u32,
    /// Bits from the beginning.
    pub(crate) at: u32,
    /// The width of a bit-field.
    pub(crate) bits: u32,
}

/// A blob that is written.
pub(crate) struct Blob {
    types: Vec<Vec<u32>>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
}

impl Blob {
    pub(crate) fn new() -> Blob {
        Blob { types: Vec::new(), strings: vec![0], known: HashMap::new() }
    }

    /// The number of a type whose contents follow. Without contents it is a forward declaration
    /// without a name.
    pub(crate) fn reserve(&mut self) -> u32 {
        self.types.push(vec![0, (Kind::Fwd as u32) << 24, 0]);
        self.types.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Bytes of the names.
    pub(crate) fn strings_len(&self) -> usize {
        self.strings.len()
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() || self.strings.len() > MAX_NAMES {
            return 0;
        }
        if let Some(&at) = self.known.get(text) {
            return at;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().filter(|b| *b != 0));
        self.strings.push(0);
        self.known.insert(text.into(), at);
        at
    }

    fn set(
        &mut self,
        id: u32,
        name: &str,
        (kind, flag): (Kind, bool),
        parts: usize,
        last: u32,
        rest: Vec<u32>,
    ) {
        let name = self.string(name);
        let info = (u32::from(flag) << 31) | ((kind as u32) << 24) | parts.min(MAX_PARTS) as u32;
        if let Some(entry) = (id as usize).checked_sub(1).and_then(|at| self.types.get_mut(at)) {
            *entry = [&[name, info, last], rest.as_slice()].concat();
        }
    }

    /// A type that has only a name and a number: a size or another type.
    pub(crate) fn simple(&mut self, id: u32, kind: Kind, name: &str, last: u32) {
        self.set(id, name, (kind, false), 0, last, Vec::new());
    }

    pub(crate) fn int(&mut self, id: u32, name: &str, size: u32, encoding: u32) {
        let bits = size.saturating_mul(8).min(0xff);
        self.set(id, name, (Kind::Int, false), 0, size, vec![(encoding << 24) | bits]);
    }

    pub(crate) fn array(&mut self, id: u32, elem: u32, index: u32, len: u32) {
        self.set(id, "", (Kind::Array, false), 0, 0, vec![elem, index, len]);
    }

    pub(crate) fn forward(&mut self, id: u32, name: &str, union: bool) {
        self.set(id, name, (Kind::Fwd, union), 0, 0, Vec::new());
    }

    /// A struct or union. A struct with bit-fields has at most 2 MiB: members behind are left out.
    pub(crate) fn sou(&mut self, id: u32, name: &str, union: bool, size: u32, members: &[Member]) {
        const MAX_OFFSET: u32 = 1 << 24;
        let fields = members.iter().any(|m| m.bits != 0);
        let mut rest = Vec::with_capacity(members.len() * 3);
        let written = members.iter().filter(|m| !fields || m.at < MAX_OFFSET).take(MAX_PARTS);
        for m in written {
            let name = self.string(&m.name);
            rest.extend([name, m.ty, if fields { (m.bits << 24) | m.at } else { m.at }]);
        }
        let kind = if union { Kind::Union } else { Kind::Struct };
        self.set(id, name, (kind, fields), rest.len() / 3, size, rest);
    }

    pub(crate) fn enumeration(
        &mut self,
        id: u32,
        name: &str,
        size: u32,
        signed: bool,
        values: &[(String, i64)],
    ) {
        let mut rest = Vec::with_capacity(values.len() * 3);
        for (name, value) in values.iter().take(MAX_PARTS) {
            let name = self.string(name);
            rest.extend([name, *value as u32, (*value >> 32) as u32]);
        }
        self.set(id, name, (Kind::Enum64, signed), rest.len() / 3, size, rest);
    }

    pub(crate) fn prototype(&mut self, id: u32, ret: u32, params: &[(String, u32)]) {
        let mut rest = Vec::with_capacity(params.len() * 2);
        for (name, ty) in params.iter().take(MAX_PARTS) {
            let name = self.string(name);
            rest.extend([name, *ty]);
        }
        self.set(id, "", (Kind::FuncProto, false), rest.len() / 2, ret, rest);
    }

    /// The bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        let types: Vec<u8> = self.types.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        let (types_len, strings_len) = (types.len() as u32, self.strings.len() as u32);
        let mut out = Vec::with_capacity(24 + types.len() + self.strings.len());
        for word in [0x01_eb9f, 24, 0, types_len, types_len, strings_len] {
            out.extend_from_slice(&u32::to_ne_bytes(word));
        }
        out.extend(types);
        out.extend(self.strings);
        out
    }
}
