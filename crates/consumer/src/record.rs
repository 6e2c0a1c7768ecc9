//! Decodes bytes of the rings to typed values.
//!
//! A record is an epid and bytes. The table of enabled probes describes their layout: one
//! [`Layout`] for all probes of a clause, with formats that are parsed once. Nothing is formatted
//! while decoding. Strings and memory borrow from the record.
//!
//! A [`Raw`] value is what the record has: an address, the id of a stack. `names` gives it the
//! symbols that make it an [`events::Value`].

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use events::{ConversionArg, Form, Format, FormatError, Int, Packet, Piece, Probe, Shape, Value};
use plane::address::Text;
use plane::desc::{Action, AggId, Datum, Field, ProcessFields, RecordDesc};

use crate::names::Names;
use crate::pad::up_to;
use crate::raw::{Raw, Space, text};
use crate::source::Source;
use crate::stacks::StackCache;

/// An argument of a format.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub(crate) field: Field,
    /// Its conversion prints an address as a symbol, whatever its type.
    pub(crate) address: Option<Space>,
    /// Its expression in the program; empty where that is not known.
    pub(crate) name: Arc<str>,
}

/// One step of a record: an [`Action`] with its format parsed.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Plain(Action),
    Print { field: Field, shape: Arc<Shape>, functions: bool },
    Printf { format: Format, args: Vec<Arg> },
    Printa { format: Option<(Format, Vec<Option<Space>>)>, aggs: Vec<AggId> },
    System { format: Format, args: Vec<Arg> },
    Freopen { format: Option<Format>, args: Vec<Arg> },
}

impl Step {
    /// It prints or changes aggregations.
    fn uses_snapshot(&self) -> bool {
        use Action::{Clear, Denormalize, Normalize, Trunc};
        matches!(
            self,
            Step::Printa { .. } | Step::Plain(Clear(_) | Trunc(..) | Normalize(..) | Denormalize(_))
        )
    }

    /// Its field has one value.
    fn has_value(&self) -> bool {
        matches!(
            self,
            Step::Print { .. }
                | Step::Plain(
                    Action::Trace(_)
                        | Action::Tracemem { .. }
                        | Action::Pcap { .. }
                        | Action::Exit(_)
                        | Action::Snap(_)
                )
        )
    }
}

/// A step, and the expression of its value in the program; empty for a step without a value, and
/// where the program's text is not known.
#[derive(Clone, Debug)]
pub(crate) struct NamedStep {
    pub(crate) name: Arc<str>,
    pub(crate) step: Step,
}

/// The layout of a clause's record, shared by all epids of the clause.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) steps: Vec<NamedStep>,
    /// The ids of process and thread.
    pub(crate) process: Option<ProcessFields>,
    /// It has an action on an aggregation, or prints one.
    pub(crate) uses_snapshot: bool,
    /// Bytes that every record has.
    size: usize,
}

/// For each argument that the conversions of a format take in order: whether it is an address.
fn addresses(format: &Format) -> Vec<Option<Space>> {
    let mut all = Vec::new();
    for piece in format.pieces() {
        let Piece::Conversion(conversion) = piece else { continue };
        let stars = [conversion.width, conversion.precision];
        all.extend(stars.iter().filter(|amount| **amount == events::Amount::Argument).map(|_| None));
        if !conversion.aggregation {
            all.push(match conversion.arg {
                ConversionArg::KernelAddr => Some(Space::Kernel),
                ConversionArg::UserAddr => Some(Space::Target),
                _ => None,
            });
        }
    }
    all
}

fn arguments(format: &Format, fields: &[Field], names: &[Arc<str>]) -> Vec<Arg> {
    let addresses = addresses(format);
    let address = |n: usize| addresses.get(n).copied().flatten();
    let name = |n: usize| names.get(n).cloned().unwrap_or_default();
    let arg = |(n, field): (usize, &Field)| Arg { field: *field, address: address(n), name: name(n) };
    fields.iter().enumerate().map(arg).collect()
}

/// True if a value of the type may have pointers to functions.
fn has_functions(shape: &Shape) -> bool {
    match &shape.form {
        Form::FunctionPointer => true,
        Form::Array(element) => has_functions(element),
        Form::Sou(members) => members.iter().any(|m| has_functions(&m.shape)),
        _ => false,
    }
}

