//! Messages for standard error: faults and drops, in DTrace's format.
//!
//! Messages are typed values, so that a program that uses the library can count faults without parsing text. The command
//! prints `dtrace: ` and the value.

use std::fmt;
use std::sync::Arc;

use plane::control::{DropDelta, DropKind};
use plane::desc::FaultKind;

use crate::record::Probe;

/// A message that is not part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A clause faulted.
    Fault(FaultReport),
    /// Data was dropped.
    Drop(DropReport),
    /// A library action failed for a record, or a record is malformed.
    Failure(String),
}

/// The reason why processing was aborted, in DTrace's words. It is the inner error of what the consumer returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted(pub &'static str);

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Aborted {}

/// A fault of a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// The enabled probe.
    pub epid: u32,
    /// The probe; `None` when the epid is unknown.
    pub probe: Option<Arc<Probe>>,
    /// The kind of fault.
    pub kind: FaultKind,
    /// The action, 0 for the predicate.
    pub action: u16,
    /// DIF offset; `u32::MAX` where there is none.
    pub offset: u32,
    /// Address or offending value.
    pub value: u64,
}

/// Drops since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropReport {
    /// The kind of drop.
    pub kind: DropKind,
    /// The CPU; unused for kinds that are counted over all CPUs.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// Whether to show the tag (`-xdroptags`).
    pub tagged: bool,
}

impl DropReport {
    /// The report of a delta; `None` for kinds that lose no data.
    pub fn new(delta: DropDelta, tagged: bool) -> Option<Self> {
        let DropDelta { kind, cpu, count } = delta;
        kind.words().map(|_| DropReport { kind, cpu, count, tagged })
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Fault(fault) => fault.fmt(f),
            Message::Drop(report) => report.fmt(f),
            Message::Failure(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error on enabled probe ID {}", self.epid)?;
        if let Some(p) = &self.probe {
            write!(f, " (ID {}: {})", p.id, p.described())?;
        }
        write!(f, ": {} in ", self.kind.text(self.value))?;
        match self.action {
            0 => f.write_str("predicate")?,
            n => write!(f, "action #{n}")?,
        }
        if self.offset != u32::MAX {
            write!(f, " at DIF offset {}", self.offset)?;
        }
        Ok(())
    }
}

impl fmt::Display for DropReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (true, Some(words)) = (self.tagged, self.kind.words()) {
            write!(f, "[DTRACEDROP_{}] ", words.tag)?;
        }
        f.write_str(&self.kind.message(self.count, self.cpu).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_printed_in_dtrace_s_format() {
        let probe = Arc::new(Probe {
            id: 1,
            provider: "dtrace".into(),
            module: "".into(),
            function: "".into(),
            name: "BEGIN".into(),
        });
        let mut fault = FaultReport {
            epid: 3,
            probe: Some(probe),
            kind: FaultKind::BadAddr,
            action: 1,
            offset: 16,
            value: 0,
        };
        assert_eq!(
            fault.to_string(),
            "error on enabled probe ID 3 (ID 1: dtrace:::BEGIN): invalid address (0x0) in action #1 at DIF offset 16"
        );
        fault = FaultReport { action: 0, offset: u32::MAX, kind: FaultKind::DivZero, ..fault };
        assert_eq!(
            fault.to_string(),
            "error on enabled probe ID 3 (ID 1: dtrace:::BEGIN): divide-by-zero in predicate"
        );
    }

    #[test]
    fn drops_are_printed_with_tags_when_the_option_is_set() {
        let report = |kind, count, tagged| {
            DropReport::new(DropDelta { kind, cpu: 2, count }, tagged).unwrap().to_string()
        };
        assert_eq!(report(DropKind::Principal, 1, false), "1 drop on CPU 2");
        assert_eq!(report(DropKind::Principal, 7, true), "[DTRACEDROP_PRINCIPAL] 7 drops on CPU 2");
        assert_eq!(report(DropKind::Aggregation, 2, false), "2 aggregation drops on CPU 2");
        assert_eq!(report(DropKind::Dynamic, 2, true), "[DTRACEDROP_DYNAMIC] 2 dynamic variable drops");
        assert_eq!(report(DropKind::DoubleError, 1, false), "1 error in ERROR probe enabling");
        assert!(DropReport::new(DropDelta { kind: DropKind::Doorbell, cpu: 0, count: 1 }, false).is_none());
    }
}
