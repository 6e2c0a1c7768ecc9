//! Strings: three representations, and the operations that need no bytes.
//!
//! ```text
//!  Interned  an index into the session's interned strings (constants, probe names): compared and recorded as a number
//!  Comm      execname: the two words of the task's comm, zero-padded
//!  Bytes     the storage of a string in the scratch slot (or a variable), zero behind the NUL
//! ```
//!
//! The decision that shapes them: bytes behind a NUL are always zero. Equality, order, hashing and
//! copying can therefore go by words of eight bytes, and comparing two big-endian words gives the
//! order of the strings.
//!
//! NULL is encoded as bytes that no string has: a NUL with another byte behind it ([`NULL`]). It is
//! equal to the empty string, and less than all others.

use dif::ir::{Cond, FaultKind, InstData, StrId, Value};

use super::clause::{Clause, Str, Val};
use crate::context::Index;
use crate::mir::{Alu, Builder, Helper, Jmp, Label, Operand, Size, V};
use crate::routines::words::{NULL, compare, copy_words, length, length_in_word, words_of, zero, zero_bytes};
use crate::routines::{self, element};

impl Clause<'_, '_> {
    /// The text of an interned string, when it is a compile-time constant.
    pub(crate) fn text(&self, id: Operand) -> Option<&[u8]> {
        match id {
            Operand::Imm(i) => self.env.module.strings.get(usize::try_from(i).ok()?).map(Vec::as_slice),
            Operand::V(_) => None,
        }
    }

    /// The interned constant.
    pub(crate) fn constant(&self, id: StrId) -> Str {
        Str::Interned(Operand::Imm(i64::from(id.0)))
    }

    /// The address of a string's bytes. A comm is written to the stack first, so only its 16 bytes
    /// are there.
    pub(crate) fn address(&mut self, s: Str) -> (V, i16) {
        match s {
            Str::Bytes(base, off) => (base, off),
            Str::Interned(id) => (self.interned_address(id), 0),
            Str::Comm(w0, w1) => {
                let stack = self.b.stack(16);
                self.b.slot_store(Size::B8, stack, 0, w0);
                self.b.slot_store(Size::B8, stack, 8, w1);
                (self.b.slot_addr(stack, 0), 0)
            }
        }
    }

    /// Address of an interned string.
    fn interned_address(&mut self, id: Operand) -> V {
        let (area, never) = (self.env.strings(), self.end);
        let b = &mut *self.b;
        match id {
            // A program for probes that come later was loaded before they have their names.
            Operand::V(id) if let Index::Row { .. } = self.firing.index => {
                routines::name_text(b, self.env.module.string_storage(), id, never)
            }
            Operand::V(id) if area.direct() => {
                let base = b.map_value(area.map, 0);
                let (at, done) = (b.copy(base), b.label());
                // Never taken. The verifier needs the bound.
                b.br(Jmp::Ge, id, area.count, done);
                let off = b.mul(id, area.stride);
                b.update(Alu::Add, at, off);
                b.bind(done);
                at
            }
            Operand::Imm(i) if area.direct() => b.map_value(area.map, i as u32 * area.stride),
            id => {
                let key = b.stack(8);
                element(b, area, id, key, never)
            }
        }
    }

    /// Copies a string to `size` bytes at `base + off`. With `fresh` the destination is already
    /// zero.
    pub(crate) fn write_string(&mut self, s: Str, base: V, off: i16, size: u32, fresh: bool) {
        let words: Vec<Operand> = match s {
            Str::Comm(w0, w1) => vec![w0.into(), w1.into()],
            Str::Interned(id) if let Some(text) = self.text(id).filter(|t| t.len() < 64) => {
                words_of(text).into_iter().map(Operand::from).collect()
            }
            _ => {
                let (src, from) = self.address(s);
                let dst = self.b.add(base, i32::from(off));
                let src = self.b.add(src, i32::from(from));
                copy_words(self.b, dst, src, size.min(self.env.module.string_storage()));
                return;
            }
        };
        let words = &words[..words.len().min(size as usize / 8)];
        let rest = size - 8 * words.len() as u32;
        // One function zeroes all first, instead of one function for each length behind a short
        // constant in a long string.
        let whole = size > 512;
        if !fresh && whole {
            zero(self.b, base, off, size);
        }
        let mut at = off;
        for w in words {
            self.b.store(Size::B8, base, at, *w);
            at += 8;
        }
        if !fresh && !whole {
            zero(self.b, base, at, rest);
        }
    }

