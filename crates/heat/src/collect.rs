//! The sink: what intervals have added to distributions.

use std::collections::HashMap;

use events::{AggFunc, AggValue, Clock, Event, Int, Interval, Sink, SinkError, Value, is_histogram};
use flame::{Frame, Kind, Loss, Unnamed, escape};

use crate::cells::{Cell, Cells};

/// The most counts in memory.
const MOST_CELLS: usize = 1 << 21;
/// The most keys of an aggregation with a name of their own: with fifty buckets each, memory has
/// some ten intervals of them.
pub(crate) const MOST_KEYS: usize = 1 << 12;
/// The most nodes of the tree of frames.
const MOST_NODES: usize = 1 << 18;
/// The most characters of a column of a key.
const LONGEST: usize = 1000;

/// A key: the texts of its columns that are no stacks, and a path of frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) texts: Vec<String>,
    /// A node of the tree of frames; 0 for no stack.
    pub(crate) node: u32,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// With its `@`.
    pub(crate) name: String,
    pub(crate) function: AggFunc,
    /// The expressions of the columns of the key that are no stacks.
    pub(crate) columns: Vec<String>,
    pub(crate) cells: Cells,
    pub(crate) keys: Vec<Key>,
    /// Values whose keys are `[other keys]`.
    pub(crate) others: u64,
    numbers: HashMap<Key, u32>,
    pub(crate) frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    /// Parent and frame of each node; the first is the root.
    pub(crate) nodes: Vec<(u32, u32)>,
    node_numbers: HashMap<(u32, u32), u32>,
}

impl Panel {
    fn new(name: String, function: AggFunc) -> Panel {
        Panel {
            name,
            function,
            columns: Vec::new(),
            cells: Cells::default(),
            keys: Vec::new(),
            others: 0,
            numbers: HashMap::new(),
            frames: Vec::new(),
            frame_numbers: HashMap::new(),
            nodes: vec![(0, 0)],
            node_numbers: HashMap::new(),
        }
    }

    /// What is drawn: `@[execname] = quantize()`.
    pub(crate) fn title(&self) -> String {
        let keys = match self.columns.is_empty() {
            true => String::new(),
            false => format!("[{}]", self.columns.join(", ")),
        };
        escape::name(format!("{}{keys} = {}()", self.name, self.function.name()).as_bytes())
    }

    /// The buckets of the function with their least and greatest values.
    pub(crate) fn ranges(&self) -> Vec<(Option<i64>, Option<i64>)> {
        let words: Vec<u64> = Vec::new();
        let (normal, cpus) = (1, Vec::new());
        AggValue { function: self.function, words: words.into(), normal, cpus, absent: false }.ranges()
    }

    /// The node of a frame below another. `None`: it is not there, and no more are made.
    fn node(&mut self, parent: u32, frame: Frame) -> Option<u32> {
        let Panel { frames, frame_numbers, nodes, node_numbers, numbers, .. } = self;
        if nodes.len() >= MOST_NODES || numbers.len() >= MOST_KEYS {
            let frame = *frame_numbers.get(&frame)?;
            return node_numbers.get(&(parent, frame)).copied();
        }
        let frame = *frame_numbers.entry(frame).or_insert_with_key(|frame| {
            frames.push(frame.clone());
            (frames.len() - 1) as u32
        });
        Some(*node_numbers.entry((parent, frame)).or_insert_with(|| {
            nodes.push((parent, frame));
            (nodes.len() - 1) as u32
        }))
    }

