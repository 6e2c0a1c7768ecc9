//! The engine that runs programs in the kernel: a [`Machine`], and the plans for it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use check::program::Clause;
use consumer::{Codes, ProbeRow, SlotSink};
use plane::calls::Code;
use plane::control::{Control, DropDelta};
use plane::deadman::Reason;
use plane::newest::Newest;
use plane::read::Batch;
use plane::stacks::Stack;
use probes::{Calls, Catalog, ProbeId};
use proc::watcher::SharedWatcher;
use providers::method::{Detached, SlowRelease};
use providers::{EnabledProbe, Registry, Unit};

use crate::compile::Program;
use crate::engine::growth::{LeftOut, NewProbe, NewSite, UnitArrival};
use crate::engine::machine::Machine;
use crate::engine::speculation::SpeculativeBuffers;
use crate::engine::{Arrival, Between, Enabled, EnabledRange, EnabledSite, Engine, Loading, probe};
use crate::error::Error;
use crate::load::assemble::{Assembly, EnabledClause, UnitShape, assemble, probes_with};
use crate::load::attach::{AttachObserver, Said};
use crate::load::environment::env;
use crate::load::facts::SystemContext;
use crate::load::{LoadedPrograms, load};
use crate::options::{Bytes, Options};
use crate::session::Notice;
use crate::session::stop::Stopper;

/// A program of a shape.
struct ShapeProgram {
    shape: UnitShape,
    /// The shape of the program that faults in what the clauses read, and these clauses.
    prefault: (Option<UnitShape>, [u64; 3]),
    number: u32,
}

/// The programs of a shape.
type ShapePrograms = Vec<ShapeProgram>;

/// The number of a shape, and its programs.
type LoadedShape = (u32, ShapePrograms);

/// See the [module](self).
pub(crate) struct Kernel {
    machine: Machine,
    /// Programs that [`Engine::adopt`] will attach, and the entry of `shapes` that they become.
    loaded: Option<(LoadedPrograms, Option<LoadedShape>)>,
    notices: Vec<Notice>,
    /// The programs that serve later probes, by the number of what was compiled together.
    shapes: BTreeMap<u32, ShapePrograms>,
    /// The number of the next growing program.
    next_growing: u32,
}

impl Kernel {
    /// Creates the maps and loads the programs of a session. Also returns the kernel's symbols, as
    /// far as loading has read them.
    pub(crate) fn load(
        program: &Program,
        options: &Options,
        cpus: &[u32],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Kernel, Enabled, symbols::Kernel), Error> {
        let features = program.system.features();
        let assembly = assemble(program, &env(options, features, cpus), 1, false).map_err(Error::plan)?;
        let symbols = RefCell::new(program.system.symbols());
        let system = SystemContext::new(&program.system, cpus, &symbols);
        let mut between = || if interrupted() { Err(Error::Interrupted) } else { Ok(()) };
        let machine = Machine::load(program, &assembly, options, &system, &mut between)?;
        let mut notices = lowered(machine.lowered());
        notices.extend(slow_release(&assembly));
        let shapes = BTreeMap::new();
        let kernel = Kernel { machine, loaded: None, notices, shapes, next_growing: 0 };
        Ok((
            kernel,
            enabled(assembly, None, &program.registry, &program.checked.clauses),
            symbols.into_inner(),
        ))
    }
}

impl Kernel {
    /// Reports the units that an arrival left out. Gives the first ids of what is not attached.
    fn report_left(&mut self, left: LeftOut) -> Vec<u32> {
        for (probes, why) in left.failed {
            self.notices.push(Notice::Missed(format!("not enabled: {probes}: {why}")));
        }
        left.rejected
    }
}

