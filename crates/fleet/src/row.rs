//! A row of result.tsv: VMFleet's columns in VMFleet's order, then our own.

use crate::outcome::{Latencies, NodeOutcome, Outcome, Side, VolumeFigures};
use crate::search::{Cutoff, Figures, Measured, RunType};
use crate::tsv::{self, Table};
use diskspd::statistics::Histogram;
use std::fmt::Write;

/// Description of a run beside its figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunDescription {
    pub label: String,
    /// The columns by which rows of one search are found again.
    pub keys: Vec<(String, String)>,
    pub run_type: RunType,
    pub cutoff: Cutoff,
    /// The limit of one worker; 0: none.
    pub qos: u64,
    pub workers: u64,
}

/// Columns behind IOPS, as VMFleet's are: in lexical order.
const FIGURES: [&str; 20] = [
    "AverageCPU",
    "AverageCSVIOPS",
    "AverageCSVReadBW",
    "AverageCSVReadIOPS",
    "AverageCSVReadMilliseconds",
    "AverageCSVWriteBW",
    "AverageCSVWriteIOPS",
    "AverageCSVWriteMilliseconds",
    "AverageReadBW",
    "AverageReadIOPS",
    "AverageReadMilliseconds",
    "AverageWriteBW",
    "AverageWriteIOPS",
    "AverageWriteMilliseconds",
    "ReadMilliseconds50",
    "ReadMilliseconds90",
    "ReadMilliseconds99",
    "WriteMilliseconds50",
    "WriteMilliseconds90",
    "WriteMilliseconds99",
];
/// Columns that VMFleet does not have, at the end.
const OWN: [&str; 6] = [
    "TotalMilliseconds999",
    "AboveVolumeReadMilliseconds",
    "AboveVolumeWriteMilliseconds",
    "ServerCPU",
    "Transport",
    NOTES,
];
/// Facts that readers must know, several joined by [`NOTES_BETWEEN`].
pub const NOTES: &str = "Notes";
pub const NOTES_BETWEEN: &str = " | ";
const BEFORE_KEYS: &str = "RunLabel";
const AFTER_KEYS: [&str; 5] = ["RunType", "CutoffType", "QOSperVM", "VMCount", "IOPS"];

/// The header of a table whose rows have these keys.
pub fn header(keys: &[(String, String)]) -> String {
    let keys = keys.iter().map(|(name, _)| name.as_str());
    let columns = std::iter::once(BEFORE_KEYS).chain(keys).chain(AFTER_KEYS).chain(FIGURES).chain(OWN);
    tsv::line(columns)
}

