//! Dictionaries made by hand, and those of the compiler and the linker of this machine.

use std::process::Command;

use super::*;
use crate::query::Place;
use crate::tests::{C, Dir, Given, OTHER, check_c, damage, name};
use crate::{CTF_SECTIONS, DebugTypes};

/// A dictionary.
#[derive(Default)]
struct Made {
    strings: Vec<u8>,
    types: Vec<u32>,
    count: u32,
    parent: u32,
    flags: u8,
    /// Objects, functions, names of objects, names of functions, variables.
    symbols: [Vec<u32>; 5],
}

const VISIBLE: u32 = 1 << 25;
/// The flags of a linker: functions have types, symbols are those of the dynamic linker.
const LINKED: u8 = 2 | 8;

impl Made {
    fn new() -> Made {
        Made { flags: LINKED, ..Made::default() }
    }

    fn string(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        if text.is_empty() { 0 } else { at }
    }

    /// Adds a type with so many parts: size or type, and the words of the parts.
    fn add(&mut self, kind: u32, name: &str, count: u32, last: u32, parts: &[u32]) -> u32 {
        let name = self.string(name);
        self.types.extend([name, kind << 26 | VISIBLE | count, last]);
        self.types.extend(parts);
        self.count += 1;
        self.count | if self.parent == 0 { 0 } else { OF_CHILD }
    }

    fn sou(&mut self, kind: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let parts: Vec<u32> =
            members.iter().flat_map(|(name, at, ty)| [self.string(name), *at, *ty]).collect();
        self.add(kind, name, members.len() as u32, size, &parts)
    }

    fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add(kind::INTEGER, name, 0, size, &[(encoding << 24) | (size * 8)])
    }

    fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let mut header = vec![0xf2, 0xdf, 4, self.flags];
        let mut starts = vec![0, self.parent, 0, 0];
        let mut at = 0;
        for section in &self.symbols {
            starts.push(at);
            at += 4 * section.len() as u32;
        }
        starts.extend([at, at + 4 * self.types.len() as u32, self.strings.len() as u32]);
        header.extend(starts.iter().flat_map(|word| word.to_le_bytes()));
        let words = self.symbols.iter().flatten().chain(&self.types);
        (header, words.flat_map(|word| word.to_le_bytes()).chain(self.strings.iter().copied()).collect())
    }

    fn bytes(&self) -> Vec<u8> {
        let (header, body) = self.parts();
        [header, body].concat()
    }

    fn read(&self) -> DebugTypes {
        of(self.bytes())
    }
}

/// An archive of dictionaries with names.
fn archive(dicts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut entries, mut names, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (name, dict) in dicts {
        entries.extend([names.len() as u64, bodies.len() as u64]);
        names.extend(name.bytes().chain([0]));
        bodies.extend((dict.len() as u64).to_le_bytes().into_iter().chain(dict.iter().copied()));
    }
    let start = 40 + 8 * entries.len() as u64;
    let header = [0x8b47_f2a4_d762_3eeb, 2, dicts.len() as u64, start + bodies.len() as u64, start];
    let words = header.iter().chain(&entries).flat_map(|word| word.to_le_bytes());
    words.chain(bodies).chain(names).collect()
}

/// A table of symbols: names, types (1 object, 2 function), sections and addresses; and its
/// strings.
fn table(symbols: &[(&str, u8, u16, u64)]) -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut strings) = (vec![0; 24], vec![0]);
    for (name, kind, section, address) in symbols {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([16 | kind, 0]);
        table.extend(section.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend([0; 8]);
        strings.extend(name.bytes().chain([0]));
    }
    (table, strings)
}

/// The types of a section beside a table of symbols, which is that of the dynamic linker, or the
/// other.
fn with_symbols(section: Vec<u8>, symbols: &str, table: &(Vec<u8>, Vec<u8>)) -> Result<DebugTypes, Error> {
    DebugTypes::of_ctf(&mut |name: &str| {
        Ok::<_, Error>(match name {
            ".ctf" => section.clone(),
            ".dynsym" | ".symtab" if name == symbols => table.0.clone(),
            ".dynstr" if symbols == ".dynsym" => table.1.clone(),
            ".strtab" if symbols == ".symtab" => table.1.clone(),
            _ => Vec::new(),
        })
    })
}

