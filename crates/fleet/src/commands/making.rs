//! `fleet new`: a fleet is made, step by step.
//!
//! Promises: the description and the password are on disk before anything is made, so that the same
//! command continues after an interruption at any step, and `fleet remove` finds all that was made;
//! things that somebody else made are neither taken nor changed.

use super::life::{apply, prepare};
use super::{Failure, nodes_of, say};
use crate::args::{Limits, New};
use crate::server::Server;
use crate::state::{ApiAccess, CREDENTIALS_FILE, Making, Node, State, StateError, replace};
use api::model::Resiliency;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Instant;
use types::size::show_size;

/// Data files' share of the pool's free space if no size is given, and the largest file.
const ROOM_PERCENT: u64 = 30;
const DATA_BYTES_MAX: u64 = 64 << 20;
const DATA_BYTES_MIN: u64 = 1 << 20;
/// Space of a volume beyond its files, for its journal and metadata.
const VOLUME_EXTRA_BYTES: u64 = 512 << 20;

pub fn new(directory: &Path, options: &New) -> Result<(), Failure> {
    let begun = match State::load(directory) {
        Ok(state) if state.making.is_some() => Some(state),
        Ok(_) => {
            return Err(Failure::new(format!(
                "there is a fleet in {} already: `fleet remove` it, or give --fleet DIR",
                directory.display()
            )));
        }
        Err(StateError::None(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let asked = asked_for(options, begun.as_ref())?;
    if let Some(begun) = &begun {
        demand_same(begun, &asked, directory)?;
        say(&format!("the making of fleet '{}' goes on where it ended", begun.name));
    }
    let mut state = begun.unwrap_or(asked);
    describe(&state);
    if options.dry_run {
        for node in &state.nodes {
            let place = match &options.servers.share {
                Some(share) => format!("share '{share}'"),
                None => format!("volume and share '{}'", volume_name(&state, node)),
            };
            say(&format!("  {}: {}, {place}", node.name, node.smb));
        }
        return Ok(());
    }
    let began = Instant::now();
    let credentials = options.servers.credentials.as_deref();
    let made = make(directory, &mut state, credentials, Server::connect).and_then(|()| {
        prepare(directory, &state)?;
        state.making = None;
        Ok(state.save(directory)?)
    });
    made.map_err(|why| match State::load(directory) {
        Ok(made) => half_made(why, directory, &made.name),
        Err(_) => why,
    })?;
    say(&format!(
        "data files were written in {:.1} s; `fleet start`, or `fleet run PROFILE`, goes on",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The fleet as the command line describes it; the size of data files that is not given is the one that was begun with.
fn asked_for(options: &New, begun: Option<&State>) -> Result<State, Failure> {
    let (nodes, is_cluster) = nodes_of(&options.servers)?;
    let mut state = State::new(options.name.clone(), nodes, options.workers_per_node, DATA_BYTES_MIN);
    state.is_cluster = is_cluster;
    let share = options.servers.share.as_ref().map(|share| share.trim_matches('/').to_owned());
    state.making = Some(Making { resiliency: options.resiliency.into(), share });
    apply(&mut state, &options.limits)?;
    state.data_bytes = match (options.data_size, begun) {
        (Some(bytes), _) => bytes.max(DATA_BYTES_MIN),
        (None, Some(begun)) => begun.data_bytes,
        (None, None) => estimate(&state, options)?,
    };
    Ok(state)
}

fn describe(state: &State) {
    let all = u64::from(state.workers_per_node) * state.nodes.len() as u64;
    say(&format!(
        "fleet '{}': {} nodes, {} workers, each with a file of {} ({} in all)",
        state.name,
        state.nodes.len(),
        all,
        show_size(state.data_bytes),
        show_size(state.data_bytes * all)
    ));
}

/// Refuses to continue a fleet with other parameters.
fn demand_same(begun: &State, asked: &State, directory: &Path) -> Result<(), Failure> {
    let differences = differences(begun, asked);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the fleet in {} was begun with other parameters: {}; give those, or take it away by `fleet --fleet {} remove --yes {}`",
        directory.display(),
        differences.join("; "),
        directory.display(),
        begun.name
    )))
}

/// Parameters of a fleet by their names.
type Parameters = Vec<(String, Value)>;

/// The parameters in which two descriptions differ, in words, without those that the making itself
/// writes down meanwhile.
fn differences(begun: &State, asked: &State) -> Vec<String> {
    let parameters = |state: &State| {
        let state = State { user: None, running: None, ..state.clone() };
        let Ok(Value::Object(mut fields)) = serde_json::to_value(&state) else { return Vec::new() };
        if let Some(Value::Object(making)) = fields.remove("making") {
            fields.extend(making);
        }
        let nodes = fields.remove("nodes").and_then(|nodes| nodes.as_array().cloned()).unwrap_or_default();
        for mut node in nodes {
            let name = node.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(node) = node.as_object_mut() {
                node.retain(|key, _| !["name", "share", "volume"].contains(&key.as_str()));
            }
            fields.insert(format!("node {name}"), node);
        }
        fields.into_iter().collect()
    };
    let (begun, asked): (Parameters, Parameters) = (parameters(begun), parameters(asked));
    let of = |all: &[(String, Value)], key: &str| {
        all.iter().find(|(known, _)| known == key).map_or(Value::Null, |(_, value)| value.clone())
    };
    let mut keys: Vec<&String> = begun.iter().chain(&asked).map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    let shown = |value: Value| if value.is_null() { "none".to_owned() } else { value.to_string() };
    let differing = keys.into_iter().filter_map(|key| {
        let (then, now) = (of(&begun, key), of(&asked, key));
        (then != now).then(|| format!("{key} was {}, and is {}", shown(then), shown(now)))
    });
    differing.collect()
}

/// Explains how to complete a fleet that was made in part, or how to remove it.
fn half_made(why: Failure, directory: &Path, name: &str) -> Failure {
    let message = format!(
        "{why}; the fleet is made in part: the same `fleet new` goes on where this one ended, and `fleet --fleet {} remove --yes {name}` takes away what \
         was made",
        directory.display()
    );
    Failure { message, ..why }
}

/// As `Get-FleetDataDiskEstimate`: a part of the pools' free space, shared by the workers.
fn estimate(state: &State, options: &New) -> Result<u64, Failure> {
    let mut room = u64::MAX;
    for node in &state.nodes {
        if let (Some(access), None) = (&node.api, &options.servers.share) {
            // Nodes of one pool share its space.
            room = room.min(Server::connect(access)?.room_bytes(options.resiliency.into())?);
        }
    }
    let workers = u64::from(state.workers_per_node) * state.nodes.len() as u64;
    let share = if room == u64::MAX { DATA_BYTES_MAX } else { room / 100 * ROOM_PERCENT / workers };
    let whole = share.min(DATA_BYTES_MAX) / DATA_BYTES_MIN * DATA_BYTES_MIN;
    if whole == 0 {
        return Err(Failure::new(format!(
            "the pool has room for {} in all: too little for {workers} workers",
            show_size(room)
        )));
    }
    Ok(whole)
}

fn volume_name(state: &State, node: &Node) -> String {
    format!("{}-{}", state.name, node.name)
}

/// Requests of the making to a node.
pub(super) trait Maker {
    /// Refuses if a user, a volume or a share of these names exists.
    fn demand_free(&self, user: Option<&str>, volume: &str) -> Result<(), String>;
    fn has_user(&self, name: &str) -> Result<bool, String>;
    fn create_user(&self, name: &str, password: &str) -> Result<(), String>;
    fn set_password(&self, user: &str, password: &str) -> Result<(), String>;
    fn volume(&self, name: &str) -> Result<Option<(Resiliency, u64)>, String>;
    fn create_volume(&self, name: &str, size_bytes: u64, resiliency: Resiliency) -> Result<(), String>;
    /// The volume that is shared by this name.
    fn shared(&self, name: &str) -> Result<Option<String>, String>;
    fn create_share(&self, name: &str, volume: &str, user: &str) -> Result<(), String>;
}

impl Maker for Server {
    fn demand_free(&self, user: Option<&str>, volume: &str) -> Result<(), String> {
        Self::demand_free(self, user, volume)
    }

    fn has_user(&self, name: &str) -> Result<bool, String> {
        Self::has_user(self, name)
    }

    fn create_user(&self, name: &str, password: &str) -> Result<(), String> {
        Self::create_user(self, name, password)
    }

    fn set_password(&self, user: &str, password: &str) -> Result<(), String> {
        Self::set_password(self, user, password)
    }

    fn volume(&self, name: &str) -> Result<Option<(Resiliency, u64)>, String> {
        let found = self.volumes()?.into_iter().find(|found| found.name.eq_ignore_ascii_case(name));
        Ok(found.map(|found| (found.resiliency, found.size_bytes)))
    }

    fn create_volume(&self, name: &str, size_bytes: u64, resiliency: Resiliency) -> Result<(), String> {
        Self::create_volume(self, name, size_bytes, resiliency)
    }

    fn shared(&self, name: &str) -> Result<Option<String>, String> {
        let found = self.shares()?.into_iter().find(|found| found.name.eq_ignore_ascii_case(name));
        Ok(found.map(|found| found.volume))
    }

    fn create_share(&self, name: &str, volume: &str, user: &str) -> Result<(), String> {
        Self::create_share(self, name, volume, user)
    }
}

/// Makes the user, volumes and shares that are missing, or takes the share that is named.
fn make<M: Maker>(
    directory: &Path,
    state: &mut State,
    credentials: Option<&Path>,
    connect: impl Fn(&ApiAccess) -> Result<M, String>,
) -> Result<(), Failure> {
    let Some(making) = state.making.clone() else { return Ok(()) };
    let kept = directory.join(CREDENTIALS_FILE);
    if let (Some(share), Some(path)) = (making.share, credentials) {
        state.nodes.iter_mut().for_each(|node| node.share.clone_from(&share));
        let text =
            fs::read_to_string(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        keep(&kept, &text)?;
        return Ok(state.save(directory)?);
    }
    let password = match fs::read_to_string(&kept).ok().as_deref().and_then(password_of) {
        Some(password) => password,
        None => password()?,
    };
    keep(&kept, &format!("username={}\npassword={password}\n", state.name))?;
    for place in 0..state.nodes.len() {
        make_node(directory, state, place, (&password, making.resiliency), &connect)?;
    }
    Ok(state.save(directory)?)
}

fn keep(file: &Path, text: &str) -> Result<(), Failure> {
    replace(file, text.as_bytes(), 0o600)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

fn password_of(credentials: &str) -> Option<String> {
    credentials.lines().find_map(|line| line.strip_prefix("password=")).map(str::to_owned)
}

/// Makes the volume and the share of the node at this place, and the user if it is not known there.
fn make_node<M: Maker>(
    directory: &Path,
    state: &mut State,
    place: usize,
    (password, resiliency): (&str, Resiliency),
    connect: &impl Fn(&ApiAccess) -> Result<M, String>,
) -> Result<(), Failure> {
    let Some(node) = state.nodes.get(place) else { return Ok(()) };
    let (name, is_begun) = (volume_name(state, node), node.volume.is_some());
    let Some(access) = node.api.clone() else {
        return Err(Failure::new(format!(
            "node {} has no API: give it one (NAME,SMB,RDMA,API), or a share that is there (--share, --credentials)",
            node.name
        )));
    };
    let server = connect(&access)?;
    // In a cluster one user and all volumes are known everywhere.
    let has_user = place == 0 || !state.is_cluster;
    if !is_begun {
        server.demand_free(Some(state.name.as_str()).filter(|_| has_user), &name)?;
        state.user = Some(state.name.clone());
        if let Some(node) = state.nodes.get_mut(place) {
            (node.volume, node.share) = (Some(name.clone()), name.clone());
        }
        // Saved before the request: one whose answer is lost may have made the object, and from here on it is
        // the fleet's.
        state.save(directory)?;
    }
    if has_user {
        match is_begun && server.has_user(&state.name)? {
            true => server.set_password(&state.name, password)?,
            false => server.create_user(&state.name, password)?,
        }
    }
    let files = state.data_bytes * u64::from(state.workers_per_node);
    let size_bytes = files + files / 4 + VOLUME_EXTRA_BYTES;
    let there = if is_begun { server.volume(&name)? } else { None };
    match there {
        None => server.create_volume(&name, size_bytes, resiliency)?,
        Some((copies, bytes)) if copies == resiliency && bytes >= size_bytes => {}
        Some((copies, bytes)) => {
            return Err(Failure::new(format!(
                "there is a volume '{name}' of {} and {} copies, and the fleet's is of {} and {}",
                show_size(bytes),
                copies.copies(),
                show_size(size_bytes),
                resiliency.copies()
            )));
        }
    }
    let shared = if is_begun { server.shared(&name)? } else { None };
    match shared {
        None => server.create_share(&name, &name, &state.name)?,
        Some(volume) if volume.eq_ignore_ascii_case(&name) => {}
        Some(volume) => {
            return Err(Failure::new(format!(
                "there is a share '{name}' of the volume '{volume}', and the fleet's is of '{name}'"
            )));
        }
    }
    Ok(())
}

/// Letters and digits at random, about 140 bits.
fn password() -> Result<String, Failure> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect())
}

/// A fleet for an experiment: as `fleet new` makes one.
pub fn new_for_experiment(
    directory: &Path,
    servers: &crate::args::Servers,
    workers_per_node: u32,
    data_bytes: u64,
) -> Result<State, Failure> {
    let options = New {
        servers: servers.clone(),
        name: "fleet".into(),
        workers_per_node,
        data_size: Some(data_bytes),
        resiliency: api_client::Resiliency::TwoWayMirror,
        limits: Limits::default(),
        dry_run: false,
    };
    new(directory, &options)?;
    Ok(State::load(directory)?)
}

#[cfg(test)]
mod tests;
