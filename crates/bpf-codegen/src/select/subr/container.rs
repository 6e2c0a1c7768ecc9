//! Containers and pods, by the names of a control group and of those above it.
//!
//! ```text
//!  [PREFIX-]ID[.scope]  PREFIX:ID           ID, 64 digits: Docker, podman, containerd, CRI-O; not conmon-ID
//!  lxc.payload.NAME  lxc.payload/NAME  lxc/NAME                     NAME: LXC, Incus
//!  machine-NAME.scope  systemd-nspawn@NAME.service                  NAME: systemd; not machine-qemu\x2dVM
//!  crun-NAME.scope  runc-NAME.scope                                 NAME: crun and runc by themselves
//!  [PREFIX-]kubepods[-CLASS]-podUID.slice[:cri-containerd:ID]       UID, 32 or 36 characters, of a pod
//!  kubepods/podUID  CLASS/podUID            UID; CLASS: burstable, besteffort
//! ```
//!
//! The innermost group that has one of these forms counts. A form that has a `/` is known at the
//! outer group, with what was kept of the inner one.
//!
//! Names are compared whole, by words at their ends, whatever `strsize` is: only the result is cut.
//! `docs/book/src/containers.md` tells users the same, and a test has a path of each form.

use dif::ir::{FaultKind, InstData, Value};

use super::loops::{clear, each, next, stop};
use crate::error::Result;
use crate::mir::{Arg, Builder, Helper, Jmp, Label, Operand, Size, V};
use crate::routines::words::{copy_words, words_of};
use crate::select::clause::{Clause, Str};
use crate::target::GroupOffsets;

/// Groups that are looked at, from the inside.
const GROUPS: i64 = 32;
/// Bytes of a name, with its end.
const NAME: i64 = 256;
/// Digits of an id.
const ID: i32 = 64;
/// Where a name begins in the buffer, so that there is a word before each place in it.
const TEXT: i16 = 8;

// Words of the work area. Addresses of names are those in the kernel.
const GROUP: i16 = 0;
const NODE: i16 = 8;
const HERE: i16 = 16;
/// The name of the group before, which is in this one, and its length.
const INNER: i16 = 24;
const INNER_LENGTH: i16 = 32;
/// What was found, and its length.
const FOUND: i16 = 40;
const LENGTH: i16 = 48;
/// Not 0 when a read failed.
const FAILED: i16 = 56;
const ABOVE: i16 = 64;

impl Clause<'_, '_> {
    /// The container of a `struct cgroup`, or its pod; empty where there is none.
    pub(super) fn name_of_group(&mut self, inst: &InstData, group: Value, pod: bool) -> Result<Str> {
        let Some(offsets) = self.env.target.group else {
            let message = "containers need the kernel's types of control groups, and this kernel gives none";
            return self.error(inst.span, message);
        };
        let Some(result) = inst.result else { return Ok(Str::Interned(Operand::Imm(0))) };
        let (group, strsize) = (self.reg(group), self.env.module.strsize);
        let storage = self.env.module.string_storage();
        let (slot, at) = (self.slot(), self.firing.parts.path);
        let buffer = self.b.add(slot, at);
        let given = [Arg::Memory(buffer, storage + crate::routines::NAME), self.work(), Arg::Word(group)];
        let name = if pod { "dt_pod" } else { "dt_container" };
        let wrong = self.b.call_global(name, &given, |b| find(b, &offsets, strsize, storage, pod));
        let bad = self.fault(FaultKind::BadAddr, Operand::V(group));
        self.b.br(Jmp::Ne, wrong, 0, bad);
        let made = self.temp(result);
        if let Str::Bytes(base, off) = made {
            let to = self.b.add(base, i32::from(off));
            copy_words(self.b, to, buffer, storage);
        }
        Ok(made)
    }
}

