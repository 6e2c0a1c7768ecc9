//! The series: what intervals have added, by aggregation and key.

use std::collections::BTreeMap;
use std::io;

use diagnostics::control;
use events::{
    AggFunc, Clock, DropKind, Event, Growth, Interval, SinkError, Value, buckets, is_histogram, scalar,
};

use crate::names;

/// The most series.
pub(crate) const MOST_SERIES: usize = 10_000;
/// The most memory of all series, in bytes.
const MOST_BYTES: usize = 32 << 20;
/// The most text, in bytes: a distribution has a line for each of its buckets.
pub(crate) const MOST_TEXT: usize = 16 << 20;
/// What a line of text has besides the name, the labels and the host.
const LINE_BYTES: usize = 64;
/// What a series takes besides its labels and words.
const SERIES_BYTES: usize = 120;
/// The most aggregations. A session has fewer; stored events may say anything.
const MOST_FAMILIES: usize = 1000;

/// What a reader of metrics may do with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It never falls.
    Counter,
    /// It is a state.
    Gauge,
    /// Counts of buckets, which never fall.
    Histogram,
}

/// Why an aggregation, or a part of it, has no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// There are too many series.
    Limit,
    /// A stack is in the key.
    Stack,
    /// A weight of a distribution is negative, so its counts fall.
    Negative,
}

impl Reason {
    const ALL: [Reason; 3] = [Reason::Limit, Reason::Stack, Reason::Negative];

    fn name(self) -> &'static str {
        match self {
            Reason::Limit => "limit",
            Reason::Stack => "stack",
            Reason::Negative => "negative",
        }
    }
}

/// A key of an aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What was aggregated since the start, in the words of the function.
    pub(crate) total: Box<[u64]>,
    /// What was aggregated since [`Model::settle`]; empty for nothing.
    pub(crate) increment: Vec<u64>,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// A name of letters, digits and `_`, unlike that of every other family.
    pub(crate) name: String,
    /// `@[execname] = count()`
    pub(crate) title: String,
    pub(crate) function: AggFunc,
    pub(crate) kind: Kind,
    labels: Vec<String>,
    /// The bytes of the labels of all series.
    label_bytes: usize,
    /// By their labels, as the format writes them.
    pub(crate) series: BTreeMap<Box<[u8]>, Series>,
    /// The first and the last bucket that has a value for any key.
    pub(crate) buckets: Option<(usize, usize)>,
    refused: Option<Reason>,
}

impl Family {
    fn new(name: String, title: String, function: AggFunc, kind: Kind, labels: Vec<String>) -> Family {
        let (series, buckets, refused, label_bytes) = (BTreeMap::new(), None, None, 0);
        Family { name, title, function, kind, labels, label_bytes, series, buckets, refused }
    }

    /// The series that have grown since [`Model::settle`].
    pub(crate) fn grown(&self) -> impl Iterator<Item = (&[u8], &Series)> {
        let all = self.series.iter().filter(|(_, series)| !series.increment.is_empty());
        all.map(|(labels, series)| (&**labels, series))
    }

    pub(crate) fn has_grown(&self) -> bool {
        self.grown().next().is_some()
    }

    /// The first and the last bucket that has a value, with these words.
    fn buckets_with(&self, words: &[u64]) -> Option<(usize, usize)> {
        if self.kind != Kind::Histogram {
            return None;
        }
        let first = words.iter().position(|word| *word != 0);
        let last = words.iter().rposition(|word| *word != 0);
        match (first, last, self.buckets) {
            (Some(first), Some(last), Some((a, b))) => Some((a.min(first), b.max(last))),
            (Some(first), Some(last), None) => Some((first, last)),
            (.., before) => before,
        }
    }

    /// The most bytes of its text with so many series and so many bytes of labels, with lines for
    /// these buckets.
    fn text(&self, series: usize, labels: usize, buckets: Option<(usize, usize)>, host: usize) -> usize {
        let of_series = match (self.kind, buckets) {
            (Kind::Histogram, Some((first, last))) => last - first + 2,
            _ => 1,
        };
        of_series * (labels + series * (self.name.len() + LINE_BYTES + host))
    }

