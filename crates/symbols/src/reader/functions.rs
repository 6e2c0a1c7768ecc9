//! The functions of a file: their names, sizes and code.
//!
//! ```text
//!  .symtab, else debug file, else .gnu_debugdata ─┐
//!  .dynsym ───────────────────────────────────────┴─► symbols in code ─► functions ─► selected ─► decoded
//!  sections, segments ────────────────────────────────┘
//! ```
//!
//! A function is an address with symbols. Everything is bounded: the memory by that of the reader;
//! the bytes that are decoded by a multiple of the code, because symbols may overlap and each be as
//! long as the file; the names and returns of a function by the size of a packet; instructions in
//! one answer by [`MAX_INSTRUCTIONS`].

use std::cell::{Cell, OnceCell, RefCell};

use ::unwind::LandingPad;
use debuginfo::Extents;
use diagnostics::control;
use text::Function as Code;

use super::demangle;
use super::elf::code::{CodeSymbol, Region, SymbolKind, SymbolTable, TableKind};
use super::elf::{Elf, ElfError, shortened};
use crate::functions::{Calling, Function, FunctionName, FunctionQuery, Select, Selector, SymbolSource};
use crate::wire::functions::{Instructions, MAX_NAMES, MAX_RETURNS, Running};
use crate::wire::list::FileFunctions;

mod belonging;
mod chosen;
mod decode;
mod go;
mod named;
mod reach;
mod unwind;

use chosen::Chosen;
use decode::{Decoder, Place};
use go::GoTable;
pub(crate) use named::in_source;
use named::{Named, NamedPart, Span};
use reach::Reach;

/// Symbols before an address that are looked at for one that covers it.
const NEAR: usize = 64;

/// The instructions in one answer.
const MAX_INSTRUCTIONS: usize = 1 << 22;

/// The files in which the names of a file's functions are.
pub(crate) struct Sources<'a> {
    /// The file that is mapped.
    pub(crate) own: &'a Elf,
    /// Its base name.
    pub(crate) name: &'a [u8],
    /// A separate table, and what it is.
    pub(crate) other: Option<(&'a Elf, SymbolSource)>,
    /// Reads the debug information about functions in several places, in these bytes of memory.
    pub(crate) debug: Option<&'a dyn Fn(u64) -> Option<Extents>>,
}

/// A symbol, and the number of its table.
#[derive(Clone, Copy)]
struct Symbol {
    table: u8,
    symbol: CodeSymbol,
}

/// The symbols in the code of a file, in the order of addresses.
pub(crate) struct Listing<'a> {
    own: &'a Elf,
    regions: Vec<Region>,
    tables: Vec<SymbolTable>,
    symbols: Vec<Symbol>,
    /// The addresses of functions and global labels.
    starts: Vec<u64>,
    file: FileFunctions,
    /// The functions of Go.
    go: Option<GoTable>,
    /// There is a function with the arguments of Go before 1.17 beside one with those of today.
    go_registers: bool,
    /// The symbols with names of parts, in the order of addresses.
    parts: Vec<NamedPart>,
    /// The address of a function of which one may be a part, and the number of the part.
    owners: Vec<(u64, u32)>,
    /// The debug information about functions, if that was asked for.
    debug: Option<&'a dyn Fn(u64) -> Option<Extents>>,
    extents: OnceCell<Option<RefCell<Extents>>>,
    /// Landing pads outside of the code whose exceptions they get, if that was asked for.
    pads: OnceCell<Vec<LandingPad>>,
    /// Who reaches what, if that was asked for.
    reach: OnceCell<Option<Reach>>,
    /// Bytes of parts that may still be read.
    left: Cell<u64>,
    /// The memory that may be used.
    most: u64,
    /// See [`decode::EXTRA`].
    extra: u64,
}

