//! One description, and what it matches in the files of processes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use diagnostics::Tag;
use probes::{FIELD_LIMITS, MatchError, Pattern, ProbeDesc, glob_matches, is_glob};
use proc::share::Owner;
use symbols::ProbeSite;
use usdt::{probe_name, provider_name};

use super::fair::Fair;
use super::names::NO_FUNCTION;
use super::shared::Sharing;
use super::sites::{Form, Forms, Site, Target};
use super::source::{Answer, Reading};
use crate::contract::method::{HeldFile, HeldProcess};
use crate::process::object::{Object, cut};

/// One description, and what it has matched.
pub(super) struct Match<'a> {
    pattern: &'a Pattern,
    /// A probe may be that of all processes.
    shares: bool,
    pub(super) found: BTreeMap<Arc<ProbeDesc>, Vec<Target>>,
    pub(super) refused: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// The providers that the process has, if the description names one process.
    others: HashSet<String>,
    /// Why a file of the process could not be read.
    unread: Option<String>,
    /// How many more probes there may be, and how many there are not for that.
    probes_left: usize,
    left_out: HashSet<Arc<ProbeDesc>>,
    /// What the arguments of files are like.
    forms: HashSet<Vec<Form>>,
}

/// A site that a description selects.
struct Selected {
    desc: Arc<ProbeDesc>,
    /// The probe is that of all processes.
    is_shared: bool,
    site: Arc<Site>,
}

