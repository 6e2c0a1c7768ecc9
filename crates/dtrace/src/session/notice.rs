//! Notices: what a session reports to the user besides its results.

use std::borrow::Cow;

use events::{Event, NoticeKind, Suppressed};

use crate::engine::deadman::{Alarm, Overload};

/// A report for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// `buffer size lowered to 2m`; not shown under quietresize.
    Lowered(String),
    /// `pid 12 has exited`.
    Target(String),
    /// The deadman stopped the session, or would have without `-w`.
    Unresponsive(Alarm),
    /// The session takes a large share of the CPUs.
    Overload(Overload),
    /// A detail of attaching or detaching, for `-v`.
    Detail(String),
    /// Something that the program asks for is not available. The session continues without it.
    Unavailable(String),
    /// Firings of which it is known that they are missing, and not how many.
    Missed(String),
    /// Firings that the kernel suppressed since the last report (see
    /// [`Session::suppressed`](super::Session::suppressed)).
    Suppressed {
        /// The program, or the probe of a clock.
        program: String,
        /// The CPU, which is known for clocks.
        cpu: Option<u32>,
        /// The greatest possible number.
        count: u64,
    },
}

impl Notice {
    /// The event that says it at a time.
    pub(crate) fn event(&self, time: u64) -> Event<'_> {
        let time = Some(time);
        let (kind, text): (_, Cow<'_, str>) = match self {
            Notice::Lowered(text) => (NoticeKind::Lowered, text.into()),
            Notice::Target(text) => (NoticeKind::Target, text.into()),
            Notice::Detail(text) => (NoticeKind::Detail, text.into()),
            Notice::Missed(text) => (NoticeKind::Failure, text.into()),
            Notice::Unavailable(text) => (NoticeKind::Unavailable, text.into()),
            Notice::Unresponsive(alarm) => (NoticeKind::Unresponsive, alarm.to_string().into()),
            Notice::Overload(overload) => (NoticeKind::Overload, overload.to_string().into()),
            Notice::Suppressed { program, cpu, count } => {
                let mut suppressed = Suppressed::new(program, *cpu, *count);
                suppressed.time = time;
                return Event::Suppressed(suppressed);
            }
        };
        Event::Notice(events::Notice { kind, text, time })
    }
}

/// What is said of those that are left out beyond the first few.
pub(crate) fn more_left_out(more: usize) -> String {
    format!("probes or definitions of {more} more files are left out, as those before")
}
