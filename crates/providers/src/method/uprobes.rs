//! Places in the files of processes: all of a file by one link, or each by itself.

use std::ffi::OsString;
use std::sync::Arc;

use bpf_sys::{AttachType, Link, PerfEvent, ProgKind, SysError, UprobeTarget, errno};
use probes::ProbeDesc;

use super::{AttachError, Attaching, Functions, Method, ProgramType, Rejected};

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

/// Places in one file, in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UprobeFile {
    /// A path to the file.
    pub path: OsString,
    /// The process.
    pub pid: u32,
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
        let offsets: Vec<u64> = file.sites.iter().map(|s| s.offset).collect();
        let cookies: Vec<u64> = file.sites.iter().map(|s| Uprobes::cookie(to, s)).collect();
        let target = UprobeTarget {
            path: &file.path,
            offsets: &offsets,
            cookies: &cookies,
            semaphores: &[],
            pid: Some(file.pid),
            is_return: self.at_return,
        };
        to.loaded.links.push(Link::uprobe_multi(&to.loaded.prog, &target)?.into());
        Ok(())
    }

    fn attach_each(
        &self,
        to: &mut Attaching<'_>,
        file: &UprobeFile,
        rejected: &mut Rejected,
    ) -> Result<(), AttachError> {
        for site in &file.sites {
            let event = PerfEvent::uprobe(&file.path, site.offset, 0, self.at_return, Some(file.pid));
            let cookie = Uprobes::cookie(to, site);
            match event.and_then(|event| Link::perf_event(&to.loaded.prog, event, cookie)) {
                Ok(link) => to.loaded.links.push(link.into()),
                Err(e) => rejected.push((site.probe.clone(), e)),
            }
            to.step()?;
        }
        Ok(())
    }
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
            if !self.multi {
                self.attach_each(to, file, &mut rejected)?;
            } else if let Err(e) = self.attach_all(to, file) {
                // The process has ended, or its file cannot be probed.
                rejected.extend(file.sites.iter().map(|site| (site.probe.clone(), e.clone())));
            }
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

    /// Each place by itself takes the kernel about this long, also to leave.
    fn release_us(&self) -> u64 {
        const EACH: u64 = 1000;
        if self.multi { 0 } else { EACH * self.sites() as u64 }
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
