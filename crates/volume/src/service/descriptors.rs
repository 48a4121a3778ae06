//! Security descriptors in parsed form.

use super::suspend::Suspend;
use super::turn::Turn;
use crate::backend::AccessToken;
use crate::fs::{Attributes, FileId, FileSystem, SecurityId};
use crate::security::{self, SecurityDescriptor};
use std::collections::HashMap;
use std::rc::Rc;
use types::NtStatus;

/// Descriptors kept, and their bytes on disk: in memory they are some ten times as much.
pub const DESCRIPTORS_MAX: usize = 4096;
pub const DESCRIPTOR_BYTES_MAX: usize = 4 << 20;

/// Recently parsed descriptors.
///
/// Invariant: at most [`DESCRIPTORS_MAX`] of them, of at most [`DESCRIPTOR_BYTES_MAX`] on disk. None
/// becomes stale: a changed descriptor gets another identifier.
#[derive(Debug, Default)]
pub struct Descriptors {
    parsed: HashMap<SecurityId, Rc<SecurityDescriptor>>,
    stored_bytes: usize,
}

impl Descriptors {
    /// Returns the descriptor of a file, for one check of access, which costs steps; a file without one is
    /// open to all.
    pub fn of(
        &mut self,
        fs: &mut FileSystem,
        turn: &mut Turn,
        attributes: &Attributes,
    ) -> Result<Rc<SecurityDescriptor>, Suspend> {
        let id = attributes.security;
        let aces = |parsed: &SecurityDescriptor| parsed.dacl.as_ref().map_or(0, |acl| acl.aces.len()) as u32;
        if let Some(parsed) = self.parsed.get(&id) {
            turn.spend(aces(parsed));
            return Ok(parsed.clone());
        }
        let bytes = fs.security(id)?;
        let parsed = if bytes.is_empty() {
            SecurityDescriptor::default()
        } else {
            SecurityDescriptor::parse(&bytes).map_err(|_| NtStatus::DATA_ERROR)?
        };
        // Each ACE is taken apart, and then examined.
        turn.spend(3 * aces(&parsed));
        let parsed = Rc::new(parsed);
        self.insert(id, parsed.clone(), bytes.len());
        Ok(parsed)
    }

    /// Returns the rights on an entry that follow from the rights on its directory `parent`.
    pub fn parent_grants(
        &mut self,
        fs: &mut FileSystem,
        turn: &mut Turn,
        parent: FileId,
        token: &AccessToken,
    ) -> Result<u32, Suspend> {
        let attributes = fs.attributes(parent)?;
        let descriptor = self.of(fs, turn, &attributes)?;
        Ok(security::parent_grants(security::maximal_access(&descriptor, token)))
    }

    fn insert(&mut self, id: SecurityId, parsed: Rc<SecurityDescriptor>, stored_bytes: usize) {
        if self.parsed.len() >= DESCRIPTORS_MAX || self.stored_bytes + stored_bytes > DESCRIPTOR_BYTES_MAX {
            *self = Self::default();
        }
        self.parsed.insert(id, parsed);
        self.stored_bytes += stored_bytes;
    }

    /// Returns the bytes on disk of the descriptors kept.
    #[cfg(test)]
    pub fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }
}