/// What the consumer learns of an assembly. The clauses of a unit share its probes.
fn enabled(assembly: Assembly, shape: Option<u32>, registry: &Registry, clauses: &[Clause]) -> Enabled {
    let rows: Vec<ProbeRow> = assembly.units.iter().map(|a| row(&a.unit, registry)).collect();
    let range = |e: EnabledClause| {
        let row = rows.get(e.unit)?;
        // What is recorded there is of the derived probe.
        let derived = clauses.get(e.clause).and_then(|c| c.derived.as_ref()).map(|d| {
            let calls = registry.calls(&d.probe.desc.provider);
            let probe = probe(d.probe.id, &d.probe.desc, calls);
            row.iter().map(|place| place.as_ref().map(|_| probe.clone())).collect()
        });
        let probes = derived.unwrap_or_else(|| row.clone());
        Some(EnabledRange { first: e.first, clause: e.clause, probes })
    };
    let ranges = assembly.enabled.into_iter().filter_map(range).collect();
    let growing = assembly.units.iter().filter_map(|a| a.growing.as_ref()).flat_map(|g| &g.sites);
    let site = |s: &NewSite| {
        let calls = registry.calls(&s.new.probe.desc.provider);
        EnabledSite { first: s.new.first, probe: probe(s.new.probe.id, &s.new.probe.desc, calls) }
    };
    let sites = growing.map(site).collect();
    let mut providers = Vec::new();
    for enabled in &assembly.units {
        for (index, probe) in &enabled.unit.probes {
            if let Some(row) = enabled.probes.get(*index as usize).filter(|row| row.pid != 0) {
                providers.push((row.names[0], row.pid, probe.desc.provider.clone()));
            }
        }
    }
    Enabled { ranges, sites, shape, strings: assembly.strings, providers, next: assembly.next }
}

/// The probes of a unit by their index.
fn row(unit: &Unit, registry: &Registry) -> ProbeRow {
    // All probes of a unit are of one provider.
    let calls = unit.probes.first().map_or(Calls::None, |(_, p)| registry.calls(&p.desc.provider));
    let mut row = vec![None; unit.space as usize];
    for (index, enabled) in &unit.probes {
        if let Some(place) = row.get_mut(*index as usize) {
            *place = Some(probe(enabled.id, &enabled.desc, calls));
        }
    }
    row.into()
}

impl Engine for Kernel {
    fn attach(&mut self, observer: &mut AttachObserver<'_>) -> Result<(), Error> {
        self.machine.attach(observer)
    }

    fn run_begin(&mut self) -> Result<(), Error> {
        Ok(self.machine.run_begin()?)
    }

    fn activate(&mut self) {
        self.machine.activate_clocks();
    }

    fn load_more(
        &mut self,
        program: &Program,
        options: &Options,
        Loading { first, partial, grow }: Loading,
        interrupted: &dyn Fn() -> bool,
        between: &mut Between<'_>,
    ) -> Result<Enabled, Error> {
        let (features, cpus) = (program.system.features(), program.system.online_cpus());
        let env = env(options, features, &cpus);
        let mut assembly = assemble(program, &env, first, grow).map_err(Error::plan)?;
        for growing in assembly.units.iter_mut().filter_map(|a| a.growing.as_mut()) {
            growing.program = self.next_growing;
            self.next_growing += 1;
        }
        let symbols = RefCell::new(program.system.symbols());
        let system = SystemContext::new(&program.system, &cpus, &symbols);
        let running = self.machine.running();
        between(self)?;
        let mut between = || match interrupted() {
            true => Err(Error::Interrupted),
            false => between(self),
        };
        let loaded = load((Some(&running), partial), program, &assembly, options, &system, &mut between)?;
        self.notices.extend(lowered(loaded.lowered()));
        self.notices.extend(slow_release(&assembly));
        let programs = assembly.units.iter().filter_map(|a| {
            let growing = a.growing.as_ref()?;
            let prefault = (growing.prefault.as_ref().and_then(UnitShape::of), growing.readers());
            Some(ShapeProgram { shape: UnitShape::of(&a.unit)?, prefault, number: growing.program })
        });
        let programs: ShapePrograms = programs.collect();
        // The number of its first program.
        let shape = programs.first().map(|p| p.number);
        self.loaded = Some((loaded, shape.map(|shape| (shape, programs))));
        Ok(enabled(assembly, shape, &program.registry, &program.checked.clauses))
    }

