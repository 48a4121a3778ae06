//! The published experiments as lists of cells: the papers' runs, their results, and effects that a
//! small machine cannot show.

use crate::state::Transport;
use crate::workload::{Changes, Pattern, Times, named};
use diskspd::profile::{Profile, Throughput};

/// One measurement of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Unique in the experiment; files are named by it.
    pub label: String,
    /// Which line or bar of a figure it belongs to.
    pub series: String,
    /// Number of nodes that take part; 0: all.
    pub nodes: u32,
    pub workers_per_node: u32,
    pub transport: Transport,
    pub profile: Profile,
    /// The paper has no such cell.
    pub is_extra: bool,
}

/// A published experiment.
pub struct Experiment {
    pub name: &'static str,
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The paper's hardware, and its results.
    pub paper: &'static [&'static str],
    /// Effects that a small machine cannot show.
    pub beyond: &'static [&'static str],
    /// Times of the paper, as far as it reports them.
    pub times: Times,
    /// Bytes of a worker's file.
    pub data_bytes: u64,
    cells: fn(&Choice) -> Vec<Cell>,
}

/// Choices of the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice {
    /// Number of nodes.
    pub nodes: u32,
    pub block_bytes: Option<u32>,
    /// Some node has SMB Direct.
    pub has_rdma: bool,
    /// Operations a second of each worker.
    pub iops: Option<u32>,
}

pub const EXPERIMENTS: [Experiment; 4] = [
    Experiment {
        name: "seed-001",
        title: "Storage IOPS of many small machines",
        source: "High Performance S2D with Chelsio 40GbE",
        paper: &[
            "16 nodes (2 Xeon E5-2699v4, 4 NVMe and 20 SATA SSDs, 2 x 40 Gb/s iWARP), 44 virtual machines each: 704, with DiskSpd of one thread, 4 KiB random reads, 32 outstanding.",
            "4,959,166 IOPS in all, 285,222 to 325,984 a node, about 7,000 a machine; 20,244 MB/s; reads 2.253 to 3.444 ms at the volume.",
            "By Little's law 704 x 32 outstanding at that rate are 4.54 ms in the guest, while the volume shows 2.89 ms: 1.65 ms lie above it. The column Above is that gap, measured.",
        ],
        beyond: &[
            "Workers, servers and disks share the processors of one machine: rates do not grow with nodes that are processes of it.",
            "Disks are files of one disk; reads of small files come from the servers' caches.",
        ],
        times: Times { warm_up_s: 10, duration_s: 60, cool_down_s: 0 },
        data_bytes: 4 << 20,
        cells: seed_001,
    },
    Experiment {
        name: "seed-002",
        title: "Throughput and IOPS by I/O size",
        source: "Windows Guest RDMA at 100Gbps",
        paper: &[
            "One server and one virtual machine with RDMA of its own, one 100 Gb/s port each, MTU 9000, storage that answers from memory: -b$1 -w100 -r -o64 -W5 -C5 -d30 -t32 -Sh, and -w0.",
            "Writes of 90 Gb/s and more from 32 KiB on, about 450,000 IOPS up to 16 KiB; 1 to 16 connections made no large difference. CPU at 512 KiB: about 1 % of the server, 5 % of the guest.",
        ],
        beyond: &[
            "Connections are threads here, each with a session of its own and 64 outstanding: the paper's are those that multichannel opens for 32 threads.",
            "SMB Direct in software uses the processors that RDMA hardware leaves alone: its CPU cannot be the paper's.",
        ],
        times: Times { warm_up_s: 5, duration_s: 30, cool_down_s: 5 },
        data_bytes: 64 << 20,
        cells: seed_002,
    },
    Experiment {
        name: "seed-003",
        title: "Latency of writes to a remote file",
        source: "Low Latency Remote Storage (Talpey, SDC 2016)",
        paper: &[
            "diskspd -b64K -c20M -d30 -L -o1 -si4k -t8 -w100 -h -fr on a file in storage-class memory behind one 40 Gb/s link.",
            "RDMA to bounce pages: 66,918.86 IOPS, 4182.43 MiB/s, mean 0.119 ms, 99 % 0.165 ms, 99.9 % 0.306 ms, 99.99 % 0.548 ms, most 4.962 ms.",
            "RDMA to mapped pages of the file: 67,404.19 IOPS, 4212.76 MiB/s, mean 0.118 ms, 99 % 0.163 ms, 99.99 % 0.676 ms, most 6.868 ms.",
            "Both fill 35 of the link's 40 Gb/s, so their being within 1 % says nothing about latency at low load.",
        ],
        beyond: &[
            "There is no storage-class memory here: with -Sh a write waits for two disks, cached it waits for the server's memory.",
            "Mapped pages are not built (D11); the cached run stands in their place.",
        ],
        times: Times { warm_up_s: 5, duration_s: 30, cool_down_s: 0 },
        data_bytes: 20 << 20,
        cells: seed_003,
    },
    Experiment {
        name: "seed-004",
        title: "Web, file and mail servers, with RDMA and without, on two to four nodes",
        source: "Performance Evaluation of a Hyper Converged Architecture Based on Microsoft Storage Spaces (Soochow University)",
        paper: &[
            "4 nodes (2 Xeon E5-2698v4, 2 NVMe for cache, 8 SATA SSDs, 40 Gb/s RoCE), 20 virtual machines each, VMFleet: random, 100/0, 90/10 and 67/33 reads to writes. The block size is not said.",
            "RDMA: about a third less CPU, up to twice the IOPS, lower latency. 4 nodes give more IOPS than 3, and 3 more than 2.",
        ],
        beyond: &[
            "\"A third less CPU\" is what RDMA hardware saves. SMB Direct in software runs on the same processors as TCP.",
            "More nodes as processes of one machine share its processors: they show that the work divides, not that it grows.",
        ],
        times: Times { warm_up_s: 10, duration_s: 60, cool_down_s: 5 },
        data_bytes: 8 << 20,
        cells: seed_004,
    },
];