/// True if addresses of a process that a datum has get names; `of_stacks`: those of stacks too.
pub(crate) fn is_named(datum: Datum, of_stacks: bool) -> bool {
    datum.is_user() && (of_stacks || !matches!(datum, Datum::UserStack { .. }))
}

impl Layout {
    /// Parses the formats. `names` has the expressions of the values of each action, as far as they
    /// are known.
    pub fn new(desc: &RecordDesc, names: &[Vec<Arc<str>>]) -> Result<Self, FormatError> {
        let steps: Vec<NamedStep> = desc
            .actions
            .iter()
            .enumerate()
            .map(|(n, action)| {
                let names = names.get(n).map_or(&[][..], Vec::as_slice);
                let step = match action {
                    Action::Print(field, shape) => {
                        Step::Print { field: *field, shape: shape.clone(), functions: has_functions(shape) }
                    }
                    Action::Printf { format, args } => {
                        let format = Format::parse(format)?;
                        Step::Printf { args: arguments(&format, args, names), format }
                    }
                    Action::Printa { format, aggs } => {
                        let format = format.as_deref().map(Format::parse).transpose()?;
                        let with_addresses = |format: Format| {
                            let addresses = addresses(&format);
                            (format, addresses)
                        };
                        Step::Printa { format: format.map(with_addresses), aggs: aggs.clone() }
                    }
                    Action::System { format, args } => {
                        let format = Format::parse(format)?;
                        Step::System { args: arguments(&format, args, names), format }
                    }
                    Action::Freopen { format: Some(format), args } => {
                        let format = Format::parse(format)?;
                        Step::Freopen { args: arguments(&format, args, names), format: Some(format) }
                    }
                    Action::Freopen { format: None, .. } => Step::Freopen { format: None, args: Vec::new() },
                    other => Step::Plain(other.clone()),
                };
                let name = names.first().filter(|_| step.has_value()).cloned().unwrap_or_default();
                Ok(NamedStep { name, step })
            })
            .collect::<Result<_, FormatError>>()?;
        let uses_snapshot = steps.iter().any(|named| named.step.uses_snapshot());
        let mut layout = Self { steps, process: desc.process, uses_snapshot, size: 0 };
        let end = |field: Field| field.offset as usize + field.datum.size() as usize;
        layout.size = layout.all_fields().into_iter().map(end).max().unwrap_or(0);
        Ok(layout)
    }

    /// True if the record has all fields.
    pub(crate) fn fits(&self, data: &[u8]) -> bool {
        data.len() >= self.size
    }

    /// True if addresses of processes are printed as symbols, because of their type or their
    /// format.
    pub(crate) fn names_user_addresses(&self, of_stacks: bool) -> bool {
        let shown = |field: &Field| is_named(field.datum, of_stacks);
        let target = |format: &Format| addresses(format).contains(&Some(Space::Target));
        self.steps.iter().any(|named| match &named.step {
            Step::Plain(Action::Trace(field)) => shown(field),
            Step::Printf { format, args } | Step::System { format, args } => {
                args.iter().any(|a| shown(&a.field)) || target(format)
            }
            Step::Freopen { format, args } => {
                args.iter().any(|a| shown(&a.field)) || format.as_ref().is_some_and(target)
            }
            Step::Printa { format, .. } => {
                format.as_ref().is_some_and(|(_, all)| all.contains(&Some(Space::Target)))
            }
            Step::Plain(_) | Step::Print { .. } => false,
        })
    }

