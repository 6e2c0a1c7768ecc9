//! One descriptor for all that a session waits for.
//!
//! The descriptors of a session change: a target ends, a snapshot begins. A program in C polls one
//! that stays. It is an `epoll` with one member, another `epoll` that has the session's descriptors
//! and is made anew after each call: removing single ones is not possible where one was closed and
//! its number is another's.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// See the module.
pub(crate) struct Poll {
    all: OwnedFd,
    members: OwnedFd,
}

fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new and ours.
    unsafe {
        let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn change(epoll: &OwnedFd, operation: i32, member: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the event outlives the call.
    let done = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, member.as_raw_fd(), &raw mut event) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Poll {
    pub(crate) fn new(fds: &[BorrowedFd<'_>]) -> io::Result<Poll> {
        let mut poll = Poll { all: epoll()?, members: epoll()? };
        change(&poll.all, libc::EPOLL_CTL_ADD, poll.members())?;
        poll.set(fds)?;
        Ok(poll)
    }

    fn members(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.members)
    }

    /// From now on it is readable when one of these is. Where no descriptor is free, those that are
    /// there stay in it until the next call: it may be readable without need then.
    pub(crate) fn set(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let is_full = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        let members = match epoll() {
            Err(e) if is_full(&e) => return self.add(fds),
            made => made?,
        };
        for fd in fds {
            change(&members, libc::EPOLL_CTL_ADD, *fd)?;
        }
        change(&self.all, libc::EPOLL_CTL_ADD, std::os::fd::AsFd::as_fd(&members))?;
        change(&self.all, libc::EPOLL_CTL_DEL, self.members())?;
        self.members = members;
        Ok(())
    }

    /// Adds those that are not in it.
    fn add(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        for fd in fds {
            match change(&self.members, libc::EPOLL_CTL_ADD, *fd) {
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
                done => done?,
            }
        }
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.all.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn is_ready(poll: &Poll) -> bool {
        let mut entry = libc::pollfd { fd: poll.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut entry, 1, 0) == 1 }
    }

    #[test]
    fn it_is_readable_when_a_present_member_is_and_its_number_stays() {
        let ((one, mut to_one), (two, mut to_two)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let mut poll = Poll::new(&[one.as_fd()]).unwrap();
        let number = poll.descriptor();
        to_two.write_all(b"x").unwrap();
        assert!(!is_ready(&poll));
        poll.set(&[one.as_fd(), two.as_fd()]).unwrap();
        assert!(is_ready(&poll));
        poll.set(&[one.as_fd()]).unwrap();
        assert!(!is_ready(&poll));
        to_one.write_all(b"x").unwrap();
        assert!(is_ready(&poll));
        poll.set(&[]).unwrap();
        assert!(!is_ready(&poll));
        assert_eq!(poll.descriptor(), number);
    }

    #[test]
    fn members_are_added_when_no_descriptor_is_free() {
        let ((one, _to_one), (two, mut to_two)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let mut poll = Poll::new(&[one.as_fd()]).unwrap();
        poll.add(&[one.as_fd(), two.as_fd()]).unwrap();
        assert!(!is_ready(&poll));
        to_two.write_all(b"x").unwrap();
        assert!(is_ready(&poll));
    }
}
