//! The encoding of protocol buffers: fields of a message, one behind the other.

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

    /// The fields of another message, behind those that there are.
    pub fn extend(&mut self, more: &Message) {
        self.0.extend_from_slice(&more.0);
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
