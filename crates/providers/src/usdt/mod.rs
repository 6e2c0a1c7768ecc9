//! USDT: probes that programs and libraries bring along.
//!
//! ```text
//!  source   what was read: processes, their files, the sites that the files describe
//!  sites    sites in files and in processes
//!  matching  what a description matches of it
//!  names    what a description can name of one process, at a prompt
//!  fair     what each process may have of what a description matches
//!  definitions  what files say of their providers
//!  follow   processes that start, and files that are loaded, later
//!  shared   files whose probes are those of all processes
//!  unread   files that could not be read
//!  here     sites ──► units: one program for each shape of the operands that clauses use, one link for each file
//!  context  how a firing finds its probe and its arguments
//! ```
//!
//! The decision that shapes it: where an argument is, is known when a program is compiled. Sites
//! whose operands are equal, as far as clauses use them, are one program and one link for each file
//! and process. A probe whose arguments nobody uses has one program, however its sites differ. So a
//! firing decodes nothing.
//!
//! What a description means that has a glob for the process (`postgresql*`) is a probe for all
//! processes that run the file: one link, by which the kernel also changes the code of what starts
//! later. A list names the probes of each process.
//!
//! A probe may have a **semaphore**, a number in the program that says whether somebody traces it,
//! so that preparing its arguments costs nothing otherwise. The kernel counts it up when a link is
//! made and down when it is closed, however the session ends.

mod context;
mod definitions;
mod fair;
mod follow;
mod matching;
mod names;
mod shared;
mod sites;
mod source;
mod unread;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::features::Facility;
use probes::{
    ArgType, Args, Attributes, Class, Definition, Family, Pattern, ProbeDesc, ProbeId, ProbeInfo,
    ProviderFacts, ProviderStability, Stability,
};
use symbols::Readers;
use text::Step;
use usdt::{Argument, Source};

use crate::contract::method::{Detached, Semaphores, UprobeFile, UprobeSite, Uprobes};
use crate::contract::{
    Change, EnabledProbe, Env, Manual, Names, ProbeSource, ProbeStore, ProbesChanged, ProcessProvider,
    Provider, Role, Unit,
};
use context::Operands;
use sites::{FileChange, Target};
use source::{Matches, UsdtProbes};

/// The provider.
pub(crate) struct Usdt {
    probes: UsdtProbes,
}

impl Usdt {
    pub(crate) fn new() -> Usdt {
        Usdt { probes: UsdtProbes::new(Family::of_any_processes()) }
    }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "PROVIDER*",
    help: "USDT: probes that programs and libraries describe in their files; the process id follows the name (python123, \
           postgresql$target, or postgresql* for all processes that run)",
    probes: &[(
        "PROVIDERN:FILE:FUNCTION:NAME",
        "fires where process N reaches a site of the probe, which is in this function of this file; two underscores of the \
         name in the file are a hyphen",
    )],
    args: &[
        ("arg0 ... argN", "the arguments, as integers; -lv lists them"),
        (
            "args[0] ... args[N]",
            "the same, with the types and the translators that the file defines, else with the size and the sign that the site gives",
        ),
    ],
};

/// Sites of one shape.
#[derive(Default)]
struct Group {
    probes: Vec<(u32, EnabledProbe)>,
    /// By process, if it is one, and path of the file.
    files: BTreeMap<(Option<u32>, OsString), UprobeFile>,
    sites: usize,
    single: usize,
}

impl Group {
    fn add(&mut self, probe: &EnabledProbe, target: &Target) {
        // The targets of a probe follow each other.
        let index = match self.probes.last() {
            Some((index, last)) if last.id == probe.id => *index,
            _ => {
                let index = self.probes.len() as u32;
                self.probes.push((index, probe.clone()));
                index
            }
        };
        let Target { process, file, site } = target;
        let key = (process.as_ref().map(|process| process.pid()), file.path().into());
        let known = self.files.entry(key);
        let known = known.or_insert_with(|| UprobeFile {
            file: file.clone(),
            process: process.clone(),
            sites: Vec::new(),
        });
        let (semaphore, probe) = (site.semaphore.unwrap_or(0), probe.desc.clone());
        let site_of = |s: &UprobeSite| (s.offset, s.index) == (site.offset, index);
        // A note may be there twice.
        if !known.sites.iter().any(site_of) {
            known.sites.push(UprobeSite { index, offset: site.offset, semaphore, place: 0, probe });
            self.sites += 1;
            self.single += usize::from(site.step == Ok(Step::Single));
        }
    }

