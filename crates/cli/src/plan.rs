//! `cenote plan`: arithmetic over nodes and drives, which needs a server only to begin with a running pool.
//!
//! Bounds come from measurements on one core (docs/PERFORMANCE.md) and from typical rates of drives;
//! they are the most to expect, and no promise. Owns words and bounds; capacity is `pool`'s arithmetic.

use crate::args::{self, DriveType, Drives, Global, Protection, Resiliency};
use crate::client::{Client, Failure, escaped};
use crate::output::{Align, Column, json, pairs, table};
use crate::printable::println;
use api::model::{Disk, Pool};
use api::planned::{Plan, PlanBounds, PlanChoice, PlanMemory, S2dChoice};
use clap::Parser;
use pool::s2d::{S2dResiliency, efficiency_of};
use pool::{FaultDomain, Level, PlannedDisk, capacity};
use std::collections::BTreeMap;
use store::Layout;
use types::size::show_size;

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
/// Versions of metadata pages, which a store keeps in RAM: 4 bytes for each page of 512 data blocks' checksums, and as much again.
const STORE_RAM_SHARE: f64 = 8.0 / (480.0 * 4096.0);
/// Drives that are planned with at most, of 1 PiB each at most: their bytes can be counted, and no request of a dashboard takes long.
const DRIVES_MAX: u64 = 16_000;
/// A cache to begin with, and memory of the operating system.
const CACHE_BYTES: u64 = 2 << 30;
const SYSTEM_BYTES: u64 = 2 << 30;

/// Typical rates of a drive type: random reads and writes of 4 KiB a second, bytes read and written a
/// second. Round figures of data sheets.
const fn figures(drive: DriveType) -> [f64; 4] {
    match drive {
        DriveType::Hdd => [150.0, 150.0, 200e6, 200e6],
        DriveType::Ssd => [90_000.0, 60_000.0, 500e6, 450e6],
        DriveType::Nvme => [600_000.0, 150_000.0, 3e9, 2e9],
    }
}

/// The drives of one node.
#[derive(Debug, Clone, Default)]
struct Node {
    rack: String,
    drives: Vec<Drives>,
}

impl Node {
    fn bytes(&self) -> u64 {
        self.drives.iter().map(|drives| drives.size_bytes * u64::from(drives.count)).sum()
    }
}

pub fn plan(global: &Global, as_json: bool, options: &args::Plan) -> Result<(), Failure> {
    let running = match &options.pool {
        Some(name) => {
            let client = Client::find(global)?;
            let pool: Pool = client.get(&format!("/pools/{}", escaped(name)))?;
            of_pool(&pool, &client.get::<Vec<Disk>>("/disks")?)
        }
        None => Vec::new(),
    };
    let plan = make(&nodes(running, options)?, options)?;
    if as_json {
        return json(&plan);
    }
    show(&plan, options);
    Ok(())
}

/// The options alone, for callers that have them as words.
#[derive(Debug, Parser)]
#[command(name = "plan", disable_help_flag = true)]
struct Words {
    #[command(flatten)]
    options: args::Plan,
}

/// Returns the plan of `cenote plan` with these words, if the server has these pools and disks.
///
/// # Errors
/// The command line's message.
pub fn plan_of_words(words: &[String], pools: &[Pool], disks: &[Disk]) -> Result<Plan, Failure> {
    let words = std::iter::once("plan").chain(words.iter().map(String::as_str));
    let Words { options } = Words::try_parse_from(words).map_err(|error| Failure::new(error.to_string()))?;
    let running = match &options.pool {
        Some(name) => {
            let found = pools.iter().find(|pool| pool.name.to_lowercase() == name.to_lowercase());
            let pool = found.ok_or_else(|| Failure::new(format!("there is no pool '{name}'")))?;
            of_pool(pool, disks)
        }
        None => Vec::new(),
    };
    make(&nodes(running, &options)?, &options)
}

