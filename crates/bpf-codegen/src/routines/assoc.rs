//! Associative arrays: load, store, delete. [`plane::assoc`] describes the sequence word and why it
//! is safe.
//!
//! Each operation is a subprogram for each array, `dt_load_N` and so on. Its arguments are the key
//! (its address, or the scratch slot that contains it) and the key's hash. Where `plane::assoc`
//! says that a reader loads the sequence word before and after, the loads are plain, because x86-64
//! does not reorder loads. Other architectures may need a barrier there.
//!
//! ARCH(x86-64): loads are not reordered with loads.

use dif::ir::VarId;
use plane::assoc::{DATA, GONE, KEYHASH, LOCKED, TIME_SHIFT, TRIES, WORD, WRITE, value_size};
use plane::control::DropKind;

use super::agg::key_hash;
use super::words::{copy_words, exchange_null, zero};
use super::{Firing, InSlot, Key, count_drop, key_address, owned, slot_at};
use crate::mir::{Arg, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::{AssocPlan, Plan, VarPlan};

const EEXIST: i64 = -17;
const ENOENT: i64 = -2;
const NOEXIST: i64 = 1;

/// The map of an array.
#[derive(Clone, Copy)]
enum Array {
    Separate(VarId),
    /// One of several in a map of arrays, found at run time.
    Found(V),
}

/// An array and the address of a key.
#[derive(Clone, Copy)]
struct ArrayKey {
    map: Array,
    key: V,
}

impl ArrayKey {
    fn map(self, b: &mut Builder) -> V {
        match self.map {
            Array::Separate(var) => b.map(MapRef::Var(var.0)),
            Array::Found(map) => map,
        }
    }
}

/// An operation on an element of an array.
struct Access<'a> {
    plan: &'a Plan,
    firing: &'a Firing,
    var: VarId,
    of: &'a AssocPlan,
    key: Key<'a>,
}

impl<'a> Access<'a> {
    fn new(plan: &'a Plan, firing: &'a Firing, var: VarId, key: Key<'a>) -> Option<Self> {
        match plan.vars.get(var.0 as usize)? {
            VarPlan::Assoc(of) => Some(Access { plan, firing, var, of, key }),
            _ => None,
        }
    }

    /// Calls the subprogram `name` with the key, the key's hash, and `more`. `body` gets the array
    /// and key. `image` is an address in the scratch slot that `body` uses.
    fn call(
        &self,
        b: &mut Builder,
        name: &str,
        more: &[Arg],
        image: Option<InSlot>,
        body: impl FnOnce(&mut Builder, ArrayKey),
    ) -> V {
        // Arrays that share a map also share the function. An argument says which is meant.
        let mut name = match self.of.shared {
            Some(shared) => format!("dt_{name}_of_{}", shared.first),
            None => format!("dt_{name}_{}", self.var.0),
        };
        let hash = key_hash(b, &self.of.columns, self.key);
        let given = match self.key {
            Key::Words(_) => Arg::Memory(key_address(b, self.firing, self.key), self.of.key_size()),
            Key::Memory(place) => {
                name += &format!("_{}", place.offset);
                Arg::Word(place.slot.number)
            }
        };
        // ERROR's clauses use other offsets in the slot.
        if let Some(image) = image {
            name += &format!("_{}", image.offset);
        }
        let mut args = vec![given, Arg::Word(hash)];
        args.extend_from_slice(more);
        if let Some(shared) = self.of.shared {
            args.push(Arg::Word(b.imm(i64::from(shared.index))));
        }
        b.call_global(&name, &args, |b| {
            let bad = b.label();
            let given = b.param(0);
            let map = self.of.shared.map(|shared| {
                let index = b.param(args.len() - 1);
                let buffer = b.stack(8);
                b.slot_store(Size::B4, buffer, 0, index);
                let (all, place) = (b.map(MapRef::Arrays(shared.first)), b.slot_addr(buffer, 0));
                let map = b.call(Helper::MAP_LOOKUP_ELEM, &[all, place]);
                b.br(Jmp::Eq, map, 0, bad);
                map
            });
            let key = match self.key {
                // Copied, because the key is in no stack or map here, and the helper requires one
                // of the two.
                Key::Words(words) => {
                    let own = b.stack(self.of.key_size());
                    for at in (0..8 * words.len() as i16).step_by(8) {
                        let word = b.load(Size::B8, given, at);
                        b.slot_store(Size::B8, own, at, word);
                    }
                    b.slot_addr(own, 0)
                }
                Key::Memory(place) => {
                    let slot = slot_at(b, self.plan, given, bad);
                    b.add(slot, place.offset)
                }
            };
            let map = map.map_or(Array::Separate(self.var), Array::Found);
            body(b, ArrayKey { map, key });
            b.bind(bad);
            b.exit(0);
        })
    }
}

