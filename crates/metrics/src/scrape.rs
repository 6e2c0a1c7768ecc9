//! `-x listen`: metrics for Prometheus, served by a process of its own.
//!
//! ```text
//!  session ──> the last state ──thread──> socket pair ──> process without privileges <──HTTP── who scrapes
//! ```
//!
//! Whoever can connect gives this process bytes to parse, so it is not the one with the privileges.
//! It is this executable again, and has a socket for states and one that listens; the session never
//! waits for it. It ends with the session, whatever ends that: then its socket is at its end.
//!
//! If it ends before, the thread starts another one with the same listener, so that who asks
//! meanwhile waits. It does so at once, then after pauses that grow, and both the first time and
//! the number are said.

mod server;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use events::socket::{Place, listen};
use server::READY;
pub use server::run;

/// The word by which the executable is the process that serves.
pub const WORD: &str = "--serve-metrics";
/// How long it may take to begin, and to end.
const LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_secs(1);
/// How long the thread waits before it starts the process again: the first time, and at most. One
/// that has run for longer is started as the first time.
const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_secs(60)];

/// The process that serves, and the thread that gives it states.
pub struct Server(Arc<Shared>);

struct Shared {
    address: String,
    listener: OwnedFd,
    /// Of a listener in the file system.
    path: Option<Place>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// What is served, and whether the process has it.
    latest: Arc<Vec<u8>>,
    given: bool,
    /// How often it was started again.
    again: u64,
    /// That it has ended, until another one serves, and why none can.
    ended: Option<String>,
    failed: Option<String>,
    /// What is to be said: the port that was chosen; once that it was started again, and once that
    /// it cannot be.
    messages: Vec<String>,
    told: [bool; 2],
    closed: bool,
}

/// The process, and the socket to it.
struct Running {
    child: Child,
    socket: UnixStream,
    begun: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process. An error is why it does not serve.
    fn begin(&self) -> io::Result<Running> {
        let (mut socket, other) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .args([WORD, &self.address])
            .env_clear()
            .stdin(OwnedFd::from(other))
            .stdout(self.listener.try_clone()?)
            .stderr(Stdio::null())
            // An interrupt of the terminal is for the session.
            .process_group(0)
            .spawn()?;
        let mut said = Vec::new();
        socket.set_read_timeout(Some(LIMIT))?;
        socket.set_write_timeout(Some(LIMIT))?;
        let mut bytes = [0; 256];
        while said != READY {
            match socket.read(&mut bytes) {
                Ok(n) if n > 0 => said.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                _ => break,
            }
        }
        let running = Running { child, socket, begun: Instant::now() };
        if said == READY {
            return Ok(running);
        }
        running.end();
        Err(match said.is_empty() {
            true => io::Error::other("the process that serves has not begun"),
            false => io::Error::other(String::from_utf8_lossy(&said).into_owned()),
        })
    }

    /// Gives states to the process, and starts it again when it has ended.
    fn deliver(&self) {
        let mut pause = PAUSES[0];
        loop {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            let ended = state.running.as_mut().and_then(|running| running.child.try_wait().ok().flatten());
            if let Some(status) = ended {
                let ran = state.running.take().map(|running| running.begun.elapsed());
                pause = if ran > Some(PAUSES[1]) { PAUSES[0] } else { pause };
                state.ended = Some(format!("the process that serves has ended ({status})"));
            }
            if state.running.is_none() {
                let waited = self.changed.wait_timeout_while(state, pause, |state| !state.closed);
                drop(waited);
                pause = (pause * 2).clamp(LOOK, PAUSES[1]);
                self.begin_again();
                continue;
            }
            let socket = state.running.as_ref().and_then(|running| running.socket.try_clone().ok());
            let (false, Some(mut socket)) = (state.given, socket) else {
                drop(self.changed.wait_timeout(state, LOOK));
                continue;
            };
            state.given = true;
            let bytes = state.latest.clone();
            drop(state);
            let length = (bytes.len() as u64).to_le_bytes();
            if socket.write_all(&length).and_then(|()| socket.write_all(&bytes)).is_err() {
                // It has ended, or takes nothing: it is ended, and another one has the state.
                let mut state = self.lock();
                if let Some(running) = state.running.take().filter(|_| !state.closed) {
                    drop(state);
                    let status = running.end();
                    let how = status.map_or_else(|| "it does not end".into(), |status| status.to_string());
                    self.lock().ended = Some(format!("the process that serves has ended ({how})"));
                }
            }
        }
    }

