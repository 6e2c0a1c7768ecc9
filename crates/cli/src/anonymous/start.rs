//! Starting the process that traces a boot from an initramfs, and its way to the root.
//!
//! ```text
//!  init-top/dtrace ── dtrace --anonymous-start ── @dtrace --anonymous   a session of its own, no console
//!                      waits until READY=1          │
//!  run-init, switch_root: all files of the initramfs are deleted, the root is mounted over it
//!                                                   │ finds that / of process 1 is another one
//!                                                   ▼ chroot: from here on every path is the root's
//!                                                  dtrace --anonymous
//! ```
//!
//! The `@` tells systemd of an initramfs to let the process live when it leaves that one. In the
//! root the process takes it off, so that it is ended at shutdown as any other and saves what it
//! has.
//!
//! An initramfs moves its `/proc`, `/sys`, `/dev` and `/run` into the root, so descriptors of files
//! in them, and names of sockets, stay as they are. Until the process has found the root, a moment
//! later, no path leads to them: /proc is held open.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dtrace::diagnostics::system_text;
use dtrace::options::Options;

use super::boots;
use super::place::Places;
use super::recordings;
use crate::to_stderr;

/// The name of the process in an initramfs.
const NAME: &str = "@dtrace";

/// How long a boot waits for the tracer to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long saving may take.
const SAVED: Duration = Duration::from_secs(25);

/// How often is looked for the root, and for a root that can be written.
const TURN: Duration = Duration::from_millis(250);

/// How long process 1 takes about from mounting its root to going there.
const SOON: Duration = Duration::from_millis(5);

/// What must be mounted, and a file that tells that it is.
const MOUNTS: [(&CStr, &CStr, &str); 3] = [
    (c"proc", c"/proc", "/proc/self"),
    (c"sysfs", c"/sys", "/sys/kernel"),
    (c"devtmpfs", c"/dev", "/dev/null"),
];

/// `--anonymous-start`: starts the process and waits until it traces, has ended, or takes too long.
pub(crate) fn launch() -> u8 {
    for (kind, path, shows) in MOUNTS {
        if !fs::exists(shows).unwrap_or(false) {
            let _ = fs::create_dir_all(path.to_string_lossy().as_ref());
            // SAFETY: three texts that end in NUL, and no data.
            unsafe { libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
        }
    }
    match start() {
        Ok(()) => 0,
        Err(e) => {
            tell(&format!("anonymous tracing has not begun: {e}"));
            1
        }
    }
}

fn start() -> io::Result<()> {
    if let Some(why) = boots::refusal(&Places::of(&Options::default())) {
        tell(&format!("this boot is not traced: {why}"));
        return Ok(());
    }
    let name = format!("dtrace-anonymous-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let log = fs::OpenOptions::new().write(true).open("/dev/kmsg");
    // By its own name, which processes show.
    let mut child = Command::new(std::env::current_exe()?)
        .arg0(NAME)
        .arg("--anonymous")
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
        .spawn()?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut state = [0; 64];
        match socket.recv(&mut state) {
            Ok(length) if state.get(..length).is_some_and(|s| s.starts_with(b"READY=1")) => return Ok(()),
            _ => {}
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("the process has ended ({status})")));
        }
    }
    Ok(())
}

/// `--anonymous-save`: a file system of its own for `/var/lib/dtrace` is unmounted next. The
/// session that nobody has claimed ends, and has saved what it has.
pub(crate) fn save() -> u8 {
    let places = Places::of(&Options::default());
    let device = |path: &Path| path.metadata().map(|is| is.dev()).ok();
    // What is on the root's disk is saved when all services have ended.
    let devices = places.disk().parent().and_then(device).zip(device(Path::new("/")));
    let is_own = devices.is_some_and(|(disk, root)| disk != root);
    let (true, Ok(stream)) = (is_own, UnixStream::connect(places.socket())) else { return 0 };
    match peer(&stream).map(|pid| ended(pid, SAVED)) {
        Some(Ok(true)) => 0,
        Some(Ok(false)) => {
            tell(&format!("what was recorded is not saved after {} s", SAVED.as_secs()));
            1
        }
        Some(Err(e)) => {
            tell(&format!("what was recorded is not saved: {}", system_text(&e)));
            1
        }
        None => 1,
    }
}

/// Ends a process, and waits until it has ended.
fn ended(pid: libc::pid_t, limit: Duration) -> io::Result<bool> {
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: the call takes numbers only. The process had its socket when it was asked for its id.
    if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one struct, which the kernel fills.
    Ok(unsafe { libc::poll(&raw mut wanted, 1, limit.as_millis() as libc::c_int) } > 0)
}

/// The process that listens at the other end.
pub(crate) fn peer(stream: &UnixStream) -> Option<libc::pid_t> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let option = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel fills the struct, which has the size that is said.
    let done = unsafe {
        libc::getsockopt(stream.as_raw_fd(), option.0, option.1, (&raw mut who).cast(), &raw mut size)
    };
    (done == 0 && who.pid > 0).then_some(who.pid)
}

