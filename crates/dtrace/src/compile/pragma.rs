//! `#pragma D option`.

use diagnostics::{Diagnostic, Sink, Tag};
use syntax::ast::{Item, PragmaKind};

use crate::options::{OptionError, Options, When};

/// Sets an option that a program asks for. `running`: the program is enabled beside others that
/// run.
pub(super) fn set_pragma(item: &Item, options: &mut Options, running: bool, sink: &mut Sink) {
    let Item::Pragma(pragma) = item else { return };
    let PragmaKind::Option { name, value } = &pragma.kind else { return };
    let name = name.text.as_str();
    let when = crate::options::find(name).map(|row| row.when);
    let set = match when {
        Some(When::Compile | When::Run | When::CommandLine) if running => Err(OptionError::Active),
        Some(When::CommandLine) => Err(OptionError::InProgram),
        _ => options.set(name, value.as_ref().map(|v| v.text.as_str())).map(|_| ()),
    };
    if let Err(e) = set {
        let to = value.as_ref().map_or(String::new(), |value| format!(" to '{}'", value.text));
        let message = format!("failed to set option '{name}'{to}: {e}");
        let mut d = Diagnostic::new(Tag::D_PRAGMA_OPTSET, pragma.span, message);
        if let Some(advice) = crate::options::advice(name, e) {
            d = d.with_help(advice);
        }
        sink.push(d);
    }
}
