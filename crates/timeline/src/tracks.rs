//! What events are on the tracks of a timeline.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use events::{Action, Calls as CallsOf, Event, Field, Firing, NoticeKind, Probe, Record, Value};
use flame::escape;
use protobuf::Message;

use crate::annotations::Annotations;
use crate::calls::Step;
use crate::counters::Counters;
use crate::field::track;
use crate::packets::{Happening, Kind, Name, Packets};
use crate::pairs::{Pair, Pairs, Parts};
use crate::threads::{Place, Threads};

/// The most probes that are remembered.
const MOST_PROBES: usize = 1 << 16;

/// The most CPUs that a kernel has.
const MOST_CPUS: usize = 1 << 13;

/// What a probe is in a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Entry { sole: bool },
    Return,
    OnCpu,
    OffCpu,
    Other,
}

#[derive(Clone, Debug)]
struct Known {
    role: Role,
    /// The same for the entry and the return of a function.
    function: u64,
    name: Name,
    parts: Parts,
    /// Its thread ends there.
    exits: bool,
    /// Its thread may have executed another program.
    executes: bool,
    /// Its address is the key of the table.
    _probe: Arc<Probe>,
}

/// What a CPU runs.
#[derive(Debug)]
struct Cpu {
    track: u64,
    time: u64,
    runs: bool,
}

/// All tracks, and what is open on them.
#[derive(Debug)]
pub(crate) struct Tracks {
    pub(crate) packets: Packets,
    annotations: Annotations,
    counters: Counters,
    pairs: Pairs,
    pub(crate) threads: Threads,
    probes: HashMap<usize, Known>,
    cpus: HashMap<u32, Cpu>,
    /// The track of messages, and that above those of CPUs.
    messages: Option<u64>,
    above_cpus: Option<u64>,
    hasher: RandomState,
    /// What an event has beside its name and its track.
    more: Message,
    unmatched: u64,
    ended: bool,
}

impl Tracks {
    pub(crate) fn new(pairs: Vec<Pair>) -> Tracks {
        Tracks {
            packets: Packets::new(),
            annotations: Annotations::new(),
            counters: Counters::default(),
            pairs: Pairs::new(pairs),
            threads: Threads::default(),
            probes: HashMap::new(),
            cpus: HashMap::new(),
            messages: None,
            above_cpus: None,
            hasher: RandomState::new(),
            more: Message::default(),
            unmatched: 0,
            ended: false,
        }
    }

    /// What the timeline lacks of the events: a line for each kind of loss.
    pub(crate) fn lost(&self) -> Vec<String> {
        let line = |n: u64, one: &str, many: &str| {
            (n > 0).then(|| format!("{} {}", escape::thousands(n), if n == 1 { one } else { many }))
        };
        [
            line(self.unmatched, "return without an entry", "returns without an entry"),
            line(self.threads.unfinished, "call without a return", "calls without a return"),
            line(self.pairs.unmatched, "end of a slice without a begin", "ends of slices without a begin"),
            line(self.pairs.unfinished, "begin of a slice without an end", "begins of slices without an end"),
            line(self.counters.lost, "value of a key without a counter", "values of keys without a counter"),
        ]
        .into_iter()
        .flatten()
        .chain(self.pairs.never())
        .collect()
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(start) => self.packets.begin(start.clock),
            Event::Record(record) => self.record(record),
            Event::Interval(all) => self.counters.interval(all, &mut self.packets),
            Event::Fault(fault) => self.message(Some(fault.time), &fault.to_string()),
            Event::Drop(drop) => self.message(drop.time, &drop.to_string()),
            Event::Suppressed(suppressed) => self.message(suppressed.time, &suppressed.to_string()),
            Event::Notice(notice) if notice.kind == NoticeKind::Detail => {}
            Event::Notice(notice) => self.message(notice.time, &notice.text),
            Event::End { .. } => self.end(),
            _ => {}
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        self.ended = false;
        let mut more = std::mem::take(&mut self.more);
        more.clear();
        self.annotations.write(&record.fields, &mut self.packets.fresh, &mut more);
        let known = self.probe(&record.firing.probe);
        if !known.parts.is_empty() {
            let (time, fields) = (record.firing.time, &record.fields);
            if self.pairs.record(&known.parts, time, fields, &more, &mut self.packets) {
                self.more = more;
                return;
            }
        }
        let execname = record.fields.iter().find_map(execname);
        let place = place(&record.firing);
        self.threads.know(place, record.firing.time, execname, known.executes, &mut self.packets);
        self.show(record, place, &known, &more);
        if known.exits {
            self.threads.exit(place, record.firing.time, &mut self.packets);
        }
        self.threads.bound(&mut self.packets);
        self.more = more;
    }

