//! The control page and the per-CPU control elements: activity, epoch, drop counters.
//!
//! Everything here is a 64-bit word that several contexts change, and each word has one rule that
//! says who changes it and how. Words that different sides change often are on different cache
//! lines. The key decision: *the initial value of every word is zero*. So a new map needs no
//! initialization, and a short session touches no page that it does not use.
//!
//! ```text
//!  control page (one element of CONTROL_SIZE bytes)
//!     0  activity     exit status << 32 | state       compare-exchange only
//!    64  epoch        aggregation epoch                 consumer adds 1, programs read
//!   128  unique       thread ids, only increasing       fetch-add
//!   192  life         heartbeats of the consumer        consumer adds 1
//!   256  alarm        see [`crate::deadman`]            heartbeats store
//!   264  snaps        snap() of clauses                 fetch-add
//!   320  ticks[472]   last period of each slow clock    its program stores
//!
//!  per-CPU control (PERCPU_STRIDE bytes per CPU index, all in one element)
//!     0  reserve      ring: bytes ever reserved         compare-exchange by programs
//!    64  consumed     ring: bytes ever consumed         consumer stores
//!   128  rung         1: the doorbell was rung          0 -> 1 by programs, -> 0 by the consumer
//!   192  slots        bit i: scratch slot i is taken    compare-exchange; atomic and to release
//!                     bit i + 8: by a firing that publishes its clock, see [`crate::order`]
//!   256  drops[16]    one counter per kind              fetch-add
//!   384  clocks[8]    clock of the firing in slot i     the slot's owner stores; 0 at release
//!   448  chill mark   start of the interval of chill()  programs store
//!   456  chilled      ns of chill() since then          fetch-add
//!   464  heartbeat    six words, see [`crate::deadman`]  the CPU's heartbeat stores
//! ```
//!
//! ```text
//!  WARMUP ──BEGIN done──> ACTIVE ──exit(), ^C, target ended──> DRAINING ──END done──> STOPPED
//!     └───────exit() in BEGIN────────────────────────────────────^
//!  ACTIVE ──alarm of a heartbeat──> KILLED
//! ```
//!
//! **CPU index.** Per-CPU structures are made for the `n` CPUs that are online at the start. A CPU
//! whose number is below `n` has its own. Any other CPU shares those of its number mod `n`. Sharing
//! is correct because every word is changed by atomic operations. So a CPU that comes online later
//! needs no new map.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::deadman::Reason;

/// Bytes of the control page.
pub const CONTROL_SIZE: u32 = 4096;
/// Offset of the activity word in the control page.
pub const ACTIVITY: u32 = 0;
/// Offset of the aggregation epoch in the control page.
pub const EPOCH: u32 = 64;
/// Offset of the counter of unique ids in the control page.
pub const UNIQUE: u32 = 128;
/// Offset of the consumer's heartbeat counter in the control page.
pub const LIFE: u32 = 192;
/// Offset of the alarm word in the control page.
pub const ALARM: u32 = 256;
/// Offset of the number of times that `snap()` was executed in the control page.
pub const SNAPS: u32 = 264;
/// Offset of the words of slow clocks in the control page.
pub const TICKS: u32 = 320;
/// Number of these words; the number of a clock is taken modulo this.
pub const TICKS_MAX: u32 = (CONTROL_SIZE - TICKS) / 8;

/// Bytes of a CPU's control element.
pub const PERCPU_STRIDE: u32 = 512;
/// Offset of the ring's reserve position in a CPU's element.
pub const RESERVE: u32 = 0;
/// Offset of the ring's consumed position in a CPU's element.
pub const CONSUMED: u32 = 64;
/// Offset of the doorbell flag in a CPU's element.
pub const RUNG: u32 = 128;
/// Offset of the mask of taken scratch slots in a CPU's element.
pub const SLOTS_TAKEN: u32 = 192;
/// Offset of the drop counters in a CPU's element.
pub const DROPS: u32 = 256;
/// Space for drop counters, in kinds.
pub const DROP_KINDS_MAX: u32 = 16;
/// Offset of the published clocks in a CPU's element: a word for each scratch slot, 0 while there
/// is none.
pub const CLOCKS: u32 = 384;

