//! The encoding of protocol buffers: the fields of a message, one behind the other.
//!
//! Profiles, timelines and metrics are messages that others define. Whoever writes one knows the
//! numbers and types of its fields and calls [`Message`] for each. So there is no description of
//! messages here, and no generated code. [`fields`] reads what a server answers.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

/// A message of protocol buffers.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field that is a number; 0 is not written.
    pub fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.present(field, value);
        }
    }

    /// A field that is a number, where 0 is another thing than none. A negative number of a field
    /// of signed ones is extended to 64 bits.
    pub fn present(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// A field that is a number of eight bytes.
    pub fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A field that is a text or bytes.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A field that is a message.
    pub fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// A field that is a list of numbers.
    pub fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut all = Message::default();
        values.into_iter().for_each(|value| all.varint(value));
        self.message(field, &all);
    }

    /// A field that is a list of numbers of eight bytes.
    pub fn packed_fixed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let all: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &all);
    }

    /// Fields that are encoded already, behind those that there are.
    pub fn encode(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// The fields of another message, behind those that there are.
    pub fn extend(&mut self, more: &Message) {
        self.encode(&more.0);
    }

    /// The bytes.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all fields; the memory is kept.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The value of a field, as it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, or one of four or eight bytes.
    Number(u64),
    /// A text, bytes, a message, or a list of numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers. What is no message ends them.
pub fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Number(u64::from_le_bytes(*take(&mut bytes, 8)?.first_chunk()?)),
            2 => {
                let length = varint(&mut bytes)?;
                Value::Bytes(take(&mut bytes, usize::try_from(length).ok()?)?)
            }
            5 => Value::Number(u32::from_le_bytes(*take(&mut bytes, 4)?.first_chunk()?).into()),
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = *take(bytes, 1)? else { return None };
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            all in prop::collection::vec((1..1u64 << 29, 0..4, any::<u64>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20)
        ) {
            let mut message = Message::default();
            let mut expected = Vec::new();
            for (field, kind, number, bytes) in &all {
                match kind {
                    0 => message.present(*field, *number),
                    1 => message.fixed(*field, *number),
                    2 => message.number(*field, *number),
                    _ => message.bytes(*field, bytes),
                }
                match kind {
                    2 if *number == 0 => {}
                    3 => expected.push((*field, Value::Bytes(bytes))),
                    _ => expected.push((*field, Value::Number(*number))),
                }
            }
            prop_assert_eq!(fields(message.encoded()).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_bytes_have_no_more_fields_than_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(fields(&bytes).count() <= bytes.len() / 2);
        }
    }

    #[test]
    fn numbers_and_lists_are_encoded_as_the_documentation_of_protocol_buffers_shows() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.packed(6, [3, 270, 86942]);
        message.packed_fixed(7, [1]);
        let expected =
            b"\x08\x96\x01\x12\x07testing\x32\x06\x03\x8e\x02\x9e\xa7\x05\x3a\x08\x01\0\0\0\0\0\0\0";
        assert_eq!(message.encoded(), expected);
    }
}
