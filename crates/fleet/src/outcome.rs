//! Results of a run of the whole fleet: sums of rates, and latencies from summed histograms.
//!
//! Promises: no percentile is an average of percentiles; a mean is weighted by operations.

use diskspd::statistics::Histogram;

/// One direction of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Side {
    pub iops: f64,
    pub bytes_per_s: f64,
}

/// The nodes' own counters over the same time: VMFleet's CSV columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeFigures {
    pub read: Side,
    pub write: Side,
    /// From a request's arrival at the server to its answer.
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
    /// CPU use of the servers' processes, in percent of one machine's processors each, averaged over nodes.
    pub cpu_percent: Option<f64>,
}

/// One node's part in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeOutcome {
    pub node: String,
    pub workers: u64,
    pub read: Side,
    pub write: Side,
    pub read_histogram: Histogram,
    pub write_histogram: Histogram,
    pub volume: Option<VolumeFigures>,
}

/// A run of the whole fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub nodes: Vec<NodeOutcome>,
    pub read: Side,
    pub write: Side,
    pub read_histogram: Histogram,
    pub write_histogram: Histogram,
    /// CPU use of the workers' machines: of everything that ran there, servers included.
    pub cpu_percent: Option<f64>,
    pub volume: Option<VolumeFigures>,
    /// The workers' way to the nodes: `TCP`, `SMB Direct`, both, or empty for local files.
    pub transport: String,
    /// Facts that readers of the figures must know.
    pub notes: Vec<String>,
    /// Whether somebody ended the run early; the figures are those until then.
    pub is_interrupted: bool,
}

/// Milliseconds; `None` if nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latencies {
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl Latencies {
    pub fn of(histogram: &Histogram) -> Self {
        Self {
            mean_ms: histogram.mean_ms(),
            p50_ms: histogram.percentile_ms(0.50),
            p90_ms: histogram.percentile_ms(0.90),
            p99_ms: histogram.percentile_ms(0.99),
            p999_ms: histogram.percentile_ms(0.999),
            max_ms: histogram.max_ms(),
        }
    }
}

impl Outcome {
    /// Adds the nodes up.
    pub fn of_nodes(nodes: Vec<NodeOutcome>) -> Self {
        let mut outcome = Self::default();
        for node in &nodes {
            add(&mut outcome.read, node.read);
            add(&mut outcome.write, node.write);
            outcome.read_histogram.merge(&node.read_histogram);
            outcome.write_histogram.merge(&node.write_histogram);
        }
        let volumes: Vec<&VolumeFigures> = nodes.iter().filter_map(|node| node.volume.as_ref()).collect();
        // Counters of some nodes only would not be comparable with the workers' sums.
        if !volumes.is_empty() && volumes.len() == nodes.len() {
            outcome.volume = Some(sum_of(&volumes));
        }
        outcome.nodes = nodes;
        outcome
    }

    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.read.bytes_per_s + self.write.bytes_per_s
    }

    pub fn read_latency(&self) -> Latencies {
        Latencies::of(&self.read_histogram)
    }

    pub fn write_latency(&self) -> Latencies {
        Latencies::of(&self.write_histogram)
    }

    /// Histogram of reads and writes together.
    pub fn total_histogram(&self) -> Histogram {
        let mut total = self.read_histogram.clone();
        total.merge(&self.write_histogram);
        total
    }

    pub fn total_latency(&self) -> Latencies {
        Latencies::of(&self.total_histogram())
    }

    /// Waiting times of a worker beyond the server's own time, for reads and for writes: network and queues
    /// before the server.
    pub fn above_volume_ms(&self) -> (Option<f64>, Option<f64>) {
        let volume = self.volume.as_ref();
        let above = |mine: Option<f64>, theirs: Option<f64>| Some(mine? - theirs?);
        (
            above(self.read_latency().mean_ms, volume.and_then(|volume| volume.read_ms)),
            above(self.write_latency().mean_ms, volume.and_then(|volume| volume.write_ms)),
        )
    }
}

fn add(sum: &mut Side, part: Side) {
    sum.iops += part.iops;
    sum.bytes_per_s += part.bytes_per_s;
}

/// The servers' figures together.
pub fn sum_of(volumes: &[&VolumeFigures]) -> VolumeFigures {
    let mut sum = VolumeFigures::default();
    for volume in volumes {
        add(&mut sum.read, volume.read);
        add(&mut sum.write, volume.write);
    }
    sum.read_ms = weighted(volumes.iter().map(|one| (one.read.iops, one.read_ms)));
    sum.write_ms = weighted(volumes.iter().map(|one| (one.write.iops, one.write_ms)));
    let cpu: Option<Vec<f64>> = volumes.iter().map(|one| one.cpu_percent).collect();
    sum.cpu_percent = cpu.map(|all| all.iter().sum::<f64>() / all.len() as f64);
    sum
}

/// A mean weighted by operations; `None` if there were none.
pub fn weighted(parts: impl Iterator<Item = (f64, Option<f64>)>) -> Option<f64> {
    let (mut weights, mut sum) = (0.0, 0.0);
    for (weight, value) in parts {
        if let Some(value) = value {
            weights += weight;
            sum += weight * value;
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn node(name: &str, iops: f64, latencies_us: &[u64]) -> NodeOutcome {
        let mut read_histogram = Histogram::default();
        latencies_us.iter().for_each(|us| read_histogram.record(us * 1000));
        let read = Side { iops, bytes_per_s: iops * 4096.0 };
        let volume =
            VolumeFigures { read, read_ms: Some(0.1), cpu_percent: Some(30.0), ..VolumeFigures::default() };
        let volume = Some(volume);
        NodeOutcome { node: name.into(), workers: 22, read, read_histogram, volume, ..NodeOutcome::default() }
    }

    pub fn outcome() -> Outcome {
        let nodes = vec![node("one", 1000.0, &[100; 99]), node("two", 500.0, &[900])];
        Outcome { cpu_percent: Some(61.5), transport: "TCP".into(), ..Outcome::of_nodes(nodes) }
    }

    #[test]
    fn rates_are_summed_and_percentiles_come_from_merged_histograms() {
        let outcome = outcome();
        assert_eq!((outcome.iops(), outcome.bytes_per_s()), (1500.0, 1500.0 * 4096.0));
        let latency = outcome.read_latency();
        // Of 100 operations one took 900 us: an average of the nodes' percentiles would say 500 us.
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (Some(0.1), Some(0.1), Some(0.9)));
        assert!((latency.mean_ms.unwrap() - 0.108).abs() < 1e-9);
        assert_eq!(outcome.write_latency(), Latencies::default());
    }

    #[test]
    fn the_gap_above_the_volume_is_the_difference_of_means() {
        let (read, write) = outcome().above_volume_ms();
        assert!((read.unwrap() - 0.008).abs() < 1e-9);
        assert_eq!(write, None);
    }

    #[test]
    fn counters_of_some_nodes_only_are_not_shown_as_all() {
        let mut nodes = vec![node("one", 1.0, &[1]), node("two", 1.0, &[1])];
        nodes[1].volume = None;
        assert_eq!(Outcome::of_nodes(nodes).volume, None);
    }

    #[test]
    fn a_mean_is_weighted_by_operations() {
        let mean = weighted([(300.0, Some(1.0)), (100.0, Some(5.0)), (0.0, None)].into_iter());
        assert_eq!(mean, Some(2.0));
        assert_eq!(weighted(std::iter::empty()), None);
    }
}
