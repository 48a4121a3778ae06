//! `cargo xtask dist [--binaries DIR] [--out DIR] [--version VERSION] [--only deb|rpm]`: the .deb and .rpm packages, the files to debug them
//! by, a container file, and the sums of all.
//!
//! Both packages are made from one tree of files ([`tree`]) by the programs that each family of distributions has: `dpkg-deb` and
//! `rpmbuild`. A package whose program is missing is left out, which is said. Promises: the same commit and binaries give the same
//! packages, byte for byte; nothing outside the output directory is written.

mod deb;
mod notices;
mod rpm;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The programs that ship.
const BINARIES: [&str; 3] = ["cenote", "diskspd", "fleet"];

/// The release that is packed.
struct Release {
    /// The package's version: `-`, which divides a package's version from its distribution's revision, is
    /// `~` here, which sorts before all.
    version: String,
    /// Directory that the packages go to.
    out: PathBuf,
    /// Stripped programs, and the files to debug them by.
    programs: Vec<Program>,
}

struct Program {
    stripped: PathBuf,
    debug: PathBuf,
    /// The id by which debuggers and `coredumpctl` find the debug file.
    build_id: String,
}

struct Arguments {
    binaries: Option<PathBuf>,
    out: Option<PathBuf>,
    version: String,
    /// The one kind of package that is wanted.
    only: Option<String>,
}

pub fn run(words: Vec<String>) -> ExitCode {
    match arguments(words).and_then(|arguments| dist(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("dist: {message}");
            ExitCode::FAILURE
        }
    }
}

fn arguments(words: Vec<String>) -> Result<Arguments, String> {
    let mut words = words.into_iter();
    let mut arguments =
        Arguments { binaries: None, out: None, version: env!("CARGO_PKG_VERSION").to_owned(), only: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} takes a value"));
        match word.as_str() {
            "--binaries" => arguments.binaries = Some(value()?.into()),
            "--out" => arguments.out = Some(value()?.into()),
            "--version" => arguments.version = value()?,
            "--only" => arguments.only = Some(value()?),
            _ => {
                return Err("usage: cargo xtask dist [--binaries DIR] [--out DIR] [--version VERSION] [--only deb|rpm]".into());
            }
        }
    }
    Ok(arguments)
}

fn dist(arguments: &Arguments) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?;
    std::env::set_current_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
    let target: PathBuf = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let binaries = match &arguments.binaries {
        Some(directory) => directory.clone(),
        None => {
            let packages = ["cenote", "cenote-diskspd", "cenote-fleet"].map(|name| ["--package", name]);
            let build = ["build", "--locked", "--release"];
            run_quietly(Command::new("cargo").args(build).args(packages.as_flattened()))?;
            target.join("release")
        }
    };
    let out = arguments.out.clone().unwrap_or_else(|| target.join("dist"));
    if out.exists() {
        // Left by an earlier run. Anything else is not ours to delete.
        if !out.join("SHA256SUMS").exists() {
            return Err(format!("{} is there, and no `cargo xtask dist` wrote it", out.display()));
        }
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let work = out.join("work");
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let programs =
        BINARIES.iter().map(|name| split(&binaries.join(name), &work)).collect::<Result<_, _>>()?;
    let release = Release { version: arguments.version.replace('-', "~"), out: out.clone(), programs };

    let notices = notices::text()?;
    let mut made = 0;
    for (kind, program, pack) in
        [("deb", "dpkg-deb", deb::pack as fn(&Release, &Path, &str) -> _), ("rpm", "rpmbuild", rpm::pack)]
    {
        if arguments.only.as_ref().is_some_and(|only| only != kind) {
            continue;
        }
        if is_there(program) {
            pack(&release, &work, &notices)?;
            made += 1;
        } else {
            println!("{program} is not there: no .{kind} is made");
        }
    }
    if made == 0 {
        return Err("no package was made: they take dpkg-deb (dpkg) or rpmbuild (rpm, rpm-build)".into());
    }
    tree::copy(Path::new("packaging/Containerfile"), &out.join("Containerfile"), 0o644)?;
    std::fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    sums(&out)
}

/// Divides a program into its running part and its debug information.
fn split(binary: &Path, work: &Path) -> Result<Program, String> {
    let name = binary.file_name().ok_or("no program")?;
    let (stripped, debug) = (work.join(name), work.join(name).with_extension("debug"));
    run_quietly(
        Command::new("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections"])
            .args([binary, &debug]),
    )?;
    let sections = ["--remove-section=.comment", "--remove-section=.note"];
    run_quietly(
        Command::new("strip").arg("--strip-unneeded").args(sections).arg("-o").args([&stripped, binary]),
    )?;
    let notes = output(Command::new("readelf").arg("--notes").arg(&stripped))?;
    let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    let build_id = build_id.ok_or_else(|| format!("{} has no build id", binary.display()))?.to_owned();
    Ok(Program { stripped, debug, build_id })
}

impl Program {
    /// The path at which debuggers look for the debug file, below the root.
    fn debug_path(&self) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        Path::new("usr/lib/debug/.build-id").join(first).join(format!("{rest}.debug"))
    }
}

/// Seconds since 1970 that all files of the packages carry: the commit's.
fn source_date() -> Result<String, String> {
    let seconds = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?;
    Ok(seconds.trim().to_owned())
}

/// Writes SHA256SUMS, which also marks the directory as ours.
fn sums(out: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let sums = output(Command::new("sha256sum").args(&names).current_dir(out))?;
    std::fs::write(out.join("SHA256SUMS"), sums).map_err(|error| format!("SHA256SUMS: {error}"))?;
    for name in names {
        println!("{}", out.join(name).display());
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn run_quietly(command: &mut Command) -> Result<(), String> {
    output(command).map(drop)
}

/// Returns a program's output; else its name and the reason of its failure.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
