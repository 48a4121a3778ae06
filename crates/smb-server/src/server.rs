//! The server: connections, sessions, opens and requests in work; what a transport and a timer may call.

use crate::arena::Arena;
use crate::bounded::Bounded;
use crate::breaks::{Breaking, ToldBreaks};
use crate::budget::{Budget, Charge, Memory};
use crate::clients::Clients;
use crate::config::Config;
use crate::connection::{Connection, ConnectionId, ConnectionInfo, Outgoing};
use crate::directory::Directory;
use crate::logon_audit::{LogonAudit, LogonLine};
use crate::logon_guard::LogonGuard;
use crate::open::{LeaseHome, Open, OpenKind};
use crate::request::{Context, Request, Work};
use crate::session::{Session, SessionTable, Target, Tree};
use crate::setups::Setups;
use crate::share_uses::ShareUses;
use crate::statistics::Counters;
use smallvec::SmallVec;
use smb::wire::{Guid, NetworkInterface};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use sys::Payload;
use types::{FileTime, Monotonic, NtStatus, PeerHost, Sid, VolumeId};
use volume::backend::{Backend, Event, OpenId, Operation, OperationId, Reply, SessionId};

/// Operations whose answer nobody waits for.
pub(crate) const UNATTENDED: OperationId = OperationId::UNATTENDED;

pub(crate) struct Volume<B> {
    pub id: VolumeId,
    /// `None` once it was removed.
    pub backend: Option<B>,
}

/// Fills a slice with bytes that nobody can guess.
pub type RandomSource = Box<dyn FnMut(&mut [u8])>;

/// See the crate's documentation.
pub struct Server<B, D> {
    pub(crate) config: Config,
    pub(crate) directory: D,
    pub(crate) random: RandomSource,
    /// The wall clock's time at `wall_at`.
    wall: FileTime,
    wall_at: Monotonic,
    pub(crate) volumes: Vec<Volume<B>>,
    pub(crate) connections: Arena<Connection>,
    pub(crate) sessions: SessionTable,
    /// Logons in progress.
    pub(crate) setups: Setups,
    pub(crate) opens: Arena<Open>,
    pub(crate) requests: Arena<Request>,
    pub(crate) memory: Memory,
    /// Opens of each user.
    pub(crate) open_shares: Budget<Sid>,
    /// Wire identity by the volume's name of an open.
    pub(crate) by_volume_open: HashMap<(usize, OpenId), u64>,
    /// By client and lease key.
    pub(crate) leases: HashMap<(Guid, Guid), LeaseHome>,
    pub(crate) told: ToldBreaks,
    pub(crate) clients: Clients,
    pub(crate) share_uses: ShareUses,
    /// FilePositionInformation of durable opens whose clients are away.
    pub(crate) positions: Bounded<(usize, OpenId), u64>,
    pub(crate) logon_guard: LogonGuard,
    pub(crate) logon_audit: LogonAudit,
    /// Over what volumes call their opens: after a start of the server, nobody's FileId means another's open.
    pub(crate) file_id_mask: u64,
    /// Requests with [`Work::due`].
    pub(crate) timers: BinaryHeap<Reverse<(Monotonic, u64)>>,
    /// Connections that have to carry a session by then.
    deadlines: BTreeSet<(Monotonic, u64)>,
    pub(crate) counters: Counters,
    pub(crate) next_async_id: u64,
    pub(crate) next_pipe: u64,
    /// Connections that the transport has to close once it has sent everything.
    pub(crate) to_close: Vec<ConnectionId>,
    /// Connections that may have something to transmit.
    pub(crate) to_transmit: Vec<ConnectionId>,
    events: Vec<Event>,
    draining: bool,
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// `wall` is the time of day at `now`; `random` must be fit for keys and nonces.
    ///
    /// # Panics
    /// Where the limits let an answer be longer than a message can be.
    pub fn new(
        config: Config,
        directory: D,
        mut random: RandomSource,
        now: Monotonic,
        wall: FileTime,
    ) -> Self {
        assert!(config.limits.are_possible(), "an answer of the largest payload fits one message");
        let mut file_id_mask = [0; 8];
        random(&mut file_id_mask);
        let limits = &config.limits;
        let opens_max = limits.opens;
        let sessions = SessionTable::new(limits.sessions);
        let setups = Setups::new(limits);
        let memory = Memory::new(limits.bytes_in_flight, limits.parked_bytes);
        Self {
            config,
            directory,
            random,
            wall,
            wall_at: now,
            volumes: Vec::new(),
            connections: Arena::default(),
            sessions,
            setups,
            opens: Arena::default(),
            requests: Arena::default(),
            memory,
            open_shares: Budget::new(opens_max),
            by_volume_open: HashMap::new(),
            leases: HashMap::new(),
            told: ToldBreaks::default(),
            clients: Clients::default(),
            share_uses: ShareUses::default(),
            positions: Bounded::new(opens_max),
            logon_guard: LogonGuard::default(),
            logon_audit: LogonAudit::default(),
            file_id_mask: u64::from_le_bytes(file_id_mask),
            timers: BinaryHeap::new(),
            deadlines: BTreeSet::new(),
            counters: Counters::default(),
            next_async_id: 1,
            next_pipe: 1,
            to_close: Vec::new(),
            to_transmit: Vec::new(),
            events: Vec::new(),
            draining: false,
        }
    }

