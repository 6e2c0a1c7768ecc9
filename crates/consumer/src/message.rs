//! Messages for standard error, in DTrace's words.
//!
//! The text sink makes them of the events that are not part of the output. The command prints
//! `dtrace: ` and the text.

use std::fmt;

use events::{Drop, Fault, Notice, NoticeKind, Suppressed};

/// A message that is not part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub kind: MessageKind,
    /// The words, without the prefix `dtrace: `.
    pub text: String,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A clause faulted.
    Fault,
    /// Data was dropped.
    Drop,
    /// The kernel suppressed firings.
    Suppressed,
    /// A notice of the session.
    Notice(NoticeKind),
}

impl MessageKind {
    /// Messages about records follow those about the session.
    pub(crate) fn is_about_records(self) -> bool {
        matches!(self, MessageKind::Fault | MessageKind::Drop | MessageKind::Notice(NoticeKind::Failure))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&Fault<'_>> for Message {
    fn from(fault: &Fault<'_>) -> Self {
        Message { kind: MessageKind::Fault, text: fault.to_string() }
    }
}

impl From<&Suppressed<'_>> for Message {
    fn from(suppressed: &Suppressed<'_>) -> Self {
        Message { kind: MessageKind::Suppressed, text: suppressed.to_string() }
    }
}

impl From<&Notice<'_>> for Message {
    fn from(notice: &Notice<'_>) -> Self {
        Message { kind: MessageKind::Notice(notice.kind), text: notice.text.clone().into_owned() }
    }
}

impl Message {
    /// The message of drops, with the tag of `-x droptags` if it is wanted.
    pub(crate) fn dropped(drop: &Drop, tagged: bool) -> Self {
        let tag = drop.kind.words().filter(|_| tagged).map(|words| format!("[DTRACEDROP_{}] ", words.tag));
        Message { kind: MessageKind::Drop, text: format!("{}{drop}", tag.unwrap_or_default()) }
    }
}

/// The reason why processing was aborted, in DTrace's words. It is the inner error of what the
/// consumer returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted(pub &'static str);

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Aborted {}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use events::{Calls, DropKind, FaultKind, Probe};

    use super::*;

    #[test]
    fn faults_are_printed_in_dtrace_s_format() {
        let probe = Probe::new(1, ["dtrace", "", "", "BEGIN"].map(Into::into), Calls::None);
        let mut fault = Fault::new(0, 0, 3, FaultKind::BadAddr, 0);
        fault.probe = Some(Cow::Owned(Arc::new(probe)));
        (fault.action, fault.offset) = (1, Some(16));
        assert_eq!(
            Message::from(&fault).text,
            "error on enabled probe ID 3 (ID 1: dtrace:::BEGIN): invalid address (0x0) in action #1 at DIF offset 16"
        );
        (fault.action, fault.offset, fault.kind) = (0, None, FaultKind::DivZero);
        assert_eq!(
            Message::from(&fault).text,
            "error on enabled probe ID 3 (ID 1: dtrace:::BEGIN): divide-by-zero in predicate"
        );
    }

    #[test]
    fn drops_are_printed_with_tags_when_the_option_is_set() {
        let report = |kind, count, tagged| Message::dropped(&Drop::new(kind, 2, count), tagged).to_string();
        assert_eq!(report(DropKind::Principal, 1, false), "1 drop on CPU 2");
        assert_eq!(report(DropKind::Principal, 7, true), "[DTRACEDROP_PRINCIPAL] 7 drops on CPU 2");
        assert_eq!(report(DropKind::Aggregation, 2, false), "2 aggregation drops on CPU 2");
        assert_eq!(report(DropKind::Dynamic, 2, true), "[DTRACEDROP_DYNAMIC] 2 dynamic variable drops");
        assert_eq!(report(DropKind::DoubleError, 1, false), "1 error in ERROR probe enabling");
    }
}
