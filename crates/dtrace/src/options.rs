//! The options of a session: a table, and its values.
//!
//! ```text
//!  kinds   the types of values: sizes, words
//!  value   what a text is as a value, and a value as a text
//!  table   a field of Options and its row: name, type, when it can be set, default, description
//! ```
//!
//! A program sets the fields of [`Options`]. The command line and `#pragma D option` set the same
//! fields by texts ([`Options::set`]), whose notation follows from the type of the field; the
//! manual page, the book and the completions read the rows. Every option of the table has its
//! effect, in every session or, as its row says, in the command alone ([`Obeyed`]): then a session
//! of a program refuses it. What other systems have and this one has not is in a table of its own,
//! with the reason: setting it is an error that says so.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod kinds;
mod table;
mod value;

use std::fmt;

pub use consumer::Encoding;
pub use plane::ring::Policy;
pub use probes::{Attributes, Version};
pub use proc::Moment;
pub use providers::{Follow, Returns};
pub use symbols::Guests;

pub use kinds::{
    BufResize, Bytes, Captures, Conformance, FaultLines, FbtMeans, KernelWalk, OutputFormat, Shape,
    UserAddresses,
};
pub use table::{ABSENT, Absent, Obeyed, Options, Row, TABLE, When};
use value::Setting;
pub(crate) use value::nanoseconds;

/// Why an option could not be set; the text is DTrace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No such option.
    Name,
    /// No such value.
    Value,
    /// Not while tracing.
    Active,
    /// Not in a program.
    InProgram,
    /// No session of a program obeys it: see [`Obeyed`].
    Elsewhere,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptionError::Name => "Invalid option name",
            OptionError::Value => "Invalid value for specified option",
            OptionError::Active => "Operation illegal when tracing is active",
            OptionError::InProgram => "Operation illegal in a program",
            OptionError::Elsewhere => "Operation of the command dtrace alone",
        })
    }
}

impl std::error::Error for OptionError {}

/// A hint for an option that could not be set.
pub fn advice(name: &str, error: OptionError) -> Option<String> {
    match error {
        OptionError::Name if let Some(absent) = ABSENT.iter().find(|a| a.name == name) => {
            Some(absent.reason.to_string())
        }
        OptionError::Name => diagnostics::nearest(name, TABLE.iter().map(|r| r.name))
            .map(|near| format!("did you mean {near}?")),
        OptionError::Value => find(name).map(|row| format!("it takes {}", row.expects())),
        OptionError::InProgram => Some(format!("use -x {name}")),
        OptionError::Elsewhere => find(name).and_then(|row| row.obeyed.elsewhere()).map(String::from),
        OptionError::Active => None,
    }
}

/// The message for an option that could not be set to a value, with a hint where there is one.
pub fn failure(name: &str, value: Option<&str>, error: OptionError) -> String {
    let with = value.map(|value| format!("={value}")).unwrap_or_default();
    let advice = advice(name, error).map(|text| format!(" ({text})")).unwrap_or_default();
    format!("failed to set {name}{with}: {error}{advice}")
}

/// The row of an option.
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|r| r.name == name)
}

/// Whether it is an option that no session obeys, but who has made it: see [`Obeyed`].
pub fn is_elsewhere(name: &str) -> bool {
    find(name).is_some_and(|row| row.obeyed != Obeyed::Session)
}

impl Options {
    /// Sets an option to a value in the user's notation, and returns its row.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static Row, OptionError> {
        let row = find(name).ok_or(OptionError::Name)?;
        (row.set)(self, row, value).then_some(row).ok_or(OptionError::Value)
    }

    /// As [`Options::set`], for a program of another language, which has only what a session obeys.
    pub fn set_for_session(&mut self, name: &str, value: Option<&str>) -> Result<&'static Row, OptionError> {
        if is_elsewhere(name) { Err(OptionError::Elsewhere) } else { self.set(name, value) }
    }

    /// The value of an option as a user would write it, of a list the last one; empty if it is
    /// unset.
    pub fn text(&self, name: &str) -> String {
        find(name).and_then(|row| (row.texts)(self).pop()).unwrap_or_default()
    }

    /// The error for a field that has a value which [`Options::set`] would not take.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(row) = TABLE.iter().find(|row| !(row.is_allowed)(self, row)) else { return Ok(()) };
        let value = (row.texts)(self).join(" ");
        Err(failure(row.name, Some(&value), OptionError::Value))
    }

    /// The error for a field that has another value than its default, and that only the command
    /// obeys.
    pub(crate) fn check_obeyed(&self) -> Result<(), String> {
        let defaults = Options::default();
        let is_ignored = |row: &&Row| {
            matches!(row.obeyed, Obeyed::Command(_)) && (row.texts)(self) != (row.texts)(&defaults)
        };
        let Some(row) = TABLE.iter().find(is_ignored) else { return Ok(()) };
        let value = (row.texts)(self).join(" ");
        Err(failure(row.name, Some(&value), OptionError::Elsewhere))
    }

    /// The most frames of `stack()`: `stackframes`, else `maxframes`, else the default.
    pub fn kernel_frames(&self) -> u64 {
        self.frames(self.stackframes, "stackframes")
    }

    /// The most frames of `ustack()`: `ustackframes`, else `maxframes`, else the default.
    pub fn user_frames(&self) -> u64 {
        self.frames(self.ustackframes, "ustackframes")
    }

    fn frames(&self, own: Option<u64>, name: &str) -> u64 {
        let default = || find(name).and_then(|row| u64::parse(Some(row.default)));
        own.or(self.maxframes).or_else(default).unwrap_or_default()
    }

    /// Where nothing else is selected, `pid*` means these processes.
    pub fn select(&mut self, targets: &[proc::Target]) {
        if self.processes.is_empty() {
            // A number is a selection.
            self.processes = targets.iter().map(|target| target.pid().to_string()).collect();
        }
    }

    /// The environment of a `-c` process, by `setenv` and `unsetenv`.
    pub fn environment(&self) -> proc::Environment {
        let set = self.setenv.iter().filter_map(|text| text.split_once('='));
        let set = set.map(|(name, value)| (name.into(), value.into())).collect();
        let unset = self.unsetenv.iter().map(Into::into).collect();
        proc::Environment { unset, set, output: proc::TargetOutput::default() }
    }
}

#[cfg(test)]
mod tests;
