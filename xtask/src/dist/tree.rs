//! The files of a package as they are installed, and those made on the way: man pages, completions, notices.

use super::{Program, Release, output, run_quietly};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Places that differ from family to family.
pub struct Places {
    /// Directory in which the system's zsh looks for completions.
    pub zsh: &'static str,
    pub licences: &'static str,
}

const DOCUMENTS: &str = "usr/share/doc/cenote";

/// Files of the repository: from, to, mode.
const FILES: [(&str, &str, u32); 28] = [
    ("packaging/cenote.toml", "etc/cenote/cenote.toml", 0o644),
    ("packaging/sysusers.conf", "usr/lib/sysusers.d/cenote.conf", 0o644),
    ("packaging/cenote.rules", "usr/lib/udev/rules.d/65-cenote.rules", 0o644),
    ("packaging/cenote.service", "usr/lib/systemd/system/cenote.service", 0o644),
    ("packaging/cenote-witness.service", "usr/lib/systemd/system/cenote-witness.service", 0o644),
    ("packaging/cenote-locate.socket", "usr/lib/systemd/system/cenote-locate.socket", 0o644),
    ("packaging/cenote-locate@.service", "usr/lib/systemd/system/cenote-locate@.service", 0o644),
    ("packaging/cenote-smart.service", "usr/lib/systemd/system/cenote-smart.service", 0o644),
    ("packaging/cenote-smart.timer", "usr/lib/systemd/system/cenote-smart.timer", 0o644),
    ("packaging/cenote-locate", "usr/libexec/cenote-locate", 0o755),
    ("packaging/cenote-upgrade", "usr/libexec/cenote-upgrade", 0o755),
    ("packaging/cenote-smart", "usr/libexec/cenote-smart", 0o755),
    ("packaging/firewall/firewalld.xml", "usr/lib/firewalld/services/cenote.xml", 0o644),
    ("packaging/firewall/ufw.profile", "etc/ufw/applications.d/cenote", 0o644),
    ("packaging/discovery/avahi.service", "usr/share/doc/cenote/examples/avahi.service", 0o644),
    ("packaging/discovery/wsdd.conf", "usr/share/doc/cenote/examples/wsdd.conf", 0o644),
    ("packaging/monitoring/cenote.rules.yml", "usr/share/doc/cenote/examples/cenote.rules.yml", 0o644),
    (
        "packaging/monitoring/cenote.dashboard.json",
        "usr/share/doc/cenote/examples/cenote.dashboard.json",
        0o644,
    ),
    ("README.md", "usr/share/doc/cenote/README.md", 0o644),
    ("SECURITY.md", "usr/share/doc/cenote/SECURITY.md", 0o644),
    ("docs/OPERATIONS.md", "usr/share/doc/cenote/docs/OPERATIONS.md", 0o644),
    ("docs/CLUSTER.md", "usr/share/doc/cenote/docs/CLUSTER.md", 0o644),
    ("docs/PERFORMANCE.md", "usr/share/doc/cenote/docs/PERFORMANCE.md", 0o644),
    ("docs/FOR_WINDOWS_ADMINS.md", "usr/share/doc/cenote/docs/FOR_WINDOWS_ADMINS.md", 0o644),
    ("docs/SMB_DIRECT.md", "usr/share/doc/cenote/docs/SMB_DIRECT.md", 0o644),
    ("docs/DISKSPD.md", "usr/share/doc/cenote/docs/DISKSPD.md", 0o644),
    ("docs/FLEET.md", "usr/share/doc/cenote/docs/FLEET.md", 0o644),
    ("docs/CONFORMANCE.md", "usr/share/doc/cenote/docs/CONFORMANCE.md", 0o644),
];

/// Files that the administrator edits.
pub const CONFIGURATION: [&str; 2] = ["/etc/cenote/cenote.toml", "/etc/ufw/applications.d/cenote"];

/// Lays the package's files out below `root`.
pub fn lay_out(release: &Release, root: &Path, notices: &str, places: &Places) -> Result<(), String> {
    for (from, to, mode) in FILES {
        copy(Path::new(from), &root.join(to), mode)?;
    }
    for program in &release.programs {
        copy(&program.stripped, &root.join("usr/bin").join(name(program)?), 0o755)?;
    }
    let cenote = root.join("usr/bin/cenote");
    completions(&cenote, root, places)?;
    man_pages(&cenote, &root.join("usr/bin"), &root.join("usr/share/man/man1"))?;
    packed(&root.join(DOCUMENTS).join("changelog.gz"), &read(Path::new("CHANGELOG.md"))?)?;
    let licences = root.join(places.licences);
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(Path::new(licence), &licences.join(licence), 0o644)?;
    }
    packed(&licences.join("NOTICES.gz"), notices.as_bytes())
}

