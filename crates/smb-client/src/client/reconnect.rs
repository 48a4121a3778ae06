//! When all connections are lost: a new session in the place of the old one, with its shares and its durable files.
//!
//! Users keep the names that they were given ([`super::names`]).

use super::names::{Durable, Moves, Names};
use super::pauses::Pauses;
use super::{Client, connect};
use crate::connection::Leftovers;
use crate::file::{File, FileStatus, OpenOptions, Tree};
use crate::operation::{Reply, Request};
use crate::{ClientError, Options};
use smb::wire::{
    CONTEXT_DURABLE_RECONNECT_V2, CONTEXT_DURABLE_REQUEST_V2, Command, CreateContextWriter, CreateResponse,
    DURABLE_FLAG_PERSISTENT, DurableReconnectV2, DurableRequestV2, DurableResponseV2, FileId, Guid,
    OPLOCK_LEVEL_BATCH, OplockBreak, OplockBreakBody, Put, U32, view_at,
};
use std::time::Duration;
use sys::{Buf, monotonic_now};
use types::{Monotonic, NtStatus};

/// Between two attempts to set a session up anew.
pub(super) const SET_UPS: Pauses = Pauses::new(Duration::from_millis(200), Duration::from_secs(1));

fn durable_request(
    tree: u32,
    name: &str,
    options: OpenOptions,
    create_guid: Guid,
    flags: u32,
    kept: Duration,
    mut contexts: CreateContextWriter,
) -> Request {
    let timeout_ms = U32::new(u32::try_from(kept.as_millis()).unwrap_or(u32::MAX));
    contexts.push_struct(
        CONTEXT_DURABLE_REQUEST_V2,
        &DurableRequestV2 { timeout_ms, flags: U32::new(flags), create_guid, ..Default::default() },
    );
    let mut request = Request::create(tree, name, options.body(), &contexts.finish());
    request.is_recognisable = true;
    request
}

/// Opens the durable files of a lost session in the new one. Returns the names of those that are not open any more.
fn reopen(
    names: &mut Names,
    moves: &mut Moves,
    mut call: impl FnMut(Request) -> Result<Reply, ClientError>,
) -> Result<Vec<(u32, FileId)>, ClientError> {
    let mut gone = Vec::new();
    for (named, durable) in &mut names.durable {
        let mut contexts = CreateContextWriter::default();
        contexts.push_struct(
            CONTEXT_DURABLE_RECONNECT_V2,
            &DurableReconnectV2 {
                file_id: durable.told,
                create_guid: durable.create_guid,
                flags: U32::new(if durable.is_persistent { DURABLE_FLAG_PERSISTENT } else { 0 }),
            },
        );
        let share = names.trees.get(&(durable.tree.session, durable.tree.id));
        let Some(tree) = share.and_then(|share| moves.trees.get(&share.known)) else {
            gone.push(*named);
            continue;
        };
        let mut request = Request::create(*tree, &durable.name, durable.options.body(), &contexts.finish());
        request.must_encrypt = durable.tree.must_encrypt;
        let reply = call(request)?;
        match reply.success().and_then(|reply| Ok(CreateResponse::parse(reply.message())?.file_id)) {
            Ok(file) => {
                durable.told = file;
                moves.files.insert(durable.known, file);
            }
            // Requests of the lost session are still at it.
            Err(error) if error.is_fatal() || error.status() == Some(NtStatus::FILE_NOT_AVAILABLE) => {
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(name = durable.name, %error, "a durable file is not open any more");
                gone.push(*named);
            }
        }
    }
    Ok(gone)
}

