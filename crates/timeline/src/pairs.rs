//! Slices between any two probes (`-x slices`): what begins at one and ends at another, on whatever
//! threads, and is known by a value that both record.
//!
//! Such slices may overlap, which those of a track must not. So each pair has as many tracks as
//! it has slices at once; they have one name, and the viewer shows them as one.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use diagnostics::control;
use events::{Action, Field, Probe, Value};
use flame::escape;
use probes::{FieldKind, Pattern, ProbeDesc};
use protobuf::Message;

use crate::field::track;
use crate::packets::{Happening, Kind, Name, Packets};

/// The most open slices of all pairs.
const MOST: usize = 1 << 16;
/// The most bytes of a key that are kept; the others are a hash.
const LONGEST: usize = 256;

/// Two probes, and the value of each by which they belong together:
/// `io:::start(arg0)..io:::done(arg0)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    text: String,
    begin: End,
    end: End,
}

/// A probe with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    probe: Pattern,
    key: Key,
}

/// Which value of a record is the key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    /// The value of this number, from 1.
    Number(usize),
    /// The value of this expression, without blanks.
    Expression(String),
}

/// A text that is no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPair;

impl fmt::Display for NoPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "two probes with what their records have in common, as in io:::start(arg0)..io:::done(arg0)",
        )
    }
}

impl std::error::Error for NoPair {}

impl Pair {
    /// The pair that a text describes.
    pub fn parse(text: &str) -> Result<Pair, NoPair> {
        let (begin, end) = text.split_once(")..").ok_or(NoPair)?;
        let end = end.trim_end().strip_suffix(')').ok_or(NoPair)?;
        Ok(Pair {
            text: escape::name(text.trim().as_bytes()),
            begin: End::parse(begin)?,
            end: End::parse(end)?,
        })
    }
}

impl Pair {
    /// The description of a probe that is none of these.
    pub fn missing<'a>(&self, probes: impl Iterator<Item = &'a ProbeDesc> + Clone) -> Option<String> {
        let missing = |end: &&End| !probes.clone().any(|probe| end.probe.matches(probe));
        [&self.begin, &self.end].into_iter().find(missing).map(|end| end.probe.to_string())
    }
}

impl End {
    fn parse(text: &str) -> Result<End, NoPair> {
        let (probe, key) = text.split_once('(').ok_or(NoPair)?;
        let probe = Pattern::parse(probe.trim(), FieldKind::Name).map_err(|_| NoPair)?;
        let key = compact(key);
        match key.parse::<usize>() {
            Ok(0) => Err(NoPair),
            _ if key.is_empty() || probe.name.is_empty() => Err(NoPair),
            Ok(number) => Ok(End { probe, key: Key::Number(number) }),
            Err(_) => Ok(End { probe, key: Key::Expression(key) }),
        }
    }

    /// The key of a record.
    fn key(&self, fields: &[Field<'_>]) -> Option<String> {
        let mut values = fields.iter().flat_map(values);
        let value = match &self.key {
            Key::Number(number) => values.nth(number - 1).map(|(_, value)| value),
            Key::Expression(wanted) => {
                values.find(|(name, _)| compact(name) == *wanted).map(|(_, value)| value)
            }
        };
        match value? {
            // `arg0` has the signed type of a number, also where it is an address of the kernel.
            Value::Int(int) if int.as_signed() < i64::from(i32::MIN) => Some(format!("{:#x}", int.bits)),
            Value::Int(int) => Some(int.value().to_string()),
            Value::Str { text, .. } | Value::Name { text, .. } => {
                Some(match text.split_at_checked(LONGEST) {
                    None | Some((_, [])) => control::name(text).into_owned(),
                    // Those that begin alike are different keys.
                    Some((first, rest)) => {
                        let mut hasher = DefaultHasher::new();
                        rest.hash(&mut hasher);
                        format!("{}…{:016x}", control::name(first), hasher.finish())
                    }
                })
            }
            Value::Symbol(symbol) => Some(format!("{:#x}", symbol.address)),
            _ => None,
        }
    }
}

/// An expression without its blanks.
fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The values of a field with their expressions.
fn values<'a>(field: &'a Field<'a>) -> Vec<(&'a str, &'a Value<'a>)> {
    match &field.action {
        Action::Trace(value) => vec![(&*field.name, value)],
        Action::Printf { args, .. } => args.iter().map(|arg| (&*arg.name, &arg.value)).collect(),
        _ => Vec::new(),
    }
}

/// What a probe is in pairs: the number of the pair, and whether it begins there.
pub(crate) type Parts = Vec<(usize, bool)>;

/// The pairs of a timeline, and their open slices.
#[derive(Debug)]
pub(crate) struct Pairs {
    all: Vec<Pair>,
    /// The track above those of a pair, and those without a slice.
    tracks: Vec<Option<(u64, Vec<u64>)>>,
    /// Whether a record had the key at its end and at its begin.
    seen: Vec<[bool; 2]>,
    /// The tracks of open slices by pair and key, and when they have begun.
    open: HashMap<(usize, String), (u64, u64)>,
    pub(crate) unmatched: u64,
    pub(crate) unfinished: u64,
}

impl Pairs {
    pub(crate) fn new(all: Vec<Pair>) -> Pairs {
        let tracks = vec![None; all.len()];
        let seen = vec![[false; 2]; all.len()];
        Pairs { all, tracks, seen, open: HashMap::new(), unmatched: 0, unfinished: 0 }
    }

