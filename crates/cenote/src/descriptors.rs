//! The process's descriptors: clients' sockets never take those that disks and the API need.

use crate::limits::Limits;

/// For disks, the cluster state, the log, the loop, and the API's listeners with 128 connections each.
const RESERVED: u64 = 512;
/// Sockets for each connection by SMB Direct in software: one served, and one that is being
/// established.
const RDMA_SHARE: u64 = 2;

/// The process's limit of descriptors, raised as far as is allowed.
pub(crate) fn raised_limit() -> u64 {
    sys::raise_descriptor_limit(
        |error| tracing::warn!(%error, "the limit of open descriptors cannot be raised"),
    )
}

/// Bounds the number of connections by the descriptors.
pub(crate) fn bound(limits: Limits, descriptors: u64, has_rdma: bool) -> Limits {
    let shares = 1 + if has_rdma { RDMA_SHARE } else { 0 };
    // If descriptors are few, reserve only half of them.
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
}
