//! Aggregations in their default form: keys, values, a newline.

use super::{View, datum, histogram, packed};
use crate::agg::rows::Row;
use crate::pad::{Field, signed};

pub(super) fn rows(out: &mut Vec<u8>, rows: &[Row<'_>], view: &mut View<'_>) {
    if packed::rows(out, rows, view) {
        return;
    }
    for row in rows {
        for key in &row.keys {
            datum::key(out, key, view);
        }
        for cell in &row.cells {
            if cell.is_histogram() {
                histogram::distribution(out, cell, view.options);
            } else {
                out.push(b' ');
                signed(out, cell.scalar(), Field::right(16));
            }
        }
        out.push(b'\n');
    }
}
