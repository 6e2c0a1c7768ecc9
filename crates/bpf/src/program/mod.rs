//! A program: the code around the clauses of the probes that one attachment serves.
//!
//! ```text
//!  first       what the provider counts at every firing: Context         clocks only
//!  gate        ends the program unless the session has this activity     3 instructions
//!  index       which probe fired (constant, or from the context): Context
//!  union       ends the program if no clause wants the probe             many probes only
//!  CPU, slot   the resources that the clauses need
//!  clauses     in order, each behind the test of its probe set; behind one with exit(), the gate again
//!  release     releases the slot
//! ```
//!
//! Big programs have their clauses in functions: see [`parts`].
//!
//! The decision that shapes programs: providers differ in three questions (which probe, which
//! argument, which error), which they answer through [`Context`] at code generation. So a provider
//! emits three loads and knows nothing of records, and this crate knows nothing of providers.
//!
//! The result names its maps ([`MapRef`]). [`Compiled::image`] replaces them by descriptors.

mod clock;
mod dispatch;
mod parts;
mod prefault;
mod service;
mod target;

use std::ops::Range;

use diagnostics::{SourceMap, Span};
use dif::ir::{IntBuiltin, Module, Op};
use plane::control::Activity;

use crate::emit::{Code, assemble};
use crate::load::{ProgramImage, SourceLine, Subprogram};
use crate::maps::{Area, Plan};
use crate::mir::{Builder, Helper, Label, MapRef, Operand, Param, Size, V};
use crate::regalloc::CodegenError;
pub use crate::routines::PathOffsets;
use crate::routines::{self, Purpose, SlotRef, words};
pub use crate::select::layout::Layout;
use crate::select::layout::SlotParts;
use crate::select::{ClauseInstance, Firing, Result, clause, d_memory, fault, near};
use crate::sys::{AttachType, ProgKind};
use clock::Clocks;
use dispatch::{Table, clause_test, probe_index, union_test};
pub use parts::Division;
use parts::Part;
pub(crate) use parts::operations;
pub use prefault::prefault;
pub use service::{end_of_thread, heartbeat, vtime_switch};
pub use target::{PidNamespace, PidOffsets, Target, TaskOffsets, ThreadOffsets};

/// What all programs of a session share.
#[derive(Clone, Copy, Debug)]
pub struct Session<'e> {
    /// The clauses.
    pub module: &'e Module,
    /// The maps.
    pub plan: &'e Plan,
    /// The layout of the scratch slots. The plan was made for its [`Layout::slot_bytes`].
    pub layout: &'e Layout,
    /// The target kernel.
    pub target: &'e Target,
    /// Number of interned strings in [`MapRef::Strings`]: those of the module, then names of
    /// probes. `strsize` bytes each, without duplicates.
    pub interned: u32,
}

impl Session<'_> {
    /// The interned strings. They are looked up by number where there are too many for one element.
    pub fn strings(&self) -> Area {
        Area { map: MapRef::Strings, at: 0, stride: self.module.strsize, count: self.interned.max(1) }
    }
}

/// Which probe of a program fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// Always this one.
    Const(u32),
    /// The number in this register. It may have any value, and is compared with the number of
    /// probes.
    V(V),
}

/// The provider's part of a program: loads from the program's context. An implementation emits code
/// and holds no state.
pub trait Context {
    /// Emits what every firing does first, whatever the state of the session.
    fn first(&self, b: &mut Builder) {
        let _ = b;
    }

    /// Which probe fired. May jump to `miss` when it is none of the program's.
    fn index(&self, b: &mut Builder, ctx: V, miss: Label) -> Index {
        let _ = (b, ctx, miss);
        Index::Const(0)
    }

    /// `argN` as a raw value, 0 where the probe has no such argument.
    fn arg(&self, b: &mut Builder, ctx: V, index: Index, n: u8) -> V {
        let _ = (ctx, index, n);
        b.imm(0)
    }

    /// `errno`.
    fn errno(&self, b: &mut Builder, ctx: V, index: Index) -> V {
        let _ = (ctx, index);
        b.imm(0)
    }

    /// The number of innermost kernel frames between the probe and the program, which belong to the
    /// tracer.
    fn tracer_frames(&self) -> u8 {
        0
    }

