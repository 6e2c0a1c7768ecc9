//! The functions of Go in a file, by the table that its runtime has of them (`.gopclntab`).
//!
//! ```text
//!  header ─► functions: address, record      record ─► file of its source
//!                       in order                       none: a function of C that the linker of Go has put there
//! ```
//!
//! What the table says of a function, no other part of the file does: that it was compiled by Go
//! and not by the compiler of C, and that its source is in assembly, whose arguments are on the
//! stack. The formats are those of Go 1.16, 1.18 and 1.20.

use crate::functions::Calling;
use crate::reader::elf::Elf;

/// The sections that have the table. In one that is independent of its position the second.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// The symbol at which the code of Go begins.
pub(super) const TEXT: &[u8] = b"runtime.text";

/// The end of the name of a function that has its arguments on the stack, beside one of the same
/// name that has them in registers.
pub(super) const ON_THE_STACK: &str = ".abi0";

const OLD: &str = "Go before 1.17 passes arguments on the stack";
const ASSEMBLY: &str = "it is written in assembly, so its arguments are not where those of Go are";
const UNKNOWN: &str = "the table of Go's functions has a form that is not known";

/// The table.
pub(super) struct GoTable {
    bytes: Vec<u8>,
    /// Where the code of Go begins.
    text: u64,
    form: Option<Form>,
}

/// Where the parts of a table are.
struct Form {
    /// Addresses are 64 bits and those of the file. (Go 1.16 and 1.17.)
    is_absolute: bool,
    count: usize,
    units: usize,
    names: usize,
    values: usize,
    functions: usize,
}

impl GoTable {
    /// Bytes of the table in a file.
    pub(super) fn size(elf: &Elf) -> u64 {
        SECTIONS.iter().map(|name| elf.section_size(name)).fold(0, u64::saturating_add)
    }

    /// Reads the table, if the file has one of at most `most` bytes. `text` is the address of
    /// [`TEXT`].
    pub(super) fn read(elf: &Elf, text: Option<u64>, most: u64) -> Option<GoTable> {
        let name = SECTIONS.iter().find(|name| elf.has_section(name))?;
        let bytes = elf.contents(name, most).unwrap_or_default();
        let form = Form::of(&bytes);
        // The header's may be filled in when the file is loaded, or not at all.
        let in_header = form.as_ref().filter(|form| !form.is_absolute).and_then(|_| word(&bytes, 24));
        let text = text.or(in_header).unwrap_or(0);
        Some(GoTable { bytes, text, form })
    }

    /// Whose calling convention the function at an address has. `registers`: Go 1.17 and not 1.16,
    /// which have tables of one form.
    pub(super) fn calling(&self, address: u64, registers: bool) -> Calling {
        let Some(form) = &self.form else {
            let is_older = half(&self.bytes, 0) == Some(0xffff_fffb);
            return Calling::Unknown(if is_older { OLD } else { UNKNOWN }.into());
        };
        let Some(record) = self.record(form, address) else { return Calling::C };
        match self.source(form, record) {
            Source::None => Calling::C,
            Source::Assembly => Calling::Unknown(ASSEMBLY.into()),
            Source::Go if form.is_absolute && !registers => Calling::Unknown(OLD.into()),
            Source::Go => Calling::Go,
            Source::Unknown => Calling::Unknown(UNKNOWN.into()),
        }
    }

    /// Where the record of the function at an address is.
    fn record(&self, form: &Form, address: u64) -> Option<usize> {
        let wanted = if form.is_absolute { address } else { address.checked_sub(self.text)? };
        let at = |n: usize| -> Option<(u64, u64)> {
            let width = if form.is_absolute { 8 } else { 4 };
            let at = form.functions.checked_add(n.checked_mul(2 * width)?)?;
            let field = |at| if form.is_absolute { word(&self.bytes, at) } else { half(&self.bytes, at) };
            Some((field(at)?, field(at.checked_add(width)?)?))
        };
        let (mut low, mut high) = (0, form.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let (start, record) = at(middle)?;
            if start == wanted {
                return form.functions.checked_add(usize::try_from(record).ok()?);
            }
            if start < wanted { low = middle + 1 } else { high = middle }
        }
        None
    }

    fn source(&self, form: &Form, record: usize) -> Source {
        // The address of the function is before these.
        let before = record.saturating_add(if form.is_absolute { 8 } else { 4 });
        let field = |n: usize| half(&self.bytes, before.saturating_add(4 * n));
        let (Some(files), Some(unit)) = (field(4), field(7)) else { return Source::Unknown };
        if files == 0 || unit == u64::from(u32::MAX) {
            return Source::None;
        }
        match self.file(form, files, unit) {
            Some(name) if name.ends_with(b".s") => Source::Assembly,
            Some(_) => Source::Go,
            None => Source::Unknown,
        }
    }

