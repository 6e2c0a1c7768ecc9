//! The file of a `freopen()`, which has text or packets.
//!
//! ```text
//!  new ──text──► text       what is printed is appended
//!   └──packet──► capture    packets are appended in pcapng; text goes to the initial output
//! ```
//!
//! The first thing that is printed to the file decides. Rows end with a newline, and the end of the
//! row whose clause called `freopen()` comes after it. So newlines alone decide nothing, and wait.
//! A file that has text stays a text file: it gets dumps of packets. A file that has packets gets
//! more of them, whoever wrote the first.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use events::Packet;

use crate::pcapng::{self, Section};

/// What a file has.
#[derive(Debug)]
enum Contents {
    /// Nothing was printed yet.
    New,
    /// Text.
    Text,
    /// Packets, and those that are not written yet.
    Capture(Section, Vec<u8>),
}

/// The file of the last `freopen()`.
#[derive(Debug)]
pub(crate) struct Redirection {
    pub(crate) file: File,
    contents: Contents,
}

/// The capture files that were written to, by device and inode: their length when they were left,
/// and their last section.
pub(crate) type Captures = HashMap<(u64, u64), (u64, Section)>;

impl Redirection {
    pub(crate) fn new(file: File) -> Redirection {
        Redirection { file, contents: Contents::New }
    }

    /// Nothing was printed that decides what the file has.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.contents, Contents::New)
    }

    pub(crate) fn is_capture(&self) -> bool {
        matches!(self.contents, Contents::Capture(..))
    }

    /// Text is printed to the file.
    pub(crate) fn set_text(&mut self) {
        self.contents = Contents::Text;
    }

    /// Makes a new file a capture if it can be one: it is empty, a capture, or a pipe.
    pub(crate) fn set_capture(&mut self, captures: &Captures) {
        let mut bytes = Vec::new();
        if let Some(section) = self.section(captures, &mut bytes) {
            self.contents = Contents::Capture(section, bytes);
        }
    }

    /// The section that packets are added to. If it begins here, its header is added to `bytes`.
    fn section(&self, captures: &Captures, bytes: &mut Vec<u8>) -> Option<Section> {
        let data = self.file.metadata().ok()?;
        if data.is_file() && data.len() > 0 {
            if let Some((length, section)) = captures.get(&(data.dev(), data.ino()))
                && *length == data.len()
            {
                return Some(section.clone());
            }
            // The descriptor is open for writing only.
            let mut beginning = [0; 4];
            let mut file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
            file.read_exact(&mut beginning).ok()?;
            pcapng::is_capture(&beginning).then_some(())?;
        } else if self.file.is_terminal() {
            return None;
        }
        Some(Section::begin(bytes))
    }

    /// Adds a packet. Returns false if the file is no capture.
    pub(crate) fn add(&mut self, packet: &Packet<'_>) -> bool {
        match &mut self.contents {
            Contents::Capture(section, bytes) => section.packet(bytes, packet),
            _ => return false,
        }
        true
    }

    /// Bytes of packets that are not written yet.
    pub(crate) fn waiting(&self) -> usize {
        match &self.contents {
            Contents::Capture(_, bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// Writes the packets.
    pub(crate) fn write_packets(&mut self) -> io::Result<()> {
        match &mut self.contents {
            Contents::Capture(_, bytes) => {
                let written = self.file.write_all(bytes);
                bytes.clear();
                written
            }
            _ => Ok(()),
        }
    }

    /// Empties the file.
    pub(crate) fn truncate(&mut self) -> io::Result<()> {
        self.contents = Contents::New;
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        Ok(())
    }

    /// Leaves the file, whose packets are written.
    pub(crate) fn leave(self, captures: &mut Captures) {
        if let (Contents::Capture(section, _), Ok(data)) = (self.contents, self.file.metadata())
            && data.is_file()
        {
            captures.insert((data.dev(), data.ino()), (data.len(), section));
        }
    }
}
