//! A server's own maintenance in its cluster, at each change of the servers' records, and every few
//! seconds.
//!
//! Finds out about the server's removal ([`crate::removal`]), renews its certificate, has its member of
//! etcd refuse revoked ones, records the addresses of etcd's members, keeps its seat among them,
//! records that it is drained, and looks for issues. Promises: retries failures, and logs each once.

use crate::admission;
use crate::control::{ClusterControl, revocation_list};
use crate::credentials::Credentials;
use crate::failure::ControlError;
use crate::figures::{Known, figures};
use crate::identity::{self, Facts};
use crate::issues::{self, Looked};
use crate::own_etcd;
use crate::removal::leave_etcd;
use crate::renewal::{note_known, renew_if_due};
use crate::retreat;
use crate::seat::Seat;
use crate::view::LastRead;
use api::ClusterManagement;
use api::cluster::ClusterFigures;
use api::model::HealthIssue;
use etcd::members::MemberHealth;
use records::clock::unix_now_s;
use records::{ClusterRecord, NodeRecord, NodeState, Record};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Intervals between checks: if nothing changes, and while this server drains.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_SOON: Duration = Duration::from_secs(1);
/// Between two questions to a member of etcd that has not answered.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Timeout of one wait for a change, after which the thread checks whether anybody still waits.
const WAIT: Duration = Duration::from_secs(1);
/// Changes within this time are read together.
const TOGETHER: Duration = Duration::from_millis(20);

/// Maintains this server's part in its cluster until the task is dropped; ends immediately on a single
/// server.
pub async fn keep(control: Arc<ClusterControl>) {
    tokio::join!(see_to(control.clone()), ask_own_etcd(control.clone()), retreat::follow(control));
}

/// Polls this server's member of etcd; ends immediately on a single server.
async fn ask_own_etcd(control: Arc<ClusterControl>) {
    let Some(credentials) = control.credentials() else { return };
    let server = credentials.facts().name;
    loop {
        let (engine, asked_at) = (control.engine(), Instant::now());
        let asked = tokio::task::spawn_blocking(move || engine.ask_own(own_etcd::PATIENCE)).await;
        let Ok(found) = asked else { return };
        control.own_etcd.note(found, &server, asked_at);
        let votes = match control.keys.uses_other_etcd {
            // A foreign etcd's members are not the servers': the others need to know whether it answers this
            // server.
            true => answers(&control).await,
            false => control.own_etcd.votes() == Some(true),
        };
        control.server.note_vote(votes);
        let pause = if control.own_etcd.is_silent() { ASK_AGAIN } else { LOOK_SOON };
        tokio::time::sleep(pause).await;
    }
}

/// Whether the cluster's state answers this server.
async fn answers(control: &ClusterControl) -> bool {
    let state = control.state.clone();
    tokio::task::spawn_blocking(move || ClusterRecord::find(&state).is_ok()).await.unwrap_or(false)
}

