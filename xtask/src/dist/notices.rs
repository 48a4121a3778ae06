//! The licences of all crates that the programs are linked from: most ask for their text to go along.

use super::output;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const PACKAGES: [&str; 3] = ["cenote", "cenote-diskspd", "cenote-fleet"];

/// Every crate with its version and licence, then each text once, with the crates that it is of.
pub fn text() -> Result<String, String> {
    let host = output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let metadata = ["metadata", "--locked", "--format-version", "1", "--filter-platform", host.trim()];
    let metadata = output(Command::new("cargo").args(metadata))?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let linked = linked(&metadata);

    let mut list = String::from(
        "Cenote is linked from Rust's standard library (MIT OR Apache-2.0) and these crates:\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in array(&metadata, "packages") {
        // Our own have no source.
        if !linked.contains(text_of(package, "id")) || package.get("source").is_none_or(Value::is_null) {
            continue;
        }
        let name = format!("{} {}", text_of(package, "name"), text_of(package, "version"));
        let _ = writeln!(list, "{name}: {}", text_of(package, "license"));
        for licence in licences(Path::new(text_of(package, "manifest_path")))? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    for (licence, crates) in texts {
        let _ = write!(list, "\n{}\n{}\n\n{}\n", "-".repeat(80), crates.join(", "), licence.trim_end());
    }
    Ok(list)
}

/// Identities of the packages that are part of a program: dependencies of dependencies, but not those for builds and tests.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"], "nodes").iter().map(|node| (text_of(node, "id"), node)).collect();
    let is_ours = |package: &&Value| PACKAGES.contains(&text_of(package, "name"));
    let mut left: Vec<&str> =
        array(metadata, "packages").iter().filter(is_ours).map(|package| text_of(package, "id")).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !linked.insert(id) {
            continue;
        }
        for dependency in nodes.get(id).into_iter().flat_map(|node| array(node, "deps")) {
            // The kind of an ordinary dependency is null.
            if array(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null()) {
                left.push(text_of(dependency, "pkg"));
            }
        }
    }
    linked
}

/// Texts of the licences beside a manifest.
fn licences(manifest: &Path) -> Result<BTreeSet<String>, String> {
    let directory = manifest.parent().ok_or("no directory")?;
    let entries =
        std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let is_licence = |name: &str| {
        let name = name.to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|begin| name.starts_with(begin))
    };
    let files = entries.flatten().filter(|entry| is_licence(&entry.file_name().to_string_lossy()));
    Ok(files
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .map(|text| text.replace("\r\n", "\n"))
        .collect())
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
