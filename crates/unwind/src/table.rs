//! The rows of a file, by pages of its code.

use plane::unwind::{CHUNK_WORDS, PAGE, PAGE_SHIFT, Rule};

/// The rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The page of the first address.
    first: u64,
    /// The number of rows of each page. A page without rows has no code.
    counts: Vec<u16>,
    /// The rows of all pages. The first row of a page is for its first byte.
    rows: Vec<u64>,
}

/// Where a part of a table is in the kernel: the number of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first word.
    pub word: u32,
    /// The number of words.
    pub words: u32,
}

/// The most words of one part of a table.
const PART: usize = (CHUNK_WORDS / 2) as usize;

impl Table {
    /// The address of the first page.
    pub fn base(&self) -> u64 {
        self.first << PAGE_SHIFT
    }

    /// The number of pages.
    pub fn pages(&self) -> u32 {
        self.counts.len() as u32
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rule at an address: what a program finds.
    pub fn find(&self, addr: u64) -> Rule {
        let found = || {
            let page = usize::try_from((addr >> PAGE_SHIFT).checked_sub(self.first)?).ok()?;
            let before = self.counts.get(..page)?.iter().map(|n| usize::from(*n)).sum::<usize>();
            let rows = self.rows.get(before..before + usize::from(*self.counts.get(page)?))?;
            let low = addr & (PAGE - 1);
            rows.get(rows.partition_point(|row| row & (PAGE - 1) <= low).checked_sub(1)?)
        };
        found().map_or(Rule::NONE, |row| Rule::of_row(*row))
    }

    /// The sizes of the parts of a table in words: each is in one chunk. The first has the pages.
    pub fn parts(&self) -> Vec<u32> {
        let mut parts = vec![self.counts.len()];
        let mut last = self.counts.len();
        for count in self.counts.iter().map(|n| usize::from(*n)) {
            if last + count > PART {
                parts.push(0);
                last = 0;
            }
            last += count;
            if let Some(part) = parts.last_mut() {
                *part += count;
            }
        }
        parts.into_iter().map(|words| words as u32).collect()
    }

    /// The words of the parts, which are at these places.
    pub fn words(&self, places: &[Place]) -> Vec<Vec<u64>> {
        let mut pages = Vec::new();
        let mut parts: Vec<Vec<u64>> = places.iter().map(|_| Vec::new()).collect();
        let (mut part, mut rest) = (0, &self.rows[..]);
        // The pages are before the rows of the first part.
        let mut used = self.counts.len();
        for count in self.counts.iter().map(|n| usize::from(*n)) {
            if used + count > PART {
                (part, used) = (part + 1, 0);
            }
            let (Some(place), Some((rows, more))) = (places.get(part), rest.split_at_checked(count)) else {
                break;
            };
            pages.push((u64::from(place.word) + used as u64) | ((count as u64) << 32));
            if let Some(words) = parts.get_mut(part) {
                words.extend_from_slice(rows);
            }
            (used, rest) = (used + count, more);
        }
        if let Some(first) = parts.first_mut() {
            first.splice(..0, pages);
        }
        parts
    }

    /// The table in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let head = [self.first, self.counts.len() as u64].into_iter().flat_map(u64::to_le_bytes);
        let counts = self.counts.iter().flat_map(|n| n.to_le_bytes());
        head.chain(counts).chain(self.rows.iter().flat_map(|row| row.to_le_bytes())).collect()
    }

    /// A table that was [encoded](Table::encode); `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Table> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (first, pages) = (word(0)?, usize::try_from(word(8)?).ok()?);
        let (counts, rows) = rest.split_at_checked(pages.checked_mul(2)?)?;
        let counts = counts.as_chunks::<2>().0.iter().map(|n| u16::from_le_bytes(*n));
        let (rows, []) = rows.as_chunks::<8>() else { return None };
        let rows = rows.iter().map(|row| u64::from_le_bytes(*row));
        let table = Table { first, counts: counts.collect(), rows: rows.collect() };
        let all = table.counts.iter().map(|n| usize::from(*n)).sum::<usize>();
        let sane = all == table.rows.len()
            && table.counts.iter().all(|n| u64::from(*n) <= PAGE)
            && pages <= PART
            && first.checked_add(pages as u64).is_some_and(|end| end <= u64::MAX >> PAGE_SHIFT);
        sane.then_some(table)
    }
}

/// A rule from one address to another.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    rule: Rule,
}

/// The last page.
const LAST_PAGE: u64 = !(PAGE - 1);

/// Collects the rules of a file.
#[derive(Debug, Default)]
pub struct Builder {
    spans: Vec<Span>,
}

impl Builder {
    /// Adds a rule for the addresses from `start` to `end` (exclusive).
    pub fn add(&mut self, start: u64, end: u64, rule: Rule) {
        // No code is in the last page of all addresses, behind which no address is.
        if start >= end || end > LAST_PAGE {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.end == start && last.rule == rule => last.end = end,
            _ => self.spans.push(Span { start, end, rule }),
        }
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The table. `None` if the code is larger than a table can be.
    pub fn finish(mut self) -> Option<Table> {
        // Stable: of two rules for an address, that which was added first remains.
        self.spans.sort_by_key(|span| span.start);
        let mut table = Table::default();
        let (Some(first), Some(last)) = (self.spans.first(), self.spans.iter().map(|s| s.end).max()) else {
            return Some(table);
        };
        table.first = first.start >> PAGE_SHIFT;
        let pages = usize::try_from(((last - 1) >> PAGE_SHIFT) - table.first + 1).ok();
        let pages = pages.filter(|pages| *pages <= PART)?;
        table.counts = vec![0; pages];
        let mut at = table.first << PAGE_SHIFT;
        for span in &self.spans {
            let start = span.start.max(at);
            if start > at {
                table.fill(at, start, Rule::NONE);
            }
            if span.end > start {
                table.fill(start, span.end, span.rule);
                at = span.end;
            } else {
                at = at.max(start);
            }
        }
        // The rest of the last page.
        table.fill(at, (at | (PAGE - 1)).saturating_add(1), Rule::NONE);
        Some(table)
    }
}

impl Table {
    /// Gives the addresses a rule. They follow those of the call before.
    fn fill(&mut self, start: u64, end: u64, rule: Rule) {
        let mut at = start;
        while at < end {
            let page = (at >> PAGE_SHIFT) - self.first;
            let low = (at & (PAGE - 1)) as u16;
            // Where nothing is known, only the end of a rule needs a row, and pages in between
            // none.
            if let Some(count) = self.counts.get_mut(page as usize) {
                // The last row of another page says nothing of this one.
                let before =
                    self.rows.last().filter(|_| *count > 0).map_or(Rule::NONE, |row| Rule::of_row(*row));
                if rule != before {
                    if *count == 0 && low > 0 {
                        // The first row of a page is for its first byte.
                        self.rows.push(Rule::NONE.row(0));
                        *count += 1;
                    }
                    self.rows.push(rule.row(low));
                    *count += 1;
                }
            }
            at = (at | (PAGE - 1)).saturating_add(1).min(end);
        }
    }
}
