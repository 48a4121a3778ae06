//! What the cluster side is told of the rest of this server.

use super::Shared;
use crate::control::{ClusterCommand, ControlHandle};
use crate::dataplane::show_peer;
use api::cluster::BusPeer;
use api::{Answer, ApiError, ErrorKind};
use member::OwnServer;
use tokio::sync::oneshot;
use types::NodeId;

/// See the module.
pub struct DaemonServer {
    pub control: ControlHandle,
    pub heartbeats: Shared,
    /// It is in a cluster.
    pub has_bus: bool,
}

fn ended(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Internal, error.to_string())
}

impl OwnServer for DaemonServer {
    fn pools(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let snapshot = self.control.snapshot().await.map_err(ended)?;
            Ok(snapshot.pools.into_iter().map(|pool| pool.name).collect())
        })
    }

    fn bus(&self) -> Answer<'_, Vec<BusPeer>> {
        Box::pin(async move {
            if !self.has_bus {
                return Ok(Vec::new());
            }
            let (reply, answer) = oneshot::channel();
            self.control.send(ClusterCommand::Bus { reply }.into());
            Ok(answer.await.map_err(ended)?.iter().map(show_peer).collect())
        })
    }

    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.heartbeats.is_up(node)
    }
}
