//! Tests of single optimizations on small functions, and of all of them against the interpreter on
//! random modules.

use super::*;
use crate::FunctionBuilder;
use crate::generate::{Config, Rng, module};
use crate::interp::{Interpreter, Outcome, State, World};
use crate::ir::{
    BinOp, Clause, Cond, IntBuiltin, Scope, Space, StrBuiltin, Subr, UnOp, Value, VarDesc, VarId, VarTy,
};
use crate::text::{parse, print};
use crate::verify::verify;

/// A world generated from a seed: the same for both runs.
struct SeededWorld {
    args: [i64; 10],
    memory: Vec<u8>,
}

const BASE: u64 = 0x7000_0000;

impl SeededWorld {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let memory = (0..64).map(|i| if i % 16 == 15 { 0 } else { rng.bits() as u8 }).collect();
        SeededWorld { args: std::array::from_fn(|_| rng.int()), memory }
    }
}

impl World for SeededWorld {
    fn builtin(&mut self, builtin: IntBuiltin) -> i64 {
        match builtin {
            IntBuiltin::Arg(n) => self.args[usize::from(n)],
            IntBuiltin::Pid => 4711,
            _ => 3,
        }
    }

    fn builtin_str(&mut self, builtin: StrBuiltin) -> Vec<u8> {
        match builtin {
            StrBuiltin::Execname => b"a process".to_vec(),
            StrBuiltin::ProbeFunc => b"read".to_vec(),
            _ => b"entry".to_vec(),
        }
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let Some(start) = addr.checked_sub(BASE).map(|a| a as usize) else { return false };
        match self.memory.get(start..start.saturating_add(buffer.len())) {
            Some(bytes) if space == Space::User => {
                buffer.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

/// The outcomes and the state, which must be equal. The offsets of faults may differ, so they are
/// cleared.
fn run(module: &Module, seed: u64) -> (Vec<Outcome>, State) {
    let mut state = State::new(module);
    // Interned before the run, as in a session. Otherwise a read whose value is unused may change
    // the order of interned numbers.
    state.intern(b"read");
    state.intern(b"entry");
    let mut world = SeededWorld::new(seed);
    let interpreter = Interpreter::new(module);
    let all: Vec<usize> = (0..module.clauses.len()).collect();
    let mut outcomes = Vec::new();
    // Runs twice, so that variables have values in the second run.
    for _ in 0..2 {
        outcomes.extend(interpreter.fire(&all, &mut state, &mut world));
        world.args.rotate_left(1);
    }
    for outcome in &mut outcomes {
        if let Outcome::Faulted(fault) = outcome {
            fault.offset = 0;
        }
    }
    state.faults.iter_mut().for_each(|f| f.offset = 0);
    (outcomes, state)
}

fn config(seed: u64) -> Config {
    let full = Config {
        readable: vec![(Space::User, BASE, 64)],
        unreadable: vec![(Space::User, 0), (Space::Kernel, 0xdead), (Space::User, BASE + 64)],
        ..Config::default()
    };
    match seed % 4 {
        0 => Config::integers(),
        1 => Config { depth: 5, statements: 12, ..full },
        2 => Config { strings: false, objects: true, ..full },
        _ => Config { objects: seed % 8 < 4, ..full },
    }
}

/// `DIF_SEEDS=100000` runs more seeds.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("DIF_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

#[test]
fn optimized_modules_verify_and_compute_the_same() {
    for seed in seeds() {
        let before = module(seed, &config(seed));
        verify(&before).unwrap_or_else(|e| panic!("seed {seed}: generated: {e}\n{}", print(&before, None)));
        let mut after = before.clone();
        optimize(&mut after);
        verify(&after).unwrap_or_else(|e| panic!("seed {seed}: optimized: {e}\n{}", print(&after, None)));
        // Addresses of scratch memory have serial numbers only where a clause keeps some: here it
        // was one that cannot be reached.
        if (before.scratch_kept() > 0) != (after.scratch_kept() > 0) {
            continue;
        }
        for world in 0..4 {
            let (a, b) = (run(&before, seed * 8 + world), run(&after, seed * 8 + world));
            assert_eq!(a, b, "seed {seed}\n{}\n{}", print(&before, None), print(&after, None));
        }
    }
}

/// What a clause does between two loads.
#[derive(Clone, Copy)]
enum Between {
    Nothing,
    Store,
    Call(Subr),
}

/// The number of loads that are left of two from one address, the second behind a branch that the
/// first decides.
fn loads_of(space: Space, between: Between) -> usize {
    let mut module = Module::new(64);
    let mut b = FunctionBuilder::new("clause_0");
    let number = b.builtin(IntBuiltin::Arg(0));
    let at = b.as_ptr(space, number);
    let first = b.load(4, false, at);
    let (again, end) = (b.create_block(), b.create_block());
    b.branch(first, (again, vec![]), (end, vec![]));
    b.switch_to(again);
    match between {
        Between::Nothing => {}
        Between::Store => {
            let unknown = b.as_ptr(Space::Unknown, number);
            b.store(4, unknown, number);
        }
        Between::Call(subr) => {
            b.call(subr, vec![number]);
        }
    }
    let second = b.load(4, false, at);
    let status = b.bin(BinOp::Add, first, second);
    b.exit(status);
    b.jump(end, vec![]);
    b.switch_to(end);
    b.ret();
    let mut function = b.finish().unwrap();
    optimize_function(&module, &mut function);
    module.clauses.push(Clause { func: function.clone(), record: None, span: None });
    verify(&module).unwrap();
    function.instructions().filter(|(_, i)| matches!(i.op, crate::ir::Op::Load { .. })).count()
}

#[test]
fn a_number_in_kernel_memory_is_loaded_once_and_one_that_the_clause_may_write_again() {
    assert_eq!(loads_of(Space::Kernel, Between::Nothing), 1);
    assert_eq!(loads_of(Space::Kernel, Between::Store), 1);
    assert_eq!(loads_of(Space::Unknown, Between::Nothing), 1);
    assert_eq!(loads_of(Space::Unknown, Between::Store), 2);
    // Another thread of the process may write it.
    assert_eq!(loads_of(Space::User, Between::Nothing), 2);
}

#[test]
fn kernel_memory_is_loaded_again_by_a_clause_that_waits_or_sends_a_signal() {
    for subr in [Subr::Chill, Subr::Raise] {
        assert_eq!(loads_of(Space::Kernel, Between::Call(subr)), 2, "{subr:?}");
        assert_eq!(loads_of(Space::Unknown, Between::Call(subr)), 2, "{subr:?}");
    }
    assert_eq!(loads_of(Space::Kernel, Between::Call(Subr::Discard)), 1);
}

#[test]
fn printed_modules_parse_back_to_equal_modules() {
    for seed in seeds() {
        let module = module(seed, &config(seed));
        let text = print(&module, None);
        assert_eq!(parse(&text).as_ref(), Ok(&module), "seed {seed}\n{text}");
    }
}

#[test]
fn optimizing_makes_generated_modules_smaller() {
    let count = |m: &Module| m.clauses.iter().map(|c| c.func.instructions().count()).sum::<usize>();
    let (mut before, mut after) = (0, 0);
    for seed in 0..200 {
        let mut module = module(seed, &config(seed));
        before += count(&module);
        optimize(&mut module);
        after += count(&module);
    }
    assert!(after * 4 < before * 3, "{before} instructions became {after}");
}

/// Values near which results change.
const EDGES: [i64; 17] =
    [0, 1, 2, 3, 7, 63, 64, 65, 127, -1, -2, -128, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX, i64::MIN];

/// Compares one expression of `arg0`, stored in global 0, before and after optimizing, for every
/// edge value.
fn same_for_all(what: &dyn std::fmt::Debug, expression: impl FnOnce(&mut FunctionBuilder, Value) -> Value) {
    let mut before = Module::new(64);
    before.vars.push(VarDesc {
        name: "x".into(),
        scope: Scope::Global,
        ty: VarTy::Int,
        key: None,
        key_size: 0,
    });
    let mut b = FunctionBuilder::new("edges");
    let x = b.builtin(IntBuiltin::Arg(0));
    let value = expression(&mut b, x);
    b.store_var(VarId(0), value);
    b.ret();
    before.clauses.push(Clause { func: b.finish().unwrap(), record: None, span: None });
    let mut after = before.clone();
    optimize(&mut after);
    verify(&after).unwrap();
    let run = |module: &Module, x: i64| {
        let mut state = State::new(module);
        let mut world = SeededWorld { args: [x; 10], memory: Vec::new() };
        Interpreter::new(module).fire(&[0], &mut state, &mut world);
        (state.global(VarId(0)).cloned(), state.faults.iter().map(|f| (f.kind, f.value)).collect::<Vec<_>>())
    };
    for x in EDGES {
        assert_eq!(run(&before, x), run(&after, x), "{what:?} of {x:#x}\n{}", print(&after, None));
    }
}

#[test]
fn optimizing_keeps_every_operation_with_an_edge_value_on_either_side() {
    for n in EDGES {
        for op in BinOp::ALL {
            same_for_all(&(op, "x", n), |b, x| {
                let n = b.int(n);
                b.bin(op, x, n)
            });
            same_for_all(&(n, op, "x"), |b, x| {
                let n = b.int(n);
                b.bin(op, n, x)
            });
            for m in EDGES {
                same_for_all(&(m, op, n), |b, _| {
                    let (m, n) = (b.int(m), b.int(n));
                    b.bin(op, m, n)
                });
                same_for_all(&("x", op, m, op, n), |b, x| {
                    let (m, n) = (b.int(m), b.int(n));
                    let inner = b.bin(op, x, m);
                    b.bin(op, inner, n)
                });
            }
        }
        for cond in Cond::ALL {
            same_for_all(&(cond, "x", n), |b, x| {
                let n = b.int(n);
                b.cmp(cond, x, n)
            });
            same_for_all(&(cond, n, "x", "== 0"), |b, x| {
                let (n, zero) = (b.int(n), b.int(0));
                let inner = b.cmp(cond, n, x);
                b.cmp(Cond::Eq, inner, zero)
            });
        }
    }
}

#[test]
fn optimizing_keeps_every_extension_and_every_operation_of_a_value_with_itself() {
    let extensions: Vec<(u8, bool)> = [8, 16, 32].iter().flat_map(|b| [(*b, false), (*b, true)]).collect();
    for outer in &extensions {
        for inner in &extensions {
            same_for_all(&(outer, inner), |b, x| {
                let x = b.ext(inner.0, inner.1, x);
                b.ext(outer.0, outer.1, x)
            });
        }
        for n in EDGES {
            for op in [BinOp::And, BinOp::Lshr, BinOp::Urem] {
                same_for_all(&(outer, op, n), |b, x| {
                    let n = b.int(n);
                    let x = b.bin(op, x, n);
                    b.ext(outer.0, outer.1, x)
                });
                same_for_all(&(op, n, outer), |b, x| {
                    let n = b.int(n);
                    let x = b.ext(outer.0, outer.1, x);
                    b.bin(op, x, n)
                });
            }
        }
    }
    for op in BinOp::ALL {
        same_for_all(&(op, "x", "x"), |b, x| b.bin(op, x, x));
    }
    for cond in Cond::ALL {
        same_for_all(&(cond, "x", "x"), |b, x| b.cmp(cond, x, x));
    }
    for outer in [UnOp::Neg, UnOp::Not] {
        for inner in [UnOp::Neg, UnOp::Not] {
            same_for_all(&(outer, inner), |b, x| {
                let x = b.un(inner, x);
                b.un(outer, x)
            });
        }
    }
}
