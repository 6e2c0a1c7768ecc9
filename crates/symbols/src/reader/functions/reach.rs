//! Who reaches what in a file: what a stripped file has instead of the names of parts.
//!
//! ```text
//!  the unwinders' table ──► ranges: functions and parts of functions, each by itself
//!  all code, all data   ──► edges:  this range jumps to that one; somebody calls that one, or has its address
//!  landing pads         ──► edges:  exceptions in this range lead to that one, as a jump would
//! ```
//!
//! A range that has no symbol is a part of the function that alone jumps to it. What is called, or
//! has its address taken, is a function. A function that is reached only by the jumps of one other
//! cannot be told from its part, and counts as one: it returns where its caller's caller goes on,
//! in both views.
//!
//! All code is decoded once, when the first jump leads where no symbol is.

use text::{Reference, references};
use unwind::LandingPad;

use crate::reader::elf::Elf;
use crate::reader::elf::code::Region;

/// Bytes that are read at once.
const WINDOW: u64 = 1 << 20;
/// Bytes of code and of data that are looked at.
const MOST: u64 = 256 << 20;
/// Edges that are kept.
const MAX_EDGES: usize = 1 << 22;
/// Stands for who calls a range or has its address, and for code of no range.
const OTHER: u32 = u32::MAX;

/// See above.
pub(super) struct Reach {
    /// The first address and the size, in the order of addresses.
    ranges: Vec<(u64, u64)>,
    /// The number of the range that is reached, and that of the one that jumps to it, or [`OTHER`].
    edges: Vec<(u32, u32)>,
}

impl Reach {
    /// Looks at a whole file. `None`: it has no table, or is too large.
    pub(super) fn build(
        elf: &Elf,
        regions: &[Region],
        pads: &[LandingPad],
        is_named: impl Fn(u64) -> bool,
        most: u64,
    ) -> Option<Reach> {
        let size = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
        let code = size(&mut regions.iter().map(|r| r.end - r.start));
        let data = elf.data_sections();
        if code.saturating_add(size(&mut data.iter().map(|(_, size)| *size))) > MOST || !elf.is_native() {
            return None;
        }
        let ranges = elf.unwound_ranges(most / 4)?;
        let has_no_name: Vec<bool> = ranges.iter().map(|(start, _)| !is_named(*start)).collect();
        let mut reach = Reach { ranges, edges: Vec::new() };
        let is_asked = |number: u32| has_no_name.get(number as usize).is_some_and(|asked| *asked);
        for region in regions {
            reach.add_code(elf, region, &is_asked)?;
        }
        for section in data {
            reach.add_data(elf, section, &is_asked)?;
        }
        reach.add_pads(pads, &is_asked);
        reach.settle();
        Some(reach)
    }

