//! A socket in the file system on which a process listens.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The most bytes of the path of a socket (`sun_path` without its end).
const LONGEST: usize = 107;

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
        if Place::of(&self.path).is_ok_and(|now| now.is == self.is) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path, for this user alone. A socket to which nobody listens is what an earlier
/// process left, and is replaced. Any other file is an error.
pub fn listen(path: &Path) -> io::Result<(UnixListener, Place)> {
    if path.as_os_str().len() > LONGEST {
        let text = format!("the path of a socket has at most {LONGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            let text = "a file is there that is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
}
