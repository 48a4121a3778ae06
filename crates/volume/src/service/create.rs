//! CREATE: options, the way to the file, dispositions, new files (MS-FSA 2.1.5.1, MS-SMB2 3.3.5.9).

use super::breaks;
use super::grant::{self, Effect, Grant};
use super::information::ea_status;
use super::notify;
use super::opens::{CacheHolder, Durable, FixedTimes, LinkName, Open, WriteTime, places_of};
use super::path::{self, ParsedPath, StoredPath};
use super::tasks::{Attempt, Outcome};
use super::{Halt, Service};
use crate::backend::{
    CacheRequest, Create, CreateAction, Created, Disposition, LeaseState, OpenId, Reply, ShareRoot,
    WideString,
};
use crate::fs::{Attributes, FileId, FsError, NewFile, StreamId, check_extended_attributes};
use crate::security::{self, AccessRequest, SecurityDescriptor, rights};
use std::rc::Rc;
use std::sync::Arc;
use types::{NtStatus, Sid, attribute};

/// NT create options (MS-SMB2 2.2.13).
pub mod options {
    pub const DIRECTORY_FILE: u32 = 0x0000_0001;
    pub const WRITE_THROUGH: u32 = 0x0000_0002;
    pub const NON_DIRECTORY_FILE: u32 = 0x0000_0040;
    pub const DELETE_ON_CLOSE: u32 = 0x0000_1000;
    pub const OPEN_FOR_BACKUP_INTENT: u32 = 0x0000_4000;
    pub const OPEN_REPARSE_POINT: u32 = 0x0020_0000;
    /// CREATE_TREE_CONNECTION, OPEN_BY_FILE_ID, RESERVE_OPFILTER.
    pub const NOT_SUPPORTED: u32 = 0x0010_2080;
    /// Bits without a meaning.
    pub const INVALID: u32 = 0xFF00_0000;
}

/// Attributes that a create may name; the rest is the file system's own, or nothing.
const VALID_ATTRIBUTES: u32 = 0x7FB7;

const SYMLINK_TAG: u32 = 0xA000_000C;

/// Where a path leads.
pub(super) struct Target {
    /// Directory and name; `None` for the volume's root.
    pub link: Option<LinkName>,
    /// It is the root of its caller, who sees neither that directory nor that name.
    pub is_root: bool,
    /// Where the directory lies; the root itself where it is that.
    pub directory: StoredPath,
    /// The file, if there is one.
    pub file: Option<Attributes>,
}

impl Target {
    /// Directory and name that the caller reaches and may change; `None` for its root.
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

    /// Length of [`Self::path`].
    fn path_units(&self, stream: Option<&[u16]>) -> usize {
        let name = self.own_link().map_or(0, |link| 1 + link.name.len());
        self.directory.whole().len() + name + stream.map_or(0, |stream| 1 + stream.len())
    }
}

/// What a create has come to, before it becomes an open.
pub(super) struct Opening {
    pub stream: StreamId,
    pub directory: bool,
    pub path: StoredPath,
    pub link: Option<LinkName>,
    pub access: u32,
    pub action: CreateAction,
}