/// Offset of the start of `chill()`'s interval in a CPU's element.
pub const CHILL_MARK: u32 = 448;
/// Offset of the nanoseconds that `chill()` held the CPU in its interval.
pub const CHILLED: u32 = 456;
/// Offset of the time of a CPU's last heartbeat.
pub const HEARTBEAT_LAST: u32 = 464;
/// Offset of the consumer's counter at that heartbeat.
pub const HEARTBEAT_SEEN: u32 = 472;
/// Offset of the nanoseconds since that counter changed.
pub const HEARTBEAT_SILENT: u32 = 480;
/// Offset of the lateness of that heartbeat.
pub const HEARTBEAT_LATE: u32 = 488;
/// Offset of the greatest lateness since the consumer last read it.
pub const SHOWN_LATE: u32 = 496;
/// Offset of the longest silence since the consumer last read it.
pub const SHOWN_SILENT: u32 = 504;
/// `chill()`'s interval in nanoseconds.
pub const CHILL_INTERVAL: u64 = 1_000_000_000;
/// Nanoseconds for which `chill()` may hold a CPU in each interval.
pub const CHILL_MOST: u64 = 500_000_000;

/// State of the session: the low 8 bits of the activity word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Activity {
    /// Probes are being enabled; only BEGIN fires.
    Warmup = 0,
    /// Every probe fires.
    Active = 1,
    /// No probe but END fires.
    Draining = 2,
    /// Nothing fires any more.
    Stopped = 3,
    /// Nothing fires any more; the session was stopped for overloading the machine.
    Killed = 4,
}

impl Activity {
    /// The state of an activity word; an unknown one is `Killed`.
    pub fn of(word: u64) -> Activity {
        match word as u8 {
            0 => Activity::Warmup,
            1 => Activity::Active,
            2 => Activity::Draining,
            3 => Activity::Stopped,
            _ => Activity::Killed,
        }
    }

    /// True when the state machine has the edge.
    pub fn may_become(self, next: Activity) -> bool {
        use Activity::{Active, Draining, Killed, Stopped, Warmup};
        matches!(
            (self, next),
            (Warmup, Active | Draining) | (Active, Draining | Killed) | (Draining | Killed, Stopped)
        )
    }
}

/// The activity word of a state; `status` is what `exit()` was given.
pub const fn activity_word(state: Activity, status: u32) -> u64 {
    (status as u64) << 32 | state as u64
}

/// The exit status in an activity word; 0 until an `exit()` won.
pub const fn exit_status(word: u64) -> i32 {
    (word >> 32) as i32
}

/// Why something was not recorded. The number is the index of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropKind {
    /// A record (or fault record) did not fit into its ring; the clause did nothing.
    Principal = 0,
    /// An aggregation found no slot for its key, or lost too many races for its word.
    Aggregation = 1,
    /// A dynamic variable could not be stored, read or deleted: no memory, or busy.
    Dynamic = 2,
    /// A firing found no free scratch slot; its clauses did nothing.
    Scratch = 3,
    /// The stack store was full, or the consumer did not find a stack in it.
    Stack = 4,
    /// A clause of ERROR faulted.
    DoubleError = 5,
    /// The doorbell could not be rung. Nothing is lost by it: the consumer comes by its timer.
    Doorbell = 6,
    /// A speculative buffer was full.
    Speculation = 7,
    /// `speculation()` found only busy buffers.
    SpeculationBusy = 8,
    /// `speculation()` found no free buffer.
    SpeculationUnavailable = 9,
    /// A record was printed after a later one: its firing was delayed for longer than the consumer
    /// waits. Nothing is lost. The consumer counts these; programs do not.
    OutOfOrder = 10,
    /// A process was forked that is to be followed, and the set of processes was full: it is not
    /// traced.
    Process = 11,
    /// The kernel ran none of the programs that follow forks and execs: the process is perhaps not
    /// traced. The session counts these; programs do not.
    Fork = 12,
    /// A function of an interpreter was met whose name could not be stored: it has none in the
    /// stacks of `jstack()`.
    Strings = 13,
}

