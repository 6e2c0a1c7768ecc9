//! Answers to requests of HTTP: `GET /metrics`, and what is wrong with everything else.

use std::net::{IpAddr, SocketAddr};

/// The most bytes of a request.
pub(super) const LONGEST: usize = 8 << 10;
/// The most lines of its head.
const HEADERS: usize = 64;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: &'static str,
    /// The metrics follow.
    pub(super) metrics: bool,
    /// Only the head is wanted.
    head: bool,
}

const fn wrong(status: &'static str) -> Answer {
    Answer { status, metrics: false, head: false }
}

/// The answer to what has come of a request; `None` if it is not complete.
pub(super) fn answer(bytes: &[u8], loopback: bool) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(wrong("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(wrong("400 Bad Request")),
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => std::str::from_utf8(host.value).unwrap_or_default(),
        (None, None) if request.version == Some(0) => "localhost",
        _ => return Some(wrong("400 Bad Request")),
    };
    // A page of another site that has its name changed to this address would be answered else.
    if loopback && !is_loopback(host) {
        return Some(wrong("403 Forbidden"));
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(wrong("405 Method Not Allowed\r\nAllow: GET, HEAD")),
    };
    let path = request.path.unwrap_or_default();
    match path.split('?').next() {
        Some("/metrics") => Some(Answer { status: "200 OK", metrics: true, head }),
        _ => Some(Answer { head, ..wrong("404 Not Found") }),
    }
}

/// Whether a host, perhaps with a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let is_own = |ip: IpAddr| ip.is_loopback();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_own)
}

/// Whether who listens at an address is asked from this machine alone.
pub(super) fn is_own_address(address: &str) -> bool {
    address.parse().is_ok_and(|address: SocketAddr| address.ip().is_loopback())
}

impl Answer {
    /// The bytes of an answer with these metrics.
    pub(super) fn bytes(self, metrics: &[u8]) -> Vec<u8> {
        let status = self.status.split('\r').next().unwrap_or_default();
        let line = format!("{status}\n");
        let body = if self.metrics { metrics } else { line.as_bytes() };
        let version = if self.metrics { "version=0.0.4; " } else { "" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: text/plain; {version}charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
             X-Content-Type-Options: nosniff\r\n\r\n",
            self.status,
            body.len()
        );
        let mut out = head.into_bytes();
        out.extend_from_slice(if self.head { b"" } else { body });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> &'static str {
        answer(request.as_bytes(), true).map_or("", |answer| &answer.status[..3])
    }

    #[test]
    fn metrics_are_for_who_asks_this_machine_for_them() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n"), "200");
        assert_eq!(status("GET /metrics?x HTTP/1.1\r\nhost: [::1]:9464\r\n\r\n"), "200");
        assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n"), "200");
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "", "10.0.0.1"] {
            assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")), "403", "{host}");
        }
        let elsewhere = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        assert_eq!(answer(elsewhere.as_bytes(), false).unwrap().status, "200 OK");
        assert!(is_own_address("127.0.0.1:1") && is_own_address("[::1]:1") && !is_own_address("0.0.0.0:1"));
    }

    #[test]
    fn everything_else_is_refused() {
        let own = "Host: 127.0.0.1\r\n";
        assert_eq!(status(&format!("POST /metrics HTTP/1.1\r\n{own}\r\n")), "405");
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{own}\r\n")), "404");
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "400");
        assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{own}{own}\r\n")), "400");
        assert_eq!(status("\0\u{1}\r\n\r\n"), "400");
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: 127"), "");
        assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(LONGEST))), "431");
        assert_eq!(
            status(&format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(HEADERS + 1))),
            "431"
        );
    }

    #[test]
    fn an_answer_has_its_length_and_a_head_no_more() {
        let get = answer(b"GET /metrics HTTP/1.0\r\n\r\n", true).unwrap().bytes(b"a 1\n");
        let text = String::from_utf8(get).unwrap();
        assert!(text.contains("\r\nContent-Length: 4\r\n") && text.ends_with("\r\n\r\na 1\n"), "{text}");
        assert!(text.contains("text/plain; version=0.0.4; charset=utf-8"), "{text}");
        let head = answer(b"HEAD /metrics HTTP/1.0\r\n\r\n", true).unwrap().bytes(b"a 1\n");
        assert!(String::from_utf8(head).unwrap().ends_with("\r\n\r\n"));
    }
}
