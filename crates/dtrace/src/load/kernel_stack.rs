//! How programs take stacks of the kernel: what they walk them by, and which frames are the
//! tracer's own.

use bpf_codegen::context::StackStart;
use bpf_codegen::mir::MapRef;
use bpf_codegen::routines::KERNEL_ROWS;
use bpf_codegen::target::{
    DirectLoad, KernelTables, KernelWalk, ModuleTables, RowLayout, RowRegisters, Target, WalkMode,
};
use bpf_runtime::maps::Maps;
use bpf_sys::features::Facility;
use bpf_sys::{Map, MapSpec};
use dif::ir::{IntBuiltin, Module, Op};
use types::btf::Btf;

use crate::error::Error;
use crate::load::RunningSession;
use crate::load::assemble::Assembly;
use crate::load::facts::{SystemContext, direct_load, read_only, uses};
use crate::options::{self, Options};

/// The kernel's tables by which programs walk its stack, or why they do not: for all programs of a
/// session the same.
pub(crate) type KernelRows = Result<KernelTables, String>;

/// The answer of a kernel that has refused programs that walk its stack.
pub(crate) fn refused() -> KernelRows {
    Err("the kernel has refused programs that do it themselves".into())
}

/// The programs that are about to be loaded.
#[derive(Clone, Copy)]
pub(crate) struct Programs<'a> {
    pub(crate) module: &'a Module,
    pub(crate) assembly: &'a Assembly,
    pub(crate) running: Option<&'a RunningSession>,
}

impl Programs<'_> {
    /// True if a clause takes a stack of the kernel.
    fn take_stacks(&self) -> bool {
        uses(self.module, |op| {
            matches!(op, Op::Stack { user: false, .. })
                || matches!(op, Op::Builtin(IntBuiltin::StackDepth | IntBuiltin::Caller))
        })
    }

    /// Where walks begin that programs can do themselves.
    fn starts(&self) -> impl Iterator<Item = StackStart> + '_ {
        let units = self.assembly.units.iter().filter(|a| !a.clauses.is_empty());
        units.filter_map(|a| a.unit.context.stack_start())
    }

    fn has(&self, map: MapRef) -> bool {
        self.running.is_some_and(|r| r.fds.contains_key(&map))
    }
}

/// Completes the target, and creates the maps that programs need to take stacks of the kernel.
/// Symbols are read only if they do, and rows are searched only if they are not known. Returns a
/// line about the way, for `-v`.
pub(crate) fn prepare(
    programs: Programs<'_>,
    options: &Options,
    system: &SystemContext<'_>,
    (target, maps, rows): (&mut Target, &mut Maps, &mut Option<KernelRows>),
) -> Result<Option<String>, Error> {
    if !programs.take_stacks() {
        // The map is there for what is enabled later, which takes it from the session.
        target.tracer_functions = programs.has(MapRef::TracerFunctions);
        return Ok(None);
    }
    target.tracer_functions = tracer_functions(programs, system, maps)?;
    if programs.starts().any(|start| start == StackStart::Interrupted)
        && system.features.has(Facility::TaskBtf)
    {
        let flags = system.kernel.vmlinux().ok().and_then(|btf| btf.field("task_struct.flags"));
        target.guest = flags.and_then(|flags| i16::try_from(flags.offset()).ok());
    }
    if programs.starts().next().is_none() {
        return Ok(None);
    }
    let mode = match options.kstackwalk {
        options::KernelWalk::Helper => {
            return Ok(Some("stacks of the kernel are walked by its helper: -x kstackwalk=helper".into()));
        }
        options::KernelWalk::Orc => WalkMode::Own,
        options::KernelWalk::Check => WalkMode::Check,
        options::KernelWalk::Auto => WalkMode::Auto,
    };
    Ok(Some(match rows.get_or_insert_with(|| kernel_rows(system)) {
        Ok(tables) => {
            target.kernel_walk = Some(KernelWalk { tables: *tables, mode });
            if !programs.has(MapRef::KernelRows) {
                let map = MapSpec::array("dt_kernel_rows", 8 * KERNEL_ROWS, 1);
                maps.insert(MapRef::KernelRows, Map::create(&map)?);
            }
            format!("stacks of the kernel are walked by its {} rows (ORC)", tables.count)
        }
        Err(why) => format!("stacks of the kernel are walked by its helper: {why}"),
    }))
}

/// Creates the map of the functions between tracepoints and programs, if a clause takes a stack
/// there. Returns whether the map exists.
fn tracer_functions(
    programs: Programs<'_>,
    system: &SystemContext<'_>,
    maps: &mut Maps,
) -> Result<bool, Error> {
    if programs.has(MapRef::TracerFunctions) {
        return Ok(true);
    }
    if !programs.assembly.units.iter().any(|a| a.unit.context.behind_tracepoint()) {
        return Ok(false);
    }
    let is_tracer =
        |name: &str| ["bpf_trace_run", "__bpf_trace_", "__traceiter_"].iter().any(|p| name.starts_with(p));
    let ranges = system.symbols.borrow_mut().ranges(is_tracer);
    let Some(table) = bpf_codegen::routines::tracer_functions(&ranges).filter(|_| !ranges.is_empty()) else {
        return Ok(false);
    };
    maps.insert(MapRef::TracerFunctions, read_only("dt_own_funcs", &table)?);
    let cache = MapSpec::array("dt_own_cache", 8 * bpf_codegen::routines::CACHED, 1);
    maps.insert(MapRef::TracerCache, Map::create(&cache)?);
    Ok(true)
}

