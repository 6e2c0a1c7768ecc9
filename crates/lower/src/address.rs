//! Network addresses in columns that hold only their texts: the words of [`plane::address`].

use check::program::{Expr, ExprKind};
use dif::ir::{BinOp, Cond, Ty, Value};
use plane::address::{LOOPBACK, MAPPED, words_of};

use crate::Lowering;

impl Lowering<'_> {
    /// The words of an address, or of a text in its place.
    pub(crate) fn address(&mut self, e: &Expr) -> [Value; 2] {
        match &e.kind {
            ExprKind::Let { id, value, body } => {
                let value = self.value(value);
                self.bound.insert(*id, value);
                self.address(body)
            }
            ExprKind::Cond(c, a, b) => {
                let c = self.value(c);
                let (then, other) = (self.b.create_block(), self.b.create_block());
                self.b.branch(c, (then, vec![]), (other, vec![]));
                self.b.switch_to(then);
                let first = self.address(a);
                let (join, joined) = self.b.create_join(Ty::Int);
                let second = self.b.block_param(join, Ty::Int);
                self.b.jump(join, first.into());
                self.b.switch_to(other);
                let words = self.address(b);
                self.b.jump(join, words.into());
                self.b.switch_to(join);
                [joined, second]
            }
            ExprKind::Call { name: "inet_ntoa", args, user } if let [at] = &args[..] => {
                let bytes = self.load(at, *user, 4, false);
                [self.b.int(0), self.mapped(bytes)]
            }
            ExprKind::Call { name: "inet_ntoa6", args, user } if let [at] = &args[..] => {
                let value = self.value(at);
                let first = self.pointer(at, *user, value);
                let eight = self.b.int(8);
                let second = self.b.bin(BinOp::Add, first, eight);
                let words = [first, second].map(|at| self.b.load(8, false, at));
                self.canonical(words)
            }
            kind => {
                // A column that holds addresses has no other texts.
                let text = if let ExprKind::Str(text) = kind { &text[..] } else { b"" };
                words_of(text).unwrap_or_default().map(|word| self.b.int(word as i64))
            }
        }
    }

    /// The second word of an IPv4 address.
    fn mapped(&mut self, address: Value) -> Value {
        let (by, mark) = (self.b.int(32), self.b.int(MAPPED as i64));
        let high = self.b.bin(BinOp::Shl, address, by);
        self.b.bin(BinOp::Or, high, mark)
    }

    /// Marks an IPv4 address in an IPv6 address. Without branches, so that what follows is verified
    /// once.
    fn canonical(&mut self, [first, second]: [Value; 2]) -> [Value; 2] {
        let (by, low, not_loopback) =
            (self.b.int(32), self.b.int(0xffff_ffff), self.b.int(!(LOOPBACK as i64)));
        let zero = self.b.int(0);
        let middle = self.b.bin(BinOp::And, second, low);
        let before = self.b.bin(BinOp::Or, first, middle);
        let before = self.b.cmp(Cond::Eq, before, zero);
        let last = self.b.bin(BinOp::Lshr, second, by);
        // `::` and `::1` are addresses of their own.
        let last = self.b.bin(BinOp::And, last, not_loopback);
        let last = self.b.cmp(Cond::Ne, last, zero);
        let embedded = self.b.bin(BinOp::And, before, last);
        let mark = self.b.int(MAPPED as i64);
        let mark = self.b.bin(BinOp::Mul, embedded, mark);
        [first, self.b.bin(BinOp::Or, second, mark)]
    }
}
