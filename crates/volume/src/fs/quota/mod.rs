//! Quotas by owner: each user's usage of the volume, and its limit.
//!
//! **Charges.** A file's owner is charged for each of its streams: the blocks up to the stream's end,
//! holes included, or the allocated ones if they are more, and at least one. So names are bounded too:
//! an empty file, a directory, and each further name of a file cost a block. Except for further names,
//! the charge follows from a stream's record alone, as NTFS charges sparse files by their nominal size.
//! Blocks that files share are charged to each owner. Each whole block of a security descriptor, of
//! extended attributes and of reparse data is charged to the owner of every file that has them,
//! directories included; less than a block is free. A deleted file is charged until its space is freed.
//!
//! **Why the counts are exact.** A transaction that changes a size or an owner, or deletes, states its
//! charges, and [`Quotas::commit`] puts the new counts into the same transaction: both are durable, or
//! neither is. Growth that is only in memory is *promised*: it counts against the limit immediately,
//! and becomes a charge with the transaction that publishes it.
//!
//! **First counting** ([`counting`]). It passes over all files in the order of their numbers. Changes
//! of files behind its position count; those of files ahead of it do not, since it will meet them.
//! After a crash it starts over. Until it is done no limit holds.

mod counting;
mod record;
mod words;

use std::collections::{BTreeMap, HashMap};

use ::types::{BLOCK_BYTES, FileTime, Sid};

use self::counting::Counting;
pub use self::counting::QuotaFindings;
use self::record::UserRecord;
pub use self::record::{QuotaLimits, QuotaMode, QuotaSettings};
pub use self::words::{QuotaChange, QuotaQuery};
use super::agenda::Agenda;
use super::descriptors::descriptor;
use super::meta::record::{Inode, StreamRecord};
use super::meta::{Charge, Key, Store, Transaction, key};
use super::types::{FileId, FsError, SecurityId, StreamId};
use crate::planted::Planted;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Users that one go reads at opening.
const LOADED_AT_ONCE: usize = 256;

/// Owners of descriptors that are remembered.
const OWNERS_MAX: usize = 4096;

/// Returns the blocks charged for a file's stream by its sizes, or for a directory: at least one, since
/// the name takes up to a quarter of a block, beside its record.
pub fn charge_of(end_of_file: u64, allocated_blocks: u64) -> u64 {
    end_of_file.div_ceil(BLOCK).max(allocated_blocks).max(charge_of_name())
}

/// Blocks that an owner is charged with for a file's unnamed stream and its first name, or for a directory, and one for each further name.
pub fn charge_of_inode(inode: &Inode) -> u64 {
    let further_names = u64::from(inode.link_count.saturating_sub(1));
    charge_of(inode.end_of_file, inode.allocated_blocks) + further_names * charge_of_name()
}

/// Blocks that an owner is charged with for a name.
fn charge_of_name() -> u64 {
    u64::from(!Planted::NamesUncharged.is_planted())
}

/// Bytes of a descriptor, of extended attributes or of a reparse point that are free: together with the longest name they fit into the block
/// that each file is charged with at least.
const METADATA_FREE_BYTES: u64 = BLOCK / 4;

/// Blocks charged for a descriptor, extended attributes or a reparse point: those that they begin, if
/// they are more than the free part.
pub fn charge_of_metadata(len_bytes: u64) -> u64 {
    if len_bytes <= METADATA_FREE_BYTES { 0 } else { len_bytes.div_ceil(BLOCK) }
}

/// Blocks that a file's owner is charged with for a named stream.
pub fn charge_of_stream(record: &StreamRecord) -> u64 {
    charge_of(record.end_of_file, record.allocated_blocks)
}

/// One user's place on the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUser {
    /// Security identifier of the user, by which descriptors name an owner (MS-DTYP 2.4.2).
    pub user: Sid,
    /// Bytes charged to the user, in whole blocks.
    pub used_bytes: u64,
    /// The bounds that hold.
    pub limits: QuotaLimits,
    /// The limits are the user's own, and not the volume's defaults.
    pub is_own: bool,
    /// Time of the last change of the limits.
    pub changed: FileTime,
}