fn of(section: Vec<u8>) -> DebugTypes {
    with_symbols(section, "", &Default::default()).unwrap()
}

fn function(text: &str) -> Query {
    Query::Function { address: 0, name: text.into() }
}

fn ask(from: &DebugTypes, kind: NameKind, text: &str) -> Option<String> {
    from.answer(&name(kind, text)).unwrap().found?;
    let given = Given::of(from, &name(kind, text));
    Some(given.named(given.ty()))
}

#[test]
fn every_kind_of_type_is_read() {
    let mut made = Made::new();
    let int = made.int("int", 4, 1);
    let unsigned = made.int("unsigned int", 4, 0);
    let char = made.int("char", 1, 3);
    let bool = made.int("_Bool", 1, 4);
    let void = made.int("void", 0, 1);
    let double = made.add(kind::FLOAT, "double", 0, 8, &[2 << 24 | 64]);
    let complex = made.add(kind::FLOAT, "complex float", 0, 8, &[3 << 24 | 64]);
    let constant = made.add(kind::CONST, "", 0, char, &[]);
    let text = made.add(kind::POINTER, "", 0, constant, &[]);
    let nothing = made.add(kind::TYPEDEF, "nothing", 0, void, &[]);
    let to_nothing = made.add(kind::POINTER, "", 0, nothing, &[]);
    let volatile = made.add(kind::VOLATILE, "", 0, int, &[]);
    let restrict = made.add(kind::RESTRICT, "", 0, text, &[]);
    let array = made.add(kind::ARRAY, "", 0, 0, &[int, unsigned, 5]);
    // Two parameters and any others, in an even number of words.
    let printer = made.add(kind::FUNCTION, "", 3, int, &[text, double, 0, 0]);
    let printer = made.add(kind::POINTER, "", 0, printer, &[]);
    let [closed, broken] = [made.string("CLOSED"), made.string("BROKEN")];
    let state = made.add(kind::ENUM, "state", 2, 4, &[closed, 0, broken, -1i32 as u32]);
    let three_bits = made.add(kind::SLICE, "", 0, 1, &[unsigned, 3 << 16]);
    let five_bits = made.add(kind::SLICE, "", 0, 1, &[state, 5 << 16 | 3]);
    let union = made.sou(kind::UNION, "value", 8, &[("i", 0, int), ("d", 0, double)]);
    let forward = made.add(kind::FORWARD, "later", 0, kind::STRUCT, &[]);
    let later = made.add(kind::POINTER, "", 0, forward, &[]);
    let hidden = made.add(kind::FORWARD, "hidden", 0, kind::UNION, &[]);
    let hidden = made.add(kind::POINTER, "", 0, hidden, &[]);
    let members = [
        ("name", 0, text),
        ("any", 64, to_nothing),
        ("three", 128, three_bits),
        // The place of the bits in the member is added.
        ("five", 128, five_bits),
        ("v", 160, volatile),
        ("r", 192, restrict),
        ("array", 256, array),
        ("printer", 448, printer),
        ("state", 512, state),
        ("value", 576, union),
        ("later", 640, later),
        ("hidden", 704, hidden),
        ("is", 768, bool),
        ("complex", 832, complex),
    ];
    made.sou(kind::STRUCT, "all", 112, &members);
    made.sou(kind::STRUCT, "later", 4, &[("found", 0, int)]);
    let from = made.read();
    let all = Given::of(&from, &name(NameKind::Struct, "all"));
    let ty = all.ty();
    assert_eq!(all.named(ty), "struct all 112");
    for (member, at, bits, of) in [
        ("name", 0, None, "const char * 8"),
        ("any", 64, None, "nothing * 8"),
        ("three", 128, Some(3), "unsigned int 4"),
        ("five", 131, Some(5), "enum state 4"),
        ("v", 160, None, "volatile int 4"),
        ("r", 192, None, "const char *restrict 8"),
        ("array", 256, None, "int [5] 20"),
        ("printer", 448, None, "int (*)(const char *, double, ...) 8"),
        ("state", 512, None, "enum state 4"),
        ("value", 576, None, "union value 8"),
        ("later", 640, None, "struct later * 8"),
        ("hidden", 704, None, "union hidden * 8"),
        ("is", 768, None, "_Bool 1"),
    ] {
        assert_eq!(all.member(ty, member), (at, bits, of.into()), "{member}");
    }
    let state = all.types.member(ty, "state").unwrap().ty;
    assert_eq!(all.types.enumerator_of(state, "BROKEN"), Some(-1));
    let (later, _) = all.types.pointee(all.types.member(ty, "later").unwrap().ty).unwrap();
    assert_eq!(all.member(later, "found"), (0, None, "int 4".into()));
    assert_eq!(ask(&from, NameKind::Enum, "state").as_deref(), Some("enum state 4"));
    assert_eq!(ask(&from, NameKind::Union, "value").as_deref(), Some("union value 8"));
    assert_eq!(ask(&from, NameKind::Typedef, "nothing").as_deref(), Some("nothing 0"));
    assert_eq!(ask(&from, NameKind::Struct, "value"), None);
    assert_eq!(ask(&from, NameKind::Struct, "hidden"), None);
    let like = from.answer(&Query::Like(NameKind::Struct, "la".into())).unwrap();
    assert_eq!(like.names, ["later"]);
}

