//! A provider whose probes come and go, as a user of the library brings it: with a source of
//! changes and a method of attaching of its own. Also for the benchmarks.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bpf_codegen::context::{Context, Index};
use bpf_codegen::mir::{Builder, Helper, Label, Size, V};
use bpf_sys::{AttachType, Link, PerfEvent, ProgKind, SysError};
use probes::{
    ArgType, Args, Attributes, Family, Pattern, ProbeDesc, ProbeId, ProviderFacts, ProviderStability,
};
use providers::method::{AttachError, Attaching, Method, ProgramType, Rejected};
use providers::{
    Change, ChangeSource, EnabledProbe, Env, OpenChanges, ProbeList, ProbeStore, ProbesChanged, Provider,
    Role, Unit,
};

/// Nanoseconds of CPU time that the kernel has taken to attach.
pub(crate) static ATTACHING: AtomicU64 = AtomicU64::new(0);

/// The CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: the struct lives across the call; all zero is a valid value.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The tracepoint of all probes: it fires when this process sets a timer, and rarely otherwise.
const TRACEPOINT: &str = "itimer_state";

/// Fires every probe that exists once.
pub(crate) fn fire() {
    let timer = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: 1_000_000, tv_usec: 0 },
    };
    // SAFETY: the struct lives across the call. The timer is far in the future.
    unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &raw const timer, std::ptr::null_mut()) };
}

/// The function of all probes of [`Later::of_function`].
#[inline(never)]
pub(crate) extern "C" fn touch(text: *const u8) -> usize {
    std::hint::black_box(text as usize)
}

/// An order to the source.
enum Order {
    Add(Vec<String>),
    Remove(Vec<String>),
}

/// What the test and its provider share.
struct Exchange {
    /// The probes are at [`touch`], which is at this offset of the file, not at the tracepoint.
    function: Option<u64>,
    orders: Mutex<VecDeque<Order>>,
    ids: Mutex<HashMap<String, ProbeId>>,
    event: (OwnedFd, OwnedFd),
}

/// The provider and its source; it has no probes at the start.
#[derive(Clone)]
pub(crate) struct Later(Arc<Exchange>, Arc<ProbeList>, &'static str);

impl Later {
    /// Without probes.
    pub(crate) fn new() -> Later {
        Later::at(None)
    }

    /// Without probes, as a provider of this name.
    pub(crate) fn named(name: &'static str) -> Later {
        Later { 2: name, ..Later::new() }
    }

    /// Without probes. They are to be at [`touch`], where pages can be faulted in first.
    pub(crate) fn of_function(offset: u64) -> Later {
        Later::at(Some(offset))
    }

    fn at(function: Option<u64>) -> Later {
        let (reader, writer) = std::io::pipe().unwrap();
        Later(
            Arc::new(Exchange {
                function,
                orders: Mutex::default(),
                ids: Mutex::default(),
                event: (reader.into(), writer.into()),
            }),
            Arc::new(ProbeList::new(Vec::new)),
            "later",
        )
    }

    fn order(&self, order: Order) {
        self.0.orders.lock().unwrap().push_back(order);
        // The pipe stays readable: the session asks at each turn.
        let one = [1u8];
        // SAFETY: one byte that lives across the call.
        unsafe {
            libc::write(std::os::fd::AsRawFd::as_raw_fd(&self.0.event.1), one.as_ptr().cast(), 1);
        }
    }

    pub(crate) fn add(&self, names: &[&str]) {
        self.order(Order::Add(names.iter().map(|n| (*n).to_owned()).collect()));
    }

    pub(crate) fn remove(&self, names: &[&str]) {
        self.order(Order::Remove(names.iter().map(|n| (*n).to_owned()).collect()));
    }
}

impl ChangeSource for Later {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.event.0.as_fd()
    }

    fn changes(&mut self, store: &dyn ProbeStore, _: &[Pattern]) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(order) = self.0.orders.lock().unwrap().pop_front() {
            let mut byte = [0u8];
            // SAFETY: one byte that lives across the call.
            unsafe {
                libc::read(std::os::fd::AsRawFd::as_raw_fd(&self.0.event.0), byte.as_mut_ptr().cast(), 1);
            }
            let mut ids = self.0.ids.lock().unwrap();
            let probes = match order {
                Order::Add(names) => {
                    let desc = |name: &String| ProbeDesc::new(self.2, "", name.as_str(), "hit");
                    let added = store.add(names.iter().map(desc).collect());
                    ids.extend(added.iter().map(|p| (p.desc.function.to_string(), p.id)));
                    ProbesChanged { added, removed: Vec::new() }
                }
                Order::Remove(names) => {
                    let removed: Vec<ProbeId> = names.iter().map(|n| ids.remove(n).unwrap()).collect();
                    store.remove(&removed);
                    ProbesChanged { added: Vec::new(), removed }
                }
            };
            changes.push(Change { subject: "the test".into(), event: "changed", probes });
        }
        changes
    }
}

impl Provider for Later {
    fn facts(&self) -> ProviderFacts {
        let stability = ProviderStability::uniform(Attributes::EVOLVING);
        ProviderFacts { family: Family::one(self.2), has_errno: false, stability }
    }

    fn probes(&self) -> &dyn providers::ProbeSource {
        &*self.1
    }

