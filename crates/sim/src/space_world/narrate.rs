//! Prints a run to standard error: `SIM_TELL=CHUNK` in the environment follows one chunk through
//! faults, records, messages and clients. Does not change the run.

use super::blocks::{CHUNK_BLOCKS, value_of};
use super::client::Doing;
use super::course::Moment;
use records::VolumeRecord;
use space::api::{SpaceError, SpaceReply, SpaceRequest};
use space::message::{Answer, ReplicaOperation, Request, Response};
use std::sync::OnceLock;
use types::{BLOCK_BYTES, DiskId};

/// Returns the chunk to follow.
fn chunk() -> Option<u64> {
    static CHUNK: OnceLock<Option<u64>> = OnceLock::new();
    *CHUNK.get_or_init(|| std::env::var("SIM_TELL").ok()?.parse().ok())
}

pub(crate) fn fault(at: Moment, kind: &dyn std::fmt::Debug, node: usize, disk: usize, lasting_ms: u64) {
    if chunk().is_some() {
        eprintln!("{at} FAULT {kind:?} node {node} disk {} for {lasting_ms} ms", disk + 1);
    }
}

pub(crate) fn record(at: Moment, record: &VolumeRecord, retired: Option<DiskId>) {
    if chunk().is_none() {
        return;
    }
    let name = |disk: &DiskId| disk.to_bytes()[0];
    let stale: Vec<(u8, u64)> = record.stale.iter().map(|stale| (name(&stale.disk), stale.since.0)).collect();
    let building: Vec<(u8, u32)> = record.building.iter().map(|mark| (name(&mark.0), mark.1.0)).collect();
    eprintln!(
        "{at} RECORD epoch {} settled {} in sync {:?} stale {stale:?} building {building:?} coordinator {} retired {:?} \
         min holders {}",
        record.epoch,
        record.settled,
        record.in_sync.iter().map(name).collect::<Vec<_>>(),
        record.coordinator,
        retired.as_ref().map(name),
        record.min_holders
    );
}

pub(crate) fn request(at: Moment, from: usize, to: usize, request: &Request) {
    let Some(chunk) = chunk() else { return };
    let said = match &request.operation {
        ReplicaOperation::Open { .. } | ReplicaOperation::Chunks | ReplicaOperation::Promise => {
            format!("{:?}", request.operation)
        }
        ReplicaOperation::Allocate { chunk: index, .. }
        | ReplicaOperation::Free { chunk: index }
        | ReplicaOperation::Regions { chunk: index }
            if u64::from(index.0) == chunk =>
        {
            format!("{:?}", request.operation)
        }
        ReplicaOperation::Write { lba, class, data, .. } if lba.0 / CHUNK_BLOCKS == chunk => {
            let data = data.contiguous();
            let first = data.get(..BLOCK_BYTES).and_then(|block| value_of(block, lba.0));
            format!("Write {} {class:?} blocks {} first {first:x?}", lba.0, data.len() / BLOCK_BYTES)
        }
        ReplicaOperation::Discard { lba, blocks, .. } if lba.0 / CHUNK_BLOCKS == chunk => {
            format!("Discard {} {blocks}", lba.0)
        }
        ReplicaOperation::Read { lba, blocks } if lba.0 / CHUNK_BLOCKS == chunk => {
            format!("Read {} {blocks}", lba.0)
        }
        _ => return,
    };
    let (session, id) = (request.session.0, request.id.0 & 0xf_ffff);
    eprintln!(
        "   {at} node {from} -> disk {}: session {session:x} id {id:x} epoch {} {said}",
        to + 1,
        request.epoch
    );
}

pub(crate) fn response(at: Moment, disk: usize, response: &Response) {
    if chunk().is_some() && !matches!(&response.result, Ok(Answer::Data { .. })) {
        let (session, id) = (response.session.0, response.id.0 & 0xf_ffff);
        eprintln!("   {at} disk {}: session {session:x} id {id:x} {:?}", disk + 1, response.result);
    }
}

pub(crate) fn begins(at: Moment, client: usize, doing: &Doing, request: &SpaceRequest) {
    let lba = match request {
        SpaceRequest::Read { lba, .. }
        | SpaceRequest::Write { lba, .. }
        | SpaceRequest::Discard { lba, .. } => lba.0,
    };
    if chunk() == Some(lba / CHUNK_BLOCKS) {
        eprintln!("{at} client {client} begins {doing:x?}");
    }
}

pub(crate) fn done(at: Moment, client: usize, doing: &Doing, result: &Result<SpaceReply, SpaceError>) {
    let lba = match doing {
        Doing::Read { lba } | Doing::Write { lba, .. } => *lba,
        Doing::Discard { lbas, .. } => lbas.first().copied().unwrap_or_default(),
    };
    if chunk() != Some(lba / CHUNK_BLOCKS) {
        return;
    }
    let said = match result {
        Ok(SpaceReply::Data(data)) => {
            let data = data.contiguous();
            let blocks = data.chunks(BLOCK_BYTES).enumerate();
            format!("{:x?}", blocks.map(|(at, block)| value_of(block, lba + at as u64)).collect::<Vec<_>>())
        }
        Ok(SpaceReply::Done) => "done".to_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("{at} client {client} ends {doing:x?}: {said}");
}