    fn begin_again(&self) {
        if self.lock().closed {
            return;
        }
        let begun = self.begin();
        let mut state = self.lock();
        match begun {
            Ok(running) if state.closed => _ = running.end(),
            Ok(running) => {
                state.running = Some(running);
                state.again += 1;
                (state.given, state.failed) = (false, None);
                state.tell(0, "it was started again");
            }
            Err(e) => {
                state.failed = Some(e.to_string());
                state.tell(1, &format!("it cannot be started again: {e} (it is tried once a minute)"));
            }
        }
    }
}

impl State {
    /// Says once what became of the process that has ended.
    fn tell(&mut self, which: usize, what: &str) {
        let ended = self.ended.as_deref().unwrap_or("the process that serves has ended");
        let text = format!("{ended}; {what}");
        if self.told.get_mut(which).is_some_and(|told| !std::mem::replace(told, true)) {
            self.messages.push(text);
        }
    }
}

impl Running {
    /// Ends the process: its status, if it ends.
    fn end(mut self) -> Option<std::process::ExitStatus> {
        // It ends at the end of its socket. A tracer that may not send signals to all users has no
        // other way.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.child.kill();
        let end = Instant::now() + LIMIT;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                done => return done.ok().flatten(),
            }
        }
    }
}

impl Server {
    /// Listens at an address of the option, and serves this state.
    pub fn start(address: &str, first: Vec<u8>) -> io::Result<Server> {
        let mut messages = Vec::new();
        let (listener, path) = match address.strip_prefix("unix:") {
            Some(path) => {
                listen(Path::new(path)).map(|(listener, place)| (OwnedFd::from(listener), Some(place)))?
            }
            None => {
                let address: SocketAddr = address.parse().map_err(io::Error::other)?;
                let listener = TcpListener::bind(address)?;
                // The kernel has chosen the port.
                if address.port() == 0 {
                    messages.push(format!("metrics are served at {}", listener.local_addr()?));
                }
                (OwnedFd::from(listener), None)
            }
        };
        let state = State { latest: Arc::new(first), messages, ..State::default() };
        let (address, changed) = (address.to_owned(), Condvar::new());
        // From here on what fails removes the socket.
        let server = Server(Arc::new(Shared { address, listener, path, state: state.into(), changed }));
        let running = server.0.begin()?;
        server.0.lock().running = Some(running);
        let shared = server.0.clone();
        threads::spawn("metrics", threads::LARGE_STACK, move || shared.deliver())?;
        Ok(server)
    }

    /// Has this state served from now on.
    pub fn publish(&self, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        (state.latest, state.given) = (Arc::new(bytes), false);
        self.0.changed.notify_one();
    }

    /// The next message.
    pub fn said(&self) -> Option<String> {
        let mut state = self.0.lock();
        (!state.messages.is_empty()).then(|| state.messages.remove(0))
    }

    /// Why nothing serves now, if nothing does.
    pub fn failed(&self) -> Option<String> {
        self.0.lock().failed.clone()
    }

    /// How often it was started again.
    pub fn again(&self) -> u64 {
        self.0.lock().again
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let running = state.running.take();
        drop(state);
        self.0.changed.notify_one();
        if let Some(running) = running {
            running.end();
        }
        self.0.path.iter().for_each(Place::remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The executable of this test knows no such word, so what is started serves nothing.
    #[test]
    fn a_process_that_cannot_be_started_again_is_said_once_and_tried_again() {
        let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let (address, state) = ("127.0.0.1:0".into(), Mutex::new(State::default()));
        let shared = Shared { address, listener, path: None, state, changed: Condvar::new() };
        let server = Server(Arc::new(shared));
        server.0.lock().ended = Some("the process that serves has ended (signal: 9)".into());
        server.0.begin_again();
        server.0.begin_again();
        assert_eq!(
            server.said().unwrap(),
            "the process that serves has ended (signal: 9); it cannot be started again: the process that serves has not begun \
             (it is tried once a minute)"
        );
        assert_eq!((server.said(), server.again()), (None, 0));
        assert_eq!(server.failed().unwrap(), "the process that serves has not begun");
    }
}
