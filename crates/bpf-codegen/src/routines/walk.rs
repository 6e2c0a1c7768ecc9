//! Walks a stack, once a firing, into the scratch slot.
//!
//! A walk by the kernel's helper costs far more than everything else (see `benches`): about a
//! microsecond to begin, and a tenth for each frame. So all values of a firing that need a stack
//! share one walk, which has no more frames than they need, and the tracer's own frames are part of
//! it. The stack of the kernel is walked by the program itself where it can ([`super::orc`]), at an
//! eighth of that cost.
//!
//! ```text
//!  area   +0   count    frames of the stack; NOT_WALKED before the first use, where there are several
//!         +8   own      bytes of the tracer's own frames
//!         +16  (two words)
//!         +32  pcs      the tracer's own frames, then those of the stack
//!              state    of the program's own walk
//! ```

use plane::stacks::{self, FRAMES_MAX};
use plane::unwind::INCOMPLETE;

use super::orc;
use super::runtimes::{self, CallArea};
use super::siphash::siphash;
use super::tracer_frames::{FRAMES_CHECKED, own_frames};
use super::unwind::{self, Frames};
use crate::arch::{self, Mark};
use crate::context::{Context, StackStart};
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, Label, Size, V};
use crate::plan::Plan;
use crate::target::{KernelWalk, Target, WalkMode};

/// Offset of the number of bytes of own frames.
const OWN: i16 = 8;
/// Offset of the first frame.
pub(super) const FRAMES: u32 = 32;
/// The bits of [`OWN`]: at most seven frames.
const OWN_MASK: i64 = 0x38;
/// The count of an area before the walk.
const NOT_WALKED: i64 = -1;

/// Bytes of the area of a stack of at most `frames` frames, and `calls` of a language runtime.
pub fn stack_area(frames: u32, calls: u32, user: bool) -> u32 {
    match (user, calls) {
        (false, _) => behind_frames(frames) + orc::STATE,
        (true, 0) => behind_frames(frames) + unwind::STATE,
        (true, _) => call_area(frames, calls).end(),
    }
}

/// Where the frames of a language runtime are in the area.
pub(super) fn call_area(frames: u32, calls: u32) -> CallArea {
    runtimes::call_area(behind_frames(frames) + unwind::STATE, frames, calls)
}

/// Offset of the state of a walk by tables.
const fn behind_frames(frames: u32) -> u32 {
    FRAMES + OWN_MASK as u32 + 8 * frames
}

/// Marks a stack as not walked yet. `place` is the address of its area.
pub fn expect_walk(b: &mut Builder, place: V) {
    b.store(Size::B8, place, 0, NOT_WALKED);
}

/// What a walk needs.
pub struct Walk<'a> {
    /// Which functions are the tracer's.
    pub target: &'a Target,
    /// The program's context.
    pub context: &'a dyn Context,
    /// Its argument.
    pub ctx: V,
    /// The process's stack instead of the kernel's.
    pub user: bool,
    /// How stacks of processes are walked.
    pub plan: &'a Plan,
    /// The most frames that are needed.
    pub frames: u32,
    /// The most frames of a language runtime.
    pub calls: u32,
}

impl Walk<'_> {
    /// Where the frames of a language runtime are, if they are followed.
    fn calls(&self) -> Option<CallArea> {
        (self.user && self.plan.runtimes && self.calls > 0).then(|| call_area(self.frames, self.calls))
    }
}

/// Walks the stack into the area at `place`.
pub fn walk(b: &mut Builder, place: V, what: &Walk<'_>) {
    if let Some(area) = what.calls() {
        b.store(Size::B8, place, area.at as i16, 0);
    }
    if !what.user {
        return walk_kernel(b, place, what);
    }
    let Some(offsets) = what.target.unwind.filter(|_| what.plan.unwind && b.machine().walks) else {
        return walk_by_kernel(b, place, what);
    };
    let (other, done) = (b.label(), b.label());
    let entry = what.context.return_address(b, what.ctx).is_some();
    let state = behind_frames(what.frames);
    let (key, calls) = (what.plan.stack_key, what.calls());
    let frames =
        Frames { place, pcs: FRAMES, state, most: what.frames, entry, narrow: false, offsets, key, calls };
    b.store(Size::B8, place, OWN, 0);
    unwind::walk(b, &frames, what.target, what.plan, other);
    if let Some(moved) = what.context.moved_by(b, what.ctx) {
        let pc = b.load(Size::B8, place, FRAMES as i16);
        let pc = b.sub(pc, moved);
        b.store(Size::B8, place, FRAMES as i16, pc);
    }
    b.jmp(done);
    b.bind(other);
    walk_by_kernel(b, place, what);
    b.bind(done);
}

