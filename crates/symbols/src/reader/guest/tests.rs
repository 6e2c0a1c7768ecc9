//! Kernels that are made up, whole and damaged, in memory that is made up.

use super::tables::BEGIN;
use super::*;

/// Addresses for which the kernel is linked.
const LINKED: u64 = 0xffff_ffff_8100_0000;
/// Where the tables are in its image.
const TABLES: u64 = 0x20_0000;
const UTS: u64 = 0x10_0880;
const SIZE: usize = 0x40_0000;

#[derive(Clone, Copy)]
enum Offsets {
    FromBase,
    Negative,
    FromPlace,
}

/// A mapping of a process, and what of it was used.
struct Fake {
    regions: Vec<Range<u64>>,
    contents: Vec<Vec<u8>>,
    unused: Option<Range<u64>>,
}

impl Memory for Fake {
    fn regions(&self) -> &[Range<u64>] {
        &self.regions
    }

    fn used(&self, from: u64, count: usize) -> Vec<bool> {
        let is_used = |page: u64| self.unused.as_ref().is_none_or(|unused| !unused.contains(&page));
        (from..).step_by(PAGE as usize).take(count).map(is_used).collect()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let found = self.regions.iter().position(|region| region.contains(&at));
        let Some((region, bytes)) = found.map(|n| (&self.regions[n], &self.contents[n])) else {
            return false;
        };
        let from = (at - region.start) as usize;
        bytes.get(from..from + into.len()).map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

/// The symbols of a kernel: some share an address, some are offsets.
fn symbols() -> Vec<(u64, String)> {
    let mut all = vec![(0x1000, "A per_cpu".to_owned()), (LINKED, "T _stext".into())];
    for n in 0..3000 {
        let long = if n == 7 { "x".repeat(300) } else { String::new() };
        all.push((LINKED + 0x100 + n * 0x40, format!("{} function_{n}{long}", ['T', 't'][n as usize % 2])));
    }
    all.push((LINKED + 0x10_0000, "T _etext".into()));
    all
}

/// The image of a kernel that runs at `slide` from where it was linked, and its VMCOREINFO.
fn kernel(offsets: Offsets, slide: u64, release: &str) -> (Vec<u8>, String) {
    let symbols = symbols();
    let mut image = vec![0; SIZE];
    let mut put = |at: u64, bytes: &[u8]| {
        image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    put(UTS, b"Linux\0");
    put(UTS + 130, release.as_bytes());
    // Every byte that is a letter stands for itself, one for a part of names.
    let (mut tokens, mut index) = (Vec::new(), Vec::new());
    for byte in 0..=255u8 {
        index.extend((tokens.len() as u16).to_le_bytes());
        match byte {
            1 => tokens.extend(b"function_"),
            byte if byte.is_ascii_graphic() => tokens.push(byte),
            _ => {}
        }
        tokens.push(0);
    }
    let mut names = Vec::new();
    for (_, name) in &symbols {
        let name = name.replacen(' ', "", 1).replace("function_", "\u{1}");
        match name.len() {
            short @ ..0x80 => names.push(short as u8),
            long => names.extend([long as u8 & 0x7f | 0x80, (long >> 7) as u8]),
        }
        names.extend(name.bytes());
    }
    let at_count = TABLES;
    let at_names = TABLES + 0x100;
    let at_tokens = at_names + names.len() as u64 + 0x20;
    let at_index = at_tokens + tokens.len() as u64 + 8;
    let at_offsets = at_index + 0x1000;
    let at_base = at_offsets + 4 * symbols.len() as u64;
    let base = LINKED + slide - 0x1000;
    let words = symbols.iter().enumerate().flat_map(|(n, (addr, _))| {
        let runs = addr + slide;
        let word = match offsets {
            Offsets::Negative if *addr < LINKED => *addr as u32,
            Offsets::Negative => (base.wrapping_sub(1).wrapping_sub(runs)) as u32,
            _ if *addr < LINKED => 0,
            Offsets::FromBase => (runs - base) as u32,
            Offsets::FromPlace => runs.wrapping_sub(LINKED + slide + at_offsets + 4 * n as u64) as u32,
        };
        word.to_le_bytes()
    });
    put(at_offsets, &words.collect::<Vec<_>>());
    put(at_base, &base.to_le_bytes());
    put(at_count, &(symbols.len() as u32).to_le_bytes());
    put(at_names, &names);
    put(at_tokens, &tokens);
    put(at_index, &index);
    let mut note = format!("OSRELEASE={release}\nBUILD-ID=00ff\nPAGESIZE=4096\nNUMBER(phys_base)=-2097152\n");
    let mut symbol = |name: &str, at: u64| note += &format!("SYMBOL({name})={:x}\n", LINKED + slide + at);
    symbol("init_uts_ns", UTS - 8);
    symbol("_stext", 0);
    symbol("kallsyms_num_syms", at_count);
    symbol("kallsyms_names", at_names);
    symbol("kallsyms_token_table", at_tokens);
    symbol("kallsyms_token_index", at_index);
    symbol("kallsyms_offsets", at_offsets);
    if !matches!(offsets, Offsets::FromPlace) {
        symbol("kallsyms_relative_base", at_base);
    }
    note += &format!("OFFSET(uts_namespace.name)=8\nKERNELOFFSET={slide:x}\n");
    (image, note)
}

/// A guest with these kernels, the first at this place of its memory.
fn guest(kernels: &[(Vec<u8>, String)], at: u64, start: u64) -> Fake {
    let mut memory = vec![0; 20 << 20];
    for (n, (image, note)) in kernels.iter().enumerate() {
        let page = 0x1000 + n * 0x2000;
        memory[page..page + note.len()].copy_from_slice(note.as_bytes());
        let at = at as usize + n * 0x60_0000;
        memory[at..at + image.len()].copy_from_slice(image);
    }
    let other = start - (64 << 20)..start - (48 << 20);
    let regions = vec![other.clone(), start..start + memory.len() as u64];
    Fake { regions, contents: vec![vec![7; 16 << 20], memory], unused: None }
}

const TIME: Duration = Duration::from_secs(600);
const START: u64 = 0x7f00_0000_0000;

fn ask(guests: &mut Guests, memory: &Fake, addrs: &[u64]) -> Result<Vec<PlaceName>, String> {
    guests.of_memory(7, Identity::default(), memory, addrs, TIME)
}

fn named(name: &str, offset: u64) -> PlaceName {
    PlaceName::Symbol(offset, name.into())
}

#[test]
fn addresses_of_a_guest_s_kernel_have_its_names_in_every_layout() {
    for offsets in [Offsets::FromBase, Offsets::Negative, Offsets::FromPlace] {
        for slide in [0, 0x1240_0000] {
            // Aligned as in the machine, as in the process, and not at all.
            for (at, start) in [(0x80_0000, START), (0x80_0000, START + 0x1000), (0x80_3000, START)] {
                let memory = guest(&[kernel(offsets, slide, "6.12.1-amd64")], at, start);
                let at = |offset| LINKED + slide + offset;
                let addrs =
                    [at(0), at(0x100), at(0x100 + 5 * 0x40 + 7), at(0x10_0001), 0, 0xffff_8880_0000_0000];
                let found = ask(&mut Guests::default(), &memory, &addrs).unwrap();
                let none = PlaceName::Unnamed(None);
                let names = [named("_stext", 0), named("function_0", 0), named("function_5", 7)];
                assert_eq!(found[..3], names);
                assert_eq!(found[3..], [none.clone(), none.clone(), none]);
            }
        }
    }
}

#[test]
fn the_table_is_that_of_the_guest_s_kallsyms() {
    let (image, note) = kernel(Offsets::Negative, 0x200_0000, "6.1.0");
    let memory = guest(&[(image, note.clone())], 0x80_0000, START);
    let note = Note::parse(note.as_bytes()).unwrap();
    let text = super::symbols(&memory, &note, &Budget::new(TIME)).unwrap().unwrap();
    let lines = symbols().into_iter().map(|(addr, name)| format!("{addr:016x} {name}\n"));
    assert_eq!(String::from_utf8(text).unwrap(), lines.collect::<String>());
}

#[test]
fn of_two_kernels_in_memory_each_names_its_own_addresses() {
    let (first, second) =
        (kernel(Offsets::FromBase, 0, "6.12.1"), kernel(Offsets::FromBase, 0x1000_0000, "6.12.1"));
    let memory = guest(&[first.clone(), second], 0x80_0000, START);
    let mut guests = Guests::default();
    let addrs = [LINKED + 0x105, LINKED + 0x1000_0146];
    assert_eq!(ask(&mut guests, &memory, &addrs).unwrap(), [named("function_0", 5), named("function_1", 6)]);
    assert_eq!(guests.tables.len(), 1, "one kernel that was started twice has one table");
    // It is started again elsewhere: the page of before has changed.
    let memory = guest(&[first], 0x80_0000, START);
    assert_eq!(
        ask(&mut guests, &memory, &addrs).unwrap(),
        [named("function_0", 5), PlaceName::Unnamed(None)]
    );
}

#[test]
fn what_was_not_used_is_not_read_and_reasons_are_told() {
    let whole = kernel(Offsets::FromBase, 0, "6.12.1");
    let mut memory = guest(std::slice::from_ref(&whole), 0x80_0000, START);
    memory.unused = Some(START..START + 0x10_0000);
    let why = |memory: &Fake| ask(&mut Guests::default(), memory, &[LINKED]).unwrap_err();
    assert!(why(&memory).contains("no VMCOREINFO") && why(&memory).contains("encrypted"), "{}", why(&memory));
    let old: String =
        whole.1.lines().filter(|line| !line.contains("kallsyms")).map(|l| format!("{l}\n")).collect();
    let memory = guest(&[(whole.0.clone(), old)], 0x80_0000, START);
    assert_eq!(why(&memory), "Linux 6.12.1 does not tell where its symbols are (6.0 and later do)");
    let memory = guest(&[(vec![0; SIZE], whole.1.clone())], 0x80_0000, START);
    assert_eq!(why(&memory), "the symbols of its Linux 6.12.1 are not found in it");
    let memory = guest(&[whole], 0x80_0000, START);
    let ended = Guests::default().of_memory(7, Identity::default(), &memory, &[LINKED], Duration::ZERO);
    assert!(ended.unwrap_err().contains("symtimeout"));
}

#[test]
fn a_guest_that_lies_gives_no_names_or_plain_ones_and_costs_no_more_memory() {
    let (image, note) = kernel(Offsets::FromBase, 0, "6.12.1");
    let parsed = Note::parse(note.as_bytes()).unwrap();
    let region = START..START + SIZE as u64;
    let mut memory = Fake { regions: vec![region.clone()], contents: vec![image.clone()], unused: None };
    let mut rng = testing::rng::Rng::new(31);
    let mut random = move || rng.bits();
    let text = |memory: &Fake, note: &Note| {
        let image = Within { memory, region: &region, delta: START.wrapping_sub(LINKED) };
        note.symbols(&image)
    };
    let right = text(&memory, &parsed).unwrap();
    let (mut same, mut none) = (0, 0);
    for round in 0..600 {
        let mut changes = Vec::new();
        for _ in 0..1 + round % 5 {
            // Where the tables are.
            let at = (TABLES + random() % 0xd000) as usize;
            changes.push((at, memory.contents[0][at]));
            memory.contents[0][at] = random() as u8;
        }
        match text(&memory, &parsed) {
            None => none += 1,
            Some(text) if text == right => same += 1,
            Some(text) => {
                assert!(text.len() < 64 << 20);
                assert!(text.iter().all(|b| b.is_ascii_graphic() || matches!(b, b' ' | b'\n')));
                let mut kernel = Kernel::given(Arc::new(Once(Mutex::new(text))));
                assert!(kernel.name(LINKED + 0x105).to_string().len() < 1000);
            }
        }
        changes.into_iter().rev().for_each(|(at, byte)| memory.contents[0][at] = byte);
    }
    assert!(none > 0 && same > 0, "{none} {same}");
    // The text that tells of them, and a memory that ends anywhere.
    for _ in 0..2000 {
        let mut damaged = note.clone().into_bytes();
        for _ in 0..3 {
            let at = (random() % damaged.len() as u64) as usize;
            damaged[at] = if random() % 4 == 0 { b'\n' } else { random() as u8 };
        }
        damaged.truncate(damaged.len() - (random() % 8) as usize);
        if let Ok(note) = Note::parse(&damaged) {
            text(&memory, &note);
        }
    }
    for size in [0, 1, UTS as usize, TABLES as usize + 2, TABLES as usize + 0x4000, TABLES as usize + 0x9000]
    {
        memory.contents[0] = image[..size].to_vec();
        assert_eq!(text(&memory, &parsed), None);
    }
    for (count, what) in [(0u32, "none"), (u32::MAX, "all"), (1 << 19, "more than there are")] {
        memory.contents[0] = image.clone();
        memory.contents[0][TABLES as usize..TABLES as usize + 4].copy_from_slice(&count.to_le_bytes());
        assert_eq!(text(&memory, &parsed), None, "{what}");
    }
    assert_eq!(Note::parse(BEGIN), Err(NoNote::Other));
    assert_eq!(Note::parse(b"OSRELEASE=\x1b[2J\n"), Err(NoNote::Other));
}
