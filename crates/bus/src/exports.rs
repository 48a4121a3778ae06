//! The share `bus$`: SMB2 requests of other nodes as requests for local replicas.
//!
//! Owns the opens of the share, each of which is one session with one disk, and the requests that a replica
//! has not answered. A request's id within its session is given here, in the order of arrival: SMB2 delivers
//! each at most once, so that no two requests share an id. Promises: answers every accepted request, at the
//! latest when its session with the disk or its peer's session ends, or at its timeout.

use crate::accounts::node_of;
use crate::wire::{self, Malformed};
use records::ClusterState;
use smb::wire::fsctl;
use space::block_store::BlockStore;
use space::local::LocalSpace;
use space::local::nodes::DiskReport;
use space::message::{
    Answer, BusError, PeerId, Priority, ReplicaOperation, Request, RequestId, Response, SessionId,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::api::StoreError;
use types::{BLOCK_BYTES, DiskId, Epoch, Monotonic, NodeId, NtStatus, NumberMap, VolumeId, attribute};
use volume::backend::{
    Backend, CacheGrant, CreateAction, Created, Event, FileInformation, OpenDevice, OpenId, Operation,
    OperationId, OplockLevel, Refusal, RefusalDetail, Reply, Ruling, ShareRoot, Standing, WideString,
};

/// The disks of this node, as requests of other nodes reach them.
pub trait LocalDisks {
    /// Takes a request of a peer, which is of node `from`. A disk that is not here answers [`BusError::Unreachable`].
    fn handle(&mut self, peer: PeerId, from: NodeId, disk: DiskId, request: Request);
    /// Moves the answers that are there into `out`.
    fn poll(&mut self, out: &mut Vec<(PeerId, DiskId, Response)>);
    /// Takes the requests that begin sessions and were admitted to their disks since the last call. One
    /// whose epoch no record gave is refused, and is never among them.
    fn take_begun(&mut self) -> Vec<(PeerId, RequestId)>;
    /// The peer is gone: nothing of it is to be answered any more.
    fn end(&mut self, peer: PeerId);
    /// The disks of this node.
    fn disks(&self) -> Vec<DiskId>;
    /// Reports on a disk, with the findings since the cursor (0: ever).
    fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport>;
}

impl<S: BlockStore, C: ClusterState> LocalDisks for LocalSpace<S, C> {
    fn handle(&mut self, peer: PeerId, from: NodeId, disk: DiskId, request: Request) {
        self.handle_remote(peer, from, disk, request);
    }

    fn poll(&mut self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        self.poll_remote(out);
    }

    fn take_begun(&mut self) -> Vec<(PeerId, RequestId)> {
        LocalSpace::take_begun(self)
    }

    fn end(&mut self, peer: PeerId) {
        self.end_peer(peer);
    }

    fn disks(&self) -> Vec<DiskId> {
        let is_here = |disk: &space::local::DiskStatus| disk.attached && !self.is_remote(disk.disk);
        LocalSpace::disks(self).iter().filter(|disk| is_here(disk)).map(|disk| disk.disk).collect()
    }

    fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport> {
        LocalSpace::report(self, disk, cursor)
    }
}

/// Timeout of a replica's answer: several times that of any disk.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Interval between checks for requests past that timeout.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Bits of a request's id that count the requests of one session; the bits above name the session's open.
const COUNTER_BITS: u32 = 40;
/// Count at which a session ends: its coordinator begins another.
const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
/// Opens whose numbers differ only in other bits cannot coexist.
const OPEN_MASK: u64 = (1 << (u64::BITS - COUNTER_BITS)) - 1;

/// The object of an open.
enum Target {
    /// The node: the share's root.
    Node,
    /// A session with a disk.
    Session { disk: DiskId, volume: VolumeId, session: SessionId, epoch: Epoch, next: u64 },
}

impl Target {
    /// Tells whether this is an older session of the volume with the disk, which the newer one ends.
    fn is_before(&self, of_disk: DiskId, of_volume: VolumeId, newer: (Epoch, SessionId)) -> bool {
        match *self {
            Self::Node => false,
            Self::Session { disk, volume, session, epoch, .. } => {
                disk == of_disk && volume == of_volume && (epoch, session) < newer
            }
        }
    }
}

/// Whether a request's id is one of those of the open of this number.
fn is_of(id: u64, open: u64) -> bool {
    id >> COUNTER_BITS == open & OPEN_MASK
}

struct Open {
    number: u64,
    peer: PeerId,
    /// The node that has the session with the peer.
    from: NodeId,
    standing: Standing,
    target: Target,
}

/// Shape of the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The open that the session gets.
    Session,
    Read,
    /// The number of bytes that came.
    Write(u32),
    Control {
        output_bytes_max: usize,
    },
}

