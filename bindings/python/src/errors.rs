//! Errors as exceptions: `dtrace.Error`, with the diagnostics of programs.

use dtrace::diagnostics::{Diagnostic, SourceKind, SourceMap, Tag};
use dtrace::{CodegenError, CompileError, Error};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::types::{self, program_text};

/// A failure: words, and the places in programs that they are about.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    text: String,
    places: Vec<Place>,
}

/// A diagnostic, as Python has it.
#[derive(Clone, Debug)]
struct Place {
    /// The name of a script or a library; none for a text.
    script: Option<String>,
    /// From 1; 0 if it is not known.
    line: u64,
    column: u32,
    tag: &'static str,
    text: String,
    help: Vec<String>,
}

impl Place {
    fn of(found: &Diagnostic, map: &SourceMap) -> Place {
        let mut place = Place {
            script: None,
            line: 0,
            column: 0,
            tag: found.tag.name(),
            text: found.message.clone(),
            help: found.help.clone(),
        };
        if let Some(span) = found.span {
            let (line, column) = map.line_column(span.file, span.start);
            let (name, line) = map.line_origin(span.file, line);
            (place.line, place.column) = (line, column);
            place.script = (map.kind(span.file) != SourceKind::Specifier).then_some(name);
        }
        place
    }
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), places: Vec::new() }
    }

    /// An option that cannot be set, as a program's own would be an error.
    pub(crate) fn of_option(text: String) -> Failure {
        let (script, tag, help) = (None, Tag::D_PRAGMA_OPTSET.name(), Vec::new());
        let place = Place { script, line: 0, column: 0, tag, text: text.clone(), help };
        Failure { text, places: vec![place] }
    }

    /// An error of programs.
    pub(crate) fn of_programs(failed: &CompileError) -> Failure {
        let places = match &failed.error {
            Error::Program(all) => all.iter().map(|found| Place::of(found, &failed.map)).collect(),
            Error::Codegen(CodegenError { span: Some(span), message }) => {
                let tag = Tag::D_UNKNOWN;
                vec![Place::of(&Diagnostic::new(tag, *span, message.clone()), &failed.map)]
            }
            _ => Vec::new(),
        };
        Failure { text: failed.messages(false).join("\n"), places }
    }

    /// The exception.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        match self.exception(py) {
            Ok(exception) => PyErr::from_value(exception),
            Err(other) => other,
        }
    }

    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut all = Vec::new();
        for Place { script, line, column, tag, text, help } in &self.places {
            let script = script.as_ref().map(|name| program_text(py, name)).transpose()?;
            let help: Vec<_> = help.iter().map(|text| program_text(py, text)).collect::<PyResult<_>>()?;
            let (text, help) = (program_text(py, text)?, PyTuple::new(py, help)?);
            let (line, column) = ((*line > 0).then_some(*line), (*column > 0).then_some(*column));
            all.push(types::DIAGNOSTIC.make(py, (script, line, column, *tag, text, help))?);
        }
        types::ERROR.make(py, (program_text(py, &self.text)?, PyTuple::new(py, all)?))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.to_string())
    }
}
