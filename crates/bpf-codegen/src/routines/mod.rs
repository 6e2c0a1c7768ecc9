//! The kernel side of the data plane: operations of programs on the structures of `plane`.
//!
//! Each routine emits MIR for one operation. Short code and common cases are inline, rare cases are
//! subprograms. All sizes come from a [`Plan`]. The decision that shapes the routines: *a routine
//! never passes a failure up*. A failed operation counts a drop itself (one atomic add on the CPU's
//! page) and then jumps to the caller's label or returns 0. So no caller can forget a drop.
//!
//! The verifier of 6.1 must see every bound. Positions are masked and then compared with `size -
//! length` before they become pointers. A subprogram's result (an offset) is compared again. An
//! offset never comes from a chain of branches with a different constant in each, because the
//! verifier would process the rest of the program for each.
//!
//! ```text
//!  mod      Firing (CPU index, control element), activity, exit, drops, doorbell
//!  record   reserve, commit, discard, fault records
//!  slot     scratch slots                        clock      the firing's clock
//!  agg      finding a key's slot                agg_value  adding to its value
//!  assoc    associative arrays                  thread     self->, context level
//!  memory   resolving addresses of D memory
//!  chill    holding the CPU                     heartbeat  supervising the session
//!  slow_clock  slow clocks                     speculation  speculations and their rings
//!  overwrite  records of rings that keep the newest
//!  owned    elements of self-> arrays and their threads
//!  vtime    vtimestamp
//!  tracer_frames  the tracer's own frames in a stack
//!  stack    stacks into the stack store         words      zeroing, copying, comparing memory
//!  unwind   stacks of processes by tables       window   memory of a process, a page at a time
//!  runtimes  the frames of language runtimes in stacks
//!  siphash  the keyed hash of stacks            shares   who has how much of a table
//!  path     names of files                      args       arguments of a process
//!  packet   packets of socket buffers
//!  probes   rows of the probe table             processes  the set of processes
//!  numbers  the numbers of processes in the tracer's pid namespace
//! ```

mod agg;
mod agg_value;
mod args;
mod assoc;
mod chill;
mod clock;
mod heartbeat;
mod memory;
mod numbers;
mod orc;
mod overwrite;
mod owned;
mod packet;
mod path;
mod probes;
mod processes;
mod record;
mod runtimes;
mod shares;
mod siphash;
mod slot;
mod slow_clock;
mod speculation;
mod stack;
mod thread;
mod tracer_frames;
mod unwind;
mod vtime;
mod walk;
mod window;
pub(crate) mod words;

pub use agg::aggregate;
pub(crate) use args::args;
pub use assoc::{
    assoc_add, assoc_delete, assoc_load_bytes, assoc_load_int, assoc_store_bytes, assoc_store_int,
};
pub use chill::chill;
pub use clock::Clock;
pub use heartbeat::heartbeat;
pub use memory::{AddressSpace, LookupState, Object, ObjectLocation, resolve, store, unstage};
pub use numbers::{Numbered, current_number, number_of};
pub use orc::KERNEL_ROWS;
pub use overwrite::{WriterCount, held};
pub use owned::end_of_thread;
pub(crate) use packet::packet;
pub(crate) use path::{NAME, path};
pub(crate) use probes::{name_text, row_epid, row_fact};
pub use probes::{probe_of_cookie, probe_row, row_has_clause};
pub use processes::{enter, inherit, leave, require_member};
pub use record::{RecordRef, Reserve, commit, discard, fault_record, reopen, reserve, reserve_by_call, ring};
pub use slot::{Purpose, Slot, release_slot, slot_at, take_slot};
pub use slow_clock::slow_clock;
pub use speculation::{
    SpeculationRef, end_speculation, reopen_speculative, require_active, reserve_speculative,
    reserve_speculative_by_call, speculation, speculation_of,
};
pub use stack::{Calls, generation, keep_calls, keep_stack};
pub use thread::{ThreadRef, ThreadStorage, context_level, level_of, self_key_word, self_vars};
pub use tracer_frames::{CACHED, tracer_functions};
pub use vtime::{Account, vtime_begin, vtime_end, vtime_frozen, vtime_switch};
pub use walk::{Walk, expect_walk, stack_area, stack_depth, stack_frame, walk, walk_once};
pub use words::{read_by, zero};

