//! Renames of files and directories, and hard links (MS-FSA 2.1.5.15.11, 2.1.5.15.6).

use super::caching::BreakRequest;
use super::inheritance;
use super::notify;
use super::open::{LinkName, places_of};
use super::parts::Parts;
use super::path;
use super::rename_stream::rename_stream;
use super::roots::SeenRoots;
use super::share::{SHARE_READ, SHARE_WRITE, ShareMode};
use super::suspend::Suspend;
use super::walk::{Target, walk};
use crate::backend::{LeaseState, OpenId, WideString};
use crate::fs::{FileId, FsError, StreamId, Unlinked, names_equal};
use crate::security::{self, AccessRequest, rights};
use types::{FileTime, NtStatus, attribute};

/// A rename of the name by which an open was made.
pub struct Renaming<'a> {
    open: OpenId,
    to: &'a [u16],
    replace: bool,
}

/// The old name and the new one.
struct Move {
    file: FileId,
    directory: bool,
    old: LinkName,
    old_path: WideString,
    new: LinkName,
    new_path: WideString,
    target: Target,
    /// When a file was made, and the time that it inherits in its place; none of a directory, and if only the case of its name changes.
    created: Option<FileTime>,
    inherited: Option<FileTime>,
}

impl<'a> Renaming<'a> {
    pub fn new(open: OpenId, to: &'a [u16], replace: bool) -> Self {
        Self { open, to, replace }
    }

    pub fn run(&self, parts: &mut Parts<'_>) -> Result<(), Suspend> {
        let open = parts.opens.open_for(self.open, rights::DELETE)?;
        if open.stream.index != 0 || self.to.first() == Some(&u16::from(b':')) {
            return rename_stream(parts, self.open, self.to, self.replace);
        }
        let moved = self.plan(parts)?;
        self.check(parts, &moved)?;
        let roots = SeenRoots::of(parts.fs, parts.opens, moved.file)?;
        let now = parts.time();
        let (old, new) = (&moved.old, &moved.new);
        let renamed = parts.fs.rename(old.parent, &old.name, new.parent, &new.name, self.replace, now);
        let replaced = match renamed {
            Ok(replaced) => replaced,
            Err(FsError::IsDirectory) => return Err(NtStatus::ACCESS_DENIED.into()),
            Err(error) => return Err(error.into()),
        };
        reclaim_replaced(parts, replaced);
        if let Some(created) = moved.created {
            inheritance::keep(parts, old, created);
            inheritance::inherit(parts, moved.file, new, moved.inherited);
        }
        relabel_opens(parts, &moved, &roots);
        if moved.old.parent == moved.new.parent {
            parts.opens.note_renamed_entry(moved.old.parent, moved.file, &moved.old.name, &moved.new.name);
        }
        parts.mark_dirty(self.open);
        self.tell(parts, &moved);
        Ok(())
    }

    fn plan(&self, parts: &mut Parts<'_>) -> Result<Move, Suspend> {
        let open = parts.opens.get(self.open).ok_or(NtStatus::FILE_CLOSED)?;
        let (file, directory, old_path) = (open.stream.file, open.directory, open.path.clone());
        let old = open.own_link().cloned().ok_or(NtStatus::INVALID_PARAMETER)?;
        let (target, mut new) = target_of(parts, self.open, self.to)?;
        let same_name = old.parent == new.parent && names_equal(&old.name, &new.name);
        let (mut created, mut inherited) = (None, None);
        if !directory && !same_name {
            created = Some(parts.fs.attributes(file)?.created);
        }
        if created.is_some() && target.file.is_none() {
            inherited = inheritance::find(parts, &mut new)?;
        }
        let new_path = path::join(target.directory.whole(), &new.name);
        Ok(Move { file, directory, old, old_path, new, new_path, target, created, inherited })
    }

