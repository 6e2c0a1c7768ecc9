//! What is known of a machine that is not asked: the parts, and how they are stored in a file.
//!
//! ```text
//!  file     magic, version (u32), checksum of what follows (u32, CRC-32), sections
//!  section  kind (u8), name, size of the bytes, size of them unpacked, bytes (deflated)
//!
//!  kinds    1 machine (release, CPUs, facts, facilities, events, modules)   2 types of NAME   3 symbols   4 functions
//!           5 formats of events.   Others are skipped: a later version may have more.
//! ```
//!
//! A section is unpacked when it is needed. A file may come from anywhere: all sizes and their sum
//! are bounded, and a file that was changed has another checksum. One that somebody made with the
//! right one can contain nonsense, and no more: types are read as those of any file
//! ([`types::btf`]), names are words, and addresses are never followed.

use std::collections::BTreeSet;
use std::fmt;

use bpf_sys::Lockdown;
use bpf_sys::features::Answers;

use crate::blob::Blob;
use crate::wire::{Reader, Writer};

/// The first bytes of a record.
const MAGIC: &[u8; 8] = b"DTSYSTEM";

/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Bytes of the largest file that is read.
pub const LARGEST_RECORD: usize = 64 << 20;

/// Bytes of all sections when they are unpacked. Those of a kernel with all its modules have some
/// 40 MB.
const LARGEST_UNPACKED: u64 = 256 << 20;

/// Bytes of the section of the machine when it is unpacked. What is read of it takes memory at
/// once: up to 24 bytes for each of these.
const LARGEST_MACHINE: u64 = 2 << 20;

const MACHINE: u8 = 1;
const TYPES: u8 = 2;
const SYMBOLS: u8 = 3;
const FUNCTIONS: u8 = 4;
const FORMATS: u8 = 5;

/// Facts about a machine that programs read as variables, or as inlines of the D libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nanoseconds from 1970 to the boot.
    pub boottime: i64,
    /// Nanoseconds from 1970 to the start of the monotonic clock.
    pub wall_offset: i64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Nanoseconds between two ticks of the kernel.
    pub tick: u64,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    pub pid_namespace: u32,
    /// Package and NUMA node of each CPU, by CPU number; -1 if there is none.
    pub cpus: Vec<(i32, i32)>,
    /// The type of the floating-point unit.
    pub fputypes: String,
}

/// What is known of a machine: all that compiling a program asks. [`Record::default`] is a machine
/// of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The machine's name, as of `uname -m`.
    pub arch: String,
    /// The kernel's random id of this boot.
    pub boot_id: String,
    /// Online CPUs.
    pub online_cpus: Vec<u32>,
    /// How many CPUs there can be.
    pub possible_cpus: u32,
    /// Facts that programs read.
    pub facts: Facts,
    /// MHz of each CPU; -1 if it is unknown.
    pub clocks: Vec<i32>,
    /// The kernel's release and its facilities.
    pub features: Answers,
    /// BTF: the kernel's own is `vmlinux`, the others are its modules'.
    pub types: Vec<(String, Blob)>,
    /// The kernel's symbols: see [`Record::set_symbols`].
    pub symbols: Result<Blob, String>,
    /// The functions that can be traced, each a line `name` or `name [module]`, in the kernel's
    /// order.
    pub functions: Result<Blob, String>,
    /// Group and name of the tracepoints that are events, in the kernel's order.
    pub events: Result<Vec<(String, String)>, String>,
    /// The formats of events: see [`Record::set_formats`].
    pub formats: Blob,
    /// Tracepoints that the types name and the kernel does not have.
    pub absent_tracepoints: BTreeSet<String>,
    /// Events that the CPUs or the kernel cannot count: type and number, as of perf.
    pub missing_counters: BTreeSet<(u32, u64)>,
    /// Modules that are loaded or built in.
    pub modules: BTreeSet<String>,
    /// Modules that are loaded.
    pub loaded_modules: BTreeSet<String>,
}

