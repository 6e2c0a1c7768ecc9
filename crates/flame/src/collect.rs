//! The sink: rows of aggregations become profiles.
//!
//! A row has one stack or more and other columns. The other columns are the outermost frames, then
//! the frames of the process, then those of the kernel, which it has called. What an aggregation
//! delivers replaces what it delivered before: as text, each `printa()` shows the aggregation as it
//! is then.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use diagnostics::control;
use events::{
    AggValue, Aggregation, Column, Event, Int, Interval, Sink, SinkError, Stack, Symbol, SymbolName, Value,
};

use crate::escape;
use crate::loss::Loss;
use crate::mix::Table;
use crate::profile::{Frame, Kind, Limit, Profile};

/// The name of a frame without a symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unnamed {
    /// `object+0x1f40`, the address in the file, where it is known; else `` object`[unknown] ``:
    /// different addresses are one frame.
    #[default]
    Unknown,
    /// The address. For sessions in which no frame has a name (`-x noresolve`).
    Address,
}

/// An aggregation that cannot be drawn: a value is negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The aggregation, with its `@`.
    pub name: String,
    /// The value.
    pub value: i64,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { name, value } = self;
        write!(
            f,
            "cannot draw {}: the value of a stack is {value}, and the widths of frames are sums of values that are not negative",
            control::name_text(name)
        )
    }
}

impl std::error::Error for Refused {}

/// What the profiles of a session are compared with.
#[derive(Clone, Debug)]
pub enum Baseline {
    /// A profile of another session. If several aggregations are drawn, each is compared with the
    /// stacks below its name.
    Profile(Box<Profile>),
    /// An aggregation of the same session, by its name with the `@`. It is not drawn itself.
    Aggregation(String),
}

/// Object and symbol.
type Names = [Option<Arc<str>>; 2];

/// The numbers of frames by the places in memory of their names, which symbolizers share between
/// frames.
#[derive(Default)]
struct Numbers {
    /// By kind, object and symbol: the number, and the names, so that their places stay theirs.
    places: Table<(u32, usize, usize), (u32, Names)>,
}

impl Numbers {
    /// Names that are not shared would fill the memory.
    const MOST: usize = 1 << 17;

    /// The number of a frame with a name.
    fn number(&mut self, profile: &mut Profile, kind: Kind, symbol: &Symbol) -> u32 {
        let (module, function) = (&symbol.name.module, &symbol.name.symbol);
        let place = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.as_ptr() as usize);
        let key = (u32::from(kind.letter()), place(module), place(function));
        if let Some((number, _)) = self.places.get(&key) {
            return *number;
        }
        let number = profile.frame(Frame { kind, name: frame_name(symbol).into() });
        if self.places.len() >= Self::MOST {
            self.places.clear();
        }
        self.places.insert(key, (number, [module.clone(), function.clone()]));
        number
    }
}

/// See the [module](self).
#[derive(Default)]
pub struct Flame {
    unnamed: Unnamed,
    baseline: Option<Baseline>,
    profiles: Vec<Profile>,
    refused: Vec<Option<Refused>>,
    /// The numbers of frames in each profile, so that a frame's name is written once.
    numbers: Vec<Numbers>,
    /// The most frames of `stack()`, `ustack()` and `jstack()` without a number.
    most_frames: [u64; 3],
    loss: Loss,
    host: String,
    /// A row was added or removed since [`Flame::take_changed`].
    changed: bool,
}

impl Flame {
    /// The most frames of `stack()`, `ustack()` and `jstack()` without a number; 0 if it is not
    /// known. A picture tells which stacks have as many: their outer frames may be missing.
    pub fn set_most_frames(&mut self, most: [u64; 3]) {
        self.most_frames = most;
    }

    /// A sink without profiles.
    pub fn new(unnamed: Unnamed, baseline: Option<Baseline>) -> Flame {
        Flame { unnamed, baseline, ..Flame::default() }
    }

