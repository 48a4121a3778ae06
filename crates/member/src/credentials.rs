//! This server's credentials, and the files that it keeps of its cluster. New connections show a
//! renewed certificate.

use crate::identity::{Facts, Identity, IdentityError};
use crate::tls::{self, ClusterTlsError};
use etcd::TlsIdentity;
use rustls::{ClientConfig, ServerConfig};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trust::authority::Unrecorded;

struct Shown {
    identity: Identity,
    asking: Arc<ClientConfig>,
    listening: Arc<ServerConfig>,
}

/// See the module.
pub struct Credentials {
    shown: Mutex<Shown>,
    /// A certificate that is on record and could not be written yet: each that is issued takes the place of the oldest that is good.
    issued: Mutex<Option<String>>,
}

impl Credentials {
    /// # Errors
    /// [`ClusterTlsError`].
    pub fn new(identity: Identity) -> Result<Self, ClusterTlsError> {
        let (asking, listening) = (Arc::new(tls::asking(&identity)?), Arc::new(tls::listening(&identity)?));
        Ok(Self { shown: Mutex::new(Shown { identity, asking, listening }), issued: Mutex::default() })
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the facts of the identity that are no secret, as last written.
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

    /// The server's own key, in PEM form.
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
        crate::options::tls_identity(&self.shown().identity)
    }

    /// Replaces the certificate that this server presents.
    ///
    /// # Errors
    /// [`IdentityError`]: it cannot be written. [`ClusterTlsError`]: it is not a certificate; the old one
    /// is presented until the next start.
    pub fn replace_certificate(&self, pem: String, now_unix_s: u64) -> Result<(), CredentialsError> {
        let mut shown = self.shown();
        shown.identity.replace_certificate(pem, now_unix_s, None)?;
        Self::show(&mut shown)
    }

    /// Renews an expired certificate by this server's own files; `false`: it is valid.
    ///
    /// # Errors
    /// Why it could not be renewed.
    pub fn renew_alone(&self, now_unix_s: u64) -> Result<bool, String> {
        let mut shown = self.shown();
        let renewed = crate::alone::renew_if_ended(&mut shown.identity, now_unix_s)?;
        if renewed {
            Self::show(&mut shown).map_err(|error| error.to_string())?;
        }
        Ok(renewed)
    }

    fn show(shown: &mut Shown) -> Result<(), CredentialsError> {
        let (asking, listening) = (tls::asking(&shown.identity)?, tls::listening(&shown.identity)?);
        (shown.asking, shown.listening) = (Arc::new(asking), Arc::new(listening));
        Ok(())
    }

    /// As [`Credentials::replace_certificate`], by the certificate that could not be written the last time, or else by the one that `issue`
    /// gives.
    ///
    /// # Errors
    /// The error of `issue`, or [`CredentialsError`].
    pub fn renew(
        &self,
        issue: impl FnOnce() -> Result<String, String>,
        now_unix_s: u64,
    ) -> Result<(), String> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let pem = match issued.take() {
            Some(pem) => pem,
            None => issue()?,
        };
        self.replace_certificate(pem.clone(), now_unix_s).map_err(|error| {
            *issued = Some(pem);
            error.to_string()
        })
    }

    /// Forgets that a certificate is on no record.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn remember_recorded(&self, made: &Unrecorded) -> Result<(), IdentityError> {
        let mut shown = self.shown();
        if shown.identity.facts.unrecorded.as_ref() != Some(made) {
            return Ok(());
        }
        let facts = Facts { unrecorded: None, ..shown.identity.facts.clone() };
        shown.identity.remember(facts)
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
