//! Compact forms of aggregations: `agghist` prints counts and sums as bars, `aggpack` a
//! distribution in one line.
//!
//! ```text
//!               key  ------------- Distribution ------------- count
//!               bot |@@@@@@@@@@@@@@@@@@@@                     20
//!
//!       key  min .---. max  | count
//!         1    0 : X : 2    | 1
//! ```
//!
//! Both have one header for all rows, so keys must have the same width in each row: numbers,
//! strings and symbols. A stack is printed on several lines, and an aggregation with a stack in its
//! key has the default form.

use events::{AggFunc, AggValue, Bucket, Row, Value, buckets, normalized};
use plane::desc::QUANTIZE_ZERO;

use super::datum;
use super::histogram::{HEADING, Scale};
use super::view::View;
use crate::options::{Encoding, Options};
use crate::pad::{Field, fill, signed, string};

/// Columns of a string or symbol in a key.
const TEXT: usize = 16;

/// The columns of a key; `None` if a part of it takes several lines.
fn key_width(row: &Row<'_>) -> Option<usize> {
    let column = |value: &Value<'_>| match value {
        Value::Int(int) => Some(1 + datum::int_columns(int.size)),
        Value::Str { .. } | Value::Name { .. } | Value::Symbol(_) => Some(1 + TEXT),
        _ => None,
    };
    row.key.iter().map(column).sum()
}

fn keys(out: &mut Vec<u8>, row: &Row<'_>, view: View<'_>) {
    for value in &row.key {
        match value {
            Value::Int(_) => datum::key(out, value, view),
            _ => {
                out.push(b' ');
                string(out, &datum::words(value, view), Field::right(TEXT));
            }
        }
    }
}

/// A form that has one header for all rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `agghist`
    Bars { width: usize },
    /// `aggpack`
    Lines { width: usize, function: AggFunc },
}

/// The form of rows like this one; `None` for the default form.
pub(super) fn form(row: &Row<'_>, view: View<'_>) -> Option<Form> {
    let ([value], Some(width)) = (&row.values[..], key_width(row)) else { return None };
    match value.function {
        AggFunc::Count | AggFunc::Sum if view.options.agghist && width > 0 => Some(Form::Bars { width }),
        function @ (AggFunc::Quantize | AggFunc::Lquantize { .. }) if view.options.aggpack => {
            Some(Form::Lines { width, function })
        }
        _ => None,
    }
}

/// Prints all rows of a `printa()` in a form.
pub(super) fn rows(out: &mut Vec<u8>, rows: &[Row<'_>], form: Form, view: View<'_>) {
    match form {
        Form::Bars { width } => bars(out, rows, width, view),
        Form::Lines { width, function } => lines(out, rows, function, width, view),
    }
}

fn single<'r, 'a>(row: &'r Row<'a>) -> Option<&'r AggValue<'a>> {
    row.values.first()
}

/// `agghist`
fn bars(out: &mut Vec<u8>, rows: &[Row<'_>], width: usize, view: View<'_>) {
    let value = |row: &Row<'_>| single(row).and_then(|c| c.words.first()).map_or(0, |w| *w as i64);
    out.push(b'\n');
    string(out, b"key", Field::right(width));
    out.extend_from_slice(HEADING.as_bytes());
    let scale = Scale::new(rows.iter().map(value), view.options).whole();
    for row in rows {
        keys(out, row, view);
        out.push(b' ');
        scale.line(out, value(row), single(row).map_or(1, |c| c.normal));
    }
}

/// The buckets that are printed in all rows, and the texts of the first and the last one.
struct Range {
    first: usize,
    last: usize,
    min: String,
    max: String,
    min_columns: usize,
    max_columns: usize,
}

fn range(rows: &[Row<'_>], func: AggFunc) -> Range {
    let all = buckets(func);
    let text = |at: usize| all.get(at).map_or(String::new(), Bucket::to_string);
    let last = all.len().saturating_sub(1);
    if func != AggFunc::Quantize {
        let (min, max) = (text(0), text(last));
        return Range { first: 0, last, min, max, min_columns: 7, max_columns: 8 };
    }
    let zero = QUANTIZE_ZERO as usize;
    let used = |row: &Row<'_>, from_end: bool| {
        let words = single(row).map_or(&[][..], |c| &c.words);
        if from_end { words.iter().rposition(|w| *w != 0) } else { words.iter().position(|w| *w != 0) }
    };
    let first = rows.iter().filter_map(|r| used(r, false)).min().unwrap_or(zero);
    let end = rows.iter().filter_map(|r| used(r, true)).max().unwrap_or(zero);
    // One empty bucket on each side, but no negative bucket next to zero.
    let first = if first == zero { zero } else { first.saturating_sub(1) };
    let last = (end + 1).min(last);
    let (min, max) = (text(first), text(last));
    let (min_columns, max_columns) = (min.len().max(4), max.len().max(4));
    Range { first, last, min, max, min_columns, max_columns }
}

/// `aggpack`
fn lines(out: &mut Vec<u8>, rows: &[Row<'_>], func: AggFunc, width: usize, view: View<'_>) {
    let range = range(rows, func);
    out.push(b'\n');
    string(out, if width > 0 { b"key" } else { b"" }, Field::right(width));
    out.push(b' ');
    string(out, b"min", Field::right(range.min_columns));
    out.extend_from_slice(b" .");
    fill(out, b'-', (range.last + 1).saturating_sub(range.first));
    out.extend_from_slice(b". ");
    string(out, b"max", Field::left(range.max_columns));
    out.extend_from_slice(b" | count\n");
    for row in rows {
        let Some(cell) = single(row) else { continue };
        keys(out, row, view);
        out.push(b' ');
        string(out, range.min.as_bytes(), Field::right(range.min_columns));
        out.extend_from_slice(b" :");
        let count = |at: usize| cell.words.get(at).map_or(0, |w| *w as i64);
        let scale = Scale::new(cell.words.iter().map(|w| *w as i64), view.options);
        for at in range.first..=range.last {
            mark(out, count(at), &scale, view.options);
        }
        out.extend_from_slice(b": ");
        string(out, range.max.as_bytes(), Field::left(range.max_columns));
        out.extend_from_slice(b" | ");
        let total = cell.words.iter().fold(0i64, |sum, w| sum.wrapping_add(*w as i64));
        signed(out, normalized(total, cell.normal), Field::default());
        out.push(b'\n');
    }
}

/// A bucket as one character: a blank if it is empty, otherwise a block whose height is its share
/// of the row's counts.
fn mark(out: &mut Vec<u8>, count: i64, scale: &Scale, options: &Options) {
    const ASCII: &[u8] = b"__xxxxXX";
    const NEGATIVE: &[u8] = b"vvvvVV";
    let pick = |choices: usize| ((scale.exact(count, choices - 1) + 0.5) as usize).min(choices - 1);
    let block = |blocks: &[u8]| blocks.get(pick(blocks.len())).copied().unwrap_or(b' ');
    match count {
        0 => out.push(b' '),
        ..0 => out.push(block(NEGATIVE)),
        _ if options.encoding == Encoding::Utf8 => {
            // U+2581 is one eighth of a block, U+2588 all of it.
            let block = char::from_u32(0x2581 + pick(8) as u32).unwrap_or('#');
            out.extend_from_slice(block.encode_utf8(&mut [0; 4]).as_bytes());
        }
        _ => out.push(block(ASCII)),
    }
}
