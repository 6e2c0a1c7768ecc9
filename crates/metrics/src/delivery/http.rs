//! Requests of HTTP with metrics, and the answers of a collector.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::timed::{Stream, Timed};
use super::tls::Tls;
use crate::otlp::rejected;

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// What a server says of a request. An error in its place is one of the connection, which may be
/// none later.
pub(super) enum Answer {
    /// It has taken it, but for so many points of it; and why.
    Taken(Option<(u64, String)>),
    /// It does not want it, and would not want it later.
    Refused(String),
}

/// Sends a request to a host and a path, and waits for its answer. The time until when it waits is
/// asked for again and again.
pub(super) fn post(
    stream: &TcpStream,
    tls: Option<&Tls>,
    end: &dyn Fn() -> Instant,
    (host, path): (&str, &str),
    body: &[u8],
) -> io::Result<Answer> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let mut timed = Timed::new(stream, end);
    match tls {
        Some(tls) => tls.over(timed, |stream| exchange(stream, &head, body)),
        None => exchange(&mut timed, &head, body),
    }
}

fn exchange(stream: &mut dyn Stream, head: &str, body: &[u8]) -> io::Result<Answer> {
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes);
        answer.extend_from_slice(read.as_ref().ok().and_then(|n| bytes.get(..*n)).unwrap_or_default());
        let more = matches!(read, Ok(1..)) && answer.len() < LONGEST_ANSWER;
        let said = last(&answer);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let head = match response.parse(said) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) if more => continue,
            // Without a status it is none; behind one it is what has come.
            Ok(httparse::Status::Partial) => {
                return Err(read.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
            }
            Err(e) => return Ok(Answer::Refused(e.to_string())),
        };
        return match response.code.unwrap_or(0) {
            204 => Ok(Answer::Taken(None)),
            200..300 => match content(said.get(head..).unwrap_or_default(), response.headers, more) {
                None => continue,
                Some(body) => Ok(Answer::Taken(rejected(&body))),
            },
            // They say that it may be taken later.
            code @ (429 | 502 | 503 | 504) => Err(io::Error::other(format!("the server answers {code}"))),
            code => Ok(Answer::Refused(format!("the server answers {code}"))),
        };
    }
}

/// The answer behind what a server says before it (`100 Continue`).
fn last(mut answer: &[u8]) -> &[u8] {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match (response.parse(answer), response.code) {
            (Ok(httparse::Status::Complete(head)), Some(100..200)) => {
                answer = answer.get(head..).unwrap_or_default();
            }
            _ => return answer,
        }
    }
}

/// The content of an answer; `None` if more of it comes.
fn content(mut body: &[u8], headers: &[httparse::Header<'_>], more: bool) -> Option<Vec<u8>> {
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let is_chunked =
        value("transfer-encoding").is_some_and(|all| all.to_ascii_lowercase().contains("chunked"));
    if !is_chunked {
        let length = value("content-length").and_then(|text| text.trim().parse::<usize>().ok());
        return match length {
            Some(length) if body.len() >= length => body.get(..length).map(<[u8]>::to_vec),
            _ => (!more).then(|| body.to_vec()),
        };
    }
    let mut all = Vec::new();
    while let Ok(httparse::Status::Complete((head, length))) = httparse::parse_chunk_size(body) {
        if length == 0 {
            return Some(all);
        }
        let Some(chunk) = usize::try_from(length).ok().and_then(|length| body.get(head..)?.get(..length))
        else {
            break;
        };
        all.extend_from_slice(chunk);
        // Its line ends behind it.
        body = body.get(head + chunk.len() + 2..).unwrap_or_default();
    }
    (!more).then_some(all)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::TimedOut;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_without_content_is_whole_and_what_comes_before_it_is_none() {
        for (said, refused) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", true),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // The connection stays open.
            let mut server = listener.accept().unwrap().0;
            server.write_all(said.as_bytes()).unwrap();
            let end = || Instant::now() + Duration::from_secs(3600);
            let answer = post(&stream, None, &end, ("host", "/path"), b"body");
            assert_eq!(matches!(answer.unwrap(), Answer::Refused(_)), refused, "{said}");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_until_the_time_that_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let is_over = AtomicBool::new(false);
        let later = Instant::now() + Duration::from_secs(3600);
        let end = || if is_over.load(Ordering::Relaxed) { Instant::now() } else { later };
        std::thread::scope(|scope| {
            let posted = scope.spawn(|| post(&stream, None, &end, ("host", "/path"), b"body"));
            let mut request = Vec::new();
            while !request.ends_with(b"body") {
                let mut byte = [0];
                server.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            // It is at work, and the session ends meanwhile.
            server.write_all(b"HTTP/1.1 ").unwrap();
            is_over.store(true, Ordering::Relaxed);
            let e = posted.join().unwrap().err().unwrap();
            assert_eq!((e.kind(), e.to_string().as_str()), (TimedOut, "the server has not answered"));
        });
    }
}
