//! The classes of Python that are made here, and texts as its objects.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

/// A class of `dtrace._types`, by its name.
#[derive(Clone, Copy)]
pub(crate) struct Class(&'static str);

macro_rules! classes {
    ($($name:ident = $text:literal)*) => {
        $(pub(crate) const $name: Class = Class($text);)*
    };
}
classes! {
    PROBE = "Probe" SYMBOL = "Symbol" STACK = "Stack" BUCKET = "Bucket" DISTRIBUTION = "Distribution"
    ROW = "Row" GROWTH = "Growth" FIELD = "Field" START = "Start" RECORD = "Record"
    AGGREGATION = "Aggregation" INTERVAL = "Interval" EFFECT = "Effect" FAULT = "Fault" DROP = "Drop"
    SUPPRESSED = "Suppressed" NOTICE = "Notice" REPORT = "Report" END = "End"
    DIAGNOSTIC = "Diagnostic" ERROR = "Error"
}

/// The module, which is imported once.
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

impl Class {
    fn get(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let import = || py.import("dtrace._types").map(|module| module.dict().unbind());
        let all = CLASSES.get_or_try_init(py, import)?;
        all.bind(py).as_any().get_item(PyString::intern(py, self.0))
    }

    /// An object of the class.
    pub(crate) fn make<'py, A>(self, py: Python<'py>, arguments: A) -> PyResult<Bound<'py, PyAny>>
    where
        A: PyCallArgs<'py>,
    {
        self.get(py)?.call1(arguments)
    }
}

/// Bytes as a string. What is no UTF-8 in them is as Python has it in the names of files
/// (`surrogateescape`): encoding the string so gives the bytes.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => {
            let bytes = pyo3::types::PyBytes::new(py, bytes);
            PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogateescape"))
        }
    }
}

/// A text of a program, which is in the encoding of `diagnostics::raw`.
pub(crate) fn program_text<'py>(py: Python<'py>, raw: &str) -> PyResult<Bound<'py, PyString>> {
    match dtrace::diagnostics::raw::is_raw(raw) {
        true => text(py, &dtrace::diagnostics::raw::bytes(raw)),
        false => Ok(PyString::new(py, raw)),
    }
}
