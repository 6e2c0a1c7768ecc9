//! Which code belongs to which function.
//!
//! A compiler moves what is rarely executed away from a function: GCC to a part that has a symbol
//! (`f.cold`) unless the file is stripped. A jump there is no return, and one back no entry. So the
//! parts of a function are found before its code is judged, and are no functions themselves.
//!
//! | What tells | Of what |
//! |---|---|
//! | names, with who calls or jumps | parts with symbols ([`super::named`]) |
//! | the debug information, if there is any: the ranges of a function | parts without symbols, and those whose names and jumps do not tell |
//! | landing pads: the unwinder leads to them | parts that catch exceptions, to which no code jumps |
//! | who reaches what in the whole file ([`super::reach`]) | parts of stripped files |

use std::cell::RefCell;
use std::rc::Rc;

use debuginfo::Extent;
use text::{Function as Code, LONGEST, Reference, references};
use unwind::{LandingPad, Sections, landing_pads};

use super::named::{NamedPart, Span, Verdict};
use super::reach::Reach;
use super::{Listing, NEAR, SymbolKind, region};

/// Parts of one function that are looked for. Compilers make one or two.
const MAX_PARTS: usize = 16;

/// Why a function has no probes whose parts cannot be read.
const TOO_MUCH: &str = "the parts of its file's functions overlap too much";

