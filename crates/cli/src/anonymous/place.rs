//! The files of anonymous tracing, and whose they must be.
//!
//! They say what is traced with all privileges, and have what was traced. So they are of the user
//! who runs the command, in directories that nobody else can write, and no links.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dtrace::diagnostics::{control, raw, system_text};
use dtrace::options::Options;

use crate::replacement::Replacement;

/// Bits of the mode by which others can write.
const WRITABLE: u32 = 0o022;

/// Where the files are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    root: PathBuf,
    /// It is the machine's own root.
    pub(crate) is_real: bool,
}

impl Places {
    /// Those of this machine, or of a system whose root is a directory (`anonroot`).
    pub(crate) fn of(options: &Options) -> Places {
        match &options.anonroot {
            Some(root) => Places::under(&PathBuf::from(OsString::from_vec(raw::bytes(root)))),
            None => Places { root: "/".into(), is_real: true },
        }
    }

    pub(crate) fn under(root: &Path) -> Places {
        Places { root: root.to_owned(), is_real: false }
    }

    /// The directory of the stored enabling.
    pub(crate) fn stored(&self) -> PathBuf {
        self.root.join("etc/dtrace/anonymous.d")
    }

    /// The stored enabling.
    pub(crate) fn enabling(&self) -> PathBuf {
        self.stored().join("enabling")
    }

    /// A unit, and the link by which a target starts it.
    pub(crate) fn unit(&self, name: &str, target: &str) -> [PathBuf; 2] {
        let dir = self.root.join("etc/systemd/system");
        [dir.join(name), dir.join(format!("{target}.wants")).join(name)]
    }

    /// What makes initial file systems.
    pub(crate) fn initramfs_tools(&self) -> PathBuf {
        self.root.join("etc/initramfs-tools")
    }

    /// The directory of the running session.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run/dtrace/anonymous")
    }

    /// The directory on the disk.
    pub(crate) fn disk(&self) -> PathBuf {
        self.root.join("var/lib/dtrace/anonymous")
    }

    /// Where the events of the running session are claimed.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run().join("socket")
    }

    /// Why nothing was traced.
    pub(crate) fn error(&self) -> PathBuf {
        self.run().join("error")
    }
}

/// What is wrong with a file or directory.
fn wrong(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what}", control::name_text(&path.to_string_lossy())))
}

/// An error with the name of its file.
fn named(path: &Path, e: &io::Error) -> io::Error {
    let text = format!("{}: {}", control::name_text(&path.to_string_lossy()), system_text(e));
    io::Error::new(e.kind(), text)
}

fn check_owner(path: &Path, is: &Metadata) -> io::Result<()> {
    // SAFETY: it has no arguments and no failure.
    let me = unsafe { libc::geteuid() };
    match is {
        is if is.uid() != me => {
            Err(wrong(path, &format!("it belongs to the user {}, not to {me}", is.uid())))
        }
        is if is.mode() & WRITABLE != 0 => {
            Err(wrong(path, &format!("others can write it (mode {:o}): chmod go-w", is.mode() & 0o7777)))
        }
        _ => Ok(()),
    }
}

/// An error if somebody else could put another program in the place of one. In a directory that is
/// for all, as `/tmp` is, nobody can.
pub(crate) fn check_program(path: &Path) -> io::Result<()> {
    for path in path.ancestors() {
        let is = path.symlink_metadata().map_err(|e| named(path, &e))?;
        let is_for_all = is.is_dir() && is.mode() & libc::S_ISVTX != 0 && is.uid() == 0;
        if !is_for_all {
            check_owner(path, &is)?;
        }
    }
    Ok(())
}

/// An error unless a directory and the one that has it are of this user alone.
pub(crate) fn check_dir(dir: &Path) -> io::Result<()> {
    for dir in dir.ancestors().take(2) {
        let is = dir.symlink_metadata().map_err(|e| named(dir, &e))?;
        if !is.is_dir() {
            return Err(wrong(dir, "it is no directory"));
        }
        check_owner(dir, &is)?;
    }
    Ok(())
}

/// A directory for this user alone, made if it is not there.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(|e| named(parent, &e))?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(named(dir, &e)),
        _ => {}
    }
    check_dir(dir)
}

/// Opens a file for reading that is of this user alone, in such a directory. `None`: it is not
/// there.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    match path.symlink_metadata() {
        Err(e) if is_missing(&e) => return Ok(None),
        Ok(is) if !is.is_file() => return Err(wrong(path, "it is no regular file")),
        Ok(_) => {}
        Err(e) => return Err(named(path, &e)),
    }
    path.parent().map_or(Ok(()), check_dir)?;
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = match options.open(path) {
        Err(e) if is_missing(&e) => return Ok(None),
        file => file.map_err(|e| named(path, &e))?,
    };
    let is = file.metadata().map_err(|e| named(path, &e))?;
    if !is.is_file() {
        return Err(wrong(path, "it is no regular file"));
    }
    check_owner(path, &is).map(|()| Some(file))
}

/// Removes a file. False: it was not there. An error is a message.
pub(crate) fn remove(path: &Path) -> Result<bool, String> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(format!("failed to remove {}", named(path, &e))),
    }
}

/// Makes a file for this user alone, which replaces another.
pub(crate) fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let done = Replacement::private(path).and_then(|(replacement, mut file)| {
        write(&mut file)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        replacement.finish()
    });
    done.map_err(|e| named(path, &e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn files_of_others_links_and_open_directories_are_refused() {
        let dir = testing::dir::Dir::new("anonymous-places");
        let places = Places::under(&dir);
        let (stored, file) = (places.stored(), places.enabling());
        assert!(open(&file).unwrap().is_none());
        private_dir(&stored).unwrap();
        assert_eq!(stored.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        replace(&file, 0o600, |_| Ok(())).unwrap();
        assert!(open(&file).unwrap().is_some());
        let refused = |says: &str| {
            let e = open(&file).unwrap_err().to_string();
            assert!(e.contains(says) && e.contains("etc/dtrace"), "{e}");
        };
        mode(&file, 0o620);
        refused("others can write it (mode 620)");
        mode(&file, 0o600);
        mode(&stored, 0o770);
        refused("others can write it (mode 770)");
        assert!(private_dir(&stored).is_err());
        mode(&stored, 0o700);
        mode(stored.parent().unwrap(), 0o757);
        refused("others can write it (mode 757)");
        mode(stored.parent().unwrap(), 0o755);
        std::fs::rename(&file, stored.join("other")).unwrap();
        symlink(stored.join("other"), &file).unwrap();
        refused("it is no regular file");
        std::fs::remove_file(&file).unwrap();
        std::fs::rename(&stored, dir.join("elsewhere")).unwrap();
        symlink(dir.join("elsewhere"), &stored).unwrap();
        std::fs::rename(stored.join("other"), &file).unwrap();
        refused("it is no directory");
    }
}