    /// Tells the time of day anew, for a clock that was set or drifts.
    pub fn set_wall_clock(&mut self, now: Monotonic, wall: FileTime) {
        self.wall = wall;
        self.wall_at = now;
    }

    pub(crate) fn wall_clock(&self, now: Monotonic) -> FileTime {
        FileTime(self.wall.0 + (now.since(self.wall_at).as_nanos() / 100) as u64)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What FSCTL_QUERY_NETWORK_INTERFACE_INFO tells from now on: see [`Config::interfaces`].
    pub fn set_interfaces(&mut self, interfaces: Vec<NetworkInterface>) {
        self.config.interfaces = interfaces;
    }

    pub fn directory(&self) -> &D {
        &self.directory
    }

    pub fn directory_mut(&mut self) -> &mut D {
        &mut self.directory
    }

    /// Serves a volume from now on.
    pub fn add_volume(&mut self, id: VolumeId, backend: B) {
        match self.volumes.iter_mut().find(|volume| volume.id == id && volume.backend.is_none()) {
            Some(slot) => slot.backend = Some(backend),
            None => self.volumes.push(Volume { id, backend: Some(backend) }),
        }
    }

    /// Stops serving a volume: its opens and tree connects are gone, requests in work on it fail.
    pub fn remove_volume(&mut self, id: VolumeId, now: Monotonic) -> Option<B> {
        let index = self.volumes.iter().position(|volume| volume.id == id && volume.backend.is_some())?;
        let backend = self.volumes[index].backend.take();
        let in_work: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, request)| request.volume == Some(index))
            .map(|(key, _)| key)
            .collect();
        for key in in_work {
            self.complete(key, Err(NtStatus::FILE_FORCED_CLOSED), now);
        }
        // Their roots are directories of what was taken away, also if a volume of the same name comes back.
        let mut trees = Vec::new();
        for (key, session) in self.sessions.iter() {
            let leads_there =
                |tree: &Tree| matches!(tree.target, Target::Disk { volume, .. } if volume == index);
            trees
                .extend(session.trees.iter().filter(|(_, tree)| leads_there(tree)).map(|(id, _)| (key, *id)));
        }
        for (session, tree) in trees {
            self.end_tree(session, tree, now);
        }
        self.positions.retain(|(volume, _)| *volume != index);
        backend
    }

    pub fn volume(&self, id: VolumeId) -> Option<&B> {
        self.volumes.iter().find(|volume| volume.id == id)?.backend.as_ref()
    }

    pub fn volume_mut(&mut self, id: VolumeId) -> Option<&mut B> {
        self.volumes.iter_mut().find(|volume| volume.id == id)?.backend.as_mut()
    }

    /// The volumes served.
    pub fn volumes_mut(&mut self) -> impl Iterator<Item = (VolumeId, &mut B)> {
        self.volumes.iter_mut().filter_map(|volume| Some((volume.id, volume.backend.as_mut()?)))
    }

    /// A transport has a new connection. `None`: there are too many; close it.
    pub fn connection_opened(&mut self, info: ConnectionInfo, now: Monotonic) -> Option<ConnectionId> {
        if self.draining || self.connections.len() >= self.config.limits.connections {
            self.counters.connections_refused += 1;
            return None;
        }
        self.counters.connections_opened += 1;
        let number = self.counters.connections_opened;
        let deadline = now.after(self.config.limits.negotiation_timeout);
        let holder = self.memory.in_work.enter(&PeerHost::from(info.peer.ip()));
        let connection = Connection::new(info, number, self.config.limits.credits, deadline, holder);
        let key = self.connections.insert(connection);
        self.deadlines.insert((deadline, key));
        Some(ConnectionId(key))
    }

    /// The transport's connection is gone. Durable opens stay with their volumes.
    pub fn connection_closed(&mut self, connection: ConnectionId, now: Monotonic) {
        let Some(gone) = self.connections.remove(connection.0) else { return };
        self.deadlines.remove(&(gone.deadline, connection.0));
        self.clients.remove(&gone, connection.0);
        self.memory.in_work.release(gone.holder, gone.transmit_bytes + gone.unsent_bytes);
        self.memory.in_work.leave(gone.holder);
        self.setups.end_connection(connection.0);
        let mut ended = SmallVec::<[u64; 2]>::new();
        for key in gone.sessions.iter().copied() {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            session.channels.retain(|channel| channel.connection != connection.0);
            if session.channels.is_empty() {
                ended.push(key);
            }
        }
        for key in self.in_work_of(connection.0, &gone) {
            let session = self.requests.get(key).map_or(0, |request| request.context.session);
            if ended.contains(&session) || self.sessions.get(session).is_none() {
                self.abandon(key);
            } else {
                self.lose_channel(key, now);
            }
        }
        for key in ended {
            self.end_session(key, false);
        }
        self.tell_again(connection.0);
    }

    /// Requests in work of a connection that is gone. READ and WRITE are looked for only where there are some: an idle connection costs
    /// no search.
    fn in_work_of(&self, key: u64, gone: &Connection) -> Vec<u64> {
        if gone.in_work == gone.waiting.len() {
            return gone.waiting.keys().collect();
        }
        let own = self.requests.iter().filter(|(_, request)| request.context.connection == key);
        own.map(|(key, _)| key).take(gone.in_work).collect()
    }

    /// A request's channel is gone, its session is not: it ends without an answer, counted like any other, so that what the client
    /// replays on another channel finds it done or not begun (MS-SMB2 3.3.5.2.10).
    fn lose_channel(&mut self, key: u64, now: Monotonic) {
        let Some(request) = self.requests.get(key) else { return };
        match (&request.work, request.volume) {
            // Goes on waiting: the replay finds it by its GUID.
            (Work::Create(work), _) if work.is_replayable() => {}
            (_, Some(volume)) => {
                if let Some(backend) = self.backend(volume) {
                    backend.cancel(OperationId(key));
                }
            }
            (_, None) => self.complete(key, Err(NtStatus::CANCELLED), now),
        }
    }

    /// Forgets a request whose client is gone; its volume is asked to stop.
    fn abandon(&mut self, key: u64) {
        let Some(request) = self.take_request(key) else { return };
        if let Some(volume) = request.volume
            && let Some(backend) = self.backend(volume)
        {
            backend.cancel(OperationId(key));
        }
        if let Some(chain) = request.chain {
            self.end_logged_off(&chain.responses);
        }
    }

    /// Removes a session with all that it holds. `logoff`: durable opens end too.
    pub(crate) fn end_session(&mut self, key: u64, logoff: bool) {
        let Some(session) = self.sessions.remove(key) else { return };
        self.counters.sessions_ended += 1;
        for (_, tree) in &session.trees {
            self.share_uses.remove(tree.name());
        }
        for key in session.opens.keys() {
            let Some(open) = self.forget_open(key) else { continue };
            if let Some(name) = open.volume_open()
                && open.durable
                && !logoff
                && open.position != 0
            {
                self.positions.insert(name, open.position);
            }
        }
        for channel in &session.channels {
            if let Some(connection) = self.connections.get_mut(channel.connection) {
                connection.sessions.retain(|other| *other != key);
                if connection.sessions.is_empty() {
                    self.clients.remove(connection, channel.connection);
                }
            }
        }
        let end = Operation::EndSession { session: SessionId(key), logoff };
        for volume in &mut self.volumes {
            if let Some(backend) = &mut volume.backend {
                backend.submit(UNATTENDED, end.clone(), self.wall_at);
            }
        }
    }

    /// Drops the wire identity of an open; the volume is not told.
    pub(crate) fn forget_open(&mut self, key: u64) -> Option<Open> {
        let mut open = self.opens.remove(key)?;
        self.open_shares.release(open.holder, 1);
        self.open_shares.leave(open.holder);
        if let OpenKind::Pipe(pipe) = &mut open.kind {
            self.memory.release(std::mem::replace(&mut pipe.charge, Charge::none()));
        }
        if let Some(name) = open.volume_open() {
            self.by_volume_open.remove(&name);
            self.told.remove(&Breaking::Oplock(name.0, name.1));
        }
        if let Some(session) = self.sessions.get_mut(open.session) {
            session.opens.remove(open.tree_id, key, open.volume_open().is_none());
        }
        if let Some(lease) = open.lease
            && let Some(home) = self.leases.get_mut(&lease)
        {
            home.opens -= 1;
            if home.opens == 0 {
                self.leases.remove(&lease);
                self.told.remove(&Breaking::Lease(lease.0, lease.1));
            }
        }
        Some(open)
    }

    pub(crate) fn backend(&mut self, volume: usize) -> Option<&mut B> {
        self.volumes.get_mut(volume)?.backend.as_mut()
    }

    /// Carries what the volumes have to say to the clients. Call after messages and after the volumes' disks moved, until it
    /// answers false.
    pub fn poll(&mut self, now: Monotonic) -> bool {
        let mut progressed = false;
        for index in 0..self.volumes.len() {
            let mut events = std::mem::take(&mut self.events);
            if let Some(backend) = self.backend(index) {
                backend.poll(&mut events);
            }
            progressed |= !events.is_empty();
            for event in events.drain(..) {
                self.handle_event(index, event, now);
            }
            self.events = events;
        }
        progressed
    }

    fn handle_event(&mut self, volume: usize, event: Event, now: Monotonic) {
        match event {
            Event::Done { operation, result } => self.complete(operation.0, result, now),
            Event::Pending { operation } => self.went_pending(operation.0, now),
            Event::BreakOplock { open, to, .. } => self.send_oplock_break(volume, open, to),
            Event::BreakLease { client, key, from, to, acknowledge, epoch } => {
                self.send_lease_break(client, key, from, to, acknowledge, epoch);
            }
            Event::Closed { open } => {
                self.positions.remove(&(volume, open));
                if let Some(key) = self.by_volume_open.get(&(volume, open)).copied() {
                    self.forget_open(key);
                }
            }
        }
    }

    /// The next message to send on `connection`, in parts.
    pub fn poll_transmit(&mut self, connection: ConnectionId) -> Option<Payload> {
        let connection = self.connections.get_mut(connection.0)?;
        while let Some(outgoing) = connection.transmit.pop_front() {
            connection.transmit_bytes -= outgoing.len_bytes();
            self.memory.in_work.release(connection.holder, outgoing.len_bytes());
            if let Outgoing::Message { payload, .. } = outgoing {
                return Some(payload);
            }
        }
        None
    }

    /// As [`Self::poll_transmit`], for a transport that also moves payload by RDMA.
    pub fn poll_outgoing(&mut self, connection: ConnectionId) -> Option<Outgoing> {
        let connection = self.connections.get_mut(connection.0)?;
        let outgoing = connection.transmit.pop_front()?;
        connection.transmit_bytes -= outgoing.len_bytes();
        self.memory.in_work.release(connection.holder, outgoing.len_bytes());
        Some(outgoing)
    }

    /// Connections that may have something for [`Self::poll_transmit`] since the last call.
    pub fn take_transmitters(&mut self, out: &mut Vec<ConnectionId>) {
        out.append(&mut self.to_transmit);
    }

    /// Connections that are to be closed once what they have to transmit is sent.
    pub fn take_closing(&mut self, out: &mut Vec<ConnectionId>) {
        out.append(&mut self.to_close);
    }

    /// Whether more may be received from `connection`: false while it has too much in work or unsent.
    pub fn wants_messages(&self, connection: ConnectionId) -> bool {
        /// Of a connection without a session: its answers are small, and one at a time is enough.
        const UNPROVEN_BYTES_IN_FLIGHT_MAX: usize = 64 << 10;
        self.connections.get(connection.0).is_some_and(|found| {
            let bytes_max = if found.sessions.is_empty() {
                UNPROVEN_BYTES_IN_FLIGHT_MAX
            } else {
                self.config.limits.bytes_in_flight_per_connection
            };
            !found.closing
                && found.bytes_in_flight() <= bytes_max
                && self.memory.in_work.has_room(found.holder)
        })
    }

    /// The transport keeps so many bytes that it could not send yet: they count like those that it has not fetched. Whether it kept some
    /// before.
    pub fn set_unsent(&mut self, connection: ConnectionId, bytes: usize) -> bool {
        let Some(found) = self.connections.get_mut(connection.0) else { return false };
        let before = std::mem::replace(&mut found.unsent_bytes, bytes);
        self.memory.in_work.take(found.holder, bytes);
        self.memory.in_work.release(found.holder, before);
        before > 0
    }

    /// Longest message in bytes that `connection` may send now.
    pub fn message_bytes_max(&self, connection: ConnectionId) -> usize {
        /// Headers, contexts and padding around the payload. Before a logon nothing larger is sent: a SESSION_SETUP's token is some KiB.
        const OVERHEAD_BYTES: usize = 64 << 10;
        let limits = &self.config.limits;
        let payload = limits.write_bytes.max(limits.transact_bytes) as usize;
        match self.connections.get(connection.0).is_some_and(|found| !found.sessions.is_empty()) {
            true => payload + OVERHEAD_BYTES,
            false => OVERHEAD_BYTES,
        }
    }

    /// The account that has logged on to `connection`, the first if several have; `None`: nobody has.
    pub fn user(&self, connection: ConnectionId) -> Option<&str> {
        let session = *self.connections.get(connection.0)?.sessions.first()?;
        Some(&self.sessions.get(session)?.account)
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let own = timer.into_iter().chain(self.deadlines.first().map(|(at, _)| *at));
        let volumes = self.volumes.iter().filter_map(|volume| volume.backend.as_ref()?.next_timeout());
        let logons = [self.setups.next_timeout(), self.logon_audit.next_timeout()];
        volumes.chain(own).chain(logons.into_iter().flatten()).min()
    }

    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.setups.expire(now);
        self.logon_audit.turn(now);
        for volume in &mut self.volumes {
            if let Some(backend) = &mut volume.backend
                && backend.next_timeout().is_some_and(|at| at <= now)
            {
                backend.handle_timeout(now);
            }
        }
        while let Some(Reverse((at, key))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            if self.requests.get(key).is_some_and(|request| request.work.due().is_some()) {
                self.complete(key, Ok(Reply::Done), now);
            }
        }
        while let Some((at, key)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            if self.connections.get(key).is_some_and(|found| found.sessions.is_empty()) {
                self.close_connection(key);
            }
        }
    }

    /// Lines for the audit log since the last call.
    pub fn take_logon_lines(&mut self) -> Vec<LogonLine> {
        self.logon_audit.take()
    }

    /// Takes no new connections; those there are go on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Requests in work, over all connections.
    pub fn requests_in_work(&self) -> usize {
        self.requests.len()
    }

    /// Ends a session by an administrator's wish, and its connections where they carry no other. False: there is none.
    pub fn close_session(&mut self, session: u64) -> bool {
        let Some(found) = self.sessions.get(session) else { return false };
        let connections: Vec<u64> = found.channels.iter().map(|channel| channel.connection).collect();
        self.end_session(session, true);
        for key in connections {
            if self.connections.get(key).is_some_and(|found| found.sessions.is_empty()) {
                self.close_connection(key);
            }
        }
        true
    }

    /// Closes an open by an administrator's wish. False: there is none.
    pub fn close_open(&mut self, open: u64, now: Monotonic) -> bool {
        let Some(found) = self.opens.get(open) else { return false };
        if let Some((volume, name)) = found.volume_open()
            && let Some(backend) = self.backend(volume)
        {
            backend.submit(UNATTENDED, Operation::ForceClose { open: name }, now);
        }
        self.forget_open(open);
        true
    }

    pub(crate) fn close_connection(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.closing
        {
            connection.closing = true;
            self.clients.remove(connection, key);
            self.to_close.push(ConnectionId(key));
        }
    }

    /// The next free AsyncId.
    pub(crate) fn new_async_id(&mut self) -> u64 {
        let id = self.next_async_id;
        self.next_async_id = id.wrapping_add(1).max(1);
        id
    }

    /// The session that a request belongs to.
    pub(crate) fn session_of(&self, context: &Context) -> Result<&Session, NtStatus> {
        self.sessions.get(context.session).ok_or(NtStatus::USER_SESSION_DELETED)
    }
}