struct Pending {
    operation: OperationId,
    peer: PeerId,
    disk: DiskId,
    kind: Kind,
    since: Monotonic,
    /// The opening session, if the request opens one.
    opens: Option<Open>,
}

struct Inner<L> {
    disks: L,
    /// Opens by the low bits of their numbers.
    opens: NumberMap<Open>,
    last_open: u64,
    /// Requests by their ids.
    pending: NumberMap<Pending>,
    events: Vec<Event>,
    responses: Vec<(PeerId, DiskId, Response)>,
    looked_at: Monotonic,
}

/// The backend of the share `bus$`, over the disks `L`; clones share it.
pub struct Exports<L> {
    inner: Rc<RefCell<Inner<L>>>,
}

impl<L> Clone for Exports<L> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<L: LocalDisks> Exports<L> {
    /// Makes the backend of `bus$` over a node's own disks, without any open.
    pub fn new(disks: L) -> Self {
        let inner = Inner {
            disks,
            opens: NumberMap::default(),
            last_open: 0,
            pending: NumberMap::default(),
            events: Vec::new(),
            responses: Vec::new(),
            looked_at: Monotonic(0),
        };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    /// Sessions with disks that are open.
    pub fn session_count(&self) -> usize {
        self.inner
            .borrow()
            .opens
            .values()
            .filter(|open| matches!(open.target, Target::Session { .. }))
            .count()
    }
}

/// A request's answer if it is known at once; `None`: the replica gives it.
type AtOnce = Option<Result<Reply, Refusal>>;

fn refuse(error: &BusError) -> Refusal {
    let (status, data) = wire::put_refusal(error);
    Refusal { status, detail: Some(Box::new(RefusalDetail::Bus(data))) }
}

fn malformed(error: Malformed) -> AtOnce {
    tracing::debug!(%error, "a request on the storage bus is refused");
    Some(Err(refuse(&BusError::Store(StoreError::Invalid(error.0)))))
}

impl<L: LocalDisks> Inner<L> {
    fn start(&mut self, operation: OperationId, request: Operation, now: Monotonic) -> AtOnce {
        match request {
            Operation::OpenRoot { .. } => Some(Ok(Reply::Root(ShareRoot::VOLUME))),
            Operation::Create(create) if create.path.is_empty() => {
                let Some(from) = node_of(&create.caller.token) else {
                    return Some(Err(NtStatus::ACCESS_DENIED.into()));
                };
                let (peer, standing) = (PeerId(create.caller.session.0), create.caller.standing);
                let number = self.free_number();
                let open = Open { number, peer, from, standing, target: Target::Node };
                self.opens.insert(number & OPEN_MASK, open);
                Some(Ok(Reply::Created(Box::new(node_opened(OpenId(number))))))
            }
            Operation::Create(_) => Some(Err(NtStatus::OBJECT_NAME_NOT_FOUND.into())),
            Operation::OpenDevice(request) => self.begin_session(operation, *request, now),
            Operation::Read { open, range, .. } => {
                match wire::parse_read_range(range.offset, range.len_bytes) {
                    Ok((lba, blocks)) => self.ask(
                        operation,
                        open,
                        None,
                        ReplicaOperation::Read { lba, blocks },
                        Kind::Read,
                        now,
                    ),
                    Err(error) => malformed(error),
                }
            }
            Operation::Write { open, offset, data, .. } => match wire::parse_write(offset, &data) {
                Ok(wire::BusWrite { epoch, number, lba, class, data: blocks, checksums }) => {
                    let asked = ReplicaOperation::Write { lba, class, data: blocks, checksums, number };
                    let kind = Kind::Write(data.len() as u32);
                    self.ask(operation, open, Some(epoch), asked, kind, now)
                }
                Err(error) => malformed(error),
            },
            Operation::Control { open, code: fsctl::BUS_STATUS, input, output_bytes_max } => {
                self.status(open, &input, output_bytes_max)
            }
            Operation::Control { open, code: fsctl::BUS_PROVE, output_bytes_max, .. } => {
                self.prove(open, output_bytes_max)
            }
            Operation::Control { open, code, input, output_bytes_max } => {
                match wire::parse_control(code, &input) {
                    Ok((epoch, asked)) => {
                        let kind = Kind::Control { output_bytes_max };
                        self.ask(operation, open, Some(epoch), asked, kind, now)
                    }
                    Err(error) => malformed(error),
                }
            }
            Operation::Close { open, .. } | Operation::ForceClose { open } => {
                if self.open_mut(open).is_some() {
                    self.opens.remove(&(open.0 & OPEN_MASK));
                    self.end_requests(|id, _| is_of(id, open.0));
                }
                Some(Ok(Reply::Closed(None)))
            }
            Operation::EndSession { session, .. } => {
                self.end_peer(PeerId(session.0));
                Some(Ok(Reply::Done))
            }
            Operation::Flush { .. } => Some(Ok(Reply::Done)),
            _ => Some(Err(NtStatus::INVALID_DEVICE_REQUEST.into())),
        }
    }