    /// Jumps to `yes` when the comparison of the strings holds, else falls through.
    pub(crate) fn branch_strings(&mut self, cond: Cond, x: Str, y: Str, yes: Label) {
        let unsigned = match cond {
            Cond::Eq => Jmp::Eq,
            Cond::Ne => Jmp::Ne,
            Cond::Slt | Cond::Ult => Jmp::Lt,
            Cond::Sle | Cond::Ule => Jmp::Le,
            Cond::Sgt | Cond::Ugt => Jmp::Gt,
            Cond::Sge | Cond::Uge => Jmp::Ge,
        };
        match (x, y) {
            (Str::Interned(a), Str::Interned(c)) if let (Some(a), Some(c)) = (self.text(a), self.text(c)) => {
                if dif::eval::str_cmp(cond, a, c) {
                    self.b.jmp(yes);
                }
            }
            // Strings are interned by text, so equal texts have equal indexes.
            (Str::Interned(a), Str::Interned(c)) if matches!(cond, Cond::Eq | Cond::Ne) => {
                let (a, c) = if let Operand::Imm(_) = a { (c, a) } else { (a, c) };
                let a = self.b.reg(a);
                self.b.br(unsigned, a, c, yes);
            }
            (Str::Interned(a), _) if self.text(a).is_some() => {
                self.branch_constant(unsigned.swap(), y, a, yes);
            }
            (_, Str::Interned(c)) if self.text(c).is_some() => self.branch_constant(unsigned, x, c, yes),
            _ => {
                let comm = matches!(x, Str::Comm(..)) || matches!(y, Str::Comm(..));
                // A comm ends within 16 bytes, so the comparison does too.
                let bytes = if comm {
                    16.min(self.env.module.string_storage())
                } else {
                    self.env.module.string_storage()
                };
                let (p, po) = self.address(x);
                let (q, qo) = self.address(y);
                let p = self.b.add(p, i32::from(po));
                let q = self.b.add(q, i32::from(qo));
                let order = compare(self.b, p, q, bytes);
                let signed = match unsigned {
                    Jmp::Lt => Jmp::Slt,
                    Jmp::Le => Jmp::Sle,
                    Jmp::Gt => Jmp::Sgt,
                    Jmp::Ge => Jmp::Sge,
                    other => other,
                };
                self.b.br(signed, order, 0, yes);
            }
        }
    }

    /// Compares with a constant, word by word up to the constant's NUL.
    fn branch_constant(&mut self, cond: Jmp, x: Str, constant: Operand, yes: Label) {
        let Some(want) = self.text(constant).map(words_of) else { return };
        let no = self.b.label();
        let differs = self.b.label();
        let holds_if_equal = matches!(cond, Jmp::Eq | Jmp::Le | Jmp::Ge);
        let (base, off) = match x {
            Str::Comm(..) => (None, 0),
            other => {
                let (base, off) = self.address(other);
                (Some(base), off)
            }
        };
        let (got_be, want_be) = (self.b.var(), self.b.var());
        for (i, w) in want.iter().enumerate() {
            // NULL is equal to the empty string.
            let size = if want == [0] { Size::B1 } else { Size::B8 };
            let got = match (x, base) {
                (Str::Comm(w0, _), _) if i == 0 => w0,
                (Str::Comm(_, w1), _) if i == 1 => w1,
                (_, Some(base)) => self.b.load(size, base, off + 8 * i as i16),
                // The comm's NUL precedes the constant's, so an earlier word differed.
                _ => break,
            };
            match cond {
                Jmp::Eq => self.b.br(Jmp::Ne, got, *w as i64, no),
                Jmp::Ne => self.b.br(Jmp::Ne, got, *w as i64, yes),
                _ => {
                    let same = self.b.label();
                    self.b.br(Jmp::Eq, got, *w as i64, same);
                    self.b.set(got_be, got);
                    self.b.set(want_be, w.swap_bytes() as i64);
                    self.b.jmp(differs);
                    self.b.bind(same);
                }
            }
        }
        let impossible = matches!(x, Str::Comm(..)) && want.len() > 2;
        if holds_if_equal && !impossible {
            self.b.jmp(yes);
        } else {
            self.b.jmp(no);
        }
        if !matches!(cond, Jmp::Eq | Jmp::Ne) {
            self.b.bind(differs);
            let got = self.b.to_be64(got_be);
            self.b.br(cond, got, want_be, yes);
        }
        self.b.bind(no);
    }

