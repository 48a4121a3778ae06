//! What hangs on a file beside its data: security descriptor, extended attributes, reparse data, object id.
//!
//! All of it is opaque here. Values longer than a metadata value are stored in pieces.

use std::rc::Rc;
use types::{FileTime, attribute};

use super::FileSystem;
use super::extended_attributes::{AttributeList, unpack_attributes};
use super::meta::record::{decode_number, encode_number};
use super::meta::{Transaction, VALUE_BYTES_MAX, key};
use super::types::ExtendedAttribute;
use super::types::{FileId, FsError, SecurityId};

/// Longest security descriptor in bytes, as in NTFS.
pub const PROPERTY_BYTES_MAX: usize = 65536;

/// Longest reparse data in bytes (MS-FSCC 2.1.2: MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
pub const REPARSE_BYTES_MAX: usize = 16384;

/// Descriptors remembered by content, so that making a file costs no search.
const SECURITY_CACHE_ENTRIES: usize = 1024;

/// Descriptors of one hash that a new one is compared with: who makes more of them (CRCs collide at will) has them stored again.
const SAME_HASH_MAX: usize = 8;

impl FileSystem {
    /// A stored security descriptor; empty for `SecurityId(0)`. Never changes for one id, so callers may keep what they
    /// made of it.
    pub fn security(&mut self, id: SecurityId) -> Result<Rc<[u8]>, FsError> {
        self.ready()?;
        if id == SecurityId::default() {
            return Ok(Rc::from([]));
        }
        let bytes = self.blob(&Transaction::new(), &key::security(id))?;
        if bytes.is_empty() { Err(FsError::damaged("security descriptor")) } else { Ok(bytes.into()) }
    }

