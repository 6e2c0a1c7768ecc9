//! A connection to a server, which is made again when it has ended.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a connection and a write may take.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// A connection, and what was written to it that the server's machine may not have.
#[derive(Default)]
pub(super) struct Link {
    stream: Option<TcpStream>,
    pub(super) written: VecDeque<Vec<u8>>,
    /// Of all of these.
    bytes: usize,
}

impl Link {
    pub(super) fn new(stream: Option<TcpStream>) -> Link {
        Link { stream, ..Link::default() }
    }

    /// Whether there is no connection that could deliver what was written.
    pub(super) fn is_broken(&self) -> bool {
        self.stream.as_ref().is_none_or(is_closed)
    }

    /// Forgets what the server's machine has.
    pub(super) fn settle(&mut self) {
        let Some(stream) = &self.stream else { return };
        let mut waiting: libc::c_int = 0;
        // SAFETY: a plain system call, which writes the number.
        let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        let waiting = if asked == 0 { usize::try_from(waiting).unwrap_or(0) } else { self.bytes };
        while let Some(first) = self.written.front()
            && self.bytes - first.len() >= waiting
        {
            self.bytes -= first.len();
            self.written.pop_front();
        }
    }

    pub(super) fn wrote(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.written.push_back(bytes);
        self.settle();
    }

    /// Its connection, or a new one.
    pub(super) fn take(&mut self, address: &str) -> io::Result<TcpStream> {
        self.stream.take().filter(|stream| !is_closed(stream)).map_or_else(|| connect(address), Ok)
    }

    /// Writes over a connection, after what the one before has not delivered.
    pub(super) fn write(&mut self, address: &str, bytes: &[u8]) -> io::Result<()> {
        self.settle();
        let (there, is_new) = match self.stream.take().filter(|stream| !is_closed(stream)) {
            Some(there) => (there, false),
            None => (connect(address)?, true),
        };
        let before = self.written.iter().filter(|_| is_new);
        let done =
            before.map(|bytes| &**bytes).chain([bytes]).try_for_each(|bytes| (&there).write_all(bytes));
        // A new one may have delivered none of them, which it does not tell from those before.
        self.stream = done.is_ok().then_some(there);
        done
    }
}

pub(super) fn connect(server: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => {
                stream.set_write_timeout(Some(LIMIT))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Whether the server has closed it. What it says is read, because its end is behind that, and
/// forgotten.
fn is_closed(mut stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    // A server that says something for ever has not closed it.
    let said = (0..256).map(|_| stream.read(&mut [0; 4096]));
    let end = said.into_iter().find(|read| !matches!(read, Ok(1..)));
    let closed = match end {
        Some(Err(e)) => e.kind() != io::ErrorKind::WouldBlock,
        end => end.is_some(),
    };
    closed || stream.set_nonblocking(false).is_err()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_a_server_says_is_no_end_of_the_connection_and_hides_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        assert!(!is_closed(&own));
        other.write_all(b"welcome").unwrap();
        own.peek(&mut [0]).unwrap();
        assert!(!is_closed(&own));
        other.write_all(b"bye").unwrap();
        drop(other);
        testing::eventually("the end is behind what it said", testing::HANG_LIMIT, || is_closed(&own));
    }
}
