//! The server as its owner sees it: the calls of a transport, a timer, the volumes' events and an
//! administrator.

use crate::config::Config;
use crate::directory::Directory;
use crate::lists::{self, Gauges, OpenInfo, SessionInfo};
use crate::logon::audit::LogonLine;
use crate::pipes;
use crate::request::Requests;
use crate::request::breaks::{self, LeaseStep};
use crate::state::client_figures::ClientFigures;
use crate::state::connections::{ConnectionId, ConnectionInfo, Outgoing};
use crate::state::counters::{Counters, RequestKind};
use crate::state::keys::{LeaseName, OpenKey, RequestKey, SessionKey, VolumeSlot};
use crate::state::pipe::PipeChange;
use crate::state::policy;
use crate::state::share_figures::ShareFigures;
use crate::state::tree::Target;
use crate::state::{RandomSource, State};
use smallvec::SmallVec;
use smb::rpc::{RpcDone, RpcRefusal};
use smb::wire::NetworkInterface;
use sys::{Buf, Payload};
use types::{FileTime, LatencyHistogram, Monotonic, VolumeId};
use volume::backend::{Backend, Event};

/// The SMB server: see the crate's documentation.
///
/// Two parts: the state held for clients ([`State`]), and the requests in work ([`Requests`]), which
/// change it.
pub struct Server<B, D> {
    state: State<B, D>,
    requests: Requests,
    /// Events of a volume that are being handled; empty in between.
    events: Vec<Event>,
    /// Set once the server accepts no more connections.
    draining: Option<Draining>,
}

/// A server that stops.
struct Draining {
    /// The volume whose connections continue.
    kept: Option<VolumeId>,
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// `wall` is the time of day at `now`; `random` must be fit for keys and nonces.
    ///
    /// # Panics
    /// If the limits let an answer be longer than a message can be.
    pub fn new(config: Config, directory: D, random: RandomSource, now: Monotonic, wall: FileTime) -> Self {
        let state = State::new(config, directory, random, now, wall);
        Self { state, requests: Requests::default(), events: Vec::new(), draining: None }
    }

