//! Errors of the node's commands.
//!
//! Promises: programs react by the kind; the message tells people the event, its object, and the
//! next step.

use records::StateError;

/// The class of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command names an object that does not exist.
    NotFound,
    /// The present state forbids the command.
    Conflict,
    /// The request itself is wrong.
    Invalid,
    /// A pool or a disk has no space.
    NoSpace,
    /// The data plane has ended, too few copies can be reached, or the cluster state takes no changes.
    Unavailable,
    /// A disk or the data on it is damaged.
    Corrupt,
    /// A disk, a thread or the cluster state failed.
    Io,
}

/// Reason why a command failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Class of the error, by which programs react.
    pub kind: ErrorKind,
    /// Event, its object and the next step, for people.
    pub message: String,
}

/// The result of a command.
pub type Done<T> = Result<T, Error>;

impl Error {
    /// Makes an error; the message has no full stop at its end.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Makes the error for a failed disk, thread or state.
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }

    /// Makes the error for an unknown `what`.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, format!("there is no {what} {id}"))
    }
}

impl From<StateError> for Error {
    fn from(why: StateError) -> Self {
        let kind = match why {
            StateError::Conflict => ErrorKind::Conflict,
            StateError::NotApplied(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Io,
        };
        Self::new(kind, why.to_string())
    }
}
