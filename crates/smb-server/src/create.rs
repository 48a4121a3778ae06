//! CREATE (MS-SMB2 3.3.5.9): create contexts in and out, durable handles and their reconnect, the wire identity of what was opened.

use crate::budget::HolderId;
use crate::directory::Directory;
use crate::dispatch::Element;
use crate::extended_attributes::read_eas;
use crate::open::{Enumeration, LeaseHome, Open, OpenKind};
use crate::request::{Body, Context, Step, Work};
use crate::server::{Server, UNATTENDED};
use crate::session::Target;
use smb::wire::{
    AppInstanceId, AppInstanceVersion, CLOSE_FLAG_POSTQUERY_ATTRIB, CONTEXT_ALLOCATION_SIZE,
    CONTEXT_APP_INSTANCE_ID, CONTEXT_APP_INSTANCE_VERSION, CONTEXT_DURABLE_RECONNECT,
    CONTEXT_DURABLE_RECONNECT_V2, CONTEXT_DURABLE_REQUEST, CONTEXT_DURABLE_REQUEST_V2,
    CONTEXT_EXTENDED_ATTRIBUTES, CONTEXT_LEASE, CONTEXT_MAXIMAL_ACCESS, CONTEXT_ON_DISK_ID,
    CONTEXT_SECURITY_DESCRIPTOR, CONTEXT_TIME_WARP, CreateContextWriter, CreateRequest, CreateResponseBody,
    DURABLE_FLAG_PERSISTENT, Dialect, DurableReconnectV2, DurableRequestV2, DurableResponseV2, FILE_CREATE,
    FILE_OPEN, FILE_OPEN_IF, FILE_OVERWRITE, FILE_OVERWRITE_IF, FILE_SUPERSEDE, FileId, Guid, HeaderFlags,
    LEASE_FLAG_BREAK_IN_PROGRESS, LEASE_FLAG_PARENT_LEASE_KEY_SET, Lease, LeaseV1, LeaseV2,
    MaximalAccessResponse, OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_EXCLUSIVE, OPLOCK_LEVEL_II, OPLOCK_LEVEL_LEASE,
    OPLOCK_LEVEL_NONE, OnDiskIdResponse, U64, view_at, write_create_response,
};
use std::time::Duration;
use types::{FileTime, Monotonic, NtStatus};
use volume::backend::{
    AppInstance, Backend, CacheGrant, CacheRequest, Create, CreateAction, Created, Disposition,
    DurableRequest, ExtendedAttribute, LeaseRequest, LeaseState, LeaseVersion2, OpenId, Operation,
    OplockLevel, Reconnect,
};

const FILE_DIRECTORY_FILE: u32 = 1;
const FILE_NON_DIRECTORY_FILE: u32 = 0x40;
/// Options that are refused rather than ignored: FILE_CREATE_TREE_CONNECTION, FILE_RESERVE_OPFILTER, FILE_OPEN_BY_FILE_ID.
const UNSUPPORTED_OPTIONS: u32 = 0x80 | 0x2000 | 0x10_0000;
/// Bits of CreateOptions that mean something; MS-SMB2 has no others.
const VALID_OPTIONS: u32 = 0x00FF_FFFF;
const IMPERSONATION_LEVEL_MAX: u32 = 3;
/// Of memory that an extended attribute takes beside its bytes on the wire.
const EXTENDED_ATTRIBUTE_BYTES: usize = 128;

/// What the answer needs of the request.
pub(crate) struct CreateWork {
    volume: usize,
    tree_id: u32,
    want_maximal_access: bool,
    want_on_disk_id: bool,
    durable_version: Option<u8>,
    reconnect: bool,
    create_options: u32,
    volume_id: u64,
}

impl CreateWork {
    /// Whether the client can find what it opens without having been answered.
    pub fn is_replayable(&self) -> bool {
        self.durable_version == Some(2)
    }
}

/// The create contexts of a request, as far as the server knows them.
#[derive(Default)]
struct Contexts<'a> {
    extended_attributes: Vec<ExtendedAttribute>,
    security: Option<&'a [u8]>,
    allocation: Option<u64>,
    time_warp: Option<FileTime>,
    lease: Option<LeaseRequest>,
    durable: bool,
    durable_v2: Option<DurableRequestV2>,
    reconnect: Option<FileId>,
    reconnect_v2: Option<DurableReconnectV2>,
    app_instance: Option<Guid>,
    app_version: Option<(u64, u64)>,
    maximal_access: bool,
    on_disk_id: bool,
}

