//! Answers of the whole cluster: the requested server queries all others concurrently, merges the
//! parts, and names those that did not answer.
//!
//! Promises: a part is one server's own knowledge, and a server answers another one for itself alone;
//! all servers merge the same parts into the same bytes; one server that hangs costs the whole at most
//! [`PATIENCE`]. An item unknown to all answering servers is absent.

use crate::asking::ask_each;
use crate::cluster::{Carried, ERRAND_ANSWER_BYTES_MAX, Errand};
use crate::management::{ApiError, ErrorKind, Management};
use crate::merging::{self, Parts};
use crate::model::{Disk, HealthReport, Job, Pool, Rdma, Session, Volume};
use crate::paths::percent_decoded;
use crate::peer::Shared;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The header with the names of the servers whose part of an answer is missing, with commas between.
pub const UNANSWERED: &str = "cenote-unanswered";

/// The header with the names of the servers that have more of a list than is in the answer, with commas between.
pub const MORE: &str = "cenote-more";
/// Name for the answering server.
pub(crate) const OWN: &str = "-";

/// Timeout of a server's part: a person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Name for the others if the records with their names cannot be read.
pub(crate) const NAMELESS: &str = "the other servers, whose names cannot be read";

/// An answer that every server has a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Jobs,
    Disks,
    Pools,
    Volumes,
    Sessions,
    Files,
    Health,
    Rdma,
    Performance,
    LastSecond,
    Clients,
}

impl List {
    const ALL: [Self; 11] = [
        Self::Jobs,
        Self::Disks,
        Self::Pools,
        Self::Volumes,
        Self::Sessions,
        Self::Files,
        Self::Health,
        Self::Rdma,
        Self::Performance,
        Self::LastSecond,
        Self::Clients,
    ];

    /// Finds the list of a path. `parts`: of the path below the API's root; `query`: `local=true` for one
    /// server's own.
    pub(crate) fn of(method: &Method, parts: &[&str], query: Option<&str>) -> Option<Self> {
        let name = parts.join("/");
        let found = Self::ALL.into_iter().find(|list| list.path() == name);
        found.filter(|_| *method == Method::GET && !is_local(query) && !names_server(query))
    }

    /// Below the API's root.
    const fn path(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Disks => "disks",
            Self::Pools => "pools",
            Self::Volumes => "volumes",
            Self::Sessions => "sessions",
            Self::Files => "files",
            Self::Health => "health",
            Self::Rdma => "rdma",
            Self::Performance => "perf",
            Self::LastSecond => "perf/second",
            Self::Clients => "perf/clients",
        }
    }

    /// `own`: this server's answer. Puts it together with those of the others.
    pub(crate) async fn with_the_others(self, management: &Shared, own: Response) -> Response {
        if management.cluster().own().is_none() || own.status() != StatusCode::OK {
            return own;
        }
        let has_more = own.headers().contains_key(MORE);
        let body = to_bytes(own.into_body(), usize::MAX).await.ok();
        let Some(own) = body.and_then(|body| serde_json::from_slice::<Value>(&body).ok()) else {
            let why = "this server's own part of the answer could not be made";
            return ApiError::new(ErrorKind::Internal, why).into_response();
        };
        let parts = self.gather(management, own, has_more).await;
        let disks = match self {
            // A pool's figures are sums over its disks.
            Self::Pools => Some(disks_of(management).await),
            _ => None,
        };
        let (unanswered, more) = (parts.unanswered.clone(), parts.more.clone());
        with_more(answered(&self.merge(parts, disks), &unanswered), &more)
    }

    /// Puts the parts together. `disks`: those of the whole cluster, for its pools.
    fn merge(self, parts: Parts, disks: Option<Vec<Disk>>) -> Value {
        match self {
            Self::Jobs => merging::jobs(parts),
            Self::Sessions => merging::sessions(parts),
            Self::Files => merging::files(parts),
            Self::Disks => merging::disks(parts),
            Self::Volumes => merging::volumes(parts),
            Self::Pools => merging::pools(parts, &disks.unwrap_or_default()),
            Self::Health => value(&merging::health(parts)),
            Self::Rdma => value(&merging::rdma(parts)),
            Self::Performance => value(&merging::performance(parts)),
            Self::LastSecond => value(&merging::last_second(parts)),
            Self::Clients => merging::clients(parts),
        }
    }

    /// Gets the parts of all other servers. `has_more`: this server knows more than its own part contains.
    async fn gather(self, management: &Shared, own: Value, has_more: bool) -> Parts {
        let own_id = management.cluster().own();
        let Some(servers) = servers(management).await else {
            let unanswered = vec![NAMELESS.to_owned()];
            return Parts { told: vec![(String::new(), own)], unanswered, more: Vec::new() };
        };
        let own_name = servers.iter().find(|(id, _)| Some(*id) == own_id);
        let own_name = own_name.map(|(_, name)| name.clone()).unwrap_or_default();
        let mut more: Vec<String> = has_more.then(|| own_name.clone()).into_iter().collect();
        let mut told = vec![(own_name, own)];
        let others = servers.into_iter().filter(|(id, _)| Some(*id) != own_id);
        let answers = ask_each(others.map(|(_, name)| name), PATIENCE, |name| {
            let management = management.clone();
            async move { self.ask(&*management, name).await }
        });
        let mut unanswered = Vec::new();
        for (name, answer) in answers.await {
            match answer {
                Some((part, has_more)) => {
                    more.extend(has_more.then(|| name.clone()));
                    told.push((name, part));
                }
                None => unanswered.push(name),
            }
        }
        told.sort_by(|one, other| one.0.cmp(&other.0));
        more.sort_unstable();
        Parts { told, unanswered, more }
    }

    /// Gets one server's part. Also returns whether that server knows more.
    async fn ask(self, management: &dyn Management, name: String) -> Option<(Value, bool)> {
        let path = format!("/api/v1/{}?local=true", self.path());
        let errand = Errand { method: "GET".into(), path, body: String::new() };
        let sent = management.cluster();
        let carried = sent.send(name.clone(), errand).await;
        let Carried { status, body } =
            carried.inspect_err(|error| tracing::debug!(name, %error, "a server's part")).ok()?;
        let has_more = status == StatusCode::PARTIAL_CONTENT.as_u16();
        let is_part = has_more || status == StatusCode::OK.as_u16();
        let part =
            (is_part && body.len() <= ERRAND_ANSWER_BYTES_MAX).then(|| serde_json::from_str(&body).ok());
        part.flatten().map(|part| (part, has_more))
    }
}

