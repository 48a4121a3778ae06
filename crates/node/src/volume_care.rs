//! How volumes are made, grow and go.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::pools::{PoolSpace, Pools};
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volume_opening::VolumeOpener;
use crate::volumes::Volumes;
use cluster::{
    DeletedVolume, Provisioning, Record, Resiliency, StateError, Transaction, Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::rc::Rc;
use std::time::Duration;
use types::size::show_size;
use types::{DiskId, PoolId, VolumeId};
use uuid::Uuid;
use volume::fs::Format;

/// How long a new size may take to be recorded.
const RESIZE_PATIENCE: Duration = Duration::from_secs(30);

/// A volume that is to be made.
#[derive(Debug, Clone)]
pub struct NewVolume {
    pub name: String,
    pub pool: PoolId,
    pub resiliency: Resiliency,
    pub provisioning: Provisioning,
    /// Rounded up to whole slabs.
    pub size_bytes: u64,
}

/// Makes, resizes and deletes volumes.
#[derive(Clone)]
pub struct VolumeCare {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) opener: VolumeOpener,
}

impl VolumeCare {
    fn space_of(&self, volume: VolumeId) -> Done<PoolSpace> {
        let space = self.volumes.pool_of(volume).ok().and_then(|pool| self.pools.space(pool));
        space.ok_or_else(|| Error::not_found("volume", volume))
    }

    /// Makes a virtual disk with an empty file layer on it, and serves it.
    ///
    /// # Errors
    /// Why it was not made; see [`ErrorKind`].
    pub async fn create(&self, new: NewVolume) -> Done<VolumeId> {
        let slab_bytes = self.pools.slab_bytes(new.pool).ok_or_else(|| Error::not_found("pool", new.pool))?;
        let slab_bytes = slab_bytes.max(1);
        let disks = self.members(new.pool, new.resiliency)?;
        let size_bytes = whole_slabs(new.size_bytes, slab_bytes)?;
        if new.provisioning == Provisioning::Fixed {
            self.pools.promise(new.pool, size_bytes / slab_bytes, new.resiliency)?;
        }
        let id = VolumeId(Uuid::new_v4());
        let record = VolumeRecord::new(
            id,
            new.pool,
            new.name.clone(),
            new.resiliency,
            size_bytes,
            new.provisioning,
            disks,
            self.tasks.unix_seconds(),
        );
        self.record(record.clone()).await?;
        let format = self.format(id, new.name)?;
        self.opener.open(record, Some(format));
        self.opener.opened(id).await?;
        Ok(id)
    }

