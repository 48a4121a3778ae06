//! The packages of Fedora, RHEL and SUSE: `cenote` and `cenote-debuginfo`. `packaging/rpm/cenote.spec`
//! has everything but the files.

use super::tree::{self, Places};
use super::{Release, run_quietly, source_date};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const PLACES: Places = Places { zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/cenote" };
/// Directories that belong to the package, and are gone with it.
const OWN: [&str; 3] = ["/etc/cenote", "/usr/share/doc/cenote", "/usr/share/licenses/cenote"];

pub fn pack(release: &Release, work: &Path, notices: &str) -> Result<(), String> {
    let work = work.canonicalize().map_err(|error| format!("{}: {error}", work.display()))?;
    let (root, debug, top) = (work.join("rpm"), work.join("rpm-debug"), work.join("rpm-build"));
    tree::lay_out(release, &root, notices, &PLACES)?;
    tree::lay_out_debug(release, &debug)?;
    let lists = [(&root, work.join("files")), (&debug, work.join("debug-files"))];
    for (root, list) in &lists {
        tree::write(list, file_list(root)?.as_bytes(), 0o644)?;
    }
    let mut command = Command::new("rpmbuild");
    command.arg("-bb").arg("packaging/rpm/cenote.spec");
    let defined = [
        ("_topdir", top.display().to_string()),
        ("cenote_version", release.version.clone()),
        ("cenote_tree", root.display().to_string()),
        ("cenote_debug_tree", debug.display().to_string()),
        ("cenote_files", lists[0].1.display().to_string()),
        ("cenote_debug_files", lists[1].1.display().to_string()),
    ];
    for (name, value) in defined {
        command.arg("--define").arg(format!("{name} {value}"));
    }
    run_quietly(command.env("SOURCE_DATE_EPOCH", source_date()?))?;
    let packages = top.join("RPMS").join(std::env::consts::ARCH);
    let entries = std::fs::read_dir(&packages).map_err(|error| format!("{}: {error}", packages.display()))?;
    for entry in entries.flatten() {
        tree::copy(&entry.path(), &release.out.join(entry.file_name()), 0o644)?;
    }
    Ok(())
}

/// The list for `%files -f`.
fn file_list(root: &Path) -> Result<String, String> {
    let mut list = String::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        let entries =
            std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let installed = path.strip_prefix(root).map_err(|error| error.to_string())?;
            let installed = format!("/{}", installed.display());
            let is_own = OWN.iter().any(|own| installed == *own || installed.starts_with(&format!("{own}/")));
            let mark = match &*installed {
                path if tree::CONFIGURATION.contains(&path) => "%config(noreplace) ",
                path if path.starts_with("/usr/share/doc/") => "%doc ",
                path if path.starts_with("/usr/share/licenses/") => "%license ",
                _ => "",
            };
            if path.is_dir() {
                if is_own {
                    let _ = writeln!(list, "%dir {installed}");
                }
                left.push(path);
            } else {
                let _ = writeln!(list, "{mark}{installed}");
            }
        }
    }
    Ok(list)
}
