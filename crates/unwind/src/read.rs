//! The rules of a file, from the bytes of its sections.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindOffset,
    UnwindSection,
};

use plane::unwind::Rule;

use crate::arch::{Bytes, Machine, rule};
use crate::table::{Builder, Table};

/// The most rules of a file: five times those of the largest programs.
pub const MAX_RULES: usize = 1 << 21;

/// The most descriptions of what functions have in common that are kept.
const MAX_COMMON: usize = 1 << 16;

/// The sections of a file, with the addresses at which they are linked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sections<'a> {
    /// `.eh_frame`.
    pub eh_frame: Option<(u64, &'a [u8])>,
    /// `.debug_frame`, which is used for functions that are not in `.eh_frame`: those of Go, in a
    /// program that has code of C too.
    pub debug_frame: Option<&'a [u8]>,
    /// The address of `.text`, which some entries are relative to.
    pub text: u64,
    /// The address of `.got`, which some entries are relative to.
    pub got: u64,
    /// The file is one of 32 bits.
    pub is_narrow: bool,
}

/// Reads the rules. What is malformed is left out: the rules before it remain.
pub fn read(sections: &Sections<'_>) -> Option<Table> {
    let mut builder = Builder::default();
    let machine = if sections.is_narrow { &Machine::NARROW } else { &Machine::WIDE };
    if let Some((addr, bytes)) = sections.eh_frame {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(machine.word);
        let bases = BaseAddresses::default().set_eh_frame(addr).set_text(sections.text).set_got(sections.got);
        entries(&section, &bases, machine, &mut builder);
    }
    if let Some(bytes) = sections.debug_frame {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(machine.word);
        entries(&section, &BaseAddresses::default(), machine, &mut builder);
    }
    builder.finish()
}

/// Adds the rules of all functions of a section.
fn entries<'a, S>(section: &S, bases: &BaseAddresses, machine: &Machine, builder: &mut Builder)
where
    S: UnwindSection<EndianSlice<'a, LittleEndian>>,
    S::Offset: UnwindOffset<usize> + std::hash::Hash,
{
    let mut common: HashMap<S::Offset, gimli::CommonInformationEntry<Bytes<'a>>> = HashMap::new();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(known) = common.get(&offset) {
                return Ok(known.clone());
            }
            let cie = section.cie_from_offset(bases, offset)?;
            if common.len() < MAX_COMMON {
                common.insert(offset, cie.clone());
            }
            Ok(cie)
        });
        let Ok(function) = parsed else { continue };
        // A function of a section that the linker has removed is at 0.
        if function.initial_address() == 0 {
            continue;
        }
        let Ok(mut rows) = function.rows(section, bases, &mut context) else { continue };
        let mut at = function.initial_address();
        // The handler of a signal returns to the first byte, and a program looks before return
        // addresses.
        let mut before = u64::from(function.is_signal_trampoline());
        loop {
            // The end of a row may be beyond that of the function, in a file that is malformed.
            match rows.next_row() {
                Ok(Some(row)) => {
                    let end = row.end_address().min(function.end_address());
                    let start = row.start_address().saturating_sub(std::mem::take(&mut before));
                    builder.add(start, end, rule(section, row, machine));
                    at = end;
                }
                Ok(None) => break,
                Err(_) => break builder.add(at, function.end_address(), Rule::UNKNOWN),
            }
            if builder.len() >= MAX_RULES {
                return;
            }
        }
    }
}
