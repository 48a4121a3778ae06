//! The SMB 2 and 3 client that the storage bus, DiskSpd, the command line and tests share.
//!
//! [`Connection`] is the protocol without I/O: requests and messages go in, messages and events come out, many requests in
//! flight at once within the server's credits. [`Client`] is a thin shell around it on one TCP socket: blocking calls for
//! people, `submit` and `next` for pipelines. Promises: nothing is believed that is not signed or encrypted as agreed, a
//! server's nonsense ends the connection and never panics, payload is not copied between socket and caller beyond
//! encryption. Never retries on its own.

#![forbid(unsafe_code)]

mod client;
mod connection;
mod error;
mod file;
mod operation;
mod options;
mod stream;

pub use client::Client;
pub use connection::{Connection, Event, Limits, Outgoing, Random, Token};
pub use error::ClientError;
pub use file::{DirectoryEntry, File, FileStatus, OpenOptions, Tree};
pub use operation::{Reply, Request};
pub use options::{Encryption, Options, Signing};
pub use smb::auth::{Credentials, NtHash};
