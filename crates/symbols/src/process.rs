//! Names of addresses in processes, living or gone.
//!
//! A process is known by pid and *generation*: what runs under a pid changes at `exec`, and an address only means
//! something together with the program that had it. Generation 0 means "what runs now"; a tracer that records the
//! generation with each stack passes it instead.
//!
//! The address map is read when a process is first seen, best by [`Processes::note`] from whoever watches processes,
//! else at the first address. Afterwards it is looked at again only when an address is in no mapping (a library was
//! loaded), and once a batch for generation 0 (the pid may have been given to another process, or have executed
//! another program). A process that is gone keeps the map it had.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::maps::{self, Backing, Mapping};
use crate::name::Name;
use crate::object::{Found, ObjectId, Objects};
use crate::perfmap::PerfMap;

/// Address maps kept; the one not used for longest goes first.
const MAX_PROCESSES: usize = 4096;

/// What tells one program under a pid from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    /// Start of the process in clock ticks since boot.
    start: u64,
    /// Device and inode of the executable; 0 where it cannot be seen.
    exe: (u64, u64),
}

#[derive(Debug, Default)]
struct Process {
    identity: Option<Identity>,
    maps: Vec<Mapping>,
    /// Of each mapping.
    objects: Vec<Option<ObjectId>>,
    perf: PerfMap,
    /// Batch in which it was last compared with the process.
    checked: u64,
    /// Batch in which its map was last read.
    read: u64,
    /// Batch in which it was last asked.
    used: u64,
}

/// Names of addresses in processes.
#[derive(Default)]
pub struct Processes {
    processes: HashMap<(u32, u64), Process>,
    objects: Objects,
    batch: u64,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Processes({} known)", self.processes.len())
    }
}

impl Processes {
    /// Reads nothing.
    pub fn new() -> Processes {
        Self::default()
    }

    /// Print names as the linker has them (`_ZN…`), instead of demangled.
    pub fn set_raw_names(&mut self, raw: bool) {
        self.objects.set_raw_names(raw);
    }

    /// A new batch of addresses begins (a buffer is drained): what was read before may be out of date.
    pub fn begin_batch(&mut self) {
        self.batch += 1;
    }

    /// A process was seen: keeps its address map and holds its files, so that it can be symbolized when it is gone.
    /// To be called again after it loads a library or executes a program.
    pub fn note(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        if let Some((identity, maps)) = observe(pid) {
            self.keep(pid, generation, identity, maps);
        }
        if let Some(process) = self.processes.get_mut(&(pid, generation)) {
            process.checked = batch;
        }
    }

