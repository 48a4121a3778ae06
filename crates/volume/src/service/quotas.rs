//! Queries and changes of quotas (MS-FSA 2.1.5.21, 2.1.5.23): administrators see and change all, everyone else sees the own one.

use super::parts::Parts;
use super::suspend::Suspend;
use crate::backend::{AccessToken, OpenId, QuotaChange, QuotaLimits, QuotaQuery, QuotaUser, Reply};
use crate::fs::{Attributes, QuotaMode};
use crate::security::holds_sid;
use types::{NtStatus, Sid};

/// Entries of one answer at most.
const ENTRIES_MAX: usize = 1024;
/// Steps of an entry that is looked up, and of one that is changed.
const LOOKUP_STEPS: u32 = 32;
const CHANGE_STEPS: u32 = 256;

fn may_manage(token: &AccessToken) -> bool {
    holds_sid(token, &Sid::administrators())
}

/// Whether a user may write streams of a directory. On NTFS, users who may add files to it may do so,
/// at its owner's charge; here, while limits hold, only the owner and administrators may.
///
/// # Errors
/// Those of reading its descriptor.
pub fn may_write_streams(
    parts: &mut Parts<'_>,
    directory: &Attributes,
    token: &AccessToken,
) -> Result<bool, Suspend> {
    if parts.fs.quota_settings().0.mode != QuotaMode::Enforce || may_manage(token) {
        return Ok(true);
    }
    Ok(parts.descriptor(directory)?.owner.as_ref() == Some(&token.user))
}

/// Refuses a change of a directory's stream to users who may not write it. The open may be older than the limits.
///
/// # Errors
/// ACCESS_DENIED, and those of [`may_write_streams`].
pub fn demand_stream(parts: &mut Parts<'_>, id: OpenId) -> Result<(), Suspend> {
    let open = parts.opens.open_for(id, 0)?;
    if open.stream.index == 0 || parts.fs.quota_settings().0.mode != QuotaMode::Enforce {
        return Ok(());
    }
    let (file, token) = (open.stream.file, open.token.clone());
    let file = parts.fs.attributes(file)?;
    match file.directory && !may_write_streams(parts, &file, &token)? {
        true => Err(NtStatus::ACCESS_DENIED.into()),
        false => Ok(()),
    }
}

/// # Errors
/// ACCESS_DENIED for another user's quota.
pub fn query_quotas(parts: &mut Parts<'_>, id: OpenId, query: &QuotaQuery) -> Result<Reply, Suspend> {
    let token = parts.opens.open_for(id, 0)?.token.clone();
    let all = may_manage(&token);
    let found: Vec<QuotaUser> = match query {
        QuotaQuery::Of(users) => {
            if !all && users.iter().any(|user| *user != token.user) {
                return Err(NtStatus::ACCESS_DENIED.into());
            }
            users.iter().take(ENTRIES_MAX).map(|user| parts.fs.quota_user(user)).collect()
        }
        QuotaQuery::All { after } if all => parts.fs.quota_users(after.as_ref(), ENTRIES_MAX),
        // A list of one: the own entry.
        QuotaQuery::All { after: Some(_) } => Vec::new(),
        QuotaQuery::All { after: None } => vec![parts.fs.quota_user(&token.user)],
    };
    parts.agenda.turn.spend(LOOKUP_STEPS * found.len() as u32);
    Ok(Reply::Quotas(found))
}

/// # Errors
/// ACCESS_DENIED to all but administrators.
pub fn set_quotas(parts: &mut Parts<'_>, id: OpenId, change: &mut QuotaChange) -> Result<Reply, Suspend> {
    if !may_manage(&parts.opens.open_for(id, 0)?.token) {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    match change {
        QuotaChange::Settings(settings) => parts.fs.set_quota_settings(*settings)?,
        QuotaChange::Limits(changes) => {
            // Changes made are not made again after a miss.
            while let Some((user, limits)) = changes.last() {
                set_limits(parts, user, *limits)?;
                changes.pop();
            }
        }
    }
    parts.mark_dirty(id);
    Ok(Reply::Done)
}

fn set_limits(parts: &mut Parts<'_>, user: &Sid, limits: Option<QuotaLimits>) -> Result<(), Suspend> {
    let now = parts.time();
    parts.agenda.turn.spend(CHANGE_STEPS);
    Ok(parts.fs.set_quota_limits(user, limits, now)?)
}

/// Returns the volume's size and free space as a caller sees them, both within the caller's own limit.
pub fn room_of(parts: &Parts<'_>, user: &Sid, total_bytes: u64, available_bytes: u64) -> (u64, u64) {
    match parts.fs.quota_room(user) {
        Some((room, limit)) => (total_bytes.min(limit), available_bytes.min(room)),
        None => (total_bytes, available_bytes),
    }
}
