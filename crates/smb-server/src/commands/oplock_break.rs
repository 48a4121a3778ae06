//! OPLOCK_BREAK (MS-SMB2 3.3.5.22): a client acknowledges that its oplock or lease breaks.

use crate::directory::Directory;
use crate::exchange::{ChainFile, Context, Element, Step, wire_oplock_level};
use crate::state::State;
use crate::state::keys::LeaseName;
use crate::state::leases::{Breaking, Told};
use smb::wire::{
    BreakAcknowledgment, FileId, LeaseBreakBody, OPLOCK_LEVEL_II, OPLOCK_LEVEL_NONE, OplockBreakBody, Put,
};
use types::NtStatus;
use volume::backend::{Backend, CacheGrant, Guid, LeaseState, Operation, OplockLevel, Reply};

/// An acknowledgment that its volume is working on.
pub(crate) enum OplockBreakWork {
    Oplock {
        file_id: FileId,
    },
    /// `told`: the acknowledged break, as it was sent to the client.
    Lease {
        lease: LeaseName,
        told: Option<Told>,
    },
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<OplockBreakWork>, NtStatus> {
    match BreakAcknowledgment::parse(element.bytes())? {
        BreakAcknowledgment::Oplock(acknowledged) => {
            let key = context.find_open(&state.opens, related, acknowledged.file_id)?;
            let open = state.opens.get(key)?;
            let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
            let level = match acknowledged.oplock_level {
                OPLOCK_LEVEL_NONE => OplockLevel::None,
                OPLOCK_LEVEL_II => OplockLevel::LevelII,
                // SMB2_OPLOCK_LEVEL_LEASE and undefined numbers, too: the volume needs every acknowledgment,
                // as a wrong one ends the break at NONE (MS-SMB2 3.3.5.22.1).
                _ => OplockLevel::Batch,
            };
            let work = OplockBreakWork::Oplock { file_id: open.file_id(key) };
            state.leases.acknowledged(Breaking::Oplock(volume, name));
            Ok(Step::Submit { volume, operation: Operation::AcknowledgeOplock { open: name, level }, work })
        }
        BreakAcknowledgment::Lease(acknowledged) => {
            let client = context.session(&state.sessions)?.client_guid;
            let session = context.session_key()?;
            let lease = state.leases.of_session(session, client, acknowledged.lease_key)?;
            let wanted = LeaseState::from_bits(acknowledged.lease_state.get());
            let wanted = wanted.ok_or(NtStatus::INVALID_PARAMETER)?;
            let told = state.leases.acknowledged(Breaking::Lease(lease));
            let LeaseName { volume, client, key } = lease;
            Ok(Step::Submit {
                volume,
                operation: Operation::AcknowledgeLease { client, key, state: wanted },
                work: OplockBreakWork::Lease { lease, told },
            })
        }
    }
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: OplockBreakWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<OplockBreakWork>, NtStatus> {
    match work {
        OplockBreakWork::Oplock { file_id } => {
            let Reply::Oplock(level) = result? else { return Err(NtStatus::INTERNAL_ERROR) };
            if let Some(key) = context.open
                && let Ok(open) = state.opens.get_mut(key)
            {
                open.cache = CacheGrant::Oplock(level);
            }
            Ok(Step::ok(oplock_body(file_id, level)))
        }
        OplockBreakWork::Lease { lease, told } => {
            if let (Err(_), Some(told)) = (&result, told) {
                state.leases.refused(lease, told);
            }
            let Reply::Lease { key, state } = result? else { return Err(NtStatus::INTERNAL_ERROR) };
            Ok(Step::ok(lease_body(key, state)))
        }
    }
}

/// Builds the body of the answer to an acknowledged oplock break.
fn oplock_body(file_id: FileId, level: OplockLevel) -> Vec<u8> {
    let mut out = Vec::new();
    let oplock_level = wire_oplock_level(&CacheGrant::Oplock(level));
    out.put(&OplockBreakBody { oplock_level, file_id, ..Default::default() });
    out
}

/// Builds the body of the answer to an acknowledged lease break.
fn lease_body(key: Guid, state: LeaseState) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&LeaseBreakBody { lease_key: key, lease_state: state.bits().into(), ..Default::default() });
    out
}
