//! `fleet run`: a profile once, or a published experiment.

use super::{Failure, Ready, machine, output_directory, profile_of, run_seconds, say, show_seconds, tell};
use super::{life, making};
use crate::args::Run;
use crate::experiment::{Cell, Choice, Experiment, experiment, obstacle};
use crate::outcome::Outcome;
use crate::report::{self, CellResult};
use crate::row::{self, RunDescription};
use crate::search::{Cutoff, RunType};
use crate::state::{State, Transport, replace};
use crate::table::{self, Rates, Row, commas};
use crate::tsv::Table;
use crate::workload::{Times, limit_iops, set_limit};
use diskspd::histogram;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub const RESULT_FILE: &str = "result.tsv";

pub fn run(directory: &Path, options: &Run) -> Result<(), Failure> {
    match experiment(&options.workload) {
        Some(experiment) => run_experiment(directory, experiment, options),
        None => run_profile(directory, options),
    }
}

/// Reads the rows that a result.tsv holds so far; none if there is no file.
pub fn read_table(path: &Path) -> Result<Table, Failure> {
    let mut text = String::new();
    match fs::File::open(path) {
        Ok(file) => file.take(crate::tsv::BYTES_MAX).read_to_string(&mut text).map(drop),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Table::default()),
        Err(error) => Err(error),
    }
    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Table::parse(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Adds a row to result.tsv, with its header if it is the first. A line that a killed run left unfinished is cut off.
pub fn append(path: &Path, run: &RunDescription, outcome: &Outcome) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let header = row::header(&run.keys);
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let whole = before.rfind('\n').map_or(0, |end| end + 1);
    if whole > 0 && !before.starts_with(&header) {
        return Err(Failure::new(format!(
            "{} has rows with other columns: give another --out",
            path.display()
        )));
    }
    let mut file =
        fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
    file.set_len(whole as u64).map_err(failed)?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).map_err(failed)?;
    let line = row::line(run, outcome);
    let text = if whole == 0 { header + &line } else { line };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)
}

