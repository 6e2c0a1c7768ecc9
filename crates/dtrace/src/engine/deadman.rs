//! The session's part of the deadman ([`plane::deadman`]): the liveness thread, alarms, and the
//! measurement of an overload.
//!
//! The heartbeats in the kernel stop a session whose consumer gets no CPU. A session that runs
//! measures for a short time what share of the CPUs its programs take, if heartbeats report that
//! they or the liveness thread were late, or if its own work is late. It does not measure without
//! such a sign, because measuring slows every BPF program of the machine. Lateness alone is no
//! alarm: the session may have waited for a reader of its output. A large share alone is no alarm
//! either: a busy machine whose functions are all traced spends most of its time in probes, and
//! still responds. But a large share is reported to the user ([`Overload`]) within seconds, at most
//! once a minute. For that report the session also measures when the kernel suppresses many
//! firings, or when the session is half a second late.

use std::fmt;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bpf_sys::{KernelFd, Mmap, enable_run_stats};
use plane::control::Control;
use plane::deadman::{Limits, Reason};

use crate::options::{Options, nanoseconds};

/// The limits of the options; `None` if the deadman is off.
pub(crate) fn limits(options: &Options) -> Option<Limits> {
    let limits = Limits {
        interval: nanoseconds(options.deadmaninterval),
        late: nanoseconds(options.deadmantimeout),
        silent: nanoseconds(options.deadmanuser),
    };
    (!limits.is_off()).then_some(limits)
}

/// A thread that increments the liveness counter and does nothing else. If the counter does not
/// change, the process gets no CPU. A consumer that waits for a reader of its output is alive.
pub(crate) struct LivenessThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LivenessThread {
    /// Starts the thread, which has its own mapping of the control page.
    pub(crate) fn start(control: Mmap, every: Duration) -> std::io::Result<LivenessThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            while !stopped.load(Ordering::Acquire) {
                if let Some(control) = Control::new(control.words()) {
                    control.live();
                }
                std::thread::park_timeout(every);
            }
        };
        // The loop needs little stack.
        let thread = threads::spawn("liveness", threads::SMALL_STACK, body)?;
        Ok(LivenessThread { stop, thread: Some(thread) })
    }
}

impl Drop for LivenessThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The limit that a session has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The heartbeat of a CPU was later than this, and the tracer got no CPU.
    Late(Duration),
    /// The tracer got no CPU for longer than this.
    Silent(Duration),
    /// The programs of the session took this percentage of the CPUs.
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

/// The probes of a session take a large share of the CPUs' time. That is no alarm, because the
/// machine still responds. It is reported while the session runs, because the overhead of tracing
/// then distorts the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overload {
    /// The percentage of the CPUs' time that programs of the session take. This is a lower bound:
    /// the kernel's work to call them is not counted.
    pub percent: u64,
    /// An upper bound of the firings that the kernel suppressed since the start.
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

/// The least percentage that is reported to the user.
const HIGH_SHARE: u64 = 25;

/// The interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The interval until the next measurement after a lower percentage.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// A measurement starts after this number of suppressed firings in one interval of `statusrate`.
const MANY_SUPPRESSED: u64 = 500;

/// A measurement starts if the session's work is this late.
const LATE: Duration = Duration::from_millis(500);

/// A measurement: the kernel counts the run time of programs.
struct Window {
    _statistics: KernelFd,
    since: Instant,
    taken: u64,
    /// The session or its heartbeats were late, so a large share is an alarm.
    alarms: bool,
}

/// Signs of an overload since the last update.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverloadSigns {
    /// The greatest lateness of heartbeats, and the longest time without a sign of the liveness
    /// thread.
    pub(crate) lag: (u64, u64),
    /// How late the session's work is.
    pub(crate) lateness: Duration,
    /// Firings that the kernel suppressed.
    pub(crate) suppressed: u64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The session must be stopped.
    Alarm(Alarm),
    /// The percentage of the CPUs' time, which is reported to the user.
    HighShare(u64),
}

