//! Draining and removal of a server.
//!
//! Promises: a server that is up is removed only when it is empty, and otherwise the refusal names the
//! commands that move its data away; a dead one only when no volume depends on its copies. A refused
//! request has changed nothing.

use crate::admission::{self, Refused};
use crate::control::ClusterControl;
use crate::failure::{ControlError, conflict, off_the_loop};
use crate::view::{Demand, Holdings};
use records::clock::unix_now_s;
use records::nodes;
use std::time::Duration;

/// Timeout of an answer from a server that heartbeats do not know.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

impl ClusterControl {
    pub(crate) async fn set_draining_now(
        &self,
        name: String,
        is_draining: bool,
        demand: Demand,
    ) -> Result<(), ControlError> {
        self.in_cluster()?;
        let _alone = self.changing.lock().await;
        let state = self.state.clone();
        off_the_loop(move || {
            if is_draining && demand == Demand::Service {
                let found = nodes::member_named(&state, &name)?;
                let found = found.ok_or_else(|| Refused::NoSuchNode(name.clone()))?;
                Holdings::read(&state)?.demand_served_without(&found.value).map_err(conflict)?;
            }
            if admission::set_draining(&state, &name, is_draining)? {
                let what = if is_draining { "drains" } else { "has volumes again" };
                tracing::info!(node = name, "a server {what}");
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn remove_now(&self, name: String) -> Result<(), ControlError> {
        let membership = self.in_cluster()?;
        let _alone = self.changing.lock().await;
        if membership.facts().name.eq_ignore_ascii_case(&name) {
            return Err(ControlError(conflict(format!(
                "'{name}' is this server: remove it through another one"
            ))));
        }
        let members = self.members().await?;
        let found = members.into_iter().find(|node| node.name.eq_ignore_ascii_case(&name));
        let node = found.ok_or_else(|| Refused::NoSuchNode(name.clone()))?;
        let is_up = match self.server.is_up(node.id) {
            Some(is_up) => is_up,
            None => {
                let seen = self.look_at(std::slice::from_ref(&node), LOOK_TIMEOUT).await;
                seen.iter().any(|seen| seen.told.is_ok())
            }
        };
        let (state, key, engine) = (self.state.clone(), self.key.clone(), self.engine());
        off_the_loop(move || {
            let holdings = Holdings::read(&state)?;
            match is_up {
                true => holdings.demand_nothing_on(&node).map_err(conflict)?,
                false => holdings.demand_nothing_counts_on(&node).map_err(conflict)?,
            }
            let removed = admission::remove(&state, &key, &name, unix_now_s())?;
            tracing::info!(node = removed.name, is_up, "a server was removed");
            // The server is out even if etcd fails: the records decide.
            engine.remove_member(&node).map_err(|why| {
                conflict(format!(
                    "{} is out of the cluster, but its member of etcd is still there and counts for the majority: {why}; remove it with \
                     etcdctl member remove",
                    removed.name
                ))
            })?;
            Ok(())
        })
        .await
    }
}
