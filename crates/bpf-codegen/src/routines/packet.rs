//! The packet of a socket buffer.
//!
//! ```text
//!  struct sk_buff          linear part             struct skb_shared_info, at head + end
//!  len ─ bytes of all      ┌──────────────┐        nr_frags
//!  data ──────────────────►│ len-data_len │        frags[] ──► page, offset, size
//!                          └──────────────┘                    page, offset, size ...
//! ```
//!
//! The linear part is one read. The pages are read in chunks, because the verifier knows how far
//! the copied bytes reach but not that a whole page fits behind them ([`plane::packet`]). A page is
//! read in the kernel's linear map of the memory: the address of its bytes is computed from that of
//! its `struct page`.
//!
//! The copy ends at the first byte that cannot be read: at memory of a device, which has no
//! `struct page`, and at a list of further socket buffers (`frag_list`), which is not followed.

use plane::packet::{CHUNK, HEAD, limit};

use super::words::read_kernel;
use crate::mir::{Arg, Builder, Helper, Jmp, Label, Size, StackSlot, V};
use crate::target::{Frags, LinearMap, PacketOffsets, PageOffsets};

/// Words of the copy's state, on the stack.
const BUFFER: i16 = 0;
/// Bytes that were copied, and those of the element. Both are counted from the number `ORIGIN`,
/// which the verifier does not know. It would follow a known number through every step. That of 6.1
/// would even take it for the number of all steps, and remove the code that it then cannot reach.
const COPIED: i16 = 8;
const WITHIN: i16 = 16;
const ORIGIN: i16 = 24;
/// The address of the next element of `frags`, and how many follow.
const FRAG: i16 = 32;
const LEFT: i16 = 40;
const SCRATCH: i16 = 48;
const STATE: u32 = 56;

/// Writes the packet of the `struct sk_buff` at `skb` to `buffer`, a field of `size` bytes.
/// Returns 0, or another value when the socket buffer cannot be read.
pub(crate) fn packet(b: &mut Builder, o: &PacketOffsets, buffer: V, size: u32, skb: V) -> V {
    b.call_global("dt_packet", &[Arg::Memory(buffer, size / 8 * 8), Arg::Word(skb)], |b| {
        let (buffer, skb) = (b.param(0), b.param(1));
        let longest = limit(size);
        let state = b.stack(STATE);
        let (bad, done) = (b.label(), b.label());
        for word in (0..STATE as i16).step_by(8) {
            b.slot_store(Size::B8, state, word, 0);
        }
        let length = read(b, state, skb, o.len, Size::B4, bad);
        b.store(Size::B4, buffer, 0, length);
        let paged = read(b, state, skb, o.data_len, Size::B4, bad);
        let data = read(b, state, skb, o.data, Size::B8, bad);
        let linear = b.sub(length, paged);
        let count = b.copy(linear);
        b.if_(Jmp::Gt, count, longest, |b| {
            b.set(count, i64::from(longest));
        });
        let to = b.add(buffer, HEAD);
        let failed = b.call(Helper::PROBE_READ_KERNEL, &[to, count, data]);
        b.br(Jmp::Ne, failed, 0, bad);
        b.store(Size::B4, buffer, 4, count);
        if let Some(pages) = &o.pages {
            b.br(Jmp::Eq, paged, 0, done);
            b.slot_store(Size::B8, state, BUFFER, buffer);
            let copied = b.add(count, skb);
            b.slot_store(Size::B8, state, COPIED, copied);
            let head = read(b, state, skb, pages.head, Size::B8, done);
            let end = read(b, state, skb, pages.end, Size::B4, done);
            let shared = b.add(head, end);
            let number = read(b, state, shared, pages.nr_frags, Size::B1, done);
            b.slot_store(Size::B8, state, LEFT, number);
            b.slot_store(Size::B8, state, WITHIN, skb);
            b.slot_store(Size::B8, state, ORIGIN, skb);
            let first = b.add(shared, i32::from(pages.at));
            b.slot_store(Size::B8, state, FRAG, first);
            let steps = longest.div_ceil(CHUNK) + 2 * u32::from(pages.frags.count);
            let step = b.sub_addr("dt_packet_page", 2, |b| step(b, pages, longest));
            let (steps, at, flags) = (b.imm(i64::from(steps)), b.slot_addr(state, 0), b.imm(0));
            b.call(Helper::LOOP, &[steps, step, at, flags]);
            let copied = b.slot_load(Size::B8, state, COPIED);
            let copied = b.sub(copied, skb);
            b.store(Size::B4, buffer, 4, copied);
        }
        b.bind(done);
        b.exit(0);
        b.bind(bad);
        b.exit(1);
    })
}

/// Reads a number at `addr + off`.
fn read(b: &mut Builder, state: StackSlot, addr: V, off: i16, size: Size, bad: Label) -> V {
    read_kernel(b, (state, SCRATCH), (addr, off), size, bad)
}

