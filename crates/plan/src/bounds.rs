//! The most to expect of planned nodes: processors, drives and network.

use crate::{DriveType, Node, Protection, Request};
use api::planned::PlanBounds;

/// Processor time of a cached 4 KiB read over TCP, plain, on an otherwise idle machine
/// (docs/PERFORMANCE.md, "Limits").
const READ_4K_US: f64 = 2.6;
/// Instructions of a signed read, and of a write, by those of a plain read (docs/PERFORMANCE.md, "Instructions").
const SIGNED_FACTOR: f64 = 2.2;
const WRITE_FACTOR: f64 = 2.0;
/// An encrypted 4 KiB read by a signed one (docs/lab/2026-11-21-loader.md).
const ENCRYPTED_FACTOR: f64 = SIGNED_FACTOR * 1.14;
/// Bytes a second that one core serves in 64 KiB reads: plain, signed, encrypted, by the same measurements.
const CORE_BYTES_PER_S: [f64; 3] = [4.9e9, 3.0e9, 2.6e9];
/// The data plane is one thread (D17 is not built yet).
const CORES: f64 = 1.0;
/// Bytes written to a drive for each byte of a small overwrite, of one copy; and of large ones (docs/PERFORMANCE.md).
const SMALL_AMPLIFICATION: f64 = 2.2;
const LARGE_AMPLIFICATION: f64 = 1.0;
/// Typical rates of a drive type: random reads and writes of 4 KiB a second, bytes read and written a
/// second. Round figures of data sheets.
const fn figures(drive: DriveType) -> [f64; 4] {
    match drive {
        DriveType::Hdd => [150.0, 150.0, 200e6, 200e6],
        DriveType::Ssd => [90_000.0, 60_000.0, 500e6, 450e6],
        DriveType::Nvme => [600_000.0, 150_000.0, 3e9, 2e9],
    }
}

/// Returns the least limit of processors, drives and network, and its name.
fn least(limits: [(f64, &str); 3]) -> (f64, String) {
    let (value, name) = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, ""));
    (value, name.to_owned())
}

pub fn bounds(nodes: &[Node], copies: u8, request: &Request) -> PlanBounds {
    let count = nodes.len() as f64;
    let copies = f64::from(copies);
    let (factor, at) = match request.protection {
        Protection::Plain => (1.0, 0),
        Protection::Signed => (SIGNED_FACTOR, 1),
        Protection::Encrypted => (ENCRYPTED_FACTOR, 2),
    };
    let core_bytes = CORE_BYTES_PER_S.get(at).copied().unwrap_or_default();
    let mut drives = [0.0; 4];
    for one in nodes.iter().flat_map(|node| &node.drives) {
        for (sum, figure) in drives.iter_mut().zip(figures(one.drive)) {
            *sum += figure * f64::from(one.count);
        }
    }
    let network = count * f64::from(request.network_gbps) * 1e9 / 8.0;
    let read_cpu = count * CORES * 1e6 / (READ_4K_US * factor);
    // Each copy on another node is one more write for that node.
    let remote = if nodes.len() > 1 { copies - 1.0 } else { 0.0 };
    let write_cpu = count * CORES * 1e6 / (READ_4K_US * WRITE_FACTOR * (factor + remote));
    let (read_iops, read_iops_by) =
        least([(read_cpu, "processor"), (drives[0], "drives"), (network / 4096.0, "network")]);
    let (write_iops, write_iops_by) = least([
        (write_cpu, "processor"),
        (drives[1] / copies / SMALL_AMPLIFICATION, "drives"),
        (network / 4096.0 / (1.0 + remote), "network"),
    ]);
    let read_limits = [(count * CORES * core_bytes, "processor"), (drives[2], "drives")];
    let write_limits = [
        (count * CORES * core_bytes / WRITE_FACTOR / copies, "processor"),
        (drives[3] / copies / LARGE_AMPLIFICATION, "drives"),
    ];
    let [read_alone, write_alone] = [read_limits, write_limits].map(|[a, b]| a.0.min(b.0));
    let (read_bytes_per_s, read_bytes_by) = least([read_limits[0], read_limits[1], (network, "network")]);
    let (write_bytes_per_s, write_bytes_by) =
        least([write_limits[0], write_limits[1], (network / (1.0 + remote), "network")]);
    PlanBounds {
        read_iops: read_iops.round(),
        read_iops_by,
        write_iops: write_iops.round(),
        write_iops_by,
        read_bytes_per_s: read_bytes_per_s.round(),
        read_bytes_by,
        write_bytes_per_s: write_bytes_per_s.round(),
        write_bytes_by,
        network_bits_per_s: (read_alone.max(write_alone * (1.0 + remote)) / count * 8.0).round(),
    }
}
