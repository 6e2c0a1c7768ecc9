//! Metrics for a server: lines over a connection that is made again (`-x graphite`), and requests
//! of HTTP (`-x otlp`).
//!
//! A thread sends what a queue has, so the session never waits for a server or a network. What the
//! queue has no space for is lost and counted. What was sent in part is sent again: the same number
//! at the same time is no other number.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dtrace::diagnostics::system_text;

/// The most bytes that wait, unless it is what was written at once.
const QUEUE: usize = 8 << 20;
/// How long a connection, a write, an answer and the end may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before the connection is made again: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// A server.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// Of Graphite: a host and a port.
    Graphite(String),
    /// Of OpenTelemetry: `http://HOST:PORT`, perhaps with a path.
    Otlp(String),
}

/// Where it is written; each write is of whole lines, or of one request.
pub(crate) struct Queue(Arc<Shared>);

/// The thread that sends it.
pub(crate) struct Delivery(Arc<Shared>);

struct Shared {
    server: Server,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Of the queue.
    bytes: usize,
    /// The lines or requests that the thread has taken and not sent.
    sending: usize,
    /// The lines or requests for which it had no space, that were refused, or were left at the end.
    lost: usize,
    /// Why the connection does not stand.
    error: Option<String>,
    said: bool,
    closed: bool,
    done: bool,
}

impl Server {
    /// The host and the port, and the path of requests.
    fn parts(&self) -> (&str, &str) {
        match self {
            Server::Graphite(address) => (address, ""),
            Server::Otlp(url) => {
                let rest = url.strip_prefix("http://").unwrap_or(url);
                let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (address, if path.len() > 1 { path } else { "/v1/metrics" })
            }
        }
    }

    /// The option that names it.
    fn option(&self) -> String {
        match self {
            Server::Graphite(address) => format!("-x graphite={address}"),
            Server::Otlp(url) => format!("-x otlp={url}"),
        }
    }

    /// What is lost with these bytes.
    fn units(&self, bytes: &[u8]) -> usize {
        match self {
            Server::Graphite(_) => bytes.iter().filter(|byte| **byte == b'\n').count(),
            Server::Otlp(_) => 1,
        }
    }

    fn unit(&self) -> &'static str {
        match self {
            Server::Graphite(_) => "lines",
            Server::Otlp(_) => "requests",
        }
    }

    /// Sends bytes over a connection, which is made if there is none.
    fn send(&self, connection: &mut Option<TcpStream>, bytes: &[u8]) -> io::Result<()> {
        let (address, path) = self.parts();
        let there = connection.take().filter(|stream| !is_closed(stream));
        let mut there = there.map_or_else(|| connect(address), Ok)?;
        match self {
            Server::Graphite(_) => {
                there.write_all(bytes)?;
                *connection = Some(there);
                Ok(())
            }
            Server::Otlp(_) => post(&mut there, address, path, bytes),
        }
    }
}

/// The error of what the server does not want, and would not want later.
const REFUSED: io::ErrorKind = io::ErrorKind::InvalidData;

/// Sends a request and waits for its answer.
fn post(stream: &mut TcpStream, host: &str, path: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend_from_slice(bytes.get(..n).unwrap_or_default()),
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&answer).map_err(|e| io::Error::new(REFUSED, e.to_string()))?;
        return match (parsed, response.code.unwrap_or(0)) {
            (httparse::Status::Partial, _) if answer.len() < 64 << 10 => continue,
            (_, 200..300) => Ok(()),
            // They say that it may be taken later.
            (_, code @ (429 | 502 | 503 | 504)) => {
                Err(io::Error::other(format!("the server answers {code}")))
            }
            (_, code) => Err(io::Error::new(REFUSED, format!("the server answers {code}"))),
        };
    }
}