impl Default for Record {
    fn default() -> Record {
        let unknown = || "nothing is known of them".to_owned();
        let (types, formats, absent_tracepoints, missing_counters) = Default::default();
        let (boot_id, modules, loaded_modules) = Default::default();
        Record {
            arch: std::env::consts::ARCH.into(),
            boot_id,
            online_cpus: vec![0],
            possible_cpus: 1,
            facts: Facts { page_size: 4096, ..Facts::default() },
            clocks: vec![-1],
            features: Answers::default(),
            types,
            symbols: Err(unknown()),
            functions: Err(unknown()),
            events: Err(unknown()),
            formats,
            absent_tracepoints,
            missing_counters,
            modules,
            loaded_modules,
        }
    }
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// They do not begin as a record does.
    Foreign,
    /// They are a record of another version.
    Version(u32),
    /// They are too many.
    TooLarge,
    /// They were a record and are damaged: in this part.
    Damaged(&'static str),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Foreign => {
                f.write_str("it is no record of a machine (dtrace --record-system FILE writes one)")
            }
            RecordError::Version(version) => {
                write!(f, "it is a record of version {version}, and this dtrace reads version {VERSION}")
            }
            RecordError::TooLarge => write!(f, "it is larger than {} MiB", LARGEST_RECORD >> 20),
            RecordError::Damaged(part) => write!(f, "it is damaged: {part}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Sets the symbols from a text in the format of `/proc/kallsyms`. Their addresses are kept
    /// relative to the kernel's text.
    pub fn set_symbols(&mut self, kallsyms: &str) {
        self.symbols = crate::kallsyms::pack(kallsyms).map(Blob::new);
    }

    /// Drops the symbols whose name is no such name.
    pub(crate) fn keep_symbols(&mut self, is_name: impl Fn(&str) -> bool) {
        let kept = |blob: &Blob| crate::kallsyms::keep(&blob.open()?, is_name);
        if let Ok(blob) = &self.symbols {
            self.symbols = kept(blob).map(Blob::new);
        }
    }

    /// Sets the formats of events: group, name and the text of the file `format`.
    pub fn set_formats<'a>(&mut self, all: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) {
        let mut w = Writer::default();
        for (group, name, text) in all {
            w.text(group);
            w.text(name);
            w.text(text);
        }
        self.formats = Blob::new(w.0);
    }

