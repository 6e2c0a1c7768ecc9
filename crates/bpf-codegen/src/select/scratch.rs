//! Takes scratch memory: of a size that is known, for copies, and by `alloca()`.
//!
//! It lives as long as the firing, where a clause may leave an address of it in a variable. Then
//! words of the slot say how much the clauses so far keep, and at which address: see
//! [`super::d_memory`] and [`dif::memory`].

use dif::ir::{FaultKind, InstData, Value};

use super::clause::{Clause, Val};
use super::d_memory::{FRAME_ADDRESS, FRAME_BASE, FRAME_KEPT};
use crate::mir::{Jmp, Operand, Size, V};
use crate::routines::near;

impl Clause<'_, '_> {
    /// Initializes scratch memory at the start of the clause, or of a later segment of it: only the
    /// fixed-size copies have space, behind what earlier clauses of the firing keep.
    pub(crate) fn start_scratch(&mut self, later: bool) {
        let fixed = self.env.module.fixed_scratch(self.f);
        if let Some(frame) = self.env.layout.d_memory.frame
            && self.env.layout.reaches_d_memory(self.env.module, self.number)
        {
            return self.start_kept_scratch(frame, fixed, later);
        }
        let takes = |i: &InstData| matches!(i.op, dif::ir::Op::Alloca(_));
        self.top = if self.f.instructions().any(|(_, i)| takes(i)) {
            Operand::V(self.b.copy(fixed))
        } else {
            Operand::Imm(i64::from(fixed))
        };
    }

    fn start_kept_scratch(&mut self, frame: u32, fixed: u32, later: bool) {
        let kept = self.env.layout.d_memory.kept;
        self.keeps = self.env.module.keeps_scratch(&self.env.module.clauses[self.number].func);
        let slot = self.slot();
        let (words, at) = near(self.b, slot, frame, FRAME_BASE + 8);
        let word = |at: i16, offset: u32| at + offset as i16;
        let origin = self.b.load(Size::B8, words, word(at, FRAME_ADDRESS));
        self.origin = Operand::V(self.b.copy(origin));
        let before = self.b.load(Size::B8, words, word(at, if later { FRAME_BASE } else { FRAME_KEPT }));
        // Always so, which the verifier does not know.
        let base = self.at_most(before, kept);
        let top = self.b.add(base, fixed);
        let top = self.b.copy(top);
        if !later {
            self.b.store(Size::B8, words, word(at, FRAME_BASE), base);
            if self.keeps {
                let end = self.at_most(top, kept);
                self.b.store(Size::B8, words, word(at, FRAME_KEPT), end);
            }
        }
        (self.base, self.top) = (Operand::V(base), Operand::V(top));
    }

    /// The value, or the limit where it is greater.
    fn at_most(&mut self, value: V, limit: u32) -> V {
        let (least, within) = (self.b.copy(value), self.b.label());
        self.b.br(Jmp::Le, least, limit, within);
        self.b.set(least, i64::from(limit));
        self.b.bind(within);
        least
    }

    /// The sum of an offset and of what earlier clauses keep.
    fn behind_kept(&mut self, at: u32) -> Operand {
        match self.base {
            Operand::V(base) => Operand::V(self.b.add(base, at)),
            Operand::Imm(_) => Operand::Imm(i64::from(at)),
        }
    }

    /// The most bytes of scratch memory that this clause may take.
    pub(super) fn limit(&self) -> u32 {
        self.env.module.fixed_scratch(self.f) + self.env.module.scratchsize
    }

    pub(crate) fn alloca(&mut self, inst: &InstData, size: Value) {
        let full = self.fault(FaultKind::NoScratch, Operand::Imm(0));
        let limit = self.limit();
        let Operand::V(top) = self.top else { return };
        let size = self.reg(size);
        self.b.br(Jmp::Gt, size, limit, full);
        let up = self.b.add(size, 7);
        let taken = self.b.and(up, -8);
        let end = self.b.add(top, taken);
        let limit = self.behind_kept(limit);
        self.b.br(Jmp::Gt, end, limit, full);
        let start = self.b.reg(self.origin);
        let address = self.b.or(start, top);
        if let Some(frame) = self.env.layout.d_memory.frame.filter(|_| self.keeps) {
            self.b.br(Jmp::Gt, end, self.env.layout.d_memory.kept, full);
            let slot = self.slot();
            let (words, at) = near(self.b, slot, frame + FRAME_KEPT, 8);
            self.b.store(Size::B8, words, at, end);
        }
        self.b.set(top, end);
        self.set(inst, Val::Int(Operand::V(address)));
    }

    /// The address of fixed scratch memory.
    pub(super) fn fixed(&mut self, inst: &InstData, at: u32) {
        let address = self.fixed_address(at);
        let address = self.b.reg(address);
        self.set(inst, Val::Int(Operand::V(address)));
    }

    pub(super) fn fixed_address(&mut self, at: u32) -> Operand {
        match self.origin {
            Operand::Imm(origin) => Operand::Imm(origin + i64::from(at)),
            Operand::V(origin) => {
                let at = self.behind_kept(at);
                Operand::V(self.b.add(origin, at))
            }
        }
    }

    /// A pointer to fixed scratch memory.
    pub(super) fn fixed_place(&mut self, at: u32) -> V {
        let at = self.env.layout.d_memory.scratch + at;
        let slot = self.slot();
        let place = self.b.add(slot, at);
        match self.base {
            Operand::V(base) => self.b.add(place, base),
            Operand::Imm(_) => place,
        }
    }
}
