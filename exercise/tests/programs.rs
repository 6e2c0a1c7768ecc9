//! Generated programs are run by the DIF interpreter and, through `BPF_PROG_TEST_RUN`, by the
//! running kernel. Both must produce the same records, faults, variables, aggregations and drops.
//! So these tests compare everything from the text to the kernel with the semantics of DIF. The
//! golden tests check that the DIF is what D means.
//!
//! `ROUNDS=n` sets the number of rounds, `START=n` the first seed. `SEED=n` runs one seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bpf_codegen::Division;
use dif::interp::{Interpreter, State};
use dif::ir::{Module, Scope};
use exercise::choices::Choices;
use exercise::generate::{Shape, program};
use exercise::stages::{Compiled, compile};
use plane::control::{Activity, DropKind};

use crate::session::oracle::{MEMORY, Same, check, memory, records};
use crate::session::{self, Run, Setup, pin, privileged, rounds, show};

/// The result of running a program.
#[derive(PartialEq)]
enum RunResult {
    /// The interpreter and the kernel agree.
    Same,
    /// The program exceeds a limit of the back end.
    Limit,
    /// The kernel had no memory available for a thread's first variable. This is a counted drop.
    NoMemory,
}

fn run(module: &Module, text: &str, choices: &mut Choices<'_>) -> RunResult {
    let mut setup = Setup::new(module.clone());
    if choices.one_in(2) {
        setup.activity = Activity::Warmup;
    }
    if choices.one_in(3) {
        setup.division = Division { whole: 0, part: choices.below(60) };
    }
    if let Some(e) = session::limit(&setup) {
        println!("a limit: {e}\n{text}");
        return RunResult::Limit;
    }
    let clauses: Vec<usize> = (0..module.clauses.len()).collect();
    let interpreter = Interpreter::new(module).ending_at_exit();
    let mut state = State::new(module);
    for n in session::interned(module, setup.probes) {
        state.intern(&n);
    }
    let memory = memory();
    let loaded = catch_unwind(AssertUnwindSafe(|| Run::new(setup)));
    let mut run = loaded.unwrap_or_else(|e| {
        println!("{text}");
        resume_unwind(e)
    });
    for firing in 0..3 {
        let args: [u64; 10] = std::array::from_fn(|_| choices.bits() >> choices.below(64));
        let mut world = Same { args, probe: 0, memory: memory.clone(), fault: None, growing: None };
        interpreter.fire(&clauses, &mut state, &mut world);
        run.fire(&args);
        if run.drops(DropKind::Dynamic) > 0 && module.vars.iter().any(|v| v.scope == Scope::Thread) {
            return RunResult::NoMemory;
        }
        let compared = catch_unwind(AssertUnwindSafe(|| {
            check(module, &mut state, &run);
            records(&mut state, &mut run, &world);
        }));
        if let Err(e) = compared {
            println!("{}\nfiring {firing}, args {args:x?}\n{text}", show(module, &run.compiled));
            resume_unwind(e);
        }
        if state.exit.is_some() {
            break;
        }
    }
    RunResult::Same
}

fn agree(name: &str, shape: &Shape, default: u64) {
    if !privileged(name) {
        return;
    }
    pin();
    let (mut same, mut tried) = (0, 0);
    for seed in rounds(default) {
        let mut choices = Choices::seed(seed);
        let text = program(&mut choices, shape);
        let strsize = [61, 256, 10, 32][seed as usize % 4];
        let module = match compile(&text, strsize, None) {
            Ok(Compiled::Module(module, _)) => module,
            Ok(Compiled::Rejected(_)) => continue,
            Err(bug) => panic!("seed {seed}: {bug}"),
        };
        println!("seed {seed}, strsize {strsize}");
        tried += 1;
        same += u32::from(run(&module, &text, &mut choices) == RunResult::Same);
    }
    // Of a small number of rounds, one may be beyond a limit.
    assert!(tried - same <= tried / 10 + 1, "only {same} of {tried} could be compared");
}

#[test]
fn kernel_and_interpreter_agree_on_integers_and_variables() {
    let shape = Shape { strings: false, subroutines: false, objects: false, ..Shape::default() };
    agree("kernel_and_interpreter_agree_on_integers_and_variables", &shape, 150);
}

#[test]
fn kernel_and_interpreter_agree_on_strings() {
    let shape =
        Shape { subroutines: false, objects: false, memory: Some((MEMORY, 4096)), ..Shape::default() };
    agree("kernel_and_interpreter_agree_on_strings", &shape, 150);
}

#[test]
fn kernel_and_interpreter_agree_on_subroutines() {
    let shape = Shape { objects: false, depth: 3, ..Shape::default() };
    agree("kernel_and_interpreter_agree_on_subroutines", &shape, 150);
}

#[test]
fn kernel_and_interpreter_agree_on_structs_and_arrays() {
    let shape = Shape { subroutines: false, ..Shape::default() };
    agree("kernel_and_interpreter_agree_on_structs_and_arrays", &shape, 150);
}
