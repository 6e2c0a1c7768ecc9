//! Files of the test's own process.

use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;

use super::*;

fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/mnt").unwrap().st_ino()
}

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let path = testing::memory_dir().join(format!("files-{name}-{}", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        Temporary(path)
    }

    fn watched(&self, number: u64, build_id: &[u8]) -> watcher::File {
        watcher::File {
            number,
            path: [b"/", self.0.file_name().unwrap().as_encoded_bytes()].concat().into(),
            dev: (0, 0),
            inode: 0,
            build_id: BuildId::new(build_id),
            mount_namespace: own_namespace(),
        }
    }

    fn inode(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().st_ino()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A table whose own root is the directory of the temporary files.
fn table() -> Files {
    let mut files = Files::default();
    files.hold_own_root().unwrap();
    let root = Root::from_fd(std::fs::File::open(testing::memory_dir()).unwrap().into());
    let key = root.key().unwrap();
    files.hold_root(key, root.into_fd());
    files.own = key;
    files.set_namespace_root(own_namespace(), key);
    files
}

#[test]
fn a_watched_file_is_held_so_that_it_outlives_its_link() {
    let mut files = table();
    let file = Temporary::new("held");
    let inode = file.inode();
    let id = files.note_watched(&file.watched(1, &[1, 2]));
    drop(file);
    let known = files.get(id).unwrap();
    assert_eq!((known.inode, known.build_id), (inode, BuildId::new(&[1, 2])));
    let handle = crate::open::Handle::from_fd(known.handle().unwrap().try_clone().unwrap());
    assert_eq!(handle.stat().unwrap().inode, inode);
    assert!(files.root(known).is_some());
}

#[test]
fn a_file_is_one_file_if_it_is_reported_again() {
    let mut files = table();
    let file = Temporary::new("same");
    let first = files.note_watched(&file.watched(1, &[1, 2]));
    assert_eq!(files.note_watched(&file.watched(1, &[1, 2])), first);
    assert_eq!(files.note_watched(&file.watched(2, &[1, 2])), first);
    // What the file at this path has as its build id is not known here.
    let by_inode = watcher::File { inode: file.inode(), ..file.watched(3, &[]) };
    let second = files.note_watched(&by_inode);
    assert_ne!(second, first);
    let stat = crate::open::Handle::from_fd(std::fs::File::open(&file.0).unwrap().into()).stat().unwrap();
    let mapped = MappedFile { dev: stat.dev, inode: stat.inode, path: b"/elsewhere".to_vec() };
    assert_eq!(files.note(&mapped, RootKey::default(), None), second);
    // The contents were replaced: another build id.
    let other = files.note_watched(&file.watched(4, &[3, 4]));
    assert_ne!(other, first);
    assert_ne!(files.unique_number(other), files.unique_number(first));
}

#[test]
fn a_file_that_is_gone_or_has_another_inode_has_no_handle() {
    let mut files = table();
    let file = Temporary::new("gone");
    let wrong = watcher::File { inode: file.inode() + 1, ..file.watched(1, &[]) };
    let id = files.note_watched(&wrong);
    assert!(files.get(id).unwrap().handle().is_none());
    let gone = file.watched(2, &[7]);
    drop(file);
    let id = files.note_watched(&gone);
    assert!(files.get(id).unwrap().handle().is_none());
    // The same path of another namespace may be another file.
    assert_ne!(files.note_watched(&watcher::File { number: 3, mount_namespace: 1, ..gone }), id);
}

#[test]
fn a_path_of_another_namespace_is_resolved_in_its_root() {
    let mut files = Files::default();
    let file = Temporary::new("root");
    let dir = Root::from_fd(std::fs::File::open(file.0.parent().unwrap()).unwrap().into());
    let key = dir.key().unwrap();
    files.hold_root(key, dir.into_fd());
    assert!(!files.has_namespace_root(5));
    let base = file.0.file_name().unwrap().as_encoded_bytes();
    let path = [b"/", base].concat().into();
    let watched = watcher::File { path, mount_namespace: 5, ..file.watched(1, &[1]) };
    let early = files.note_watched(&watched);
    assert!(files.get(early).unwrap().handle().is_none());
    files.set_namespace_root(5, key);
    assert!(files.has_namespace_root(5) && !files.has_namespace_root(6));
    let id = files.note_watched(&watched);
    let known = files.get(id).unwrap();
    assert_eq!(known.inode, file.inode());
    assert_eq!(&*known.name, String::from_utf8_lossy(base));
    let root = Root::from_fd(files.root(known).unwrap().as_fd().try_clone_to_owned().unwrap());
    assert_eq!(root.key().unwrap(), key);
}

#[test]
fn the_least_recently_used_handle_is_dropped() {
    let mut files = table();
    let file = Temporary::new("many");
    let handle = || Some(std::fs::File::open(&file.0).unwrap().into());
    let mapped = |n: u64| MappedFile { dev: (1, 1), inode: n, path: b"/x".to_vec() };
    let first = files.note(&mapped(1), RootKey::default(), handle());
    for n in 2..=MAX_HANDLES as u64 {
        let id = files.note(&mapped(n), RootKey::default(), handle());
        files.touch(id);
    }
    files.touch(first);
    let last = files.note(&mapped(9999), RootKey::default(), handle());
    assert!(files.get(first).unwrap().handle().is_some() && files.get(last).unwrap().handle().is_some());
    assert_eq!(files.files.iter().filter(|f| f.handle.is_some()).count(), MAX_HANDLES);
    assert!(files.get(FileId(1)).unwrap().handle().is_none());
}

#[test]
fn a_table_holds_as_many_handles_as_it_was_told_to() {
    let mut files = table();
    files.set_max_handles(3);
    files.forget_all();
    let file = Temporary::new("few");
    for inode in 1..=5 {
        let mapped = MappedFile { dev: (1, 1), inode, path: b"/x".to_vec() };
        files.note(&mapped, RootKey::default(), Some(std::fs::File::open(&file.0).unwrap().into()));
    }
    assert_eq!(files.files.iter().filter(|f| f.handle.is_some()).count(), 3);
}

#[test]
fn the_version_of_a_file_is_known_after_its_handle_was_closed() {
    let mut files = table();
    let file = Temporary::new("version");
    let mapped = MappedFile { dev: (1, 1), inode: 7, path: b"/x".to_vec() };
    let id = files.note(&mapped, RootKey::default(), Some(std::fs::File::open(&file.0).unwrap().into()));
    let version = |files: &Files| files.get(id).unwrap().version();
    let first = version(&files);
    assert!(first.is_some());
    files.close(id);
    assert_eq!(version(&files), first);
    assert_eq!(
        files.note(&mapped, RootKey::default(), Some(std::fs::File::open(&file.0).unwrap().into())),
        id
    );
    assert_eq!(version(&files), first);
    // While it is held, what is written to it is seen.
    std::fs::write(&file.0, "longer than before").unwrap();
    assert_ne!(version(&files), first);
}

#[test]
fn all_files_are_dropped_at_the_limit_and_numbers_are_not_used_again() {
    let mut files = table();
    let mapped = MappedFile { dev: (1, 1), inode: 1, path: b"/x".to_vec() };
    let id = files.note(&mapped, RootKey::default(), None);
    let number = files.unique_number(id);
    assert!(!files.is_full(1) && files.is_full(MAX_FILES));
    files.forget_all();
    assert!(files.get(id).is_none());
    let id = files.note(&mapped, RootKey::default(), None);
    assert_ne!(files.unique_number(id), number);
}

#[test]
fn a_file_of_two_overlays_is_one_file() {
    let mut files = table();
    let file = Temporary::new("overlays");
    let handle = || Some(std::fs::File::open(&file.0).unwrap().into());
    let real = RealInode { dev: (8, 1), inode: 7 };
    let seen = |minor| MappedFile { dev: (0, minor), inode: 7, path: b"/bin/x".to_vec() };
    let first = files.note_real(&seen(40), RootKey::default(), handle(), real);
    assert_eq!(files.note_real(&seen(41), RootKey::default(), handle(), real), first);
    // The next process of the second one brings no handle, and what it is below is not asked.
    assert_eq!(files.note(&seen(41), RootKey::default(), None), first);
    let other = RealInode { inode: 8, ..real };
    assert_ne!(files.note_real(&seen(42), RootKey::default(), handle(), other), first);
}

#[test]
fn a_handle_is_closed_when_no_process_has_mapped_the_file_for_a_while() {
    let mut files = table();
    let file = Temporary::new("due");
    let id = files.note_watched(&file.watched(1, &[1, 2]));
    assert_eq!(files.watched(1), Some(id));
    let (begun, none) = (Instant::now(), HashSet::new());
    assert_eq!(files.due(&none, begun), []);
    assert_eq!(files.due(&HashSet::from([id]), begun + KEEP), []);
    assert_eq!(files.due(&none, begun + KEEP), []);
    assert_eq!(files.due(&none, begun + KEEP * 2), [id]);
    assert!(files.has_path(id));
    std::fs::remove_file(&file.0).unwrap();
    assert!(!files.has_path(id));
    assert!(!files.take_closed());
    files.close(id);
    assert!(files.take_closed() && !files.take_closed());
    assert!(files.get(id).unwrap().handle().is_none());
    // What is reported again has the symbols that were read.
    assert_eq!(files.note_watched(&file.watched(1, &[1, 2])), id);
}

#[test]
fn another_file_with_the_inode_of_one_that_was_closed_is_told_from_it() {
    let mut files = table();
    let (file, other) = (Temporary::new("first"), Temporary::new("other"));
    std::fs::write(&other.0, "another text").unwrap();
    let open = |file: &Temporary| Some(std::fs::File::open(&file.0).unwrap().into());
    let mapped = MappedFile { dev: (1, 1), inode: 7, path: b"/x".to_vec() };
    let first = files.note(&mapped, RootKey::default(), open(&file));
    files.close(first);
    assert_eq!(files.note(&mapped, RootKey::default(), open(&file)), first);
    files.close(first);
    assert_ne!(files.note(&mapped, RootKey::default(), open(&other)), first);
    // The watcher does not tell files without a build id apart: there are no names, but no wrong
    // ones.
    let watched = watcher::File { inode: file.inode(), ..file.watched(1, &[]) };
    let id = files.note_watched(&watched);
    files.close(id);
    assert_eq!(files.note_watched(&watched), id);
    std::fs::write(&file.0, "other contents").unwrap();
    let nameless = files.note_watched(&watched);
    let known = files.get(nameless).unwrap();
    assert!(nameless != id && known.inode == 0 && known.build_id.is_none() && known.handle().is_none());
    assert_eq!(files.note_watched(&watched), nameless);
}

/// A process in a root of its own reports paths that lead to files of others.
#[test]
fn a_build_id_that_a_path_does_not_have_takes_the_names_of_no_other_process() {
    let mut files = table();
    let file = Temporary::new("jail");
    let stat = Handle::from_fd(std::fs::File::open(&file.0).unwrap().into()).stat().unwrap();
    let mapped = MappedFile { dev: stat.dev, inode: stat.inode, path: b"/x".to_vec() };
    let handle = || Some(std::fs::File::open(&file.0).unwrap().into());
    let early = files.note_watched(&file.watched(1, &[1]));
    let first = files.note(&mapped, RootKey::default(), handle());
    let late = files.note_watched(&file.watched(2, &[2]));
    assert!(first != early && first != late && early != late);
    assert_eq!(files.note(&mapped, RootKey::default(), handle()), first);
    assert_eq!(files.get(first).unwrap().build_id, None);
    assert_eq!(files.note_watched(&file.watched(3, &[1])), early);
}

#[test]
fn a_root_is_closed_when_its_namespace_has_no_process_or_others_need_its_place() {
    let mut files = table();
    let key = |n: u64| RootKey { mount: n, dev: (9, 9), inode: n };
    let root = || std::fs::File::open("/").unwrap().into();
    files.hold_root(key(1), root());
    files.set_namespace_root(5, key(1));
    let (begun, none) = (Instant::now(), HashSet::new());
    let lives = HashSet::from([5]);
    files.close_roots(&none, &lives, begun);
    files.close_roots(&none, &lives, begun + KEEP);
    assert!(files.has_namespace_root(5) && files.has_namespace_root(own_namespace()));
    // Another namespace may get its number at once; its files are closed later.
    files.close_roots(&none, &HashSet::new(), begun + KEEP);
    assert!(!files.has_namespace_root(5) && files.roots.contains_key(&key(1)));
    files.close_roots(&none, &HashSet::new(), begun + KEEP * 2);
    assert!(!files.roots.contains_key(&key(1)) && files.take_closed());
    for n in 1..=MAX_ROOTS as u64 {
        files.hold_root(key(n), root());
    }
    assert_eq!(files.roots.len(), MAX_ROOTS);
    assert!(files.has_namespace_root(own_namespace()) && files.roots.contains_key(&key(MAX_ROOTS as u64)));
    assert!(!files.roots.contains_key(&key(1)) && files.take_closed());
}

#[test]
fn numbers_of_the_watcher_are_forgotten_when_there_are_many() {
    let mut files = table();
    let file = Temporary::new("numbers");
    let id = files.note_watched(&file.watched(0, &[1, 2]));
    for number in 1..=MAX_FILES as u64 {
        assert_eq!(files.note_watched(&file.watched(number, &[1, 2])), id);
    }
    files.keep_watched(&HashSet::from([5]));
    assert_eq!((files.watched.len(), files.watched(5), files.watched(6)), (1, Some(id), None));
    assert_eq!(files.note_watched(&file.watched(6, &[1, 2])), id);
    files.keep_watched(&HashSet::new());
    assert_eq!(files.watched.len(), 2);
}

#[test]
fn a_file_is_the_one_that_the_kernel_names_by_device_and_inode_and_no_other() {
    let mut files = table();
    let file = Temporary::new("real");
    let id = files.note_watched(&file.watched(1, &[1; 20]));
    let dev = std::fs::metadata(&file.0).unwrap().st_dev();
    let dev = (libc::major(dev), libc::minor(dev));
    let real = |dev, inode| RealInode { dev, inode };
    assert!(files.is_real(id, real(dev, file.inode())));
    assert!(!files.is_real(id, real(dev, file.inode() + 1)));
    // Another file system may have the same number.
    assert!(!files.is_real(id, real((dev.0, dev.1 + 1), file.inode())));
    files.close(id);
    assert!(!files.is_real(id, real(dev, file.inode())));
}
