//! The field of a packet that `pcap()` records.
//!
//! ```text
//!  0   u32  bytes of the packet, the length of its socket buffer
//!  4   u32  bytes of it that were recorded
//!  8   ...  these bytes, followed by zeros
//! ```
//!
//! The field is longer than the limit of recorded bytes by [`SPARE`]. A program copies the pages of
//! a packet in chunks. The verifier knows the bound of a position and the bound of a length, but
//! not the bound of their sum, so the last chunk may end there for all that the verifier knows.

/// Bytes before those of the packet.
pub const HEAD: u32 = 8;

/// Most bytes that one step copies from a page of a packet.
pub const CHUNK: u32 = 248;

/// Bytes behind those of the packet: a chunk, and a word because functions take whole words.
pub const SPARE: u32 = CHUNK + 8;

/// The greatest limit of recorded bytes.
pub const LONGEST: u32 = 65535;

/// Size of the field where at most `limit` bytes of a packet are recorded.
pub fn size(limit: u32) -> u32 {
    HEAD + limit + SPARE
}

/// The limit of recorded bytes for a field of this size.
pub fn limit(size: u32) -> u32 {
    size.saturating_sub(HEAD + SPARE)
}

/// A packet in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Bytes of the packet.
    pub length: u32,
    /// Those that were recorded, from its start.
    pub bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a field. `None` if the field says that it has more bytes than it has.
    pub fn read(field: &'a [u8]) -> Option<Packet<'a>> {
        let (length, rest) = field.split_first_chunk()?;
        let (recorded, rest) = rest.split_first_chunk()?;
        let recorded = u32::from_le_bytes(*recorded);
        let bytes = rest.get(..recorded as usize).filter(|_| recorded <= limit(field.len() as u32))?;
        Some(Packet { length: u32::from_le_bytes(*length), bytes })
    }

    /// Writes a field where at most the `limit` first bytes are recorded.
    pub fn write(&self, limit: u32) -> Vec<u8> {
        let bytes = self.bytes.get(..limit as usize).unwrap_or(self.bytes);
        let mut field = Vec::with_capacity(size(limit) as usize);
        field.extend_from_slice(&self.length.to_le_bytes());
        field.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        field.extend_from_slice(bytes);
        field.resize(size(limit) as usize, 0);
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_truncated_to_the_limit_and_keeps_its_length() {
        let packet = Packet { length: 5, bytes: b"bytes" };
        assert_eq!(Packet::read(&packet.write(5)), Some(packet));
        assert_eq!(Packet::read(&packet.write(9)), Some(packet));
        assert_eq!(Packet::read(&packet.write(2)), Some(Packet { length: 5, bytes: b"by" }));
        assert_eq!(packet.write(2).len(), size(2) as usize);
    }

    #[test]
    fn a_field_that_claims_more_bytes_than_its_limit_is_malformed() {
        let mut field = Packet { length: 1, bytes: b"a" }.write(1);
        field[4] = 2;
        assert_eq!(Packet::read(&field), None);
        assert_eq!(Packet::read(&field[..7]), None);
    }
}
