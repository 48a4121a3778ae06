//! Rule `length`: units that can be read at one go. Functions of at most 70 lines, files of at most 700
//! without their tests, and `crates/cenote`, which only assembles, of at most 10,000 without tests.

use super::Finding;
use super::test_only::is_for_tests;
use super::tree::{Crate, Tree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 700;
/// The crate that only assembles, and its lines.
const ASSEMBLER: (&str, usize) = ("crates/cenote", 10_000);

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut total = 0;
    for file in member.files.iter().filter(|file| !file.is_test) {
        let mut functions = Functions::default();
        functions.visit_file(&file.syntax);
        for (name, lines) in functions.long {
            let why = format!("has {lines} lines, at most {FUNCTION_LINES_MAX}");
            findings.push(Finding::new("length", format!("{}:{name}", file.path), why));
        }
        let lines = file.text.lines().count() - functions.test_lines;
        total += lines;
        if lines > FILE_LINES_MAX {
            let why = format!("has {lines} lines without tests, at most {FILE_LINES_MAX}");
            findings.push(Finding::new("length", file.path.clone(), why));
        }
    }
    let (assembler, lines_max) = ASSEMBLER;
    if member.folder == assembler && total >= lines_max {
        let why = format!(
            "has {total} lines without tests, fewer than {lines_max} are left to a crate that assembles"
        );
        findings.push(Finding::new("length", assembler, why));
    }
    findings
}

#[derive(Default)]
struct Functions {
    long: Vec<(String, usize)>,
    test_lines: usize,
}

impl Functions {
    fn note(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = lines_of(block);
        if lines > FUNCTION_LINES_MAX {
            self.long.push((name.to_string(), lines));
        }
    }
}

fn lines_of(node: &impl Spanned) -> usize {
    let span = node.span();
    span.end().line - span.start().line + 1
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            self.test_lines += lines_of(item);
        } else {
            visit::visit_item_mod(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let body = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        assert_eq!(check_crate(&crate_of("crates/x", &[("a.rs", &body(70))])), []);
        assert_eq!(check_crate(&crate_of("crates/x", &[("a.rs", &body(71))])).len(), 1);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let lines = "const A: u8 = 1;\n".repeat(FILE_LINES_MAX);
        let tests = format!("{lines}#[cfg(test)]\nmod tests {{\nconst B: u8 = 1;\n}}\n");
        assert_eq!(check_crate(&crate_of("crates/x", &[("a.rs", &tests)])), []);
        let longer = format!("{lines}const B: u8 = 1;\n");
        assert_eq!(check_crate(&crate_of("crates/x", &[("a.rs", &longer)])).len(), 1);
    }

    #[test]
    fn an_assembler_of_10000_lines_is_found() {
        let lines = "const A: u8 = 1;\n".repeat(500);
        let names: Vec<String> = (0..20).map(|number| format!("a{number}.rs")).collect();
        let sources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), lines.as_str())).collect();
        assert_eq!(check_crate(&crate_of("crates/cenote", &sources)).len(), 1);
        assert_eq!(check_crate(&crate_of("crates/other", &sources)), []);
    }
}
