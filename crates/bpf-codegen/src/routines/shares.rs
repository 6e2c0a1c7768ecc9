//! Takes a share of a table that all processes fill: [`plane::shares`] has the rule and the
//! counters.

use plane::shares::{
    COUNTERS, COUNTERS_SHIFT, OTHERS, PROCESS_SHIFT, PROCESSES, SUBORDINATE, SUBORDINATE_AT,
    SUBORDINATE_COUNT, SUBORDINATE_SIZE, SUBORDINATE_TO, USERS, of_others,
};
use plane::siphash::Key;

use crate::mir::{Alu, AtomicOp, Builder, Helper, Jmp, Label, Size, V};

/// The counters of a table, and how much of it there is.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// Their address.
    pub(super) counters: V,
    pub(super) most: u32,
    /// The key of the session.
    pub(super) key: Key,
}

/// Takes so much for the process that runs. Returns the number by which it is given back. Jumps to
/// `full` if the process, or its user, has as much as it leaves.
pub(super) fn take(b: &mut Builder, table: Table, amount: V, full: Label) -> V {
    let taken = b.copy(0);
    let both = b.call(Helper::GET_CURRENT_UID_GID, &[]);
    let user = b.shl(both, 32);
    let user = b.shr(user, 32);
    b.if_(Jmp::Ne, user, 0, |b| {
        subordinate(b, table.counters, user);
        let both = b.call(Helper::GET_CURRENT_PID_TGID, &[]);
        let process = b.shr(both, 32);
        let (user, process) = (hash(b, table.key, user), hash(b, table.key, process));
        let others = b.load(Size::B8, table.counters, 0);
        let limit = i64::from(of_others(table.most));
        b.br(Jmp::Gt, others, limit, full);
        let limit = b.copy(limit);
        let left = b.sub(limit, others);
        for (number, at) in [(user, USERS), (process, PROCESSES)] {
            let counter = counter(b, table.counters, number);
            let used = b.load(Size::B8, counter, at as i16);
            // It may have as much as it leaves.
            b.br(Jmp::Gt, used, left, full);
            let rest = b.sub(left, used);
            let rest = b.add(rest, 1);
            let half = b.shr(rest, 1);
            b.set(left, half);
        }
        b.br(Jmp::Gt, amount, left, full);
        let number = b.shl(process, i64::from(PROCESS_SHIFT));
        let number = b.or(number, user);
        let number = b.or(number, OTHERS as i64);
        b.set(taken, number);
        change(b, table.counters, (user, process), amount);
    });
    taken
}

/// Gives back what was taken by a number.
pub(super) fn give(b: &mut Builder, table: Table, number: V, amount: V) {
    b.if_(Jmp::Ne, number, 0, |b| {
        let user = b.and(number, i64::from(COUNTERS - 1));
        let process = b.shr(number, i64::from(PROCESS_SHIFT));
        let process = b.and(process, i64::from(COUNTERS - 1));
        let less = b.copy(0);
        let less = b.sub(less, amount);
        change(b, table.counters, (user, process), less);
    });
}

fn change(b: &mut Builder, counters: V, (user, process): (V, V), by: V) {
    b.atomic(AtomicOp::Add, Size::B8, counters, 0, by);
    for (number, at) in [(user, USERS), (process, PROCESSES)] {
        let counter = counter(b, counters, number);
        b.atomic_add(counter, at as i16, by);
    }
}

fn counter(b: &mut Builder, counters: V, number: V) -> V {
    let offset = b.shl(number, 3);
    b.add(counters, offset)
}

/// The number of a counter: two users, or two processes, have the same one as often as the number
/// of counters says, whoever they are.
fn hash(b: &mut Builder, key: Key, id: V) -> V {
    let factor = b.imm((key[1] | 1) as i64);
    let mixed = b.mul(id, factor);
    let first = b.imm(key[0] as i64);
    let mixed = b.add(mixed, first);
    b.shr(mixed, 64 - i64::from(COUNTERS_SHIFT))
}

/// Replaces an id that was given to a user by that user.
fn subordinate(b: &mut Builder, counters: V, user: V) {
    let end = b.label();
    let (at, number) = (b.add(counters, SUBORDINATE_AT as i32), b.copy(0));
    b.loop_(|b, again| {
        let first = b.load(Size::B4, at, 0);
        let count = b.load(Size::B4, at, SUBORDINATE_COUNT as i16);
        b.br(Jmp::Eq, count, 0, end);
        let into = b.sub(user, first);
        b.if_(Jmp::Lt, into, count, |b| {
            let to = b.load(Size::B8, at, SUBORDINATE_TO as i16);
            b.set(user, to);
            b.jmp(end);
        });
        b.update(Alu::Add, at, SUBORDINATE_SIZE as i32);
        b.update(Alu::Add, number, 1);
        b.br(Jmp::Lt, number, i64::from(SUBORDINATE), again);
    });
    b.bind(end);
}
