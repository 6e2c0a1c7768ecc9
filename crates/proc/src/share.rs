//! Fair shares of what all processes use: a table, a limit, a time.
//!
//! ```text
//!  the whole ──► root's processes: all that is left, and a quarter is theirs alone
//!           └──► a user ──► a cgroup of it ──► a process: each at most as much as it leaves to the others
//! ```
//!
//! A process, a cgroup and a user each have at most as much as they leave free, so whoever comes
//! next finds something, however many there are. Ids that were given to a user (`/etc/subuid`) are
//! that user, who could otherwise pose as 65,536. A cgroup that a user owns is one with all below
//! it, because the user makes as many there as it likes. A user in many cgroups is one user; one id
//! in many containers has a share in each.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::selection::{cgroup_mount, listed, real_user};

/// Whose something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    user: u32,
    cgroup: Arc<str>,
    is_root: bool,
}

impl Owner {
    /// A process of this user in this cgroup.
    pub fn new(pid: u32, user: u32, cgroup: &str) -> Owner {
        Owner { pid, user, cgroup: cgroup.into(), is_root: user == 0 }
    }

    /// Whose what is whose owner nobody knows.
    pub fn nobody() -> Owner {
        Owner::new(0, u32::MAX, "")
    }

    /// Who has it: the user, whatever the process and the cgroup.
    pub fn payer(&self) -> Payer {
        if self.is_root { Payer::Root } else { Payer::User(self.user) }
    }

    /// True if it is root's.
    pub fn is_root(&self) -> bool {
        self.is_root
    }
}

/// A user, with those who have ids of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payer {
    /// Root.
    Root,
    /// Another one.
    User(u32),
}

/// As part of a message.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.pid, self.user)?;
        match &*self.cgroup {
            "" => Ok(()),
            cgroup => write!(f, " in cgroup {cgroup}"),
        }
    }
}

/// Who has the most of a table whose elements are dropped to make space: whoever comes next has the
/// place of one of theirs. Root counts as a quarter of what it has, since a quarter is root's
/// alone. `None`: nobody has anything.
fn heaviest<'o>(all: impl Iterator<Item = (&'o Owner, usize)>) -> Option<Payer> {
    let mut by_payer: HashMap<Payer, usize> = HashMap::new();
    for (owner, amount) in all {
        let sum = by_payer.entry(owner.payer()).or_default();
        *sum = sum.saturating_add(amount);
    }
    let weight = |(payer, amount): &(Payer, usize)| match payer {
        Payer::Root => (amount / 4, 0),
        Payer::User(id) => (*amount, *id),
    };
    by_payer.into_iter().filter(|(_, amount)| *amount > 0).max_by_key(weight).map(|(payer, _)| payer)
}

/// An element of such a table.
#[derive(Clone, Copy, Debug)]
pub struct Element<'o, K> {
    /// Which one.
    pub key: K,
    /// Whose it is. What is nobody's yet goes first.
    pub owner: Option<&'o Owner>,
    /// How much of the table it has.
    pub amount: usize,
    /// When it was last asked for.
    pub used: u64,
}

