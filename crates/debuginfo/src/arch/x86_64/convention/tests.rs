//! Where compilers have the parameters of functions.

use crate::tests::{Dir, Given, name};
use crate::{DebugTypes, Error, NameKind, Query, SECTIONS};

/// The places of the parameters of functions, by their symbols.
fn places(dir: &Dir, file: &str, symbols: &[&str]) -> Vec<Vec<String>> {
    let from = dir.read(file, None);
    let of = |symbol: &&str| {
        let query = Query::Function { address: dir.address(file, symbol), name: (*symbol).into() };
        Given::of(&from, &query).prototype().1
    };
    symbols.iter().map(of).collect()
}

const PACKED: &str = r#"
struct __attribute__((packed)) number { char c; long l; };
struct __attribute__((packed)) pointer { char c; void *p; };
struct __attribute__((packed)) array { short s; int a[3]; };
struct __attribute__((packed)) aligned { long l; char c; };
struct bits { unsigned a : 3, b : 13, c : 16; short s; };
int number(struct number a, int k) { return a.c + k; }
int pointer(struct pointer a, int k) { return a.c + k; }
int array(struct array a, int k) { return a.s + k; }
int aligned(struct aligned a, int k) { return a.c + k; }
int bits(struct bits a, int k) { return a.s + a.c + k; }
int main(void) { return 0; }
"#;

#[test]
fn a_packed_struct_with_a_number_or_pointer_that_is_not_aligned_is_on_the_stack() {
    let dir = Dir::new("packed");
    dir.write("p.c", PACKED);
    let symbols = ["number", "pointer", "array", "aligned", "bits"];
    for format in ["-gdwarf-5", "-gdwarf-3", "-gdwarf-2"] {
        if !dir.run(&["cc", format, "-o", "p", "p.c"]) {
            testing::skipped!("no C compiler");
            return;
        }
        let all = places(&dir, "p", &symbols);
        for on_stack in &all[..3] {
            assert_eq!(*on_stack, ["it is passed", "arg0"], "{format}");
        }
        assert_eq!(all[3], ["an object of", "arg2"], "{format}");
        assert_eq!(all[4], ["an object of", "arg1"], "{format}");
    }
}

const VIRTUAL: &str = r#"
struct A { virtual ~A() {} int a; };
struct B : virtual A { int b; };
struct C { int c; };
struct D : C, B { int d; };
int take(D &d, int (D::*m)(), int k) { return d.d + k + (m ? 1 : 0); }
int main() { D d; return take(d, nullptr, 0); }
"#;

#[test]
fn an_offset_of_dwarf_2_is_that_of_the_member_and_only_that_of_a_virtual_base_is_not_known() {
    let dir = Dir::new("dwarf2");
    dir.write("p.cc", VIRTUAL);
    dir.write("p.c", crate::tests::C);
    dir.write("o.c", crate::tests::OTHER);
    if !dir.run(&["cc", "-gdwarf-2", "-gstrict-dwarf", "-fno-inline", "-o", "p", "p.c", "o.c"]) {
        testing::skipped!("no C compiler");
        return;
    }
    crate::tests::check_c(&dir, "p", &dir.read("p", None));
    for version in ["-gdwarf-2", "-gdwarf-5"] {
        assert!(dir.run(&["c++", version, "-o", "q", "p.cc"]));
        let object = Given::of(&dir.read("q", None), &name(NameKind::Struct, "D"));
        let ty = object.ty();
        assert_eq!(object.member(ty, "c").0, 96, "{version}");
        assert_eq!(object.member(ty, "d").0, 128, "{version}");
        assert_eq!(object.member(ty, "b").0, 64, "{version}");
        assert!(object.types.member(ty, "a").is_none(), "{version}");
    }
}

