//! What descriptions ask for, and the functions of files among which it is looked for.
//!
//! Reading and decoding the functions of a file takes most of the time that a description takes. So
//! the descriptions of a program are announced before the first is asked for, and a file is read
//! once for all of them that mean the same process:
//!
//! ```text
//!  expected   pid1:libc::entry   pid1:libc::return
//!  asked         │                  │
//!                └─ reads both ──►  list ──► answers both, and is forgotten
//! ```
//!
//! A list is kept only as long as a description is expected that it answers, because those of a
//! browser have half a million functions.

use std::sync::Arc;

use diagnostics::{Tag, nearest};
use files::FileId;
use probes::{MatchError, Pattern, glob_matches, is_glob};
use symbols::{FileFunctions, Function, FunctionQuery, Processes, Select, SymbolSource};
use text::{Kernel, Refusal, Uses};

use super::object::Object;
use crate::process::kernel::running_kernel;

/// The function of a description that means addresses of the file.
pub(crate) const NO_FUNCTION: &str = "-";

/// In how many of the files that a description means similar names are looked for.
const FILES_SEARCHED: usize = 3;

/// What the clauses of an entry probe may notice, from nothing to everything. The place of the
/// probe depends on it.
pub(crate) fn uses() -> [Uses; 4] {
    let arguments = (0..6).fold(Uses::NOTHING, Uses::and_argument);
    [Uses::NOTHING, arguments, arguments.and_stack(), arguments.and_registers()]
}

/// The class of [`uses`] in which the return address is where it was at the function's entry.
pub(crate) const WITH_STACK: usize = 2;

/// What the name of a description asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) entry: bool,
    pub(crate) returns: bool,
    /// Every instruction whose offset matches.
    pub(crate) instructions: bool,
    /// The instruction at this offset.
    pub(crate) offset: Option<u64>,
}

impl Wanted {
    pub(crate) fn of(pattern: &Pattern) -> Result<Wanted, MatchError> {
        let name = pattern.name.as_str();
        let many = name.is_empty() || is_glob(name);
        let wrong = |message: String| {
            let help = match pattern.function == NO_FUNCTION {
                true => {
                    "without a function it is the address of an instruction in the file, in hexadecimal, without 0x"
                }
                false => "it is entry, return, or the offset of an instruction in hexadecimal, without 0x",
            };
            Err(MatchError::new(message).with_help(help).tagged(Tag::D_PROC_NAME))
        };
        if pattern.function == NO_FUNCTION {
            return match u64::from_str_radix(name, 16) {
                Ok(address) => {
                    Ok(Wanted { entry: false, returns: false, instructions: false, offset: Some(address) })
                }
                Err(_) => wrong(format!("\"{name}\" is no address of the file")),
            };
        }
        let mut wanted = Wanted {
            entry: glob_matches(name, "entry"),
            returns: glob_matches(name, "return"),
            instructions: many,
            offset: None,
        };
        if !wanted.entry && !wanted.returns && !many {
            wanted.offset = u64::from_str_radix(name, 16).ok();
            if wanted.offset.is_none() {
                return wrong(format!("\"{name}\" is no probe of a function"));
            }
        }
        Ok(wanted)
    }

    /// True if it asks for entries and returns alone. Instructions are many, and are listed for one
    /// description only.
    fn is_shared(&self) -> bool {
        !self.instructions && self.offset.is_none()
    }

    fn query(&self, select: Select) -> FunctionQuery {
        FunctionQuery {
            select,
            // The reader is told of another where the kernel matters: see `read`.
            kernel: Kernel::UNKNOWN,
            entries: if self.entry || self.returns { uses().to_vec() } else { Vec::new() },
            returns: self.returns,
            instructions: self.instructions || self.offset.is_some(),
        }
    }
}

/// A list that answers several descriptions.
struct SharedList {
    pid: u32,
    file: FileId,
    /// The descriptions that it still has to answer.
    patterns: Vec<Pattern>,
    list: Arc<FileFunctions>,
}

/// The functions of a file for one description.
pub(crate) struct Answer {
    list: Arc<FileFunctions>,
    /// The list has functions that others have asked for.
    is_shared: bool,
}

impl Answer {
    /// Where the names were found.
    pub(crate) fn source(&self) -> SymbolSource {
        self.list.source
    }