    /// The name of the file in which a function begins.
    fn file(&self, form: &Form, files: u64, unit: u64) -> Option<&[u8]> {
        let mut at = form.values.checked_add(usize::try_from(files).ok()?)?;
        let (mut change, mut shift) = (0u32, 0);
        loop {
            let byte = *self.bytes.get(at)?;
            change |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            (at, shift) = (at + 1, shift + 7);
        }
        // Zigzag, from -1 on.
        let change = if change & 1 != 0 { !(change >> 1) } else { change >> 1 } as i32;
        let number = u64::try_from(i64::from(change) - 1).ok()?;
        let at = usize::try_from(unit.checked_add(number)?.checked_mul(4)?).ok()?;
        let name = half(&self.bytes, form.units.checked_add(at)?)?;
        let name = self.bytes.get(form.names.checked_add(usize::try_from(name).ok()?)?..)?;
        name.get(..name.iter().position(|byte| *byte == 0)?)
    }
}

/// What the source of a function is.
enum Source {
    Go,
    Assembly,
    /// It was not compiled by Go.
    None,
    Unknown,
}

impl Form {
    /// The form of a table of 64-bit addresses.
    fn of(bytes: &[u8]) -> Option<Form> {
        let is_absolute = match half(bytes, 0)? {
            0xffff_fffa => true,
            0xffff_fff0 | 0xffff_fff1 => false,
            _ => return None,
        };
        if bytes.get(7) != Some(&8) {
            return None;
        }
        let field = |n: usize| usize::try_from(word(bytes, 8 + 8 * n)?).ok();
        let first = if is_absolute { 2 } else { 3 };
        let (units, names, values) = (field(first + 1)?, field(first + 2)?, field(first + 3)?);
        Some(Form { is_absolute, count: field(0)?, units, names, values, functions: field(first + 4)? })
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?).into())
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of three functions at 0x1000, 0x1010 and 0x1020: of `a.go`, of `b.s`, and of none.
    fn table(magic: u32) -> Vec<u8> {
        let is_absolute = magic == 0xffff_fffa;
        let (wide, header) = if is_absolute { (8, 64) } else { (4, 72) };
        let units: Vec<u8> = [0u32, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
        let names = b"a.go\0b.s\0".to_vec();
        // The first value is that before all, which is -1: 2 is one more, 4 are two more.
        let values = vec![0, 2, 4, 4, 4];
        let mut functions = Vec::new();
        let records = 3 * 2 * wide;
        let number = |n: u64| n.to_le_bytes()[..wide].to_vec();
        for n in 0..3u64 {
            functions.extend(number(0x10 * n + if is_absolute { 0x1000 } else { 0 }));
            functions.extend(number(records as u64 + n * (wide as u64 + 32)));
        }
        for (n, files) in [1u32, 3, 0].into_iter().enumerate() {
            functions.extend(number(0x10 * n as u64));
            for field in [0, 0, 0, 0, files, 0, 0, 0] {
                functions.extend(u32::to_le_bytes(field));
            }
        }
        let mut bytes = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        let mut fields = vec![3u64, 0];
        if !is_absolute {
            fields.push(0x1000);
        }
        let mut at = header as u64;
        // The names of functions are not read.
        fields.push(at);
        for part in [&units, &names, &values] {
            fields.push(at);
            at += part.len() as u64;
        }
        fields.push(at);
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        assert_eq!(bytes.len(), header);
        [bytes, units, names, values, functions].concat()
    }

    fn of(bytes: Vec<u8>) -> GoTable {
        GoTable { form: Form::of(&bytes), bytes, text: 0x1000 }
    }

    fn unknown(why: &str) -> Calling {
        Calling::Unknown(why.into())
    }

    #[test]
    fn functions_of_go_are_told_from_those_of_c_and_of_assembly() {
        for magic in [0xffff_fff0, 0xffff_fff1, 0xffff_fffa] {
            let table = of(table(magic));
            let all = [0x1000, 0x1010, 0x1020, 0x1008, 0x2000].map(|at| table.calling(at, true));
            assert_eq!(
                all,
                [Calling::Go, unknown(ASSEMBLY), Calling::C, Calling::C, Calling::C],
                "{magic:x}"
            );
        }
    }

    #[test]
    fn arguments_of_older_go_are_on_the_stack() {
        assert_eq!(of(table(0xffff_fffa)).calling(0x1000, false), unknown(OLD));
        assert_eq!(of(table(0xffff_fff1)).calling(0x1000, false), Calling::Go);
        assert_eq!(of(table(0xffff_fffb)).calling(0x1000, true), unknown(OLD));
        assert_eq!(of(table(0xffff_ff00)).calling(0x1000, true), unknown(UNKNOWN));
    }

    #[test]
    fn a_damaged_table_does_not_panic() {
        let whole = table(0xffff_fff1);
        for cut in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[cut] ^= 0xff;
            for bytes in [whole[..cut].to_vec(), damaged] {
                let table = of(bytes);
                [0x1000, 0x1010, 0x1020].iter().for_each(|at| drop(table.calling(*at, true)));
            }
        }
    }
}
