//! Where the probes of a group are attached: the places, and the links that lead to them.
//!
//! ```text
//!  few processes   a link for each file and process   the kernel runs the program in that process only
//!  a set           a link for each file               the kernel runs it in every process, and it looks for its own in a set
//! ```
//!
//! A link of a process is asked at every mapping of the file on the machine, and by every firing in
//! it. A link of a file is in the way of every process that runs the file. So few processes have
//! links of their own, and many share one: with the links of `n` processes to all functions of libc
//! an exec of another program takes `1 + 1.5 n` times as long as without, with that of the file 16
//! times. Ten is where one becomes dearer than the other. Where children are followed there is a
//! set, because a link of a process does not fire in them.
//!
//! Children have no links of their own, although a few would be cheaper for others. Who is in a set
//! is known without gaps, whatever a child does; a link of a child would have to be there before
//! its first instruction, and to lose nothing later. Neither is certain:
//!
//! - A child is held at its first instruction by its tracer only. There is none for a set of other
//!   processes, where another thread than the first one forks, and where `clone` has another signal
//!   for the child's end than `SIGCHLD` (the kernel takes the child for a thread).
//! - A link of a process loses its places when the first thread ends before others
//!   ([`super::first`]), and when another thread executes a program: it has the number of the first
//!   one from then on, and is another task.
//! - To change from links of processes to that of the file while threads run, some firing would
//!   have both or none.
//!
//! Such a link also takes some 20 ms to make and 100 to close, for each child: as long as three
//! executions of others take longer by the link of the file.
//!
//! By a file's link no return is probed by uretprobe: that would be in the stacks of all processes,
//! also of those that unwind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::features::{Facility, Features};
use probes::{ProbeDesc, ProbeId};
use symbols::Calling;
use text::returns::Departure;
use text::{EntryProbe, Step};

use super::context::{Callings, Place, When, place_bits};
use super::deep::DEEP;
use super::known::{At, Matches, Target};
use super::source::FEW_PROCESSES;
use crate::contract::method::{HeldFile, HeldProcess, UprobeFile, UprobeSite, Uprobes};
use crate::contract::{EnabledProbe, Returns, Role, Unit};

/// Probes that are attached in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    /// By the links of files, for the processes of this provider's name, which have this set.
    pub(super) set: Option<(u32, Arc<str>)>,
    /// All sets, one bit each.
    sets: Option<u64>,
    /// Which process fires is known when it does.
    pub(super) several: bool,
}

impl Group {
    /// The groups of probes, in an order that does not change.
    pub(super) fn all(
        probes: &[EnabledProbe],
        known: &mut Matches,
        how: How<'_>,
    ) -> BTreeMap<Group, Vec<EnabledProbe>> {
        let mut groups: BTreeMap<Group, Vec<EnabledProbe>> = BTreeMap::new();
        let mut last: Option<(Arc<str>, Group)> = None;
        for probe in probes {
            let name = &probe.desc.provider;
            let group = match &last {
                Some((known, group)) if known == name => group.clone(),
                _ => Group::of(name, known, how),
            };
            last = Some((name.clone(), group.clone()));
            groups.entry(group).or_default().push(probe.clone());
        }
        groups
    }

    /// The processes of both.
    pub(super) fn or(self, other: Group) -> Group {
        let sets = self.sets.zip(other.sets).map(|(these, those)| these | those);
        Group { set: None, sets, several: self.several || other.several }
    }

    pub(super) fn of(name: &Arc<str>, known: &mut Matches, how: How<'_>) -> Group {
        let several = super::family().is_of_several(name);
        let set = known.set_of(name, |processes| how.wants_set(processes)).map(|set| (set, name.clone()));
        let sets = set.as_ref().map(|(set, _)| 1u64.checked_shl(*set).unwrap_or(0));
        Group { several: several || set.is_some(), set, sets }
    }
}

/// What the kernel allows and the options ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct How<'a> {
    /// The kernel's facilities, which are only asked for what matters.
    pub(super) features: &'a Features,
    /// Children of the processes are traced too.
    pub(super) follows: bool,
}

impl How<'_> {
    /// True if programs can find processes in a set.
    pub(super) fn has_sets(self) -> bool {
        self.features.has(Facility::TaskBtf) && self.features.has(Facility::TpBtf)
    }

    /// True if the link of a process fires in all of its threads.
    fn links_processes(self) -> bool {
        !self.features.has(Facility::UprobeMulti) || self.features.has(Facility::UprobeProcess)
    }

    /// True if these processes have a set.
    fn wants_set(self, processes: &[Arc<HeldProcess>]) -> bool {
        let needs = || {
            self.follows
                || processes.len() > FEW_PROCESSES
                || !self.links_processes()
                || processes.iter().any(|process| process.lacks_first_thread())
        };
        needs() && self.has_sets()
    }
}

/// A place of an enabled probe.
struct Chosen<'a> {
    target: &'a Target,
    /// The only process, if the link is that of a process.
    process: Option<&'a Arc<HeldProcess>>,
    probe: EntryProbe,
}

