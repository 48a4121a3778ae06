//! The cluster's own certificate authority.
//!
//! Owns the form of certificates and keys. Promises: a certificate names its server's addresses and nothing else is trusted for them; a
//! server's private key never leaves it; the holder of a certificate has proven that the key is its
//! own. Never decides which servers join.
//!
//! Keys are ECDSA P-256, which etcd (Go) and rustls both take. Every server that holds the cluster's sealing key can open the authority's
//! key and so renew its own certificate when no other is there.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, RevokedCertParams, SanType, SerialNumber, SigningKey, date_time_ymd,
};
use records::hexadecimal::{hex, unhex};
use records::nodes::{ClusterRecord, RevokedCertificate, Sealed};
use records::seal::{SealError, SealKey};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The name that every certificate of a server has besides its own: a client that knows a server only
/// by its cluster asks for it.
pub const MEMBER_NAME: &str = "member.cenote.internal";

/// As long as a cluster may live.
const AUTHORITY_DAYS: i64 = 30 * 365;
/// Days for which a server's certificate is good.
pub const CERTIFICATE_DAYS: u64 = 365;
/// A certificate with fewer days left is renewed: a server that was away for half a year still gets in.
pub const RENEWED_DAYS: u64 = CERTIFICATE_DAYS / 2;
/// Days by which clocks may differ.
const SKEW_DAYS: i64 = 1;
const DAY_S: u64 = 86_400;
const HOUR_S: u64 = 3600;
/// Bytes of a serial number (RFC 5280 4.1.2.2 allows 20).
const SERIAL_BYTES: usize = 16;

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the certificate cannot be made: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("the public key is none, or whoever sent it does not hold the private one")]
    NotItsKey,
    #[error("the cluster's authority has a damaged key: {0}")]
    Key(String),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// SHA-256 of a certificate in DER form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        unhex(text).and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(())
    }
}

/// A certificate as the authority made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub pem: String,
    pub fingerprint: Fingerprint,
    /// Serial number in hexadecimal digits.
    pub serial: String,
}

/// A certificate that is on no record yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Unrecorded {
    /// SHA-256 of the certificate (DER), in hexadecimal digits.
    pub sha256: String,
    /// Serial number in hexadecimal digits.
    pub serial: String,
}

/// The key pair of a server.
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// # Errors
    /// [`AuthorityError::Certificate`] if the system has no random numbers.
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// # Errors
    /// [`AuthorityError::Certificate`] if the text is no key.
    pub fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        Ok(Self(KeyPair::from_pem(pem)?))
    }

    /// The private key in PEM form.
    pub fn pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.serialize_pem())
    }

    /// Signs by ECDSA with SHA-256; in ASN.1.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`] if the system has no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, AuthorityError> {
        Ok(self.0.sign(message)?)
    }

    /// Public key and proof of possession for an authority. `context`: the only purpose for which the proof
    /// is valid.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`].
    pub fn prove(&self, context: &str) -> Result<ProvenKey, AuthorityError> {
        let proof = self.0.sign(&proof_message(context))?;
        Ok(ProvenKey { public_key: hex(self.0.public_key_raw()), proof: hex(&proof) })
    }
}

fn proof_message(context: &str) -> Vec<u8> {
    format!("Cenote: this key is mine: {context}").into_bytes()
}

/// A public key (an uncompressed point of P-256) and the proof that its sender holds the private one, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenKey {
    pub public_key: String,
    pub proof: String,
}

impl ProvenKey {
    fn check(&self, context: &str) -> Result<Point, AuthorityError> {
        let point = unhex(&self.public_key).ok_or(AuthorityError::NotItsKey)?;
        let proof = unhex(&self.proof).ok_or(AuthorityError::NotItsKey)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point)
            .verify(&proof_message(context), &proof)
            .map_err(|_| AuthorityError::NotItsKey)?;
        Ok(Point(point))
    }
}

/// A public key of P-256.
struct Point(Vec<u8>);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The authority of one cluster, able to sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// An authority that was just made.
pub struct NewAuthority {
    pub authority: Authority,
    /// The authority's certificate in PEM form.
    pub certificate: String,
    /// As [`ClusterRecord::authority_key`].
    pub key: Sealed,
}