    /// Checks everything, and breaks conflicting handle caching of others.
    fn check(&self, parts: &mut Parts<'_>, moved: &Move) -> Result<(), Suspend> {
        if parts.opens.file(moved.file).is_some_and(|node| node.is_deleting_link(&moved.old)) {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        if moved.directory {
            check_opens_below(parts, &moved.old_path)?;
        }
        parts.break_handles(self.open, moved.file)?;
        let same_entry = moved.target.file.is_some_and(|file| file.file == moved.file)
            && moved.new.parent == moved.old.parent;
        check_target_directory(parts, self.open, moved.new.parent, moved.directory)?;
        if !same_entry {
            check_replaced(parts, self.open, &moved.target, self.replace, moved.directory)?;
        }
        self.check_room(parts, moved)?;
        Ok(())
    }

    /// Checks that the renaming user may have opens with paths of the new length: an open whose name
    /// becomes longer counts for more.
    fn check_room(&self, parts: &Parts<'_>, moved: &Move) -> Result<(), NtStatus> {
        let (old_units, new_units) = (moved.old_path.len(), moved.new_path.len());
        if places_of(new_units) <= places_of(old_units) {
            return Ok(());
        }
        let renamed = parts.opens.of_file(moved.file).map(|(_, open)| open);
        let renamed = renamed.filter(|open| open.link.as_ref() == Some(&moved.old));
        let grown = renamed.map(|open| {
            let units = new_units + open.path.len().saturating_sub(old_units);
            places_of(units).saturating_sub(open.places)
        });
        let grown = grown.sum();
        let user = &parts.opens.get(self.open).ok_or(NtStatus::FILE_CLOSED)?.token.user;
        if parts.opens.may_have(user, grown) { Ok(()) } else { Err(NtStatus::INSUFFICIENT_RESOURCES) }
    }

    /// Notifies watchers and holders of leases on both directories.
    fn tell(&self, parts: &mut Parts<'_>, moved: &Move) {
        let Move { directory, old, old_path, new, new_path, .. } = moved;
        let what = if *directory { notify::DIR_NAME } else { notify::FILE_NAME };
        let (gone, came) = if old.parent == new.parent {
            (notify::RENAMED_OLD_NAME, notify::RENAMED_NEW_NAME)
        } else {
            (notify::REMOVED, notify::ADDED)
        };
        parts.watches.changed(old_path, gone, what);
        parts.watches.changed(new_path, came, what);
        if !directory {
            // Windows reports a renamed file's attributes too.
            let what = notify::ATTRIBUTES | notify::CREATION;
            parts.watches.changed(new_path, notify::MODIFIED, what);
        }
        let by = parts.opens.get(self.open).and_then(|open| open.parent_lease());
        parts.directory_changed(old.parent, by.clone());
        if new.parent != old.parent {
            parts.directory_changed(new.parent, by);
        }
    }
}

/// A further name for the file of an open.
pub struct Linking<'a> {
    open: OpenId,
    to: &'a [u16],
    replace: bool,
}

impl<'a> Linking<'a> {
    pub fn new(open: OpenId, to: &'a [u16], replace: bool) -> Self {
        Self { open, to, replace }
    }

    pub fn run(&self, parts: &mut Parts<'_>) -> Result<(), Suspend> {
        let open = parts.opens.open_for(self.open, 0)?;
        let (stream, directory) = (open.stream, open.directory);
        if directory || stream.index != 0 {
            let status = if directory { NtStatus::FILE_IS_A_DIRECTORY } else { NtStatus::INVALID_PARAMETER };
            return Err(status.into());
        }
        let (target, new) = target_of(parts, self.open, self.to)?;
        check_linked(parts, self.open, stream.file)?;
        check_target_directory(parts, self.open, new.parent, false)?;
        let now = parts.time();
        if target.file.is_some() {
            check_replaced(parts, self.open, &target, self.replace, false)?;
        }
        let replaced = parts.fs.link(stream.file, new.parent, &new.name, self.replace, now)?;
        reclaim_replaced(parts, replaced);
        parts.mark_dirty(self.open);
        let new_path = path::join(target.directory.whole(), &new.name);
        parts.watches.changed(&new_path, notify::ADDED, notify::FILE_NAME);
        let by = parts.opens.get(self.open).and_then(|open| open.parent_lease());
        parts.directory_changed(new.parent, by);
        Ok(())
    }
}

/// Finds where `to` leads, from the root through which the open was made. The name is spelled as by the client; but if that is the short
/// name of an entry, it is that entry's own.
fn target_of(parts: &mut Parts<'_>, id: OpenId, to: &[u16]) -> Result<(Target, LinkName), Suspend> {
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let (root, directory) = (open.root, open.directory);
    // As at CREATE: slashes separate too, and a directory's name may end with one.
    let to = path::with_backslashes(to);
    let parsed = path::parse(&to)?;
    let is_directory_type = parsed.directory_type && !(directory && to.ends_with(&[u16::from(b'\\')]));
    if parsed.stream.is_some() || parsed.data_type || is_directory_type {
        return Err(NtStatus::OBJECT_NAME_INVALID.into());
    }
    let target = walk(parts.fs, parts.names, root, &parsed)?;
    let mut new = target.own_link().cloned().ok_or(NtStatus::OBJECT_NAME_COLLISION)?;
    if let Some(last) = parsed.names().last()
        && names_equal(last, &new.name)
    {
        new.name = (*last).into();
    }
    Ok((target, new))
}

