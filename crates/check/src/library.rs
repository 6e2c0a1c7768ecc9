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

/// A struct and a variable may have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Space {
    /// Typedefs and tags, and under the name of the type it makes, a translator.
    Type,
    /// Inlines, variables, enumerators.
    Value,
}

/// Items of libraries that wait for a use.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'a> {
    items: Vec<Option<&'a Item>>,
    /// Which items define a word of each [`Space`].
    words: [HashMap<&'a str, Vec<usize>>; 2],
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
            defined(item, &mut |space, word| out.words[space as usize].entry(word).or_default().push(at));
        }
        out
    }

    fn take(&mut self, space: Space, word: &str) -> Vec<&'a Item> {
        let items = self.words[space as usize].remove(word).unwrap_or_default();
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

/// The words under which a library's item is looked for.
fn defined<'a>(item: &'a Item, word: &mut impl FnMut(Space, &'a str)) {
    let by_tag = |specs: &'a DeclSpecs| tag(specs).map(|t| (Space::Type, t));
    match item {
        Item::Inline(inline) => inline.declarator.name.iter().for_each(|n| word(Space::Value, &n.text)),
        Item::Translator(t) => by_tag(&t.output.specs).into_iter().for_each(|(s, w)| word(s, w)),
        Item::Declaration(d) => {
            let is_typedef = d.specs.storage.is_some_and(|s| s.class == StorageClass::Typedef);
            let global = d.specs.storage.is_none_or(|s| {
                matches!(s.class, StorageClass::Typedef | StorageClass::Extern | StorageClass::Static)
            });
            if d.declarators.is_empty() || is_typedef {
                match &d.specs.ty.kind {
                    TypeSpecKind::Record(r) if r.members.is_some() => {
                        by_tag(&d.specs).into_iter().for_each(|(s, w)| word(s, w));
                    }
                    TypeSpecKind::Enum(e) => {
                        by_tag(&d.specs).into_iter().for_each(|(s, w)| word(s, w));
                        e.enumerators.iter().flatten().for_each(|e| word(Space::Value, &e.name.text));
                    }
                    _ => {}
                }
            }
            if global {
                let space = if is_typedef { Space::Type } else { Space::Value };
                d.declarators.iter().filter_map(|d| d.name.as_ref()).for_each(|n| word(space, &n.text));
            }
        }
        Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
    }
}

impl Checker<'_> {
    /// Makes a word of a library known, other than a type's; false where no library has it, or it was made known before.
    pub(crate) fn need(&mut self, word: &str) -> bool {
        self.need_in(Space::Value, word)
    }

    /// As [`Checker::need`], for a type's name or tag; its translators come with it. What the program calls so is the
    /// program's.
    pub(crate) fn need_type(&mut self, word: &str) -> bool {
        !self.types.is_declared(word) && self.need_in(Space::Type, word)
    }

    fn need_in(&mut self, space: Space, word: &str) -> bool {
        let mut items = self.waiting.take(space, word);
        // The type before those that make it.
        items.sort_by_key(|item| matches!(item, Item::Translator(_)));
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
        let depth = std::mem::take(&mut self.depth);
        // What it names is used by the library, not by the program.
        let ((), _) = self.promise_of(|c| {
            c.with_bound(Vec::new(), |c| match item {
                Item::Inline(inline) => c.inline(inline),
                Item::Declaration(d) => c.declaration(d),
                Item::Translator(t) => c.translator(t),
                // Clauses of a library are not enabled; its pragmas have been obeyed.
                Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
            });
        });
        self.depth = depth;
        self.sink.enter(region);
    }
}