fn is_local(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|word| word == "local=true"))
}

fn names_server(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|word| word.starts_with("server=")))
}

/// Adds the servers that have more of the list.
pub(crate) fn with_more(response: Response, servers: &[String]) -> Response {
    with_names(response, MORE, servers)
}

/// Adds a header with names, unless there are none.
pub(crate) fn with_names(mut response: Response, header: &'static str, names: &[String]) -> Response {
    if !names.is_empty()
        && let Ok(names) = HeaderValue::from_str(&names.join(", "))
    {
        response.headers_mut().insert(HeaderName::from_static(header), names);
    }
    response
}

fn value(whole: &impl Serialize) -> Value {
    serde_json::to_value(whole).unwrap_or_default()
}

/// Makes the answer of the whole cluster, with the names of missing servers.
fn answered(whole: &Value, unanswered: &[String]) -> Response {
    let body = Body::from(whole.to_string());
    let response = (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    with_names(response, UNANSWERED, unanswered)
}

/// One element of a list, by the knowledge of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct One {
    list: List,
    /// Key that identifies it, and its value.
    key: &'static str,
    wanted: String,
    kind: &'static str,
}

impl One {
    /// `parts`, `query`: as of [`List::of`].
    pub(crate) fn of(method: &Method, parts: &[&str], query: Option<&str>) -> Option<Self> {
        if *method != Method::GET || is_local(query) {
            return None;
        }
        let (list, key, wanted, kind) = match parts {
            ["disks", id] => (List::Disks, "id", id.parse::<types::DiskId>().ok()?.to_string(), "disk"),
            ["volumes", name] => (List::Volumes, "name", percent_decoded(name)?, "volume"),
            ["pools", name] => (List::Pools, "name", percent_decoded(name)?, "pool"),
            _ => return None,
        };
        Some(Self { list, key, wanted, kind })
    }

    /// Answers the element; `None`: on a single server, whose own answer is complete.
    pub(crate) async fn answer(&self, management: &Shared) -> Option<Response> {
        management.cluster().own()?;
        let own = match management.figures().await {
            Ok(own) => own,
            Err(error) => return Some(error.into_response()),
        };
        let parts = match self.list {
            List::Disks => value(&own.disks),
            List::Pools => value(&own.pools),
            _ => value(&own.volumes),
        };
        let parts = self.list.gather(management, parts, false).await;
        let disks = match self.list {
            List::Pools => Some(disks_of(management).await),
            _ => None,
        };
        let unanswered = parts.unanswered.clone();
        let whole = self.list.merge(parts, disks);
        let found = whole.as_array().and_then(|all| all.iter().find(|one| self.is(one)));
        Some(match found {
            Some(found) => answered(found, &unanswered),
            None => {
                let why = format!("there is no {} '{}'", self.kind, self.wanted);
                ApiError::new(ErrorKind::NotFound, why).into_response()
            }
        })
    }

    fn is(&self, element: &Value) -> bool {
        let text = element.get(self.key).and_then(Value::as_str).unwrap_or_default();
        text.to_lowercase() == self.wanted.to_lowercase()
    }
}

