//! The primitives of blocks: numbers, bytes, and a table of what repeats.

use std::collections::HashMap;

use crate::model::{Content, Firing, Head, Loss, Place, Region, Snapshot, Symbol, Word};

/// The most bytes of memory that a firing has, and the most entries of each of its lists.
pub const FIRING_MAX: usize = 1 << 20;

/// The most bytes of memory of all firings of a block: what repeats is in it once.
pub(crate) const ITEMS_MAX: usize = 64 << 20;

pub(crate) fn put_uint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// As `put_uint`, short for numbers near zero and for addresses of the kernel.
pub(crate) fn put_int(out: &mut Vec<u8>, value: u64) {
    let value = value as i64;
    put_uint(out, (value << 1 ^ value >> 63) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a block. `None` is the answer to all that is malformed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn uint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn int(&mut self) -> Option<u64> {
        let bits = self.uint()?;
        Some(((bits >> 1) as i64 ^ -((bits & 1) as i64)) as u64)
    }

    pub(crate) fn narrow<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.uint()?).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length: usize = self.narrow()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        Some(std::str::from_utf8(self.bytes()?).ok()?.to_owned())
    }

    /// The count of a list whose elements have at least a byte each.
    fn count(&mut self) -> Option<usize> {
        let count: usize = self.narrow()?;
        (count <= self.0.len()).then_some(count)
    }
}

/// What repeats in a block, while it is written.
#[derive(Debug, Default)]
pub(crate) struct Interned(HashMap<Vec<u8>, u64>);

impl Interned {
    fn put(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        if let Some(at) = self.0.get(bytes) {
            return put_uint(out, *at);
        }
        self.0.insert(bytes.to_vec(), self.0.len() as u64 + 1);
        put_uint(out, 0);
        put_bytes(out, bytes);
    }
}

/// The same, while it is read.
#[derive(Debug, Default)]
pub(crate) struct Table<'a>(Vec<&'a [u8]>);

impl<'a> Table<'a> {
    fn get(&mut self, bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
        match bytes.narrow::<usize>()? {
            0 => {
                let new = bytes.bytes()?;
                self.0.push(new);
                Some(new)
            }
            at => self.0.get(at - 1).copied(),
        }
    }
}

pub(crate) fn put_head(out: &mut Vec<u8>, head: &Head) {
    for text in [&head.tracer, &head.host, &head.release, &head.machine, &head.script] {
        put_bytes(out, text.as_bytes());
    }
    for number in [u64::from(head.cpus), head.clock.0, head.clock.1, head.target] {
        put_uint(out, number);
    }
    put_uint(out, head.probes.len() as u64);
    for (id, name) in &head.probes {
        put_uint(out, u64::from(*id));
        put_bytes(out, name.as_bytes());
    }
}

pub(crate) fn head(bytes: &mut Bytes<'_>) -> Option<Head> {
    let (tracer, host, release) = (bytes.text()?, bytes.text()?, bytes.text()?);
    let (machine, script) = (bytes.text()?, bytes.text()?);
    let cpus = bytes.narrow()?;
    let (clock, target) = ((bytes.uint()?, bytes.uint()?), bytes.uint()?);
    let mut probes = Vec::new();
    for _ in 0..bytes.count()? {
        probes.push((bytes.narrow()?, bytes.text()?));
    }
    Some(Head { tracer, host, release, machine, cpus, clock, target, script, probes })
}

pub(crate) fn put_loss(out: &mut Vec<u8>, loss: &Loss) {
    put_bytes(out, loss.what.as_bytes());
    put_uint(out, loss.count);
}

/// The most bytes that say what is missing: they become lines of messages.
const LOSS_MAX: usize = 200;

pub(crate) fn loss(bytes: &mut Bytes<'_>) -> Option<Loss> {
    let what = bytes.text().filter(|what| what.len() <= LOSS_MAX)?;
    Some(Loss { what, count: bytes.uint()? })
}

