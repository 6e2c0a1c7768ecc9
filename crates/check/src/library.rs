//! Words of D libraries, checked when a program first uses them.
//!
//! A library that is parsed is not checked: a text of a thousand constants would cost every program that names one of
//! them. The items of a library stand in a table under the words they define; a name that is nothing else makes the
//! checker look here ([`Checker::need`]) and check the item as if it stood before the program. So the order of items and
//! of files does not matter, and a program may declare a word of a library itself as long as it does so before use.

use std::collections::HashMap;

use syntax::ast::{DeclSpecs, Item, StorageClass, TypeSpecKind};
use syntax::library::Library;

use crate::session::Checker;

/// Items of libraries that wait for a use.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'a> {
    items: Vec<Option<&'a Item>>,
    /// Which items define a word.
    words: HashMap<&'a str, Vec<usize>>,
    /// Those that are checked whether or not they are used.
    always: Vec<usize>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(libraries: &'a [Library]) -> Self {
        let mut out = Self::default();
        let all = libraries.iter().flat_map(|l| l.program.items.iter().map(|item| (item, l.always)));
        for (at, (item, always)) in all.enumerate() {
            out.items.push(Some(item));
            if always {
                out.always.push(at);
            }
            defined(item, &mut |word| out.words.entry(word).or_default().push(at));
        }
        out
    }

    fn take(&mut self, word: &str) -> Vec<&'a Item> {
        let items = self.words.remove(word).unwrap_or_default();
        items.into_iter().filter_map(|at| self.items[at].take()).collect()
    }
}

fn tag(specs: &DeclSpecs) -> Option<&str> {
    match &specs.ty.kind {
        TypeSpecKind::Named { name, .. } => Some(&name.text),
        TypeSpecKind::Record(r) => r.tag.as_ref().map(|t| &*t.text),
        TypeSpecKind::Enum(e) => e.tag.as_ref().map(|t| &*t.text),
        _ => None,
    }
}

/// The words under which a library's item is looked for. A translator stands under the name of the type it makes.
fn defined<'a>(item: &'a Item, word: &mut impl FnMut(&'a str)) {
    match item {
        Item::Inline(inline) => inline.declarator.name.iter().for_each(|n| word(&n.text)),
        Item::Translator(t) => tag(&t.output.specs).into_iter().for_each(word),
        Item::Declaration(d) => {
            let is_typedef = d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef);
            let global = d.specs.storage.is_none_or(|s| {
                matches!(s.class, StorageClass::Typedef | StorageClass::Extern | StorageClass::Static)
            });
            if d.declarators.is_empty() || is_typedef {
                match &d.specs.ty.kind {
                    TypeSpecKind::Record(r) if r.members.is_some() => {
                        tag(&d.specs).into_iter().for_each(&mut *word)
                    }
                    TypeSpecKind::Enum(e) => {
                        tag(&d.specs).into_iter().for_each(&mut *word);
                        e.enumerators.iter().flatten().for_each(|e| word(&e.name.text));
                    }
                    _ => {}
                }
            }
            if global {
                d.declarators.iter().filter_map(|d| d.name.as_ref()).for_each(|n| word(&n.text));
            }
        }
        Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
    }
}

impl Checker<'_> {
    /// Makes a word of a library known; false where no library has it, or it was made known before.
    pub(crate) fn need(&mut self, word: &str) -> bool {
        let items = self.waiting.take(word);
        let found = !items.is_empty();
        for item in items {
            self.library_item(item);
        }
        found
    }

    /// Checks the libraries that the user gave whole, so that their mistakes are told.
    pub(crate) fn own_libraries(&mut self) {
        for at in std::mem::take(&mut self.waiting.always) {
            if let Some(item) = self.waiting.items.get_mut(at).and_then(Option::take) {
                self.library_item(item);
            }
        }
    }

    /// Checks an item as if it stood before the program: what surrounds its use is none of its business.
    fn library_item(&mut self, item: &Item) {
        let region = self.sink.enter(None);
        let (depth, attributes) = (std::mem::take(&mut self.depth), self.clause.attributes);
        self.with_bound(Vec::new(), |c| match item {
            Item::Inline(inline) => c.inline(inline),
            Item::Declaration(d) => c.declaration(d),
            Item::Translator(t) => c.translator(t),
            // Clauses of a library are not enabled; its pragmas have been obeyed.
            Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
        });
        self.depth = depth;
        self.clause.attributes = attributes;
        self.sink.enter(region);
    }
}
