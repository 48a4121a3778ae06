//! Errors of a client.

use smb::auth::InitiateError;
use smb::crypto::CryptoError;
use smb::wire::{Command, WireError};
use smb_transport::client::LinkError;
use std::io;
use types::NtStatus;

/// Describes a refusal for people, with its name for those who look it up.
fn refusal(command: Command, status: NtStatus) -> String {
    match meaning(status) {
        Some(meaning) => format!("{meaning} ({status})"),
        None => format!("the server refused {} with {status}", command.name()),
    }
}

/// In the words of files and shares (MS-ERREF 2.3.1); `None` for statuses that users rarely meet.
fn meaning(status: NtStatus) -> Option<&'static str> {
    Some(match status {
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::NO_SUCH_FILE => {
            "there is no file or directory of that name"
        }
        NtStatus::OBJECT_PATH_NOT_FOUND => "a directory on the way does not exist",
        NtStatus::OBJECT_NAME_INVALID | NtStatus::OBJECT_PATH_SYNTAX_BAD => "the server takes no such name",
        NtStatus::NAME_TOO_LONG => "the name is too long for the server",
        NtStatus::OBJECT_NAME_COLLISION => "there is something of that name already",
        NtStatus::ACCESS_DENIED | NtStatus::NETWORK_ACCESS_DENIED => "this user is not allowed to do that",
        NtStatus::LOGON_FAILURE => "user name or password is wrong",
        NtStatus::ACCOUNT_DISABLED => "the account is disabled",
        NtStatus::NO_LOGON_SERVERS => "the server cannot read whether accounts have changed",
        NtStatus::ACCOUNT_LOCKED_OUT => "the account is locked after too many wrong passwords",
        NtStatus::ACCOUNT_RESTRICTION => "the account may not log on like this",
        NtStatus::PASSWORD_EXPIRED => "the password has expired",
        NtStatus::BAD_NETWORK_NAME => "the server has no share of that name",
        NtStatus::NETWORK_NAME_DELETED => {
            "the share was taken away, or its options changed, while it was in use"
        }
        NtStatus::USER_SESSION_DELETED | NtStatus::NETWORK_SESSION_EXPIRED => "the server ended the session",
        NtStatus::SHARING_VIOLATION => "somebody else has it open",
        NtStatus::FILE_LOCK_CONFLICT | NtStatus::LOCK_NOT_GRANTED => "somebody else has locked a part of it",
        NtStatus::DELETE_PENDING => "it is being deleted",
        NtStatus::CANNOT_DELETE => "it is read-only, or in use, and cannot be deleted",
        NtStatus::DIRECTORY_NOT_EMPTY => "the directory is not empty",
        NtStatus::FILE_IS_A_DIRECTORY => "it is a directory",
        NtStatus::NOT_A_DIRECTORY => "it is not a directory",
        NtStatus::DISK_FULL => "the server's disk, or the user's quota, is full",
        NtStatus::MEDIA_WRITE_PROTECTED => "the share or its volume can only be read",
        NtStatus::INSUFFICIENT_RESOURCES | NtStatus::INSUFF_SERVER_RESOURCES => {
            "the server has no room for the request now"
        }
        NtStatus::TOO_MANY_OPENED_FILES => "too many files are open at the server",
        NtStatus::REQUEST_NOT_ACCEPTED | NtStatus::TOO_MANY_SESSIONS => {
            "the server takes no more clients now"
        }
        NtStatus::NOT_SUPPORTED => "the server does not support that",
        NtStatus::DATA_ERROR | NtStatus::CRC_ERROR => "the data are damaged on all of the server's copies",
        NtStatus::FILE_CLOSED => "the server has closed the file",
        _ => return None,
    })
}

/// Reason for which the server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered, and said no.
    #[error("{}", refusal(*command, *status))]
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
    /// The logon cannot continue.
    #[error("logon: {0}")]
    Auth(#[from] InitiateError),
    /// The server offers nothing that the options allow.
    #[error("the server does not offer {0}, which the options ask for")]
    NotOffered(&'static str),
    /// The caller asked for something impossible: a length over the server's limit, an empty list.
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
