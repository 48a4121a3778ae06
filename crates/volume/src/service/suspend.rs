//! How one try of an operation ends: with an outcome, or with the reason why it cannot continue.

use crate::backend::Reply;
use crate::fs::{FileId, FsError};
use types::NtStatus;

/// How a try ended well.
#[derive(Debug)]
pub enum Outcome {
    Reply(Reply),
    /// A transfer or a queue will answer.
    Later,
}

/// Why an operation does not continue.
#[derive(Debug)]
pub enum Suspend {
    Status(NtStatus),
    /// The file layer has to bring metadata into memory first.
    Miss,
    /// The turn is spent: the operation continues in the next one.
    Yield,
    /// A holder has to release its caching of this file first.
    Break(FileId),
    /// Opens of this file whose clients were away are being closed: the operation continues after that.
    Closing(FileId),
    /// A reparse point lies on the path: its data, and how many bytes of path lie behind it.
    Symlink {
        data: Vec<u8>,
        unparsed_bytes: u16,
    },
}

impl From<NtStatus> for Suspend {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

impl From<FsError> for Suspend {
    fn from(error: FsError) -> Self {
        if error == FsError::Miss { Self::Miss } else { Self::Status(status_of(&error)) }
    }
}

/// Names an error of the file layer in NT's terms.
pub fn status_of(error: &FsError) -> NtStatus {
    match error {
        FsError::Miss => NtStatus::INTERNAL_ERROR,
        FsError::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
        FsError::Exists => NtStatus::OBJECT_NAME_COLLISION,
        FsError::NotDirectory => NtStatus::NOT_A_DIRECTORY,
        FsError::IsDirectory => NtStatus::FILE_IS_A_DIRECTORY,
        FsError::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        FsError::NameInvalid => NtStatus::OBJECT_NAME_INVALID,
        FsError::Loop => NtStatus::ACCESS_DENIED,
        FsError::TooManyLinks => NtStatus::TOO_MANY_LINKS,
        FsError::TooManyStreams => NtStatus::FILE_SYSTEM_LIMITATION,
        // A write beyond a quota finds the disk full, as in Windows.
        FsError::NoSpace | FsError::QuotaExceeded => NtStatus::DISK_FULL,
        FsError::TooLarge | FsError::Invalid(_) => NtStatus::INVALID_PARAMETER,
        FsError::Corrupt { .. } => NtStatus::DATA_ERROR,
        FsError::ReadOnly { .. } => NtStatus::MEDIA_WRITE_PROTECTED,
        FsError::Fenced | FsError::Stopped => NtStatus::VOLUME_DISMOUNTED,
        FsError::Unavailable => NtStatus::DEVICE_NOT_READY,
        FsError::NotAVolume(_) | FsError::OtherFormat(_) => NtStatus::UNRECOGNIZED_VOLUME,
    }
}

/// Names an error of the file layer for a client whose extended attributes cannot be set.
pub fn ea_status(error: FsError) -> Suspend {
    if error == FsError::TooLarge { NtStatus::EA_TOO_LARGE.into() } else { error.into() }
}
