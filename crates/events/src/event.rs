//! What happened in a session.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use diagnostics::control;
use plane::control::DropKind;
use plane::desc::FaultKind;
use plane::shape::Shape;

use crate::aggregate::{AggValue, Column};
use crate::interval::Interval;
use crate::part::Part;
use crate::value::{Format, Packet, Symbol, Value};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The session begins.
    Start(Start<'a>),
    /// Options that affect the output have changed. All of them are listed.
    Options(Vec<Setting<'a>>),
    /// A clause recorded something.
    Record(Record<'a>),
    /// Rows of aggregations, by `printa()` or at the end.
    Aggregation(Aggregation<'a>),
    /// What an interval has added to an aggregation (`-x every`).
    Interval(Interval<'a>),
    /// Something to be done to the output, in order with the results.
    Effect(Effect<'a>),
    /// A clause faulted.
    Fault(Fault<'a>),
    /// Data was dropped.
    Drop(Drop),
    /// The kernel suppressed firings.
    Suppressed(Suppressed<'a>),
    /// A message of the session.
    Notice(Notice<'a>),
    /// A text that is part of the output, besides the results: the stability of the programs
    /// (`-v`).
    Report(Cow<'a, str>),
    /// The user has interrupted the session. Text has a newline here.
    Interrupt,
    /// Tracing is over. The aggregations that no `printa()` has printed follow. Text has a newline
    /// here.
    Stop,
    /// The session has ended.
    End {
        /// The exit status.
        status: i32,
    },
}

impl Event<'_> {
    /// The event without a borrow.
    pub fn into_owned(self) -> Event<'static> {
        match self {
            Event::Start(start) => Event::Start(start.into_owned()),
            Event::Options(all) => Event::Options(all.into_iter().map(Setting::into_owned).collect()),
            Event::Record(record) => Event::Record(record.into_owned()),
            Event::Aggregation(rows) => Event::Aggregation(rows.into_owned()),
            Event::Interval(interval) => Event::Interval(interval.into_owned()),
            Event::Effect(effect) => Event::Effect(effect.into_owned()),
            Event::Fault(fault) => Event::Fault(fault.into_owned()),
            Event::Drop(drop) => Event::Drop(drop),
            Event::Suppressed(suppressed) => Event::Suppressed(suppressed.into_owned()),
            Event::Notice(notice) => Event::Notice(notice.into_owned()),
            Event::Report(text) => Event::Report(owned(text)),
            Event::Interrupt => Event::Interrupt,
            Event::Stop => Event::Stop,
            Event::End { status } => Event::End { status },
        }
    }
}

fn owned<T: ToOwned + ?Sized>(cow: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(cow.into_owned())
}

/// The start of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Start<'a> {
    /// The version of the tracer.
    pub version: Cow<'a, str>,
    /// The clock of all times.
    pub clock: Clock,
    /// The machine.
    pub host: Host<'a>,
    /// The options that affect the output.
    pub settings: Vec<Setting<'a>>,
}

impl<'a> Start<'a> {
    /// The start of a session on this machine.
    pub fn new(version: impl Into<Cow<'a, str>>, clock: Clock, host: Host<'a>) -> Self {
        Start { version: version.into(), clock, host, settings: Vec::new() }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Start<'static> {
        Start {
            version: owned(self.version),
            clock: self.clock,
            host: self.host.into_owned(),
            settings: self.settings.into_iter().map(Setting::into_owned).collect(),
        }
    }
}

/// One moment in two clocks: the base of all times of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds of the clock of `timestamp` and of all times in events.
    pub time: u64,
    /// Nanoseconds since 1970 (UTC).
    pub wall: u64,
}

impl Clock {
    /// The second clock at a time of the first, in nanoseconds since 1970 (UTC).
    pub fn wall_at(self, time: u64) -> u64 {
        let wall = i128::from(self.wall) + i128::from(time) - i128::from(self.time);
        u64::try_from(wall).unwrap_or(0)
    }

    /// When an interval ended: as was read then, or by this pair.
    pub fn wall_at_end(self, all: &Interval<'_>) -> u64 {
        if all.wall == 0 { self.wall_at(all.end) } else { all.wall }
    }
}

/// The machine that was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// The release of its kernel.
    pub release: Cow<'a, str>,
    /// Its architecture.
    pub machine: Cow<'a, str>,
    /// CPUs that were online.
    pub cpus: u32,
}

impl<'a> Host<'a> {
    /// A machine with this number of CPUs online.
    pub fn new(
        name: impl Into<Cow<'a, str>>,
        release: impl Into<Cow<'a, str>>,
        machine: impl Into<Cow<'a, str>>,
        cpus: u32,
    ) -> Self {
        Host { name: name.into(), release: release.into(), machine: machine.into(), cpus }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Host<'static> {
        Host {
            name: owned(self.name),
            release: owned(self.release),
            machine: owned(self.machine),
            cpus: self.cpus,
        }
    }
}

/// An option and its value, by its name in `-x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The name.
    pub name: Cow<'a, str>,
    /// The value.
    pub value: SettingValue<'a>,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingValue<'a> {
    /// Set or not set.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A word.
    Text(Cow<'a, str>),
}

impl Setting<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Setting<'static> {
        let value = match self.value {
            SettingValue::Flag(flag) => SettingValue::Flag(flag),
            SettingValue::Number(number) => SettingValue::Number(number),
            SettingValue::Text(text) => SettingValue::Text(owned(text)),
        };
        Setting { name: owned(self.name), value }
    }
}

/// The names of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// As in `dtrace -l`.
    pub id: u32,
    /// Provider.
    pub provider: Arc<str>,
    /// Module; may be empty.
    pub module: Arc<str>,
    /// Function; may be empty.
    pub function: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// What the entry and return probes of its provider are the ends of.
    pub calls: Calls,
}

/// What entry and return probes are the ends of: a fact of their provider. `-F` shows calls by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Calls {
    /// Nothing that is known: the probes are single events, or functions of processes.
    #[default]
    None,
    /// System calls.
    System,
    /// Functions of the kernel.
    Kernel,
}

impl Probe {
    /// A probe with its provider, module, function and name.
    pub fn new(id: u32, names: [Arc<str>; 4], calls: Calls) -> Self {
        let [provider, module, function, name] = names;
        Probe { id, provider, module, function, name, calls }
    }

    /// The full description, escaped for printing.
    pub fn described(&self) -> String {
        let Probe { provider, module, function, name, .. } = self;
        control::name(format!("{provider}:{module}:{function}:{name}").as_bytes()).into_owned()
    }
}

/// Whether a record is an entry or a return, which `-F` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flow {
    /// Neither, or not the first (entry) or last (return) clause of the firing.
    #[default]
    None,
    /// `entry` and `…-entry`.
    Entry,
    /// `return` and `…-return`.
    Return,
}

