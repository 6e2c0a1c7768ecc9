//! The object of `dtrace -G`: the semaphores of the probes and the descriptions of the providers.
//!
//! Programs that were compiled with this program's header have both already. The object is for
//! those compiled with a header that only declares the semaphores, and for build systems that link
//! one. Its symbols are weak and hidden, so both can be linked.
//!
//! ARCH(x86-64): the properties of objects for it, beside those for arm64.

use object::write::{Object, StandardSegment, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    elf,
};

use crate::definition::{Definitions, Provider};
use crate::description;

/// A processor that programs with probes run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// x86-64
    X86_64,
    /// arm64
    Arm64,
}

impl Processor {
    /// The processor that this program runs on.
    pub const NATIVE: Processor =
        if cfg!(target_arch = "aarch64") { Processor::Arm64 } else { Processor::X86_64 };
}

/// The machine of an object file, by its first bytes. `None` for other files and other machines.
pub fn processor_of(bytes: &[u8]) -> Option<Processor> {
    // The magic number, 64 bits, little endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    match u16::from_le_bytes(bytes.get(18..20)?.try_into().ok()?) {
        elf::EM_X86_64 => Some(Processor::X86_64),
        elf::EM_AARCH64 => Some(Processor::Arm64),
        _ => None,
    }
}

/// The processor for which a command compiles, by the name of the compiler: build systems for
/// another machine have `CC=aarch64-linux-gnu-gcc` or `clang --target=…`, perhaps with `ccache`
/// before it and options after it. `None` where the name has no processor.
pub fn processor_of_compiler(command: &str) -> Option<Processor> {
    command.split_whitespace().find_map(|word| {
        let name = word.strip_prefix("--target=").or_else(|| word.rsplit('/').next())?;
        match name.split_once('-')?.0 {
            "x86_64" => Some(Processor::X86_64),
            "aarch64" => Some(Processor::Arm64),
            _ => None,
        }
    })
}

/// The object for these providers.
pub fn object(definitions: &Definitions, machine: Processor) -> Result<Vec<u8>, String> {
    let architecture = match machine {
        Processor::X86_64 => Architecture::X86_64,
        Processor::Arm64 => Architecture::Aarch64,
    };
    let mut out = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    // An object without these would take them from the whole program: a stack that is not
    // executable, and protected branches.
    out.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    let (property, features) = match machine {
        Processor::X86_64 => (
            elf::GNU_PROPERTY_X86_FEATURE_1_AND,
            elf::GNU_PROPERTY_X86_FEATURE_1_IBT | elf::GNU_PROPERTY_X86_FEATURE_1_SHSTK,
        ),
        Processor::Arm64 => (
            elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND,
            elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI | elf::GNU_PROPERTY_AARCH64_FEATURE_1_PAC,
        ),
    };
    out.add_elf_gnu_property_u32(property, features);
    if !definitions.providers.is_empty() {
        let data = out.segment_name(StandardSegment::Data).to_vec();
        let section = out.add_section(data, b".probes".to_vec(), SectionKind::Data);
        for provider in &definitions.providers {
            for probe in &provider.probes {
                let value = out.append_section_data(section, &[0; 2], 2);
                out.add_symbol(Symbol {
                    name: probe.semaphore(&provider.name).into_bytes(),
                    value,
                    size: 2,
                    kind: SymbolKind::Data,
                    scope: SymbolScope::Linkage,
                    weak: true,
                    section: SymbolSection::Section(section),
                    flags: SymbolFlags::Elf {
                        st_info: (elf::STB_WEAK << 4) | elf::STT_OBJECT,
                        st_other: elf::STV_HIDDEN,
                    },
                });
            }
        }
        let notes = out.add_section(Vec::new(), b".note.dtrace".to_vec(), SectionKind::Note);
        out.section_mut(notes).flags = SectionFlags::Elf { sh_flags: 0 };
        for provider in &definitions.providers {
            out.append_section_data(notes, &note(provider)?, 4);
        }
    }
    out.write().map_err(|e| e.to_string())
}

/// The note that describes a provider.
fn note(provider: &Provider) -> Result<Vec<u8>, String> {
    let mut descriptor = description::VERSION.to_le_bytes().to_vec();
    descriptor.extend(description::texts(&provider.name, &provider.text));
    let size = u32::try_from(descriptor.len()).map_err(|e| e.to_string())?;
    let mut out = (description::OWNER.len() as u32).to_le_bytes().to_vec();
    out.extend(size.to_le_bytes());
    out.extend(description::TYPE.to_le_bytes());
    for part in [description::OWNER, &descriptor] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_that_of_the_object() {
        for machine in [Processor::X86_64, Processor::Arm64] {
            let bytes = object(&Definitions::default(), machine).unwrap();
            assert_eq!(processor_of(&bytes), Some(machine));
        }
        assert_eq!(processor_of(b"\x7fELF\x02\x01"), None);
        assert_eq!(processor_of(b"# libtool"), None);
    }

    #[test]
    fn a_compiler_for_another_machine_is_known_by_its_name() {
        for command in [
            "aarch64-linux-gnu-gcc",
            "ccache /usr/bin/aarch64-linux-gnu-gcc-12 -O2",
            "clang --target=aarch64-linux-gnu",
        ] {
            assert_eq!(processor_of_compiler(command), Some(Processor::Arm64));
        }
        assert_eq!(processor_of_compiler("x86_64-linux-gnu-g++"), Some(Processor::X86_64));
        for command in ["", "gcc", "gcc-12 -I/aarch64", "./-", "riscv64-linux-gnu-gcc"] {
            assert_eq!(processor_of_compiler(command), None, "{command}");
        }
    }
}