fn connect(server: &str) -> io::Result<TcpStream> {
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

/// Whether the server has closed it. It sends nothing else.
fn is_closed(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let stands = match peeked {
        Ok(n) => n > 0,
        Err(e) => e.kind() == io::ErrorKind::WouldBlock,
    };
    !stands || stream.set_nonblocking(false).is_err()
}

/// Connects to a server, which is there at the start.
pub(crate) fn start(server: Server) -> io::Result<(Queue, Delivery)> {
    let stream = connect(server.parts().0)?;
    let shared = Arc::new(Shared { server, state: Mutex::default(), changed: Condvar::default() });
    let of_thread = shared.clone();
    std::thread::Builder::new().name("delivery".into()).spawn(move || of_thread.deliver(stream))?;
    Ok((Queue(shared.clone()), Delivery(shared)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is next, after what was taken before is sent; `None` at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        state.sending = 0;
        loop {
            if let Some(bytes) = state.queue.pop_front() {
                state.bytes -= bytes.len();
                state.sending = self.server.units(&bytes);
                return Some(bytes);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn deliver(&self, stream: TcpStream) {
        let mut stream = Some(stream);
        let [first, longest] = PAUSES;
        while let Some(bytes) = self.next() {
            let mut pause = first;
            loop {
                match self.server.send(&mut stream, &bytes) {
                    Ok(()) => break,
                    Err(e) => {
                        let mut state = self.lock();
                        state.error = Some(system_text(&e));
                        if state.closed || e.kind() == REFUSED {
                            state.lost += std::mem::take(&mut state.sending);
                            break;
                        }
                        let waited = self.changed.wait_timeout_while(state, pause, |state| !state.closed);
                        drop(waited);
                        pause = (pause * 2).min(longest);
                    }
                }
            }
        }
        self.lock().done = true;
        self.changed.notify_all();
    }
}

impl Write for Queue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.bytes > 0 && state.bytes + bytes.len() > QUEUE {
            state.lost += self.0.server.units(bytes);
        } else if !bytes.is_empty() {
            state.bytes += bytes.len();
            state.queue.push_back(bytes.to_vec());
            self.0.changed.notify_all();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Delivery {
    /// A message, once, if something is lost.
    pub(crate) fn said(&self) -> Option<String> {
        let mut state = self.0.lock();
        if state.lost == 0 || std::mem::replace(&mut state.said, true) {
            return None;
        }
        let why = state.error.as_deref().unwrap_or("it takes too few").to_string();
        Some(format!("{}: {} are lost: {why}", self.0.server.option(), self.0.server.unit()))
    }

    /// Sends what is in the queue. An error is what was lost.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.closed = true;
        self.0.changed.notify_all();
        let end = Instant::now() + LIMIT;
        while !state.done {
            let Some(left) = end.checked_duration_since(Instant::now()) else { break };
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let left: usize = state.queue.iter().map(|bytes| self.0.server.units(bytes)).sum();
        let lost = state.lost + left + state.sending;
        let unit = self.0.server.unit();
        match (lost, &state.error) {
            (0, _) => Ok(()),
            (n, Some(why)) => Err(io::Error::other(format!("{n} {unit} were lost: {why}"))),
            (n, None) => Err(io::Error::other(format!("{n} {unit} were lost"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    fn graphite(listener: &TcpListener) -> Server {
        Server::Graphite(listener.local_addr().unwrap().to_string())
    }

    fn received(listener: &TcpListener, n: usize) -> Vec<String> {
        let reader = BufReader::new(listener.accept().unwrap().0);
        reader.lines().take(n).map(Result::unwrap).collect()
    }

    #[test]
    fn lines_arrive_over_a_connection_that_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut out, delivery) = start(graphite(&listener)).unwrap();
        out.write_all(b"a 1 1\nb 2 1\n").unwrap();
        // It is closed behind these.
        assert_eq!(received(&listener, 2), ["a 1 1", "b 2 1"]);
        testing::eventually("lines over the next connection", testing::HANG_LIMIT, || {
            out.write_all(b"c 3 2\n").unwrap();
            listener.set_nonblocking(true).unwrap();
            let next = listener.accept();
            let Ok((next, _)) = next else { return false };
            next.set_nonblocking(false).unwrap();
            let mut line = String::new();
            BufReader::new(next).read_line(&mut line).unwrap() > 0 && line == "c 3 2\n"
        });
        drop(out);
        drop(delivery);
    }

    #[test]
    fn lines_that_nobody_takes_are_counted_and_the_queue_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut out, delivery) = start(graphite(&listener)).unwrap();
        drop(listener);
        let chunk = "x 1 1\n".repeat(1 << 16);
        (0..40).for_each(|_| out.write_all(chunk.as_bytes()).unwrap());
        assert!(delivery.0.lock().bytes <= QUEUE);
        assert!(delivery.said().unwrap().contains("lines are lost") && delivery.said().is_none());
        let e = delivery.finish().unwrap_err().to_string();
        let n: usize = e.split(' ').next().unwrap().parse().unwrap();
        assert!(n > 10 << 16 && n <= 40 << 16, "{e}");
    }

    #[test]
    fn requests_are_answered_sent_again_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut out, delivery) = start(Server::Otlp(format!("http://{address}"))).unwrap();
        out.write_all(b"first").unwrap();
        out.write_all(b"second").unwrap();
        for (status, body) in [("503 x", "first"), ("200 x", "first"), ("400 x", "second")] {
            let mut stream = listener.accept().unwrap().0;
            let mut request = Vec::new();
            let ends = |request: &[u8]| request.ends_with(format!("\r\n\r\n{body}").as_bytes());
            while !ends(&request) {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            assert!(request.starts_with(b"POST /v1/metrics HTTP/1.1\r\n"));
            stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
        }
        assert_eq!(
            delivery.finish().unwrap_err().to_string(),
            "1 requests were lost: the server answers 400"
        );
    }

    #[test]
    fn a_url_has_an_address_and_a_path() {
        let parts = |url: &str| {
            let server = Server::Otlp(url.into());
            let (address, path) = server.parts();
            (address.to_string(), path.to_string())
        };
        assert_eq!(parts("http://a:4318"), ("a:4318".into(), "/v1/metrics".into()));
        assert_eq!(parts("http://a:4318/"), ("a:4318".into(), "/v1/metrics".into()));
        assert_eq!(parts("http://[::1]:4318/x/y"), ("[::1]:4318".into(), "/x/y".into()));
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_at_the_start() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let e = start(Server::Graphite(format!("127.0.0.1:{port}"))).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
    }
}
