//! report.md and its figures: the paper's results, the measured ones, and effects that this machine
//! cannot show.

use crate::experiment::{Cell, Experiment};
use crate::outcome::{Latencies, Outcome};
use crate::plot::{self, Group, Line, Words};
use crate::state::Transport;
use crate::table::commas;
use std::fmt::Write;

/// A cell and its result: an outcome, or why there is none.
pub struct CellResult {
    pub cell: Cell,
    pub result: Result<Outcome, String>,
}

/// A figure: the name of its file, and its SVG.
pub struct Figure {
    pub file: String,
    pub title: String,
    pub svg: String,
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.3}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.0} %"))
}

/// The table of all cells, in Markdown.
pub fn cells_table(results: &[CellResult]) -> String {
    let mut text = String::from(
        "| cell | nodes | workers | by | IOPS | MB/s | mean ms | 50 % | 99 % | 99.9 % | above the volume, ms | CPU | of it servers |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for CellResult { cell, result } in results {
        let note = if cell.is_extra { " (not in the paper)" } else { "" };
        let _ = match result {
            Err(why) => writeln!(
                text,
                "| {}{note} | {} | | | skipped: {why} | | | | | | | | |",
                cell.label, cell.nodes
            ),
            Ok(outcome) => {
                let latency = outcome.total_latency();
                let workers: u64 = outcome.nodes.iter().map(|node| node.workers).sum();
                let server = outcome.volume.as_ref().and_then(|volume| volume.cpu_percent);
                writeln!(
                    text,
                    "| {}{note} | {} | {workers} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | {} |",
                    cell.label,
                    outcome.nodes.len(),
                    outcome.transport,
                    commas(outcome.iops()),
                    outcome.bytes_per_s() / 1e6,
                    optional(latency.mean_ms),
                    optional(latency.p50_ms),
                    optional(latency.p99_ms),
                    optional(latency.p999_ms),
                    optional(above(outcome)),
                    percent(outcome.cpu_percent),
                    percent(server)
                )
            }
        };
    }
    text
}

/// The gap above the volume, reads and writes weighted by how many there were.
fn above(outcome: &Outcome) -> Option<f64> {
    let (read, write) = outcome.above_volume_ms();
    crate::outcome::weighted([(outcome.read.iops, read), (outcome.write.iops, write)].into_iter())
}

/// report.md of an experiment.
pub fn report(experiment: &Experiment, results: &[CellResult], figures: &[Figure], machine: &str) -> String {
    let mut text = format!("# {}: {}\n\nAfter *{}*.\n", experiment.name, experiment.title, experiment.source);
    let mut part = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let _ = write!(text, "\n## {title}\n\n");
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    };
    part("What the paper had", &mut experiment.paper.iter().map(|line| (*line).to_owned()));
    part("Measured here", &mut std::iter::once(machine.to_owned()));
    let _ = write!(text, "\n{}", cells_table(results));
    let _ = write!(
        text,
        "\nMB are 10^6 bytes. Latencies are the workers', of all their operations together: percentiles come from histograms that were added up. \
         *Above the volume* is the workers' mean less that of the nodes' counters: network and queues before the server. *CPU* is of the machines \
         that workers ran on, servers included.\n"
    );
    for figure in figures {
        let _ = write!(text, "\n![{}]({})\n", figure.title, figure.file);
    }
    let skipped = results.iter().filter(|one| one.result.is_err()).count();
    let mut part = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let _ = write!(text, "\n## {title}\n\n");
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    };
    let missing = (skipped > 0)
        .then(|| format!("{skipped} of {} cells were not run; the table says why.", results.len()));
    part(
        "What this machine cannot show",
        &mut experiment.beyond.iter().map(|line| (*line).to_owned()).chain(missing),
    );
    let mut notes: Vec<String> = results
        .iter()
        .filter_map(|one| one.result.as_ref().ok())
        .flat_map(|outcome| outcome.notes.clone())
        .collect();
    notes.sort();
    notes.dedup();
    if !notes.is_empty() {
        part("Notes of the runs", &mut notes.into_iter());
    }
    text
}

/// The figures of an experiment, as far as its cells were measured.
pub fn figures(experiment: &Experiment, results: &[CellResult]) -> Vec<Figure> {
    let mut figures = match experiment.name {
        "seed-001" => by_node(results),
        "seed-002" => by_size(results),
        "seed-004" => by_count_and_transport(results),
        _ => Vec::new(),
    };
    figures.extend(distribution(results));
    figures
}

fn measured(results: &[CellResult]) -> impl Iterator<Item = (&Cell, &Outcome)> {
    results.iter().filter_map(|one| Some((&one.cell, one.result.as_ref().ok()?)))
}

