//! The kernel's symbols in a record.
//!
//! Where the kernel and its modules are is random, and who knows it can attack the kernel. So a
//! record has addresses from the beginning of the kernel's text (`_text`), and those of modules
//! from the lowest address of any module: the distance between the two areas would tell the former,
//! because modules begin near a fixed address. Symbols outside the kernel's own memory, and those
//! that the kernel calls absolute, are left out for the same reason (an address that is the same on
//! every machine, less `_text`, is `_text`), and so are those of BPF programs and trampolines,
//! which come and go.
//!
//! A record is read as if the kernel were at the addresses that it has without randomization.
//!
//! ```text
//!  group   module (empty: the kernel's own; `=`: offsets of per-CPU variables), count
//!          the type letters of all; the distances of their addresses; their names, each with NUL
//! ```

use std::ops::RangeInclusive;

use crate::wire::{Reader, Writer};

/// Where the kernel and its modules are in what is read.
const TEXT: u64 = 0xffff_ffff_8100_0000;
const MODULES: u64 = 0xffff_ffff_c000_0000;

/// The kernel is no longer than this (`KERNEL_IMAGE_SIZE` without randomization).
const IMAGE: u64 = 512 << 20;

/// Addresses below are no addresses but offsets.
const KERNEL_START: u64 = 1 << 63;

/// The name of the group of symbols that are offsets. No module has it.
const OFFSETS: &str = "=";

/// Bytes of the longest name, and of the longest text that is made of a record.
const LONGEST_NAME: usize = 1 << 10;
const LONGEST_TEXT: usize = 256 << 20;

struct Line<'a> {
    addr: u64,
    kind: u8,
    name: &'a str,
    module: &'a str,
}

fn line(line: &str) -> Option<Line<'_>> {
    let mut words = line.split_ascii_whitespace();
    let addr = u64::from_str_radix(words.next()?, 16).ok()?;
    let (&[kind], name) = (words.next()?.as_bytes(), words.next()?) else { return None };
    let module = words.next().map_or(Some(""), |m| m.strip_prefix('[')?.strip_suffix(']'))?;
    Some(Line { addr, kind, name, module })
}

fn is_kept(module: &str) -> bool {
    module != "bpf" && !module.starts_with("__builtin__")
}

/// The group of a symbol and its place there, if a record has it.
fn place<'a>(l: &Line<'a>, kernel: RangeInclusive<u64>, lowest: Option<u64>) -> Option<(&'a str, u64)> {
    match l.module {
        "" if kernel.contains(&l.addr) && !matches!(l.kind, b'A' | b'a') => {
            Some(("", l.addr - kernel.start()))
        }
        "" if l.addr < KERNEL_START && l.addr != 0 => Some((OFFSETS, l.addr)),
        "" => None,
        // A constant, less the lowest address, would tell that address.
        _ if matches!(l.kind, b'A' | b'a') => None,
        module => l.addr.checked_sub(lowest?).map(|at| (module, at)),
    }
}

/// Of what a record has, the symbols with such a name. Addresses stay as they are, so what they are
/// counted from stays too.
pub(crate) fn keep(packed: &[u8], is_name: impl Fn(&str) -> bool) -> Result<Vec<u8>, String> {
    let text = unpack(packed).and_then(|text| String::from_utf8(text).ok());
    let text = text.ok_or("the record is damaged: the symbols")?;
    let lowest = text.lines().filter_map(line).filter(|l| !l.module.is_empty()).min_by_key(|l| l.addr);
    let lowest = lowest.map(|l| (l.addr, l.name));
    let is_kept = |l: &Line<'_>| l.name == "_text" || is_name(l.name) || Some((l.addr, l.name)) == lowest;
    let kept = text.lines().filter(|text| line(text).is_some_and(|l| is_kept(&l)));
    pack(&kept.collect::<Vec<_>>().join("\n"))
}

