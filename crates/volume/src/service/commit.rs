//! Answers that wait until what they say is durable.

use super::io::flushed;
use super::parts::Parts;
use super::transfers::InFlight;
use crate::backend::{CreateAction, Created, OperationId, Reply};
use crate::fs::FileId;
use std::task::Poll;

/// Answers when all metadata changed so far is durable, with a file's data and size.
pub fn commit(parts: &mut Parts<'_>, operation: OperationId, reply: Reply, data: Option<FileId>) {
    let changed_nothing = |created: &Created| created.action == CreateAction::Opened && !created.persistent;
    if matches!(&reply, Reply::Created(created) if changed_nothing(created)) {
        return parts.agenda.events.done(operation, Ok(reply));
    }
    let token = parts.transfers.add(InFlight::Commit { operation, reply: Box::new(reply) });
    let result = match data {
        Some(file) => parts.fs.flush(token, file),
        None => parts.fs.flush_metadata(token),
    };
    if let Poll::Ready(result) = result {
        flushed(parts, token, result);
    }
}
