//! A segment of a long clause (see [`split`](super::split)): its entry, its exits, and the state
//! that segments share.

use dif::ir::{Op, Ty, Value};

use super::clause::{Clause, ClauseInstance, Firing, OpenRecord, SegmentState, Str, Val};
use super::facts::{Shape, each_term_use};
use super::layout::{STATE_SAVED, STATE_SPECULATION, STATE_STAMP, STATE_TOP};
use super::split::{Constant, END};
use crate::error::Result;
use crate::mir::{Builder, Jmp, Label, Operand, Size, V};
use crate::routines;
use crate::session::Session;

/// Translates segment `n` of a clause, entered at block `next`. Behind the segment, `next` holds
/// the block at which the clause continues.
pub fn segment<'e>(
    env: &'e Session<'e>,
    firing: &Firing<'_>,
    b: &mut Builder,
    which: ClauseInstance,
    n: usize,
    next: V,
) -> Result<()> {
    let (Some(split), Some(state)) = (env.layout.split.get(&which.number), env.layout.state) else {
        return Ok(());
    };
    let segment = &split.segments[n];
    let leave = b.label();
    let mut c = Clause::new(
        env,
        firing,
        b,
        which,
        (&split.func, &split.facts),
        segment.blocks.clone(),
        &segment.entries,
    );
    c.segment = Some(SegmentState { split, state, next, leave });
    c.begin(&segment.entries)?;
    let end = c.end;
    c.b.bind(end);
    c.b.set(next, END);
    c.b.bind(leave);
    if let Operand::V(_) = c.top {
        c.set_state(STATE_TOP, c.top);
    }
    Ok(())
}

impl Clause<'_, '_> {
    /// Emits the jump to the entry block, and translates the blocks.
    fn begin(&mut self, entries: &[usize]) -> Result<()> {
        let Some(place) = self.segment else { return Ok(()) };
        let own = &self.f.blocks[self.blocks.clone()];
        let mut known = |v: Value| {
            self.values[v.0 as usize] = match place.split.constants.get(&v) {
                Some(Constant::Int(i)) => Some(Val::Int(Operand::Imm(*i))),
                Some(Constant::Str(id)) => Some(Val::Str(self.constant(*id))),
                Some(Constant::Place(var, at)) => Some(Val::Place(*var, *at, None)),
                None => self.saved_at(v).map(|_| Val::Saved),
            };
        };
        for block in own {
            block.insts.iter().for_each(|inst| inst.op.for_each_use(&mut known));
            each_term_use(&block.term, &mut known);
        }
        own.iter().for_each(|block| self.parameters(&block.params));
        for (v, var) in &place.split.object_bases {
            if let (Some(Val::Saved), Some(at)) = (self.values[v.0 as usize], self.saved_at(*v)) {
                self.values[v.0 as usize] = Some(Val::Place(*var, 0, Some(self.state(at))));
            }
        }
        self.start_scratch(self.blocks.start > 0);
        if let Operand::V(top) = self.top
            && self.blocks.start > 0
        {
            let before = self.state(STATE_TOP);
            self.b.set(top, before);
        }
        // Fetches the builtins that no block of the segment dominates.
        self.fetch_shared(usize::MAX);
        let mut reserved: Vec<Option<OpenRecord>> = vec![None; self.f.blocks.len()];
        let size = self.env.module.clauses[self.number].record.as_ref().map_or(0, |r| r.size);
        let speculative = self.f.instructions().any(|(_, i)| matches!(i.op, Op::Speculate(_)));
        let held = if speculative { None } else { routines::held(self.env.plan, &self.firing.cpu) };
        let record = OpenRecord { header: self.b.var(), stamp: self.b.var(), time: None, held };
        let stubs: Vec<Label> = entries.iter().map(|_| self.b.label()).collect();
        for (entry, stub) in entries.iter().zip(&stubs).skip(1) {
            self.b.br(Jmp::Eq, place.next, *entry as u32, *stub);
        }
        for (entry, stub) in entries.iter().zip(stubs) {
            self.b.bind(stub);
            if place.split.open[*entry] {
                let stamp = self.state(STATE_STAMP);
                let (plan, cpu, end) = (self.env.plan, self.firing.cpu, self.end);
                let header = if speculative {
                    let index = self.state(STATE_SPECULATION);
                    routines::reopen_speculative(self.b, plan, &cpu, index, size, stamp, end)
                } else {
                    routines::reopen(self.b, plan, &cpu, size, stamp, end)
                };
                self.b.set(record.header, header);
                self.b.set(record.stamp, stamp);
                reserved[*entry] = Some(record);
            }
            let label = self.labels[*entry - self.blocks.start];
            self.b.jmp(label);
        }
        self.run(reserved)
    }