    /// A number for an open: one that no other has, also in the bits that the ids of its requests have room for.
    fn free_number(&mut self) -> u64 {
        loop {
            self.last_open += 1;
            let bits = self.last_open & OPEN_MASK;
            if !self.opens.contains_key(&bits) && !self.pending.contains_key(&(bits << COUNTER_BITS)) {
                return self.last_open;
            }
        }
    }

    fn open_mut(&mut self, open: OpenId) -> Option<&mut Open> {
        self.opens.get_mut(&(open.0 & OPEN_MASK)).filter(|found| found.number == open.0)
    }

    fn begin_session(&mut self, operation: OperationId, request: OpenDevice, now: Monotonic) -> AtOnce {
        let Some(disk) = disk_of(&request.path) else {
            return Some(Err(NtStatus::OBJECT_NAME_INVALID.into()));
        };
        let asked = match wire::parse_session(&request.context) {
            Ok(asked) => asked,
            Err(error) => return malformed(error),
        };
        let (volume, session, epoch) = (asked.volume(), asked.session(), asked.epoch());
        let Some(from) = node_of(&request.caller.token) else {
            return Some(Err(NtStatus::ACCESS_DENIED.into()));
        };
        let peer = PeerId(request.caller.session.0);
        let number = self.free_number();
        let id = (number & OPEN_MASK) << COUNTER_BITS;
        let target = Target::Session { disk, volume, session, epoch, next: 1 };
        let opens = Some(Open { number, peer, from, standing: request.caller.standing, target });
        let pending = Pending { operation, peer, disk, kind: Kind::Session, since: now, opens };
        self.pending.insert(id, pending);
        let (id, priority) = (RequestId(id), Priority::Client);
        let request = Request { volume, session, id, epoch, priority, operation: asked.operation() };
        self.disks.handle(peer, from, disk, request);
        self.end_before_begun();
        None
    }

    /// Gives up requests of sessions that new ones replace.
    fn end_before_begun(&mut self) {
        for (peer, RequestId(id)) in self.disks.take_begun() {
            let begun = self.pending.get(&id).filter(|pending| pending.peer == peer);
            if let Some(Open { target: Target::Session { disk, volume, session, epoch, .. }, .. }) =
                begun.and_then(|pending| pending.opens.as_ref())
            {
                let (disk, volume, newer) = (*disk, *volume, (*epoch, *session));
                self.end_older(peer, disk, volume, newer);
            }
        }
    }

