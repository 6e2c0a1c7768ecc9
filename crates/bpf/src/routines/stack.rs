//! Stacks: captured into a scratch slot, hashed, and stored once in the stack store.
//! [`plane::stacks`] describes the store.

use plane::control::DropKind;
use plane::stacks::{EXEC, FRAMES_MAX, NFRAMES, PCS, TGID};
use plane::table::HASH_MULTIPLIER;

use super::{Firing, count_drop};
use crate::maps::Plan;
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, MapRef, Operand, Size, V};

/// The parameters of a stack capture.
#[derive(Clone, Copy, Debug)]
pub struct StackRequest {
    /// The program's context, or a substitute on the stack for programs whose context the helper
    /// does not accept.
    pub ctx: V,
    /// Captures the process's stack instead of the kernel's.
    pub user: bool,
    /// Maximum number of frames.
    pub frames: u32,
    /// Number of innermost frames to skip.
    pub skip: Operand,
    /// The process (tgid in the tracer's namespace) for user stacks, 0 for kernel stacks.
    pub tgid: Operand,
    /// A buffer of `plane::stacks::value_size(plan.stack_frames)` bytes in a scratch slot.
    pub buffer: V,
}

/// Captures and stores a stack. Returns its id, or 0 when there is no stack. When the store is
/// full, counts a stack drop and returns 0.
pub fn stack(b: &mut Builder, plan: &Plan, firing: &Firing, what: &StackRequest) -> V {
    let frames = what.frames.clamp(1, plan.stack_frames.clamp(1, FRAMES_MAX));
    let none = b.label();
    let pcs = b.add(what.buffer, PCS);
    let bytes = b.call_stack(what.ctx, pcs, frames, (what.user, what.skip));
    b.br(Jmp::Sle, bytes, 0, none);
    let count = b.shr(bytes, 3);
    keep(b, firing, (what.buffer, count, frames), what.tgid, none)
}

/// Captures a stack for [`captured_stack`]: its frames, up to the maximum, and their number at
/// `place`.
pub fn capture_stack(b: &mut Builder, ctx: V, place: V, which: (bool, Operand)) {
    let (done, count) = (b.label(), b.copy(0));
    let pcs = b.add(place, CAPTURED_BUFFER + PCS);
    let bytes = b.call_stack(ctx, pcs, FRAMES_MAX, which);
    b.br(Jmp::Sle, bytes, 0, done);
    let frames = b.shr(bytes, 3);
    b.set(count, frames);
    b.bind(done);
    b.store(Size::B8, place, 0, count);
}

/// Bytes of a captured stack.
pub const CAPTURED: u32 = CAPTURED_BUFFER + plane::stacks::value_size(FRAMES_MAX);

/// Offset of the frames, in the store's format, behind their number.
pub const CAPTURED_BUFFER: u32 = 8;

/// Returns what [`stack`] returns, for the stack that was captured at `place`.
pub fn captured_stack(
    b: &mut Builder,
    plan: &Plan,
    firing: &Firing,
    place: V,
    (frames, tgid): (u32, Operand),
) -> V {
    let frames = frames.clamp(1, plan.stack_frames.clamp(1, FRAMES_MAX));
    let (none, fewer) = (b.label(), b.label());
    let all = b.load(Size::B8, place, 0);
    b.br(Jmp::Eq, all, 0, none);
    let count = b.copy(all);
    b.br(Jmp::Le, count, frames, fewer);
    b.set(count, frames);
    b.bind(fewer);
    let buffer = b.add(place, CAPTURED_BUFFER);
    keep(b, firing, (buffer, count, frames), tgid, none)
}

impl Builder {
    /// Captures at most `frames` frames to `pcs`. Returns their bytes, which are not positive where
    /// there is no stack.
    fn call_stack(&mut self, ctx: V, pcs: V, frames: u32, (user, skip): (bool, Operand)) -> V {
        const USER_STACK: i64 = 1 << 8;
        let bytes = self.imm(i64::from(8 * frames));
        let flags = match skip {
            Operand::Imm(skip) => self.imm(skip | if user { USER_STACK } else { 0 }),
            Operand::V(skip) if user => self.or(skip, USER_STACK),
            Operand::V(skip) => skip,
        };
        self.call(Helper::GET_STACK, &[ctx, pcs, bytes, flags])
    }
}

/// Stores `count` frames, if they are not stored yet, and returns their id. Control comes from
/// `none` with 0.
fn keep(
    b: &mut Builder,
    firing: &Firing,
    (buffer, count, frames): (V, V, u32),
    tgid: Operand,
    none: Label,
) -> V {
    const NOEXIST: i64 = 1;
    const EEXIST: i64 = -17;
    let (done, drop) = (b.label(), b.label());
    let id = b.var();
    let tgid = b.reg(tgid);
    b.store(Size::B4, buffer, TGID as i16, tgid);
    b.store(Size::B4, buffer, NFRAMES as i16, count);
    b.store(Size::B8, buffer, EXEC as i16, 0);
    let name = format!("dt_stack_hash_{frames}");
    let args = [Arg::Memory(buffer, plane::stacks::value_size(frames)), Arg::Word(count)];
    let hash = b.call_global(&name, &args, |b| hash_body(b, frames));
    b.set(id, hash);
    b.slot_store(Size::B8, firing.words, 0, hash);
    let map = b.map(MapRef::Stacks);
    let key = b.slot_addr(firing.words, 0);
    let there = b.call(Helper::MAP_LOOKUP_ELEM, &[map, key]);
    b.br(Jmp::Ne, there, 0, done);
    let map = b.map(MapRef::Stacks);
    let key = b.slot_addr(firing.words, 0);
    let flags = b.imm(NOEXIST);
    let r = b.call(Helper::MAP_UPDATE_ELEM, &[map, key, buffer, flags]);
    b.br(Jmp::Eq, r, 0, done);
    b.br(Jmp::Ne, r, EEXIST, drop);
    b.bind(done);
    b.out_of_line(|b| {
        b.bind(drop);
        count_drop(b, firing, DropKind::Stack);
        b.bind(none);
        b.set(id, 0);
        b.jmp(done);
    });
    id
}

/// The hash of the process and the first `count` frames, never 0.
fn hash_body(b: &mut Builder, frames: u32) {
    let (buffer, count) = (b.param(0), b.param(1));
    let (again, end) = (b.label(), b.label());
    let multiplier = b.imm(HASH_MULTIPLIER as i64);
    let h = b.load(Size::B8, buffer, TGID as i16);
    b.update(Alu::Mul, h, multiplier);
    let at = b.add(buffer, PCS);
    let i = b.copy(0);
    b.bind(again);
    b.br(Jmp::Ge, i, count, end);
    let pc = b.load(Size::B8, at, 0);
    let high = b.shr(h, 32);
    b.update(Alu::Xor, h, high);
    b.update(Alu::Xor, h, pc);
    b.update(Alu::Mul, h, multiplier);
    b.update(Alu::Add, at, 8);
    b.update(Alu::Add, i, 1);
    b.br(Jmp::Lt, i, frames, again);
    b.bind(end);
    let fine = b.label();
    b.br(Jmp::Ne, h, 0, fine);
    b.set(h, 1);
    b.bind(fine);
    b.exit(h);
}
