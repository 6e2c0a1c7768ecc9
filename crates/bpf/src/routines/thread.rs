//! `self->`: the thread's value, the context level, the key word of `self->` arrays. See [`plane::thread`].

use plane::control::{DropKind, UNIQUE};
use plane::thread::{LEVELS, THREAD_ID, ThreadShape, preempt_count};

use super::{Firing, count_drop};
use crate::maps::{Plan, PreemptCount};
use crate::mir::{AtomicOp, Builder, Const, Helper, Jmp, Label, MapRef, Size, V};

/// The current thread's value.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRef {
    /// Its address. Where it is given to [`self_vars`] again: that, or 0 where there was none.
    pub value: V,
    /// Address of the variables of the level that runs; offsets are those of [`crate::maps::VarPlan::Thread`].
    pub vars: V,
    /// The level, 0 to 3.
    pub level: V,
}

/// The context level that runs: 0 thread, 1 soft interrupt, 2 hard interrupt, 3 NMI; [`Plan::level`] where
/// that is known beforehand. By arithmetic, not branches: to the verifier it is one number, not four programs.
pub fn context_level(b: &mut Builder, plan: &Plan) -> V {
    match plan.preempt_count {
        Some(at) => level_of(b, at),
        None => b.imm(i64::from(plan.level)),
    }
}

/// The context level by the kernel's preempt count.
pub fn level_of(b: &mut Builder, at: PreemptCount) -> V {
    let variable = b.constant(Const::Ksym(at.ksym));
    let mine = b.call(Helper::THIS_CPU_PTR, &[variable]);
    let count = b.load(Size::B4, mine, at.offset);
    // Adding a field's mask carries out of the field if it is not zero.
    let carried = |b: &mut Builder, mask: u32| {
        let field = b.and(count, mask);
        let sum = b.add(field, mask);
        let bit = b.shr(sum, 32 - mask.leading_zeros());
        b.and(bit, 1)
    };
    let nmi = carried(b, preempt_count::NMI);
    let hard = carried(b, preempt_count::HARDIRQ);
    let soft = carried(b, preempt_count::SOFTIRQ);
    let not_hard = b.xor(hard, 1);
    let soft = b.and(soft, not_hard);
    let low = b.or(soft, nmi);
    let high = b.or(hard, nmi);
    let high = b.shl(high, 1);
    b.or(high, low)
}

/// Where variables of `self->` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStorage {
    /// In the session's store: the first ones, and the thread's id.
    Common,
    /// Alone, in the task storage of this variable.
    Alone(u32, ThreadShape),
}

/// The thread's variables of a home. With `create` (a store) they are made, except in an NMI, and what cannot be made is a counted
/// dynamic drop; without (a load) a thread that has none goes to `missing` too, and its variables are 0. `known` is the
/// value that was asked for earlier in this firing: it stays where it is, and asking is two calls.
pub fn self_vars(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    (home, create): (ThreadStorage, bool),
    known: Option<V>,
    missing: Label,
) -> Option<ThreadRef> {
    let (map, shape) = match home {
        ThreadStorage::Common => (MapRef::SelfStore, plan.thread?),
        ThreadStorage::Alone(var, shape) => (MapRef::Var(var), shape),
    };
    let level = context_level(b, plan);
    let none = b.label();
    let value = match known {
        Some(value) if create => {
            let (ask, there) = (b.label(), b.label());
            b.br(Jmp::Eq, value, 0, ask);
            b.bind(there);
            b.out_of_line(|b| {
                b.bind(ask);
                let made = storage(b, map, level, create);
                b.set(value, made);
                b.jmp(there);
            });
            value
        }
        Some(value) => value,
        None => {
            let found = storage(b, map, level, create);
            b.copy(found)
        }
    };
    b.br(Jmp::Eq, value, 0, none);
    let vars = if shape.levels == 1 || plan.preempt_count.is_none() {
        let at = plan.level.min(shape.levels - 1) * shape.level_size;
        b.add(value, LEVELS + at)
    } else {
        let (over, within) = (b.label(), b.label());
        let used = b.copy(level);
        b.br(Jmp::Ge, used, shape.levels, over);
        b.bind(within);
        b.out_of_line(|b| {
            b.bind(over);
            b.set(used, shape.levels - 1);
            b.jmp(within);
        });
        let offset = b.mul(used, shape.level_size);
        let first = b.add(value, LEVELS);
        b.add(first, offset)
    };
    b.out_of_line(|b| {
        b.bind(none);
        if create {
            count_drop(b, firing, DropKind::Dynamic);
        }
        b.jmp(missing);
    });
    Some(ThreadRef { value, vars, level })
}

/// The thread's value, or 0.
pub(super) fn storage(b: &mut Builder, map: MapRef, level: V, create: bool) -> V {
    let flags = if create {
        // Not in level 3: 1 & ~(both bits of the level).
        let high = b.shr(level, 1);
        let nmi = b.and(high, level);
        b.xor(nmi, 1)
    } else {
        b.imm(0)
    };
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let map = b.map(map);
    let nothing = b.imm(0);
    b.call(Helper::TASK_STORAGE_GET, &[map, task, nothing, flags])
}

/// The first key word of an element of a `self->` array: the thread's id (given on first use) and the level. The thread's
/// value must have been made: [`self_vars`] with `create` for a store; a load without it has no element.
pub fn self_key_word(b: &mut Builder, thread: &ThreadRef) -> V {
    let (fresh, known, mine) = (b.label(), b.label(), b.label());
    let id = b.load(Size::B8, thread.value, THREAD_ID as i16);
    b.br(Jmp::Eq, id, 0, fresh);
    b.bind(known);
    b.out_of_line(|b| {
        b.bind(fresh);
        let counter = b.map_value(MapRef::Control, UNIQUE);
        let last = b.atomic_fetch(AtomicOp::Add, Size::B8, counter, 0, 1);
        let next = b.add(last, 1);
        // An interrupt may give the thread its id between.
        let old = b.cmpxchg(thread.value, THREAD_ID as i16, 0, next);
        b.set(id, old);
        b.br(Jmp::Eq, old, 0, mine);
        b.jmp(known);
        b.bind(mine);
        b.set(id, next);
        b.jmp(known);
    });
    let high = b.shl(id, 2);
    b.or(high, thread.level)
}
