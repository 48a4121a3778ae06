//! Form of results: aligned tables, JSON, colours on terminals only.
//!
//! Promises: JSON has a schema in the API's document. Never decides what is shown.

use crate::printable::{eprint, eprintln, escaped_json, printable_cell, println};
use api::model::Health;
use api::printed::Message;
use api_client::Failure;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use owo_colors::OwoColorize;
use serde::Serialize;
use std::io::{BufRead, IsTerminal};

/// One column: its head, and whether it holds numbers.
pub struct Column(pub &'static str, pub Align);

/// Alignment of a column's cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Blanks between columns.
const GAP: usize = 2;

/// Chooses the columns that fit a terminal of `width`: all, or without the last ones; at least one.
/// Leaves empty columns out.
fn columns_shown(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<usize> {
    let mut room = width + GAP;
    let mut shown = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let longest = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let Some(longest @ 1..) = longest else { continue };
        let Some(left) = room.checked_sub(longest.max(column.0.len()) + GAP) else { break };
        room = left;
        shown.push(at);
    }
    if shown.is_empty() { vec![0] } else { shown }
}

/// Prints rows, or `empty` if there are none. A narrow terminal gets fewer columns, and the names of
/// the others.
pub fn table(columns: &[Column], rows: Vec<Vec<String>>, empty: &str) {
    if rows.is_empty() {
        println!("{empty}");
        return;
    }
    let clean = |row: Vec<String>| row.iter().map(|cell| printable_cell(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(clean).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    // A terminal that does not know its width reports 0.
    let width = table.width().filter(|width| *width > 0 && std::io::stdout().is_terminal());
    let shown = match width {
        Some(width) => columns_shown(columns, &rows, width.into()),
        None => (0..columns.len()).collect(),
    };
    let pick = |row: &[String]| -> Vec<String> {
        shown.iter().map(|at| row.get(*at).cloned().unwrap_or_default()).collect()
    };
    table.set_header(shown.iter().filter_map(|at| columns.get(*at)).map(|column| column.0));
    table.add_rows(rows.iter().map(|row| pick(row)));
    for (place, column) in shown.iter().filter_map(|at| columns.get(*at)).enumerate() {
        if let Some(cells) = table.column_mut(place) {
            cells.set_padding((0, GAP as u16));
            if column.1 == Align::Right {
                cells.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    for line in table.to_string().lines() {
        println!("{}", line.trim_end());
    }
    let cut = shown.last().map_or(0, |last| last + 1);
    let has_content = |at: &usize| rows.iter().any(|row| row.get(*at).is_some_and(|cell| !cell.is_empty()));
    let left_out: Vec<&str> = (cut..columns.len())
        .filter(has_content)
        .filter_map(|at| columns.get(at))
        .map(|column| column.0)
        .collect();
    if !left_out.is_empty() {
        eprintln!("{}", format!("no room for {}; --json has all", left_out.join(", ")).dimmed());
    }
}

/// Prints name and value, a pair a line.
pub fn pairs(pairs: &[(&str, String)]) {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in pairs {
        println!("{name:width$}  {}", printable_cell(value));
    }
}

/// # Errors
/// If the value does not serialize.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    anstream::println!("{}", escaped_json(text));
    Ok(())
}

/// Reports that something was done: as JSON, an object with the text.
///
/// # Errors
/// As [`json`].
pub fn say(as_json: bool, message: impl Into<String>) -> Result<(), Failure> {
    let message = message.into();
    if as_json {
        return json(&Message { message });
    }
    println!("{message}");
    Ok(())
}

/// Prints one JSON object as a line.
///
/// # Errors
/// As [`json`].
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(error.to_string()))?;
    anstream::println!("{}", escaped_json(text));
    Ok(())
}

/// A word of the model as people read it: `two_way_mirror` becomes `two-way mirror`.
pub fn word(value: impl Serialize) -> String {
    let text = serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default();
    match text.as_str() {
        "two_way_mirror" => "two-way mirror".into(),
        "three_way_mirror" => "three-way mirror".into(),
        _ => text.replace('_', " "),
    }
}

/// Writes a health status as a word in its colour: green, yellow or red.
pub fn health(health: Health) -> String {
    let text = word(health);
    match health {
        Health::Healthy => text.green().to_string(),
        Health::Warning => text.yellow().to_string(),
        Health::Unhealthy => text.red().bold().to_string(),
    }
}

/// `2026-01-31 12:00:00`, in UTC, of seconds since 1970.
pub fn show_utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day_of_month) = types::civil_date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02}")
}

/// Asks for the name of the thing to be destroyed, unless it was given (I8).
///
/// # Errors
/// Another name was given, or there is nobody to ask.
pub fn confirm(what: &str, name: &str, given: Option<&str>) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::new(format!("nothing was done: {why}")));
    match given {
        Some(given) if given == name => Ok(()),
        Some(given) => refused(&format!("--yes names '{given}', not '{name}'")),
        None if !std::io::stdin().is_terminal() => {
            refused(&format!("{what}; without a terminal to ask on, it needs --yes '{name}'"))
        }
        None => {
            eprint!("{}\nType '{name}' to go on: ", what.bold());
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            if read.is_ok() && line.trim_end_matches(['\n', '\r']) == name {
                Ok(())
            } else {
                refused("the name was not typed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, Column, columns_shown};

    #[test]
    fn a_narrow_terminal_shows_the_first_columns_whole() {
        let columns = ["PATH", "HEALTH", "EMPTY", "ID"].map(|name| Column(name, Align::Left));
        let rows = vec![["/dev/sdb", "healthy", "", "0123456789"].map(str::to_owned).to_vec()];
        // 8 + 2 + 7 + 2 + 10.
        assert_eq!(columns_shown(&columns, &rows, 29), [0, 1, 3]);
        assert_eq!(columns_shown(&columns, &rows, 28), [0, 1]);
        assert_eq!(columns_shown(&columns, &rows, 16), [0]);
        assert_eq!(columns_shown(&columns, &rows, 3), [0]);
    }
}
