//! Lists, compiles, or traces.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use dtrace::capture::Messages;
use dtrace::events::{Event, Sink, SinkError};
use dtrace::live::{Action, Narrowing};
use dtrace::options::{Captures, Options, Policy};
use dtrace::{Error, Program, Progress, Session, Setup, Source, Status, System};

use crate::about;
use crate::anonymous::{boot, claim, start, store, words};
use crate::captures;
use crate::command::{Command, Mode, file_of};
use crate::completions;
use crate::definitions;
use crate::drawing;
use crate::flags;
use crate::flight::{self, Flight};
use crate::interrupt::{self, Interrupts};
use crate::live::{Kept, LiveResults, Requests, obstacle};
use crate::memory;
use crate::notify;
use dtrace::diagnostics::{control, system_text};

use crate::output::{Output, Shown, write_new};
use crate::prepare::{compile, complain, complain_all, macros, output, sources, targets};
use crate::progress::{self, ProgressLine};
use crate::results::Results;
use crate::secure;
use crate::{Engine, status, to_stderr, to_stdout};

/// Descriptors without which not even the kernel's lists of probes can be read.
const FEWEST_DESCRIPTORS: usize = 8;

/// Bytes of address space without which reading the kernel's types or symbols would end in an
/// abort.
const LEAST_MEMORY: u64 = 32 << 20;

/// An error where the user's limits are so low that probes would seem not to exist, or that there
/// is no memory to say anything.
fn limits_suffice() -> Result<(), String> {
    let some = (0..FEWEST_DESCRIPTORS).map(|_| std::fs::File::open("/dev/null"));
    let all: Result<Vec<_>, io::Error> = some.collect();
    match all {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            return Err(format!("{}: raise `ulimit -n`", system_text(&e)));
        }
        _ => {}
    }
    let mut memory = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut memory) };
    match memory.rlim_cur < LEAST_MEMORY {
        true => Err(format!("less than {} MiB of memory are allowed: raise `ulimit -v`", LEAST_MEMORY >> 20)),
        false => Ok(()),
    }
}

/// Executes the command and returns the exit status.
pub(crate) fn run(command: Command, engine: Engine) -> u8 {
    if let Err(e) = words::check(&command) {
        return complain_all(vec![e]);
    }
    match command.mode {
        Mode::Version => {
            let system = match system(&command) {
                Ok(system) => system,
                Err(e) => return complain_all(vec![e]),
            };
            let mut text = format!("dtrace: {}\n", about::LANGUAGE);
            if command.verbose {
                text.push_str(&format!("dtrace for Linux {}\n", env!("CARGO_PKG_VERSION")));
                // A record's may come from anywhere.
                text.push_str(&control::lines(&dtrace::facilities(&system)));
            }
            return to_stdout(text);
        }
        Mode::Help => {
            return to_stdout(flags::usage());
        }
        Mode::About => return to_stdout(about::text(&System::live())),
        Mode::Check => return check(),
        Mode::Completions => return to_stdout(completions::script(command.shell.unwrap_or_default())),
        Mode::Header | Mode::Object => return definitions::write(&command),
        Mode::Boot => {
            boot::begin();
            let options = &command.options;
            let stored = start::begin(options).and_then(|()| boot::stored(options));
            let status = stored.map_or_else(|e| complain_all(vec![e]), |stored| run(stored, engine));
            return boot::end(options, status);
        }
        Mode::List | Mode::Trace | Mode::Store => {}
    }
    if let Some(from) = &command.flame_from {
        return match drawing::draw(&command, from) {
            Ok(()) => 0,
            Err(e) => complain_all(vec![e]),
        };
    }
    if let Some(file) = &command.record_system {
        return record_system(&command, file);
    }
    let replay = match captures::open(&command) {
        Ok(replay) => replay,
        Err(e) => return complain_all(vec![e]),
    };
    let (system, engine) = match replay {
        Some(replay) if command.capture_info.is_some() => return told(captures::info(replay)),
        Some(replay) if command.mode == Mode::List && command.programs.is_empty() => {
            return told(captures::list(replay));
        }
        Some(replay) => (replay.system().clone(), Engine::Replay(Box::new(replay))),
        None => match system(&command) {
            Ok(system) => (system, engine),
            Err(e) => return complain_all(vec![e]),
        },
    };
    progress::watch_reading(&command, &system);
    dtrace::raise_fd_limit_at_start();
    if let Err(e) = limits_suffice() {
        return complain_all(vec![format!("could not enable tracing: {e}")]);
    }
    let out = match output(&command) {
        Ok(out) => out,
        Err(e) => return complain_all(vec![e]),
    };
    if let Some(core) = &command.postmortem {
        return crate::postmortem::print(&command, core, out).unwrap_or_else(|e| failed_output(&e));
    }
    if let Some(from) = &command.events {
        return crate::stored::print(&command, from, out).unwrap_or_else(|e| failed_output(&e));
    }
    if command.claims {
        return claim::claim(&command, out).unwrap_or_else(|e| failed_output(&e));
    }
    match command.mode {
        Mode::Store => store::store(&command, &system),
        Mode::List => list(command, &system, out),
        _ => trace(command, &system, engine, out),
    }
}

