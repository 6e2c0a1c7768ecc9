//! Tables by which stacks are walked, of files that are so large that others are read meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use files::FileId;

use super::Processes;
use super::frames::table_of;
use crate::client::{Limits, Reader};
use crate::frames::FrameTable;
use crate::object;
use crate::pool::Readers;
use crate::wire::Request;

/// A file whose table is asked for, with the descriptors that a reader needs to find it.
#[derive(Debug)]
pub struct FrameRequest {
    request: Request,
    fds: Vec<OwnedFd>,
}

impl Processes {
    /// Asks for the table of a file. `None`: it is not known any more, or is no file on a disk.
    pub fn frame_request(&mut self, id: FileId) -> Option<FrameRequest> {
        self.objects.files_mut().touch(id);
        let mapped = self.objects.files().get(id)?;
        if mapped.inode == 0 && mapped.build_id.is_none() {
            return None;
        }
        let (file, fds) = object::file_ref(self.objects.files(), id, mapped);
        let fds = fds.into_iter().map(|fd| fd.try_clone_to_owned()).collect::<Result<_, _>>().ok()?;
        Some(FrameRequest { request: Request::Frames(Some(file)), fds })
    }
}

/// Reads tables in the background, beside a [`Processes`].
pub struct FrameReader(Reader);

impl FrameReader {
    /// With these limits for each file.
    pub fn new(readers: &Readers, time: Duration, memory: u64) -> FrameReader {
        let mut reader = Reader::new(readers, Limits::of_time(time, memory));
        reader.work_in_background();
        FrameReader(reader)
    }

    /// The table. `None`: it could not be read; within, that the file has none.
    pub fn read(&mut self, asked: &FrameRequest) -> Option<Option<FrameTable>> {
        let fds: Vec<BorrowedFd<'_>> = asked.fds.iter().map(AsFd::as_fd).collect();
        let (responses, failure) = self.0.query(&asked.request, &fds).ok()?;
        let responses = responses.into_iter().map(|(response, _)| response);
        failure.is_none().then(|| table_of(responses))?
    }
}