    /// What a record is on its tracks.
    fn show(&mut self, record: &Record<'_>, place: Place, known: &Known, more: &Message) {
        let firing = &record.firing;
        let Tracks { packets, threads, unmatched, .. } = self;
        let Some(thread) = threads.get_mut(place) else { return };
        let with = |kind| Happening { more: Some(more), ..Happening::new(kind, thread.track, None) };
        let named = |kind| Happening { name: Some(&known.name), ..with(kind) };
        // The parts of a record behind its first have what the record still says.
        let step = match known.role {
            _ if !record.part.first => Step::Again,
            // Calls are of a thread, which is not known.
            Role::Entry { .. } | Role::Return if matches!(place, Place::Unknown(_)) => Step::Alone,
            Role::Entry { sole } => thread.calls.enter(known.function, firing.time, sole),
            Role::Return => thread.calls.leave(known.function, firing.time),
            Role::OnCpu | Role::OffCpu => {
                let name = thread.name.as_deref().map(String::from);
                return self.cpu(firing, known.role == Role::OnCpu, name, more);
            }
            Role::Other => Step::Alone,
        };
        let end = Happening::new(Kind::End, thread.track, None);
        match step {
            Step::Again if more.is_empty() => {}
            Step::Again | Step::Alone => packets.event(firing.time, named(Kind::Instant)),
            Step::Begins(closed) => {
                (0..closed).for_each(|_| packets.event(firing.time, end));
                packets.event(firing.time, named(Kind::Begin));
                threads.unfinished += closed as u64;
                threads.open = (threads.open + 1).saturating_sub(closed);
            }
            Step::Ends(closed) => {
                (1..closed).for_each(|_| packets.event(firing.time, end));
                packets.event(firing.time, with(Kind::End));
                threads.unfinished += closed as u64 - 1;
                threads.open = threads.open.saturating_sub(closed);
            }
            Step::Unmatched => *unmatched += 1,
        }
    }

    /// A thread begins or ends to run on a CPU.
    fn cpu(&mut self, firing: &Firing<'_>, on: bool, name: Option<String>, more: &Message) {
        let Tracks { packets, cpus, above_cpus, .. } = self;
        if cpus.len() >= MOST_CPUS && !cpus.contains_key(&firing.cpu) {
            return;
        }
        let above = *above_cpus.get_or_insert_with(|| packets.named_track("CPUs"));
        let cpu = cpus.entry(firing.cpu).or_insert_with(|| {
            let track = packets.new_track();
            packets.describe(track, |out| {
                out.bytes(track::NAME, format!("CPU {}", firing.cpu).as_bytes());
                out.number(track::PARENT, above);
            });
            Cpu { track, time: 0, runs: false }
        });
        // Another clause of the firing before.
        if std::mem::replace(&mut cpu.time, firing.time) == firing.time && cpu.runs == on {
            return;
        }
        if std::mem::replace(&mut cpu.runs, on) {
            let more = if on { None } else { Some(more) };
            packets.event(firing.time, Happening { more, ..Happening::new(Kind::End, cpu.track, None) });
        } else if !on {
            // It is not known since when it ran; what it records is.
            let name = packets.name("off-cpu");
            let alone = Happening::new(Kind::Instant, cpu.track, Some(&name));
            packets.event(firing.time, Happening { more: Some(more), ..alone });
        }
        if on {
            let tid = firing.tid.unwrap_or_default();
            let name = match name {
                Some(name) => format!("{name} {tid}"),
                None => format!("thread {tid}"),
            };
            let name = packets.name(&name);
            let begin = Happening::new(Kind::Begin, cpu.track, Some(&name));
            packets.event(firing.time, Happening { more: Some(more), ..begin });
        }
    }

