//! Undoes a founding: the server is the former single server again.
//!
//! Promises: at any interruption exactly one of the two engines has the state; acknowledged changes are
//! not lost.
//!
//! 1. It begins only if etcd is known not to have this cluster, and nothing under way would create it
//!    there: no record had begun to move (there is no [`Moved`]), or the move reports that it failed
//!    ([`etcd::CarryError::Undecided`] does not), or etcd has another cluster of that name. So the old
//!    engine has every record, and later acknowledged changes went there.
//! 2. One rename, which is synced, removes `DATA/cluster`. A start before it continues the founding,
//!    from the old engine, which still has the founding's records; a start after it opens the old
//!    engine as a single server's.
//! 3. Only then the founding's records are removed from the old engine, and [`Moved`], which would make
//!    the next founding keep remains of an interrupted etcd. A start in between finds them, and a
//!    single server ignores them; the next founding removes them first.
//!
//! If it is unknown whether the rename is on the disk, the third step is skipped: both starts work with
//! the records.

use crate::failure::{ControlError, off_the_loop};
use crate::identity::{self, IdentityError};
use api::{ApiError, ErrorKind};
use etcd::{EtcdState, Moved};
use records::nodes::ClusterRecord;
use records::{NodeRecord, Record, State, StateError, Stored, Transaction, Typed};
use std::path::Path;

/// Makes this server a single one again; `state` is that of its old engine. See the module for when it may be called.
///
/// # Errors
/// [`IdentityError`]: it is the founder of that cluster still.
pub(crate) fn take_back(data: &Path, state: &State) -> Result<(), IdentityError> {
    identity::abandon(data)?;
    if let Err(error) = forget_founding(state) {
        tracing::warn!(%error, "records of a founding that was taken back are left; the next one removes them");
    }
    Ok(())
}

/// State of a server after a founding that was not completed.
pub(crate) enum Left {
    /// The former single server; the founding is undone.
    Single,
    /// Perhaps a founder: a restart continues the founding.
    Founder,
}

/// Takes a failed founding back if the records have not moved, and cannot any more. Returns also the
/// message for the caller.
pub(crate) async fn leave_founding(
    data: &Path,
    state: &State,
    cluster: &str,
    error: ApiError,
) -> (Left, ApiError) {
    let why = error.message;
    // A move with an unknown outcome leaves the state with etcd.
    if EtcdState::of(state).is_none() {
        let (data, state) = (data.to_owned(), state.clone());
        match off_the_loop(move || Ok(take_back(&data, &state)?)).await {
            Ok(()) => {
                let single =
                    "the cluster was not made, and this server goes on as the single one that it was";
                tracing::warn!(cluster, why, "{single}");
                return (Left::Single, ApiError::new(error.kind, format!("{single}: {why}")));
            }
            Err(ControlError(error)) => {
                tracing::error!(cluster, why = error.message, "a founding cannot be taken back");
            }
        }
    }
    tracing::error!(
        cluster,
        why,
        "it is not decided whether the cluster is made: this server's parts start again, and go on with it"
    );
    let message = format!(
        "it is not decided yet whether cluster {cluster} is made: {why}; the server restarts its parts and goes on: `cenote \
         cluster status` shows the outcome, and the server's log the reason"
    );
    (Left::Founder, ApiError::new(ErrorKind::Unavailable, message))
}

/// Removes the records of a founding that was not finished: this server is in no cluster, even if its
/// own state names one.
pub(crate) fn forget_founding(state: &State) -> Result<(), StateError> {
    let mut transaction = Transaction::default();
    if let Some(Stored { revision, value }) = ClusterRecord::find(state)? {
        transaction = transaction.when(value.key(), revision).delete(value.key());
    }
    for Stored { revision, value } in state.list::<NodeRecord>()? {
        transaction = transaction.when(value.key(), revision).delete(value.key());
    }
    if let Some(Stored { revision, value }) = state.read::<Moved>(Moved::ID)? {
        transaction = transaction.when(value.key(), revision).delete(value.key());
    }
    if transaction.changes.is_empty() {
        return Ok(());
    }
    state.commit(transaction).map(|_| ())
}
