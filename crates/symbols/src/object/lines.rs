//! Requests for functions and source lines at offsets of files.

use std::sync::Arc;
use std::time::Instant;

use diagnostics::control;
use files::FileId;

use super::{Objects, RETRY_AFTER, file_ref};
use crate::client::Reader;
use crate::sources::SourceFrame;
use crate::wire::{MAX_NUMBERS, Request, Response};

impl Objects {
    /// The functions and lines at an offset of a file, if they were resolved before.
    pub(crate) fn known_sources(&self, id: FileId, offset: u64) -> Option<&Arc<[SourceFrame]>> {
        self.objects.get(&id)?.sources.known.get(&offset)
    }

    /// Requests the functions and lines at offsets of one file. Afterwards
    /// [`Objects::known_sources`] has the results of the requests that succeeded.
    pub(crate) fn resolve_sources(&mut self, id: FileId, offsets: &[u64], reader: &mut Reader) {
        let most = reader.limits().memory as usize / 4;
        if self.bytes > most {
            self.forget_names();
        }
        self.files.touch(id);
        let raw = self.raw_names;
        let Some(mapped) = self.files.get(id) else { return };
        let sources = &mut self.objects.entry(id).or_default().sources;
        let is_unknown = mapped.inode == 0 && mapped.build_id.is_none();
        if is_unknown || sources.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return;
        }
        let is_new = |offset: &u64| !sources.known.contains_key(offset);
        let mut wanted: Vec<u64> = offsets.iter().copied().filter(is_new).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for part in wanted.chunks(MAX_NUMBERS) {
            if self.bytes > most {
                // The others are resolved when they are printed.
                return;
            }
            let (file, fds) = file_ref(&self.files, id, mapped);
            let request = Request::Lines { file, raw, offsets: part.to_vec() };
            let why = match reader.query(&request, &fds) {
                Ok((responses, None)) => {
                    let list = |(response, _)| match response {
                        Response::Lines(list) => list,
                        _ => Vec::new(),
                    };
                    let found = responses.into_iter().flat_map(list);
                    let found = found.chain(std::iter::repeat_with(Vec::new));
                    for (offset, frames) in part.iter().zip(found) {
                        sources.add(*offset, frames, &mut self.bytes);
                    }
                    continue;
                }
                Ok((_, Some(failure))) => failure.why,
                Err(error) if !error.excludes_object() => return,
                Err(_) => "it takes too long or too much memory (options symtimeout and symmem)".into(),
            };
            sources.failed_at = Some(Instant::now());
            let path = control::name(&mapped.path).into_owned();
            reader.report_once("lines", || {
                format!("reading the source lines of {path} failed: {why}; they are not shown, nor inlined functions")
            });
            return;
        }
    }
}