impl Listing<'_> {
    /// The symbol with the name of a part that is at an address.
    fn part_at(&self, address: u64) -> Option<&NamedPart> {
        let at = self.parts.binary_search_by_key(&address, |part| part.span.address).ok()?;
        self.parts.get(at)
    }

    /// Why what is at an address is no function but a part of one. `None`: it is a function.
    pub(super) fn is_part(&self, address: u64) -> Option<String> {
        let part = self.part_at(address)?;
        let of = match self.verdict(part) {
            Verdict::Function => return None,
            Verdict::Of(whole) => self.name_at(whole).unwrap_or_else(|| format!("the function at {whole:x}")),
            Verdict::Unknown => {
                let reach = self.reach()?;
                let (number, ..) = reach.find(address)?;
                reach.is_only_jumped_to(number).then(|| "another function".into())?
            }
        };
        Some(format!(
            "it is a part of {of}, whose entry and returns include it; -:{address:x} is its first instruction"
        ))
    }

    /// What a symbol with the name of a part is: a function if it is called.
    fn verdict(&self, part: &NamedPart) -> Verdict {
        *part.verdict.get_or_init(|| self.judge(part))
    }

    fn judge(&self, part: &NamedPart) -> Verdict {
        let Some(nearest) = part.candidates.first() else {
            return self.described(part).unwrap_or(Verdict::Unknown);
        };
        let (mut is_called, mut jumps) = (false, None);
        let mut own = Vec::new();
        let mut candidates = Vec::new();
        for address in &part.candidates {
            let Some(span) = self.sized(*address).map(|size| Span { address: *address, size }) else {
                continue;
            };
            candidates.push(span);
            let Some(bytes) = self.code(span) else { continue };
            references(&bytes, span.address, |reference, target| match reference {
                Reference::Call => is_called |= part.span.contains(target),
                Reference::Jump if part.span.contains(target) => jumps = jumps.or(Some(span.address)),
                Reference::Jump | Reference::Address => {}
            });
            if self.pads_of(span).any(|pad| part.span.contains(pad)) {
                jumps = jumps.or(Some(span.address));
            }
        }
        if is_called {
            return Verdict::Function;
        }
        if jumps.is_none()
            && let Some(verdict) = self.described(part)
        {
            return verdict;
        }
        if part.candidates.len() > 1 && jumps.is_none() {
            let bytes = self.code(part.span).unwrap_or_default();
            references(&bytes, part.span.address, |reference, target| {
                if reference == Reference::Jump {
                    own.push(target);
                }
            });
            let into = |span: &&Span| own.iter().any(|target| span.contains(*target));
            jumps = candidates.iter().find(into).map(|span| span.address);
        }
        Verdict::Of(jumps.unwrap_or(*nearest))
    }

    /// What the debug information says that a symbol with the name of a part is.
    fn described(&self, part: &NamedPart) -> Option<Verdict> {
        let extent = self.extent(part.span.address)?;
        Some(if extent.entry == part.span.address { Verdict::Function } else { Verdict::Of(extent.entry) })
    }

    /// The function that has the code at an address by the debug information, which is read when
    /// this is first asked.
    fn extent(&self, address: u64) -> Option<Rc<Extent>> {
        let read = || Some(RefCell::new(self.debug?(self.most / 2)?));
        let mut extents = self.extents.get_or_init(read).as_ref()?.borrow_mut();
        extents.of(address)
    }

    /// The landing pads of a stretch of code that are outside of the functions and parts in it.
    fn pads_of(&self, span: Span) -> impl Iterator<Item = u64> + '_ {
        let all = self.pads();
        let from = all.partition_point(|pad| pad.start < span.address);
        let own = all.iter().skip(from).take_while(move |pad| span.contains(pad.start));
        own.map(|pad| pad.pad).filter(move |pad| !span.contains(*pad))
    }

    fn pads(&self) -> &[LandingPad] {
        self.pads.get_or_init(|| {
            let section = |name: &[u8]| self.own.section(name, self.most / 8);
            let address = |name: &[u8]| self.own.section_address(name).unwrap_or(0);
            let tables = section(b".gcc_except_table").filter(|_| self.own.is_native());
            let Some((tables, frames)) = tables.zip(section(b".eh_frame")) else { return Vec::new() };
            let sections = Sections {
                eh_frame: Some((frames.0, &frames.1)),
                text: address(b".text"),
                got: address(b".got"),
                ..Sections::default()
            };
            landing_pads(&sections, (tables.0, &tables.1))
        })
    }

    /// The parts of a function elsewhere, with their code.
    pub(super) fn parts_of(&self, whole: Span, code: &Code<'_>) -> Result<Vec<(Span, Vec<u8>)>, String> {
        let mut parts: Vec<(Span, Vec<u8>)> = Vec::new();
        let mut jumps: Vec<u64> = code.jumps_out().chain(self.pads_of(whole)).collect();
        let add = |span: Span, parts: &mut Vec<(Span, Vec<u8>)>, jumps: &mut Vec<u64>| {
            let bytes = self.code(span).ok_or(TOO_MUCH)?;
            jumps.extend(Code::decode(&bytes, span.address, &[]).jumps_out());
            jumps.extend(self.pads_of(span));
            parts.push((span, bytes));
            Ok::<(), String>(())
        };
        let from = self.owners.partition_point(|(owner, _)| *owner < whole.address);
        let mine = self.owners.iter().skip(from).take_while(|(owner, _)| *owner == whole.address);
        for (_, number) in mine {
            let Some(part) = self.parts.get(*number as usize) else { continue };
            if self.verdict(part) == Verdict::Of(whole.address) && parts.len() < MAX_PARTS {
                add(part.span, &mut parts, &mut jumps)?;
            }
        }
        let mut at = 0;
        while let Some(target) = jumps.get(at).copied().filter(|_| parts.len() < MAX_PARTS) {
            at += 1;
            let is_known = whole.contains(target) || parts.iter().any(|(part, _)| part.contains(target));
            let find = || self.named_part(target, whole).or_else(|| self.unnamed_part(target, whole, &parts));
            if let Some(part) = (!is_known).then(find).flatten() {
                add(part, &mut parts, &mut jumps)?;
            }
        }
        Ok(parts)
    }

    /// The part of a function that has a symbol, if an address to which the function jumps is in
    /// one. Its name may be that of others.
    fn named_part(&self, target: u64, whole: Span) -> Option<Span> {
        let before = self.parts.partition_point(|part| part.span.address <= target).checked_sub(1)?;
        let part = self.parts.get(before).filter(|part| part.span.contains(target))?;
        (self.verdict(part) == Verdict::Of(whole.address)).then_some(part.span)
    }

    /// The part of a function that has no symbol of a function, if an address to which the function
    /// jumps is in one.
    fn unnamed_part(&self, target: u64, whole: Span, known: &[(Span, Vec<u8>)]) -> Option<Span> {
        region(&self.regions, target)?;
        if self.is_covered(target) {
            return None;
        }
        if let Some(extent) = self.extent(target) {
            let range = extent.ranges.iter().find(|range| range.contains(&target))?;
            let is_its = extent.entry == whole.address && !range.contains(&whole.address);
            return is_its.then(|| Span { address: range.start, size: range.end - range.start });
        }
        let reach = self.reach()?;
        let (number, address, size) = reach.find(target)?;
        let spans = known.iter().map(|(span, _)| *span).chain([whole]);
        let own: Vec<u32> = spans.flat_map(|span| reach.within(span.address, span.size)).collect();
        let has_names = !self.inside(address, size).is_empty();
        let is_its = !has_names && reach.is_reached_only_from(number, &own);
        is_its.then_some(Span { address, size })
    }

    /// True if an address is in a function that has a symbol.
    fn is_covered(&self, address: u64) -> bool {
        let before = self.symbols.partition_point(|s| s.symbol.addr <= address);
        let near = self.symbols.get(before.saturating_sub(NEAR)..before).unwrap_or_default();
        let start = self.starts.partition_point(|start| *start <= address).checked_sub(1);
        let start = start.and_then(|at| self.starts.get(at)).copied().unwrap_or(0);
        near.iter().any(|s| {
            // A symbol without a size reaches to the next.
            let holds = match s.symbol.size {
                0 => s.symbol.addr == start,
                size => address - s.symbol.addr < size,
            };
            let is_unknown = |part: &NamedPart| self.verdict(part) == Verdict::Unknown;
            holds && !self.part_at(s.symbol.addr).is_some_and(is_unknown)
        })
    }

    fn reach(&self) -> Option<&Reach> {
        let is_named = |address| self.is_covered(address);
        let build = || Reach::build(self.own, &self.regions, self.pads(), is_named, self.most);
        self.reach.get_or_init(build).as_ref()
    }

    /// The bytes of a stretch of code, while there is time for them.
    fn code(&self, span: Span) -> Option<Vec<u8>> {
        let region = region(&self.regions, span.address)?;
        let size = span.size.min(LONGEST as u64).min(region.end - span.address);
        self.left.set(self.left.get().checked_sub(size)?);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.own.read_at(region.offset + (span.address - region.start), &mut bytes).ok()?;
        Some(bytes)
    }

    /// True if what is at two addresses is as far apart in the file.
    pub(super) fn is_as_far_in_the_file(&self, a: u64, b: u64) -> bool {
        let offset = |address: u64| {
            let region = region(&self.regions, address)?;
            Some(region.offset.wrapping_sub(region.start))
        };
        offset(a).is_some() && offset(a) == offset(b)
    }

    /// A name of the function at an address.
    fn name_at(&self, address: u64) -> Option<String> {
        let from = self.symbols.partition_point(|s| s.symbol.addr < address);
        let symbol = self.symbols.get(from).filter(|s| s.symbol.addr == address)?;
        if symbol.symbol.kind == SymbolKind::Label {
            return None;
        }
        let raw = super::own_name(self.tables.get(usize::from(symbol.table))?.name(symbol.symbol.name))?;
        Some(super::demangle::names(raw).shown().to_owned())
    }
}