impl Client {
    /// A CREATE for a durable open, and the name by which it can be found again.
    pub(super) fn durable_open(
        &mut self,
        tree: Tree,
        name: &str,
        options: OpenOptions,
        contexts: CreateContextWriter,
    ) -> Result<File, ClientError> {
        // Longer than this client tries to come back nobody needs the file kept.
        let kept = self.options.reconnect;
        let mut create_guid = [0; 16];
        if getrandom::fill(&mut create_guid).is_err() {
            return Err(ClientError::Invalid("the system has no random bytes"));
        }
        let flags = if tree.is_continuously_available { DURABLE_FLAG_PERSISTENT } else { 0 };
        let request = durable_request(tree.id, name, options, create_guid, flags, kept, contexts);
        let reply = self.call(request.within(tree))?;
        reply.success()?;
        let tree = self.names.tree_of(tree, &reply);
        let response = CreateResponse::parse(reply.message())?;
        let granted = response
            .contexts()?
            .filter_map(Result::ok)
            .find(|context| context.name == CONTEXT_DURABLE_REQUEST_V2);
        let is_durable = granted.is_some();
        let is_persistent = granted
            .and_then(|context| view_at::<DurableResponseV2>(context.data, 0).ok())
            .is_some_and(|granted| granted.flags.get() & DURABLE_FLAG_PERSISTENT != 0);
        let file = File {
            tree,
            id: response.file_id,
            status: FileStatus::from_create(&response),
            is_unbuffered: options.is_unbuffered(),
            is_durable,
        };
        if is_durable {
            let name = name.to_owned();
            let (known, told) = (file.id, file.id);
            let durable = Durable { tree, name, options, create_guid, is_persistent, known, told };
            self.names.durable.insert((tree.session, file.id), durable);
        }
        Ok(file)
    }

    /// Agrees to what the server takes away. A file that lost its oplock does not outlive the session any more.
    pub(super) fn acknowledge_breaks(&mut self, now: Monotonic) {
        let mut breaks: Vec<Buf> = Vec::new();
        for channel in &mut self.channels {
            breaks.append(&mut channel.breaks);
        }
        for message in breaks {
            let Ok(said) = OplockBreak::parse(&message) else { continue };
            let found = self.names.durable.iter().find(|(_, durable)| durable.known == said.file_id);
            let Some((&named, durable)) = found else { continue };
            let (tree, level) = (durable.tree, said.oplock_level);
            let mut body = Vec::new();
            body.put(&OplockBreakBody { oplock_level: level, file_id: durable.known, ..Default::default() });
            if level < OPLOCK_LEVEL_BATCH && !durable.is_persistent {
                self.names.durable.remove(&named);
            }
            let mut request = Request::new(Command::OplockBreak, tree.id, body).within(tree);
            let token = self.new_token();
            self.unasked.insert(token);
            if self.names.translate(&mut request) {
                self.dispatch(token, request, now);
            } else {
                self.answer_gone(token, request.command);
            }
        }
    }

    /// Sets the session up anew and asks again what was not answered. Blocks, for as long as the options say.
    pub(super) fn reconnect(&mut self, leftovers: Leftovers, error: ClientError) -> Result<(), ClientError> {
        if self.options.reconnect.is_zero() {
            return Err(error);
        }
        let now = monotonic_now();
        let is_idle = leftovers.sent.is_empty() && leftovers.waiting.is_empty() && self.later.is_empty();
        let since = if is_idle { None } else { self.fruitless_until };
        let until = since.unwrap_or(now.after(self.options.reconnect));
        self.fruitless_until = (!is_idle).then_some(until);
        if since.is_some() {
            // A server that takes the session and loses it before it answers anything is neither rushed nor asked for ever.
            if now >= until {
                return Err(error);
            }
            std::thread::sleep(self.set_ups.failed(now).min(until.since(now)));
        }
        tracing::warn!(server = self.servers.name(), %error, "all connections are lost: setting the session up anew");
        let mut refused = 0;
        let moves = loop {
            let failed = match self.set_up_anew() {
                Ok(moves) => break moves,
                Err(failed) => failed,
            };
            let now = monotonic_now();
            // Servers that know the user no more will not know him in a moment either.
            let is_refused = matches!(failed, ClientError::Status { command: Command::SessionSetup, .. });
            refused = if is_refused { refused + 1 } else { 0 };
            if now >= until || refused >= self.servers.count() {
                return Err(failed);
            }
            tracing::info!(server = self.servers.name(), error = %failed, "not yet");
            if self.servers.advance() {
                std::thread::sleep(self.set_ups.failed(now).min(until.since(now)));
            }
        };
        self.past.reconnects += 1;
        let now = monotonic_now();
        if let Some(pauses) = self.remakes.first_mut() {
            pauses.succeeded(now);
        }
        let leftovers = self.carry_over(leftovers, &moves);
        self.repeat(leftovers, now);
        Ok(())
    }