    /// The pairs that a probe is of.
    pub(crate) fn parts(&self, probe: &Probe) -> Parts {
        let Probe { provider, module, function, name, .. } = probe;
        let [provider, module, function, name] = [provider, module, function, name].map(Clone::clone);
        let names = ProbeDesc { provider, module, function, name };
        let of = |(n, pair): (usize, &Pair)| {
            // One record may end what another one has begun.
            let end = pair.end.probe.matches(&names).then_some((n, false));
            end.into_iter().chain(pair.begin.probe.matches(&names).then_some((n, true)))
        };
        self.all.iter().enumerate().flat_map(of).collect()
    }

    /// A record of a probe with parts. False: it has no key, so it is no part of a slice.
    pub(crate) fn record(
        &mut self,
        parts: &Parts,
        time: u64,
        fields: &[Field<'_>],
        more: &Message,
        packets: &mut Packets,
    ) -> bool {
        let mut any = false;
        for (n, begins) in parts {
            let Some(pair) = self.all.get(*n) else { continue };
            let end = if *begins { &pair.begin } else { &pair.end };
            let Some(key) = end.key(fields) else { continue };
            any = true;
            if let Some(seen) = self.seen.get_mut(*n).and_then(|seen| seen.get_mut(usize::from(*begins))) {
                *seen = true;
            }
            match begins {
                true => self.begin(*n, key, time, more, packets),
                false => self.end(*n, key, time, more, packets),
            }
        }
        any
    }

    /// What no record was a part of.
    pub(crate) fn never(&self) -> impl Iterator<Item = String> {
        let lines = |(pair, seen): (&Pair, &[bool; 2])| {
            let line = |what| format!("{}: no record with its key {what} a slice", pair.text);
            let [ends, begins] = seen.map(|seen| !seen);
            [begins.then(|| line("begins")), ends.then(|| line("ends"))]
        };
        self.all.iter().zip(&self.seen).flat_map(lines).flatten()
    }

    fn begin(&mut self, pair: usize, key: String, time: u64, more: &Message, packets: &mut Packets) {
        if let Some((track, _)) = self.open.remove(&(pair, key.clone())) {
            self.unfinished += 1;
            self.close(pair, track, time, None, packets);
        }
        if self.open.len() >= MOST {
            self.end_oldest(time, packets);
        }
        let text = self.all.get(pair).map_or("", |pair| &pair.text);
        let Some(tracks) = self.tracks.get_mut(pair) else { return };
        let (above, free) = tracks.get_or_insert_with(|| (packets.named_track(text), Vec::new()));
        let track = free.pop().unwrap_or_else(|| {
            let track = packets.new_track();
            packets.describe(track, |out| {
                out.bytes(track::NAME, text.as_bytes());
                out.number(track::PARENT, *above);
            });
            track
        });
        // Keys are seldom the same: they have no numbers.
        let name = Name::Text(key.as_str().into());
        let begin = Happening::new(Kind::Begin, track, Some(&name));
        packets.event(time, Happening { more: Some(more), ..begin });
        self.open.insert((pair, key), (track, time));
    }

    fn end(&mut self, pair: usize, key: String, time: u64, more: &Message, packets: &mut Packets) {
        match self.open.remove(&(pair, key)) {
            Some((track, _)) => self.close(pair, track, time, Some(more), packets),
            None => self.unmatched += 1,
        }
    }

    fn close(&mut self, pair: usize, track: u64, time: u64, more: Option<&Message>, packets: &mut Packets) {
        packets.event(time, Happening { more, ..Happening::new(Kind::End, track, None) });
        if let Some(Some((_, free))) = self.tracks.get_mut(pair) {
            free.push(track);
        }
    }

    /// Ends the half of the slices that are open for longest.
    fn end_oldest(&mut self, time: u64, packets: &mut Packets) {
        let begun = self.open.iter().map(|((pair, _), (track, begun))| (*begun, *track, *pair));
        let mut all: Vec<(u64, u64, usize)> = begun.collect();
        all.sort_unstable();
        let Some((from, of, _)) = all.get(all.len() / 2).copied() else { return };
        self.open.retain(|_, (track, begun)| (*begun, *track) >= (from, of));
        all.truncate(all.len() / 2);
        self.give_up(all, time, packets);
    }

    /// Ends all slices, at the time of the last event.
    pub(crate) fn end_all(&mut self, packets: &mut Packets) {
        let open = self.open.drain().map(|((pair, _), (track, _))| (pair as u64, track, pair));
        let mut all: Vec<(u64, u64, usize)> = open.collect();
        all.sort_unstable();
        self.give_up(all, packets.latest, packets);
    }

    fn give_up(&mut self, all: Vec<(u64, u64, usize)>, time: u64, packets: &mut Packets) {
        self.unfinished += all.len() as u64;
        all.into_iter().for_each(|(_, track, pair)| self.close(pair, track, time, None, packets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_probes_with_keys() {
        let pair = Pair::parse("io:::start(args[0]->b_addr)..io:::done( args[0] -> b_addr )").unwrap();
        assert_eq!(pair.begin.probe, Pattern::parse("io:::start", FieldKind::Name).unwrap());
        assert_eq!(
            (&pair.begin.key, &pair.end.key),
            (&Key::Expression("args[0]->b_addr".into()), &pair.begin.key)
        );
        let pair = Pair::parse("start(copyinstr(arg0))..done(2)").unwrap();
        assert_eq!(pair.begin.key, Key::Expression("copyinstr(arg0)".into()));
        assert_eq!((pair.end.key, pair.end.probe.name.as_str()), (Key::Number(2), "done"));
        for wrong in
            ["", "a..b", "a(x)", "a(x)..b", "a(x)..b()", "a(x)..(y)", "a(0)..b(1)", "a:b:c:d:e(x)..b(x)"]
        {
            assert_eq!(Pair::parse(wrong), Err(NoPair), "{wrong}");
        }
    }
}
