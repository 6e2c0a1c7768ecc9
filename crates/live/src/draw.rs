//! The picture.

use events::Value;
use flame::escape;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::model::{HISTORY, Panel, Row};
use crate::view::{Live, Pane};

/// The widest column of a key that is not the last one.
const WIDEST: usize = 40;
/// The least width of a column of numbers, with a blank before it.
const NUMBER: usize = 12;
/// The least width of a history that is worth its place.
const LEAST_HISTORY: usize = 8;
/// The width of bars.
const BARS: usize = 40;

const KEYS: &str = "? help  q quit  Tab next  \u{2190}\u{2192} sort  \u{2191}\u{2193} select  Enter only this  / filter  p pause  d program  t text";
const KEYS_ASCII: &str =
    "? help  q quit  Tab next  arrows sort, select  Enter only this  / filter  p pause  d program  t text";

const HELP: &[&str] = &[
    "q, ^C           the end: the aggregations are printed",
    "Tab, Shift-Tab  the next aggregation, the one before",
    "Left, Right     the column by which rows are sorted; r reverses",
    "Up, Down, PageUp, PageDown, Home, End   a row, or the text",
    "Enter           only what has the key of this row: the program with a predicate, from now on",
    "Backspace       the program before that",
    "/               shows rows with a text in their key; Esc shows all",
    "p, space        what is shown stays, and tracing goes on; again: what is there now",
    "d               the program that runs",
    "t               what was printed",
    "^L              draws everything again;  ^Z the shell, and `fg` comes back",
    "",
    "The columns: the key; what was aggregated since the start; what the last interval has added;",
    "what each of the last intervals has added.",
];

/// A line of the screen.
struct Line<'b> {
    buffer: &'b mut Buffer,
    y: u16,
    x: usize,
    end: usize,
}

impl Line<'_> {
    /// Writes text, not beyond a width; what is after it begins behind that width.
    fn cell(&mut self, text: &str, width: usize, style: Style) {
        let width = width.min(self.end.saturating_sub(self.x));
        if width > 0 {
            self.buffer.set_stringn(self.x as u16, self.y, text, width, style);
        }
        self.x += width;
    }

    /// Writes a number at the right of a width. Where it does not fit, nobody reads a part of it.
    fn number(&mut self, text: &str, width: usize, style: Style) {
        let width = width.min(self.end.saturating_sub(self.x));
        let Some(blank) = width.checked_sub(wide(text)) else {
            self.cell(&"#".repeat(width), width, style);
            return;
        };
        self.x += blank;
        self.cell(text, width - blank, style);
    }
}

/// The cells that a text takes.
fn wide(text: &str) -> usize {
    Span::raw(text).width()
}

