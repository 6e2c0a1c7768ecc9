//! Which client gets which reader. These readers are processes that sleep.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use super::*;
use crate::process::Processes;

const SMALL: u64 = 256 << 20;
const LARGE: u64 = 1 << 30;

fn need(memory: u64) -> Need {
    Need { memory, background: false, file: None }
}

/// A reader that could be had at once, and was started if need be.
fn lease(pool: &Arc<Pool>, need: Need) -> Option<Lease> {
    let mut lease = pool.lease(need, || false)?;
    if lease.process.is_none() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let (socket, _) = crate::sys::socket_pair().unwrap();
        lease.process = Some(ReaderProcess { child: Some(child), socket });
    }
    Some(lease)
}

fn pid(lease: &Lease) -> u32 {
    lease.process.as_ref().unwrap().child.as_ref().unwrap().id()
}

fn pool() -> Arc<Pool> {
    let pool = Arc::new(Pool::default());
    pool.enter();
    pool
}

#[test]
fn a_reader_that_was_given_back_is_the_next_clients_and_one_that_was_not_is_killed() {
    let pool = pool();
    let first = lease(&pool, need(SMALL)).unwrap();
    let one = pid(&first);
    assert!(first.give_back(None).is_none());
    let again = lease(&pool, need(SMALL)).unwrap();
    assert_eq!(pid(&again), one);
    // Its client has waited too long for it.
    drop(again);
    let other = lease(&pool, need(SMALL)).unwrap();
    assert_ne!(pid(&other), one);
}

#[test]
fn a_class_has_three_readers_and_background_work_has_its_own() {
    let pool = pool();
    let background = Need { background: true, ..need(SMALL) };
    let held: Vec<Lease> = (0..2).map(|_| lease(&pool, background).unwrap()).collect();
    assert!(lease(&pool, background).is_none());
    let mut others: Vec<Lease> = (0..3).map(|_| lease(&pool, need(SMALL)).unwrap()).collect();
    assert!(lease(&pool, need(SMALL)).is_none());
    assert!(others.pop().unwrap().give_back(None).is_none());
    // It is idle, and not for work in the background, which would drop what it has read.
    assert!(lease(&pool, background).is_none());
    assert!(lease(&pool, need(SMALL)).is_some());
    drop(held);
}

#[test]
fn the_limits_of_all_readers_together_have_a_limit() {
    let pool = pool();
    let mut held: Vec<Lease> = (0..2).map(|_| lease(&pool, need(LARGE)).unwrap()).collect();
    assert!(lease(&pool, need(LARGE)).is_none());
    // Those with small files are not delayed by them.
    held.extend((0..3).map(|_| lease(&pool, need(SMALL)).unwrap()));
    let used: u64 = pool.lock().slots.iter().map(|slot| slot.memory).sum();
    assert_eq!(used, MEMORY);
    assert!(lease(&pool, need(1 << 20)).is_none());
    // Whoever needs another class gets the memory of readers that are idle.
    let idle = held.pop().unwrap();
    assert!(idle.give_back(None).is_none());
    let other = lease(&pool, need(1 << 20)).unwrap();
    assert_eq!(pool.lock().slots.len(), 5);
    drop(other);
    // More than half of all: one reader, whatever the others have.
    let huge = lease(&pool, need(4 << 30)).unwrap();
    assert!(lease(&pool, need(4 << 30)).is_none());
    drop(huge);
}

