//! One description and one process: which functions and instructions of its files the description
//! matches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::known::{At, Entries, Place, Places, Pool, Returns, Target};
use crate::contract::method::{HeldFile, HeldProcess};
use crate::process::lists::{NO_FUNCTION, WITH_STACK, Wanted};
use crate::process::object::{Object, Objects, cut};
use diagnostics::Tag;
use probes::{FIELD_LIMITS, MatchError, Pattern, ProbeDesc, glob_matches};
use symbols::{Function, Processes, SymbolSource};
use text::EntryProbe;

/// How long the reader may take for one request. Lists are read before tracing begins, and decoding
/// a great library takes seconds on an emulated processor.
pub(super) const READING: Duration = Duration::from_secs(20);

/// A file whose functions were listed.
struct Listed<'a> {
    object: &'a Object,
    file: Arc<HeldFile>,
}

impl std::ops::Deref for Listed<'_> {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object
    }
}

/// One description, and what it has matched.
pub(super) struct Match<'a> {
    process: Arc<HeldProcess>,
    /// The processes that run the file that is searched.
    pub(super) processes: Arc<[Arc<HeldProcess>]>,
    pattern: &'a Pattern,
    wanted: Wanted,
    provider: Arc<str>,
    pub(super) found: Places,
    places: Pool<Place>,
    entries: Pool<Entries>,
    returns: Pool<Returns>,
    /// The names of probes.
    names: [Arc<str>; 2],
    pub(super) left_out: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Files whose functions could not be read, as descriptions without a function, and why.
    pub(super) unread: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// The first function that has no instruction at the offset which is asked for.
    refused: Option<MatchError>,
    /// Reading one has taken all the time that there is.
    is_late: bool,
    /// Where the names of the last file were found.
    source: SymbolSource,
}

