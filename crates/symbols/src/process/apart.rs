//! Files that are not at their path in the root of their mount namespace: they are looked for in
//! the root of each process that maps one, which may be alone there (`chroot`).
//!
//! A file remains here when it was found: its handle is closed a while after the last process that
//! had it mapped, and only the next one leads to it again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use diagnostics::control;
use proc::share::{Element, Owner, Owners, goes};
use proc::watcher::File;

/// The most such files. Who has the most makes space for others.
const MOST: usize = 256;

/// How often one of them is looked for until it is found.
const LOOKS: u32 = 64;

/// Of so many processes that have a file mapped the owner is asked.
const ASKED: usize = 8;

/// For so long after a process had such a file mapped others are awaited.
const LOOKING: Duration = Duration::from_secs(10);

/// One of the files.
struct Apart {
    /// The path, for messages.
    path: Box<[u8]>,
    /// Whose process had it mapped first, of those that were running when that was seen.
    owner: Option<Owner>,
    /// How often it was looked for since it was found.
    looks: u32,
    /// It was there the last time.
    is_found: bool,
    /// When a process mapped it last, by a count of that.
    used: u64,
}

/// The files, by the watcher's numbers.
#[derive(Default)]
pub(super) struct FilesApart {
    all: HashMap<u64, Apart>,
    uses: u64,
    /// When one was looked for last.
    looked_at: Option<Instant>,
}

impl FilesApart {
    /// True if a file is looked for in the roots of processes.
    pub(super) fn has(&self, file: &File) -> bool {
        self.all.contains_key(&file.number)
    }

    /// True if some were not found, and processes may have them mapped: the sooner these are seen,
    /// the more are found.
    pub(super) fn is_looking(&self) -> bool {
        let recently = |at: Instant| at.elapsed() < LOOKING;
        self.looked_at.is_some_and(recently) && self.all.values().any(|apart| !apart.is_found)
    }

    /// Files are being looked for.
    pub(super) fn look(&mut self) {
        self.looked_at = Some(Instant::now());
    }

    /// A file was looked for, or is held, when these processes had mapped it. Gives what is to be
    /// said of one that made space.
    pub(super) fn note(
        &mut self,
        file: &File,
        (processes, owners): (&[u32], &mut Owners),
        is_found: bool,
    ) -> Option<String> {
        let known = self.all.get(&file.number).and_then(|apart| apart.owner.as_ref());
        let mut running = processes.iter().take(ASKED).filter_map(|pid| owner_of(owners, *pid));
        let owner = match known {
            Some(owner) if owner.is_root() => None,
            // What root runs too is root's.
            Some(_) => running.find(Owner::is_root),
            None => running.next(),
        };
        self.note_of(file, owner, is_found)
    }

    fn note_of(&mut self, file: &File, owner: Option<Owner>, is_found: bool) -> Option<String> {
        self.uses += 1;
        let new = || Apart { path: file.path.clone(), owner: None, looks: 0, is_found, used: 0 };
        let apart = self.all.entry(file.number).or_insert_with(new);
        apart.owner = owner.or(apart.owner.take());
        (apart.used, apart.is_found) = (self.uses, is_found);
        apart.looks = if is_found { 0 } else { apart.looks + 1 };
        // One that is on a file server, or deleted, is in no root that can be looked at.
        if apart.looks > LOOKS {
            self.all.remove(&file.number);
        }
        if self.all.len() <= MOST {
            return None;
        }
        // Programs that ended before they were seen, root's too: together they are one user.
        let nobody = Owner::nobody();
        let elements = self.all.iter().map(|(number, apart)| {
            Element::new(*number, apart.owner.as_ref().unwrap_or(&nobody), 1, apart.used)
        });
        // It would not make space for itself.
        let least = goes(elements, |e| e.key != file.number).unwrap_or(file.number);
        let left = self.all.remove(&least)?;
        let owner =
            left.owner.map_or_else(|| "a process that has ended".to_owned(), |owner| owner.to_string());
        Some(format!(
            "{} of {owner} is not looked for any more in the root of each process that has it mapped: {MOST} such files are known; \
             its code may have no names when the process has ended",
            control::name(&left.path)
        ))
    }
}