/// Lays the debug files out below `root`.
pub fn lay_out_debug(release: &Release, root: &Path) -> Result<(), String> {
    release
        .programs
        .iter()
        .try_for_each(|program| copy(&program.debug, &root.join(program.debug_path()), 0o644))
}

fn name(program: &Program) -> Result<&std::ffi::OsStr, String> {
    program.stripped.file_name().ok_or_else(|| "no program".to_owned())
}

fn completions(cenote: &Path, root: &Path, places: &Places) -> Result<(), String> {
    let zsh = format!("{}/_cenote", places.zsh);
    for (shell, place) in [
        ("bash", "usr/share/bash-completion/completions/cenote"),
        ("fish", "usr/share/fish/vendor_completions.d/cenote.fish"),
        ("zsh", zsh.as_str()),
    ] {
        let script = output(Command::new(cenote).args(["completion", shell]))?;
        write(&root.join(place), script.as_bytes(), 0o644)?;
    }
    Ok(())
}

fn man_pages(cenote: &Path, programs: &Path, directory: &Path) -> Result<(), String> {
    for program in [cenote, &programs.join("fleet")] {
        run_quietly(Command::new(program).arg("man").arg(directory))?;
    }
    write(&directory.join("diskspd.1"), diskspd_page(&programs.join("diskspd"))?.as_bytes(), 0o644)?;
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for page in pages {
        let mut name = page.clone().into_os_string();
        name.push(".gz");
        packed(Path::new(&name), &read(&page)?)?;
        fs::remove_file(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    Ok(())
}

/// Makes a man page around the output of `diskspd -?`.
fn diskspd_page(diskspd: &Path) -> Result<String, String> {
    let help = Command::new(diskspd).arg("-?").output().map_err(|error| format!("diskspd: {error}"))?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    if help.trim().is_empty() {
        return Err("diskspd -? says nothing".into());
    }
    // A backslash begins an escape, and so does a dot or an apostrophe at the beginning of a line.
    let lines: String =
        help.lines().map(|line| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-"))).collect();
    Ok(format!(
        ".TH diskspd 1 \"\" \"Cenote {}\"\n.SH NAME\ndiskspd \\- measure files, disks and SMB shares\n.SH SYNOPSIS\n.B diskspd\n[options] \
         target ...\n.SH DESCRIPTION\n/usr/share/doc/cenote/docs/DISKSPD.md tells how it differs from DiskSpd on Windows.\n.nf\n{lines}.fi\n\
         .SH SEE ALSO\n.BR cenote (1)\n",
        env!("CARGO_PKG_VERSION")
    ))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file with this mode, and makes the directories it is in.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut made = path.parent().ok_or("no directory")?;
    let directory = made;
    let mut missing = Vec::new();
    while !made.exists() {
        missing.push(made);
        made = made.parent().ok_or("no directory")?;
    }
    fs::create_dir_all(directory).map_err(failed)?;
    // The umask does not matter.
    for directory in missing {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    fs::write(path, bytes).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
}

pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    write(to, &read(from)?, mode)
}

/// Writes a file through `gzip`, without name and time.
fn packed(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("gzip: {error}");
    let mut gzip = Command::new("gzip")
        .args(["-9", "--no-name"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = gzip.stdin.take().ok_or("gzip has no input")?;
    let packed = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes));
        gzip.wait_with_output()
    });
    let packed = packed.map_err(failed)?;
    if !packed.status.success() {
        return Err(format!("gzip: {}", packed.status));
    }
    write(path, &packed.stdout, 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents for developers. They stay in the repository, as the files do that they refer to.
    const OF_THE_REPOSITORY: [&str; 5] =
        ["DECISIONS.md", "DESIGN.md", "ON_DISK.md", "PROTOCOL.md", "SCALE.md"];

    #[test]
    fn every_document_of_administrators_is_in_the_packages() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let mut missing = Vec::new();
        for entry in fs::read_dir(docs).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let is_packed = FILES.iter().any(|(from, _, _)| *from == format!("docs/{name}"));
            if name.ends_with(".md") && is_packed == OF_THE_REPOSITORY.contains(&name.as_str()) {
                missing.push(name);
            }
        }
        assert!(missing.is_empty(), "neither packed nor left out by name, or both: {missing:?}");
    }

    #[test]
    fn every_file_of_the_packages_is_in_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (from, _, _) in FILES {
            assert!(root.join(from).is_file(), "{from}");
        }
    }
}
