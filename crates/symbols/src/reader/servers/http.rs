//! What is asked of one server, by HTTP and HTTPS.
//!
//! A server of HTTPS is one that the certificates of the system know ($SSL_CERT_FILE and
//! $SSL_CERT_DIR name others), and it sends nobody to a server that is asked in the clear.

use std::io::Read;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// How the address of a server begins that is asked by HTTPS.
const SECURE: &str = "https://";
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The body of the answer to `address` of a server, of at most `most` bytes, all of which comes
/// within `limit`. The error says why there is none.
pub(super) fn get(
    server: &str,
    address: &str,
    limit: Duration,
    most: u64,
) -> Result<impl Read + use<>, String> {
    let response = agent(server, limit)?.get(address).call().map_err(|error| error.to_string())?;
    Ok(response.into_body().into_with_config().limit(most).reader())
}

/// Who asks one server as its address says. The error says why it cannot be asked so.
fn agent(url: &str, limit: Duration) -> Result<ureq::Agent, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .timeout_connect(Some(ANSWER))
        .timeout_recv_response(Some(ANSWER))
        .max_redirects(3)
        .user_agent("dtrace");
    // A server of HTTP may send to one of HTTPS, but not the other way round.
    let is_secure = url.starts_with(SECURE);
    let config = config.https_only(is_secure).tls_config(secure(is_secure)?);
    Ok(ureq::Agent::new_with_config(config.build()))
}

/// The certificates of the system, by which servers are known. Read when the first server is asked:
/// most sessions ask nobody.
static CERTIFICATES: LazyLock<Result<RootCerts, String>> = LazyLock::new(|| {
    let rustls_native_certs::CertificateResult { certs, errors, .. } =
        rustls_native_certs::load_native_certs();
    if certs.is_empty() {
        let why = errors.first().map_or_else(|| "there are none".into(), ToString::to_string);
        return Err(format!("the certificates of this system cannot be read: {why}"));
    }
    let certs: Vec<Certificate<'static>> =
        certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
    Ok(RootCerts::new_with_certs(&certs))
});

/// Where HTTPS is not needed at first, the certificates may be missing.
fn secure(is_needed: bool) -> Result<TlsConfig, String> {
    let certs = match &*CERTIFICATES {
        Err(why) if is_needed => return Err(why.clone()),
        Err(_) => RootCerts::new_with_certs(&[]),
        Ok(certs) => certs.clone(),
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(certs)
        .build())
}
