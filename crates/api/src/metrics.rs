//! A snapshot as Prometheus text (exposition format 0.0.4).
//!
//! Promises: names begin with `cenote_`, units stand in the name, counters end with `_total`. Never keeps state: every scrape is
//! made from one snapshot.

use crate::model::{CounterKind, Health, JobState, MetricKind, OperationCounters, Snapshot};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The body of `/metrics`.
pub fn text(snapshot: &Snapshot) -> String {
    let mut families = Families::default();
    disks(snapshot, &mut families);
    pools(snapshot, &mut families);
    volumes(snapshot, &mut families);
    server(snapshot, &mut families);
    rdma(snapshot, &mut families);
    for metric in &snapshot.metrics {
        let suffix = if metric.kind == MetricKind::Counter { "_total" } else { "" };
        let labels: Vec<_> =
            metric.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        families.add(
            &format!("cenote_{}{suffix}", metric.name),
            &metric.help,
            metric.kind,
            &labels,
            metric.value,
        );
    }
    families.render()
}

fn disks(snapshot: &Snapshot, families: &mut Families) {
    for disk in &snapshot.disks {
        let id = disk.id.to_string();
        let labels = [("disk", id.as_str()), ("path", disk.path.as_str())];
        families.gauge("cenote_disk_health", HEALTH, &labels, health(disk.health));
        families.gauge("cenote_disk_size_bytes", "Size of the disk.", &labels, disk.size_bytes as f64);
        families.gauge(
            "cenote_disk_allocated_bytes",
            "In slabs given to volumes.",
            &labels,
            disk.allocated_bytes as f64,
        );
        let counters = &disk.counters;
        for (name, help, value) in [
            ("cenote_disk_reads_total", "Read operations.", counters.reads),
            ("cenote_disk_read_bytes_total", "Bytes read.", counters.read_bytes),
            ("cenote_disk_writes_total", "Write operations.", counters.writes),
            ("cenote_disk_written_bytes_total", "Bytes written.", counters.write_bytes),
            ("cenote_disk_flushes_total", "Flush operations.", counters.flushes),
            (
                "cenote_disk_errors_total",
                "Operations that failed or were not answered in time.",
                counters.errors,
            ),
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
            (
                "cenote_disk_lost_writes_total",
                "Writes that the disk answered and lost.",
                counters.lost_writes,
            ),
        ] {
            families.counter(name, help, &labels, value);
        }
        let device = disk.device_health.unwrap_or_default();
        for (name, help, value) in [
            ("cenote_disk_device_used_percent", USED, device.used_percent.map(u64::from)),
            (
                "cenote_disk_device_spare_percent",
                "Left of the device's spare blocks.",
                device.spare_percent.map(u64::from),
            ),
            ("cenote_disk_device_written_bytes", "Written in the device's whole life.", device.written_bytes),
            (
                "cenote_disk_device_media_errors",
                "Blocks that the device could not give in its whole life.",
                device.media_errors,
            ),
        ] {
            if let Some(value) = value {
                families.gauge(name, help, &labels, value as f64);
            }
        }
    }
}

const USED: &str = "Of the writes that the device is made for, by its own account.";

fn pools(snapshot: &Snapshot, families: &mut Families) {
    for pool in &snapshot.pools {
        let labels = [("pool", pool.name.as_str())];
        families.gauge("cenote_pool_health", HEALTH, &labels, health(pool.health));
        families.gauge("cenote_pool_size_bytes", "Size of all disks.", &labels, pool.size_bytes as f64);
        families.gauge(
            "cenote_pool_allocated_bytes",
            "In slabs given to volumes.",
            &labels,
            pool.allocated_bytes as f64,
        );
        families.gauge(
            "cenote_pool_reserve_bytes",
            "Kept free for repair.",
            &labels,
            pool.reserve_bytes as f64,
        );
    }
}

