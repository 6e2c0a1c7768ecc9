//! Many bytes of a record, which are unpacked when they are asked for.

use std::sync::Arc;

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// Bytes of the largest blob. The types of a kernel have some 6 MB, its symbols 5 MB.
pub(crate) const LARGEST: usize = 64 << 20;

/// How well is packed. The types of a kernel are half a percent smaller at the best level, which
/// takes six times as long.
const LEVEL: u8 = 6;

/// Many bytes.
#[derive(Clone)]
pub struct Blob(Form);

#[derive(Clone)]
enum Form {
    Plain(Arc<[u8]>),
    /// Deflated, and how many bytes they are then.
    Packed(Arc<[u8]>, u32),
}

impl Blob {
    /// These bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Blob {
        Blob(Form::Plain(bytes.into()))
    }

    /// Bytes that were packed. An error if nothing of that size can be in them.
    pub(crate) fn packed(bytes: &[u8], size: u32) -> Option<Blob> {
        (size as usize <= LARGEST).then(|| Blob(Form::Packed(bytes.into(), size)))
    }

    /// The bytes, unpacked; or why they cannot be.
    pub fn open(&self) -> Result<Vec<u8>, String> {
        match &self.0 {
            Form::Plain(bytes) => Ok(bytes.to_vec()),
            Form::Packed(bytes, size) => {
                let size = *size as usize;
                let opened =
                    decompress_to_vec_with_limit(bytes, size).map_err(|e| format!("it is damaged: {e}"))?;
                if opened.len() == size {
                    Ok(opened)
                } else {
                    Err("it is damaged: a part is too short".into())
                }
            }
        }
    }

    /// How many bytes they are, unpacked.
    pub(crate) fn size(&self) -> u64 {
        match &self.0 {
            Form::Plain(bytes) => bytes.len() as u64,
            Form::Packed(_, size) => u64::from(*size),
        }
    }

    /// The bytes as a file has them, and their size when they are unpacked.
    pub(crate) fn pack(&self) -> (Vec<u8>, u32) {
        match &self.0 {
            Form::Plain(bytes) => (compress_to_vec(bytes, LEVEL), bytes.len() as u32),
            Form::Packed(bytes, size) => (bytes.to_vec(), *size),
        }
    }
}

impl Default for Blob {
    fn default() -> Blob {
        Blob::new([])
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Form::Plain(bytes) => write!(f, "Blob({} bytes)", bytes.len()),
            Form::Packed(bytes, size) => write!(f, "Blob({size} bytes, packed in {})", bytes.len()),
        }
    }
}

impl PartialEq for Blob {
    /// Two are equal if they are when they are unpacked.
    fn eq(&self, other: &Blob) -> bool {
        self.open() == other.open()
    }
}

impl Eq for Blob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_unpacked_to_what_was_packed() {
        let bytes = b"to be, or not to be".repeat(100);
        let (packed, size) = Blob::new(bytes.clone()).pack();
        assert!(packed.len() < 100 && size as usize == bytes.len());
        let again = Blob::packed(&packed, size).unwrap();
        assert_eq!(again.open(), Ok(bytes));
        assert_eq!(again.pack(), (packed.clone(), size));
        // Sizes that are not those of the bytes.
        assert!(Blob::packed(&packed, size + 1).unwrap().open().unwrap_err().contains("damaged"));
        assert!(Blob::packed(&packed, size - 1).unwrap().open().unwrap_err().contains("damaged"));
        assert!(Blob::packed(&packed, u32::MAX).is_none());
        assert!(Blob::packed(b"\xff\xff", 7).unwrap().open().is_err());
    }
}
