//! Requests that make no sense, and errors of the data plane and of accounts, in the API's words.

use super::devices::refused_place;
use crate::control::{CommandError, CommandErrorKind, NewDisk};
use api::requests::{AddDisk, FaultDomain};
use api::{ApiError, ErrorKind};
use machine::places::absolute;
use records::StateError;
use records::accounts::AccountError;
use records::names::NameRule;
use records::seal::SealError;
use types::DiskId;

pub(super) fn same(left: &str, right: &str) -> bool {
    left.to_lowercase() == right.to_lowercase()
}

pub(super) fn no_such(kind: &str, name: &str) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!("there is no {kind} '{name}'; `cenote {kind} list` shows those there are"),
    )
}

pub(super) fn failed(error: CommandError) -> ApiError {
    let kind = match error.kind {
        CommandErrorKind::NotFound => ErrorKind::NotFound,
        CommandErrorKind::Conflict => ErrorKind::Conflict,
        CommandErrorKind::Invalid => ErrorKind::Invalid,
        CommandErrorKind::NoSpace => ErrorKind::NoSpace,
        CommandErrorKind::Unavailable => ErrorKind::Unavailable,
        CommandErrorKind::Corrupt => ErrorKind::Corrupt,
        CommandErrorKind::Io => ErrorKind::Internal,
    };
    ApiError::new(kind, error.message)
}

pub(super) fn refused(error: AccountError) -> ApiError {
    let kind = match &error {
        AccountError::NotFound { .. } | AccountError::NoAccount(_) => ErrorKind::NotFound,
        AccountError::Exists { .. }
        | AccountError::Builtin(_)
        | AccountError::State(StateError::Conflict) => ErrorKind::Conflict,
        AccountError::BadName(_)
        | AccountError::BadText(_)
        | AccountError::BadPassword(_)
        | AccountError::Invalid(_) => ErrorKind::Invalid,
        AccountError::State(StateError::Malformed { .. })
        | AccountError::Seal(SealError::DoesNotOpen { .. }) => ErrorKind::Corrupt,
        AccountError::State(StateError::NoRoom(_)) => ErrorKind::NoSpace,
        AccountError::State(_) => ErrorKind::Unavailable,
        // Requests read only the key file that they name.
        AccountError::Seal(SealError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            ErrorKind::NotFound
        }
        AccountError::Seal(
            SealError::Io { .. } | SealError::TooOpen { .. } | SealError::WrongSize { .. },
        ) => ErrorKind::Invalid,
        AccountError::Seal(SealError::Random) => ErrorKind::Internal,
    };
    ApiError::new(kind, error.to_string())
}

/// Asks to confirm that a disk is erased.
pub(super) fn destroys(path: &str, held: &str) -> ApiError {
    let message =
        format!("this destroys what is on {path}: {held}; confirm it by its path (\"confirm\": PATH)");
    ApiError::new(ErrorKind::ConfirmationNeeded, message)
}

/// Asks to confirm that a disk forgets its promises to these volumes.
pub(super) fn forgets(disk: DiskId, volumes: &[String]) -> ApiError {
    let message = format!(
        "disk {disk} forgets its promises to {}, and counts as a disk that was restored from an old image: it is updated from \
         the other copies, and data that only this disk has are served as they are, whoever wrote them: acknowledged writes that are not on it \
         are lost; confirm it by the disk's ID (\"confirm\": ID)",
        volumes.join(", ")
    );
    ApiError::new(ErrorKind::ConfirmationNeeded, message)
}

pub(super) fn new_disk(request: &AddDisk) -> Result<NewDisk, ApiError> {
    let path = absolute(&request.path).map_err(refused_place)?;
    let FaultDomain { rack, node, enclosure } = request.fault_domain.clone();
    [&rack, &node, &enclosure].into_iter().try_for_each(|label| check_name(NameRule::FAULT_DOMAIN, label))?;
    Ok(NewDisk {
        path,
        create_size_bytes: request.create_size_bytes,
        fault_domain: records::FaultDomain { rack, node, enclosure },
    })
}

pub(super) fn check_name(rule: NameRule, name: &str) -> Result<(), ApiError> {
    rule.check(name).map_err(|error| ApiError::new(ErrorKind::Invalid, error.to_string()))
}

pub(super) fn exists(kind: &str, name: &str) -> ApiError {
    ApiError::new(ErrorKind::Conflict, format!("there is a {kind} '{name}' already; choose another name"))
}
