//! SET_INFO (MS-SMB2 3.3.5.21): a client's changes, in the layouts of MS-FSCC.

use super::expect_done;
use crate::directory::Directory;
use crate::exchange::{ChainFile, Context, Element, Step};
use crate::extended_attributes::read_eas;
use crate::quotas;
use crate::state::State;
use crate::state::opens::Open;
use smb::wire::{
    BasicInformation, INFO_FILE, INFO_FILESYSTEM, INFO_QUOTA, INFO_SECURITY, ModeInformation,
    PositionInformation, Put, RENAME_POSIX_SEMANTICS, RENAME_REPLACE_IF_EXISTS, RenameInformation,
    SetInfoRequest, SetInfoResponseBody, U32, U64, class, fs_class, view_at,
};
use types::{FileTime, NtStatus};
use volume::backend::{Backend, Operation, Reply, SetInformation, SetTime, WideString};

/// Mode bits that cannot be set by a client (MS-FSCC 2.4.31).
const MODE_FORBIDDEN_BITS: u32 = !0x0000_003E;

fn set_time(value: u64) -> Result<SetTime, NtStatus> {
    match value as i64 {
        0 => Ok(SetTime::Keep),
        -1 => Ok(SetTime::Freeze),
        -2 => Ok(SetTime::Thaw),
        ..-2 => Err(NtStatus::INVALID_PARAMETER),
        _ => Ok(SetTime::To(FileTime(value))),
    }
}

/// A SET_INFO that its volume is working on.
pub(crate) struct SetInfoWork;

/// Builds the body of the answer.
fn set_info_body() -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&SetInfoResponseBody::default());
    out
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<SetInfoWork>, NtStatus> {
    let request = SetInfoRequest::parse(element.bytes())?;
    let buffer = request.buffer()?;
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, buffer.len(), state.config.limits.transact_bytes)?;
    context.check_channel_sequence(&state.connections, &mut state.opens, key, true)?;
    let open = state.opens.get(key)?;
    let number = request.file_info_class;
    let Some((volume, name)) = open.volume_open() else {
        return match (request.info_type, number) {
            (INFO_FILE, class::PIPE) if buffer.len() >= 8 => Ok(Step::ok(set_info_body())),
            _ => Err(NtStatus::NOT_SUPPORTED),
        };
    };
    let operation = match request.info_type {
        INFO_FILE => match file_setting(state.opens.get_mut(key)?, number, buffer)? {
            Some(set) => Operation::SetInformation { open: name, set },
            None => return Ok(Step::ok(set_info_body())),
        },
        INFO_SECURITY => Operation::SetSecurity {
            open: name,
            parts: request.additional_information.get(),
            descriptor: buffer.to_vec(),
        },
        INFO_FILESYSTEM if number == fs_class::CONTROL => {
            Operation::SetQuotas { open: name, change: quotas::settings(buffer)? }
        }
        INFO_FILESYSTEM => return Err(NtStatus::NOT_SUPPORTED),
        INFO_QUOTA => Operation::SetQuotas { open: name, change: quotas::limits(buffer)? },
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    Ok(Step::Submit { volume, operation, work: SetInfoWork })
}

pub(crate) fn resume(result: Result<Reply, NtStatus>) -> Result<Step<SetInfoWork>, NtStatus> {
    expect_done(result)?;
    Ok(Step::ok(set_info_body()))
}

/// Returns the change for the volume. `None`: the server itself keeps the setting.
fn file_setting(open: &mut Open, number: u8, buffer: &[u8]) -> Result<Option<SetInformation>, NtStatus> {
    let short = |_| NtStatus::INFO_LENGTH_MISMATCH;
    Ok(Some(match number {
        class::BASIC => {
            let basic: &BasicInformation = view_at(buffer, 0).map_err(short)?;
            let attributes = basic.file_attributes.get();
            SetInformation::Basic {
                created: set_time(basic.creation_time.get())?,
                accessed: set_time(basic.last_access_time.get())?,
                written: set_time(basic.last_write_time.get())?,
                changed: set_time(basic.change_time.get())?,
                attributes: (attributes != 0).then_some(attributes),
            }
        }
        class::END_OF_FILE | class::ALLOCATION | class::VALID_DATA_LENGTH => {
            let value = view_at::<U64>(buffer, 0).map_err(short)?.get();
            if value > i64::MAX as u64 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            match number {
                class::END_OF_FILE => SetInformation::EndOfFile(value),
                class::ALLOCATION => SetInformation::Allocation(value),
                _ => SetInformation::ValidDataLength(value),
            }
        }
        class::DISPOSITION => {
            let delete = *buffer.first().ok_or(NtStatus::INFO_LENGTH_MISMATCH)?;
            SetInformation::Disposition { flags: u32::from(delete != 0) }
        }
        class::DISPOSITION_EX => {
            SetInformation::Disposition { flags: view_at::<U32>(buffer, 0).map_err(short)?.get() }
        }
        class::RENAME | class::RENAME_EX => {
            let rename = RenameInformation::parse(buffer, number == class::RENAME_EX).map_err(short)?;
            SetInformation::Rename {
                target: target_path(&rename)?,
                replace: rename.flags & RENAME_REPLACE_IF_EXISTS != 0,
                posix: rename.flags & RENAME_POSIX_SEMANTICS != 0,
            }
        }
        class::LINK => {
            let link = RenameInformation::parse(buffer, false).map_err(short)?;
            SetInformation::Link {
                target: target_path(&link)?,
                replace: link.flags & RENAME_REPLACE_IF_EXISTS != 0,
            }
        }
        class::FULL_EA => SetInformation::ExtendedAttributes(read_eas(buffer, NtStatus::EA_CORRUPT_ERROR)?),
        class::POSITION => {
            let position: &PositionInformation = view_at(buffer, 0).map_err(short)?;
            let offset = position.current_byte_offset.get();
            if offset > i64::MAX as u64 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            open.position = offset;
            return Ok(None);
        }
        class::MODE => {
            let mode: &ModeInformation = view_at(buffer, 0).map_err(short)?;
            if mode.mode.get() & MODE_FORBIDDEN_BITS != 0 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            open.create_options = open.create_options & MODE_FORBIDDEN_BITS | mode.mode.get();
            return Ok(None);
        }
        class::SHORT_NAME => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }))
}

/// Returns the target of a rename or link. A stream's new name is alone; a file's is a path from the
/// share's root, which some clients mark with a backslash. RootDirectory is zero on the wire (MS-FSCC
/// 2.4.43.2).
fn target_path(rename: &RenameInformation) -> Result<WideString, NtStatus> {
    if rename.root_directory != 0 || rename.name.is_empty() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(rename.name.strip_prefix(&[u16::from(b'\\')]).unwrap_or(&rename.name).into())
}