    /// A pid is free for another process; answers for known generations stay.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&(pid, 0));
    }

    fn keep(&mut self, pid: u32, generation: u64, identity: Option<Identity>, maps: Vec<Mapping>) {
        let objects = maps.iter().map(|m| self.objects.note(pid, m)).collect();
        if self.processes.len() >= MAX_PROCESSES
            && !self.processes.contains_key(&(pid, generation))
            && let Some(oldest) = self.processes.iter().min_by_key(|(_, p)| p.used).map(|(key, _)| *key)
        {
            self.processes.remove(&oldest);
        }
        let batch = self.batch;
        let process = self.processes.entry((pid, generation)).or_default();
        if process.identity != identity {
            process.perf = PerfMap::default();
        }
        process.identity = identity;
        process.maps = maps;
        process.objects = objects;
        (process.read, process.used) = (batch, batch);
    }

    /// Sees to it that the process is known as far as it can be.
    fn look(&mut self, pid: u32, generation: u64) {
        let batch = self.batch;
        match self.processes.get_mut(&(pid, generation)) {
            None => {
                // What was noted without a generation is better than nothing, as the process may be gone.
                self.note(pid, generation);
                if generation != 0
                    && !self.processes.contains_key(&(pid, generation))
                    && let Some(p) = self.processes.get(&(pid, 0))
                {
                    let (identity, maps) = (p.identity, p.maps.clone());
                    self.keep(pid, generation, identity, maps);
                }
                // Also when there is nothing to know: not to be asked again in this batch.
                let process = self.processes.entry((pid, generation)).or_default();
                (process.checked, process.read, process.used) = (batch, batch, batch);
            }
            Some(process) => {
                process.used = batch;
                if generation == 0 && process.checked != batch {
                    process.checked = batch;
                    let now = identity(pid);
                    if now.is_some() && now != process.identity {
                        self.note(pid, generation);
                    }
                }
            }
        }
    }

    /// The mapping of an address; the map is read again, once a batch, when there is none.
    fn place(&mut self, pid: u32, generation: u64, addr: u64) -> Option<(Option<ObjectId>, Mapping)> {
        self.look(pid, generation);
        for again in [false, true] {
            let process = self.processes.get(&(pid, generation))?;
            if let Some(mapping) = maps::find(&process.maps, addr) {
                let index = process.maps.partition_point(|m| m.start < mapping.start);
                return Some((process.objects.get(index).copied().flatten(), mapping.clone()));
            }
            if again || process.read == self.batch {
                return None;
            }
            let known = process.identity;
            // Only if it is still the same program: a later one says nothing about an address of an earlier.
            match observe(pid) {
                Some((identity, maps)) if known.is_none() || identity == known => {
                    self.keep(pid, generation, identity, maps);
                }
                _ => {
                    let batch = self.batch;
                    self.processes.get_mut(&(pid, generation))?.read = batch;
                }
            }
        }
        None
    }

    /// What an address of a process is called.
    pub fn name(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let Some((object, mapping)) = self.place(pid, generation, addr) else { return Name::unknown(addr) };
        match (&mapping.backing, object) {
            (Backing::Vdso, _) => {
                let found = self.objects.vdso(addr - mapping.start);
                named(addr, Some("[vdso]".into()), found)
            }
            (Backing::Anonymous, _) => self.jitted(pid, generation, addr),
            (Backing::File { .. }, Some(id)) => {
                let offset = file_offset(&mapping, addr);
                if self.objects.known(id, offset).is_none() {
                    self.objects.resolve(id, &[offset]);
                }
                let found = self.objects.known(id, offset).cloned().flatten();
                named(addr, self.objects.name(id), found)
            }
            (Backing::File { .. }, None) => Name::unknown(addr),
        }
    }

    /// What the addresses of a stack are called; cheaper than one by one, as a file is asked once for all of them.
    pub fn names(&mut self, pid: u32, generation: u64, addrs: &[u64]) -> Vec<Name> {
        let mut wanted: HashMap<ObjectId, Vec<u64>> = HashMap::new();
        for &addr in addrs {
            if let Some((Some(id), mapping)) = self.place(pid, generation, addr) {
                let offset = file_offset(&mapping, addr);
                if self.objects.known(id, offset).is_none() {
                    wanted.entry(id).or_default().push(offset);
                }
            }
        }
        for (id, offsets) in wanted {
            self.objects.resolve(id, &offsets);
        }
        addrs.iter().map(|addr| self.name(pid, generation, *addr)).collect()
    }

    /// Start of the function that an address is in, else the address: what `ufunc()` and `usym()` aggregate by.
    pub fn func_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        self.name(pid, generation, addr).start()
    }

    /// Lowest mapping of the object that an address is in, else the address: what `umod()` aggregates by.
    pub fn module_start(&mut self, pid: u32, generation: u64, addr: u64) -> u64 {
        let Some((object, mapping)) = self.place(pid, generation, addr) else { return addr };
        let Some(process) = self.processes.get(&(pid, generation)) else { return addr };
        let same =
            process.objects.iter().zip(&process.maps).filter(|(o, _)| object.is_some() && **o == object);
        same.map(|(_, m)| m.start).min().unwrap_or(mapping.start)
    }

    fn jitted(&mut self, pid: u32, generation: u64, addr: u64) -> Name {
        let Some(process) = self.processes.get_mut(&(pid, generation)) else { return Name::unknown(addr) };
        let mut found = process.perf.find(addr);
        if found.is_none() {
            process.perf.refresh(pid);
            found = process.perf.find(addr);
        }
        match found {
            Some((start, name)) => {
                let found = Some((name, addr - start));
                named(addr, process.perf.file.clone(), found)
            }
            None => Name::unknown(addr),
        }
    }
}

fn named(addr: u64, module: Option<Arc<str>>, found: Found) -> Name {
    let (symbol, offset) = found.map_or((None, 0), |(name, offset)| (Some(name), offset));
    Name { addr, module, symbol, offset }
}

fn file_offset(mapping: &Mapping, addr: u64) -> u64 {
    (addr - mapping.start).saturating_add(mapping.offset)
}

