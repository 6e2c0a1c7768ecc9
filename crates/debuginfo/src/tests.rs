//! Programs of the tests, compiled with debug information, read and asked.

use std::process::Command;
use std::sync::Arc;

use types::btf::Btf;
use types::{Kind, TypeId, Types};

use super::*;

pub(crate) const C: &str = r#"
enum state { CLOSED, OPEN = 5, BROKEN = -1 };
union value { int i; float f; char bytes[8]; };
struct hidden;
struct conn {
    const char *name;
    struct conn *next;
    unsigned flag : 3, mode : 5;
    enum state state;
    union value value;
    short grid[3][5];
    struct { int inner; };
    int (*callback)(struct conn *, long);
    struct hidden *hidden;
};
typedef struct conn conn_t;
struct pair { long a, b; };
struct big { long words[9]; };
int counter = 7;
struct conn first;
int take(conn_t *c, double d, unsigned char b, float f, struct pair p, short s, long l, struct big big, int i)
{
    return c->flag + (int)d + b + (int)f + (int)p.a + s + (int)l + (int)big.words[0] + i;
}
struct letters { char text[12]; int n; };
struct vector { float x[2]; long n; };
int small(struct letters l, struct vector v, int n) { return l.n + (int)v.n + n; }
struct fields { int id; unsigned kind : 8, flags : 8; double v; };
int bits(struct fields f, int n) { return f.id + f.flags + (int)f.v + n; }
struct real { long double r; };
struct __attribute__((packed)) tight { char c; double d; };
int unusual(struct real r, struct tight t, int n) { return (int)r.r + t.c + n; }
int far(int a, int b, int c, int d, int e, int f, int g, long double w, int h)
{
    return a + b + c + d + e + f + g + (int)w + h;
}
struct big give(long n) { struct big b = { { n } }; return b; }
void nothing(void) {}
int variadic(const char *f, ...) { return *f; }
int main(void) { return take(&first, 1, 2, 3, (struct pair){ 1, 2 }, 4, 5, give(6), 7) + variadic("x"); }
"#;

pub(crate) const OTHER: &str =
    "struct hidden { int secret; char end; }; struct hidden the_hidden = { 5, 1 };\n";

const CPP: &str = r#"
namespace shop {
struct base { int id; virtual ~base() {} };
class item : public base { public: long price; static int all; struct part { char tag; } part; };
int item::all = 3;
long cost(item &i, const char *name) { return i.price + name[0]; }
struct owner { int *p; owner(int *from) : p(from) {} ~owner() { p = 0; } };
struct holder { long n; owner kept; };
struct plain { static int all; double x, y; plain() = default; ~plain() = default; int first() { return x; } };
long keep(holder h, plain p, int n) { return h.n + p.first() + n; }
owner make(int n) { return owner(&item::all + n); }
}
int main() { shop::item i; i.price = 5; return (int)shop::cost(i, "x"); }
"#;

const RUST: &str = r#"
pub struct Point { x: u32, y: i64 }
pub enum Shape { Empty, Dot(Point), Line { from: Point, to: Point } }
#[inline(never)]
pub fn area(shape: &Shape, scale: u16) -> i64 {
    match shape { Shape::Empty => 0, Shape::Dot(p) => p.y + scale as i64, Shape::Line { from, to } => to.y - from.y + to.x as i64 }
}
fn main() { println!("{}", area(&Shape::Line { from: Point { x: 1, y: 2 }, to: Point { x: 3, y: 4 } }, 5)
    + area(&Shape::Dot(Point { x: 1, y: 1 }), 1) + area(&Shape::Empty, 1)); }
"#;

/// A directory that is removed at the end.
pub(crate) struct Dir(pub(crate) testing::dir::Dir);

