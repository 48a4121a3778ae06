//! The files that rules check: sources with their syntax, manifests, documents.

use super::test_only::test_modules;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold crates; `xtask` is one itself.
const CRATE_FOLDERS: [&str; 2] = ["crates", "tests"];

/// A module's path from the crate's root, as `["fs", "data"]`.
pub type Module = Vec<String>;

/// All files that rules check.
#[derive(Default)]
pub struct Tree {
    pub crates: Vec<Crate>,
    /// Cargo.toml of the workspace.
    pub manifest: String,
    /// Cargo.lock of the workspace.
    pub lock: String,
    /// ARCHITECTURE.md.
    pub architecture: String,
    /// docs/DESIGN.md.
    pub design: String,
    /// Every Markdown document outside of docs/evidence, with its path.
    pub documents: Vec<(String, String)>,
}

/// A crate of the workspace.
pub struct Crate {
    /// Folder, as `crates/volume`.
    pub folder: String,
    pub manifest: String,
    pub files: Vec<SourceFile>,
}

/// A file of a crate's `src`.
pub struct SourceFile {
    /// Path from the root of the project.
    pub path: String,
    pub module: Module,
    pub text: String,
    pub syntax: syn::File,
    /// The file holds tests only.
    pub is_test: bool,
}

impl SourceFile {
    /// Parses a source.
    ///
    /// # Errors
    /// The text is no Rust.
    pub fn parse(path: &str, module: Module, text: String) -> Result<Self, String> {
        let syntax = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        let is_test = module.iter().any(|name| name == "tests");
        Ok(Self { path: path.to_owned(), module, text, syntax, is_test })
    }
}

/// Notes which files belong to modules that are declared for tests only.
fn find_tests(files: &mut [SourceFile]) {
    let mut declared = BTreeSet::new();
    for file in files.iter() {
        declared.extend(test_modules(&file.module, &file.syntax));
    }
    for file in files {
        file.is_test |= (1..=file.module.len()).any(|depth| declared.contains(&file.module[..depth]));
    }
}

impl Tree {
    /// Reads the project in `root`.
    ///
    /// # Errors
    /// A file cannot be read, or is no Rust.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut folders = vec![PathBuf::from("xtask")];
        for folder in CRATE_FOLDERS {
            folders.extend(list(&root.join(folder))?.into_iter().filter_map(|path| {
                let inside = path.join("Cargo.toml").exists();
                inside.then(|| path.strip_prefix(root).unwrap_or(&path).to_owned())
            }));
        }
        let mut crates = Vec::new();
        for folder in folders {
            crates.push(Crate::read(root, &folder)?);
        }
        let optional = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let mut documents = Vec::new();
        for folder in [root.to_owned(), root.join("docs")] {
            for path in
                list(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|is| is == "md"))
            {
                documents.push((relative(root, &path), read(&path)?));
            }
        }
        Ok(Self {
            crates,
            manifest: read(&root.join("Cargo.toml"))?,
            lock: optional("Cargo.lock"),
            architecture: optional("ARCHITECTURE.md"),
            design: optional("docs/DESIGN.md"),
            documents,
        })
    }
}

impl Tree {
    /// The crate in `crates/` of this name.
    pub fn member(&self, name: &str) -> Option<&Crate> {
        self.crates.iter().find(|member| member.folder.strip_prefix("crates/") == Some(name))
    }
}

impl Crate {
    fn read(root: &Path, folder: &Path) -> Result<Self, String> {
        let source = root.join(folder).join("src");
        let mut files = Vec::new();
        let mut waiting = vec![source.clone()];
        while let Some(next) = waiting.pop() {
            for path in list(&next)? {
                if path.is_dir() {
                    waiting.push(path);
                } else if path.extension().is_some_and(|is| is == "rs") {
                    let module = module_of(path.strip_prefix(&source).unwrap_or(&path));
                    files.push(SourceFile::parse(&relative(root, &path), module, read(&path)?)?);
                }
            }
        }
        find_tests(&mut files);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let manifest = read(&root.join(folder).join("Cargo.toml"))?;
        Ok(Self { folder: folder.to_string_lossy().into_owned(), manifest, files })
    }

    /// The last part of the folder.
    pub fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }
}

/// The module that a file below `src` is.
fn module_of(path: &Path) -> Module {
    let mut parts: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts
        .last()
        .is_some_and(|last| last == "mod" || (parts.len() == 1 && (last == "lib" || last == "main")))
    {
        parts.pop();
    }
    parts
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// A crate of sources in memory, for the rules' tests: pairs of path below `src` and text.
#[cfg(test)]
pub fn crate_of(folder: &str, sources: &[(&str, &str)]) -> Crate {
    let file = |(path, text): &(&str, &str)| {
        let module = module_of(Path::new(path));
        SourceFile::parse(&format!("{folder}/src/{path}"), module, (*text).to_owned()).expect("it is Rust")
    };
    let mut files: Vec<SourceFile> = sources.iter().map(file).collect();
    find_tests(&mut files);
    Crate { folder: folder.to_owned(), manifest: String::new(), files }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_module_that_rust_takes_it_for() {
        let module = |path: &str| module_of(Path::new(path)).join("::");
        assert_eq!(module("lib.rs"), "");
        assert_eq!(module("fs/mod.rs"), "fs");
        assert_eq!(module("fs/data.rs"), "fs::data");
        assert_eq!(module("fs/main.rs"), "fs::main");
    }
}
