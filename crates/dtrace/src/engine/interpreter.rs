//! Sessions without a kernel: firings that the caller gives, executed by the interpreter of the
//! intermediate form.
//!
//! ```text
//!  compile(sources) ──► Program ──► Session::interpret(program, Interpreter, sink) ──► work … ──► finish
//!                                                         │
//!   Firing: probe, time, CPU, process, arguments, stacks, memory        no privilege, no BPF
//! ```
//!
//! It is for tests of scripts, and of programs that use this library: the program, the session, the
//! consumer and the text are those of a session in the kernel, and only the probes that fire are
//! given. The interpreter is the oracle of the code generator, so a clause computes the same values
//! and has the same faults as in the kernel. The engine writes records into rings in the layout
//! that programs in the kernel use, and the same reader drains them.
//!
//! One thing is better than in the kernel, and a test can rely on it: the output is a function of
//! the program and the firings. Each firing is executed when everything before it was consumed, so
//! `printa()` prints the aggregations exactly as they were at its firing. And the clock is that of
//! the firings, so nothing depends on the time that the test takes.
//!
//! What a firing does not give, it does not have: memory that was not given cannot be read (a
//! fault), an address without a symbol is a number, `copyout()` is checked and writes nothing,
//! `raise()` sends no signal, `rand()` is the same sequence each time. Clocks (`tick-1s`) fire when
//! they are given. Aggregations and arrays have no limit; a ring has that of `bufsize`.
//!
//! The probes of a program are those of the running system, as for every program. Where these are
//! not known without privileges (functions of the kernel) or do not exist at all, [`GivenProbes`]
//! stands for a provider.
//!
//! ```
//! use dtrace::interpreter::{Firing, Interpreter, Memory};
//! use dtrace::{Options, Session, System, Text};
//!
//! let memory = Memory::new().user(0x1000, b"/etc/passwd\0");
//! let firing = Firing {
//!     execname: "cat".into(),
//!     args: vec![0, 0x1000],
//!     memory: memory.into(),
//!     ..Firing::of("syscall::openat:entry")
//! };
//! let mut session = Session::builder(&System::live())
//!     .program("syscall::openat:entry { printf(\"%s %s\\n\", execname, copyinstr(arg1)); }")
//!     .options(Options { quiet: true, ..Options::default() })
//!     .interpret(Interpreter::new([firing]), Text::new(Vec::new()))?;
//! assert_eq!(session.run()?, 0);
//! assert_eq!(session.sink().output(), b"cat /etc/passwd\n\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod firing;
mod missing;
mod names;
mod probes;
mod symbols;
mod world;

use std::sync::Arc;

use consumer::Symbolizer;
use events::{Clock, Host, Start};

pub use firing::{Firing, Memory};
pub use probes::GivenProbes;
pub use symbols::Symbols;

pub(crate) use engine::InterpreterEngine;
pub(crate) use firing::{Captured, Ending, Region, Text};
pub(crate) use missing::Missing;
pub(crate) use names::CapturedNames;

/// What an interpreted session runs on: its firings, in order, and their surroundings.
pub struct Interpreter {
    firings: Box<dyn Iterator<Item = Firing> + Send>,
    tracer: Firing,
    symbols: Symbols,
    /// Names that come with captured firings.
    names: Option<CapturedNames>,
    host: Option<Host<'static>>,
    cpus: u32,
    /// Where the firings leave the one of END when all of them were taken; `None` if they have
    /// none.
    end: Option<Arc<Ending>>,
    /// What captured firings do not have.
    missing: Arc<Missing>,
}

impl Interpreter {
    /// An interpreter of these firings. They are taken one by one while the session works, so the
    /// sequence may be long, or come from elsewhere.
    pub fn new(firings: impl IntoIterator<Item = Firing, IntoIter: Send + 'static>) -> Interpreter {
        let firings = Box::new(firings.into_iter());
        let (tracer, symbols) = (Firing::default(), Symbols::default());
        let (end, missing) = Default::default();
        Interpreter { firings, tracer, symbols, names: None, host: None, cpus: 1, end, missing }
    }

    /// The process in which BEGIN and END fire. The time of END is that of the last firing.
    #[must_use]
    pub fn with_tracer(self, tracer: Firing) -> Interpreter {
        Interpreter { tracer, ..self }
    }

    /// The firings end, and leave the one of END here when they do.
    #[must_use]
    pub(crate) fn with_end(self, end: Arc<Ending>) -> Interpreter {
        Interpreter { end: Some(end), ..self }
    }

    /// Where it is noted what captured firings do not have.
    #[must_use]
    pub(crate) fn with_missing(self, missing: Arc<Missing>) -> Interpreter {
        Interpreter { missing, ..self }
    }

    /// The symbols of addresses.
    #[must_use]
    pub fn with_symbols(self, symbols: Symbols) -> Interpreter {
        Interpreter { symbols, ..self }
    }

    /// How many CPUs have a ring of their own; 1 if nothing is said. A CPU with a greater number
    /// shares one.
    #[must_use]
    pub fn with_cpus(self, cpus: u32) -> Interpreter {
        Interpreter { cpus: cpus.clamp(1, 4096), ..self }
    }

    pub(crate) fn cpus(&self) -> Vec<u32> {
        (0..self.cpus).collect()
    }

    /// The machine whose firings these are, for the first event of the session; without a name if
    /// nothing is said. The clock of that event is that of the process in which BEGIN fires.
    #[must_use]
    pub fn with_host(self, host: Host<'static>) -> Interpreter {
        Interpreter { host: Some(host), ..self }
    }

    /// The first event of a session: nothing in it is of this machine.
    pub(crate) fn start(&mut self, version: &'static str) -> Start<'static> {
        let none = Host::new("", "", "", self.cpus);
        let clock = Clock { time: self.tracer.time, wall: self.tracer.walltime };
        Start::new(version, clock, self.host.take().unwrap_or(none))
    }

    /// The names of addresses are those that these firings come with.
    #[must_use]
    pub(crate) fn with_names(self, names: CapturedNames) -> Interpreter {
        Interpreter { names: Some(names), ..self }
    }

    pub(crate) fn take_symbols(&mut self) -> Box<dyn Symbolizer> {
        match self.names.take() {
            Some(names) => Box::new(names),
            None => Box::new(std::mem::take(&mut self.symbols)),
        }
    }
}
