//! Which probes a description of the pid provider matches.
//!
//! ```text
//!  pid123:libc:mal*:entry
//!      │    │    │    └─ entry, return, the offset of an instruction; a glob of them
//!      │    │    └────── functions of the files, which the reader of symbols lists (with the places of their probes); `-`: none, the
//!      │    │            offset is an address of the file
//!      │    └─────────── files that the process runs
//!      └──────────────── one process, which must be named: a list of all processes has no end
//! ```
//!
//! No probe is listed before a description asks for it, and every match reads the process's map again. What was matched is remembered
//! with its place, for the plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diagnostics::Tag;
use probes::{FIELD_LIMITS, Family, MatchError, Pattern, ProbeDesc, glob_matches, is_glob};
use symbols::{Function, FunctionQuery, Processes, Select};
use text::{EntryProbe, Kernel, ReturnSite, Uses};

use super::object::{Held, Object, cut, in_root, objects};
use crate::lock;
use crate::method::{HeldFile, HeldProcess};
use crate::source::{Found, IdRange, ProbeSource};

/// What the clauses of an entry probe may notice, from nothing to everything. The place of the probe depends on it.
pub(super) fn uses() -> [Uses; 4] {
    let arguments = (0..6).fold(Uses::NOTHING, Uses::and_argument);
    [Uses::NOTHING, arguments, arguments.and_stack(), arguments.and_registers()]
}

/// The class of [`uses`] in which the return address is where it was at the function's entry.
const WITH_STACK: usize = 2;

/// How long the reader may take for one request. Lists are read before tracing begins, and decoding a great library takes
/// seconds on an emulated processor.
const READING: Duration = Duration::from_secs(20);

/// The memory of the reader.
const MEMORY: u64 = 1 << 30;

/// The function of a description that means addresses of the file.
const NO_FUNCTION: &str = "-";

/// A place in a file of a process.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The process.
    pub(super) process: Arc<HeldProcess>,
    /// The file.
    pub(super) file: Arc<HeldFile>,
    /// Where the function begins in the file.
    pub(super) offset: u64,
    /// The places in the function.
    pub(super) at: At,
}

/// Places in a function.
#[derive(Clone, Debug)]
pub(super) enum At {
    /// The entry, for each class of [`uses`].
    Entry([Result<EntryProbe, Arc<str>>; 4]),
    /// The returns.
    Return {
        /// A place near the entry, for a uretprobe.
        entry: Result<EntryProbe, Arc<str>>,
        /// The instructions.
        sites: Vec<ReturnSite>,
    },
    /// An instruction.
    Offset(EntryProbe),
}

/// What was matched.
#[derive(Default)]
pub(super) struct Known {
    /// The places of each probe.
    pub(super) targets: HashMap<Arc<ProbeDesc>, Vec<Target>>,
    /// What has no probe, and why.
    pub(super) left_out: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Why code of a process may unwind through frames.
    pub(super) unwinds: HashMap<u32, Option<String>>,
    /// The probes of descriptions by other names than theirs.
    otherwise: HashMap<Pattern, Arc<HashSet<Arc<ProbeDesc>>>>,
}

/// What reads processes, and what was found.
struct Reading {
    symbols: Processes,
    held: Held,
}

/// The source.
pub(super) struct PidProbes {
    family: Family,
    reading: Mutex<Option<Reading>>,
    known: Mutex<Known>,
}

impl PidProbes {
    pub(super) fn new(family: Family) -> PidProbes {
        PidProbes { family, reading: Mutex::default(), known: Mutex::default() }
    }