    /// True when the kernel calls the program from a tracepoint. Where the kernel's dispatch
    /// functions are known, their frames are skipped, however many there are, instead of
    /// [`Context::tracer_frames`].
    fn behind_tracepoint(&self) -> bool {
        false
    }

    /// The position of the caller's frame, counted without the tracer's frames. Where the probed
    /// function has returned, it is the first.
    fn caller_frame(&self) -> u8 {
        1
    }

    /// False when `bpf_get_stack` does not accept this context. Stacks are then 0, "could not be
    /// taken".
    fn has_stacks(&self) -> bool {
        true
    }
}

/// A probe of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The id, as `dtrace -l` shows it.
    pub id: u32,
    /// Interned provider, module, function, name.
    pub names: [u32; 4],
}

/// The probes of a program for which a clause runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSet {
    /// All probes.
    All,
    /// The probe at this index.
    One(u32),
    /// Bit `i % 64` of word `i / 64` is probe `i`.
    Bitmap(Vec<u64>),
}

impl ProbeSet {
    /// True when the set contains probe `i`.
    pub fn contains(&self, i: u32) -> bool {
        match self {
            ProbeSet::All => true,
            ProbeSet::One(n) => *n == i,
            ProbeSet::Bitmap(words) => words.get(i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 != 0),
        }
    }
}

/// A clause in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClauseUse {
    /// Its index in the module.
    pub clause: usize,
    /// The probes for which it runs.
    pub probes: ProbeSet,
    /// The enabled-probe id for probe index 0. For probe `i` the id is `epid_base + i`.
    pub epid_base: u32,
}

/// The probe ERROR, which is part of every program whose clauses may fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorProbe<'a> {
    /// The probe, whose index is 0.
    pub probe: Probe,
    /// Its clauses in program order.
    pub clauses: &'a [ClauseUse],
}

/// The parameters of a program.
pub struct ProgramSpec<'a> {
    /// The name in the kernel's lists and in messages.
    pub name: &'a str,
    /// The program's kind.
    pub kind: ProgKind,
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target, 0 for none.
    pub attach_btf_id: u32,
    /// The activity in which it runs: `Active` for probes, `Warmup` for BEGIN, `Draining` for END.
    pub activity: Activity,
    /// The provider's part.
    pub context: &'a dyn Context,
    /// Its probes by index; at least one.
    pub probes: &'a [Probe],
    /// Its clauses in program order.
    pub clauses: &'a [ClauseUse],
    /// The probe that a fault fires.
    pub error: ErrorProbe<'a>,
    /// Number of the program's table in the session ([`MapRef::Table`]).
    pub table: u32,
}

/// Offset of the rows of facts in a program's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTable {
    pub(crate) number: u32,
    pub(crate) rows: u32,
    pub(crate) stride: u32,
}

/// A compiled program, before its maps are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The name in the kernel's lists.
    pub name: String,
    /// The program's kind.
    pub kind: ProgKind,
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target.
    pub attach_btf_id: u32,
    /// The program may sleep.
    pub sleepable: bool,
    /// The code.
    pub code: Code,
    /// The content of the program's table, a read-only array map of one element. `None` when it
    /// needs no table.
    pub table: Option<Vec<u8>>,
}

impl Compiled {
    /// The image for the kernel. `fd` resolves the maps. `sources` has the texts from which lines
    /// are quoted.
    pub fn image(
        &self,
        fd: impl Fn(MapRef) -> Option<i32>,
        sources: Option<&SourceMap>,
    ) -> Result<ProgramImage> {
        let mut image = ProgramImage::new(&self.name, self.kind, self.code.insns.clone());
        image.attach = self.attach;
        image.attach_btf_id = self.attach_btf_id;
        image.sleepable = self.sleepable;
        for (at, map) in &self.code.relocs {
            let Some(fd) = fd(*map) else {
                return Err(CodegenError { span: None, message: format!("{}: no map {map:?}", self.name) });
            };
            if !image.relocate(*at, fd) {
                return Err(CodegenError { span: None, message: format!("no map reference at {at}") });
            }
        }
        image.copies.clone_from(&self.code.copies);
        if self.code.funcs.len() > 1 {
            image.funcs = self
                .code
                .funcs
                .iter()
                .map(|f| Subprogram {
                    name: f.name.clone(),
                    start: f.start,
                    params: f.params.clone(),
                    global: f.global || f.start == 0,
                })
                .collect();
        }
        if let Some(map) = sources {
            image.lines = self.code.lines.iter().map(|(at, span)| (*at, source_line(map, *span))).collect();
        }
        Ok(image)
    }
}

