//! Items of D libraries, checked when a program first uses them.
//!
//! A parsed library is not checked at once: otherwise every program that uses one of a thousand
//! constants would pay for all. The items of a library are in a table under the names they define.
//! For an unknown name, the checker looks in this table ([`Checker::define_from_libraries`]) and
//! checks the item as if it preceded the program. So the order of items and of files does not
//! matter. A program may declare a name of a library itself, provided it does so before using the
//! name.

use std::collections::HashMap;

use syntax::ast::Item;

use crate::session::Checker;
use crate::state::libraries::Space;

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
        let mut items = self.scopes.library_items.take(space, word);
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
        for at in std::mem::take(&mut self.scopes.library_items.always) {
            if let Some(item) = self.scopes.library_items.items.get_mut(at).and_then(Option::take) {
                self.library_item(item);
            }
        }
    }

    /// Checks an item as if it preceded the program, independent of the context of its use.
    fn library_item(&mut self, item: &Item) {
        let region = self.sink.set_region(None);
        let depth = std::mem::take(&mut self.expansion.depth);
        let (firing, space) = (self.args.firing.take(), self.scopes.space.take());
        // The library uses the names in the item, not the program.
        let check = |c: &mut Self| match item {
            Item::Inline(inline) => c.inline(inline),
            Item::Declaration(d) => c.declaration(d),
            Item::Translator(t) => c.translator(t),
            // Clauses of a library run for the probes that they fire. Its pragmas have been
            // processed already.
            Item::Clause(_) | Item::Provider(_) | Item::Pragma(_) => {}
        };
        let ((), _) =
            self.collect_attributes(|c| c.in_definition(None, |c| c.with_bound(HashMap::new(), check)));
        self.expansion.depth = depth;
        (self.args.firing, self.scopes.space) = (firing, space);
        self.sink.set_region(region);
    }
}
