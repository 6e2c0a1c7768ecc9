//! Places in the files of processes: those of a file by one link (of 16,384 at most), or each by
//! itself, for one process or for all that run the file.
//!
//! The kernel is given a path and the number of a process, and both may have another meaning than
//! when the places were found: what was at a path is replaced, a process maps something else at an
//! address, a number goes to another process. So the file is held by a descriptor ([`HeldFile`]),
//! and after attaching it is made sure that the number still was the process's ([`HeldProcess`]).

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bpf_sys::{AttachType, Link, PerfEvent, ProgKind, SysError, UprobeTarget, errno};
use files::open::Handle;
use files::real::RealInode;
use probes::ProbeDesc;

use super::process::HeldProcess;
use super::{
    AttachError, Attaching, FunctionMethod, Functions, Method, ProgramType, Rejected, Semaphores, SiteLink,
    semaphore_at,
};

/// A place of a probe in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UprobeSite {
    /// The index of its probe.
    pub index: u32,
    /// Where in the file.
    pub offset: u64,
    /// Where its semaphore is in the file: a number of 16 bits that the kernel counts up in the
    /// process while the place is attached to. 0: it has none.
    pub semaphore: u64,
    /// What the program has to know of the place: the upper half of the cookie.
    pub place: u32,
    /// The probe, for messages.
    pub probe: Arc<ProbeDesc>,
}

/// A file whose places were found.
#[derive(Debug)]
pub struct HeldFile {
    path: OsString,
    /// The path leads to it.
    fd: Option<OwnedFd>,
    name: Arc<str>,
    number: u64,
    /// What the kernel knows its places by; `None` where it is not known yet.
    inode: Option<RealInode>,
}

impl HeldFile {
    /// The file of a descriptor, which may be `O_PATH`. The name is for messages. No file server is
    /// asked.
    pub fn of(fd: OwnedFd, name: Arc<str>) -> HeldFile {
        let handle = Handle::from_fd(fd);
        let inode = handle.stat_cached().ok().map(|stat| RealInode { dev: stat.dev, inode: stat.inode });
        HeldFile { inode, ..HeldFile::with_inode(handle, name, None) }
    }

    /// The same, where the inode is known: that of the file below an overlay's.
    pub(crate) fn with_inode(handle: Handle, name: Arc<str>, inode: Option<RealInode>) -> HeldFile {
        let path = format!("/proc/self/fd/{}", handle.fd().as_raw_fd()).into();
        HeldFile { fd: Some(handle.into_fd()), inode, ..HeldFile::at(path, name) }
    }

    /// The file at a path, where there is no descriptor of it.
    pub fn at(path: OsString, name: Arc<str>) -> HeldFile {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        HeldFile { path, fd: None, name, number: NUMBERS.fetch_add(1, Ordering::Relaxed), inode: None }
    }

    /// A number that no other has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// True if no other file can come to be at the path.
    pub(crate) fn is_held(&self) -> bool {
        self.fd.is_some()
    }

    /// What the kernel knows its places by. The server of a file that is held is not asked; one
    /// that is not held yet is known by its path.
    pub fn inode(&self) -> Option<RealInode> {
        use std::os::unix::fs::OpenOptionsExt;
        /// linux/fcntl.h
        const O_PATH: i32 = 0o10_000_000;
        if self.inode.is_some() || self.is_held() {
            return self.inode;
        }
        let file = std::fs::File::options().read(true).custom_flags(O_PATH).open(&self.path).ok()?;
        let stat = Handle::from_fd(file.into()).stat_cached().ok()?;
        Some(RealInode { dev: stat.dev, inode: stat.inode })
    }

    /// A path to the file in this process.
    pub fn path(&self) -> &OsStr {
        &self.path
    }
}

/// Places in one file, in one process or in all.
#[derive(Clone, Debug)]
pub struct UprobeFile {
    /// The file.
    pub file: Arc<HeldFile>,
    /// The only process in which the kernel runs the program.
    pub process: Option<Arc<HeldProcess>>,
    /// The places.
    pub sites: Vec<UprobeSite>,
}

