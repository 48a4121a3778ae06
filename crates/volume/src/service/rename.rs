//! Renames and hard links (MS-FSA 2.1.5.15.11, 2.1.5.15.6).

use super::breaks::BreakRequest;
use super::create::Target;
use super::notify;
use super::opens::{CacheHolder, LinkName, places_of};
use super::path;
use super::share::{SHARE_READ, SHARE_WRITE, ShareMode};
use super::{Halt, Service, WHOLE_FILE};
use crate::backend::{LeaseState, OpenId};
use crate::fs::{FileId, FsError, StreamId, Unlinked, names_equal};
use crate::security::{self, AccessRequest, rights};
use types::{NtStatus, attribute};

impl Service {
    /// Asks others to give up handles that they keep open for nobody. Whether that has to be waited for.
    pub(super) fn break_handles(&mut self, id: OpenId) -> Result<bool, Halt> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let by_lease = match open.holder {
            CacheHolder::Lease(name) => Some(name),
            _ => None,
        };
        self.ask(&BreakRequest { by_lease, by_open: Some(id), ..BreakRequest::of_handles(open.stream) })
    }

    pub(super) fn rename(&mut self, id: OpenId, to: &[u16], replace: bool) -> Result<(), Halt> {
        let open = self.open_for(id, rights::DELETE)?;
        let (stream, directory, old_path) = (open.stream, open.directory, open.path.clone());
        let link = open.own_link().cloned();
        if stream.index != 0 || to.first() == Some(&u16::from(b':')) {
            return self.rename_stream(id, to, replace);
        }
        let link = link.ok_or(NtStatus::INVALID_PARAMETER)?;
        let (target, last) = self.target_of(id, to)?;
        let new = target.own_link().cloned().ok_or(NtStatus::OBJECT_NAME_COLLISION)?;
        if self.files.get(&stream.file).is_some_and(|node| node.deleting.contains(&link)) {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        if directory {
            self.check_opens_below(&old_path)?;
        }
        if self.break_handles(id)? {
            return Err(Halt::Break(stream.file));
        }
        let same_entry =
            target.file.is_some_and(|file| file.file == stream.file) && new.parent == link.parent;
        self.check_target_directory(id, new.parent, directory)?;
        if !same_entry {
            self.check_replaced(id, &target, replace, directory)?;
        }
        let spelled = spelled(last, &new.name);
        self.check_room_for_path(id, &link, &old_path, target.directory.whole().len() + 1 + spelled.len())?;
        let now = self.time();
        let replaced = match self.fs.rename(link.parent, &link.name, new.parent, spelled, replace, now) {
            Ok(replaced) => replaced,
            Err(FsError::IsDirectory) => return Err(NtStatus::ACCESS_DENIED.into()),
            Err(error) => return Err(error.into()),
        };
        self.forget_replaced(replaced);
        let new_path = path::join(target.directory.whole(), spelled);
        let new_link = LinkName { parent: new.parent, name: spelled.into() };
        self.moved(stream.file, &link, &new_link, &old_path, &new_path);
        let what = if directory { notify::DIR_NAME } else { notify::FILE_NAME };
        let (gone, came) = if link.parent == new.parent {
            (notify::RENAMED_OLD_NAME, notify::RENAMED_NEW_NAME)
        } else {
            (notify::REMOVED, notify::ADDED)
        };
        self.watches.changed(&old_path, gone, what);
        self.watches.changed(&new_path, came, what);
        if !directory {
            // Windows tells of a renamed file's attributes too.
            let what = notify::ATTRIBUTES | notify::CREATION;
            self.watches.changed(&new_path, notify::MODIFIED, what);
        }
        let by = self.opens.get(id).and_then(|open| open.parent_key.map(|key| (open.client, key)));
        self.directory_changed(link.parent, by);
        if new.parent != link.parent {
            self.directory_changed(new.parent, by);
        }
        Ok(())
    }

    /// Where `to` leads, from the root through which the open was made, and the new name as the client spells it.
    fn target_of<'a>(&mut self, id: OpenId, to: &'a [u16]) -> Result<(Target, &'a [u16]), Halt> {
        let root = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.root;
        let parsed = path::parse(to)?;
        if parsed.stream.is_some() || parsed.data_type || parsed.directory_type {
            return Err(NtStatus::OBJECT_NAME_INVALID.into());
        }
        let target = self.walk(root, &parsed)?;
        let last = parsed.names().last().copied().unwrap_or_default();
        Ok((target, last))
    }

    /// What is open by a name that becomes longer counts for more: whoever renames has to have that much room left.
    fn check_room_for_path(
        &self,
        id: OpenId,
        link: &LinkName,
        old_path: &[u16],
        new_path_units: usize,
    ) -> Result<(), NtStatus> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let Some(node) = self.files.get(&open.stream.file) else { return Ok(()) };
        if places_of(new_path_units) <= places_of(old_path.len()) {
            return Ok(());
        }
        let moved = node.opens.iter().filter_map(|id| self.opens.get(id));
        let moved = moved.filter(|open| open.link.as_ref() == Some(link));
        let grown = moved.map(|open| {
            let units = new_path_units + open.path.len().saturating_sub(old_path.len());
            places_of(units).saturating_sub(open.places)
        });
        if self.may_have(&open.token.user, grown.sum()) {
            Ok(())
        } else {
            Err(NtStatus::INSUFFICIENT_RESOURCES)
        }
    }

    /// A directory with something open below it stays where it is.
    fn check_opens_below(&mut self, directory: &[u16]) -> Result<(), Halt> {
        self.turn.spend(u32::try_from(self.opens.len()).unwrap_or(u32::MAX));
        let below: Vec<OpenId> = self
            .opens
            .iter()
            .filter(|(_, open)| {
                path::strip_directory(&open.path, directory).is_some_and(|rest| !rest.is_empty())
            })
            .map(|(id, _)| id)
            .collect();
        let mut refused = false;
        for id in below {
            let Some(stream) = self.opens.get(id).map(|open| open.stream) else { continue };
            if self.cached_state(id).contains(LeaseState::HANDLE)
                && self.ask(&BreakRequest::of_handles(stream))?
            {
                return Err(Halt::Break(stream.file));
            }
            refused = true;
        }
        if refused { Err(NtStatus::ACCESS_DENIED.into()) } else { Ok(()) }
    }

    /// The directory is opened for the new entry, as it were: access and share modes count.
    fn check_target_directory(&mut self, id: OpenId, parent: FileId, directory: bool) -> Result<(), Halt> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let token = open.token.clone();
        let right = if directory { rights::ADD_SUBDIRECTORY } else { rights::ADD_FILE };
        let attributes = self.fs.attributes(parent)?;
        let descriptor = self.descriptor(&attributes)?;
        let request = AccessRequest { desired: right, backup_intent: false, from_parent: 0 };
        security::access_check(&descriptor, &token, request)?;
        let mode = ShareMode { access: right, share: SHARE_READ | SHARE_WRITE, stream: 0 };
        if self.violates(mode, StreamId::unnamed(parent)) {
            return Err(NtStatus::SHARING_VIOLATION.into());
        }
        if self.files.get(&parent).is_some_and(|node| !node.deleting.is_empty()) {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        Ok(())
    }

    /// What has the target's name already.
    fn check_replaced(
        &mut self,
        id: OpenId,
        target: &Target,
        replace: bool,
        directory: bool,
    ) -> Result<(), Halt> {
        let Some(old) = target.file else { return Ok(()) };
        if !replace {
            return Err(NtStatus::OBJECT_NAME_COLLISION.into());
        }
        if old.directory || directory || old.attributes & attribute::READONLY != 0 {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        let stream = StreamId::unnamed(old.file);
        if self.files.get(&old.file).is_some_and(|node| !node.opens.is_empty()) {
            let request = BreakRequest { oplocks: true, ..BreakRequest::of_handles(stream) };
            if self.ask(&request)? {
                return Err(Halt::Break(old.file));
            }
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        let token = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?.token.clone();
        let parent = target.own_link().map(|link| link.parent);
        let from_parent = parent.map_or(Ok(0), |parent| self.parent_grants(parent, &token))?;
        let descriptor = self.descriptor(&old)?;
        let request = AccessRequest { desired: rights::DELETE, backup_intent: false, from_parent };
        security::access_check(&descriptor, &token, request)?;
        Ok(())
    }

    fn forget_replaced(&mut self, replaced: Option<Unlinked>) {
        if let Some(Unlinked { file, last: true }) = replaced {
            self.reclaims.push_back(StreamId { file, index: WHOLE_FILE });
        }
    }

    /// Opens by the old name are by the new one.
    fn moved(&mut self, file: FileId, old: &LinkName, new: &LinkName, old_path: &[u16], new_path: &[u16]) {
        let Some(node) = self.files.get(&file) else { return };
        for id in node.opens.iter() {
            let Some(open) = self.opens.get_mut(id) else { continue };
            if open.link.as_ref() != Some(old) {
                continue;
            }
            open.link = Some(new.clone());
            let mut path = new_path.to_vec();
            if let Some(stream) = open.path.strip_prefix(old_path) {
                path.extend_from_slice(stream);
            }
            self.owners.resized(open, places_of(path.len()));
            open.path = path.into();
            self.watches.moved(id, &open.path);
        }
    }

    fn rename_stream(&mut self, id: OpenId, to: &[u16], replace: bool) -> Result<(), Halt> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let (stream, old_path) = (open.stream, open.path.clone());
        let base_units = old_path.iter().position(|unit| *unit == u16::from(b':')).unwrap_or(old_path.len());
        let name = path::parse_stream_target(to).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        if stream.index == 0 || name.is_empty() {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        let now = self.time();
        match self.fs.rename_stream(stream, name, now) {
            Err(FsError::Exists) if replace => {
                let old = self.fs.find_stream(stream.file, name)?;
                let node = self.files.get(&stream.file);
                let open = node.is_some_and(|node| node.opens.of_stream(old.index) > 0);
                // Only an empty stream that nobody has open gives way.
                if open || self.fs.stream_information(old)?.end_of_file > 0 {
                    return Err(NtStatus::INVALID_PARAMETER.into());
                }
                self.fs.unlink_stream(old, now)?;
                self.reclaims.push_back(old);
                self.fs.rename_stream(stream, name, now)?;
            }
            result => result?,
        }
        let mut new_path = old_path[..base_units].to_vec();
        new_path.push(u16::from(b':'));
        new_path.extend_from_slice(name);
        for other in self.files.get(&stream.file).iter().flat_map(|node| node.opens.iter()) {
            if let Some(open) = self.opens.get_mut(other)
                && open.stream == stream
            {
                self.owners.resized(open, places_of(new_path.len()));
                open.path = new_path.clone().into();
            }
        }
        self.watches.changed(&old_path, notify::REMOVED_STREAM, notify::STREAM_NAME);
        self.watches.changed(&new_path, notify::ADDED_STREAM, notify::STREAM_NAME);
        Ok(())
    }

    pub(super) fn link(&mut self, id: OpenId, to: &[u16], replace: bool) -> Result<(), Halt> {
        let open = self.open_for(id, 0)?;
        let (stream, directory) = (open.stream, open.directory);
        if directory || stream.index != 0 {
            let status = if directory { NtStatus::FILE_IS_A_DIRECTORY } else { NtStatus::INVALID_PARAMETER };
            return Err(status.into());
        }
        let (target, last) = self.target_of(id, to)?;
        let new = target.own_link().cloned().ok_or(NtStatus::OBJECT_NAME_COLLISION)?;
        self.check_target_directory(id, new.parent, false)?;
        let now = self.time();
        if target.file.is_some() {
            self.check_replaced(id, &target, replace, false)?;
            self.fs.settle_data(stream.file)?;
            let unlinked = self.fs.unlink(new.parent, &new.name, now)?;
            self.forget_replaced(Some(unlinked));
        }
        let spelled = spelled(last, &new.name);
        self.fs.link(stream.file, new.parent, spelled, now)?;
        let new_path = path::join(target.directory.whole(), spelled);
        self.watches.changed(&new_path, notify::ADDED, notify::FILE_NAME);
        let by = self.opens.get(id).and_then(|open| open.parent_key.map(|key| (open.client, key)));
        self.directory_changed(new.parent, by);
        Ok(())
    }
}

/// The name `last` as the client spells it, but for one that is the short name of an entry: then that entry's own.
fn spelled<'a>(last: &'a [u16], entry: &'a [u16]) -> &'a [u16] {
    if names_equal(last, entry) { last } else { entry }
}
