//! The modules of a crate, and the paths by which they use each other.

use super::test_only::is_for_tests;
use super::tree::{Crate, Module};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// Steps at most from a name that stands for another name.
const FOLLOWED_MAX: usize = 8;

/// One module names another, or a thing in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub from: Module,
    pub to: Module,
    /// The path as it resolved, for people.
    pub path: String,
}

/// All uses between the modules of a crate, those of tests aside.
pub fn uses(member: &Crate) -> BTreeSet<Use> {
    let mut modules: BTreeMap<Module, Names> = BTreeMap::new();
    for file in member.files.iter().filter(|file| !file.is_test) {
        let mut names = Names::default();
        names.visit_file(&file.syntax);
        modules.insert(file.module.clone(), names);
    }
    let mut found = BTreeSet::new();
    for (module, names) in &modules {
        for path in &names.paths {
            if let Some(to) = resolve(&modules, module, path, FOLLOWED_MAX)
                && to != *module
            {
                found.insert(Use { from: module.clone(), to, path: path.join("::") });
            }
        }
    }
    found
}

/// Returns the module of the thing that a path names.
fn resolve(
    modules: &BTreeMap<Module, Names>,
    from: &Module,
    path: &[String],
    follow: usize,
) -> Option<Module> {
    let absolute = absolute(modules, from, path)?;
    let depth = (0..=absolute.len()).rev().find(|depth| modules.contains_key(&absolute[..*depth]))?;
    let module = absolute[..depth].to_vec();
    if let Some(name) = absolute.get(depth)
        && follow > 0
        && let Some(other) = modules.get(&module).and_then(|names| names.imports.get(name))
        && let Some(found) = resolve(modules, &module, other, follow - 1)
    {
        return Some(found);
    }
    Some(module)
}

/// A path from the crate's root; none if it leads out of the crate.
fn absolute(modules: &BTreeMap<Module, Names>, from: &Module, path: &[String]) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([from.as_slice(), rest].concat()),
        "super" => {
            let mut base = from.clone();
            base.pop()?;
            let mut rest = rest;
            while let Some((next, behind)) = rest.split_first()
                && next == "super"
            {
                base.pop()?;
                rest = behind;
            }
            Some([base.as_slice(), rest].concat())
        }
        child => {
            let mut inside = from.clone();
            inside.push(child.to_owned());
            modules.contains_key(&inside).then(|| [from.as_slice(), path].concat())
        }
    }
}

/// Names that a file uses.
#[derive(Default)]
struct Names {
    paths: BTreeSet<Vec<String>>,
    /// Names that stand for a path here.
    imports: BTreeMap<String, Vec<String>>,
    /// Inline modules around the place: they belong to the file.
    inline: usize,
}

impl Names {
    fn note(&mut self, mut path: Vec<String>) {
        // An inline module's `super` is the file, or a module in it.
        let mut above = self.inline;
        while above > 0 && path.first().is_some_and(|first| first == "super") {
            path.remove(0);
            above -= 1;
            if path.first().is_none_or(|first| first != "super") {
                path.insert(0, "self".to_owned());
                break;
            }
        }
        self.paths.insert(path);
    }

    fn note_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.import(before.last().cloned(), before.to_vec())
            }
            syn::UseTree::Name(name) => self.import(Some(name.ident.to_string()), with(&name.ident)),
            syn::UseTree::Rename(rename) => self.import(Some(rename.rename.to_string()), with(&rename.ident)),
            syn::UseTree::Glob(_) => self.note(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.note_tree(before, item)),
        }
    }

    fn import(&mut self, name: Option<String>, path: Vec<String>) {
        if let Some(name) = name
            && self.inline == 0
        {
            self.imports.insert(name, path.clone());
        }
        self.note(path);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.note(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in crate::volume)` uses nothing.
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() && !is_for_tests(&item.attrs) {
            self.inline += 1;
            visit::visit_item_mod(self, item);
            self.inline -= 1;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    fn found(sources: &[(&str, &str)]) -> Vec<(String, String)> {
        let uses = uses(&crate_of("crates/x", sources));
        let pairs: BTreeSet<(String, String)> =
            uses.into_iter().map(|used| (used.from.join("::"), used.to.join("::"))).collect();
        pairs.into_iter().collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn paths_of_all_kinds_resolve_to_the_module_of_what_they_name() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::Thing; fn f() { super::b::g() }"),
            ("b.rs", "mod c; pub fn g() { c::h() }"),
            ("b/c.rs", "pub fn h() { self::k() } fn k() -> super::Thing {}"),
        ];
        assert_eq!(found(&sources), [pair("a", "b"), pair("b", "b::c"), pair("b::c", "b")]);
    }

    #[test]
    fn a_name_that_stands_for_another_resolves_to_the_other() {
        let sources =
            [("lib.rs", "mod a; mod b; pub use b::Thing;"), ("a.rs", "use crate::Thing;"), ("b.rs", "")];
        assert_eq!(found(&sources), [pair("", "b"), pair("a", "b")]);
    }

    #[test]
    fn what_tests_use_does_not_count() {
        let sources = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod rig;"),
            ("a.rs", "#[cfg(test)] mod tests { use crate::b::Thing; }"),
            ("b.rs", ""),
            ("rig.rs", "use crate::a::Other;"),
        ];
        assert_eq!(found(&sources), []);
    }
}
