//! The memory that the maps of a plan take, known before one is made.
//!
//! ```text
//!  counted      what is there from the start: buffers, tables of aggregations, arrays, scratch memory, speculations, the first block of
//!               the stack store and the first chunk of the tables by which stacks are walked
//!  added        a constant for what stacks of processes bring with them: the readers of symbols, the second chunk
//!  not counted  what grows: rows in the consumer, more blocks and chunks (options stacksize and unwindsize), threads' values
//! ```
//!
//! The kernel charges all of it to the memory cgroup. What is mapped counts to the address space
//! too (`ulimit -v`).

use bpf_codegen::mir::MapRef;
use bpf_codegen::plan::{Plan, SizeOption, VarPlan};
use bpf_sys::{SysError, page_size, possible_cpus};
use plane::control::CONTROL_SIZE;
use plane::{calls, processes, unwind};

/// The bytes that the kernel adds to an element of a hash (`struct htab_elem`,
/// kernel/bpf/hashtab.c).
const HASH_ELEMENT: u64 = 48;

/// The bytes of a bucket of a hash (`struct bucket`, in the same file). It has a power of two of
/// them, as many as elements at least.
const HASH_BUCKET: u64 = 16;

/// The bytes of mapped memory for which the kernel has one byte of page tables: an entry of eight
/// for each page of 4 KiB.
const PER_TABLE_BYTE: u64 = 512;

/// The memory of the readers of symbols until they have read the files of a small program. Three
/// were measured, with 2 MB and some page tables each.
const READERS: u64 = 8 << 20;

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

/// The bytes of a preallocated hash. It has an element more for each CPU, for values that are
/// replaced.
fn hash_bytes(key: u32, value: u32, count: u32) -> u64 {
    let words = |bytes: u32| u64::from(bytes).next_multiple_of(8);
    let elements = u64::from(count).saturating_add(possible_cpus() as u64);
    let buckets = u64::from(count).next_power_of_two();
    let each = HASH_ELEMENT + words(key) + words(value);
    elements.saturating_mul(each).saturating_add(buckets.saturating_mul(HASH_BUCKET))
}

/// The bytes of the map of a plan, and whether the session maps it.
fn bytes(plan: &Plan, map: MapRef) -> (u64, bool) {
    let page = page_size() as u64;
    let hash = |key: u32, value: u32, count: u32| (hash_bytes(key, value, count), false);
    // It has values for CPUs that may come, too.
    let percpu = |bytes: u32| (u64::from(bytes).saturating_mul(possible_cpus() as u64), false);
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
            Some(VarPlan::Assoc(a)) => hash(a.key_size(), a.value_size(), a.elements),
            Some(VarPlan::GlobalAlone(size)) => mapped((*size).into()),
            _ => (0, false),
        },
        MapRef::UnwindDirectory => mapped(unwind::DIRECTORY.into()),
        MapRef::UnwindFound => percpu(unwind::FOUND_BYTES),
        MapRef::UnwindFiles => hash(unwind::FILE_KEY, unwind::FILE, unwind::FILES),
        MapRef::UnwindUnknown => hash(unwind::FILE_KEY, unwind::UNKNOWN_FILE, unwind::UNKNOWN_FILES),
        MapRef::UnwindChunk => mapped(8 * u64::from(unwind::CHUNK_WORDS)),
        MapRef::UnwindChunks => (8 * u64::from(unwind::CHUNKS), false),
        MapRef::RuntimeCodes => hash(calls::KEY, 8, calls::CODES),
        MapRef::RuntimeFound => percpu(calls::FOUND_BYTES),
        MapRef::RuntimeNames => mapped(calls::STORE.into()),
        MapRef::Processes => hash(processes::KEY, processes::SIZE, plan.processes),
        MapRef::SpeculationControl => mapped(plan.speculation.map_or(8, |s| s.control_size()).into()),
        _ => mapped(CONTROL_SIZE.into()),
    }
}

/// A map that a limit counts.
struct Counted {
    bytes: u64,
    map: MapRef,
    sized: SizeOption,
    /// It is to be made. One that exists keeps its size.
    is_new: bool,
}

/// The maps of a plan that a limit counts, the greatest first, of which those of the plan `before`
/// exist.
fn counted(plan: &Plan, before: Option<&Plan>, limit: &Limit) -> Vec<Counted> {
    let of = |plan: &Plan, before: Option<&Plan>, is_new: bool| -> Vec<Counted> {
        let one = |(map, sized): (MapRef, SizeOption)| {
            let (bytes, is_mapped) = bytes(plan, map);
            let tables = if is_mapped && !limit.mapped { bytes / PER_TABLE_BYTE } else { 0 };
            let counts = is_mapped || !limit.mapped;
            counts.then_some(Counted { bytes: bytes.saturating_add(tables), map, sized, is_new })
        };
        plan.wanted(before).into_iter().filter_map(one).collect()
    };
    let mut all = of(plan, before, true);
    // A map that is replaced exists until its programs end.
    all.extend(before.filter(|_| !limit.mapped).into_iter().flat_map(|before| of(before, None, false)));
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    all
}

/// What comes soon after the maps of a plan, beyond what the plan `before` had.
fn later(plan: &Plan, before: Option<&Plan>, limit: &Limit) -> u64 {
    // A reader has an address space of its own.
    if limit.mapped {
        return 0;
    }
    let is_new = plan.unwind && !before.is_some_and(|before| before.unwind);
    // The chunk that the plan has is an example for the kernel; the first table makes another.
    // Readers that found functions to probe are there already.
    if is_new { 8 * u64::from(unwind::CHUNK_WORDS) + READERS } else { 0 }
}

