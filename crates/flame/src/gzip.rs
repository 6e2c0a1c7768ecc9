//! The gzip format, without compression: pprof demands the format, and reads stored blocks as well.

/// Bytes of one stored block.
const BLOCK: usize = 0xffff;

/// The bytes as a gzip file.
pub(crate) fn stored(bytes: &[u8]) -> Vec<u8> {
    // Method 8, no flags, no time, no extra flags, Unix.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at_checked(BLOCK).unwrap_or((rest, &[]));
        rest = after;
        let length = block.len() as u16;
        out.push(u8::from(rest.is_empty()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(block);
        if rest.is_empty() {
            break;
        }
    }
    out.extend(crc32fast::hash(bytes).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}
