//! CLOSE, FLUSH, LOCK, CHANGE_NOTIFY and OPLOCK_BREAK (MS-SMB2 3.3.5.10, 3.3.5.11, 3.3.5.14, 3.3.5.19, 3.3.5.22).

use crate::breaks::Breaking;
use crate::directory::Directory;
use crate::dispatch::Element;
use crate::request::{Body, Chain, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    BreakAcknowledgment, ChangeNotifyRequest, CloseRequest, CloseResponseBody, Dialect, EmptyBody,
    FlushRequest, LOCK_FLAG_EXCLUSIVE, LOCK_FLAG_FAIL_IMMEDIATELY, LOCK_FLAG_SHARED, LOCK_FLAG_UNLOCK,
    LeaseBreakBody, LockRequest, OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_EXCLUSIVE, OPLOCK_LEVEL_II,
    OPLOCK_LEVEL_NONE, OplockBreakBody, Put, WATCH_TREE, put_notify_record, write_output_buffer_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::{
    Backend, ByteRange, CacheGrant, FileInformation, Guid, LeaseState, LockElement, Operation, OplockLevel,
    WideString,
};
use volume::security::rights;

/// The body of a response that says nothing.
pub(crate) fn empty_body() -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&EmptyBody::default());
    out
}

/// The body of a CLOSE response; attributes where they were asked for.
pub(crate) fn close_body(information: Option<&FileInformation>) -> Vec<u8> {
    let body = match information {
        None => CloseResponseBody::default(),
        Some(file) => CloseResponseBody {
            flags: smb::wire::CLOSE_FLAG_POSTQUERY_ATTRIB.into(),
            creation_time: file.created.0.into(),
            last_access_time: file.accessed.0.into(),
            last_write_time: file.written.0.into(),
            change_time: file.changed.0.into(),
            allocation_size: file.allocation_bytes.into(),
            end_of_file: file.end_of_file.into(),
            file_attributes: file.attributes.into(),
            ..Default::default()
        },
    };
    let mut out = Vec::new();
    out.put(&body);
    out
}

