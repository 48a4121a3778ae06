//! The answers to FSCTLs on files.

use super::{Detail, IoctlWork, reply};
use crate::exchange::Step;
use smb::wire::{
    AllocatedRange, FILE_REGION_USAGE_VALID_CACHED_DATA, FileRegionInfo, FileRegionOutput,
    IntegrityInformation, ObjectIdBuffer, Put, U32, fsctl,
};
use types::{NtStatus, VolumeId};
use volume::backend::{FileInformation, Reply};

/// CHECKSUM_TYPE_CRC64.
const CHECKSUM_CRC64: u16 = 2;

/// Answers an IOCTL with its volume's reply. `None`: the open, and so its volume, is gone.
pub(super) fn answer(
    work: &IoctlWork,
    answer: Reply,
    volume: Option<VolumeId>,
) -> Result<Step<IoctlWork>, NtStatus> {
    let mut output = Vec::new();
    let mut status = NtStatus::SUCCESS;
    match (work.code, answer) {
        (_, Reply::Ranges { ranges, more }) => {
            let fit = work.output_max / size_of::<AllocatedRange>();
            if ranges.len() > fit || more {
                if fit == 0 {
                    return Err(NtStatus::BUFFER_TOO_SMALL);
                }
                status = NtStatus::BUFFER_OVERFLOW;
            }
            for range in ranges.iter().take(fit) {
                output.put(&AllocatedRange {
                    file_offset: range.offset.into(),
                    length: range.len_bytes.into(),
                });
            }
        }
        (fsctl::QUERY_FILE_REGIONS, Reply::Information(file)) => {
            output = file_regions(work, &file)?;
        }
        (fsctl::GET_INTEGRITY_INFORMATION, Reply::Information(file)) => {
            let checked = file.attributes & types::attribute::INTEGRITY_STREAM != 0;
            output.put(&IntegrityInformation {
                checksum_algorithm: if checked { CHECKSUM_CRC64 } else { 0 }.into(),
                checksum_chunk_size_bytes: 4096.into(),
                cluster_size_bytes: 4096.into(),
                ..Default::default()
            });
        }
        (_, Reply::ReparsePoint(data)) => {
            if data.len() > work.output_max {
                status = NtStatus::BUFFER_OVERFLOW;
            }
            output = data;
            output.truncate(work.output_max);
        }
        (_, Reply::Output(bytes)) => output = bytes,
        (_, Reply::ObjectId(object_id)) => {
            let birth_volume_id = volume.map(VolumeId::to_bytes).unwrap_or_default();
            output.put(&ObjectIdBuffer {
                object_id,
                birth_volume_id,
                birth_object_id: object_id,
                domain_id: [0; 16],
            });
        }
        (_, Reply::Done) => {
            if let Detail::TrimmedRanges(count) = work.detail {
                output.put(&U32::new(count));
            }
        }
        _ => return Err(NtStatus::INTERNAL_ERROR),
    }
    if output.len() > work.output_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(reply(work.code, work.file_id, status, &output))
}

/// Lists the valid data of a file within the region asked for: everything up to the file's end.
fn file_regions(work: &IoctlWork, file: &FileInformation) -> Result<Vec<u8>, NtStatus> {
    let Detail::Region(asked) = work.detail else { return Err(NtStatus::INVALID_PARAMETER) };
    let end = file.end_of_file.min(asked.offset.saturating_add(asked.len_bytes));
    let length = end.saturating_sub(asked.offset);
    let count = u32::from(length > 0);
    let mut output = Vec::new();
    output.put(&FileRegionOutput {
        total_region_entry_count: count.into(),
        region_entry_count: count.into(),
        ..Default::default()
    });
    if length > 0 {
        output.put(&FileRegionInfo {
            file_offset: asked.offset.into(),
            length: length.into(),
            usage: FILE_REGION_USAGE_VALID_CACHED_DATA.into(),
            reserved: 0.into(),
        });
    }
    Ok(output)
}
