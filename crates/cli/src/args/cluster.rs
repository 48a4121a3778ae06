//! `cenote cluster`, `cenote node`.

use super::Confirmation;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Read;
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
        #[command(flatten)]
        token: JoinTokenArgs,
    },
    /// Check whether servers fit together and reach each other; changes nothing
    Test {
        /// ADDRESS:PORT of a server of the cluster that this one might join [default: those in the token]
        address: Option<String>,
        /// Test as if this server were to join with a token [default: test the server's own cluster]
        #[command(flatten)]
        token: JoinTokenArgs,
    },
    /// Rebuild the cluster from this server alone, after most of the servers that run etcd are lost for good; stop this server first
    Recover {
        /// The etcd to start, if it is not in PATH
        #[arg(long, value_name = "FILE")]
        etcd_program: Option<PathBuf>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Show the cluster's servers and state, what may fail now, and the losses if one more server dies
    Status,
}

/// A token that lets a server join.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct JoinTokenArgs {
    /// File with the token that `cenote cluster token` printed on a server of the cluster; -: standard input
    #[arg(long, value_name = "FILE")]
    pub join_token_file: Option<PathBuf>,
    /// The token itself; other users of this machine can see it while the command runs
    #[arg(long)]
    pub token: Option<String>,
}

/// A token is shorter.
const TOKEN_FILE_BYTES_MAX: u64 = 16 << 10;

impl JoinTokenArgs {
    /// The token, if one was given.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn read(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.join_token_file else { return Ok(self.token.clone()) };
        let mut text = String::new();
        let read = match path.as_os_str() == "-" {
            true => std::io::stdin().take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text),
            false => {
                File::open(path).and_then(|file| file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text))
            }
        };
        read.map_err(|error| format!("--join-token-file {}: {error}", path.display()))?;
        Ok(Some(text.trim().to_owned()))
    }
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
    /// Move a server's volumes to other servers, so that you can stop it
    Drain {
        /// The server's name
        name: String,
        /// Wait until it is drained
        #[arg(long)]
        watch: bool,
        /// Drain the server even if volumes with their only copies there are not served while it is stopped;
        /// asks for the server's name
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// End a server's draining: it may serve volumes again
    Resume {
        /// The server's name
        name: String,
    },
    /// Remove a server from the cluster for good: a dead one, or one that holds no data any more
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
    /// Needed at the first start only
    #[command(flatten)]
    pub token: JoinTokenArgs,
    /// ADDRESS:PORT of a server of the cluster to join [default: those in the token]
    #[arg(long, value_name = "ADDR:PORT")]
    pub join: Option<String>,
    /// Name of the witness in the cluster: at most 15 letters, digits and -
    #[arg(long, default_value = "witness")]
    pub name: String,
    /// The etcd to start, if it is not in PATH
    #[arg(long, value_name = "FILE")]
    pub etcd_program: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_file_and_never_more_than_it_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let given = JoinTokenArgs { join_token_file: Some(file.clone()), token: None };
        assert!(given.read().unwrap_err().contains("--join-token-file"));
        std::fs::write(&file, "cenote-join-1234\n").unwrap();
        assert_eq!(given.read(), Ok(Some("cenote-join-1234".into())));
        std::fs::write(&file, "x".repeat(1 << 20)).unwrap();
        assert_eq!(given.read().unwrap().unwrap().len() as u64, TOKEN_FILE_BYTES_MAX);
        let argument = JoinTokenArgs { join_token_file: None, token: Some("t".into()) };
        assert_eq!((argument.read(), JoinTokenArgs::default().read()), (Ok(Some("t".into())), Ok(None)));
    }
}
