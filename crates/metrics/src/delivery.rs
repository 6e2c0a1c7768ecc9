//! Metrics and profiles for a server: lines over a connection that is made again (`-x graphite`),
//! and requests of HTTP (`-x otlp`, `-x otlpprofiles`).
//!
//! A thread sends what a queue has, so the session never waits for a server or a network. What the
//! queue has no space for is lost and counted. What was sent in part is sent again: the same number
//! at the same time is no other number. So is what was written to a connection that broke before
//! the server's machine had it. (What that machine has, and the server has not read when it ends,
//! nobody here knows.) Of a request, the server says how many points it has refused.

mod http;
mod link;
mod server;
mod timed;
mod tls;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diagnostics::system_text;

use crate::model::MOST_TEXT;
use http::{Answer, post};
use link::{LIMIT, Link, connect};
pub use server::Server;
use tls::Tls;

/// The most bytes that wait, unless it is what was written at once: twice what an interval can
/// have.
const QUEUE: usize = 2 * MOST_TEXT;
/// How long the answer to a request may take: while the session runs, what comes waits in the
/// queue. At the end it is the time of [`LIMIT`].
const ANSWER: Duration = Duration::from_secs(30);
/// How long the end may take: who waits for an answer says why there is none.
const END: Duration = Duration::from_secs(6);
/// How often it is looked whether the server's machine has everything, at the end.
const LOOK: Duration = Duration::from_millis(2);
/// How long to wait before the connection is made again: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Where it is written; each write is of whole lines, or of one request.
pub struct Queue(Arc<Shared>);

/// The thread that sends it.
pub struct Delivery(Arc<Shared>);

struct Shared {
    server: Server,
    /// Of a server whose requests are encrypted.
    tls: Option<Tls>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Of the queue.
    bytes: usize,
    /// The lines or requests that the thread has taken, and that the server's machine has not.
    sending: usize,
    /// The lines or requests for which it had no space, that were refused, or were left at the end.
    lost: usize,
    /// Why the connection does not stand.
    error: Option<String>,
    /// The points that the server has refused in requests that it has taken, and why.
    refused: u64,
    refusal: String,
    /// What was said: that something is lost, that something is refused, that nothing is taken.
    said: [bool; 3],
    /// Since when nothing was taken.
    failing: Option<Instant>,
    /// The thread has nothing to send.
    idle: bool,
    /// What is since the start is sent again; how much was lost before that.
    repeated: Option<usize>,
    /// Since when nothing more comes.
    closed: Option<Instant>,
    done: bool,
}