    /// All fields of the record.
    fn all_fields(&self) -> Vec<Field> {
        let mut all = Vec::new();
        if let Some(ProcessFields { pid, tid }) = self.process {
            all.extend([pid, tid]);
        }
        for named in &self.steps {
            match &named.step {
                Step::Plain(
                    Action::Trace(field)
                    | Action::Normalize(_, field)
                    | Action::Exit(field)
                    | Action::Snap(field),
                )
                | Step::Print { field, .. } => all.push(*field),
                Step::Plain(Action::Tracemem { bytes, len }) => {
                    all.extend([Some(*bytes), *len].iter().flatten())
                }
                Step::Plain(Action::Pcap { packet, protocol, time }) => {
                    all.extend([*packet, *protocol, *time])
                }
                Step::Plain(Action::Trunc(_, field)) => all.extend(field),
                Step::Plain(Action::Setopt { name, value }) => {
                    all.extend([Some(*name), *value].iter().flatten())
                }
                Step::Plain(_) | Step::Printa { .. } => {}
                Step::Printf { args, .. } | Step::System { args, .. } | Step::Freopen { args, .. } => {
                    all.extend(args.iter().map(|arg| arg.field));
                }
            }
        }
        all
    }
}

/// A probe × clause of the session.
#[derive(Clone, Debug)]
pub struct EnabledProbe {
    /// The probe.
    pub probe: Arc<Probe>,
    /// The layout of the record; `None` if the clause only assigns or aggregates (such a clause can
    /// still fault).
    pub layout: Option<Arc<Layout>>,
}

/// Maps a position in a range of ids to a probe.
pub type ProbeRow = Arc<[Option<Arc<Probe>>]>;

/// The clause and the probe of an epid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enabled<'a> {
    pub(crate) probe: &'a Arc<Probe>,
    pub(crate) layout: Option<&'a Arc<Layout>>,
}

/// Enabled-probe ids that follow each other.
#[derive(Debug)]
enum Enabling {
    /// A clause at several probes.
    Clause(ProbeRow, Option<Arc<Layout>>),
    /// Clauses at one probe.
    Site(Arc<Probe>, Arc<[Option<Arc<Layout>>]>),
}

/// A clause, whatever probe it fires for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClauseKey(usize, usize);

impl ClauseKey {
    /// That of the first of its ids.
    pub(crate) fn of_first(first: u32) -> ClauseKey {
        ClauseKey(0, first as usize)
    }
}

/// The tables of the session that records refer to. Entries are removed only with a probe that no
/// longer exists, once its last record is printed.
#[derive(Debug, Default)]
pub struct Tables {
    /// By the first id: a clause, and the probes that it may fire for. A clause of a hundred
    /// thousand probes is one entry.
    enabled: BTreeMap<u32, Enabling>,
    strings: Vec<Arc<[u8]>>,
    /// Names of providers of a family of processes, by prefix and process id.
    providers: HashMap<(u32, u32), Arc<[u8]>>,
}

impl Tables {
    /// Registers an enabled probe.
    pub fn enable(&mut self, epid: u32, probe: EnabledProbe) {
        self.enable_all(epid, Arc::new([Some(probe.probe)]), probe.layout);
    }

    /// Registers the ids from `first` on: a clause at each of these probes.
    pub fn enable_all(&mut self, first: u32, probes: ProbeRow, layout: Option<Arc<Layout>>) {
        self.enabled.insert(first, Enabling::Clause(probes, layout));
    }

    /// Registers the ids from `first` on: clauses with these layouts at one probe.
    pub fn enable_site(&mut self, first: u32, probe: Arc<Probe>, layouts: Arc<[Option<Arc<Layout>>]>) {
        self.enabled.insert(first, Enabling::Site(probe, layouts));
    }

    /// Forgets the ids that were registered together from `first` on.
    pub fn disable(&mut self, first: u32) {
        self.enabled.remove(&first);
    }

    /// Sets the interned string `index`.
    pub fn intern(&mut self, index: u32, text: impl Into<Arc<[u8]>>) {
        let at = index as usize;
        if self.strings.len() <= at {
            self.strings.resize_with(at + 1, || Arc::new([]));
        }
        if let Some(place) = self.strings.get_mut(at) {
            *place = text.into();
        }
    }

    /// Sets the name of a provider of a family: of the interned string and the process id.
    pub fn intern_provider(&mut self, prefix: u32, pid: u32, name: impl Into<Arc<[u8]>>) {
        self.providers.insert((prefix, pid), name.into());
    }

