//! Workloads of known size for what the system's counters count: faults, paging, calls, locks.
//!
//! A part of a workload is between two calls of getppid, whose argument is the part's number.

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use testing::{HANG_LIMIT, eventually};

use crate::tool::{cpus, pin};

pub(crate) const PAGE: usize = 4096;

/// Marks the beginning or the end of a part. No pointer is passed.
pub(crate) fn mark(part: i64) {
    // SAFETY: getppid takes no argument.
    unsafe { libc::syscall(libc::SYS_getppid, part) };
}

pub(crate) fn part(number: i64, body: impl FnOnce()) {
    mark(number);
    body();
    mark(number);
}

/// A mapping that stays until the process ends. It begins at a multiple of 2 MiB.
fn map(bytes: usize, protection: i32, flags: i32, fd: RawFd, offset: usize) -> Option<*mut u8> {
    const HUGE: usize = 2 << 20;
    let none = std::ptr::null_mut();
    // SAFETY: a new reservation, and a mapping inside it.
    unsafe {
        let around =
            libc::mmap(none, bytes + HUGE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        if around == libc::MAP_FAILED {
            return None;
        }
        let start = (around as usize).next_multiple_of(HUGE) as *mut libc::c_void;
        let offset = i64::try_from(offset).ok()?;
        let at = libc::mmap(start, bytes, protection, flags | libc::MAP_FIXED, fd, offset);
        (at != libc::MAP_FAILED).then_some(at.cast())
    }
}

fn anonymous(pages: usize, advice: i32) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = map(pages * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
    // SAFETY: a mapping of ours.
    unsafe { libc::madvise(at.cast(), pages * PAGE, advice) };
    Some(at)
}

/// Writes to pages `from` to `to - 1`.
fn write(at: *mut u8, from: usize, to: usize) {
    // SAFETY: the caller's mapping is that large, and may be written.
    (from..to).for_each(|page| unsafe { at.add(page * PAGE).write_volatile(1) });
}

fn read(at: *mut u8, from: usize, to: usize) {
    // SAFETY: the caller's mapping is that large, and may be read.
    (from..to).for_each(|page| _ = unsafe { at.add(page * PAGE).read_volatile() });
}

fn child(body: impl FnOnce()) {
    // SAFETY: this process has one thread. The child ends here.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            body();
            libc::_exit(0);
        }
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Page faults of each kind, `count` of each. Page 0 is touched before each part, so that code and
/// stack are there.
fn faults(count: usize) -> Option<()> {
    let pages = count + 1;
    let fresh = anonymous(pages, libc::MADV_NOHUGEPAGE)?;
    write(fresh, 0, 1);
    part(1, || write(fresh, 1, pages));
    // The pages of a process that has forked.
    child(|| {
        write_what_the_kernel_writes();
        write(fresh, 0, 1);
        part(2, || write(fresh, 1, pages));
    });
    // The pages of a file that another mapping must not change.
    // SAFETY: a terminated name.
    let file = unsafe { libc::memfd_create(c"dt-faults".as_ptr(), 0) };
    let zeros = vec![1u8; pages * PAGE];
    // SAFETY: a buffer of that length.
    unsafe { libc::write(file, zeros.as_ptr().cast(), zeros.len()) };
    let copy = map(pages * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, file, 0)?;
    write(copy, 0, 1);
    part(3, || write(copy, 1, pages));
    // Pages that are read before they are written are the page of zeros first.
    let zero = anonymous(pages, libc::MADV_NOHUGEPAGE)?;
    read(zero, 0, 1);
    part(4, || read(zero, 1, pages));
    write(zero, 0, 1);
    part(5, || write(zero, 1, pages));
    // Where there are huge pages, these are two.
    let huge = anonymous(1024, libc::MADV_HUGEPAGE)?;
    part(6, || write(huge, 0, 1024));
    Some(())
}

/// Writes to the pages with what the C library knows of the thread. The kernel writes the number of
/// the CPU there (rseq(2)) when the thread was preempted: of a process that has forked, that would
/// be one fault more.
fn write_what_the_kernel_writes() {
    // SAFETY: the thread's own descriptor, of which each byte is read and written as it is; nothing
    // else runs in this process.
    unsafe {
        let descriptor = libc::pthread_self() as *mut u8;
        for at in [0, 0x9a0] {
            let byte = descriptor.add(at);
            byte.write_volatile(byte.read_volatile());
        }
    }
}

/// Reads and writes a device of 8 MiB, by its cache.
fn paging(path: &str) -> Option<()> {
    let file = std::fs::File::options().read(true).write(true).open(path).ok()?;
    let fd = file.as_raw_fd();
    // SAFETY: plain system calls on a descriptor of ours.
    let forget = || unsafe {
        libc::fsync(fd);
        libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
        libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM);
    };
    forget();
    let at = 2 << 20;
    for (number, at, protection) in [
        (1, at, libc::PROT_READ),
        // Not on every machine may a device be executed.
        (2, 2 * at, libc::PROT_READ | libc::PROT_EXEC),
    ] {
        if let Some(memory) = map(33 * PAGE, protection, libc::MAP_SHARED, fd, at) {
            // SAFETY: a mapping of ours.
            unsafe { libc::madvise(memory.cast(), 33 * PAGE, libc::MADV_RANDOM) };
            let first = usize::from(number == 1);
            read(memory, 0, first);
            part(number, || read(memory, first, 33));
        }
    }
    let mut bytes = vec![1u8; 64 * PAGE];
    let place = (3 << 20) as libc::off_t;
    part(3, || {
        // SAFETY: a buffer of that length.
        unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), place) };
    });
    part(4, || {
        // SAFETY: a buffer of that length.
        unsafe {
            libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), place);
            libc::fsync(fd);
        }
    });
    forget();
    let file = std::os::unix::fs::OpenOptionsExt::custom_flags(
        std::fs::File::options().read(true).write(true),
        libc::O_DIRECT,
    )
    .open(path)
    .ok()?;
    let memory = anonymous(1, libc::MADV_NOHUGEPAGE)?;
    write(memory, 0, 1);
    part(5, || {
        for page in 0..20 {
            // SAFETY: a page of ours.
            unsafe { libc::pwrite(file.as_raw_fd(), memory.cast(), PAGE, place + page * PAGE as i64) };
        }
    });
    part(6, || {
        for page in 0..30 {
            // SAFETY: a page of ours.
            unsafe { libc::pread(file.as_raw_fd(), memory.cast(), PAGE, place + page * PAGE as i64) };
        }
    });
    Some(())
}

