//! Elements of `self->` arrays, which are deleted when their thread ends. [`plane::owned`]
//! describes the lists, and why they need no lock.

use dif::ir::VarId;
use plane::assoc::value_size;
use plane::control::DropKind;
use plane::owned::{FREE, FRESH, KEY, NEXT, PREV, TAG_SHIFT, TASK_DEAD, TRIES};
use plane::thread::LEVELS_MAX;

use super::thread::storage;
use super::words::copy_words;
use super::{context_level, count_drop, element};
use crate::mir::{Arg, AtomicOp, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};
use crate::plan::{Heads, Plan, VarPlan};

/// Maximum number of elements that one call deletes.
const BATCH: u32 = 512;
/// Maximum number of such calls for a context level. Together they delete more elements than an
/// array can have.
const BATCHES: u32 = 2048;

/// The head of the current thread's list at a context level. Jumps to `none` where the thread has
/// no storage. With `create` the storage is created, except in an NMI.
fn head(b: &mut Builder, plan: &Plan, var: VarId, (level, create): (V, bool), none: Label) -> V {
    let (map, at) = match plan.vars.get(var.0 as usize) {
        Some(VarPlan::Assoc(a)) => match a.heads {
            Some(Heads::Together(at)) => (MapRef::SelfStore, at),
            _ => (MapRef::Heads(var.0), 0),
        },
        _ => (MapRef::Heads(var.0), 0),
    };
    // The session's common storage exists already, because an element's key begins with the
    // thread's id, which is stored there.
    let create = create && map == MapRef::Heads(var.0);
    let value = storage(b, map, level, create);
    b.br(Jmp::Eq, value, 0, none);
    let level = b.and(level, LEVELS_MAX - 1);
    let offset = b.shl(level, 3);
    let first = b.add(value, at);
    b.add(first, offset)
}

/// The node with a number. Jumps to `none` where there is no such node.
fn node(b: &mut Builder, plan: &Plan, var: VarId, number: impl Into<Operand>, none: Label) -> V {
    let area = plan.nodes(var.0);
    let number = number.into();
    if let Operand::V(n) = number {
        b.br(Jmp::Ge, n, area.count, none);
    }
    let key = b.stack(8);
    element(b, area, number, key, none)
}

/// Allocates a free node and returns its number, 0 where there is none.
fn take(b: &mut Builder, plan: &Plan, var: VarId) -> V {
    b.call_global(&format!("dt_node_take_{}", var.0), &[], |b| {
        let count = plan.nodes(var.0).count;
        let (fresh, none) = (b.label(), b.label());
        let first = node(b, plan, var, 0, none);
        b.repeat(TRIES, |b| {
            let word = b.load(Size::B8, first, FREE as i16);
            let number = b.low32(word);
            b.br(Jmp::Eq, number, 0, fresh);
            let free = node(b, plan, var, number, none);
            let next = b.load(Size::B8, free, NEXT as i16);
            let changed = tagged(b, word, next);
            let old = b.cmpxchg(first, FREE as i16, word, changed);
            b.if_(Jmp::Eq, old, word, |b| b.exit(number));
        });
        b.bind(fresh);
        // Tested first, so that the counter does not grow for ever.
        let taken = b.load(Size::B8, first, FRESH as i16);
        b.br(Jmp::Ge, taken, count - 1, none);
        let taken = b.atomic_fetch(AtomicOp::Add, Size::B8, first, FRESH as i16, 1);
        b.br(Jmp::Ge, taken, count - 1, none);
        let number = b.add(taken, 1);
        b.exit(number);
        b.bind(none);
        b.exit(0);
    })
}

/// The free-list word that begins with this node, following `word`.
fn tagged(b: &mut Builder, word: V, number: V) -> V {
    let tag = b.shr(word, TAG_SHIFT);
    let tag = b.add(tag, 1);
    let tag = b.shl(tag, TAG_SHIFT);
    let number = b.low32(number);
    b.or(tag, number)
}

/// Frees a node. When the compare-exchange loses too often, the node is lost and a dynamic drop is
/// counted.
fn give(b: &mut Builder, plan: &Plan, var: VarId, number: V) {
    b.call_global(&format!("dt_node_give_{}", var.0), &[Arg::Word(number)], |b| {
        let number = b.param(0);
        let none = b.label();
        b.br(Jmp::Eq, number, 0, none);
        let first = node(b, plan, var, 0, none);
        let mine = node(b, plan, var, number, none);
        b.repeat(TRIES, |b| {
            let word = b.load(Size::B8, first, FREE as i16);
            let next = b.low32(word);
            b.store(Size::B8, mine, NEXT as i16, next);
            let changed = tagged(b, word, number);
            let old = b.cmpxchg(first, FREE as i16, word, changed);
            b.br(Jmp::Eq, old, word, none);
        });
        let firing = super::firing(b, plan);
        count_drop(b, &firing, DropKind::Dynamic);
        b.bind(none);
        b.exit(0);
    });
}

/// The node of an element that is about to be inserted.
pub(super) struct Link {
    var: VarId,
    number: V,
    node: V,
    head: V,
}

