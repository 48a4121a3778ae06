//! The command line: one definition for parser, help, completion and man pages.
//!
//! Owns names and options only. Never does anything.

use crate::cli::size::parse_size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(not(feature = "fault-injection"))]
const VERSION: &str = env!("CARGO_PKG_VERSION");
#[cfg(feature = "fault-injection")]
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " with fault injection, for tests only");

/// Cenote: pooled, mirrored storage of local disks, served as SMB3 shares.
#[derive(Debug, Parser)]
#[command(name = "cenote", version = VERSION, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

/// How to reach the server, and how to print.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print listings as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Data directory of the running server, where its API address and token are [env: CENOTE_DATA; default: ./cenote-data, then /var/lib/cenote]
    #[arg(long = "data", global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where the API is: ADDR:PORT on this machine, else https://HOST:PORT [env: CENOTE_API; default: as the data directory says]
    #[arg(long, global = true, value_name = "ADDR:PORT|URL")]
    pub api: Option<String>,
    /// Authorities that may vouch for the API's name, in PEM form [env: CENOTE_CA_FILE; default: those that the system trusts]
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with the API's token [env: CENOTE_TOKEN_FILE; default: api.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a trial server: file-backed disks, a mirrored volume, a share and a user
    Quickstart(Quickstart),
    /// Run the server
    Serve(Serve),
    /// Physical disks
    #[command(subcommand)]
    Disk(Disk),
    /// Pools of disks
    #[command(subcommand)]
    Pool(Pool),
    /// Volumes: virtual disks with files on them
    #[command(subcommand)]
    Volume(Volume),
    /// Shares: what clients connect to
    #[command(subcommand)]
    Share(Share),
    /// Users who may log on
    #[command(subcommand)]
    User(User),
    /// Groups of users
    #[command(subcommand)]
    Group(Group),
    /// Who may do what with a file or directory
    #[command(subcommand)]
    Acl(Acl),
    /// Sessions of clients
    #[command(subcommand)]
    Session(Session),
    /// Where RDMA is to be had, and what its connections do
    #[command(subcommand)]
    Rdma(Rdma),
    /// Files that clients have open
    #[command(subcommand)]
    File(File),
    /// Storage jobs: resync, rebuild, rebalance, scrub, check
    #[command(subcommand)]
    Job(Job),
    /// What is wrong, what it means for the data, and what to do; exit status 0 healthy, 1 warning, 2 unhealthy
    Health,
    /// Operations, throughput and latency
    Perf(Perf),
    /// The configuration
    #[command(subcommand)]
    Config(Config),
    /// Files of any SMB server, without a mount, over TCP or SMB Direct
    #[command(subcommand)]
    Smb(Smb),
    /// Print a completion script for a shell
    Completion { shell: clap_complete::Shell },
    /// Write man pages into a directory
    Man { directory: PathBuf },
}

