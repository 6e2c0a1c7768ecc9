//! The end of a session: END, the last results, detaching.

use events::{Event, Sink};
use plane::control::Activity;

use super::state::{Ending, Running, over};
use super::{Notice, more_left_out};
use crate::error::Error;

impl<S: Sink> Running<S> {
    pub(super) fn finish(&mut self) -> Result<i32, Error> {
        match self.ending {
            Ending::None => self.ending = Ending::Begun,
            Ending::Begun => return Err(over("finish")),
            Ending::Complete(status) => return Ok(status),
        }
        let done = self.end();
        match done {
            Ok(status) => {
                self.ending = Ending::Complete(status);
                self.consumer.report(&Event::End { status });
            }
            Err(_) => self.consumer.abort(),
        }
        let flushed = self.flush();
        done.and_then(|status| flushed.map(|()| status))
    }

    fn end(&mut self) -> Result<i32, Error> {
        self.serve_postmortem()?;
        if self.engine.has_counted_clocks() {
            self.report_missing(&self.program.system.online_cpus(), true);
        }
        if let Some(control) = self.engine.control() {
            control.become_state(Activity::Draining);
        }
        self.check_killed()?;
        self.report_alarm(None);
        if let Some(monitor) = &mut self.monitor {
            monitor.stop_measuring();
        }
        self.read_maps_at_exit();
        self.engine.quiesce()?;
        self.report_suppressed();
        for text in self.program.registry.missed() {
            self.report(&Notice::Missed(text));
        }
        let told = &mut self.shapes.told;
        self.program.registry.take_left_out().into_iter().for_each(|text| told.add(text));
        for text in told.take_all(more_left_out) {
            self.report(&Notice::Missed(text));
        }
        self.begin_last_window()?;
        self.drain(true)?;
        self.engine.run_end()?;
        self.drain(true)?;
        // No program runs any more, so these are all drops.
        self.report_drops();
        let (consumer, mut source) = self.consumer_and_source();
        consumer.finish(&mut source).map_err(Error::Output)?;
        // Stacks of keys that were not there.
        self.report_drops();
        self.report_busy_stacks();
        // Of the first exit(), or of the last one of END.
        let status = self.engine.activity().1;
        self.stop();
        Ok(status)
    }

    /// What is no drop: the stacks are there, and say themselves that they are incomplete.
    fn report_busy_stacks(&mut self) {
        let count = self.engine.busy_stacks();
        let s = if count == 1 { " is" } else { "s are" };
        if count > 0 {
            self.report(&Notice::Detail(format!(
                "{count} stack{s} [incomplete] because the kernel could not tell what the process had mapped: that was being changed, or \
                 interrupts were disabled"
            )));
        }
    }

    pub(super) fn abort(&mut self) {
        if self.ending == Ending::None {
            self.ending = Ending::Begun;
        }
        if let Some(control) = self.engine.control() {
            control.become_state(Activity::Draining);
        }
        self.stop();
        self.consumer.abort();
        // The error that ended the session is what the caller reports, and a write may wait for
        // ever: nothing follows it.
        let _ = self.flush();
    }

    fn stop(&mut self) {
        if let Some(control) = self.engine.control() {
            control.become_state(Activity::Stopped);
        }
        // This follows the output: while the kernel detaches from thousands of functions, each call
        // of one is a breakpoint.
        match self.engine.detach() {
            0 => {}
            1 => self.report(&Notice::Detail("closing a link in the background".into())),
            n => self.report(&Notice::Detail(format!("closing {n} links in the background"))),
        }
    }
}
