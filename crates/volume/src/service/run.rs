//! The life of an operation: it is tried, parked, tried again, answered.

use super::commit::commit;
use super::establish::lease_name;
use super::io::flushed;
use super::locks::LockOwner;
use super::parts::Parts;
use super::party::party_of;
use super::perform::perform;
use super::persist_opens::record_changes;
use super::sessions::disconnect_or_close;
use super::suspend::{Outcome, Suspend};
use super::tasks::{Attempt, Parked, Wait, Work};
use super::transfers::{InFlight, Shown};
use super::turn::OPERATION_STEPS;
use crate::backend::{CreateAction, OpenId, Operation, OperationId, Refusal, Reply};
use crate::fs::FileId;
use crate::planted::Planted;
use std::task::Poll;
use types::NtStatus;

/// Takes an operation in, and tries it unless the turn is spent.
pub fn start(parts: &mut Parts<'_>, operation: OperationId, request: Operation) {
    let work = match request {
        Operation::Create(create) => Work::Create(create, Attempt::default()),
        other => Work::Request(other),
    };
    let tasks = &mut parts.agenda.tasks;
    let operation = if operation == OperationId::UNATTENDED { tasks.internal_id() } else { operation };
    if parts.agenda.turn.is_spent() || !parts.agenda.is_open {
        let parked = Parked { work: Some(work), wait: Wait::Nothing, told: false };
        return parts.agenda.tasks.park(operation, parked);
    }
    run(parts, operation, work, false);
}

/// Tries everything that can continue, until the turn is spent.
pub fn run_ready(parts: &mut Parts<'_>) {
    while parts.agenda.is_open {
        while !parts.agenda.turn.is_spent()
            && let Some((operation, work, told)) =
                parts.agenda.tasks.take_ready(|work| party_of(parts.opens, work))
        {
            run(parts, operation, work, told);
        }
        parts.watches.answer(parts.agenda);
        if !parts.agenda.tasks.has_ready() || parts.agenda.turn.is_spent() {
            return;
        }
    }
}

fn run(parts: &mut Parts<'_>, operation: OperationId, mut work: Work, told: bool) {
    if parts.agenda.records.is_behind() {
        return parts.agenda.park(operation, Some(work), Wait::Turn, told);
    }
    let durable = wants_durability(parts, &work);
    // Steps of the file layer itself are bounded there.
    parts.fs.take_steps();
    let result = perform(parts, operation, &mut work);
    parts.agenda.turn.spend(OPERATION_STEPS);
    parts.spend_metadata();
    parts.agenda.turn.spend(parts.watches.take_steps());
    if let (Ok(Outcome::Reply(Reply::Created(created))), Work::Create(_, Attempt { orphan: true, .. })) =
        (&result, &work)
    {
        disconnect_or_close(parts, created.open);
    }
    record_changes(parts);
    match result {
        Ok(Outcome::Reply(reply)) => match durable {
            Some(data) if !changed_nothing(parts, &work, &reply) => {
                let shown = shown_by(&work, &reply);
                commit(parts, operation, reply, shown, data);
            }
            _ => {
                if let Reply::Created(created) = &reply
                    && let Some(open) = parts.opens.get_mut(created.open)
                {
                    open.told = true;
                }
                parts.agenda.events.done(operation, Ok(reply));
            }
        },
        Ok(Outcome::Later) => (),
        Err(suspend) => stop(parts, operation, work, told, suspend),
    }
}

/// Returns the open or lease whose caching an answer reports.
fn shown_by(work: &Work, reply: &Reply) -> Option<Shown> {
    match (reply, work) {
        (Reply::Created(created), _) => Some(Shown::Open(created.open)),
        (Reply::Oplock(_), Work::Request(Operation::AcknowledgeOplock { open, .. })) => {
            Some(Shown::Open(*open))
        }
        (Reply::Lease { .. }, Work::Request(Operation::AcknowledgeLease { client, key, .. })) => {
            Some(Shown::Lease((*client, *key)))
        }
        _ => None,
    }
}

/// Whether an answered create leaves all durable state unchanged.
fn changed_nothing(parts: &Parts<'_>, work: &Work, reply: &Reply) -> bool {
    let Reply::Created(created) = reply else { return false };
    created.action == CreateAction::Opened && !created.persistent && !shows_kept_lease(parts, work)
}

/// Whether the answer reports the caching of a lease that outlives the server. After a start the client
/// must find no less.
fn shows_kept_lease(parts: &Parts<'_>, work: &Work) -> bool {
    let name = match work {
        Work::Create(create, _) => lease_name(create),
        Work::Request(Operation::Reconnect(request)) => {
            request.lease.map(|lease| (request.caller.client, lease.key))
        }
        _ => None,
    };
    name.is_some_and(|name| parts.caching.record_of(name).is_some()) && parts.fs.takes_changes()
}

