//! A snapshot as Prometheus text (exposition format 0.0.4).
//!
//! Promises: names begin with `cenote_`, or with `process_` for figures of every process. Base units
//! (seconds, bytes, ratios) are at the end; counters end with `_total`. Descriptions are labels of an
//! object's `_info`, and every other sample has no more labels than it needs. Samples of a family add
//! up: none is the sum of others. One of a cluster's servers exports each figure. Never keeps state:
//! every scrape is made from one snapshot, and in a cluster by one server from the knowledge of all.

mod cluster;
mod exposition;
mod process;
#[cfg(test)]
mod tests;

use crate::cluster::{BusChannel, BusPriority, BusQueue, BusState};
use crate::model::{
    CounterKind, Disk, Health, JobState, MetricKind, OperationCounters, Pool, Snapshot, Volume, VolumeStatus,
};
pub use cluster::OfCluster;
use exposition::Families;
use serde::Serialize;
use std::time::Duration;

/// The body of `/metrics`.
pub fn text(snapshot: &Snapshot, of_cluster: Option<&OfCluster>) -> String {
    let mut families = Families::default();
    disks(snapshot, &mut families);
    let whole = of_cluster.and_then(|found| found.whole.as_ref());
    // One server exports the figures that belong to no server.
    let is_told_here = of_cluster.is_none_or(|found| found.figures.shared.is_some());
    if is_told_here {
        pools(whole.map_or(&snapshot.pools, |whole| &whole.pools), &mut families);
    }
    volumes(snapshot, is_told_here, &mut families);
    if let Some(of_cluster) = of_cluster {
        cluster::add(of_cluster, &mut families);
    }
    server(snapshot, &mut families);
    rdma(snapshot, &mut families);
    bus(snapshot, &mut families);
    process::add(&mut families);
    for client in &snapshot.clients {
        families.histogram(
            "cenote_smb_client_request_seconds",
            "From the arrival of a client's read or write to its answer, without those that wait for another client.",
            &[("client", client.client.as_deref().unwrap_or("others"))],
            &client.latency,
        );
    }
    for latency in &snapshot.latencies {
        let name = format!("cenote_{}_seconds", latency.name);
        families.histogram(&name, &latency.help, &borrowed(&latency.labels), &latency.histogram);
    }
    for metric in &snapshot.metrics {
        let suffix = if metric.kind == MetricKind::Counter { "_total" } else { "" };
        let name = format!("cenote_{}{suffix}", metric.name);
        families.add(&name, &metric.help, metric.kind, &borrowed(&metric.labels), metric.value);
    }
    families.render()
}

