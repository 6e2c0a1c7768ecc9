//! Records that wait for a snapshot of the aggregations.
//!
//! `printa()`, `clear()`, `trunc()` and `normalize()` use a snapshot that begins after their record
//! was read. A snapshot waits for a grace period of the kernel, and the session does not wait with
//! it:
//!
//! ```text
//!  rings ──► batch ──┬──► the records before the first such action ──────────────► consumer
//!                    └──► the others are held ──► snapshot merged, or too late ──► consumer
//! ```
//!
//! So rings are read, and `exit()` and interrupts are handled, while a snapshot is pending. The
//! order of the records stays. What is held is bounded in time and in bytes: then the actions use
//! the snapshot before. That loses nothing, because `printa()` and `clear()` work on the consumer's
//! table: what is not in it is printed by the next `printa()`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use consumer::Consumer;
use events::Sink;
use plane::read::Batch;

use super::intervals::Intervals;
use super::source::EngineSource;
use crate::engine::Engine;
use crate::error::Error;
use crate::options::Options;

/// How long records are held at most. A grace period takes some 20 ms, and much longer on an
/// overloaded machine.
const LONGEST: Duration = Duration::from_secs(1);
/// Bytes of records that are held at most.
const MOST: usize = 16 << 20;

/// See the [module](self).
#[derive(Default)]
pub(super) struct HeldRecords {
    batches: VecDeque<HeldBatch>,
    /// Their bytes.
    size: usize,
    /// Batches that were read.
    read: u64,
    /// Enabled-probe ids of removed sites, each with the number of batches that may have records of
    /// it.
    removed: Vec<(u64, u32)>,
    /// What the snapshots are the ends of.
    pub(super) intervals: Intervals,
}

struct HeldBatch {
    number: u64,
    batch: Batch,
    /// The first record that is not consumed.
    from: usize,
    /// The number of snapshots that had begun when it was read.
    begun: u64,
    since: Instant,
}

impl HeldRecords {
    /// Nothing is held.
    pub(super) fn new(intervals: Intervals) -> HeldRecords {
        HeldRecords { intervals, ..HeldRecords::default() }
    }

    /// How long the first record has been held.
    fn age(&self) -> Option<Duration> {
        self.batches.front().map(|held| held.since.elapsed())
    }

    /// True if the first record is not held any longer.
    fn is_too_late(&self) -> bool {
        self.size > MOST || self.age().is_some_and(|age| age >= LONGEST)
    }

    /// No held record has a time before this one.
    fn oldest(&self) -> u64 {
        let first = |held: &HeldBatch| held.batch.after(held.from).first().map(|r| r.time);
        self.batches.iter().filter_map(first).min().unwrap_or(u64::MAX)
    }

    /// No record of these enabled probes is read any more.
    pub(super) fn remove(&mut self, epids: Vec<u32>) {
        let read = self.read;
        self.removed.extend(epids.into_iter().map(|epid| (read, epid)));
    }

    /// The removed enabled probes of which no record is held.
    pub(super) fn take_removed(&mut self) -> Vec<u32> {
        let consumed = self.batches.front().map_or(u64::MAX, |held| held.number);
        self.removed.extract_if(.., |(read, _)| *read <= consumed).map(|(_, epid)| epid).collect()
    }
}

/// The time until records that wait for a snapshot are looked at, if no descriptor says that it is
/// ready.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Takes what the engine has recorded, and consumes it as far as it needs no snapshot. Unless `all`
/// is wanted, records that may follow others which are not complete yet are left.
pub(super) fn drain<S: Sink>(
    engine: &mut dyn Engine,
    consumer: &mut Consumer<S>,
    options: &mut Options,
    held: &mut HeldRecords,
    all: bool,
) -> Result<(), Error> {
    engine.clear_doorbell();
    let hold = (!all).then_some(options.ordertimeout);
    let batch = engine.drain(hold)?;
    if !batch.is_empty() {
        let (number, (begun, _)) = (held.read, engine.snapshots());
        held.read += 1;
        held.size += batch.size();
        held.batches.push_back(HeldBatch { number, batch, from: 0, begun, since: Instant::now() });
    }
    consume(engine, consumer, options, held, all)?;
    consumer.drained(engine.complete_until().min(held.oldest()), engine.now());
    let evicted = engine.evicted_stacks();
    if !evicted.is_empty() {
        consumer.keep_stacks(evicted, bpf_sys::monotonic_ns());
    }
    Ok(())
}

