//! The public interface of a library, as text: `xtask/api/CRATE.txt`, one item a line, compared by
//! a test. Whoever changes an interface sees in the change what users of the library will see.
//!
//! It reads the source, so it needs only the stable compiler. A crate is a tree of modules; the
//! lister walks what is public from the root, follows `pub use` (into other crates of the workspace
//! too), and prints signatures with the public fields, variants, methods and implemented traits. A
//! path is resolved by what its module defines and imports, as far as public interfaces here need
//! it. What a macro makes is listed as the macro's invocation, or as the items that it is given.
//!
//! A type of the workspace that a public signature mentions must be listed too: whoever uses the
//! library could not name it otherwise. A crate that has a list of its own is not listed again.

mod syntax;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ImplItem, Item, ItemImpl, TraitItem};

use self::syntax::{
    derived, exhaustive, fields, generics, is_for_tests, is_public, name_of, names, paths, public_tokens,
    signature, text, visibility,
};

/// The libraries.
const CRATES: [&str; 4] = ["dtrace", "events", "bpf-sys", "types"];

/// A module: crate, then names.
type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    items: Vec<Item>,
    /// Names that `use` brings in: their path, and whether others see them.
    imports: Vec<(String, Vec<String>, bool)>,
    /// Child modules, and whether others see them.
    children: BTreeMap<String, bool>,
}

/// All crates that were read so far.
#[derive(Default)]
struct Workspace {
    modules: BTreeMap<ModulePath, Module>,
    lines: BTreeSet<String>,
    blocks: BTreeMap<String, Rc<Blocks>>,
    /// The crate that is listed.
    of: String,
    /// What was listed: module and name.
    listed: BTreeSet<(ModulePath, String)>,
    /// Crates with lists of their own that it exports as a whole.
    exported: BTreeSet<String>,
    /// What public signatures mention: module and name, and the first line that does.
    mentioned: BTreeMap<(ModulePath, String), String>,
}

/// Implementations by module and name of the type.
type Blocks = BTreeMap<(ModulePath, String), Vec<ItemImpl>>;

/// A crate's directory, by the name that code uses.
fn directory(name: &str) -> Option<PathBuf> {
    let dir = crate::root().join("crates").join(name.replace('_', "-")).join("src");
    dir.is_dir().then_some(dir)
}

impl Workspace {
    /// Reads a crate, if it is one of the workspace and was not read.
    fn read(&mut self, name: &str) -> bool {
        if self.modules.contains_key(&vec![name.to_owned()]) {
            return true;
        }
        let Some(dir) = directory(name) else { return false };
        self.read_file(&dir.join("lib.rs"), &dir, vec![name.to_owned()]);
        true
    }

