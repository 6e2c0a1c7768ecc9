//! What is shown, and what keys do.

use std::cmp::Ordering;
use std::collections::VecDeque;

use events::{Event, Sink, SinkError};
use flame::escape;

use crate::keyboard::Key;
use crate::model::{Model, Panel, Row};
use crate::narrow::Narrowing;

/// The most lines of printed text that are kept.
const MOST_LINES: usize = 1000;
/// The longest of them, in bytes.
const LONGEST_LINE: usize = 4096;

/// What the user asks of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: what is shown may have changed.
    Nothing,
    /// Everything is drawn again.
    Redraw,
    /// The end.
    Quit,
    /// The shell, for a while.
    Suspend,
    /// A narrower question.
    Narrow(Narrowing),
    /// The question before.
    Widen,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    /// An aggregation; what was printed where there is none.
    #[default]
    Table,
    /// What was printed.
    Text,
    /// The program.
    Program,
    /// What keys do.
    Help,
}

/// See the [module](crate).
#[derive(Debug, Default)]
pub struct Live {
    model: Model,
    /// What is shown while the user looks at it.
    paused: Option<Model>,
    pub(crate) pane: Pane,
    panel: usize,
    /// The column by which rows are sorted: those of the key, the total, the last interval. `None`:
    /// the total.
    sort: Option<usize>,
    pub(crate) reversed: bool,
    pub(crate) selected: Option<usize>,
    /// How many rows, or lines, are above the first that is shown.
    pub(crate) top: usize,
    /// How many rows are shown.
    pub(crate) height: usize,
    pub(crate) filter: String,
    /// The filter is being written.
    pub(crate) editing: bool,
    pub(crate) message: Option<String>,
    /// The lines of the program.
    pub(crate) program: Vec<String>,
    /// How often the question was narrowed.
    pub(crate) depth: usize,
    pub(crate) lines: VecDeque<String>,
    /// The line that is not complete.
    line: Vec<u8>,
    /// The terminal shows only the characters of ASCII.
    pub(crate) ascii: bool,
    changed: bool,
}

impl Live {
    /// A sink for a terminal; `ascii`: it shows no other characters.
    pub fn new(ascii: bool) -> Live {
        Live { ascii, ..Live::default() }
    }

    /// A session begins with this program, which is so many narrowings below the first one.
    pub fn begin(&mut self, program: &str, depth: usize) {
        let lines = program.lines().map(|line| escape::name(line.replace('\t', "    ").as_bytes()));
        *self = Live {
            program: lines.collect(),
            depth,
            ascii: self.ascii,
            message: self.message.take(),
            changed: true,
            ..Live::default()
        };
    }

    /// Shows a message in the last line.
    pub fn message(&mut self, text: &str) {
        self.message = Some(escape::name(text.trim().as_bytes()));
        self.changed = true;
    }

