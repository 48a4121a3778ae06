//! Counters of connections, under the names of Windows' counter set "SMB Direct Connection".
//!
//! Windows also counts spurious notifications, which do not exist here: only a completion wakes the loop.

/// Counts of the transport itself; the others come from the MS-SMBD state machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Own {
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

/// Declares the counters and their sum.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            /// Adds another's values.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

counters! {
    /// The counters of one connection, or the sums of several.
    Counters {
        /// Bytes read from clients' memory.
        bytes_rdma_read,
        /// Bytes written into clients' memory.
        bytes_rdma_written,
        /// In messages.
        bytes_received,
        /// In messages.
        bytes_sent,
        /// Registered at this moment.
        memory_regions,
        /// Turns of the loop that brought receives.
        rcq_notification_events,
        /// Registrations made for reads, ended ones included.
        rdma_registrations,
        /// RDMA Sends received, empty ones included.
        receives,
        /// Messages sent that ended a registration of the client.
        remote_invalidations,
        /// Turns of the loop that brought other completions.
        scq_notification_events,
        /// RDMA Sends sent, empty ones included.
        sends,
        /// Times that a read waited until the peer served fewer.
        stalls_rdma_read,
        /// Reads refused for the limit of registered bytes or by the device.
        stalls_rdma_registrations,
        /// Times that a message waited for a credit.
        stalls_send_credit,
        /// Always 0: the queue of sends has no limit here.
        stalls_send_queue,
    }
}

impl Counters {
    pub(super) fn of(own: &Own, machine: &smbdirect::Counters, memory_regions: usize) -> Self {
        Self {
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
            stalls_rdma_read: own.stalls_rdma_read,
            stalls_rdma_registrations: own.stalls_rdma_registrations,
            stalls_send_credit: machine.stalls_send_credit,
            stalls_send_queue: own.stalls_send_queue,
        }
    }
}
