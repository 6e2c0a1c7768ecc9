//! The functions of a file that a process maps, and where their probes can be: what is asked, and
//! the answer.
//!
//! The file and everything in it is a traced process's, so the reader reads it and decodes its code
//! ([`text`](::text)); what comes back here is checked again and bounded. A query selects
//! functions, because a list of all of them (two thousand in a C library, half a million in a
//! browser) costs more than the one that is probed.

use std::collections::HashSet;
use std::sync::Arc;

use diagnostics::glob::{glob_matches, is_glob};
use text::{EntryProbe, Kernel, ReturnSite, Step, Uses};

/// What is asked about the functions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionQuery {
    /// Which functions.
    pub select: Select,
    /// What uprobes of this kernel do.
    pub kernel: Kernel,
    /// The entry probe is looked for once for each of these, at most [`MAX_USES`].
    pub entries: Vec<Uses>,
    /// Also the places where the functions return.
    pub returns: bool,
    /// Also all instructions.
    pub instructions: bool,
}

/// The maximum number of [`FunctionQuery::entries`].
pub const MAX_USES: usize = 4;

impl FunctionQuery {
    /// Names, addresses and sizes of these functions. No code is read.
    pub fn names(select: Select) -> FunctionQuery {
        FunctionQuery {
            select,
            kernel: Kernel::UNKNOWN,
            entries: Vec::new(),
            returns: false,
            instructions: false,
        }
    }
}

/// Which functions of a file are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// None: only what is known of the file.
    Nothing,
    /// All.
    All,
    /// Those with a name that a pattern matches ([`FunctionName::matches`]).
    Matching(Vec<String>),
    /// Those that begin at these addresses or contain them. Where no symbol does, the tables of
    /// unwinders tell, and the function has no name.
    At(Vec<u64>),
}

/// A query that selects among names.
pub(crate) struct Selector<'a> {
    select: &'a Select,
    exact: HashSet<&'a str>,
    globs: Vec<&'a str>,
}

impl<'a> Selector<'a> {
    pub(crate) fn new(select: &'a Select) -> Selector<'a> {
        let mut selector = Selector { select, exact: HashSet::new(), globs: Vec::new() };
        if let Select::Matching(patterns) = select {
            selector.exact = patterns.iter().map(String::as_str).collect();
            selector.globs = selector.exact.iter().copied().filter(|p| p.is_empty() || is_glob(p)).collect();
        }
        selector
    }

    /// True if names decide.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(self.select, Select::Matching(_))
    }

    /// True if single addresses decide.
    pub(crate) fn is_by_address(&self) -> bool {
        matches!(self.select, Select::At(_))
    }

    pub(crate) fn matches_name(&self, name: &str) -> bool {
        self.exact.contains(name) || self.globs.iter().any(|glob| glob_matches(glob, name))
    }

    /// True if a name is asked for that only a part of a function has: with the ending of parts,
    /// and not as one of many.
    pub(crate) fn is_part_named(&self, name: &FunctionName) -> bool {
        let is_of_part =
            |form: &&str| [".cold", ".warm", ".__part"].iter().any(|ending| form.contains(ending));
        name.forms().filter(is_of_part).any(|form| self.exact.contains(form))
    }

    /// True if the addresses of a function decide that it is listed. `at` are the addresses of the
    /// query, in order.
    pub(crate) fn matches_range(&self, start: u64, size: u64) -> bool {
        match self.select {
            Select::Nothing => false,
            Select::All => true,
            Select::Matching(_) => false,
            Select::At(addrs) => {
                let end = start.saturating_add(size.max(1));
                addrs.get(addrs.partition_point(|a| *a < start)).is_some_and(|a| *a < end)
            }
        }
    }
}

/// A name of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionName {
    /// As in the symbol table, without a version.
    pub raw: String,
    /// As in the source, where that differs: `ns::f(int)`.
    pub demangled: Option<String>,
    /// The same without parameters and result, where that differs: `ns::f`.
    pub plain: Option<String>,
}

impl FunctionName {
    /// The name without parameters, as in the source.
    pub fn shown(&self) -> &str {
        self.plain.as_deref().or(self.demangled.as_deref()).unwrap_or(&self.raw)
    }

    /// All forms of the name.
    pub fn forms(&self) -> impl Iterator<Item = &str> {
        [Some(self.raw.as_str()), self.plain.as_deref(), self.demangled.as_deref()].into_iter().flatten()
    }

