//! Hostile roots: links, FIFOs, devices and files that change during the test.

use super::*;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const ANY: Rules = Rules { size: (1, 1 << 20) };

/// A root directory, and a file outside of it that must never be reached.
struct TestRoot {
    base: PathBuf,
    root: Root,
}

impl TestRoot {
    fn new(test: &str) -> TestRoot {
        let base = testing::memory_dir().join(format!("symbols-open-{test}-{}", std::process::id()));
        let inside = base.join("root");
        std::fs::create_dir_all(inside.join("dir")).unwrap();
        std::fs::write(base.join("outside"), "outside").unwrap();
        std::fs::write(inside.join("inside"), "inside").unwrap();
        let root = Root::from_fd(File::open(&inside).unwrap().into());
        TestRoot { base, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.join("root").join(name)
    }

    fn read(&self, path: &str) -> Result<String, OpenError> {
        let contents = self.root.find(path.as_bytes())?.open(&ANY)?;
        let mut text = vec![0; contents.size() as usize];
        contents.read(0, &mut text)?;
        Ok(String::from_utf8(text).unwrap())
    }
}

impl Drop for TestRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
}

#[test]
fn links_and_dots_stay_in_the_root() {
    let p = TestRoot::new("links");
    let outside = p.base.join("outside");
    symlink(&outside, p.path("absolute")).unwrap();
    symlink("../outside", p.path("relative")).unwrap();
    symlink("/inside", p.path("dir/good")).unwrap();
    symlink("/proc/self/root/etc/passwd", p.path("magic")).unwrap();
    symlink("loop", p.path("loop")).unwrap();
    assert_eq!(p.read("/inside").unwrap(), "inside");
    assert_eq!(p.read("/dir/../../../inside").unwrap(), "inside");
    assert_eq!(p.read("/dir/good").unwrap(), "inside");
    for escape in ["/absolute", "/relative", "../outside", "/../outside", "/magic", "/loop"] {
        assert!(matches!(p.read(escape), Err(OpenError::Io(_))), "{escape}");
    }
    assert!(matches!(p.root.find_no_link(b"/dir/good").unwrap().open(&ANY), Err(OpenError::NotRegular)));
    assert!(p.root.find(b"/in\0side").is_err());
}

#[test]
fn magic_links_of_our_own_root_are_not_followed() {
    let root = ProcessDir::open(std::process::id()).unwrap().root().unwrap();
    for path in ["/proc/self/exe", "/proc/self/fd/0", "/proc/self/root/etc/passwd"] {
        assert_eq!(root.find(path.as_bytes()).unwrap_err().raw_os_error(), Some(libc::ELOOP), "{path}");
    }
}

#[test]
fn only_regular_files_of_bounded_size_are_opened() {
    let p = TestRoot::new("kinds");
    fifo(&p.path("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(p.path("socket")).unwrap();
    File::create(p.path("empty")).unwrap();
    File::create(p.path("sparse")).unwrap().set_len(40 << 30).unwrap();
    for name in ["fifo", "socket", "dir"] {
        assert!(matches!(p.read(name), Err(OpenError::NotRegular)), "{name}");
    }
    assert!(matches!(p.read("empty"), Err(OpenError::Size(0))));
    assert!(matches!(p.read("sparse"), Err(OpenError::Size(size)) if size == 40 << 30));
    // Devices, and files of pseudo file systems. They are rejected before they are opened, so this
    // needs no privilege.
    let root = ProcessDir::open(std::process::id()).unwrap().root().unwrap();
    let refusal = |path: &str, rules| root.find(path.as_bytes()).unwrap().open(rules).unwrap_err();
    assert!(matches!(refusal("/dev/null", &ANY), OpenError::NotRegular));
    assert!(matches!(refusal("/proc/version", &Rules { size: (0, 10) }), OpenError::Pseudo));
    if root.find(b"/sys/kernel/mm/transparent_hugepage/enabled").is_ok() {
        let refusal = refusal("/sys/kernel/mm/transparent_hugepage/enabled", &ANY);
        assert!(matches!(refusal, OpenError::Pseudo), "{refusal}");
    }
}

#[test]
fn the_checked_file_is_opened_when_its_path_is_exchanged_afterwards() {
    let p = TestRoot::new("swap");
    let handle = p.root.find(b"/inside").unwrap();
    std::fs::remove_file(p.path("inside")).unwrap();
    fifo(&p.path("inside"));
    let contents = handle.open(&ANY).unwrap();
    let mut text = [0; 6];
    contents.read(0, &mut text).unwrap();
    assert_eq!(&text, b"inside");
}

#[test]
fn only_the_regular_file_is_read_when_its_path_is_exchanged_concurrently() {
    let p = TestRoot::new("race");
    let (path, aside) = (p.path("inside"), p.path("aside"));
    fifo(&aside);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let c = |p: &Path| CString::new(p.as_os_str().as_encoded_bytes()).unwrap();
            let (a, b) = (c(&path), c(&aside));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (here, exchange) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
                // SAFETY: strings that outlive the call.
                unsafe { libc::renameat2(here, a.as_ptr(), here, b.as_ptr(), exchange) };
            }
        });
        for _ in 0..2000 {
            match p.read("/inside") {
                Ok(text) => assert_eq!(text, "inside"),
                Err(e) => assert!(matches!(e, OpenError::NotRegular), "{e}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn reads_beyond_the_end_fail_when_a_file_shrinks() {
    let p = TestRoot::new("shrinks");
    let contents = p.root.find(b"/inside").unwrap().open(&ANY).unwrap();
    File::options().write(true).open(p.path("inside")).unwrap().set_len(2).unwrap();
    assert!(contents.read(0, &mut [0; 6]).is_err());
    assert!(contents.read(0, &mut [0; 2]).is_ok());
    assert!(contents.read(5, &mut [0; 2]).is_err());
    assert!(contents.read(u64::MAX, &mut [0; 2]).is_err());
    assert_eq!(contents.read_up_to(&mut [0; 6]).unwrap(), 2);
}

#[test]
fn opening_a_file_with_a_lease_does_not_block() {
    use std::os::fd::AsRawFd;
    let p = TestRoot::new("lease");
    let owner = File::options().read(true).write(true).open(p.path("inside")).unwrap();
    // SAFETY: a plain system call. SIGIO, the signal of a lease break, would end the test.
    let leased = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(owner.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if leased < 0 {
        testing::skipped!("{}", io::Error::last_os_error());
        return;
    }
    // One that blocks succeeds, when the kernel takes the lease away.
    assert!(matches!(p.read("/inside"), Err(OpenError::Io(e)) if e.kind() == io::ErrorKind::WouldBlock));
}