/// Connects to a server, which is there at the start.
pub fn start(server: Server) -> io::Result<(Queue, Delivery)> {
    let (address, _, is_secure) = server.parts();
    let mut stream = Some(connect(address)?);
    let tls = if is_secure { Some(Tls::new(address)?) } else { None };
    // A server that it does not know is an error now and not with the first request.
    if let (Some(tls), Some(stream)) = (&tls, stream.take_if(|_| is_secure)) {
        tls.greet(&stream, Instant::now() + LIMIT)?;
    }
    let (state, changed) = Default::default();
    let shared = Arc::new(Shared { server, tls, state, changed });
    let of_thread = shared.clone();
    threads::spawn("delivery", threads::LARGE_STACK, move || of_thread.deliver(stream))?;
    Ok((Queue(shared.clone()), Delivery(shared)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines or requests that may not be there.
    fn pending(&self, link: &Link) -> usize {
        link.written.iter().map(|bytes| self.server.units(bytes)).sum()
    }

    /// What is next, after what was taken before is sent; `None` at the end.
    fn next(&self, link: &mut Link) -> Option<Vec<u8>> {
        let mut state = self.lock();
        link.settle();
        state.sending = self.pending(link);
        loop {
            if let Some(bytes) = state.queue.pop_front() {
                state.bytes -= bytes.len();
                state.idle = false;
                state.sending += self.server.units(&bytes);
                return Some(bytes);
            }
            if state.closed.is_some() {
                return None;
            }
            state.idle = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends bytes over a connection, which is made if there is none.
    fn send(&self, link: &mut Link, bytes: &[u8]) -> io::Result<Answer> {
        let (address, path, _) = self.server.parts();
        if !self.server.confirms() {
            return link.write(address, bytes).map(|()| Answer::Taken(None));
        }
        let stream = link.take(address)?;
        let begun = Instant::now();
        // Whoever ends the session does not wait as long.
        let end = || {
            let closed = self.lock().closed.map(|closed| closed + LIMIT);
            closed.into_iter().fold(begun + ANSWER, Instant::min)
        };
        post(&stream, self.tls.as_ref(), &end, (address, path), bytes)
    }

    fn deliver(&self, stream: Option<TcpStream>) {
        let mut link = Link::new(stream);
        let [first, longest] = PAUSES;
        while let Some(bytes) = self.next(&mut link) {
            let mut pause = first;
            loop {
                let (why, is_refused) = match self.send(&mut link, &bytes) {
                    Ok(Answer::Taken(refused)) => {
                        let mut state = self.lock();
                        if let Some((points, why)) = refused {
                            (state.refused, state.refusal) = (state.refused.saturating_add(points), why);
                        }
                        (state.failing, state.said[2]) = (None, false);
                        // What is lost later is so for another reason.
                        if state.lost == 0 {
                            state.error = None;
                        }
                        drop(state);
                        if !self.server.confirms() {
                            link.wrote(bytes);
                        }
                        break;
                    }
                    Ok(Answer::Refused(why)) => (why, true),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        ("the server does not read".into(), false)
                    }
                    Err(e) => (system_text(&e), false),
                };
                let mut state = self.lock();
                state.error = Some(why);
                state.failing.get_or_insert_with(Instant::now);
                if state.closed.is_some() || is_refused {
                    state.lost += self.server.units(&bytes);
                    break;
                }
                let waited = self.changed.wait_timeout_while(state, pause, |state| state.closed.is_none());
                drop(waited);
                pause = (pause * 2).min(longest);
            }
        }
        self.end(link);
        self.changed.notify_all();
    }

    /// Waits until the server's machine has what was written.
    fn end(&self, mut link: Link) {
        let end = Instant::now() + LIMIT;
        let mut state = self.lock();
        loop {
            link.settle();
            state.sending = self.pending(&link);
            if state.sending == 0 || link.is_broken() || Instant::now() >= end {
                break;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.sending > 0 {
            state.error.get_or_insert("the connection has ended".into());
        }
        state.lost += std::mem::take(&mut state.sending);
        state.done = true;
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
    /// A message, once if something is lost, once if something is refused, and each time that
    /// nothing is taken for a while.
    pub fn said(&self) -> Option<String> {
        let mut state = self.0.lock();
        let State { lost, refused, failing, said: [said_lost, said_refused, said_failing], .. } = &mut *state;
        let is_lost = *lost > 0 && !std::mem::replace(said_lost, true);
        let is_refused = !is_lost && *refused > 0 && !std::mem::replace(said_refused, true);
        let is_failing = failing.is_some_and(|since| since.elapsed() >= LIMIT) && *lost == 0;
        let is_failing = !is_lost && !is_refused && is_failing && !std::mem::replace(said_failing, true);
        let option = self.0.server.option();
        if is_failing {
            let why = state.error.as_deref().unwrap_or_default();
            return Some(format!("{option}: {why}: {} wait until it takes them", self.0.server.unit()));
        }
        if !is_lost && !is_refused {
            return None;
        }
        if !is_lost {
            return Some(format!("{option}: {} are refused: {}", self.0.server.part(), state.refusal));
        }
        let why = state.error.as_deref().unwrap_or("it takes too few").to_string();
        Some(format!("{option}: {} are lost: {why}", self.0.server.unit()))
    }

    /// Whether something was lost and the server takes what comes now, at the end: then what was
    /// lost can be made up for. It is waited for until a time.
    pub fn may_repeat(&self, until: Instant) -> bool {
        let mut state = self.0.lock();
        if state.lost == 0 || matches!(self.0.server, Server::Profiles(_)) {
            return false;
        }
        while !(state.idle && state.queue.is_empty()) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.repeated = Some(state.lost);
        true
    }

    /// Nothing more comes: the thread sends what is in the queue, and ends. Nobody waits for it.
    pub fn close(&self) {
        self.0.lock().closed.get_or_insert_with(Instant::now);
        self.0.changed.notify_all();
    }

    /// Closes it and waits for the end of what is sent. An error is what was lost.
    pub fn finish(self) -> io::Result<()> {
        self.close();
        let mut state = self.0.lock();
        let end = state.closed.unwrap_or_else(Instant::now) + END;
        while !state.done {
            let Some(left) = end.checked_duration_since(Instant::now()) else { break };
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let left: usize = state.queue.iter().map(|bytes| self.0.server.units(bytes)).sum();
        let lost = state.lost + left + state.sending;
        let unit = self.0.server.unit();
        let again = match state.repeated {
            None => "",
            Some(before) if lost > before => ", and so was what is since the start, sent again at the end",
            Some(_) => ", and what is since the start was taken at the end",
        };
        let lost = match (lost, &state.error) {
            (0, _) => None,
            (n, Some(why)) => Some(format!("{n} {unit} were lost: {why}")),
            (n, None) => Some(format!("{n} {unit} were lost")),
        };
        let lost = lost.map(|text| text + again);
        let refused = match state.refused {
            0 => None,
            n => Some(format!("{n} {} were refused: {}", self.0.server.part(), state.refusal)),
        };
        let all: Vec<String> = lost.into_iter().chain(refused).collect();
        if all.is_empty() { Ok(()) } else { Err(io::Error::other(all.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
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
        (0..160).for_each(|_| out.write_all(chunk.as_bytes()).unwrap());
        assert!(delivery.0.lock().bytes <= QUEUE);
        assert!(delivery.said().unwrap().contains("lines are lost") && delivery.said().is_none());
        let e = delivery.finish().unwrap_err().to_string();
        let n: usize = e.split(' ').next().unwrap().parse().unwrap();
        assert!(n > 40 << 16 && n <= 160 << 16, "{e}");
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

    /// The next request to a listener; it is answered with these bytes.
    fn answered(listener: &TcpListener, body: &[u8], answer: &[u8]) {
        let mut stream = listener.accept().unwrap().0;
        let mut request = Vec::new();
        while !request.ends_with(body) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
    }

    #[test]
    fn points_that_a_server_refuses_are_counted_however_it_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut out, delivery) = start(Server::Otlp(format!("http://{address}"))).unwrap();
        // rejected_data_points: 5, error_message: "old"
        let refusal = b"\x0a\x07\x08\x05\x12\x03old";
        let whole = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", &refusal[..]].concat();
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\x0a\x07\x08\x05\r\n5\r\n\x12\x03old\r\n0\r\n\r\n";
        let endless = [b"HTTP/1.1 200 OK\r\n\r\n", &refusal[..]].concat();
        for (n, answer) in [&whole[..], chunked, &endless].into_iter().enumerate() {
            let body = format!("request {n}");
            out.write_all(body.as_bytes()).unwrap();
            answered(&listener, body.as_bytes(), answer);
        }
        out.write_all(b"last").unwrap();
        answered(&listener, b"last", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        testing::eventually("the last answer is read", testing::HANG_LIMIT, || {
            let state = delivery.0.lock();
            state.sending == 0 && state.refused == 15
        });
        let said = delivery.said().unwrap();
        assert!(said.ends_with(": points are refused: old") && delivery.said().is_none(), "{said}");
        assert_eq!(delivery.finish().unwrap_err().to_string(), "15 points were refused: old");
    }

    #[test]
    fn lines_that_a_broken_connection_has_not_delivered_are_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut out, delivery) = start(graphite(&listener)).unwrap();
        let first = listener.accept().unwrap().0;
        // The server reads nothing, until its machine takes no more.
        let chunk = "x 1 1\n".repeat(1 << 14);
        let mut sent = 0;
        testing::eventually("the connection is full", testing::HANG_LIMIT, || {
            out.write_all(chunk.as_bytes()).unwrap();
            sent += chunk.len();
            delivery.0.lock().queue.len() > 2
        });
        // It ends without having read them, and another one begins.
        drop(first);
        let reader = BufReader::new(listener.accept().unwrap().0);
        let read =
            std::thread::spawn(move || reader.lines().map(|line| line.unwrap().len() + 1).sum::<usize>());
        delivery.finish().unwrap();
        drop(out);
        let read = read.join().unwrap();
        // What the machine of the server had taken is not known to be lost.
        assert!(read > 3 * chunk.len() && read <= sent, "{read} of {sent}");
    }

    #[test]
    fn lines_that_the_servers_machine_has_not_taken_at_the_end_are_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut out, delivery) = start(graphite(&listener)).unwrap();
        let there = listener.accept().unwrap().0;
        let chunk = "x 1 1\n".repeat(1 << 14);
        testing::eventually("the connection is full", testing::HANG_LIMIT, || {
            out.write_all(chunk.as_bytes()).unwrap();
            delivery.0.lock().queue.len() > 2
        });
        drop((listener, there));
        let e = delivery.finish().unwrap_err().to_string();
        let n: usize = e.split(' ').next().unwrap().parse().unwrap();
        assert!(n >= 3 << 14 && e.contains(" lines were lost: "), "{e}");
    }

    #[test]
    fn what_was_lost_is_made_up_for_at_the_end_if_the_server_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut out, delivery) = start(Server::Otlp(format!("http://{address}"))).unwrap();
        out.write_all(b"refused").unwrap();
        answered(&listener, b"refused", b"HTTP/1.1 400 x\r\n\r\n");
        testing::eventually("it is lost", testing::HANG_LIMIT, || delivery.0.lock().lost == 1);
        assert!(delivery.may_repeat(Instant::now() + LIMIT));
        out.write_all(b"again").unwrap();
        answered(&listener, b"again", b"HTTP/1.1 200 x\r\n\r\n");
        assert_eq!(
            delivery.finish().unwrap_err().to_string(),
            "1 requests were lost: the server answers 400, and what is since the start was taken at the end"
        );
        let (mut out, delivery) = start(Server::Otlp(format!("http://{address}"))).unwrap();
        assert!(!delivery.may_repeat(Instant::now() + LIMIT), "nothing is lost");
        // A server that refuses that too.
        for n in 1..=2 {
            out.write_all(b"refused").unwrap();
            answered(&listener, b"refused", b"HTTP/1.1 400 x\r\n\r\n");
            testing::eventually("it is lost", testing::HANG_LIMIT, || delivery.0.lock().lost == n);
            assert!(n == 2 || delivery.may_repeat(Instant::now() + LIMIT));
        }
        assert_eq!(
            delivery.finish().unwrap_err().to_string(),
            "2 requests were lost: the server answers 400, and so was what is since the start, sent again at the end"
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_at_the_start() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let e = start(Server::Graphite(format!("127.0.0.1:{port}"))).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
    }
}