/// Returns the nodes of the command line, or those of a running pool with additions and losses.
fn nodes(running: Vec<Node>, options: &args::Plan) -> Result<Vec<Node>, Failure> {
    let mut nodes = running;
    if let Some(largest) = nodes.iter().max_by_key(|node| node.bytes()).cloned() {
        // A new node is in no existing rack.
        let added = Node { rack: String::new(), ..largest };
        nodes.extend(std::iter::repeat_n(added, options.add_nodes as usize));
    }
    if let (None, Some(drives)) = (&options.pool, &options.drives) {
        let node = Node { drives: drives.0.clone(), ..Node::default() };
        nodes.extend(std::iter::repeat_n(node, options.nodes.unwrap_or(1) as usize));
    }
    nodes.extend(options.node.iter().map(|drives| Node { drives: drives.0.clone(), ..Node::default() }));
    // [`DRIVES_MAX`] drives of 1 PiB have fewer bytes than 64 bits count.
    let drives =
        nodes.iter().flat_map(|node| &node.drives).map(|drives| u64::from(drives.count)).sum::<u64>();
    if drives > DRIVES_MAX {
        return Err(Failure::new(format!(
            "{drives} drives are too many: {DRIVES_MAX} at most are planned with"
        )));
    }
    nodes.sort_by_key(Node::bytes);
    if options.lose_nodes as usize >= nodes.len() && !nodes.is_empty() {
        return Err(Failure::new(format!("there are {} nodes: none would be left", nodes.len())));
    }
    nodes.truncate(nodes.len().saturating_sub(options.lose_nodes as usize));
    if nodes.is_empty() {
        return Err(Failure::new(
            "nothing to plan: give --nodes N --drives COUNTxSIZE[:TYPE], or --pool NAME for a running pool",
        ));
    }
    if options.racks > 0 {
        for (number, node) in nodes.iter_mut().enumerate() {
            node.rack = format!("rack-{}", number % options.racks as usize + 1);
        }
    }
    Ok(nodes)
}

/// The nodes of a running pool: drives by the rack and node of their fault domains.
fn of_pool(pool: &Pool, disks: &[Disk]) -> Vec<Node> {
    let mut nodes: BTreeMap<(String, String), Vec<Drives>> = BTreeMap::new();
    for disk in disks.iter().filter(|disk| disk.pool == Some(pool.id)) {
        // RACK/NODE/ENCLOSURE without those that have no name: one alone is the node.
        let names: Vec<&str> = disk.fault_domain.split('/').collect();
        let place = match names.as_slice() {
            [rack, node, ..] => ((*rack).to_owned(), (*node).to_owned()),
            [node] => (String::new(), (*node).to_owned()),
            [] => Default::default(),
        };
        let drive = if disk.rotational == Some(true) { DriveType::Hdd } else { DriveType::Ssd };
        nodes.entry(place).or_default().push(Drives { count: 1, size_bytes: disk.size_bytes, drive });
    }
    nodes.into_iter().map(|((rack, _), drives)| Node { rack, drives }).collect()
}

fn make(nodes: &[Node], options: &args::Plan) -> Result<Plan, Failure> {
    let disks = planned(nodes);
    let racks: std::collections::BTreeSet<&str> =
        nodes.iter().map(|node| node.rack.as_str()).filter(|rack| !rack.is_empty()).collect();
    let all = [Resiliency::Simple, Resiliency::TwoWayMirror, Resiliency::ThreeWayMirror];
    let state = state_survives(nodes.len() as u32, options.witness);
    let mut choices = Vec::new();
    for resiliency in all.into_iter().filter(|one| options.resiliency.is_none_or(|only| only == *one)) {
        choices.extend(choice(nodes, &disks, resiliency, state, options));
    }
    if let (Some(only), true) = (options.resiliency, choices.is_empty()) {
        let copies = api::model::Resiliency::from(only).copies();
        return Err(Failure::new(format!(
            "{copies} copies take {copies} drives at least; there are {}",
            disks.len()
        )));
    }
    let drives = || nodes.iter().flat_map(|node| &node.drives);
    let data_bytes = disks.iter().map(|disk| disk.data_bytes).sum();
    let largest_node = nodes.iter().map(Node::bytes).max().unwrap_or_default();
    let stores_bytes = (largest_node as f64 * STORE_RAM_SHARE) as u64;
    Ok(Plan {
        nodes: nodes.len() as u32,
        racks: racks.len() as u32,
        drives: disks.len() as u32,
        raw_bytes: nodes.iter().map(Node::bytes).sum(),
        data_bytes,
        choices,
        s2d: s2d(nodes),
        memory: PlanMemory {
            stores_bytes,
            least_bytes: SYSTEM_BYTES + CACHE_BYTES + CACHE_BYTES / 16 + stores_bytes,
        },
        state_survives_nodes: state,
        notes: notes(nodes, drives().any(|drives| drives.drive == DriveType::Hdd)),
    })
}