/// Memory that is written to swap and read again.
fn swapped(pages: usize) -> Option<()> {
    let memory = anonymous(pages, libc::MADV_NOHUGEPAGE)?;
    write(memory, 0, pages);
    part(1, || {
        // SAFETY: a mapping of ours. 21 is MADV_PAGEOUT.
        unsafe { libc::madvise(memory.cast(), pages * PAGE, 21) };
    });
    part(2, || read(memory, 0, pages));
    Some(())
}

/// System calls, `count` of each but as written here.
fn calls() -> Option<()> {
    let zero = std::fs::File::open("/dev/zero").ok()?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").ok()?;
    let (zero, null) = (zero.as_raw_fd(), null.as_raw_fd());
    let mut bytes = [0u8; 100];
    let at: *mut libc::c_void = bytes.as_mut_ptr().cast();
    let parts = [libc::iovec { iov_base: at, iov_len: 5 }, libc::iovec { iov_base: at, iov_len: 6 }];
    // SAFETY: buffers of ours, which are as long as is said.
    part(1, || unsafe {
        (0..7).for_each(|_| _ = libc::read(zero, at, 10));
        (0..3).for_each(|_| _ = libc::pread(zero, at, 100, 0));
        (0..2).for_each(|_| _ = libc::readv(zero, parts.as_ptr(), 2));
        libc::read(null, at, 10);
        libc::read(-1, at, 10);
    });
    // SAFETY: as above.
    part(2, || unsafe {
        (0..7).for_each(|_| _ = libc::write(null, at, 10));
        (0..3).for_each(|_| _ = libc::pwrite(null, at, 100, 0));
        (0..2).for_each(|_| _ = libc::writev(null, parts.as_ptr(), 2));
        libc::write(-1, at, 10);
    });
    part(3, || {
        (0..3).for_each(|_| child(|| ()));
        for _ in 0..2 {
            let flags = libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: like fork: the child has a copy of the memory, and ends at once.
            unsafe {
                let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
                if pid == 0 {
                    libc::_exit(0);
                }
                libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
            }
        }
        (0..4).for_each(|_| _ = std::thread::spawn(|| ()).join());
    });
    let path = c"/nowhere/program";
    let args = [path.as_ptr(), std::ptr::null()];
    // SAFETY: terminated.
    part(4, || unsafe {
        (0..2).for_each(|_| _ = libc::execv(path.as_ptr(), args.as_ptr()));
    });
    let mut message = [0u64; 4];
    message[0] = 1;
    // SAFETY: a message of a type and eight bytes; an operation on a set that does not exist.
    part(5, || unsafe {
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        (0..3).for_each(|_| _ = libc::msgsnd(queue, message.as_ptr().cast(), 8, libc::IPC_NOWAIT));
        (0..3).for_each(|_| {
            libc::msgrcv(queue, message.as_mut_ptr().cast(), 8, 0, libc::IPC_NOWAIT);
        });
        libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut());
        let mut operation = libc::sembuf { sem_num: 0, sem_op: 0, sem_flg: 0 };
        (0..4).for_each(|_| _ = libc::semop(-1, &raw mut operation, 1));
    });
    // Another user may have no process, and so no second one.
    child(|| {
        let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: only this process is another user's. It has one thread.
        unsafe {
            libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit);
            libc::setresuid(64_999, 64_999, 64_999);
            part(6, || {
                for _ in 0..3 {
                    if libc::fork() == 0 {
                        libc::_exit(0);
                    }
                }
            });
        }
    });
    let path = |name: &str| CString::new(name).unwrap_or_default();
    let (there, missing) = (path("/etc/passwd"), path("/dt-nowhere"));
    // SAFETY: terminated strings; the kernel fills the struct.
    part(7, || unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        for _ in 0..5 {
            libc::close(libc::open(there.as_ptr(), libc::O_RDONLY));
        }
        (0..3).for_each(|_| _ = libc::stat(there.as_ptr(), &raw mut status));
        (0..2).for_each(|_| _ = libc::unlink(missing.as_ptr()));
    });
    Some(())
}

