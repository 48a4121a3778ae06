//! The table of operations: which of them takes which parts.

use super::close::close;
use super::control;
use super::copy::{copy_chunks, duplicate_extents};
use super::create::create;
use super::directory::{DirectoryRequest, Sources, query_directory};
use super::durable::reconnect;
use super::grant;
use super::information;
use super::io;
use super::locks::LockRequest;
use super::notify::NotifyRequest;
use super::opens::Opens;
use super::parts::Parts;
use super::quotas::{query_quotas, set_quotas};
use super::security::{query_security, set_security};
use super::sessions::{abandon, end_session};
use super::set_information::set_information;
use super::suspend::{Outcome, Suspend};
use super::tasks::Work;
use super::walk::open_root;
use crate::backend::{LockElement, OpenId, Operation, OperationId, Reply};
use types::NtStatus;

/// Tries an operation from its beginning.
pub fn perform(parts: &mut Parts<'_>, operation: OperationId, work: &mut Work) -> Result<Outcome, Suspend> {
    let request = match work {
        Work::Create(request, attempt) => return create(parts, request, attempt),
        Work::CloseQuietly(open) => return close(parts, operation, *open, false),
        Work::Request(request) => request,
    };
    let granted = check_grant(parts.opens, request);
    // Everyone may read an existing object id: only making one is a change.
    if let Operation::ObjectId { open, create } = request {
        return Ok(Outcome::Reply(control::object_id(parts, *open, create.then_some(granted))?));
    }
    granted?;
    match request {
        Operation::Write { open, offset, data, write_through, .. } => {
            let data = std::mem::take(data);
            io::write_or_wait(parts, operation, *open, *offset, data, *write_through);
            Ok(Outcome::Later)
        }
        Operation::Close { open, query } => close(parts, operation, *open, *query),
        Operation::Flush { open } => io::flush(parts, operation, *open),
        Operation::Lock { open, elements, sequence } => {
            ready_to_lock(parts, *open, elements)?;
            let request = LockRequest { operation, open: *open, elements, sequence: *sequence };
            let (locks, mut around) = parts.around_locks();
            locks.lock(&request, &mut around)
        }
        Operation::Notify { open, filter, tree, bytes_max } => {
            let (open, filter, tree, bytes_max) = (*open, *filter, *tree, *bytes_max);
            let request = NotifyRequest { operation, open, filter, tree, bytes_max };
            parts.watches.watch(request, parts.opens, parts.agenda)
        }
        Operation::CopyChunks { source, target, chunks } => {
            copy_chunks(parts, operation, *source, *target, std::mem::take(chunks))
        }
        Operation::DuplicateExtents { source, target, chunk } => {
            duplicate_extents(parts, operation, *source, *target, chunk)
        }
        Operation::QueryDirectory { open, pattern, after, entries_max, short_names } => {
            let (open, after) = (*open, *after);
            let (entries_max, short_names) = (*entries_max, *short_names);
            let request = DirectoryRequest { operation, open, pattern, after, entries_max, short_names };
            let mut sources = Sources {
                fs: parts.fs,
                names: parts.names,
                descriptors: parts.descriptors,
                turn: &mut parts.agenda.turn,
            };
            Ok(Outcome::Reply(query_directory(&mut sources, parts.opens, &request)?))
        }
        request => Ok(Outcome::Reply(answer(parts, request)?)),
    }
}

/// Performs an operation with an immediate answer.
fn answer(parts: &mut Parts<'_>, request: &mut Operation) -> Result<Reply, Suspend> {
    match request {
        Operation::OpenRoot { path } => open_root(parts.fs, parts.names, parts.opens, path),
        Operation::Reconnect(request) => reconnect(parts, request),
        Operation::QueryInformation { open } => information::query(parts.fs, parts.opens, *open),
        Operation::SetInformation { open, set } => set_information(parts, *open, set),
        Operation::QueryStreams { open } => information::query_streams(parts.fs, parts.opens, *open),
        Operation::QueryShortName { open } => parts.names.query(parts.fs, parts.opens, *open),
        Operation::QueryExtendedAttributes { open } => {
            information::query_extended_attributes(parts.fs, parts.opens, *open)
        }
        Operation::QuerySecurity { open, parts: asked } => query_security(parts, *open, *asked),
        Operation::SetSecurity { open, parts: asked, descriptor } => {
            set_security(parts, *open, *asked, descriptor)
        }
        Operation::QueryVolume { open } => information::query_volume(parts, *open),
        Operation::QueryQuotas { open, query } => query_quotas(parts, *open, query),
        Operation::SetQuotas { open, change } => set_quotas(parts, *open, change),
        Operation::SetSparse { open, sparse } => control::set_sparse(parts, *open, *sparse),
        Operation::ZeroRange { open, range } => control::zero_range(parts, *open, *range),
        Operation::QueryAllocatedRanges { open, range } => {
            control::query_allocated_ranges(parts, *open, *range)
        }
        Operation::Trim { open, ranges } => control::trim(parts, *open, ranges),
        Operation::QueryReparsePoint { open } => control::query_reparse_point(parts, *open),
        Operation::SetReparsePoint { open, data } => control::set_reparse_point(parts, *open, data),
        Operation::DeleteReparsePoint { open, tag } => control::delete_reparse_point(parts, *open, *tag),
        Operation::SetIntegrity { open, .. } => control::set_integrity(parts, *open),
        Operation::AcknowledgeOplock { open, level } => {
            parts.caching.acknowledge_oplock(parts.opens, parts.agenda, *open, *level)
        }
        Operation::AcknowledgeLease { client, key, state } => {
            parts.caching.acknowledge_lease(parts.opens, parts.agenda, (*client, *key), *state)
        }
        Operation::EndSession { session } => Ok(end_session(parts, *session)),
        Operation::Abandon(open, session) => Ok(abandon(parts, *open, *session)),
        Operation::ForceClose { open } => force_close(parts, *open),
        Operation::OpenDevice(_) | Operation::Control { .. } => Err(NtStatus::INVALID_DEVICE_REQUEST.into()),
        // A create has its own work, a read is done on arrival, and the rest is in `perform`.
        Operation::Create(_)
        | Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Close { .. }
        | Operation::Flush { .. }
        | Operation::Lock { .. }
        | Operation::Notify { .. }
        | Operation::CopyChunks { .. }
        | Operation::DuplicateExtents { .. }
        | Operation::ObjectId { .. }
        | Operation::QueryDirectory { .. } => Err(NtStatus::INTERNAL_ERROR.into()),
    }
}

/// Checks that the share of an open allows the operation.
fn check_grant(opens: &Opens, operation: &Operation) -> Result<(), NtStatus> {
    let Some((id, needs)) = grant::needed(operation) else { return Ok(()) };
    let open = opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    open.grant().check(needs)
}

/// Checks that locks of an open that outlives the server can be recorded.
fn ready_to_lock(parts: &mut Parts<'_>, id: OpenId, elements: &[LockElement]) -> Result<(), Suspend> {
    if parts.opens.get(id).is_none_or(|open| !open.persistent) {
        return Ok(());
    }
    match elements.first().is_some_and(|element| element.exclusive.is_some()) {
        true => parts.fs.ready_to_keep_opens()?,
        false => parts.fs.ready_to_change_opens()?,
    }
    Ok(())
}

fn force_close(parts: &mut Parts<'_>, id: OpenId) -> Result<Reply, Suspend> {
    parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    parts.opens.revoke(id, parts.agenda);
    Ok(Reply::Done)
}
