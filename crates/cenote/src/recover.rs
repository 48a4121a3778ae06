//! `cenote cluster recover`: a server whose cluster has permanently lost its majority continues alone.
//!
//! Promises: nothing happens before the administrator knows the losses and typed the cluster's name.
//! The server's own member keeps all its records, in data made anew from them ([`rescue`]; the old data
//! is moved away), and every other server is removed from the cluster, so that none can return with
//! another history. Their disks stay in the pool, and may return. Recovery can be interrupted anywhere
//! and run again: until it has completed the server does not start, and reports why.

use crate::daemon::{DaemonError, DataDirectory};
use etcd::EtcdState;
use etcd::process::{EtcdProcess, EtcdProcessOptions, has_data};
use etcd::rescue;
use member::admission;
use member::identity::{Facts, Identity};
use member::{FOUNDING_PATIENCE, await_answer, etcd_options, forget_seen, process_options};
use records::clock::unix_now_s;
use records::recovery::{self, Recovery};
use records::{State, api_tokens, nodes};
use std::path::Path;

/// Recovers. `program`: of etcd, if it is not in PATH. `confirmed` is called once, with the losses and
/// the name to type.
///
/// # Errors
/// Why nothing was done; or the remaining steps.
pub fn recover(
    data: &Path,
    program: Option<&Path>,
    confirmed: impl FnOnce(&str, &str) -> Result<(), String>,
) -> Result<String, DaemonError> {
    let setup = DaemonError::Setup;
    if !data.exists() {
        return Err(setup(format!("there is no data directory {}", data.display())));
    }
    // Locks the directory: a running server would start its member twice.
    let directory = DataDirectory::open_or_create(data)?;
    let mut identity = member::open_identity(directory.path())?
        .ok_or_else(|| setup(format!("the server of {} is in no cluster", directory.path().display())))?;
    if identity.is_recovering() {
        identity.resume_recovery()?;
    }
    let facts = identity.facts.clone();
    if facts.etcd.is_none() || !has_data(&identity.etcd_directory()) {
        return Err(setup(format!(
            "{} runs no member of etcd, so it has no copy of the cluster's state: recover on a server that does",
            facts.name
        )));
    }
    confirmed(
        &format!(
            "this makes {} the only server of cluster {}. What the cluster decided without it, since it last heard of the others, is lost: changes \
             of accounts, shares and volumes, and which copies are newest. All other servers are out of the cluster; start none of them again \
             before its data directory is empty. All tokens of the management API are revoked, since one that was deleted meanwhile would be good again. Leave their disks as they are: they come back with `cenote disk add` when their servers have joined \
             anew",
            facts.name, facts.cluster
        ),
        &facts.cluster,
    )
    .map_err(setup)?;
    identity.begin_recovery()?;
    let options = process_options(&identity, program.map(Path::to_owned));
    let facts = Facts {
        endpoints: vec![options.client_url()],
        initial_members: vec![(facts.name.clone(), options.peer_url())],
        ..facts
    };
    identity.remember(facts.clone())?;
    // Part of the others' records is lost: this member counts on from its own records.
    forget_seen(&identity)?;
    let records = make_member_anew(&identity, &options).map_err(|error| {
        setup(format!(
            "it is not done yet, the member's data are as they were, and it goes on when it is given again: {error}"
        ))
    })?;
    let options = process_options(&identity, program.map(Path::to_owned));
    let process = EtcdProcess::start(options).map_err(|error| setup(error.to_string()))?;
    let etcd = EtcdState::connect(etcd_options(&identity))?;
    let state = State::from(etcd.clone());
    await_answer(&state, FOUNDING_PATIENCE)?;
    let others: Vec<String> = nodes::members(&state)?
        .into_iter()
        .map(|node| node.value.name)
        .filter(|name| *name != facts.name)
        .collect();
    let key = identity.seal_key().map_err(|error| setup(error.to_string()))?;
    if !others.is_empty() {
        Recovery::note(&state, unix_now_s())?;
    }
    for name in &others {
        admission::leave_behind(&state, &key, name, unix_now_s()).map_err(|error| {
            setup(format!("it is not done yet, and goes on when it is given again: {error}"))
        })?;
    }
    let tokens = api_tokens::delete_all(&state)?;
    let unopened = recovery::unopened(&state, facts.node)?;
    process.stop();
    identity.end_recovery()?;
    Ok(told(&facts, (records, tokens), &others, &unopened))
}

/// Remakes the data of this server's member from its records; returns their number. May be repeated
/// after any interruption, since it reads whichever data are in the member's place.
fn make_member_anew(identity: &Identity, options: &EtcdProcessOptions) -> Result<usize, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    identity.resume_recovery().map_err(|error| told(&error))?;
    let client = || etcd_options(identity);
    let dump =
        rescue::read_forced(options.clone(), client(), FOUNDING_PATIENCE).map_err(|error| told(&error))?;
    let count = dump.entries.len();
    let anew = EtcdProcessOptions { directory: identity.etcd_directory_anew(), ..options.clone() };
    rescue::make_anew(anew, client(), dump, FOUNDING_PATIENCE).map_err(|error| told(&error))?;
    identity.take_etcd_anew().map_err(|error| told(&error))?;
    Ok(count)
}

/// Reports the work done, and the next steps.
fn told(facts: &Facts, (records, tokens): (usize, usize), others: &[String], unopened: &[String]) -> String {
    let out = if others.is_empty() { "no others".to_owned() } else { others.join(", ") };
    let waiting = if unopened.is_empty() {
        "All volumes can be served".to_owned()
    } else {
        format!("These volumes wait for disks of the others: {}", unopened.join(", "))
    };
    format!(
        "{} is the only server of cluster {} now, with a member of etcd that was made anew from its {records} records; out of it: {out}. {waiting}. Tokens of the management API that were \
         revoked: {tokens}. Start the server; look whether accounts are there that were deleted meanwhile (`cenote user list`); let the others join anew with empty data directories, \
         and bring their disks back there, as they are: `cenote disk add PATH --pool POOL`",
        facts.name, facts.cluster
    )
}
