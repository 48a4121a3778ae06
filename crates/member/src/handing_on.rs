//! Requests of the API that another server is to carry out.
//!
//! Promises: a refusal says whether something may have been changed. A server that takes connections and answers nothing costs seconds, and is told of no
//! change; one that was told and then falls silent costs as long as a change may take, unless the heartbeats say before that it is down.

use crate::asking::{PROOF_TIMEOUT, ask_node, have_done};
use crate::failure::ControlError;
use crate::wire::{self, Ask, Secret, Tell};
use api::cluster::{Carried, Errand};
use api::{ApiError, Caller, ErrorKind};
use records::NodeRecord;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// How long another server may take to change what it was told to: formatting a disk takes the longest.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(290);
/// How long it may take to answer what changes nothing: a person waits.
const READ_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Between two looks whether a server that was told to change something lives.
const LIFE_LOOK: Duration = Duration::from_secs(1);

/// Hands a request on to the server that alone can carry it out. `is_up`: what the heartbeats say of that one now.
pub(crate) async fn hand_on(
    tls: Arc<ClientConfig>,
    node: &NodeRecord,
    (errand, caller): (Errand, &Caller),
    is_up: impl Fn() -> Option<bool>,
) -> Result<Carried, ControlError> {
    let name = &node.name;
    if is_up() == Some(false) {
        return Err(not_done(name, "it is down"));
    }
    let Errand { method, path, body } = errand;
    let is_read = matches!(method.as_str(), "GET" | "HEAD");
    let by = caller.token().map(|(token, role)| wire::ErrandBy { token: token.to_owned(), role });
    let question = Ask::Errand(wire::Errand { method, path, body: Secret(body), by });
    let told = if is_read {
        let told = ask_node(tls, node, &question, READ_TIMEOUT).await;
        told.map_err(|error| not_done(name, &error.to_string()))?
    } else {
        let doing = have_done(tls, node, &question, (PROOF_TIMEOUT, CHANGE_TIMEOUT));
        tokio::select! {
            done = doing => done.map_err(|failed| match failed.is_untold {
                true => not_done(name, &failed.error.to_string()),
                false => undecided(name, &failed.error.to_string()),
            })?,
            () = death(is_up) => return Err(undecided(name, "it went down meanwhile")),
        }
    };
    match told {
        Tell::Done { status, body } => Ok(Carried { status, body: body.0.clone() }),
        _ if is_read => Err(not_done(name, "it answered something else than was asked")),
        _ => Err(undecided(name, "it answered something else than was asked")),
    }
}

async fn death(is_up: impl Fn() -> Option<bool>) {
    while is_up() != Some(false) {
        tokio::time::sleep(LIFE_LOOK).await;
    }
}

/// Nothing was changed.
fn not_done(name: &str, why: &str) -> ControlError {
    let message = format!(
        "only server '{name}' can do that, and it does not answer: {why}; try again, or give the command on '{name}'"
    );
    ControlError(ApiError::new(ErrorKind::Unavailable, message))
}

/// Nobody here knows whether the change was made.
fn undecided(name: &str, why: &str) -> ControlError {
    let message = format!(
        "only server '{name}' can do that, and it is not known whether it did, or still does: {why}; look there before you give \
         the command again"
    );
    ControlError(ApiError::new(ErrorKind::Unavailable, message))
}
