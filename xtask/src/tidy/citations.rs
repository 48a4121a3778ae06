//! Rule `citations`: docs/DESIGN.md has every decision (a `D` and its number) and invariant (an `I` and its number) that a
//! comment or a document names.

use super::Finding;
use super::comments::comments;
use super::tree::Tree;
use std::collections::BTreeSet;

const DESIGN: &str = "docs/DESIGN.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    // Every second part is bold.
    let bold = tree.design.split("**").skip(1).step_by(2);
    let known: BTreeSet<&str> = bold.filter_map(|part| citations(part).next()).collect();
    let mut findings = Vec::new();
    let mut judge = |path: &str, line: usize, text: &str| {
        for cited in citations(text).filter(|cited| !known.contains(cited)) {
            let why = format!("names {cited}, which {DESIGN} does not have");
            findings.push(Finding::new("citations", format!("{path}:{line}"), why));
        }
    };
    for file in tree.crates.iter().flat_map(|member| &member.files) {
        for comment in comments(&file.text) {
            judge(&file.path, comment.line, comment.text);
        }
    }
    for (path, text) in tree.documents.iter().filter(|(path, _)| path != DESIGN) {
        for (below, line) in text.lines().enumerate() {
            judge(path, below + 1, line);
        }
    }
    findings
}

/// The words that are a `D` or an `I` and a number of one or two digits. `$I30` is a name and `-I1` an option.
fn citations(text: &str) -> impl Iterator<Item = &str> {
    let is_apart = |letter: char| !letter.is_alphanumeric() && !['_', '$', '-'].contains(&letter);
    text.split(is_apart).filter(|word| {
        let digits = word.strip_prefix(['D', 'I']).unwrap_or_default();
        (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    fn tree(source: &str) -> Tree {
        Tree {
            crates: vec![crate_of("crates/x", &[("a.rs", source)])],
            design: "**D1 Disks.** As D9 has it.\n**I4** Nothing is lost.\n".to_owned(),
            ..Tree::default()
        }
    }

    #[test]
    fn a_citation_that_resolves_passes() {
        assert_eq!(check(&tree("// See D1 and (I4), not of $I30.\nconst A: &str = \"D7\";\n")), []);
    }

    #[test]
    fn a_citation_that_does_not_resolve_is_found() {
        let found = check(&tree("\n// As D9 says.\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].subject, "crates/x/src/a.rs:2");
    }
}
