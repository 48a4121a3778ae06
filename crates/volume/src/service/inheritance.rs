//! Properties that files inherit with their names from those that had the names a moment ago
//! ([`super::tunnel`]).

use super::open::LinkName;
use super::parts::Parts;
use super::suspend::Suspend;
use super::tunnel::Removed;
use crate::fs::{AttributeChange, FileId, FsError, names_equal};
use types::FileTime;

/// Keeps a removed name; `created`: the file's time of creation.
pub fn keep(parts: &mut Parts<'_>, link: &LinkName, created: FileTime) {
    let now = parts.agenda.clock.now();
    let short = parts.names.told_for(link.parent, &link.name);
    parts.tunnel.keep(Removed::new(link, short, created, now));
}

/// Finds the time of creation that a file inherits which is about to take the free name of `link`; if that is the short form of a name that
/// was removed, `link` gets the whole one. [`inherit`] follows once the file has the name.
pub fn find(parts: &mut Parts<'_>, link: &mut LinkName) -> Result<Option<FileTime>, Suspend> {
    let now = parts.agenda.clock.now();
    let Some(removed) = parts.tunnel.find(link.parent, &link.name, now) else { return Ok(None) };
    let (whole, created) = (removed.link.name.clone(), removed.created);
    if !names_equal(&whole, &link.name) {
        match parts.fs.lookup(link.parent, &whole) {
            Err(FsError::NotFound) => link.name = whole,
            // Another file took the whole name meanwhile.
            Ok(_) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(created))
}

/// Gives a file the time of creation that it inherits with the name of `link`.
pub fn inherit(parts: &mut Parts<'_>, file: FileId, link: &LinkName, created: Option<FileTime>) {
    if created.is_none() {
        return;
    }
    parts.tunnel.forget(link);
    parts.fs.touch(file, &AttributeChange { created, ..AttributeChange::default() });
}
