//! Requests to HTTP servers: the API's, wherever it is, and webhooks.
//!
//! Owns which certificates are trusted. Promises: a server reached by HTTPS has proved its name; every request is bounded in time.

use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

/// Files in which Linux distributions keep the trusted authorities.
pub const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What asks. `authorities`: a file in PEM form with those that may vouch for a server's name; it is read only if `is_https`.
///
/// # Errors
/// Why the authorities cannot be used.
pub fn agent(is_https: bool, authorities: Option<&Path>, time_limit: Duration) -> Result<Agent, String> {
    let mut builder = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(time_limit))
        .timeout_connect(Some(Duration::from_secs(5)));
    if is_https {
        let file = authorities.map_or_else(|| PathBuf::from(SYSTEM_AUTHORITIES), Path::to_owned);
        let roots = RootCerts::new_with_certs(&read_authorities(&file)?);
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(crate::tls::provider())
            .build();
        builder = builder.tls_config(tls);
    }
    Ok(builder.build().into())
}

fn read_authorities(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let failed = |why: String| {
        format!(
            "the authorities' certificates {} cannot be used: {why}; give another file with --ca-file",
            file.display()
        )
    };
    let text = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    let items = ureq::tls::parse_pem(&text).collect::<Result<Vec<_>, _>>();
    let certificates: Vec<_> = items
        .map_err(|error| failed(error.to_string()))?
        .into_iter()
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() { Err(failed("no certificate is in it".into())) } else { Ok(certificates) }
}