    fn adopt(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Vec<u32>, Error> {
        let Some((loaded, shape)) = self.loaded.take() else { return Ok(Vec::new()) };
        let left = self.machine.adopt(loaded, interrupted)?;
        if let Some((number, mut programs)) = shape {
            programs.retain(|program| self.machine.has_growing(program.number));
            self.shapes.insert(number, programs);
        }
        Ok(self.report_left(left))
    }

    fn arrive(
        &mut self,
        program: &Program,
        options: &Options,
        arrivals: &[Arrival],
        strings: &[Arc<[u8]>],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u32>>, Error> {
        let features = program.system.features();
        let cpus = program.system.online_cpus();
        let env = env(options, features, &cpus);
        let mut units = Vec::new();
        for Arrival { shape, probes } in arrivals {
            let Some(programs) = self.shapes.get(shape) else { return Ok(None) };
            let enabled = probes.iter().map(|p| p.probe.clone());
            let by_id: HashMap<ProbeId, &NewProbe> = probes.iter().map(|p| (p.probe.id, p)).collect();
            for provider in program.registry.by_provider(enabled).map_err(Error::plan)? {
                for unit in provider.plan(&env).map_err(Error::plan)? {
                    let shape = UnitShape::of(&unit);
                    let found = programs.iter().find(|p| Some(&p.shape) == shape.as_ref());
                    let Some(program) = found else { return Ok(None) };
                    let site = |(index, probe): &(u32, EnabledProbe)| {
                        let new = (*by_id.get(&probe.id)?).clone();
                        Some(NewSite { index: *index, new })
                    };
                    let sites: Vec<NewSite> = unit.probes.iter().filter_map(site).collect();
                    let (prefaulted, readers) = &program.prefault;
                    let readers = probes_with(&sites, *readers);
                    let prefault = (!readers.is_empty()).then(|| provider.before(&readers, &env)).flatten();
                    if prefault.as_ref().is_some_and(|u| UnitShape::of(u) != *prefaulted) {
                        return Ok(None);
                    }
                    units.push(UnitArrival { program: program.number, unit, sites, prefault });
                }
            }
        }
        let left = self.machine.arrive(&units, strings, interrupted)?;
        Ok(Some(self.report_left(left)))
    }

    fn remove(&mut self, probes: &[ProbeId]) {
        self.machine.remove(probes);
    }

    fn close_links(&mut self, which: &[Detached]) {
        self.machine.close_links(which);
    }

    fn wants_snapshot(&self) -> bool {
        self.machine.wants_snapshot()
    }

    fn release(&mut self) -> Vec<u32> {
        self.machine.release()
    }

    fn control(&self) -> Option<Control<'_>> {
        self.machine.control()
    }

    fn stopper(&self) -> Result<Stopper, Error> {
        self.machine.map_control().map(Stopper::of_kernel)
    }

    fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.machine.doorbell()
    }

    fn clear_doorbell(&self) {
        self.machine.clear_doorbell();
    }

    fn drain(&mut self, hold: Option<Duration>) -> Result<Batch, Error> {
        Ok(self.machine.drain(hold))
    }

    fn newest(&mut self) -> Newest {
        self.machine.newest()
    }

    fn complete_from(&self) -> u64 {
        self.machine.complete_from()
    }

    fn speculates(&self) -> bool {
        self.machine.speculations.is_some()
    }

    fn has_ended_speculations(&self) -> bool {
        self.machine.speculations.as_ref().is_some_and(SpeculativeBuffers::is_busy)
    }

    fn drain_interval(&self, switchrate: Duration) -> Duration {
        self.machine.drain_interval(switchrate)
    }

    fn begin_snapshot(&mut self) {
        self.machine.begin_snapshot();
    }

    fn snapshot_is_ready(&self) -> bool {
        self.machine.snapshot_is_ready()
    }

