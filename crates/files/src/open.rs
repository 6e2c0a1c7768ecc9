//! Safe opening of files that a traced process names.
//!
//! A process controls its files. A path may name a FIFO, whose open blocks for ever; a device,
//! whose open has side effects; a sparse file of terabytes; or a link to a file that the process
//! may not read itself, but root may. A file is therefore opened in four steps. Files of traced
//! processes are opened only with this module:
//!
//! ```text
//!  ProcessDir   /proc/PID, held by a descriptor, so that a reused pid cannot be mistaken for the process
//!  Root         the process's root directory
//!  Handle       a file opened with O_PATH: located, but not open for reading. Paths are resolved by openat2 with
//!               RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS, so that no link and no `..` leaves the root
//!  Contents     the same file, open for reading. Rules check the handle's statx first: it must be a regular file, of a
//!               bounded size, and not in a pseudo file system
//! ```
//!
//! A handle is reopened through `/proc/self/fd`, so the file that was checked is the file that is
//! opened. A path is never resolved twice. Reads are positioned and stay within the size that was
//! checked. A file that shrinks meanwhile yields an error, not a signal, because files are not
//! mapped.
//!
//! These steps do not bound *time*: a FUSE or NFS server may never respond. All of them therefore
//! run in a separate process that can be abandoned (the reader of `symbols`). The exception is
//! [`Root::find_cached`], which asks no server.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::sys;

pub use crate::sys::Stat;

/// Magic numbers of pseudo file systems (linux/magic.h). Reading a "regular file" in them runs code
/// of the kernel.
const PSEUDO_FILE_SYSTEMS: [u64; 16] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x0027_e0eb, // cgroup
    0x0765_5821, // resctrl
    0x5a3c_69f0, // AppArmor
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x4249_4e4d, // binfmt_misc
];

/// Why a file is rejected.
#[derive(Debug)]
pub enum OpenError {
    /// A system call failed.
    Io(io::Error),
    /// A directory, device, FIFO, socket or link.
    NotRegular,
    /// The file is in a pseudo file system.
    Pseudo,
    /// The file's size, in bytes, is out of bounds.
    Size(u64),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(e) => e.fmt(f),
            OpenError::NotRegular => f.write_str("not a regular file"),
            OpenError::Pseudo => f.write_str("a file of the kernel"),
            OpenError::Size(size) => write!(f, "{size} bytes are too many or too few"),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(e: io::Error) -> Self {
        OpenError::Io(e)
    }
}

/// What a file must satisfy to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Minimum and maximum size in bytes.
    pub size: (u64, u64),
}

/// A path as a C string. A NUL in it is an error.
fn c_string(path: &[u8]) -> io::Result<CString> {
    CString::new(path).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The directory of a process in `/proc`.
#[derive(Debug)]
pub struct ProcessDir(OwnedFd);

impl ProcessDir {
    /// Opens the directory of a running process.
    pub fn open(pid: u32) -> io::Result<ProcessDir> {
        let here = File::open("/proc")?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        sys::open_at(here.as_fd(), &c_string(pid.to_string().as_bytes())?, flags).map(ProcessDir)
    }

    /// Reads at most `limit` bytes of one of the directory's files.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let fd = sys::open_at(self.0.as_fd(), &c_string(name.as_bytes())?, libc::O_RDONLY)?;
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(File::from(fd), limit), &mut text)?;
        Ok(text)
    }

    /// The process's address map, to be read line by line: it may be long.
    pub fn maps(&self) -> io::Result<File> {
        sys::open_at(self.0.as_fd(), c"maps", libc::O_RDONLY).map(File::from)
    }

    /// The process's memory, for positioned reads. A read may wait for whoever provides the memory.
    pub fn memory(&self) -> io::Result<File> {
        sys::open_at(self.0.as_fd(), c"mem", libc::O_RDONLY).map(File::from)
    }

    /// Which pages of the process are in memory, 8 bytes for each.
    pub fn pages(&self) -> io::Result<File> {
        sys::open_at(self.0.as_fd(), c"pagemap", libc::O_RDONLY).map(File::from)
    }

    /// The target of a magic link of the process (`exe`, `root`, `map_files/…`).
    pub fn follow(&self, name: &str) -> io::Result<Handle> {
        sys::open_at(self.0.as_fd(), &c_string(name.as_bytes())?, libc::O_PATH).map(Handle)
    }

    /// The path of the process's root directory from the root of its mount namespace, like the
    /// paths of its address map. Not `/` after a `chroot`.
    pub fn root_path(&self) -> io::Result<Vec<u8>> {
        sys::read_link(self.0.as_fd(), c"root")
    }

    /// The process's root directory.
    pub fn root(&self) -> io::Result<Root> {
        self.follow("root").map(|handle| Root(handle.0))
    }
}

