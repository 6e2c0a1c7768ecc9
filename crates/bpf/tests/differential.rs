//! The back end against its oracle: random modules, run by the interpreter and, through `BPF_PROG_TEST_RUN`, by the
//! kernel that runs the test, must leave the same records, faults, variables, aggregations and drops.
//!
//! What is random beside the module is in [`Variant`]: how many probes the program serves and which clause is for
//! which of them, clauses of ERROR, whether the program is divided into functions, whether `exit()` stops what stands behind it, whether the kernel's types are used,
//! whether the module went through the optimizer.
//!
//! `SEED=n` runs one seed; `ROUNDS=n` more or fewer of them, from `START=n`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod session;

use std::collections::BTreeMap;

use bpf::program::{Division, ProbeSet, Target};
use dif::generate::{self, Config, Rng};
use dif::interp::{Fault, Interpreter, State, Val, World};
use dif::ir::{AggFunc, IntBuiltin, Module, Scope, Space, StrBuiltin, VarId, VarTy};
use plane::control::{Activity, DropKind};
use plane::ring;
use session::{EPIDS, ERROR, ERROR_ID, FIRST_ID, Run, Setup, names, pin, privileged, show, target};

/// Where the readable memory is, so that a seed means the same program in every run.
const MEMORY: u64 = 0x10_0000_0000;

/// What the firings of both sides see.
struct Same {
    args: [u64; 10],
    probe: u32,
    memory: Vec<u8>,
    /// The fault, while ERROR fires.
    fault: Option<Fault>,
}

impl Same {
    fn epid_of(&self, clause: usize) -> u32 {
        EPIDS * clause as u32 + self.probe
    }
}

impl World for Same {
    fn builtin(&mut self, b: IntBuiltin) -> i64 {
        // SAFETY: these only ask.
        unsafe {
            match (b, &self.fault) {
                (IntBuiltin::Arg(n), None) => self.args[n as usize] as i64,
                (IntBuiltin::Arg(1), Some(f)) => i64::from(self.epid_of(f.clause)),
                (IntBuiltin::Arg(2), Some(f)) => i64::from(f.action),
                (IntBuiltin::Arg(3), Some(f)) => i64::from(f.offset),
                (IntBuiltin::Arg(4), Some(f)) => f.kind as i64,
                (IntBuiltin::Arg(5), Some(f)) => f.value as i64,
                (IntBuiltin::Pid, _) => i64::from(libc::getpid()),
                (IntBuiltin::Ppid, _) => i64::from(libc::getppid()),
                (IntBuiltin::Tid, _) => i64::from(libc::gettid()),
                (IntBuiltin::Uid, _) => i64::from(libc::getuid()),
                (IntBuiltin::Gid, _) => i64::from(libc::getgid()),
                (IntBuiltin::ProbeId, None) => i64::from(FIRST_ID + self.probe),
                (IntBuiltin::ProbeId, Some(_)) => i64::from(ERROR_ID),
                _ => 0,
            }
        }
    }

    fn epid(&mut self, clause: usize) -> i64 {
        i64::from(if self.fault.is_some() { EPIDS * clause as u32 } else { self.epid_of(clause) })
    }

    fn builtin_str(&mut self, b: StrBuiltin) -> Vec<u8> {
        let part = match b {
            StrBuiltin::Execname => {
                let comm = std::fs::read("/proc/thread-self/comm").unwrap();
                return comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec();
            }
            StrBuiltin::ProbeProv => 0,
            StrBuiltin::ProbeMod => 1,
            StrBuiltin::ProbeFunc => 2,
            StrBuiltin::ProbeName => 3,
        };
        if self.fault.is_some() { ERROR[part].into() } else { names(self.probe)[part].clone().into_bytes() }
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let Some(at) = addr.checked_sub(MEMORY).map(|a| a as usize) else { return false };
        if !matches!(space, Space::User | Space::Unknown) || at + buffer.len() > self.memory.len() {
            return false;
        }
        buffer.copy_from_slice(&self.memory[at..at + buffer.len()]);
        true
    }

