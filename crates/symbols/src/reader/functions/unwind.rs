//! Whether a file's code unwinds through the frames of its callers.
//!
//! A uretprobe replaces return addresses, and an unwinder that meets such an address ends the process. So a file counts as an
//! unwinder where it cannot be excluded.

use super::{Listing, SymbolKind};

/// The function with which every exception is thrown.
const RAISE: &[u8] = b"_Unwind_RaiseException";

/// Libraries, by the beginnings of their names.
const LIBRARIES: [(&[u8], &str); 4] = [
    (b"libgcc_s.so", "libgcc_s throws exceptions through frames"),
    (b"libunwind", "libunwind walks frames"),
    (b"libstdc++.so", "libstdc++ throws exceptions"),
    (b"libc++abi.so", "libc++abi throws exceptions"),
];

impl Listing<'_> {
    /// Why the file's code may unwind.
    pub(super) fn unwinds(&self, name: &[u8]) -> Option<String> {
        if let Some((_, why)) = LIBRARIES.iter().find(|(library, _)| name.starts_with(library)) {
            return Some((*why).into());
        }
        let is_go = |section: &&[u8]| self.own.has_section(section);
        if [b".gopclntab".as_slice(), b".go.buildinfo", b".note.go.buildid"].iter().any(is_go) {
            return Some("the Go runtime walks the stacks of its goroutines".into());
        }
        let raises = self.symbols.iter().any(|s| {
            let names = self.tables.get(usize::from(s.table));
            s.symbol.kind != SymbolKind::Label && names.is_some_and(|t| t.name(s.symbol.name) == RAISE)
        });
        if raises {
            return Some("it defines _Unwind_RaiseException".into());
        }
        let is_static = !self.own.is_dynamic() && self.own.has_section(b".eh_frame");
        (is_static && self.file.source == super::SymbolSource::None)
            .then(|| "it is linked statically and has no symbols, so it may have an unwinder".into())
    }
}
