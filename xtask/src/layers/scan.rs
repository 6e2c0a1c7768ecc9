//! What a source file says about modules: which it declares, what it imports, which paths it uses.
//!
//! This is not a parser of Rust. It splits the text into identifiers and punctuation, without
//! comments and the content of strings, skips items behind `#[cfg(test)]`, and then finds three
//! forms: `mod NAME`, `use TREE`, and paths. That is enough, because imports are written by hand
//! and formatted by rustfmt.

/// An import of one name: `use a::b` has the name `b`, `use a::b as c` the name `c`, and a glob the
/// name `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) name: String,
    /// `pub use`, in any form.
    pub(super) exported: bool,
    pub(super) line: usize,
}

/// A path in code, outside of `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    /// It is called, or something behind `::` follows that is no identifier.
    pub(super) called: bool,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) imports: Vec<Import>,
    pub(super) paths: Vec<Path>,
    /// The modules that it declares in other files.
    pub(super) modules: Vec<String>,
    /// Those of them that are compiled for tests only, with their file where an attribute names it.
    pub(super) tests: Vec<(String, Option<String>)>,
    /// Names of the items that it defines.
    pub(super) items: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Colons,
    Sign(char),
}

/// Splits the text into tokens, each with its line.
fn tokens(text: &str) -> Vec<(Token, usize)> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut out, mut i, mut line) = (Vec::new(), 0, 1);
    while i < chars.len() {
        let c = at(i);
        match c {
            '\n' => {
                line += 1;
                i += 1;
            }
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 1),
                        ('*', '/') => (depth, i) = (depth - 1, i + 1),
                        ('\n', _) => line += 1,
                        _ => {}
                    }
                    i += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            '"' => {
                let (start, first) = (i + 1, line);
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    line += usize::from(at(i) == '\n');
                    i += 1 + usize::from(at(i) == '\\');
                }
                out.push((Token::Text(chars[start..i.min(chars.len())].iter().collect()), first));
                i += 1;
            }
            // A character; anything else behind an apostrophe is a lifetime.
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => {
                i += 2 + usize::from(at(i + 1) == '\\');
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            '\'' => i += 1,
            ':' if at(i + 1) == ':' => {
                out.push((Token::Colons, line));
                i += 2;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let start = i;
                while at(i).is_alphanumeric() || at(i) == '_' {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let hashes = (i..).take_while(|n| at(*n) == '#').count();
                if matches!(word.as_str(), "r" | "br") && at(i + hashes) == '"' {
                    i += hashes + 1;
                    while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|n| at(i + n) == '#')) {
                        line += usize::from(at(i) == '\n');
                        i += 1;
                    }
                    i += hashes + 1;
                } else {
                    out.push((Token::Word(word), line));
                }
            }
            c => {
                if !c.is_whitespace() {
                    out.push((Token::Sign(c), line));
                }
                i += 1;
            }
        }
    }
    out
}

/// Scans a file.
pub(super) fn scan(text: &str) -> Scan {
    let tokens = tokens(text);
    Scanner { tokens: &tokens, at: 0, out: Scan::default() }.run()
}

