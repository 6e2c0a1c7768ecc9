//! What is said after a fault that a script can avoid: where the value that it looks for can be
//! read.
//!
//! Two faults are usual in scripts that read the arguments of system calls. A string in a page that
//! the process has not touched yet cannot be read at the entry, unless [programs may wait
//! there](crate::load::prefault). And calls of Linux have a descriptor where those of other systems
//! have a path: `open*` matches `openat`. Whether a clause is wrong is not known before it faults:
//! it may test `probefunc`. So it is said after the fault, each advice once.

use std::collections::BTreeMap;

use bpf_sys::features::Facility;
use consumer::Advice;
use dif::user_access::{reads_user, user_accesses};
use events::{Calls, FaultKind, Probe};
use probes::{ArgType, Catalog, TypeRef};
use types::btf::{Btf, Def};

use crate::compile::Program;
use crate::engine::{Enabled, Firings};

/// The first address that a process can have.
const FIRST: u64 = 4096;

/// What to say of faults of these enabled probes; `None` if no clause reads memory of processes, or
/// if none run.
pub(crate) fn advice(firings: Firings, program: &Program, enabled: &Enabled) -> Option<Box<Advice>> {
    if firings != Firings::Asynchronous || !reads_user(&program.module) || enabled.ranges.is_empty() {
        return None;
    }
    let next = enabled.next;
    let clauses: BTreeMap<u32, usize> = enabled.ranges.iter().map(|r| (r.first, r.clause)).collect();
    let program = program.clone();
    let (mut of_number, mut of_page) = (false, false);
    Some(Box::new(move |fault| {
        let probe = fault.probe.as_deref().filter(|_| fault.kind == FaultKind::BadAddr)?;
        if probe.calls != Calls::System || &*probe.name != "entry" {
            return None;
        }
        let is_number = is_number(fault.value);
        let said = if is_number { &mut of_number } else { &mut of_page };
        // An address of the kernel is wrong in another way, and other enablings have their own
        // advice.
        if *said || fault.epid >= next || !is_number && (fault.value as i64) < 0 {
            return None;
        }
        let (_, clause) = clauses.range(..=fault.epid).next_back()?;
        let text = text(&program, *clause, probe, fault.value)?;
        *said = true;
        Some(text)
    }))
}

/// True for what is no address: a descriptor, or `AT_FDCWD`.
fn is_number(value: u64) -> bool {
    let signed = u32::try_from(value).map_or(value as i64, |value| i64::from(value as i32));
    signed.unsigned_abs() < FIRST
}

fn text(program: &Program, clause: usize, probe: &Probe, value: u64) -> Option<String> {
    let id = probes::ProbeId(probe.id);
    let of_probe = |n: &usize| {
        let clause = program.checked.clauses.get(*n);
        clause.is_some_and(|c| c.probes.iter().any(|p| p.id == id))
    };
    // An address may come from a variable that an earlier clause assigns.
    let firing: Vec<usize> = (0..=clause).filter(of_probe).collect();
    let read = user_accesses(&program.module, &firing).pop()?;
    let desc = &program.checked.clauses.get(clause)?.probes.iter().find(|p| p.id == id)?.desc;
    let types = program.registry.args(desc).ok()?;
    let is_read = |arg: &&ArgType| read.iter().any(|access| access.arg == arg.from);
    let described = probe.described();
    if is_number(value) {
        // A call may have no path.
        if value == 0 && types.iter().filter(is_read).any(is_pointer) {
            return None;
        }
        let number = types.iter().filter(is_read).find(|arg| !is_pointer(arg))?;
        let of = |arg: &ArgType| match &arg.native {
            TypeRef::Text(text) => format!("arg{} ({text})", arg.from),
            TypeRef::Btf(..) | TypeRef::Known(_) => format!("arg{}", arg.from),
        };
        let string = types
            .iter()
            .find(|arg| is_string(arg))
            .map_or(String::new(), |string| format!(": its string is in {}", of(string)));
        return Some(format!("{described} has a descriptor or another number in {}{string}", of(number)));
    }
    let address = types.iter().filter(is_read).find(|arg| is_string(arg))?;
    if program.system.features().has(Facility::SleepableCalls) {
        return None;
    }
    let (n, function) = (address.from, &probe.function);
    Some(format!(
        "a page that the process has not used yet cannot be read at the entry of a system call on this kernel; \
         keep the address, and read it at the return: syscall::{function}:entry {{ self->p = arg{n}; }} \
         syscall::{function}:return /self->p/ {{ trace(copyinstr(self->p)); self->p = 0; }}"
    ))
}

fn is_pointer(arg: &ArgType) -> bool {
    match &arg.native {
        TypeRef::Text(text) => text.ends_with('*'),
        TypeRef::Btf(btf, id) => target(btf, *id).is_some(),
        TypeRef::Known(_) => false,
    }
}

fn is_string(arg: &ArgType) -> bool {
    match &arg.native {
        TypeRef::Text(text) => text.ends_with("char *"),
        TypeRef::Btf(btf, id) => {
            let to = target(btf, *id).and_then(|to| btf.def(to));
            matches!(to, Some(Def::Int { name: "char", .. }))
        }
        TypeRef::Known(_) => false,
    }
}

/// What a pointer points to.
fn target(btf: &Btf, id: u32) -> Option<u32> {
    match btf.def(btf.resolve(id)) {
        Some(Def::Pointer(to)) => Some(btf.resolve(to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn descriptors_are_told_from_addresses() {
        for number in [0, 3, 4095, 0xffff_ff9c, 0xffff_ffff, -100i64 as u64] {
            assert!(is_number(number), "{number:#x}");
        }
        for address in [4096, 0x0804_8000, 0xffff_f000, 0xff80_0000, 0x5555_5555_4000, 0x7fff_ffff_f000] {
            assert!(!is_number(address), "{address:#x}");
        }
    }
}
