//! The interface to symbol lookup.
//!
//! It is a trait, so that tests can check output without a kernel. [`SystemSymbols`] uses the
//! running system.

use plane::desc::AddrForm;

/// A process and its exec generation. An address is only meaningful for one program of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The process id in the tracer's pid namespace; 0 outside of it.
    pub pid: u32,
    /// The exec generation as recorded with a stack; 0 for the current program.
    pub generation: u64,
}

impl Process {
    /// The current program of a process.
    pub fn now(pid: u32) -> Self {
        Process { pid, generation: 0 }
    }
}

/// Maps addresses to names.
pub trait Symbolizer {
    /// A batch of records or a snapshot begins. Cached data of running processes may be out of
    /// date.
    fn begin_batch(&mut self) {}

    /// A process was seen whose addresses will be looked up later, perhaps after its exit. Its
    /// address map should be read now.
    fn note(&mut self, _process: Process) {}

    /// Names of these addresses will be looked up. Reading them together is cheaper than one by
    /// one.
    fn prepare(&mut self, _wanted: &[(Process, u64)]) {}

    /// Messages about names that could not be read, since the last call.
    fn take_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// A kernel address: `` module`function+0x1c `` in [`AddrForm::Address`], without the offset in
    /// `Symbol` and `Function`, the module alone in `Module`; `0x…` if there is no symbol.
    fn kernel(&mut self, addr: u64, form: AddrForm) -> String;

    /// The same for an address of a process.
    fn user(&mut self, process: Process, addr: u64, form: AddrForm) -> String;

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

/// A symbolizer without symbols: every address is printed in hexadecimal.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbolizer for NoSymbols {
    fn kernel(&mut self, addr: u64, _form: AddrForm) -> String {
        format!("0x{addr:x}")
    }

    fn user(&mut self, _process: Process, addr: u64, _form: AddrForm) -> String {
        format!("0x{addr:x}")
    }
}

/// The symbols of the running system.
#[derive(Debug, Default)]
pub struct SystemSymbols {
    /// The kernel's.
    pub kernel: symbols::Kernel,
    /// Those of processes.
    pub processes: symbols::Processes,
}

/// Only the kernel's symbols of the running system. Addresses of processes are printed in
/// hexadecimal (`-x noresolve`), and no process is read.
#[derive(Debug, Default)]
pub struct KernelSymbols(pub SystemSymbols);

impl Symbolizer for KernelSymbols {
    fn kernel(&mut self, addr: u64, form: AddrForm) -> String {
        self.0.kernel(addr, form)
    }

    fn user(&mut self, process: Process, addr: u64, form: AddrForm) -> String {
        NoSymbols.user(process, addr, form)
    }

    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        self.0.kernel_start(addr, form)
    }
}

fn show(name: &symbols::Name, form: AddrForm) -> String {
    match form {
        AddrForm::Symbol | AddrForm::Function => name.without_offset().to_string(),
        AddrForm::Module => name.module_only().to_string(),
        AddrForm::Address => name.to_string(),
    }
}

impl Symbolizer for SystemSymbols {
    fn begin_batch(&mut self) {
        self.processes.begin_batch();
    }

    fn note(&mut self, process: Process) {
        self.processes.note(process.pid, process.generation);
    }

    fn prepare(&mut self, wanted: &[(Process, u64)]) {
        let wanted: Vec<_> = wanted.iter().map(|(p, addr)| (p.pid, p.generation, *addr)).collect();
        self.processes.prepare(&wanted);
    }

    fn take_messages(&mut self) -> Vec<String> {
        self.processes.take_messages()
    }

    fn kernel(&mut self, addr: u64, form: AddrForm) -> String {
        show(&self.kernel.name(addr), form)
    }

    fn user(&mut self, process: Process, addr: u64, form: AddrForm) -> String {
        show(&self.processes.name(process.pid, process.generation, addr), form)
    }

    fn kernel_start(&mut self, addr: u64, form: AddrForm) -> u64 {
        match form {
            AddrForm::Module => self.kernel.module_start(addr),
            AddrForm::Symbol | AddrForm::Function => self.kernel.func_start(addr),
            AddrForm::Address => addr,
        }
    }

    fn user_start(&mut self, process: Process, addr: u64, form: AddrForm) -> u64 {
        let Process { pid, generation } = process;
        match form {
            AddrForm::Module => self.processes.module_start(pid, generation, addr),
            AddrForm::Symbol | AddrForm::Function => self.processes.func_start(pid, generation, addr),
            AddrForm::Address => addr,
        }
    }
}
