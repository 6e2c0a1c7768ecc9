//! What is known about a machine, as a value: its kernel's types, symbols, facilities and facts,
//! CPUs and clocks.
//!
//! ```text
//!  System::live        the machine that this process runs on; each thing is read when it is first asked for
//!  System::recorded    a machine elsewhere, from the bytes of a record
//!  System::synthetic   a machine that is given: for tests, and to compile for another one
//!
//!  System::record ──► Record ──► bytes ──► System::recorded
//! ```
//!
//! The decision that shapes it: the machine is passed, never asked for. What compiles a program
//! takes a `&System` and reads nothing of `/sys` and `/proc` itself, so that two systems in one
//! program do not see each other, and a script can be checked for a kernel that runs nowhere near.
//! The alternative, files that are replaced (`chroot`, `--sysroot`), cannot stand for what is tried
//! and not read: which facilities the kernel has, which tracepoints can be attached to, which
//! counters the processor has.
//!
//! Of processes it has what reads their files. What each consumer knows of processes is its own
//! (`symbols::Processes`): they are asked for by different threads, with different limits, so a
//! common table would be a common lock. A machine that is not live has no processes.
//!
//! A record tells no address of the machine: see [`kallsyms`]. It has no name of the machine or its
//! users, and no contents of memory.
//!
//! The layers of its files, lowest first (`cargo xtask tidy` checks them):
//!
//! ```layers
//! arch/aarch64 arch/x86_64 blob wire
//! arch
//! kallsyms
//! record
//! live
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod arch;
mod blob;
mod kallsyms;
mod live;
mod record;
mod wire;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use bpf_sys::Counter;
use bpf_sys::features::Features;
use symbols::{Readers, SymbolText};
use types::btf::{BtfBlobs, BtfKind, KernelBtf};

pub use blob::Blob;
pub use record::{Facts, LARGEST_RECORD, Record, RecordError};

/// A machine. Cheap to clone: all clones are the same machine.
#[derive(Clone, Debug)]
pub struct System(Arc<Machine>);

/// What reads the files of processes of the running machine. No reader is there while nobody needs
/// one.
static READERS: LazyLock<Readers> = LazyLock::new(Readers::new);

#[derive(Debug)]
struct Machine {
    types: Arc<KernelBtf>,
    /// What reads the files of its processes.
    readers: Readers,
    /// `None`: the running machine.
    given: Option<Given>,
}

/// A machine that is not asked.
#[derive(Debug)]
struct Given {
    record: Arc<Record>,
    features: Features,
    /// The formats of events by group and name.
    formats: OnceLock<HashMap<(String, String), String>>,
    asked: Asked,
}

/// Which lists somebody has asked for.
#[derive(Debug, Default)]
struct Asked {
    functions: AtomicBool,
    events: AtomicBool,
    formats: AtomicBool,
}

/// The types of a record.
#[derive(Debug)]
struct RecordedTypes(Arc<Record>);

impl BtfBlobs for RecordedTypes {
    fn names(&self) -> Vec<String> {
        self.0.types.iter().map(|(name, _)| name.clone()).collect()
    }

    fn blob(&self, name: &str) -> Option<Result<Vec<u8>, String>> {
        let (_, blob) = self.0.types.iter().find(|(of, _)| of == name)?;
        Some(blob.open())
    }
}

/// The symbols of a record.
#[derive(Debug)]
struct RecordedSymbols(Arc<Record>);

impl SymbolText for RecordedSymbols {
    fn text(&self) -> Result<Vec<u8>, String> {
        let packed = self.0.symbols.as_ref().map_err(Clone::clone)?.open()?;
        kallsyms::unpack(&packed).ok_or_else(|| "the record is damaged: the symbols".into())
    }
}

/// Of the text of an event's format, what the arguments of a probe are made of.
fn essence(format: &str) -> String {
    let is_needed = |line: &&str| {
        let field = line.trim_start().strip_prefix("field:");
        line.starts_with("ID:") || field.is_some_and(|field| !field.contains(" common_"))
    };
    let lines = format.lines().filter(is_needed).map(|line| format!("{}\n", line.trim_start()));
    lines.collect()
}

impl System {
    /// The machine that this process runs on. Nothing is read yet. What the kernel's types and
    /// facilities were found to be, and the readers of processes' files, are shared with other
    /// values of it: the process has one kernel.
    pub fn live() -> System {
        System(Arc::new(Machine { types: KernelBtf::running(), readers: READERS.clone(), given: None }))
    }

