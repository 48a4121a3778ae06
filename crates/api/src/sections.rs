//! Sections `[api]` and `[health]` of the configuration.
//!
//! Owns their keys, defaults and documentation, and refuses values that make no sense. Never opens anything.

use crate::health_watch::{Receivers, Webhook};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSection {
    pub listen: SocketAddr,
    pub tls_listen: Vec<SocketAddr>,
    pub tls_certificate: PathBuf,
    pub tls_key: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthSection {
    pub webhook: String,
    pub webhook_ca_file: PathBuf,
}

/// Every key, as `section.key`, and its help.
pub const DOCUMENTATION: &[(&str, &str)] = &[
    ("api.listen", "Address and port of the management API for this machine. Loopback only."),
    (
        "api.tls_listen",
        "Addresses and ports of the management API for others, over TLS; needs certificate and key.",
    ),
    (
        "api.tls_certificate",
        "The certificate for it in PEM form, with those between it and an authority that clients trust.",
    ),
    (
        "api.tls_key",
        "Its key in PEM form, not readable by everybody. Both are read again when they have changed.",
    ),
    (
        "health.webhook",
        "URL (http or https) to which changes of health are posted as JSON; \"\": none. They go to the log in any case.",
    ),
    (
        "health.webhook_ca_file",
        "Authorities, in PEM form, that may vouch for the webhook's name; \"\": those that the system trusts.",
    ),
];

/// A value that parses and makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadKey {
    pub key: &'static str,
    pub why: String,
}

fn bad(key: &'static str, why: impl Into<String>) -> Result<(), BadKey> {
    Err(BadKey { key, why: why.into() })
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

impl Default for ApiSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9445)),
            tls_listen: Vec::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
        }
    }
}

impl ApiSection {
    /// # Errors
    /// [`BadKey`].
    pub fn check(&self) -> Result<(), BadKey> {
        if !self.listen.ip().is_loopback() {
            return bad(
                "api.listen",
                "it is served on loopback only, without TLS: take 127.0.0.1 or [::1]; api.tls_listen is for others",
            );
        }
        if self.tls_listen.is_empty() {
            return Ok(());
        }
        for (key, path) in [("api.tls_certificate", &self.tls_certificate), ("api.tls_key", &self.tls_key)] {
            if !is_set(path) {
                return bad(key, "api.tls_listen needs a certificate and its key");
            }
        }
        Ok(())
    }
}

impl HealthSection {
    /// # Errors
    /// [`BadKey`].
    pub fn check(&self) -> Result<(), BadKey> {
        let hook = &self.webhook;
        let is_url = ["http://", "https://"].iter().any(|scheme| {
            hook.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        });
        if !hook.is_empty() && !is_url {
            return bad("health.webhook", "http://SERVER/PATH or https://SERVER/PATH");
        }
        Ok(())
    }

    /// The receivers of changes of health.
    pub fn receivers(&self) -> Receivers {
        let file = |path: &PathBuf| is_set(path).then(|| path.clone());
        let webhook = (!self.webhook.is_empty())
            .then(|| Webhook { url: self.webhook.clone(), authorities: file(&self.webhook_ca_file) });
        Receivers { webhook }
    }
}
