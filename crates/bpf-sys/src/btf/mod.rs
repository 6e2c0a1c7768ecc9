//! Writing BTF: the types that our own programs and maps declare.
//!
//! The kernel needs BTF for three things: global functions (checked once only when there is
//! func_info), task storage (its value must be a struct), and source lines in the verifier's log. A
//! type gets its number when it is appended, and equal types are stored once, so nothing is left to
//! resolve at the end. The `types` crate reads the kernel's BTF.

use crate::{BtfObject, SysError, btf_load};
use std::collections::HashMap;

/// A type of a [`Builder`], by its number in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

impl TypeId {
    /// `void`.
    pub const VOID: TypeId = TypeId(0);
}

/// Offset of a string in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StrOff(pub u32);

/// The linkage of a function or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Linkage {
    /// Verified with its caller.
    Static = 0,
    /// Verified on its own, once, for any arguments of the declared types.
    Global = 1,
}

/// Kinds of types (`BTF_KIND_*`).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
}

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: u32 = 24;

/// Builds a BTF object from types and strings.
#[derive(Debug)]
pub struct Builder {
    types: Vec<u32>,
    count: u32,
    strings: Vec<u8>,
    string_at: HashMap<Vec<u8>, StrOff>,
    type_at: HashMap<Vec<u32>, TypeId>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            types: Vec::new(),
            count: 0,
            strings: vec![0],
            string_at: HashMap::from([(Vec::new(), StrOff(0))]),
            type_at: HashMap::new(),
        }
    }
}

impl Builder {
    /// An empty object.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// A string, stored once. It ends at its first NUL.
    pub fn string(&mut self, text: &str) -> StrOff {
        let bytes = text.split('\0').next().unwrap_or("").as_bytes();
        if let Some(at) = self.string_at.get(bytes) {
            return *at;
        }
        let at = StrOff(self.strings.len() as u32);
        self.strings.extend_from_slice(bytes);
        self.strings.push(0);
        self.string_at.insert(bytes.to_vec(), at);
        at
    }

    fn push(&mut self, name: &str, kind: u32, vlen: usize, size_or_type: u32, rest: &[u32]) -> TypeId {
        let name = if name.is_empty() { 0 } else { self.string(&identifier(name)).0 };
        let mut words = vec![name, kind << 24 | vlen as u32, size_or_type];
        words.extend_from_slice(rest);
        if let Some(id) = self.type_at.get(&words) {
            return *id;
        }
        self.count += 1;
        let id = TypeId(self.count);
        self.types.extend_from_slice(&words);
        self.type_at.insert(words, id);
        id
    }

    /// An integer of 1, 2, 4, 8 or 16 bytes.
    pub fn int(&mut self, name: &str, bytes: u32, signed: bool) -> TypeId {
        let encoding = (u32::from(signed) << 24) | (bytes * 8);
        self.push(name, kind::INT, 0, bytes, &[encoding])
    }

    /// `unsigned long long`, the word of the data plane.
    pub fn u64(&mut self) -> TypeId {
        self.int("u64", 8, false)
    }

    /// `int`.
    pub fn i32(&mut self) -> TypeId {
        self.int("int", 4, true)
    }

    /// A pointer.
    pub fn ptr(&mut self, to: TypeId) -> TypeId {
        self.push("", kind::PTR, 0, to.0, &[])
    }

    /// An array.
    pub fn array(&mut self, of: TypeId, count: u32) -> TypeId {
        let index = self.int("unsigned int", 4, false);
        self.push("", kind::ARRAY, 0, 0, &[of.0, index.0, count])
    }

    /// A struct of `size` bytes; members are (name, type, byte offset).
    pub fn structure(&mut self, name: &str, size: u32, members: &[(&str, TypeId, u32)]) -> TypeId {
        let mut rest = Vec::with_capacity(members.len() * 3);
        for (name, ty, offset) in members {
            let name = self.string(&identifier(name));
            rest.extend([name.0, ty.0, offset * 8]);
        }
        self.push(name, kind::STRUCT, members.len(), size, &rest)
    }

    /// A struct whose only member is an array of `words` 64-bit words: the value type of our maps.
    pub fn words(&mut self, name: &str, words: u32) -> TypeId {
        let word = self.u64();
        let array = self.array(word, words);
        self.structure(name, words * 8, &[("word", array, 0)])
    }