    /// The name of a provider, from its column: the interned string, with the process id above it.
    /// Which processes fire the probes of several is only known by the records.
    pub(crate) fn provider(&self, word: u64) -> Raw<'_> {
        let (prefix, pid) = (word as u32, (word >> 32) as u32);
        let (known, prefix) = (self.providers.get(&(prefix, pid)), self.string(prefix));
        match known {
            None if pid != 0 => Raw::Made([prefix, pid.to_string().as_bytes()].concat().into()),
            known => {
                let name = known.map_or(prefix, |name| name);
                Raw::Str(name, name.len() as u32 + 1)
            }
        }
    }

    /// The enabled probe of an epid.
    pub(crate) fn get(&self, epid: u32) -> Option<Enabled<'_>> {
        let (first, enabling) = self.enabled.range(..=epid).next_back()?;
        let place = (epid - first) as usize;
        match enabling {
            Enabling::Clause(probes, layout) => {
                Some(Enabled { probe: probes.get(place)?.as_ref()?, layout: layout.as_ref() })
            }
            Enabling::Site(probe, layouts) => Some(Enabled { probe, layout: layouts.get(place)?.as_ref() }),
        }
    }

    /// The clause of an epid. Those of later probes are the clauses of their shape, wherever that
    /// is placed.
    pub(crate) fn clause(&self, epid: u32) -> ClauseKey {
        match self.enabled.range(..=epid).next_back() {
            Some((first, Enabling::Site(_, layouts))) => {
                ClauseKey(Arc::as_ptr(layouts).cast::<()>() as usize, (epid - first) as usize)
            }
            Some((first, Enabling::Clause(..))) => ClauseKey::of_first(*first),
            None => ClauseKey::of_first(u32::MAX),
        }
    }

    pub(crate) fn string(&self, index: u32) -> &[u8] {
        self.strings.get(index as usize).map_or(b"", |s| s)
    }
}

/// The state that decoding needs.
pub(crate) struct Decoder<'t, 'm> {
    pub(crate) tables: &'t Tables,
    pub(crate) stacks: &'m mut StackCache,
    pub(crate) source: &'m mut dyn Source,
}

fn word<const N: usize>(data: &[u8], offset: u32) -> Option<[u8; N]> {
    data.get(offset as usize..)?.get(..N)?.try_into().ok()
}

