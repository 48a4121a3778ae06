//! Context of each request: the caller, its address, and the daemon.

use crate::audit::Outcome;
use crate::caller::Caller;
use crate::management::{ApiError, ErrorKind, Management};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::net::SocketAddr;
use std::sync::Arc;

/// The state that handlers share.
pub(crate) type Shared = Arc<dyn Management>;

/// The peer of the connection that a request came by.
#[derive(Clone, Copy)]
pub(crate) struct PeerAddress(pub SocketAddr);

/// The caller, and its address.
#[derive(Clone)]
pub struct Peer {
    /// Address and port of the client's end of the connection.
    pub address: SocketAddr,
    /// The token's holder, with its role.
    pub caller: Caller,
}

impl Peer {
    /// Writes an entry about the peer's request to the audit log.
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
