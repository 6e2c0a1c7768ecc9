//! Writes and reads the fields of packets.

/// Maximum length of a symbol's name and of a reason.
pub(crate) const MAX_NAME: usize = 4096;

/// The fields of a packet.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub(super) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(super) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(super) fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
    pub(super) fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Writer, &T)) {
        self.u32(list.len() as u32);
        list.iter().for_each(|item| each(self, item));
    }
    pub(super) fn numbers(&mut self, list: &[u64]) {
        self.list(list, |w, v| w.u64(*v));
    }
}

/// The rest of a packet.
#[derive(Default)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }
    /// The number of bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
    /// The bytes that are read.
    pub(super) fn span(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a [u8]> {
        let before = self.0;
        read(self)?;
        before.get(..before.len().checked_sub(self.0.len())?)
    }
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }
    pub(super) fn text(&mut self) -> Option<String> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        (text.len() <= MAX_NAME).then(|| text.into())
    }
    /// A list. Its length is at most the number of remaining bytes, which bounds the allocation.
    pub(super) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.u32()? as usize;
        if length > self.0.len() {
            return None;
        }
        (0..length).map(|_| each(self)).collect()
    }
    pub(super) fn numbers(&mut self) -> Option<Vec<u64>> {
        self.list(Self::u64)
    }
}

/// Decodes a packet to its last byte.
pub(super) fn decode_all<'a, T>(
    packet: &'a [u8],
    decode: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<T> {
    let mut reader = Reader(packet);
    let value = decode(&mut reader)?;
    reader.0.is_empty().then_some(value)
}