#[test]
fn types_in_a_section_of_their_own_are_read() {
    let dir = Dir::new("typesection");
    dir.write("p.c", crate::tests::C);
    dir.write("o.c", crate::tests::OTHER);
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let words = ["cc", version, "-fdebug-types-section", "-fno-inline", "-o", "p", "p.c", "o.c"];
        if !dir.run(&words) {
            testing::skipped!("no C compiler");
            return;
        }
        assert_eq!(dir.section("p", ".debug_types").is_empty(), version == "-gdwarf-5");
        crate::tests::check_c(&dir, "p", &dir.read("p", None));
    }
}

#[test]
fn a_pointer_to_a_function_of_a_class_has_two_registers() {
    let dir = Dir::new("member");
    dir.write("p.cc", VIRTUAL);
    if !dir.run(&["c++", "-g", "-o", "p", "p.cc"]) {
        testing::skipped!("no C compiler");
        return;
    }
    assert_eq!(places(&dir, "p", &["_Z4takeR1DMS_FivEi"]), [["arg0", "an object of", "arg3"]]);
}

const LOCAL: &str = r#"
volatile int sink;
int main() {
    int x = 3;
    struct Local { int q = 4; __attribute__((noinline)) int own(int k) { sink = k; return q; } } local;
    auto lambda = [&](int k) __attribute__((noinline)) { sink = k + x; return k; };
    return local.own(5) + lambda(6);
}
"#;

#[test]
fn functions_that_are_in_functions_have_their_parameters() {
    let dir = Dir::new("local");
    dir.write("p.cc", LOCAL);
    for level in ["-O0", "-O1"] {
        if !dir.run(&["c++", "-g", level, "-fno-ipa-sra", "-o", "p", "p.cc"]) {
            testing::skipped!("no C compiler");
            return;
        }
        let all = places(&dir, "p", &["_ZZ4mainEN5Local3ownEi", "_ZZ4mainENKUliE_clEi"]);
        assert_eq!(all, [["arg0", "arg1"], ["arg0", "arg1"]], "{level}");
    }
}

const ALONE: &str = r#"
#[inline(never)] fn own(v: u32, k: u32) -> u32 { std::hint::black_box(&v); std::hint::black_box(k) }
fn main() { own(1, 101); }
"#;

#[test]
fn a_function_with_a_convention_of_its_own_has_types_and_no_places() {
    let dir = Dir::new("nocall");
    dir.write("p.rs", ALONE);
    if !dir.run(&["rustc", "-g", "-O", "-C", "symbol-mangling-version=v0", "-o", "p", "p.rs"]) {
        testing::skipped!("no compiler of Rust");
        return;
    }
    let symbols = dir.symbols("p");
    let Some((symbol, address)) = symbols.iter().find(|(name, _)| name.ends_with("_1p3own")) else {
        testing::skipped!("the compiler has left out the function");
        return;
    };
    let query = Query::Function { address: *address, name: symbol.clone() };
    let (prototype, places) = Given::of(&dir.read("p", None), &query).prototype();
    assert_eq!(prototype, "u32 (u32, u32)");
    // Other versions of the compiler may keep the usual convention.
    assert!(places == ["the compiler has"; 2] || places == ["arg0", "arg1"], "{places:?}");
}

