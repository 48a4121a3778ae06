//! Requests of coordinators as SMB2 requests to one peer, and its answers: sessions with disks, and
//! requests in them.
//!
//! Owns the sessions' file ids, and the request of every token. Promises: a request goes out at most
//! once, and only within its own session; a malformed answer of a peer ends all trust in it.

use super::queue::{Load, Queue, Queued};
use super::{Answers, PeerCounters, PortId};
use crate::wire::{self, Malformed};
use smb::wire::{
    CONTEXT_BUS_SESSION, CreateContextWriter, CreateRequestBody, CreateResponse, FILE_OPEN, FileId, U32,
    WRITE_FLAG_WRITE_THROUGH, fsctl,
};
use smb_client::{ClientError, Leftovers, Reply, Request as SmbRequest, Token};
use space::message::{Answer, BusError, ReplicaOperation, Request, RequestId, Response, SessionId, Waiting};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::api::StoreError;
use types::{BLOCK_BYTES, DiskId, Epoch, IdentityMap, Lba, Monotonic, NtStatus, VolumeId};

/// FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE.
const SHARE_ALL: u32 = 7;
/// FILE_READ_DATA | FILE_WRITE_DATA.
const ACCESS: u32 = 3;

/// Shape of the right answer to a request.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Open,
    Done,
    Written { bytes: u32 },
    Read { blocks: u32 },
    Chunks,
    Regions,
}

impl Kind {
    fn only_reads(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Chunks | Self::Regions)
    }
}

/// A request of a coordinator that is not answered.
struct Asked {
    port: PortId,
    disk: DiskId,
    volume: VolumeId,
    session: SessionId,
    id: RequestId,
    kind: Kind,
    /// When it left.
    since: Monotonic,
    /// Bytes that the request counts at the peer; `None`: its session is over, and others may have these
    /// bytes.
    load: Option<Load>,
    /// Bytes of the request, counted at its channel.
    bytes: u64,
    /// Bytes under way at its channel when it left, with it; `None`: it says nothing of the channel's pace.
    left_with: Option<u64>,
}

impl Asked {
    /// The notice to the coordinator when the request leaves anew: the disk's time begins again.
    fn waiting(&self) -> Waiting {
        let Self { disk, volume, session, id, .. } = *self;
        Waiting { disk, volume, session, id, has_left: true }
    }

    fn respond(&self, result: Result<Answer, BusError>) -> Response {
        let Self { disk, volume, session, id, .. } = *self;
        Response { from: disk, volume, session, id, result }
    }
}

/// A session with a disk.
struct Session {
    port: PortId,
    id: SessionId,
    /// `None`: it is not answered yet.
    file: Option<FileId>,
}

/// An answer for a coordinator, to a request of `bytes`.
pub(super) struct Taken {
    pub port: PortId,
    pub response: Response,
    pub bytes: u64,
    /// Bytes under way at its channel when the request left, and the time until its answer; `None`: it says
    /// nothing of the channel's pace.
    pub paced: Option<(u64, Duration)>,
}

/// A request that is sent again over another channel.
pub(super) struct Again {
    pub token: Token,
    pub request: SmbRequest,
    pub bytes: u64,
    pub waiting: Option<(PortId, Waiting)>,
}

/// Requests under way at one peer, over all channels of one session with it.
pub(super) struct Sessions {
    tree: u32,
    sessions: BTreeMap<(DiskId, VolumeId), Session>,
    asked: IdentityMap<Token, Asked>,
    /// Files that nobody uses any more, to be closed: a newer session overtook theirs before it was answered, or their port is gone.
    unused: Vec<FileId>,
}

/// Why a connection is of no further use.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("no answer in time")]
    TimedOut,
    #[error(
        "small messages arrive and large ones do not: compare the MTU of the servers' interfaces with what the network between them carries"
    )]
    LosesLarge,
    #[error("this server does not know by which certificate it proves itself yet")]
    Unproven,
    #[error("{0}")]
    Other(String),
}

impl PeerError {
    /// Whether a server answered, to which this one's account is not known.
    pub fn is_refused_logon(&self) -> bool {
        let unknown = NtStatus::LOGON_FAILURE;
        matches!(self, Self::Client(ClientError::Status { status, .. }) if *status == unknown)
    }

