//! Requests that go out in one message, each about the file of the first one.

use super::Client;
use crate::connection::Token;
use crate::file::{File, OpenOptions, Tree};
use crate::operation::Request;
use smb::wire::{
    BasicInformation, CONTEXT_SECURITY_DESCRIPTOR, CreateContextWriter, FileId, INFO_FILE, Put,
    RENAME_REPLACE_IF_EXISTS, RenameInformation, U64, class, wide_from_str,
};
use sys::Payload;
use types::FileTime;

/// Most data of a file that is made or read by one message: one credit's worth.
pub(super) const FILLED_BYTES_MAX: usize = 64 << 10;

/// Requests of [`Client::submit_filled`] and [`Client::submit_fetch`] at most, one credit each.
pub(super) const FILLED_REQUESTS: u32 = 5;

/// Requests of [`Client::submit_whole`].
pub(super) const WHOLE_REQUESTS: u32 = 8;

/// More than their headers and bodies take in that message, without data, names and descriptor.
pub(super) const FILLED_REQUESTS_BYTES: usize = 4096;

/// The content of a new file, and when it was written and read.
#[derive(Debug, Clone)]
pub struct Contents {
    pub data: Payload,
    pub written: FileTime,
    pub accessed: FileTime,
}

/// A file of [`Client::submit_filled`] whose answers are still to be taken.
#[derive(Debug)]
pub struct Filling {
    pub(super) tokens: Vec<Token>,
    pub(super) data_bytes: usize,
}

/// A file of [`Client::submit_keep_as`] whose answers are still to be taken.
#[derive(Debug)]
pub struct Keeping {
    pub(super) tokens: Vec<Token>,
    pub(super) file: File,
}

/// A file of [`Client::submit_whole`] whose answers are still to be taken.
#[derive(Debug)]
pub struct Whole {
    pub(super) tokens: Vec<Token>,
    pub(super) data_bytes: usize,
    pub(super) part: String,
    pub(super) target: String,
}

/// Why there is no file of [`Client::submit_whole`].
#[derive(Debug)]
pub struct NotWhole {
    pub error: crate::ClientError,
    /// Where it is in part, and could not be removed.
    pub left: Option<String>,
}

/// A file of [`Client::submit_fetch`] whose answers are still to be taken.
#[derive(Debug)]
pub struct Fetching {
    pub(super) tokens: Vec<Token>,
}

/// A change of a directory whose answers are still to be taken.
#[derive(Debug)]
pub struct Changing {
    pub(super) tokens: Vec<Token>,
}

pub(super) fn rename_buffer(target: &str, replace: bool) -> Vec<u8> {
    let target = target.replace('/', "\\");
    let mut buffer = Vec::new();
    RenameInformation {
        flags: if replace { RENAME_REPLACE_IF_EXISTS } else { 0 },
        root_directory: 0,
        name: wide_from_str(target.trim_matches('\\')),
    }
    .write(&mut buffer);
    buffer
}

pub(super) fn times_buffer(written: FileTime, accessed: FileTime) -> Vec<u8> {
    let mut buffer = Vec::new();
    buffer.put(&BasicInformation {
        last_access_time: U64::new(accessed.0),
        last_write_time: U64::new(written.0),
        ..Default::default()
    });
    buffer
}

fn set(tree: Tree, file: FileId, class: u8, buffer: &[u8]) -> Request {
    Request::set_info(tree.id, file, INFO_FILE, class, 0, buffer).within(tree)
}

/// Makes a file that goes with its handle, with all of its data and its times, durable.
pub(super) fn filling(
    tree: Tree,
    path: &str,
    descriptor: Option<&[u8]>,
    contents: &Contents,
) -> Vec<Request> {
    let mut contexts = CreateContextWriter::default();
    if let Some(descriptor) = descriptor {
        contexts.push(CONTEXT_SECURITY_DESCRIPTOR, descriptor);
    }
    let mut requests = vec![
        Client::create_request(tree, path, OpenOptions::create_temporary(), &contexts.finish()),
        set(tree, FileId::RELATED, class::DISPOSITION, &[1]),
    ];
    if !contents.data.is_empty() {
        requests.push(Request::write(tree.id, FileId::RELATED, 0, contents.data.clone(), 0).within(tree));
    }
    let times = times_buffer(contents.written, contents.accessed);
    requests.push(set(tree, FileId::RELATED, class::BASIC, &times));
    requests.push(Request::flush(tree.id, FileId::RELATED).within(tree));
    requests
}

/// Gives a file that goes with its handle another name, under which it stays, and closes it.
pub(super) fn keeping(tree: Tree, file: FileId, target: &str, replace: bool) -> [Request; 3] {
    [
        set(tree, file, class::DISPOSITION, &[0]),
        set(tree, file, class::RENAME, &rename_buffer(target, replace)),
        Request::close(tree.id, file).within(tree),
    ]
}
