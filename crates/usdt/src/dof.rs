//! DOF in `.SUNW_dof`: what `dtrace -G` of the original puts into programs. Only what describes
//! probes is read.
//!
//! ```text
//!  header    64 bytes: 7f 'D' 'O' 'F', 2 (64 bits), byte order, version │ … │ u32 sections at 28 │ u64 offset of the first at 32
//!  section   32 bytes: u32 type │ … │ u32 bytes of an entry at 12 │ u64 offset at 16 │ u64 bytes at 24
//!  provider  u32 numbers of the sections of strings, probes, arguments and offsets │ u32 name
//!  probe     u64 address of the function │ u32 function, name, native types, translated types │ u32 first mapping, first offset
//!            u8 native arguments, translated arguments │ u16 offsets
//! ```
//!
//! The compiler has made a call of the probe, and `-G` has overwritten it. So the arguments are
//! where those of a call are. Nothing on the Linux of today makes such files: programs that other
//! systems' linkers have made, and those of the old port, have them.

/// Bytes of the parts.
const HEADER: usize = 64;
const SECTION: usize = 32;
const PROBE: usize = 48;
/// Types of sections.
const STRINGS: u32 = 8;
const PROVIDER: u32 = 15;
const PROBES: u32 = 16;
const OFFSETS: u32 = 18;
/// The most sections, and the most sites, that are looked at: parts may overlap.
const MAX_SECTIONS: usize = 1 << 12;
const MAX_SITES: usize = 1 << 15;
/// The longest text, with its end: probes share the section of texts, and each may name all of it.
const MAX_TEXT: usize = 1 << 10;

/// A site of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DofSite<'a> {
    /// The provider.
    pub provider: &'a str,
    /// The name of the probe.
    pub name: &'a str,
    /// The address of the site in the file.
    pub address: u64,
    /// The operands of its arguments, as notes of SystemTap have them.
    pub arguments: String,
}

/// The sites in a section, those that can be read, for a machine with these registers for the
/// arguments of a call (`%rdi`) and this text of an argument on the stack, before and behind its
/// offset.
pub(crate) fn dof_sites<'a>(bytes: &'a [u8], registers: &[&str], stack: (&str, &str)) -> Vec<DofSite<'a>> {
    read(bytes, registers, stack).unwrap_or_default()
}

#[derive(Clone, Copy)]
struct Section<'a> {
    kind: u32,
    entry: usize,
    bytes: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

fn text_at(strings: &[u8], at: u32) -> Option<&str> {
    let text = strings.get(at as usize..)?;
    let text = text.get(..text.len().min(MAX_TEXT))?;
    std::str::from_utf8(text.get(..text.iter().position(|b| *b == 0)?)?).ok()
}

fn read<'a>(bytes: &'a [u8], registers: &[&str], stack: (&str, &str)) -> Option<Vec<DofSite<'a>>> {
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if bytes.get(..6)? != [0x7f, b'D', b'O', b'F', 2, order] {
        return None;
    }
    let size = (u32_at(bytes, 24)? as usize).max(SECTION);
    let (count, first) = (u32_at(bytes, 28)? as usize, usize::try_from(u64_at(bytes, 32)?).ok()?);
    bytes.get(HEADER..)?;
    let section = |number: usize| {
        let at = first.checked_add(number.checked_mul(size)?)?;
        let head = bytes.get(at..at.checked_add(SECTION)?)?;
        let offset = usize::try_from(u64_at(head, 16)?).ok()?;
        let end = offset.checked_add(usize::try_from(u64_at(head, 24)?).ok()?)?;
        let (kind, entry) = (u32_at(head, 0)?, u32_at(head, 12)? as usize);
        Some(Section { kind, entry, bytes: bytes.get(offset..end)? })
    };
    let (mut all, mut looked) = (Vec::new(), 0);
    for number in 0..count.min(MAX_SECTIONS) {
        let Some(provider) = section(number).filter(|s| s.kind == PROVIDER) else { continue };
        let part =
            |at: usize, kind: u32| section(u32_at(provider.bytes, at)? as usize).filter(|s| s.kind == kind);
        let parts = (part(0, STRINGS), part(4, PROBES), part(12, OFFSETS));
        let (Some(strings), Some(probes), Some(offsets)) = parts else { continue };
        let Some(name) = u32_at(provider.bytes, 16).and_then(|at| text_at(strings.bytes, at)) else {
            continue;
        };
        for probe in probes.bytes.chunks_exact(probes.entry.max(PROBE)) {
            looked += 1;
            if looked > MAX_SITES || all.len() >= MAX_SITES {
                return Some(all);
            }
            let _ = sites(probe, (name, strings.bytes, offsets.bytes), registers, stack, &mut all);
        }
    }
    Some(all)
}