impl Dir {
    pub(crate) fn new(test: &str) -> Dir {
        Dir(testing::dir::Dir::new(&format!("debuginfo-{test}")))
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Runs a command in the directory. False if there is no such program.
    pub(crate) fn run(&self, words: &[&str]) -> bool {
        let Ok(output) = Command::new(words[0]).args(&words[1..]).current_dir(&self.0).output() else {
            return false;
        };
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        true
    }

    pub(crate) fn section(&self, file: &str, name: &str) -> Vec<u8> {
        let out = self.0.join("section");
        let _ = std::fs::remove_file(&out);
        let dump = format!("{name}=section");
        let _ = Command::new("objcopy")
            .args(["--dump-section", &dump, file, "copy"])
            .current_dir(&self.0)
            .output();
        std::fs::read(out).unwrap_or_default()
    }

    pub(crate) fn read(&self, file: &str, supplement: Option<&str>) -> DebugTypes {
        let mut own = |name: &str| Ok::<_, Error>(self.section(file, name));
        match supplement {
            Some(other) => {
                DebugTypes::read(&mut own, Some(&mut |name: &str| Ok(self.section(other, name)))).unwrap()
            }
            None => DebugTypes::read(&mut own, None).unwrap(),
        }
    }

    /// Symbols and their addresses.
    pub(crate) fn symbols(&self, file: &str) -> Vec<(String, u64)> {
        let output = Command::new("nm").arg(file).current_dir(&self.0).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let symbol = |line: &str| {
            let address = u64::from_str_radix(line.split(' ').next()?, 16).ok()?;
            Some((line.split(' ').next_back()?.to_owned(), address))
        };
        text.lines().filter_map(symbol).collect()
    }

    pub(crate) fn address(&self, file: &str, symbol: &str) -> u64 {
        self.symbols(file).into_iter().find(|(name, _)| name == symbol).unwrap().1
    }
}

/// An answer as types.
pub(crate) struct Given {
    pub(crate) types: Types,
    pub(crate) btf: Arc<Btf>,
    pub(crate) answer: Answer,
}

impl Given {
    pub(crate) fn of(from: &DebugTypes, query: &Query) -> Given {
        let answer = from.answer(query).unwrap();
        let btf = Arc::new(Btf::parse(answer.btf.clone(), None).unwrap());
        Given { types: Types::new(), btf, answer }
    }

    pub(crate) fn ty(&self) -> TypeId {
        self.types.import(&self.btf, self.answer.found.unwrap())
    }

    /// The name of a type and its size.
    pub(crate) fn named(&self, ty: TypeId) -> String {
        format!("{} {}", self.types.name(ty), self.types.size(ty).unwrap_or(0))
    }

    pub(crate) fn member(&self, of: TypeId, name: &str) -> (u64, Option<u8>, String) {
        let found = self.types.member(of, name).unwrap_or_else(|| panic!("no {name}"));
        (found.bit_offset, found.bits, self.named(found.ty))
    }