    /// Describes the error to people.
    pub fn told(&self) -> String {
        if self.is_refused_logon() {
            return "it takes no logon by this server's certificate (LOGON_FAILURE): it has not read of it yet, or it runs an older version, which knows \
                    passwords only (all servers of a cluster run the same version: see Upgrade in docs/CLUSTER.md)"
                .to_owned();
        }
        self.to_string()
    }

    /// Whether the connection was ended from outside.
    pub fn is_reset(&self) -> bool {
        matches!(self, Self::Client(ClientError::Io(_) | ClientError::Rdma(_)))
    }
}

/// A request to be submitted, with its bytes, or the answer that there is already.
pub(super) enum Turned {
    Submit(SmbRequest, u64),
    Answer(Response),
}

/// CREATE of `name`, with these create contexts.
pub(super) fn create(tree: u32, name: &str, contexts: &[u8]) -> SmbRequest {
    let body = CreateRequestBody {
        desired_access: U32::new(ACCESS),
        share_access: U32::new(SHARE_ALL),
        create_disposition: U32::new(FILE_OPEN),
        ..Default::default()
    };
    SmbRequest::create(tree, name, body, contexts)
}

/// The SMB2 request that carries an operation on an open session; `None`: the operation is none that a store takes.
fn request_of(tree: u32, file: FileId, epoch: Epoch, operation: &ReplicaOperation) -> Option<SmbRequest> {
    let offset = |lba: &Lba| lba.0.checked_mul(BLOCK_BYTES as u64);
    Some(match operation {
        ReplicaOperation::Read { lba, blocks } => {
            SmbRequest::read(tree, file, offset(lba)?, wire::read_bytes(*blocks)?)
        }
        ReplicaOperation::Write { lba, class, data, checksums, number } => {
            let payload = wire::put_write(epoch, *number, *class, data, checksums)?;
            SmbRequest::write(tree, file, offset(lba)?, payload, WRITE_FLAG_WRITE_THROUGH)
        }
        operation => {
            let (code, input, answer_bytes) = wire::control_of(epoch, operation)?;
            SmbRequest::fsctl(tree, file, code, &input, answer_bytes)
        }
    })
}

impl Sessions {
    pub fn new(tree: u32) -> Self {
        Self { tree, sessions: BTreeMap::new(), asked: IdentityMap::default(), unused: Vec::new() }
    }

