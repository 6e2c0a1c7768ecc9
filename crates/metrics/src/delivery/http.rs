//! Requests of HTTP with metrics, and the answers of a collector.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::otlp::rejected;

/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// The error of what the server does not want, and would not want later.
pub(super) const REFUSED: io::ErrorKind = io::ErrorKind::InvalidData;

/// A server takes too long.
fn unanswered() -> io::Error {
    io::Error::new(TimedOut, "the server has not answered")
}

/// Sends a request and waits for its answer: what it refuses.
pub(super) fn post(
    stream: &mut TcpStream,
    limit: Duration,
    host: &str,
    path: &str,
    body: &[u8],
) -> io::Result<Option<(u64, String)>> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    // A server that reads or answers little by little has as long as any other.
    let end = Instant::now() + limit;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(unanswered()) } else { Ok(left) }
    };
    for mut bytes in [head.as_bytes(), body] {
        while !bytes.is_empty() {
            stream.set_write_timeout(Some(left()?))?;
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    let mut answer = Vec::new();
    let mut more = true;
    loop {
        let mut bytes = [0; 1024];
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => answer.extend_from_slice(bytes.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if answer.is_empty() && matches!(e.kind(), TimedOut | WouldBlock) => {
                return Err(unanswered());
            }
            // Without a status it is none; behind one it is what has come.
            _ => more = false,
        }
        more &= answer.len() < LONGEST_ANSWER;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&answer).map_err(|e| io::Error::new(REFUSED, e.to_string()))?;
        return match (parsed, response.code.unwrap_or(0)) {
            (httparse::Status::Partial, _) if more => continue,
            (httparse::Status::Partial, _) => Err(io::ErrorKind::UnexpectedEof.into()),
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
