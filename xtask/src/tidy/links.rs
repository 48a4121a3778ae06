//! Rule `links`: crates of the data plane link no asynchronous runtime and no TLS, neither by themselves nor through a crate that they use.
//! The manifests name the crates of the workspace that each uses, and Cargo.lock the packages that others use.

use super::Finding;
use super::order::dependencies;
use super::tree::Tree;
use std::collections::BTreeMap;

/// State machines, and the data plane's own loop: tests, fuzzers and the simulator build these often.
const DATA_PLANE: [&str; 20] = [
    "types",
    "sys",
    "codes",
    "disk",
    "store",
    "pool",
    "records",
    "heartbeat",
    "trust",
    "space",
    "volume",
    "smb",
    "smb-server",
    "iwarp",
    "smbdirect",
    "rdma",
    "smb-transport",
    "smb-client",
    "bus",
    "node",
];
const RUNTIMES: [&str; 4] = ["hyper", "rustls", "tokio", "tonic"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(&tree.lock);
    let mut findings = Vec::new();
    for name in DATA_PLANE.into_iter().filter(|name| tree.member(name).is_some()) {
        let users = users(tree, &packages, name);
        for found in RUNTIMES.into_iter().filter(|found| users.contains_key(found)) {
            let mut way = vec![found];
            while let Some(user) = way.last().and_then(|last| users.get(last)).filter(|user| **user != name) {
                way.push(user);
            }
            way.reverse();
            findings.push(Finding::new("links", name, format!("links {}", way.join(", which links "))));
        }
    }
    findings
}

/// Everything that a crate links, each with one that uses it.
fn users<'a>(
    tree: &'a Tree,
    packages: &BTreeMap<&'a str, Vec<&'a str>>,
    name: &'a str,
) -> BTreeMap<&'a str, &'a str> {
    let mut users = BTreeMap::new();
    let mut waiting = vec![name];
    while let Some(user) = waiting.pop() {
        let used: Vec<&str> = match tree.member(user) {
            Some(member) => dependencies(&member.manifest).collect(),
            None => packages.get(user).cloned().unwrap_or_default(),
        };
        for used in used {
            if !users.contains_key(used) {
                users.insert(used, user);
                waiting.push(used);
            }
        }
    }
    users
}

/// The packages of Cargo.lock with those that each uses. Versions of one package count as one.
fn packages(lock: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut packages = BTreeMap::<&str, Vec<&str>>::new();
    let mut package = "";
    for line in lock.lines() {
        if let Some(name) = line.strip_prefix("name = \"") {
            package = name.trim_end_matches('"');
        } else if let Some(used) = line.strip_prefix(" \"") {
            let used = used.split([' ', '"']).next().unwrap_or_default();
            packages.entry(package).or_default().push(used);
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::crate_of;

    fn tree(records_use: &str, lock: &str) -> Tree {
        let mut records = crate_of("crates/records", &[]);
        records.manifest =
            format!("[dependencies]\n{records_use}\n[dev-dependencies]\ntokio.workspace = true\n");
        let mut space = crate_of("crates/space", &[]);
        space.manifest = "[dependencies]\nrecords.workspace = true\n".to_owned();
        Tree { crates: vec![records, space], lock: lock.to_owned(), ..Tree::default() }
    }

    const LOCK: &str = "[[package]]\nname = \"client\"\nversion = \"1.0.0\"\ndependencies = [\n \"libc\",\n \"rustls 0.23.46\",\n]\n";

    #[test]
    fn a_crate_whose_tests_alone_use_a_runtime_passes() {
        assert_eq!(check(&tree("libc.workspace = true", LOCK)), []);
    }

    #[test]
    fn a_runtime_is_found_through_other_crates_and_packages() {
        let found = check(&tree("client.workspace = true", LOCK));
        let said: Vec<_> = found.iter().map(|found| (found.subject.as_str(), found.why.as_str())).collect();
        assert_eq!(
            said,
            [
                ("records", "links client, which links rustls"),
                ("space", "links records, which links client, which links rustls"),
            ]
        );
    }
}
