//! Lists of functions, as a session keeps them.
//!
//! A program may have a million functions, and every field of a [`Function`] with its allocations
//! takes five hundred bytes. So a list is what the reader has sent, whose packets are checked when
//! they come ([`Functions::decode`]): about eighty bytes a function. One that is looked at is made
//! then.
//!
//! ```text
//!  packet of functions │ packet of functions │ instructions of the last one │ instructions │ packet of functions
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::codec::{Reader, Writer};
use super::functions::Instructions;
use crate::functions::{Function, InstructionSite, SymbolSource};

/// Functions of one packet, without their instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Functions {
    count: u32,
    bytes: Arc<[u8]>,
    /// The instructions of the last one follow in packets of their own.
    is_open: bool,
}

/// True if the instructions of a function follow it.
fn is_open(function: &Function) -> bool {
    matches!(function.instructions, Some(Ok(_)))
}

impl Functions {
    pub(crate) fn of(list: &[Function]) -> Functions {
        let mut w = Writer::default();
        list.iter().for_each(|function| w.function(function));
        let is_open = list.last().is_some_and(is_open);
        Functions { count: list.len() as u32, bytes: w.0.into(), is_open }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u32(self.count);
        w.0.extend_from_slice(&self.bytes);
    }

    /// `None`: one of them is malformed.
    pub(super) fn decode(r: &mut Reader<'_>) -> Option<Functions> {
        let count = r.u32()?;
        let mut last = false;
        let bytes = r.span(|r| {
            (0..count).try_for_each(|_| {
                last = is_open(&r.function()?);
                Some(())
            })
        })?;
        Some(Functions { count, bytes: bytes.into(), is_open: last })
    }
}

/// A packet of a list.
#[derive(Clone, PartialEq, Eq)]
enum Part {
    Functions(Functions),
    /// Of the last function before them.
    Instructions(Arc<Instructions>),
}

/// Functions, each of which is made when it is looked at. A copy shares the packets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FunctionList {
    parts: VecDeque<Part>,
    length: usize,
}

impl FunctionList {
    /// The number of functions.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The functions, in their order.
    pub fn iter(&self) -> FunctionIter {
        self.clone().into_iter()
    }

    fn push(&mut self, functions: Functions) {
        if functions.count > 0 {
            self.length += functions.count as usize;
            self.parts.push_back(Part::Functions(functions));
        }
    }

    /// Adds the functions of another list.
    pub(crate) fn append(&mut self, mut other: FunctionList) {
        self.parts.append(&mut other.parts);
        self.length += other.length;
    }
}

impl fmt::Debug for FunctionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// A packet is dropped when its functions were given.
impl IntoIterator for FunctionList {
    type Item = Function;
    type IntoIter = FunctionIter;

    fn into_iter(self) -> FunctionIter {
        FunctionIter { parts: self.parts, begun: Functions::default(), at: 0 }
    }
}

impl IntoIterator for &FunctionList {
    type Item = Function;
    type IntoIter = FunctionIter;

    fn into_iter(self) -> FunctionIter {
        self.iter()
    }
}

impl FromIterator<Function> for FunctionList {
    fn from_iter<T: IntoIterator<Item = Function>>(functions: T) -> FunctionList {
        let mut list = FunctionList::default();
        for function in functions {
            list.push(Functions::of(std::slice::from_ref(&function)));
            let Some(Ok(sites)) = &function.instructions else { continue };
            let ends = sites.iter().skip(1).map(|site| u64::from(site.offset)).chain([function.size]);
            let mut instructions = Instructions::default();
            for (site, end) in sites.iter().zip(ends) {
                let length = end.saturating_sub(site.offset.into()).min(15);
                instructions.push(length as u8, site.step);
            }
            list.parts.push_back(Part::Instructions(Arc::new(instructions)));
        }
        list
    }
}

/// The functions of a list, in their order.
pub struct FunctionIter {
    /// The packets that were not begun.
    parts: VecDeque<Part>,
    /// The one that was, with the number of functions that are left, and the place of the next one.
    begun: Functions,
    at: usize,
}

impl FunctionIter {
    /// The instructions in the packets that follow.
    fn instructions(&mut self) -> Vec<InstructionSite> {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(Part::Instructions(part)) = self.parts.front() {
            if let Some((end, sites)) = part.sites(at) {
                all.extend(sites);
                at = end;
            }
            self.parts.pop_front();
        }
        all
    }
}

impl Iterator for FunctionIter {
    type Item = Function;

    fn next(&mut self) -> Option<Function> {
        while self.begun.count == 0 {
            if let Part::Functions(functions) = self.parts.pop_front()? {
                (self.begun, self.at) = (functions, 0);
            }
        }
        self.begun.count -= 1;
        let mut rest = Reader::of(self.begun.bytes.get(self.at..)?);
        // They were checked when they came.
        let mut function = rest.function()?;
        self.at = self.begun.bytes.len() - rest.left();
        if self.begun.count == 0
            && let Some(Ok(instructions)) = &mut function.instructions
        {
            *instructions = self.instructions();
        }
        Some(function)
    }
}

