//! Whether a file's code unwinds through the frames of its callers.
//!
//! A uretprobe replaces return addresses, and an unwinder that meets such an address ends the
//! process. So a file counts as an unwinder where it cannot be excluded.
//!
//! A stripped file may have an unwinder that was linked into it (`-static-libgcc`). It finds the
//! tables of other files with the dynamic linker's help, so what the file imports tells. On a usual
//! machine few others import that.

use super::{Listing, SymbolKind, SymbolSource};

/// The function with which every exception is thrown.
const RAISE: &[u8] = b"_Unwind_RaiseException";

/// What an unwinder that is linked into a program asks the dynamic linker for: the tables of a
/// file.
const FINDERS: [&[u8]; 2] = [b"_dl_find_object", b"dl_iterate_phdr"];

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
        if self.own.is_of_go() {
            return Some("the Go runtime walks the stacks of its goroutines".into());
        }
        let raises = self.symbols.iter().any(|s| {
            let names = self.tables.get(usize::from(s.table));
            s.symbol.kind != SymbolKind::Label && names.is_some_and(|t| t.name(s.symbol.name) == RAISE)
        });
        if raises {
            return Some("it defines _Unwind_RaiseException".into());
        }
        // A table of all functions would have the unwinder.
        match self.file.source {
            SymbolSource::Full | SymbolSource::DebugFile | SymbolSource::Compressed => return None,
            SymbolSource::Dynamic | SymbolSource::None => {}
        }
        if !self.own.has_sections() {
            return Some("its sections are not known, so it may have an unwinder".into());
        }
        let imported =
            self.tables.iter().flat_map(|table| table.imports.iter().map(|name| table.name(*name)));
        if let Some(name) = imported.into_iter().find(|name| FINDERS.contains(name)) {
            let name = String::from_utf8_lossy(name);
            return Some(format!("it is stripped and calls {name}, so it may have an unwinder"));
        }
        let is_static = !self.own.has_interpreter() && self.own.has_section(b".eh_frame");
        (is_static && self.file.source == SymbolSource::None)
            .then(|| "it is linked statically and has no symbols, so it may have an unwinder".into())
    }
}
