//! What the record says of disks that went back in time.

use super::going_back::Fate;
use super::membership::{Draft, Facts, Membership};
use records::StaleDisk;
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch};

impl Membership {
    /// Notes that the disk went back in time, and has these chunks; whether that is news.
    pub fn note_gone_back(
        &mut self,
        disk: DiskId,
        promised: Epoch,
        chunks: impl IntoIterator<Item = ChunkIndex>,
    ) -> bool {
        let is_news = self.gone_back.note(disk, promised, chunks);
        if is_news {
            self.wants.join.remove(&disk);
            self.want_rewind(disk);
        }
        is_news
    }

    /// Notes that an administrator accepts these disks as they are.
    pub fn accept_images(&mut self, disks: &[DiskId]) {
        let again = self.gone_back.accept(disks);
        self.wants.rewind.extend(again);
    }

    /// Whether nobody expects that the disk comes back with what it had.
    pub fn is_lost(&self, disk: DiskId) -> bool {
        self.retired.contains(&disk) || self.given_up.contains(&disk)
    }

    /// Decides anew on disks that are held: others may have what they have by now.
    pub(super) fn reconsider_held(&mut self) {
        let again = self.gone_back.reconsider();
        self.wants.rewind.extend(again);
    }

    /// Puts out disks that went back in time, and has all that they missed counted from the beginning. Returns these and `expelled`.
    pub(super) fn draft_rewound(
        &mut self,
        draft: &mut Draft,
        mut expelled: BTreeSet<DiskId>,
        facts: &Facts<'_>,
    ) -> BTreeSet<DiskId> {
        let next = &mut draft.next;
        // One that is held and can be done without after all has missed as much as any other.
        draft.wants.rewind.extend(expelled.iter().filter(|disk| self.gone_back.is_waiting(**disk)));
        for disk in draft.wants.rewind.clone() {
            if next.in_sync.contains(&disk) {
                let record = (!facts.setting.serving()).then_some(&self.record);
                match self.gone_back.fate(disk, &next.in_sync, expelled.len(), record, facts.chunks) {
                    Fate::PutOut => {}
                    Fate::Keep { marked } if draft.wants.keep.is_empty() && draft.wants.join.is_empty() => {
                        draft.wants.rewind.remove(&disk);
                        draft.wants.keep(disk, marked);
                        continue;
                    }
                    fate => {
                        draft.wants.rewind.remove(&disk);
                        // What is kept of another disk counts by then: this one may not be needed for it.
                        self.wants.rewind.extend(matches!(fate, Fate::Keep { .. }).then_some(disk));
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
        // Also of a proposal that was refused: stale disks may have writes that a kept one lacks, of any time.
        if draft.wants.keep.iter().any(|disk| self.gone_back.is_waiting(*disk)) {
            self.wants.join.append(&mut draft.wants.join);
            next.stale.iter_mut().for_each(|stale| stale.since = Epoch(0));
        }
        expelled
    }
}
