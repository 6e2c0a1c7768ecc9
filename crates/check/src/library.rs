//! Items of D libraries, checked when a program first uses them.
//!
//! A parsed library is not checked at once: otherwise every program that uses one of a thousand
//! constants would pay for all. The items of a library are in a table under the names they define.
//! For an unknown name, the checker looks in this table ([`Checker::define_from_libraries`]) and
//! checks the item as if it preceded the program. So the order of items and of files does not
//! matter. A program may declare a name of a library itself, provided it does so before using the
//! name.

use std::collections::HashMap;

use syntax::ast::{DeclSpecs, Item, StorageClass, TypeSpecKind};
use syntax::derive::local;
use syntax::library::Library;

use crate::session::Checker;

/// Namespaces: a struct and a variable may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// Typedefs and tags. A translator is in this namespace under the name of the type it produces.
    Type,
    /// Inlines, variables, enumerators.
    Value,
}

/// Items of libraries that have not been used yet.
#[derive(Debug, Default)]
pub(crate) struct UnusedItems<'a> {
    items: Vec<Option<&'a Item>>,
    /// Indexes of the items that define a name, for each [`Space`].
    words: [HashMap<&'a str, Vec<usize>>; 2],
    /// Items that are checked whether or not they are used.
    always: Vec<usize>,
}

impl<'a> UnusedItems<'a> {
    pub(crate) fn new(libraries: &'a [Library]) -> Self {
        let mut out = Self::default();
        let all = libraries.iter().flat_map(|l| {
            // Variables of the clauses of a provider are declared with these clauses, and are not those of
            // programs.
            let derives = l.program.items.iter().any(|item| matches!(item, Item::Provider(_)));
            let shared = l.program.items.iter().filter(move |item| !(derives && local(item).is_some()));
            shared.map(|item| (item, l.always))
        });
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

/// Calls `word` for each name under which a library's item is looked up.
pub(crate) fn defined<'a>(item: &'a Item, word: &mut impl FnMut(Space, &'a str)) {
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
    /// Defines a name other than a type's from the libraries. Returns false if no library has it,
    /// or it is already defined.
    pub(crate) fn define_from_libraries(&mut self, word: &str) -> bool {
        self.define_in(Space::Value, word)
    }

    /// Like [`Checker::define_from_libraries`], for a type's name or tag. The type's translators
    /// are defined with it. A name that the program defines is the program's.
    pub(crate) fn define_type_from_libraries(&mut self, word: &str) -> bool {
        !self.types.is_declared(word) && self.define_in(Space::Type, word)
    }

    fn define_in(&mut self, space: Space, word: &str) -> bool {
        let mut items = self.library_items.take(space, word);
        // A type comes before the translators that produce it.
        items.sort_by_key(|item| matches!(item, Item::Translator(_)));
        let found = !items.is_empty();
        for item in items {
            self.library_item(item);
        }
        found
    }

    /// Checks the user's own libraries entirely, so that their errors are reported.
    pub(crate) fn user_libraries(&mut self) {
        for at in std::mem::take(&mut self.library_items.always) {
            if let Some(item) = self.library_items.items.get_mut(at).and_then(Option::take) {
                self.library_item(item);
            }
        }
    }

    /// Checks an item as if it preceded the program, independent of the context of its use.
    fn library_item(&mut self, item: &Item) {
        let region = self.sink.set_region(None);
        let depth = std::mem::take(&mut self.depth);
        let (firing, space) = (self.firing.take(), self.space.take());
        // The library uses the names in the item, not the program.
        let check = |c: &mut Self| match item {
            Item::Inline(inline) => c.inline(inline),
            Item::Declaration(d) => c.declaration(d),
            Item::Translator(t) => c.translator(t),
            // Clauses of a library run for the probes that they fire. Its pragmas have been processed
            // already.
            Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
        };
        let ((), _) =
            self.collect_attributes(|c| c.in_definition(None, |c| c.with_bound(HashMap::new(), check)));
        self.depth = depth;
        (self.firing, self.space) = (firing, space);
        self.sink.set_region(region);
    }
}