    /// The number of the range that an address is in, the first address, and the size.
    pub(super) fn find(&self, address: u64) -> Option<(u32, u64, u64)> {
        let before = self.ranges.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, size) = *self.ranges.get(before)?;
        (address - start < size).then_some((u32::try_from(before).ok()?, start, size))
    }

    /// The numbers of the ranges of a stretch of code.
    pub(super) fn within(&self, start: u64, size: u64) -> impl Iterator<Item = u32> + '_ {
        let from = self.ranges.partition_point(|(at, size)| at.saturating_add(*size) <= start);
        let inside = self.ranges.iter().zip(0u32..).skip(from);
        inside.take_while(move |((at, _), _)| *at < start.saturating_add(size)).map(|(_, number)| number)
    }

    /// True if all that reaches a range are the jumps of these, and there is one.
    pub(super) fn is_reached_only_from(&self, range: u32, own: &[u32]) -> bool {
        let from = self.edges.partition_point(|(to, _)| *to < range);
        let mut edges = self.edges.iter().skip(from).take_while(|(to, _)| *to == range).peekable();
        edges.peek().is_some() && edges.all(|(_, source)| own.contains(source))
    }

    /// True if nobody calls a range or has its address, and somebody jumps to it.
    pub(super) fn is_only_jumped_to(&self, range: u32) -> bool {
        let from = self.edges.partition_point(|(to, _)| *to < range);
        let mut edges = self.edges.iter().skip(from).take_while(|(to, _)| *to == range).peekable();
        edges.peek().is_some() && edges.all(|(_, source)| *source != OTHER)
    }

    /// Adds the references of a part of the code. Decoding begins anew with each range, because
    /// something else may be between.
    fn add_code(&mut self, elf: &Elf, region: &Region, is_asked: &impl Fn(u32) -> bool) -> Option<()> {
        let mut at = region.start;
        let mut bytes = Vec::new();
        while at < region.end {
            let most = at.saturating_add(WINDOW).min(region.end);
            // A window ends where a range begins, if one does.
            let last = self.ranges.partition_point(|(start, _)| *start <= most).checked_sub(1);
            let cut = last.and_then(|last| self.ranges.get(last)).map(|(start, _)| *start);
            let end = cut.filter(|cut| *cut > at && most < region.end).unwrap_or(most);
            bytes.resize(usize::try_from(end - at).ok()?, 0);
            elf.read_at(region.offset + (at - region.start), &mut bytes).ok()?;
            self.add_window(&bytes, at, is_asked)?;
            at = end;
        }
        Some(())
    }

    fn add_window(&mut self, bytes: &[u8], address: u64, is_asked: &impl Fn(u32) -> bool) -> Option<()> {
        let end = address + bytes.len() as u64;
        let mut at = address;
        while at < end {
            let (own, next) = match self.find(at) {
                Some((number, start, size)) => (Some(number), start.saturating_add(size)),
                None => (None, u64::MAX),
            };
            let following = self.ranges.partition_point(|(start, _)| *start <= at);
            let following = self.ranges.get(following).map_or(u64::MAX, |(start, _)| *start);
            let next = next.min(following).min(end);
            let from = usize::try_from(at - address).ok()?;
            let piece = bytes.get(from..usize::try_from(next - address).ok()?)?;
            let mut edges = std::mem::take(&mut self.edges);
            references(piece, at, |reference, target| {
                let is_call = reference == Reference::Call;
                if !is_call && (at..next).contains(&target) {
                    return;
                }
                let Some((number, start, _)) = self.find(target) else { return };
                let source = match reference {
                    Reference::Jump => own.unwrap_or(OTHER),
                    Reference::Call => OTHER,
                    Reference::Address if target == start => OTHER,
                    Reference::Address => return,
                };
                // Loops are jumps to their own range. One that calls its own first instruction is a
                // function that calls itself.
                let counts = own != Some(number) || is_call && target == start;
                if counts && is_asked(number) {
                    edges.push((number, source));
                }
            });
            self.edges = edges;
            self.bound()?;
            at = next;
        }
        Some(())
    }

    /// Adds the addresses in data. Those of relocations are among them.
    fn add_data(
        &mut self,
        elf: &Elf,
        (offset, size): (u64, u64),
        is_asked: &impl Fn(u32) -> bool,
    ) -> Option<()> {
        let (Some((lowest, _)), Some((highest, _))) = (self.ranges.first(), self.ranges.last()) else {
            return Some(());
        };
        let code = *lowest..=*highest;
        let mut bytes = vec![0; usize::try_from(size.min(WINDOW)).ok()?];
        let mut at = 0;
        while at < size {
            let here = bytes.get_mut(..usize::try_from((size - at).min(WINDOW)).ok()?)?;
            elf.read_at(offset + at, here).ok()?;
            let words = here.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            let starts = words.filter(|word| code.contains(word));
            let found = |word: u64| self.ranges.binary_search_by_key(&word, |(start, _)| *start).ok();
            let found: Vec<u32> = starts.filter_map(found).filter_map(|n| u32::try_from(n).ok()).collect();
            self.edges
                .extend(found.into_iter().filter(|number| is_asked(*number)).map(|number| (number, OTHER)));
            self.bound()?;
            at += WINDOW;
        }
        Some(())
    }

    fn add_pads(&mut self, pads: &[LandingPad], is_asked: &impl Fn(u32) -> bool) {
        for pad in pads {
            let found = self.find(pad.pad).zip(self.find(pad.start));
            if let Some(((to, ..), (from, ..))) = found.filter(|((to, ..), (from, ..))| to != from)
                && is_asked(to)
            {
                self.edges.push((to, from));
            }
        }
    }

    fn bound(&mut self) -> Option<()> {
        if self.edges.len() < MAX_EDGES {
            return Some(());
        }
        self.settle();
        (self.edges.len() < MAX_EDGES / 2).then_some(())
    }

    fn settle(&mut self) {
        self.edges.sort_unstable();
        self.edges.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranges: the first jumps to the second, which has this code.
    fn jumped_to(code: &[u8]) -> Reach {
        let mut bytes = vec![0x90; 0x20];
        bytes[..2].copy_from_slice(&[0xeb, 0x0e]); // jmp 0x1010
        bytes[0x10..0x10 + code.len()].copy_from_slice(code);
        let mut reach = Reach { ranges: vec![(0x1000, 0x10), (0x1010, 0x10)], edges: Vec::new() };
        reach.add_window(&bytes, 0x1000, &|_| true).unwrap();
        reach.settle();
        reach
    }

    #[test]
    fn a_range_that_calls_its_own_beginning_is_a_function() {
        let is_part = |code: &[u8]| {
            let reach = jumped_to(code);
            assert_eq!(reach.is_only_jumped_to(1), reach.is_reached_only_from(1, &[0]));
            reach.is_only_jumped_to(1)
        };
        assert!(is_part(&[0xc3])); // ret
        assert!(!is_part(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3])); // call 0x1010; ret
        // What else leads there is a loop, or code that asks where it is.
        assert!(is_part(&[0x75, 0xfe, 0xc3])); // jne 0x1010; ret
        assert!(is_part(&[0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3])); // lea 0x1010(%rip),%rax; ret
        assert!(is_part(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3])); // call 0x1015; pop %rax; ret
    }
}