#[test]
fn types_and_offsets_of_more_than_32_bits_have_their_long_form() {
    let mut made = Made::new();
    let char = made.int("char", 1, 3);
    // The size is the sentinel, then two words.
    made.add(kind::UNION, "long", 1, u32::MAX, &[0, 12, 0, 0, char]);
    // From 512 MiB on, offsets have two words around the type.
    let far = made.string("far");
    made.add(kind::STRUCT, "large", 1, 1 << 29, &[far, 0, char, 1 << 31]);
    made.add(kind::TYPEDEF, "end", 0, char, &[]);
    let from = made.read();
    assert_eq!(ask(&from, NameKind::Union, "long").as_deref(), Some("union long 12"));
    let large = Given::of(&from, &name(NameKind::Struct, "large"));
    assert_eq!(large.member(large.ty(), "far"), (1 << 31, None, "char 1".into()));
    assert_eq!(ask(&from, NameKind::Typedef, "end").as_deref(), Some("end 1"));
}

#[test]
fn far_types_are_cuts_that_can_be_asked_for() {
    let mut made = Made::new();
    let int = made.int("int", 4, 1);
    // A list of structs, each behind the pointer to the next one.
    for n in 0..300 {
        let next = made.add(kind::POINTER, "", 0, made.count + 4, &[]);
        made.sou(kind::STRUCT, &format!("s{n}"), 16, &[("next", 0, next), ("n", 64, int)]);
    }
    made.add(kind::POINTER, "", 0, int, &[]);
    made.sou(kind::STRUCT, "s300", 4, &[]);
    let from = made.read();
    let near = Given::of(&from, &name(NameKind::Struct, "s0"));
    let [(id, key)] = near.answer.cuts[..] else { panic!("{:?}", near.answer.cuts) };
    let cut = near.types.import(&near.btf, id);
    assert_eq!((near.types.name(cut), near.types.size(cut)), ("struct s200".into(), None));
    let far = Given::of(&from, &Query::Entry(key));
    assert_eq!(far.named(far.ty()), "struct s200 16");
    assert_eq!(far.answer.cuts, []);
}

