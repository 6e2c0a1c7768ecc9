//! Differential tests of the back end against its oracle. Random modules are run by the interpreter
//! and, through `BPF_PROG_TEST_RUN`, by the running kernel. Both must leave the same records,
//! faults, variables, aggregations and drops.
//!
//! [`Variant`] contains the random choices beside the module: the number of probes of the program,
//! the probes of each clause, the clauses of ERROR, whether the program is divided into functions,
//! whether `exit()` stops the clauses behind it, whether the kernel's types are used, and whether
//! the module was optimized.
//!
//! `SEED=n` runs one seed. `ROUNDS=n` sets the number of seeds, from `START=n`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bpf_codegen::Division;
use bpf_codegen::context::ProbeSet;
use bpf_codegen::target::Target;
use dif::generate::{self, Config, Rng};
use dif::interp::{Interpreter, State};
use dif::ir::{AggFunc, IntBuiltin, Module, Scope, Space, StrBuiltin};
use plane::control::{Activity, DropKind};

use crate::session::oracle::{MEMORY, Same, check, memory, records};
use crate::session::{self, Run, Setup, pin, privileged, rounds, show, target};

/// The choices of a seed beside its module.
struct Variant {
    probes: u32,
    sets: Vec<ProbeSet>,
    error: Vec<usize>,
    activity: Activity,
    types: bool,
    optimize: bool,
    comm: &'static std::ffi::CStr,
    division: Division,
    growing: bool,
}

impl Variant {
    fn new(rng: &mut Rng, clauses: usize) -> Variant {
        let probes: u32 = [1, 1, 3, 70][rng.below(4)];
        let mut set = || match rng.below(4) {
            0 => ProbeSet::One(rng.below(probes as usize) as u32),
            1 => ProbeSet::Bitmap((0..probes.div_ceil(64)).map(|_| rng.bits()).collect()),
            _ => ProbeSet::All,
        };
        let sets = (0..clauses).map(|_| set()).collect();
        // Another clause may belong to ERROR too. Only this test does that.
        let error = if clauses > 1 && rng.one_in(3) { vec![clauses - 1] } else { Vec::new() };
        Variant {
            probes,
            sets,
            error,
            activity: [Activity::Active, Activity::Warmup, Activity::Draining][rng.below(3)],
            types: rng.one_in(2),
            optimize: rng.one_in(2),
            comm: [c"", c"a", c"execname", c"fifteen letters"][rng.below(4)],
            division: match rng.below(3) {
                0 => Division { whole: 0, part: rng.below(60) },
                _ => Division::default(),
            },
            growing: rng.one_in(3),
        }
    }

    fn setup(&self, module: &Module) -> Setup {
        let mut setup = Setup::new(module.clone());
        setup.probes = self.probes;
        setup.clauses = self.sets.iter().cloned().enumerate().collect();
        setup.clauses.retain(|(c, _)| !self.error.contains(c));
        setup.error.clone_from(&self.error);
        setup.activity = self.activity;
        setup.division = self.division;
        setup.growing = self.growing;
        setup.target = if self.types { target() } else { Target::default() };
        setup
    }
}

fn compare(seed: u64, config: &Config) {
    compare_divided(seed, config, None);
}

fn compare_divided(seed: u64, config: &Config, division: Option<Divide>) {
    // Printed when the test fails.
    println!("seed {seed}");
    // The kernel may have no memory for a thread's first variable, which is a counted drop. That
    // may happen once.
    if !compared(seed, config, division, true) {
        compared(seed, config, division, false);
    }
}

/// Chooses how programs are divided, instead of the seed.
type Divide = fn(&mut Rng, &Module) -> Division;

