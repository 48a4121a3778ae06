//! What a server of a cluster sees to by itself, whenever the records of servers change, and every few seconds.
//!
//! It renews its certificate, has its member of etcd refuse those that were revoked, remembers where etcd's members are, takes the seat of a
//! member that left, records that it is drained, and looks what is wrong. Promises: what fails is tried again, and said once.

use crate::applicant::free_etcd_ports;
use crate::control::{ClusterControl, revocation_list};
use crate::credentials::Credentials;
use crate::failure::ControlError;
use crate::issues;
use crate::renewal::renew_if_due;
use crate::view::LastRead;
use cluster::clock::unix_now_s;
use cluster::identity::{self, Facts, Identity};
use cluster::nodes;
use cluster::{ClusterRecord, NodeRecord, NodeState, Record, StateError, admission};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Between two looks if nothing changes, and while this server drains.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_SOON: Duration = Duration::from_secs(1);
/// How long one wait for a change lasts, after which it is seen whether anybody still looks.
const WAIT: Duration = Duration::from_secs(1);
/// Changes in so short a time are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);

/// Sees to this server's part in its cluster until the task is dropped; ends at once on a single server.
pub async fn keep(control: Arc<ClusterControl>) {
    let Some(credentials) = control.credentials() else { return };
    let (told, mut changed) = tokio::sync::watch::channel(());
    for prefix in [ClusterRecord::PREFIX, NodeRecord::PREFIX] {
        let (watch, told) = (control.state.watch(prefix), told.clone());
        // A thread of its own for each: they sleep.
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
    /// Looks once at everything; answers when to look again. All of it is tried, and the first failure told.
    fn look(&self, credentials: &Credentials) -> Result<Duration, String> {
        let cluster = ClusterRecord::find(&self.state).map_err(told)?;
        let Some(cluster) = cluster.map(|cluster| cluster.value) else { return Ok(LOOK_EVERY) };
        let read = LastRead::now(&self.state).map_err(told)?;
        let members = read.members.clone();
        *self.last_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        let now_unix_s = unix_now_s();
        let done = [
            self.refuse_revoked(credentials, &cluster),
            renew_if_due(credentials, &self.state, &self.key, now_unix_s)
                .and_then(|is_new| self.follow_members(credentials, &members, is_new)),
            self.take_seat(credentials, &members),
            self.end_draining(credentials, &members),
        ];
        let facts = credentials.facts();
        let seen = issues::Seen {
            cluster: &facts.cluster,
            members: &members,
            own: facts.node,
            is_down: &|node| self.server.is_up(node) == Some(false),
            alarms: &self.engine().alarms(),
            certified_unix_s: facts.certified_unix_s,
            now_unix_s,
        };
        self.issues.set(issues::find(&seen), now_unix_s);
        done.into_iter().collect::<Result<(), String>>()?;
        let drains = members.iter().any(|node| node.id == facts.node && node.state == NodeState::Draining);
        let others_are_down = members.iter().any(|node| self.server.is_up(node.id) == Some(false));
        Ok(if drains || others_are_down { LOOK_SOON } else { LOOK_EVERY })
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

    /// Remembers where etcd's members are, and asks those from now on. `is_new`: the certificate is.
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

    /// Runs a member of etcd in place of one that left, if this is the first of the servers that could.
    fn take_seat(&self, credentials: &Credentials, members: &[NodeRecord]) -> Result<(), String> {
        let facts = credentials.facts();
        let own = members.iter().find(|node| node.id == facts.node);
        let Some(own) = own else { return Ok(()) };
        if own.etcd.is_some() && facts.etcd.is_some() {
            return Ok(());
        }
        let seated = members.iter().filter(|node| node.etcd.is_some()).count();
        let is_free = seated > 0 && seated < nodes::ETCD_MEMBERS;
        let could = |node: &&NodeRecord| {
            node.etcd.is_none() && (node.id == facts.node || self.server.is_up(node.id) == Some(true))
        };
        let is_first = members.iter().find(could).is_some_and(|node| node.id == facts.node);
        // One that was recorded, and whose process ended before it ran, goes on.
        let is_begun = own.etcd.is_some();
        if !(is_begun || (is_free && is_first && self.engine().program_version().is_ok())) {
            return Ok(());
        }
        let addresses = match &own.etcd {
            Some(member) => admission::addresses_of(member)
                .ok_or_else(|| format!("the record of this server's member of etcd is none: {member:?}"))?,
            None => free_etcd_ports(own.cluster.ip()).map_err(told)?,
        };
        let node = match is_begun {
            true => own.clone(),
            false => match admission::take_etcd_seat(&self.state, facts.node, addresses) {
                Ok(Some(node)) => node,
                // Somebody else has it.
                Ok(None) | Err(StateError::Unknown(_)) => return Ok(()),
                Err(error) => return Err(told(error)),
            },
        };
        let initial_members = self.engine().add_member(&node)?;
        // The one that left goes from etcd after its server has gone from the records, and etcd starts with all members named, or not at all.
        let is_recorded = |url: &str| {
            let known = members.iter().chain([&node]).filter_map(|member| member.etcd.as_ref());
            known.into_iter().any(|member| member.peer_url == url)
        };
        if let Some((name, _)) = initial_members.iter().find(|(_, url)| !is_recorded(url)) {
            return Err(format!("etcd still has the member of '{name}', which has left"));
        }
        credentials.remember(Facts { etcd: Some(addresses), initial_members, ..facts }).map_err(told)?;
        let identity = Identity::open(&self.data).map_err(told)?;
        let identity = identity.ok_or("the cluster's files are gone")?;
        self.engine().run_member(&identity)?;
        tracing::info!(
            node = node.name,
            "this server runs a member of etcd from now on, in place of one that left"
        );
        Ok(())
    }

    /// Records that this server has no volume any more, if it drains.
    fn end_draining(&self, credentials: &Credentials, members: &[NodeRecord]) -> Result<(), String> {
        let own = credentials.facts().node;
        let drains = members.iter().any(|node| node.id == own && node.state == NodeState::Draining);
        if drains && admission::note_drained(&self.state, own).map_err(told)? {
            tracing::info!("this server is drained: it has no volume any more");
        }
        Ok(())
    }
}
