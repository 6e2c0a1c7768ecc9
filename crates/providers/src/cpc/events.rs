//! The events of perf counters, by name.
//!
//! The numbers are those of `enum perf_hw_id`, `perf_sw_ids`, `perf_hw_cache_id` and the two enums
//! after it, in linux/perf_event.h. The names are those of perf with `_` for `-`, and the generic
//! names of the original (PAPI's) for events that the kernel also counts.

use std::sync::OnceLock;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An event of the processor.
    Hardware,
    /// An event of the processor's caches.
    Cache,
    /// An event of the processor, by the processor's own number.
    Raw,
    /// A clock of the kernel, counted in nanoseconds.
    Clock,
    /// An event of the kernel.
    Software,
}

impl Kind {
    /// Its `PERF_TYPE_*`.
    pub(super) fn number(self) -> u32 {
        match self {
            Kind::Hardware => 0,
            Kind::Clock | Kind::Software => 1,
            Kind::Cache => 3,
            Kind::Raw => 4,
        }
    }

    /// True if the processor's counters count it.
    pub(super) fn is_hardware(self) -> bool {
        matches!(self, Kind::Hardware | Kind::Cache | Kind::Raw)
    }
}

/// An event, as perf knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) config: u64,
}

use Kind::{Cache, Clock, Hardware, Software};

/// The events: name, kind, number.
const EVENTS: &[(&str, Kind, u64)] = &[
    ("cpu_clock", Clock, 0),
    ("task_clock", Clock, 1),
    ("page_faults", Software, 2),
    ("context_switches", Software, 3),
    ("cpu_migrations", Software, 4),
    ("minor_faults", Software, 5),
    ("major_faults", Software, 6),
    ("alignment_faults", Software, 7),
    ("emulation_faults", Software, 8),
    ("cpu_cycles", Hardware, 0),
    ("instructions", Hardware, 1),
    ("cache_references", Hardware, 2),
    ("cache_misses", Hardware, 3),
    ("branch_instructions", Hardware, 4),
    ("branch_misses", Hardware, 5),
    ("bus_cycles", Hardware, 6),
    ("stalled_cycles_frontend", Hardware, 7),
    ("stalled_cycles_backend", Hardware, 8),
    ("ref_cycles", Hardware, 9),
];

/// The caches, and the operations on them: bit 16 of an operation is a miss.
const CACHES: &[(&str, u64)] =
    &[("L1_dcache", 0), ("L1_icache", 1), ("LLC", 2), ("dTLB", 3), ("iTLB", 4), ("branch", 5), ("node", 6)];
const CACHE_OPERATIONS: &[(&str, u64)] = &[
    ("loads", 0),
    ("load_misses", 1 << 16),
    ("stores", 1 << 8),
    ("store_misses", 1 << 16 | 1 << 8),
    ("prefetches", 2 << 8),
    ("prefetch_misses", 1 << 16 | 2 << 8),
];

/// Aliases. The original's generic names are PAPI's, which are not case-sensitive.
const ALIASES: &[(&str, &str)] = &[
    ("faults", "page_faults"),
    ("cs", "context_switches"),
    ("migrations", "cpu_migrations"),
    ("cycles", "cpu_cycles"),
    ("branches", "branch_instructions"),
    ("idle_cycles_frontend", "stalled_cycles_frontend"),
    ("idle_cycles_backend", "stalled_cycles_backend"),
    ("PAPI_tot_cyc", "cpu_cycles"),
    ("PAPI_ref_cyc", "ref_cycles"),
    ("PAPI_tot_ins", "instructions"),
    ("PAPI_br_ins", "branch_instructions"),
    ("PAPI_br_msp", "branch_misses"),
    ("PAPI_stl_icy", "stalled_cycles_frontend"),
    ("PAPI_res_stl", "stalled_cycles_backend"),
    ("PAPI_ld_ins", "L1_dcache_loads"),
    ("PAPI_sr_ins", "L1_dcache_stores"),
    ("PAPI_l1_dcr", "L1_dcache_loads"),
    ("PAPI_l1_dcw", "L1_dcache_stores"),
    ("PAPI_l1_dcm", "L1_dcache_load_misses"),
    ("PAPI_l1_icm", "L1_icache_load_misses"),
    ("PAPI_l3_tca", "cache_references"),
    ("PAPI_l3_tcm", "cache_misses"),
    ("PAPI_tlb_dm", "dTLB_load_misses"),
    ("PAPI_tlb_im", "iTLB_load_misses"),
];