    /// True if the pattern matches one form of the name, or is equal to it: `operator[]` is no set
    /// of characters.
    pub fn matches(&self, pattern: &str) -> bool {
        self.forms().any(|form| form == pattern || glob_matches(pattern, form))
    }
}

/// Whose calling convention a function has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Calling {
    /// That of C.
    #[default]
    C,
    /// That of Go since 1.17, whose arguments and results are in registers of its own
    /// (ABIInternal).
    Go,
    /// It is in a file of Go, and its arguments are elsewhere or may be, and why.
    Unknown(Arc<str>),
}

/// A function of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its names, the preferred one first; the others are aliases (`malloc`, `__libc_malloc`).
    pub names: Vec<FunctionName>,
    /// The address of its first instruction in the file.
    pub address: u64,
    /// The offset of its first instruction in the file: where a user probe is placed.
    pub offset: u64,
    /// Its bytes. The table has no size for some functions; then it is the distance to the next
    /// one.
    pub size: u64,
    /// The symbol is that of a resolver, which the dynamic linker calls to choose an
    /// implementation. (`STT_GNU_IFUNC`.)
    pub indirect: bool,
    /// Why the implementation of an indirect function is not known. Address, size and places are
    /// those of the implementation if it is known, else those of the resolver.
    pub unresolved: Option<String>,
    /// Whose calling convention it has.
    pub calling: Calling,
    /// Why it is no function but a part of one, and has no probes.
    pub part: Option<String>,
    /// The entry probe for each of [`FunctionQuery::entries`], or why there is none.
    pub entries: Vec<Result<EntryProbe, String>>,
    /// Where it returns, or why there are no return probes. `None`: not asked.
    pub returns: Option<Result<Vec<ReturnSite>, String>>,
    /// It returns to the address on the stack, as far as that is known. Known if returns were asked
    /// for, as is the next.
    pub returns_by_the_stack: bool,
    /// It calls itself.
    pub calls_itself: bool,
    /// All its instructions, or why they are not certain. `None`: not asked.
    pub instructions: Option<Result<Vec<InstructionSite>, String>>,
}

impl Function {
    /// All forms of all its names.
    pub fn forms(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flat_map(FunctionName::forms)
    }

    /// The preferred name.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", FunctionName::shown)
    }

    /// True if the pattern matches one of the names: see [`FunctionName::matches`].
    pub fn matches(&self, pattern: &str) -> bool {
        self.names.iter().any(|name| name.matches(pattern))
    }
}

/// An instruction, as the place of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionSite {
    /// From the beginning of the function.
    pub offset: u32,
    /// What a probe there costs. `None`: there can be none.
    pub step: Option<Step>,
}

/// Where the names of functions were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymbolSource {
    /// Nowhere: the file has no symbols.
    #[default]
    None,
    /// The file's full table.
    Full,
    /// The table of a separate debug file.
    DebugFile,
    /// The compressed table in a stripped file (`.gnu_debugdata`).
    Compressed,
    /// The table for the dynamic linker: only exported functions.
    Dynamic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_any_form_of_a_name() {
        let name = FunctionName {
            raw: "_ZN2ns1fEi".into(),
            demangled: Some("ns::f(int)".into()),
            plain: Some("ns::f".into()),
        };
        for pattern in ["_ZN2ns*", "ns::f", "ns::f(int)", "ns::*", "*"] {
            assert!(name.matches(pattern), "{pattern}");
        }
        assert!(!name.matches("ns") && !name.matches("f"));
        assert_eq!(name.shown(), "ns::f");
        let index =
            FunctionName { raw: "_ZN1aixEi".into(), plain: Some("a::operator[]".into()), demangled: None };
        assert!(index.matches("a::operator[]"));
    }

    #[test]
    fn a_query_selects_by_name_or_by_address() {
        let select = Select::Matching(vec!["malloc".into(), "str*".into()]);
        let selector = Selector::new(&select);
        assert!(selector.is_by_name() && !selector.matches_range(0, 10));
        assert_eq!(
            ["malloc", "strlen", "mallocx", "xstr"].map(|n| selector.matches_name(n)),
            [true, true, false, false]
        );
        let select = Select::At(vec![0x10, 0x25]);
        let selector = Selector::new(&select);
        let selected = [(0x10, 4), (0x14, 4), (0x20, 5), (0x20, 6), (0x25, 0)];
        assert_eq!(
            selected.map(|(at, size)| selector.matches_range(at, size)),
            [true, false, false, true, true]
        );
    }
}