    /// Prototype as text, and places.
    pub(crate) fn prototype(&self) -> (String, Vec<String>) {
        let Kind::Function { ret, params, variadic } = self.types.kind(self.ty()) else {
            panic!("no function")
        };
        let mut list: Vec<String> = params.iter().map(|p| self.types.name(*p)).collect();
        list.extend(variadic.then(|| "...".to_string()));
        let place = |place: &Place| match place {
            Place::Argument(n) => format!("arg{n}"),
            Place::Object(n) => format!("at arg{n}"),
            Place::Parts(parts) => {
                let part = |part: &ObjectPart| format!("{}+{}=arg{}", part.offset, part.size, part.argument);
                parts.iter().map(part).collect::<Vec<_>>().join(" ")
            }
            Place::Unreadable(why) => why.split(' ').take(3).collect::<Vec<_>>().join(" "),
        };
        let places = self.answer.places.iter().map(place).collect();
        (format!("{} ({})", self.types.name(ret), list.join(", ")), places)
    }
}

pub(crate) fn name(kind: NameKind, text: &str) -> Query {
    Query::Name(kind, text.into())
}

/// Changes some bytes of a section, or cuts it.
pub(crate) fn damage(section: &mut Vec<u8>, seed: &mut testing::rng::Rng) {
    for _ in 0..seed.below(4) + 1 {
        let at = seed.below(section.len());
        match seed.below(8) {
            0 => section.truncate(at.max(1)),
            1 => section[at] = 0xff,
            _ => section[at] = seed.below(256) as u8,
        }
    }
}

pub(crate) fn check_c(dir: &Dir, file: &str, from: &DebugTypes) {
    let conn = Given::of(from, &name(NameKind::Struct, "conn"));
    let ty = conn.ty();
    assert_eq!(conn.named(ty), "struct conn 88");
    assert_eq!(conn.member(ty, "next"), (64, None, "struct conn * 8".into()));
    assert_eq!(conn.member(ty, "name").2, "const char * 8");
    assert_eq!(conn.member(ty, "mode"), (131, Some(5), "unsigned int 4".into()));
    assert_eq!(conn.member(ty, "state"), (160, None, "enum state 4".into()));
    // GCC without the correction of its bug 114186 writes the dimensions in the opposite order.
    let grid = conn.member(ty, "grid").2;
    assert!(grid == "short [3][5] 30" || grid == "short [5][3] 30" && file == "ctf", "{grid}");
    assert_eq!(conn.member(ty, "inner").2, "int 4");
    assert_eq!(conn.member(ty, "callback").2, "int (*)(struct conn *, long) 8");
    let state = conn.types.member(ty, "state").unwrap().ty;
    assert_eq!(conn.types.enumerator_of(state, "BROKEN"), Some(-1));
    assert_eq!(conn.types.enumerator_of(state, "OPEN"), Some(5));
    let value = conn.types.member(ty, "value").unwrap().ty;
    assert_eq!(conn.member(value, "bytes"), (0, None, "char [8] 8".into()));
    // Declared in one unit and defined in another.
    let hidden = conn.types.member(ty, "hidden").unwrap().ty;
    let (hidden, _) = conn.types.pointee(hidden).unwrap();
    assert_eq!(conn.member(hidden, "end"), (32, None, "char 1".into()));

    let typedef = Given::of(from, &name(NameKind::Typedef, "conn_t"));
    assert_eq!(typedef.named(typedef.ty()), "conn_t 88");
    let variable = Given::of(from, &name(NameKind::Variable, "counter"));
    assert_eq!(variable.named(variable.ty()), "int 4");
    assert_eq!(variable.answer.address, Some(dir.address(file, "counter")));
    for (kind, text) in
        [(NameKind::Union, "conn"), (NameKind::Struct, "nothing"), (NameKind::Variable, "main")]
    {
        assert_eq!(from.answer(&name(kind, text)).unwrap(), Answer::default());
    }

    let function = |text: &str| {
        let query = Query::Function { address: dir.address(file, text), name: text.into() };
        Given::of(from, &query).prototype()
    };
    let (prototype, places) = function("take");
    assert_eq!(
        prototype,
        "int (conn_t *, double, unsigned char, float, struct pair, short, long, struct big, int)"
    );
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    assert_eq!(
        places,
        [
            "arg0",
            "a floating-point number",
            "arg1",
            "a floating-point number",
            "an object of",
            "arg4",
            "arg5",
            "it is passed",
            "arg15"
        ]
    );
    // Arrays are in the registers of their elements.
    assert_eq!(function("small").1, ["an object of", "an object of", "arg3"]);
    // The second word of these fields is a floating-point number, though what their type has would
    // reach it.
    assert_eq!(function("bits").1, ["an object of", "arg1"]);
    assert_eq!(function("unusual").1, ["it is passed", "it is passed", "arg0"]);
    // A long double begins at an even word.
    let far = function("far").1;
    assert_eq!(far[6..], ["arg6", "it is passed", "arg10"]);
    // The address of the result is passed before the parameters.
    assert_eq!(function("give"), ("struct big (long)".into(), vec!["arg1".into()]));
    assert_eq!(function("nothing"), ("void ()".into(), vec![]));
    assert_eq!(function("variadic"), ("int (const char *, ...)".into(), vec!["arg0".into()]));
}

#[test]
fn types_of_c_programs_are_read_in_every_version_and_at_every_level_of_optimization() {
    let dir = Dir::new("c");
    dir.write("p.c", C);
    dir.write("o.c", OTHER);
    for words in [&["-g", "-O0"][..], &["-gdwarf-4", "-O2", "-fno-ipa-sra"], &["-gdwarf-3", "-gstrict-dwarf"]]
    {
        if !dir.run(&[&["cc", "-fno-inline", "-o", "p", "p.c", "o.c"], words].concat()) {
            testing::skipped!("no C compiler");
            return;
        }
        check_c(&dir, "p", &dir.read("p", None));
    }
}

#[test]
fn types_that_dwz_has_moved_to_a_file_of_their_own_are_read() {
    let dir = Dir::new("dwz");
    dir.write("p.c", C);
    dir.write("o.c", OTHER);
    let built = dir.run(&["cc", "-g", "-fno-inline", "-o", "p", "p.c", "o.c"])
        && dir.run(&["cc", "-g", "-O1", "-fno-inline", "-o", "q", "p.c", "o.c"]);
    if !built || !dir.run(&["dwz", "-m", "shared", "p", "q"]) {
        testing::skipped!("no dwz");
        return;
    }
    check_c(&dir, "p", &dir.read("p", Some("shared")));
    check_c(&dir, "q", &dir.read("q", Some("shared")));
}

#[test]
fn classes_are_structs_with_their_scopes() {
    let dir = Dir::new("cpp");
    dir.write("p.cc", CPP);
    if !dir.run(&["c++", "-g", "-o", "p", "p.cc"]) {
        testing::skipped!("no C compiler");
        return;
    }
    let from = dir.read("p", None);
    let item = Given::of(&from, &name(NameKind::Struct, "shop::item"));
    let ty = item.ty();
    assert_eq!(item.named(ty), "struct shop::item 32");
    assert_eq!(item.member(ty, "price"), (128, None, "long 8".into()));
    // What it inherits is found by its own name.
    assert_eq!(item.member(ty, "id"), (64, None, "int 4".into()));
    assert_eq!(item.member(ty, "part").2, "struct shop::item::part 1");
    let query =
        Query::Function { address: dir.address("p", "_ZN4shop4costERNS_4itemEPKc"), name: String::new() };
    let (prototype, places) = Given::of(&from, &query).prototype();
    assert_eq!(prototype, "long (struct shop::item *, const char *)");
    assert_eq!(places, ["arg0", "arg1"]);
    // What has a destructor has an address, also where it is returned.
    for words in [&["-g"][..], &["-gdwarf-4", "-O1", "-fno-inline"]] {
        assert!(dir.run(&[&["c++", "-o", "q", "p.cc"], words].concat()));
        let from = dir.read("q", None);
        let places = |text: &str| {
            let query = Query::Function { address: dir.address("q", text), name: String::new() };
            Given::of(&from, &query).prototype().1
        };
        let expected = ["at arg0", "an object of", "arg1"];
        assert_eq!(places("_ZN4shop4keepENS_6holderENS_5plainEi"), expected, "{words:?}");
        assert_eq!(places("_ZN4shop4makeEi"), ["arg1"], "{words:?}");
    }
    let all = Given::of(&from, &name(NameKind::Variable, "shop::item::all"));
    assert_eq!(all.answer.address, Some(dir.address("p", "_ZN4shop4item3allE")));
    let like = from.answer(&Query::Like(NameKind::Struct, "shop::it".into())).unwrap();
    assert_eq!(like.names, ["shop::item", "shop::item::part"]);
}

#[test]
fn enumerations_of_rust_have_their_tag_and_their_variants() {
    let dir = Dir::new("rust");
    dir.write("p.rs", RUST);
    if !dir.run(&["rustc", "-g", "-O", "-C", "symbol-mangling-version=v0", "-o", "p", "p.rs"]) {
        testing::skipped!("no C compiler");
        return;
    }
    let from = dir.read("p", None);
    let point = Given::of(&from, &name(NameKind::Struct, "p::Point"));
    let ty = point.ty();
    assert_eq!(point.named(ty), "struct p::Point 16");
    assert_eq!(point.member(ty, "x").2, "u32 4");
    let shape = Given::of(&from, &name(NameKind::Struct, "p::Shape"));
    let ty = shape.ty();
    assert!(shape.types.member(ty, "discriminant").is_some());
    let line = shape.types.member(ty, "Line").unwrap().ty;
    assert_eq!(shape.member(line, "to").2, "struct p::Point 16");
}

#[test]
fn far_types_are_cuts_that_can_be_asked_for() {
    let dir = Dir::new("cuts");
    let structs: Vec<String> =
        (0..1000).rev().map(|n| format!("struct s{n} {{ int i{n}; struct s{} *next; }};", n + 1)).collect();
    dir.write("p.c", &format!("{}\nstruct s0 first;\nint main(void) {{ return 0; }}\n", structs.join("\n")));
    if !dir.run(&["cc", "-g", "-o", "p", "p.c"]) {
        testing::skipped!("no C compiler");
        return;
    }
    let from = dir.read("p", None);
    let near = Given::of(&from, &name(NameKind::Struct, "s0"));
    let [(id, key)] = near.answer.cuts[..] else { panic!("{:?}", near.answer.cuts) };
    let cut = near.types.import(&near.btf, id);
    assert_eq!(near.types.name(cut), "struct s200");
    assert_eq!(near.types.size(cut), None);
    let far = Given::of(&from, &Query::Entry(key));
    assert_eq!(far.named(far.ty()), "struct s200 16");
    // The last one is only declared.
    let last = Given::of(&from, &name(NameKind::Struct, "s999"));
    assert_eq!((last.named(last.ty()), last.answer.cuts.len()), ("struct s999 16".into(), 0));
}

#[test]
fn corrupt_debug_information_gives_an_error_or_an_answer() {
    let dir = Dir::new("corrupt");
    dir.write("p.c", C);
    if !dir.run(&["cc", "-g", "-o", "p", "p.c"]) {
        testing::skipped!("no C compiler");
        return;
    }
    let all: Vec<(&str, Vec<u8>)> = SECTIONS.iter().map(|name| (*name, dir.section("p", name))).collect();
    let mut seed = testing::rng::Rng::new(7);
    let (mut answers, mut errors) = (0, 0);
    for _ in 0..3000 {
        let mut sections = all.clone();
        for _ in 0..seed.below(4) + 1 {
            let (_, bytes) = &mut sections[seed.below(3)];
            if bytes.is_empty() {
                continue;
            }
            let at = seed.below(bytes.len());
            match seed.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = 0xff,
                _ => bytes[at] = seed.below(256) as u8,
            }
        }
        let mut load =
            |name: &str| Ok::<_, Error>(sections.iter().find(|(n, _)| *n == name).unwrap().1.clone());
        let Ok(from) = DebugTypes::read(&mut load, None) else {
            errors += 1;
            continue;
        };
        let queries = [
            name(NameKind::Struct, "conn"),
            name(NameKind::Variable, "first"),
            Query::Function { address: 0, name: "take".into() },
            Query::Entry(seed.below(4000) as u64),
            Query::Entry(u64::MAX),
            Query::Like(NameKind::Struct, String::new()),
        ];
        for query in queries {
            match from.answer(&query) {
                Ok(answer) => {
                    answers += 1;
                    if let Some(found) = answer.found {
                        // What is answered is BTF.
                        let btf = Arc::new(Btf::parse(answer.btf, None).unwrap());
                        let types = Types::new();
                        types.size(types.import(&btf, found));
                    }
                }
                Err(_) => errors += 1,
            }
        }
    }
    assert!(answers > 1000 && errors > 100, "{answers} {errors}");
}

