//! The operands of machines, a file for each: the names of registers, and how an operand is
//! written.

mod aarch64;
mod x86_64;

use crate::argument::Source;
use crate::dof::{DofSite, dof_sites};

/// The machine for which operands are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// `EM_X86_64`.
    X86_64,
    /// `EM_AARCH64`.
    Arm64,
}

impl Machine {
    /// The machine of an ELF file.
    pub fn of_elf(machine: u64) -> Option<Machine> {
        match machine {
            x86_64::EM => Some(Machine::X86_64),
            aarch64::EM => Some(Machine::Arm64),
            _ => None,
        }
    }

    /// The machine that runs this.
    pub fn own() -> Machine {
        if cfg!(target_arch = "aarch64") { Machine::Arm64 } else { Machine::X86_64 }
    }

    /// The name of a register.
    pub fn register_name(self, number: u8) -> Option<String> {
        match self {
            Machine::X86_64 => x86_64::name(number).map(str::to_owned),
            Machine::Arm64 => aarch64::name(number),
        }
    }

    /// The sites of the probes in DOF: their arguments are those of a call.
    pub fn dof_sites(self, bytes: &[u8]) -> Vec<DofSite<'_>> {
        match self {
            Machine::X86_64 => dof_sites(bytes, &x86_64::CALL.0, x86_64::CALL.1),
            Machine::Arm64 => dof_sites(bytes, &aarch64::CALL.0, aarch64::CALL.1),
        }
    }

    /// Reads an operand. The error says why it is not understood.
    pub(crate) fn operand(self, text: &str) -> Result<Source, String> {
        match self {
            Machine::X86_64 => x86_64::operand(text),
            Machine::Arm64 => aarch64::operand(text),
        }
    }
}
