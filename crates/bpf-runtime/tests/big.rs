//! Programs at the kernel's limits: many clauses, and long ones. They must load on every kernel and
//! give the interpreter's results, or be rejected with the name of a limit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use bpf_codegen::context::ProbeSet;
use bpf_codegen::plan::Options;
use dif::interp::{Interpreter, State, Val, World};
use dif::ir::{IntBuiltin, Space, StrBuiltin, VarId};
use plane::control::DropKind;

use crate::session::{self, Run, Setup, pin, privileged};

fn setup(text: &str) -> Setup {
    let module = dif::text::parse(text).unwrap();
    dif::verify::verify(&module).unwrap();
    Setup::new(module)
}

const TABLES: &str = r#"
module strsize 256
string s0 = ""
string s1 = "read"
string s2 = "a string of more than sixty-four bytes, so that it is copied and not made by stores"
var var0 = global "n" int
var var1 = global "s" str
var var2 = self "t" int
var var3 = global "a" int [0:str(256)] size 256
var var4 = self "a" str [0:u64] size 8
agg agg0 = "c" count [0:str(16)] size 16
agg agg1 = "q" quantize [0:str(256)] size 256
agg agg2 = "s" sum [] size 0
"#;

/// A clause with a predicate, a record, strings, an array and aggregations: `i` makes it differ
/// from others.
fn clause(out: &mut String, i: usize) {
    write!(
        out,
        r#"
clause "clause_{i}" record 272 {{
    does trace 0:u64
    does trace 8:str(256)
b0:
    v0:int = builtin arg0
    v1:int = const {i}
    v2:int = cmp.uge v0, v1
    branch v2, b1, b2
b1:
  action 1
    reserve
    v3:int = builtin arg1
    v4:ptr.user = asptr v3
    v5:str = loadstr v4
    record 0:u64, v0
    record 8:str(256), v5
  action 2
    v6:int = loadelem var3[v5]
    v7:int = add v6, v1
    storeelem var3[v5], v7
  action 3
    v8:str = builtin execname
    aggregate agg0[v8]()
    aggregate agg1[v5](v7)
    v9:int = builtin timestamp
    storevar var2, v9
  action 4
    v10:str = str s1
    v11:int = strcmp.eq v5, v10
    v12:int = loadvar var0
    v13:int = add v12, v11
    storevar var0, v13
    aggregate agg2[](v11)
    commit
    return
b2:
    predfalse
}}
"#
    )
    .unwrap();
}

/// Writes a clause of `n` statements.
fn long(out: &mut String, n: usize) {
    writeln!(
        out,
        "clause \"long\" {{\nb0:\n    v0:int = builtin arg1\n    v1:ptr.user = asptr v0\n    v2:str = str s1"
    )
    .unwrap();
    let mut v = 3;
    for i in 0..n {
        writeln!(out, "  action {}", i + 1).unwrap();
        let (a, b, c) = (v, v + 1, v + 2);
        v += 3;
        match i % 5 {
            0 => writeln!(out, "    v{a}:str = loadstr v1\n    storevar var1, v{a}"),
            1 => writeln!(out, "    v{a}:str = loadvar var1\n    v{b}:int = loadelem var3[v{a}]\n    v{c}:int = const {i}\n    storeelem var3[v{a}], v{c}"),
            2 => writeln!(out, "    v{a}:str = loadvar var1\n    v{b}:int = strlen v{a}\n    aggregate agg1[v{a}](v{b})"),
            3 => writeln!(out, "    v{a}:int = const {i}\n    v{b}:str = loadvar var1\n    storeelem var4[v{a}], v{b}"),
            _ => writeln!(out, "    v{a}:str = loadvar var1\n    v{b}:int = strcmp.ult v{a}, v2\n    storevar var0, v{b}"),
        }
        .unwrap();
    }
    writeln!(out, "    return\n}}").unwrap();
}

/// Memory of this process with a string in it.
const TEXT: &std::ffi::CStr = c"a file name or the like";

