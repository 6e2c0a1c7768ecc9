//! The process that serves: it has no privileges, no environment, and no file but its two sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::http::{self, LONGEST};

/// The most connections at a time.
const CONNECTIONS: usize = 16;
/// How long one may last.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest state.
const LONGEST_STATE: u64 = 1 << 30;
/// The user and group that own nothing.
const NOBODY: libc::uid_t = 65534;

/// A connection.
struct Client {
    stream: UnixStream,
    end: Instant,
    request: Vec<u8>,
    /// What is still to be written; `None` before the request is complete.
    answer: Option<(Vec<u8>, usize)>,
}

/// The states as they come from the session.
#[derive(Default)]
struct States {
    bytes: Vec<u8>,
    latest: Vec<u8>,
}

/// Serves at an address until the session ends; the exit status.
pub(crate) fn run(address: &str) -> u8 {
    if !leave_privileges() {
        return 1;
    }
    // SAFETY: who executes this process with its word passes two sockets as these descriptors, and
    // nothing else here has them.
    let (session, listener) =
        unsafe { (UnixStream::from_raw_fd(libc::STDIN_FILENO), OwnedFd::from_raw_fd(libc::STDOUT_FILENO)) };
    u8::from(serve(session, &listener, http::is_own_address(address)).is_err())
}

/// Gives away what a process may do beyond computing and using its sockets.
fn leave_privileges() -> bool {
    let zero = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let files = libc::rlimit { rlim_cur: CONNECTIONS as u64 + 8, rlim_max: CONNECTIONS as u64 + 8 };
    // Version 3 of the interface.
    let mut header = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    // SAFETY: plain system calls with structs of this frame. There is one thread.
    unsafe {
        if libc::geteuid() == 0 {
            // They fail in a namespace without other users; then it is no one's root.
            libc::setgroups(0, std::ptr::null());
            libc::setresgid(NOBODY, NOBODY, NOBODY);
            libc::setresuid(NOBODY, NOBODY, NOBODY);
        }
        // Who started the command may have left some open.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const zero);
        libc::setrlimit(libc::RLIMIT_NPROC, &raw const zero);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const zero);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        libc::syscall(libc::SYS_capset, header.as_mut_ptr(), none.as_ptr()) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    }
}

fn serve(session: UnixStream, listener: &OwnedFd, loopback: bool) -> io::Result<()> {
    session.set_nonblocking(true)?;
    let mut states = States::default();
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let wait = |fd: &dyn AsRawFd, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        let mut all = vec![wait(&session, libc::POLLIN)];
        all.extend(clients.iter().map(|client| {
            wait(&client.stream, if client.answer.is_some() { libc::POLLOUT } else { libc::POLLIN })
        }));
        if clients.len() < CONNECTIONS {
            all.push(wait(listener, libc::POLLIN));
        }
        let timeout = if clients.is_empty() { -1 } else { 1000 };
        // SAFETY: the array is as long as is said.
        let ready = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, timeout) };
        if ready < 0 {
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e => return Err(e),
            }
        }
        if !states.receive(&session)? {
            return Ok(());
        }
        let now = Instant::now();
        clients.retain_mut(|client| now < client.end && client.go_on(&states, loopback));
        if clients.len() < CONNECTIONS
            && let Some(stream) = accept(listener)
        {
            clients.push(Client { stream, end: now + LIMIT, request: Vec::new(), answer: None });
        }
    }
}

/// A connection that waits, if one does.
fn accept(listener: &OwnedFd) -> Option<UnixStream> {
    let mut waiting = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element, plain system calls; the descriptor is new and nobody else's.
    unsafe {
        if libc::poll(&raw mut waiting, 1, 0) != 1 {
            return None;
        }
        let (none, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let fd = libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags);
        (fd >= 0).then(|| UnixStream::from_raw_fd(fd))
    }
}

impl States {
    /// Reads what is there. False: the session has ended.
    fn receive(&mut self, mut session: &UnixStream) -> io::Result<bool> {
        let mut bytes = [0; 64 << 10];
        loop {
            match session.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(n) => self.bytes.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            while let Some((length, rest)) = self.bytes.split_first_chunk::<8>() {
                let length = u64::from_le_bytes(*length);
                if length > LONGEST_STATE {
                    return Err(io::Error::other("too long"));
                }
                let Some(state) = rest.get(..length as usize) else { break };
                self.latest = state.to_vec();
                self.bytes.drain(..8 + length as usize);
            }
        }
    }
}

impl Client {
    /// Reads and writes what can be. False: it is done with, or gone.
    fn go_on(&mut self, states: &States, loopback: bool) -> bool {
        if self.answer.is_none() {
            let mut bytes = [0; 1024];
            loop {
                match self.stream.read(&mut bytes) {
                    Ok(0) => return false,
                    Ok(n) => self.request.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return false,
                }
                if let Some(answer) = http::answer(&self.request, loopback) {
                    self.answer = Some((answer.bytes(&states.latest), 0));
                    break;
                }
                if self.request.len() > LONGEST {
                    return false;
                }
            }
        }
        let Some((bytes, written)) = &mut self.answer else { return true };
        loop {
            match self.stream.write(bytes.get(*written..).unwrap_or_default()) {
                Ok(0) => return false,
                Ok(n) => *written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if *written >= bytes.len() {
                return false;
            }
        }
    }
}
