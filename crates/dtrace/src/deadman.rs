//! The session's side of the deadman ([`plane::deadman`]): signs of life, and what is made of an alarm.
//!
//! The heartbeats in the kernel stop a session when its consumer cannot. When it can, and they say that they or it were
//! late, or it finds its own work late, it asks the kernel for a moment how much of the CPUs its programs take; that costs every
//! program of the machine something, so it is not asked before. Its own lateness is no alarm by itself: it may have waited for a
//! reader. And a large share is none either, for where every function is traced that is what a busy machine does with most of its
//! time, and it answers.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bpf::sys::{Mmap, enable_run_stats};
use plane::control::Control;
use plane::deadman::{Limits, Reason};

use crate::options::Options;

/// The limits in force; `None` where nothing is to be watched.
pub(crate) fn limits(options: &Options) -> Option<Limits> {
    let limits = Limits {
        interval: options.number("deadmaninterval"),
        late: options.number("deadmantimeout"),
        silent: options.number("deadmanuser"),
    };
    (!limits.is_off()).then_some(limits)
}

/// A thread that counts up the word of life, and does nothing else: that it does not is the sign that nobody can work.
/// A consumer that waits for a reader of its output lives.
pub(crate) struct Life {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    /// Starts it, with a mapping of the control page of its own.
    pub(crate) fn start(control: Mmap, every: Duration) -> std::io::Result<Life> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let body = move || {
            while !ends.load(Ordering::Acquire) {
                if let Some(control) = Control::new(control.words()) {
                    control.live();
                }
                std::thread::park_timeout(every);
            }
        };
        // A stack of what the loop needs.
        let thread = std::thread::Builder::new().name("life".into()).stack_size(64 << 10).spawn(body)?;
        Ok(Life { over, thread: Some(thread) })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Which limit a session has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A CPU served no clock for longer than this, and the tracer was silent.
    Late(Duration),
    /// The tracer got no time for longer than this.
    Silent(Duration),
    /// Its programs took so many percent of the CPUs.
    Share(u64),
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alarm::Late(limit) => write!(f, "a CPU served no clock for more than {limit:?} (deadmantimeout)"),
            Alarm::Silent(limit) => write!(f, "the tracer got no time for more than {limit:?} (deadmanuser)"),
            Alarm::Share(percent) => {
                write!(f, "the programs of this session took {percent}% of the CPUs (deadmanshare)")
            }
        }
    }
}

/// A short time in which the kernel counts what programs take.
struct Window {
    _statistics: OwnedFd,
    since: Instant,
    taken: u64,
}

/// How long it is, at least.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// What the session watches.
pub(crate) struct Watch {
    limits: Limits,
    /// Percent of all CPUs.
    share: u64,
    window: Option<Window>,
}

impl Watch {
    pub(crate) fn new(options: &Options) -> Option<Watch> {
        Some(Watch { limits: limits(options)?, share: options.number("deadmanshare"), window: None })
    }

    /// What a heartbeat's alarm means.
    pub(crate) fn alarm(&self, reason: Reason) -> Alarm {
        match reason {
            Reason::Late => Alarm::Late(Duration::from_nanos(self.limits.late)),
            Reason::Silent => Alarm::Silent(Duration::from_nanos(self.limits.silent)),
        }
    }

    /// Whether it is measuring now.
    pub(crate) fn is_measuring(&self) -> bool {
        self.window.is_some()
    }

    /// True when the greatest lateness and silence that heartbeats saw are worth a measurement: a third of a limit, and
    /// more than the beats themselves make; or when the session is as late with its own work as a heartbeat may be.
    fn lags(&self, (late, silent): (u64, u64), behind: Duration) -> bool {
        if self.limits.late != 0 && behind >= Duration::from_nanos(self.limits.late) {
            return true;
        }
        let beyond = |lag: u64, limit: u64| limit != 0 && lag >= (limit / 3).max(2 * self.limits.interval);
        beyond(late, self.limits.late) || beyond(silent, self.limits.silent)
    }

    /// Looks at what heartbeats saw since the last time, how late the session comes to look, and at what its programs have
    /// `taken` on so many CPUs; the alarm, when a measurement is over and they took too much.
    pub(crate) fn look(
        &mut self,
        lag: (u64, u64),
        behind: Duration,
        cpus: usize,
        taken: impl FnOnce() -> u64,
    ) -> Option<Alarm> {
        match self.window.take() {
            Some(window) if window.since.elapsed() >= WINDOW => {
                let (time, took) = (window.since.elapsed(), taken().saturating_sub(window.taken));
                let percent = share(took, time, cpus);
                (percent >= self.share).then_some(Alarm::Share(percent))
            }
            Some(window) => {
                self.window = Some(window);
                None
            }
            None => {
                if self.share != 0 && self.lags(lag, behind) {
                    // Who may not count goes without.
                    self.window = enable_run_stats().ok().map(|statistics| Window {
                        _statistics: statistics,
                        since: Instant::now(),
                        taken: taken(),
                    });
                }
                None
            }
        }
    }
}

/// Percent of the time of so many CPUs.
fn share(took: u64, time: Duration, cpus: usize) -> u64 {
    let all = time.as_nanos().max(1) * cpus.max(1) as u128;
    u64::try_from(u128::from(took) * 100 / all).unwrap_or(u64::MAX).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn watch() -> Watch {
        let limits = Limits { interval: S, late: 10 * S, silent: 30 * S };
        Watch { limits, share: 80, window: None }
    }

    #[test]
    fn lag_is_what_no_beat_makes_by_itself() {
        let watch = watch();
        let seconds = Duration::from_secs;
        let none = Duration::ZERO;
        assert!(!watch.lags((3 * S, 9 * S), seconds(9)));
        assert!(watch.lags((4 * S, 0), none));
        assert!(watch.lags((0, 10 * S), none));
        assert!(watch.lags((0, 0), seconds(10)));
        let tight = Watch { limits: Limits { late: S, ..watch.limits }, ..watch };
        assert!(!tight.lags((S, 0), none) && tight.lags((2 * S, 0), none));
        let watch = self::watch();
        let off = Watch { limits: Limits { late: 0, ..watch.limits }, ..watch };
        assert!(!off.lags((100 * S, 0), seconds(100)));
    }

    #[test]
    fn a_share_is_of_all_cpus() {
        let second = Duration::from_secs(1);
        assert_eq!(share(S, second, 2), 50);
        assert_eq!(share(2 * S, second, 2), 100);
        assert_eq!(share(0, second, 2), 0);
        // Programs that interrupt each other are counted twice.
        assert_eq!(share(9 * S, second, 2), 100);
        assert_eq!(share(u64::MAX, Duration::ZERO, 0), 100);
    }

    #[test]
    fn without_lag_nothing_is_asked() {
        let mut watch = watch();
        assert_eq!(watch.look((0, 0), Duration::ZERO, 2, || panic!("asked")), None);
        assert!(!watch.is_measuring());
    }

    #[test]
    fn a_life_is_seen_and_ends() {
        let Ok(map) = bpf::sys::Map::create(&bpf::sys::MapSpec::mmapable("life", 4096, 1)) else {
            println!("skipped: a_life_is_seen_and_ends: no map");
            return;
        };
        let life = Life::start(map.mmap(true).unwrap(), Duration::from_micros(100)).unwrap();
        let seen = map.mmap(false).unwrap();
        let lives = || seen.words()[plane::control::LIFE as usize / 8].load(Ordering::Relaxed);
        while lives() < 3 {
            std::thread::yield_now();
        }
        drop(life);
        let after = lives();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(lives(), after);
    }
}
