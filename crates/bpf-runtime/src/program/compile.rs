//! Compiles a program: the code around its clauses, and the function that faults call.

use bpf_codegen::context::{Index, Repeats};
use bpf_codegen::emit::assemble;
use bpf_codegen::mir::{Builder, Helper, Label, MapRef, Operand, Param, Size, V};
use bpf_codegen::routines::{self, Purpose, SlotRef, near};
use bpf_codegen::select::{
    ClauseInstance, Firing, FiringWalks, REPORT, Walks, begin_scratch, clause, keep_scratch, kept_scratch,
    operations, stack_kind,
};
use bpf_codegen::{CodegenError, Result, Session};
use bpf_sys::AttachType;
use plane::control::Activity;

use super::clauses::{ErrorContext, clauses, clear_this};
use super::clock::Clocks;
use super::dispatch::{Table, member_test, number_test, probe_index, union_test};
use super::facts::{names_probe, reads_vtime, uses_slot};
use super::image::{Compiled, must_avoid_private_stack};
use super::parts::{self, Part};
use super::spec::ProgramSpec;

/// The kernel's limit on maps that a program uses (`MAX_USED_MAPS`).
const MAPS_MAX: usize = 64;

/// Compiles a program.
pub fn compile(session: &Session<'_>, spec: &ProgramSpec<'_>) -> Result<Compiled> {
    let mut b = Builder::new("main", 1).for_machine(session.target.machine);
    let mut table = Table::default();
    let (out, idle) = (b.label(), b.label());
    let own_stack = must_avoid_private_stack(spec.kind, spec.attach);
    spec.context.first(&mut b);
    routines::gate(&mut b, spec.activity, if own_stack { idle } else { out });
    let ctx = b.param(0);
    member_test(&mut b, spec, session.target.processes, out);
    number_test(&mut b, spec, session.target, out);
    let index = probe_index(&mut b, spec, ctx, out);
    union_test(&mut b, spec, spec.clauses, &mut table, index, out);
    let error_divided = error_divided(session, spec);
    let parts = parts::divide(session, spec)?;
    let divided = parts.iter().any(|p| !matches!(p, Part::Inline(_)));
    let clocks = Clocks::new(session, spec, divided || error_divided);
    match spec.context.repeats() {
        None => firing(session, spec, &mut table, &mut b, (ctx, index, out), &parts, &clocks)?,
        Some(repeats) => repeated(session, spec, &mut table, &mut b, (ctx, repeats, out), &parts, &clocks)?,
    }
    b.bind(out);
    b.exit(0);
    if own_stack {
        b.bind(idle);
        let (none, first) = (b.map(MapRef::EmptyProgArray), b.imm(0));
        b.call(Helper::TAIL_CALL, &[ctx, none, first]);
        b.exit(0);
    }
    report(&mut b, session, spec, clocks)?;
    let (main, subs) = b.finish();
    let code = assemble(std::iter::once(main).chain(subs).collect()).map_err(|e| {
        // Where it is unknown which clause exceeds the limit, the longest one is reported.
        let clauses = || spec.clauses.iter().chain(spec.error.clauses);
        let longest = clauses().map(|c| &session.module.clauses[c.clause]).max_by_key(|c| operations(c));
        CodegenError { span: e.span.or(longest.and_then(|c| c.span)), ..e }
    })?;
    let mut maps: Vec<MapRef> = code.relocs.iter().map(|(_, map)| *map).collect();
    maps.sort_unstable();
    maps.dedup();
    if maps.len() > MAPS_MAX {
        return Err(CodegenError {
            span: spec.clauses.last().and_then(|c| session.module.clauses.get(c.clause)?.span),
            message: format!(
                "too many aggregations and associative arrays for one probe: they have {} maps with what else its \
                 clauses use; the kernel allows a program {MAPS_MAX}",
                maps.len()
            ),
        });
    }
    let table = (!table.bytes.is_empty()).then_some(table.bytes);
    Ok(Compiled {
        name: spec.name.to_owned(),
        kind: spec.kind,
        attach: spec.attach,
        attach_btf_id: spec.attach_btf_id,
        sleepable: false,
        code,
        table,
    })
}