/// Places of one link at most. The kernel takes a million, but hears no signal until it has
/// attached to all of them, which takes seconds.
const LINK_SITES: usize = 1 << 14;

/// A program at places in files.
#[derive(Clone, Debug)]
pub struct Uprobes {
    /// The files.
    pub files: Vec<UprobeFile>,
    /// Runs when the functions that begin at the places return.
    pub at_return: bool,
    /// The kernel attaches to many places of a file by one link.
    pub multi: bool,
    /// The probes of a process may be attached again in another way.
    pub again: bool,
    /// What is reported with the number of places.
    pub notes: Vec<String>,
}

impl UprobeFile {
    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.pid())
    }
}

impl Uprobes {
    fn sites(&self) -> usize {
        self.files.iter().map(|file| file.sites.len()).sum()
    }

    /// A link to places, which are given with the semaphores by which they are attached to.
    fn site_link(&self, file: &UprobeFile, link: Link, places: impl Iterator<Item = (u64, u64)>) -> SiteLink {
        let mut semaphores = Semaphores::default();
        let mut places = places.filter(|(_, semaphore)| *semaphore != 0).peekable();
        if places.peek().is_some() {
            semaphores.add(file.file.inode(), places);
        }
        let (returns_in, of_process) =
            (file.pid().filter(|_| self.at_return), file.pid().filter(|_| self.again));
        let of_file = file.process.is_none().then_some(file.file.number);
        SiteLink { link, cpu: None, returns_in, of_process, of_file, semaphores }
    }

    fn cookie(to: &Attaching<'_>, site: &UprobeSite) -> u64 {
        (to.cookie)(site.index) | u64::from(site.place) << 32
    }

    fn semaphore(file: &UprobeFile, site: &UprobeSite) -> u64 {
        if site.semaphore == 0 { semaphore_at(|| file.file.inode(), site.offset) } else { site.semaphore }
    }

    /// Attaches to all places in a file. Where the kernel refuses some of them, to the others: it
    /// does not say which.
    fn attach_all(
        &self,
        to: &mut Attaching<'_>,
        file: &UprobeFile,
        rejected: &mut Rejected,
    ) -> Result<(), AttachError> {
        let mut parts: Vec<&[UprobeSite]> = file.sites.chunks(LINK_SITES).rev().collect();
        let mut refusals = 0;
        while let Some(sites) = parts.pop() {
            to.check()?;
            let offsets: Vec<u64> = sites.iter().map(|s| s.offset).collect();
            let cookies: Vec<u64> = sites.iter().map(|s| Uprobes::cookie(to, s)).collect();
            let semaphores: Vec<u64> = sites.iter().map(|s| Uprobes::semaphore(file, s)).collect();
            let has_semaphores = semaphores.iter().any(|s| *s != 0);
            let target = UprobeTarget {
                path: file.file.path(),
                offsets: &offsets,
                cookies: &cookies,
                semaphores: if has_semaphores { &semaphores } else { &[] },
                pid: file.pid(),
                is_return: self.at_return,
            };
            let link = match Link::uprobe_multi(&to.loaded.prog, &target).map_err(|e| named(e, file)) {
                Ok(link) => link,
                Err(e) if e.errno == errno::EINVAL && refusals < MAX_REFUSALS => {
                    if refusals == 0 {
                        // Each half has a link of its own, which [`Method::descriptors`] has not.
                        bpf_sys::raise_fd_limit_by(MAX_REFUSALS.min(file.sites.len()) as u64);
                    }
                    refusals += 1;
                    match sites {
                        [site] => rejected.push((site.probe.clone(), conflict(e))),
                        _ => {
                            let (first, second) = sites.split_at(sites.len() / 2);
                            parts.extend([second, first]);
                        }
                    }
                    continue;
                }
                Err(e) => return Err(conflict(e).into()),
            };
            let places = offsets.iter().copied().zip(semaphores.iter().copied());
            to.loaded.links.push(self.site_link(file, link, places));
        }
        Ok(())
    }

