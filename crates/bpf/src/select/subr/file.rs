//! Names of files.

use dif::ir::{FaultKind, InstData, Value};

use super::super::strings::Str;
use super::super::{Clause, Result};
use crate::mir::Operand;
use crate::routines::{self, words::copy_words};

impl Clause<'_, '_> {
    /// The path of a `struct path`, or of the root of its mount.
    pub(super) fn d_path(&mut self, inst: &InstData, path: Value, mount: bool) -> Result<Str> {
        let Some(offsets) = self.env.target.path else {
            return self
                .error(inst.span, "d_path( ) needs the kernel's types, and this kernel gives none (no BTF)");
        };
        let path = self.reg(path);
        let strsize = self.env.module.strsize;
        let (slot, at) = (self.slot(), self.firing.parts.path);
        let room = self.b.add(slot, at);
        let wrong = routines::path(self.b, &offsets, room, strsize, path, mount);
        let bad = self.fault(FaultKind::BadAddr, Operand::V(path));
        self.b.br(crate::mir::Jmp::Ne, wrong, 0, bad);
        let result = match inst.result {
            Some(result) => self.temp(result),
            None => Str::Bytes(room, 0),
        };
        if let Str::Bytes(base, off) = result {
            let dst = self.b.add(base, i32::from(off));
            copy_words(self.b, dst, room, strsize);
        }
        Ok(result)
    }
}