/// The drives as the pool will see them.
fn planned(nodes: &[Node]) -> Vec<PlannedDisk> {
    let mut disks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        // One node alone keeps copies apart by drives.
        let name = if nodes.len() > 1 { format!("node-{}", number + 1) } else { String::new() };
        let domain = FaultDomain { rack: node.rack.clone(), node: name, ..FaultDomain::default() };
        for drives in &node.drives {
            let disk = PlannedDisk { domain: domain.clone(), data_bytes: data_bytes(drives.size_bytes) };
            disks.extend(std::iter::repeat_n(disk, drives.count as usize));
        }
    }
    disks
}

/// Bytes of data that a drive of this size holds.
fn data_bytes(size_bytes: u64) -> u64 {
    let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
    let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes);
    layout.map_or(0, |layout| u64::from(layout.slab_count) * layout.slab_bytes)
}

/// Nodes that may fail at once without loss of the cluster's state, which the first three nodes keep,
/// or two and a witness (D21).
fn state_survives(nodes: u32, has_witness: bool) -> u32 {
    match nodes {
        0 | 1 => 0,
        2 => u32::from(has_witness),
        _ => 1,
    }
}

fn choice(
    nodes: &[Node],
    disks: &[PlannedDisk],
    resiliency: Resiliency,
    state: u32,
    options: &args::Plan,
) -> Option<PlanChoice> {
    let copies = api::model::Resiliency::from(resiliency).copies();
    let found = capacity(disks, copies, options.reserve_disks)?;
    let raw: u64 = nodes.iter().map(Node::bytes).sum();
    let spare = u32::from(copies) - 1;
    // Fewer nodes, or racks, than copies have an equal share of them: the last one left has a copy.
    let racks = nodes.iter().map(|node| &node.rack).collect::<std::collections::BTreeSet<_>>().len();
    let survives =
        |domains: usize, state: u32| (domains.min(usize::from(copies)).saturating_sub(1) as u32).min(state);
    // Of two racks one has two of the three nodes that keep the state.
    let state_by_rack = if racks >= 3 { state } else { 0 };
    Some(PlanChoice {
        resiliency: word(resiliency).into(),
        copies,
        apart_by: match found.level {
            _ if copies == 1 => "nothing",
            Level::Disk => "disk",
            Level::Enclosure => "enclosure",
            Level::Node => "node",
            Level::Rack => "rack",
        }
        .into(),
        usable_bytes: found.usable_bytes,
        efficiency_percent: (found.usable_bytes as f64 / raw.max(1) as f64 * 1000.0).round() / 10.0,
        reserve_bytes: found.reserve_bytes,
        reserve_disks: found.reserve_disks,
        stranded_bytes: found.stranded_bytes,
        survives_drives: spare,
        survives_nodes: survives(nodes.len(), state),
        survives_racks: survives(racks, state_by_rack),
        repairs_largest_domain: found.repairs_largest_domain,
        bounds: bounds(nodes, copies, options),
    })
}

fn word(resiliency: Resiliency) -> &'static str {
    match resiliency {
        Resiliency::Simple => "simple",
        Resiliency::TwoWayMirror => "two-way-mirror",
        Resiliency::ThreeWayMirror => "three-way-mirror",
    }
}

