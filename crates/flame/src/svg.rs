//! The picture: SVG with the frames that can be seen, the data of all, and a script.
//!
//! ```text
//!  title                                        tools of the script
//!  host
//!  what the script says of a frame
//!  what was lost
//!  legend
//!  for each profile: heading, then its frames, the root at the bottom
//! ```
//!
//! The script draws by the same rules, for the window's width and for what is zoomed to.

use crate::escape::{cut, json, thousands, xml};
use crate::flat::{Flat, Row, What};
use crate::loss::Loss;
use crate::profile::{Frame, Kind, Profile};

/// Units of the picture, which are pixels at its own size.
const WIDTH: f64 = 1200.0;
const PAD: f64 = 10.0;
/// The height of a frame with the line above it.
const ROW: u32 = 17;
/// The width of a character of the font.
const CHARACTER: f64 = 7.25;
/// The least width of a frame that is drawn.
const LEAST: f64 = 0.5;
/// The greatest number of frames that are drawn without the script. They grow wider, then.
const MOST_DRAWN: usize = 20_000;

/// The title of the picture.
pub(crate) fn title(profiles: &[&Profile]) -> String {
    let names: Vec<&str> = profiles.iter().take(3).map(|p| p.title.as_str()).collect();
    let what = if profiles.iter().any(|p| p.compared) { "Difference of" } else { "Flame graph of" };
    match names.is_empty() {
        true => "Flame graph: no stacks".into(),
        false => format!("{what} {}", names.join(", ")),
    }
}

/// A file with the picture.
pub(crate) fn write(profiles: &[&Profile], loss: &Loss, host: &str) -> Vec<u8> {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n");
    push(&mut out, profiles, loss, host);
    out.into_bytes()
}

/// A profile in its place.
struct Panel<'a> {
    profile: &'a Profile,
    flat: Flat,
    /// Where its frames begin.
    top: u32,
    rows: u32,
}

/// Appends the picture as an element.
pub(crate) fn push(out: &mut String, profiles: &[&Profile], loss: &Loss, host: &str) {
    let notes = notes(profiles, loss);
    let legend_at = 76 + 18 * notes.len() as u32 + if notes.is_empty() { 0 } else { 8 };
    let mut y = legend_at + 30;
    let panel = |profile: &&'_ Profile| {
        let flat = Flat::of(profile);
        let (top, rows) = (y + 24, flat.depth() + 1);
        y = top + rows * ROW + 16;
        (flat, top, rows)
    };
    let places: Vec<(Flat, u32, u32)> = profiles.iter().map(panel).collect();
    let panels: Vec<Panel<'_>> = profiles
        .iter()
        .zip(places)
        .map(|(profile, (flat, top, rows))| Panel { profile, flat, top, rows })
        .collect();
    let height = y + 10;
    out.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dtrace-flame\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" tabindex=\"0\" aria-label=\""
    ));
    let title = title(profiles);
    xml(out, &title);
    out.push_str("\">\n<style><![CDATA[\n");
    out.push_str(include_str!("picture.css"));
    out.push_str("]]></style>\n");
    // Longer titles would be below the tools of the script.
    text(out, "title", PAD, 28, &cut(&title, 66));
    text(out, "dim", PAD, 46, host);
    out.push_str(&format!(
        "<text class=\"status\" role=\"status\" aria-live=\"polite\" x=\"{PAD}\" y=\"66\"></text>\n"
    ));
    push_notes(out, &notes);
    push_legend(out, profiles, legend_at);
    if panels.is_empty() {
        text(out, "", PAD, legend_at + 20, "No stacks were recorded.");
    }
    for (n, panel) in panels.iter().enumerate() {
        push_panel(out, n, panel);
    }
    out.push_str("<script type=\"application/json\" class=\"data\"><![CDATA[\n");
    push_data(out, &panels);
    out.push_str("\n]]></script>\n<script><![CDATA[\n");
    out.push_str(include_str!("picture.js"));
    out.push_str("]]></script>\n</svg>\n");
}

fn text(out: &mut String, class: &str, x: f64, y: u32, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    out.push_str(&format!("<text{class} x=\"{x}\" y=\"{y}\">"));
    xml(out, words);
    out.push_str("</text>\n");
}

