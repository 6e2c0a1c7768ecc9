//! Functions of programs that a compiler made: stripped, static, of C++, with separate and with
//! compressed symbols.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use symbols::{FileFunctions, Function, FunctionQuery, MappedText, Processes, Select, SymbolSource};
use testing::rng::Rng;
use text::{Kernel, Uses};

/// A directory of one test.
struct Dir(testing::dir::Dir);

impl Dir {
    fn new(test: &str) -> Dir {
        Dir(testing::dir::Dir::new(&format!("functions-{test}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs a program in the directory. False if there is none, or it fails.
    fn run(&self, words: &[&str]) -> bool {
        let (program, args) = words.split_first().unwrap();
        let status = Command::new(program).args(args).current_dir(&self.0).status();
        status.is_ok_and(|status| status.success())
    }

    fn source(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}

/// A program that runs until the end of the test.
struct Running(Child);

impl Running {
    fn start(path: &Path) -> Running {
        Running(Command::new(path).spawn().unwrap())
    }

    /// The functions of its own file.
    fn functions(&self, query: &FunctionQuery) -> FileFunctions {
        // It may not have mapped its file yet.
        let (mut p, file) = testing::eventually("its mapping", testing::HANG_LIMIT, || {
            let mut p = Processes::default();
            let file = p.mapped(self.0.id()).unwrap().first().map(|mapped| mapped.file);
            file.map(|file| (p, file))
        });
        p.functions(file, query).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const C: &str = "
#include <unistd.h>
int shared(int x) { return x + 1; }
static __attribute__((noinline)) int hidden(int x) { __asm__ volatile(\"\"); return x * 3; }
int other(int) __attribute__((alias(\"shared\")));
int main(int argc, char **argv) { for (;;) { pause(); argc = shared(hidden(argc)); } }
";

fn all() -> FunctionQuery {
    FunctionQuery::names(Select::All)
}

fn decoded(pattern: &str) -> FunctionQuery {
    FunctionQuery {
        select: Select::Matching(vec![pattern.into()]),
        kernel: Kernel::UNKNOWN,
        entries: vec![Uses::NOTHING.and_registers()],
        returns: true,
        instructions: true,
    }
}

/// The only function of a list.
fn only(list: &FileFunctions) -> Function {
    assert_eq!(list.functions.len(), 1, "{list:?}");
    list.functions.iter().next().unwrap()
}

fn find(list: &FileFunctions, name: &str) -> Option<Function> {
    list.functions.iter().find(|f| f.names.iter().any(|n| n.raw == name))
}

/// The same place and size, whatever the names.
fn place(f: Function) -> (u64, u64, u64) {
    (f.address, f.offset, f.size)
}

#[test]
fn a_stripped_program_has_its_exported_functions_and_the_others_from_where_they_are() {
    let dir = Dir::new("stripped");
    dir.source("p.c", C);
    assert!(
        dir.run(&["cc", "-O1", "-pie", "-fPIE", "-rdynamic", "-o", "p", "p.c"]),
        "cc is part of every run"
    );
    let running = Running::start(&dir.path("p"));
    let full = running.functions(&all());
    assert_eq!(full.source, SymbolSource::Full);
    let hidden = place(find(&full, "hidden").unwrap());
    let shared = find(&full, "shared").unwrap();
    let mut names: Vec<&str> = shared.names.iter().map(|n| n.raw.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "shared"]);
    assert!(
        find(&full, "pause").is_none() && find(&full, "main").is_some() && find(&full, "_init").is_some()
    );

    assert!(dir.run(&["strip", "-o", "bare", "p"]));
    let running = Running::start(&dir.path("bare"));
    let bare = running.functions(&all());
    assert_eq!(bare.source, SymbolSource::Dynamic);
    assert!(find(&bare, "hidden").is_none());
    assert_eq!(place(find(&bare, "shared").unwrap()), place(shared));
    let one = running.functions(&decoded("other"));
    assert_eq!(one.functions.len(), 1);
    assert_eq!(only(&one).returns.as_ref().unwrap().as_ref().unwrap().len(), 1);

    // A debug file beside it.
    assert!(dir.run(&["objcopy", "--only-keep-debug", "p", "p.debug"]));
    assert!(dir.run(&["objcopy", "--add-gnu-debuglink=p.debug", "bare", "linked"]));
    let linked = Running::start(&dir.path("linked")).functions(&all());
    assert_eq!(linked.source, SymbolSource::DebugFile);
    assert_eq!(place(find(&linked, "hidden").unwrap()), hidden);
    assert_eq!(linked.total, full.total);

    // Compressed symbols.
    std::fs::copy(dir.path("p.debug"), dir.path("mini")).unwrap();
    if !dir.run(&["xz", "mini"]) {
        testing::skipped!("no xz here");
        return;
    }
    assert!(dir.run(&["objcopy", "--add-section", ".gnu_debugdata=mini.xz", "bare", "packed"]));
    let running = Running::start(&dir.path("packed"));
    let packed = running.functions(&all());
    assert_eq!(packed.source, SymbolSource::Compressed);
    assert_eq!(place(find(&packed, "hidden").unwrap()), hidden);
    assert_eq!(packed.total, full.total);
    let one = running.functions(&decoded("hidden"));
    assert!(only(&one).entries[0].is_ok(), "{one:?}");

    // Damaged, they are as if they were not there.
    let mut damaged = std::fs::read(dir.path("mini.xz")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0x55);
    std::fs::write(dir.path("mini.xz"), damaged).unwrap();
    assert!(dir.run(&["objcopy", "--add-section", ".gnu_debugdata=mini.xz", "bare", "broken"]));
    let broken = Running::start(&dir.path("broken")).functions(&all());
    assert_eq!((broken.source, broken.total), (SymbolSource::Dynamic, bare.total));
}

#[test]
fn a_static_program_may_unwind() {
    for mode in ["-static", "-static-pie"] {
        static_program(mode);
    }
}

fn static_program(mode: &str) {
    let dir = Dir::new("static");
    dir.source("p.c", C);
    if !dir.run(&["cc", "-O1", mode, "-o", "p", "p.c"]) {
        testing::skipped!("no static library here");
        return;
    }
    let full = Running::start(&dir.path("p")).functions(&all());
    assert!(full.total > 300, "{}", full.total);
    assert!(find(&full, "malloc").is_some() && find(&full, "hidden").is_some());
    let entry = full.functions.iter().find(|f| f.address == full.entry).unwrap();
    assert_eq!(entry.name(), "_start");
    let raises = find(&full, "_Unwind_RaiseException").is_some();
    assert_eq!(full.unwinds.as_deref(), raises.then_some("it defines _Unwind_RaiseException"));
    assert!(dir.run(&["strip", "-o", "bare", "p"]));
    let bare = Running::start(&dir.path("bare")).functions(&all());
    assert_eq!((bare.source, bare.total), (SymbolSource::None, 0));
    assert!(bare.unwinds.is_some_and(|why| why.contains("linked statically and has no symbols")));
}

#[test]
fn a_stripped_program_with_an_unwinder_of_its_own_is_told_by_what_it_calls() {
    let dir = Dir::new("unwinder");
    dir.source(
        "p.cc",
        "#include <unistd.h>
        int main(int argc, char **argv) { for (;;) { pause(); try { if (argc) throw argc; } catch (int) {} } }",
    );
    if !dir.run(&["c++", "-O1", "-static-libgcc", "-static-libstdc++", "-o", "p", "p.cc"]) {
        testing::skipped!("no compiler of C++ here");
        return;
    }
    let full = Running::start(&dir.path("p")).functions(&all());
    assert_eq!(full.unwinds.as_deref(), Some("it defines _Unwind_RaiseException"));
    assert!(dir.run(&["strip", "-o", "bare", "p"]));
    let why = Running::start(&dir.path("bare")).functions(&all()).unwinds.unwrap();
    assert!(why.starts_with("it is stripped and calls "), "{why}");
    dir.source("c.c", C);
    assert!(dir.run(&["cc", "-s", "-o", "c", "c.c"]));
    let list = Running::start(&dir.path("c")).functions(&all());
    assert_eq!((list.source, list.unwinds), (SymbolSource::None, None));
}

#[test]
fn functions_of_cpp_match_mangled_and_as_in_the_source() {
    let dir = Dir::new("cpp");
    dir.source(
        "p.cc",
        "#include <unistd.h>
        namespace ns {
            template <typename T> struct Box {
                T value;
                __attribute__((noinline)) T operator[](int n) { __asm__ volatile(\"\"); return value + n; }
                __attribute__((noinline)) T get(T a, const char *) const { __asm__ volatile(\"\"); return value + a; }
            };
            template <typename T> __attribute__((noinline)) T twice(T x) { __asm__ volatile(\"\"); return x * 2; }
        }
        int main() {
            ns::Box<int> box{1};
            for (;;) { pause(); box.value = box[2] + box.get(3, \"\") + ns::twice<long>(4); }
        }",
    );
    if !dir.run(&["c++", "-O1", "-o", "p", "p.cc"]) {
        testing::skipped!("no compiler of C++ here");
        return;
    }
    let running = Running::start(&dir.path("p"));
    for (pattern, shown) in [
        ("ns::Box<int>::get", "ns::Box<int>::get"),
        ("ns::Box<int>::get(int, char const*) const", "ns::Box<int>::get"),
        ("_ZNK2ns3BoxIiE3getEiPKc", "ns::Box<int>::get"),
        ("ns::Box<int>::operator[]", "ns::Box<int>::operator[]"),
        ("ns::twice<long>", "ns::twice<long>"),
        ("long ns::twice<long>(long)", "ns::twice<long>"),
        ("*::twice*", "ns::twice<long>"),
    ] {
        let list = running.functions(&decoded(pattern));
        let names: Vec<String> = list.functions.iter().map(|f| f.name().to_owned()).collect();
        assert_eq!(names, [shown], "{pattern}");
        assert!(only(&list).matches(pattern), "{pattern}");
    }
    assert_eq!(running.functions(&decoded("ns::*")).functions.len(), 3);
    assert_eq!(running.functions(&decoded("get")).functions.len(), 0);
}

/// The mapping of this process that holds an address.
fn own(p: &mut Processes, addr: u64) -> MappedText {
    let mapped = p.mapped(std::process::id()).unwrap();
    mapped.into_iter().find(|m| (m.start..m.end).contains(&addr)).unwrap()
}

#[test]
fn the_implementation_of_an_indirect_function_is_known_in_a_process() {
    let strlen = libc::strlen as unsafe extern "C" fn(*const libc::c_char) -> usize as usize as u64;
    let mut p = Processes::default();
    let text = own(&mut p, strlen);
    assert!(text.name.starts_with("libc.so"), "{text:?}");
    let query = decoded("strlen");
    let list = p.functions_in(std::process::id(), &text, &query).unwrap();
    let f = &only(&list);
    assert!(f.indirect);
    assert_eq!(f.unresolved, None);
    assert_eq!(text.start + f.offset - text.offset, strlen);
    assert!(f.size > 16 && f.entries[0].is_ok(), "{f:?}");
    let list = p.functions(text.file, &query).unwrap();
    let f = only(&list);
    let why = f.unresolved.as_deref();
    assert_eq!(why, Some("no process is known that has chosen an implementation"));
    let mut known = 0;
    let everything = p.functions_in(std::process::id(), &text, &all()).unwrap();
    let indirect: Vec<Function> = everything.functions.iter().filter(|f| f.indirect).collect();
    for f in &indirect {
        known += usize::from(f.unresolved.is_none());
        f.unresolved.iter().for_each(|why| println!("{}: {why}", f.name()));
    }
    println!("{known} of {} indirect functions are resolved", indirect.len());
    assert!(known + 6 >= indirect.len());
    // The dynamic linker says the same of those that it can find. A name of several versions is the
    // last one's.
    let named = |name: &str| indirect.iter().filter(|f| f.names.iter().any(|n| n.raw == name)).count();
    let mut compared = 0;
    for f in indirect.iter().filter(|f| f.unresolved.is_none() && named(&f.names[0].raw) == 1) {
        let name = std::ffi::CString::new(f.names[0].raw.clone()).unwrap();
        // SAFETY: the name ends in NUL, and the result is only compared.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
        if found != 0 {
            assert_eq!(text.start + f.offset - text.offset, found, "{name:?}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// What holds for every list, whatever the file is.
fn check(list: &FileFunctions, bytes: u64) {
    assert!(list.functions.len() as u64 <= list.total);
    for f in &list.functions {
        assert!(!f.names.is_empty() && f.offset + f.size <= bytes, "{f:?}");
        assert!(f.entries.iter().flatten().all(|entry| entry.offset < f.size), "{f:?}");
        // A part of the function may be elsewhere in the file.
        let place = |site: &text::ReturnSite| f.offset.checked_add_signed(site.offset);
        assert!(f.returns.iter().flatten().flatten().all(|site| place(site).is_some()), "{f:?}");
        let instructions = f.instructions.iter().flatten().flatten();
        assert!(instructions.into_iter().all(|i| u64::from(i.offset) < f.size), "{f:?}");
    }
}

#[test]
fn a_damaged_program_is_an_error_or_a_list() {
    const ROUNDS: usize = 1500;
    const MEMORY: u64 = 4 << 20;
    let dir = Dir::new("damaged");
    dir.source("p.c", C);
    assert!(dir.run(&["cc", "-O1", "-o", "p", "p.c"]));
    let mut files = vec![std::fs::read(dir.path("p")).unwrap()];
    if dir.run(&[
        "sh",
        "-c",
        "strip -o bare p && xz -k p && objcopy --add-section .gnu_debugdata=p.xz bare packed",
    ]) {
        files.push(std::fs::read(dir.path("packed")).unwrap());
    }
    let query = FunctionQuery { select: Select::All, ..decoded("") };
    let mut rng = Rng::new(0x5eed);
    let (mut lists, mut errors) = (0, 0);
    for bytes in &files {
        let whole = symbols::functions_of_bytes(bytes.clone(), &query, MEMORY).unwrap();
        assert!(whole.functions.iter().any(|f| f.name() == "hidden"), "{whole:?}");
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        for round in 0..ROUNDS {
            let mut damaged = bytes.clone();
            for _ in 0..=rng.below(3) {
                // The header, the table of sections, anything.
                let at = match round % 3 {
                    0 => rng.below(0x400),
                    1 => headers + rng.below(bytes.len() - headers),
                    _ => rng.below(bytes.len()),
                };
                let end = damaged.len().min(at + 1 + rng.below(8));
                let other = rng.bits() as u8;
                let value = rng.pick(&[0, 1, 0x7f, 0x80, 0xff, other]).unwrap();
                damaged[at..end].fill(value);
            }
            if round % 10 == 9 {
                damaged.truncate(rng.below(bytes.len()));
            }
            let length = damaged.len() as u64;
            match symbols::functions_of_bytes(damaged, &query, MEMORY) {
                Ok(list) => {
                    lists += 1;
                    check(&list, length);
                }
                Err(why) => {
                    errors += 1;
                    assert!(!why.is_empty());
                }
            }
        }
    }
    println!("{lists} lists, {errors} errors");
    assert!(lists > 100 && errors > 100);
}