    /// What a probe is. It is looked up by its names once.
    fn probe(&mut self, probe: &Arc<Probe>) -> Known {
        let at = Arc::as_ptr(probe) as usize;
        if let Some(known) = self.probes.get(&at) {
            return known.clone();
        }
        if self.probes.len() >= MOST_PROBES {
            self.probes.clear();
        }
        let Probe { provider, module, function, name, calls, .. } = &**probe;
        let sole = *calls == CallsOf::System;
        // Where the name says what is called, entry and return may be at two places.
        let (role, called) = match &**name {
            "entry" => (Role::Entry { sole }, None),
            "return" => (Role::Return, None),
            "on-cpu" => (Role::OnCpu, None),
            "off-cpu" => (Role::OffCpu, None),
            other => match (other.strip_suffix("-entry"), other.strip_suffix("-return")) {
                (Some(called), _) => (Role::Entry { sole }, Some(called)),
                (_, Some(called)) => (Role::Return, Some(called)),
                _ => (Role::Other, None),
            },
        };
        let text = match (role, called) {
            (Role::Entry { .. } | Role::Return, Some(called)) => called.to_string(),
            (Role::Entry { .. } | Role::Return, None) if sole || module.is_empty() => function.to_string(),
            (Role::Entry { .. } | Role::Return, None) => format!("{module}`{function}"),
            _ if function.is_empty() => format!("{provider}:::{name}"),
            _ => format!("{provider}::{function}:{name}"),
        };
        let is_call = |names: [&str; 2]| sole && names.contains(&&**function);
        let exits = is_call(["exit", "exit_group"]) && role != Role::Return
            || matches!(&**name, "lwp-exit" | "sched_process_exit");
        let executes = is_call(["execve", "execveat"]) && role == Role::Return || &**name == "exec-success";
        let of = (provider, module, called.unwrap_or(function), called.is_some());
        let function = self.hasher.hash_one(of);
        let name = self.packets.name(&escape::name(text.as_bytes()));
        let parts = self.pairs.parts(probe);
        let known = Known { role, function, name, parts, exits, executes, _probe: probe.clone() };
        self.probes.insert(at, known.clone());
        known
    }

    /// A message, on a track of its own.
    fn message(&mut self, time: Option<u64>, text: &str) {
        let Tracks { packets, messages, .. } = self;
        let track = *messages.get_or_insert_with(|| packets.named_track("dtrace"));
        let name = packets.name(&escape::name(text.as_bytes()));
        let time = time.unwrap_or(packets.latest);
        packets.aside(time, Happening::new(Kind::Instant, track, Some(&name)));
    }

    /// Ends what is open, once after the last record.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let time = self.packets.latest;
        self.threads.end(time, &mut self.packets);
        self.pairs.end_all(&mut self.packets);
        let mut running: Vec<u64> = self.cpus.values().filter(|cpu| cpu.runs).map(|cpu| cpu.track).collect();
        running.sort_unstable();
        for track in running {
            self.packets.event(time, Happening::new(Kind::End, track, None));
        }
        self.cpus.values_mut().for_each(|cpu| cpu.runs = false);
        self.counters.end(&mut self.packets);
        for line in self.lost() {
            self.message(None, &line);
        }
    }
}

/// The name that the process of a record has chosen, if the record has it.
fn execname<'a>(field: &'a Field<'_>) -> Option<&'a [u8]> {
    let named = |name: &str, value: &'a Value<'_>| match value {
        Value::Name { text, .. } | Value::Str { text, .. } if name == "execname" => Some(&**text),
        _ => None,
    };
    match &field.action {
        Action::Trace(value) => named(&field.name, value),
        Action::Printf { args, .. } => args.iter().find_map(|arg| named(&arg.name, &arg.value)),
        _ => None,
    }
}

fn place(firing: &Firing<'_>) -> Place {
    match (firing.pid, firing.tid) {
        (Some(0), Some(0)) => Place::Idle(firing.cpu),
        (Some(pid), Some(tid)) => Place::Thread(pid, tid),
        _ => Place::Unknown(firing.cpu),
    }
}
