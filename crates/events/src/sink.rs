//! The receiver of events.

use std::fmt;
use std::io;

use crate::event::Event;

/// What a sink needs that records do not always have, because it costs time and space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The ids of the process and of the thread ([`Firing::pid`](crate::Firing::pid) and `tid`).
    pub process_ids: bool,
    /// At the end, the aggregations that were printed too, as they are then. They come as
    /// [demanded](crate::Occasion::Demand), which text does not show.
    pub printed: bool,
}

/// The name that a thread has now, by the ids of its process and of itself as records have them.
/// `None`: it has ended, or nobody knows.
pub type ThreadName = fn(u32, u32) -> Option<Vec<u8>>;

/// Receives the events of a session, in order.
pub trait Sink: Send {
    /// Receives an event.
    ///
    /// A sink that has the output performs [effects](crate::Effect): it runs the command of
    /// `system()` and redirects its output by `freopen()`. A sink that only stores or forwards
    /// events does not.
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError>;

    /// What it needs. Whoever compiles a program for the sink asks before.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The events of a batch are complete: buffered results should be written.
    fn batch_end(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The session is about to wait, or it has ended: everything should be written, messages too.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Something of what was written is lost, and more can be written at the end: writes once more
    /// what is since the start, which makes up for it. An interval's own number is not.
    fn repeat(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Tracing has ended by an error, or was aborted: neither [`Event::Stop`] nor [`Event::End`]
    /// may follow. What a sink keeps for them is for the next flush. It may be called more than
    /// once.
    fn aborted(&mut self) {}

    /// The records that follow are those that the rings of a session with `bufpolicy=ring` have:
    /// all from the time `from` on, by the clock of `timestamp`, without `unread` ones that were
    /// being written.
    fn window(&mut self, _from: u64, _unread: u64) -> io::Result<()> {
        Ok(())
    }

    /// Whom it can ask for the names of threads. A session of the running kernel says it before the
    /// first event; stored events have nobody.
    fn set_thread_name(&mut self, _ask: ThreadName) {}

    /// What it could not show of the events until the end: a text for each kind, with the number.
    /// Whoever has the messages asks after the last flush.
    fn losses(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a sink failed.
#[derive(Debug)]
pub enum SinkError {
    /// The output could not be written. Ends the batch; the caller of the session decides.
    Output(io::Error),
    /// An effect failed. The session reports it in a [notice](crate::Notice) and continues.
    Effect(io::Error),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkError::Output(e) | SinkError::Effect(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SinkError {}

impl From<io::Error> for SinkError {
    fn from(e: io::Error) -> Self {
        SinkError::Output(e)
    }
}

/// A sink behind a pointer is a sink.
macro_rules! behind {
    ($($pointer:ty)*) => {
        $(impl<S: Sink + ?Sized> Sink for $pointer {
            fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
                (**self).event(event)
            }

            fn needs(&self) -> Needs {
                (**self).needs()
            }

            fn batch_end(&mut self) -> io::Result<()> {
                (**self).batch_end()
            }

            fn flush(&mut self) -> io::Result<()> {
                (**self).flush()
            }

            fn aborted(&mut self) {
                (**self).aborted();
            }

            fn window(&mut self, from: u64, unread: u64) -> io::Result<()> {
                (**self).window(from, unread)
            }

            fn set_thread_name(&mut self, ask: ThreadName) {
                (**self).set_thread_name(ask);
            }

            fn losses(&self) -> Vec<String> {
                (**self).losses()
            }
        })*
    };
}
behind! { &mut S  Box<S> }

/// Both receive everything, whether or not the other fails. The first error is returned; of an
/// event, an error of the output before one of an effect.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        let first = self.0.event(event);
        let second = self.1.event(event);
        match (first, second) {
            (Err(SinkError::Effect(_)), Err(SinkError::Output(e))) => Err(SinkError::Output(e)),
            (first, second) => first.and(second),
        }
    }

    fn needs(&self) -> Needs {
        let (first, second) = (self.0.needs(), self.1.needs());
        Needs {
            process_ids: first.process_ids || second.process_ids,
            printed: first.printed || second.printed,
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        let first = self.0.batch_end();
        let second = self.1.batch_end();
        first.and(second)
    }

    fn flush(&mut self) -> io::Result<()> {
        let first = self.0.flush();
        let second = self.1.flush();
        first.and(second)
    }

    fn aborted(&mut self) {
        self.0.aborted();
        self.1.aborted();
    }

    fn window(&mut self, from: u64, unread: u64) -> io::Result<()> {
        let first = self.0.window(from, unread);
        let second = self.1.window(from, unread);
        first.and(second)
    }

    fn set_thread_name(&mut self, ask: ThreadName) {
        self.0.set_thread_name(ask);
        self.1.set_thread_name(ask);
    }

    fn losses(&self) -> Vec<String> {
        let mut all = self.0.losses();
        all.extend(self.1.losses());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails for every event: by an effect, or by the output.
    struct Failing(fn(io::Error) -> SinkError);

    impl Sink for Failing {
        fn event(&mut self, _: &Event<'_>) -> Result<(), SinkError> {
            Err((self.0)(io::Error::other("no")))
        }
    }

    /// Shows which process it was.
    struct Ids;

    impl Sink for Ids {
        fn event(&mut self, _: &Event<'_>) -> Result<(), SinkError> {
            Ok(())
        }

        fn needs(&self) -> Needs {
            Needs { process_ids: true, printed: false }
        }
    }

    #[test]
    fn a_pair_needs_what_one_of_both_needs() {
        let other = || Failing(SinkError::Output);
        assert!(!other().needs().process_ids && !(other(), other()).needs().process_ids);
        for all in [Box::new((Ids, other())) as Box<dyn Sink>, Box::new((other(), Ids))] {
            assert!(all.needs().process_ids);
        }
    }

    #[test]
    fn a_pair_reports_a_failed_output_before_a_failed_effect() {
        let (effect, output) = (|| Failing(SinkError::Effect), || Failing(SinkError::Output));
        for mut pair in [(effect(), output()), (output(), effect()), (output(), output())] {
            assert!(matches!(pair.event(&Event::Stop), Err(SinkError::Output(_))));
        }
        assert!(matches!((effect(), effect()).event(&Event::Stop), Err(SinkError::Effect(_))));
    }
}