/// Fires the program and the interpreter, and compares their sums.
fn run_and_compare(setup: Setup, firings: &[[u64; 10]]) -> Run {
    let module = setup.module.clone();
    let mut state = State::new(&module);
    let sets = setup.clauses.clone();
    let mut run = Run::new(setup);
    let mut recorded = 0;
    for args in firings {
        let probe = if run.setup.probes == 1 { 0 } else { args[9] as u32 };
        let fired: Vec<usize> = sets.iter().filter(|(_, set)| set.contains(probe)).map(|(c, _)| *c).collect();
        Interpreter::new(&module).fire(&fired, &mut state, &mut Text { args: *args });
        run.fire(args);
        recorded += run.records().len();
    }
    assert_eq!(state.faults, []);
    assert_eq!(recorded, state.records.len());
    for agg in 0..3 {
        let got = run.aggregation(agg);
        let sum = |words: Vec<&Vec<u64>>| words.into_iter().flatten().sum::<u64>();
        assert_eq!(got.len(), state.aggregations[agg as usize].len(), "@{agg}");
        assert_eq!(
            sum(got.values().collect()),
            sum(state.aggregations[agg as usize].values().collect()),
            "@{agg}"
        );
    }
    let global = match state.global(VarId(0)) {
        Some(Val::Int(i)) => *i,
        _ => 0,
    };
    assert_eq!(run.global(VarId(0), 8), global.to_le_bytes());
    for var in [VarId(3), VarId(4)] {
        assert_eq!(run.elements(var).len(), state.elements(var).count());
    }
    for kind in DropKind::ALL {
        assert_eq!(run.drops(kind), 0, "{kind:?}");
    }
    run
}

struct Text {
    args: [u64; 10],
}

impl World for Text {
    fn builtin(&mut self, b: IntBuiltin) -> i64 {
        match b {
            IntBuiltin::Arg(n) => self.args[n as usize] as i64,
            _ => 0,
        }
    }

    fn builtin_str(&mut self, _: StrBuiltin) -> Vec<u8> {
        b"one name".to_vec()
    }

    fn read(&mut self, _: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let at = (addr - TEXT.as_ptr() as u64) as usize;
        let bytes = TEXT.to_bytes_with_nul();
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        true
    }
}

/// Arguments: `arg0`, the address of the text, and the probe.
fn args(first: u64, probe: u64) -> [u64; 10] {
    let mut args = [0; 10];
    (args[0], args[1], args[9]) = (first, TEXT.as_ptr() as u64, probe);
    args
}