#[derive(Debug, Clone, Copy, Default)]
struct User {
    record: UserRecord,
    /// Growth in memory that is not charged yet.
    promised_blocks: u128,
}

/// Part of a descriptor that concerns charges.
#[derive(Debug, Clone, Default)]
struct Named {
    owner: Option<Sid>,
    /// The blocks of the descriptor itself that are charged.
    blocks: u64,
}

impl Named {
    fn by(descriptor: &[u8]) -> Self {
        Self { owner: owner_of(descriptor), blocks: charge_of_metadata(descriptor.len() as u64) }
    }
}

/// Limits, counts and promises of all users.
///
/// Invariant: while `settings.counted` holds, each user's `used_blocks` is the sum of the charges of the user's files as the store shows
/// them, and is stored with them. The `promised_blocks` of a user are the sum of the user's `promises`.
#[derive(Debug, Default)]
pub struct Quotas {
    settings: QuotaSettings,
    /// The superblock forbids older programs to change the volume: counts can be kept.
    allowed: bool,
    users: BTreeMap<Sid, User>,
    promises: HashMap<StreamId, (Sid, u64)>,
    owners: HashMap<SecurityId, Named>,
    counting: Option<Counting>,
    /// At opening: all users before this key are read.
    loaded: Option<Key>,
}

impl Quotas {
    /// Reads the stored quotas, some users at a time.
    ///
    /// # Errors
    /// `Miss` until all is read; damage of the metadata.
    pub fn load(&mut self, store: &mut Store, agenda: &mut Agenda) -> Result<(), FsError> {
        let result = self.load_some(store, agenda);
        if matches!(result, Err(FsError::Corrupt { .. })) {
            self.users.clear();
        }
        result
    }

    fn load_some(&mut self, store: &mut Store, agenda: &mut Agenda) -> Result<(), FsError> {
        let txn = Transaction::new();
        let Some(value) = store.get(&txn, &key::quota_settings())? else { return Ok(()) };
        let settings = QuotaSettings::decode(&value).ok_or(FsError::damaged("quota settings"))?;
        let end = key::after(&key::quota_users());
        let mut from = self.loaded.clone().unwrap_or_else(key::quota_users);
        for _ in 0..LOADED_AT_ONCE {
            let Some((found, value)) = store.next(&txn, &from, &end)? else {
                self.settings = settings;
                if self.allowed {
                    self.allow();
                }
                return Ok(());
            };
            let user = key::parse_quota_user(&found).ok_or(FsError::damaged("quota user"))?;
            let record = UserRecord::decode(&value).ok_or(FsError::damaged("quota user"))?;
            self.users.insert(user, User { record, promised_blocks: 0 });
            from = found;
            from.push(0);
            self.loaded = Some(from.clone());
        }
        agenda.again = true;
        Err(FsError::Miss)
    }

    pub fn settings(&self) -> &QuotaSettings {
        &self.settings
    }

    /// Whether the superblock has to say that older programs may not change the volume.
    pub fn wants_feature(&self) -> bool {
        self.settings.mode != QuotaMode::Off && !self.allowed
    }

    /// Notes that the superblock forbids older programs. Counting begins if counts are not known.
    pub fn allow(&mut self) {
        self.allowed = true;
        if self.settings.mode != QuotaMode::Off && !self.settings.counted && self.counting.is_none() {
            self.counting = Some(Counting::first());
        }
    }