/// The most bytes of a reason: a string of D has at most so many.
const REASON_MAX: usize = 32 << 10;

pub(crate) fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    for number in [snapshot.from, snapshot.until, snapshot.wall] {
        put_uint(out, number);
    }
    put_bytes(out, snapshot.reason.get(..REASON_MAX).unwrap_or(&snapshot.reason));
}

pub(crate) fn snapshot(bytes: &mut Bytes<'_>) -> Option<Snapshot> {
    let (from, until, wall) = (bytes.uint()?, bytes.uint()?, bytes.uint()?);
    let reason = bytes.bytes().filter(|reason| reason.len() <= REASON_MAX)?.to_vec();
    Some(Snapshot { from, until, wall, reason })
}

/// Bits of the byte before an address.
const UNREADABLE: u8 = 0x80;
const START: u8 = 0x40;

/// What is before a name.
const NO_NAME: u8 = 0;
const WHOLE_NAME: u8 = 1;
const CUT_NAME: u8 = 2;

pub(crate) fn put_firing(out: &mut Vec<u8>, firing: &Firing, before: u64, table: &mut Interned) {
    put_uint(out, firing.probe.into());
    put_int(out, firing.time.wrapping_sub(before));
    put_uint(out, firing.cpu.into());
    let codes: Vec<u8> = firing.words.iter().map(|(word, _)| word.code()).collect();
    table.put(out, &codes);
    firing.words.iter().for_each(|(_, value)| put_int(out, *value));
    let name = firing.execname.as_ref().and_then(Content::known);
    out.push(name.map_or(NO_NAME, |(_, is_cut)| if is_cut { CUT_NAME } else { WHOLE_NAME }));
    name.iter().for_each(|(name, _)| table.put(out, name));
    put_uint(out, firing.memory.len() as u64);
    for Region { place, address, content } in &firing.memory {
        let code = (0..).zip(Place::ALL).find(|(_, p)| p == place).map_or(0, |(code, _)| code);
        let flag = match content {
            Content::Bytes(_) => 0,
            Content::Start(_) => START,
            Content::Unreadable => UNREADABLE,
        };
        out.push(code | flag);
        put_int(out, *address);
        content.known().iter().for_each(|(bytes, _)| table.put(out, bytes));
    }
    for stack in [&firing.stack, &firing.ustack] {
        put_uint(out, stack.as_ref().map_or(0, |stack| stack.len() as u64 + 1));
        let mut before = 0;
        for frame in stack.iter().flatten() {
            put_symbol(out, frame, before, table);
            before = frame.address;
        }
    }
    put_uint(out, firing.symbols.len() as u64);
    for (process, symbol) in &firing.symbols {
        put_uint(out, process.map_or(0, |process| u64::from(process) + 1));
        put_symbol(out, symbol, 0, table);
    }
}

/// Names repeat, so they are in the table: a byte with the texts that there are, and these.
fn put_symbol(out: &mut Vec<u8>, symbol: &Symbol, before: u64, table: &mut Interned) {
    put_int(out, symbol.address.wrapping_sub(before));
    let texts = [&symbol.module, &symbol.symbol, &symbol.path];
    let mut known = u8::from(symbol.in_file.is_some()) << 3;
    let mut name = vec![0];
    for (bit, text) in texts.into_iter().enumerate() {
        known |= u8::from(text.is_some()) << bit;
        text.iter().for_each(|text| put_bytes(&mut name, text.get(..TEXT_MAX).unwrap_or(text)));
    }
    name.iter_mut().take(1).for_each(|first| *first = known);
    table.put(out, &name);
    put_uint(out, symbol.offset);
    symbol.in_file.iter().for_each(|address| put_int(out, *address));
}

/// The most bytes of a text of a name: a path has 4096. What is longer is cut.
const TEXT_MAX: usize = 5 << 10;