/// Number of clauses or statements: 200, or `ROUNDS` on an emulated CPU.
fn many() -> usize {
    std::env::var("ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(200)
}

fn clauses() -> Setup {
    let mut text = TABLES.to_owned();
    (0..many()).for_each(|i| clause(&mut text, i));
    let mut setup = setup(&text);
    setup.options.bufsize = 1 << 20;
    setup
}

#[test]
fn two_hundred_clauses_on_one_probe_match_the_interpreter() {
    if !privileged("two hundred clauses") {
        return;
    }
    pin();
    let last = many() as u64 - 1;
    let run = run_and_compare(clauses(), &[args(5, 0), args(last + 50, 0), args(last - 1, 0)]);
    assert_eq!(run.aggregation(0).into_values().collect::<Vec<_>>(), [[6 + last + 1 + last]]);
    println!("{} instructions; {}", run.compiled.code.insns.len(), run.log.lines().last().unwrap_or(""));
}

#[test]
fn two_hundred_clauses_on_separate_probes_match_the_interpreter() {
    if !privileged("two hundred probes") {
        return;
    }
    pin();
    let mut setup = clauses();
    let last = many() as u64 - 1;
    setup.probes = many() as u32;
    for (i, (_, set)) in setup.clauses.iter_mut().enumerate() {
        *set = ProbeSet::One(i as u32);
    }
    let run = run_and_compare(setup, &[args(1000, 7), args(1000, last), args(0, 3), args(3, 3)]);
    assert_eq!(run.aggregation(0).into_values().collect::<Vec<_>>(), [[3]]);
}

#[test]
fn a_clause_of_two_hundred_statements_matches_the_interpreter() {
    if !privileged("two hundred statements") {
        return;
    }
    pin();
    let mut text = TABLES.to_owned();
    long(&mut text, many());
    let run = run_and_compare(setup(&text), &[args(0, 0), args(0, 0)]);
    println!("{} instructions; {}", run.compiled.code.insns.len(), run.log.lines().last().unwrap_or(""));
}

/// Uses strings of `size` bytes everywhere: variables of every scope, arrays, keys of eight,
/// records.
fn huge(size: usize) -> Setup {
    let columns: Vec<String> = (0..8).map(|i| format!("{}:str({size})", i * size)).collect();
    let eight = |key: &str| format!("v{key}, ").repeat(8).trim_end_matches(", ").to_owned();
    let text = format!(
        r#"
module strsize {size}
string s0 = ""
string s1 = "read"
var var0 = global "n" int
var var1 = global "s" str
var var2 = self "t" str
var var3 = global "a" int [0:str({size})] size {size}
var var4 = global "b" str [0:str({size}), {size}:str({size})] size {two}
var var5 = this "u" str
var var6 = this "w" str
agg agg0 = "c" count [{keys}] size {all}
agg agg1 = "q" quantize [0:str({size})] size {size}
agg agg2 = "s" sum [] size 0

clause "clause_0" record {record} {{
    does trace 0:u64
    does trace 8:str({size})
    does trace {second}:str({size})
    does trace {third}:str({size})
b0:
  action 1
    reserve
    v0:int = builtin arg1
    v1:ptr.user = asptr v0
    v2:str = loadstr v1
    v3:str = str s1
    storevar var1, v2
    storevar var2, v2
    storevar var5, v3
    storevar var6, v2
    v4:str = loadvar var5
    v5:str = loadvar var2
    v6:str = loadvar var1
    v7:str = loadvar var6
    v8:int = strcmp.eq v5, v6
    v9:int = strlen v7
    v10:int = add v8, v9
    record 0:u64, v10
    record 8:str({size}), v4
    record {second}:str({size}), v5
    record {third}:str({size}), v6
  action 2
    v11:int = loadelem var3[v5]
    v12:int = add v11, v10
    storeelem var3[v5], v12
    storeelem var4[v5, v4], v2
    v13:str = loadelem var4[v5, v4]
    v14:int = strlen v13
    storevar var0, v14
  action 3
    aggregate agg0[{eight}]()
    aggregate agg1[v6](v10)
    aggregate agg2[](v12)
    commit
    return
}}
"#,
        two = 2 * size,
        all = 8 * size,
        keys = columns.join(", "),
        record = 8 + 3 * size,
        second = 8 + size,
        third = 8 + 2 * size,
        eight = eight("5"),
    );
    // Kernels that allocate task storage without sleeping (7.2) have at most 8 KiB for it. More is
    // a counted drop.
    let text = if size > 5000 { text.replace("self \"t\" str", "global \"t\" str") } else { text };
    let mut setup = setup(&text);
    setup.options = Options { bufsize: 1 << 20, aggsize: 4 << 20, dynvarsize: 4 << 20, ..Options::default() };
    setup
}

#[test]
fn strings_of_many_kilobytes_match_the_interpreter() {
    if !privileged("strings of many kilobytes") {
        return;
    }
    pin();
    for size in [512, 4 << 10, 5000, 8 << 10, 32 << 10] {
        let run = run_and_compare(huge(size), &[args(0, 0), args(0, 0), args(7, 0)]);
        let length = TEXT.to_bytes().len() as u64;
        assert_eq!(run.global(VarId(0), 8), length.to_le_bytes(), "{size}");
        println!(
            "{size}: slot {}, {} instructions; {}",
            run.layout.slot_bytes,
            run.compiled.code.insns.len(),
            run.log.lines().last().unwrap_or("")
        );
    }
}

#[test]
fn a_clause_of_two_thousand_statements_is_split_into_functions() {
    if !privileged("two thousand statements") {
        return;
    }
    pin();
    let mut text = TABLES.to_owned();
    long(&mut text, 10 * many());
    let mut setup = setup(&text);
    setup.options.dynvarsize = 16 << 20;
    let run = run_and_compare(setup, &[args(0, 0), args(0, 0)]);
    let pieces = run.compiled.code.funcs.iter().filter(|f| f.name.starts_with("dt_clause_")).count();
    assert!(pieces > 10 * many() / 100, "{pieces}");
    println!("{} instructions; {}", run.compiled.code.insns.len(), run.log.lines().last().unwrap_or(""));
}

#[test]
fn a_program_beyond_a_limit_is_rejected_with_the_limit() {
    if std::env::var_os("DTRACE_IN_VM").is_some() {
        testing::skipped!("asks nothing of the kernel");
        return;
    }
    let mut text = TABLES.to_owned();
    long(&mut text, 12_000);
    let setup = setup(&text);
    let layout = bpf_codegen::Layout::new(&setup.module, &[]);
    let error = session::compile_setup(&setup, &session::plan(&setup, &layout), &layout).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("too much for one probe: ") && text.ends_with("a program has 25000 at most"),
        "{text}"
    );
}
