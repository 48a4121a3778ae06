//! Counting all files of a volume beside their changes, some at a time: when quotas are turned on, and to check the counts.

use std::collections::BTreeMap;

use ::types::Sid;

use super::Quotas;
use crate::fs::meta::record::Inode;
use crate::fs::meta::{Key, Store, Transaction, key};
use crate::fs::types::{FileId, FsError};

/// Files examined, or users stored, in one step.
const FILES_AT_ONCE: usize = 64;
const USERS_AT_ONCE: usize = 256;
/// Users with wrong counts that are named.
const WRONG_MAX: usize = 20;

/// Findings of a check of the counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaFindings {
    /// Users with the bytes that were counted for them and those that their files have: the first twenty.
    pub wrong: Vec<(Sid, u128, u128)>,
    /// Number of users with wrong counts, those beyond `wrong` included.
    pub wrong_count: u64,
    /// Pages of the tree and records that could not be read: their files were not examined.
    pub pages_unreadable: u64,
}

#[derive(Debug)]
enum Purpose {
    /// The sums become the counts.
    First,
    /// The sums are compared with the counts.
    Check,
}

#[derive(Debug)]
enum Stage {
    Files,
    /// The sums are the counts; users from this one on are still to be stored.
    Storing(Option<Sid>),
    Compared(QuotaFindings),
}

/// A count under way.
///
/// Invariant: `sums` are the charges of all files below `next`, as the store shows them.
#[derive(Debug)]
pub(super) struct Counting {
    purpose: Purpose,
    stage: Stage,
    next: FileId,
    sums: BTreeMap<Sid, u128>,
    pages_unreadable: u64,
    /// Metadata is being loaded.
    pub waits: bool,
}

impl Counting {
    pub fn first() -> Self {
        Self::new(Purpose::First)
    }

    fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            stage: Stage::Files,
            next: FileId(0),
            sums: BTreeMap::new(),
            pages_unreadable: 0,
            waits: false,
        }
    }

    pub fn is_storing(&self) -> bool {
        matches!(self.stage, Stage::Storing(_))
    }

    /// Adds the charge of a file that was already counted.
    pub fn charge(&mut self, file: FileId, owner: &Sid, blocks: i128) {
        if matches!(self.stage, Stage::Files) && file < self.next {
            let sum = self.sums.entry(owner.clone()).or_default();
            *sum = sum.checked_add_signed(blocks).unwrap_or(0);
        }
    }
}

impl Quotas {
    /// Begins to compare the counts with the files; nothing if they are not kept or being made.
    pub fn begin_check(&mut self) {
        // Findings of an abandoned check are of no use to the next.
        let is_free = matches!(&self.counting, None | Some(Counting { stage: Stage::Compared(_), .. }));
        if self.is_on() && self.settings.counted && is_free {
            self.counting = Some(Counting::new(Purpose::Check));
        }
    }

    pub fn is_checking(&self) -> bool {
        matches!(&self.counting, Some(Counting { purpose: Purpose::Check, .. }))
    }

    /// Restarts the counting, as when quotas were turned on.
    pub fn begin_again(&mut self, txn: &mut Transaction) {
        if self.is_on() {
            self.settings.counted = false;
            txn.put(key::quota_settings(), self.settings.encode());
            self.counting = Some(Counting::first());
        }
    }

    /// Takes the findings of a check, if it is done.
    pub fn take_findings(&mut self) -> Option<QuotaFindings> {
        match &self.counting {
            Some(Counting { stage: Stage::Compared(_), .. }) => {}
            _ => return None,
        }
        match self.counting.take() {
            Some(Counting { stage: Stage::Compared(findings), .. }) => Some(findings),
            _ => None,
        }
    }

    /// Waits until the next poll, for metadata or until changes are accepted.
    pub fn wait(&mut self) {
        if let Some(counting) = &mut self.counting {
            counting.waits = true;
        }
    }

    /// Continues after metadata has come.
    pub fn wake(&mut self) {
        if let Some(counting) = &mut self.counting {
            counting.waits = false;
        }
    }

    /// Counts more files; the caller records the transaction immediately. Damage that cannot be skipped
    /// ends the counting until the next opening: then no limit holds, and files are still served.
    pub fn step(&mut self, store: &mut Store) -> Transaction {
        let mut txn = Transaction::new();
        let Some(mut counting) = self.counting.take() else { return txn };
        let result = match &counting.stage {
            Stage::Files => self.count_files(&mut counting, store),
            Stage::Storing(from) => {
                let from = from.clone();
                counting.stage = self.store_users(&mut txn, from.as_ref());
                if matches!(counting.stage, Stage::Files) {
                    return txn;
                }
                Ok(())
            }
            // The caller of the check has not fetched the findings yet.
            Stage::Compared(_) => {
                counting.waits = true;
                Ok(())
            }
        };
        match result {
            Ok(()) => self.counting = Some(counting),
            Err(FsError::Miss) => self.counting = Some(Counting { waits: true, ..counting }),
            Err(_) => {}
        }
        txn
    }

