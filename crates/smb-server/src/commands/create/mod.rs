//! CREATE (MS-SMB2 3.3.5.9): durable handles and their reconnect, the wire identity of opens.

mod contexts;
mod device;

use crate::directory::Directory;
use crate::exchange::{Context, Element, Step, wire_oplock_level};
use crate::pipes::{self, PIPE_ALLOCATION_BYTES};
use crate::quotas::is_quota_file;
use crate::state::keys::{LeaseName, OpenKey, VolumeSlot};
use crate::state::opens::{Enumeration, Open, OpenKind};
use crate::state::tree::Target;
use crate::state::{State, Wake};
use contexts::{Asked, Contexts};
use smb::wire::{
    Capabilities, CreateRequest, CreateResponseBody, DURABLE_FLAG_PERSISTENT, FILE_CREATE, FILE_OPEN,
    FILE_OPEN_IF, FILE_OVERWRITE, FILE_OVERWRITE_IF, FILE_SUPERSEDE, FileId, Guid, HEADER_BYTES, HeaderFlags,
    OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_EXCLUSIVE, OPLOCK_LEVEL_II, write_create_response,
};
use std::time::Duration;
use types::{Monotonic, NtStatus, attribute};
use volume::backend::{
    AppInstance, Backend, CacheGrant, CacheRequest, Caller, Create, CreateAction, Created, Disposition,
    DurableRequest, OpenId, Operation, OplockLevel, Reconnect, Reply, WideString,
};
use volume::security::rights;

/// FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE.
const SHARE_ALL: u32 = 7;
const FILE_DIRECTORY_FILE: u32 = 1;
const FILE_NON_DIRECTORY_FILE: u32 = 0x40;
/// Options that are refused rather than ignored: FILE_CREATE_TREE_CONNECTION, FILE_RESERVE_OPFILTER, FILE_OPEN_BY_FILE_ID.
const UNSUPPORTED_OPTIONS: u32 = 0x80 | 0x2000 | 0x10_0000;
/// Bits of CreateOptions that mean something; MS-SMB2 has no others.
const VALID_OPTIONS: u32 = 0x00FF_FFFF;
const IMPERSONATION_LEVEL_MAX: u32 = 3;
/// Bytes of a CREATE with the longest name, padding included, without its contexts.
const REQUEST_BYTES_MAX: usize = 128 << 10;
/// Memory in bytes that an extended attribute takes beside its bytes on the wire.
const EXTENDED_ATTRIBUTE_BYTES: usize = 128;

/// A CREATE that its volume is working on.
pub(crate) struct CreateWork {
    volume: VolumeSlot,
    tree_id: u32,
    create_options: u32,
    asked: Asked,
}

