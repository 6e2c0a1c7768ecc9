//! The heartbeat program decides like the model [`plane::deadman::HeartbeatState::beat`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsRawFd;

use bpf_sys::{Prog, ProgKind, monotonic_ns};
use plane::control::{
    ACTIVITY, ALARM, Activity, HEARTBEAT_LAST, HEARTBEAT_LATE, HEARTBEAT_SEEN, HEARTBEAT_SILENT, LIFE,
    SHOWN_LATE, SHOWN_SILENT,
};
use plane::deadman::{HeartbeatState, Limits, Reason};

use crate::session::{Run, Setup, pin, privileged};

/// A second in this test. A guest may not have run for as long as the real limits.
const S: u64 = 10_000_000;
const LIMITS: Limits = Limits { interval: S, late: 10 * S, silent: 30 * S };

fn session() -> Run {
    let text = "module strsize 16\nstring s0 = \"\"\nclause \"c\" {\nb0:\n    return\n}\n";
    Run::new(Setup::new(dif::text::parse(text).unwrap()))
}

fn program(run: &Run, limits: Limits, kills: bool) -> Prog {
    let plan = &run.maps.plan;
    let made = bpf_runtime::program::heartbeat(ProgKind::RawTracepoint, plan, limits, kills).unwrap();
    let image = made.image(|m| run.maps.get(m).map(AsRawFd::as_raw_fd), None).unwrap();
    image.load(0).unwrap_or_else(|e| panic!("{e}")).prog
}

/// Runs one heartbeat in the kernel and one in the model, from the same state. Both must leave the
/// same state.
fn beat(
    run: &Run,
    prog: &Prog,
    limits: Limits,
    kills: bool,
    before: HeartbeatState,
    life: u64,
) -> Option<Reason> {
    run.set_control(ACTIVITY, Activity::Active as u64);
    run.set_control(ALARM, 0);
    run.set_control(LIFE, life);
    for (at, value) in [
        (HEARTBEAT_LAST, before.last),
        (HEARTBEAT_SEEN, before.seen),
        (HEARTBEAT_SILENT, before.silent),
        (HEARTBEAT_LATE, before.late),
        (SHOWN_LATE, S),
        (SHOWN_SILENT, S),
    ] {
        run.set_percpu(at, value);
    }
    prog.test_run(&[], None).unwrap();
    let word = |at| run.percpu(at);
    let now = word(HEARTBEAT_LAST);
    let mut model = before;
    let why = model.beat(now, life, limits);
    let kernel = HeartbeatState {
        last: now,
        seen: word(HEARTBEAT_SEEN),
        silent: word(HEARTBEAT_SILENT),
        late: word(HEARTBEAT_LATE),
    };
    assert_eq!(kernel, model, "from {before:?} at {now}, life {life}, {limits:?}");
    let lived = model.silent == 0;
    let shown_late = if lived { S } else { model.late.max(S) };
    assert_eq!((word(SHOWN_LATE), word(SHOWN_SILENT)), (shown_late, model.silent.max(S)));
    let control = run.maps.get(bpf_codegen::mir::MapRef::Control).unwrap().mmap(true).unwrap();
    let control = plane::control::Control::new(control.words()).unwrap();
    assert_eq!(control.take_alarm(), why, "from {before:?} at {now}, life {life}, {limits:?}");
    let after = if why.is_some() && kills { Activity::Killed } else { Activity::Active };
    assert_eq!(run.activity(), after as u64);
    why
}

#[test]
fn the_kernels_heartbeat_decides_like_the_model() {
    if !privileged("heartbeat") {
        return;
    }
    pin();
    let run = session();
    let mut alarms = [0; 3];
    for limits in [LIMITS, Limits { late: 0, ..LIMITS }, Limits { silent: 0, ..LIMITS }] {
        for kills in [true, false] {
            let prog = program(&run, limits, kills);
            let ago = [0, S / 2, 2 * S, 9 * S, 12 * S, 3600 * S];
            for ago in ago {
                for (late, silent) in [(0, 0), (S / 2, 24 * S), (S, 26 * S), (11 * S, 40 * S)] {
                    for seen in [7, 8] {
                        let now = monotonic_ns();
                        let last = if ago == 0 { 0 } else { now.saturating_sub(ago).max(1) };
                        let why =
                            beat(&run, &prog, limits, kills, HeartbeatState { last, seen, silent, late }, 8);
                        alarms[why.map_or(0, |w| w as usize)] += 1;
                    }
                }
            }
            // The clock is behind that of the previous heartbeat.
            let last = monotonic_ns() + 3600 * S;
            beat(&run, &prog, limits, kills, HeartbeatState { last, ..HeartbeatState::default() }, 1);
        }
    }
    assert!(alarms.iter().all(|n| *n > 0), "{alarms:?}");
}

#[test]
fn heartbeats_do_nothing_unless_the_session_is_active() {
    if !privileged("heartbeat") {
        return;
    }
    pin();
    let run = session();
    let prog = program(&run, LIMITS, true);
    for state in [Activity::Warmup, Activity::Draining, Activity::Stopped, Activity::Killed] {
        run.set_control(ACTIVITY, state as u64);
        run.set_percpu(HEARTBEAT_SILENT, 40 * S);
        prog.test_run(&[], None).unwrap();
        assert_eq!((run.activity(), run.percpu(HEARTBEAT_LAST)), (state as u64, 0));
    }
}