/// Counts a dynamic drop. The subprogram looks its CPU up only here.
fn count(b: &mut Builder, plan: &Plan) {
    let firing = super::firing(b, plan);
    count_drop(b, &firing, DropKind::Dynamic);
}

/// Loads an element's integer. 0 when there is no element, or (with a counted dynamic drop) when
/// the element changes at each try. One that is locked has its value before the write or after it:
/// both are right, and a script that adds to 0 instead would lose all that was counted.
pub fn assoc_load_int(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>) -> V {
    let Some(a) = Access::new(plan, firing, var, key) else { return b.imm(0) };
    a.call(b, "load", &[], None, |b, at| {
        let value = b.var();
        let (done, missing) = (b.label(), b.label());
        read(b, &a, at, GONE, (done, missing), |b, element| {
            let data = b.load(Size::B8, element, DATA as i16);
            b.set(value, data);
        });
        b.bind(missing);
        b.set(value, 0);
        b.bind(done);
        b.exit(value);
    })
}

/// Loads an element's bytes to `to` (in a scratch slot): an object, or a string as it is stored.
/// Zeros when there is no element, or (with a counted dynamic drop) when the element is busy.
pub fn assoc_load_bytes(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>, to: V) {
    let Some(a) = Access::new(plan, firing, var, key) else { return };
    let bytes = a.of.data;
    a.call(b, "load", &[Arg::Memory(to, bytes)], None, |b, at| {
        let to = b.param(2);
        let (done, missing) = (b.label(), b.label());
        read(b, &a, at, LOCKED | GONE, (done, missing), |b, element| {
            let from = b.add(element, DATA);
            copy_words(b, to, from, bytes);
        });
        b.bind(missing);
        zero(b, to, 0, bytes);
        b.bind(done);
        b.exit(0);
    });
}

/// Stores an element's integer. When memory is exhausted or the element is busy, a dynamic drop is
/// counted.
pub fn assoc_store_int(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    var: VarId,
    key: Key<'_>,
    value: impl Into<Operand>,
) {
    let Some(a) = Access::new(plan, firing, var, key) else { return };
    let value = b.reg(value);
    a.call(b, "store", &[Arg::Word(value)], None, |b, at| {
        let value = b.param(2);
        let image = b.stack(a.of.value_size());
        let image = b.slot_addr(image, 0);
        store(b, &a, at, image, |b, element, _| b.store(Size::B8, element, DATA as i16, value), |_| {});
        b.exit(0);
    });
}

/// Adds to an element's integer under its lock. Returns the sum, or 0 with a counted dynamic drop
/// when memory is exhausted or the element is busy.
pub fn assoc_add(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    var: VarId,
    key: Key<'_>,
    by: impl Into<Operand>,
) -> V {
    let Some(a) = Access::new(plan, firing, var, key) else { return b.imm(0) };
    let by = b.reg(by);
    a.call(b, "add", &[Arg::Word(by)], None, |b, at| {
        let (by, sum, result) = (b.param(2), b.copy(0), b.copy(0));
        let image = b.stack(a.of.value_size());
        let image = b.slot_addr(image, 0);
        store(
            b,
            &a,
            at,
            image,
            |b, element, new| {
                if new {
                    b.set(sum, by);
                } else {
                    let old = b.load(Size::B8, element, DATA as i16);
                    let added = b.add(old, by);
                    b.set(sum, added);
                }
                b.store(Size::B8, element, DATA as i16, sum);
            },
            |b| b.set(result, sum),
        );
        b.exit(result);
    })
}