/// What a function takes before a number, and where it and the number are. Checked with what the
/// compiler makes.
const RUST: [(&str, &str, &str); 40] = [
    ("u16", "arg0", "arg1"),
    ("&'static str", "an object of", "arg2"),
    ("&'static [u8]", "an object of", "arg2"),
    ("Box<dyn Fn()>", "an object of", "arg2"),
    ("Option<&'static str>", "an object of", "arg2"),
    ("Option<&'static u32>", "an object of", "arg1"),
    ("Option<Box<u32>>", "an object of", "arg1"),
    ("Option<u64>", "an object of", "arg2"),
    ("Option<u32>", "an object of", "arg2"),
    ("Option<u8>", "an object of", "arg2"),
    ("Option<bool>", "an object of", "arg1"),
    ("Option<char>", "an object of", "arg1"),
    ("Option<std::num::NonZeroU32>", "an object of", "arg1"),
    ("std::cmp::Ordering", "arg0", "arg1"),
    ("(u8, u32)", "an object of", "arg2"),
    ("(u8, u8)", "an object of", "arg2"),
    ("(u8, u8, u8)", "an object of", "arg1"),
    ("(u8, (u8, u8))", "an object of", "arg1"),
    ("(u64, u8, u8)", "at arg0", "arg1"),
    ("(u64, u64, u64)", "at arg0", "arg1"),
    ("(u32, f32)", "an object of", "arg1"),
    ("(f64, f64)", "an object of", "arg0"),
    ("()", "it has no", "arg0"),
    ("[u16; 3]", "an object of", "arg1"),
    ("[u64; 2]", "arg0", "arg1"),
    ("[f32; 2]", "an object of", "arg1"),
    ("String", "at arg0", "arg1"),
    ("Result<u32, u8>", "an object of", "arg1"),
    ("Result<u64, u64>", "an object of", "arg2"),
    ("std::rc::Rc<str>", "an object of", "arg2"),
    ("u128", "an object of", "arg2"),
    ("Plain", "an object of", "arg1"),
    ("Large", "an object of", "arg1"),
    ("Tight", "an object of", "arg1"),
    ("Data", "an object of", "arg1"),
    // What debug information does not tell: with `repr(C)`, the first one would be in one register.
    ("(u32, Plain)", "the debug information", "it is behind"),
    ("(u32, LikeC)", "the debug information", "it is behind"),
    ("Option<LikeC>", "the debug information", "it is behind"),
    ("Real", "the debug information", "it is behind"),
    ("(u64, u128)", "the debug information", "it is behind"),
];

/// What a function returns, and where its parameter is.
const RESULTS: [(&str, &str); 12] = [
    ("()", "arg0"),
    ("&'static str", "arg0"),
    ("(u64, u64)", "arg0"),
    ("Option<u32>", "arg0"),
    ("Result<u32, u8>", "arg0"),
    ("u128", "arg0"),
    ("String", "arg1"),
    ("[u8; 20]", "arg1"),
    ("(u64, u64, u64)", "arg1"),
    ("Result<u64, String>", "arg1"),
    ("(u64, u8, u8)", "the debug information"),
    ("[u64; 2]", "the debug information"),
];

const RUST_TYPES: &str = r#"
#![allow(dead_code, improper_ctypes_definitions)]
pub struct Plain(u32);
#[repr(C)] pub struct LikeC(u32);
#[repr(align(8))] pub struct Large(u32, u32);
#[repr(packed)] pub struct Tight(u8, u32);
pub struct Real(f64);
pub enum Data { None, One(u32), Two(u8, u16) }
pub struct Two { x: u32, y: u32 }
pub struct Numbers { x: u64, y: u64 }
#[no_mangle] pub extern "C" fn plain_two(v: Two, k: u32) -> u32 { v.x + k }
#[no_mangle] pub extern "C" fn plain_numbers(v: Numbers, k: u32) -> u64 { v.x + k as u64 }
pub fn captures(y: u64) -> impl Fn(u64, u64) -> u64 { move |a, b| a + b + y }
#[inline(never)] pub fn run<F: Fn(u64, u64) -> u64>(f: &F, k: u64) -> u64 { f(k, 1) }
"#;

