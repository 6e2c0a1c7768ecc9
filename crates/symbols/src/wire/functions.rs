//! Lists of functions on the wire.
//!
//! An instruction is one byte (its length and its step), so all instructions of a long function are
//! a few packets.

use text::returns::Departure;
use text::{Condition, EntryProbe, Kernel, ReturnSite, Step, Uses};

use super::codec::{MAX_NAME, Reader, Writer};
use crate::functions::{Calling, Function, FunctionName, FunctionQuery, InstructionSite, MAX_USES, Select};

/// The bytes of the instructions in one packet.
pub(crate) const INSTRUCTIONS: usize = 32 << 10;
/// Bytes of the names of one function; more names are left out.
pub(crate) const MAX_NAMES: usize = 3 * MAX_NAME;
/// The places where a function returns; with more it has no return probes.
pub(crate) const MAX_RETURNS: usize = 4096;
/// The bit beside those of a condition.
const CONDITIONAL: u8 = 0x10;
/// An entry that is the one before it.
const SAME: u8 = 2;
/// Bytes of the patterns of a query.
pub(crate) const MAX_PATTERNS: usize = 32 << 10;

/// A process that has the file mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    /// An address, and the offset in the file that is mapped there.
    pub(crate) start: u64,
    pub(crate) offset: u64,
}

/// Instructions of the last function of the packet before, which continue those of earlier packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instructions(pub(crate) Vec<u8>);

impl Instructions {
    /// An instruction of at most 15 bytes.
    pub(crate) fn push(&mut self, length: u8, step: Option<Step>) {
        self.0.push(length & 0xf | step_bits(step) << 4);
    }

    /// Where the last of them ends, if the first is at `offset`.
    pub(crate) fn end(&self, offset: u32) -> Option<u32> {
        self.0.iter().try_fold(offset, |at, byte| {
            step_of(byte >> 4)?;
            at.checked_add(u32::from(byte & 0xf))
        })
    }

    /// The instructions after `offset`.
    pub(crate) fn sites(&self, mut offset: u32) -> Option<(u32, Vec<InstructionSite>)> {
        let mut sites = Vec::with_capacity(self.0.len());
        for byte in &self.0 {
            sites.push(InstructionSite { offset, step: step_of(byte >> 4)? });
            offset = offset.checked_add(u32::from(byte & 0xf))?;
        }
        Some((offset, sites))
    }
}

pub(super) fn step_bits(step: Option<Step>) -> u8 {
    match step {
        None => 0,
        Some(Step::Call) => 1,
        Some(Step::Emulated) => 2,
        Some(Step::Single) => 3,
    }
}

fn step_of(bits: u8) -> Option<Option<Step>> {
    Some(match bits {
        0 => None,
        1 => Some(Step::Call),
        2 => Some(Step::Emulated),
        3 => Some(Step::Single),
        _ => return None,
    })
}

impl Writer {
    pub(super) fn running(&mut self, running: Option<&Running>) {
        self.u8(running.is_some().into());
        if let Some(running) = running {
            self.u32(running.pid);
            self.u64(running.start);
            self.u64(running.offset);
        }
    }

