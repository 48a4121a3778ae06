//! What can go wrong at a client.

use smb::auth::InitiateError;
use smb::crypto::CryptoError;
use smb::wire::{Command, WireError};
use smb_transport::client::LinkError;
use std::io;
use types::NtStatus;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered, and said no.
    #[error("{}: {status}", command.name())]
    Status { command: Command, status: NtStatus },
    /// The connection failed or was closed; it is of no further use.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The RDMA connection failed or was refused; it is of no further use.
    #[error("the SMB Direct connection failed: {0}")]
    Rdma(String),
    /// Nothing came for the time set in the options.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server's bytes make no sense; the connection is of no further use.
    #[error("the server's message is malformed: {0}")]
    Wire(#[from] WireError),
    /// The server does what the protocol forbids; the connection is of no further use.
    #[error("the server breaks the protocol: {0}")]
    Protocol(&'static str),
    /// Signature or encryption is wrong or missing: somebody may sit between.
    #[error("the server's message is not protected as agreed: {0}")]
    NotAuthentic(#[from] CryptoError),
    /// The logon cannot go on.
    #[error("logon: {0}")]
    Auth(#[from] InitiateError),
    /// The server offers nothing that the options allow.
    #[error("the server does not offer {0}, which the options ask for")]
    NotOffered(&'static str),
    /// The caller asked for what cannot be: a length over the server's limit, an empty list.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
}

impl From<LinkError> for ClientError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) => Self::Io(error),
            LinkError::Rdma(reason) => Self::Rdma(reason),
            LinkError::Framing(_) | LinkError::EmptyMessage => {
                Self::Protocol("a message of impossible length")
            }
        }
    }
}

impl ClientError {
    /// Returns the status that the server answered with, if the error is such an answer.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the connection is still of use.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Status { .. } | Self::Invalid(_))
    }
}
