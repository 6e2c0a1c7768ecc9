//! Symbols of the kernel of a guest, from the memory of the process that is its machine. The guest
//! does not help, and does not notice.
//!
//! ```text
//!  memory of the process              pages that the guest has used, by /proc/PID/pagemap
//!    page "OSRELEASE=6.12…"           VMCOREINFO: addresses in the guest's kernel, its release
//!    "Linux" … "6.12…"                the kernel's own name (init_uts_ns), at one of them
//!    kallsyms tables                  at others
//! ```
//!
//! **Where an address of the kernel is in the process.** VMCOREINFO has only the kernel's own
//! addresses. How the machine lays out memory (where its holes are, in which mapping a part is) is
//! different with each program and version. But the image of a kernel lies in one piece, in the
//! guest's memory and in the mapping. So one known place in it gives all others: the name and
//! release that the kernel has at a known address are looked for, at addresses that agree modulo
//! the alignment of an image first, then at all. No table of machines, and no page table of the
//! guest, is needed.
//!
//! **Several kernels.** A machine that was started anew may still have the one before in its
//! memory. All are found, and an address has a name if one of them alone has it: the kernel is at
//! another address at each boot.
//!
//! **Guests do not trust each other**, so tables are shared by their contents and not by a build id
//! that a guest could copy. Pages that the guest has not used are not read: that would fill them.

mod memory;
mod tables;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::observe;
use crate::kernel::{Kernel, SymbolText};
use crate::sys;
use crate::wire::{Identity, PlaceName};
use memory::{Memory, PAGE, ProcessMemory, Within, each_page};
use tables::{BEGIN, NoNote, Note};

/// Kernels of one guest at most.
const MOST_KERNELS: usize = 4;

/// Tables of symbols at most, unless one guest has more: each takes 10 to 15 MB.
const MOST_TABLES: usize = 4;

/// The alignment of the image of a kernel, virtual and physical (`CONFIG_PHYSICAL_ALIGN`).
const ALIGNMENT: u64 = 2 << 20;

/// What `struct new_utsname` begins with.
const SYSTEM: &[u8] = b"Linux\0";

/// Where the release is in `struct new_utsname`, behind the system's name and that of the host.
const RELEASE_AT: usize = 2 * 65;

/// A kernel that may have been started since is looked for again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// The addresses of a kernel's image on x86-64: `__START_KERNEL_map` and the space of modules
/// behind it.
const IMAGE: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;

/// The kernels of guests.
#[derive(Default)]
pub(super) struct Guests {
    known: HashMap<u32, Guest>,
    tables: HashMap<u64, Kernel>,
    hasher: RandomState,
}

struct Guest {
    identity: Identity,
    searched: Instant,
    kernels: Vec<Found>,
}

/// A kernel in the memory of a guest.
struct Found {
    /// Where its VMCOREINFO is, and what that is.
    page: u64,
    text: Vec<u8>,
    slide: u64,
    /// The key of its table.
    table: u64,
}

/// Symbols that are read once.
#[derive(Debug)]
struct Once(Mutex<Vec<u8>>);