#[test]
fn types_in_btf_have_their_members_and_parameters() {
    let dir = Dir::new("btf");
    dir.write("p.c", C);
    let built = Command::new("cc").args(["-gbtf", "-o", "p", "p.c"]).current_dir(&dir.0).output();
    if !built.is_ok_and(|o| o.status.success()) {
        testing::skipped!("no compiler with -gbtf");
        return;
    }
    let section = dir.section("p", BTF);
    let from = DebugTypes::of_btf(section.clone()).unwrap();
    let conn = Given::of(&from, &name(NameKind::Struct, "conn"));
    assert_eq!(conn.member(conn.ty(), "mode").1, Some(5));
    let alias = Given::of(&from, &name(NameKind::Typedef, "conn_t"));
    assert_eq!(alias.named(alias.ty()), conn.named(conn.ty()).replace("struct conn", "conn_t"));
    let places = |name: &str| from.answer(&Query::Function { address: 0, name: name.into() }).unwrap().places;
    let of = |place: &Place| match place {
        Place::Argument(n) => n.to_string(),
        Place::Object(n) => format!("object {n}"),
        Place::Parts(_) | Place::Unreadable(_) => "-".into(),
    };
    let all = |name: &str| places(name).iter().map(of).collect::<Vec<_>>().join(" ");
    assert_eq!(all("take"), "0 - 1 - - 4 5 - 15");
    assert_eq!(all("small"), "- - 3");
    // The address of the result is passed before.
    assert_eq!(all("give"), "1");
    assert_eq!(all("variadic"), "0");
    assert_eq!(from.answer(&name(NameKind::Struct, "nothing")).unwrap(), Answer::default());
    assert_eq!(from.answer(&Query::Like(NameKind::Struct, "pa".into())).unwrap().names, ["pair"]);
    let mut seed = testing::rng::Rng::new(5);
    let mut answers = 0;
    for _ in 0..3000 {
        let mut section = section.clone();
        damage(&mut section, &mut seed);
        let Ok(from) = DebugTypes::of_btf(section) else { continue };
        let take = Query::Function { address: 0, name: "take".into() };
        for query in [name(NameKind::Struct, "conn"), take, Query::Like(NameKind::Struct, String::new())] {
            answers += usize::from(from.answer(&query).is_ok_and(|a| a.found.is_some()));
        }
    }
    assert!(answers > 500, "{answers}");
}

