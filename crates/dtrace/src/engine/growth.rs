//! The kernel side of probes that come and go: the programs that serve rows of the probe table, the
//! links of their sites, and fixed programs whose probes come and go. The protocol is described in
//! [`plane::probe_table`].
//!
//! ```text
//!  arrive    rows ──► links of every unit ──► generations     a unit that fails is undone and left out
//!  remove    generation 0, the missed firings are read ──► a site waits for the next round
//!            a fixed program without probes ──► waits too
//!  advance   a round: a thread closes the links, waits for a grace period, and unloads the fixed programs
//!            ──► a drain past it ──► a snapshot past that ──► rows and ids are free
//!  idle      a growing program without sites is unloaded after a while, and loaded again when it gets one
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bpf_sys::load::ProgramImage;
use bpf_sys::{GracePeriod, Map, Prog, SysError, monotonic_ns};
use plane::probe_table::{Removal, Site, Stage, cookie};
use probes::{ProbeDesc, ProbeId};
use providers::method::{AttachError, Attaching, Loaded, Method, Semaphores, SiteLink};
use providers::{EnabledProbe, Unit};

mod late;

use crate::engine::snapshots::wait_for_programs;
use crate::error::Error;
use crate::load::attach::{
    AttachObserver, AttachedProgram, Said, close_together, probes_text, report, reported_name, steps,
};
use crate::load::names::NameTable;
use crate::load::probe_table::ProbeTable;
pub(crate) use late::{LeftOut, attach_each};

/// A probe that came later.
#[derive(Clone, Debug)]
pub(crate) struct NewProbe {
    pub(crate) probe: EnabledProbe,
    /// Interned names.
    pub(crate) names: [u32; 4],
    /// The process id that follows the first of them; 0 if none does.
    pub(crate) pid: u32,
    /// The enabled-probe id of the program's first clause at this probe.
    pub(crate) first: u32,
    /// Bit n: the n-th clause is enabled.
    pub(crate) clauses: [u64; 3],
}

/// The bits of the clauses that are enabled at a probe.
pub(crate) fn clause_bits(enabled: impl Iterator<Item = bool>) -> [u64; 3] {
    let mut bits = [0; 3];
    for (n, enabled) in enabled.enumerate() {
        if let Some(word) = bits.get_mut(n / 64) {
            *word |= u64::from(enabled) << (n % 64);
        }
    }
    bits
}

/// A place of a probe that a growing program is to serve.
#[derive(Clone, Debug)]
pub(crate) struct NewSite {
    /// Its index in the unit.
    pub(crate) index: u32,
    pub(crate) new: NewProbe,
}

impl NewSite {
    /// The members of its row.
    fn members(&self) -> Site {
        let NewProbe { probe, names, pid, first, clauses } = &self.new;
        let (id, names, pid, epid, clauses) = (probe.id.0, *names, *pid, *first, *clauses);
        Site { id, names, pid, epid, clauses, ..Site::default() }
    }
}

/// New sites of one growing program.
pub(crate) struct UnitArrival {
    /// The program's number: see [`GrowingProgram`].
    pub(crate) program: u32,
    pub(crate) unit: Unit,
    pub(crate) sites: Vec<NewSite>,
    /// How the program is attached that faults in what their clauses read.
    pub(crate) prefault: Option<Unit>,
}

impl UnitArrival {
    /// How its programs are attached.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &dyn Method> {
        [Some(&self.unit), self.prefault.as_ref()].into_iter().flatten().map(|unit| &*unit.method)
    }
}

/// The rows of sites, each with its generation.
type SiteRows = Vec<(u32, u32)>;

/// A loaded program for probes that come later.
pub(crate) struct LoadedGrowing {
    pub(crate) prog: Prog,
    /// From which it is loaded again, if that is possible: else it stays loaded.
    pub(crate) image: Option<ProgramImage>,
    /// The program that faults in what the clauses read.
    pub(crate) prefault: Option<(Prog, ProgramImage)>,
    /// A clause uses the text of its probe's names.
    pub(crate) uses_names: bool,
    /// The maps that only it uses.
    pub(crate) maps: Vec<Map>,
}

