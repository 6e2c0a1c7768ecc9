//! Names of files, and process arguments.

use dif::ir::{FaultKind, InstData, Value};
use dif::subr::PathOf;

use crate::error::Result;
use crate::mir::Operand;
use crate::routines;
use crate::routines::words::copy_words;
use crate::select::clause::{Clause, Str};

impl Clause<'_, '_> {
    /// The path of a `struct path`, or of a dentry in a mount.
    pub(super) fn d_path(&mut self, inst: &InstData, args: &[Value], of: PathOf) -> Result<Str> {
        let Some(offsets) = self.env.target.path else {
            return self
                .error(inst.span, "d_path( ) needs the kernel's types, and this kernel gives none (no BTF)");
        };
        let path = self.reg(args[0]);
        let mount = args.get(1).map(|mount| self.reg(*mount));
        let strsize = self.env.module.strsize;
        let (slot, at) = (self.slot(), self.firing.parts.path);
        let buffer = self.b.add(slot, at);
        let wrong = routines::path(self.b, &offsets, buffer, strsize, path, mount, of);
        let bad = self.fault(FaultKind::BadAddr, Operand::V(path));
        self.b.br(crate::mir::Jmp::Ne, wrong, 0, bad);
        let result = match inst.result {
            Some(result) => self.temp(result),
            None => Str::Bytes(buffer, 0),
        };
        if let Str::Bytes(base, off) = result {
            let dst = self.b.add(base, i32::from(off));
            copy_words(self.b, dst, buffer, self.env.module.string_storage());
        }
        Ok(result)
    }

    /// The strings between two addresses of the process.
    pub(super) fn process_args(&mut self, inst: &InstData, start: Value, end: Value) -> Str {
        let (start, end) = (self.reg(start), self.reg(end));
        let Some(Str::Bytes(base, off)) = inst.result.map(|r| self.temp(r)) else {
            return Str::Interned(Operand::Imm(0));
        };
        let to = self.b.add(base, i32::from(off));
        let wrong = routines::args(self.b, to, self.env.module.strsize, start, end);
        let bad = self.fault(FaultKind::BadAddr, Operand::V(start));
        self.b.br(crate::mir::Jmp::Ne, wrong, 0, bad);
        Str::Bytes(base, off)
    }
}
