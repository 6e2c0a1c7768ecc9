//! Messages about firings that the kernel suppressed.
//!
//! The events say each second what was suppressed in it. For a reader that would be a line a second
//! between the rows of a table, for as long as the machine is busy. So a line says at most every
//! ten seconds how many there were until now, none does where only the program's own output is
//! wanted (`quiet`), and at the end of tracing one line for each program, or clock on a CPU, says
//! how many there were.

use std::collections::BTreeMap;

use events::Suppressed;

use crate::message::{Message, MessageKind};

/// The least interval of lines while tracing, in nanoseconds.
const INTERVAL: u64 = 10_000_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Suppressions {
    /// How many were not summed up, by program and CPU.
    counts: BTreeMap<(String, Option<u32>), u64>,
    /// When a line was last made.
    last: Option<u64>,
}

impl Suppressions {
    /// Counts firings. Returns a line if it is time for one.
    pub(crate) fn add(&mut self, suppressed: &Suppressed<'_>, quiet: bool) -> Option<Message> {
        let key = (suppressed.program.to_string(), suppressed.cpu);
        let count = self.counts.entry(key).or_default();
        *count = count.saturating_add(suppressed.count);
        let now = suppressed.time.filter(|_| !quiet)?;
        if self.last.is_some_and(|last| now.saturating_sub(last) < INTERVAL) {
            return None;
        }
        self.last = Some(now);
        let all = self.counts.values().fold(0u64, |all, count| all.saturating_add(*count));
        let were = if all == 1 { "firing was" } else { "firings were" };
        let text = format!("up to {all} {were} suppressed until now");
        Some(Message { kind: MessageKind::Suppressed, text })
    }

    /// The lines at the end of tracing. Nothing is counted after that.
    pub(crate) fn sums(&mut self) -> Vec<Message> {
        let all = std::mem::take(&mut self.counts).into_iter();
        all.map(|((program, cpu), count)| Message::from(&Suppressed::new(program, cpu, count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The lines of a session of so many seconds, in each of which firings of two programs and of a
    /// clock are suppressed.
    fn lines(seconds: u64, quiet: bool) -> (Vec<(u64, String)>, Vec<String>) {
        let mut all = Suppressions::default();
        let mut said = Vec::new();
        for second in 1..=seconds {
            for (program, cpu, count) in [("a", None, 10), ("b", None, 1), ("tick-1ms", Some(1), 3)] {
                let mut suppressed = Suppressed::new(program, cpu, count);
                suppressed.time = Some(second * SECOND);
                said.extend(all.add(&suppressed, quiet).map(|message| (second, message.text)));
            }
        }
        (said, all.sums().into_iter().map(|message| message.text).collect())
    }

    #[test]
    fn a_line_in_ten_seconds_and_the_sums_at_the_end_say_how_many_were_suppressed() {
        let sums = [
            "up to 250 firings of a suppressed by the kernel",
            "up to 25 firings of b suppressed by the kernel",
            "75 firings of tick-1ms on CPU 1 suppressed by the kernel",
        ];
        let said = |second, count| (second, format!("up to {count} firings were suppressed until now"));
        let (lines_of_25, sums_of_25) = lines(25, false);
        assert_eq!(lines_of_25, [said(1, 10), said(11, 150), said(21, 290)]);
        assert_eq!(sums_of_25, sums);
        assert_eq!(lines(25, true), (Vec::new(), sums.map(String::from).to_vec()));
    }
}
