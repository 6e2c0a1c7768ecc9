//! The set of processes, as the session makes and fills it: see [`plane::processes`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bpf_codegen::plan::Plan;
use bpf_codegen::target::{ProcessOffsets, Target};
use bpf_runtime::program::{Compiled, enter, inherit, leave};
use bpf_sys::{Map, SysError, Update, errno};
use plane::processes::{Member, SETS, SIZE, TICK};
use providers::method::{Members, TpBtf};
use providers::{Follow, Method};
use types::btf::KernelBtf;

use crate::assemble::Assembly;
use crate::attach::{AttachedProgram, Purpose};
use crate::error::Error;
use crate::options::Options;
use crate::process_ids::{InKernel, Numbers};

/// Adds the members of sets. The programs that follow forks and exits are attached already. A process that has ended is left out.
pub(crate) fn add<'a>(map: &Map, sets: impl Iterator<Item = &'a Members>) -> Result<(), Error> {
    let mut numbers = (!proc::in_initial_namespace()).then(Numbers::default);
    for Members { set, processes, heirs } in sets {
        let bit = 1u64.checked_shl(*set).unwrap_or(0);
        for process in processes {
            let of_kernel = match &mut numbers {
                None => Some((process.pid(), process.start() * TICK)),
                Some(numbers) => {
                    let found = numbers.of(process.pid()).map_err(Error::Setting)?;
                    found.map(|InKernel { pid, start, .. }| (pid, start))
                }
            };
            let Some((pid, start)) = of_kernel else { continue };
            let member = Member { start: start / TICK, sets: bit, heirs: if *heirs { bit } else { 0 } };
            let (key, mut known) = (pid.to_ne_bytes(), [0; SIZE as usize]);
            let other = map.lookup(&key, &mut known)?.then_some(&known[..]);
            let added = map.update(&key, &member.bytes(other), Update::Any);
            added.map_err(|e| match e.errno {
                errno::E2BIG => SysError::new("put more processes into the set of processes", e.errno),
                _ => e,
            })?;
            // It may have ended before the program at the exit was attached.
            if !process.is_current() {
                map.delete(&key)?;
            }
        }
    }
    Ok(())
}

/// The sets in which a process is, as bits.
pub(crate) fn sets_of(map: &Map, process: u32, numbers: &mut Numbers) -> u64 {
    let mut value = [0; SIZE as usize];
    let process = match proc::in_initial_namespace() {
        true => process,
        // A number that cannot be found is not in a set that could not be filled either.
        false => numbers.of(process).ok().flatten().map_or(0, |of_kernel| of_kernel.pid),
    };
    let found = map.lookup(&process.to_ne_bytes(), &mut value).is_ok_and(|found| found);
    let sets = value.get(SETS as usize..SETS as usize + 8).and_then(|bytes| bytes.try_into().ok());
    sets.filter(|_| found).map_or(0, u64::from_ne_bytes)
}

/// For how many processes there is to be space; 0 without a set.
pub(crate) fn size(assembly: &Assembly, options: &Options) -> u32 {
    // For the processes of programs that are enabled later.
    const LATER: u64 = 1024;
    let sets = &assembly.sets;
    let count: usize = sets.iter().map(|set| set.processes.len()).sum();
    let more = match sets.is_empty() {
        _ if sets.iter().any(|set| set.heirs) => options.followmax,
        true => 0,
        false => LATER,
    };
    u32::try_from((count as u64).saturating_add(more)).unwrap_or(u32::MAX)
}

/// A program that keeps the set, how it is attached, and what it is for.
type Service = (Compiled, Arc<dyn Method>, Purpose);

/// Which of the programs that keep the set are to be loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs {
    /// The one that takes processes out that end.
    pub(crate) leaves: bool,
    /// Those that put in what they fork or what that executes.
    pub(crate) inherits: bool,
    follow: Follow,
}

impl Programs {
    /// Those that an assembly needs and a session does not have yet.
    pub(crate) fn missing(
        assembly: &Assembly,
        (leaves, inherits): (bool, bool),
        options: &Options,
    ) -> Programs {
        Programs {
            leaves: !leaves && !assembly.sets.is_empty(),
            inherits: !inherits && assembly.sets.iter().any(|set| set.heirs),
            follow: options.follow,
        }
    }

    /// The programs, and how they are attached.
    pub(crate) fn compile(
        self,
        target: &Target,
        plan: &Plan,
        kernel: &KernelBtf,
    ) -> Result<Vec<Service>, Error> {
        let mut all: Vec<Service> = Vec::new();
        let mut add = |name: &str, compile: &dyn Fn(u32, ProcessOffsets) -> Result<Compiled, _>, purpose| {
            let found = crate::facts::tracepoint(kernel, name).zip(target.processes);
            let (btf, at) =
                found.ok_or_else(|| Error::Setting(format!("the kernel has no typed tracepoint {name}")))?;
            all.push((compile(btf, at)?, Arc::new(TpBtf { btf }), purpose));
            Ok::<(), Error>(())
        };
        if self.leaves {
            // One that is missed leaves an element that is no process's, and is another's later.
            add("sched_process_exit", &|btf, at| leave(btf, at), Purpose::Set)?;
        }
        if self.inherits {
            let now = self.follow.forks();
            for plan in [None, Some(plan)] {
                add("sched_process_fork", &|btf, at| inherit(btf, plan, at, now), Purpose::Twice)?;
                if !now {
                    add("sched_process_exec", &|btf, at| enter(btf, at), Purpose::Twice)?;
                }
            }
        }
        Ok(all)
    }
}

/// An upper bound of the runs that all programs of one name, which do the same, have missed: of the smallest of their counts.
pub(crate) fn missed_by_all<'a>(attached: impl Iterator<Item = &'a AttachedProgram>) -> u64 {
    let mut least: BTreeMap<&str, u64> = BTreeMap::new();
    for program in attached.filter(|a| a.purpose == Purpose::Twice) {
        // A counter that cannot be read says nothing.
        let missed = program.missed().unwrap_or_default();
        let least = least.entry(&program.name).or_insert(missed);
        *least = missed.min(*least);
    }
    least.into_values().sum()
}
