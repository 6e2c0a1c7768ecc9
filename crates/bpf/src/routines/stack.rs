//! Stacks: taken into a scratch slot, hashed, kept once in the stack store. See [`plane::stacks`].

use plane::control::DropKind;
use plane::stacks::{EXEC, FRAMES_MAX, NFRAMES, PCS, TGID};
use plane::table::HASH_MULTIPLIER;

use super::{Firing, count_drop};
use crate::maps::Plan;
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, MapRef, Operand, Size, V};

/// What stack to take.
#[derive(Clone, Copy, Debug)]
pub struct StackRequest {
    /// The program's context, or a stack of its own for programs that must fake one.
    pub ctx: V,
    /// The process's stack instead of the kernel's.
    pub user: bool,
    /// Frames at most.
    pub frames: u32,
    /// Innermost frames to leave out.
    pub skip: u8,
    /// The process (tgid, the tracer's namespace), for user stacks; 0 for kernel stacks.
    pub tgid: Operand,
    /// Room in a scratch slot for `plane::stacks::value_size(plan.stack_frames)` bytes.
    pub buffer: V,
}

/// Takes a stack; its id, or 0 when there is none to take. A full store is a counted stack drop and gives 0 too.
pub fn stack(b: &mut Builder, plan: &Plan, firing: &Firing, what: &StackRequest) -> V {
    const USER_STACK: i64 = 1 << 8;
    const NOEXIST: i64 = 1;
    const EEXIST: i64 = -17;
    let frames = what.frames.clamp(1, plan.stack_frames.clamp(1, FRAMES_MAX));
    let (done, drop, none) = (b.label(), b.label(), b.label());
    let id = b.var();
    let pcs = b.add(what.buffer, PCS);
    let room = b.imm(i64::from(8 * frames));
    let flags = b.imm(i64::from(what.skip) | if what.user { USER_STACK } else { 0 });
    let bytes = b.call(Helper::GET_STACK, &[what.ctx, pcs, room, flags]);
    b.br(Jmp::Sle, bytes, 0, none);
    let count = b.shr(bytes, 3);
    let tgid = b.reg(what.tgid);
    b.store(Size::B4, what.buffer, TGID as i16, tgid);
    b.store(Size::B4, what.buffer, NFRAMES as i16, count);
    b.store(Size::B8, what.buffer, EXEC as i16, 0);
    let name = format!("dt_stack_hash_{frames}");
    let args = [Arg::Memory(what.buffer, plane::stacks::value_size(frames)), Arg::Word(count)];
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
    let r = b.call(Helper::MAP_UPDATE_ELEM, &[map, key, what.buffer, flags]);
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

/// The hash of the process and the first `count` frames; never 0.
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
