//! The program that faults pages of the process in before the clauses read them.
//!
//! A clause's program may not sleep, so it cannot read a page that is not mapped. On kernels that
//! allow sleepable programs at the entry of system calls, a sleepable program runs before the
//! clauses' program, in the same firing. It reads the memory that the clauses will read
//! ([`dif::user_access`]). The clauses' own program is not sleepable for this reason: while one
//! thread sleeps in a program, the kernel skips that program for all other threads of that CPU. If
//! the prefault program is skipped, a read may fault. If the clauses' program were skipped, the
//! firing would be lost.

use bpf_codegen::context::Index;
use bpf_codegen::emit::assemble;
use bpf_codegen::mir::{Alu, Arg, Builder, Helper, Jmp, V};
use bpf_codegen::target::ProcessOffsets;
use bpf_codegen::{Result, routines};
use dif::user_access::{Length, UserAccess};

use super::dispatch::{Table, clause_test, member_test, probe_index, union_test};
use super::image::Compiled;
use super::spec::ProgramSpec;

/// The smallest page size.
const PAGE: i64 = 4096;
/// Maximum number of pages of a range that are read.
const MAX_PAGES: usize = 17;

/// A range of user memory that clauses read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The range.
    pub access: UserAccess,
    /// In a program for probes that come later: the positions of these clauses in the program that
    /// runs them.
    pub clauses: Vec<u32>,
}

/// Compiles the program. Each "clause" of `spec` stands for the range of user memory at the same
/// position, and says which probes need it.
///
/// A program for probes that come later needs no clauses: it finds in the row of its probe which
/// clauses are enabled. It may still read the row after it has slept, when the row is already that
/// of another probe. Then it faults in a page in vain, or not at all.
pub fn prefault(
    spec: &ProgramSpec<'_>,
    stretches: &[Stretch],
    processes: Option<ProcessOffsets>,
) -> Result<Compiled> {
    let mut b = Builder::new("main", 1);
    let mut table = Table::default();
    let out = b.label();
    routines::gate(&mut b, spec.activity, out);
    let ctx = b.param(0);
    member_test(&mut b, spec, processes, out);
    let index = probe_index(&mut b, spec, ctx, out);
    union_test(&mut b, spec, spec.clauses, &mut table, index, out);
    for (n, Stretch { access, clauses }) in stretches.iter().enumerate() {
        let skip = b.label();
        match (index, spec.clauses.get(n)) {
            (Index::Row { at, .. }, _) => {
                routines::row_has_clause(&mut b, at, clauses.iter().copied(), skip);
            }
            (_, Some(wanted)) => clause_test(&mut b, spec, &mut table, wanted, index, skip),
            (_, None) => {}
        }
        let argument = |b: &mut Builder, n: u8| match spec.context.is_in_memory(n) {
            true => {
                let at = b.copy(0);
                spec.context.operand(b, ctx, n, at, skip)
            }
            false => spec.context.arg(b, ctx, index, n),
        };
        let start = argument(&mut b, access.arg);
        let start = b.add(start, access.offset);
        let len = match access.len {
            Length::Bytes(n) => b.imm(i64::from(n)),
            Length::Arg(n) => argument(&mut b, n),
        };
        b.call_global("prefault_range", &[Arg::Word(start), Arg::Word(len)], prefault_range);
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

/// Reads each page of a range that is not mapped, up to the first that cannot be read.
fn prefault_range(b: &mut Builder) {
    let (start, len) = (b.param(0), b.param(1));
    let done = b.label();
    b.br(Jmp::Eq, len, 0, done);
    // Not an address of a process, so there is nothing to fault in.
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
    for _ in 0..MAX_PAGES {
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
