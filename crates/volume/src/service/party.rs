//! The parties for which the volume works.

use super::opens::Opens;
use super::ready::Party;
use super::tasks::Work;
use crate::backend::{OpenId, Operation};

/// Returns the user for whom work is done; the service itself if the work is no single user's.
pub fn party_of(opens: &Opens, work: &Work) -> Party {
    let open = match work {
        Work::Create(create, _) => return Party::of_user(&create.caller.token.user),
        Work::Request(Operation::Reconnect(request)) => return Party::of_user(&request.caller.token.user),
        Work::Request(request) => open_of(request),
        Work::CloseQuietly(open) => Some(*open),
    };
    open.and_then(|open| opens.get(open)).map_or(Party::SERVICE, |open| Party::of_user(&open.token.user))
}

/// The open that an operation is of; of one with two, that which it changes.
fn open_of(request: &Operation) -> Option<OpenId> {
    match request {
        Operation::OpenRoot { .. }
        | Operation::Create(_)
        | Operation::Reconnect(_)
        | Operation::OpenDevice(_)
        | Operation::AcknowledgeLease { .. }
        | Operation::EndSession { .. } => None,
        Operation::Control { open, .. }
        | Operation::Close { open, .. }
        | Operation::Read { open, .. }
        | Operation::Write { open, .. }
        | Operation::Flush { open }
        | Operation::QueryInformation { open }
        | Operation::SetInformation { open, .. }
        | Operation::QueryStreams { open }
        | Operation::QueryShortName { open }
        | Operation::QueryExtendedAttributes { open }
        | Operation::QuerySecurity { open, .. }
        | Operation::SetSecurity { open, .. }
        | Operation::QueryVolume { open }
        | Operation::QueryQuotas { open, .. }
        | Operation::SetQuotas { open, .. }
        | Operation::QueryDirectory { open, .. }
        | Operation::Lock { open, .. }
        | Operation::Notify { open, .. }
        | Operation::SetSparse { open, .. }
        | Operation::ZeroRange { open, .. }
        | Operation::QueryAllocatedRanges { open, .. }
        | Operation::Trim { open, .. }
        | Operation::CopyChunks { target: open, .. }
        | Operation::DuplicateExtents { target: open, .. }
        | Operation::QueryReparsePoint { open }
        | Operation::SetReparsePoint { open, .. }
        | Operation::DeleteReparsePoint { open, .. }
        | Operation::ObjectId { open, .. }
        | Operation::SetIntegrity { open, .. }
        | Operation::AcknowledgeOplock { open, .. }
        | Operation::Abandon(open, _)
        | Operation::ForceClose { open } => Some(*open),
    }
}