/// The least length of a measurement.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// Decides when to measure the share of the CPUs, and what the result means.
pub(crate) struct OverloadMonitor {
    limits: Limits,
    /// The greatest allowed percentage of all CPUs, `deadmanshare`.
    share: u64,
    window: Option<Window>,
    /// Until this time, no measurement is made for a report.
    quiet_until: Option<Instant>,
}

impl OverloadMonitor {
    pub(crate) fn new(options: &Options) -> Option<OverloadMonitor> {
        Some(OverloadMonitor {
            limits: limits(options)?,
            share: options.deadmanshare,
            window: None,
            quiet_until: None,
        })
    }

    /// The alarm for a heartbeat's reason.
    pub(crate) fn alarm(&self, reason: Reason) -> Alarm {
        match reason {
            Reason::Late => Alarm::Late(Duration::from_nanos(self.limits.late)),
            Reason::Silent => Alarm::Silent(Duration::from_nanos(self.limits.silent)),
        }
    }

    /// Ends a measurement. While the kernel counts, each run of a program costs more, even if the
    /// program does nothing.
    pub(crate) fn stop_measuring(&mut self) {
        self.window = None;
    }

    /// True during a measurement.
    pub(crate) fn is_measuring(&self) -> bool {
        self.window.is_some()
    }

    /// True if the lag that heartbeats report requires a measurement: a third of a limit, and more
    /// than the interval of heartbeats explains. Also true if the session's work is as late as a
    /// heartbeat may be.
    fn lags(&self, (late, silent): (u64, u64), lateness: Duration) -> bool {
        if self.limits.late != 0 && lateness >= Duration::from_nanos(self.limits.late) {
            return true;
        }
        let beyond = |lag: u64, limit: u64| limit != 0 && lag >= (limit / 3).max(2 * self.limits.interval);
        beyond(late, self.limits.late) || beyond(silent, self.limits.silent)
    }