fn figure(file: &str, title: &str, svg: String) -> Figure {
    Figure { file: format!("{file}.svg"), title: title.into(), svg }
}

fn by_node(results: &[CellResult]) -> Vec<Figure> {
    let Some((_, outcome)) = measured(results).next() else { return Vec::new() };
    let groups: Vec<Group> = outcome
        .nodes
        .iter()
        .map(|node| Group { name: node.node.clone(), values: vec![Some(node.read.iops + node.write.iops)] })
        .collect();
    if groups.is_empty() {
        return Vec::new();
    }
    let title = "IOPS of each node";
    let words = Words { title, below: "node", beside: "I/O per s" };
    vec![figure("iops-by-node", title, plot::bars(&words, &["all workers of the node".into()], &groups))]
}

fn by_size(results: &[CellResult]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for direction in ["write", "read"] {
        for (kind, beside, value) in [
            (
                "throughput",
                "Gb/s",
                (|outcome: &Outcome| outcome.bytes_per_s() * 8.0 / 1e9) as fn(&Outcome) -> f64,
            ),
            ("iops", "I/O per s", Outcome::iops as fn(&Outcome) -> f64),
        ] {
            let mut lines: Vec<Line> = Vec::new();
            for (cell, outcome) in measured(results).filter(|(cell, _)| cell.series.starts_with(direction)) {
                let point = (block_bytes(cell), value(outcome));
                match lines.iter_mut().find(|line| line.name == cell.series) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line { name: cell.series.clone(), points: vec![point] }),
                }
            }
            if lines.is_empty() {
                continue;
            }
            let title = format!("{direction}s: {kind} by I/O size");
            let words = Words { title: &title, below: "I/O size", beside };
            figures.push(figure(
                &format!("{direction}-{kind}"),
                &title,
                plot::lines(&words, true, show_size, &lines),
            ));
        }
    }
    figures
}

fn block_bytes(cell: &Cell) -> f64 {
    let target = cell.profile.time_spans.first().and_then(|span| span.targets.first());
    target.map_or(0.0, |target| f64::from(target.block_bytes))
}

fn show_size(bytes: f64) -> String {
    format!("{:.0}K", bytes / 1024.0)
}

/// IOPS by the number of nodes for each mix; and RDMA beside TCP: IOPS, CPU and latency.
fn by_count_and_transport(results: &[CellResult]) -> Vec<Figure> {
    let mut counts: Vec<u32> = measured(results).map(|(cell, _)| cell.nodes).collect();
    counts.sort_unstable();
    counts.dedup();
    let Some(most) = counts.last().copied() else { return Vec::new() };
    let mixes = ["web", "file", "mail"];
    let names: Vec<String> = ["web 100/0", "file 90/10", "mail 67/33"].map(str::to_owned).into();
    let find = |mix: &str, nodes: u32, transport: Transport| {
        measured(results)
            .find(|(cell, _)| cell.series == mix && cell.nodes == nodes && cell.transport == transport)
            .map(|(_, outcome)| outcome)
    };
    let mut figures = Vec::new();
    for (transport, word) in [(Transport::Rdma, "SMB Direct"), (Transport::Tcp, "TCP")] {
        let groups: Vec<Group> = counts
            .iter()
            .map(|count| Group {
                name: format!("{count} nodes"),
                values: mixes.map(|mix| find(mix, *count, transport).map(Outcome::iops)).into(),
            })
            .collect();
        let title = format!("IOPS by number of nodes, {word}");
        let words = Words { title: &title, below: "nodes", beside: "I/O per s" };
        let file = format!("iops-by-nodes-{}", if transport == Transport::Rdma { "rdma" } else { "tcp" });
        figures.push(figure(&file, &title, plot::bars(&words, &names, &groups)));
    }
    let series = ["TCP".to_owned(), "SMB Direct".to_owned()];
    for (file, what, beside, value) in [
        (
            "rdma-iops",
            "IOPS",
            "I/O per s",
            (|outcome: &Outcome| Some(outcome.iops())) as fn(&Outcome) -> Option<f64>,
        ),
        ("rdma-cpu", "CPU", "percent of the machine", |outcome: &Outcome| outcome.cpu_percent),
        ("rdma-latency", "mean latency", "ms", |outcome: &Outcome| outcome.total_latency().mean_ms),
    ] {
        let groups: Vec<Group> = mixes
            .iter()
            .zip(&names)
            .map(|(mix, name)| Group {
                name: name.clone(),
                values: [Transport::Tcp, Transport::Rdma]
                    .map(|one| find(mix, most, one).and_then(value))
                    .into(),
            })
            .collect();
        let title = format!("{what} with RDMA and without, {most} nodes");
        let words = Words { title: &title, below: "mix", beside };
        figures.push(figure(file, &title, plot::bars(&words, &series, &groups)));
    }
    figures
}

