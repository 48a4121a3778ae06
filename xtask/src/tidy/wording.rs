//! Rule `wording`, in two parts.
//!
//! - "where" is for places. A crate's comments have at most one of it for two "if" or "when".
//! - Comments and documents name their subjects: the whole tree has at most [`UNNAMED_MAX`] sentences that begin with a
//!   headless relative ("Who asks the API.") and paragraphs that begin with a pronoun ("It has its share.").

use super::Finding;
use super::comments::comments;
use super::tree::{Crate, Tree};

/// Sentences without a named subject in the whole tree.
const UNNAMED_MAX: usize = 60;
/// Findings that are listed at most: the files with the most of them.
const UNNAMED_LISTED_MAX: usize = 20;
/// First words of a sentence that stand for a noun which the reader is left to guess.
const HEADLESS: [&str; 7] = ["What", "Who", "Whom", "Whose", "Whoever", "Whomever", "Whatever"];
/// First words of a paragraph that refer to something said before it.
const PRONOUNS: [&str; 9] = ["It", "Its", "They", "Their", "Them", "He", "She", "His", "Him"];

/// Crates with fewer than this are too small to be judged.
const WHERE_MIN: usize = 5;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.crates.iter().filter_map(check_crate).collect();
    findings.extend(check_subjects(tree));
    findings
}

/// One finding for each of the worst files if the whole tree has too many sentences without a named subject.
fn check_subjects(tree: &Tree) -> Vec<Finding> {
    let mut unnamed: Vec<(&str, Vec<usize>)> = Vec::new();
    for file in tree.crates.iter().flat_map(|member| &member.files) {
        unnamed.push((&file.path, unnamed_of_source(&file.text)));
    }
    for (path, text) in &tree.documents {
        // The history of releases quotes what was.
        if path != "CHANGELOG.md" {
            unnamed.push((path, unnamed_of_document(text)));
        }
    }
    let sum: usize = unnamed.iter().map(|(_, lines)| lines.len()).sum();
    if sum <= UNNAMED_MAX {
        return Vec::new();
    }
    unnamed.retain(|(_, lines)| !lines.is_empty());
    unnamed.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.len()));
    unnamed.truncate(UNNAMED_LISTED_MAX);
    let of_file = |(path, lines): (&str, Vec<usize>)| {
        let why = format!(
            "sentences that begin with What, Who or a pronoun without its noun in lines {lines:?}; the tree has {sum}, at most {UNNAMED_MAX}"
        );
        Finding::new("wording", path, why)
    };
    unnamed.into_iter().map(of_file).collect()
}

/// Lines of a source's comments that have a sentence without a named subject.
fn unnamed_of_source(source: &str) -> Vec<usize> {
    let code_lines: Vec<&str> = source.lines().collect();
    let is_whole_line =
        |line: usize| code_lines.get(line - 1).is_some_and(|text| text.trim_start().starts_with("//"));
    let mut found = Vec::new();
    let mut before: Option<(usize, &str)> = None;
    let all = comments(source);
    for comment in &all {
        let goes_on = before.filter(|(line, _)| {
            line + 1 == comment.line && is_whole_line(*line) && is_whole_line(comment.line)
        });
        found.extend(unnamed_in(comment.text, goes_on.map(|(_, text)| text)).then_some(comment.line));
        before = Some((comment.line, comment.text));
    }
    found
}

/// Lines of a Markdown document, outside of code and tables, that have a sentence without a named subject.
fn unnamed_of_document(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut before: Option<&str> = None;
    for (line, text) in (1..).zip(text.lines()) {
        let fence = text.trim_start().starts_with("```");
        is_code ^= fence;
        if fence || is_code || text.trim().is_empty() || text.starts_with('|') {
            before = None;
            continue;
        }
        found.extend(unnamed_in(text, before).then_some(line));
        before = Some(text);
    }
    found
}

/// Whether a line has such a sentence. `before`: the line above, if both are of one paragraph.
fn unnamed_in(text: &str, before: Option<&str>) -> bool {
    let ended = before
        .is_none_or(|line| line.trim_end().ends_with(['.', ':', '!', '?', ';']) || line.trim().is_empty());
    let sentences = sentences(text);
    sentences.iter().enumerate().any(|(at, sentence)| {
        let sentence = sentence.trim_start_matches(['*', '-', '`', '#', '>', ' ', '"']);
        let first = sentence.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
        let is_question = sentence.trim_end().ends_with('?');
        let headless = (at > 0 || ended) && !is_question && HEADLESS.contains(&first);
        headless || (at == 0 && before.is_none() && PRONOUNS.contains(&first))
    })
}

/// Splits at the end of each sentence, or part of one that could stand alone.
fn sentences(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest
        .char_indices()
        .find(|(at, letter)| matches!(letter, '.' | ':' | ';' | '!' | '?') && rest[at + 1..].starts_with(' '))
        .map(|(at, _)| at)
    {
        parts.push(&rest[..=at]);
        rest = &rest[at + 2..];
    }
    parts.push(rest);
    parts
}

fn check_crate(member: &Crate) -> Option<Finding> {
    let (mut places, mut conditions) = (0, 0);
    for file in &member.files {
        for comment in comments(&file.text) {
            for word in comment.text.split(|letter: char| !letter.is_alphanumeric()) {
                match word.to_ascii_lowercase().as_str() {
                    "where" => places += 1,
                    "if" | "when" => conditions += 1,
                    _ => {}
                }
            }
        }
    }
    let wrong = places >= WHERE_MIN && places * 2 > conditions;
    wrong.then(|| {
        let why = format!(
            "comments have {places} \"where\" for {conditions} \"if\" or \"when\", at most one for two"
        );
        Finding::new("wording", member.folder.clone(), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    #[test]
    fn one_where_for_two_conditions_passes() {
        let source = "// where if when\n".repeat(5);
        assert_eq!(check_crate(&crate_of("crates/x", &[("a.rs", &source)])), None);
    }

    #[test]
    fn sentences_without_a_subject_are_found_where_they_begin() {
        let source =
            "/// Who asks.\nfn a() {} // It is\n// The caller\n// who asks. What: it says\n// whatever\n";
        assert_eq!(unnamed_of_source(source), [1, 2, 4]);
        let document = "Who asks?\n\n```\nWhat\n```\nIt is so.\nIt goes on.\n";
        assert_eq!(unnamed_of_document(document), [6]);
    }

    #[test]
    fn a_tree_with_more_than_the_limit_is_found() {
        let tree = |lines: usize| Tree {
            documents: vec![("docs/A.md".to_owned(), "Who asks.\n\n".repeat(lines))],
            ..Tree::default()
        };
        assert_eq!(check(&tree(UNNAMED_MAX)), []);
        assert_eq!(check(&tree(UNNAMED_MAX + 1)).len(), 1);
    }

    #[test]
    fn more_of_where_is_found() {
        let source = format!("{}// Where it is.\n", "// where if when\n".repeat(5));
        assert!(check_crate(&crate_of("crates/x", &[("a.rs", &source)])).is_some());
    }
}
