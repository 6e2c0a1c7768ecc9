//! Associative arrays: load, store, delete. The sequence word and why it is safe are in [`plane::assoc`].
//!
//! Each is a subprogram an array, `dt_load_N` and so on, with the key's address and hash and the CPU's element (for drops).
//! Where `plane::assoc` says that a reader takes the word before and after, the loads are plain: on x86-64 loads are not
//! reordered with loads. An architecture where they are needs a barrier there.

use dif::ir::VarId;
use plane::assoc::{DATA, GONE, KEYHASH, LOCKED, TIME_SHIFT, TRIES, WORD, WRITE};
use plane::control::DropKind;

use super::agg::key_hash;
use super::{Firing, Key, key_address};
use crate::maps::{AssocPlan, Plan, VarPlan};
use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};

const EEXIST: i64 = -17;
const ENOENT: i64 = -2;
const NOEXIST: i64 = 1;

fn array(plan: &Plan, var: VarId) -> Option<&AssocPlan> {
    match plan.vars.get(var.0 as usize)? {
        VarPlan::Assoc(a) => Some(a),
        _ => None,
    }
}

/// Calls one of an array's subprograms with the key, its hash, the CPU's element, and `more`.
fn call(
    b: &mut Builder,
    firing: &Firing,
    of: &AssocPlan,
    name: &str,
    key: Key<'_>,
    more: &[V],
    body: impl FnOnce(&mut Builder),
) -> V {
    let hash = key_hash(b, &of.columns, key);
    let address = key_address(b, firing, key);
    let mut args = vec![address, hash, firing.percpu];
    args.extend_from_slice(more);
    b.call_sub(name, &args, body)
}

/// The element's integer; 0 when there is none, or (a counted dynamic drop) when it is busy.
pub fn assoc_load_int(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>) -> V {
    let Some(of) = array(plan, var) else { return b.imm(0) };
    call(b, firing, of, &format!("dt_load_{}", var.0), key, &[], |b| {
        let value = b.var();
        let (done, missing) = (b.label(), b.label());
        read(b, var, done, missing, |b, element| {
            let data = b.load(Size::B8, element, DATA as i16);
            b.set(value, data);
        });
        b.bind(missing);
        b.set(value, 0);
        b.bind(done);
        b.exit(value);
    })
}

/// The element's string, to `to` (strsize bytes in a scratch slot); empty when there is none, or when it is busy (a
/// counted dynamic drop).
pub fn assoc_load_str(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>, to: V) {
    let Some(of) = array(plan, var) else { return };
    call(b, firing, of, &format!("dt_load_{}", var.0), key, &[to], |b| {
        let to = b.param(3);
        let (done, missing) = (b.label(), b.label());
        read(b, var, done, missing, |b, element| copy(b, (element, DATA as i16), (to, 0), of.data));
        b.bind(missing);
        for i in 0..of.data / 8 {
            b.store(Size::B8, to, 8 * i as i16, 0);
        }
        b.bind(done);
        b.exit(0);
    });
}

/// Stores the element's integer; no memory, or busy, is a counted dynamic drop.
pub fn assoc_store_int(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    var: VarId,
    key: Key<'_>,
    value: impl Into<Operand>,
) {
    let Some(of) = array(plan, var) else { return };
    let value = b.reg(value);
    call(b, firing, of, &format!("dt_store_{}", var.0), key, &[value], |b| {
        let value = b.param(3);
        let image = b.stack(DATA + 8);
        let image = b.slot_addr(image, 0);
        store(b, var, image, |b, element| b.store(Size::B8, element, DATA as i16, value));
    });
}

/// Stores the element's string from `from` (strsize bytes, padded with zeros). `image` is room in a scratch slot for a
/// whole map value, `plane::assoc::value_size(strsize)`. No memory, or busy, is a counted dynamic drop.
pub fn assoc_store_str(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    var: VarId,
    key: Key<'_>,
    from: V,
    image: V,
) {
    let Some(of) = array(plan, var) else { return };
    call(b, firing, of, &format!("dt_store_{}", var.0), key, &[from, image], |b| {
        let (from, image) = (b.param(3), b.param(4));
        store(b, var, image, |b, element| copy(b, (from, 0), (element, DATA as i16), of.data));
    });
}

/// Deletes the element; busy is a counted dynamic drop.
pub fn assoc_delete(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>) {
    let Some(of) = array(plan, var) else { return };
    call(b, firing, of, &format!("dt_delete_{}", var.0), key, &[], |b| {
        let done = b.label();
        attempts(b, |b, retry| {
            let element = lookup(b, var, done);
            let word = b.load(Size::B8, element, WORD as i16);
            b.br(Jmp::Set, word, GONE as u32, done);
            lock(b, element, word, LOCKED | GONE, retry);
            let map = b.map(MapRef::Var(var.0));
            let key = b.param(0);
            let r = b.call(Helper::MAP_DELETE_ELEM, &[map, key]);
            b.br(Jmp::Eq, r, 0, done);
            b.br(Jmp::Eq, r, ENOENT, done);
            // The kernel's bucket was busy. An element of value 0 reads the same as none.
            for i in 0..of.data / 8 {
                b.store(Size::B8, element, DATA as i16 + 8 * i as i16, 0);
            }
            let next = b.add(word, WRITE as u32);
            b.xchg(element, WORD as i16, next);
            b.jmp(done);
        });
        b.bind(done);
        b.exit(0);
    });
}

