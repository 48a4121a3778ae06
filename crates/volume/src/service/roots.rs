//! Roots of callers: directories by identity, below which paths are walked, and what a caller sees of where something lies.

use super::halt::Halt;
use super::open::{LinkName, Open};
use super::path;
use crate::backend::{ShareRoot, WideString};
use crate::fs::{FileId, FileSystem, FsError};
use types::NtStatus;

/// Returns the path of a root from the volume's root.
///
/// # Errors
/// NETWORK_NAME_DELETED once the directory is deleted.
pub fn root_path(fs: &mut FileSystem, root: ShareRoot) -> Result<WideString, Halt> {
    match fs.path(root.directory()) {
        Err(FsError::NotFound) => Err(NtStatus::NETWORK_NAME_DELETED.into()),
        result => Ok(result?),
    }
}

/// Returns the name of a root in the volume; `None` for the volume's own.
pub fn root_link(fs: &mut FileSystem, root: ShareRoot) -> Result<Option<LinkName>, Halt> {
    if root == ShareRoot::VOLUME {
        return Ok(None);
    }
    let link = fs.links(root.directory())?.pop().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    Ok(Some(LinkName { parent: link.parent, name: link.name }))
}

/// Returns the path of an open as its client sees it.
pub fn seen_path(fs: &mut FileSystem, open: &Open) -> Result<WideString, Halt> {
    let root_path = root_path(fs, open.root)?;
    Ok(path::seen_from(&open.path, &root_path).into())
}

/// Returns the directory that an open directory lists as its parent: itself if that one is not below the open's root.
pub fn parent_seen(fs: &mut FileSystem, open: &Open) -> Result<FileId, Halt> {
    let itself = open.stream.file;
    let Some(parent) = open.own_link().map(|link| link.parent) else { return Ok(itself) };
    if open.root == ShareRoot::VOLUME {
        return Ok(parent);
    }
    // It may have been moved out of the root by somebody with another one.
    let (root_path, parent_path) = (root_path(fs, open.root)?, fs.path(parent)?);
    let below = path::strip_directory(&parent_path, &root_path).is_some();
    Ok(if below { parent } else { itself })
}