    /// The number that text prints of these words; of a counter without a sign.
    pub(crate) fn number(&self, words: &[u64]) -> i128 {
        match self.kind {
            Kind::Counter => i128::from(words.first().copied().unwrap_or(0)),
            _ => i128::from(scalar(self.function, words, 1)),
        }
    }

    /// The least and the greatest value of each bucket.
    pub(crate) fn ranges(&self) -> Vec<(Option<i64>, Option<i64>)> {
        let (words, cpus) = (Vec::new().into(), Vec::new());
        events::AggValue { function: self.function, words, normal: 1, cpus, absent: false }.ranges()
    }

    /// The buckets whose values have an end, with their numbers and their greatest integers. (What
    /// is in no other bucket has none.) Readers have these as floating-point numbers. Where those
    /// round, above 2^53, steps are longer than what they round by: of the greatest magnitude of
    /// `llquantize()` with the most steps 2^37, and of `lquantize()` no bound is above 2^31.
    pub(crate) fn ends(&self) -> Vec<(usize, i64)> {
        let ends = self.used(self.ranges()).into_iter();
        ends.filter_map(|(n, (_, greatest))| Some((n, greatest?))).collect()
    }

    /// The buckets that may have a value for some key, with their numbers.
    pub(crate) fn used<T>(&self, all: Vec<T>) -> Vec<(usize, T)> {
        let (first, last) = self.buckets.unwrap_or((1, 0));
        all.into_iter().enumerate().filter(|(n, _)| (first..=last).contains(n)).collect()
    }

    /// The labels of its buckets, as text has them.
    pub(crate) fn bucket_labels(&self) -> Vec<(usize, String)> {
        use events::Bucket::{AtLeast, Below, From};
        let label = |bucket| match bucket {
            Below(value) => format!("lt_{value}"),
            From(value) => value.to_string(),
            AtLeast(value) => format!("ge_{value}"),
        };
        self.used(buckets(self.function)).into_iter().map(|(n, bucket)| (n, label(bucket))).collect()
    }
}

/// How a format writes the labels of a series of a kind, by names and values.
pub(crate) type Labels = fn(Kind, &[String], &[String]) -> Vec<u8>;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Model {
    labels: Labels,
    /// Those of the exporter itself, and then those of aggregations in their order.
    pub(crate) families: Vec<Family>,
    /// The families of aggregations by name.
    numbers: BTreeMap<String, usize>,
    /// What the families of aggregations are called, by their names. Those without rows have one
    /// too, since intervals name them in the program's order: what a family is called does not
    /// depend on which of them has rows first.
    names: BTreeMap<String, String>,
    series: usize,
    bytes: usize,
    text: usize,
    /// As it is.
    pub(crate) host: String,
    /// When the session began, in nanoseconds since 1970.
    start: u64,
    /// The newest pair of times.
    clock: Clock,
    /// When the last interval ended, in nanoseconds since 1970; 0 before.
    pub(crate) time: u64,
    /// The time of the last thing that has grown.
    latest: u64,
    /// Something has, until a format has written it.
    pub(crate) grown: bool,
    /// What was left out and not said.
    said: Vec<String>,
    limited: bool,
}

const LOST: usize = 0;
const LEFT_OUT: usize = 1;

impl Model {
    pub(crate) fn new(labels: Labels) -> Model {
        let own = |name: &str, title: &str, label: &str| {
            let labels = vec![label.to_string()];
            Family::new(name.into(), title.into(), AggFunc::Count, Kind::Counter, labels)
        };
        let lost =
            own("exporter_lost", "What is missing in the aggregations, and errors in clauses.", "kind");
        let left_out = own("exporter_left_out", "Rows of aggregations that are in no series.", "reason");
        let mut model = Model {
            labels,
            families: vec![lost, left_out],
            numbers: BTreeMap::new(),
            names: BTreeMap::new(),
            series: 0,
            bytes: 0,
            text: 0,
            host: String::new(),
            start: 0,
            clock: Clock::default(),
            time: 0,
            latest: 0,
            grown: false,
            said: Vec::new(),
            limited: false,
        };
        // They begin with 0, so that the first loss is seen as a change.
        DropKind::ALL.into_iter().for_each(|kind| model.dropped(kind, 0, None));
        ["suppressed", "error"].into_iter().for_each(|kind| model.add(LOST, kind, 0));
        Reason::ALL.into_iter().for_each(|reason| model.add(LEFT_OUT, reason.name(), 0));
        model.settle_own();
        model.grown = false;
        model
    }