fn state(path: &str) -> Option<char> {
    let text = std::fs::read_to_string(path).ok()?;
    text.rsplit(')').next()?.trim_start().chars().next()
}

/// Processes that sleep on one CPU, are bound to another one, and are woken by this process.
fn migrations(count: u32) -> Option<()> {
    let cpus = cpus();
    let [from, to] = *cpus.get(..2)? else { return None };
    pin(0, from);
    let mut pipe = [0; 2];
    for _ in 0..count {
        // SAFETY: the child waits for a byte, and ends.
        unsafe {
            libc::pipe(pipe.as_mut_ptr());
            let pid = libc::fork();
            if pid == 0 {
                libc::read(pipe[0], [0u8; 1].as_mut_ptr().cast(), 1);
                libc::_exit(0);
            }
            while state(&format!("/proc/{pid}/stat")) != Some('S') {
                std::thread::yield_now();
            }
            part(1, || {
                pin(pid, to);
                libc::write(pipe[1], [0u8; 1].as_ptr().cast(), 1);
            });
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            pipe.iter().for_each(|fd| _ = libc::close(*fd));
        }
    }
    Some(())
}

/// Interrupts the CPU on which another thread of this process runs, so many times.
fn barriers(count: u32) {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    static ENDS: AtomicU32 = AtomicU32::new(0);
    let cpus = cpus();
    let [mine, other] = cpus.get(..2).map_or([0, 0], |c| [c[0], c[1]]);
    let spinner = std::thread::spawn(move || {
        pin(0, other);
        while ENDS.load(Ordering::Relaxed) == 0 {
            TURNS.fetch_add(1, Ordering::Relaxed);
        }
    });
    pin(0, mine);
    // SAFETY: no pointers. 16 registers, 8 is MEMBARRIER_CMD_PRIVATE_EXPEDITED.
    unsafe {
        libc::syscall(libc::SYS_membarrier, 16, 0, 0);
        part(1, || {
            for _ in 0..count {
                // The other thread runs if it turns now.
                for _ in 0..100 {
                    let before = TURNS.load(Ordering::Relaxed);
                    while TURNS.load(Ordering::Relaxed) == before {
                        std::hint::spin_loop();
                    }
                }
                libc::syscall(libc::SYS_membarrier, 8, 0, 0);
            }
        });
    }
    ENDS.store(1, Ordering::Relaxed);
    let _ = spinner.join();
}

