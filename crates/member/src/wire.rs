//! Requests and answers between servers on the cluster's port: one JSON object in a frame, over TLS.
//!
//! Promises: a frame's length is checked before any of it is kept; an unknown request or field is
//! refused. `Debug` hides secrets.

use crate::admission::Applicant;
use records::NodeRecord;
use records::api_tokens::Role;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroize;

/// Bytes of one question. A body of the management API (64 KiB) fits, escaped as JSON in JSON.
pub const FRAME_BYTES_MAX: usize = 144 << 10;
/// Longest answer, which only a requested server may send.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Timeout of sending a request, or its answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Lets the applicant in.
    Join { token: String, secret: Secret, applicant: Box<Applicant> },
    /// The facts that a server which may join needs first. Changes nothing, and the token stays good.
    Examine { token: String, secret: Secret },
    /// The same facts for servers of the cluster.
    Facts,
    /// Whether the server with the request's certificate is still in the cluster; it may have been removed
    /// while it was off.
    Standing,
    /// Has a server of the cluster check whether it reaches others.
    Probe { targets: Vec<Target> },
    /// Has a server of the cluster do a task that only it can.
    Errand(Errand),
}

/// A request of the management API that is for another server, as that one's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errand {
    /// The method of HTTP.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// JSON; empty: none.
    pub body: Secret,
    /// `None`: the holder of a server's token file, or the server itself, asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ErrandBy>,
}

/// The named token of the API behind a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrandBy {
    /// Name of the token of the API.
    pub token: String,
    /// Role of that token, which limits the task.
    pub role: Role,
}

/// A server to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the server.
    pub name: String,
    /// Address of its cluster port.
    pub cluster: SocketAddr,
    /// Address of its SMB server; of a witness, of its cluster port.
    pub smb: SocketAddr,
    /// Address of SMB Direct; `None`: not served.
    pub rdma: Option<SocketAddr>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Tell {
    /// Answer to [`Ask::Join`]: the applicant is in.
    Admitted(Box<Admission>),
    /// Answer to [`Ask::Facts`] and [`Ask::Examine`].
    Facts(Box<Facts>),
    /// Answer to [`Ask::Probe`], in the order of the targets.
    Probed(Vec<Probed>),
    /// To a server that is, or was, of the cluster. When it was removed, as far as that is on record.
    Standing {
        /// The server is in the cluster still.
        is_member: bool,
        /// Unix time in seconds of its removal; `None`: not removed, or not on record.
        removed_unix_s: Option<u64>,
    },
    /// The answer to an errand: HTTP's status, and JSON.
    Done {
        /// Status code of HTTP (RFC 9110, section 15).
        status: u16,
        /// Body of the answer in JSON.
        body: Secret,
    },
    /// The question is not answered as asked.
    Refused {
        /// Reason in words for the asker's administrator.
        reason: String,
    },
}

/// Answer to an admitted server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// Name of the cluster.
    pub cluster: String,
    /// UUID of the cluster, drawn when it was founded.
    pub id: uuid::Uuid,
    /// Record of the new server, with its number.
    pub node: NodeRecord,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub authority: String,
    /// PEM.
    pub revoked: String,
    /// The sealing key in hexadecimal digits.
    pub seal_key: Secret,
    /// Client URLs of etcd's members.
    pub endpoints: Vec<String>,
    /// Names and peer URLs of etcd's members, including the new one if it has to run one.
    pub members: Vec<(String, String)>,
}

/// A server's disks on record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Number of disks on record.
    pub disks: u32,
    /// Sum of the disks' sizes in bytes.
    pub size_bytes: u64,
    /// Paths of failing or missing disks.
    pub failing: Vec<String>,
}

