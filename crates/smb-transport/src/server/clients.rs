//! All connections of clients, by TCP and by SMB Direct: the one way between sockets and the service.
//!
//! Owns which connection of a transport is which of the service, events that came and are not worked off, and messages that the service
//! did not want yet ([`super::held`]: one rule for both transports). Messages are handed over a group at a time ([`super::group`]).
//!
//! Invariant: a connection of the service has one link, and its link leads back to it, from the service's yes to its opening until the
//! transport's last event of it.

use super::group;
use super::held::{Held, Verdict};
use super::service::{Carrier, Origin, Outgoing, Service};
use super::smb_direct::{SmbDirect, SmbDirectEvent};
use super::tcp::{ConnectionId as TcpId, Tcp, TcpEvent};
use rdma::{QueuePairId, QueuePairMap, Verbs};
use std::collections::VecDeque;
use std::hash::Hash;
use sys::Buf;
use types::{IdentityMap, Monotonic};

/// Connections that take less than is sent to them which one round examines.
const LOOKED_AT_ONCE: usize = 64;

/// Whether an SMB Direct connection has ever had a logon. It keeps its place after a logoff: its client
/// is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Guest,
    Member,
}

/// The transport's name of a connection.
#[derive(Debug, Clone, Copy)]
enum ClientLink {
    Tcp(TcpId),
    Direct(QueuePairId, Standing),
}

/// The connections of one service, which names them `C`.
pub struct Clients<C, V> {
    tcp: Tcp,
    direct: SmbDirect<V>,
    links: IdentityMap<C, ClientLink>,
    by_tcp: IdentityMap<TcpId, C>,
    by_direct: QueuePairMap<C>,
    held: Held<C>,
    /// Connections that take less than is sent to them.
    slow: VecDeque<C>,
    is_draining: bool,
    /// Events that came and are not worked off.
    tcp_events: Vec<TcpEvent>,
    direct_events: Vec<SmbDirectEvent>,
    names: Vec<C>,
}

impl<C: Copy + Eq + Hash, V: Verbs> Clients<C, V> {
    /// Takes connections of both transports.
    pub fn new(tcp: Tcp, direct: SmbDirect<V>) -> Self {
        Self {
            tcp,
            direct,
            links: IdentityMap::default(),
            by_tcp: IdentityMap::default(),
            by_direct: QueuePairMap::default(),
            held: Held::default(),
            slow: VecDeque::new(),
            is_draining: false,
            tcp_events: Vec::new(),
            direct_events: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The SMB Direct connections, to be shown.
    pub fn direct(&self) -> &SmbDirect<V> {
        &self.direct
    }

    /// The connections by TCP, to be shown.
    pub fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// Says whether connections wait to be received from again: they may wait for another connection's
    /// messages.
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes no more connections from now on.
    pub fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_draining, true) {
            self.tcp.stop_listening();
        }
    }

    /// Counts the bytes that wait to be sent by TCP.
    pub fn unsent_bytes(&mut self) -> usize {
        self.by_tcp.keys().map(|&tcp| self.tcp.queued_bytes(tcp)).sum()
    }

