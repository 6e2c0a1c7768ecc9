//! A directory of one test.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A directory that is empty at first, and removed with all that is in it when it goes out of use.
#[derive(Debug)]
pub struct Dir(PathBuf);

impl Dir {
    /// A directory for temporary files of its own. Two tests of one process have different names.
    #[allow(clippy::panic)]
    pub fn new(test: &str) -> Dir {
        let all = std::env::temp_dir();
        match Dir::below(&all, test) {
            Ok(dir) => dir,
            Err(e) => panic!("{}: {e}", all.display()),
        }
    }

    /// A directory in another.
    pub fn below(all: &Path, test: &str) -> std::io::Result<Dir> {
        let path = all.join(format!("dt-{test}-{}", std::process::id()));
        // One of a process with the same number, which was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).map(|()| Dir(path))
    }
}

impl Deref for Dir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Dir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
