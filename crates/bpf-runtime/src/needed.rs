//! The memory that the maps of a plan take, known before one is made.
//!
//! ```text
//!  counted      what is there from the start: buffers, tables of aggregations, arrays, scratch memory, speculations, the first block of
//!               the stack store and the first chunk of the tables by which stacks are walked
//!  not counted  what grows: rows in the consumer, more blocks and chunks (options stacksize and unwindsize), threads' values, the reader
//! ```
//!
//! The kernel charges all of it to the memory cgroup. What is mapped counts to the address space too (`ulimit -v`).

use bpf_codegen::mir::MapRef;
use bpf_codegen::plan::{Plan, SizeOption, VarPlan};
use bpf_sys::{SysError, page_size};
use plane::control::CONTROL_SIZE;
use plane::{assoc, processes, python, unwind};

/// The bytes that the kernel adds to an element of a hash, with its bucket.
const HASH_ELEMENT: u64 = 64;

/// What a session may take of something that is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name of the limit, as a user knows it.
    pub name: String,
    /// The limit.
    pub bytes: u64,
    /// What is taken of it already, and what the session needs besides its maps.
    pub taken: u64,
    /// Only what is mapped counts, and the maps that exist are in `taken`.
    pub mapped: bool,
}

/// The bytes of the map of a plan, and whether the session maps it.
fn bytes(plan: &Plan, map: MapRef) -> (u64, bool) {
    let page = page_size() as u64;
    let hash = |key: u32, value: u32, count: u32| {
        let each = u64::from(key) + u64::from(value) + HASH_ELEMENT;
        (each.saturating_mul(count.into()), false)
    };
    let percpu = |bytes: u32| (u64::from(bytes) * u64::from(plan.cpus), false);
    let mapped = |bytes: u64| (bytes.next_multiple_of(page), true);
    match map {
        MapRef::PerCpu => mapped(plan.percpu().total()),
        MapRef::Rings => mapped(plan.rings().total()),
        MapRef::Slots => mapped(plan.slots().total()),
        MapRef::SpeculationRings => mapped(plan.speculation_rings().map_or(0, |area| area.total())),
        MapRef::Agg(a) => mapped(plan.agg(a).map_or(0, |area| area.total())),
        MapRef::Nodes(v) => (plan.nodes(v).total(), false),
        MapRef::Globals => mapped(plan.globals_size.into()),
        MapRef::StackSide => mapped(plan.stack_block.size.into()),
        MapRef::Var(v) => match plan.vars.get(v as usize) {
            Some(VarPlan::Assoc(a)) => {
                let each = assoc::element_size(a.key_size(), a.data, false);
                (each.saturating_mul(a.elements.into()), false)
            }
            Some(VarPlan::GlobalAlone(size)) => mapped((*size).into()),
            _ => (0, false),
        },
        MapRef::UnwindDirectory => mapped(unwind::DIRECTORY.into()),
        MapRef::UnwindFound => percpu(unwind::FOUND_BYTES),
        MapRef::UnwindFiles => hash(unwind::FILE_KEY, unwind::FILE, unwind::FILES),
        MapRef::UnwindUnknown => hash(unwind::FILE_KEY, unwind::UNKNOWN_FILE, unwind::UNKNOWN_FILES),
        MapRef::UnwindChunk => mapped(8 * u64::from(unwind::CHUNK_WORDS)),
        MapRef::UnwindChunks => (8 * u64::from(unwind::CHUNKS), false),
        MapRef::PythonCodes => hash(python::KEY, 8, python::CODES),
        MapRef::PythonFound => percpu(python::FOUND_BYTES),
        MapRef::PythonStore => mapped(python::STORE.into()),
        MapRef::Processes => hash(processes::KEY, processes::SIZE, plan.processes),
        MapRef::SpeculationControl => mapped(plan.speculation.map_or(8, |s| s.control_size()).into()),
        _ => mapped(CONTROL_SIZE.into()),
    }
}

/// The maps of a plan that a limit counts, the greatest first.
fn counted(plan: &Plan, before: Option<&Plan>, limit: &Limit) -> Vec<(u64, MapRef, SizeOption)> {
    let all = plan.wanted(before.filter(|_| limit.mapped)).into_iter();
    let with_bytes = all.map(|(map, sized)| (bytes(plan, map), map, sized));
    let counts = with_bytes.filter(|((_, is_mapped), ..)| *is_mapped || !limit.mapped);
    let mut all: Vec<_> = counts.map(|((bytes, _), map, sized)| (bytes, map, sized)).collect();
    all.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    all
}

/// A limit that a plan exceeds.
pub(crate) struct Exceeded<'a> {
    limit: &'a Limit,
    all: Vec<(u64, MapRef, SizeOption)>,
}

/// The first of these limits that a plan exceeds, of which the maps of the plan `before` exist.
pub(crate) fn exceeded<'a>(plan: &Plan, before: Option<&Plan>, limits: &'a [Limit]) -> Option<Exceeded<'a>> {
    let exceeded = |limit| Exceeded { limit, all: counted(plan, before, limit) };
    limits.iter().map(exceeded).find(|exceeded| exceeded.needed() > exceeded.limit.bytes)
}

impl Exceeded<'_> {
    fn needed(&self) -> u64 {
        self.all.iter().fold(self.limit.taken, |sum, (bytes, ..)| sum.saturating_add(*bytes))
    }

    /// Halves the greatest size that can be. `None`: none can.
    pub(crate) fn reduce(&self, plan: &mut Plan) -> Option<SizeOption> {
        self.all.iter().map(|(.., sized)| *sized).find(|sized| plan.halve(*sized))
    }

    /// The error that says what is needed, and what to lower.
    pub(crate) fn error(&self) -> SysError {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        let mut sums: Vec<(&str, u64)> = Vec::new();
        for (bytes, map, sized) in &self.all {
            let option = match (sized, map) {
                (SizeOption::Buffer, _) => "-b",
                (SizeOption::Speculation, _) => "-x specsize",
                (SizeOption::Aggregation(_), _) => "-x aggsize",
                (SizeOption::Dynamic(_), _) | (_, MapRef::Nodes(_)) => "-x dynvarsize",
                (_, MapRef::Slots) => "-x strsize, scratchsize",
                _ => continue,
            };
            match sums.iter_mut().find(|(known, _)| *known == option) {
                Some((_, sum)) => *sum = sum.saturating_add(*bytes),
                None => sums.push((option, *bytes)),
            }
        }
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        let named: Vec<String> =
            sums.iter().map(|(option, sum)| format!("{option} ({} MB)", mb(*sum))).collect();
        let lower = if named.is_empty() { String::new() } else { format!(", or lower {}", named.join(", ")) };
        let Limit { name, bytes, .. } = self.limit;
        let hint = format!(
            "it needs about {} MB; the limit is {} MB: raise {name}{lower}",
            mb(self.needed()),
            mb(*bytes)
        );
        SysError { hint: Some(hint), ..SysError::new("create the buffers and tables", libc::ENOMEM) }
    }
}