    /// Whether changes of files have to state their charges.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.allowed && self.settings.mode != QuotaMode::Off
    }

    /// Whether a step of counting can be made without waiting for metadata.
    pub fn wants_step(&self) -> bool {
        self.counting.as_ref().is_some_and(|counting| !counting.waits)
    }

    /// Changes the settings. Counts that were not kept meanwhile are recounted.
    pub fn set_settings(&mut self, txn: &mut Transaction, new: QuotaSettings) {
        let stays_on = self.settings.mode != QuotaMode::Off && new.mode != QuotaMode::Off;
        self.settings = QuotaSettings { counted: stays_on && self.settings.counted, ..new };
        txn.put(key::quota_settings(), self.settings.encode());
        if new.mode == QuotaMode::Off {
            self.counting = None;
            self.promises.clear();
            self.users.values_mut().for_each(|user| user.promised_blocks = 0);
        } else if self.allowed {
            self.allow();
        }
    }

    /// Sets a user's own limits, or takes them away.
    pub fn set_limits(
        &mut self,
        txn: &mut Transaction,
        user: &Sid,
        limits: Option<QuotaLimits>,
        now: FileTime,
    ) {
        let found = self.users.entry(user.clone()).or_default();
        found.record.limits = limits;
        found.record.changed = now;
        if limits.is_none() && found.record.used_blocks == 0 && found.promised_blocks == 0 {
            self.users.remove(user);
            txn.delete(key::quota_user(user));
            return;
        }
        txn.put(key::quota_user(user), found.record.encode());
    }

    /// Describes a user; an unknown one has no usage and the volume's defaults.
    pub fn user(&self, user: &Sid) -> QuotaUser {
        let found = self.users.get(user).copied().unwrap_or_default();
        self.describe(user, &found)
    }

    /// Lists at most `users_max` users behind `after`, in the order of their identifiers.
    pub fn users(&self, after: Option<&Sid>, users_max: usize) -> Vec<QuotaUser> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let users = self.users.range::<Sid, _>((from, Bound::Unbounded));
        users.take(users_max).map(|(sid, user)| self.describe(sid, user)).collect()
    }

    fn describe(&self, sid: &Sid, user: &User) -> QuotaUser {
        let blocks = user.record.used_blocks + user.promised_blocks;
        QuotaUser {
            user: sid.clone(),
            used_bytes: u64::try_from(blocks * u128::from(BLOCK)).unwrap_or(u64::MAX),
            limits: user.record.limits.unwrap_or(self.settings.defaults),
            is_own: user.record.limits.is_some(),
            changed: user.record.changed,
        }
    }

    /// Returns the bytes that a user may still use, and the user's limit; `None`: no limit holds.
    pub fn room(&self, user: &Sid) -> Option<(u64, u64)> {
        let holds = self.is_on() && self.settings.mode == QuotaMode::Enforce && self.settings.counted;
        if !holds || is_exempt(user) {
            return None;
        }
        let user = self.user(user);
        let limit = user.limits.limit_bytes?;
        Some((limit.saturating_sub(user.used_bytes), limit))
    }

    /// # Errors
    /// `QuotaExceeded` if the user may not have this many blocks more.
    fn check_growth(&self, user: &Sid, more_blocks: u64) -> Result<(), FsError> {
        let more = u128::from(more_blocks) * u128::from(BLOCK);
        match self.room(user) {
            Some((room, _)) if more > u128::from(room) => Err(FsError::QuotaExceeded),
            _ => Ok(()),
        }
    }

    /// Finds the owner that a stored descriptor names, and the descriptor's charge.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata.
    fn named(&mut self, store: &mut Store, security: SecurityId) -> Result<Named, FsError> {
        if let Some(named) = self.owners.get(&security) {
            return Ok(named.clone());
        }
        let named = Named::by(&descriptor(store, security)?);
        if self.owners.len() >= OWNERS_MAX {
            self.owners.clear();
        }
        self.owners.insert(security, named.clone());
        Ok(named)
    }

    fn owner(&mut self, store: &mut Store, security: SecurityId) -> Result<Option<Sid>, FsError> {
        self.named(store, security).map(|named| named.owner)
    }

    /// Adds up the charges of a file's owner.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata.
    pub fn charge_of_file(
        &mut self,
        store: &mut Store,
        txn: &Transaction,
        file: FileId,
        inode: &Inode,
    ) -> Result<u64, FsError> {
        let attributes =
            charge_of_metadata(u64::from(inode.extended_attribute_bytes)) + u64::from(inode.reparse_blocks);
        let named = self.named(store, inode.security)?;
        Ok(charge_of_inode(inode) + attributes + named.blocks + named_streams_charge(store, txn, file)?)
    }

    /// Returns the owner and the charge of a new file with this descriptor.
    ///
    /// # Errors
    /// `QuotaExceeded` if the owner may not have that much.
    pub fn charge_of_new(&self, descriptor: &[u8]) -> Result<Option<(Sid, u64)>, FsError> {
        let named = Named::by(descriptor);
        let Some(owner) = named.owner.filter(|_| self.is_on()) else { return Ok(None) };
        let blocks = charge_of(0, 0) + named.blocks;
        self.check_growth(&owner, blocks)?;
        Ok(Some((owner, blocks)))
    }

    /// Has a transaction charge a file's owner for metadata of the file: with `after` blocks in place of
    /// `before`.
    ///
    /// # Errors
    /// `QuotaExceeded` if the owner may not have that much; `Miss`, and damage of the metadata.
    pub fn charge_metadata(
        &mut self,
        store: &mut Store,
        txn: &mut Transaction,
        (file, inode): (FileId, &Inode),
        (before, after): (u64, u64),
    ) -> Result<(), FsError> {
        if self.is_on()
            && after > before
            && let Some(owner) = self.owner(store, inode.security)?
        {
            self.check_growth(&owner, after - before)?;
        }
        self.charge(store, txn, (file, inode.security), (before, after))
    }

    /// Has a transaction charge a file's owner: with `after` blocks in place of `before`.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata.
    pub fn charge(
        &mut self,
        store: &mut Store,
        txn: &mut Transaction,
        (file, security): (FileId, SecurityId),
        (before, after): (u64, u64),
    ) -> Result<(), FsError> {
        if !self.is_on() || before == after {
            return Ok(());
        }
        if let Some(owner) = self.owner(store, security)? {
            txn.charge(Charge { file, owner, blocks: i128::from(after) - i128::from(before) });
        }
        Ok(())
    }

    /// Has a transaction charge a file, with another descriptor, to the owner that this names.
    ///
    /// # Errors
    /// `QuotaExceeded` if that owner may not have that much and is `limited`; `Miss`, and damage of the metadata.
    pub fn change_descriptor(
        &mut self,
        store: &mut Store,
        txn: &mut Transaction,
        (file, inode): (FileId, &Inode),
        descriptor: &[u8],
        limited: bool,
    ) -> Result<(), FsError> {
        if !self.is_on() {
            return Ok(());
        }
        let (old, new) = (self.named(store, inode.security)?, Named::by(descriptor));
        let (old_owner, new_owner) = (old.owner, new.owner);
        if old_owner == new_owner {
            if let Some(owner) = new_owner.filter(|_| limited && new.blocks > old.blocks) {
                self.check_growth(&owner, new.blocks - old.blocks)?;
            }
            return self.charge(store, txn, (file, inode.security), (old.blocks, new.blocks));
        }
        let charged = self.charge_of_file(store, txn, file, inode)?;
        let blocks = charged - old.blocks + new.blocks;
        let promised: Vec<(StreamId, u64)> = self
            .promises
            .iter()
            .filter(|(stream, _)| stream.file == file)
            .map(|(stream, (_, blocks))| (*stream, *blocks))
            .collect();
        let charge = |owner: &Option<Sid>, blocks: i128, txn: &mut Transaction| {
            if let Some(owner) = owner.clone() {
                txn.charge(Charge { file, owner, blocks });
            }
        };
        if let Some(owner) = new_owner.as_ref().filter(|_| limited) {
            let growing: u64 = promised.iter().map(|(_, blocks)| blocks).sum();
            self.check_growth(owner, blocks + growing)?;
        }
        charge(&old_owner, -i128::from(charged), txn);
        charge(&new_owner, i128::from(blocks), txn);
        for (stream, blocks) in promised {
            self.put_promise(stream, None);
            self.put_promise(stream, new_owner.clone().map(|owner| (owner, blocks)));
        }
        Ok(())
    }

    /// Puts the counts that a transaction changes into it.
    pub fn commit(&mut self, txn: &mut Transaction) {
        for Charge { file, owner, blocks } in txn.take_charges() {
            if let Some(counting) = &mut self.counting {
                counting.charge(file, &owner, blocks);
            }
            let is_known = self.settings.counted || self.counting.as_ref().is_some_and(Counting::is_storing);
            if !is_known {
                continue;
            }
            let user = self.users.entry(owner.clone()).or_default();
            let used = user.record.used_blocks.checked_add_signed(blocks);
            debug_assert!(used.is_some(), "more is taken off than was charged");
            // Counts that are wrong, from damaged metadata, are for a check to find.
            user.record.used_blocks = used.unwrap_or(0);
            txn.put(key::quota_user(&owner), user.record.encode());
        }
    }

    /// Finds the owner of a stream that is about to grow in memory, and checks that it may have `promised`
    /// blocks more than are charged. `None`: nobody is charged.
    ///
    /// # Errors
    /// `QuotaExceeded`; `Miss`, and damage of the metadata.
    pub fn check_promise(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        promised: u64,
    ) -> Result<Option<Sid>, FsError> {
        if !self.is_on() {
            return Ok(None);
        }
        let (owner, before) = match self.promises.get(&stream) {
            Some((owner, before)) => (owner.clone(), *before),
            None => {
                let inode = super::inodes::inode(store, &Transaction::new(), stream.file)?;
                match self.owner(store, inode.security)? {
                    Some(owner) => (owner, 0),
                    None => return Ok(None),
                }
            }
        };
        self.check_growth(&owner, promised.saturating_sub(before))?;
        Ok(Some(owner))
    }

    /// Promises a stream's owner blocks beside those that are charged.
    pub fn promise(&mut self, stream: StreamId, owner: Sid, blocks: u64) {
        self.put_promise(stream, None);
        self.put_promise(stream, (blocks > 0).then_some((owner, blocks)));
    }

    /// Notes how many blocks of a stream are still not charged, after some were.
    pub fn keep_promise(&mut self, stream: StreamId, blocks: u64) {
        if self.promises.is_empty() {
            return;
        }
        if let Some((owner, _)) = self.promises.get(&stream) {
            let owner = owner.clone();
            self.promise(stream, owner, blocks);
        }
    }

    fn put_promise(&mut self, stream: StreamId, new: Option<(Sid, u64)>) {
        let old = match new {
            Some((owner, blocks)) => {
                self.users.entry(owner.clone()).or_default().promised_blocks += u128::from(blocks);
                self.promises.insert(stream, (owner, blocks))
            }
            None => self.promises.remove(&stream),
        };
        if let Some((owner, blocks)) = old
            && let Some(user) = self.users.get_mut(&owner)
        {
            user.promised_blocks -= u128::from(blocks);
        }
    }
}

/// Files whose owner is the group Administrators or the system are counted, and bound by no limit, as
/// on NTFS. A member of Administrators owns the files that it makes itself.
fn is_exempt(owner: &Sid) -> bool {
    *owner == Sid::administrators() || *owner == Sid::local_system()
}

/// Reads the owner of a self-relative descriptor (MS-DTYP 2.4.6), if it has one.
pub fn owner_of(descriptor: &[u8]) -> Option<Sid> {
    let offset = u32::from_le_bytes(descriptor.get(4..8)?.try_into().ok()?) as usize;
    (offset != 0).then(|| Sid::parse(descriptor.get(offset..)?).ok()).flatten()
}

/// Blocks that the named streams of a file are charged with.
fn named_streams_charge(store: &mut Store, txn: &Transaction, file: FileId) -> Result<u64, FsError> {
    let (mut from, end) = (key::streams(file), key::after(&key::streams(file)));
    let mut blocks = 0;
    while let Some((found, value)) = store.next(txn, &from, &end)? {
        let record = StreamRecord::decode(&value).ok_or(FsError::damaged("stream"))?;
        blocks += charge_of_stream(&record);
        from = found;
        from.push(0);
    }
    Ok(blocks)
}
