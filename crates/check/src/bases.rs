//! The probes that the descriptions of libraries match, for the program that is checked.
//!
//! A program sees the bases that exist when it is first checked. The bases that come later are
//! those of another program with its clauses: see [`LaterBases`](crate::LaterBases). Each answer is
//! in the [`Record`](crate::Record).

use std::sync::Arc;

use probes::{Args, Pattern, ProbeDesc, ProbeInfo};
use syntax::ast;

use crate::derivations::pattern_of;
use crate::session::Checker;
use crate::state::matching::NO_PROGRAM;

impl Checker<'_> {
    /// True if a description of a program may match a probe: of a program for later bases only a
    /// derived one.
    pub(crate) fn may_describe(&self, program: usize, probe: &ProbeInfo) -> bool {
        match self.matching.visibility.later_bases(program) {
            Some(_) => self.derivations.declares(probe),
            None => self.matching.visibility.is_visible(program, probe.id),
        }
    }

    /// The derived probes that a description of the program matches. Where a description need not
    /// match, they include those without a base: it may come.
    pub(crate) fn derived_probes(&mut self, desc: &ast::ProbeDesc) -> Vec<ProbeInfo> {
        let recorded = |pattern: Pattern| {
            let found = self.matching.recorded(self.matching.number, &pattern)?;
            Some((pattern, found))
        };
        let (pattern, found) = pattern_of(desc).and_then(recorded).unwrap_or_else(|| self.found(desc));
        let (mut derived, _) = self.derivations.split(&found);
        derived.extend(self.absent(&pattern));
        if self.matching.later_bases().is_none() {
            derived.retain(|probe| self.matching.is_visible(probe.id));
        }
        derived
    }

    /// The derived probes that the description of a base matches.
    pub(crate) fn derived_bases(&mut self, desc: &ast::ProbeDesc) -> Vec<ProbeInfo> {
        let (pattern, found) = self.bases_matched(desc);
        let (mut derived, _) = self.derivations.split(&found);
        derived.extend(self.absent(&pattern));
        derived
    }

    fn absent(&mut self, pattern: &Pattern) -> Vec<ProbeInfo> {
        match self.cx.options.zdefs && self.derivations.may_mean(pattern) {
            true => self.without_base(pattern),
            false => Vec::new(),
        }
    }

    /// Remembers the descriptions of a clause that the program can need.
    pub(crate) fn may_have_bases(&mut self, clause: &ast::Clause) {
        if !self.cx.options.zdefs || self.matching.is_checked_again() || self.matching.later_bases().is_some()
        {
            return;
        }
        for pattern in clause.probes.iter().filter_map(pattern_of) {
            let base = (self.matching.number, pattern);
            if !self.matching.record.bases.contains(&base) {
                self.matching.record.bases.push(base);
            }
        }
    }

    /// The probes that the description of a base matches for the current program, without a
    /// message.
    pub(crate) fn bases_matched(&mut self, desc: &ast::ProbeDesc) -> (Pattern, Arc<[ProbeInfo]>) {
        let Some(pattern) = pattern_of(desc) else { return (Pattern::default(), Arc::new([])) };
        let key = (self.matching.number, pattern.clone());
        if let Some(known) = self.matching.record.matched.get(&key) {
            return (pattern, known.clone());
        }
        let (_, mut found) = self.found(desc);
        let later = self.matching.later_bases();
        let is_visible = |p: &ProbeInfo| match later {
            Some(later) => later.ids.contains(&p.id.0) || self.derivations.declares(p),
            None => self.matching.is_visible(p.id),
        };
        if !found.iter().all(is_visible) {
            found = found.iter().filter(|p| is_visible(p)).cloned().collect();
        }
        if self.matching.number != NO_PROGRAM {
            self.matching.record.matched.insert(key, found.clone());
        }
        (pattern, found)
    }

    /// The probes that a description matches, without a message.
    fn found(&mut self, desc: &ast::ProbeDesc) -> (Pattern, Arc<[ProbeInfo]>) {
        if let ast::ProbeDescKind::Id(id) = &desc.kind {
            let found = self.probe_of_id(*id);
            let pattern = found.as_ref().map_or_else(Pattern::default, |p| Pattern::exact(&p.desc));
            return (pattern, found.into_iter().collect());
        }
        let Some(pattern) = pattern_of(desc) else { return (Pattern::default(), Arc::new([])) };
        if let Some(known) = self.matching.matched.get(&pattern) {
            return (pattern, known.clone());
        }
        let found: Arc<[ProbeInfo]> = self.cx.catalog.matches(&pattern).unwrap_or_default().into();
        if !found.is_empty() {
            self.matching.matched.insert(pattern.clone(), found.clone());
        }
        (pattern, found)
    }

    /// True if the running system has a probe that a description matches. With `arg`, the first
    /// that matches must have that argument. A program that runs keeps the answer that it had.
    pub(crate) fn has_probe(&mut self, desc: &ast::ProbeDesc, arg: Option<u64>) -> bool {
        let key = pattern_of(desc).map(|pattern| (self.matching.number, pattern, arg));
        if let Some(known) = key.as_ref().and_then(|key| self.matching.record.defined.get(key)) {
            return *known;
        }
        let has = |c: &mut Self, probe: &ProbeInfo| {
            arg.is_none_or(|n| c.args_of(&probe.desc).is_ok_and(|args| n < args.len() as u64))
        };
        let (_, found) = self.found(desc);
        // For later probes, in whose program descriptions match no others, and for later bases, the
        // answer is that of the time when they came.
        let all = self.matching.later_bases().is_some() || self.matching.is_for_later();
        let is_visible = |p: &&ProbeInfo| all || self.matching.is_visible(p.id);
        let first = found.iter().find(is_visible).cloned();
        let holds = first.is_some_and(|probe| has(self, &probe));
        if let Some(key) = key.filter(|_| self.matching.number != NO_PROGRAM) {
            self.matching.record.defined.insert(key, holds);
        }
        holds
    }

    /// The types of the arguments of a probe.
    pub(crate) fn args_of(&mut self, probe: &Arc<ProbeDesc>) -> Args {
        self.defined_args(probe).unwrap_or_else(|| self.provided_args(probe))
    }
}
