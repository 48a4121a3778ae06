//! Checks that the command line's own parser accepts every command in pages and messages.

use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

/// The words of a usage in a page: capitals stand for a value, `[brackets]` for an optional part.
#[derive(Debug, Clone)]
struct Group {
    words: Vec<String>,
    is_optional: bool,
}

fn groups(usage: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut is_open = false;
    for word in usage.split_whitespace() {
        let begins = word.starts_with('[');
        let ends = word.ends_with(']');
        let bare = word.trim_start_matches('[').trim_end_matches(']').to_owned();
        match groups.last_mut().filter(|_| is_open && !begins) {
            Some(open) => open.words.push(bare),
            None => groups.push(Group { words: vec![bare], is_optional: begins }),
        }
        is_open = (begins || is_open) && !ends;
    }
    groups
}

/// Replaces a name in capitals by a value, keeps other words, and drops `...`. `7` is a number, a name,
/// a path, a size and an account.
fn filled(word: &str) -> String {
    let value = |part: &str| match part {
        "ADDRESS" => "127.0.0.1",
        "BOOL" => "true",
        "DRIVES" => "8x4TiB:nvme",
        "DURABILITY" => "write",
        "GRANT" => "7:read",
        "DENY" => "7:write",
        "MODE" => "track",
        "PROTECTION" => "signed",
        "ROLE" => "reader",
        "RESILIENCY" => "simple",
        _ => "7",
    };
    let bare = word.trim_end_matches("...");
    let parts = bare.split(':').map(|part| if is_placeholder(part) { value(part) } else { part });
    parts.collect::<Vec<_>>().join(":")
}

fn is_placeholder(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

/// The shortest line of a usage, and the longest.
fn lines(usage: &str) -> [Vec<String>; 2] {
    let of = |all: bool| {
        let kept = groups(usage).into_iter().filter(move |group| all || !group.is_optional);
        kept.flat_map(|group| group.words).map(|word| filled(&word)).collect()
    };
    [of(false), of(true)]
}

fn parse(line: &[String]) -> Result<(), clap::Error> {
    match line.first().map(String::as_str) {
        Some("fleet") => fleet::args::Cli::try_parse_from(line).map(drop),
        _ => cli::args::Cli::try_parse_from(line).map(drop),
    }
}

/// Messages and documents name commands without all of their arguments.
fn missing_is_no_fault(error: clap::Error) -> Result<(), clap::Error> {
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion => Ok(()),
        _ => Err(error),
    }
}

/// Commands between two of the same quotes, or between tags.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("cenote ").chain(text.match_indices("fleet ")) {
        let Some(before) = text[..at].chars().next_back() else { continue };
        let end = match before {
            '"' | '`' => before,
            '>' => '<',
            _ => continue,
        };
        let Some(length) = text[at..].find(end) else { continue };
        let command = &text[at..at + length];
        let verb = command.split(' ').nth(1).unwrap_or_default();
        if !command.contains('\n') && verb.starts_with(|letter: char| letter.is_ascii_lowercase()) {
            found.push(command.to_owned());
        }
    }
    found
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
}

fn web_files() -> Vec<PathBuf> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard/web");
    let mut found = Vec::new();
    for extension in ["js", "html"] {
        files(&web, extension, &mut found);
    }
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "vendor"));
    found
}

#[test]
fn every_command_of_the_pages_is_one_of_the_command_line() {
    let mut count = 0;
    for path in web_files() {
        let text = fs::read_to_string(&path).unwrap();
        for usage in commands(&text) {
            let place = path.display();
            assert!(
                !usage.contains("${"),
                "{place}: `{usage}` is put together: write its usage, and fill it"
            );
            for line in lines(&usage) {
                if let Err(error) = parse(&line) {
                    panic!("{place}: `{usage}` as {line:?}: {error}");
                }
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count} commands were found");
}

/// A token of the cluster makes a server a member: every user of the machine could read a command line.
#[test]
fn no_page_shows_a_secret_as_an_argument() {
    for path in web_files() {
        for usage in commands(&fs::read_to_string(&path).unwrap()) {
            assert!(!usage.contains("--token") && !usage.contains("--password "), "{usage}");
        }
    }
}

#[test]
fn every_command_of_a_message_is_one_of_the_command_line() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources = Vec::new();
    files(crates, "rs", &mut sources);
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in sources {
        let text = fs::read_to_string(&path).unwrap().replace("\\\n", "");
        for (at, _) in text.match_indices("`cenote ") {
            let command = text[at + 1..].split('`').next().unwrap_or_default();
            if command.contains(['\n', '(', '[', '"', '\'', '|']) || command.len() > 200 {
                continue;
            }
            let words = command.split_whitespace().map(|word| filled(&unbraced(word)));
            let line: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            count += 1;
            if let Err(error) = parse(&line).or_else(missing_is_no_fault) {
                wrong.push(format!(
                    "{}: `{command}`: {}",
                    path.display(),
                    error.to_string().lines().next().unwrap_or_default()
                ));
            }
        }
    }
    assert!(count > 100, "{count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value instead of the field of a format string.
fn unbraced(word: &str) -> String {
    match word {
        "{kind}" => return "user".to_owned(),
        "{role}" => return "reader".to_owned(),
        _ => (),
    }
    match (word.find('{'), word.rfind('}')) {
        (Some(begin), Some(end)) if begin < end => format!("{}7{}", &word[..begin], &word[end + 1..]),
        _ => word.to_owned(),
    }
}

/// The calls of `cenote` and `fleet` that a document shows: between ticks, and in blocks of code.
fn calls_of_a_document(text: &str) -> Vec<Vec<String>> {
    let (mut calls, mut is_fenced) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            calls.extend(calls_of_a_shell(line));
        } else {
            calls.extend(line.split('`').skip(1).step_by(2).flat_map(calls_of_a_shell));
        }
    }
    calls
}

fn calls_of_a_shell(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let parts = line.split([';', '|', '<', '>', '&']).map(|part| {
        let words = part.split_whitespace().map(|word| word.trim_matches(['[', ']', '\'', '"']));
        let words = words.map(|word| word.strip_prefix("target/release/").unwrap_or(word));
        words.skip_while(|word| *word == "until").map(filled).collect::<Vec<_>>()
    });
    let is_call = |words: &Vec<String>| match words.as_slice() {
        [program, verb, ..] => {
            (program == "cenote" || program == "fleet")
                && verb.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '-')
        }
        _ => false,
    };
    parts.filter(is_call).collect()
}

#[test]
fn every_command_of_the_documents_is_one_of_the_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md"), root.join("SECURITY.md"), root.join("CHANGELOG.md")];
    files(&root.join("docs"), "md", &mut documents);
    let (mut count, mut wrong) = (0, Vec::new());
    for path in documents {
        for line in calls_of_a_document(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            if let Err(error) = parse(&line).or_else(missing_is_no_fault) {
                wrong.push(format!("{}: {line:?}: {error}", path.display()));
            }
        }
    }
    assert!(count > 200, "{count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
