//! D's own memory, and memory at all: what an address leads to.

use super::{Fault, Frame, State, Stop, Val, World};
use crate::ir::{FaultKind, IntBuiltin, Module, Scope, Space, StrBuiltin, Ty, Value, VarId};
use crate::memory::{Place, SCRATCH, address, place, rounded};

/// The world, and in its memory also what is D's own: what a running clause reads and writes.
pub(super) struct Reach<'a> {
    module: &'a Module,
    locals: &'a mut Vec<Option<Val>>,
    state: &'a mut State,
    /// What was taken of it.
    scratch: &'a mut [u8],
    world: &'a mut dyn World,
}

impl Reach<'_> {
    /// The bytes of a variable that is an object; made when it is to be written.
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

    /// The bytes of D's own memory from this address to the end of what it is in.
    fn own(&mut self, space: Space, addr: u64) -> Option<&mut [u8]> {
        let (bytes, at): (&mut [u8], u64) = match (place(addr), space) {
            (Place::Scratch(at), Space::Scratch | Space::Unknown) => (self.scratch, at),
            (Place::Var(scope, var, at), Space::Static | Space::Unknown) => {
                (self.variable(scope, var)?.as_mut_slice(), at)
            }
            _ => return None,
        };
        bytes.get_mut(usize::try_from(at).ok()?..)
    }

    /// Where the outside world is asked: which space it is then.
    fn outside(space: Space, addr: u64) -> Option<Space> {
        match space {
            Space::Kernel | Space::User => Some(space),
            Space::Unknown if place(addr) == Place::Kernel => Some(Space::Kernel),
            Space::Unknown | Space::Scratch | Space::Static => None,
        }
    }

    /// False, and nothing changed, unless all of it is D's own.
    pub(super) fn write(&mut self, space: Space, addr: u64, bytes: &[u8]) -> bool {
        match self.own(space, addr).and_then(|own| own.get_mut(..bytes.len())) {
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

impl World for Reach<'_> {
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
        match self.own(space, addr).and_then(|own| own.get(..buffer.len())) {
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

    fn random(&mut self) -> u32 {
        self.world.random()
    }

    fn raise(&mut self, signal: i64) -> bool {
        self.world.raise(signal)
    }

    fn give(&mut self, result: i64) {
        self.world.give(result);
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

type Done<T = ()> = Result<T, Stop>;

fn bad<T>(addr: u64) -> Done<T> {
    Err(Stop::Fault(FaultKind::BadAddr, addr))
}

impl Frame<'_> {
    pub(super) fn reach(&mut self) -> Reach<'_> {
        let top = self.top.min(self.scratch.len());
        Reach {
            module: self.module,
            locals: self.locals,
            state: self.state,
            scratch: &mut self.scratch[..top],
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

    pub(super) fn bytes_at(&mut self, addr: Value, len: usize) -> Done<Vec<u8>> {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let mut bytes = vec![0; len];
        if self.reach().read(space, at, &mut bytes) { Ok(bytes) } else { bad(at) }
    }

    pub(super) fn load(&mut self, size: u8, signed: bool, addr: Value) -> Done<i64> {
        let bytes = self.bytes_at(addr, usize::from(size).min(8))?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(crate::eval::ext(bytes.len() as u8 * 8, signed, i64::from_le_bytes(word)))
    }

    /// Byte by byte up to a NUL or the limit. Outside, the byte *at* the limit, where the NUL will stand, is read too, as the
    /// kernel's helper does: it faults when that byte cannot be read. A string in D's own memory ends where that does.
    pub(super) fn load_str(&mut self, addr: Value, max: Option<Value>) -> Done<Vec<u8>> {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let wanted = max.map_or(u64::MAX, |v| self.int(v) as u64);
        let limit = self.longest().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let mut reach = self.reach();
        if Reach::outside(space, at).is_none() {
            return match reach.own(space, at) {
                Some(own) if !own.is_empty() => {
                    Ok(own.iter().copied().take(limit).take_while(|b| *b != 0).collect())
                }
                _ => bad(at),
            };
        }
        let mut text = Vec::new();
        loop {
            let mut byte = [0];
            if !reach.read(space, at.wrapping_add(text.len() as u64), &mut byte) {
                return bad(at);
            }
            if byte[0] == 0 || text.len() == limit {
                return Ok(text);
            }
            text.push(byte[0]);
        }
    }

    pub(super) fn store(&mut self, size: u8, addr: Value, value: Value) -> Done {
        let (space, at) = (self.space(addr), self.int(addr) as u64);
        let bytes = self.int(value).to_le_bytes();
        if self.reach().write(space, at, &bytes[..usize::from(size).min(8)]) { Ok(()) } else { bad(at) }
    }

    pub(super) fn alloca(&mut self, size: Value) -> Done<i64> {
        let taken = rounded(self.int(size) as u64);
        let end = (self.top as u64).saturating_add(taken);
        if end > self.scratch.len() as u64 {
            return Err(Stop::Fault(FaultKind::NoScratch, 0));
        }
        let at = self.top;
        self.top = end as usize;
        Ok((SCRATCH + at as u64) as i64)
    }

    pub(super) fn copy(&mut self, dst: Value, src: Value, len: Value) -> Done {
        let (space, to, len) = (self.space(dst), self.int(dst) as u64, self.int(len) as u64);
        if len == 0 {
            return Ok(());
        }
        let fits = |own: Option<&mut [u8]>| own.is_some_and(|own| own.len() as u64 >= len);
        if !fits(self.reach().own(space, to)) {
            return bad(to);
        }
        let bytes = self.bytes_at(src, len as usize)?;
        self.reach().write(space, to, &bytes);
        Ok(())
    }

    /// Writes fixed scratch memory.
    pub(super) fn put_scratch(&mut self, at: u32, bytes: &[u8]) -> i64 {
        if let Some(to) = self.scratch.get_mut(at as usize..).and_then(|s| s.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
        }
        (SCRATCH + u64::from(at)) as i64
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

    pub(super) fn copy_obj(&mut self, addr: Value, size: u32, at: u32) -> Done<i64> {
        let mut bytes = self.bytes_at(addr, size as usize)?;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(self.put_scratch(at, &bytes))
    }

    pub(super) fn store_obj(&mut self, var: VarId, key: &[Value], addr: Value) -> Done {
        let size = self.module.object_size(var).unwrap_or(0) as usize;
        let bytes = self.bytes_at(addr, size)?;
        let id = self.element(var, key);
        self.store_element(id, Val::Bytes(bytes));
        Ok(())
    }

    pub(super) fn str_addr(&mut self, value: Value, at: u32) -> i64 {
        let mut bytes = self.text(value).to_vec();
        bytes.resize(self.module.strsize as usize, 0);
        self.put_scratch(at, &bytes)
    }

    pub(super) fn copy_out(&mut self, src: Value, addr: Value, len: Value) -> Done {
        let (len, to) = (self.int(len) as u64, self.int(addr) as u64);
        if len == 0 {
            return Ok(());
        }
        if len > self.scratch.len() as u64 {
            return Err(Stop::Fault(FaultKind::NoScratch, 0));
        }
        let bytes = self.bytes_at(src, len as usize)?;
        if self.world.write_user(to, &bytes) { Ok(()) } else { bad(to) }
    }

    pub(super) fn copy_out_str(&mut self, value: Value, addr: Value, max: Value) -> Done {
        let (max, to) = (self.int(max) as u64, self.int(addr) as u64);
        let mut bytes = self.text(value).to_vec();
        bytes.push(0);
        bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        if bytes.is_empty() || self.world.write_user(to, &bytes) { Ok(()) } else { bad(to) }
    }
}