/// The owner of what a process has, while it runs.
fn owner_of(owners: &mut Owners, pid: u32) -> Option<Owner> {
    let owner = owners.of(pid);
    (owner.payer() != Owner::nobody().payer()).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> File {
        let path = format!("/program{number}\n").into_bytes().into();
        File { number, path, dev: (0, 0), inode: 0, build_id: None, mount_namespace: 0 }
    }

    #[test]
    fn who_has_many_files_in_other_roots_makes_space_for_others() {
        let mut all = FilesApart::default();
        let user = |user: u32| Some(Owner::new(user + 1, user, ""));
        let mut number = 0;
        let mut add = |all: &mut FilesApart, owner: Option<Owner>, count: u64| {
            let said: Vec<String> =
                (0..count).filter_map(|n| all.note_of(&file(number + n), owner.clone(), false)).collect();
            number += count;
            said
        };
        let none: [Option<Owner>; 3] = [user(0), user(1001), None];
        none.into_iter().for_each(|owner| assert!(add(&mut all, owner, 3).is_empty()));
        let said = add(&mut all, user(1000), 10 * MOST as u64);
        assert_eq!(all.all.len(), MOST);
        // What the user itself has goes, and not what nobody has.
        assert!(said.iter().all(|text| text.contains(" of process 1001 of user 1000 is not")));
        assert!(said.iter().all(|text| text.starts_with("/program") && !text.contains('\n')));
        assert!((0..9).all(|number| all.has(&file(number))) && !all.has(&file(9)));
        // Root has all but a few, before its files make space for those of others.
        add(&mut all, user(0), 10 * MOST as u64);
        let of = |all: &FilesApart, user: u32| {
            all.all.values().filter(|apart| apart.owner == Some(Owner::new(user + 1, user, ""))).count()
        };
        assert!(of(&all, 0) > MOST / 2 && of(&all, 1000) > MOST / 8 && of(&all, 1001) == 3);
        add(&mut all, user(1002), 10 * MOST as u64);
        assert!(of(&all, 0) > MOST / 2 && of(&all, 1000) > 0 && of(&all, 1001) == 3);
    }

    #[test]
    fn a_file_that_is_not_found_is_looked_for_a_limited_number_of_times() {
        let mut all = FilesApart::default();
        for round in 0..3 {
            for n in 0..LOOKS {
                assert_eq!(all.note_of(&file(1), None, false), None);
                assert!(all.has(&file(1)), "{round} {n}");
            }
            assert_eq!(all.note_of(&file(1), None, true), None);
        }
        all.look();
        assert!(!all.is_looking());
        (0..LOOKS).for_each(|_| _ = all.note_of(&file(1), None, false));
        assert!(all.is_looking());
        assert_eq!(all.note_of(&file(1), None, false), None);
        assert!(!all.has(&file(1)) && !all.is_looking());
    }

    #[test]
    fn who_runs_has_what_nobody_had() {
        let (mut all, mut owners) = (FilesApart::default(), Owners::default());
        all.note(&file(1), (&[u32::MAX], &mut owners), false);
        assert_eq!(all.all[&1].owner, None);
        all.note(&file(1), (&[u32::MAX, std::process::id()], &mut owners), false);
        let owner = all.all[&1].owner.clone();
        assert_eq!(owner.map(|owner| owner.pid), Some(std::process::id()));
        // Root has what another user ran first.
        let user = Some(Owner::new(1, 1000, ""));
        all.note_of(&file(2), user.clone(), false);
        all.note_of(&file(2), Some(Owner::new(2, 0, "")), false);
        assert!(all.all[&2].owner.as_ref().is_some_and(Owner::is_root));
    }
}