/// A program for probes that come later.
struct GrowingProgram {
    name: String,
    /// It never had a site.
    is_new: bool,
    /// The program, unless it was idle for long. Its links are in the groups.
    loaded: Option<Loaded>,
    image: Option<ProgramImage>,
    /// The program that faults in what the clauses read, likewise.
    prefault: (Option<Loaded>, Option<ProgramImage>),
    uses_names: bool,
    _maps: Vec<Map>,
    groups: BTreeMap<u32, LinkGroup>,
    /// Firings that were missed by links that are closed and programs that are unloaded.
    missed: u64,
}

impl GrowingProgram {
    /// The program, which is loaded now if it is not.
    fn loaded(&mut self) -> Result<&mut Loaded, Error> {
        let loaded = match (self.loaded.take(), &self.image) {
            (Some(loaded), _) => loaded,
            (None, Some(image)) => Loaded::new(image.load(0).map_err(Error::Load)?.prog),
            (None, None) => return Err(Error::Internal("no image of a program".into())),
        };
        Ok(self.loaded.insert(loaded))
    }

    fn unload(&mut self) {
        if self.image.is_none() {
            return;
        }
        let info = self.loaded.take().and_then(|loaded| loaded.prog.info().ok());
        self.missed += info.map_or(0, |info| info.recursion_misses);
        self.prefault.0 = None;
    }

    fn missed(&self) -> Result<u64, SysError> {
        let prog = self.loaded.as_ref().map(|loaded| loaded.prog.info()).transpose()?;
        let links = self.groups.values().map(LinkGroup::missed).sum::<u64>();
        Ok(prog.map_or(0, |info| info.recursion_misses) + links + self.missed)
    }
}

/// How long a program without sites stays loaded.
const IDLE: Duration = Duration::from_secs(60);

/// How many programs without sites stay loaded, those that lost their last site last.
const IDLE_MAX: usize = 8;

/// How many of the programs that are idle since these times, the oldest first, are to be unloaded.
fn idle_too_long(since: &[(u64, u32)], now: u64) -> usize {
    let limit = u64::try_from(IDLE.as_nanos()).unwrap_or(u64::MAX);
    let old = since.iter().take_while(|(since, _)| now.saturating_sub(*since) >= limit).count();
    old.max(since.len().saturating_sub(IDLE_MAX))
}

/// What was attached, and the indexes of the sites that the kernel rejected.
type Attached = (LinkGroup, HashSet<u32>);

/// Links that were attached together.
struct LinkGroup {
    method: Arc<dyn Method>,
    links: Vec<SiteLink>,
    /// Of the program that faults in pages.
    prefault: Vec<SiteLink>,
    /// How many sites they still serve.
    sites: usize,
}

impl LinkGroup {
    /// Firings that the links have missed, where the kernel counts them.
    fn missed(&self) -> u64 {
        let counting = self.links.iter().filter(|_| self.method.links_count_missed());
        counting.filter_map(|l| l.link.info().ok()).map(|l| l.missed()).sum()
    }
}

/// A site that fires.
struct LiveSite {
    program: u32,
    group: u32,
    row: u32,
    epid: u32,
}

/// A site or a clause of a fixed program that was removed.
struct RemovedSite {
    row: Option<u32>,
    epid: u32,
}

/// Links that no site needs, and fixed programs without probes, until a round closes and unloads
/// them.
#[derive(Default)]
struct Unused {
    links: Vec<SiteLink>,
    fixed: Vec<AttachedProgram>,
    /// Microseconds that the kernel takes to detach them.
    us: u64,
}

/// What the thread of a round has.
type Round = (Mutex<Unused>, Arc<GracePeriod>);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Growth {
    pub(crate) table: Option<ProbeTable>,
    pub(crate) names: Option<Arc<NameTable>>,
    programs: BTreeMap<u32, GrowingProgram>,
    next_group: u32,
    /// The number of all links.
    links: usize,
    /// For how many links the limit of descriptors was raised.
    descriptors: usize,
    /// By the id of the probe.
    sites: HashMap<u32, Vec<LiveSite>>,
    removal: Removal<RemovedSite>,
    /// What the next round closes.
    unused: Unused,
    /// Closes the links of a round.
    closing: Option<(JoinHandle<()>, Arc<Round>)>,
    /// When the links of the round were closed.
    closed_at: u64,
    /// The number of snapshots that had begun when the round was drained, and when that was.
    snapshots: (u64, u64),
    /// Growing programs without sites, with the time since which: the oldest first.
    idle: Vec<(u64, u32)>,
    /// Firings that fixed programs have missed which are no longer there, by name.
    ended: BTreeMap<String, u64>,
}

/// A round waits so long for a snapshot that the session takes anyway.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(1);

