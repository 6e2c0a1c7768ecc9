//! Running a new process from its exec to a later moment of its start.
//!
//! ```text
//!  exec ──► dynamic linker maps the libraries ──► constructors ──► _start ──► main
//!   Exec                                Preinit            Postinit       Main
//!   event of ptrace            _dl_debug_state,            AT_ENTRY      symbol, or
//!                               RT_CONSISTENT                            decoded from _start
//! ```
//!
//! (Some C libraries, and every static program, run constructors after `_start`.)
//!
//! The process stops at breakpoints in registers of its first thread, so that nothing is
//! written to its memory. When it has stopped, the registers are cleared. Then the process is
//! interrupted, and the signal of the breakpoint is suppressed: it stops once more, before it
//! executes an instruction, in an event stop, from which a process may be detached at any time.

use crate::arch::{Main, clear, reached, set};
use crate::image::{Hook, Image, Linking, limited};

/// A moment at the start of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The end of its exec. Nothing of the program has run.
    Exec,
    /// Its libraries are mapped and relocated. In a static program: as [`Moment::Postinit`].
    #[default]
    Preinit,
    /// Its entry point, after the constructors of its libraries. (A static program, and the C
    /// library musl, run constructors later.)
    Postinit,
    /// Its function `main`.
    Main,
}

/// What a stop of a process means for its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It continues, with this signal.
    Continue(i32),
    /// It is in a group stop.
    Listen,
    /// It continues, to be stopped again by `PTRACE_INTERRUPT` at once.
    Interrupt,
    /// It is where it should be.
    Arrived,
}

/// A process on its way to a moment.
#[derive(Debug)]
pub(crate) struct Seek {
    pid: i32,
    moment: Moment,
    entry: u64,
    hook: Option<Hook>,
    main: Option<Main>,
    /// The dynamic linker has begun.
    begun: bool,
    /// The process is about to stop in an event stop.
    interrupted: bool,
    /// Why the process is not where it should be.
    pub(crate) note: Option<String>,
}

impl Seek {
    /// Sets the breakpoints of a process that is stopped after its exec. Says whether it is to
    /// continue.
    pub(crate) fn begin(pid: i32, moment: Moment) -> (Seek, bool) {
        let mut seek = Seek {
            pid,
            moment,
            entry: 0,
            hook: None,
            main: None,
            begun: false,
            interrupted: false,
            note: None,
        };
        let runs = moment != Moment::Exec && seek.plan();
        (seek, runs)
    }

    /// Finds where to stop, and sets the breakpoints. Returns false if the process cannot be
    /// stopped later than now.
    fn plan(&mut self) -> bool {
        let Some(image) = Image::of(self.pid) else {
            self.note = Some("where its program begins is not known, so it waits at its exec".into());
            return false;
        };
        (self.entry, self.hook, self.main, self.begun) = (image.entry, None, None, false);
        let mut addresses = vec![image.entry];
        match self.moment {
            Moment::Preinit if !image.is_static() => {
                self.hook = limited(move || image.hook());
                match self.hook {
                    Some(hook) => addresses.push(hook.function),
                    None => {
                        let text =
                            "its dynamic linker has no hook for debuggers, so it waits at its entry point";
                        self.note = Some(text.into());
                    }
                }
            }
            Moment::Main => {
                self.main = limited(move || image.main());
                match self.main {
                    Some(Main::At(address)) => addresses = vec![address],
                    Some(Main::Behind(_)) => {}
                    None => self.note = Some(NO_MAIN.into()),
                }
            }
            Moment::Exec | Moment::Preinit | Moment::Postinit => {}
        }
        let done = set(self.pid, &addresses);
        if let Err(e) = &done {
            let why = diagnostics::system_text(e);
            self.note = Some(format!("hardware breakpoints cannot be set ({why}), so it waits at its exec"));
        }
        done.is_ok()
    }

    /// The process has stopped, with an event and a signal.
    pub(crate) fn stopped(&mut self, event: i32, signal: i32) -> Step {
        match event {
            // Another program: a constructor can execute one.
            libc::PTRACE_EVENT_EXEC => match self.plan() {
                true => Step::Continue(0),
                false => Step::Arrived,
            },
            libc::PTRACE_EVENT_STOP if is_stop(signal) => Step::Listen,
            libc::PTRACE_EVENT_STOP if self.interrupted => Step::Arrived,
            0 if signal == libc::SIGTRAP => self.trapped(),
            0 => Step::Continue(signal),
            _ => Step::Continue(0),
        }
    }

    /// A trap: of a breakpoint, or one that the program has made.
    fn trapped(&mut self) -> Step {
        let reached = reached(self.pid);
        if reached.is_empty() || self.interrupted {
            return Step::Continue(libc::SIGTRAP);
        }
        let is_entry = reached.contains(&self.entry);
        if !is_entry && self.hook.is_some_and(|hook| hook.state(self.begun) == Linking::Busy) {
            self.begun = true;
            return Step::Continue(0);
        }
        if let (true, Some(Main::Behind(word))) = (is_entry, self.main.take()) {
            // The program is relocated now.
            let main = Image::of(self.pid).and_then(|image| image.word(word));
            if main.is_some_and(|main| main != 0 && set(self.pid, &[main]).is_ok()) {
                return Step::Continue(0);
            }
            self.note = Some(NO_MAIN.into());
        }
        clear(self.pid);
        self.interrupted = true;
        Step::Interrupt
    }
}

const NO_MAIN: &str = "its function main is not known, so it waits at its entry point";

/// True for a signal that stops a process group.
pub(crate) fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}
