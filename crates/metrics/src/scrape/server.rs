//! The process that serves: it has no privileges, no environment, and no file but its two sockets.
//!
//! Nobody who connects delays another. A request has little time to be complete, an answer has
//! some; where all places are taken, a new connection takes that of the one which has waited
//! longest without a request, or else of the one that reads longest. All answers of a state share
//! its bytes, and where old states that are still being read have too many, their readers are
//! ended.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::request::{self, LONGEST};

/// What it says when it has no privileges any more. Anything else is why it has.
pub(super) const READY: &[u8] = b"ready";
/// The longest state. The text of metrics has a lower limit.
const LONGEST_STATE: usize = 32 << 20;
/// The most connections at a time.
const CONNECTIONS: usize = 16;
/// How long a request may take, and the whole of a connection.
const LIMITS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// The most bytes of all states that are kept: the last one, and those that are being read.
const KEPT: usize = 2 * LONGEST_STATE;
/// The user and group that own nothing.
const NOBODY: libc::uid_t = 65534;

/// A connection.
struct Client {
    stream: UnixStream,
    begun: Instant,
    request: Vec<u8>,
    /// What is sent, after the request is complete.
    answer: Option<Sent>,
}

/// An answer that is being sent.
struct Sent {
    head: Vec<u8>,
    body: Option<Rc<State>>,
    written: usize,
}

/// What is served.
#[derive(Default)]
struct State {
    number: u64,
    bytes: Vec<u8>,
}

/// The states as they come from the session.
#[derive(Default)]
struct States {
    /// What has come of the next one, with its length before it.
    next: Vec<u8>,
    latest: Rc<State>,
}

/// Serves at an address until the session ends; the exit status. It says first that it serves, or
/// why it does not.
pub fn run(address: &str) -> u8 {
    threads::accept_signals();
    let left = leave_privileges();
    // SAFETY: who executes this process with its word passes two sockets as these descriptors, and
    // nothing else here has them.
    let (mut session, listener) =
        unsafe { (UnixStream::from_raw_fd(libc::STDIN_FILENO), OwnedFd::from_raw_fd(libc::STDOUT_FILENO)) };
    if let Err(why) = left {
        let _ = session.write_all(why.as_bytes());
        return 1;
    }
    let served = session.write_all(READY);
    let loopback = request::is_own_address(address);
    u8::from(served.and_then(|()| serve(session, &listener, loopback, LIMITS)).is_err())
}

/// Gives away what a process may do beyond computing and using its sockets.
fn leave_privileges() -> Result<(), String> {
    let zero = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let files = libc::rlimit { rlim_cur: CONNECTIONS as u64 + 8, rlim_max: CONNECTIONS as u64 + 8 };
    // Version 3 of the interface.
    let mut header = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    // SAFETY: plain system calls with structs of this frame. There is one thread.
    unsafe {
        if libc::geteuid() == 0 {
            let groups = libc::setgroups(0, std::ptr::null());
            // A namespace in which nobody may change them, as one of a user without privileges.
            let denied = || std::fs::read("/proc/self/setgroups").is_ok_and(|text| text == b"deny\n");
            if groups != 0 && !denied() {
                return Err(refused("setgroups"));
            }
            if libc::setresgid(NOBODY, NOBODY, NOBODY) != 0 && !is_unmapped() {
                return Err(refused("setresgid"));
            }
            if libc::setresuid(NOBODY, NOBODY, NOBODY) != 0 && !is_unmapped() {
                return Err(refused("setresuid"));
            }
        }
        // Who started the command may have left some open.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const zero);
        libc::setrlimit(libc::RLIMIT_NPROC, &raw const zero);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const zero);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        if libc::syscall(libc::SYS_capset, header.as_mut_ptr(), none.as_ptr()) != 0 {
            return Err(refused("capset"));
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0
        {
            return Err(refused("prctl"));
        }
    }
    Ok(())
}

/// Whether a user or group is not in the namespace of this process, which is then nobody's root
/// outside of it. In the first namespace all are.
fn is_unmapped() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

fn refused(call: &str) -> String {
    let why = diagnostics::system_text(&io::Error::last_os_error());
    format!("who serves must not be root, and {call}() fails: {why} (it needs CAP_SETUID and CAP_SETGID)")
}

