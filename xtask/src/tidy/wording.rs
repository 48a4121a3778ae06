//! Rule `wording`: "where" is for places. A crate's comments have at most one of it for two "if" or "when".

use super::Finding;
use super::comments::comments;
use super::tree::{Crate, Tree};

/// Crates with fewer than this are too small to be judged.
const WHERE_MIN: usize = 5;

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates.iter().filter_map(check_crate).collect()
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
    fn more_of_where_is_found() {
        let source = format!("{}// Where it is.\n", "// where if when\n".repeat(5));
        assert!(check_crate(&crate_of("crates/x", &[("a.rs", &source)])).is_some());
    }
}
