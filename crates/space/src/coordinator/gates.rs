//! The gate: a piece passes to the copies if there are enough of them and the record allows relying on
//! so few.
//!
//! Invariant: a write passes only if, by the record, at least `min_copies` count and a chunk may have
//! as few copies as this one (I1, I5).

use super::chunks::ChunkState;
use super::mailbox::Next;
use super::pending_changes::Change;
use super::shared::Shared;
use crate::api::SpaceError;
use types::ChunkIndex;

/// The decision on a piece at the gate.
pub(super) enum Gate {
    Pass,
    Wait,
    Zeroes,
    Nothing,
    Fail(SpaceError),
}

pub(super) fn gate_free(index: ChunkIndex, shared: &mut Shared) -> Gate {
    let Some(chunk) = shared.chunks.get_mut(index) else { return Gate::Nothing };
    chunk.state = ChunkState::Closing;
    if chunk.in_build {
        // A copy in the making would outlive the chunk: its build is given up, or ends first if the record
        // has it complete.
        shared.mailbox.leave(Next::Close(index));
        return Gate::Wait;
    }
    if chunk.is_active() { Gate::Wait } else { Gate::Pass }
}

pub(super) fn gate_write(index: ChunkIndex, shared: &mut Shared) -> Gate {
    let holders = shared.holders_of(index);
    if holders.len() < usize::from(shared.membership.record().min_copies.max(1)) {
        return Gate::Wait;
    }
    if holders.len() < usize::from(shared.membership.promised_holders()) {
        // The next opening may then miss fewer disks, so the record must say so first.
        shared.membership.want(Change::LowerHolders(holders.len() as u8));
        return Gate::Wait;
    }
    if let Some(homes) = shared.membership.homes_short(&holders) {
        shared.membership.want(Change::LowerHomes(homes));
        return Gate::Wait;
    }
    Gate::Pass
}

pub(super) fn gate_read(index: ChunkIndex, copy: Option<u8>, shared: &Shared) -> Gate {
    let holders = shared.holders_of(index);
    if let Some(copy) = copy
        && usize::from(copy) >= holders.len()
    {
        return Gate::Fail(SpaceError::Invalid("the chunk has no such in-sync copy"));
    }
    let wanted = |at: usize| copy.is_none_or(|copy| usize::from(copy) == at);
    let mut readable = holders.iter().enumerate().filter(|(at, _)| wanted(*at));
    if readable.any(|(_, disk)| shared.calls.is_open(*disk)) { Gate::Pass } else { Gate::Wait }
}