    /// Sets the time of day again, for a clock that was set or drifts.
    pub fn set_wall_clock(&mut self, now: Monotonic, wall: FileTime) {
        self.state.clock.set(now, wall);
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// Sets the answer of FSCTL_QUERY_NETWORK_INTERFACE_INFO from now on: see [`Config::interfaces`].
    pub fn set_interfaces(&mut self, interfaces: Vec<NetworkInterface>) {
        self.state.config.interfaces = interfaces;
    }

    /// Returns the server's source of accounts and shares.
    pub fn directory(&self) -> &D {
        &self.state.directory
    }

    /// Returns the accounts and shares for a change; [`Self::directory_changed`] applies it.
    pub fn directory_mut(&mut self) -> &mut D {
        &mut self.state.directory
    }

    /// Serves a volume from now on.
    pub fn add_volume(&mut self, id: VolumeId, backend: B) {
        self.state.volumes.add(id, backend);
    }

    /// Stops serving a volume: its opens and tree connects end, and requests in work on it fail. Clients
    /// with persistent opens of it lose their connections instead, and reconnect for the opens.
    pub fn remove_volume(&mut self, id: VolumeId, now: Monotonic) -> Option<B> {
        let (slot, backend) = self.state.volumes.remove(id)?;
        self.requests.end_volume(&mut self.state, slot, now);
        // Roots of these trees are directories of the removed volume, even if a volume of the same name
        // returns.
        let mut trees = Vec::new();
        for (key, session) in self.state.sessions.iter() {
            for (id, tree) in &session.trees {
                if matches!(tree.target, Target::Disk { volume, .. } if volume == slot) {
                    trees.push((key, *id));
                }
            }
        }
        for (session, tree) in trees {
            self.state.end_tree(session, tree, now);
        }
        self.state.opens.forget_positions(slot);
        Some(backend)
    }

    /// Returns the backend of a volume; `None` if this server does not serve it.
    pub fn volume(&self, id: VolumeId) -> Option<&B> {
        self.state.volumes.by_id(id)
    }

    /// Returns the backend of a volume for a change; `None` if this server does not serve it.
    pub fn volume_mut(&mut self, id: VolumeId) -> Option<&mut B> {
        self.state.volumes.by_id_mut(id)
    }

    /// The volumes served.
    pub fn volumes_mut(&mut self) -> impl Iterator<Item = (VolumeId, &mut B)> {
        self.state.volumes.iter_mut()
    }

    /// Adds a new connection of a transport. `None`: there are too many; close it.
    pub fn connection_opened(&mut self, info: ConnectionInfo, now: Monotonic) -> Option<ConnectionId> {
        let State { connections, counters, config, memory, .. } = &mut self.state;
        if self.draining.is_some() || connections.len() >= config.limits.connections {
            counters.connections_refused += 1;
            return None;
        }
        counters.connections_opened += 1;
        Some(connections.open(info, counters.connections_opened, &config.limits, memory, now))
    }

    /// Forgets a lost connection. Durable opens stay with their volumes.
    pub fn connection_closed(&mut self, connection: ConnectionId, now: Monotonic) {
        let state = &mut self.state;
        let Some(gone) = state.connections.remove(connection, &mut state.memory) else { return };
        state.setups.end_connection(connection);
        let mut ended = SmallVec::<[SessionKey; 2]>::new();
        for key in gone.sessions.iter().copied() {
            let Some(session) = state.sessions.get_mut(key) else { continue };
            session.channels.retain(|channel| channel.connection != connection);
            if session.channels.is_empty() {
                ended.push(key);
            }
            state.sessions.recount(key);
        }
        self.requests.end_connection(state, connection, &gone, now);
        for key in ended {
            state.end_session(key);
        }
        breaks::tell_again(state, connection);
    }

    /// Takes one whole message, without the transport's framing.
    pub fn handle_message(&mut self, connection: ConnectionId, message: Buf, now: Monotonic) {
        if self.draining.is_some() && self.is_drained(connection) {
            return;
        }
        self.requests.handle_message(&mut self.state, connection, message, now);
    }

    /// Takes the transport's answer to [`Outgoing::RemoteRead`]. `None`: the client's memory could not be read.
    pub fn remote_read(&mut self, connection: ConnectionId, token: u64, data: Option<Buf>, now: Monotonic) {
        if let Some(key) = RequestKey::from_number(token) {
            self.requests.fetched(&mut self.state, connection, key, data, now);
        }
    }

    /// Passes the volumes' events on to the clients. Call it after messages and after progress of the
    /// volumes' disks, until it returns false.
    pub fn poll(&mut self, now: Monotonic) -> bool {
        let mut progressed = false;
        for slot in self.state.volumes.slots() {
            let mut events = std::mem::take(&mut self.events);
            if let Some(backend) = self.state.volumes.get_mut(slot) {
                backend.poll(&mut events);
            }
            progressed |= !events.is_empty();
            for event in events.drain(..) {
                self.handle_event(slot, event, now);
            }
            self.events = events;
        }
        // Also wakes requests that waited for an open closed by an administrator.
        self.requests.wake(&mut self.state, now);
        progressed
    }

    fn handle_event(&mut self, volume: VolumeSlot, event: Event, now: Monotonic) {
        let state = &mut self.state;
        match event {
            Event::Done { operation, result } => {
                // Operations whose answer is ignored are named zero.
                if let Some(key) = RequestKey::from_number(operation.0) {
                    self.requests.complete(state, key, result, now);
                }
            }
            Event::Pending { operation } => {
                if let Some(key) = RequestKey::from_number(operation.0) {
                    self.requests.went_pending(state, key, now);
                }
            }
            Event::BreakOplock { open, to, .. } => breaks::send_oplock_break(state, volume, open, to),
            Event::BreakLease { client, key, from, to, acknowledge, epoch } => {
                let step = LeaseStep { from, to, acknowledge, epoch };
                breaks::send_lease_break(state, LeaseName { volume, client, key }, step);
            }
            Event::Renamed { open, path } => {
                if let Some(key) = state.opens.of_volume((volume, open))
                    && let Ok(open) = state.opens.get_mut(key)
                {
                    open.path = path;
                }
            }
            Event::Closed { open } => state.closed_by_volume(volume, open),
        }
    }

    /// The next message to send on `connection`, in parts.
    pub fn poll_transmit(&mut self, connection: ConnectionId) -> Option<Payload> {
        loop {
            if let Outgoing::Message { payload, .. } = self.poll_outgoing(connection)? {
                return Some(payload);
            }
        }
    }

    /// As [`Self::poll_transmit`], for a transport that also moves payload by RDMA.
    pub fn poll_outgoing(&mut self, connection: ConnectionId) -> Option<Outgoing> {
        self.state.connections.dequeue(connection, &mut self.state.memory)
    }

    /// Hands out the connections that may have something for [`Self::poll_transmit`] since the last call.
    pub fn take_transmitters(&mut self, out: &mut Vec<ConnectionId>) {
        self.state.connections.take_transmitters(out);
    }

    /// Takes the connections to close once their queued messages are sent.
    pub fn take_closing(&mut self, out: &mut Vec<ConnectionId>) {
        self.state.connections.take_closing(out);
    }

    /// Whether more may be received from `connection`: false while it has too much in work or unsent.
    pub fn wants_messages(&self, connection: ConnectionId) -> bool {
        self.state.connections.wants_messages(connection, &self.state.config.limits, &self.state.memory)
    }

    /// Counts the bytes that the transport keeps because it could not send them yet, like those that it has not fetched. Answers whether
    /// it kept some before.
    pub fn set_unsent(&mut self, connection: ConnectionId, bytes: usize) -> bool {
        self.state.connections.set_unsent(connection, bytes, &mut self.state.memory)
    }

    /// Longest message in bytes that `connection` may send now.
    pub fn message_bytes_max(&self, connection: ConnectionId) -> usize {
        self.state.connections.message_bytes_max(connection, &self.state.config.limits)
    }

    /// Returns the account logged on to `connection`, the first if there are several; `None`: there is
    /// none.
    pub fn user(&self, connection: ConnectionId) -> Option<&str> {
        let session = *self.state.connections.get(connection)?.sessions.first()?;
        Some(&self.state.sessions.get(session)?.account)
    }

    /// The time at which [`Self::handle_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let State { connections, setups, logon_audit, volumes, .. } = &self.state;
        let own = [
            self.requests.next_timeout(),
            connections.next_timeout(),
            setups.next_timeout(),
            logon_audit.next_timeout(),
        ];
        volumes.iter().filter_map(Backend::next_timeout).chain(own.into_iter().flatten()).min()
    }