/// Stores an element's bytes from `from` (zero-padded): an object, or a `string`, of which zeros
/// are stored for NULL, so that no element and one that could not be deleted read as NULL. `image`
/// is space in a scratch slot for a whole map value, [`value_size`]. When memory is exhausted or
/// the element is busy, a dynamic drop is counted.
pub fn assoc_store_bytes(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    var: VarId,
    key: Key<'_>,
    (from, string): (V, bool),
    image: InSlot,
) {
    let Some(a) = Access::new(plan, firing, var, key) else { return };
    let bytes = a.of.data;
    let args = [Arg::Memory(from, bytes), Arg::Word(image.slot.number)];
    a.call(b, "store", &args, Some(image), |b, at| {
        let (from, number, bad) = (b.param(2), b.param(3), b.label());
        let slot = slot_at(b, plan, number, bad);
        let image = b.add(slot, image.offset);
        store(
            b,
            &a,
            at,
            image,
            |b, element, _| {
                let to = b.add(element, DATA);
                copy_words(b, to, from, bytes);
                if string {
                    exchange_null(b, to, 0);
                }
            },
            |_| {},
        );
        b.exit(0);
        b.bind(bad);
        b.exit(0);
    });
}

/// Deletes an element. When the element is busy, a dynamic drop is counted.
pub fn assoc_delete(b: &mut Builder, plan: &Plan, firing: &Firing, var: VarId, key: Key<'_>) {
    let Some(a) = Access::new(plan, firing, var, key) else { return };
    a.call(b, "delete", &[], None, |b, at| {
        let done = b.label();
        attempts(b, plan, |b, retry| {
            let element = lookup(b, at, done);
            let word = b.load(Size::B8, element, WORD as i16);
            b.br(Jmp::Set, word, GONE as u32, done);
            lock(b, element, word, LOCKED | GONE, retry);
            // After the deletion, the element may belong to another key.
            let node = a.of.heads.map(|_| {
                let at = b.add(element, value_size(a.of.data));
                b.load(Size::B8, at, 0)
            });
            let map = at.map(b);
            let r = b.call(Helper::MAP_DELETE_ELEM, &[map, at.key]);
            match node {
                Some(node) => {
                    b.if_(Jmp::Eq, r, 0, |b| {
                        owned::release(b, plan, var, node, done);
                        b.jmp(done);
                    });
                }
                None => b.br(Jmp::Eq, r, 0, done),
            }
            b.br(Jmp::Eq, r, ENOENT, done);
            // The kernel's bucket was busy. An element of value 0 reads the same as none.
            zero(b, element, DATA as i16, a.of.data);
            let next = b.add(word, WRITE as u32);
            b.xchg(element, WORD as i16, next);
            b.jmp(done);
        });
        b.bind(done);
        b.exit(0);
    });
}

/// Emits `body` with a label that retries. Falls through with a counted dynamic drop when the
/// retries are exhausted. `body` must end with a jump or fall into another retry.
fn attempts(b: &mut Builder, plan: &Plan, body: impl FnOnce(&mut Builder, Label)) {
    let retry = b.label();
    b.repeat(TRIES, |b| {
        body(b, retry);
        b.bind(retry);
    });
    count(b, plan);
}

/// The element of a key.
fn lookup(b: &mut Builder, at: ArrayKey, missing: Label) -> V {
    let map = at.map(b);
    let element = b.call(Helper::MAP_LOOKUP_ELEM, &[map, at.key]);
    b.br(Jmp::Eq, element, 0, missing);
    element
}