    /// Starts a measurement if there are signs of an overload, or ends one. `taken` is the run time
    /// of the session's programs on all CPUs. Returns the result of a measurement if it requires an
    /// action.
    pub(crate) fn update(
        &mut self,
        signs: OverloadSigns,
        cpus: usize,
        taken: impl FnOnce() -> u64,
    ) -> Option<Finding> {
        match self.window.take() {
            Some(window) if window.since.elapsed() >= WINDOW => {
                let (time, took) = (window.since.elapsed(), taken().saturating_sub(window.taken));
                self.evaluate(share(took, time, cpus), window.alarms, Instant::now())
            }
            Some(window) => {
                self.window = Some(window);
                None
            }
            None => {
                let alarms = self.share != 0 && self.lags(signs.lag, signs.lateness);
                let reports = signs.suppressed >= MANY_SUPPRESSED || signs.lateness >= LATE;
                if alarms || reports && self.may_report(Instant::now()) {
                    // Without the privilege to count, there is no measurement.
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

    fn may_report(&self, now: Instant) -> bool {
        self.quiet_until.is_none_or(|until| now >= until)
    }

    /// The finding for a measured percentage.
    fn evaluate(&mut self, percent: u64, alarms: bool, now: Instant) -> Option<Finding> {
        if alarms && percent >= self.share {
            return Some(Finding::Alarm(Alarm::Share(percent)));
        }
        if !self.may_report(now) {
            return None;
        }
        // The same signs must not start a measurement each second.
        let wait = if percent >= HIGH_SHARE { REPORT_INTERVAL } else { MEASURE_INTERVAL };
        self.quiet_until = Some(now + wait);
        (percent >= HIGH_SHARE).then_some(Finding::HighShare(percent))
    }
}

/// The percentage of the time of all CPUs.
fn share(took: u64, time: Duration, cpus: usize) -> u64 {
    let all = time.as_nanos().max(1) * cpus.max(1) as u128;
    u64::try_from(u128::from(took) * 100 / all).unwrap_or(u64::MAX).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn monitor() -> OverloadMonitor {
        let limits = Limits { interval: S, late: 10 * S, silent: 30 * S };
        OverloadMonitor { limits, share: 80, window: None, quiet_until: None }
    }

    #[test]
    fn lag_beyond_the_heartbeat_interval_and_a_third_of_the_limit_starts_a_measurement() {
        let monitor = monitor();
        let seconds = Duration::from_secs;
        let none = Duration::ZERO;
        assert!(!monitor.lags((3 * S, 9 * S), seconds(9)));
        assert!(monitor.lags((4 * S, 0), none));
        assert!(monitor.lags((0, 10 * S), none));
        assert!(monitor.lags((0, 0), seconds(10)));
        let tight = OverloadMonitor { limits: Limits { late: S, ..monitor.limits }, ..monitor };
        assert!(!tight.lags((S, 0), none) && tight.lags((2 * S, 0), none));
        let monitor = self::monitor();
        let off = OverloadMonitor { limits: Limits { late: 0, ..monitor.limits }, ..monitor };
        assert!(!off.lags((100 * S, 0), seconds(100)));
    }

    #[test]
    fn the_share_is_a_percentage_of_all_cpus() {
        let second = Duration::from_secs(1);
        assert_eq!(share(S, second, 2), 50);
        assert_eq!(share(2 * S, second, 2), 100);
        assert_eq!(share(0, second, 2), 0);
        // Programs that interrupt each other are counted twice.
        assert_eq!(share(9 * S, second, 2), 100);
        assert_eq!(share(u64::MAX, Duration::ZERO, 0), 100);
    }

    #[test]
    fn a_large_share_is_reported_once_a_minute_and_is_an_alarm_only_after_lag() {
        let (mut monitor, now) = (monitor(), Instant::now());
        assert_eq!(monitor.evaluate(90, false, now), Some(Finding::HighShare(90)));
        assert_eq!(monitor.evaluate(90, false, now + REPORT_INTERVAL / 2), None);
        assert_eq!(
            monitor.evaluate(90, true, now + REPORT_INTERVAL / 2),
            Some(Finding::Alarm(Alarm::Share(90)))
        );
        assert_eq!(monitor.evaluate(60, true, now + REPORT_INTERVAL), Some(Finding::HighShare(60)));
        assert_eq!(monitor.evaluate(HIGH_SHARE - 1, false, now + 2 * REPORT_INTERVAL), None);
        assert_eq!(
            monitor.evaluate(HIGH_SHARE, false, now + 2 * REPORT_INTERVAL + MEASURE_INTERVAL),
            Some(Finding::HighShare(HIGH_SHARE))
        );
        let text = Overload { percent: 61, suppressed: 7915 }.to_string();
        assert!(text.contains(" 61% ") && text.contains("up to 7915 firings were suppressed"), "{text}");
    }

    #[test]
    fn nothing_is_measured_without_lag() {
        let mut monitor = monitor();
        let signs = OverloadSigns { suppressed: MANY_SUPPRESSED - 1, ..OverloadSigns::default() };
        assert_eq!(monitor.update(signs, 2, || panic!("measured")), None);
        assert!(!monitor.is_measuring());
    }

    #[test]
    fn the_liveness_thread_increments_its_counter_until_it_is_dropped() {
        let Ok(map) = bpf_sys::Map::create(&bpf_sys::MapSpec::mmapable("life", 4096, 1)) else {
            testing::skipped!("no map");
            return;
        };
        let thread = LivenessThread::start(map.mmap(true).unwrap(), Duration::from_micros(100)).unwrap();
        let seen = map.mmap(false).unwrap();
        let count = || seen.load(plane::control::LIFE as usize, Ordering::Relaxed).unwrap();
        testing::eventually("three beats", testing::HANG_LIMIT, || count() >= 3);
        // The thread has its part of this as long as it runs.
        let shared = thread.stop.clone();
        drop(thread);
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
    }
}