/// What the session has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadState {
    /// Every record before this time was consumed.
    pub(crate) complete_until: u64,
    /// Snapshots that have begun.
    pub(crate) begun: u64,
    /// Of these, how many are merged.
    pub(crate) merged: u64,
    /// There are no aggregations.
    pub(crate) no_snapshots: bool,
}

impl Growth {
    /// Adds a loaded program without sites.
    pub(crate) fn add_program(&mut self, number: u32, loaded: LoadedGrowing) {
        let LoadedGrowing { prog, image, prefault, uses_names, maps } = loaded;
        let (name, loaded) = (prog.name().to_string(), Some(Loaded::new(prog)));
        let prefault = match prefault {
            Some((prog, image)) => (Some(Loaded::new(prog)), Some(image)),
            None => (None, None),
        };
        let (groups, missed) = (BTreeMap::new(), 0);
        let program = GrowingProgram {
            name,
            is_new: true,
            loaded,
            image,
            prefault,
            uses_names,
            _maps: maps,
            groups,
            missed,
        };
        self.programs.insert(number, program);
    }

    /// Makes the texts of the names of new sites known to the programs that use them. `strings` are
    /// all interned strings.
    pub(crate) fn add_names(&self, arrivals: &[UnitArrival], strings: &[Arc<[u8]>]) -> Result<(), Error> {
        let Some(table) = &self.names else { return Ok(()) };
        let uses = |a: &&UnitArrival| self.programs.get(&a.program).is_some_and(|p| p.uses_names);
        let sites = arrivals.iter().filter(uses).flat_map(|a| &a.sites);
        table.add(sites.flat_map(|site| site.new.names), |n| strings.get(n as usize).map(|text| &**text))
    }

    /// True if there is a program with this number.
    pub(crate) fn has_program(&self, number: u32) -> bool {
        self.programs.contains_key(&number)
    }

    /// Removes a program of an arrival that left it without sites.
    pub(crate) fn remove_if_never_used(&mut self, number: u32) {
        if self.programs.get(&number).is_some_and(|program| program.groups.is_empty()) {
            self.programs.remove(&number);
            self.idle.retain(|(_, idle)| *idle != number);
        }
    }

    /// Raises the limit of descriptors, for twice as many as are needed now: that lists all of
    /// them.
    fn raise_fd_limit(&mut self, more: usize) {
        let needed = self.links + more;
        if needed > self.descriptors {
            self.descriptors = 2 * needed;
            bpf_sys::raise_fd_limit((self.descriptors - self.links) as u64);
        }
    }

    /// Attaches new sites, except those that the kernel rejects, and the units that fail. An error
    /// undoes all of it.
    pub(crate) fn arrive(
        &mut self,
        arrivals: &[UnitArrival],
        said: &mut Said,
        observer: &mut AttachObserver<'_>,
    ) -> Result<LeftOut, Error> {
        if arrivals.is_empty() {
            return Ok(LeftOut::default());
        }
        // Also those of each other.
        let _semaphores = Semaphores::of(arrivals.iter().flat_map(UnitArrival::methods));
        let left = self.attach_arrivals(arrivals, said, observer);
        // A program that was loaded for sites that are not attached is idle.
        for UnitArrival { program: number, .. } in arrivals {
            let is_idle = |p: &GrowingProgram| p.groups.is_empty() && p.loaded.is_some();
            if self.programs.get(number).is_some_and(is_idle) && self.idle.iter().all(|(_, n)| n != number) {
                self.idle.push((monotonic_ns(), *number));
            }
        }
        left
    }