    fn read_file(&mut self, file: &Path, dir: &Path, path: ModulePath) {
        let source = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&source).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.add(parsed.items, dir, path);
    }

    fn add(&mut self, items: Vec<Item>, dir: &Path, path: ModulePath) {
        let mut module = Module::default();
        for item in items {
            match item {
                Item::Mod(m) if !is_for_tests(&m.attrs) => {
                    let name = m.ident.to_string();
                    let child: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
                    module.children.insert(name.clone(), is_public(&m.vis));
                    let inside = dir.join(&name);
                    match m.content {
                        Some((_, items)) => self.add(items, &inside, child),
                        None => {
                            let file = dir.join(format!("{name}.rs"));
                            let file = if file.is_file() { file } else { inside.join("mod.rs") };
                            self.read_file(&file, &inside, child);
                        }
                    }
                }
                Item::Use(u) => {
                    let mut found = Vec::new();
                    names(&u.tree, &[], &mut found);
                    let public = is_public(&u.vis);
                    module.imports.extend(found.into_iter().map(|(name, path)| (name, path, public)));
                }
                // Items with more than Rust knows, which the macro makes.
                Item::Macro(made)
                    if made.ident.is_none()
                        && let Ok(made) = syn::parse2::<syn::File>(made.mac.tokens.clone())
                        && !made.items.is_empty() =>
                {
                    module.items.extend(made.items);
                }
                other => module.items.push(other),
            }
        }
        self.modules.insert(path, module);
    }

    /// The module and the name that a path in a module leads to, through its imports. `None` for
    /// what is not of the workspace.
    fn resolve(&mut self, from: &ModulePath, path: &[String], depth: u32) -> Option<(ModulePath, String)> {
        let (first, rest) = path.split_first()?;
        if depth > 20 {
            return None;
        }
        let mut at = match first.as_str() {
            "crate" => vec![from.first()?.clone()],
            "self" => from.clone(),
            "super" => from.get(..from.len() - 1)?.to_vec(),
            name => {
                let module = self.modules.get(from)?;
                if rest.is_empty() && defines(module, name) {
                    return Some((from.clone(), name.to_owned()));
                }
                let import = module.imports.iter().find(|(n, ..)| n == name).map(|(_, path, _)| path.clone());
                if module.children.contains_key(name) {
                    from.iter().cloned().chain([name.to_owned()]).collect()
                } else if let Some(import) =
                    import.filter(|import| import.first().is_some_and(|f| f != name || import.len() > 1))
                {
                    let whole: Vec<String> = import.into_iter().chain(rest.iter().cloned()).collect();
                    return self.resolve(from, &whole, depth + 1);
                } else if self.read(name) {
                    vec![name.to_owned()]
                } else {
                    return None;
                }
            }
        };
        let Some((last, between)) = rest.split_last() else {
            let last = at.pop()?;
            return Some((at, last));
        };
        for name in between {
            at.push(name.clone());
            if !self.modules.contains_key(&at) {
                let name = at.pop()?;
                let (mut module, last) = self.resolve(&at, &[name], depth + 1)?;
                module.push(last);
                at = module;
            }
        }
        let here = self.modules.get(&at)?;
        if defines(here, last) || here.children.contains_key(last) {
            return Some((at, last.clone()));
        }
        self.resolve(&at, std::slice::from_ref(last), depth + 1)
    }

    /// Lists what others see of a module, under a path.
    fn list(&mut self, module: &ModulePath, shown: &str) {
        let Some(here) = self.modules.get(module) else { return };
        let items: Vec<Item> = here.items.clone();
        let children: Vec<String> =
            here.children.iter().filter(|(_, public)| **public).map(|(n, _)| n.clone()).collect();
        let uses: Vec<_> = here.imports.iter().filter(|(.., public)| *public).cloned().collect();
        items.iter().for_each(|item| self.item(item, module, shown, None));
        for child in children {
            let path: ModulePath = module.iter().cloned().chain([child.clone()]).collect();
            self.lines.insert(format!("mod {shown}::{child}"));
            self.list(&path, &format!("{shown}::{child}"));
        }
        for (name, path, _) in uses {
            if name == "*" {
                if let Some((mut at, last)) = self.resolve(module, &path, 0) {
                    at.push(last);
                    self.list(&at, shown);
                }
                continue;
            }
            if path.len() == 1 && name == path[0] && self.has_its_own_list(&name) {
                self.lines.insert(format!("use {shown}::{name} = the crate {name}"));
                self.exported.insert(name);
                continue;
            }
            let Some((at, original)) = self.resolve(module, &path, 0) else {
                self.lines.insert(format!("use {shown}::{name} = {}", path.join("::")));
                continue;
            };
            let item = self
                .modules
                .get(&at)
                .and_then(|m| m.items.iter().find(|i| name_of(i) == Some(original.clone())));
            match item.cloned() {
                Some(item) => self.item(&item, &at, shown, Some(&name)),
                None => {
                    let whole: ModulePath = at.iter().cloned().chain([original]).collect();
                    self.lines.insert(format!("mod {shown}::{name}"));
                    self.list(&whole, &format!("{shown}::{name}"));
                }
            }
        }
    }

    /// Lists an item of a module, if it is public, under a path and perhaps another name.
    fn item(&mut self, item: &Item, module: &ModulePath, shown: &str, renamed: Option<&str>) {
        if let Item::Macro(made) = item {
            let makes_items = made.ident.is_none() && !made.mac.path.is_ident("const");
            if makes_items {
                self.lines.insert(format!(
                    "macro {shown} {}! {{ {} }}",
                    text(&made.mac.path),
                    text(&made.mac.tokens)
                ));
            }
            return;
        }
        let Some(original) = name_of(item) else { return };
        let name = renamed.unwrap_or(&original).to_owned();
        let path = format!("{shown}::{name}");
        if visibility(item).is_some_and(is_public) {
            self.listed.insert((module.clone(), original.clone()));
            for tokens in public_tokens(item) {
                self.mention(module, &path, tokens);
            }
        }
        let mut add = |line: String| {
            self.lines.insert(line);
        };
        match item {
            Item::Const(c) if is_public(&c.vis) => add(format!("const {path}: {}", text(&c.ty))),
            Item::Static(s) if is_public(&s.vis) => add(format!("static {path}: {}", text(&s.ty))),
            Item::Fn(f) if is_public(&f.vis) => add(format!("fn {path}{}", signature(&f.sig))),
            Item::Type(t) if is_public(&t.vis) => {
                add(format!("type {path}{} = {}", text(&t.generics), text(&t.ty)))
            }
            Item::Struct(s) if is_public(&s.vis) => {
                add(format!(
                    "struct {path}{}{}{}",
                    generics(&s.generics),
                    derived(&s.attrs),
                    exhaustive(&s.attrs)
                ));
                fields(&s.fields, &path, true, &mut add);
                self.implementations(module, &s.ident.to_string(), &path, s.generics.params.len());
            }
            Item::Enum(e) if is_public(&e.vis) => {
                add(format!(
                    "enum {path}{}{}{}",
                    generics(&e.generics),
                    derived(&e.attrs),
                    exhaustive(&e.attrs)
                ));
                for variant in &e.variants {
                    let number = variant.discriminant.as_ref().map(|(_, n)| format!(" = {}", text(n)));
                    add(format!("variant {path}::{}{}", variant.ident, number.unwrap_or_default()));
                    fields(&variant.fields, &format!("{path}::{}", variant.ident), false, &mut add);
                }
                self.implementations(module, &e.ident.to_string(), &path, e.generics.params.len());
            }
            Item::Trait(t) if is_public(&t.vis) => {
                let above = if t.supertraits.is_empty() {
                    String::new()
                } else {
                    format!(": {}", text(&t.supertraits))
                };
                add(format!("trait {path}{}{above}", generics(&t.generics)));
                for member in &t.items {
                    match member {
                        TraitItem::Fn(f) => {
                            let given = if f.default.is_some() { " (provided)" } else { "" };
                            add(format!("fn {path}::{}{}{given}", f.sig.ident, signature(&f.sig)));
                        }
                        TraitItem::Type(t) => add(format!("type {path}::{}", t.ident)),
                        TraitItem::Const(c) => add(format!("const {path}::{}: {}", c.ident, text(&c.ty))),
                        _ => {}
                    }
                }
                self.for_pointers(module, &original, &path);
            }
            _ => {}
        }
    }

    /// Notes the types of the workspace that tokens of a module mention.
    fn mention(&mut self, module: &ModulePath, line: &str, tokens: TokenStream) {
        for path in paths(tokens) {
            let Some((at, name)) = self.resolve(module, &path, 0) else { continue };
            let is_type = |item: &Item| {
                name_of(item).is_some_and(|n| n == name)
                    && matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Trait(_) | Item::Type(_))
            };
            if self.modules.get(&at).is_some_and(|m| m.items.iter().any(is_type)) {
                self.mentioned.entry((at, name)).or_insert_with(|| line.to_owned());
            }
        }
    }

    /// True for another crate with a list of its own.
    fn has_its_own_list(&self, name: &str) -> bool {
        name != self.of && CRATES.iter().any(|of| of.replace('-', "_") == name)
    }

    /// What public signatures mention and nobody can name.
    fn unreachable(&self) -> Vec<String> {
        let known = |(at, name): &(ModulePath, String)| {
            self.listed.contains(&(at.clone(), name.clone()))
                || at.first().is_some_and(|of| self.exported.contains(of))
        };
        let all = self.mentioned.iter().filter(|(what, _)| !known(what));
        all.map(|((at, name), line)| format!("{}::{name}, which {line} mentions", at.join("::"))).collect()
    }

    /// The implementations of a trait for references, boxes, tuples and other crates' types.
    fn for_pointers(&mut self, module: &ModulePath, name: &str, path: &str) {
        let Some(of_crate) = module.first() else { return };
        let mut found = Vec::new();
        for (at, other) in self.modules.iter().filter(|(at, _)| at.first() == Some(of_crate)) {
            for item in &other.items {
                match item {
                    Item::Impl(block) if !is_for_tests(&block.attrs) => {
                        let Some(implemented) = &block.trait_ else { continue };
                        let last = implemented.0.segments.last().map(|s| s.ident.to_string());
                        if last.as_deref() == Some(name) {
                            found.push((at.clone(), block.clone()));
                        }
                    }
                    _ => {}
                }
            }
        }
        for (at, block) in found {
            let own = match &*block.self_ty {
                syn::Type::Path(of) => {
                    let words: Vec<String> = of.path.segments.iter().map(|s| s.ident.to_string()).collect();
                    self.resolve(&at, &words, 0).is_some_and(|(at, _)| at.first() == Some(of_crate))
                }
                _ => false,
            };
            if !own {
                self.lines.insert(format!(
                    "impl{} {path} for {}",
                    text(&block.generics),
                    text(&block.self_ty)
                ));
            }
        }
    }

    /// The implementations in a crate, by the type.
    fn blocks(&mut self, name: &str) -> Rc<Blocks> {
        if let Some(known) = self.blocks.get(name) {
            return known.clone();
        }
        let mut all: Vec<(ModulePath, ItemImpl)> = Vec::new();
        for (at, module) in
            self.modules.iter().filter(|(at, _)| at.first().is_some_and(|first| first == name))
        {
            for item in &module.items {
                if let Item::Impl(block) = item
                    && !is_for_tests(&block.attrs)
                {
                    all.push((at.clone(), block.clone()));
                }
            }
        }
        let mut blocks = Blocks::new();
        for (at, block) in all {
            let syn::Type::Path(of) = &*block.self_ty else { continue };
            let words: Vec<String> = of.path.segments.iter().map(|s| s.ident.to_string()).collect();
            if let Some(target) = self.resolve(&at, &words, 0) {
                blocks.entry(target).or_default().push(block);
            }
        }
        let blocks = Rc::new(blocks);
        self.blocks.insert(name.to_owned(), blocks.clone());
        blocks
    }

    /// The public methods of a type, and the traits that it implements, wherever its crate says so.
    fn implementations(&mut self, module: &ModulePath, name: &str, path: &str, declared: usize) {
        let Some(of_crate) = module.first() else { return };
        let blocks = self.blocks(of_crate);
        for block in blocks.get(&(module.clone(), name.to_owned())).into_iter().flatten() {
            let arguments = text(&block.self_ty);
            let arguments = arguments.find('<').map_or("", |at| &arguments[at..]);
            let bounds = generics(&block.generics);
            if let Some(implemented) = &block.trait_ {
                let of = text(&implemented.0);
                self.lines.insert(format!("impl{bounds} {path}{arguments}: {of}"));
                for member in &block.items {
                    if let ImplItem::Type(t) = member {
                        self.lines.insert(format!("type {path} as {of}::{} = {}", t.ident, text(&t.ty)));
                    }
                }
                continue;
            }
            // What only some of the types have says of which.
            let of_all = block.generics.params.len() == declared && !arguments.contains("dyn ");
            let simple = !arguments.trim_matches(['<', '>']).contains('<');
            let of = if of_all && simple { String::new() } else { format!(" [impl{bounds} {arguments}]") };
            for member in &block.items {
                match member {
                    ImplItem::Fn(f) if is_public(&f.vis) => {
                        self.mention(module, &format!("{path}::{}", f.sig.ident), f.sig.to_token_stream());
                        self.lines.insert(format!("fn {path}::{}{}{of}", f.sig.ident, signature(&f.sig)));
                    }
                    ImplItem::Const(c) if is_public(&c.vis) => {
                        self.lines.insert(format!("const {path}::{}: {}", c.ident, text(&c.ty)));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn defines(module: &Module, name: &str) -> bool {
    module.items.iter().any(|i| name_of(i).is_some_and(|n| n == name))
}

/// The interface of a crate, and what it mentions and does not export.
fn listing(name: &str) -> (String, Vec<String>) {
    let root = name.replace('-', "_");
    let mut workspace = Workspace { of: root.clone(), ..Workspace::default() };
    assert!(workspace.read(&root), "no crate {name}");
    workspace.list(&vec![root.clone()], &root);
    let mut all: Vec<&String> = workspace.lines.iter().collect();
    // An item, then what belongs to it.
    all.sort_by_key(|line| {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let path: String = rest.chars().take_while(|c| c.is_alphanumeric() || "_:.".contains(*c)).collect();
        let owns = !matches!(kind, "mod" | "struct" | "enum" | "trait" | "use");
        (path.trim_end_matches(':').to_owned(), owns, (*line).clone())
    });
    (all.into_iter().map(|line| format!("{line}\n")).collect(), workspace.unreachable())
}

#[test]
fn the_public_interface_is_the_one_that_is_checked_in() {
    let (mut changed, mut missing) = (Vec::new(), Vec::new());
    for name in CRATES {
        let file = crate::root().join("xtask/api").join(format!("{name}.txt"));
        let (now, unreachable) = listing(name);
        missing.extend(unreachable.iter().map(|what| format!("{name} does not export {what}")));
        if name == "dtrace" {
            follows_what_is_exported(&now);
        }
        if std::env::var_os("UPDATE_API").is_some() {
            std::fs::write(&file, &now).unwrap();
            continue;
        }
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        let (was, is): (BTreeSet<&str>, BTreeSet<&str>) = (before.lines().collect(), now.lines().collect());
        changed.extend(was.difference(&is).map(|l| format!("- {l}")));
        changed.extend(is.difference(&was).map(|l| format!("+ {l}")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(
        changed.is_empty(),
        "the public interface has changed:\n{}\nIf that is meant, `UPDATE_API=1 cargo test -p xtask api` writes the new one.",
        changed.join("\n")
    );
}

/// A listing that saw nothing would always be the same.
fn follows_what_is_exported(dtrace: &str) {
    for line in [
        "fn dtrace::Session::finish(&mut self) -> Result<i32, Error>",
        "fn dtrace::Session::ready(&mut self) -> Result<Status, Error>",
        "field dtrace::Macros.target: u64",
        "variant dtrace::Status::Done",
        "trait dtrace::Output: Write",
        "fn dtrace::interpreter::Firing::of(probe: impl Into<String>) -> Firing",
    ] {
        assert!(dtrace.lines().any(|l| l == line), "no line {line}\n{dtrace}");
    }
    assert!(!dtrace.contains("dtrace::Machine") && !dtrace.contains("fn dtrace::Session::drain"));
}

/// A program that embeds the library, and the command, name no crate of the workspace but `dtrace`.
#[test]
fn a_user_of_the_library_needs_no_crate_below_it() {
    let crates = std::fs::read_dir(crate::root().join("crates")).unwrap();
    let names = crates.map(|c| c.unwrap().file_name().into_string().unwrap().replace('-', "_"));
    let below: Vec<String> = names.filter(|name| !["dtrace", "cli"].contains(&name.as_str())).collect();
    let mut read = 0;
    let mut folders = ["crates/dtrace/examples", "crates/cli/src"].map(|d| crate::root().join(d)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|ext| ext != "rs") {
                continue;
            }
            read += 1;
            let source = std::fs::read_to_string(&path).unwrap();
            let parsed = syn::parse_file(&source).unwrap();
            let first = paths(parsed.to_token_stream()).into_iter().filter(|p| p.len() > 1);
            let used: Vec<String> = first.map(|p| p[0].clone()).filter(|p| below.contains(p)).collect();
            // A module of the file itself may have the name of a crate.
            assert!(used.is_empty(), "{} names {used:?}", path.display());
        }
    }
    assert!(read > 5);
}

fn sample(source: &str) -> (String, Vec<String>) {
    let mut workspace = Workspace { of: "sample".into(), ..Workspace::default() };
    let items = syn::parse_file(source).unwrap().items;
    workspace.add(items, Path::new("/"), vec!["sample".into()]);
    workspace.list(&vec!["sample".into()], "sample");
    (workspace.lines.iter().map(|line| format!("{line}\n")).collect(), workspace.unreachable())
}

#[test]
fn types_that_a_signature_mentions_and_nobody_can_name_are_found() {
    let inner = "mod inner { pub struct Hidden; pub struct Shown(pub u8); }";
    let open = "pub use inner::Shown; pub fn f(a: &Shown) -> Option<Vec<inner::Hidden>> { None }";
    let (_, missing) = sample(&format!("{inner} {open}"));
    assert_eq!(missing, ["sample::inner::Hidden, which sample::f mentions"]);
    for open in [
        "use inner::Hidden; pub struct S { pub field: Box<Hidden> }",
        "pub enum E { A(inner::Hidden) }",
        "pub trait T { fn f(&self, h: &mut dyn Fn(inner::Hidden)); }",
        "pub struct S; impl S { pub fn f(&self) -> inner::Hidden { inner::Hidden } }",
        "pub type A = Result<inner::Hidden, ()>;",
    ] {
        assert_eq!(sample(&format!("{inner} {open}")).1.len(), 1, "{open}");
    }
    for open in [
        "pub use inner::Hidden; pub fn f(a: Hidden) {}",
        "pub struct S { field: inner::Hidden }",
        "fn f(a: inner::Hidden) {}",
    ] {
        assert_eq!(sample(&format!("{inner} {open}")).1, [""; 0], "{open}");
    }
}

#[test]
fn bounds_numbers_associated_types_and_macros_are_part_of_an_interface() {
    let (lines, _) = sample(
        "pub struct S<T>(T) where T: Copy; #[non_exhaustive] pub enum E { A = 3 }
         impl S<u8> { pub fn only(&self) {} } impl<T: Send> Iterator for S<T> { type Item = u8; }
         pub trait T {} impl<X: T> T for &X {} impl T for (u8, u8) {}
         made! { S u8 } items! { pub struct M { #[row(1)] pub field: u8 } } impl M { pub fn of(self) {} }",
    );
    for line in [
        "struct sample::S<T> where T: Copy",
        "enum sample::E (non-exhaustive)",
        "variant sample::E::A = 3",
        "fn sample::S::only(&self) [impl <u8>]",
        "impl<T: Send> sample::S<T>: Iterator",
        "type sample::S as Iterator::Item = u8",
        "impl<X: T> sample::T for &X",
        "impl sample::T for (u8, u8)",
        "macro sample made! { S u8 }",
        "field sample::M.field: u8",
        "fn sample::M::of(self)",
    ] {
        assert!(lines.lines().any(|l| l == line), "no line {line}\n{lines}");
    }
}