impl Live {
    /// Draws everything.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        if area.height < 3 || area.width < 10 {
            return;
        }
        let rows = usize::from(area.height) - 2;
        let lines = std::mem::take(&mut self.lines);
        let program = std::mem::take(&mut self.program);
        match self.pane {
            Pane::Help => self.text(area, buffer, "keys", HELP.iter().copied()),
            Pane::Program => self.text(area, buffer, "program", program.iter().map(String::as_str)),
            Pane::Table if !self.panels().is_empty() => self.table(area, buffer),
            Pane::Table | Pane::Text => {
                // The last lines, unless the user looks further up.
                let skipped = lines.len().saturating_sub(rows);
                self.top = self.top.min(skipped);
                let shown = lines.iter().skip(skipped - self.top).map(String::as_str);
                let top = std::mem::take(&mut self.top);
                let title = if lines.is_empty() { "nothing yet" } else { "printed" };
                self.text(area, buffer, title, shown);
                self.top = top;
            }
        }
        (self.lines, self.program) = (lines, program);
        self.footer(line(area, buffer, usize::from(area.height) - 1));
        if self.ascii {
            let others = buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii());
            others.for_each(|cell| _ = cell.set_symbol("?"));
        }
    }

    fn footer(&self, mut line: Line<'_>) {
        let width = line.end;
        match (&self.message, self.editing) {
            (Some(message), _) => line.cell(message, width, Style::new().add_modifier(Modifier::BOLD)),
            (None, true) => {
                line.cell(&format!("/{}_", escape::name(self.filter.as_bytes())), width, Style::new())
            }
            (None, false) => {
                let keys = if self.ascii { KEYS_ASCII } else { KEYS };
                line.cell(keys, width, Style::new().add_modifier(Modifier::DIM));
            }
        }
    }

    fn title(&self, mut line: Line<'_>, text: &str) {
        let mut text = format!(" {text}");
        if self.depth > 0 {
            text.push_str(
                &format!("   narrowed {}\u{d7}", self.depth)
                    .replace('\u{d7}', if self.ascii { "x" } else { "\u{d7}" }),
            );
        }
        if !self.filter.is_empty() {
            text.push_str(&format!("   /{}", escape::name(self.filter.as_bytes())));
        }
        if self.is_paused() {
            text.push_str("   [paused]");
        }
        let width = line.end;
        text.push_str(&" ".repeat(width));
        line.cell(&text, width, Style::new().add_modifier(Modifier::REVERSED));
    }

    fn text<'t>(
        &mut self,
        area: Rect,
        buffer: &mut Buffer,
        title: &str,
        lines: impl ExactSizeIterator<Item = &'t str>,
    ) {
        let rows = usize::from(area.height) - 2;
        self.height = rows;
        self.top = self.top.min(lines.len().saturating_sub(rows));
        self.title(line(area, buffer, 0), title);
        for (n, text) in lines.skip(self.top).take(rows).enumerate() {
            let mut line = line(area, buffer, n + 1);
            let width = line.end;
            line.cell(text, width, Style::new());
        }
    }

    fn table(&mut self, area: Rect, buffer: &mut Buffer) {
        let Some((number, panel)) = self.shown() else { return };
        let order = self.order(panel);
        let count = self.panels().len();
        let mut title = panel.title();
        if count > 1 {
            title.push_str(&format!("   {} of {count}", number + 1));
        }
        title.push_str(&format!("   {} of {} keys", order.len(), panel.rows.len()));
        if panel.others > 0 {
            title.push_str(&format!("   ({} additions to other keys)", panel.others));
        }
        self.title(line(area, buffer, 0), &title);

        let body = usize::from(area.height) - 3;
        let selected = self.selected.and_then(|n| panel.rows.get(n));
        let detail = match selected.or(order.first().map(|(_, row)| *row)) {
            Some(row) if panel.is_histogram() => distribution(row, self.ascii),
            Some(row) if selected.is_some() => stacks(row),
            _ => Vec::new(),
        };
        let below = detail.len().min((body * 2 / 3).max(body.saturating_sub(order.len() + 1)));
        let rows = body - below;
        let at = self.selected.and_then(|row| order.iter().position(|(n, _)| *n == row)).unwrap_or(0);
        let top = self.top.min(at).max((at + 1).saturating_sub(rows));

        let shown: Vec<(usize, &Row)> = order.iter().skip(top).take(rows).copied().collect();
        let widths = widths(panel, &shown, usize::from(area.width));
        self.header(line(area, buffer, 1), panel, &widths);
        for (y, (n, row)) in shown.iter().enumerate() {
            let is_selected = self.selected == Some(*n);
            self.row(line(area, buffer, y + 2), panel, row, &widths, is_selected);
        }
        for (y, text) in detail.iter().take(below).enumerate() {
            let mut line = line(area, buffer, 2 + rows + y);
            let width = line.end;
            line.cell(text, width, Style::new());
        }
        (self.top, self.height) = (top, rows);
    }

    fn header(&self, mut line: Line<'_>, panel: &Panel, widths: &Widths) {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let sorted = self.sorted_by(panel);
        let mark = |n: usize, text: &str| match (n == sorted, self.ascii) {
            (false, _) => text.to_owned(),
            (true, true) => format!("{text}*"),
            (true, false) if self.reversed != (n < panel.columns.len()) => format!("{text}\u{25b2}"),
            (true, false) => format!("{text}\u{25bc}"),
        };
        for (n, (column, width)) in panel.columns.iter().zip(&widths.keys).enumerate() {
            line.cell(&mark(n, &escape::name(column.as_bytes())), *width, style);
            line.cell("", 1, style);
        }
        let keys = panel.columns.len();
        line.number(&mark(keys, panel.function.name()), widths.total, style);
        line.number(&mark(keys + 1, &interval(panel)), widths.last, style);
    }

    fn row(&self, mut line: Line<'_>, panel: &Panel, row: &Row, widths: &Widths, is_selected: bool) {
        let last = row.last(panel);
        let style = match (is_selected, last) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, None) => Style::new().add_modifier(Modifier::DIM),
            (false, Some(_)) => Style::new(),
        };
        let width = line.end;
        line.cell(&" ".repeat(width), width, style);
        line.x = usize::from(line.buffer.area.x);
        for (text, width) in row.texts.iter().zip(&widths.keys) {
            line.cell(text, *width, style);
            line.cell("", 1, style);
        }
        line.number(&row.total.quantity().to_string(), widths.total, style);
        line.number(&last.map_or("-".into(), |n| n.to_string()), widths.last, style);
        if widths.history > 0 {
            line.cell("  ", 2, style);
            line.cell(&history(&row.recent(panel, widths.history), self.ascii), widths.history, style);
        }
    }
}

/// The length of the last interval, as a header.
fn interval(panel: &Panel) -> String {
    format!("in {:.2} s", panel.length as f64 / 1e9)
}