    /// Asks the replica of the open's disk. `epoch`: that of the request; a READ has no place for it, and
    /// goes under the highest that the session has named.
    fn ask(
        &mut self,
        operation: OperationId,
        open: OpenId,
        said: Option<Epoch>,
        asked: ReplicaOperation,
        kind: Kind,
        now: Monotonic,
    ) -> AtOnce {
        let Some(found) = self.open_mut(open) else { return Some(Err(NtStatus::FILE_CLOSED.into())) };
        let Target::Session { disk, volume, session, epoch, next } = &mut found.target else {
            return Some(Err(NtStatus::INVALID_DEVICE_REQUEST.into()));
        };
        if *next > COUNTER_MAX {
            return Some(Err(refuse(&BusError::NoSession)));
        }
        *epoch = said.map_or(*epoch, |said| said.max(*epoch));
        let id = (open.0 & OPEN_MASK) << COUNTER_BITS | *next;
        *next += 1;
        let (peer, from, disk) = (found.peer, found.from, *disk);
        let request = Request {
            volume: *volume,
            session: *session,
            id: RequestId(id),
            epoch: said.unwrap_or(*epoch),
            // A disk serves requests in their order of arrival.
            priority: Priority::Client,
            operation: asked,
        };
        self.pending.insert(id, Pending { operation, peer, disk, kind, since: now, opens: None });
        self.disks.handle(peer, from, disk, request);
        None
    }

    fn status(&mut self, open: OpenId, input: &[u8], output_bytes_max: usize) -> AtOnce {
        let question = match wire::parse_status_request(input) {
            Ok(question) => question,
            Err(error) => return malformed(error),
        };
        if !self.open_mut(open).is_some_and(|open| matches!(open.target, Target::Node)) {
            return Some(Err(NtStatus::INVALID_DEVICE_REQUEST.into()));
        }
        let cursor = |disk| question.cursors.get(disk).copied().unwrap_or(0);
        let disks = self.disks.disks();
        let reports: Vec<DiskReport> =
            disks.iter().filter_map(|disk| self.disks.report(*disk, cursor(disk))).collect();
        let output = wire::put_status(&reports, question.reads_paces, output_bytes_max);
        Some(output.map(Reply::Output).ok_or(NtStatus::BUFFER_TOO_SMALL.into()))
    }

    /// Answers a peer's question whether large messages come through, with one.
    fn prove(&mut self, open: OpenId, output_bytes_max: usize) -> AtOnce {
        let is_node = self.open_mut(open).is_some_and(|open| matches!(open.target, Target::Node));
        let output = vec![0; wire::PROOF_BYTES.min(output_bytes_max)];
        Some(if is_node { Ok(Reply::Output(output)) } else { Err(NtStatus::INVALID_DEVICE_REQUEST.into()) })
    }

    /// Gives up requests of sessions that the one of this epoch and id replaces, now that the record is
    /// known to have given it that epoch: see [`Self::end_requests`]. If the replica refuses it, the older
    /// coordinator merely begins another session. Sessions of the same peer are closed: it uses them no
    /// more, and does not know of one whose opening was answered over a channel that was lost.
    fn end_older(&mut self, peer: PeerId, disk: DiskId, volume: VolumeId, newer: (Epoch, SessionId)) {
        let is_older = |open: &Open| open.target.is_before(disk, volume, newer);
        let older: Vec<u64> =
            self.opens.values().filter(|open| is_older(open)).map(|open| open.number).collect();
        self.end_requests(|id, pending| {
            pending.opens.as_ref().is_some_and(is_older) || older.iter().any(|number| is_of(id, *number))
        });
        let Self { opens, events, .. } = self;
        let unused = opens.extract_if(|_, open| open.peer == peer && is_older(open));
        events.extend(unused.map(|(_, open)| Event::Closed { open: OpenId(open.number) }));
    }

    /// Answers requests whose session is over with [`BusError::NoSession`]: a disk that hangs would have
    /// them hold their peer's SMB2 credits, which requests to healthy disks need.
    ///
    /// The replica still carries out requests that it has accepted, with the memory that it was given;
    /// their answers go nowhere. A write of these that lands later harms nothing: it lands before the
    /// replica answers the opening of the volume's next session, which waits for the work of all earlier
    /// ones ([`space::replica`]). Until then no coordinator writes to this disk under the volume: neither
    /// the one that asked, which sends its unanswered calls again in its next session under the same
    /// numbers, nor another one with a higher epoch. And nobody acknowledges the write by this answer,
    /// which says as little of it as a lost connection does.
    fn end_requests(&mut self, is_over: impl Fn(u64, &Pending) -> bool) {
        let over = self.pending.iter().filter(|(id, pending)| is_over(**id, pending));
        let mut ids: Vec<u64> = over.map(|(&id, _)| id).collect();
        ids.sort_unstable();
        for id in ids {
            self.give_up(id, Err(refuse(&BusError::NoSession)));
        }
    }

