//! `fleet show`, `results`, `profile`, `man`: output only.

use super::life::running;
use super::run::{RESULT_FILE, read_table, show_transport};
use super::{Failure, profile_of, say};
use crate::args::{Cli, Shape};
use crate::fit::Fit;
use crate::row;
use crate::search::{Cutoff, RunType};
use crate::state::{Accelerator, State};
use crate::table::commas;
use crate::tsv::Table;
use crate::workload::{self, limit_iops};
use clap::CommandFactory;
use serde::Serialize;
use std::path::{Path, PathBuf};
use types::size::show_size;

pub fn show(directory: &Path, as_json: bool) -> Result<(), Failure> {
    let state = State::load(directory)?;
    if as_json {
        let text = serde_json::to_string_pretty(&state).map_err(|error| Failure::new(error.to_string()))?;
        say(&text);
        return Ok(());
    }
    let runs = running(&state).map_or_else(
        || "nothing".to_owned(),
        |running| format!("'{}', process {}", running.label, running.pid),
    );
    let template = state.template.map_or_else(
        || "held to nothing".to_owned(),
        |template| format!("{} processors, {} of memory", template.vcpus, show_size(template.memory_bytes)),
    );
    let place = match &state.microvms {
        None => "as processes".to_owned(),
        Some(microvms) => {
            let how = if microvms.accelerator == Accelerator::Kvm { "KVM" } else { "emulation" };
            format!("in QEMU machines by {how}")
        }
    };
    let qos = if state.qos == 0 { "none".to_owned() } else { format!("{} I/O per s", state.qos) };
    let mut text = format!("fleet    {}\nruns     {runs}\n", state.name);
    text += &format!(
        "workers  {} a node, {} of them run, each with a file of {}\n",
        state.workers_per_node,
        state.running_workers(),
        show_size(state.data_bytes)
    );
    text += &format!("worker   {template}, {place}; limit {qos}; by {}\n", show_transport(state.transport));
    text += &format!("placed   {} % of the workers where their volume is\n", state.alignment_percent);
    text += &format!(
        "cluster  {}\n\n",
        if state.is_cluster { "yes: workers ask the server that has their volume" } else { "no" }
    );
    for node in &state.nodes {
        text += &format!(
            "{:<16} {:<22} {:<22} share {:<20} on {}\n",
            node.name,
            node.smb,
            node.rdma.as_deref().unwrap_or("no SMB Direct"),
            node.share,
            node.host.as_deref().unwrap_or("this machine")
        );
    }
    say(&text);
    Ok(())
}

/// A search, or a list of runs, of one set of keys.
#[derive(Debug, Serialize)]
pub struct Group {
    pub keys: Vec<(String, String)>,
    pub rows: Vec<ResultRow>,
    /// IOPS = a0 + a1 CPU + a2 CPU^2, by the rows without baseline and cutoff.
    pub fit: Option<GroupFit>,
    /// The same by the CPU use of the servers alone, for machines that do other work besides.
    pub server_fit: Option<GroupFit>,
}

