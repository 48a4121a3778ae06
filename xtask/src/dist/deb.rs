//! Debian's packages: `cenote` and `cenote-dbgsym`.

use super::tree::{self, Places};
use super::{Release, output, run_quietly, source_date};
use std::path::Path;
use std::process::Command;

const PLACES: Places = Places { zsh: "usr/share/zsh/vendor-completions", licences: "usr/share/doc/cenote" };

/// Scripts that run when the package is installed, removed or purged.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub fn pack(release: &Release, work: &Path, notices: &str) -> Result<(), String> {
    let root = work.join("deb");
    tree::lay_out(release, &root, notices, &PLACES)?;
    tree::copy(Path::new("packaging/deb/copyright"), &root.join("usr/share/doc/cenote/copyright"), 0o644)?;
    for script in SCRIPTS {
        let from = Path::new("packaging/deb").join(script);
        tree::copy(&from, &root.join("DEBIAN").join(script), 0o755)?;
    }
    let configuration: String = tree::CONFIGURATION.map(|path| format!("{path}\n")).concat();
    tree::write(&root.join("DEBIAN/conffiles"), configuration.as_bytes(), 0o644)?;
    let depends = format!("libc6 (>= {}), libgcc-s1, systemd | systemd-standalone-sysusers", glibc(release)?);
    let fields = format!(
        "Depends: {depends}\nRecommends: smartmontools, etcd-server | etcd\nSuggests: avahi-daemon, wsdd, libibverbs1, librdmacm1\nSection: net\n\
         Description: mirrored storage from local disks, served as SMB3 shares\n \
         Turns the local disks of a server into pools with mirrored, checksummed\n \
         volumes and serves them as SMB3 shares, over TCP and SMB Direct. With the\n \
         command line, diskspd to measure files, disks and shares, and fleet to have\n \
         many workers measure together.\n"
    );
    build(release, &root, "cenote", "-z10", &fields)?;

    let root = work.join("deb-debug");
    tree::lay_out_debug(release, &root)?;
    let ids: Vec<&str> = release.programs.iter().map(|program| program.build_id.as_str()).collect();
    let fields = format!(
        "Depends: cenote (= {})\nSection: debug\nAuto-Built-Package: debug-symbols\nBuild-Ids: {}\n\
         Description: debug symbols for cenote\n",
        release.version,
        ids.join(" ")
    );
    // The file's sections are compressed already.
    build(release, &root, "cenote-dbgsym", "-z1", &fields)
}

/// Writes the control file, and has the package made.
fn build(release: &Release, root: &Path, name: &str, effort: &str, fields: &str) -> Result<(), String> {
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let (architecture, version) = (architecture.trim(), &release.version);
    let size = output(Command::new("du").args(["-sk", "--exclude=DEBIAN"]).arg(root))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    // Nobody maintains packages by mail: the repository takes reports of problems.
    let repository = env!("CARGO_PKG_REPOSITORY");
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Cenote developers <{repository}>\n\
         Installed-Size: {size}\nPriority: optional\nHomepage: {repository}\n{fields}"
    );
    tree::write(&root.join("DEBIAN/control"), control.as_bytes(), 0o644)?;
    let file = release.out.join(format!("{name}_{version}_{architecture}.deb"));
    let options = ["--root-owner-group", "-Zzstd", effort, "--build"];
    run_quietly(
        Command::new("dpkg-deb").args(options).args([root, &file]).env("SOURCE_DATE_EPOCH", source_date()?),
    )
}

/// The oldest C library that has all symbols which the programs use, as `2.34`.
fn glibc(release: &Release) -> Result<String, String> {
    let mut oldest = (2, 0);
    for program in &release.programs {
        let symbols = output(Command::new("objdump").arg("--dynamic-syms").arg(&program.stripped))?;
        let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
            let version = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
            let (major, minor) = version.split_once('.')?;
            Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
        });
        oldest = versions.fold(oldest, std::cmp::max);
    }
    Ok(format!("{}.{}", oldest.0, oldest.1))
}
