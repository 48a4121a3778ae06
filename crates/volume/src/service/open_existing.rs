//! CREATE of an existing file: access, share modes, breaks, overwriting (MS-FSA 2.1.5.1.2).

use super::access;
use super::caching::{BreakRequest, disturbs};
use super::durable::replace_instance;
use super::establish::{PreparedOpen, lease_name, parent_lease, settable};
use super::grant::{self, Effect};
use super::make_file::{allocate, make_stream};
use super::notify;
use super::opens::Opens;
use super::options;
use super::parts::Parts;
use super::path::ParsedPath;
use super::quotas;
use super::share::ShareMode;
use super::suspend::{Suspend, ea_status};
use super::tasks::Attempt;
use super::walk::Target;
use crate::backend::{Create, CreateAction, Disposition, LeaseState};
use crate::fs::{AttributeChange, Attributes, FsError, StreamId, check_extended_attributes};
use crate::security::rights;
use types::{NtStatus, attribute};

/// Returns the effect of a disposition on an existing stream.
const fn action_of(disposition: Disposition) -> Result<Option<CreateAction>, NtStatus> {
    match disposition {
        Disposition::Create => Err(NtStatus::OBJECT_NAME_COLLISION),
        Disposition::Open | Disposition::OpenIf => Ok(None),
        Disposition::Overwrite | Disposition::OverwriteIf => Ok(Some(CreateAction::Overwritten)),
        Disposition::Supersede => Ok(Some(CreateAction::Superseded)),
    }
}

/// An existing file that is being opened.
pub struct Existing<'a> {
    pub create: &'a Create,
    pub parsed: &'a ParsedPath<'a>,
    pub target: &'a Target,
    pub file: Attributes,
}

/// Effect of the create on the file.
#[derive(Clone, Copy)]
struct Plan {
    /// The stream; none if it has to be made.
    stream: Option<StreamId>,
    /// Change of the stream's content, if any.
    action: Option<CreateAction>,
}

impl Plan {
    const fn effect(self) -> Effect {
        match self.action {
            Some(CreateAction::Superseded) => Effect::Supersedes,
            Some(_) => Effect::Overwrites,
            None if self.stream.is_none() => Effect::MakesStream,
            None => Effect::Opens,
        }
    }
}

