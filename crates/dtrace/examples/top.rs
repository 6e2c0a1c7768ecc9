//! The processes that make a system call most often (any call, if none is named), as a table that
//! is drawn again each second: `sudo -E cargo run --example top -- openat`. The kernel counts; the
//! session delivers the counts as data.

use std::error::Error;
use std::time::{Duration, Instant};

use dtrace::events::SinkError;
use dtrace::{Event, Session, Sink, Status, System};

type Done = Result<(), Box<dyn Error>>;
/// How many calls each process has made: its id and its name.
pub(crate) type Calls = std::collections::BTreeMap<(i128, String), i64>;

/// The counts as they were delivered last.
#[derive(Default)]
struct Counts(Calls);

impl Sink for Counts {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        let Event::Aggregation(all) = event else { return Ok(()) };
        self.0.extend(all.rows.iter().filter_map(|row| {
            let process = (row.key.first()?.number()?, row.key.get(1)?.text()?.into_owned());
            Some((process, row.values.first()?.number()?))
        }));
        Ok(())
    }
}

fn main() -> Done {
    run(&std::env::args().nth(1).unwrap_or_default(), Duration::from_secs(1), |calls| {
        let mut rows: Vec<_> = calls.iter().map(|((pid, name), n)| (n, pid, name)).collect();
        rows.sort_by(|a, b| b.cmp(a));
        println!("\x1b[2J\x1b[H{:>8} {:>8}  PROCESS", "CALLS", "PID");
        rows.iter().take(20).for_each(|(n, pid, name)| println!("{n:8} {pid:8}  {name}"));
        true
    })
}

/// Shows the calls of each interval, until `show` returns false.
pub(crate) fn run(call: &str, every: Duration, mut show: impl FnMut(&Calls) -> bool) -> Done {
    let script = format!("syscall::{call}:entry {{ @[pid, execname] = count(); }}");
    let mut session = Session::builder(&System::live()).program(script).start(Counts::default())?;
    let mut before = Calls::new();
    loop {
        let end = Instant::now() + every;
        while Instant::now() < end {
            if session.work(None, end.saturating_duration_since(Instant::now()))? == Status::Done {
                return Ok(session.finish().map(drop)?);
            }
        }
        session.deliver_aggregations()?;
        let now = session.sink().0.clone();
        let new = now.iter().map(|(p, n)| (p.clone(), n - before.get(p).unwrap_or(&0)));
        if !show(&new.filter(|(_, n)| *n > 0).collect()) {
            return Ok(());
        }
        before = now;
    }
}