    fn attach_arrivals(
        &mut self,
        arrivals: &[UnitArrival],
        said: &mut Said,
        observer: &mut AttachObserver<'_>,
    ) -> Result<LeftOut, Error> {
        let mut left = LeftOut::default();
        let methods = arrivals.iter().flat_map(UnitArrival::methods);
        self.raise_fd_limit(methods.map(Method::descriptors).sum());
        let Growth { table, programs, next_group, sites: all_sites, links: held, idle, .. } = self;
        let table = table.as_mut().ok_or_else(|| Error::Internal("no probe table".into()))?;
        table.reserve(arrivals.iter().map(|a| a.sites.len()).sum())?;
        let mut attached: Vec<(&UnitArrival, SiteRows, Attached)> = Vec::new();
        let mut undo = None;
        for arrival in arrivals {
            let mut rows = SiteRows::new();
            let mut program = programs.get_mut(&arrival.program);
            // It keeps the name, by which its missed firings are counted.
            if let Some(new) = program.as_mut().filter(|program| program.is_new) {
                (new.is_new, new.name) = (false, reported_name(&arrival.unit, &new.name));
            }
            let program = program.ok_or_else(|| Error::Internal("no such program".into()));
            let written: Result<(), Error> = (arrival.sites.iter())
                .try_for_each(|site| table.write(&site.members()).map(|row| rows.push(row)));
            let group = written.and_then(|()| attach_group(program?, arrival, &rows, said, observer));
            match group {
                Ok(group) => attached.push((arrival, rows, group)),
                Err(e) => {
                    // No row has a generation yet, so nothing has fired and the rows are free at
                    // once.
                    rows.iter().for_each(|(row, _)| table.give_back(*row));
                    if matches!(e, Error::Interrupted) {
                        undo = Some(e);
                        break;
                    }
                    let probes = arrival.sites.iter().map(|site| &*site.new.probe.desc);
                    left.failed.push((probes_text(probes), e));
                    left.rejected.extend(arrival.sites.iter().map(|site| site.new.first));
                }
            }
        }
        if let Some(e) = undo {
            for (_, rows, group) in attached {
                drop(group);
                rows.iter().for_each(|(row, _)| table.give_back(*row));
            }
            return Err(e);
        }
        // The sites of a probe come together.
        let mut live: HashSet<u32> = HashSet::new();
        for (arrival, rows, (mut group, refused)) in attached {
            left.attached = true;
            let number = *next_group;
            *next_group += 1;
            for (site, (row, generation)) in arrival.sites.iter().zip(rows) {
                let epid = site.new.first;
                if refused.contains(&site.index) {
                    table.give_back(row);
                    left.rejected.push(epid);
                    continue;
                }
                group.sites += 1;
                live.insert(epid);
                let site_live = LiveSite { program: arrival.program, group: number, row, epid };
                all_sites.entry(site.new.probe.id.0).or_default().push(site_live);
                table.chunk(row).into_iter().for_each(|chunk| chunk.publish(row, generation));
            }
            if let Some(program) = programs.get_mut(&arrival.program).filter(|_| group.sites > 0) {
                *held += group.links.len() + group.prefault.len();
                program.groups.insert(number, group);
                idle.retain(|(_, idle)| *idle != arrival.program);
            }
        }
        table.keep_spare();
        left.rejected.retain(|epid| !live.contains(epid));
        Ok(left)
    }

    /// The sites of these probes fire no more. [`Growth::advance`] releases them.
    pub(crate) fn remove(&mut self, probes: &[ProbeId]) {
        for site in probes.iter().filter_map(|id| self.sites.remove(&id.0)).flatten() {
            let LiveSite { program: number, group, row, epid } = site;
            if let Some(chunk) = self.table.as_ref().and_then(|t| t.chunk(row)) {
                chunk.withdraw(row);
            }
            self.removal.add(RemovedSite { row: Some(row), epid });
            let Some(program) = self.programs.get_mut(&number) else { continue };
            let Entry::Occupied(mut entry) = program.groups.entry(group) else { continue };
            entry.get_mut().sites -= 1;
            if entry.get().sites == 0 {
                let group = entry.remove();
                // Read here, so that the number of the program never falls. What the links miss
                // from now on is of no site.
                program.missed += group.missed();
                self.links -= group.links.len() + group.prefault.len();
                self.unused.us += group.method.release_us();
                self.unused.links.extend(group.prefault);
                self.unused.links.extend(group.links);
                if program.groups.is_empty() {
                    self.idle.push((monotonic_ns(), number));
                }
            }
        }
        if self.sites.is_empty() {
            self.sites.shrink_to_fit();
        }
    }

    /// The links of all sites, also of those that were removed and are not closed.
    pub(crate) fn link_lists(&mut self) -> impl Iterator<Item = &mut Vec<SiteLink>> {
        let groups = self.programs.values_mut().flat_map(|program| program.groups.values_mut());
        let fixed = self.unused.fixed.iter_mut().map(|program| &mut program.loaded.links);
        groups
            .flat_map(|group| [&mut group.links, &mut group.prefault])
            .chain(fixed)
            .chain([&mut self.unused.links])
    }