/// Checks that nothing is open below a directory: else it stays where it is.
fn check_opens_below(parts: &mut Parts<'_>, directory: &[u16]) -> Result<(), Suspend> {
    parts.agenda.turn.spend(u32::try_from(parts.opens.len()).unwrap_or(u32::MAX));
    let is_below = |path: &[u16]| path::strip_directory(path, directory).is_some_and(|rest| !rest.is_empty());
    let below: Vec<OpenId> =
        parts.opens.iter().filter(|(_, open)| is_below(&open.path)).map(|(id, _)| id).collect();
    let mut refused = false;
    for id in below {
        let Some(open) = parts.opens.get(id) else { continue };
        let stream = open.stream;
        if parts.caching.state_of(&open.holder).contains(LeaseState::HANDLE)
            && parts.ask(&BreakRequest::of_handles(stream))?
        {
            return Err(Suspend::Break(stream.file));
        }
        refused = true;
    }
    if refused { Err(NtStatus::ACCESS_DENIED.into()) } else { Ok(()) }
}

/// Checks the target's directory as if it were opened for the new entry: access and share modes count.
fn check_target_directory(
    parts: &mut Parts<'_>,
    id: OpenId,
    parent: FileId,
    directory: bool,
) -> Result<(), Suspend> {
    let token = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.token.clone();
    let right = if directory { rights::ADD_SUBDIRECTORY } else { rights::ADD_FILE };
    let attributes = parts.fs.attributes(parent)?;
    let descriptor = parts.descriptor(&attributes)?;
    let request = AccessRequest { desired: right, backup_intent: false, from_parent: 0 };
    security::access_check(&descriptor, &token, request)?;
    let mode = ShareMode { access: right, share: SHARE_READ | SHARE_WRITE, stream: 0 };
    if parts.opens.violates(mode, StreamId::unnamed(parent)) {
        return Err(NtStatus::SHARING_VIOLATION.into());
    }
    if parts.opens.is_deleting(parent) {
        return Err(NtStatus::DELETE_PENDING.into());
    }
    Ok(())
}

/// Checks that the user may give a file a further name: the file changes by it, and its owner is charged for the name. The open need not
/// have been made for that; Linux opens a file to read its attributes before it links.
fn check_linked(parts: &mut Parts<'_>, id: OpenId, file: FileId) -> Result<(), Suspend> {
    let token = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.token.clone();
    let attributes = parts.fs.attributes(file)?;
    let descriptor = parts.descriptor(&attributes)?;
    let request = AccessRequest { desired: rights::WRITE_ATTRIBUTES, backup_intent: false, from_parent: 0 };
    security::access_check(&descriptor, &token, request)?;
    Ok(())
}

/// Checks that an existing file of the target's name may be replaced.
fn check_replaced(
    parts: &mut Parts<'_>,
    id: OpenId,
    target: &Target,
    replace: bool,
    directory: bool,
) -> Result<(), Suspend> {
    let Some(old) = target.file else { return Ok(()) };
    if !replace {
        return Err(NtStatus::OBJECT_NAME_COLLISION.into());
    }
    if old.directory || directory || old.attributes & attribute::READONLY != 0 {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    if parts.opens.file(old.file).is_some() {
        let handles = BreakRequest::of_handles(StreamId::unnamed(old.file));
        if parts.ask(&BreakRequest { oplocks: true, ..handles })? {
            return Err(Suspend::Break(old.file));
        }
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    let token = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.token.clone();
    let from_parent = parts.parent_grants(target.own_link().map(|link| link.parent), &token)?;
    let descriptor = parts.descriptor(&old)?;
    let request = AccessRequest { desired: rights::DELETE, backup_intent: false, from_parent };
    security::access_check(&descriptor, &token, request)?;
    Ok(())
}

/// Frees a file that lost its last name to another one.
fn reclaim_replaced(parts: &mut Parts<'_>, replaced: Option<Unlinked>) {
    if let Some(Unlinked { file, last: true }) = replaced {
        parts.reclaims.add_file(file);
    }
}

/// Gives opens by the old name the new one.
fn relabel_opens(parts: &mut Parts<'_>, moved: &Move, roots: &SeenRoots) {
    let renamed = parts.opens.rename(moved.file, |open| {
        if open.link.as_ref() != Some(&moved.old) {
            return None;
        }
        open.link = Some(moved.new.clone());
        let mut path = moved.new_path.to_vec();
        if let Some(stream) = open.path.strip_prefix(&*moved.old_path) {
            path.extend_from_slice(stream);
        }
        Some(path.into())
    });
    for (id, path) in renamed {
        parts.watches.moved(id, &path);
        roots.tell(parts.opens, parts.agenda, id);
        if parts.opens.get(id).is_some_and(|open| open.persistent) {
            parts.agenda.records.open(id);
        }
    }
}