    /// Those that the description selects. What was given is forgotten, as far as no other
    /// description has it.
    pub(crate) fn functions(self, pattern: &Pattern) -> impl Iterator<Item = Function> {
        let all = !self.is_shared || pattern.function.is_empty();
        let functions = Arc::unwrap_or_clone(self.list).functions.into_iter();
        functions.filter(move |function| all || function.matches(&pattern.function))
    }
}

/// The lists of a program's descriptions.
#[derive(Default)]
pub(crate) struct Lists {
    expected: Vec<Pattern>,
    shared: Vec<SharedList>,
}

impl Lists {
    /// These descriptions will be asked for, and no others of those that were expected before.
    pub(crate) fn announce(&mut self, patterns: &[Pattern]) {
        self.expected = patterns.to_vec();
        self.shared.clear();
    }

    /// A description was asked for.
    pub(crate) fn answered(&mut self, pattern: &Pattern) {
        self.expected.retain(|expected| expected != pattern);
        self.shared.iter_mut().for_each(|shared| shared.patterns.retain(|expected| expected != pattern));
        self.shared.retain(|shared| !shared.patterns.is_empty());
    }

    /// The functions of a file that a description asks for. The error says in words why they are
    /// not known.
    pub(crate) fn functions(
        &mut self,
        object: &Object,
        (pattern, wanted): (&Pattern, Wanted),
        symbols: &mut Processes,
    ) -> Result<Answer, String> {
        let (pid, file) = (object.pid, object.text.file);
        let is_this = |s: &&SharedList| s.pid == pid && s.file == file && s.patterns.contains(pattern);
        if let Some(shared) = self.shared.iter().find(is_this) {
            return Ok(Answer { list: shared.list.clone(), is_shared: true });
        }
        if let Some(answer) = self.shared_list(object, (pattern, wanted), symbols) {
            return Ok(answer);
        }
        let select = match (pattern.function == NO_FUNCTION, wanted.offset) {
            (true, Some(address)) => Select::At(vec![address]),
            _ => selecting([pattern]),
        };
        let list = read(object, wanted.query(select), symbols)?;
        Ok(Answer { list: Arc::new(list), is_shared: false })
    }

    /// A list for this description and for those that are expected to look for functions of this
    /// file. Where it cannot be read, one for each may be.
    fn shared_list(
        &mut self,
        object: &Object,
        (pattern, wanted): (&Pattern, Wanted),
        symbols: &mut Processes,
    ) -> Option<Answer> {
        let is_other = |other: &&Pattern| {
            *other != pattern && other.provider == pattern.provider && object.is_called(&other.module)
        };
        let with_wanted = |other: &Pattern| Some((other.clone(), Wanted::of(other).ok()?));
        let mut others: Vec<(Pattern, Wanted)> =
            self.expected.iter().filter(is_other).filter_map(with_wanted).collect();
        others.retain(|(_, wanted)| wanted.is_shared());
        if others.is_empty() || !wanted.is_shared() {
            return None;
        }
        let all = others.iter().map(|(_, other)| *other).fold(wanted, |all, other| Wanted {
            entry: all.entry || other.entry,
            returns: all.returns || other.returns,
            ..all
        });
        let select = selecting(others.iter().map(|(other, _)| other).chain([pattern]));
        let list = Arc::new(read(object, all.query(select), symbols).ok()?);
        let patterns = others.into_iter().map(|(other, _)| other).chain([pattern.clone()]).collect();
        let (pid, file) = (object.pid, object.text.file);
        self.shared.push(SharedList { pid, file, patterns, list: list.clone() });
        Some(Answer { list, is_shared: true })
    }
}

/// Reads a list; once more for the running kernel if that may take probes at nops which others
/// refuse.
fn read(object: &Object, query: FunctionQuery, symbols: &mut Processes) -> Result<FileFunctions, String> {
    let list = symbols.functions_in(object.pid, &object.text, &query)?;
    if !list.functions.iter().any(|function| has_refused_nop(&function)) {
        return Ok(list);
    }
    match running_kernel() {
        Kernel::UNKNOWN => Ok(list),
        kernel => symbols.functions_in(object.pid, &object.text, &FunctionQuery { kernel, ..query }),
    }
}

/// True for the error that no file has a function of the description's name, where a similar name
/// would help.
pub(crate) fn wants_similar(error: &MatchError, function: &str) -> bool {
    let is_plain = !function.is_empty() && function != NO_FUNCTION && !is_glob(function);
    error.tag == Some(Tag::D_PROC_FUNC) && error.may_come && error.help.is_none() && is_plain
}