use plane::control::{self, Activity, DropKind};

use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Operand, Size, StackSlot, V};
use crate::plan::{Area, Plan};

/// Maximum number of words of a key in registers. Longer keys are in memory.
pub const KEY_WORDS_MAX: usize = 6;

/// The state of the firing that every routine needs. Each function creates its own, because the
/// fields are registers.
#[derive(Clone, Copy, Debug)]
pub struct Firing {
    /// The real CPU.
    pub cpu: V,
    /// The CPU index.
    pub index: V,
    /// Address of the CPU's control element.
    pub percpu: V,
    /// Address of the CPU's ring, where the function has looked it up.
    pub ring: Option<V>,
    /// Space for keys on the stack, shared by all routines of the function.
    pub(crate) words: StackSlot,
}

/// A key of an aggregation or associative array.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// At most [`KEY_WORDS_MAX`] words. Empty for a keyless aggregation.
    Words(&'a [V]),
    /// The key in memory, in the layout of its columns.
    Memory(InSlot),
}

/// A scratch slot, as clauses refer to it.
#[derive(Clone, Copy, Debug)]
pub struct SlotRef {
    /// The slot's address.
    pub address: V,
    /// The slot's number among all slots.
    pub number: V,
}

/// A position in a scratch slot. A global function finds the slot by its number: kernels as old as
/// 6.1 do not accept an address that is a parameter as a key or value of a map.
#[derive(Clone, Copy, Debug)]
pub struct InSlot {
    /// The slot.
    pub slot: SlotRef,
    /// Offset from the slot's start.
    pub offset: u32,
}

impl InSlot {
    /// The address, in the function that took the slot.
    pub fn address(self, b: &mut Builder) -> V {
        b.add(self.slot.address, self.offset)
    }
}

/// Determines the CPU. Every function that calls routines starts with this.
pub fn firing(b: &mut Builder, plan: &Plan) -> Firing {
    let cpu = b.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
    let words = b.stack(8 * (KEY_WORDS_MAX as u32 + 1));
    firing_on(b, plan, cpu, words)
}

fn firing_on(b: &mut Builder, plan: &Plan, cpu: V, words: StackSlot) -> Firing {
    if plan.cpus == 1 {
        let index = b.imm(0);
        let percpu = b.map_value(MapRef::PerCpu, 0);
        return Firing { cpu, index, percpu, ring: None, words };
    }
    let index = b.copy(cpu);
    let (late, ok) = (b.label(), b.label());
    b.br(Jmp::Ge, index, plan.cpus, late);
    b.bind(ok);
    b.out_of_line(|b| {
        b.bind(late);
        b.update(Alu::Mod, index, plan.cpus);
        b.br(Jmp::Lt, index, plan.cpus, ok);
        // Never taken, but the verifier does not know the bound of a modulus.
        b.set(index, 0);
        b.jmp(ok);
    });
    let base = b.map_value(MapRef::PerCpu, 0);
    let offset = b.mul(index, control::PERCPU_STRIDE);
    let percpu = b.add(base, offset);
    Firing { cpu, index, percpu, ring: None, words }
}

/// Jumps to `inactive` unless the session's activity is `expect`: `Active` for probes, `Warmup` for
/// BEGIN, `Draining` for END. ERROR is part of the program that faulted.
pub fn gate(b: &mut Builder, expect: Activity, inactive: Label) {
    let control = b.map_value(MapRef::Control, control::ACTIVITY);
    let state = b.load(Size::B1, control, 0);
    b.br(Jmp::Ne, state, expect as u8, inactive);
}

/// Counts a firing of a clock in [`MapRef::Served`], which has `words` words.
pub fn count_served(b: &mut Builder, words: u32) {
    let cpu = b.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
    b.if_(Jmp::Lt, cpu, words, |b| {
        let base = b.map_value(MapRef::Served, 0);
        let offset = b.shl(cpu, 3);
        let word = b.add(base, offset);
        b.atomic_add(word, 0, 1);
    });
}