#[derive(Debug, Serialize)]
pub struct ResultRow {
    pub label: String,
    pub run_type: String,
    pub cutoff: String,
    pub qos: f64,
    pub iops: f64,
    pub cpu_percent: Option<f64>,
    pub server_cpu_percent: Option<f64>,
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct GroupFit {
    pub a: [f64; 3],
    pub r_squared: f64,
    pub background_cpu_percent: Option<f64>,
    /// IOPS at the CPU use that was asked for.
    target_iops: Option<f64>,
}

pub fn results(from: &Path, cpu_target: Option<f64>, as_json: bool) -> Result<(), Failure> {
    let path: PathBuf = if from.is_dir() { from.join(RESULT_FILE) } else { from.to_owned() };
    if !path.exists() {
        return Err(Failure::new(format!(
            "{} is not there: `fleet run`, `sweep` and `measure` write one",
            path.display()
        )));
    }
    let groups = groups(&read_table(&path)?, cpu_target);
    if as_json {
        say(&serde_json::to_string_pretty(&groups).map_err(|error| Failure::new(error.to_string()))?);
        return Ok(());
    }
    for group in &groups {
        let keys: Vec<String> = group.keys.iter().map(|(name, value)| format!("{name} {value}")).collect();
        say(&format!("{}\n{}", keys.join(", "), group_text(group, cpu_target)));
    }
    Ok(())
}

/// Rows with equal keys, in the order of their first.
pub fn groups(table: &Table, cpu_target: Option<f64>) -> Vec<Group> {
    // Keys stand between the label and the kind of the run.
    let end = table.columns.iter().position(|column| column == "RunType").unwrap_or(table.columns.len());
    let names = table.columns.get(1..end).unwrap_or_default();
    let mut groups: Vec<Group> = Vec::new();
    for row in &table.rows {
        let keys: Vec<(String, String)> = names.iter().cloned().zip(row.iter().skip(1).cloned()).collect();
        let number = |name: &str| table.value(row, name).and_then(|value| value.parse::<f64>().ok());
        let word = |name: &str| table.value(row, name).unwrap_or_default().to_owned();
        let shown = ResultRow {
            label: word("RunLabel"),
            run_type: word("RunType"),
            cutoff: word("CutoffType"),
            qos: number("QOSperVM").unwrap_or(0.0),
            iops: number("IOPS").unwrap_or(0.0),
            cpu_percent: number("AverageCPU"),
            server_cpu_percent: number("ServerCPU"),
            read_ms: number("AverageReadMilliseconds"),
            write_ms: number("AverageWriteMilliseconds"),
            notes: row::notes(table, row).collect(),
        };
        match groups.iter_mut().find(|group| group.keys == keys) {
            Some(group) => group.rows.push(shown),
            None => groups.push(Group { keys, rows: vec![shown], fit: None, server_fit: None }),
        }
    }
    for group in &mut groups {
        group.fit = fit(&group.rows, |row| row.cpu_percent, cpu_target);
        group.server_fit = fit(&group.rows, |row| row.server_cpu_percent, cpu_target);
    }
    groups
}

fn fit(rows: &[ResultRow], cpu: fn(&ResultRow) -> Option<f64>, cpu_target: Option<f64>) -> Option<GroupFit> {
    let good = rows.iter().filter(|row| {
        RunType::parse(&row.run_type) != Some(RunType::Baseline)
            && Cutoff::parse(&row.cutoff) == Some(Cutoff::No)
    });
    let points: Vec<(f64, f64)> = good.filter_map(|row| Some((cpu(row)?, row.iops))).collect();
    let fit = Fit::quadratic(&points)?;
    Some(GroupFit {
        a: fit.a,
        r_squared: fit.r_squared,
        background_cpu_percent: fit.background(),
        target_iops: cpu_target.map(|cpu| fit.at(cpu).max(0.0)),
    })
}

/// Each note once, with the labels of its rows: one, or the first and how many others.
pub fn notes(groups: &[Group]) -> Vec<(String, String)> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in groups.iter().flat_map(|group| &group.rows) {
        for note in &row.notes {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, labels)) => labels.push(&row.label),
                None => notes.push((note, vec![&row.label])),
            }
        }
    }
    let labels = |labels: &[&str]| match labels {
        [first] => (*first).to_owned(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
        [] => String::new(),
    };
    notes.into_iter().map(|(note, of)| (labels(&of), note.to_owned())).collect()
}

fn group_text(group: &Group, cpu_target: Option<f64>) -> String {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
    let mut text = format!(
        "  {:<28} {:<12} {:<12} {:>8} {:>12} {:>7} {:>9} {:>9}\n",
        "RUN", "TYPE", "CUTOFF", "LIMIT", "IOPS", "CPU %", "READ ms", "WRITE ms"
    );
    for row in &group.rows {
        text += &format!(
            "  {:<28} {:<12} {:<12} {:>8.0} {:>12} {:>7} {:>9} {:>9}\n",
            row.label,
            row.run_type,
            row.cutoff,
            row.qos,
            commas(row.iops),
            row.cpu_percent.map_or_else(|| "-".into(), |cpu| format!("{cpu:.1}")),
            optional(row.read_ms),
            optional(row.write_ms)
        );
    }
    for (labels, note) in notes(std::slice::from_ref(group)) {
        text += &format!("  note of {labels}: {note}\n");
    }
    for (whose, fit) in [("", &group.fit), ("the servers' ", &group.server_fit)] {
        text += &fit.as_ref().map_or_else(String::new, |fit| fit_text(whose, fit, cpu_target));
    }
    if cpu_target.is_some() && group.fit.is_none() && group.server_fit.is_none() {
        text += "  too few different measurements for a fit\n";
    }
    text
}

