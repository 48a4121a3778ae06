//! A change of the server's policy, as it reaches what is open and what waits to be opened.

use super::Service;
use super::tasks::Work;
use crate::backend::{Caller, OpenId, Operation, OperationId, Ruling, Standing};
use types::NtStatus;

impl Service {
    /// Waiting creates come first: none of them goes on because an open before it in its way is closed.
    pub(super) fn review_all(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling) {
        let mut refused: Vec<OperationId> = Vec::new();
        for (operation, work) in self.tasks.waiting_mut() {
            let Some(caller) = caller_mut(work) else { continue };
            match judge(&caller.standing) {
                Ruling::Keep => {}
                Ruling::Amend(terms) => caller.amend(&terms),
                Ruling::Close => refused.push(operation),
            }
        }
        for operation in refused {
            self.abort(operation, NtStatus::NETWORK_NAME_DELETED);
        }
        let mut closed: Vec<OpenId> = Vec::new();
        for (id, open) in self.opens.iter_mut() {
            match judge(&open.standing) {
                Ruling::Keep => {}
                // What is being closed gets nothing back.
                Ruling::Amend(terms) if !open.closing => open.amend(terms),
                Ruling::Amend(_) => {}
                Ruling::Close => closed.push(id),
            }
        }
        for id in closed {
            self.revoke(id);
        }
    }
}

/// Under whose terms waiting work will go on. Everything else that waits acts through an open, and is judged with that.
fn caller_mut(work: &mut Work) -> Option<&mut Caller> {
    match work {
        Work::Create(create, _) => Some(&mut create.caller),
        Work::Request(Operation::Reconnect(reconnect)) => Some(&mut reconnect.caller),
        Work::Request(_) | Work::CloseQuietly(_) => None,
    }
}
