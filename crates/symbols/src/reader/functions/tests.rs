//! Generated files, valid and damaged.

use std::rc::Rc;

use testing::elf::{Elf as TestElf, GLOBAL_FUNCTION, TEXT};
use text::{Kernel, Step, Uses};

use super::*;

const LOCAL_FUNCTION: u8 = 0x02;
const INDIRECT_FUNCTION: u8 = 0x1a;
const GLOBAL_LABEL: u8 = 0x10;
const LOCAL_LABEL: u8 = 0x00;
const GLOBAL_DATA: u8 = 0x11;

/// Keeps everything.
#[derive(Default)]
struct Collector(Vec<(Function, Option<Instructions>)>);

impl Output for Collector {
    type Error = std::convert::Infallible;

    fn function(
        &mut self,
        function: Function,
        instructions: Option<Instructions>,
    ) -> Result<(), Self::Error> {
        self.0.push((function, instructions));
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

fn everything(select: Select) -> FunctionQuery {
    FunctionQuery {
        select,
        kernel: Kernel::UNKNOWN,
        entries: vec![Uses::NOTHING, Uses::NOTHING.and_registers()],
        returns: true,
        instructions: true,
    }
}

/// All functions of a file.
fn list(bytes: Vec<u8>, query: &FunctionQuery) -> Result<(Vec<Function>, FileFunctions), ElfError> {
    let elf = Elf::open(Rc::new(bytes))?;
    let mut listing = Listing::read(&Sources { own: &elf, name: b"x", other: None, debug: None }, 1 << 22)?;
    listing.extra = 0;
    let mut kept = Collector::default();
    let Ok(answer) = listing.answer(query, None, &mut kept);
    answer.map_err(|_| ElfError::Format)?;
    Ok((kept.0.into_iter().map(|(function, _)| function).collect(), listing.file().clone()))
}

fn test_elf(code: &[u8], symbols: &[(&str, u64, u64, u8)]) -> TestElf {
    let symbols = symbols.iter().map(|(name, at, size, info)| ((*name).into(), *at, *size, *info)).collect();
    TestElf { code: code.to_vec(), symbols, ..TestElf::default() }
}

#[test]
fn functions_have_their_aliases_sizes_and_offsets() {
    let elf = test_elf(
        &[0x90; 0x100],
        &[
            ("__libc_malloc", 0, 0x20, GLOBAL_FUNCTION),
            ("malloc", 0, 0x20, GLOBAL_FUNCTION),
            ("__GI_malloc", 0, 0x20, LOCAL_FUNCTION),
            ("malloc@@V_2", 0, 0x20, GLOBAL_FUNCTION),
            ("without_size", 0x20, 0, GLOBAL_FUNCTION),
            ("inner", 0x28, 0, LOCAL_LABEL),
            ("label", 0x30, 0, GLOBAL_LABEL),
            ("chosen", 0x40, 8, INDIRECT_FUNCTION),
            ("data", 0x50, 8, GLOBAL_DATA),
            ("too_long", 0xf0, 0x100, GLOBAL_FUNCTION),
            ("outside", 0x100, 8, GLOBAL_FUNCTION),
            ("last", 0xf8, 0, LOCAL_FUNCTION),
        ],
    );
    let (functions, file) = list(elf.bytes(), &FunctionQuery::names(Select::All)).unwrap();
    let shown = |f: &Function| {
        let names: Vec<&str> = f.names.iter().map(|n| n.raw.as_str()).collect();
        (names.join(" "), f.address - TEXT, f.offset, f.size, f.indirect)
    };
    assert_eq!(
        functions.iter().map(shown).collect::<Vec<_>>(),
        [
            ("malloc __libc_malloc __GI_malloc".into(), 0, 0x1000, 0x20, false),
            ("without_size".into(), 0x20, 0x1020, 0x10, false),
            ("chosen".into(), 0x40, 0x1040, 8, true),
            ("too_long".into(), 0xf0, 0x10f0, 0x10, false),
            ("last".into(), 0xf8, 0x10f8, 8, false),
        ]
    );
    assert_eq!((file.total, file.source, file.unwinds), (5, SymbolSource::Full, None));
    assert_eq!(file.entry, TEXT);
}

#[test]
fn a_function_is_selected_by_any_of_its_names_and_by_its_addresses() {
    let symbols =
        [("a", 0, 8, GLOBAL_FUNCTION), ("__a", 0, 8, GLOBAL_FUNCTION), ("_ZN1n1fEi", 8, 8, GLOBAL_FUNCTION)];
    let bytes = test_elf(&[0x90; 0x20], &symbols).bytes();
    let found = |select| {
        let (functions, _) = list(bytes.clone(), &FunctionQuery::names(select)).unwrap();
        functions.iter().map(|f| f.name().to_string()).collect::<Vec<_>>()
    };
    for pattern in ["a", "__*", "?"] {
        assert_eq!(found(Select::Matching(vec![pattern.into()])), ["a"], "{pattern}");
    }
    for pattern in ["n::f", "n::f(int)", "_ZN1n1fEi", "n::*"] {
        assert_eq!(found(Select::Matching(vec![pattern.into()])), ["n::f"], "{pattern}");
    }
    assert_eq!(found(Select::Matching(vec!["".into()])).len(), 2);
    assert_eq!(found(Select::At(vec![TEXT + 7])), ["a"]);
    assert_eq!(found(Select::At(vec![TEXT + 16])), [""; 0]);
    assert_eq!(found(Select::At(vec![TEXT, TEXT + 8])), ["a", "n::f"]);
}

#[test]
fn code_is_decoded_by_the_query() {
    // push %rbp; mov %rsp,%rbp; pop %rbp; ret, then bytes that are no instruction
    let code = [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x06, 0x06];
    let bytes = test_elf(&code, &[("f", 0, 6, GLOBAL_FUNCTION), ("bad", 6, 2, GLOBAL_FUNCTION)]).bytes();
    let (functions, _) = list(bytes, &everything(Select::All)).unwrap();
    let [f, bad] = &functions[..] else { panic!("{functions:?}") };
    let entry = text::EntryProbe::at(0, Step::Emulated);
    assert_eq!(f.entries, [Ok(entry), Ok(entry)]);
    let returns = f.returns.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(returns.iter().map(|r| r.offset).collect::<Vec<_>>(), [5]);
    let why = "the bytes at +0x0 are no instruction";
    assert_eq!(bad.entries, [Err(why.into()), Err(why.into())]);
    assert_eq!((&bad.returns, &bad.instructions), (&Some(Err(why.into())), &Some(Err(why.into()))));
}

#[test]
fn an_unwinder_is_told_by_its_symbol() {
    let elf = |info| test_elf(&[0x90; 8], &[("_Unwind_RaiseException", 0, 8, info)]).bytes();
    let unwinds = |info| list(elf(info), &everything(Select::Nothing)).unwrap().1.unwinds;
    assert_eq!(unwinds(GLOBAL_FUNCTION).as_deref(), Some("it defines _Unwind_RaiseException"));
    assert_eq!(unwinds(GLOBAL_DATA), None);
}

#[test]
fn symbols_that_overlap_too_often_are_not_decoded() {
    let size = 1 << 12;
    let names: Vec<String> = (0..64).map(|n| format!("f{n}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(n, at)| (n.as_str(), at, size, GLOBAL_FUNCTION)).collect();
    let bytes = test_elf(&vec![0x90; size as usize], &symbols).bytes();
    let query = FunctionQuery { instructions: false, ..everything(Select::All) };
    let (functions, _) = list(bytes, &query).unwrap();
    let refused = functions.iter().filter(|f| f.entries[0].is_err()).count();
    // Four times the code, of which symbols inside a function cost some.
    assert_eq!((functions.len(), refused), (64, 61));
    assert_eq!(functions[63].returns, Some(Err("the functions of its file overlap too much".into())));
}

#[test]
fn a_damaged_file_is_an_error_or_a_list_and_never_a_panic() {
    let mut elf = test_elf(
        &[0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x0f, 0x84, 0, 0, 0, 0, 0xff, 0x24, 0xc5, 0, 0, 0, 0, 0xc3],
        &[
            ("first", 0, 6, GLOBAL_FUNCTION),
            ("_ZN2ns6secondEv", 6, 0, LOCAL_FUNCTION),
            ("other", 7, 12, INDIRECT_FUNCTION),
        ],
    );
    elf.build_id = Some(vec![7; 20]);
    let bytes = elf.bytes();
    let read = |bytes: Vec<u8>| {
        for select in
            [Select::All, Select::Matching(vec!["*s*".into()]), Select::At(vec![0, TEXT + 3, u64::MAX])]
        {
            let _ = list(bytes.clone(), &everything(select));
        }
    };
    for at in (0..120).chain(0x1000..bytes.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            read(damaged.clone());
            let end = (at + 8).min(damaged.len());
            damaged[at..end].fill(0xff);
            read(damaged);
        }
        read(bytes[..at].to_vec());
    }
}

#[test]
fn the_table_of_unwinders_has_the_sizes_of_functions() {
    let maps = proc::maps::parse(&std::fs::read("/proc/self/maps").unwrap());
    let libc = maps.files.iter().find(|f| f.path.windows(8).any(|w| w == b"/libc.so")).unwrap();
    let bytes = std::fs::read(String::from_utf8(libc.path.clone()).unwrap()).unwrap();
    let elf = Elf::open(Rc::new(bytes.clone())).unwrap();
    let (functions, _) = list(bytes, &FunctionQuery::names(Select::All)).unwrap();
    let sizes = functions.iter().filter_map(|f| Some((f.size, elf.unwound_size(f.address)?)));
    let sizes: Vec<(u64, u64)> = sizes.collect();
    let same = sizes.iter().filter(|(size, unwound)| size == unwound).count();
    println!("{} functions, {} in the table, {same} with the same size", functions.len(), sizes.len());
    // A part that is rarely executed may be elsewhere, and an assembler's function may have several
    // parts.
    assert!(sizes.len() * 10 > functions.len() * 9 && same * 10 > sizes.len() * 9);
    assert_eq!(elf.unwound_size(functions[0].address + 1), None);
    // The compiler's calls of indirect functions have slots.
    assert!(elf.slots().len() > 10, "{:?}", elf.slots());
}

/// `f` jumps to its part, which comes back; `g` calls what has the name of a part; the part of `h`
/// returns by itself.
fn in_parts() -> TestElf {
    let mut code = vec![0x90; 0x80];
    let mut put = |at: usize, bytes: &[u8]| code[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &[0x90, 0x0f, 0x85, 0x19, 0, 0, 0, 0xc3]); // nop; jne 0x20; ret
    put(0x20, &[0xe9, 0xdc, 0xff, 0xff, 0xff]); // jmp 0x01
    put(0x28, &[0xe8, 0x03, 0, 0, 0, 0xc3]); // call 0x30; ret
    put(0x30, &[0xc3]);
    put(0x40, &[0x0f, 0x84, 0x0a, 0, 0, 0, 0xeb, 0xd8]); // je 0x50; jmp 0x20
    put(0x50, &[0x90, 0xc3]);
    test_elf(
        &code,
        &[
            ("_Z1fi", 0x00, 8, GLOBAL_FUNCTION),
            ("_Z1fi.cold", 0x20, 5, LOCAL_FUNCTION),
            ("g", 0x28, 6, GLOBAL_FUNCTION),
            ("g.cold.1", 0x30, 1, LOCAL_FUNCTION),
            ("h", 0x40, 8, GLOBAL_FUNCTION),
            ("h.cold", 0x50, 2, LOCAL_FUNCTION),
            ("lost.cold", 0x60, 4, LOCAL_FUNCTION),
        ],
    )
}

#[test]
fn a_part_belongs_to_its_function_and_is_in_no_list() {
    let bytes = in_parts().bytes();
    let found = |select| list(bytes.clone(), &everything(select)).unwrap().0;
    let names = |functions: &[Function]| functions.iter().map(|f| f.name().to_string()).collect::<Vec<_>>();
    let all = found(Select::All);
    // What nothing jumps to is a function, for all that is known.
    assert_eq!(names(&all), ["f", "g", "g.cold.1", "h", "lost.cold"]);
    let returns = |n: usize| {
        let sites = all[n].returns.as_ref().unwrap().as_ref().unwrap();
        sites.iter().map(|site| (site.offset, site.departure)).collect::<Vec<_>>()
    };
    let (ret, jump) = (text::Departure::Return, text::Departure::Jump);
    assert_eq!(returns(0), [(7, ret)]);
    // A jump into the part of another function leaves this one.
    assert_eq!((returns(1), returns(3)), (vec![(5, ret)], vec![(6, jump), (0x11, ret)]));
    // The part jumps back to the second instruction, so no probe of the entry is behind it.
    assert!(all[0].entries.iter().all(|entry| entry.as_ref().unwrap().offset == 0));
    assert_eq!(names(&found(Select::Matching(vec!["f".into(), "f*".into(), "_Z1f*".into()]))), ["f"]);
    let named = found(Select::Matching(vec!["_Z1fi.cold".into()]));
    let why = "it is a part of f, whose entry and returns include it; -:";
    assert!(named[0].part.as_ref().unwrap().starts_with(why), "{named:?}");
    assert_eq!((named.len(), named[0].returns.clone(), named[0].entries.len()), (1, None, 0));
    assert_eq!(names(&found(Select::At(vec![TEXT + 0x21]))), ["f"]);
}
