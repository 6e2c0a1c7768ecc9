//! The contents of sections, which may be compressed.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::{Elf, ElfError, Fields, read};

/// The flag of a compressed section.
const SHF_COMPRESSED: u64 = 1 << 11;
/// Compressed by zlib.
const ELFCOMPRESS_ZLIB: u64 = 1;
/// Compressed by zstd.
const ELFCOMPRESS_ZSTD: u64 = 2;
/// The largest window of zstd. Linkers write 8 MiB at most.
const MAX_WINDOW: u64 = 128 << 20;

impl Elf {
    /// Bytes of a section in the file.
    pub(crate) fn section_size(&self, name: &[u8]) -> u64 {
        self.section_named(name).map_or(0, |section| section.size)
    }

    /// The contents of a section, at most `most` bytes; empty if there is none.
    pub(crate) fn contents(&self, name: &[u8], most: u64) -> Result<Vec<u8>, ElfError> {
        let Some(section) = self.section_named(name) else { return Ok(Vec::new()) };
        if section.size > most {
            return Err(ElfError::Large(section.size));
        }
        let bytes = read(&*self.bytes, section.offset, section.size, most)?;
        if section.flags & SHF_COMPRESSED == 0 {
            return Ok(bytes);
        }
        let header = if self.is_64 { 24 } else { 12 };
        let (head, packed) = bytes.split_at_checked(header).ok_or(ElfError::Format)?;
        let fields = Fields(head);
        let (kind, size) = (fields.u32(0), fields.word(self.is_64, 8, 4));
        if size.saturating_add(section.size) > most {
            return Err(ElfError::Large(size));
        }
        // The size in the header is a claim: the output grows as it comes.
        let unpacked = match kind {
            ELFCOMPRESS_ZLIB => {
                miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, size as usize).ok()
            }
            ELFCOMPRESS_ZSTD => unpacked_zstd(packed, size, most),
            _ => return Err(ElfError::Compression),
        };
        unpacked.filter(|unpacked| unpacked.len() as u64 == size).ok_or(ElfError::Format)
    }

    /// The contents of `.gnu_debugaltlink`: the path of the file with the types that this one
    /// shares with others, and its build id.
    pub(crate) fn supplement_link(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let link = self.contents(b".gnu_debugaltlink", 64 << 10).ok()?;
        let end = link.iter().position(|b| *b == 0)?;
        let id = link.get(end + 1..)?.to_vec();
        (2..=64).contains(&id.len()).then(|| Some((link.get(..end)?.to_vec(), id)))?
    }
}

/// Unpacks a section of `size` bytes. A frame says how large a window the decoder keeps, besides
/// the output.
fn unpacked_zstd(mut packed: &[u8], size: u64, most: u64) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    // A section may be several frames.
    while !packed.is_empty() && (unpacked.len() as u64) < size {
        let left = size - unpacked.len() as u64;
        let window = MAX_WINDOW.min(most.saturating_sub(size));
        let mut frame = StreamingDecoder::new_with_max_window_size(&mut packed, window).ok()?;
        (&mut frame).take(left + 1).read_to_end(&mut unpacked).ok()?;
    }
    Some(unpacked)
}
