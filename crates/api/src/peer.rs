//! What comes with each request: who asks, from where, and the daemon.

use crate::audit::Outcome;
use crate::caller::Caller;
use crate::management::{ApiError, ErrorKind, Management};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::net::SocketAddr;
use std::sync::Arc;

/// What handlers work with.
pub(crate) type Shared = Arc<dyn Management>;

/// The peer of the connection that a request came by.
#[derive(Clone, Copy)]
pub(crate) struct PeerAddress(pub SocketAddr);

/// Who asks, and from where.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    pub caller: Caller,
}

impl Peer {
    /// Writes a line about what the peer asked for to the audit log.
    pub fn audit(
        &self,
        management: &Arc<dyn Management>,
        action: &str,
        target: &str,
        outcome: Outcome,
        detail: &str,
    ) {
        let (actor, source) = (self.caller.actor(), self.address.to_string());
        management.audit_by(&actor, &source, action, target, outcome, detail);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let missing = || ApiError::new(ErrorKind::Internal, "nobody was asked for a token");
        let address = parts.extensions.get::<PeerAddress>().ok_or_else(missing)?.0;
        let caller = parts.extensions.get::<Caller>().ok_or_else(missing)?.clone();
        Ok(Self { address, caller })
    }
}