    /// Text that was printed.
    pub fn printed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.keep(&line);
            } else if self.line.len() < LONGEST_LINE {
                self.line.push(*byte);
            }
        }
        self.changed = true;
    }

    fn keep(&mut self, line: &[u8]) {
        // Empty lines of printed text are between batches; a screen has no use for them.
        if line.is_empty() {
            return;
        }
        if self.lines.len() >= MOST_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(escape::name(line));
    }

    /// What is shown is to be drawn again.
    pub fn change(&mut self) {
        self.changed = true;
    }

    /// Whether what is shown has changed since it was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(crate) fn panels(&self) -> &[Panel] {
        &self.paused.as_ref().unwrap_or(&self.model).panels
    }

    /// The aggregation that is shown, and its number.
    pub(crate) fn shown(&self) -> Option<(usize, &Panel)> {
        self.panels().get(self.panel).map(|panel| (self.panel, panel))
    }

    /// The number of the column by which rows are sorted.
    pub(crate) fn sorted_by(&self, panel: &Panel) -> usize {
        self.sort.unwrap_or(panel.columns.len()).min(panel.columns.len() + 1)
    }

    /// The rows that are shown, in order.
    pub(crate) fn order<'a>(&self, panel: &'a Panel) -> Vec<(usize, &'a Row)> {
        let needle = self.filter.to_lowercase();
        let is_shown = |row: &Row| row.texts.iter().any(|text| text.to_lowercase().contains(&needle));
        let rows = panel.rows.iter().enumerate();
        let mut all: Vec<(usize, &Row)> =
            rows.filter(|(_, row)| needle.is_empty() || is_shown(row)).collect();
        let column = self.sorted_by(panel);
        all.sort_by(|(_, a), (_, b)| {
            let order = compare(panel, column, a, b);
            if self.reversed { order.reverse() } else { order }
        });
        all
    }

    /// What a key does.
    pub fn key(&mut self, key: Key) -> Action {
        self.changed = true;
        self.message = None;
        match key {
            Key::Control('c') => return Action::Quit,
            Key::Control('z') => return Action::Suspend,
            Key::Control('l') => return Action::Redraw,
            _ => {}
        }
        if self.editing {
            self.edit(key);
            return Action::Nothing;
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('?') => self.toggle(Pane::Help),
            Key::Char('d') => self.toggle(Pane::Program),
            Key::Char('t') => self.toggle(Pane::Text),
            Key::Char('p' | ' ') => {
                self.paused = if self.is_paused() { None } else { Some(self.model.clone()) };
            }
            Key::Char('/') => (self.pane, self.editing) = (Pane::Table, true),
            Key::Esc if self.pane != Pane::Table => self.toggle(Pane::Table),
            Key::Esc => self.filter.clear(),
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(-1),
            Key::Left => self.resort(-1),
            Key::Right => self.resort(1),
            Key::Up | Key::Char('k') => self.go(-1),
            Key::Down | Key::Char('j') => self.go(1),
            Key::PageUp => self.go(-(self.height as isize)),
            Key::PageDown => self.go(self.height as isize),
            Key::Home => self.go(isize::MIN / 2),
            Key::End => self.go(isize::MAX / 2),
            Key::Enter if self.pane == Pane::Table => return self.narrowed(),
            Key::Backspace if self.depth > 0 => return Action::Widen,
            Key::Backspace => self.message = Some("this is the question as it was asked".into()),
            _ => {}
        }
        Action::Nothing
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Esc => {
                self.filter.clear();
                self.editing = false;
            }
            Key::Enter => self.editing = false,
            _ => {}
        }
        (self.selected, self.top) = (None, 0);
    }

    fn toggle(&mut self, pane: Pane) {
        self.pane = if self.pane == pane { Pane::Table } else { pane };
        self.top = 0;
    }

    /// To another aggregation.
    fn turn(&mut self, by: isize) {
        let count = self.panels().len().max(1) as isize;
        self.panel = (self.panel as isize + by).rem_euclid(count) as usize;
        (self.pane, self.sort, self.reversed) = (Pane::Table, None, false);
        (self.selected, self.top) = (None, 0);
    }

    fn resort(&mut self, by: isize) {
        let Some((_, panel)) = self.shown() else { return };
        let count = panel.columns.len() as isize + 2;
        let column = (self.sorted_by(panel) as isize + by).rem_euclid(count);
        (self.sort, self.reversed) = (Some(column as usize), false);
    }

    /// Moves the selection, or the text.
    fn go(&mut self, by: isize) {
        let is_table = self.pane == Pane::Table;
        let Some((_, panel)) = self.shown().filter(|_| is_table) else {
            // Printed text is shown from its end.
            let down = if matches!(self.pane, Pane::Help | Pane::Program) { by } else { -by };
            self.top = self.top.saturating_add_signed(down);
            return;
        };
        let order = self.order(panel);
        let at = self.selected.and_then(|row| order.iter().position(|(n, _)| *n == row));
        let at = match at {
            None => 0,
            Some(at) => at.saturating_add_signed(by).min(order.len().saturating_sub(1)),
        };
        self.selected = order.get(at).map(|(n, _)| *n);
    }

    fn narrowed(&mut self) -> Action {
        let chosen = self.shown().and_then(|(_, panel)| Some((panel, panel.rows.get(self.selected?)?)));
        let narrowing = match chosen {
            None => Err("choose a row with the arrows first".into()),
            Some((panel, row)) => Narrowing::of(panel, row),
        };
        match narrowing {
            Ok(narrowing) => Action::Narrow(narrowing),
            Err(why) => {
                self.message(&why);
                Action::Nothing
            }
        }
    }
}

/// Compares rows: keys by their text or number, values the greatest first.
fn compare(panel: &Panel, column: usize, a: &Row, b: &Row) -> Ordering {
    let keys = || {
        let columns = a.key.iter().zip(&b.key).zip(a.texts.iter().zip(&b.texts));
        let each = columns.map(|((a, b), (a_text, b_text))| match (a.number(), b.number()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a_text.cmp(b_text),
        });
        each.collect::<Vec<_>>()
    };
    let values = |number: fn(&Panel, &Row) -> i64| number(panel, b).cmp(&number(panel, a));
    let all_keys = || keys().into_iter().fold(Ordering::Equal, Ordering::then);
    match column.checked_sub(panel.columns.len()) {
        None => keys().get(column).copied().unwrap_or(Ordering::Equal).then_with(all_keys),
        Some(0) => values(|_, row| row.total.quantity()).then_with(all_keys),
        Some(_) => values(|panel, row| row.last(panel).unwrap_or(i64::MIN)).then_with(all_keys),
    }
}

impl Sink for Live {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        if let Event::Interval(all) = event {
            self.changed |= self.model.add(all);
        }
        Ok(())
    }
}
