//! Sessions in C: the functions of `dtrace.h`, which has what each one does.
//!
//! ```text
//!  lib        the functions: pointers of C in, pointers of C out
//!  session    what a session has, without pointers; the guard of every call
//!  event      events as structs
//!  poll       one descriptor for all that a session waits for
//!  stop       stopping a session from any thread and any handler of a signal
//! ```
//!
//! **No panic crosses the boundary.** Every call is made by [`session::Guard`]: a panic in it is an
//! error with its message, the session is dropped, and further calls with it fail. So the library
//! is built with unwinding (`cargo build --profile library -p dtrace-c`).
//!
//! **A wrong call is an error and not undefined** where that can be known: NULL, a wrong order, two
//! threads at once, a forked child. What cannot be known is a session that was closed.
//!
//! The header is written by hand, because it is documentation; a test compares it with what
//! `cbindgen` makes of this crate.
//!
//! **What C is compiled with stays.** `layout!` fixes the sizes of the structs and the places of
//! their members when this is compiled; a change needs another soname.
//!
//! ```layers
//! poll stop
//! event
//! session
//! ```

#![allow(non_camel_case_types)]

mod event;
mod poll;
mod session;
mod stop;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

use dtrace::diagnostics::raw;
use dtrace::{Source, Status};

pub use event::{dt_bucket, dt_event, dt_form, dt_kind, dt_value};
use session::{Guard, Problems, misuse};
pub use session::{dt_problem, dt_session};

/// Fixes what programs were compiled with: the size of a struct, and where its members are.
macro_rules! layout {
    ($of:ident $size:literal: $($member:ident $at:literal)*) => {
        const _: () = {
            assert!(size_of::<$of>() == $size);
            $(assert!(std::mem::offset_of!($of, $member) == $at);)*
        };
    };
}
layout!(dt_value 40: form 0 number 8 text 16 length 24 name 32);
layout!(dt_bucket 24: low 0 high 8 count 16);
layout!(dt_event 88: kind 0 cpu 4 pid 8 tid 12 time 16 probe 24 name 32 values 40 values_count 48
    result 56 buckets 64 buckets_count 72 text 80);
layout!(dt_problem 40: text 0 message 8 tag 16 script 24 line 32 column 36);

/// The text of a pointer of C, in which bytes that are no UTF-8 are encoded as the library has
/// them.
///
/// # Safety
/// NULL, or a string that ends with a NUL and stays as it is during the call.
unsafe fn text(of: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    (!of.is_null()).then(|| raw::text(unsafe { CStr::from_ptr(of) }.to_bytes().to_vec()))
}

/// The same where it must not be NULL.
///
/// # Safety
/// As [`text`].
unsafe fn needed(of: *const c_char, what: &str) -> Result<String, Problems> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(of) }.ok_or_else(|| misuse(format!("{what} is NULL")))
}

/// A program, with the name of a script or without.
///
/// # Safety
/// As [`text`].
unsafe fn source(name: *const c_char, program: *const c_char) -> Result<Source, Problems> {
    // SAFETY: guaranteed by the caller.
    let (name, program) = unsafe { (text(name), needed(program, "the program")?) };
    Ok(match name {
        Some(name) => Source::Script(name, program),
        None => Source::Specifier(dtrace::Field::Name, program),
    })
}

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn dt_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// A new session.
#[unsafe(no_mangle)]
pub extern "C" fn dt_open() -> *mut dt_session {
    dtrace::close_in_forked_children();
    Box::into_raw(Box::new(dt_session::new()))
}

/// Ends a session and frees it, unless another thread is using it.
///
/// # Safety
/// NULL, or a session that was not closed. After 0 it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_close(session: *mut dt_session) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { dt_session::close(session) }
}

/// Sets an option.
///
/// # Safety
/// NULL or a session that was not closed; texts as [`text`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_option(
    session: *mut dt_session,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.option(&needed(name, "the option")?, text(value).as_deref())) }
}

/// Names the executable that reads symbols.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_reader(session: *mut dt_session, path: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.reader(&needed(path, "the path")?)) }
}

/// Adds a program.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_program(
    session: *mut dt_session,
    name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.program(source(name, text)?)) }
}

/// Adds an operand.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_argument(session: *mut dt_session, text: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.argument(needed(text, "the operand")?)) }
}

/// Adds a command.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_command(session: *mut dt_session, command: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.command(&needed(command, "the command")?)) }
}

/// Adds a process.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_process(session: *mut dt_session, pid: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.process(pid)) }
}

/// Begins.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_start(session: *mut dt_session) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session) }.start()
}

/// Enables more.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_enable(
    session: *mut dt_session,
    name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).status(|s| s.enable(source(name, text)?)) }
}

/// The descriptor to poll.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_descriptor(session: *mut dt_session) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).value(-1, |s| s.descriptor()) }
}

/// Milliseconds until work is due.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_deadline(session: *mut dt_session) -> c_int {
    // SAFETY: guaranteed by the caller.
    let left = unsafe { Guard::of(session).value(None, |s| s.deadline().map(Some)) };
    // Rounded up: a caller that waits so long finds work.
    let up = |left: Duration| c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
    left.map_or(-1, up)
}

/// Works.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_work(session: *mut dt_session, timeout: c_int) -> c_int {
    let limit = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_millis);
    let status = |status| c_int::from(status == Status::Working);
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).value(-1, |s| s.work(limit).map(status)) }
}

/// The next event.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_next(session: *mut dt_session) -> *const dt_event {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).value(ptr::null(), |s| s.next().map(|e| e.unwrap_or(ptr::null()))) }
}

/// The next event as JSON.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_next_json(session: *mut dt_session) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { Guard::of(session).value(ptr::null(), |s| s.next_json().map(|e| e.unwrap_or(ptr::null()))) }
}

/// Stops.
///
/// # Safety
/// As [`dt_option`], but other threads may use the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_stop(session: *mut dt_session) -> c_int {
    // SAFETY: guaranteed by the caller. What it reads is only shared.
    unsafe { dt_session::stop(session) }
}

/// Finishes.
///
/// # Safety
/// As [`dt_option`]; `status` is NULL or for one number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_finish(session: *mut dt_session, status: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let done = unsafe { Guard::of(session).value(None, |s| s.finish().map(Some)) };
    if let Some(done) = done
        && !status.is_null()
    {
        // SAFETY: guaranteed by the caller.
        unsafe { status.write(done) };
    }
    if done.is_some() { 0 } else { -1 }
}

/// What was wrong.
///
/// # Safety
/// As [`dt_option`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_error(session: *mut dt_session, number: usize) -> *const dt_problem {
    // SAFETY: guaranteed by the caller.
    unsafe { dt_session::problem(session, number) }
}