impl<'t> Decoder<'t, '_> {
    /// The value of one column; `None` when the record is too short for it, which is a bug of
    /// dtrace.
    pub(crate) fn value<'a>(&mut self, data: &'a [u8], field: Field) -> Option<Raw<'a>>
    where
        't: 'a,
    {
        let at = field.offset;
        let bytes = |size: u32| data.get(at as usize..)?.get(..size as usize);
        Some(match field.datum {
            Datum::Int { size, signed } => Raw::Int(int(data, at, size, signed)?),
            Datum::Whole { size, signed } => {
                Raw::Int(Int::whole(u64::from_le_bytes(word(data, at)?), size, signed))
            }
            Datum::Str { size } => Raw::Str(text(bytes(size)?), size),
            Datum::Name { size } => Raw::Name(text(bytes(size)?), size),
            Datum::Interned => {
                let string = self.tables.string(u32::from_le_bytes(word(data, at)?));
                Raw::Str(string, string.len() as u32 + 1)
            }
            Datum::Provider => self.tables.provider(u64::from_le_bytes(word(data, at)?)),
            Datum::Address { strsize } => {
                let word = |at| word(data, at).map(u64::from_le_bytes);
                Raw::Address(Text::new([word(at)?, word(at + 8)?]), strsize)
            }
            Datum::Bytes { size } => Raw::Bytes(bytes(size)?),
            Datum::KernelStack { .. } | Datum::UserStack { .. } => {
                Raw::Stack(self.stacks.get(u64::from_le_bytes(word(data, at)?), self.source))
            }
            Datum::KernelAddr(form) => Raw::KernelAddr(u64::from_le_bytes(word(data, at)?), form),
            Datum::UserAddr(form) => Raw::UserAddr {
                addr: u64::from_le_bytes(word(data, at)?),
                pid: u64::from_le_bytes(word(data, at + 8)?) as u32,
                form,
            },
        })
    }

    /// The value with its symbols. The usual types need none.
    pub(crate) fn named_value<'a>(
        &mut self,
        data: &'a [u8],
        field: Field,
        names: &mut Names<'_>,
    ) -> Option<Value<'a>>
    where
        't: 'a,
    {
        let at = field.offset;
        match field.datum {
            Datum::Int { size, signed } => Some(Value::Int(int(data, at, size, signed)?)),
            Datum::Str { size } => {
                let bytes = data.get(at as usize..)?.get(..size as usize)?;
                Some(Value::Str { text: Cow::Borrowed(text(bytes)), size })
            }
            _ => Some(names.value(self.value(data, field)?)),
        }
    }

    pub(crate) fn number(&mut self, data: &[u8], field: Field) -> Option<Int> {
        match self.value(data, field)? {
            Raw::Int(int) => Some(int),
            _ => None,
        }
    }

    pub(crate) fn string<'a>(&mut self, data: &'a [u8], field: Field) -> Option<Cow<'a, [u8]>>
    where
        't: 'a,
    {
        match self.value(data, field)? {
            Raw::Str(text, _) | Raw::Name(text, _) => Some(text.into()),
            Raw::Made(text) => Some(text.into_vec().into()),
            Raw::Address(text, _) => Some(text.as_bytes().to_vec().into()),
            _ => None,
        }
    }

    /// The bytes that `print()` shows, and whether they are an integer beyond its type, with all 64
    /// bits.
    pub(crate) fn printed<'a>(&mut self, data: &'a [u8], field: Field) -> Option<(Cow<'a, [u8]>, bool)>
    where
        't: 'a,
    {
        let stored = |bytes: usize| data.get(field.offset as usize..)?.get(..bytes).map(Cow::Borrowed);
        let (bytes, is_beyond) = match self.value(data, field)? {
            Raw::Str(text, _) | Raw::Name(text, _) => (text.into(), false),
            Raw::Made(text) => (text.into_vec().into(), false),
            Raw::Address(text, _) => (text.as_bytes().to_vec().into(), false),
            Raw::Int(int) if int.is_beyond() => (stored(8)?, true),
            Raw::Int(int) => (stored(usize::from(int.size))?, false),
            _ => (stored(field.datum.size() as usize)?, false),
        };
        Some((bytes, is_beyond))
    }

    /// The packet that `pcap()` recorded. The outer `None`: the record is malformed. The error: the
    /// protocol, if it is no link type.
    pub(crate) fn packet<'a>(
        &mut self,
        data: &'a [u8],
        (packet, protocol, time): (Field, Field, Field),
    ) -> Option<Result<Packet<'a>, i64>> {
        let field = data.get(packet.offset as usize..)?.get(..packet.datum.size() as usize)?;
        let plane::packet::Packet { length, bytes } = plane::packet::Packet::read(field)?;
        let protocol = self.number(data, protocol)?.as_signed();
        let time = self.number(data, time)?.as_unsigned();
        let packet = |protocol| Packet { protocol, time, length, bytes: bytes.into() };
        Some(u16::try_from(protocol).map(packet).map_err(|_| protocol))
    }

    /// The bytes that `tracemem()` dumps. A run-time length of 0 or beyond the size means the whole
    /// object.
    pub(crate) fn dumped<'a>(
        &mut self,
        data: &'a [u8],
        bytes: Field,
        len: Option<Field>,
    ) -> Option<&'a [u8]> {
        let all = data.get(bytes.offset as usize..)?.get(..bytes.datum.size() as usize)?;
        let wanted = match len {
            Some(field) => self.number(data, field)?.as_unsigned(),
            None => 0,
        };
        Some(match usize::try_from(wanted) {
            Ok(n) if n > 0 => up_to(all, n),
            _ => all,
        })
    }
}

fn int(data: &[u8], at: u32, size: u8, signed: bool) -> Option<Int> {
    let bits = match size {
        1 => u64::from(u8::from_le_bytes(word(data, at)?)),
        2 => u64::from(u16::from_le_bytes(word(data, at)?)),
        4 => u64::from(u32::from_le_bytes(word(data, at)?)),
        8 => u64::from_le_bytes(word(data, at)?),
        _ => return None,
    };
    Some(Int::new(bits, size, signed))
}