impl<'o, K> Element<'o, K> {
    /// One that has an owner.
    pub fn new(key: K, owner: &'o Owner, amount: usize, used: u64) -> Element<'o, K> {
        Element { key, owner: Some(owner), amount, used }
    }

    /// True unless it belongs to who asks and was asked for since: who asks for all its own all the
    /// time keeps them from itself, not from others.
    pub fn is_left_by(&self, asking: &Owner, since: u64) -> bool {
        self.used < since || self.owner.is_some_and(|owner| owner.payer() != asking.payer())
    }
}

/// Which element of such a table makes space: of who has the most (root counts as a quarter of what
/// it has), the one of those that may go that was asked for least recently. An element that makes
/// space for itself may not, nor one that [is not left](Element::is_left_by). `None`: who has the
/// most has none that may.
pub fn goes<'o, K>(
    all: impl Iterator<Item = Element<'o, K>> + Clone,
    may_go: impl Fn(&Element<'o, K>) -> bool,
) -> Option<K> {
    let most = heaviest(all.clone().filter_map(|e| Some((e.owner?, e.amount))));
    let is_of_most = |e: &Element<'o, K>| e.owner.is_none_or(|owner| Some(owner.payer()) == most);
    let mut those = all.filter(is_of_most).filter(may_go);
    let first = those.next()?;
    let order = |e: &Element<'o, K>| (e.owner.is_some(), e.used);
    Some(those.fold(first, |least, e| if order(&e) < order(&least) { e } else { least }).key)
}

/// The ids that were given to users: the first, how many, to whom.
type Subordinate = Vec<(u32, u32, u32)>;

/// Finds the owners of processes.
#[derive(Debug, Default)]
pub struct Owners {
    /// The rest was read, at the first process that is not root's.
    is_read: bool,
    given: Subordinate,
    /// Where cgroups are.
    mount: Option<String>,
    /// The group that a cgroup counts as, by its path.
    groups: HashMap<String, Arc<str>>,
}

impl Owners {
    /// Reads what this machine says of its users and its cgroups.
    fn read(&mut self) {
        if std::mem::replace(&mut self.is_read, true) {
            return;
        }
        let text = |path: &str| std::fs::read(path).unwrap_or_default();
        self.given = subordinate(&text("/etc/subuid"), &text("/etc/passwd"));
        self.mount = cgroup_mount(&String::from_utf8_lossy(&text("/proc/self/mounts")));
    }

    /// The owner of what a process has. One that has ended is nobody's, with the others of which
    /// nothing is known.
    pub fn of(&mut self, pid: u32) -> Owner {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
        let Some(user) = read("status").and_then(|text| real_user(&text)) else {
            return Owner::new(pid, u32::MAX, "");
        };
        if user == 0 {
            return Owner::new(pid, 0, "");
        }
        self.read();
        let lines = read("cgroup").unwrap_or_default();
        let lines = String::from_utf8_lossy(&lines);
        // The last line has version 2, or else the first hierarchy.
        let path = lines.lines().next_back().and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or_default();
        let (user, cgroup) = (self.user(user), self.group(path));
        // Who was given ids by root is not root.
        Owner { pid, user, cgroup, is_root: false }
    }

    /// The ids that were given to users: the first, how many, to whom.
    pub fn subordinate(&mut self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.read();
        self.given.iter().copied()
    }

    /// The user to whom an id was given, or the user who has it.
    fn user(&self, id: u32) -> u32 {
        let is_in = |(first, count, _): &&(u32, u32, u32)| id.checked_sub(*first).is_some_and(|n| n < *count);
        self.given.iter().find(is_in).map_or(id, |(_, _, to)| *to)
    }

    /// The first cgroup on the way to this one that is a user's own, or this one.
    fn group(&mut self, path: &str) -> Arc<str> {
        const KNOWN: usize = 4096;
        if let Some(known) = self.groups.get(path) {
            return known.clone();
        }
        let is_users = |at: &&str| {
            let mount = self.mount.as_deref()?;
            let owner = std::fs::metadata(Path::new(mount).join(at.trim_start_matches('/'))).ok()?.uid();
            (owner != 0).then_some(())
        };
        let ends = path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0).chain([path.len()]);
        let found = ends.filter_map(|end| path.get(..end)).find(|at| is_users(at).is_some()).unwrap_or(path);
        let found: Arc<str> = found.into();
        if self.groups.len() >= KNOWN {
            self.groups.clear();
        }
        self.groups.insert(path.to_owned(), found.clone());
        found
    }

    /// These processes in the order in which they take turns: root's, then one of each user, and of
    /// its cgroups, in each round.
    pub fn in_turns(&mut self, pids: &[u32]) -> Vec<Owner> {
        in_turns(pids.iter().map(|pid| self.of(*pid)).collect())
    }
}

