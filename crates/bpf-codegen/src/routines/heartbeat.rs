//! The heartbeat: the kernel side of [`plane::deadman::HeartbeatState::beat`].

use plane::control::{
    ACTIVITY, ALARM, Activity, HEARTBEAT_LAST, HEARTBEAT_LATE, HEARTBEAT_SEEN, HEARTBEAT_SILENT, LIFE,
    SHOWN_LATE, SHOWN_SILENT, activity_word,
};
use plane::deadman::{Limits, Reason};

use super::{firing, gate};
use crate::mir::{Alu, Builder, Helper, Jmp, Label, MapRef, Size, V};
use crate::plan::Plan;

/// Emits the whole program. With `kills` an alarm ends the session, else the alarm is only
/// reported.
pub fn heartbeat(b: &mut Builder, plan: &Plan, limits: Limits, kills: bool) {
    let (out, after) = (b.label(), b.label());
    gate(b, Activity::Active, out);
    let cpu = firing(b, plan).percpu;
    let now = b.call(Helper::KTIME_GET_NS, &[]);
    let last = b.load(Size::B8, cpu, HEARTBEAT_LAST as i16);
    b.store(Size::B8, cpu, HEARTBEAT_LAST as i16, now);
    let since = b.copy(0);
    b.br(Jmp::Eq, last, 0, after);
    b.br(Jmp::Lt, now, last, after);
    let passed = b.sub(now, last);
    b.set(since, passed);
    b.bind(after);
    let before = b.load(Size::B8, cpu, HEARTBEAT_LATE as i16);
    let interval = b.imm(limits.interval as i64);
    let late = b.copy(0);
    b.if_(Jmp::Gt, since, interval, |b| {
        let over = b.sub(since, interval);
        b.set(late, over);
    });
    b.store(Size::B8, cpu, HEARTBEAT_LATE as i16, late);
    let life = b.map_value(MapRef::Control, LIFE);
    let life = b.load(Size::B8, life, 0);
    let seen = b.load(Size::B8, cpu, HEARTBEAT_SEEN as i16);
    let silent = b.copy(0);
    b.if_else(
        Jmp::Eq,
        life,
        seen,
        |b| {
            let most = b.imm(limits.max_step() as i64);
            b.if_(Jmp::Gt, since, most, |b| {
                b.set(since, most);
            });
            let so_far = b.load(Size::B8, cpu, HEARTBEAT_SILENT as i16);
            b.set(silent, so_far);
            b.update(Alu::Add, silent, since);
        },
        |b| {
            b.store(Size::B8, cpu, HEARTBEAT_SEEN as i16, life);
        },
    );
    b.store(Size::B8, cpu, HEARTBEAT_SILENT as i16, silent);
    show(b, cpu, SHOWN_SILENT, silent);
    // On some kernels a CPU that was idle is late although the consumer was alive.
    b.if_(Jmp::Ne, silent, 0, |b| {
        show(b, cpu, SHOWN_LATE, late);
    });
    if limits.silent != 0 {
        let limit = b.imm(limits.silent as i64);
        b.if_(Jmp::Ge, silent, limit, |b| {
            alarm(b, Reason::Silent, kills, out);
        });
    }
    if limits.late != 0 {
        let limit = b.imm(limits.late as i64);
        b.br(Jmp::Eq, silent, 0, out);
        b.br(Jmp::Lt, before, interval, out);
        b.br(Jmp::Lt, late, limit, out);
        alarm(b, Reason::Late, kills, out);
    }
    b.bind(out);
    b.exit(0);
}

/// Keeps the maximum, for the consumer.
fn show(b: &mut Builder, cpu: V, at: u32, value: V) {
    let shown = b.load(Size::B8, cpu, at as i16);
    b.if_(Jmp::Gt, value, shown, |b| {
        b.store(Size::B8, cpu, at as i16, value);
    });
}

fn alarm(b: &mut Builder, why: Reason, kills: bool, out: Label) {
    let control = b.map_value(MapRef::Control, ALARM);
    b.store(Size::B8, control, 0, why as i64);
    if kills {
        let control = b.map_value(MapRef::Control, ACTIVITY);
        // If the session is ended elsewhere at the same time, that end wins.
        let (from, to) = (activity_word(Activity::Active, 0), activity_word(Activity::Killed, 0));
        b.cmpxchg(control, 0, from as i64, to as i64);
    }
    b.jmp(out);
}
