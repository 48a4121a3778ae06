//! The volumes that are served.

use super::keys::{RequestKey, VolumeSlot};
use types::{Monotonic, NtStatus, VolumeId};
use volume::backend::{Backend, OpenId, Operation, OperationId, SessionId};

/// Operations whose answer is ignored.
pub(crate) const UNATTENDED: OperationId = OperationId::UNATTENDED;

struct Volume<B> {
    id: VolumeId,
    /// `None` after the volume was removed.
    backend: Option<B>,
}

/// The volumes by their slots. Invariant: a slot belongs to one volume for good, so that an open of a
/// removed volume is never taken for one on another volume.
pub(crate) struct Volumes<B>(Vec<Volume<B>>);

impl<B: Backend> Volumes<B> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Starts serving a volume. One that returns gets its old slot.
    pub fn add(&mut self, id: VolumeId, backend: B) {
        match self.0.iter_mut().find(|volume| volume.id == id && volume.backend.is_none()) {
            Some(slot) => slot.backend = Some(backend),
            None => self.0.push(Volume { id, backend: Some(backend) }),
        }
    }

    /// Stops serving a volume.
    pub fn remove(&mut self, id: VolumeId) -> Option<(VolumeSlot, B)> {
        let slot = self.slot_of(id)?;
        Some((slot, self.0[slot.0].backend.take()?))
    }

    /// The slot of a volume that is served.
    pub fn slot_of(&self, id: VolumeId) -> Option<VolumeSlot> {
        let at = self.0.iter().position(|volume| volume.id == id && volume.backend.is_some());
        at.map(VolumeSlot)
    }

    pub fn by_id(&self, id: VolumeId) -> Option<&B> {
        self.0.iter().find(|volume| volume.id == id)?.backend.as_ref()
    }

    pub fn by_id_mut(&mut self, id: VolumeId) -> Option<&mut B> {
        self.0.iter_mut().find(|volume| volume.id == id)?.backend.as_mut()
    }

    pub fn get(&self, slot: VolumeSlot) -> Option<&B> {
        self.0.get(slot.0)?.backend.as_ref()
    }

    pub fn get_mut(&mut self, slot: VolumeSlot) -> Option<&mut B> {
        self.0.get_mut(slot.0)?.backend.as_mut()
    }

    /// The volume that has or had the slot.
    pub fn id_of(&self, slot: VolumeSlot) -> VolumeId {
        self.0[slot.0].id
    }

    /// Returns a volume's number of 64 bits for FileIdInformation and the on-disk id of CREATE.
    pub fn number_of(&self, slot: VolumeSlot) -> u64 {
        let id = self.id_of(slot).to_bytes();
        id[..8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// All slots, also those of volumes that were removed.
    pub fn slots(&self) -> impl Iterator<Item = VolumeSlot> + use<B> {
        (0..self.0.len()).map(VolumeSlot)
    }

    pub fn iter(&self) -> impl Iterator<Item = &B> {
        self.0.iter().filter_map(|volume| volume.backend.as_ref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (VolumeId, &mut B)> {
        self.0.iter_mut().filter_map(|volume| Some((volume.id, volume.backend.as_mut()?)))
    }

    /// Asks a volume to stop working on a request; the volume still answers it.
    pub fn cancel(&mut self, slot: VolumeSlot, request: RequestKey) {
        if let Some(backend) = self.get_mut(slot) {
            backend.cancel(request.into());
        }
    }

    /// Closes an open whose client gets no answer.
    pub fn close(&mut self, (slot, open): (VolumeSlot, OpenId), now: Monotonic) {
        if let Some(backend) = self.get_mut(slot) {
            backend.submit(UNATTENDED, Operation::Close { open, query: false }, now);
        }
    }

    /// Takes an open from a session whose client gets no answer, but may reconnect for it.
    pub fn abandon(&mut self, (slot, open): (VolumeSlot, OpenId), session: SessionId, now: Monotonic) {
        if let Some(backend) = self.get_mut(slot) {
            backend.submit(UNATTENDED, Operation::Abandon(open, session), now);
        }
    }

    /// Reports a session's end to all volumes.
    pub fn end_session(&mut self, session: SessionId, now: Monotonic) {
        for (_, backend) in self.iter_mut() {
            backend.submit(UNATTENDED, Operation::EndSession { session }, now);
        }
    }

    /// Does the due work of all volumes.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        for (_, backend) in self.iter_mut() {
            if backend.next_timeout().is_some_and(|at| at <= now) {
                backend.handle_timeout(now);
            }
        }
    }
}

/// The status of a request whose volume has been removed.
pub(crate) const VOLUME_GONE: NtStatus = NtStatus::NETWORK_NAME_DELETED;
