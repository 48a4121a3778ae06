//! LOCK (MS-SMB2 3.3.5.14).

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{ChainFile, Context, Element, Step};
use crate::state::State;
use smb::wire::{
    Dialect, LOCK_FLAG_EXCLUSIVE, LOCK_FLAG_FAIL_IMMEDIATELY, LOCK_FLAG_SHARED, LOCK_FLAG_UNLOCK,
    LockElement as WireLock, LockRequest,
};
use types::NtStatus;
use volume::backend::{Backend, ByteRange, LockElement, Operation, Reply};

/// A LOCK that its volume is working on.
pub(crate) struct LockWork {
    /// The status to answer with after success: an element that followed those submitted was wrong.
    then: Option<NtStatus>,
}

/// The locks and unlocks of a request, in the volume's terms.
struct Elements {
    elements: Vec<LockElement>,
    then: Option<NtStatus>,
}

impl Elements {
    fn read(locks: &[WireLock]) -> Result<Self, NtStatus> {
        let unlocks = locks.first().is_some_and(|first| first.flags.get() == LOCK_FLAG_UNLOCK);
        let mut elements = Vec::with_capacity(locks.len());
        for lock in locks {
            if unlocks && lock.flags.get() != LOCK_FLAG_UNLOCK {
                // Ranges unlocked before this element stay unlocked (MS-SMB2 3.3.5.14.1).
                return Ok(Self { elements, then: Some(NtStatus::INVALID_PARAMETER) });
            }
            elements.push(element(lock, unlocks, locks.len())?);
        }
        Ok(Self { elements, then: None })
    }
}

/// One of `count` elements, all of which lock or all of which unlock.
fn element(lock: &WireLock, unlocks: bool, count: usize) -> Result<LockElement, NtStatus> {
    let flags = lock.flags.get();
    let fail_immediately = flags & LOCK_FLAG_FAIL_IMMEDIATELY != 0;
    let exclusive = match flags & !LOCK_FLAG_FAIL_IMMEDIATELY {
        LOCK_FLAG_SHARED => Some(false),
        LOCK_FLAG_EXCLUSIVE => Some(true),
        LOCK_FLAG_UNLOCK if !fail_immediately => None,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    // Locks and unlocks do not mix, and only a single lock may wait (MS-SMB2 3.3.5.14.2).
    let waits = exclusive.is_some() && !fail_immediately;
    if !unlocks && (exclusive.is_none() || waits && count > 1) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let (offset, len_bytes) = (lock.offset.get(), lock.length.get());
    if len_bytes > 0 && offset.checked_add(len_bytes - 1).is_none() {
        return Err(NtStatus::INVALID_LOCK_RANGE);
    }
    Ok(LockElement { range: ByteRange { offset, len_bytes }, exclusive, fail_immediately })
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<LockWork>, NtStatus> {
    let request = LockRequest::parse(element.bytes())?;
    let locks = request.locks()?;
    if locks.is_empty() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if locks.len() > state.config.limits.locks_per_request {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let key = context.find_open(&state.opens, related, request.file_id)?;
    let Elements { elements, then } = Elements::read(locks)?;
    context.check_channel_sequence(&state.connections, &mut state.opens, key, true)?;
    let dialect = context.dialect(&state.connections);
    let open = state.opens.get(key)?;
    let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    if open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let sequence = request.lock_sequence.get();
    let sequence = (dialect > Dialect::Smb202 && sequence != 0).then_some(sequence);
    Ok(Step::Submit {
        volume,
        operation: Operation::Lock { open: name, elements, sequence },
        work: LockWork { then },
    })
}

pub(crate) fn resume(work: LockWork, result: Result<Reply, NtStatus>) -> Result<Step<LockWork>, NtStatus> {
    expect_done(result)?;
    work.then.map_or_else(|| Ok(Step::empty()), Err)
}
