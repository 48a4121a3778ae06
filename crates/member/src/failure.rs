//! Reasons why a request to the cluster failed, in the API's kinds.

use crate::admission::Refused;
use crate::asking::AskError;
use crate::identity::IdentityError;
use crate::tls::ClusterTlsError;
use api::{ApiError, ErrorKind};
use records::StateError;

/// Reports that the present state forbids the request.
pub fn conflict(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Conflict, message)
}

/// Something is damaged, or failed.
pub fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Internal, error.to_string())
}

/// A refusal in the API's kinds.
pub fn refused(error: Refused) -> ApiError {
    let kind = match &error {
        Refused::Name(_) | Refused::Address(_) => ErrorKind::Invalid,
        Refused::NoSuchNode(_) => ErrorKind::NotFound,
        Refused::State(StateError::Unknown(_) | StateError::NotApplied(_)) => ErrorKind::Unavailable,
        Refused::Authority(_) | Refused::Seal(_) | Refused::State(_) => ErrorKind::Internal,
        _ => ErrorKind::Conflict,
    };
    ApiError::new(kind, error.to_string())
}

impl From<IdentityError> for ControlError {
    fn from(error: IdentityError) -> Self {
        Self(internal(error))
    }
}
impl From<ClusterTlsError> for ControlError {
    fn from(error: ClusterTlsError) -> Self {
        Self(internal(error))
    }
}
impl From<Refused> for ControlError {
    fn from(error: Refused) -> Self {
        Self(refused(error))
    }
}
impl From<StateError> for ControlError {
    fn from(error: StateError) -> Self {
        Self(refused(error.into()))
    }
}
impl From<ApiError> for ControlError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}
impl From<AskError> for ControlError {
    fn from(error: AskError) -> Self {
        let kind =
            if matches!(error, AskError::Refused(_)) { ErrorKind::Conflict } else { ErrorKind::Unavailable };
        Self(ApiError::new(kind, error.to_string()))
    }
}

/// An error for the API.
pub struct ControlError(pub ApiError);

/// Runs work that waits for disks or other servers on its own thread.
pub async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, ControlError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(ControlError(internal("the work was interrupted"))),
    }
}
