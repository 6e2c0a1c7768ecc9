//! `syscall`: entry and return of every system call of the running kernel.
//!
//! There are two methods. The enabled probes and the kernel's facilities decide:
//! - *the tracepoints* `sys_enter` and `sys_exit`: one program each for any number of probes. They
//!   slow down every call of the system (about 80 ns, the kernel's slow path).
//! - *the functions* `__x64_sys_*` by `kprobe_multi`: no other call is slowed down, and no firing
//!   is lost under preemption. Only for at most [`CALLS_BY_FUNCTION`] calls, each of which has the
//!   same firings by function ([`names::functions`]).
//!
//! With both, a failed call has -1 in `arg0` and `arg1` and its error in `errno`. The kernel's
//! restart codes are EINTR.

mod args;
mod context;
mod names;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use bpf_sys::features::Facility;
use probes::{
    Args, Attributes, Calls, Class, Family, Pattern, ProbeDesc, ProviderFacts, ProviderStability, Stability,
    glob_matches,
};
use system::System;
use types::btf::{Btf, BtfKind};

use crate::contract::method::{FunctionMethod, FunctionSites, Method, RawTp, Site, TpBtf};
use crate::contract::{EnabledProbe, Env, Manual, ProbeList, ProbeSource, Provider, Role, Unit};
use crate::lock;
use context::{ByFunction, ByTracepoint, CompatTest, Regs};

/// How many calls are attached by function at most.
const CALLS_BY_FUNCTION: usize = 8;

/// The number of ids: more than twice the calls of both tables.
const IDS: usize = 1200;

/// The module of all its probes, and their names.
const MODULE: &str = "vmlinux";
const NAMES: [&str; 2] = ["entry", "return"];

/// The provider.
pub(crate) struct Syscall {
    functions: Arc<CallFunctions>,
    probes: ProbeList,
    /// Argument types at the entry of calls, once they were asked for.
    args: Mutex<HashMap<Arc<str>, Args>>,
}

impl Syscall {
    /// The provider, with the types of a machine's kernel.
    pub(crate) fn new(system: &System) -> Syscall {
        let functions = Arc::new(CallFunctions { system: system.clone(), names: OnceLock::new() });
        let probes = ProbeList::new({
            let functions = functions.clone();
            move || functions.probes()
        });
        let probes = probes.reserve(IDS).if_pattern(may_match);
        Syscall { functions, probes, args: Mutex::default() }
    }
}

/// The functions of the kernel that system calls are.
struct CallFunctions {
    system: System,
    /// Those that may be system calls.
    names: OnceLock<HashSet<String>>,
}

impl CallFunctions {
    fn btf(&self) -> Option<&Btf> {
        self.system.types().vmlinux().ok().map(|b| &**b)
    }

    /// A test of whether the kernel has a function; `None` without BTF. One pass over the types
    /// collects all candidates, because looking up names would first make an index of all names.
    fn has(&self) -> Option<impl Fn(&str) -> bool> {
        let btf = self.btf()?;
        let all = || {
            let own = btf.with_prefix(BtfKind::Func, "__").map(|(name, _)| name);
            own.filter(|n| names::is_function(n)).map(String::from).collect()
        };
        let functions = self.names.get_or_init(all);
        Some(|name: &str| functions.contains(name))
    }

    /// Entry and return of each call.
    fn probes(&self) -> Vec<ProbeDesc> {
        let calls = match self.has() {
            Some(has) => names::calls(Some(&has)),
            None => names::calls(None),
        };
        let probe = |f: &str, n: &str| ProbeDesc::new("syscall", MODULE, f, n);
        calls.iter().flat_map(|c| [probe(c, "entry"), probe(c, "return")]).collect()
    }
}

fn may_match(pattern: &Pattern) -> bool {
    glob_matches(&pattern.module, MODULE) && NAMES.iter().any(|n| glob_matches(&pattern.name, n))
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "syscall",
    help: "system calls of the running kernel; a 32-bit process fires the probe of the call that it makes",
    probes: &[
        ("syscall:vmlinux:CALL:entry", "fires when a process makes the call"),
        ("syscall:vmlinux:CALL:return", "fires when the call returns"),
    ],
    args: &[
        ("arg0 ... arg5", "in entry: the arguments of the call; args[] has them with their types"),
        ("arg0, arg1", "in return: the result; -1 where the call failed"),
        ("errno", "in return: the error; 0 where the call succeeded"),
    ],
};

impl Provider for Syscall {
    fn facts(&self) -> ProviderFacts {
        let a = |name, data, class| Attributes { name, data, class };
        let evolving = a(Stability::Evolving, Stability::Evolving, Class::Common);
        ProviderFacts {
            family: Family::one("syscall"),
            has_errno: true,
            stability: ProviderStability {
                provider: evolving,
                module: a(Stability::Private, Stability::Private, Class::Unknown),
                function: a(Stability::Unstable, Stability::Unstable, Class::ISA),
                name: evolving,
                args: evolving,
            },
        }
    }

    fn calls(&self) -> Calls {
        Calls::System
    }

