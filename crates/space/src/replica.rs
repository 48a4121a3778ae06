//! The replica: one disk's store as coordinators see it.
//!
//! Owns the sessions of the volumes' coordinators. Promises: the replica performs an operation at
//! most once, only within its session, and never under an epoch below the disk's promise (I3). A
//! session begins only if the disk has promised as much as its coordinator knows. Answers to
//! another node go only over the connection of the request. Never knows other disks.

use crate::block_store::BlockStore;
use crate::message::{Answer, BusError, PeerId, ReplicaOperation, Request, RequestId, Response, SessionId};
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet};
use store::api::{StoreCompletion, StoreError, StoreReply, StoreRequest};
use types::{DiskId, Epoch, Stamp, VolumeId};

/// Ids that a session remembers above the lowest one it still accepts.
const WINDOW_MAX: usize = 4096;

/// Tokens of requests that the replica's owner sends to the store itself.
const OWNER_TOKENS: u64 = 1 << 63;

/// One session of one volume.
struct Session {
    id: SessionId,
    /// Connection of the session; `None`: the coordinator is on this server.
    peer: Option<PeerId>,
    epoch: Epoch,
    /// Lower bound of ids that may still be accepted.
    floor: RequestId,
    seen: BTreeSet<RequestId>,
}

impl Session {
    /// Whether the id is new. From now on it is not.
    fn accept(&mut self, id: RequestId) -> bool {
        if Planted::AcceptReplays.is_planted() {
            return true;
        }
        if id < self.floor || !self.seen.insert(id) {
            return false;
        }
        while self.seen.remove(&self.floor) {
            self.floor = after(self.floor);
        }
        while self.seen.len() > WINDOW_MAX {
            if let Some(lowest) = self.seen.pop_first() {
                self.floor = after(lowest);
            }
        }
        true
    }
}

/// Returns the id after this one.
fn after(id: RequestId) -> RequestId {
    RequestId(id.0 + 1)
}

/// An operation in progress at the store.
struct Work {
    /// Connection of the request; `None`: the coordinator is on this server.
    peer: Option<PeerId>,
    volume: VolumeId,
    session: SessionId,
    id: RequestId,
    /// The disk's former promise, if the operation opens a session.
    opens: Option<Epoch>,
    /// The disk's promise, if the operation refuses a session because that is less than required.
    refuses: Option<Epoch>,
    epoch: Epoch,
}

/// A disk's store and its sessions.
pub struct Replica<S> {
    disk: DiskId,
    store: S,
    sessions: BTreeMap<VolumeId, Session>,
    work: BTreeMap<u64, Work>,
    /// Opens that wait for the operations of earlier sessions to end.
    opening: Vec<(Option<PeerId>, Request)>,
    next_token: u64,
    answers: Vec<Response>,
    /// Answers to other nodes' coordinators.
    peer_answers: Vec<(PeerId, Response)>,
    owner_answers: Vec<StoreCompletion>,
    scratch: Vec<StoreCompletion>,
}

