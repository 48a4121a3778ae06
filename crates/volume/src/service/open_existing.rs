//! CREATE of what is there: access, share modes, breaks, overwriting (MS-FSA 2.1.5.1.2).

use super::breaks::BreakRequest;
use super::create::{Opening, Target, disturbs, lease_name, options, settable};
use super::grant::{self, Effect};
use super::information::ea_status;
use super::notify;
use super::path::ParsedPath;
use super::share::ShareMode;
use super::tasks::Attempt;
use super::{Halt, Service};
use crate::backend::{Create, CreateAction, Disposition, LeaseState};
use crate::fs::{AttributeChange, Attributes, FsError, StreamId, check_extended_attributes};
use crate::security::rights;
use types::{NtStatus, attribute};

/// What a disposition does to something that is there.
const fn effect(disposition: Disposition) -> Result<Option<CreateAction>, NtStatus> {
    match disposition {
        Disposition::Create => Err(NtStatus::OBJECT_NAME_COLLISION),
        Disposition::Open | Disposition::OpenIf => Ok(None),
        Disposition::Overwrite | Disposition::OverwriteIf => Ok(Some(CreateAction::Overwritten)),
        Disposition::Supersede => Ok(Some(CreateAction::Superseded)),
    }
}

impl Service {
    pub(super) fn open_existing(
        &mut self,
        create: &Create,
        attempt: &Attempt,
        parsed: &ParsedPath<'_>,
        target: &Target,
        file: Attributes,
    ) -> Result<Opening, Halt> {
        let stream = match parsed.stream {
            None => Some(StreamId::unnamed(file.file)),
            Some(name) => match self.fs.find_stream(file.file, name) {
                Ok(stream) => Some(stream),
                Err(FsError::NotFound) => None,
                Err(error) => return Err(error.into()),
            },
        };
        if stream.is_some() && create.disposition == Disposition::Create {
            return Err(NtStatus::OBJECT_NAME_COLLISION.into());
        }
        if stream.is_none() && matches!(create.disposition, Disposition::Open | Disposition::Overwrite) {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into());
        }
        let is_directory = file.directory && parsed.stream.is_none();
        check_type(create, parsed, &file)?;
        let action = if stream.is_some() { effect(create.disposition)? } else { None };
        if action.is_some() && is_directory {
            return Err(NtStatus::FILE_IS_A_DIRECTORY.into());
        }
        self.check_deleting(target, stream.unwrap_or(StreamId::unnamed(file.file)))?;

        let effect = match action {
            Some(CreateAction::Superseded) => Effect::Supersedes,
            Some(_) => Effect::Overwrites,
            None if stream.is_none() => Effect::MakesStream,
            None => Effect::Opens,
        };
        let beside = grant::beside(create, effect);
        let parent = target.own_link().map(|link| link.parent);
        let mut access = self.granted_access(create, &file, parent, effect)?;
        let write_bits = rights::WRITE_DATA | rights::APPEND_DATA;
        if file.attributes & attribute::READONLY != 0 && !file.directory {
            let desired = rights::map_generic(create.desired_access);
            if action.is_some() || desired & write_bits != 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
            access &= !write_bits;
        }
        if create.options & options::DELETE_ON_CLOSE != 0 {
            if file.attributes & attribute::READONLY != 0 && parsed.stream.is_none() {
                return Err(NtStatus::CANNOT_DELETE.into());
            }
            if access & rights::DELETE == 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
            if target.own_link().is_none() {
                return Err(NtStatus::CANNOT_DELETE.into());
            }
        }
        if action.is_some() && parsed.stream.is_none() {
            let lost = file.attributes & !create.attributes & (attribute::HIDDEN | attribute::SYSTEM);
            if lost != 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
        }
        let lease = lease_name(create);
        if let Some(name) = lease {
            self.check_lease_key(name, stream)?;
        }
        self.replace_instance(create, &file)?;
        // A stream about to be made has no opens to agree with, but its file may be opened for deletion.
        let checked = stream.unwrap_or(StreamId { file: file.file, index: u32::MAX });
        let mode = ShareMode { access: access | beside, share: create.share_access, stream: checked.index };
        let opens = self.files.get(&file.file).map_or(0, |node| node.opens.len());
        self.turn.spend(u32::try_from(opens).unwrap_or(u32::MAX));
        let violation = self.violates(mode, checked);
        let (oplocks, leases) = disturbs(access | beside);
        let waits = self.ask(&BreakRequest {
            stream: checked,
            by_lease: lease,
            by_open: None,
            keep: if action.is_some() {
                LeaseState::empty()
            } else if violation {
                !LeaseState::HANDLE
            } else {
                !LeaseState::WRITE
            },
            wait_for: if violation { LeaseState::HANDLE } else { LeaseState::WRITE },
            oplocks,
            leases,
            wait_for_breaking: attempt.again,
        })?;
        if waits {
            return Err(Halt::Break(file.file));
        }
        if violation {
            return Err(NtStatus::SHARING_VIOLATION.into());
        }

