//! `pid`: functions of processes, and their instructions.
//!
//! ```text
//!  source      what a description matches: processes, the files that they run, their functions, the places of their probes
//!  sides       places ──► links: of a process, or of a file with a set of processes
//!  here        units: instructions, instructions that leave a function, returns of functions
//!  context     how a firing finds its probe and its arguments
//!  types       the types of arguments, and of names in those files
//!  known       what was matched: places, processes
//!  follow      what processes map later, and what they execute
//!  deep        returns that the kernel leaves out, because too many calls are nested
//!  first       processes whose first thread ends while they are traced
//! ```
//!
//! The decision that shapes it: what the kernel would refuse is known before anything is attached,
//! because the reader decodes the code. So one link attaches to all places of a file, and none is
//! tried.
//!
//! A **return** is one of two things ([`Returns`]). A uretprobe puts an address of its own in the
//! place of the return address on the stack, which ends a process whose code unwinds through that
//! frame (a C++ exception, a panic of Rust, the stacks of Go). So it is used only where nothing in
//! the process unwinds. Elsewhere the probes are at the instructions that leave the function, which
//! the kernel single-steps.

mod context;
mod deep;
mod first;
mod follow;
mod known;
mod matching;
mod sides;
mod source;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use bpf_sys::NestedReturns;
use bpf_sys::features::Facility;
use plane::processes::SETS_MAX;
use probes::{
    Args, Attributes, Class, Family, Pattern, ProbeDesc, ProviderFacts, ProviderStability, Stability,
    UserObject,
};
use proc::Selection;
use symbols::Readers;

use crate::contract::method::{Detached, Members};
use crate::contract::{
    Change, EnabledProbe, Env, Manual, ProbeSource, ProbeStore, ProbesChanged, ProcessProvider, Provider,
    Returns, Unit,
};
use context::When;
use follow::FileChange;
use known::{Abilities, Matches};
use sides::{Group, How, Side, Sides, dear};
use source::PidProbes;
use types::UserTypes;

/// The provider.
pub(crate) struct Pid {
    probes: PidProbes,
    types: UserTypes,
}

impl Pid {
    pub(crate) fn new() -> Pid {
        Pid { probes: PidProbes::new(family()), types: UserTypes::default() }
    }
}

impl Pid {
    /// Adds and removes the probes of a change in the store.
    fn change(&self, store: &dyn ProbeStore, pid: u32, change: FileChange) -> Change {
        let FileChange { set, file, name, came, went } = change;
        store.remove(&went);
        let added = store.add(came.iter().map(|(desc, _)| (**desc).clone()).collect());
        let places = came.into_iter().map(|(_, targets)| targets);
        self.probes.came(
            (pid, set.as_ref()),
            &file,
            added.iter().map(|probe| probe.id).zip(places).collect(),
        );
        let event = if added.is_empty() { "are removed" } else { "came" };
        let subject = format!("functions of {name} in process {pid}");
        Change { subject, event, probes: ProbesChanged { added, removed: went } }
    }
}

