//! What can go wrong between a program and its results.

use std::fmt;

use bpf::load::LoadError;
use bpf::regalloc::CodegenError;
use bpf::sys::SysError;
use diagnostics::{Diagnostic, SourceMap, Style};

/// Everything that can go wrong.
#[derive(Debug)]
pub enum Error {
    /// The programs are wrong.
    Program(Vec<Diagnostic>),
    /// A clause is more than the back end can make; the complaint names it.
    Codegen(CodegenError),
    /// The kernel refused a system call.
    System(SysError),
    /// The kernel refused a program.
    Load(Box<LoadError>),
    /// A provider cannot do it on this kernel.
    Provider(String),
    /// A provider found no means, for want of privilege.
    Privilege(String),
    /// A target could not be had.
    Target(proc::Error),
    /// Output could not be written.
    Output(std::io::Error),
    /// The results make no sense.
    Aborted(consumer::Aborted),
    /// The session left the machine no time, and was stopped.
    Unresponsive,
    /// The user interrupted the enabling.
    Interrupted,
    /// A setting that this version refuses.
    Setting(String),
    /// Ours.
    Internal(String),
}

impl Error {
    /// A provider's refusal. A facility is found by trying, and a try also fails for want of privilege or of descriptors:
    /// then that is the message, and not what the kernel seems to lack.
    pub(crate) fn plan(text: String) -> Error {
        if let Some(missing) = bpf::sys::missing_privilege() {
            return Error::Privilege(missing);
        }
        bpf::sys::out_of_files().map_or(Error::Provider(text), Error::System)
    }

    /// What the consumer could not go on after.
    pub(crate) fn consuming(e: std::io::Error) -> Error {
        match e.get_ref().and_then(|e| e.downcast_ref::<consumer::Aborted>()) {
            Some(why) => Error::Aborted(*why),
            None => Error::Output(e),
        }
    }

    /// The messages, without `dtrace: `; `tags` is the option `errtags`.
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
            Error::Output(e) => {
                // The system's words without Rust's "(os error N)".
                let text = e.to_string();
                write!(f, "processing aborted: {}", text.split(" (os error").next().unwrap_or_default())
            }
            Error::Aborted(why) => write!(f, "processing aborted: {why}"),
            Error::Unresponsive => f.write_str("processing aborted: Abort due to systemic unresponsiveness"),
            Error::Interrupted => f.write_str("could not enable tracing: interrupted"),
            Error::Setting(text) => f.write_str(text),
            Error::Internal(text) => write!(f, "internal error: {text}"),
        }
    }
}

impl std::error::Error for Error {}

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