/// Answers or parks an operation that does not continue.
fn stop(parts: &mut Parts<'_>, operation: OperationId, mut work: Work, told: bool, suspend: Suspend) {
    match suspend {
        Suspend::Status(status) => {
            parts.replays.release(&mut work, parts.agenda);
            if let Work::CloseQuietly(id) = work {
                put_off_close(parts, id);
            }
            parts.agenda.events.done(operation, Err(status));
        }
        Suspend::Symlink { data, unparsed_bytes } => {
            parts.replays.release(&mut work, parts.agenda);
            parts.agenda.events.refused(operation, Refusal::on_symlink(data, unparsed_bytes));
        }
        Suspend::Miss => match parts.agenda.tasks.failed() {
            Some(status) => {
                parts.replays.release(&mut work, parts.agenda);
                parts.agenda.events.done(operation, Err(status));
            }
            None => parts.agenda.park(operation, Some(work), Wait::Storage, told),
        },
        Suspend::Yield => parts.agenda.park(operation, Some(work), Wait::Turn, told),
        Suspend::Closing(file) => {
            let wait = wait_for_caching(parts, file);
            // The opens close by themselves, soon: its client need not know.
            parts.agenda.tasks.park(operation, Parked { work: Some(work), wait, told });
        }
        Suspend::Break(file) => {
            if let Work::Create(_, attempt) = &mut work {
                attempt.again = true;
            }
            let wait = wait_for_caching(parts, file);
            parts.agenda.park(operation, Some(work), wait, told);
        }
    }
}

/// Puts off the close of an open that cannot be closed now, as when the volume accepts no changes: it
/// blocks nobody meanwhile.
fn put_off_close(parts: &mut Parts<'_>, id: OpenId) {
    parts.opens.put_off_close(id, parts.agenda);
    parts.caching.give_up(parts.opens, parts.agenda, id);
    let Some(open) = parts.opens.get(id) else { return };
    let (owner, file) = (LockOwner::new(id, open), open.stream.file);
    let (locks, mut around) = parts.around_locks();
    locks.release(owner, &mut around);
    parts.agenda.tasks.wake(file);
}

/// Returns the wait for a file's caching, behind the others that wait for it.
fn wait_for_caching(parts: &mut Parts<'_>, file: FileId) -> Wait {
    // Each try examined all its opens.
    parts.agenda.turn.spend(parts.opens.steps_of(file));
    parts.agenda.tasks.wait_for_caching(file)
}

/// Returns whether the operation's answer has to wait until its changes are durable; and the file whose
/// size or data it changes, which the file layer publishes later than other changes.
fn wants_durability(parts: &Parts<'_>, work: &Work) -> Option<Option<FileId>> {
    let opens = &*parts.opens;
    let (is_durable, data) = match work {
        Work::Create(create, _) => {
            (create.caller.share.durable_writes() || shows_kept_lease(parts, work), None)
        }
        Work::CloseQuietly(_) => return None,
        Work::Request(request) => match request {
            Operation::SetInformation { open, .. }
            | Operation::ZeroRange { open, .. }
            | Operation::Trim { open, .. }
            | Operation::DuplicateExtents { target: open, .. } => {
                let open = opens.get(*open)?;
                (open.durable_writes(), Some(open.stream.file))
            }
            // Locks and caching reported for opens that outlive the server must be durable too.
            Operation::Lock { open, .. } | Operation::AcknowledgeOplock { open, .. } => {
                return opens.get(*open)?.persistent.then_some(None);
            }
            Operation::AcknowledgeLease { client, key, .. } => {
                return parts.caching.record_of((*client, *key)).map(|_| None);
            }
            Operation::Reconnect(_) => (shows_kept_lease(parts, work), None),
            Operation::Close { open, .. }
            | Operation::SetSecurity { open, .. }
            | Operation::SetQuotas { open, .. }
            | Operation::SetSparse { open, .. }
            | Operation::SetReparsePoint { open, .. }
            | Operation::DeleteReparsePoint { open, .. }
            | Operation::ObjectId { open, create: true } => (opens.get(*open)?.durable_writes(), None),
            _ => return None,
        },
    };
    let data = data.filter(|_| !Planted::GrowthNotDurable.is_planted());
    is_durable.then_some(data)
}

/// Makes all data and metadata durable; answers `Done` to `operation`.
pub fn make_durable(parts: &mut Parts<'_>, operation: OperationId) {
    let token =
        parts.transfers.add(InFlight::Commit { operation, reply: Box::new(Reply::Done), shown: None });
    if let Poll::Ready(result) = parts.fs.flush_all(token) {
        flushed(parts, token, result);
    }
}

/// Ends an operation that may wait for long.
pub fn cancel(parts: &mut Parts<'_>, operation: OperationId) {
    let Some(wait) = parts.agenda.tasks.cancellable(operation) else { return };
    // With its own file it waits for nobody, and its client may be gone and repeat it.
    if parts.agenda.tasks.owes_an_open(operation).is_some_and(|file| parts.replays.is_interrupted(file)) {
        return;
    }
    match wait {
        Wait::Storage | Wait::Nothing | Wait::Break(..) => {}
        Wait::Turn => parts.agenda.tasks.leave_next_turn(operation),
        Wait::Lock(open) => parts.locks.cancel(open, operation, parts.opens),
        Wait::Notify(open) => parts.watches.cancel(open, operation),
    }
    parts.replays.abort(parts.agenda, operation, NtStatus::CANCELLED);
}