/// The function: `find(buffer, work, group)`, which returns 0, or 1 when a group is unreadable.
fn find(b: &mut Builder, o: &GroupOffsets, strsize: u32, storage: u32, pod: bool) {
    let (buffer, work, group) = (b.param(0), b.param(1), b.param(2));
    b.store(Size::B8, work, GROUP, group);
    for at in (NODE..=ABOVE).step_by(8) {
        b.store(Size::B8, work, at, 0);
    }
    let name = if pod { "dt_pod_at" } else { "dt_container_at" };
    each(b, name, GROUPS, &[buffer, work], |b, _, addresses| {
        let &[buffer, work] = addresses else { return };
        look(b, o, (buffer, work), pod);
    });
    let (found, length) = (b.load(Size::B8, work, FOUND), b.load(Size::B8, work, LENGTH));
    let failed = b.load(Size::B8, work, FAILED);
    clear(b, storage, buffer);
    let done = b.label();
    b.br(Jmp::Eq, found, 0, done);
    b.if_(Jmp::Ge, length, strsize, |b| {
        b.set(length, i64::from(strsize) - 1);
    });
    b.call(Helper::PROBE_READ_KERNEL, &[buffer, length, found]);
    // The names of groups have _ for the - of a uid.
    if pod {
        let first = b.load(Size::B1, buffer, 8);
        b.br(Jmp::Ne, first, i64::from(b'_'), done);
        for at in [8i16, 13, 18, 23].into_iter().filter(|at| i64::from(*at) < i64::from(strsize) - 1) {
            b.store(Size::B1, buffer, at, i64::from(b'-'));
        }
    }
    b.bind(done);
    b.exit(failed);
}

/// Looks at one group, and goes to the one above it.
fn look(b: &mut Builder, o: &GroupOffsets, (buffer, work): (V, V), pod: bool) {
    let (on, end, bad) = (b.label(), b.label(), b.label());
    let group = b.load(Size::B8, work, GROUP);
    read(b, work, NODE, group, o.node, bad);
    let node = b.load(Size::B8, work, NODE);
    read(b, work, HERE, node, o.name, bad);
    let (most, name) = (b.imm(NAME), b.load(Size::B8, work, HERE));
    let text = b.add(buffer, i32::from(TEXT));
    let read_bytes = b.call(Helper::PROBE_READ_KERNEL_STR, &[text, most, name]);
    b.br(Jmp::Sle, read_bytes, 0, bad);
    let length = b.sub(read_bytes, 1);
    let length = b.and(length, NAME - 1);
    let it = Name { buffer, work, name, length, end, on };
    match pod {
        true => it.pod(b),
        false => it.container(b),
    }
    b.bind(on);
    b.store(Size::B8, work, INNER, name);
    b.store(Size::B8, work, INNER_LENGTH, length);
    let group = b.load(Size::B8, work, GROUP);
    read(b, work, ABOVE, group, o.above, bad);
    let above = b.load(Size::B8, work, ABOVE);
    b.br(Jmp::Eq, above, 0, end);
    let above = b.sub(above, i32::from(o.state));
    b.store(Size::B8, work, GROUP, above);
    next(b);
    b.bind(bad);
    b.store(Size::B8, work, FAILED, 1);
    b.bind(end);
    stop(b);
}

/// Reads a word from `addr + off` to the word `to` of the work area.
fn read(b: &mut Builder, work: V, to: i16, addr: V, off: i16, bad: Label) {
    let (dst, size) = (b.add(work, i32::from(to)), b.imm(8));
    let addr = b.add(addr, i32::from(off));
    let wrong = b.call(Helper::PROBE_READ_KERNEL, &[dst, size, addr]);
    b.br(Jmp::Ne, wrong, 0, bad);
}

/// The name of a group, in the buffer and in the kernel.
struct Name {
    buffer: V,
    work: V,
    name: V,
    length: V,
    /// Where the loop ends, and where it goes on.
    end: Label,
    on: Label,
}

/// A text of at most eight characters, as the last ones of a word.
fn last(text: &str) -> i64 {
    first(text) << (64 - 8 * text.len())
}

/// The same as the first characters.
fn first(text: &str) -> i64 {
    words_of(text.as_bytes()).first().copied().unwrap_or(0) as i64
}

impl Name {
    /// Keeps `length` characters from `from` on as the result, if there are any, and ends.
    fn found(&self, b: &mut Builder, from: impl Into<Operand>, length: V) {
        b.br(Jmp::Sle, length, 0, self.on);
        let at = b.add(self.name, from);
        b.store(Size::B8, self.work, FOUND, at);
        b.store(Size::B8, self.work, LENGTH, length);
        b.jmp(self.end);
    }

    /// The same for the inner group's name.
    fn found_inner(&self, b: &mut Builder, from: i32) {
        let (inner, length) = (b.load(Size::B8, self.work, INNER), b.load(Size::B8, self.work, INNER_LENGTH));
        let (inner, length) = (b.add(inner, from), b.sub(length, from));
        b.br(Jmp::Sle, length, 0, self.on);
        b.store(Size::B8, self.work, FOUND, inner);
        b.store(Size::B8, self.work, LENGTH, length);
        b.jmp(self.end);
    }