/// `exit(status)`: changes WARMUP or ACTIVE to DRAINING with this status, and wakes the consumer.
/// Any other state is kept, so the first exit wins. In END (`at_end`) the status takes the place of
/// the one that is there: END's program runs once, when no other does.
pub fn exit(b: &mut Builder, firing: &Firing, status: V, at_end: bool) {
    if at_end {
        let control = b.map_value(MapRef::Control, control::ACTIVITY);
        b.store(Size::B4, control, 4, status);
        return;
    }
    b.call_global("dt_exit", &[Arg::Word(status)], |b| {
        let control = b.map_value(MapRef::Control, control::ACTIVITY);
        let high = b.shl(b.param(0), 32);
        let draining = b.or(high, Activity::Draining as u8);
        let done = b.label();
        // BEGIN's state first. If the consumer changes it to ACTIVE in between, the second attempt
        // succeeds.
        for from in [Activity::Warmup, Activity::Active] {
            let expected = control::activity_word(from, 0) as i64;
            let old = b.cmpxchg(control, 0, expected, draining);
            b.br(Jmp::Eq, old, expected, done);
        }
        b.bind(done);
        b.exit(0);
    });
    ring_doorbell(b, firing);
}

/// Requests a snapshot of the rings, and wakes the consumer for it.
pub fn snap(b: &mut Builder, firing: &Firing) {
    let snaps = b.map_value(MapRef::Control, control::SNAPS);
    b.atomic_add(snaps, 0, 1);
    ring_doorbell(b, firing);
}

/// Counts a drop.
pub fn count_drop(b: &mut Builder, firing: &Firing, kind: DropKind) {
    b.atomic_add(firing.percpu, kind.offset() as i16, 1);
}

/// Wakes the consumer.
pub(crate) fn ring_doorbell(b: &mut Builder, firing: &Firing) {
    const FORCE_WAKEUP: i64 = 2;
    let failed = b.call_global("dt_doorbell", &[], |b| {
        let data = b.stack(8);
        b.slot_store(Size::B8, data, 0, 0);
        let map = b.map(MapRef::Doorbell);
        let data = b.slot_addr(data, 0);
        let (size, flags) = (b.imm(8), b.imm(FORCE_WAKEUP));
        let r = b.call(Helper::RINGBUF_OUTPUT, &[map, data, size, flags]);
        b.exit(r);
    });
    let (drop, done) = (b.label(), b.label());
    b.br(Jmp::Ne, failed, 0, drop);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(drop);
        count_drop(b, firing, DropKind::Doorbell);
        b.jmp(done);
    });
}

/// The address of element `index` of an area. The verifier must know the bound of `index`, or
/// `index` is constant. Jumps to `bad` if there is no such element, which does not happen.
pub(crate) fn element(
    b: &mut Builder,
    area: Area,
    index: impl Into<Operand>,
    key: StackSlot,
    bad: Label,
) -> V {
    let index = index.into();
    if area.direct() {
        let base = b.map_value(area.map, area.at);
        return match index {
            Operand::Imm(0) => base,
            Operand::Imm(i) => b.add(base, i * i64::from(area.stride)),
            Operand::V(_) if area.count == 1 => base,
            Operand::V(v) => {
                let offset = b.mul(v, area.stride);
                b.add(base, offset)
            }
        };
    }
    b.slot_store(Size::B4, key, 0, index);
    let map = b.map(area.map);
    let key = b.slot_addr(key, 0);
    let base = b.call(Helper::MAP_LOOKUP_ELEM, &[map, key]);
    b.br(Jmp::Eq, base, 0, bad);
    if area.at == 0 { base } else { b.add(base, area.at) }
}

/// The key's address. Words are written to the stack.
pub(crate) fn key_address(b: &mut Builder, firing: &Firing, key: Key<'_>) -> V {
    match key {
        Key::Memory(place) => place.address(b),
        Key::Words(words) => {
            for (i, w) in (0..).zip(words) {
                b.slot_store(Size::B8, firing.words, 8 * i, *w);
            }
            b.slot_addr(firing.words, 0)
        }
    }
}

/// `base + at` as base and offset for loads and stores of `bytes` bytes. Their offsets reach 32
/// KiB.
pub fn near(b: &mut Builder, base: V, at: u32, bytes: u32) -> (V, i16) {
    match i16::try_from(u64::from(at) + u64::from(bytes)) {
        Ok(_) => (base, at as i16),
        Err(_) => (b.add(base, at), 0),
    }
}
