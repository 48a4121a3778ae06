//! Changes of accounts, groups, shares and tokens in a cluster: in force at every server before they are answered.
//!
//! Promises: once a change is committed, the server that made it has all others read the records,
//! concurrently, and waits [`PATIENCE`] for them; it names servers that have not confirmed by then. A
//! server notified of a change that it cannot read knows that its accounts are stale ([`Freshness`]). A
//! server that is down is skipped: it reads the records before it serves again. Never undoes a change.

use crate::asking::ask_each;
use crate::cluster::Errand;
use crate::lists::{NAMELESS, servers, with_names};
use crate::management::Management;
use crate::model::{Health, HealthIssue};
use crate::peer::Shared;
use axum::http::StatusCode;
use axum::response::Response;
use records::clock::unix_now_s;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The header with the names of the servers that have not confirmed a change, with commas between.
pub const UNCONFIRMED: &str = "cenote-unconfirmed";

/// Path at which a server rereads the records of accounts.
const FOLLOW_NOW: &str = "/api/v1/accounts/in-force";

/// Timeout of all confirmations of one change. An election of etcd takes less; a person waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before the next request to a server that could not read the records.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A server may be behind for this long before it admits no new logon: longer than an election of etcd.
const BEHIND_TOLERATED: Duration = Duration::from_secs(5);

/// A change that needs confirmations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// Another server may have carried it out, so that this one follows as well.
    may_be_elsewhere: bool,
}

impl Confirmed {
    /// `parts`: of the path below the API's root. `None`: not a change of accounts, groups, shares or tokens.
    pub fn of(is_change: bool, parts: &[&str]) -> Option<Self> {
        let is_one = matches!(
            parts,
            ["users" | "groups" | "shares" | "tokens"] | ["users" | "groups" | "shares" | "tokens", _]
        );
        (is_change && is_one).then_some(Self { may_be_elsewhere: matches!(parts, ["shares"]) })
    }

    /// Has the others confirm a change that was answered, and names those that did not.
    pub async fn by_all(self, management: &Shared, answer: Response) -> Response {
        // A refusal may come at the second step of a change. After an error nobody knows whether it was made.
        if answer.status().is_server_error() || answer.status() == StatusCode::NOT_FOUND {
            return answer;
        }
        let own = async {
            if self.may_be_elsewhere && management.cluster().own().is_some() {
                let _ = tokio::time::timeout(PATIENCE, management.follow_now()).await;
            }
        };
        let (unconfirmed, ()) = tokio::join!(confirm(management), own);
        with_names(answer, UNCONFIRMED, &unconfirmed)
    }
}

/// Has all other servers of the cluster that are not down read a change of accounts or shares that was committed.
/// Returns the names of those that did not confirm within two seconds that it is in force there.
pub async fn confirm(management: &Shared) -> Vec<String> {
    let cluster = management.cluster();
    let Some(own) = cluster.own() else { return Vec::new() };
    let Some(servers) = servers(management).await else { return vec![NAMELESS.to_owned()] };
    let others = servers.into_iter().filter(|(id, _)| *id != own && cluster.is_up(*id) != Some(false));
    let answers = ask_each(others.map(|(_, name)| name), PATIENCE, |name| {
        let management = management.clone();
        async move { confirmation(&*management, &name).await }
    });
    let answers = answers.await.into_iter();
    let unconfirmed: Vec<String> =
        answers.filter(|(_, confirmed)| confirmed.is_none()).map(|(name, _)| name).collect();
    if !unconfirmed.is_empty() {
        let servers = unconfirmed.join(", ");
        tracing::warn!(servers, "a change of accounts or shares is not confirmed by all servers");
    }
    unconfirmed
}

/// Polls one server until it has confirmed; `None`: it cannot. The caller bounds the time.
async fn confirmation(management: &dyn Management, name: &str) -> Option<()> {
    loop {
        let errand = Errand { method: "GET".into(), path: FOLLOW_NOW.into(), body: String::new() };
        match management.cluster().send(name.to_owned(), errand).await {
            Ok(carried) if carried.status == StatusCode::OK.as_u16() => return Some(()),
            // A server of an earlier version cannot confirm.
            Ok(carried) if carried.status == StatusCode::NOT_FOUND.as_u16() => return None,
            Ok(_) | Err(_) => tokio::time::sleep(ASK_AGAIN_AFTER).await,
        }
    }
}

