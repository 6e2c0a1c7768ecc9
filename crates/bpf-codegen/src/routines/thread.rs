//! `self->`: the thread's value, the context level, the key word of `self->` arrays.
//! [`plane::thread`] describes the layout.

use plane::control::{DropKind, UNIQUE};
use plane::thread::{LEVELS, THREAD_ID, ThreadShape, preempt_count};

use super::{Firing, count_drop};
use crate::mir::{AtomicOp, Builder, Const, Helper, Jmp, Label, MapRef, Size, V};
use crate::plan::Plan;
use crate::target::PreemptCount;

/// The current thread's value.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRef {
    /// Address of the value. When passed to [`self_vars`] again, that address, or 0 where there was
    /// no value.
    pub value: V,
    /// Address of the variables of the current level. [`crate::plan::VarPlan::Thread`] gives their
    /// offsets.
    pub vars: V,
    /// The current level, 0 to 3.
    pub level: V,
}

/// The current context level: 0 thread, 1 soft interrupt, 2 hard interrupt, 3 NMI. [`Plan::level`]
/// where the level is fixed. Computed without branches, so that the verifier sees one number and
/// not four programs.
pub fn context_level(b: &mut Builder, plan: &Plan) -> V {
    match plan.preempt_count {
        Some(at) => level_of(b, at),
        None => b.imm(i64::from(plan.level)),
    }
}

/// The context level according to the kernel's preempt count.
pub fn level_of(b: &mut Builder, at: PreemptCount) -> V {
    let variable = b.constant(Const::Ksym(at.ksym));
    let mine = b.call(Helper::THIS_CPU_PTR, &[variable]);
    let count = b.load(Size::B4, mine, at.offset);
    // Adding a field's mask carries out of the field exactly when the field is not zero.
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

/// The storage of `self->` variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStorage {
    /// In the session's common storage: the first variables, and the thread's id.
    Common,
    /// In the task storage of this variable.
    Alone(u32, ThreadShape),
}

/// The thread's variables in a storage. With `create` (for a store) they are created, except in an
/// NMI. When that fails, counts a dynamic drop and jumps to `missing`. Without `create` (for a
/// load), a thread without variables jumps to `missing` too, and its variables read as 0. `known`
/// is the result of an earlier look-up in this firing, which saves another one.
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

/// The first key word of an element of a `self->` array: the thread's id (assigned on first use)
/// and the level. The thread's value must exist. A store creates the value by [`self_vars`].
/// Without a value, a load finds no element.
pub fn self_key_word(b: &mut Builder, thread: &ThreadRef) -> V {
    let (fresh, known) = (b.label(), b.label());
    let id = b.load(Size::B8, thread.value, THREAD_ID as i16);
    b.br(Jmp::Eq, id, 0, fresh);
    b.bind(known);
    b.out_of_line(|b| {
        b.bind(fresh);
        let counter = b.map_value(MapRef::Control, UNIQUE);
        let last = b.atomic_fetch(AtomicOp::Add, Size::B8, counter, 0, 1);
        let next = b.add(last, 1);
        // An interrupt may assign the id in between.
        let old = b.cmpxchg(thread.value, THREAD_ID as i16, 0, next);
        b.set(id, old);
        b.if_(Jmp::Ne, old, 0, |b| {
            b.jmp(known);
        });
        b.set(id, next);
        b.jmp(known);
    });
    let high = b.shl(id, 2);
    b.or(high, thread.level)
}
