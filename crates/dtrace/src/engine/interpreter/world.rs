//! What a clause finds in a firing, and where its results go.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use dif::interp::{Fault, Outcome, Speculate, State, World};
use dif::ir::{IntBuiltin, Module, RecordDesc, Space, StrBuiltin};
use dif::subr::{NameOf, PathOf};
use plane::builtin::Builtin;
use plane::control::{CHILL_MOST, DropKind};
use plane::ring::{self, Policy, RingWriter, flags, origin};
use plane::speculation::{Speculations, Written};
use plane::stacks::{FRAMES_MAX, Stack};
use probes::ProbeInfo;

use super::firing::Firing;
use super::missing::Missing;

/// A probe that fires, and the enabled-probe ids of its clauses.
#[derive(Clone, Copy)]
pub(super) struct Firer<'a> {
    pub(super) probe: &'a ProbeInfo,
    /// The provider without the process id that follows, and this id; 0 if none does.
    pub(super) provider: &'a (Arc<str>, u32),
    /// Clause and id.
    pub(super) epids: &'a [(usize, u32)],
}

impl Firer<'_> {
    fn epid(&self, clause: usize) -> u32 {
        self.epids.iter().find(|(c, _)| *c == clause).map_or(0, |(_, epid)| *epid)
    }
}

/// The most bytes of `execname` (`TASK_COMM_LEN`, include/linux/sched.h, without the NUL).
const EXECNAME: usize = 15;

/// See the [module](self).
pub(super) struct FiringWorld<'a> {
    pub(super) firing: &'a Firing,
    pub(super) fires: Firer<'a>,
    /// ERROR, if it is enabled.
    pub(super) error: Option<Firer<'a>>,
    /// The fault, while ERROR fires.
    pub(super) fault: Option<Fault>,
    pub(super) module: &'a Module,
    pub(super) ring: RingWriter<'a>,
    /// The bytes of the ring that only clauses with `exit()` may use.
    pub(super) kept_for_exit: u64,
    /// The speculative buffers, if a clause speculates.
    pub(super) speculations: Option<Speculations<'a>>,
    pub(super) stacks: &'a mut BTreeMap<u64, Stack>,
    pub(super) random: &'a mut u64,
    /// Records have the thread's id in their flags.
    pub(super) threads: bool,
    /// What a full ring does.
    pub(super) policy: Policy,
    /// It has ended tracing.
    pub(super) filled: bool,
    /// Records that found no space.
    pub(super) dropped: u64,
    /// Drops of speculations.
    pub(super) speculative_drops: Vec<DropKind>,
    pub(super) written: bool,
    /// Records of clauses that faulted are in the ring, as discarded ones.
    pub(super) keeps_discarded: bool,
    /// What captured firings do not have.
    pub(super) missing: &'a Missing,
}

impl<'a> FiringWorld<'a> {
    fn current(&self) -> Firer<'_> {
        self.error.filter(|_| self.fault.is_some()).unwrap_or(self.fires)
    }

    fn origin(&self, epid: u32, flags: u16) -> u64 {
        let threads = if self.threads { (self.firing.tid as u16) << flags::THREAD } else { 0 };
        origin(epid, self.firing.cpu as u16, flags | threads)
    }

    /// Notes that a captured firing does not have a built-in variable.
    fn ask(&self, builtin: Builtin) {
        let captured = self.firing.memory.captured.as_ref();
        if captured.is_some_and(|captured| !captured.builtins.contains(&builtin)) {
            self.missing.builtin(builtin);
        }
    }

    /// The most bytes of a string.
    fn longest(&self) -> usize {
        (self.module.strsize as usize).saturating_sub(1)
    }

    /// The ring, as far as the record of a clause may fill it; `None` for records of no clause.
    fn ring_of(&self, clause: Option<usize>) -> RingWriter<'a> {
        let record = clause.and_then(|clause| self.module.clauses.get(clause)?.record.as_ref());
        let exits = record.is_some_and(RecordDesc::exits);
        // By policy ring, older records are overwritten.
        let kept = if exits || self.policy == Policy::Ring { 0 } else { self.kept_for_exit };
        self.ring.limited(self.ring.limit.saturating_sub(kept))
    }

    fn write(&mut self, clause: Option<usize>, epid: u32, flags: u16, data: &[u8]) {
        let ring = self.ring_of(clause);
        match ring.write(self.firing.time, self.origin(epid, flags), data) {
            true => self.written = true,
            false => {
                self.dropped += 1;
                self.fill(ring);
            }
        }
    }

    /// A record did not fit.
    fn fill(&mut self, ring: RingWriter<'_>) {
        if self.policy == Policy::Fill {
            ring.close();
            self.filled = true;
        }
    }
}