    /// Whether an event has rows with stacks, which are drawn.
    pub fn draws(event: &Event<'_>) -> bool {
        let Event::Aggregation(all) = event else { return false };
        all.rows.first().is_some_and(|row| has_stack(&row.key))
    }

    /// The profiles, in the order in which they came, without those that are refused.
    pub fn profiles(&self) -> Vec<&Profile> {
        let is_drawn = |profile: &Profile| match &self.baseline {
            Some(Baseline::Aggregation(name)) => profile.name != *name,
            _ => true,
        };
        let all = self.profiles.iter().zip(&self.refused);
        all.filter(|(profile, refused)| refused.is_none() && is_drawn(profile)).map(|(p, _)| p).collect()
    }

    /// The aggregations that cannot be drawn.
    pub fn refused(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().flatten()
    }

    /// Compares the profiles with the baseline, if there is one. False if the aggregation that is
    /// the baseline has no stacks.
    pub fn compare(&mut self) -> bool {
        let several = self.profiles.len() > 1;
        match &self.baseline {
            None => true,
            Some(Baseline::Profile(before)) => {
                for profile in &mut self.profiles {
                    match several {
                        true => profile.compare(&before.below(&profile.name)),
                        false => profile.compare(before),
                    }
                }
                true
            }
            Some(Baseline::Aggregation(name)) => {
                let Some(before) = self.profiles.iter().find(|p| p.name == *name).cloned() else {
                    return false;
                };
                let others = self.profiles.iter_mut().filter(|p| p.name != *name);
                others.for_each(|profile| profile.compare(&before));
                true
            }
        }
    }

    /// What was lost so far.
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The machine, in words; empty before the start.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether there are other rows since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn aggregation(&mut self, all: &Aggregation<'_>) {
        let draws = all.rows.iter().any(|row| has_stack(&row.key));
        for (n, column) in all.columns.iter().enumerate() {
            let Some(at) = self.place(column, draws) else { continue };
            self.changed = true;
            if all.part.first {
                self.restart(at, &all.keys, all.rows.first().map(|row| &*row.key), column);
            }
            for row in &all.rows {
                if let Some(value) = row.values.get(n).filter(|value| !value.absent) {
                    self.row(at, &row.key, value);
                }
            }
        }
    }

    /// Draws what an interval has added to an aggregation, in place of what was drawn of it.
    pub(crate) fn interval(&mut self, all: &Interval<'_>) {
        let draws = all.rows.iter().any(|row| has_stack(&row.key));
        let Some(at) = self.place(&all.column, draws) else { return };
        // The first parts may be drawn, and forgotten.
        let is_empty = self.profiles.get(at).is_some_and(|profile| profile.stacks == 0);
        if all.part.first || is_empty {
            self.restart(at, &all.keys, all.rows.first().map(|row| &*row.key), &all.column);
        }
        for row in &all.rows {
            self.row(at, &row.key, &row.increment);
        }
    }

    /// Nothing is drawn any more; what was lost is forgotten.
    pub(crate) fn clear(&mut self) {
        (self.profiles, self.refused, self.numbers) = Default::default();
        self.loss = Loss::default();
    }

    /// The profile of an aggregation; `None` if it has none and needs none.
    fn place(&mut self, column: &Column<'_>, draws: bool) -> Option<usize> {
        let name = column.title();
        if let Some(at) = self.profiles.iter().position(|p| p.name == name) {
            return Some(at);
        }
        if !draws {
            return None;
        }
        self.profiles.push(Profile::new(name.clone(), name, column.function.name()));
        self.refused.push(None);
        self.numbers.push(Numbers::default());
        Some(self.profiles.len() - 1)
    }

