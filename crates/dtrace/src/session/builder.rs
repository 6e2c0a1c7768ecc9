//! What a program that uses this library sets before a session begins.

use std::sync::Arc;

use events::Sink;
use providers::Provider;
use system::System;

use crate::compile::evaltime::{Targets, Wanted};
use crate::compile::{Field, Macros, Program, Setup, Source, compile_as};
use crate::engine::interpreter::Interpreter;
use crate::error::{CompileError, Error};
use crate::options::Options;
use crate::session::Session;

/// A session that is about to begin: [`Session::builder`].
///
/// It needs no kernel if its firings are given, as in a test:
///
/// ```
/// use dtrace::interpreter::{Firing, Interpreter};
/// use dtrace::{Options, Session, System, Text};
///
/// let firings = [3, 4].map(|n| Firing { args: vec![n], ..Firing::of("syscall::close:entry") });
/// let mut session = Session::builder(&System::live())
///     .program("syscall::close:entry /arg0 > $1/ { trace(arg0); exit(7); }")
///     .arguments(["3"])
///     .options(Options { quiet: true, ..Options::default() })
///     .interpret(Interpreter::new(firings), Text::new(Vec::new()))?;
/// assert_eq!(session.run()?, 7);
/// assert_eq!(String::from_utf8_lossy(&session.into_sink().into_output()).trim(), "4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Who wants to see the program before it is enabled, to hear of the progress or to interrupt the
/// enabling, compiles it with [`compile`](crate::compile()) and starts it with [`Session::start`]
/// or one of the functions beside it.
#[must_use = "it begins with `start`"]
pub struct Builder {
    system: System,
    sources: Vec<Source>,
    macros: Macros,
    options: Options,
    providers: Vec<Box<dyn Provider>>,
    targets: Vec<Wanted>,
}

impl Session<Box<dyn Sink>> {
    /// What a session with any sink is made of; it begins with [`Builder::start`].
    pub fn builder(system: &System) -> Builder {
        Builder {
            system: system.clone(),
            sources: Vec::new(),
            macros: Macros::default(),
            options: Options::default(),
            providers: Vec::new(),
            targets: Vec::new(),
        }
    }
}

impl Builder {
    /// Adds a program in D, as `-n` takes it.
    pub fn program(self, text: impl Into<String>) -> Builder {
        self.source(Source::Specifier(Field::Name, text.into()))
    }

    /// Adds a program in D, as the command has it: a script with its name, which errors show, or
    /// one of `-P`, `-m`, `-f` and `-n`.
    pub fn source(mut self, source: Source) -> Builder {
        self.sources.push(source);
        self
    }

    /// The options. Those that the programs set (`#pragma D option`) replace them. One that only
    /// the command obeys is an error at the start: see [`Obeyed`](crate::options::Obeyed).
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// The operands `$1`, `$2` and so on.
    pub fn arguments<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Builder {
        self.macros.args = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a process that executes a command (split on blanks, no shell), as `-c` does: it is
    /// created when the session begins, in the environment and up to the moment that the options
    /// say (`setenv`, `unsetenv`, `evaltime`), and runs when tracing has begun. The first target is
    /// `$target`. The session is over when all have ended.
    pub fn command(mut self, command: impl Into<String>) -> Builder {
        self.targets.push(Wanted::Command(command.into().into_bytes()));
        self
    }

    /// The same by words of which each is an argument, whatever is in it.
    pub fn command_of<T: Into<Vec<u8>>>(mut self, words: impl IntoIterator<Item = T>) -> Builder {
        self.targets.push(Wanted::Words(words.into_iter().map(Into::into).collect()));
        self
    }

    /// Adds a process that runs already, as `-p` does: it is stopped when the session begins, and
    /// runs on when tracing has begun.
    pub fn process(mut self, pid: i32) -> Builder {
        self.targets.push(Wanted::Pid(pid));
        self
    }

    /// Adds a process that was taken or created before, which runs on when tracing has begun: a
    /// target as that of [`Builder::command`].
    pub fn target(mut self, target: proc::Target) -> Builder {
        self.targets.push(Wanted::Process(target));
        self
    }

    /// Adds a provider of the program: see [`crate::provider`].
    pub fn provider(mut self, provider: Box<dyn Provider>) -> Builder {
        self.providers.push(provider);
        self
    }

    /// Compiles the programs and enables their probes. `BEGIN` has run then, and the targets run.
    /// The sink gets the results, with what it [needs](Sink::needs).
    pub fn start<S: Sink>(self, sink: S) -> Result<Session<S>, CompileError> {
        self.start_interruptible(sink, || false)
    }

    /// As [`Builder::start`]; `interrupted` is called during long operations until the end of the
    /// session, as that of [`Session::start_interruptible`].
    pub fn start_interruptible<S: Sink>(
        mut self,
        sink: S,
        interrupted: impl Fn() -> bool + Send + Sync + Clone + 'static,
    ) -> Result<Session<S>, CompileError> {
        let wanted = std::mem::take(&mut self.targets);
        let environment = self.options.environment();
        let targets = Targets::make(wanted, &environment, &self.options, &self.sources)
            .map_err(|e| CompileError { error: Error::Setting(e.to_string()), map: Arc::default() })?;
        self.options.select(targets.all());
        self.macros.target = targets.first();
        let (program, options) = self.compile(&sink, interrupted.clone())?;
        let targets = targets.into_all(&options);
        let (go_on, asked) = (interrupted.clone(), interrupted);
        let session = targets.and_then(|targets| {
            Session::start_interruptible(&program, options, targets, sink, &mut |_| !go_on(), asked)
        });
        session.map_err(|error| CompileError { error, map: program.map })
    }

    /// The same without a kernel: see [`Session::interpret`]. There are no targets.
    pub fn interpret<S: Sink>(self, given: Interpreter, sink: S) -> Result<Session<S>, CompileError> {
        let (program, options) = self.compile(&sink, || false)?;
        let session = Session::interpret(&program, options, given, sink);
        session.map_err(|error| CompileError { error, map: program.map })
    }

    fn compile(
        self,
        sink: &impl Sink,
        stop: impl Fn() -> bool + 'static,
    ) -> Result<(Program, Options), CompileError> {
        let Builder { system, sources, macros, mut options, providers, .. } = self;
        options.processids |= sink.needs().process_ids;
        options.check_obeyed().map_err(|e| CompileError { error: Error::Setting(e), map: Arc::default() })?;
        let setup = Setup { providers, library: true, stop: Box::new(stop), ..Setup::default() };
        let program = compile_as(&system, &sources, &macros, &mut options, setup)?;
        Ok((program, options))
    }
}
