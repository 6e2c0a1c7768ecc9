//! Finding the events in a core file.
//!
//! The memory has no address that is known, and no symbol: it is looked for. Its mapping is a
//! segment of its own as a rule, so the begins of all segments are looked at first, which takes one
//! read for each. Another mapping beside it can be joined with it by the kernel: then every page is
//! looked at, of at most [`MOST`] bytes. What is read of the events has at most [`LONGEST`] bytes.

use crate::core::{CoreError, ReadAt, Segment, read_most, segments};
use crate::head::{HEAD, Head};

/// Memory begins at a page, and every machine has pages of a multiple of this.
const PAGE: u64 = 4096;
/// Bytes of memory that are looked through page by page.
const MOST: u64 = 64 << 30;
/// The longest events that are read.
const LONGEST: u64 = 1 << 30;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What was found in a core file.
#[derive(Debug)]
pub struct CoreEvents {
    /// What the memory says of its events.
    pub head: Head,
    /// The events: a stream for [`events::Reader`].
    pub events: Vec<u8>,
    /// Why not all of the events are there, or not as they were written. What is there can be
    /// printed all the same.
    pub wrong: Option<CoreError>,
}

/// What is at a place where a head may be.
enum Place {
    Nothing,
    /// Memory to which nothing was written.
    Blank,
    Events(Box<CoreEvents>),
}

fn look(from: &dyn ReadAt, segment: Segment, at: u64) -> Result<Place, CoreError> {
    let Some(offset) = segment.offset.checked_add(at) else { return Ok(Place::Nothing) };
    let mut bytes = [0; HEAD];
    let length = read_most(from, &mut bytes, offset)?;
    let Some(head) = bytes.get(..length).and_then(Head::read) else { return Ok(Place::Nothing) };
    if head.length == 0 {
        return Ok(Place::Blank);
    }
    // Numbers that contradict each other: not what a session has written.
    let fits = |length: u64| length.checked_add(HEAD as u64).is_some_and(|end| end <= head.size);
    if !fits(head.length) || head.length > LONGEST {
        return Ok(Place::Nothing);
    }
    let in_segment = segment.length.saturating_sub(at).saturating_sub(HEAD as u64);
    let Some(begin) = offset.checked_add(HEAD as u64) else { return Ok(Place::Nothing) };
    // The buffer grows as bytes arrive, and not by what the head says.
    let mut events = Vec::new();
    let wanted = head.length.min(in_segment);
    while (events.len() as u64) < wanted {
        let old = events.len();
        let more = (wanted - old as u64).min(CHUNK as u64) as usize;
        events.resize(old + more, 0);
        let got =
            read_most(from, events.get_mut(old..).unwrap_or_default(), begin.saturating_add(old as u64))?;
        events.truncate(old + got);
        if got < more {
            break;
        }
    }
    let there = events.len() as u64;
    let wrong = match there < head.length {
        true => Some(CoreError::Truncated(head.length, there)),
        false => (crc32fast::hash(&events) != head.crc).then_some(CoreError::Damaged),
    };
    Ok(Place::Events(Box::new(CoreEvents { head, events, wrong })))
}

/// What was found so far.
#[derive(Default)]
struct Search {
    best: Option<Box<CoreEvents>>,
    /// There is memory to which nothing was written.
    blank: bool,
    /// The file ends before some of its memory.
    incomplete: bool,
}

impl Search {
    fn take(&mut self, place: Place) {
        // Whole ones are better, then newer ones.
        let rank = |found: &CoreEvents| (found.wrong.is_none(), found.head.wall);
        match place {
            Place::Nothing => {}
            Place::Blank => self.blank = true,
            Place::Events(found) => {
                if self.best.as_ref().is_none_or(|best| rank(best) < rank(&found)) {
                    self.best = Some(found);
                }
            }
        }
    }

    /// Calls a function for each segment.
    fn walk(
        &mut self,
        from: &dyn ReadAt,
        each: &mut dyn FnMut(&mut Search, Segment) -> Result<(), CoreError>,
    ) -> Result<(), CoreError> {
        match segments(from, |segment| each(self, segment)) {
            Err(CoreError::Incomplete) => self.incomplete = true,
            other => other?,
        }
        Ok(())
    }

    /// Looks at every page of a segment, at most so many bytes.
    fn pages(&mut self, from: &dyn ReadAt, segment: Segment, most: &mut u64) -> Result<(), CoreError> {
        let length = segment.length.min(*most);
        *most -= length;
        let mut buffer = vec![0; length.min(CHUNK as u64) as usize];
        let mut at = 0;
        while at < length {
            let more = (length - at).min(CHUNK as u64);
            let Some(offset) = segment.offset.checked_add(at) else { break };
            let got = read_most(from, buffer.get_mut(..more as usize).unwrap_or_default(), offset)?;
            let pages = buffer.get(..got).unwrap_or_default().chunks(PAGE as usize);
            for (n, _) in pages.enumerate().filter(|(_, page)| Head::read(page).is_some()) {
                self.take(look(from, segment, at + n as u64 * PAGE)?);
            }
            if (got as u64) < more {
                self.incomplete = true;
                break;
            }
            at += more;
        }
        Ok(())
    }
}

/// Finds the last events of a session in a core file. Of several sessions, those that were written
/// last.
pub fn find(from: &dyn ReadAt) -> Result<CoreEvents, CoreError> {
    let mut search = Search::default();
    search.walk(from, &mut |search, segment| {
        search.take(look(from, segment, 0)?);
        Ok(())
    })?;
    if search.best.is_none() {
        let mut most = MOST;
        search.walk(from, &mut |search, segment| search.pages(from, segment, &mut most))?;
    }
    match search {
        Search { best: Some(found), .. } => Ok(*found),
        Search { blank: true, .. } => Err(CoreError::NotWritten),
        Search { incomplete: true, .. } => Err(CoreError::Incomplete),
        _ => Err(CoreError::NoMemory),
    }
}
