//! The consumer's side of a sink.
//!
//! A report of the session (a drop, a fault, a notice) must not fail where it occurs: an error of
//! the sink is kept and returned by the next operation that can return one. Changed options are
//! delivered before the next event.

use std::io;

use events::{Event, Notice, NoticeKind, Setting, Sink, SinkError, Start};

use crate::options::Options;

/// A sink, and what it has not received yet.
pub(crate) struct Outlet<S: Sink> {
    sink: S,
    /// Options that the sink does not know yet.
    settings: Option<Vec<Setting<'static>>>,
    /// The error of a report.
    failed: Option<io::Error>,
}

impl<S: Sink> Outlet<S> {
    pub(crate) fn new(sink: S, options: &Options) -> Self {
        Outlet { sink, settings: Some(options.settings()), failed: None }
    }

    pub(crate) fn sink(&self) -> &S {
        &self.sink
    }

    pub(crate) fn into_sink(self) -> S {
        self.sink
    }

    pub(crate) fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Delivers the start, which has the options.
    pub(crate) fn start(&mut self, start: Start<'_>) {
        self.settings = None;
        self.report(&Event::Start(start));
    }

    /// Changes options; the sink gets them before the next event.
    pub(crate) fn change_options(&mut self, options: &mut Options, new: Options) {
        if *options != new {
            self.settings = Some(new.settings());
            *options = new;
        }
    }

    /// Delivers an event that has an effect on the system. The inner error is one of the effect.
    pub(crate) fn effect(&mut self, event: &Event<'_>) -> io::Result<io::Result<()>> {
        if let Some(settings) = self.settings.take() {
            self.send(&Event::Options(settings))?;
        }
        match self.sink.event(event) {
            Ok(()) => Ok(Ok(())),
            Err(SinkError::Effect(e)) => Ok(Err(e)),
            Err(SinkError::Output(e)) => Err(e),
        }
    }

    /// Delivers an event.
    pub(crate) fn send(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.effect(event)?
    }

    /// Delivers a report; an error is returned later.
    pub(crate) fn report(&mut self, event: &Event<'_>) {
        if let Err(e) = self.send(event) {
            self.failed.get_or_insert(e);
        }
    }

    /// Reports that an action failed, or that a record is malformed.
    pub(crate) fn failure(&mut self, text: String, time: Option<u64>) {
        self.report(&Event::Notice(Notice { kind: NoticeKind::Failure, text: text.into(), time }));
    }

    pub(crate) fn batch_end(&mut self) -> io::Result<()> {
        let ended = self.sink.batch_end();
        self.returned(ended)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let flushed = self.sink.flush();
        self.returned(flushed)
    }

    /// The error of an earlier report, or else this one.
    fn returned(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err).and(result)
    }
}
