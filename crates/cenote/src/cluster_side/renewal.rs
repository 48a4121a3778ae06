//! A server's certificate is renewed when it starts, if half of its time is over.

use cluster::State;
use cluster::admission::{self, proof_context};
use cluster::authority::{NodeKey, is_due};
use cluster::identity::{Identity, IdentityError};
use cluster::seal::SealKey;

/// Does nothing if there is time left, or if it cannot be done now: then the next start tries again.
///
/// # Errors
/// [`IdentityError`]: the new certificate is recorded, and cannot be written.
pub fn renew_if_due(
    identity: &mut Identity,
    state: &State,
    key: &SealKey,
    now_unix_s: u64,
) -> Result<(), IdentityError> {
    if !is_due(identity.facts.certified_unix_s, now_unix_s) {
        return Ok(());
    }
    let proven = NodeKey::from_pem(&identity.key)?.prove(&proof_context(&identity.facts.id.to_string()))?;
    match admission::renew(state, key, identity.facts.node, &proven, now_unix_s) {
        Ok(renewed) => {
            tracing::info!(node = identity.facts.name, "the certificate was renewed for a year");
            identity.replace_certificate(renewed.certificate, now_unix_s)
        }
        Err(error) => {
            tracing::warn!(%error, "the certificate is to be renewed, and could not be");
            Ok(())
        }
    }
}