/// What is missing, a line each.
fn notes(profiles: &[&Profile], loss: &Loss) -> Vec<String> {
    let mut all: Vec<String> = loss.lines().into_iter().map(|line| format!("Lost: {line}")).collect();
    for profile in profiles.iter().filter(|p| p.incomplete > 0) {
        let share = percent(profile.incomplete, profile.total());
        all.push(format!("{}: {share} has stacks that are incomplete or were not recorded", profile.name));
    }
    for profile in profiles {
        for (asked, value) in &profile.cut {
            let share = percent(*value, profile.total());
            let (name, what) = (&profile.name, "has stacks with all frames that were asked for");
            all.push(format!("{name}: {share} {what}, {asked}: their outer frames may be missing"));
        }
    }
    all
}

fn push_notes(out: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let height = 18 * notes.len() + 4;
    out.push_str(&format!(
        "<g class=\"warning\"><rect x=\"{PAD}\" y=\"74\" width=\"{}\" height=\"{height}\" rx=\"3\"/>\n",
        WIDTH - 2.0 * PAD
    ));
    for (y, note) in (88..).step_by(18).zip(notes) {
        text(out, "", PAD + 8.0, y, note);
    }
    out.push_str("</g>\n");
}

fn push_legend(out: &mut String, profiles: &[&Profile], y: u32) {
    let has = |kind: Kind| profiles.iter().any(|p| p.frames().iter().any(|f| f.kind == kind));
    let compared = profiles.iter().any(|p| p.compared);
    let mut items: Vec<(&str, &str)> = Vec::new();
    if compared {
        items.extend([("m4", "greater share than before"), ("l4", "smaller share"), ("s", "the same")]);
    }
    let user = if compared { ("edge-u", "function of a process") } else { ("u0", "function of a process") };
    let kernel = if compared { ("edge-k", "kernel") } else { ("k0", "kernel") };
    let kinds = [
        (Kind::User, user),
        (Kind::Inlined, ("i", "put inline")),
        (Kind::Interpreted, ("p", "of an interpreter")),
        (Kind::Kernel, kernel),
        (Kind::Key, ("y", "key")),
        (Kind::Missing, ("x", "not known")),
    ];
    items.extend(kinds.into_iter().filter(|(kind, _)| has(*kind)).map(|(_, item)| item));
    items.push(("o", "too narrow to draw"));
    let mut x = PAD;
    for (class, words) in items {
        let swatch = match class.starts_with("edge") {
            true => format!(
                "<g class=\"f s\"><rect x=\"{x}\" y=\"{y}\" width=\"16\" height=\"13\"/><rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"16\" height=\"4\"/></g>",
                y + 9
            ),
            false => {
                format!("<g class=\"f {class}\"><rect x=\"{x}\" y=\"{y}\" width=\"16\" height=\"13\"/></g>")
            }
        };
        out.push_str(&swatch);
        text(out, "", x + 22.0, y + 11, words);
        x += 22.0 + words.len() as f64 * CHARACTER + 18.0;
    }
}

/// A share, in words.
pub(crate) fn percent(part: u64, of: u64) -> String {
    match of {
        0 => "0 %".into(),
        of => format!("{:.2} %", 100.0 * part as f64 / of as f64),
    }
}

fn heading(panel: &Panel<'_>) -> String {
    let Panel { profile, flat, .. } = panel;
    let total = profile.total();
    let stacks = match profile.stacks {
        1 => "1 stack".into(),
        n => format!("{} stacks", thousands(n)),
    };
    let mut words = format!("{}: {} in {stacks}", profile.title, thousands(total));
    if profile.compared {
        let before = flat.rows.first().map_or(0, |row| row.before);
        words.push_str(&format!(", before: {}", thousands(before)));
    }
    let folded: u64 =
        flat.rows.iter().map(|row| if let What::Folded(n, _) = &row.what { *n } else { 0 }).sum();
    if folded > 0 {
        words.push_str(&format!("; its {} smallest frames are folded", thousands(folded)));
    }
    if flat.unnamed > 0 {
        words.push_str(&format!(" ({} of their names are not searched)", thousands(flat.unnamed)));
    }
    words
}

fn push_panel(out: &mut String, n: usize, panel: &Panel<'_>) {
    out.push_str(&format!("<g class=\"panel\" data-panel=\"{n}\">\n"));
    text(out, "heading", PAD, panel.top - 9, &heading(panel));
    out.push_str("<g class=\"frames\">\n");
    Drawing::new(panel).push(out);
    out.push_str("</g></g>\n");
}

