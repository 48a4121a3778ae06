//! The etcd that the daemon runs.
//!
//! Owns the child process: its arguments, its log, its restarts. Promises: it ends with this process,
//! however this one ends; it is started again with a growing pause when it ends by itself, but not if
//! it was removed from its cluster; it listens on no address but the one given; both of its doors take
//! only certificates of the cluster's authority.

mod command;
mod supervisor;
#[cfg(test)]
mod tests;

pub use command::{has_data, version_of};

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long etcd may take to hand over and end when it is asked to. A leader hands over in milliseconds
/// if another member can take over; when all servers stop at once it would wait seven seconds for
/// nobody. Answered commits are on its disk either way.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Files in PEM that etcd reads again for each connection, so that renewed ones need no restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub ca: PathBuf,
    /// For servers and for clients (extended key usage of both), with the address among its names.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificates that were revoked, in PEM or DER.
    pub revoked: Option<PathBuf>,
}

/// How etcd finds its cluster at its first start; later ones read it from the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdStart {
    /// The members begin a cluster of their own; of each its name and peer URL, this one included.
    New { members: Vec<(String, String)> },
    /// This member was added to a running cluster; all its members as [`initial_members`] gives them.
    Existing { members: Vec<(String, String)> },
    /// The data directory becomes a cluster of this one member, after the majority was lost for good.
    ForceNew,
}

/// Options with which etcd is started.
#[derive(Debug, Clone)]
pub struct EtcdProcessOptions {
    /// `None`: `etcd` in PATH.
    pub program: Option<PathBuf>,
    /// Made if it is missing, for its owner only.
    pub directory: PathBuf,
    /// The member's name, unique in its cluster.
    pub name: String,
    pub peer: SocketAddr,
    pub client: SocketAddr,
    /// `None`: without TLS, for tests.
    pub tls: Option<TlsFiles>,
    /// Keeps members of different clusters apart at their first start.
    pub token: String,
    pub start: EtcdStart,
    /// Most bytes of the database; above, etcd takes no commits until it is made smaller.
    pub quota_bytes: u64,
}

impl EtcdProcessOptions {
    /// The quota of a cluster's records, which are a few mebibytes: etcd's own default.
    pub const QUOTA_BYTES: u64 = 2 << 30;

    fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    pub fn peer_url(&self) -> String {
        self.url(self.peer)
    }

    pub fn client_url(&self) -> String {
        self.url(self.client)
    }
}

/// Members for [`EtcdStart::Existing`], from [`super::members::Members::list`] after the new one was
/// added.
pub fn initial_members(
    listed: &[super::members::EtcdMember],
    name: &str,
    peer_url: &str,
) -> Vec<(String, String)> {
    let urls = listed
        .iter()
        .flat_map(|member| member.peer_urls.iter().map(|url| (member.name.clone(), url.clone())));
    urls.map(|(other, url)| if url == peer_url { (name.to_owned(), url) } else { (other, url) })
        // A member that was added but never ran has no name, and no part yet.
        .filter(|(name, _)| !name.is_empty())
        .collect()
}

/// Two ports of an address that nobody listens on: for peers and for clients.
///
/// # Errors
/// The address is not this machine's.
pub fn free_ports(address: IpAddr) -> io::Result<(u16, u16)> {
    let one = TcpListener::bind((address, 0))?;
    let other = TcpListener::bind((address, 0))?;
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

/// Why etcd cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum EtcdProcessError {
    #[error(
        "etcd is not installed: there is no program '{0}'; install the package etcd-server, or name the program in the configuration"
    )]
    Missing(String),
    #[error("{program} does not tell its version: {why}")]
    Version { program: String, why: String },
    #[error("etcd's directory {directory}: {why}", directory = .directory.display())]
    Directory { directory: PathBuf, why: io::Error },
    #[error("etcd cannot be started: {0}")]
    Start(io::Error),
}

/// State of the child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdProcessState {
    Running {
        pid: u32,
    },
    /// The process ended by itself, and is started again.
    Restarting {
        why: String,
    },
    /// The cluster removed this member; the process is not started again.
    Removed,
    Stopped,
}

fn supervise(
    options: &EtcdProcessOptions,
    version: &str,
    state: &Arc<Mutex<EtcdProcessState>>,
) -> Result<supervisor::Supervisor, EtcdProcessError> {
    let program = command::program(options.program.as_deref());
    let arguments = command::arguments(options, version);
    supervisor::Supervisor::start(program, arguments, state.clone()).map_err(EtcdProcessError::Start)
}

/// A running etcd. Dropping it stops etcd.
pub struct EtcdProcess {
    options: EtcdProcessOptions,
    version: String,
    state: Arc<Mutex<EtcdProcessState>>,
    supervisor: Option<supervisor::Supervisor>,
}

impl EtcdProcess {
    /// Starts etcd; does not wait until it serves.
    ///
    /// # Errors
    /// [`EtcdProcessError`].
    pub fn start(options: EtcdProcessOptions) -> Result<Self, EtcdProcessError> {
        let version = version_of(options.program.as_deref())?;
        if super::members::lacks_revision_fix(&version) {
            tracing::info!(
                version,
                "this etcd lacks the fix of etcd #17780; history is dropped in a way that does not need it"
            );
        }
        command::make_directory(&options.directory)
            .map_err(|why| EtcdProcessError::Directory { directory: options.directory.clone(), why })?;
        let state = Arc::new(Mutex::new(EtcdProcessState::Stopped));
        let supervisor = Some(supervise(&options, &version, &state)?);
        Ok(Self { options, version, state, supervisor })
    }

    /// The version of the program, as `3.4.23`.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn options(&self) -> &EtcdProcessOptions {
        &self.options
    }

    pub fn state(&self) -> EtcdProcessState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills etcd at once, as a crash would, or starts it again after such a kill. Answered commits are on
    /// its disk.
    ///
    /// # Errors
    /// [`EtcdProcessError::Start`]: it does not run still.
    pub fn set_paused(&mut self, is_paused: bool) -> Result<(), EtcdProcessError> {
        match self.supervisor.take() {
            Some(supervisor) if is_paused => supervisor.stop(Duration::ZERO),
            None if !is_paused => {
                self.supervisor = Some(supervise(&self.options, &self.version, &self.state)?)
            }
            as_it_was => self.supervisor = as_it_was,
        }
        Ok(())
    }

    /// Asks etcd to end, waits, and kills it if it does not.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.stop(STOP_PATIENCE);
        }
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.end();
    }
}
