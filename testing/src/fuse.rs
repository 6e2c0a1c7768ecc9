//! A FUSE file system whose server can be told to stop answering.
//!
//! It implements the protocol of linux/fuse.h as far as running a program and opening a file need
//! it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A mounted file system with one directory.
pub struct Fuse {
    dir: PathBuf,
    silent: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
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
        let (silent, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (quiet, over) = (silent.clone(), stop.clone());
        let server = std::thread::spawn(move || serve(device, &files, &quiet, &over));
        Ok(Fuse { dir: dir.into(), silent, stop, server: Some(server) })
    }

    /// Stops answering requests.
    pub fn stop_answering(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }
}

impl Drop for Fuse {
    /// Ends the connection, which wakes all waiting processes.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
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
fn serve(mut device: File, files: &[Entry], silent: &AtomicBool, stop: &AtomicBool) {
    let mut buffer = vec![0; 1 << 17];
    while wait_for_request(&device, stop) {
        // A read error means that the file system is unmounted.
        let Ok(length) = device.read(&mut buffer) else { return };
        let request = &buffer[..length];
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or_default());
        let (code, unique, node) = (word(4), long(8), long(16));
        let content = |node: u64| files.get(node.wrapping_sub(2) as usize);
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
            // OPEN, OPENDIR
            14 | 27 => Ok(vec![0; 16]),
            // READ
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
        if silent.load(Ordering::SeqCst) {
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
