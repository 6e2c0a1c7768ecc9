//! System calls without a safe wrapper in the standard library: opening relative to a descriptor,
//! and `statx` without a query to a file server. All `unsafe` code of the crate is in this module.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn result(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// `openat(2)`; always close-on-exec.
pub(crate) fn open_at(dir: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the path is a string that ends in NUL and outlives the call; no mode is read without
    // O_CREAT.
    let fd = unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC) };
    result(fd.into())?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How often a call is made whose error may have been that of a mount or a rename at the same time.
const TRIES: u32 = 4;

/// `openat2(2)` that never leaves `root`. Absolute paths and links are resolved in `root`, and `..`
/// stops there. Magic links (those of `/proc/PID/fd`, for example) are errors. With `cached`, a
/// path that the kernel cannot resolve from its caches is an error (`EAGAIN`): no file server is
/// asked. The error is also that of a mount or a rename at the same time, so the call is repeated.
pub(crate) fn open_in(root: BorrowedFd<'_>, path: &CStr, flags: i32, cached: bool) -> io::Result<OwnedFd> {
    /// linux/openat2.h; since 5.12.
    const RESOLVE_CACHED: u64 = 0x20;
    // SAFETY: all-zero is a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    how.resolve |= if cached { RESOLVE_CACHED } else { 0 };
    let size = size_of::<libc::open_how>();
    let mut tries = TRIES;
    loop {
        tries -= 1;
        // SAFETY: path and struct outlive the call; the size is the struct's.
        let fd = result(unsafe {
            libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size)
        });
        match fd {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && tries > 0 => {}
            // SAFETY: the kernel has just given us this descriptor.
            fd => return fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
        }
    }
}

/// `memfd_create(2)`, of a file that may not be executed where the kernel knows the flag (6.3).
pub(crate) fn file_in_memory() -> io::Result<OwnedFd> {
    /// linux/memfd.h
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a string that ends in NUL.
        let fd = unsafe { libc::memfd_create(c"dtrace-device".as_ptr(), libc::MFD_CLOEXEC | flags) };
        result(fd.into())?;
        // SAFETY: the kernel has just given us this descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    create(MFD_NOEXEC_SEAL).or_else(|_: io::Error| create(0))
}

/// `readlinkat(2)`
pub(crate) fn read_link(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut path = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the name outlives the call; the buffer has the given length.
    let got =
        unsafe { libc::readlinkat(dir.as_raw_fd(), name.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(result(got as libc::c_long)? as usize);
    Ok(path)
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stat {
    pub regular: bool,
    /// The number of names that the file has.
    pub links: u32,
    pub uid: u32,
    pub size: u64,
    pub dev: (u32, u32),
    pub inode: u64,
    /// The mount id; 0 if the kernel does not report it.
    pub mount: u64,
    /// Seconds since 1970, nanoseconds.
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// `statx(2)` of a descriptor, including `O_PATH` descriptors. Without `sync` a remote file system
/// (FUSE, NFS) returns cached attributes and does not wait for its server.
pub(crate) fn stat(fd: BorrowedFd<'_>, sync: bool) -> io::Result<Stat> {
    let sync = if sync { libc::AT_STATX_SYNC_AS_STAT } else { libc::AT_STATX_DONT_SYNC };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: all-zero is a valid statx; the empty path names the descriptor itself.
    let s = unsafe {
        let mut s: libc::statx = std::mem::zeroed();
        let done = libc::statx(fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH | sync, mask, &mut s);
        result(done.into())?;
        s
    };
    Ok(Stat {
        regular: u32::from(s.stx_mode) & libc::S_IFMT == libc::S_IFREG,
        links: s.stx_nlink,
        uid: s.stx_uid,
        size: s.stx_size,
        dev: (s.stx_dev_major, s.stx_dev_minor),
        inode: s.stx_ino,
        mount: if s.stx_mask & libc::STATX_MNT_ID != 0 { s.stx_mnt_id } else { 0 },
        modified: (s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec),
        changed: (s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec),
    })
}

/// The user namespace to which a namespace belongs, by device and inode. The descriptor of the
/// namespace may be one of `O_PATH`.
pub(crate) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<((u32, u32), u64)> {
    /// linux/nsfs.h
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    let namespace = reopen(namespace)?;
    // SAFETY: the call has no argument and returns a new descriptor.
    let owner = unsafe {
        let fd = result(libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS).into())?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    stat(owner.as_fd(), false).map(|stat| (stat.dev, stat.inode))
}

/// The magic number of the file system of a descriptor.
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: all-zero is a valid statfs, which the kernel fills.
    unsafe {
        let mut s: libc::statfs = std::mem::zeroed();
        result(libc::fstatfs(fd.as_raw_fd(), &mut s).into())?;
        Ok(s.f_type as u64 & 0xffff_ffff)
    }
}

/// Opens the file of an `O_PATH` descriptor for reading. Never blocks on a FIFO, a lease or a
/// terminal.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}