/// A thread writes to a file in `dir`, from memory whose page this process gives it later: it holds
/// the position of the file and the lock of its inode until then. Three threads want the first,
/// four want the second to write, and five to read directly.
fn locks(dir: &str) -> Option<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("{dir}/dt-locks-{}", std::process::id());
    let mut options = std::fs::File::options();
    options.read(true).write(true).create(true);
    let file = options.open(&path).ok()?;
    file.set_len(1 << 20).ok()?;
    let direct = options.custom_flags(libc::O_DIRECT).open(&path).ok()?;
    let done = contend(file.as_raw_fd(), direct.as_raw_fd());
    let _ = std::fs::remove_file(path);
    done
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
    mode: u64,
    result: u64,
}

fn contend(fd: RawFd, direct: RawFd) -> Option<()> {
    let pages = 8;
    let memory = anonymous(pages, libc::MADV_NOHUGEPAGE)? as usize;
    let buffer = anonymous(1, libc::MADV_NOHUGEPAGE)? as usize;
    write(buffer as *mut u8, 0, 1);
    // SAFETY: the structs are those of the kernel: UFFDIO_API, UFFDIO_REGISTER for missing pages.
    let faults = unsafe {
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        let mut api = [0xaau64, 0, 0];
        let mut range = Range { start: memory as u64, len: (pages * PAGE) as u64, mode: 1, result: 0 };
        if libc::ioctl(faults, 0xc018_aa3f, api.as_mut_ptr()) != 0
            || libc::ioctl(faults, 0xc020_aa00, &raw mut range) != 0
        {
            return None;
        }
        // The position of a file that is open once needs no lock.
        libc::dup(fd);
        faults
    };
    static WAITING: [AtomicI32; 13] = [const { AtomicI32::new(0) }; 13];
    // SAFETY: buffers of a page each.
    let run = |n: usize| unsafe {
        WAITING[n].store(libc::syscall(libc::SYS_gettid) as i32, Ordering::SeqCst);
        let (from, page) = (memory as *const libc::c_void, PAGE);
        match n {
            0 => _ = libc::write(fd, from, page),
            1..4 => part(1, || _ = libc::write(fd, buffer as *const _, page)),
            4..8 => part(2, || _ = libc::pwrite(fd, buffer as *const _, page, 8192)),
            _ => part(3, || _ = libc::pread(direct, buffer as *mut _, page, 16384)),
        }
    };
    // A thread that waits for a page sleeps (S), and so does one that waits for a lock (D).
    let waits = |n: usize| {
        let letter = if n == 0 { 'S' } else { 'D' };
        let is_there = || {
            let tid = WAITING[n].load(Ordering::SeqCst);
            tid != 0 && state(&format!("/proc/self/task/{tid}/stat")) == Some(letter)
        };
        // Some looks, one after the other: one may be at a wait that ends.
        let mut seen = 0;
        eventually("a thread that waits", HANG_LIMIT, || {
            let waits = is_there() || (n == 0 && waits_for_page(WAITING[0].load(Ordering::SeqCst)));
            seen = if waits { seen + 1 } else { 0 };
            seen == 10
        });
    };
    std::thread::scope(|s| {
        for n in 0..WAITING.len() {
            s.spawn(move || run(n));
            waits(n);
        }
        let mut page = Range { start: memory as u64, len: PAGE as u64, mode: 0, result: 0 };
        // SAFETY: UFFDIO_ZEROPAGE, on a page of ours.
        unsafe { libc::ioctl(faults, 0xc020_aa04, &raw mut page) };
    });
    Some(())
}

