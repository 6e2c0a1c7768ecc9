//! Questions about types, and answers, on the wire. An answer is cut into packets, and put together
//! before it is decoded.

use debuginfo::{Answer, NameKind, ObjectPart, Place, Query};

use super::codec::{MAX_NAME, Reader, Writer, decode_all};

/// Bytes of an answer in one packet.
pub(crate) const PART: usize = 48 << 10;

/// Bytes of an answer. One that is longer is malformed.
pub(crate) const MAX_ANSWER: usize = 64 << 20;

const KINDS: [NameKind; 5] =
    [NameKind::Struct, NameKind::Union, NameKind::Enum, NameKind::Typedef, NameKind::Variable];

impl Writer {
    pub(super) fn types_query(&mut self, query: &Query) {
        let kind = |kind: NameKind| KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8;
        match query {
            Query::Function { address, name } => {
                self.u8(1);
                self.u64(*address);
                self.bytes(name.as_bytes());
            }
            Query::Name(of, name) => {
                self.u8(2);
                self.u8(kind(*of));
                self.bytes(name.as_bytes());
            }
            Query::Entry(key) => {
                self.u8(3);
                self.u64(*key);
            }
            Query::Like(of, beginning) => {
                self.u8(4);
                self.u8(kind(*of));
                self.bytes(beginning.as_bytes());
            }
        }
    }
}

impl Reader<'_> {
    pub(super) fn types_query(&mut self) -> Option<Query> {
        Some(match self.u8()? {
            1 => Query::Function { address: self.u64()?, name: self.text()? },
            2 => Query::Name(self.name_kind()?, self.text()?),
            3 => Query::Entry(self.u64()?),
            4 => Query::Like(self.name_kind()?, self.text()?),
            _ => return None,
        })
    }

    fn name_kind(&mut self) -> Option<NameKind> {
        KINDS.get(usize::from(self.u8()?)).copied()
    }
}

/// The bytes of an answer, and of the address in the file at which an offset of it is.
pub(crate) fn encode(answer: &Answer, base: Option<u64>) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(base.is_some().into());
    w.u64(base.unwrap_or(0));
    w.bytes(&answer.btf);
    w.u8(answer.found.is_some().into());
    w.u32(answer.found.unwrap_or(0));
    w.list(&answer.cuts, |w, (id, key)| {
        w.u32(*id);
        w.u64(*key);
    });
    w.list(&answer.places, |w, place| match place {
        Place::Argument(n) => [0, *n].into_iter().for_each(|b| w.u8(b)),
        Place::Object(n) => [1, *n].into_iter().for_each(|b| w.u8(b)),
        Place::Unreadable(why) => {
            w.u8(2);
            w.bytes(why.as_bytes());
        }
        Place::Parts(parts) => {
            w.u8(3);
            w.list(parts, |w, part| {
                w.u32(part.offset);
                w.u8(part.size);
                w.u8(part.argument);
            });
        }
    });
    w.u32(answer.results);
    w.u8(answer.address.is_some().into());
    w.u64(answer.address.unwrap_or(0));
    w.list(&answer.names, |w, name| w.bytes(name.as_bytes()));
    w.0
}

/// The answer of bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Answer, Option<u64>)> {
    decode_all(bytes, |r| {
        let (has_base, base) = (r.flag()?, r.u64()?);
        let btf = r.bytes()?.to_vec();
        let (is_found, found) = (r.flag()?, r.u32()?);
        let cuts = r.list(|r| Some((r.u32()?, r.u64()?)))?;
        let places = r.list(|r| {
            Some(match r.u8()? {
                0 => Place::Argument(r.u8()?),
                1 => Place::Object(r.u8()?),
                2 => Place::Unreadable(r.text()?),
                3 => Place::Parts(r.list(|r| {
                    let part = ObjectPart { offset: r.u32()?, size: r.u8()?, argument: r.u8()? };
                    matches!(part.size, 1 | 2 | 4 | 8).then_some(part)
                })?),
                _ => return None,
            })
        })?;
        let results = r.u32()?;
        let (has_address, address) = (r.flag()?, r.u64()?);
        let names = r.list(Reader::text)?;
        let answer = Answer {
            btf,
            found: is_found.then_some(found),
            cuts,
            places,
            results,
            address: has_address.then_some(address),
            names,
        };
        Some((answer, has_base.then_some(base)))
    })
}

/// True for a question whose text fits.
pub(crate) fn fits(query: &Query) -> bool {
    match query {
        Query::Function { name, .. } | Query::Name(_, name) | Query::Like(_, name) => name.len() <= MAX_NAME,
        Query::Entry(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_decodes_to_what_was_encoded_and_a_damaged_one_does_not_panic() {
        let answer = Answer {
            btf: vec![1, 2, 3],
            found: Some(4),
            cuts: vec![(5, 6)],
            places: vec![
                Place::Argument(1),
                Place::Object(2),
                Place::Unreadable("why".into()),
                Place::Parts(vec![ObjectPart { offset: 8, size: 4, argument: 3 }]),
            ],
            results: 1,
            address: Some(7),
            names: vec!["a".into(), "b".into()],
        };
        for answer in [answer, Answer::default()] {
            let bytes = encode(&answer, Some(8));
            assert_eq!(decode(&bytes), Some((answer, Some(8))));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), None);
                let mut damaged = bytes.clone();
                damaged[cut] ^= 0xff;
                decode(&damaged);
            }
        }
    }
}
