//! The clock of a firing, read once, at its first use. [`plane::order`] gives the reasons.

use plane::control::CLOCKS;
use plane::scratch::SLOTS;

use super::Firing;
use crate::mir::{Builder, Helper, Jmp, Size, V};

/// The storage of a firing's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// No storage: of the clauses that run for one probe, only one uses the clock.
    Once,
    /// In a register of the program, which is 0 until the clock is read.
    Register(V),
    /// In the word of the scratch slot with this number, where functions of the program and the
    /// consumer find it.
    Slot(V),
}

impl Clock {
    /// The time of the firing.
    pub fn read(self, b: &mut Builder, firing: &Firing) -> V {
        let known = b.label();
        match self {
            Clock::Once => b.call(Helper::KTIME_GET_NS, &[]),
            Clock::Register(time) => {
                b.br(Jmp::Ne, time, 0, known);
                let now = b.call(Helper::KTIME_GET_NS, &[]);
                b.set(time, now);
                b.bind(known);
                time
            }
            Clock::Slot(number) => {
                let word = word(b, firing, number);
                let time = b.var();
                let before = b.load(Size::B8, word, CLOCKS as i16);
                b.set(time, before);
                b.br(Jmp::Ne, before, 0, known);
                let now = b.call(Helper::KTIME_GET_NS, &[]);
                b.set(time, now);
                b.store(Size::B8, word, CLOCKS as i16, now);
                b.bind(known);
                time
            }
        }
    }

    /// Clears the clock, before the slot is released.
    pub fn forget(self, b: &mut Builder, firing: &Firing) {
        if let Clock::Slot(number) = self {
            let word = word(b, firing, number);
            b.store(Size::B8, word, CLOCKS as i16, 0);
        }
    }
}

/// The address [`CLOCKS`] bytes below the word of a slot.
fn word(b: &mut Builder, firing: &Firing, number: V) -> V {
    let within = b.and(number, i64::from(SLOTS - 1));
    let offset = b.shl(within, 3);
    b.add(firing.percpu, offset)
}