fn family() -> Family {
    Family::of_processes("pid")
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "pid*",
    help: "functions of processes, and their instructions; the id of the process is part of the name (pid$target for a -c or -p \
           process), and pid* means those that -x processes selects",
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
        (
            "args[0] ... args[N]",
            "in entry: the arguments with their types, if the file has debug information",
        ),
        ("args[1]", "in return: the value with its type, if the file has debug information"),
    ],
};

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

    fn attached_by(&self) -> &'static [Facility] {
        &[Facility::UprobeMulti, Facility::UprobePerf]
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn processes(&self) -> Option<&dyn ProcessProvider> {
        Some(self)
    }

    fn args(&self, probe: &ProbeDesc) -> Args {
        if let Some(pid) = self.probes.with_known(|known| known.runners.get(probe).copied()) {
            return self.types.args(pid, probe);
        }
        match family().pid(&probe.provider) {
            Some(pid) => self.types.args(pid, probe),
            None => match &self.probes.with_known(|known| known.runners(probe))[..] {
                [] => Err("no process that has this probe is known".into()),
                [one] => self.types.args(*one, probe),
                files => Err(format!(
                    "{} files have this function, each with types of its own: name a process, or select those of one file",
                    files.len()
                )),
            },
        }
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let multi = env.features.has(Facility::UprobeMulti);
        if !multi && !env.features.has(Facility::UprobePerf) {
            let why = env.features.why_not(Facility::UprobePerf).unwrap_or_default();
            return Err(format!("no program can be attached to places in processes: {why}"));
        }
        if env.follow.any() && !how(env).has_sets() {
            return Err("option follow needs the kernel's types (BTF) and typed tracepoints".into());
        }
        self.probes.with_known(|known| {
            known.can = Abilities { multi, sets: how(env).has_sets() };
            let mut refused = std::mem::take(&mut known.left_out);
            let (mut means, mut unknown) = (BTreeMap::new(), BTreeMap::new());
            let (mut groups, mut set_places) = (Vec::new(), 0);
            for (group, probes) in Group::all(probes, known, how(env)) {
                if group.set.as_ref().is_some_and(|(set, _)| *set >= SETS_MAX) {
                    return Err(format!("more than {SETS_MAX} descriptions of processes at a time"));
                }
                if group.set.is_none() {
                    known.attaches_to_processes(probes.iter().map(|probe| (probe.id, probe.desc.clone())));
                }
                let mut sides = Sides::of(&group, &probes, known, env.returns);
                if !sides.returned.probes.is_empty() && known.log.is_none() {
                    known.log = NestedReturns::from_now();
                }
                known.returned.extend(sides.by_address.iter().map(|(pid, ..)| *pid));
                let by_address = sides.by_address.drain(..).filter(|_| env.returns == Returns::Auto);
                for (pid, id, desc) in by_address {
                    known.by_address.entry(pid).or_default().insert(id, desc);
                }
                refused.append(&mut sides.refused);
                unknown.append(&mut sides.unknown);
                known.warnings.extend(left_out(&sides.unprobed));
                means.append(&mut sides.means);
                let members = group.set.as_ref().map(|set| members(set, known, env).processes.len());
                set_places += if members.is_some() { sides.places() } else { 0 };
                groups.push((members, group, sides));
            }
            known.warnings.extend(dear(set_places));
            // What is asked of them cannot be answered at all.
            if let Some((desc, why)) = unknown.iter().next().filter(|_| unknown.len() == probes.len()) {
                return Err(format!("{}`{} has no such arguments: {why}", desc.module, desc.function));
            }
            known.warnings.extend(left_out(&unknown));
            let mut notes = left_out(&refused);
            notes.extend(means.iter().map(|(pid, means)| match pid {
                Some(pid) => format!("returns in process {pid} are probed by {means}"),
                None => format!("returns in a set of processes are probed by {means}"),
            }));
            let mut notes = Some(notes);
            let mut units = Vec::new();
            for (members, group, sides) in groups {
                // Of several programs at one place the kernel runs the newest first, and a function
                // is entered before it returns.
                let all = [
                    (sides.returned, "pid_return", When::Returned),
                    (sides.leaving, "pid_ret", When::Leaving),
                    (sides.instructions, "pid_offset", When::Instruction),
                    (sides.entries, "pid_entry", When::Entry),
                ];
                for (side, name, when) in all {
                    let any = !side.probes.is_empty();
                    let notes = if any { notes.take().unwrap_or_default() } else { Vec::new() };
                    units.extend(side.unit(name, when, (&group, members, multi), notes));
                }
            }
            Ok(units)
        })
    }

    /// One program of a kind for all groups, which tests whether the process is in one of the sets,
    /// if all of them have one.
    fn all_before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        if !env.features.has(Facility::UprobeMulti) {
            return Vec::new();
        }
        self.probes.with_known(|known| {
            let (mut entered, mut leaving, mut returned) =
                (Side::default(), Side::default(), Side::default());
            let mut union = None::<Group>;
            for (group, probes) in Group::all(probes, known, how(env)) {
                let sides = Sides::of(&group, &probes, known, env.returns);
                // The programs at entries and at instructions find their arguments in the same way.
                entered.join(sides.entries);
                entered.join(sides.instructions);
                leaving.join(sides.leaving);
                returned.join(sides.returned);
                union = Some(union.map_or(group.clone(), |union| union.or(group)));
            }
            let Some(union) = union else { return Vec::new() };
            let all = [
                (entered, "pid_pages", When::Entry),
                (leaving, "pid_ret_pages", When::Leaving),
                (returned, "pid_return_pages", When::Returned),
            ];
            let unit =
                |(side, name, when): (Side, _, _)| side.unit(name, when, (&union, None, true), Vec::new());
            all.into_iter().filter_map(unit).collect()
        })
    }
}

