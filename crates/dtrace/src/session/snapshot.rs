//! Snapshots of a session whose rings keep the newest records: what they have goes to the sink, and
//! the session goes on.

use events::Sink;
use plane::ring::Policy;

use super::state::{Ending, Running, over};
use crate::error::Error;

impl<S: Sink> Running<S> {
    pub(super) fn snaps(&self) -> u64 {
        self.engine.control().map_or(0, |control| control.snaps())
    }

    pub(super) fn snapshot(&mut self) -> Result<(), Error> {
        if self.ending != Ending::None {
            return Err(over("take a snapshot"));
        }
        if self.options.bufpolicy != Policy::Ring {
            return Err(Error::Setting(
                "a snapshot is of buffers that keep the last records: -x bufpolicy=ring".into(),
            ));
        }
        let newest = self.engine.newest();
        self.report_drops();
        self.report_suppressed();
        self.consumer.sink_mut().window(newest.from, newest.unread).map_err(Error::Output)?;
        let (consumer, mut source) = self.consumer_and_source();
        let count = newest.batch.len();
        let done = consumer.consume_part(&newest.batch, 0, count, &mut source).map_err(Error::consuming);
        let flushed = self.flush();
        done.and(flushed)
    }

    /// Says to the sink from when on the records are complete that the rings have at the end.
    pub(super) fn begin_last_window(&mut self) -> Result<(), Error> {
        if self.options.bufpolicy != Policy::Ring {
            return Ok(());
        }
        let from = self.engine.complete_from();
        self.consumer.sink_mut().window(from, 0).map_err(Error::Output)
    }
}