impl DropKind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [DropKind; 14] = [
        DropKind::Principal,
        DropKind::Aggregation,
        DropKind::Dynamic,
        DropKind::Scratch,
        DropKind::Stack,
        DropKind::DoubleError,
        DropKind::Doorbell,
        DropKind::Speculation,
        DropKind::SpeculationBusy,
        DropKind::SpeculationUnavailable,
        DropKind::OutOfOrder,
        DropKind::Process,
        DropKind::Fork,
        DropKind::Strings,
    ];

    /// Offset of its counter in a CPU's element.
    pub const fn offset(self) -> u32 {
        DROPS + 8 * self as u32
    }

    /// DTrace's tag (`-x droptags`) and the words of a report. `None` for a kind that loses
    /// nothing.
    pub const fn words(self) -> Option<DropWords> {
        let (tag, per_cpu, one, many) = match self {
            DropKind::Principal => ("PRINCIPAL", true, "drop", "drops"),
            DropKind::Aggregation => ("AGGREGATION", true, "aggregation drop", "aggregation drops"),
            DropKind::Dynamic => ("DYNAMIC", false, "dynamic variable drop", "dynamic variable drops"),
            DropKind::Scratch => ("SCRATCH", true, "scratch space drop", "scratch space drops"),
            DropKind::Stack => ("STACK", false, "stack drop", "stack drops"),
            DropKind::DoubleError => {
                ("DBLERROR", false, "error in ERROR probe enabling", "errors in ERROR probe enabling")
            }
            DropKind::Doorbell => return None,
            DropKind::Speculation => ("SPEC", false, "speculative drop", "speculative drops"),
            DropKind::SpeculationBusy => (
                "SPECBUSY",
                false,
                "failed speculation (available buffer still busy)",
                "failed speculations (available buffers still busy)",
            ),
            DropKind::SpeculationUnavailable => (
                "SPECUNAVAIL",
                false,
                "failed speculation (no speculative buffer available)",
                "failed speculations (no speculative buffer available)",
            ),
            DropKind::OutOfOrder => ("ORDER", true, "record out of order", "records out of order"),
            DropKind::Process => {
                ("PROCESS", false, "forked process not followed", "forked processes not followed")
            }
            DropKind::Fork => ("FORK", false, "fork or exec not seen", "forks or execs not seen"),
            DropKind::Strings => (
                "STKSTROVERFLOW",
                false,
                "jstack()/ustack() string table overflow",
                "jstack()/ustack() string table overflows",
            ),
        };
        Some(DropWords { tag, per_cpu, one, many })
    }

    /// The loss and its remedy, for the manual page.
    pub const fn help(self) -> &'static str {
        match self {
            DropKind::Principal => {
                "a record found its buffer full, and the clause did nothing; aggregate, set a larger bufsize or a \
                 shorter switchrate"
            }
            DropKind::Aggregation => {
                "an aggregation had no space for a key; set a larger aggsize or a shorter aggrate"
            }
            DropKind::Dynamic => {
                "an array had no space for an element; assign 0 to elements that are done with, or set a larger \
                 dynvarsize"
            }
            DropKind::Scratch => "more firings were under way on a CPU than it has scratch slots",
            DropKind::Strings => "there was no memory for the name of a function of Python in jstack()",
            DropKind::Stack => {
                "there was no memory for a stack until others were read; set a larger stacksize"
            }
            DropKind::DoubleError => "a clause of ERROR faulted itself",
            DropKind::Doorbell => "nothing is lost",
            DropKind::Speculation => "a speculative buffer was full; set a larger specsize",
            DropKind::SpeculationBusy => "speculation() found only busy buffers; set a larger nspec",
            DropKind::SpeculationUnavailable => "speculation() found no free buffer; set a larger nspec",
            DropKind::OutOfOrder => {
                "nothing is lost, but a record was printed behind a later one, because its firing was held up; set a \
                 larger ordertimeout"
            }
            DropKind::Process => {
                "more processes were followed at a time than there is space for; set a larger followmax"
            }
            DropKind::Fork => {
                "the kernel was busy with another fork or exec on the CPU; if it was of a followed process, what came of it is not \
                 traced; this is an upper bound"
            }
        }
    }

    /// DTrace's line for `count` drops, without the prefix `dtrace: `; `None` for a kind that loses
    /// nothing.
    pub fn message(self, count: u64, cpu: u32) -> Option<String> {
        let words = self.words()?;
        let what = if count == 1 { words.one } else { words.many };
        Some(if words.per_cpu { format!("{count} {what} on CPU {cpu}") } else { format!("{count} {what}") })
    }
}