/// What a record has of the text of `/proc/kallsyms`; or why there is nothing to have.
pub(crate) fn pack(text: &str) -> Result<Vec<u8>, String> {
    let all: Vec<Line<'_>> = text.lines().filter_map(line).filter(|l| is_kept(l.module)).collect();
    let core =
        |name: &str| all.iter().find(|l| l.module.is_empty() && l.name == name && l.addr >= KERNEL_START);
    let Some(start) = core("_text") else {
        return Err(match all.iter().any(|l| l.addr != 0) {
            false => "the kernel hides the addresses of its symbols; see kernel.kptr_restrict".into(),
            true => "they have no _text".into(),
        });
    };
    // Kernels without symbols of data have no end.
    let end = core("_end").map_or_else(|| start.addr.saturating_add(IMAGE), |end| end.addr);
    let kernel = start.addr..=end;
    let of_modules = all
        .iter()
        .filter(|l| !l.module.is_empty() && l.addr >= KERNEL_START && !matches!(l.kind, b'A' | b'a'));
    let lowest = of_modules.map(|l| l.addr).min();
    let mut groups: Vec<(&str, Vec<(u64, &Line<'_>)>)> = Vec::new();
    for l in &all {
        let Some((group, at)) = place(l, kernel.clone(), lowest) else { continue };
        match groups.iter_mut().rfind(|(name, _)| *name == group) {
            Some((_, members)) => members.push((at, l)),
            None => groups.push((group, vec![(at, l)])),
        }
    }
    let mut w = Writer::default();
    w.list(groups.into_iter(), |w, (name, mut members)| {
        // Symbols of one address keep their order, by which one of them is chosen.
        members.sort_by_key(|(at, _)| *at);
        w.text(name);
        w.number(members.len() as u64);
        w.0.extend(members.iter().map(|(_, l)| l.kind));
        let mut last = 0;
        for (at, _) in &members {
            w.number(at - last);
            last = *at;
        }
        for (_, l) in &members {
            w.0.extend_from_slice(l.name.as_bytes());
            w.byte(0);
        }
    });
    Ok(w.0)
}

/// The text that was packed, with the addresses of a kernel that is not randomized.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut r = Reader(packed);
    let mut out = Vec::with_capacity(packed.len().saturating_mul(2).min(LONGEST_TEXT));
    let groups: usize = r.small()?;
    for _ in 0..groups {
        let module = r.text().filter(|m| m.len() <= LONGEST_NAME && is_word(m.as_bytes()))?;
        let base = match module {
            "" => TEXT,
            OFFSETS => 0,
            _ => MODULES,
        };
        let count: usize = r.small()?;
        let kinds = r.take(count).filter(|kinds| is_word(kinds))?;
        let mut places = r;
        (0..count).try_for_each(|_| r.number().map(drop))?;
        let mut at = base;
        for kind in kinds {
            at = at.checked_add(places.number()?)?;
            let end = r.0.iter().take(LONGEST_NAME + 1).position(|b| *b == 0)?;
            let name = r.take(end + 1)?.strip_suffix(&[0]).filter(|name| is_word(name))?;
            out.extend_from_slice(format!("{at:016x} ").as_bytes());
            out.extend_from_slice(&[*kind, b' ']);
            out.extend_from_slice(name);
            if !module.is_empty() && module != OFFSETS {
                out.extend_from_slice(format!("\t[{module}]").as_bytes());
            }
            out.push(b'\n');
            if out.len() > LONGEST_TEXT {
                return None;
            }
        }
    }
    Some(out)
}

/// True if no byte separates words.
fn is_word(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b > b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
000000000001c2b0 A __preempt_count
ffffffff91000000 T _stext
ffffffff91000000 T _text
ffffffff91000200 T __do_softirq
ffffffff91000100 t local_first
ffffffff92000000 D some_data
ffffffff93000000 B _end
ffffffffff600000 A fixed_by_the_machine
ffffffffffffff80 a negative\t[ext4]
ffffffffc0100000 a lower\t[ext4]
ffffffffc0211000 t mod_func\t[ext4]
ffffffffc0210000 T mod_init\t[ext4]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_x\t[bpf]
ffffffffc0301000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0220000 d [odd_name\t[loop]
";

    fn read(text: &str) -> String {
        String::from_utf8(unpack(&pack(text).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn symbols_are_read_at_the_addresses_of_a_kernel_without_randomization() {
        let expected = "\
000000000001c2b0 A __preempt_count
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t local_first
ffffffff81000200 T __do_softirq
ffffffff82000000 D some_data
ffffffff83000000 B _end
ffffffffc0000000 T mod_init\t[ext4]
ffffffffc0001000 t mod_func\t[ext4]
ffffffffc0010000 d [odd_name\t[loop]
";
        assert_eq!(read(TEXT), expected);
    }

    #[test]
    fn a_record_is_the_same_wherever_the_kernel_and_its_modules_are() {
        let moved = TEXT.replace("ffffffff9", "ffffffffa").replace("ffffffffc02", "ffffffffc07");
        assert_ne!(moved, TEXT);
        assert_eq!(pack(&moved), pack(TEXT));
    }

    #[test]
    fn a_kernel_without_symbols_of_data_has_the_others() {
        let functions = "ffffffff91000000 T _text\nffffffff91000100 T f\nffffffff91000200 A absolute\n\
                         ffffffffff600000 T fixed_by_the_machine\n";
        assert_eq!(read(functions), "ffffffff81000000 T _text\nffffffff81000100 T f\n");
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let hidden = "0000000000000000 T _text\n0000000000000000 T _end\n";
        assert!(pack(hidden).unwrap_err().contains("kptr_restrict"));
        assert!(pack("ffffffff91000000 T _stext\n").unwrap_err().contains("_text"));
    }

    #[test]
    fn wrong_bytes_are_refused_or_read_as_something_else() {
        let packed = pack(TEXT).unwrap();
        for end in 0..packed.len() {
            assert_eq!(unpack(&packed[..end]), None, "{end}");
        }
        for at in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[at / 8] ^= 1 << (at % 8);
            if let Some(text) = unpack(&wrong) {
                // What cannot be a symbol never reaches the table of symbols as two lines.
                let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
                assert!(lines.count() <= TEXT.lines().count(), "{at}");
            }
        }
    }
}
