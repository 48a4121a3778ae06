//! Options that several programs have for the API. Owns names and words only.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options by which a server is found.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Access {
    /// In a cluster: ask this server only, not all of them
    #[arg(long, global = true)]
    pub local: bool,
    /// Data directory of the running server, with its API address and token [env: CENOTE_DATA; default: ./cenote-data, then /var/lib/cenote]
    #[arg(long = "data", global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of the API: ADDR:PORT on this machine, else https://HOST:PORT [env: CENOTE_API; default: from the data directory]
    #[arg(long, global = true, value_name = "ADDR:PORT|URL")]
    pub api: Option<String>,
    /// Certificate authorities to trust for the API, in PEM form [env: CENOTE_CA_FILE; default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// File with the API's token [env: CENOTE_TOKEN_FILE; default: api.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Number of copies of each byte of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Resiliency {
    /// One copy: the loss of a disk loses the volume
    Simple,
    /// Two copies, on different disks
    TwoWayMirror,
    /// Three copies, on different disks
    ThreeWayMirror,
}

impl From<Resiliency> for api::model::Resiliency {
    fn from(resiliency: Resiliency) -> Self {
        match resiliency {
            Resiliency::Simple => Self::Simple,
            Resiliency::TwoWayMirror => Self::TwoWayMirror,
            Resiliency::ThreeWayMirror => Self::ThreeWayMirror,
        }
    }
}
