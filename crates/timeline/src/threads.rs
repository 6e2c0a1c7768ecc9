//! The threads of records: their tracks, their names and their open calls.
//!
//! A thread has the name that the last record of it has, or else the one that it had when it was
//! first seen, or when it had executed another program. A process has that of its first thread,
//! whose ids are the same; until that is known, it has the name of whichever was seen.
//!
//! Threads come without end, and not every end of one is seen. Where there are too many, those are
//! forgotten that had a record longest ago, first those without open calls. What was open ends with
//! the last record of its thread: nothing later is known of it.

use std::collections::{HashMap, HashSet};

use events::ThreadName;
use flame::escape;
use protobuf::Message;

use crate::calls::Calls;
use crate::field::track;
use crate::packets::{Happening, Kind, Packets};

/// The most threads that are remembered. They are described again if they are seen again.
const MOST_THREADS: usize = 1 << 16;
/// The most open calls of all threads.
const MOST_OPEN: usize = 1 << 20;

/// What a record happened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// A thread of a process.
    Thread(u32, u32),
    /// The idle thread of a CPU.
    Idle(u32),
    /// A CPU, where the thread is not known.
    Unknown(u32),
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) track: u64,
    pub(crate) calls: Calls,
    pub(crate) name: Option<Box<str>>,
    /// The name that a record has, as it is there.
    recorded: Option<Box<[u8]>>,
    /// The time of its last record.
    last: u64,
}

#[derive(Debug)]
struct Process {
    track: u64,
    name: Option<Box<str>>,
    /// It is that of the first thread.
    of_first: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Threads {
    all: HashMap<Place, Thread>,
    processes: HashMap<u32, Process>,
    /// Whom to ask for names.
    pub(crate) ask: Option<ThreadName>,
    /// Open calls of all threads.
    pub(crate) open: usize,
    /// Calls that have ended without a return.
    pub(crate) unfinished: u64,
}

impl Threads {
    /// The thread of a record, and how many calls of all threads are open.
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Thread> {
        self.all.get_mut(&place)
    }

    /// Describes the tracks of a thread and of its process, if they are new or get another name:
    /// that of a record, or after it has executed another program.
    pub(crate) fn know(
        &mut self,
        place: Place,
        time: u64,
        recorded: Option<&[u8]>,
        executed: bool,
        packets: &mut Packets,
    ) {
        let is_new = !self.all.contains_key(&place);
        if is_new && self.all.len() >= MOST_THREADS {
            self.forget(packets);
        }
        let thread = self.all.entry(place).or_insert_with(|| Thread {
            track: packets.new_track(),
            calls: Calls::default(),
            name: None,
            recorded: None,
            last: time,
        });
        thread.last = time;
        let recorded = recorded.filter(|name| thread.recorded.as_deref() != Some(*name));
        if !is_new && recorded.is_none() && !executed {
            return;
        }
        let (pid, tid) = match place {
            Place::Thread(pid, tid) => (pid, tid),
            Place::Idle(cpu) | Place::Unknown(cpu) => {
                if is_new {
                    let of = if matches!(place, Place::Idle(_)) { "idle" } else { "records" };
                    let text = format!("{of}, CPU {cpu}");
                    packets.describe(thread.track, |out| out.bytes(track::NAME, text.as_bytes()));
                }
                return;
            }
        };
        let ask = |pid, tid| self.ask.and_then(|ask| ask(pid, tid)).map(|name| escape::name(&name).into());
        let name: Option<Box<str>> = match recorded {
            Some(name) => {
                thread.recorded = Some(name.into());
                Some(escape::name(name).into())
            }
            None => ask(pid, tid),
        };
        if is_new || name.is_some() && name != thread.name {
            thread.name = name.or(thread.name.take());
            packets.describe(thread.track, |out| {
                let mut of = Message::default();
                of.present(track::PID, u64::from(pid));
                of.present(track::TID, u64::from(tid));
                thread.name.iter().for_each(|name| of.bytes(track::THREAD_NAME, name.as_bytes()));
                out.message(track::THREAD, &of);
            });
        }
        let is_first = pid == tid;
        let before = self.processes.get(&pid);
        if before.is_some_and(|process| !is_first && (process.of_first || process.name.is_some())) {
            return;
        }
        let first = if is_first { thread.name.clone() } else { ask(pid, pid) };
        let of_first = is_first || first.is_some();
        let name = first.or_else(|| thread.name.clone());
        let process = before.map(|process| (process.track, process.name == name));
        let (track, is_same) = process.unwrap_or_else(|| (packets.new_track(), false));
        if !is_same {
            packets.describe(track, |out| {
                let mut of = Message::default();
                of.present(track::PID, u64::from(pid));
                name.iter().for_each(|name| of.bytes(track::PROCESS_NAME, name.as_bytes()));
                out.message(track::PROCESS, &of);
            });
        }
        self.processes.insert(pid, Process { track, name, of_first });
    }

    /// A thread ends, and so do its calls: none of them returns.
    pub(crate) fn exit(&mut self, place: Place, time: u64, packets: &mut Packets) {
        if let Some(thread) = self.all.get_mut(&place) {
            self.open = self.open.saturating_sub(thread.end_calls(time, packets));
        }
    }

    /// The threads in an order of two numbers. It is one function because sorting is a lot of code.
    fn sorted(&self, by: fn(&Thread) -> [u64; 2]) -> Vec<([u64; 2], Place)> {
        let mut all: Vec<_> = self.all.iter().map(|(place, thread)| (by(thread), *place)).collect();
        all.sort_unstable();
        all
    }

    /// Forgets half of the threads.
    fn forget(&mut self, packets: &mut Packets) {
        let mut all = self.sorted(|thread| [u64::from(thread.calls.depth() > 0), thread.last]);
        all.truncate(all.len() / 2);
        for ([_, last], place) in all {
            self.give_up(place, last, packets);
            self.all.remove(&place);
        }
        let pid = |place: &Place| match place {
            Place::Thread(pid, _) => Some(*pid),
            _ => None,
        };
        let alive: HashSet<u32> = self.all.keys().filter_map(pid).collect();
        self.processes.retain(|pid, _| alive.contains(pid));
    }

    /// Ends the calls of the threads that had a record longest ago, if there are too many.
    pub(crate) fn bound(&mut self, packets: &mut Packets) {
        if self.open <= MOST_OPEN {
            return;
        }
        for ([last, _], place) in self.sorted(|thread| [thread.last, thread.track]) {
            if self.open <= MOST_OPEN / 2 {
                break;
            }
            self.give_up(place, last, packets);
        }
    }

    /// Ends all open calls, at the end of everything.
    pub(crate) fn end(&mut self, time: u64, packets: &mut Packets) {
        for (_, place) in self.sorted(|thread| [thread.track, 0]) {
            self.give_up(place, time, packets);
        }
    }

    /// Ends the calls of a thread, which were not seen to end.
    fn give_up(&mut self, place: Place, time: u64, packets: &mut Packets) {
        let Some(thread) = self.all.get_mut(&place) else { return };
        let ended = thread.end_calls(time, packets);
        self.unfinished += ended as u64;
        self.open = self.open.saturating_sub(ended);
    }
}

impl Thread {
    fn end_calls(&mut self, time: u64, packets: &mut Packets) -> usize {
        let ended = self.calls.end();
        (0..ended).for_each(|_| packets.event(time, Happening::new(Kind::End, self.track, None)));
        ended
    }
}