impl<'a> Match<'a> {
    pub(super) fn new(process: Arc<HeldProcess>, pattern: &'a Pattern, wanted: Wanted) -> Match<'a> {
        let provider = pattern.provider.as_str().into();
        let (found, left_out, unread) = Default::default();
        let (places, entries, returns) = Default::default();
        let processes = [process.clone()].into();
        Match {
            process,
            processes,
            pattern,
            wanted,
            provider,
            found,
            places,
            entries,
            returns,
            names: ["entry", "return"].map(Arc::from),
            left_out,
            unread,
            refused: None,
            is_late: false,
            source: SymbolSource::Full,
        }
    }

    pub(super) fn search(&mut self, object: &Object, symbols: &mut Processes, held: &mut Objects) {
        let by_address = self.pattern.function == NO_FUNCTION;
        if self.is_late {
            let why = "reading another file of the process has taken all the time";
            self.unread.insert(Arc::new(self.desc(object, "", "")), why.into());
            return;
        }
        let begun = Instant::now();
        let list = match held.lists.functions(object, (self.pattern, self.wanted), symbols) {
            Ok(list) => list,
            Err(why) => {
                // A process may have any number of files that a server of its own does not give.
                self.is_late = begun.elapsed() >= READING;
                self.unread.insert(Arc::new(self.desc(object, "", "")), why.into());
                return;
            }
        };
        self.source = list.source();
        let mut functions = list.functions(self.pattern).peekable();
        if functions.peek().is_none() {
            return;
        }
        let object = &Listed { object, file: held.file(object, symbols) };
        if by_address {
            // Symbols may overlap: the innermost whose instructions are certain.
            let all: Vec<Function> = functions.collect();
            let is_certain = |f: &&Function| matches!(f.instructions, Some(Ok(_)));
            if let Some(function) = all.iter().rev().find(is_certain).or(all.last()) {
                self.instruction(object, function, &NO_FUNCTION.into(), function.address);
            }
            return;
        }
        for function in functions {
            let Some(shown) = self.name_of(&function) else { continue };
            if let Some(why) = &function.part {
                // Another description has named it.
                if function.forms().any(|form| form == self.pattern.function) {
                    self.leave_out(object, &shown, &self.pattern.name, why.as_str().into());
                }
                continue;
            }
            if let Some(why) = &function.unresolved {
                let name = if self.wanted.entry { "entry" } else { self.pattern.name.as_str() };
                self.leave_out(object, &shown, name, why.as_str().into());
                continue;
            }
            self.function(object, &function, &shown);
        }
    }

    /// The name that a function's probes have: the preferred one, or the one that the description
    /// matches.
    fn name_of(&self, function: &Function) -> Option<Arc<str>> {
        let matching = function.names.iter().find(|name| name.matches(&self.pattern.function));
        let name = matching.or_else(|| function.names.first())?;
        let mut shown = name.shown();
        if shown.len() >= FIELD_LIMITS[2] {
            shown = &name.raw;
        }
        Some(cut(shown, FIELD_LIMITS[2]).into())
    }

    fn function(&mut self, object: &Listed<'_>, function: &Function, shown: &Arc<str>) {
        let place = |n: usize| match function.entries.get(n) {
            Some(Ok(probe)) => Ok(*probe),
            Some(Err(why)) => Err(why.as_str().into()),
            None => Err("it was not decoded".into()),
        };
        if self.wanted.entry {
            let places = [place(0), place(1), place(2), place(3)];
            match places.iter().find_map(|p| p.as_ref().err()).cloned() {
                Some(why) if places.iter().all(Result::is_err) => self.leave_out(object, shown, "entry", why),
                _ => {
                    let entries = self.entries.get(places);
                    self.add(object, shown, self.names[0].clone(), function, At::Entry(entries));
                }
            }
        }
        if self.wanted.returns {
            match &function.returns {
                Some(Ok(sites)) if sites.is_empty() => {
                    self.leave_out(object, shown, "return", "it never returns".into());
                }
                Some(Err(why)) if !function.returns_by_the_stack || place(WITH_STACK).is_err() => {
                    self.leave_out(object, shown, "return", why.as_str().into());
                }
                Some(sites) => {
                    let new = Returns {
                        entry: place(WITH_STACK),
                        sites: sites.clone().map_err(|why| why.as_str().into()),
                        by_the_stack: function.returns_by_the_stack,
                        calls_itself: function.calls_itself,
                    };
                    let returns = self.returns.get(new);
                    self.add(object, shown, self.names[1].clone(), function, At::Return(returns));
                }
                None => {}
            }
        }
        if self.wanted.instructions || self.wanted.offset.is_some() {
            self.instruction(object, function, shown, 0);
        }
    }

    /// Why a function has no instruction at the offset that is asked for. Another one that the
    /// description matches may have it.
    fn refuse(&mut self, tag: Tag, why: MatchError) {
        self.refused.get_or_insert(why.tagged(tag));
    }

    /// Adds the instructions of a function whose offset, from `base`, is asked for.
    fn instruction(&mut self, object: &Listed<'_>, function: &Function, shown: &Arc<str>, base: u64) {
        let name = match function.names.is_empty() {
            true => format!("the function at {:x}", function.address),
            false => function.name().into(),
        };
        let sites = match &function.instructions {
            Some(Ok(sites)) => sites,
            Some(Err(why)) if self.wanted.offset.is_some() => {
                let why = MatchError::new(format!("the instructions of {name} are not known: {why}"));
                return self.refuse(Tag::D_PROC_OFF, why);
            }
            Some(Err(why)) => {
                return self.leave_out(object, shown, "offsets", why.as_str().into());
            }
            None => return,
        };
        if let Some(wanted) = self.wanted.offset {
            let offset = wanted.wrapping_sub(base);
            let site = sites.iter().find(|site| u64::from(site.offset) == offset);
            return match site.map(|site| site.step) {
                Some(Some(step)) => {
                    let at = At::Offset(EntryProbe::at(offset, step));
                    self.add(object, shown, format!("{wanted:x}").into(), function, at);
                }
                Some(None) => {
                    let why = MatchError::new(format!("the kernel takes no probe at {name}+{offset:#x}"));
                    self.refuse(Tag::D_PROC_CREATEFAIL, why);
                }
                None if offset >= function.size => {
                    let why = MatchError::new(format!("{name} has only {:#x} bytes", function.size));
                    self.refuse(Tag::D_PROC_OFF, why);
                }
                None => {
                    let before = sites.iter().rev().find(|site| u64::from(site.offset) < offset);
                    let before = before.map_or(0, |site| u64::from(site.offset));
                    let after = sites.iter().find(|site| u64::from(site.offset) > offset);
                    let after = after.map_or(function.size, |site| u64::from(site.offset));
                    let error = MatchError::new(format!("no instruction of {name} begins at {wanted:x}"));
                    let (before, after) = (before.wrapping_add(base), after.wrapping_add(base));
                    let error = error.with_help(format!("instructions begin at {before:x} and {after:x}"));
                    self.refuse(Tag::D_PROC_ALIGN, error);
                }
            };
        }
        for site in sites {
            let text = format!("{:x}", site.offset);
            if let Some(step) = site.step.filter(|_| glob_matches(&self.pattern.name, &text)) {
                let at = At::Offset(EntryProbe::at(site.offset.into(), step));
                self.add(object, shown, text.into(), function, at);
            }
        }
    }

    fn desc(&self, object: &Object, function: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ProbeDesc {
        ProbeDesc::new(self.provider.clone(), object.name.clone(), function, name)
    }

    fn add(&mut self, object: &Listed<'_>, shown: &Arc<str>, name: Arc<str>, function: &Function, at: At) {
        let (processes, file) = (self.processes.clone(), object.file.clone());
        let place = self.places.get(Place { processes, file, calling: function.calling.clone() });
        let target = Target { place, offset: function.offset, at };
        self.found.add(self.desc(object, shown.clone(), name), target);
    }

    fn leave_out(&mut self, object: &Object, function: &str, name: &str, why: Arc<str>) {
        self.left_out.insert(Arc::new(self.desc(object, function, name)), why);
    }

    pub(super) fn no_object(&self, objects: &[Object]) -> MatchError {
        const NAMED: usize = 8;
        let names: Vec<&str> = objects.iter().take(NAMED).map(|o| &*o.name).collect();
        let more = if objects.len() > NAMED { ", ..." } else { "" };
        let message = format!("process {} runs no file \"{}\"", self.process.pid(), self.pattern.module);
        let error = MatchError::new(message).tagged(Tag::D_PROC_LIB);
        let error = MatchError { may_come: true, ..error };
        match names[..] {
            [] => error,
            // Another one runs its dynamic linker too.
            [name] => error
                .with_help(format!("{name} is a static program: functions of libraries are its own (a.out)")),
            _ => error.with_help(format!("it runs {}{more}", names.join(", "))),
        }
    }

    /// Why nothing matches, although files do.
    pub(super) fn nothing(&self, called: &[&Object]) -> MatchError {
        if let Some(refused) = &self.refused {
            return refused.clone();
        }
        if let Some((desc, why)) = self.left_out.iter().next() {
            let message = format!("{}`{} has no such probe: {why}", desc.module, desc.function);
            return MatchError::new(message).tagged(Tag::D_PROC_CREATEFAIL);
        }
        if let Some((file, why)) = self.unread.iter().next() {
            // The reader's answer says it with the path.
            let message = match why.starts_with("the functions of ") {
                true => why.to_string(),
                false => format!("the functions of {} cannot be read: {why}", file.module),
            };
            return MatchError::new(message).tagged(Tag::D_PROC_FUNC);
        }
        let files: Vec<&str> = called.iter().map(|o| &*o.name).take(3).collect();
        let more = if called.len() > files.len() { ", ..." } else { "" };
        let (function, files) = (&self.pattern.function, files.join(", "));
        let message = match function.as_str() {
            NO_FUNCTION => format!("no function of {files}{more} is at this address"),
            "" => format!("no functions in {files}{more}"),
            _ => format!("no function \"{function}\" in {files}{more}"),
        };
        if function == NO_FUNCTION {
            let error = MatchError::new(message).tagged(Tag::D_PROC_OFF);
            return error.with_help("symbols and the table of .eh_frame tell where functions are");
        }
        // A library that is loaded later may have it, or a program that the process executes.
        let error = MatchError { may_come: true, ..MatchError::new(message).tagged(Tag::D_PROC_FUNC) };
        match (called, self.source) {
            ([one], SymbolSource::None) => error.with_help(format!(
                "{} is stripped of all names: a debug file with its build id has them",
                one.name
            )),
            ([one], SymbolSource::Dynamic) => error.with_help(format!(
                "{} is stripped and has the names of its exported functions only: a debug file with its build id has all",
                one.name
            )),
            _ => error,
        }
    }
}