    /// Calls with what was matched so far.
    pub(super) fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut lock(&self.known))
    }

    fn match_process(&self, pid: u32, pattern: &Pattern) -> Result<Vec<Arc<ProbeDesc>>, MatchError> {
        let wanted = Wanted::of(pattern)?;
        let mut reading = lock(&self.reading);
        let Reading { symbols, held } = reading.get_or_insert_with(|| {
            let mut symbols = Processes::new();
            symbols.set_limits(READING, MEMORY);
            Reading { symbols, held: Held::default() }
        });
        let process = read_process(pid, held)?;
        let objects = read_objects(pid, symbols)?;
        let mut matching = Match {
            process,
            pattern,
            wanted,
            provider: pattern.provider.as_str().into(),
            found: BTreeMap::new(),
            left_out: BTreeMap::new(),
            unread: BTreeMap::new(),
            is_late: false,
        };
        let called: Vec<&Object> = objects.iter().filter(|o| o.is_called(&pattern.module)).collect();
        if called.is_empty() {
            return Err(matching.no_object(&objects));
        }
        for object in &called {
            matching.search(object, symbols, held)?;
        }
        let unwinds =
            (!matching.found.is_empty() && wanted_return(pattern)).then(|| unwinds(&objects, symbols));
        let mut known = lock(&self.known);
        if let Some(why) = unwinds {
            known.unwinds.insert(pid, why);
        }
        known.left_out.extend(matching.left_out.clone());
        known.left_out.extend(matching.unread.clone());
        if matching.found.is_empty() {
            return Err(matching.nothing(&called));
        }
        let mut order: Vec<(usize, Arc<ProbeDesc>)> = Vec::new();
        for (desc, (number, targets)) in matching.found {
            known.left_out.remove(&desc);
            order.push((number, desc.clone()));
            known.targets.insert(desc, targets);
        }
        order.sort_unstable_by_key(|(number, _)| *number);
        let descs: Vec<Arc<ProbeDesc>> = order.into_iter().map(|(_, desc)| desc).collect();
        if !descs.iter().all(|desc| pattern.matches(desc)) {
            known.otherwise.insert(pattern.clone(), Arc::new(descs.iter().cloned().collect()));
        }
        Ok(descs)
    }
}

impl ProbeSource for PidProbes {
    fn ids(&self) -> IdRange {
        IdRange::Reserved(0)
    }

    fn positions(&self) -> u32 {
        0
    }

    fn may_match(&self, pattern: &Pattern) -> bool {
        self.family.pid(&pattern.provider).is_some()
    }

    fn matches(&self, pattern: &Pattern, give: &mut dyn FnMut(Found<'_>)) -> Result<(), MatchError> {
        let Some(pid) = self.family.pid(&pattern.provider) else { return Ok(()) };
        for desc in self.match_process(pid, pattern)? {
            give(Found::Made((*desc).clone()));
        }
        Ok(())
    }

    fn matched_otherwise(&self, pattern: &Pattern) -> Option<Arc<HashSet<Arc<ProbeDesc>>>> {
        lock(&self.known).otherwise.get(pattern).cloned()
    }

    fn at(&self, _: u32) -> Option<Arc<ProbeDesc>> {
        None
    }
}

/// What the name of a description asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    entry: bool,
    returns: bool,
    /// Every instruction whose offset matches.
    instructions: bool,
    /// The instruction at this offset.
    offset: Option<u64>,
}

impl Wanted {
    fn of(pattern: &Pattern) -> Result<Wanted, MatchError> {
        let name = pattern.name.as_str();
        let many = name.is_empty() || is_glob(name);
        let wrong = |message: String| {
            Err(MatchError::new(message)
                .with_help("it is entry, return, or the offset of an instruction in hexadecimal, without 0x")
                .tagged(Tag::D_PROC_NAME))
        };
        if pattern.function == NO_FUNCTION {
            return match u64::from_str_radix(name, 16) {
                Ok(address) => {
                    Ok(Wanted { entry: false, returns: false, instructions: false, offset: Some(address) })
                }
                Err(_) => wrong(format!("\"{name}\" is no address of the file")),
            };
        }
        let mut wanted = Wanted {
            entry: glob_matches(name, "entry"),
            returns: glob_matches(name, "return"),
            instructions: many,
            offset: None,
        };
        if !wanted.entry && !wanted.returns && !many {
            wanted.offset = u64::from_str_radix(name, 16).ok();
            if wanted.offset.is_none() {
                return wrong(format!("\"{name}\" is no probe of a function"));
            }
        }
        Ok(wanted)
    }
}