/// The outcome in a few lines: VMFleet's table of the workers' figures, and the latencies.
pub fn summary(outcome: &Outcome) -> String {
    let rows: Vec<Row> = outcome
        .nodes
        .iter()
        .map(|node| {
            let volume = node.volume.clone().unwrap_or_default();
            let mut all = node.read_histogram.clone();
            all.merge(&node.write_histogram);
            let volume_ms = crate::outcome::weighted(
                [(volume.read.iops, volume.read_ms), (volume.write.iops, volume.write_ms)].into_iter(),
            );
            let rates = Rates {
                read_iops: node.read.iops,
                write_iops: node.write.iops,
                read_bytes_per_s: node.read.bytes_per_s,
                write_bytes_per_s: node.write.bytes_per_s,
                read_ms: volume.read_ms,
                write_ms: volume.write_ms,
                volume_ms,
                worker_ms: all.mean_ms(),
            };
            Row { node: node.node.clone(), between_us: None, rates: Some(rates) }
        })
        .collect();
    let mut text = table::text(&rows);
    text += &format!("\n{}", report::latency_table(outcome));
    if let Some(cpu) = outcome.cpu_percent {
        text += &format!("\nCPU of the workers' machines: {cpu:.1} %");
        if let Some(server) = outcome.volume.as_ref().and_then(|volume| volume.cpu_percent) {
            text += &format!(", of it servers: {server:.1} %");
        }
        text += &format!("; by {}\n", outcome.transport);
    }
    for note in &outcome.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn run_profile(directory: &Path, options: &Run) -> Result<(), Failure> {
    let state = State::load_made(directory)?;
    let mut profile = profile_of(&options.workload, &options.shape)?;
    let limit = options.iops.unwrap_or(state.qos);
    if limit > 0 {
        set_limit(&mut profile, limit)?;
    }
    let usual = profile.time_spans.first().map_or_else(Times::default, |span| Times {
        warm_up_s: span.warm_up_s,
        duration_s: span.duration_s,
        cool_down_s: span.cool_down_s,
    });
    let times = options.durations.times(usual);
    times.apply(&mut profile);
    let workers = u64::from(state.running_workers()) * state.nodes.len() as u64;
    if options.output.dry_run {
        say(&format!("1 run of {workers} workers, {}", show_seconds(run_seconds(times))));
        return Ok(());
    }
    let is_started = Path::new(&options.workload) == directory.join("start.xml");
    if let (Some(running), false) = (life::running(&state), is_started) {
        return Err(Failure::new(format!("'{}' runs: `fleet stop` first", running.label)));
    }
    let mut ready = Ready::new(directory, &state, &options.durations);
    if is_started {
        // Workers that run until somebody stops them follow their volumes at any number of moves.
        ready.attempts = u32::MAX;
    }
    let nodes = (0..state.nodes.len()).collect();
    let name =
        Path::new(&options.workload).file_stem().map_or_else(|| "run".into(), |stem| stem.to_string_lossy());
    let outcome = if is_started {
        ready.run(&name, &profile, nodes, 0)?
    } else {
        ready.run_whole(&name, &profile, nodes, 0)?
    };
    let out = output_directory(&options.output, &name)?;
    let run = RunDescription {
        label: name.into_owned(),
        keys: vec![
            ("Workload".into(), options.workload.clone()),
            ("VMAlignmentPct".into(), state.alignment_percent.to_string()),
        ],
        run_type: RunType::Default,
        cutoff: Cutoff::No,
        qos: limit_iops(&profile),
        workers,
    };
    append(&out.join(RESULT_FILE), &run, &outcome)?;
    say(&summary(&outcome));
    say(&format!("a row was added to {}", out.join(RESULT_FILE).display()));
    Ok(())
}

/// Keys of a cell's row: everything by which it differs from the same cell of another run.
fn keys(experiment: &Experiment, cell: &Cell, times: Times, workers: u32) -> Vec<(String, String)> {
    let target = cell.profile.time_spans.first().and_then(|span| span.targets.first());
    [
        ("Experiment", experiment.name.to_owned()),
        ("Cell", cell.label.clone()),
        ("BlockSize", target.map_or(0, |target| target.block_bytes).to_string()),
        ("Seconds", times.duration_s.to_string()),
        ("WorkersPerNode", workers.to_string()),
        ("Limit", limit_iops(&cell.profile).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn run_experiment(directory: &Path, experiment: &Experiment, options: &Run) -> Result<(), Failure> {
    let block_bytes = options.shape.block;
    if options.shape.changes() != (crate::workload::Changes { block_bytes, ..Default::default() }) {
        return Err(Failure::new("an experiment's profile is the paper's: only --block changes it"));
    }
    let (nodes, _) = match State::load(directory) {
        Ok(state) => (state.nodes.clone(), state.is_cluster),
        Err(_) => super::nodes_of(&options.servers)?,
    };
    let choice = Choice {
        nodes: nodes.len() as u32,
        block_bytes,
        has_rdma: nodes.iter().any(|node| node.rdma.is_some()),
        iops: options.iops,
    };
    let mut cells = experiment.cells(&choice);
    cells.retain(|cell| options.only.as_ref().is_none_or(|only| cell.label.contains(only.as_str())));
    if cells.is_empty() {
        return Err(Failure::new("no cell's label has that in it"));
    }
    let times = options.durations.times(experiment.times);
    for cell in &mut cells {
        times.apply(&mut cell.profile);
        cell.workers_per_node = options.workers_per_node.unwrap_or(cell.workers_per_node);
    }
    let data_bytes = options.data_size.unwrap_or(experiment.data_bytes);
    let possible = cells.iter().filter(|cell| obstacle(cell, &choice).is_none()).count();
    tell(&format!(
        "{}: {} cells, {possible} of them possible here, about {}",
        experiment.name,
        cells.len(),
        show_seconds(possible as u64 * (run_seconds(times) + 2))
    ));
    if options.output.dry_run {
        for cell in &cells {
            let why = obstacle(cell, &choice).map_or_else(String::new, |why| format!("  skipped: {why}"));
            say(&format!("{}{why}", cell.label));
        }
        return Ok(());
    }
    let out = output_directory(&options.output, experiment.name)?;
    if is_measured(experiment, &cells, &choice, times, &out)? {
        // Reading results needs no fleet.
        let state = State::new(experiment.name.to_owned(), nodes, 1, data_bytes);
        let results = measure(directory, &state, experiment, cells, &choice, times, &out, options)?;
        return write_report(experiment, &results, &out);
    }
    let workers = cells.iter().map(|cell| cell.workers_per_node).max().unwrap_or(1);
    let (state, is_ours) = match State::load_made(directory) {
        Ok(state) if state.workers_per_node >= workers => (state, false),
        Ok(state) => {
            return Err(Failure::new(format!(
                "the fleet in {} has {} workers a node, the experiment takes {workers}: `fleet remove` it, or give --fleet DIR",
                directory.display(),
                state.workers_per_node
            )));
        }
        Err(_) => (making::new_for_experiment(directory, &options.servers, workers, data_bytes)?, true),
    };
    let results = measure(directory, &state, experiment, cells, &choice, times, &out, options);
    let removed = if is_ours && !options.keep { life::destroy(directory, &state) } else { Ok(()) };
    let results = results?;
    write_report(experiment, &results, &out)?;
    removed
}

/// Whether all cells that can run have their rows.
fn is_measured(
    experiment: &Experiment,
    cells: &[Cell],
    choice: &Choice,
    times: Times,
    out: &Path,
) -> Result<bool, Failure> {
    let table = read_table(&out.join(RESULT_FILE))?;
    Ok(cells.iter().filter(|cell| obstacle(cell, choice).is_none()).all(|cell| {
        let keys = keys(experiment, cell, times, cell.workers_per_node);
        row::outcome(&table, &keys, &import(&out.join(format!("{}.histogram", cell.label)))).is_some()
    }))
}

/// Measures the cells, or reads again those that were measured before.
fn measure(
    directory: &Path,
    state: &State,
    experiment: &Experiment,
    cells: Vec<Cell>,
    choice: &Choice,
    times: Times,
    out: &Path,
    options: &Run,
) -> Result<Vec<CellResult>, Failure> {
    let file = out.join(RESULT_FILE);
    let table = read_table(&file)?;
    let count = cells.len();
    let mut results = Vec::new();
    for (number, cell) in cells.into_iter().enumerate() {
        let keys = keys(experiment, &cell, times, cell.workers_per_node);
        let latencies = out.join(format!("{}.histogram", cell.label));
        let result = if let Some(why) = obstacle(&cell, choice) {
            Err(why)
        } else if let Some(outcome) = row::outcome(&table, &keys, &import(&latencies)) {
            Ok(outcome)
        } else {
            let behind_s = (count - number - 1) as u64 * run_seconds(times);
            match one_cell(directory, state, &cell, options, behind_s) {
                Ok(outcome) => {
                    export(&latencies, &outcome)?;
                    let workers = outcome.nodes.iter().map(|node| node.workers).sum();
                    let qos = limit_iops(&cell.profile);
                    let run = RunDescription {
                        label: cell.label.clone(),
                        keys,
                        qos,
                        workers,
                        ..RunDescription::default()
                    };
                    append(&file, &run, &outcome)?;
                    Ok(outcome)
                }
                Err(failure) if failure.exit_status == 130 => return Err(failure),
                Err(failure) => Err(failure.message),
            }
        };
        say(&cell_line(number + 1, count, &cell, &result));
        results.push(CellResult { cell, result });
    }
    Ok(results)
}

fn one_cell(
    directory: &Path,
    state: &State,
    cell: &Cell,
    options: &Run,
    behind_s: u64,
) -> Result<Outcome, Failure> {
    // The papers' machines ran where their volumes were.
    let state = State {
        workers_per_node: cell.workers_per_node,
        transport: cell.transport,
        alignment_percent: 100,
        ..state.clone()
    };
    let count = if cell.nodes == 0 { state.nodes.len() } else { cell.nodes as usize };
    let ready = Ready::new(directory, &state, &options.durations);
    ready.run_whole(&cell.label, &cell.profile, (0..count).collect(), behind_s)
}

fn cell_line(number: usize, count: usize, cell: &Cell, result: &Result<Outcome, String>) -> String {
    let what = match result {
        Err(why) => format!("skipped: {why}"),
        Ok(outcome) => {
            let latency = outcome.total_latency();
            let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
            format!(
                "{:>11} IOPS {:>9.1} MB/s  mean {} ms, 99 % {} ms  CPU {:.0} %  {}",
                commas(outcome.iops()),
                outcome.bytes_per_s() / 1e6,
                ms(latency.mean_ms),
                ms(latency.p99_ms),
                outcome.cpu_percent.unwrap_or(0.0),
                outcome.transport
            )
        }
    };
    format!("{number:>3}/{count}  {:<20} {what}", cell.label)
}

/// Keeps a cell's latencies beside its row, as DiskSpd's `--histogram` writes them.
fn export(path: &Path, outcome: &Outcome) -> Result<(), Failure> {
    let text = histogram::lines(&outcome.read_histogram, &outcome.write_histogram);
    replace(path, text.as_bytes(), 0o644)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Latencies that were kept; none if they are not there or not whole: the cell is then measured again.
fn import(path: &Path) -> Option<row::Histograms> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(crate::tsv::BYTES_MAX).read_to_string(&mut text).ok()?;
    histogram::import(&text).ok()
}

fn write_report(experiment: &Experiment, results: &[CellResult], out: &Path) -> Result<(), Failure> {
    let figures = report::figures(experiment, results);
    let write = |name: &str, text: &str| -> Result<PathBuf, Failure> {
        let path = out.join(name);
        replace(&path, text.as_bytes(), 0o644)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(path)
    };
    for figure in &figures {
        write(&figure.file, &figure.svg)?;
    }
    if let (Some(CellResult { result: Ok(outcome), .. }), "seed-001") = (results.first(), experiment.name)
        && outcome.nodes.iter().all(|node| !node.node.is_empty())
    {
        say(&summary(outcome));
    }
    let path = write("report.md", &report::report(experiment, results, &figures, &machine()))?;
    let measured = results.iter().filter(|one| one.result.is_ok()).count();
    say(&format!(
        "{measured} of {} cells were measured; {}, {} and {} figures are in {}",
        results.len(),
        RESULT_FILE,
        path.file_name().unwrap_or_default().to_string_lossy(),
        figures.len(),
        out.display()
    ));
    if measured == 0 {
        return Err(Failure::new("no cell was measured; the lines above say why"));
    }
    Ok(())
}

/// Transports in words, for messages.
pub fn show_transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Auto => "SMB Direct if all nodes have it, else TCP",
        Transport::Tcp => "TCP",
        Transport::Rdma => "SMB Direct",
    }
}

/// Options of a run that a test makes.
#[cfg(test)]
pub fn options(workload: &str) -> Run {
    use crate::args;
    use clap::Parser;
    let cli = args::Cli::parse_from(["fleet", "run", workload]);
    match cli.command {
        args::Command::Run(run) => run,
        _ => unreachable!("run was parsed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    fn description(cell: &str) -> RunDescription {
        RunDescription {
            label: cell.into(),
            keys: vec![("Cell".into(), cell.into())],
            ..RunDescription::default()
        }
    }

    #[test]
    fn rows_are_appended_below_one_header_and_a_torn_line_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(RESULT_FILE);
        append(&path, &description("a"), &outcome()).unwrap();
        append(&path, &description("b"), &outcome()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        fs::write(&path, format!("{text}\"c\"\t\"half")).unwrap();
        assert_eq!(read_table(&path).unwrap().rows.len(), 2);
        append(&path, &description("c"), &outcome()).unwrap();
        let table = read_table(&path).unwrap();
        assert_eq!(table.rows.len(), 3);
        let other = RunDescription { keys: vec![("Other".into(), "x".into())], ..description("d") };
        assert!(append(&path, &other, &outcome()).unwrap_err().message.contains("other columns"));
    }

    #[test]
    fn a_cell_that_was_measured_is_read_again_with_its_latencies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(RESULT_FILE);
        let latencies = directory.path().join("a.histogram");
        let measured = outcome();
        append(&path, &description("a"), &measured).unwrap();
        let table = read_table(&path).unwrap();
        let keys = description("a").keys;
        assert!(
            row::outcome(&table, &keys, &import(&latencies)).is_none(),
            "without its latencies it is measured again"
        );
        export(&latencies, &measured).unwrap();
        let again = row::outcome(&table, &keys, &import(&latencies)).unwrap();
        assert!((again.iops() - measured.iops()).abs() < 0.001);
        assert_eq!(again.total_latency().p99_ms, measured.total_latency().p99_ms);
        assert_eq!(again.transport, "TCP");
        assert!(row::outcome(&table, &description("b").keys, &import(&latencies)).is_none());
    }

    #[test]
    fn an_experiment_takes_no_other_profile() {
        let directory = tempfile::tempdir().unwrap();
        let mut changed = options("seed-001");
        changed.shape.write = Some(50);
        let failure = run(directory.path(), &changed).unwrap_err();
        assert!(failure.message.contains("only --block"), "{failure}");
    }
}