    /// Latest time of the next call of [`Self::hear`].
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.direct.next_timeout()
    }

    /// Passes messages and changes of connections to the service. Returns whether there were any.
    pub fn hear<S: Service<Connection = C>>(&mut self, service: &mut S, now: Monotonic) -> bool {
        let mut worked = self.hear_tcp(service, now);
        worked |= self.hear_direct(service, now);
        if !self.held.is_empty() {
            worked |= self.resume(service, now);
        }
        worked
    }

    fn hear_tcp<S: Service<Connection = C>>(&mut self, service: &mut S, now: Monotonic) -> bool {
        let mut events = std::mem::take(&mut self.tcp_events);
        // Waiting events come first: the sockets' buffers bound how much one connection may send meanwhile.
        let worked = !events.is_empty() || self.tcp.poll(now, &mut events);
        let group = group::of(&events, |event| match event {
            TcpEvent::Message { connection, .. } => Some(*connection),
            _ => None,
        });
        for event in events.drain(..group) {
            match event {
                TcpEvent::Message { connection, message } => {
                    let Some(&name) = self.by_tcp.get(&connection) else { continue };
                    let bytes = message.len();
                    match self.held.offer(service, name, message, now) {
                        Verdict::GoOn => {}
                        Verdict::Hold { .. } => {
                            self.tcp.pause(connection);
                            self.tcp.hold(connection, bytes);
                        }
                        Verdict::Close => {
                            tell_too_much(Carrier::Tcp);
                            self.tcp.close(connection, false);
                        }
                    }
                }
                TcpEvent::Opened { connection, peer, local } => {
                    let origin = Origin { peer, local, carrier: Carrier::Tcp };
                    match self.admit(service, origin, ClientLink::Tcp(connection), now) {
                        Some(name) => {
                            self.by_tcp.insert(connection, name);
                        }
                        None => self.tcp.close(connection, false),
                    }
                }
                TcpEvent::Closed { connection, reason } => {
                    tracing::debug!(connection = connection.0, ?reason, "connection closed");
                    if let Some(name) = self.by_tcp.remove(&connection) {
                        self.closed(service, name, now);
                    }
                }
            }
        }
        self.tcp_events = events;
        worked
    }

    fn hear_direct<S: Service<Connection = C>>(&mut self, service: &mut S, now: Monotonic) -> bool {
        let mut events = std::mem::take(&mut self.direct_events);
        let worked = self.direct.poll(now, &mut events) | !events.is_empty();
        let group = group::of(&events, |event| match event {
            SmbDirectEvent::Message { connection, .. } => Some(*connection),
            _ => None,
        });
        for event in events.drain(..group) {
            match event {
                SmbDirectEvent::Message { connection, message } => {
                    self.hear_message(service, connection, message, now);
                }
                SmbDirectEvent::Opened { connection, info } => {
                    let origin = Origin { peer: info.peer, local: info.local, carrier: Carrier::SmbDirect };
                    match self.admit(service, origin, ClientLink::Direct(connection, Standing::Guest), now) {
                        Some(name) => self.by_direct.insert(connection, name),
                        None => self.direct.close(connection),
                    }
                }
                SmbDirectEvent::Read { connection, token, data } => {
                    if let Some(&name) = self.by_direct.get(connection) {
                        service.take_remote_read(name, token, data, now);
                    }
                }
                SmbDirectEvent::Room { connection } => {
                    if let Some(&name) = self.by_direct.get(connection) {
                        self.transmit_direct(service, name, connection);
                    }
                }
                SmbDirectEvent::Closed { connection, reason } => {
                    tracing::debug!(%reason, "SMB Direct connection closed");
                    if let Some(name) = self.by_direct.remove(connection) {
                        self.closed(service, name, now);
                    }
                }
            }
        }
        self.direct_events = events;
        worked
    }

    fn hear_message<S: Service<Connection = C>>(
        &mut self,
        service: &mut S,
        connection: QueuePairId,
        message: Buf,
        now: Monotonic,
    ) {
        let Some(&name) = self.by_direct.get(connection) else { return };
        let bytes = message.len();
        let verdict = self.held.offer(service, name, message, now);
        let is_too_much = match verdict {
            Verdict::GoOn => return,
            Verdict::Hold { is_first } => {
                if is_first {
                    self.direct.throttle(connection, true);
                }
                !self.direct.hold(connection, bytes)
            }
            Verdict::Close => true,
        };
        if is_too_much {
            self.held.give_up(name);
            tell_too_much(Carrier::SmbDirect);
            self.direct.close(connection);
        }
    }

    /// Lets the service name a new connection; `None`: it is refused.
    fn admit<S: Service<Connection = C>>(
        &mut self,
        service: &mut S,
        origin: Origin,
        link: ClientLink,
        now: Monotonic,
    ) -> Option<C> {
        if self.is_draining {
            return None;
        }
        let name = service.connection_opened(origin, now)?;
        let before = self.links.insert(name, link);
        debug_assert!(before.is_none(), "a name is of one connection");
        Some(name)
    }

    fn closed<S: Service<Connection = C>>(&mut self, service: &mut S, name: C, now: Monotonic) {
        self.links.remove(&name);
        self.held.forget(name);
        service.connection_closed(name, now);
    }

    /// Continues connections whose requests the service has handled. Returns whether there were any.
    fn resume<S: Service<Connection = C>>(&mut self, service: &mut S, now: Monotonic) -> bool {
        let mut resumed = std::mem::take(&mut self.names);
        let mut moved = self.held.resume(service, now, &mut resumed);
        for name in resumed.drain(..) {
            match self.links.get(&name) {
                Some(&ClientLink::Tcp(tcp)) => self.tcp.resume(tcp),
                Some(&ClientLink::Direct(direct, _)) => self.direct.throttle(direct, false),
                None => continue,
            }
            moved = true;
        }
        self.names = resumed;
        moved
    }

    /// Hands the service's messages to the transports, and closes the connections that the service wants closed.
    pub fn transmit<S: Service<Connection = C>>(&mut self, service: &mut S) {
        let mut names = std::mem::take(&mut self.names);
        service.take_transmitters(&mut names);
        for name in names.drain(..) {
            match self.links.get(&name) {
                Some(&ClientLink::Tcp(tcp)) => self.transmit_tcp(service, name, tcp),
                Some(&ClientLink::Direct(direct, standing)) => {
                    self.transmit_direct(service, name, direct);
                    if standing == Standing::Guest
                        && let Some(user) = service.user(name)
                    {
                        self.links.insert(name, ClientLink::Direct(direct, Standing::Member));
                        self.direct.become_member(direct, user);
                    }
                }
                None => {}
            }
        }
        service.take_closing(&mut names);
        for name in names.drain(..) {
            match self.links.get(&name) {
                Some(&ClientLink::Tcp(tcp)) => self.tcp.close(tcp, true),
                Some(&ClientLink::Direct(direct, _)) => self.direct.close(direct),
                None => {}
            }
        }
        self.names = names;
        self.count_unsent(service);
    }

    fn transmit_tcp<S: Service<Connection = C>>(&mut self, service: &mut S, name: C, tcp: TcpId) {
        while let Some(message) = service.poll_message(name) {
            self.tcp.send(tcp, message);
        }
        self.tcp.flush(tcp);
        let unsent = self.tcp.queued_bytes(tcp);
        if unsent > 0 && !service.set_unsent(name, unsent) {
            self.slow.push_back(name);
        }
        // Changes with a logon, and with the last logoff.
        if self.tcp.set_message_bytes_max(tcp, service.message_bytes_max(name)) {
            self.tcp.set_standing(tcp, service.user(name));
        }
    }

    /// Passes on as much as the connection takes; the rest stays with the service until there is space.
    fn transmit_direct<S: Service<Connection = C>>(&mut self, service: &mut S, name: C, direct: QueuePairId) {
        while self.direct.has_room(direct)
            && let Some(outgoing) = service.poll_outgoing(name)
        {
            match outgoing {
                Outgoing::Message { payload, invalidate } => self.direct.send(direct, payload, invalidate),
                Outgoing::RemoteWrite { payload, descriptors } => {
                    self.direct.write(direct, payload, &descriptors);
                }
                Outgoing::RemoteRead { token, len_bytes, descriptors } => {
                    self.direct.read(direct, token, len_bytes, &descriptors);
                }
            }
        }
        self.direct.flush();
        let unsent = self.direct.unsent_bytes(direct);
        if unsent > 0 && !service.set_unsent(name, unsent) {
            self.slow.push_back(name);
        }
    }

    /// Reports to the service how much the transports keep of its messages to clients that take less.
    fn count_unsent<S: Service<Connection = C>>(&mut self, service: &mut S) {
        for _ in 0..self.slow.len().min(LOOKED_AT_ONCE) {
            let Some(name) = self.slow.pop_front() else { return };
            let bytes = match self.links.get(&name) {
                Some(&ClientLink::Tcp(tcp)) => self.tcp.queued_bytes(tcp),
                Some(&ClientLink::Direct(direct, _)) => self.direct.unsent_bytes(direct),
                None => continue,
            };
            service.set_unsent(name, bytes);
            if bytes > 0 {
                self.slow.push_back(name);
            }
        }
    }

    /// Puts posted RDMA work on the wire. Returns whether there is more to do.
    pub fn put_on_wire(&mut self, now: Monotonic) -> bool {
        if self.direct.wants_poll() {
            self.direct.poll(now, &mut self.direct_events);
        }
        self.direct.wants_poll() || !self.direct_events.is_empty()
    }
}

fn tell_too_much(carrier: Carrier) {
    tracing::debug!(?carrier, "connection closed: it sends more than is worked off, and takes no answers");
}