    fn restart(
        &mut self,
        at: usize,
        keys: &[Cow<'_, str>],
        first: Option<&[Value<'_>]>,
        column: &Column<'_>,
    ) {
        let Some(profile) = self.profiles.get_mut(at) else { return };
        let unit = column.function.name();
        let known = |names: &[Cow<'_, str>]| names.iter().all(|name| !name.is_empty());
        let title = match known(keys) && !keys.is_empty() {
            true => format!("{}[{}] = {unit}()", profile.name, keys.join(", ")),
            false => format!("{} = {unit}()", profile.name),
        };
        let title = escape::name(title.as_bytes());
        let name = profile.name.clone();
        *profile = Profile::new(title, name, unit);
        profile.limits = keys.iter().map(|key| limit(key, self.most_frames)).collect();
        let others = first.into_iter().flat_map(|key| key.iter().enumerate());
        profile.keys = others
            .filter(|(_, value)| !matches!(value, Value::Stack(_)))
            .map(|(n, _)| keys.get(n).map_or(String::new(), |key| escape::name(key.as_bytes())))
            .map(|key| if key.is_empty() { "key".into() } else { key })
            .collect();
        if let Some(refused) = self.refused.get_mut(at) {
            *refused = None;
        }
        if let Some(numbers) = self.numbers.get_mut(at) {
            *numbers = Numbers::default();
        }
    }

    fn row(&mut self, at: usize, key: &[Value<'_>], value: &AggValue<'_>) {
        let Flame { unnamed, profiles, refused, numbers, .. } = self;
        let (Some(profile), Some(refused), Some(numbers)) =
            (profiles.get_mut(at), refused.get_mut(at), numbers.get_mut(at))
        else {
            return;
        };
        let number = match value.number() {
            Some(number) => number,
            // A distribution has the number of its values.
            None => value.buckets().fold(0i64, |sum, (_, n)| sum.saturating_add(n)),
        };
        let Ok(number) = u64::try_from(number) else {
            refused.get_or_insert_with(|| Refused { name: profile.name.clone(), value: number });
            return;
        };
        if number == 0 {
            return;
        }
        let mut path = Vec::new();
        let mut others = key.iter().filter(|v| !matches!(v, Value::Stack(_)));
        for n in 0..profile.keys.len() {
            let column = profile.keys.get(n).map_or("", String::as_str);
            let name = others.next().map(|value| column_text(column, value)).unwrap_or_default();
            path.push(profile.frame(Frame { kind: Kind::Key, name: name.into() }));
        }
        let keys = path.len();
        let stacks = |kernel: bool| {
            let all = key.iter().filter_map(|v| if let Value::Stack(s) = v { Some(s) } else { None });
            all.filter(move |stack| stack.process.is_none() == kernel)
        };
        let mut incomplete = false;
        for stack in stacks(false).chain(stacks(true)) {
            incomplete |= push_stack(&mut path, profile, numbers, stack, *unnamed);
        }
        for (value, limit) in key.iter().zip(&profile.limits) {
            if let (Value::Stack(stack), Some(limit)) = (value, limit)
                && taken(stack) >= limit.frames
            {
                let cut = profile.cut.entry(limit.text.clone()).or_default();
                *cut = cut.saturating_add(number);
            }
        }
        if path.len() == keys {
            incomplete = true;
            path.push(profile.frame(Frame { kind: Kind::Missing, name: "[no stack]".into() }));
        }
        if incomplete {
            profile.incomplete = profile.incomplete.saturating_add(number);
        }
        profile.add_path(&path, number);
    }
}

fn has_stack(key: &[Value<'_>]) -> bool {
    key.iter().any(|value| matches!(value, Value::Stack(_)))
}

/// How many frames a column's stacks have at most, if its text says it.
fn limit(key: &str, most: [u64; 3]) -> Option<Limit> {
    let text = key.trim();
    let (function, arguments) = text.strip_suffix(')')?.split_once('(')?;
    let own = ["stack", "ustack", "jstack"].iter().position(|name| *name == function.trim())?;
    let frames = match arguments.split(',').next().unwrap_or_default().trim() {
        "" => most.get(own).copied().filter(|most| *most > 0)?,
        number => number.parse().ok()?,
    };
    Some(Limit { frames: usize::try_from(frames).ok()?, text: escape::name(text.as_bytes()) })
}

/// The frames of the processor that a stack was recorded with: without functions that were put
/// inline, and those of an interpreter.
fn taken(stack: &Stack) -> usize {
    let is_taken = |name: &SymbolName| !name.inlined && !name.interpreted && !name.is_incomplete();
    stack.frames.iter().filter(|symbol| is_taken(&symbol.name)).count()
}

/// The text of a column that is no stack: numbers with the expression that they are values of.
fn column_text(key: &str, value: &Value<'_>) -> String {
    let text = match value {
        Value::Int(int) => return format!("{key}={}", Int::value(*int)),
        Value::Str { text, .. } | Value::Name { text, .. } => escape::name(text),
        Value::Symbol(symbol) => escape::name(symbol.text().as_bytes()),
        Value::Bytes(bytes) => bytes.iter().take(64).map(|b| format!("{b:02x}")).collect(),
        _ => "?".into(),
    };
    if text.is_empty() { format!("{key}=\"\"") } else { text }
}

/// Appends the frames of a stack, the outermost first. True if it is known in part only.
fn push_stack(
    path: &mut Vec<u32>,
    profile: &mut Profile,
    numbers: &mut Numbers,
    stack: &Stack,
    unnamed: Unnamed,
) -> bool {
    let mut incomplete = false;
    let of_process = stack.process.is_some();
    for symbol in stack.frames.iter().rev() {
        incomplete |= symbol.name.is_incomplete();
        // Names that others share have their numbers.
        path.push(match symbol.name.interpreted || is_address(symbol, unnamed) {
            true => profile.frame(Frame::of(symbol, of_process, unnamed)),
            false => numbers.number(profile, kind(&symbol.name, of_process), symbol),
        });
    }
    incomplete
}

impl Frame {
    /// The frame of a symbol in a stack of a process, or of the kernel.
    pub fn of(symbol: &Symbol, of_process: bool, unnamed: Unnamed) -> Frame {
        let name = match symbol.name.interpreted {
            true => interpreted_name(&symbol.name),
            false if is_address(symbol, unnamed) => escape::name(symbol.text().as_bytes()),
            false => frame_name(symbol),
        };
        Frame { kind: kind(&symbol.name, of_process), name: name.into() }
    }
}

/// A frame without a symbol has no name that others could share, where it is an address.
fn is_address(symbol: &Symbol, unnamed: Unnamed) -> bool {
    symbol.name.symbol.is_none() && (unnamed == Unnamed::Address || symbol.name.in_file.is_some())
}

fn kind(name: &SymbolName, of_process: bool) -> Kind {
    match name {
        name if name.is_incomplete() => Kind::Missing,
        name if name.interpreted => Kind::Interpreted,
        name if name.inlined => Kind::Inlined,
        _ if of_process => Kind::User,
        _ => Kind::Kernel,
    }
}

fn frame_name(symbol: &Symbol) -> String {
    let text = match (&symbol.name.module, &symbol.name.symbol) {
        (Some(module), Some(function)) => format!("{module}`{function}"),
        (Some(module), None) => format!("{module}`[unknown]"),
        (None, Some(function)) => function.to_string(),
        (None, None) => "[unknown]".into(),
    };
    escape::name(text.as_bytes())
}

/// The name of a function of an interpreter: `function (file)`, without the directories of the
/// file. All its lines are one frame.
fn interpreted_name(name: &SymbolName) -> String {
    let function = name.symbol.as_deref().unwrap_or("[unknown]");
    let text = match &name.file {
        Some(file) => format!("{function} ({})", file.rsplit_once('/').map_or(&**file, |(_, base)| base)),
        None if name.symbol.is_some() => format!("{function} (?)"),
        None => function.to_string(),
    };
    escape::name(text.as_bytes())
}

impl Sink for Flame {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Start(start) => {
                let host = &start.host;
                let text = format!("{}, Linux {} ({})", host.name, host.release, host.machine);
                self.host = escape::name(text.as_bytes());
            }
            Event::Aggregation(all) => self.aggregation(all),
            other => self.loss.event(other),
        }
        Ok(())
    }
}