    /// Faults when a string operand that must be a text is NULL.
    pub(crate) fn check_nulls(&mut self, inst: &InstData) {
        let mut nulls: Vec<Value> = Vec::new();
        inst.op.for_each_text(|v| {
            if self.facts.nulls[v.0 as usize] && !nulls.contains(&v) {
                nulls.push(v);
            }
        });
        for v in nulls {
            if let Str::Bytes(base, off) = self.string(v) {
                let at = inst.op.null_offset().map_or(Operand::Imm(0), |n| Operand::V(self.reg(n)));
                let bad = self.fault(FaultKind::BadAddr, at);
                let first = self.b.load(Size::B8, base, off);
                self.b.br(Jmp::Eq, first, NULL, bad);
            }
        }
    }

    /// Makes a temporary NULL.
    pub(crate) fn null(&mut self, inst: &InstData) {
        if let Some(r) = inst.result
            && let temp @ Str::Bytes(base, off) = self.temp(r)
        {
            zero(self.b, base, off, self.env.module.string_storage());
            self.b.store(Size::B8, base, off, NULL);
            self.set(inst, Val::Str(temp));
        }
    }

    /// Length without the NUL.
    pub(crate) fn string_length(&mut self, s: Str) -> Operand {
        match s {
            Str::Interned(id) if let Some(text) = self.text(id) => Operand::Imm(text.len() as i64),
            Str::Comm(w0, w1) => {
                let len = self.b.var();
                let done = self.b.label();
                let zero = zero_bytes(self.b, w0);
                let first = length_in_word(self.b, zero);
                self.b.set(len, first);
                self.b.br(Jmp::Ne, zero, 0, done);
                let zero = zero_bytes(self.b, w1);
                let second = length_in_word(self.b, zero);
                let sum = self.b.add(second, 8);
                self.b.set(len, sum);
                self.b.bind(done);
                Operand::V(len)
            }
            _ => {
                let (p, off) = self.address(s);
                let p = self.b.add(p, i32::from(off));
                Operand::V(length(self.b, p, self.env.module.string_storage()))
            }
        }
    }

    /// Reads a string of at most `max` bytes (less than strsize where `max` is a constant) from
    /// memory into a temporary. A fault goes to `bad`.
    pub(crate) fn load_string(&mut self, addr: V, user: bool, max: Operand, base: V, off: i16, bad: Label) {
        let strsize = self.env.module.strsize;
        zero(self.b, base, off, self.env.module.string_storage());
        let b = &mut *self.b;
        let size = match max {
            Operand::Imm(m) => Operand::Imm(m + 1),
            Operand::V(m) => {
                let size = b.copy(m);
                let short = b.label();
                b.br(Jmp::Lt, size, strsize, short);
                b.set(size, i64::from(strsize) - 1);
                b.bind(short);
                b.update(Alu::Add, size, 1);
                Operand::V(size)
            }
        };
        let size = b.reg(size);
        let dst = b.add(base, i32::from(off));
        let got = read_str(b, user, dst, size, addr);
        b.br(Jmp::Slt, got, 0, bad);
    }
}

fn read_str(b: &mut Builder, user: bool, dst: V, size: V, addr: V) -> V {
    let helper = if user { Helper::PROBE_READ_USER_STR } else { Helper::PROBE_READ_KERNEL_STR };
    b.call(helper, &[dst, size, addr])
}
