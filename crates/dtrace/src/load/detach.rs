//! Detaching: the order that the kernel is quick with, and what a process in the background does.

use providers::method::SiteLink;

use crate::load::attach::{AttachedProgram, CLOSED_TOGETHER, close_at_once};

/// Detaches programs, the last one first. Of two programs on a tracepoint, the kernel detaches the
/// later one at once. If the first one is detached before the other, the kernel waits for a grace
/// period (some 10 ms). With thousands of tracepoints that is half a minute. (A process that ends
/// closes its descriptors in the order of their numbers, and the kernel detaches in the reverse
/// order.)
///
/// A process in the background closes the links that the kernel detaches slowly. It closes all
/// links if the enabling was interrupted, because the kernel may still be attaching and hold the
/// locks for detaching.
pub(crate) fn detach(attached: &mut [AttachedProgram], interrupted: bool) -> usize {
    let time = |a: &AttachedProgram| if a.loaded.links.is_empty() { 0 } else { a.method.release_us() };
    let in_background = interrupted || attached.iter().map(time).sum::<u64>() > DETACH_LIMIT_US;
    let mut slow = Vec::new();
    for a in attached.iter_mut().rev() {
        a.clocks.clear();
        if in_background && (interrupted || a.method.release_us() > 0) {
            slow.extend(a.loaded.links.drain(..).map(|l| l.link));
        }
        if a.method.functions().is_some_and(|functions| functions.by == "uprobe_multi") {
            close_at_once(std::mem::take(&mut a.loaded.links));
        }
        while a.loaded.links.pop().is_some() {}
    }
    let count = slow.len();
    if count > 0 {
        bpf_sys::close_in_background(slow);
    }
    count
}

/// Closes links that the kernel takes so many microseconds to detach, besides the grace periods
/// that it waits for, which those that are closed at the same time share. Returns how many a
/// process in the background closes.
pub(crate) fn close_links(links: Vec<SiteLink>, us: u64) -> usize {
    if us <= DETACH_LIMIT_US && links.len() <= CLOSED_TOGETHER * TURNS {
        close_at_once(links);
        return 0;
    }
    let count = links.len();
    bpf_sys::close_in_background(links.into_iter().map(|l| l.link).collect());
    count
}

/// How often links that are closed together wait for grace periods (some 20 ms) before a process in
/// the background takes them.
const TURNS: usize = 16;

/// Detaching that takes longer than this is left to a process in the background.
const DETACH_LIMIT_US: u64 = 200_000;
