//! Closes connections of clients that would take a passing state for a final error.
//!
//! A client with a persistent handle retries over another connection, here or at another server, until
//! it is answered; it passes an error on to its application. So a withdrawn volume, a stopping server
//! and storage that is unavailable for long do not answer on such a handle: the connection closes,
//! after its queued messages are sent.

use super::State;
use super::connections::ConnectionId;
use super::keys::{OpenKey, SessionKey, VolumeSlot};
use super::tree::Target;
use crate::directory::Directory;
use types::NtStatus;
use volume::backend::Backend;

/// Whether an error means only that the volume cannot answer now.
pub(crate) fn is_passing(status: NtStatus) -> bool {
    matches!(status, NtStatus::DEVICE_NOT_READY | NtStatus::VOLUME_DISMOUNTED)
}

impl<B: Backend, D: Directory> State<B, D> {
    /// Whether a request is not to be answered with an error that passes: it is on a persistent open, or may be about to make one.
    pub fn is_lasting(&self, open: Option<OpenKey>, session: Option<SessionKey>, tree_id: u32) -> bool {
        match open {
            Some(open) => self.opens.get(open).is_ok_and(|open| open.is_persistent),
            None => {
                let session = session.and_then(|session| self.sessions.get(session));
                let tree = session.and_then(|session| session.tree(tree_id));
                tree.is_some_and(|tree| tree.options().continuously_available)
            }
        }
    }

    /// Closes all connections of the session: its client reconnects for its opens.
    pub fn part_from(&mut self, session: SessionKey) {
        let channels = self.sessions.get(session).map(|session| &session.channels[..]).unwrap_or_default();
        channels.iter().for_each(|channel| self.connections.close(channel.connection));
    }

    /// Closes the connections of all sessions that hold persistent opens of a volume.
    pub fn part_from_holders(&mut self, volume: VolumeSlot) {
        let holds = |open: &super::opens::Open| {
            open.is_persistent && open.volume_open().is_some_and(|(slot, _)| slot == volume)
        };
        let mut sessions: Vec<SessionKey> =
            self.opens.iter().filter(|(_, open)| holds(open)).map(|(_, open)| open.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.into_iter().for_each(|session| self.part_from(session));
    }

    /// Whether the connection stays while the server stops: it leads to `kept`, the volume that others need
    /// until they have stopped, too.
    pub fn leads_to(&self, connection: ConnectionId, kept: Option<VolumeSlot>) -> bool {
        let Some(kept) = kept else { return false };
        let leads = |session: &SessionKey| {
            let is_kept = |target: &Target| matches!(target, Target::Disk { volume, .. } if *volume == kept);
            let found = self.sessions.get(*session);
            found.is_some_and(|session| session.trees.iter().any(|(_, tree)| is_kept(&tree.target)))
        };
        self.connections.get(connection).is_some_and(|found| found.sessions.iter().any(leads))
    }
}
