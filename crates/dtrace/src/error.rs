//! The errors of a session.

use std::fmt;
use std::sync::Arc;

use bpf_codegen::CodegenError;
use bpf_sys::SysError;
use bpf_sys::load::LoadError;
use diagnostics::{Diagnostic, SourceMap, Style};

/// An error of compiling, enabling or tracing.
#[derive(Debug)]
pub enum Error {
    /// The programs have errors.
    Program(Vec<Diagnostic>),
    /// The back end cannot compile a clause. The error has its position.
    Codegen(CodegenError),
    /// A system call failed.
    System(SysError),
    /// The kernel rejected a program.
    Load(Box<LoadError>),
    /// A provider cannot enable its probes on this kernel.
    Provider(String),
    /// A provider cannot enable its probes, because a privilege is missing.
    Privilege(String),
    /// A target could not be created or grabbed.
    Target(proc::Error),
    /// Output could not be written.
    Output(std::io::Error),
    /// The consumer aborted, because a record is invalid.
    Aborted(consumer::Aborted),
    /// The deadman stopped the session, because it took too much time of the CPUs.
    Unresponsive,
    /// The user interrupted the enabling.
    Interrupted,
    /// The session is of the process of which this one is a forked child.
    Forked,
    /// A setting that this version rejects.
    Setting(String),
    /// An error of this library.
    Internal(String),
}

impl Error {
    /// An error of a provider. Facilities are found by probing, which also fails without the
    /// privilege or without free descriptors. Then that is the error, and not the facility that
    /// seems to be missing.
    pub(crate) fn plan(text: String) -> Error {
        if let Some(missing) = bpf_sys::missing_privilege() {
            return Error::Privilege(missing);
        }
        bpf_sys::out_of_files().map_or(Error::Provider(text), Error::System)
    }

    /// An error of the consumer.
    pub(crate) fn consuming(e: std::io::Error) -> Error {
        match e.get_ref().and_then(|e| e.downcast_ref::<consumer::Aborted>()) {
            Some(why) => Error::Aborted(*why),
            None => Error::Output(e),
        }
    }

    /// The messages, without `dtrace: `. `tags` is the option `errtags`.
    pub fn messages(&self, map: &SourceMap, tags: bool) -> Vec<String> {
        let style = if tags { Style::Tagged } else { Style::Excerpts };
        match self {
            Error::Program(all) => diagnostics::report(all, map, style),
            Error::Codegen(CodegenError { span: Some(span), message }) => {
                let error = Diagnostic::new(diagnostics::Tag::D_UNKNOWN, *span, message.clone());
                diagnostics::report(&[error], map, style)
            }
            other => vec![other.to_string()],
        }
    }
}

fn privilege(f: &mut fmt::Formatter<'_>, detail: &dyn fmt::Display) -> fmt::Result {
    write!(f, "DTrace requires additional privileges: root, or CAP_BPF and CAP_PERFMON ({detail})")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Program(all) => all.iter().try_for_each(|d| writeln!(f, "{}", d.message)),
            Error::Codegen(e) => write!(f, "could not enable tracing: {}", e.message),
            Error::System(e) if e.is_permission() => privilege(f, e),
            Error::System(e) => write!(f, "could not enable tracing: {e}"),
            Error::Load(e) if !e.is_rejection() && e.error.is_permission() => privilege(f, e),
            Error::Load(e) => write!(f, "could not enable tracing: {e}"),
            Error::Privilege(text) => privilege(f, text),
            Error::Provider(text) => write!(f, "could not enable tracing: {text}"),
            Error::Target(e) => e.fmt(f),
            Error::Output(e) => write!(f, "processing aborted: {}", diagnostics::system_text(e)),
            Error::Aborted(why) => write!(f, "processing aborted: {why}"),
            Error::Unresponsive => f.write_str("processing aborted: Abort due to systemic unresponsiveness"),
            Error::Interrupted => f.write_str("could not enable tracing: interrupted"),
            Error::Forked => {
                f.write_str("the session is of the parent of this process: a forked child cannot use it")
            }
            Error::Setting(text) => f.write_str(text),
            Error::Internal(text) => write!(f, "internal error: {text}"),
        }
    }
}

impl std::error::Error for Error {}

/// Programs that were not compiled or not enabled: the error, and the source texts that it refers
/// to.
#[derive(Debug)]
pub struct CompileError {
    /// The error.
    pub error: Error,
    /// The source texts.
    pub map: Arc<SourceMap>,
}

impl CompileError {
    /// The messages, without `dtrace: `: see [`Error::messages`].
    pub fn messages(&self, tags: bool) -> Vec<String> {
        self.error.messages(&self.map, tags)
    }
}

/// The messages, with the lines that they are about.
impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages(false).join("\n"))
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<(SourceMap, Error)> for CompileError {
    fn from((map, error): (SourceMap, Error)) -> Self {
        CompileError { error, map: Arc::new(map) }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident)*) => {
        $(impl From<$ty> for Error {
            fn from(e: $ty) -> Self {
                Error::$variant(e)
            }
        })*
    };
}
from! { SysError => System  CodegenError => Codegen  proc::Error => Target  Box<LoadError> => Load }
