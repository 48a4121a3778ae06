//! The nodes that a node knows by their certificates, and the proof of its own identity.
//!
//! Promises: a node is proven by a certificate that its record names, that the cluster's authority made
//! and whose time is not over, and by a signature of that certificate's key; a server that was removed
//! is proven by nothing, not even by keys of the cluster that it has copied.

use crate::authority::{AuthorityError, Fingerprint, NodeKey};
use records::nodes::NodeRecord;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use types::NodeId;
use uuid::Uuid;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Why a node has no means to prove itself.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the {0} is no certificate: {1}")]
    NoCertificate(&'static str, String),
    #[error(transparent)]
    Key(#[from] AuthorityError),
}

/// Why a node is not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotProven {
    /// The records name no such node, or it is this one.
    Unknown,
    /// The certificate is none of that node's.
    NotItsCertificate,
    /// The certificate ran out, or the authority did not make it.
    BadCertificate,
    BadSignature,
}

/// A node's own certificate and key, in PEM form.
pub struct OwnPapers<'a> {
    pub certificate: &'a str,
    pub authority: &'a str,
    pub key: &'a str,
}

/// See the module. It is as of one moment: another is made when the records or the node's own certificate change.
pub struct NodeTrust {
    cluster: Uuid,
    own: NodeId,
    key: NodeKey,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    /// SHA-256 of the certificates of each node that has disks, in hexadecimal digits.
    nodes: BTreeMap<NodeId, BTreeSet<String>>,
}

impl fmt::Debug for NodeTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTrust")
            .field("own", &self.own)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

fn certificate(of: &'static str, pem: &str) -> Result<CertificateDer<'static>, TrustError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| TrustError::NoCertificate(of, error.to_string()))
}

impl NodeTrust {
    /// The trust of node `own` in the others of `members`; a witness has no disks and reaches none.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn new<'a>(
        cluster: Uuid,
        own: NodeId,
        papers: &OwnPapers<'_>,
        members: impl IntoIterator<Item = &'a NodeRecord>,
    ) -> Result<Self, TrustError> {
        let with_disks = |member: &&NodeRecord| member.is_member() && !member.is_witness;
        let nodes = members.into_iter().filter(with_disks).map(|member| {
            let earlier = member.earlier_certificates.iter().map(|earlier| &earlier.sha256);
            (member.id, earlier.chain([&member.certificate_sha256]).cloned().collect())
        });
        Ok(Self {
            cluster,
            own,
            key: NodeKey::from_pem(papers.key)?,
            certificate: certificate("server's certificate", papers.certificate)?,
            authority: certificate("authority's certificate", papers.authority)?,
            nodes: nodes.collect(),
        })
    }

    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    pub fn own(&self) -> NodeId {
        self.own
    }

    /// The nodes that have disks, this one among them.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// This node's certificate, in DER form.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Whether it shows the certificate that its record names last.
    pub fn shows(&self, record: &NodeRecord) -> bool {
        record.certificate_sha256 == Fingerprint::of(&self.certificate).to_string()
    }

    /// Signs with its certificate's key.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`] if the system has no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, AuthorityError> {
        self.key.sign(message)
    }

    /// Checks that another node of the cluster has this certificate and signed this message. `now_unix_s`: the wall clock.
    ///
    /// # Errors
    /// [`NotProven`].
    pub fn verify(
        &self,
        node: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &[u8],
        now_unix_s: u64,
    ) -> Result<(), NotProven> {
        let known = self.nodes.get(&node).filter(|_| node != self.own).ok_or(NotProven::Unknown)?;
        // Every server that there ever was can open the authority's key: a certificate made by that counts
        // only if it is on record.
        if !known.contains(&Fingerprint::of(certificate).to_string()) {
            return Err(NotProven::NotItsCertificate);
        }
        let algorithm = webpki::aws_lc_rs::ECDSA_P256_SHA256;
        let certificate = CertificateDer::from(certificate);
        let certificate = EndEntityCert::try_from(&certificate).map_err(|_| NotProven::BadCertificate)?;
        let anchor = anchor_from_trusted_cert(&self.authority).map_err(|_| NotProven::BadCertificate)?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now_unix_s));
        certificate
            .verify_for_usage(&[algorithm], &[anchor], &[], time, KeyUsage::client_auth(), None, None)
            .map_err(|_| NotProven::BadCertificate)?;
        certificate.verify_signature(algorithm, message, signature).map_err(|_| NotProven::BadSignature)
    }
}

#[doc(hidden)]
pub mod fixture;
#[cfg(test)]
mod tests;