    fn attached_by(&self) -> &'static [Facility] {
        &[Facility::TpBtf, Facility::RawTp]
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        if &*probe.name == NAMES[1] {
            return args::of_return();
        }
        let (system, mut known) = (&self.functions.system, lock(&self.args));
        known.entry(probe.function.clone()).or_insert_with(|| args::of(&probe.function, system)).clone()
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let mut units = Vec::new();
        let few = self.by_function(probes, env);
        for on_return in [false, true] {
            let side: Vec<&EnabledProbe> =
                probes.iter().filter(|p| (&*p.desc.name == "return") == on_return).collect();
            if side.is_empty() {
                continue;
            }
            units.push(match &few {
                Some(functions) => function_unit(&side, functions, on_return, self.compat_test()),
                None => self.tracepoint_unit(&side, on_return, env)?,
            });
        }
        Ok(units)
    }

    /// At the tracepoint, which fires before the function.
    fn all_before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        let entries: Vec<&EnabledProbe> = probes.iter().filter(|p| &*p.desc.name == "entry").collect();
        if entries.is_empty() || !env.features.has(Facility::SleepableCalls) {
            return Vec::new();
        }
        let unit = self.tracepoint_unit(&entries, false, env).ok();
        let unit = unit.filter(|unit| unit.method.program().btf != 0);
        unit.map(|unit| Unit { name: "syscall_pages".into(), ..unit }).into_iter().collect()
    }
}

/// The functions of each probed call.
type Functions = Vec<(String, Vec<String>)>;

impl Syscall {
    /// The functions of all probed calls, if the calls are few, the kernel has the facilities, and
    /// all have the same firings by function.
    fn by_function(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Functions> {
        let mut calls: Vec<&str> = probes.iter().map(|p| &*p.desc.function).collect();
        calls.sort_unstable();
        calls.dedup();
        // The program at a function reads the caller's registers with a helper, which lockdown may
        // forbid.
        let able = |f| env.features.has(f);
        if calls.len() > CALLS_BY_FUNCTION || !able(Facility::KprobeMulti) || !able(Facility::ProbeRead) {
            return None;
        }
        let has = self.functions.has()?;
        calls.into_iter().map(|c| Some((c.to_string(), names::functions(c, &has)?))).collect()
    }

    fn compat_test(&self) -> CompatTest {
        let status = self.functions.btf().and_then(|b| b.field("task_struct.thread_info.status"));
        status.map_or(CompatTest::Registers, |f| CompatTest::Status(f.offset() as i16))
    }

    fn tracepoint_unit(
        &self,
        side: &[&EnabledProbe],
        on_return: bool,
        env: &Env<'_>,
    ) -> Result<Unit, String> {
        let tracepoint = if on_return { "sys_exit" } else { "sys_enter" };
        let mut indexed = Vec::new();
        let (mut wide, mut narrow) = (false, false);
        for probe in side {
            let (nr, nr32) = names::numbers(&probe.desc.function);
            wide |= nr.is_some();
            narrow |= nr32.is_some();
            let nr32 = nr32.map(|n| n + names::NARROW_BASE);
            indexed.extend(nr.into_iter().chain(nr32).map(|index| (index, (*probe).clone())));
        }
        let typed = self
            .functions
            .btf()
            .filter(|_| env.features.has(Facility::TpBtf))
            .and_then(|b| b.find(&[BtfKind::Typedef], &format!("btf_trace_{tracepoint}")));
        let (method, regs): (Arc<dyn Method>, Regs) = match typed {
            Some(btf) => (Arc::new(TpBtf { btf }), Regs::Direct),
            None if env.features.has(Facility::RawTp) => {
                (Arc::new(RawTp { name: tracepoint }), Regs::Checked)
            }
            None => {
                return Err(
                    "this kernel lets no program attach to the raw tracepoints of system calls".into()
                );
            }
        };
        // A raw tracepoint is chosen if the types are missing or cannot be used.
        let compat = if typed.is_some() { self.compat_test() } else { CompatTest::Registers };
        let context = ByTracepoint { on_return, regs, compat, wide, narrow, only: few_numbers(&indexed) };
        Ok(Unit {
            name: format!("syscall_{}", if on_return { "return" } else { "entry" }),
            role: Role::Probe,
            probes: indexed,
            space: names::SPACE,
            context: Arc::new(context),
            method,
            interrupts: false,
        })
    }
}

/// The call numbers of the indexes, for an early test; empty if they are many.
fn few_numbers(indexed: &[(u32, EnabledProbe)]) -> Vec<u32> {
    let mut numbers: Vec<u32> = indexed.iter().map(|(i, _)| i % names::NARROW_BASE).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() <= 4 { numbers } else { Vec::new() }
}

fn function_unit(side: &[&EnabledProbe], functions: &Functions, on_return: bool, compat: CompatTest) -> Unit {
    let mut sites = Vec::new();
    for (index, probe) in (0..).zip(side) {
        let symbols =
            functions.iter().find(|(call, _)| **call == *probe.desc.function).map(|(_, s)| s.as_slice());
        sites.extend(symbols.unwrap_or_default().iter().map(|s| Site {
            index,
            address: 0,
            btf: 0,
            symbol: Some(s.as_str().into()),
            probe: probe.desc.clone(),
        }));
    }
    Unit {
        name: format!("syscall_{}", if on_return { "return" } else { "entry" }),
        role: Role::Probe,
        probes: side.iter().enumerate().map(|(i, p)| (i as u32, (*p).clone())).collect(),
        space: side.len() as u32,
        context: Arc::new(ByFunction { on_return, compat, single: side.len() == 1 }),
        method: FunctionMethod::Multi.of(FunctionSites { on_return, whole: true, sites }),
        interrupts: false,
    }
}