/// Returns numbers and names of the cluster's servers without its witness; `None`: they cannot be read.
pub(crate) async fn servers(management: &Shared) -> Option<Vec<(types::NodeId, String)>> {
    let known = management.cluster().servers();
    if !known.is_empty() {
        return Some(known);
    }
    let cluster = management.cluster();
    let view = tokio::time::timeout(PATIENCE, cluster.known()).await.ok()?.ok()?;
    let servers = view.nodes.into_iter().filter(|node| !node.is_witness);
    Some(servers.map(|node| (node.id, node.name)).collect())
}

async fn disks_of(management: &Shared) -> Vec<Disk> {
    let own = management.figures().await.map(|figures| figures.disks).unwrap_or_default();
    whole_of(List::Disks, management, &own).await.0.unwrap_or(own)
}

async fn whole_of<T: Serialize + DeserializeOwned>(
    list: List,
    management: &Shared,
    own: &T,
) -> (Option<T>, Vec<String>) {
    let own = serde_json::to_value(own).unwrap_or_default();
    let parts = list.gather(management, own, false).await;
    let unanswered = parts.unanswered.clone();
    (serde_json::from_value(list.merge(parts, None)).ok(), unanswered)
}

/// The whole cluster, as pages show it.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Issues of all servers that answered.
    pub health: HealthReport,
    /// Disks of all servers, those of silent ones by the records.
    pub disks: Vec<Disk>,
    /// Pools of the cluster, their disks counted over all servers.
    pub pools: Vec<Pool>,
    /// Volumes of the cluster, each as its owner reports it.
    pub volumes: Vec<Volume>,
    /// Jobs of all servers that answered.
    pub jobs: Vec<Job>,
    /// Sessions of clients.
    pub sessions: Vec<Session>,
    /// RDMA of all servers that answered.
    pub rdma: Rdma,
    /// Servers whose part is missing.
    pub unanswered: Vec<String>,
}

/// Merges all servers' parts; `None`: a single server, or its data plane does not answer.
pub async fn whole(management: &Arc<dyn Management>) -> Option<Whole> {
    management.cluster().own()?;
    let own = management.figures().await.ok()?;
    let rdma = management.rdma().await.unwrap_or_default();
    let (health, disks, volumes, jobs, sessions, rdma) = tokio::join!(
        whole_of(List::Health, management, &own.health),
        whole_of(List::Disks, management, &own.disks),
        whole_of(List::Volumes, management, &own.volumes),
        whole_of(List::Jobs, management, &own.jobs),
        whole_of(List::Sessions, management, &own.sessions),
        whole_of(List::Rdma, management, &rdma),
    );
    let all = [&health.1, &disks.1, &volumes.1, &jobs.1, &sessions.1, &rdma.1];
    let mut unanswered: Vec<String> = all.into_iter().flatten().cloned().collect();
    unanswered.sort_unstable();
    unanswered.dedup();
    let disks = disks.0?;
    let mut pools = own.pools;
    merging::fill_pools(&mut pools, &disks);
    Some(Whole {
        health: health.0?,
        disks,
        pools,
        volumes: volumes.0?,
        jobs: jobs.0?,
        sessions: sessions.0?,
        rdma: rdma.0?,
        unanswered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_of_all_unless_it_is_wanted_of_one() {
        assert_eq!(List::of(&Method::GET, &["health"], None), Some(List::Health));
        assert_eq!(List::of(&Method::GET, &["health"], Some("local=true")), None);
        assert_eq!(List::of(&Method::POST, &["disks"], None), None);
        assert_eq!(List::of(&Method::GET, &["disks", "7"], None), None);
        assert_eq!(List::of(&Method::GET, &["perf"], None), Some(List::Performance));
        assert_eq!(List::of(&Method::GET, &["perf", "second"], None), Some(List::LastSecond));
        assert_eq!(List::of(&Method::GET, &["perf", "second"], Some("local=true")), None);
        assert_eq!(List::of(&Method::GET, &["rdma"], None), Some(List::Rdma));
    }

    #[test]
    fn one_disk_or_volume_is_asked_of_all_as_well() {
        let found = |path: &[&str], query| One::of(&Method::GET, path, query);
        let volume = found(&["volumes", "a%20b"], None).unwrap();
        assert!(
            volume.is(&serde_json::json!({"name": "A b"})) && !volume.is(&serde_json::json!({"name": "ab"}))
        );
        assert!(found(&["disks", "01234567-89ab-cdef-0123-456789abcdef"], None).is_some());
        assert_eq!(found(&["disks", "rubbish"], None), None, "it is refused as such");
        assert_eq!(found(&["volumes", "a"], Some("local=true")), None);
        assert_eq!(found(&["volumes", "a", "quotas"], None), None);
        assert_eq!(One::of(&Method::PATCH, &["volumes", "a"], None), None);
    }
}