/// As [`Owners::in_turns`], of owners that are known.
pub fn in_turns(all: Vec<Owner>) -> Vec<Owner> {
    let (roots, others): (Vec<Owner>, Vec<Owner>) = all.into_iter().partition(|owner| owner.is_root);
    let mut rounds: HashMap<(u32, Arc<str>), usize> = HashMap::new();
    let mut next = |user: u32, cgroup: Arc<str>| {
        let round = rounds.entry((user, cgroup)).or_default();
        *round += 1;
        *round
    };
    let mut others: Vec<(usize, Owner)> =
        others.into_iter().map(|owner| (next(owner.user, owner.cgroup.clone()), owner)).collect();
    others.sort_by_key(|(round, _)| *round);
    // The cgroups of a user take the turns of one.
    let mut rounds: HashMap<u32, usize> = HashMap::new();
    for (round, owner) in &mut others {
        let of_user = rounds.entry(owner.user).or_default();
        *of_user += 1;
        *round = *of_user;
    }
    others.sort_by_key(|(round, _)| *round);
    roots.into_iter().chain(others.into_iter().map(|(_, owner)| owner)).collect()
}

/// The lines `USER:FIRST:COUNT` of `/etc/subuid`.
fn subordinate(lines: &[u8], passwd: &[u8]) -> Subordinate {
    let text = String::from_utf8_lossy(lines);
    let one = |line: &str| {
        let mut words = line.trim().splitn(3, ':');
        let (user, first, count) = (words.next()?, words.next()?, words.next()?);
        let user = user.parse().ok().or_else(|| listed(passwd, user))?;
        Some((first.parse().ok()?, count.parse().ok()?, user))
    };
    text.lines().filter_map(one).collect()
}

/// What was given of something that all processes use, and to whom.
#[derive(Debug, Default)]
pub struct Shares {
    most: usize,
    roots: usize,
    others: usize,
    users: HashMap<u32, usize>,
    cgroups: HashMap<(u32, Arc<str>), usize>,
    processes: HashMap<u32, usize>,
}

impl Shares {
    /// So much, of which nothing was given.
    pub fn new(most: usize) -> Shares {
        Shares { most, ..Shares::default() }
    }

    /// How much there is in all.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How much more an owner may have now.
    pub fn left(&self, owner: &Owner) -> usize {
        let left = self.most.saturating_sub(self.roots.saturating_add(self.others));
        if owner.is_root {
            return left;
        }
        let of_others = self.most.saturating_sub(self.most / 4).saturating_sub(self.others);
        let Owner { user, cgroup, pid, .. } = owner;
        let used =
            [self.users.get(user), self.cgroups.get(&(*user, cgroup.clone())), self.processes.get(pid)];
        // It may have as much as it leaves: half of what there is without it.
        let half = |left: usize, used: Option<&usize>| left.saturating_sub(*used.unwrap_or(&0)).div_ceil(2);
        used.into_iter().fold(left.min(of_others), half)
    }

    /// An owner has so much more.
    pub fn take(&mut self, owner: &Owner, n: usize) {
        let Owner { user, cgroup, pid, is_root } = owner;
        if *is_root {
            self.roots = self.roots.saturating_add(n);
            return;
        }
        let add = |used: &mut usize| *used = used.saturating_add(n);
        add(&mut self.others);
        add(self.users.entry(*user).or_default());
        add(self.cgroups.entry((*user, cgroup.clone())).or_default());
        add(self.processes.entry(*pid).or_default());
    }

    /// An owner has so much less. It is as it was when it took it.
    pub fn give(&mut self, owner: &Owner, n: usize) {
        let Owner { user, cgroup, pid, is_root } = owner;
        if *is_root {
            self.roots = self.roots.saturating_sub(n);
            return;
        }
        self.others = self.others.saturating_sub(n);
        less(&mut self.users, user, n);
        less(&mut self.cgroups, &(*user, cgroup.clone()), n);
        less(&mut self.processes, pid, n);
    }
}