/// Walks the kernel's stack: by the program's own walk where it can begin, else by the helper.
fn walk_kernel(b: &mut Builder, place: V, what: &Walk<'_>) {
    let (other, done) = (b.label(), b.label());
    let start = what.context.stack_start();
    if let (Some(start), Some(own)) = (start, what.target.kernel_walk.filter(|_| b.machine().walks)) {
        own_walk(b, place, what, (&own, start), (other, done));
        b.jmp(done);
    }
    b.bind(other);
    walk_by_kernel(b, place, what);
    if let Some(flags) = what.target.guest.filter(|_| start == Some(StackStart::Interrupted)) {
        name_guest(b, place, what, flags, done);
    }
    b.bind(done);
}

/// Walks the kernel's stack by the program's own walk. Goes to `other` where that cannot be, and to
/// `none` where there is no stack of the kernel.
fn own_walk(
    b: &mut Builder,
    place: V,
    what: &Walk<'_>,
    (own, start): (&KernelWalk, StackStart),
    (other, none): (Label, Label),
) {
    // The program is the first frame of the helper's walk, but not of this one. Behind a
    // trampoline, this one begins two frames later.
    let (first, skipped) = match start {
        StackStart::Caller if searches(what) => (1, Skipped::Search),
        StackStart::Caller => (1, Skipped::Frames(what.context.tracer_frames())),
        StackStart::Trampoline => (0, Skipped::Frames(what.context.tracer_frames().saturating_sub(2))),
        StackStart::Function | StackStart::Interrupted => (0, Skipped::Frames(0)),
    };
    let frames = orc::Frames {
        place,
        pcs: FRAMES + 8 * first,
        state: behind_frames(what.frames),
        most: what.frames + skipped.most() - first,
        marks: own.mode != WalkMode::Auto,
        tables: &own.tables,
    };
    match start {
        StackStart::Function | StackStart::Interrupted => {
            let ctx = what.context.program(b, what.ctx);
            if start == StackStart::Interrupted {
                require_kernel(b, place, what, ctx, (other, none));
            }
            orc::begin_at_registers(b, &frames, ctx, other);
        }
        StackStart::Trampoline => orc::begin_at_caller(b, &frames, true),
        StackStart::Caller => {
            zero_checked(b, place);
            orc::begin_at_caller(b, &frames, false);
        }
    }
    orc::walk(b, &frames, (own.mode == WalkMode::Auto).then_some(other));
    let (count, cut) = (b.load(Size::B8, place, (frames.state + orc::COUNT) as i16), b.label());
    let count = b.add(count, first);
    b.store(Size::B8, place, OWN, 0);
    b.store(Size::B8, place, 0, 0);
    skip_own(b, place, what, count, (skipped, cut));
    b.store(Size::B8, place, 0, count);
    b.bind(cut);
    if own.mode == WalkMode::Check {
        compare(b, place, what, &frames);
    }
}

/// The innermost frames that are the tracer's.
#[derive(Clone, Copy)]
enum Skipped {
    /// So many.
    Frames(u8),
    /// Those that are found among the first [`FRAMES_CHECKED`].
    Search,
}

impl Skipped {
    fn most(self) -> u32 {
        match self {
            Skipped::Frames(frames) => frames.into(),
            Skipped::Search => FRAMES_CHECKED,
        }
    }
}

/// True if the tracer's own frames of a kernel stack are looked for.
fn searches(what: &Walk<'_>) -> bool {
    !what.user && what.target.tracer_functions && what.context.behind_tracepoint()
}

/// Zeroes the frames that are looked up: a short stack does not have them.
fn zero_checked(b: &mut Builder, place: V) {
    for i in 0..FRAMES_CHECKED as i16 {
        b.store(Size::B8, place, FRAMES as i16 + 8 * i, 0);
    }
}

/// Takes the tracer's own frames off the count. Jumps to `none` if there are no others.
fn skip_own(b: &mut Builder, place: V, what: &Walk<'_>, count: V, (skipped, none): (Skipped, Label)) {
    let own = match skipped {
        Skipped::Frames(0) => return,
        Skipped::Frames(frames) => b.imm(frames.into()),
        Skipped::Search => {
            let pcs = b.add(place, FRAMES);
            own_frames(b, pcs, what.context.tracer_frames().into())
        }
    };
    b.br(Jmp::Le, count, own, none);
    b.update(Alu::Sub, count, own);
    let bytes = b.shl(own, 3);
    b.store(Size::B8, place, OWN, bytes);
}