fn serve(
    session: UnixStream,
    listener: &OwnedFd,
    loopback: bool,
    [request, whole]: [Duration; 2],
) -> io::Result<()> {
    session.set_nonblocking(true)?;
    let mut states = States::default();
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let wait = |fd: &dyn AsRawFd, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        let mut all = vec![wait(&session, libc::POLLIN)];
        all.extend(clients.iter().map(|client| {
            wait(&client.stream, if client.answer.is_some() { libc::POLLOUT } else { libc::POLLIN })
        }));
        all.push(wait(listener, libc::POLLIN));
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
        clients.retain_mut(|client| {
            let limit = if client.answer.is_some() { whole } else { request };
            client.go_on(&states, loopback) && now.duration_since(client.begun) < limit
        });
        end_old_readers(&mut clients, &states.latest);
        if let Some(stream) = accept(listener) {
            if clients.len() >= CONNECTIONS {
                // They are in the order in which they came.
                let idle = clients.iter().position(|client| client.answer.is_none());
                clients.remove(idle.unwrap_or(0));
            }
            clients.push(Client { stream, begun: now, request: Vec::new(), answer: None });
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

/// Ends the connections that read the oldest states, while all that are kept have too many bytes.
fn end_old_readers(clients: &mut Vec<Client>, latest: &Rc<State>) {
    loop {
        let mut kept = vec![latest.clone()];
        for state in clients.iter().filter_map(Client::state) {
            if kept.iter().all(|other| other.number != state.number) {
                kept.push(state.clone());
            }
        }
        let bytes: usize = kept.iter().map(|state| state.bytes.len()).sum();
        let oldest = kept.iter().map(|state| state.number).min().unwrap_or(latest.number);
        if bytes <= KEPT || oldest == latest.number {
            return;
        }
        clients.retain(|client| client.state().is_none_or(|state| state.number != oldest));
    }
}

impl States {
    /// Reads what is there. False: the session has ended.
    fn receive(&mut self, mut session: &UnixStream) -> io::Result<bool> {
        let mut bytes = [0; 64 << 10];
        loop {
            match session.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(n) => self.next.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            while let Some((length, rest)) = self.next.split_first_chunk::<8>() {
                let length = u64::from_le_bytes(*length) as usize;
                if length > LONGEST_STATE {
                    return Err(io::Error::other("too long"));
                }
                if rest.len() < length {
                    break;
                }
                let following = self.next.split_off(8 + length);
                let mut bytes = std::mem::replace(&mut self.next, following);
                bytes.drain(..8);
                self.latest = Rc::new(State { number: self.latest.number + 1, bytes });
            }
        }
    }
}

impl Client {
    /// The state that is being read.
    fn state(&self) -> Option<&Rc<State>> {
        self.answer.as_ref()?.body.as_ref()
    }

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
                if let Some(answer) = request::answer(&self.request, loopback) {
                    let head = answer.bytes(states.latest.bytes.len());
                    let body = answer.has_metrics().then(|| states.latest.clone());
                    self.answer = Some(Sent { head, body, written: 0 });
                    break;
                }
                if self.request.len() > LONGEST {
                    return false;
                }
            }
        }
        let Some(sent) = &mut self.answer else { return true };
        loop {
            let body = sent.body.as_ref().map_or(&[][..], |state| &state.bytes);
            let bytes = match sent.written.checked_sub(sent.head.len()) {
                None => sent.head.get(sent.written..),
                Some(of_body) => body.get(of_body..),
            };
            match bytes.filter(|bytes| !bytes.is_empty()).map(|bytes| self.stream.write(bytes)) {
                None | Some(Ok(0)) => return false,
                Some(Ok(n)) => sent.written += n,
                Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Some(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Some(Err(_)) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const REQUEST: &[u8] = b"GET /metrics HTTP/1.0\r\n\r\n";
    /// None is reached.
    const NONE: [Duration; 2] = [Duration::from_secs(1 << 20); 2];

    /// A process that serves, as a thread; it ends with its session.
    struct Served {
        session: UnixStream,
        path: std::path::PathBuf,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Served {
        fn new(name: &str, limits: [Duration; 2]) -> Served {
            let path = std::env::temp_dir().join(format!("dtrace-{name}-{}", std::process::id()));
            let (session, other) = UnixStream::pair().unwrap();
            let listener = OwnedFd::from(UnixListener::bind(&path).unwrap());
            let serve = move || drop(serve(other, &listener, false, limits));
            Served { session, path, thread: Some(std::thread::spawn(serve)) }
        }

        fn publish(&self, bytes: &[u8]) {
            let length = (bytes.len() as u64).to_le_bytes();
            (&self.session).write_all(&[&length, bytes].concat()).unwrap();
        }

        fn connect(&self) -> UnixStream {
            let stream = UnixStream::connect(&self.path).unwrap();
            stream.set_read_timeout(Some(testing::HANG_LIMIT)).unwrap();
            stream
        }

        /// What is answered to a request.
        fn answer(&self) -> String {
            let mut stream = self.connect();
            stream.write_all(REQUEST).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.session.shutdown(std::net::Shutdown::Both).unwrap();
            self.thread.take().unwrap().join().unwrap();
            std::fs::remove_file(&self.path).unwrap();
        }
    }

    /// Whether the server has ended a connection.
    fn has_ended(mut stream: &UnixStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        !stream.read(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn a_request_takes_the_place_of_who_has_waited_longest_without_one() {
        let served = Served::new("idle", NONE);
        served.publish(b"a 1\n");
        let idle: Vec<UnixStream> = (0..CONNECTIONS).map(|_| served.connect()).collect();
        assert!(served.answer().ends_with("\r\n\r\na 1\n"));
        assert!(has_ended(&idle[0]));
        assert!(idle[1..].iter().all(|stream| !has_ended(stream)));
    }

    #[test]
    fn who_reads_slowly_delays_nobody_and_has_the_state_that_was_asked_for() {
        let served = Served::new("slow", NONE);
        let large = vec![b'x'; 4 << 20];
        served.publish(&large);
        let mut slow: Vec<UnixStream> = (0..CONNECTIONS).map(|_| served.connect()).collect();
        slow.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
        // Each has something, so each request was read.
        slow.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 15]).unwrap());
        served.publish(b"b 2\n");
        testing::eventually("the next state is served", testing::HANG_LIMIT, || {
            served.answer().ends_with("\r\n\r\nb 2\n")
        });
        let mut last = Vec::new();
        slow[CONNECTIONS - 1].read_to_end(&mut last).unwrap();
        assert!(last.ends_with(&large));
    }

    #[test]
    fn states_that_are_still_being_read_are_bounded() {
        let state = |number, length| Rc::new(State { number, bytes: vec![0; length] });
        let client = |state: &Rc<State>| Client {
            stream: UnixStream::pair().unwrap().0,
            begun: Instant::now(),
            request: Vec::new(),
            answer: Some(Sent { head: Vec::new(), body: Some(state.clone()), written: 0 }),
        };
        let all = [state(1, KEPT / 4), state(2, KEPT / 2), state(3, KEPT / 4)];
        let mut clients: Vec<Client> = all.iter().chain(&all).map(client).collect();
        end_old_readers(&mut clients, &all[2]);
        assert_eq!(clients.len(), 6, "two readers of a state share it");
        end_old_readers(&mut clients, &state(4, 1));
        let numbers: Vec<u64> =
            clients.iter().map(|c| c.answer.as_ref().unwrap().body.as_ref().unwrap().number).collect();
        assert_eq!(numbers, [2, 3, 2, 3]);
    }

    #[test]
    fn a_request_and_an_answer_have_their_time() {
        let served = Served::new("late", [Duration::ZERO, NONE[1]]);
        let mut idle = served.connect();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "nothing was asked");
    }

    #[test]
    fn the_whole_of_a_connection_has_its_time() {
        let served = Served::new("whole", [NONE[0], Duration::ZERO]);
        let large = vec![b'x'; 4 << 20];
        served.publish(&large);
        let mut slow = served.connect();
        slow.write_all(REQUEST).unwrap();
        slow.read_exact(&mut [0; 15]).unwrap();
        let mut others = Vec::new();
        // It has not taken all of it when its time is over.
        testing::eventually("it is ended", testing::HANG_LIMIT, || {
            others.push(served.connect());
            let mut end = libc::pollfd { fd: slow.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
            // SAFETY: one element.
            unsafe { libc::poll(&raw mut end, 1, 0) };
            end.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0
        });
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < large.len(), "{}", rest.len());
    }
}
