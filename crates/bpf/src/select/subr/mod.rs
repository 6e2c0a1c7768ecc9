//! Subroutines.
//!
//! Short ones are written in place; the others are functions of the program that the verifier looks at once.
//!
//! ```text
//!  mod   which does what        number   byte order, chance        action   signals, delay
//!                               file     paths
//! ```

mod action;
mod file;
mod number;

use dif::ir::{InstData, Subr, Value};

use super::{Clause, Result, Val};
use crate::mir::Operand;

impl Clause<'_, '_> {
    pub(crate) fn call(&mut self, inst: &InstData, subr: Subr, args: &[Value]) -> Result<()> {
        let value = match subr {
            Subr::Chill => self.chill(args[0]),
            Subr::Raise => self.raise(args[0]),
            Subr::DPath | Subr::Mountpoint => {
                let path = self.d_path(inst, args[0], subr == Subr::Mountpoint)?;
                self.set(inst, Val::Str(path));
                return Ok(());
            }
            Subr::Htons => self.swap(16, args[0]),
            Subr::Htonl => self.swap(32, args[0]),
            Subr::Htonll => self.swap(64, args[0]),
            Subr::Rand => self.rand(),
        };
        self.set(inst, Val::Int(Operand::V(value)));
        Ok(())
    }
}