fn number(value: f64) -> String {
    let mut text = String::new();
    let _ = write!(text, "{value:.3}");
    text
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

fn side(side: &Side, latency: &Latencies) -> [String; 6] {
    [
        number(side.bytes_per_s),
        number(side.iops),
        optional(latency.mean_ms),
        optional(latency.p50_ms),
        optional(latency.p90_ms),
        optional(latency.p99_ms),
    ]
}

/// A line of result.tsv.
pub fn line(run: &RunDescription, outcome: &Outcome) -> String {
    let [read_bw, read_iops, read_ms, read_50, read_90, read_99] =
        side(&outcome.read, &outcome.read_latency());
    let [write_bw, write_iops, write_ms, write_50, write_90, write_99] =
        side(&outcome.write, &outcome.write_latency());
    let volume = outcome.volume.clone().unwrap_or_default();
    let known = |value: f64| outcome.volume.as_ref().map_or_else(String::new, |_| number(value));
    let mut values = vec![run.label.clone()];
    values.extend(run.keys.iter().map(|(_, value)| value.clone()));
    values.extend([
        run.run_type.to_string(),
        run.cutoff.to_string(),
        run.qos.to_string(),
        run.workers.to_string(),
    ]);
    values.push(number(outcome.iops()));
    values.extend([
        optional(outcome.cpu_percent),
        known(volume.read.iops + volume.write.iops),
        known(volume.read.bytes_per_s),
        known(volume.read.iops),
        optional(volume.read_ms),
        known(volume.write.bytes_per_s),
        known(volume.write.iops),
        optional(volume.write_ms),
        read_bw,
        read_iops,
        read_ms,
        write_bw,
        write_iops,
        write_ms,
        read_50,
        read_90,
        read_99,
        write_50,
        write_90,
        write_99,
        optional(outcome.total_latency().p999_ms),
    ]);
    let (read_above, write_above) = outcome.above_volume_ms();
    values.extend([
        optional(read_above),
        optional(write_above),
        optional(volume.cpu_percent),
        outcome.transport.clone(),
        outcome.notes.join(NOTES_BETWEEN),
    ]);
    tsv::line(values.iter().map(String::as_str))
}

/// The inputs of a search from the rows of a table that have these keys, in their order.
pub fn measured(table: &Table, keys: &[(String, String)]) -> Vec<Measured> {
    let mut found = Vec::new();
    for row in &table.rows {
        if !keys.iter().all(|(name, value)| table.value(row, name) == Some(value)) {
            continue;
        }
        let figure = |name: &str| table.value(row, name).and_then(|value| value.parse::<f64>().ok());
        let word = |name: &str| table.value(row, name).unwrap_or_default();
        let (Some(run_type), Some(cutoff)) =
            (RunType::parse(word("RunType")), Cutoff::parse(word("CutoffType")))
        else {
            continue;
        };
        let (Some(qos), Some(iops)) = (figure("QOSperVM"), figure("IOPS")) else { continue };
        found.push(Measured {
            run_type,
            cutoff,
            qos: qos as u64,
            iops,
            cpu_percent: figure("AverageCPU").unwrap_or(0.0),
        });
    }
    found
}

/// The notes of a row; tables of earlier versions have none.
pub fn notes(table: &Table, row: &[String]) -> impl Iterator<Item = String> {
    let text = table.value(row, NOTES).unwrap_or_default();
    text.split(NOTES_BETWEEN)
        .filter(|note| !note.is_empty())
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Read and write latencies that were kept beside a row.
pub type Histograms = (Histogram, Histogram);

/// Returns the outcome of the row that has these keys, without its nodes; `None` if there is no row, or
/// no latencies for it.
pub fn outcome(table: &Table, keys: &[(String, String)], latencies: &Option<Histograms>) -> Option<Outcome> {
    let (read_histogram, write_histogram) = latencies.clone()?;
    let is_meant =
        |row: &&Vec<String>| keys.iter().all(|(name, value)| table.value(row, name) == Some(value));
    let row = table.rows.iter().rfind(is_meant)?;
    let figure = |name: &str| table.value(row, name).and_then(|value| value.parse::<f64>().ok());
    let side = |word: &str| -> Option<Side> {
        let (iops, bytes_per_s) =
            (figure(&format!("Average{word}IOPS"))?, figure(&format!("Average{word}BW"))?);
        Some(Side { iops, bytes_per_s })
    };
    let volume = side("CSVRead").zip(side("CSVWrite")).map(|(read, write)| VolumeFigures {
        read,
        write,
        read_ms: figure("AverageCSVReadMilliseconds"),
        write_ms: figure("AverageCSVWriteMilliseconds"),
        cpu_percent: figure("ServerCPU"),
    });
    let earlier =
        format!("{} was measured by an earlier run", table.value(row, "RunLabel").unwrap_or_default());
    let workers = figure("VMCount")? as u64;
    // A row does not keep the nodes' shares.
    let node = NodeOutcome { workers, ..NodeOutcome::default() };
    Some(Outcome {
        nodes: vec![node],
        read: side("Read")?,
        write: side("Write")?,
        read_histogram,
        write_histogram,
        cpu_percent: figure("AverageCPU"),
        volume,
        transport: table.value(row, "Transport").unwrap_or_default().to_owned(),
        notes: notes(table, row).chain(std::iter::once(earlier)).collect(),
        is_interrupted: false,
    })
}

/// Figures of an outcome that cutoffs judge.
pub fn figures(outcome: &Outcome) -> Figures {
    Figures {
        iops: outcome.iops(),
        cpu_percent: outcome.cpu_percent.unwrap_or(0.0),
        read_ms: outcome.read_latency().mean_ms,
        write_ms: outcome.write_latency().mean_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    fn run(label: &str, workload: &str, qos: u64) -> RunDescription {
        RunDescription {
            label: label.into(),
            keys: vec![("Workload".into(), workload.into()), ("VMAlignmentPct".into(), "100".into())],
            qos,
            workers: 44,
            ..RunDescription::default()
        }
    }

    #[test]
    fn columns_stand_as_vmfleets_do() {
        let header = header(&run("", "", 0).keys);
        let columns: Vec<&str> = header.trim_end().split('\t').collect();
        assert_eq!(
            columns[..8],
            [
                "\"RunLabel\"",
                "\"Workload\"",
                "\"VMAlignmentPct\"",
                "\"RunType\"",
                "\"CutoffType\"",
                "\"QOSperVM\"",
                "\"VMCount\"",
                "\"IOPS\""
            ]
        );
        assert!(FIGURES.is_sorted());
    }

    #[test]
    fn rows_are_found_again_by_their_keys() {
        let outcome = outcome();
        let keys = run("", "", 0).keys;
        let mut text = header(&keys);
        text += &line(&run("x", "Peak", 0), &outcome);
        text += &line(&RunDescription { cutoff: Cutoff::Scale, ..run("x", "Peak", 900) }, &outcome);
        text += &line(&run("y", "General", 0), &outcome);
        let table = Table::parse(&text).unwrap();
        let peak = measured(&table, &run("", "Peak", 0).keys);
        assert_eq!(peak.len(), 2);
        assert_eq!((peak[1].qos, peak[1].cutoff), (900, Cutoff::Scale));
        assert!((peak[0].iops - outcome.iops()).abs() < 0.001);
        assert!((peak[0].cpu_percent - outcome.cpu_percent.unwrap()).abs() < 0.001);
        assert_eq!(measured(&table, &[("Nothing".into(), "x".into())]), []);
    }
}
