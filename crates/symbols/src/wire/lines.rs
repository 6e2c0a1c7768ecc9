//! Functions and source lines on the wire.

use debuginfo::SourceFrame;

use super::codec::{Reader, Writer};

/// Bytes of a function in a packet.
pub(crate) fn size(frame: &SourceFrame) -> usize {
    let text = |text: &Option<String>| 5 + text.as_ref().map_or(0, String::len);
    text(&frame.function) + text(&frame.file) + 5
}

impl Writer {
    pub(super) fn source_frame(&mut self, frame: &SourceFrame) {
        for text in [&frame.function, &frame.file] {
            self.bytes(text.as_deref().unwrap_or_default().as_bytes());
        }
        self.u32(frame.line.unwrap_or(0));
    }
}

impl Reader<'_> {
    pub(super) fn source_frame(&mut self) -> Option<SourceFrame> {
        let mut text = || Some(Some(self.text()?).filter(|text| !text.is_empty()));
        let (function, file) = (text()?, text()?);
        let line = self.u32()?;
        Some(SourceFrame { function, file, line: (line != 0).then_some(line) })
    }
}
