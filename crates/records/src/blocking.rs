//! The state as the control plane uses it: calls that block, and records by type.

use crate::{Answer, Record, Request, StateError, Transaction};

/// A record as read: its value and the revision to compare with when writing it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<R> {
    pub revision: u64,
    pub value: R,
}

/// A state whose answer can be waited for. Not for the data plane's thread.
pub trait BlockingState {
    fn call(&self, request: Request) -> Result<Answer, StateError>;
}

/// Typed access to any [`BlockingState`].
pub trait Typed: BlockingState {
    /// # Errors
    /// [`StateError::Malformed`] if the value is no `R`; [`StateError::Unknown`].
    fn read<R: Record>(&self, id: &str) -> Result<Option<Stored<R>>, StateError> {
        let key = R::key_of(id);
        match self.call(Request::Get { key: key.clone() })? {
            Answer::Value(None) => Ok(None),
            Answer::Value(Some(found)) => {
                Ok(Some(Stored { revision: found.revision, value: R::decode(&key, &found.value)? }))
            }
            _ => Err(StateError::Unknown("the read was not answered".into())),
        }
    }

    /// All records of a kind, in key order.
    ///
    /// # Errors
    /// As [`Typed::read`].
    fn list<R: Record>(&self) -> Result<Vec<Stored<R>>, StateError> {
        match self.call(Request::List { prefix: R::PREFIX.into() })? {
            Answer::Listed(found) => found
                .into_iter()
                .map(|(key, found)| {
                    Ok(Stored { revision: found.revision, value: R::decode(&key, &found.value)? })
                })
                .collect(),
            _ => Err(StateError::Unknown("the listing was not answered".into())),
        }
    }

    /// Writes a record that must still have `revision` (0: must not exist); returns its new revision.
    ///
    /// # Errors
    /// [`StateError::Conflict`] if it has another; [`StateError::Unknown`].
    fn write<R: Record>(&self, record: &R, revision: u64) -> Result<u64, StateError> {
        let key = record.key();
        self.commit(Transaction::default().when(key.clone(), revision).put(key, record.encode()))
    }

    /// Deletes a record that must still have `revision`.
    ///
    /// # Errors
    /// As [`Typed::write`].
    fn remove<R: Record>(&self, id: &str, revision: u64) -> Result<(), StateError> {
        let key = R::key_of(id);
        self.commit(Transaction::default().when(key.clone(), revision).delete(key)).map(|_| ())
    }

    /// Applies a transaction; returns its revision.
    ///
    /// # Errors
    /// As [`Typed::write`].
    fn commit(&self, transaction: Transaction) -> Result<u64, StateError> {
        match self.call(Request::Commit(transaction))? {
            Answer::Committed { revision } => Ok(revision),
            Answer::Conflict => Err(StateError::Conflict),
            _ => Err(StateError::Unknown("the commit was not answered".into())),
        }
    }
}

impl<S: BlockingState + ?Sized> Typed for S {}
