//! Processes whose files are attached to, which are held so that their numbers cannot become
//! others'.

use std::io;
use std::sync::Arc;

use files::open::ProcessDir;

/// A process whose files were read.
#[derive(Debug)]
pub struct HeldProcess {
    pid: u32,
    start: u64,
    dir: ProcessDir,
}

impl HeldProcess {
    /// The process that has this number now.
    pub fn open(pid: u32) -> io::Result<HeldProcess> {
        const SIZE: u64 = 1 << 12;
        let dir = ProcessDir::open(pid)?;
        let stat = proc::parse_stat(&dir.read("stat", SIZE)?).ok_or(io::ErrorKind::InvalidData)?;
        Ok(HeldProcess { pid, start: stat.start, dir })
    }

    /// When it began, in clock ticks since boot.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True if the number is still this process's: it runs, or nobody has waited for it.
    pub fn is_current(&self) -> bool {
        self.dir.read("comm", 1).is_ok()
    }

    /// True if it has ended, also where nobody has waited for it.
    pub(crate) fn has_ended(&self) -> bool {
        const SIZE: u64 = 1 << 12;
        let stat = self.dir.read("stat", SIZE).unwrap_or_default();
        // The name, which may have any byte, is in parentheses.
        let fields = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 1..));
        let fields = String::from_utf8_lossy(fields.unwrap_or_default());
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The first thread may have ended before the others.
        const THREADS: usize = 17;
        match fields.first() {
            Some(&"Z") => fields.get(THREADS).is_none_or(|count| *count == "1"),
            Some(state) => *state == "X",
            None => true,
        }
    }

    /// True if its first thread has ended and others run. The kernel's links of a process then find
    /// no memory to set probes in: they ask the first thread for it.
    pub(crate) fn lacks_first_thread(&self) -> bool {
        proc::thread_with_memory(self.pid) != self.pid
    }

    /// The process that it is a thread of, if the number is a thread's.
    pub fn thread_of(&self) -> Option<u32> {
        const SIZE: u64 = 1 << 16;
        let status = self.dir.read("status", SIZE).ok()?;
        let status = String::from_utf8_lossy(&status);
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        (group != self.pid).then_some(group)
    }
}

/// The processes of a set, in which alone a program runs its clauses.
#[derive(Clone, Debug)]
pub struct Members {
    /// The number of the set.
    pub set: u32,
    /// The processes.
    pub processes: Vec<Arc<HeldProcess>>,
    /// What they fork is in the set too.
    pub heirs: bool,
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_number_that_was_given_back_is_no_process_any_more() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let held = HeldProcess::open(child.id()).unwrap();
        assert!(held.is_current() && held.thread_of().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.is_current());
        assert!(HeldProcess::open(child.id()).is_err());
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        let (id, end) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            id.0.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            let _ = end.1.recv();
        });
        let path = id.1.recv().unwrap();
        let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(HeldProcess::open(number).unwrap().thread_of(), Some(std::process::id()));
        drop(end.0);
        thread.join().unwrap();
    }
}
