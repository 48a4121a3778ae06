//! The command line: one definition for parser, help, completion and man pages.
//!
//! Owns names and options only. Never does anything.

mod accounts;
mod cluster;
mod network;
mod plan;
mod quota;
mod server;
mod storage;
mod tokens;

pub use accounts::*;
pub use cluster::*;
pub use network::*;
pub use plan::*;
pub use quota::*;
pub use server::*;
pub use storage::*;
pub use tokens::*;

pub use api_client::{Access, Resiliency};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Cenote: pooled, mirrored storage of local disks, served as SMB3 shares.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

/// How to reach the server, and how to print.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print JSON, with the schemas of the API's document (/openapi.json)
    #[arg(long, global = true)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

/// Commands that the program itself carries out, without a server.
#[derive(Debug, Subcommand)]
pub enum Own {
    /// Start a trial server: file-backed disks, a mirrored volume, a share and a user
    Quickstart(Quickstart),
    /// Run the server
    Serve(Serve),
    /// The witness of a cluster of two servers
    #[command(subcommand)]
    Witness(Witness),
    /// The configuration
    #[command(subcommand)]
    Config(Config),
    /// `cenote cluster recover`
    #[command(skip)]
    Recover(Recovery),
}

/// Options to recover a server whose cluster is lost.
#[derive(Debug)]
pub struct Recovery {
    /// The etcd to start; `None`: the one in PATH.
    pub etcd_program: Option<PathBuf>,
    /// The cluster's name, typed already.
    pub yes: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Own(Own),
    /// The cluster: several servers with one pool over their disks
    #[command(subcommand)]
    Cluster(Cluster),
    /// Servers of the cluster
    #[command(subcommand)]
    Node(Node),
    /// Physical disks
    #[command(subcommand)]
    Disk(Disk),
    /// Pools of disks
    #[command(subcommand)]
    Pool(Pool),
    /// Volumes: virtual disks with files on them
    #[command(subcommand)]
    Volume(Volume),
    /// Shares, to which clients connect
    #[command(subcommand)]
    Share(Share),
    /// Users who may log on
    #[command(subcommand)]
    User(User),
    /// Groups of users
    #[command(subcommand)]
    Group(Group),
    /// Named tokens of the management API, with roles
    #[command(subcommand)]
    Token(Token),
    /// Access control lists of files and directories
    #[command(subcommand)]
    Acl(Acl),
    /// Limits on the space that each user takes on a volume
    #[command(subcommand)]
    Quota(Quota),
    /// Sessions of clients
    #[command(subcommand)]
    Session(Session),
    /// RDMA (SMB Direct): interfaces, connections, counters
    #[command(subcommand)]
    Rdma(Rdma),
    /// Files that clients have open
    #[command(subcommand)]
    File(File),
    /// Storage jobs: resync, rebuild, rebalance, scrub, check
    #[command(subcommand)]
    Job(Job),
    /// Test the receivers of health notices: webhook and mail
    #[command(subcommand)]
    Alert(Alert),
    /// Show issues, their meaning for the data, and remedies; exit status 0 healthy, 1 warning, 2
    /// unhealthy, 3 no server answers
    Health,
    /// Operations, throughput and latency
    Perf(Perf),
    /// Print the link to the dashboard in a browser, which logs in, and open it on a desktop
    Dashboard(Dashboard),
    /// Compute how much nodes and drives hold, survive and do: before you buy them, or for a running pool
    /// with changes
    Plan(Plan),
    /// Files of any SMB server, without a mount, over TCP or SMB Direct
    #[command(subcommand)]
    Smb(Smb),
    /// Print a completion script for a shell
    Completion {
        /// The shell that reads the script
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    Man {
        /// Made if there is none
        directory: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub struct Confirmation {
    /// Do not ask; NAME is the name that the command would ask for
    #[arg(long, value_name = "NAME")]
    pub yes: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Watch {
    /// Show the job's progress until it ends
    #[arg(long)]
    pub watch: bool,
}

/// Subcommands of `cenote alert`.
#[derive(Debug, Subcommand)]
pub enum Alert {
    /// Send a test notice to the webhook and the mail addresses of the configuration; exit status 1 if one refuses it
    Test,
}

/// Subcommands of `cenote session`.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// List sessions
    List,
    /// End a session and close its files
    Close {
        /// The session's number in `session list`
        id: u64,
    },
}

/// Subcommands of `cenote file`.
#[derive(Debug, Subcommand)]
pub enum File {
    /// List open files
    List,
    /// Close an open file
    Close {
        /// The file's number in `file list`
        id: u64,
    },
}

/// Subcommands of `cenote job`.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// List running jobs and those that ended last
    List,
    /// Show a job's progress until it ends; without ID, that of all running jobs
    Watch {
        /// The job's number in `job list`
        id: Option<u64>,
    },
    /// Stop a job; the work that it has done stays
    Cancel {
        /// The job's number in `job list`
        id: u64,
    },
    /// Continue a stopped job
    Resume {
        /// The job's number in `job list`
        id: u64,
    },
}

/// Options of `cenote perf`.
#[derive(Debug, Clone, Args)]
pub struct Perf {
    /// Seconds between two samples
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Samples to print; 0: until interrupted
    #[arg(long, default_value_t = 1)]
    pub count: u64,
}

/// Options of `cenote dashboard`.
#[derive(Debug, Clone, Args)]
pub struct Dashboard {
    /// Print the link only
    #[arg(long)]
    pub no_open: bool,
}

/// Subcommands of `cenote config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print a configuration with every key documented
    Show {
        /// Print the running server's configuration instead of the defaults
        #[arg(long)]
        effective: bool,
    },
    /// Check a configuration file
    Check {
        /// The file, in TOML
        file: PathBuf,
    },
}
