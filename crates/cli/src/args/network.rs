//! `cenote smb`, `cenote rdma`.

use super::{Confirmation, Password};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Subcommands of `cenote smb`, for files of any SMB server.
#[derive(Debug, Subcommand)]
pub enum Smb {
    /// List a directory
    Ls {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH
        place: String,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Show size, times and attributes of a file or directory
    Stat {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH
        place: String,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Copy a file or a whole directory from a server; times are kept
    Get {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH
        place: String,
        /// Where to: a file, replaced if there is one, or a directory [default: the same name here]
        target: Option<PathBuf>,
        /// Copy a whole directory; leave out links
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Copy a file or a whole directory to a server, replacing files of the same name; times are kept
    Put {
        /// The file or directory here
        source: PathBuf,
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH: a file or a directory
        place: String,
        /// Copy a whole directory; leave out links, and of names that differ by case only all but one
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Make a directory on a server
    Mkdir {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH
        place: String,
        /// Also make missing directories above it; do nothing if it exists
        #[arg(long, short)]
        parents: bool,
        #[command(flatten)]
        how: SmbOptions,
    },
    /// Remove a file, or an empty directory, from a server
    Rm {
        /// //SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH
        place: String,
        /// Remove a whole directory; asks for its name first
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        how: SmbOptions,
    },
}

/// Transport of the messages to an SMB server.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SmbTransport {
    /// SMB Direct if the server has it, else TCP
    Auto,
    /// TCP only
    Tcp,
    /// SMB Direct only
    Rdma,
}

#[derive(Debug, Clone, Args)]
pub struct SmbOptions {
    /// File with lines username=, password= and domain=, as mount.cifs reads them [default: the environment's CENOTE_SMB_USER, CENOTE_SMB_PASSWORD, CENOTE_SMB_DOMAIN]
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Transport of the messages; a port in the address is that of TCP for auto
    #[arg(long, value_enum)]
    pub transport: Option<SmbTransport>,
    /// Where the server listens for SMB Direct [default: with --transport rdma the port in the address, else 5445]
    #[arg(long, value_name = "PORT")]
    pub rdma_port: Option<u16>,
    /// SMB Direct by an RDMA device: its name (see ibv_devices), or auto for the one that leads to the server [default: in software]
    #[arg(long, value_name = "NAME")]
    pub rdma_device: Option<String>,
    /// SMB Direct in software: leave the CRC out if the server does too
    #[arg(long)]
    pub rdma_no_crc: bool,
    /// Payload of at least this size is lent to the server, which reads it by RDMA; a shorter one is sent
    /// [default: longer than one transfer, 1 MiB to a server in software]
    #[arg(long, value_name = "BYTES")]
    pub rdma_write_min: Option<u32>,
    /// Payload of reads of at least this size comes by RDMA; of shorter ones in the answer [default: 65537,
    /// to the size of the server's transfers]
    #[arg(long, value_name = "BYTES")]
    pub rdma_read_min: Option<u32>,
    /// Connections that carry the session
    #[arg(long, default_value_t = 1, value_parser = channel_count)]
    pub channels: usize,
    /// Ask the server for its other addresses and use them, by SMB Direct if it has that: two connections, or as many as --channels says
    #[arg(long)]
    pub multichannel: bool,
    /// Sign every message; payload goes by RDMA only if the server signs it too (RDMA transform)
    #[arg(long)]
    pub sign: bool,
    /// Encrypt every message; payload goes by RDMA only if the server encrypts it too (RDMA transform)
    #[arg(long)]
    pub seal: bool,
}

/// Subcommands of `cenote rdma`.
#[derive(Debug, Subcommand)]
pub enum Rdma {
    /// List interfaces, devices, listeners and connections, and whether each has RDMA or why not
    List,
    /// Check the way to a server: connect, negotiate, round trips of a small message and one of 4 KiB, and
    /// the terms agreed on; with --share and --user also the speed of writing and reading a file by RDMA,
    /// with its content compared
    Ping(RdmaPing),
    /// Show a connection's last protocol events
    Trace {
        /// The connection's number in `rdma list`
        connection: u64,
    },
    /// Show the counters of Windows' sets "SMB Direct Connection" and "RDMA Activity"
    Counters {
        /// Seconds over which rates are measured
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
}

/// Options of `cenote rdma ping`.
#[derive(Debug, Clone, Args)]
pub struct RdmaPing {
    /// HOST or HOST:PORT; the port is 5445 if none is given
    pub host: String,
    /// Round trips of each size
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Seconds for each step
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub timeout: u64,
    /// Leave the CRC out if the server does too
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

/// As many connections as a session may have.
fn channel_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=32).contains(count)).ok_or_else(|| "1 to 32 connections".to_owned())
}
