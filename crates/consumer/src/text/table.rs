//! Aggregations in their default form: keys, values, a newline.

use super::{View, datum, histogram, packed};
use crate::agg::rows::{Cell, Row};
use crate::pad::{Field, signed};

fn value(out: &mut Vec<u8>, cell: &Cell<'_>, view: &mut View<'_>) {
    if cell.is_histogram() {
        histogram::distribution(out, cell, view.options);
    } else {
        out.push(b' ');
        signed(out, cell.scalar(), Field::right(16));
    }
}

pub(super) fn rows(out: &mut Vec<u8>, rows: &[Row<'_>], view: &mut View<'_>) {
    if packed::rows(out, rows, view) {
        return;
    }
    for row in rows {
        for key in &row.keys {
            datum::key(out, key, view);
        }
        for cell in &row.cells {
            value(out, cell, view);
            for (cpu, cell) in cell.each_cpu() {
                out.extend_from_slice(format!("\n    [CPU {cpu}]").as_bytes());
                value(out, &cell, view);
            }
        }
        out.push(b'\n');
    }
}