/// All events by name, without aliases.
pub(super) fn all() -> &'static [(String, Event)] {
    static ALL: OnceLock<Vec<(String, Event)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let plain = EVENTS.iter().map(|(name, kind, config)| (name.to_string(), *kind, *config));
        let caches = CACHES.iter().flat_map(|(cache, id)| {
            CACHE_OPERATIONS.iter().map(move |(done, op)| (format!("{cache}_{done}"), Cache, id | op))
        });
        plain.chain(caches).map(|(name, kind, config)| (name, Event { kind, config })).collect()
    })
}

/// The event of a name: one of the table, an alias of one, or `rN`, the processor's event with that
/// hexadecimal number.
pub(super) fn find(name: &str) -> Option<Event> {
    let known = |name: &str| all().iter().find(|(n, _)| n == name).map(|(_, m)| *m);
    if let Some(event) = known(name) {
        return Some(event);
    }
    let same = |alias: &str| alias == name || alias.starts_with("PAPI_") && alias.eq_ignore_ascii_case(name);
    if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| same(alias)) {
        return known(name);
    }
    let digits =
        name.strip_prefix('r').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(Event { kind: Kind::Raw, config: u64::from_str_radix(digits, 16).ok()? })
}

/// The event whose name is most like a wrong one.
pub(super) fn nearest(wrong: &str) -> Option<String> {
    let plain = |s: &str| s.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = plain(wrong);
    let names = all().iter().map(|(n, _)| n.as_str()).chain(ALIASES.iter().map(|(alias, _)| *alias));
    let near = |n: &&str| {
        let n = plain(n);
        n == wanted || n.strip_suffix('s') == Some(&wanted) || wanted.strip_suffix('s') == Some(&n)
    };
    names.into_iter().find(near).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_kernels_numbers() {
        let number = |name: &str| find(name).map(|m| (m.kind.number(), m.config));
        assert_eq!(number("cpu_clock"), Some((1, 0)));
        assert_eq!(number("cs"), Some((1, 3)));
        assert_eq!(number("PAPI_tot_cyc"), Some((0, 0)));
        assert_eq!(number("PAPI_TOT_INS"), Some((0, 1)));
        assert_eq!(number("branch_misses"), Some((0, 5)));
        assert_eq!(number("L1_dcache_load_misses"), Some((3, 0x10000)));
        assert_eq!(number("LLC_stores"), Some((3, 0x102)));
        assert_eq!(number("r01c2"), Some((4, 0x1c2)));
        assert_eq!(number("rain"), None);
        assert_eq!(number("r"), None);
        assert_eq!(number("CPU_CLOCK"), None);
    }

    #[test]
    fn aliases_are_unique_and_of_known_events() {
        let mut names: Vec<&str> =
            all().iter().map(|(n, _)| n.as_str()).chain(ALIASES.iter().map(|(a, _)| *a)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(ALIASES.iter().all(|(_, name)| all().iter().any(|(n, _)| n == name)));
    }

    #[test]
    fn wrong_names_find_the_nearest_event() {
        assert_eq!(nearest("CPU-clock").as_deref(), Some("cpu_clock"));
        assert_eq!(nearest("page_fault").as_deref(), Some("page_faults"));
        assert_eq!(nearest("nonsense"), None);
    }
}
