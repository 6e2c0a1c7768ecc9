//! Aggregations in their default form: keys, values, a newline.

use events::{AggValue, Row};

use super::view::View;
use super::{datum, histogram};
use crate::pad::{Field, signed};

fn value(out: &mut Vec<u8>, value: &AggValue<'_>, view: View<'_>) {
    match value.number() {
        None => histogram::distribution(out, value, view.options),
        Some(number) => {
            out.push(b' ');
            signed(out, number, Field::right(16));
        }
    }
}

pub(super) fn row(out: &mut Vec<u8>, row: &Row<'_>, view: View<'_>) {
    for key in &row.key {
        datum::key(out, key, view);
    }
    for all in &row.values {
        value(out, all, view);
        for (cpu, of_cpu) in all.each_cpu() {
            out.extend_from_slice(format!("\n    [CPU {cpu}]").as_bytes());
            value(out, &of_cpu, view);
        }
    }
    out.push(b'\n');
}
