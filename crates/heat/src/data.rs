//! The counts as bytes, which the script of a page reads.
//!
//! ```text
//!  number   LEB128; signed ones zigzag
//!  text     number of bytes, UTF-8
//!  list     number of elements, the elements
//!
//!  file     list of panel
//!  panel    name text, title text, stack flag, other keys number, merged number
//!           first bucket number, list of buckets (label text, low text, high text; empty for no end)
//!           begin: microseconds since 1970 number, microseconds since the start number
//!           list of columns (microseconds since the end of the one before, length in microseconds)
//!           names of key columns list of text
//!           list of keys (list of text, node number)
//!           frames list of text (the first letter is the kind), list of nodes (parent number, frame number)
//!           list of counts: keys of each column, key minus the one before, cells of each key,
//!             bucket minus the one before, counts
//! ```
//!
//! What is alike is together, because it compresses better.

use events::{Clock, buckets};

use crate::collect::{Heat, Panel};

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// All panels.
pub(crate) fn encode(heat: &Heat) -> Vec<u8> {
    let mut out = Vec::new();
    let drawn = || heat.panels.iter().filter(|panel| panel.cells.buckets().is_some());
    put(&mut out, drawn().count() as u64);
    drawn().for_each(|panel| put_panel(&mut out, panel, heat.clock));
    out
}

fn put_panel(out: &mut Vec<u8>, panel: &Panel, clock: Clock) {
    let stacks = panel.keys.iter().any(|key| key.node != 0);
    put_text(out, &panel.name);
    put_text(out, &panel.title());
    put(out, u64::from(stacks));
    put(out, panel.others);
    put(out, panel.cells.merged.max(1));
    let (first, last) = panel.cells.buckets().unwrap_or_default();
    put(out, u64::from(first));
    let all = buckets(panel.function).into_iter().zip(panel.ranges());
    let used: Vec<_> = all.skip(first as usize).take((last - first) as usize + 1).collect();
    put(out, used.len() as u64);
    for (bucket, (low, high)) in used {
        let end = |end: Option<i64>| end.map_or(String::new(), |end| end.to_string());
        put_text(out, &bucket.to_string());
        put_text(out, &end(low));
        put_text(out, &end(high));
    }
    let columns = &panel.cells.columns;
    let begin = columns.first().map_or(0, |column| column.begin);
    put(out, clock.wall_at(begin) / 1000);
    put(out, begin.saturating_sub(clock.time) / 1000);
    put(out, columns.len() as u64);
    // In whole microseconds from the begin, so that what is rounded does not add up.
    let since = |time: u64| time.saturating_sub(begin) / 1000;
    let mut before = 0;
    for column in columns {
        put(out, since(column.begin).saturating_sub(before));
        put(out, since(column.end).saturating_sub(since(column.begin)));
        before = since(column.end);
    }
    put(out, panel.columns.len() as u64);
    panel.columns.iter().for_each(|name| put_text(out, name));
    put(out, panel.keys.len() as u64);
    for key in &panel.keys {
        put(out, key.texts.len() as u64);
        key.texts.iter().for_each(|text| put_text(out, text));
        put(out, u64::from(key.node));
    }
    put(out, panel.frames.len() as u64);
    panel.frames.iter().for_each(|frame| put_text(out, &format!("{}{}", frame.kind.letter(), frame.name)));
    put(out, panel.nodes.len() as u64);
    for (parent, frame) in &panel.nodes {
        put(out, u64::from(*parent));
        put(out, u64::from(*frame));
    }
    let mut parts: [Vec<u8>; 5] = Default::default();
    let [keys_of, key_of, cells_of, bucket_of, counts] = &mut parts;
    for column in columns {
        let groups = || column.cells.chunk_by(|a, b| a.key == b.key);
        put(keys_of, groups().count() as u64);
        let mut before = 0;
        for group in groups() {
            let key = group.first().map_or(0, |cell| cell.key);
            put(key_of, u64::from(key.saturating_sub(before)));
            before = key;
            put(cells_of, group.len() as u64);
            let mut bucket = first;
            for cell in group {
                put(bucket_of, u64::from(cell.bucket.saturating_sub(bucket)));
                bucket = cell.bucket;
                put(counts, (cell.count << 1 ^ cell.count >> 63) as u64);
            }
        }
    }
    for part in parts {
        put(out, part.len() as u64);
        out.extend(part);
    }
}