    /// Adds to a counter of its own.
    fn add(&mut self, family: usize, value: &str, n: u64) {
        let Some(family) = self.families.get_mut(family) else { return };
        let labels = (self.labels)(family.kind, &family.labels, &[value.to_string()]).into_boxed_slice();
        let new = || Series { total: [0].into(), increment: Vec::new() };
        family.series.entry(labels).or_insert_with(new).add(AggFunc::Count, &[n]);
        self.grown = true;
    }

    /// Something was lost, perhaps at a time of the session.
    fn lost(&mut self, kind: &str, n: u64, time: Option<u64>) {
        self.latest = time.map_or(self.latest, |time| self.latest.max(self.clock.wall_at(time)));
        self.add(LOST, kind, n);
    }

    fn dropped(&mut self, kind: DropKind, n: u64, time: Option<u64>) {
        if let Some(words) = kind.words() {
            self.lost(&words.tag.to_ascii_lowercase(), n, time);
        }
    }

    /// Receives an event. The family that an interval has added to, once all of its rows are
    /// there.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Option<usize> {
        match event {
            Event::Start(start) => {
                self.host = start.host.name.clone().into_owned();
                self.clock = start.clock;
                (self.start, self.latest) = (start.clock.wall, start.clock.wall);
            }
            Event::Interval(all) => return self.interval(all).filter(|_| all.part.last),
            Event::Drop(drop) => self.dropped(drop.kind, drop.count, drop.time),
            Event::Suppressed(suppressed) => self.lost("suppressed", suppressed.count, suppressed.time),
            Event::Fault(fault) => self.lost("error", fault.count, Some(fault.time)),
            _ => {}
        }
        None
    }

    /// When the session began, and the time of what has grown, in nanoseconds since 1970.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.start, self.latest)
    }

    /// The exporter's own counters that have grown.
    pub(crate) fn own(&self) -> impl Iterator<Item = usize> + use<> {
        let grown = [LOST, LEFT_OUT].map(|at| self.families.get(at).is_some_and(Family::has_grown));
        [LOST, LEFT_OUT].into_iter().zip(grown).filter_map(|(at, grown)| grown.then_some(at))
    }

    fn settle_own(&mut self) {
        [LOST, LEFT_OUT].into_iter().for_each(|at| self.settle(at));
    }

    /// The increments of all aggregations begin anew.
    pub(crate) fn settle_aggregations(&mut self) {
        (LEFT_OUT + 1..self.families.len()).for_each(|family| self.settle(family));
    }

    /// Whether a family is of the exporter itself.
    pub(crate) fn is_own(family: usize) -> bool {
        family <= LEFT_OUT
    }

    /// The increments of all families begin anew.
    pub(crate) fn settle_all(&mut self) {
        (0..self.families.len()).for_each(|family| self.settle(family));
    }

    /// The increments of a family begin anew.
    pub(crate) fn settle(&mut self, family: usize) {
        let series = self.families.get_mut(family).into_iter().flat_map(|family| family.series.values_mut());
        series.for_each(|series| series.increment.clear());
    }

    /// An error once for each kind of rows that are in no series: what they are, and what would be
    /// in one.
    pub(crate) fn complete(&mut self) -> Result<(), SinkError> {
        if self.said.is_empty() {
            return Ok(());
        }
        Err(SinkError::Effect(io::Error::other(std::mem::take(&mut self.said).join("; "))))
    }

    fn leave_out(&mut self, reason: Reason, rows: usize) {
        // Nothing has grown then.
        if rows == 0 {
            return;
        }
        self.add(LEFT_OUT, reason.name(), rows as u64);
        if reason == Reason::Limit && !self.limited {
            self.limited = true;
            self.said.push(format!(
                "what is beyond {MOST_SERIES} series, or {} MB of text, is left out and counted: a key with fewer values has fewer",
                MOST_TEXT >> 20
            ));
        }
    }

    /// When an interval ends, in nanoseconds since 1970.
    pub(crate) fn end(&self, all: &Interval<'_>) -> u64 {
        self.clock.wall_at_end(all)
    }

    fn interval(&mut self, all: &Interval<'_>) -> Option<usize> {
        self.time = self.end(all);
        // The clock of the start says it no more where the machine has slept since.
        self.clock = Clock { time: all.end, wall: self.time };
        self.latest = self.time;
        // No series ends before it has begun, where the clock was set back.
        self.start = self.start.min(self.latest);
        let known = self.numbers.get(&*all.column.name).copied();
        let Some(at) = known.or_else(|| self.family(all)) else {
            self.leave_out(Reason::Limit, all.rows.len());
            return None;
        };
        for (n, row) in all.rows.iter().enumerate() {
            match self.row(at, row) {
                Ok(()) => {}
                Err(Reason::Limit) => self.leave_out(Reason::Limit, 1),
                Err(reason) => {
                    self.refuse(at, reason);
                    self.leave_out(reason, all.rows.len() - n);
                    break;
                }
            }
        }
        Some(at)
    }

    /// The family of an aggregation that is new.
    fn family(&mut self, all: &Interval<'_>) -> Option<usize> {
        let function = all.column.function;
        let name = self.name(&all.column.name, function)?;
        // An aggregation without rows may get other names of keys by a program that comes later.
        if self.families.len() >= MOST_FAMILIES || all.rows.is_empty() {
            return None;
        }
        let kind = match function {
            AggFunc::Count => Kind::Counter,
            AggFunc::Sum if all.unsigned => Kind::Counter,
            _ if is_histogram(function) => Kind::Histogram,
            _ => Kind::Gauge,
        };
        let keys = if all.keys.is_empty() { String::new() } else { format!("[{}]", all.keys.join(", ")) };
        let title = format!("{}{keys} = {}()", all.column.title(), function.name());
        let title = control::name(title.as_bytes()).chars().take(1000).collect();
        let labels = names::labels(&all.keys);
        self.families.push(Family::new(name, title, function, kind, labels));
        self.numbers.insert(all.column.name.clone().into_owned(), self.families.len() - 1);
        Some(self.families.len() - 1)
    }

    /// What the family of an aggregation is called; `None` beyond the limit of families.
    fn name(&mut self, aggregation: &str, function: AggFunc) -> Option<String> {
        if let Some(name) = self.names.get(aggregation) {
            return Some(name.clone());
        }
        if self.names.len() >= MOST_FAMILIES {
            return None;
        }
        let name = names::identifier(aggregation);
        // Formats put it behind the names of counters.
        let name = name.strip_suffix("_total").unwrap_or(&name);
        let name = self.unlike_others(if name.is_empty() { function.name() } else { name });
        self.names.insert(aggregation.to_string(), name.clone());
        Some(name)
    }

    /// A name whose samples are not those of another family, whatever suffixes formats add.
    fn unlike_others(&self, base: &str) -> String {
        const SUFFIXES: [&str; 6] = ["", "_total", "_created", "_bucket", "_count", "_sum"];
        // A gauge of the exporter, which is no family.
        let own = ["exporter_time_seconds"].into_iter();
        let is_like = |a: &str, b: &str| {
            let rest = a.strip_prefix(b).or_else(|| b.strip_prefix(a));
            rest.is_some_and(|rest| SUFFIXES.contains(&rest))
        };
        let mut name = base.to_string();
        let mut more = 2;
        while [LOST, LEFT_OUT]
            .iter()
            .filter_map(|at| Some(&*self.families.get(*at)?.name))
            .chain(self.names.values().map(String::as_str))
            .chain(own.clone())
            .any(|other| is_like(other, &name))
        {
            name = format!("{base}_{more}");
            more += 1;
        }
        name
    }

    /// Adds a row.
    fn row(&mut self, at: usize, row: &Growth<'_>) -> Result<(), Reason> {
        let Some(family) = self.families.get_mut(at) else { return Ok(()) };
        if let Some(reason) = family.refused {
            return Err(reason);
        }
        if row.key.iter().any(|value| matches!(value, Value::Stack(_))) {
            return Err(Reason::Stack);
        }
        let words = &row.increment.words;
        if family.kind == Kind::Histogram && words.iter().any(|word| (*word as i64) < 0) {
            return Err(Reason::Negative);
        }
        let values: Vec<String> = row.key.iter().map(names::value).collect();
        let labels = (self.labels)(family.kind, &family.labels, &values).into_boxed_slice();
        let is_new = !family.series.contains_key(&labels);
        let more = if is_new { labels.len() } else { 0 };
        let (n, host) = (family.series.len(), self.host.len());
        let before = family.text(n, family.label_bytes, family.buckets, host);
        let text_with = |buckets| {
            let after = family.text(n + usize::from(is_new), family.label_bytes + more, buckets, host);
            self.text + after.saturating_sub(before)
        };
        let wide = family.buckets_with(words);
        // A bucket for which there is no space has no line. Its counts are in the sums of those
        // that have one, where a format has sums.
        let is_narrow = text_with(wide) > MOST_TEXT;
        let buckets = if is_narrow { family.buckets } else { wide };
        let text = text_with(buckets);
        // The words are there twice.
        let bytes = if is_new { more + 16 * words.len() + SERIES_BYTES } else { 0 };
        if text > MOST_TEXT || self.bytes + bytes > MOST_BYTES || is_new && self.series >= MOST_SERIES {
            return Err(Reason::Limit);
        }
        (self.series, self.bytes, self.text) = (self.series + usize::from(is_new), self.bytes + bytes, text);
        (family.label_bytes, family.buckets) = (family.label_bytes + more, buckets);
        self.grown = true;
        match family.series.get_mut(&labels) {
            Some(series) => series.add(family.function, words),
            None => {
                let (total, increment) = (words.to_vec().into_boxed_slice(), words.to_vec());
                family.series.insert(labels, Series { total, increment });
            }
        }
        if is_narrow { Err(Reason::Limit) } else { Ok(()) }
    }

    fn refuse(&mut self, at: usize, reason: Reason) {
        let Some(family) = self.families.get_mut(at) else { return };
        let why = match reason {
            Reason::Stack => {
                "a stack is no label; func(), mod() or execname is one, and --flame draws stacks"
            }
            Reason::Negative => {
                "with negative weights the counts of a distribution fall; those of sum() may, as a gauge"
            }
            Reason::Limit => return,
        };
        if family.refused.is_none() {
            self.said.push(format!("{} is left out: {why}", family.title));
        }
        family.refused = Some(reason);
        // They remain counted: a program does not get more series by what is refused.
        family.series.clear();
    }
}

/// The counts up to the end of each bucket (its number and its end), and of all.
pub(crate) fn cumulative<T>(words: &[u64], ends: &[(usize, T)]) -> Vec<u64> {
    let sum = |count: u64, words: Option<&[u64]>| {
        words.unwrap_or_default().iter().fold(count, |sum, word| sum.saturating_add(*word))
    };
    let (mut next, mut count) = (0, 0);
    let mut out = Vec::with_capacity(ends.len() + 1);
    for (last, _) in ends {
        count = sum(count, words.get(next..=*last));
        out.push(count);
        next = last + 1;
    }
    out.push(sum(count, words.get(next..)));
    out
}

impl Series {
    fn add(&mut self, function: AggFunc, words: &[u64]) {
        plane::table::merge(function, &mut self.total, words);
        if self.increment.is_empty() {
            self.increment = words.to_vec();
        } else {
            plane::table::merge(function, &mut self.increment, words);
        }
    }
}