/// The root directory of a process. Absolute paths of the process are resolved in it.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// The root directory of this process.
    pub fn own() -> io::Result<Root> {
        let here = File::open("/")?;
        sys::open_at(here.as_fd(), c".", libc::O_PATH | libc::O_DIRECTORY).map(Root)
    }

    /// The root of an open descriptor.
    pub fn from_fd(fd: OwnedFd) -> Root {
        Root(fd)
    }

    /// The `O_PATH` descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The `O_PATH` descriptor, without the root.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// The key that identifies this root.
    pub fn key(&self) -> io::Result<RootKey> {
        let stat = sys::stat(self.0.as_fd(), false)?;
        Ok(RootKey { mount: stat.mount, dev: stat.dev, inode: stat.inode })
    }

    /// Resolves a path of the process. Links are followed inside of the root.
    pub fn find(&self, path: &[u8]) -> io::Result<Handle> {
        sys::open_in(self.0.as_fd(), &c_string(path)?, libc::O_PATH, false).map(Handle)
    }

    /// As [`Root::find`], but only if the kernel has all of the path in its caches. A file that was
    /// just mapped is there. No file server is asked, so the call does not block.
    pub fn find_cached(&self, path: &[u8]) -> io::Result<Handle> {
        sys::open_in(self.0.as_fd(), &c_string(path)?, libc::O_PATH, true).map(Handle)
    }

    /// As [`Root::find`], but does not follow a link in the last component.
    pub fn find_no_link(&self, path: &[u8]) -> io::Result<Handle> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        sys::open_in(self.0.as_fd(), &c_string(path)?, flags, false).map(Handle)
    }
}

/// Identifies a root directory by mount, device and inode. The same directory in two mount
/// namespaces has two keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootKey {
    /// The mount id; 0 if the kernel does not report it.
    pub mount: u64,
    /// Device (major, minor) of the directory.
    pub dev: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// A file that is located (`O_PATH`) and not open for reading.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// The file of an open descriptor. The descriptor's access mode is not used.
    pub fn from_fd(fd: OwnedFd) -> Handle {
        Handle(fd)
    }

    /// The `O_PATH` descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The `O_PATH` descriptor, without the file.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// The cached attributes. Does not query the server of a remote file system.
    pub fn stat_cached(&self) -> io::Result<Stat> {
        sys::stat(self.0.as_fd(), false)
    }

    /// True of a file in memory (`memfd_create`), which no overlay can have. The device is one of
    /// the kernel's own, which nothing else has.
    pub fn is_in_memory(&self) -> bool {
        static DEVICE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
        let of = |fd: &OwnedFd| sys::stat(fd.as_fd(), false).map(|stat| stat.dev).ok();
        let device = DEVICE.get_or_init(|| of(&sys::file_in_memory().ok()?));
        device.is_some() && of(&self.0) == *device
    }

    /// The current attributes.
    pub fn stat(&self) -> io::Result<Stat> {
        sys::stat(self.0.as_fd(), true)
    }

    /// Opens the file for reading, if it satisfies the rules.
    pub fn open(&self, rules: &Rules) -> Result<Contents, OpenError> {
        let stat = self.stat()?;
        if !stat.regular {
            return Err(OpenError::NotRegular);
        }
        if !(rules.size.0..=rules.size.1).contains(&stat.size) {
            return Err(OpenError::Size(stat.size));
        }
        if PSEUDO_FILE_SYSTEMS.contains(&sys::file_system(self.0.as_fd())?) {
            return Err(OpenError::Pseudo);
        }
        Ok(Contents { file: sys::reopen(self.0.as_fd())?, stat })
    }
}

/// An open file, and its attributes at the time of opening.
#[derive(Debug)]
pub struct Contents {
    file: File,
    stat: Stat,
}

impl Contents {
    /// The attributes at the time of opening.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The size at the time of opening.
    pub fn size(&self) -> u64 {
        self.stat.size
    }

    /// Fills a buffer from a position. A range beyond the end of the file is an error.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.stat.size);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact_at(into, at)
    }

    /// Reads the start of the file into `into`, up to the current end of the file. Returns the
    /// number of bytes read.
    pub fn read_up_to(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(left) = into.get_mut(done..).filter(|left| !left.is_empty()) {
            match self.file.read_at(left, done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests;
