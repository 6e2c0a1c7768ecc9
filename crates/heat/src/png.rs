//! A grey picture as PNG: darkness of cells.

use std::fmt::Write as _;

/// A picture of bytes, rows from the top, 0 is white and 255 is black.
pub(crate) fn grey(width: u32, height: u32, dark: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(dark.len() + height as usize);
    for row in dark.chunks(width.max(1) as usize) {
        // No filter.
        raw.push(0);
        raw.extend(row.iter().map(|dark| 255 - dark));
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // Eight bits of grey, the one compression and filter there is, not interlaced.
    header.extend([8, 0, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &header);
    chunk(&mut out, b"IDAT", &miniz_oxide::deflate::compress_to_vec_zlib(&raw, 6));
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let from = out.len();
    out.extend(kind);
    out.extend(data);
    let sum = crc32fast::hash(out.get(from..).unwrap_or_default());
    out.extend(sum.to_be_bytes());
}

/// Bytes as base64.
pub(crate) fn base64(out: &mut String, bytes: &[u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len() * 4 / 3 + 4);
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            let letter = LETTERS.get((all >> (18 - 6 * n) & 63) as usize).copied().unwrap_or(b'A');
            out.push(if n <= three.len() { letter.into() } else { '=' });
        }
    }
}

/// A picture as a link that has it.
pub(crate) fn link(out: &mut String, png: &[u8]) {
    let _ = write!(out, "data:image/png;base64,");
    base64(out, png);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = String::new();
            base64(&mut out, bytes.as_bytes());
            assert_eq!(out, text);
        }
    }
}
