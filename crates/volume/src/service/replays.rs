//! Creates that may come again: GUIDs of creates in progress and of the opens that they made (MS-SMB2 3.3.5.9.10).

use super::agenda::Agenda;
use super::file_opens::Doomed;
use super::open::Open;
use super::opens::Opens;
use super::tasks::{Attempt, Work};
use crate::backend::{Create, DurableRequest, Guid, OpenId, OperationId};
use crate::planted::Planted;
use std::collections::HashMap;
use types::NtStatus;

/// What a create GUID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreateState {
    /// A create that has not been answered.
    Pending,
    Open(OpenId),
}

/// The creates by client and create GUID.
///
/// Invariant: a GUID stands here while a create holds it ([`Attempt::guid_held`]), and then as long as the open that it made.
#[derive(Debug, Default)]
pub struct Replays(HashMap<(Guid, Guid), CreateState>);

/// Returns the GUID by which a create can be replayed.
pub fn create_guid(create: &Create) -> Option<Guid> {
    match create.durable {
        Some(DurableRequest::Version2 { create_guid, .. }) => Some(create_guid),
        _ => None,
    }
}

impl Replays {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks whether this create happened already: returns its open. Otherwise the create holds its GUID from here on.
    ///
    /// # Errors
    /// DUPLICATE_OBJECTID if the GUID is taken and this is no replay; FILE_NOT_AVAILABLE for a replay of what is still going on.
    pub fn find(
        &mut self,
        create: &Create,
        attempt: &mut Attempt,
        opens: &Opens,
    ) -> Result<Option<OpenId>, NtStatus> {
        let Some(guid) = create_guid(create).filter(|_| !attempt.guid_held) else { return Ok(None) };
        let name = (create.caller.client, guid);
        // An open that was used since is no replay's business any more: its GUID is free.
        let again = create.replay && Planted::ReplayedCreateAppliedTwice.is_planted();
        let found = self.0.get(&name).copied().filter(|_| !again).filter(|found| match found {
            CreateState::Pending => true,
            CreateState::Open(id) => opens.get(*id).is_some_and(|open| !open.used),
        });
        match found {
            None => {
                self.0.insert(name, CreateState::Pending);
                attempt.guid_held = true;
                Ok(None)
            }
            Some(_) if !create.replay => Err(NtStatus::DUPLICATE_OBJECTID),
            Some(CreateState::Pending) => Err(NtStatus::FILE_NOT_AVAILABLE),
            Some(CreateState::Open(id)) => Ok(Some(id)),
        }
    }

    /// Notes the open that a create made.
    pub fn register(&mut self, create: &Create, id: OpenId) {
        if let Some(guid) = create_guid(create) {
            self.0.insert((create.caller.client, guid), CreateState::Open(id));
        }
    }

    /// Notes an open that outlived a start of the server.
    pub fn restore(&mut self, client: Guid, create_guid: Guid, id: OpenId) {
        self.0.insert((client, create_guid), CreateState::Open(id));
    }

    /// Notes that a create goes on later: a file that it has made does not outlive a start without its open.
    pub fn interrupt(&self, attempt: &mut Attempt, agenda: &mut Agenda) {
        if let (Some(file), Some(link)) = (attempt.made, &attempt.made_link)
            && !attempt.doomed
        {
            attempt.doomed = true;
            agenda.records.deletion(file, Doomed::Link((**link).clone()), true);
        }
    }

    /// Notes that a create has ended: what it made stays.
    pub fn finish(&self, attempt: &mut Attempt, agenda: &mut Agenda) {
        if let (Some(file), Some(link), true) = (attempt.made, &attempt.made_link, attempt.doomed) {
            attempt.doomed = false;
            agenda.records.deletion(file, Doomed::Link((**link).clone()), false);
        }
    }

    /// Frees the GUID of a create that ended without an open.
    pub fn release(&mut self, work: &mut Work, agenda: &mut Agenda) {
        if let Work::Create(_, attempt) = work {
            self.finish(attempt, agenda);
        }
        if let Work::Create(create, attempt) = work
            && attempt.guid_held
            && let Some(guid) = create_guid(create)
        {
            let held = self.0.remove(&(create.caller.client, guid));
            debug_assert_eq!(
                held,
                Some(CreateState::Pending),
                "a create holds its GUID until it has made an open"
            );
        }
    }

    /// Frees the GUID of an open that is gone.
    pub fn closed(&mut self, id: OpenId, open: &Open) {
        if let Some(guid) = open.create_guid
            && self.0.get(&(open.client, guid)) == Some(&CreateState::Open(id))
        {
            self.0.remove(&(open.client, guid));
        }
    }

    /// Ends an operation that waits for its turn, for metadata or for caching, with this status.
    pub fn abort(&mut self, agenda: &mut Agenda, operation: OperationId, status: NtStatus) {
        let Some(mut parked) = agenda.tasks.forget(operation) else { return };
        if let Some(work) = &mut parked.work {
            self.release(work, agenda);
        }
        agenda.events.done(operation, Err(status));
    }
}