    /// A forward declaration of a struct.
    pub fn forward(&mut self, name: &str) -> TypeId {
        self.push(name, kind::FWD, 0, 0, &[])
    }

    /// A typedef.
    pub fn typedef(&mut self, name: &str, of: TypeId) -> TypeId {
        self.push(name, kind::TYPEDEF, 0, of.0, &[])
    }

    /// The type of a function; parameters are (name, type).
    pub fn func_proto(&mut self, result: TypeId, params: &[(&str, TypeId)]) -> TypeId {
        let mut rest = Vec::with_capacity(params.len() * 2);
        for (name, ty) in params {
            let name = self.string(&identifier(name));
            rest.extend([name.0, ty.0]);
        }
        self.push("", kind::FUNC_PROTO, params.len(), result.0, &rest)
    }

    /// A function.
    pub fn func(&mut self, name: &str, proto: TypeId, linkage: Linkage) -> TypeId {
        self.push(name, kind::FUNC, linkage as usize, proto.0, &[])
    }

    /// A variable.
    pub fn var(&mut self, name: &str, ty: TypeId, linkage: Linkage) -> TypeId {
        self.push(name, kind::VAR, 0, ty.0, &[linkage as u32])
    }

    /// A section of variables: (variable, offset, size).
    pub fn datasec(&mut self, name: &str, size: u32, vars: &[(TypeId, u32, u32)]) -> TypeId {
        let rest: Vec<u32> = vars.iter().flat_map(|(var, offset, size)| [var.0, *offset, *size]).collect();
        self.push(name, kind::DATASEC, vars.len(), size, &rest)
    }

    /// The object's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let type_len = self.types.len() as u32 * 4;
        let mut out = Vec::with_capacity(HEADER as usize + type_len as usize + self.strings.len());
        out.extend(MAGIC.to_ne_bytes());
        out.extend([VERSION, 0]);
        for word in [HEADER, 0, type_len, type_len, self.strings.len() as u32] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(self.types.iter().flat_map(|w| w.to_ne_bytes()));
        out.extend_from_slice(&self.strings);
        out
    }

    /// Loads the object into the kernel.
    pub fn load(&self) -> Result<BtfObject, SysError> {
        btf_load(&self.bytes())
    }
}

/// Makes a name a C identifier, as the kernel requires.
fn identifier(name: &str) -> String {
    const KERNEL_SYMBOL_LIMIT: usize = 120;
    let mut out: String = name
        .chars()
        .take(KERNEL_SYMBOL_LIMIT)
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::btf::{Btf, BtfKind};

    #[test]
    fn equal_types_and_strings_are_stored_once() {
        let mut b = Builder::new();
        assert_eq!(b.u64(), b.u64());
        let u64 = b.u64();
        let (p, q) = (b.ptr(u64), b.ptr(u64));
        assert_eq!(p, q);
        assert_eq!(b.string("x y"), b.string("x y"));
        assert_eq!(b.string(""), StrOff(0));
    }

    #[test]
    fn the_reader_parses_what_the_builder_wrote() {
        let mut b = Builder::new();
        let int = b.i32();
        let word = b.u64();
        b.words("many", 12);
        b.typedef("alias", int);
        b.forward("later");
        b.var("v", int, Linkage::Global);
        let proto = b.func_proto(int, &[("a", word), ("b", word)]);
        let f = b.func("clause 0", proto, Linkage::Global);
        let read = Btf::parse(b.bytes(), None).unwrap();
        assert_eq!(read.find(&[BtfKind::Func], "clause_0"), Some(f.0));
        assert!(read.find(&[BtfKind::Typedef], "alias").is_some());
    }

    #[test]
    fn the_kernel_accepts_every_kind_of_type() {
        let mut b = Builder::new();
        let int = b.i32();
        let word = b.u64();
        let many = b.words("many", 12);
        let fwd = b.forward("later");
        b.ptr(fwd);
        b.typedef("alias", many);
        let var = b.var("v", int, Linkage::Global);
        b.datasec("data", 4, &[(var, 0, 4)]);
        let proto = b.func_proto(int, &[("a", word)]);
        b.func("f", proto, Linkage::Static);
        match b.load() {
            Ok(_) => {}
            Err(e) if e.is_permission() => testing::skipped!("{e}"),
            Err(e) => panic!("{e}"),
        }
    }
}