    /// Does the work that is due.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.state.setups.expire(now);
        self.state.logon_audit.turn(now);
        self.state.volumes.handle_timeout(now);
        self.requests.handle_timeout(&mut self.state, now);
        self.state.connections.expire(now);
    }

    /// Takes the entries for the audit log since the last call.
    pub fn take_logon_lines(&mut self) -> Vec<LogonLine> {
        self.state.logon_audit.take()
    }

    /// Takes no new connections and no new requests: clients repeat unanswered requests elsewhere.
    /// Connections to `kept` continue.
    pub fn drain(&mut self, kept: Option<VolumeId>) {
        self.draining = Some(Draining { kept });
    }

    /// Whether the stopping server takes no more messages from the connection.
    fn is_drained(&self, connection: ConnectionId) -> bool {
        let kept = self.draining.as_ref().and_then(|draining| draining.kept);
        !self.state.leads_to(connection, kept.and_then(|kept| self.state.volumes.slot_of(kept)))
    }

    /// Whether clients wait for answers that storage alone can hold up, of a server that stops: requests that wait for other clients would
    /// wait for ever.
    pub fn owes_answers(&self) -> bool {
        let owes = self.state.connections.iter().filter(|(_, found)| found.in_work > found.waiting.pending());
        owes.into_iter().any(|(connection, _)| self.is_drained(connection))
    }

    /// Closes the connections of clients after their queued messages: the server stops, and has answered as
    /// much as possible.
    pub fn part_from_clients(&mut self) {
        let all = self.state.connections.iter().map(|(connection, _)| connection);
        let drained: Vec<ConnectionId> = all.filter(|connection| self.is_drained(*connection)).collect();
        drained.into_iter().for_each(|connection| self.state.connections.close(connection));
    }

    /// Whether connections of clients are still there.
    pub fn has_clients(&self) -> bool {
        self.state.connections.iter().any(|(connection, _)| self.is_drained(connection))
    }

    /// The number of requests in work, over all connections.
    pub fn requests_in_work(&self) -> usize {
        self.requests.len()
    }

    /// Applies a change of accounts or shares: removed rights are gone at the return, new ones in force.
    /// [`policy`] has the rule.
    pub fn directory_changed(&mut self, now: Monotonic) {
        let State { directory, sessions, volumes, .. } = &mut self.state;
        let ended = policy::review(directory, sessions, volumes, now);
        for (session, tree) in ended.trees {
            self.state.end_tree(session, tree, now);
        }
        for session in ended.sessions {
            self.state.close_session(session);
        }
    }

    /// Ends a session for an administrator, and its connections if they carry no other. False: there is
    /// none.
    pub fn close_session(&mut self, session: u64) -> bool {
        SessionKey::from_number(session).is_some_and(|key| self.state.close_session(key))
    }

    /// Closes an open for an administrator. False: there is none.
    pub fn close_open(&mut self, open: u64, now: Monotonic) -> bool {
        OpenKey::from_number(open).is_some_and(|key| self.state.close_open(key, now))
    }

    /// Takes administrators' changes by pipes; [`Self::answer_pipe`] answers each.
    pub fn take_pipe_changes(&mut self) -> Vec<PipeChange> {
        std::mem::take(&mut self.state.pipe_changes)
    }

    /// Answers a change of [`Self::take_pipe_changes`].
    pub fn answer_pipe(&mut self, pipe: u64, outcome: Result<RpcDone, RpcRefusal>, now: Monotonic) {
        if let Some(key) = OpenKey::from_number(pipe) {
            pipes::finish(&mut self.state, key, outcome);
            self.requests.wake(&mut self.state, now);
        }
    }

    /// Returns the totals since the start.
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// Whether there were answers since the last call of [`Self::record_latencies`].
    pub fn has_noted_latencies(&self) -> bool {
        self.state.latencies.has_noted()
    }

    /// Records the time at which the transport got the answers since the last call. (`now` of other calls
    /// does not change during a turn of the loop.)
    pub fn record_latencies(&mut self, now: Monotonic) {
        self.state.latencies.record_noted(
            &mut self.state.share_figures,
            &mut self.state.sessions.clients,
            now,
        );
    }

    /// Latencies of requests of this kind, from receipt to answer; without those that waited for another
    /// client, and without those that name an open of another server of the cluster.
    pub fn latency(&self, kind: RequestKind) -> &LatencyHistogram {
        self.state.latencies.of(kind)
    }

    /// Figures of each share that had tree connects since the start; of pipes first, under an empty name.
    pub fn share_figures(&self) -> &[ShareFigures] {
        self.state.share_figures.all()
    }

    /// Figures of each client with a recent session; the sum of those without a place comes first.
    pub fn client_figures(&self) -> impl Iterator<Item = &ClientFigures> {
        self.state.sessions.clients.all()
    }

    /// Returns the numbers of connections, sessions, opens and bytes held at this moment.
    pub fn gauges(&self) -> Gauges {
        lists::gauges(&self.state, self.requests.len())
    }

    /// Lists the sessions that are valid, in no particular order.
    pub fn sessions(&self, now: Monotonic) -> Vec<SessionInfo> {
        lists::sessions(&self.state, now)
    }

    /// Lists all opens, those of other nodes and of pipes included, in no particular order.
    pub fn opens(&self, now: Monotonic) -> Vec<OpenInfo> {
        lists::opens(&self.state, now)
    }

    /// Lists clients' opens with numbers above `after`, at most `most` of them, and no more once their
    /// paths have `path_units_max` UTF-16 units. Also returns whether there are more.
    pub fn opens_after(
        &self,
        now: Monotonic,
        after: Option<u64>,
        most: usize,
        path_units_max: usize,
    ) -> (Vec<OpenInfo>, bool) {
        lists::opens_after(&self.state, now, after, most, path_units_max)
    }
}
