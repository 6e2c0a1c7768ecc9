//! What the traced loop does.
//!
//! ```text
//!  getppid   a system call without arguments
//!  read      a read of no bytes
//!  switch    a byte to another process of the same CPU and back: two context switches
//!  packet    a byte over TCP on the loopback device and back: two segments
//!  io        a read of 4 KiB of a loop device around its cache
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Number of calls in a batch of the traced loop. Short, so that on a shared machine some batches
/// run undisturbed.
pub(crate) const BATCH: u32 = 1_000;

/// A batch of calls.
type Calls = Box<dyn FnMut()>;

/// The batch of this name, with its number of calls.
pub(crate) fn named(name: &str) -> Result<(u32, Calls), Error> {
    match name {
        "read" => {
            let file = File::open("/dev/null")?;
            // SAFETY: the call writes no byte.
            let read = move || unsafe {
                libc::syscall(libc::SYS_read, file.as_raw_fd(), std::ptr::null_mut::<u8>(), 0)
            };
            repeated(BATCH, move || _ = read())
        }
        // SAFETY: the call has no arguments.
        "getppid" => repeated(BATCH, || _ = unsafe { libc::syscall(libc::SYS_getppid) }),
        "switch" => {
            let (ours, theirs) = UnixStream::pair()?;
            echo(theirs)?;
            to_and_fro(ours)
        }
        "packet" => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let ours = TcpStream::connect(listener.local_addr()?)?;
            let (theirs, _) = listener.accept()?;
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            echo(theirs)?;
            to_and_fro(ours)
        }
        "io" => {
            let device = LoopDevice::new()?;
            let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&device.path)?;
            let mut pages = vec![0; 2 * BLOCK];
            let start = pages.as_ptr().align_offset(BLOCK);
            repeated(SHORT, move || {
                let _ = &device;
                if let Some(block) = pages.get_mut(start..start + BLOCK) {
                    let _ = file.read_exact_at(block, 0);
                }
            })
        }
        name => Err(Error::other(format!("no call {name}"))),
    }
}

/// A batch of calls that take microseconds.
const SHORT: u32 = 100;
const BLOCK: usize = 4096;

fn repeated(count: u32, mut call: impl FnMut() + 'static) -> Result<(u32, Calls), Error> {
    Ok((count, Box::new(move || (0..count).for_each(|_| call()))))
}

/// Sends a byte and waits for it.
fn to_and_fro(mut stream: impl Read + Write + 'static) -> Result<(u32, Calls), Error> {
    let mut byte = [0];
    repeated(SHORT, move || {
        let _ = stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte));
    })
}

/// A process that returns each byte, until the other end is closed.
fn echo(mut stream: impl Read + Write) -> Result<(), Error> {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os_error()),
        0 => {
            let mut byte = [0];
            // SAFETY: the calls access no memory. The parent's end was inherited too, so the end of
            // the parent is not the end of the stream.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
            std::process::exit(0)
        }
        _ => Ok(()),
    }
}

/// A loop device on a file in memory.
struct LoopDevice {
    path: String,
}

impl LoopDevice {
    fn new() -> Result<LoopDevice, Error> {
        let name = format!("/dev/shm/dtrace-bench-{}", std::process::id());
        File::create(&name)?.set_len(BLOCK as u64 * 256)?;
        let out = Command::new("losetup").args(["-f", "--show", &name]).output();
        // The device keeps it.
        std::fs::remove_file(&name)?;
        let path = String::from_utf8_lossy(&out?.stdout).trim().to_owned();
        if path.is_empty() {
            Err(Error::other("losetup has made no device"))
        } else {
            Ok(LoopDevice { path })
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.path]).status();
    }
}