/// How latencies are distributed: each cell's percentiles, from half to 99.999 %.
fn distribution(results: &[CellResult]) -> Option<Figure> {
    // More lines than colours would be hard to tell apart: show the cells of the most nodes.
    let most = measured(results).map(|(cell, _)| cell.nodes).max()?;
    let lines: Vec<Line> = measured(results)
        .filter(|(cell, _)| cell.nodes == most)
        .take(7)
        .filter_map(|(cell, outcome)| {
            let histogram = outcome.total_histogram();
            let points: Vec<(f64, f64)> = NINES
                .iter()
                .filter_map(|(nines, share)| Some((*nines, histogram.percentile_ms(*share)?)))
                .collect();
            (!points.is_empty()).then(|| Line { name: cell.label.clone(), points })
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let title = "Latency by percentile";
    let words = Words { title, below: "percentile", beside: "ms" };
    Some(figure("latency", title, plot::lines(&words, false, show_nines, &lines)))
}

/// Places on the axis, and shares.
const NINES: [(f64, f64); 7] =
    [(0.0, 0.5), (1.0, 0.75), (2.0, 0.9), (3.0, 0.99), (4.0, 0.999), (5.0, 0.9999), (6.0, 0.99999)];

fn show_nines(place: f64) -> String {
    let share = NINES.iter().find(|(nines, _)| *nines == place).map_or(0.0, |(_, share)| *share);
    format!("{} %", (share * 1e7).round() / 1e5)
}

/// The latencies of an outcome in DiskSpd's table.
pub fn latency_table(outcome: &Outcome) -> String {
    let sides = [outcome.read_latency(), outcome.write_latency(), outcome.total_latency()];
    let mut text = String::from(
        "  %-ile |  Read (ms) | Write (ms) | Total (ms)\n----------------------------------------------\n",
    );
    type Value = fn(&Latencies) -> Option<f64>;
    let rows: [(&str, Value); 5] = [
        ("50th", |side| side.p50_ms),
        ("90th", |side| side.p90_ms),
        ("99th", |side| side.p99_ms),
        ("3-nines", |side| side.p999_ms),
        ("max", |side| side.max_ms),
    ];
    for (name, value) in rows {
        let cells =
            sides.each_ref().map(|side| value(side).map_or_else(|| "N/A".into(), |ms| format!("{ms:.3}")));
        let _ = writeln!(text, "{name:>7} | {:>10} | {:>10} | {:>10}", cells[0], cells[1], cells[2]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Choice, EXPERIMENTS, experiment, obstacle};
    use crate::outcome::tests::outcome;

    fn results(name: &str, nodes: u32) -> (&'static Experiment, Vec<CellResult>) {
        let experiment = experiment(name).unwrap();
        let choice = Choice { nodes, has_rdma: true, ..Choice::default() };
        let of = |cell: Cell| {
            let result = match obstacle(&cell, &choice) {
                Some(why) => Err(why),
                None => Ok(outcome()),
            };
            CellResult { cell, result }
        };
        (experiment, experiment.cells(&choice).into_iter().map(of).collect())
    }

    #[test]
    fn every_experiment_has_a_report_with_its_figures_and_their_files() {
        for name in EXPERIMENTS.map(|one| one.name) {
            let (experiment, results) = results(name, 4);
            let figures = figures(experiment, &results);
            assert!(!figures.is_empty(), "{name}");
            let text = report(experiment, &results, &figures, "a machine");
            for figure in &figures {
                assert!(text.contains(&format!("({})", figure.file)) && figure.svg.ends_with("</svg>\n"));
            }
            assert!(text.contains("What the paper had") && text.contains("cannot show"), "{text}");
        }
    }

    #[test]
    fn a_skipped_cell_says_why() {
        let (experiment, results) = results("seed-004", 2);
        let text = report(experiment, &results, &figures(experiment, &results), "");
        assert_eq!(text.matches("skipped: it asks for").count(), 12);
        assert!(text.contains("12 of 18 cells were not run"), "{text}");
    }

    #[test]
    fn nothing_measured_is_a_report_without_figures() {
        let (experiment, results) = results("seed-004", 0);
        assert!(figures(experiment, &results).is_empty());
        assert!(report(experiment, &results, &[], "").contains("18 of 18"));
    }

    #[test]
    fn the_latency_table_is_diskspds() {
        let text = latency_table(&outcome());
        assert!(text.contains("   50th |      0.100 |        N/A |      0.100\n"), "{text}");
    }
}