    /// The eight characters before the character `end`, of which the caller knows that the last `n`
    /// are there; these are kept. What the caller has compared is lost to the verifier of older
    /// kernels where a value is kept on the stack, so it is bounded here.
    fn before(&self, b: &mut Builder, end: V, n: u32) -> V {
        let end = b.and(end, NAME - 1);
        let at = b.add(self.buffer, end);
        let word = b.load(Size::B8, at, TEXT - 8);
        if n == 8 {
            return word;
        }
        let word = b.shr(word, 64 - 8 * n);
        b.shl(word, 64 - 8 * n)
    }

    /// Jumps to `other` unless the name begins with this.
    fn begins(&self, b: &mut Builder, text: &str, other: Label) {
        for (at, part) in (0i16..).step_by(8).zip(text.as_bytes().chunks(8)) {
            let word = b.load(Size::B8, self.buffer, TEXT + at);
            let bits = 64 - 8 * part.len() as u32;
            let (word, part) = match bits {
                0 => (word, first(&String::from_utf8_lossy(part))),
                _ => (b.shl(word, bits), last(&String::from_utf8_lossy(part))),
            };
            let part = b.imm(part);
            b.br(Jmp::Ne, word, part, other);
        }
    }

    /// Where what is before `suffix` ends, if the name ends with that, else the length; whether it
    /// does. The name has at least eight characters.
    fn without(&self, b: &mut Builder, suffix: &str) -> (V, V) {
        let n = suffix.len() as u32;
        let (word, text) = (self.before(b, self.length, n), b.imm(last(suffix)));
        let (end, has) = (b.copy(self.length), b.copy(0));
        b.if_(Jmp::Eq, word, text, |b| {
            let cut = b.sub(self.length, n as i32);
            b.set(end, cut);
            b.set(has, 1);
        });
        (end, has)
    }

    fn container(&self, b: &mut Builder) {
        let (above_lxc, no_id) = (b.label(), b.label());
        b.br(Jmp::Lt, self.length, 8, above_lxc);
        let (end, in_scope) = self.without(b, ".scope");
        b.br(Jmp::Lt, end, ID, no_id);
        self.id(b, end, no_id);
        b.bind(no_id);
        let named = |b: &mut Builder, prefix: &str, scope: bool| {
            let other = b.label();
            self.begins(b, prefix, other);
            let n = prefix.len() as i32;
            if scope {
                b.br(Jmp::Eq, in_scope, 0, self.on);
            }
            if prefix == "machine-" {
                let (word, vm) = (b.load(Size::B8, self.buffer, TEXT + 8), b.imm(first("qemu\\x2d")));
                b.br(Jmp::Eq, word, vm, self.on);
            }
            let length = if scope { b.sub(end, n) } else { b.sub(self.length, n) };
            self.found(b, n, length);
            b.bind(other);
        };
        named(b, "lxc.payload.", false);
        named(b, "machine-", true);
        named(b, "crun-", true);
        named(b, "runc-", true);
        let other = b.label();
        self.begins(b, "systemd-nspawn@", other);
        let (end, is_service) = self.without(b, ".service");
        b.br(Jmp::Eq, is_service, 0, self.on);
        let length = b.sub(end, 15);
        self.found(b, 15, length);
        b.bind(other);
        self.begins(b, "lxc.payload", self.on);
        b.br(Jmp::Ne, self.length, 11, self.on);
        self.found_inner(b, 0);
        b.bind(above_lxc);
        b.br(Jmp::Ne, self.length, 3, self.on);
        self.begins(b, "lxc", self.on);
        self.found_inner(b, 0);
    }

    /// Finds an id that ends at `end`, of at least as many characters.
    fn id(&self, b: &mut Builder, end: V, other: Label) {
        let at = b.sub(end, ID);
        let bare = b.label();
        b.br(Jmp::Lt, at, 1, bare);
        let (c, separated) = (self.before(b, at, 1), b.label());
        let (dash, colon) = (b.imm(last("-")), b.imm(last(":")));
        b.br(Jmp::Eq, c, dash, separated);
        b.br(Jmp::Ne, c, colon, other);
        b.bind(separated);
        b.br(Jmp::Lt, at, 8, bare);
        let (word, monitor) = (self.before(b, at, 7), b.imm(last("conmon-")));
        b.br(Jmp::Eq, word, monitor, other);
        b.bind(bare);
        let all = b.imm(-1);
        for behind in (0..ID).step_by(8) {
            let end = b.sub(end, behind);
            let word = self.before(b, end, 8);
            let is_digit = hex(b, word);
            b.update(crate::mir::Alu::And, all, is_digit);
        }
        let ones = b.imm(each_byte(0x80));
        b.br(Jmp::Ne, all, ones, other);
        let length = b.imm(i64::from(ID));
        self.found(b, at, length);
    }

