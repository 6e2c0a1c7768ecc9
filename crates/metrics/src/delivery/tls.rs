//! HTTPS to a server that the certificates of the system know. `$SSL_CERT_FILE` and
//! `$SSL_CERT_DIR` name others, as for every program that uses OpenSSL.
//!
//! Who builds this crate without the feature `tls` has no HTTPS: such a server is an error at the
//! start.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::timed::{Stream, Timed};

/// How a server is spoken to, once for all of its connections.
pub(super) struct Tls(imp::Tls);

impl Tls {
    /// For an address with a port. An error: there are no certificates, or no HTTPS.
    pub(super) fn new(address: &str) -> io::Result<Tls> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        imp::Tls::new(host).map(Tls)
    }

    /// Ends a connection after the server has shown who it is.
    pub(super) fn greet(&self, stream: &TcpStream, end: Instant) -> io::Result<()> {
        let end = || end;
        self.over(Timed::new(stream, &end), |stream| stream.flush())
    }

    /// Does something over an encrypted connection.
    pub(super) fn over<T>(
        &self,
        timed: Timed<'_>,
        done: impl FnOnce(&mut dyn Stream) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.over(timed, done)
    }
}

#[cfg(feature = "tls")]
mod imp {
    use std::io;
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

    use crate::delivery::timed::{Stream, Timed};

    pub(super) struct Tls {
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    }

    impl Tls {
        pub(super) fn new(host: &str) -> io::Result<Tls> {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {e}")))?;
            let rustls_native_certs::CertificateResult { certs, errors, .. } =
                rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            if roots.add_parsable_certificates(certs).0 == 0 {
                let why = errors.first().map_or_else(|| "there are none".into(), ToString::to_string);
                let text = format!("the certificates of this system cannot be read: {why}");
                return Err(io::Error::other(text));
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(Tls { config: Arc::new(config), name })
        }

        pub(super) fn over<T>(
            &self,
            mut timed: Timed<'_>,
            done: impl FnOnce(&mut dyn Stream) -> io::Result<T>,
        ) -> io::Result<T> {
            let mut client =
                ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
            while client.is_handshaking() {
                client.complete_io(&mut timed).map_err(plain)?;
            }
            let done = done(&mut rustls::Stream::new(&mut client, &mut timed));
            client.send_close_notify();
            // The server may have closed it first.
            let _ = client.write_tls(&mut timed);
            done
        }
    }

    /// What is wrong with a server's certificate, in plain words.
    fn plain(e: io::Error) -> io::Error {
        use CertificateError as C;
        let inner = e.get_ref().and_then(|inner| inner.downcast_ref());
        let Some(rustls::Error::InvalidCertificate(why)) = inner else { return e };
        let why = match why {
            C::UnknownIssuer => "is of an issuer that this system does not trust".into(),
            C::NotValidForName | C::NotValidForNameContext { .. } => "is for another name".into(),
            C::Expired | C::ExpiredContext { .. } => "has expired".into(),
            C::NotValidYet | C::NotValidYetContext { .. } => "is not valid yet".into(),
            C::Revoked => "is revoked".into(),
            other => format!("cannot be used: {other}"),
        };
        io::Error::other(format!("the server's certificate {why}"))
    }
}

#[cfg(not(feature = "tls"))]
mod imp {
    use std::io;

    use crate::delivery::timed::{Stream, Timed};

    /// There is none.
    pub(super) enum Tls {}

    impl Tls {
        pub(super) fn new(_: &str) -> io::Result<Tls> {
            let text = "there is no HTTPS: it was built without the feature debuginfod";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }

        pub(super) fn over<T>(
            &self,
            _: Timed<'_>,
            _: impl FnOnce(&mut dyn Stream) -> io::Result<T>,
        ) -> io::Result<T> {
            match *self {}
        }
    }
}
