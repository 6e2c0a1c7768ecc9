//! Files that are replaced as a whole.
//!
//! The new content has no name, or one beside the file where the file system cannot do that, until
//! it is whole and gets the name of the file. So a reader never sees a part, a session that is
//! killed leaves nothing, and a link of that name is replaced and not followed.

use std::ffi::{CString, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use dtrace::diagnostics::{control, system_text};

/// How many names are tried for the file beside another: one of a process that was killed remains,
/// and in a container every process may have its id.
const NAMES: u32 = 100;
/// The longest name of a file that has space for one beside it: `..4194304-99.tmp` is added.
const LONGEST: usize = 255 - 16;

/// The message of a file that cannot be written.
pub(crate) fn failed(file: &str, error: &io::Error) -> String {
    format!("failed to write '{}': {}", control::name_text(file), system_text(error))
}

/// Whether a name leads to a descriptor of this process, as `/dev/stdout` does, or to a device.
pub(crate) fn is_of_system(path: &Path) -> bool {
    let target = path.read_link();
    target.is_ok_and(|target| target.starts_with("/proc") || target.starts_with("/dev"))
}

/// Tries whether a file can be replaced.
pub(crate) fn try_file(path: &Path) -> io::Result<()> {
    Replacement::new(path).map(drop)
}

/// Replaces a file by bytes.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (replacement, mut file) = Replacement::new(path)?;
    file.write_all(bytes)?;
    replacement.finish()
}

/// The new content of a file. What is not finished is removed.
pub(crate) struct Replacement {
    path: PathBuf,
    content: File,
    /// Its name while it is written, if it has one.
    beside: Option<PathBuf>,
    /// It is for this user alone, whatever it replaces.
    is_private: bool,
}

impl Replacement {
    /// The file gets the content.
    pub(crate) fn new(path: &Path) -> io::Result<(Replacement, File)> {
        Replacement::with_mode(path, 0o666)
    }

    /// The same, for this user alone until another mode is set.
    pub(crate) fn private(path: &Path) -> io::Result<(Replacement, File)> {
        let (mut replacement, file) = Replacement::with_mode(path, 0o600)?;
        replacement.is_private = true;
        Ok((replacement, file))
    }

    fn with_mode(path: &Path, mode: u32) -> io::Result<(Replacement, File)> {
        // A link to a file, or to nothing, is replaced and not followed, since others may have made
        // it; but none of the system's.
        let leads_to_file = || path.metadata().map_or(true, |m| m.is_file());
        let is_file = |m: Metadata| m.is_file() || m.is_symlink() && !is_of_system(path) && leads_to_file();
        if !path.symlink_metadata().map_or(true, is_file) {
            return Err(io::Error::other("not a regular file, which could be replaced"));
        }
        let (file, beside) = match unnamed(path, mode) {
            Some(file) => (file, None),
            None => with_name_beside(path, |beside| {
                let mut new = OpenOptions::new();
                new.write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
                new.open(beside)
            })
            .map(|(file, beside)| (file, Some(beside)))?,
        };
        let content = file.try_clone();
        let replacement = |content| Replacement { path: path.to_owned(), content, beside, is_private: false };
        Ok((replacement(content?), file))
    }

    /// The content is whole: it gets the name, and the owner and the mode, of the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if !self.is_private {
            keep_owner(&self.path, &self.content)?;
        }
        let beside = match self.beside.take() {
            Some(beside) => beside,
            // A link replaces nothing.
            None => with_name_beside(&self.path, |beside| link(&self.content, beside))?.1,
        };
        let beside = self.beside.insert(beside);
        std::fs::rename(beside, &self.path)?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// A file without a name where a path will be, if the file system has such and it can get a name
/// later, which goes through `/proc`.
fn unnamed(path: &Path, mode: u32) -> Option<File> {
    // Its name has space for what distinguishes that beside it.
    path.file_name().filter(|name| name.len() <= LONGEST)?;
    let mut new = OpenOptions::new();
    new.write(true).mode(mode).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    let file = new.open(directory(path)).ok()?;
    name_in_proc(&file).exists().then_some(file)
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn name_in_proc(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Gives a file without a name one.
fn link(file: &File, name: &Path) -> io::Result<()> {
    // AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH.
    let from = CString::new(name_in_proc(file).as_os_str().as_bytes())?;
    let to = CString::new(name.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both names end in NUL and outlive the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes something with a name beside a path that nothing else has.
fn with_name_beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?;
    let mut n = 0;
    loop {
        let mut other = OsString::from(".");
        other.push(name);
        other.push(format!(".{}-{n}.tmp", std::process::id()));
        let beside = path.with_file_name(other);
        match make(&beside) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < NAMES => n += 1,
            done => return done.map(|made| (made, beside)),
        }
    }
}

/// New content has the owner and the mode of the file that it replaces, so that who could read
/// that can read this. Not those of a file that somebody else may have put there for that.
fn keep_owner(path: &Path, new: &File) -> io::Result<()> {
    const OF_ALL: u32 = 0o002;
    let (Ok(old), now) = (path.symlink_metadata(), new.metadata()?) else { return Ok(()) };
    let is_mine = old.uid() == now.uid();
    if !old.is_file() || !is_mine && directory(path).metadata()?.mode() & OF_ALL != 0 {
        return Ok(());
    }
    let is_given = |m: &Metadata| (m.uid(), m.gid()) == (old.uid(), old.gid());
    let is_given = is_given(&now) || fchown(new, Some(old.uid()), Some(old.gid())).is_ok();
    // Who may not give it away keeps it, and shows it to no more than could see it.
    let mode = if is_given { old.mode() } else { old.mode() & now.mode() };
    new.set_permissions(PermissionsExt::from_mode(mode & 0o777))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use testing::dir::Dir;

    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn what_is_not_finished_has_no_name() {
        let dir = Dir::new("replacement");
        let path = dir.join("out");
        let (replacement, mut file) = Replacement::new(&path).unwrap();
        file.write_all(b"a part").unwrap();
        assert!(names(&dir).is_empty());
        drop(replacement);
        let (replacement, mut file) = Replacement::new(&path).unwrap();
        file.write_all(b"all").unwrap();
        replacement.finish().unwrap();
        assert_eq!((names(&dir), fs::read(&path).unwrap()), (vec!["out".into()], b"all".to_vec()));
    }

    #[test]
    fn a_file_keeps_its_owner_and_mode() {
        let dir = Dir::new("replacement-mode");
        let path = dir.join("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let has = || fs::metadata(&path).map(|m| (m.uid(), m.gid(), m.mode() & 0o7777)).unwrap();
        replace(&path, b"new").unwrap();
        let (uid, gid, mode) = has();
        assert_eq!(mode, 0o640);
        if chown(&path, Some(65534), Some(65534)).is_err() {
            return;
        }
        replace(&path, b"newer").unwrap();
        assert_eq!(has(), (65534, 65534, 0o640));
        // Everybody could have put it there.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
        replace(&path, b"newest").unwrap();
        assert_eq!((has().0, has().1), (uid, gid));
        // A link is replaced, and what it leads to stays.
        fs::remove_file(&path).unwrap();
        fs::write(dir.join("other"), "other").unwrap();
        symlink("other", &path).unwrap();
        replace(&path, b"last").unwrap();
        assert_eq!(fs::read(dir.join("other")).unwrap(), b"other");
        assert!(path.symlink_metadata().unwrap().is_file());
        // One to something else stays.
        fs::remove_file(&path).unwrap();
        symlink("/", &path).unwrap();
        assert!(replace(&path, b"none").is_err() && path.is_symlink());
    }
}
