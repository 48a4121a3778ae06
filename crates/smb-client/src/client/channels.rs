//! The connections of one session: work is spread over them; if one dies, its unanswered requests go to
//! another, and it is made anew.
//!
//! Promises: a request is answered once. A request that the server may have done already is asked again only if doing it twice is
//! harmless, with a new ChannelSequence and, if it changes something, as a replay (MS-SMB2 3.2.4.1.3, 3.3.5.2.10): the server then refuses
//! requests that still arrive by the dead connection. All other requests, and those for a file that did not outlive its session, are
//! answered with STATUS_CONNECTION_DISCONNECTED.

use super::Client;
use super::connect::{self, AUTO_RDMA_TIMEOUT, Target};
use super::interfaces::{self, ADDRESSES_MAX, ANSWER_BYTES};
use super::pauses::Pauses;
use crate::channel::Channel;
use crate::connection::{Leftovers, Token};
use crate::operation::{Reply, Request};
use crate::{ClientError, Options, Transport};
use smb::wire::{Command, FileId, InterfaceCapabilities, NetworkInterface, fsctl, parse_network_interfaces};
use smb_transport::client::{Link, Way};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use sys::monotonic_now;
use types::{Monotonic, NtStatus};

/// A dead channel is made anew after the first, and tried again up to the second.
pub(super) const REMAKES: Pauses = Pauses::new(Duration::from_millis(500), Duration::from_secs(5));
/// Pause before a request is sent again that the server was not ready to take again.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// A channel on its way.
pub(super) enum Forming {
    Dialing { target: usize, answer: Receiver<Result<Way, ClientError>> },
    Joining(Box<Channel>),
}

impl Forming {
    fn target(&self) -> usize {
        match self {
            Self::Dialing { target, .. } => *target,
            Self::Joining(channel) => channel.target,
        }
    }
}

impl Client {
    /// Adds a connection to the session, by TCP or SMB Direct, and waits until it carries work. When the connection dies it is
    /// made anew. While any connection is by SMB Direct, only those are given work.
    ///
    /// # Errors
    /// [`ClientError::NotOffered`] if the session or its dialect can have only one connection; else the server's reason to refuse.
    pub fn add_channel(&mut self, transport: Transport, port: u16) -> Result<(), ClientError> {
        if self.binding.is_none() {
            return Err(ClientError::NotOffered("further connections of one session"));
        }
        self.add_target(Target { is_rdma: transport == Transport::Rdma, port, address: None })
    }

    pub(super) fn add_target(&mut self, aim: Target) -> Result<(), ClientError> {
        let target = self.targets.len();
        self.targets.push(aim);
        self.remakes.push(REMAKES);
        self.join_error = None;
        loop {
            if self.channels.iter().any(|channel| channel.target == target) {
                return Ok(());
            }
            if let Some(error) = self.join_error.take() {
                self.forming.retain(|forming| forming.target() != target);
                self.targets.pop();
                self.remakes.pop();
                return Err(error);
            }
            self.turn()?;
        }
    }

    /// Asks for the addresses that the server offers, with their capabilities; none if the server does not
    /// know the request.
    ///
    /// # Errors
    /// [`ClientError`] if the server refuses for another reason, or the connection failed.
    pub fn interfaces(&mut self) -> Result<Vec<NetworkInterface>, ClientError> {
        let tree = self.tree_connect("IPC$")?;
        let request =
            Request::fsctl(tree.id, FileId::RELATED, fsctl::QUERY_NETWORK_INTERFACE_INFO, &[], ANSWER_BYTES);
        let reply = self.call(request.within(tree))?;
        let unknown = [NtStatus::INVALID_DEVICE_REQUEST, NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED];
        let found = if unknown.contains(&reply.status()) {
            Vec::new()
        } else {
            parse_network_interfaces(reply.fsctl_output()?)?
        };
        self.tree_disconnect(tree)?;
        Ok(found)
    }