/// Prints what a file has, and the messages about it.
fn told(result: Result<(String, Vec<String>), String>) -> u8 {
    match result {
        Ok((text, messages)) => {
            messages.into_iter().for_each(complain);
            to_stdout(text)
        }
        Err(e) => complain_all(vec![e]),
    }
}

/// The machine for which programs are compiled: this one, or that of `--system`.
fn system(command: &Command) -> Result<System, String> {
    let Some(path) = &command.system else { return Ok(System::live()) };
    let mut bytes = Vec::new();
    let limit = dtrace::LARGEST_RECORD as u64 + 1;
    let shown = control::name_text(path);
    std::fs::File::open(file_of(path))
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|e| format!("failed to open {shown}: {}", system_text(&e)))?;
    System::recorded(&bytes).map_err(|e| format!("{shown}: {e}"))
}

/// `--record-system`: writes all that is asked of this machine, or what the programs ask of it, to
/// a new file, for its owner alone.
fn record_system(command: &Command, path: &str) -> u8 {
    let machine = System::live();
    let (bytes, missing) = if command.programs.is_empty() {
        dtrace::record_system(&machine)
    } else {
        let sources = match sources(command) {
            Ok(sources) => sources,
            Err(code) => return code,
        };
        match dtrace::record_program(&machine, &sources, &macros(command, 0), &command.options) {
            Ok(record) => record,
            // What is wrong may be what the record is for.
            Err(error) => {
                complain_all(error.messages(command.options.errtags));
                complain("the programs do not compile here, so all of this machine is recorded".to_owned());
                dtrace::record_system(&machine)
            }
        }
    };
    let shown = control::name_text(path);
    if let Err(e) = write_new(&file_of(path), &bytes) {
        return complain_all(vec![format!("failed to write {shown}: {}", system_text(&e))]);
    }
    for part in missing {
        complain(format!("{shown} lacks what cannot be read here: {part}"));
    }
    0
}

/// `--check`
fn check() -> u8 {
    let machine = System::live();
    let report = dtrace::abilities::Report::of(&machine);
    let printed = to_stdout(about::abilities(&machine, &report));
    if report.can_trace() { printed } else { status::FAILURE.code }
}