impl Service {
    pub(super) fn create(&mut self, create: &mut Create, attempt: &mut Attempt) -> Result<Outcome, Halt> {
        if let Some(reply) = self.replayed(create, attempt)? {
            return Ok(Outcome::Reply(reply));
        }
        check_request(create)?;
        if self.too_many_parked() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
        }
        if create.time_warp.is_some() {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into());
        }
        let wide = path::with_backslashes(&create.path);
        let parsed = path::parse(&wide)?;
        if parsed.stream.is_some() && create.options & options::DIRECTORY_FILE != 0 {
            return Err(NtStatus::NOT_A_DIRECTORY.into());
        }
        if parsed.directory_type && create.options & options::NON_DIRECTORY_FILE != 0 {
            return Err(NtStatus::OBJECT_NAME_INVALID.into());
        }
        let through = create.options & options::OPEN_REPARSE_POINT == 0;
        let mut target = self.walk(create.caller.root, &parsed)?;
        self.make_room(&create.caller.token.user, places_of(target.path_units(parsed.stream)))?;
        if through
            && let Some(file) = &target.file
            && file.reparse_tag != 0
        {
            let file = *file;
            return Err(self.reparse(&file, 0));
        }
        // A try that was interrupted after it made the file goes on where it was.
        let made = attempt.made.filter(|made| target.file.is_some_and(|file| file.file == *made));
        let opening = match (&target.file, made) {
            (Some(file), None) => {
                let file = *file;
                self.open_existing(create, attempt, &parsed, &target, file)?
            }
            _ => self.make_file(create, attempt, &parsed, &mut target)?,
        };
        let created = self.establish(create, opening);
        Ok(Outcome::Reply(Reply::Created(Box::new(created))))
    }

    /// A user has no more opens than are left free, those whose clients are away among them: of these the longest away give way.
    fn make_room(&mut self, user: &Sid, places: usize) -> Result<(), NtStatus> {
        let mut given_up = 0;
        while !self.may_have(user, places.saturating_sub(given_up)) {
            let away = self.owners.longest_away(user).ok_or(NtStatus::TOO_MANY_OPENED_FILES)?;
            given_up += self.opens.get(away).map_or(1, |open| open.places);
            self.revoke(away);
        }
        Ok(())
    }

    /// Whether a user may have opens for so many more places: one who has none takes what is left.
    pub(super) fn may_have(&self, user: &Sid, places: usize) -> bool {
        let free = self.config.opens_max.saturating_sub(self.owners.count());
        let own = self.owners.count_of(user);
        if own == 0 { places <= free } else { places == 0 || own + 2 * places <= free }
    }

    /// Goes along the path from `root` downward. Traversing needs no right: everyone holds the privilege to bypass it.
    pub(super) fn walk(&mut self, root: ShareRoot, parsed: &ParsedPath<'_>) -> Result<Target, Halt> {
        let mut path = StoredPath::of_root(self.root_path(root)?);
        let mut directory = root.directory();
        let Some((last, ancestors)) = parsed.names().split_last() else {
            let link = self.root_link(root)?;
            let file = Some(self.fs.attributes(directory)?);
            return Ok(Target { link, is_root: true, directory: path, file });
        };
        for (index, name) in ancestors.iter().enumerate() {
            let entry = match self.lookup(directory, name) {
                Ok(entry) => entry,
                Err(FsError::NotFound | FsError::NotDirectory) => {
                    return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
                }
                Err(error) => return Err(error.into()),
            };
            let file = self.fs.attributes(entry.file)?;
            if file.reparse_tag != 0 {
                // Backslash and name of each that is left.
                let rest: usize = parsed.names()[index + 1..].iter().map(|name| name.len() + 1).sum();
                return Err(self.reparse(&file, (2 * rest).min(usize::from(u16::MAX)) as u16));
            }
            if !entry.directory {
                return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
            }
            directory = entry.file;
            path.enter(&entry.name);
        }
        let (name, file) = match self.lookup(directory, last) {
            Ok(entry) => (entry.name, Some(self.fs.attributes(entry.file)?)),
            Err(FsError::NotFound) => ((*last).into(), None),
            Err(FsError::NotDirectory) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into()),
            Err(error) => return Err(error.into()),
        };
        let link = Some(LinkName { parent: directory, name });
        Ok(Target { link, is_root: false, directory: path, file })
    }

    /// How an open that meets this reparse point ends.
    fn reparse(&mut self, file: &Attributes, unparsed_bytes: u16) -> Halt {
        if file.reparse_tag != SYMLINK_TAG {
            return NtStatus::IO_REPARSE_TAG_NOT_HANDLED.into();
        }
        match self.fs.reparse_data(file.file) {
            Ok(Some(data)) => Halt::Symlink { data, unparsed_bytes },
            Ok(None) => NtStatus::IO_REPARSE_DATA_INVALID.into(),
            Err(error) => error.into(),
        }
    }

    /// The rights of `create`'s caller on an existing file, on which it has that effect.
    pub(super) fn granted_access(
        &mut self,
        create: &Create,
        file: &Attributes,
        parent: Option<FileId>,
        effect: Effect,
    ) -> Result<u32, Halt> {
        let token = create.caller.token.clone();
        let desired = rights::map_generic(create.desired_access);
        let grant = Grant::of(&create.caller);
        grant.check(grant::needed_to_create(create, effect, None))?;
        let beside = grant::beside(create, effect);
        let maximum = desired & rights::MAXIMUM_ALLOWED != 0;
        let descriptor = self.descriptor(file)?;
        let backup_intent = create.options & options::OPEN_FOR_BACKUP_INTENT != 0;
        let mut request = AccessRequest { desired: desired | beside, backup_intent, from_parent: 0 };
        let mut granted = security::access_check(&descriptor, &token, request);
        if let Some(parent) = parent
            && (maximum || granted.is_err())
        {
            request.from_parent = self.parent_grants(parent, &token)?;
            granted = security::access_check(&descriptor, &token, request);
        }
        let mut granted = granted?;
        if maximum {
            granted = grant.limit(granted);
        }
        // What a disposition needs is checked, but not kept.
        Ok(if maximum { granted } else { granted & !(beside & !desired) })
    }

    pub(super) fn parent_grants(
        &mut self,
        parent: FileId,
        token: &crate::backend::AccessToken,
    ) -> Result<u32, Halt> {
        let attributes = self.fs.attributes(parent)?;
        let descriptor = self.descriptor(&attributes)?;
        Ok(security::parent_grants(security::maximal_access(&descriptor, token)))
    }

    /// A file, directory or stream that is not there yet.
    fn make_file(
        &mut self,
        create: &Create,
        attempt: &mut Attempt,
        parsed: &ParsedPath<'_>,
        target: &mut Target,
    ) -> Result<Opening, Halt> {
        let mut link = target.link.clone().ok_or(NtStatus::ACCESS_DENIED)?;
        if matches!(create.disposition, Disposition::Open | Disposition::Overwrite) {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into());
        }
        let directory = create.options & options::DIRECTORY_FILE != 0 && parsed.stream.is_none();
        if parsed.directory_type && !directory {
            return Err(NtStatus::OBJECT_NAME_INVALID.into());
        }
        let attributes = settable(create.attributes, directory)?;
        let delete_on_close = create.options & options::DELETE_ON_CLOSE != 0;
        if delete_on_close && attributes & attribute::READONLY != 0 {
            return Err(NtStatus::CANNOT_DELETE.into());
        }
        let desired = rights::map_generic(create.desired_access);
        let given = create.security.as_deref().map(SecurityDescriptor::parse).transpose()?;
        let grant = Grant::of(&create.caller);
        let effect = if directory { Effect::MakesDirectory } else { Effect::MakesFile };
        grant.check(grant::needed_to_create(create, effect, given.as_ref()))?;
        let token = create.caller.token.clone();
        let parent = self.fs.attributes(link.parent)?;
        let parent_descriptor = self.descriptor(&parent)?;
        let file = match attempt.made {
            Some(file) => file,
            None => {
                if self.files.get(&link.parent).is_some_and(|node| !node.deleting.is_empty()) {
                    return Err(NtStatus::DELETE_PENDING.into());
                }
                let right = if directory { rights::ADD_SUBDIRECTORY } else { rights::ADD_FILE };
                let request = AccessRequest {
                    desired: right,
                    backup_intent: create.options & options::OPEN_FOR_BACKUP_INTENT != 0,
                    from_parent: 0,
                };
                security::access_check(&parent_descriptor, &token, request)?;
                if desired & rights::ACCESS_SYSTEM_SECURITY != 0
                    && !token.privileges.contains(crate::backend::Privileges::SECURITY)
                {
                    return Err(NtStatus::PRIVILEGE_NOT_HELD.into());
                }
                let lease = lease_name(create);
                if let Some(name) = lease {
                    self.check_lease_key(name, None)?;
                }
                if let Some(long) = self.tunnelled(link.parent, &link.name)
                    && matches!(self.fs.lookup(link.parent, &long), Err(FsError::NotFound))
                {
                    link.name = long;
                    target.link = Some(link.clone());
                }
                check_extended_attributes(&create.extended_attributes).map_err(ea_status)?;
                let security =
                    security::inherit(&parent_descriptor, given.as_ref(), &token, directory)?.build()?;
                let file = self.new_file(&link, &security, directory, attributes)?;
                attempt.made = Some(file);
                let what = if directory { notify::DIR_NAME } else { notify::FILE_NAME };
                self.watches.changed(target.path(None).whole(), notify::ADDED, what);
                self.directory_changed(link.parent, parent_lease(create));
                file
            }
        };
        let stream = match parsed.stream {
            Some(name) => self.make_stream(file, name, target)?,
            None => StreamId::unnamed(file),
        };
        if !create.extended_attributes.is_empty() {
            let now = self.time();
            self.fs.set_extended_attributes(file, &create.extended_attributes, now).map_err(ea_status)?;
        }
        self.allocate(create, stream, directory)?;
        let access = if desired & rights::MAXIMUM_ALLOWED != 0 {
            grant.limit(rights::FILE_ALL | desired & rights::ACCESS_SYSTEM_SECURITY)
        } else {
            desired
        };
        Ok(Opening {
            stream,
            directory,
            path: target.path(parsed.stream),
            link: Some(link),
            access,
            action: CreateAction::Created,
        })
    }

    fn new_file(
        &mut self,
        link: &LinkName,
        security: &[u8],
        directory: bool,
        attributes: u32,
    ) -> Result<FileId, Halt> {
        let archive = if directory { 0 } else { attribute::ARCHIVE };
        let new = NewFile { directory, attributes: attributes | archive, now: self.time(), security };
        Ok(self.fs.create(link.parent, &link.name, &new)?)
    }

    pub(super) fn make_stream(
        &mut self,
        file: FileId,
        name: &[u16],
        target: &Target,
    ) -> Result<StreamId, Halt> {
        let now = self.time();
        let stream = match self.fs.create_stream(file, name, now) {
            Ok(stream) => stream,
            Err(FsError::Exists) => return Ok(self.fs.find_stream(file, name)?),
            Err(error) => return Err(error.into()),
        };
        let path = target.path(Some(name));
        self.watches.changed(path.whole(), notify::ADDED_STREAM, notify::STREAM_NAME);
        Ok(stream)
    }

    pub(super) fn allocate(
        &mut self,
        create: &Create,
        stream: StreamId,
        directory: bool,
    ) -> Result<(), Halt> {
        if let Some(bytes) = create.allocation_bytes
            && bytes > 0
            && !directory
        {
            let now = self.time();
            let information = self.fs.stream_information(stream)?;
            if bytes > information.allocation_bytes {
                self.fs.set_allocation(stream, bytes, now)?;
            }
        }
        Ok(())
    }

    /// Makes the open. Cannot fail: everything was checked and done.
    fn establish(&mut self, create: &Create, opening: Opening) -> Created {
        let Opening { stream, directory, path, link, access, action } = opening;
        let caller = &create.caller;
        let refuse = caller.share.no_caching;
        let (holder, cache) = self.grant(stream, directory, caller.client, create.cache, refuse);
        let handle_cached = match &holder {
            CacheHolder::Oplock(caching) => caching.state().contains(LeaseState::HANDLE),
            CacheHolder::Lease(name) => {
                self.leases.get(name).is_some_and(|lease| lease.caching.state().contains(LeaseState::HANDLE))
            }
            CacheHolder::None => false,
        };
        let durable: Option<Durable> = self.durable_for(create, handle_cached && !directory);
        let caches = self.caches(&holder);
        let open = Open {
            stream,
            place: 0,
            places: places_of(path.whole().len()),
            directory,
            path: path.whole().into(),
            link,
            root: caller.root,
            session: caller.session,
            client: caller.client,
            token: Arc::clone(&caller.token),
            share: caller.share,
            standing: caller.standing.clone(),
            granted_by_share: caller.share_access,
            access,
            share_access: create.share_access,
            options: create.options,
            holder,
            parent_key: parent_lease(create).map(|name| name.1),
            delete_on_close: create.options & options::DELETE_ON_CLOSE != 0,
            durable,
            create_guid: super::durable::create_guid(create),
            app_instance: create.app_instance,
            disconnected: None,
            closing: false,
            used: false,
            fixed_times: FixedTimes::empty(),
            sequences: None,
            write_time: WriteTime::default(),
            dirty: action != CreateAction::Opened,
            flushes: 0,
            modified: false,
            listing: None,
            create_action: action,
        };
        let id = self.opens.insert(open);
        let place = self.files.entry(stream.file).or_default().opens.insert(id, stream.index, caches);
        if let Some(open) = self.opens.get_mut(id) {
            open.place = place;
            self.owners.opened(id, open);
        }
        self.register(id, create);
        let mut created = self.describe(id, cache, path.below_root().into());
        if create.query_maximal_access {
            created.maximal_access = Some(self.maximal_access(id));
        }
        created
    }

    fn maximal_access(&mut self, id: OpenId) -> Result<u32, NtStatus> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let (file, token, grant) = (open.stream.file, open.token.clone(), open.grant());
        let parent = open.own_link().map(|link| link.parent);
        let result = (|| -> Result<u32, Halt> {
            let attributes = self.fs.attributes(file)?;
            let descriptor: Rc<SecurityDescriptor> = self.descriptor(&attributes)?;
            let from_parent = parent.map_or(Ok(0), |parent| self.parent_grants(parent, &token))?;
            Ok(security::maximal_access(&descriptor, &token) | from_parent)
        })();
        match result {
            Ok(access) => Ok(grant.limit(access)),
            Err(Halt::Status(status)) => Err(status),
            // Known a moment ago, and pushed out since.
            Err(_) => Ok(0),
        }
    }

    /// The answer to a create, for an open that exists; `path` is what its caller sees.
    pub(super) fn describe(
        &mut self,
        id: OpenId,
        cache: crate::backend::CacheGrant,
        path: WideString,
    ) -> Created {
        let information = self.information(id).unwrap_or_default();
        let Some(open) = self.opens.get(id) else {
            // The caller holds an identifier that it has just made or looked up.
            return Created {
                open: id,
                action: CreateAction::Opened,
                cache,
                information,
                granted_access: 0,
                maximal_access: None,
                durable: None,
                persistent: false,
                path,
                is_stream: false,
            };
        };
        Created {
            open: id,
            action: open.create_action,
            cache,
            information,
            granted_access: open.access,
            maximal_access: None,
            durable: open.durable.map(|durable| durable.timeout),
            persistent: false,
            path,
            is_stream: open.stream.index != 0,
        }
    }
}