    /// Connects to the server's other addresses, up to `most` connections in all: by SMB Direct if the options allow it and the server
    /// has it, the fastest first. An address that cannot be reached is left out and named in the log.
    ///
    /// # Errors
    /// [`ClientError`] if the server cannot be asked for its addresses.
    pub fn find_channels(&mut self, most: usize) -> Result<(), ClientError> {
        let Some(first) = self.targets.first().copied().filter(|_| self.binding.is_some()) else {
            return Ok(());
        };
        let found = self.interfaces()?;
        let may_rdma = self.options.transport != Transport::Tcp;
        let rdma_port = if first.is_rdma { first.port } else { self.options.rdma_port };
        let chosen = interfaces::choose(&found, may_rdma, first.is_rdma);
        for (address, is_rdma) in chosen.into_iter().take(ADDRESSES_MAX) {
            // The first connection by SMB Direct may come on top: work goes by it alone then.
            let is_better = is_rdma && !self.is_rdma();
            if self.channels.len() >= most && !is_better {
                break;
            }
            let port = if is_rdma { rdma_port } else { first.port };
            if let Err(error) = self.add_target(Target { is_rdma, port, address: Some(address) }) {
                tracing::info!(server = self.servers.name(), %address, is_rdma, %error, "no further connection");
            }
        }
        Ok(())
    }

    /// Moves the session, which TCP carries and which has nothing open, to SMB Direct, if the server offers
    /// that and the same server listens for it. Any local user of a server without SMB Direct can listen at
    /// that port, so this logs on to nobody there unasked.
    ///
    /// # Errors
    /// Why the session stays where it was.
    pub(super) fn move_to_rdma(&mut self) -> Result<(), ClientError> {
        let can_rdma = |one: &NetworkInterface| one.capabilities.contains(InterfaceCapabilities::RDMA);
        if !self.interfaces()?.iter().any(can_rdma) {
            return Err(ClientError::NotOffered("SMB Direct"));
        }
        let server_guid = self.channels.first().and_then(|channel| channel.connection.server_guid());
        let kept = Options { server_guid, ..self.options.clone() };
        let options = Options { previous_session_id: self.session_id, ..kept.clone() };
        let target = Target { is_rdma: true, port: options.rdma_port, address: None };
        let timeout = options.timeout.min(AUTO_RDMA_TIMEOUT);
        let link = connect::link(&self.engine, self.servers.name(), target, timeout, &options)?;
        let connection =
            connect::session(self.servers.name(), true, options.clone(), self.credentials.clone());
        let channel = connect::log_on(&self.engine, link, 0, connection, &options)?;
        self.session_id = channel.connection.session_id();
        self.binding = channel.connection.binding();
        self.targets = vec![target];
        self.channels = vec![channel];
        self.is_validated = false;
        self.options = kept;
        Ok(())
    }

    /// Ends one connection of the session, as the network may: for tests of the recovery.
    #[doc(hidden)]
    pub fn kill_channel(&mut self, index: usize) {
        if let Some(channel) = self.channels.get_mut(index) {
            channel.kill();
        }
    }

    /// Gives a request to the least busy channel: of those by SMB Direct, if there are any.
    pub(super) fn dispatch(&mut self, token: Token, request: Request, now: Monotonic) {
        let best = self
            .channels
            .iter_mut()
            .filter(|channel| channel.can_carry(&request, &self.options))
            .min_by_key(|channel| (!channel.is_rdma(), channel.connection.in_flight()));
        match best {
            Some(channel) => channel.submit(token, request, &self.options, now),
            None => self.answer_gone(token, request.command),
        }
    }

    /// The answer to what nothing can be asked about any more.
    pub(super) fn answer_gone(&mut self, token: Token, command: Command) {
        self.arrived.push((token, Reply::local(command, NtStatus::CONNECTION_DISCONNECTED)));
    }

    pub(super) fn answer_all_gone(&mut self, chain: Vec<(Token, Request)>) {
        for (token, request) in chain {
            self.answer_gone(token, request.command);
        }
    }

    pub(super) fn dispatch_chain(&mut self, chain: Vec<(Token, Request)>, now: Monotonic) {
        let fewest = |channel: &&mut Channel| (!channel.is_rdma(), channel.connection.in_flight());
        match self.channels.iter_mut().min_by_key(fewest) {
            Some(channel) => channel.submit_compound(chain, now),
            None => self.answer_all_gone(chain),
        }
    }

