//! Decodes bytes of the rings to typed events.
//!
//! A record is an epid and bytes. The table of enabled probes describes their layout. Nothing is
//! formatted while decoding: an [`Event`] borrows strings from the record, and its numbers,
//! addresses and stacks are typed. So text, JSON and a program that uses the library use the same
//! data, and only the renderer looks up symbols.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use diagnostics::control;
use plane::desc::{Action, AddrForm, AggId, Datum, Field, RecordDesc};
use plane::format::{self, ConversionArg, FormatError, Piece};
use plane::shape::Shape;
use plane::stacks::Stack;

use crate::consumer::Source;

/// The names of a probe, as the consumer prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Probe {
    /// The full description, escaped for printing.
    pub(crate) fn described(&self) -> String {
        let Probe { provider, module, function, name, .. } = self;
        control::name(format!("{provider}:{module}:{function}:{name}").as_bytes()).into_owned()
    }
}

/// One step of a record: an [`Action`] with its format parsed.
#[derive(Clone, Debug)]
enum Step {
    Plain(Action),
    Printf { format: Arc<[Piece]>, args: Vec<Field> },
    Printa { format: Option<Arc<[Piece]>>, aggs: Vec<AggId> },
    System { format: Arc<[Piece]>, args: Vec<Field> },
    Freopen { format: Option<Arc<[Piece]>>, args: Vec<Field> },
}

/// The layout of a clause's record, shared by all epids of the clause.
#[derive(Clone, Debug)]
pub struct Layout {
    steps: Vec<Step>,
}

impl Layout {
    /// Parses the formats.
    pub fn new(desc: &RecordDesc) -> Result<Self, FormatError> {
        let steps = desc
            .actions
            .iter()
            .map(|action| {
                Ok(match action {
                    Action::Printf { format, args } => {
                        Step::Printf { format: format::parse(format)?.into(), args: args.clone() }
                    }
                    Action::Printa { format, aggs } => Step::Printa {
                        format: format.as_deref().map(format::parse).transpose()?.map(Into::into),
                        aggs: aggs.clone(),
                    },
                    Action::System { format, args } => {
                        Step::System { format: format::parse(format)?.into(), args: args.clone() }
                    }
                    Action::Freopen { format, args } => Step::Freopen {
                        format: format.as_deref().map(format::parse).transpose()?.map(Into::into),
                        args: args.clone(),
                    },
                    other => Step::Plain(other.clone()),
                })
            })
            .collect::<Result<_, FormatError>>()?;
        Ok(Self { steps })
    }

    /// True if addresses of processes are printed as symbols, because of their type or their
    /// format.
    pub(crate) fn names_user_addresses(&self) -> bool {
        let by_format = |piece: &Piece| match piece {
            Piece::Conversion(conversion) => conversion.arg == ConversionArg::UserAddr,
            Piece::Text(_) => false,
        };
        let format = |step: &Step| match step {
            Step::Printf { format, .. } | Step::System { format, .. } => format.iter().any(by_format),
            Step::Printa { format, .. } | Step::Freopen { format, .. } => {
                format.as_ref().is_some_and(|f| f.iter().any(by_format))
            }
            Step::Plain(_) => false,
        };
        self.fields().any(|f| f.datum.is_user()) || self.steps.iter().any(format)
    }

    /// The fields that the record prints.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.steps.iter().flat_map(|step| match step {
            Step::Plain(Action::Trace(field)) => std::slice::from_ref(field),
            Step::Printf { args, .. } | Step::System { args, .. } | Step::Freopen { args, .. } => args,
            _ => &[],
        })
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

/// The tables of the session that records refer to. Entries are never removed.
#[derive(Debug, Default)]
pub struct Tables {
    /// By the first id: a clause, and the probes that it may fire for. A clause of a hundred
    /// thousand probes is one entry.
    enabled: BTreeMap<u32, (ProbeRow, Option<Arc<Layout>>)>,
    strings: Vec<Arc<[u8]>>,
}

impl Tables {
    /// Registers an enabled probe.
    pub fn enable(&mut self, epid: u32, probe: EnabledProbe) {
        self.enable_all(epid, Arc::new([Some(probe.probe)]), probe.layout);
    }

    /// Registers the ids from `first` on: a clause at each of these probes.
    pub fn enable_all(&mut self, first: u32, probes: ProbeRow, layout: Option<Arc<Layout>>) {
        self.enabled.insert(first, (probes, layout));
    }

    /// Sets the interned string `index`.
    pub fn intern(&mut self, index: u32, text: impl Into<Arc<[u8]>>) {
        let at = index as usize;
        if self.strings.len() <= at {
            self.strings.resize_with(at + 1, || Arc::new([]));
        }
        self.strings[at] = text.into();
    }

    /// The enabled probe of an epid.
    pub(crate) fn get(&self, epid: u32) -> Option<Enabled<'_>> {
        let (first, (probes, layout)) = self.enabled.range(..=epid).next_back()?;
        let probe = probes.get((epid - first) as usize)?.as_ref()?;
        Some(Enabled { probe, layout: layout.as_ref() })
    }

    pub(crate) fn string(&self, index: u32) -> &[u8] {
        self.strings.get(index as usize).map_or(b"", |s| s)
    }
}

