//! `cenote cluster`, `cenote node`.

use super::Confirmation;
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Make this server the first of a new cluster; its data, accounts and shares stay
    Create {
        /// The cluster's name: at most 15 letters, digits and -
        #[arg(long, value_name = "NAME")]
        name: String,
    },
    /// Print a token that lets one server join within an hour
    Token,
    /// Join this server, which holds nothing yet, to a cluster
    Join {
        /// ADDRESS:PORT of a server of the cluster [default: those in the token]
        address: Option<String>,
        /// As `cenote cluster token` printed it, on a server of the cluster
        #[arg(long)]
        token: String,
    },
    /// Look whether servers fit together and reach each other; changes nothing
    Test {
        /// ADDRESS:PORT of a server of the cluster that this one might join [default: those in the token]
        address: Option<String>,
        /// Test as if this server were to join [default: test the cluster that it is in]
        #[arg(long)]
        token: Option<String>,
    },
    /// After a majority of etcd's members was lost for good: go on with this server alone, which must be stopped
    Recover {
        /// The etcd to start, if it is not in PATH
        #[arg(long, value_name = "FILE")]
        etcd_program: Option<PathBuf>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Show the cluster's servers, the engine of its state, and what one more dead server would cost
    Status,
}

#[derive(Debug, Subcommand)]
pub enum Node {
    /// List the servers of the cluster
    List,
    /// Show one server
    Show {
        /// The server's name
        name: String,
    },
    /// Move a server's volumes to others, one after the other, so that it may be stopped
    Drain {
        /// The server's name
        name: String,
        /// Wait until it is drained
        #[arg(long)]
        watch: bool,
    },
    /// Let a server have volumes again that was drained, or drains
    Resume {
        /// The server's name
        name: String,
    },
    /// Take a server out of the cluster for good: one that is gone, or from which everything was moved away
    Remove {
        /// The server's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Subcommand)]
pub enum Witness {
    /// Run the witness, which votes when one of two servers dies; it has no disks and serves no files
    Serve(WitnessServe),
}

#[derive(Debug, Clone, Args)]
pub struct WitnessServe {
    /// Address and port by which the cluster's servers reach it, such as 10.1.0.13:9447 (TCP, and UDP for heartbeats)
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// As `cenote cluster token` printed it, on a server of the cluster; needed at the first start only
    #[arg(long)]
    pub token: Option<String>,
    /// ADDRESS:PORT of a server of the cluster to join [default: those in the token]
    #[arg(long, value_name = "ADDR:PORT")]
    pub join: Option<String>,
    /// Its name in the cluster: at most 15 letters, digits and -
    #[arg(long, default_value = "witness")]
    pub name: String,
    /// The etcd to start, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    pub etcd_program: Option<PathBuf>,
}