    fn pod(&self, b: &mut Builder) {
        let (no_slice, cut) = (b.label(), b.label());
        b.br(Jmp::Lt, self.length, 8, self.on);
        let (end, is_slice) = self.without(b, ".slice");
        b.br(Jmp::Ne, is_slice, 0, cut);
        // `.slice:cri-containerd:ID`
        b.br(Jmp::Lt, self.length, 86 + 8, no_slice);
        let last_of_slice = b.sub(self.length, 80);
        let (word, suffix) = (self.before(b, last_of_slice, 6), b.imm(last(".slice")));
        b.br(Jmp::Ne, word, suffix, no_slice);
        let shorter = b.sub(self.length, 86);
        b.set(end, shorter);
        b.bind(cut);
        for uid in [36, 32] {
            let other = b.label();
            b.br(Jmp::Lt, end, uid + 12, other);
            let at = b.sub(end, uid);
            let (word, pod) = (self.before(b, at, 4), b.imm(last("-pod")));
            b.br(Jmp::Ne, word, pod, other);
            let kind = b.sub(at, 4);
            let (word, ok) = (self.before(b, kind, 8), b.label());
            let plain = b.imm(last("kubepods"));
            b.br(Jmp::Eq, word, plain, ok);
            b.br(Jmp::Lt, kind, 16, other);
            let head = b.sub(kind, 8);
            let head = self.before(b, head, 8);
            for (first_half, second_half) in [("bepods-b", "urstable"), ("epods-be", "steffort")] {
                let (no, half) = (b.label(), b.imm(last(second_half)));
                b.br(Jmp::Ne, word, half, no);
                let half = b.imm(last(first_half));
                b.br(Jmp::Eq, head, half, ok);
                b.bind(no);
            }
            b.jmp(other);
            b.bind(ok);
            let length = b.imm(i64::from(uid));
            self.found(b, at, length);
            b.bind(other);
        }
        b.jmp(self.on);
        b.bind(no_slice);
        let inner = b.load(Size::B8, self.work, INNER_LENGTH);
        b.br(Jmp::Lt, inner, 4, self.on);
        for name in ["kubepods", "burstable", "besteffort"] {
            let other = b.label();
            b.br(Jmp::Ne, self.length, name.len() as i64, other);
            self.begins(b, name, other);
            // The inner name is read again, behind this one.
            let (to, size) = (b.add(self.work, i32::from(NODE)), b.imm(8));
            b.store(Size::B8, self.work, NODE, 0);
            let inner = b.load(Size::B8, self.work, INNER);
            b.call(Helper::PROBE_READ_KERNEL_STR, &[to, size, inner]);
            let word = b.load(Size::B8, self.work, NODE);
            let word = b.shl(word, 40);
            let pod = b.imm(last("pod"));
            b.br(Jmp::Ne, word, pod, self.on);
            self.found_inner(b, 3);
            b.bind(other);
        }
    }
}

/// A word of eight of these bytes.
fn each_byte(byte: u8) -> i64 {
    i64::from_le_bytes([byte; 8])
}

/// A word with the highest bit of each byte for which that of `word` is one of 0 to 9 and a to f.
fn hex(b: &mut Builder, word: V) -> V {
    // A byte below 0x80 plus one up to 0x80 does not change the next one.
    let low_bits = b.imm(each_byte(0x7f));
    let low = b.and(word, low_bits);
    let from = |b: &mut Builder, byte: u8| {
        let add = b.imm(each_byte(0x80 - byte));
        b.add(low, add)
    };
    let (digit, over_digit) = (from(b, b'0'), from(b, b'9' + 1));
    let (letter, over_letter) = (from(b, b'a'), from(b, b'f' + 1));
    let ones = b.imm(-1);
    let (not_over_digit, not_over_letter) = (b.xor(over_digit, ones), b.xor(over_letter, ones));
    let (digit, letter) = (b.and(digit, not_over_digit), b.and(letter, not_over_letter));
    let either = b.or(digit, letter);
    let not_high = b.xor(word, ones);
    let either = b.and(either, not_high);
    let high = b.imm(each_byte(0x80));
    b.and(either, high)
}