#[derive(Debug, Subcommand)]
pub enum Smb {
    /// List a directory
    Ls {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[:PORT]/SHARE/PATH
        place: String,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Show size, times and attributes of a file or directory
    Stat {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[:PORT]/SHARE/PATH
        place: String,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Copy a file from a server
    Get {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[:PORT]/SHARE/PATH
        place: String,
        /// Where to: a file, replaced where there is one, or a directory [default: the same name here]
        file: Option<PathBuf>,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Copy a file to a server, over what has that name
    Put {
        file: PathBuf,
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[:PORT]/SHARE/PATH: a file or a directory
        place: String,
        #[command(flatten)]
        how: SmbOptions,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SmbTransport {
    /// SMB Direct where the server has it, else TCP
    Auto,
    Tcp,
    Rdma,
}

#[derive(Debug, Clone, Args)]
pub struct SmbOptions {
    /// File with lines username=, password= and domain=, as mount.cifs reads them [default: the environment's CENOTE_SMB_USER, CENOTE_SMB_PASSWORD, CENOTE_SMB_DOMAIN]
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// What carries the messages; a port in the address is that of TCP for auto
    #[arg(long, value_enum, default_value_t = SmbTransport::Auto)]
    pub transport: SmbTransport,
    /// Where auto looks for SMB Direct [default: 5445]
    #[arg(long, value_name = "PORT")]
    pub rdma_port: Option<u16>,
    /// Connections that carry the session
    #[arg(long, default_value_t = 1, value_parser = channel_count)]
    pub channels: usize,
    /// Sign every message; payload goes by RDMA only where the server signs it too (RDMA transform)
    #[arg(long)]
    pub sign: bool,
    /// Encrypt every message; payload goes by RDMA only where the server encrypts it too (RDMA transform)
    #[arg(long)]
    pub seal: bool,
}

/// As many connections as a session may have.
fn channel_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=32).contains(count)).ok_or_else(|| "1 to 32 connections".to_owned())
}

#[derive(Debug, Clone, Args)]
pub struct Quickstart {
    /// Number of file-backed disks (only at the first start)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub disks: u32,
    /// Size of each disk file, which grows as it is written (only at the first start)
    #[arg(long, default_value = "8GiB", value_parser = parse_size, value_name = "SIZE")]
    pub disk_size: u64,
    /// Address and port of the SMB server [default: 127.0.0.1:445 as root, else 127.0.0.1:4455]
    #[arg(long, value_name = "ADDR:PORT")]
    pub smb: Option<SocketAddr>,
    /// Address and port of SMB Direct [default: 127.0.0.1:5445 where this build has it]
    #[arg(long, value_name = "ADDR:PORT")]
    pub rdma: Option<SocketAddr>,
    /// SMB Direct without CRC where the client does without too: loopback has no wire
    #[arg(long)]
    pub rdma_no_crc: bool,
    /// Address and port of the management API
    #[arg(long, default_value = "127.0.0.1:9445", value_name = "ADDR:PORT")]
    pub http: SocketAddr,
    /// The user to make; with --password also: whose password to set
    #[arg(long, default_value = "user", value_name = "NAME")]
    pub user: String,
    /// The user's password [default: generated and printed at the first start]
    #[arg(long, value_name = "PW")]
    pub password: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Configuration file (TOML); `cenote config show` prints one with every key and its default
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Confirmation {
    /// Do it without asking; NAME is that of what is destroyed
    #[arg(long, value_name = "NAME")]
    pub yes: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct Watch {
    /// Show the job's progress until it ends
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Subcommand)]
pub enum Disk {
    /// List disks
    List,
    /// Add a disk that holds nothing to a pool
    Add {
        /// A file, a partition or a whole block device
        path: PathBuf,
        /// Name of the pool; may be left out where there is only one
        #[arg(long)]
        pool: Option<String>,
        /// Make a sparse file of this size where there is none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        #[command(flatten)]
        place: Place,
    },
    /// Move everything off a disk, which then leaves the pool
    Retire {
        /// Its ID, the beginning of it, or its path
        disk: String,
        /// Take the retirement back: the disk may be given data again
        #[arg(long, conflicts_with = "watch")]
        undo: bool,
        #[command(flatten)]
        watch: Watch,
    },
    /// Add a disk and move everything off the one that it replaces, which then leaves the pool
    Replace {
        /// ID of the old disk, the beginning of it, or its path
        old: String,
        /// A file, a partition or a whole block device that holds nothing
        path: PathBuf,
        /// Make a sparse file of this size where there is none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        watch: Watch,
    },
    /// Switch on the LED of a disk's slot, and print how to find the disk
    Locate {
        /// Its ID, the beginning of it, or its path
        disk: String,
        /// Switch it off
        #[arg(long)]
        off: bool,
    },
    /// Print what a disk is, what it holds and what is damaged; changes nothing and needs no server
    Inspect {
        /// A file, a partition or a whole block device
        path: PathBuf,
    },
}

/// Where a disk stands: copies are kept apart at the widest level that has names.
#[derive(Debug, Clone, Args)]
pub struct Place {
    #[arg(long, default_value = "")]
    pub rack: String,
    #[arg(long, default_value = "")]
    pub node: String,
    #[arg(long, default_value = "")]
    pub enclosure: String,
}

#[derive(Debug, Subcommand)]
pub enum Pool {
    /// List pools
    List,
    /// Show one pool and its disks
    Show { name: String },
    /// Make a pool of disks that hold nothing
    Create {
        name: String,
        #[arg(required = true)]
        disks: Vec<PathBuf>,
        /// Make sparse files of this size where there are none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        /// Disks' worth of space kept for repair [default: one for each node, at most four; none with fewer than three disks]
        #[arg(long, value_name = "DISKS")]
        reserve_disks: Option<u32>,
    },
    /// Change how much of a pool is kept for repair
    Set {
        name: String,
        /// The size of the largest so many disks
        #[arg(long, value_name = "DISKS")]
        reserve_disks: u32,
    },
    /// Stop a pool and give it up, so that another server can import its disks
    Export {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Bring a pool back from its disks: an exported one, or one whose server lost its state
    Import {
        /// Its name or id; may be left out where the disks of one pool only are found
        name: Option<String>,
        /// A disk of it; may be given several times
        #[arg(long = "disk", value_name = "PATH")]
        disks: Vec<PathBuf>,
        /// A directory to look for its disks in; may be given several times [default: disks.search of the configuration]
        #[arg(long = "search", value_name = "DIR")]
        search: Vec<PathBuf>,
        /// The name it gets here
        #[arg(long = "as", value_name = "NAME")]
        rename: Option<String>,
        /// Key file (secret.key) of the server that had it: without it, users need new passwords
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Go on although a disk that is missing may hold what was written last
        #[arg(long)]
        accept_missing: bool,
        /// Take it although its last server did not export it; NAME is the pool's
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Fill all disks evenly
    Rebalance {
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Resiliency {
    Simple,
    TwoWayMirror,
    ThreeWayMirror,
}

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List volumes
    List,
    /// Show one volume
    Show { name: String },
    /// Make a volume
    Create {
        name: String,
        /// Size as clients see it, such as 100GiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Name of the pool; may be left out where there is only one
        #[arg(long)]
        pool: Option<String>,
        #[arg(long, value_enum, default_value = "two-way-mirror")]
        resiliency: Resiliency,
        /// Take all space from the pool at once
        #[arg(long)]
        fixed: bool,
    },
    /// Grow a volume
    Resize {
        name: String,
        #[arg(long, value_parser = parse_size)]
        size: u64,
    },
    /// Destroy a volume and all data on it
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Compare metadata, allocation and all copies, online and read-only
    Check {
        name: String,
        /// Check, say what will be written, and write damaged copies again from intact ones
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        watch: Watch,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Durability {
    Write,
    Close,
    Flush,
}

#[derive(Debug, Clone, Args)]
pub struct ShareOptions {
    #[arg(long)]
    pub comment: Option<String>,
    /// Who may do what, such as Everyone:read or ann:full or staff:change; replaces all grants
    #[arg(long = "grant", value_name = "WHO:ACCESS")]
    pub grants: Vec<String>,
    /// When a write is durable on all copies: at once, when the file is closed or flushed, or when it is flushed
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    #[arg(long, value_name = "BOOL")]
    pub read_only: Option<bool>,
    /// Only encrypted sessions reach it
    #[arg(long, value_name = "BOOL")]
    pub encrypt: Option<bool>,
    /// Writes are durable when answered
    #[arg(long, value_name = "BOOL")]
    pub continuously_available: Option<bool>,
    /// Hide what the user has no right to read
    #[arg(long, value_name = "BOOL")]
    pub access_based_enumeration: Option<bool>,
    /// Grant oplocks and leases
    #[arg(long, value_name = "BOOL")]
    pub caching: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum Share {
    /// List shares
    List,
    /// Share a volume, or a directory of it
    Create {
        name: String,
        #[arg(long)]
        volume: String,
        /// Directory of the volume, \ between names [default: its root]
        #[arg(long, default_value = "")]
        path: String,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// Change a share's options
    Set {
        name: String,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// Take a share away; its files stay on the volume
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct Password {
    /// The password; other users of this machine may see it while the command runs
    #[arg(long, value_name = "PW")]
    pub password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// List users
    List,
    /// Add a user; without a password one is generated and printed
    Add {
        name: String,
        #[command(flatten)]
        password: Password,
        #[arg(long, default_value = "")]
        full_name: String,
        /// A group it becomes a member of; may be given several times
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Change a user
    Set {
        name: String,
        #[command(flatten)]
        password: Password,
        #[arg(long)]
        full_name: Option<String>,
        /// false: it cannot log on
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
    },
    /// Delete a user; its SID is never given again
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Subcommand)]
pub enum Group {
    /// List groups and their members
    List,
    /// Add a group
    Add { name: String },
    /// Change a group's members
    Set {
        name: String,
        /// A user or group to add; may be given several times
        #[arg(long, value_name = "MEMBER")]
        add: Vec<String>,
        /// A user or group to remove; may be given several times
        #[arg(long, value_name = "MEMBER")]
        remove: Vec<String>,
    },
    /// Delete a group
    Delete {
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Subcommand)]
pub enum Acl {
    /// Show owner and entries
    Show {
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
    },
    /// Change owner or entries
    Set {
        share: String,
        #[arg(default_value = "")]
        path: String,
        #[arg(long)]
        owner: Option<String>,
        /// Allow, for what is below too: WHO:ACCESS with full, modify, read_execute, read, write or a mask such as 0x1200a9
        #[arg(long = "grant", value_name = "WHO:ACCESS")]
        grants: Vec<String>,
        /// Deny, for what is below too
        #[arg(long = "deny", value_name = "WHO:ACCESS")]
        denials: Vec<String>,
        /// Remove the entries of an account
        #[arg(long = "revoke", value_name = "WHO")]
        revocations: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Session {
    /// List sessions
    List,
    /// End a session and close its files
    Close { id: u64 },
}

#[derive(Debug, Subcommand)]
pub enum Rdma {
    /// Interfaces, devices, listeners and connections; capable of RDMA, or why not
    List,
    /// Check the way to a server: connect, negotiate, round trips of a small message and one of 4 KiB, and what both ends agreed on;
    /// with --share and --user also how fast a file of its own is written and read by RDMA, with its content compared
    Ping(RdmaPing),
    /// The last protocol events of a connection, as `rdma list` numbers it
    Trace { connection: u64 },
    /// The counters of Windows' sets "SMB Direct Connection" and "RDMA Activity"
    Counters {
        /// Over how many seconds rates are measured
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
}

#[derive(Debug, Clone, Args)]
pub struct RdmaPing {
    /// HOST or HOST:PORT; the port is 5445 where none is given
    pub host: String,
    /// Round trips of each size
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Seconds for each step
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub timeout: u64,
    /// Leave the CRC out where the server does too
    #[arg(long)]
    pub no_crc: bool,
    /// Write and read a file on this share; it is deleted afterwards
    #[arg(long, requires = "user")]
    pub share: Option<String>,
    /// The account for --share
    #[arg(long, requires = "share", value_name = "NAME")]
    pub user: Option<String>,
    #[command(flatten)]
    pub password: Password,
    /// How much to write and read for --share
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mib: u64,
}

#[derive(Debug, Subcommand)]
pub enum File {
    /// List open files
    List,
    /// Close an open file
    Close { id: u64 },
}

#[derive(Debug, Subcommand)]
pub enum Job {
    /// List running jobs, and the last that ended
    List,
    /// Show a job's progress until it ends; without ID: of all that run
    Watch { id: Option<u64> },
    /// Stop a job; what it did stays done
    Cancel { id: u64 },
    /// Let a job go on that was stopped
    Resume { id: u64 },
}

#[derive(Debug, Clone, Args)]
pub struct Perf {
    /// Seconds between two lines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Lines to print; 0: until interrupted
    #[arg(long, default_value_t = 1)]
    pub count: u64,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print a configuration with every key documented
    Show {
        /// That of the running server, instead of the defaults
        #[arg(long)]
        effective: bool,
    },
    /// Check a configuration file
    Check { file: PathBuf },
}
