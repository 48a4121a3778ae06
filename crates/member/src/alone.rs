//! A server whose certificate has expired issues itself another one.
//!
//! An expired certificate is accepted nowhere, not even by etcd with the records that its renewal
//! needs. So a server keeps the authority's key, sealed, beside its own files, and issues itself a
//! certificate with that. Its key pair and its number stay. etcd accepts such a certificate as the
//! authority's; the other servers accept it once it is on record, which is the server's first step
//! (`renewal`).

use crate::admission::proof_context;
use crate::identity::{Identity, IdentityError};
use records::clock::unix_now_s;
use std::path::Path;
use trust::authority::{Authority, NodeKey, Unrecorded, certificate_ends_unix_s, is_good};

/// Opens the identity of a data directory's server in its cluster, with a certificate whose time is not over.
///
/// # Errors
/// [`IdentityError`]. A certificate that cannot be renewed is only logged: its users fail later.
pub fn open_identity(data: &Path) -> Result<Option<Identity>, IdentityError> {
    let Some(mut identity) = Identity::open(data)? else { return Ok(None) };
    if let Err(why) = renew_if_ended(&mut identity, unix_now_s()) {
        tracing::error!(why, "the other servers do not accept this server's certificate");
    }
    Ok(Some(identity))
}

/// Makes this server a certificate if the time of the one it has is over, or has not begun: without the records, by the sealed key of the authority.
/// `false`: it is good.
///
/// # Errors
/// Why none was made.
pub(crate) fn renew_if_ended(identity: &mut Identity, now_unix_s: u64) -> Result<bool, String> {
    let issued_unix_s = identity.facts.certified_unix_s;
    if is_good(issued_unix_s, now_unix_s) {
        return Ok(false);
    }
    let ended = date(certificate_ends_unix_s(issued_unix_s));
    let made = make_alone(identity, now_unix_s);
    let why = |why: String| {
        format!(
            "this server's certificate expired on {ended}, and this machine's clock says {}: {why}. Correct the clock if it \
             is wrong. If it is right, set the clocks of all servers to a day before {ended} until they have renewed their \
             certificates",
            date(now_unix_s)
        )
    };
    let (pem, unrecorded) = made.map_err(why)?;
    identity.replace_certificate(pem, now_unix_s, Some(unrecorded)).map_err(|error| error.to_string())?;
    tracing::warn!(
        node = identity.facts.name,
        ended,
        until = date(certificate_ends_unix_s(now_unix_s)),
        "this server's certificate had expired: the server has made a new one, signed by the cluster's authority"
    );
    Ok(true)
}

fn make_alone(identity: &Identity, now_unix_s: u64) -> Result<(String, Unrecorded), String> {
    let known =
        identity.known().ok_or("known.json in DATA/cluster, by which it would be renewed, is not there")?;
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let facts = &identity.facts;
    let key = identity.seal_key().map_err(|error| told(&error))?;
    let authority =
        Authority::open_sealed(facts.id, &known.authority_key, &key).map_err(|error| told(&error))?;
    let context = proof_context(&facts.id.to_string());
    let own = NodeKey::from_pem(&identity.key).map_err(|error| told(&error))?;
    let proven = own.prove(&context).map_err(|error| told(&error))?;
    let issued = authority.issue(&facts.name, &known.addresses, &proven, &context, now_unix_s);
    let issued = issued.map_err(|error| told(&error))?;
    Ok((issued.pem, Unrecorded { sha256: issued.fingerprint.to_string(), serial: issued.serial }))
}

pub(crate) fn date(unix_s: u64) -> String {
    let (year, month, day) = types::civil_date((unix_s / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}