/// Source lines longer than this are shortened for the kernel.
const LINE: usize = 400;

fn source_line(map: &SourceMap, span: Span) -> SourceLine {
    let (line, column) = map.line_column(span.file, span.start);
    let (mut file, shown) = map.line_origin(span.file, line);
    if file.is_empty() {
        // The same name as in messages of the compiler.
        file = "command line".into();
    }
    // A script in one line has every statement on that line, so only the text from this statement
    // on is quoted.
    let text = match map.line(span.file, line) {
        all if all.len() <= LINE => all.to_owned(),
        _ => map.snippet(span).lines().next().unwrap_or("").chars().take(LINE).collect(),
    };
    SourceLine { file, line: shown, column, text }
}

/// True where another firing of the program may preempt it on its CPU, so that the program's stack
/// must not be in per-CPU memory: uprobes, and single kprobes, which are loaded the same way.
///
/// Kernels from 6.13 give programs of these kinds a *private stack* in per-CPU memory, on the
/// assumption that no other firing runs in between. Uprobe programs of two threads can preempt each
/// other on one CPU, and each would then read the other's spilled registers: wrong arguments,
/// records that are never committed, or even an invalid pointer. A program with a tail call gets no
/// private stack. So such a program contains a tail call into an empty table. The call is on the
/// path where the session is not active, so it costs nothing.
pub fn must_avoid_private_stack(kind: ProgKind, attach: AttachType) -> bool {
    kind == ProgKind::Kprobe && !matches!(attach, AttachType::KprobeMulti | AttachType::KprobeSession)
}

/// The kernel's limit on maps that a program uses (`MAX_USED_MAPS`).
const MAPS_MAX: usize = 64;

/// Bytes of a row of facts.
const ROW: u32 = 20;

