//! etcd's command line.

use super::{EtcdProcessError, EtcdProcessOptions, EtcdStart, TlsFiles};
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) fn program(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| "etcd".into(), Path::to_owned)
}

/// A command of etcd's that knows nothing of this process's surroundings: etcd takes any option from `ETCD_` variables as well.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if cfg!(target_arch = "aarch64") {
        // etcd 3.4 starts on this architecture only if this is set.
        command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
    }
    command
}

/// The version that a program tells, as `3.4.23`.
///
/// # Errors
/// [`EtcdProcessError::Missing`], [`EtcdProcessError::Version`].
pub fn version_of(named: Option<&Path>) -> Result<String, EtcdProcessError> {
    let program = program(named);
    let name = program.display().to_string();
    let told = match command(&program).arg("--version").stderr(Stdio::null()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(EtcdProcessError::Missing(name)),
        Err(error) => return Err(EtcdProcessError::Version { program: name, why: error.to_string() }),
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let version = told.lines().find_map(|line| line.strip_prefix("etcd Version:"));
    match version {
        Some(version) => Ok(version.trim().to_owned()),
        None => Err(EtcdProcessError::Version { program: name, why: "it is not etcd".into() }),
    }
}

/// etcd's data are the cluster's secrets too.
pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Whether etcd's directory has a member's log, so that etcd continues as that member. Without one etcd
/// begins as a member that knows nothing: under the number of one that has voted it would have
/// forgotten its votes, which Raft does not allow.
pub fn has_data(directory: &Path) -> bool {
    match std::fs::read_dir(directory.join("member").join("wal")) {
        // One that cannot be read is not taken for none.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(mut files) => files.any(|file| {
            file.map_or(true, |file| Path::new(&file.file_name()).extension().is_some_and(|end| end == "wal"))
        }),
    }
}

pub(super) fn arguments(options: &EtcdProcessOptions, version: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value);
        arguments.push(argument);
    };
    let (peer, client) = (options.peer_url(), options.client_url());
    add("name", options.name.clone().into());
    add("data-dir", options.directory.clone().into());
    add("listen-peer-urls", peer.clone().into());
    add("initial-advertise-peer-urls", peer.into());
    add("listen-client-urls", client.clone().into());
    add("advertise-client-urls", client.into());
    add("initial-cluster-token", options.token.clone().into());
    let (members, word) = match &options.start {
        EtcdStart::New { members } => (members.as_slice(), "new"),
        EtcdStart::Existing { members } => (members.as_slice(), "existing"),
        EtcdStart::ForceNew => (&[][..], "existing"),
    };
    if members.is_empty() {
        add("force-new-cluster", "true".into());
    } else {
        let members: Vec<String> = members.iter().map(|(name, url)| format!("{name}={url}")).collect();
        add("initial-cluster", members.join(",").into());
        add("initial-cluster-state", word.into());
    }
    for (name, value) in SETTINGS {
        add(name, (*value).into());
    }
    add("quota-backend-bytes", options.quota_bytes.to_string().into());
    if let Some(tls) = &options.tls {
        add_tls(&mut add, tls, version);
    }
    arguments
}

/// Settings common to all members. A death is noticed after an election timeout of 500 ms; a node that
/// comes back asks before it disturbs (`pre-vote`).
const SETTINGS: &[(&str, &str)] = &[
    ("heartbeat-interval", "50"),
    ("election-timeout", "500"),
    ("pre-vote", "true"),
    // History is dropped by ourselves, never the newest.
    ("auto-compaction-retention", "0"),
    ("max-txn-ops", "2048"),
    ("max-request-bytes", "8388608"),
    ("grpc-keepalive-min-time", "500ms"),
    ("snapshot-count", "10000"),
    ("logger", "zap"),
    ("log-level", "info"),
    ("log-outputs", "stderr"),
];

fn add_tls(add: &mut impl FnMut(&str, OsString), tls: &TlsFiles, version: &str) {
    for prefix in ["", "peer-"] {
        add(&format!("{prefix}cert-file"), tls.certificate.clone().into());
        add(&format!("{prefix}key-file"), tls.key.clone().into());
        add(&format!("{prefix}trusted-ca-file"), tls.ca.clone().into());
        add(&format!("{prefix}client-cert-auth"), "true".into());
    }
    if let Some(revoked) = &tls.revoked {
        add("client-crl-file", revoked.clone().into());
        add("peer-crl-file", revoked.clone().into());
    }
    // A peer proves itself by a certificate of the cluster's authority; from which of its addresses it connects proves nothing.
    let is_old = version.starts_with("3.4.") || version.starts_with("3.5.");
    let name = if is_old {
        "experimental-peer-skip-client-san-verification"
    } else {
        "peer-skip-client-san-verification"
    };
    add(name, "true".into());
}