fn sites<'a>(
    probe: &[u8],
    (provider, strings, offsets): (&'a str, &'a [u8], &[u8]),
    registers: &[&str],
    stack: (&str, &str),
    all: &mut Vec<DofSite<'a>>,
) -> Option<()> {
    let (function, name) = (u64_at(probe, 0)?, text_at(strings, u32_at(probe, 12)?)?);
    let (mut types, first, count) = (u32_at(probe, 16)?, u32_at(probe, 28)? as usize, *probe.get(32)?);
    let mut operands = Vec::new();
    for n in 0..usize::from(count).min(crate::MAX_ARGUMENTS) {
        let ty = text_at(strings, types).unwrap_or_default();
        types = types.saturating_add(ty.len() as u32 + 1);
        operands.push(match registers.get(n) {
            Some(register) => format!("{}@{register}", size(ty)),
            None => format!("{}@{}{}{}", size(ty), stack.0, 8 * (n - registers.len()), stack.1),
        });
    }
    let arguments = operands.join(" ");
    let noffs = probe.get(34..36)?.try_into().ok().map(u16::from_ne_bytes)?;
    for n in 0..usize::from(noffs) {
        let offset = u32_at(offsets, first.checked_add(n)?.checked_mul(4)?)?;
        if all.len() < MAX_SITES {
            let address = function.wrapping_add(offset.into());
            all.push(DofSite { provider, name, address, arguments: arguments.clone() });
        }
    }
    Some(())
}

