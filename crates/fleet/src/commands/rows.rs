//! report.md of a sweep and of a search: all rows of result.tsv as tables, the fits, and a figure.

use super::run::{RESULT_FILE, read_table};
use super::show::{Group, GroupFit, groups, notes};
use super::{Failure, machine};
use crate::plot::{self, Line, Words};
use crate::state::replace;
use crate::table::commas;
use std::fmt::Write;
use std::path::Path;

const FIGURE_FILE: &str = "iops.svg";
/// Lines of a figure: more would be hard to tell apart by colours.
const LINES_MAX: usize = 7;

/// The kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sweep,
    Measure,
}

impl Kind {
    const fn title(self) -> &'static str {
        match self {
            Self::Sweep => "fleet sweep: every combination",
            Self::Measure => "fleet measure: IOPS by CPU use",
        }
    }

    const fn below(self) -> &'static str {
        match self {
            Self::Sweep => "requests in flight of a worker",
            Self::Measure => "CPU use, percent",
        }
    }
}

/// Writes report.md and its figure beside result.tsv; prints nothing if there is no row.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_report(kind: Kind, out: &Path) -> Result<(), Failure> {
    let groups = groups(&read_table(&out.join(RESULT_FILE))?, None);
    if groups.is_empty() {
        return Ok(());
    }
    let lines = lines(kind, &groups);
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        replace(&path, text.as_bytes(), 0o644)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    };
    if !lines.is_empty() {
        let words = Words { title: kind.title(), below: kind.below(), beside: "I/O per s" };
        let is_log = kind == Kind::Sweep;
        write(FIGURE_FILE, &plot::lines(&words, is_log, |x| format!("{x:.0}"), &lines))?;
    }
    write("report.md", &report(kind, &groups, !lines.is_empty(), &machine()))
}

/// The lines of the figure: of a sweep one for each block size, write ratio and pattern, over the requests in flight; of searches one for each.
fn lines(kind: Kind, groups: &[Group]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for group in groups {
        let (name, points) = match kind {
            Kind::Sweep => series(group),
            Kind::Measure => {
                let points = group.rows.iter().filter_map(|row| Some((row.cpu_percent?, row.iops)));
                (value(group, "Workload").to_owned() + &aligned(group), points.collect())
            }
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.extend(points),
            None => lines.push(Line { name, points }),
        }
    }
    lines.retain(|line| !line.points.is_empty());
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines.truncate(LINES_MAX);
    lines
}

fn series(group: &Group) -> (String, Vec<(f64, f64)>) {
    let number = |name: &str| value(group, name).parse::<f64>().unwrap_or(1.0);
    let limit = match value(group, "Iops") {
        "" => String::new(),
        iops => format!(", at most {iops}"),
    };
    let name = format!(
        "{:.0} KiB, {} % writes, {}{limit}{}",
        number("BlockSize") / 1024.0,
        value(group, "WriteRatio"),
        value(group, "Pattern"),
        aligned(group)
    );
    let in_flight = number("Threads") * number("Outstanding");
    (name, group.rows.iter().map(|row| (in_flight, row.iops)).collect())
}

fn aligned(group: &Group) -> String {
    match value(group, "VMAlignmentPct") {
        "" | "100" => String::new(),
        percent => format!(", alignment {percent} %"),
    }
}

fn value<'a>(group: &'a Group, key: &str) -> &'a str {
    group.keys.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str())
}

fn report(kind: Kind, groups: &[Group], has_figure: bool, machine: &str) -> String {
    let mut text = format!("# {}\n\nMeasured on {machine}\n", kind.title());
    if has_figure {
        let _ = write!(text, "\n![{}]({FIGURE_FILE})\n", kind.title());
    }
    match kind {
        Kind::Sweep => {
            text += "\n";
            text += HEADER;
            groups.iter().for_each(|group| rows(&mut text, group));
        }
        Kind::Measure => {
            for group in groups {
                let _ = write!(text, "\n## {}{}\n\n{HEADER}", value(group, "Workload"), aligned(group));
                rows(&mut text, group);
                for (whose, found) in [("CPU", &group.fit), ("the servers' CPU", &group.server_fit)] {
                    text += &found.as_ref().map_or_else(String::new, |found| fit(whose, found));
                }
            }
        }
    }
    let notes = notes(groups);
    if !notes.is_empty() {
        text += "\n## Notes of the runs\n\n";
        for (labels, note) in notes {
            let _ = writeln!(text, "- {labels}: {note}");
        }
    }
    text += "\nLatencies are means of the workers'. CPU is of the machines that workers ran on, servers included. result.tsv has all columns.\n";
    text
}