impl SymbolText for Once {
    fn text(&self) -> Result<Vec<u8>, String> {
        Ok(std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The CPU time that a search may take, which is a part of what the client allows.
struct Budget {
    begun: Duration,
    time: Duration,
}

impl Budget {
    fn new(time: Duration) -> Budget {
        Budget { begun: Budget::now(), time }
    }

    fn now() -> Duration {
        sys::cpu_time(std::process::id()).unwrap_or_default()
    }

    /// Why the search ends when it has taken so many fifths of the time.
    fn check(&self, fifths: u32) -> Result<(), String> {
        let over = Budget::now().saturating_sub(self.begun) > self.time / 5 * fifths;
        if over {
            Err("it is too large to be searched in that time (option symtimeout)".into())
        } else {
            Ok(())
        }
    }
}

impl Guests {
    /// The symbols at addresses of the kernel of a guest. `time`: what the client allows.
    pub(super) fn symbols(
        &mut self,
        pid: u32,
        addrs: &[u64],
        time: Duration,
    ) -> Result<Vec<PlaceName>, String> {
        let identity = observe::identity_of(pid).ok_or("it has ended")?;
        let memory = ProcessMemory::open(pid).map_err(|e| diagnostics::system_text(&e))?;
        self.of_memory(pid, identity, &memory, addrs, time)
    }

    fn of_memory(
        &mut self,
        pid: u32,
        identity: Identity,
        memory: &impl Memory,
        addrs: &[u64],
        time: Duration,
    ) -> Result<Vec<PlaceName>, String> {
        let is_there = |found: &Found| {
            let mut now = vec![0; found.text.len()];
            memory.read(found.page, &mut now) && now == found.text
        };
        let is_known = |guest: &Guest| guest.identity == identity && guest.kernels.iter().all(is_there);
        if !self.known.get(&pid).is_some_and(is_known) {
            self.search(pid, identity, memory, time)?;
        }
        let names = self.names(pid, addrs);
        let is_unknown =
            |(addr, name): (&u64, &PlaceName)| IMAGE.contains(addr) && matches!(name, PlaceName::Unnamed(_));
        let is_old = self.known.get(&pid).is_some_and(|guest| guest.searched.elapsed() > AGAIN);
        if is_old && addrs.iter().zip(&names).any(is_unknown) {
            self.search(pid, identity, memory, time)?;
            return Ok(self.names(pid, addrs));
        }
        Ok(names)
    }

    fn names(&mut self, pid: u32, addrs: &[u64]) -> Vec<PlaceName> {
        let kernels = self.known.get(&pid).map_or(&[][..], |guest| &guest.kernels);
        let mut name = |addr: u64| {
            let mut found: Option<(u64, Arc<str>)> = None;
            for kernel in kernels {
                let table = self.tables.get_mut(&kernel.table);
                let name = table.map(|table| table.name(addr.wrapping_sub(kernel.slide)));
                let Some((symbol, offset)) = name.and_then(|name| Some((name.symbol?, name.offset))) else {
                    continue;
                };
                match found {
                    Some(other) if other != (offset, symbol.clone()) => return PlaceName::Unnamed(None),
                    _ => found = Some((offset, symbol)),
                }
            }
            let found = found.map(|(offset, symbol)| PlaceName::Symbol(offset, symbol.to_string()));
            found.unwrap_or(PlaceName::Unnamed(None))
        };
        addrs.iter().map(|addr| name(*addr)).collect()
    }

    /// Looks for the kernels of a guest.
    fn search(
        &mut self,
        pid: u32,
        identity: Identity,
        memory: &impl Memory,
        time: Duration,
    ) -> Result<(), String> {
        self.known.remove(&pid);
        let budget = Budget::new(time);
        let (mut kernels, mut why) = (Vec::new(), None);
        let notes = notes(memory, &budget)?;
        for (page, text) in notes {
            let note = match Note::parse(&text) {
                Ok(note) => note,
                Err(NoNote::Other) => continue,
                Err(NoNote::NoSymbols(release)) => {
                    let reason =
                        format!("Linux {release} does not tell where its symbols are (6.0 and later do)");
                    why.get_or_insert(reason);
                    continue;
                }
            };
            match symbols(memory, &note, &budget) {
                // A kernel that is not found may be the one that runs.
                Err(ended) => return Err(ended),
                Ok(Some(lines)) => {
                    let table = self.add_table(lines, &kernels);
                    kernels.push(Found { page, text, slide: note.slide, table });
                }
                Ok(None) => {
                    let release = String::from_utf8_lossy(&note.release);
                    why.get_or_insert(format!("the symbols of its Linux {release} are not found in it"));
                }
            }
        }
        if kernels.is_empty() {
            return Err(why.unwrap_or_else(|| {
                "it has no VMCOREINFO of a Linux kernel: it is no guest, runs another system or is still starting, \
                 or its memory is encrypted (SEV, TDX)"
                    .into()
            }));
        }
        self.known.insert(pid, Guest { identity, searched: Instant::now(), kernels });
        Ok(())
    }

    /// Stores a table, unless the same one is known. Returns its key. `others`: kernels that were
    /// found with it.
    fn add_table(&mut self, lines: Vec<u8>, others: &[Found]) -> u64 {
        let key = self.hasher.hash_one(&lines);
        if !self.tables.contains_key(&key) {
            self.make_room(others);
            let mut kernel = Kernel::given(Arc::new(Once(Mutex::new(lines))));
            kernel.load();
            self.tables.insert(key, kernel);
        }
        key
    }

    /// Makes room for a table: those that no guest has go, then those of the guest that was
    /// searched first.
    fn make_room(&mut self, current: &[Found]) {
        while self.tables.len() >= MOST_TABLES {
            let known = self.known.values().flat_map(|guest| &guest.kernels);
            let used: HashSet<u64> = known.chain(current).map(|kernel| kernel.table).collect();
            self.tables.retain(|key, _| used.contains(key));
            if self.tables.len() < MOST_TABLES {
                return;
            }
            let first = self.known.iter().min_by_key(|(_, guest)| guest.searched).map(|(pid, _)| *pid);
            if first.and_then(|pid| self.known.remove(&pid)).is_none() {
                return;
            }
        }
    }
}

/// The pages of VMCOREINFO, each with its text once. An error: why not all of the memory was
/// searched.
fn notes(memory: &impl Memory, budget: &Budget) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut notes: Vec<(u64, Vec<u8>)> = Vec::new();
    each_page(memory, &|| budget.check(2), |at, page| {
        if page.starts_with(BEGIN) {
            let text = page.split(|byte| *byte == 0).next().unwrap_or_default();
            if notes.iter().all(|(_, other)| other != text) {
                notes.push((at, text.to_vec()));
            }
        }
        notes.len() < MOST_KERNELS
    })?;
    Ok(notes)
}

/// The symbols of a kernel, wherever its image is.
fn symbols(memory: &impl Memory, note: &Note, budget: &Budget) -> Result<Option<Vec<u8>>, String> {
    let into = note.uts_name % PAGE;
    let name_page = note.uts_name - into;
    let symbols_at = |region: &Range<u64>, at: u64| {
        let mut name = vec![0; RELEASE_AT + note.release.len() + 1];
        let is_there = memory.read(at, &mut name)
            && name.starts_with(SYSTEM)
            && name.get(RELEASE_AT..).and_then(|rest| rest.strip_suffix(b"\0")) == Some(&note.release);
        let delta = at.wrapping_sub(note.uts_name);
        if is_there { note.symbols(&Within { memory, region, delta }) } else { None }
    };
    for region in memory.regions() {
        // The memory of a machine begins at its address 0, or at one that is aligned as that in the
        // process.
        let of_region = name_page % ALIGNMENT;
        let of_process = name_page.wrapping_sub(region.start) % ALIGNMENT;
        for phase in Some(of_region).into_iter().chain(Some(of_process).filter(|p| *p != of_region)) {
            let mut page = region.start.saturating_add(phase);
            while page < region.end {
                budget.check(4)?;
                let is_used = memory.used(page, 1).first() == Some(&true);
                if let Some(found) = is_used.then(|| symbols_at(region, page + into)).flatten() {
                    return Ok(Some(found));
                }
                page += ALIGNMENT;
            }
        }
    }
    // Or anywhere.
    let mut found = None;
    each_page(memory, &|| budget.check(4), |at, page| {
        let begin = page.get(into as usize..).unwrap_or_default();
        if begin.starts_with(SYSTEM) {
            let region = memory.regions().iter().find(|region| region.contains(&at));
            found = region.and_then(|region| symbols_at(region, at + into));
        }
        found.is_none()
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests;
