//! Perf events: clocks and counters of CPUs, and events with a record.

use bpf_sys::errno;
use bpf_sys::{AttachType, Counter, Link, PerfEvent, ProgKind, SysError};

use super::{AttachError, Attaching, Cpus, Method, ProgramType, Rejected, Schedule, SiteLink, SlowRelease};

/// A clock or another perf counter, one event on each of these CPUs.
#[derive(Clone, Debug)]
pub struct Clock {
    /// What is counted.
    pub event: Counter,
    /// How much is counted between two runs of the program. A clock counts nanoseconds.
    pub period: u64,
    /// The CPUs.
    pub cpus: Vec<u32>,
    /// Nanoseconds between two firings of its probe, if they are known: missing firings are then
    /// reported. A multiple of the period if the program runs several times for a firing.
    pub due: Option<u64>,
    /// Fires on one CPU, and moves to another when that CPU goes offline. Else it also fires on
    /// CPUs that come online.
    pub single: bool,
    /// It is no error if the kernel rejects it.
    pub optional: bool,
}

impl Clock {
    /// Starts the clock of a CPU. It is no error if the CPU is offline: [`Method::follow`] starts
    /// it later.
    fn start(&self, to: &mut Attaching<'_>, cpu: u32) -> Result<(), SysError> {
        let event = PerfEvent::counter(&self.event, cpu, self.period);
        match event.and_then(|event| Link::perf_event(&to.loaded.prog, event, (to.cookie)(0))) {
            Ok(link) => {
                to.observer.started(cpu, &link);
                to.loaded.links.push(SiteLink { cpu: Some(cpu), ..link.into() });
                Ok(())
            }
            Err(e) if self.optional || e.errno == errno::ENODEV => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl Method for Clock {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::PerfEvent, AttachType::None)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        for cpu in &self.cpus {
            self.start(to, *cpu)?;
        }
        Ok(Rejected::new())
    }

    fn follow(&self, to: &mut Attaching<'_>, cpus: Cpus<'_>) -> Result<(), AttachError> {
        to.loaded.links.retain(|l| l.cpu.is_none_or(|cpu| cpus.online.contains(&cpu)));
        for cpu in cpus.online.iter().filter(|c| cpus.only.is_none_or(|only| only == **c)) {
            let mut links = to.loaded.links.iter();
            if links.any(|l| self.single || l.cpu == Some(*cpu)) {
                continue;
            }
            self.start(to, *cpu)?;
        }
        Ok(())
    }

    fn follows_cpus(&self) -> bool {
        true
    }

    fn descriptors(&self) -> usize {
        2 * self.cpus.len()
    }

    fn schedule(&self) -> Option<Schedule> {
        self.due.map(|period| Schedule { period, interval: self.period })
    }

    fn only_interrupts(&self) -> bool {
        true
    }

    fn can_overload(&self) -> bool {
        !self.single
    }
}

/// An event, by a perf event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The kernel's number of the event.
    pub id: u64,
}

impl Method for Event {
    fn program(&self) -> ProgramType {
        ProgramType::new(ProgKind::Tracepoint, AttachType::None)
    }

    fn attach(&self, to: &mut Attaching<'_>) -> Result<Rejected, AttachError> {
        let event = PerfEvent::tracepoint(self.id)?;
        to.loaded.links.push(Link::perf_event(&to.loaded.prog, event, (to.cookie)(0))?.into());
        Ok(Rejected::new())
    }

    fn has_cookies(&self) -> bool {
        true
    }

    fn descriptors(&self) -> usize {
        2
    }

    fn release_us(&self) -> u64 {
        75_000
    }

    fn slow_release(&self) -> Option<SlowRelease> {
        Some(SlowRelease {
            one: "event by perf",
            many: "events by perf",
            purpose: "for the fields of their records",
        })
    }
}
