//! The context of a probe, as the code generator sees it.
//!
//! Providers differ in three questions (which probe, which argument, which error), which they
//! answer through [`Context`] while code is generated. So a provider emits three loads and knows
//! nothing of records, and the generator knows nothing of providers. Selection, routines and the
//! programs around the clauses use these types.

use crate::mir::{Alu, Builder, Helper, Label, MapRef, Size, StackSlot, V};

/// Which probe of a program fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// Always this one.
    Const(u32),
    /// The number in this register. It may have any value, and is compared with the number of
    /// probes.
    V(V),
    /// The probe of a row of the probe table ([`plane::probe_table`]), in a program that serves
    /// probes that come later.
    Row {
        /// The number of the row.
        row: V,
        /// The address of the row.
        at: V,
    },
}

/// The clauses of a program that runs them several times in one firing of what it is attached to:
/// for each item of a list of the kernel. Each time is a firing of the probe.
///
/// What the loop keeps from one turn to the next is in the program's frame, the *state*. The
/// clauses are a callback, which reaches nothing else of the program. So its context is the address
/// of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    /// The most turns.
    pub turns: u32,
    /// Bytes of the state.
    pub state: u32,
}

/// Where the walk of the kernel's stack begins, if a program walks it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackStart {
    /// At the registers of the context, those of a function of the kernel.
    Function,
    /// At the registers of the context, those of what was interrupted: the kernel, a process or a
    /// guest.
    Interrupted,
    /// At the function that has called the program.
    Caller,
    /// At the function whose trampoline has called the program.
    Trampoline,
}

/// The provider's part of a program: loads from the program's context. An implementation emits code
/// and holds no state.
pub trait Context: Send + Sync {
    /// Emits what every firing does first, whatever the state of the session.
    fn first(&self, b: &mut Builder) {
        let _ = b;
    }

    /// Which probe fired. May jump to `miss` when it is none of the program's.
    fn index(&self, b: &mut Builder, ctx: V, miss: Label) -> Index {
        let _ = (b, ctx, miss);
        Index::Const(0)
    }

    /// The sets of processes in which alone the probes fire ([`plane::processes`]), one bit each.
    /// `None`: they fire in every process that comes to where the program is attached.
    fn process_sets(&self) -> Option<u64> {
        None
    }

    /// True if a firing is one of the process's own provider: `probeprov` has the id of the process
    /// that fired, and not one that was known when the program was made.
    fn is_of_any_process(&self) -> bool {
        false
    }

    /// The attach cookie, which tells a program that serves probes that come later its row of the
    /// probe table.
    fn cookie(&self, b: &mut Builder, ctx: V) -> V {
        b.call(Helper::GET_ATTACH_COOKIE, &[ctx])
    }

    /// A description of the code that this context emits, if the same code serves probes that come
    /// later: contexts with equal descriptions emit the same. `None` where the code has something
    /// of its probes.
    fn shape(&self) -> Option<String> {
        None
    }

    /// How the clauses are repeated, if they are. The program has one probe then.
    fn repeats(&self) -> Option<Repeats> {
        None
    }

    /// Emits what initializes the state. Jumps to `out` where there is nothing to go through.
    fn first_turn(&self, b: &mut Builder, ctx: V, state: StackSlot, out: Label) {
        let _ = (b, ctx, state, out);
    }

    /// Emits the beginning of a turn, which finds its item. Jumps to `end` behind the last one.
    fn turn(&self, b: &mut Builder, state: V, end: Label) {
        let _ = (b, state, end);
    }

    /// The context that the kernel gave the program, which helpers require, where `ctx` is that of
    /// the clauses.
    fn program(&self, b: &mut Builder, ctx: V) -> V {
        let _ = b;
        ctx
    }

    /// `argN` as a raw value, 0 where the probe has no such argument.
    fn arg(&self, b: &mut Builder, ctx: V, index: Index, n: u8) -> V {
        let _ = (ctx, index, n);
        b.imm(0)
    }

