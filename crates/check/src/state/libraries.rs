//! The items of libraries, under the names that they define.

use std::collections::HashMap;

use syntax::ast::{DeclSpecs, Item, StorageClass, TypeSpecKind};
use syntax::derive::local;
use syntax::library::Library;

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
    pub(crate) items: Vec<Option<&'a Item>>,
    /// Indexes of the items that define a name, for each [`Space`].
    pub(crate) words: [HashMap<&'a str, Vec<usize>>; 2],
    /// Items that are checked whether or not they are used.
    pub(crate) always: Vec<usize>,
}

impl<'a> UnusedItems<'a> {
    pub(crate) fn new(libraries: &'a [Library]) -> Self {
        let mut out = Self::default();
        let all = libraries.iter().flat_map(|l| {
            // Variables of the clauses of a provider are declared with these clauses, and are not
            // those of programs.
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

    pub(crate) fn take(&mut self, space: Space, word: &str) -> Vec<&'a Item> {
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
