//! Names of addresses in the kernel of a guest. The reader reads the guest's memory in the process
//! that is its machine, if the user has named that.

use std::time::Instant;

use super::known_guests::Guests;
use super::{Processes, failed_recently, named};
use crate::name::Name;
use crate::object::{self, Lookup, report_failure};
use crate::wire::Request;

/// The name of a kernel itself, as that of this machine.
const MODULE: &str = "vmlinux";

/// Descriptors of a process that are looked at.
const MOST_DESCRIPTORS: usize = 1 << 16;

impl Processes {
    /// Names whose guests' memory may be read.
    pub fn set_guests(&mut self, guests: Guests) {
        self.guests.named = guests;
    }

    /// The name of an address in the kernel of a guest. `pid`: the process in which the address was
    /// seen. If that runs a virtual processor it is of its own guest. If not, it is of the guest
    /// that the user has named: only KVM's guests run in threads of their process.
    pub fn guest_name(&mut self, pid: u32, addr: u64) -> Name {
        let Some(of) = self.guest_of(pid) else { return Name::unknown(addr) };
        let known = &mut self.guests;
        if std::mem::replace(&mut known.batch, self.batch) != self.batch {
            known.symbols.clear();
            known.machines.clear();
        }
        let found = match known.symbols.get(&(of, addr)) {
            Some(found) => found.clone(),
            None => {
                let found = self.ask_guest(of, addr);
                self.guests.symbols.insert((of, addr), found.clone());
                found
            }
        };
        let module = matches!(found, Lookup::Symbol(..)).then(|| MODULE.into());
        named(addr, module, found)
    }

    fn guest_of(&mut self, pid: u32) -> Option<u32> {
        match self.guests.named {
            Guests::None => {
                self.reader.report_once("guest", || {
                    "guestsym() reads the memory of guests that -x guest=PID or -x guest=all names: addresses of guests are shown as numbers".into()
                });
                None
            }
            Guests::Of(named) if named == pid => Some(pid),
            Guests::Of(named) => (!self.is_machine(pid)).then_some(named),
            Guests::All => self.is_machine(pid).then_some(pid),
        }
    }

    /// Whether a process runs a virtual processor of KVM, or cannot be looked at any more.
    fn is_machine(&mut self, pid: u32) -> bool {
        if let Some(known) = self.guests.machines.get(&pid) {
            return *known;
        }
        let is_processor = |entry: std::io::Result<std::fs::DirEntry>| {
            let target = std::fs::read_link(entry.ok()?.path()).ok()?;
            Some(target.as_os_str().as_encoded_bytes().starts_with(b"anon_inode:kvm-vcpu"))
        };
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let is_machine = descriptors.map_or(true, |all| {
            all.take(MOST_DESCRIPTORS).filter_map(is_processor).any(|is_processor| is_processor)
        });
        self.guests.machines.insert(pid, is_machine);
        is_machine
    }

    fn ask_guest(&mut self, pid: u32, addr: u64) -> Lookup {
        let unknown = Lookup::Unnamed(None);
        if failed_recently(self.guests.failed.get(&pid).copied()) {
            return unknown;
        }
        let request = Request::Guest { pid, addrs: vec![addr] };
        match self.reader.query(&request, &[]) {
            Ok((responses, None)) => {
                object::symbols(responses).into_iter().next().map_or(unknown, Lookup::from)
            }
            Ok((_, Some(failure))) => {
                self.guests.failed.insert(pid, Instant::now());
                self.reader.report_once("guest", || {
                    format!(
                        "the guest of process {pid} has no symbols: {}: its addresses are shown as numbers",
                        failure.why
                    )
                });
                unknown
            }
            Err(error) => {
                if error.excludes_object() {
                    self.guests.failed.insert(pid, Instant::now());
                }
                report_failure(&mut self.reader, error, &format!("the guest of process {pid}"));
                unknown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_memory_of_guests_that_are_named_is_read() {
        let own = std::process::id();
        let mut processes = Processes::default();
        assert_eq!(processes.guest_of(own), None);
        let told = processes.take_messages();
        assert!(told.len() == 1 && told[0].contains("-x guest=PID"), "{told:?}");
        // This process has no virtual processor.
        processes.set_guests(Guests::All);
        assert_eq!(processes.guest_of(own), None);
        processes.set_guests(Guests::Of(own));
        assert_eq!(processes.guest_of(own), Some(own));
        assert_eq!(processes.guest_of(u32::MAX), None, "one that has ended may have been a machine");
        processes.set_guests(Guests::Of(7));
        assert_eq!(processes.guest_of(own), Some(7));
    }

    #[test]
    fn a_process_that_is_no_machine_has_a_reason_once() {
        let own = std::process::id();
        let mut processes = Processes::default();
        processes.set_limits(std::time::Duration::from_secs(120), 256 << 20);
        processes.set_guests(Guests::Of(own));
        for addr in [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010] {
            assert_eq!(processes.guest_name(own, addr), Name::unknown(addr));
        }
        let told = processes.take_messages();
        assert!(told.len() == 1 && told[0].contains("no VMCOREINFO"), "{told:?}");
    }
}
