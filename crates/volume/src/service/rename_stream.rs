//! Renames of named streams (MS-FSA 2.1.5.15.11).

use super::notify;
use super::parts::Parts;
use super::path;
use super::roots::SeenRoots;
use super::suspend::Suspend;
use crate::backend::OpenId;
use crate::fs::FsError;
use types::NtStatus;

/// Renames the stream of an open. If `replace`, an empty stream of that name without opens is replaced.
pub fn rename_stream(parts: &mut Parts<'_>, id: OpenId, to: &[u16], replace: bool) -> Result<(), Suspend> {
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let (stream, old_path) = (open.stream, open.path.clone());
    let base_units = old_path.iter().position(|unit| *unit == u16::from(b':')).unwrap_or(old_path.len());
    let name = path::parse_stream_target(to).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if stream.index == 0 || name.is_empty() {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let roots = SeenRoots::of(parts.fs, parts.opens, stream.file)?;
    let now = parts.time();
    match parts.fs.rename_stream(stream, name, now) {
        Err(FsError::Exists) if replace => {
            let old = parts.fs.find_stream(stream.file, name)?;
            if parts.opens.is_open(old) || parts.fs.stream_information(old)?.end_of_file > 0 {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            parts.fs.unlink_stream(old, now)?;
            parts.reclaims.add_stream(old);
            parts.fs.rename_stream(stream, name, now)?;
        }
        result => result?,
    }
    parts.mark_dirty(id);
    let mut new_path = old_path[..base_units].to_vec();
    new_path.push(u16::from(b':'));
    new_path.extend_from_slice(name);
    let renamed =
        parts.opens.rename(stream.file, |open| (open.stream == stream).then(|| new_path.clone().into()));
    renamed.into_iter().for_each(|(id, _)| roots.tell(parts.opens, parts.agenda, id));
    parts.watches.changed(&old_path, notify::REMOVED_STREAM, notify::STREAM_NAME);
    parts.watches.changed(&new_path, notify::ADDED_STREAM, notify::STREAM_NAME);
    Ok(())
}
