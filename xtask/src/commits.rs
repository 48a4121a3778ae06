//! `cargo xtask commits`: the form of the commits that were made since [`RULE_SINCE`].
//!
//! A subject has at most 72 characters and says in the imperative what the commit does, behind the name of the part that it
//! changes ("store: refuse batches that a reader could not take"). A commit that changes more than 20 lines says why in its body.

use std::process::{Command, ExitCode};

/// Older commits were made before the rule.
const RULE_SINCE: &str = "6454ac7bfc4b26bb246a9928074f260c52425222";
const SUBJECT_CHARACTERS_MAX: usize = 72;
/// Lines added and removed that need no reason.
const LINES_WITHOUT_BODY_MAX: usize = 20;
/// Imperatives whose ends are those of other forms.
const IMPERATIVES: [&str; 20] = [
    "address", "bypass", "bring", "compress", "cross", "discuss", "embed", "express", "feed", "focus",
    "guess", "need", "pass", "press", "process", "proceed", "seed", "shed", "speed", "string",
];

/// A commit, as `git log` tells it.
struct Commit {
    name: String,
    subject: String,
    has_body: bool,
    lines_changed: usize,
}

pub fn run() -> ExitCode {
    let commits = match read() {
        Ok(commits) => commits,
        // A copy without history, or with a short one: nothing to check here, and no fault of the tree.
        Err(why) => {
            println!("skipped: {why}");
            return ExitCode::from(77);
        }
    };
    let findings: Vec<String> = commits.iter().flat_map(check).collect();
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} commits, {} findings", commits.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(commit: &Commit) -> Vec<String> {
    let mut findings = Vec::new();
    let length = commit.subject.chars().count();
    if length > SUBJECT_CHARACTERS_MAX {
        findings.push(format!("a subject of {length} characters, at most {SUBJECT_CHARACTERS_MAX}"));
    }
    let verb = verb_of(&commit.subject);
    if !is_imperative(verb) {
        findings.push(format!("\"{verb}\" is no imperative"));
    }
    if commit.lines_changed > LINES_WITHOUT_BODY_MAX && !commit.has_body {
        findings.push(format!("{} lines changed, and no body that says why", commit.lines_changed));
    }
    let Commit { name, subject, .. } = commit;
    findings.into_iter().map(|why| format!("{name} {subject}: {why}")).collect()
}

/// The first word of what is behind the part's name.
fn verb_of(subject: &str) -> &str {
    let action = subject.split_once(": ").map_or(subject, |(_, action)| action);
    action.split_whitespace().next().unwrap_or_default()
}

fn is_imperative(verb: &str) -> bool {
    let word = verb.to_ascii_lowercase();
    let other_form = word.ends_with("ing") || word.ends_with("ed") || (word.ends_with('s') && word.len() > 2);
    word.chars().all(|letter| letter.is_alphabetic() || letter == '-')
        && !["wip", "fixup", "misc", "tmp", ""].contains(&word.as_str())
        && (!other_form || IMPERATIVES.contains(&word.as_str()))
}

/// # Errors
/// Why there is no history to look at, in words.
fn read() -> Result<Vec<Commit>, String> {
    let range = format!("{RULE_SINCE}..HEAD");
    let output = Command::new("git")
        .args(["log", "--no-merges", "--shortstat", "--format=%x1e%h%x1f%s%x1f%b%x1f", &range])
        .output()
        .map_err(|error| format!("git does not run: {error}"))?;
    if !output.status.success() {
        return Err(format!("this copy's history does not reach {}", &RULE_SINCE[..7]));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split('\u{1e}').skip(1).filter_map(parse).collect())
}

fn parse(entry: &str) -> Option<Commit> {
    let mut fields = entry.split('\u{1f}');
    let (name, subject, body, statistics) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let counts = statistics.split(',').filter(|part| part.contains("insertion") || part.contains("deletion"));
    let lines_changed = counts.filter_map(|part| part.split_whitespace().next()?.parse::<usize>().ok()).sum();
    Some(Commit {
        name: name.to_owned(),
        subject: subject.to_owned(),
        has_body: !body.trim().is_empty(),
        lines_changed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(subject: &str, body: &str, lines: usize) -> Commit {
        let entry =
            format!("abc\u{1f}{subject}\u{1f}{body}\u{1f}\n\n 2 files changed, {lines} insertions(+)\n");
        parse(&entry).unwrap()
    }

    #[test]
    fn a_good_commit_passes() {
        assert!(check(&commit("store: pass batches that fit", "Why.", 300)).is_empty());
        assert!(check(&commit("mend a word", "", LINES_WITHOUT_BODY_MAX)).is_empty());
    }

    #[test]
    fn each_breach_is_found() {
        let long = format!("store: refuse {}", "a".repeat(SUBJECT_CHARACTERS_MAX));
        for bad in [
            commit(&long, "", 1),
            commit("wip ci", "", 1),
            commit("store: refused batches", "", 1),
            commit("store: fixes a hang", "", 1),
            commit("store: refuse batches", "", LINES_WITHOUT_BODY_MAX + 1),
        ] {
            assert_eq!(check(&bad).len(), 1, "{}", bad.subject);
        }
    }
}
