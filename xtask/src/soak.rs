//! `cargo xtask soak rdma [--minutes N] [--release] [--cenote BINARY] [--client BINARY] [--seed N]`: a
//! daemon and client processes against it, for a given time; connections are killed and made anew every
//! few seconds, all data is verified.
//!
//! Promises: an error, a stall or a wrong byte of any process fails it; everything it started ends with it. Writes below a
//! directory of its own in the system's temporary one, and to loopback.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const PASSWORD: &str = "Soak1ng-wet";
/// Time that a client gets beyond its own, to set up, finish, and read everything once more.
const GRACE: Duration = Duration::from_secs(120);

/// The client processes, each with a file of its own.
const CLIENTS: [(&str, &[&str]); 4] = [
    ("plain-rdma", &["--rdma", "--channels", "3"]),
    ("signed-rdma", &["--rdma", "--channels", "2", "--sign"]),
    ("rdma-and-tcp", &["--rdma", "--channels", "1", "--tcp-channels", "1", "--no-crc"]),
    ("encrypted-tcp", &["--channels", "2", "--encrypt"]),
];

/// Ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gone with its owner.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Arguments {
    minutes: f64,
    seed: u64,
    is_release: bool,
    cenote: Option<PathBuf>,
    /// The example `soak` of cenote-smb-client, if it is built already.
    client: Option<PathBuf>,
}

fn arguments(words: Vec<String>) -> Result<Arguments, String> {
    let mut words = words.into_iter();
    if words.next().as_deref() != Some("rdma") {
        return Err(
            "usage: cargo xtask soak rdma [--minutes N] [--release] [--cenote BINARY] [--client BINARY] [--seed N]".into()
        );
    }
    let mut arguments = Arguments { minutes: 1.0, seed: 1, is_release: false, cenote: None, client: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} takes a value"));
        match word.as_str() {
            "--minutes" => arguments.minutes = value()?.parse().map_err(|_| "--minutes takes a number")?,
            "--seed" => arguments.seed = value()?.parse().map_err(|_| "--seed takes a number")?,
            "--release" => arguments.is_release = true,
            "--cenote" => {
                arguments.cenote = Some(value()?.into());
                arguments.is_release = true;
            }
            "--client" => arguments.client = Some(value()?.into()),
            other => return Err(format!("unknown option: {other}")),
        }
    }
    Ok(arguments)
}

/// Builds an artifact; its path.
fn build(wanted: &[&str], is_release: bool) -> Result<PathBuf, String> {
    let mut command = Command::new("cargo");
    command.args(["build", "-q"]).args(wanted);
    if is_release {
        command.arg("--release");
    }
    let built = command.status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err(format!("cargo build {} failed", wanted.join(" ")));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(target.join(if is_release { "release" } else { "debug" }))
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Starts a daemon, and waits until it prints `ready`.
fn serve(cenote: &Path, directory: &Path, smb: u16, rdma: u16, http: u16) -> Result<Process, String> {
    let mut child = Command::new(cenote)
        .args(["quickstart", "--allow-unsigned", "--user", "soak", "--password", PASSWORD, "--data"])
        .arg(directory.join("data"))
        .args(["--smb", &format!("127.0.0.1:{smb}"), "--rdma", &format!("127.0.0.1:{rdma}")])
        .args(["--http", &format!("127.0.0.1:{http}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", cenote.display()))?;
    let output = child.stdout.take().map(BufReader::new);
    let process = Process(child);
    let Some(output) = output else { return Err("the daemon says nothing".into()) };
    // The pipe closes when the daemon ends, so the wait ends too.
    if output.lines().map_while(Result::ok).any(|line| line == "ready") {
        Ok(process)
    } else {
        Err("the daemon did not start".into())
    }
}

pub fn run(words: Vec<String>) -> ExitCode {
    match arguments(words).and_then(|arguments| soak(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<(), String> {
    let client = match &arguments.client {
        Some(path) => path.clone(),
        None => build(&["-p", "cenote-smb-client", "--example", "soak"], arguments.is_release)?
            .join("examples/soak"),
    };
    let cenote = match &arguments.cenote {
        Some(path) => path.clone(),
        None => build(&["-p", "cenote", "--bin", "cenote"], arguments.is_release)?.join("cenote"),
    };
    let directory = Directory(std::env::temp_dir().join(format!("cenote-soak-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).map_err(|error| error.to_string())?;
    let (smb, rdma, http) = (free_port()?, free_port()?, free_port()?);
    let mut server = serve(&cenote, &directory.0, smb, rdma, http)?;

    let duration = Duration::from_secs_f64(arguments.minutes.max(0.05) * 60.0);
    let began = Instant::now();
    let mut clients = Vec::new();
    for (number, (name, words)) in CLIENTS.iter().enumerate() {
        let rdma_port = rdma.to_string();
        let words = words.iter().flat_map(|word| match *word {
            "--rdma" => vec!["--rdma-port", rdma_port.as_str()],
            other => vec![other],
        });
        let child = Command::new(&client)
            .args(["127.0.0.1", "demo", &format!("{name}.bin"), "--user", "soak"])
            .args(["--tcp-port", &smb.to_string(), "--seconds", &duration.as_secs().to_string()])
            .args(["--seed", &(arguments.seed + number as u64).to_string()])
            .args(words)
            .env("CENOTE_SMB_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", client.display()))?;
        clients.push((name, Process(child)));
    }

    let mut failed = Vec::new();
    while !clients.is_empty() {
        if let Ok(Some(status)) = server.0.try_wait() {
            return Err(format!("the daemon ended: {status}"));
        }
        if began.elapsed() > duration + GRACE {
            let names: Vec<&str> = clients.iter().map(|(name, _)| **name).collect();
            return Err(format!("no end within {GRACE:?} after the time: {}", names.join(", ")));
        }
        clients.retain_mut(|(name, process)| match process.0.try_wait() {
            Ok(Some(status)) => {
                if !status.success() {
                    failed.push(**name);
                }
                false
            }
            _ => true,
        });
        std::thread::sleep(Duration::from_millis(200));
    }
    if failed.is_empty() {
        println!("soak: {:.1} minutes, {} clients, no error, no stall", arguments.minutes, CLIENTS.len());
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}
