//! The program that brings pages of the process before the clauses look at them.
//!
//! A clause's program may not wait, so to it a page that is not mapped in cannot be read. On kernels that let programs at
//! the entry of system calls wait, one of these runs before it, in the same firing, and touches what the clauses will
//! read ([`dif::user_access`]). Why the clauses' own program is not the one that waits: while one thread waits in a program,
//! the kernel keeps all other threads of that CPU out of it. Of this one they lose what it would have brought, of that
//! one their firing.

use dif::user_access::{Length, UserAccess};

use super::dispatch::{Table, clause_test, probe_index, union_test};
use super::{Compiled, ProgramSpec};
use crate::emit::assemble;
use crate::mir::{Alu, Arg, Builder, Helper, Jmp, V};
use crate::routines;
use crate::select::Result;

/// The smallest page there is.
const PAGE: i64 = 4096;
/// Pages of a stretch that are looked at.
const PAGES: usize = 17;

/// Makes it. Each "clause" of `spec` stands for a stretch of user memory, in the same order: which probes want it.
pub fn prefault(spec: &ProgramSpec<'_>, stretches: &[UserAccess]) -> Result<Compiled> {
    let mut b = Builder::new("main", 1);
    let mut table = Table::default();
    let out = b.label();
    routines::gate(&mut b, spec.activity, out);
    let ctx = b.param(0);
    let index = probe_index(&mut b, spec, ctx, out);
    union_test(&mut b, spec, spec.clauses, &mut table, index, out);
    for (wanted, stretch) in spec.clauses.iter().zip(stretches) {
        let skip = b.label();
        clause_test(&mut b, spec, &mut table, wanted, index, skip);
        let argument = spec.context.arg(&mut b, ctx, index, stretch.arg);
        let start = b.add(argument, stretch.offset);
        let len = match stretch.len {
            Length::Bytes(n) => b.imm(i64::from(n)),
            Length::Arg(n) => spec.context.arg(&mut b, ctx, index, n),
        };
        b.call_global("bring", &[Arg::Word(start), Arg::Word(len)], bring);
        b.bind(skip);
    }
    b.bind(out);
    b.exit(0);
    let (main, subs) = b.finish();
    Ok(Compiled {
        name: spec.name.into(),
        kind: spec.kind,
        attach: spec.attach,
        attach_btf_id: spec.attach_btf_id,
        sleepable: true,
        code: assemble(std::iter::once(main).chain(subs).collect())?,
        table: (!table.bytes.is_empty()).then_some(table.bytes),
    })
}

/// Touches each page of a stretch that is not there, up to the first that cannot be had.
fn bring(b: &mut Builder) {
    let (start, len) = (b.param(0), b.param(1));
    let done = b.label();
    b.br(Jmp::Eq, len, 0, done);
    // No address of a process: nothing to bring, and nothing to wait for.
    b.br(Jmp::Slt, start, PAGE, done);
    let last = b.add(start, len);
    let last = b.sub(last, 1);
    let byte = b.stack(8);
    let at = b.copy(start);
    let read = |b: &mut Builder, by: Helper, at: V| {
        let to = b.slot_addr(byte, 0);
        let one = b.imm(1);
        b.call(by, &[to, one, at])
    };
    for _ in 0..PAGES {
        let there = b.label();
        let missing = read(b, Helper::PROBE_READ_USER, at);
        b.br(Jmp::Eq, missing, 0, there);
        let failed = read(b, Helper::COPY_FROM_USER, at);
        b.br(Jmp::Ne, failed, 0, done);
        b.bind(there);
        let end = b.or(at, PAGE - 1);
        b.set(at, end);
        b.update(Alu::Add, at, 1);
        b.br(Jmp::Gt, at, last, done);
    }
    b.bind(done);
    b.exit(0);
}
