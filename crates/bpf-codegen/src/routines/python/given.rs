//! What the program knows of a frame of Python, in the scratch slot: the frame, a part of its code object, its strings from their
//! lengths on, and what is needed to find a line. Their layouts are CPython's.

use crate::mir::{Builder, Helper, Jmp, Label, Size, V};

/// `_PyInterpreterFrame`, of which so many bytes are read.
pub(super) const FRAME_BYTES: u32 = 72;
pub(super) const F_CODE: i16 = 32;
pub(super) const F_PREVIOUS: i16 = 48;
pub(super) const F_INSTRUCTION: i16 = 56;
/// True in the first frame that a call of the interpreter's function runs.
pub(super) const F_IS_ENTRY: i16 = 68;

/// `PyCodeObject`: where its instructions begin, and the part that is read.
pub(super) const INSTRUCTIONS: i32 = 184;
pub(super) const CODE_AT: i32 = 72;
pub(super) const CODE_BYTES: u32 = 72;
/// In that part: first line, file, qualified name, line table.
pub(super) const C_FIRST_LINE: i16 = 0;
pub(super) const C_FILE: i16 = 40;
pub(super) const C_NAME: i16 = 56;
pub(super) const C_LINES: i16 = 64;
/// Where the length of an object is.
pub(super) const LENGTH: i32 = 16;
/// Offsets in what is known of a frame.
pub(super) const G_FRAME: i16 = 0;
pub(super) const G_CODE: i16 = G_FRAME + FRAME_BYTES as i16;
pub(super) const G_FILE: i16 = G_CODE + CODE_BYTES as i16;
pub(super) const FILE_BYTES: u32 = 128;
pub(super) const G_NAME: i16 = G_FILE + FILE_BYTES as i16;
pub(super) const NAME_BYTES: u32 = 96;
/// The code object and the file whose parts are there: frames that follow each other often have the same. They are 0 when a walk begins.
pub(super) const G_KEPT: [i16; 2] = [KEPT_CODE, KEPT_FILE];
pub(super) const KEPT_CODE: i16 = G_NAME + NAME_BYTES as i16;
pub(super) const KEPT_FILE: i16 = KEPT_CODE + 8;
pub(super) const G_LINE: i16 = KEPT_FILE + 8;
/// Bytes of what is needed to find a line, and of its line table.
const LINE_BYTES: u32 = 96;
pub(super) const LINE_WINDOW: u32 = 256;
/// All of it.
pub(super) const GIVEN_SIZE: u32 = G_LINE as u32 + LINE_BYTES + LINE_WINDOW;

/// Where the first line is, and the address of the line table.
pub(super) const G_FIRST_LINE: i16 = G_CODE + C_FIRST_LINE;
pub(super) const G_LINES: i16 = G_CODE + C_LINES;

/// Offsets in what is known of a frame: the instruction, the address and the bytes of the table.
pub(super) const TARGET: i16 = G_LINE;
pub(super) const TABLE: i16 = G_LINE + 8;
pub(super) const SIZE: i16 = G_LINE + 16;
/// The next byte.
pub(super) const AT: i16 = G_LINE + 24;
/// Of the entry: its line, where its instructions end, whether it has a line.
pub(super) const LINE: i16 = G_LINE + 32;
pub(super) const END: i16 = G_LINE + 40;
pub(super) const KNOWN: i16 = G_LINE + 48;
/// Whether a number is being read, what there is of it, its next bit.
pub(super) const READING: i16 = G_LINE + 56;
pub(super) const VALUE: i16 = G_LINE + 64;
pub(super) const SHIFT: i16 = G_LINE + 72;
/// The bytes that have been read: where they begin, how many there are.
pub(super) const FROM: i16 = G_LINE + 80;
pub(super) const COUNT: i16 = G_LINE + 88;
pub(super) const LINE_TEXT: i16 = G_LINE + LINE_BYTES as i16;

/// A word of the process at an address and an offset. Jumps to `failed` if it cannot be read.
pub(super) fn read_word(b: &mut Builder, base: V, offset: i32, failed: Label) -> V {
    let word = b.stack(8);
    b.slot_store(Size::B8, word, 0, 0);
    let from = b.add(base, offset);
    let (to, size) = (b.slot_addr(word, 0), b.imm(8));
    let result = b.call(Helper::PROBE_READ_USER, &[to, size, from]);
    b.br(Jmp::Ne, result, 0, failed);
    b.slot_load(Size::B8, word, 0)
}
