//! Notices: what a session reports to the user besides its results.

use consumer::Message;
use diagnostics::control;
use providers::Attach;
use providers::attach::detach_us;

use crate::assemble::{Assembly, EnabledUnit};
use crate::deadman::{Alarm, Overload};
use crate::options::size_text;

/// A report for the user, on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A fault, a drop or a failure, in the original's words.
    Message(Message),
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

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Message(m) => m.fmt(f),
            Notice::Lowered(t) | Notice::Target(t) | Notice::Detail(t) | Notice::Unavailable(t) => {
                f.write_str(t)
            }
            Notice::Unresponsive(alarm) => alarm.fmt(f),
            Notice::Overload(overload) => overload.fmt(f),
            Notice::Suppressed { program, cpu, count } => {
                let firings = if *count == 1 { "firing" } else { "firings" };
                let program = control::name_text(program);
                match cpu {
                    None => write!(f, "up to {count} {firings} of {program} suppressed by the kernel"),
                    Some(cpu) => {
                        write!(f, "{count} {firings} of {program} on CPU {cpu} suppressed by the kernel")
                    }
                }
            }
        }
    }
}

/// A notice of the time that the kernel takes to detach from perf events.
pub(super) fn perf_events(assembly: &Assembly) -> Option<Notice> {
    let by_perf = |a: &&EnabledUnit| matches!(a.unit.attach, Attach::Event { .. });
    let each = assembly.units.iter().filter(by_perf).map(|a| detach_us(&a.unit.attach));
    let (count, us) = each.fold((0, 0), |(n, sum), us| (n + 1, sum + us));
    let (s, ms) = (if count == 1 { "" } else { "s" }, us / 1000);
    let text = || {
        format!(
            "{count} event{s} by perf, for the fields of their records: the kernel takes {ms} ms to detach"
        )
    };
    (count > 0).then(|| Notice::Detail(text()))
}

/// Notices of the sizes that were lowered until the kernel had the memory.
pub(super) fn lowered(all: &[bpf::maps::Lowered]) -> Vec<Notice> {
    let notice =
        |l: &bpf::maps::Lowered| Notice::Lowered(format!("{} lowered to {}", l.what, size_text(l.bytes)));
    all.iter().map(notice).collect()
}
