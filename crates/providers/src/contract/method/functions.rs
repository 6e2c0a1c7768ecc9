//! Functions of the kernel: all by one link, or each by itself.
//!
//! The kernel may reject some of the functions. They are left out and reported.

use std::ffi::CString;
use std::sync::Arc;

use bpf_sys::errno;
use bpf_sys::load::LoadError;
use bpf_sys::{AttachType, Link, PerfEvent, ProbeSite, Prog, ProgKind, SysError};
use probes::ProbeDesc;

use super::{AttachError, Attaching, Copies, Functions, Method, ProgramType, Rejected};

/// A method of attaching to functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionMethod {
    /// All by one link (`kprobe_multi`).
    Multi,
    /// Each by a trampoline (`fentry`, `fexit`), with a copy of the program.
    Fentry,
    /// Each by a trampoline that may set the function's result (`fmod_ret`), with a copy of the
    /// program.
    Modify,
    /// Each by a kprobe or kretprobe.
    Kprobe,
}

impl FunctionMethod {
    /// The name of the kernel's facility.
    pub fn name(self) -> &'static str {
        match self {
            FunctionMethod::Multi => "kprobe_multi",
            FunctionMethod::Fentry => "fentry",
            FunctionMethod::Modify => "fmod_ret",
            FunctionMethod::Kprobe => "kprobe",
        }
    }

    /// About how many milliseconds the kernel takes to attach to one function, and to detach.
    /// Measured on 6.1.
    pub fn cost_ms(self) -> (u64, u64) {
        match self {
            FunctionMethod::Multi => (0, 0),
            FunctionMethod::Fentry | FunctionMethod::Modify => (8, 145),
            FunctionMethod::Kprobe => (20, 95),
        }
    }

    /// The method that attaches to these functions.
    pub fn of(self, sites: FunctionSites) -> Arc<dyn Method> {
        match self {
            FunctionMethod::Multi => Arc::new(KprobeMulti(sites)),
            FunctionMethod::Fentry => Arc::new(Trampolines { sites, modify: false }),
            FunctionMethod::Modify => Arc::new(Trampolines { sites, modify: true }),
            FunctionMethod::Kprobe => Arc::new(Kprobes(sites)),
        }
    }
}

/// A kernel function to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The index of its probe. Several functions may have one probe.
    pub index: u32,
    /// The address of its first byte; 0 if the kernel does not tell or if it is found by its name.
    pub address: u64,
    /// Its BTF id, for a trampoline; else 0.
    pub btf: u32,
    /// Its symbol, where that is not the function of its probe.
    pub symbol: Option<Arc<str>>,
    /// Its probe, for messages and for its name.
    pub probe: Arc<ProbeDesc>,
}

impl Site {
    fn symbol(&self) -> &str {
        self.symbol.as_deref().unwrap_or(&self.probe.function)
    }
}

/// Kernel functions that one program serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSites {
    /// On return instead of entry.
    pub on_return: bool,
    /// All of them are needed: if the kernel rejects one, that is an error. Else those that it
    /// rejects are left out.
    pub whole: bool,
    /// The functions.
    pub sites: Vec<Site>,
}

impl FunctionSites {
    /// The number that is reported. Functions that are all needed are a detail of their probe.
    fn reported(&self, by: FunctionMethod) -> Option<Functions> {
        (!self.whole).then_some(Functions { count: self.sites.len(), by: by.name() })
    }

    fn release_us(&self, method: FunctionMethod) -> u64 {
        1000 * method.cost_ms().1 * self.sites.len() as u64
    }
}

/// All functions by one link.
#[derive(Clone, Debug)]
struct KprobeMulti(FunctionSites);

