//! Opening files that a traced process names, without believing it.
//!
//! A process decides what its files are: a path may lead to a FIFO, whose opening waits for ever; to a device, whose opening
//! does something; to a sparse file of terabytes; through a link to a file that the process may not read itself. Root would
//! follow. So a file is opened in four steps, and this module is the only way to do it:
//!
//! ```text
//!  ProcessDir   /proc/PID, held by a descriptor: a pid that is used again cannot be taken for it
//!  Root         the process's root directory
//!  Handle       a file, O_PATH: named, neither opened nor read. Paths are resolved by openat2 with RESOLVE_IN_ROOT and
//!               RESOLVE_NO_MAGICLINKS, so that no link and no `..` leaves the root
//!  Contents     the same file, open for reading, if Rules allow what fstat says of the handle: a regular file, of a size
//!               within bounds, not in a file system that the kernel makes up
//! ```
//!
//! A handle becomes contents through `/proc/self/fd`, so what was looked at is what is opened; a path is never resolved twice.
//! Reading is by position and within the size that was seen; a file that shrinks meanwhile is an error, not a signal (nothing
//! is mapped).
//!
//! None of this bounds *time*: a server behind FUSE or NFS may answer no question. Hence all of it runs in a process of its own
//! ([`crate::reader`]) that can be abandoned.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::sys::{self, Stat};

/// File systems whose files are not on a disk: a "regular file" in them is code of the kernel that runs when it is read.
/// (linux/magic.h)
const MADE_UP: [u64; 16] = [
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

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The system refused.
    Io(io::Error),
    /// A directory, device, FIFO, socket or link.
    NotRegular,
    /// In a file system that the kernel makes up.
    MadeUp,
    /// So many bytes.
    Size(u64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Io(e) => e.fmt(f),
            Refusal::NotRegular => f.write_str("not a regular file"),
            Refusal::MadeUp => f.write_str("a file of the kernel"),
            Refusal::Size(size) => write!(f, "{size} bytes are too many or too few"),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Self {
        Refusal::Io(e)
    }
}

/// What a file must be to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Bytes it must have at least and may have at most.
    pub(crate) size: (u64, u64),
}

/// A name without NUL.
fn c_string(path: &[u8]) -> io::Result<CString> {
    CString::new(path).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The directory of a process in `/proc`.
#[derive(Debug)]
pub(crate) struct ProcessDir(OwnedFd);

impl ProcessDir {
    /// Of a living process.
    pub(crate) fn open(pid: u32) -> io::Result<ProcessDir> {
        let here = File::open("/proc")?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        sys::open_at(here.as_fd(), &c_string(pid.to_string().as_bytes())?, flags).map(ProcessDir)
    }

    /// One of the files that tell of the process, as far as `limit` bytes of it.
    pub(crate) fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let fd = sys::open_at(self.0.as_fd(), &c_string(name.as_bytes())?, libc::O_RDONLY)?;
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(File::from(fd), limit), &mut text)?;
        Ok(text)
    }

    /// What a magic link of the process (`exe`, `root`, `map_files/…`) stands for.
    pub(crate) fn follow(&self, name: &str) -> io::Result<Handle> {
        sys::open_at(self.0.as_fd(), &c_string(name.as_bytes())?, libc::O_PATH).map(Handle)
    }

    /// The path of its root directory, in the way in which the kernel prints paths of its address map: from the root of its
    /// mount namespace. Not `/` after a `chroot`.
    pub(crate) fn root_path(&self) -> io::Result<Vec<u8>> {
        sys::read_link(self.0.as_fd(), c"root")
    }

    /// Its root directory.
    pub(crate) fn root(&self) -> io::Result<Root> {
        self.follow("root").map(|handle| Root(handle.0))
    }
}

/// A root directory: where absolute paths of a process begin.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

impl Root {
    /// A root that is held already.
    pub(crate) fn from_fd(fd: OwnedFd) -> Root {
        Root(fd)
    }

    /// The descriptor to hold it by.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What tells it from other roots: mount, device, inode.
    pub(crate) fn key(&self) -> io::Result<RootKey> {
        let stat = sys::stat(self.0.as_fd(), false)?;
        Ok(RootKey { mount: stat.mount, dev: stat.dev, inode: stat.inode })
    }

    /// The file that a path of the process names; links on the way are followed inside of the root.
    pub(crate) fn find(&self, path: &[u8]) -> io::Result<Handle> {
        sys::open_in(self.0.as_fd(), &c_string(path)?, libc::O_PATH).map(Handle)
    }

    /// Likewise; a link at the end of the path is the link itself.
    pub(crate) fn find_no_link(&self, path: &[u8]) -> io::Result<Handle> {
        sys::open_in(self.0.as_fd(), &c_string(path)?, libc::O_PATH | libc::O_NOFOLLOW).map(Handle)
    }
}

/// What tells one root directory from another. The same directory in two mount namespaces is two roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RootKey {
    pub(crate) mount: u64,
    pub(crate) dev: (u32, u32),
    pub(crate) inode: u64,
}

/// A file that is named and not open.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// A file that is held already. Whatever the descriptor allows, only what it stands for is used.
    pub(crate) fn from_fd(fd: OwnedFd) -> Handle {
        Handle(fd)
    }

    /// The descriptor to hold it by.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What is known of it without asking a server.
    pub(crate) fn stat_cached(&self) -> io::Result<Stat> {
        sys::stat(self.0.as_fd(), false)
    }

    /// What it is now.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        sys::stat(self.0.as_fd(), true)
    }

    /// Opens it for reading, if it is what it should be.
    pub(crate) fn open(&self, rules: &Rules) -> Result<Contents, Refusal> {
        let stat = self.stat()?;
        if !stat.regular {
            return Err(Refusal::NotRegular);
        }
        if !(rules.size.0..=rules.size.1).contains(&stat.size) {
            return Err(Refusal::Size(stat.size));
        }
        if MADE_UP.contains(&sys::file_system(self.0.as_fd())?) {
            return Err(Refusal::MadeUp);
        }
        Ok(Contents { file: sys::reopen(self.0.as_fd())?, stat })
    }
}

/// A file that is open, and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Contents {
    file: File,
    stat: Stat,
}

impl Contents {
    /// What it was when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its size when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.stat.size
    }

    /// Fills a buffer from a position. What does not lie in the file is an error.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.stat.size);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact_at(into, at)
    }

    /// The first bytes of the file, as many as there are now and fit into `into`: how many were read.
    pub(crate) fn read_up_to(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], done as u64) {
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
