//! Workloads of known size: processes and threads that begin, run programs, get signals, and end.

use std::ffi::CString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

/// The status of a child process that ran `body`.
fn child(body: impl FnOnce()) -> ExitStatus {
    // SAFETY: this process has one thread. The child ends here, whatever it does.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            body();
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0);
        ExitStatus::from_raw(status)
    }
}

/// Each process makes two threads, one after the other.
fn families(count: u32) {
    for _ in 0..count {
        child(|| (0..2).for_each(|_| _ = std::thread::spawn(|| ()).join()));
    }
}

/// Five threads end at once.
fn race() {
    static READY: AtomicU32 = AtomicU32::new(0);
    let end = || {
        READY.fetch_add(1, Ordering::SeqCst);
        while READY.load(Ordering::SeqCst) < 5 {
            std::hint::spin_loop();
        }
        // SAFETY: ends this thread alone. Nothing of it is used afterwards.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    };
    (0..4).for_each(|_| _ = std::thread::spawn(end));
    end();
}

fn raise(signal: i32) {
    // SAFETY: a signal to this thread.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), signal) };
}

/// Prints how each of some processes ended, as `CLD_*`.
fn ends() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is ours.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) };
    let dir = std::env::temp_dir().join(format!("dtrace-ends-{}", std::process::id()));
    let _ = std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir));
    let all = [
        child(|| ()),
        child(|| std::process::exit(137)),
        child(|| raise(libc::SIGKILL)),
        child(|| raise(libc::SIGTERM)),
        child(|| raise(libc::SIGABRT)),
        // The status is that of the process, not of the thread that is last.
        child(|| {
            let _ = std::thread::spawn(|| raise(libc::SIGTERM)).join();
        }),
    ];
    for status in all {
        println!("{}", if status.signal().is_none() { 1 } else { 2 + i32::from(status.core_dumped()) });
    }
    let _ = std::env::set_current_dir("/").and_then(|()| std::fs::remove_dir_all(&dir));
}

fn exec(path: &str) {
    let path = CString::new(path).unwrap_or_default();
    let args = [path.as_ptr(), std::ptr::null()];
    // SAFETY: terminated arrays of terminated strings.
    unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
}

/// Programs that can be run and cannot.
fn programs() {
    child(|| {
        (0..3).for_each(|_| exec("/nowhere/program"));
        (0..2).for_each(|_| exec("/etc/passwd"));
        exec("/etc/passwd/program");
        exec("/bin/test");
    });
    // Not the first thread of its process.
    child(|| {
        let _ = std::thread::spawn(|| exec("/bin/test")).join();
    });
    child(|| {
        let path = CString::new("/bin/test").unwrap_or_default();
        let args = [path.as_ptr(), std::ptr::null()];
        let none: [*const libc::c_char; 1] = [std::ptr::null()];
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_execveat, -1, path.as_ptr(), args.as_ptr(), none.as_ptr(), 0) };
    });
}

extern "C" fn handler(_: i32) {}

/// Signals of each disposition. Prints the address of the handler.
fn signals() {
    let handle = handler as extern "C" fn(i32) as libc::sighandler_t;
    println!("handler {handle}");
    // SAFETY: the handler does nothing; the sets are ours.
    unsafe {
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::signal(libc::SIGUSR1, handle);
        (0..3).for_each(|_| raise(libc::SIGWINCH));
        (0..4).for_each(|_| raise(libc::SIGUSR2));
        (0..5).for_each(|_| raise(libc::SIGUSR1));
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGHUP, libc::SIGALRM] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGHUP, handle);
        (0..6).for_each(|_| raise(libc::SIGHUP));
        for _ in 0..7 {
            raise(libc::SIGALRM);
            let mut alarm: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut alarm, libc::SIGALRM);
            libc::sigwaitinfo(&raw const alarm, std::ptr::null_mut());
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    child(|| raise(libc::SIGTERM));
}

/// Processes that end of a fault each.
fn faults() {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours. What faults, faults on purpose.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        // The handler of the standard library would let the access be tried again.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        child(|| std::ptr::write_volatile(0x1230 as *mut u8, 1));
        child(|| std::ptr::write_volatile(c"constant".as_ptr().cast_mut().cast::<u8>(), 1));
        #[cfg(target_arch = "x86_64")]
        {
            child(|| std::arch::asm!("ud2"));
            child(|| std::arch::asm!("int3"));
            child(|| std::arch::asm!("div {0:e}", in(reg) 0, out("eax") _, out("edx") _));
        }
    }
    // No faults: a process sends these.
    for signal in [libc::SIGSEGV, libc::SIGFPE] {
        child(|| raise(signal));
    }
}

/// `None`: there is no such workload.
pub(crate) fn run(name: &str, count: u32) -> Option<ExitCode> {
    match name {
        "families" => families(count),
        "races" => (0..count).for_each(|_| _ = child(race)),
        "ends" => ends(),
        "programs" => programs(),
        // SAFETY: no memory is passed. The call fails.
        "family19" => (0..count).for_each(|_| _ = unsafe { libc::socket(19, libc::SOCK_STREAM, 0) }),
        "signals" => signals(),
        "faults" => faults(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}