    fn end_peer(&mut self, peer: PeerId) {
        self.opens.retain(|_, open| open.peer != peer);
        let ids: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| pending.peer == peer).map(|(&id, _)| id).collect();
        for id in ids {
            self.give_up(id, Err(NtStatus::CANCELLED.into()));
        }
        self.disks.end(peer);
    }

    fn give_up(&mut self, id: u64, result: Result<Reply, Refusal>) {
        if let Some(Pending { operation, .. }) = self.pending.remove(&id) {
            self.events.push(Event::Done { operation, result });
        }
    }

    /// Takes a replica's answer.
    fn answered(&mut self, peer: PeerId, disk: DiskId, response: Response) {
        let id = response.id.0;
        if !self.pending.get(&id).is_some_and(|pending| pending.peer == peer && pending.disk == disk) {
            // The peer is gone, or the request was given up.
            return;
        }
        let Some(pending) = self.pending.remove(&id) else { return };
        let reply = match response.result {
            Ok(answer) => self.reply(answer, pending.kind, pending.opens),
            Err(error) => Err(refuse(&error)),
        };
        self.events.push(Event::Done { operation: pending.operation, result: reply });
    }

    fn reply(&mut self, answer: Answer, kind: Kind, opens: Option<Open>) -> Result<Reply, Refusal> {
        match (answer, kind) {
            (Answer::Opened { promised, doubtful }, Kind::Session) => {
                let open = opens.ok_or(NtStatus::INTERNAL_ERROR)?;
                let number = open.number;
                self.opens.insert(number & OPEN_MASK, open);
                Ok(Reply::DeviceOpened {
                    open: OpenId(number),
                    context: wire::put_opened(promised, doubtful),
                })
            }
            (Answer::Data { data, checksums }, Kind::Read) => {
                Ok(Reply::Read(wire::put_read(data, &checksums)))
            }
            (Answer::Done, Kind::Write(bytes)) => Ok(Reply::Written(bytes)),
            (Answer::Done, Kind::Control { .. }) => Ok(Reply::Output(Vec::new())),
            (Answer::Chunks(chunks), Kind::Control { output_bytes_max }) => {
                let mut output = Vec::new();
                wire::put_chunks(&mut output, &chunks);
                fitting(output, output_bytes_max)
            }
            (Answer::Regions(regions), Kind::Control { output_bytes_max }) => {
                fitting(wire::put_regions(&regions), output_bytes_max)
            }
            _ => Err(NtStatus::INTERNAL_ERROR.into()),
        }
    }

    /// Gives up requests that no replica answers.
    fn look(&mut self, now: Monotonic) {
        if now < self.looked_at.after(LOOK_INTERVAL) {
            return;
        }
        self.looked_at = now;
        let is_late = |pending: &Pending| now >= pending.since.after(ANSWER_TIME);
        let late: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| is_late(pending)).map(|(&id, _)| id).collect();
        for id in late {
            self.give_up(id, Err(refuse(&BusError::NoSession)));
        }
    }
}

fn fitting(output: Vec<u8>, bytes_max: usize) -> Result<Reply, Refusal> {
    if output.len() > bytes_max { Err(NtStatus::BUFFER_TOO_SMALL.into()) } else { Ok(Reply::Output(output)) }
}

/// The disk that a path names: its id as text.
fn disk_of(path: &WideString) -> Option<DiskId> {
    String::from_utf16(path).ok()?.parse().ok()
}

/// The share's root, as CREATE describes directories.
fn node_opened(open: OpenId) -> Created {
    Created {
        open,
        action: CreateAction::Opened,
        cache: CacheGrant::Oplock(OplockLevel::None),
        information: FileInformation {
            attributes: attribute::DIRECTORY,
            directory: true,
            allocation_bytes: BLOCK_BYTES as u64,
            ..FileInformation::default()
        },
        granted_access: 0,
        maximal_access: None,
        durable: None,
        persistent: false,
        path: WideString::default(),
        is_stream: false,
    }
}

