//! Links: attachments of programs.
//!
//! A link is a file descriptor. Closing it detaches the program, so a process that dies leaves
//! nothing attached. Closing can be slow (75–150 ms for each perf-event link), hence
//! [`close_in_background`](crate::close_in_background).

use crate::AttachType;
use crate::child::Maker;
use crate::error::SysError;
use crate::fork::{Change, KernelFd};
use crate::map::info_by_fd;
use crate::perf::PerfEvent;
use crate::prog::Prog;
use crate::syscall::{Cmd, addr, bpf_fd, raw};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// An attachment, detached on drop.
#[derive(Debug)]
pub struct Link {
    fd: KernelFd,
    /// The target, for messages.
    place: String,
    /// The event under a perf link, which must outlive the link.
    event: Option<PerfEvent>,
}

/// Kernel functions to attach to, for [`Link::kprobe_multi`].
#[derive(Clone, Copy, Debug)]
pub enum ProbeSite<'a> {
    /// By name. If one name is not traceable, none is attached. The kernel resolves the names,
    /// which is slow for thousands.
    Names(&'a [CString]),
    /// By address, as `available_filter_functions_addrs` lists them.
    Addresses(&'a [u64]),
}

/// Locations in one file, for [`Link::uprobe_multi`].
#[derive(Clone, Copy, Debug)]
pub struct UprobeTarget<'a> {
    /// The executable or library.
    pub path: &'a OsStr,
    /// Offsets in the file.
    pub offsets: &'a [u64],
    /// One cookie for each offset (returned by `bpf_get_attach_cookie`), or empty.
    pub cookies: &'a [u64],
    /// File offsets of the semaphores, one for each offset (0: none), or empty.
    pub semaphores: &'a [u64],
    /// The only process to trace. `None` traces all.
    pub pid: Option<u32>,
    /// Attaches to the functions' returns.
    pub is_return: bool,
}

#[repr(C)]
struct RawTpAttr {
    name: u64,
    prog_fd: u32,
    pad: u32,
    cookie: u64,
}

#[repr(C)]
#[derive(Default)]
struct PerfLinkAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

#[repr(C)]
#[derive(Default)]
struct TracingLinkAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    target_btf_id: u32,
    pad: u32,
    cookie: u64,
}

#[repr(C)]
#[derive(Default)]
struct KprobeMultiAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    count: u32,
    syms: u64,
    addrs: u64,
    cookies: u64,
}

#[repr(C)]
#[derive(Default)]
struct UprobeMultiAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    semaphores: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    pad: u32,
}

/// The kernel's description of a link (the head of `struct bpf_link_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkInfo {
    /// `BPF_LINK_TYPE_*`.
    pub kind: u32,
    /// The link's id.
    pub id: u32,
    /// The program's id.
    pub prog_id: u32,
    pad: u32,
    union: [u64; 6],
}

const LINK_PERF_EVENT: u32 = 7;
const LINK_KPROBE_MULTI: u32 = 8;
const PERF_KPROBE: u32 = 3;
const PERF_KRETPROBE: u32 = 4;

impl LinkInfo {
    /// Firings that the kernel could not deliver (no free return instance, recursion). Counted by
    /// kprobe_multi links and perf kprobes on kernels from 6.7, else 0.
    pub fn missed(&self) -> u64 {
        match self.kind {
            // Layout: addrs, (count, flags), missed.
            LINK_KPROBE_MULTI => self.union[2],
            // Layout: (type, pad), name, (name_len, offset), addr, missed.
            LINK_PERF_EVENT if matches!(self.union[0] as u32, PERF_KPROBE | PERF_KRETPROBE) => self.union[4],
            _ => 0,
        }
    }
}

impl Link {
    fn make(fd: Result<KernelFd, i32>, prog: &Prog, place: String) -> Result<Link, SysError> {
        match fd {
            Ok(fd) => Ok(Link { fd, place, event: None }),
            Err(errno) => Err(SysError::new(format!("attach program \"{}\" to {place}", prog.name()), errno)),
        }
    }

