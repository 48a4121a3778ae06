//! `cenote cluster`, `cenote node`.

use super::Confirmation;
use clap::Subcommand;
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
    /// Take a server out of the cluster for good
    Remove {
        /// The server's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}
