//! Rule `spread`: the methods of a type stand in at most four files, tests aside.

use super::Finding;
use super::test_only::is_for_tests;
use super::tree::{Crate, Tree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

const FILES_MAX: usize = 4;

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Finding> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in member.files.iter().filter(|file| !file.is_test) {
        let mut types = Types::default();
        types.visit_file(&file.syntax);
        for name in types.names {
            files.entry(name).or_default().insert(&file.path);
        }
    }
    let spread = files.into_iter().filter(|(_, files)| files.len() > FILES_MAX);
    spread
        .map(|(name, files)| {
            let list: Vec<&str> =
                files.iter().map(|path| path.rsplit("/src/").next().unwrap_or(path)).collect();
            let why =
                format!("has methods in {} files, at most {FILES_MAX}: {}", files.len(), list.join(", "));
            Finding::new("spread", format!("{}::{name}", member.name()), why)
        })
        .collect()
}

/// The types that a file gives methods to, without those of traits.
#[derive(Default)]
struct Types {
    names: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_some() || is_for_tests(&item.attrs) {
            return;
        }
        if let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.names.insert(last.ident.to_string());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    const BLOCK: &str = "impl Server { fn a(&self) {} }";

    #[test]
    fn methods_in_four_files_pass_and_tests_do_not_count() {
        let sources =
            [("a.rs", BLOCK), ("b.rs", BLOCK), ("c.rs", BLOCK), ("d.rs", BLOCK), ("tests.rs", BLOCK)];
        assert_eq!(check_crate(&crate_of("crates/x", &sources)), []);
    }

    #[test]
    fn methods_in_a_fifth_file_are_found() {
        let sources = [("a.rs", BLOCK), ("b.rs", BLOCK), ("c.rs", BLOCK), ("d.rs", BLOCK), ("e.rs", BLOCK)];
        let found = check_crate(&crate_of("crates/x", &sources));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subject, "x::Server");
    }
}