    /// Calls with each format. False if they end in the middle of one.
    pub(crate) fn each_format(bytes: &[u8], mut each: impl FnMut(&str, &str, &str)) -> bool {
        let mut r = Reader(bytes);
        while !r.0.is_empty() {
            let (Some(group), Some(name), Some(text)) = (r.text(), r.text(), r.text()) else { return false };
            each(group, name, text);
        }
        true
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        section(&mut w, MACHINE, "", &Blob::new(self.machine()));
        for (name, blob) in &self.types {
            section(&mut w, TYPES, name, blob);
        }
        for (kind, blob) in [(SYMBOLS, &self.symbols), (FUNCTIONS, &self.functions)] {
            if let Ok(blob) = blob {
                section(&mut w, kind, "", blob);
            }
        }
        section(&mut w, FORMATS, "", &self.formats);
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&crc32fast::hash(&w.0).to_le_bytes());
        file.extend_from_slice(&w.0);
        file
    }

    /// Reads a file.
    pub fn from_bytes(file: &[u8]) -> Result<Record, RecordError> {
        let damaged = RecordError::Damaged;
        if file.len() > LARGEST_RECORD {
            return Err(RecordError::TooLarge);
        }
        let file = file.strip_prefix(MAGIC).ok_or(RecordError::Foreign)?;
        let (version, file) = file.split_first_chunk().ok_or(damaged("it has no version"))?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(RecordError::Version(other)),
        }
        let (checksum, file) = file.split_first_chunk().ok_or(damaged("it has no checksum"))?;
        if crc32fast::hash(file) != u32::from_le_bytes(*checksum) {
            return Err(damaged("its checksum is wrong"));
        }
        Record::sections(file)
    }

    /// Reads what the checksum is of.
    fn sections(file: &[u8]) -> Result<Record, RecordError> {
        let damaged = RecordError::Damaged;
        let mut record = None;
        let (mut types, mut formats) = (Vec::new(), Blob::default());
        let (mut symbols, mut functions) = (None, None);
        let mut r = Reader(file);
        let (mut unpacked, mut names) = (0u64, BTreeSet::new());
        while !r.0.is_empty() {
            let (kind, name, blob) = read_section(&mut r).ok_or(damaged("a section is cut short"))?;
            if !names.insert((kind, name.clone())) {
                return Err(damaged("a section is there twice"));
            }
            unpacked = unpacked.saturating_add(blob.size());
            if unpacked > LARGEST_UNPACKED || kind == MACHINE && blob.size() > LARGEST_MACHINE {
                return Err(damaged("it is too large when it is unpacked"));
            }
            match kind {
                MACHINE => {
                    let bytes = blob.open().map_err(|_| damaged("the section of the machine"))?;
                    record = Some(Record::of_machine(&bytes).ok_or(damaged("the section of the machine"))?);
                }
                TYPES => types.push((name, blob)),
                SYMBOLS => symbols = Some(blob),
                FUNCTIONS => functions = Some(blob),
                FORMATS => formats = blob,
                _ => {}
            }
        }
        let mut record = record.ok_or(damaged("it has no section of the machine"))?;
        record.types = types;
        record.formats = formats;
        // The section of the machine says why there are none.
        if let Some(blob) = symbols {
            record.symbols = Ok(blob);
        }
        if let Some(blob) = functions {
            record.functions = Ok(blob);
        }
        Ok(record)
    }

    /// What is in no section of its own.
    fn machine(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.text(&self.arch);
        w.text(&self.boot_id);
        w.list(self.online_cpus.iter(), |w, cpu| w.number(u64::from(*cpu)));
        w.number(u64::from(self.possible_cpus));
        let f = &self.facts;
        w.signed(f.boottime);
        w.signed(f.wall_offset);
        w.number(f.page_size);
        w.number(f.tick);
        w.number(u64::from(f.pid_namespace));
        w.list(f.cpus.iter(), |w, (package, node)| {
            w.signed(i64::from(*package));
            w.signed(i64::from(*node));
        });
        w.text(&f.fputypes);
        w.list(self.clocks.iter(), |w, mhz| w.signed(i64::from(*mhz)));
        let a = &self.features;
        w.text(&a.release);
        w.byte(match a.lockdown {
            Lockdown::None => 0,
            Lockdown::Integrity => 1,
            Lockdown::Confidentiality => 2,
        });
        w.list(a.facilities.iter(), |w, (name, answer)| {
            w.text(name);
            w.result(answer.as_ref().map(drop), |_, ()| ());
        });
        w.number(u64::from(a.array_value));
        w.number(u64::from(a.thread_value));
        for blob in [&self.symbols, &self.functions] {
            w.result(blob.as_ref().map(drop), |_, ()| ());
        }
        w.result(self.events.as_ref(), |w, events| {
            w.list(events.iter(), |w, (group, name)| {
                w.text(group);
                w.text(name);
            });
        });
        w.list(self.absent_tracepoints.iter(), |w, name| w.text(name));
        w.list(self.missing_counters.iter(), |w, (kind, number)| {
            w.number(u64::from(*kind));
            w.number(*number);
        });
        w.list(self.modules.iter(), |w, name| w.text(name));
        w.list(self.loaded_modules.iter(), |w, name| w.text(name));
        w.0
    }

    fn of_machine(bytes: &[u8]) -> Option<Record> {
        let r = &mut Reader(bytes);
        let signed = |r: &mut Reader<'_>| i32::try_from(r.signed()?).ok();
        let pair = |r: &mut Reader<'_>| Some((r.string()?, r.string()?));
        let (arch, boot_id) = (r.string()?, r.string()?);
        let (online_cpus, possible_cpus) = (r.list(Reader::small)?, r.small()?);
        let facts = Facts {
            boottime: r.signed()?,
            wall_offset: r.signed()?,
            page_size: r.number().filter(|n| n.is_power_of_two() && *n <= 1 << 24)?,
            tick: r.number()?,
            pid_namespace: r.small()?,
            cpus: r.list(|r| Some((signed(r)?, signed(r)?)))?,
            fputypes: r.string()?,
        };
        let clocks = r.list(signed)?;
        let features = Answers {
            release: r.string()?,
            lockdown: match r.byte()? {
                0 => Lockdown::None,
                1 => Lockdown::Integrity,
                2 => Lockdown::Confidentiality,
                _ => return None,
            },
            facilities: r.list(|r| Some((r.string()?, r.result(|_| Some(()))?)))?,
            array_value: r.small()?,
            thread_value: r.small()?,
        };
        let blob = |r: &mut Reader<'_>| r.result(|_| Some(Blob::default()));
        Some(Record {
            arch,
            boot_id,
            online_cpus,
            possible_cpus,
            facts,
            clocks,
            features,
            types: Vec::new(),
            symbols: blob(r)?,
            functions: blob(r)?,
            events: r.result(|r| r.list(pair))?,
            formats: Blob::default(),
            absent_tracepoints: r.list(Reader::string)?,
            missing_counters: r.list(|r| Some((r.small()?, r.number()?)))?,
            modules: r.list(Reader::string)?,
            loaded_modules: r.list(Reader::string)?,
        })
    }
}

fn section(w: &mut Writer, kind: u8, name: &str, blob: &Blob) {
    let (bytes, size) = blob.pack();
    w.byte(kind);
    w.text(name);
    w.number(u64::from(size));
    w.bytes(&bytes);
}

fn read_section(r: &mut Reader<'_>) -> Option<(u8, String, Blob)> {
    let (kind, name, size) = (r.byte()?, r.string()?, r.small()?);
    Some((kind, name, Blob::packed(r.bytes()?, size)?))
}

#[cfg(test)]
mod tests;
