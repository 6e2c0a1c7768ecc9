//! What files say of their providers, each text once.

use std::collections::HashMap;
use std::sync::Arc;

use probes::Definition;
use proc::share::{Owner, Shares};
use symbols::ProviderText;
use usdt::provider_name;

use super::fair::leave;

/// The most texts of a session, which processes share. What their files say beyond is not used.
const MOST: usize = 1024;

/// The definitions that were read, by provider and text.
pub(super) struct Definitions {
    known: HashMap<(String, Arc<str>), Arc<Definition>>,
    shares: Shares,
    said: Vec<String>,
    is_refused: bool,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions { known: HashMap::new(), shares: Shares::new(MOST), said: Vec::new(), is_refused: false }
    }
}

impl Definitions {
    /// The definitions of a file, by the name of the provider in its notes. A file of objects that
    /// were made from several versions of a definition does not say which of them a site has, so it
    /// has none.
    pub(super) fn of_file<'p>(
        &mut self,
        texts: &'p [ProviderText],
        path: &str,
        owner: &Owner,
    ) -> HashMap<&'p str, Option<Arc<Definition>>> {
        let mut all: HashMap<&str, Option<Arc<Definition>>> = HashMap::new();
        for ProviderText { provider, text } in texts {
            let definition = || self.one(provider, text, path, owner);
            all.entry(provider).and_modify(|d| *d = None).or_insert_with(definition);
        }
        all
    }

    /// True if a text had no share, since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    /// What is to be said, since the last call.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    fn one(&mut self, provider: &str, text: &str, path: &str, owner: &Owner) -> Option<Arc<Definition>> {
        let name = provider_name(provider)?;
        let (number, text): (u32, Arc<str>) = (self.known.len() as u32, text.into());
        let key = (name.clone(), text.clone());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        if self.shares.left(owner) == 0 {
            self.is_refused = true;
            let text = format!(
                "what {path} in {owner} says of its providers is not used: it has its share of the {MOST} definitions"
            );
            leave(&mut self.said, text);
            return None;
        }
        self.shares.take(owner, 1);
        let made = Arc::new(Definition { number, provider: name, file: path.to_owned(), text });
        self.known.insert(key, made.clone());
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(provider: &str, text: &str) -> ProviderText {
        ProviderText { provider: provider.into(), text: text.into() }
    }

    fn root() -> Owner {
        Owner::new(1, 0, "")
    }

    #[test]
    fn definitions_of_one_process_leave_some_to_others() {
        let mut all = Definitions::default();
        let (one, other) = (Owner::new(2, 1000, "/a"), Owner::new(3, 1001, "/a"));
        let mut used = |n: usize, path: &str, owner: &Owner| {
            let texts = [text("p", &n.to_string())];
            all.of_file(&texts, path, owner).get("p").is_some_and(Option::is_some)
        };
        assert_eq!((0..MOST).filter(|n| used(*n, "/many", &one)).count(), MOST / 4 * 3 / 8);
        assert!(used(MOST, "/few", &other) && used(MOST + 1, "/few", &root()));
        let said = all.take_said();
        let whose = "what /many in process 2 of user 1000 in cgroup /a says of its providers is not used: ";
        assert!(!said.is_empty() && said.iter().all(|text| text.starts_with(whose)), "{said:?}");
    }

    #[test]
    fn files_with_one_text_have_one_definition() {
        let mut all = Definitions::default();
        let (a, b) = ([text("p", "1"), text("q", "1")], [text("p", "1"), text("q", "2")]);
        let (first, second) = (all.of_file(&a, "/a", &root()), all.of_file(&b, "/b", &root()));
        let number = |of: &HashMap<&str, Option<Arc<Definition>>>, name| {
            of.get(name).and_then(|d| d.as_ref().map(|d| d.number))
        };
        assert_eq!(number(&first, "p"), number(&second, "p"));
        assert_ne!(number(&first, "q"), number(&second, "q"));
        assert_ne!(number(&first, "q"), number(&first, "p"));
        assert_eq!(number(&second, "r"), None);
    }

    #[test]
    fn two_versions_in_one_file_are_none() {
        let mut all = Definitions::default();
        let texts = [text("p", "1"), text("p", "2"), text("a b", "3")];
        let found = all.of_file(&texts, "/a", &root());
        assert_eq!((found.get("p"), found.get("a b")), (Some(&None), Some(&None)));
    }

    #[test]
    fn texts_beyond_the_most_are_not_used() {
        let mut all = Definitions::default();
        for n in 0..=MOST {
            let texts = [text("p", &n.to_string())];
            assert_eq!(
                all.of_file(&texts, "/a", &root()).get("p").is_some_and(Option::is_some),
                n < MOST,
                "{n}"
            );
        }
        let texts = [text("p", "5")];
        assert!(all.of_file(&texts, "/b", &root()).get("p").is_some_and(Option::is_some));
    }
}
