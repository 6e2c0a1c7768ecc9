//! The files of recordings in a directory, and what becomes of those that nobody claims.
//!
//! ```text
//!  log        is being written, and locked by who writes it; not locked: what one left that was killed
//!  claimed    is being written, and somebody has claimed it: nobody else may
//!  events     what a session has left
//!  events.1 … what those before it have left
//! ```
//!
//! No recording replaces another one: it becomes the first, and the others are older by one. Where
//! there are too many, the smallest of those that are older is removed, not the oldest: boots that
//! fail leave little, and what was before them is what is looked for.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::head::{self, Head};
use super::place::{self, Places};

/// The name while it is written.
pub(crate) const LOG: &str = "log";
/// The name while it is claimed from who writes it.
pub(crate) const CLAIMED: &str = "claimed";
/// The name of what is complete.
const EVENTS: &str = "events";
/// The name of the file that is locked as long as a process records.
const LOCK: &str = "lock";

/// The most that are kept.
const MOST: usize = 4;

/// How long a file is waited for that nobody serves and that is locked, and how often it is tried:
/// the last processes of one that was killed end behind it.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file. False: another process has it.
fn lock(file: &File) -> bool {
    // SAFETY: a plain system call on an open descriptor.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, "another process traces what is stored")
}

/// The file that is locked as long as this process records. It is in memory, so a disk that does
/// not answer cannot hold up the boot.
pub(crate) fn only_one(places: &Places) -> io::Result<File> {
    place::private_dir(&places.run())?;
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(places.run().join(LOCK))?;
    if lock(&file) { Ok(file) } else { Err(in_use()) }
}

/// Whether a process records, claimed or not.
pub(crate) fn is_recording(places: &Places) -> bool {
    matches!(place::open(&places.run().join(LOCK)), Ok(Some(file)) if !lock(&file))
}

/// A new file for this user alone, which is locked. What was there is what an earlier boot has left
/// when the machine went down: it is kept.
pub(crate) fn create(dir: &Path) -> io::Result<(File, PathBuf)> {
    place::private_dir(dir)?;
    let path = dir.join(LOG);
    if let Some(claimed) = place::open(&dir.join(CLAIMED))? {
        if !lock(&claimed) {
            return Err(in_use());
        }
        fs::remove_file(dir.join(CLAIMED))?;
    }
    if let Some(old) = place::open(&path)? {
        if !lock(&old) {
            return Err(in_use());
        }
        match is_empty(&old) {
            true => fs::remove_file(&path)?,
            false => keep(&path)?,
        }
    }
    let mut new = File::options();
    new.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = new.open(&path)?;
    if !lock(&file) {
        return Err(in_use());
    }
    match file.write_all_at(&Head::default().bytes(), 0) {
        Ok(()) => Ok((file, path)),
        Err(e) => {
            let _ = fs::remove_file(&path);
            Err(e)
        }
    }
}

/// Whether nothing was recorded in a file: a disk was full, or the machine went down at once.
pub(super) fn is_empty(file: &File) -> bool {
    file.metadata().is_ok_and(|is| is.len() <= head::LENGTH as u64)
}

/// The names of what sessions have left in a directory, the newest first.
fn names(dir: &Path) -> [PathBuf; MOST] {
    std::array::from_fn(|n| match n {
        0 => dir.join(EVENTS),
        n => dir.join(format!("{EVENTS}.{n}")),
    })
}

/// A recording is complete: it becomes the newest in its directory.
pub(crate) fn keep(path: &Path) -> io::Result<()> {
    // Others are not renamed for one that is gone.
    path.symlink_metadata()?;
    let names = names(path.parent().unwrap_or(Path::new("")));
    let sizes = names.each_ref().map(|name| name.symlink_metadata().ok().map(|is| is.len()));
    // The first name that is free, or is made so.
    let free = sizes.iter().position(Option::is_none);
    let smallest = sizes.iter().enumerate().min_by_key(|(n, size)| (**size, MOST - n)).map(|(n, _)| n);
    let free = free.or(smallest).unwrap_or_default();
    for (newer, older) in names.iter().zip(names.iter().skip(1)).take(free).rev() {
        fs::rename(newer, older)?;
    }
    let [newest, ..] = &names;
    fs::rename(path, newest)
}

/// Removes the name of a recording. It is an older one by now if another was kept meanwhile.
pub(crate) fn remove(path: &Path, file: &File) -> io::Result<()> {
    let is = |m: fs::Metadata| (m.dev(), m.ino());
    let own = is(file.metadata()?);
    let dir = path.parent().unwrap_or(Path::new(""));
    let mut all = std::iter::once(path.to_owned()).chain(names(dir));
    match all.find(|name| name.symlink_metadata().is_ok_and(|m| is(m) == own)) {
        Some(name) => fs::remove_file(name),
        None => Ok(()),
    }
}