/// Places of one kind.
#[derive(Default)]
pub(super) struct Side {
    pub(super) probes: Vec<(u32, EnabledProbe)>,
    /// By process and path of the file.
    pub(super) files: BTreeMap<(Option<u32>, OsString), UprobeFile>,
    single: usize,
    sites: usize,
    pub(super) moved: bool,
    pub(super) conditional: bool,
    callings: Callings,
}

impl Side {
    fn of(&mut self, process: Option<&Arc<HeldProcess>>, file: &Arc<HeldFile>) -> &mut UprobeFile {
        let known = self.files.entry((process.map(|p| p.pid()), file.path().into()));
        known.or_insert_with(|| UprobeFile {
            file: file.clone(),
            process: process.cloned(),
            sites: Vec::new(),
        })
    }

    /// Adds the places of another side.
    pub(super) fn join(&mut self, other: Side) {
        let base = self.probes.len() as u32;
        for UprobeFile { file, process, sites } in other.files.into_values() {
            let sites = sites.into_iter().map(|s| UprobeSite { index: base + s.index, ..s });
            self.of(process.as_ref(), &file).sites.extend(sites);
        }
        self.probes.extend(other.probes.into_iter().map(|(index, p)| (base + index, p)));
        self.moved |= other.moved;
        self.conditional |= other.conditional;
        self.callings = self.callings.or(other.callings);
        self.sites += other.sites;
        self.single += other.single;
    }

    fn add(&mut self, probe: &EnabledProbe, chosen: &[Chosen<'_>]) {
        if chosen.is_empty() {
            return;
        }
        let index = self.probes.len() as u32;
        self.probes.push((index, probe.clone()));
        for Chosen { target, process, probe: at } in chosen {
            let place = place_bits(at.offset as i64, at.condition, target.place.calling == Calling::Go);
            let offset = target.offset.wrapping_add(at.offset);
            let site = UprobeSite { index, offset, semaphore: 0, place, probe: probe.desc.clone() };
            self.of(*process, &target.place.file).sites.push(site);
            self.sites += 1;
            self.single += usize::from(at.step == Step::Single);
            self.conditional |= at.condition.is_some();
            let go = target.place.calling == Calling::Go;
            self.callings = self.callings.or(Callings { c: !go, go });
        }
    }

    /// The unit of these places. `members`: so many processes have its set, if it has one.
    pub(super) fn unit(
        self,
        name: &str,
        when: When,
        (group, members, multi): (&Group, Option<usize>, bool),
        mut notes: Vec<String>,
    ) -> Option<Unit> {
        if self.probes.is_empty() {
            return None;
        }
        notes.insert(0, format!("{} of {} places are single-stepped", self.single, self.sites));
        if let Some(processes) = members {
            let files = self.files.len();
            notes.insert(0, format!("a link for each of {files} files, for a set of {processes} processes"));
        }
        let at_return = when == When::Returned;
        let space = self.probes.len() as u32;
        Some(Unit {
            name: name.into(),
            role: Role::Probe,
            probes: self.probes,
            space,
            context: Arc::new(Place {
                when,
                moved: self.moved,
                conditional: self.conditional,
                callings: self.callings,
                sets: group.sets,
                several: group.several,
            }),
            method: Arc::new(Uprobes {
                files: self.files.into_values().collect(),
                at_return,
                multi,
                again: true,
                notes,
            }),
            interrupts: false,
        })
    }
}

/// The class of [`crate::process::lists::uses`] that clauses need.
fn class(probe: &EnabledProbe) -> usize {
    const IN_REGISTERS: u64 = 0x3f;
    match () {
        () if probe.user_registers => 3,
        () if probe.user_stack || probe.args & !IN_REGISTERS != 0 => 2,
        () if probe.args != 0 => 1,
        () => 0,
    }
}

/// True if somebody else keeps the return address of a function: a uretprobe writes it on the
/// stack, and what is returned to by another way is not its return.
pub(super) fn saves_its_return(probe: &EnabledProbe) -> bool {
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
    SAVES.contains(&&*probe.desc.function)
}

/// The places of all probes of a group, by kind.
#[derive(Default)]
pub(super) struct Sides {
    pub(super) instructions: Side,
    pub(super) entries: Side,
    pub(super) leaving: Side,
    pub(super) returned: Side,
    pub(super) refused: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Probes whose clauses read arguments that nobody knows.
    pub(super) unknown: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Returns that no uretprobe may be at, and whose instructions are not certain.
    pub(super) unprobed: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// How returns are probed, by process. In a set they are all probed in one way.
    pub(super) means: BTreeMap<Option<u32>, String>,
    /// The probes of functions whose return addresses the kernel keeps, by process.
    pub(super) by_address: Vec<(u32, ProbeId, Arc<ProbeDesc>)>,
    /// The processes are those of a glob.
    several: bool,
}

/// The places of one probe.
#[derive(Default)]
struct Places<'a> {
    instructions: Vec<Chosen<'a>>,
    entries: Vec<Chosen<'a>>,
    leaving: Vec<Chosen<'a>>,
    returned: Vec<Chosen<'a>>,
}