    /// Carries messages of all channels both ways; whether anything came.
    pub(super) fn pump(&mut self) -> Result<bool, ClientError> {
        let now = monotonic_now();
        if self.channels.is_empty() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into());
        }
        let mut moved = !self.arrived.is_empty();
        let mut at = 0;
        while let Some(channel) = self.channels.get_mut(at) {
            match channel.pump(now, self.options.timeout, &mut self.arrived) {
                Ok(any) => {
                    moved |= any;
                    at += 1;
                }
                Err(error) => {
                    moved = true;
                    self.lost(at, error, now)?;
                    at = 0;
                }
            }
        }
        self.acknowledge_breaks(now);
        if self.channels.len() < self.targets.len() {
            moved |= self.form(now);
        }
        self.sort_answers(now);
        self.ask_again(now);
        Ok(moved)
    }

    fn sort_answers(&mut self, now: Monotonic) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for (token, mut reply) in arrived.drain(..) {
            if let Some(request) = reply.take_refused()
                && self.sequence > 0
            {
                let until = *self.refused_until.entry(token).or_insert(now.after(self.options.timeout));
                if now < until {
                    self.later.push((now.after(REFUSED_PAUSE), token, request));
                    continue;
                }
            }
            if self.sequence > 0 {
                self.refused_until.remove(&token);
                // Closed by the first asking, of which the answer was lost.
                let was_repeated = self.repeated.remove(&token);
                if was_repeated
                    && reply.command() == Command::Close
                    && reply.status() == NtStatus::FILE_CLOSED
                {
                    reply = Reply::local(Command::Close, NtStatus::SUCCESS);
                }
            }
            if self.unasked.remove(&token) {
                continue;
            }
            self.fruitless_until = None;
            self.set_ups = self.servers.pauses();
            reply.set_session(self.names.session);
            self.answers.insert(token, reply);
            self.order.push_back(token);
        }
        arrived.append(&mut self.arrived);
        self.arrived = arrived;
    }

    fn ask_again(&mut self, now: Monotonic) {
        let mut at = 0;
        while let Some((due, _, _)) = self.later.get(at) {
            if *due > now {
                at += 1;
                continue;
            }
            let (_, token, mut request) = self.later.swap_remove(at);
            request.send_inline();
            self.dispatch(token, request, now);
        }
    }

    /// A channel died: others take over, or the session is set up anew.
    fn lost(&mut self, at: usize, error: ClientError, now: Monotonic) -> Result<(), ClientError> {
        let mut dead = self.channels.remove(at);
        tracing::info!(server = self.servers.name(), is_rdma = dead.is_rdma(), %error, "a connection of the session is lost");
        self.last_loss = Some(error.to_string());
        let mut counted = dead.counters();
        counted.rdma_connections = 0;
        counted.channels_lost = 1;
        self.past.add(&counted);
        if let Some(pauses) = self.remakes.get_mut(dead.target) {
            pauses.failed(now);
        }
        let leftovers = dead.connection.take_leftovers();
        drop(dead);
        if self.channels.is_empty() {
            self.forming.clear();
            return self.reconnect(leftovers, error);
        }
        self.sequence = self.sequence.wrapping_add(1).max(1);
        for channel in &mut self.channels {
            channel.connection.set_channel_sequence(self.sequence);
        }
        self.repeat(leftovers, now);
        Ok(())
    }

    /// Asks again what was not answered.
    pub(super) fn repeat(&mut self, leftovers: Leftovers, now: Monotonic) {
        for (token, command, request) in leftovers.sent {
            match request.filter(Request::can_repeat) {
                Some(mut request) => {
                    request.send_inline();
                    request.is_replay = request.changes();
                    self.past.requests_repeated += 1;
                    self.repeated.insert(token);
                    self.dispatch(token, request, now);
                }
                None => self.answer_gone(token, command),
            }
        }
        for mut chain in leftovers.waiting {
            match chain.pop() {
                Some((token, mut request)) if chain.is_empty() => {
                    request.send_inline();
                    self.dispatch(token, request, now);
                }
                Some(last) => {
                    chain.push(last);
                    self.dispatch_chain(chain, now);
                }
                None => {}
            }
        }
    }

    /// Makes missing channels anew, without waiting.
    fn form(&mut self, now: Monotonic) -> bool {
        let Some(binding) = self.binding.clone() else { return false };
        for (target, aim) in self.targets.iter().enumerate() {
            let is_there = self.channels.iter().any(|channel| channel.target == target)
                || self.forming.iter().any(|forming| forming.target() == target);
            if is_there || self.remakes.get(target).is_none_or(|pauses| pauses.due_at() > now) {
                continue;
            }
            let (tell, answer) = channel();
            let (server, aim, timeout) = (self.servers.name().to_owned(), *aim, self.options.timeout);
            let by_device = aim.is_by_device(&self.options);
            let waker = self.engine.waker();
            std::thread::spawn(move || {
                // Nobody listens if the client is gone.
                let _ = tell.send(aim.dial(&server, timeout, by_device));
                waker.wake();
            });
            self.forming.push(Forming::Dialing { target, answer });
        }
        let mut moved = false;
        for forming in std::mem::take(&mut self.forming) {
            let target = forming.target();
            let next = match forming {
                Forming::Dialing { target, answer } => match answer.try_recv() {
                    Err(TryRecvError::Empty) => Ok(Some(Forming::Dialing { target, answer })),
                    Err(TryRecvError::Disconnected) => Err(ClientError::Invalid("no thread to connect with")),
                    Ok(Err(error)) => Err(error),
                    Ok(Ok(way)) => {
                        moved = true;
                        self.join(way, target, binding.clone(), now).map(Some)
                    }
                },
                Forming::Joining(mut channel) => {
                    match channel.pump(now, self.options.timeout, &mut self.arrived) {
                        Ok(_) if channel.connection.is_ready() => {
                            moved = true;
                            channel.connection.set_channel_sequence(self.sequence);
                            self.channels.push(*channel);
                            if let Some(pauses) = self.remakes.get_mut(target) {
                                pauses.succeeded(now);
                            }
                            Ok(None)
                        }
                        Ok(any) => {
                            moved |= any;
                            Ok(Some(Forming::Joining(channel)))
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            match next {
                Ok(next) => self.forming.extend(next),
                Err(error) => {
                    moved = true;
                    tracing::debug!(server = self.servers.name(), %error, "no further connection");
                    if let Some(pauses) = self.remakes.get_mut(target) {
                        pauses.failed(now);
                    }
                    self.join_error = Some(error);
                }
            }
        }
        moved
    }

    fn join(
        &mut self,
        way: Way,
        target: usize,
        binding: crate::connection::Binding,
        now: Monotonic,
    ) -> Result<Forming, ClientError> {
        let is_rdma = self.targets.get(target).is_some_and(|target| target.is_rdma);
        let link = Link::new(self.engine.driver(), way, &self.options.of_link(self.options.timeout))?;
        let connection = connect::further(
            self.servers.name(),
            is_rdma,
            self.options.clone(),
            self.credentials.clone(),
            binding,
        );
        Ok(Forming::Joining(Box::new(Channel::new(connection, link, target, now))))
    }

    /// Until when to sleep at most.
    pub(super) fn next_timeout(&self) -> Monotonic {
        let timeout = self.options.timeout;
        let forming = self.forming.iter().filter_map(|forming| match forming {
            Forming::Joining(channel) => Some(channel.next_timeout(timeout)),
            Forming::Dialing { .. } => None,
        });
        let missing = self.remakes.iter().enumerate().filter_map(|(target, pauses)| {
            let is_there = self.channels.iter().any(|channel| channel.target == target)
                || self.forming.iter().any(|forming| forming.target() == target);
            (!is_there).then_some(pauses.due_at())
        });
        self.channels
            .iter()
            .map(|channel| channel.next_timeout(timeout))
            .chain(self.later.iter().map(|(due, _, _)| *due))
            .chain(forming)
            .chain(missing)
            .min()
            .unwrap_or_default()
    }
}
