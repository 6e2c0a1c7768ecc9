//! CPython 3.11: how it is found, and the layout of its memory on machines of 64 bits
//! (`Include/internal/pycore_frame.h`, `pycore_runtime.h`, `pycore_interp.h`,
//! `Include/cpython/pystate.h`, `code.h`, `unicodeobject.h`), the same in all its releases and in
//! its debug build. A build with `Py_TRACE_REFS` has two more words in each object, so what is read
//! as a string is none.
//!
//! Offsets are bytes. 3.12 has no such flag for the first frame of a call, and 3.13 no such struct
//! on the stack.

use crate::Image;

/// The address of `_PyRuntime`, which has a section of its own.
pub(crate) fn state(image: &dyn Image) -> Option<u64> {
    let runtime = image.section(".PyRuntime")?;
    (image.word("Py_Version")? >> 16 == 0x030b).then_some(runtime)
}

/// `_PyRuntimeState`: the first interpreter.
pub const INTERPRETERS: i32 = 40;
/// The same: the thread that runs.
pub const RUNNING: i32 = 576;
/// The number of the thread-specific value that is the state of a thread.
pub const KEY_OF_THREAD: i32 = 596;
/// `PyInterpreterState`: the next.
pub const NEXT_INTERPRETER: i32 = 0;
/// The same: its first thread.
pub const THREADS: i32 = 16;
/// `PyThreadState`: the next.
pub const NEXT_THREAD: i32 = 8;
/// The same: the struct of its innermost call.
pub const CFRAME: i32 = 56;
/// `_PyCFrame`: its frame, behind which is the struct before.
pub const CURRENT: i32 = 8;

/// `_PyInterpreterFrame`, of which so many bytes are read.
pub const FRAME_BYTES: u32 = 72;
/// In it: the code object.
pub const F_CODE: i16 = 32;
/// The frame that called it.
pub const F_PREVIOUS: i16 = 48;
/// The instruction.
pub const F_INSTRUCTION: i16 = 56;
/// True in the first frame that a call of the interpreter's function runs.
pub const F_IS_ENTRY: i16 = 68;

/// `PyCodeObject`: where its instructions begin.
pub const INSTRUCTIONS: i32 = 184;
/// The part that is read.
pub const CODE_AT: i32 = 72;
/// Its bytes.
pub const CODE_BYTES: u32 = 72;
/// In that part: the first line.
pub const C_FIRST_LINE: i16 = 0;
/// The name of the file.
pub const C_FILE: i16 = 40;
/// The qualified name.
pub const C_NAME: i16 = 56;
/// The line table.
pub const C_LINES: i16 = 64;

/// Where the length of an object is.
pub const LENGTH: i32 = 16;
/// What is behind the length of a string: its hash.
pub const S_HASH: i16 = 8;
/// Its state.
pub const S_STATE: i16 = 16;
/// From here on its characters, if it is ASCII.
pub const S_TEXT: i16 = 32;
/// By how much the characters of others are behind.
pub const OTHERS_MORE: i64 = 24;
/// In the state of a string: the bytes of a character.
pub const KIND_SHIFT: i64 = 2;
/// The characters are behind the object.
pub const COMPACT_BIT: i64 = 5;
/// They are ASCII.
pub const ASCII_BIT: i64 = 6;
/// The hash of a string that has none yet.
pub const NO_HASH: i64 = -1;