/// The words of a drop report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropWords {
    /// After `DTRACEDROP_`.
    pub tag: &'static str,
    /// Counted and reported for each CPU.
    pub per_cpu: bool,
    /// For a count of one.
    pub one: &'static str,
    /// For any other count.
    pub many: &'static str,
}

/// The consumer's view of the control page.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Control<'a> {
    /// A view of a control page; `None` if the memory is too small.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() * 8 >= CONTROL_SIZE as usize).then_some(Self { words })
    }

    #[expect(clippy::indexing_slicing, reason = "offsets are constants below CONTROL_SIZE, which new checks")]
    fn word(&self, offset: u32) -> &'a AtomicU64 {
        &self.words[offset as usize / 8]
    }

    /// State and exit status.
    pub fn activity(&self) -> (Activity, i32) {
        let word = self.word(ACTIVITY).load(Ordering::SeqCst);
        (Activity::of(word), exit_status(word))
    }

    /// Changes the state to `next` if the state machine has the edge; keeps the exit status.
    /// Returns the previous state: the change was made if that one [may
    /// become](Activity::may_become) `next`.
    pub fn become_state(&self, next: Activity) -> Activity {
        let word = self.word(ACTIVITY);
        let mut found = word.load(Ordering::SeqCst);
        loop {
            let state = Activity::of(found);
            if !state.may_become(next) {
                return state;
            }
            let new = found & !0xff | next as u64;
            match word.compare_exchange(found, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return state,
                Err(other) => found = other,
            }
        }
    }

    /// Counts a heartbeat of the consumer.
    pub fn live(&self) {
        self.word(LIFE).fetch_add(1, Ordering::Relaxed);
    }

    /// The limit that a heartbeat found exceeded since the last call.
    pub fn take_alarm(&self) -> Option<Reason> {
        Reason::of(self.word(ALARM).swap(0, Ordering::SeqCst))
    }

    /// How often `snap()` was executed.
    pub fn snaps(&self) -> u64 {
        self.word(SNAPS).load(Ordering::SeqCst)
    }

    /// The side (0 or 1) that programs currently update.
    pub fn side(&self) -> u32 {
        (self.word(EPOCH).load(Ordering::SeqCst) & 1) as u32
    }

    /// Advances the epoch and returns the side that was in use. That side is idle after a grace
    /// period, and may only then be read and emptied.
    pub fn flip(&self) -> u32 {
        (self.word(EPOCH).fetch_add(1, Ordering::SeqCst) & 1) as u32
    }
}

/// The consumer's view of the per-CPU control elements.
#[derive(Clone, Copy, Debug)]
pub struct PerCpu<'a> {
    words: &'a [AtomicU64],
    count: u32,
}

impl<'a> PerCpu<'a> {
    /// A view of `count` elements; `None` if the memory is too small.
    pub fn new(words: &'a [AtomicU64], count: u32) -> Option<Self> {
        (words.len() as u64 * 8 >= u64::from(count) * u64::from(PERCPU_STRIDE))
            .then_some(Self { words, count })
    }

    /// Number of CPU indices.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A word of the element of CPU index `index` (below [`PerCpu::count`]).
    #[expect(
        clippy::indexing_slicing,
        reason = "the caller's index and offset are its own, not read from the memory"
    )]
    pub fn word(&self, index: u32, offset: u32) -> &'a AtomicU64 {
        &self.words[(index * PERCPU_STRIDE + offset) as usize / 8]
    }

    /// The greatest lateness of heartbeats while the consumer was silent, and the longest silence
    /// of the consumer, over all CPUs since the last call.
    pub fn take_lag(&self) -> (u64, u64) {
        let most = |offset| {
            let each = (0..self.count).map(|index| self.word(index, offset).swap(0, Ordering::Relaxed));
            each.max().unwrap_or(0)
        };
        (most(SHOWN_LATE), most(SHOWN_SILENT))
    }

    /// Drops counted so far.
    pub fn drops(&self, index: u32, kind: DropKind) -> u64 {
        self.word(index, kind.offset()).load(Ordering::Relaxed)
    }
}

