//! D libraries: source files that define constants, types, translators and inlines for all
//! programs.
//!
//! The files of `lib/` are embedded in the binary. Only files that define a name the program uses
//! are parsed ([`Libraries::load`]). An index maps each defined name to its file. The build script
//! generates it with a scanner that recognizes the start of definitions; a test compares it with
//! the parser. A new file in `lib/` needs no other change.
//!
//! Files of the user (`-L`) are always parsed, so that their errors are reported.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use diagnostics::{Diagnostic, Sink, SourceKind, SourceMap, Tag};

use crate::ast::{Item, Program};
use crate::{MacroEnv, ParseMode, TypeNames, derive, parse};

mod parts;
mod scan;

use parts::providers_and_clauses;
use scan::{definitions, is_word, probes};

// EMBEDDED: name and text of the files of `lib/`, sorted by name. INDEX: the sorted names they
// define, each with the number of its file and whether it is a type. PROBES: the probes that they
// declare, each row with their provider, their names in the source, whether there is a provider for
// each process, and the number of their file.
include!(concat!(env!("OUT_DIR"), "/libraries.rs"));

/// The text of a file in the binary.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Plain(&'static str),
    /// Compressed by the build script.
    Deflated(&'static [u8]),
}

/// The text of a file.
#[derive(Clone, Debug)]
enum Text {
    Plain(Cow<'static, str>),
    /// It is inflated where it is used.
    Deflated(&'static [u8], OnceLock<String>),
}

impl Text {
    fn get(&self) -> &str {
        match self {
            Text::Plain(text) => text,
            Text::Deflated(bytes, text) => text.get_or_init(|| {
                let inflated = miniz_oxide::inflate::decompress_to_vec(bytes).unwrap_or_default();
                String::from_utf8(inflated).unwrap_or_default()
            }),
        }
    }
}

/// A library file.
#[derive(Clone, Debug)]
struct File {
    /// The name in messages.
    name: String,
    text: Text,
    /// It is parsed even if the program uses none of its names.
    always: bool,
    loaded: bool,
}

impl File {
    /// The name in `#pragma D depends_on library`.
    fn base(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// A parsed library.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// The source text.
    pub program: Program,
    /// The whole library is checked, and not only the definitions that are used.
    pub always: bool,
}

/// A probe that a provider block declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared<'a> {
    /// The provider, or what begins the names of a family.
    pub provider: &'a str,
    /// The name in the source.
    pub probe: &'a str,
    /// There is a provider for each process: `provider name[pid]`.
    pub of_processes: bool,
    file: usize,
}

/// A name that a library defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Definition {
    file: usize,
    is_type: bool,
}

/// A probe that a file of the user declares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeclaredProbe {
    provider: String,
    probe: String,
    of_processes: bool,
    file: usize,
}

/// The name of a probe, of that in the source: `__` is `-`.
pub fn probe_name(source: &str) -> String {
    if source.contains("__") { source.replace("__", "-") } else { source.to_string() }
}

/// The libraries of a session.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    files: Vec<File>,
    /// The names that files of the user define.
    index: HashMap<String, Definition>,
    /// The probes that files of the user declare.
    probes: Vec<DeclaredProbe>,
    /// For each embedded file, whether a file of the user replaces it.
    replaced: Vec<bool>,
    parsed: Vec<Library>,
    /// The files whose providers of a process are parsed, with the process.
    instances: HashSet<(usize, u32)>,
}

impl TypeNames for Libraries {
    fn is_type(&self, name: &str) -> bool {
        self.find(name).is_some_and(|d| d.is_type)
    }
}

impl Libraries {
    /// The embedded libraries.
    pub fn embedded() -> Self {
        let file = |(name, stored): &(&str, Stored)| File {
            name: (*name).into(),
            text: match *stored {
                Stored::Plain(text) => Text::Plain(Cow::Borrowed(text)),
                Stored::Deflated(bytes) => Text::Deflated(bytes, OnceLock::new()),
            },
            always: false,
            loaded: false,
        };
        let files = EMBEDDED.iter().map(file).collect();
        Self { files, replaced: vec![false; EMBEDDED.len()], ..Self::default() }
    }

    fn find(&self, word: &str) -> Option<Definition> {
        if let Some(d) = self.index.get(word) {
            return Some(*d);
        }
        let at = INDEX.binary_search_by(|(w, ..)| (*w).cmp(word)).ok()?;
        let (_, file, is_type) = *INDEX.get(at)?;
        (self.replaced.get(file) == Some(&false)).then_some(Definition { file, is_type })
    }