/// Says something in the kernel's log, which is all that there is in an initramfs, or else as any
/// message.
fn tell(text: &str) {
    let line = format!("dtrace: {text}\n");
    if fs::write("/dev/kmsg", &line).is_err() {
        to_stderr(line);
    }
}

/// The first thing that `--anonymous` does. An error: why this boot is not traced.
pub(crate) fn begin(options: &Options) -> Result<(), String> {
    let places = Places::of(options);
    if let Some(why) = boots::refusal(&places) {
        return Err(why);
    }
    let root = if std::env::args_os().next().is_some_and(|name| name == NAME) {
        // SAFETY: no addresses. It fails where the process leads a group already.
        unsafe { libc::setsid() };
        Some(Root::open().map_err(|e| format!("/proc: {}", system_text(&e)))?)
    } else {
        match boots::count(&places) {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(boots::refusal(&places).unwrap_or_default()),
            // The root comes up so.
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => None,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(uncounted(&e)),
        }
    };
    let thread = std::thread::Builder::new().name("boot".into());
    let started = thread.spawn(move || follow(root, &places));
    started.map(drop).map_err(|e| format!("a thread: {}", system_text(&e)))
}

/// Goes to the root when there is one, and counts the boot when that can be written.
fn follow(root: Option<Root>, places: &Places) {
    if let Some(root) = root {
        let of_initramfs = fs::read(places.enabling());
        while !root.enter() {
            root.wait();
        }
        take_off_the_mark();
        // An initramfs that was made before the last -A, as that of another kernel.
        if of_initramfs.ok() != fs::read(places.enabling()).ok() {
            end(
                places,
                "the root has another enabling than the initramfs, or none: update-initramfs -u -k all",
            );
        }
    }
    loop {
        match boots::count(places) {
            Ok(false) => end(places, &boots::refusal(places).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => std::thread::sleep(TURN),
            Ok(true) => return,
            // Without a state nothing is counted.
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            Err(e) => end(places, &uncounted(&e)),
        }
    }
}

/// Without the count, a boot that fails by what is traced would fail for ever.
fn uncounted(e: &io::Error) -> String {
    format!("it cannot be counted: {}", system_text(e))
}

/// Ends the process. What it has is of a boot that was not to be traced.
fn end(places: &Places, why: &str) -> ! {
    tell(&format!("this boot is traced no longer: {why}"));
    recordings::forget(places);
    std::process::exit(0);
}

/// The way from an initramfs to the root.
struct Root {
    /// `/proc`, wherever it is mounted.
    proc: File,
    /// The kernel tells of each change of the mounts.
    mounts: File,
    /// What `/` is now.
    own: (u64, u64),
}

impl Root {
    fn open() -> io::Result<Root> {
        let own = fs::metadata("/")?;
        let mounts = File::open("/proc/self/mountinfo")?;
        Ok(Root { proc: File::open("/proc")?, mounts, own: (own.dev(), own.ino()) })
    }

    /// Makes the root of process 1 that of this process, if it is another one than at the start.
    fn enter(&self) -> bool {
        let enter = || -> io::Result<bool> {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
            // SAFETY: a text that ends in NUL, and a descriptor that is open.
            let root = unsafe { libc::openat(self.proc.as_raw_fd(), c"1/root".as_ptr(), flags) };
            if root < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a new descriptor that nothing else owns.
            let root = File::from(unsafe { OwnedFd::from_raw_fd(root) });
            let there = root.metadata()?;
            if (there.dev(), there.ino()) == self.own {
                return Ok(false);
            }
            // SAFETY: a descriptor that is open.
            if unsafe { libc::fchdir(root.as_raw_fd()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            std::os::unix::fs::chroot(".")?;
            Ok(true)
        };
        enter().unwrap_or(false)
    }

    /// Waits until the mounts change, or for a turn: process 1 goes to its new root a moment after
    /// that is mounted.
    fn wait(&self) {
        let mut wanted = libc::pollfd { fd: self.mounts.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one struct, which the kernel fills.
        let changed = unsafe { libc::poll(&raw mut wanted, 1, TURN.as_millis() as libc::c_int) } > 0;
        if changed {
            std::thread::sleep(SOON);
        }
    }
}

/// Takes the `@` off the name of the process, in its memory, where the kernel reads that.
fn take_off_the_mark() {
    let place = || -> Option<u64> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The fields after the name, which may have anything in it: the first is the third.
        stat.rsplit_once(") ")?.1.split(' ').nth(START_OF_WORDS - 3)?.parse().ok()
    };
    let plain = format!("{}\0\0", NAME.trim_start_matches('@'));
    if let Some(place) = place() {
        let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem");
        let _ = memory.and_then(|memory| memory.write_all_at(plain.as_bytes(), place));
    }
}

/// The field of `/proc/PID/stat` that has the address of the words (`proc_pid_stat(5)`).
const START_OF_WORDS: usize = 48;