/// Finds the kernel's tables.
fn kernel_rows(system: &SystemContext<'_>) -> KernelRows {
    for facility in [Facility::Kfuncs, Facility::BpfLoop] {
        if let Some(why) = system.features.why_not(facility) {
            return Err(format!("{}: {why}", facility.name()));
        }
    }
    let btf = system.kernel.vmlinux().map_err(ToString::to_string)?;
    let load = direct_load(system).ok_or("direct loads are not described")?;
    let layout = row_layout(btf).ok_or("its types have no rows of the known form")?;
    tables(load, layout, system)
}

/// The members of the rows.
fn row_layout(btf: &Btf) -> Option<RowLayout> {
    let rows = btf.find_sou(false, "orc_entry")?;
    RowLayout::by(btf.size(rows)?, |name| {
        let field = btf.member(rows, name)?;
        let whole = u8::try_from(8 * field.size).ok()?;
        Some((field.bit_offset, field.bits.unwrap_or(whole)))
    })
}

/// The symbols of the code, of its tables, and of what the kernel puts in the place of a return
/// address.
const SYMBOLS: [&str; 11] = [
    "mod_tree",
    "_stext",
    "_etext",
    "__start_orc_unwind_ip",
    "__stop_orc_unwind_ip",
    "__start_orc_unwind",
    "__stop_orc_unwind",
    "_sinittext",
    "_einittext",
    "return_to_handler",
    "arch_rethook_trampoline",
];

fn tables(load: DirectLoad, layout: RowLayout, system: &SystemContext<'_>) -> KernelRows {
    let found = system.symbols.borrow_mut().addresses(&SYMBOLS);
    let at = |name: &str| SYMBOLS.iter().zip(&found).find(|(n, _)| **n == name).and_then(|(_, at)| *at);
    let between = |start: &str, end: &str| {
        let begins = at(start).ok_or_else(|| format!("no symbol {start}"))?;
        let ends = at(end).ok_or_else(|| format!("no symbol {end}"))?;
        let size = ends.checked_sub(begins).and_then(|size| u32::try_from(size).ok());
        size.filter(|size| *size > 0)
            .map(|size| (begins, size))
            .ok_or_else(|| format!("{start} is not before {end}"))
    };
    let text = between("_stext", "_etext")?;
    let (places, places_size) = between("__start_orc_unwind_ip", "__stop_orc_unwind_ip")?;
    let (rows, rows_size) = between("__start_orc_unwind", "__stop_orc_unwind")?;
    let count = places_size / 4;
    if u64::from(rows_size) != u64::from(count) * u64::from(layout.size) {
        return Err("its rows are not of the size that its types say".into());
    }
    let text = [text, between("_sinittext", "_einittext").unwrap_or((0, 0))];
    let registers = registers(rows, count, layout)?;
    let replaced = [at("return_to_handler"), at("arch_rethook_trampoline")];
    let offset = |member: &str| {
        let field = system.kernel.vmlinux().ok()?.field(member)?;
        i16::try_from(field.offset()).ok()
    };
    let modules = at("mod_tree").and_then(|tree| ModuleTables::by(tree, offset));
    Ok(KernelTables { load, text, places, rows, count, layout, registers, modules, replaced })
}

/// What the numbers of registers mean, by the most frequent ones of some rows: kernels have given
/// them others since, and no type says it.
fn registers(rows: u64, count: u32, layout: RowLayout) -> Result<RowRegisters, String> {
    const SAMPLES: u32 = 512;
    let step = (count / SAMPLES).max(1);
    let bits = |i: u32| rows + u64::from(i * step) * u64::from(layout.size) + u64::from(layout.bits);
    let addresses: Vec<u64> = (0..SAMPLES.min(count)).map(bits).collect();
    let words = bpf_sys::kernel_read::words(&addresses).map_err(|e| e.to_string())?;
    let most = |first: u8| {
        let mut seen = [0u32; 16];
        for word in &words {
            // 0: the register is not used.
            let number = (word >> first & 15) as usize;
            if let Some(seen) = seen.get_mut(number).filter(|_| number != 0) {
                *seen += 1;
            }
        }
        (0u8..).zip(seen).max_by_key(|(_, times)| *times).map_or(0, |(number, _)| number)
    };
    let (sp, prev_sp) = (most(layout.sp_register), most(layout.bp_register));
    let known = RowRegisters::KNOWN.into_iter().find(|known| (known.sp, known.prev_sp) == (sp, prev_sp));
    known.ok_or_else(|| format!("the registers of its rows have other numbers ({sp}, {prev_sp})"))
}
