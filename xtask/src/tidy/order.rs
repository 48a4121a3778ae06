//! Rule `order`: a crate uses only those above it in the workspace's list, and ARCHITECTURE.md shows the same order.

use super::Finding;
use super::tree::Tree;

/// Folder whose crates keep the order; crates in `tests/` and `xtask` stand on all of them.
const ORDERED: &str = "crates/";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed = listed(&tree.manifest);
    let mut findings = Vec::new();
    for (place, name) in listed.iter().enumerate() {
        let Some(found) = tree.crates.iter().find(|member| member.folder == format!("{ORDERED}{name}"))
        else {
            findings.push(Finding::new("order", *name, "is listed in Cargo.toml and not there"));
            continue;
        };
        for used in dependencies(&found.manifest) {
            if let Some(below) = listed.iter().position(|other| *other == used)
                && below >= place
            {
                let why = format!("uses {used}, which does not stand above it in Cargo.toml");
                findings.push(Finding::new("order", *name, why));
            }
        }
    }
    for found in tree.crates.iter().filter(|member| member.folder.starts_with(ORDERED)) {
        if !listed.contains(&found.name()) {
            findings.push(Finding::new("order", found.name(), "is not listed in Cargo.toml"));
        }
    }
    let shown: Vec<&str> = shown(&tree.architecture).collect();
    if shown != listed {
        let why = format!("lists the crates as {}; Cargo.toml as {}", shown.join(", "), listed.join(", "));
        findings.push(Finding::new("order", "ARCHITECTURE.md", why));
    }
    findings
}

/// The ordered crates of the workspace's list.
fn listed(manifest: &str) -> Vec<&str> {
    let members = manifest.split_once("members = [").map_or("", |(_, rest)| rest);
    let members = members.split_once(']').map_or("", |(members, _)| members);
    let quoted = members.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
    quoted.filter_map(|member| member.strip_prefix(ORDERED)).collect()
}

/// The dependencies of a crate that ship; those of tests may come from anywhere.
pub fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut ships = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            ships = line.trim() == "[dependencies]"
                || (line.starts_with("[target.") && line.trim().ends_with(".dependencies]"));
            return None;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        (ships && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

/// The crates of ARCHITECTURE.md's table: rows that begin with a name in ticks below the heading `## Crates`.
fn shown(architecture: &str) -> impl Iterator<Item = &str> {
    let section = architecture.split_once("\n## Crates").map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    fn tree(lower_uses: &str, architecture: &str) -> Tree {
        let mut lower = crate_of("crates/lower", &[]);
        lower.manifest =
            format!("[dependencies]\n{lower_uses}\n[dev-dependencies]\nupper.workspace = true\n");
        let mut upper = crate_of("crates/upper", &[]);
        upper.manifest = "[dependencies]\nlower.workspace = true\n".to_owned();
        Tree {
            crates: vec![lower, upper],
            manifest: "members = [\n \"crates/lower\", # first\n \"crates/upper\",\n]\n".to_owned(),
            architecture: architecture.to_owned(),
            ..Tree::default()
        }
    }

    const SHOWN: &str = "# Map\n## Crates\n| `lower` | a |\n| `upper` | b |\n## Next\n";

    #[test]
    fn a_crate_that_uses_those_above_it_passes() {
        assert_eq!(check(&tree("serde = \"1\"", SHOWN)), []);
    }

    #[test]
    fn a_crate_that_uses_one_below_it_is_found() {
        let found = check(&tree("upper.workspace = true", SHOWN));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].subject, "lower");
    }

    #[test]
    fn another_order_in_the_architecture_is_found() {
        let found = check(&tree("", "# Map\n## Crates\n| `upper` | b |\n| `lower` | a |\n"));
        assert_eq!(found[0].subject, "ARCHITECTURE.md");
    }
}
