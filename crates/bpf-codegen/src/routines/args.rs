//! The arguments of a process: consecutive strings, joined to one string.

use plane::desc::string_storage;

use crate::mir::{Arg, Builder, Helper, Jmp, Operand, Size, V};
use crate::routines::words::{each_word, zero};

const LOW7: i64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Writes the bytes between two addresses of the process to the string of `strsize` bytes at `to`,
/// with each NUL but the last replaced by a space and zeros behind the end. Returns 0, or another
/// value when they cannot be read.
pub(crate) fn args(b: &mut Builder, to: V, strsize: u32, start: V, end: V) -> V {
    let storage = string_storage(strsize);
    let takes = [Arg::Memory(to, storage), Arg::Word(start), Arg::Word(end)];
    b.call_global("dt_args", &takes, |b| {
        let (to, start, end) = (b.param(0), b.param(1), b.param(2));
        let (done, bad) = (b.label(), b.label());
        zero(b, to, 0, storage);
        b.br(Jmp::Ge, start, end, done);
        let length = b.sub(end, start);
        b.update(crate::mir::Alu::Sub, length, 1);
        b.if_(Jmp::Ge, length, strsize, |b| {
            b.set(length, strsize - 1);
        });
        let failed = b.call(Helper::PROBE_READ_USER, &[to, length, start]);
        b.br(Jmp::Ne, failed, 0, bad);
        each_word(b, &[to], storage, |b, p, at, passed| {
            let before = match passed {
                Operand::Imm(n) => Operand::Imm(n + i64::from(at)),
                Operand::V(v) => Operand::V(b.add(v, i32::from(at))),
            };
            let left = b.sub(length, before);
            b.br(Jmp::Sle, left, 0, done);
            let word = b.load(Size::B8, p[0], at);
            // 0x80 in each byte that is 0.
            let low = b.and(word, LOW7);
            let sum = b.add(low, LOW7);
            let some = b.or(sum, word);
            let some = b.or(some, LOW7);
            let none = b.xor(some, -1);
            let spaces = b.shr(none, 2);
            b.if_(Jmp::Sle, left, 7, |b| {
                let bits = b.shl(left, 3);
                let one = b.imm(1);
                let above = b.shl(one, bits);
                let keep = b.sub(above, 1);
                let few = b.and(spaces, keep);
                let last = b.or(word, few);
                b.store(Size::B8, p[0], at, last);
                b.jmp(done);
            });
            let word = b.or(word, spaces);
            b.store(Size::B8, p[0], at, word);
        });
        b.bind(done);
        b.exit(0);
        b.bind(bad);
        b.exit(1);
    })
}