impl Existing<'_> {
    /// Checks everything, waits for others if necessary, and then changes the file as the disposition says.
    pub fn run(&self, parts: &mut Parts<'_>, attempt: &Attempt) -> Result<PreparedOpen, Suspend> {
        let plan = self.plan(parts)?;
        let access = self.check_access(parts, plan)?;
        self.agree_with_others(parts, attempt, plan, access)?;
        let Some(stream) = plan.stream else {
            return self.make_stream(parts, access);
        };
        let directory = self.is_directory();
        if plan.action.is_some() {
            self.overwrite(parts, stream)?;
            allocate(parts, self.create, stream, directory)?;
        }
        // As stored, in any case in which the client wrote it.
        let stored = match self.parsed.stream {
            Some(_) => Some(parts.fs.stream_information(stream)?.name),
            None => None,
        };
        Ok(PreparedOpen {
            stream,
            directory,
            path: self.target.path(stored.as_deref()),
            link: self.target.link.clone(),
            access,
            action: plan.action.unwrap_or(CreateAction::Opened),
        })
    }

    fn is_directory(&self) -> bool {
        self.file.directory && self.parsed.stream.is_none()
    }

    /// Finds the stream, and checks that the request fits it.
    fn plan(&self, parts: &mut Parts<'_>) -> Result<Plan, Suspend> {
        let (create, file) = (self.create, self.file.file);
        let stream = match self.parsed.stream {
            None => Some(StreamId::unnamed(file)),
            Some(name) => match parts.fs.find_stream(file, name) {
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
        check_type(create, self.parsed, &self.file)?;
        let action = if stream.is_some() { action_of(create.disposition)? } else { None };
        if action.is_some() && self.is_directory() {
            return Err(NtStatus::FILE_IS_A_DIRECTORY.into());
        }
        check_deleting(parts.opens, self.target, stream.unwrap_or(StreamId::unnamed(file)))?;
        Ok(Plan { stream, action })
    }

    /// Returns the rights of the open.
    fn check_access(&self, parts: &mut Parts<'_>, plan: Plan) -> Result<u32, Suspend> {
        let (create, file) = (self.create, &self.file);
        let parent = self.target.own_link().map(|link| link.parent);
        let mut access = access::granted(parts, create, file, parent, plan.effect())?;
        let write_bits = rights::WRITE_DATA | rights::APPEND_DATA;
        let read_only = file.attributes & attribute::READONLY != 0;
        if read_only && !file.directory {
            let desired = rights::map_generic(create.desired_access);
            if plan.action.is_some() || desired & write_bits != 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
            access &= !write_bits;
        }
        if file.directory && self.parsed.stream.is_some() {
            let desired = rights::map_generic(create.desired_access) & write_bits;
            let changes = plan.stream.is_none() || plan.action.is_some() || desired != 0;
            if (changes || access & write_bits != 0)
                && !quotas::may_write_streams(parts, file, &create.caller.token)?
            {
                if changes {
                    return Err(NtStatus::ACCESS_DENIED.into());
                }
                access &= !write_bits;
            }
        }
        if create.options & options::DELETE_ON_CLOSE != 0 {
            if read_only && self.parsed.stream.is_none() {
                return Err(NtStatus::CANNOT_DELETE.into());
            }
            if access & rights::DELETE == 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
            if self.target.own_link().is_none() {
                return Err(NtStatus::CANNOT_DELETE.into());
            }
        }
        if plan.action.is_some() && self.parsed.stream.is_none() {
            let lost = file.attributes & !create.attributes & (attribute::HIDDEN | attribute::SYSTEM);
            if lost != 0 {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
        }
        Ok(access)
    }

    /// Checks share modes, and breaks others' caching.
    fn agree_with_others(
        &self,
        parts: &mut Parts<'_>,
        attempt: &Attempt,
        plan: Plan,
        access: u32,
    ) -> Result<(), Suspend> {
        let (create, file) = (self.create, self.file.file);
        let lease = lease_name(create);
        if let Some(name) = lease {
            parts.caching.check_lease_key(name, plan.stream)?;
        }
        replace_instance(parts, create, &self.file)?;
        // A stream about to be made has no opens to agree with, but its file may be opened for deletion.
        let checked = plan.stream.unwrap_or(StreamId { file, index: u32::MAX });
        let wanted = access | grant::beside(create, plan.effect());
        let mode = ShareMode { access: wanted, share: create.share_access, stream: checked.index };
        parts.agenda.turn.spend(parts.opens.steps_of(file));
        let violation = parts.opens.violates(mode, checked);
        let (oplocks, leases) = disturbs(wanted);
        let waits = parts.ask(&BreakRequest {
            stream: checked,
            by_lease: lease,
            by_open: None,
            keep: if plan.action.is_some() {
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
            return Err(Suspend::Break(file));
        }
        match violation {
            // The other open's client may return for it (MS-SMB2 3.3.5.9).
            true if parts.opens.violates_kept(mode, checked) => Err(NtStatus::FILE_NOT_AVAILABLE.into()),
            true => Err(NtStatus::SHARING_VIOLATION.into()),
            false => Ok(()),
        }
    }

    fn make_stream(&self, parts: &mut Parts<'_>, access: u32) -> Result<PreparedOpen, Suspend> {
        let name = self.parsed.stream.ok_or(NtStatus::INTERNAL_ERROR)?;
        let stream = make_stream(parts, self.file.file, name, self.target)?;
        if let Err(refused) = allocate(parts, self.create, stream, false) {
            if matches!(refused, Suspend::Status(_)) {
                let now = parts.time();
                parts.fs.unlink_stream(stream, now)?;
                parts.reclaims.add_stream(stream);
            }
            return Err(refused);
        }
        Ok(PreparedOpen {
            stream,
            directory: false,
            path: self.target.path(Some(name)),
            link: self.target.link.clone(),
            access,
            action: CreateAction::Created,
        })
    }

    /// Empties the file or stream. After a miss, all of it is repeated.
    fn overwrite(&self, parts: &mut Parts<'_>, stream: StreamId) -> Result<(), Suspend> {
        let (create, target, file) = (self.create, self.target, &self.file);
        let now = parts.time();
        if stream.index != 0 {
            parts.fs.set_end_of_file(stream, 0, now)?;
            let what = notify::STREAM_SIZE | notify::STREAM_WRITE;
            parts.watches.changed(target.path(None).whole(), notify::MODIFIED, what);
            return Ok(());
        }
        // Attributes that cannot be set are refused before anything is emptied.
        check_extended_attributes(&create.extended_attributes).map_err(ea_status)?;
        // Named streams are deleted with the old content, except for those that are open.
        for old in parts.fs.streams(file.file)? {
            if old.stream.index != 0 && !parts.opens.is_open(old.stream) {
                if parts.agenda.turn.is_spent() {
                    return Err(Suspend::Yield);
                }
                parts.fs.unlink_stream(old.stream, now)?;
                parts.reclaims.add_stream(old.stream);
                parts.spend_metadata();
            }
        }
        parts.fs.set_end_of_file(stream, 0, now)?;
        let named = settable(create.attributes, false)? | attribute::ARCHIVE;
        let change = AttributeChange {
            attributes: Some(named),
            written: Some(now),
            changed: Some(now),
            ..AttributeChange::default()
        };
        parts.fs.set_attributes(file.file, &change)?;
        if !create.extended_attributes.is_empty() || file.extended_attribute_bytes > 0 {
            let mut set = parts.fs.extended_attributes(file.file)?;
            set.iter_mut().for_each(|old| old.value.clear());
            set.extend(create.extended_attributes.iter().cloned());
            parts.fs.set_extended_attributes(file.file, &set, now).map_err(ea_status)?;
        }
        let what = notify::ATTRIBUTES | notify::SIZE | notify::LAST_WRITE;
        parts.watches.changed(target.path(None).whole(), notify::MODIFIED, what);
        if let Some(link) = &target.link {
            parts.directory_changed(link.parent, parent_lease(create));
        }
        Ok(())
    }
}

fn check_deleting(opens: &Opens, target: &Target, stream: StreamId) -> Result<(), NtStatus> {
    let Some(node) = opens.file(stream.file) else { return Ok(()) };
    let by_name = target.link.as_ref().is_some_and(|link| node.is_deleting_link(link));
    if by_name || node.is_deleting_stream(stream.index) { Err(NtStatus::DELETE_PENDING) } else { Ok(()) }
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