    fn unit(self, number: usize, operands: Operands, multi: bool, mut notes: Vec<String>) -> Unit {
        notes.insert(0, format!("{} of {} sites are single-stepped", self.single, self.sites));
        Unit {
            name: format!("usdt_{number}"),
            role: Role::Probe,
            space: self.probes.len() as u32,
            probes: self.probes,
            context: Arc::new(operands),
            method: Arc::new(Uprobes {
                files: self.files.into_values().collect(),
                at_return: false,
                multi,
                again: false,
                notes,
            }),
            interrupts: false,
        }
    }
}

/// The operands of the arguments that the clauses of a probe use.
fn used(probe: &EnabledProbe, target: &Target) -> Operands {
    let all = (0..).zip(&target.site.arguments);
    let used = all.filter(|(n, _)| probe.args >> n & 1 != 0);
    Operands(used.map(|(n, argument)| (n, argument.clone())).collect())
}

/// The groups of sites, in the order of their operands.
fn groups(probes: &[EnabledProbe], known: &Matches) -> BTreeMap<Operands, Group> {
    let mut groups: BTreeMap<Operands, Group> = BTreeMap::new();
    for probe in probes {
        for target in known.of(probe.id, &probe.desc) {
            groups.entry(used(probe, target)).or_default().add(probe, target);
        }
    }
    groups
}

/// What is reported of sites without probes, and of arguments that cannot be read.
fn notes(known: &Matches, groups: &BTreeMap<Operands, Group>) -> Vec<String> {
    const MOST: usize = 20;
    let refused = known
        .refused
        .iter()
        .map(|(desc, why)| format!("left out: {}`{}:{}: {why}", desc.module, desc.function, desc.name));
    let unreadable = groups.iter().flat_map(|(operands, group)| {
        let name = group.probes.first().map(|(_, probe)| probe.desc.name.clone()).unwrap_or_default();
        operands.0.iter().filter_map(move |(n, argument)| match &argument.source {
            Source::Unreadable(why) => Some(format!("arg{n} of {name} cannot be read: {why}")),
            _ => None,
        })
    });
    refused.chain(unreadable).take(MOST).collect()
}

/// The type of an argument of all these sites: that of the first, or a whole number where they
/// differ.
fn type_of(all: &[&Argument]) -> Option<ArgType> {
    let first = all.first()?;
    let same = all.iter().all(|a| (a.size, a.signed) == (first.size, first.signed));
    let readable = all.iter().find(|a| !matches!(a.source, Source::Unreadable(_)));
    let name = match (readable, &first.source) {
        (None, Source::Unreadable(why)) => format!("(unreadable: {why})"),
        _ if same => first.type_name().to_owned(),
        _ => "int64_t".to_owned(),
    };
    Some(ArgType::text(0, name))
}

impl Provider for Usdt {
    fn facts(&self) -> ProviderFacts {
        let a = |name, data, class| Attributes { name, data, class };
        let unstable = a(Stability::Unstable, Stability::Unstable, Class::Common);
        let private = a(Stability::Private, Stability::Private, Class::Unknown);
        ProviderFacts {
            family: Family::of_any_processes(),
            has_errno: false,
            stability: ProviderStability {
                provider: unstable,
                module: private,
                function: private,
                name: unstable,
                args: unstable,
            },
        }
    }

    /// A description that names no provider would look at every process.
    fn names(&self) -> Names {
        Names { only_by_provider: true, ..Names::default() }
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
        self.probes.with_known(|known| {
            let targets = known.named(probe);
            let most = targets.iter().map(|t| t.site.arguments.len()).min().unwrap_or(0);
            let types = (0..most).filter_map(|n| {
                let all: Vec<&Argument> = targets.iter().filter_map(|t| t.site.arguments.get(n)).collect();
                type_of(&all).map(|ty| ArgType { from: n as u8, ..ty })
            });
            Ok(types.collect())
        })
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        // Some kernels run the program of a process's link in its first thread only.
        let multi = env.features.has(Facility::UprobeMulti) && env.features.has(Facility::UprobeProcess);
        if !multi && !env.features.has(Facility::UprobePerf) {
            let why = env.features.why_not(Facility::UprobePerf).unwrap_or_default();
            return Err(format!("no program can be attached to places in processes: {why}"));
        }
        let (groups, notes) = self.probes.with_known(|known| {
            let groups = groups(probes, known);
            let notes = notes(known, &groups);
            (groups, notes)
        });
        let mut notes = Some(notes);
        let units = groups.into_iter().enumerate();
        let unit = |(number, (operands, group)): (usize, (Operands, Group))| {
            group.unit(number, operands, multi, notes.take().unwrap_or_default())
        };
        Ok(units.map(unit).collect())
    }