/// Identity and address map of a living process; of one program, even if it executes another meanwhile.
fn observe(pid: u32) -> Option<(Option<Identity>, Vec<Mapping>)> {
    for _ in 0..3 {
        let before = identity(pid);
        let text = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
        if identity(pid) == before {
            // A zombie, or one that is just going, has an empty map: no better than what is known.
            return (!text.is_empty()).then(|| (before, maps::parse(&text)));
        }
    }
    None
}

fn identity(pid: u32) -> Option<Identity> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses can hold anything; field 22 is the 20th after it.
    let after = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    let start = text.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let exe = std::fs::metadata(format!("/proc/{pid}/exe")).map_or((0, 0), |m| (m.dev(), m.ino()));
    Some(Identity { start, exe })
}

/// Where our own vdso lies.
pub fn own_vdso_base() -> Option<u64> {
    let text = std::fs::read("/proc/self/maps").ok()?;
    maps::parse(&text).into_iter().find(|m| m.backing == Backing::Vdso).map(|m| m.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn symbols_test_landmark(x: u64) -> u64 {
        std::hint::black_box(x).wrapping_mul(3)
    }

    fn landmark() -> u64 {
        symbols_test_landmark as extern "C" fn(u64) -> u64 as usize as u64
    }

    #[test]
    fn our_own_functions_are_found() {
        let pid = std::process::id();
        let mut p = Processes::new();
        let name = p.name(pid, 0, landmark());
        assert_eq!(name.symbol.as_deref(), Some("symbols_test_landmark"));
        assert_eq!(name.offset, 0);
        assert!(name.module.as_deref().is_some_and(|m| m.starts_with("symbols-")), "{name}");
        let second = p.name(pid, 0, landmark() + 1);
        assert!(second.to_string().ends_with("`symbols_test_landmark+0x1"), "{second}");
        assert_eq!(p.func_start(pid, 0, landmark() + 1), landmark());
        assert!(p.module_start(pid, 0, landmark()) < landmark());
        assert_eq!(p.name(pid, 0, 0x10).to_string(), "0x10");
        let names = p.names(pid, 0, &[landmark() + 1, 0x10, landmark()]);
        assert_eq!(names[0], second);
        assert_eq!(names[1].to_string(), "0x10");
        assert_eq!(names[2], name);
    }

    #[test]
    fn rust_names_are_demangled_unless_raw_ones_are_wanted() {
        let pid = std::process::id();
        let addr = identity as fn(u32) -> Option<Identity> as usize as u64;
        let mut p = Processes::new();
        let name = p.name(pid, 0, addr).to_string();
        assert!(name.ends_with("symbols::process::identity"), "{name}");
        p.set_raw_names(true);
        assert!(p.name(pid, 0, addr).to_string().contains("`_"), "{}", p.name(pid, 0, addr));
    }

    #[test]
    fn the_vdso_has_symbols() {
        let pid = std::process::id();
        let Some(base) = own_vdso_base() else {
            println!("skipped: the_vdso_has_symbols: no vdso");
            return;
        };
        let mut p = Processes::new();
        let name = (0..0x2000).step_by(16).map(|o| p.name(pid, 0, base + o)).find(|n| n.symbol.is_some());
        let name = name.expect("some symbol");
        println!("{name}");
        assert_eq!(name.module.as_deref(), Some("[vdso]"));
    }

    /// A process that sleeps, and the address of something in its libc.
    fn sleeper() -> Option<(std::process::Child, u64)> {
        let child = std::process::Command::new("sleep").arg("600").spawn().ok()?;
        let pid = child.id();
        for _ in 0..60_000 {
            let (_, maps) = observe(pid).unwrap_or_default();
            let libc =
                |m: &&Mapping| matches!(&m.backing, Backing::File { path, .. } if path.contains("libc.so"));
            // Once it has gone through its dynamic linker all mappings of libc are there.
            if maps.iter().filter(libc).count() >= 4
                && let Some(first) = maps.iter().find(libc)
            {
                return Some((child, first.start));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        None
    }

    /// File offset of a function of our own libc, which is the same file.
    fn getpid_offset() -> Option<u64> {
        let addr = libc_getpid();
        let text = std::fs::read("/proc/self/maps").ok()?;
        let maps = maps::parse(&text);
        Some(file_offset(maps::find(&maps, addr)?, addr))
    }

    fn libc_getpid() -> u64 {
        unsafe extern "C" {
            fn getpid() -> i32;
        }
        getpid as unsafe extern "C" fn() -> i32 as usize as u64
    }

    fn at_offset(pid: u32, offset: u64) -> Option<u64> {
        let (_, maps) = observe(pid)?;
        let hit = |m: &&Mapping| {
            matches!(&m.backing, Backing::File { path, .. } if path.contains("libc.so"))
                && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
        };
        maps.iter().find(hit).map(|m| m.start + (offset - m.offset))
    }

    #[test]
    fn a_process_that_is_gone_is_symbolized_if_it_was_seen() {
        let test = "a_process_that_is_gone_is_symbolized_if_it_was_seen";
        let (Some((mut child, _)), Some(offset)) = (sleeper(), getpid_offset()) else {
            println!("skipped: {test}: no sleep with a libc of its own");
            return;
        };
        let pid = child.id();
        let addr = at_offset(pid, offset).unwrap();
        let mut p = Processes::new();
        p.note(pid, 0);
        child.kill().unwrap();
        child.wait().unwrap();
        p.begin_batch();
        let name = p.name(pid, 0, addr + 2);
        assert!(name.module.as_deref().is_some_and(|m| m.starts_with("libc.so")), "{name}");
        assert!(name.symbol.as_deref().is_some_and(|s| s.contains("getpid")), "{name}");
        assert_eq!(name.offset, 2);
        // One that was never seen cannot be.
        let mut late = Processes::new();
        assert_eq!(late.name(pid, 0, addr), Name::unknown(addr));
        // A generation takes what was noted before it was known.
        assert_eq!(p.name(pid, 7, addr + 2), name);
    }

    #[test]
    fn a_deleted_program_keeps_its_symbols() {
        let test = "a_deleted_program_keeps_its_symbols";
        let copy = std::env::temp_dir().join(format!("symbols-deleted-{}", std::process::id()));
        let me = std::env::current_exe().unwrap();
        std::fs::copy(me, &copy).unwrap();
        // The copy runs a test that only sleeps.
        let child = std::process::Command::new(&copy)
            .args(["--exact", "process::tests::sleeps_when_told_to", "--nocapture"])
            .env("SYMBOLS_TEST_SLEEP", "1")
            .stdout(std::process::Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            println!("skipped: {test}: cannot run a copy in {}", copy.display());
            return;
        };
        let pid = child.id();
        let text = std::fs::read("/proc/self/maps").unwrap();
        let offset = file_offset(maps::find(&maps::parse(&text), landmark()).unwrap(), landmark());
        let mut addr = None;
        for _ in 0..60_000 {
            let maps = observe(pid).map(|(_, m)| m).unwrap_or_default();
            let hit = |m: &&Mapping| {
                matches!(&m.backing, Backing::File { path, .. } if *path == copy.to_string_lossy())
                    && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
            };
            addr = maps.iter().find(hit).map(|m| m.start + (offset - m.offset));
            if addr.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::fs::remove_file(&copy).unwrap();
        let mut p = Processes::new();
        p.note(pid, 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let name = p.name(pid, 0, addr.unwrap() + 1);
        let file = copy.file_name().unwrap().to_string_lossy();
        assert_eq!(name.to_string(), format!("{file}`symbols_test_landmark+0x1"));
    }

    #[test]
    fn sleeps_when_told_to() {
        if std::env::var_os("SYMBOLS_TEST_SLEEP").is_some() {
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
    }

    #[test]
    fn code_made_at_run_time_has_the_names_its_runtime_wrote() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let mut p = Processes::new();
        p.note(pid, 0);
        // A mapping that is not there is put into the map, as if a runtime had made it.
        let fake = Mapping { start: 0x1000, end: 0x3000, offset: 0, backing: Backing::Anonymous };
        let process = p.processes.get_mut(&(pid, 0)).unwrap();
        process.maps.insert(0, fake);
        process.objects.insert(0, None);
        assert_eq!(p.name(pid, 0, 0x1004).to_string(), "0x1004");
        if std::fs::write(&path, "1000 20 made.up\n").is_err() {
            println!("skipped: code_made_at_run_time_has_the_names_its_runtime_wrote: cannot write {path}");
            return;
        }
        assert_eq!(p.name(pid, 0, 0x1004).to_string(), format!("perf-{pid}.map`made.up+0x4"));
        std::fs::remove_file(path).unwrap();
    }
}
