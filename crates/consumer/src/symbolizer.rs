//! The interface to symbol lookup.
//!
//! It is a trait, so that tests can check output without a kernel. [`SystemSymbols`] uses the
//! running system.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use events::{AddrForm, SymbolName};
use plane::calls::{CODES, Code};
use proc::watcher::SharedWatcher;

/// A process at a time. An address is only meaningful for one program of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The process id in the tracer's pid namespace; 0 outside of it.
    pub pid: u32,
    /// A time at which it ran the program, in nanoseconds since boot; 0 if it is not known.
    pub time: u64,
}

impl Process {
    /// A process without a time: the newest program that has an address.
    pub fn now(pid: u32) -> Self {
        Process { pid, time: 0 }
    }
}

/// Maps addresses to names.
pub trait Symbolizer: Send {
    /// A batch of records or a snapshot begins. Cached data of running processes may be out of
    /// date.
    fn begin_batch(&mut self) {}

    /// A process was seen whose addresses will be looked up later, perhaps after its exit. Its
    /// address map should be read now.
    fn note(&mut self, _pid: u32) {}

    /// An address of a process was seen. Its address map should be read now, unless it is known.
    fn see(&mut self, _pid: u32) {}

    /// True if a watcher of processes is of use: processes that have ended have names by it.
    fn uses_watcher(&self) -> bool {
        false
    }

    /// Uses a watcher of processes.
    fn set_watcher(&mut self, _watcher: SharedWatcher) {}

    /// Takes what the watcher has seen. Returns false if there is more to read at once.
    fn watch(&mut self) -> bool {
        true
    }

    /// [`Symbolizer::watch`] finds the more the oftener it is called.
    fn is_looking(&self) -> bool {
        false
    }

    /// Names of these addresses will be looked up. Reading them together is cheaper than one by
    /// one.
    fn prepare(&mut self, _wanted: &[(Process, u64)]) {}

    /// Messages about names that could not be read, since the last call.
    fn take_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The user has interrupted the session: names that are slow to read are no longer worth a
    /// wait.
    fn interrupt(&mut self) {}

    /// The name of a kernel address.
    fn kernel(&mut self, addr: u64) -> SymbolName;

    /// The name of an address of a process.
    fn user(&mut self, process: Process, addr: u64) -> SymbolName;

    /// The name of an address in the kernel of a guest, seen in a process: that of its machine, if
    /// it is one.
    fn guest(&mut self, _pid: u32, _addr: u64) -> SymbolName {
        SymbolName::default()
    }

    /// True if source lines or inlined functions are shown.
    fn shows_lines(&self) -> bool {
        false
    }

    /// Source lines and inlined functions of these addresses will be looked up.
    fn prepare_lines(&mut self, _wanted: &[(Process, u64)]) {}

    /// Gives the name of an address of a process its source line, and returns the functions that
    /// were put inline there, the innermost first.
    fn lines(&mut self, _process: Process, _addr: u64, _name: &mut SymbolName) -> Vec<SymbolName> {
        Vec::new()
    }

    /// What a code object of an interpreter is called, by its place in the store
    /// ([`plane::calls`]). `None`: nothing is known of it.
    fn code(&mut self, _place: u32) -> Option<Arc<Code>> {
        None
    }

    /// Uses a store of code objects.
    fn set_codes(&mut self, _codes: Codes) {}

    /// The start of the symbol (or, for `Module`, of the module) that contains a kernel address;
    /// the address itself if that is not known. Keys with `sym()` and `mod()` are aggregated by it.
    fn kernel_start(&mut self, addr: u64, _form: AddrForm) -> u64 {
        addr
    }

    /// The same for an address of a process.
    fn user_start(&mut self, _process: Process, addr: u64, _form: AddrForm) -> u64 {
        addr
    }
}

/// A symbolizer without symbols: no address has a name, and each is printed in hexadecimal.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbolizer for NoSymbols {
    fn kernel(&mut self, _addr: u64) -> SymbolName {
        SymbolName::default()
    }

    fn user(&mut self, _process: Process, _addr: u64) -> SymbolName {
        SymbolName::default()
    }
}