/// Compiles a program.
pub fn compile(session: &Session<'_>, spec: &ProgramSpec<'_>) -> Result<Compiled> {
    let mut b = Builder::new("main", 1);
    let mut table = Table::default();
    let (out, idle) = (b.label(), b.label());
    let own_stack = must_avoid_private_stack(spec.kind, spec.attach);
    spec.context.first(&mut b);
    routines::gate(&mut b, spec.activity, if own_stack { idle } else { out });
    let ctx = b.param(0);
    let index = probe_index(&mut b, spec, ctx, out);
    union_test(&mut b, spec, spec.clauses, &mut table, index, out);
    let parts = parts::divide(session, spec)?;
    // The program's return value, where its type allows one. 0 lets the probed function run.
    let gives = session.layout.main.result.filter(|_| spec.attach == AttachType::ModifyReturn);
    let result = gives.map(|_| b.copy(0));
    let cpu = routines::firing(&mut b, session.plan);
    let divided = parts.iter().any(|p| !matches!(p, Part::Inline(_)));
    let account = session.plan.vtime.then(|| {
        let reads = reads_vtime(session.module, spec);
        let runtime = session.target.runtime.filter(|_| reads);
        routines::vtime_begin(&mut b, &cpu, runtime)
    });
    let no_slot = if account.is_some() { b.label() } else { out };
    let error_divided = error_divided(session, spec);
    let clocks = Clocks::new(session, spec, divided || error_divided);
    let memory = divided || error_divided || uses_slot(session, spec);
    let purpose = Purpose { memory, publishes: clocks.publishes() };
    let slot = (memory || clocks.in_slot())
        .then(|| routines::take_slot(&mut b, session.plan, &cpu, purpose, no_slot));
    let address = slot.and_then(|s| s.address);
    let clock = clocks.main(&mut b, slot.map(|s| s.number));
    let facts = match index {
        Index::V(_) if names_probe(session.module, spec) => {
            Some(ProbeTable { number: spec.table, rows: table.rows(spec.probes), stride: ROW })
        }
        _ => None,
    };
    let this = clear_this(&mut b, session, address, session.layout.main, spec.clauses);
    let firing = Firing {
        context: spec.context,
        ctx,
        index,
        probes: spec.probes,
        table: facts,
        cpu,
        clock,
        slot: slot.and_then(|s| Some(SlotRef { address: s.address?, number: s.number })),
        parts: session.layout.main,
        captured: None,
        this,
        divided,
        vtime: account.map(|a| a.value),
        in_error: false,
    };
    let release = b.label();
    if divided {
        parts::emit(session, spec, &mut table, &firing, &mut b, &parts, release)?;
    } else {
        clauses(session, spec, &mut table, &firing, &mut b, 0..spec.clauses.len(), release)?;
    }
    b.bind(release);
    if let (Some(address), Some(at), Some(result)) = (address, gives, result) {
        let (base, at) = near(&mut b, address, at, 8);
        let given = b.load(Size::B8, base, at);
        b.set(result, given);
    }
    if let Some(slot) = &slot {
        clock.forget(&mut b, &cpu);
        routines::release_slot(&mut b, &cpu, slot);
    }
    if let Some(account) = &account {
        b.bind(no_slot);
        routines::vtime_end(&mut b, account);
    }
    if let Some(result) = result {
        b.exit(result);
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

/// Emits some of the program's clauses, each behind its test. Jumps to `stopped` when one of them
/// ended the session.
fn clauses(
    session: &Session<'_>,
    spec: &ProgramSpec<'_>,
    table: &mut Table,
    firing: &Firing<'_>,
    b: &mut Builder,
    range: Range<usize>,
    stopped: Label,
) -> Result<()> {
    for i in range {
        let (c, skip) = (&spec.clauses[i], b.label());
        clause_test(b, spec, table, c, firing.index, skip);
        clause(session, firing, b, ClauseInstance { number: c.clause, epid_base: c.epid_base })?;
        b.bind(skip);
        gate_behind(session, spec, b, i, stopped);
    }
    Ok(())
}

/// The gate behind a clause that may have ended the session, which jumps to `stopped`. BEGIN and
/// END run to their end, like in the original.
fn gate_behind(session: &Session<'_>, spec: &ProgramSpec<'_>, b: &mut Builder, i: usize, stopped: Label) {
    let more = i + 1 < spec.clauses.len();
    if more && spec.activity == Activity::Active && may_exit(session, spec, spec.clauses[i].clause) {
        routines::gate(b, spec.activity, stopped);
    }
}

/// Registers for `this->` integers, and zeros for the `this->` variables in the slot.
fn clear_this(
    b: &mut Builder,
    session: &Session<'_>,
    slot: Option<V>,
    parts: SlotParts,
    clauses: &[ClauseUse],
) -> Vec<Option<V>> {
    let vars = session.module.vars.iter();
    let places = session.layout.this.iter();
    let this = vars.zip(places).map(|(v, at)| (is_this_int(v) && at.is_none()).then(|| b.copy(0))).collect();
    let size = parts.temps - parts.this;
    if let Some(slot) = slot
        && size > 0
    {
        let (base, at) = near(b, slot, parts.this, size);
        words::zero(b, base, at, size);
    }
    // Objects may be long, so they are cleared only where these clauses can reach them. Without
    // objects in the session, the slot has no space for them.
    let (module, own) = (session.module, session.layout.has_d_memory);
    if let Some(slot) = slot
        && session.layout.d_memory.word > parts.objects
        && d_memory::needs(module, own, clauses.iter().map(|c| &module.clauses[c.clause])).objects
    {
        let mut at = 0;
        while at < session.layout.objects {
            let bytes = (session.layout.objects - at).min(4096);
            let base = b.add(slot, parts.objects + at);
            words::zero(b, base, 0, bytes);
            at += bytes;
        }
    }
    for word in [parts.token, parts.result].into_iter().flatten() {
        let Some(slot) = slot else { continue };
        let (base, at) = near(b, slot, word, 8);
        b.store(Size::B8, base, at, 0);
    }
    this
}

/// True for an integer in a register of the program.
pub(crate) fn is_this_int(v: &dif::ir::VarDesc) -> bool {
    v.scope == dif::ir::Scope::Clause && v.key.is_none() && matches!(v.ty, dif::ir::VarTy::Int { .. })
}

fn has(module: &Module, clause: usize, what: impl Fn(&Op) -> bool) -> bool {
    module.clauses[clause].func.blocks.iter().flat_map(|b| &b.insts).any(|i| what(&i.op))
}

fn may_fault(session: &Session<'_>, clause: usize) -> bool {
    session.module.clauses[clause].func.may_fault(&session.layout.null_vars)
}

/// True when the clause may end the session: by its own `exit()`, or by one in a clause of ERROR.
fn may_exit(session: &Session<'_>, spec: &ProgramSpec<'_>, clause: usize) -> bool {
    let module = session.module;
    let exits = |clause| has(module, clause, |o| matches!(o, Op::Exit(_)));
    exits(clause) || (may_fault(session, clause) && spec.error.clauses.iter().any(|c| exits(c.clause)))
}

fn reads_vtime(module: &Module, spec: &ProgramSpec<'_>) -> bool {
    let reads = |c: &ClauseUse| has(module, c.clause, |o| *o == Op::Builtin(IntBuiltin::Vtimestamp));
    spec.clauses.iter().chain(spec.error.clauses).any(reads)
}

fn uses_slot(session: &Session<'_>, spec: &ProgramSpec<'_>) -> bool {
    let module = session.module;
    let needs = |c: &ClauseUse| session.layout.needs_slot(module, c.clause);
    let faults = || spec.clauses.iter().any(|c| may_fault(session, c.clause));
    spec.clauses.iter().any(needs) || (spec.error.clauses.iter().any(needs) && faults())
}

fn error_divided(session: &Session<'_>, spec: &ProgramSpec<'_>) -> bool {
    parts::error_parts(session, spec).iter().any(|p| !matches!(p, Part::Inline(_)))
}

fn names_probe(module: &Module, spec: &ProgramSpec<'_>) -> bool {
    let names = |o: &Op| match o {
        Op::Builtin(IntBuiltin::ProbeId) => true,
        Op::BuiltinStr(s) => *s != dif::ir::StrBuiltin::Execname,
        _ => false,
    };
    spec.clauses.iter().any(|c| has(module, c.clause, names))
}

/// The arguments of ERROR's clauses: `arg1` epid, `arg2` action, `arg3` DIF offset, `arg4` fault,
/// `arg5` value.
struct ErrorContext {
    epid: V,
    head: V,
    value: V,
}

impl Context for ErrorContext {
    fn arg(&self, b: &mut Builder, _: V, _: Index, n: u8) -> V {
        match n {
            1 => b.copy(self.epid),
            2 => {
                let action = b.shr(self.head, 16);
                b.and(action, 0xffff)
            }
            3 => b.shr(self.head, 32),
            4 => b.and(self.head, 0xffff),
            5 => b.copy(self.value),
            _ => b.imm(0),
        }
    }

    fn has_stacks(&self) -> bool {
        false
    }
}

/// The subprogram that faults call: it writes the fault record, and runs ERROR's clauses.
fn report(b: &mut Builder, session: &Session<'_>, spec: &ProgramSpec<'_>, clocks: Clocks) -> Result<()> {
    let mut result = Ok(());
    b.define(fault::REPORT, &[Param::Word; 4], true, |b| {
        let (epid, head, value, number) = (b.param(0), b.param(1), b.param(2), b.param(3));
        let cpu = routines::firing(b, session.plan);
        routines::fault_record(b, session.plan, &cpu, Operand::V(epid), head, value);
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
            captured: None,
            this,
            divided: false,
            vtime: None,
            in_error: true,
        };
        if divided {
            result = parts::emit_error(session, spec, &firing, b, &parts);
        }
        for c in spec.error.clauses.iter().filter(|_| !divided) {
            let made =
                clause(session, &firing, b, ClauseInstance { number: c.clause, epid_base: c.epid_base });
            result = std::mem::replace(&mut result, Ok(())).and(made);
        }
        b.bind(done);
        b.exit(0);
    });
    result
}
