//! Quotas on the wire (MS-SMB2 3.3.5.20.4, 3.3.5.21.4), in the volume's words.

use crate::state::opens::Open;
use smb::wire::{
    FsControlInformation, QUOTA_NONE, QUOTA_REMOVE, QueryQuota, QuotaFlags, QuotaInformation, view_at,
};
use types::{NtStatus, Sid};
use volume::backend::{
    OpenId, Operation, QuotaChange, QuotaLimits, QuotaMode, QuotaQuery, QuotaSettings, QuotaUser,
    VolumeInformation,
};

/// The file through which clients reach a volume's quotas (MS-FSCC 2.1.5 reserves its name): it has no bytes.
const QUOTA_FILE: &str = r"$Extend\$Quota:$Q:$INDEX_ALLOCATION";

/// FILE_VC_LOG_* (MS-FSCC 2.5.2): kept for clients, used by nothing here.
const LOG_FLAGS: QuotaFlags = QuotaFlags::LOG_THRESHOLD
    .union(QuotaFlags::LOG_LIMIT)
    .union(QuotaFlags::LOG_VOLUME_THRESHOLD)
    .union(QuotaFlags::LOG_VOLUME_LIMIT);

/// Whether a path below a share's root is that of the quota file.
pub(crate) fn is_quota_file(path: &[u16]) -> bool {
    path.len() == QUOTA_FILE.len()
        && path
            .iter()
            .zip(QUOTA_FILE.bytes())
            .all(|(unit, byte)| u8::try_from(*unit).is_ok_and(|unit| unit.eq_ignore_ascii_case(&byte)))
}

/// The form of the answer to a query of quotas.
pub(crate) struct Question {
    /// All users are listed, and the open remembers how far.
    scans: bool,
    single: bool,
}

/// Reads a query; an open that lists all users continues behind those already listed.
pub(crate) fn question(
    open: &mut Open,
    name: OpenId,
    input: &[u8],
) -> Result<(Operation, Question), NtStatus> {
    let asked = QueryQuota::parse(input)?;
    let scans = asked.users.is_empty();
    let query = if scans {
        if asked.restart_scan || asked.start.is_some() {
            open.quota_scan = asked.start;
        }
        QuotaQuery::All { after: open.quota_scan.clone() }
    } else {
        QuotaQuery::Of(asked.users)
    };
    let question = Question { scans, single: asked.return_single };
    Ok((Operation::QueryQuotas { open: name, query }, question))
}

/// Lists as many of the users as fit into the client's buffer.
///
/// # Errors
/// NO_MORE_ENTRIES behind the last one, BUFFER_TOO_SMALL if there is no space for one, or for all that
/// the request names.
pub(crate) fn list(
    open: &mut Open,
    question: &Question,
    users: &[QuotaUser],
    bytes_max: usize,
) -> Result<Vec<u8>, NtStatus> {
    let (mut out, mut last) = (Vec::new(), None);
    let users_max = if question.single { 1 } else { users.len() };
    let mut told: Option<&Sid> = None;
    for user in users.iter().take(users_max) {
        let entry = QuotaInformation {
            user: user.user.clone(),
            change_time: user.changed.0,
            used_bytes: user.used_bytes,
            threshold_bytes: user.limits.threshold_bytes.unwrap_or(QUOTA_NONE),
            limit_bytes: user.limits.limit_bytes.unwrap_or(QUOTA_NONE),
        };
        if out.len().next_multiple_of(8) + entry.len_bytes() > bytes_max {
            if told.is_none() || !question.scans {
                return Err(NtStatus::BUFFER_TOO_SMALL);
            }
            break;
        }
        entry.put(&mut out, &mut last);
        told = Some(&user.user);
    }
    match told {
        Some(told) if question.scans => open.quota_scan = Some(told.clone()),
        None => return Err(NtStatus::NO_MORE_ENTRIES),
        Some(_) => {}
    }
    Ok(out)
}

/// Reads new limits of users.
pub(crate) fn limits(buffer: &[u8]) -> Result<QuotaChange, NtStatus> {
    let entries = QuotaInformation::parse_list(buffer)?;
    let change = |entry: QuotaInformation| {
        let limits = (entry.limit_bytes != QUOTA_REMOVE).then_some(QuotaLimits {
            threshold_bytes: bound(entry.threshold_bytes),
            limit_bytes: bound(entry.limit_bytes),
        });
        (entry.user, limits)
    };
    Ok(QuotaChange::Limits(entries.into_iter().map(change).collect()))
}

/// Encodes a bound as in MS-FSCC: a signed number; a negative one means no bound.
fn bound(bytes: u64) -> Option<u64> {
    (bytes <= i64::MAX as u64).then_some(bytes)
}

/// Reads new settings of a volume (MS-FSCC 2.5.2).
pub(crate) fn settings(buffer: &[u8]) -> Result<QuotaChange, NtStatus> {
    let new: &FsControlInformation = view_at(buffer, 0).map_err(|_| NtStatus::INFO_LENGTH_MISMATCH)?;
    let flags = QuotaFlags::from_bits_truncate(new.file_system_control_flags.get());
    let mode = if flags.contains(QuotaFlags::ENFORCE) {
        QuotaMode::Enforce
    } else if flags.contains(QuotaFlags::TRACK) {
        QuotaMode::Track
    } else {
        QuotaMode::Off
    };
    let defaults = QuotaLimits {
        threshold_bytes: bound(new.default_quota_threshold.get()),
        limit_bytes: bound(new.default_quota_limit.get()),
    };
    let log_flags = (flags & LOG_FLAGS).bits();
    Ok(QuotaChange::Settings(QuotaSettings { mode, defaults, log_flags, ..QuotaSettings::default() }))
}

/// Shows a volume's settings (MS-FSCC 2.5.2).
pub(crate) fn control_information(volume: &VolumeInformation) -> FsControlInformation {
    let QuotaSettings { mode, defaults, log_flags, .. } = volume.quotas;
    let mut flags = QuotaFlags::from_bits_truncate(log_flags);
    flags |= match mode {
        QuotaMode::Off => QuotaFlags::empty(),
        QuotaMode::Track => QuotaFlags::TRACK,
        QuotaMode::Enforce => QuotaFlags::TRACK | QuotaFlags::ENFORCE,
    };
    flags.set(QuotaFlags::INCOMPLETE | QuotaFlags::REBUILDING, volume.is_counting_quotas);
    FsControlInformation {
        default_quota_threshold: defaults.threshold_bytes.unwrap_or(QUOTA_NONE).into(),
        default_quota_limit: defaults.limit_bytes.unwrap_or(QUOTA_NONE).into(),
        file_system_control_flags: flags.bits().into(),
        ..Default::default()
    }
}
