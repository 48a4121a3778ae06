//! QUERY_DIRECTORY (MS-SMB2 3.3.5.18): one enumeration per open, which continues behind the last entry
//! returned.

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step, Until};
use crate::state::keys::OpenKey;
use crate::state::opens::Enumeration;
use crate::state::{State, Wake};
use smb::wire::{
    DirectoryClass, DirectoryRecord, DirectoryWriter, QUERY_DIRECTORY_REOPEN, QUERY_DIRECTORY_RESTART_SCANS,
    QUERY_DIRECTORY_RETURN_SINGLE_ENTRY, QueryDirectoryRequest, write_output_buffer_response,
};
use types::NtStatus;
use volume::backend::{Backend, DirectoryEntry, Operation, Reply, WideString};
use volume::security::rights;
use volume::service::PATTERN_UNITS_MAX;

/// Limit of entries of one request to a volume.
const ENTRIES_MAX: usize = 4096;
/// Estimated bytes of a name, for requesting about as many entries as fit.
const NAME_BYTES_GUESSED: usize = 24;

/// A QUERY_DIRECTORY that its volume is working on, or that waits for its turn.
pub(crate) enum QueryDirectoryWork {
    Submitted(Box<Wanted>),
    Queued(Box<Wanted>),
}

/// The entries that one request of an enumeration wants.
pub(crate) struct Wanted {
    class: DirectoryClass,
    flags: u8,
    pattern: WideString,
    bytes_max: usize,
    /// The enumeration begins with it (FirstQuery of MS-FSA 2.1.5.6.3).
    is_first: bool,
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<QueryDirectoryWork>, NtStatus> {
    let request = QueryDirectoryRequest::parse(element.bytes())?;
    let bytes_max = request.output_buffer_length.get() as usize;
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, bytes_max, state.config.limits.transact_bytes)?;
    context.bytes = context.bytes.max(bytes_max);
    let class =
        DirectoryClass::from_wire(request.file_information_class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    let pattern = request.pattern()?;
    let open = state.opens.get_mut(key)?;
    if open.volume_open().is_none() || !open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if open.granted_access & rights::LIST_DIRECTORY == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let malformed = pattern.is_empty() || pattern.contains(&u16::from(b'\\'));
    if malformed || pattern.len() > PATTERN_UNITS_MAX {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    if bytes_max < class.name_offset() {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    let wanted = Box::new(Wanted { class, flags: request.flags, pattern, bytes_max, is_first: false });
    if open.enumeration.busy {
        // The starting position is known only after the answer to the request before.
        return Ok(Step::Park(QueryDirectoryWork::Queued(wanted), Until::Turn));
    }
    enumerate(state, key, wanted)
}

/// Asks the volume for the next entries.
fn enumerate<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    key: OpenKey,
    mut wanted: Box<Wanted>,
) -> Result<Step<QueryDirectoryWork>, NtStatus> {
    let open = state.opens.get_mut(key)?;
    let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
    let place = &mut open.enumeration;
    if wanted.flags & QUERY_DIRECTORY_REOPEN != 0 {
        *place = Enumeration { queued: std::mem::take(&mut place.queued), ..Default::default() };
    }
    // FileIndex is not kept by this file layer, as by NTFS (MS-FSCC 2.4.8): SMB2_INDEX_SPECIFIED continues where the scan is.
    let restarts = wanted.flags & QUERY_DIRECTORY_RESTART_SCANS != 0;
    wanted.is_first = place.pattern.is_none();
    if restarts || wanted.is_first {
        // A restarted scan takes the pattern of this request (MS-FSA 2.1.5.6.3); any other continues with its
        // own.
        place.after = 0;
        place.pattern = Some(wanted.pattern.clone());
    }
    let pattern = place.pattern.clone().unwrap_or_default();
    place.busy = true;
    let entry_bytes = wanted.class.name_offset() + NAME_BYTES_GUESSED;
    let entries = if wanted.flags & QUERY_DIRECTORY_RETURN_SINGLE_ENTRY != 0 {
        1
    } else {
        (wanted.bytes_max / entry_bytes).clamp(1, ENTRIES_MAX)
    };
    let after = place.after;
    Ok(Step::Submit {
        volume,
        operation: Operation::QueryDirectory {
            open: name,
            pattern,
            after,
            entries_max: entries as u32,
            short_names: wanted.class.has_short_name(),
        },
        work: QueryDirectoryWork::Submitted(wanted),
    })
}

fn enumerated<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    wanted: &Wanted,
    entries: &[DirectoryEntry],
) -> Result<Step<QueryDirectoryWork>, NtStatus> {
    let open = state.opens.get_mut(context.open_key()?)?;
    let place = &mut open.enumeration;
    if entries.is_empty() {
        return Err(if wanted.is_first { NtStatus::NO_SUCH_FILE } else { NtStatus::NO_MORE_FILES });
    }
    let mut writer = DirectoryWriter::new(wanted.class, wanted.bytes_max);
    for entry in entries {
        let file = &entry.information;
        let fits = writer.push(&DirectoryRecord {
            file_index: 0,
            creation_time: file.created.0,
            last_access_time: file.accessed.0,
            last_write_time: file.written.0,
            change_time: file.changed.0,
            end_of_file: file.end_of_file,
            allocation_size: file.allocation_bytes,
            file_attributes: file.attributes,
            ea_size: file.extended_attribute_bytes,
            reparse_tag: file.reparse_tag,
            file_id: file.file_id,
            short_name: entry.short_name.as_deref().unwrap_or_default(),
            name: &entry.name,
        });
        if !fits {
            break;
        }
        place.after = entry.cookie;
    }
    if writer.is_empty() {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    let data = writer.finish();
    let mut body = Vec::with_capacity(8 + data.len());
    write_output_buffer_response(&mut body, &data);
    Ok(Step::Reply(NtStatus::SUCCESS, Body::Bytes(body)))
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    work: QueryDirectoryWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<QueryDirectoryWork>, NtStatus> {
    let key = context.open_key()?;
    match work {
        QueryDirectoryWork::Submitted(wanted) => {
            let step = match result {
                Ok(Reply::Directory(entries)) => enumerated(state, context, &wanted, &entries),
                Ok(_) => Err(NtStatus::INTERNAL_ERROR),
                Err(status) => Err(status),
            };
            if let Ok(open) = state.opens.get_mut(key) {
                open.enumeration.busy = false;
                state.woken.push(Wake::Enumeration(key));
            }
            step
        }
        QueryDirectoryWork::Queued(wanted) => {
            expect_done(result)?;
            enumerate(state, key, wanted)
        }
    }
}