#[test]
fn symbols_have_types_by_their_place_or_by_names() {
    let table = table(&[
        ("f", 2, 7, 0x1000),
        // Neither what another file defines nor what has no name has a place in the sections.
        ("printf", 2, 0, 0),
        ("x", 1, 9, 0x4010),
        ("", 1, 9, 0x4000),
        ("_END_", 1, 9, 0x4000),
        ("g", 2, 7, 0x1010),
        ("untyped", 1, 9, 0x4020),
        ("y", 1, 9, 0x4030),
    ]);
    let check = |from: &DebugTypes, what: &str| {
        let [x, y] = ["x", "y"].map(|text| Given::of(from, &name(NameKind::Variable, text)));
        assert_eq!((x.named(x.ty()), x.answer.address), ("int 4".into(), Some(0x4010)), "{what}");
        assert_eq!((y.named(y.ty()), y.answer.address), ("long 8".into(), Some(0x4030)), "{what}");
        assert_eq!(ask(from, NameKind::Variable, "untyped"), None, "{what}");
        assert_eq!(Given::of(from, &function("f")).prototype(), ("void (int)".into(), vec!["arg0".into()]));
        assert_eq!(Given::of(from, &function("g")).prototype(), ("long ()".into(), vec![]), "{what}");
        assert_eq!(from.answer(&function("x")).unwrap(), Answer::default(), "{what}");
        assert_eq!(from.answer(&Query::Like(NameKind::Variable, "".into())).unwrap().names, ["x", "y"]);
    };
    let types = || {
        let mut made = Made::new();
        let (int, long) = (made.int("int", 4, 1), made.int("long", 8, 1));
        let f = made.add(kind::FUNCTION, "", 1, 0, &[int, 0]);
        let g = made.add(kind::FUNCTION, "", 0, long, &[]);
        (made, int, long, f, g)
    };
    let (mut made, int, long, f, g) = types();
    made.symbols[..2].clone_from_slice(&[vec![int, 0, long], vec![f, g]]);
    check(&with_symbols(made.bytes(), ".dynsym", &table).unwrap(), "by place");
    made.flags = 2;
    check(&with_symbols(made.bytes(), ".symtab", &table).unwrap(), "of the whole table");
    // In the order of names.
    let (mut made, int, long, f, g) = types();
    let names = |made: &mut Made, all: [&str; 2]| all.map(|text| made.string(text)).to_vec();
    let (objects, functions) = (names(&mut made, ["y", "x"]), names(&mut made, ["g", "f"]));
    made.symbols = [vec![long, int], vec![g, f], objects, functions, vec![]];
    check(&with_symbols(made.bytes(), ".dynsym", &table).unwrap(), "by name");
    // Without its flag, the section of functions has another format.
    made.flags = 8;
    let old = with_symbols(made.bytes(), ".dynsym", &table).unwrap();
    assert_eq!(old.answer(&function("f")).unwrap(), Answer::default());
    // As variables, functions among them; names that the table of symbols has.
    let (mut made, int, long, f, g) = types();
    let mut variables = Vec::new();
    for (text, ty) in [("f", f), ("g", g), ("x", int), ("y", long), ("gone", int)] {
        let at = table.1.windows(text.len() + 2).position(|w| w == [&[0], text.as_bytes(), &[0]].concat());
        let at = at.map_or_else(|| made.string(text), |at| 1 << 31 | (at as u32 + 1));
        variables.extend([at, ty]);
    }
    made.symbols[4] = variables;
    check(&with_symbols(made.bytes(), ".dynsym", &table).unwrap(), "variables");
}

