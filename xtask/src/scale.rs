//! `cargo xtask scale [--out DIR]`: costs of operations and events by the number of servers, counted by
//! the simulator (`sim::scale`), as a table in docs/SCALE.md and a figure beside it.
//!
//! Each number of servers has a process of its own, for its memory is counted. Instructions are counted
//! by Valgrind if it is installed; without it the rows of the last time are left out. Promises: reports
//! of each row whether it is flat, at most a tenth more than with two servers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const NODES: [u32; 4] = [2, 4, 8, 16];
/// Operations of which instructions are counted.
const COUNTED: u64 = 2_000;
const GROWTH_MAX: f64 = 1.1;
const BEGIN: &str = "<!-- measured: cargo xtask scale -->";
const END: &str = "<!-- end -->";

/// A row: its name in the simulator's output, its words, how its values are divided, and decimals.
const ROWS: [(&str, &str, f64, usize); 19] = [
    ("read_instructions", "a 4 KiB read: instructions, thousands", 1e3, 1),
    ("write_instructions", "a 4 KiB write: instructions, thousands", 1e3, 1),
    ("read_ns", "a read: processor time, us", 1e3, 2),
    ("write_ns", "a write: processor time, us", 1e3, 2),
    ("read_requests", "a read: requests to disks", 1.0, 2),
    ("read_far", "... of them to other servers", 1.0, 2),
    ("write_requests", "a write: requests to disks", 1.0, 2),
    ("write_far", "... of them to other servers", 1.0, 2),
    ("idle_requests", "a server at rest: requests to disks a second", 1.0, 1),
    ("idle_changes", "all at rest: changes of the cluster state in ten seconds", 1.0, 0),
    ("disk_lost_changes", "a disk is lost: changes of a volume's record", 1.0, 2),
    ("node_lost_changes", "a server is lost: changes of a volume's record", 1.0, 2),
    ("takeover_changes", "... of the record of the volume that it served", 1.0, 0),
    ("node_back_changes", "a server is back: changes of a volume's record", 1.0, 2),
    ("heartbeats", "a server: heartbeats sent a second", 1.0, 0),
    ("heartbeat_bytes", "... their bytes", 1.0, 0),
    ("opening_requests", "a volume is opened: requests to disks", 1.0, 0),
    ("state_bytes", "the cluster state: KB for each server", 1e3, 1),
    ("memory_bytes", "memory: KB for each server, without data", 1e3, 0),
];
/// Rows of the figure.
const LINES: [&str; 6] = [
    "read_instructions",
    "write_instructions",
    "read_requests",
    "node_lost_changes",
    "opening_requests",
    "state_bytes",
];
const COLOURS: [&str; 6] = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#333333"];

type Values = BTreeMap<String, f64>;