impl<'a> Match<'a> {
    pub(super) fn new(pattern: &'a Pattern, shares: bool) -> Match<'a> {
        let (found, refused, others, forms, left_out) = Default::default();
        let (unread, probes_left) = (None, usize::MAX);
        let shares = shares && pattern.provider.ends_with('*');
        Match { pattern, shares, found, refused, others, unread, probes_left, left_out, forms }
    }

    /// Adds what a process has.
    pub(super) fn process(
        &mut self,
        owner: &Owner,
        reading: &mut Reading,
        fair: &mut Fair,
    ) -> Result<(), MatchError> {
        self.others.clear();
        let (begun, time) = (Instant::now(), fair.time(owner));
        let result = self.files(owner, reading, fair, begun + time);
        fair.looked(owner, begun);
        result
    }

    /// Adds what the files of a process have. It may run any number of files that describe any
    /// number of probes.
    fn files(
        &mut self,
        owner: &Owner,
        reading: &mut Reading,
        fair: &mut Fair,
        until: Instant,
    ) -> Result<(), MatchError> {
        let pid = owner.pid;
        for (count, object) in reading.objects(pid)?.into_iter().enumerate() {
            // A first file, so that one slow answer takes nobody all its probes.
            if Instant::now() >= until && (count > 0 || !fair.has_time()) {
                fair.leave_rest(owner);
                break;
            }
            let (number, sites) = reading.sites(&object);
            if !sites.is_empty() {
                self.others.extend(sites.iter().filter_map(|site| provider_name(&site.provider)));
                // A process is held only if it has probes.
                if self.selects(&object, &sites, pid) {
                    self.file((&object, number, &sites), owner, reading, fair)?;
                }
            }
            // What could not be read was not searched.
            match reading.unread.why(number) {
                Some(why) => self.unread = Some(why.into()),
                None => {
                    if let Some(follow) = reading.followed.get_mut(&pid) {
                        follow.search(self.pattern, number);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds what a file of a process has, as far as that has a share.
    fn file(
        &mut self,
        (object, number, sites): (&Object, u64, &[Arc<Site>]),
        owner: &Owner,
        reading: &mut Reading,
        fair: &mut Fair,
    ) -> Result<(), MatchError> {
        let is_known = reading.has_searched(self.pattern, number, owner.pid);
        let mine = self.select(object, sites, (owner.pid, self.shares));
        let forms: BTreeSet<Form> = mine.iter().map(|selected| selected.site.form()).collect();
        let forms: Vec<Form> = forms.into_iter().collect();
        let is_new = !self.forms.contains(&forms);
        // A probe may have several sites.
        let probes = mine.iter().map(|selected| &selected.desc).collect::<HashSet<_>>().len();
        self.probes_left = fair.probes.left(owner);
        self.left_out.clear();
        // A file that others may run, too, has all of its probes or none: it is searched once for
        // all of them.
        if !is_known && (self.probes_left == 0 || self.shares && self.probes_left < probes) {
            fair.leave_probes(owner, &object.name, probes);
            return Ok(());
        }
        if !is_known && is_new && !owner.is_root() && fair.forms.left(owner) == 0 {
            fair.leave_form(owner, &object.name);
            return Ok(());
        }
        let (process, before) = (reading.process(owner.pid)?, self.found.len());
        if self.object((object, number, sites), mine, (&process, true), reading) {
            reading.follow(&process);
        }
        let found = self.found.len() - before;
        fair.probes.take(owner, found);
        if is_new && found > 0 {
            self.forms.insert(forms);
            fair.forms.take(owner, 1);
        }
        if !self.left_out.is_empty() {
            fair.leave_probes(owner, &object.name, self.left_out.len());
        }
        Ok(())
    }

    /// True if the description selects a site of a file in a process.
    pub(super) fn selects(&self, object: &Object, sites: &[Arc<Site>], pid: u32) -> bool {
        let selects = |site: &Arc<Site>| self.desc(object, site, (pid, self.shares)).is_some();
        object.is_called(&self.pattern.module) && sites.iter().any(selects)
    }

    /// The sites of a file in a process that the description selects.
    fn select(&self, object: &Object, sites: &[Arc<Site>], (pid, shares): (u32, bool)) -> Vec<Selected> {
        let of = |site: &Arc<Site>| {
            let (desc, is_shared) = self.desc(object, site, (pid, shares))?;
            Some(Selected { desc: Arc::new(desc), is_shared, site: site.clone() })
        };
        sites.iter().filter_map(of).collect()
    }

    /// Adds what a file has that came while tracing: its shares are the caller's.
    pub(super) fn came(
        &mut self,
        file: (&Object, u64, &[Arc<Site>]),
        process: (&Arc<HeldProcess>, bool),
        reading: &mut Reading,
    ) {
        let selected = self.select(file.0, file.2, (process.0.pid(), self.shares));
        self.object(file, selected, process, reading);
    }

    /// Adds the sites of a file that are selected. `own`: also those that are of this process
    /// alone. True if there are any of those.
    fn object(
        &mut self,
        (object, number, sites): (&Object, u64, &[Arc<Site>]),
        mut selected: Vec<Selected>,
        (process, own): (&Arc<HeldProcess>, bool),
        reading: &mut Reading,
    ) -> bool {
        let Reading { symbols, held, shared, owners, .. } = reading;
        let pid = process.pid();
        let mut file = None;
        let mut find = || -> Arc<HeldFile> { file.get_or_insert_with(|| held.file(object, symbols)).clone() };
        let sharing = match shared.known(self.pattern, number, pid) {
            Some(sharing) => sharing,
            None => {
                let mut forms: HashMap<Arc<ProbeDesc>, Forms> = HashMap::new();
                for Selected { desc, site, .. } in selected.iter().filter(|s| s.is_shared) {
                    forms.entry(desc.clone()).or_default().insert(site.form());
                }
                match forms.is_empty() {
                    true => Sharing::Own,
                    false => {
                        shared.share((self.pattern, number), (&find(), &object.name), (pid, owners), forms)
                    }
                }
            }
        };
        if self.shares && sharing == Sharing::Own {
            selected = self.select(object, sites, (pid, false));
        }
        let mut any_own = false;
        for Selected { desc, is_shared, site } in selected {
            let is_wanted = if is_shared { sharing == Sharing::New } else { own };
            if !is_wanted {
                continue;
            }
            any_own |= !is_shared;
            if let Err(why) = &site.step {
                self.refused.insert(desc, why.as_str().into());
                continue;
            }
            if self.probes_left == 0 && !self.found.contains_key(&desc) {
                self.left_out.insert(desc);
                continue;
            }
            self.probes_left -= usize::from(!self.found.contains_key(&desc));
            let process = (!is_shared).then(|| process.clone());
            self.found.entry(desc).or_default().push(Target { process, file: find(), site });
        }
        any_own
    }

    /// The probe of a site, if the description selects it, and whether it is that of all processes.
    fn desc(
        &self,
        object: &Object,
        site: &ProbeSite,
        (pid, shares): (u32, bool),
    ) -> Option<(ProbeDesc, bool)> {
        let pattern = self.pattern;
        let is = |pattern: &str, text: &str| pattern == text || glob_matches(pattern, text);
        let provider = provider_name(&site.provider)?;
        // A glob that matches the name of the provider and ends with `*` matches it with any
        // number.
        let is_shared = shares && is(&pattern.provider, &provider);
        let provider = if is_shared { format!("{provider}*") } else { format!("{provider}{pid}") };
        if !is(&pattern.provider, &provider) {
            return None;
        }
        let name = probe_name(&site.name)?;
        let function = site.function.as_ref().map_or(NO_FUNCTION, |(name, _)| cut(name, FIELD_LIMITS[2]));
        let selected = is(&pattern.function, function) && is(&pattern.name, &name);
        selected.then(|| (ProbeDesc::new(provider, object.name.clone(), function, name), is_shared))
    }

    /// Why nothing matches: said of descriptions of one process.
    pub(super) fn nothing(self, pid: Option<u32>) -> Answer {
        if let Some((desc, why)) = self.refused.iter().next() {
            let message = format!("{}`{} has no such probe: {why}", desc.module, desc.name);
            return Err(MatchError::new(message).tagged(Tag::D_PROC_CREATEFAIL));
        }
        let Some(pid) = pid.filter(|_| !is_glob(&self.pattern.provider)) else { return Ok(Vec::new()) };
        let provider = self.pattern.provider.trim_end_matches(|c: char| c.is_ascii_digit());
        let mut others: Vec<String> = self.others.into_iter().collect();
        others.sort_unstable();
        let is_there = others.iter().any(|other| other == provider);
        if is_there && self.unread.is_none() {
            return Ok(Vec::new());
        }
        let message = match is_there {
            true => format!("process {pid} has no such probe in the files that can be read"),
            false => format!("process {pid} has no probes of the provider \"{provider}\""),
        };
        let error = MatchError { may_come: true, ..MatchError::new(message).tagged(Tag::D_PROC_USDT) };
        Err(match others.is_empty() {
            _ if self.unread.is_some() => MatchError { help: self.unread, ..error },
            true => error.with_help("no file that it runs describes probes"),
            false => error.with_help(format!("its files describe {}", others.join(", "))),
        })
    }
}