    fn changes(&self) -> Option<OpenChanges<'_>> {
        Some(Box::new(|| Some(Box::new(self.clone()))))
    }

    /// By the name of the function: `kind_N_any` has an argument of the N-th type, while it exists.
    fn args(&self, probe: &ProbeDesc) -> Args {
        if !self.0.ids.lock().unwrap().contains_key(&*probe.function) {
            return Err("it is gone".into());
        }
        let number = probe.function.strip_prefix("kind_").and_then(|rest| rest.split('_').next());
        let ty = number.and_then(|n| KINDS.get(n.parse::<usize>().ok()?));
        Ok(ty.map(|ty| ArgType::text(0, *ty)).into_iter().collect())
    }

    /// A probe whose name begins with `apart` or `plain` has a unit of its own; a method without
    /// cookies attaches `plain` ones.
    fn plan(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let is = |p: &EnabledProbe, kind| p.desc.function.starts_with(kind);
        let (own, together): (Vec<EnabledProbe>, Vec<EnabledProbe>) =
            probes.iter().cloned().partition(|p| is(p, "apart") || is(p, "plain"));
        let mut groups: Vec<Vec<EnabledProbe>> = own.into_iter().map(|p| vec![p]).collect();
        groups.extend((!together.is_empty()).then_some(together));
        Ok(groups.iter().map(|probes| self.unit(self.2, probes)).collect())
    }

    fn before(&self, probes: &[EnabledProbe], _env: &Env<'_>) -> Option<Unit> {
        self.0.function.map(|_| self.unit("later_pages", probes))
    }
}

/// Types of arguments. Those from [`SAME`] on are other names of earlier ones.
pub(crate) const KINDS: &[&str] = &[
    "int",
    "unsigned int",
    "short",
    "unsigned short",
    "signed char",
    "unsigned char",
    "long",
    "void *",
    "struct task_struct *",
    "int32_t",
    "pid_t",
    "uint8_t",
    "unsigned long",
];
/// The number of the first one that is another name.
pub(crate) const SAME: usize = 9;

impl Later {
    fn unit(&self, name: &str, probes: &[EnabledProbe]) -> Unit {
        let names = probes.iter().map(|p| p.desc.clone()).collect();
        let cookies = !probes.iter().any(|p| p.desc.function.starts_with("plain"));
        let (context, method): (Arc<dyn Context>, Arc<dyn Method>) = match self.0.function {
            None => (Arc::new(Arguments { cookies }), Arc::new(Sites { names, cookies })),
            Some(at) => (Arc::new(Registers), Arc::new(Calls { count: probes.len() as u32, at })),
        };
        Unit {
            name: name.into(),
            role: Role::Probe,
            probes: (0..).zip(probes.iter().cloned()).collect(),
            space: probes.len() as u32,
            context,
            method,
            interrupts: false,
        }
    }
}

/// The arguments of a function.
struct Registers;

impl Context for Registers {
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        Index::V(b.call(Helper::GET_ATTACH_COOKIE, &[ctx]))
    }

    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        match b.machine().args.get(usize::from(n)) {
            Some(at) => b.load(Size::B8, ctx, *at),
            None => b.imm(0),
        }
    }

    fn shape(&self) -> Option<String> {
        Some("a function of a test".into())
    }
}

/// So many probes at [`touch`], each by a uprobe of its own.
#[derive(Debug)]
struct Calls {
    count: u32,
    at: u64,
}

impl Method for Calls {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::Kprobe, AttachType::None)
    }

    fn has_cookies(&self) -> bool {
        true
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        for index in 0..self.count {
            let event = PerfEvent::uprobe(OsStr::new("/proc/self/exe"), self.at, 0, false, None)?;
            to.loaded.links.push(Link::perf_event(&to.loaded.prog, event, (to.cookie)(index))?.into());
        }
        Ok(Rejected::new())
    }

    fn descriptors(&self) -> usize {
        2 * self.count as usize
    }

    fn newest_runs_first(&self) -> bool {
        true
    }
}

struct Arguments {
    cookies: bool,
}

impl Context for Arguments {
    /// In a program that serves only the probes that it was compiled for.
    fn index(&self, b: &mut Builder, ctx: V, _: Label) -> Index {
        Index::V(if self.cookies { b.call(Helper::GET_ATTACH_COOKIE, &[ctx]) } else { b.imm(0) })
    }

    fn arg(&self, b: &mut Builder, ctx: V, _: Index, n: u8) -> V {
        if n == 0 { b.load(Size::B8, ctx, 0) } else { b.imm(0) }
    }

    fn shape(&self) -> Option<String> {
        self.cookies.then(|| "a test".into())
    }
}

/// Each probe is a link of its own to the tracepoint.
#[derive(Debug)]
struct Sites {
    names: Vec<Arc<ProbeDesc>>,
    cookies: bool,
}

impl Method for Sites {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::RawTracepoint, AttachType::None)
    }

    fn has_cookies(&self) -> bool {
        self.cookies
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let mut rejected = Rejected::new();
        for (index, desc) in (0..).zip(&self.names) {
            if desc.function.starts_with("reject") {
                rejected.push((desc.clone(), SysError::new("attach", libc::EINVAL)));
                continue;
            }
            if desc.function.contains("fail") {
                return Err(SysError::new("attach to a place that fails", libc::EIO).into());
            }
            let start = cpu_time();
            let cookie = if self.cookies { (to.cookie)(index) } else { 0 };
            let link = Link::raw_tracepoint(&to.loaded.prog, TRACEPOINT, cookie)?;
            ATTACHING.fetch_add((cpu_time() - start).as_nanos() as u64, Ordering::Relaxed);
            to.loaded.links.push(link.into());
        }
        Ok(rejected)
    }

    fn descriptors(&self) -> usize {
        self.names.len()
    }

    fn links_count_missed(&self) -> bool {
        false
    }
}
