//! TLS of the API, for callers from other machines.
//!
//! Owns certificate and key. Promises: refuses a key that anybody on the machine can read; loads
//! replaced files while the server runs, and keeps the old ones if the new ones do not match. TLS 1.2
//! and 1.3 only.

use crate::pem::{FILE_BYTES_MAX, certificates};
use crate::regular;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Interval between checks for new files.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file at `path` cannot be read, because of `source`.
    #[error("{path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// The file at `path` is not in PEM form, because of `why`.
    #[error("{path}: {why}; a file in PEM form is needed")]
    Pem { path: String, why: String },
    /// The key's file at `path` has a `mode` by which everybody can read it.
    #[error("{path} has mode {mode:03o}, so that anybody on this machine can read the key: chmod 640 {path}")]
    Readable { path: String, mode: u32 },
    /// The files `certificate` and `key` do not belong together, because of `why`.
    #[error("certificate {certificate} and key {key} cannot be used together: {why}")]
    Pair { certificate: String, key: String, why: String },
}

/// The provider of all ciphers.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Certificate and key of this server, as their files have them.
#[derive(Debug)]
pub struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    /// # Errors
    /// [`TlsError`].
    pub fn open(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(Arc::new(load(certificate, key)?));
        Ok(Arc::new(Self { certificate: certificate.to_owned(), key: key.to_owned(), current }))
    }

    /// Takes the files up whenever they have changed, until the task is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut seen = self.changed_at();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let changed = self.changed_at();
            if changed != seen {
                seen = changed;
                self.reload();
            }
        }
    }

    fn changed_at(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key]
            .map(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok())
    }

    /// Takes the files up now.
    pub fn reload(&self) {
        match load(&self.certificate, &self.key) {
            Ok(new) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                let is_new = new.cert != current.cert;
                *current = Arc::new(new);
                drop(current);
                if is_new {
                    tracing::info!(certificate = %self.certificate.display(), "the API has a new certificate");
                }
            }
            // Half of the pair may have been replaced so far.
            Err(error) => tracing::warn!(%error, "the API keeps the certificate it has"),
        }
    }

    pub(crate) fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let name = |path: &Path| path.display().to_string();
    let read_error = |path: &Path| {
        let path = name(path);
        move |source| TlsError::Read { path, source }
    };
    let mode = std::fs::metadata(key).map_err(read_error(key))?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(TlsError::Readable { path: name(key), mode });
    }
    let read = |path: &Path| regular::read(path, FILE_BYTES_MAX).map_err(read_error(path));
    let (chain, secret) = (read(certificate)?, Zeroizing::new(read(key)?));
    let pem_error = |path: &Path, why: String| TlsError::Pem { path: name(path), why };
    let chain = certificates(&chain).map_err(|why| pem_error(certificate, why))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| pem_error(key, error.to_string()))?;
    CertifiedKey::from_der(chain, secret, &provider()).map_err(|error| TlsError::Pair {
        certificate: name(certificate),
        key: name(key),
        why: error.to_string(),
    })
}
