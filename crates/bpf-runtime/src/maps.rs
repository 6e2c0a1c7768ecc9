//! Creating the maps of a plan, and reducing those that do not fit.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use bpf_codegen::mir::MapRef;
use bpf_codegen::plan::{Area, Plan, SizeOption, VarPlan};
use bpf_sys::{Map, MapBtf, MapSpec, SysError, page_size};
use plane::control::CONTROL_SIZE;
use plane::stacks::BlockShape;
use plane::table::TABLE_MAX;
use plane::thread::ThreadShape;
use plane::{assoc, calls, owned, processes};

use crate::needed::{Limit, exceeded};

/// A size that was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// DTrace's name of the size: `buffer size`, `aggregation size`, `dynamic variable size`.
    pub what: &'static str,
    /// The reduced size, in the unit of its option.
    pub bytes: u64,
}

/// Bytes of memory that can be used without swapping; `None` if the kernel does not say. A
/// speculation has a buffer for each CPU, and there may be a thousand of them: the kernel would
/// refuse them only when nothing is left.
fn available_memory() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Creates the maps of a plan that the plan `before` does not have.
fn make(
    plan: Plan,
    before: Option<&Plan>,
    (auto, limits): (bool, &[Limit]),
    thread_btf: Option<MapBtf<'_>>,
) -> Result<Maps, SysError> {
    let mut maps = Maps { plan, lowered: Vec::new(), maps: BTreeMap::new() };
    let mut halvings: BTreeMap<&'static str, u32> = BTreeMap::new();
    if maps.plan.ring_capped && before.is_none_or(|b| b.bank != maps.plan.bank) {
        if !auto {
            return Err(SysError::new("create the buffers", libc::E2BIG));
        }
        halvings.insert("buffer size", 1);
    }
    // These limits do not depend on the memory, so they are no errors where sizes may not be
    // reduced.
    if maps.plan.aggs_capped {
        halvings.insert("aggregation size", 0);
    }
    if maps.plan.arrays_capped {
        halvings.insert("dynamic variable size", 0);
    }
    let is_new = before.is_none_or(|before| before.speculation.is_none());
    // The kernel adds up its counters for this, so only where it matters.
    let speculates = is_new && maps.plan.speculation.is_some();
    let most = speculates.then(available_memory).flatten().map_or(u64::MAX, |bytes| bytes / 4);
    while is_new && maps.plan.speculation.is_some_and(|shape| shape.bytes() > most) {
        if !auto {
            return Err(SysError::new("create the speculative buffers", libc::ENOMEM));
        }
        if !maps.plan.halve(SizeOption::Speculation) {
            break;
        }
        *halvings.entry("speculation size").or_default() += 1;
    }
    // What a limit does not allow is not made: the kernel would end a process for it, or refuse
    // what the session needs later.
    while let Some(exceeded) = exceeded(&maps.plan, before, limits) {
        let reduced = auto.then(|| exceeded.reduce(&mut maps.plan)).flatten();
        let Some(sized) = reduced else { return Err(exceeded.error()) };
        *halvings.entry(name_of(sized)).or_default() += 1;
    }
    for (map, sized) in maps.plan.wanted(before) {
        loop {
            match create(&maps.plan, map, thread_btf, &maps.maps) {
                Ok(made) => break drop(maps.maps.insert(map, made)),
                Err(e) if auto && matches!(e.errno, libc::ENOMEM | libc::E2BIG) && maps.plan.halve(sized) => {
                    *halvings.entry(name_of(sized)).or_default() += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }
    let lowered = |(what, times): (&'static str, u32)| {
        // The most, which is what as large an option would give.
        let keyed = maps.plan.aggs.iter().filter(|a| a.shape.key_size > 0).count() as u64;
        let is_most = what == "aggregation size" && times == 0;
        Lowered { what, bytes: if is_most { 2 * TABLE_MAX * keyed } else { maps.bytes_of(what) } }
    };
    maps.lowered = halvings.into_iter().map(lowered).collect();
    Ok(maps)
}

/// DTrace's name of a size that can be reduced.
fn name_of(sized: SizeOption) -> &'static str {
    match sized {
        SizeOption::Aggregation(_) => "aggregation size",
        SizeOption::Dynamic(_) => "dynamic variable size",
        SizeOption::Speculation => "speculation size",
        SizeOption::Buffer | SizeOption::Fixed => "buffer size",
    }
}

/// The maps of a session.
#[derive(Debug)]
pub struct Maps {
    /// The plan of the created maps. Programs must be generated for this plan.
    pub plan: Plan,
    /// The sizes that were reduced to make the maps fit.
    pub lowered: Vec<Lowered>,
    maps: BTreeMap<MapRef, Map>,
}

impl Maps {
    /// Creates the maps of a plan. `thread_btf` describes the value of `self->` (an array of
    /// `value_size / 8` words, see [`Plan::thread`]) and its key, a 32-bit int. Without
    /// `thread_btf`, the BTF is created here. With `auto`, a map that does not fit is halved until
    /// it does. `limits`: what there may be of memory.
    pub fn create(
        plan: Plan,
        (auto, limits): (bool, &[Limit]),
        thread_btf: Option<MapBtf<'_>>,
    ) -> Result<Maps, SysError> {
        make(plan, None, (auto, limits), thread_btf)
    }

    fn bytes_of(&self, what: &str) -> u64 {
        match what {
            "aggregation size" => self.plan.aggs.iter().map(|a| 2 * u64::from(a.shape.table_size)).sum(),
            "dynamic variable size" => {
                let each = |v: &VarPlan| match v {
                    VarPlan::Assoc(a) => {
                        let each = assoc::element_size(a.key_size(), a.data, a.heads.is_some());
                        u64::from(a.elements) * each
                    }
                    _ => 0,
                };
                self.plan.vars.iter().map(each).sum()
            }
            "speculation size" => self.plan.speculation.map_or(0, |s| s.limit.into()),
            _ => u64::from(self.plan.ring_size),
        }
    }

    /// A map of the session.
    pub fn get(&self, map: MapRef) -> Option<&Map> {
        self.maps.get(&map)
    }

    /// Adds a map that belongs to a program (strings, tables).
    pub fn insert(&mut self, at: MapRef, map: Map) {
        self.maps.insert(at, map);
    }

    /// Removes a map and returns it, for a reader that owns it (the doorbell).
    pub fn take(&mut self, map: MapRef) -> Option<Map> {
        self.maps.remove(&map)
    }

    /// All maps, with their names in programs.
    pub fn iter(&self) -> impl Iterator<Item = (MapRef, &Map)> {
        self.maps.iter().map(|(r, m)| (*r, m))
    }

    /// Creates the maps that the extended plan has and the plan `before` has not. [`Maps::adopt`]
    /// adds them to the session.
    pub fn extend(before: &Plan, plan: Plan, (auto, limits): (bool, &[Limit])) -> Result<Maps, SysError> {
        make(plan, Some(before), (auto, limits), None)
    }

    /// Adds the maps of an extended plan, which becomes the session's plan. Returns the maps that
    /// were replaced. Running programs still use those.
    pub fn adopt(&mut self, more: Maps) -> Vec<(MapRef, Map)> {
        self.plan = more.plan;
        self.lowered = more.lowered;
        more.maps.into_iter().filter_map(|(at, map)| Some((at, self.maps.insert(at, map)?))).collect()
    }
}

/// Creates a map of the plan. `made` has the maps that exist already.
fn create(
    plan: &Plan,
    map: MapRef,
    thread_btf: Option<MapBtf<'_>>,
    made: &BTreeMap<MapRef, Map>,
) -> Result<Map, SysError> {
    let area = |name, area: Area| {
        // Sizes beyond the limits of an element or map fail in the kernel with E2BIG, and may
        // then be reduced.
        let total = u32::try_from(area.total()).unwrap_or(u32::MAX);
        if area.direct() {
            Map::create(&MapSpec::mmapable(name, total, 1))
        } else {
            Map::create(&MapSpec::mmapable(name, area.stride, area.count))
        }
    };
    let page = u32::try_from(page_size()).unwrap_or(4096);
    match map {
        MapRef::PerCpu => area("dt_percpu", plan.percpu()),
        MapRef::Rings => area("dt_rings", plan.rings()),
        MapRef::Slots => area("dt_slots", plan.slots()),
        MapRef::SpeculationControl => {
            let size = plan.speculation.map_or(8, |s| s.control_size());
            Map::create(&MapSpec::mmapable("dt_spec", size, 1))
        }
        MapRef::SpeculationRings => {
            let none = Area { map, at: 0, stride: 8, count: 1 };
            area("dt_specrings", plan.speculation_rings().unwrap_or(none))
        }
        MapRef::Agg(a) => {
            let none = Area { map, at: 0, stride: 8, count: 1 };
            area(&format!("dt_agg{a}"), plan.agg(a).unwrap_or(none))
        }
        MapRef::Doorbell => Map::create(&MapSpec::ringbuf("dt_doorbell", page)),
        MapRef::Globals => Map::create(&MapSpec::mmapable("dt_globals", plan.globals_size, 1)),
        MapRef::SelfStore => {
            let size = plan.thread.map_or(8, ThreadShape::value_size);
            match thread_btf {
                Some(btf) => Map::create(&MapSpec::task_storage("dt_self", size, btf)),
                None => task_storage("dt_self", size),
            }
        }
        MapRef::StackSide => stack_side(plan.stack_block, 1),
        MapRef::Stacks => {
            let Some(side) = made.get(&MapRef::StackSide) else {
                return Err(SysError::new("create the stack store", libc::EINVAL));
            };
            let map = Map::create(&MapSpec::array_of_maps("dt_stacks", side.as_fd(), 1))?;
            map.set_fd(0, side.as_fd())?;
            Ok(map)
        }
        MapRef::Var(v) => match plan.vars.get(v as usize) {
            Some(VarPlan::Assoc(a)) => {
                Map::create(&MapSpec::hash(&format!("dt_var{v}"), a.key_size(), a.value_size(), a.elements))
            }
            Some(VarPlan::GlobalAlone(size)) => {
                Map::create(&MapSpec::mmapable(&format!("dt_var{v}"), *size, 1))
            }
            Some(VarPlan::ThreadAlone(shape)) => task_storage(&format!("dt_var{v}"), shape.value_size()),
            _ => Err(SysError::new(format!("create a map for variable {v}"), libc::EINVAL)),
        },
        MapRef::Arrays(first) => create_arrays(plan, first, made),
        MapRef::Vtime => task_storage("dt_vtime", plane::vtime::SIZE),
        MapRef::Nodes(v) => area(&format!("dt_nodes{v}"), plan.nodes(v)),
        MapRef::Heads(v) => task_storage(&format!("dt_heads{v}"), owned::HEADS),
        MapRef::UnwindDirectory => Map::create(&MapSpec::mmapable("dt_unwind", plane::unwind::DIRECTORY, 1)),
        MapRef::UnwindRequests => Map::create(&MapSpec::ringbuf("dt_unwind_ask", page)),
        MapRef::UnwindFound => Map::create(&MapSpec::percpu("dt_unwind_found", plane::unwind::FOUND_BYTES)),
        MapRef::UnwindFiles => {
            use plane::unwind::{FILE, FILE_KEY, FILES};
            Map::create(&MapSpec::hash("dt_unwind_files", FILE_KEY, FILE, FILES))
        }
        MapRef::UnwindUnknown => {
            use plane::unwind::{FILE_KEY, UNKNOWN_FILE, UNKNOWN_FILES};
            Map::create(&MapSpec::hash("dt_unwind_new", FILE_KEY, UNKNOWN_FILE, UNKNOWN_FILES))
        }
        MapRef::UnwindChunk => unwind_chunk(),
        MapRef::UnwindChunks => {
            let Some(chunk) = made.get(&MapRef::UnwindChunk) else {
                return Err(SysError::new("create the tables of stacks", libc::EINVAL));
            };
            Map::create(&MapSpec::array_of_maps("dt_unwind_rows", chunk.as_fd(), plane::unwind::CHUNKS))
        }
        MapRef::RuntimeCodes => Map::create(&MapSpec::hash("dt_rt_codes", calls::KEY, 8, calls::CODES)),
        MapRef::RuntimeFound => Map::create(&MapSpec::percpu("dt_rt_found", calls::FOUND_BYTES)),
        MapRef::RuntimeNames => Map::create(&MapSpec::mmapable("dt_rt_names", calls::STORE, 1)),
        MapRef::Processes => Map::create(&MapSpec::hash(
            "dt_processes",
            processes::KEY,
            processes::SIZE,
            plan.processes.max(1),
        )),
        MapRef::EmptyProgArray => Map::create(&MapSpec::prog_array("dt_no_program")),
        MapRef::Control
        | MapRef::Strings
        | MapRef::TracerFunctions
        | MapRef::TracerCache
        | MapRef::KernelRows
        | MapRef::Table(_)
        | MapRef::Served
        | MapRef::Names
        | MapRef::Probes => Map::create(&MapSpec::mmapable("dt_control", CONTROL_SIZE, 1)),
    }
}

/// Creates a chunk of the tables by which stacks of processes are walked.
pub fn unwind_chunk() -> Result<Map, SysError> {
    Map::create(&MapSpec::mmapable("dt_unwind_chunk", 8 * plane::unwind::CHUNK_WORDS, 1))
}

/// Creates a side of the stack store.
pub fn stack_side(shape: BlockShape, blocks: u32) -> Result<Map, SysError> {
    let spec = MapSpec::mmapable("dt_stack_side", shape.size, blocks);
    Map::create(&MapSpec { flags: spec.flags | bpf_sys::flags::INNER_MAP, ..spec })
}

/// Creates a map of arrays that exist already.
pub(super) fn create_arrays(plan: &Plan, first: u32, made: &BTreeMap<MapRef, Map>) -> Result<Map, SysError> {
    let arrays = (0..).zip(&plan.vars).filter_map(|(i, v)| match v {
        VarPlan::Assoc(a) if a.shared?.first == first => Some((a.shared?.index, made.get(&MapRef::Var(i))?)),
        _ => None,
    });
    let arrays: Vec<(u32, &Map)> = arrays.collect();
    let name = format!("dt_arrays{first}");
    let Some((_, like)) = arrays.first() else {
        return Err(SysError::new(format!("create {name}"), libc::EINVAL));
    };
    let map = Map::create(&MapSpec::array_of_maps(&name, like.as_fd(), arrays.len() as u32))?;
    for (index, array) in arrays {
        map.set_fd(index, array.as_fd())?;
    }
    Ok(map)
}

/// Creates a task storage of so many bytes, with the BTF that the kernel requires.
fn task_storage(name: &str, bytes: u32) -> Result<Map, SysError> {
    let mut b = bpf_sys::btf::Builder::new();
    let key = b.i32();
    let value = b.words("dt_self", bytes.div_ceil(8));
    let object = b.load()?;
    let btf = MapBtf { btf: object.as_fd(), key: key.0, value: value.0 };
    Map::create(&MapSpec::task_storage(name, bytes, btf))
}