/// A firing: takes what the clauses need, runs them, and releases it. Jumps to `out` where there is
/// no slot, or falls through to it.
fn firing(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    b: &mut Builder,
    (ctx, index, out): (V, Index, Label),
    parts: &[Part],
    clocks: &Clocks,
) -> Result<()> {
    let divided = parts.iter().any(|p| !matches!(p, Part::Inline(_)));
    // The program's return value, where its type allows one. 0 lets the probed function run.
    let gives = session.layout.main.result.filter(|_| spec.attach == AttachType::ModifyReturn);
    let result = gives.map(|_| b.copy(0));
    let cpu = routines::firing(b, session.plan);
    let account = session.plan.vtime.then(|| {
        let reads = reads_vtime(session.module, spec);
        let runtime = session.target.runtime.filter(|_| reads);
        routines::vtime_begin(b, &cpu, runtime)
    });
    let no_slot = if account.is_some() { b.label() } else { out };
    let error_divided = error_divided(session, spec);
    let memory = divided || error_divided || uses_slot(session, spec);
    let purpose = Purpose { memory, publishes: clocks.publishes() };
    let slot =
        (memory || clocks.in_slot()).then(|| routines::take_slot(b, session.plan, &cpu, purpose, no_slot));
    let address = slot.and_then(|s| s.address);
    let clock = clocks.main(b, slot.map(|s| s.number));
    let facts = match index {
        Index::V(_) if names_probe(session.module, spec) => Some(table.rows(spec.table, spec.probes)),
        _ => None,
    };
    let this = clear_this(b, session, address, session.layout.main, spec.clauses);
    let walks = expect_walks(b, session, spec, address);
    let slot_ref = slot.and_then(|s| Some(SlotRef { address: s.address?, number: s.number }));
    if let Some(slot) = slot_ref {
        begin_scratch(b, &session.layout.d_memory, slot);
    }
    let firing = Firing {
        context: spec.context,
        ctx,
        index,
        probes: spec.probes,
        table: facts,
        cpu,
        clock,
        slot: slot_ref,
        parts: session.layout.main,
        walks,
        this,
        divided,
        vtime: account.map(|a| a.value),
        in_error: false,
        at_end: spec.activity == Activity::Draining,
    };
    let release = b.label();
    if divided {
        parts::emit(session, spec, table, &firing, b, parts, release)?;
    } else {
        clauses(session, spec, table, &firing, b, 0..spec.clauses.len(), release)?;
    }
    b.bind(release);
    if let (Some(address), Some(at), Some(result)) = (address, gives, result) {
        let (base, at) = near(b, address, at, 8);
        let given = b.load(Size::B8, base, at);
        b.set(result, given);
    }
    if let Some(slot) = &slot {
        clock.forget(b, &cpu);
        routines::release_slot(b, &cpu, slot);
    }
    if let Some(account) = &account {
        b.bind(no_slot);
        routines::vtime_end(b, account);
    }
    if let Some(result) = result {
        b.exit(result);
    }
    Ok(())
}

/// The firings of a program that repeats its clauses: a loop whose callback is a firing.
fn repeated(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    b: &mut Builder,
    (ctx, repeats, out): (V, Repeats, Label),
    parts: &[Part],
    clocks: &Clocks,
) -> Result<()> {
    let state = b.stack(repeats.state);
    spec.context.first_turn(b, ctx, state, out);
    let mut result = Ok(());
    let callback = b.sub_addr("dt_turn", 2, |b| {
        let (state, next, end) = (b.param(1), b.label(), b.label());
        // The turn before may have ended the session.
        routines::gate(b, spec.activity, end);
        spec.context.turn(b, state, end);
        result = firing(session, spec, table, b, (state, Index::Const(0), next), parts, clocks);
        b.bind(next);
        b.exit(0);
        b.bind(end);
        b.exit(1);
    });
    result?;
    let (turns, state, flags) = (b.imm(i64::from(repeats.turns)), b.slot_addr(state, 0), b.imm(0));
    b.call(Helper::LOOP, &[turns, callback, state, flags]);
    Ok(())
}

