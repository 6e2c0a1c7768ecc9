//! How the [reader](crate::reader) begins: this executable is run once more, and before its `main` it finds in its
//! environment that it is to be the reader.
//!
//! **Why a second run of the executable.** A reader needs an address space and descriptors of its own. A `fork` without `exec`
//! has those of its owner: a reader that is left behind, waiting for a file server that is dead, would keep every program, map
//! and link of the session in the kernel; it would have the memory of whoever embeds this library; and after a `fork` of a
//! process with threads only async-signal-safe functions may be called, of which none reads a symbol table. A helper
//! executable of its own would have to be built, installed and found. `/proc/self/exe` is there, is the right version, and
//! `posix_spawn` of it is safe in a process with threads.
//!
//! **Why before `main`.** The library may be embedded, and the `main` of a program that embeds it knows nothing of readers. A
//! function in `.init_array` runs in every executable that this crate is linked into, after the C library and before `main`;
//! it costs one look into the environment. Where the crate is in a shared object instead (an extension of a scripting
//! language), running the executable again would run something else, so it is not done: [`executable`] says so, and addresses
//! of processes are shown as numbers.

use std::time::Duration;

use crate::maps;
use crate::reader::{self, Limits};
use crate::sys;

/// Says that a process is a reader, and its limits: milliseconds and bytes.
const VARIABLE: &std::ffi::CStr = c"DTRACE_SYMBOL_READER";

/// What the kernel runs to make a reader.
const SELF: &str = "/proc/self/exe";

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs before `main`.
extern "C" fn begin() {
    // SAFETY: the name is a string; no other thread exists yet that could change the environment, and the value is not
    // kept.
    let value = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if value.is_null() {
            return;
        }
        std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    let done = parse(&value).and_then(|limits| reader::serve(sys::standard_input(), limits).ok());
    // SAFETY: ends the process without running what the executable would do at its end, for it has not begun.
    unsafe { libc::_exit(i32::from(done.is_none())) };
}

fn parse(value: &str) -> Option<Limits> {
    let (ms, memory) = value.split_once(':')?;
    Some(Limits { time: Duration::from_millis(ms.parse().ok()?), memory: memory.parse().ok()? })
}

/// The executable to run, and the variable that makes it a reader; why there can be none.
pub(crate) fn executable(limits: Limits) -> Result<(&'static str, (&'static str, String)), &'static str> {
    if !is_in_executable() {
        return Err("the tracer is part of a shared object");
    }
    let name = VARIABLE.to_str().unwrap_or_default();
    Ok((SELF, (name, format!("{}:{}", limits.time.as_millis(), limits.memory))))
}

/// True when this code lies in the executable's file, as the program headers that the kernel has told us of do.
fn is_in_executable() -> bool {
    // SAFETY: no memory is passed.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    let map = maps::parse(&std::fs::read("/proc/self/maps").unwrap_or_default());
    let file = |addr: u64| maps::find(&map.mappings, addr).map(|m| m.backing);
    let here = file(begin as extern "C" fn() as usize as u64);
    here.is_some() && here == file(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_an_executable_that_can_be_run_again() {
        let limits = Limits { time: Duration::from_millis(1500), memory: 5 };
        let (path, (name, value)) = executable(limits).unwrap();
        assert_eq!((path, name), ("/proc/self/exe", "DTRACE_SYMBOL_READER"));
        assert_eq!(parse(&value), Some(limits));
        assert_eq!(parse("nonsense"), None);
    }
}