/// A server's present state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Name of the server.
    pub name: String,
    /// The cluster's name.
    pub cluster: String,
    /// Version of the server's program.
    pub version: String,
    /// Unix time of the server's clock in milliseconds.
    pub unix_ms: u64,
    /// Process id of the server: another one after a restart.
    pub pid: u32,
    /// The largest packet of the interface that has its cluster address, if known.
    pub mtu: Option<u32>,
    /// Bytes to which a TCP receive buffer may grow (net.ipv4.tcp_rmem), if known.
    pub receive_buffer_max: Option<u64>,
    /// Version of its program of etcd; `None`: it cannot run a member.
    pub etcd: Option<String>,
    /// Storage of a server that is in the cluster and may have disks.
    pub storage: Option<Storage>,
    /// The servers of the cluster.
    pub members: Vec<Target>,
}

/// How a server was reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probed {
    /// Name of the server that was to be reached.
    pub name: String,
    /// Microseconds for a TCP connection to its SMB port; else the error.
    pub tcp: Result<f64, String>,
    /// Median microseconds for a round trip of 4 KiB by SMB Direct; else the error. `None`: no SMB Direct.
    pub rdma: Option<Result<f64, String>>,
}

impl Eq for Probed {}

/// A message on the port, of either direction.
pub trait Message: Serialize + DeserializeOwned {
    /// Most bytes of one message, in its JSON form.
    const BYTES_MAX: usize;
}

impl Message for Ask {
    const BYTES_MAX: usize = FRAME_BYTES_MAX;
}

impl Message for Tell {
    const BYTES_MAX: usize = ANSWER_BYTES_MAX;
}

/// Encodes a message as a frame.
///
/// # Errors
/// If it is too long.
pub fn frame<M: Message>(message: &M) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    if body.len() > M::BYTES_MAX {
        return Err(io::Error::other(format!("a message of {} bytes, {} at most", body.len(), M::BYTES_MAX)));
    }
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend(body);
    Ok(bytes)
}

/// # Errors
/// Why the body of a frame is no message.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// # Errors
/// Those of the stream; `InvalidData` for other bytes than a message; `TimedOut`.
pub async fn receive<T: Message>(stream: &mut (impl AsyncRead + Unpin), within: Duration) -> io::Result<T> {
    let read = async {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length) as usize;
        if length > T::BYTES_MAX {
            let why = format!("a message of {length} bytes, {} at most", T::BYTES_MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // Grows with the bytes that have arrived, not with the announced length.
        let mut body = Vec::new();
        stream.take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let parsed = parse(&body);
        body.zeroize();
        parsed
    };
    tokio::time::timeout(within, read).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// # Errors
/// Those of the stream; `TimedOut`.
pub async fn send<M: Message>(stream: &mut (impl AsyncWrite + Unpin), message: &M) -> io::Result<()> {
    let mut bytes = frame(message)?;
    let write = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    let sent = tokio::time::timeout(PATIENCE, write).await;
    bytes.zeroize();
    sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_is_read_as_it_was_written() {
        let ask = Ask::Examine { token: "00".into(), secret: Secret("11".into()) };
        let mut bytes = Vec::new();
        send(&mut bytes, &ask).await.unwrap();
        assert_eq!(receive::<Ask>(&mut bytes.as_slice(), PATIENCE).await.unwrap(), ask);
        assert!(!format!("{ask:?}").contains("11"));
    }

    #[tokio::test]
    async fn what_is_too_long_cut_or_no_question_is_an_error() {
        let long = (FRAME_BYTES_MAX as u32 + 1).to_be_bytes();
        let cut = [0, 0, 0, 9, b'{'];
        let framed = |json: &str| [&(json.len() as u32).to_be_bytes()[..], json.as_bytes()].concat();
        let (other, unknown) = (framed("{\"facts\":{\"more\":1}}"), framed("\"delete_everything\""));
        for bytes in [&long[..], &cut, &other, &unknown, &[]] {
            assert!(receive::<Ask>(&mut &*bytes, PATIENCE).await.is_err(), "{bytes:?}");
        }
    }
}