    pub(super) fn query(&mut self, query: &FunctionQuery) {
        match &query.select {
            Select::Nothing => self.u8(0),
            Select::All => self.u8(1),
            Select::Matching(patterns) => {
                self.u8(2);
                self.list(patterns, |w, pattern| w.bytes(pattern.as_bytes()));
            }
            Select::At(addrs) => {
                self.u8(3);
                self.numbers(addrs);
            }
        }
        let kernel = query.kernel;
        let flags = [
            kernel.emulates_long_nops,
            kernel.clobbers_at_nop5,
            kernel.accepts_nop10,
            query.returns,
            query.instructions,
        ];
        flags.iter().for_each(|flag| self.u8((*flag).into()));
        self.list(&query.entries, |w, uses| w.u8(uses.bits()));
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn optional(&mut self, text: Option<&str>) {
        self.u8(text.is_some().into());
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// 0 and the value, or 1 and the reason.
    pub(super) fn result<T>(&mut self, result: &Result<T, String>, value: impl FnOnce(&mut Writer, &T)) {
        match result {
            Ok(found) => {
                self.u8(0);
                value(self, found);
            }
            Err(why) => {
                self.u8(1);
                self.text(why);
            }
        }
    }

    /// A function, without its instructions, which follow in packets of their own.
    pub(super) fn function(&mut self, f: &Function) {
        self.list(&f.names, |w, name| {
            w.text(&name.raw);
            w.optional(name.demangled.as_deref());
            w.optional(name.plain.as_deref());
        });
        self.u64(f.address);
        self.u64(f.offset);
        self.u64(f.size);
        self.u8(f.indirect.into());
        self.optional(f.unresolved.as_deref());
        self.optional(f.part.as_deref());
        match &f.calling {
            Calling::C => self.u8(0),
            Calling::Go => self.u8(1),
            Calling::Unknown(why) => {
                self.u8(2);
                self.text(why);
            }
        }
        self.u8(f.entries.len() as u8);
        let mut before = None;
        for entry in &f.entries {
            // Most are the same for all uses.
            match entry {
                same if before == Some(same) => self.u8(SAME),
                Ok(probe) => {
                    self.u8(0);
                    self.u64(probe.offset);
                    self.u8(step_bits(Some(probe.step)));
                    self.u8(probe.condition.map_or(0, |condition| CONDITIONAL | condition.bits()));
                }
                Err(why) => {
                    self.u8(1);
                    self.text(why);
                }
            }
            before = Some(entry);
        }
        self.u8(f.returns.is_some().into());
        if let Some(returns) = &f.returns {
            self.result(returns, |w, sites| {
                w.list(sites, |w, site| {
                    w.u64(site.offset as u64);
                    w.u8(match site.departure {
                        Departure::Return => 0,
                        Departure::Jump => 1,
                        Departure::IndirectJump => 2,
                        Departure::Branch(condition) => CONDITIONAL | condition.bits(),
                    });
                    w.u8(step_bits(Some(site.step)));
                });
            });
        }
        self.u8(f.returns_by_the_stack.into());
        self.u8(f.calls_itself.into());
        self.u8(f.instructions.is_some().into());
        if let Some(instructions) = &f.instructions {
            self.result(instructions, |_, _| {});
        }
    }
}

impl Reader<'_> {
    pub(super) fn running(&mut self) -> Option<Option<Running>> {
        match self.flag()? {
            false => Some(None),
            true => Some(Some(Running { pid: self.u32()?, start: self.u64()?, offset: self.u64()? })),
        }
    }

    pub(super) fn query(&mut self) -> Option<FunctionQuery> {
        let select = match self.u8()? {
            0 => Select::Nothing,
            1 => Select::All,
            2 => Select::Matching(self.list(Self::text)?),
            3 => Select::At(self.numbers()?),
            _ => return None,
        };
        let kernel = Kernel {
            emulates_long_nops: self.flag()?,
            clobbers_at_nop5: self.flag()?,
            accepts_nop10: self.flag()?,
        };
        let (returns, instructions) = (self.flag()?, self.flag()?);
        let entries = self.list(|r| r.u8().map(Uses::from_bits))?;
        let query = FunctionQuery { select, kernel, entries, returns, instructions };
        (query.entries.len() <= MAX_USES).then_some(query)
    }

    pub(super) fn optional(&mut self) -> Option<Option<String>> {
        if self.flag()? { self.text().map(Some) } else { Some(None) }
    }

    pub(super) fn result<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Result<T, String>> {
        if self.flag()? { self.text().map(Err) } else { value(self).map(Ok) }
    }

    pub(super) fn step(&mut self) -> Option<Step> {
        step_of(self.u8()?)?
    }

    pub(super) fn function(&mut self) -> Option<Function> {
        let names = self.list(|r| {
            Some(FunctionName { raw: r.text()?, demangled: r.optional()?, plain: r.optional()? })
        })?;
        let (address, offset, size) = (self.u64()?, self.u64()?, self.u64()?);
        let (indirect, unresolved, part) = (self.flag()?, self.optional()?, self.optional()?);
        let calling = match self.u8()? {
            0 => Calling::C,
            1 => Calling::Go,
            2 => Calling::Unknown(self.text()?.into()),
            _ => return None,
        };
        let mut entries = Vec::new();
        for _ in 0..self.u8()? {
            entries.push(match self.u8()? {
                0 => Ok(self.entry()?),
                1 => Err(self.text()?),
                SAME => entries.last().cloned()?,
                _ => return None,
            });
        }
        let departure = |byte| match byte {
            0 => Some(Departure::Return),
            1 => Some(Departure::Jump),
            2 => Some(Departure::IndirectJump),
            0x10..=0x1f => Some(Departure::Branch(Condition::from_bits(byte & 0xf))),
            _ => None,
        };
        let site = |r: &mut Self| {
            let (offset, departure) = (r.u64()? as i64, departure(r.u8()?)?);
            Some(ReturnSite { offset, departure, step: r.step()? })
        };
        let returns = if self.flag()? { Some(self.result(|r| r.list(site))?) } else { None };
        let (returns_by_the_stack, calls_itself) = (self.flag()?, self.flag()?);
        let instructions = if self.flag()? { Some(self.result(|_| Some(Vec::new()))?) } else { None };
        Some(Function {
            names,
            address,
            offset,
            size,
            indirect,
            unresolved,
            calling,
            part,
            entries,
            returns,
            returns_by_the_stack,
            calls_itself,
            instructions,
        })
    }

    fn entry(&mut self) -> Option<EntryProbe> {
        let (offset, step) = (self.u64()?, self.step()?);
        let condition = match self.u8()? {
            0 => None,
            bits @ CONDITIONAL..=0x1f => Some(Condition::from_bits(bits)),
            _ => return None,
        };
        Some(EntryProbe { offset, step, condition })
    }
}

/// The bytes of a function in a packet, about.
pub(crate) fn size(f: &Function) -> usize {
    let names: usize = f.names.iter().flat_map(FunctionName::forms).map(|form| form.len() + 8).sum();
    let entries: usize = f.entries.iter().map(|e| 16 + e.as_ref().err().map_or(0, String::len)).sum();
    let returns =
        f.returns.as_ref().map_or(0, |r| r.as_ref().map_or_else(String::len, |sites| 10 * sites.len()));
    let why = f.instructions.as_ref().and_then(|i| i.as_ref().err()).map_or(0, String::len);
    let refused = [&f.unresolved, &f.part].into_iter().flatten().map(String::len).sum::<usize>();
    64 + refused + names + entries + returns + why
}

#[cfg(test)]
mod tests {
    use super::super::list::{FileFunctions, Functions};
    use super::super::{FileRef, Request, Response};
    use super::*;
    use crate::functions::SymbolSource;

