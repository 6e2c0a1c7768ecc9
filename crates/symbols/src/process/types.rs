//! The types of the files of a process.

use super::Processes;
use super::ask::MALFORMED;
use super::functions::MappedText;
use crate::wire::{Request, Response, types};
use debuginfo::{Answer, Query};

impl Processes {
    /// Asks for types of a file that a process has mapped. Addresses in the answer are those of the
    /// process, if it has mapped the file in the usual way. The error says in words why types are
    /// not known.
    pub fn types(&mut self, text: &MappedText, query: &Query) -> Result<Answer, String> {
        let id = text.file;
        if !types::fits(query) {
            return Ok(Answer::default());
        }
        const TYPES: &str = "the types";
        let request = |file| Request::Types { file, offset: text.offset, query: query.clone() };
        let Some(responses) = self.ask(id, TYPES, request)? else {
            return Err(self.unusable(id, TYPES, "it is no file on a disk"));
        };
        let mut bytes = Vec::new();
        for response in responses {
            if let Response::Types(part) = response
                && bytes.len() + part.len() <= types::MAX_ANSWER
            {
                bytes.extend(part);
            }
        }
        let malformed = || self.unusable(id, TYPES, MALFORMED);
        let (mut answer, base) = types::decode(&bytes).ok_or_else(malformed)?;
        let moved = base.map(|base| text.start.wrapping_sub(base));
        answer.address = answer.address.zip(moved).map(|(address, moved)| address.wrapping_add(moved));
        Ok(answer)
    }
}