    /// The same for a library that is in a shared object: what reads the files of processes is this
    /// executable, which has the library too, in the same version; the `dtrace` command is one. Its
    /// readers are those of this value and its clones. `Err`: it cannot be executed, or why it is
    /// refused, in words that name it.
    pub fn live_with_reader(executable: &Path) -> io::Result<System> {
        let readers = Readers::executed(executable)?;
        Ok(System(Arc::new(Machine { types: KernelBtf::running(), readers, given: None })))
    }

    /// A machine that is given. Nothing is asked of the running one.
    pub fn synthetic(record: Record) -> System {
        let record = Arc::new(record);
        let types = Arc::new(KernelBtf::of_blobs(Arc::new(RecordedTypes(record.clone()))));
        System::given_as(record, types)
    }

    fn given_as(record: Arc<Record>, types: Arc<KernelBtf>) -> System {
        let features = Features::given(record.features.clone());
        let given = Given { record, features, formats: OnceLock::new(), asked: Asked::default() };
        System(Arc::new(Machine { types, readers: Readers::new(), given: Some(given) }))
    }

    /// A machine that is given, which notes what is asked of it: see [`System::asked`].
    pub fn watched(record: Record) -> System {
        let record = Arc::new(record);
        let types = Arc::new(KernelBtf::watched(Arc::new(RecordedTypes(record.clone()))));
        System::given_as(record, types)
    }

    /// The machine of a record.
    pub fn recorded(file: &[u8]) -> Result<System, RecordError> {
        Record::from_bytes(file).map(System::synthetic)
    }

    /// True if programs can run there: it is the machine of this process.
    pub fn is_live(&self) -> bool {
        self.0.given.is_none()
    }

    fn given(&self) -> Option<&Record> {
        self.0.given.as_ref().map(|given| &*given.record)
    }

    /// What reads the files of its processes, for all sessions: they share the limit of memory. A
    /// machine that is not live has no processes.
    pub fn readers(&self) -> &Readers {
        &self.0.readers
    }

    /// The kernel's types.
    pub fn types(&self) -> &Arc<KernelBtf> {
        &self.0.types
    }

    /// The kernel's facilities.
    pub fn features(&self) -> &Features {
        match &self.0.given {
            None => Features::running(),
            Some(given) => &given.features,
        }
    }

    /// A new table of the kernel's symbols, which is filled when it is first asked.
    pub fn symbols(&self) -> symbols::Kernel {
        match &self.0.given {
            None => symbols::Kernel::new(),
            Some(given) => symbols::Kernel::given(Arc::new(RecordedSymbols(given.record.clone()))),
        }
    }

    /// The kernel's release, as `uname -r` prints it.
    pub fn release(&self) -> String {
        self.given().map_or_else(bpf_sys::release, |r| r.features.release.clone())
    }

    /// The machine's name, as of `uname -m`.
    pub fn arch(&self) -> &str {
        self.given().map_or(std::env::consts::ARCH, |r| &r.arch)
    }

    /// The kernel's random id of this boot; empty if it is unknown.
    pub fn boot_id(&self) -> String {
        self.given().map_or_else(live::boot_id, |r| r.boot_id.clone())
    }

    /// The CPUs that are online now.
    pub fn online_cpus(&self) -> Vec<u32> {
        self.given().map_or_else(bpf_sys::online_cpus, |r| r.online_cpus.clone())
    }

    /// How many CPUs there can be.
    pub fn possible_cpus(&self) -> usize {
        self.given().map_or_else(bpf_sys::possible_cpus, |r| r.possible_cpus as usize)
    }

    /// Every CPU's number is below this.
    pub fn cpu_numbers_end(&self) -> u32 {
        let end = |r: &Record| {
            r.online_cpus.iter().map(|cpu| cpu.saturating_add(1)).fold(r.possible_cpus, u32::max)
        };
        self.given().map_or_else(bpf_sys::cpu_numbers_end, end)
    }

    /// Facts that programs read.
    pub fn facts(&self) -> Facts {
        self.given().map_or_else(live::facts, |r| r.facts.clone())
    }

    /// MHz of each CPU; -1 if it is unknown. Reading them takes long on a machine with many CPUs.
    pub fn clocks(&self) -> Vec<i32> {
        self.given().map_or_else(live::clocks, |r| r.clocks.clone())
    }