/// The class of a frame: one of three shades of its kind.
fn shade(frame: &Frame) -> String {
    let letter = frame.kind.letter();
    match frame.kind {
        Kind::User | Kind::Kernel => {
            let sum = frame.name.bytes().fold(7u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
            format!("{letter}{}", (sum >> 8) % 3)
        }
        Kind::Inlined | Kind::Interpreted | Kind::Key | Kind::Missing => letter.into(),
    }
}

/// How much a row's share of everything has changed.
fn change(row: &Row, total: u64, before: u64) -> f64 {
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    share(row.value, total) - share(row.before, before)
}

/// The class of a change, relative to the greatest one.
fn changed(change: f64, greatest: f64) -> String {
    let part = if greatest > 0.0 { change.abs() / greatest } else { 0.0 };
    let step = (part * 4.0).ceil().clamp(1.0, 4.0) as u32;
    match part < 0.01 {
        true => "s".into(),
        false if change > 0.0 => format!("m{step}"),
        false => format!("l{step}"),
    }
}

/// The frames of a panel at its own size.
struct Drawing<'a> {
    panel: &'a Panel<'a>,
    total: u64,
    before: u64,
    /// The greatest change of a share.
    greatest: f64,
    /// Narrower frames are not drawn.
    least: f64,
}

/// Rows that are too narrow, beside one another.
struct Narrow {
    depth: u32,
    from: f64,
    to: f64,
    count: u64,
}

impl<'a> Drawing<'a> {
    fn new(panel: &'a Panel<'a>) -> Self {
        let rows = &panel.flat.rows;
        let (total, before) = rows.first().map_or((0, 0), |root| (root.value, root.before));
        let changes = rows.iter().filter(|row| matches!(row.what, What::Frame(_)));
        let greatest = changes.map(|row| change(row, total, before).abs()).fold(0.0, f64::max);
        let mut drawing = Drawing { panel, total, before, greatest, least: LEAST };
        let mut widths: Vec<f64> = rows.iter().map(|row| drawing.width(row.value)).collect();
        if widths.len() > MOST_DRAWN {
            let most = *widths.select_nth_unstable_by(MOST_DRAWN, |a, b| b.total_cmp(a)).1;
            drawing.least = LEAST.max(most);
        }
        drawing
    }

    fn width(&self, value: u64) -> f64 {
        let all = WIDTH - 2.0 * PAD;
        if self.total == 0 { 0.0 } else { all * (value as f64 / self.total as f64).min(1.0) }
    }

    fn y(&self, depth: u32) -> u32 {
        self.panel.top + (self.panel.rows - 1 - depth.min(self.panel.rows - 1)) * ROW
    }

    fn push(&self, out: &mut String) {
        // Where the next row of a depth begins.
        let mut begins: Vec<f64> = vec![0.0; self.panel.rows as usize + 2];
        // Below a row that is not drawn nothing is.
        let mut hidden: Option<u32> = None;
        let mut narrow: Option<Narrow> = None;
        for row in &self.panel.flat.rows {
            let depth = row.depth as usize;
            let from = begins.get(depth).copied().unwrap_or(0.0);
            let width = self.width(row.value);
            if let Some(place) = begins.get_mut(depth) {
                *place = from + width;
            }
            if let Some(place) = begins.get_mut(depth + 1) {
                *place = from;
            }
            if hidden.is_some_and(|above| row.depth > above) {
                continue;
            }
            let folded = match &row.what {
                What::Folded(count, _) => Some(*count),
                _ if width < self.least => Some(1),
                _ => None,
            };
            hidden = folded.map(|_| row.depth);
            let Some(count) = folded else {
                self.push_narrow(out, narrow.take());
                self.push_row(out, row, from, width);
                continue;
            };
            match &mut narrow {
                Some(n) if n.depth == row.depth && (n.to - from).abs() < 1e-6 => {
                    n.to = from + width;
                    n.count += count;
                }
                _ => {
                    self.push_narrow(out, narrow.take());
                    narrow = Some(Narrow { depth: row.depth, from, to: from + width, count });
                }
            }
        }
        self.push_narrow(out, narrow);
    }

    fn push_narrow(&self, out: &mut String, narrow: Option<Narrow>) {
        let Some(Narrow { depth, from, to, count }) = narrow.filter(|n| n.to - n.from >= LEAST) else {
            return;
        };
        let words = if count == 1 { "1 frame" } else { &format!("{} frames", thousands(count)) };
        rectangle(out, "o", from, self.y(depth), to - from, &format!("{words} too narrow to draw"), "");
    }

