//! Security descriptors: each is stored once, however many files have it.

use std::collections::HashMap;
use std::rc::Rc;

use super::blob::{blob, put_blob};
use super::meta::record::{decode_number, encode_number};
use super::meta::{Store, Transaction, key};
use super::types::{FsError, SecurityId};

/// Longest security descriptor in bytes, as in NTFS.
pub const PROPERTY_BYTES_MAX: usize = 65536;

/// Descriptors remembered by content, so that making a file costs no search.
const SECURITY_CACHE_ENTRIES: usize = 1024;

/// Descriptors of one hash that a new one is compared with: who makes more of them (CRCs collide at will) has them stored again.
const SAME_HASH_MAX: usize = 8;

/// Ids of stored descriptors by content, so that making a file costs no search.
///
/// An id names the same bytes for ever: descriptors are few and never removed. Only ids that were found in the store are kept here: a
/// transaction that stores a new descriptor may yet be given up, and its id be given to another.
#[derive(Debug, Default)]
pub struct Descriptors {
    ids: HashMap<Box<[u8]>, SecurityId>,
}

impl Descriptors {
    /// Finds the id of a descriptor, and stores it with the transaction if it was not stored yet.
    pub fn intern(
        &mut self,
        txn: &mut Transaction,
        descriptor: &[u8],
        store: &mut Store,
    ) -> Result<SecurityId, FsError> {
        if descriptor.is_empty() {
            return Ok(SecurityId::default());
        }
        if descriptor.len() > PROPERTY_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if let Some(id) = self.ids.get(descriptor) {
            return Ok(*id);
        }
        let hash = codes::crc64(descriptor);
        let prefix = key::security_hashes(hash);
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        for _ in 0..SAME_HASH_MAX {
            let Some((found, _)) = store.next(txn, &from, &end)? else { break };
            let id = key::parse_security_hash(&found).ok_or(FsError::damaged("security index"))?;
            if blob(store, txn, &key::security(id))? == descriptor {
                self.remember(descriptor, id);
                return Ok(id);
            }
            from = found;
            from.push(0);
        }
        let counter = key::counter(key::Counter::Security);
        let next = match store.get(txn, &counter)? {
            Some(value) => decode_number(&value).ok_or(FsError::damaged("counter"))?,
            None => 1,
        };
        let id = SecurityId(next);
        txn.put(counter, encode_number(next + 1));
        txn.put(key::security_hash(hash, id), Vec::new());
        put_blob(store, txn, &key::security(id), descriptor)?;
        Ok(id)
    }

    fn remember(&mut self, descriptor: &[u8], id: SecurityId) {
        if self.ids.len() >= SECURITY_CACHE_ENTRIES {
            self.ids.clear();
        }
        self.ids.insert(descriptor.into(), id);
    }
}

/// Reads a stored descriptor; empty for `SecurityId(0)`.
pub fn descriptor(store: &mut Store, id: SecurityId) -> Result<Rc<[u8]>, FsError> {
    if id == SecurityId::default() {
        return Ok(Rc::from([]));
    }
    let bytes = blob(store, &Transaction::new(), &key::security(id))?;
    if bytes.is_empty() { Err(FsError::damaged("security descriptor")) } else { Ok(bytes.into()) }
}