/// The code objects of interpreters that programs have stored ([`plane::calls`]). Each is read
/// once: a place never means another one while the store exists.
#[derive(Default)]
pub struct Codes {
    read: Option<Box<ReadCode>>,
    known: HashMap<u32, Arc<Code>>,
}

/// Reads the code object at a place of the store.
type ReadCode = dyn Fn(u32) -> Option<Code> + Send;

impl Codes {
    /// Code objects that are known. A store has no more than programs remember, but a place that no
    /// program has written may be read as one.
    const MOST: usize = CODES as usize;

    /// A store, by what reads the code object at a place of it.
    pub fn new(read: impl Fn(u32) -> Option<Code> + Send + 'static) -> Codes {
        Codes { read: Some(Box::new(read)), known: HashMap::new() }
    }

    /// The code object at a place. `None`: there is none, or there is no store.
    pub fn get(&mut self, place: u32) -> Option<Arc<Code>> {
        if let Some(code) = self.known.get(&place) {
            return Some(code.clone());
        }
        let code = Arc::new(self.read.as_ref()?(place)?);
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        self.known.insert(place, code.clone());
        Some(code)
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codes").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

/// The symbols of the running system.
#[derive(Debug, Default)]
pub struct SystemSymbols {
    /// The kernel's.
    pub kernel: symbols::Kernel,
    /// Those of processes.
    pub processes: symbols::Processes,
    /// Functions that were put inline are frames of the stacks of processes.
    pub inlines: bool,
    /// Addresses of processes have their source lines.
    pub source_lines: bool,
    /// An address of a process without a symbol is shown as it is, and not as that in the file.
    pub addresses: bool,
    /// The code objects of interpreters.
    pub codes: Codes,
}

/// Only the kernel's symbols of the running system. Addresses of processes are printed in
/// hexadecimal (`-x noresolve`), and no process is read. Functions of an interpreter have names,
/// which programs have stored: they have no address that could be printed instead.
#[derive(Debug, Default)]
pub struct KernelSymbols(pub SystemSymbols);

impl Symbolizer for KernelSymbols {
    fn kernel(&mut self, addr: u64) -> SymbolName {
        self.0.kernel(addr)
    }

    fn user(&mut self, process: Process, addr: u64) -> SymbolName {
        NoSymbols.user(process, addr)
    }

    fn code(&mut self, place: u32) -> Option<Arc<Code>> {
        self.0.code(place)
    }

    fn set_codes(&mut self, codes: Codes) {
        self.0.set_codes(codes);
    }

    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        self.0.kernel_start(addr, form)
    }
}

fn name(name: symbols::Name) -> SymbolName {
    let mut found = SymbolName::new(name.module, name.symbol, name.offset);
    (found.in_file, found.path) = (name.in_file, name.path);
    found
}

impl Symbolizer for SystemSymbols {
    fn begin_batch(&mut self) {
        self.processes.begin_batch();
    }

    fn note(&mut self, pid: u32) {
        self.processes.note(pid);
    }

    fn see(&mut self, pid: u32) {
        self.processes.see(pid);
    }

    fn uses_watcher(&self) -> bool {
        true
    }

    fn set_watcher(&mut self, watcher: SharedWatcher) {
        self.processes.set_watcher(Some(watcher));
    }

    fn watch(&mut self) -> bool {
        self.processes.watch()
    }

    fn is_looking(&self) -> bool {
        self.processes.is_looking()
    }

    fn prepare(&mut self, wanted: &[(Process, u64)]) {
        let wanted: Vec<_> = wanted.iter().map(|(p, addr)| (p.pid, p.time, *addr)).collect();
        self.processes.prepare(&wanted);
    }

    fn take_messages(&mut self) -> Vec<String> {
        self.processes.take_messages()
    }

    fn interrupt(&mut self) {
        self.processes.interrupt();
    }

    fn kernel(&mut self, addr: u64) -> SymbolName {
        name(self.kernel.name(addr))
    }

