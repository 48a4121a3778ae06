//! What is counted of a connection, by the names that Windows gives the counters of its set "SMB Direct Connection".

use api::model::SmbDirectCounters;

/// What the transport counts itself; the rest comes from the state machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Own {
    pub bytes_rdma_read: u64,
    pub bytes_rdma_written: u64,
    pub rdma_registrations: u64,
    /// Turns of the loop that brought receives.
    pub rcq_notification_events: u64,
    /// Turns of the loop that brought other completions.
    pub scq_notification_events: u64,
    pub stalls_rdma_read: u64,
    pub stalls_rdma_registrations: u64,
    pub stalls_send_queue: u64,
}

/// All 17. `memory_regions`: registered at this moment.
pub fn show(own: &Own, machine: &smbdirect::Counters, memory_regions: usize) -> SmbDirectCounters {
    SmbDirectCounters {
        bytes_rdma_read: own.bytes_rdma_read,
        bytes_rdma_written: own.bytes_rdma_written,
        bytes_received: machine.bytes_received,
        bytes_sent: machine.bytes_sent,
        memory_regions: memory_regions as u64,
        rcq_notification_events: own.rcq_notification_events,
        rdma_registrations: own.rdma_registrations,
        receives: machine.transfers_received,
        remote_invalidations: machine.remote_invalidations,
        scq_notification_events: own.scq_notification_events,
        sends: machine.transfers_sent,
        // Software wakes nobody without a completion.
        spurious_rcq_notification_events: 0,
        spurious_scq_notification_events: 0,
        stalls_rdma_read: own.stalls_rdma_read,
        stalls_rdma_registrations: own.stalls_rdma_registrations,
        stalls_send_credit: machine.stalls_send_credit,
        stalls_send_queue: own.stalls_send_queue,
    }
}
