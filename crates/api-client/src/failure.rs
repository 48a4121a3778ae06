//! How a command ends that was not carried out.

use api::{ApiError, ErrorKind};

/// A message of the command line, and its exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Message for stderr: what happened, to what, and the remedy.
    pub message: String,
    /// Exit status of the program: 1, unless the command documents another.
    pub exit_status: u8,
    /// Kind of a refusal by the API.
    pub kind: Option<ErrorKind>,
}

impl Failure {
    /// Makes a failure with exit status 1 that the API did not cause.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_status: 1, kind: None }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { kind: Some(error.kind), ..Self::new(error.message) }
    }
}
