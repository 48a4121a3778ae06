//! The file layer's answers, handed to the transfers that wait for them.

use super::copy::{copy_read, copy_written};
use super::io::{finish_read, finish_write};
use super::parts::Parts;
use super::transfers::InFlight;
use crate::fs::FsError;
use sys::Payload;

pub fn read_done(parts: &mut Parts<'_>, token: u64, result: Result<Payload, FsError>) {
    match parts.transfers.take(token) {
        Some(InFlight::Read { operation, len_bytes, .. }) => {
            finish_read(parts, operation, len_bytes, result);
        }
        Some(InFlight::CopyRead(copy)) => copy_read(parts, copy, result),
        _ => {}
    }
}

pub fn written(parts: &mut Parts<'_>, token: u64, result: Result<(), FsError>) {
    match parts.transfers.take(token) {
        Some(InFlight::Write { operation, len_bytes, .. }) => {
            finish_write(parts, operation, len_bytes, result);
        }
        Some(InFlight::CopyWrite(copy)) => copy_written(parts, copy, result),
        _ => {}
    }
}