/// The size of a type, negative with a sign. The register of a call has what is smaller in its low
/// part.
fn size(ty: &str) -> &'static str {
    match ty {
        "char" | "int8_t" | "signed char" => "-1",
        "unsigned char" | "uint8_t" | "uchar_t" | "_Bool" | "bool" => "1",
        "short" | "int16_t" => "-2",
        "unsigned short" | "uint16_t" | "ushort_t" => "2",
        "int" | "int32_t" | "pid_t" => "-4",
        "unsigned int" | "unsigned" | "uint32_t" | "uint_t" | "uid_t" | "gid_t" => "4",
        "long" | "long long" | "int64_t" | "ssize_t" | "off_t" => "-8",
        _ => "8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTERS: [&str; 2] = ["%rdi", "%rsi"];
    const STACK: (&str, &str) = ("", "(%rsp)");

    fn section(kind: u32, entry: u32, offset: u64, size: u64) -> Vec<u8> {
        let words: Vec<u8> = [kind, 8, 1, entry].into_iter().flat_map(u32::to_ne_bytes).collect();
        [words, offset.to_ne_bytes().to_vec(), size.to_ne_bytes().to_vec()].concat()
    }

    /// A provider with the probe `go` of three arguments at two places.
    fn dof() -> Vec<u8> {
        let strings = b"\0app\0main\0go\0char *\0int\0short\0";
        let words = |all: &[u32]| all.iter().copied().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
        let probe = [
            0x4000u64.to_ne_bytes().to_vec(),
            words(&[5, 10, 13, 0, 0, 1]),
            vec![3, 0, 2, 0],
            words(&[0, 0, 0]),
        ]
        .concat();
        assert_eq!(probe.len(), PROBE);
        let parts = [
            (STRINGS, 0, strings.to_vec()),
            (PROBES, PROBE as u32, probe),
            (17, 1, vec![0]),
            (OFFSETS, 4, words(&[99, 0x10, 0x20])),
            (PROVIDER, 44, [words(&[0, 1, 2, 3, 1]), vec![0; 24]].concat()),
        ];
        let mut out = vec![0x7f, b'D', b'O', b'F', 2, 1, 1, 2, 8, 8, 0, 0, 0, 0, 0, 0];
        out.extend(words(&[0, HEADER as u32, SECTION as u32, parts.len() as u32]));
        out.extend([HEADER as u64, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes));
        let mut at = (HEADER + SECTION * parts.len()) as u64;
        let mut bodies = Vec::new();
        for (kind, entry, body) in &parts {
            out.extend(section(*kind, *entry, at, body.len() as u64));
            at += body.len() as u64;
            bodies.extend_from_slice(body);
        }
        out.extend(bodies);
        out
    }

    #[test]
    fn the_sites_of_a_provider_are_read() {
        let bytes = dof();
        let site = |address| DofSite {
            provider: "app",
            name: "go",
            address,
            arguments: "8@%rdi -4@%rsi -2@0(%rsp)".into(),
        };
        assert_eq!(dof_sites(&bytes, &REGISTERS, STACK), [site(0x4010), site(0x4020)]);
    }

    #[test]
    fn a_text_without_an_end_is_no_name() {
        let whole = dof();
        let at = whole.windows(3).position(|part| part == b"app").unwrap();
        let provider = |length: usize| {
            let long = [vec![b'a'; length], vec![0]].concat();
            let mut bytes = whole.clone();
            // The provider's name is moved behind all parts: the section of texts is everything.
            let end = bytes.len() as u64;
            bytes.extend(&long);
            let size = bytes.len() as u64;
            bytes[HEADER + 16..HEADER + 24].copy_from_slice(&0u64.to_ne_bytes());
            bytes[HEADER + 24..HEADER + 32].copy_from_slice(&size.to_ne_bytes());
            let provider = end as usize - 44;
            bytes[provider + 16..provider + 20].copy_from_slice(&(end as u32).to_ne_bytes());
            // The probe's name is where it was.
            let probe = at + 3 + b"\0main\0go\0char *\0int\0short\0".len();
            let name = (at + 9) as u32;
            bytes[probe + 12..probe + 16].copy_from_slice(&name.to_ne_bytes());
            dof_sites(&bytes, &REGISTERS, STACK).iter().map(|site| site.provider.len()).collect::<Vec<_>>()
        };
        assert_eq!(provider(60), [60, 60]);
        assert_eq!(provider(MAX_TEXT - 1), [MAX_TEXT - 1, MAX_TEXT - 1]);
        assert_eq!(provider(MAX_TEXT), [0usize; 0]);
    }

    #[test]
    fn any_bytes_have_a_bounded_answer() {
        let whole = dof();
        for end in 0..whole.len() {
            assert!(dof_sites(&whole[..end], &REGISTERS, STACK).len() <= 2, "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 15, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let sites = dof_sites(&changed, &REGISTERS, STACK);
                assert!(sites.len() <= 2 * MAX_SECTIONS, "{at} {value}");
                assert!(sites.iter().all(|s| s.arguments.len() < 400));
            }
        }
    }

    #[test]
    fn overlapping_sections_do_not_multiply() {
        let mut bytes = dof();
        // Many sections that all are the one of the provider: of size 0 each would be at the same
        // place.
        bytes[24..28].copy_from_slice(&0u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(dof_sites(&bytes, &REGISTERS, STACK).len() <= MAX_SITES);
    }
}
