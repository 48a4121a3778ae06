//! Roots of callers: directories by identity, below which paths are walked, and paths as a caller sees
//! them.

use super::agenda::Agenda;
use super::open::{LinkName, Open};
use super::opens::Opens;
use super::path;
use super::suspend::Suspend;
use crate::backend::{Event, OpenId, ShareRoot, WideString};
use crate::fs::{FileId, FileSystem, FsError};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use types::NtStatus;

/// Returns the path of a root from the volume's root.
///
/// # Errors
/// NETWORK_NAME_DELETED once the directory is deleted.
pub fn root_path(fs: &mut FileSystem, root: ShareRoot) -> Result<WideString, Suspend> {
    match fs.path(root.directory()) {
        Err(FsError::NotFound) => Err(NtStatus::NETWORK_NAME_DELETED.into()),
        result => Ok(result?),
    }
}

/// Returns the name of a root in the volume; `None` for the volume's own.
pub fn root_link(fs: &mut FileSystem, root: ShareRoot) -> Result<Option<LinkName>, Suspend> {
    if root == ShareRoot::VOLUME {
        return Ok(None);
    }
    let link = fs.links(root.directory())?.pop().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    Ok(Some(LinkName { parent: link.parent, name: link.name }))
}

/// Paths of the roots of a file's opens, looked up before a rename of the file: after that nothing may
/// fail.
pub struct SeenRoots(HashMap<ShareRoot, WideString>);

impl SeenRoots {
    /// # Errors
    /// Those of reading metadata. A deleted root is left out.
    pub fn of(fs: &mut FileSystem, opens: &Opens, file: FileId) -> Result<Self, Suspend> {
        let mut paths = HashMap::new();
        for (_, open) in opens.of_file(file) {
            if let Entry::Vacant(vacant) = paths.entry(open.root) {
                match fs.path(open.root.directory()) {
                    Ok(path) => drop(vacant.insert(path)),
                    Err(FsError::NotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Self(paths))
    }

    /// Reports to the server the name by which its client has an open from here on.
    pub fn tell(&self, opens: &Opens, agenda: &mut Agenda, id: OpenId) {
        let Some(open) = opens.get(id) else { return };
        if let Some(root) = self.0.get(&open.root) {
            let path = path::seen_from(&open.path, root).into();
            agenda.events.push(Event::Renamed { open: id, path });
        }
    }
}

/// Returns the path of an open as its client sees it.
pub fn seen_path(fs: &mut FileSystem, open: &Open) -> Result<WideString, Suspend> {
    let root_path = root_path(fs, open.root)?;
    Ok(path::seen_from(&open.path, &root_path).into())
}

/// Returns the directory that an open directory lists as its parent: itself if that one is not below the open's root.
pub fn parent_seen(fs: &mut FileSystem, open: &Open) -> Result<FileId, Suspend> {
    let itself = open.stream.file;
    let Some(parent) = open.own_link().map(|link| link.parent) else { return Ok(itself) };
    if open.root == ShareRoot::VOLUME {
        return Ok(parent);
    }
    // A client of a share with another root may have moved the file out of this one.
    let (root_path, parent_path) = (root_path(fs, open.root)?, fs.path(parent)?);
    let below = path::strip_directory(&parent_path, &root_path).is_some();
    Ok(if below { parent } else { itself })
}