    /// Attaches a raw-tracepoint program to a tracepoint. `cookie` must be 0 before 6.10.
    pub fn raw_tracepoint(prog: &Prog, tracepoint: &str, cookie: u64) -> Result<Link, SysError> {
        let place = format!("tracepoint {tracepoint}");
        let name = c_string(tracepoint.as_bytes(), &place)?;
        let mut attr = RawTpAttr { name: name.as_ptr() as u64, prog_fd: raw(prog), pad: 0, cookie };
        // SAFETY: `name` is NUL-terminated and outlives the call.
        Link::make(unsafe { bpf_fd(Cmd::RawTracepointOpen, &mut attr) }, prog, place)
    }

    /// Attaches a tracing program (tp_btf, fentry, fexit) to the target for which it was loaded.
    /// `cookie` must be 0 for tp_btf before 6.10.
    pub fn tracing(prog: &Prog, cookie: u64) -> Result<Link, SysError> {
        let place = "its BTF target".to_owned();
        if cookie == 0 {
            let mut attr = RawTpAttr { name: 0, prog_fd: raw(prog), pad: 0, cookie: 0 };
            // SAFETY: no addresses.
            return Link::make(unsafe { bpf_fd(Cmd::RawTracepointOpen, &mut attr) }, prog, place);
        }
        let mut attr = TracingLinkAttr {
            prog_fd: raw(prog),
            attach_type: prog.attach_type() as u32,
            cookie,
            ..TracingLinkAttr::default()
        };
        // SAFETY: no addresses.
        Link::make(unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) }, prog, place)
    }

    /// Attaches to a perf event (clock, tracepoint, kprobe, uprobe) and enables it.
    pub fn perf_event(prog: &Prog, event: PerfEvent, cookie: u64) -> Result<Link, SysError> {
        let mut attr = PerfLinkAttr {
            prog_fd: raw(prog),
            target_fd: raw(&event),
            attach_type: AttachType::PerfEvent as u32,
            flags: 0,
            cookie,
        };
        // SAFETY: no addresses.
        let fd = unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) };
        let mut link = Link::make(fd, prog, event.place().to_owned())?;
        event.enable()?;
        link.event = Some(event);
        Ok(link)
    }

    /// Whether the kernel supports [`Link::kprobe_multi`], and if not, its error. The trial
    /// attaches nothing: patching a function would take longer than everything else at the start of
    /// a session. A kernel that supports the command reads the addresses before anything else, and
    /// fails because the trial's address is invalid.
    pub fn has_kprobe_multi(prog: &Prog) -> Result<(), SysError> {
        const NOT_MAPPED: u64 = 8;
        let mut attr = KprobeMultiAttr {
            prog_fd: raw(prog),
            attach_type: prog.attach_type() as u32,
            count: 1,
            addrs: NOT_MAPPED,
            ..KprobeMultiAttr::default()
        };
        // SAFETY: the kernel checks the address, where no process can have memory.
        match unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) } {
            Err(libc::EFAULT) => Ok(()),
            other => Link::make(other, prog, "1 kernel functions".into()).map(drop),
        }
    }

    /// Attaches to many kernel functions at once. `cookies` is empty or has one a place. By name
    /// this fails as a whole when one name is unknown; by address the kernel takes only its own
    /// list's addresses.
    ///
    /// For thousands of functions the system call takes the kernel seconds, and no signal ends it.
    /// So it is made in a child process (`dtrace-attach`), which sends the link back; `interrupted`
    /// is asked while we wait. When it says yes, the child is left behind, the error is EINTR, and
    /// the child's link is closed when it has been made.
    pub fn kprobe_multi(
        prog: &Prog,
        sites: ProbeSite<'_>,
        cookies: &[u64],
        is_return: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Link, SysError> {
        // Copies, which outlive this call where a child is abandoned.
        let (places, names) = match sites {
            ProbeSite::Names(names) => {
                let names = names.to_vec();
                (names.iter().map(|n| n.as_ptr() as u64).collect(), names)
            }
            ProbeSite::Addresses(a) => (a.to_vec(), Vec::new()),
        };
        let lists: Lists = (places, cookies.to_vec(), names);
        let count = lists.0.len();
        let (syms, addrs) = match sites {
            ProbeSite::Names(_) => (addr(&lists.0), 0),
            ProbeSite::Addresses(_) => (0, addr(&lists.0)),
        };
        let place = format!("{count} kernel functions");
        if !cookies.is_empty() && cookies.len() != count {
            return Link::make(Err(libc::EINVAL), prog, place);
        }
        let mut attr = KprobeMultiAttr {
            prog_fd: raw(prog),
            attach_type: prog.attach_type() as u32,
            multi_flags: u32::from(is_return),
            count: count as u32,
            syms,
            addrs,
            cookies: addr(&lists.1),
            ..KprobeMultiAttr::default()
        };
        let fd = match count > FEW {
            true => create_in_child(prog, attr, lists, interrupted),
            // SAFETY: `count` names, addresses and cookies stand at the addresses, and outlive the
            // call.
            false => unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) },
        };
        Link::make(fd, prog, place).map_err(|e| {
            let unknown = e.errno == libc::EOPNOTSUPP;
            e.or_hint(|| unknown.then(|| "this kernel was built without CONFIG_FPROBE".into()))
        })
    }

    /// Attaches to many locations of one file at once.
    pub fn uprobe_multi(prog: &Prog, target: &UprobeTarget<'_>) -> Result<Link, SysError> {
        let count = target.offsets.len();
        let place = format!("{count} places in {}", target.path.display());
        if [target.cookies.len(), target.semaphores.len()].iter().any(|n| *n != 0 && *n != count) {
            return Link::make(Err(libc::EINVAL), prog, place);
        }
        let path = c_string(target.path.as_bytes(), &place)?;
        let mut attr = UprobeMultiAttr {
            prog_fd: raw(prog),
            attach_type: prog.attach_type() as u32,
            path: path.as_ptr() as u64,
            offsets: addr(target.offsets),
            semaphores: addr(target.semaphores),
            cookies: addr(target.cookies),
            count: count as u32,
            multi_flags: u32::from(target.is_return),
            pid: target.pid.unwrap_or(0),
            ..UprobeMultiAttr::default()
        };
        // SAFETY: the pointers are to `count` offsets, semaphores and cookies. `path` is
        // NUL-terminated. All outlive the call.
        Link::make(unsafe { bpf_fd(Cmd::LinkCreate, &mut attr) }, prog, place)
    }

    /// The target, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The perf event of the link.
    pub fn event(&self) -> Option<&PerfEvent> {
        self.event.as_ref()
    }

    /// The kernel's description of the link.
    pub fn info(&self) -> Result<LinkInfo, SysError> {
        info_by_fd(&self.fd)
            .map_err(|errno| SysError::new(format!("query the link to {}", self.place), errno))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// So many functions are attached to in our own process: the kernel takes some 100 ms where it is
/// slow.
const FEW: usize = 200;

/// How often it is asked whether the user has interrupted, where no signal says so.
const LOOK: Duration = Duration::from_millis(50);

/// Lists of functions and cookies that a child process may still read.
type Lists = (Vec<u64>, Vec<u64>, Vec<CString>);

/// `BPF_LINK_CREATE` in a child process.
fn create_in_child(
    prog: &Prog,
    attr: KprobeMultiAttr,
    lists: Lists,
    interrupted: &dyn Fn() -> bool,
) -> Result<KernelFd, i32> {
    let mut kept = Box::new((attr, lists));
    let arguments = [Cmd::LinkCreate as i64, &raw mut kept.0 as i64, size_of::<KprobeMultiAttr>() as i64];
    // SAFETY: the attribute and its lists stay until there is a result, or for ever.
    let maker = unsafe { Maker::begin(c"dtrace-attach", &[prog.as_raw_fd()], libc::SYS_bpf, arguments) };
    let Some(maker) = maker else {
        // SAFETY: the lists stand at the addresses, and outlive the call.
        return unsafe { bpf_fd(Cmd::LinkCreate, &mut kept.0) };
    };
    loop {
        let mut ready = libc::pollfd { fd: maker.result().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives across the call.
        unsafe { libc::poll(&raw mut ready, 1, LOOK.as_millis() as i32) };
        if ready.revents != 0 {
            let change = Change::begin();
            return maker.take().map(|fd| KernelFd::new(fd, &change));
        }
        if interrupted() {
            std::mem::forget(kept);
            return Err(libc::EINTR);
        }
    }
}

fn c_string(bytes: &[u8], place: &str) -> Result<CString, SysError> {
    CString::new(bytes).map_err(|_| SysError::new(format!("attach to {place}"), libc::EINVAL))
}
