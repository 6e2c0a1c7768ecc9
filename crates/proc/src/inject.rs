//! Memory that a process maps because its tracer says so: one `mmap` of its own, and nothing else.
//!
//! ```text
//!  any stop ── interrupt ──► event stop: registers and signal mask are saved, signals are blocked
//!           ── PTRACE_SYSCALL ──► entry of mmap ── PTRACE_SYSCALL ──► its exit: the address; all is restored
//!           ── interrupt ──► event stop, as before
//! ```
//!
//! No instruction is written: the system call is made at an instruction that is there already, in
//! the vdso as a rule. The stack is not used. From an event stop at the end the process runs on
//! unchanged.
//!
//! In between, a tracer that dies would leave a process with foreign registers, and what filters
//! system calls may kill it or keep it waiting. So this is done to processes alone that this tracer
//! has started, before their first instruction, while they end with the tracer
//! (`PTRACE_O_EXITKILL`); and each stop is waited for a limited time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::arch::{Registers, SYSCALL};
use crate::exec::check;
use crate::grab::{Request, ptrace};
use crate::maps::{self, Backing};
use crate::start::is_stop;

/// Why a process did not map memory.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The reason.
    Because(String),
    /// It has ended.
    Ended,
    /// It did not stop in time, and is in the middle of something.
    Stuck,
}

/// How long a stop is waited for. Nothing that a process does on the way takes long.
const LONGEST: Duration = Duration::from_secs(10);

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Self {
        Refused::Because(diagnostics::system_text(&e))
    }
}

const SETSIGMASK: Request = 0x420b;
const GETSIGMASK: Request = 0x420a;
const MASK: usize = size_of::<u64>();

/// Waits for the next stop or the end of `pid`, and returns the wait status; `TimedOut` after a
/// limit. Called for a command, whose sender interrupts the wait each millisecond.
pub(crate) fn wait_for(pid: libc::pid_t, limit: Duration) -> io::Result<i32> {
    let (mut status, begun) = (0, Instant::now());
    loop {
        // SAFETY: status is a valid int. __WALL includes threads of other thread groups.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) })) {
            Ok(_) => return Ok(status),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            Err(_) if begun.elapsed() > limit => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

fn stopped(pid: i32) -> Result<(i32, i32), Refused> {
    let status = match wait_for(pid, LONGEST) {
        Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(Refused::Stuck),
        done => done?,
    };
    match libc::WIFSTOPPED(status) {
        true => Ok((status >> 16, (status >> 8) & 0xff)),
        false => Err(Refused::Ended),
    }
}

fn request(request: Request, pid: i32, addr: usize, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: callers pass memory that is as long as the request needs.
    check(unsafe { libc::ptrace(request, pid, addr, data) } as i64).map(drop)
}

/// Where the process has the instruction of a system call.
fn instruction(pid: i32) -> io::Result<u64> {
    /// Bytes of a mapping that are looked through.
    const MOST: usize = 1 << 20;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let map = maps::read(File::open(format!("/proc/{pid}/maps"))?, maps::MAX_READ)?;
    let all = map.mappings.iter().filter(|mapping| mapping.is_code);
    let mut code: Vec<(bool, u64, u64)> =
        all.map(|mapping| (mapping.backing != Backing::Vdso, mapping.start, mapping.end)).collect();
    code.sort();
    for (_, start, end) in code {
        let mut bytes = vec![0; (end.saturating_sub(start) as usize).min(MOST)];
        let length = memory.read_at(&mut bytes, start).unwrap_or(0);
        bytes.truncate(length);
        let is_call = |at: &usize| bytes.get(*at..).is_some_and(|rest| rest.starts_with(SYSCALL));
        if let Some(at) = (0..bytes.len()).find(is_call) {
            return Ok(start + at as u64);
        }
    }
    Err(io::Error::other("it has no instruction for system calls"))
}

/// Lets a process that is stopped at its exec, and ends with its tracer, map private memory, and
/// leaves it in an event stop. Returns the address.
pub(crate) fn map(pid: i32, size: u64) -> Result<u64, Refused> {
    let event_stop = || -> Result<(), Refused> {
        ptrace(libc::PTRACE_INTERRUPT, pid, 0);
        ptrace(libc::PTRACE_CONT, pid, 0);
        loop {
            match stopped(pid)? {
                (libc::PTRACE_EVENT_STOP, signal) if is_stop(signal) => {
                    return Err(Refused::Because("it is stopped by a signal".into()));
                }
                (libc::PTRACE_EVENT_STOP, _) => return Ok(()),
                (0, signal) => ptrace(libc::PTRACE_CONT, pid, signal),
                _ => ptrace(libc::PTRACE_CONT, pid, 0),
            }
        }
    };
    event_stop()?;
    let saved = Registers::of(pid)?;
    if !saved.is_native() {
        return Err(Refused::Because("it is a 32-bit program".into()));
    }
    let address = instruction(pid)?;
    let (mut mask, mut all) = (0u64, u64::MAX);
    request(GETSIGMASK, pid, MASK, (&raw mut mask).cast())?;
    request(SETSIGMASK, pid, MASK, (&raw mut all).cast())?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    // Mappings with other flags are not joined with it, so it is a segment of its own in a core
    // file.
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let calling = saved.calling(address, libc::SYS_mmap, [0, size, access, flags, u64::MAX, 0]);
    let call = || -> Result<i64, Refused> {
        calling.set(pid)?;
        // SIGSTOP cannot be blocked: it is sent again when the process is as it was.
        let mut stops = 0;
        for _ in ["entry", "exit"] {
            ptrace(libc::PTRACE_SYSCALL, pid, 0);
            while let (event, signal) = stopped(pid)?
                && (event, signal) != (0, libc::SIGTRAP)
            {
                stops += i32::from(event == 0 && signal == libc::SIGSTOP);
                ptrace(libc::PTRACE_SYSCALL, pid, 0);
            }
        }
        let result = Registers::of(pid)?.result();
        if stops > 0 {
            // SAFETY: plain system call.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
        }
        Ok(result)
    };
    let result = call();
    if let Err(why @ (Refused::Ended | Refused::Stuck)) = result {
        return Err(why);
    }
    saved.set(pid)?;
    request(SETSIGMASK, pid, MASK, (&raw mut mask).cast())?;
    event_stop()?;
    match result? {
        error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32).into()),
        address => Ok(address as u64),
    }
}

/// Writes to the memory of a process.
pub(crate) fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let to = (address + done as u64) as usize as *mut libc::c_void;
        let remote = libc::iovec { iov_base: to, iov_len: rest.len() };
        // SAFETY: the local part is read only; the remote part is in the other process.
        let count = check(unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } as i64)?;
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        done += count as usize;
    }
    Ok(())
}
