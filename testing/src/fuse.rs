//! A FUSE file system whose server can be told to stop answering.
//!
//! It implements the protocol of linux/fuse.h as far as running a program and opening a file need
//! it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A mounted file system with one directory.
pub struct Fuse {
    dir: PathBuf,
    state: Arc<State>,
    server: Option<JoinHandle<()>>,
}

/// What the server is told, and tells.
#[derive(Default)]
struct State {
    silent: AtomicBool,
    stop: AtomicBool,
    /// Reads are not answered, and files are opened without the page cache.
    holds_pages: AtomicBool,
    /// A read was not answered.
    has_page: AtomicBool,
    /// Requests that were not answered.
    unanswered: AtomicUsize,
}

/// A file: its name and contents.
pub type Entry = (&'static str, Vec<u8>);

const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;

impl Fuse {
    /// Mounts the file system at a directory, which is created. `Err` is the reason why it cannot
    /// be mounted.
    pub fn mount(dir: &Path, files: Vec<Entry>) -> Result<Fuse, String> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|e| format!("/dev/fuse: {e}"))?;
        std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the strings outlive the call.
        let mounted = unsafe {
            libc::mount(c"test".as_ptr(), path.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast())
        };
        if mounted < 0 {
            return Err(format!("mount: {}", std::io::Error::last_os_error()));
        }
        let state = Arc::new(State::default());
        let told = state.clone();
        let server = std::thread::spawn(move || serve(device, &files, &told));
        Ok(Fuse { dir: dir.into(), state, server: Some(server) })
    }

    /// Stops answering requests.
    pub fn stop_answering(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// How many requests came since then: somebody waits for each.
    pub fn unanswered(&self) -> usize {
        self.state.unanswered.load(Ordering::SeqCst)
    }

    /// A process that keeps the lock of its own address space until the file system is dropped: it
    /// maps a file, for which the kernel waits for a page that the server never sends. `Err`: why
    /// there is none.
    pub fn process_that_blocks_its_map(&self, file: &str) -> Result<Blocked, String> {
        let path = self.dir.join(file);
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // With the page cache.
        let cached = File::open(self.dir.join(file)).map_err(|e| e.to_string())?;
        self.state.holds_pages.store(true, Ordering::SeqCst);
        let reader = std::thread::spawn(move || {
            // A signal does not end this read. If the test is killed, the server's descriptor must
            // be closed all the same.
            let own = cached.as_raw_fd() as u32;
            // SAFETY: from here on the thread has descriptors of its own, of which it uses one.
            unsafe {
                libc::unshare(libc::CLONE_FILES);
                libc::syscall(libc::SYS_close_range, 3u32, own.saturating_sub(1), 0u32);
                libc::syscall(libc::SYS_close_range, own + 1, u32::MAX, 0u32);
            }
            drop((&cached).read(&mut [0; 1]));
        });
        let begun = Instant::now();
        while !self.state.has_page.load(Ordering::SeqCst) {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("no page was read".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: after the fork only system calls are made, and no memory of others is changed.
        // The mapping is placed in the middle of one that the child has just made.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    // The server's descriptor: its last close must wake everybody.
                    libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
                    let fd = libc::open(path.as_ptr(), libc::O_RDONLY);
                    let (page, none) = (4096, std::ptr::null_mut());
                    let read = libc::PROT_READ;
                    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let area = libc::mmap(none, 3 * page, read, private, -1, 0);
                    let middle = area.cast::<u8>().add(page).cast();
                    libc::mmap(middle, page, read, libc::MAP_PRIVATE | libc::MAP_FIXED, fd, 0);
                    libc::_exit(0)
                }
                pid => pid,
            }
        };
        if pid < 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let blocked = Blocked { pid: pid as u32, reader: Some(reader) };
        let begun = Instant::now();
        while !blocked.waits() {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("the kernel does not wait for the page".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(blocked)
    }
}

/// A process that keeps the lock of its own address space.
pub struct Blocked {
    /// The process.
    pub pid: u32,
    reader: Option<JoinHandle<()>>,
}

impl Blocked {
    /// True when the process waits in `mmap`.
    fn waits(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid)).unwrap_or_default();
        call.starts_with(&format!("{} ", libc::SYS_mmap))
    }

    /// Waits until the process has ended, after its file system was dropped.
    pub fn wait(mut self) {
        // SAFETY: a child that nobody else waits for.
        unsafe { libc::waitpid(self.pid as i32, std::ptr::null_mut(), 0) };
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

impl Drop for Fuse {
    /// Ends the connection, which wakes all waiting processes.
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = self.server.take().map(JoinHandle::join);
        if let Ok(path) = std::ffi::CString::new(self.dir.as_os_str().as_encoded_bytes()) {
            // SAFETY: the string outlives the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Waits for a request. Returns false when the server is to stop.
fn wait_for_request(device: &File, stop: &AtomicBool) -> bool {
    let mut poll = libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    while !stop.load(Ordering::SeqCst) {
        // SAFETY: one valid pollfd, count 1.
        if unsafe { libc::poll(&mut poll, 1, 10) } > 0 {
            return true;
        }
    }
    false
}

/// Answers requests. The connection ends when this function returns, because nothing else has the
/// device open.
fn serve(mut device: File, files: &[Entry], state: &State) {
    let mut buffer = vec![0; 1 << 17];
    while wait_for_request(&device, &state.stop) {
        // A read error means that the file system is unmounted.
        let Ok(length) = device.read(&mut buffer) else { return };
        let request = &buffer[..length];
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or_default());
        let (code, unique, node) = (word(4), long(8), long(16));
        let content = |node: u64| files.get(node.wrapping_sub(2) as usize);
        let holds_pages = state.holds_pages.load(Ordering::SeqCst);
        let reply = match code {
            // FORGET, INTERRUPT and BATCH_FORGET have no reply.
            2 | 36 | 42 => continue,
            // INIT: version 7.31, and limits.
            26 => Ok([7u32, 31, 1 << 16, 0, 0, 1 << 16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
                .map(u32::to_le_bytes)
                .concat()),
            // LOOKUP
            1 => {
                let name = request[40..].split(|b| *b == 0).next().unwrap_or_default();
                match files.iter().position(|(n, _)| n.as_bytes() == name) {
                    None => Err(ENOENT),
                    Some(at) => {
                        let node = at as u64 + 2;
                        let head = [node, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
                        Ok([head, attributes(node, content(node))].concat())
                    }
                }
            }
            // GETATTR
            3 => Ok([vec![0; 16], attributes(node, content(node))].concat()),
            // OPEN; FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE
            14 if holds_pages => Ok([0u64, 3].map(u64::to_le_bytes).concat()),
            // OPEN, OPENDIR
            14 | 27 => Ok(vec![0; 16]),
            // READ
            15 if holds_pages => {
                state.has_page.store(true, Ordering::SeqCst);
                continue;
            }
            15 => {
                let (at, size) = (long(48) as usize, word(56) as usize);
                let bytes = content(node).and_then(|(_, c)| c.get(at..)).unwrap_or_default();
                Ok(bytes[..size.min(bytes.len())].to_vec())
            }
            // STATFS
            17 => Ok(vec![0; 80]),
            // RELEASE, FLUSH, RELEASEDIR
            18 | 25 | 29 => Ok(Vec::new()),
            _ => Err(ENOSYS),
        };
        if state.silent.load(Ordering::SeqCst) {
            state.unanswered.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let (error, body) = reply.map_or_else(|e| (e, Vec::new()), |body| (0, body));
        let mut answer = (16 + body.len() as u32).to_le_bytes().to_vec();
        answer.extend(error.to_le_bytes());
        answer.extend(unique.to_le_bytes());
        answer.extend(body);
        let _ = device.write(&answer);
    }
}

/// `struct fuse_attr`: an executable file, or the directory.
fn attributes(node: u64, file: Option<&Entry>) -> Vec<u8> {
    let size = file.map_or(0, |(_, content)| content.len() as u64);
    let mode: u32 = if file.is_some() { 0o100_755 } else { 0o040_755 };
    let mut out = [node, size, size.div_ceil(512), 0, 0, 0].map(u64::to_le_bytes).concat();
    out.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat());
    out
}
