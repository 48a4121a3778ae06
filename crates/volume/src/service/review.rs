//! A change of the server's policy, as it reaches opens and waiting creates.

use super::agenda::Agenda;
use super::opens::Opens;
use super::replays::Replays;
use super::tasks::Work;
use crate::backend::{Caller, OpenId, Operation, OperationId, Ruling, Standing};
use types::NtStatus;

/// Judges everything again. Waiting creates come first: otherwise one could continue because an open in
/// its way is closed.
pub fn review(
    opens: &mut Opens,
    replays: &mut Replays,
    agenda: &mut Agenda,
    judge: &mut dyn FnMut(&Standing) -> Ruling,
) {
    let mut refused: Vec<OperationId> = Vec::new();
    for (operation, work) in agenda.tasks.waiting_mut() {
        let Some(caller) = caller_mut(work) else { continue };
        match judge(&caller.standing) {
            Ruling::Keep => {}
            Ruling::Amend(terms) => caller.amend(&terms),
            Ruling::Close => refused.push(operation),
        }
    }
    for operation in refused {
        replays.abort(agenda, operation, NtStatus::NETWORK_NAME_DELETED);
    }
    let mut closed: Vec<OpenId> = Vec::new();
    for (id, open) in opens.iter_mut() {
        match judge(&open.standing) {
            Ruling::Keep => {}
            // An open that is being closed gets nothing back.
            Ruling::Amend(terms) if !open.closing => open.amend(terms),
            Ruling::Amend(_) => {}
            Ruling::Close => closed.push(id),
        }
    }
    for id in closed {
        opens.revoke(id, agenda);
    }
}

/// Returns the caller on whose terms waiting work will continue. All other work acts through an open,
/// and is judged with that.
fn caller_mut(work: &mut Work) -> Option<&mut Caller> {
    match work {
        Work::Create(create, _) => Some(&mut create.caller),
        Work::Request(Operation::Reconnect(reconnect)) => Some(&mut reconnect.caller),
        Work::Request(_) | Work::CloseQuietly(_) => None,
    }
}
