//! Whether a piece may go to the copies: are there enough of them, and does the record allow to rely on these.
//!
//! Invariant: a write passes only if `min_copies` that count can be reached by the record, and the record says that there may be so few (I1, I5).

use super::chunks::ChunkState;
use super::ground::Ground;
use super::pending_changes::Change;
use super::reports::Next;
use crate::api::SpaceError;
use types::ChunkIndex;

/// What becomes of a piece at the gate.
pub(super) enum Gate {
    Pass,
    Wait,
    Zeroes,
    Nothing,
    Fail(SpaceError),
}

pub(super) fn gate_free(index: ChunkIndex, ground: &mut Ground) -> Gate {
    let Some(chunk) = ground.chunks.get_mut(index) else { return Gate::Nothing };
    chunk.state = ChunkState::Closing;
    if chunk.in_build {
        // A copy being made would outlive the chunk. One that is complete by the record is waited for.
        ground.reports.leave(Next::Close(index));
        return Gate::Wait;
    }
    if chunk.is_active() { Gate::Wait } else { Gate::Pass }
}

pub(super) fn gate_write(index: ChunkIndex, ground: &mut Ground) -> Gate {
    let holders = ground.holders_of(index);
    if holders.len() < usize::from(ground.membership.record().min_copies.max(1)) {
        return Gate::Wait;
    }
    if holders.len() < usize::from(ground.membership.promised_holders()) {
        // An opening may then miss fewer disks: this must be on record before it is relied on.
        ground.membership.want(Change::LowerHolders(holders.len() as u8));
        return Gate::Wait;
    }
    if let Some(homes) = ground.membership.homes_short(&holders) {
        ground.membership.want(Change::LowerHomes(homes));
        return Gate::Wait;
    }
    Gate::Pass
}

pub(super) fn gate_read(index: ChunkIndex, copy: Option<u8>, ground: &Ground) -> Gate {
    let holders = ground.holders_of(index);
    if let Some(copy) = copy
        && usize::from(copy) >= holders.len()
    {
        return Gate::Fail(SpaceError::Invalid("the chunk has no such in-sync copy"));
    }
    let wanted = |at: usize| copy.is_none_or(|copy| usize::from(copy) == at);
    let mut readable = holders.iter().enumerate().filter(|(at, _)| wanted(*at));
    if readable.any(|(_, disk)| ground.calls.is_open(*disk)) { Gate::Pass } else { Gate::Wait }
}
