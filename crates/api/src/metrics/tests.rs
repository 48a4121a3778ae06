//! The text is read back as Prometheus reads it, and held against its conventions.

use super::{OfCluster, text};
use crate::cluster::{ClusterFigures, EtcdFigures, SharedFigures};
use crate::lists::Whole;
use crate::model::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{DiskId, LatencyHistogram, PoolId, VolumeId};

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Values by the sample's name and labels.
    samples: BTreeMap<(String, Labels), f64>,
}

/// Reads an exposition as strictly as its format (0.0.4) demands.
fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or(format!("{line}: no help"))?;
            current = name.to_owned();
            let family = Family { help: help.to_owned(), ..Family::default() };
            if families.insert(current.clone(), family).is_some() {
                return Err(format!("{name}: its family is interrupted"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(format!("{line}: no type"))?;
            let family = families
                .get_mut(name)
                .filter(|_| name == current)
                .ok_or(format!("{line}: no HELP before"))?;
            family.kind = kind.to_owned();
        } else {
            let (name, labels, value) = sample(line)?;
            let family = families.get_mut(&current).ok_or(format!("{line}: before any family"))?;
            let of_family = match family.kind.as_str() {
                "histogram" => {
                    ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{current}{end}"))
                }
                _ => name == current,
            };
            if !of_family {
                return Err(format!("{line}: is not of family {current}"));
            }
            if family.samples.insert((name, labels), value).is_some() {
                return Err(format!("{line}: is there twice"));
            }
        }
    }
    Ok(families)
}

fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let end = line.find(['{', ' ']).ok_or(format!("{line}: no value"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").ok_or(format!("{line}: a label without a value"))?;
            let mut value = String::new();
            let mut letters = behind.char_indices();
            let after = loop {
                match letters.next() {
                    Some((_, '\\')) => match letters.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, letter @ ('\\' | '"'))) => value.push(letter),
                        _ => return Err(format!("{line}: a wrong escape")),
                    },
                    Some((at, '"')) => break &behind[at + 1..],
                    Some((_, letter)) => value.push(letter),
                    None => return Err(format!("{line}: a label without an end")),
                }
            };
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("{line}: label {label} is there twice"));
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').ok_or(format!("{line}: labels without an end"))?;
                    break;
                }
            }
        }
    }
    let value = rest.trim_start().parse().map_err(|error| format!("{line}: {error}"))?;
    Ok((name.to_owned(), labels, value))
}

fn disk(number: u8) -> Disk {
    Disk {
        id: DiskId::from_bytes([number; 16]),
        pool: Some(PoolId::from_bytes([1; 16])),
        path: format!("/dev/a \"{number}\"\\\n"),
        fault_domain: "rack/node".into(),
        health: Health::Warning,
        status: DiskStatus::LostCommunication,
        usage: DiskUsage::AutoSelect,
        size_bytes: 1 << 33,
        allocated_bytes: Some(1 << 20),
        block_bytes: Some(512),
        rotational: Some(false),
        server: None,
        counters: Some(DiskCounters { reads: 3, errors: 1, ..DiskCounters::default() }),
        device_health: Some(DeviceHealth {
            used_percent: Some(5),
            spare_percent: Some(100),
            written_bytes: Some(9),
            media_errors: Some(0),
            ..DeviceHealth::default()
        }),
    }
}

fn volume(name: &str) -> Volume {
    Volume {
        id: VolumeId::from_bytes([3; 16]),
        name: name.into(),
        pool: PoolId::from_bytes([1; 16]),
        health: Health::Healthy,
        status: VolumeStatus::Ok,
        resiliency: Resiliency::TwoWayMirror,
        provisioning: Provisioning::Thin,
        size_bytes: 1,
        used_bytes: Some(2),
        available_bytes: Some(3),
        footprint_bytes: Some(4),
        owner: None,
        warn_at_percent: 90,
        copies: 2,
        in_sync_copies: Some(2),
        min_copies: 1,
        epoch: 7,
        stale_bytes: Some(0),
        cache_hit_bytes: Some(8192),
        cache_miss_bytes: Some(4096),
        least_copies: 2,
        least_servers: None,
        holders: Vec::new(),
        held_bytes: None,
    }
}