impl<'a> Contexts<'a> {
    fn read(request: &CreateRequest<'a>, dialect: Dialect) -> Result<Self, NtStatus> {
        let mut found = Self::default();
        for context in request.contexts()? {
            let context = context?;
            let data = context.data;
            match context.name {
                // One list: its length is bounded.
                CONTEXT_EXTENDED_ATTRIBUTES if found.extended_attributes.is_empty() => {
                    found.extended_attributes = read_eas(data, NtStatus::INVALID_PARAMETER)?;
                }
                CONTEXT_EXTENDED_ATTRIBUTES => return Err(NtStatus::INVALID_PARAMETER),
                CONTEXT_SECURITY_DESCRIPTOR => found.security = Some(data),
                CONTEXT_ALLOCATION_SIZE => {
                    found.allocation = Some(view_at::<U64>(data, 0)?.get());
                }
                CONTEXT_TIME_WARP => {
                    found.time_warp = Some(FileTime(view_at::<U64>(data, 0)?.get()));
                }
                CONTEXT_MAXIMAL_ACCESS => {
                    if !matches!(data.len(), 0 | 8) {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    found.maximal_access = true;
                }
                CONTEXT_ON_DISK_ID => found.on_disk_id = true,
                CONTEXT_LEASE if dialect >= Dialect::Smb210 => {
                    let lease = Lease::parse(data)?;
                    found.lease = lease_request(lease, dialect);
                }
                CONTEXT_DURABLE_REQUEST => {
                    if data.len() != 16 {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    found.durable = true;
                }
                CONTEXT_DURABLE_RECONNECT => {
                    found.reconnect = Some(*view_at::<FileId>(data, 0)?);
                }
                CONTEXT_DURABLE_REQUEST_V2 if dialect >= Dialect::Smb300 => {
                    found.durable_v2 = Some(*view_at(data, 0)?);
                }
                CONTEXT_DURABLE_RECONNECT_V2 if dialect >= Dialect::Smb300 => {
                    found.reconnect_v2 = Some(*view_at(data, 0)?);
                }
                CONTEXT_APP_INSTANCE_ID if dialect >= Dialect::Smb300 => {
                    found.app_instance = Some(view_at::<AppInstanceId>(data, 0)?.id);
                }
                CONTEXT_APP_INSTANCE_VERSION if dialect >= Dialect::Smb311 => {
                    let version = view_at::<AppInstanceVersion>(data, 0)?;
                    found.app_version = Some((version.high.get(), version.low.get()));
                }
                _ => {}
            }
        }
        // One way at a time to be durable (MS-SMB2 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12).
        let reconnects = found.reconnect.is_some() || found.reconnect_v2.is_some();
        if request.requested_oplock_level != OPLOCK_LEVEL_LEASE && !reconnects {
            // Only a reconnect names its lease without asking for one.
            found.lease = None;
        }
        let version_2 = found.durable_v2.is_some() || found.reconnect_v2.is_some();
        if found.reconnect.is_some() && version_2
            || found.reconnect_v2.is_some() && (found.durable || found.durable_v2.is_some())
            || found.durable && found.durable_v2.is_some() && !reconnects
        {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(found)
    }
}

fn lease_request(lease: Lease<'_>, dialect: Dialect) -> Option<LeaseRequest> {
    Some(match lease {
        Lease::V1(v1) => LeaseRequest {
            key: v1.key,
            state: LeaseState::from_bits_truncate(v1.state.get()),
            version_2: None,
        },
        Lease::V2(v2) => {
            if dialect < Dialect::Smb300 {
                return None;
            }
            let has_parent = v2.flags.get() & LEASE_FLAG_PARENT_LEASE_KEY_SET != 0;
            LeaseRequest {
                key: v2.key,
                state: LeaseState::from_bits_truncate(v2.state.get()),
                version_2: Some(LeaseVersion2 {
                    parent_key: has_parent.then_some(v2.parent_key),
                    epoch: v2.epoch.get(),
                }),
            }
        }
    })
}

fn disposition(number: u32) -> Result<Disposition, NtStatus> {
    Ok(match number {
        FILE_SUPERSEDE => Disposition::Supersede,
        FILE_OPEN => Disposition::Open,
        FILE_CREATE => Disposition::Create,
        FILE_OPEN_IF => Disposition::OpenIf,
        FILE_OVERWRITE => Disposition::Overwrite,
        FILE_OVERWRITE_IF => Disposition::OverwriteIf,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    })
}

fn oplock_level(level: u8) -> OplockLevel {
    match level {
        OPLOCK_LEVEL_II => OplockLevel::LevelII,
        OPLOCK_LEVEL_EXCLUSIVE => OplockLevel::Exclusive,
        OPLOCK_LEVEL_BATCH => OplockLevel::Batch,
        _ => OplockLevel::None,
    }
}

/// The wire's number of a granted oplock or lease.
pub(crate) fn wire_oplock_level(grant: &CacheGrant) -> u8 {
    match grant {
        CacheGrant::Lease { .. } => OPLOCK_LEVEL_LEASE,
        CacheGrant::Oplock(OplockLevel::None) => OPLOCK_LEVEL_NONE,
        CacheGrant::Oplock(OplockLevel::LevelII) => OPLOCK_LEVEL_II,
        CacheGrant::Oplock(OplockLevel::Exclusive) => OPLOCK_LEVEL_EXCLUSIVE,
        CacheGrant::Oplock(OplockLevel::Batch) => OPLOCK_LEVEL_BATCH,
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_create(
        &mut self,
        context: &mut Context,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let request = CreateRequest::parse(element.bytes())?;
        let dialect = self.dialect_of(context);
        let name = request.name()?;
        let session = self.session_of(context)?;
        if self.opens.len() >= self.config.limits.opens
            || session.opens.len() >= self.config.limits.opens_per_session
            || !self.open_shares.may_take(&session.token.user, 1)
        {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
        let tree = session.tree(context.tree_id).ok_or(NtStatus::NETWORK_NAME_DELETED)?.clone();
        let Target::Disk { volume, root, .. } = tree.target else {
            return self.create_pipe(context, &name, &request, now);
        };
        let caller = session.caller(context.session, &tree, root);
        let contexts = Contexts::read(&request, dialect)?;
        if request.create_contexts_length.get() as usize > self.config.limits.create_context_bytes {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        context.bytes += contexts.extended_attributes.len() * EXTENDED_ATTRIBUTE_BYTES;
        if name.first() == Some(&u16::from(b'\\')) {
            // With DFS_OPERATIONS the name starts with server and share; this server roots no DFS.
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let replay = element_flags(element).contains(HeaderFlags::REPLAY_OPERATION);
        let mut work = CreateWork {
            volume,
            tree_id: context.tree_id,
            want_maximal_access: contexts.maximal_access,
            want_on_disk_id: contexts.on_disk_id,
            durable_version: None,
            reconnect: false,
            create_options: request.create_options.get(),
            volume_id: u64::from_le_bytes(
                self.volumes[volume].id.to_bytes()[..8].try_into().unwrap_or_default(),
            ),
        };
        let reconnect = match (&contexts.reconnect, &contexts.reconnect_v2) {
            (_, Some(v2)) => Some((v2.file_id, Some(v2.create_guid), v2.flags.get())),
            (Some(file_id), None) => Some((*file_id, None, 0)),
            (None, None) => None,
        };
        if let Some((file_id, create_guid, flags)) = reconnect {
            work.reconnect = true;
            let open = OpenId(file_id.persistent.get() ^ self.file_id_mask);
            if self.by_volume_open.contains_key(&(volume, open)) {
                // It still has its connection.
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            let operation = Operation::Reconnect(Box::new(Reconnect {
                caller,
                open,
                path: name,
                create_guid,
                persistent: flags & DURABLE_FLAG_PERSISTENT != 0,
                lease: contexts.lease,
            }));
            return Ok(Step::Submit { volume, operation, work: Work::Create(Box::new(work)) });
        }
        if request.impersonation_level.get() > IMPERSONATION_LEVEL_MAX {
            return Err(NtStatus::BAD_IMPERSONATION_LEVEL);
        }
        let options = request.create_options.get();
        if options & !VALID_OPTIONS != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if options & UNSUPPORTED_OPTIONS != 0 {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        if options & FILE_DIRECTORY_FILE != 0 && options & FILE_NON_DIRECTORY_FILE != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let durable = match &contexts.durable_v2 {
            Some(v2) => {
                work.durable_version = Some(2);
                let timeout = v2.timeout_ms.get();
                Some(DurableRequest::Version2 {
                    create_guid: v2.create_guid,
                    timeout: (timeout != 0).then(|| Duration::from_millis(timeout.into())),
                    persistent: v2.flags.get() & DURABLE_FLAG_PERSISTENT != 0,
                })
            }
            None if contexts.durable => {
                work.durable_version = Some(1);
                Some(DurableRequest::Version1)
            }
            None => None,
        };
        let cache = match contexts.lease {
            Some(lease) => CacheRequest::Lease(lease),
            None => CacheRequest::Oplock(oplock_level(request.requested_oplock_level)),
        };
        let operation = Operation::Create(Box::new(Create {
            caller,
            path: name,
            desired_access: request.desired_access.get(),
            attributes: request.file_attributes.get(),
            share_access: request.share_access.get(),
            disposition: disposition(request.create_disposition.get())?,
            options,
            cache,
            allocation_bytes: contexts.allocation,
            extended_attributes: contexts.extended_attributes,
            security: contexts.security.map(<[u8]>::to_vec),
            durable,
            app_instance: contexts.app_instance.map(|id| AppInstance { id, version: contexts.app_version }),
            query_maximal_access: contexts.maximal_access,
            time_warp: contexts.time_warp,
            replay,
        }));
        Ok(Step::Submit { volume, operation, work: Work::Create(Box::new(work)) })
    }

    /// Counts one more open of the user.
    pub(crate) fn open_holder(&mut self, context: &Context) -> Result<HolderId, NtStatus> {
        let session = self.sessions.get(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let holder = self.open_shares.enter(&session.token.user);
        self.open_shares.take(holder, 1);
        Ok(holder)
    }

    pub(crate) fn created(
        &mut self,
        context: &mut Context,
        work: &CreateWork,
        created: Created,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        // The session or tree may have ended meanwhile: then the open has nobody to belong to.
        let belongs =
            self.sessions.get(context.session).is_some_and(|session| session.tree(work.tree_id).is_some());
        // Nor can one be found whose answer nobody gets.
        let reachable = work.is_replayable() || self.connections.get(context.connection).is_some();
        if !belongs || !reachable {
            if let Some(backend) = self.backend(work.volume) {
                let close = Operation::Close { open: created.open, query: false };
                backend.submit(UNATTENDED, close, now);
            }
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        let sequence = context.channel_sequence;
        // A replayed CREATE finds what it opened the first time.
        let known = self.by_volume_open.get(&(work.volume, created.open)).copied();
        let key = match known {
            Some(key) if self.opens.get(key).is_some_and(|open| open.session == context.session) => key,
            _ => {
                if let Some(stale) = known {
                    self.forget_open(stale);
                }
                let position = self.positions.remove(&(work.volume, created.open)).unwrap_or_default();
                let lease = match created.cache {
                    CacheGrant::Lease { key, .. } => {
                        let session = self.session_of(context)?;
                        let (client, encrypt) = (session.client_guid, session.encrypts(context.tree_id));
                        let home = LeaseHome { volume: work.volume, opens: 0, encrypt };
                        let home = self.leases.entry((client, key)).or_insert(home);
                        home.opens += 1;
                        home.encrypt |= encrypt;
                        Some((client, key))
                    }
                    CacheGrant::Oplock(_) => None,
                };
                let holder = self.open_holder(context)?;
                let key = self.opens.insert(Open {
                    session: context.session,
                    holder,
                    connection: context.connection,
                    lease,
                    tree_id: work.tree_id,
                    kind: OpenKind::File { volume: work.volume, open: created.open },
                    persistent: created.open.0 ^ self.file_id_mask,
                    path: created.path.clone(),
                    directory: created.information.directory,
                    granted_access: created.granted_access,
                    cache: created.cache,
                    durable: created.durable.is_some(),
                    create_options: work.create_options,
                    enumeration: Enumeration::default(),
                    closing: false,
                    channel_sequence: sequence,
                    outstanding: 0,
                    outstanding_before: 0,
                    position,
                    opened_at: now,
                    read_bytes: 0,
                    written_bytes: 0,
                });
                self.by_volume_open.insert((work.volume, created.open), key);
                if let Some(session) = self.sessions.get_mut(context.session) {
                    session.opens.insert(work.tree_id, key, false);
                }
                key
            }
        };
        context.open = key;
        self.counters.opens += 1;
        let contexts = response_contexts(work, &created);
        let information = &created.information;
        let persistent = U64::new(created.open.0 ^ self.file_id_mask);
        let file_id = FileId { persistent, volatile: U64::new(key) };
        let body = CreateResponseBody {
            oplock_level: wire_oplock_level(&created.cache),
            create_action: match created.action {
                CreateAction::Superseded => 0,
                CreateAction::Opened => 1,
                CreateAction::Created => 2,
                CreateAction::Overwritten => 3,
            }
            .into(),
            creation_time: information.created.0.into(),
            last_access_time: information.accessed.0.into(),
            last_write_time: information.written.0.into(),
            change_time: information.changed.0.into(),
            allocation_size: information.allocation_bytes.into(),
            end_of_file: information.end_of_file.into(),
            file_attributes: information.attributes.into(),
            file_id,
            ..Default::default()
        };
        let mut out = Vec::with_capacity(size_of::<CreateResponseBody>() + contexts.len());
        write_create_response(&mut out, body, &contexts);
        Ok(Step::Reply(NtStatus::SUCCESS, Body::Bytes(out)))
    }
}

fn response_contexts(work: &CreateWork, created: &Created) -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    if let CacheGrant::Lease { key, state, breaking, version_2 } = created.cache {
        let breaking = if breaking { LEASE_FLAG_BREAK_IN_PROGRESS } else { 0 };
        match version_2 {
            None => contexts.push_struct(
                CONTEXT_LEASE,
                &LeaseV1 { key, state: state.bits().into(), flags: breaking.into(), ..Default::default() },
            ),
            Some(version_2) => {
                let parent = if version_2.parent_key.is_some() { LEASE_FLAG_PARENT_LEASE_KEY_SET } else { 0 };
                contexts.push_struct(
                    CONTEXT_LEASE,
                    &LeaseV2 {
                        key,
                        state: state.bits().into(),
                        flags: (breaking | parent).into(),
                        parent_key: version_2.parent_key.unwrap_or_default(),
                        epoch: version_2.epoch.into(),
                        ..Default::default()
                    },
                );
            }
        }
    }
    if work.want_maximal_access
        && let Some(maximal) = created.maximal_access
    {
        let (status, access) = match maximal {
            Ok(access) => (NtStatus::SUCCESS, access),
            Err(status) => (status, 0),
        };
        contexts.push_struct(
            CONTEXT_MAXIMAL_ACCESS,
            &MaximalAccessResponse { query_status: status.0.into(), maximal_access: access.into() },
        );
    }
    // A reconnect is not told again that it is durable (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
    if !work.reconnect
        && let Some(timeout) = created.durable
    {
        match work.durable_version {
            Some(2) => contexts.push_struct(
                CONTEXT_DURABLE_REQUEST_V2,
                &DurableResponseV2 {
                    timeout_ms: (timeout.as_millis().min(u128::from(u32::MAX)) as u32).into(),
                    flags: if created.persistent { DURABLE_FLAG_PERSISTENT } else { 0 }.into(),
                },
            ),
            Some(1) => contexts.push(CONTEXT_DURABLE_REQUEST, &[0; 8]),
            _ => {}
        }
    }
    if work.want_on_disk_id {
        contexts.push_struct(
            CONTEXT_ON_DISK_ID,
            &OnDiskIdResponse {
                disk_file_id: created.information.file_id.into(),
                volume_id: work.volume_id.into(),
                ..Default::default()
            },
        );
    }
    contexts.finish()
}

/// Flags of the request's own header.
pub(crate) fn element_flags(element: Element<'_>) -> HeaderFlags {
    smb::wire::Header::parse(element.bytes()).map_or(HeaderFlags::empty(), smb::wire::Header::flags)
}

/// Whether CLOSE asks for the attributes.
pub(crate) const fn wants_attributes(flags: u16) -> bool {
    flags & CLOSE_FLAG_POSTQUERY_ATTRIB != 0
}