/// Drops of one kind on one CPU index since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropDelta {
    /// The kind.
    pub kind: DropKind,
    /// The CPU index; 0 for kinds that are counted over all.
    pub cpu: u32,
    /// How many.
    pub count: u64,
}

/// The counts that were already reported.
#[derive(Clone, Debug, Default)]
pub struct DropTracker {
    seen: Vec<[u64; DropKind::ALL.len()]>,
}

impl DropTracker {
    /// The drops since the last call, by kind and then CPU index. Kinds that are not per CPU are
    /// summed.
    pub fn deltas(&mut self, percpu: PerCpu<'_>) -> Vec<DropDelta> {
        self.seen.resize(percpu.count() as usize, [0; DropKind::ALL.len()]);
        let mut out: Vec<DropDelta> = Vec::new();
        for kind in DropKind::ALL {
            let summed = kind.words().is_none_or(|w| !w.per_cpu);
            for (cpu, seen) in (0..).zip(&mut self.seen) {
                let now = percpu.drops(cpu, kind);
                let Some(seen) = seen.get_mut(kind as usize) else { continue };
                let count = now.wrapping_sub(std::mem::replace(seen, now));
                if count == 0 {
                    continue;
                }
                match out.last_mut() {
                    Some(last) if summed && last.kind == kind => last.count += count,
                    _ => out.push(DropDelta { kind, cpu: if summed { 0 } else { cpu }, count }),
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: u32) -> Vec<AtomicU64> {
        (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_first_exit_wins_and_its_status_stays() {
        let page = memory(CONTROL_SIZE);
        let control = Control::new(&page).unwrap();
        assert_eq!(control.become_state(Activity::Active), Activity::Warmup);
        page[0].store(activity_word(Activity::Draining, 3), Ordering::SeqCst);
        assert_eq!(control.become_state(Activity::Active), Activity::Draining);
        assert_eq!(control.activity(), (Activity::Draining, 3));
        assert_eq!(control.become_state(Activity::Stopped), Activity::Draining);
        assert_eq!(control.activity(), (Activity::Stopped, 3));
        assert_eq!(control.become_state(Activity::Draining), Activity::Stopped);
        assert_eq!(control.become_state(Activity::Killed), Activity::Stopped);
        assert_eq!(control.activity(), (Activity::Stopped, 3));
    }

    #[test]
    fn only_an_active_session_is_killed() {
        let page = memory(CONTROL_SIZE);
        let control = Control::new(&page).unwrap();
        for from in [Activity::Warmup, Activity::Draining, Activity::Stopped] {
            page[0].store(activity_word(from, 0), Ordering::SeqCst);
            assert_eq!(control.become_state(Activity::Killed), from);
            assert_eq!(control.activity(), (from, 0));
        }
        page[0].store(activity_word(Activity::Active, 0), Ordering::SeqCst);
        assert_eq!(control.become_state(Activity::Killed), Activity::Active);
        assert_eq!(control.become_state(Activity::Draining), Activity::Killed);
        assert_eq!(control.activity(), (Activity::Killed, 0));
    }

    #[test]
    fn drops_are_reported_once_in_dtraces_words() {
        let cpus = memory(2 * PERCPU_STRIDE);
        let percpu = PerCpu::new(&cpus, 2).unwrap();
        let mut tracker = DropTracker::default();
        percpu.word(1, DropKind::Principal.offset()).fetch_add(2, Ordering::Relaxed);
        percpu.word(0, DropKind::Dynamic.offset()).fetch_add(1, Ordering::Relaxed);
        percpu.word(1, DropKind::Dynamic.offset()).fetch_add(1, Ordering::Relaxed);
        let lines: Vec<_> =
            tracker.deltas(percpu).iter().filter_map(|d| d.kind.message(d.count, d.cpu)).collect();
        assert_eq!(lines, ["2 drops on CPU 1", "2 dynamic variable drops"]);
        assert!(tracker.deltas(percpu).is_empty());
    }

    #[test]
    fn a_drop_kind_s_number_is_its_index() {
        for (i, kind) in DropKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
        }
        assert!(DropKind::ALL.len() <= DROP_KINDS_MAX as usize);
    }
}