const HEADER: &str = "| run | type | cutoff | limit a worker | IOPS | CPU | of it servers | read ms | write ms |\n|---|---|---|---|---|---|---|---|---|\n";

fn rows(text: &mut String, group: &Group) {
    let decimal = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} %"));
    for row in &group.rows {
        let limit = if row.qos > 0.0 { format!("{:.0}", row.qos) } else { "none".to_owned() };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {limit} | {} | {} | {} | {} | {} |",
            row.label,
            row.run_type,
            row.cutoff,
            commas(row.iops),
            percent(row.cpu_percent),
            percent(row.server_cpu_percent),
            decimal(row.read_ms),
            decimal(row.write_ms)
        );
    }
}

fn fit(whose: &str, fit: &GroupFit) -> String {
    let [none, once, twice] = fit.a;
    let background = fit
        .background_cpu_percent
        .map_or_else(String::new, |cpu| format!("; without load {cpu:.1} % by the fit"));
    format!(
        "\nBy {whose}: IOPS = {none:.1} {once:+.2} CPU {twice:+.4} CPU², R² {:.2} %{background}.\n",
        fit.r_squared * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::append;
    use crate::outcome::tests::outcome;
    use crate::row::RunDescription;
    use std::fs;

    fn reported(kind: Kind, keys: &[&[(&str, &str)]]) -> (String, String) {
        let directory = tempfile::tempdir().unwrap();
        for (number, keys) in keys.iter().enumerate() {
            let mut measured = outcome();
            measured.read.iops *= 1.0 + number as f64;
            measured.cpu_percent = Some(10.0 + 10.0 * number as f64);
            let keys = keys.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let run = RunDescription { label: format!("run-{number}"), keys, ..RunDescription::default() };
            append(&directory.path().join(RESULT_FILE), &run, &measured).unwrap();
        }
        write_report(kind, directory.path()).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        (read("report.md"), read(FIGURE_FILE))
    }

    #[test]
    fn a_sweep_has_a_row_for_each_run_and_a_line_for_each_kind() {
        let one = |threads: &'static str, write: &'static str| {
            [
                ("BlockSize", "4096"),
                ("Threads", threads),
                ("Outstanding", "8"),
                ("WriteRatio", write),
                ("Pattern", "r"),
            ]
        };
        let (text, figure) = reported(Kind::Sweep, &[&one("1", "0"), &one("2", "0"), &one("1", "30")]);
        assert!(
            text.contains("| run-0 |") && text.contains("| run-2 |") && text.contains("(iops.svg)"),
            "{text}"
        );
        assert!(
            figure.contains("4 KiB, 0 % writes, r") && figure.contains("4 KiB, 30 % writes, r"),
            "{figure}"
        );
    }

    #[test]
    fn a_search_has_its_fit() {
        let keys: &[(&str, &str)] = &[("Workload", "Peak"), ("VMAlignmentPct", "100")];
        let (text, figure) = reported(Kind::Measure, &[keys, keys, keys, keys]);
        assert!(text.contains("## Peak\n") && text.contains("By CPU: IOPS = "), "{text}");
        assert!(figure.contains("CPU use, percent"), "{figure}");
    }

    #[test]
    fn nothing_measured_is_no_report() {
        let directory = tempfile::tempdir().unwrap();
        write_report(Kind::Sweep, directory.path()).unwrap();
        assert!(!directory.path().join("report.md").exists());
    }
}