async fn see_to(control: Arc<ClusterControl>) {
    let Some(credentials) = control.credentials() else { return };
    let (told, mut changed) = tokio::sync::watch::channel(());
    for prefix in [ClusterRecord::PREFIX, NodeRecord::PREFIX] {
        let (watch, told) = (control.state.watch(prefix), told.clone());
        // A thread for each: they sleep.
        tokio::task::spawn_blocking(move || {
            while !told.is_closed() {
                if watch.wait(WAIT).is_some() {
                    told.send_replace(());
                }
            }
        });
    }
    let mut said = None;
    loop {
        if control.removal.learn(&control.state, &credentials, said.is_some()).await {
            leave_etcd(control.engine()).await;
            control.restart().notify_one();
            return;
        }
        let (looking, proof) = (control.clone(), credentials.clone());
        let looked = tokio::task::spawn_blocking(move || looking.look(&proof)).await;
        let (pause, why) = match looked {
            Ok(Ok(pause)) => (pause, None),
            Ok(Err(why)) => (LOOK_SOON, Some(why)),
            Err(_) => return,
        };
        if let Some(why) = why.as_ref().filter(|why| said.as_ref() != Some(*why)) {
            tracing::warn!(why, "this server cannot see to its part in the cluster; it tries again");
        }
        said = why;
        tokio::select! {
            _ = tokio::time::sleep(pause) => {}
            _ = changed.changed() => tokio::time::sleep(TOGETHER).await,
        }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl ClusterControl {
    /// Returns the records as last read; `None`: not since the start, or on a single server.
    pub(crate) fn last_read(&self) -> Option<LastRead> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes the inputs of health, as of now, without asking anybody. `None`: this is a single server.
    pub(crate) fn with_seen<T>(&self, look: impl FnOnce(&issues::Seen<'_>) -> T) -> Option<T> {
        let facts = self.credentials()?.facts();
        let (read, looked, unserved) = (self.last_read(), self.issues.looked(), self.unserved());
        let cluster = read.as_ref().and_then(|read| read.cluster.as_ref());
        Some(look(&issues::Seen {
            cluster: &facts.cluster,
            members: read.as_ref().map_or(&[], |read| read.members.as_slice()),
            own: facts.node,
            unserved: unserved.as_ref(),
            is_down: &|node| self.server.is_up(node) == Some(false),
            looked: &looked,
            certified_unix_s: facts.certified_unix_s,
            founded_unix_s: cluster.map_or(0, |cluster| cluster.created_unix_s),
            now_unix_s: unix_now_s(),
        }))
    }

    /// Returns the present figures for metrics; `None`: on a single server.
    pub(crate) fn current_figures(&self) -> Option<ClusterFigures> {
        let facts = self.credentials()?.facts();
        let read = self.last_read();
        let cluster = read.as_ref().and_then(|read| read.cluster.as_ref());
        Some(figures(&Known {
            facts: &facts,
            members: read.as_ref().map_or(&[], |read| read.members.as_slice()),
            has_majority: self.server.standing().map(|_| self.unserved().is_none()),
            is_up: &|node| self.server.is_up(node),
            looked: &self.issues.looked(),
            etcd_member_votes: self.own_etcd.votes(),
            founded_unix_s: cluster.map(|cluster| cluster.created_unix_s),
        }))
    }

    pub(crate) fn current_issues(&self) -> Vec<HealthIssue> {
        let found = self.with_seen(issues::find).unwrap_or_default();
        let mut dated = self.issues.date(found, unix_now_s());
        if let Some(own) = self.own_etcd.issue() {
            // The others report of the same member only that it does not vote.
            dated.retain(|issue| issue.code != own.code || issue.target != own.target);
            dated.push(own);
        }
        dated
    }

    /// Does all upkeep once; returns the time until the next. Tries all steps, and reports the first failure.
    fn look(&self, credentials: &Credentials) -> Result<Duration, String> {
        // Before any request to etcd, which would refuse an expired certificate.
        if credentials.renew_alone(unix_now_s())? {
            let endpoints = credentials.facts().endpoints;
            self.engine().reconfigure(endpoints, credentials.for_etcd())?;
        }
        let cluster = ClusterRecord::find(&self.state).map_err(told)?;
        let Some(cluster) = cluster.map(|cluster| cluster.value) else { return Ok(LOOK_EVERY) };
        let read = LastRead::now(&self.state).map_err(told)?;
        let members = read.members.clone();
        *self.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        let now_unix_s = unix_now_s();
        let etcd = self.engine().members();
        let done = [
            self.refuse_revoked(credentials, &cluster),
            note_known(credentials, &self.state, &cluster, &members),
            renew_if_due(credentials, &self.state, &self.key, now_unix_s)
                .and_then(|is_new| self.follow_members(credentials, &members, is_new)),
            self.keep_seat(credentials, &members, &etcd),
            self.follow_draining(credentials, &members),
        ];
        let facts = credentials.facts();
        let alarms = self.engine().alarms();
        self.issues.note(Looked { alarms, etcd: etcd.unwrap_or_default(), at: Some(Instant::now()) });
        // Notes the start of new issues now, even without a request.
        self.current_issues();
        let all_vote =
            self.with_seen(|seen| issues::members_without_vote(seen).next().is_none()).unwrap_or(true);
        done.into_iter().collect::<Result<(), String>>()?;
        let drains = members.iter().any(|node| node.id == facts.node && node.state == NodeState::Draining);
        let others_are_down = members.iter().any(|node| self.server.is_up(node.id) == Some(false));
        Ok(if drains || others_are_down || !all_vote { LOOK_SOON } else { LOOK_EVERY })
    }

    /// Has this server's member of etcd refuse certificates of servers that have left: etcd reads the list for each connection.
    fn refuse_revoked(&self, credentials: &Credentials, cluster: &ClusterRecord) -> Result<(), String> {
        let path = credentials.directory().join(identity::REVOKED);
        let known = std::fs::metadata(path).map(|file| file.len()).unwrap_or_default();
        let written = &self.revoked_written;
        let count = cluster.revoked.len() as u64;
        if known > 0 && written.load(std::sync::atomic::Ordering::Acquire) == count + 1 {
            return Ok(());
        }
        let list = revocation_list(cluster, &self.key).map_err(|ControlError(error)| error.message)?;
        identity::write_revoked(&credentials.directory(), &list).map_err(told)?;
        written.store(count + 1, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Remembers the addresses of etcd's members, and uses these from now on. `is_new`: the certificate is.
    fn follow_members(
        &self,
        credentials: &Credentials,
        members: &[NodeRecord],
        is_new: bool,
    ) -> Result<(), String> {
        let facts = credentials.facts();
        let own = facts.etcd.map(|addresses| format!("https://{}", addresses.client));
        let mut endpoints: Vec<String> = own.into_iter().collect();
        for url in members.iter().filter_map(|node| Some(node.etcd.as_ref()?.client_url.clone())) {
            if !endpoints.contains(&url) {
                endpoints.push(url);
            }
        }
        if endpoints.is_empty() || (endpoints == facts.endpoints && !is_new) {
            return Ok(());
        }
        self.engine().reconfigure(endpoints.clone(), credentials.for_etcd())?;
        credentials.remember(Facts { endpoints, ..facts }).map_err(told)
    }

    /// Keeps this server's member of etcd working, if it should run one.
    fn keep_seat(
        &self,
        credentials: &Credentials,
        members: &[NodeRecord],
        etcd: &Result<Vec<MemberHealth>, String>,
    ) -> Result<(), String> {
        let listed = etcd.as_ref().map_err(|why| format!("etcd's members are not known: {why}"))?;
        let (engine, state) = (self.engine(), &self.state);
        let is_up = |node| self.server.is_up(node) == Some(true);
        let seat =
            Seat { data: &self.data, state, engine: &*engine, credentials, members, listed, is_up: &is_up };
        seat.keep()
    }

    /// Records that this draining server has no volume any more; or that it has some again, which no other
    /// server could take over.
    fn follow_draining(&self, credentials: &Credentials, members: &[NodeRecord]) -> Result<(), String> {
        let own = credentials.facts().node;
        let state = members.iter().find(|node| node.id == own).map(|node| node.state);
        if state == Some(NodeState::Draining) && admission::note_drained(&self.state, own).map_err(told)? {
            tracing::info!("this server is drained: it has no volume any more");
        }
        if state == Some(NodeState::Drained)
            && admission::note_serves_again(&self.state, own).map_err(told)?
        {
            tracing::warn!("this server was drained, and serves volumes that no other could take over");
        }
        Ok(())
    }
}
