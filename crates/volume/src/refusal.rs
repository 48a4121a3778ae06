//! The refusal of an operation: the error of every answer, so that it cannot be mistaken for success.

use types::NtStatus;

/// Why an operation was refused: it did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer; never a success.
    pub status: NtStatus,
    /// Details beyond the status.
    pub detail: Option<Box<RefusalDetail>>,
}

/// Details of a refusal for the client beside its status (ErrorData of MS-SMB2 2.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalDetail {
    /// Of STATUS_STOPPED_ON_SYMLINK: a path that the operation names meets a symbolic link.
    Symlink {
        /// The link's REPARSE_DATA_BUFFER (MS-FSCC 2.1.2.4), of which nothing has been checked but its tag.
        reparse: Vec<u8>,
        /// The length in bytes of the path behind the link's name.
        unparsed_bytes: u16,
    },
    /// Of a request to a disk: the storage bus's own words.
    Bus(Vec<u8>),
}

impl From<NtStatus> for Refusal {
    fn from(status: NtStatus) -> Self {
        Self { status, detail: None }
    }
}

impl Refusal {
    /// Refuses an operation whose path meets a symbolic link.
    pub fn on_symlink(reparse: Vec<u8>, unparsed_bytes: u16) -> Self {
        let detail = RefusalDetail::Symlink { reparse, unparsed_bytes };
        Self { status: NtStatus::STOPPED_ON_SYMLINK, detail: Some(Box::new(detail)) }
    }
}
