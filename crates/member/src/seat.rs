//! This server's seat among the members of etcd.
//!
//! The members decide: the list that a majority of them agrees on, and each one's own answer. A record
//! that names a member only says that there should be one. Promises:
//!
//! 1. A member that has lost its data never runs again under its number. It may have voted, and
//!    acknowledged entries, without remembering: Raft depends on that memory. It is removed, and
//!    another one is added in its place, which begins without a vote.
//! 2. A member is removed only when the others have an answering majority of their own, so that etcd
//!    continues in any case.
//! 3. Data of a removed member are kept under another name, not deleted.
//! 4. A member whose state differs from the leader's at the same entries is not kept: it is removed
//!    like one that has lost its data, if the others, which agree with the leader, have a majority.
//!
//! Each step can be interrupted, and the next check continues from the present state: a member's data
//! are moved away before it is removed, removed before another one is added, and added before that
//! runs.

use crate::admission::{self, EtcdAddresses};
use crate::applicant::free_etcd_ports;
use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::identity::{Facts, Identity};
use crate::own_etcd::OwnMember;
use etcd::members::{MemberHealth, have_majority_without};
use etcd::process::has_data;
use records::nodes::ETCD_MEMBERS;
use records::{EtcdMember, NodeRecord, State, StateError, nodes};
use std::path::Path;
use types::NodeId;

/// Number that no member of etcd has.
const NO_MEMBER: u64 = 0;

/// One check of the seat.
pub(crate) struct Seat<'a> {
    pub data: &'a Path,
    pub state: &'a State,
    pub engine: &'a dyn Engine,
    pub credentials: &'a Credentials,
    /// The servers, by their records.
    pub members: &'a [NodeRecord],
    /// The members, as etcd has them.
    pub listed: &'a [MemberHealth],
    pub is_up: &'a dyn Fn(NodeId) -> bool,
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn runs_at(member: &MemberHealth, peer_url: &str) -> bool {
    member.member.peer_urls.iter().any(|url| url == peer_url)
}

/// Has the next member begin without data.
fn clear(identity: &Identity) -> Result<(), String> {
    match has_data(&identity.etcd_directory()) {
        true => identity.put_etcd_aside().map_err(told),
        false => identity.remove_etcd().map_err(told),
    }
}

