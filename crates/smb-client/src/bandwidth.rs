//! The second half of the check of an SMB Direct server, for those with an account: the speed of
//! writing and reading a file by RDMA, and whether it comes back unchanged.
//!
//! Owns one file on the share for the time it runs; once made, it is deleted even after errors. Never
//! goes over TCP.

use crate::{Client, ClientError, Credentials, File, OpenOptions, Options, Reply, Transport};
use serde::Serialize;
use std::time::{Duration, Instant};
use sys::{BufMut, Payload};

/// Bytes of one READ or WRITE at most.
const BLOCK_BYTES: usize = 1 << 20;
/// Requests in flight.
const DEPTH: usize = 8;
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Serialize)]
pub struct Bandwidth {
    pub block_bytes: usize,
    pub depth: usize,
    pub bytes: u64,
    pub write_bytes_s: f64,
    pub read_bytes_s: f64,
    /// Payload that went by RDMA; the rest was in messages.
    pub written_by_rdma_bytes: u64,
    pub read_by_rdma_bytes: u64,
    /// The reason why RDMA was not used, if it was not.
    pub note: Option<String>,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BandwidthError {
    #[error("{step}: {error}")]
    Client { step: &'static str, error: ClientError },
    #[error("the block at {0} came back other than it was written: the way or the server corrupts data")]
    Corrupt(u64),
    #[error("the server answered nothing for 30 s")]
    Silent,
}

fn at(step: &'static str) -> impl FnOnce(ClientError) -> BandwidthError {
    move |error| BandwidthError::Client { step, error }
}

/// Writes and reads `bytes` on the share.
///
/// # Errors
/// [`BandwidthError`].
pub fn measure(
    server: &str,
    port: u16,
    share: &str,
    credentials: Credentials,
    bytes: u64,
    crc: bool,
) -> Result<Bandwidth, BandwidthError> {
    // Both ways are measured by RDMA, also what a client would send.
    let (rdma_write_bytes_min, rdma_read_bytes_min) = (1, 1);
    let rdma = Options { rdma_write_bytes_min, rdma_read_bytes_min, ..Options::default() };
    let options = Options { transport: Transport::Rdma, rdma_crc: crc, ..rdma };
    let mut client = Client::connect(server, port, credentials, options).map_err(at("logon"))?;
    let tree = client.tree_connect(share).map_err(at("share"))?;
    let name = format!("cenote-rdma-ping-{}.tmp", std::process::id());
    let file = client.open(tree, &name, OpenOptions::create_new()).map_err(at("test file"))?;
    let result = transfer(&mut client, &file, bytes);
    // An earlier error says more than an error of this removal.
    let closed = client.close(file).and_then(|()| client.delete(tree, &name));
    let measured = result?;
    closed.map_err(at("removal of the test file"))?;
    Ok(measured)
}

fn transfer(client: &mut Client, file: &File, bytes: u64) -> Result<Bandwidth, BandwidthError> {
    let limits = client.limits();
    let block_bytes = BLOCK_BYTES.min(limits.write_bytes as usize).min(limits.read_bytes as usize).max(1);
    let blocks = bytes.div_ceil(block_bytes as u64).max(1);
    let before = client.counters();
    let write_time = each(
        client,
        blocks,
        |client, block| {
            let data = Payload::from(pattern(block, block_bytes).freeze());
            client.submit_write(file, block * block_bytes as u64, data)
        },
        |_, reply| reply.success().map(drop).map_err(Failure::Client),
    )
    .map_err(|error| named(error, "write"))?;
    client.flush(file).map_err(at("flush"))?;
    let read_time = each(
        client,
        blocks,
        |client, block| client.submit_read(file, block * block_bytes as u64, block_bytes as u32),
        |block, reply| {
            let data = reply.read_data().map_err(Failure::Client)?;
            let same = data[..] == pattern(block, block_bytes)[..];
            same.then_some(()).ok_or(Failure::Corrupt(block * block_bytes as u64))
        },
    )
    .map_err(|error| named(error, "read"))?;
    let after = client.counters();
    let moved = blocks * block_bytes as u64;
    let written_by_rdma_bytes = after.rdma_written_bytes - before.rdma_written_bytes;
    let protected = client.is_signed() || client.is_encrypted();
    let note = (written_by_rdma_bytes == 0).then(|| match protected {
        true => {
            "the server wants signing or encryption, which RDMA would go around: payload went in messages"
                .to_owned()
        }
        false => "payload went in messages".to_owned(),
    });
    Ok(Bandwidth {
        block_bytes,
        depth: DEPTH,
        bytes: moved,
        write_bytes_s: moved as f64 / write_time.as_secs_f64().max(1e-9),
        read_bytes_s: moved as f64 / read_time.as_secs_f64().max(1e-9),
        written_by_rdma_bytes,
        read_by_rdma_bytes: after.rdma_read_bytes - before.rdma_read_bytes,
        note,
    })
}

enum Failure {
    Client(ClientError),
    Corrupt(u64),
    Silent,
}

fn named(failure: Failure, step: &'static str) -> BandwidthError {
    match failure {
        Failure::Client(error) => BandwidthError::Client { step, error },
        Failure::Corrupt(offset) => BandwidthError::Corrupt(offset),
        Failure::Silent => BandwidthError::Silent,
    }
}

/// Sends a request for each block, some at a time, and hands what came to `check`.
fn each(
    client: &mut Client,
    blocks: u64,
    submit: impl Fn(&mut Client, u64) -> Result<crate::Token, ClientError>,
    check: impl Fn(u64, &Reply) -> Result<(), Failure>,
) -> Result<Duration, Failure> {
    let engine = client.engine().clone();
    let (began, mut next, mut done) = (Instant::now(), 0, 0);
    let mut heard = Instant::now();
    let mut waiting = Vec::with_capacity(DEPTH);
    let mut answers = Vec::new();
    while done < blocks {
        while next < blocks && waiting.len() < DEPTH {
            waiting.push((submit(client, next).map_err(Failure::Client)?, next));
            next += 1;
        }
        client.poll(&mut answers).map_err(Failure::Client)?;
        if answers.is_empty() {
            if heard.elapsed() > SILENCE {
                return Err(Failure::Silent);
            }
            engine.wait(Duration::from_millis(100)).map_err(Failure::Client)?;
        }
        for (token, reply) in answers.drain(..) {
            heard = Instant::now();
            let Some(found) = waiting.iter().position(|(one, _)| *one == token) else { continue };
            let (_, block) = waiting.swap_remove(found);
            done += 1;
            check(block, &reply)?;
        }
    }
    Ok(began.elapsed())
}

/// Bytes that differ from block to block and from word to word.
fn pattern(block: u64, len_bytes: usize) -> BufMut {
    let mut bytes = BufMut::for_overwrite(len_bytes);
    let mut state = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}
