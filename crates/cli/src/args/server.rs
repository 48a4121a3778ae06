//! `cenote quickstart`, `cenote serve`.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::size::parse_size;

/// What the trial server is made of.
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
    /// Address and port of SMB Direct [default: 127.0.0.1:5445 if this build has it]
    #[arg(long, value_name = "ADDR:PORT")]
    pub rdma: Option<SocketAddr>,
    /// SMB Direct without CRC if the client does without too: loopback has no wire
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
