//! The probes that the files of a process describe.

use files::FileId;

use super::Processes;
use crate::usdt::{DescribedProbes, ProviderText};
use crate::wire::{MAX_NUMBERS, Request, Response};

/// The most sites of a file that are taken from the reader.
const MAX_SITES: usize = 1 << 16;

/// The most bytes of definitions of a file.
const MAX_TEXT: usize = 2 << 20;

impl Processes {
    /// A number of a file that no other file ever has. (That of a [`FileId`] is given again after
    /// too many files were seen.)
    pub fn file_number(&self, id: FileId) -> u64 {
        self.objects.files().unique_number(id)
    }

    /// Those of some processes that run a file which describes probes of a provider, which may be a
    /// glob. `first`: files may have changed since the last call. The caller asks for a few hundred
    /// at a time, because an error says nothing of any of them.
    pub fn describing(&mut self, provider: &str, first: bool, pids: &[u32]) -> Result<Vec<u32>, String> {
        let (provider, pids) =
            (provider.to_owned(), pids.get(..pids.len().min(MAX_NUMBERS)).unwrap_or_default());
        let request = Request::Describing { provider, first, pids: pids.to_vec() };
        let responses = self.ask_of_none("what processes describe", &request)?;
        let found = responses.into_iter().filter_map(|response| match response {
            Response::Describing(found) => Some(found),
            _ => None,
        });
        Ok(found.flatten().filter(|pid| pids.contains(pid)).collect())
    }

    /// The probes that a file describes. The error says in words why they are not known. The answer
    /// of a file does not change while it is mapped, so the caller remembers it.
    pub fn described_probes(&mut self, id: FileId) -> Result<DescribedProbes, String> {
        const PROBES: &str = "the probes";
        let responses = self.ask(id, PROBES, Request::Sites)?.unwrap_or_default();
        let (mut sites, mut text) = (Vec::new(), Vec::new());
        for response in responses {
            match response {
                Response::Sites(more) => sites.extend(more),
                Response::Definitions(part) => text.extend(part),
                _ => continue,
            }
            if sites.len() > MAX_SITES || text.len() > MAX_TEXT {
                return Err(self.unusable(id, PROBES, "the reader's answer is too long"));
            }
        }
        let mut texts = text.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()));
        let mut providers = Vec::new();
        while let (Some(Ok(provider)), Some(Ok(text))) = (texts.next(), texts.next()) {
            providers.push(ProviderText { provider, text });
        }
        Ok(DescribedProbes { sites, providers })
    }
}
