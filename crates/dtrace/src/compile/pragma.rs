//! `#pragma D option`.

use diagnostics::{Diagnostic, Sink, Tag};
use syntax::ast::{Item, PragmaKind};

use crate::options::{self, OptionError, Options, When};

/// Whose session a program is of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Of {
    /// It is enabled beside others that run.
    pub(super) running: bool,
    /// Of a program that uses this library: see [`Setup`](crate::Setup).
    pub(super) library: bool,
}

/// Sets an option that a program asks for.
pub(super) fn set_pragma(item: &Item, settings: &mut Options, of: Of, sink: &mut Sink) {
    let Item::Pragma(pragma) = item else { return };
    let PragmaKind::Option { name, value } = &pragma.kind else { return };
    let name = name.text.as_str();
    let when = options::find(name).map(|row| row.when);
    let set = match when {
        _ if of.library && options::is_elsewhere(name) => Err(OptionError::Elsewhere),
        Some(When::Compile | When::Run | When::CommandLine) if of.running => Err(OptionError::Active),
        Some(When::CommandLine) => Err(OptionError::InProgram),
        _ => settings.set(name, value.as_ref().map(|v| v.text.as_str())).map(|_| ()),
    };
    if let Err(e) = set {
        let to = value.as_ref().map_or(String::new(), |value| format!(" to '{}'", value.text));
        let message = format!("failed to set option '{name}'{to}: {e}");
        let mut d = Diagnostic::new(Tag::D_PRAGMA_OPTSET, pragma.span, message);
        if let Some(advice) = options::advice(name, e) {
            d = d.with_help(advice);
        }
        sink.push(d);
    }
}