fn latency(name: &str, operation: &str, taken_us: &[u64]) -> Latency {
    let mut histogram = LatencyHistogram::default();
    taken_us.iter().for_each(|taken| histogram.record(Duration::from_micros(*taken)));
    let labels = vec![("operation".to_owned(), operation.to_owned())];
    Latency { name: name.into(), help: "How long.".into(), labels, histogram }
}

/// One of each object, two of those with labels.
fn snapshot() -> Snapshot {
    let pool = Pool {
        id: PoolId::from_bytes([1; 16]),
        name: "first".into(),
        health: Health::Healthy,
        disks: 2,
        slab_bytes: 1,
        size_bytes: 1,
        allocated_bytes: Some(1),
        reserve_bytes: 1,
        reserve_disks: 1,
        reserve_is_set: false,
    };
    let of = |errors| OperationCounters { operations: 10, bytes: 5, errors, ..OperationCounters::default() };
    let metric = |name: &str, kind| Metric {
        name: name.into(),
        help: "Of the\nserver \\ here.".into(),
        kind,
        labels: Vec::new(),
        value: 2.0,
    };
    Snapshot {
        disks: vec![disk(7), disk(8)],
        pools: vec![pool],
        volumes: vec![volume("one"), volume("two")],
        performance: Performance { read: of(1), write: of(2), metadata: of(4), ..Performance::default() },
        metrics: vec![metric("smb_sessions", MetricKind::Gauge), metric("smb_logons", MetricKind::Counter)],
        clients: [Some("10.0.0.9".to_owned()), None]
            .map(|client| ClientFigures {
                client,
                sessions: 1,
                latency: latency("", "", &[80, 80]).histogram,
            })
            .into(),
        latencies: vec![
            latency("smb_request", "read", &[5, 80, 80, 20_000_000]),
            latency("smb_request", "write", &[]),
        ],
        ..Snapshot::default()
    }
}

fn families() -> BTreeMap<String, Family> {
    parse(&text(&snapshot(), None)).expect("Prometheus can read it")
}

#[test]
fn every_family_has_help_a_type_and_samples_and_no_sample_is_there_twice() {
    for (name, family) in families() {
        assert!(!family.help.is_empty(), "{name} has no help");
        assert!(["counter", "gauge", "histogram"].contains(&family.kind.as_str()), "{name}: {}", family.kind);
        assert!(!family.samples.is_empty(), "{name} has no samples");
        assert!(name.starts_with("cenote_") || name.starts_with("process_"), "{name}");
        let legal = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        assert!(name.chars().all(legal), "{name}");
    }
}

#[test]
fn counters_end_in_total_and_nothing_else_does() {
    for (name, family) in families() {
        assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name} is a {}", family.kind);
        assert!(family.kind != "counter" || family.samples.values().all(|value| *value >= 0.0), "{name}");
    }
}

#[test]
fn names_end_in_their_base_units_of_which_they_have_one() {
    for name in families().into_keys() {
        let words: Vec<&str> = name.trim_end_matches("_total").split('_').collect();
        for (at, word) in words.iter().enumerate() {
            let is_unit = ["bytes", "seconds", "ratio"].contains(word);
            assert!(!is_unit || at + 1 == words.len(), "{name}: {word} does not stand at the end");
            let is_other =
                ["ms", "us", "milliseconds", "microseconds", "percent", "kib", "mib", "kilobytes", "minutes"];
            assert!(!is_other.contains(word), "{name}: {word} is no base unit");
        }
    }
    let families = families();
    assert!(families.values().filter(|family| family.kind == "histogram").count() >= 1);
    assert!(families.iter().all(|(name, family)| family.kind != "histogram" || name.ends_with("_seconds")));
}

