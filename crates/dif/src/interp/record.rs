//! The bytes of keys and records, in the layout of [`plane::desc`].

use super::Frame;
use crate::ir::{Datum, Field, Value};

impl Frame<'_> {
    /// A key in its layout: zero-padded words.
    pub(super) fn key(&mut self, columns: &[Field], size: u32, values: &[Value]) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        let mut values = values.iter();
        for field in columns {
            let given: Vec<Value> = values.by_ref().take(field.datum.values()).copied().collect();
            let text = self.column(field.datum, &given);
            put(&mut bytes, field.offset, &text);
        }
        bytes
    }

    pub(super) fn write_record(&mut self, field: Field, values: &[Value]) {
        let bytes = self.column(field.datum, values);
        self.put_record(field, &bytes);
    }

    pub(super) fn put_record(&mut self, field: Field, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            put(&mut record.data, field.offset, bytes);
            let start = (field.offset as usize).min(record.written.len());
            let end = (start + bytes.len()).min(record.written.len());
            record.written[start..end].fill(true);
        }
    }

    /// The bytes of one column.
    pub(super) fn column(&mut self, datum: Datum, values: &[Value]) -> Vec<u8> {
        let word = |i: usize| values.get(i).map_or(0, |v| self.int(*v)).to_le_bytes();
        match datum {
            Datum::Int { size, .. } => word(0)[..usize::from(size).min(8)].to_vec(),
            Datum::Whole { .. }
            | Datum::KernelStack { .. }
            | Datum::UserStack { .. }
            | Datum::KernelAddr(_) => word(0).to_vec(),
            Datum::UserAddr(_) | Datum::Address { .. } => [word(0), word(1)].concat(),
            Datum::Str { size } | Datum::Name { size } => {
                let mut text = values.first().map_or(&b""[..], |v| self.text(*v)).to_vec();
                text.truncate(size.saturating_sub(1) as usize);
                text.resize(size as usize, 0);
                text
            }
            Datum::Interned | Datum::Provider => {
                let text = values.first().map_or(&b""[..], |v| self.text(*v)).to_vec();
                let pid = word(1);
                let pid = if datum == Datum::Provider { &pid[..4] } else { &[] };
                [&self.state.intern(&text).to_le_bytes(), pid].concat()
            }
            Datum::Bytes { size } => match values.first() {
                // The verifier checked that this is a copy, which is readable.
                Some(addr) => self.bytes_at(*addr, size as usize).unwrap_or_default(),
                None => Vec::new(),
            },
        }
    }
}

fn put(bytes: &mut [u8], offset: u32, data: &[u8]) {
    let start = offset as usize;
    if let Some(place) = bytes.get_mut(start..start.saturating_add(data.len())) {
        place.copy_from_slice(data);
    }
}