impl<S: BlockStore> Replica<S> {
    pub fn new(disk: DiskId, store: S) -> Self {
        Self {
            disk,
            store,
            sessions: BTreeMap::new(),
            work: BTreeMap::new(),
            opening: Vec::new(),
            next_token: 0,
            answers: Vec::new(),
            peer_answers: Vec::new(),
            owner_answers: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub fn disk(&self) -> DiskId {
        self.disk
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    pub fn into_store(self) -> S {
        self.store
    }

    /// Submits a request of the disk's owner, not of a coordinator: scrub, records.
    /// [`Replica::poll_owner`] returns the answer with `token`, which must be below 2^63.
    pub fn submit_owner(&mut self, token: u64, request: StoreRequest) {
        self.store.submit(OWNER_TOKENS | token, request);
    }

    /// Takes a request of a coordinator of this server.
    pub fn handle(&mut self, request: Request) {
        self.handle_of(None, request);
    }

    /// Takes a request of another node's coordinator, from this connection. [`Replica::poll_peers`]
    /// returns the answer.
    pub fn handle_peer(&mut self, peer: PeerId, request: Request) {
        self.handle_of(Some(peer), request);
    }

    /// Ends the sessions of a volume whose promise an administrator made the disk forget: the next
    /// session may have any epoch.
    pub fn end_sessions(&mut self, volume: VolumeId) {
        self.sessions.remove(&volume);
        self.opening.retain(|(_, waiting)| waiting.volume != volume);
    }

    /// Ends the sessions of a lost connection. Its operations in progress continue, and their
    /// answers are dropped.
    pub fn end_peer(&mut self, peer: PeerId) {
        self.sessions.retain(|_, session| session.peer != Some(peer));
        self.opening.retain(|(of, _)| *of != Some(peer));
        self.peer_answers.retain(|(of, _)| *of != peer);
        for work in self.work.values_mut().filter(|work| work.peer == Some(peer)) {
            work.peer = Some(PeerId::NOBODY);
        }
    }

    fn handle_of(&mut self, peer: Option<PeerId>, request: Request) {
        if let ReplicaOperation::Open { least, settled } = request.operation {
            return self.handle_open(peer, request, least, settled);
        }
        let known = self.sessions.get_mut(&request.volume);
        let Some(session) = known.filter(|session| session.id == request.session && session.peer == peer)
        else {
            return self.answer(peer, &request, Err(BusError::NoSession));
        };
        if !session.accept(request.id) {
            return;
        }
        if request.epoch > Stamp::EPOCH_MAX {
            let error = StoreError::Invalid("an epoch beyond all that there are");
            return self.answer(peer, &request, Err(BusError::Store(error)));
        }
        let promised = self.store.promised(request.volume);
        if request.epoch < promised && !Planted::AcceptOldEpochs.is_planted() {
            return self.answer(peer, &request, Err(BusError::Store(StoreError::Fenced { promised })));
        }
        let (volume, epoch) = (request.volume, request.epoch);
        let store_request = match request.operation {
            ReplicaOperation::Open { .. } | ReplicaOperation::Promise => {
                StoreRequest::Promise { volume, epoch }
            }
            ReplicaOperation::Chunks => StoreRequest::Chunks { volume },
            ReplicaOperation::Allocate { chunk, append } => {
                StoreRequest::AllocateChunk { volume, epoch, chunk, append }
            }
            ReplicaOperation::Free { chunk } => StoreRequest::FreeChunk { volume, epoch, chunk },
            ReplicaOperation::Read { lba, blocks } => StoreRequest::Read { volume, lba, blocks },
            ReplicaOperation::Write { lba, class, data, checksums, number } => {
                let stamp = Stamp::new(epoch, number);
                StoreRequest::Write { volume, stamp, lba, class, data, checksums }
            }
            ReplicaOperation::Discard { lba, blocks, number } => {
                StoreRequest::Discard { volume, stamp: Stamp::new(epoch, number), lba, blocks }
            }
            ReplicaOperation::MarkLost { lba, blocks, number } => {
                StoreRequest::MarkLost { volume, stamp: Stamp::new(epoch, number), lba, blocks }
            }
            ReplicaOperation::Regions { chunk } => StoreRequest::Regions { volume, chunk },
        };
        let work = Work {
            peer,
            volume,
            session: request.session,
            id: request.id,
            opens: None,
            refuses: None,
            epoch,
        };
        self.start(work, store_request);
    }

    /// Whether [`Replica::poll`] may have something to do.
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty()
            || !self.owner_answers.is_empty()
            || !self.peer_answers.is_empty()
            || !self.opening.is_empty()
            || self.store.has_news()
    }

    /// Moves the present answers into `out`.
    pub fn poll(&mut self, out: &mut Vec<Response>) {
        let mut completions = std::mem::take(&mut self.scratch);
        self.store.poll(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.scratch = completions;
        self.start_opens();
        out.append(&mut self.answers);
    }

    /// Moves the answers to other nodes' coordinators that [`Replica::poll`] has found into `out`.
    pub fn poll_peers(&mut self, out: &mut Vec<(PeerId, Response)>) {
        out.append(&mut self.peer_answers);
    }

    /// Moves the answers to the owner's requests into `out`.
    pub fn poll_owner(&mut self, out: &mut Vec<StoreCompletion>) {
        out.append(&mut self.owner_answers);
    }

    fn handle_open(&mut self, peer: Option<PeerId>, request: Request, least: Epoch, settled: Epoch) {
        let newest = self.sessions.get(&request.volume).map(|session| (session.epoch, session.id));
        if newest.is_some_and(|newest| newest >= (request.epoch, request.session)) {
            let promised = self.store.promised(request.volume);
            if promised > request.epoch {
                self.answer(peer, &request, Err(BusError::Store(StoreError::Fenced { promised })));
            }
            return;
        }
        // The earlier session ends: later requests of it are refused, and the open waits for its
        // operations in progress.
        let session = Session {
            id: request.session,
            peer,
            epoch: request.epoch,
            floor: after(request.id),
            seen: BTreeSet::new(),
        };
        let promised = self.store.promised(request.volume);
        if promised > request.epoch {
            return self.answer(peer, &request, Err(BusError::Store(StoreError::Fenced { promised })));
        }
        if promised < least && !Planted::PromisedLessAccepted.is_planted() {
            // The disk lists its chunks: no coordinator may use it before the record decides about
            // them.
            let (volume, session, id, epoch) = (request.volume, request.session, request.id, request.epoch);
            let work = Work { peer, volume, session, id, opens: None, refuses: Some(promised), epoch };
            return self.start(work, StoreRequest::Chunks { volume });
        }
        // Only writes up to the coordinator's own epoch can be complete, even if it names a higher
        // one.
        self.store.settle(request.volume, settled.min(request.epoch));
        self.sessions.insert(request.volume, session);
        self.opening.retain(|(_, waiting)| waiting.volume != request.volume);
        self.opening.push((peer, request));
        self.start_opens();
    }

    fn start_opens(&mut self) {
        if self.opening.is_empty() {
            return;
        }
        let busy: BTreeSet<VolumeId> = self.work.values().map(|work| work.volume).collect();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.opening).into_iter().partition(|(_, open)| !busy.contains(&open.volume));
        self.opening = waiting;
        for (peer, open) in ready {
            let (volume, epoch) = (open.volume, open.epoch);
            let promised = self.store.promised(volume);
            if Planted::SkipPromise.is_planted() {
                let doubtful = self.store.is_doubtful(volume);
                self.answer(peer, &open, Ok(Answer::Opened { promised, doubtful }));
                continue;
            }
            let work = Work {
                peer,
                volume,
                session: open.session,
                id: open.id,
                opens: Some(promised),
                refuses: None,
                epoch,
            };
            self.start(work, StoreRequest::Promise { volume, epoch });
        }
    }

    fn start(&mut self, work: Work, request: StoreRequest) {
        let token = self.next_token;
        self.next_token += 1;
        self.work.insert(token, work);
        self.store.submit(token, request);
    }

    fn complete(&mut self, completion: StoreCompletion) {
        if completion.token & OWNER_TOKENS != 0 {
            let token = completion.token & !OWNER_TOKENS;
            self.owner_answers.push(StoreCompletion { token, result: completion.result });
            return;
        }
        let Some(work) = self.work.remove(&completion.token) else { return };
        assert!(
            work.opens.is_none()
                || completion.result.is_err()
                || self.store.promised(work.volume) >= work.epoch,
            "{} answers a session before it has promised the epoch (I3)",
            self.disk
        );
        let result = match completion.result {
            Ok(StoreReply::Done) => {
                let doubtful = work.opens.is_some() && self.store.is_doubtful(work.volume);
                Ok(work.opens.map_or(Answer::Done, |promised| Answer::Opened { promised, doubtful }))
            }
            Ok(StoreReply::Data { data, checksums }) => Ok(Answer::Data { data, checksums }),
            Ok(StoreReply::Regions(regions)) => Ok(Answer::Regions(regions)),
            Ok(StoreReply::Chunks(chunks)) => match work.refuses {
                Some(promised) => Err(BusError::WentBack { promised, chunks }),
                None => Ok(Answer::Chunks(chunks)),
            },
            Ok(StoreReply::Scrubbed(_)) => Err(BusError::Store(StoreError::Invalid("not an answer to this"))),
            Err(error) => Err(BusError::Store(error)),
        };
        if work.opens.is_some() && result.is_err() {
            // A session whose open is not complete must not be used.
            let current = self.sessions.get(&work.volume).map(|session| (session.epoch, session.id));
            if current == Some((work.epoch, work.session)) {
                self.sessions.remove(&work.volume);
            }
        }
        let Work { peer, volume, session, id, .. } = work;
        self.respond(peer, Response { from: self.disk, volume, session, id, result });
    }

    fn answer(&mut self, peer: Option<PeerId>, request: &Request, result: Result<Answer, BusError>) {
        let Request { volume, session, id, .. } = *request;
        self.respond(peer, Response { from: self.disk, volume, session, id, result });
    }

    fn respond(&mut self, peer: Option<PeerId>, response: Response) {
        match peer {
            None => self.answers.push(response),
            Some(PeerId::NOBODY) => {}
            Some(peer) => self.peer_answers.push((peer, response)),
        }
    }
}
