//! Numbers and texts in a record. What is read is bounded by the bytes that there are.

/// Bytes that are written.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// The sign is in the lowest bit.
    pub(crate) fn signed(&mut self, n: i64) {
        self.number((n << 1 ^ n >> 63) as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn list<T>(
        &mut self,
        all: impl ExactSizeIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) {
        self.number(all.len() as u64);
        all.for_each(|one| each(self, one));
    }

    /// A value, or the reason why there is none.
    pub(crate) fn result<T>(&mut self, value: Result<T, &String>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Ok(value) => {
                self.byte(1);
                write(self, value);
            }
            Err(why) => {
                self.byte(0);
                self.text(why);
            }
        }
    }
}

/// Bytes that are read. `None`: they end, or are none that a [`Writer`] writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit.
            if bits << shift >> shift != bits {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.number()?.try_into().ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let n = self.number()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.small()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        self.text().map(String::from)
    }

    /// Each element has a byte or more, so the list is no longer than what is left.
    pub(crate) fn list<T, C: FromIterator<T>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<C> {
        let count: usize = self.small()?;
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| each(self)).collect()
    }

    pub(crate) fn result<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Result<T, String>> {
        match self.byte()? {
            1 => read(self).map(Ok),
            0 => self.string().map(Err),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut w = Writer::default();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let signed = [0, 1, -1, 63, -64, i64::MAX, i64::MIN];
        numbers.iter().for_each(|n| w.number(*n));
        signed.iter().for_each(|n| w.signed(*n));
        w.text("straße");
        w.list([1u8, 2, 3].iter(), |w, n| w.byte(*n));
        w.result(Ok(7), Writer::number);
        w.result(Err(&"why".to_owned()), Writer::number);
        let mut r = Reader(&w.0);
        assert!(numbers.iter().all(|n| r.number() == Some(*n)));
        assert!(signed.iter().all(|n| r.signed() == Some(*n)));
        assert_eq!(r.text(), Some("straße"));
        assert_eq!(r.list::<u8, Vec<u8>>(Reader::byte), Some(vec![1, 2, 3]));
        assert_eq!(r.result(Reader::number), Some(Ok(7)));
        assert_eq!(r.result(Reader::number), Some(Err("why".into())));
        assert!(r.0.is_empty() && r.number().is_none());
    }

    #[test]
    fn what_nobody_writes_is_refused() {
        // Eleven bytes, a number of 65 bits, and a list and a text that are longer than what is
        // left.
        assert_eq!(Reader(&[0x80; 11]).number(), None);
        assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(Reader(&[3, 1, 1]).list::<u8, Vec<u8>>(Reader::byte), None);
        assert_eq!(Reader(&[9, b'a']).text(), None);
        assert_eq!(Reader(&[2, 0xff, 0xfe]).text(), None);
        assert_eq!(Reader(&[2]).result(Reader::byte), None);
    }
}