/// Whether a server's accounts are those of the cluster's records, by other servers' notifications.
#[derive(Debug, Default)]
pub struct Freshness(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Number of notifications of changes.
    changes: u64,
    /// Time of the first notification whose change is not read, by both clocks.
    unread_since: Option<(Instant, u64)>,
}

/// The changes that a reading of the records finds at least.
#[derive(Debug, Clone, Copy)]
pub struct Reading(u64);

impl Freshness {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another server has committed a change.
    pub fn tell(&self) {
        let mut told = self.told();
        told.changes += 1;
        told.unread_since.get_or_insert_with(|| (Instant::now(), unix_now_s()));
    }

    /// A reading of the records begins.
    pub fn begin(&self) -> Reading {
        Reading(self.told().changes)
    }

    /// Notes that the records were read and are in force.
    pub fn end(&self, Reading(changes): Reading) {
        let mut told = self.told();
        if told.changes == changes {
            told.unread_since = None;
        }
    }

    /// Whether the server has known for more than five seconds of a change that it could not read: it then
    /// admits no new logon by its accounts.
    pub fn is_behind(&self) -> bool {
        self.is_behind_at(Instant::now())
    }

    /// As [`Freshness::is_behind`], at another time than now.
    pub fn is_behind_at(&self, now: Instant) -> bool {
        let since = self.told().unread_since;
        since.is_some_and(|(since, _)| now.saturating_duration_since(since) > BEHIND_TOLERATED)
    }

    /// The issue of a server that is behind.
    pub fn issue(&self) -> Option<HealthIssue> {
        self.issue_at(Instant::now())
    }

    /// As [`Freshness::issue`], at another time than now.
    pub fn issue_at(&self, now: Instant) -> Option<HealthIssue> {
        if !self.is_behind_at(now) {
            return None;
        }
        let (since, since_unix_s) = self.told().unread_since?;
        let seconds = now.saturating_duration_since(since).as_secs();
        Some(HealthIssue {
            health: Health::Unhealthy,
            code: "accounts_behind".to_owned(),
            target: "accounts".to_owned(),
            since_unix_s,
            server: None,
            what: format!("accounts and shares are older than the cluster's records for {seconds} s: they cannot be read"),
            meaning: "Another server has changed accounts, groups, shares or tokens, and the change is not in force here. Users who are logged on go \
                      on by the old ones; nobody logs on anew."
                .to_owned(),
            action: "Check why etcd does not answer this server; it reads the records by itself as soon as etcd does. To cut off at once a user who was \
                     disabled or lost a right, stop this server."
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_accounts_groups_shares_and_tokens_are_confirmed_and_nothing_else() {
        let is_one = |is_change: bool, path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            Confirmed::of(is_change, &parts).is_some()
        };
        for kind in ["users", "groups", "shares", "tokens"] {
            let one = format!("{kind}/a");
            assert!(is_one(true, kind) && is_one(true, &one), "{kind}");
            assert!(!is_one(false, kind) && !is_one(false, &one), "{kind}");
        }
        assert!(!is_one(true, "shares/a/acl"), "the volume has these, and its server");
        assert!(!is_one(true, "sessions/1") && !is_one(true, "volumes"));
    }

    #[test]
    fn a_server_is_behind_when_it_heard_of_a_change_for_long_that_no_reading_since_has_found() {
        let freshness = Freshness::default();
        let long_after = || Instant::now() + BEHIND_TOLERATED + Duration::from_secs(2);
        assert!(!freshness.is_behind_at(long_after()), "nobody told of a change");
        let early = freshness.begin();
        freshness.tell();
        freshness.end(early);
        assert!(!freshness.is_behind(), "the time of an election is tolerated");
        assert!(freshness.is_behind_at(long_after()), "a reading from before the change does not tell");
        let issue = freshness.issue_at(long_after()).unwrap();
        assert!(issue.what.contains("older than the cluster's records for"), "{}", issue.what);
        let late = freshness.begin();
        freshness.end(late);
        assert!(!freshness.is_behind_at(long_after()) && freshness.issue_at(long_after()).is_none());
    }
}
