//! The tree of frames.
//!
//! A node is a path from the root. The root has no frame and stands for everything. Nodes are in
//! one vector, a parent before its children, so sums need no recursion.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::mix::Table;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A column of the key that is no stack: `execname`.
    Key,
    /// A function of a process.
    User,
    /// A function of a process that the compiler has put inline into the one around it.
    Inlined,
    /// A function of an interpreter, which the function of the process inside of it runs.
    Interpreted,
    /// A function of the kernel.
    Kernel,
    /// It stands for frames that are not known: `[incomplete]`.
    Missing,
}

impl Kind {
    /// Its letter in the data of a picture.
    pub fn letter(self) -> char {
        match self {
            Kind::Key => 'y',
            Kind::User => 'u',
            Kind::Inlined => 'i',
            Kind::Interpreted => 'p',
            Kind::Kernel => 'k',
            Kind::Missing => 'x',
        }
    }
}

/// The names of frames that are [missing](Kind::Missing).
pub(crate) const MISSING: [&str; 3] = ["[incomplete]", "[no stack]", "[deeper]"];

/// A frame with its name, by which frames of different addresses are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// `` object`function ``, `function (file)` of an interpreter, or the text of a column.
    pub name: Arc<str>,
}

impl Frame {
    /// What contains the function, and the function: the object, or the file of an interpreter's.
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        let parts = match self.kind {
            Kind::User | Kind::Inlined | Kind::Kernel => self.name.split_once('`'),
            // That of a function has no space, unless a program gives it one; that of a file may
            // have some.
            Kind::Interpreted => {
                let parts = self.name.strip_suffix(')').and_then(|name| name.split_once(" ("));
                parts.map(|(function, file)| (file, function))
            }
            Kind::Key | Kind::Missing => None,
        };
        match (parts, self.kind) {
            (Some((container, function)), _) => (Some(container), function),
            (None, Kind::Kernel) => (Some("[kernel]"), &self.name),
            (None, _) => (None, &self.name),
        }
    }
}

/// The value of a column of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyValue<'a> {
    Number(i64),
    Text(&'a str),
}

impl<'a> KeyValue<'a> {
    /// From the name of its [frame](Kind::Key): a number has the expression before it, and so has
    /// the empty text. What a number would not be written as is a text.
    pub(crate) fn of(key: &str, name: &'a str) -> KeyValue<'a> {
        let value = name.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
        match (value, value.and_then(|value| value.parse::<i64>().ok())) {
            (Some("\"\""), _) => KeyValue::Text(""),
            (Some(value), Some(number)) if number.to_string() == value => KeyValue::Number(number),
            // Beyond 63 bits.
            (Some(value), None) if value.parse::<u64>().is_ok_and(|n| n.to_string() == value) => {
                KeyValue::Text(value)
            }
            _ => KeyValue::Text(name),
        }
    }
}

/// Which of the two profiles of a difference a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The profile that is drawn.
    Now,
    /// The one that it is compared with.
    Before,
}

/// A path from the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    pub(crate) frame: u32,
    /// The values of stacks that end here.
    pub(crate) own: u64,
    pub(crate) own_before: u64,
}

/// The root of all paths. It has no frame.
pub(crate) const ROOT: u32 = 0;
/// The number of no frame.
pub(crate) const NO_FRAME: u32 = u32::MAX;

/// The greatest number of frames of a stack. What is inside of them is one frame.
const DEEPEST: usize = 1024;

/// The most frames of the stacks of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) frames: usize,
    /// What asks for them: `ustack(5)`.
    pub(crate) text: String,
}

/// Stacks with values: one aggregation.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What is drawn: `@[execname, ustack()] = count()`.
    pub(crate) title: String,
    /// The name of the aggregation, with its `@`.
    pub(crate) name: String,
    /// What the values are: the name of the aggregating function.
    pub(crate) unit: String,
    /// The expressions of the columns that are no stacks, in the order of their frames.
    pub(crate) keys: Vec<String>,
    /// The stacks that were added, and the value of those that are known in part only.
    pub(crate) stacks: u64,
    pub(crate) incomplete: u64,
    /// Where stacks have as many frames as were asked for: what was asked for, by columns of the
    /// key, and their value.
    pub(crate) limits: Vec<Option<Limit>>,
    pub(crate) cut: BTreeMap<String, u64>,
    /// It is compared with another one.
    pub(crate) compared: bool,
    frames: Vec<Frame>,
    numbers: HashMap<Frame, u32>,
    nodes: Vec<Node>,
    children: Table<(u32, u32), u32>,
}

