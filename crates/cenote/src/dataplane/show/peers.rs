//! The connections to other servers' disks.

use super::SINCE_SEEN;
use api::cluster::{BusChannel, BusPeer, BusPriority, BusQueue, BusState};
use api::model::{Health, HealthIssue, NODE_UNREACHED};
use bus::{ChannelStatus, PeerState, PeerStatus, QueueStatus};
use node::{Node, Unreached};
use space::coordinator::LateReads;
use space::message::Priority;
use std::time::Duration;
use types::LatencyHistogram;

/// Reports live servers with unreachable disks. Without a majority another issue reports that.
pub(super) fn unreached_nodes(node: &Node) -> Vec<HealthIssue> {
    if !node.hears_most() {
        return Vec::new();
    }
    let unreached = node.peers.unreached(node.tasks.now());
    unreached.iter().map(|(id, found)| unreached_node(&node.peers.name(*id), found)).collect()
}

fn unreached_node(name: &str, Unreached { address, why, .. }: &Unreached) -> HealthIssue {
    let at = address.map(|address| format!(" at {address}")).unwrap_or_default();
    HealthIssue {
        health: Health::Warning,
        code: NODE_UNREACHED.to_owned(),
        target: format!("node {name}"),
        since_unix_s: SINCE_SEEN,
        server: None,
        what: format!("its heartbeats arrive, and no connection to its disks{at} carries data: {why}"),
        meaning: "Its disks have left the volumes that can do without them, and other volumes wait for them. If data no \
                  longer reach most of the other servers, this server lets its volumes go to one that can serve them."
            .to_owned(),
        action: format!(
            "See to the network between this server and {name}: cables, MTU, firewall; `cenote node show {name}` has the addresses. Its \
             disks are brought up to date by themselves when it is reached again."
        ),
    }
}

/// Shows the connections to another server's disks, and the requests to them.
pub fn show_peer((peer, reads): &(PeerStatus, LateReads)) -> BusPeer {
    let counters = &peer.counters;
    BusPeer {
        node: peer.node,
        state: match peer.state {
            PeerState::Waiting => BusState::Down,
            PeerState::Connecting => BusState::Connecting,
            PeerState::Ready => BusState::Up,
        },
        address: peer.address,
        rdma: peer.rdma,
        trouble: peer.trouble.clone(),
        in_flight: peer.in_flight as u64,
        channels: peer.channels.iter().map(show_channel).collect(),
        queues: peer.queues.iter().map(show_queue).collect(),
        requests: counters.requests,
        answers: counters.answers,
        unreachable: counters.unreachable,
        written_bytes: counters.written_bytes,
        read_bytes: counters.read_bytes,
        connections: counters.connections,
        channels_lost: counters.channels_lost,
        credit_stalls: counters.credit_stalls,
        late_reads: reads.late,
        hedged_reads: reads.hedged,
        hedges_won: reads.won,
        latency_mean_us: mean_us(&counters.latency),
        latency_p99_us: bound_us(&counters.latency, 99),
    }
}

fn show_channel(channel: &ChannelStatus) -> BusChannel {
    let &ChannelStatus { address, rdma, is_ready, in_flight_bytes, requests, moved_bytes } = channel;
    BusChannel { address, rdma, is_up: is_ready, in_flight_bytes, requests, moved_bytes }
}

fn show_queue(queue: &QueueStatus) -> BusQueue {
    BusQueue {
        priority: match queue.priority {
            Priority::Client => BusPriority::Client,
            Priority::Resync => BusPriority::Resync,
            Priority::Rebuild => BusPriority::Rebuild,
            Priority::Rebalance => BusPriority::Rebalance,
        },
        waiting: queue.waiting as u64,
        in_flight_bytes: queue.in_flight_bytes,
        requests: queue.requests,
        longest_wait_us: microseconds(queue.longest_wait),
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn mean_us(histogram: &LatencyHistogram) -> Option<u64> {
    microseconds(histogram.sum()).checked_div(histogram.count())
}

/// Returns the bound, in microseconds, below which this percentage of times lies.
fn bound_us(histogram: &LatencyHistogram, percent: u64) -> Option<u64> {
    let wanted = (histogram.count() * percent).div_ceil(100);
    let mut below = 0;
    let reached = histogram.buckets().find(|(_, count)| {
        below += count;
        below >= wanted
    });
    let bound = reached.filter(|_| wanted > 0)?.0?;
    u64::try_from(bound.as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_that_of_the_bucket_with_the_last_of_them() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!((mean_us(&histogram), bound_us(&histogram, 99)), (None, None));
        for _ in 0..99 {
            histogram.record(Duration::from_micros(100));
        }
        let of_all_but_one = bound_us(&histogram, 99).unwrap();
        histogram.record(Duration::from_secs(1));
        assert_eq!(bound_us(&histogram, 99), Some(of_all_but_one));
        assert!((100..1000).contains(&of_all_but_one), "{of_all_but_one}");
        assert!(bound_us(&histogram, 100).is_none_or(|bound| bound >= 1_000_000));
        assert_eq!(mean_us(&histogram), Some(10_099));
    }
}