    fn all_before(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Vec<Unit> {
        if !env.features.has(Facility::UprobeMulti) {
            return Vec::new();
        }
        let groups = self.probes.with_known(|known| groups(probes, known));
        let unit = |(number, (operands, group)): (usize, (Operands, Group))| Unit {
            name: format!("usdt_pages_{number}"),
            ..group.unit(number, operands, true, Vec::new())
        };
        groups.into_iter().enumerate().map(unit).collect()
    }
}

impl ProcessProvider for Usdt {
    fn pids(&self) -> Vec<u32> {
        self.probes.followed()
    }

    fn follows_all(&self, patterns: &[Pattern]) -> bool {
        patterns.iter().any(|pattern| self.probes.means_any(pattern))
    }

    fn running(&self, patterns: &[Pattern]) -> Vec<u32> {
        self.probes.running(patterns)
    }

    fn follows_loading(&self, pid: u32) -> bool {
        self.probes.follows(pid)
    }

    fn process_changed(
        &self,
        store: &dyn ProbeStore,
        (pid, _): (u32, u64),
        patterns: &[Pattern],
    ) -> Vec<Change> {
        let change = |FileChange { pid, number, name, mut came, went, .. }: FileChange| {
            store.remove(&went);
            // What a program says of itself may be the name of another provider.
            came.retain(|(desc, _)| store.family(&desc.provider).is_some_and(Family::is_of_any));
            let added = store.add(came.iter().map(|(desc, _)| (**desc).clone()).collect());
            let ids: Vec<ProbeId> = added.iter().map(|probe| probe.id).collect();
            self.probes.came((pid, number, &name), &ids);
            self.probes.with_known(|known| {
                let all = ids.iter().zip(came);
                all.for_each(|(id, (desc, targets))| known.add(*id, desc, targets));
            });
            let event = if added.is_empty() { "are removed" } else { "came" };
            let subject = match pid {
                Some(pid) => format!("probes of {name} in process {pid}"),
                None => format!("probes of {name}"),
            };
            Change { subject, event, probes: ProbesChanged { added, removed: went } }
        };
        let is_mine = |p: &&Pattern| store.family(&p.provider).is_none_or(Family::is_of_any);
        let patterns: Vec<&Pattern> = patterns.iter().filter(is_mine).collect();
        self.probes.changed(pid, &patterns).into_iter().map(change).collect()
    }

    fn take_detached(&self) -> Vec<Detached> {
        self.probes.detached()
    }

    fn knows_semaphores(&self) -> bool {
        true
    }

    fn semaphores(&self, probes: &[ProbeInfo], to: &mut Semaphores) {
        self.probes.with_known(|known| {
            for target in probes.iter().flat_map(|probe| known.of(probe.id, &probe.desc)) {
                let semaphore = target.site.semaphore.map(|semaphore| (target.site.offset, semaphore));
                to.add(target.file.inode(), semaphore.into_iter());
            }
        });
    }

    fn close_unmapped(&self) {
        self.probes.close_unmapped();
    }

    fn take_left_out(&self) -> Vec<String> {
        self.probes.with_known(|known| std::mem::take(&mut known.left_out))
    }

    /// That of all its sites, if they have the same.
    fn definition(&self, probe: &ProbeDesc) -> Option<Arc<Definition>> {
        self.probes.with_known(|known| {
            let mut all = known.named(probe).iter().map(|t| t.site.definition.as_ref());
            let first = all.next().flatten()?;
            all.all(|d| d.is_some_and(|d| d.number == first.number)).then(|| first.clone())
        })
    }

    fn will_enable(&self) {
        self.probes.will_enable();
    }

    fn use_readers(&self, readers: &Readers) {
        self.probes.use_readers(readers);
    }
}