/// What is said before so many places are probed by the links of files, if that is dear. The times
/// are those that `benches` measures on a machine with two CPUs and some fifty processes that run
/// the C library (its section `compile`).
pub(super) fn dear(places: usize) -> Option<String> {
    const DEAR: usize = 1000;
    const START_US: usize = 15;
    const REMOVE_US: usize = 300;
    let (start, remove) = (places * START_US / 1000, (places * REMOVE_US / 1_000_000).max(1));
    (places >= DEAR).then(|| {
        format!(
            "{places} places are probed for a set of processes, in every process that runs their files: each program that starts takes about \
             {start} ms longer, and each call of such a function some microseconds, until the kernel has removed them, about {remove} s after the \
             end; name fewer functions"
        )
    })
}

impl Sides {
    /// The number of places.
    pub(super) fn places(&self) -> usize {
        [&self.instructions, &self.entries, &self.leaving, &self.returned].iter().map(|side| side.sites).sum()
    }

    pub(super) fn of(group: &Group, probes: &[EnabledProbe], known: &Matches, returns: Returns) -> Sides {
        let mut sides = Sides { several: group.several, ..Sides::default() };
        for probe in probes {
            let targets = known.targets(probe.id, &probe.desc);
            let mut places = Places::default();
            for target in targets {
                if group.set.is_some() {
                    sides.choose((target, None), probe, known, returns, &mut places);
                    continue;
                }
                for process in target.place.processes.iter() {
                    sides.choose((target, Some(process)), probe, known, returns, &mut places);
                }
            }
            sides.instructions.add(probe, &places.instructions);
            sides.entries.add(probe, &places.entries);
            sides.leaving.add(probe, &places.leaving);
            sides.returned.add(probe, &places.returned);
        }
        sides
    }

    fn choose<'a>(
        &mut self,
        (target, process): (&'a Target, Option<&'a Arc<HeldProcess>>),
        probe: &EnabledProbe,
        known: &Matches,
        returns: Returns,
        places: &mut Places<'a>,
    ) {
        let chosen = |probe| Chosen { target, process, probe };
        if let Calling::Unknown(why) = &target.place.calling
            && probe.args != 0
        {
            self.unknown.insert(probe.desc.clone(), why.clone());
            return;
        }
        match &target.at {
            At::Offset(at) => places.instructions.push(chosen(*at)),
            At::Entry(at) => match &at[class(probe)] {
                Ok(at) => {
                    self.entries.moved |= at.offset != 0;
                    places.entries.push(chosen(*at));
                }
                Err(why) => drop(self.refused.insert(probe.desc.clone(), why.clone())),
            },
            At::Return(at) => {
                let super::known::Returns { entry, sites, by_the_stack, calls_itself } = &**at;
                let pid = process.map(|process| process.pid());
                let unwinds = pid.and_then(|pid| known.unwinds.get(&pid)).and_then(Option::as_deref);
                // Where nothing unwinds, a uretprobe misses returns of such a process and does no
                // harm.
                let is_nested = returns == Returns::Auto
                    && unwinds.is_none()
                    && !self.several
                    && process.is_some_and(|process| known.is_deep(process));
                let wanted = match (returns, unwinds) {
                    _ if process.is_none() => {
                        "the instructions that return: a uretprobe of a file is in all processes that run it"
                            .into()
                    }
                    (Returns::Auto, None) if self.several => {
                        "the instructions that return: what the processes of a glob load later is not followed".into()
                    }
                    (Returns::Auto, None) if is_nested => format!("the instructions that return: {DEEP}"),
                    (Returns::Uretprobe, _) | (Returns::Auto, None) => "uretprobe".into(),
                    (Returns::Auto, Some(why)) => format!("the instructions that return: {why}"),
                    (Returns::Instructions, _) => "the instructions that return".into(),
                };
                // The kernel probes the returns of at most 64 calls that a thread is in. The
                // runtime of Go moves stacks.
                let is_deep = (*calls_itself || is_nested) && returns == Returns::Auto && sites.is_ok();
                let by_uretprobe = (wanted == "uretprobe" || is_nested)
                    && target.place.calling == Calling::C
                    && *by_the_stack
                    && !is_deep
                    && !saves_its_return(probe);
                self.means.insert(pid, wanted);
                match (entry, sites) {
                    (Ok(at), _) if by_uretprobe => {
                        self.by_address.extend(pid.map(|pid| (pid, probe.id, probe.desc.clone())));
                        places.returned.push(chosen(*at));
                    }
                    (_, Err(why)) => drop(self.unprobed.insert(probe.desc.clone(), why.clone())),
                    (_, Ok(sites)) => {
                        for site in sites {
                            let condition = match site.departure {
                                Departure::Branch(condition) => Some(condition),
                                Departure::Return | Departure::Jump | Departure::IndirectJump => None,
                            };
                            let at = EntryProbe { offset: site.offset as u64, step: site.step, condition };
                            places.leaving.push(chosen(at));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_of_a_set_are_said_to_be_dear() {
        assert_eq!(dear(999), None);
        let said = dear(3600).unwrap();
        assert!(
            said.starts_with("3600 places")
                && said.contains("about 1 s after")
                && said.contains("about 54 ms"),
            "{said}"
        );
    }
}
