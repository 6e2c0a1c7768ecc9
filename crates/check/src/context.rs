//! What checking gets: types, probes, symbols, libraries, definitions, options.

use std::sync::Arc;

use diagnostics::{Diagnostic, SourceMap};
use probes::{Attributes, Catalog, Version};
use syntax::Libraries;
use syntax::ast::Program;
use types::Types;

/// The inputs of checking.
pub struct Context<'a> {
    /// Types of D, of the programs, and of the kernel.
    pub types: &'a Types,
    /// Probes.
    pub catalog: &'a dyn Catalog,
    /// The kernel's symbols.
    pub symbols: &'a dyn Symbols,
    /// The source texts, for line numbers in messages.
    pub map: &'a SourceMap,
    /// The D libraries.
    pub libraries: &'a Libraries,
    /// The definitions that the files of processes have of their probes.
    pub definitions: &'a [Definition],
    /// Options.
    pub options: Options,
    /// Asked between items: what processes have may take long to check. When it answers true, the
    /// check ends ([`Checked::is_stopped`](crate::Checked)).
    pub stop: &'a dyn Fn() -> bool,
}

/// Access to the kernel's symbol table. Nothing is read before the first query.
pub trait Symbols {
    /// The address of a symbol and its module. Without `module`, the kernel is searched first, then
    /// all modules.
    fn address(&self, module: Option<&str>, name: &str) -> Result<(u64, String), NoSymbol>;

    /// Names of symbols that a misspelled name may have meant.
    fn like(&self, wrong: &str) -> Vec<String>;
}

/// Why a symbol has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSymbol {
    /// There is no such symbol.
    Name,
    /// There is no such symbol. The kernel only has symbols of functions, none of variables.
    FunctionsOnly,
    /// There is no such module.
    Module,
    /// The kernel hides its symbols, for this reason.
    Hidden(String),
}

/// A kernel without symbols.
impl Symbols for () {
    fn address(&self, _: Option<&str>, _: &str) -> Result<(u64, String), NoSymbol> {
        Err(NoSymbol::Name)
    }

    fn like(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// A definition, parsed.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its number in the catalog.
    pub number: u32,
    /// The text, parsed.
    pub program: Arc<Program>,
    /// What is wrong with the syntax.
    pub faults: Vec<Diagnostic>,
}

/// Options that affect the meaning of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a string; rounded up to a multiple of 8.
    pub strsize: u32,
    /// `-Z`: a description may match no probe.
    pub zdefs: bool,
    /// A program without clauses is not an error.
    pub empty: bool,
    /// Frames of `stack()`.
    pub stackframes: u32,
    /// Frames of `ustack()`.
    pub ustackframes: u32,
    /// Default number of frames of `jstack()`.
    pub jstackframes: u32,
    /// Default size of the strings that `jstack()` may record.
    pub jstackstrsize: u32,
    /// Bytes that `pcap()` records of a packet.
    pub pcapsize: u32,
    /// Operands of the command (`$1` first), to detect those that no program references.
    pub operands: Vec<String>,
    /// True if there is a `$target`, for whose addresses `%A` prints names.
    pub target: bool,
    /// The process id of `$target`; 0 if there is none.
    pub target_pid: u32,
    /// Unreferenced operands are not an error.
    pub argref: bool,
    /// Facts about the machine for D libraries. Determined when a program uses them.
    pub facts: FactsReader,
    /// Restricts clauses to this CPU.
    pub cpu: Option<u64>,
    /// Records have the ids of the process and the thread.
    pub process_ids: bool,
    /// `snap()` is no error: there are rings of which it makes a snapshot, or the program only asks
    /// a capture.
    pub snaps: bool,
    /// Using an identifier with lower attributes is an error.
    pub amin: Option<Attributes>,
    /// Identifiers that are newer are undefined.
    pub version: Option<Version>,
}

/// Facts about the machine when the session begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nanoseconds from 1970 to the boot.
    pub boottime: i64,
    /// Bytes of a page.
    pub pagesize: u64,
    /// Nanoseconds between two ticks of the kernel.
    pub tick: u64,
    /// Inode of the tracer's pid namespace; 0 for the initial one.
    pub pid_namespace: u32,
    /// Package and NUMA node of each CPU, by CPU number; -1 if there is none.
    pub cpus: Vec<(i32, i32)>,
    /// The machine name, as of `uname -m`.
    pub processor_type: String,
    /// The type of the floating-point unit.
    pub fputypes: String,
    /// MHz of each CPU.
    pub clocks: ClocksReader,
}

/// A function that is called when a program uses what it returns.
#[derive(Clone)]
pub struct Reader<T>(Arc<dyn Fn() -> T + Send + Sync>);

/// Returns the clock of each CPU. It takes long on a machine with many CPUs.
pub type ClocksReader = Reader<Vec<i32>>;

/// Returns [`Facts`].
pub type FactsReader = Reader<Facts>;

impl<T> Reader<T> {
    /// Calls this function.
    pub fn new(read: impl Fn() -> T + Send + Sync + 'static) -> Reader<T> {
        Reader(Arc::new(read))
    }

    /// What the function returns.
    pub fn read(&self) -> T {
        (self.0)()
    }
}

impl<T: Default + 'static> Default for Reader<T> {
    fn default() -> Self {
        Reader::new(T::default)
    }
}

impl<T> std::fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl<T> PartialEq for Reader<T> {
    /// What is read belongs to the machine, of which a program has one: all values are equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Reader<T> {}

impl Default for Options {
    fn default() -> Self {
        Self {
            strsize: 256,
            zdefs: false,
            empty: false,
            stackframes: 20,
            ustackframes: 100,
            jstackframes: 50,
            jstackstrsize: 512,
            pcapsize: 1514,
            operands: Vec::new(),
            target: false,
            target_pid: 0,
            argref: false,
            facts: FactsReader::default(),
            cpu: None,
            process_ids: false,
            snaps: false,
            amin: None,
            version: None,
        }
    }
}

impl Options {
    /// Bytes of a string, within the limits of programs.
    pub(crate) fn string_size(&self) -> u32 {
        self.strsize.clamp(1, 1 << 20)
    }
}