#[test]
fn all_samples_of_a_family_have_the_same_labels_so_that_their_sum_counts_each_thing_once() {
    for (name, family) in families() {
        let sets: BTreeSet<(&str, Vec<&str>)> = family
            .samples
            .keys()
            .map(|(sample, labels)| (sample.as_str(), labels.keys().map(String::as_str).collect()))
            .collect();
        let names: BTreeSet<&str> = sets.iter().map(|(sample, _)| *sample).collect();
        assert_eq!(sets.len(), names.len(), "{name}: {sets:?}");
    }
    let errors = &families()["cenote_smb_errors_total"];
    assert_eq!(errors.samples.values().sum::<f64>(), 7.0, "the sum is that of reads, writes and the rest");
}

#[test]
fn histograms_count_up_to_their_last_bucket_which_has_all() {
    for (name, family) in families().into_iter().filter(|(_, family)| family.kind == "histogram") {
        let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((_, labels), value) in
            family.samples.iter().filter(|((sample, _), _)| sample.ends_with("_bucket"))
        {
            let mut rest = labels.clone();
            let bound = rest.remove("le").expect("a bucket has a bound").parse().unwrap();
            buckets.entry(rest).or_default().push((bound, *value));
        }
        for (labels, mut buckets) in buckets {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(
                buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
                "{buckets:?}"
            );
            let count = family.samples[&(format!("{name}_count"), labels.clone())];
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name} {labels:?}");
            assert_eq!((buckets[0].0, buckets[buckets.len() - 2].0), (1e-5, 10.0));
            let sum = family.samples[&(format!("{name}_sum"), labels)];
            assert_eq!(count == 0.0, sum == 0.0);
        }
    }
    let family = &families()["cenote_smb_request_seconds"];
    let at = |sample: &str, le: Option<&str>| {
        let mut labels = Labels::from([("operation".to_owned(), "read".to_owned())]);
        labels.extend(le.map(|le| ("le".to_owned(), le.to_owned())));
        family.samples[&(format!("cenote_smb_request_seconds_{sample}"), labels)]
    };
    assert_eq!(
        (at("bucket", Some("0.00001")), at("bucket", Some("0.0001")), at("bucket", Some("10"))),
        (1.0, 3.0, 3.0)
    );
    assert_eq!((at("bucket", Some("+Inf")), at("count", None)), (4.0, 4.0));
    assert!((at("sum", None) - 20.000_165).abs() < 1e-9);
    for client in ["10.0.0.9", "others"] {
        let labels = Labels::from([("client".to_owned(), client.to_owned())]);
        let name = "cenote_smb_client_request_seconds";
        assert_eq!(families()[name].samples[&(format!("{name}_count"), labels)], 2.0);
    }
}

#[test]
fn what_describes_a_disk_is_a_label_of_its_info_alone() {
    let families = families();
    for (name, family) in &families {
        let has_path = family.samples.keys().any(|(_, labels)| labels.contains_key("path"));
        assert_eq!(has_path, name == "cenote_disk_info", "{name}");
    }
    let info = &families["cenote_disk_info"];
    let paths: Vec<&str> = info.samples.keys().map(|(_, labels)| labels["path"].as_str()).collect();
    assert_eq!(paths, ["/dev/a \"7\"\\\n", "/dev/a \"8\"\\\n"], "read back as they were");
    assert!(info.samples.keys().all(|(_, labels)| labels["pool"] == "first"));
    assert!(info.samples.values().all(|value| *value == 1.0));
    assert!(families["cenote_build_info"].samples.keys().all(|(_, labels)| labels.contains_key("version")));
}

#[test]
fn what_only_another_server_knows_is_exported_there_and_not_as_0_here() {
    let mut snapshot = snapshot();
    let there = &mut snapshot.volumes[1];
    (there.used_bytes, there.available_bytes, there.footprint_bytes) = (None, None, None);
    (snapshot.disks[1].counters, snapshot.disks[1].allocated_bytes) = (None, None);
    let disk = snapshot.disks[1].id.to_string();
    for (name, family) in parse(&text(&snapshot, None)).expect("Prometheus can read it") {
        for (_, labels) in family.samples.keys() {
            assert_ne!(labels.get("volume").map(String::as_str), Some("two"), "{name}");
            assert_ne!(labels.get("disk"), Some(&disk), "{name}");
        }
    }
}