    /// Adds a file, which is parsed `always` or only if it is needed. It replaces a file of the
    /// same name.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>, always: bool) {
        self.insert(File {
            name: name.into(),
            text: Text::Plain(Cow::Owned(text.into())),
            always,
            loaded: false,
        });
    }

    fn insert(&mut self, file: File) {
        let at = match self.files.iter().position(|f| f.base() == file.base()) {
            Some(at) => {
                self.index.retain(|_, d| d.file != at);
                self.probes.retain(|p| p.file != at);
                if let Some(replaced) = self.replaced.get_mut(at) {
                    *replaced = true;
                }
                at
            }
            None => self.files.len(),
        };
        definitions(file.text.get(), |word, is_type| {
            self.index.insert(word.to_string(), Definition { file: at, is_type });
        });
        probes(file.text.get(), |provider, probe, of_processes| {
            let (provider, probe) = (provider.into(), probe.into());
            self.probes.push(DeclaredProbe { provider, probe, of_processes, file: at });
        });
        match self.files.get_mut(at) {
            Some(old) => *old = file,
            None => self.files.push(file),
        }
    }

    /// True if there is a file of this name.
    pub fn has(&self, base: &str) -> bool {
        self.files.iter().any(|f| f.base() == base)
    }

    /// Every name that a library defines, for "did you mean".
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let embedded = INDEX.iter().filter(|(_, file, _)| self.replaced.get(*file) == Some(&false));
        self.index.keys().map(String::as_str).chain(embedded.map(|(word, ..)| *word))
    }

    /// The probes that provider blocks declare.
    pub fn probes(&self) -> impl Iterator<Item = Declared<'_>> {
        let embedded = PROBES.iter().filter(|(.., file)| self.replaced.get(*file) == Some(&false));
        let embedded = embedded.flat_map(|&(provider, names, of_processes, file)| {
            names.split(' ').map(move |probe| Declared { provider, probe, of_processes, file })
        });
        let own = self.probes.iter().map(|p| Declared {
            provider: &p.provider,
            probe: &p.probe,
            of_processes: p.of_processes,
            file: p.file,
        });
        embedded.chain(own)
    }

    /// What the user's files say of the stability of a provider, by `#pragma D attributes`:
    /// triples, and what they are of.
    pub fn provider_attributes<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.probes.iter().filter(move |p| p.provider == provider).map(|p| p.file);
        let mut files: Vec<usize> = files.collect();
        files.dedup();
        let lines = files.into_iter().filter_map(|at| self.files.get(at)).flat_map(|f| f.text.get().lines());
        lines.filter_map(move |line| {
            let mut words = line.strip_prefix('#')?.split_whitespace();
            let mut is = |word: &str| words.next() == Some(word);
            if !(is("pragma") && is("D") && is("attributes")) {
                return None;
            }
            let triple = words.next()?;
            (words.next()? == "provider" && words.next()? == provider).then_some(())?;
            Some((triple, words.next()?))
        })
    }

    /// The parsed libraries.
    pub fn parsed(&self) -> &[Library] {
        &self.parsed
    }

    /// Removes the parsed libraries for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&Library) -> bool) {
        self.parsed.retain(keep);
    }

    /// The same files, none of them parsed.
    #[must_use]
    pub fn unparsed(&self) -> Self {
        let files = self.files.iter().map(|file| File { loaded: false, ..file.clone() }).collect();
        let (index, probes, replaced) = (self.index.clone(), self.probes.clone(), self.replaced.clone());
        Self { files, index, probes, replaced, ..Self::default() }
    }

    /// Parses the files that `texts` need, directly or indirectly.
    pub fn load(&mut self, texts: &[&str], map: &mut SourceMap, macros: &MacroEnv, sink: &mut Sink) {
        self.parse_needed(texts, &|_| false, map, macros, sink);
    }

    /// Parses the files that declare probes for which `selects` returns true, and what these files
    /// need.
    pub fn load_probes(
        &mut self,
        selects: &dyn Fn(Declared<'_>) -> bool,
        map: &mut SourceMap,
        macros: &MacroEnv,
        sink: &mut Sink,
    ) {
        self.parse_needed(&[], selects, map, macros, sink);
    }

    /// Parses the providers of one process of the files that declare families: those with a probe
    /// for which `selects` returns true. In these files `$target` is the process.
    pub fn load_instances(
        &mut self,
        pid: u32,
        selects: &dyn Fn(Declared<'_>) -> bool,
        map: &mut SourceMap,
        macros: &MacroEnv,
        sink: &mut Sink,
    ) {
        let wanted: HashSet<usize> =
            self.probes().filter(|p| p.of_processes && selects(*p)).map(|p| p.file).collect();
        let mut wanted: Vec<usize> = wanted.into_iter().collect();
        wanted.sort_unstable();
        for at in wanted {
            let Some(file) = self.files.get(at) else { continue };
            if self.instances.insert((at, pid)) {
                let (name, text, always) = (file.name.clone(), file.text.clone(), file.always);
                self.instance(pid, (&name, text.get(), always), map, macros, sink);
            }
        }
    }

    fn instance(
        &mut self,
        pid: u32,
        (name, text, always): (&str, &str, bool),
        map: &mut SourceMap,
        macros: &MacroEnv,
        sink: &mut Sink,
    ) {
        let id = map.add(SourceKind::Library, name, text);
        let macros = MacroEnv { target: pid.into(), ..macros.clone() };
        let mut program = parse(map, id, ParseMode::Script, &macros, self, sink);
        program.items.retain(is_of_providers);
        for item in &mut program.items {
            if let Item::Provider(provider) = item {
                provider.name.text = format!("{}{pid}", provider.name.text);
            }
        }
        self.parsed.push(Library { program, always });
    }

    /// Parses the provider blocks and the clauses of the files that declare probes of a provider;
    /// of a family those of one process. Types and what else they need is not parsed: a list of
    /// probes needs none of it.
    pub fn load_provider(&mut self, provider: &str, pid: Option<u32>, map: &mut SourceMap, sink: &mut Sink) {
        let mut wanted = vec![false; self.files.len()];
        for file in self.probes().filter(|p| p.provider == provider).map(|p| p.file).collect::<Vec<_>>() {
            wanted.get_mut(file).into_iter().for_each(|wanted| *wanted = true);
        }
        for at in wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(at, _)| at) {
            let Some(file) = self.files.get_mut(at).filter(|file| pid.is_some() || !file.loaded) else {
                continue;
            };
            file.loaded = true;
            let (name, text) = (file.name.clone(), providers_and_clauses(file.text.get()));
            match pid {
                Some(pid) => self.instance(pid, (&name, &text, false), map, &MacroEnv::default(), sink),
                None => {
                    let id = map.add(SourceKind::Library, name, text);
                    let program = parse(map, id, ParseMode::Script, &MacroEnv::default(), self, sink);
                    self.parsed.push(Library { program, always: false });
                }
            }
        }
    }

    fn parse_needed(
        &mut self,
        texts: &[&str],
        selects: &dyn Fn(Declared<'_>) -> bool,
        map: &mut SourceMap,
        macros: &MacroEnv,
        sink: &mut Sink,
    ) {
        let mut wanted: Vec<bool> = self.files.iter().map(|f| f.always).collect();
        for Declared { file, .. } in self.probes().filter(|p| selects(*p)) {
            wanted.get_mut(file).into_iter().for_each(|wanted| *wanted = true);
        }
        // A file that declares a provider of a file of the user is parsed too: that is an error,
        // whichever of the two the program uses.
        let own: HashSet<(&str, usize)> = self.probes.iter().map(|p| (p.provider.as_str(), p.file)).collect();
        let conflicts = |d: &Declared<'_>| own.iter().any(|(p, file)| *p == d.provider && *file != d.file);
        if !own.is_empty() {
            for Declared { file, .. } in self.probes().filter(conflicts) {
                wanted.get_mut(file).into_iter().for_each(|wanted| *wanted = true);
            }
        }
        let mut todo: Vec<&str> = texts.to_vec();
        let chosen = self.files.iter().zip(&wanted).filter(|(_, wanted)| **wanted);
        todo.extend(chosen.map(|(file, _)| file.text.get()));
        while let Some(text) = todo.pop() {
            for word in words(text) {
                if let Some(d) = self.find(word)
                    && let (Some(wanted), Some(file)) = (wanted.get_mut(d.file), self.files.get(d.file))
                    && !std::mem::replace(wanted, true)
                {
                    todo.push(file.text.get());
                }
            }
        }
        self.parse_files(&wanted, map, macros, sink);
    }

    fn parse_files(&mut self, wanted: &[bool], map: &mut SourceMap, macros: &MacroEnv, sink: &mut Sink) {
        for at in wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(at, _)| at) {
            let Some(file) = self.files.get_mut(at) else { continue };
            if std::mem::replace(&mut file.loaded, true) {
                continue;
            }
            let (id, always) = (map.add(SourceKind::Library, &*file.name, file.text.get()), file.always);
            let mut program = parse(map, id, ParseMode::Script, macros, self, sink);
            Self::without_families(&mut program, sink);
            self.parsed.push(Library { program, always });
        }
    }

    /// Removes what is parsed again for each process: families, and the clauses and variables
    /// beside them.
    fn without_families(program: &mut Program, sink: &mut Sink) {
        let providers = || {
            program.items.iter().filter_map(|item| match item {
                Item::Provider(provider) => Some(provider),
                _ => None,
            })
        };
        if !providers().any(|p| p.of_processes) {
            return;
        }
        for provider in providers().filter(|p| !p.of_processes) {
            let message = format!(
                "provider {} is none for each process, as another of its file is",
                provider.name.text
            );
            let help = "declare it in a file of its own";
            sink.push(Diagnostic::new(Tag::D_PROV_INCOMPAT, provider.name.span, message).with_help(help));
        }
        program.items.retain(|item| !is_of_providers(item));
    }
}

