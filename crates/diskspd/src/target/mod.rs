//! The meaning of a target's name, and the targets of this machine: files, block devices, physical disks by number.
//!
//! Promises: nothing is overwritten that the user did not give up (see [`guard`]).

pub mod disks;
pub mod guard;
pub mod local;
pub mod smb;

use crate::profile::Target;
use smb_client::{Location, LocationError};
use std::path::PathBuf;

/// Reason why a run cannot begin, or continue, as printed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// DiskSpd's own words, with errno or NTSTATUS.
    #[error("Error opening file: {path} [{number}]\n{detail}")]
    Open { path: String, number: String, detail: String },
    #[error("{0}")]
    Other(String),
}

impl TargetError {
    pub(crate) fn open(path: &str, error: &std::io::Error) -> Self {
        Self::Open {
            path: path.to_owned(),
            number: error.raw_os_error().unwrap_or(0).to_string(),
            detail: error.to_string(),
        }
    }
}

/// Where a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file, or a block device by its path.
    Local(PathBuf),
    Smb(Location),
}

/// Reads a target's name.
///
/// # Errors
/// A number of no disk, an address without share or path.
pub fn place(path: &str) -> Result<Place, TargetError> {
    if let Some(number) = path.strip_prefix('#')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return disks::by_number(number).map(Place::Local);
    }
    if Location::is_meant(path) {
        let wrong =
            |problem: String| TargetError::Other(format!("ERROR: invalid SMB target '{path}': {problem}"));
        let place = Location::parse(path).map_err(|problem| match problem {
            // The address is not repeated: it holds the password.
            LocationError::Password => TargetError::Other(format!(
                "ERROR: invalid SMB target: {problem}; give it in a file with --smb-credentials, or in the environment"
            )),
            problem => wrong(problem.to_string()),
        })?;
        if place.path.is_empty() {
            return Err(wrong("the path of the file is missing".into()));
        }
        return Ok(Place::Smb(place));
    }
    Ok(Place::Local(PathBuf::from(path)))
}

/// The checks of options that only some kinds of target can have.
///
/// # Errors
/// DiskSpd's message if it has one.
pub fn check_options(target: &Target, place: &Place) -> Result<(), TargetError> {
    use crate::profile::CacheMode;
    let problem = match place {
        Place::Local(_) if target.cache == CacheMode::DisableLocalCache => {
            format!("Disabling local cache (-Sr) is only supported on remote filesystems: '{}'", target.path)
        }
        Place::Smb(_) if target.memory_mapped => {
            format!("ERROR: memory mapped I/O (-Sm) is not possible on an SMB target: '{}'", target.path)
        }
        Place::Smb(_) if target.large_pages => {
            format!("ERROR: large pages (-l) are not possible on an SMB target: '{}'", target.path)
        }
        _ => return Ok(()),
    };
    Err(TargetError::Other(problem))
}

#[cfg(test)]
mod tests;
