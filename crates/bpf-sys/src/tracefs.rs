//! The location of tracefs, where the kernel lists events and functions.
//!
//! Distributions mount tracefs, containers and small systems often do not. A process that may trace
//! may also mount. Its mount is detached: it is not in the file tree, no other process sees it, and
//! it ends with the process.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const FSOPEN_CLOEXEC: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSMOUNT_CLOEXEC: u32 = 1;
/// Read-only, no set-user-id, no devices, no execution.
const MOUNT_ATTRS: u32 = 1 | 2 | 4 | 8;

/// The root of tracefs, or why there is none. Determined once.
pub fn tracefs() -> Result<&'static Path, &'static str> {
    struct Root {
        path: PathBuf,
        /// Keeps our detached mount.
        _mount: Option<OwnedFd>,
    }
    static FOUND: OnceLock<Result<Root, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mounted = Path::new("/sys/kernel/tracing");
        if mounted.join("events").exists() {
            return Ok(Root { path: mounted.into(), _mount: None });
        }
        let mount = mount(c"tracefs").map_err(|e| format!("tracefs is not mounted and cannot be: {e}"))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        match path.join("events").exists() {
            true => Ok(Root { path, _mount: Some(mount) }),
            false => Err("tracefs has no events on this kernel".into()),
        }
    });
    found.as_ref().map(|f| &*f.path).map_err(String::as_str)
}

/// Creates a detached mount.
fn mount(kind: &CStr) -> std::io::Result<OwnedFd> {
    let open = |fd: libc::c_long| match RawFd::try_from(fd) {
        // SAFETY: a new descriptor that nothing else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: `kind` is NUL-terminated.
    let fs = open(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    let made =
        unsafe { libc::syscall(libc::SYS_fsconfig, fs.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
    if made < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: no addresses.
    open(unsafe { libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), FSMOUNT_CLOEXEC, MOUNT_ATTRS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_found_or_the_reason_is_given() {
        match tracefs() {
            Ok(path) => assert!(path.join("events").is_dir()),
            Err(why) => assert!(why.contains("tracefs")),
        }
    }
}