    fn attach_each(
        &self,
        to: &mut Attaching<'_>,
        file: &UprobeFile,
        rejected: &mut Rejected,
    ) -> Result<(), AttachError> {
        for site in &file.sites {
            let semaphore = Uprobes::semaphore(file, site);
            let event = u32::try_from(semaphore)
                .map_err(|_| SysError::new("count up a semaphore so far in the file", errno::EINVAL))
                .and_then(|at| {
                    PerfEvent::uprobe(file.file.path(), site.offset, at, self.at_return, file.pid())
                });
            let cookie = Uprobes::cookie(to, site);
            match event.and_then(|event| Link::perf_event(&to.loaded.prog, event, cookie)) {
                Ok(link) => {
                    let place = std::iter::once((site.offset, semaphore));
                    to.loaded.links.push(self.site_link(file, link, place));
                }
                Err(e) => rejected.push((site.probe.clone(), conflict(named(e, file)))),
            }
            to.step()?;
        }
        Ok(())
    }

    /// Attaches to the places in one file.
    fn attach_file(
        &self,
        to: &mut Attaching<'_>,
        file: &UprobeFile,
        rejected: &mut Rejected,
    ) -> Result<(), AttachError> {
        let before = (to.loaded.links.len(), rejected.len());
        let reject_all = |rejected: &mut Rejected, e: SysError| {
            rejected.truncate(before.1);
            rejected.extend(file.sites.iter().map(|site| (site.probe.clone(), e.clone())));
        };
        match self.multi {
            false => self.attach_each(to, file, rejected)?,
            true => match self.attach_all(to, file, rejected) {
                // The process has ended, or its file cannot be probed.
                Err(AttachError::System(e)) => {
                    to.loaded.links.truncate(before.0);
                    reject_all(rejected, e);
                }
                done => done?,
            },
        }
        // A number that is still the process's was no other's in between.
        if let Some(process) = file.process.as_ref().filter(|process| !process.is_current()) {
            to.loaded.links.truncate(before.0);
            let what = format!("attach to process {}, which has ended", process.pid());
            reject_all(rejected, SysError::new(what, errno::ESRCH));
        }
        Ok(())
    }
}

/// So many times the kernel may refuse places of a file, before all of them count as refused: to
/// find a place takes one try for each halving.
const MAX_REFUSALS: usize = 512;

/// What the kernel means where places are those of instructions: see [`super::semaphores`].
fn conflict(e: SysError) -> SysError {
    if e.errno != errno::EINVAL {
        return e;
    }
    e.or_hint(|| {
        Some("the place is traced already, by another tracer or an earlier probe, with another semaphore or without one, or the file was written since".into())
    })
}

/// An error that names the file as its process does.
fn named(mut e: SysError, file: &UprobeFile) -> SysError {
    let path = file.file.path.to_string_lossy();
    e.what = e.what.replace(&*path, &file.file.name);
    e
}

impl Method for Uprobes {
    fn program(&self) -> ProgramType {
        let attach = if self.multi { AttachType::UprobeMulti } else { AttachType::None };
        ProgramType::new(ProgKind::Kprobe, attach)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let mut rejected = Rejected::new();
        let before = to.loaded.links.len();
        for file in &self.files {
            to.check()?;
            self.attach_file(to, file, &mut rejected)?;
        }
        match rejected.pop() {
            // What has ended fires no more, which is no error.
            Some((_, e)) if to.loaded.links.len() == before && !is_gone(&e) => Err(e.into()),
            last => {
                rejected.extend(last);
                Ok(rejected)
            }
        }
    }

    fn expects_no(&self, why: &SysError) -> bool {
        !is_gone(why)
    }

    fn semaphores(&self, to: &mut Semaphores) {
        for UprobeFile { file, sites, .. } in &self.files {
            let mut has = sites.iter().filter(|site| site.semaphore != 0).peekable();
            if has.peek().is_none() {
                continue;
            }
            to.add(file.inode(), has.map(|site| (site.offset, site.semaphore)));
        }
    }

    fn has_cookies(&self) -> bool {
        true
    }