fn borrowed(labels: &[(String, String)]) -> Vec<(&str, &str)> {
    labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Returns a word of the model in the API's spelling.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

fn disks(snapshot: &Snapshot, families: &mut Families) {
    // Another server exports the counters of its own disks.
    for disk in snapshot.disks.iter().filter(|disk| disk.counters.is_some()) {
        let id = disk.id.to_string();
        let pool = snapshot.pools.iter().find(|pool| disk.pool == Some(pool.id));
        families.info(
            "cenote_disk_info",
            "What a disk's id stands for.",
            &[
                ("disk", &id),
                ("path", &disk.path),
                ("pool", pool.map_or("", |pool| &pool.name)),
                ("fault_domain", &disk.fault_domain),
                ("rotational", if disk.rotational == Some(true) { "true" } else { "false" }),
                ("status", &word(disk.status)),
                ("usage", &word(disk.usage)),
            ],
        );
        let labels = [("disk", id.as_str())];
        families.gauge("cenote_disk_health", HEALTH, &labels, health(disk.health));
        families.gauge("cenote_disk_size_bytes", "Size of the disk.", &labels, disk.size_bytes as f64);
        if let Some(allocated) = disk.allocated_bytes {
            let help = "In slabs given to volumes.";
            families.gauge("cenote_disk_allocated_bytes", help, &labels, allocated as f64);
        }
        disk_counters(disk, &labels, families);
        device_figures(disk, &labels, families);
    }
}

/// Adds requests to other servers' disks.
fn bus(snapshot: &Snapshot, families: &mut Families) {
    for peer in &snapshot.bus {
        let node = peer.node.to_string();
        let labels = [("node", node.as_str())];
        let is_up = f64::from(u8::from(peer.state == BusState::Up));
        families.gauge("cenote_bus_up", "1: the other server's disks are reached.", &labels, is_up);
        families.gauge(
            "cenote_bus_in_flight",
            "Requests to the other server that are not answered.",
            &labels,
            peer.in_flight as f64,
        );
        for (name, help, value) in [
            ("cenote_bus_requests_total", "Requests to the other server's disks.", peer.requests),
            ("cenote_bus_answers_total", "Of these, what it answered.", peer.answers),
            (
                "cenote_bus_unreachable_total",
                "Of these, what was lost with its connection, or asked without one.",
                peer.unreachable,
            ),
            ("cenote_bus_written_bytes_total", "Payload of writes to the other server.", peer.written_bytes),
            ("cenote_bus_read_bytes_total", "Payload of reads from the other server.", peer.read_bytes),
            ("cenote_bus_connections_total", "Sessions that were set up.", peer.connections),
            (
                "cenote_bus_channels_lost_total",
                "Connections that were lost while others of their session went on.",
                peer.channels_lost,
            ),
            (
                "cenote_bus_credit_stalls_total",
                "Times that a request waited for credits.",
                peer.credit_stalls,
            ),
            (
                "cenote_bus_late_reads_total",
                "Reads from the other server that took longer than nearly all do.",
                peer.late_reads,
            ),
            ("cenote_bus_hedged_reads_total", "Of these, asked of another copy as well.", peer.hedged_reads),
            ("cenote_bus_hedges_won_total", "Of these, answered first by the other copy.", peer.hedges_won),
        ] {
            families.counter(name, help, &labels, value);
        }
        peer.channels.iter().enumerate().for_each(|(at, channel)| bus_channel(&node, at, channel, families));
        peer.queues.iter().for_each(|queue| bus_queue(&node, queue, families));
    }
}

/// Adds the load of one connection to another server.
fn bus_channel(node: &str, at: usize, channel: &BusChannel, families: &mut Families) {
    let (at, address) = (at.to_string(), channel.address.to_string());
    let labels = [("node", node), ("channel", at.as_str()), ("address", address.as_str())];
    let (is_up, in_flight) = (u8::from(channel.is_up), channel.in_flight_bytes as f64);
    families.gauge("cenote_bus_channel_up", "1: the connection carries requests.", &labels, is_up.into());
    let help = "Bytes that requests on the connection which are not answered move, and 64 KiB for each.";
    families.gauge("cenote_bus_channel_in_flight_bytes", help, &labels, in_flight);
    let help = "Requests by the connection in the present session.";
    families.counter("cenote_bus_channel_requests_total", help, &labels, channel.requests);
    let help = "What these moved in either direction, and 64 KiB for each.";
    families.counter("cenote_bus_channel_bytes_total", help, &labels, channel.moved_bytes);
}

/// Adds requests that wait for another server, or are under way there.
fn bus_queue(node: &str, queue: &BusQueue, families: &mut Families) {
    let priority = match queue.priority {
        BusPriority::Client => "client",
        BusPriority::Resync => "resync",
        BusPriority::Rebuild => "rebuild",
        BusPriority::Rebalance => "rebalance",
    };
    let labels = [("node", node), ("priority", priority)];
    for (name, help, value) in [
        (
            "cenote_bus_queue_waiting",
            "Requests to the other server that wait for others before they leave.",
            queue.waiting as f64,
        ),
        (
            "cenote_bus_queue_in_flight_bytes",
            "Bytes that requests which are not answered move in either direction, and 64 KiB for each.",
            queue.in_flight_bytes as f64,
        ),
        (
            "cenote_bus_queue_longest_wait_seconds",
            "The longest wait of a request before it left.",
            Duration::from_micros(queue.longest_wait_us).as_secs_f64(),
        ),
    ] {
        families.gauge(name, help, &labels, value);
    }
    let (name, help) = ("cenote_bus_queue_requests_total", "Requests to the other server that have left.");
    families.counter(name, help, &labels, queue.requests);
}

/// Adds the server's requests to a disk, and the errors found on it.
fn disk_counters(disk: &Disk, labels: &[(&str, &str)], families: &mut Families) {
    let Some(counters) = &disk.counters else { return };
    for (name, help, value) in [
        ("cenote_disk_reads_total", "Read operations.", counters.reads),
        ("cenote_disk_read_bytes_total", "Bytes read.", counters.read_bytes),
        ("cenote_disk_writes_total", "Write operations.", counters.writes),
        ("cenote_disk_written_bytes_total", "Bytes written.", counters.write_bytes),
        ("cenote_disk_flushes_total", "Flush operations.", counters.flushes),
        ("cenote_disk_errors_total", "Operations that failed or were not answered in time.", counters.errors),
        (
            "cenote_disk_corrupt_blocks_total",
            "Blocks of 4 KiB whose checksum failed.",
            counters.corrupt_blocks,
        ),
        (
            "cenote_disk_repaired_blocks_total",
            "Blocks of 4 KiB written again from another copy.",
            counters.repaired_blocks,
        ),
        (
            "cenote_disk_medium_errors_total",
            "Blocks of 4 KiB that the disk could not read.",
            counters.medium_errors,
        ),
        ("cenote_disk_lost_writes_total", "Writes that the disk answered and lost.", counters.lost_writes),
    ] {
        families.counter(name, help, labels, value);
    }
}

/// Adds the device's own report.
fn device_figures(disk: &Disk, labels: &[(&str, &str)], families: &mut Families) {
    let device = disk.device_health.unwrap_or_default();
    for (name, help, percent) in [
        (
            "cenote_disk_device_used_ratio",
            "Of the writes that the device is made for, by its own account; may exceed 1.",
            device.used_percent,
        ),
        ("cenote_disk_device_spare_ratio", "Left of the device's spare blocks.", device.spare_percent),
    ] {
        if let Some(percent) = percent {
            families.gauge(name, help, labels, f64::from(percent) / 100.0);
        }
    }
    for (name, help, value) in [
        (
            "cenote_disk_device_written_bytes_total",
            "Written in the device's whole life.",
            device.written_bytes,
        ),
        (
            "cenote_disk_device_media_errors_total",
            "Blocks that the device could not give in its whole life.",
            device.media_errors,
        ),
    ] {
        if let Some(value) = value {
            families.counter(name, help, labels, value);
        }
    }
}

fn pools(pools: &[Pool], families: &mut Families) {
    for pool in pools {
        let labels = [("pool", pool.name.as_str())];
        families.gauge("cenote_pool_health", HEALTH, &labels, health(pool.health));
        families.gauge("cenote_pool_size_bytes", "Size of all disks.", &labels, pool.size_bytes as f64);
        if let Some(allocated) = pool.allocated_bytes {
            let help = "In slabs given to volumes.";
            families.gauge("cenote_pool_allocated_bytes", help, &labels, allocated as f64);
        }
        families.gauge(
            "cenote_pool_reserve_bytes",
            "Kept free for repair.",
            &labels,
            pool.reserve_bytes as f64,
        );
    }
}

/// Adds the volumes that this server serves; `with_unserved`: and those that no server serves.
fn volumes(snapshot: &Snapshot, with_unserved: bool, families: &mut Families) {
    let is_told = |volume: &&Volume| match volume.status {
        VolumeStatus::Detached => with_unserved,
        _ => volume.used_bytes.is_some(),
    };
    for volume in snapshot.volumes.iter().filter(is_told) {
        let labels = [("volume", volume.name.as_str())];
        families.gauge("cenote_volume_health", HEALTH, &labels, health(volume.health));
        for (name, help, value) in [
            ("cenote_volume_size_bytes", "Size as clients see it.", Some(volume.size_bytes)),
            ("cenote_volume_used_bytes", "In files and metadata.", volume.used_bytes),
            ("cenote_volume_available_bytes", "Left for clients.", volume.available_bytes),
            ("cenote_volume_footprint_bytes", "Taken from the pool, all copies.", volume.footprint_bytes),
            ("cenote_volume_stale_bytes", "Blocks that a copy has yet to receive.", volume.stale_bytes),
            ("cenote_volume_copies", "Copies it should have.", Some(u64::from(volume.copies))),
            (
                "cenote_volume_in_sync_copies",
                "Copies that hold every write.",
                volume.in_sync_copies.map(u64::from),
            ),
            ("cenote_volume_epoch", "Generation of the in-sync set.", Some(volume.epoch)),
        ] {
            if let Some(value) = value {
                families.gauge(name, help, &labels, value as f64);
            }
        }
        let pool = snapshot.pools.iter().find(|pool| volume.pool == pool.id);
        families.info(
            "cenote_volume_info",
            "What kind of volume it is.",
            &[
                ("volume", &volume.name),
                ("id", &volume.id.to_string()),
                ("pool", pool.map_or("", |pool| &pool.name)),
                ("resiliency", &word(volume.resiliency)),
                ("provisioning", &word(volume.provisioning)),
                ("status", &word(volume.status)),
            ],
        );
        for (name, help, value) in [
            (
                "cenote_cache_hit_bytes_total",
                "Reads of clients for which no disk was asked, since the volume was opened.",
                volume.cache_hit_bytes,
            ),
            (
                "cenote_cache_miss_bytes_total",
                "Reads of clients for which disks were asked, since the volume was opened.",
                volume.cache_miss_bytes,
            ),
        ] {
            if let Some(value) = value {
                families.counter(name, help, &labels, value);
            }
        }
    }
}

/// Adds counters of RDMA; the help has Windows' names.
fn rdma(snapshot: &Snapshot, families: &mut Families) {
    let state = &snapshot.rdma;
    let sets = [
        ("smb_direct_connection", "SMB Direct Connection", state.counters.named().collect::<Vec<_>>()),
        ("rdma_activity", "RDMA Activity", state.activity.named().collect()),
    ];
    for (prefix, set, counters) in sets {
        for (windows, name, kind, value) in counters {
            let help = format!("{set}: {windows}.");
            // The unit moves to the end.
            let name = match name.strip_prefix("bytes_") {
                Some(what) => format!("{what}_bytes"),
                None => name.to_owned(),
            };
            let (name, kind) = match kind {
                CounterKind::Level => (format!("cenote_{prefix}_{name}"), MetricKind::Gauge),
                CounterKind::Rate | CounterKind::Total => {
                    (format!("cenote_{prefix}_{name}_total"), MetricKind::Counter)
                }
            };
            families.add(&name, &help, kind, &[], value as f64);
        }
    }
}

fn server(snapshot: &Snapshot, families: &mut Families) {
    let performance = &snapshot.performance;
    let operations: [(&str, &OperationCounters); 3] =
        [("read", &performance.read), ("write", &performance.write), ("metadata", &performance.metadata)];
    for (kind, counters) in operations {
        let labels = [("operation", kind)];
        families.counter("cenote_smb_requests_total", "Requests of clients.", &labels, counters.operations);
        families.counter(
            "cenote_smb_errors_total",
            "Requests answered with an error; many are part of a client's work, such as a name that is not there.",
            &labels,
            counters.errors,
        );
    }
    for (kind, counters) in [("read", &performance.read), ("write", &performance.write)] {
        families.counter(
            "cenote_smb_bytes_total",
            "Payload of READ and WRITE.",
            &[("operation", kind)],
            counters.bytes,
        );
    }
    families.info(
        "cenote_build_info",
        "What runs.",
        &[("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)],
    );
    families.gauge("cenote_health", HEALTH, &[], health(snapshot.health.health));
    families.gauge(
        "cenote_health_issues",
        "Things that are wrong.",
        &[],
        snapshot.health.issues.len() as f64,
    );
    for state in
        [JobState::Running, JobState::Suspended, JobState::Completed, JobState::Failed, JobState::Cancelled]
    {
        let count = snapshot.jobs.iter().filter(|job| job.state == state).count();
        families.gauge(
            "cenote_jobs",
            "Storage jobs: those that run, and the last 100 that ended.",
            &[("state", &word(state))],
            count as f64,
        );
    }
}

const HEALTH: &str = "0 healthy, 1 warning, 2 unhealthy.";

fn health(health: Health) -> f64 {
    match health {
        Health::Healthy => 0.0,
        Health::Warning => 1.0,
        Health::Unhealthy => 2.0,
    }
}