    fn count_files(&mut self, counting: &mut Counting, store: &mut Store) -> Result<(), FsError> {
        let end = key::file_first(FileId(u64::MAX));
        for _ in 0..FILES_AT_ONCE {
            let from = key::file_first(counting.next);
            match self.count_file(counting, store, &from, &end) {
                Ok(true) => {}
                Ok(false) => {
                    self.end_files(counting);
                    return Ok(());
                }
                Err(FsError::Corrupt { .. }) => {
                    if !pass_by(counting, store, &from, &end)? {
                        self.end_files(counting);
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts the next file. Returns whether there was one.
    fn count_file(
        &mut self,
        counting: &mut Counting,
        store: &mut Store,
        from: &Key,
        end: &Key,
    ) -> Result<bool, FsError> {
        let txn = Transaction::new();
        let Some((found, value)) = store.next(&txn, from, end)? else { return Ok(false) };
        let file = key::parse_number(&found).map(FileId).ok_or(FsError::damaged("file"))?;
        // Keys without an inode are those of a file being reclaimed.
        if let key::Kind::Inode(file) = key::kind(&found) {
            let inode = Inode::decode(&value).ok_or(FsError::damaged("inode"))?;
            let blocks = self.charge_of_file(store, &txn, file, &inode)?;
            if let Some(owner) = self.owner(store, inode.security)?
                && blocks > 0
            {
                *counting.sums.entry(owner).or_default() += u128::from(blocks);
            }
        }
        counting.next = FileId(file.0 + 1);
        Ok(true)
    }

    fn end_files(&mut self, counting: &mut Counting) {
        let sums = std::mem::take(&mut counting.sums);
        match counting.purpose {
            Purpose::First => {
                self.users.values_mut().for_each(|user| user.record.used_blocks = 0);
                for (owner, used) in sums {
                    self.users.entry(owner).or_default().record.used_blocks = used;
                }
                counting.stage = Stage::Storing(None);
            }
            Purpose::Check => {
                let mut findings =
                    QuotaFindings { pages_unreadable: counting.pages_unreadable, ..Default::default() };
                let mut compare = |owner: &Sid, counted: u128, is: u128| {
                    if counted != is {
                        findings.wrong_count += 1;
                        if findings.wrong.len() < WRONG_MAX {
                            findings.wrong.push((owner.clone(), counted, is));
                        }
                    }
                };
                for (owner, user) in &self.users {
                    compare(owner, user.record.used_blocks, sums.get(owner).copied().unwrap_or(0));
                }
                for (owner, is) in sums.iter().filter(|(owner, _)| !self.users.contains_key(*owner)) {
                    compare(owner, 0, *is);
                }
                counting.stage = Stage::Compared(findings);
            }
        }
    }

    /// Stores the counts of some users. After the last, all counts are known.
    fn store_users(&mut self, txn: &mut Transaction, from: Option<&Sid>) -> Stage {
        use std::ops::Bound;
        let start = from.map_or(Bound::Unbounded, Bound::Included);
        let mut users = self.users.range::<Sid, _>((start, Bound::Unbounded));
        for (sid, user) in users.by_ref().take(USERS_AT_ONCE) {
            txn.put(key::quota_user(sid), user.record.encode());
        }
        if let Some((next, _)) = users.next() {
            return Stage::Storing(Some(next.clone()));
        }
        self.settings.counted = true;
        txn.put(key::quota_settings(), self.settings.encode());
        Stage::Files
    }
}

/// Skips a page of the tree that cannot be read; returns whether anything is behind it.
fn pass_by(counting: &mut Counting, store: &mut Store, from: &Key, end: &Key) -> Result<bool, FsError> {
    let (behind, damaged) = store.tree.behind_page_of(from)?;
    counting.pages_unreadable += 1;
    // A damaged record in an intact page: only its file is left out.
    if !damaged {
        counting.next = FileId(counting.next.0 + 1);
        return Ok(true);
    }
    let behind = behind.filter(|behind| behind[..] < end[..]);
    let next = behind.and_then(|behind| key::parse_number(&behind)).map(FileId);
    match next {
        Some(next) => counting.next = FileId(next.0.max(counting.next.0 + 1)),
        None => return Ok(false),
    }
    Ok(true)
}
