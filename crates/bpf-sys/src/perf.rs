//! Perf events: the CPU clock, counters, tracepoints, and single kprobes and uprobes.

use crate::error::SysError;
use crate::fork::{Change, KernelFd};
use crate::syscall::last_errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// The rate of a clock event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Once in so many nanoseconds, exactly.
    Period(u64),
    /// So many times a second. The kernel adjusts the period, so the rate drifts by a percent.
    Frequency(u64),
}

/// A hardware or software counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The counter's name, for messages.
    pub name: String,
    /// `PERF_TYPE_*`.
    pub kind: u32,
    /// The event of that type.
    pub config: u64,
    /// Counts in user mode.
    pub user: bool,
    /// Counts in kernel mode.
    pub kernel: bool,
}

impl Counter {
    /// It counts all the time of its CPU, so that it is known how often it is due.
    pub fn is_clock(&self) -> bool {
        (self.kind, self.config, self.user, self.kernel) == (TYPE_SOFTWARE, SW_CPU_CLOCK, true, true)
    }

    /// The CPU's clock, in both modes.
    pub fn clock() -> Counter {
        let name = "the clock".to_owned();
        Counter { name, kind: TYPE_SOFTWARE, config: SW_CPU_CLOCK, user: true, kernel: true }
    }
}

/// `struct perf_event_attr`, version 5 (112 bytes), which every kernel since 4.1 accepts.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    period_or_freq: u64,
    sample_type: u64,
    read_format: u64,
    bits: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    pad: u32,
}

const BIT_DISABLED: u64 = 1 << 0;
const BIT_NO_USER: u64 = 1 << 4;
const BIT_NO_KERNEL: u64 = 1 << 5;
const BIT_MMAP: u64 = 1 << 8;
const BIT_COMM: u64 = 1 << 9;
const BIT_FREQ: u64 = 1 << 10;
const BIT_TASK: u64 = 1 << 13;
const BIT_WATERMARK: u64 = 1 << 14;
const BIT_SAMPLE_ID_ALL: u64 = 1 << 18;
const BIT_MMAP2: u64 = 1 << 23;
const BIT_COMM_EXEC: u64 = 1 << 24;
const BIT_USE_CLOCKID: u64 = 1 << 25;
const BIT_BUILD_ID: u64 = 1 << 34;
const SAMPLE_TIME: u64 = 1 << 2;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const SW_CPU_CLOCK: u64 = 0;
const SW_DUMMY: u64 = 9;
const FD_CLOEXEC: libc::c_ulong = 1 << 3;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;

/// A perf event, created disabled, closed on drop.
#[derive(Debug)]
pub struct PerfEvent {
    fd: KernelFd,
    place: String,
}