impl World for FiringWorld<'_> {
    fn builtin(&mut self, builtin: IntBuiltin) -> i64 {
        use IntBuiltin::{
            Arg, Caller, Cpu, CurThread, Epid, Errno, Gid, Ipl, Pid, Ppid, ProbeId, ProviderPid, StackDepth,
            Tid, Timestamp, Ucaller, Uid, Ureg, UserThread, UstackDepth, Vtimestamp, Walltimestamp,
        };
        let own = self.fault.is_some() && matches!(builtin, Arg(_));
        if !own && !matches!(builtin, Cpu | Timestamp | Epid | ProbeId | ProviderPid) {
            self.ask(Builtin::Int(builtin));
        }
        let f = self.firing;
        let at = |all: &[u64], n: usize| all.get(n).map_or(0, |v| *v as i64);
        let captured = f.memory.captured.iter().flat_map(|captured| &captured.of_stacks);
        if let Some((_, value)) = captured.clone().find(|(of, _)| *of == builtin) {
            return *value as i64;
        }
        match (builtin, &self.fault) {
            (Arg(1), Some(fault)) => i64::from(self.fires.epid(fault.clause)),
            (Arg(2), Some(fault)) => i64::from(fault.action),
            (Arg(3), Some(fault)) => i64::from(fault.offset),
            (Arg(4), Some(fault)) => fault.kind as i64,
            (Arg(5), Some(fault)) => fault.value as i64,
            (Arg(_), Some(_)) | (Epid, _) => 0,
            (Arg(n), None) => at(&f.args, n.into()),
            (Pid, _) => f.pid.into(),
            (Ppid, _) => f.ancestors.first().copied().unwrap_or(0).into(),
            (Tid, _) => f.tid.into(),
            (Uid, _) => f.uid.into(),
            (Gid, _) => f.gid.into(),
            (Cpu, _) => f.cpu.into(),
            (Timestamp, _) => f.time as i64,
            (Walltimestamp, _) => f.walltime as i64,
            (Vtimestamp, _) => f.cputime as i64,
            (Errno, _) => f.errno.into(),
            (ProbeId, _) => self.current().probe.id.0.into(),
            (ProviderPid, _) => self.current().provider.1.into(),
            (StackDepth, _) => f.stack.len() as i64,
            (UstackDepth, _) => f.ustack.len() as i64,
            (Caller, _) => at(&f.stack, 1),
            (Ucaller, _) => at(&f.ustack, 1),
            (Ipl, _) => f.level.into(),
            (UserThread, _) => (!f.kernel_thread).into(),
            (Ureg(n), _) => at(&f.registers, n.into()),
            (CurThread, _) => f.curthread as i64,
        }
    }

    fn epid(&mut self, clause: usize) -> i64 {
        self.current().epid(clause).into()
    }

    fn builtin_str(&mut self, builtin: StrBuiltin) -> Vec<u8> {
        if let (StrBuiltin::Execname, Some(captured)) = (builtin, &self.firing.memory.captured) {
            let known = captured.execname.as_ref().and_then(|name| name.up_to(self.longest().min(EXECNAME)));
            if known.is_none() {
                self.missing.builtin(Builtin::Str(builtin));
            }
            return known.unwrap_or_default().to_vec();
        }
        let current = self.current();
        let desc = &current.probe.desc;
        let text: &str = match builtin {
            StrBuiltin::Execname => &self.firing.execname,
            StrBuiltin::ProbeProv => &current.provider.0,
            StrBuiltin::ProbeMod => &desc.module,
            StrBuiltin::ProbeFunc => &desc.function,
            StrBuiltin::ProbeName => &desc.name,
        };
        text.as_bytes().to_vec()
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let found = self.firing.memory.get(space, addr, buffer.len());
        if let (None, Some(captured)) = (found, &self.firing.memory.captured)
            && !captured.is_unreadable(space, addr, buffer.len())
        {
            self.missing.memory(addr);
        }
        found.is_some_and(|bytes| {
            buffer.copy_from_slice(bytes);
            true
        })
    }

    fn arguments(&mut self, addr: u64, buffer: &mut [u8]) -> bool {
        let Some(captured) = &self.firing.memory.captured else {
            return self.read(Space::User, addr, buffer);
        };
        let text = match captured.arguments.get(&addr) {
            Some(Some(text)) => text.bytes.get(..buffer.len()),
            Some(None) => return false,
            None => None,
        };
        match text {
            Some(text) => buffer.copy_from_slice(text),
            None => self.missing.memory(addr),
        }
        text.is_some()
    }

    fn write_user(&mut self, addr: u64, bytes: &[u8]) -> bool {
        self.firing.memory.get(Space::User, addr, bytes.len()).is_some()
    }

    fn name(&mut self, addr: u64, of: NameOf) -> Option<Vec<u8>> {
        if let Some(captured) = &self.firing.memory.captured {
            let known = match captured.names.get(&(of, addr)) {
                Some(Some(name)) => name.up_to(self.longest()),
                Some(None) => return None,
                None => None,
            };
            if known.is_none() {
                self.missing.memory(addr);
            }
            return known.map(<[u8]>::to_vec);
        }
        let file = self.firing.memory.file(addr)?;
        Some(match of {
            NameOf::Path(PathOf::Mount) => b"/".to_vec(),
            NameOf::Path(_) | NameOf::Container | NameOf::Pod => file.as_bytes().to_vec(),
        })
    }

    fn packet(&mut self, addr: u64) -> Option<(u32, Vec<u8>)> {
        self.firing.memory.packet_at(addr).cloned()
    }

    fn is_descendant(&mut self, pid: i32) -> bool {
        if let Some(captured) = &self.firing.memory.captured {
            let found = captured.ancestors.get(&pid);
            if found.is_none() && pid != self.firing.pid {
                self.missing.memory(0);
            }
            return found.is_some_and(|descends| *descends) || pid == self.firing.pid;
        }
        pid == self.firing.pid || self.firing.ancestors.contains(&pid)
    }

    fn random(&mut self) -> u32 {
        // The multiplier of Knuth's MMIX; the high bits are the better ones.
        *self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*self.random >> 32) as u32
    }

    fn raise(&mut self, signal: i64) -> bool {
        (1..=64).contains(&signal)
    }

    fn chill(&mut self, nanoseconds: u64) -> bool {
        nanoseconds <= CHILL_MOST
    }

    fn stack(&mut self, user: bool, frames: u32) -> u64 {
        let known =
            |captured: &super::firing::Captured| if user { captured.stacks.1 } else { captured.stacks.0 };
        if self.firing.memory.captured.as_ref().is_some_and(|captured| !known(captured)) {
            self.missing.stack();
        }
        let all = if user { &self.firing.ustack } else { &self.firing.stack };
        if all.is_empty() {
            return 0;
        }
        let pcs: Vec<u64> = all.iter().copied().take(frames.min(FRAMES_MAX) as usize).collect();
        let stack =
            Stack { tgid: if user { self.firing.pid as u32 } else { 0 }, time: 0, pcs, ..Stack::default() };
        // As in the kernel, the hash is the id.
        let mut hasher = DefaultHasher::new();
        (user, stack.tgid, &stack.pcs).hash(&mut hasher);
        let id = hasher.finish().max(1);
        self.stacks.insert(id, stack);
        id
    }

    fn context(&mut self) -> (u64, u8) {
        (self.firing.tid as u64, self.firing.level)
    }

    fn error(&mut self, fault: Option<&Fault>) {
        self.fault = fault.cloned();
    }

    fn reserve(&mut self, clause: usize, size: u32) -> bool {
        let ring = self.ring_of(Some(clause));
        let fits = ring.has_space(size);
        if !fits {
            self.fill(ring);
        }
        fits
    }

    fn speculation(&mut self) -> i64 {
        match self.speculations.map(|all| all.begin()) {
            Some(Ok(id)) => id.into(),
            Some(Err(drop)) => {
                self.speculative_drops.push(drop);
                0
            }
            None => 0,
        }
    }

    fn end_speculation(&mut self, id: i64, commit: bool) -> bool {
        let Some(all) = self.speculations else { return true };
        if !all.is_valid(id as u64) {
            return false;
        }
        if let Some(data) = all.end(id as u64, commit) {
            let dropped = self.dropped;
            self.write(None, 0, flags::COMMIT, &data.to_le_bytes());
            if self.dropped > dropped {
                all.lose(id as u64);
            }
        }
        // The next firing finds the id free.
        self.written = true;
        true
    }

    fn speculate(&mut self, id: i64, size: Option<u32>) -> Speculate {
        let Some(all) = self.speculations else { return Speculate::Refused };
        if !all.is_valid(id as u64) {
            return Speculate::Invalid;
        }
        let written = match size {
            Some(size) => all.accepts(id as u64, self.firing.cpu, size),
            None if all.is_active(id as u64) => Written::Stored,
            None => Written::Inactive,
        };
        match written {
            Written::Stored => Speculate::Accepted,
            Written::Inactive => Speculate::Refused,
            Written::Full => {
                self.speculative_drops.push(DropKind::Speculation);
                Speculate::Refused
            }
        }
    }

    fn ended(&mut self, outcome: &Outcome, in_error: bool, state: &mut State) {
        for record in std::mem::take(&mut state.records) {
            let epid = self.current().epid(record.clause);
            match self.speculations.filter(|_| record.speculation != 0) {
                Some(all) => {
                    let (cpu, time) = (self.firing.cpu, self.firing.time);
                    // If the clause itself has ended the speculation, the record is lost with it.
                    all.write(record.speculation, cpu, time, self.origin(epid, 0), &record.data);
                }
                None => self.write(Some(record.clause), epid, 0, &record.data),
            }
        }
        if let Some(record) = state.discarded.take().filter(|_| self.keeps_discarded) {
            let epid = self.current().epid(record.clause);
            self.write(Some(record.clause), epid, flags::DISCARD, &record.data);
        }
        // A fault of ERROR is only counted.
        if let (Outcome::Faulted(fault), false) = (outcome, in_error) {
            let head = ring::Fault::head(fault.kind as u16, fault.action, fault.offset);
            let data = [head.to_le_bytes(), fault.value.to_le_bytes()].concat();
            self.write(None, self.fires.epid(fault.clause), flags::FAULT, &data);
        }
        state.faults.clear();
    }
}
