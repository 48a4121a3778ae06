//! The SMB 2 and 3 client that the storage bus, DiskSpd, the command line and tests share.
//!
//! [`Connection`] is the protocol without I/O: requests and messages go in, messages and events come out, many requests in
//! flight at once within the server's credits. [`Client`] is a shell around it over TCP or SMB Direct: blocking calls for
//! people; for pipelines `submit` and `poll`, with one [`Engine`] that all clients of a thread share:
//!
//! ```no_run
//! # fn main() -> Result<(), smb_client::ClientError> {
//! use smb_client::{Client, Credentials, Engine, NtHash, OpenOptions, Options, Transport};
//! let engine = Engine::new()?;
//! let credentials = Credentials::User {
//!     user: "ana".into(),
//!     domain: String::new(),
//!     workstation: String::new(),
//!     hash: NtHash::from_password("secret"),
//!     target_name: "cifs/filer".into(),
//! };
//! let options = Options { transport: Transport::Auto, ..Options::default() };
//! let mut client = Client::connect_on(&engine, "filer", 445, credentials, options)?;
//! let tree = client.tree_connect("demo")?;
//! let file = client.open(tree, "data.bin", OpenOptions::read())?;
//! for block in 0..8 {
//!     client.submit_read(&file, block << 16, 64 << 10)?;
//! }
//! let mut answers = Vec::new();
//! while client.in_flight() > 0 {
//!     client.poll(&mut answers)?;
//!     if answers.is_empty() {
//!         engine.wait(std::time::Duration::from_millis(100))?;
//!     }
//!     for (_token, reply) in answers.drain(..) {
//!         let _bytes = reply.read_data()?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Payload of at least [`Options::rdma_read_bytes_min`] or [`Options::rdma_write_bytes_min`] goes by RDMA on SMB Direct. If the session
//! or share is signed or encrypted, such payload is signed or encrypted by itself ([`Options::rdma_transform`]); if the server has no
//! RDMA transforms, it goes in messages instead.
//!
//! Promises: nothing is believed that is not signed or encrypted as agreed; a server's nonsense ends the connection and never panics;
//! payload is not copied between socket and caller beyond encryption. An operation that may have taken effect is never repeated unless
//! a second time does no harm.

#![forbid(unsafe_code)]

pub mod bandwidth;
pub mod channel;
mod client;
mod connection;
mod counters;
mod engine;
mod error;
mod file;
mod location;
mod logon;
mod operation;
mod options;
pub mod ping;
pub mod transfer;

pub use channel::Channel;
pub use client::{Changing, Client, Contents, Fetching, Filling, Keeping, NotWhole, Whole};
pub use connection::{Binding, Connection, Event, Leftovers, Limits, Random, Token};
pub use counters::Counters;
pub use engine::Engine;
pub use error::ClientError;
pub use file::{DirectoryEntry, File, FileStatus, OpenOptions, Tree};
pub use location::{Location, LocationError};
pub use logon::{Logon, LogonError};
pub use operation::{Reply, Request};
pub use options::{Encryption, Options, RDMA_PORT, RdmaDevice, Signing, Transport};
pub use smb::auth::{Credentials, NodeCredentials, NtHash};
pub use smb_transport::client::Outgoing;
