//! What files say of their providers, each text once.

use std::collections::HashMap;
use std::sync::Arc;

use probes::Definition;
use symbols::ProviderText;
use usdt::provider_name;

/// The most texts of a session. What files say beyond is not used.
const MOST: usize = 1024;

/// The definitions that were read, by provider and text.
#[derive(Default)]
pub(super) struct Definitions {
    known: HashMap<(String, Arc<str>), Arc<Definition>>,
}

impl Definitions {
    /// The definitions of a file, by the name of the provider in its notes. A file of objects that were made from
    /// several versions of a definition does not say which of them a site has, so it has none.
    pub(super) fn of_file<'p>(
        &mut self,
        texts: &'p [ProviderText],
        path: &str,
    ) -> HashMap<&'p str, Option<Arc<Definition>>> {
        let mut all: HashMap<&str, Option<Arc<Definition>>> = HashMap::new();
        for ProviderText { provider, text } in texts {
            let definition = || self.one(provider, text, path);
            all.entry(provider).and_modify(|d| *d = None).or_insert_with(definition);
        }
        all
    }

    fn one(&mut self, provider: &str, text: &str, path: &str) -> Option<Arc<Definition>> {
        let name = provider_name(provider)?;
        let (number, text): (u32, Arc<str>) = (self.known.len() as u32, text.into());
        let key = (name.clone(), text.clone());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        if self.known.len() >= MOST {
            return None;
        }
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

    #[test]
    fn files_with_one_text_have_one_definition() {
        let mut all = Definitions::default();
        let (a, b) = ([text("p", "1"), text("q", "1")], [text("p", "1"), text("q", "2")]);
        let (first, second) = (all.of_file(&a, "/a"), all.of_file(&b, "/b"));
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
        let found = all.of_file(&texts, "/a");
        assert_eq!((found.get("p"), found.get("a b")), (Some(&None), Some(&None)));
    }

    #[test]
    fn texts_beyond_the_most_are_not_used() {
        let mut all = Definitions::default();
        for n in 0..=MOST {
            let texts = [text("p", &n.to_string())];
            assert_eq!(all.of_file(&texts, "/a").get("p").is_some_and(Option::is_some), n < MOST, "{n}");
        }
        let texts = [text("p", "5")];
        assert!(all.of_file(&texts, "/b").get("p").is_some_and(Option::is_some));
    }
}