/// The most bytes of a name: three texts with their lengths.
const NAME_MAX: usize = 3 * TEXT_MAX + 16;

fn symbol<'a>(
    bytes: &mut Bytes<'a>,
    before: u64,
    table: &mut Table<'a>,
    total: &mut usize,
) -> Option<Symbol> {
    let address = before.wrapping_add(bytes.int()?);
    let name = table.get(bytes).filter(|name| name.len() <= NAME_MAX)?;
    // A short reference may stand for a long name.
    *total += name.len() + size_of::<Symbol>();
    if *total > FIRING_MAX {
        return None;
    }
    let mut name = Bytes(name);
    let known = name.byte()?;
    let mut text = |bit: u8| match known >> bit & 1 {
        1 => name.bytes().filter(|text| text.len() <= TEXT_MAX).map(|text| Some(text.to_vec())),
        _ => Some(None),
    };
    let (module, symbol, path) = (text(0)?, text(1)?, text(2)?);
    let offset = bytes.uint()?;
    let in_file = if known >> 3 & 1 == 1 { Some(bytes.int()?) } else { None };
    Some(Symbol { address, module, symbol, path, offset, in_file })
}

fn stack<'a>(bytes: &mut Bytes<'a>, table: &mut Table<'a>, total: &mut usize) -> Option<Option<Vec<Symbol>>> {
    let count = bytes.narrow::<usize>()?;
    let Some(count) = count.checked_sub(1) else { return Some(None) };
    let mut frames = Vec::new();
    for _ in 0..count {
        let before = frames.last().map_or(0, |frame: &Symbol| frame.address);
        frames.push(symbol(bytes, before, table, total)?);
    }
    Some(Some(frames))
}

/// Bytes of a thread's name, with the NUL (`TASK_COMM_LEN`, include/linux/sched.h).
const EXECNAME_MAX: usize = 16;

pub(crate) fn firing<'a>(bytes: &mut Bytes<'a>, before: u64, table: &mut Table<'a>) -> Option<Firing> {
    let probe = bytes.narrow()?;
    let time = before.wrapping_add(bytes.int()?);
    let cpu = bytes.narrow()?;
    let mut words = Vec::new();
    for code in table.get(bytes)? {
        let value = bytes.int()?;
        words.extend(Word::of_code(*code).map(|word| (word, value)));
    }
    let execname = match bytes.byte()? {
        NO_NAME => None,
        how @ (WHOLE_NAME | CUT_NAME) => {
            // A longer one could be in each of many firings, and in the file once.
            let name = table.get(bytes).filter(|name| name.len() <= EXECNAME_MAX)?.to_vec();
            Some(if how == CUT_NAME { Content::Start(name) } else { Content::Bytes(name) })
        }
        _ => return None,
    };
    let (mut memory, mut total) = (Vec::new(), 0usize);
    for _ in 0..bytes.count()? {
        let code = bytes.byte()?;
        let place = *Place::ALL.get(usize::from(code & !(UNREADABLE | START)))?;
        let address = bytes.int()?;
        let content = match code & (UNREADABLE | START) {
            UNREADABLE => Content::Unreadable,
            flag @ (0 | START) => {
                let found = table.get(bytes)?;
                total += found.len();
                if total > FIRING_MAX {
                    return None;
                }
                let found = found.to_vec();
                if flag == START { Content::Start(found) } else { Content::Bytes(found) }
            }
            _ => return None,
        };
        memory.push(Region { place, address, content });
    }
    let (stack, ustack) = (stack(bytes, table, &mut total)?, stack(bytes, table, &mut total)?);
    let mut symbols = Vec::new();
    for _ in 0..bytes.count()? {
        let process = bytes.narrow::<u32>()?.checked_sub(1);
        symbols.push((process, symbol(bytes, 0, table, &mut total)?));
    }
    Some(Firing { probe, time, cpu, words, execname, memory, stack, ustack, symbols })
}