pub fn experiment(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|one| one.name == name)
}

impl Experiment {
    pub fn cells(&self, choice: &Choice) -> Vec<Cell> {
        let mut cells = (self.cells)(choice);
        for target in
            cells.iter_mut().flat_map(|cell| &mut cell.profile.time_spans).flat_map(|span| &mut span.targets)
        {
            if let Some(iops) = choice.iops {
                target.throughput = Some(Throughput::Iops(iops));
            }
        }
        cells
    }
}

fn profile(name: &str, changes: &Changes) -> Profile {
    // The names are this program's own.
    let mut profile = named(name).map(|named| named.profile()).unwrap_or_default();
    changes.apply(&mut profile);
    profile
}

fn best(choice: &Choice) -> Transport {
    if choice.has_rdma { Transport::Rdma } else { Transport::Tcp }
}

fn seed_001(choice: &Choice) -> Vec<Cell> {
    let changes = Changes { block_bytes: choice.block_bytes, ..Changes::default() };
    let cell = |label: &str, transport, is_extra| Cell {
        label: label.into(),
        series: "reads".into(),
        nodes: 0,
        workers_per_node: 44,
        transport,
        profile: profile("read-4k", &changes),
        is_extra,
    };
    vec![cell("44-a-node", best(choice), false)]
}

fn seed_002(choice: &Choice) -> Vec<Cell> {
    let sizes: Vec<u32> = match choice.block_bytes {
        Some(bytes) => vec![bytes],
        None => (2..10).map(|power| 1024 << power).collect(),
    };
    let mut cells = Vec::new();
    for (name, word, connections) in
        [("guest-write", "write", &[1, 2, 4, 8, 16][..]), ("guest-read", "read", &[1, 16][..])]
    {
        for connections in connections {
            for bytes in &sizes {
                let changes =
                    Changes { block_bytes: Some(*bytes), threads: Some(*connections), ..Changes::default() };
                cells.push(Cell {
                    label: format!("{word}-{connections}-{}K", bytes / 1024),
                    series: format!("{word}, {connections} connections"),
                    nodes: 1,
                    workers_per_node: 1,
                    transport: best(choice),
                    profile: profile(name, &changes),
                    is_extra: false,
                });
            }
        }
    }
    cells
}

fn seed_003(choice: &Choice) -> Vec<Cell> {
    let changes = Changes {
        block_bytes: Some(choice.block_bytes.unwrap_or(64 << 10)),
        threads: Some(8),
        requests: Some(1),
        write_percent: Some(100),
        pattern: Some(Pattern::Interlocked),
        ..Changes::default()
    };
    let cell = |label: &str, name: &str, transport, is_extra| {
        let mut profile = profile(name, &changes);
        for target in profile.time_spans.iter_mut().flat_map(|span| &mut span.targets) {
            target.stride_bytes = Some(4 << 10);
            target.hint_random = true;
        }
        let label: String = label.into();
        Cell { series: label.clone(), label, nodes: 1, workers_per_node: 1, transport, profile, is_extra }
    };
    let mut cells = Vec::new();
    if choice.has_rdma {
        cells.push(cell("rdma-unbuffered", "guest-write", Transport::Rdma, false));
        cells.push(cell("rdma-cached", "read-4k", Transport::Rdma, false));
    }
    cells.push(cell("tcp-unbuffered", "guest-write", Transport::Tcp, true));
    cells.push(cell("tcp-cached", "read-4k", Transport::Tcp, true));
    cells
}

