//! The file layer on one virtual disk: namespace, streams, extents, metadata journal and checkpoint, data cache.
//!
//! **How to use it.** [`FileSystem`] is driven by one thread. Metadata functions answer at once, or answer
//! [`FsError::Miss`]: what they need is then on its way, nothing was changed, and the caller runs the whole operation
//! again after the next [`FsEvent::Retry`]. Data functions answer at once (`Poll::Ready`) or by an event that carries the
//! caller's token. [`FileSystem::poll`] does the work; it wants to be called after every request and completion, and at
//! [`FileSystem::next_timeout`].
//!
//! **What is durable.** Changes become visible at once, and durable in the order in which they were made: with
//! [`FileSystem::flush`] or a durable write, and a few seconds later at the latest. A crash loses a suffix of the
//! changes, never one in the middle; data is published after it is written, so that no lost write shows garbage.

mod cursor;
mod data;
#[allow(dead_code)]
mod meta;
mod namespace;
mod properties;
mod streams;
mod types;
mod upcase;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use ::types::{Lba, Monotonic};
use space::api::VirtualDisk;

pub use cursor::DirectoryCursor;
use meta::{Store, Transaction, key, record};
pub use namespace::{LINKS_MAX, NAME_UNITS_MAX, check_name};
pub use properties::{PROPERTY_BYTES_MAX, REPARSE_BYTES_MAX};
pub use types::*;
pub use upcase::{names_equal, upcase_unit};

/// One volume's files.
pub struct FileSystem {
    disk: Box<dyn VirtualDisk>,
    config: Config,
    state: State,
    meta: Store,
    volume: VolumeRecord,
    /// Next file id to give, and the first that is not reserved durably.
    next_file: u64,
    file_ids_reserved: u64,
    /// Times changed in memory only.
    lazy_times: HashMap<FileId, AttributeChange>,
    /// Stored descriptors by content.
    security_ids: HashMap<Box<[u8]>, SecurityId>,
    data: data::Data,
    events: VecDeque<FsEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    Failed(FsError),
}

impl FsError {
    /// Metadata that cannot be what was written.
    pub(crate) const fn damaged(what: &'static str) -> Self {
        Self::Corrupt { what, lba: Lba(0) }
    }
}

impl FileSystem {
    /// Makes an empty volume; [`FsEvent::Opened`] tells when it can be used. What the virtual disk held is lost.
    pub fn format(disk: Box<dyn VirtualDisk>, format: &Format, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        fs.volume = VolumeRecord {
            id: format.id,
            label: format.label.clone(),
            serial: format.serial,
            created: format.now,
        };
        fs.state = State::Open;
        let mut txn = Transaction::new();
        txn.put(key::volume(), record::encode_volume(&fs.volume));
        let root =
            NewFile { directory: true, attributes: 0, now: format.now, security: &format.root_security };
        let made = fs.put_root(&mut txn, &root).and_then(|()| fs.commit(txn));
        fs.events.push_back(match made {
            Ok(()) => FsEvent::Opened,
            Err(error) => FsEvent::Failed(error),
        });
        fs
    }

    /// Opens the volume on a virtual disk; [`FsEvent::Opened`] tells when it can be used.
    pub fn open(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        let error = FsError::NotAVolume("no superblock");
        fs.state = State::Failed(error.clone());
        fs.events.push_back(FsEvent::Failed(error));
        fs
    }

    fn new(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        Self {
            disk,
            config,
            state: State::Opening,
            meta: Store::default(),
            volume: VolumeRecord {
                id: [0; 16],
                label: String::new(),
                serial: 0,
                created: Default::default(),
            },
            next_file: 0,
            file_ids_reserved: 0,
            lazy_times: HashMap::new(),
            security_ids: HashMap::new(),
            data: data::Data::default(),
            events: VecDeque::new(),
        }
    }

    /// Does what is due and moves what happened into `out`.
    pub fn poll(&mut self, _now: Monotonic, out: &mut Vec<FsEvent>) {
        out.extend(self.events.drain(..));
    }

    /// When [`FileSystem::poll`] wants to be called next, should nothing happen before.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        None
    }

    /// What the volume is called.
    pub fn volume(&self) -> &VolumeRecord {
        &self.volume
    }

    /// Changes the label.
    pub fn set_label(&mut self, label: &str) -> Result<(), FsError> {
        self.ready_to_change()?;
        let volume = VolumeRecord { label: label.to_owned(), ..self.volume.clone() };
        let mut txn = Transaction::new();
        txn.put(key::volume(), record::encode_volume(&volume));
        self.commit(txn)?;
        self.volume = volume;
        Ok(())
    }

    /// Size and fill.
    pub fn statistics(&self) -> Statistics {
        let total = self.disk.size().blocks.bytes();
        Statistics { total_bytes: total, available_bytes: total, ..Statistics::default() }
    }

    /// Limits in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn ready(&self) -> Result<(), FsError> {
        match &self.state {
            State::Open => Ok(()),
            State::Opening => Err(FsError::Miss),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Whether changes are taken: not while the journal is full and waits for the checkpoint.
    fn ready_to_change(&self) -> Result<(), FsError> {
        self.ready()
    }

    /// Whether changes that need more room are taken.
    fn ready_to_grow(&self) -> Result<(), FsError> {
        self.ready_to_change()
    }

    fn commit(&mut self, txn: Transaction) -> Result<(), FsError> {
        self.ready()?;
        self.meta.commit(txn);
        Ok(())
    }
}