    /// The node of a key's stacks; 0 if it has none. `None`: there are too many.
    fn stacks(&mut self, values: &[Value<'_>], unnamed: Unnamed) -> Option<u32> {
        let mut node = 0;
        // Those of processes are outside of those of the kernel, which they have called.
        for of_process in [true, false] {
            let stacks = values.iter().filter_map(|v| if let Value::Stack(s) = v { Some(s) } else { None });
            for stack in stacks.filter(|stack| stack.process.is_some() == of_process) {
                for symbol in stack.frames.iter().rev() {
                    node = self.node(node, Frame::of(symbol, of_process, unnamed))?;
                }
            }
        }
        if node == 0 && values.iter().any(|v| matches!(v, Value::Stack(_))) {
            node = self.node(0, Frame { kind: Kind::Missing, name: "[no stack]".into() })?;
        }
        Some(node)
    }

    fn key(&mut self, names: &[String], values: &[Value<'_>], unnamed: Unnamed) -> u32 {
        let mut texts = Vec::new();
        let node = self.stacks(values, unnamed);
        for (n, value) in values.iter().enumerate() {
            if !matches!(value, Value::Stack(_)) {
                texts.push(text(names.get(n).map_or("", String::as_str), value));
            }
        }
        let key = node.map(|node| Key { texts, node });
        let key = key.filter(|key| self.numbers.len() < MOST_KEYS || self.numbers.contains_key(key));
        let key = key.unwrap_or_else(|| {
            self.others += 1;
            Key { texts: vec!["[other keys]".into()], node: 0 }
        });
        let Panel { numbers, keys, .. } = self;
        *numbers.entry(key).or_insert_with_key(|key| {
            keys.push(key.clone());
            (keys.len() - 1) as u32
        })
    }
}

/// The text of a column.
fn text(name: &str, value: &Value<'_>) -> String {
    let mut text: String = match value {
        Value::Int(int) if name.is_empty() => return Int::value(*int).to_string(),
        Value::Int(int) => return format!("{name}={}", Int::value(*int)),
        other => escape::value(other),
    };
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    if text.is_empty() { "\"\"".into() } else { text }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Heat {
    unnamed: Unnamed,
    pub(crate) panels: Vec<Panel>,
    pub(crate) loss: Loss,
    pub(crate) host: String,
    pub(crate) clock: Clock,
    /// A value was beyond what a page computes with.
    pub(crate) rounded: bool,
}

/// The greatest integer below which a page computes exactly.
const EXACT: u64 = 1 << 53;

impl Heat {
    /// A sink without heat maps.
    pub fn new(unnamed: Unnamed) -> Heat {
        Heat { unnamed, ..Heat::default() }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.panels.iter().all(|panel| panel.cells.buckets().is_none())
    }

    fn interval(&mut self, all: &Interval<'_>) {
        if !is_histogram(all.column.function) {
            return;
        }
        let name = all.column.title();
        let at = self.panels.iter().position(|panel| panel.name == name).unwrap_or_else(|| {
            self.panels.push(Panel::new(name, all.column.function));
            self.panels.len() - 1
        });
        let Some(panel) = self.panels.get_mut(at) else { return };
        let names: Vec<String> = all.keys.iter().map(|key| escape::name(key.as_bytes())).collect();
        if let Some(row) = all.rows.first().filter(|_| panel.columns.is_empty()) {
            let is_stack = |n: &usize| matches!(row.key.get(*n), Some(Value::Stack(_)));
            let others = (0..names.len()).filter(|n| !is_stack(n));
            panel.columns = others.filter_map(|n| names.get(n)).cloned().collect();
        }
        let mut cells = Vec::new();
        for row in &all.rows {
            let key = panel.key(&names, &row.key, self.unnamed);
            for (bucket, word) in (0..).zip(row.increment.words.iter()) {
                let count = *word as i64;
                self.rounded |= count.unsigned_abs() >= EXACT;
                if count != 0 {
                    cells.push(Cell { key, bucket, count });
                }
            }
        }
        if let Some(column) = panel.cells.column(all.begin, all.end) {
            column.cells.extend(cells);
            if all.part.last {
                column.complete();
            }
        }
        while self.panels.iter().map(|panel| panel.cells.size()).sum::<usize>() > MOST_CELLS {
            let before: usize = self.panels.iter().map(|panel| panel.cells.columns.len()).sum();
            self.panels.iter_mut().for_each(|panel| panel.cells.coarsen());
            if before <= self.panels.len() {
                break;
            }
        }
    }
}

impl Sink for Heat {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        match event {
            Event::Start(start) => {
                let host = &start.host;
                let text = format!("{}, Linux {} ({})", host.name, host.release, host.machine);
                self.host = escape::name(text.as_bytes());
                self.clock = start.clock;
            }
            Event::Interval(all) => self.interval(all),
            other => self.loss.event(other),
        }
        Ok(())
    }
}