    /// The probes of a fixed program do not exist any more. [`Growth::advance`] closes its links
    /// and unloads it; until then it may fire.
    pub(crate) fn remove_fixed(&mut self, program: AttachedProgram) {
        if program.fires() {
            let missed = program.missed().unwrap_or_default();
            *self.ended.entry(program.name.clone()).or_default() += missed;
        }
        for epid in program.later.iter().flat_map(|later| &later.epids) {
            self.removal.add(RemovedSite { row: None, epid: *epid });
        }
        self.unused.us += program.method.release_us();
        self.unused.fixed.push(program);
    }

    /// Unloads programs that had no site for long.
    fn unload_idle(&mut self) {
        if self.idle.is_empty() {
            return;
        }
        for (_, number) in self.idle.drain(..idle_too_long(&self.idle, monotonic_ns())) {
            self.programs.get_mut(&number).into_iter().for_each(GrowingProgram::unload);
        }
    }

    /// True if sites wait for a snapshot longer than the session takes to the next one in most
    /// cases.
    pub(crate) fn wants_snapshot(&self, read: &dyn Fn() -> ReadState) -> bool {
        let (begun, since) = self.snapshots;
        let wait = u64::try_from(SNAPSHOT_WAIT.as_nanos()).unwrap_or(u64::MAX);
        self.removal.stage() == Some(Stage::Merging)
            && monotonic_ns().saturating_sub(since) >= wait
            && read().begun <= begun
    }

    /// Continues the release of removed sites. Returns the first enabled-probe ids of sites that
    /// are released: no record of them is to come.
    pub(crate) fn advance(
        &mut self,
        grace: Option<&Arc<GracePeriod>>,
        read: &dyn Fn() -> ReadState,
    ) -> Vec<u32> {
        let mut released = Vec::new();
        self.unload_idle();
        while self.removal.is_pending() {
            match self.removal.stage() {
                None => {
                    let Some(grace) = grace else { break };
                    self.removal.begin();
                    let unused = std::mem::take(&mut self.unused);
                    let round = Arc::new((Mutex::new(unused), grace.clone()));
                    let mine = round.clone();
                    match threads::spawn("detach", threads::SMALL_STACK, move || end(&mine)) {
                        Ok(thread) => self.closing = Some((thread, round)),
                        Err(_) => {
                            end(&round);
                            self.links_closed();
                        }
                    }
                }
                Some(Stage::Closing) => {
                    let Some((closing, _)) = self.closing.take_if(|(c, _)| c.is_finished()) else { break };
                    // A thread that ended early has closed the links and perhaps not waited.
                    if let (Err(_), Some(grace)) = (closing.join(), grace) {
                        wait_for_programs(grace);
                    }
                    self.links_closed();
                }
                Some(Stage::Draining) => {
                    let read = read();
                    if read.complete_until <= self.closed_at {
                        break;
                    }
                    self.snapshots = (read.begun, monotonic_ns());
                    self.removal.drained();
                }
                Some(Stage::Merging) => {
                    let read = read();
                    if read.merged <= self.snapshots.0 && !read.no_snapshots {
                        break;
                    }
                    for RemovedSite { row, epid } in self.removal.merged() {
                        released.push(epid);
                        self.table.iter_mut().zip(row).for_each(|(table, row)| table.give_back(row));
                    }
                    self.table.iter_mut().for_each(ProbeTable::trim);
                }
            }
        }
        released
    }

    /// The links of a round are closed, and a grace period has passed.
    fn links_closed(&mut self) {
        self.closed_at = monotonic_ns();
        self.removal.closed();
    }

    /// Takes the links of all sites, also of those that were removed, when the session has stopped,
    /// and the microseconds that the kernel takes to detach them.
    pub(crate) fn take_links(&mut self) -> (Vec<SiteLink>, u64) {
        let Unused { links: mut all, mut fixed, mut us } = std::mem::take(&mut self.unused);
        // What the thread of a round has not begun to close, and would leave to the end of this
        // process, one after the other.
        if let Some((_, round)) = &self.closing {
            let mut left = lock(&round.0);
            us += left.us;
            all.append(&mut left.links);
        }
        fixed.iter_mut().for_each(|program| all.append(&mut program.loaded.links));
        for group in self.programs.values_mut().flat_map(|p| std::mem::take(&mut p.groups).into_values()) {
            us += group.method.release_us();
            all.extend(group.prefault);
            all.extend(group.links);
        }
        (all, us)
    }