impl CreateWork {
    /// Whether the client can find the open without an answer.
    pub fn is_replayable(&self) -> bool {
        self.asked.durable_version == Some(2)
    }
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

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<Box<CreateWork>>, NtStatus> {
    if element.bytes().len() > HEADER_BYTES + REQUEST_BYTES_MAX + state.config.limits.create_context_bytes {
        return Ok(Step::Disconnect);
    }
    let request = CreateRequest::parse(element.bytes())?;
    let dialect = context.dialect(&state.connections);
    let name = request.name()?;
    let session = context.session(&state.sessions)?;
    if state.opens.len() >= state.config.limits.opens
        || session.opens.len() >= state.config.limits.opens_per_session
        || !state.opens.may_open(&session.token.user)
    {
        return Err(NtStatus::TOO_MANY_OPENED_FILES);
    }
    let tree = session.tree(context.tree_id).ok_or(NtStatus::NETWORK_NAME_DELETED)?.clone();
    let Target::Disk { volume, root, .. } = tree.target else {
        check_impersonation(&request)?;
        return open_pipe(state, context, &name, &request, now);
    };
    let caller = session.caller(context.session_key()?, &tree, root);
    let contexts = Contexts::read(&request, dialect)?;
    if request.create_contexts_length.get() as usize > state.config.limits.create_context_bytes {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    context.bytes += contexts.extended_attributes.len() * EXTENDED_ATTRIBUTE_BYTES;
    if name.first() == Some(&u16::from(b'\\')) {
        // With DFS_OPERATIONS the name starts with server and share; this server roots no DFS.
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut work = CreateWork {
        volume,
        tree_id: context.tree_id,
        create_options: request.create_options.get(),
        asked: Asked {
            maximal_access: contexts.maximal_access,
            on_disk_id: contexts.on_disk_id,
            durable_version: None,
            reconnect: false,
            volume_number: state.volumes.number_of(volume),
        },
    };
    if let Some(context) = contexts.bus_session {
        let operation = device::open(caller, name, context);
        return Ok(Step::Submit { volume, operation, work: Box::new(work) });
    }
    if let Some(handle) = LostHandle::of(&contexts) {
        work.asked.reconnect = true;
        let operation = reconnect(state, volume, caller, name, handle)?;
        return Ok(Step::Submit { volume, operation, work: Box::new(work) });
    }
    // A reconnect's other fields say nothing.
    check_impersonation(&request)?;
    check_options(&request)?;
    let durable = durable_request(&contexts, context.server_capabilities(&state.connections));
    work.asked.durable_version = durable.as_ref().map(|durable| match durable {
        DurableRequest::Version1 => 1,
        DurableRequest::Version2 { .. } => 2,
    });
    let is_replay = context.to.flags.contains(HeaderFlags::REPLAY_OPERATION);
    let opens_quotas = is_quota_file(&name);
    let mut create = create_operation(&request, contexts, caller, name, durable, is_replay)?;
    if opens_quotas {
        create = quota_file(create);
        (work.create_options, work.asked.durable_version) = (0, None);
    }
    Ok(Step::Submit { volume, operation: Operation::Create(Box::new(create)), work: Box::new(work) })
}

/// The durable handle that a client wants back.
struct LostHandle {
    file_id: FileId,
    create_guid: Option<Guid>,
    persistent: bool,
    lease: Option<volume::backend::LeaseRequest>,
}

impl LostHandle {
    fn of(contexts: &Contexts<'_>) -> Option<Self> {
        let lease = contexts.lease;
        if let Some(v2) = &contexts.reconnect_v2 {
            let persistent = v2.flags.get() & DURABLE_FLAG_PERSISTENT != 0;
            return Some(Self { file_id: v2.file_id, create_guid: Some(v2.create_guid), persistent, lease });
        }
        contexts.reconnect.map(|file_id| Self { file_id, create_guid: None, persistent: false, lease })
    }
}

fn reconnect<B: Backend, D: Directory>(
    state: &State<B, D>,
    volume: VolumeSlot,
    caller: Caller,
    path: WideString,
    handle: LostHandle,
) -> Result<Operation, NtStatus> {
    let LostHandle { file_id, create_guid, persistent, lease } = handle;
    let open = OpenId(file_id.persistent.get());
    if state.opens.of_volume((volume, open)).is_some() {
        // The open still has its connection.
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    Ok(Operation::Reconnect(Box::new(Reconnect { caller, open, path, create_guid, persistent, lease })))
}

/// Checks the level of impersonation, of pipes and of all else that is opened (MS-SMB2 3.3.5.9).
fn check_impersonation(request: &CreateRequest<'_>) -> Result<(), NtStatus> {
    match request.impersonation_level.get() {
        0..=IMPERSONATION_LEVEL_MAX => Ok(()),
        _ => Err(NtStatus::BAD_IMPERSONATION_LEVEL),
    }
}

/// Checks the form of the options; their meaning is checked by the volume.
fn check_options(request: &CreateRequest<'_>) -> Result<(), NtStatus> {
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
    Ok(())
}

fn durable_request(contexts: &Contexts<'_>, capabilities: Capabilities) -> Option<DurableRequest> {
    let Some(v2) = &contexts.durable_v2 else {
        return contexts.durable.then_some(DurableRequest::Version1);
    };
    let timeout = v2.timeout_ms.get();
    Some(DurableRequest::Version2 {
        create_guid: v2.create_guid,
        timeout: (timeout != 0).then(|| Duration::from_millis(timeout.into())),
        persistent: v2.flags.get() & DURABLE_FLAG_PERSISTENT != 0
            && capabilities.contains(Capabilities::PERSISTENT_HANDLES),
    })
}

fn create_operation(
    request: &CreateRequest<'_>,
    contexts: Contexts<'_>,
    caller: Caller,
    path: WideString,
    durable: Option<DurableRequest>,
    replay: bool,
) -> Result<Create, NtStatus> {
    Ok(Create {
        caller,
        path,
        desired_access: request.desired_access.get(),
        attributes: request.file_attributes.get(),
        share_access: request.share_access.get(),
        disposition: disposition(request.create_disposition.get())?,
        options: request.create_options.get(),
        cache: match contexts.lease {
            Some(lease) => CacheRequest::Lease(lease),
            None => CacheRequest::Oplock(oplock_level(request.requested_oplock_level)),
        },
        allocation_bytes: contexts.allocation,
        extended_attributes: contexts.extended_attributes,
        security: contexts.security.map(<[u8]>::to_vec),
        durable,
        app_instance: contexts.app_instance.map(|id| AppInstance { id, version: contexts.app_version }),
        query_maximal_access: contexts.maximal_access,
        time_warp: contexts.time_warp,
        replay,
    })
}

/// Opens the share's root for queries of the volume's quotas only. The queries check their own rights.
fn quota_file(create: Create) -> Create {
    Create {
        path: WideString::default(),
        desired_access: rights::READ_ATTRIBUTES,
        attributes: 0,
        share_access: SHARE_ALL,
        disposition: Disposition::Open,
        options: 0,
        cache: CacheRequest::Oplock(OplockLevel::None),
        allocation_bytes: None,
        extended_attributes: Vec::new(),
        security: None,
        durable: None,
        app_instance: None,
        ..create
    }
}

fn open_pipe<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    name: &[u16],
    request: &CreateRequest<'_>,
    now: Monotonic,
) -> Result<Step<Box<CreateWork>>, NtStatus> {
    let (access, options) = (request.desired_access.get(), request.create_options.get());
    let key = pipes::open(state, context, name, access, options, now)?;
    context.open = Some(key);
    let body = CreateResponseBody {
        create_action: 1.into(),
        allocation_size: PIPE_ALLOCATION_BYTES.into(),
        file_attributes: attribute::NORMAL.into(),
        file_id: state.opens.get(key)?.file_id(key),
        ..Default::default()
    };
    let mut out = Vec::new();
    write_create_response(&mut out, body, &[]);
    Ok(Step::ok(out))
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: &CreateWork,
    result: Result<Reply, NtStatus>,
    now: Monotonic,
) -> Result<Step<Box<CreateWork>>, NtStatus> {
    let (created, device_context) = match result? {
        Reply::Created(created) => (created, None),
        Reply::DeviceOpened { open, context } => (Box::new(device::opened(open)), Some(context)),
        _ => return Err(NtStatus::INTERNAL_ERROR),
    };
    // The session or tree may have ended meanwhile: then the open has no owner.
    let session = context.session(&state.sessions).ok();
    let belongs = session.is_some_and(|session| session.tree(work.tree_id).is_some());
    // A client that ended the tree has closed its opens there (MS-SMB2 3.3.5.8), this last one now.
    let is_closed = session.is_some() && !belongs;
    // An open whose answer is lost cannot be found either.
    let reachable = work.is_replayable() || state.connections.contains(context.connection);
    if !belongs || !reachable {
        let open = (work.volume, created.open);
        match context.session {
            // The client does not know of the open and may come again for it.
            Some(session) if !is_closed && (work.asked.reconnect || work.is_replayable()) => {
                state.volumes.abandon(open, session.into(), now);
            }
            _ => state.volumes.close(open, now),
        }
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    let known = state.opens.of_volume((work.volume, created.open));
    let key = match known {
        // A replayed CREATE finds the open of the first one.
        Some(key) if state.opens.get(key).is_ok_and(|open| Some(open.session) == context.session) => key,
        _ => {
            if let Some(stale) = known {
                state.forget_open(stale);
            }
            take_in(state, context, work, &created, now)?
        }
    };
    context.open = Some(key);
    state.counters.opens += 1;
    let file_id = state.opens.get(key)?.file_id(key);
    let contexts =
        device_context.map_or_else(|| contexts::answer(&work.asked, &created), |data| device::answer(&data));
    Ok(answer(&created, file_id, &contexts))
}

/// Adds a volume's new open to the session.
fn take_in<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    work: &CreateWork,
    created: &Created,
    now: Monotonic,
) -> Result<OpenKey, NtStatus> {
    let session_key = context.session_key()?;
    let session = context.session_mut(&mut state.sessions)?;
    let figures = session.tree(work.tree_id).map(|tree| tree.figures).unwrap_or_default();
    let position = state.opens.take_position((work.volume, created.open));
    let lease = match created.cache {
        CacheGrant::Lease { key, breaking, .. } => {
            let lease = LeaseName { volume: work.volume, client: session.client_guid, key };
            state.leases.add_open(lease, session_key, session.encrypts(context.tree_id));
            if let Some(step) = state.leases.take_owed(lease).filter(|_| breaking) {
                state.woken.push(Wake::Break(lease, step));
            }
            Some(lease)
        }
        CacheGrant::Oplock(_) => None,
    };
    let key = state.opens.insert(&session.token.user, |holder| Open {
        session: session_key,
        holder,
        connection: context.connection,
        lease,
        tree_id: work.tree_id,
        figures,
        client: session.client(),
        kind: OpenKind::File { volume: work.volume, open: created.open },
        persistent: created.open.0,
        path: created.path.clone(),
        directory: created.information.directory,
        granted_access: created.granted_access,
        cache: created.cache,
        durable: created.durable.is_some(),
        is_persistent: created.persistent,
        create_options: work.create_options,
        enumeration: Enumeration::default(),
        closing: false,
        channel_sequence: context.channel_sequence,
        outstanding: 0,
        outstanding_before: 0,
        position,
        quota_scan: None,
        opened_at: now,
        read_bytes: 0,
        written_bytes: 0,
    });
    session.opens.insert(work.tree_id, key, false);
    Ok(key)
}

fn answer(created: &Created, file_id: FileId, contexts: &[u8]) -> Step<Box<CreateWork>> {
    let information = &created.information;
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
    write_create_response(&mut out, body, contexts);
    Step::ok(out)
}