impl Link {
    /// Allocates a node, writes the key into the node, and the node's number into the value's
    /// image. Jumps to `none` where there is no node.
    pub(super) fn take(b: &mut Builder, plan: &Plan, var: VarId, (key, image): (V, V), none: Label) -> Link {
        let (key_size, data) = match plan.vars.get(var.0 as usize) {
            Some(VarPlan::Assoc(a)) => (a.key_size(), a.data),
            _ => (8, 8),
        };
        let level = context_level(b, plan);
        let head = head(b, plan, var, (level, true), none);
        let number = take(b, plan, var);
        b.br(Jmp::Eq, number, 0, none);
        let node = node(b, plan, var, number, none);
        let to = b.add(node, KEY);
        copy_words(b, to, key, key_size);
        let at = b.add(image, value_size(data));
        b.store(Size::B8, at, 0, number);
        Link { var, number, node, head }
    }

    /// Frees the node, because the element was not inserted.
    pub(super) fn give_back(&self, b: &mut Builder, plan: &Plan) {
        give(b, plan, self.var, self.number);
    }

    /// Makes the node the first of its list.
    pub(super) fn first(&self, b: &mut Builder, plan: &Plan) {
        let alone = b.label();
        let next = b.load(Size::B8, self.head, 0);
        b.store(Size::B8, self.node, NEXT as i16, next);
        b.store(Size::B8, self.node, PREV as i16, 0);
        b.br(Jmp::Eq, next, 0, alone);
        let after = node(b, plan, self.var, next, alone);
        b.store(Size::B8, after, PREV as i16, self.number);
        b.bind(alone);
        b.store(Size::B8, self.head, 0, self.number);
    }
}

/// Removes a node from the current thread's list at the current level, and frees the node. Jumps to
/// `none` where there is no list.
pub(super) fn release(b: &mut Builder, plan: &Plan, var: VarId, number: V, none: Label) {
    let level = context_level(b, plan);
    let head = head(b, plan, var, (level, false), none);
    let mine = node(b, plan, var, number, none);
    let next = b.load(Size::B8, mine, NEXT as i16);
    let prev = b.load(Size::B8, mine, PREV as i16);
    b.if_else(
        Jmp::Ne,
        prev,
        0,
        |b| {
            let before = node(b, plan, var, prev, none);
            b.store(Size::B8, before, NEXT as i16, next);
        },
        |b| {
            b.store(Size::B8, head, 0, next);
        },
    );
    b.if_(Jmp::Ne, next, 0, |b| {
        let after = node(b, plan, var, next, none);
        b.store(Size::B8, after, PREV as i16, prev);
    });
    give(b, plan, var, number);
}

/// The program for the last `sched_switch` of a thread. Deletes the thread's elements of the
/// `self->` arrays from variable `first` on. `state` is the offset of `__state` in the task.
pub fn end_of_thread(b: &mut Builder, plan: &Plan, first: u32, state: i16) {
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let state = b.load(Size::B4, task, state);
    let dead = b.and(state, TASK_DEAD);
    b.if_(Jmp::Ne, dead, 0, |b| {
        for (var, _) in plan.owned(first) {
            b.call_global(&format!("dt_end_{var}"), &[], |b| each_level(b, plan, VarId(var)));
        }
    });
    b.exit(0);
}

fn each_level(b: &mut Builder, plan: &Plan, var: VarId) {
    for level in 0..LEVELS_MAX {
        let level = b.imm(i64::from(level));
        let name = format!("dt_end_level_{}", var.0);
        b.call_global(&name, &[Arg::Word(level)], |b| whole_level(b, plan, var));
    }
    b.exit(0);
}

/// Deletes the elements of a level. The verifier processes every iteration of a loop, but not the
/// functions that the loop calls.
fn whole_level(b: &mut Builder, plan: &Plan, var: VarId) {
    let done = b.label();
    let level = b.param(0);
    b.repeat(BATCHES, |b| {
        let more =
            b.call_global(&format!("dt_end_some_{}", var.0), &[Arg::Word(level)], |b| some(b, plan, var));
        b.br(Jmp::Eq, more, 0, done);
    });
    b.bind(done);
    b.exit(0);
}

/// Deletes some elements of a level. Returns 1 where there are more.
fn some(b: &mut Builder, plan: &Plan, var: VarId) {
    let none = b.label();
    let level = b.param(0);
    let head = head(b, plan, var, (level, false), none);
    b.repeat(BATCH, |b| {
        let number = b.load(Size::B8, head, 0);
        b.br(Jmp::Eq, number, 0, none);
        let first = node(b, plan, var, number, none);
        let (map, key) = (b.map(MapRef::Var(var.0)), b.add(first, KEY));
        b.call(Helper::MAP_DELETE_ELEM, &[map, key]);
        let next = b.load(Size::B8, first, NEXT as i16);
        b.store(Size::B8, head, 0, next);
        give(b, plan, var, number);
    });
    b.exit(1);
    b.bind(none);
    b.exit(0);
}
