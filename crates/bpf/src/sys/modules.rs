//! Hearing of modules that the kernel loads and unloads.
//!
//! The kernel tells whoever listens (`NETLINK_KOBJECT_UEVENT`) when a module has finished its initialisation: its functions and
//! types can be asked for then, and nothing has to be looked for meanwhile.

use super::{SysError, last_errno};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Messages of the kernel, as opposed to those of the device manager.
const KERNEL_GROUP: u32 = 1;
/// Longest message that the kernel sends.
const MESSAGE: usize = 4096;
/// Where the kernel lists its modules.
const LIST: &str = "/proc/modules";

/// A socket on which the kernel tells of modules.
#[derive(Debug)]
pub struct ModuleEvents(OwnedFd);

/// What happened to modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleChanges {
    /// There is something to look at.
    pub any: bool,
    /// Modules that were unloaded; perhaps they came again.
    pub gone: BTreeSet<String>,
}

impl ModuleEvents {
    /// Listens from now on.
    pub fn listen() -> Result<ModuleEvents, SysError> {
        let fail = |what: &str| SysError::new(what, last_errno());
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no addresses.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
        if fd < 0 {
            return Err(fail("listen to the kernel's events"));
        }
        // SAFETY: the kernel just made this descriptor for us.
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

    /// What was told since the last call. Does not wait.
    pub fn take(&self) -> ModuleChanges {
        let mut heard = ModuleChanges::default();
        let mut buffer = [0u8; MESSAGE];
        loop {
            // SAFETY: all zero is a valid address.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut size = std::mem::size_of_val(&from) as u32;
            let (room, address) = (buffer.as_mut_ptr().cast(), (&raw mut from).cast());
            // SAFETY: `buffer` takes `MESSAGE` bytes, `from` takes `size`.
            let n = unsafe { libc::recvfrom(self.0.as_raw_fd(), room, MESSAGE, 0, address, &raw mut size) };
            match usize::try_from(n) {
                // Only the kernel's word counts: any process may send to a socket.
                Ok(n) if from.nl_pid == 0 => heard.hear(buffer.get(..n).unwrap_or_default()),
                Ok(_) => {}
                // More was told than there was room for.
                Err(_) if last_errno() == libc::ENOBUFS => heard.any = true,
                Err(_) if last_errno() == libc::EINTR => {}
                Err(_) => return heard,
            }
        }
    }
}

impl ModuleChanges {
    /// `add@/module/NAME`, NUL, and words that say the same.
    fn hear(&mut self, message: &[u8]) {
        let end = message.iter().position(|b| *b == 0).unwrap_or(message.len());
        let Ok(text) = std::str::from_utf8(&message[..end]) else { return };
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
    /// Names of those that are loaded and ready.
    pub live: BTreeSet<String>,
    /// Another one is on its way.
    pub loading: bool,
}

/// The modules that there are; an error where the kernel has none at all.
pub fn modules() -> std::io::Result<Modules> {
    Ok(parse(&std::fs::read_to_string(LIST)?))
}

/// `name size users by state address`
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
    fn only_modules_that_are_ready_count() {
        let text = "dummy 12288 0 - Live 0x0000000000000000\nloop 45056 0 - Loading 0x0\n\
                    overlay 217088 1 - Live 0xffffffffc0200000 (E)\nold 1 0 - Unloading 0x0\n";
        let all = parse(text);
        assert_eq!(all.live.into_iter().collect::<Vec<_>>(), ["dummy", "overlay"]);
        assert!(all.loading && !parse("dummy 1 0 - Live 0x0\n").loading);
    }

    #[test]
    fn what_is_heard_of_modules() {
        let mut heard = ModuleChanges::default();
        heard.hear(b"add@/devices/virtual/net/dummy0\0ACTION=add\0");
        heard.hear(b"\xff");
        assert_eq!(heard, ModuleChanges::default());
        heard.hear(b"add@/module/dummy\0ACTION=add\0");
        assert!(heard.any && heard.gone.is_empty());
        heard.hear(b"remove@/module/dummy\0ACTION=remove\0");
        assert_eq!(heard.gone.into_iter().collect::<Vec<_>>(), ["dummy"]);
    }

    #[test]
    fn listening_needs_no_privilege_and_does_not_wait() {
        let Ok(events) = ModuleEvents::listen() else { return };
        let _ = events.take();
    }
}
