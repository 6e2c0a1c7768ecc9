//! `bio:block::complete`: the parts of a request that are complete, one firing for each.
//!
//! The block layer merges what is submitted (`struct bio`) into requests, and tells a tracepoint
//! once for each request that a driver has completed, or for a part of it:
//! `block_rq_complete(request, error, bytes)`. The bios are a list in the request. Those that the
//! bytes cover are complete, and the block layer ends them next. A clause has no loop. So the
//! program of this provider goes through the list and runs the clauses for each bio
//! ([`Context::repeats`]).

use std::sync::Arc;

use bpf_codegen::context::{Context, Index, Repeats};
use bpf_codegen::mir::{Builder, Helper, Jmp, Label, Size, StackSlot, V};
use bpf_sys::features::Facility;
use probes::{ArgType, Args, Family, ProbeDesc, ProviderFacts};
use types::btf::KernelBtf;

use crate::contract::method::Tracepoints as RawTracepoints;
use crate::contract::{EnabledProbe, Env, Manual, Names, ProbeList, ProbeSource, Provider, Role, Unit};
use crate::trace::{self, Tracepoints};

/// The tracepoint.
const TRACEPOINT: &str = "block_rq_complete";

/// The provider.
pub(crate) struct Bio {
    kernel: Arc<KernelBtf>,
    probes: ProbeList,
}

impl Bio {
    /// The provider over the kernel's types and tracepoints.
    pub(crate) fn new(kernel: Arc<KernelBtf>, tracepoints: Arc<Tracepoints>) -> Bio {
        let types = kernel.clone();
        let listed = move || {
            let exists = tracepoints.has_prototype(TRACEPOINT) && Layout::of(&types).is_some();
            exists.then(|| ProbeDesc::new("bio", "block", "", "complete")).into_iter().collect()
        };
        Bio { kernel, probes: ProbeList::new(listed).reserve(1) }
    }
}

/// Its entry in the manual page.
pub(crate) const MANUAL: Manual = Manual {
    name: "bio",
    help: "requests of block devices that are complete, by what was submitted",
    probes: &[(
        "bio:block::complete",
        "fires when a driver has completed a request or its beginning, for each bio of which that is a part, before the kernel advances and ends it",
    )],
    args: &[
        ("args[0]", "the struct bio"),
        ("args[1]", "its struct request"),
        ("args[2]", "the status, a blk_status_t"),
        (
            "args[3]",
            "bytes of the bio that are complete now; all of them, but for the last bio of a beginning",
        ),
    ],
};

impl Provider for Bio {
    fn facts(&self) -> ProviderFacts {
        ProviderFacts { family: Family::one("bio"), has_errno: false, stability: trace::stability() }
    }

    fn names(&self) -> Names {
        Names { only_by_provider: true, ..Names::default() }
    }

    fn probes(&self) -> &dyn ProbeSource {
        &self.probes
    }

    fn args(&self, _: &ProbeDesc) -> Args {
        let types = ["struct bio *", "struct request *", "blk_status_t", "unsigned int"];
        Ok((0..).zip(types).map(|(n, ty)| ArgType::text(n, ty)).collect())
    }

    fn plan(&self, probes: &[EnabledProbe], env: &Env<'_>) -> Result<Vec<Unit>, String> {
        let Some(probe) = probes.first() else { return Ok(Vec::new()) };
        if !env.features.has(Facility::RawTp) {
            return Err("this kernel lets no program attach to raw tracepoints".into());
        }
        if !env.features.has(Facility::BpfLoop) {
            return Err("programs of this kernel have no loops (bpf_loop)".into());
        }
        let Some(layout) = Layout::of(&self.kernel) else {
            return Err("the kernel's types have no struct request with a list of bios".into());
        };
        let cookies = env.features.has(Facility::RawTpCookie);
        Ok(vec![Unit {
            name: "bio_complete".into(),
            role: Role::Probe,
            space: 1,
            context: Arc::new(BioContext(layout)),
            method: Arc::new(RawTracepoints { names: vec![TRACEPOINT.into()], cookies }),
            probes: vec![(0, probe.clone())],
            interrupts: true,
        }])
    }
}

/// Where the list is.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// `request.bio`
    first: u32,
    /// `bio.bi_next`
    next: u32,
    /// `bio.bi_iter.bi_size`
    size: u32,
}