#[test]
fn names_that_units_have_for_different_things_mean_none() {
    let mut parent = Made::new();
    let int = parent.int("int", 4, 1);
    let forward = parent.add(kind::FORWARD, "clash", 0, kind::STRUCT, &[]);
    let pointer = parent.add(kind::POINTER, "", 0, forward, &[]);
    parent.sou(kind::STRUCT, "holder", 8, &[("clash", 0, pointer)]);
    parent.sou(kind::STRUCT, "both", 4, &[("in_parent", 0, int)]);
    let table = table(&[("f", 2, 7, 0x1000), ("x", 1, 9, 0x4010), ("s", 1, 9, 0x4020), ("s", 1, 9, 0x4030)]);
    let child = |member: &str, size: u32| {
        let mut child = Made::new();
        child.parent = child.string(".ctf");
        let clash = child.sou(kind::STRUCT, "clash", size, &[(member, 0, int)]);
        child.sou(kind::STRUCT, "both", 16, &[("in_unit", 0, int)]);
        let own = child.add(kind::FORWARD, "clash", 0, kind::STRUCT, &[]);
        let own = child.add(kind::POINTER, "", 0, own, &[]);
        let of = child.sou(kind::STRUCT, &format!("of_{member}"), 8, &[("own", 0, own)]);
        let f = child.add(kind::FUNCTION, "", 1, of, &[clash, 0]);
        let [name, s] = [child.string("f"), child.string("s")];
        child.symbols = [vec![int], vec![f], vec![s], vec![name], vec![]];
        if member == "a" {
            let x = child.string("x");
            child.symbols[4] = vec![x, clash];
        }
        child.bytes()
    };
    let section = archive(&[("a.c", child("a", 4)), (".ctf", parent.bytes()), ("b.c", child("b", 8))]);
    let from = with_symbols(section, ".dynsym", &table).unwrap();
    let ambiguous = |text: &str| Err(Error::Ambiguous(text.into()));
    assert_eq!(from.answer(&name(NameKind::Struct, "clash")), ambiguous("clash"));
    assert_eq!(from.answer(&function("f")), ambiguous("f"));
    // One type and two addresses.
    assert_eq!(from.answer(&name(NameKind::Variable, "s")), ambiguous("s"));
    assert_eq!(ask(&from, NameKind::Struct, "both").as_deref(), Some("struct both 4"));
    assert_eq!(ask(&from, NameKind::Variable, "x").as_deref(), Some("struct clash 4"));
    let holder = Given::of(&from, &name(NameKind::Struct, "holder"));
    let (clash, _) = holder.types.pointee(holder.types.member(holder.ty(), "clash").unwrap().ty).unwrap();
    assert_eq!(holder.types.member(clash, "a"), None);
    // A unit means its own.
    for (unit, size) in [("of_a", 4), ("of_b", 8)] {
        let of = Given::of(&from, &name(NameKind::Struct, unit));
        let (own, _) = of.types.pointee(of.types.member(of.ty(), "own").unwrap().ty).unwrap();
        assert_eq!(of.named(own), format!("struct clash {size}"));
    }
}

#[test]
fn compressed_types_are_read_within_the_bounds_that_the_header_claims() {
    let mut made = Made::new();
    let char = made.int("char", 1, 3);
    made.add(kind::TYPEDEF, "letter", 0, char, &[]);
    made.flags = LINKED | 1;
    let (header, body) = made.parts();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&body, 6);
    let from = of([header.clone(), packed].concat());
    assert_eq!(ask(&from, NameKind::Typedef, "letter").as_deref(), Some("letter 1"));
    for body in [vec![0; 1 << 20], body[..body.len() - 1].to_vec()] {
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&body, 6);
        let section = [header.clone(), packed].concat();
        assert!(with_symbols(section, "", &Default::default()).is_err());
    }
}

#[test]
fn what_is_no_ctf_of_this_version_is_an_error() {
    let mut made = Made::new();
    let char = made.int("char", 1, 3);
    made.add(kind::TYPEDEF, "letter", 0, char, &[]);
    let whole = made.bytes();
    let why = |bytes: Vec<u8>| match with_symbols(bytes, "", &Default::default()) {
        Ok(_) => "read".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(why(whole.clone()), "read");
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        why(bytes)
    };
    assert!(why(Vec::new()).contains("a short header"));
    assert!(with(0, 0).contains("no header of CTF"));
    assert!(with(2, 3).contains("a version of CTF that is not read (3 in the header, not 4)"));
    // The types begin behind their end.
    assert!(with(4 + 4 * 9 + 1, 1).contains("overlap"));
    assert!(with(4 + 4 * 11, 0xff).contains("ends outside"));
    assert!(with(4 + 4 * 11 + 3, 0xff).contains("larger than the limits"));
    // The kind of the first type.
    assert!(with(52 + 7, 0xff).contains("an unknown kind"));
    // More parts than there are.
    let mut short = Made::new();
    short.add(kind::ENUM, "short", 1000, 4, &[]);
    assert!(why(short.bytes()).contains("a short type"));
    for end in 0..whole.len() {
        assert_ne!(why(whole[..end].to_vec()), "read", "{end}");
    }
    let archived = archive(&[(".ctf", whole.clone())]);
    assert_eq!(why(archived.clone()), "read");
    for end in 0..archived.len() {
        assert_ne!(why(archived[..end].to_vec()), "read", "{end}");
    }
    made.parent = made.string("elsewhere");
    assert!(why(made.bytes()).contains("the parent of a dictionary is not there"));
}

