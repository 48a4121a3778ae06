//! The process's descriptors: clients' sockets never take those that disks and the API need.

use crate::limits::Limits;
use rustix::process::{Resource, getrlimit, setrlimit};

/// For disks, the cluster state, the log, the loop, and the API's listeners with 128 connections each.
const RESERVED: u64 = 512;
/// Connections by SMB Direct in software: those that are served, and as many on their way to be established.
const RDMA_SHARE: u64 = 2;

/// Raises the limit of descriptors as far as is allowed; gives it.
pub(crate) fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open descriptors cannot be raised");
            limit.current = before;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// The limits, with as many connections as there can be descriptors for.
pub(crate) fn bound(limits: Limits, descriptors: u64, has_rdma: bool) -> Limits {
    let shares = 1 + if has_rdma { RDMA_SHARE } else { 0 };
    // Half of few descriptors is all that can be kept back.
    let for_clients = descriptors.saturating_sub(RESERVED).max(descriptors / 2);
    let most = u32::try_from(for_clients / shares).unwrap_or(u32::MAX).max(1);
    if most < limits.connections {
        tracing::warn!(
            descriptors,
            connections = most,
            "there are descriptors for fewer connections than limits.connections says: raise LimitNOFILE or ulimit -n"
        );
    }
    Limits { connections: limits.connections.min(most), ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_disks_and_the_api() {
        let connections = |descriptors, has_rdma| {
            bound(Limits { connections: 4096, ..Limits::default() }, descriptors, has_rdma).connections
        };
        assert_eq!(connections(1 << 20, true), 4096);
        assert_eq!(connections(1024, false), 512);
        assert_eq!(connections(4096, false), 3584);
        assert_eq!(connections(4096, true), 1194);
        assert_eq!(connections(64, true), 10);
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let raised = raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(limit.current.unwrap_or(u64::MAX), raised);
    }
}
