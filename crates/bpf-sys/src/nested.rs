//! Returns that the kernel does not probe, because too many probed calls are nested.
//!
//! A thread keeps the true return addresses of at most 64 calls whose return a uretprobe waits for
//! (`MAX_URETPROBE_DEPTH`, kernel/events/uprobes.c). The return of a call beyond has no firing, and
//! nothing counts it: the kernel's log is the only witness.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// What the kernel writes to its log for such a call, at most some ten times in five seconds,
/// before the numbers of the thread and the process.
const TEXT: &str = "omit uretprobe due to nestedness limit pid/tgid=";

/// More records than the log has.
const MOST: usize = 1 << 16;

/// The kernel's log from now on.
#[derive(Debug)]
pub struct NestedReturns(File);

impl NestedReturns {
    /// `None` where the log cannot be read.
    pub fn from_now() -> Option<NestedReturns> {
        let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        Some(NestedReturns(log))
    }

    /// The processes of which returns were not probed since the last call, by their numbers in the
    /// first namespace of processes.
    pub fn processes(&mut self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut record = [0; 8192];
        for _ in 0..MOST {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(n) => {
                    let text = String::from_utf8_lossy(record.get(..n).unwrap_or_default());
                    found.extend(process(&text));
                }
                // Records were overwritten before they were read.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        found
    }
}

/// The process of a record.
fn process(record: &str) -> Option<u32> {
    let numbers = record.split_once(TEXT)?.1;
    let digits = numbers.split_once('/')?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::process;

    #[test]
    fn a_record_names_its_process() {
        let record = "6,1234,98765,-;uprobe: omit uretprobe due to nestedness limit pid/tgid=12/34\n";
        assert_eq!(process(record), Some(34));
        assert_eq!(process("6,1,2,-;uprobe: omit uretprobe due to nestedness limit pid/tgid=12"), None);
        assert_eq!(process("6,1,2,-;eth0: link is up\n"), None);
    }
}
