//! The cost of subroutines for the kernel's verifier, and a program with all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use dif::interp::{Interpreter, State, Val, World};
use dif::ir::{Ty, VarId};
use dif::subr::{Effect, Param, Row, TABLE};

use crate::session::{Run, Setup, pin, privileged};

struct Nothing;

impl World for Nothing {}

/// A program that calls each of these once, on strings that the optimizer does not know, and stores
/// each result in a variable.
fn program(rows: &[&Row], strsize: u32) -> Setup {
    let mut text =
        format!("module strsize {strsize}\nstring s0 = \"\"\nstring s1 = \"/a/b\"\nstring s2 = \"b\"\n");
    for (i, row) in rows.iter().enumerate() {
        let ty = if row.result == Ty::Str { "str" } else { "int" };
        writeln!(text, "var var{i} = global \"x{i}\" {ty}").unwrap();
    }
    text.push_str(
        "\nclause \"clause_0\" {\nb0:\n    v0:str = str s1\n    v1:str = str s2\n    v2:int = const 10\n",
    );
    for (i, row) in rows.iter().enumerate() {
        let args: Vec<&str> = row
            .params
            .iter()
            .enumerate()
            .map(|(n, p)| match (p, n) {
                (Param::Str, 0) => "v0",
                (Param::Str, _) => "v1",
                _ => "v2",
            })
            .collect();
        let (v, ty) = (i + 3, if row.result == Ty::Str { "str" } else { "int" });
        writeln!(text, "    v{v}:{ty} = call {} {}", row.name, args.join(", ")).unwrap();
        writeln!(text, "    storevar var{i}, v{v}").unwrap();
    }
    text.push_str("    return\n}\n");
    let module = dif::text::parse(&text).unwrap();
    dif::verify::verify(&module).unwrap();
    Setup::new(module)
}

/// Runs the program and compares. Returns the number of instructions that the verifier processed.
fn run(rows: &[&Row], strsize: u32) -> (usize, String) {
    let setup = program(rows, strsize);
    let module = setup.module.clone();
    let mut state = State::new(&module);
    Interpreter::new(&module).fire(&[0], &mut state, &mut Nothing);
    let run = Run::new(setup);
    run.fire(&[0; 10]);
    for (i, row) in rows.iter().enumerate() {
        let (id, size) = (VarId(i as u32), if row.result == Ty::Str { strsize } else { 8 });
        let mut want = match state.global(id) {
            Some(Val::Int(n)) => n.to_le_bytes().to_vec(),
            Some(Val::Str(s)) => s.clone(),
            Some(Val::Null) => b"\0\xff".to_vec(),
            other => panic!("{}: {other:?}", row.name),
        };
        want.resize(size as usize, 0);
        assert_eq!(run.global(id, size), want, "{}", row.name);
    }
    let processed = run.log.lines().find(|l| l.starts_with("processed")).unwrap_or("").to_string();
    (run.compiled.code.insns.len(), processed)
}

/// The subroutines whose value follows from numbers and strings.
fn pure() -> Vec<&'static Row> {
    let state = |r: &&Row| r.effect == Effect::None || r.name.starts_with("strtok");
    let plain = |r: &&Row| !r.params.contains(&Param::Ptr) && !r.name.starts_with('_');
    TABLE.iter().filter(state).filter(plain).collect()
}

#[test]
fn all_subroutines_load_in_one_program_for_every_string_size() {
    if !privileged("all subroutines") {
        return;
    }
    pin();
    for strsize in [8, 16, 256, 1024, 4096, 16384] {
        let start = std::time::Instant::now();
        let (instructions, processed) = run(&pure(), strsize);
        println!("strsize {strsize}: {instructions} instructions, {:?}; {processed}", start.elapsed());
        // "processed N insns …". Kernels without the statistics do not print it.
        let steps = processed.split_whitespace().nth(1).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        assert!(steps < 200_000, "strsize {strsize}: {steps}");
    }
}

#[test]
fn each_subroutine_loads_and_matches_the_interpreter() {
    if !privileged("each subroutine") {
        return;
    }
    pin();
    for row in pure() {
        let (instructions, processed) = run(&[row], 256);
        println!("{}: {instructions} instructions; {processed}", row.name);
    }
}
