//! QUERY_INFO (MS-SMB2 3.3.5.20): file, file system and security information in the layouts of MS-FSCC.

use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step};
use crate::extended_attributes::{list_eas, read_ea_names};
use crate::pipes::PIPE_ALLOCATION_BYTES;
use crate::quotas;
use crate::state::State;
use crate::state::opens::Open;
use smb::wire::{
    AccessInformation, AlignmentInformation, AllInformation, AttributeTagInformation, BasicInformation,
    CompressionInformation, DEVICE_DISK, DEVICE_IS_MOUNTED, DEVICE_NAMED_PIPE, Dialect, EaInformation,
    FileSystemAttributes, FsControlInformation, FsDeviceInformation, FsFullSizeInformation,
    FsObjectIdInformation, FsSectorSizeInformation, FsSizeInformation, INFO_FILE, INFO_FILESYSTEM,
    INFO_QUOTA, INFO_SECURITY, IdInformation, InternalInformation, ModeInformation, NetworkOpenInformation,
    PipeInformation, PipeLocalInformation, PositionInformation, Put, QueryInfoRequest,
    SL_RETURN_SINGLE_ENTRY, SSINFO_FLAGS_ALIGNED_DEVICE, SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE,
    SSINFO_FLAGS_TRIM_ENABLED, StandardInformation, StandardLinkInformation, class, fs_class,
    put_attribute_information, put_counted_name, put_stream_entry, put_volume_information, wide_from_str,
    write_output_buffer_response,
};
use types::NtStatus;
use volume::backend::{Backend, FileInformation, OpenId, Operation, Reply, StreamEntry, VolumeInformation};
use volume::security::rights;

/// Bits of CreateOptions that FileModeInformation shows (MS-FSCC 2.4.31).
const MODE_BITS: u32 = 0x0000_103E;
const NAME_COMPONENT_MAX: u32 = 255;

/// A QUERY_INFO that its volume is working on.
pub(crate) struct QueryInfoWork {
    info_type: u8,
    class: u8,
    bytes_max: usize,
    /// Names of the requested extended attributes; `None`: all.
    names: Option<Vec<Vec<u8>>>,
    /// The request is for the first attribute only.
    single: bool,
    /// Quotas asked for.
    quotas: Option<quotas::Question>,
}