/// Removes what this process records: the boot was not to be traced.
pub(crate) fn forget(places: &Places) {
    // What another has left is not locked.
    let log = places.disk().join(LOG);
    if matches!(place::open(&log), Ok(Some(file)) if !lock(&file)) {
        let _ = fs::remove_file(log);
    }
    let _ = fs::remove_dir_all(places.run());
}

/// What a session has left, which nobody else has claimed, with its name. The newest first.
pub(crate) fn left(places: &Places) -> io::Result<Option<(File, PathBuf)>> {
    left_within(places, LIMIT)
}

pub(crate) fn left_within(places: &Places, limit: Duration) -> io::Result<Option<(File, PathBuf)>> {
    let of = |dir: PathBuf| std::iter::once(dir.join(LOG)).chain(names(&dir));
    for path in of(places.run()).chain(of(places.disk())) {
        let Some(file) = place::open(&path)? else { continue };
        let end = Instant::now() + limit;
        let mut is_locked = lock(&file);
        while !is_locked && Instant::now() < end {
            std::thread::sleep(PAUSE);
            is_locked = lock(&file);
        }
        // Its last claim removes the name.
        if !is_locked || file.metadata().is_ok_and(|is| is.nlink() == 0) {
            continue;
        }
        match file.metadata()?.len() < head::LENGTH as u64 {
            true => remove(&path, &file)?,
            false => return Ok(Some((file, path))),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(dir: &Path) -> Vec<String> {
        names(dir).iter().map(|name| fs::read_to_string(name).unwrap_or_default()).collect()
    }

    #[test]
    fn no_recording_replaces_another_and_of_too_many_the_smallest_goes() {
        let dir = testing::dir::Dir::new("anonymous-recordings");
        let keep = |text: &str| {
            fs::write(dir.join(LOG), text).unwrap();
            keep(&dir.join(LOG)).unwrap();
        };
        ["the first", "2", "third"].iter().for_each(|text| keep(text));
        assert_eq!(texts(&dir), ["third", "2", "the first", ""]);
        keep("x");
        assert_eq!(texts(&dir), ["x", "third", "2", "the first"]);
        // Of those that are as small the older one.
        keep("y");
        assert_eq!(texts(&dir), ["y", "x", "third", "the first"]);
        keep("z");
        assert_eq!(texts(&dir), ["z", "y", "third", "the first"]);
        // A name that is free is used, and the others stay.
        fs::remove_file(dir.join("events.1")).unwrap();
        keep("w");
        assert_eq!(texts(&dir), ["w", "z", "third", "the first"]);
    }

    #[test]
    fn what_is_removed_is_what_was_claimed_whatever_its_name_is_now() {
        let dir = testing::dir::Dir::new("anonymous-recordings-removed");
        let (log, events) = (dir.join(LOG), dir.join(EVENTS));
        fs::write(&log, "claimed").unwrap();
        keep(&log).unwrap();
        let file = File::open(&events).unwrap();
        fs::write(&log, "newer").unwrap();
        keep(&log).unwrap();
        remove(&events, &file).unwrap();
        assert_eq!(texts(&dir), ["newer", "", "", ""]);
        remove(&events, &file).unwrap();
        assert_eq!(texts(&dir), ["newer", "", "", ""]);
    }

    #[test]
    fn one_process_records() {
        let dir = testing::dir::Dir::new("anonymous-recordings-one");
        let places = Places::under(&dir);
        let one = only_one(&places).unwrap();
        assert!(is_recording(&places) && only_one(&places).is_err());
        drop(one);
        assert!(!is_recording(&places) && only_one(&places).is_ok());
    }

    #[test]
    fn a_boot_that_was_not_to_be_traced_leaves_what_was_there() {
        let dir = testing::dir::Dir::new("anonymous-recordings-forgotten");
        let places = Places::under(&dir);
        let (old, _) = create(&places.disk()).unwrap();
        old.write_all_at(b"what is useful", head::LENGTH as u64).unwrap();
        drop(old);
        let (own, _) = create(&places.disk()).unwrap();
        forget(&places);
        drop(own);
        let (_, path) = left_within(&places, PAUSE).unwrap().unwrap();
        assert_eq!(path, places.disk().join(EVENTS));
        assert!(fs::read(&path).unwrap().ends_with(b"what is useful"));
        assert!(!places.disk().join(LOG).exists());
        forget(&places);
        assert!(path.exists());
    }
}
