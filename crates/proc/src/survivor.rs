//! Processes whose first thread has ended, by `pthread_exit`, while others run.
//!
//! Such a process has its number still, but `/proc/PID` is the first thread's, which has no memory
//! any more: its `maps` are empty, its `exe` and `root` lead nowhere. `/proc/TID` of another thread
//! has all of them, although no list has it.

use std::io;

use crate::refusal::status_field;

/// The thread by whose number `/proc` shows the memory of a process: the first one, or else one
/// that has not ended. Where there is none (a zombie, a thread of the kernel) the number is
/// returned as it is.
pub fn thread_with_memory(pid: u32) -> u32 {
    if !lacks_memory(pid) {
        return pid;
    }
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return pid };
    let ids = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_of_it = |id: &u32| {
        status_field(*id, "Tgid", 0).and_then(|text| text.parse().ok()) == Some(pid) && !lacks_memory(*id)
    };
    ids.filter(|id| *id != pid).find(is_of_it).unwrap_or(pid)
}

/// True if a thread has no memory: it has ended, or is one of the kernel.
fn lacks_memory(id: u32) -> bool {
    std::fs::read_link(format!("/proc/{id}/exe")).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shows_its_memory_by_its_first_thread_and_nothing_by_none() {
        let me = std::process::id();
        assert_eq!(thread_with_memory(me), me);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !lacks_memory(child.id()) {
            std::thread::yield_now();
        }
        assert_eq!(thread_with_memory(child.id()), child.id());
        child.wait().unwrap();
        assert_eq!(thread_with_memory(child.id()), child.id());
    }
}