/// One answer, piece by piece.
pub(crate) trait Output {
    type Error;
    /// The next function, and its instructions if they were asked for and are certain.
    fn function(&mut self, function: Function, instructions: Option<Instructions>)
    -> Result<(), Self::Error>;
    /// Time has passed without a function.
    fn pause(&mut self) -> Result<(), Self::Error>;
}

impl<'a> Listing<'a> {
    /// The memory that a listing needs, in bytes.
    pub(crate) fn memory(sources: &Sources) -> u64 {
        let tables = Listing::tables(sources);
        // The symbols are copied once, and their addresses a second time.
        let sizes = tables.map(|(elf, kind)| elf.functions_size(kind).saturating_mul(3));
        sizes.fold(GoTable::size(sources.own), u64::saturating_add)
    }

    fn tables<'b>(sources: &Sources<'b>) -> impl Iterator<Item = (&'b Elf, TableKind)> {
        let own = sources.own;
        let full = match sources.other {
            _ if own.has_full_table() => Some(own),
            Some((other, _)) => Some(other),
            None => None,
        };
        full.map(|elf| (elf, TableKind::Full)).into_iter().chain([(own, TableKind::Dynamic)])
    }

    /// Reads the symbols, which need at most `most` bytes of memory.
    pub(crate) fn read(sources: &Sources<'a>, most: u64) -> Result<Listing<'a>, ElfError> {
        let needed = Listing::memory(sources);
        if needed > most {
            return Err(ElfError::Large(needed));
        }
        let own = sources.own;
        let mut listing = Listing {
            own,
            regions: own.code_regions(),
            tables: Vec::new(),
            symbols: Vec::new(),
            starts: Vec::new(),
            file: FileFunctions { entry: own.entry_point(), ..FileFunctions::default() },
            go: None,
            go_registers: false,
            parts: Vec::new(),
            owners: Vec::new(),
            debug: sources.debug,
            extents: OnceCell::new(),
            pads: OnceCell::new(),
            reach: OnceCell::new(),
            left: Cell::new(0),
            most,
            extra: decode::EXTRA,
        };
        for (number, (elf, kind)) in (0..).zip(Listing::tables(sources)) {
            let table = elf.functions(kind, most)?;
            let symbols = table.symbols.iter().map(|symbol| Symbol { table: number, symbol: *symbol });
            let in_code = symbols.filter(|s| region(&listing.regions, s.symbol.addr).is_some());
            let before = listing.symbols.len();
            listing.symbols.extend(in_code);
            if listing.symbols.len() > before && listing.file.source == SymbolSource::None {
                listing.file.source = match (kind, sources.other) {
                    (TableKind::Dynamic, _) => SymbolSource::Dynamic,
                    (TableKind::Full, Some((_, source))) if !own.has_full_table() => source,
                    (TableKind::Full, _) => SymbolSource::Full,
                };
            }
            listing.tables.push(SymbolTable { symbols: Vec::new(), ..table });
        }
        listing.file.unwinds = listing.unwinds(sources.name);
        listing.find_parts();
        let is_start = |s: &Symbol| s.symbol.kind != SymbolKind::Label || !s.symbol.is_local;
        listing.symbols.sort_unstable_by_key(|s| (s.symbol.addr, s.table, s.symbol.name));
        listing.starts = listing.symbols.iter().filter(|s| is_start(s)).map(|s| s.symbol.addr).collect();
        listing.starts.dedup();
        if GoTable::size(own) > 0 {
            listing.read_go(most);
        }
        listing.symbols.retain(|s| s.symbol.kind != SymbolKind::Label);
        listing.file.total = groups(&listing.symbols).count() as u64;
        Ok(listing)
    }

    fn read_go(&mut self, most: u64) {
        let mut text = None;
        for s in &self.symbols {
            let Some(table) = self.tables.get(usize::from(s.table)) else { continue };
            let name = table.name(s.symbol.name);
            self.go_registers |= name.ends_with(go::ON_THE_STACK.as_bytes());
            if name == go::TEXT {
                text = Some(s.symbol.addr);
            }
        }
        self.go = GoTable::read(self.own, text, most);
    }

    /// Whose calling convention a function has.
    fn calling(&self, function: &Function) -> Calling {
        let Some(go) = &self.go else { return Calling::C };
        if function.names.iter().any(|name| name.raw.ends_with(go::ON_THE_STACK)) {
            return Calling::Unknown(
                "it has its arguments on the stack, as functions in assembly have them (ABI0)".into(),
            );
        }
        go.calling(function.address, self.go_registers)
    }

    /// What is known of the file.
    pub(crate) fn file(&self) -> &FileFunctions {
        &self.file
    }

    /// Gives the functions that a query selects to `out`.
    pub(crate) fn answer<O: Output>(
        &self,
        query: &FunctionQuery,
        running: Option<&Running>,
        out: &mut O,
    ) -> Result<Result<(), String>, O::Error> {
        let selector = Selector::new(&query.select);
        let mut decoder = Decoder::new(self.own, &self.regions, self.extra);
        let mut left = MAX_INSTRUCTIONS;
        let chosen = running.and_then(|running| Chosen::open(self.own, running));
        if query.select == Select::Nothing {
            return Ok(Ok(()));
        }
        let by_address = matches!(query.select, Select::At(_));
        let named = groups(&self.symbols).map(|group| self.function(group, &selector));
        for function in named.chain(self.without_symbols(&query.select).into_iter().map(Some)) {
            let Some(mut function) = function else {
                out.pause()?;
                continue;
            };
            // An address means what is there: the resolver.
            if function.indirect && !by_address {
                let size_of = |addr| self.sized(addr);
                let region = |addr| region(&self.regions, addr).copied();
                let resolved = chosen::resolve(&mut function, chosen.as_ref(), self.own, region, size_of);
                function.unresolved = resolved.err();
            }
            function.calling = self.calling(&function);
            let mut instructions = None;
            let is_decoded = !query.entries.is_empty() || query.returns || query.instructions;
            if is_decoded && function.part.is_none() {
                let inside = self.inside(function.address, function.size);
                let place = Place { address: function.address, offset: function.offset, size: function.size };
                decoder.with(&place, inside, |code| {
                    instructions = self.analyse_whole(code, query, &mut function);
                });
            }
            left = match left.checked_sub(instructions.as_ref().map_or(0, |i| i.0.len())) {
                Some(left) => left,
                None => {
                    let most = MAX_INSTRUCTIONS;
                    return Ok(Err(format!("the functions have more than {most} instructions: name fewer")));
                }
            };
            out.function(function, instructions)?;
        }
        Ok(Ok(()))
    }

    /// Finds the symbols with names of parts. The symbols are in the order of their tables.
    fn find_parts(&mut self) {
        let named = |s: &Symbol| {
            let name =
                self.tables.get(usize::from(s.table)).map_or(&[][..], |table| table.name(s.symbol.name));
            Named { name, span: Span { address: s.symbol.addr, size: s.symbol.size } }
        };
        let functions = self.symbols.iter().filter(|s| s.symbol.kind != SymbolKind::Label);
        let parts = named::parts(functions.map(named));
        let numbered = parts.iter().zip(0..);
        let owners = numbered.flat_map(|(part, number)| part.candidates.iter().map(move |at| (*at, number)));
        self.owners = owners.collect();
        self.owners.sort_unstable();
        self.parts = parts;
        self.left.set(decode::most(&self.regions, self.extra));
    }

    /// Decodes a function with its parts. Returns its instructions if they were asked for and are
    /// certain.
    fn analyse_whole(
        &self,
        code: Result<Code<'_>, String>,
        query: &FunctionQuery,
        function: &mut Function,
    ) -> Option<Instructions> {
        let whole = Span { address: function.address, size: function.size };
        let parts = code.as_ref().map_or_else(|_| Ok(Vec::new()), |code| self.parts_of(whole, code));
        let (code, parts) = match (code, parts) {
            (Ok(code), Ok(parts)) => (Ok(code), parts),
            (Err(why), _) | (_, Err(why)) => (Err(why), Vec::new()),
        };
        let decoded = parts.iter().map(|(span, bytes)| {
            let inside = self.inside(span.address, span.size);
            Code::decode(bytes, span.address, inside)
        });
        let code = code.map(|code| code.with_parts(decoded.collect()));
        let instructions = analyse(code.as_ref().map_err(Clone::clone), query, function);
        let is_near = |(span, _): &(Span, _)| self.is_as_far_in_the_file(span.address, whole.address);
        if query.returns && !parts.iter().all(is_near) {
            function.returns = Some(Err("a part of it is in another segment of its file".into()));
        }
        instructions
    }

    /// The functions at addresses that no symbol covers, by the unwinders' table: they have no
    /// names.
    fn without_symbols(&self, select: &Select) -> Vec<Function> {
        let Select::At(addrs) = select else { return Vec::new() };
        let found = addrs.iter().filter_map(|addr| {
            let place = region(&self.regions, *addr)?;
            let before = self.symbols.partition_point(|s| s.symbol.addr <= *addr);
            let sized = |s: &Symbol| addr.wrapping_sub(s.symbol.addr) < s.symbol.size;
            // One that is nested in another may lie between; few do.
            let near = self.symbols.get(before.saturating_sub(NEAR)..before)?;
            if near.iter().any(sized) {
                return None;
            }
            let (address, size) = self.own.unwound(*addr)?;
            let into = address.checked_sub(place.start)?;
            let (offset, size) = (place.offset + into, size.min(place.end - address));
            Some(Function { address, offset, size, ..Function::default() })
        });
        let mut found: Vec<Function> = found.collect();
        found.dedup_by_key(|function| function.address);
        found
    }

    /// The size of the function at an address, by its symbols.
    fn sized(&self, addr: u64) -> Option<u64> {
        let from = self.symbols.partition_point(|s| s.symbol.addr < addr);
        let group = self.symbols.get(from..)?.iter().take_while(|s| s.symbol.addr == addr);
        group.map(|s| s.symbol.size).max().filter(|size| *size > 0)
    }

    /// The addresses of symbols that lie in a function, without its first.
    fn inside(&self, start: u64, size: u64) -> &[u64] {
        let from = self.starts.partition_point(|a| *a <= start);
        let to = self.starts.partition_point(|a| *a < start.saturating_add(size));
        self.starts.get(from..to).unwrap_or_default()
    }

    /// The function of the symbols at one address, if it is selected.
    fn function(&self, group: &[Symbol], selector: &Selector) -> Option<Function> {
        let address = group.first()?.symbol.addr;
        let region = region(&self.regions, address)?;
        let sized = group.iter().map(|s| s.symbol.size).max().unwrap_or(0);
        let next = self.starts.partition_point(|a| *a <= address);
        let next = self.starts.get(next).copied().unwrap_or(u64::MAX);
        let most = region.end - address;
        let size = if sized == 0 { most.min(next - address) } else { most.min(sized) };
        // Where the distance to the next symbol is all that is known, there may be functions
        // without symbols between.
        let by_unwinders = sized == 0 && selector.is_by_address();
        let unwound = by_unwinders.then(|| self.own.unwound_size(address)).flatten();
        let size = unwound.map_or(size, |size| size.min(most));
        let by_address = selector.matches_range(address, size);
        if !by_address && !selector.is_by_name() {
            return None;
        }
        let mut names: Vec<(bool, bool, usize, FunctionName)> = Vec::new();
        let mut bytes = 0;
        for s in group {
            let Some(raw) =
                self.tables.get(usize::from(s.table)).and_then(|t| own_name(t.name(s.symbol.name)))
            else {
                continue;
            };
            if names.iter().any(|(.., name)| name.raw == raw) {
                continue;
            }
            let name = demangle::names(raw);
            bytes += name.forms().map(|form| form.len() + 8).sum::<usize>();
            if bytes > MAX_NAMES && !names.is_empty() {
                break;
            }
            let underscores = name.raw.bytes().take_while(|b| *b == b'_').count();
            names.push((s.symbol.is_local, name.raw.starts_with('$'), underscores, name));
        }
        let matches = |name: &FunctionName| name.forms().any(|form| selector.matches_name(form));
        if names.is_empty() || !(by_address || names.iter().any(|(.., name)| matches(name))) {
            return None;
        }
        // An address means what is there. A list has no parts, but who names one is told why.
        let part = self.is_part(address).filter(|_| !selector.is_by_address());
        if part.is_some() && !names.iter().any(|(.., name)| selector.is_part_named(name)) {
            return None;
        }
        names.sort();
        Some(Function {
            names: names.into_iter().map(|(.., name)| name).collect(),
            address,
            offset: region.offset + (address - region.start),
            size,
            indirect: group.iter().any(|s| s.symbol.kind == SymbolKind::Indirect),
            part,
            ..Function::default()
        })
    }
}