fn list(command: Command, system: &System, out: Output) -> u8 {
    let mut out = io::BufWriter::new(out);
    let mut done = || -> Result<u8, io::Error> {
        if command.programs.is_empty() {
            dtrace::list::all(system, &mut out, command.verbose)?.iter().for_each(complain);
            return Ok(0);
        }
        let mut options = command.options.clone();
        // `list` reports descriptions that match nothing in its own words.
        (options.zdefs, options.argref) = (true, true);
        let sources = match sources(&command) {
            Ok(sources) => sources,
            Err(code) => return Ok(code),
        };
        // They are held until the list is printed. A process that was created is killed then.
        let targets = match targets(&command, &sources) {
            Ok(targets) => targets,
            Err(code) => return Ok(code),
        };
        options.select(targets.all());
        let target = targets.first();
        let machine = (system, Vec::new());
        let program = match compile(&command, &sources, &macros(&command, target), &mut options, machine) {
            Ok(program) => program,
            Err(code) => return Ok(code),
        };
        dtrace::list::described(&mut out, &program, command.verbose)?;
        program.take_left_out().iter().for_each(complain);
        let unmatched = program.unmatched();
        unmatched.iter().for_each(complain);
        Ok(u8::from(!unmatched.is_empty()))
    };
    match done() {
        Ok(status) => status,
        Err(e) => failed_output(&e),
    }
}

fn trace(command: Command, system: &System, engine: Engine, out: Output) -> u8 {
    if command.programs.is_empty() && command.compile_only {
        return 0;
    }
    if command.programs.is_empty() {
        complain("no probes specified: use -n, -s, -P, -m, -f or -i");
        return 1;
    }
    let interrupts = match Interrupts::catch() {
        Ok(interrupts) => interrupts,
        Err(e) => {
            complain(format!("failed to catch signals: {}", system_text(&e)));
            return 1;
        }
    };
    let first = match sources(&command) {
        Ok(first) => first,
        Err(code) => return code,
    };
    if let Some(why) = obstacle().filter(|_| command.is_live()) {
        complain(why);
        return 1;
    }
    let (mut questions, mut before) = (vec![first], Kept::default());
    let (mut engine, mut out) = (engine, out);
    loop {
        let depth = questions.len() - 1;
        let Some(sources) = questions.last() else { return 0 };
        let question = Question { sources, depth, before: std::mem::take(&mut before) };
        match session(&command, system, engine, out, &interrupts, question) {
            Ok(Ended::Status(code)) | Err(code) => return code,
            Ok(Ended::Widened(kept)) => {
                questions.pop();
                before = kept;
            }
            Ok(Ended::Narrowed(narrower, kept)) => {
                questions.push(narrower);
                before = kept;
            }
        }
        engine = Engine::Kernel;
        out = match output(&command) {
            Ok(out) => out,
            Err(e) => return complain_all(vec![e]),
        };
    }
}

/// The program of one session of `--live`.
struct Question<'a> {
    sources: &'a [Source],
    /// How often the first program was narrowed.
    depth: usize,
    /// What the sessions before have printed.
    before: Kept,
}

/// How a session ended.
enum Ended {
    /// With an exit status.
    Status(u8),
    /// The user has asked a narrower question.
    Narrowed(Vec<Source>, Kept),
    /// The user wants the question before.
    Widened(Kept),
}