#[test]
fn parameters_of_rust_functions_are_where_rust_passes_them_or_refused() {
    let dir = Dir::new("rustabi");
    let mut source = RUST_TYPES.to_owned();
    let mut expected = Vec::new();
    for (n, (ty, own, next)) in RUST.iter().enumerate() {
        source += &format!("#[inline(never)] pub fn take{n}(_v: {ty}, k: u32) -> u32 {{ k }}\n");
        expected.push((format!("take{n}"), vec![own.to_string(), next.to_string()], *ty));
    }
    for (n, (ty, own)) in RESULTS.iter().enumerate() {
        source += &format!("#[inline(never)] pub fn give{n}(k: u32) -> {ty} {{ todo!(\"{{k}}\") }}\n");
        expected.push((format!("give{n}"), vec![own.to_string()], *ty));
    }
    source +=
        "#[inline(never)] pub fn far(a: u8, b: u8, c: u8, d: u8, e: u8, s: &str, k: u32, o: String) {}\n";
    source += "pub fn main() { println!(\"{}\", run(&captures(1), 2)); }\n";
    dir.write("p.rs", &source);
    let words =
        ["rustc", "-g", "-C", "link-dead-code", "-C", "symbol-mangling-version=v0", "-o", "p", "p.rs"];
    if !dir.run(&words) {
        testing::skipped!("no compiler of Rust");
        return;
    }
    let symbols = dir.symbols("p");
    let from = dir.read("p", None);
    let of = |part: &str| {
        let found =
            symbols.iter().find(|(name, _)| name.starts_with("_R") && format!("{name} ").contains(part));
        let (name, address) = found.unwrap_or_else(|| panic!("no {part}"));
        Given::of(&from, &Query::Function { address: *address, name: name.clone() }).prototype().1
    };
    for (function, places, ty) in &expected {
        assert_eq!(of(&format!("_1p{}{function} ", function.len())), *places, "{ty}");
    }
    // One of two numbers has the last register, and the other one is on the stack.
    let far = of("_1p3far ");
    assert_eq!(far[5..], ["an object of", "arg7", "at arg8"]);
    // What a closure has captured is no parameter; a function that takes one is like any other.
    assert_eq!(of("_1p8captures0"), ["it is behind", "it is behind"]);
    assert_eq!(of("_1p3run"), ["arg0", "arg1"]);
    // Functions with plain names may have the convention of C.
    let all = places(&dir, "p", &["plain_two", "plain_numbers"]);
    assert_eq!(all[0], ["the debug information", "it is behind"]);
    assert_eq!(all[1], ["an object of", "arg2"]);
}

#[test]
fn corrupt_debug_information_of_rust_gives_an_error_or_an_answer() {
    let dir = Dir::new("rustcorrupt");
    let functions = [
        "#[no_mangle] pub fn first(a: Option<Data>, b: Result<u32, Two>, c: &str, d: u32) -> Option<Data> { todo!() }",
        "#[no_mangle] pub fn second(a: Real, b: [Two; 3], c: Option<&str>) -> Numbers { todo!() }",
    ];
    dir.write("p.rs", &(RUST_TYPES.to_owned() + &functions.join("\n")));
    if !dir.run(&["rustc", "-g", "--crate-type=lib", "--emit=obj", "-o", "p.o", "p.rs"]) {
        testing::skipped!("no compiler of Rust");
        return;
    }
    assert!(dir.run(&["cc", "-shared", "-nostdlib", "-Wl,-z,undefs", "-o", "p", "p.o"]));
    let sections: Vec<(&str, Vec<u8>)> =
        SECTIONS.iter().map(|name| (*name, dir.section("p", name))).collect();
    let functions = ["first", "second"].map(|name| (name, dir.address("p", name)));
    let mut seed = testing::rng::Rng::new(12);
    let (mut answers, mut places) = (0, 0);
    for round in 0..2000 {
        let mut load = |name: &str| {
            let found = sections.iter().find(|(section, _)| *section == name);
            let mut bytes = found.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
            // Most of such a file is names and numbers: one byte of them changed still gives
            // answers.
            if round > 0 && name == ".debug_info" && !bytes.is_empty() {
                let at = seed.below(bytes.len());
                bytes[at] = seed.below(256) as u8;
            }
            Ok::<_, Error>(bytes)
        };
        let Ok(from) = DebugTypes::read(&mut load, None) else { continue };
        for (name, address) in functions {
            let answer = from.answer(&Query::Function { address, name: name.into() });
            answers += usize::from(answer.is_ok());
            places += answer.map_or(0, |answer| answer.places.len());
        }
    }
    assert!(answers > 1000 && places > 1000, "{answers} {places}");
}
