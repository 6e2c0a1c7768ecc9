//! Places in the files of processes: all of a file by one link, or each by itself.
//!
//! The kernel is given a path and the number of a process, and both may have another meaning than when the places were found: what
//! was at a path is replaced, a process maps something else at an address, a number goes to another process. So the file is held
//! by a descriptor ([`HeldFile`]), and after attaching it is made sure that the number still was the process's ([`HeldProcess`]).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use bpf_sys::{AttachType, Link, PerfEvent, ProgKind, SysError, UprobeTarget, errno};
use files::open::ProcessDir;
use probes::ProbeDesc;

use super::{AttachError, Attaching, FunctionMethod, Functions, Method, ProgramType, Rejected};

/// A place of a probe in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UprobeSite {
    /// The index of its probe.
    pub index: u32,
    /// Where in the file.
    pub offset: u64,
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
    _fd: Option<OwnedFd>,
    name: Arc<str>,
}

impl HeldFile {
    /// The file of a descriptor, which may be `O_PATH`. The name is for messages.
    pub fn of(fd: OwnedFd, name: Arc<str>) -> HeldFile {
        HeldFile { path: format!("/proc/self/fd/{}", fd.as_raw_fd()).into(), _fd: Some(fd), name }
    }

    /// The file at a path, where there is no descriptor of it.
    pub fn at(path: OsString, name: Arc<str>) -> HeldFile {
        HeldFile { path, _fd: None, name }
    }

    /// A path to the file in this process.
    pub fn path(&self) -> &OsStr {
        &self.path
    }
}

/// A process whose files were read.
#[derive(Debug)]
pub struct HeldProcess {
    pid: u32,
    dir: ProcessDir,
}

impl HeldProcess {
    /// The process that has this number now.
    pub fn open(pid: u32) -> io::Result<HeldProcess> {
        Ok(HeldProcess { pid, dir: ProcessDir::open(pid)? })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True if the number is still this process's: it runs, or nobody has waited for it.
    pub fn is_current(&self) -> bool {
        self.dir.read("comm", 1).is_ok()
    }

    /// The process that it is a thread of, if the number is a thread's.
    pub fn thread_of(&self) -> Option<u32> {
        const SIZE: u64 = 1 << 16;
        let status = self.dir.read("status", SIZE).ok()?;
        let status = String::from_utf8_lossy(&status);
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        (group != self.pid).then_some(group)
    }
}

/// Places in one file, in one process.
#[derive(Clone, Debug)]
pub struct UprobeFile {
    /// The file.
    pub file: Arc<HeldFile>,
    /// The process.
    pub process: Arc<HeldProcess>,
    /// The places.
    pub sites: Vec<UprobeSite>,
}

/// A program at places in files.
#[derive(Clone, Debug)]
pub struct Uprobes {
    /// The files.
    pub files: Vec<UprobeFile>,
    /// Runs when the functions that begin at the places return.
    pub at_return: bool,
    /// The kernel attaches to all places of a file by one link.
    pub multi: bool,
    /// What is reported with the number of places.
    pub notes: Vec<String>,
}

impl Uprobes {
    fn sites(&self) -> usize {
        self.files.iter().map(|file| file.sites.len()).sum()
    }

    fn cookie(to: &Attaching<'_>, site: &UprobeSite) -> u64 {
        (to.cookie)(site.index) | u64::from(site.place) << 32
    }

    fn attach_all(&self, to: &mut Attaching<'_>, file: &UprobeFile) -> Result<(), SysError> {
        // As many as the kernel takes in one link.
        const MOST: usize = 1 << 20;
        for sites in file.sites.chunks(MOST) {
            let offsets: Vec<u64> = sites.iter().map(|s| s.offset).collect();
            let cookies: Vec<u64> = sites.iter().map(|s| Uprobes::cookie(to, s)).collect();
            let target = UprobeTarget {
                path: file.file.path(),
                offsets: &offsets,
                cookies: &cookies,
                semaphores: &[],
                pid: Some(file.process.pid),
                is_return: self.at_return,
            };
            let link = Link::uprobe_multi(&to.loaded.prog, &target);
            to.loaded.links.push(link.map_err(|e| named(e, file))?.into());
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
            let (path, pid) = (file.file.path(), file.process.pid);
            let event = PerfEvent::uprobe(path, site.offset, 0, self.at_return, Some(pid));
            let cookie = Uprobes::cookie(to, site);
            match event.and_then(|event| Link::perf_event(&to.loaded.prog, event, cookie)) {
                Ok(link) => to.loaded.links.push(link.into()),
                Err(e) => rejected.push((site.probe.clone(), named(e, file))),
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
        if !self.multi {
            self.attach_each(to, file, rejected)?;
        } else if let Err(e) = self.attach_all(to, file) {
            // The process has ended, or its file cannot be probed.
            reject_all(rejected, e);
        }
        // A number that is still the process's was no other's in between.
        if !file.process.is_current() {
            to.loaded.links.truncate(before.0);
            let what = format!("attach to process {}, which has ended", file.process.pid);
            reject_all(rejected, SysError::new(what, errno::ESRCH));
        }
        Ok(())
    }
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

    fn functions(&self) -> Option<Functions> {
        let by = if self.multi { "uprobe_multi" } else { "uprobe" };
        Some(Functions { count: self.sites(), by })
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn descriptors(&self) -> usize {
        if self.multi { self.files.len() } else { 2 * self.sites() }
    }

    /// Attaching to a place takes the kernel less than 5 ms, and detaching about as long as from a function of its own.
    fn release_us(&self) -> u64 {
        let (_, detach) = FunctionMethod::Kprobe.cost_ms();
        if self.multi { 0 } else { 1000 * detach * self.sites() as u64 }
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
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_number_that_was_given_back_is_no_process_any_more() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let held = HeldProcess::open(child.id()).unwrap();
        assert!(held.is_current() && held.thread_of().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.is_current());
        assert!(HeldProcess::open(child.id()).is_err());
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        let (id, end) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            id.0.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            let _ = end.1.recv();
        });
        let path = id.1.recv().unwrap();
        let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(HeldProcess::open(number).unwrap().thread_of(), Some(std::process::id()));
        drop(end.0);
        thread.join().unwrap();
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
