//! Queries of the properties of a file and of the volume (MS-FSA 2.1.5.12).

use super::opens::Opens;
use super::parts::Parts;
use super::quotas::room_of;
use super::suspend::Suspend;
use crate::backend::{
    CacheGrant, CreateAction, Created, FileInformation, OpenId, Reply, StreamEntry, VolumeInformation,
    WideString,
};
use crate::fs::{Attributes, FileSystem, StreamInformation};
use crate::security::rights;
use types::{BLOCK_BYTES, NtStatus, attribute};

/// Translates the file layer's attributes into the words of the boundary.
pub fn file_information(found: &Attributes) -> FileInformation {
    let attributes = if found.attributes == 0 { attribute::NORMAL } else { found.attributes };
    FileInformation {
        file_id: found.file.0,
        created: found.created,
        accessed: found.accessed,
        written: found.written,
        changed: found.changed,
        attributes,
        end_of_file: found.end_of_file,
        allocation_bytes: allocation_told(found, found.end_of_file, found.allocation_bytes),
        link_count: found.link_count,
        delete_pending: false,
        directory: found.directory,
        reparse_tag: found.reparse_tag,
        extended_attribute_bytes: found.extended_attribute_bytes,
    }
}

/// Returns the allocation of a stream as clients see it. Unless the file is sparse, that is at least
/// the size in whole blocks (MS-FSA 2.1.5.15.4), although blocks that were never written take nothing
/// here.
fn allocation_told(file: &Attributes, end_of_file: u64, allocation_bytes: u64) -> u64 {
    if file.attributes & attribute::SPARSE_FILE != 0 {
        return allocation_bytes;
    }
    allocation_bytes.max(end_of_file.next_multiple_of(BLOCK_BYTES as u64))
}

/// Returns the information of an open's file.
pub fn of_open(fs: &mut FileSystem, opens: &Opens, id: OpenId) -> Result<FileInformation, Suspend> {
    let open = opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let stream = open.stream;
    let attributes = fs.attributes(stream.file)?;
    let mut information = file_information(&attributes);
    if stream.index != 0 {
        let sizes = fs.stream_information(stream)?;
        information.end_of_file = sizes.end_of_file;
        information.allocation_bytes =
            allocation_told(&attributes, sizes.end_of_file, sizes.allocation_bytes);
    }
    information.directory = open.directory;
    if let Some(node) = opens.file(stream.file) {
        let pending = node.deleting().len() as u32;
        information.link_count = information.link_count.saturating_sub(pending);
        information.delete_pending = if stream.index == 0 {
            open.link.as_ref().is_some_and(|link| node.is_deleting_link(link))
        } else {
            node.is_deleting_stream(stream.index)
        };
    }
    Ok(information)
}

/// Makes the answer to a create, for an existing open; `path` is the caller's view of it.
pub fn describe(
    fs: &mut FileSystem,
    opens: &Opens,
    id: OpenId,
    cache: CacheGrant,
    path: WideString,
) -> Created {
    let information = of_open(fs, opens, id).unwrap_or_default();
    let open = opens.get(id);
    debug_assert!(open.is_some(), "the caller has just made or looked up the open");
    Created {
        open: id,
        action: open.map_or(CreateAction::Opened, |open| open.create_action),
        cache,
        information,
        granted_access: open.map_or(0, |open| open.access),
        maximal_access: None,
        durable: open.and_then(|open| open.durable).map(|durable| durable.timeout),
        persistent: open.is_some_and(|open| open.persistent && open.durable.is_some()),
        path,
        is_stream: open.is_some_and(|open| open.stream.index != 0),
    }
}

pub fn query(fs: &mut FileSystem, opens: &mut Opens, id: OpenId) -> Result<Reply, Suspend> {
    opens.open_for(id, 0)?;
    Ok(Reply::Information(Box::new(of_open(fs, opens, id)?)))
}

pub fn query_streams(fs: &mut FileSystem, opens: &mut Opens, id: OpenId) -> Result<Reply, Suspend> {
    let file = opens.open_for(id, 0)?.stream.file;
    let attributes = fs.attributes(file)?;
    let streams = fs.streams(file)?;
    let entry = |stream: StreamInformation| {
        let mut name = vec![u16::from(b':')];
        name.extend_from_slice(&stream.name);
        name.extend(":$DATA".encode_utf16());
        StreamEntry {
            name: name.into(),
            end_of_file: stream.end_of_file,
            allocation_bytes: allocation_told(&attributes, stream.end_of_file, stream.allocation_bytes),
        }
    };
    Ok(Reply::Streams(streams.into_iter().map(entry).collect()))
}

pub fn query_extended_attributes(
    fs: &mut FileSystem,
    opens: &mut Opens,
    id: OpenId,
) -> Result<Reply, Suspend> {
    let file = opens.open_for(id, rights::READ_EA)?.stream.file;
    Ok(Reply::ExtendedAttributes(fs.extended_attributes(file)?))
}

pub fn query_volume(parts: &mut Parts<'_>, id: OpenId) -> Result<Reply, Suspend> {
    let user = parts.opens.open_for(id, 0)?.token.user.clone();
    let figures = parts.fs.statistics();
    let (quotas, is_counting_quotas) = parts.fs.quota_settings();
    let (caller_total_bytes, caller_available_bytes) =
        room_of(parts, &user, figures.total_bytes, figures.available_bytes);
    let volume = parts.fs.volume();
    Ok(Reply::Volume(Box::new(VolumeInformation {
        label: volume.label.clone(),
        serial: volume.serial,
        id: volume.id,
        created: volume.created,
        total_bytes: figures.total_bytes,
        available_bytes: figures.available_bytes,
        caller_total_bytes,
        caller_available_bytes,
        block_bytes: BLOCK_BYTES as u32,
        quotas,
        is_counting_quotas,
    })))
}
