//! RDMA for people: devices, connections, and the counters that Windows keeps as "RDMA Activity" and
//! "SMB Direct Connection".

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Declares a set of counters with the name that Windows gives each and the name of its metric.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident = $windows:literal, $kind:ident;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            /// Each counter: the name that Windows gives it, the name of the metric, whether it only grows, its value.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, CounterKind, u64)> + use<> {
                [$(($windows, stringify!($field), CounterKind::$kind, self.$field),)*].into_iter()
            }

            /// Adds another's values.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

/// How a counter moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind {
    /// Only grows; Windows shows its growth per second.
    Rate,
    /// Only grows; Windows shows the sum.
    Total,
    /// Level as of this moment.
    Level,
}

counters! {
    /// The set "SMB Direct Connection".
    SmbDirectCounters {
        bytes_rdma_read = "Bytes RDMA Read/sec", Rate;
        bytes_rdma_written = "Bytes RDMA Written/sec", Rate;
        /// In messages.
        bytes_received = "Bytes Received/sec", Rate;
        /// In messages.
        bytes_sent = "Bytes Sent/sec", Rate;
        memory_regions = "Memory Regions", Level;
        rcq_notification_events = "RCQ Notification Events/sec", Rate;
        rdma_registrations = "RDMA Registrations/sec", Rate;
        receives = "Receives/sec", Rate;
        remote_invalidations = "Remote Invalidations/sec", Rate;
        scq_notification_events = "SCQ Notification Events/sec", Rate;
        sends = "Sends/sec", Rate;
        spurious_rcq_notification_events = "Spurious RCQ Notification Events", Total;
        spurious_scq_notification_events = "Spurious SCQ Notification Events", Total;
        stalls_rdma_read = "Stalls (RDMA Read)/sec", Rate;
        stalls_rdma_registrations = "Stalls (RDMA Registrations)/sec", Rate;
        stalls_send_credit = "Stalls (Send Credit)/sec", Rate;
        stalls_send_queue = "Stalls (Send Queue)/sec", Rate;
    }
}

counters! {
    /// The set "RDMA Activity".
    RdmaActivity {
        accepted_connections = "Accepted Connections", Total;
        active_connections = "Active Connections", Level;
        completion_queue_errors = "Completion Queue Errors", Total;
        connection_errors = "Connection Errors", Total;
        failed_connection_attempts = "Failed Connection Attempts", Total;
        inbound_bytes = "Inbound Bytes/sec", Rate;
        inbound_frames = "Inbound Frames/sec", Rate;
        initiated_connections = "Initiated Connections", Total;
        outbound_bytes = "Outbound Bytes/sec", Rate;
        outbound_frames = "Outbound Frames/sec", Rate;
    }
}

/// A connection that carries a session, as `session list` shows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    /// ADDRESS:PORT of the client.
    pub client: String,
    pub server: String,
    /// `TCP`, `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    /// TCP only: `yes` if large reads leave without a copy in this server, else why not.
    #[serde(default)]
    pub zero_copy: Option<String>,
    /// SMB Direct only.
    pub rdma: Option<ChannelRdma>,
}

/// Further figures of a channel over SMB Direct.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChannelRdma {
    /// The number that `rdma trace` takes.
    pub connection: u64,
    /// Transfers that the server may send.
    pub send_credits: u16,
    /// Transfers that the client may send.
    pub receive_credits: u16,
    /// CRC of the transport is on.
    pub crc: bool,
    pub inbound_read_depth: u16,
    pub outbound_read_depth: u16,
    pub counters: SmbDirectCounters,
}

/// A connection over SMB Direct, of a session or not yet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RdmaConnection {
    /// The server of a cluster that has it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub client: String,
    pub server: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    pub rdma: ChannelRdma,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaListener {
    /// The server of a cluster that has it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub address: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    /// `software`, or the device.
    pub provider: String,
}

/// A network interface and whether clients reach SMB Direct by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaInterface {
    /// The server of a cluster that has it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub name: String,
    pub addresses: Vec<String>,
    /// Bits per second, if the interface reports them.
    pub speed_bits_s: Option<u64>,
    pub capable: bool,
    /// Reason why not, and the remedy.
    pub reason: String,
}

/// An RDMA device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaDevice {
    /// The server of a cluster that has it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub name: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    pub state: String,
    pub interface: Option<String>,
    /// Addresses of this machine that lead to it.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Whether it is used, and why not.
    pub used: bool,
    pub reason: String,
}

/// RDMA figures of the data plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RdmaState {
    pub listeners: Vec<RdmaListener>,
    pub connections: Vec<RdmaConnection>,
    pub activity: RdmaActivity,
    /// Sums over all connections there ever were.
    pub counters: SmbDirectCounters,
}

/// Everything `rdma list` shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Rdma {
    pub interfaces: Vec<RdmaInterface>,
    pub devices: Vec<RdmaDevice>,
    /// Why no device can be used; empty if one can.
    #[serde(default)]
    pub no_devices: String,
    #[serde(flatten)]
    pub state: RdmaState,
}

/// One protocol event of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaTraceEvent {
    /// Before the newest event that is shown.
    pub before_newest_us: u64,
    pub send_credits: u16,
    pub receive_credits: u16,
    pub event: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaTrace {
    pub connection: u64,
    /// Events since the connection began; the oldest are forgotten.
    pub count: u64,
    pub events: Vec<RdmaTraceEvent>,
}
