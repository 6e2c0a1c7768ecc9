//! SipHash-1-3: [`plane::siphash`] describes it, and has its constants.

use plane::siphash::{self, Key, LAST, LAST_ROUNDS, ROUND, ROUNDS, Step};

use crate::mir::{Alu, Builder, Jmp, Size, V};

/// The hash of `count` words at `at`, which are at most `most`.
pub(super) fn siphash(b: &mut Builder, key: Key, at: V, count: V, most: u32) -> V {
    let v = siphash::initial(key).map(|word| b.imm(word as i64));
    let (at, i) = (b.copy(at), b.copy(0));
    let end = b.label();
    b.loop_(|b, again| {
        b.br(Jmp::Ge, i, count, end);
        let word = b.load(Size::B8, at, 0);
        absorb(b, v, word);
        b.update(Alu::Add, at, 8);
        b.update(Alu::Add, i, 1);
        b.br(Jmp::Lt, i, i64::from(most), again);
    });
    b.bind(end);
    let end = b.shl(i, i64::from(siphash::end(1).trailing_zeros()));
    absorb(b, v, end);
    b.update(Alu::Xor, v[2], LAST as i64);
    rounds(b, v, LAST_ROUNDS);
    for other in &v[1..] {
        b.update(Alu::Xor, v[0], *other);
    }
    v[0]
}

fn absorb(b: &mut Builder, v: [V; 4], word: V) {
    b.update(Alu::Xor, v[3], word);
    rounds(b, v, ROUNDS);
    b.update(Alu::Xor, v[0], word);
}

fn rounds(b: &mut Builder, v: [V; 4], count: u32) {
    for _ in 0..count {
        for Step { sum, other, rotation, swap } in ROUND {
            let (sum, other) = (v[sum], v[other]);
            b.update(Alu::Add, sum, other);
            rotate_left(b, other, rotation);
            b.update(Alu::Xor, other, sum);
            if swap {
                rotate_left(b, sum, 32);
            }
        }
    }
}

fn rotate_left(b: &mut Builder, v: V, bits: u32) {
    let low = b.shr(v, 64 - i64::from(bits));
    b.update(Alu::Lsh, v, i64::from(bits));
    b.update(Alu::Or, v, low);
}
