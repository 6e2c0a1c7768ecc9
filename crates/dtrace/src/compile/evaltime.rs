//! The processes that are targets, and the moment at which those of `-c` wait, by what programs say
//! of it.

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::ast::{Item, PragmaKind};
use syntax::{MacroEnv, ParseMode, SpecField};

use crate::compile::Source;
use crate::error::Error;
use crate::options::{Moment, Options};

/// The name of the option.
const OPTION: &str = "evaltime";

/// A process that is to be a target.
#[derive(Debug)]
pub enum Wanted {
    /// It is created, by a command that is split on blanks (`-c`).
    Command(Vec<u8>),
    /// The same by its words.
    Words(Vec<Vec<u8>>),
    /// It runs already (`-p`).
    Pid(i32),
    /// It was taken or created before.
    Process(proc::Target),
}

/// The targets of a session, which wait until it begins. The first is `$target`.
#[derive(Debug, Default)]
pub struct Targets {
    all: Vec<proc::Target>,
    /// The moment at which those wait that were created, if any was.
    waited: Option<Moment>,
}

impl Targets {
    /// Creates and stops processes, for programs that are compiled afterwards. A pid that is wanted
    /// twice is one target, as in the original. What is created has this environment, waits at the
    /// moment that the programs say, else the options (`evaltime`), and has memory for
    /// `postmortem`.
    pub fn make(
        wanted: Vec<Wanted>,
        environment: &proc::Environment,
        options: &Options,
        sources: &[Source],
    ) -> Result<Targets, proc::Error> {
        let memory = options.postmortem.map(|size| size.0);
        let Targets { mut all, mut waited } = Targets::default();
        for wanted in wanted {
            let target = match wanted {
                Wanted::Command(text) => {
                    let moment = *waited.get_or_insert_with(|| evaltime_in(options, sources));
                    proc::Target::create_with_memory(text, environment, moment, memory)?
                }
                Wanted::Words(words) => {
                    let moment = *waited.get_or_insert_with(|| evaltime_in(options, sources));
                    proc::Target::create_of_words(&words, environment, moment, memory)?
                }
                Wanted::Pid(pid) if all.iter().any(|target: &proc::Target| target.pid() == pid) => continue,
                Wanted::Pid(pid) => proc::Target::grab(pid)?,
                Wanted::Process(target) => target,
            };
            all.push(target);
        }
        Ok(Targets { all, waited })
    }

    /// The processes.
    pub fn all(&self) -> &[proc::Target] {
        &self.all
    }

    /// The value of `$target`; 0 if there is none.
    pub fn first(&self) -> u64 {
        self.all.first().map_or(0, |target| target.pid() as u64)
    }

    /// The processes, for the session. An error where a program has set `evaltime` otherwise when
    /// it was compiled, which was too late for a process that waited at another moment.
    pub fn into_all(self, options: &Options) -> Result<Vec<proc::Target>, Error> {
        if self.waited.is_none_or(|waited| waited == options.evaltime) {
            return Ok(self.all);
        }
        Err(Error::Setting(
            "evaltime: what a program says only behind the preprocessor is too late for the process; use -x evaltime".into(),
        ))
    }
}

/// The moment at which a `-c` process is to wait: by the last `#pragma D option evaltime=MOMENT` of
/// these programs, else by the options. A program can only be compiled when the process is there,
/// since it may have probes of it and name it (`$target`), and it waits at that moment by then: so
/// programs are read for this alone before, as they are without the preprocessor of C. What is
/// wrong in them, such a value too, is said when they are compiled.
fn evaltime_in(options: &Options, sources: &[Source]) -> Moment {
    let text = sources.iter().rev().find_map(|source| match source {
        Source::Script(_, text) => in_text(text, ParseMode::Script),
        Source::Specifier(_, text) => in_text(text, ParseMode::Specifier(SpecField::Name)),
    });
    let mut options = options.clone();
    if let Some(text) = text {
        let _ = options.set(OPTION, Some(&text));
    }
    options.evaltime
}

fn in_text(text: &str, mode: ParseMode) -> Option<String> {
    if !text.contains(OPTION) {
        return None;
    }
    let (mut map, mut sink) = (SourceMap::default(), Sink::default());
    let file = map.add(SourceKind::Script, "", text);
    let tree = syntax::parse(&mut map, file, mode, &MacroEnv::default(), &(), &mut sink);
    tree.items.into_iter().rev().find_map(|item| match item {
        Item::Pragma(pragma) => match pragma.kind {
            PragmaKind::Option { name, value } if name.text == OPTION => Some(value?.text.to_string()),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moment_that_a_program_sets_counts() {
        for (text, moment) in [
            ("BEGIN", None),
            ("#pragma D option evaltime=main\nBEGIN", Some("main")),
            ("#pragma D option quiet\n\t# pragma  D option evaltime=\"exec\"\nBEGIN", Some("exec")),
            ("#pragma D option evaltime=exec\n#pragma D option evaltime=main\n", Some("main")),
            ("/*\n#pragma D option evaltime=main\n*/\nBEGIN", None),
            ("/* a */\n#pragma D option evaltime=main\n", Some("main")),
            ("BEGIN { system(\"ls /tmp/*\"); }\n#pragma D option evaltime=main\n", Some("main")),
            ("BEGIN { printf(\"#pragma D option evaltime=main\"); }", None),
            ("#pragma D option evaltimes=main\n#pragma X option evaltime=main\n", None),
        ] {
            assert_eq!(in_text(text, ParseMode::Script).as_deref(), moment, "{text}");
        }
    }
}
