//! The table of names: the text of interned strings, by their numbers, for programs that serve
//! probes which come while a session runs. (A program whose probes are known when it is compiled
//! has the texts in a map of its own.)
//!
//! ```text
//!  map of maps, CHUNKS entries      chunk: an array of chunk_strings(storage) texts of storage bytes
//!    [0] ──► strings 0–511          zero behind the text
//!    [1] ──► strings 512–1023
//!    [2]     empty                  a chunk exists where a program needs one of its strings
//! ```
//!
//! The key decision: a text is written before the generation of the first row that names it
//! ([`crate::probe_table`]), and a number never gets another text. So no program reads a text that
//! is being written. The memory is mapped, because a system call that writes a map suppresses the
//! firings of its CPU meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

/// Chunks of a table.
pub const CHUNKS: u32 = 4096;

/// The number of strings of a chunk; a power of two. A chunk has about 128 KiB.
pub const fn chunk_strings(storage: u32) -> u32 {
    let fit = (128 << 10) / if storage == 0 { 1 } else { storage };
    if fit >= 512 {
        512
    } else if fit < 64 {
        64
    } else {
        1 << fit.ilog2()
    }
}

/// Writes the text of a string into the memory of its chunk. A text that is too long is truncated.
pub fn write(chunk: &[AtomicU64], storage: u32, number: u32, text: &[u8]) {
    let words = storage as usize / 8;
    let first = (number % chunk_strings(storage)) as usize * words;
    let Some(words) = chunk.get(first..first + words) else { return };
    let text = text.get(..(storage as usize).saturating_sub(1)).unwrap_or(text);
    for (word, bytes) in words.iter().zip(text.chunks(8)) {
        let mut all = [0; 8];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        word.store(u64::from_le_bytes(all), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_a_power_of_two_of_strings() {
        for storage in [8, 16, 256, 264, 512, 1000, 4096, 1 << 20] {
            assert!(chunk_strings(storage).is_power_of_two(), "{storage}");
        }
        assert_eq!([8, 256, 512, 520, 1 << 20].map(chunk_strings), [512, 512, 256, 128, 64]);
    }

    #[test]
    fn a_text_is_written_at_its_number_and_truncated_to_its_size() {
        let chunk: Vec<AtomicU64> = (0..512 * 2).map(|_| AtomicU64::new(0)).collect();
        write(&chunk, 16, 513, b"a name that is too long");
        write(&chunk, 16, 512, b"short");
        let bytes: Vec<u8> = chunk.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        assert_eq!(&bytes[..32], b"short\0\0\0\0\0\0\0\0\0\0\0a name that is \0");
        assert!(bytes[32..].iter().all(|b| *b == 0));
    }
}
