//! Functions of this process's files, by a real reader.

use std::collections::HashMap;
use std::time::Instant;

use text::{Kernel, Uses};

use super::*;
use crate::functions::{Function, SymbolSource};

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn functions_test_landmark(x: u64) -> u64 {
    if std::hint::black_box(x) > 5 { x.wrapping_mul(3) } else { 7 }
}

/// Waits as long as a test may: what it reads is large, and other tests read at the same time.
fn patient() -> Processes {
    let mut p = Processes::default();
    p.set_limits(testing::HANG_LIMIT, 256 << 20);
    p
}

fn own(p: &mut Processes, name: &str) -> MappedText {
    let all = p.mapped(std::process::id()).unwrap();
    all.into_iter().find(|m| m.is_code && m.name.starts_with(name)).unwrap()
}

fn everything(select: Select) -> FunctionQuery {
    let uses = Uses::NOTHING.and_argument(0).and_stack();
    FunctionQuery {
        select,
        kernel: Kernel::UNKNOWN,
        entries: vec![uses, Uses::NOTHING],
        returns: true,
        instructions: true,
    }
}

fn named(functions: &FunctionList, name: &str) -> Function {
    let mut found = functions.iter().filter(|f| f.names.iter().any(|n| n.raw == name));
    let first = found.next().unwrap_or_else(|| panic!("{name} in {functions:?}"));
    assert!(found.next().is_none(), "{name}");
    first
}

#[test]
fn a_function_of_this_process_is_found_with_its_code() {
    let mut p = patient();
    let text = own(&mut p, "symbols-");
    let select = Select::Matching(vec!["functions_test_landmark".into()]);
    let list = p.functions(text.file, &everything(select)).unwrap();
    assert_eq!((list.functions.len(), list.source), (1, SymbolSource::Full));
    assert!(list.total > 1000, "{}", list.total);
    let f = list.functions.iter().next().unwrap();
    let addr = functions_test_landmark as extern "C" fn(u64) -> u64 as usize as u64;
    assert_eq!(text.start + f.offset - text.offset, addr);
    assert_eq!((f.name(), f.indirect), ("functions_test_landmark", false));
    let instructions = f.instructions.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(instructions[0].offset, 0);
    // SAFETY: the function's own bytes, which are mapped.
    let code = unsafe { std::slice::from_raw_parts(addr as *const u8, f.size as usize) };
    let last = instructions.last().unwrap();
    assert!(u64::from(last.offset) < f.size && f.size - u64::from(last.offset) <= 15);
    let returns = f.returns.as_ref().unwrap().as_ref().unwrap();
    assert!(!returns.is_empty());
    for site in returns {
        assert!(matches!(code[site.offset as usize], 0xc3 | 0xeb | 0xe9), "{site:?}");
        assert!(instructions.iter().any(|i| i64::from(i.offset) == site.offset));
    }
    assert_eq!(f.entries.len(), 2);
    assert!(f.entries.iter().all(Result::is_ok), "{f:?}");
    // The same by its address.
    let at = p.functions(text.file, &everything(Select::At(vec![f.address + f.size - 1]))).unwrap();
    assert_eq!(at.functions, list.functions);
    let none = p.functions(text.file, &everything(Select::Nothing)).unwrap();
    assert_eq!((none.functions.len(), none.total), (0, list.total));
}

#[test]
fn rust_names_match_in_both_forms() {
    let mut p = patient();
    let file = own(&mut p, "symbols-").file;
    let mut find = |pattern: &str| {
        let query = FunctionQuery::names(Select::Matching(vec![pattern.into()]));
        p.functions(file, &query).unwrap().functions.into_iter().collect::<Vec<_>>()
    };
    let found = find("symbols::process::own_vdso_base");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name(), "symbols::process::own_vdso_base");
    let raw = found[0].names[0].raw.clone();
    assert!(raw.starts_with("_ZN") || raw.starts_with("_R"), "{raw}");
    assert_eq!(find(&raw), found);
    assert!(found[0].matches("*own_vdso*") && found[0].matches(&raw));
    assert!(find("*own_vdso*").contains(&found[0]));
    assert_eq!(find("no_such_function").len(), 0);
}

#[test]
fn functions_of_libc_have_aliases_and_no_stubs() {
    let mut p = patient();
    let file = own(&mut p, "libc.so").file;
    let begun = Instant::now();
    let names = p.functions(file, &FunctionQuery::names(Select::All)).unwrap();
    let (took_names, begun) = (begun.elapsed(), Instant::now());
    let one = p.functions(file, &everything(Select::Matching(vec!["malloc".into()]))).unwrap();
    let (took_one, begun) = (begun.elapsed(), Instant::now());
    let all = p.functions(file, &FunctionQuery { instructions: false, ..everything(Select::All) }).unwrap();
    println!(
        "{} functions: names {took_names:?}, malloc {took_one:?}, with code {:?}",
        all.functions.len(),
        begun.elapsed()
    );
    assert!((1500..6000).contains(&all.functions.len()), "{}", all.functions.len());
    assert_eq!(names.functions.len(), all.functions.len());
    // The others are parts of functions.
    let parts = names.total - all.functions.len() as u64;
    assert!(parts < 300 && !all.functions.iter().any(|f| f.name().ends_with(".cold")), "{parts}");
    let malloc = named(&all.functions, "malloc");
    assert_eq!(one.functions.len(), 1);
    let without = Function { instructions: None, ..one.functions.iter().next().unwrap() };
    assert_eq!(malloc, without);
    assert_eq!(malloc.name(), "malloc");
    let write = named(&all.functions, "write");
    assert!(write.names.iter().any(|n| n.raw == "__write"), "{write:?}");
    assert!(named(&all.functions, "strlen").indirect);
    assert!(all.functions.iter().is_sorted_by(|a, b| a.address < b.address));
    assert!(all.functions.iter().all(|f| f.size > 0 && f.returns.is_some()));
    let refused = all.functions.iter().filter(|f| f.entries[0].is_err()).count();
    let no_returns = all.functions.iter().filter(|f| f.returns.as_ref().is_some_and(Result::is_err)).count();
    println!("{refused} without an entry probe, {no_returns} without return probes");
    assert!(refused * 10 < all.functions.len() && no_returns * 5 < all.functions.len());
    assert_eq!(all.unwinds, None);
}

#[test]
fn what_unwinds_is_told() {
    let mut p = patient();
    let mut reasons = HashMap::new();
    for m in p.mapped(std::process::id()).unwrap() {
        let list = p.functions(m.file, &FunctionQuery::names(Select::Nothing));
        reasons.insert(m.name.to_string(), list.map(|list| list.unwinds));
    }
    let of = |name: &str| reasons.iter().find(|(n, _)| n.starts_with(name)).unwrap().1.clone().unwrap();
    assert_eq!(of("libgcc_s").as_deref(), Some("libgcc_s throws exceptions through frames"));
    assert_eq!((of("libc.so"), of("symbols-"), of("ld-linux")), (None, None, None));
}

#[test]
fn a_process_that_is_gone_is_an_error_in_words() {
    let mut p = patient();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let why = p.mapped(child.id()).unwrap_err();
    let said = format!("the address map of process {} cannot be read: it has ended, or ", child.id());
    assert!(why.starts_with(&said), "{why}");
}