/// When, where and by which probe something was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Firing<'a> {
    /// Nanoseconds, by the clock of `timestamp`.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The lowest 13 bits of the thread's id, where they are known (with `-F`).
    pub thread: Option<u16>,
    /// The enabled probe. Information only: the number has no meaning outside of the session.
    pub epid: u32,
    /// The probe.
    pub probe: Cow<'a, Arc<Probe>>,
    /// Entry or return; only known with `-F`.
    pub flow: Flow,
    /// The process id; `None` where the session does not record it (`-x processids`).
    pub pid: Option<u32>,
    /// The thread id; `None` where the session does not record it.
    pub tid: Option<u32>,
}

impl<'a> Firing<'a> {
    /// A firing of an enabled probe. What is not always known is not set.
    pub fn new(time: u64, cpu: u32, epid: u32, probe: Cow<'a, Arc<Probe>>) -> Self {
        Firing { time, cpu, thread: None, epid, probe, flow: Flow::None, pid: None, tid: None }
    }
}

/// What one clause recorded in one firing.
///
/// A record is delivered in one part, unless it contains `printa()`, `setopt()` or an
/// [effect](Effect). These are events of their own between the parts of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time, CPU and probe; the same in all parts.
    pub firing: Firing<'a>,
    /// Which part of the record this is.
    pub part: Part,
    /// One field for each action, in program order.
    pub fields: Vec<Field<'a>>,
}

