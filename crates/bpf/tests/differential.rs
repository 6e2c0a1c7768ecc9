//! The back end against its oracle: random modules, run by the interpreter and, through `BPF_PROG_TEST_RUN`, by the
//! kernel that runs the test, must leave the same records, faults, variables and aggregations.
//!
//! `SEED=n` runs one seed; `ROUNDS=n` more of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod session;

use dif::generate::{self, Config, Rng};
use dif::interp::{Interpreter, State, Val, World};
use dif::ir::{IntBuiltin, Module, Scope, Space, StrBuiltin, VarId, VarTy};
use plane::control::Activity;
use plane::ring;
use session::{NAMES, Run, Setup, pin};

/// Where the readable memory is, so that a seed means the same program in every run.
const MEMORY: u64 = 0x10_0000_0000;

struct Same {
    args: [u64; 10],
    memory: Vec<u8>,
}

impl World for Same {
    fn builtin(&mut self, b: IntBuiltin) -> i64 {
        // SAFETY: these only ask.
        unsafe {
            match b {
                IntBuiltin::Arg(n) => self.args[n as usize] as i64,
                IntBuiltin::Pid | IntBuiltin::InitPid => i64::from(libc::getpid()),
                IntBuiltin::Tid => i64::from(libc::gettid()),
                IntBuiltin::Uid => i64::from(libc::getuid()),
                IntBuiltin::Gid => i64::from(libc::getgid()),
                IntBuiltin::ProbeId => 77,
                _ => 0,
            }
        }
    }

    fn builtin_str(&mut self, b: StrBuiltin) -> Vec<u8> {
        match b {
            StrBuiltin::Execname => {
                let comm = std::fs::read("/proc/thread-self/comm").unwrap();
                comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec()
            }
            StrBuiltin::ProbeProv => NAMES[0].into(),
            StrBuiltin::ProbeMod => NAMES[1].into(),
            StrBuiltin::ProbeFunc => NAMES[2].into(),
            StrBuiltin::ProbeName => NAMES[3].into(),
        }
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let Some(at) = addr.checked_sub(MEMORY).map(|a| a as usize) else { return false };
        if !matches!(space, Space::User | Space::Unknown) || at + buffer.len() > self.memory.len() {
            return false;
        }
        buffer.copy_from_slice(&self.memory[at..at + buffer.len()]);
        true
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

fn privileged(test: &str) -> bool {
    // SAFETY: asks only.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: {test}: not root");
    }
    root
}

fn compare(seed: u64, config: &Config) {
    let module = generate::module(seed, config);
    let memory = memory();
    let mut rng = Rng::new(seed ^ 0x5555);
    let mut setup = Setup::new(module.clone());
    if config.exit {
        // As BEGIN: clauses after the one with exit() still run.
        setup.activity = Activity::Warmup;
    }
    let mut state = State::new(&module);
    for n in NAMES {
        state.intern(n.as_bytes());
    }
    let clauses = setup.clauses.clone();
    let mut run = Run::new(setup);
    for firing in 0..3 {
        let mut args = [0; 10];
        for a in &mut args {
            *a = rng.int() as u64;
        }
        let mut world = Same { args, memory: memory.clone() };
        Interpreter::new(&module).fire(&clauses, &mut state, &mut world);
        run.fire(&args);
        let context = || {
            format!(
                "seed {seed}, firing {firing}, args {args:x?}\n{}\n{}",
                dif::text::print(&module, None),
                bpf::disasm::listing(&run.compiled.code.insns)
            )
        };
        let text = std::cell::OnceCell::new();
        let why = || text.get_or_init(context).clone();
        check(&module, &mut state, &run, &why);
        drop(text);
        let why = format!("seed {seed}, firing {firing}");
        records(&module, &mut state, &mut run, &why);
        if state.exit.is_some() {
            break;
        }
    }
}

fn show(module: &Module, run: &Run) -> String {
    format!("{}\n{}", dif::text::print(module, None), bpf::disasm::listing(&run.compiled.code.insns))
}

fn records(module: &Module, state: &mut State, run: &mut Run, why: &str) {
    let got = run.records();
    let faults: Vec<_> = got.iter().filter(|r| r.flags & ring::flags::FAULT != 0).collect();
    let committed: Vec<_> = got.iter().filter(|r| r.flags == 0).collect();
    let want = std::mem::take(&mut state.faults);
    assert_eq!(faults.len(), want.len(), "faults {why}: {faults:?} {want:?}\n{}", show(module, run));
    for (g, w) in faults.iter().zip(&want) {
        let f = ring::Fault::read(&g.data).unwrap();
        assert_eq!(
            (g.epid as usize, f.kind, f.action, f.offset, f.value),
            (w.clause, w.kind as u16, w.action, w.offset, w.value),
            "fault {why}\n{}",
            show(module, run)
        );
    }
    let want = std::mem::take(&mut state.records);
    assert_eq!(committed.len(), want.len(), "records {why}\n{}", show(module, run));
    for (g, w) in committed.iter().zip(&want) {
        assert_eq!(g.epid as usize, w.clause, "{why}");
        assert_eq!(g.data.len(), w.data.len(), "{why}");
        for i in 0..w.data.len() {
            assert!(
                !w.written[i] || g.data[i] == w.data[i],
                "record byte {i} {why}\n got {:x?}\nwant {:x?}\n{}",
                g.data,
                w.data,
                show(module, run)
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

fn check(module: &Module, state: &mut State, run: &Run, why: &dyn Fn() -> String) {
    for (i, var) in module.vars.iter().enumerate() {
        let id = VarId(i as u32);
        let size = if var.ty == VarTy::Str { module.strsize } else { 8 };
        if var.key.is_some() {
            let mut got = run.elements(id);
            if var.scope == Scope::Thread {
                got = got.into_iter().map(|(k, v)| (k[8..].to_vec(), v)).collect();
            }
            let want = state.elements(id).map(|(_, k, v)| (k.to_vec(), bytes(v, size))).collect();
            assert_eq!(got, want, "{} {}", var.name, why());
        } else if var.scope == Scope::Global {
            let want = state.global(id).map_or(vec![0; size as usize], |v| bytes(v, size));
            assert_eq!(run.global(id, size), want, "{} {}", var.name, why());
        }
    }
    for i in 0..module.aggs.len() {
        let got = run.aggregation(i as u32);
        let mut want = state.aggregations[i].clone();
        if module.aggs[i].key_size == 0 {
            // A keyless value of zeros cannot be told from none, and says the same.
            want.retain(|_, words| words.iter().any(|w| *w != 0) || !got.is_empty());
        }
        assert_eq!(got, want, "@{} {}", module.aggs[i].name, why());
    }
    if let Some(status) = state.exit {
        assert_eq!(plane::control::exit_status(run.activity()), status, "{}", why());
        assert_eq!(Activity::of(run.activity()), Activity::Draining, "{}", why());
    }
}

#[test]
fn integers_compute_what_the_interpreter_computes() {
    if !privileged("integers") {
        return;
    }
    pin();
    for seed in rounds(1000) {
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
    for seed in rounds(1000) {
        compare(seed, &whole());
    }
}
