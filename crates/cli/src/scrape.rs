//! `-x listen`: metrics for Prometheus, served by a process of its own.
//!
//! ```text
//!  session ──> the last state ──thread──> socket pair ──> process without privileges <──HTTP── who scrapes
//! ```
//!
//! Whoever can connect gives this process bytes to parse, so it is not the one with the privileges.
//! It is this executable again, and has a socket for states and one that listens; the session never
//! waits for it. It ends with the session, whatever ends that: then its socket is at its end.

mod http;
pub(crate) mod server;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The word by which the executable is the process that serves.
pub(crate) const WORD: &str = "--serve-metrics";

/// The process that serves, and the thread that gives it states.
pub(crate) struct Server {
    child: Child,
    shared: Arc<Shared>,
    /// Of a listener in the file system.
    path: Option<PathBuf>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is not given to the process yet.
    latest: Option<Vec<u8>>,
    failed: Option<io::Error>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives states to the process until there are no more.
    fn deliver(&self, mut out: UnixStream) {
        loop {
            let mut state = self.lock();
            let bytes = loop {
                match state.latest.take() {
                    Some(bytes) => break bytes,
                    None if state.closed => return,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            let length = (bytes.len() as u64).to_le_bytes();
            if let Err(e) = out.write_all(&length).and_then(|()| out.write_all(&bytes)) {
                self.lock().failed = Some(e);
                return;
            }
        }
    }
}

impl Server {
    /// Listens at an address of the option.
    pub(crate) fn start(address: &str) -> io::Result<Server> {
        let (listener, path) = match address.strip_prefix("unix:") {
            Some(path) => (listen_at(Path::new(path))?, Some(PathBuf::from(path))),
            None => {
                let address: SocketAddr = address.parse().map_err(io::Error::other)?;
                (OwnedFd::from(TcpListener::bind(address)?), None)
            }
        };
        let (own, other) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .args([WORD, address])
            .env_clear()
            .stdin(OwnedFd::from(other))
            .stdout(listener)
            .stderr(Stdio::null())
            // An interrupt of the terminal is for the session.
            .process_group(0)
            .spawn();
        let child = child.inspect_err(|_| remove(path.as_deref()))?;
        let server = Server { child, shared: Arc::default(), path };
        let shared = server.shared.clone();
        std::thread::Builder::new().name("metrics".into()).spawn(move || shared.deliver(own))?;
        Ok(server)
    }

    /// Has this state served from now on. An error is that of an earlier one.
    pub(crate) fn publish(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.latest = Some(bytes);
        self.shared.changed.notify_one();
        state.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(self.path.as_deref());
    }
}

fn remove(path: Option<&Path>) {
    if let Some(path) = path {
        let _ = std::fs::remove_file(path);
    }
}

/// Listens at a path, for this user alone. A socket to which nobody listens is what an earlier
/// session left.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let is_socket = path.symlink_metadata().is_ok_and(|m| m.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener.into())
}