#[test]
fn nothing_is_there_under_two_names() {
    let families = families();
    for name in families.keys() {
        for (_, twin) in families.keys().filter_map(|other| Some((other, other.strip_prefix("cenote_smb_")?)))
        {
            assert_ne!(*name, format!("cenote_{twin}"), "{name} has a twin");
        }
    }
}

#[test]
fn the_process_tells_of_itself_what_all_processes_do() {
    let families = families();
    let value = |name: &str| *families[name].samples.values().next().unwrap();
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds"));
    assert!(value("process_cpu_seconds_total") >= 0.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - value("process_start_time_seconds");
    assert!((-2.0..7200.0).contains(&age), "{age} s old");
}

#[test]
fn what_is_no_exposition_is_refused_by_the_parser_above() {
    for wrong in [
        "a 1\n",
        "# HELP a b\na 1\n# HELP a b\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a gauge\nb 1\n",
        "# HELP a b\n# TYPE a gauge\na{x=\"1} 1\n",
        "# HELP a b\n# TYPE a gauge\na{x=\"1\",x=\"1\"} 1\n",
        "# HELP a b\n# TYPE a gauge\na one\n",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

fn of_cluster(node: &str, speaks: bool) -> OfCluster {
    let nodes = vec![("node-1".to_owned(), true), ("node-2".to_owned(), true), ("node-3".to_owned(), false)];
    let etcd = Some(EtcdFigures { members: 3, working: 2, needed: 2 });
    let shared = SharedFigures { nodes, etcd, authority_ends_unix_s: Some(9000) };
    let figures = ClusterFigures {
        cluster: "C".into(),
        node: node.into(),
        has_majority: Some(true),
        certificate_ends_unix_s: Some(7000),
        etcd_member_votes: Some(true),
        shared: speaks.then_some(shared),
    };
    let mut pools = snapshot().pools;
    pools.iter_mut().for_each(|pool| pool.allocated_bytes = Some(77));
    let health = HealthReport { unanswered: vec!["node-3".into()], ..HealthReport::default() };
    let whole = Whole {
        health,
        disks: Vec::new(),
        pools,
        volumes: Vec::new(),
        jobs: Vec::new(),
        sessions: Vec::new(),
        rdma: Rdma::default(),
        unanswered: vec!["node-3".into()],
    };
    OfCluster { figures, whole: speaks.then_some(whole) }
}

/// Samples of the families that are of no single server, by the servers that export them.
#[test]
fn each_figure_of_a_cluster_is_exported_by_one_server() {
    let mut snapshot = snapshot();
    // A server without knowledge of others' volumes and disks.
    for disk in &mut snapshot.disks {
        disk.counters = None;
    }
    for (at, volume) in snapshot.volumes.iter_mut().enumerate() {
        volume.used_bytes = None;
        volume.status = if at == 0 { VolumeStatus::Detached } else { VolumeStatus::Ok };
    }
    let mut exported: BTreeMap<(String, Labels), usize> = BTreeMap::new();
    for (node, speaks) in [("node-1", true), ("node-2", false)] {
        let families =
            parse(&text(&snapshot, Some(&of_cluster(node, speaks)))).expect("Prometheus can read it");
        let told = [
            "cenote_node",
            "cenote_etcd",
            "cenote_cluster",
            "cenote_cert",
            "cenote_auth",
            "cenote_pool",
            "cenote_volume",
        ];
        for (name, family) in families {
            assert!(!family.help.is_empty(), "{name}");
            if told.iter().any(|prefix| name.starts_with(prefix)) {
                for sample in family.samples.into_keys() {
                    *exported.entry(sample).or_default() += 1;
                }
            }
        }
    }
    assert!(exported.values().all(|times| *times == 1), "{exported:?}");
    let has = |name: &str| exported.keys().filter(|(known, _)| known == name).count();
    assert_eq!(
        (has("cenote_node_up"), has("cenote_node_has_majority"), has("cenote_etcd_members")),
        (3, 2, 1)
    );
    assert_eq!((has("cenote_volume_health"), has("cenote_cluster_unanswered")), (1, 1));
    assert!(has("cenote_pool_allocated_bytes") > 0, "one server knows it of all disks");
}
