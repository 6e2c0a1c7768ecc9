//! How the program of a clock finds its probe and its arguments: for all providers whose probes are
//! perf events.

use bpf_codegen::arch::Mark;
use bpf_codegen::context::{Context, Index, StackStart};
use bpf_codegen::mir::{Alu, Builder, Helper, Jmp, Label, Size, V};
use bpf_codegen::routines;

/// The offsets that lead to the time at which a perf event's timer was due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Of the event in the program's context (`struct bpf_perf_event_data_kern`).
    pub(crate) event: i16,
    /// Of the time in the event.
    pub(crate) expires: i32,
}

/// The context of a program on a perf event. It begins with the interrupted registers.
pub(crate) struct Sample {
    /// For `arg2`, if the event has a timer.
    pub(crate) late: Option<Due>,
    /// A clock whose program runs several times a period.
    pub(crate) slow: Option<Slow>,
    /// The program counts the firings that it serves, by CPU; the CPUs' numbers are below this.
    pub(crate) counted: Option<u32>,
}

/// A slow clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    /// Its number, which no other of the session has.
    pub(crate) clock: u32,
    /// Nanoseconds of a period.
    pub(crate) period: u64,
    /// Nanoseconds between two runs of the program.
    pub(crate) chance: u64,
}

impl Sample {
    /// Nanoseconds since the firing was due. The context as the verifier knows it has no such time.
    /// The structure that the kernel passes points to the event, whose timer is set again only
    /// after the program has run.
    fn late(&self, b: &mut Builder, ctx: V) -> V {
        let late = b.copy(0);
        let Some(due) = self.late else { return late };
        let buffer = b.stack(8);
        let done = b.label();
        let read = |b: &mut Builder, base: V, at: i32| {
            routines::read_by(b, Helper::PROBE_READ_KERNEL, (buffer, 0), (base, at), Size::B8, done)
        };
        let event = read(b, ctx, i32::from(due.event));
        let expires = read(b, event, due.expires);
        let now = b.call(Helper::KTIME_GET_NS, &[]);
        // The timer may have read the clock a little later than this program.
        b.br(Jmp::Le, now, expires, done);
        let by = b.alu(Alu::Sub, now, expires);
        b.set(late, by);
        b.bind(done);
        late
    }
}

impl Context for Sample {
    fn first(&self, b: &mut Builder) {
        if let Some(cpus) = self.counted.filter(|_| self.slow.is_none()) {
            routines::count_served(b, cpus);
        }
    }

    fn index(&self, b: &mut Builder, ctx: V, miss: Label) -> Index {
        if let Some(slow) = self.slow {
            routines::slow_clock(b, ctx, slow.clock, slow.period, slow.chance, miss);
            if let Some(cpus) = self.counted {
                // Not every run is a firing.
                routines::count_served(b, cpus);
            }
        }
        Index::Const(0)
    }

    fn stack_start(&self) -> Option<StackStart> {
        Some(StackStart::Interrupted)
    }

    fn arg(&self, b: &mut Builder, ctx: V, _index: Index, n: u8) -> V {
        match n {
            0 | 1 => {}
            2 => return self.late(b, ctx),
            _ => return b.imm(0),
        }
        // arg0 is the program counter of the kernel's code, arg1 that of user code; the other one
        // is 0.
        let done = b.label();
        let value = b.copy(0);
        let Mark { at, mask, value: user } = b.machine().user;
        let saved = b.load(Size::B8, ctx, at);
        let level = b.alu(Alu::And, saved, mask);
        // The kernel's level is 0 where that of processes is not.
        b.br(if (n == 0) == (user == 0) { Jmp::Eq } else { Jmp::Ne }, level, 0, done);
        let ip = b.load(Size::B8, ctx, b.machine().ip);
        b.set(value, ip);
        b.bind(done);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_tests::compare;

    #[test]
    fn what_was_interrupted_is_found_on_each_machine() {
        compare("sample", &Sample { late: None, slow: None, counted: None }, &[0, 1]);
    }
}
