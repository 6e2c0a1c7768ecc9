//! D memory: resolving an address that is known only at run time.
//!
//! [`dif::memory`] defines the addresses. Each function here is a chain of tests, one for each
//! variable that is an object. A program has each function once. The decision that shapes it: *an
//! address becomes a number.* A global function cannot return a pointer, so it stores the pointer
//! in the scratch slot and loads it back as a number. Its caller passes the number to the kernel's
//! read helpers, which accept any. So one function serves every kind of read. Writes are made
//! inside the function, where the pointer is still typed.

use dif::memory::SCRATCH;

use super::{Firing, ThreadStorage, near, self_vars, slot_at};
use crate::mir::{Arg, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::plan::Plan;

/// The location of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectLocation {
    /// At this offset of the scratch slot.
    Slot(u32),
    /// At this offset of the value of a one-element map.
    Map(MapRef, u32),
    /// In the thread's variables, at this offset.
    Thread(ThreadStorage, u32),
}

/// A variable that is an object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The high half of the object's address.
    pub high: u32,
    /// The object's size in bytes.
    pub size: u32,
    /// The object's location.
    pub location: ObjectLocation,
}

/// Everything that has a D address.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    /// Suffix of function names: the clauses of probes and those of ERROR have different functions.
    pub name: &'static str,
    /// The variables.
    pub objects: Vec<Object>,
    /// Offset of two words in the slot for the result of a look-up.
    pub word: u32,
    /// Offset of the stage buffer, for an object that is copied to a variable.
    pub stage: u32,
    /// Offset of scratch memory.
    pub scratch: u32,
    /// Bytes of scratch memory.
    pub cap: u32,
    /// Offset of the word with the address of scratch memory; `None` where that is [`SCRATCH`].
    pub origin: Option<u32>,
}

/// The state of the firing that a look-up needs.
#[derive(Clone, Copy, Debug)]
pub struct LookupState {
    /// Number of the scratch slot.
    pub slot: V,
    /// Bytes of scratch memory that are taken.
    pub top: V,
}

/// Resolves an address of D memory to a machine address, as a number. 0 when not all of its `len`
/// bytes are D memory. The second word in the slot receives the number of bytes up to the end of
/// the object.
pub fn resolve(b: &mut Builder, plan: &Plan, space: &AddressSpace, addr: V, len: V, at: LookupState) -> V {
    let args = [addr, len, at.slot, at.top].map(Arg::Word);
    b.call_global(&format!("dt_resolve{}", space.name), &args, |b| {
        let len = b.param(1);
        let bad = b.label();
        b.br(Jmp::Gt, len, i32::MAX as u32, bad);
        let slot = slot_at(b, plan, b.param(2), bad);
        let words = b.add(slot, space.word);
        let found = |b: &mut Builder, pointer: V, left: V| {
            b.store(Size::B8, words, 8, left);
            b.store(Size::B8, words, 0, pointer);
            let number = b.load(Size::B8, words, 0);
            b.exit(number);
        };
        if space.cap > 0 {
            let other = b.label();
            let tag = b.shr(b.param(0), 48);
            b.br(Jmp::Ne, tag, (SCRATCH >> 48) as u32, other);
            let base = origin(b, space, slot);
            let off = b.sub(b.param(0), base);
            b.br(Jmp::Gt, off, space.cap, bad);
            let end = b.add(off, len);
            let top = b.param(3);
            b.br(Jmp::Gt, end, top, bad);
            let left = b.sub(top, off);
            let first = b.add(slot, space.scratch);
            let pointer = b.add(first, off);
            found(b, pointer, left);
            b.bind(other);
        }
        each(b, plan, space, slot, bad, |b, object, base, off| {
            let end = b.add(off, len);
            b.br(Jmp::Gt, end, object.size, bad);
            let size = b.imm(i64::from(object.size));
            let left = b.sub(size, off);
            let pointer = b.add(base, off);
            found(b, pointer, left);
        });
        b.bind(bad);
        b.exit(0);
    })
}

/// Stores the low bytes of `value` at an address of D memory. Returns 0 when the address is
/// invalid.
pub fn store(
    b: &mut Builder,
    plan: &Plan,
    space: &AddressSpace,
    (addr, w): (V, Size),
    value: V,
    at: LookupState,
) -> V {
    let bytes = w.bytes();
    let args = [addr, value, at.slot, at.top].map(Arg::Word);
    b.call_global(&format!("dt_store{bytes}{}", space.name), &args, |b| {
        let value = b.param(1);
        let bad = b.label();
        let slot = slot_at(b, plan, b.param(2), bad);
        if space.cap >= bytes {
            let other = b.label();
            let pointer = scratch(b, space, slot, bytes, (other, bad));
            b.store(w, pointer, 0, value);
            b.exit(1);
            b.bind(other);
        }
        each(b, plan, space, slot, bad, |b, object, base, off| {
            let Some(last) = object.size.checked_sub(bytes) else { return b.jmp(bad) };
            b.br(Jmp::Gt, off, last, bad);
            let pointer = b.add(base, off);
            b.store(w, pointer, 0, value);
            b.exit(1);
        });
        b.bind(bad);
        b.exit(0);
    })
}