impl Record<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Record<'static> {
        Record {
            firing: Firing { probe: owned(self.firing.probe), ..self.firing },
            part: self.part,
            fields: self.fields.into_iter().map(Field::into_owned).collect(),
        }
    }
}

/// One action of a record with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The expression of the value in the program (`trace(pid)`: `pid`); empty for an action
    /// without a value of its own, and where the program's text is not known.
    pub name: Cow<'a, str>,
    /// The action and its values.
    pub action: Action<'a>,
}

impl Field<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Field<'static> {
        Field { name: owned(self.name), action: self.action.into_owned() }
    }
}

/// An argument of `printf()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Its expression in the program; empty where the program's text is not known.
    pub name: Cow<'a, str>,
    /// Its value.
    pub value: Value<'a>,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// `trace()`, `stack()`, `sym()` and the like: a value in its default form.
    Trace(Value<'a>),
    /// `print()`: a value by its type.
    Print {
        /// The type, with the names and offsets of members.
        shape: Cow<'a, Arc<Shape>>,
        /// The bytes.
        bytes: Cow<'a, [u8]>,
        /// The kernel functions that pointers in it point to.
        functions: Vec<Symbol>,
    },
    /// `tracemem()`: memory, always as a hexdump.
    Dump(Cow<'a, [u8]>),
    /// `pcap()`: a packet. It goes to the output if that is a capture file; else it is a hexdump.
    Packet(Packet<'a>),
    /// `printf()`.
    Printf {
        /// The format.
        format: Cow<'a, Format>,
        /// Its arguments.
        args: Vec<Argument<'a>>,
    },
    /// `exit()`.
    Exit(i32),
    /// `snap()`: the reason, a string.
    Snap(Value<'a>),
    /// `clear()`, `trunc()`, `normalize()`, `denormalize()`.
    Change {
        /// The aggregation's name, without `@`.
        aggregation: Cow<'a, str>,
        /// What was done.
        change: Change,
    },
    /// An empty clause fired.
    Nothing,
    /// An action of a later version of the encoding, which this reader does not know.
    Unknown,
}

impl Action<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Action<'static> {
        match self {
            Action::Trace(value) => Action::Trace(value.into_owned()),
            Action::Print { shape, bytes, functions } => {
                Action::Print { shape: owned(shape), bytes: owned(bytes), functions }
            }
            Action::Dump(bytes) => Action::Dump(owned(bytes)),
            Action::Packet(packet) => Action::Packet(packet.into_owned()),
            Action::Printf { format, args } => {
                let argument =
                    |a: Argument<'_>| Argument { name: owned(a.name), value: a.value.into_owned() };
                Action::Printf { format: owned(format), args: args.into_iter().map(argument).collect() }
            }
            Action::Exit(status) => Action::Exit(status),
            Action::Snap(reason) => Action::Snap(reason.into_owned()),
            Action::Change { aggregation, change } => {
                Action::Change { aggregation: owned(aggregation), change }
            }
            Action::Nothing => Action::Nothing,
            Action::Unknown => Action::Unknown,
        }
    }
}

/// A change of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `clear()`: values restart, keys are kept.
    Clear,
    /// `trunc()`: this many keys were kept, the least ones if negative.
    Trunc(i64),
    /// `normalize()`: printed numbers are divided by this.
    Normalize(u64),
    /// `denormalize()`.
    Denormalize,
}

