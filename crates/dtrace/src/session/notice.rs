//! What a session tells the user besides its results.

use consumer::Message;
use diagnostics::control;
use providers::Attach;
use providers::attach::detach_us;

use crate::assemble::{Assembled, Assembly};
use crate::deadman::{Alarm, Overload};

/// Something to tell the user, on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A fault, a drop or a failure, in DTrace's words.
    Message(Message),
    /// `buffer size lowered to 2m`; not to be shown under quietresize.
    Lowered(String),
    /// `pid 12 has exited`.
    Target(String),
    /// The session leaves the machine no time.
    Unresponsive(Alarm),
    /// The session leaves the machine little time.
    Overload(Overload),
    /// How something is done, for those who want to know (`-v`).
    Detail(String),
    /// What is asked for and cannot be, though the session goes on without.
    Without(String),
    /// The kernel kept firings from a program of ours (see [`Session::suppressed`]), so many more since the last time.
    Suppressed {
        /// Whose: a program's, or a clock's probe.
        program: String,
        /// On which CPU, where that is known: of clocks.
        cpu: Option<u32>,
        /// How many at most.
        count: u64,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Message(m) => m.fmt(f),
            Notice::Lowered(t) | Notice::Target(t) | Notice::Detail(t) | Notice::Without(t) => f.write_str(t),
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

/// What probes by perf cost: the kernel takes long to detach each.
pub(super) fn events(assembly: &Assembly) -> Option<Notice> {
    let by_perf = |a: &&Assembled| matches!(a.unit.attach, Attach::Event { .. });
    let each = assembly.units.iter().filter(by_perf).map(|a| detach_us(&a.unit.attach));
    let (count, us) = each.fold((0, 0), |(n, sum), us| (n + 1, sum + us));
    let (s, long) = (if count == 1 { "" } else { "s" }, us / 1000);
    let text = || {
        format!(
            "{count} event{s} by perf, for arguments of their records: the kernel takes {long} ms to let go"
        )
    };
    (count > 0).then(|| Notice::Detail(text()))
}

pub(super) fn lowered(all: &[bpf::maps::Lowered]) -> Vec<Notice> {
    let size = |bytes: u64| match bytes {
        b if b != 0 && b % (1 << 30) == 0 => format!("{}g", b >> 30),
        b if b != 0 && b % (1 << 20) == 0 => format!("{}m", b >> 20),
        b if b != 0 && b % (1 << 10) == 0 => format!("{}k", b >> 10),
        b => format!("{b} bytes"),
    };
    let notice = |l: &bpf::maps::Lowered| Notice::Lowered(format!("{} lowered to {}", l.what, size(l.bytes)));
    all.iter().map(notice).collect()
}