/// Goes to `none` where a process was interrupted, which has no stack in the kernel, and to `other`
/// where perhaps a guest was.
fn require_kernel(b: &mut Builder, place: V, what: &Walk<'_>, ctx: V, (other, none): (Label, Label)) {
    b.store(Size::B8, place, OWN, 0);
    b.store(Size::B8, place, 0, 0);
    to_if_user(b, ctx, none);
    if let Some(flags) = what.target.guest {
        let runs_guest = runs_guest(b, flags);
        b.br(Jmp::Ne, runs_guest, 0, other);
    }
}

/// Goes to `user` where these registers are those of a process.
fn to_if_user(b: &mut Builder, ctx: V, user: Label) {
    let Mark { at, mask, value } = b.machine().user;
    let level = b.load(Size::B8, ctx, at);
    let level = b.and(level, mask);
    // The kernel's level is 0 where that of processes is not.
    let (jump, of) = if value == 0 { (Jmp::Eq, value) } else { (Jmp::Ne, 0) };
    b.br(jump, level, i64::from(of), user);
}

/// Not 0 where the current task runs a guest or has just left it. `flags`: the offset in the task.
fn runs_guest(b: &mut Builder, flags: i16) -> V {
    let task = b.call(Helper::GET_CURRENT_TASK_BTF, &[]);
    let flags = b.load(Size::B4, task, flags);
    b.and(flags, arch::PF_VCPU)
}

/// The helper walks no stack where a guest was interrupted: such a stack becomes one frame.
fn name_guest(b: &mut Builder, place: V, what: &Walk<'_>, flags: i16, done: Label) {
    let count = b.load(Size::B8, place, 0);
    b.br(Jmp::Ne, count, 0, done);
    let ctx = what.context.program(b, what.ctx);
    to_if_user(b, ctx, done);
    let runs_guest = runs_guest(b, flags);
    b.br(Jmp::Eq, runs_guest, 0, done);
    b.store(Size::B8, place, FRAMES as i16, stacks::GUEST);
    b.store(Size::B8, place, 0, 1);
}

/// Lets the helper walk the same stack, whose frames remain. Behind them is a mark if the others
/// differ, or could not be walked to the end.
fn compare(b: &mut Builder, place: V, what: &Walk<'_>, frames: &orc::Frames<'_>) {
    let (same, incomplete) = (b.label(), b.label());
    let spare = (frames.state + orc::SPARE) as i16;
    let own = frames_hash(b, place, what);
    b.store(Size::B8, place, spare, own);
    walk_by_kernel(b, place, what);
    let theirs = frames_hash(b, place, what);
    let failed = orc::has_failed(b, frames);
    let mark = b.copy(INCOMPLETE);
    b.br(Jmp::Ne, failed, 0, incomplete);
    let own = b.load(Size::B8, place, spare);
    b.br(Jmp::Eq, own, theirs, same);
    b.set(mark, stacks::DIFFERS);
    b.bind(incomplete);
    let (count, within) = (b.load(Size::B8, place, 0), b.label());
    b.br(Jmp::Lt, count, what.frames, within);
    b.set(count, what.frames - 1);
    b.bind(within);
    let first = first_frame(b, place);
    let offset = b.shl(count, 3);
    let frame = b.add(first, offset);
    b.store(Size::B8, frame, FRAMES as i16, mark);
    b.update(Alu::Add, count, 1);
    b.store(Size::B8, place, 0, count);
    b.bind(same);
}

/// A hash of the frames of a walked stack.
fn frames_hash(b: &mut Builder, place: V, what: &Walk<'_>) -> V {
    let (most, key) = (what.frames, what.plan.stack_key);
    let first = first_frame(b, place);
    let frames = b.add(first, FRAMES);
    let (count, few) = (b.load(Size::B8, place, 0), b.label());
    b.br(Jmp::Le, count, most, few);
    b.set(count, most);
    b.bind(few);
    b.call_global("dt_frames_hash", &[Arg::Memory(frames, 8 * most), Arg::Word(count)], |b| {
        let hash = siphash(b, key, b.param(0), b.param(1), most);
        b.exit(hash);
    })
}