    #[test]
    fn a_query_and_its_answer_are_read_as_they_were_written() {
        let file = FileRef {
            number: 1,
            inode: 2,
            build_id: vec![3],
            path: b"/x".to_vec(),
            handle: true,
            root: false,
        };
        for select in [
            Select::Nothing,
            Select::All,
            Select::Matching(vec!["a*".into(), "b".into()]),
            Select::At(vec![1, u64::MAX]),
        ] {
            let query = FunctionQuery {
                select,
                kernel: Kernel::BEST,
                entries: vec![Uses::NOTHING, Uses::NOTHING.and_stack().and_argument(3)],
                returns: true,
                instructions: false,
            };
            let running = Some(Running { pid: 7, start: 0x1000, offset: 0x2000 });
            let request = Request::Functions { file: file.clone(), running, query };
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let name =
            FunctionName { raw: "_Z1fv".into(), demangled: Some("f()".into()), plain: Some("f".into()) };
        let site = |departure| ReturnSite { offset: -9, departure, step: Step::Single };
        let one = Function {
            names: vec![name, FunctionName { raw: "g".into(), ..FunctionName::default() }],
            address: 1,
            offset: 2,
            size: 3,
            indirect: true,
            unresolved: Some("x".into()),
            part: Some("y".into()),
            calling: Calling::Go,
            entries: vec![
                Ok(EntryProbe::at(4, Step::Call)),
                Ok(EntryProbe { condition: Some(Condition::from_bits(7)), ..EntryProbe::at(5, Step::Call) }),
                Err("no".into()),
            ],
            returns_by_the_stack: true,
            calls_itself: false,
            returns: Some(Ok(vec![
                site(Departure::Return),
                site(Departure::Jump),
                site(Departure::IndirectJump),
                site(Departure::Branch(Condition::from_bits(5))),
            ])),
            instructions: Some(Ok(Vec::new())),
        };
        let other = Function {
            returns: Some(Err("why".into())),
            instructions: None,
            calling: Calling::Unknown("a".into()),
            ..one.clone()
        };
        let both = [one.clone(), other];
        let response = Response::Functions(Functions::of(&both));
        assert_eq!(Response::decode(&response.encode()), Some(response.clone()));
        assert!(response.encode().len() <= 2 * size(&one));
        let file = FileFunctions {
            source: SymbolSource::Compressed,
            total: 7,
            unwinds: Some("x".into()),
            entry: 5,
            ..FileFunctions::default()
        };
        let response = Response::FileFunctions(file);
        assert_eq!(Response::decode(&response.encode()), Some(response));
        let bytes = Response::Functions(Functions::of(&[one])).encode();
        for end in 0..bytes.len() {
            assert_eq!(Response::decode(&bytes[..end]), None, "{end}");
        }
    }
}
