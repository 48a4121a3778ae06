//! Holders' acknowledgments of breaks (MS-SMB2 3.3.5.22).

use super::{CacheHolder, Caching, Holder, LeaseName, level_of, note_caching, state_of};
use crate::backend::{LeaseState, OpenId, OplockLevel, Reply};
use crate::service::agenda::Agenda;
use crate::service::opens::Opens;
use crate::service::suspend::Suspend;
use types::NtStatus;

impl Caching {
    /// Takes the acknowledgement of an oplock's break (MS-SMB2 3.3.5.22.1).
    pub fn acknowledge_oplock(
        &mut self,
        opens: &mut Opens,
        agenda: &mut Agenda,
        id: OpenId,
        level: OplockLevel,
    ) -> Result<Reply, Suspend> {
        let open = opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        let file = open.stream.file;
        let CacheHolder::Oplock(caching) = &mut open.holder else {
            return Err(NtStatus::INVALID_OPLOCK_PROTOCOL.into());
        };
        // No break leads to such a level. Any acknowledgment ends the break, so that no operation waits for a
        // better one.
        let is_possible = !matches!(level, OplockLevel::Exclusive | OplockLevel::Batch);
        if !caching.is_breaking() {
            let status =
                if is_possible { NtStatus::INVALID_OPLOCK_PROTOCOL } else { NtStatus::INVALID_PARAMETER };
            return Err(status.into());
        }
        let next = match is_possible {
            true => caching.acknowledge(state_of(level), agenda.clock.now()),
            false => Err(NtStatus::INVALID_PARAMETER),
        };
        let next = match next {
            Ok(next) => next,
            Err(status) => {
                // The holder wants to keep more than it was offered: it keeps nothing.
                open.holder = CacheHolder::None;
                if open.persistent {
                    agenda.records.open(id);
                }
                note_caching(opens, id);
                agenda.tasks.wake(file);
                return Err(status.into());
            }
        };
        let (left, deadline) = (caching.state(), caching.deadline());
        if open.persistent {
            agenda.records.open(id);
        }
        note_caching(opens, id);
        if let Some(step) = next {
            self.tell(opens, agenda, Holder::Oplock(id), step, deadline);
        }
        agenda.tasks.wake(file);
        Ok(Reply::Oplock(level_of(left)))
    }

    /// Takes the acknowledgement of a lease's break (MS-SMB2 3.3.5.22.2).
    pub fn acknowledge_lease(
        &mut self,
        opens: &Opens,
        agenda: &mut Agenda,
        name: LeaseName,
        state: LeaseState,
    ) -> Result<Reply, Suspend> {
        let lease = self.leases.get_mut(&name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let file = lease.stream.file;
        let next = lease.caching.acknowledge(state, agenda.clock.now())?;
        let deadline = lease.caching.deadline();
        self.note_lease(agenda, name);
        if let Some(step) = next {
            self.tell(opens, agenda, Holder::Lease(name), step, deadline);
        }
        agenda.tasks.wake(file);
        Ok(Reply::Lease { key: name.1, state })
    }
}