/// Shortest answer of the class in bytes; `None`: no such class. Shorter buffers are refused.
fn minimum_bytes(info_type: u8, number: u8) -> Option<usize> {
    Some(match info_type {
        INFO_FILE => match number {
            class::BASIC => size_of::<BasicInformation>(),
            class::STANDARD => size_of::<StandardInformation>(),
            class::INTERNAL => size_of::<InternalInformation>(),
            class::EA => size_of::<EaInformation>(),
            class::ACCESS => size_of::<AccessInformation>(),
            class::POSITION => size_of::<PositionInformation>(),
            class::MODE => size_of::<ModeInformation>(),
            class::ALIGNMENT => size_of::<AlignmentInformation>(),
            // The name's length, and the structure's padding to eight.
            class::ALL => size_of::<AllInformation>() + 8,
            class::ALTERNATE_NAME | class::NORMALIZED_NAME => 8,
            class::STREAM => 32,
            class::FULL_EA => 0,
            class::PIPE => size_of::<PipeInformation>(),
            class::PIPE_LOCAL => size_of::<PipeLocalInformation>(),
            class::COMPRESSION => size_of::<CompressionInformation>(),
            class::NETWORK_OPEN => size_of::<NetworkOpenInformation>(),
            class::ATTRIBUTE_TAG => size_of::<AttributeTagInformation>(),
            class::ID => size_of::<IdInformation>(),
            class::STANDARD_LINK => size_of::<StandardLinkInformation>(),
            _ => return None,
        },
        INFO_FILESYSTEM => match number {
            fs_class::VOLUME => 24,
            fs_class::SIZE => size_of::<FsSizeInformation>(),
            fs_class::DEVICE => size_of::<FsDeviceInformation>(),
            fs_class::ATTRIBUTE => 16,
            fs_class::CONTROL => size_of::<FsControlInformation>(),
            fs_class::FULL_SIZE => size_of::<FsFullSizeInformation>(),
            fs_class::OBJECT_ID => size_of::<FsObjectIdInformation>(),
            fs_class::SECTOR_SIZE => size_of::<FsSectorSizeInformation>(),
            _ => return None,
        },
        _ => 0,
    })
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
) -> Result<Step<QueryInfoWork>, NtStatus> {
    let request = QueryInfoRequest::parse(element.bytes())?;
    let bytes_max = request.output_buffer_length.get() as usize;
    let input = request.input()?;
    let bytes = input.len().max(bytes_max);
    let key = context.find_open(&state.opens, related, request.file_id)?;
    context.check_size(&state.connections, bytes, state.config.limits.transact_bytes)?;
    let open = state.opens.get(key)?;
    let (info_type, number) = (request.info_type, request.file_info_class);
    let Some((volume, name)) = open.volume_open() else {
        return query_pipe(open, info_type, number, bytes_max);
    };
    let mut work =
        QueryInfoWork { info_type, class: number, bytes_max, names: None, single: false, quotas: None };
    let operation = match info_type {
        INFO_FILE | INFO_FILESYSTEM => {
            let minimum = minimum_bytes(info_type, number).ok_or(NtStatus::INVALID_INFO_CLASS)?;
            if bytes_max < minimum {
                return Err(NtStatus::INFO_LENGTH_MISMATCH);
            }
            match (info_type, number) {
                (INFO_FILESYSTEM, _) => Operation::QueryVolume { open: name },
                (_, class::FULL_EA) => {
                    if open.granted_access & rights::READ_EA == 0 {
                        return Err(NtStatus::ACCESS_DENIED);
                    }
                    if !input.is_empty() {
                        work.names = Some(read_ea_names(input)?);
                    }
                    work.single = request.flags.get() & SL_RETURN_SINGLE_ENTRY != 0;
                    Operation::QueryExtendedAttributes { open: name }
                }
                _ => file_query(number, name, open.granted_access, context.dialect(&state.connections))?,
            }
        }
        INFO_SECURITY => Operation::QuerySecurity { open: name, parts: request.additional_information.get() },
        INFO_QUOTA => {
            let (operation, question) = quotas::question(state.opens.get_mut(key)?, name, input)?;
            work.quotas = Some(question);
            operation
        }
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    Ok(Step::Submit { volume, operation, work })
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    work: &QueryInfoWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<QueryInfoWork>, NtStatus> {
    match result? {
        Reply::Information(file) => file_information(state, context, work, &file),
        Reply::Volume(volume) if work.info_type == INFO_FILESYSTEM => {
            volume_information(state, context, work, &volume)
        }
        Reply::Quotas(users) => {
            let question = work.quotas.as_ref().ok_or(NtStatus::INTERNAL_ERROR)?;
            let open = state.opens.get_mut(context.open_key()?)?;
            Ok(answer(quotas::list(open, question, &users, work.bytes_max)?, work.bytes_max))
        }
        Reply::Name(name) => Ok(short_name_answer(&name, work.bytes_max)),
        Reply::Streams(streams) => Ok(stream_answer(&streams, work.bytes_max)),
        Reply::ExtendedAttributes(found) => {
            let (status, list) = list_eas(&found, work.names.as_deref(), work.single, work.bytes_max)?;
            let mut body = Vec::new();
            write_output_buffer_response(&mut body, &list);
            Ok(Step::Reply(status, Body::Bytes(body)))
        }
        Reply::Security(descriptor) => {
            let dialect = context.dialect(&state.connections);
            Ok(security_answer(&descriptor, work.bytes_max, dialect))
        }
        _ => Err(NtStatus::INTERNAL_ERROR),
    }
}

/// Returns the volume's operation for a class of information about a file.
fn file_query(number: u8, open: OpenId, access: u32, dialect: Dialect) -> Result<Operation, NtStatus> {
    match number {
        class::STREAM => Ok(Operation::QueryStreams { open }),
        class::PIPE | class::PIPE_LOCAL => Err(NtStatus::INVALID_PARAMETER),
        // Of 3.1.1 only (MS-SMB2 3.3.5.20.1).
        class::NORMALIZED_NAME if dialect < Dialect::Smb311 => Err(NtStatus::NOT_SUPPORTED),
        class::BASIC | class::ALL | class::NETWORK_OPEN | class::ATTRIBUTE_TAG
            if access & rights::READ_ATTRIBUTES == 0 =>
        {
            Err(NtStatus::ACCESS_DENIED)
        }
        class::ALTERNATE_NAME => Ok(Operation::QueryShortName { open }),
        _ => Ok(Operation::QueryInformation { open }),
    }
}

fn query_pipe(
    open: &Open,
    info_type: u8,
    number: u8,
    bytes_max: usize,
) -> Result<Step<QueryInfoWork>, NtStatus> {
    let waiting = open.pipe().map_or(0, |pipe| pipe.waiting_bytes());
    let mut out = Vec::new();
    match (info_type, number) {
        (INFO_FILE, class::STANDARD) => out.put(&StandardInformation {
            allocation_size: PIPE_ALLOCATION_BYTES.into(),
            end_of_file: u64::from(waiting).into(),
            number_of_links: 1.into(),
            delete_pending: 1,
            ..Default::default()
        }),
        (INFO_FILE, class::PIPE) => {
            out.put(&PipeInformation { read_mode: 1.into(), completion_mode: 0.into() });
        }
        (INFO_FILE, class::PIPE_LOCAL) => out.put(&PipeLocalInformation {
            named_pipe_type: 1.into(),
            named_pipe_configuration: 2.into(),
            maximum_instances: u32::MAX.into(),
            current_instances: 1.into(),
            read_data_available: waiting.into(),
            inbound_quota: 4096.into(),
            outbound_quota: 4096.into(),
            write_quota_available: 4096.into(),
            named_pipe_state: 3.into(),
            named_pipe_end: 0.into(),
        }),
        (INFO_FILESYSTEM, fs_class::DEVICE) => out.put(&FsDeviceInformation {
            device_type: DEVICE_NAMED_PIPE.into(),
            characteristics: DEVICE_IS_MOUNTED.into(),
        }),
        (INFO_SECURITY, _) => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(answer(out, bytes_max))
}

fn file_information<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    work: &QueryInfoWork,
    file: &FileInformation,
) -> Result<Step<QueryInfoWork>, NtStatus> {
    let open = state.opens.get(context.open_key()?)?;
    let (volume, _) = open.volume_open().ok_or(NtStatus::INTERNAL_ERROR)?;
    let mut out = Vec::new();
    match work.class {
        class::BASIC => out.put(&basic(file)),
        class::STANDARD => out.put(&standard(file)),
        class::INTERNAL => out.put(&InternalInformation { index_number: file.file_id.into() }),
        class::EA => {
            out.put(&EaInformation { ea_size: file.extended_attribute_bytes.into() });
        }
        class::ACCESS => {
            out.put(&AccessInformation { access_flags: open.granted_access.into() });
        }
        class::POSITION => {
            out.put(&PositionInformation { current_byte_offset: open.position.into() });
        }
        class::MODE => out.put(&mode(open)),
        class::ALIGNMENT => out.put(&AlignmentInformation::default()),
        class::ALL => {
            out.put(&AllInformation {
                basic: basic(file),
                standard: standard(file),
                internal: InternalInformation { index_number: file.file_id.into() },
                ea: EaInformation { ea_size: file.extended_attribute_bytes.into() },
                access: AccessInformation { access_flags: open.granted_access.into() },
                position: PositionInformation { current_byte_offset: open.position.into() },
                mode: mode(open),
                alignment: AlignmentInformation::default(),
            });
            let mut name = vec![u16::from(b'\\')];
            name.extend_from_slice(&open.path);
            put_counted_name(&mut out, &name);
        }
        class::NORMALIZED_NAME => put_counted_name(&mut out, &open.path),
        class::COMPRESSION => out.put(&CompressionInformation {
            compressed_file_size: file.end_of_file.into(),
            ..Default::default()
        }),
        class::NETWORK_OPEN => out.put(&NetworkOpenInformation {
            creation_time: file.created.0.into(),
            last_access_time: file.accessed.0.into(),
            last_write_time: file.written.0.into(),
            change_time: file.changed.0.into(),
            allocation_size: file.allocation_bytes.into(),
            end_of_file: file.end_of_file.into(),
            file_attributes: file.attributes.into(),
            reserved: 0.into(),
        }),
        class::ATTRIBUTE_TAG => out.put(&AttributeTagInformation {
            file_attributes: file.attributes.into(),
            reparse_tag: file.reparse_tag.into(),
        }),
        class::ID => {
            let mut file_id = [0; 16];
            file_id[..8].copy_from_slice(&file.file_id.to_le_bytes());
            let volume_serial_number = state.volumes.number_of(volume).into();
            out.put(&IdInformation { volume_serial_number, file_id });
        }
        class::STANDARD_LINK => out.put(&StandardLinkInformation {
            number_of_accessible_links: file.link_count.into(),
            total_number_of_links: file.link_count.into(),
            delete_pending: u8::from(file.delete_pending),
            directory: u8::from(file.directory),
            reserved: 0.into(),
        }),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(answer(out, work.bytes_max))
}

fn volume_information<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    work: &QueryInfoWork,
    volume: &VolumeInformation,
) -> Result<Step<QueryInfoWork>, NtStatus> {
    const SECTOR_BYTES: u64 = 512;
    let unit = u64::from(volume.block_bytes).max(SECTOR_BYTES);
    let sectors = ((unit / SECTOR_BYTES) as u32).into();
    let actual_available = volume.available_bytes / unit;
    // Clients show these two to their users, whose quotas bound their space.
    let (total, available) = (volume.caller_total_bytes / unit, volume.caller_available_bytes / unit);
    let mut out = Vec::new();
    match work.class {
        fs_class::VOLUME => {
            let label = wide_from_str(&volume.label);
            put_volume_information(&mut out, volume.created.0, volume.serial, &label);
        }
        fs_class::SIZE => out.put(&FsSizeInformation {
            total_allocation_units: total.into(),
            available_allocation_units: available.into(),
            sectors_per_allocation_unit: sectors,
            bytes_per_sector: (SECTOR_BYTES as u32).into(),
        }),
        fs_class::FULL_SIZE => out.put(&FsFullSizeInformation {
            total_allocation_units: total.into(),
            caller_available_allocation_units: available.into(),
            actual_available_allocation_units: actual_available.into(),
            sectors_per_allocation_unit: sectors,
            bytes_per_sector: (SECTOR_BYTES as u32).into(),
        }),
        fs_class::DEVICE => out.put(&FsDeviceInformation {
            device_type: DEVICE_DISK.into(),
            characteristics: DEVICE_IS_MOUNTED.into(),
        }),
        fs_class::ATTRIBUTE => {
            let tree = context.session(&state.sessions)?.tree(context.tree_id);
            let read_only = tree.is_some_and(|tree| tree.options().read_only);
            // The name that clients know to have these abilities.
            let name = wide_from_str("NTFS");
            put_attribute_information(&mut out, file_system_attributes(read_only), NAME_COMPONENT_MAX, &name);
        }
        fs_class::CONTROL => out.put(&quotas::control_information(volume)),
        fs_class::OBJECT_ID => {
            out.put(&FsObjectIdInformation { object_id: volume.id, extended_info: Default::default() })
        }
        fs_class::SECTOR_SIZE => out.put(&FsSectorSizeInformation {
            logical_bytes_per_sector: (SECTOR_BYTES as u32).into(),
            physical_bytes_per_sector_for_atomicity: volume.block_bytes.into(),
            physical_bytes_per_sector_for_performance: volume.block_bytes.into(),
            effective_physical_bytes_per_sector_for_atomicity: volume.block_bytes.into(),
            flags: (SSINFO_FLAGS_ALIGNED_DEVICE
                | SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE
                | SSINFO_FLAGS_TRIM_ENABLED)
                .into(),
            ..Default::default()
        }),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(answer(out, work.bytes_max))
}

fn file_system_attributes(read_only: bool) -> FileSystemAttributes {
    let attributes = FileSystemAttributes::CASE_SENSITIVE_SEARCH
        | FileSystemAttributes::CASE_PRESERVED_NAMES
        | FileSystemAttributes::UNICODE_ON_DISK
        | FileSystemAttributes::PERSISTENT_ACLS
        | FileSystemAttributes::VOLUME_QUOTAS
        | FileSystemAttributes::SUPPORTS_SPARSE_FILES
        | FileSystemAttributes::SUPPORTS_REPARSE_POINTS
        | FileSystemAttributes::SUPPORTS_OBJECT_IDS
        | FileSystemAttributes::NAMED_STREAMS
        | FileSystemAttributes::SUPPORTS_HARD_LINKS
        | FileSystemAttributes::SUPPORTS_EXTENDED_ATTRIBUTES
        | FileSystemAttributes::SUPPORTS_BLOCK_REFCOUNTING;
    if read_only { attributes | FileSystemAttributes::READ_ONLY_VOLUME } else { attributes }
}

fn basic(file: &FileInformation) -> BasicInformation {
    BasicInformation {
        creation_time: file.created.0.into(),
        last_access_time: file.accessed.0.into(),
        last_write_time: file.written.0.into(),
        change_time: file.changed.0.into(),
        file_attributes: file.attributes.into(),
        reserved: 0.into(),
    }
}

fn standard(file: &FileInformation) -> StandardInformation {
    StandardInformation {
        allocation_size: file.allocation_bytes.into(),
        end_of_file: file.end_of_file.into(),
        number_of_links: file.link_count.into(),
        delete_pending: u8::from(file.delete_pending),
        directory: u8::from(file.directory),
        reserved: 0.into(),
    }
}

fn mode(open: &Open) -> ModeInformation {
    ModeInformation { mode: (open.create_options & MODE_BITS).into() }
}

/// Makes an answer of at most `bytes_max` bytes; a longer one is truncated, with the status for that.
fn answer(mut data: Vec<u8>, bytes_max: usize) -> Step<QueryInfoWork> {
    let status = if data.len() > bytes_max { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    data.truncate(bytes_max);
    let mut body = Vec::with_capacity(8 + data.len());
    write_output_buffer_response(&mut body, &data);
    Step::Reply(status, Body::Bytes(body))
}

/// FileAlternateNameInformation (MS-FSCC 2.4.5).
fn short_name_answer(name: &[u16], bytes_max: usize) -> Step<QueryInfoWork> {
    let mut out = Vec::new();
    put_counted_name(&mut out, name);
    answer(out, bytes_max)
}

fn stream_answer(streams: &[StreamEntry], bytes_max: usize) -> Step<QueryInfoWork> {
    let (mut out, mut last) = (Vec::new(), None);
    for stream in streams {
        let before = (out.len(), last);
        put_stream_entry(&mut out, &mut last, &stream.name, stream.end_of_file, stream.allocation_bytes);
        if out.len() > bytes_max {
            // Whole entries only; the last that fits ends the list.
            out.truncate(before.0);
            if let Some(last) = before.1 {
                out.patch_u32(last, 0);
            }
            let mut body = Vec::new();
            write_output_buffer_response(&mut body, &out);
            return Step::Reply(NtStatus::BUFFER_OVERFLOW, Body::Bytes(body));
        }
    }
    answer(out, bytes_max)
}

/// Answers a security descriptor, or the buffer length that it needs (MS-SMB2 3.3.5.20.3).
fn security_answer(descriptor: &[u8], bytes_max: usize, dialect: Dialect) -> Step<QueryInfoWork> {
    if descriptor.len() > bytes_max {
        let needed = (descriptor.len() as u32).to_le_bytes();
        return Step::Reply(NtStatus::BUFFER_TOO_SMALL, Body::error(dialect, &needed));
    }
    let mut body = Vec::new();
    write_output_buffer_response(&mut body, descriptor);
    Step::Reply(NtStatus::SUCCESS, Body::Bytes(body))
}