fn waits_for_page(tid: i32) -> bool {
    tid != 0 && state(&format!("/proc/self/task/{tid}/stat")) == Some('D')
}

/// Operations on files in `dir`. Prints the bytes of its list of names.
fn file_operations(dir: &str) -> Option<()> {
    let path = |name: &str| CString::new(format!("{dir}/{name}")).ok();
    let [one, two, three, link, sub, fifo, here] =
        ["one", "two", "three", "link", "sub", "fifo", ""].map(path);
    let (one, two, three, link) = (one?, two?, three?, link?);
    let (sub, fifo, here) = (sub?, fifo?, here?);
    let missing: Vec<CString> = (0..5).filter_map(|n| path(&format!("missing{n}"))).collect();
    let mut bytes = vec![0u8; 4096];
    let at: *mut libc::c_void = bytes.as_mut_ptr().cast();
    let two_parts = [libc::iovec { iov_base: at, iov_len: 5 }, libc::iovec { iov_base: at, iov_len: 6 }];
    let mut listed = 0;
    // SAFETY: strings that are terminated, buffers as long as is said, structs that the kernel
    // fills.
    part(1, || unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let fd = libc::open(one.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        (0..3).for_each(|_| _ = libc::write(fd, at, 1000));
        libc::pwritev(fd, two_parts.as_ptr(), 2, 3000);
        (0..2).for_each(|_| _ = libc::lseek(fd, 0, libc::SEEK_SET));
        (0..4).for_each(|_| _ = libc::read(fd, at, 500));
        libc::readv(fd, two_parts.as_ptr(), 2);
        libc::pread(fd, at, 100, 1 << 20);
        libc::fsync(fd);
        libc::fdatasync(fd);
        libc::fallocate(fd, 0, 0, 8192);
        (0..3).for_each(|_| _ = libc::syscall(libc::SYS_fstat, fd, &raw mut status));
        (0..2).for_each(|_| _ = libc::stat(one.as_ptr(), &raw mut status));
        libc::fchmod(fd, 0o640);
        libc::ftruncate(fd, 8192);
        let none = std::ptr::null_mut();
        let mapped = libc::mmap(none, 8192, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        libc::munmap(mapped, 8192);
        (0..2).for_each(|_| _ = libc::ioctl(fd, 0x1234, 0));
        libc::close(fd);
        missing.iter().for_each(|name| _ = libc::stat(name.as_ptr(), &raw mut status));
        libc::mkdir(sub.as_ptr(), 0o700);
        libc::symlink(c"one".as_ptr(), link.as_ptr());
        (0..2).for_each(|_| _ = libc::readlink(link.as_ptr(), at.cast(), 100));
        libc::link(one.as_ptr(), two.as_ptr());
        libc::rename(two.as_ptr(), three.as_ptr());
        libc::mkfifo(fifo.as_ptr(), 0o600);
        let list = libc::open(here.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        loop {
            let got = libc::syscall(libc::SYS_getdents64, list, at, 4096);
            if got <= 0 {
                break;
            }
            listed += got;
        }
        libc::close(list);
        [&one, &three, &link, &fifo].iter().for_each(|name| _ = libc::unlink(name.as_ptr()));
        libc::rmdir(sub.as_ptr());
    });
    println!("listed {listed}");
    Some(())
}

/// `None`: there is no such workload. The argument is a number or a path.
pub(crate) fn run(name: &str, argument: &str) -> Option<ExitCode> {
    let count: u32 = argument.parse().unwrap_or(1);
    let done = match name {
        "faultkinds" => faults(count as usize),
        "paging" => paging(argument),
        "swapped" => swapped(count as usize),
        "counted" => calls(),
        "migrations" => migrations(count),
        "barriers" => {
            barriers(count);
            Some(())
        }
        "locks" => locks(argument),
        "fileoperations" => file_operations(argument),
        _ => return None,
    };
    Some(if done.is_some() { ExitCode::SUCCESS } else { ExitCode::from(77) })
}