    /// The offset in nanoseconds from the monotonic clock to the time since 1970.
    pub fn wall_offset(&self) -> i64 {
        self.given().map_or_else(live::wall_offset, |r| r.facts.wall_offset)
    }

    /// The functions that can be traced, in the kernel's order: lines `[address] name [module]`; or
    /// why there is no list.
    pub fn functions(&self) -> Result<String, String> {
        match self.given() {
            None => live::functions(live::tracefs()?),
            Some(record) => {
                self.note(|asked| &asked.functions);
                let bytes = record.functions.as_ref().map_err(Clone::clone)?.open()?;
                String::from_utf8(bytes).map_err(|_| "the record is damaged: the functions".into())
            }
        }
    }

    /// True if there is a list of the functions that can be traced, and this process may read it.
    /// It is not read: that takes the kernel tens of milliseconds.
    pub fn may_list_functions(&self) -> bool {
        self.given().map_or_else(live::may_list_functions, |r| r.functions.is_ok())
    }

    /// Group and name of the tracepoints that are events now, in the kernel's order; or why they
    /// cannot be listed.
    pub fn events(&self) -> Result<Vec<(String, String)>, String> {
        self.note(|asked| &asked.events);
        self.given().map_or_else(|| live::events(live::tracefs()?), |r| r.events.clone())
    }

    /// Why the kernel's events and functions are unknown, if they are.
    pub fn why_no_events(&self) -> Option<String> {
        self.given().map_or_else(|| live::tracefs().err(), |r| r.events.as_ref().err().cloned())
    }

    /// The text of the format of an event.
    pub fn event_format(&self, group: &str, event: &str) -> Option<String> {
        if [group, event].iter().any(|n| n.is_empty() || n.contains('/') || n.starts_with('.')) {
            return None;
        }
        let Some(given) = &self.0.given else {
            return live::event_format(live::tracefs().ok()?, group, event);
        };
        self.note(|asked| &asked.formats);
        let formats = given.formats.get_or_init(|| {
            let mut all = HashMap::new();
            // What is damaged has no formats.
            let bytes = given.record.formats.open().unwrap_or_default();
            Record::each_format(&bytes, |group, name, text| {
                all.insert((group.to_owned(), name.to_owned()), text.to_owned());
            });
            all
        });
        formats.get(&(group.to_owned(), event.to_owned())).cloned()
    }

    /// Removes the tracepoints (module and name) that the types have and the kernel has not.
    pub fn keep_existing(&self, tracepoints: &mut Vec<(String, String)>) {
        match self.given() {
            None => live::keep_existing(tracepoints),
            Some(record) => tracepoints.retain(|(_, name)| !record.absent_tracepoints.contains(name)),
        }
    }

    /// True if the machine cannot count an event, with a firing each `count`.
    pub fn lacks_counter(&self, counter: &Counter, count: u64) -> bool {
        match self.given() {
            None => live::lacks_counter(counter, count),
            Some(record) => record.missing_counters.contains(&(counter.kind, counter.config)),
        }
    }

    /// The modules that are loaded now.
    pub fn loaded_modules(&self) -> BTreeSet<String> {
        let live = || bpf_sys::modules().unwrap_or_default().live;
        self.given().map_or_else(live, |r| r.loaded_modules.clone())
    }

    /// True for a kernel module that is loaded or built in, and for the kernel itself. A hyphen in
    /// the name is an underscore.
    pub fn has_module(&self, name: &str) -> bool {
        let plain = name.replace('-', "_");
        name == "vmlinux"
            || self.given().map_or_else(|| live::has_module(&plain), |r| r.modules.contains(&plain))
    }