/// The symbols of each address.
fn groups(symbols: &[Symbol]) -> impl Iterator<Item = &[Symbol]> {
    symbols.chunk_by(|a, b| a.symbol.addr == b.symbol.addr)
}

fn region(regions: &[Region], addr: u64) -> Option<&Region> {
    let after = regions.partition_point(|r| r.start <= addr);
    regions.get(after.checked_sub(1)?).filter(|r| addr < r.end)
}

/// A name without its version.
fn own_name(bytes: &[u8]) -> Option<String> {
    let most = bytes.get(..bytes.len().min(crate::wire::MAX_NAME)).unwrap_or_default();
    let name = control::name(most);
    let name = name.split('@').next().unwrap_or_default();
    (!name.is_empty()).then(|| shortened(name))
}

/// Decodes a function. Returns its instructions if they were asked for and are certain.
fn analyse(
    code: Result<&Code<'_>, String>,
    query: &FunctionQuery,
    function: &mut Function,
) -> Option<Instructions> {
    let code = match code {
        Ok(code) => code,
        Err(why) => {
            function.entries = query.entries.iter().map(|_| Err(why.clone())).collect();
            function.returns = query.returns.then(|| Err(why.clone()));
            function.instructions = query.instructions.then_some(Err(why));
            return None;
        }
    };
    let kernel = query.kernel;
    let is_of_c = function.calling == Calling::C;
    let entry = |uses: &text::Uses| {
        let found = if is_of_c { code.entry(kernel, *uses) } else { code.go_entry(kernel, *uses) };
        found.map_err(|e| e.to_string())
    };
    function.entries = query.entries.iter().map(entry).collect();
    if query.returns {
        function.returns_by_the_stack = code.returns_by_the_stack();
        function.calls_itself = code.calls_itself();
        let found = code.returns(kernel).map_err(|e| e.to_string());
        function.returns = Some(match found {
            Ok(sites) if sites.len() > MAX_RETURNS => {
                Err(format!("it returns at {} places, more than {MAX_RETURNS}", sites.len()))
            }
            found => found,
        });
    }
    if !query.instructions {
        return None;
    }
    if let Some(refusal) = code.refusal() {
        function.instructions = Some(Err(refusal.to_string()));
        return None;
    }
    function.instructions = Some(Ok(Vec::new()));
    let mut list = Instructions::default();
    for instruction in code.instructions() {
        let step = code.offset(kernel, u64::from(instruction.offset)).ok();
        list.push(instruction.length, step);
    }
    Some(list)
}

#[cfg(test)]
mod tests;