impl Method for KprobeMulti {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::Kprobe, AttachType::KprobeMulti)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let all = &self.0;
        let mut rejected = Rejected::new();
        // Where the kernel hides all addresses, it finds the functions by their names.
        let hidden = all.sites.iter().all(|s| s.address == 0);
        let mut sites = Vec::new();
        for site in &all.sites {
            if hidden || site.address != 0 {
                sites.push(site);
            } else {
                rejected
                    .push((site.probe.clone(), SysError::new("find the function's address", errno::ENOENT)));
            }
        }
        let cookies: Vec<u64> = sites.iter().map(|s| (to.cookie)(s.index)).collect();
        let mut many = Many { all, to, rejected };
        many.divide(&sites, &cookies)?;
        let rejected = many.rejected;
        rejected_or_error(to, rejected)
    }

    fn has_cookies(&self) -> bool {
        true
    }

    fn functions(&self) -> Option<Functions> {
        self.0.reported(FunctionMethod::Multi)
    }

    fn release_us(&self) -> u64 {
        if self.0.whole { 0 } else { 60 * self.0.sites.len() as u64 }
    }

    /// Links at the entry of functions count only functions that the program itself calls.
    fn links_count_missed(&self) -> bool {
        self.0.on_return
    }

    fn at_return(&self) -> bool {
        self.0.on_return
    }
}

/// Many functions that one program is attached to.
struct Many<'a, 'b> {
    all: &'a FunctionSites,
    to: &'a mut Attaching<'b>,
    rejected: Rejected,
}

impl Many<'_, '_> {
    /// One link rejects all where the kernel rejects one, so the range is halved until only these
    /// are left.
    fn divide(&mut self, sites: &[&Site], cookies: &[u64]) -> Result<(), AttachError> {
        self.to.check()?;
        match self.link(sites, cookies) {
            Ok(link) => self.to.loaded.links.push(link.into()),
            Err(e) if self.all.whole || !concerns_one_function(e.errno) => return Err(e.into()),
            Err(e) => match sites {
                [] => {}
                [one] => self.rejected.push((one.probe.clone(), e)),
                _ => {
                    let middle = sites.len() / 2;
                    let (first, second) = (sites.split_at(middle), cookies.split_at(middle));
                    self.divide(first.0, second.0)?;
                    self.divide(first.1, second.1)?;
                }
            },
        }
        Ok(())
    }

    fn link(&self, sites: &[&Site], cookies: &[u64]) -> Result<Link, SysError> {
        let prog = &self.to.loaded.prog;
        let interrupted = || self.to.observer.interrupted();
        let attach = |places| Link::kprobe_multi(prog, places, cookies, self.all.on_return, &interrupted);
        if sites.iter().all(|s| s.address != 0) {
            let addresses: Vec<u64> = sites.iter().map(|s| s.address).collect();
            return attach(ProbeSite::Addresses(&addresses));
        }
        let names = sites.iter().map(|s| CString::new(s.symbol())).collect::<Result<Vec<_>, _>>();
        let bad = |_| SysError::new("attach to a function with a NUL in its name", errno::EINVAL);
        attach(ProbeSite::Names(&names.map_err(bad)?))
    }
}

/// Each function by a trampoline. The kernel finds the function by the BTF id that the program was
/// loaded for.
#[derive(Clone, Debug)]
struct Trampolines {
    sites: FunctionSites,
    /// The program sets the function's result.
    modify: bool,
}

impl Trampolines {
    fn method(&self) -> FunctionMethod {
        if self.modify { FunctionMethod::Modify } else { FunctionMethod::Fentry }
    }
}

impl Method for Trampolines {
    fn program(&self) -> ProgramType {
        let attach = match (self.modify, self.sites.on_return) {
            (true, _) => AttachType::ModifyReturn,
            (false, true) => AttachType::TraceFexit,
            (false, false) => AttachType::TraceFentry,
        };
        ProgramType::new(ProgKind::Tracing, attach)
    }