/// Walks the stack by what the kernel has: its own tables for its own stack, frame pointers for
/// processes.
fn walk_by_kernel(b: &mut Builder, place: V, what: &Walk<'_>) {
    const USER_STACK: i64 = 1 << 8;
    let search = searches(what);
    let (most, flags) = match (what.user, search) {
        (true, _) => (what.frames, USER_STACK),
        (false, true) => (what.frames + FRAMES_CHECKED, 0),
        (false, false) => (what.frames, what.context.tracer_frames().into()),
    };
    let (done, count) = (b.label(), b.copy(0));
    let pcs = b.add(place, FRAMES);
    if search {
        // The helper leaves the frames unchanged that a short stack does not have.
        zero_checked(b, place);
    }
    b.store(Size::B8, place, OWN, 0);
    let (bytes, flags) = (b.imm(i64::from(8 * most)), b.imm(flags));
    let ctx = what.context.program(b, what.ctx);
    let caller = if what.user { what.context.return_address(b, what.ctx) } else { None };
    let walked = if caller.is_some() { b.add(pcs, 8) } else { pcs };
    if caller.is_some() {
        b.store(Size::B8, walked, 8, 0);
    }
    let bytes = b.call(Helper::GET_STACK, &[ctx, walked, bytes, flags]);
    b.br(Jmp::Sle, bytes, 0, done);
    let frames = b.shr(bytes, 3);
    if search {
        skip_own(b, place, what, frames, (Skipped::Search, done));
    }
    if what.user
        && let Some(moved) = what.context.moved_by(b, what.ctx)
    {
        let pc = b.load(Size::B8, walked, 0);
        let pc = b.sub(pc, moved);
        b.store(Size::B8, walked, 0, pc);
    }
    if let Some(address) = caller {
        add_caller(b, place, frames, address, what.frames);
    }
    b.set(count, frames);
    b.bind(done);
    b.store(Size::B8, place, 0, count);
}

/// At the entry of a function the walk by frame pointers goes from the function to its caller's
/// caller, because the function has not made its frame yet. So the caller is put between them,
/// unless the kernel has done it. The frames are one word behind their usual place.
fn add_caller(b: &mut Builder, place: V, frames: V, address: V, most: u32) {
    let (missing, done) = (b.label(), b.label());
    let to = b.stack(8);
    b.slot_store(Size::B8, to, 0, 0);
    let (into, size) = (b.slot_addr(to, 0), b.imm(8));
    b.call(Helper::PROBE_READ_USER, &[into, size, address]);
    let caller = b.slot_load(Size::B8, to, 0);
    let pcs = b.add(place, FRAMES);
    let second = b.load(Size::B8, pcs, 16);
    b.br(Jmp::Eq, caller, 0, missing);
    b.br(Jmp::Ne, caller, second, missing);
    b.store(Size::B8, place, OWN, 8);
    b.jmp(done);
    b.bind(missing);
    let first = b.load(Size::B8, pcs, 8);
    b.store(Size::B8, pcs, 0, first);
    b.store(Size::B8, pcs, 8, caller);
    b.br(Jmp::Ge, frames, i64::from(most), done);
    b.update(Alu::Add, frames, 1);
    b.bind(done);
}

/// Walks the stack, unless this firing has done it. The program marks the area first
/// ([`expect_walk`]).
pub fn walk_once(b: &mut Builder, place: V, what: &Walk<'_>) {
    let done = b.label();
    let count = b.load(Size::B8, place, 0);
    b.br(Jmp::Ne, count, NOT_WALKED, done);
    walk(b, place, what);
    b.bind(done);
}

/// The number of frames of a walked stack. `marks`: those behind the last frame that are none.
pub fn stack_depth(b: &mut Builder, place: V, marks: &[u64]) -> V {
    let count = b.load(Size::B8, place, 0);
    if marks.is_empty() {
        return count;
    }
    let (depth, done) = (b.copy(count), b.label());
    b.br(Jmp::Eq, count, 0, done);
    b.br(Jmp::Gt, count, FRAMES_MAX, done);
    let offset = b.shl(count, 3);
    let first = first_frame(b, place);
    let end = b.add(first, offset);
    let (last, is_mark) = (b.load(Size::B8, end, FRAMES as i16 - 8), b.label());
    for mark in marks {
        b.br(Jmp::Eq, last, *mark, is_mark);
    }
    b.jmp(done);
    b.bind(is_mark);
    b.update(Alu::Sub, depth, 1);
    b.bind(done);
    depth
}

/// A frame of a walked stack; 0 where the stack has none of this number, or one of `marks` there.
pub fn stack_frame(b: &mut Builder, place: V, frame: u8, marks: &[u64]) -> V {
    let (pc, none) = (b.copy(0), b.label());
    let count = b.load(Size::B8, place, 0);
    b.br(Jmp::Le, count, i64::from(frame), none);
    let base = first_frame(b, place);
    let found = b.load(Size::B8, base, (FRAMES + 8 * u32::from(frame)) as i16);
    for mark in marks {
        b.br(Jmp::Eq, found, *mark, none);
    }
    b.set(pc, found);
    b.bind(none);
    pc
}

/// The address of an area, plus the bytes of its own frames.
pub(super) fn first_frame(b: &mut Builder, place: V) -> V {
    let own = b.load(Size::B8, place, OWN);
    // Masked for the verifier, which knows nothing of words in memory.
    let own = b.and(own, OWN_MASK);
    b.add(place, own)
}
