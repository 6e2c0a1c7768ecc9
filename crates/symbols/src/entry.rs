//! The entry point of the [reader](crate::reader) process. The session executes its own executable
//! again. Code that runs before `main` finds an environment variable and serves requests instead.
//!
//! **Why the executable is executed again.** A reader needs its own address space and descriptors.
//! A child of `fork` without `exec` would share those of the session. An abandoned reader, blocked
//! on a dead file server, would keep every BPF program, map and link of the session in the kernel,
//! and the memory of the program that embeds this library. After a `fork` of a multi-threaded
//! process, moreover, only async-signal-safe functions may be called. A separate helper executable
//! would have to be built, installed and found. `/proc/self/exe` always exists and has the right
//! version, and `posix_spawn` of it is safe in a multi-threaded process.
//!
//! **Why before `main`.** The `main` of a program that embeds this library does not know about
//! readers. A function in `.init_array` runs in every executable that this crate is linked into,
//! after the C library is initialized and before `main`. It costs one lookup in the environment. If
//! the crate is in a shared object (an extension of a scripting language), executing the executable
//! again would run a different program. Then [`executable`] returns an error, and addresses of
//! processes are shown as numbers.

use std::io;

use crate::reader;
use crate::sys;
use proc::maps;

/// The environment variable that makes a process a reader. Its value is the limit of its memory in
/// bytes.
const VARIABLE: &std::ffi::CStr = c"DTRACE_SYMBOL_READER";

/// The executable of a reader.
const SELF: &str = "/proc/self/exe";

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs before `main`.
extern "C" fn begin() {
    // SAFETY: the name ends in NUL. No other thread exists yet that could change the environment,
    // and the value is copied.
    let value = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if value.is_null() {
            return;
        }
        std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    let done = value.parse().ok().and_then(|memory| reader::serve(sys::standard_input(), memory).ok());
    // SAFETY: ends the process without exit handlers. The executable's `main` has not started.
    unsafe { libc::_exit(i32::from(done.is_none())) };
}

/// The executable to run, and the variable that makes it a reader. `Err`: why there can be no
/// reader.
pub(crate) fn executable(memory: u64) -> io::Result<(&'static str, (&'static str, String))> {
    if !is_in_executable()? {
        return Err(io::Error::other("the tracer is part of a shared object"));
    }
    let name = VARIABLE.to_str().unwrap_or_default();
    Ok((SELF, (name, memory.to_string())))
}

/// True when this code is mapped from the same file as the program headers of the executable
/// (`AT_PHDR`).
fn is_in_executable() -> io::Result<bool> {
    // SAFETY: no memory is passed.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    let map = maps::parse(&std::fs::read("/proc/self/maps")?);
    let file = |addr: u64| maps::find(&map.mappings, addr).map(|m| m.backing);
    let here = file(begin as extern "C" fn() as usize as u64);
    Ok(here.is_some() && here == file(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_an_executable_that_can_be_run_again() {
        let (path, (name, value)) = executable(5).unwrap();
        assert_eq!((path, name), ("/proc/self/exe", "DTRACE_SYMBOL_READER"));
        assert_eq!(value.parse(), Ok(5));
    }
}
