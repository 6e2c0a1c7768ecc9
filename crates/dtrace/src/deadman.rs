//! The session's side of the deadman ([`plane::deadman`]): signs of life, and what is made of an
//! alarm.
//!
//! The heartbeats in the kernel stop a session when its consumer cannot. When it can, and they say
//! that they or it were late, or it finds its own work late, it asks the kernel for a moment how
//! much of the CPUs its programs take; that costs every program of the machine something, so it is
//! not asked before. Its own lateness is no alarm by itself: it may have waited for a reader. And a
//! large share is none either, for where every function is traced that is what a busy machine does
//! with most of its time, and it answers. But the user is told of it ([`Overload`]): within
//! seconds, once a minute at most. For that the same measurement is made when the kernel suppresses
//! many firings, or the session is half a second late.

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

/// A thread that counts up the word of life, and does nothing else: that it does not is the sign
/// that nobody can work. A consumer that waits for a reader of its output lives.
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

/// The probes of a session take much of the machine's time. That is no alarm, for the machine still
/// answers, but the user wants to know it while the session runs: what is measured is then a
/// measurement of the tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Percent of the CPUs' time that programs of the session take, at least: what the kernel does
    /// to call them is not counted.
    pub percent: u64,
    /// Firings that the kernel suppressed since the start, at most.
    pub suppressed: u64,
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the probes of this session take {}% of the CPUs' time or more", self.percent)?;
        match self.suppressed {
            0 => {}
            1 => write!(f, "; 1 firing was suppressed until now")?,
            n => write!(f, "; up to {n} firings were suppressed until now")?,
        }
        f.write_str(": enable fewer probes, or let their clauses do less")
    }
}

/// From so many percent on the user is told.
const MUCH: u64 = 50;

/// The user is told again after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// Where it was not much, it is measured again after so long.
const SOON: Duration = Duration::from_secs(5);

/// So many firings suppressed between two looks are worth a measurement.
const SUPPRESSED: u64 = 500;

/// So is a session that comes so late to its work.
const BEHIND: Duration = Duration::from_millis(500);

/// A short time in which the kernel counts what programs take.
struct Window {
    _statistics: OwnedFd,
    since: Instant,
    taken: u64,
    /// The session or its heartbeats were late: a large share is an alarm.
    alarms: bool,
}

/// What a session sees of itself when it looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    /// The greatest lateness and silence that heartbeats saw since the last time.
    pub(crate) lag: (u64, u64),
    /// How late the session comes to look.
    pub(crate) behind: Duration,
    /// Firings that the kernel suppressed since the last time.
    pub(crate) suppressed: u64,
}

/// What a measurement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The session is to be stopped.
    Alarm(Alarm),
    /// The user is to be told: percent of the CPUs' time.
    Much(u64),
}

/// How long it is, at least.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// What the session watches.
pub(crate) struct Watch {
    limits: Limits,
    /// Percent of all CPUs.
    share: u64,
    window: Option<Window>,
    /// Until then nobody asks how much time is taken, only to tell it.
    quiet: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(options: &Options) -> Option<Watch> {
        Some(Watch {
            limits: limits(options)?,
            share: options.number("deadmanshare"),
            window: None,
            quiet: None,
        })
    }

    /// What a heartbeat's alarm means.
    pub(crate) fn alarm(&self, reason: Reason) -> Alarm {
        match reason {
            Reason::Late => Alarm::Late(Duration::from_nanos(self.limits.late)),
            Reason::Silent => Alarm::Silent(Duration::from_nanos(self.limits.silent)),
        }
    }

    /// Ends a measurement: while the kernel counts, each run of a program costs more, also where the
    /// program does nothing any more.
    pub(crate) fn stop_measuring(&mut self) {
        self.window = None;
    }

    /// Whether it is measuring now.
    pub(crate) fn is_measuring(&self) -> bool {
        self.window.is_some()
    }

    /// True when the greatest lateness and silence that heartbeats saw are worth a measurement: a
    /// third of a limit, and more than the beats themselves make; or when the session is as late
    /// with its own work as a heartbeat may be.
    fn lags(&self, (late, silent): (u64, u64), behind: Duration) -> bool {
        if self.limits.late != 0 && behind >= Duration::from_nanos(self.limits.late) {
            return true;
        }
        let beyond = |lag: u64, limit: u64| limit != 0 && lag >= (limit / 3).max(2 * self.limits.interval);
        beyond(late, self.limits.late) || beyond(silent, self.limits.silent)
    }

    /// Looks at the signs of an overload, and at what the programs of the session have `taken` on
    /// so many CPUs; what there is to do about it when a measurement is over and they took too
    /// much.
    pub(crate) fn look(&mut self, signs: Signs, cpus: usize, taken: impl FnOnce() -> u64) -> Option<Finding> {
        match self.window.take() {
            Some(window) if window.since.elapsed() >= WINDOW => {
                let (time, took) = (window.since.elapsed(), taken().saturating_sub(window.taken));
                self.judge(share(took, time, cpus), window.alarms, Instant::now())
            }
            Some(window) => {
                self.window = Some(window);
                None
            }
            None => {
                let alarms = self.share != 0 && self.lags(signs.lag, signs.behind);
                let asks = signs.suppressed >= SUPPRESSED || signs.behind >= BEHIND;
                if alarms || asks && self.may_tell(Instant::now()) {
                    // Who may not count goes without.
                    self.window = enable_run_stats().ok().map(|statistics| Window {
                        _statistics: statistics,
                        since: Instant::now(),
                        taken: taken(),
                        alarms,
                    });
                }
                None
            }
        }
    }

    fn may_tell(&self, now: Instant) -> bool {
        self.quiet.is_none_or(|until| now >= until)
    }

    /// What so many percent mean.
    fn judge(&mut self, percent: u64, alarms: bool, now: Instant) -> Option<Finding> {
        if alarms && percent >= self.share {
            return Some(Finding::Alarm(Alarm::Share(percent)));
        }
        if !self.may_tell(now) {
            return None;
        }
        // What asked for this measurement shall not ask for one each second.
        self.quiet = Some(now + if percent >= MUCH { AGAIN } else { SOON });
        (percent >= MUCH).then_some(Finding::Much(percent))
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
        Watch { limits, share: 80, window: None, quiet: None }
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
    fn much_time_is_told_once_a_minute_and_is_an_alarm_only_after_lag() {
        let (mut watch, now) = (watch(), Instant::now());
        assert_eq!(watch.judge(90, false, now), Some(Finding::Much(90)));
        assert_eq!(watch.judge(90, false, now + AGAIN / 2), None);
        assert_eq!(watch.judge(90, true, now + AGAIN / 2), Some(Finding::Alarm(Alarm::Share(90))));
        assert_eq!(watch.judge(60, true, now + AGAIN), Some(Finding::Much(60)));
        assert_eq!(watch.judge(MUCH - 1, false, now + 2 * AGAIN), None);
        assert_eq!(watch.judge(MUCH, false, now + 2 * AGAIN + SOON), Some(Finding::Much(MUCH)));
        let said = Overload { percent: 61, suppressed: 7915 }.to_string();
        assert!(said.contains(" 61% ") && said.contains("up to 7915 firings were suppressed"), "{said}");
    }

    #[test]
    fn without_lag_nothing_is_asked() {
        let mut watch = watch();
        let signs = Signs { suppressed: SUPPRESSED - 1, ..Signs::default() };
        assert_eq!(watch.look(signs, 2, || panic!("asked")), None);
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
