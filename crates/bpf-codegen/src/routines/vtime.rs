//! `vtimestamp`: the CPU-time account of the current thread. [`plane::vtime`] describes it.

use plane::control::DropKind;
use plane::vtime::{BEGINS, FROZEN, LAST, MADE, OURS, RAW, SINCE, STATE, TOTAL};

use super::{Firing, count_drop};
use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Size, V};

/// The account as a program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The account's address if this program froze it, else 0.
    frozen: V,
    /// The value.
    pub value: V,
}

fn account(b: &mut Builder, task: V, create: bool) -> V {
    let (map, nothing, flags) = (b.map(MapRef::Vtime), b.imm(0), b.imm(i64::from(create)));
    b.call(Helper::TASK_STORAGE_GET, &[map, task, nothing, flags])
}

/// Nanoseconds on the CPU until now.
fn raw(b: &mut Builder, account: V) -> V {
    let now = b.call(Helper::KTIME_GET_NS, &[]);
    let total = b.load(Size::B8, account, TOTAL as i16);
    let since = b.load(Size::B8, account, SINCE as i16);
    let (sum, done) = (b.copy(total), b.label());
    b.if_(Jmp::Eq, since, 0, |b| {
        // The start of this stay on the CPU was not observed, so the stay begins now. If a switch
        // is in progress and the stay is already over, the next switch finds a stay without an end,
        // and counts no more of it than was shown.
        b.store(Size::B8, account, SINCE as i16, now);
        b.jmp(done);
    });
    // The clocks of two CPUs may differ.
    b.br(Jmp::Lt, now, since, done);
    let stay = b.sub(now, since);
    b.update(Alu::Add, sum, stay);
    b.bind(done);
    sum
}

/// Freezes the thread's account. This is the first operation of a program in a session that uses
/// `vtimestamp`. `runtime` is given where the program reads the value: the offset of the kernel's
/// own account in the task. The account is then created. When that fails, counts a dynamic drop,
/// and the value reads 0.
pub fn vtime_begin(b: &mut Builder, firing: &Firing, runtime: Option<i16>) -> Account {
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let found = account(b, task, runtime.is_some());
    let (frozen, value) = (b.copy(0), b.copy(0));
    let (none, made, done) = (b.label(), b.label(), b.label());
    b.br(Jmp::Eq, found, 0, none);
    if runtime.is_none() {
        // The context that creates the account was interrupted.
        let stands = b.load(Size::B8, found, MADE as i16);
        b.br(Jmp::Eq, stands, 0, done);
    }
    let state = b.cmpxchg(found, STATE as i16, 0, BEGINS);
    b.if_(Jmp::Eq, state, 0, |b| {
        if let Some(at) = runtime {
            let stands = b.load(Size::B8, found, MADE as i16);
            b.br(Jmp::Ne, stands, 0, made);
            let before = b.load(Size::B8, task, at);
            b.store(Size::B8, found, TOTAL as i16, before);
            b.store(Size::B8, found, LAST as i16, before);
            let now = b.call(Helper::KTIME_GET_NS, &[]);
            b.store(Size::B8, found, SINCE as i16, now);
            b.store(Size::B8, found, MADE as i16, 1);
        }
        b.bind(made);
        let raw = raw(b, found);
        b.store(Size::B8, found, RAW as i16, raw);
        let ours = b.load(Size::B8, found, OURS as i16);
        let last = b.load(Size::B8, found, LAST as i16);
        let difference = b.sub(raw, ours);
        let net = b.copy(difference);
        b.if_(Jmp::Slt, net, last, |b| {
            // During a switch, the stay that ends may be missing from both terms.
            b.set(net, last);
        });
        b.set(value, net);
        let word = b.add(net, FROZEN);
        b.xchg(found, STATE as i16, word);
        b.set(frozen, found);
        b.jmp(done);
    });
    take_frozen(b, found, state, value, done);
    b.out_of_line(|b| {
        b.bind(none);
        if runtime.is_some() {
            count_drop(b, firing, DropKind::Dynamic);
        }
        b.jmp(done);
    });
    Account { frozen, value }
}

/// Unfreezes the account, as the last operation of such a program. The time since [`vtime_begin`]
/// belongs to the tracer.
pub fn vtime_end(b: &mut Builder, account: &Account) {
    b.if_(Jmp::Ne, account.frozen, 0, |b| {
        let raw = raw(b, account.frozen);
        let before = b.load(Size::B8, account.frozen, RAW as i16);
        let took = b.sub(raw, before);
        let ours = b.load(Size::B8, account.frozen, OURS as i16);
        let ours = b.add(ours, took);
        b.store(Size::B8, account.frozen, LAST as i16, account.value);
        b.store(Size::B8, account.frozen, OURS as i16, ours);
        b.xchg(account.frozen, STATE as i16, 0);
    });
}

/// The frozen value, in a function of a program that froze the account.
pub fn vtime_frozen(b: &mut Builder) -> V {
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let found = account(b, task, false);
    let (value, done) = (b.copy(0), b.label());
    b.br(Jmp::Eq, found, 0, done);
    let state = b.load(Size::B8, found, STATE as i16);
    take_frozen(b, found, state, value, done);
    value
}

/// Sets `value` to that of an account in this state: the frozen one, or while it is being frozen
/// the last one that was shown. Binds `done`.
fn take_frozen(b: &mut Builder, account: V, state: V, value: V, done: Label) {
    b.if_(Jmp::Gt, state, BEGINS, |b| {
        let net = b.sub(state, FROZEN);
        b.set(value, net);
        b.jmp(done);
    });
    let last = b.load(Size::B8, account, LAST as i16);
    b.set(value, last);
    b.bind(done);
}

/// The typed program for `sched_switch(preempt, prev, next)`: ends one stay and begins another.
pub fn vtime_switch(b: &mut Builder) {
    let ctx = b.param(0);
    let (next, begins, out) = (b.label(), b.label(), b.label());
    let now = b.call(Helper::KTIME_GET_NS, &[]);
    let task = b.load(Size::B8, ctx, 8);
    let found = account(b, task, false);
    b.br(Jmp::Eq, found, 0, next);
    let since = b.load(Size::B8, found, SINCE as i16);
    b.br(Jmp::Eq, since, 0, next);
    // First, so that an interrupting context does not count the stay twice.
    b.store(Size::B8, found, SINCE as i16, 0);
    b.br(Jmp::Lt, now, since, next);
    let total = b.load(Size::B8, found, TOTAL as i16);
    let stay = b.sub(now, since);
    b.update(Alu::Add, total, stay);
    b.store(Size::B8, found, TOTAL as i16, total);
    b.bind(next);
    let task = b.load(Size::B8, ctx, 16);
    let found = account(b, task, false);
    b.br(Jmp::Eq, found, 0, out);
    // The end of the last stay was not observed (the account was created, or a stay begun, after
    // this program ran). When the thread left the CPU is unknown, so only the time that was shown
    // counts.
    let since = b.load(Size::B8, found, SINCE as i16);
    b.br(Jmp::Eq, since, 0, begins);
    let last = b.load(Size::B8, found, LAST as i16);
    let ours = b.load(Size::B8, found, OURS as i16);
    let shown = b.add(last, ours);
    let total = b.load(Size::B8, found, TOTAL as i16);
    b.br(Jmp::Sle, shown, total, begins);
    b.store(Size::B8, found, TOTAL as i16, shown);
    b.bind(begins);
    let now = b.call(Helper::KTIME_GET_NS, &[]);
    b.store(Size::B8, found, SINCE as i16, now);
    b.bind(out);
    b.exit(0);
}
