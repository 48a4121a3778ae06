//! TLS between servers of a cluster: both sides present a certificate of the cluster's authority. A
//! joining server has none yet, and knows the authority by its fingerprint, from the token.
//!
//! Promises: TLS 1.3 only; a certificate from another authority ends the handshake. Callers check in
//! the records, by the fingerprint, that its server is still in the cluster.

use crate::identity::Identity;
use api::tls::provider;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use std::sync::Arc;
use trust::authority::{Fingerprint, MEMBER_NAME};

/// Why TLS of the cluster cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("the cluster's certificates cannot be used: {0}")]
pub struct ClusterTlsError(String);

fn refused(error: impl std::fmt::Display) -> ClusterTlsError {
    ClusterTlsError(error.to_string())
}

/// The name that every server's certificate has.
pub fn member_name() -> ServerName<'static> {
    // The constant is a valid name.
    ServerName::try_from(MEMBER_NAME).unwrap_or(ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()))
}

/// Returns the SHA-256 of the first certificate of a PEM text.
///
/// # Errors
/// [`ClusterTlsError`] if there is none.
pub fn fingerprint(pem: &str) -> Result<Fingerprint, ClusterTlsError> {
    Ok(Fingerprint::of(&CertificateDer::from_pem_slice(pem.as_bytes()).map_err(refused)?))
}

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, ClusterTlsError> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(identity.authority.as_bytes()).map_err(refused)?;
    roots.add(authority).map_err(refused)?;
    Ok(Arc::new(roots))
}

/// Returns the server's certificate, followed by the authority's, which a joining server compares with
/// its token.
fn chain(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ClusterTlsError> {
    let certificates = [&identity.certificate, &identity.authority]
        .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()));
    let [certificate, authority] = certificates;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(refused)?;
    Ok((vec![certificate.map_err(refused)?, authority.map_err(refused)?], key))
}

/// For the cluster's port. Strangers come without a certificate.
///
/// # Errors
/// [`ClusterTlsError`].
pub fn listening(identity: &Identity) -> Result<ServerConfig, ClusterTlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(identity)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(refused)?;
    let (certificates, key) = chain(identity)?;
    ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .map_err(refused)
}

/// Makes the configuration of a server that connects to another one.
///
/// # Errors
/// [`ClusterTlsError`].
pub fn asking(identity: &Identity) -> Result<ClientConfig, ClusterTlsError> {
    let (certificates, key) = chain(identity)?;
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .with_root_certificates(roots(identity)?)
        .with_client_auth_cert(certificates, key)
        .map_err(refused)
}

/// For a server that has a token only.
///
/// # Errors
/// [`ClusterTlsError`].
pub fn joining(authority: Fingerprint) -> Result<ClientConfig, ClusterTlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByFingerprint(authority)))
        .with_no_client_auth())
}

/// Trusts certificates of the authority that has this fingerprint, and that comes with them.
#[derive(Debug)]
struct ByFingerprint(Fingerprint);

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = intermediates.iter().find(|certificate| Fingerprint::of(certificate) == self.0);
        let authority =
            authority.ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