pub fn run(arguments: &[String]) -> ExitCode {
    let out = match arguments {
        [] => PathBuf::from("docs"),
        [option, directory] if option == "--out" => PathBuf::from(directory),
        _ => {
            eprintln!("usage: cargo xtask scale [--out DIR]");
            return ExitCode::from(2);
        }
    };
    match measure().and_then(|measured| write(&out, &measured)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("scale: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<Vec<Values>, String> {
    let build = ["build", "--release", "--quiet", "--package", "cenote-sim", "--bin", "scale"];
    let built = Command::new("cargo").args(build).status().map_err(|error| error.to_string())?;
    if !built.success() {
        return Err("the simulator is not built".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let program = target.join("release/scale");
    NODES.iter().map(|nodes| of(&program, *nodes)).collect()
}

fn of(program: &Path, nodes: u32) -> Result<Values, String> {
    eprintln!("scale: {nodes} servers");
    let output = Command::new(program).arg(nodes.to_string()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut values: Values = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect();
    for (name, writes) in [("read_instructions", "0"), ("write_instructions", "100")] {
        if let Some(instructions) = instructions(program, nodes, writes) {
            values.insert(name.to_owned(), instructions);
        }
    }
    Ok(values)
}

/// Instructions of one operation; `None` without Valgrind.
fn instructions(program: &Path, nodes: u32, writes: &str) -> Option<f64> {
    let (nodes, operations) = (nodes.to_string(), COUNTED.to_string());
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*measured_operations*")
        .arg(program)
        .args([&nodes, "--operations", &operations, "--writes", writes])
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = told.lines().find_map(|line| line.split_once("Collected : "))?.1;
    Some(collected.trim().parse::<f64>().ok()? / COUNTED as f64)
}

/// Writes the figure, and the table into SCALE.md; answers the table.
fn write(out: &Path, measured: &[Values]) -> Result<String, String> {
    let table = table(measured);
    fs::create_dir_all(out).map_err(|error| error.to_string())?;
    let path = out.join("SCALE.md");
    let before = fs::read_to_string(&path).unwrap_or_else(|_| format!("# Scale\n\n{BEGIN}\n{END}\n"));
    let (head, rest) = before.split_once(BEGIN).ok_or(format!("{}: no line {BEGIN}", path.display()))?;
    let (_, tail) = rest.split_once(END).ok_or(format!("{}: no line {END}", path.display()))?;
    fs::write(&path, format!("{head}{BEGIN}\n\n{table}\n{END}{tail}")).map_err(|error| error.to_string())?;
    fs::write(out.join("scale.svg"), figure(measured)).map_err(|error| error.to_string())?;
    Ok(table)
}

/// Growth of a row: its value with the most servers, by that with the fewest; `None`: it was not
/// measured, or is 0 at first.
fn growth(measured: &[Values], name: &str) -> Option<f64> {
    let (first, last) = (measured.first()?.get(name)?, measured.last()?.get(name)?);
    if first == last {
        return Some(1.0);
    }
    (*first > 0.0).then_some(last / first)
}

fn table(measured: &[Values]) -> String {
    let mut text = String::from("| servers |");
    NODES.iter().for_each(|nodes| {
        let _ = write!(text, " {nodes} |");
    });
    text += " from 2 to 16 |\n|---|---|---|---|---|---|\n";
    for (name, words, divisor, decimals) in ROWS {
        if !measured.iter().all(|values| values.contains_key(name)) {
            continue;
        }
        let _ = write!(text, "| {words} |");
        for values in measured {
            let _ = write!(text, " {:.decimals$} |", values[name] / divisor);
        }
        let grown = match growth(measured, name) {
            Some(growth) if growth <= GROWTH_MAX => "flat".to_owned(),
            Some(growth) => format!("times {growth:.1}"),
            None => "grows".to_owned(),
        };
        let _ = writeln!(text, " {grown} |");
    }
    text
}

/// Lines over the number of servers, each by its value with two.
fn figure(measured: &[Values]) -> String {
    let (left, top, wide, high) = (60.0, 40.0, 460.0, 280.0);
    const MOST: f64 = 8.0;
    let x = |place: usize| left + wide * place as f64 / (NODES.len() - 1) as f64;
    let y = |value: f64| top + high * (1.0 - value.min(MOST) / MOST);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 380\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"780\" height=\"380\" fill=\"#fff\"/>\n<text x=\"60\" y=\"24\" font-size=\"15\">What a server costs, by the number of servers; with two it is 1</text>\n",
    );
    for step in 0..=MOST as u32 {
        let at = y(f64::from(step));
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}h{wide}\" stroke=\"#ddd\"/><text x=\"50\" y=\"{:.1}\" text-anchor=\"end\">{step}</text>",
            at + 4.0
        );
    }
    for (place, nodes) in NODES.iter().enumerate() {
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"340\" text-anchor=\"middle\">{nodes}</text>", x(place));
    }
    svg += "<text x=\"290\" y=\"364\" text-anchor=\"middle\">servers</text>\n";
    for (number, (name, colour)) in LINES.iter().zip(COLOURS).enumerate() {
        let first = measured.first().and_then(|values| values.get(*name)).copied().unwrap_or_default();
        let values: Vec<f64> =
            measured.iter().filter_map(|values| values.get(*name)).map(|value| value / first).collect();
        if first <= 0.0 || values.len() != NODES.len() {
            continue;
        }
        let points: Vec<String> =
            values.iter().enumerate().map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value))).collect();
        let words = ROWS.iter().find(|row| row.0 == *name).map_or("", |row| row.1);
        let (dashes, row) = (2 + 3 * number, 60.0 + 24.0 * number as f64);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes} 2\"/>",
            points.join(" ")
        );
        let _ = writeln!(
            svg,
            "<path d=\"M530 {row}h20\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes} 2\"/><text x=\"556\" y=\"{}\" font-size=\"10\">{words}</text>",
            row + 4.0
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(reads: f64, far: f64, state: f64) -> Values {
        [("read_requests", reads), ("read_far", far), ("state_bytes", state)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    #[test]
    fn the_table_says_what_is_flat_and_by_how_much_the_rest_grows() {
        let measured =
            [values(1.0, 0.0, 1e3), values(1.0, 0.5, 2e3), values(1.0, 0.7, 4e3), values(1.05, 0.9, 8e3)];
        let table = table(&measured);
        assert!(
            table.contains("| a read: requests to disks | 1.00 | 1.00 | 1.00 | 1.05 | flat |"),
            "{table}"
        );
        assert!(
            table.contains("| ... of them to other servers | 0.00 | 0.50 | 0.70 | 0.90 | grows |"),
            "{table}"
        );
        assert!(table.contains("| 8.0 | times 8.0 |"), "{table}");
        let figure = figure(&measured);
        assert!(figure.matches("<polyline").count() == 2 && figure.ends_with("</svg>\n"), "{figure}");
    }

    #[test]
    fn only_what_was_measured_is_written_anew() {
        let out = std::env::temp_dir().join(format!("xtask-scale-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("SCALE.md"), format!("# Scale\nwords\n{BEGIN}\nold\n{END}\nmore\n")).unwrap();
        write(&out, &[const { Values::new() }; 4]).unwrap();
        let text = fs::read_to_string(out.join("SCALE.md")).unwrap();
        fs::remove_dir_all(&out).unwrap();
        assert!(
            text.starts_with("# Scale\nwords\n") && text.ends_with("more\n") && !text.contains("old"),
            "{text}"
        );
    }
}
