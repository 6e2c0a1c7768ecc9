//! Runs the interpreter beside the kernel: both get the same firings, and their results are
//! compared.
//!
//! Used by the tests with generated modules here, and by those with generated D programs.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use dif::interp::{Fault, State, Val, World};
use dif::ir::{IntBuiltin, Module, Scope, Space, StrBuiltin, VarDesc, VarId, VarTy};
use plane::control::{Activity, DropKind};
use plane::ring;

use super::{EPIDS, ERROR, ERROR_ID, FIRST_EPID, FIRST_ID, Run, names, provider_pid};

/// Address of the readable memory, fixed so that a seed is the same program in every run.
pub const MEMORY: u64 = 0x10_0000_0000;

/// The environment of the firings, for both sides.
pub struct Same {
    pub args: [u64; 10],
    pub probe: u32,
    pub memory: Vec<u8>,
    /// The fault, while ERROR runs.
    pub fault: Option<Fault>,
    /// The clauses of a program whose probes are in the probe table, in their order there.
    pub growing: Option<Vec<usize>>,
}

impl Same {
    pub fn epid_of(&self, clause: usize) -> u32 {
        match &self.growing {
            Some(order) => {
                FIRST_EPID + EPIDS * self.probe + order.iter().position(|c| *c == clause).unwrap() as u32
            }
            None => EPIDS * clause as u32 + self.probe,
        }
    }
}

impl World for Same {
    fn builtin(&mut self, b: IntBuiltin) -> i64 {
        // SAFETY: these calls only read.
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
                (IntBuiltin::ProviderPid, None) => i64::from(provider_pid(self.probe)),
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
        if space != Space::User || at + buffer.len() > self.memory.len() {
            return false;
        }
        buffer.copy_from_slice(&self.memory[at..at + buffer.len()]);
        true
    }

    fn error(&mut self, fault: Option<&Fault>) {
        self.fault = fault.cloned();
    }
}

/// A page at [`MEMORY`], the next one unreadable.
pub fn memory() -> Vec<u8> {
    let mut bytes = vec![0u8; 4096];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i * 7 + 1) as u8;
    }
    bytes[40] = 0;
    bytes[300] = 0;
    // Runs of zeros for addresses.
    (1024..2048).filter(|i| i / 2 % 5 < 3).for_each(|i| bytes[i] = 0);
    bytes[4095] = 0;
    // SAFETY: the address is free in a test program. An existing mapping is ours, from another
    // thread.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let p = libc::mmap(MEMORY as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if p as u64 == MEMORY {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), MEMORY as *mut u8, 4096);
        }
    }
    bytes
}

pub fn records(state: &mut State, run: &mut Run, world: &Same) {
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
        let of_error = run.setup.error.contains(&w.clause);
        assert_eq!(g.epid, if of_error { EPIDS * w.clause as u32 } else { world.epid_of(w.clause) });
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
        Val::Null => bytes(&Val::Str(b"\0\xff".to_vec()), size),
        Val::Str(s) | Val::Bytes(s) => {
            let mut out = s.clone();
            out.resize(size as usize, 0);
            out
        }
    }
}

/// As an element of a variable that begins as NULL is stored: zeros are NULL.
fn stored(var: &VarDesc, value: &Val, size: u32) -> Vec<u8> {
    match value {
        Val::Null if var.begins_null() => vec![0; size as usize],
        Val::Str(s) if var.begins_null() && s.is_empty() => bytes(&Val::Null, size),
        _ => bytes(value, size),
    }
}

pub fn check(module: &Module, state: &mut State, run: &Run) {
    for (i, var) in module.vars.iter().enumerate() {
        let id = VarId(i as u32);
        let size = match var.ty {
            VarTy::Int => 8,
            VarTy::Str => module.string_storage(),
            VarTy::Bytes { size } => size.div_ceil(8) * 8,
        };
        if var.key.is_some() {
            let mut got = run.elements(id);
            if var.scope == Scope::Thread {
                got = got.into_iter().map(|(k, v)| (k[8..].to_vec(), v)).collect();
            }
            let want: BTreeMap<_, _> =
                state.elements(id).map(|(_, k, v)| (k.to_vec(), stored(var, v, size))).collect();
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
            // A keyless value of zeros has the same bytes as no value.
            want.retain(|_, words| words.iter().any(|w| *w != 0) || !got.is_empty());
        }
        assert_eq!(got, want, "@{}", module.aggs[i].name);
    }
    for kind in DropKind::ALL {
        let want = if kind == DropKind::DoubleError { state.drops.double_error } else { 0 };
        assert_eq!(run.drops(kind), want, "{kind:?}");
    }
    let ends = state.exit.is_some() || run.setup.activity == Activity::Draining;
    assert_eq!(plane::control::Activity::of(run.activity()) == Activity::Draining, ends);
    if let Some(status) = state.exit {
        assert_eq!(plane::control::exit_status(run.activity()), status);
    }
}
