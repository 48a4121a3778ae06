//! The way along a path, from a root downward.

use super::open::LinkName;
use super::opens::Opens;
use super::path::{self, ParsedPath, StoredPath};
use super::roots::{root_link, root_path};
use super::short_names::ShortNames;
use super::suspend::Suspend;
use crate::backend::{Reply, ShareRoot};
use crate::fs::{Attributes, FileSystem, FsError};
use types::NtStatus;

const SYMLINK_TAG: u32 = 0xA000_000C;

/// Where a path leads.
pub struct Target {
    /// Directory and name; `None` for the volume's root.
    pub link: Option<LinkName>,
    /// Whether it is the root of its caller, who sees neither that directory nor that name.
    pub is_root: bool,
    /// The directory's path; the root's own if the target is the root.
    pub directory: StoredPath,
    /// The file, if there is one.
    pub file: Option<Attributes>,
}

impl Target {
    /// Returns directory and name that the caller reaches and may change; `None` for its root.
    pub fn own_link(&self) -> Option<&LinkName> {
        self.link.as_ref().filter(|_| !self.is_root)
    }

    pub fn path(&self, stream: Option<&[u16]>) -> StoredPath {
        let mut path = self.directory.clone();
        if let Some(link) = self.own_link() {
            path.enter(&link.name);
        }
        match stream {
            Some(stream) => path.with_stream(stream),
            None => path,
        }
    }

    /// Returns the length of [`Self::path`].
    pub fn path_units(&self, stream: Option<&[u16]>) -> usize {
        let name = self.own_link().map_or(0, |link| 1 + link.name.len());
        self.directory.whole().len() + name + stream.map_or(0, |stream| 1 + stream.len())
    }
}

/// Goes along the path from `root` downward. Traversing needs no right: everyone holds the privilege to bypass it.
pub fn walk(
    fs: &mut FileSystem,
    names: &ShortNames,
    root: ShareRoot,
    parsed: &ParsedPath<'_>,
) -> Result<Target, Suspend> {
    let mut path = StoredPath::of_root(root_path(fs, root)?);
    let mut directory = root.directory();
    let Some((last, ancestors)) = parsed.names().split_last() else {
        let link = root_link(fs, root)?;
        let file = Some(fs.attributes(directory)?);
        return Ok(Target { link, is_root: true, directory: path, file });
    };
    for (index, name) in ancestors.iter().enumerate() {
        let entry = match names.lookup(fs, directory, name) {
            Ok(entry) => entry,
            Err(FsError::NotFound | FsError::NotDirectory) => {
                return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
            }
            Err(error) => return Err(error.into()),
        };
        let file = fs.attributes(entry.file)?;
        if file.reparse_tag != 0 {
            return Err(meet_reparse_point(fs, &file, parsed.bytes_behind(index)));
        }
        if !entry.directory {
            return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
        }
        directory = entry.file;
        path.enter(&entry.name);
    }
    let (name, file) = match names.lookup(fs, directory, last) {
        Ok(entry) => (entry.name, Some(fs.attributes(entry.file)?)),
        Err(FsError::NotFound) => ((*last).into(), None),
        Err(FsError::NotDirectory) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into()),
        Err(error) => return Err(error.into()),
    };
    let link = Some(LinkName { parent: directory, name });
    Ok(Target { link, is_root: false, directory: path, file })
}

/// Says how an open ends that meets this reparse point.
pub fn meet_reparse_point(fs: &mut FileSystem, file: &Attributes, unparsed_bytes: u16) -> Suspend {
    if file.reparse_tag != SYMLINK_TAG {
        return NtStatus::IO_REPARSE_TAG_NOT_HANDLED.into();
    }
    match fs.reparse_data(file.file) {
        Ok(Some(data)) => Suspend::Symlink { data, unparsed_bytes },
        Ok(None) => NtStatus::IO_REPARSE_DATA_INVALID.into(),
        Err(error) => error.into(),
    }
}

/// Answers the directory at `path` of the volume, to be a caller's root. Reparse points are not followed.
pub fn open_root(
    fs: &mut FileSystem,
    names: &ShortNames,
    opens: &Opens,
    path: &[u16],
) -> Result<Reply, Suspend> {
    let parsed = path::parse(path)?;
    let target = walk(fs, names, ShareRoot::VOLUME, &parsed)?;
    let found = target.file.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    if !found.directory || parsed.stream.is_some() || parsed.data_type {
        return Err(NtStatus::NOT_A_DIRECTORY.into());
    }
    if found.reparse_tag != 0 {
        return Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED.into());
    }
    if opens.is_deleting(found.file) {
        return Err(NtStatus::DELETE_PENDING.into());
    }
    Ok(Reply::Root(ShareRoot::of(found.file)))
}