/// The widths of the columns.
struct Widths {
    keys: Vec<usize>,
    total: usize,
    last: usize,
    /// 0: there is no place for it.
    history: usize,
}

fn widths(panel: &Panel, rows: &[(usize, &Row)], total: usize) -> Widths {
    let widest = |n: usize| {
        let texts = rows.iter().filter_map(|(_, row)| row.texts.get(n));
        let header = panel.columns.get(n).map_or(0, |text| wide(text) + 1);
        texts.map(|text| wide(text)).max().unwrap_or(0).max(header)
    };
    // Each with its mark and a blank.
    let number = |header: &str, number: &dyn Fn(&Row) -> i64| {
        let numbers = rows.iter().map(|(_, row)| number(row).to_string().len() + 1);
        numbers.max().unwrap_or(0).max(wide(header) + 2).max(NUMBER)
    };
    let sum = number(panel.function.name(), &|row| row.total.quantity());
    let last = number(&interval(panel), &|row| row.last(panel).unwrap_or(0));
    let count = panel.columns.len();
    // The numbers have their place first.
    let most = total.saturating_sub(sum + last).checked_div(count).unwrap_or(0).saturating_sub(1);
    let mut keys: Vec<usize> = (0..count).map(|n| widest(n).min(WIDEST.min(most))).collect();
    let mut left = total.saturating_sub(sum + last + keys.iter().map(|width| width + 1).sum::<usize>());
    // Where a key needs more, it has the place before the history has it.
    if let Some(last) = keys.last_mut() {
        let more = widest(count - 1).saturating_sub(*last).min(left.saturating_sub(HISTORY / 2));
        *last += more;
        left -= more;
    }
    let history = left.saturating_sub(2).min(HISTORY);
    Widths { keys, total: sum, last, history: if history < LEAST_HISTORY { 0 } else { history } }
}

/// A line of numbers, each as a bar of its height.
fn history(numbers: &[i64], ascii: bool) -> String {
    const BLOCKS: [char; 8] =
        ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
    const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];
    let blocks = if ascii { ASCII } else { BLOCKS };
    let most = numbers.iter().map(|n| n.unsigned_abs()).max().unwrap_or(0);
    let bar = |n: &i64| match n.unsigned_abs() {
        0 => ' ',
        n => {
            let height = (u128::from(n) * 8).div_ceil(u128::from(most.max(1)));
            blocks.get((height as usize).clamp(1, 8) - 1).copied().unwrap_or(' ')
        }
    };
    numbers.iter().map(bar).collect()
}

/// The lines of a distribution, in the form of text.
fn distribution(row: &Row, ascii: bool) -> Vec<String> {
    let all: Vec<_> = row.total.buckets().collect();
    let is_there = |(_, count): &(_, i64)| *count != 0;
    let Some(first) = all.iter().position(is_there) else { return Vec::new() };
    let last = all.iter().rposition(is_there).unwrap_or(first);
    let sum: u128 = all.iter().map(|(_, count)| u128::from(count.unsigned_abs())).sum();
    let shown = all.get(first.saturating_sub(1)..(last + 2).min(all.len())).unwrap_or_default();
    let bar = if ascii { "@" } else { "\u{2588}" };
    let lines = shown.iter().map(|(bucket, count)| {
        let length = (u128::from(count.unsigned_abs()) * BARS as u128 / sum.max(1)) as usize;
        let blank = " ".repeat(BARS - length.min(BARS));
        format!("{:>16} |{}{blank} {count}", bucket.to_string(), bar.repeat(length.min(BARS)))
    });
    let title = if row.texts.is_empty() { String::new() } else { format!(" {}", row.texts.join(", ")) };
    [title].into_iter().filter(|title| !title.is_empty()).chain(lines).collect()
}

/// The frames of the stacks of a key.
fn stacks(row: &Row) -> Vec<String> {
    let stacks = row.key.iter().filter_map(|value| if let Value::Stack(s) = value { Some(s) } else { None });
    let frames = stacks.flat_map(|stack| &stack.frames);
    frames.map(|frame| format!("    {}", escape::name(frame.text().as_bytes()))).collect()
}