/// A limit that a plan exceeds.
pub(crate) struct Exceeded<'a> {
    limit: &'a Limit,
    all: Vec<Counted>,
    later: u64,
}

/// The first of these limits that a plan exceeds, of which the maps of the plan `before` exist.
pub(crate) fn exceeded<'a>(plan: &Plan, before: Option<&Plan>, limits: &'a [Limit]) -> Option<Exceeded<'a>> {
    let exceeded = |limit| {
        let (all, later) = (counted(plan, before, limit), later(plan, before, limit));
        Exceeded { limit, all, later }
    };
    // What runs already stays, so probes that need no map of their own are enabled whatever there
    // is.
    let is_made = |exceeded: &Exceeded<'_>| exceeded.all.iter().any(|one| one.is_new);
    limits.iter().map(exceeded).find(|one| is_made(one) && one.needed() > one.limit.bytes)
}

impl Exceeded<'_> {
    fn needed(&self) -> u64 {
        let beside = self.limit.taken.saturating_add(self.later);
        self.all.iter().fold(beside, |sum, one| sum.saturating_add(one.bytes))
    }

    /// Halves the greatest size that can be, of the maps that are to be made. `None`: none can.
    pub(crate) fn reduce(&self, plan: &mut Plan) -> Option<SizeOption> {
        self.all.iter().filter(|one| one.is_new).map(|one| one.sized).find(|sized| plan.halve(*sized))
    }

    /// The error that says what is needed, and what to lower.
    pub(crate) fn error(&self) -> SysError {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        let mut sums: Vec<(&str, u64)> = Vec::new();
        for Counted { bytes, map, sized, .. } in &self.all {
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
        let Limit { name, bytes, mapped, .. } = self.limit;
        let more = if *mapped { "" } else { "; targets, and the readers of large programs, take more" };
        let hint = format!(
            "it needs about {} MB; the limit is {} MB: raise {name}{lower}{more}",
            mb(self.needed()),
            mb(*bytes)
        );
        SysError { hint: Some(hint), ..SysError::new("create the buffers and tables", libc::ENOMEM) }
    }
}

#[cfg(test)]
mod tests {
    use bpf_codegen::plan::{Needs, Options};

    use super::*;

    fn module(head: &str) -> dif::ir::Module {
        let body = "record 16 {\nb0:\n    reserve\n    commit\n    return\n}";
        let text = format!("module strsize 256\nstring s0 = \"\"\n{head}\nclause \"c\" {body}\n");
        dif::text::parse(&text).unwrap()
    }

    fn limit(bytes: u64) -> Limit {
        Limit { name: "memory.max".into(), bytes, taken: 0, mapped: false }
    }

    #[test]
    fn what_is_not_in_the_figure_of_a_cgroup_is_said() {
        let plan = Plan::new(&module(""), &Options::default(), &Needs { cpus: 2, ..Needs::default() });
        let hint =
            |limit| exceeded(&plan, None, &[limit]).and_then(|exceeded| exceeded.error().hint).unwrap();
        assert!(hint(limit(0)).ends_with("; targets, and the readers of large programs, take more"));
        assert!(!hint(Limit { mapped: true, ..limit(0) }).contains("targets"));
    }

    #[test]
    fn only_maps_that_do_not_exist_are_made_smaller() {
        let needs = Needs { cpus: 2, ..Needs::default() };
        let before = Plan::new(&module(""), &Options::default(), &needs);
        let with_agg = module("agg agg0 = \"a\" count [0:u64] size 8");
        let mut plan = before.extend(&with_agg, &Options::default(), &needs);
        let sum =
            |plan: &Plan| counted(plan, Some(&before), &limit(0)).iter().map(|one| one.bytes).sum::<u64>();
        // The buffers exist, and they are in the sum.
        assert_eq!(plan.ring_size, before.ring_size);
        assert!(sum(&plan) > plan.rings().total() + plan.agg(0).unwrap().total());
        let limits = [limit(sum(&plan) - 1)];
        let reduced = exceeded(&plan, Some(&before), &limits).unwrap().reduce(&mut plan);
        assert_eq!(reduced, Some(SizeOption::Aggregation(0)));
        assert!(exceeded(&plan, Some(&before), &limits).is_none());
        // What exists is never lowered, though it is more than there may be.
        let limits = [limit(1 << 20)];
        while exceeded(&plan, Some(&before), &limits).unwrap().reduce(&mut plan).is_some() {}
        assert_eq!(plan.ring_size, before.ring_size);
        // Nothing is to be made.
        assert!(exceeded(&before, Some(&before), &limits).is_none());
        // A new session's buffers are.
        let mut new = before.clone();
        assert_eq!(exceeded(&new, None, &limits).unwrap().reduce(&mut new), Some(SizeOption::Buffer));
    }

    #[test]
    fn a_hash_has_buckets_and_elements() {
        // Measured: 2^20 buckets, and elements of 80 bytes.
        let cpus = possible_cpus() as u64;
        assert_eq!(hash_bytes(8, 24, 699_050), (16 << 20) + (699_050 + cpus) * 80);
        assert_eq!(hash_bytes(4, 20, 16), 16 * 16 + (16 + cpus) * 80);
    }

    #[test]
    fn readers_are_counted_once_and_not_as_addresses() {
        let plan = Plan::new(&module(""), &Options::default(), &Needs::default());
        let walks = Plan { unwind: true, ..plan.clone() };
        assert_eq!(later(&plan, None, &limit(0)), 0);
        assert!(later(&walks, None, &limit(0)) > READERS);
        assert!(later(&walks, Some(&plan), &limit(0)) > READERS);
        assert_eq!(later(&walks, Some(&walks), &limit(0)), 0);
        assert_eq!(later(&walks, None, &Limit { mapped: true, ..limit(0) }), 0);
    }
}