fn wanted_return(pattern: &Pattern) -> bool {
    glob_matches(&pattern.name, "return")
}

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
struct Match<'a> {
    process: Arc<HeldProcess>,
    pattern: &'a Pattern,
    wanted: Wanted,
    provider: Arc<str>,
    found: BTreeMap<Arc<ProbeDesc>, (usize, Vec<Target>)>,
    left_out: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Files whose functions could not be read, as descriptions without a function, and why.
    unread: BTreeMap<Arc<ProbeDesc>, Arc<str>>,
    /// Reading one has taken all the time that there is.
    is_late: bool,
}

impl Match<'_> {
    fn search(
        &mut self,
        object: &Object,
        symbols: &mut Processes,
        held: &mut Held,
    ) -> Result<(), MatchError> {
        let by_address = self.pattern.function == NO_FUNCTION;
        let select = match (by_address, self.wanted.offset) {
            (true, Some(address)) => Select::At(vec![address]),
            _ if self.pattern.function.is_empty() => Select::All,
            _ => Select::Matching(vec![self.pattern.function.clone()]),
        };
        let query = FunctionQuery {
            select,
            kernel: Kernel::UNKNOWN,
            entries: if self.wanted.entry || self.wanted.returns { uses().to_vec() } else { Vec::new() },
            returns: self.wanted.returns,
            instructions: self.wanted.instructions || self.wanted.offset.is_some(),
        };
        if self.is_late {
            let why = "reading another file of the process has taken all the time";
            self.unread.insert(self.desc(object, "", ""), why.into());
            return Ok(());
        }
        let begun = Instant::now();
        let list = match symbols.functions_in(self.process.pid(), &object.text, &query) {
            Ok(list) => list,
            Err(why) => {
                // A process may have any number of files that a server of its own does not give.
                self.is_late = begun.elapsed() >= READING;
                self.unread.insert(self.desc(object, "", ""), why.into());
                return Ok(());
            }
        };
        if list.functions.is_empty() {
            return Ok(());
        }
        let object = &Listed { object, file: held.file(object, symbols) };
        for function in &list.functions {
            let Some(shown) = self.name_of(function) else { continue };
            if by_address {
                self.instruction(object, function, NO_FUNCTION, function.address)?;
                continue;
            }
            if let Some(why) = &function.unresolved {
                let name = if self.wanted.entry { "entry" } else { self.pattern.name.as_str() };
                self.leave_out(object, &shown, name, why.as_str().into());
                continue;
            }
            self.function(object, function, &shown)?;
        }
        Ok(())
    }

    /// The name that a function's probes have: the preferred one, or the one that the description matches.
    fn name_of(&self, function: &Function) -> Option<String> {
        let matching = function.names.iter().find(|name| name.matches(&self.pattern.function));
        let name = matching.or_else(|| function.names.first())?;
        let mut shown = name.shown();
        if shown.len() >= FIELD_LIMITS[2] {
            shown = &name.raw;
        }
        Some(cut(shown, FIELD_LIMITS[2]).into())
    }

    fn function(&mut self, object: &Listed<'_>, function: &Function, shown: &str) -> Result<(), MatchError> {
        let place = |n: usize| match function.entries.get(n) {
            Some(Ok(probe)) => Ok(*probe),
            Some(Err(why)) => Err(why.as_str().into()),
            None => Err("it was not decoded".into()),
        };
        if self.wanted.entry {
            let places = [place(0), place(1), place(2), place(3)];
            match places.iter().find_map(|p| p.as_ref().err()).cloned() {
                Some(why) if places.iter().all(Result::is_err) => self.leave_out(object, shown, "entry", why),
                _ => self.add(object, shown, "entry", function.offset, At::Entry(places)),
            }
        }
        if self.wanted.returns {
            match &function.returns {
                // It never returns.
                Some(Ok(sites)) if sites.is_empty() => {}
                Some(Ok(sites)) => {
                    let at = At::Return { entry: place(WITH_STACK), sites: sites.clone() };
                    self.add(object, shown, "return", function.offset, at);
                }
                Some(Err(why)) => self.leave_out(object, shown, "return", why.as_str().into()),
                None => {}
            }
        }
        if self.wanted.instructions || self.wanted.offset.is_some() {
            self.instruction(object, function, shown, 0)?;
        }
        Ok(())
    }

    /// Adds the instructions of a function whose offset, from `base`, is asked for.
    fn instruction(
        &mut self,
        object: &Listed<'_>,
        function: &Function,
        shown: &str,
        base: u64,
    ) -> Result<(), MatchError> {
        let refused = |tag, why: String| Err(MatchError::new(why).tagged(tag));
        let name = function.name();
        let sites = match &function.instructions {
            Some(Ok(sites)) => sites,
            Some(Err(why)) if self.wanted.offset.is_some() => {
                return refused(Tag::D_PROC_OFF, format!("the instructions of {name} are not known: {why}"));
            }
            Some(Err(why)) => {
                self.leave_out(object, shown, "offsets", why.as_str().into());
                return Ok(());
            }
            None => return Ok(()),
        };
        if let Some(wanted) = self.wanted.offset {
            let offset = wanted.wrapping_sub(base);
            let site = sites.iter().find(|site| u64::from(site.offset) == offset);
            return match site.map(|site| (site, site.step)) {
                Some((_, Some(step))) => {
                    let at = At::Offset(EntryProbe { offset, step });
                    self.add(object, shown, &format!("{wanted:x}"), function.offset, at);
                    Ok(())
                }
                Some((_, None)) => refused(
                    Tag::D_PROC_CREATEFAIL,
                    format!("the kernel takes no probe at {name}+{offset:#x}"),
                ),
                None if offset >= function.size => {
                    refused(Tag::D_PROC_OFF, format!("{name} has only {:#x} bytes", function.size))
                }
                None => {
                    let before = sites.iter().rev().find(|site| u64::from(site.offset) < offset);
                    let before = before.map_or(0, |site| u64::from(site.offset));
                    let after = sites.iter().find(|site| u64::from(site.offset) > offset);
                    let after = after.map_or(function.size, |site| u64::from(site.offset));
                    let error = MatchError::new(format!("no instruction of {name} begins at {offset:x}"));
                    let (before, after) = (before.wrapping_add(base), after.wrapping_add(base));
                    Err(error
                        .with_help(format!("instructions begin at {before:x} and {after:x}"))
                        .tagged(Tag::D_PROC_ALIGN))
                }
            };
        }
        for site in sites {
            let text = format!("{:x}", site.offset);
            if let Some(step) = site.step.filter(|_| glob_matches(&self.pattern.name, &text)) {
                let at = At::Offset(EntryProbe { offset: site.offset.into(), step });
                self.add(object, shown, &text, function.offset, at);
            }
        }
        Ok(())
    }

    fn desc(&self, object: &Object, function: &str, name: &str) -> Arc<ProbeDesc> {
        Arc::new(ProbeDesc::new(self.provider.clone(), object.name.clone(), function, name))
    }

    fn add(&mut self, object: &Listed<'_>, function: &str, name: &str, offset: u64, at: At) {
        let (process, file) = (self.process.clone(), object.file.clone());
        let target = Target { process, file, offset, at };
        let number = self.found.len();
        let (_, targets) =
            self.found.entry(self.desc(object, function, name)).or_insert_with(|| (number, Vec::new()));
        targets.push(target);
    }

    fn leave_out(&mut self, object: &Object, function: &str, name: &str, why: Arc<str>) {
        self.left_out.insert(self.desc(object, function, name), why);
    }

    fn no_object(&self, objects: &[Object]) -> MatchError {
        const NAMED: usize = 8;
        let names: Vec<&str> = objects.iter().take(NAMED).map(|o| &*o.name).collect();
        let more = if objects.len() > NAMED { ", ..." } else { "" };
        let message = format!("process {} runs no file \"{}\"", self.process.pid(), self.pattern.module);
        let error = MatchError::new(message).tagged(Tag::D_PROC_LIB);
        let error = MatchError { may_come: true, ..error };
        match names.is_empty() {
            true => error,
            false => error.with_help(format!("it runs {}{more}", names.join(", "))),
        }
    }

    /// Why nothing matches, although files do.
    fn nothing(&self, called: &[&Object]) -> MatchError {
        if let Some((desc, why)) = self.left_out.iter().next() {
            let message = format!("{}`{} has no such probe: {why}", desc.module, desc.function);
            return MatchError::new(message).tagged(Tag::D_PROC_CREATEFAIL);
        }
        if let Some((file, why)) = self.unread.iter().next() {
            let message = format!("the functions of {} cannot be read: {why}", file.module);
            return MatchError::new(message).tagged(Tag::D_PROC_FUNC);
        }
        let files: Vec<&str> = called.iter().map(|o| &*o.name).take(3).collect();
        let more = if called.len() > files.len() { ", ..." } else { "" };
        let (function, files) = (&self.pattern.function, files.join(", "));
        let message = match function.as_str() {
            NO_FUNCTION => format!("no function of {files}{more} is at this address"),
            _ => format!("no function \"{function}\" in {files}{more}"),
        };
        let tag = if function == NO_FUNCTION { Tag::D_PROC_OFF } else { Tag::D_PROC_FUNC };
        MatchError { may_come: called.len() > 1, ..MatchError::new(message).tagged(tag) }
    }
}