/// False when the thread's variables could not be created, where that is allowed.
fn compared(seed: u64, config: &Config, division: Option<Divide>, may_drop: bool) -> bool {
    let mut module = generate::module(seed, config);
    let mut rng = Rng::new(seed ^ 0x5555);
    let mut variant = Variant::new(&mut rng, module.clauses.len());
    if let Some(divide) = division {
        variant.division = divide(&mut rng, &module);
    }
    if variant.optimize {
        dif::opt::optimize(&mut module);
    }
    // SAFETY: sets the name of this thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, variant.comm.as_ptr()) };
    let memory = memory();
    let setup = variant.setup(&module);
    let mut state = State::new(&module);
    for n in session::interned(&module, variant.probes) {
        state.intern(&n);
    }
    let clauses = setup.clauses.clone();
    if let Some(limit) = session::limit(&setup) {
        println!("a limit: {limit}");
        return true;
    }
    let mut run = Run::new(setup);
    let mut interpreter = Interpreter::new(&module).with_error(&variant.error);
    interpreter = match variant.activity {
        Activity::Draining => interpreter.at_end(),
        _ => interpreter.ending_at_exit(),
    };
    for firing in 0..3 {
        let mut args: [u64; 10] = std::array::from_fn(|_| rng.int() as u64);
        let mut probe = 0;
        let mut gone = false;
        if variant.growing {
            probe = rng.below(variant.probes as usize) as u32;
            // Some firings are of sites that were removed, and of rows and chunks that do not
            // exist.
            args[9] = match rng.below(8) {
                0 => session::cookie(probe) + (1 << 32),
                1 => session::cookie(probe) + 128,
                2 => session::cookie(probe) + (1 << 20),
                _ => session::cookie(probe),
            };
            gone = args[9] != session::cookie(probe);
        } else if variant.probes > 1 {
            // Some firings are of no probe of the program.
            args[9] = rng.below(variant.probes as usize + 1) as u64;
            probe = args[9] as u32;
        }
        let growing = variant.growing.then(|| clauses.iter().map(|(c, _)| *c).collect());
        let mut world = Same { args, probe, memory: memory.clone(), fault: None, growing };
        let fired = clauses.iter().filter(|(_, set)| !gone && probe < variant.probes && set.contains(probe));
        let fired: Vec<usize> = fired.map(|(c, _)| *c).collect();
        interpreter.fire(&fired, &mut state, &mut world);
        run.fire(&args);
        if may_drop
            && run.drops(DropKind::Dynamic) > 0
            && module.vars.iter().any(|v| v.scope == Scope::Thread)
        {
            return false;
        }
        let why = format!("seed {seed}, firing {firing} of probe {probe}, args {args:x?}");
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&module, &mut state, &run);
            records(&mut state, &mut run, &world);
        }));
        if let Err(e) = checked {
            println!("{why}\n{}", show(&module, &run.compiled));
            println!("{why}");
            std::panic::resume_unwind(e);
        }
        if state.exit.is_some() {
            break;
        }
    }
    true
}

#[test]
fn integer_arithmetic_matches_the_interpreter() {
    if !privileged("integers") {
        return;
    }
    pin();
    for seed in rounds(120) {
        compare(seed, &Config::integers());
    }
}

fn whole() -> Config {
    Config {
        readable: vec![(Space::User, MEMORY, 4096), (Space::User, MEMORY + 41, 4055)],
        unreadable: vec![(Space::User, MEMORY + 4096 * 4), (Space::Kernel, 0xffff_8000_0000_0000)],
        int_builtins: (0..10)
            .map(IntBuiltin::Arg)
            .chain([IntBuiltin::Pid, IntBuiltin::Tid, IntBuiltin::Uid, IntBuiltin::Gid, IntBuiltin::ProbeId])
            .chain([IntBuiltin::ProviderPid])
            .chain([IntBuiltin::Epid, IntBuiltin::Epid])
            .collect(),
        str_builtins: vec![
            StrBuiltin::Execname,
            StrBuiltin::ProbeProv,
            StrBuiltin::ProbeMod,
            StrBuiltin::ProbeFunc,
            StrBuiltin::ProbeName,
        ],
        aggregations: Config::default()
            .aggregations
            .into_iter()
            .chain([
                AggFunc::Stddev,
                AggFunc::Lquantize { base: -100, limit: 101, step: 10 },
                AggFunc::Llquantize { factor: 10, low: 0, high: 6, nsteps: 20 },
            ])
            .collect(),
        ..Config::default()
    }
}

#[test]
fn subroutines_match_the_interpreter() {
    if !privileged("subroutines") {
        return;
    }
    pin();
    for seed in rounds(120) {
        let strsize = [32, 13, 64, 255, 8][seed as usize % 5];
        let config =
            Config { strsize, subroutines: true, aggregations: Vec::new(), arrays: false, ..whole() };
        compare(seed, &config);
    }
}

#[test]
fn variables_strings_and_aggregations_match_the_interpreter() {
    if !privileged("whole") {
        return;
    }
    pin();
    for seed in rounds(120) {
        let strsize = [32, 15, 29, 256][seed as usize % 4];
        compare(seed, &Config { strsize, ..whole() });
    }
}

#[test]
fn objects_pointers_and_scratch_memory_match_the_interpreter() {
    if !privileged("objects") {
        return;
    }
    pin();
    for seed in rounds(120) {
        let strsize = [31, 16, 64, 250][seed as usize % 4];
        compare(seed, &Config { strsize, objects: true, ..whole() });
    }
}

/// Segments of the smallest possible size.
fn in_small_segments(rng: &mut Rng, module: &Module) -> Division {
    let operations: usize =
        module.clauses.iter().flat_map(|c| &c.func.blocks).map(|b| b.insts.len() + 1).sum();
    Division { whole: 0, part: 1 + operations / 100 + rng.below(30) }
}

#[test]
fn split_clauses_leave_the_state_that_the_interpreter_leaves() {
    if !privileged("pieces") {
        return;
    }
    pin();
    for seed in rounds(40) {
        let strsize = [32, 11, 64][seed as usize % 3];
        let objects = seed % 2 == 1;
        let config = Config { strsize, objects, statements: 9, clauses: 2, ..whole() };
        compare_divided(seed, &config, Some(in_small_segments));
    }
}
