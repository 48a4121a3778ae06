//! SMB Direct as the control plane is shown it.

use crate::rdma_devices::transport_name;
use api::model::{
    ChannelRdma, RdmaActivity, RdmaConnection, RdmaListener, RdmaState, RdmaTrace, RdmaTraceEvent,
    SmbDirectCounters,
};
use rdma::ibverbs::IbverbsProvider;
use rdma::providers::Providers;
use smb_transport::server::smb_direct::{Counters, Shown, SmbDirect};
use std::net::SocketAddr;

/// The provider of listeners that need no device.
const SOFTWARE: &str = "software";

/// Shows listeners, connections and counters of SMB Direct.
pub(super) fn show_rdma(addresses: &[SocketAddr], direct: &SmbDirect<Providers>) -> RdmaState {
    let software = addresses.iter().map(|address| RdmaListener {
        node: None,
        address: address.to_string(),
        transport: transport_name(rdma::Transport::Iwarp).to_owned(),
        provider: SOFTWARE.to_owned(),
    });
    let devices =
        direct.verbs().devices.iter().flat_map(IbverbsProvider::listening).map(|listening| RdmaListener {
            node: None,
            address: listening.address.to_string(),
            transport: transport_name(listening.transport).to_owned(),
            provider: listening.device.clone(),
        });
    let connection = |shown: Shown| RdmaConnection {
        node: None,
        client: shown.info.peer.to_string(),
        server: shown.info.local.to_string(),
        transport: transport_name(shown.info.transport).to_owned(),
        rdma: show_channel(&shown),
    };
    RdmaState {
        listeners: software.chain(devices).collect(),
        connections: direct.show_all().into_iter().map(connection).collect(),
        activity: show_activity(direct.activity()),
        counters: show_smb_direct(&direct.counters()),
    }
}

/// Shows a connection as a session's channel.
pub(super) fn show_channel(shown: &Shown) -> ChannelRdma {
    ChannelRdma {
        connection: shown.number,
        send_credits: shown.send_credits,
        receive_credits: shown.receive_credits,
        crc: shown.info.crc,
        inbound_read_depth: shown.info.inbound_read_depth,
        outbound_read_depth: shown.info.outbound_read_depth,
        counters: show_smb_direct(&shown.counters),
    }
}

fn show_activity(activity: rdma::Activity) -> RdmaActivity {
    RdmaActivity {
        accepted_connections: activity.accepted_connections,
        active_connections: activity.active_connections,
        completion_queue_errors: activity.completion_queue_errors,
        connection_errors: activity.connection_errors,
        failed_connection_attempts: activity.failed_connection_attempts,
        inbound_bytes: activity.inbound_bytes,
        inbound_frames: activity.inbound_frames,
        initiated_connections: activity.initiated_connections,
        outbound_bytes: activity.outbound_bytes,
        outbound_frames: activity.outbound_frames,
    }
}

fn show_smb_direct(counters: &Counters) -> SmbDirectCounters {
    SmbDirectCounters {
        bytes_rdma_read: counters.bytes_rdma_read,
        bytes_rdma_written: counters.bytes_rdma_written,
        bytes_received: counters.bytes_received,
        bytes_sent: counters.bytes_sent,
        memory_regions: counters.memory_regions,
        rcq_notification_events: counters.rcq_notification_events,
        rdma_registrations: counters.rdma_registrations,
        receives: counters.receives,
        remote_invalidations: counters.remote_invalidations,
        scq_notification_events: counters.scq_notification_events,
        sends: counters.sends,
        // Software has no wakeup without a completion.
        spurious_rcq_notification_events: 0,
        spurious_scq_notification_events: 0,
        stalls_rdma_read: counters.stalls_rdma_read,
        stalls_rdma_registrations: counters.stalls_rdma_registrations,
        stalls_send_credit: counters.stalls_send_credit,
        stalls_send_queue: counters.stalls_send_queue,
    }
}

/// Shows the last protocol events of an RDMA connection.
pub(super) fn show_events(direct: &SmbDirect<Providers>, connection: u64) -> Option<RdmaTrace> {
    let trace = direct.trace(connection)?;
    let newest = trace.entries().last().map(|entry| entry.at).unwrap_or_default();
    let events = trace.entries().map(|entry| RdmaTraceEvent {
        before_newest_us: u64::try_from(newest.since(entry.at).as_micros()).unwrap_or(u64::MAX),
        send_credits: entry.send_credits,
        receive_credits: entry.receive_credits,
        event: trace.tell(entry),
    });
    Some(RdmaTrace { connection, count: trace.count(), events: events.collect() })
}
