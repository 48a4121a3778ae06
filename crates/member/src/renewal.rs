//! A server's certificate is renewed while it runs, and when it starts, once half of its time is over.

use crate::credentials::Credentials;
use cluster::State;
use cluster::admission::{self, proof_context};
use cluster::authority::{NodeKey, is_due};
use cluster::seal::SealKey;

/// Does nothing if there is time left; `true`: another certificate is shown from now on. What cannot be done now is tried again by the next
/// call: the certificate before stays good.
///
/// # Errors
/// Why it was not renewed.
pub fn renew_if_due(
    credentials: &Credentials,
    state: &State,
    key: &SealKey,
    now_unix_s: u64,
) -> Result<bool, String> {
    let facts = credentials.facts();
    if !is_due(facts.certified_unix_s, now_unix_s) {
        return Ok(false);
    }
    let told = |error: &dyn std::fmt::Display| {
        format!("the certificate is to be renewed, and could not be: {error}")
    };
    let issue = || {
        let own = NodeKey::from_pem(&credentials.key()).map_err(|error| error.to_string())?;
        let proven = own.prove(&proof_context(&facts.id.to_string())).map_err(|error| error.to_string())?;
        let renewed = admission::renew(state, key, facts.node, &proven, now_unix_s);
        renewed.map(|renewed| renewed.certificate).map_err(|error| error.to_string())
    };
    credentials.renew(issue, now_unix_s).map_err(|error| told(&error))?;
    tracing::info!(node = facts.name, "the certificate was renewed for a year");
    Ok(true)
}
