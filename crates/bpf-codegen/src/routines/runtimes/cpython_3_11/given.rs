//! What the program knows of a frame of Python, in the scratch slot: the frame, a part of its code
//! object, its strings from their lengths on, and what is needed to find a line. Their layouts are
//! CPython's.

use runtimes::cpython_3_11::{C_FIRST_LINE, C_LINES, CODE_BYTES, FRAME_BYTES};

/// Offsets in what is known of a frame.
pub(super) const G_FRAME: i16 = 0;
pub(super) const G_CODE: i16 = G_FRAME + FRAME_BYTES as i16;
pub(super) const G_FILE: i16 = G_CODE + CODE_BYTES as i16;
pub(super) const FILE_BYTES: u32 = 128;
pub(super) const G_NAME: i16 = G_FILE + FILE_BYTES as i16;
pub(super) const NAME_BYTES: u32 = 96;
/// The code object and the file whose parts are there: frames that follow each other often have the
/// same. They are 0 when a walk begins.
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
