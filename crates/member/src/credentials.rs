//! Who this server proves to be, and what it keeps of its cluster; a renewed certificate is shown from the next connection on.

use crate::tls::{self, ClusterTlsError};
use cluster::etcd::TlsIdentity;
use cluster::identity::{Facts, Identity, IdentityError};
use rustls::{ClientConfig, ServerConfig};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct Shown {
    identity: Identity,
    asking: Arc<ClientConfig>,
    listening: Arc<ServerConfig>,
}

/// See the module.
pub struct Credentials {
    shown: Mutex<Shown>,
}

impl Credentials {
    /// # Errors
    /// [`ClusterTlsError`].
    pub fn new(identity: Identity) -> Result<Self, ClusterTlsError> {
        let (asking, listening) = (Arc::new(tls::asking(&identity)?), Arc::new(tls::listening(&identity)?));
        Ok(Self { shown: Mutex::new(Shown { identity, asking, listening }) })
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn facts(&self) -> Facts {
        self.shown().identity.facts.clone()
    }

    /// Where the files are.
    pub fn directory(&self) -> PathBuf {
        self.shown().identity.directory.clone()
    }

    /// The authority's certificate, in PEM form.
    pub fn authority(&self) -> String {
        self.shown().identity.authority.clone()
    }

    /// Its own key, in PEM form.
    pub fn key(&self) -> zeroize::Zeroizing<String> {
        self.shown().identity.key.clone()
    }

    /// For asking other servers.
    pub fn asking(&self) -> Arc<ClientConfig> {
        self.shown().asking.clone()
    }

    /// For the cluster's port.
    pub fn listening(&self) -> Arc<ServerConfig> {
        self.shown().listening.clone()
    }

    /// For etcd's members.
    pub fn for_etcd(&self) -> TlsIdentity {
        crate::engine::tls_identity(&self.shown().identity)
    }

    /// Shows another certificate from now on.
    ///
    /// # Errors
    /// [`IdentityError`]: it cannot be written. [`ClusterTlsError`]: it is none; the old one is shown until the next start.
    pub fn replace_certificate(&self, pem: String, now_unix_s: u64) -> Result<(), CredentialsError> {
        let mut shown = self.shown();
        shown.identity.replace_certificate(pem, now_unix_s)?;
        let (asking, listening) = (tls::asking(&shown.identity)?, tls::listening(&shown.identity)?);
        (shown.asking, shown.listening) = (Arc::new(asking), Arc::new(listening));
        Ok(())
    }

    /// Remembers other facts, such as where etcd's members are.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn remember(&self, facts: Facts) -> Result<(), IdentityError> {
        self.shown().identity.remember(facts)
    }
}

/// Why a certificate is not shown.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] ClusterTlsError),
}