    /// Replaces a file's security descriptor.
    pub fn set_security(
        &mut self,
        file: FileId,
        descriptor: &[u8],
        now: FileTime,
    ) -> Result<SecurityId, FsError> {
        self.ready_to_grow()?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        let id = self.intern_security(&mut txn, descriptor)?;
        inode.security = id;
        inode.changed = now;
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)?;
        Ok(id)
    }

    /// The id of a descriptor, stored if it was not yet. Descriptors are few and never removed.
    pub(super) fn intern_security(
        &mut self,
        txn: &mut Transaction,
        descriptor: &[u8],
    ) -> Result<SecurityId, FsError> {
        if descriptor.is_empty() {
            return Ok(SecurityId::default());
        }
        if descriptor.len() > PROPERTY_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if let Some(id) = self.security_ids.get(descriptor) {
            return Ok(*id);
        }
        let hash = codes::crc64(descriptor);
        let prefix = key::security_hashes(hash);
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        for _ in 0..SAME_HASH_MAX {
            let Some((found, _)) = self.meta.next(txn, &from, &end)? else { break };
            let id = key::parse_security_hash(&found).ok_or(FsError::damaged("security index"))?;
            if self.blob(txn, &key::security(id))? == descriptor {
                self.remember_security(descriptor, id);
                return Ok(id);
            }
            from = found;
            from.push(0);
        }
        let counter = key::counter(key::Counter::Security);
        let next = match self.meta.get(txn, &counter)? {
            Some(value) => decode_number(&value).ok_or(FsError::damaged("counter"))?,
            None => 1,
        };
        let id = SecurityId(next);
        txn.put(counter, encode_number(next + 1));
        txn.put(key::security_hash(hash, id), Vec::new());
        self.put_blob(txn, &key::security(id), descriptor)?;
        Ok(id)
    }

    fn remember_security(&mut self, descriptor: &[u8], id: SecurityId) {
        if self.security_ids.len() >= SECURITY_CACHE_ENTRIES {
            self.security_ids.clear();
        }
        self.security_ids.insert(descriptor.into(), id);
    }

    /// All extended attributes, in the order they were first set.
    pub fn extended_attributes(&mut self, file: FileId) -> Result<Vec<ExtendedAttribute>, FsError> {
        self.ready()?;
        self.unpack_attributes(&Transaction::new(), file)
    }

    /// Sets each of these attributes; one with an empty value is removed. All or none.
    ///
    /// # Errors
    /// `TooLarge` beyond [`EXTENDED_ATTRIBUTE_BYTES_MAX`](super::EXTENDED_ATTRIBUTE_BYTES_MAX), `Invalid` for an empty name.
    pub fn set_extended_attributes(
        &mut self,
        file: FileId,
        set: &[ExtendedAttribute],
        now: FileTime,
    ) -> Result<(), FsError> {
        self.ready_to_grow()?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        let mut list = AttributeList::new(self.unpack_attributes(&txn, file)?);
        list.merge(set)?;
        let (packed, full_bytes) = list.pack()?;
        self.put_blob(&mut txn, &key::extended_attributes(file), &packed)?;
        inode.extended_attribute_bytes = full_bytes;
        inode.changed = now;
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)
    }

    fn unpack_attributes(
        &mut self,
        txn: &Transaction,
        file: FileId,
    ) -> Result<Vec<ExtendedAttribute>, FsError> {
        if self.inode(txn, file)?.extended_attribute_bytes == 0 {
            return Ok(Vec::new());
        }
        let packed = self.blob(txn, &key::extended_attributes(file))?;
        unpack_attributes(&packed).ok_or(FsError::damaged("extended attributes"))
    }

    /// The reparse point's data as it was set, or nothing.
    pub fn reparse_data(&mut self, file: FileId) -> Result<Option<Vec<u8>>, FsError> {
        self.ready()?;
        let txn = Transaction::new();
        if self.inode(&txn, file)?.reparse_tag == 0 {
            return Ok(None);
        }
        self.blob(&txn, &key::reparse(file)).map(Some)
    }

    /// Makes the file a reparse point with this tag and data, or an ordinary file again.
    pub fn set_reparse(
        &mut self,
        file: FileId,
        point: Option<(u32, &[u8])>,
        now: FileTime,
    ) -> Result<(), FsError> {
        if point.is_some() {
            self.ready_to_grow()?;
        }
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        let (tag, data) = point.unwrap_or((0, &[]));
        if data.len() > REPARSE_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if point.is_some() && tag == 0 {
            return Err(FsError::Invalid("a reparse tag of 0"));
        }
        self.put_blob(&mut txn, &key::reparse(file), data)?;
        inode.reparse_tag = tag;
        inode.attributes &= !attribute::REPARSE_POINT;
        inode.attributes |= if tag == 0 { 0 } else { attribute::REPARSE_POINT };
        inode.changed = now;
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)
    }

    /// The file's object id (MS-FSCC 2.1.3.1), if it has one.
    pub fn object_id(&mut self, file: FileId) -> Result<Option<[u8; 16]>, FsError> {
        self.ready()?;
        let txn = Transaction::new();
        if !self.inode(&txn, file)?.has_object_id {
            return Ok(None);
        }
        let value = self.meta.get(&txn, &key::file_object_id(file))?;
        let id = value.and_then(|value| <[u8; 16]>::try_from(&value[..]).ok());
        id.map(Some).ok_or(FsError::damaged("object id"))
    }

    /// Gives the file an object id, or takes it away.
    ///
    /// # Errors
    /// `Exists` where another file has it.
    pub fn set_object_id(&mut self, file: FileId, id: Option<[u8; 16]>) -> Result<(), FsError> {
        self.ready_to_change()?;
        let old = self.object_id(file)?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        if let Some(old) = old {
            txn.delete(key::object_id(old));
            txn.delete(key::file_object_id(file));
        }
        if let Some(id) = id {
            if self.meta.get(&txn, &key::object_id(id))?.is_some() {
                return Err(FsError::Exists);
            }
            txn.put(key::object_id(id), encode_number(file.0));
            txn.put(key::file_object_id(file), id.to_vec());
        }
        inode.has_object_id = id.is_some();
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)
    }

    /// The file that has this object id.
    pub fn file_by_object_id(&mut self, id: [u8; 16]) -> Result<FileId, FsError> {
        self.ready()?;
        let value = self.meta.get(&Transaction::new(), &key::object_id(id))?.ok_or(FsError::NotFound)?;
        decode_number(&value).map(FileId).ok_or(FsError::damaged("object id"))
    }

    /// A long value, put together; empty where there is none.
    fn blob(&mut self, txn: &Transaction, prefix: &[u8]) -> Result<Vec<u8>, FsError> {
        let end = key::after(prefix);
        let (mut from, mut out) = (key::piece(prefix, 0), Vec::new());
        while let Some((found, value)) = self.meta.next(txn, &from, &end)? {
            out.extend_from_slice(&value);
            from = found;
            from.push(0);
        }
        Ok(out)
    }

    /// Replaces a long value; an empty one is removed.
    fn put_blob(&mut self, txn: &mut Transaction, prefix: &[u8], bytes: &[u8]) -> Result<(), FsError> {
        let pieces = bytes.chunks(VALUE_BYTES_MAX);
        let mut from = key::piece(prefix, pieces.len() as u16);
        let end = key::after(prefix);
        while let Some((found, _)) = self.meta.next(txn, &from, &end)? {
            from = found.clone();
            from.push(0);
            txn.delete(found);
        }
        for (index, piece) in pieces.enumerate() {
            txn.put(key::piece(prefix, index as u16), piece.to_vec());
        }
        Ok(())
    }
}