/// Where the program's own clauses walk the stacks. Marks those that several of them may walk.
fn expect_walks(
    b: &mut Builder,
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    slot: Option<V>,
) -> FiringWalks {
    let clauses = || spec.clauses.iter().map(|c| &session.module.clauses[c.clause]);
    let ops = || clauses().flat_map(|c| &c.func.blocks).flat_map(|b| &b.insts);
    let mut walks = |user| {
        let several = ops().filter(|i| stack_kind(&i.op) == Some(user)).count() > 1;
        let (Some(slot), Some(area), true) = (slot, session.layout.stacks.of(user), several) else {
            return Walks::Here;
        };
        let place = b.add(slot, area.at);
        routines::expect_walk(b, place);
        Walks::Once
    };
    FiringWalks { kernel: walks(false), user: walks(true) }
}

fn error_divided(session: &Session<'_>, spec: &ProgramSpec<'_>) -> bool {
    parts::error_parts(session, spec).iter().any(|p| !matches!(p, Part::Inline(_)))
}

/// The subprogram that faults call: it writes the fault record, and runs ERROR's clauses.
fn report(b: &mut Builder, session: &Session<'_>, spec: &ProgramSpec<'_>, clocks: Clocks) -> Result<()> {
    let mut result = Ok(());
    b.define(REPORT, &[Param::Word; 4], true, |b| {
        let (epid, head, value, number) = (b.param(0), b.param(1), b.param(2), b.param(3));
        let cpu = routines::firing(b, session.plan);
        let clock = clocks.publishes().then_some(number);
        routines::fault_record(b, session.plan, &cpu, Operand::V(epid), head, value, clock);
        let done = b.label();
        let parts = parts::error_parts(session, spec);
        let divided = parts.iter().any(|p| !matches!(p, Part::Inline(_)));
        let needs =
            divided || spec.error.clauses.iter().any(|c| session.layout.needs_slot(session.module, c.clause));
        let slot = needs.then(|| {
            let address = routines::slot_at(b, session.plan, number, done);
            SlotRef { address, number }
        });
        let this = clear_this(b, session, slot.map(|s| s.address), session.layout.error, spec.error.clauses);
        let module = session.module;
        let keeps = |clause: usize| module.clauses.get(clause).is_some_and(|c| module.keeps_scratch(&c.func));
        let keeper = slot.filter(|_| spec.error.clauses.iter().any(|c| keeps(c.clause)));
        let kept = keeper.and_then(|s| kept_scratch(b, &session.layout.d_memory, s.address));
        let context = ErrorContext { epid, head, value };
        let clock = clocks.error(b, number);
        let firing = Firing {
            clock,
            context: &context,
            ctx: epid,
            index: Index::Const(0),
            probes: &[spec.error.probe],
            table: None,
            cpu,
            slot,
            parts: session.layout.error,
            walks: FiringWalks::default(),
            this,
            divided: false,
            vtime: None,
            in_error: true,
            at_end: spec.activity == Activity::Draining,
        };
        if divided {
            result = parts::emit_error(session, spec, &firing, b, &parts);
        }
        for c in spec.error.clauses.iter().filter(|_| !divided) {
            let made =
                clause(session, &firing, b, ClauseInstance { number: c.clause, epid_base: c.epid_base });
            result = std::mem::replace(&mut result, Ok(())).and(made);
        }
        if let (Some(slot), Some(kept)) = (slot, kept) {
            keep_scratch(b, &session.layout.d_memory, slot.address, kept);
        }
        b.bind(done);
        b.exit(0);
    });
    result
}
