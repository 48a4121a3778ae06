//! How results look: aligned tables, JSON, colours on terminals only.
//!
//! Promises: JSON is exactly what the API answered. Never decides what is shown.

use crate::cli::client::Failure;
use anstream::{eprint, println};
use api::model::Health;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use owo_colors::OwoColorize;
use serde::Serialize;
use std::io::{BufRead, IsTerminal};

/// One column: its head, and whether it holds numbers.
pub struct Column(pub &'static str, pub Align);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Prints rows, or `empty` where there are none.
pub fn table(columns: &[Column], rows: Vec<Vec<String>>, empty: &str) {
    if rows.is_empty() {
        println!("{empty}");
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Cut to the terminal's width there, never in a pipe.
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.iter().map(|column| column.0));
    table.add_rows(rows);
    for (at, column) in columns.iter().enumerate() {
        if let Some(shown) = table.column_mut(at) {
            shown.set_padding((0, 2));
            if column.1 == Align::Right {
                shown.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    for line in table.to_string().lines() {
        println!("{}", line.trim_end());
    }
}

/// Prints name and value, a pair a line.
pub fn pairs(pairs: &[(&str, String)]) {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in pairs {
        println!("{name:width$}  {value}");
    }
}

/// # Errors
/// Where the value does not serialize.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    println!("{text}");
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

pub fn health(health: Health) -> String {
    let text = word(health);
    match health {
        Health::Healthy => text.green().to_string(),
        Health::Warning => text.yellow().to_string(),
        Health::Unhealthy => text.red().bold().to_string(),
    }
}

/// Asks for the name of what will be destroyed, unless it was given (I8).
///
/// # Errors
/// Where another name was given, or there is nobody to ask.
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
