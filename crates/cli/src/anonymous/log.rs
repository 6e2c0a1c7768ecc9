//! The recording of a session: in memory at first, on the disk as soon as there is one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::head::{self, Head, Wall};
use super::place::{self, Places};
use super::recordings::{self, CLAIMED, create, keep, only_one};

/// Bytes that are copied at a time.
const PIECE: usize = 256 << 10;
/// Where the events begin.
const BEGIN: u64 = head::LENGTH as u64;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Log {
    /// Nobody else records.
    _only: File,
    file: Arc<File>,
    path: PathBuf,
    /// The wall clock when it began, and the head that it has.
    began: Wall,
    head: Head,
    /// Bytes that it has behind its head.
    length: u64,
    /// Bytes before these, which were claimed.
    gone: u64,
    is_claimed: bool,
    /// Bytes of it that were claimed.
    taken: u64,
    /// Of these, so many take no space any more.
    freed: u64,
    is_on_disk: bool,
}

/// Whether a directory is in memory: what is there does not outlive the machine.
fn is_in_memory(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(name) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else { return true };
    // SAFETY: all-zero is a valid statfs; the call fills it; the name lives across the call.
    let kind = unsafe {
        let mut is: libc::statfs = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &raw mut is) != 0 {
            return true;
        }
        // Its type is another one in each C library.
        is.f_type as u64 & 0xffff_ffff
    };
    matches!(kind, TMPFS_MAGIC | RAMFS_MAGIC)
}

const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The first root of a machine.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

impl Log {
    /// An empty one, in memory.
    pub(crate) fn new(places: &Places) -> io::Result<Log> {
        let only = only_one(places)?;
        let (file, path) = create(&places.run())?;
        let (file, began, head) = (Arc::new(file), Wall::now(), Head::default());
        let (length, gone, taken, freed) = (0, 0, 0, 0);
        let (is_claimed, is_on_disk) = (false, false);
        Ok(Log { _only: only, file, path, began, head, length, gone, is_claimed, taken, freed, is_on_disk })
    }

    /// Bytes that it has, and that nobody has claimed.
    pub(crate) fn length(&self) -> u64 {
        self.length - self.taken
    }