/// True for provider blocks, clauses, and the variables of these.
fn is_of_providers(item: &Item) -> bool {
    matches!(item, Item::Provider(_) | Item::Clause(_)) || derive::local(item).is_some()
}

/// The words of a text that may be names, including those in comments and strings.
fn words(text: &str) -> HashSet<&str> {
    text.split(|c: char| !c.is_ascii() || !is_word(c as u8))
        .filter(|w| w.starts_with(|c: char| !c.is_ascii_digit()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ast::{StorageClass, TypeSpecKind};

    fn parsed(all: &mut Libraries) -> Vec<(String, Program)> {
        let (mut map, mut sink) = (SourceMap::default(), Sink::default());
        let texts: Vec<String> = all.files.iter().map(|f| f.text.get().to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        all.load(&texts, &mut map, &MacroEnv::default(), &mut sink);
        let errors: Vec<String> = sink.iter().map(|d| d.render(&map, true)).collect();
        assert!(errors.is_empty(), "{errors:?}");
        all.parsed.iter().map(|l| (map.name(l.program.file).to_string(), l.program.clone())).collect()
    }

    /// The definitions in a parsed program, which the scanner must find as well.
    fn defined(program: &Program, out: &mut BTreeSet<(String, bool)>) {
        for item in &program.items {
            match item {
                Item::Inline(i) => out.extend(i.declarator.name.iter().map(|n| (n.text.clone(), false))),
                Item::Declaration(d) => {
                    match &d.specs.ty.kind {
                        TypeSpecKind::Record(r) if r.members.is_some() => {
                            out.extend(r.tag.iter().map(|t| (t.text.clone(), false)));
                        }
                        TypeSpecKind::Enum(e) => {
                            out.extend(e.tag.iter().map(|t| (t.text.clone(), false)));
                            let list = e.enumerators.iter().flatten();
                            out.extend(list.map(|e| (e.name.text.clone(), false)));
                        }
                        _ => {}
                    }
                    if d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef) {
                        let names = d.declarators.iter().filter_map(|d| d.name.as_ref());
                        out.extend(names.map(|n| (n.text.clone(), true)));
                    }
                }
                _ => {}
            }
        }
    }

    fn scanned(all: &Libraries) -> BTreeSet<(String, bool)> {
        all.words().map(|word| (word.to_string(), all.is_type(word))).collect()
    }

    #[test]
    fn the_scanner_finds_the_definitions_that_the_parser_finds() {
        let mut all = Libraries::embedded();
        let mut expected = BTreeSet::new();
        parsed(&mut all).iter().for_each(|(_, program)| defined(program, &mut expected));
        // A name that is a tag and a type is found as a type.
        let types: Vec<String> =
            expected.iter().filter(|(_, is_type)| *is_type).map(|(w, _)| w.clone()).collect();
        types.into_iter().for_each(|word| _ = expected.remove(&(word, false)));
        assert_eq!(scanned(&all), expected);
        assert!(expected.len() > 300);
    }

    #[test]
    fn the_scanner_finds_definitions_of_every_kind_and_nothing_else() {
        let text = "/* inline int no = 1; */\n#pragma D depends_on library no.d\n\
            typedef struct box { int side; enum { no } kind; } box_t;\n\
            typedef unsigned long mask_t;\nstruct plain { int no; };\n\
            enum color { RED, GREEN = 1 + 2, BLUE };\n\
            inline string label[box_t *b, int no] = b->side == 1 ? \"a = {;\" : \"b\";\n\
            inline box_t *near = (box_t *)0;\n\
            translator box_t < struct other *T > { side = T->no; };\n\
            provider made { probe up(box_t *b); };\n\
            base:mod::name /args[0] == 1 && defined(struct no)/ { up(args[0]); this->no = 2; }\n\
            inline int after = 3;\n";
        let mut all = Libraries::default();
        all.add("dir/x.d", text, true);
        let mut expected = BTreeSet::new();
        parsed(&mut all).iter().for_each(|(_, program)| defined(program, &mut expected));
        assert_eq!(scanned(&all), expected);
        assert_eq!(expected.len(), 11, "{expected:?}");
        assert!(all.is_type("box_t") && !all.is_type("near") && all.has("x.d"));
    }

    #[test]
    fn only_libraries_that_define_a_used_name_are_parsed() {
        let files = |texts: &[&str]| -> Vec<String> {
            let (mut map, mut sink) = (SourceMap::default(), Sink::default());
            let mut all = Libraries::embedded();
            for text in texts {
                all.load(&[text], &mut map, &MacroEnv::default(), &mut sink);
            }
            all.parsed.iter().map(|l| map.name(l.program.file).to_string()).collect()
        };
        assert!(files(&["BEGIN { trace(pid); } // signals"]).is_empty());
        assert_eq!(files(&["syscall::kill:entry /arg1 == SIGKILL/ {}"]), ["signal.d"]);
        assert_eq!(files(&["BEGIN { trace(EINTR + SIGINT); }"]), ["errno.d", "signal.d"]);
        assert_eq!(
            files(&["BEGIN { trace(SIGINT); }", "END { trace(EINTR + SIGINT); }"]),
            ["signal.d", "errno.d"]
        );
    }

    #[test]
    fn the_scanner_finds_the_probes_that_provider_blocks_declare() {
        let text = "/*/ provider no { probe no(); }; */\ninline string quoted = \"a\\\"{ provider no {\";\n\
            provider made { probe up(int n); /* probe no(); */ probe go__down(); };\n\
            base:::one /1/ { up(1); probe(no); }\n# probe\nprovider other { probe p(); };\n\
            provider each[pid] { probe q(); };\n";
        let mut all = Libraries::default();
        all.add("x.d", text, true);
        let found: Vec<_> = all.probes().map(|p| (p.provider, p.probe, p.of_processes)).collect();
        let expected =
            [("made", "up", false), ("made", "go__down", false), ("other", "p", false), ("each", "q", true)];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_scanner_finds_the_clauses_and_provider_blocks_that_the_parser_finds() {
        let shape = |program: &Program| -> Vec<String> {
            let items = program.items.iter().filter(|i| matches!(i, Item::Clause(_) | Item::Provider(_)));
            items.map(|item| Program { items: vec![item.clone()], ..program.clone() }.dump()).collect()
        };
        let mut whole = Libraries::embedded();
        let wanted = vec![true; whole.files.len()];
        let (mut map, mut sink) = (SourceMap::default(), Sink::default());
        whole.parse_files(&wanted, &mut map, &MacroEnv::default(), &mut sink);
        let mut probes = 0;
        for library in &whole.parsed {
            let base = map.name(library.program.file).to_string();
            let file = whole.files.iter().find(|f| f.base() == base).unwrap();
            let mut part = Libraries::default();
            part.add("x.d", providers_and_clauses(file.text.get()), true);
            let (mut map, mut sink) = (SourceMap::default(), Sink::default());
            part.parse_files(&[true], &mut map, &MacroEnv::default(), &mut sink);
            let part: Vec<String> = part.parsed.iter().flat_map(|l| shape(&l.program)).collect();
            assert_eq!(part, shape(&library.program), "{base}");
            probes += part.len();
        }
        assert!(probes > 30, "{probes}");
    }

    #[test]
    fn a_file_of_the_user_replaces_the_embedded_file_of_the_same_name() {
        let mut all = Libraries::embedded();
        all.add("/home/me/errno.d", "inline int EMINE = 1;", true);
        assert!(all.find("EINTR").is_none() && all.find("EMINE").is_some());
        assert_eq!(all.files.len(), EMBEDDED.len());
    }
}
