//! Which processes' perf maps are held: they share a limit, so that none keeps others from having
//! theirs.

use proc::share::{Owner, Shares};

use super::Processes;

/// Maximum number of open perf maps: a descriptor each. A user in one cgroup has 96 of them, if
/// nobody else has some.
const MAX_PERF_MAPS: usize = 512;

impl Processes {
    /// True if a process has its share of the perf maps, with one more.
    pub(super) fn may_hold_perf_map(&mut self, pid: u32) -> bool {
        let held = self.processes.iter().filter(|(_, process)| process.perf_map.is_some());
        let held: Vec<u32> = held.map(|(pid, _)| *pid).collect();
        if held.contains(&pid) {
            return true;
        }
        let mut shares = Shares::new(MAX_PERF_MAPS);
        held.into_iter().for_each(|other| {
            let owner = self.perf_map_owners.get(&other).cloned();
            shares.take(&owner.unwrap_or_else(|| Owner::new(other, u32::MAX, "")), 1);
        });
        let owner = self.owners.of(pid);
        let may = shares.left(&owner) > 0;
        match may {
            true => {
                self.perf_map_owners.retain(|other, _| self.processes.get(other).is_some_and(|p| p.perf_map.is_some()));
                self.perf_map_owners.insert(pid, owner);
            }
            false => self.reader.report_once("perf maps", || {
                format!(
                    "the perf map of {owner} is not held: it has its share of {MAX_PERF_MAPS}; its code may have no names when it has ended"
                )
            }),
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Readers;

    #[test]
    fn the_maps_of_who_has_the_most_processes_make_space_for_others() {
        let mut all = Processes::new(&Readers::new());
        let mut add = |pid: u32, user: u32, used: u64| {
            let process = all.processes.entry(pid).or_default();
            (process.owner, process.used) = (Some(Owner::new(pid, user, "")), used);
        };
        (1..=3).for_each(|pid| add(pid, 0, 0));
        (10..20).for_each(|pid| add(pid, 1000, 5 + u64::from(pid)));
        add(30, 1001, 1);
        // Those of root and of the other user are older.
        assert_eq!(all.least_useful(99), Some(10));
        assert_eq!(all.least_useful(10), Some(11));
        all.processes.entry(50).or_default().used = 100;
        assert_eq!(all.least_useful(99), Some(50));
    }

    #[test]
    fn who_has_many_perf_maps_leaves_some_to_others() {
        let mut all = Processes::new(&Readers::new());
        let me = std::process::id();
        for pid in 0..MAX_PERF_MAPS as u32 {
            let pid = me + 1 + pid;
            all.processes.entry(pid).or_default().perf_map = Some(super::super::PerfMap::of(pid, None));
            all.perf_map_owners.insert(pid, Owner::new(pid, 0, ""));
        }
        // All are held.
        assert!(!all.may_hold_perf_map(me));
        assert_eq!(all.take_messages().len(), 1);
        let (mut freed, mut held) = (Vec::new(), MAX_PERF_MAPS);
        while !all.may_hold_perf_map(me) {
            held -= 1;
            freed.extend(all.processes.remove(&(me + 1 + held as u32)));
        }
        // As root this process has all that is left; as a user, whose processes begin at half of
        // the rest, it waits for root's quarter.
        assert!(!freed.is_empty() && freed.len() <= MAX_PERF_MAPS / 2, "{}", freed.len());
        assert!(all.may_hold_perf_map(me + 1));
    }
}
