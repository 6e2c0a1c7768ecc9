//! A table of texts, which messages refer to by their places.

use std::collections::HashMap;

/// The texts; the first is empty.
pub(crate) struct Strings {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings { numbers: HashMap::from([(String::new(), 0)]), all: vec![String::new()] }
    }
}

impl Strings {
    /// The place of a text.
    pub(crate) fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }

    /// All of them by their places.
    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }
}