    /// True if `argN` is read from the memory of the process, which may fail: [`Context::operand`]
    /// reads it.
    fn is_in_memory(&self, n: u8) -> bool {
        let _ = n;
        false
    }

    /// `argN` of the memory of the process. Where it cannot be read, the address is in `at`, and
    /// the code goes to `bad`.
    fn operand(&self, b: &mut Builder, ctx: V, n: u8, at: V, bad: Label) -> V {
        let _ = (ctx, n, at, bad);
        b.imm(0)
    }

    /// `errno`.
    fn errno(&self, b: &mut Builder, ctx: V, index: Index) -> V {
        let _ = (ctx, index);
        b.imm(0)
    }

    /// The bytes that the program counter of the process is behind the place of the probe, where
    /// that may be: the program runs a few instructions later. `None`: it is at the place.
    fn moved_by(&self, b: &mut Builder, ctx: V) -> Option<V> {
        let _ = (b, ctx);
        None
    }

    /// The address in the process at which the function that was just entered finds its return
    /// address. `None`: the program does not run at the entry of functions.
    fn return_address(&self, b: &mut Builder, ctx: V) -> Option<V> {
        let _ = (b, ctx);
        None
    }

    /// The number of innermost kernel frames between the probe and the program, which belong to the
    /// tracer.
    fn tracer_frames(&self) -> u8 {
        0
    }

    /// True when the kernel calls the program from a tracepoint. Where the kernel's dispatch
    /// functions are known, their frames are skipped, however many there are, instead of
    /// [`Context::tracer_frames`].
    fn behind_tracepoint(&self) -> bool {
        false
    }

    /// Where the walk of the kernel's stack begins; `None`: only the kernel's helper knows it. With
    /// `Some`, the first frames are those of a walk by the kernel behind
    /// [`Context::tracer_frames`].
    fn stack_start(&self) -> Option<StackStart> {
        None
    }

    /// The position of the caller's frame, counted without the tracer's frames. Where the probed
    /// function has returned, it is the first.
    fn caller_frame(&self) -> u8 {
        1
    }

    /// The same in the user's stack.
    fn user_caller_frame(&self) -> u8 {
        1
    }

    /// False when `bpf_get_stack` does not accept this context. Stacks are then 0, "could not be
    /// taken".
    fn has_stacks(&self) -> bool {
        true
    }
}

/// A probe of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The id, as `dtrace -l` shows it.
    pub id: u32,
    /// Interned provider, module, function, name. Of a family of processes, the prefix of the
    /// provider.
    pub names: [u32; 4],
    /// The process id that follows this prefix; 0 if the provider is not of a family.
    pub pid: u32,
}

/// The probes of a program for which a clause runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSet {
    /// All probes.
    All,
    /// The probe at this index.
    One(u32),
    /// Bit `i % 64` of word `i / 64` is probe `i`.
    Bitmap(Vec<u64>),
}

impl ProbeSet {
    /// True when the set contains probe `i`.
    pub fn contains(&self, i: u32) -> bool {
        match self {
            ProbeSet::All => true,
            ProbeSet::One(n) => *n == i,
            ProbeSet::Bitmap(words) => words.get(i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 != 0),
        }
    }
}

/// Offset of the rows of facts in a program's table.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTable {
    /// The number of the table in the session ([`MapRef::Table`]).
    pub number: u32,
    /// Offset of the first row.
    pub rows: u32,
    /// Bytes of a row.
    pub stride: u32,
}

impl ProbeTable {
    /// Column `column` of row `index`. The program's prologue has tested the bound of `index`.
    pub(crate) fn fact(&self, b: &mut Builder, index: V, column: usize) -> V {
        let base = b.map_value(MapRef::Table(self.number), self.rows + 4 * column as u32);
        let off = b.alu(Alu::Mul, index, self.stride);
        let row = b.add(base, off);
        b.load(Size::B4, row, 0)
    }
}
