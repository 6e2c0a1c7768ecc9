//! Events of kernel modules being loaded and unloaded.
//!
//! The kernel broadcasts an event (`NETLINK_KOBJECT_UEVENT`) when a module has finished its
//! initialisation. From then on the module's functions and types can be queried. No polling is
//! needed.

use crate::error::SysError;
use crate::syscall::{last_errno, until_nul};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The multicast group of the kernel's messages, as opposed to those of the device manager.
const KERNEL_GROUP: u32 = 1;
/// Maximum length of a message.
const MESSAGE: usize = 4096;
/// The kernel's list of modules.
const LIST: &str = "/proc/modules";

/// A socket that receives module events.
#[derive(Debug)]
pub struct ModuleEvents(OwnedFd);

/// Changes in the set of modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleChanges {
    /// The set has changed.
    pub any: bool,
    /// Modules that were unloaded, and possibly loaded again.
    pub gone: BTreeSet<String>,
}

impl ModuleEvents {
    /// Subscribes to the events.
    pub fn listen() -> Result<ModuleEvents, SysError> {
        let fail = |what: &str| SysError::new(what, last_errno());
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no addresses.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
        if fd < 0 {
            return Err(fail("listen to the kernel's events"));
        }
        // SAFETY: the kernel just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = KERNEL_GROUP;
        let size = std::mem::size_of_val(&address) as u32;
        // SAFETY: `address` is valid for `size` bytes.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) } != 0 {
            return Err(fail("listen to the kernel's events"));
        }
        Ok(ModuleEvents(fd))
    }

    /// The changes since the last call. Does not block.
    pub fn take(&self) -> ModuleChanges {
        let mut changes = ModuleChanges::default();
        let mut buffer = [0u8; MESSAGE];
        loop {
            // SAFETY: all zero is a valid address.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut size = std::mem::size_of_val(&from) as u32;
            let (place, address) = (buffer.as_mut_ptr().cast(), (&raw mut from).cast());
            // SAFETY: `buffer` has `MESSAGE` bytes, `from` has `size`.
            let n = unsafe { libc::recvfrom(self.0.as_raw_fd(), place, MESSAGE, 0, address, &raw mut size) };
            match usize::try_from(n) {
                // Only messages of the kernel count. Any process may send to a socket.
                Ok(n) if from.nl_pid == 0 => changes.record(buffer.get(..n).unwrap_or_default()),
                Ok(_) => {}
                // The receive buffer overflowed, so messages are lost.
                Err(_) if last_errno() == libc::ENOBUFS => changes.any = true,
                Err(_) if last_errno() == libc::EINTR => {}
                Err(_) => return changes,
            }
        }
    }
}

impl ModuleChanges {
    /// Parses `add@/module/NAME`, NUL, and key-value pairs that say the same.
    fn record(&mut self, message: &[u8]) {
        let Ok(text) = std::str::from_utf8(until_nul(message)) else { return };
        let Some((what, name)) = text.split_once("@/module/") else { return };
        self.any = true;
        if what == "remove" {
            self.gone.insert(name.into());
        }
    }
}

impl AsFd for ModuleEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The modules of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Names of modules that are loaded and initialised.
    pub live: BTreeSet<String>,
    /// Some module is still being initialised.
    pub loading: bool,
}

/// The current modules. An error when the kernel has no module support.
pub fn modules() -> std::io::Result<Modules> {
    Ok(parse(&std::fs::read_to_string(LIST)?))
}

/// Columns: `name size users by state address`.
fn parse(list: &str) -> Modules {
    let mut all = Modules::default();
    for line in list.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.nth(3)) {
            (Some(name), Some("Live")) => _ = all.live.insert(name.into()),
            (_, Some("Loading")) => all.loading = true,
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_count_only_once_they_are_initialised() {
        let text = "dummy 12288 0 - Live 0x0000000000000000\nloop 45056 0 - Loading 0x0\n\
                    overlay 217088 1 - Live 0xffffffffc0200000 (E)\nold 1 0 - Unloading 0x0\n";
        let all = parse(text);
        assert_eq!(all.live.into_iter().collect::<Vec<_>>(), ["dummy", "overlay"]);
        assert!(all.loading && !parse("dummy 1 0 - Live 0x0\n").loading);
    }

    #[test]
    fn messages_of_added_and_removed_modules_are_parsed() {
        let mut changes = ModuleChanges::default();
        changes.record(b"add@/devices/virtual/net/dummy0\0ACTION=add\0");
        changes.record(b"\xff");
        assert_eq!(changes, ModuleChanges::default());
        changes.record(b"add@/module/dummy\0ACTION=add\0");
        assert!(changes.any && changes.gone.is_empty());
        changes.record(b"remove@/module/dummy\0ACTION=remove\0");
        assert_eq!(changes.gone.into_iter().collect::<Vec<_>>(), ["dummy"]);
    }

    #[test]
    fn the_event_socket_needs_no_privilege_and_does_not_block() {
        let Ok(events) = ModuleEvents::listen() else { return };
        let _ = events.take();
    }
}
