//! D memory, and memory access in general.

use super::{Fault, Frame, State, Stop, Val, World};
use crate::ir::{FaultKind, IntBuiltin, Module, Scope, Space, StrBuiltin, Ty, Value, VarId};
use crate::memory::{Place, address, place, rounded, scratch, scratch_serial};
use crate::subr::NameOf;

/// Memory access of a running clause: D memory, and the memory that the [`World`] has.
pub(super) struct Memory<'a> {
    module: &'a Module,
    locals: &'a mut Vec<Option<Val>>,
    state: &'a mut State,
    /// The scratch memory taken so far, and the serial number of the firing.
    scratch: (&'a mut [u8], u64),
    world: &'a mut dyn World,
}

impl Memory<'_> {
    /// The bytes of a variable that is an object. A write access creates them.
    fn variable(&mut self, scope: Scope, var: VarId) -> Option<&mut Vec<u8>> {
        let desc = self.module.vars.get(var.0 as usize)?;
        let size = self.module.object_size(var)?;
        if desc.scope != scope || desc.key.is_some() {
            return None;
        }
        let slot = match scope {
            Scope::Global => self.state.globals.entry(var).or_insert_with(|| zeros(size)),
            Scope::Thread => {
                let context = self.world.context();
                self.state.threads.entry((context, var)).or_insert_with(|| zeros(size))
            }
            Scope::Clause => self.locals.get_mut(var.0 as usize)?.get_or_insert_with(|| zeros(size)),
        };
        match slot {
            Val::Bytes(bytes) => Some(bytes),
            Val::Int(_) | Val::Str(_) | Val::Null => None,
        }
    }

    /// The bytes of D memory from this address to the end of the object or scratch memory that
    /// contains it.
    fn d_memory(&mut self, space: Space, addr: u64) -> Option<&mut [u8]> {
        let (bytes, at): (&mut [u8], u64) = match (place(addr), space) {
            (Place::Scratch(serial, at), Space::Scratch | Space::Unknown) if serial == self.scratch.1 => {
                (self.scratch.0, at)
            }
            (Place::Var(scope, var, at), Space::Static | Space::Unknown) => {
                (self.variable(scope, var)?.as_mut_slice(), at)
            }
            _ => return None,
        };
        bytes.get_mut(usize::try_from(at).ok()?..)
    }

    /// The address space of an access outside D memory; `None` when there is none.
    fn outside(space: Space, addr: u64) -> Option<Space> {
        match space {
            Space::Kernel | Space::User => Some(space),
            Space::Unknown if place(addr) == Place::Kernel => Some(Space::Kernel),
            Space::Unknown | Space::Scratch | Space::Static => None,
        }
    }

    /// Writes D memory. Returns false, and changes nothing, unless all bytes are in D memory.
    pub(super) fn write(&mut self, space: Space, addr: u64, bytes: &[u8]) -> bool {
        match self.d_memory(space, addr).and_then(|d_memory| d_memory.get_mut(..bytes.len())) {
            Some(to) => {
                to.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

fn zeros(size: u32) -> Val {
    Val::Bytes(vec![0; size as usize])
}

impl World for Memory<'_> {
    fn builtin(&mut self, builtin: IntBuiltin) -> i64 {
        self.world.builtin(builtin)
    }

    fn epid(&mut self, clause: usize) -> i64 {
        self.world.epid(clause)
    }

    fn builtin_str(&mut self, builtin: StrBuiltin) -> Vec<u8> {
        self.world.builtin_str(builtin)
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        if let Some(space) = Self::outside(space, addr) {
            return self.world.read(space, addr, buffer);
        }
        match self.d_memory(space, addr).and_then(|d_memory| d_memory.get(..buffer.len())) {
            Some(from) => {
                buffer.copy_from_slice(from);
                true
            }
            None => false,
        }
    }

    fn write_user(&mut self, addr: u64, bytes: &[u8]) -> bool {
        self.world.write_user(addr, bytes)
    }

    fn arguments(&mut self, addr: u64, buffer: &mut [u8]) -> bool {
        self.world.arguments(addr, buffer)
    }

    fn name(&mut self, addr: u64, of: NameOf) -> Option<Vec<u8>> {
        self.world.name(addr, of)
    }

    fn is_descendant(&mut self, pid: i32) -> bool {
        self.world.is_descendant(pid)
    }

    fn random(&mut self) -> u32 {
        self.world.random()
    }

    fn raise(&mut self, signal: i64) -> bool {
        self.world.raise(signal)
    }

    fn speculation(&mut self) -> i64 {
        self.world.speculation()
    }

    fn end_speculation(&mut self, id: i64, commit: bool) -> bool {
        self.world.end_speculation(id, commit)
    }

    fn override_return(&mut self, result: i64) {
        self.world.override_return(result);
    }

    fn chill(&mut self, nanoseconds: u64) -> bool {
        self.world.chill(nanoseconds)
    }

    fn stack(&mut self, user: bool, frames: u32) -> u64 {
        self.world.stack(user, frames)
    }

    fn context(&mut self) -> (u64, u8) {
        self.world.context()
    }

    fn error(&mut self, fault: Option<&Fault>) {
        self.world.error(fault);
    }
}

type Step<T = ()> = Result<T, Stop>;

fn bad<T>(addr: u64) -> Step<T> {
    Err(Stop::Fault(FaultKind::BadAddr, addr))
}

impl Frame<'_> {
    pub(super) fn memory(&mut self) -> Memory<'_> {
        let top = self.top.min(self.scratch.memory.len());
        Memory {
            module: self.module,
            locals: self.locals,
            state: self.state,
            scratch: (&mut self.scratch.memory[..top], scratch_serial(self.scratch.serial)),
            world: self.world,
        }
    }

    pub(super) fn space(&self, addr: Value) -> Space {
        match self.clause.func.values.get(addr.0 as usize) {
            Some(Ty::Ptr(space)) => *space,
            _ => Space::Unknown,
        }
    }

    pub(super) fn address_of(&self, var: VarId) -> i64 {
        address(self.scope(var), var) as i64
    }

    pub(super) fn bytes_at(&mut self, addr: Value, len: usize) -> Step<Vec<u8>> {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let mut bytes = vec![0; len];
        if self.memory().read(space, at, &mut bytes) { Ok(bytes) } else { bad(at) }
    }

    pub(super) fn load(&mut self, size: u8, signed: bool, addr: Value) -> Step<i64> {
        let bytes = self.bytes_at(addr, usize::from(size).min(8))?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(crate::eval::ext(bytes.len() as u8 * 8, signed, i64::from_le_bytes(word)))
    }

    /// Reads bytes up to a NUL or the limit. Outside D memory the byte *at* the limit, where the
    /// NUL is written, is read too, as the kernel's helper does. The load faults when that byte is
    /// unreadable. A string in D memory ends at the end of its object.
    pub(super) fn load_str(&mut self, addr: Value, max: Option<Value>) -> Step<Vec<u8>> {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let wanted = max.map_or(u64::MAX, |v| self.int(v) as u64);
        let limit = self.longest().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let mut memory = self.memory();
        if Memory::outside(space, at).is_none() {
            return match memory.d_memory(space, at) {
                Some(d_memory) if !d_memory.is_empty() => {
                    Ok(d_memory.iter().copied().take(limit).take_while(|b| *b != 0).collect())
                }
                _ => bad(at),
            };
        }
        let mut text = Vec::new();
        loop {
            let mut byte = [0];
            if !memory.read(space, at.wrapping_add(text.len() as u64), &mut byte) {
                return bad(at);
            }
            if byte[0] == 0 || text.len() == limit {
                return Ok(text);
            }
            text.push(byte[0]);
        }
    }

    pub(super) fn store(&mut self, size: u8, addr: Value, value: Value) -> Step {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let bytes = self.int(value).to_le_bytes();
        if self.memory().write(space, at, &bytes[..usize::from(size).min(8)]) { Ok(()) } else { bad(at) }
    }

    pub(super) fn alloca(&mut self, size: Value) -> Step<i64> {
        let taken = rounded(self.int(size) as u64);
        let end = (self.top as u64).saturating_add(taken);
        if end > self.scratch.memory.len() as u64 || self.keeps && end > self.scratch.keeps_at_most {
            return Err(Stop::Fault(FaultKind::NoScratch, 0));
        }
        let at = self.top;
        self.top = end as usize;
        if self.keeps {
            self.scratch.kept = self.top;
        }
        Ok((scratch(self.scratch.serial) + at as u64) as i64)
    }

    pub(super) fn copy(&mut self, dst: Value, src: Value, len: Value) -> Step {
        let (space, to, len) = (self.space(dst), self.int(dst) as u64, self.int(len) as u64);
        if len == 0 {
            return Ok(());
        }
        let fits =
            |d_memory: Option<&mut [u8]>| d_memory.is_some_and(|d_memory| d_memory.len() as u64 >= len);
        // No copy is longer than what one clause takes.
        let is_scratch = matches!(place(to), Place::Scratch(..));
        if is_scratch && len > u64::from(self.module.scratch_frame()) {
            return bad(to);
        }
        if !fits(self.memory().d_memory(space, to)) {
            return bad(to);
        }
        let bytes = self.bytes_at(src, len as usize)?;
        self.memory().write(space, to, &bytes);
        Ok(())
    }

    /// Writes to fixed scratch memory. Returns the address.
    pub(super) fn put_scratch(&mut self, at: u32, bytes: &[u8]) -> i64 {
        let at = self.base + at as usize;
        if let Some(to) = self.scratch.memory.get_mut(at..).and_then(|s| s.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
        }
        (scratch(self.scratch.serial) + at as u64) as i64
    }

    pub(super) fn copy_elem(&mut self, var: VarId, key: &[Value], at: u32) -> i64 {
        let id = self.element(var, key);
        let size = self.module.object_size(var).unwrap_or(0) as usize;
        let bytes = match self.state.elements.get(&id) {
            Some(Val::Bytes(bytes)) => bytes.clone(),
            _ => vec![0; size],
        };
        self.put_scratch(at, &bytes)
    }

    pub(super) fn copy_obj(&mut self, addr: Value, size: u32, at: u32) -> Step<i64> {
        let mut bytes = self.bytes_at(addr, size as usize)?;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(self.put_scratch(at, &bytes))
    }

    pub(super) fn store_obj(&mut self, var: VarId, key: &[Value], addr: Value) -> Step {
        let size = self.module.object_size(var).unwrap_or(0) as usize;
        let bytes = self.bytes_at(addr, size)?;
        let id = self.element(var, key);
        self.store_element(id, Val::Bytes(bytes));
        Ok(())
    }

    pub(super) fn str_addr(&mut self, value: Value, at: u32) -> i64 {
        let mut bytes = self.text(value).to_vec();
        bytes.resize(self.module.string_storage() as usize, 0);
        self.put_scratch(at, &bytes)
    }

    pub(super) fn copy_out(&mut self, src: Value, addr: Value, len: Value) -> Step {
        let (len, to) = (self.int(len) as u64, self.int(addr) as u64);
        if len == 0 {
            return Ok(());
        }
        if len > (self.scratch.memory.len() - self.base) as u64 {
            return Err(Stop::Fault(FaultKind::NoScratch, 0));
        }
        let bytes = self.bytes_at(src, len as usize)?;
        if self.world.write_user(to, &bytes) { Ok(()) } else { bad(to) }
    }

    pub(super) fn copy_out_str(&mut self, value: Value, addr: Value, max: Value) -> Step {
        let (max, to) = (self.int(max) as u64, self.int(addr) as u64);
        let mut bytes = self.text(value).to_vec();
        bytes.push(0);
        bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        if bytes.is_empty() || self.world.write_user(to, &bytes) { Ok(()) } else { bad(to) }
    }
}
