//! Probes that a file describes, on the wire.

use text::uprobe::Nop;
use usdt::{Address, Argument, MAX_ARGUMENTS, Machine, Register, Source};

use super::codec::{Reader, Writer};
use super::functions::step_bits;
use crate::usdt::ProbeSite;

/// The bytes of a site in a packet, about.
pub(crate) fn size(site: &ProbeSite) -> usize {
    let argument = |a: &Argument| match &a.source {
        Source::Unreadable(why) => 16 + why.len(),
        _ => 32,
    };
    let texts = site.provider.len() + site.name.len() + site.step.as_ref().err().map_or(0, String::len);
    let function = site.function.as_ref().map_or(0, |(name, _)| name.len());
    96 + texts + function + site.arguments.iter().map(argument).sum::<usize>()
}

fn nop_bits(nop: Option<Nop>) -> u8 {
    match nop {
        None => 0,
        Some(Nop::Five) => 1,
        Some(Nop::Ten { after }) => 2 + after,
    }
}

fn nop(bits: u8) -> Option<Option<Nop>> {
    match bits {
        0 => Some(None),
        1 => Some(Some(Nop::Five)),
        2 | 3 => Some(Some(Nop::Ten { after: bits - 2 })),
        _ => None,
    }
}

impl Writer {
    pub(super) fn site(&mut self, site: &ProbeSite) {
        self.bytes(site.provider.as_bytes());
        self.bytes(site.name.as_bytes());
        self.u8(site.function.is_some().into());
        if let Some((name, into)) = &site.function {
            self.bytes(name.as_bytes());
            self.u64(*into);
        }
        self.u64(site.offset);
        self.u8(site.semaphore.is_some().into());
        self.u64(site.semaphore.unwrap_or_default());
        self.list(&site.arguments, Writer::argument);
        self.result(&site.step, |w, step| w.u8(step_bits(Some(*step))));
        self.u8(nop_bits(site.nop));
    }

    fn argument(&mut self, argument: &Argument) {
        self.u8(argument.size);
        self.u8(argument.signed.into());
        match &argument.source {
            Source::Constant(value) => {
                self.u8(0);
                self.u64(*value as u64);
            }
            Source::Register(Register { number, first, bytes }) => {
                self.u8(1);
                [number, first, bytes].into_iter().for_each(|byte| self.u8(*byte));
            }
            // The reader resolves symbols.
            Source::Memory(Address { base, index, from_site, offset, symbol: _ }) => {
                self.u8(2);
                let flags = [base.is_some(), index.is_some(), *from_site];
                flags.into_iter().for_each(|flag| self.u8(flag.into()));
                let (index, scale) = index.unwrap_or_default();
                [base.unwrap_or_default(), index, scale].into_iter().for_each(|byte| self.u8(byte));
                self.u64(*offset as u64);
            }
            Source::Unreadable(why) => {
                self.u8(3);
                self.bytes(why.as_bytes());
            }
        }
    }
}

impl Reader<'_> {
    pub(super) fn site(&mut self) -> Option<ProbeSite> {
        let (provider, name) = (self.text()?, self.text()?);
        let function = if self.flag()? { Some((self.text()?, self.u64()?)) } else { None };
        let offset = self.u64()?;
        let semaphore = (self.flag()?, self.u64()?);
        let semaphore = semaphore.0.then_some(semaphore.1);
        let arguments = self.list(Reader::argument)?;
        let step = self.result(Reader::step)?;
        let nop = nop(self.u8()?)?;
        (arguments.len() <= MAX_ARGUMENTS).then_some(ProbeSite {
            provider,
            name,
            function,
            offset,
            semaphore,
            arguments,
            step,
            nop,
        })
    }

    /// An argument whose size and registers are those of this machine.
    fn argument(&mut self) -> Option<Argument> {
        let (size, signed) = (self.u8()?, self.flag()?);
        let known = |number: u8| Machine::own().register_name(number).map(|_| number);
        let source = match self.u8()? {
            0 => Source::Constant(self.u64()? as i64),
            1 => {
                let (number, first, bytes) = (known(self.u8()?)?, self.u8()?, self.u8()?);
                let fits = matches!((first, bytes), (0, 1 | 2 | 4 | 8) | (1, 1));
                Source::Register(fits.then_some(Register { number, first, bytes })?)
            }
            2 => {
                let (has_base, has_index, from_site) = (self.flag()?, self.flag()?, self.flag()?);
                let (base, index, scale) = (known(self.u8()?)?, known(self.u8()?)?, self.u8()?);
                let offset = self.u64()? as i64;
                let scaled = !has_index || matches!(scale, 1 | 2 | 4 | 8);
                let base = has_base.then_some(base);
                let index = has_index.then_some((index, scale));
                Source::Memory(scaled.then_some(Address { base, index, from_site, offset, symbol: None })?)
            }
            3 => Source::Unreadable(self.text()?),
            _ => return None,
        };
        matches!(size, 1 | 2 | 4 | 8).then_some(Argument { size, signed, source })
    }
}

#[cfg(test)]
mod tests {
    use text::Step;

    use super::super::{FileRef, Request, Response};
    use super::*;

    #[test]
    fn sites_are_read_as_they_were_written() {
        let file = FileRef {
            number: 1,
            inode: 2,
            build_id: vec![3],
            path: b"/x".to_vec(),
            handle: true,
            root: true,
        };
        let request = Request::Sites(file);
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let texts = ["4@$-7", "-1@%ah", "2@16(%rbp,%rcx,8)", "8@(,%rax,2)", "8f@%xmm0", "-8@(%rsp)"];
        let mut arguments: Vec<Argument> = texts.iter().map(|text| Machine::own().argument(text)).collect();
        let from_site = Address { from_site: true, offset: -12, ..Address::default() };
        arguments.push(Argument { size: 4, signed: true, source: Source::Memory(from_site) });
        let one = ProbeSite {
            provider: "p".into(),
            name: "a__b".into(),
            function: Some(("main".into(), 9)),
            offset: 1 << 40,
            semaphore: Some(0),
            arguments,
            step: Ok(Step::Emulated),
            nop: Some(Nop::Ten { after: 1 }),
        };
        let none = ProbeSite {
            function: None,
            semaphore: None,
            arguments: vec![],
            step: Err("no".into()),
            nop: None,
            ..one.clone()
        };
        let response = Response::Sites(vec![one.clone(), none]);
        let bytes = response.encode();
        assert!(bytes.len() <= 2 * size(&one));
        assert_eq!(Response::decode(&bytes), Some(response));
        for end in 0..bytes.len() {
            assert_eq!(Response::decode(&bytes[..end]), None, "{end}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                // No mutation has a register that this machine does not have.
                let Some(Response::Sites(sites)) = Response::decode(&bytes) else { continue };
                for argument in sites.iter().flat_map(|site| &site.arguments) {
                    if let Source::Register(register) = &argument.source {
                        assert!(Machine::own().register_name(register.number).is_some());
                    }
                }
            }
        }
    }
}
