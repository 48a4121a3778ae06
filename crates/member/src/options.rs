//! Options to start this server's member of etcd, and addresses and certificates for requests to etcd.

use crate::identity::Identity;
use api::pem::FILE_BYTES_MAX;
use api::regular;
use etcd::process::{EtcdProcessOptions, EtcdStart, TlsFiles, has_data};
use etcd::{EtcdOptions, TlsIdentity};
use records::StateError;
use std::path::{Path, PathBuf};

/// A foreign etcd in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherEtcd {
    /// `https://ADDRESS:PORT` of each member; none: the servers run etcd themselves.
    pub endpoints: Vec<String>,
    /// In PEM form: the authority of its members, and a certificate and key by which they know this server.
    pub authority: PathBuf,
    /// File of the certificate by which the members know this server, in PEM form.
    pub certificate: PathBuf,
    /// File of that certificate's private key, in PEM form.
    pub key: PathBuf,
}

impl OtherEtcd {
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn options(&self, cluster: &str) -> Result<EtcdOptions, StateError> {
        let read = |path: &Path| {
            regular::read(path, FILE_BYTES_MAX).map_err(|error| {
                StateError::Open(format!("cluster.etcd: {} cannot be read: {error}", path.display()))
            })
        };
        let tls = TlsIdentity {
            ca_pem: read(&self.authority)?,
            certificate_pem: read(&self.certificate)?,
            key_pem: zeroize::Zeroizing::new(read(&self.key)?),
        };
        let kept_revisions = Some(EtcdOptions::KEPT_REVISIONS);
        Ok(EtcdOptions { kept_revisions, ..EtcdOptions::new(cluster, self.endpoints.clone(), Some(tls)) })
    }
}

/// In the cluster's directory: the highest revision of etcd that this server has seen.
const SEEN_FILE: &str = "etcd.seen";

/// Returns whether this server's member may start by this server's own files. One without data may have
/// voted before they were lost: it waits until the others report that it never ran, or it is another
/// member ([`crate::seat`]).
pub(crate) fn may_start(identity: &Identity) -> bool {
    let begins = identity.is_founding() || has_data(&identity.etcd_directory());
    if !begins {
        tracing::warn!(
            directory = %identity.etcd_directory().display(),
            "this server's etcd has lost its data: the server waits for the other members of etcd, and then makes its own \
             anew. If there are no others, restore this server's data directory from a backup"
        );
    }
    begins
}

/// Makes the options to run this server's member of etcd; `program` `None`: `etcd` in PATH.
pub fn process_options(identity: &Identity, program: Option<PathBuf>) -> EtcdProcessOptions {
    let facts = &identity.facts;
    let file = |name: &str| identity.directory.join(name);
    let members = facts.initial_members.clone();
    // Callers only pass servers that run a member.
    let none = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    EtcdProcessOptions {
        program,
        directory: identity.etcd_directory(),
        name: facts.name.clone(),
        peer: facts.etcd.map_or(none, |addresses| addresses.peer),
        client: facts.etcd.map_or(none, |addresses| addresses.client),
        tls: Some(TlsFiles {
            ca: file(crate::identity::AUTHORITY),
            certificate: file(crate::identity::CERTIFICATE),
            key: file(crate::identity::KEY),
            revoked: Some(file(crate::identity::REVOKED)),
        }),
        token: facts.id.to_string(),
        start: match facts.founder && identity.is_founding() {
            true => EtcdStart::New { members },
            false => EtcdStart::Existing { members },
        },
        quota_bytes: EtcdProcessOptions::QUOTA_BYTES,
    }
}

/// The identity by which members of etcd that the servers run know this one.
pub fn tls_identity(identity: &Identity) -> TlsIdentity {
    TlsIdentity {
        ca_pem: identity.authority.clone().into_bytes(),
        certificate_pem: identity.certificate.clone().into_bytes(),
        key_pem: zeroize::Zeroizing::new(identity.key.as_bytes().to_vec()),
    }
}

/// Makes the options for requests to etcd: this server's own member first, then those known.
pub fn etcd_options(identity: &Identity) -> EtcdOptions {
    let tls = tls_identity(identity);
    let own = identity.facts.etcd.map(|addresses| format!("https://{}", addresses.client));
    let mut endpoints: Vec<String> = own.into_iter().collect();
    for known in &identity.facts.endpoints {
        if !endpoints.contains(known) {
            endpoints.push(known.clone());
        }
    }
    EtcdOptions {
        floor_file: Some(identity.directory.join(SEEN_FILE)),
        kept_revisions: identity.facts.etcd.map(|_| EtcdOptions::KEPT_REVISIONS),
        ..EtcdOptions::new(&identity.facts.cluster, endpoints, Some(tls))
    }
}

/// Forgets the revision of etcd that this server has seen, since part of a lost majority's state is
/// abandoned.
///
/// # Errors
/// [`StateError::Open`].
pub fn forget_seen(identity: &Identity) -> Result<(), StateError> {
    let file = identity.directory.join(SEEN_FILE);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StateError::Open(format!("{}: {error}", file.display())))
        }
        _ => Ok(()),
    }
}