    /// Firings that the kernel suppressed, by program.
    pub(crate) fn suppressed(&self) -> Result<Vec<(String, u64)>, SysError> {
        let ended = self.ended.iter().map(|(name, missed)| Ok((name.clone(), *missed)));
        let of = |p: &GrowingProgram| Ok((p.name.clone(), p.missed()?));
        ended.chain(self.programs.values().map(of)).collect()
    }

    /// The programs.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Prog> {
        self.programs.values().filter_map(|p| Some(&p.loaded.as_ref()?.prog))
    }
}

/// Closes the links of a round, which may take the kernel long, waits for a grace period, and
/// unloads the fixed programs. The links are taken one by one: the end of the session takes what is
/// left.
fn end((unused, grace): &Round) {
    let (count, mut fixed) = {
        let mut unused = lock(unused);
        (unused.links.len(), std::mem::take(&mut unused.fixed))
    };
    close_together(count, &|| lock(unused).links.pop());
    fixed.iter_mut().rev().for_each(|program| program.loaded.links.clear());
    wait_for_programs(grace);
}

fn lock(unused: &Mutex<Unused>) -> MutexGuard<'_, Unused> {
    unused.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches a program to the sites of an arrival. Returns the links, and the indexes of the sites
/// that the kernel rejected.
fn attach_group(
    program: &mut GrowingProgram,
    arrival: &UnitArrival,
    rows: &[(u32, u32)],
    said: &mut Said,
    observer: &mut AttachObserver<'_>,
) -> Result<Attached, Error> {
    let method = arrival.unit.method.clone();
    let cookies: HashMap<u32, u64> = arrival
        .sites
        .iter()
        .zip(rows)
        .map(|(site, (row, generation))| (site.index, cookie(*row, *generation)))
        .collect();
    // Generation 0 is of no site.
    let cookie = |index: u32| cookies.get(&index).copied().unwrap_or_default();
    // The sites of one probe begin and end together, so the row of any of them serves.
    let probes = arrival.sites.iter().map(|site| (site.new.probe.id, cookie(site.index))).collect();
    let last = arrival.prefault.as_ref().is_some_and(|unit| unit.method.newest_runs_first());
    let mut prefault = Vec::new();
    if !last {
        prefault = attach_prefault(program, arrival, &probes, observer)?;
    }
    let loaded = program.loaded()?;
    let mut steps = steps(&*method, observer);
    let rejected = method.attach(&mut Attaching { loaded, cookie: &cookie, observer: &mut steps });
    let links = std::mem::take(&mut loaded.links);
    let rejected = rejected?;
    report(&*method, loaded.prog.name(), &rejected, said);
    if last {
        prefault = attach_prefault(program, arrival, &probes, observer)?;
    }
    let places: HashSet<*const ProbeDesc> = rejected.iter().map(|(probe, _)| Arc::as_ptr(probe)).collect();
    let of = |site: &&NewSite| places.contains(&Arc::as_ptr(&site.new.probe.desc));
    let refused = arrival.sites.iter().filter(of).map(|site| site.index).collect();
    Ok((LinkGroup { method, links, prefault, sites: 0 }, refused))
}

/// Attaches the program that faults in pages, if the kernel allows it. `cookies` are those of the
/// probes.
fn attach_prefault(
    program: &mut GrowingProgram,
    arrival: &UnitArrival,
    cookies: &HashMap<ProbeId, u64>,
    observer: &mut AttachObserver<'_>,
) -> Result<Vec<SiteLink>, Error> {
    let Some(unit) = &arrival.prefault else { return Ok(Vec::new()) };
    let (loaded, image) = &mut program.prefault;
    if let (None, Some(image)) = (&loaded, image) {
        *loaded = image.load(0).ok().map(|l| Loaded::new(l.prog));
    }
    let Some(loaded) = loaded else { return Ok(Vec::new()) };
    let probes: HashMap<u32, ProbeId> = unit.probes.iter().map(|(index, probe)| (*index, probe.id)).collect();
    let cookie = |index: u32| probes.get(&index).and_then(|id| cookies.get(id)).copied().unwrap_or_default();
    let mut steps = steps(&*unit.method, observer);
    let attached = unit.method.attach(&mut Attaching { loaded, cookie: &cookie, observer: &mut steps });
    let links = std::mem::take(&mut loaded.links);
    match attached {
        Err(AttachError::Interrupted) => Err(Error::Interrupted),
        _ => Ok(links),
    }
}

#[cfg(test)]
mod tests;