#[test]
fn types_of_themselves_and_references_to_nothing_are_errors() {
    let mut made = Made::new();
    for (text, kind) in [("a", kind::TYPEDEF), ("b", kind::CONST), ("c", kind::SLICE), ("d", kind::TYPEDEF)] {
        let (own, nowhere) = (made.count + 1, 77);
        let target = if text == "d" { nowhere } else { own };
        let parts = if kind == kind::SLICE { vec![own, 0] } else { vec![] };
        made.add(kind, text, 0, target, &parts);
    }
    let array = made.add(kind::ARRAY, "", 0, 0, &[5, 5, 2]);
    assert_eq!(array, 5);
    let mut functions = Vec::new();
    for ty in 1..=5 {
        let f = made.add(kind::FUNCTION, "", 1, 0, &[ty, 0]);
        let text = made.string(&format!("f{ty}"));
        functions.extend([text, f]);
    }
    made.symbols[4] = functions;
    let from = made.read();
    for ty in [1, 2, 3, 4] {
        assert!(matches!(from.answer(&function(&format!("f{ty}"))), Err(Error::Malformed(_))), "{ty}");
    }
    // An array of itself is a pointer as a parameter.
    assert_eq!(from.answer(&function("f5")).unwrap().places, [Place::Argument(0)]);
}

/// Compiles with CTF. `None`: there is no compiler that makes it, or no linker.
fn compiled(dir: &Dir, words: &[&str]) -> Option<DebugTypes> {
    let words = [&["-gctf", "-O2", "-fno-ipa-sra", "-o", "ctf"], words].concat();
    let built = Command::new("cc").args(words).current_dir(&dir.0).output();
    if !built.is_ok_and(|o| o.status.success()) || section(dir, ".ctf").is_empty() {
        testing::skipped!("no compiler with -gctf");
        return None;
    }
    Some(DebugTypes::of_ctf(&mut |name: &str| Ok::<_, Error>(section(dir, name))).unwrap())
}

/// A section of the program, by its header: `objcopy` writes no tables of symbols.
fn section(dir: &Dir, name: &str) -> Vec<u8> {
    assert!(CTF_SECTIONS.contains(&name));
    let output = Command::new("readelf").args(["-SW", "ctf"]).current_dir(&dir.0).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let Some((_, rest)) = text.split_once(&format!("] {name} ")) else { return Vec::new() };
    let mut words = rest.split_whitespace().skip(2).map(|word| usize::from_str_radix(word, 16).unwrap());
    let (start, size) = (words.next().unwrap(), words.next().unwrap());
    std::fs::read(dir.0.join("ctf")).unwrap()[start..start + size].to_vec()
}

#[test]
fn programs_of_the_compiler_have_their_types_parameters_and_variables() {
    let dir = Dir::new("ctf");
    dir.write("p.c", C);
    dir.write("o.c", OTHER);
    let all = "-Wl,--ctf-variables";
    for words in [&["-rdynamic"][..], &["-no-pie", "-rdynamic"], &[all], &["-static", all]] {
        let Some(from) = compiled(&dir, &[&["p.c", "o.c"], words].concat()) else { return };
        check_c(&dir, "ctf", &from);
    }
    // Without an option, the linker leaves out what has no dynamic symbol.
    let Some(from) = compiled(&dir, &["p.c", "o.c"]) else { return };
    assert_eq!(ask(&from, NameKind::Typedef, "conn_t").as_deref(), Some("conn_t 88"));
    for query in [function("take"), name(NameKind::Variable, "counter")] {
        assert_eq!(from.answer(&query).unwrap(), Answer::default());
    }
    // An object before it is linked.
    let Some(from) = compiled(&dir, &["-c", "p.c"]) else { return };
    assert_eq!(Given::of(&from, &function("nothing")).prototype(), ("void ()".into(), vec![]));
}

