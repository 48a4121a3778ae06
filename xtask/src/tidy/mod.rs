//! `cargo xtask tidy`: rules of the house that a compiler does not know, each with a test that it can fail.
//!
//! Reads every source file of `crates/`, `tests/` and `xtask/` once and hands the whole [`Tree`] to each rule. A finding that
//! stands in `tidy-exceptions.txt` is let pass; that list has at most ten lines, and a line that excuses nothing is a finding.

mod circles;
mod citations;
mod comments;
mod length;
mod links;
mod modules;
mod order;
mod spread;
mod test_only;
mod tree;
mod wording;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use tree::Tree;

/// Lines of the list of exceptions.
const EXCEPTIONS_MAX: usize = 10;
const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";

/// A breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// The rule's name, the first word of an exception.
    rule: &'static str,
    /// The thing that breaks the rule, the second word of an exception: a file, a type, a function.
    subject: String,
    /// The breach in words.
    why: String,
}

impl Finding {
    fn new(rule: &'static str, subject: impl Into<String>, why: impl Into<String>) -> Self {
        Self { rule, subject: subject.into(), why: why.into() }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [(&str, Rule); 7] = [
    ("order", order::check),
    ("links", links::check),
    ("circles", circles::check),
    ("spread", spread::check),
    ("length", length::check),
    ("citations", citations::check),
    ("wording", wording::check),
];

/// Runs the rules named, or all of them.
pub fn run(names: &[String]) -> ExitCode {
    if let Some(unknown) = names.iter().find(|name| RULES.iter().all(|(rule, _)| rule != name)) {
        let known: Vec<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
        eprintln!("tidy: there is no rule '{unknown}'; the rules are: {}", known.join(", "));
        return ExitCode::from(2);
    }
    let tree = match Tree::read(Path::new(".")) {
        Ok(tree) => tree,
        Err(why) => {
            eprintln!("tidy: {why}");
            return ExitCode::FAILURE;
        }
    };
    let exceptions = std::fs::read_to_string(EXCEPTIONS).unwrap_or_default();
    let chosen = RULES.iter().filter(|(rule, _)| names.is_empty() || names.iter().any(|name| name == rule));
    let (mut passed, mut failed) = (0, 0);
    let mut findings = Vec::new();
    for (rule, check) in chosen {
        let found = without_exceptions(check(&tree), &exceptions);
        if found.is_empty() {
            passed += 1;
            println!("ok      {rule}");
        } else {
            failed += 1;
            println!("not ok  {rule}: {} findings", found.len());
        }
        findings.extend(found);
    }
    if names.is_empty() {
        findings.extend(judge_exceptions(&exceptions, &tree));
    }
    for Finding { rule, subject, why } in &findings {
        println!("{rule} {subject}: {why}");
    }
    println!("{passed} passed, {failed} failed");
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The lines of the list that excuse something: rule and subject, then why.
fn excused(exceptions: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = exceptions.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        Some((words.next()?, words.next()?))
    })
}

fn without_exceptions(mut findings: Vec<Finding>, exceptions: &str) -> Vec<Finding> {
    findings.retain(|finding| {
        excused(exceptions).all(|(rule, subject)| rule != finding.rule || subject != finding.subject)
    });
    findings
}

/// The list itself: short, and every line is needed.
fn judge_exceptions(exceptions: &str, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_rule: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
    let listed: Vec<(&str, &str)> = excused(exceptions).collect();
    if listed.len() > EXCEPTIONS_MAX {
        let why = format!("{} exceptions; at most {EXCEPTIONS_MAX}", listed.len());
        findings.push(Finding::new("exceptions", EXCEPTIONS, why));
    }
    for (rule, subject) in listed {
        let Some((name, check)) = RULES.iter().find(|(name, _)| *name == rule) else {
            findings.push(Finding::new("exceptions", subject, format!("there is no rule '{rule}'")));
            continue;
        };
        let found = by_rule.entry(name).or_insert_with(|| check(tree));
        if found.iter().all(|finding| finding.subject != subject) {
            findings.push(Finding::new("exceptions", subject, format!("breaks '{rule}' no more")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_excuses_its_own_finding_only() {
        let findings = vec![Finding::new("length", "a.rs", "long"), Finding::new("length", "b.rs", "long")];
        let left = without_exceptions(findings, "# why\nlength a.rs it is a table\n");
        assert_eq!(left, [Finding::new("length", "b.rs", "long")]);
    }

    #[test]
    fn an_exception_that_excuses_nothing_is_a_finding() {
        let found = judge_exceptions("length gone.rs it was long\nbeauty a.rs\n", &Tree::default());
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_list_of_more_than_ten_exceptions_is_a_finding() {
        let list: String = (0..11).map(|number| format!("beauty {number}.rs\n")).collect();
        let found = judge_exceptions(&list, &Tree::default());
        assert!(found.iter().any(|finding| finding.subject == EXCEPTIONS), "{found:?}");
    }
}