impl Authority {
    /// Makes the authority of the cluster `id`. `now_unix_s`: the wall clock.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn create(id: Uuid, key: &SealKey, now_unix_s: u64) -> Result<NewAuthority, AuthorityError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let secret = Zeroizing::new(pair.serialize_der());
        let sealed = Sealed(key.seal(&label(id), &secret)?);
        let mut params = authority_params(id);
        let today = day_of(now_unix_s);
        params.not_before = date_of(today - SKEW_DAYS);
        params.not_after = date_of(today + AUTHORITY_DAYS);
        params.serial_number = Some(random_serial()?);
        let certificate = params.self_signed(&pair)?.pem();
        let authority = Self { issuer: Issuer::new(authority_params(id), pair) };
        Ok(NewAuthority { authority, certificate, key: sealed })
    }

    /// The cluster's authority.
    ///
    /// # Errors
    /// [`AuthorityError`] if the sealing key is another cluster's.
    pub fn open(cluster: &ClusterRecord, key: &SealKey) -> Result<Self, AuthorityError> {
        Self::open_sealed(cluster.id, &cluster.authority_key, key)
    }

    /// The authority of the cluster `id`, by its sealed key alone.
    ///
    /// # Errors
    /// As [`Authority::open`].
    pub fn open_sealed(id: Uuid, sealed: &Sealed, key: &SealKey) -> Result<Self, AuthorityError> {
        let secret = key.open(&label(id), &sealed.0)?;
        let pair =
            KeyPair::try_from(secret.as_slice()).map_err(|error| AuthorityError::Key(error.to_string()))?;
        Ok(Self { issuer: Issuer::new(authority_params(id), pair) })
    }

    /// A certificate for the server `name` at `addresses`, whose key it is. `context` as in [`NodeKey::prove`].
    ///
    /// # Errors
    /// [`AuthorityError::NotItsKey`], [`AuthorityError::Certificate`].
    pub fn issue(
        &self,
        name: &str,
        addresses: &[IpAddr],
        proven: &ProvenKey,
        context: &str,
        now_unix_s: u64,
    ) -> Result<Issued, AuthorityError> {
        let point = proven.check(context)?;
        let mut params = CertificateParams::new(vec![MEMBER_NAME.to_owned(), name.to_owned()])?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name = common_name(name);
        let today = day_of(now_unix_s);
        params.not_before = date_of(today - SKEW_DAYS);
        params.not_after = date_of(today + CERTIFICATE_DAYS as i64);
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let serial = random_serial()?;
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(&point, &self.issuer)?;
        Ok(Issued {
            pem: certificate.pem(),
            fingerprint: Fingerprint::of(certificate.der()),
            serial: hex(&serial.to_bytes()),
        })
    }

    /// The revocation list in PEM form, for etcd; our own TLS looks at the servers' records. `number` grows with each list.
    ///
    /// # Errors
    /// [`AuthorityError::Certificate`].
    pub fn revocation_list(
        &self,
        revoked: &[RevokedCertificate],
        number: u64,
        now_unix_s: u64,
    ) -> Result<String, AuthorityError> {
        let today = day_of(now_unix_s);
        let revoked = revoked.iter().filter_map(|one| {
            Some(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&unhex(&one.serial)?),
                revocation_time: date_of(day_of(one.since_unix_s)),
                reason_code: None,
                invalidity_date: None,
            })
        });
        let list = CertificateRevocationListParams {
            this_update: date_of(today - SKEW_DAYS),
            next_update: date_of(today + AUTHORITY_DAYS),
            crl_number: SerialNumber::from_slice(&number.to_be_bytes()),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.pem()?)
    }
}

/// A certificate made at `issued_unix_s` is to be renewed.
pub fn is_due(issued_unix_s: u64, now_unix_s: u64) -> bool {
    now_unix_s.saturating_sub(issued_unix_s) > (CERTIFICATE_DAYS - RENEWED_DAYS) * DAY_S
}

/// When a certificate that was made at `issued_unix_s` ends.
pub fn certificate_ends_unix_s(issued_unix_s: u64) -> u64 {
    (issued_unix_s / DAY_S + CERTIFICATE_DAYS) * DAY_S
}

/// When the authority of a cluster ends that was made at `created_unix_s`.
pub fn authority_ends_unix_s(created_unix_s: u64) -> u64 {
    (created_unix_s / DAY_S + AUTHORITY_DAYS.unsigned_abs()) * DAY_S
}

/// Whether others take a certificate that was made at `issued_unix_s`: its time has begun, and is not over within an hour.
pub fn is_good(issued_unix_s: u64, now_unix_s: u64) -> bool {
    let begins = (issued_unix_s / DAY_S).saturating_sub(SKEW_DAYS.unsigned_abs()) * DAY_S;
    (begins..certificate_ends_unix_s(issued_unix_s)).contains(&now_unix_s)
        && now_unix_s + HOUR_S < certificate_ends_unix_s(issued_unix_s)
}

/// Name and key usages of the authority: the same at each opening, since its signatures cover them.
fn authority_params(id: Uuid) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("Cenote cluster {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut found = DistinguishedName::new();
    found.push(DnType::CommonName, name);
    found
}

fn label(cluster: Uuid) -> String {
    format!("authority of cluster {cluster}")
}

fn random_serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = [0; SERIAL_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| SealError::Random)?;
    // A positive number of the full length, so that every writing of it has the same digits.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// A day in the year 8814: dates counted from it still have years of four digits.
const DAY_MAX: i64 = 2_500_000;

/// Days since 1970-01-01.
fn day_of(unix_s: u64) -> i64 {
    i64::try_from(unix_s / DAY_S).unwrap_or(DAY_MAX).min(DAY_MAX)
}

fn date_of(day: i64) -> time::OffsetDateTime {
    let (year, month, day) = types::civil_date(day);
    // Within a year of four digits, see `DAY_MAX`.
    date_time_ymd(year as i32, month as u8, day as u8)
}

#[cfg(test)]
mod tests;
