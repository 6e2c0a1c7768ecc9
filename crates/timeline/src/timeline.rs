//! The sink.

use std::io::{self, Write};

use events::{Event, Needs, Sink, SinkError, ThreadName};

use crate::pairs::Pair;
use crate::tracks::Tracks;

/// Bytes of one write.
const CHUNK: usize = 64 << 10;

/// See the [crate](crate).
#[derive(Debug)]
pub struct Timeline<W> {
    out: W,
    tracks: Tracks,
}

impl<W: Write> Timeline<W> {
    /// Records have their threads.
    pub const NEEDS: Needs = Needs { process_ids: true, printed: false };

    /// A timeline that is written while the events come.
    pub fn new(out: W) -> Timeline<W> {
        Timeline::with_pairs(out, Vec::new())
    }

    /// The same, with slices between other probes.
    pub fn with_pairs(out: W, pairs: Vec<Pair>) -> Timeline<W> {
        Timeline { out, tracks: Tracks::new(pairs) }
    }

    /// What it is written to.
    pub fn output(&self) -> &W {
        &self.out
    }

    /// Writes out what is pending. What could not be written is lost: its beginning may be written,
    /// and again it would be no trace.
    fn write_out(&mut self) -> io::Result<()> {
        let pending = &mut self.tracks.packets.pending;
        let written = self.out.write_all(pending.encoded());
        pending.clear();
        written
    }
}

impl<W: Write + Send> Sink for Timeline<W> {
    fn needs(&self) -> Needs {
        Self::NEEDS
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.tracks.event(event);
        match self.tracks.packets.pending.encoded().len() {
            ..CHUNK => Ok(()),
            _ => Ok(self.write_out()?),
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.write_out()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out().and_then(|()| self.out.flush())
    }

    fn aborted(&mut self) {
        self.tracks.end();
    }

    fn set_thread_name(&mut self, ask: ThreadName) {
        self.tracks.threads.ask = Some(ask);
    }

    fn losses(&self) -> Vec<String> {
        self.tracks.lost()
    }
}