/// The name of the lease that a create asks for.
pub(super) fn lease_name(create: &Create) -> Option<super::opens::LeaseName> {
    match &create.cache {
        CacheRequest::Lease(lease) => Some((create.caller.client, lease.key)),
        CacheRequest::Oplock(_) => None,
    }
}

/// The name of its lease on the directory.
pub(super) fn parent_lease(create: &Create) -> Option<super::opens::LeaseName> {
    match &create.cache {
        CacheRequest::Lease(lease) => Some((create.caller.client, lease.version_2?.parent_key?)),
        CacheRequest::Oplock(_) => None,
    }
}

fn check_request(create: &Create) -> Result<(), NtStatus> {
    let options = create.options;
    if options & options::INVALID != 0 || create.share_access & !7 != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if options & options::NOT_SUPPORTED != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if options & options::DIRECTORY_FILE != 0 {
        let overwrites = matches!(
            create.disposition,
            Disposition::Supersede | Disposition::Overwrite | Disposition::OverwriteIf
        );
        if options & options::NON_DIRECTORY_FILE != 0 || overwrites {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    if create.desired_access & !rights::VALID != 0 || create.desired_access == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if create.attributes & !VALID_ATTRIBUTES != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let may_delete = rights::DELETE | rights::GENERIC_ALL | rights::MAXIMUM_ALLOWED;
    if options & options::DELETE_ON_CLOSE != 0 && create.desired_access & may_delete == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

/// The attributes that a file gets of those a client names.
///
/// # Errors
/// INVALID_PARAMETER for a temporary directory.
pub(super) fn settable(named: u32, directory: bool) -> Result<u32, NtStatus> {
    if directory && named & attribute::TEMPORARY != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(named & !(attribute::NORMAL | attribute::DIRECTORY))
}

/// Whether an open disturbs what others cache of the file at all.
pub(super) const fn disturbs(access: u32) -> (bool, bool) {
    (!breaks::is_oplock_stat(access), !breaks::is_lease_stat(access))
}