    fn functions(&self) -> Option<Functions> {
        let by = if self.multi { "uprobe_multi" } else { "uprobe" };
        Some(Functions { count: self.sites(), by })
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn descriptors(&self) -> usize {
        match self.multi {
            true => self.files.iter().map(|file| file.sites.len().div_ceil(LINK_SITES)).sum(),
            false => 2 * self.sites(),
        }
    }

    /// Attaching to a place takes the kernel less than 5 ms, and detaching about as long as from a
    /// function of its own. From the places of one link it detaches in 30 us each where nothing
    /// else runs, and in twice that where processes map the file meanwhile.
    fn release_us(&self) -> u64 {
        const MULTI_US: u64 = 60;
        let (_, detach) = FunctionMethod::Kprobe.cost_ms();
        let each = if self.multi { MULTI_US } else { 1000 * detach };
        each * self.sites() as u64
    }

    /// The kernel puts a new consumer of a place before the others.
    fn newest_runs_first(&self) -> bool {
        true
    }
}

/// True if an error says that the process or its mapping is gone.
fn is_gone(e: &SysError) -> bool {
    matches!(e.errno, errno::ESRCH | errno::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_file_are_on_as_many_links_as_hear_a_stop_in_between() {
        let probe = Arc::new(ProbeDesc::new("pid1", "a", "f", "entry"));
        let file = |count: usize| UprobeFile {
            file: Arc::new(HeldFile::at("a".into(), "a".into())),
            process: None,
            sites: (0..count as u32)
                .map(|index| UprobeSite { index, offset: 0, semaphore: 0, place: 0, probe: probe.clone() })
                .collect(),
        };
        let files = [0, 1, LINK_SITES, LINK_SITES + 1].map(file).into();
        let all = Uprobes { files, at_return: false, multi: true, again: false, notes: Vec::new() };
        assert_eq!(all.descriptors(), 1 + 1 + 2);
        assert_eq!(Uprobes { multi: false, ..all }.descriptors(), 2 * (2 + 2 * LINK_SITES));
    }

    #[test]
    fn a_file_is_known_by_its_inode_without_a_question_to_its_server() {
        use std::os::unix::fs::OpenOptionsExt;
        let dir = std::env::temp_dir().join(format!("dt-served-{}", std::process::id()));
        let fuse = match testing::fuse::Fuse::mount(&dir, vec![("file", vec![1; 8192])]) {
            Ok(fuse) => fuse,
            Err(why) => return testing::skipped!("{why}"),
        };
        let open = || {
            // linux/fcntl.h
            const O_PATH: i32 = 0o10_000_000;
            std::fs::File::options().read(true).custom_flags(O_PATH).open(dir.join("file")).unwrap()
        };
        let both = [open(), open()];
        fuse.stop_answering();
        let before = fuse.unanswered();
        let [one, other] = both.map(|file| Arc::new(HeldFile::of(file.into(), "f".into())));
        assert!(one.inode().is_some() && one.inode() == other.inode());
        let probe = Arc::new(ProbeDesc::new("app1", "a", "f", "hit"));
        let sites = vec![UprobeSite { index: 0, offset: 1 << 40, semaphore: 7, place: 0, probe }];
        let files = vec![UprobeFile { file: one, process: None, sites }];
        let all = Uprobes { files, at_return: false, multi: true, again: false, notes: Vec::new() };
        let held = Semaphores::of(std::iter::once(&all as &dyn Method));
        assert_eq!(semaphore_at(|| other.inode(), 1 << 40), 7);
        drop(held);
        assert_eq!((semaphore_at(|| other.inode(), 1 << 40), fuse.unanswered()), (0, before));
    }

    #[test]
    fn a_held_file_is_the_same_after_another_has_its_path() {
        let path = std::env::temp_dir().join(format!("dt-held-{}", std::process::id()));
        std::fs::write(&path, "first").unwrap();
        let held = HeldFile::of(std::fs::File::open(&path).unwrap().into(), "f".into());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(std::fs::read(held.path()).unwrap(), b"first");
        std::fs::remove_file(&path).unwrap();
    }
}
