//! `pid`: functions of processes, and their instructions.
//!
//! ```text
//!  source   what a description matches: a process, the files that it runs, their functions, the places of their probes
//!  here     places ──► units: instructions, instructions that leave a function, returns of functions
//!  context  how a firing finds its probe and its arguments
//!  object   the files that a process runs
//! ```
//!
//! The decision that shapes it: what the kernel would refuse is known before anything is attached, because the reader decodes the code.
//! So one link attaches to all places of a file, and none is tried.
//!
//! A **return** is one of two things ([`Returns`]). A uretprobe puts an address of its own in the place of the return address on the
//! stack, which ends a process whose code unwinds through that frame (a C++ exception, a panic of Rust, the stacks of Go). So it is used only
//! where nothing in the process unwinds. Elsewhere the probes are at the instructions that leave the function, which the kernel
//! single-steps.

mod context;
mod object;
mod source;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::features::Facility;
use probes::{Attributes, Class, Family, ProbeDesc, ProviderFacts, ProviderStability, Stability};
use text::returns::Departure;
use text::{EntryProbe, ReturnSite, Step};

use crate::manual::Manual;
use crate::method::{HeldFile, HeldProcess, UprobeFile, UprobeSite, Uprobes};
use crate::provider::{EnabledProbe, Env, Provider};
use crate::source::ProbeSource;
use crate::unit::{Role, Unit};
use context::{Place, When, place_bits};
use source::{At, Known, PidProbes, Target};

/// How returns are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// By uretprobe, unless something in the process may unwind through frames.
    #[default]
    Auto,
    /// By uretprobe.
    Uretprobe,
    /// At the instructions that leave the function.
    Instructions,
}

impl Returns {
    /// The value of the option.
    pub fn named(name: &str) -> Returns {
        match name {
            "uretprobe" => Returns::Uretprobe,
            "ret" => Returns::Instructions,
            _ => Returns::Auto,
        }
    }
}

/// The provider.
pub(crate) struct Pid {
    probes: PidProbes,
}

impl Pid {
    pub(crate) fn new() -> Pid {
        Pid { probes: PidProbes::new(family()) }
    }
}

fn family() -> Family {
    Family::of_processes("pid")
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "pid*",
    help: "functions of one process, whose id is part of the name (pid$target for a -c or -p process), and their instructions",
    probes: &[
        (
            "pidN:FILE:FUNCTION:entry",
            "fires when the process enters the function; FILE is a.out for the program, libc for libc.so.6",
        ),
        ("pidN:FILE:FUNCTION:return", "fires when the function returns, also by a jump to another function"),
        (
            "pidN:FILE:FUNCTION:OFFSET",
            "fires before the instruction at this offset, in hexadecimal, is executed",
        ),
        ("pidN:FILE:-:ADDRESS", "fires before the instruction at this address of the file is executed"),
    ],
    args: &[
        ("arg0 ... argN", "in entry and at offsets: the arguments of the function, as integers and pointers"),
        (
            "arg0",
            "in return: the offset of the instruction that returned; 0 where the means does not know it",
        ),
        ("arg1", "in return: the value that the function returned"),
    ],
};

/// A place of an enabled probe.
struct Chosen<'a> {
    target: &'a Target,
    probe: EntryProbe,
    /// What the program has to know of it.
    place: u32,
}

/// Places of one kind.
#[derive(Default)]
struct Side {
    probes: Vec<(u32, EnabledProbe)>,
    /// By process and path of the file.
    files: BTreeMap<(u32, OsString), UprobeFile>,
    single: usize,
    sites: usize,
    moved: bool,
    conditional: bool,
}

impl Side {
    fn of(&mut self, process: &Arc<HeldProcess>, file: &Arc<HeldFile>) -> &mut UprobeFile {
        let known = self.files.entry((process.pid(), file.path().into()));
        known.or_insert_with(|| UprobeFile {
            file: file.clone(),
            process: process.clone(),
            sites: Vec::new(),
        })
    }

