//! The moment at which a process of `-c` waits, by what programs say of it.

use diagnostics::{Sink, SourceKind, SourceMap};
use syntax::ast::{Item, PragmaKind};
use syntax::{MacroEnv, ParseMode, SpecField};

use crate::compile::Source;
use crate::error::Error;
use crate::options::{Moment, Options};

/// The name of the option.
const OPTION: &str = "evaltime";

/// The moment at which a `-c` process is to wait: by the last `#pragma D option evaltime=MOMENT` of these programs,
/// else by the options. A program can only be compiled when the process is there, since it may have probes of it
/// and name it (`$target`), and it waits at that moment by then: so programs are read for this alone before, as
/// they are without the preprocessor of C. What is wrong in them, such a value too, is said when they are compiled.
pub fn evaltime_in(options: &Options, sources: &[Source]) -> Moment {
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

/// The error where a program has set the option otherwise when it was compiled, for processes that have waited
/// at this moment.
pub fn check_evaltime(waited: Moment, options: &Options) -> Result<(), Error> {
    if waited == options.evaltime {
        return Ok(());
    }
    Err(Error::Setting(
        "evaltime: what a program says only behind the preprocessor is too late for the process; use -x evaltime".into(),
    ))
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