struct Scanner<'a> {
    tokens: &'a [(Token, usize)],
    at: usize,
    out: Scan,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(t, _)| t)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.peek(ahead)? {
            Token::Word(w) => Some(w),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, sign: char) -> bool {
        self.peek(ahead) == Some(&Token::Sign(sign))
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |(_, line)| *line)
    }

    fn run(mut self) -> Scan {
        let mut exported = false;
        while self.at < self.tokens.len() {
            if self.is(0, '#') {
                self.attributes();
                continue;
            }
            match self.word(0) {
                Some("pub") => {
                    exported = true;
                    self.at += 1;
                    if self.is(0, '(') {
                        self.skip_group('(', ')');
                    }
                    continue;
                }
                Some("use") => {
                    self.at += 1;
                    self.tree(&mut Vec::new(), exported);
                }
                Some("mod") if self.is(2, ';') => {
                    self.out.modules.extend(self.word(1).map(String::from));
                    self.at += 3;
                }
                Some("fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" | "mod") => {
                    self.out.items.extend(self.word(1).map(String::from));
                    self.at += 1 + usize::from(self.word(1).is_some());
                }
                Some(_) => self.path(),
                None => self.at += 1,
            }
            exported = false;
        }
        self.out
    }

    /// Attributes in front of an item. An item for tests only is skipped.
    fn attributes(&mut self) {
        let (mut test, mut file) = (false, None);
        while self.is(0, '#') {
            self.at += 1 + usize::from(self.is(1, '!'));
            let start = self.at;
            self.skip_group('[', ']');
            let words: Vec<&Token> = self.tokens[start..self.at].iter().map(|(t, _)| t).collect();
            let has = |i: usize, w: &str| matches!(words.get(i), Some(Token::Word(found)) if found == w);
            test |= has(1, "cfg") && has(3, "test");
            if let (true, Some(Token::Text(path))) = (has(1, "path"), words.get(3)) {
                file = Some(path.clone());
            }
        }
        if !test {
            return;
        }
        if self.word(0) == Some("pub") {
            self.at += 1;
            if self.is(0, '(') {
                self.skip_group('(', ')');
            }
        }
        if self.word(0) == Some("mod") && self.is(2, ';') {
            self.out.tests.extend(self.word(1).map(|name| (name.to_owned(), file)));
        }
        // To the end of the item: a semicolon, or the end of its braces.
        while self.at < self.tokens.len() {
            if self.is(0, '{') {
                self.skip_group('{', '}');
                break;
            }
            self.at += 1;
            if self.is(0, ';') {
                self.at += 1;
                break;
            }
        }
    }

    fn skip_group(&mut self, open: char, close: char) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            depth += i32::from(self.is(0, open)) - i32::from(self.is(0, close));
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
    }

    /// The tree of a `use`, behind `prefix`.
    fn tree(&mut self, prefix: &mut Vec<String>, exported: bool) {
        let before = prefix.len();
        let line = self.line();
        loop {
            match self.peek(0) {
                Some(Token::Word(w)) => {
                    prefix.push(w.clone());
                    self.at += 1;
                }
                Some(Token::Sign('{')) => {
                    self.at += 1;
                    while self.at < self.tokens.len() && !self.is(0, '}') {
                        self.tree(prefix, exported);
                        self.at += usize::from(self.is(0, ','));
                    }
                    self.at += 1;
                    prefix.truncate(before);
                    return;
                }
                Some(Token::Sign('*')) => {
                    self.at += 1;
                    self.import(prefix.clone(), "*", exported, line);
                    prefix.truncate(before);
                    return;
                }
                _ => {
                    self.at += 1;
                    prefix.truncate(before);
                    return;
                }
            }
            if self.peek(0) == Some(&Token::Colons) {
                self.at += 1;
                continue;
            }
            let mut path = prefix.clone();
            if path.last().is_some_and(|w| w == "self") && path.len() > 1 {
                path.pop();
            }
            let mut name = path.last().cloned().unwrap_or_default();
            if self.word(0) == Some("as") {
                name = self.word(1).unwrap_or("_").to_owned();
                self.at += 2;
            }
            self.import(path, &name, exported, line);
            prefix.truncate(before);
            return;
        }
    }

    fn import(&mut self, path: Vec<String>, name: &str, exported: bool, line: usize) {
        self.out.imports.push(Import { path, name: name.to_owned(), exported, line });
    }

    /// A path, or a single word.
    fn path(&mut self) {
        let line = self.line();
        // A word behind a dot is a member, and one behind `::` continues something that is no path
        // of words.
        let member = self.at > 0
            && matches!(self.tokens.get(self.at - 1), Some((Token::Sign('.') | Token::Colons, _)));
        let mut segments: Vec<String> = self.word(0).map(String::from).into_iter().collect();
        self.at += 1;
        while self.peek(0) == Some(&Token::Colons) {
            self.at += 1;
            let Some(next) = self.word(0) else { break };
            segments.push(next.to_owned());
            self.at += 1;
        }
        let called = self.is(0, '(') || self.is(0, '!');
        if !member {
            self.out.paths.push(Path { segments, line, called });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<String> {
        let found = scan(text).imports;
        found.iter().map(|i| format!("{} as {}", i.path.join("::"), i.name)).collect()
    }

    #[test]
    fn trees_of_use_are_flattened() {
        let text = "use crate::a::{self, b::{C, D as E}, f::*};\npub(crate) use super::G;\n";
        let want = [
            "crate::a as a",
            "crate::a::b::C as C",
            "crate::a::b::D as E",
            "crate::a::f as *",
            "super::G as G",
        ];
        assert_eq!(imports(text), want);
        assert!(scan(text).imports[4].exported && !scan(text).imports[0].exported);
    }

    #[test]
    fn comments_strings_and_items_for_tests_are_skipped() {
        let text = r##"
            // use crate::a;
            /* use crate::b; /* nested */ use crate::c; */
            const X: &str = "use crate::d;"; const Y: &str = r#"crate::e::f "quoted""#;
            const C: [char; 3] = ['"', '\'', 'x'];
            fn longest<'a>(x: &'a str) -> &'a str { crate::g::h(x) }
            #[cfg(test)]
            mod tests { use crate::i; fn j() { crate::k::l(); } }
            #[cfg(test)]
            #[path = "m_tests.rs"]
            pub(crate) mod m;
            use crate::n::O;
        "##;
        let found = scan(text);
        assert_eq!(imports(text), ["crate::n::O as O"]);
        let paths: Vec<String> =
            found.paths.iter().filter(|p| p.segments.len() > 1).map(|p| p.segments.join("::")).collect();
        assert_eq!(paths, ["crate::g::h"]);
        assert_eq!(found.tests, [("m".to_owned(), Some("m_tests.rs".to_owned()))]);
    }

    #[test]
    fn modules_in_other_files_and_items_are_found() {
        let found = scan("mod a;\npub mod b;\nmod c { fn d() {} }\npub struct E;\n");
        assert_eq!(found.modules, ["a", "b"]);
        assert_eq!(found.items, ["c", "d", "E"]);
    }
}
