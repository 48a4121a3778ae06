//! `cenote quickstart`, `cenote serve`.

use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use types::size::parse_size;

/// Parts of the trial server.
#[derive(Debug, Clone, Args)]
pub struct Quickstart {
    /// Number of file-backed disks (only at the first start)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub disks: u32,
    /// Size of each disk file, which grows as it is written (only at the first start)
    #[arg(long, default_value = "8GiB", value_parser = parse_size, value_name = "SIZE")]
    pub disk_size: u64,
    /// Start a trial cluster of this many servers on this machine instead of one server
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=16), value_name = "N")]
    pub nodes: Option<u32>,
    /// With --nodes: an address for each server [default: 127.0.0.11, 127.0.0.12 and so on]
    #[arg(long, value_delimiter = ',', requires = "nodes", value_name = "A,B,C")]
    pub addresses: Vec<IpAddr>,
    /// With --nodes: seconds after which a dead server is started again; 0: never
    #[arg(long, default_value_t = 10, requires = "nodes", value_name = "SECONDS")]
    pub restart_after: u64,
    /// Address and port of the SMB server; with --nodes a port [default: 127.0.0.1:445 as root, else 127.0.0.1:4455]
    #[arg(long, value_name = "ADDR:PORT")]
    pub smb: Option<ListenPlace>,
    /// Address and port of SMB Direct; with --nodes a port [default: 127.0.0.1:5445 if this build has it]
    #[arg(long, value_name = "ADDR:PORT")]
    pub rdma: Option<ListenPlace>,
    /// SMB Direct without CRC if the client does without too: loopback has no wire
    #[arg(long)]
    pub rdma_no_crc: bool,
    /// Take requests that are not signed: for clients that cannot sign, and to measure
    #[arg(long)]
    pub allow_unsigned: bool,
    /// Address and port of the management API; with --nodes a port
    #[arg(long, default_value = "127.0.0.1:9445", value_name = "ADDR:PORT")]
    pub http: ListenPlace,
    /// The user to make; with --password also: whose password to set
    #[arg(long, default_value = "user", value_name = "NAME")]
    pub user: String,
    /// The user's password [default: generated and printed at the first start]
    #[arg(long, value_name = "PW")]
    pub password: Option<String>,
}

/// Where something listens: one server has an address of its own choice, and servers of a trial cluster have one each already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenPlace {
    Port(u16),
    Socket(SocketAddr),
}

impl std::str::FromStr for ListenPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(port) => Ok(Self::Port(port)),
            Err(_) => text.parse().map(Self::Socket).map_err(|_| "it is no ADDR:PORT".to_owned()),
        }
    }
}

impl ListenPlace {
    /// The address of a single server.
    ///
    /// # Errors
    /// The missing part.
    pub fn socket(self, option: &str) -> Result<SocketAddr, String> {
        match self {
            Self::Socket(address) => Ok(address),
            Self::Port(port) => Err(format!("{option} {port} has no address: {option} 127.0.0.1:{port}")),
        }
    }

    /// The port of each server of a trial cluster.
    ///
    /// # Errors
    /// The reason why it is no port.
    pub fn port(self, option: &str) -> Result<u16, String> {
        match self {
            Self::Port(port) => Ok(port),
            Self::Socket(address) => Err(format!(
                "{option} {address}: with --nodes each server has an address of its own (--addresses), and {option} takes a port: {option} {}",
                address.port()
            )),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Configuration file (TOML); `cenote config show` prints one with every key and its default
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Stop when standard input ends: with the process that holds its other end
    #[arg(long, hide = true)]
    pub end_with_stdin: bool,
}
