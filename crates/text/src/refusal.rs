//! Why there is no probe.

use std::fmt;

/// Why a function has no probe of a kind. Offsets are from the beginning of the function.
///
/// The text is a clause that completes a sentence: *no return probes: …*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are no bytes.
    Empty,
    /// The function is longer than [`LONGEST`](crate::LONGEST).
    TooLong {
        /// Its bytes.
        length: u64,
    },
    /// The bytes are no instruction.
    Undecodable {
        /// Where.
        offset: u64,
    },
    /// The last instruction is longer than the function.
    CutShort {
        /// Where the instruction begins.
        offset: u64,
    },
    /// A branch, or another symbol, leads into an instruction.
    IntoInstruction {
        /// Where it leads to.
        target: u64,
    },
    /// No instruction begins at the offset.
    NotAnInstruction {
        /// The offset.
        offset: u64,
    },
    /// The kernel accepts no probe at an instruction with this prefix.
    Prefix {
        /// The prefix.
        prefix: u8,
    },
    /// The kernel accepts no probe at this instruction.
    NotSupported {
        /// The first byte of the opcode.
        opcode: u8,
    },
    /// The kernel accepts the probe and takes the vector instruction for another one.
    Misread {
        /// The opcode's byte, which is also that of a jump, a call, a return or another instruction
        /// that the kernel treats specially.
        opcode: u8,
    },
    /// The processor and the kernel's decoder may differ in what the instruction is: prefixes in an
    /// unusual order or number, instructions that only old processors of AMD have.
    Unusual,
    /// A system call: a child that it creates would continue in the copy of the instruction.
    SystemCall,
    /// A single step of `pushf` stores the flag of the single step, which a later `popf` sets.
    StoresFlags,
    /// A transaction (`xbegin`) would be aborted to a wrong address.
    Transaction,
    /// A nop of five bytes, which this kernel replaces by a call that overwrites the program's red
    /// zone.
    RedZone,
    /// The function is left by `loop` or `jrcxz`, of which no program sees whether they jump.
    UnclearReturn {
        /// Where.
        offset: u64,
    },
    /// A place where the function returns cannot be probed.
    Return {
        /// Where.
        offset: u64,
        /// Why not.
        reason: PlaceRefusal,
    },
}

/// A refusal of one place, as a part of [`Refusal::Return`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceRefusal {
    /// See [`Refusal::Prefix`].
    Prefix(u8),
    /// See [`Refusal::NotSupported`].
    NotSupported(u8),
    /// Any other reason.
    Other,
}

impl Refusal {
    /// True if the kernel itself rejects the probe. The others are accepted by the kernel and would
    /// do harm, or concern the function and not an instruction.
    pub fn is_by_kernel(&self) -> bool {
        matches!(self, Refusal::Prefix { .. } | Refusal::NotSupported { .. })
    }

    /// The same, at a place where the function returns.
    pub(crate) fn at_return(self, offset: u64) -> Refusal {
        let reason = match self {
            Refusal::Prefix { prefix } => PlaceRefusal::Prefix(prefix),
            Refusal::NotSupported { opcode } => PlaceRefusal::NotSupported(opcode),
            _ => PlaceRefusal::Other,
        };
        Refusal::Return { offset, reason }
    }
}

fn prefix_name(prefix: u8) -> &'static str {
    match prefix {
        0xf0 => "lock",
        0x26 => "es",
        0x2e => "cs",
        0x36 => "ss",
        0x3e => "ds (notrack)",
        _ => "unusual",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Empty => write!(f, "the function has no code"),
            Refusal::TooLong { length } => write!(f, "the function is too long to decode ({length} bytes)"),
            Refusal::Undecodable { offset } => write!(f, "the bytes at +{offset:#x} are no instruction"),
            Refusal::CutShort { offset } => {
                write!(f, "the instruction at +{offset:#x} is longer than the function")
            }
            Refusal::IntoInstruction { target } => {
                write!(f, "+{target:#x} is a branch target inside an instruction")
            }
            Refusal::NotAnInstruction { offset } => write!(f, "no instruction begins at +{offset:#x}"),
            Refusal::Prefix { prefix } => {
                let name = prefix_name(*prefix);
                write!(f, "the kernel accepts no probe at an instruction with the prefix {name}")
            }
            Refusal::NotSupported { opcode } => {
                write!(f, "the kernel accepts no probe at this instruction (opcode {opcode:02x})")
            }
            Refusal::Misread { opcode } => write!(
                f,
                "the kernel would carry out this instruction wrongly (it takes the opcode {opcode:02x} for another instruction)"
            ),
            Refusal::Unusual => write!(f, "the kernel may take this unusual instruction for another one"),
            Refusal::SystemCall => write!(f, "a system call cannot be executed in single steps"),
            Refusal::StoresFlags => {
                write!(f, "the instruction would store the processor's flag for single steps")
            }
            Refusal::Transaction => write!(f, "a transaction that begins in a single step cannot be aborted"),
            Refusal::RedZone => write!(
                f,
                "this kernel replaces a nop of 5 bytes by a call that overwrites the program's red zone"
            ),
            Refusal::UnclearReturn { offset } => {
                write!(f, "the jump out of the function at +{offset:#x} depends on a counter")
            }
            Refusal::Return { offset, reason } => {
                write!(f, "no probe can be at the return at +{offset:#x}: ")?;
                match reason {
                    PlaceRefusal::Prefix(prefix) => {
                        write!(f, "the kernel accepts no prefix {}", prefix_name(*prefix))
                    }
                    PlaceRefusal::NotSupported(opcode) => {
                        write!(f, "the kernel does not accept its opcode ({opcode:02x})")
                    }
                    PlaceRefusal::Other => write!(f, "the kernel would carry it out wrongly"),
                }
            }
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_place_and_the_cause() {
        let text = Refusal::IntoInstruction { target: 0x1b }.to_string();
        assert_eq!(text, "+0x1b is a branch target inside an instruction");
        let text = Refusal::Prefix { prefix: 0xf0 }.at_return(4).to_string();
        assert_eq!(text, "no probe can be at the return at +0x4: the kernel accepts no prefix lock");
    }
}
