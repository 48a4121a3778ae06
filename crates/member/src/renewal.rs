//! A server's certificate is renewed while it runs, and when it starts, once half of its time is over.

use crate::admission::{self, proof_context};
use crate::credentials::Credentials;
use crate::identity::{Identity, Known};
use records::State;
use records::nodes::ClusterRecord;
use records::seal::SealKey;
use records::{NodeRecord, Typed};
use trust::authority::{NodeKey, is_due};

/// Stores the facts that this server needs when it cannot read the records, and records a certificate
/// that it made alone.
///
/// # Errors
/// The reason why not; the next check tries again.
pub(crate) fn note_known(
    credentials: &Credentials,
    state: &State,
    cluster: &ClusterRecord,
    members: &[NodeRecord],
) -> Result<(), String> {
    let facts = credentials.facts();
    let Some(own) = members.iter().find(|node| node.id == facts.node) else { return Ok(()) };
    let others = members.iter().filter(|node| node.id != own.id && node.etcd.is_some());
    let known = Known {
        authority_key: cluster.authority_key.clone(),
        addresses: own.addresses.clone(),
        others: others.map(|node| (node.name.clone(), node.cluster)).collect(),
    };
    Identity::keep_known(&credentials.directory(), &known).map_err(|error| error.to_string())?;
    if let Some(made) = &facts.unrecorded {
        admission::record_certificate(state, facts.node, made, facts.certified_unix_s).map_err(|error| {
            format!("the certificate that this server made itself is not on record: {error}")
        })?;
        credentials.remember_recorded(made).map_err(|error| error.to_string())?;
    } else if own.certified_unix_s == 0 && facts.certified_unix_s > 0 {
        // The record is older than these dates.
        note_date(state, own.id, facts.certified_unix_s)?;
    }
    Ok(())
}

fn note_date(state: &State, node: types::NodeId, certified_unix_s: u64) -> Result<(), String> {
    let told = |error: records::StateError| error.to_string();
    let Some(found) = state.read::<NodeRecord>(&NodeRecord::id_of(node)).map_err(told)? else {
        return Ok(());
    };
    let dated = NodeRecord { certified_unix_s, ..found.value };
    state.write(&dated, found.revision).map(|_| ()).map_err(told)
}

/// Renews the certificate if due; `true`: another one is presented from now on. The next call retries a
/// failure: the old certificate stays valid.
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