/// The empty stack, printed for a stack that could not be stored.
pub(crate) fn no_stack() -> Arc<Stack> {
    Arc::new(Stack { tgid: 0, exec: 0, pcs: Vec::new() })
}

/// A cache of fetched stacks. The store is keyed by a hash of the frames, so an id never means
/// another stack.
#[derive(Debug, Default)]
pub(crate) struct StackCache {
    known: HashMap<u64, Arc<Stack>>,
}

impl StackCache {
    /// The maximum number of cached stacks. The cache is cleared when it is full, so that it does
    /// not grow with the session.
    const MOST: usize = 1 << 16;

    pub(crate) fn get(&mut self, id: u64, source: &mut dyn Source) -> Arc<Stack> {
        if id == 0 {
            return no_stack();
        }
        if let Some(stack) = self.known.get(&id) {
            return stack.clone();
        }
        let Some(stack) = source.stack(id) else {
            return no_stack();
        };
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let stack = Arc::new(stack);
        self.known.insert(id, stack.clone());
        stack
    }
}

/// An integer with its type in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int {
    /// The value, extended to 64 bits according to its type.
    pub bits: u64,
    /// The size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// The type is signed.
    pub signed: bool,
}

impl Int {
    /// An integer from the low `size` bytes of `bits`.
    pub fn new(bits: u64, size: u8, signed: bool) -> Self {
        let shift = 64 - 8 * u32::from(size.clamp(1, 8));
        let bits = if signed { ((bits << shift) as i64 >> shift) as u64 } else { bits << shift >> shift };
        Int { bits, size, signed }
    }

    /// The value as a signed integer of its size.
    pub fn as_signed(self) -> i64 {
        Int::new(self.bits, self.size, true).bits as i64
    }

    /// The value as an unsigned integer of its size.
    pub fn as_unsigned(self) -> u64 {
        Int::new(self.bits, self.size, false).bits
    }
}

/// One typed value of a record or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Int(Int),
    /// A string.
    Str {
        /// The bytes before its NUL.
        text: &'a [u8],
        /// The size in the record, including NULs.
        size: u32,
    },
    /// A name that the process has chosen (`execname`).
    Name {
        /// The bytes before its NUL.
        text: &'a [u8],
        /// The size in the record, including NULs.
        size: u32,
    },
    /// Memory.
    Bytes(&'a [u8]),
    /// A stack; of a process if its `tgid` is not 0.
    Stack(Arc<Stack>),
    /// A kernel address that is printed as a symbol.
    KernelAddr(u64, AddrForm),
    /// An address of a process that is printed as a symbol.
    UserAddr {
        /// The process.
        pid: u32,
        /// The address.
        addr: u64,
        /// The form.
        form: AddrForm,
    },
}

/// One item of a record, in program order.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// A value in its default form.
    Trace(Value<'a>),
    /// A value by its type.
    Print {
        /// The type.
        shape: &'a Shape,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Memory, always as a hexdump.
    Dump(&'a [u8]),
    /// `printf()`.
    Printf {
        /// The format.
        format: &'a [Piece],
        /// Its arguments.
        args: Vec<Value<'a>>,
    },
    /// `printa()`.
    Printa {
        /// The format; `None` for the default form.
        format: Option<&'a [Piece]>,
        /// The aggregations.
        aggs: &'a [AggId],
    },
    /// `clear()`.
    Clear(AggId),
    /// `trunc()`; 0 removes all.
    Trunc(AggId, i64),
    /// `normalize()`.
    Normalize(AggId, u64),
    /// `denormalize()`.
    Denormalize(AggId),
    /// `exit()`.
    Exit(i32),
    /// `system()`.
    System {
        /// The command's format.
        format: &'a [Piece],
        /// Its arguments.
        args: Vec<Value<'a>>,
    },
    /// `freopen()`.
    Freopen {
        /// The name's format; `None` restores the initial output.
        format: Option<&'a [Piece]>,
        /// Its arguments.
        args: Vec<Value<'a>>,
    },
    /// `ftruncate()`.
    Ftruncate,
    /// `setopt()`.
    Setopt {
        /// The option.
        name: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
    },
    /// An empty clause fired.
    Nothing,
}

/// Whether a record is an entry or a return; see [`crate::consumer`] for the rules.
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

/// The execution context that calls nest in: a thread or a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallContext {
    /// A thread, identified by the lowest bits of its id.
    Thread(u16),
    /// A CPU.
    Cpu(u32),
}

/// A decoded record.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The CPU that recorded it.
    pub cpu: u32,
    /// The time in nanoseconds, by the clock of `timestamp`.
    pub time: u64,
    /// The enabled probe.
    pub epid: u32,
    /// The probe.
    pub probe: &'a Probe,
    /// Entry or return, for `-F`.
    pub flow: Flow,
    /// The thread, or the CPU if the thread is not known.
    pub context: CallContext,
    /// Its items.
    pub items: Vec<Item<'a>>,
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

/// The bytes up to the first NUL.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|b| *b == 0).map_or(bytes, |end| &bytes[..end])
}