fn fit_text(whose: &str, fit: &GroupFit, cpu_target: Option<f64>) -> String {
    let mut text = format!(
        "  by {whose}CPU: IOPS = {:.1} {:+.2} CPU {:+.4} CPU^2, R^2 {:.2} %, between background and 100 % CPU\n",
        fit.a[0],
        fit.a[1],
        fit.a[2],
        fit.r_squared * 100.0
    );
    text += &match fit.background_cpu_percent {
        Some(cpu) => format!("    background, by the fit: {cpu:.1} %\n"),
        None => "    the fit has no CPU use at which nothing is done\n".to_owned(),
    };
    if let Some((cpu, iops)) = cpu_target.zip(fit.target_iops) {
        text += &format!("    at {cpu} % CPU: {} IOPS\n", commas(iops));
    }
    text
}

pub fn profile(name: Option<&str>, shape: &Shape) -> Result<(), Failure> {
    match name {
        Some(name) => {
            say(&diskspd::xml::profile(&profile_of(name, shape)?, 0));
            Ok(())
        }
        None => {
            for named in workload::NAMED {
                let limit = match limit_iops(&named.profile()) {
                    0 => String::new(),
                    iops => format!("  ({iops} I/O per s a worker)"),
                };
                say(&format!("{:<12} {}{limit}", named.name, named.line));
            }
            Ok(())
        }
    }
}

/// Writes fleet.1 and a page of each command.
pub fn man(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, directory).map_err(failed)?;
    say(&format!("man pages are in {}", directory.display()));
    Ok(())
}

fn write_page(command: &clap::Command, directory: &Path) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_page(verb, directory)?;
    }
    let man = clap_mangen::Man::new(command.clone());
    let mut file = std::fs::File::create(directory.join(man.get_filename()))?;
    man.render(&mut file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;
    use crate::row::{self, RunDescription};

    #[test]
    fn rows_of_one_search_have_one_fit() {
        let mut text = String::new();
        let keys = |name: &str| vec![("Workload".to_owned(), name.to_owned())];
        text += &row::header(&keys(""));
        for (name, scale) in [("a", 0.25), ("a", 0.5), ("b", 1.0), ("a", 1.0)] {
            let mut measured = outcome();
            measured.read.iops *= scale;
            measured.cpu_percent = Some(10.0 + scale * 50.0);
            text += &row::line(&RunDescription { keys: keys(name), ..RunDescription::default() }, &measured);
        }
        let found = groups(&Table::parse(&text).unwrap(), Some(35.0));
        assert_eq!(found.iter().map(|group| group.rows.len()).collect::<Vec<_>>(), [3, 1]);
        let fit = found[0].fit.as_ref().unwrap();
        assert!((fit.target_iops.unwrap() - 750.0).abs() < 1.0, "{fit:?}");
        assert!((fit.background_cpu_percent.unwrap() - 10.0).abs() < 0.1, "{fit:?}");
        assert!(found[1].fit.is_none());
        assert!(group_text(&found[0], Some(35.0)).contains("at 35 % CPU: 750 IOPS"));
    }

    #[test]
    fn every_command_has_a_man_page() {
        let directory = tempfile::tempdir().unwrap();
        man(directory.path()).unwrap();
        for page in ["fleet.1", "fleet-new.1", "fleet-measure.1", "fleet-watch.1"] {
            let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(!directory.path().join("fleet-worker.1").exists());
    }
}