    /// All that compiling asks of this machine, now. Tries every facility, every tracepoint, and
    /// these counters.
    pub fn record(&self, counters: &[(Counter, u64)]) -> Record {
        if let Some(record) = self.given() {
            return record.clone();
        }
        let mut record = Record {
            arch: self.arch().into(),
            boot_id: self.boot_id(),
            online_cpus: self.online_cpus(),
            possible_cpus: self.possible_cpus() as u32,
            facts: self.facts(),
            clocks: self.clocks(),
            features: self.features().answers(),
            types: self.all_types(),
            functions: self.functions().map(|text| Blob::new(without_addresses(&text).into_bytes())),
            events: self.events(),
            modules: live::modules(),
            loaded_modules: self.loaded_modules(),
            ..Record::default()
        };
        match std::fs::read_to_string("/proc/kallsyms") {
            Ok(text) => record.set_symbols(&text),
            Err(e) => record.symbols = Err(format!("/proc/kallsyms: {e}")),
        }
        record.absent_tracepoints = self.absent_tracepoints(record.events.as_deref().unwrap_or_default());
        let missing = counters.iter().filter(|(counter, count)| self.lacks_counter(counter, *count));
        record.missing_counters = missing.map(|(counter, _)| (counter.kind, counter.config)).collect();
        let formats = self.all_formats(record.events.as_deref().unwrap_or_default());
        record.set_formats(formats.iter().map(|[group, name, text]| (&**group, &**name, &**text)));
        record
    }

    fn note(&self, list: impl Fn(&Asked) -> &AtomicBool) {
        if let Some(given) = &self.0.given {
            list(&given.asked).store(true, Ordering::Relaxed);
        }
    }

    /// Of the record of a machine that is [watched](System::watched), what it was asked for until
    /// now: a record that gives the same answers. Of the symbols those that have such a name; a
    /// list that nobody asked for is empty.
    pub fn asked(&self, is_name: impl Fn(&str) -> bool) -> Option<Record> {
        let given = self.0.given.as_ref()?;
        let mut record = (*given.record).clone();
        let parts = self.0.types.asked();
        record.types = parts.into_iter().map(|(name, bytes)| (name, Blob::new(bytes))).collect();
        let is_asked = |list: &AtomicBool| list.load(Ordering::Relaxed);
        if !is_asked(&given.asked.functions) {
            record.functions = record.functions.map(|_| Blob::default());
        }
        if !is_asked(&given.asked.events) {
            record.events = record.events.map(|_| Vec::new());
        }
        if !is_asked(&given.asked.formats) {
            record.formats = Blob::default();
        }
        record.keep_symbols(is_name);
        Some(record)
    }

    fn all_types(&self) -> Vec<(String, Blob)> {
        let all = std::iter::once("vmlinux".to_owned()).chain(self.types().modules());
        // One that cannot be read has no types here either.
        all.filter_map(|name| {
            let btf = self.types().module(&name)?;
            Some((name, Blob::new(btf.bytes())))
        })
        .collect()
    }

    fn absent_tracepoints(&self, events: &[(String, String)]) -> BTreeSet<String> {
        const PROTOTYPE: &str = "btf_trace_";
        let events: BTreeSet<&str> = events.iter().map(|(_, name)| &**name).collect();
        let mut named = BTreeSet::new();
        for module in std::iter::once("vmlinux".to_owned()).chain(self.types().modules()) {
            let Some(btf) = self.types().module(&module) else { continue };
            let names =
                btf.with_prefix(BtfKind::Typedef, PROTOTYPE).filter_map(|(n, _)| n.strip_prefix(PROTOTYPE));
            named.extend(names.filter(|name| !events.contains(name)).map(String::from));
        }
        let mut there: Vec<(String, String)> =
            named.iter().map(|name| (String::new(), name.clone())).collect();
        live::keep_existing(&mut there);
        there.iter().for_each(|(_, name)| _ = named.remove(name));
        named
    }

    /// Group, name and format of all events, and of those at the entries of system calls.
    fn all_formats(&self, events: &[(String, String)]) -> Vec<[String; 3]> {
        let Ok(root) = live::tracefs() else { return Vec::new() };
        let calls = live::calls(root).into_iter().map(|name| ("syscalls".to_owned(), name));
        let all = events.iter().cloned().chain(calls);
        all.filter_map(|(group, name)| {
            let text = essence(&live::event_format(root, &group, &name)?);
            Some([group, name, text])
        })
        .collect()
    }
}

/// The list of functions without the addresses that some kernels put before the names.
fn without_addresses(functions: &str) -> String {
    const ADDRESS: usize = 16;
    let plain = |line: &'_ str| {
        let rest = line.split_at_checked(ADDRESS).filter(|(at, _)| u64::from_str_radix(at, 16).is_ok());
        let start =
            rest.and_then(|(_, rest)| rest.strip_prefix(' ')).map_or(0, |rest| line.len() - rest.len());
        format!("{}\n", line.get(start..).unwrap_or_default())
    };
    functions.lines().map(plain).collect()
}

#[cfg(test)]
mod tests;