fn volumes(snapshot: &Snapshot, families: &mut Families) {
    for volume in &snapshot.volumes {
        let labels = [("volume", volume.name.as_str())];
        families.gauge("cenote_volume_health", HEALTH, &labels, health(volume.health));
        for (name, help, value) in [
            ("cenote_volume_size_bytes", "Size as clients see it.", volume.size_bytes),
            ("cenote_volume_used_bytes", "In files and metadata.", volume.used_bytes),
            ("cenote_volume_available_bytes", "Left for clients.", volume.available_bytes),
            ("cenote_volume_footprint_bytes", "Taken from the pool, all copies.", volume.footprint_bytes),
            ("cenote_volume_stale_bytes", "Blocks that a copy has yet to receive.", volume.stale_bytes),
            ("cenote_volume_copies", "Copies it should have.", u64::from(volume.copies)),
            (
                "cenote_volume_in_sync_copies",
                "Copies that hold every write.",
                u64::from(volume.in_sync_copies),
            ),
            ("cenote_volume_epoch", "Generation of the in-sync set.", volume.epoch),
        ] {
            families.gauge(name, help, &labels, value as f64);
        }
    }
}

/// Named as the counters of Windows, whose names stand in the help.
fn rdma(snapshot: &Snapshot, families: &mut Families) {
    let state = &snapshot.rdma;
    let sets = [
        ("smb_direct_connection", "SMB Direct Connection", state.counters.named().collect::<Vec<_>>()),
        ("rdma_activity", "RDMA Activity", state.activity.named().collect()),
    ];
    for (prefix, set, counters) in sets {
        for (windows, name, kind, value) in counters {
            let help = format!("{set}: {windows}.");
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
        let labels = [("kind", kind)];
        families.counter(
            "cenote_smb_operations_total",
            "Requests of clients answered.",
            &labels,
            counters.operations,
        );
        families.counter("cenote_smb_bytes_total", "Payload of clients' requests.", &labels, counters.bytes);
        families.counter(
            "cenote_smb_errors_total",
            "Requests answered with an error.",
            &labels,
            counters.errors,
        );
        families.add(
            "cenote_smb_latency_seconds_total",
            "Time from request to answer, summed.",
            MetricKind::Counter,
            &labels,
            counters.latency_us as f64 / 1e6,
        );
    }
    families.counter(
        "cenote_cache_hit_bytes_total",
        "Read from the RAM cache.",
        &[],
        performance.cache_hit_bytes,
    );
    families.counter(
        "cenote_cache_miss_bytes_total",
        "Read from disks, since the RAM cache had it not.",
        &[],
        performance.cache_miss_bytes,
    );
    families.gauge("cenote_uptime_seconds", "Since the start.", &[], performance.uptime_us as f64 / 1e6);
    families.gauge("cenote_sessions", "Sessions of clients.", &[], snapshot.sessions.len() as f64);
    families.gauge("cenote_open_files", "Opens of clients.", &[], snapshot.opens.len() as f64);
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
        let label = serde_json::to_value(state).unwrap_or_default();
        let count = snapshot.jobs.iter().filter(|job| job.state == state).count();
        families.gauge(
            "cenote_jobs",
            "Storage jobs: those that run, and the last 100 that ended.",
            &[("state", label.as_str().unwrap_or_default())],
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

struct Family {
    help: String,
    kind: MetricKind,
    samples: String,
}

/// Samples by family, since all of a family stand together in the text.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn add(&mut self, name: &str, help: &str, kind: MetricKind, labels: &[(&str, &str)], value: f64) {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            help: help.to_owned(),
            kind,
            samples: String::new(),
        });
        family.samples.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(family.samples, "{open}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            family.samples.push('}');
        }
        let _ = writeln!(family.samples, " {value}");
    }

    fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        self.add(name, help, MetricKind::Counter, labels, value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, help, MetricKind::Gauge, labels, value);
    }

    fn render(self) -> String {
        let mut text = String::new();
        for (name, family) in self.0 {
            let kind = match family.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help.replace('\n', " "));
            text.push_str(&family.samples);
        }
        text
    }
}