/// The function of these files whose name is most similar.
pub(crate) fn similar(function: &str, called: &[&Object], symbols: &mut Processes) -> Option<String> {
    let query = FunctionQuery::names(Select::All);
    // A file that cannot be read has no similar names.
    let read = |object: &&Object| symbols.functions_in(object.pid, &object.text, &query).ok();
    let of_file = |list: FileFunctions| {
        let functions = list.functions.into_iter();
        nearest(function, functions.flat_map(|f| f.names).map(|name| name.shown().to_owned()))
    };
    let lists = called.iter().take(FILES_SEARCHED).filter_map(read);
    nearest(function, lists.filter_map(of_file))
}

/// True if a probe was refused where a nop may be at which kernels differ. It has five or ten
/// bytes.
fn has_refused_nop(function: &Function) -> bool {
    let is_nop = |why: &String| *why == Refusal::RedZone.to_string();
    if function.entries.iter().any(|entry| entry.as_ref().is_err_and(is_nop)) {
        return true;
    }
    let Some(Ok(sites)) = &function.instructions else { return false };
    let ends = sites.iter().skip(1).map(|site| u64::from(site.offset)).chain([function.size]);
    let lengths = sites.iter().zip(ends).map(|(site, end)| (site, end.saturating_sub(site.offset.into())));
    lengths.into_iter().any(|(site, length)| site.step.is_none() && matches!(length, 5 | 10))
}

/// The functions that descriptions select by name.
fn selecting<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Select {
    let mut names: Vec<String> = patterns.into_iter().map(|pattern| pattern.function.clone()).collect();
    if names.iter().any(String::is_empty) {
        return Select::All;
    }
    names.sort_unstable();
    names.dedup();
    Select::Matching(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::read::read_objects;

    fn pattern(text: &str) -> Pattern {
        let fields: Vec<&str> = text.split(':').collect();
        Pattern::from_fields([fields[0], fields[1], fields[2], fields[3]]).unwrap()
    }

    /// Asks for a description in this process. The functions have these names.
    fn ask(lists: &mut Lists, symbols: &mut Processes, text: &str) -> (Arc<FileFunctions>, Vec<String>) {
        let pattern = pattern(text);
        let objects = read_objects(std::process::id(), symbols).unwrap();
        let libc = objects.iter().find(|o| o.is_called("libc")).unwrap();
        let wanted = Wanted::of(&pattern).unwrap();
        let answer = lists.functions(libc, (&pattern, wanted), symbols).unwrap();
        let list = answer.list.clone();
        let names = answer.functions(&pattern).map(|f| f.name().to_string()).collect();
        lists.answered(&pattern);
        (list, names)
    }

    #[test]
    fn descriptions_that_are_expected_share_a_list_until_the_last_is_answered() {
        let (mut lists, mut symbols) = (Lists::default(), Processes::default());
        let [first, second, third, other] =
            ["pid1:libc:abs:entry", "pid1:libc.so*:labs:return", "pid1::abs:1", "pid2:libc:atoi:entry"];
        lists.announce(&[first, second, third, other].map(pattern));
        let (one, names) = ask(&mut lists, &mut symbols, first);
        assert_eq!(names, ["abs"]);
        assert_eq!(one.functions.len(), 2);
        let (instructions, names) = ask(&mut lists, &mut symbols, third);
        assert_eq!((instructions.functions.len(), names), (1, vec!["abs".to_string()]));
        assert!(instructions.functions.iter().all(|f| f.instructions.is_some()));
        let (two, names) = ask(&mut lists, &mut symbols, second);
        assert!(Arc::ptr_eq(&one, &two) && lists.shared.is_empty());
        // It is shown by another of its names.
        assert_eq!(names.len(), 1);
        assert!(two.functions.iter().all(|f| f.returns.is_some() && f.entries.len() == uses().len()));
        let (again, _) = ask(&mut lists, &mut symbols, second);
        assert!(!Arc::ptr_eq(&one, &again));
    }

    #[test]
    fn a_list_of_all_functions_answers_a_name() {
        let (mut lists, mut symbols) = (Lists::default(), Processes::default());
        lists.announce(&["pid1:libc:abs:return", "pid1:libc::entry"].map(pattern));
        let (all, names) = ask(&mut lists, &mut symbols, "pid1:libc:abs:return");
        assert_eq!(names, ["abs"]);
        assert!(all.functions.len() > 1000);
        let (same, names) = ask(&mut lists, &mut symbols, "pid1:libc::entry");
        assert!(Arc::ptr_eq(&all, &same));
        assert_eq!(names.len(), all.functions.len());
    }
}
