//! The end of sessions and connections (MS-SMB2 3.3.7.1, 3.3.5.6).

use super::locks::LockOwner;
use super::open::Open;
use super::parts::Parts;
use crate::backend::{LeaseState, OpenId, Reply, SessionId};
use types::{Monotonic, NtStatus};

/// Closes the opens of an ended session, except for those that wait for their client to reconnect.
pub fn end_session(parts: &mut Parts<'_>, session: SessionId) -> Reply {
    for operation in parts.agenda.tasks.creates_of(session) {
        if !parts.agenda.tasks.orphan(operation) {
            parts.replays.abort(parts.agenda, operation, NtStatus::USER_SESSION_DELETED);
        }
    }
    for id in parts.opens.of_session(session) {
        disconnect_or_close(parts, id);
    }
    Reply::Done
}

/// Takes an open from a session whose client does not know of it.
pub fn abandon(parts: &mut Parts<'_>, id: OpenId, session: SessionId) -> Reply {
    // A session that ended has given it away already; and another one may have taken it up since.
    let has_it = |open: &Open| open.session == session && open.disconnected.is_none();
    if parts.opens.get(id).is_some_and(has_it) {
        disconnect_or_close(parts, id);
    }
    Reply::Done
}

/// Takes an open from a session that has ended, or whose client does not know of it. It waits for its
/// client, or is closed if it cannot.
pub fn disconnect_or_close(parts: &mut Parts<'_>, id: OpenId) {
    if parts.opens.get(id).is_some_and(|open| survives(parts, open)) {
        disconnect(parts, id);
    } else {
        parts.opens.close_unasked(id, parts.agenda);
    }
}

/// Whether an open may wait for its client to return.
fn survives(parts: &Parts<'_>, open: &Open) -> bool {
    if open.persistent {
        return open.durable.is_some() && !open.closing;
    }
    let state = parts.caching.state_of(&open.holder);
    open.durable.is_some() && !open.directory && state.contains(LeaseState::HANDLE)
}

fn disconnect(parts: &mut Parts<'_>, id: OpenId) {
    let Some(open) = parts.opens.get(id) else { return };
    let (stream, is_breaking) = (open.stream, parts.caching.is_breaking(&open.holder));
    parts.locks.abort_waiting(&LockOwner::new(id, open), parts.agenda);
    parts.watches.end(id, parts.agenda);
    parts.opens.disconnect(id, parts.agenda);
    let Some(open) = parts.opens.get(id) else { return };
    if open.persistent {
        if open.writes() {
            parts.locks.hold_writes(id, stream);
        }
    } else if is_breaking {
        // The break will never be acknowledged: operations that wait for it find the holder gone.
        parts.opens.revoke(id, parts.agenda);
    }
    parts.agenda.tasks.wake(stream.file);
}

/// Closes a durable open whose client has not returned by `at`.
pub fn disconnected_timed_out(parts: &mut Parts<'_>, id: OpenId, at: Monotonic) {
    if parts.opens.get(id).is_some_and(|open| open.disconnected == Some(at)) {
        parts.opens.revoke(id, parts.agenda);
    }
}
