//! Creates that may come again: GUIDs of creates in progress and of the opens that they made (MS-SMB2 3.3.5.9.10).

use super::agenda::Agenda;
use super::file_opens::Doomed;
use super::open::{LinkName, Open};
use super::opens::Opens;
use super::tasks::{Attempt, Work};
use crate::backend::{Create, DurableRequest, Guid, OpenId, OperationId};
use crate::fs::FileId;
use crate::planted::Planted;
use std::collections::HashMap;
use types::NtStatus;

/// Meaning of a create GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreateState {
    /// A create that has not been answered.
    Pending,
    Open(OpenId),
}

/// The creates by client and create GUID.
///
/// Invariant: a GUID is listed while a create holds it ([`Attempt::guid_held`]), and then until its
/// open is closed. A file is among the interrupted while the create that made it waits, unless another
/// one has opened it since.
#[derive(Debug, Default)]
pub struct Replays {
    creates: HashMap<(Guid, Guid), CreateState>,
    /// Files of creates that continue later; with their names if a record says to delete them unless their
    /// opens are made.
    interrupted: HashMap<FileId, Option<Box<LinkName>>>,
}

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
        self.creates.is_empty() && self.interrupted.is_empty()
    }

    /// Returns the open if this create is a replay. Otherwise the create holds its GUID from here on.
    ///
    /// # Errors
    /// DUPLICATE_OBJECTID if the GUID is taken and this is no replay; FILE_NOT_AVAILABLE for a replay of a
    /// create in progress.
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
        let found = self.creates.get(&name).copied().filter(|_| !again).filter(|found| match found {
            CreateState::Pending => true,
            CreateState::Open(id) => opens.get(*id).is_some_and(|open| !open.used),
        });
        match found {
            None => {
                self.creates.insert(name, CreateState::Pending);
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
            self.creates.insert((create.caller.client, guid), CreateState::Open(id));
        }
    }

    /// Notes an open that outlived a start of the server.
    pub fn restore(&mut self, client: Guid, create_guid: Guid, id: OpenId) {
        self.creates.insert((client, create_guid), CreateState::Open(id));
    }

    /// Notes that a create continues later: a file that it has made does not outlive a start without its open.
    pub fn interrupt(&mut self, attempt: &mut Attempt, agenda: &mut Agenda) {
        if let Some(file) = attempt.made
            && !std::mem::replace(&mut attempt.interrupted, true)
        {
            if let Some(link) = &attempt.made_link {
                agenda.records.deletion(file, Doomed::Link((**link).clone()), true);
            }
            self.interrupted.insert(file, attempt.made_link.clone());
        }
    }

    /// Notes that a create has ended: the file that it made stays.
    pub fn finish(&mut self, attempt: &mut Attempt, agenda: &mut Agenda) {
        if let Some(file) = attempt.made
            && std::mem::take(&mut attempt.interrupted)
        {
            self.spare(file, agenda);
        }
    }

    /// Whether a create that continues later has made this file, which has no open since.
    pub fn is_interrupted(&self, file: FileId) -> bool {
        self.interrupted.contains_key(&file)
    }

    /// Lets a file stay that an interrupted create has made: another create opens it.
    pub fn spare(&mut self, file: FileId, agenda: &mut Agenda) {
        if let Some(Some(link)) = self.interrupted.remove(&file) {
            agenda.records.deletion(file, Doomed::Link(*link), false);
        }
    }

    /// Abandons the file that an earlier try of a create made, if somebody else has opened or removed it
    /// since: it is no longer the create's own to open or to delete. `found`: the file of that name now.
    pub fn give_up_made(&mut self, attempt: &mut Attempt, found: Option<FileId>, agenda: &mut Agenda) {
        let Some(made) = attempt.made.filter(|_| attempt.interrupted) else { return };
        if found != Some(made) || !self.is_interrupted(made) {
            self.finish(attempt, agenda);
            (attempt.made, attempt.made_link) = (None, None);
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
            let held = self.creates.remove(&(create.caller.client, guid));
            debug_assert_eq!(
                held,
                Some(CreateState::Pending),
                "a create holds its GUID until it has made an open"
            );
        }
    }

    /// Frees the GUID of a closed open.
    pub fn closed(&mut self, id: OpenId, open: &Open) {
        if let Some(guid) = open.create_guid
            && self.creates.get(&(open.client, guid)) == Some(&CreateState::Open(id))
        {
            self.creates.remove(&(open.client, guid));
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