/// The text of a program, as the screen shows it.
fn shown_text(sources: &[Source]) -> String {
    let text = |source: &Source| match source {
        Source::Script(_, text) | Source::Specifier(_, text) => text.clone(),
    };
    sources.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Compiles a program and traces. `Err`: it was refused with messages, and this is the exit status.
fn session(
    command: &Command,
    system: &System,
    engine: Engine,
    mut out: Output,
    interrupts: &Interrupts,
    question: Question<'_>,
) -> Result<Ended, u8> {
    let Question { sources, depth, before } = question;
    let targets = targets(command, sources)?;
    let mut options = command.options.clone();
    options.select(targets.all());
    let (providers, interpreter, replay) = match engine {
        Engine::Kernel => (Vec::new(), None, None),
        Engine::Interpreter(given) => (given.providers, Some(given.interpreter), None),
        Engine::Replay(replay) => (Vec::new(), None, Some(replay)),
    };
    let target = replay.as_ref().map_or(targets.first(), |replay| replay.head().target);
    let (machine, macros) = ((system, providers), macros(command, target));
    let mut captured = None;
    // Also while the program is compiled, which may take long.
    if command.capture.is_some() && command.options.bufpolicy == Policy::Ring {
        interrupts.catch_snapshots();
    }
    let program = match &command.capture {
        None => compile(command, sources, &macros, &mut options, machine)?,
        Some(_) => {
            let compile = match command.capture_for {
                true => dtrace::capture::compile,
                false => dtrace::capture::compile_wide,
            };
            let made = compile(system, sources, &macros, &options)
                .map_err(|error| complain_all(error.messages(options.errtags)))?;
            options = made.options.clone();
            captured.insert(made).program.clone()
        }
    };
    if command.capture.is_none() && options.capture != Captures::default() {
        complain("the option capture says what --capture records: add --capture FILE");
        return Err(1);
    }
    let flight = Flight::of(command.capture.as_ref(), &options);
    if flight.is_some() {
        interrupts.catch_snapshots();
    }
    to_stderr(program.tree.clone());
    if options.verbose {
        to_stderr(program.listing());
    }
    let (quiet, tags, bpflog) = (options.quiet, options.errtags, options.bpflog);
    let targets = match targets.into_all(&options) {
        Ok(targets) => targets,
        Err(e) => return Err(failed(&e, &program, tags)),
    };
    let verbose = command.verbose;
    out.shown = Shown { quiet, verbose, resize: !options.quietresize };
    let sink = match (&captured, &command.capture) {
        _ if command.at_boot => Results::kept(command).map(|sink| (sink, None)),
        (Some(captured), Some(path)) => captures::sink(path, captured, Shown { resize: true, ..out.shown }),
        _ => {
            let live = || (shown_text(sources), depth, before);
            let options = (&mut options, target);
            Results::of_session(command, &program, options, out, live).map(|sink| (sink, None))
        }
    };
    let (mut sink, new_file) = match sink {
        Ok(sink) => sink,
        Err(e) => return Err(complain_all(vec![e])),
    };
    if let Some(captured) = captured.as_ref().filter(|_| !command.captures_script() && !quiet) {
        complain(format!("all firings of {} probes are captured", captured.head.probes.len()));
    }
    introduce(command, &program, quiet, &mut sink).map_err(|e| failed_output(&e))?;
    if command.compile_only {
        program.check_limits(&options).map_err(|e| failed(&e, &program, tags))?;
        let notes = replay.map_or(Ok(Vec::new()), |replay| replay.preview(&program));
        notes.map_err(|e| complain_all(vec![e.to_string()]))?.into_iter().for_each(complain);
        return Ok(Ended::Status(0));
    }
    if program.titles.iter().enumerate().all(|(n, _)| program.matched(n) == 0) && !options.zdefs {
        complain("no probes matched");
        return Err(1);
    }
    if replay.is_none() && (options.from.is_some() || options.to.is_some()) {
        complain("the options from and to are of a replay: add --replay FILE");
        return Err(1);
    }
    let defaults = Options::default();
    if flight.is_none() && (options.snapmax, options.snaprate) != (defaults.snapmax, defaults.snaprate) {
        complain(
            "the options snapmax and snaprate are of the last moments: add --capture FILE -x bufpolicy=ring",
        );
        return Err(1);
    }
    if options.destructive && secure::is_secure() {
        complain(
            "destructive actions are for who has the privileges, not for who may execute a dtrace that has them (-w)",
        );
        return Err(1);
    }
    if options.destructive && !quiet {
        complain("allowing destructive actions");
    }
    let (interpreter, messages) = match replay {
        None => (interpreter, None),
        Some(replay) => match replay.interpreter(&program, &options) {
            Ok((interpreter, notes, messages)) => {
                notes.into_iter().for_each(complain);
                (Some(interpreter), Some(messages))
            }
            Err(e) => return Err(complain_all(vec![e.to_string()])),
        },
    };
    let mut line = ProgressLine::new();
    let mut progress = |p: Progress| {
        interrupt::attaching();
        if p.done > 0 && p.done < p.total {
            let seconds = p.remaining.as_secs() + 1;
            line.show(|| format!("enabled {} of {} functions, about {seconds} s left", p.done, p.total));
        }
        interrupt::count() == 0
    };
    let pending = interrupt::is_pending;
    let session = match interpreter {
        None => Session::start_interruptible(&program, options, targets, sink, &mut progress, pending),
        Some(interpreter) => Session::interpret(&program, options, interpreter, sink),
    };
    drop(line);
    let mut session = match session {
        Ok(session) => session,
        Err(e) => {
            report_refusal(&e, &program, bpflog);
            return Err(failed(&e, &program, tags));
        }
    };
    new_file.into_iter().for_each(captures::NewFile::keep);
    interrupt::running(session.stopper().ok());
    progress::session_runs(command);
    crate::panic::keep(session.merged());
    memory::keep();
    notify::manager("READY=1");
    let opened = session.sink_mut().live_mut().map_or(Ok(()), LiveResults::open).map_err(Error::Output);
    let narrower = |n: &Narrowing| narrower(command, system, sources, n);
    let followed = opened.and_then(|()| follow(&mut session, interrupts, (command, flight), &narrower));
    if let Some(firings) = session.sink().firings().filter(|_| !quiet) {
        complain(match session.sink().snapshot() {
            Some(snapshot) => format!("captured {}", flight::held(firings, snapshot)),
            None => format!("captured {firings} firing{}", if firings == 1 { "" } else { "s" }),
        });
    }
    messages.iter().flat_map(Messages::lines).for_each(complain);
    Ok(followed.unwrap_or_else(|e| {
        session.abort();
        Ended::Status(match e {
            // Nobody read the output, and the user interrupted twice.
            Error::Output(_) if interrupt::count() > 1 => 1,
            e => failed(&e, &program, tags),
        })
    }))
}

/// Reports the number of matched probes, and with `-v` the stability of the programs, before they
/// run.
fn introduce(command: &Command, program: &Program, quiet: bool, out: &mut dyn Sink) -> io::Result<()> {
    for (n, title) in program.titles.iter().enumerate() {
        if !quiet && !command.compile_only && command.captures_script() {
            let count = program.matched(n);
            complain(format!("{title} matched {count} probe{}", if count == 1 { "" } else { "s" }));
        }
        if command.verbose {
            let more = if command.compile_only { program.descriptions(n) } else { "\n".into() };
            let report = Event::Report(format!("{}{more}", program.stability(n)).into());
            out.event(&report).map_err(|(SinkError::Output(e) | SinkError::Effect(e))| e)?;
        }
    }
    out.flush()
}

/// Reports the error that ends the command. A closed pipe is no error: its reader needs no more.
fn failed(error: &Error, program: &Program, tags: bool) -> u8 {
    match error {
        Error::Output(e) => failed_output(e),
        _ => complain_all(error.messages(&program.map, tags)),
    }
}

/// A failed write; the exit status. A reader who has seen enough is no failure.
pub(crate) fn failed_output(e: &io::Error) -> u8 {
    if e.kind() == io::ErrorKind::BrokenPipe {
        return 0;
    }
    complain(format!("processing aborted: failed to write the output: {}", system_text(e)));
    1
}

/// The program of a narrower question, which compiles. An error is a message: the session goes on.
fn narrower(
    command: &Command,
    system: &System,
    sources: &[Source],
    narrowing: &Narrowing,
) -> Result<Vec<Source>, String> {
    if command.runs_commands() {
        return Err("the command of -c would start again: trace what runs already (-p), or everything".into());
    }
    if command.writes_files() {
        return Err("the files of --to, --heat and --flame would begin again: leave them out".into());
    }
    let macros = macros(command, command.first_pid());
    let program = (sources, &macros, &command.options);
    let all = dtrace::narrowed(system, program, &narrowing.aggregation, &narrowing.condition)?;
    // What does not compile must not end what runs.
    let mut options = command.options.clone();
    options.zdefs = true;
    let setup = Setup { shown_only: true, ..Setup::default() };
    match dtrace::compile_as(system, &all, &macros, &mut options, setup) {
        Ok(_) => Ok(all),
        Err(error) => Err(error.messages(false).first().cloned().unwrap_or_default()),
    }
}

/// Runs the session to its end. `narrower` makes the program of a narrower question.
fn follow(
    session: &mut Session<Results>,
    interrupts: &Interrupts,
    (command, mut flight): (&Command, Option<Flight>),
    narrower: &dyn Fn(&Narrowing) -> Result<Vec<Source>, String>,
) -> Result<Ended, Error> {
    let keys = match command.is_live() {
        true => Some(Requests::of(interrupts).map_err(Error::Setting)?),
        false => None,
    };
    let requests = keys.as_ref().map_or(interrupts.fd(), Requests::fd);
    let mut asked = None;
    while interrupt::count() == 0 && !memory::is_short() && asked.is_none() {
        let status = session.work(Some(requests), Duration::from_secs(1))?;
        if let Some(flight) = &mut flight {
            interrupts.clear();
            flight.turn(session)?;
        }
        if status == Status::Done {
            break;
        }
        if let Some(spool) = session.sink_mut().spool_mut() {
            interrupts.clear();
            if spool.turn() {
                break;
            }
        }
        let Some(live) = session.sink_mut().live_mut() else { continue };
        match live.turn() {
            // The terminal has gone: the results are for the file of -o.
            Ok(Action::Quit) | Err(_) => break,
            Ok(Action::Narrow(narrowing)) => match narrower(&narrowing) {
                Ok(sources) => asked = Some(Ended::Narrowed(sources, live.hand_over())),
                Err(why) => live.message(&why),
            },
            Ok(Action::Widen) => asked = Some(Ended::Widened(live.hand_over())),
            Ok(Action::Nothing | Action::Redraw | Action::Suspend) => {}
        }
    }
    if let Some(live) = session.sink_mut().live_mut().filter(|_| asked.is_none()) {
        live.close();
    }
    let claim = session.sink_mut().spool_mut();
    if interrupt::count() > 0 || claim.is_some_and(|spool| spool.is_interrupted()) {
        // The terminal shows the user's ^C on this line.
        session.interrupt()?;
    }
    if asked.is_none() {
        interrupt::handle();
    }
    let status = session.finish()? as u8;
    flight.iter().for_each(|flight| flight.finish(session));
    if let Some(asked) = asked {
        return Ok(asked);
    }
    let drawn = session.sink_mut().finish_files();
    let status = drawn.map_or_else(complain_all, |()| status);
    if memory::was_short() {
        complain(
            "processing aborted: no more memory: raise `ulimit -v`, or lower what grows (-x aggsize, -b)",
        );
        return Ok(Ended::Status(status::FAILURE.code));
    }
    Ok(Ended::Status(status))
}

/// `-x bpflog`: writes a file with all that a report about a refused program needs.
fn report_refusal(error: &Error, program: &Program, wanted: bool) {
    let Error::Load(e) = error else { return };
    if !e.is_rejection() || (e.is_too_complex() && !wanted) {
        return;
    }
    if !wanted {
        complain("this is a fault of dtrace; -x bpflog writes what a report of it needs");
        return;
    }
    let path = format!("dtrace-bpflog-{}.txt", std::process::id());
    let text = format!(
        "{e}\n\n== system\n{}\n== programs\n{}\n== verifier log\n{}",
        dtrace::facilities(&System::live()),
        program.listing(),
        e.log
    );
    match write_new(Path::new(&path), text.as_bytes()) {
        Ok(()) => complain(format!("wrote {path}: please attach it to a report")),
        Err(e) => complain(format!("failed to write {path}: {}", system_text(&e))),
    }
}