impl Seat<'_> {
    /// Takes the steps that the seat needs now.
    ///
    /// # Errors
    /// The reason why one failed; the next check tries again.
    pub fn keep(&self) -> Result<(), String> {
        let facts = self.credentials.facts();
        let own = self.members.iter().find(|node| node.id == facts.node);
        let Some(own) = own else { return Ok(()) };
        match &own.etcd {
            Some(recorded) if facts.etcd.is_some() => {
                self.mend(own, recorded)?;
                self.drop_strays()
            }
            _ => self.take(own, &facts),
        }
    }

    /// Replaces this server's member if it cannot do its work any more.
    fn mend(&self, own: &NodeRecord, recorded: &EtcdMember) -> Result<(), String> {
        let listed = self.listed.iter().find(|member| runs_at(member, &recorded.peer_url));
        let process = self.engine.own_member();
        let is_another =
            |member: &MemberHealth| member.status.as_ref().is_ok_and(|status| status.id != member.member.id);
        let addresses = admission::addresses_of(recorded)
            .ok_or_else(|| format!("the record of this server's member of etcd is none: {recorded:?}"))?;
        match (process, listed) {
            // etcd has one member at least: no list is no answer.
            _ if self.listed.is_empty() => Ok(()),
            (OwnMember::Runs, Some(member)) if !is_another(member) && member.differs_from.is_none() => Ok(()),
            // Added, and never ran.
            (OwnMember::Absent, Some(member)) if !member.has_run() => self.sit(own, addresses),
            (_, listed) => {
                let id = listed.map_or(NO_MEMBER, |member| member.member.id);
                if !have_majority_without(self.listed, id) {
                    return Err(
                        "this server's member of etcd has lost its data, differs from the leader, or was removed: the server \
                         makes it anew when most of the others answer"
                            .into(),
                    );
                }
                tracing::warn!(
                    node = own.name,
                    ?process,
                    is_listed = listed.is_some(),
                    differs = listed.is_some_and(|member| member.differs_from.is_some()),
                    "this server's member of etcd has lost its data, differs from the leader, or was removed: another one is made in its place"
                );
                self.engine.end_member();
                clear(&self.identity()?)?;
                if let Some(listed) = listed.filter(|member| member.has_run()) {
                    self.engine.drop_member(listed)?;
                }
                self.sit(own, addresses)
            }
        }
    }

    fn identity(&self) -> Result<Identity, String> {
        Identity::open(self.data).map_err(told)?.ok_or_else(|| "the cluster's files are gone".into())
    }

    /// Takes the seat of a server that has left, if this is the first of the servers that could.
    fn take(&self, own: &NodeRecord, facts: &Facts) -> Result<(), String> {
        // A recorded member, whose process ended before it ran, continues.
        if let Some(recorded) = &own.etcd {
            let addresses = admission::addresses_of(recorded);
            let none = || format!("the record of this server's member of etcd is none: {recorded:?}");
            return self.sit(own, addresses.ok_or_else(none)?);
        }
        let seated = self.members.iter().filter(|node| node.etcd.is_some()).count();
        let is_free = seated > 0 && seated < ETCD_MEMBERS;
        let could =
            |node: &&NodeRecord| node.etcd.is_none() && (node.id == facts.node || (self.is_up)(node.id));
        let is_first = self.members.iter().find(could).is_some_and(|node| node.id == facts.node);
        if !(is_free && is_first && self.engine.program_version().is_ok()) {
            return Ok(());
        }
        let addresses = free_etcd_ports(own.cluster.ip()).map_err(told)?;
        match admission::take_etcd_seat(self.state, facts.node, addresses) {
            Ok(Some(node)) => self.sit(&node, addresses),
            // Another server took it.
            Ok(None) | Err(StateError::Unknown(_) | StateError::NotApplied(_)) => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    /// Adds the member in this server's record, if etcd does not have it, and runs it.
    fn sit(&self, own: &NodeRecord, addresses: EtcdAddresses) -> Result<(), String> {
        let initial_members = self.engine.add_member(own)?;
        // The one that left goes from etcd after its server has gone from the records, and etcd starts with all members named, or not at all.
        let is_recorded = |url: &str| {
            let known = self.members.iter().chain([own]).filter_map(|member| member.etcd.as_ref());
            known.into_iter().any(|member| member.peer_url == url)
        };
        if let Some((name, _)) = initial_members.iter().find(|(_, url)| !is_recorded(url)) {
            return Err(format!("etcd still has the member of '{name}', which has left"));
        }
        let facts = self.credentials.facts();
        self.credentials.remember(Facts { etcd: Some(addresses), initial_members, ..facts }).map_err(told)?;
        let identity = self.identity()?;
        // Old data are of a member that etcd does not have: a new one does not continue from them.
        clear(&identity)?;
        self.engine.run_member(&identity)?;
        tracing::info!(
            node = own.name,
            "this server runs a new member of etcd, which has its vote as soon as it has caught up"
        );
        Ok(())
    }

    /// Removes members of servers that have left: one that was not removed with its server counts for the majority, and does nothing for it.
    fn drop_strays(&self) -> Result<(), String> {
        // Read after the list: a server's record exists before its member.
        let records = nodes::members(self.state).map_err(told)?;
        let is_recorded = |member: &MemberHealth| {
            let mut known = records.iter().filter_map(|node| node.value.etcd.as_ref());
            known.any(|recorded| runs_at(member, &recorded.peer_url))
        };
        for stray in self.listed.iter().filter(|member| !is_recorded(member)) {
            self.engine.drop_member(stray)?;
            tracing::warn!(
                member = stray.name(),
                "a member of etcd that no server of the cluster runs was removed"
            );
        }
        Ok(())
    }
}
