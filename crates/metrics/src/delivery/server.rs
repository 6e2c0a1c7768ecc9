//! The servers that metrics and profiles are sent to.

/// How the address of a server begins that is asked by HTTPS.
const SECURE: &str = "https://";

/// A server.
#[derive(Clone, Debug)]
pub enum Server {
    /// Of Graphite: a host and a port.
    Graphite(String),
    /// Of OpenTelemetry, for metrics: `http://HOST:PORT` or `https://HOST:PORT`, perhaps with a
    /// path.
    Otlp(String),
    /// The same for profiles. Each is of an interval, so none makes up for one that is lost.
    Profiles(String),
}

impl Server {
    /// The host and the port, the path of requests, and whether they are encrypted.
    pub(super) fn parts(&self) -> (&str, &str, bool) {
        match self {
            Server::Graphite(address) => (address, "", false),
            Server::Otlp(url) | Server::Profiles(url) => {
                let secure = url.strip_prefix(SECURE);
                let rest = secure.or_else(|| url.strip_prefix("http://")).unwrap_or(url);
                let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let own = match self {
                    Server::Profiles(_) => "/v1development/profiles",
                    _ => "/v1/metrics",
                };
                (address, if path.len() > 1 { path } else { own }, secure.is_some())
            }
        }
    }

    /// The option that names it.
    pub(super) fn option(&self) -> String {
        match self {
            Server::Graphite(address) => format!("-x graphite={address}"),
            Server::Otlp(url) => format!("-x otlp={url}"),
            Server::Profiles(url) => format!("-x otlpprofiles={url}"),
        }
    }

    /// What is lost with these bytes.
    pub(super) fn units(&self, bytes: &[u8]) -> usize {
        match self {
            Server::Graphite(_) => bytes.iter().filter(|byte| **byte == b'\n').count(),
            Server::Otlp(_) | Server::Profiles(_) => 1,
        }
    }

    pub(super) fn unit(&self) -> &'static str {
        match self {
            Server::Graphite(_) => "lines",
            Server::Otlp(_) | Server::Profiles(_) => "requests",
        }
    }

    /// What a server may refuse of a request.
    pub(super) fn part(&self) -> &'static str {
        match self {
            Server::Graphite(_) | Server::Otlp(_) => "points",
            Server::Profiles(_) => "profiles",
        }
    }

    /// Whether it confirms each of them.
    pub(super) fn confirms(&self) -> bool {
        !matches!(self, Server::Graphite(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_an_address_and_a_path() {
        let parts = |url: &str| {
            let server = Server::Otlp(url.into());
            let (address, path, secure) = server.parts();
            (address.to_string(), path.to_string(), secure)
        };
        assert_eq!(parts("http://a:4318"), ("a:4318".into(), "/v1/metrics".into(), false));
        assert_eq!(parts("https://a:4318/"), ("a:4318".into(), "/v1/metrics".into(), true));
        assert_eq!(parts("http://[::1]:4318/x/y"), ("[::1]:4318".into(), "/x/y".into(), false));
        let profiles = Server::Profiles("http://a:4318".into());
        assert_eq!(profiles.parts(), ("a:4318", "/v1development/profiles", false));
    }
}
