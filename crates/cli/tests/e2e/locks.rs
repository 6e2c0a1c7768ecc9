//! Workloads of the kernel's own objects: its locks, that are waited for and acquired so many
//! times; memory; a virtual machine.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use testing::{HANG_LIMIT, eventually};

use crate::tool::pin;

/// The descriptors that the scripts name.
const PIPE: RawFd = 50;
const FILE: RawFd = 51;
const DIRECTORY: RawFd = 52;

/// Runs a workload of this module. `None` for other names.
pub(crate) fn run(name: &str, count: u32) -> Option<ExitCode> {
    match name {
        "contends" => contends(count),
        "waits-for-terminal" => report(waits_for_terminal(count)),
        "waits-for-directory" => report(waits_for_directory(count)),
        "acquires" => report(acquires(count)),
        "machine" => crate::stable_kvm::machine(count),
        "busy-machine" => crate::stable_kvm::busy_machine(count),
        "lively-machine" => crate::stable_kvm::lively_machine(count),
        "fpu-exceptions" => crate::stable_fpuinfo::has_exceptions(count),
        "fpu-turns" => report(crate::stable_fpuinfo::takes_turns(count)),
        "iscsi" => report(crate::iscsi_initiator::works()),
        "eats" => eats(count as usize),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Uses so many MiB of memory.
fn eats(count: usize) {
    let mut all = vec![0_u8; count << 20];
    all.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(all);
}

fn report(done: std::io::Result<()>) {
    if let Err(e) = done {
        println!("skip {e}");
    }
}

/// The descriptor that a system call made.
fn made(fd: i64) -> std::io::Result<File> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given it.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn file_in_memory() -> std::io::Result<File> {
    // SAFETY: a string that lives across the call.
    made(unsafe { libc::syscall(libc::SYS_memfd_create, c"dt-locks".as_ptr(), 0) })
}

/// Threads that write to one file, change one address space, and make processes.
fn contends(count: u32) {
    let Ok(shared) = file_in_memory() else { return };
    let own = format!("/proc/self/fd/{}", shared.as_raw_fd());
    let block = vec![b'x'; 1 << 16];
    let writes = |file: &File| {
        for _ in 0..count {
            let mut file = file;
            let _ = std::io::Seek::rewind(&mut file);
            let _ = file.write(&block);
        }
    };
    let writes_by_another_description = || {
        if let Ok(file) = File::options().write(true).open(&own) {
            writes(&file);
        }
    };
    let maps = || {
        for _ in 0..count {
            // SAFETY: memory of its own, which nothing else uses.
            unsafe {
                let rw = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let p = libc::mmap(std::ptr::null_mut(), 8192, rw, flags, -1, 0);
                if p != libc::MAP_FAILED {
                    p.cast::<u8>().write(1);
                    libc::munmap(p, 8192);
                }
            }
        }
    };
    let forks = || {
        for _ in 0..count / 10 {
            // SAFETY: the child ends at once.
            unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::_exit(0);
                }
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| writes(&shared));
            s.spawn(writes_by_another_description);
            s.spawn(maps);
            s.spawn(forks);
        }
    });
}

/// A thread, as /proc has it.
struct Waiter(i32);

impl Waiter {
    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/self/task/{}/{name}", self.0)).unwrap_or_default()
    }

    /// Waits until it sleeps in this system call.
    fn sleeps_in(&self, call: i64) {
        let is_there = || {
            let state = self.file("stat");
            let state = state.rsplit(") ").next().unwrap_or_default().bytes().next();
            matches!(state, Some(b'S' | b'D')) && self.file("syscall").starts_with(&format!("{call} "))
        };
        // Some looks, one after the other: one may be at a sleep that ends.
        let mut seen = 0;
        eventually("a thread that sleeps", HANG_LIMIT, || {
            seen = if is_there() { seen + 1 } else { 0 };
            seen == 4
        });
    }
}

fn my_id() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// The thread whose waits are counted has this name.
fn is_the_waiter() {
    // SAFETY: a string that lives across the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"dt-waiter".as_ptr()) };
}

fn announced(id: &AtomicI32) -> Waiter {
    Waiter(eventually("a thread", HANG_LIMIT, || Some(id.load(Ordering::SeqCst)).filter(|id| *id != 0)))
}

extern "C" fn nothing(_: i32) {}