    /// Translates unfinished requests from the lost session's names to the new one's. Requests whose tree or
    /// file is gone are answered.
    fn carry_over(&mut self, mut leftovers: Leftovers, moves: &Moves) -> Leftovers {
        let mut gone = Vec::new();
        leftovers.sent.retain_mut(|(token, command, request)| {
            let has_moved = request.as_mut().is_none_or(|request| moves.apply(request));
            if !has_moved {
                gone.push((*token, *command));
            }
            has_moved
        });
        leftovers.waiting.retain_mut(|chain| {
            let has_moved = chain.iter_mut().all(|(_, request)| moves.apply(request));
            if !has_moved {
                gone.extend(chain.iter().map(|(token, request)| (*token, request.command)));
            }
            has_moved
        });
        self.later.retain_mut(|(_, token, request)| {
            let has_moved = moves.apply(request);
            if !has_moved {
                gone.push((*token, request.command));
            }
            has_moved
        });
        for (_, reply) in &mut self.arrived {
            reply.set_session(moves.session - 1);
            if reply.refused_mut().is_some_and(|request| !moves.apply(request)) {
                reply.take_refused();
            }
        }
        for (token, command) in gone {
            self.answer_gone(token, command);
        }
        leftovers
    }

    fn set_up_anew(&mut self) -> Result<Moves, ClientError> {
        let Some(target) = self.targets.first().copied() else {
            return Err(ClientError::Invalid("a session without a connection"));
        };
        let is_same = self.servers.is_same();
        let mut options =
            Options { timeout: self.servers.answer_time(&self.options), ..self.options.clone() };
        // The number of a session means another one at another server.
        options.previous_session_id = if is_same { self.session_id } else { 0 };
        options.server_guid = options.server_guid.filter(|_| is_same);
        let timeout = if self.options.reconnect.is_zero() {
            options.timeout
        } else {
            options.timeout.min(self.options.reconnect)
        };
        let link = connect::link(&self.engine, self.servers.name(), target, timeout, &options)?;
        let connection =
            connect::session(self.servers.name(), target.is_rdma, options.clone(), self.credentials.clone());
        let mut channel = connect::log_on(&self.engine, link, 0, connection, &options)?;
        self.session_id = channel.connection.session_id();
        self.servers.arrived();
        if !is_same {
            self.forget_old_server();
        }
        self.sequence = self.sequence.wrapping_add(1).max(1);
        channel.connection.set_channel_sequence(self.sequence);
        let mut call = |request: Request| -> Result<Reply, ClientError> {
            self.last_token += 1;
            let token = crate::Token(self.last_token);
            connect::call(&self.engine, &mut channel, request, token, &options)
        };
        let mut moves = Moves { session: self.names.session + 1, ..Moves::default() };
        for share in self.names.trees.values() {
            let reply = call(Request::tree_connect(&format!("\\\\{}\\{}", self.servers.name(), share.name)))?;
            reply.success()?;
            moves.trees.insert(share.known, reply.tree_id());
        }
        let gone = reopen(&mut self.names, &mut moves, call)?;
        for named in gone {
            self.names.durable.remove(&named);
        }
        self.names.moved(&moves);
        self.binding = channel.connection.binding();
        self.channels.push(channel);
        Ok(moves)
    }

    /// Connects a share that the present server does not serve at the other servers, one after the other.
    /// Only a session without trees moves: its users' names would mean nothing elsewhere.
    pub(super) fn connect_elsewhere(&mut self, share: &str, refused: Reply) -> Result<Reply, ClientError> {
        let mut reply = refused;
        for _ in 1..self.servers.count() {
            if reply.status() != NtStatus::BAD_NETWORK_NAME
                || !self.names.trees.is_empty()
                || self.in_flight() > 0
            {
                break;
            }
            let kept = std::mem::take(&mut self.channels);
            self.forming.clear();
            self.servers.advance();
            match self.set_up_anew() {
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(server = self.servers.name(), %error, "one of several servers is not there");
                    self.channels = kept;
                    continue;
                }
            }
            let token =
                self.submit(Request::tree_connect(&format!("\\\\{}\\{share}", self.servers.name())))?;
            reply = self.wait(token)?;
        }
        self.servers.return_to_session();
        Ok(reply)
    }

    /// The session is at another server than before: what was learnt of the old one does not hold.
    pub(super) fn forget_old_server(&mut self) {
        self.options.server_guid = None;
        self.is_validated = false;
        self.targets.retain(|target| target.address.is_none());
        self.remakes.truncate(self.targets.len());
    }
}
