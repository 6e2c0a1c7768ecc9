//! Requests of HTTP with metrics, and the answers of a collector.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::timed::{Stream, Timed};
use super::tls::Tls;
use crate::otlp::rejected;

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// The error of what the server does not want, and would not want later.
pub(super) const REFUSED: io::ErrorKind = io::ErrorKind::InvalidData;

/// Sends a request to a host and a path, and waits for its answer: what it refuses. The time until
/// when it waits is asked for again and again.
pub(super) fn post(
    stream: &TcpStream,
    tls: Option<&Tls>,
    end: &dyn Fn() -> Instant,
    (host, path): (&str, &str),
    body: &[u8],
) -> io::Result<Option<(u64, String)>> {
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

fn exchange(stream: &mut dyn Stream, head: &str, body: &[u8]) -> io::Result<Option<(u64, String)>> {
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    sent.and_then(|()| stream.flush()).map_err(of_connection)?;
    let mut answer = Vec::new();
    let mut more = true;
    loop {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => answer.extend_from_slice(bytes.get(..n).unwrap_or_default()),
            // Without a status it is none; behind one it is what has come.
            Err(e) if !has_status(&answer) => return Err(of_connection(e)),
            _ => more = false,
        }
        more &= answer.len() < LONGEST_ANSWER;
        skip_informational(&mut answer);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&answer).map_err(|e| io::Error::new(REFUSED, e.to_string()))?;
        return match (parsed, response.code.unwrap_or(0)) {
            (httparse::Status::Partial, _) if more => continue,
            (httparse::Status::Partial, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (_, 204) => Ok(None),
            (httparse::Status::Complete(head), 200..300) => {
                let body = answer.get(head..).unwrap_or_default();
                match content(body, response.headers, more) {
                    None => continue,
                    Some(body) => Ok(rejected(&body)),
                }
            }
            // They say that it may be taken later.
            (_, code @ (429 | 502 | 503 | 504)) => {
                Err(io::Error::other(format!("the server answers {code}")))
            }
            (_, code) => Err(io::Error::new(REFUSED, format!("the server answers {code}"))),
        };
    }
}

/// An error of the connection, which is none of the server's words.
fn of_connection(e: io::Error) -> io::Error {
    if e.kind() == REFUSED { io::Error::other(e) } else { e }
}

/// Takes away what a server says before its answer (`100 Continue`).
fn skip_informational(answer: &mut Vec<u8>) {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let Ok(httparse::Status::Complete(head)) = response.parse(answer) else { return };
        if !matches!(response.code, Some(100..200)) {
            return;
        }
        answer.drain(..head);
    }
}

/// Whether the head of an answer has come.
fn has_status(answer: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    httparse::Response::new(&mut headers).parse(answer).is_ok_and(|parsed| parsed.is_complete())
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
            assert_eq!(answer.is_err_and(|e| e.kind() == REFUSED), refused, "{said}");
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
            let e = posted.join().unwrap().unwrap_err();
            assert_eq!((e.kind(), e.to_string().as_str()), (TimedOut, "the server has not answered"));
        });
    }
}