impl Profile {
    /// A profile without stacks: the text of the aggregation, its name and what its values are.
    pub fn new(title: impl Into<String>, name: impl Into<String>, unit: impl Into<String>) -> Profile {
        let root = Node { parent: ROOT, frame: NO_FRAME, own: 0, own_before: 0 };
        Profile {
            title: title.into(),
            name: name.into(),
            unit: unit.into(),
            keys: Vec::new(),
            stacks: 0,
            incomplete: 0,
            limits: Vec::new(),
            cut: BTreeMap::new(),
            compared: false,
            frames: Vec::new(),
            numbers: HashMap::new(),
            nodes: vec![root],
            children: Table::default(),
        }
    }

    /// The number of a frame.
    pub(crate) fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(number) = self.numbers.get(&frame) {
            return *number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame, number);
        number
    }

    /// The frames by their numbers.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The nodes, each after its parent.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a stack with its value, the outermost frame first.
    pub fn add(&mut self, stack: &[Frame], value: u64) {
        let path: Vec<u32> = stack.iter().map(|frame| self.frame(frame.clone())).collect();
        self.add_path(&path, value);
    }

    /// Adds a stack of frames by their numbers.
    pub(crate) fn add_path(&mut self, path: &[u32], value: u64) {
        let beyond = path.len() > DEEPEST;
        let deeper = beyond.then(|| self.frame(Frame { kind: Kind::Missing, name: "[deeper]".into() }));
        let kept = path.iter().copied().take(if beyond { DEEPEST - 1 } else { DEEPEST });
        let mut at = ROOT;
        for frame in kept.chain(deeper) {
            at = self.child(at, frame);
        }
        self.stacks += 1;
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.own = node.own.saturating_add(value);
        }
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let Profile { nodes, children, .. } = self;
        *children.entry((parent, frame)).or_insert_with(|| {
            nodes.push(Node { parent, frame, own: 0, own_before: 0 });
            (nodes.len() - 1) as u32
        })
    }

    /// Compares with a profile: its values become those of [`Side::Before`].
    ///
    /// A file of folded stacks tells frames of the kernel from others, and no more. So other frames
    /// are the same if their names are.
    pub fn compare(&mut self, before: &Profile) {
        self.compared = true;
        self.nodes.iter_mut().for_each(|node| node.own_before = 0);
        let mut places: Vec<u32> = vec![ROOT];
        for node in before.nodes() {
            let at = match before.frames.get(node.frame as usize) {
                None => ROOT,
                Some(frame) => {
                    let parent = places.get(node.parent as usize).copied().unwrap_or(ROOT);
                    let at = self.child_like(parent, frame);
                    places.push(at);
                    at
                }
            };
            if let Some(here) = self.nodes.get_mut(at as usize) {
                here.own_before = here.own_before.saturating_add(node.own);
            }
        }
    }

    fn child_like(&mut self, parent: u32, frame: &Frame) -> u32 {
        let kinds = match frame.kind {
            Kind::Kernel => &[Kind::Kernel][..],
            _ => &[Kind::User, Kind::Inlined, Kind::Interpreted, Kind::Key, Kind::Missing][..],
        };
        let known = kinds.iter().find_map(|kind| {
            let number = self.numbers.get(&Frame { kind: *kind, name: frame.name.clone() })?;
            self.children.get(&(parent, *number)).copied()
        });
        known.unwrap_or_else(|| {
            let number = self.frame(frame.clone());
            self.child(parent, number)
        })
    }

    /// The sums of all nodes with what is below them.
    pub(crate) fn totals(&self, side: Side) -> Vec<u64> {
        let own = |node: &Node| if side == Side::Now { node.own } else { node.own_before };
        let mut totals: Vec<u64> = self.nodes.iter().map(own).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let value = totals.get(at).copied().unwrap_or(0);
            if let Some(parent) = totals.get_mut(node.parent as usize) {
                *parent = parent.saturating_add(value);
            }
        }
        totals
    }

    /// The sum of everything.
    pub fn total(&self) -> u64 {
        self.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.own))
    }

    /// The frames of a node, the outermost first.
    pub(crate) fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(node) = self.nodes.get(at as usize).filter(|node| node.frame != NO_FRAME) {
            path.push(node.frame);
            at = node.parent;
        }
        path.reverse();
        path
    }

    /// The stacks whose outermost frame has this name, without that frame: one of several profiles
    /// that were written to one file. All of them if there are none.
    pub fn below(&self, name: &str) -> Profile {
        let mut part = Profile::new(self.title.clone(), self.name.clone(), self.unit.clone());
        for (path, value) in self.each() {
            let frames: Vec<Frame> =
                path.iter().filter_map(|n| self.frames.get(*n as usize)).cloned().collect();
            if let Some((_, rest)) = frames.split_first().filter(|(first, _)| &*first.name == name) {
                part.add(rest, value);
            }
        }
        if part.stacks == 0 { self.clone() } else { part }
    }

    /// The stacks with a value, as numbers of frames: the outermost first.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Vec<u32>, u64)> + '_ {
        let valued = self.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
        valued.map(|(at, node)| (self.path(at as u32), node.own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &str) -> Vec<Frame> {
        names.split(';').map(|n| Frame { kind: Kind::User, name: n.into() }).collect()
    }

    #[test]
    fn equal_paths_are_one_and_parents_have_the_sum_of_their_children() {
        let mut p = Profile::new("@", "@", "count");
        for (names, value) in [("a;b", 3), ("a;c", 4), ("a", 1), ("a;b", 2)] {
            p.add(&stack(names), value);
        }
        assert_eq!(p.nodes().len(), 4);
        assert_eq!(p.totals(Side::Now), [10, 10, 5, 4]);
        assert_eq!((p.total(), p.stacks), (10, 4));
    }

    #[test]
    fn a_text_that_looks_like_a_number_is_a_text() {
        let of = |name| KeyValue::of("k", name);
        assert_eq!(["k=5", "k=-1", "k=0"].map(of), [5, -1, 0].map(KeyValue::Number));
        let texts = ["5", "+5", "k=foo", "k=0012", "k=-0", "k=+5", "x=5", "k"];
        assert_eq!(texts.map(of), texts.map(KeyValue::Text));
        assert_eq!(of("k=\"\""), KeyValue::Text(""));
        assert_eq!(of("k=18446744073709551615"), KeyValue::Text("18446744073709551615"));
    }

    #[test]
    fn a_comparison_knows_other_frames_than_the_kernels_by_name() {
        let mut now = Profile::new("@", "@", "count");
        now.add(&[Frame { kind: Kind::Key, name: "sh".into() }, stack("f").remove(0)], 5);
        let mut before = Profile::new("@", "@", "count");
        before.add(&stack("sh;f"), 2);
        before.add(&stack("sh;g"), 1);
        now.compare(&before);
        assert_eq!(now.totals(Side::Before), [3, 3, 2, 1]);
        assert_eq!(now.totals(Side::Now), [5, 5, 5, 0]);
    }

    #[test]
    fn a_stack_that_is_too_deep_has_its_value_at_one_frame() {
        let mut p = Profile::new("@", "@", "count");
        p.add(&vec![stack("f").remove(0); 5000], 7);
        assert_eq!((p.nodes().len(), p.total()), (DEEPEST + 1, 7));
    }

    #[test]
    fn sums_beyond_64_bits_stay_at_the_greatest_number() {
        let mut p = Profile::new("@", "@", "sum");
        p.add(&stack("a;b"), u64::MAX);
        p.add(&stack("a;c"), u64::MAX);
        assert_eq!(p.totals(Side::Now), [u64::MAX, u64::MAX, u64::MAX, u64::MAX]);
    }
}
