//! Probes that come and go: from a change to sites.
//!
//! ```text
//!  change ──► the clauses that match each new probe
//!               a shape is known that has them ──► plan, ids and names, rows, links
//!               none is known                  ──► check, lower
//!                 a shape has this code        ──► as above; it is known for such probes from now on
//!                 none has                     ──► compile, load; the shape is known from now on
//! ```
//!
//! What is compiled for an arrival has all clauses that matched some of its probes. A shape is
//! known for later probes of the same providers whose clauses are among them. Where the meaning of
//! a clause can depend on the probe (`args[]`, `return()`), it is known for probes with the same
//! name and the same types of arguments, and for those for which the clauses were lowered to the
//! same code: see [`super::shapes`]. After `enable` with a clause of ERROR no shape is known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diagnostics::{SourceMap, control};
use events::Sink;
use plane::control::Activity;
use probes::{Catalog, ProbeDesc, ProbeInfo};
use providers::method::Detached;
use providers::{Change, ProbesChanged};

use super::enable::layouts;
use super::shapes::{Group, Kind, Lowered, Matched, NameAndArgs, Shape, ShapeClause, lowered};
use super::state::Running;
use super::{Notice, more_left_out};
use crate::compile::{ListedClause, Program};
use crate::engine::{Arrival, Firings, NewProbe};
use crate::error::Error;
use crate::load::assemble::{NO_IDS, ProbeUse, names_used, provider_pid};
use crate::session::modules::ModuleWatcher;
use crate::session::processes::ProcessChanges;

/// Why probes are not enabled.
type Failure = (Arc<SourceMap>, Error);

impl<S: Sink> Running<S> {
    /// Opens the sources of changes that the program needs.
    pub(super) fn follow_system(&mut self) {
        self.follow_processes_of_probes();
        // Later probes are followed where a description need not match one now. Given firings have
        // no system.
        if self.program.modules.is_none() || self.engine.firings() != Firings::Asynchronous {
            return;
        }
        if !self.follows_modules {
            match ModuleWatcher::new(&self.program) {
                Ok(modules) => {
                    self.follows_modules = modules.is_some();
                    self.sources.extend(modules.map(|m| Box::new(m) as _));
                }
                Err(why) => self.report(&Notice::Missed(why)),
            }
        }
        if !self.follows_providers {
            let sources = self.program.registry.change_sources(&self.program.later_patterns());
            self.follows_providers = !sources.is_empty();
            self.sources.extend(sources);
        }
    }

    /// Follows the processes of which descriptions have asked for probes.
    fn follow_processes_of_probes(&mut self) {
        if self.processes.is_some() || self.engine.firings() != Firings::Asynchronous {
            return;
        }
        if !self.program.follows_processes() {
            return;
        }
        match self.watch_promptly() {
            Ok(watcher) => {
                let follow = self.options.follow;
                self.processes = Some(ProcessChanges::new(watcher, follow));
            }
            Err(why) => self.report(&Notice::Missed(format!(
                "probes of libraries that are loaded later are not enabled: {why}"
            ))),
        }
    }

    /// Enables the probes that came and removes those that went. An error is reported, because
    /// numbers lack something, and the session continues.
    pub(super) fn follow_changes(&mut self) -> Result<(), Error> {
        if self.engine.activity().0 != Activity::Active || self.sources.is_empty() && self.processes.is_none()
        {
            return Ok(());
        }
        let patterns = self.shapes.patterns(&self.program);
        let registry = self.program.registry.clone();
        let mut changes = Vec::new();
        for source in &mut self.sources {
            changes.extend(source.changes(&*registry, &patterns));
        }
        if let Some(processes) = &mut self.processes {
            let engine = &mut self.engine;
            changes.extend(processes.changes(&registry, &patterns, &mut |pid| engine.sets_of(pid)));
        }
        for (pid, why) in registry.take_unwinding() {
            self.engine.close_links(&[Detached::Returns(pid)]);
            self.report(&Notice::Unavailable(format!(
                "process {pid} has loaded code that unwinds through frames ({why}) and was not held: from now on its returns are probed at the \
                 instructions that return, and an exception through a function that it had entered before ends it (-x pidreturn=ret avoids that)"
            )));
        }
        self.apply_and_settle(changes)
    }

    /// Enables and removes the probes of changes, and again those whose process changed meanwhile.
    pub(super) fn apply_and_settle(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        self.apply_changes(changes)?;
        self.settle()
    }

