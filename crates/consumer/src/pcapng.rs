//! The format of capture files, pcapng.
//!
//! ```text
//!  section header block       byte order and version
//!  interface description      of each link type, before its first packet
//!  enhanced packet block      interface, time in nanoseconds since 1970, the two lengths, the bytes
//! ```
//!
//! A block is a type, its length, a body that is padded to four bytes, and its length again.
//! Numbers are little-endian, which the section header says. A file may have several sections, so
//! packets can be appended to any capture file. The interfaces of a section are numbered from 0.
//!
//! Programs know link types by the `DLT_` numbers of the C library's captures. Files have the
//! `LINKTYPE_` numbers, which are the same but for a few old ones.

use events::Packet;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// The number by which a reader recognizes the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Link types whose number in files is not the one in programs.
const RENUMBERED: &[(u16, u16)] = &[(11, 100), (12, 101), (13, 102), (14, 103), (19, 106)];

/// A section that packets are added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The link type of each interface.
    links: Vec<u16>,
}

/// True for the beginning of a capture file.
pub(crate) fn is_capture(beginning: &[u8]) -> bool {
    beginning.starts_with(&SECTION.to_le_bytes())
}

impl Section {
    /// Begins a section.
    pub(crate) fn begin(out: &mut Vec<u8>) -> Section {
        block(out, SECTION, |out| {
            out.extend(BYTE_ORDER.to_le_bytes());
            // Version 1.0, and a length that is not known.
            [1u16, 0].iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(u64::MAX.to_le_bytes());
            option(out, 4, b"dtrace");
            option(out, 0, b"");
        });
        Section { links: Vec::new() }
    }

    /// Adds a packet, and its interface if the section has none of this link type.
    pub(crate) fn packet(&mut self, out: &mut Vec<u8>, packet: &Packet<'_>) {
        let link = link_type(packet.protocol);
        let interface = self.links.iter().position(|l| *l == link).unwrap_or_else(|| {
            block(out, INTERFACE, |out| {
                [link, 0].iter().for_each(|n| out.extend(n.to_le_bytes()));
                out.extend(plane::packet::LONGEST.to_le_bytes());
                // Times are in units of 10^-9 seconds.
                option(out, 9, &[9]);
                option(out, 0, b"");
            });
            self.links.push(link);
            self.links.len() - 1
        });
        block(out, PACKET, |out| {
            let time = [(packet.time >> 32) as u32, packet.time as u32];
            let lengths = [packet.bytes.len() as u32, packet.length];
            out.extend((interface as u32).to_le_bytes());
            time.iter().chain(&lengths).for_each(|n| out.extend(n.to_le_bytes()));
            out.extend_from_slice(&packet.bytes);
        });
    }
}

fn link_type(protocol: u16) -> u16 {
    RENUMBERED.iter().find(|(program, _)| *program == protocol).map_or(protocol, |(_, file)| *file)
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    body(&mut inner);
    pad(&mut inner);
    let length = (inner.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(length);
    out.extend(inner);
    out.extend(length);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    [code, value.len() as u16].iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend_from_slice(value);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u16, bytes: &'static [u8]) -> Packet<'static> {
        let time = 1_700_000_000_123_456_789;
        Packet { protocol, time, length: bytes.len() as u32 + 1, bytes: bytes.into() }
    }

    /// Types and bodies of the blocks, whose two lengths agree.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        while !file.is_empty() {
            let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            let (kind, length) = (number(0), number(4) as usize);
            assert_eq!((length % 4, number(length - 4) as usize), (0, length));
            all.push((kind, file[8..length - 4].to_vec()));
            file = &file[length..];
        }
        all
    }

    #[test]
    fn an_interface_is_described_before_the_first_packet_of_its_link_type() {
        let mut out = Vec::new();
        let mut section = Section::begin(&mut out);
        assert!(is_capture(&out));
        for (protocol, bytes) in [(1, b"abcde"), (12, b"fghij"), (1, b"klmno")] {
            section.packet(&mut out, &packet(protocol, bytes));
        }
        let all = blocks(&out);
        let kinds: Vec<u32> = all.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, PACKET, INTERFACE, PACKET, PACKET]);
        // Raw IP is 12 in programs and 101 in files.
        assert_eq!([all[1].1[0], all[3].1[0]], [1, 101]);
        assert_eq!([all[2].1[0], all[4].1[0], all[5].1[0]], [0, 1, 0]);
    }

    #[test]
    fn any_packets_are_read_back_as_they_were_in_their_order() {
        let mut random = testing::rng::Rng::new(1);
        for _ in 0..200 {
            let mut out = Vec::new();
            let mut section = Section::begin(&mut out);
            let packets: Vec<Packet<'_>> = (0..random.below(40))
                .map(|_| {
                    let bytes: Vec<u8> = (0..random.below(70)).map(|_| random.bits() as u8).collect();
                    let length = random.bits() as u32 >> random.below(32);
                    let protocol = random.bits() as u16 >> random.below(16);
                    Packet { protocol, time: random.bits(), length, bytes: bytes.into() }
                })
                .collect();
            packets.iter().for_each(|packet| section.packet(&mut out, packet));
            let (mut links, mut read) = (Vec::new(), 0);
            for (kind, body) in blocks(&out) {
                let number = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
                match kind {
                    INTERFACE => links.push(number(0) as u16),
                    PACKET => {
                        let packet = &packets[read];
                        read += 1;
                        assert_eq!(links[number(0) as usize], link_type(packet.protocol));
                        assert_eq!(u64::from(number(4)) << 32 | u64::from(number(8)), packet.time);
                        assert_eq!([number(12), number(16)], [packet.bytes.len() as u32, packet.length]);
                        assert_eq!(body[20..20 + packet.bytes.len()], *packet.bytes);
                    }
                    _ => assert_eq!(kind, SECTION),
                }
            }
            assert_eq!(read, packets.len());
            // Each link type has one interface.
            let all: std::collections::BTreeSet<u16> = links.iter().copied().collect();
            assert_eq!(all.len(), links.len());
        }
    }

    #[test]
    fn a_packet_has_its_time_in_nanoseconds_and_both_lengths() {
        let mut out = Vec::new();
        Section::begin(&mut out).packet(&mut out, &packet(1, b"abcde"));
        let (_, body) = blocks(&out).remove(2);
        let number = |at: usize| u64::from(u32::from_le_bytes(body[at..at + 4].try_into().unwrap()));
        assert_eq!(number(4) << 32 | number(8), 1_700_000_000_123_456_789);
        assert_eq!([number(12), number(16)], [5, 6]);
        assert_eq!(&body[20..], b"abcde\0\0\0");
    }
}
