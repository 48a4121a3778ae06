//! Changes of the record for disks that went back in time.

use super::membership::{Draft, Facts, Membership};
use super::pending_changes::Change;
use super::rollback::Fate;
use records::StaleDisk;
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch};

impl Membership {
    /// Notes that the disk went back in time, and has these chunks. Returns whether this is new.
    pub fn note_gone_back(
        &mut self,
        disk: DiskId,
        promised: Epoch,
        chunks: impl IntoIterator<Item = ChunkIndex>,
    ) -> bool {
        let is_news = self.gone_back.note(disk, promised, chunks);
        if is_news {
            self.want(Change::Rewind(disk));
        }
        is_news
    }

    /// Notes that an administrator accepts these disks as they are.
    pub fn accept_images(&mut self, disks: &[DiskId]) {
        let again = self.gone_back.accept(disks);
        self.pending.extend(again.into_iter().map(Change::Rewind));
    }

    /// Decides anew on disks that are held, since others may have their data by now.
    pub(super) fn reconsider_held(&mut self) {
        let again = self.gone_back.reconsider();
        self.pending.extend(again.into_iter().map(Change::Rewind));
    }

    /// Expels disks that went back in time, and counts all their data as missed. Returns these and
    /// `expelled`.
    pub(super) fn draft_rewound(
        &mut self,
        draft: &mut Draft,
        mut expelled: BTreeSet<DiskId>,
        facts: &Facts<'_>,
    ) -> BTreeSet<DiskId> {
        let next = &mut draft.next;
        // A held disk that turns out to be dispensable has missed as much as any other.
        let waiting = expelled.iter().copied().filter(|disk| self.gone_back.is_waiting(*disk));
        draft.changes.extend(waiting.map(Change::Rewind));
        for disk in draft.changes.disks(Change::Rewind).collect::<Vec<_>>() {
            if next.in_sync.contains(&disk) {
                let record = (!facts.context.serving()).then_some(&self.record);
                match self.gone_back.fate(disk, &next.in_sync, expelled.len(), record, facts.chunks) {
                    Fate::PutOut => {}
                    Fate::Keep { marked }
                        if !draft.changes.has(Change::Keep) && !draft.changes.has(Change::Join) =>
                    {
                        draft.changes.remove(Change::Rewind(disk));
                        draft.changes.keep(disk, marked);
                        continue;
                    }
                    fate => {
                        draft.changes.remove(Change::Rewind(disk));
                        // By then chunks kept from another disk count, and may make this disk
                        // dispensable.
                        let again = matches!(fate, Fate::Keep { .. }).then_some(Change::Rewind(disk));
                        self.pending.extend(again);
                        continue;
                    }
                }
                next.in_sync.retain(|member| *member != disk);
                next.stale.push(StaleDisk { disk, since: Epoch(0), promised: Epoch(0) });
                expelled.insert(disk);
            }
            for stale in next.stale.iter_mut().filter(|stale| stale.disk == disk) {
                (stale.since, stale.promised) = (Epoch(0), Epoch(0));
            }
        }
        // Done for a refused proposal too: stale disks may have writes, of any time, that a kept
        // disk lacks.
        if draft.changes.disks(Change::Keep).any(|disk| self.gone_back.is_waiting(disk)) {
            self.pending
                .take_back(draft.changes.take_disks(Change::Join).into_iter().map(Change::Join).collect());
            next.stale.iter_mut().for_each(|stale| stale.since = Epoch(0));
        }
        expelled
    }
}