/// The functions of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFunctions {
    /// Those that the query selects, in the order of the addresses of their symbols.
    pub functions: FunctionList,
    /// Where their names were found.
    pub source: SymbolSource,
    /// The number of all functions of the file, with those symbols that are parts of others.
    pub total: u64,
    /// The file's code unwinds through the frames of its callers, or may do so, and why that is
    /// believed: a uretprobe would end the process.
    pub unwinds: Option<String>,
    /// The address of the file's entry point; 0 for none.
    pub entry: u64,
}

impl Writer {
    /// What is known of the file, without its functions.
    pub(super) fn file(&mut self, file: &FileFunctions) {
        self.u8(match file.source {
            SymbolSource::None => 0,
            SymbolSource::Full => 1,
            SymbolSource::DebugFile => 2,
            SymbolSource::Compressed => 3,
            SymbolSource::Dynamic => 4,
        });
        self.u64(file.total);
        self.u64(file.entry);
        self.optional(file.unwinds.as_deref());
    }
}

impl Reader<'_> {
    pub(super) fn file(&mut self) -> Option<FileFunctions> {
        let source = match self.u8()? {
            0 => SymbolSource::None,
            1 => SymbolSource::Full,
            2 => SymbolSource::DebugFile,
            3 => SymbolSource::Compressed,
            4 => SymbolSource::Dynamic,
            _ => return None,
        };
        let (total, entry) = (self.u64()?, self.u64()?);
        let unwinds = self.optional()?;
        Some(FileFunctions { functions: FunctionList::default(), source, total, unwinds, entry })
    }
}

/// Puts the packets of a list together. `None`: malformed.
#[derive(Default)]
pub(crate) struct Assembly {
    file: FileFunctions,
    /// The end of the last instruction of the last function. `None`: it has no instructions.
    at: Option<u32>,
}

impl Assembly {
    pub(crate) fn file(&mut self, file: FileFunctions) {
        self.file = FileFunctions { functions: std::mem::take(&mut self.file.functions), ..file };
    }

    pub(crate) fn functions(&mut self, functions: Functions) {
        if functions.count > 0 {
            self.at = functions.is_open.then_some(0);
        }
        self.file.functions.push(functions);
    }

    pub(crate) fn instructions(&mut self, part: Instructions) -> Option<()> {
        self.at = Some(part.end(self.at?)?);
        self.file.functions.parts.push_back(Part::Instructions(Arc::new(part)));
        Some(())
    }

    pub(crate) fn finish(self) -> FileFunctions {
        self.file
    }
}

#[cfg(test)]
mod tests {
    use text::{EntryProbe, Step};

    use super::super::Response;
    use super::*;
    use crate::functions::FunctionName;

    #[test]
    fn instructions_continue_in_the_next_packet() {
        let mut assembly = Assembly::default();
        let list = Some(Ok(Vec::new()));
        let function = Function { instructions: list, ..Function::default() };
        assembly.functions(Functions::of(std::slice::from_ref(&function)));
        let mut part = Instructions::default();
        part.push(15, Some(Step::Single));
        part.push(1, None);
        let response = Response::Instructions(part.clone());
        assert_eq!(Response::decode(&response.encode()), Some(response));
        assembly.instructions(part.clone()).unwrap();
        assembly.instructions(part.clone()).unwrap();
        let file = assembly.finish();
        let sites = file.functions.iter().next().unwrap().instructions.unwrap().unwrap();
        assert_eq!(sites.iter().map(|s| s.offset).collect::<Vec<_>>(), [0, 15, 16, 31]);
        assert_eq!((sites[2].step, sites[3].step), (Some(Step::Single), None));
        // There is no function before, or one whose instructions were not asked for.
        assert_eq!(Assembly::default().instructions(part.clone()), None);
        let mut assembly = Assembly::default();
        assembly.functions(Functions::of(&[Function::default()]));
        assert_eq!(assembly.instructions(part.clone()), None);
        // A list that is made of functions has the same ones.
        let function = Function { size: 32, instructions: Some(Ok(sites)), ..function };
        let again: FunctionList = [function.clone(), Function::default()].into_iter().collect();
        assert_eq!(again.iter().collect::<Vec<_>>(), [function, Function::default()]);
        assert_eq!(Instructions(vec![0x41]).sites(0), None);
    }
    #[test]
    fn a_list_of_many_functions_is_as_long_as_their_packets() {
        let function = |n: u32| Function {
            names: vec![FunctionName { raw: format!("function_number_{n}"), ..FunctionName::default() }],
            address: 4 * u64::from(n),
            entries: vec![Ok(EntryProbe::at(0, Step::Single)); 4],
            ..Function::default()
        };
        let mut assembly = Assembly::default();
        for part in 0..100 {
            let packet: Vec<Function> = (part * 100..(part + 1) * 100).map(function).collect();
            assembly.functions(Functions::of(&packet));
        }
        let list = assembly.finish().functions;
        let parts = list.parts.iter().map(|part| match part {
            Part::Functions(functions) => functions.bytes.len(),
            Part::Instructions(_) => 0,
        });
        let bytes = parts.sum::<usize>() + list.parts.capacity() * size_of::<Part>();
        assert!(bytes < 100 * list.len(), "{bytes}");
        assert!(list.len() == 10_000 && list.iter().eq((0..10_000).map(function)));
    }
}