    fn error(&mut self, fault: Option<&Fault>) {
        self.fault = fault.cloned();
    }
}

/// What a seed decides beside its module.
struct Variant {
    probes: u32,
    sets: Vec<ProbeSet>,
    error: Vec<usize>,
    activity: Activity,
    types: bool,
    optimize: bool,
    comm: &'static std::ffi::CStr,
    division: Division,
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
        // One of the others may be ERROR's too, if only in this test.
        let error = if clauses > 1 && rng.one_in(3) { vec![clauses - 1] } else { Vec::new() };
        Variant {
            probes,
            sets,
            error,
            activity: if rng.one_in(2) { Activity::Active } else { Activity::Warmup },
            types: rng.one_in(2),
            optimize: rng.one_in(2),
            comm: [c"", c"a", c"execname", c"fifteen letters"][rng.below(4)],
            division: match rng.below(3) {
                0 => Division { whole: 0, part: rng.below(60) },
                _ => Division::default(),
            },
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
        setup.target = if self.types { target() } else { Target::default() };
        setup
    }
}

/// A page at [`MEMORY`], the next one unreadable.
fn memory() -> Vec<u8> {
    let mut bytes = vec![0u8; 4096];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i * 7 + 1) as u8;
    }
    bytes[40] = 0;
    bytes[300] = 0;
    bytes[4095] = 0;
    // SAFETY: the address is free in a test program; a mapping that is there already is ours from another thread.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let p = libc::mmap(MEMORY as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if p as u64 == MEMORY {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), MEMORY as *mut u8, 4096);
        }
    }
    bytes
}

fn rounds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|s: String| s.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    let start = number("START").unwrap_or(0);
    start..start + number("ROUNDS").unwrap_or(default)
}

fn compare(seed: u64, config: &Config) {
    // Seen when the test fails.
    println!("seed {seed}");
    // The kernel may have no memory at hand for a thread's first variable, which is a counted drop. Not twice.
    if !compared(seed, config, true) {
        compared(seed, config, false);
    }
}