    /// Attaches again what the change of a process has detached.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        let registry = self.program.registry.clone();
        let again = registry.settle();
        for warning in registry.take_warnings() {
            self.report(&Notice::Unavailable(warning));
        }
        let told = &mut self.shapes.told;
        registry.take_left_out().into_iter().for_each(|text| told.add(text));
        for text in told.take(more_left_out) {
            self.report(&Notice::Missed(text));
        }
        self.apply_changes(again)
    }

    /// Enables and removes the probes of changes.
    pub(super) fn apply_changes(&mut self, changes: Vec<Change>) -> Result<(), Error> {
        // All at once: the kernel takes a grace period for each link.
        let detached = self.program.registry.take_detached();
        if !detached.is_empty() {
            self.engine.close_links(&detached);
        }
        // A function that begins with a site of USDT may come first, by another provider, and has
        // its semaphore then.
        let added: Vec<ProbeInfo> = changes.iter().flat_map(|change| &change.probes.added).cloned().collect();
        let _semaphores = self.program.registry.semaphores(&added);
        for Change { subject, event, probes } in changes {
            let ProbesChanged { added, removed } = probes;
            if !removed.is_empty() {
                self.programs.clear();
            }
            self.engine.remove(&removed);
            if added.is_empty() {
                continue;
            }
            match self.enable_added(&added) {
                Ok((matched, failed)) => {
                    let mut all: Vec<String> = Vec::new();
                    for failure in &failed {
                        all.push(self.not_enabled(&subject, failure));
                    }
                    all.dedup();
                    all.into_iter().for_each(|text| self.shapes.told.add(text));
                    let s = if matched == 1 { "probe" } else { "probes" };
                    if matched > 0 {
                        self.report(&Notice::Detail(format!("{subject} {event}: matched {matched} {s}")));
                    }
                }
                Err((_, error @ Error::Output(_))) => return Err(error),
                // The session is about to end.
                Err((_, Error::Interrupted)) => {}
                // The session ended meanwhile.
                Err(_) if self.engine.activity().0 != Activity::Active => {}
                Err(failure) => {
                    let text = self.not_enabled(&subject, &failure);
                    self.shapes.told.add(text);
                }
            }
        }
        Ok(())
    }

    fn not_enabled(&self, subject: &str, (map, error): &Failure) -> String {
        let why = error.messages(map, self.options.errtags).join("\n");
        // A provider's probes are the subject themselves.
        let of = if subject.starts_with("probes of ") { "" } else { "probes of " };
        format!("{of}{subject} are not enabled: {why}")
    }

    /// Forgets the enabled-probe ids of removed sites of which no record is to come. A speculation
    /// may have a record of a site from before its removal, so the names are kept until the
    /// speculations that had begun then are free.
    pub(super) fn release_removed(&mut self) {
        let released = self.engine.release();
        let complete = if self.engine.speculates() { self.engine.complete_until() } else { u64::MAX };
        self.held.remove(self.removed.add(released, self.engine.now(), complete));
        self.held.take_removed().into_iter().for_each(|epid| self.consumer.disable(epid));
    }

    /// Enables new probes. Returns the number of enablings (of pairs of a clause and a probe), and
    /// why some probes are not enabled.
    fn enable_added(&mut self, added: &[ProbeInfo]) -> Result<(usize, Vec<Failure>), Failure> {
        let listed = self.shapes.listed(&self.program);
        let registry = self.program.registry.clone();
        let selecting: Vec<Vec<_>> =
            listed.iter().map(|c| c.patterns.iter().map(|p| registry.selects(p)).collect()).collect();
        let mut groups: Vec<Group> = Vec::new();
        // The kernel's types are compared and hashed by their address.
        #[allow(clippy::mutable_key_type)]
        let mut places: HashMap<Option<NameAndArgs>, usize> = HashMap::new();
        for probe in added {
            let selected = |(n, _): &(usize, &ListedClause)| {
                selecting.get(*n).is_some_and(|all| all.iter().any(|selects| selects(&probe.desc)))
            };
            let clauses = || listed.iter().enumerate().filter(selected);
            let Some(family) = self.program.registry.family(&probe.desc.provider) else { continue };
            let defined = clauses().any(|(_, clause)| clause.uses.raw_args)
                && self.program.registry.definition(&probe.desc).is_some();
            let by_probe = clauses().any(|(_, clause)| clause.depends_on_probe(defined));
            let only = by_probe.then(|| self.only(&probe.desc));
            let kind = |clause: &ListedClause| {
                let only = only.clone().filter(|_| clause.depends_on_probe(defined));
                Kind { family: family.clone(), only }
            };
            let clauses: Vec<_> = clauses().map(|(n, clause)| (n, kind(clause))).collect();
            if clauses.is_empty() {
                continue;
            }
            let at = *places.entry(only).or_insert_with_key(|only| {
                groups.push(Group { only: only.clone(), all: Vec::new() });
                groups.len() - 1
            });
            let matched = Matched { probe: probe.clone(), clauses };
            groups.get_mut(at).into_iter().for_each(|group| group.all.push(matched.clone()));
        }
        let enablings = |groups: &[Group]| groups.iter().map(Group::enablings).sum::<usize>();
        let matched = enablings(&groups);
        let mut unknown = Vec::new();
        for group in groups {
            if !self.enable_known(&group.all).map_err(|e| (self.program.map.clone(), e))? {
                unknown.push(group);
            }
        }
        let mut failed = Vec::new();
        self.enable_unknown(unknown, &listed, &mut failed)?;
        let (mut failures, groups): (Vec<Failure>, Vec<Group>) = failed.into_iter().unzip();
        let mut matched = matched - enablings(&groups);
        match self.enable_at_bases(added, &mut failures) {
            Ok(derived) => matched += derived,
            Err(failure) if matched == 0 && failures.is_empty() => return Err(failure),
            Err(failure @ (_, Error::Output(_) | Error::Interrupted)) => return Err(failure),
            Err(failure) => failures.push(failure),
        }
        Ok((matched, failures))
    }

    /// Enables derived probes at new probes that are bases of theirs. Returns the number of
    /// enablings. Why some clauses are not enabled there goes to `failures`.
    fn enable_at_bases(
        &mut self,
        added: &[ProbeInfo],
        failures: &mut Vec<Failure>,
    ) -> Result<usize, Failure> {
        let Some(more) = self.lower_for_bases(added, failures)? else { return Ok(0) };
        let (map, trees, options) = (more.map.clone(), self.program.titles.len(), self.options.clone());
        // What the clauses of the library require may exclude the bases.
        if more.running == more.checked.clauses.len() {
            return Ok(0);
        }
        self.enable_program(more, options, Some(false)).map_err(|e| (map, e))?;
        Ok((trees..self.program.titles.len()).map(|tree| self.program.matched(tree)).sum())
    }

    /// Checks and lowers the clauses of derived probes for new bases. A clause with an error, which
    /// nothing found before there was a base, keeps no other from firing.
    fn lower_for_bases(
        &self,
        added: &[ProbeInfo],
        failures: &mut Vec<Failure>,
    ) -> Result<Option<Program>, Failure> {
        let mut wrong = HashSet::new();
        loop {
            let strings = self.strings.iter().map(|s| s.to_vec()).collect();
            let more =
                self.program.extend_for_bases(added, &wrong, &self.options, strings, &*self.interrupted);
            let (map, error) = match more.transpose() {
                Ok(more) => return Ok(more),
                Err((map, error)) => (Arc::new(map), error),
            };
            let known = wrong.len();
            if let Error::Program(all) = &error {
                wrong.extend(all.iter().filter_map(|d| d.item));
            }
            if wrong.len() == known {
                return Err((map, error));
            }
            failures.push((map, error));
        }
    }

    fn only(&self, desc: &ProbeDesc) -> NameAndArgs {
        let registry = &self.program.registry;
        (desc.name.clone(), registry.args(desc), registry.definition(desc).map(|d| d.number))
    }

    /// Enables probes of known shapes, by rows and links alone. False if a shape is not known.
    fn enable_known(&mut self, all: &[Matched]) -> Result<bool, Error> {
        let mut passed = 0;
        // The programs of a shape may not be attachable to all probes that it serves.
        while let Some(parts) = self.known_parts(all, passed) {
            if self.enable_parts(parts)? {
                return Ok(true);
            }
            passed += 1;
        }
        Ok(false)
    }

    /// Probes by their known shapes: the newest one that serves a probe, after so many newer ones
    /// were passed. `None` if there is no further choice.
    fn known_parts<'m>(&self, all: &'m [Matched], passed: usize) -> Option<Vec<(usize, Vec<&'m Matched>)>> {
        let mut parts: Vec<(usize, Vec<&Matched>)> = Vec::new();
        let mut has_choice = false;
        for m in all {
            let known = self.shapes.known.iter().enumerate().rev();
            let serving = known.filter(|(_, s)| s.serves(m)).map(|(at, _)| at);
            let (nth, at) = serving.take(passed + 1).enumerate().last()?;
            has_choice |= nth == passed;
            match parts.iter_mut().find(|(shape, _)| *shape == at) {
                Some((_, all)) => all.push(m),
                None => parts.push((at, vec![m])),
            }
        }
        has_choice.then_some(parts)
    }

    /// Enables probes of these known shapes. False if their programs cannot be attached to them.
    fn enable_parts(&mut self, parts: Vec<(usize, Vec<&Matched>)>) -> Result<bool, Error> {
        let mut arrivals = Vec::new();
        for (at, all) in parts {
            let mut probes = Vec::new();
            for m in all {
                let (names, pid) = self.intern(&m.probe.desc, self.shapes.known[at].names);
                let shape = &self.shapes.known[at];
                let probe = shape.usage(m).of_probe(&m.probe);
                let (first, clauses) = (self.next_epid, shape.bits(m));
                let next = first.checked_add(shape.clauses.len() as u32);
                self.next_epid = next.ok_or_else(|| Error::Setting(NO_IDS.into()))?;
                let calls = self.program.registry.calls(&probe.desc.provider);
                let shown = crate::engine::probe(probe.id, &probe.desc, calls);
                self.consumer.enable_site(first, shown, shape.layouts.clone());
                probes.push(NewProbe { probe, names, pid, first, clauses });
            }
            arrivals.push(Arrival { shape: self.shapes.known[at].number, probes });
        }
        let interrupted = self.interrupted.clone();
        let arrived =
            self.engine.arrive(&self.program, &self.options, &arrivals, &self.strings, &*interrupted);
        self.report_engine();
        let none = match &arrived {
            Ok(Some(rejected)) => rejected.clone(),
            Ok(None) | Err(_) => arrivals.iter().flat_map(|a| &a.probes).map(|p| p.first).collect(),
        };
        none.into_iter().for_each(|first| self.consumer.disable(first));
        arrived.map(|done| done.is_some())
    }

    /// Interns the names of a probe that clauses use. Gives them, and the process id that follows
    /// the first in a family of processes.
    fn intern(&mut self, desc: &ProbeDesc, used: [bool; 4]) -> ([u32; 4], u32) {
        let Running { shapes, strings, consumer, program, .. } = self;
        for (number, text) in strings.iter().enumerate().skip(shapes.numbered) {
            shapes.numbers.entry(text.clone()).or_insert(number as u32);
        }
        let family = program.registry.family(&desc.provider);
        let pid = family.map_or(0, |f| provider_pid(desc, f, program.module.strsize as usize));
        let mut fields = desc.fields();
        if let Some(family) = family.filter(|_| pid != 0) {
            fields[0] = family.prefix_of(fields[0]);
        }
        let most = (program.module.strsize as usize).saturating_sub(1);
        let mut names = [0; 4];
        for ((name, field), _) in names.iter_mut().zip(fields).zip(used).filter(|(_, used)| *used) {
            let text = &field.as_bytes()[..field.len().min(most)];
            *name = match shapes.numbers.get(text) {
                Some(number) => *number,
                None => {
                    let (number, text): (u32, Arc<[u8]>) = (strings.len() as u32, text.into());
                    consumer.intern(number, control::name(&text).as_bytes());
                    strings.push(text.clone());
                    shapes.numbers.insert(text, number);
                    number
                }
            };
        }
        shapes.numbered = strings.len();
        if pid != 0 {
            consumer.intern_provider(names[0], pid, control::name_text(&desc.provider).as_bytes());
        }
        (names, pid)
    }

    /// Enables probes of which no shape is known. They are lowered, and only code that no shape has
    /// is compiled. Probes for which the clauses have errors keep no others from firing: these
    /// groups go to `failed`.
    fn enable_unknown(
        &mut self,
        mut groups: Vec<Group>,
        listed: &[ListedClause],
        failed: &mut Vec<(Failure, Group)>,
    ) -> Result<(), Failure> {
        let mut compiled = 0;
        while let Some(first) = groups.first() {
            let mut more = match self.lower_for(&groups, listed) {
                Ok(more) => more,
                Err(why @ (_, Error::Interrupted)) => return Err(why),
                Err(why) if groups.len() == 1 => {
                    failed.push((why, first.clone()));
                    break;
                }
                Err(_) => {
                    let others = groups.split_off(groups.len() / 2);
                    self.enable_unknown(groups, listed, failed)?;
                    return self.enable_unknown(others, listed, failed);
                }
            };
            let of = (groups.len(), self.strings.len());
            groups = self.without_known(&more, groups, listed)?;
            let is_fixed = |group: &Group| self.shapes.fixed.contains(&group.sources_of_families());
            let next = groups.iter().position(|group| !is_fixed(group)).filter(|_| compiled < COMPILED_MAX);
            // Programs that cannot serve later probes are compiled together.
            let now = match next {
                Some(at) => vec![groups.remove(at)],
                None => std::mem::take(&mut groups),
            };
            if now.is_empty() {
                break;
            }
            if of != (now.len(), self.strings.len()) {
                more = self.lower_for(&now, listed)?;
            }
            self.enable_lowered(more, &now, listed, next.is_some())?;
            compiled += 1;
        }
        Ok(())
    }

    /// Checks and lowers clauses for new probes.
    fn lower_for(&self, groups: &[Group], listed: &[ListedClause]) -> Result<Program, Failure> {
        let groups = groups.iter().map(|group| {
            let probes: Vec<ProbeInfo> = group.all.iter().map(|m| m.probe.clone()).collect();
            (probes, group.sources().iter().filter_map(|n| listed.get(*n)).collect())
        });
        let strings = self.strings.iter().map(|s| s.to_vec()).collect();
        let groups: Vec<_> = groups.collect();
        let more = self.program.extend_for(&groups, &self.options, strings, &*self.interrupted);
        more.map_err(|(map, e)| (Arc::new(map), e))
    }

    /// Enables those of the groups whose lowered code is that of a known shape. Returns the others.
    fn without_known(
        &mut self,
        more: &Program,
        groups: Vec<Group>,
        listed: &[ListedClause],
    ) -> Result<Vec<Group>, Failure> {
        self.report_left_out(more);
        let mut known = vec![false; groups.len()];
        let lowered = lowered(more, &self.program, &groups, listed);
        for of_group in lowered.chunk_by(|a, b| a.group == b.group) {
            let learned = self.shapes.known.iter_mut().rev().any(|shape| shape.learn(of_group));
            if let Some(known) = of_group.first().and_then(|l| known.get_mut(l.group)) {
                *known = learned;
            }
        }
        let mut others = Vec::new();
        for (group, known) in groups.into_iter().zip(known) {
            if !known || !self.enable_known(&group.all).map_err(|e| (more.map.clone(), e))? {
                others.push(group);
            }
        }
        Ok(others)
    }

    /// Enables a program that was lowered for these groups. With `grow`, it is to become a shape.
    fn enable_lowered(
        &mut self,
        more: Program,
        groups: &[Group],
        listed: &[ListedClause],
        grow: bool,
    ) -> Result<(), Failure> {
        let (map, before, options) = (more.map.clone(), self.program.clone(), self.options.clone());
        let failed = |e| (map.clone(), e);
        let enabled = self.enable_program(more, options, Some(grow)).map_err(failed)?;
        let lowered = lowered(&self.program, &before, groups, listed);
        let whole = lowered.len() + self.program.running == self.program.checked.clauses.len();
        match enabled.shape.filter(|_| whole) {
            Some(number) => {
                let shape = shape(&self.program, number, lowered).map_err(failed)?;
                self.shapes.known.push(shape);
            }
            None if grow => self.shapes.fixed.extend(groups.iter().map(Group::sources_of_families)),
            None => {}
        }
        Ok(())
    }
}

/// The shape of a program that was compiled for later probes.
fn shape(program: &Program, number: u32, lowered: Vec<Lowered<'_>>) -> Result<Shape, Error> {
    let clause = |Lowered { source, number, code, kinds, .. }: Lowered<'_>| {
        let usage = ProbeUse::of(&program.module, number);
        ShapeClause { source, code: code.clone(), kinds, usage }
    };
    let clauses = lowered.into_iter().map(clause).collect();
    let layouts = layouts(program)?.into_iter().skip(program.running).collect();
    Ok(Shape { clauses, number, layouts, names: names_used(&program.module) })
}

/// The programs that are compiled for one arrival, each of another shape. If its probes need more,
/// the rest of them have one program together, which serves no others.
const COMPILED_MAX: usize = 16;