/// The answer to CHANGE_NOTIFY: the changes, or that there were too many to tell.
pub(crate) fn notify_answer(changes: &[(u32, WideString)], bytes_max: usize) -> Step {
    let (mut records, mut last) = (Vec::new(), None);
    for (action, name) in changes {
        put_notify_record(&mut records, &mut last, *action, name);
    }
    let status = if records.is_empty() || records.len() > bytes_max {
        records.clear();
        NtStatus::NOTIFY_ENUM_DIR
    } else {
        NtStatus::SUCCESS
    };
    let mut body = Vec::with_capacity(8 + records.len());
    write_output_buffer_response(&mut body, &records);
    Step::Reply(status, Body::Bytes(body))
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_close(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let request = CloseRequest::parse(element.bytes())?;
        let key = self.find_open(context, chain, request.file_id)?;
        self.fail_readers(key, now);
        let query = crate::create::wants_attributes(request.flags.get());
        let open = self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?;
        open.closing = true;
        match open.volume_open() {
            Some((volume, open)) => Ok(Step::Submit {
                volume,
                operation: Operation::Close { open, query },
                work: Work::Close { query },
            }),
            None => {
                self.forget_open(key);
                Ok(Step::ok(close_body(None)))
            }
        }
    }

    pub(crate) fn handle_flush(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        let request = FlushRequest::parse(element.bytes())?;
        let key = self.find_open(context, chain, request.file_id)?;
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let Some((volume, name)) = open.volume_open() else { return Ok(Step::ok(empty_body())) };
        if open.granted_access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(Step::Submit { volume, operation: Operation::Flush { open: name }, work: Work::Flush })
    }

    pub(crate) fn handle_lock(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        let request = LockRequest::parse(element.bytes())?;
        let locks = request.locks()?;
        let first = locks.first().ok_or(NtStatus::INVALID_PARAMETER)?;
        if locks.len() > self.config.limits.locks_per_request {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let key = self.find_open(context, chain, request.file_id)?;
        let unlocks = first.flags.get() == LOCK_FLAG_UNLOCK;
        let mut elements = Vec::with_capacity(locks.len());
        let mut then = None;
        for lock in locks {
            let flags = lock.flags.get();
            if unlocks && flags != LOCK_FLAG_UNLOCK {
                // What is unlocked before it stays unlocked (MS-SMB2 3.3.5.14.1).
                then = Some(NtStatus::INVALID_PARAMETER);
                break;
            }
            let fail_immediately = flags & LOCK_FLAG_FAIL_IMMEDIATELY != 0;
            let exclusive = match flags & !LOCK_FLAG_FAIL_IMMEDIATELY {
                LOCK_FLAG_SHARED => Some(false),
                LOCK_FLAG_EXCLUSIVE => Some(true),
                LOCK_FLAG_UNLOCK if !fail_immediately => None,
                // Refused when its turn comes: what is unlocked before stays so.
                _ if unlocks => Some(false),
                _ => return Err(NtStatus::INVALID_PARAMETER),
            };
            // Locks and unlocks do not mix, and only a single lock may wait (MS-SMB2 3.3.5.14.2).
            let waits = exclusive.is_some() && !fail_immediately;
            if !unlocks && (exclusive.is_none() || waits && locks.len() > 1) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let (offset, len_bytes) = (lock.offset.get(), lock.length.get());
            if len_bytes > 0 && offset.checked_add(len_bytes - 1).is_none() {
                return Err(NtStatus::INVALID_LOCK_RANGE);
            }
            elements.push(LockElement {
                range: ByteRange { offset, len_bytes },
                exclusive,
                fail_immediately,
            });
        }
        self.check_channel_sequence(context, key, true)?;
        let dialect = self.dialect_of(context);
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let sequence = request.lock_sequence.get();
        let sequence = (dialect > Dialect::Smb202 && sequence != 0).then_some(sequence);
        Ok(Step::Submit {
            volume,
            operation: Operation::Lock { open: name, elements, sequence },
            work: Work::Lock { then },
        })
    }

    pub(crate) fn handle_change_notify(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        let request = ChangeNotifyRequest::parse(element.bytes())?;
        let bytes_max = request.output_buffer_length.get();
        let limit = self.config.limits.transact_bytes;
        let key = self.find_open_for(context, chain, request.file_id, bytes_max as usize, limit)?;
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
        if !open.directory {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if open.granted_access & rights::LIST_DIRECTORY == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(Step::Submit {
            volume,
            operation: Operation::Notify {
                open: name,
                filter: request.completion_filter.get(),
                tree: request.flags.get() & WATCH_TREE != 0,
                bytes_max,
            },
            work: Work::Notify { bytes_max: bytes_max as usize },
        })
    }

    pub(crate) fn handle_oplock_break(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        match BreakAcknowledgment::parse(element.bytes())? {
            BreakAcknowledgment::Oplock(acknowledged) => {
                let key = self.find_open(context, chain, acknowledged.file_id)?;
                let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
                let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
                let level = match acknowledged.oplock_level {
                    OPLOCK_LEVEL_NONE => OplockLevel::None,
                    OPLOCK_LEVEL_II => OplockLevel::LevelII,
                    OPLOCK_LEVEL_EXCLUSIVE => OplockLevel::Exclusive,
                    OPLOCK_LEVEL_BATCH => OplockLevel::Batch,
                    _ => return Err(NtStatus::INVALID_PARAMETER),
                };
                let work = Work::BreakAcknowledgment { file_id: open.file_id(key) };
                self.told.remove(&Breaking::Oplock(volume, name));
                Ok(Step::Submit {
                    volume,
                    operation: Operation::AcknowledgeOplock { open: name, level },
                    work,
                })
            }
            BreakAcknowledgment::Lease(acknowledged) => {
                let client = self.session_of(context)?.client_guid;
                let key = acknowledged.lease_key;
                let home = self.leases.get(&(client, key)).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
                let volume = home.volume;
                let state = LeaseState::from_bits(acknowledged.lease_state.get())
                    .ok_or(NtStatus::INVALID_PARAMETER)?;
                self.told.remove(&Breaking::Lease(client, key));
                Ok(Step::Submit {
                    volume,
                    operation: Operation::AcknowledgeLease { client, key, state },
                    work: Work::LeaseAcknowledgment,
                })
            }
        }
    }
}

/// The body of the answer to an acknowledged oplock break.
pub(crate) fn oplock_break_body(file_id: smb::wire::FileId, level: OplockLevel) -> Vec<u8> {
    let mut out = Vec::new();
    let oplock_level = crate::create::wire_oplock_level(&CacheGrant::Oplock(level));
    out.put(&OplockBreakBody { oplock_level, file_id, ..Default::default() });
    out
}

/// The body of the answer to an acknowledged lease break.
pub(crate) fn lease_break_body(key: Guid, state: LeaseState) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&LeaseBreakBody { lease_key: key, lease_state: state.bits().into(), ..Default::default() });
    out
}
