//! QUERY_DIRECTORY (MS-SMB2 3.3.5.18): one enumeration per open, whose place is where the last answer ended.

use crate::directory::Directory;
use crate::dispatch::Element;
use crate::request::{Body, Chain, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    DirectoryClass, DirectoryRecord, DirectoryWriter, QUERY_DIRECTORY_REOPEN, QUERY_DIRECTORY_RESTART_SCANS,
    QUERY_DIRECTORY_RETURN_SINGLE_ENTRY, QueryDirectoryRequest, write_output_buffer_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, DirectoryEntry, Operation, WideString};
use volume::security::rights;
use volume::service::PATTERN_UNITS_MAX;

/// Entries that a volume is asked for at once.
const ENTRIES_MAX: usize = 4096;
/// Bytes that a name is guessed to take, to ask for about as many entries as fit.
const NAME_BYTES_GUESSED: usize = 24;

/// One request of an enumeration.
pub(crate) struct QueryDirectoryWork {
    class: DirectoryClass,
    flags: u8,
    pattern: WideString,
    bytes_max: usize,
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_query_directory(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
    ) -> Result<Step, NtStatus> {
        let request = QueryDirectoryRequest::parse(element.bytes())?;
        let bytes_max = request.output_buffer_length.get() as usize;
        let limit = self.config.limits.transact_bytes;
        let key = self.find_open_for(context, chain, request.file_id, bytes_max, limit)?;
        context.bytes = context.bytes.max(bytes_max);
        let class =
            DirectoryClass::from_wire(request.file_information_class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
        let pattern = request.pattern()?;
        let open = self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?;
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
        let work = Box::new(QueryDirectoryWork { class, flags: request.flags, pattern, bytes_max });
        if open.enumeration.busy {
            // The place where it goes on is known only when the one before has been answered.
            return Ok(Step::Park(Work::QueryDirectoryQueued(work)));
        }
        self.enumerate(key, work)
    }

    /// Asks the volume for what comes next.
    pub(crate) fn enumerate(&mut self, key: u64, work: Box<QueryDirectoryWork>) -> Result<Step, NtStatus> {
        let open = self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?;
        let (volume, name) = open.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
        let place = &mut open.enumeration;
        if work.flags & QUERY_DIRECTORY_REOPEN != 0 {
            *place =
                crate::open::Enumeration { queued: std::mem::take(&mut place.queued), ..Default::default() };
        }
        // FileIndex is not kept by this file layer, as by NTFS (MS-FSCC 2.4.8): SMB2_INDEX_SPECIFIED goes on where the scan is.
        if work.flags & QUERY_DIRECTORY_RESTART_SCANS != 0 {
            place.after = 0;
            place.found = false;
        }
        let pattern = place.pattern.get_or_insert_with(|| work.pattern.clone()).clone();
        place.busy = true;
        let entry_bytes = work.class.name_offset() + NAME_BYTES_GUESSED;
        let entries = if work.flags & QUERY_DIRECTORY_RETURN_SINGLE_ENTRY != 0 {
            1
        } else {
            (work.bytes_max / entry_bytes).clamp(1, ENTRIES_MAX)
        };
        let after = place.after;
        Ok(Step::Submit {
            volume,
            operation: Operation::QueryDirectory {
                open: name,
                pattern,
                after,
                entries_max: entries as u32,
                short_names: work.class.has_short_name(),
            },
            work: Work::QueryDirectory(work),
        })
    }

    pub(crate) fn enumerated(
        &mut self,
        context: &Context,
        work: &QueryDirectoryWork,
        entries: &[DirectoryEntry],
    ) -> Result<Step, NtStatus> {
        let open = self.opens.get_mut(context.open).ok_or(NtStatus::FILE_CLOSED)?;
        let place = &mut open.enumeration;
        if entries.is_empty() {
            return Err(if place.found { NtStatus::NO_MORE_FILES } else { NtStatus::NO_SUCH_FILE });
        }
        let mut writer = DirectoryWriter::new(work.class, work.bytes_max);
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
            place.found = true;
        }
        if writer.is_empty() {
            return Err(NtStatus::INFO_LENGTH_MISMATCH);
        }
        let data = writer.finish();
        let mut body = Vec::with_capacity(8 + data.len());
        write_output_buffer_response(&mut body, &data);
        Ok(Step::Reply(NtStatus::SUCCESS, Body::Bytes(body)))
    }

    /// The enumeration's next request may go on.
    pub(crate) fn enumeration_free(&mut self, key: u64, now: Monotonic) {
        let Some(open) = self.opens.get_mut(key) else { return };
        open.enumeration.busy = false;
        // One that is gone meanwhile, or is refused, does not keep those behind it waiting.
        while let Some(open) = self.opens.get_mut(key)
            && !open.enumeration.busy
            && let Some(next) = open.enumeration.queued.pop_front()
        {
            self.complete(next, Ok(volume::backend::Reply::Done), now);
        }
    }
}