#[test]
fn units_with_different_types_of_one_name_have_their_own() {
    let dir = Dir::new("ctf-units");
    // So many that the linker compresses them.
    let members: String = (0..500).map(|n| format!("int member_with_a_long_name_{n}; ")).collect();
    let first = "struct clash { int a; } first; int read_first(struct clash *c) { return c->a; }";
    dir.write("a.c", &format!("struct large {{ {members} }} large; {first}"));
    dir.write(
        "b.c",
        "struct clash { char b; long c; } second; long read_second(int a, struct clash c, int b) { return c.c + a + b; }",
    );
    let Some(from) = compiled(&dir, &["-shared", "-fPIC", "a.c", "b.c"]) else { return };
    assert_eq!(section(&dir, ".ctf").get(..8), Some(&[0xeb, 0x3e, 0x62, 0xd7, 0xa4, 0xf2, 0x47, 0x8b][..]));
    let large = Given::of(&from, &name(NameKind::Variable, "large"));
    assert_eq!(large.member(large.ty(), "member_with_a_long_name_499"), (499 * 32, None, "int 4".into()));
    assert_eq!(large.answer.address, Some(dir.address("ctf", "large")));
    let clash = |variable: &str| Given::of(&from, &name(NameKind::Variable, variable));
    let (first, second) = (clash("first"), clash("second"));
    assert_eq!(first.member(first.ty(), "a"), (0, None, "int 4".into()));
    assert_eq!(second.member(second.ty(), "c"), (64, None, "long 8".into()));
    // The linker has put the function beside the types of all units, where it is not known which
    // one this is.
    let (prototype, places) = Given::of(&from, &function("read_second")).prototype();
    assert_eq!(prototype, "long (int, struct clash, int)");
    assert_eq!(places, ["arg0", "its members are", "it is behind"]);
    let unclear = Err(Error::Ambiguous("clash".into()));
    assert_eq!(from.answer(&name(NameKind::Struct, "clash")), unclear);
}

#[test]
fn corrupt_ctf_gives_an_error_or_an_answer() {
    let mut made = Made::new();
    let int = made.int("int", 4, 1);
    let slice = made.add(kind::SLICE, "", 0, 1, &[int, 5 << 16]);
    let forward = made.add(kind::FORWARD, "s", 0, kind::STRUCT, &[]);
    let pointer = made.add(kind::POINTER, "", 0, forward, &[]);
    let array = made.add(kind::ARRAY, "", 0, 0, &[int, int, 2]);
    let s = made.sou(kind::STRUCT, "s", 16, &[("a", 0, slice), ("p", 64, pointer), ("x", 32, array)]);
    let f = made.add(kind::FUNCTION, "", 2, s, &[s, pointer]);
    let [name_of_f, x] = [made.string("f"), made.string("x")];
    made.symbols[4] = vec![name_of_f, f, x, s];
    let table = table(&[("f", 2, 7, 0x1000), ("x", 1, 9, 0x4010)]);
    let mut child = Made::new();
    child.parent = child.string(".ctf");
    child.sou(kind::STRUCT, "t", 8, &[("p", 0, pointer)]);
    let sections = [made.bytes(), archive(&[(".ctf", made.bytes()), ("t.c", child.bytes())])];
    let (mut seed, mut answers) = (testing::rng::Rng::new(13), 0);
    for round in 0..20_000 {
        let mut section = sections[round % 2].clone();
        damage(&mut section, &mut seed);
        let Ok(from) = with_symbols(section, ".dynsym", &table) else { continue };
        from.memory();
        let names = [(NameKind::Struct, "s"), (NameKind::Struct, "t"), (NameKind::Variable, "x")];
        let queries = names.map(|(kind, text)| name(kind, text));
        for query in queries.iter().chain(&[function("f"), Query::Entry(round as u64)]) {
            if from.answer(query).is_ok_and(|answer| answer.found.is_some()) {
                let given = Given::of(&from, query);
                given.types.size(given.ty());
                answers += 1;
            }
        }
    }
    assert!(answers > 5000, "{answers}");
}