/// The files of split debug information in a directory.
struct SplitDir<'a> {
    dir: &'a Dir,
    /// Every section is changed by this.
    damage: &'a mut dyn FnMut(&mut Vec<u8>),
}

impl SplitFiles<Error> for SplitDir<'_> {
    fn package(&mut self, read: Read<'_, Error>) -> Result<(), Error> {
        if !self.dir.0.join("p.dwp").exists() {
            return Ok(());
        }
        read(&mut |name: &str| {
            let mut section = self.dir.section("p.dwp", name);
            (self.damage)(&mut section);
            Ok(section)
        })
    }

    fn object(&mut self, unit: &SplitUnit, take: Take<'_, Error>) -> Result<(), Error> {
        let name = String::from_utf8(unit.path.clone()).unwrap();
        let taken = take(&mut |section: &str| {
            let mut section = self.dir.section(&name, section);
            (self.damage)(&mut section);
            Ok(section)
        });
        taken.map(drop)
    }
}

#[test]
fn types_in_files_of_their_own_are_those_of_the_program() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let dir = Dir::new("split");
        dir.write("p.c", C);
        dir.write("q.c", OTHER);
        for part in ["p", "q"] {
            let (source, object) = (format!("{part}.c"), format!("{part}.o"));
            if !dir.run(&["cc", version, "-gsplit-dwarf", "-O1", "-c", &source, "-o", &object]) {
                testing::skipped!("no C compiler");
                return;
            }
        }
        dir.run(&["cc", "-no-pie", "-o", "p", "p.o", "q.o"]);
        let read = |damage: &mut dyn FnMut(&mut Vec<u8>)| {
            let mut own = |name: &str| Ok::<_, Error>(dir.section("p", name));
            DebugTypes::read_split(&mut own, None, &mut SplitDir { dir: &dir, damage })
        };
        let check = |from: &DebugTypes, what: &str| {
            assert_eq!(from.missing(), None, "{version} {what}");
            let conn = Given::of(from, &name(NameKind::Struct, "conn"));
            assert_eq!(conn.member(conn.ty(), "mode").1, Some(5), "{version} {what}");
            let hidden = Given::of(from, &name(NameKind::Struct, "hidden"));
            assert!(hidden.answer.found.is_some(), "{version} {what}");
            for variable in ["counter", "the_hidden"] {
                let answer = from.answer(&name(NameKind::Variable, variable)).unwrap();
                assert_eq!(answer.address, Some(dir.address("p", variable)), "{version} {what}");
            }
            let query = Query::Function { address: dir.address("p", "take"), name: "none".into() };
            assert_eq!(from.answer(&query).unwrap().places.len(), 9, "{version} {what}");
        };
        check(&read(&mut |_| {}).unwrap(), "files");
        if version == "-gdwarf-4" && dir.run(&["dwp", "-e", "p"]) {
            check(&read(&mut |_| {}).unwrap(), "package");
        }
        // A file without its number is none. Any other damage is an answer, or an error.
        let none = read(&mut |section| section.clear()).unwrap();
        assert!(none.is_empty() && none.missing() == Some("p.dwo"), "{version}");
        let mut seed = testing::rng::Rng::new(11);
        let mut answers = 0;
        for _ in 0..12 {
            let from = read(&mut |section| {
                for _ in 0..(section.len() / 200).min(4) {
                    let at = seed.below(section.len());
                    match seed.below(8) {
                        0 => section.truncate(at.max(1)),
                        _ => section[at] = seed.below(256) as u8,
                    }
                }
            });
            let Ok(from) = from else { continue };
            let take = Query::Function { address: dir.address("p", "take"), name: "take".into() };
            for query in
                [name(NameKind::Struct, "conn"), take, Query::Entry(seed.below(1 << 20) as u64 | 2 << 40)]
            {
                answers += usize::from(from.answer(&query).is_ok());
            }
        }
        assert!(answers > 0, "{version}");
    }
}
