//! Man pages: the command line's definition, and EXAMPLES, EXIT STATUS and FILES.
//!
//! Promises: the examples parse, and each command has one; tests hold both.

use super::args::Cli;
use api_client::Failure;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs::File;
use std::io;
use std::path::Path;

/// A line `# COMMAND` begins a command's examples: a line `$ ...` each, and its explanation below.
const EXAMPLES: &str = include_str!("examples.txt");

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "Done."),
    (
        "1",
        "The command was refused or failed: standard error says why and what to do. Also if a copy or removal left something out.",
    ),
    ("2", "The command line was not understood."),
    ("130", "Stopped by Ctrl-C (cenote smb); unfinished files were removed."),
];

const HEALTH_EXIT_STATUS: &[(&str, &str)] =
    &[("0", "Healthy."), ("1", "A warning."), ("2", "Unhealthy."), ("3", "The server is not reached.")];

const FILES: &[(&str, &str)] = &[
    ("/etc/cenote/cenote.toml", "The configuration of the packages' server, see cenote-serve(1)."),
    (
        "./cenote-data, /var/lib/cenote",
        "Data directories that the command tries if neither --data nor CENOTE_DATA names one.",
    ),
    ("DATA/api.address, DATA/api.token", "Address and token of the running server, for the command line."),
    ("DATA/audit.log", "Administrative and refused actions and logons, a JSON object a line."),
    ("DATA/secret.key", "The key to the passwords in the server's state: keep a copy elsewhere."),
];

const SMB_FILES: &[(&str, &str)] = &[(
    "The file of --credentials",
    "Lines username=NAME, password=PASSWORD and, if there is one, domain=NAME, as mount.cifs(8) reads them; mode 0600.",
)];

/// Writes the pages of all commands.
///
/// # Errors
/// The directory's.
pub fn write_all(directory: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "man pages cannot be written to {}: {error}; choose another directory",
            directory.display()
        ))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write(&command, directory).map_err(failed)
}

fn write(command: &Command, directory: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write(verb, directory)?;
    }
    let man = Man::new(command.clone());
    let mut file = File::create(directory.join(man.get_filename()))?;
    man.render(&mut file)?;
    sections(&name_of(command)).to_writer(&mut file)
}

/// Full name of a command, such as `cenote share create`.
fn name_of(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn sections(name: &str) -> Roff {
    let mut roff = Roff::new();
    let examples = examples_of(name);
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        for (line, what) in examples {
            roff.control("TP", []).text([bold(line)]).text([roman(what)]);
        }
    }
    let is_health = name == "cenote health";
    table(&mut roff, "EXIT STATUS", if is_health { HEALTH_EXIT_STATUS } else { EXIT_STATUS });
    let is_smb = name.starts_with("cenote smb");
    table(&mut roff, "FILES", if is_smb { SMB_FILES } else { FILES });
    if name != "cenote" {
        roff.control("SH", ["SEE ALSO"]).text([bold("cenote"), roman("(1)")]);
    }
    roff
}

fn table(roff: &mut Roff, title: &str, rows: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (left, right) in rows {
        roff.control("TP", []).text([bold(*left)]).text([roman(*right)]);
    }
}

/// Command lines and their explanations.
fn examples_of(name: &str) -> Vec<(&'static str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let of_command = EXAMPLES.lines().skip_while(|line| line.strip_prefix("# ") != Some(name)).skip(1);
    for line in of_command.take_while(|line| !line.starts_with("# ")) {
        if let Some(line) = line.strip_prefix("$ ") {
            found.push((line, String::new()));
        } else if let (Some((_, what)), words @ 1..) = (found.last_mut(), line.trim().len()) {
            what.reserve(words + 1);
            if !what.is_empty() {
                what.push(' ');
            }
            what.push_str(line.trim());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn leaves(command: &Command) -> Vec<String> {
        match command.has_subcommands() {
            true => command.get_subcommands().flat_map(leaves).collect(),
            false => vec![name_of(command)],
        }
    }

    fn all_leaves() -> Vec<String> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        leaves(&command)
    }

    /// Splits a line as a shell does: words, `'...'` and `"..."`; nothing behind a pipe, `>` or `#`.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if open == c => quote = None,
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        let end = words.iter().position(|word| matches!(word.as_str(), "|" | ">" | "#" | "<" | "&&"));
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    #[test]
    fn each_command_has_an_example_and_they_all_parse() {
        let leaves = all_leaves();
        for name in &leaves {
            let examples = examples_of(name);
            assert!(!examples.is_empty(), "examples.txt has none of '{name}'");
            for (line, what) in examples {
                assert!(!what.is_empty(), "'{line}' does not say what it does");
                let words = words(line);
                let begins: Vec<&str> = name.split(' ').collect();
                assert_eq!(words.iter().map(String::as_str).take(begins.len()).collect::<Vec<_>>(), begins);
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("'{line}': {error}");
                }
            }
        }
        for line in EXAMPLES.lines().filter_map(|line| line.strip_prefix("# ")) {
            assert!(leaves.iter().any(|name| name == line), "there is no command '{line}'");
        }
    }

    #[test]
    fn each_page_has_examples_exit_status_and_files() {
        let directory = tempfile::tempdir().unwrap();
        write_all(directory.path()).unwrap();
        for name in all_leaves() {
            let page = directory.path().join(format!("{}.1", name.replace(' ', "-")));
            let text = std::fs::read_to_string(&page).unwrap();
            for section in [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH FILES"] {
                assert!(text.contains(section), "{name} has no {section}: {text}");
            }
        }
        let health = std::fs::read_to_string(directory.path().join("cenote-health.1")).unwrap();
        assert!(health.contains("The server is not reached"));
    }

    /// Options that come with the definition: `--help`, `--version`.
    fn is_built_in(id: &str) -> bool {
        matches!(id, "help" | "version")
    }

    #[test]
    fn each_command_argument_and_value_has_a_help_text() {
        fn missing(command: &Command, found: &mut Vec<String>) {
            let name = name_of(command);
            if command.get_about().is_none() {
                found.push(name.clone());
            }
            for argument in command.get_arguments().filter(|one| !is_built_in(one.get_id().as_str())) {
                let id = argument.get_id();
                if argument.get_help().is_none_or(|help| help.to_string().trim().is_empty()) {
                    found.push(format!("{name}: {id}"));
                }
                let values = argument.get_possible_values();
                // true and false need no explanation.
                let unsaid = values.iter().filter(|value| value.get_help().is_none());
                found.extend(
                    unsaid
                        .filter(|value| !matches!(value.get_name(), "true" | "false"))
                        .filter(|_| name != "cenote completion")
                        .map(|value| format!("{name}: {id}={}", value.get_name())),
                );
            }
            command.get_subcommands().for_each(|verb| missing(verb, found));
        }
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut found = Vec::new();
        missing(&command, &mut found);
        assert!(found.is_empty(), "without a help text: {found:#?}");
    }
}