    /// Continues at a block of another segment.
    pub(super) fn leave_to(&mut self, block: usize) {
        if let Some(place) = self.segment {
            self.b.set(place.next, block as i64);
            self.b.jmp(place.leave);
        }
    }

    /// Loads a word of the state.
    fn state(&mut self, at: u32) -> V {
        let Some(place) = self.segment else { return self.b.imm(0) };
        let (base, at) = self.place(place.state + at, 8);
        self.b.load(Size::B8, base, at)
    }

    fn set_state(&mut self, at: u32, value: Operand) {
        if let Some(place) = self.segment {
            let (base, at) = self.place(place.state + at, 8);
            self.b.store(Size::B8, base, at, value);
        }
    }

    /// The offset of the first word of a value that is used outside its segment.
    pub(super) fn saved_at(&self, v: Value) -> Option<u32> {
        self.segment?.split.saved[v.0 as usize].map(|word| STATE_SAVED + 8 * word)
    }

    /// Saves a value that was just computed, for other segments.
    pub(super) fn save(&mut self, v: Value) {
        let Some(at) = self.saved_at(v) else { return };
        match self.values[v.0 as usize] {
            Some(Val::Int(bits)) => self.set_state(at, bits),
            Some(Val::Cmp(..)) => {
                let bits = self.int(v);
                self.values[v.0 as usize] = Some(Val::Int(bits));
                self.set_state(at, bits);
            }
            Some(Val::Str(s)) => self.save_string(at, s),
            Some(Val::Place(_, n, more)) => {
                let bytes = match more {
                    Some(more) => self.b.add(more, n).into(),
                    None => Operand::Imm(n),
                };
                self.set_state(at, bytes);
            }
            // The value belongs to another segment, or is used in its own block only.
            Some(Val::Saved | Val::StrCmp(..)) | None => {}
        }
    }

    fn save_string(&mut self, at: u32, s: Str) {
        match s {
            Str::Interned(id) => self.set_state(at, id),
            Str::Comm(w0, w1) => {
                self.set_state(at, w0.into());
                self.set_state(at + 8, w1.into());
            }
            // The bytes are in the slot already.
            Str::Bytes(..) => {}
        }
    }

    /// Passes a value to a block parameter of another segment.
    pub(super) fn pass(&mut self, param: Value, value: Value) {
        let Some(at) = self.saved_at(param) else { return };
        if self.f.values[param.0 as usize] != Ty::Str {
            let bits = self.int(value);
            self.set_state(at, bits);
            return;
        }
        let s = self.string(value);
        match self.facts.temps.shape[param.0 as usize] {
            Some(Shape::Interned | Shape::Comm) => self.save_string(at, s),
            Some(Shape::Bytes) | None => {
                if let Str::Bytes(base, off) = self.temp(param) {
                    self.write_string(s, base, off, self.env.module.string_storage(), false);
                }
            }
        }
    }

    pub(super) fn saved_int(&mut self, v: Value) -> Operand {
        match self.saved_at(v) {
            Some(at) => self.state(at).into(),
            None => Operand::Imm(0),
        }
    }

    pub(super) fn saved_string(&mut self, v: Value) -> Str {
        let Some(at) = self.saved_at(v) else { return Str::Interned(Operand::Imm(0)) };
        match self.facts.temps.shape[v.0 as usize] {
            Some(Shape::Interned) => Str::Interned(self.state(at).into()),
            Some(Shape::Comm) => Str::Comm(self.state(at), self.state(at + 8)),
            Some(Shape::Bytes) | None => self.temp(v),
        }
    }

    /// Saves a record that was just reserved, for other segments.
    pub(super) fn save_record(&mut self, record: &OpenRecord) {
        self.set_state(STATE_STAMP, record.stamp.into());
    }

    /// Saves the index of the speculation of which the record is part, for other segments.
    pub(super) fn save_speculation(&mut self, index: V) {
        self.set_state(STATE_SPECULATION, index.into());
    }
}