/// What has nothing is not remembered.
fn less<K: std::hash::Hash + Eq>(all: &mut HashMap<K, usize>, key: &K, n: usize) {
    if let Some(used) = all.get_mut(key) {
        *used = used.saturating_sub(n);
        if *used == 0 {
            all.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes until nothing is left for this owner.
    fn fill(shares: &mut Shares, owner: &Owner) -> usize {
        let mut all = 0;
        while shares.left(owner) > 0 {
            shares.take(owner, 1);
            all += 1;
        }
        all
    }

    #[test]
    fn a_process_a_cgroup_and_a_user_leave_as_much_as_they_have() {
        let mut shares = Shares::new(1000);
        let one = Owner::new(1, 1000, "/a");
        assert_eq!((shares.left(&one), fill(&mut shares, &one)), (94, 94));
        for pid in 2..2000 {
            fill(&mut shares, &Owner::new(pid, 1000, "/a"));
        }
        let of_cgroup = shares.others;
        assert!((186..=188).contains(&of_cgroup), "{of_cgroup}");
        for n in 0..1000 {
            fill(&mut shares, &Owner::new(10_000 + n, 1000, &format!("/b/{n}")));
        }
        let of_user = shares.others;
        assert!((370..=376).contains(&of_user), "{of_user}");
        // Whoever comes next finds something, and root a quarter.
        assert!(fill(&mut shares, &Owner::new(99_999, 1001, "/a")) >= 40);
        for user in 2000..4000 {
            fill(&mut shares, &Owner::new(user, user, "/a"));
        }
        assert!(shares.others <= 750, "{}", shares.others);
        let root = Owner::new(1, 0, "/a");
        assert!(shares.left(&root) >= 250, "{}", shares.left(&root));
    }

    #[test]
    fn who_has_the_most_makes_space_and_root_counts_as_a_quarter() {
        let owners = [Owner::new(1, 1000, "/a"), Owner::new(2, 1000, "/b"), Owner::new(3, 1001, "/a")];
        let root = Owner::new(4, 0, "");
        let of = |amounts: [usize; 4]| heaviest(owners.iter().chain([&root]).zip(amounts));
        assert_eq!(of([2, 2, 3, 15]), Some(Payer::User(1000)));
        assert_eq!(of([2, 2, 5, 15]), Some(Payer::User(1001)));
        assert_eq!(of([2, 2, 3, 20]), Some(Payer::Root));
        assert_eq!(of([0; 4]), None);
    }

    #[test]
    fn of_who_has_the_most_the_least_recently_used_goes_but_not_the_one_that_needs_the_space() {
        let [root, one, other] = [0, 1000, 1001].map(|user| Owner::new(1, user, ""));
        // Those of root, and of the other user, were used before.
        let mut table = vec![Element::new("root", &root, 3, 1), Element::new("other", &other, 2, 2)];
        table.extend([
            Element::new("old", &one, 1, 7),
            Element::new("new", &one, 2, 9),
            Element::new("older", &one, 2, 5),
        ]);
        let goes = |table: &[Element<'_, &'static str>], but| {
            goes(table.iter().copied(), |element| element.key != but)
        };
        assert_eq!(goes(&table, "new"), Some("older"));
        assert_eq!(goes(&table, "older"), Some("old"));
        assert_eq!(goes(&table, "none of them"), Some("older"));
        // Root counts as a quarter of what it has: now as 6.
        table.push(Element::new("more of root", &root, 21, 3));
        assert_eq!(goes(&table, "root"), Some("more of root"));
        assert_eq!(goes(&table[..1], "root"), None);
        assert_eq!(goes(&[], "root"), None);
        // What is nobody's yet is first, whenever it was used.
        table.push(Element { key: "new process", owner: None, amount: 1, used: 99 });
        assert_eq!(goes(&table, "root"), Some("new process"));
        assert_eq!(goes(&table, "new process"), Some("root"));
    }

    #[test]
    fn who_asks_for_all_its_own_all_the_time_keeps_it_only_from_itself() {
        let (root, nobody) = (Owner::new(1, 0, ""), Owner::nobody());
        let (user, other) = (Owner::new(2, 1000, "/a"), Owner::new(3, 1001, "/a"));
        // The user has the most, and has asked for it since the others have asked for more.
        let all = [('r', &root, 8, 3), ('u', &user, 5, 9), ('v', &user, 5, 8), ('o', &other, 4, 1)];
        let all = all.map(|(key, owner, amount, used)| Element::new(key, owner, amount, used));
        let goes_for =
            |asking: &Owner, since| goes(all.into_iter(), |element| element.is_left_by(asking, since));
        assert_eq!(goes_for(&root, 5), Some('v'));
        assert_eq!(goes_for(&other, 5), Some('v'));
        assert_eq!(goes_for(&nobody, 5), Some('v'));
        assert_eq!(goes_for(&user, 5), None);
        assert_eq!(goes_for(&user, 8), None);
        assert_eq!(goes_for(&user, 10), Some('v'));
        // One owner: the least recently used, as long as it was not asked for since.
        let two = [Element::new('a', &root, 1, 7), Element::new('b', &root, 1, 6)];
        let own = |since| goes(two.into_iter(), |element| element.is_left_by(&root, since));
        assert_eq!((own(6), own(7), own(9)), (None, Some('b'), Some('b')));
    }

    #[test]
    fn root_takes_all_that_is_left() {
        let mut shares = Shares::new(1000);
        let root = Owner::new(1, 0, "");
        assert_eq!(fill(&mut shares, &root), 1000);
        assert_eq!(shares.left(&Owner::new(2, 1000, "")), 0);
    }

    #[test]
    fn what_was_given_back_is_as_if_it_was_never_taken() {
        let mut shares = Shares::new(1000);
        let owners = [Owner::new(1, 1000, "/a"), Owner::new(2, 0, ""), Owner::new(3, 7, "/b")];
        owners.iter().for_each(|owner| shares.take(owner, 50));
        owners.iter().for_each(|owner| shares.give(owner, 50));
        assert_eq!((shares.roots, shares.others), (0, 0));
        assert!(shares.users.is_empty() && shares.cgroups.is_empty() && shares.processes.is_empty());
    }

    #[test]
    fn subordinate_ids_are_the_user_to_whom_they_were_given() {
        let given = subordinate(
            b"joe:100000:65536\n1001:165536:65536\nnobody here\nroot:1000000:10\nx:1:2\n",
            b"root:x:0:0::/:/bin/sh\njoe:x:1000:1000::/:/bin/sh\n",
        );
        let owners = Owners { given, ..Owners::default() };
        let ids = [1000, 99_999, 100_000, 165_535, 165_536, 231_072, 1_000_009];
        assert_eq!(ids.map(|id| owners.user(id)), [1000, 99_999, 1000, 1000, 1001, 231_072, 0]);
    }

    #[test]
    fn the_first_cgroup_that_is_a_users_own_counts() {
        let dir = std::env::temp_dir().join(format!("dtrace-share-{}", std::process::id()));
        let own = dir.join("user.slice/own");
        std::fs::create_dir_all(own.join("many/more")).unwrap();
        let chown = |path: &Path| std::os::unix::fs::chown(path, Some(1000), Some(1000));
        let is_root = chown(&own).is_ok();
        let mut owners = Owners { mount: Some(dir.display().to_string()), ..Owners::default() };
        if is_root {
            assert_eq!(&*owners.group("/user.slice/own/many/more"), "/user.slice/own");
            assert_eq!(&*owners.group("/user.slice/own"), "/user.slice/own");
        }
        for path in ["/user.slice", "/", "/not/there"] {
            assert_eq!(&*owners.group(path), path);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn users_take_turns_and_root_is_first() {
        let owner = |(pid, user, cgroup): (u32, u32, &str)| Owner::new(pid, user, cgroup);
        let all =
            [(1, 7, "/a"), (2, 7, "/a"), (3, 7, "/b"), (4, 8, "/a"), (5, 0, ""), (6, 8, "/a"), (7, 7, "/a")];
        let pids: Vec<u32> = in_turns(all.map(owner).into()).iter().map(|owner| owner.pid).collect();
        assert_eq!(pids, [5, 1, 4, 3, 6, 2, 7]);
    }

    #[test]
    fn this_process_has_an_owner() {
        let me = std::process::id();
        let user = real_user(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        let owner = Owners::default().of(me);
        assert_eq!((owner.pid, owner.is_root), (me, user == 0));
        assert_eq!(Owners::default().of(u32::MAX).user, u32::MAX);
    }
}
