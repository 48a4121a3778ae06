//! Requests of the API forwarded to another server.
//!
//! Promises: a refusal says whether something may have been changed. A server that accepts connections
//! and does not answer costs seconds, and gets no change; one that stops answering after it got a
//! change costs a change's timeout, unless heartbeats report it as down before.

use crate::asking::{PROOF_TIMEOUT, ask_node, have_done};
use crate::failure::ControlError;
use crate::wire::{self, Ask, Secret, Tell};
use api::cluster::{Carried, Errand};
use api::{ApiError, Caller, ErrorKind};
use records::NodeRecord;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a change at another server: formatting a disk takes the longest.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(290);
/// Timeout of a read at another server: a person waits.
const READ_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Interval between checks that a server with a forwarded change is alive.
const LIFE_LOOK: Duration = Duration::from_secs(1);

/// Forwards a request to the only server that can execute it. `is_up`: that server's present state by
/// heartbeats.
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

/// Reports that the outcome of the change is unknown.
fn undecided(name: &str, why: &str) -> ControlError {
    let message = format!(
        "only server '{name}' can do that, and it is not known whether it did, or still does: {why}; look there before you give \
         the command again"
    );
    ControlError(ApiError::new(ErrorKind::Unavailable, message))
}