/// False when the thread's variables could not be made, if that is allowed.
fn compared(seed: u64, config: &Config, may_drop: bool) -> bool {
    let mut module = generate::module(seed, config);
    let mut rng = Rng::new(seed ^ 0x5555);
    let variant = Variant::new(&mut rng, module.clauses.len());
    if variant.optimize {
        dif::opt::optimize(&mut module);
    }
    // SAFETY: names this thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, variant.comm.as_ptr()) };
    let memory = memory();
    let setup = variant.setup(&module);
    let mut state = State::new(&module);
    for n in session::interned(&module, variant.probes) {
        state.intern(&n);
    }
    let clauses = setup.clauses.clone();
    let mut run = Run::new(setup);
    let mut interpreter = Interpreter::new(&module).with_error(&variant.error);
    if variant.activity == Activity::Active {
        interpreter = interpreter.gated();
    }
    for firing in 0..3 {
        let mut args: [u64; 10] = std::array::from_fn(|_| rng.int() as u64);
        let mut probe = 0;
        if variant.probes > 1 {
            // Now and then one that is none of the program's.
            args[9] = rng.below(variant.probes as usize + 1) as u64;
            probe = args[9] as u32;
        }
        let mut world = Same { args, probe, memory: memory.clone(), fault: None };
        let fired = clauses.iter().filter(|(_, set)| probe < variant.probes && set.contains(probe));
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

fn records(state: &mut State, run: &mut Run, world: &Same) {
    let got = run.records();
    let faults: Vec<_> = got.iter().filter(|r| r.flags & ring::flags::FAULT != 0).collect();
    let committed: Vec<_> = got.iter().filter(|r| r.flags == 0).collect();
    let want = std::mem::take(&mut state.faults);
    assert_eq!(faults.len(), want.len(), "faults: {faults:?} {want:?}");
    for (g, w) in faults.iter().zip(&want) {
        let f = ring::Fault::read(&g.data).unwrap();
        assert_eq!(
            (g.epid, f.kind, f.action, f.offset, f.value),
            (world.epid_of(w.clause), w.kind as u16, w.action, w.offset, w.value),
        );
    }
    let want = std::mem::take(&mut state.records);
    assert_eq!(committed.len(), want.len(), "records");
    for (g, w) in committed.iter().zip(&want) {
        let probe = if run.setup.error.contains(&w.clause) { 0 } else { world.probe };
        assert_eq!(g.epid, EPIDS * w.clause as u32 + probe);
        assert_eq!(g.data.len(), w.data.len());
        for i in 0..w.data.len() {
            assert!(
                !w.written[i] || g.data[i] == w.data[i],
                "record byte {i}\n got {:x?}\nwant {:x?}",
                g.data,
                w.data,
            );
        }
    }
}

fn bytes(value: &Val, size: u32) -> Vec<u8> {
    match value {
        Val::Int(i) => i.to_le_bytes().to_vec(),
        Val::Str(s) => {
            let mut out = s.clone();
            out.resize(size as usize, 0);
            out
        }
    }
}

fn check(module: &Module, state: &mut State, run: &Run) {
    for (i, var) in module.vars.iter().enumerate() {
        let id = VarId(i as u32);
        let size = if var.ty == VarTy::Str { module.strsize } else { 8 };
        if var.key.is_some() {
            let mut got = run.elements(id);
            if var.scope == Scope::Thread {
                got = got.into_iter().map(|(k, v)| (k[8..].to_vec(), v)).collect();
            }
            let want: BTreeMap<_, _> =
                state.elements(id).map(|(_, k, v)| (k.to_vec(), bytes(v, size))).collect();
            assert_eq!(got, want, "{}", var.name);
        } else if var.scope == Scope::Global {
            let want = state.global(id).map_or(vec![0; size as usize], |v| bytes(v, size));
            assert_eq!(run.global(id, size), want, "{}", var.name);
        }
    }
    for i in 0..module.aggs.len() {
        let got = run.aggregation(i as u32);
        let mut want = state.aggregations[i].clone();
        if module.aggs[i].key_size == 0 {
            // A keyless value of zeros cannot be told from none, and says the same.
            want.retain(|_, words| words.iter().any(|w| *w != 0) || !got.is_empty());
        }
        assert_eq!(got, want, "@{}", module.aggs[i].name);
    }
    for kind in DropKind::ALL {
        let want = if kind == DropKind::DoubleError { state.drops.double_error } else { 0 };
        assert_eq!(run.drops(kind), want, "{kind:?}");
    }
    assert_eq!(plane::control::Activity::of(run.activity()) == Activity::Draining, state.exit.is_some());
    if let Some(status) = state.exit {
        assert_eq!(plane::control::exit_status(run.activity()), status);
    }
}

#[test]
fn integers_compute_what_the_interpreter_computes() {
    if !privileged("integers") {
        return;
    }
    pin();
    for seed in rounds(500) {
        compare(seed, &Config::integers());
    }
}

fn whole() -> Config {
    Config {
        readable: vec![(Space::User, MEMORY, 4096), (Space::Unknown, MEMORY + 41, 4055)],
        unreadable: vec![(Space::User, MEMORY + 4096 * 4), (Space::Kernel, 0xffff_8000_0000_0000)],
        int_builtins: (0..10)
            .map(IntBuiltin::Arg)
            .chain([IntBuiltin::Pid, IntBuiltin::Tid, IntBuiltin::Uid, IntBuiltin::Gid, IntBuiltin::ProbeId])
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
fn variables_strings_and_aggregations_end_as_the_interpreter_leaves_them() {
    if !privileged("whole") {
        return;
    }
    pin();
    for seed in rounds(500) {
        let strsize = [32, 16, 32, 256][seed as usize % 4];
        compare(seed, &Config { strsize, ..whole() });
    }
}