impl Layout {
    fn of(kernel: &KernelBtf) -> Option<Layout> {
        let btf = kernel.vmlinux().ok()?;
        let at = |path: &str| btf.field(path).map(|f| f.offset());
        Some(Layout { first: at("request.bio")?, next: at("bio.bi_next")?, size: at("bio.bi_iter.bi_size")? })
    }
}

/// More bios than a request has: a request has a segment or more for each.
const BIOS_MAX: u32 = 1 << 16;

// The state between the turns of the loop, in the program's frame.
/// The program's own context.
const PROGRAM: i16 = 0;
/// The bio of this turn.
const BIO: i16 = 8;
/// The bio of the next turn; 0: none.
const NEXT: i16 = 16;
/// The bytes that are complete, of the bios of the next turns.
const BYTES: i16 = 24;
/// Those of the bio of this turn.
const DONE: i16 = 32;
/// A buffer.
const BUFFER: i16 = 40;
const STATE: u32 = 48;

/// The context of its program. Its address is that of the state.
struct BioContext(Layout);

/// Reads kernel memory to the buffer of the state. Jumps to `failed` where it cannot be read.
fn read(b: &mut Builder, state: V, from: V, offset: u32, size: Size, failed: Label) -> V {
    let from = b.add(from, offset);
    let to = b.add(state, i32::from(BUFFER));
    let bytes = b.imm(if size == Size::B8 { 8 } else { 4 });
    let error = b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
    b.br(Jmp::Ne, error, 0, failed);
    b.load(size, state, BUFFER)
}

impl Context for BioContext {
    fn repeats(&self) -> Option<Repeats> {
        Some(Repeats { turns: BIOS_MAX, state: STATE })
    }

    fn first_turn(&self, b: &mut Builder, ctx: V, state: StackSlot, out: Label) {
        b.slot_store(Size::B8, state, PROGRAM, ctx);
        let (request, bytes) = (b.load(Size::B8, ctx, 0), b.load(Size::B8, ctx, 16));
        // An int has the low half of its register.
        let bytes = b.shl(bytes, 32);
        let bytes = b.shr(bytes, 32);
        b.slot_store(Size::B8, state, BIO, 0);
        b.slot_store(Size::B8, state, BYTES, bytes);
        b.slot_store(Size::B8, state, DONE, 0);
        b.slot_store(Size::B8, state, BUFFER, 0);
        let at = b.slot_addr(state, 0);
        let first = read(b, at, request, self.0.first, Size::B8, out);
        b.br(Jmp::Eq, first, 0, out);
        b.slot_store(Size::B8, state, NEXT, first);
    }

    /// As `blk_update_request`: a bio is complete whose bytes are, and the list ends with the
    /// bytes.
    fn turn(&self, b: &mut Builder, state: V, end: Label) {
        let bio = b.load(Size::B8, state, NEXT);
        b.br(Jmp::Eq, bio, 0, end);
        let size = read(b, state, bio, self.0.size, Size::B4, end);
        let bytes = b.load(Size::B8, state, BYTES);
        let (done, whole) = (b.copy(size), b.label());
        b.br(Jmp::Le, size, bytes, whole);
        b.set(done, bytes);
        b.bind(whole);
        b.store(Size::B8, state, DONE, done);
        let left = b.sub(bytes, done);
        b.store(Size::B8, state, BYTES, left);
        let (next, last) = (b.copy(0), b.label());
        b.br(Jmp::Eq, left, 0, last);
        let following = read(b, state, bio, self.0.next, Size::B8, end);
        b.set(next, following);
        b.bind(last);
        b.store(Size::B8, state, NEXT, next);
        b.store(Size::B8, state, BIO, bio);
    }

    fn program(&self, b: &mut Builder, state: V) -> V {
        b.load(Size::B8, state, PROGRAM)
    }

    fn arg(&self, b: &mut Builder, state: V, _: Index, n: u8) -> V {
        match n {
            0 => b.load(Size::B8, state, BIO),
            3 => b.load(Size::B8, state, DONE),
            1 | 2 => {
                let program = self.program(b, state);
                b.load(Size::B8, program, 8 * i16::from(n - 1))
            }
            _ => b.imm(0),
        }
    }

    /// The program, its loop and `bpf_trace_runN`. Some kernels differ: see
    /// [`Context::behind_tracepoint`].
    fn tracer_frames(&self) -> u8 {
        3
    }

    fn behind_tracepoint(&self) -> bool {
        true
    }
}