impl PerfEvent {
    fn open(mut attr: Attr, pid: i32, cpu: i32, place: String) -> Result<PerfEvent, SysError> {
        attr.size = std::mem::size_of::<Attr>() as u32;
        attr.bits |= BIT_DISABLED;
        let no_group = -1;
        let change = Change::begin();
        // SAFETY: `attr` has the size that it states. The strings to which it points outlive the
        // call (the callers own them).
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, no_group, FD_CLOEXEC)
        };
        if fd < 0 {
            let error = SysError::new(format!("open the event of {place}"), last_errno());
            // Whoever may do it is told of what is wrong with the event.
            let is_refused = matches!(error.errno, libc::EACCES | libc::EPERM);
            return Err(if is_refused { error.or_hint(paranoid_hint) } else { error });
        }
        // SAFETY: the kernel just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(PerfEvent { fd: KernelFd::new(fd, &change), place })
    }

    /// A clock that fires on one CPU, whatever runs there.
    pub fn cpu_clock(cpu: u32, rate: Rate) -> Result<PerfEvent, SysError> {
        let (value, bits) = match rate {
            Rate::Period(ns) => (ns, 0),
            Rate::Frequency(hz) => (hz, BIT_FREQ),
        };
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            config: SW_CPU_CLOCK,
            period_or_freq: value,
            bits,
            ..Attr::default()
        };
        PerfEvent::open(attr, -1, cpu as i32, format!("the clock of CPU {cpu}"))
    }

    /// The side-band of one CPU: records of fork, exec, exit and executable mappings of all
    /// processes in a ring that the caller maps. The event itself counts nothing. A record ends
    /// with its time, by `CLOCK_BOOTTIME`. The descriptor is readable when the ring has `watermark`
    /// bytes.
    pub fn side_band(cpu: u32, watermark: u32) -> Result<PerfEvent, SysError> {
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            config: SW_DUMMY,
            sample_type: SAMPLE_TIME,
            bits: BIT_NO_KERNEL
                | BIT_MMAP
                | BIT_MMAP2
                | BIT_BUILD_ID
                | BIT_COMM
                | BIT_COMM_EXEC
                | BIT_TASK
                | BIT_SAMPLE_ID_ALL
                | BIT_WATERMARK
                | BIT_USE_CLOCKID,
            wakeup: watermark,
            clockid: libc::CLOCK_BOOTTIME,
            ..Attr::default()
        };
        PerfEvent::open(attr, -1, cpu as i32, format!("processes on CPU {cpu}"))
    }

    /// A counter on one CPU that fires once in `period` counts.
    pub fn counter(what: &Counter, cpu: u32, period: u64) -> Result<PerfEvent, SysError> {
        let bit = |counted: bool, bit| if counted { 0 } else { bit };
        let attr = Attr {
            kind: what.kind,
            config: what.config,
            period_or_freq: period,
            bits: bit(what.user, BIT_NO_USER) | bit(what.kernel, BIT_NO_KERNEL),
            ..Attr::default()
        };
        PerfEvent::open(attr, -1, cpu as i32, format!("{} on CPU {cpu}", what.name))
    }

    /// A tracepoint, by its id in tracefs. A program attached to the event runs on every CPU.
    pub fn tracepoint(id: u64) -> Result<PerfEvent, SysError> {
        let attr = Attr { kind: TYPE_TRACEPOINT, config: id, ..Attr::default() };
        PerfEvent::open(attr, -1, 0, format!("tracepoint {id}"))
    }

    /// A kernel function's entry (plus `offset`) or return.
    pub fn kprobe(function: &str, offset: u64, is_return: bool) -> Result<PerfEvent, SysError> {
        let place = format!("kernel function {function}");
        let (kind, config) = source("kprobe", is_return)
            .ok_or_else(|| SysError::new(format!("probe {place}: no kprobe event source"), libc::ENOENT))?;
        let name =
            CString::new(function).map_err(|_| SysError::new(format!("probe {place}"), libc::EINVAL))?;
        let attr = Attr { kind, config, config1: name.as_ptr() as u64, config2: offset, ..Attr::default() };
        PerfEvent::open(attr, -1, 0, place)
    }

    /// A kernel function's entry or return, by the function's address.
    pub fn kprobe_at(address: u64, is_return: bool) -> Result<PerfEvent, SysError> {
        let place = format!("the kernel function at {address:#x}");
        let (kind, config) = source("kprobe", is_return)
            .ok_or_else(|| SysError::new(format!("probe {place}: no kprobe event source"), libc::ENOENT))?;
        PerfEvent::open(Attr { kind, config, config2: address, ..Attr::default() }, -1, 0, place)
    }

    /// A location in a file, in one process or all. `semaphore` is the semaphore's file offset, 0
    /// for none.
    pub fn uprobe(
        path: &OsStr,
        offset: u64,
        semaphore: u32,
        is_return: bool,
        pid: Option<u32>,
    ) -> Result<PerfEvent, SysError> {
        // The upper half of `config` holds the semaphore's offset.
        const SEMAPHORE_SHIFT: u32 = 32;
        let place = format!("{}+0x{offset:x}", path.display());
        let (kind, config) = source("uprobe", is_return)
            .ok_or_else(|| SysError::new(format!("probe {place}: no uprobe event source"), libc::ENOENT))?;
        let name = CString::new(path.as_bytes())
            .map_err(|_| SysError::new(format!("probe {place}"), libc::EINVAL))?;
        let attr = Attr {
            kind,
            config: config | u64::from(semaphore) << SEMAPHORE_SHIFT,
            config1: name.as_ptr() as u64,
            config2: offset,
            ..Attr::default()
        };
        // One process on any CPU, or every process on CPU 0. In both cases all hits run the
        // program.
        let (pid, cpu) = pid.map_or((-1, 0), |pid| (pid as i32, -1));
        PerfEvent::open(attr, pid, cpu, place)
    }

    /// The event's target, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Enables the event.
    pub fn enable(&self) -> Result<(), SysError> {
        self.ioctl(IOC_ENABLE, "enable")
    }

    /// Disables the event.
    pub fn disable(&self) -> Result<(), SysError> {
        self.ioctl(IOC_DISABLE, "disable")
    }

    fn ioctl(&self, request: libc::c_ulong, verb: &str) -> Result<(), SysError> {
        // SAFETY: these requests take a number.
        if unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, 0) } < 0 {
            return Err(SysError::new(format!("{verb} the event of {}", self.place), last_errno()));
        }
        Ok(())
    }

    /// The event's count: nanoseconds for the clock, hits for others.
    pub fn count(&self) -> Result<u64, SysError> {
        let mut count = 0u64;
        // SAFETY: without a read format, a read returns one 64-bit count.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        if n == 8 {
            Ok(count)
        } else {
            Err(SysError::new(format!("read the event of {}", self.place), last_errno()))
        }
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PerfEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The type number and config of a dynamic event source.
fn source(name: &str, is_return: bool) -> Option<(u32, u64)> {
    let dir = format!("/sys/bus/event_source/devices/{name}");
    let kind = std::fs::read_to_string(format!("{dir}/type")).ok()?.trim().parse().ok()?;
    if !is_return {
        return Some((kind, 0));
    }
    // "config:0" is the bit that makes a return probe.
    let format = std::fs::read_to_string(format!("{dir}/format/retprobe")).ok()?;
    let bit: u32 = format.trim().strip_prefix("config:")?.parse().ok()?;
    Some((kind, 1u64.checked_shl(bit)?))
}

fn paranoid_hint() -> Option<String> {
    let level = crate::system::perf_paranoid()?;
    (level > 0).then(|| format!("kernel.perf_event_paranoid is {level}"))
}
