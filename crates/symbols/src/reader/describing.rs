//! Which processes run a file that describes probes.
//!
//! Most processes describe none, or none that is asked for, so a look at all of them is to cost one
//! read of each address map and one of each file. Nothing of these files is sent to the session.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use diagnostics::glob::glob_matches;
use files::open::ProcessDir;
use proc::maps::{self, MappedFile};

use super::debug::RULES;
use super::elf::Elf;
use super::observe;
use super::usdt::providers;

/// Maximum number of files that are remembered.
const MAX_FILES: usize = 1 << 16;

/// The names of the providers that a file describes.
type Names = Rc<BTreeSet<String>>;

/// What identifies a file: device and inode.
type Key = ((u32, u32), u64);

/// The providers that files describe.
#[derive(Default)]
pub(super) struct Descriptions {
    files: HashMap<Key, Names>,
}

impl Descriptions {
    /// Those of the processes that run a file which describes probes of a provider. What ends
    /// meanwhile, and what cannot be read, has none.
    pub(super) fn processes(&mut self, provider: &str, first: bool, pids: &[u32]) -> Vec<u32> {
        if first || self.files.len() > MAX_FILES {
            self.files.clear();
        }
        pids.iter().copied().filter(|pid| self.has(*pid, provider)).collect()
    }

    fn has(&mut self, pid: u32, provider: &str) -> bool {
        let Ok(dir) = ProcessDir::open(pid) else { return false };
        let Ok(text) = dir.maps() else { return false };
        let mut has = false;
        let each = |mapping: &maps::Mapping, file: &MappedFile| {
            let names = self.providers(&dir, file, mapping);
            has = names.iter().any(|name| glob_matches(provider, &format!("{name}{pid}")));
            if has { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        maps::each_code_file(text, maps::MAX_READ_ALL, each).is_ok() && has
    }

    fn providers(&mut self, dir: &ProcessDir, file: &MappedFile, mapping: &maps::Mapping) -> Names {
        let key = (file.dev, file.inode);
        if let Some(known) = self.files.get(&key).filter(|_| file.inode != 0) {
            return known.clone();
        }
        let read = || {
            let handle = observe::open(dir, dir.root().ok().as_ref(), file, mapping)?;
            let elf = Elf::open(Rc::new(handle.open(&RULES).ok()?)).ok()?;
            elf.is_native().then(|| providers(&elf).ok()).flatten()
        };
        let names = Rc::new(read().unwrap_or_default());
        self.files.insert(key, names.clone());
        names
    }
}