    /// Lists the disks of a pool that a new volume may use.
    fn members(&self, pool: PoolId, resiliency: Resiliency) -> Done<Vec<DiskId>> {
        let slots = self.disks.slots();
        let own = slots.values().map(|slot| &slot.record).filter(|record| record.pool == pool);
        let disks: Vec<DiskId> = own
            .filter(|record| record.state != cluster::DiskState::Retired)
            .map(|record| record.id)
            .collect();
        let copies = resiliency.copies();
        if disks.len() < usize::from(copies) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{copies} copies need {copies} disks; the pool has {}", disks.len()),
            ));
        }
        Ok(disks)
    }

    fn format(&self, id: VolumeId, label: String) -> Done<Format> {
        let mut serial = [0; 4];
        getrandom::fill(&mut serial).map_err(|why| Error::io(format!("no random bytes: {why}")))?;
        let root_security = volume::security::volume_root()
            .build()
            .map_err(|status| Error::io(format!("the root's security descriptor: {status:?}")))?;
        Ok(Format {
            id: id.to_bytes(),
            label,
            serial: u32::from_le_bytes(serial),
            now: self.tasks.wall_clock(),
            root_security,
        })
    }

    /// Checks that no other volume has the name, and writes the record.
    async fn record(&self, record: VolumeRecord) -> Done<()> {
        let name = record.name.clone();
        let written = self.state.change(move |state| {
            let taken = state.list::<VolumeRecord>()?.iter().any(|other| other.value.name == record.name);
            if taken { Err(StateError::Conflict) } else { state.write(&record, 0) }
        });
        written.await.map(|_| ()).map_err(|why| match why.kind {
            ErrorKind::Conflict => {
                Error::new(ErrorKind::Conflict, format!("a volume named {name} exists already"))
            }
            _ => why,
        })
    }

    /// Grows the volume to `size_bytes`, rounded up to whole slabs.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if it would shrink; `NoSpace`; `Unavailable` if the new size is not recorded in time.
    pub async fn resize(&self, volume: VolumeId, size_bytes: u64) -> Done<()> {
        let space = self.space_of(volume)?;
        let record = space.record(volume).ok_or_else(|| Error::not_found("volume", volume))?;
        if size_bytes < record.size_bytes {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("volume {} has {} and can only grow", record.name, show_size(record.size_bytes)),
            ));
        }
        let slab_bytes = self.pools.slab_bytes(record.pool).unwrap_or(1).max(1);
        let size_bytes = size_bytes
            .checked_next_multiple_of(slab_bytes)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "the size is too large"))?;
        if record.provisioning == Provisioning::Fixed {
            let more = (size_bytes - record.size_bytes) / slab_bytes;
            self.pools.promise(record.pool, more, record.resiliency)?;
        }
        space.with_volume(volume, |coordinator| coordinator.resize(size_bytes));
        let patience = self.tasks.now().after(RESIZE_PATIENCE);
        let is_done = || space.record(volume).is_some_and(|record| record.size_bytes >= size_bytes);
        match self.tasks.until_late(patience, || is_done().then_some(())).await {
            Some(()) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the new size of volume {} is not recorded yet; see `cenote health`", record.name),
            )),
        }
    }

    /// Deletes the volume; its slabs are given back afterwards.
    ///
    /// The volume's record goes first, and in the same commit a note that its slabs are to be given back: after a crash in between
    /// the next start goes on with that.
    ///
    /// # Errors
    /// `NotFound`, or the state could not be written.
    pub async fn delete(&self, volume: VolumeId) -> Done<()> {
        let (space, pool) = (self.space_of(volume)?, self.volumes.pool_of(volume)?);
        self.volumes.begin_deletion(volume, self.tasks.now());
        space.close_volume(volume);
        until(|| match space.phase(volume) {
            Some(Phase::Opening | Phase::Serving | Phase::Closing) => None,
            _ => Some(()),
        })
        .await;
        space.forget_volume(volume);
        let deleted = self.state.change(move |state| {
            let key = VolumeRecord::key_of(&volume.to_string());
            let note = DeletedVolume { id: volume, pool };
            state.commit(Transaction::default().delete(key).put(note.key(), note.encode()))
        });
        if let Err(error) = deleted.await {
            self.volumes.deletion_failed(volume, format!("it could not be deleted: {error}"));
            return Err(error);
        }
        self.volumes.forget(volume);
        self.give_slabs_back(volume, pool);
        Ok(())
    }

    /// Begins to give back the slabs of a volume that was deleted; takes the note away once no disk of the pool has any.
    pub(crate) fn give_slabs_back(&self, volume: VolumeId, pool: PoolId) {
        let care = self.clone();
        self.tasks.spawn(async move {
            until(|| care.disks.free_chunks(volume, pool, care.tasks.now()).then_some(())).await;
            let removed = care.state.change(move |state| {
                state.commit(Transaction::default().delete(DeletedVolume::key_of(&volume.to_string())))
            });
            if let Err(error) = removed.await {
                tracing::warn!(%volume, %error, "the note of a deleted volume stays until the next start");
            }
        });
    }
}

/// Rounds the size of a new volume up.
fn whole_slabs(size_bytes: u64, slab_bytes: u64) -> Done<u64> {
    if size_bytes == 0 {
        return Err(Error::new(ErrorKind::Invalid, "a volume has a size"));
    }
    let size_bytes = size_bytes.checked_next_multiple_of(slab_bytes);
    let size_bytes = size_bytes.ok_or_else(|| Error::new(ErrorKind::Invalid, "the size is too large"))?;
    let least_bytes = u64::from(volume::fs::CHUNKS_MIN) * slab_bytes;
    if size_bytes < least_bytes {
        let least = show_size(least_bytes);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the smallest volume of this pool has {least}: make it larger"),
        ));
    }
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rounded_up_to_slabs_and_refused_if_it_is_none_too_small_or_too_large() {
        let least = u64::from(volume::fs::CHUNKS_MIN);
        assert_eq!(whole_slabs(least * 100 + 1, 100).expect("a size"), least * 100 + 100);
        for refused in [0, 1, u64::MAX] {
            assert_eq!(whole_slabs(refused, 100).expect_err("no size").kind, ErrorKind::Invalid);
        }
    }
}