    fn push_row(&self, out: &mut String, row: &Row, from: f64, width: f64) {
        let profile = self.panel.profile;
        let frame = match row.what {
            What::Frame(n) => profile.frames().get(n as usize),
            _ => None,
        };
        let (name, kind) = frame.map_or(("all", ""), |f| (&*f.name, word(f.kind)));
        let mut about = format!("{name}{kind}: {}, {}", thousands(row.value), percent(row.value, self.total));
        let class = match (frame, profile.compared) {
            (None, _) => "a".into(),
            (Some(_), true) => {
                about.push_str(&format!(" (before: {})", percent(row.before, self.before)));
                changed(change(row, self.total, self.before), self.greatest)
            }
            (Some(frame), false) => shade(frame),
        };
        let y = self.y(row.depth);
        let edge = frame.filter(|_| profile.compared).and_then(|f| edge(f.kind));
        let edge = edge.map_or(String::new(), |class| {
            let (x, y) = (PAD + from, y + ROW - 4);
            format!("<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"3\"/>")
        });
        let label = label(name, width);
        let inside = match label.is_empty() {
            true => edge,
            false => {
                let mut inside = format!("{edge}<text x=\"{:.2}\" y=\"{}\">", PAD + from + 3.0, y + 11);
                xml(&mut inside, &label);
                inside + "</text>"
            }
        };
        rectangle(out, &class, from, y, width, &about, &inside);
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => " (kernel)",
        Kind::User => " (process)",
        Kind::Inlined => " (process, inlined)",
        Kind::Interpreted => " (process, interpreted)",
        Kind::Key => " (key)",
        Kind::Missing => "",
    }
}

fn edge(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Kernel => Some("edge-k"),
        Kind::User | Kind::Inlined | Kind::Interpreted => Some("edge-u"),
        Kind::Key | Kind::Missing => None,
    }
}

/// A frame: a box with a title, and what is inside.
fn rectangle(out: &mut String, class: &str, from: f64, y: u32, width: f64, about: &str, inside: &str) {
    out.push_str(&format!("<g class=\"f {class}\"><title>"));
    xml(out, about);
    let (x, height) = (PAD + from, ROW - 1);
    out.push_str(&format!(
        "</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\"/>{inside}</g>\n"
    ));
}

/// What of a name is written in a frame: the function without its object, as much as there is space
/// for.
fn label(name: &str, width: f64) -> String {
    let space = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let short = name.split_once('`').map_or(name, |(_, function)| function);
    let wide = |c: char| if c.is_ascii() { 1 } else { 2 };
    if space < 3 {
        return String::new();
    }
    let size: usize = short.chars().map(wide).sum();
    if size <= space {
        return short.into();
    }
    let mut left = space - 2;
    let kept = short.chars().take_while(|c| {
        let fits = left >= wide(*c);
        left = left.saturating_sub(wide(*c));
        fits
    });
    kept.chain(['…']).collect()
}

/// The data that the script draws from.
fn push_data(out: &mut String, panels: &[Panel<'_>]) {
    out.push_str(&format!(
        "{{\"row\":{ROW},\"pad\":{PAD},\"character\":{CHARACTER},\"least\":{LEAST},\"panels\":["
    ));
    for (n, panel) in panels.iter().enumerate() {
        let Panel { profile, flat, top, rows } = panel;
        if n > 0 {
            out.push(',');
        }
        let compared = profile.compared;
        out.push_str(&format!("\n{{\"top\":{top},\"rows\":{rows},\"compared\":{compared},\"name\":"));
        json(out, &profile.name);
        out.push_str(",\"frames\":[");
        for (n, frame) in profile.frames().iter().enumerate() {
            out.push_str(if n > 0 { ",\n" } else { "\n" });
            json(out, &format!("{:<2}{}", shade(frame), frame.name));
        }
        out.push_str("],\n\"nodes\":[");
        let mut folded = String::new();
        for (n, row) in flat.rows.iter().enumerate() {
            let frame = match &row.what {
                What::All => -1,
                What::Frame(frame) => i64::from(*frame),
                What::Folded(count, names) => {
                    let separator = if folded.is_empty() { "" } else { "," };
                    folded
                        .push_str(&format!("{separator}\"{n}\":{{\"count\":{count},\"frames\":{names:?}}}"));
                    -2
                }
            };
            let separator = if n > 0 { "," } else { "" };
            out.push_str(&format!("{separator}{},{frame},{}", row.depth, row.value));
            if compared {
                out.push_str(&format!(",{}", row.before));
            }
        }
        out.push_str(&format!("],\n\"folded\":{{{folded}}}}}"));
    }
    out.push_str("]}");
}
