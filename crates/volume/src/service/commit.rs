//! Answers that wait until their effects are durable.

use super::io::flushed;
use super::parts::Parts;
use super::transfers::{InFlight, Shown};
use crate::backend::{OperationId, Reply};
use crate::fs::FileId;
use std::task::Poll;

/// Answers when all metadata changed so far is durable, with a file's data and size.
pub fn commit(
    parts: &mut Parts<'_>,
    operation: OperationId,
    reply: Reply,
    shown: Option<Shown>,
    data: Option<FileId>,
) {
    let token = parts.transfers.add(InFlight::Commit { operation, reply: Box::new(reply), shown });
    let result = match data {
        Some(file) => parts.fs.flush(token, file),
        None => parts.fs.flush_metadata(token),
    };
    if let Poll::Ready(result) = result {
        flushed(parts, token, result);
    }
}
