//! Finding ids by name in one walk over a BTF object, for feature tests.

use super::{HEADER, MAGIC, kind};

/// Where the running kernel shows its BTF.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// What kind of type a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A function.
    Func,
    /// A typedef (`btf_trace_*` of a tracepoint).
    Typedef,
    /// A struct.
    Struct,
}

impl Want {
    fn kind(self) -> u32 {
        match self {
            Want::Func => kind::FUNC,
            Want::Typedef => kind::TYPEDEF,
            Want::Struct => kind::STRUCT,
        }
    }
}

/// The ids of these names in the running kernel; all `None` where it shows no BTF.
pub fn kernel(wanted: &[(&str, Want)]) -> Vec<Option<u32>> {
    match std::fs::read(KERNEL) {
        Ok(bytes) => find(&bytes, wanted),
        Err(_) => vec![None; wanted.len()],
    }
}

/// The ids of these names; `None` for what is not there or comes after something malformed.
pub fn find(bytes: &[u8], wanted: &[(&str, Want)]) -> Vec<Option<u32>> {
    let mut found = vec![None; wanted.len()];
    let _ = walk(bytes, wanted, &mut found);
    found
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(raw.try_into().ok()?))
}

fn walk(bytes: &[u8], wanted: &[(&str, Want)], found: &mut [Option<u32>]) -> Option<()> {
    if bytes.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = word(bytes, 4)?.max(HEADER) as usize;
    let section = |field| -> Option<&[u8]> {
        let start = header.checked_add(word(bytes, field)? as usize)?;
        bytes.get(start..start.checked_add(word(bytes, field + 4)? as usize)?)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let mut at = 0;
    let mut id = 1u32;
    let mut left = wanted.len();
    while at < types.len() && left > 0 {
        let (name, info) = (word(types, at)? as usize, word(types, at + 4)?);
        let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        for (slot, (text, want)) in found.iter_mut().zip(wanted) {
            if slot.is_none() && want.kind() == kind && is_string(strings, name, text) {
                *slot = Some(id);
                left -= 1;
            }
        }
        at += 12 + trailing(kind, vlen);
        id += 1;
    }
    Some(())
}

fn is_string(strings: &[u8], at: usize, text: &str) -> bool {
    strings
        .get(at..)
        .and_then(|s| s.strip_prefix(text.as_bytes()))
        .is_some_and(|rest| rest.first() == Some(&0))
}

/// Bytes after a type's three words.
fn trailing(kind: u32, vlen: usize) -> usize {
    match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => vlen * 12,
        kind::ENUM | kind::FUNC_PROTO => vlen * 8,
        _ => 0,
    }
}
