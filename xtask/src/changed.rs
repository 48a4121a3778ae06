//! `cargo xtask changed`: the crates that a change touches and all that depend on them, as arguments for cargo; on a
//! second line the features by which bugs can be planted, for tests.
//!
//! Compares the work tree with HEAD or, if nothing has changed since, with the merge base of HEAD and
//! `main`. If nothing has changed since that either, or git fails, prints `--workspace`; so it does if
//! a file changed that every crate is built by.
//! A change that touches no crate prints empty lines.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, ExitCode};

/// Branches to compare with; the first existing one counts.
const MAIN: [&str; 2] = ["origin/main", "main"];
/// Files and folders that every crate is built by.
const SHARED: [&str; 4] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/"];
/// The feature by which bugs can be planted, for tests that find them.
const PLANTED: &str = "planted-bugs";

/// A crate of the workspace.
struct Package {
    name: String,
    /// Path from the root of the project, ending in a slash.
    folder: String,
    /// Folders of the crates of the workspace that it uses, in tests too.
    uses: Vec<String>,
    has_planted: bool,
}

/// Prints the arguments: a line for the crates, and one for the features that their tests need.
pub fn run() -> ExitCode {
    let Some(packages) = packages() else {
        eprintln!("changed: cargo metadata cannot be read");
        return ExitCode::FAILURE;
    };
    let folders = changed_files().and_then(|files| select(&packages, &files));
    println!("{}\n{}", arguments(&packages, folders.as_ref()), planted(&packages, folders.as_ref()));
    ExitCode::SUCCESS
}

/// Lists the crates of the workspace.
fn packages() -> Option<Vec<Package>> {
    let text = output("cargo", &["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&text).ok()?;
    let root = format!("{}/", metadata["workspace_root"].as_str()?);
    let inside = |path: &str| Some(format!("{}/", path.strip_prefix(&root)?));
    let parse = |package: &Value| {
        let used = package["dependencies"].as_array()?.iter();
        Some(Package {
            name: package["name"].as_str()?.to_owned(),
            folder: inside(package["manifest_path"].as_str()?.strip_suffix("/Cargo.toml")?)?,
            uses: used.filter_map(|used| inside(used["path"].as_str()?)).collect(),
            has_planted: !package["features"][PLANTED].is_null(),
        })
    };
    metadata["packages"].as_array()?.iter().map(parse).collect()
}

/// Lists the changed files; `None` if there are none, or git fails.
fn changed_files() -> Option<Vec<String>> {
    let new = output("git", &["ls-files", "--others", "--exclude-standard"])?;
    let since_head = output("git", &["diff", "--name-only", "HEAD"])?;
    let files: Vec<String> = new.lines().chain(since_head.lines()).map(str::to_owned).collect();
    if !files.is_empty() {
        return Some(files);
    }
    let base = MAIN.iter().find_map(|branch| output("git", &["merge-base", "HEAD", branch]))?;
    let since_base = output("git", &["diff", "--name-only", base.trim()])?;
    let files: Vec<String> = since_base.lines().map(str::to_owned).collect();
    (!files.is_empty()).then_some(files)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Selects the crates that the files belong to and all that depend on them; `None` for all crates.
fn select<'a>(packages: &'a [Package], files: &[String]) -> Option<BTreeSet<&'a str>> {
    let is_shared = |file: &String| {
        SHARED.iter().any(|shared| file == shared || shared.ends_with('/') && file.starts_with(shared))
    };
    if files.iter().any(is_shared) {
        return None;
    }
    let touched =
        packages.iter().filter(|package| files.iter().any(|file| file.starts_with(&package.folder)));
    let mut folders: Vec<&str> = touched.map(|package| &package.folder[..]).collect();
    let mut next = 0;
    while let Some(folder) = folders.get(next).copied() {
        next += 1;
        for user in packages.iter().filter(|package| package.uses.iter().any(|used| used == folder)) {
            if !folders.contains(&&user.folder[..]) {
                folders.push(&user.folder);
            }
        }
    }
    Some(folders.into_iter().collect())
}

/// Returns the crates of these folders, or all.
fn chosen<'a>(
    packages: &'a [Package],
    folders: Option<&BTreeSet<&str>>,
) -> impl Iterator<Item = &'a Package> {
    packages.iter().filter(move |package| folders.is_none_or(|folders| folders.contains(&package.folder[..])))
}

/// Names the crates of these folders, or all, to cargo.
fn arguments(packages: &[Package], folders: Option<&BTreeSet<&str>>) -> String {
    if folders.is_none() {
        return "--workspace".to_owned();
    }
    let each = chosen(packages, folders).map(|package| format!("--package {}", package.name));
    each.collect::<Vec<_>>().join(" ")
}

/// Names their features by which bugs can be planted.
fn planted(packages: &[Package], folders: Option<&BTreeSet<&str>>) -> String {
    let each = chosen(packages, folders).filter(|package| package.has_planted);
    each.map(|package| format!("--features {}/{PLANTED}", package.name)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[&str], has_planted: bool) -> Package {
        let uses = uses.iter().map(|used| format!("crates/{used}/")).collect();
        Package { name: format!("cenote-{name}"), folder: format!("crates/{name}/"), uses, has_planted }
    }

    fn chain() -> Vec<Package> {
        vec![
            package("disk", &[], false),
            package("diskspd", &[], false),
            package("store", &["disk"], true),
            package("sim", &["store"], true),
        ]
    }

    fn arguments_for(files: &[&str]) -> String {
        let (packages, files) = (chain(), files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>());
        let folders = select(&packages, &files);
        let parts = [arguments(&packages, folders.as_ref()), planted(&packages, folders.as_ref())];
        parts.join(" ").trim().to_owned()
    }

    #[test]
    fn a_crate_is_tested_with_all_that_depend_on_it() {
        let store = "--package cenote-store --package cenote-sim --features cenote-store/planted-bugs \
                     --features cenote-sim/planted-bugs";
        assert_eq!(arguments_for(&["crates/store/src/lib.rs"]), store);
        assert_eq!(arguments_for(&["crates/disk/src/lib.rs"]), format!("--package cenote-disk {store}"));
    }

    #[test]
    fn a_folder_whose_name_begins_alike_is_another_crate() {
        assert_eq!(arguments_for(&["crates/diskspd/src/main.rs"]), "--package cenote-diskspd");
    }

    #[test]
    fn a_file_that_every_crate_is_built_by_chooses_all() {
        assert!(arguments_for(&["Cargo.lock", "crates/disk/src/lib.rs"]).starts_with("--workspace "));
        assert!(arguments_for(&[".cargo/config.toml"]).starts_with("--workspace "));
    }

    #[test]
    fn a_document_chooses_no_crate() {
        assert_eq!(arguments_for(&["docs/DESIGN.md"]), "");
    }
}