/// Writes `body` with a label that tries again; falls through, a dynamic drop counted, when the tries are used up. `body`
/// ends with a jump or falls into another try. Parameter 2 is the CPU's element.
fn attempts(b: &mut Builder, body: impl FnOnce(&mut Builder, Label)) {
    let (again, retry) = (b.label(), b.label());
    let tries = b.copy(TRIES);
    b.bind(again);
    body(b, retry);
    b.bind(retry);
    b.update(Alu::Sub, tries, 1);
    b.br(Jmp::Ne, tries, 0, again);
    let percpu = b.param(2);
    b.atomic_add(percpu, DropKind::Dynamic.offset() as i16, 1);
}

/// The element of the key in parameter 0.
fn lookup(b: &mut Builder, var: VarId, missing: Label) -> V {
    let map = b.map(MapRef::Var(var.0));
    let key = b.param(0);
    let element = b.call(Helper::MAP_LOOKUP_ELEM, &[map, key]);
    b.br(Jmp::Eq, element, 0, missing);
    element
}

/// Locks the element by exchanging `word`, the even one that was just read, if the element is still that of our key.
fn lock(b: &mut Builder, element: V, word: V, bits: u64, retry: Label) {
    b.br(Jmp::Set, word, LOCKED as u32, retry);
    let hash = b.load(Size::B8, element, KEYHASH as i16);
    let ours = b.param(1);
    b.br(Jmp::Ne, hash, ours, retry);
    let locked = b.or(word, bits as u32);
    let old = b.cmpxchg(element, WORD as i16, word, locked);
    b.br(Jmp::Ne, old, word, retry);
}

/// Reads an element under its sequence word: to `done` when `take` has read it whole, to `missing` when there is none;
/// falls through when it stayed busy.
fn read(b: &mut Builder, var: VarId, done: Label, missing: Label, take: impl FnOnce(&mut Builder, V)) {
    attempts(b, |b, retry| {
        let element = lookup(b, var, missing);
        let before = b.load(Size::B8, element, WORD as i16);
        b.br(Jmp::Set, before, GONE as u32, missing);
        b.br(Jmp::Set, before, LOCKED as u32, retry);
        take(b, element);
        let hash = b.load(Size::B8, element, KEYHASH as i16);
        let ours = b.param(1);
        let after = b.load(Size::B8, element, WORD as i16);
        b.br(Jmp::Ne, hash, ours, retry);
        b.br(Jmp::Eq, after, before, done);
    });
}

/// Stores: in place under the lock, or by an insert that is published once it stands whole.
fn store(b: &mut Builder, var: VarId, image: V, put: impl Fn(&mut Builder, V)) {
    let (done, insert) = (b.label(), b.label());
    attempts(b, |b, retry| {
        let element = lookup(b, var, insert);
        let word = b.load(Size::B8, element, WORD as i16);
        lock(b, element, word, LOCKED, retry);
        put(b, element);
        let next = b.add(word, WRITE as u32);
        b.xchg(element, WORD as i16, next);
        b.jmp(done);

        b.bind(insert);
        let now = b.call(Helper::KTIME_GET_NS, &[]);
        let word = b.shl(now, TIME_SHIFT);
        let locked = b.or(word, LOCKED as u32);
        b.store(Size::B8, image, WORD as i16, locked);
        let hash = b.param(1);
        b.store(Size::B8, image, KEYHASH as i16, hash);
        put(b, image);
        let map = b.map(MapRef::Var(var.0));
        let key = b.param(0);
        let flags = b.imm(NOEXIST);
        let r = b.call(Helper::MAP_UPDATE_ELEM, &[map, key, image, flags]);
        // Somebody was faster: then it is a store.
        b.br(Jmp::Eq, r, EEXIST, retry);
        let failed = b.label();
        b.br(Jmp::Ne, r, 0, failed);
        // Nobody can have deleted it: it is locked.
        let element = lookup(b, var, done);
        b.xchg(element, WORD as i16, word);
        b.jmp(done);
        b.bind(failed);
        let percpu = b.param(2);
        b.atomic_add(percpu, DropKind::Dynamic.offset() as i16, 1);
        b.jmp(done);
    });
    b.bind(done);
    b.exit(0);
}

/// Copies whole words.
fn copy(b: &mut Builder, from: (V, i16), to: (V, i16), bytes: u32) {
    for i in 0..bytes / 8 {
        let word = b.load(Size::B8, from.0, from.1 + 8 * i as i16);
        b.store(Size::B8, to.0, to.1 + 8 * i as i16, word);
    }
}