/// Locks an element by exchanging `word`, the even sequence word that was just read. Retries when
/// the element has changed its key or sequence word.
fn lock(b: &mut Builder, element: V, word: V, bits: u64, retry: Label) {
    b.br(Jmp::Set, word, LOCKED as u32, retry);
    let hash = b.load(Size::B8, element, KEYHASH as i16);
    let ours = b.param(1);
    b.br(Jmp::Ne, hash, ours, retry);
    let locked = b.or(word, bits as u32);
    let old = b.cmpxchg(element, WORD as i16, word, locked);
    b.br(Jmp::Ne, old, word, retry);
}

/// Reads an element under its sequence word. Jumps to `done` when `take` has read a consistent
/// value, to `missing` when there is no element. Falls through when the element stayed busy: what
/// is longer than a word is not read while it is LOCKED, which is in `busy` then.
fn read(
    b: &mut Builder,
    a: &Access<'_>,
    at: ArrayKey,
    busy: u64,
    (done, missing): (Label, Label),
    take: impl FnOnce(&mut Builder, V),
) {
    attempts(b, a.plan, |b, retry| {
        let element = lookup(b, at, missing);
        let before = b.load(Size::B8, element, WORD as i16);
        b.br(Jmp::Set, before, GONE as u32, missing);
        if busy & LOCKED != 0 {
            b.br(Jmp::Set, before, LOCKED as u32, retry);
        }
        take(b, element);
        let hash = b.load(Size::B8, element, KEYHASH as i16);
        let ours = b.param(1);
        let after = b.load(Size::B8, element, WORD as i16);
        b.br(Jmp::Ne, hash, ours, retry);
        b.br(Jmp::Eq, after, before, done);
    });
}

/// Stores: in place under the lock, or by inserting a complete element. Tells `put` whether the
/// element is new. Emits `stored` where that has succeeded, and falls through.
fn store(
    b: &mut Builder,
    a: &Access<'_>,
    at: ArrayKey,
    image: V,
    put: impl Fn(&mut Builder, V, bool),
    stored: impl Fn(&mut Builder),
) {
    let (done, insert) = (b.label(), b.label());
    attempts(b, a.plan, |b, retry| {
        let element = lookup(b, at, insert);
        let word = b.load(Size::B8, element, WORD as i16);
        lock(b, element, word, LOCKED, retry);
        put(b, element, false);
        let next = b.add(word, WRITE as u32);
        b.xchg(element, WORD as i16, next);
        stored(b);
        b.jmp(done);

        b.bind(insert);
        let now = b.call(Helper::KTIME_GET_NS, &[]);
        let word = b.shl(now, TIME_SHIFT);
        let locked = b.or(word, (LOCKED | GONE) as u32);
        b.store(Size::B8, image, WORD as i16, locked);
        let hash = b.param(1);
        b.store(Size::B8, image, KEYHASH as i16, hash);
        put(b, image, true);
        let (failed, exists) = (b.label(), b.label());
        let link = a.of.heads.map(|_| owned::Link::take(b, a.plan, a.var, (at.key, image), failed));
        let map = at.map(b);
        let flags = b.imm(NOEXIST);
        let r = b.call(Helper::MAP_UPDATE_ELEM, &[map, at.key, image, flags]);
        // Another context inserted the element first, so this becomes a store in place.
        b.br(Jmp::Eq, r, EEXIST, if link.is_some() { exists } else { retry });
        if let Some(link) = &link {
            let linked = b.label();
            b.br(Jmp::Eq, r, 0, linked);
            link.give_back(b, a.plan);
            b.jmp(failed);
            b.bind(exists);
            link.give_back(b, a.plan);
            b.jmp(retry);
            b.bind(linked);
            link.first(b, a.plan);
        } else {
            b.br(Jmp::Ne, r, 0, failed);
        }
        // The element is locked, so it cannot have been deleted.
        let element = lookup(b, at, done);
        b.xchg(element, WORD as i16, word);
        stored(b);
        b.jmp(done);
        b.bind(failed);
        count(b, a.plan);
        b.jmp(done);
    });
    b.bind(done);
}