/// Merges the pending snapshot if it is ready, and consumes the records that are held as far as
/// their snapshots are merged. With `wait`, waits for all of them.
pub(super) fn consume<S: Sink>(
    engine: &mut dyn Engine,
    consumer: &mut Consumer<S>,
    options: &mut Options,
    held: &mut HeldRecords,
    wait: bool,
) -> Result<(), Error> {
    let target = consumer.options().target;
    loop {
        let (begun, merged) = engine.snapshots();
        if engine.snapshot_is_ready() || wait && begun > merged {
            let mut source = EngineSource { engine, options, target, intervals: &mut held.intervals };
            consumer.snapshot(&mut source).map_err(Error::Output)?;
        }
        let too_late = !wait && held.is_too_late();
        let Some(HeldBatch { batch, from, begun, .. }) = held.batches.front_mut() else { return Ok(()) };
        let (_, merged) = engine.snapshots();
        let left = batch.after(*from).len();
        let count = match merged > *begun || too_late {
            true => left,
            false => consumer.before_snapshot(batch, *from),
        };
        if count > 0 {
            let mut source = EngineSource { engine, options, target, intervals: &mut held.intervals };
            // Records that failed are not delivered again.
            let at = *from;
            *from += count;
            consumer.consume_part(batch, at, count, &mut source).map_err(Error::consuming)?;
        }
        if count == left {
            held.size -= batch.size();
            held.batches.pop_front();
            continue;
        }
        held.intervals.begin_snapshot(engine);
        if !wait && !engine.snapshot_is_ready() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use consumer::{SlotSink, Text};
    use events::{Clock, Host, Start};
    use plane::control::{Control, DropDelta};
    use plane::stacks::Stack;

    use super::*;
    use crate::compile::{Field, Macros, Program, Source, compile_with};
    use crate::engine::interpreter::{Firing, GivenProbes, Interpreter, InterpreterEngine};
    use crate::engine::{Between, Enabled, Firings, Loading};
    use crate::load::attach::AttachObserver;
    use crate::session::stop::Stopper;
    use crate::session::{Notice, Parts, Running, Status};

    /// The interpreter, with grace periods that end when the test says so.
    struct Slow {
        inner: InterpreterEngine,
        grace_ended: Arc<AtomicBool>,
    }

    impl Engine for Slow {
        fn snapshot_is_ready(&self) -> bool {
            self.inner.snapshot_is_ready() && self.grace_ended.load(Ordering::SeqCst)
        }

        fn begin_snapshot(&mut self) {
            self.inner.begin_snapshot();
        }

        fn snapshots(&self) -> (u64, u64) {
            self.inner.snapshots()
        }

        fn take_snapshot(&mut self, sink: &mut SlotSink<'_>) {
            self.inner.take_snapshot(sink);
        }

        fn attach(&mut self, observer: &mut AttachObserver<'_>) -> Result<(), Error> {
            self.inner.attach(observer)
        }

        fn run_begin(&mut self) -> Result<(), Error> {
            self.inner.run_begin()
        }

        fn load_more(
            &mut self,
            program: &Program,
            options: &Options,
            loading: Loading,
            interrupted: &dyn Fn() -> bool,
            between: &mut Between<'_>,
        ) -> Result<Enabled, Error> {
            self.inner.load_more(program, options, loading, interrupted, between)
        }

        fn adopt(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Vec<u32>, Error> {
            self.inner.adopt(interrupted)
        }

        fn control(&self) -> Option<Control<'_>> {
            self.inner.control()
        }

        fn now(&self) -> u64 {
            self.inner.now()
        }

        fn firings(&self) -> Firings {
            self.inner.firings()
        }

        fn stopper(&self) -> Result<Stopper, Error> {
            self.inner.stopper()
        }

        fn drain(&mut self, hold: Option<Duration>) -> Result<Batch, Error> {
            self.inner.drain(hold)
        }

        fn stack(&self, id: u64) -> Option<Stack> {
            self.inner.stack(id)
        }

        fn drops(&mut self) -> Vec<DropDelta> {
            self.inner.drops()
        }

        fn take_notices(&mut self) -> Vec<Notice> {
            self.inner.take_notices()
        }

        fn quiesce(&mut self) -> Result<(), Error> {
            self.inner.quiesce()
        }

        fn run_end(&mut self) -> Result<(), Error> {
            self.inner.run_end()
        }
    }

    const SCRIPT: &str = "t:::hit { @n = count(); } t:::row { printf(\"%d\\n\", arg0); } \
                          t:::print { printa(\"n %@d\\n\", @n); clear(@n); }";

    /// A session over firings, each a name and an argument.
    fn session(firings: &[(&str, u64)]) -> (Running<Text<Vec<u8>>>, Arc<AtomicBool>) {
        let mut options = Options::default();
        options.set("quiet", None).unwrap();
        let probes = GivenProbes::new("t").probe("", "", "hit", &[]);
        let probes = probes.probe("", "", "row", &[]).probe("", "", "print", &[]);
        let source = Source::Specifier(Field::Name, SCRIPT.into());
        let program = compile_with(
            &system::System::live(),
            &[source],
            &Macros::default(),
            &mut options,
            vec![Box::new(probes)],
        )
        .unwrap();
        let firing = |(n, (name, arg)): (u64, &(&str, u64))| Firing {
            time: n,
            args: vec![*arg],
            ..Firing::of(format!("t:::{name}"))
        };
        let interpreter = Interpreter::new((1..).zip(firings).map(firing).collect::<Vec<_>>());
        let (inner, enabled) = InterpreterEngine::new(&program, &options, interpreter).unwrap();
        let grace_ended = Arc::new(AtomicBool::new(false));
        let parts = Parts {
            engine: Box::new(Slow { inner, grace_ended: grace_ended.clone() }),
            enabled,
            symbols: Box::new(consumer::NoSymbols),
            options,
            targets: Vec::new(),
            sink: Text::new(Vec::new()),
            monitor: None,
            cpus: vec![0],
            start: Start::new("", Clock { time: 0, wall: 0 }, Host::new("", "", "", 1)),
            interrupted: Arc::new(|| false),
        };
        (Running::begin(&program, parts, &mut |_| true).unwrap(), grace_ended)
    }

    fn work(session: &mut Running<Text<Vec<u8>>>) {
        while session.work(None, Duration::ZERO).unwrap() == Status::Working {}
    }

    fn text(session: &Running<Text<Vec<u8>>>) -> &str {
        std::str::from_utf8(session.sink().output()).unwrap()
    }

    const FIRINGS: [(&str, u64); 8] =
        [("hit", 0), ("row", 1), ("hit", 0), ("print", 0), ("row", 2), ("hit", 0), ("print", 0), ("row", 3)];

    #[test]
    fn rows_before_a_printa_do_not_wait_for_its_snapshot_and_the_order_stays() {
        let (mut session, grace_ended) = session(&FIRINGS);
        work(&mut session);
        assert_eq!(text(&session), "1\n");
        grace_ended.store(true, Ordering::SeqCst);
        session.consume_held(false).unwrap();
        // The second printa() was read after the first snapshot had begun.
        assert_eq!(text(&session).lines().collect::<Vec<_>>(), ["1", "n 3", "2", "n 0", "3"]);
        session.finish().unwrap();
        assert_eq!(text(&session), "1\nn 3\n2\nn 0\n3\n\n");
    }

    #[test]
    fn records_are_not_held_for_long_and_what_a_printa_lacks_is_in_the_next_one() {
        let (mut session, _) = session(&FIRINGS);
        work(&mut session);
        assert_eq!(text(&session), "1\n");
        for held in &mut session.held.batches {
            held.since = held.since.checked_sub(LONGEST).unwrap();
        }
        session.consume_held(false).unwrap();
        assert_eq!(text(&session), "1\n2\n3\n", "no snapshot is merged");
        session.finish().unwrap();
        assert_eq!(text(&session), "1\n2\n3\n\n                3\n");
    }

    #[test]
    fn held_records_are_complete_at_the_end() {
        let (mut session, _) = session(&FIRINGS);
        work(&mut session);
        session.finish().unwrap();
        assert_eq!(text(&session), "1\nn 3\n2\nn 0\n3\n\n");
    }

    #[test]
    fn the_memory_of_held_records_is_bounded() {
        let firings: Vec<(&str, u64)> =
            [("print", 0)].into_iter().chain((0..400_000).map(|n| ("row", n))).collect();
        let (mut session, _) = session(&firings);
        let mut most = 0;
        while session.work(None, Duration::ZERO).unwrap() == Status::Working {
            most = most.max(session.held.size);
        }
        assert!(most <= MOST + (1 << 20), "{most}");
        session.finish().unwrap();
        assert_eq!((session.held.size, text(&session).lines().count()), (0, 400_001));
    }

    #[test]
    fn removed_probes_are_forgotten_when_their_held_records_are_consumed() {
        let (mut session, _) = session(&FIRINGS);
        work(&mut session);
        session.held.remove(vec![7]);
        assert_eq!(session.held.take_removed(), [0; 0]);
        session.consume_held(true).unwrap();
        assert_eq!(session.held.take_removed(), [7]);
        session.held.remove(vec![8]);
        assert_eq!(session.held.take_removed(), [8]);
    }
}