impl ProcessProvider for Pid {
    fn pids(&self) -> Vec<u32> {
        self.probes.processes()
    }

    fn object(&self, provider: &str, object: &str) -> Option<Result<Arc<dyn UserObject>, String>> {
        let later = self.probes.with_known(|known| known.later_runner(provider, object));
        match family().pid(provider) {
            // A child, or a program that was executed since, may run it alone.
            Some(pid) => Some(self.types.object(pid, object).or_else(|why| match later {
                Some(later) => self.types.object(later, object),
                None => Err(why),
            })),
            None if family().is_of_several(provider) => {
                let mut pids = self.probes.with_known(|known| known.probed(provider));
                pids.extend(later);
                Some(self.types.object_of_several(&pids, object))
            }
            None => None,
        }
    }

    fn follows_loading(&self, pid: u32) -> bool {
        self.probes.follows_loading(pid)
    }

    fn process_changed(
        &self,
        store: &dyn ProbeStore,
        (pid, sets): (u32, u64),
        patterns: &[Pattern],
    ) -> Vec<Change> {
        let changes = self.probes.changed((pid, sets), patterns);
        let came = || changes.iter().flat_map(|change| &change.came).map(|(desc, _)| desc);
        self.types.forget(came());
        self.probes.with_known(|known| known.runners.extend(came().map(|desc| (desc.clone(), pid))));
        changes.into_iter().map(|change| self.change(store, pid, change)).collect()
    }

    fn settle(&self, store: &dyn ProbeStore) -> Vec<Change> {
        let changes = self.probes.settle();
        changes.into_iter().map(|(pid, change)| self.change(store, pid, change)).collect()
    }

    fn members(&self, env: &Env<'_>) -> Vec<Members> {
        self.probes.with_known(|known| {
            let names: Vec<Arc<str>> = known.meant.keys().cloned().collect();
            let groups = names.iter().filter_map(|name| Group::of(name, known, how(env)).set);
            let sets: Vec<(u32, Arc<str>)> = groups.collect();
            sets.iter().map(|set| members(set, known, env)).collect()
        })
    }

    fn take_unwinding(&self) -> Vec<(u32, String)> {
        self.probes.with_known(|known| std::mem::take(&mut known.unwinding))
    }

    fn close_unmapped(&self) {
        self.probes.close_unmapped();
    }

    fn take_detached(&self) -> Vec<Detached> {
        self.probes.with_known(|known| std::mem::take(&mut known.detached))
    }

    fn take_warnings(&self) -> Vec<String> {
        self.probes.with_known(|known| std::mem::take(&mut known.warnings))
    }

    fn missed(&self) -> Vec<String> {
        self.probes.with_known(Matches::nested)
    }

    fn select_processes(&self, selection: &Selection) {
        self.probes.select(selection);
    }

    fn use_readers(&self, readers: &Readers) {
        self.probes.use_readers(readers);
        self.types.use_readers(readers);
    }
}

/// How places are attached to in an environment.
fn how<'a>(env: &Env<'a>) -> How<'a> {
    How { features: env.features, follows: env.follow.any() }
}

/// The processes of a set.
fn members((set, name): &(u32, Arc<str>), known: &Matches, env: &Env<'_>) -> Members {
    let processes = known.meant.get(name).map(|meant| meant.processes.clone()).unwrap_or_default();
    Members { set: *set, processes, heirs: env.follow.any() }
}

#[cfg(test)]
mod tests;