/// Why rows of aggregations are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A `printa()` of the record whose parts surround this event.
    Printa,
    /// The end: no `printa()` has printed the aggregation.
    End,
    /// The program that runs the session has asked for all aggregations.
    Demand,
}

/// Rows of one or more aggregations, in the order that the options select.
///
/// Many rows are delivered in several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aggregation<'a> {
    /// Why.
    pub occasion: Occasion,
    /// Which part of the rows this is.
    pub part: Part,
    /// When the aggregations had these values, by the clock of `timestamp`: for `printa()` the time
    /// of its record.
    pub time: Option<u64>,
    /// The format of a `printa()`; `None` for the default form.
    pub format: Option<Cow<'a, Format>>,
    /// The expressions of the columns of the key; empty where they are not known.
    pub keys: Vec<Cow<'a, str>>,
    /// The aggregations: one for each value of a row.
    pub columns: Vec<Column<'a>>,
    /// The rows.
    pub rows: Vec<Row<'a>>,
}

impl<'a> Aggregation<'a> {
    /// Rows of these aggregations, in one part and in the default form.
    pub fn new(occasion: Occasion, columns: Vec<Column<'a>>, rows: Vec<Row<'a>>) -> Self {
        Aggregation { occasion, part: Part::WHOLE, time: None, format: None, keys: Vec::new(), columns, rows }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Aggregation<'static> {
        Aggregation {
            occasion: self.occasion,
            part: self.part,
            time: self.time,
            format: self.format.map(owned),
            keys: self.keys.into_iter().map(owned).collect(),
            columns: self
                .columns
                .into_iter()
                .map(|c| Column { name: owned(c.name), function: c.function })
                .collect(),
            rows: self.rows.into_iter().map(Row::into_owned).collect(),
        }
    }
}

/// A key and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The columns of the key.
    pub key: Vec<Value<'a>>,
    /// The value of each aggregation.
    pub values: Vec<AggValue<'a>>,
}

impl Row<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Row<'static> {
        Row {
            key: self.key.into_iter().map(Value::into_owned).collect(),
            values: self.values.into_iter().map(AggValue::into_owned).collect(),
        }
    }
}

/// Something to be done to the output. The sink that has the output does it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect<'a> {
    /// `system()`: a shell command is run. It writes to the current output.
    System(Cow<'a, [u8]>),
    /// `freopen()`: output is appended to this file; `None` restores the first output.
    Freopen(Option<Cow<'a, [u8]>>),
    /// `ftruncate()`: the output becomes empty if it is a file.
    Ftruncate,
}

impl Effect<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Effect<'static> {
        match self {
            Effect::System(command) => Effect::System(owned(command)),
            Effect::Freopen(path) => Effect::Freopen(path.map(owned)),
            Effect::Ftruncate => Effect::Ftruncate,
        }
    }
}

/// A fault of a clause. Its `Display` is DTrace's message. Of a clause that faults at every firing
/// the first faults are events of their own, and then one event a second is the first of many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault<'a> {
    /// When it occurred, by the clock of `timestamp`.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The enabled probe, which the message names.
    pub epid: u32,
    /// The probe; `None` when the enabled probe is unknown.
    pub probe: Option<Cow<'a, Arc<Probe>>>,
    /// The kind of fault.
    pub kind: FaultKind,
    /// The action, 0 for the predicate.
    pub action: u16,
    /// DIF offset; `None` where it is not known.
    pub offset: Option<u32>,
    /// Address or offending value.
    pub value: u64,
    /// How many faults of the clause it stands for, of which it is the first; 1: it is itself.
    pub count: u64,
}

