//! The ids of probes: ranges, in this order.
//!
//! ```text
//!  reserved    for each provider whose list has a known limit, as many ids as that limit
//!  on demand   ON_DEMAND_IDS ids for probes that are made on demand, valid in one session
//!  counted     the other providers: tracepoints, then functions; each has as many ids as positions, or as it estimates
//!  later       probes that come while a session runs, as those of modules that are loaded; valid in one session
//!  OVERFLOW    probes for which their range is too small
//! ```
//!
//! So an id means the same probe in every session while the kernel has the same modules, ids are
//! small, and a description that names one provider lists no other: for a function the tracepoints
//! are counted, for a tracepoint nothing is. The later ids follow the greatest counted one, and
//! have no base that is always the same: it would be so great that ids no longer fit their column
//! of the output.

use super::{Entry, Registry};
use crate::contract::IdRange;

/// The providers whose ids come first, in their order.
pub(super) const FIRST: [&str; 4] = ["dtrace", "profile", "cpc", "syscall"];
/// Those whose ids come last. Between them are those of libraries and of users of the library, in
/// the order of their names.
pub(super) const LAST: [&str; 7] = ["bio", "PROVIDER*", "sdt", "rawtp", "pid*", "fbt", "rawfbt"];

/// True if a provider field may mean a probe that fires for the session, for its clocks or for the
/// counters of a CPU, and not for what the thread does.
pub fn may_be_of_no_thread(provider: &str) -> bool {
    let all = FIRST.iter().filter(|name| **name != "syscall");
    provider.is_empty() || all.into_iter().any(|name| probes::glob_matches(provider, name))
}

/// Sorts the providers as their ids follow each other. One that takes the place of another is where
/// libraries are: the id of its probes must not need the number of tracepoints.
pub(super) fn sort(entries: &mut [Entry]) {
    entries.sort_by_cached_key(|entry| {
        let name = entry.family.to_string();
        let place = |all: &[&str]| all.iter().position(|other| entry.is_own && *other == name);
        match (place(&FIRST), place(&LAST)) {
            (Some(at), _) => (0, at, String::new()),
            (_, Some(at)) => (2, at, String::new()),
            _ => (1, 0, name),
        }
    });
}

/// How many ids are reserved for probes that are made on demand. Their range stands before the
/// counted ones, so that a script that names such a probe does not count the functions of the
/// kernel.
pub(super) const ON_DEMAND_IDS: u32 = 300;

/// The first id of probes for which their range is too small.
pub(super) const OVERFLOW: u32 = 1 << 30;
/// The lower bits of such an id are the probe's position. The higher bits are 0 for probes made on
/// demand, else 1 more than the provider's index.
const OVERFLOW_BITS: u32 = 20;
/// The first id of probes made on demand for which these bits are too few.
const MANY_MADE: u32 = 1 << 31;

/// What an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A position of a provider.
    Position {
        /// The provider.
        provider: usize,
        /// The position.
        position: u32,
    },
    /// The number of a probe that was made on demand.
    Made(u32),
    /// The number of a probe that came later.
    Later(u32),
}

impl Entry {
    fn reserved_ids(&self) -> Option<u32> {
        match self.provider.probes().ids() {
            IdRange::Reserved(limit) => Some(limit),
            IdRange::Counted | IdRange::Estimated => None,
        }
    }

    /// The number of ids, of a provider that may have more positions.
    fn limited_ids(&self) -> Option<u32> {
        match self.provider.probes().ids() {
            IdRange::Reserved(limit) => Some(limit),
            IdRange::Estimated => Some(self.size()),
            IdRange::Counted => None,
        }
    }

    /// How many ids the provider takes.
    fn size(&self) -> u32 {
        let probes = self.provider.probes();
        match probes.ids() {
            IdRange::Reserved(limit) => limit,
            IdRange::Estimated => probes.estimate(),
            IdRange::Counted => probes.positions(),
        }
    }
}

impl Registry {
    /// The id of a provider's first probe.
    pub(super) fn base(&self, provider: usize) -> u32 {
        match self.entries[provider].reserved_ids() {
            Some(_) => self.reserved(provider),
            None => self.counted(provider),
        }
    }

    /// The first id after the reserved ids of the providers before this one.
    fn reserved(&self, provider: usize) -> u32 {
        1 + self.entries[..provider].iter().filter_map(Entry::reserved_ids).sum::<u32>()
    }

    /// The first id after those of the counted providers before this one.
    fn counted(&self, provider: usize) -> u32 {
        let before = self.entries[..provider].iter().filter(|e| e.reserved_ids().is_none());
        self.on_demand_base() + ON_DEMAND_IDS + before.map(Entry::size).sum::<u32>()
    }

    /// The id of the first probe that is made on demand.
    pub(super) fn on_demand_base(&self) -> u32 {
        self.reserved(self.entries.len())
    }

    /// The id of the first probe that comes later. This counts every provider.
    pub(super) fn first_later_id(&self) -> u32 {
        self.counted(self.entries.len())
    }

    /// The id of a position. `first` is the provider's first id.
    pub(super) fn position_id(&self, provider: usize, first: u32, position: u32) -> u32 {
        match self.entries[provider].limited_ids() {
            Some(limit) if position >= limit => {
                OVERFLOW + ((provider as u32 + 1) << OVERFLOW_BITS) + position
            }
            _ => first + position,
        }
    }

    /// The id of the probe with this number among those that were made on demand.
    pub(super) fn made_id(&self, number: u32) -> u32 {
        match number {
            0..ON_DEMAND_IDS => self.on_demand_base() + number,
            n if n >> OVERFLOW_BITS == 0 => OVERFLOW + n,
            n => MANY_MADE | n,
        }
    }

    /// What an id is. It may be none of a probe.
    pub(super) fn place(&self, id: u32) -> Option<Place> {
        if id >= MANY_MADE {
            return Some(Place::Made(id - MANY_MADE)).filter(|_| (id - MANY_MADE) >> OVERFLOW_BITS > 0);
        }
        if let Some(rest) = id.checked_sub(OVERFLOW) {
            let (whose, position) = (rest >> OVERFLOW_BITS, rest & ((1 << OVERFLOW_BITS) - 1));
            let Some(provider) = whose.checked_sub(1) else {
                return Some(Place::Made(position)).filter(|_| position >= ON_DEMAND_IDS);
            };
            let provider = provider as usize;
            let limit = self.entries.get(provider)?.limited_ids()?;
            return Some(Place::Position { provider, position }).filter(|_| position >= limit);
        }
        let on_demand = self.on_demand_base();
        if let Some(number) = id.checked_sub(on_demand).filter(|n| *n < ON_DEMAND_IDS) {
            return Some(Place::Made(number));
        }
        if let Some(number) = self.later_base.get().and_then(|base| id.checked_sub(*base)) {
            return Some(Place::Later(number));
        }
        for (provider, entry) in self.entries.iter().enumerate() {
            if entry.reserved_ids().is_some() != (id < on_demand) {
                continue;
            }
            let position = id.checked_sub(self.base(provider))?;
            if position < entry.size() {
                return Some(Place::Position { provider, position });
            }
        }
        None
    }
}
