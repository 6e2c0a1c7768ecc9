//! Byte order and chance.

use dif::ir::Value;

use super::super::Clause;
use crate::mir::{Helper, Inst, V};

impl Clause<'_, '_> {
    /// The low `bits` in network order.
    pub(super) fn swap(&mut self, bits: u8, value: Value) -> V {
        let a = self.reg(value);
        let dst = self.b.var();
        self.b.push(Inst::ToBe { bits, dst, a });
        dst
    }

    /// 31 bits: D's `rand()` is an `int` that is never negative.
    pub(super) fn rand(&mut self) -> V {
        let random = self.b.call(Helper::GET_PRANDOM_U32, &[]);
        self.b.and(random, 0x7fff_ffff)
    }
}