impl<'t> Decoder<'t, '_> {
    /// The value of one column; `None` when the record is too short for it, which is a bug of
    /// dtrace.
    pub(crate) fn value<'a>(&mut self, data: &'a [u8], field: Field) -> Option<Value<'a>>
    where
        't: 'a,
    {
        let at = field.offset;
        Some(match field.datum {
            Datum::Int { size, signed } => Value::Int(int(data, at, size, signed)?),
            Datum::Str { size } => {
                let bytes = data.get(at as usize..)?.get(..size as usize)?;
                Value::Str { text: text(bytes), size }
            }
            Datum::Name { size } => {
                let bytes = data.get(at as usize..)?.get(..size as usize)?;
                Value::Name { text: text(bytes), size }
            }
            Datum::Interned => {
                let string = self.tables.string(u32::from_le_bytes(word(data, at)?));
                Value::Str { text: string, size: string.len() as u32 + 1 }
            }
            Datum::Bytes { size } => Value::Bytes(data.get(at as usize..)?.get(..size as usize)?),
            Datum::KernelStack { .. } | Datum::UserStack { .. } => {
                Value::Stack(self.stacks.get(u64::from_le_bytes(word(data, at)?), self.source))
            }
            Datum::KernelAddr(form) => Value::KernelAddr(u64::from_le_bytes(word(data, at)?), form),
            Datum::UserAddr(form) => Value::UserAddr {
                addr: u64::from_le_bytes(word(data, at)?),
                pid: u64::from_le_bytes(word(data, at + 8)?) as u32,
                form,
            },
        })
    }

    fn number(&mut self, data: &[u8], field: Field) -> Option<Int> {
        match self.value(data, field)? {
            Value::Int(int) => Some(int),
            _ => None,
        }
    }

    /// All items of the record.
    pub(crate) fn items<'a>(&mut self, layout: &'a Layout, data: &'a [u8]) -> Option<Vec<Item<'a>>>
    where
        't: 'a,
    {
        let mut items = Vec::with_capacity(layout.steps.len());
        for step in &layout.steps {
            items.push(match step {
                Step::Printf { format, args } => Item::Printf { format, args: self.values(data, args)? },
                Step::System { format, args } => Item::System { format, args: self.values(data, args)? },
                Step::Freopen { format, args } => {
                    Item::Freopen { format: format.as_deref(), args: self.values(data, args)? }
                }
                Step::Printa { format, aggs } => Item::Printa { format: format.as_deref(), aggs },
                Step::Plain(action) => self.plain(action, data)?,
            });
        }
        Some(items)
    }

    fn values<'a>(&mut self, data: &'a [u8], fields: &[Field]) -> Option<Vec<Value<'a>>>
    where
        't: 'a,
    {
        fields.iter().map(|field| self.value(data, *field)).collect()
    }

    fn string<'a>(&mut self, data: &'a [u8], field: Field) -> Option<&'a [u8]>
    where
        't: 'a,
    {
        match self.value(data, field)? {
            Value::Str { text, .. } | Value::Name { text, .. } => Some(text),
            _ => None,
        }
    }

    fn plain<'a>(&mut self, action: &'a Action, data: &'a [u8]) -> Option<Item<'a>>
    where
        't: 'a,
    {
        Some(match action {
            Action::Trace(field) => Item::Trace(self.value(data, *field)?),
            Action::Print(field, shape) => Item::Print {
                shape,
                bytes: match self.value(data, *field)? {
                    Value::Str { text, .. } | Value::Name { text, .. } => text,
                    _ => data.get(field.offset as usize..)?.get(..field.datum.size() as usize)?,
                },
            },
            Action::Tracemem { bytes, len } => {
                let from = bytes.offset as usize;
                let all = data.get(from..)?.get(..bytes.datum.size() as usize)?;
                // A run-time length of 0 or beyond the size means the whole object.
                let wanted = match len {
                    Some(field) => self.number(data, *field)?.as_unsigned(),
                    None => 0,
                };
                Item::Dump(match usize::try_from(wanted) {
                    Ok(n) if n > 0 && n <= all.len() => &all[..n],
                    _ => all,
                })
            }
            Action::Clear(agg) => Item::Clear(*agg),
            Action::Trunc(agg, count) => Item::Trunc(
                *agg,
                match count {
                    Some(field) => self.number(data, *field)?.as_signed(),
                    None => 0,
                },
            ),
            Action::Normalize(agg, field) => Item::Normalize(*agg, self.number(data, *field)?.bits),
            Action::Denormalize(agg) => Item::Denormalize(*agg),
            Action::Exit(field) => Item::Exit(self.number(data, *field)?.as_signed() as i32),
            Action::Ftruncate => Item::Ftruncate,
            Action::Setopt { name, value } => Item::Setopt {
                name: self.string(data, *name)?,
                value: match value {
                    Some(field) => Some(self.string(data, *field)?),
                    None => None,
                },
            },
            Action::None
            | Action::Printf { .. }
            | Action::Printa { .. }
            | Action::System { .. }
            | Action::Freopen { .. } => Item::Nothing,
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
