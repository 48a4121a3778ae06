//! Breaks of oplocks and leases, which the server sends unasked (MS-SMB2 3.3.4.6, 3.3.4.7).
//!
//! Promises: if a connection is lost after carrying an unacknowledged break, the break is sent again
//! over another connection of its holder.

use super::chain::Response;
use super::send;
use crate::directory::Directory;
use crate::exchange::Body;
use crate::state::State;
use crate::state::connections::ConnectionId;
use crate::state::keys::{LeaseName, SessionKey, VolumeSlot};
use crate::state::leases::{BreakStep, Breaking};
use crate::state::sessions::SessionState;
use smb::wire::{
    Command, Header, HeaderFlags, LEASE_BREAK_ACK_REQUIRED, LeaseBreakNotificationBody, OPLOCK_LEVEL_II,
    OPLOCK_LEVEL_NONE, OplockBreakBody, Put, U64,
};
use volume::backend::{Backend, CacheGrant, LeaseState, OpenId, OplockLevel};

/// One step of a lease's break.
pub(crate) struct LeaseStep {
    pub from: LeaseState,
    pub to: LeaseState,
    /// The holder has to acknowledge it.
    pub acknowledge: bool,
    pub epoch: u16,
}

/// Sends the break of an oplock to its holder (MS-SMB2 3.3.4.6).
pub(crate) fn send_oplock_break<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    volume: VolumeSlot,
    open: OpenId,
    to: OplockLevel,
) {
    let Some(key) = state.opens.of_volume((volume, open)) else { return };
    let Ok(found) = state.opens.get(key) else { return };
    let file_id = found.file_id(key);
    let Some(session) = state.sessions.get(found.session) else { return };
    let sealed_by = session.encrypts(found.tree_id).then_some(found.session);
    let opened_on = session.channel(found.connection);
    let carrier = opened_on.or_else(|| session.channels.first());
    let Some(connection) = carrier.map(|channel| channel.connection) else { return };
    // A break from level II is not acknowledged.
    if found.cache != CacheGrant::Oplock(OplockLevel::LevelII) {
        state.leases.told(Breaking::Oplock(volume, open), connection, BreakStep::Oplock(to));
    }
    let level = if to == OplockLevel::LevelII { OPLOCK_LEVEL_II } else { OPLOCK_LEVEL_NONE };
    let mut body = Vec::new();
    body.put(&OplockBreakBody { oplock_level: level, file_id, ..Default::default() });
    let session = found.session;
    state.counters.oplock_breaks += 1;
    send_unasked(state, connection, (Some(session), body), sealed_by);
}

/// Sends the break of a lease to its client (MS-SMB2 3.3.4.7).
pub(crate) fn send_lease_break<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    lease: LeaseName,
    step: LeaseStep,
) {
    let encrypt = state.leases.is_encrypted(lease);
    let LeaseStep { from, to, acknowledge, epoch } = step;
    let Some((connection, session)) = lease_carrier(state, lease, encrypt) else {
        if acknowledge {
            state.leases.owe(lease, BreakStep::Lease { from, to, epoch });
        }
        return;
    };
    let sealed_by = encrypt.then_some(session);
    if acknowledge {
        state.leases.told(Breaking::Lease(lease), connection, BreakStep::Lease { from, to, epoch });
    }
    let mut body = Vec::new();
    body.put(&LeaseBreakNotificationBody {
        new_epoch: epoch.into(),
        flags: if acknowledge { LEASE_BREAK_ACK_REQUIRED } else { 0 }.into(),
        lease_key: lease.key,
        current_lease_state: from.bits().into(),
        new_lease_state: to.bits().into(),
        ..Default::default()
    });
    state.counters.lease_breaks += 1;
    send_unasked(state, connection, (None, body), sealed_by);
}

/// Finds the connection that carries a lease's break, and the session on it that has the lease. Any
/// client can name any ClientGuid, so only sessions that have opens under the lease count. The break
/// goes to the oldest of their connections, as in Windows, even if another one asked for the lease.
fn lease_carrier<B: Backend, D: Directory>(
    state: &State<B, D>,
    lease: LeaseName,
    encrypt: bool,
) -> Option<(ConnectionId, SessionKey)> {
    let holders = state.leases.sessions_of(lease).filter_map(|key| Some((key, state.sessions.get(key)?)));
    let able = holders.filter(|(_, session)| {
        session.state == SessionState::Valid && (!encrypt || session.sealing.is_some())
    });
    let channels = able.flat_map(|(key, session)| session.channels.iter().map(move |channel| (channel, key)));
    let open = channels.filter_map(|(channel, key)| {
        let found = state.connections.get(channel.connection).filter(|found| !found.closing)?;
        Some((found.number, channel.connection, key))
    });
    open.min_by_key(|(number, ..)| *number).map(|(_, connection, session)| (connection, session))
}

/// Sends the breaks again that a lost connection carried and that are not acknowledged, if their holders can still be reached.
pub(crate) fn tell_again<B: Backend, D: Directory>(state: &mut State<B, D>, connection: ConnectionId) {
    for (breaking, step) in state.leases.take_told_over(connection) {
        tell(state, breaking, step);
    }
}

/// Sends a break that its holder has to acknowledge.
pub(crate) fn tell<B: Backend, D: Directory>(state: &mut State<B, D>, breaking: Breaking, step: BreakStep) {
    match (breaking, step) {
        (Breaking::Oplock(volume, open), BreakStep::Oplock(to)) => {
            send_oplock_break(state, volume, open, to);
        }
        (Breaking::Lease(lease), BreakStep::Lease { from, to, epoch }) => {
            send_lease_break(state, lease, LeaseStep { from, to, acknowledge: true, epoch });
        }
        (Breaking::Oplock(..), BreakStep::Lease { .. }) | (Breaking::Lease(_), BreakStep::Oplock(_)) => {
            debug_assert!(false, "an oplock breaks to a level, a lease to a state");
        }
    }
}

/// Sends a notification. That of an oplock names the session of its open (MS-SMB2 3.3.4.6), that of a lease none (3.3.4.7).
fn send_unasked<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    (session, body): (Option<SessionKey>, Vec<u8>),
    sealed_by: Option<SessionKey>,
) {
    let mut header = Header::new(Command::OplockBreak);
    header.session_id = session.map_or(0, SessionKey::get).into();
    header.flags = HeaderFlags::SERVER_TO_REDIR.bits().into();
    header.message_id = U64::MAX_VALUE;
    let response = Response::unsigned(header, Body::Bytes(body));
    send::send(state, connection, &mut [response], sealed_by);
}
