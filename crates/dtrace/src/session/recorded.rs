//! The sink of a session, beside which its last events are recorded: see [`super::postmortem`].

use events::{Event, Sink, SinkError};
use postmortem::{Log, Totals};

use crate::options::Options;

/// The sink of a session, and the log of its last events.
pub(super) struct Recorded<S> {
    pub(super) sink: S,
    pub(super) log: Option<Log>,
    /// Aggregations are delivered to these totals, and not to the sink.
    pub(super) totals: Option<Totals>,
}

impl<S: Sink> Recorded<S> {
    pub(super) fn new(sink: S, options: &Options) -> Recorded<S> {
        Recorded { sink, log: options.postmortem.map(|size| size.0).map(Log::new), totals: None }
    }
}

impl<S: Sink> Sink for Recorded<S> {
    fn needs(&self) -> events::Needs {
        self.sink.needs()
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        // The snapshot for the totals may be the end of an interval.
        if let Some(totals) = self.totals.as_mut().filter(|_| !matches!(event, Event::Interval(_))) {
            totals.add(event);
            return Ok(());
        }
        self.log.iter_mut().for_each(|log| log.add(event));
        self.sink.event(event)
    }

    fn window(&mut self, from: u64, unread: u64) -> std::io::Result<()> {
        self.sink.window(from, unread)
    }

    fn batch_end(&mut self) -> std::io::Result<()> {
        if self.totals.is_some() { Ok(()) } else { self.sink.batch_end() }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.totals.is_some() { Ok(()) } else { self.sink.flush() }
    }

    fn aborted(&mut self) {
        self.sink.aborted();
    }
}