    fn copies(&self) -> Copies {
        Copies::Targets(self.sites.sites.iter().map(|s| s.btf).collect())
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let Some(mut image) = to.loaded.image.take() else { return Ok(Rejected::new()) };
        let (mut rejected, mut stopped) = (Rejected::new(), Ok(()));
        let mut sites = self.sites.sites.iter();
        let attach = |loaded: Result<Prog, Box<LoadError>>| {
            let Some(site) = sites.next() else { return false };
            let linked = loaded.map_err(|e| e.error).and_then(|prog| {
                let link = Link::tracing(&prog, (to.cookie)(site.index))?;
                to.loaded.copies.push(prog);
                Ok(link)
            });
            stopped = take(to, &mut rejected, site, linked);
            stopped.is_ok()
        };
        let loaded = image.load_for(self.sites.sites.iter().map(|s| s.btf), attach);
        to.loaded.image = Some(image);
        loaded.map_err(AttachError::Load)?;
        stopped?;
        rejected_or_error(to, rejected)
    }

    fn functions(&self) -> Option<Functions> {
        self.sites.reported(self.method())
    }

    fn descriptors(&self) -> usize {
        2 * self.sites.sites.len()
    }

    fn release_us(&self) -> u64 {
        self.sites.release_us(self.method())
    }

    fn links_count_missed(&self) -> bool {
        false
    }

    /// The kernel may not allow the program to change a function's result.
    fn explain(&self, verifier: &str) -> Option<String> {
        let site = self.sites.sites.first().filter(|_| verifier.ends_with("is not modifiable"))?;
        Some(format!(
            "return( ) in {}: this kernel lets no program change the result of this function, only the results of functions that \
             check permissions (fbt::security_*:entry)",
            site.probe
        ))
    }
}

/// Each function by a kprobe or kretprobe.
#[derive(Clone, Debug)]
struct Kprobes(FunctionSites);

impl Kprobes {
    fn link(&self, site: &Site, prog: &Prog, cookie: u64) -> Result<Link, SysError> {
        let event = match site.address {
            0 => PerfEvent::kprobe(site.symbol(), 0, self.0.on_return)?,
            address => PerfEvent::kprobe_at(address, self.0.on_return)?,
        };
        Link::perf_event(prog, event, cookie)
    }
}

impl Method for Kprobes {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::Kprobe, AttachType::None)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let mut rejected = Rejected::new();
        for site in &self.0.sites {
            let linked = self.link(site, &to.loaded.prog, (to.cookie)(site.index));
            take(to, &mut rejected, site, linked)?;
        }
        rejected_or_error(to, rejected)
    }

    fn has_cookies(&self) -> bool {
        true
    }

    fn functions(&self) -> Option<Functions> {
        self.0.reported(FunctionMethod::Kprobe)
    }

    fn descriptors(&self) -> usize {
        2 * self.0.sites.len()
    }

    fn release_us(&self) -> u64 {
        self.0.release_us(FunctionMethod::Kprobe)
    }
}

/// Takes the link of one function of those that are attached one by one, or the kernel's reason to
/// reject it.
fn take(
    to: &mut Attaching<'_>,
    rejected: &mut Rejected,
    site: &Site,
    linked: Result<Link, SysError>,
) -> Result<(), AttachError> {
    match linked {
        Ok(link) => to.loaded.links.push(link.into()),
        Err(e) => rejected.push((site.probe.clone(), e)),
    }
    to.step()
}

/// The functions that the kernel rejected, or an error if it rejected all.
fn rejected_or_error(to: &Attaching<'_>, mut rejected: Rejected) -> Result<Rejected, AttachError> {
    match (to.loaded.links.is_empty(), rejected.pop()) {
        (true, Some((_, why))) => Err(why.into()),
        (_, last) => {
            rejected.extend(last);
            Ok(rejected)
        }
    }
}

/// True if an error concerns one function and not the system: its module was unloaded, or it may
/// not be traced, or not now.
const fn concerns_one_function(error: i32) -> bool {
    use errno::{EADDRNOTAVAIL, EBUSY, EILSEQ, EINVAL, ENOENT, ESRCH};
    matches!(error, ENOENT | ESRCH | EBUSY | EINVAL | EILSEQ | EADDRNOTAVAIL)
}