impl<L: LocalDisks> Backend for Exports<L> {
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        let mut inner = self.inner.borrow_mut();
        if let Some(result) = inner.start(operation, request, now)
            && operation != OperationId::UNATTENDED
        {
            inner.events.push(Event::Done { operation, result });
        }
    }

    /// Nothing waits for anything but a disk.
    fn cancel(&mut self, _operation: OperationId) {}

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, _now: Monotonic) {
        let mut inner = self.inner.borrow_mut();
        let mut refused = Vec::new();
        for (&id, pending) in &mut inner.pending {
            let Some(open) = &mut pending.opens else { continue };
            match judge(&open.standing) {
                Ruling::Keep => {}
                Ruling::Amend(terms) => open.standing = terms.standing,
                Ruling::Close => refused.push(id),
            }
        }
        for id in refused {
            inner.give_up(id, Err(NtStatus::NETWORK_NAME_DELETED.into()));
        }
        let (mut closed, mut ended) = (Vec::new(), Vec::new());
        inner.opens.retain(|_, open| match judge(&open.standing) {
            Ruling::Keep => true,
            Ruling::Amend(terms) => {
                open.standing = terms.standing;
                true
            }
            Ruling::Close => {
                closed.push(Event::Closed { open: OpenId(open.number) });
                ended.push(open.number);
                false
            }
        });
        inner.end_requests(|id, _| ended.iter().any(|number| is_of(id, *number)));
        inner.events.append(&mut closed);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let mut inner = self.inner.borrow_mut();
        let mut responses = std::mem::take(&mut inner.responses);
        inner.disks.poll(&mut responses);
        inner.end_before_begun();
        for (peer, disk, response) in responses.drain(..) {
            inner.answered(peer, disk, response);
        }
        inner.responses = responses;
        out.append(&mut inner.events);
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        let inner = self.inner.borrow();
        (!inner.pending.is_empty()).then(|| inner.looked_at.after(LOOK_INTERVAL))
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.inner.borrow_mut().look(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disks that take requests, and answer nothing; sessions begin when the test lets them.
    #[derive(Default)]
    struct Disks {
        asked: Vec<(PeerId, RequestId)>,
        begun: Vec<(PeerId, RequestId)>,
    }

    impl LocalDisks for Disks {
        fn handle(&mut self, peer: PeerId, _: NodeId, _: DiskId, request: Request) {
            self.asked.push((peer, request.id));
        }
        fn poll(&mut self, _: &mut Vec<(PeerId, DiskId, Response)>) {}
        fn take_begun(&mut self) -> Vec<(PeerId, RequestId)> {
            std::mem::take(&mut self.begun)
        }
        fn end(&mut self, _: PeerId) {}
        fn disks(&self) -> Vec<DiskId> {
            Vec::new()
        }
        fn report(&self, _: DiskId, _: u64) -> Option<DiskReport> {
            None
        }
    }

    fn session(epoch: u64) -> Pending {
        let (disk, volume) = (DiskId::from_bytes([1; 16]), VolumeId::from_bytes([2; 16]));
        let target =
            Target::Session { disk, volume, session: SessionId(epoch), epoch: Epoch(epoch), next: 1 };
        let (peer, from, standing) = (PeerId(epoch), NodeId(1), Standing::none());
        let opens = Some(Open { number: epoch, peer, from, standing, target });
        Pending { operation: OperationId(epoch), peer, disk, kind: Kind::Session, since: Monotonic(0), opens }
    }

    #[test]
    fn a_session_ends_others_only_when_its_epoch_was_admitted() {
        let exports = Exports::new(Disks::default());
        let mut poll = {
            let mut exports = exports.clone();
            move || {
                let mut events = Vec::new();
                exports.poll(&mut events);
                events.len()
            }
        };
        exports.inner.borrow_mut().pending.extend([(3, session(3)), (4_294_967_000, session(4_294_967_000))]);
        assert_eq!(poll(), 0, "a session whose epoch nobody has judged yet ends nothing");
        exports.inner.borrow_mut().disks.begun.push((PeerId(4_294_967_000), RequestId(4_294_967_000)));
        assert_eq!(poll(), 1);
        assert_eq!(exports.inner.borrow().pending.keys().collect::<Vec<_>>(), [&4_294_967_000]);
    }
}
