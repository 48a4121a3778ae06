//! Roots of callers: directories by identity, below which paths are walked, and what a caller sees of where something lies.

use super::create::Target;
use super::opens::LinkName;
use super::path;
use super::{Halt, Service};
use crate::backend::{OpenId, Reply, ShareRoot, WideString};
use crate::fs::{FileId, FsError};
use types::NtStatus;

impl Service {
    /// The directory at `path` of the volume, to be a caller's root. Reparse points are not followed.
    pub(super) fn open_root(&mut self, path: &[u16]) -> Result<Reply, Halt> {
        let parsed = path::parse(path)?;
        let target: Target = self.walk(ShareRoot::VOLUME, &parsed)?;
        let found = target.file.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        if !found.directory || parsed.stream.is_some() || parsed.data_type {
            return Err(NtStatus::NOT_A_DIRECTORY.into());
        }
        if found.reparse_tag != 0 {
            return Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED.into());
        }
        if self.files.get(&found.file).is_some_and(|node| !node.deleting.is_empty()) {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        Ok(Reply::Root(ShareRoot::of(found.file)))
    }

    /// Where a root lies now, from the volume's root.
    ///
    /// # Errors
    /// NETWORK_NAME_DELETED once the directory is deleted.
    pub(super) fn root_path(&mut self, root: ShareRoot) -> Result<WideString, Halt> {
        match self.fs.path(root.directory()) {
            Err(FsError::NotFound) => Err(NtStatus::NETWORK_NAME_DELETED.into()),
            result => Ok(result?),
        }
    }

    /// The name of a root in the volume; `None` for the volume's own.
    pub(super) fn root_link(&mut self, root: ShareRoot) -> Result<Option<LinkName>, Halt> {
        if root == ShareRoot::VOLUME {
            return Ok(None);
        }
        let link = self.fs.links(root.directory())?.pop().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        Ok(Some(LinkName { parent: link.parent, name: link.name }))
    }

    /// What the client of an open sees of where it lies.
    pub(super) fn seen_path(&mut self, id: OpenId) -> Result<WideString, Halt> {
        let root = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.root;
        let root_path = self.root_path(root)?;
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        Ok(path::seen_from(&open.path, &root_path).into())
    }

    /// The directory that an open directory lists as its parent: itself where that one is not below the open's root.
    pub(super) fn parent_seen(&mut self, id: OpenId) -> Result<FileId, Halt> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let (itself, root) = (open.stream.file, open.root);
        let Some(parent) = open.own_link().map(|link| link.parent) else { return Ok(itself) };
        if root == ShareRoot::VOLUME {
            return Ok(parent);
        }
        // It may have been moved out of the root by somebody with another one.
        let (root_path, parent_path) = (self.root_path(root)?, self.fs.path(parent)?);
        let below = path::strip_directory(&parent_path, &root_path).is_some();
        Ok(if below { parent } else { itself })
    }
}