#[test]
fn readers_are_given_in_the_order_in_which_clients_came() {
    let pool = pool();
    let mut held: Vec<Lease> = (0..3).map(|_| lease(&pool, need(SMALL)).unwrap()).collect();
    let (order, came) = mpsc::channel();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (waiting, order) = (pool.clone(), order.clone());
            let thread = std::thread::spawn(move || {
                let lease = waiting.lease(need(SMALL), || true).unwrap();
                order.send(n).unwrap();
                // The next one starts its own.
                drop(lease);
            });
            while pool.lock().waiting.len() <= n {
                std::thread::yield_now();
            }
            thread
        })
        .collect();
    held.pop();
    let all: Vec<usize> = (0..4).map(|_| came.recv().unwrap()).collect();
    assert_eq!(all, [0, 1, 2, 3]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn names_that_one_reader_has_in_memory_are_asked_of_that_one() {
    let pool = pool();
    let file = Some(1 << 32 | 7);
    let (one, two) = (lease(&pool, need(SMALL)).unwrap(), lease(&pool, need(SMALL)).unwrap());
    let has_it = pid(&one);
    assert!(one.give_back(file).is_none());
    assert!(two.give_back(None).is_none());
    // The last one that was used would be the next.
    let of_file = lease(&pool, Need { file, ..need(SMALL) }).unwrap();
    assert_eq!(pid(&of_file), has_it);
    // Another reader can read it, too.
    let other = lease(&pool, Need { file, ..need(SMALL) }).unwrap();
    assert_ne!(pid(&other), has_it);
    assert!(other.give_back(None).is_none());
    assert!(of_file.give_back(file).is_none());
    pool.forget(1, &[], file.as_slice());
    // Only that one is told at once.
    let of_file = pool.lease_urgent().unwrap();
    assert_eq!(pid(&of_file), has_it);
    assert!(pool.lease_urgent().is_none());
    assert_eq!(of_file.notices, [(1, Request::Forget { closed: vec![], without_path: vec![1 << 32 | 7] })]);
    assert!(lease(&pool, Need { file, ..need(SMALL) }).is_none());
    assert!(lease(&pool, need(SMALL)).is_some());
    // What is said while it has a request is said before it is given back.
    pool.forget(1, file.as_slice(), &[]);
    let mut of_file = of_file.give_back(None).unwrap();
    assert_eq!(std::mem::take(&mut of_file.notices).len(), 1);
    assert!(of_file.give_back(None).is_none());
}

#[test]
fn readers_end_with_the_last_client_and_those_that_do_not_listen() {
    let pool = pool();
    assert!(lease(&pool, need(SMALL)).unwrap().give_back(None).is_none());
    for number in 0..=MAX_NOTICES as u64 {
        assert_eq!(pool.lock().slots.len(), 1);
        pool.forget(1, &[number], &[]);
    }
    assert_eq!(pool.lock().slots.len(), 0);
    assert!(lease(&pool, need(SMALL)).unwrap().give_back(None).is_none());
    let late = lease(&pool, need(LARGE)).unwrap();
    pool.leave(1);
    assert_eq!(pool.lock().slots.len(), 1);
    // It hears that its client has ended, and ends.
    let late = late.give_back(None).unwrap();
    assert_eq!(late.notices, [(1, Request::Leave)]);
    assert!(late.give_back(None).is_none());
    assert_eq!(pool.lock().slots.len(), 0);
}

#[test]
fn two_clients_share_a_reader_and_a_third_gets_another_while_that_is_busy() {
    let readers = Readers::new();
    let (me, here) = (std::process::id(), pool as fn() -> Arc<Pool> as usize as u64);
    let mut all: Vec<Processes> = (0..3).map(|_| Processes::new(&readers)).collect();
    for p in all.iter_mut().take(2) {
        assert!(p.name(me, 0, here).symbol.is_some());
    }
    assert_eq!(readers.pool().pids().len(), 1);
    let busy = readers.pool().lease(need(SMALL), || false).unwrap();
    assert!(busy.process.is_some());
    assert!(all[2].name(me, 0, here).symbol.is_some());
    assert_eq!(readers.pool().lock().slots.len(), 2);
}

#[test]
fn a_client_that_gets_no_reader_says_so_and_asks_again() {
    let readers = Readers::new();
    let held: Vec<Lease> = (0..3).map(|_| lease(readers.pool(), need(SMALL)).unwrap()).collect();
    let mut p = Processes::new(&readers);
    let asked = Arc::new(AtomicU32::new(0));
    let polled = asked.clone();
    p.set_interrupted(Some(Arc::new(move || {
        polled.fetch_add(1, Ordering::Relaxed);
        false
    })));
    p.set_limits(Duration::from_millis(1), SMALL);
    let (me, here) = (std::process::id(), pool as fn() -> Arc<Pool> as usize as u64);
    assert_eq!(p.name(me, 0, here).symbol, None);
    assert!(asked.load(Ordering::Relaxed) > 0);
    let messages = p.take_messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("all processes that read symbols were busy for "), "{messages:?}");
    drop(held);
    p.set_limits(testing::HANG_LIMIT, SMALL);
    p.begin_batch();
    assert!(p.name(me, 0, here).symbol.is_some());
}