fn line(area: Rect, buffer: &mut Buffer, y: usize) -> Line<'_> {
    let end = usize::from(area.x) + usize::from(area.width);
    Line { buffer, y: area.y + y as u16, x: usize::from(area.x), end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyboard::Key;
    use events::{AggFunc, AggValue, Column, Event, Growth, Int, Interval, Sink};

    fn value(function: AggFunc, words: Vec<u64>) -> AggValue<'static> {
        AggValue { function, words: words.into(), normal: 1, cpus: Vec::new(), absent: false }
    }

    /// An interval in which keys of a string and a number were counted.
    fn interval(n: u64, rows: &[(&'static [u8], u64, u64)]) -> Event<'static> {
        let rows = rows.iter().map(|(name, number, count)| Growth {
            key: vec![Value::Str { text: (*name).into(), size: 64 }, Value::Int(Int::new(*number, 4, true))],
            increment: value(AggFunc::Count, vec![*count]),
            total: value(AggFunc::Count, vec![*count * n]),
        });
        let column = Column { name: "calls".into(), function: AggFunc::Count };
        let mut all = Interval::new((n - 1) * 1_000_000_000, n * 1_000_000_000, column, rows.collect());
        all.keys = vec!["execname".into(), "arg0".into()];
        Event::Interval(all)
    }

    fn drawn(live: &mut Live, width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        live.draw(area, &mut buffer);
        let cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width).max(1)).map(|row| row.concat().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_table_has_totals_the_last_interval_and_a_history() {
        let mut live = Live::new(true);
        live.begin("x", 0);
        live.event(&interval(1, &[(b"a", 1, 4), (b"b", 2, 2)])).unwrap();
        live.event(&interval(2, &[(b"a", 1, 8)])).unwrap();
        let rows = drawn(&mut live, 64, 6);
        let words = |row: &str| row.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ");
        assert_eq!(rows[0], " @calls[execname, arg0] = count()   2 of 2 keys");
        assert_eq!(words(&rows[1]), "execname arg0 count* in 1.00 s");
        assert_eq!(words(&rows[2]), "a 1 16 8 =@");
        assert_eq!(words(&rows[3]), "b 2 2 - @");
        // The last interval is in the last column, so b's was the one before.
        assert_eq!((rows[2].len(), rows[3].len()), (64, 63));
        assert!(rows[5].starts_with("? help"));
    }

    #[test]
    fn no_number_is_cut_and_text_is_scrolled_from_its_end() {
        let mut live = Live::new(true);
        live.event(&interval(1, &[(&[b'k'; 60], 1, 1_795_999_209_331_317_959)])).unwrap();
        let rows = drawn(&mut live, 110, 5);
        assert!(rows[2].contains(" 1795999209331317959 1795999209331317959"), "{}", rows[2]);
        let rows = drawn(&mut live, 42, 5);
        assert!(rows[2].contains("1795999209331317959 1795999209331317959"), "{}", rows[2]);
        let rows = drawn(&mut live, 30, 5);
        assert!(rows[2].contains("########") && !rows[2].contains("17959992093313179591"), "{}", rows[2]);
        (0..100).for_each(|n| live.printed(format!("line {n}\n").as_bytes()));
        live.key(Key::Char('t'));
        assert_eq!(drawn(&mut live, 30, 5)[3], "line 99");
        live.key(Key::PageUp);
        assert_eq!(drawn(&mut live, 30, 5)[3], "line 96");
        live.key(Key::Down);
        assert_eq!(drawn(&mut live, 30, 5)[3], "line 97");
        live.key(Key::Home);
        assert_eq!(drawn(&mut live, 30, 5)[1], "line 0");
        live.key(Key::End);
        assert_eq!(drawn(&mut live, 30, 5)[3], "line 99");
    }

    #[test]
    fn every_size_can_be_drawn_and_names_are_text() {
        let rows: Vec<_> =
            testing::names::NASTY.iter().enumerate().map(|(n, name)| (*name, n as u64, 1)).collect();
        for ascii in [false, true] {
            let mut live = Live::new(ascii);
            live.begin("x\n\ty\x1b", 2);
            live.printed("\x1b[2J printed \u{e9}\n".as_bytes());
            for n in 1..100 {
                live.event(&interval(n, &rows)).unwrap();
            }
            live.key(Key::Down);
            for pane in ['x', 'd', 't', '?'] {
                live.key(Key::Char(pane));
                for (width, height) in [(0, 0), (1, 1), (10, 3), (11, 4), (30, 5), (80, 24), (400, 3)] {
                    let rows = drawn(&mut live, width, height);
                    assert!(
                        rows.iter().all(|row| !row.contains(['\x1b', '\n', '\u{202e}', '\0'])),
                        "{rows:?}"
                    );
                    assert!(!ascii || rows.iter().all(|row| row.is_ascii()), "{rows:?}");
                }
            }
        }
    }

    #[test]
    fn keys_beyond_the_most_are_counted_and_rows_are_found_again() {
        let mut live = Live::new(true);
        let mut rows = Vec::new();
        (0..70_000u64).for_each(|n| rows.push((&b"a"[..], n, 1)));
        live.event(&interval(1, &rows)).unwrap();
        live.event(&interval(2, &rows[..10])).unwrap();
        let title = drawn(&mut live, 120, 6).remove(0);
        assert!(title.contains("65536 of 65536 keys   (4464 additions to other keys)"), "{title}");
    }
}