    fn add(&mut self, probe: &EnabledProbe, chosen: &[Chosen<'_>]) {
        if chosen.is_empty() {
            return;
        }
        let index = self.probes.len() as u32;
        self.probes.push((index, probe.clone()));
        for Chosen { target, probe: at, place } in chosen {
            let offset = target.offset.saturating_add(at.offset);
            let site = UprobeSite { index, offset, place: *place, probe: probe.desc.clone() };
            self.of(&target.process, &target.file).sites.push(site);
            self.sites += 1;
            self.single += usize::from(at.step == Step::Single);
        }
    }

    fn unit(self, name: &str, when: When, multi: bool, mut notes: Vec<String>) -> Option<Unit> {
        if self.probes.is_empty() {
            return None;
        }
        notes.insert(0, format!("{} of {} places are single-stepped", self.single, self.sites));
        let at_return = when == When::Returned;
        let space = self.probes.len() as u32;
        Some(Unit {
            name: name.into(),
            role: Role::Probe,
            probes: self.probes,
            space,
            context: Arc::new(Place { when, moved: self.moved }),
            method: Arc::new(Uprobes { files: self.files.into_values().collect(), at_return, multi, notes }),
            interrupts: false,
        })
    }
}

/// The class of [`source::uses`] that clauses need.
fn class(probe: &EnabledProbe) -> usize {
    const IN_REGISTERS: u64 = 0x3f;
    match () {
        () if probe.user_registers => 3,
        () if probe.user_stack || probe.args & !IN_REGISTERS != 0 => 2,
        () if probe.args != 0 => 1,
        () => 0,
    }
}

/// True if a function finds its return address on the stack when it is entered, and nobody else keeps it: a uretprobe
/// writes there, and what is returned to by another way is not its return. A function without a `ret` may be entered
/// otherwise than by a call (`_dl_runtime_resolve`).
fn returns_by_the_stack(probe: &EnabledProbe, sites: &[ReturnSite]) -> bool {
    const SAVES: [&str; 10] = [
        "getcontext",
        "swapcontext",
        "setjmp",
        "_setjmp",
        "sigsetjmp",
        "__sigsetjmp",
        "__setjmp",
        "vfork",
        "__vfork",
        "__libc_vfork",
    ];
    let saves = SAVES.contains(&&*probe.desc.function);
    !saves && sites.iter().any(|site| site.departure == Departure::Return)
}

/// The places of all probes, by kind.
#[derive(Default)]
struct Sides {
    instructions: Side,
    entries: Side,
    leaving: Side,
    returned: Side,
    refused: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    means: BTreeMap<u32, String>,
}

impl Sides {
    fn of(probes: &[EnabledProbe], known: &Known, returns: Returns) -> Sides {
        let mut sides = Sides::default();
        for probe in probes {
            let targets = known.targets.get(&probe.desc).map_or(&[][..], Vec::as_slice);
            let (mut instructions, mut entries, mut leaving, mut returned) = Default::default();
            let side: [&mut Vec<Chosen<'_>>; 4] =
                [&mut instructions, &mut entries, &mut leaving, &mut returned];
            let [instructions, entries, leaving, returned] = side;
            for target in targets {
                match &target.at {
                    At::Offset(at) => instructions.push(Chosen { target, probe: *at, place: 0 }),
                    At::Entry(places) => match &places[class(probe)] {
                        Ok(at) => {
                            sides.entries.moved |= at.offset != 0;
                            entries.push(Chosen { target, probe: *at, place: place_bits(at.offset, None) });
                        }
                        Err(why) => drop(sides.refused.insert(probe.desc.clone(), why.clone())),
                    },
                    At::Return { entry, sites } => {
                        let unwinds = known.unwinds.get(&target.process.pid()).and_then(Option::as_deref);
                        let wanted = match (returns, unwinds) {
                            (Returns::Uretprobe, _) | (Returns::Auto, None) => "uretprobe".into(),
                            (Returns::Auto, Some(why)) => format!("the instructions that return: {why}"),
                            (Returns::Instructions, _) => "the instructions that return".into(),
                        };
                        let by_uretprobe = wanted == "uretprobe" && returns_by_the_stack(probe, sites);
                        sides.means.insert(target.process.pid(), wanted);
                        match entry {
                            Ok(at) if by_uretprobe => returned.push(Chosen { target, probe: *at, place: 0 }),
                            _ => {
                                for site in sites {
                                    let condition = match site.departure {
                                        Departure::Branch(condition) => Some(condition),
                                        Departure::Return | Departure::Jump => None,
                                    };
                                    sides.leaving.conditional |= condition.is_some();
                                    leaving.push(Chosen {
                                        target,
                                        probe: EntryProbe { offset: site.offset, step: site.step },
                                        place: place_bits(site.offset, condition),
                                    });
                                }
                            }
                        }
                    }
                }
            }
            sides.instructions.add(probe, instructions);
            sides.entries.add(probe, entries);
            sides.leaving.add(probe, leaving);
            sides.returned.add(probe, returned);
        }
        sides
    }
}

/// What is reported of functions without probes.
fn left_out(all: &BTreeMap<Arc<ProbeDesc>, Arc<str>>) -> Vec<String> {
    const NAMED: usize = 5;
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (desc, why) in all {
        let name = match desc.function.is_empty() {
            true => desc.module.to_string(),
            false => format!("{}`{}:{}", desc.module, desc.function, desc.name),
        };
        by_reason.entry(why).or_default().push(name);
    }
    let line = |(why, names): (&str, Vec<String>)| {
        let more = if names.len() > NAMED { ", ..." } else { "" };
        let named: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
        format!("left out: {} ({}{more}): {why}", names.len(), named.join(", "))
    };
    by_reason.into_iter().map(line).collect()
}

impl Provider for Pid {
    fn facts(&self) -> ProviderFacts {
        let a = |name, data, class| Attributes { name, data, class };
        let evolving = a(Stability::Evolving, Stability::Evolving, Class::ISA);
        let private = a(Stability::Private, Stability::Private, Class::Unknown);
        ProviderFacts {
            family: family(),
            has_errno: false,
            stability: ProviderStability {
                provider: evolving,
                module: private,
                function: private,
                name: evolving,
                args: private,
            },
        }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let multi = env.features.has(Facility::UprobeMulti);
        if !multi && !env.features.has(Facility::UprobePerf) {
            return Err("this kernel lets no program attach to places in processes".into());
        }
        let (sides, mut notes) = self.probes.with_known(|known| {
            let sides = Sides::of(probes, known, env.returns);
            let mut refused = std::mem::take(&mut known.left_out);
            refused.extend(sides.refused.clone());
            (sides, left_out(&refused))
        });
        notes.extend(
            sides.means.iter().map(|(pid, means)| format!("returns in process {pid} are probed by {means}")),
        );
        let mut notes = Some(notes);
        let mut take = |any: bool| if any { notes.take().unwrap_or_default() } else { Vec::new() };
        // Of several programs at one place the kernel runs the newest first, and a function is entered before it returns.
        let leaving = When::Leaving { conditional: sides.leaving.conditional };
        let all = [
            (sides.returned, "pid_return", When::Returned),
            (sides.leaving, "pid_ret", leaving),
            (sides.instructions, "pid_offset", When::Instruction),
            (sides.entries, "pid_entry", When::Entry),
        ];
        let units = all.map(|(side, name, when)| {
            let notes = take(!side.probes.is_empty());
            side.unit(name, when, multi, notes)
        });
        Ok(units.into_iter().flatten().collect())
    }

    fn before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Option<Unit> {
        if !env.features.has(Facility::UprobeMulti) {
            return None;
        }
        let Sides { mut entries, instructions, .. } =
            self.probes.with_known(|known| Sides::of(probes, known, env.returns));
        // The programs at entries and at instructions find their arguments in the same way.
        let base = entries.probes.len() as u32;
        for UprobeFile { file, process, sites } in instructions.files.into_values() {
            let sites = sites.into_iter().map(|s| UprobeSite { index: base + s.index, ..s });
            entries.of(&process, &file).sites.extend(sites);
        }
        entries.probes.extend(instructions.probes.into_iter().map(|(index, p)| (base + index, p)));
        entries.unit("pid_pages", When::Entry, true, Vec::new())
    }
}

#[cfg(test)]
mod tests;