    fn snapshot_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.machine.snapshot_descriptor()
    }

    fn snapshots(&self) -> (u64, u64) {
        self.machine.snapshots()
    }

    fn take_snapshot(&mut self, sink: &mut SlotSink<'_>) {
        self.machine.take_snapshot(sink);
    }

    fn follow_stacks(&self, watcher: SharedWatcher) -> bool {
        let unwinder = self.machine.unwinder();
        unwinder.into_iter().for_each(|unwinder| unwinder.follow(watcher.clone()));
        unwinder.is_some()
    }

    fn busy_stacks(&self) -> u64 {
        self.machine.unwinder().map_or(0, |unwinder| unwinder.busy())
    }

    fn prepare_stacks(&self, pid: u32, limit: Duration, interrupted: &dyn Fn() -> bool) {
        if let Some(unwinder) = self.machine.unwinder() {
            unwinder.prepare(pid, limit, interrupted);
        }
    }

    fn take_codes(&mut self) -> Option<Codes> {
        let memory = self.machine.take_names()?;
        Some(Codes::new(move |place| Code::read(memory.words(), place)))
    }

    fn stack(&self, id: u64) -> Option<Stack> {
        self.machine.stack(id)
    }

    fn complete_until(&self) -> u64 {
        self.machine.complete_until()
    }

    fn evicted_stacks(&mut self) -> Vec<(u64, Stack)> {
        self.machine.evicted_stacks()
    }

    fn drops(&mut self) -> Vec<DropDelta> {
        self.machine.drops()
    }

    fn sets_of(&mut self, process: u32) -> u64 {
        self.machine.sets_of(process)
    }

    fn suppressed(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.machine.suppressed()?)
    }

    fn has_clocks(&self) -> bool {
        self.machine.has_clocks()
    }

    fn follow_cpus(&mut self, online: &[u32]) -> Result<(), Error> {
        self.machine.follow_cpus(online)
    }

    fn has_counted_clocks(&self) -> bool {
        self.machine.has_counted_clocks()
    }

    fn missing_firings(&mut self, online: &[u32], last: bool) -> Vec<(String, u32, u64)> {
        self.machine.missing_firings(online, last)
    }

    fn take_alarm(&self) -> Option<Reason> {
        self.machine.take_alarm()
    }

    fn take_lag(&self) -> (u64, u64) {
        self.machine.take_lag()
    }

    fn time_taken(&self) -> u64 {
        self.machine.time_taken()
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        let mut all = std::mem::take(&mut self.notices);
        let Said { details, missing } = self.machine.take_said();
        all.extend(details.into_iter().map(Notice::Detail));
        all.extend(missing.into_iter().map(Notice::Missed));
        all
    }

    fn quiesce(&mut self) -> Result<(), Error> {
        Ok(self.machine.quiesce()?)
    }

    fn run_end(&mut self) -> Result<(), Error> {
        Ok(self.machine.run_end()?)
    }

    fn detach(&mut self) -> usize {
        self.machine.detach()
    }
}

/// A notice of the time that the kernel takes to detach, for each method that is slow by design.
fn slow_release(assembly: &Assembly) -> Vec<Notice> {
    let mut all: Vec<(SlowRelease, u64, u64)> = Vec::new();
    for a in &assembly.units {
        let Some(what) = a.unit.method.slow_release() else { continue };
        let us = a.unit.method.release_us();
        match all.iter_mut().find(|(known, ..)| *known == what) {
            Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + us),
            None => all.push((what, 1, us)),
        }
    }
    let notice = |(what, count, us): (SlowRelease, u64, u64)| {
        let events = if count == 1 { what.one } else { what.many };
        let ms = us / 1000;
        Notice::Detail(format!("{count} {events}, {}: the kernel takes {ms} ms to detach", what.purpose))
    };
    all.into_iter().map(notice).collect()
}

/// Notices of the sizes that were lowered until the kernel had the memory.
fn lowered(all: &[bpf_runtime::maps::Lowered]) -> Vec<Notice> {
    let notice =
        |l: &bpf_runtime::maps::Lowered| Notice::Lowered(format!("{} lowered to {}", l.what, Bytes(l.bytes)));
    all.iter().map(notice).collect()
}
