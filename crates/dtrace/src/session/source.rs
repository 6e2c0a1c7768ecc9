//! What the consumer asks of the engine.

use std::io;

use consumer::SlotSink;
use events::Clock;
use plane::stacks::Stack;

use super::intervals::Intervals;
use super::settings::{consumer_options, set_dynamic};
use crate::engine::Engine;
use crate::options::Options;

/// The engine's data for the consumer.
pub(super) struct EngineSource<'a> {
    pub(super) engine: &'a mut dyn Engine,
    pub(super) options: &'a mut Options,
    pub(super) target: Option<u32>,
    pub(super) intervals: &'a mut Intervals,
}

impl consumer::Source for EngineSource<'_> {
    fn snapshot(&mut self, sink: &mut SlotSink<'_>) -> io::Result<()> {
        // The one that is pending, if there is one.
        self.intervals.begin_snapshot(self.engine);
        self.engine.take_snapshot(sink);
        self.intervals.snapshot_taken(self.engine);
        Ok(())
    }

    fn interval_end(&mut self) -> Option<Clock> {
        self.intervals.take_ended()
    }

    fn clock(&mut self) -> Option<Clock> {
        Some(self.engine.clock())
    }

    fn stack(&mut self, id: u64) -> Option<Stack> {
        self.engine.stack(id)
    }

    fn set_option(&mut self, name: &str, value: Option<&str>) -> Result<consumer::Options, String> {
        set_dynamic(self.options, name, value).map_err(|e| e.to_string())?;
        Ok(consumer_options(self.options, self.target))
    }
}
