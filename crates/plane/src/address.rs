//! Network addresses in records and keys.
//!
//! A program that formats an address takes ten times as long as one that reads it. So where the
//! text of an address is only recorded, or is a column of a key, the program gives the address, and
//! its reader the text. Different values have different texts, so keys are equal if their bytes
//! are.
//!
//! ```text
//!  bytes    0 … 7    8 … 11         12 … 15
//!  IPv6     the address
//!  IPv4     0        0 0 ff ff      the address, as IPv6 has it ("mapped")
//!  text     0        0              2n + 1: the nth of a few texts that stand for no address
//! ```
//!
//! `inet_ntoa6()` shows `::a.b.c.d` ("compatible") like a mapped address, so it is recorded as one.
//! The numbers 0 and 1 there are the addresses `::` and `::1`, in network order: even words.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of an address in a record.
pub const SIZE: u32 = 16;

/// Bytes of the longest text, with its NUL.
pub const LONGEST: u32 = 40;

/// The lower half of an IPv4 address's second word. The upper half is the address.
pub const MAPPED: u64 = 0xffff_0000;

/// The other half of the second word of `::1`. That of `::` is 0.
pub const LOOPBACK: u64 = 0x0100_0000;

/// Texts in place of an address.
const TEXTS: [&[u8]; 2] = [b"", b"<unknown>"];

/// The words that stand for a text, if it is one of the few that columns of addresses may have.
pub fn words_of(text: &[u8]) -> Option<[u64; 2]> {
    let n = TEXTS.iter().position(|t| *t == text)? as u64;
    Some([0, (2 * n + 1) << 32])
}

/// The text of an address.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    bytes: [u8; LONGEST as usize],
    length: usize,
}

impl Text {
    /// The text of an address in a record.
    pub fn new(words: [u64; 2]) -> Text {
        let other = match words {
            [0, word] if word as u32 == 0 && word >> 32 & 1 == 1 => TEXTS.get((word >> 33) as usize),
            _ => None,
        };
        if let Some(text) = other {
            return Text::of(|out| text.iter().try_for_each(|b| out.write_char(char::from(*b))));
        }
        let [first, second] = words.map(u64::to_le_bytes);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(first.into_iter().chain(second)).for_each(|(to, from)| *to = from);
        Text::ipv6(bytes)
    }

    /// The text of an IPv6 address. An IPv4 address in it is shown alone.
    pub fn ipv6(address: [u8; 16]) -> Text {
        match EmbeddedIpv4::of(address) {
            EmbeddedIpv4::Mapped(v4) | EmbeddedIpv4::Compatible(v4) => Text::of(|out| write!(out, "{v4}")),
            EmbeddedIpv4::None => Text::of(|out| groups(address, out)),
        }
    }

    fn of(write: impl FnOnce(&mut Text) -> fmt::Result) -> Text {
        let mut text = Text { bytes: [0; LONGEST as usize], length: 0 };
        // No text is longer.
        let _ = write(&mut text);
        text
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let rest = self.bytes.get_mut(self.length..).unwrap_or_default();
        rest.get_mut(..s.len()).ok_or(fmt::Error)?.copy_from_slice(s.as_bytes());
        self.length += s.len();
        Ok(())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

/// The IPv4 address in an IPv6 address, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddedIpv4 {
    /// `::ffff:a.b.c.d`.
    Mapped(Ipv4Addr),
    /// `::a.b.c.d`.
    Compatible(Ipv4Addr),
    /// It contains none.
    None,
}

impl EmbeddedIpv4 {
    /// Looks for it.
    pub fn of(address: [u8; 16]) -> EmbeddedIpv4 {
        let [.., a, b, c, d] = address;
        let v4 = Ipv4Addr::new(a, b, c, d);
        match (&address[..10], &address[10..12]) {
            ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0xff, 0xff]) => EmbeddedIpv4::Mapped(v4),
            // `::` and `::1` are addresses of their own.
            ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0]) if u32::from(v4) > 1 => EmbeddedIpv4::Compatible(v4),
            _ => EmbeddedIpv4::None,
        }
    }
}

/// Writes IPv6 groups without leading zeros. The first longest run of two or more zero groups
/// becomes `::`.
pub fn groups(address: [u8; 16], out: &mut impl Write) -> fmt::Result {
    let groups = Ipv6Addr::from(address).segments();
    let (mut start, mut count) = (0, 0);
    for i in 0..groups.len() {
        let run = groups.iter().skip(i).take_while(|g| **g == 0).count();
        if run > count {
            (start, count) = (i, run);
        }
    }
    if count < 2 {
        (start, count) = (groups.len(), 0);
    }
    for (i, group) in groups.iter().enumerate() {
        if i == start {
            out.write_str("::")?;
        } else if i > 0 && i != start + count && !(start..start + count).contains(&i) {
            out.write_char(':')?;
        }
        if !(start..start + count).contains(&i) {
            write!(out, "{group:x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: [u64; 2]) -> String {
        String::from_utf8(Text::new(words).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn every_byte_of_an_ipv4_address_is_shown_in_decimal() {
        for place in 0..4 {
            for byte in 0..=255_u8 {
                let mut address = [9, 10, 199, 200];
                address[place] = byte;
                let words = [0, u64::from(u32::from_le_bytes(address)) << 32 | MAPPED];
                assert_eq!(shown(words), address.map(|b| b.to_string()).join("."));
            }
        }
    }

    #[test]
    fn every_pattern_of_zero_groups_is_shown_as_the_standard_library_shows_it() {
        for zeros in 0..=255_u32 {
            for group in [1, 0xa, 0xabcd_u16] {
                let groups: [u16; 8] = std::array::from_fn(|i| if zeros >> i & 1 == 1 { 0 } else { group });
                let address = Ipv6Addr::from(groups);
                // The library shows compatible addresses otherwise.
                if address.to_ipv4().is_some_and(|v4| u32::from(v4) > 1) {
                    continue;
                }
                let bytes = address.octets();
                let word = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap());
                assert_eq!(shown([word(0), word(8)]), address.to_string());
            }
        }
    }

    #[test]
    fn texts_in_place_of_an_address_are_not_those_of_addresses() {
        for text in TEXTS {
            assert_eq!(Text::new(words_of(text).unwrap()).as_bytes(), text);
        }
        assert_eq!(words_of(b"unknown"), None);
        assert_eq!(shown([0, 0]), "::");
        assert_eq!(shown([0, LOOPBACK << 32]), "::1");
        // No program writes this.
        assert_eq!(shown([0, 0x0505_0505 << 32]), "5.5.5.5");
        assert_eq!(shown([u64::MAX; 2]).len() as u32, LONGEST - 1);
    }
}
