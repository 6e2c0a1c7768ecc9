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

use crate::error::Error;
use crate::load::assemble::Assembly;
use crate::load::attach::{AttachedProgram, Purpose};
use crate::load::process_ids::{InKernel, Numbers};
use crate::options::Options;

/// Adds the members of sets. The programs that follow forks and exits are attached already. A
/// process that has ended is left out.
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

/// A program that serves all clauses, how it is attached, and what it is for.
pub(crate) type ServiceProgram = (Compiled, Arc<dyn Method>, Purpose);

/// A program at a typed tracepoint that keeps the set.
fn keeper(
    name: &str,
    target: &Target,
    kernel: &KernelBtf,
    compile: impl Fn(u32, ProcessOffsets) -> bpf_codegen::Result<Compiled>,
    purpose: Purpose,
) -> Result<ServiceProgram, Error> {
    let found = crate::load::facts::tracepoint(kernel, name).zip(target.processes);
    let (btf, at) =
        found.ok_or_else(|| Error::Setting(format!("the kernel has no typed tracepoint {name}")))?;
    Ok((compile(btf, at)?, Arc::new(TpBtf { btf }), purpose))
}

/// The program that takes processes out that end.
pub(crate) fn leaving(target: &Target, kernel: &KernelBtf) -> Result<Vec<ServiceProgram>, Error> {
    // One that is missed leaves an element that is no process's, and is another's later.
    Ok(vec![keeper("sched_process_exit", target, kernel, leave, Purpose::Set)?])
}

/// The programs that put in what processes fork, at once or when it executes a program: each twice,
/// as what one of them misses the other does; one counts those for which there is no space.
pub(crate) fn inheriting(
    follow: Follow,
    target: &Target,
    plan: &Plan,
    kernel: &KernelBtf,
) -> Result<Vec<ServiceProgram>, Error> {
    let (mut all, now) = (Vec::new(), follow.forks());
    for plan in [Some(plan), None] {
        if !now {
            all.push(keeper("sched_process_exec", target, kernel, enter, Purpose::Twice)?);
        }
        let forked = |btf, at| inherit(btf, plan, at, now);
        all.push(keeper("sched_process_fork", target, kernel, forked, Purpose::Twice)?);
    }
    Ok(all)
}

/// An upper bound of the runs that all programs of one name, which do the same, have missed: of the
/// smallest of their counts.
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