/// Returns the least limit of processors, drives and network, and its name.
fn least(limits: [(f64, &str); 3]) -> (f64, String) {
    let (value, name) = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, ""));
    (value, name.to_owned())
}

fn bounds(nodes: &[Node], copies: u8, options: &args::Plan) -> PlanBounds {
    let count = nodes.len() as f64;
    let copies = f64::from(copies);
    let (factor, at) = match options.protection {
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
    let network = count * f64::from(options.network) * 1e9 / 8.0;
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

/// Storage Spaces Direct's tables for as many servers.
fn s2d(nodes: &[Node]) -> Vec<S2dChoice> {
    let servers = nodes.len() as u32;
    let drives: u32 = nodes.first().map_or(0, |node| node.drives.iter().map(|drives| drives.count).sum());
    let is_all_flash =
        nodes.iter().flat_map(|node| &node.drives).all(|drives| drives.drive != DriveType::Hdd);
    let all = [
        ("two-way mirror", S2dResiliency::TwoWayMirror, true),
        ("three-way mirror", S2dResiliency::ThreeWayMirror, true),
        ("dual parity", S2dResiliency::DualParity, false),
        (
            "mirror-accelerated parity, 20 % mirror",
            S2dResiliency::MirrorAcceleratedParity { mirror_percent: 20 },
            false,
        ),
        ("nested two-way mirror", S2dResiliency::NestedMirror, false),
        (
            "nested mirror-accelerated parity, 20 % mirror",
            S2dResiliency::NestedParity { mirror_percent: 20 },
            false,
        ),
    ];
    let shown = all.into_iter().filter_map(|(name, resiliency, is_here)| {
        let found = efficiency_of(resiliency, servers, drives, is_all_flash)?;
        Some(S2dChoice {
            resiliency: name.into(),
            efficiency_percent: (found.usable * 1000.0).round() / 10.0,
            code: found.code.into(),
            survives: found.tolerates,
            is_here,
        })
    });
    shown.collect()
}

/// Assumptions of the plan, and differences from Storage Spaces Direct.
fn notes(nodes: &[Node], has_hdd: bool) -> Vec<String> {
    let servers = nodes.len();
    let mut notes: Vec<String> = Vec::new();
    let mut note = |applies: bool, text: &str| {
        if applies {
            notes.push(text.to_owned());
        }
    };
    note(
        true,
        "The reserve is enforced: only repair may take it. S2D recommends one capacity drive for each server, up to four, and enforces nothing.",
    );
    note(
        true,
        "Drives need not be alike: copies go by capacity, and what finds no partner is shown as unusable. S2D asks for symmetry.",
    );
    note(
        true,
        "A three-way mirror acknowledges writes on two copies at least: with one left it can be read, and writes wait for repair.",
    );
    note(
        servers == 2,
        "A three-way mirror on two nodes has two copies on one: without that one the data can be read, and writes wait.",
    );
    note(
        servers == 2,
        "Two nodes take a witness: without one neither goes on alone. S2D has nested resiliency here, which is not built.",
    );
    note(servers >= 4, "S2D has parity from four servers on; parity is not built yet (D10).");
    note(
        servers == 3 || servers == 4,
        "S2D keeps a pool quorum beside the cluster's: three servers with a witness stay up while their pool does not. Here is one state.",
    );
    note(
        servers >= 5,
        "S2D survives two servers from five on; the state here is kept by three nodes, so one of those may be lost at a time.",
    );
    note(
        servers > pool::s2d::SERVERS_MAX as usize,
        "S2D ends at 16 servers: it has no figures for this plan.",
    );
    note(has_hdd, "S2D puts a cache of flash in front of disks that turn; here is a cache in RAM only.");
    note(
        true,
        "S2D takes 10 GbE at least, and RDMA with 25 GbE for four servers and more; the same is wise here.",
    );
    note(
        true,
        "Bounds are of one processor core a node, which is what serves today (D17), and of round figures of drives; docs/PERFORMANCE.md has what was measured.",
    );
    notes
}

fn show(plan: &Plan, options: &args::Plan) {
    let racks = if plan.racks > 0 { format!(" in {} racks", plan.racks) } else { String::new() };
    pairs(&[
        ("nodes", format!("{}{racks}", plan.nodes)),
        (
            "drives",
            format!(
                "{}, {} raw, {} for data",
                plan.drives,
                show_size(plan.raw_bytes),
                show_size(plan.data_bytes)
            ),
        ),
        ("state survives", format!("{} of the nodes at once", plan.state_survives_nodes)),
        (
            "memory of a node",
            format!(
                "{} to begin with, {} of it what the stores hold",
                show_size(plan.memory.least_bytes),
                show_size(plan.memory.stores_bytes)
            ),
        ),
        ("network of a node", format!("{} Gb/s planned", options.network)),
    ]);
    show_capacity(&plan.choices);
    show_bounds(&plan.choices);
    show_s2d(&plan.s2d);
    println!();
    for note in &plan.notes {
        println!("- {note}");
    }
}

fn right(name: &'static str) -> Column {
    Column(name, Align::Right)
}

fn show_capacity(choices: &[PlanChoice]) {
    println!();
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("USABLE"),
        right("OF RAW"),
        right("RESERVE"),
        right("UNUSABLE"),
        Column("APART BY", Align::Left),
        right("DRIVES"),
        right("NODES"),
        right("RACKS"),
        Column("REPAIRS A NODE", Align::Left),
    ];
    let rows = choices.iter().map(|choice| {
        vec![
            choice.resiliency.clone(),
            show_size(choice.usable_bytes),
            format!("{:.1} %", choice.efficiency_percent),
            format!("{} x, {}", choice.reserve_disks, show_size(choice.reserve_bytes)),
            show_size(choice.stranded_bytes),
            choice.apart_by.clone(),
            choice.survives_drives.to_string(),
            choice.survives_nodes.to_string(),
            choice.survives_racks.to_string(),
            if choice.repairs_largest_domain { "yes" } else { "no" }.to_owned(),
        ]
    });
    table(&columns, rows.collect(), "no resiliency is possible with these drives");
}

fn show_bounds(choices: &[PlanChoice]) {
    println!("\nThe most to expect of all nodes, and what bounds it:");
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("4 KiB READS/s"),
        Column("", Align::Left),
        right("4 KiB WRITES/s"),
        Column("", Align::Left),
        right("READ"),
        Column("", Align::Left),
        right("WRITE"),
        Column("", Align::Left),
        right("NETWORK NEEDED"),
    ];
    let rows = choices.iter().map(|choice| {
        let bounds = &choice.bounds;
        let rate = |bytes: f64| format!("{}/s", show_size(bytes as u64));
        vec![
            choice.resiliency.clone(),
            format!("{:.0}", bounds.read_iops),
            bounds.read_iops_by.clone(),
            format!("{:.0}", bounds.write_iops),
            bounds.write_iops_by.clone(),
            rate(bounds.read_bytes_per_s),
            bounds.read_bytes_by.clone(),
            rate(bounds.write_bytes_per_s),
            bounds.write_bytes_by.clone(),
            format!("{:.1} Gb/s a node", bounds.network_bits_per_s / 1e9),
        ]
    });
    table(&columns, rows.collect(), "none");
}

fn show_s2d(choices: &[S2dChoice]) {
    println!("\nStorage Spaces Direct with as many servers, without reserve:");
    let columns = [
        Column("RESILIENCY", Align::Left),
        right("OF RAW"),
        Column("CODE", Align::Left),
        right("SURVIVES"),
        Column("HERE", Align::Left),
    ];
    let rows = choices.iter().map(|choice| {
        vec![
            choice.resiliency.clone(),
            format!("{:.1} %", choice.efficiency_percent),
            choice.code.clone(),
            choice.survives.to_string(),
            if choice.is_here { "yes" } else { "not built" }.to_owned(),
        ]
    });
    table(&columns, rows.collect(), "it has no figures for so many servers");
}

#[cfg(test)]
mod tests;
