//! The `dtrace` command on the running kernel.

use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use cli::Engine;
use dtrace::diagnostics::raw;

/// Sessions end with their aggregations where there is no more memory.
#[global_allocator]
static MEMORY: cli::Memory = cli::Memory;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|w| raw::text(w.into_vec())).collect();
    ExitCode::from(cli::command(&words, Engine::Kernel))
}
