//! The picture: SVG with a small picture of all cells, their data, and a script that draws from it.

use events::{Bucket, buckets};
use flame::escape::{cut, thousands, xml};

use crate::collect::{Heat, MOST_KEYS, Panel};
use crate::{data, png};

/// Units of the picture, which are pixels at its own size.
const WIDTH: u32 = 1200;
const PAD: u32 = 10;
/// Where cells begin, and what they take.
const LEFT: u32 = 110;
const PLOT: (u32, u32) = (1080, 320);
/// The height of a panel without a script.
const PANEL: u32 = 400;
/// The most columns and rows of the picture without a script.
const MOST: (usize, usize) = (540, 160);

/// The title of the picture.
pub(crate) fn title(heat: &Heat) -> String {
    let drawn = heat.panels.iter().filter(|panel| panel.cells.buckets().is_some());
    let names: Vec<String> = drawn.take(3).map(Panel::title).collect();
    match names.is_empty() {
        true => "Heat map: no values".into(),
        false => format!("Heat map of {}", names.join(", ")),
    }
}

/// A file with the picture.
pub(crate) fn write(heat: &Heat) -> Vec<u8> {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n");
    push(&mut out, heat);
    out.into_bytes()
}

/// What a reader must know: what was lost, and what is less exact than it could be.
fn notes(heat: &Heat) -> Vec<String> {
    let mut all: Vec<String> = heat.loss.lines().into_iter().map(|line| format!("Lost: {line}")).collect();
    for panel in &heat.panels {
        let name = &panel.name;
        if panel.cells.merged > 1 {
            let merged = thousands(panel.cells.merged);
            all.push(format!("{name}: a column is {merged} intervals, so that the file is not too large"));
        }
        if panel.others > 0 {
            all.push(format!(
                "{name}: {} rows of keys beyond the first {} are [other keys]",
                thousands(panel.others),
                thousands(MOST_KEYS as u64)
            ));
        }
    }
    if heat.rounded {
        all.push("Numbers of 2^53 and more are rounded".into());
    }
    all
}

/// Appends the picture as an element.
pub(crate) fn push(out: &mut String, heat: &Heat) {
    let drawn: Vec<&Panel> = heat.panels.iter().filter(|panel| panel.cells.buckets().is_some()).collect();
    let notes = notes(heat);
    let top = 92 + 18 * notes.len() as u32;
    let height = top + PANEL * drawn.len().max(1) as u32;
    out.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dtrace-heat\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" data-top=\"{top}\" role=\"group\" aria-label=\""
    ));
    let title = title(heat);
    xml(out, &title);
    out.push_str("\">\n<style><![CDATA[\n");
    out.push_str(include_str!("picture.css"));
    out.push_str("]]></style>\n");
    text(out, "title", PAD, 28, &cut(&title, 110));
    text(out, "dim", PAD, 46, &heat.host);
    for (y, note) in (86..).step_by(18).zip(&notes) {
        text(out, "warning", PAD, y, note);
    }
    if drawn.is_empty() {
        text(out, "", PAD, top + 20, "No distribution has a value.");
    }
    for (n, panel) in drawn.iter().enumerate() {
        push_panel(out, n, top + PANEL * n as u32, panel);
    }
    out.push_str("<script type=\"application/octet-stream\" class=\"data\">");
    png::base64(out, &miniz_oxide::deflate::compress_to_vec(&data::encode(heat), 9));
    out.push_str("</script>\n<script><![CDATA[\n");
    out.push_str(include_str!("picture.js"));
    out.push_str("]]></script>\n</svg>\n");
}

fn text(out: &mut String, class: &str, x: u32, y: u32, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    out.push_str(&format!("<text{class} x=\"{x}\" y=\"{y}\">"));
    xml(out, words);
    out.push_str("</text>\n");
}

fn push_panel(out: &mut String, n: usize, top: u32, panel: &Panel) {
    out.push_str(&format!("<g class=\"panel\" data-panel=\"{n}\" transform=\"translate(0,{top})\">\n"));
    text(out, "heading", PAD, 14, &cut(&panel.title(), 140));
    let (width, height) = PLOT;
    out.push_str(&format!(
        "<rect class=\"plot\" x=\"{LEFT}\" y=\"24\" width=\"{width}\" height=\"{height}\"/>\n"
    ));
    let picture = Picture::of(panel);
    out.push_str(&format!("<image class=\"cells\" x=\"{LEFT}\" y=\"24\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" href=\""));
    png::link(out, &png::grey(picture.width as u32, picture.height as u32, &picture.dark));
    out.push_str("\"/>\n<g class=\"axes\">\n");
    let (first, last) = panel.cells.buckets().unwrap_or_default();
    let all: Vec<Bucket> = buckets(panel.function);
    for at in [first, first + (last - first) / 2, last] {
        let label = all.get(at as usize).map_or(String::new(), ToString::to_string);
        let y = 24 + height - (at - first) * height / (last - first + 1).max(1);
        out.push_str(&format!(
            "<text text-anchor=\"end\" x=\"{}\" y=\"{}\">",
            LEFT - 6,
            y.min(24 + height) - 2
        ));
        xml(out, &label);
        out.push_str("</text>\n");
    }
    let columns = &panel.cells.columns;
    let begin = columns.first().map_or(0, |column| column.begin);
    let end = columns.last().map_or(0, |column| column.end);
    text(out, "", LEFT, 24 + height + 16, "0 s");
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    out.push_str(&format!(
        "<text text-anchor=\"end\" x=\"{}\" y=\"{}\">{seconds:.3} s</text>\n",
        LEFT + width,
        24 + height + 16
    ));
    out.push_str("</g><g class=\"live\"></g></g>\n");
}

/// Darkness by rank, rows from the greatest bucket down.
struct Picture {
    width: usize,
    height: usize,
    dark: Vec<u8>,
}

impl Picture {
    fn of(panel: &Panel) -> Picture {
        let columns = &panel.cells.columns;
        let (first, last) = panel.cells.buckets().unwrap_or_default();
        let rows = (last - first) as usize + 1;
        let (width, height) = (columns.len().clamp(1, MOST.0), rows.clamp(1, MOST.1));
        let mut sums = vec![0i64; width * height];
        for (n, column) in columns.iter().enumerate() {
            let x = n * width / columns.len().max(1);
            for cell in &column.cells {
                let y = (cell.bucket - first) as usize * height / rows;
                if let Some(sum) = sums.get_mut((height - 1 - y) * width + x) {
                    *sum = sum.saturating_add(cell.count);
                }
            }
        }
        let mut ranks: Vec<u64> =
            sums.iter().filter(|sum| **sum != 0).map(|sum| sum.unsigned_abs()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let dark = |sum: &i64| match ranks.binary_search(&sum.unsigned_abs()) {
            Ok(rank) if *sum != 0 => (25 + 230 * (rank + 1) / ranks.len()) as u8,
            _ => 0,
        };
        Picture { width, height, dark: sums.iter().map(dark).collect() }
    }
}