/// Two threads read one terminal: one waits for input and holds the lock for reading, the other
/// waits for the lock, and is moved to another CPU meanwhile. At last its wait is interrupted.
fn waits_for_terminal(count: u32) -> std::io::Result<()> {
    // SAFETY: plain calls; the handler does nothing.
    let mut controls = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        made(i64::from(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY)))?
    };
    let mut name = [0_u8; 64];
    // SAFETY: a descriptor and a buffer of ours.
    let unlocked = unsafe {
        libc::grantpt(controls.as_raw_fd()) == 0
            && libc::unlockpt(controls.as_raw_fd()) == 0
            && libc::ptsname_r(controls.as_raw_fd(), name.as_mut_ptr().cast(), name.len()) == 0
    };
    if !unlocked {
        return Err(std::io::Error::last_os_error());
    }
    let path: String = name.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
    let terminal = {
        use std::os::unix::fs::OpenOptionsExt;
        File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)?
    };
    let (mut line, round) = ([0; 16], AtomicU32::new(0));
    let cpus = std::thread::available_parallelism()?.get();
    for n in 0..=count as usize {
        round.store(0, Ordering::SeqCst);
        let (holder, waiter) = (AtomicI32::new(0), AtomicI32::new(0));
        std::thread::scope(|s| -> std::io::Result<()> {
            let reader = s.spawn(|| {
                holder.store(my_id(), Ordering::SeqCst);
                (&terminal).read(&mut [0; 16])
            });
            announced(&holder).sleeps_in(libc::SYS_read);
            let waits = s.spawn(|| {
                is_the_waiter();
                let me = Waiter(my_id());
                pin(me.0, n % cpus);
                waiter.store(my_id(), Ordering::SeqCst);
                // SAFETY: a descriptor and a buffer of ours. (The library would begin again after a
                // signal.)
                unsafe { libc::read(terminal.as_raw_fd(), [0_u8; 16].as_mut_ptr().cast(), 16) }
            });
            let waiter = announced(&waiter);
            waiter.sleeps_in(libc::SYS_read);
            pin(waiter.0, (n + 1) % cpus);
            if n == count as usize {
                // SAFETY: a signal to a thread of this process.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter.0, libc::SIGUSR1) };
                let _ = waits.join();
                controls.write_all(b"x\n")?;
                let _ = reader.join();
            } else {
                controls.write_all(b"x\n")?;
                let _ = reader.join();
                controls.write_all(b"y\n")?;
                let _ = waits.join();
            }
            Ok(())
        })?;
        // What the terminal echoes would fill it.
        let _ = controls.read(&mut line);
    }
    Ok(())
}

/// A thread reads a directory into memory that this process provides late, and holds the lock of
/// the directory meanwhile. Another is to make a directory there.
fn waits_for_directory(count: u32) -> std::io::Result<()> {
    let dir = std::env::temp_dir().join(format!("dt-locks-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let mounted = crate::blocks::run(&format!("mount -t tmpfs none {}", dir.display()));
    let done = match mounted {
        Ok(_) => (0..count).try_for_each(|n| wait_for_directory(&dir, n)),
        Err(why) => Err(std::io::Error::other(why)),
    };
    let _ = crate::blocks::run(&format!("umount {}", dir.display()));
    let _ = std::fs::remove_dir(&dir);
    done
}

#[repr(C)]
#[derive(Default)]
struct UffdApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct UffdRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// The same struct.
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;

fn wait_for_directory(dir: &std::path::Path, n: u32) -> std::io::Result<()> {
    let faults = made(userfaultfd())?;
    let mut api = UffdApi { api: 0xaa, ..UffdApi::default() };
    // SAFETY: memory and structs of ours.
    let page = unsafe {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, rw, flags, -1, 0);
        let mut all = UffdRegister { start: page as u64, len: 4096, mode: 1, ioctls: 0 };
        if page == libc::MAP_FAILED
            || libc::ioctl(faults.as_raw_fd(), UFFDIO_API as _, &raw mut api) != 0
            || libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER as _, &raw mut all) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
        page as u64
    };
    let opened = [File::open(dir)?, File::open(dir)?];
    let ids = [AtomicI32::new(0), AtomicI32::new(0), AtomicI32::new(0)];
    let new = dir.join(n.to_string());
    let reads = |file: &File, into: u64| {
        // SAFETY: the memory is mapped until the threads have ended.
        unsafe { libc::syscall(libc::SYS_getdents64, file.as_raw_fd(), into, 4096) }
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            ids[0].store(my_id(), Ordering::SeqCst);
            reads(&opened[0], page);
        });
        announced(&ids[0]).sleeps_in(libc::SYS_getdents64);
        s.spawn(|| {
            is_the_waiter();
            ids[1].store(my_id(), Ordering::SeqCst);
            let _ = std::fs::create_dir(&new);
        });
        announced(&ids[1]).sleeps_in(libc::SYS_mkdir);
        // A reader that comes after a writer waits too.
        s.spawn(|| {
            is_the_waiter();
            let mut buffer = [0_u64; 512];
            let into = buffer.as_mut_ptr() as u64;
            ids[2].store(my_id(), Ordering::SeqCst);
            reads(&opened[1], into);
        });
        announced(&ids[2]).sleeps_in(libc::SYS_getdents64);
        let mut all = UffdRegister { start: page, len: 4096, mode: 0, ioctls: 0 };
        // SAFETY: a struct of ours.
        unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_ZEROPAGE as _, &raw mut all) };
    });
    // SAFETY: nothing uses it any more.
    unsafe { libc::munmap(page as *mut libc::c_void, 4096) };
    Ok(())
}

fn userfaultfd() -> i64 {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) }
}

/// Acquires locks of files of its own, without a wait.
fn acquires(count: u32) -> std::io::Result<()> {
    let (_reads, pipe) = std::io::pipe()?;
    let file = file_in_memory()?;
    let dir = File::open("/proc/self/fdinfo")?;
    for (from, to) in [(pipe.as_raw_fd(), PIPE), (file.as_raw_fd(), FILE), (dir.as_raw_fd(), DIRECTORY)] {
        // SAFETY: descriptors of ours.
        unsafe { libc::dup2(from, to) };
    }
    let mut buffer = [0_u64; 512];
    for _ in 0..count {
        // SAFETY: descriptors and memory of ours.
        unsafe {
            libc::write(PIPE, c"x".as_ptr().cast(), 1);
            libc::pwrite(FILE, c"x".as_ptr().cast(), 1, 0);
            libc::syscall(libc::SYS_getdents64, DIRECTORY, buffer.as_mut_ptr(), 4096);
            libc::fcntl(FILE, libc::F_SETFL, 0);
        }
    }
    Ok(())
}
