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
        /// Bytes that RDMA Reads fetched from clients: data of writes.
        bytes_rdma_read = "Bytes RDMA Read/sec", Rate;
        /// Bytes that RDMA Writes put into clients' memory: data of reads.
        bytes_rdma_written = "Bytes RDMA Written/sec", Rate;
        /// In messages.
        bytes_received = "Bytes Received/sec", Rate;
        /// In messages.
        bytes_sent = "Bytes Sent/sec", Rate;
        /// Memory regions that are registered at this moment.
        memory_regions = "Memory Regions", Level;
        /// Turns of the loop that brought receives.
        rcq_notification_events = "RCQ Notification Events/sec", Rate;
        /// Registrations since the start.
        rdma_registrations = "RDMA Registrations/sec", Rate;
        /// SMB Direct transfers that arrived.
        receives = "Receives/sec", Rate;
        /// Registrations that a Send with Invalidate ended.
        remote_invalidations = "Remote Invalidations/sec", Rate;
        /// Turns of the loop that brought other completions than receives.
        scq_notification_events = "SCQ Notification Events/sec", Rate;
        /// SMB Direct transfers that left.
        sends = "Sends/sec", Rate;
        /// Always 0: only a completion wakes the loop.
        spurious_rcq_notification_events = "Spurious RCQ Notification Events", Total;
        /// Always 0: only a completion wakes the loop.
        spurious_scq_notification_events = "Spurious SCQ Notification Events", Total;
        /// Times that an RDMA Read waited for the peer's read depth.
        stalls_rdma_read = "Stalls (RDMA Read)/sec", Rate;
        /// Times that data of a client found no memory to register.
        stalls_rdma_registrations = "Stalls (RDMA Registrations)/sec", Rate;
        /// Times that a message waited for a send credit.
        stalls_send_credit = "Stalls (Send Credit)/sec", Rate;
        /// Always 0: no send waits for a place in the queue.
        stalls_send_queue = "Stalls (Send Queue)/sec", Rate;
    }
}

counters! {
    /// The set "RDMA Activity".
    RdmaActivity {
        /// Requests of peers that this end took.
        accepted_connections = "Accepted Connections", Total;
        /// Connections that are established at this moment.
        active_connections = "Active Connections", Level;
        /// Completions by an error of reads whose sink was not registered properly.
        completion_queue_errors = "Completion Queue Errors", Total;
        /// Established connections that ended by an error.
        connection_errors = "Connection Errors", Total;
        /// Connections that ended before they were established.
        failed_connection_attempts = "Failed Connection Attempts", Total;
        /// Bytes that arrived by RDMA's transport.
        inbound_bytes = "Inbound Bytes/sec", Rate;
        /// FPDUs or packets that arrived.
        inbound_frames = "Inbound Frames/sec", Rate;
        /// Connections that this end asked for.
        initiated_connections = "Initiated Connections", Total;
        /// Bytes that left by RDMA's transport.
        outbound_bytes = "Outbound Bytes/sec", Rate;
        /// FPDUs or packets that left.
        outbound_frames = "Outbound Frames/sec", Rate;
    }
}

/// A connection that carries a session, as `session list` shows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    /// ADDRESS:PORT of the client.
    pub client: String,
    /// ADDRESS:PORT of this server.
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
    /// RDMA Reads of the client that are served at a time.
    pub inbound_read_depth: u16,
    /// RDMA Reads of this server that the client serves at a time.
    pub outbound_read_depth: u16,
    /// Counters of this connection alone.
    pub counters: SmbDirectCounters,
}

/// A connection over SMB Direct, of a session or not yet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RdmaConnection {
    /// The server of a cluster with it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// ADDRESS:PORT of the client.
    pub client: String,
    /// ADDRESS:PORT of this server.
    pub server: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    /// Credits, read depths and counters.
    pub rdma: ChannelRdma,
}

/// An address at which a server listens for SMB Direct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaListener {
    /// The server of a cluster with it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// ADDRESS:PORT that clients connect to.
    pub address: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    /// `software`, or the device.
    pub provider: String,
}

/// A network interface and whether clients reach SMB Direct by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaInterface {
    /// The server of a cluster with it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Name by the kernel, such as `eth0`.
    pub name: String,
    /// IP addresses of the interface.
    pub addresses: Vec<String>,
    /// Bits per second, if the interface reports them.
    pub speed_bits_s: Option<u64>,
    /// Whether clients reach an SMB Direct listener by it.
    pub capable: bool,
    /// Reason why not, and the remedy.
    pub reason: String,
}

/// An RDMA device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaDevice {
    /// The server of a cluster with it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Name by the kernel, such as `mlx5_0`.
    pub name: String,
    /// `iWARP`, `RoCE` or `InfiniBand`.
    pub transport: String,
    /// State of its first port by the kernel, such as `ACTIVE`.
    pub state: String,
    /// Network interface of the device, if the kernel names one.
    pub interface: Option<String>,
    /// Addresses of this machine that lead to it.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Whether it is used, and why not.
    pub used: bool,
    /// Why no listener uses it; empty if one does.
    pub reason: String,
}

/// RDMA figures of the data plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RdmaState {
    /// Addresses at which SMB Direct is listened for.
    pub listeners: Vec<RdmaListener>,
    /// Connections over SMB Direct, of sessions or not yet.
    pub connections: Vec<RdmaConnection>,
    /// Counters of all RDMA since the start.
    pub activity: RdmaActivity,
    /// Sums over all connections there ever were.
    pub counters: SmbDirectCounters,
}

/// Everything `rdma list` shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Rdma {
    /// Network interfaces, with the reasons against SMB Direct on each.
    pub interfaces: Vec<RdmaInterface>,
    /// RDMA devices of the kernel.
    pub devices: Vec<RdmaDevice>,
    /// Why no device can be used; empty if one can.
    #[serde(default)]
    pub no_devices: String,
    /// Listeners, connections and counters.
    #[serde(flatten)]
    pub state: RdmaState,
}

/// One protocol event of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaTraceEvent {
    /// Before the newest event that is shown.
    pub before_newest_us: u64,
    /// Send credits after the event.
    pub send_credits: u16,
    /// Receive credits after the event.
    pub receive_credits: u16,
    /// The event in words.
    pub event: String,
}

/// The last protocol events of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaTrace {
    /// Number of the connection.
    pub connection: u64,
    /// Events since the connection began; the oldest are forgotten.
    pub count: u64,
    /// Recorded events, the oldest first.
    pub events: Vec<RdmaTraceEvent>,
}
