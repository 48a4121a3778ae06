//! Files on SMB shares: one thread's sessions, with as many requests in flight as it has slots.

use super::{TICK, no_target, now_ns};
use crate::engine::random::Random;
use crate::engine::{Done, Failure, Port, Request};
use crate::profile::{CacheMode, Target, WriteThrough};
use crate::statistics::SmbUse;
use smb::crypto::CipherId;
use smb::wire::{Dialect, READ_FLAG_UNBUFFERED, WRITE_FLAG_UNBUFFERED, WRITE_FLAG_WRITE_THROUGH};
use smb_client::{Client, ClientError, Engine, File, Reply, Request as SmbRequest, Token};
use std::time::Duration;
use sys::{Buf, BufMut};
use types::IdentityMap;

/// A file as a thread uses it.
pub struct SmbPortTarget {
    /// Which of the thread's sessions.
    pub session: usize,
    /// The open file.
    pub file: File,
    /// Flags of SMB2 READ (MS-SMB2 2.2.19).
    pub read_flags: u8,
    /// Flags of SMB2 WRITE (MS-SMB2 2.2.21).
    pub write_flags: u32,
    /// Memory that writes take their data from; `None`: new random bytes each time.
    pub source: Option<Buf>,
    /// Distance of the places in `source` that a write may begin at.
    pub step_bytes: usize,
    /// Number of these places.
    pub steps: u64,
}

impl SmbPortTarget {
    /// `newest_flags`: the dialect is 3.0.2 or later, and knows unbuffered requests.
    pub fn new(target: &Target, session: usize, file: File, newest_flags: bool, source: Option<Buf>) -> Self {
        let is_unbuffered = newest_flags && target.cache == CacheMode::DisableOsCache;
        let mut write_flags = if is_unbuffered { WRITE_FLAG_UNBUFFERED } else { 0 };
        if target.write_through == WriteThrough::On {
            write_flags |= WRITE_FLAG_WRITE_THROUGH;
        }
        let len = source.as_ref().map_or(0, |source| source.len());
        let (step_bytes, steps) = match super::Content::source(0, len, target.block_bytes) {
            super::Content::Source { step_bytes, steps, .. } => (step_bytes, steps),
            _ => (1, 1),
        };
        Self {
            session,
            file,
            read_flags: if is_unbuffered { READ_FLAG_UNBUFFERED } else { 0 },
            write_flags,
            source,
            step_bytes,
            steps,
        }
    }
}

struct Session {
    client: Client,
    slots: IdentityMap<Token, (u32, bool)>,
}

/// The port of a thread whose targets are on shares.
pub struct SmbPort {
    engine: Engine,
    sessions: Vec<Session>,
    targets: Vec<SmbPortTarget>,
    random: Random,
    answers: Vec<(Token, Reply)>,
}

impl SmbPort {
    /// Makes the port; `slots`: operations in flight at once.
    pub fn new(
        engine: Engine,
        clients: Vec<Client>,
        targets: Vec<SmbPortTarget>,
        random: Random,
        slots: u32,
    ) -> Self {
        let session = |client| Session {
            client,
            slots: IdentityMap::with_capacity_and_hasher(slots as usize * 2, Default::default()),
        };
        Self {
            engine,
            sessions: clients.into_iter().map(session).collect(),
            targets,
            random,
            answers: Vec::with_capacity(slots as usize),
        }
    }

    /// Returns the sessions with their work.
    pub fn sessions_used(&self) -> Vec<SmbUse> {
        let one = |session: &Session| {
            let client = &session.client;
            SmbUse {
                server: client.server().to_owned(),
                is_rdma: client.is_rdma(),
                fallback: client.fallback().map(str::to_owned),
                dialect: client.dialect().map_or("", Dialect::name).to_owned(),
                channels: client.channel_count() as u32,
                is_signed: client.is_signed(),
                cipher: client
                    .is_encrypted()
                    .then(|| client.cipher().map_or("unknown", cipher_name).to_owned()),
                counters: client.counters(),
            }
        };
        self.sessions.iter().map(one).collect()
    }

    fn collect(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        for session in &mut self.sessions {
            session.client.poll(&mut self.answers).map_err(|error| failure(&error))?;
            for (token, reply) in self.answers.drain(..) {
                let Some((slot, is_write)) = session.slots.remove(&token) else { continue };
                let result = if is_write {
                    reply.written_bytes()
                } else {
                    reply.read_data().map(|data| data.len() as u32)
                };
                done.push(Done { slot, at_ns: now_ns(), result: result.map_err(|error| failure(&error)) });
            }
        }
        Ok(())
    }
}

fn cipher_name(cipher: CipherId) -> &'static str {
    match cipher {
        CipherId::Aes128Ccm => "AES-128-CCM",
        CipherId::Aes128Gcm => "AES-128-GCM",
        CipherId::Aes256Ccm => "AES-256-CCM",
        CipherId::Aes256Gcm => "AES-256-GCM",
    }
}

/// As it is reported.
fn failure(error: &ClientError) -> Failure {
    match error.status() {
        Some(status) => Failure::Status(status.0),
        None => Failure::Other(error.to_string()),
    }
}

impl Port for SmbPort {
    fn now_ns(&mut self) -> u64 {
        now_ns()
    }

    fn submit(&mut self, request: &Request, now: u64) -> Result<u64, Failure> {
        let target = self.targets.get(request.target as usize).ok_or_else(no_target)?;
        let session = self.sessions.get_mut(target.session).ok_or_else(no_target)?;
        let file = &target.file;
        let mut began = now;
        let message = if request.is_write {
            let len = request.len_bytes as usize;
            let data = match &target.source {
                Some(source) => {
                    let at = self.random.below(target.steps) as usize * target.step_bytes;
                    source.slice(at..at + len)
                }
                None => {
                    let mut data = BufMut::for_overwrite(len);
                    self.random.fill(&mut data);
                    began = now_ns();
                    data.freeze()
                }
            };
            SmbRequest::write(file.tree.id, file.id, request.offset, data.into(), target.write_flags)
        } else {
            let len = request.len_bytes;
            SmbRequest::read_with(file.tree.id, file.id, request.offset, len, target.read_flags)
        };
        let token = session.client.submit(message.within(file.tree)).map_err(|error| failure(&error))?;
        session.slots.insert(token, (request.slot, request.is_write));
        Ok(began)
    }

    fn wait(&mut self, until_ns: u64, done: &mut Vec<Done>) -> Result<(), Failure> {
        self.collect(done)?;
        if !done.is_empty() {
            return Ok(());
        }
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        self.engine.wait(left.min(TICK)).map_err(|error| failure(&error))?;
        self.collect(done)
    }
}
