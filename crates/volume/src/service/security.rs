//! Queries and changes of security descriptors (MS-FSA 2.1.5.13, 2.1.5.16).

use super::notify;
use super::parts::Parts;
use super::suspend::Suspend;
use crate::backend::{OpenId, Reply};
use crate::fs::FsError;
use crate::security::{self, SecurityDescriptor};
use types::NtStatus;

pub fn query_security(parts: &mut Parts<'_>, id: OpenId, asked: u32) -> Result<Reply, Suspend> {
    let asked = security::Parts::from_bits_truncate(asked);
    let file = parts.opens.open_for(id, asked.access_to_query())?.stream.file;
    let attributes = parts.fs.attributes(file)?;
    let descriptor = parts.descriptor(&attributes)?;
    Ok(Reply::Security(security::select(&descriptor, asked).build()?))
}

pub fn set_security(
    parts: &mut Parts<'_>,
    id: OpenId,
    asked: u32,
    descriptor: &[u8],
) -> Result<Reply, Suspend> {
    let asked = security::Parts::from_bits_truncate(asked);
    let access = asked.access_to_set();
    let open = parts.opens.open_for(id, access)?;
    // A client that names no part has shown no right to change anything, the time of the last change included.
    if access == 0 {
        return Ok(Reply::Done);
    }
    let (file, token) = (open.stream.file, open.token.clone());
    let new = SecurityDescriptor::parse(descriptor)?;
    let attributes = parts.fs.attributes(file)?;
    let current = parts.descriptor(&attributes)?;
    let changed = security::change(&current, &new, asked, &token)?.build()?;
    let now = parts.time();
    parts.fs.set_security(file, &changed, now).map_err(|error| match error {
        // A change of the owner is no question of space on the disk.
        FsError::QuotaExceeded => Suspend::Status(NtStatus::QUOTA_EXCEEDED),
        error => Suspend::from(error),
    })?;
    parts.mark_dirty(id);
    parts.tell_modified(id, notify::SECURITY);
    Ok(Reply::Done)
}