fn no_process(why: String) -> MatchError {
    MatchError::new(why).tagged(Tag::D_PROC_GRAB)
}

/// The process that has a number.
fn read_process(pid: u32, held: &mut Held) -> Result<Arc<HeldProcess>, MatchError> {
    let process = held.process(pid).map_err(|_| no_process(format!("there is no process {pid}")))?;
    match process.thread_of() {
        None => Ok(process),
        Some(group) => {
            Err(no_process(format!("{pid} is a thread of process {group}, which is probed whole")))
        }
    }
}

/// The files that a process runs.
fn read_objects(pid: u32, symbols: &mut Processes) -> Result<Vec<Object>, MatchError> {
    let mapped = symbols.mapped(pid).map_err(no_process)?;
    let link = |name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (exe, root) = (link("exe"), link("root"));
    let exe = in_root(exe.as_os_str().as_encoded_bytes(), root.as_os_str().as_encoded_bytes());
    let path = |file| symbols.mapped_file(file).map(|file| file.path.as_slice());
    let found = objects(pid, &mapped, path, exe);
    if found.is_empty() {
        let why = format!("process {pid} runs no program: it is a thread of the kernel, or has ended");
        return Err(no_process(why));
    }
    Ok(found)
}

/// Libraries that unwind through the frames of their callers, by the beginning of their names.
const UNWINDERS: [&str; 4] = ["libgcc_s.", "libunwind", "libstdc++.", "libc++abi."];

/// Why code of a process may unwind through frames, if it may.
fn unwinds(objects: &[Object], symbols: &mut Processes) -> Option<String> {
    let known = objects.iter().find(|o| UNWINDERS.iter().any(|name| o.name.starts_with(name)));
    if let Some(object) = known {
        return Some(format!("it runs {}", object.name));
    }
    objects.iter().find_map(|object| {
        let found = symbols.functions(object.text.file, &FunctionQuery::names(Select::Nothing));
        // What cannot be read may unwind.
        let why = found.map_or_else(Some, |file| file.unwinds)?;
        Some(format!("{}: {why}", object.name))
    })
}