    pub fn take_unused(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.unused)
    }

    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Takes a coordinator's request, which leaves now and counts in `queue` unless it is answered here.
    /// Requests of an older session of the same volume and disk are not sent any more; `close` is the file
    /// of one that a new one replaces.
    pub fn ask(
        &mut self,
        queued: Queued,
        token: Token,
        queue: &mut Queue,
        close: &mut Option<FileId>,
        now: Monotonic,
    ) -> Turned {
        let load = queued.load();
        let Queued { port, disk, request, .. } = queued;
        let Request { volume, session, id, epoch, operation, .. } = request;
        let mut asked = Asked {
            port,
            disk,
            volume,
            session,
            id,
            kind: Kind::Done,
            since: now,
            load: Some(load),
            bytes: load.bytes(),
            left_with: None,
        };
        if let ReplicaOperation::Open { least, settled } = operation {
            self.end_loads(queue, |asked| asked.disk == disk && asked.volume == volume);
            queue.left(&load, now);
            let mut contexts = CreateContextWriter::default();
            let context = wire::put_session(volume, epoch, session, least, settled);
            contexts.push(CONTEXT_BUS_SESSION, &context);
            let before = self.sessions.insert((disk, volume), Session { port, id: session, file: None });
            *close = before.and_then(|before| before.file);
            asked.kind = Kind::Open;
            self.asked.insert(token, asked);
            let request = create(self.tree, &disk.to_string(), &contexts.finish());
            return Turned::Submit(request, load.bytes());
        }
        let found = self.sessions.get(&(disk, volume)).filter(|open| open.id == session);
        let Some(file) = found.and_then(|open| open.file) else {
            return Turned::Answer(asked.respond(Err(BusError::NoSession)));
        };
        asked.kind = match &operation {
            ReplicaOperation::Read { blocks, .. } => Kind::Read { blocks: *blocks },
            ReplicaOperation::Write { .. } => Kind::Written { bytes: 0 },
            ReplicaOperation::Chunks => Kind::Chunks,
            ReplicaOperation::Regions { .. } => Kind::Regions,
            _ => Kind::Done,
        };
        let Some(request) = request_of(self.tree, file, epoch, &operation) else {
            let why = "no blocks, parts of them, or more than 1 MiB";
            return Turned::Answer(asked.respond(Err(BusError::Store(StoreError::Invalid(why)))));
        };
        if let Kind::Written { bytes } = &mut asked.kind {
            *bytes = request.payload.len() as u32;
        }
        queue.left(&load, now);
        self.asked.insert(token, asked);
        Turned::Submit(request, load.bytes())
    }

    /// Notes the bytes under way at a request's channel when it left.
    pub fn left_with(&mut self, token: Token, bytes: Option<u64>) {
        if let Some(asked) = self.asked.get_mut(&token) {
            asked.left_with = bytes;
        }
    }

    /// Ends the sessions of a port that is gone: nobody takes answers to its requests.
    pub fn end_port(&mut self, port: PortId, queue: &mut Queue) {
        self.end_loads(queue, |asked| asked.port == port);
        let of_port = self.sessions.extract_if(.., |_, session| session.port == port);
        self.unused.extend(of_port.filter_map(|(_, session)| session.file));
    }

    /// Stops counting requests of sessions that end: the disk may never answer them, and the server gives
    /// them up when it learns of the end.
    fn end_loads(&mut self, queue: &mut Queue, is_over: impl Fn(&Asked) -> bool) {
        for asked in self.asked.values_mut().filter(|asked| is_over(asked)) {
            if let Some(load) = asked.load.take() {
                queue.ended(&load);
            }
        }
    }

    /// Takes an answer; `None`: it is to no coordinator's request.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn answered(
        &mut self,
        token: Token,
        reply: &Reply,
        now: Monotonic,
        queue: &mut Queue,
        counters: &mut PeerCounters,
    ) -> Result<Option<Taken>, PeerError> {
        let Some(asked) = self.asked.remove(&token) else { return Ok(None) };
        if let Some(load) = &asked.load {
            queue.ended(load);
        }
        counters.answers += 1;
        counters.latency.record(now.since(asked.since));
        let result = match reply.status() {
            NtStatus::SUCCESS => Ok(self.answer(&asked, reply, counters)?),
            status => Err(refusal(status, reply)?),
        };
        // The server itself reports that a session is over: its disk may hang.
        if !matches!(result, Err(BusError::NoSession)) {
            queue.answered(asked.disk, now);
        }
        if result.is_err() && matches!(asked.kind, Kind::Open) {
            let place = (asked.disk, asked.volume);
            if self.sessions.get(&place).is_some_and(|open| open.id == asked.session) {
                self.sessions.remove(&place);
            }
        }
        let paced = asked.left_with.map(|bytes| (bytes, now.since(asked.since)));
        Ok(Some(Taken { port: asked.port, response: asked.respond(result), bytes: asked.bytes, paced }))
    }

    fn answer(
        &mut self,
        asked: &Asked,
        reply: &Reply,
        counters: &mut PeerCounters,
    ) -> Result<Answer, PeerError> {
        Ok(match asked.kind {
            Kind::Open => {
                let response = CreateResponse::parse(reply.message()).map_err(ClientError::from)?;
                let mut contexts = response.contexts().map_err(ClientError::from)?.filter_map(Result::ok);
                let context = contexts.find(|context| context.name == CONTEXT_BUS_SESSION);
                let context = context.ok_or(Malformed("a session without its context"))?;
                let (promised, doubtful) = wire::parse_opened(context.data)?;
                // A newer session may have begun meanwhile: this one is never used then.
                let place = (asked.disk, asked.volume);
                match self.sessions.get_mut(&place).filter(|open| open.id == asked.session) {
                    Some(open) => open.file = Some(response.file_id),
                    None => self.unused.push(response.file_id),
                }
                Answer::Opened { promised, doubtful }
            }
            Kind::Done => {
                if !reply.fsctl_output()?.is_empty() {
                    return Err(Malformed("an answer with more than it has").into());
                }
                Answer::Done
            }
            Kind::Written { bytes } => {
                if reply.written_bytes()? != bytes {
                    return Err(Malformed("another number of bytes written than was sent").into());
                }
                counters.written_bytes += u64::from(bytes);
                Answer::Done
            }
            Kind::Read { blocks } => {
                let (data, checksums) = wire::parse_read(&reply.read_data()?, blocks)?;
                counters.read_bytes += data.len() as u64;
                Answer::Data { data, checksums }
            }
            Kind::Chunks => Answer::Chunks(wire::parse_chunks(reply.fsctl_output()?)?),
            Kind::Regions => Answer::Regions(wire::parse_regions(reply.fsctl_output()?)?),
        })
    }

    /// Takes the requests that one lost channel of several has left unanswered, and returns those to send
    /// over another one.
    ///
    /// Those are requests that never left, and reads: a second read does no harm. Of changes that left
    /// nobody knows whether the server has them, or will find them later in data of the dead connection: a
    /// change sent again within the session might be carried out a second time after a newer one of the
    /// same blocks. So their sessions with disks end, as all do when the last channel is lost. Their
    /// coordinators begin others: the disk answers the opening when nothing of the earlier session is in
    /// work, and from then on refuses requests of the earlier one, over any connection
    /// ([`space::replica`]). In the new session they ask again under the same numbers. The disks stay in
    /// sync meanwhile, since nobody waits for anything longer. Other sessions go on.
    pub fn channel_lost(
        &mut self,
        leftovers: Leftovers,
        queue: &mut Queue,
        counters: &mut PeerCounters,
        out: &mut Answers,
    ) -> Vec<Again> {
        let name = |asked: &Asked| (asked.disk, asked.volume, asked.session);
        let sent = leftovers.sent.iter().filter_map(|(token, ..)| self.asked.get(token));
        let ended: BTreeSet<_> = sent.filter(|asked| !asked.kind.only_reads()).map(name).collect();
        for &(disk, volume, session) in &ended {
            if self.sessions.get(&(disk, volume)).is_some_and(|open| open.id == session) {
                let over = self.sessions.remove(&(disk, volume));
                self.unused.extend(over.and_then(|over| over.file));
            }
        }
        let sent = leftovers.sent.into_iter().map(|(token, _, request)| (token, request));
        let waiting = leftovers.waiting.into_iter().flatten();
        let mut again = Vec::new();
        for (token, request) in sent.chain(waiting.map(|(token, request)| (token, Some(request)))) {
            let asked = self.asked.get(&token);
            match request.filter(|_| asked.is_none_or(|asked| !ended.contains(&name(asked)))) {
                Some(mut request) => {
                    request.send_inline();
                    let bytes = asked.map_or(0, |asked| asked.bytes);
                    let waiting = asked.map(|asked| (asked.port, asked.waiting()));
                    // The time that the request takes there says nothing of that channel's pace.
                    self.left_with(token, None);
                    again.push(Again { token, request, bytes, waiting });
                }
                None => {
                    let Some(asked) = self.asked.remove(&token) else { continue };
                    if let Some(load) = &asked.load {
                        queue.ended(load);
                    }
                    counters.unreachable += 1;
                    out.push(asked.port, asked.respond(Err(BusError::Unreachable)));
                }
            }
        }
        again
    }

    /// Answers everything that is not answered: the connection is lost.
    pub fn give_up(&mut self, counters: &mut PeerCounters, out: &mut Answers) {
        counters.unreachable += self.asked.len() as u64;
        let mut lost: Vec<Asked> = self.asked.drain().map(|(_, asked)| asked).collect();
        lost.sort_by_key(|asked| (asked.session, asked.id));
        for asked in lost {
            out.push(asked.port, asked.respond(Err(BusError::Unreachable)));
        }
    }
}

/// The error that a failed request is answered with.
fn refusal(status: NtStatus, reply: &Reply) -> Result<BusError, PeerError> {
    let data = reply.error_data()?;
    if data.is_empty() {
        // The server itself refused it, such as for an open that an administrator closed: the session is
        // lost.
        tracing::debug!(%status, command = ?reply.command(), "refused on the storage bus");
        return Ok(BusError::NoSession);
    }
    Ok(wire::parse_refusal(data)?)
}

/// The question whether a large message comes through, and a large answer to it.
pub(super) fn proof(tree: u32, node: FileId) -> SmbRequest {
    let input = [0; wire::PROOF_BYTES];
    SmbRequest::fsctl(tree, node, fsctl::BUS_PROVE, &input, wire::PROOF_BYTES as u32)
}

/// The question about the peer's disks.
pub(super) fn status_question(tree: u32, node: FileId, cursors: &BTreeMap<DiskId, u64>) -> SmbRequest {
    /// Space for thousands of findings, beside more disks than a server has.
    const ANSWER_BYTES: u32 = 256 << 10;
    SmbRequest::fsctl(tree, node, fsctl::BUS_STATUS, &wire::put_status_request(cursors), ANSWER_BYTES)
}
