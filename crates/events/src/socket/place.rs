//! A socket in the file system on which a process listens.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most bytes of the path of a socket (`sun_path` without its end).
const LONGEST: usize = 107;
/// How long the lock of a directory is waited for, and how often it is tried.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// The name of a socket, and which file it is.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    is: (u64, u64),
}

impl Place {
    fn of(path: &Path) -> io::Result<Place> {
        let is = path.symlink_metadata().map(|m| (m.dev(), m.ino()))?;
        Ok(Place { path: path.to_owned(), is })
    }

    /// Removes the name, unless another process has put its own file there.
    pub fn remove(&self) {
        // Nobody replaces it between the two calls.
        let _lock = Lock::of(&self.path, Duration::ZERO);
        if Place::of(&self.path).is_ok_and(|now| now.is == self.is) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path, for this user alone. A socket to which nobody listens is what an earlier
/// process left, and is replaced. Any other file is an error. Of two processes that replace the
/// same socket one listens, and for the other it is in use.
pub fn listen(path: &Path) -> io::Result<(UnixListener, Place)> {
    listen_within(path, LIMIT)
}

fn listen_within(path: &Path, limit: Duration) -> io::Result<(UnixListener, Place)> {
    if path.as_os_str().len() > LONGEST {
        let text = format!("the path of a socket has at most {LONGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // A socket that has its name and does not listen yet looks as one that was left: who finds that
    // waits for the lock of who makes one. It is not waited for where there is nothing to replace,
    // since whoever may read a directory may lock it.
    let mut lock = Lock::of(path, Duration::ZERO);
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            let text = "a file is there that is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if is_left(path) && matches!(lock, Lock::Busy) {
            lock = Lock::of(path, limit);
        }
        if is_left_for_long(path) {
            if matches!(lock, Lock::Busy) {
                let text =
                    "a socket that nobody serves is there, and another process has its directory locked";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            std::fs::remove_file(path)?;
        }
    }
    // Between a call that makes it and one that changes it, others could connect, or put a link in
    // its place.
    // SAFETY: plain system calls.
    let before = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let listener = listener?;
    let place = Place::of(path)?;
    Ok((listener, place))
}

/// True of a socket to which nobody listens now and a moment later: who makes one without the lock,
/// because nothing was there, does not listen yet.
fn is_left_for_long(path: &Path) -> bool {
    let is = |path| Place::of(path).map(|place| place.is).ok();
    let first = is(path);
    is_left(path) && {
        std::thread::sleep(4 * PAUSE);
        is_left(path) && is(path) == first
    }
}

/// True of a socket to which nobody listens. A listener that has no room for one more is there.
fn is_left(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid address; its path is at most as long as it has room for, with a
    // zero behind it; the calls are given an open descriptor and the size of the address.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let room = address.sun_path.len() - 1;
        for (to, from) in address.sun_path.iter_mut().zip(bytes.iter().take(room)) {
            *to = *from as libc::c_char;
        }
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return false;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) != 0
            && io::Error::last_os_error().kind() == io::ErrorKind::ConnectionRefused
    }
}

/// The lock of a socket's directory (`flock`), which leaves no file behind. It goes with its
/// descriptor.
enum Lock {
    Held(#[expect(dead_code, reason = "it is dropped")] File),
    /// Another process has it.
    Busy,
    /// A file system or a directory without locks: two sessions are not kept apart there.
    None,
}

impl Lock {
    /// Waits for the lock so long.
    fn of(path: &Path, limit: Duration) -> Lock {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK);
        let Ok(dir) = options.open(parent.unwrap_or(Path::new("."))) else { return Lock::None };
        let end = Instant::now() + limit;
        loop {
            // SAFETY: a plain system call on an open descriptor.
            if unsafe { libc::flock(dir.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Lock::Held(dir);
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock if Instant::now() < end => std::thread::sleep(PAUSE),
                io::ErrorKind::WouldBlock => return Lock::Busy,
                io::ErrorKind::Interrupted => {}
                _ => return Lock::None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("dtrace-place-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_socket_of_another_process_stays() {
        let path = path("stays");
        let (first, place) = listen(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        let (_second, other) = listen(&path).unwrap();
        drop(first);
        place.remove();
        assert!(UnixStream::connect(&path).is_ok());
        other.remove();
        assert!(!path.exists());
    }

    #[test]
    fn only_a_socket_to_which_nobody_listens_is_replaced() {
        let path = path("stale");
        let (first, _) = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let (_second, place) = listen(&path).unwrap();
        place.remove();
        std::fs::write(&path, "text").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        std::fs::remove_file(&path).unwrap();
        let long = std::env::temp_dir().join("x".repeat(LONGEST));
        assert!(listen(&long).unwrap_err().to_string().contains("at most 107 bytes"));
    }

    #[test]
    fn of_those_who_replace_one_socket_one_listens() {
        let path = path("race");
        let barrier = Barrier::new(4);
        for _ in 0..100 {
            drop(UnixListener::bind(&path).unwrap());
            let one = || {
                barrier.wait();
                listen(&path)
            };
            let done: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let (mut won, lost): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
            assert_eq!((won.len(), lost.len()), (1, 3));
            assert!(lost.iter().all(|e| e.as_ref().unwrap_err().kind() == io::ErrorKind::AddrInUse));
            // The name is that of who listens.
            let (listener, place) = won.pop().unwrap().unwrap();
            let _there = UnixStream::connect(&path).unwrap();
            listener.accept().unwrap();
            place.remove();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_directory_that_another_process_has_locked_is_no_obstacle_where_nothing_is_replaced() {
        let dir = testing::dir::Dir::new("place-locked");
        let path = dir.join("socket");
        let lock = Lock::of(&path, LIMIT);
        assert!(matches!(lock, Lock::Held(_)));
        let (listener, _) = listen_within(&path, PAUSE).unwrap();
        // One that has no room for more connections is served all the same.
        // SAFETY: a plain system call on an open descriptor.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect(&path).unwrap();
        let e = listen_within(&path, PAUSE).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let e = listen_within(&path, PAUSE).unwrap_err();
        assert!(e.kind() == io::ErrorKind::AddrInUse && e.to_string().contains("locked"), "{e}");
        drop(lock);
        listen(&path).unwrap().1.remove();
        // A parent that is no directory is not waited for.
        let fifo = std::ffi::CString::new(dir.join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that lives across the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert!(listen(&dir.join("fifo/socket")).is_err());
    }
}
