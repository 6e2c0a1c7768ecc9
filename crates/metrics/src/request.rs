//! Requests for metrics by HTTP, and their answers: `GET /metrics`, and what is wrong with
//! everything else.

use std::net::{IpAddr, SocketAddr};

/// The most bytes of a request.
pub const LONGEST: usize = 8 << 10;
/// The most lines of its head.
const HEADERS: usize = 64;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    /// It has the metrics.
    metrics: bool,
    /// Only the head is wanted.
    head: bool,
}

const fn wrong(status: &'static str) -> Answer {
    Answer { status, metrics: false, head: false }
}

/// The answer to what has come of a request; `None` if it is not complete.
pub fn answer(bytes: &[u8], loopback: bool) -> Option<Answer> {
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
    let is_own = |text: &str| text.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || is_own(name) || is_own(host)
}

/// Whether who listens at an address is asked from this machine alone.
pub fn is_own_address(address: &str) -> bool {
    address.parse().is_ok_and(|address: SocketAddr| address.ip().to_canonical().is_loopback())
}

impl Answer {
    /// Whether the metrics follow its bytes.
    pub fn has_metrics(self) -> bool {
        self.metrics && !self.head
    }

    /// The bytes of an answer, without the metrics, which have so many.
    pub fn bytes(self, metrics: usize) -> Vec<u8> {
        let status = self.status.split('\r').next().unwrap_or_default();
        let line = if self.metrics { String::new() } else { format!("{status}\n") };
        let length = if self.metrics { metrics } else { line.len() };
        let version = if self.metrics { "version=0.0.4; " } else { "" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: text/plain; {version}charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\
             X-Content-Type-Options: nosniff\r\n\r\n",
            self.status
        );
        let mut out = head.into_bytes();
        out.extend_from_slice(if self.head { b"" } else { line.as_bytes() });
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
        for host in ["::1", "[::ffff:127.0.0.1]:9464", "::ffff:127.0.0.1", "127.9.9.9", "LOCALHOST"] {
            assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")), "200", "{host}");
        }
        for host in [
            "[::ffff:10.0.0.1]:1",
            "[::2]",
            "1:2",
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "",
            "10.0.0.1",
        ] {
            assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")), "403", "{host}");
        }
        let elsewhere = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        assert_eq!(answer(elsewhere.as_bytes(), false).unwrap().status, "200 OK");
        assert!(is_own_address("127.0.0.1:1") && is_own_address("[::1]:1"));
        assert!(is_own_address("[::ffff:127.0.0.1]:1") && !is_own_address("0.0.0.0:1"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_have_an_answer_that_is_bounded_and_the_same_however_they_come(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            cut in 0..4usize,
        ) {
            let words: [&[u8]; 4] = [b"", b"GET ", b"GET /metrics HTTP/1.1\r\n", b"HEAD /metrics HTTP/1.1\r\nHost: "];
            let bytes = [words[cut], &bytes].concat();
            // What is answered once is answered so when more has come.
            let first = (0..=bytes.len()).find_map(|n| Some((n, answer(&bytes[..n], true)?)));
            proptest::prop_assert_eq!(answer(&bytes, true).is_some(), first.is_some());
            if let Some((_, answer)) = first {
                proptest::prop_assert!(answer.bytes(usize::MAX).len() < 400);
                proptest::prop_assert!(!answer.metrics || bytes.windows(8).any(|part| part == b"/metrics"));
            }
        }
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
        let get = answer(b"GET /metrics HTTP/1.0\r\n\r\n", true).unwrap();
        let text = String::from_utf8(get.bytes(4)).unwrap();
        assert!(text.contains("\r\nContent-Length: 4\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(get.has_metrics());
        assert!(text.contains("text/plain; version=0.0.4; charset=utf-8"), "{text}");
        let head = answer(b"HEAD /metrics HTTP/1.0\r\n\r\n", true).unwrap();
        assert!(!head.has_metrics() && head.bytes(4) == text.into_bytes());
        let other = answer(b"GET / HTTP/1.0\r\n\r\n", true).unwrap();
        let text = String::from_utf8(other.bytes(4)).unwrap();
        assert!(text.ends_with("\r\n\r\n404 Not Found\n") && text.contains("Content-Length: 14\r\n"));
        let head = answer(b"HEAD / HTTP/1.0\r\n\r\n", true).unwrap();
        assert!(text.ends_with(&format!("{}404 Not Found\n", String::from_utf8(head.bytes(4)).unwrap())));
    }
}
