//! CREATE of something new: a file, a directory, or a stream with its file (MS-FSA 2.1.5.1.1).

use super::close;
use super::durable::is_persistent;
use super::establish::{PreparedOpen, lease_name, parent_lease, settable};
use super::grant::{self, Effect, Grant};
use super::inheritance;
use super::notify;
use super::open::LinkName;
use super::options;
use super::parts::Parts;
use super::path::ParsedPath;
use super::suspend::{Suspend, ea_status};
use super::tasks::Attempt;
use super::walk::Target;
use crate::backend::{Create, CreateAction, Disposition, Privileges};
use crate::fs::{FileId, FsError, NewFile, StreamId, check_extended_attributes};
use crate::planted::Planted;
use crate::security::{self, AccessRequest, SecurityDescriptor, rights};
use types::{NtStatus, attribute};

/// A file that is being made, after everything was checked that does not need the directory.
pub struct Making<'a> {
    create: &'a Create,
    parsed: &'a ParsedPath<'a>,
    target: Target,
    link: LinkName,
    directory: bool,
    attributes: u32,
    /// The descriptor that came with the create.
    given: Option<SecurityDescriptor>,
}

impl<'a> Making<'a> {
    pub fn new(create: &'a Create, parsed: &'a ParsedPath<'a>, target: Target) -> Result<Self, NtStatus> {
        let link = target.link.clone().ok_or(NtStatus::ACCESS_DENIED)?;
        if matches!(create.disposition, Disposition::Open | Disposition::Overwrite) {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        }
        let directory = create.options & options::DIRECTORY_FILE != 0 && parsed.stream.is_none();
        if parsed.directory_type && !directory {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
        let attributes = settable(create.attributes, directory)?;
        let delete_on_close = create.options & options::DELETE_ON_CLOSE != 0;
        if delete_on_close && attributes & attribute::READONLY != 0 {
            return Err(NtStatus::CANNOT_DELETE);
        }
        let given = create.security.as_deref().map(SecurityDescriptor::parse).transpose()?;
        let effect = if directory { Effect::MakesDirectory } else { Effect::MakesFile };
        Grant::of(&create.caller).check(grant::needed_to_create(create, effect, given.as_ref()))?;
        Ok(Self { create, parsed, target, link, directory, attributes, given })
    }

    /// Makes the file, or continues with the one that an earlier try made.
    pub fn run(mut self, parts: &mut Parts<'_>, attempt: &mut Attempt) -> Result<PreparedOpen, Suspend> {
        let parent = parts.fs.attributes(self.link.parent)?;
        let parent_descriptor = parts.descriptor(&parent)?;
        let file = match attempt.made {
            Some(file) => file,
            None => {
                self.check(parts, &parent_descriptor)?;
                let file = self.make(parts, &parent_descriptor)?;
                attempt.made = Some(file);
                if is_persistent(self.create) {
                    attempt.made_link = Some(Box::new(self.link.clone()));
                }
                self.tell(parts);
                file
            }
        };
        let stream = match self.fill(parts, file) {
            // The answer says that nothing was made: the name is free, and nothing is charged for it.
            Err(Suspend::Status(status)) if !Planted::RefusedCreateStays.is_planted() => {
                close::remove_link(parts, file, &self.link, self.directory, None)?;
                parts.replays.finish(attempt, parts.agenda);
                (attempt.made, attempt.made_link) = (None, None);
                return Err(status.into());
            }
            filled => filled?,
        };
        Ok(PreparedOpen {
            stream,
            directory: self.directory,
            path: self.target.path(self.parsed.stream),
            link: Some(self.link),
            access: access_of_maker(self.create),
            action: CreateAction::Created,
        })
    }

    /// Sets all properties of a new file that the create requests beside its name.
    fn fill(&self, parts: &mut Parts<'_>, file: FileId) -> Result<StreamId, Suspend> {
        let stream = match self.parsed.stream {
            Some(name) => make_stream(parts, file, name, &self.target)?,
            None => StreamId::unnamed(file),
        };
        let set = &self.create.extended_attributes;
        if !set.is_empty() {
            let now = parts.time();
            parts.fs.set_extended_attributes(file, set, now).map_err(ea_status)?;
        }
        allocate(parts, self.create, stream, self.directory)?;
        Ok(stream)
    }

    /// Checks that the caller may make an entry in the directory.
    fn check(&self, parts: &mut Parts<'_>, parent_descriptor: &SecurityDescriptor) -> Result<(), Suspend> {
        let (create, token) = (self.create, &self.create.caller.token);
        if parts.opens.is_deleting(self.link.parent) {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        let right = if self.directory { rights::ADD_SUBDIRECTORY } else { rights::ADD_FILE };
        let request = AccessRequest {
            desired: right,
            backup_intent: create.options & options::OPEN_FOR_BACKUP_INTENT != 0,
            from_parent: 0,
        };
        security::access_check(parent_descriptor, token, request)?;
        if rights::map_generic(create.desired_access) & rights::ACCESS_SYSTEM_SECURITY != 0
            && !token.privileges.contains(Privileges::SECURITY)
        {
            return Err(NtStatus::PRIVILEGE_NOT_HELD.into());
        }
        if let Some(name) = lease_name(create) {
            parts.caching.check_lease_key(name, None)?;
        }
        Ok(())
    }

    fn make(
        &mut self,
        parts: &mut Parts<'_>,
        parent_descriptor: &SecurityDescriptor,
    ) -> Result<FileId, Suspend> {
        let inherited = if self.directory { None } else { inheritance::find(parts, &mut self.link)? };
        self.target.link = Some(self.link.clone());
        check_extended_attributes(&self.create.extended_attributes).map_err(ea_status)?;
        let token = &self.create.caller.token;
        let security =
            security::inherit(parent_descriptor, self.given.as_ref(), token, self.directory)?.build()?;
        let archive = if self.directory { 0 } else { attribute::ARCHIVE };
        let new = NewFile {
            directory: self.directory,
            attributes: self.attributes | archive,
            now: parts.time(),
            security: &security,
        };
        let file = parts.fs.create(self.link.parent, &self.link.name, &new)?;
        inheritance::inherit(parts, file, &self.link, inherited);
        Ok(file)
    }

    /// Notifies watchers and holders of leases on the directory.
    fn tell(&self, parts: &mut Parts<'_>) {
        let what = if self.directory { notify::DIR_NAME } else { notify::FILE_NAME };
        parts.watches.changed(self.target.path(None).whole(), notify::ADDED, what);
        parts.directory_changed(self.link.parent, parent_lease(self.create));
    }
}

/// Returns the rights of an open that made its file: its descriptor is not asked.
fn access_of_maker(create: &Create) -> u32 {
    let desired = rights::map_generic(create.desired_access);
    if desired & rights::MAXIMUM_ALLOWED != 0 {
        Grant::of(&create.caller).limit(rights::FILE_ALL | desired & rights::ACCESS_SYSTEM_SECURITY)
    } else {
        desired
    }
}

/// Makes a named stream, or finds the one that an earlier try made.
pub fn make_stream(
    parts: &mut Parts<'_>,
    file: FileId,
    name: &[u16],
    target: &Target,
) -> Result<StreamId, Suspend> {
    let now = parts.time();
    let stream = match parts.fs.create_stream(file, name, now) {
        Ok(stream) => stream,
        Err(FsError::Exists) => return Ok(parts.fs.find_stream(file, name)?),
        Err(error) => return Err(error.into()),
    };
    let path = target.path(Some(name));
    parts.watches.changed(path.whole(), notify::ADDED_STREAM, notify::STREAM_NAME);
    Ok(stream)
}

/// Allocates the space that a create requests.
pub fn allocate(
    parts: &mut Parts<'_>,
    create: &Create,
    stream: StreamId,
    directory: bool,
) -> Result<(), Suspend> {
    if let Some(bytes) = create.allocation_bytes
        && bytes > 0
        && !directory
    {
        let now = parts.time();
        let information = parts.fs.stream_information(stream)?;
        if bytes > information.allocation_bytes {
            parts.fs.set_allocation(stream, bytes, now)?;
        }
    }
    Ok(())
}
