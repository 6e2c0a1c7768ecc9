//! Calls that may block for ever, made by threads that can be abandoned.
//!
//! What a process controls can block whoever asks the kernel about it: a process that keeps the
//! lock of its address space (by mapping a file whose server does not answer) blocks every reader
//! of its map. Such a call is made by another thread. Whoever waits for it does so for a limited
//! time and abandons the thread then. An abandoned thread ends when its call returns, or with its
//! process. Their number is bounded: when [`MOST_BLOCKED`] threads are blocked, no further call is
//! made.
//!
//! ```text
//!  begin ──► thread ──► Call::wait: its results         the thread makes the next call
//!               └─────► too late: abandon              the next call has a new thread
//! ```

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Maximum number of threads of one [`Caller`] that are blocked.
pub const MOST_BLOCKED: usize = 8;

/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// Makes one call at a time in a thread, which is started at the first call.
#[derive(Debug, Default)]
pub struct Caller {
    thread: Option<Sender<Job>>,
    /// Each thread has a clone.
    threads: Arc<()>,
    /// The process that has the threads: [`bpf_sys::forks`].
    forks: u32,
}

/// A result of any type: channels of one type for all calls, because those of each type are 12 KB
/// of the program.
type AnyResult = Box<dyn Any + Send>;

/// Where a call sends its results.
#[derive(Debug)]
pub struct Results<T>(Sender<AnyResult>, PhantomData<fn(T)>);

impl<T: Send + 'static> Results<T> {
    /// Sends a result. False when nobody waits for it any more.
    pub fn send(&self, result: T) -> bool {
        self.0.send(Box::new(result)).is_ok()
    }
}

/// A call that was begun.
#[derive(Debug)]
pub struct Call<T>(Receiver<AnyResult>, PhantomData<fn() -> T>);

impl<T: 'static> Call<T> {
    /// Waits for the next result until a time; `None` if there is none by then.
    pub fn wait(&self, until: Instant) -> Option<T> {
        let result = self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        result.downcast().ok().map(|result| *result)
    }

    /// True if the call has sent a result, which is taken, or has ended without one.
    pub fn has_returned(&self) -> bool {
        !matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }
}

impl Caller {
    /// Begins a call, which sends its results. The call before must have ended or have been
    /// abandoned. `None`: too many threads are blocked, or the system has no more threads.
    pub fn begin<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(Results<T>) + Send + 'static,
    ) -> Option<Call<T>> {
        let (sender, results) = channel();
        self.run(Box::new(move || call(Results(sender, PhantomData))))?;
        Some(Call(results, PhantomData))
    }

    /// Lets the thread make a call, or a new one.
    fn run(&mut self, mut job: Job) -> Option<()> {
        // A forked child has no thread of its parent.
        let forks = bpf_sys::forks();
        if self.forks != forks {
            *self = Caller { forks, ..Caller::default() };
        }
        if let Some(thread) = &self.thread {
            match thread.send(job) {
                Ok(()) => return Some(()),
                Err(unsent) => job = unsent.0,
            }
        }
        self.thread = None;
        if self.blocked() >= MOST_BLOCKED {
            return None;
        }
        let (thread, jobs) = channel::<Job>();
        let count = self.threads.clone();
        let run = move || {
            jobs.into_iter().for_each(|job| job());
            drop(count);
        };
        threads::spawn("dtrace-calls", STACK, run).ok()?;
        thread.send(job).ok()?;
        self.thread = Some(thread);
        Some(())
    }

    /// Abandons the thread of the call that was begun last.
    pub fn abandon(&mut self) {
        self.thread = None;
    }

    /// The number of abandoned threads that have not ended.
    pub fn blocked(&self) -> usize {
        (Arc::strong_count(&self.threads) - 1).saturating_sub(usize::from(self.thread.is_some()))
    }

    /// Makes a call and waits at most `limit`. `None`: it takes longer, and its thread was
    /// abandoned, or it cannot be made.
    pub fn call<T: Send + 'static>(
        &mut self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let until = Instant::now() + limit;
        let result = self
            .begin(|results: Results<T>| {
                results.send(call());
            })?
            .wait(until);
        if result.is_none() {
            self.abandon();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn calls_that_return_share_a_thread() {
        let mut caller = Caller::default();
        let thread = || std::thread::current().id();
        let first = caller.call(LONG, thread).unwrap();
        assert_eq!(caller.call(LONG, thread), Some(first));
        assert_ne!(first, std::thread::current().id());
        assert_eq!(caller.blocked(), 0);
    }

    #[test]
    fn threads_that_block_are_abandoned_up_to_a_limit() {
        let mut caller = Caller::default();
        let block = Arc::new(Mutex::new(()));
        let held = block.lock().unwrap();
        for n in 0..MOST_BLOCKED {
            let block = block.clone();
            assert_eq!(caller.call(SHORT, move || drop(block.lock())), None);
            assert_eq!(caller.blocked(), n + 1);
        }
        assert_eq!(caller.call(LONG, || 1), None);
        // When one returns, calls are made again.
        drop(held);
        testing::eventually("the return of a call", LONG, || caller.blocked() == 0);
        assert_eq!(caller.call(LONG, || 1), Some(1));
    }

    #[test]
    fn the_late_result_of_an_abandoned_call_arrives() {
        let mut caller = Caller::default();
        let (sender, gate) = channel::<i32>();
        let call = caller.begin(move |result| assert!(result.send(gate.recv()))).unwrap();
        assert!(call.wait(Instant::now() + SHORT).is_none());
        caller.abandon();
        assert_eq!(caller.call(LONG, || 1), Some(1));
        sender.send(2).unwrap();
        assert_eq!(call.wait(Instant::now() + LONG), Some(Ok(2)));
    }
}
