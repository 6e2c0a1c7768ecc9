//! What the reader answers of a file of a process.

use std::os::fd::BorrowedFd;

use diagnostics::control;
use files::FileId;

use super::Processes;
use crate::client::{Reader, RequestError};
use crate::object;
use crate::wire::{FileRef, Request, Response};

/// Why an answer of the reader cannot be used.
pub(super) const MALFORMED: &str = "the reader's answer is malformed";

impl Processes {
    /// Asks the reader for `subject` of a file, as "the functions". `None`: it is no file on a
    /// disk, and has none. The error says in words why there is no answer.
    pub(super) fn ask(
        &mut self,
        id: FileId,
        subject: &str,
        request: impl FnOnce(FileRef) -> Request,
    ) -> Result<Option<Vec<Response>>, String> {
        self.objects.files_mut().touch(id);
        let Some(mapped) = self.objects.files().get(id) else {
            return Err("the file is not known any more".into());
        };
        if mapped.inode == 0 && mapped.build_id.is_none() {
            return Ok(None);
        }
        let (file, fds) = object::file_ref(self.objects.files(), id, mapped);
        let answer = responses(&mut self.reader, &request(file), &fds);
        answer.map(Some).map_err(|why| unreadable(subject, &mapped.path, &why))
    }

    /// Asks the reader for what is of no file.
    pub(super) fn ask_of_none(&mut self, subject: &str, request: &Request) -> Result<Vec<Response>, String> {
        responses(&mut self.reader, request, &[]).map_err(|why| format!("{subject} cannot be read: {why}"))
    }

    /// The error for an answer about a file that cannot be used.
    pub(super) fn unusable(&self, id: FileId, subject: &str, why: &str) -> String {
        let path = self.objects.files().get(id).map_or(&[][..], |file| &file.path);
        unreadable(subject, path, why)
    }
}

fn unreadable(subject: &str, path: &[u8], why: &str) -> String {
    format!("{subject} of {} cannot be read: {why}", control::name(path))
}

fn responses(
    reader: &mut Reader,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<Vec<Response>, String> {
    let answer = reader.query(request, fds);
    let limits = reader.limits();
    match answer {
        Ok((_, Some(failure))) => Err(failure.why),
        Ok((responses, None)) => Ok(responses.into_iter().map(|(response, _)| response).collect()),
        Err(error @ (RequestError::Timeout | RequestError::Working)) => {
            Err(format!("it takes {}", limits.exceeded(error)))
        }
        Err(RequestError::Failed) => {
            let mb = limits.memory >> 20;
            Err(format!(
                "the process that reads it failed, perhaps for want of memory (option symmem, {mb}m)"
            ))
        }
        Err(RequestError::Interrupted) => Err("the reading was interrupted".into()),
        Err(RequestError::Unavailable) => Err("there is no process that reads symbols".into()),
    }
}