        let stream = match (stream, parsed.stream) {
            (Some(stream), _) => stream,
            (None, Some(name)) => {
                let made = self.make_stream(file.file, name, target)?;
                self.allocate(create, made, false)?;
                return Ok(Opening {
                    stream: made,
                    directory: false,
                    path: target.path(parsed.stream),
                    link: target.link.clone(),
                    access,
                    action: CreateAction::Created,
                });
            }
            (None, None) => return Err(NtStatus::INTERNAL_ERROR.into()),
        };
        if action.is_some() {
            self.overwrite(create, target, &file, stream)?;
            self.allocate(create, stream, is_directory)?;
        }
        // As stored, whatever case the client wrote.
        let stored = match parsed.stream {
            Some(_) => Some(self.fs.stream_information(stream)?.name),
            None => None,
        };
        Ok(Opening {
            stream,
            directory: is_directory,
            path: target.path(stored.as_deref()),
            link: target.link.clone(),
            access,
            action: action.unwrap_or(CreateAction::Opened),
        })
    }

    /// Whether an open of this mode cannot be beside those that are.
    pub(super) fn violates(&self, mode: ShareMode, stream: StreamId) -> bool {
        let Some(node) = self.files.get(&stream.file) else { return false };
        node.opens.iter().filter_map(|id| self.opens.get(id)).any(|open| !mode.agrees_with(open.share_mode()))
    }

    fn check_deleting(&self, target: &Target, stream: StreamId) -> Result<(), NtStatus> {
        let Some(node) = self.files.get(&stream.file) else { return Ok(()) };
        let by_name = target.link.as_ref().is_some_and(|link| node.deleting.contains(link));
        let by_stream = node.streams.get(&stream.index).is_some_and(|stream| stream.delete_pending);
        if by_name || by_stream { Err(NtStatus::DELETE_PENDING) } else { Ok(()) }
    }

    /// Empties what is there. Done again from its beginning where something was missing.
    fn overwrite(
        &mut self,
        create: &Create,
        target: &Target,
        file: &Attributes,
        stream: StreamId,
    ) -> Result<(), Halt> {
        let now = self.time();
        if stream.index != 0 {
            self.fs.set_end_of_file(stream, 0, now)?;
            let path = target.path(None);
            self.watches.changed(path.whole(), notify::MODIFIED, notify::STREAM_SIZE | notify::STREAM_WRITE);
            return Ok(());
        }
        // What cannot be set is refused before anything is emptied.
        check_extended_attributes(&create.extended_attributes).map_err(ea_status)?;
        // Named streams go with the old content, but for those that are open.
        for old in self.fs.streams(file.file)? {
            let node = self.files.get(&file.file);
            let open = node.is_some_and(|node| node.opens.of_stream(old.stream.index) > 0);
            if old.stream.index != 0 && !open {
                if self.turn.is_spent() {
                    return Err(Halt::Yield);
                }
                self.fs.unlink_stream(old.stream, now)?;
                self.reclaims.push_back(old.stream);
                self.turn.spend_metadata(self.fs.take_steps());
            }
        }
        self.fs.set_end_of_file(stream, 0, now)?;
        let named = settable(create.attributes, false)? | attribute::ARCHIVE;
        let change = AttributeChange {
            attributes: Some(named),
            written: Some(now),
            changed: Some(now),
            ..AttributeChange::default()
        };
        self.fs.set_attributes(file.file, &change)?;
        if !create.extended_attributes.is_empty() || file.extended_attribute_bytes > 0 {
            let mut set = self.fs.extended_attributes(file.file)?;
            set.iter_mut().for_each(|old| old.value.clear());
            set.extend(create.extended_attributes.iter().cloned());
            self.fs.set_extended_attributes(file.file, &set, now).map_err(ea_status)?;
        }
        let what = notify::ATTRIBUTES | notify::SIZE | notify::LAST_WRITE;
        self.watches.changed(target.path(None).whole(), notify::MODIFIED, what);
        if let Some(link) = &target.link {
            self.directory_changed(link.parent, super::create::parent_lease(create));
        }
        Ok(())
    }
}

fn check_type(create: &Create, parsed: &ParsedPath<'_>, file: &Attributes) -> Result<(), NtStatus> {
    if create.options & options::DIRECTORY_FILE != 0 && parsed.data_type {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    let wants_directory = create.options & options::DIRECTORY_FILE != 0 || parsed.directory_type;
    if wants_directory && !file.directory {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    let refuses_directory = create.options & options::NON_DIRECTORY_FILE != 0 || parsed.data_type;
    if refuses_directory && file.directory && parsed.stream.is_none() {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    Ok(())
}