fn seed_004(choice: &Choice) -> Vec<Cell> {
    let changes = Changes { block_bytes: choice.block_bytes, ..Changes::default() };
    let mut counts = vec![2, 3, 4];
    if choice.nodes == 1 {
        // Else a single server would have nothing to show.
        counts.insert(0, 1);
    }
    let mut cells = Vec::new();
    for mix in ["web", "file", "mail"] {
        for (transport, word) in [(Transport::Tcp, "tcp"), (Transport::Rdma, "rdma")] {
            for nodes in &counts {
                cells.push(Cell {
                    label: format!("{mix}-{word}-{nodes}"),
                    series: mix.into(),
                    nodes: *nodes,
                    workers_per_node: 20,
                    transport,
                    profile: profile(mix, &changes),
                    is_extra: *nodes == 1,
                });
            }
        }
    }
    cells
}

/// Why a cell cannot be measured with these nodes; `None`: it can.
pub fn obstacle(cell: &Cell, choice: &Choice) -> Option<String> {
    if cell.nodes > choice.nodes {
        let there =
            if choice.nodes == 1 { "there is 1".to_owned() } else { format!("there are {}", choice.nodes) };
        return Some(format!("it asks for {} nodes, and {there}", cell.nodes));
    }
    (cell.transport == Transport::Rdma && !choice.has_rdma)
        .then(|| "no node has an address for SMB Direct".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FOUR: Choice = Choice { nodes: 4, block_bytes: None, has_rdma: true, iops: None };

    #[test]
    fn the_soochow_experiment_has_18_cells_and_six_more_on_one_server() {
        let seed = experiment("seed-004").unwrap();
        let cells = seed.cells(&FOUR);
        assert_eq!(cells.len(), 18);
        assert!(cells.iter().all(|cell| obstacle(cell, &FOUR).is_none() && cell.workers_per_node == 20));
        let one = Choice { nodes: 1, ..FOUR };
        let cells = seed.cells(&one);
        assert_eq!(cells.iter().filter(|cell| obstacle(cell, &one).is_none()).count(), 6);
        let why = obstacle(cells.iter().find(|cell| cell.nodes == 3).unwrap(), &one).unwrap();
        assert_eq!(why, "it asks for 3 nodes, and there is 1");
        let writes: Vec<u32> = ["web", "file", "mail"]
            .map(|mix| {
                cells.iter().find(|cell| cell.series == mix).unwrap().profile.time_spans[0].targets[0]
                    .write_percent
            })
            .into();
        assert_eq!(writes, [0, 10, 33]);
    }

    #[test]
    fn labels_are_unique_and_profiles_valid() {
        for experiment in &EXPERIMENTS {
            for block_bytes in [None, Some(8192)] {
                let cells = experiment.cells(&Choice { block_bytes, iops: Some(10), ..FOUR });
                let labels: BTreeSet<&str> = cells.iter().map(|cell| cell.label.as_str()).collect();
                assert_eq!(labels.len(), cells.len(), "{}", experiment.name);
                for mut cell in cells {
                    cell.profile.fill_templates(&["x".into()]).unwrap();
                    assert_eq!(cell.profile.validate().errors, Vec::<String>::new(), "{}", cell.label);
                }
            }
        }
    }

    #[test]
    fn the_lines_of_the_papers_are_run() {
        let of = |name: &str, label: &str| {
            let cells = experiment(name).unwrap().cells(&FOUR);
            cells.into_iter().find(|cell| cell.label == label).unwrap().profile.time_spans[0].targets[0]
                .clone()
        };
        let theirs = |words: &str| {
            let words: Vec<String> = words.split(' ').chain(["x"]).map(str::to_owned).collect();
            let mut target = diskspd::cli::parse(&words, 0).unwrap().profile.time_spans[0].targets[0].clone();
            // A template cannot stand on a command line.
            target.path = "*1".into();
            target
        };
        // The -c20M is the size of the file, which is there already.
        assert_eq!(of("seed-003", "rdma-unbuffered"), theirs("-b64K -o1 -si4k -t8 -w100 -h -fr"));
        let ours = of("seed-001", "44-a-node");
        assert_eq!(
            (ours.block_bytes, ours.request_count, ours.threads, ours.random_percent),
            (4096, 32, 1, 100)
        );
        let ours = of("seed-002", "write-16-512K");
        assert_eq!(
            (ours.block_bytes, ours.request_count, ours.threads, ours.write_percent),
            (512 << 10, 64, 16, 100)
        );
    }
}