    /// Whether it outlives the machine.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.is_on_disk
    }

    /// It is claimed from who writes it.
    pub(crate) fn claim(&mut self) -> io::Result<()> {
        self.is_claimed = true;
        let path = self.path.with_file_name(CLAIMED);
        std::fs::rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }

    /// Adds bytes, all of them or none.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, BEGIN + self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Bytes that were ever added to it.
    pub(crate) fn end(&self) -> u64 {
        self.gone + self.length
    }

    /// Takes back what was added since its end was there, unless a claim may have it.
    pub(crate) fn cut(&mut self, end: u64) {
        let length = end.saturating_sub(self.gone);
        if !self.is_claimed && length <= self.length && self.file.set_len(BEGIN + length).is_ok() {
            self.length = length;
        }
    }

    /// What is to be claimed next.
    pub(crate) fn next(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.length()).unwrap_or(usize::MAX).min(bytes.len());
        self.file.read_at(bytes.get_mut(..most).unwrap_or_default(), BEGIN + self.taken)
    }

    /// So much of it was claimed. What is claimed needs no space once nothing else is there.
    pub(crate) fn take(&mut self, bytes: usize) -> io::Result<()> {
        self.taken += bytes as u64;
        if self.taken >= self.length {
            self.gone += self.length;
            (self.taken, self.length, self.freed) = (0, 0, 0);
            self.file.set_len(BEGIN)?;
        } else if self.taken - self.freed >= PIECE as u64 {
            let (from, length) =
                ((BEGIN + self.freed) as libc::off_t, (self.taken - self.freed) as libc::off_t);
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a plain system call on a file that is open.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, from, length) } == 0 {
                self.freed = self.taken;
            }
        }
        Ok(())
    }

    /// Bytes that it takes of its file system.
    pub(crate) fn space(&self) -> u64 {
        BEGIN + self.length - self.freed
    }

    /// The head as it should be.
    pub(crate) fn head(&self) -> Head {
        Head::since(self.began)
    }

    /// Keeps by how much the wall clock was set.
    pub(crate) fn note_clock(&mut self) -> io::Result<()> {
        let now = self.head();
        if now.set.abs_diff(self.head.set) >= head::SET {
            self.file.write_all_at(&now.bytes(), 0)?;
            self.head = now;
        }
        Ok(())
    }

    /// A part of the memory that all of the system has for such files, while it is in memory.
    pub(crate) fn most_in_memory(&self) -> Option<u64> {
        if self.is_on_disk {
            return None;
        }
        // SAFETY: an all-zero struct is valid; the kernel fills it.
        let is = unsafe {
            let mut is: libc::statvfs = std::mem::zeroed();
            (libc::fstatvfs(self.file.as_raw_fd(), &raw mut is) == 0).then_some(is)
        }?;
        Some((is.f_blocks as u64).saturating_mul(is.f_frsize as u64) / 4)
    }

    /// Moves it to the disk, if there is one. What was there is visible no more if a file system
    /// was mounted above it, and is moved again.
    pub(crate) fn move_to_disk(&mut self, places: &Places) -> io::Result<()> {
        let is = |m: std::fs::Metadata| (m.dev(), m.ino());
        if self.is_on_disk && self.path.symlink_metadata().map(is).ok() == self.file.metadata().map(is).ok() {
            return Ok(());
        }
        self.is_on_disk = false;
        let dir = places.disk();
        place::private_dir(&dir)?;
        if places.is_real && is_in_memory(&dir) {
            return Err(io::Error::new(ErrorKind::Unsupported, "there is no disk"));
        }
        let (file, path) = create(&dir)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        let copied = loop {
            match self.file.read_at(&mut piece, at) {
                Ok(0) => break Ok(()),
                Ok(n) => {
                    if let Err(e) = file.write_all_at(piece.get(..n).unwrap_or_default(), at) {
                        break Err(e);
                    }
                    at += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        if let Err(e) = copied {
            let _ = std::fs::remove_file(&path);
            return Err(e);
        }
        // The old one may have had the same name, which is the new one's now.
        let _ = recordings::remove(&self.path, &self.file);
        (self.file, self.path, self.is_on_disk) = (Arc::new(file), path, true);
        Ok(())
    }

    /// Its file.
    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// The session is over, and nobody has claimed it.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.note_clock()?;
        self.file.sync_all()?;
        keep(&self.path)
    }

    /// It was claimed, or there is nothing in it.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::super::recordings::{LOG, is_recording, left, left_within};
    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    fn text(file: &mut File) -> String {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let (head, rest) = bytes.split_first_chunk().unwrap();
        Head::of(head).unwrap();
        String::from_utf8(rest.to_vec()).unwrap()
    }

    #[test]
    fn what_is_recorded_moves_to_the_disk_and_is_claimed_once() {
        let dir = testing::dir::Dir::new("anonymous-log");
        let places = Places::under(&dir);
        let mut log = Log::new(&places).unwrap();
        log.add(b"first ").unwrap();
        // It is being written.
        assert!(left_within(&places, PAUSE).unwrap().is_none() && Log::new(&places).is_err());
        assert!(is_recording(&places));
        log.move_to_disk(&places).unwrap();
        log.add(b"second").unwrap();
        log.move_to_disk(&places).unwrap();
        assert!(left_within(&places, PAUSE).unwrap().is_none());
        assert!(!places.run().join(LOG).exists());
        log.keep().unwrap();
        drop(log);
        let (mut file, path) = left_within(&places, PAUSE).unwrap().unwrap();
        assert_eq!((text(&mut file), path), ("first second".into(), places.disk().join("events")));
        assert!(left_within(&places, PAUSE).unwrap().is_none());
    }

    #[test]
    fn what_a_machine_that_went_down_has_left_is_kept() {
        let dir = testing::dir::Dir::new("anonymous-log-left");
        let places = Places::under(&dir);
        for n in ["1", "2"] {
            let mut log = Log::new(&places).unwrap();
            log.add(n.as_bytes()).unwrap();
            log.move_to_disk(&places).unwrap();
        }
        // The newest first.
        for n in ["2", "1"] {
            let (mut file, path) = left_within(&places, PAUSE).unwrap().unwrap();
            assert_eq!(text(&mut file), n);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_a_mount_has_hidden_is_moved_again_and_stays() {
        let dir = testing::dir::Dir::new("anonymous-log-hidden");
        let places = Places::under(&dir);
        let mut log = Log::new(&places).unwrap();
        log.add(b"first ").unwrap();
        log.move_to_disk(&places).unwrap();
        std::fs::rename(places.disk(), dir.join("hidden")).unwrap();
        log.add(b"second").unwrap();
        log.move_to_disk(&places).unwrap();
        log.move_to_disk(&places).unwrap();
        log.keep().unwrap();
        drop(log);
        let (mut file, _) = left_within(&places, PAUSE).unwrap().unwrap();
        assert_eq!(text(&mut file), "first second");
    }

    #[test]
    fn a_file_in_which_nothing_was_recorded_takes_no_place() {
        let dir = testing::dir::Dir::new("anonymous-log-empty");
        let places = Places::under(&dir);
        let mut log = Log::new(&places).unwrap();
        log.add(b"text").unwrap();
        log.move_to_disk(&places).unwrap();
        log.keep().unwrap();
        drop(log);
        // A disk was full, or the machine went down at once.
        for bytes in [&b""[..], &Head::default().bytes()] {
            std::fs::write(places.disk().join(LOG), bytes).unwrap();
            let mut log = Log::new(&places).unwrap();
            log.move_to_disk(&places).unwrap();
            log.remove();
            assert_eq!(std::fs::read_dir(places.disk()).unwrap().count(), 1);
        }
        std::fs::write(places.disk().join(LOG), "").unwrap();
        let (mut file, _) = left_within(&places, PAUSE).unwrap().unwrap();
        assert_eq!(text(&mut file), "text");
    }

    #[test]
    fn what_is_claimed_while_it_is_written_is_for_nobody_else() {
        let dir = testing::dir::Dir::new("anonymous-log-claimed");
        let places = Places::under(&dir);
        let mut log = Log::new(&places).unwrap();
        log.move_to_disk(&places).unwrap();
        log.claim().unwrap();
        assert!(left(&places).unwrap().is_none() && Log::new(&places).is_err());
        // It was killed.
        drop(log);
        assert!(left(&places).unwrap().is_none());
        Log::new(&places).unwrap().move_to_disk(&places).unwrap();
        assert!(!places.disk().join(CLAIMED).exists());
    }

    #[test]
    fn what_was_claimed_needs_no_space() {
        let dir = testing::dir::Dir::new("anonymous-log-taken");
        let mut log = Log::new(&Places::under(&dir)).unwrap();
        log.add(b"12345").unwrap();
        let mut bytes = [0; 3];
        assert_eq!((log.next(&mut bytes).unwrap(), &bytes), (3, b"123"));
        log.take(3).unwrap();
        assert_eq!((log.length(), log.next(&mut bytes).unwrap(), &bytes[..2]), (2, 2, &b"45"[..]));
        log.take(2).unwrap();
        assert_eq!((log.length(), log.file.metadata().unwrap().len()), (0, BEGIN));
        log.add(b"6").unwrap();
        assert_eq!((log.next(&mut bytes).unwrap(), bytes[0]), (1, b'6'));
    }
}