impl<'a> Fault<'a> {
    /// A fault of an enabled probe. Where in the clause it occurred is not set.
    pub fn new(time: u64, cpu: u32, epid: u32, kind: FaultKind, value: u64) -> Self {
        Fault { time, cpu, epid, probe: None, kind, action: 0, offset: None, value, count: 1 }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Fault<'static> {
        Fault { probe: self.probe.map(owned), ..self }
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 | 1 => write!(f, "error on enabled probe ID {}", self.epid)?,
            2.. => {
                let count = self.count;
                write!(f, "{count} more errors of a clause, the first on enabled probe ID {}", self.epid)?;
            }
        }
        if let Some(p) = &self.probe {
            write!(f, " (ID {}: {})", p.id, p.described())?;
        }
        write!(f, ": {} in ", self.kind.text(self.value))?;
        match self.action {
            0 => f.write_str("predicate")?,
            n => write!(f, "action #{n}")?,
        }
        match self.offset {
            Some(offset) => write!(f, " at DIF offset {offset}"),
            None => Ok(()),
        }
    }
}

/// Drops since the last report. Its `Display` is DTrace's message without the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drop {
    /// The kind of drop. It is one that loses data or order.
    pub kind: DropKind,
    /// The CPU; unused for kinds that are counted over all CPUs.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// When they were counted, by the clock of `timestamp`: they occurred before.
    pub time: Option<u64>,
}

impl Drop {
    /// Drops of a kind.
    pub fn new(kind: DropKind, cpu: u32, count: u64) -> Self {
        Drop { kind, cpu, count, time: None }
    }
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.message(self.count, self.cpu).unwrap_or_default())
    }
}

/// Firings that the kernel suppressed since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suppressed<'a> {
    /// The program, or the probe of a clock.
    pub program: Cow<'a, str>,
    /// The CPU, which is known for clocks.
    pub cpu: Option<u32>,
    /// How many; without a CPU, the greatest possible number.
    pub count: u64,
    /// When they were counted, by the clock of `timestamp`: they occurred before.
    pub time: Option<u64>,
}

impl<'a> Suppressed<'a> {
    /// Firings of a program, or of a clock on a CPU.
    pub fn new(program: impl Into<Cow<'a, str>>, cpu: Option<u32>, count: u64) -> Self {
        Suppressed { program: program.into(), cpu, count, time: None }
    }

    /// Without a borrow.
    pub fn into_owned(self) -> Suppressed<'static> {
        Suppressed { program: owned(self.program), ..self }
    }
}

impl fmt::Display for Suppressed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        let firings = if count == 1 { "firing" } else { "firings" };
        let program = control::name_text(&self.program);
        match self.cpu {
            None => write!(f, "up to {count} {firings} of {program} suppressed by the kernel"),
            Some(cpu) => write!(f, "{count} {firings} of {program} on CPU {cpu} suppressed by the kernel"),
        }
    }
}

/// A message of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// What it is about.
    pub kind: NoticeKind,
    /// The words, without the prefix `dtrace: `.
    pub text: Cow<'a, str>,
    /// When, by the clock of `timestamp`, where it is known: of a failure, the time of its record.
    pub time: Option<u64>,
}

impl Notice<'_> {
    /// Without a borrow.
    pub fn into_owned(self) -> Notice<'static> {
        Notice { text: owned(self.text), ..self }
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// An action of the consumer failed, a record is malformed, firings are missing, or how a
    /// script can avoid a fault.
    Failure,
    /// A size was lowered, because the kernel did not have the memory. Not shown under
    /// `quietresize`.
    Lowered,
    /// A target has ended.
    Target,
    /// The deadman stopped the session, or would have without `-w`.
    Unresponsive,
    /// The session takes a large share of the CPUs.
    Overload,
    /// Something that the program asks for is not available. The session continues without it.
    Unavailable,
    /// A detail of attaching or detaching, for `-v`.
    Detail,
}

impl NoticeKind {
    /// Every kind, in the order of the numbers of the encoding.
    pub const ALL: [NoticeKind; 7] = [
        NoticeKind::Failure,
        NoticeKind::Lowered,
        NoticeKind::Target,
        NoticeKind::Unresponsive,
        NoticeKind::Overload,
        NoticeKind::Unavailable,
        NoticeKind::Detail,
    ];
}