    fn user(&mut self, process: Process, addr: u64) -> SymbolName {
        let mut name = name(self.processes.name(process.pid, process.time, addr));
        name.in_file = name.in_file.filter(|_| !self.addresses);
        name
    }

    fn guest(&mut self, pid: u32, addr: u64) -> SymbolName {
        name(self.processes.guest_name(pid, addr))
    }

    fn shows_lines(&self) -> bool {
        self.inlines || self.source_lines
    }

    fn prepare_lines(&mut self, wanted: &[(Process, u64)]) {
        let wanted: Vec<_> = wanted.iter().map(|(p, addr)| (p.pid, p.time, *addr)).collect();
        self.processes.prepare_sources(&wanted);
    }

    fn lines(&mut self, process: Process, addr: u64, name: &mut SymbolName) -> Vec<SymbolName> {
        let frames = self.processes.sources(process.pid, process.time, addr);
        let Some((own, inner)) = frames.split_last() else { return Vec::new() };
        let place = |name: &mut SymbolName, frame: &symbols::SourceFrame| {
            if self.source_lines {
                (name.file, name.line) = (frame.file.clone(), frame.line);
            }
        };
        if !self.inlines {
            // Without them, the line is that of the code.
            place(name, frames.first().unwrap_or(own));
            return Vec::new();
        }
        place(name, own);
        let inlined = |frame: &symbols::SourceFrame| {
            let mut inlined = SymbolName::new(name.module.clone(), frame.function.clone(), 0);
            (inlined.path, inlined.inlined) = (name.path.clone(), true);
            place(&mut inlined, frame);
            inlined
        };
        // Only a name that is known tells that there is a frame.
        inner.iter().filter(|frame| frame.function.is_some()).map(inlined).collect()
    }

    fn code(&mut self, place: u32) -> Option<Arc<Code>> {
        self.codes.get(place)
    }

    fn set_codes(&mut self, codes: Codes) {
        self.codes = codes;
    }

    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        match form {
            AddrForm::Module => self.kernel.module_start(addr),
            AddrForm::Symbol | AddrForm::Function => self.kernel.func_start(addr),
            AddrForm::Address | AddrForm::Guest => addr,
        }
    }

    fn user_start(&mut self, process: Process, addr: u64, form: AddrForm) -> u64 {
        let Process { pid, time } = process;
        match form {
            AddrForm::Module => self.processes.module_start(pid, time, addr),
            AddrForm::Symbol | AddrForm::Function => self.processes.func_start(pid, time, addr),
            AddrForm::Guest => self.processes.guest_name(pid, addr).start(),
            AddrForm::Address => addr,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn named(place: u32) -> Option<Code> {
        (place != 7).then(|| Code { name: format!("f{place}"), ..Code::default() })
    }

    #[test]
    fn a_code_object_is_read_once_and_the_memory_of_those_that_are_known_is_bounded() {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let mut codes = Codes::new(move |place| {
            count.fetch_add(1, Ordering::Relaxed);
            named(place)
        });
        for _ in 0..3 {
            assert_eq!(codes.get(5).as_deref(), named(5).as_ref());
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        // One that is stored later is found then.
        assert_eq!((codes.get(7), codes.get(7)), (None, None));
        assert_eq!(reads.load(Ordering::Relaxed), 3);
        for place in 0..3 * CODES {
            codes.get(place);
            assert!(codes.known.len() <= CODES as usize);
        }
        assert_eq!(codes.get(5).as_deref(), named(5).as_ref());
        assert_eq!(Codes::default().get(5), None);
    }

    #[test]
    fn functions_of_an_interpreter_have_names_where_addresses_of_processes_have_none() {
        let mut system = SystemSymbols::default();
        let mut kernel = KernelSymbols::default();
        for symbols in [&mut system as &mut dyn Symbolizer, &mut kernel] {
            assert_eq!(symbols.code(5), None);
            symbols.set_codes(Codes::new(named));
            assert_eq!(symbols.code(5).map(|code| code.name.clone()).as_deref(), Some("f5"));
        }
        assert_eq!(NoSymbols.code(5), None);
    }
}