/// Copies a chunk: `step(number, state)`, which returns 1 to stop.
fn step(b: &mut Builder, o: &PageOffsets, longest: u32) {
    let state = b.param(1);
    let stop = b.label();
    let left = b.load(Size::B8, state, LEFT);
    b.br(Jmp::Eq, left, 0, stop);
    let copied = b.load(Size::B8, state, COPIED);
    let origin = b.load(Size::B8, state, ORIGIN);
    let copied = b.sub(copied, origin);
    b.br(Jmp::Ge, copied, longest, stop);
    let frag = b.load(Size::B8, state, FRAG);
    let member = |b: &mut Builder, off: i16, size: Size| {
        let (to, bytes) = (b.add(state, i32::from(SCRATCH)), b.imm(i64::from(size.bytes())));
        let from = b.add(frag, i32::from(off));
        let failed = b.call(Helper::PROBE_READ_KERNEL, &[to, bytes, from]);
        b.br(Jmp::Ne, failed, 0, stop);
        b.load(size, state, SCRATCH)
    };
    let size = member(b, o.frags.size, Size::B4);
    let offset = member(b, o.frags.offset, Size::B4);
    let page = member(b, o.frags.page, Size::B8);
    // The lowest bit marks memory without a `struct page`.
    let marked = b.and(page, 1);
    b.br(Jmp::Ne, marked, 0, stop);
    b.br(Jmp::Eq, page, 0, stop);
    let within = b.load(Size::B8, state, WITHIN);
    let within = b.sub(within, origin);
    let rest = b.sub(size, within);
    // No more than a chunk, and no more than the record takes.
    let count = b.copy(rest);
    b.if_(Jmp::Gt, count, CHUNK, |b| {
        b.set(count, i64::from(CHUNK));
    });
    let full = b.imm(i64::from(longest));
    let space = b.sub(full, copied);
    b.if_(Jmp::Gt, count, space, |b| {
        b.set(count, space);
    });
    // The verifier does not know that the space is less than a chunk.
    b.br(Jmp::Gt, count, CHUNK, stop);
    let shifted = b.shl(page, o.map.shift);
    let base = b.imm(o.map.base as i64);
    let bytes = b.add(shifted, base);
    let bytes = b.add(bytes, offset);
    let from = b.add(bytes, within);
    let buffer = b.load(Size::B8, state, BUFFER);
    let to = b.add(buffer, copied);
    let to = b.add(to, HEAD);
    let failed = b.call(Helper::PROBE_READ_KERNEL, &[to, count, from]);
    b.br(Jmp::Ne, failed, 0, stop);
    let sum = b.add(copied, count);
    let sum = b.add(sum, origin);
    b.store(Size::B8, state, COPIED, sum);
    let within = b.add(within, count);
    b.if_else(
        Jmp::Ge,
        within,
        size,
        |b| {
            let frag = b.add(frag, i32::from(o.frags.stride));
            b.store(Size::B8, state, FRAG, frag);
            let left = b.sub(left, 1);
            b.store(Size::B8, state, LEFT, left);
            b.store(Size::B8, state, WITHIN, origin);
        },
        |b| {
            let within = b.add(within, origin);
            b.store(Size::B8, state, WITHIN, within);
        },
    );
    b.exit(0);
    b.bind(stop);
    b.exit(1);
}

impl PacketOffsets {
    /// Finds the offsets by the members' paths, such as `sk_buff.len`. `None` when the kernel lacks
    /// one of them. `frags`: the elements of `frags`, if they are known.
    pub fn find(
        offset: impl Fn(&str) -> Option<i16>,
        frags: Option<Frags>,
        map: Option<LinearMap>,
    ) -> Option<PacketOffsets> {
        let pages = || {
            Some(PageOffsets {
                head: offset("sk_buff.head")?,
                end: offset("sk_buff.end")?,
                nr_frags: offset("skb_shared_info.nr_frags")?,
                at: offset("skb_shared_info.frags")?,
                frags: frags?,
                map: map?,
            })
        };
        Some(PacketOffsets {
            len: offset("sk_buff.len")?,
            data_len: offset("sk_buff.data_len")?,
            data: offset("sk_buff.data")?,
            pages: pages(),
        })
    }
}

impl Frags {
    /// Finds the offsets by the members' names. `None` when the element lacks one of them.
    pub fn find(offset: impl Fn(&str) -> Option<i16>, stride: i16, count: u16) -> Option<Frags> {
        // Older kernels have a `bio_vec`.
        Some(Frags {
            page: offset("netmem").or_else(|| offset("bv_page"))?,
            size: offset("len").or_else(|| offset("bv_len"))?,
            offset: offset("offset").or_else(|| offset("bv_offset"))?,
            stride,
            count,
        })
    }
}
