//! Attaching one program to many functions of the kernel, some of which the kernel may refuse.

use std::ffi::CString;
use std::sync::Arc;

use bpf::sys::{Link, PerfEvent, ProbeSite, Prog, SysError};
use probes::ProbeDesc;

/// A method of attaching to functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMethod {
    /// All by one link (`kprobe_multi`).
    Multi,
    /// Each by a trampoline (`fentry`, `fexit`), with a copy of the program.
    Fentry,
    /// Each by a trampoline that may set the function's result (`fmod_ret`), with a copy of the program.
    Modify,
    /// Each by a kprobe or kretprobe.
    Kprobe,
}

impl AttachMethod {
    /// The name of the kernel's facility.
    pub fn name(self) -> &'static str {
        match self {
            AttachMethod::Multi => "kprobe_multi",
            AttachMethod::Fentry => "fentry",
            AttachMethod::Modify => "fmod_ret",
            AttachMethod::Kprobe => "kprobe",
        }
    }

    /// About how many milliseconds the kernel takes to attach to one function, and to detach. Measured on 6.1.
    pub fn cost_ms(self) -> (u64, u64) {
        match self {
            AttachMethod::Multi => (0, 0),
            AttachMethod::Fentry | AttachMethod::Modify => (8, 145),
            AttachMethod::Kprobe => (20, 95),
        }
    }
}

/// Kernel functions that one program serves. The cookie of each is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// The method.
    pub method: AttachMethod,
    /// On return instead of entry.
    pub on_return: bool,
    /// The functions.
    pub sites: Vec<Site>,
}

/// A kernel function to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address of its first byte; 0 if the kernel does not tell.
    pub address: u64,
    /// Its BTF id, for a trampoline; else 0.
    pub btf: u32,
    /// Its probe, for messages and for its name.
    pub probe: Arc<ProbeDesc>,
}

/// Functions that the kernel refused, and why.
pub type Refused = Vec<(Arc<ProbeDesc>, SysError)>;

/// Attaches a program to many functions: to those that the kernel takes. The links that are made are added to `links`, also where
/// an error follows. It is an error where the kernel takes none, and EINTR where `interrupted` says yes meanwhile.
pub fn attach(
    all: &Sites,
    prog: &Prog,
    links: &mut Vec<Link>,
    interrupted: &dyn Fn() -> bool,
) -> Result<Refused, SysError> {
    let mut refused = Refused::new();
    // Where the kernel hides all addresses, it finds the functions by their names.
    let hidden = all.sites.iter().all(|s| s.address == 0);
    let (mut sites, mut cookies) = (Vec::new(), Vec::new());
    for (cookie, site) in (0u64..).zip(&all.sites) {
        if hidden || site.address != 0 {
            sites.push(site);
            cookies.push(cookie);
        } else {
            refused.push((site.probe.clone(), SysError::new("find the function's address", ENOENT)));
        }
    }
    let mut many = Many { on_return: all.on_return, prog, interrupted, links, refused };
    many.divide(&sites, &cookies)?;
    let Many { links, mut refused, .. } = many;
    match (links.is_empty(), refused.pop()) {
        (true, Some((_, why))) => Err(why),
        (_, last) => {
            refused.extend(last);
            Ok(refused)
        }
    }
}

/// Attaches a program to one function by a kprobe.
pub fn kprobe(all: &Sites, cookie: usize, prog: &Prog) -> Result<Link, SysError> {
    let missing = || SysError::new("find the function", ENOENT);
    let site = all.sites.get(cookie).ok_or_else(missing)?;
    let event = match site.address {
        0 => PerfEvent::kprobe(&site.probe.function, 0, all.on_return)?,
        address => PerfEvent::kprobe_at(address, all.on_return)?,
    };
    Link::perf_event(prog, event, cookie as u64)
}

/// Many functions that one program is attached to.
struct Many<'a> {
    on_return: bool,
    prog: &'a Prog,
    interrupted: &'a dyn Fn() -> bool,
    links: &'a mut Vec<Link>,
    refused: Refused,
}

impl Many<'_> {
    /// One link refuses all where the kernel refuses one, so the range is halved until only these are left.
    fn divide(&mut self, sites: &[&Site], cookies: &[u64]) -> Result<(), SysError> {
        if (self.interrupted)() {
            return Err(SysError::new("attach to the kernel's functions", EINTR));
        }
        let attach =
            |places| Link::kprobe_multi(self.prog, places, cookies, self.on_return, self.interrupted);
        let link = if sites.iter().all(|s| s.address != 0) {
            let addresses: Vec<u64> = sites.iter().map(|s| s.address).collect();
            attach(ProbeSite::Addresses(&addresses))
        } else {
            let names = sites.iter().map(|s| CString::new(&*s.probe.function)).collect::<Result<Vec<_>, _>>();
            let names =
                names.map_err(|_| SysError::new("attach to a function with a NUL in its name", EINVAL))?;
            attach(ProbeSite::Names(&names))
        };
        match link {
            Ok(link) => self.links.push(link),
            Err(e) if !concerns_one_function(e.errno) => return Err(e),
            Err(e) => match sites {
                [] => {}
                [one] => self.refused.push((one.probe.clone(), e)),
                _ => {
                    let middle = sites.len() / 2;
                    self.divide(&sites[..middle], &cookies[..middle])?;
                    self.divide(&sites[middle..], &cookies[middle..])?;
                }
            },
        }
        Ok(())
    }
}

const ENOENT: i32 = 2;

/// The user interrupted the enabling.
const EINTR: i32 = 4;
const EINVAL: i32 = 22;

/// True if an error concerns one function and not the system: its module was unloaded, or it may not be traced, or not now.
const fn concerns_one_function(errno: i32) -> bool {
    const ESRCH: i32 = 3;
    const EBUSY: i32 = 16;
    const EILSEQ: i32 = 84;
    const EADDRNOTAVAIL: i32 = 99;
    matches!(errno, ENOENT | ESRCH | EBUSY | EINVAL | EILSEQ | EADDRNOTAVAIL)
}