/// Copies `bytes` from the stage buffer to an address of D memory. Returns 0 when the address is
/// invalid.
pub fn unstage(
    b: &mut Builder,
    plan: &Plan,
    space: &AddressSpace,
    addr: V,
    bytes: u32,
    at: LookupState,
) -> V {
    let args = [addr, at.top, at.slot, at.top].map(Arg::Word);
    b.call_global(&format!("dt_copy{bytes}{}", space.name), &args, |b| {
        let bad = b.label();
        let slot = slot_at(b, plan, b.param(2), bad);
        let stage = b.add(slot, space.stage);
        let copy = |b: &mut Builder, pointer: V| {
            let len = b.imm(i64::from(bytes));
            b.call(Helper::PROBE_READ_KERNEL, &[pointer, len, stage]);
            b.exit(1);
        };
        if space.cap >= bytes {
            let other = b.label();
            let pointer = scratch(b, space, slot, bytes, (other, bad));
            copy(b, pointer);
            b.bind(other);
        }
        each(b, plan, space, slot, bad, |b, object, base, off| {
            let Some(last) = object.size.checked_sub(bytes) else { return b.jmp(bad) };
            b.br(Jmp::Gt, off, last, bad);
            let pointer = b.add(base, off);
            copy(b, pointer);
        });
        b.bind(bad);
        b.exit(0);
    })
}

/// The address of the firing's scratch memory.
fn origin(b: &mut Builder, space: &AddressSpace, slot: V) -> V {
    match space.origin {
        Some(at) => {
            let (base, at) = near(b, slot, at, 8);
            b.load(Size::B8, base, at)
        }
        None => b.imm(SCRATCH as i64),
    }
}

/// A pointer to `bytes` bytes of scratch memory, in a function whose first parameter is the address
/// and whose fourth is the number of bytes taken. Jumps to `other` when the address is not in
/// scratch memory.
fn scratch(b: &mut Builder, space: &AddressSpace, slot: V, bytes: u32, (other, bad): (Label, Label)) -> V {
    let tag = b.shr(b.param(0), 48);
    b.br(Jmp::Ne, tag, (SCRATCH >> 48) as u32, other);
    let base = origin(b, space, slot);
    let off = b.sub(b.param(0), base);
    b.br(Jmp::Gt, off, space.cap - bytes, bad);
    let end = b.add(off, bytes);
    b.br(Jmp::Gt, end, b.param(3), bad);
    let first = b.add(slot, space.scratch);
    b.add(first, off)
}

/// Emits `found` for each variable, with the variable's base and the offset inside, which is at
/// most the variable's size. Falls through when the address belongs to no variable.
fn each(
    b: &mut Builder,
    plan: &Plan,
    space: &AddressSpace,
    slot: V,
    bad: Label,
    found: impl Fn(&mut Builder, &Object, V, V),
) {
    if space.objects.is_empty() {
        return;
    }
    let addr = b.param(0);
    let high = b.shr(addr, 32);
    let off = b.low32(addr);
    let mut firing: Option<Firing> = None;
    if space.objects.iter().any(|o| matches!(o.location, ObjectLocation::Thread(..))) {
        firing = Some(super::firing(b, plan));
    }
    let labels: Vec<Label> = space.objects.iter().map(|_| b.label()).collect();
    for (object, label) in space.objects.iter().zip(&labels) {
        b.br(Jmp::Eq, high, object.high, *label);
    }
    b.jmp(bad);
    for (object, label) in space.objects.iter().zip(labels) {
        b.bind(label);
        b.br(Jmp::Gt, off, object.size, bad);
        let base = match (object.location, &firing) {
            (ObjectLocation::Slot(at), _) => b.add(slot, at),
            (ObjectLocation::Map(map, at), _) => b.map_value(map, at),
            (ObjectLocation::Thread(home, at), Some(firing)) => {
                match self_vars(b, plan, firing, (home, true), None, bad) {
                    Some(thread) => b.add(thread.vars, at),
                    None => slot,
                }
            }
            (ObjectLocation::Thread(..), None) => slot,
        };
        found(b, object, base, off);
    }
}
