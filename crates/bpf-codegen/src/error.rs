//! The error of code generation.

use diagnostics::Span;

/// An error of code generation: a program that exceeds a limit of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodegenError {
    /// The D text that caused the error, where known.
    pub span: Option<Span>,
    /// The message.
    pub message: String,
}

impl std::fmt::Display for CodegenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CodegenError {}

/// The result of code generation.
pub type Result<T> = std::result::Result<T, CodegenError>;
