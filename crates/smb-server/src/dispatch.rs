//! From a message to its requests: protocol, encryption, compounds, credits, signature, session, tree, file (MS-SMB2 3.3.5.2).

use crate::connection::{ConnectionId, Negotiation, Transport};
use crate::directory::Directory;
use crate::proof::Verified;
use crate::remote::registration_to_end;
use crate::request::{Body, Chain, ChainFile, Context, Hashed, REPEATED_FLAGS, Response, Step};
use crate::server::Server;
use crate::session::SessionState;
use smallvec::SmallVec;
use smb::crypto;
use smb::wire::{
    Command, Dialect, Header, HeaderFlags, PROTOCOL_SMB1, PROTOCOL_SMB2, PROTOCOL_TRANSFORM, ResponseTo,
    TRANSFORM_HEADER_BYTES, TransformHeader, WRITE_REQUEST_DATA_OFFSET,
};
use sys::{Buf, BufMut};
use types::{Monotonic, NtStatus};
use volume::backend::Backend;

/// Most requests of one compound, CANCELs and unknown commands among them: clients send ten at most. MS-SMB2 names no status for more,
/// and none could be given to CANCEL, so the connection ends.
const ELEMENTS_MAX: usize = 64;

/// One request within its message.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub whole: &'a Buf,
    pub start: usize,
    pub end: usize,
}

impl<'a> Element<'a> {
    pub fn bytes(self) -> &'a [u8] {
        &self.whole[self.start..self.end]
    }
}

/// What starting a request led to.
pub(crate) enum Started {
    Answered,
    /// The volume or a timer goes on with it; the chain went along.
    Waits,
    /// CANCEL has no answer.
    Silent,
    Disconnect,
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// Takes one whole message, without what the transport put around it.
    pub fn handle_message(&mut self, connection: ConnectionId, message: Buf, now: Monotonic) {
        let Some(found) = self.connections.get(connection.0) else { return };
        if found.closing {
            return;
        }
        self.counters.messages_received += 1;
        self.counters.bytes_received += message.len() as u64;
        if message.starts_with(&PROTOCOL_SMB2) {
            self.handle_plain(connection.0, message, 0, now);
        } else if message.starts_with(&PROTOCOL_TRANSFORM) {
            match self.open_sealed(connection.0, message) {
                Some((plain, session)) => self.handle_plain(connection.0, plain, session, now),
                None => self.disconnect_hostile(connection.0),
            }
        } else if message.starts_with(&PROTOCOL_SMB1) && found.negotiation == Negotiation::Nothing {
            self.handle_smb1_negotiate(connection.0, &message, now);
        } else {
            self.disconnect_hostile(connection.0);
        }
    }

    /// Closes a connection whose peer broke the protocol.
    pub(crate) fn disconnect_hostile(&mut self, connection: u64) {
        self.counters.protocol_errors += 1;
        if let Some(found) = self.connections.get(connection) {
            tracing::debug!(peer = %found.info.peer, "connection closed for breaking the protocol");
        }
        self.close_connection(connection);
    }

    /// Decrypts a message; the payload of a WRITE in it comes to lie at a page boundary.
    fn open_sealed(&self, connection: u64, message: Buf) -> Option<(Buf, u64)> {
        let header = TransformHeader::parse(&message).ok()?;
        let key = header.session_id.get();
        let session = self.sessions.get(key)?;
        session.channel(connection)?;
        let opening = session.opening.as_ref()?;
        let mut plain =
            BufMut::with_aligned(message.len() - TRANSFORM_HEADER_BYTES, WRITE_REQUEST_DATA_OFFSET);
        opening.open_into(&message, &mut plain).ok()?;
        // What is encrypted is one plain message or chain, nothing else.
        plain.starts_with(&PROTOCOL_SMB2).then(|| (plain.freeze(), key))
    }

    fn handle_plain(&mut self, connection: u64, message: Buf, sealed_by: u64, now: Monotonic) {
        self.run_chain(
            connection,
            Chain {
                message,
                at: 0,
                sealed_by,
                first: true,
                elements: 0,
                inheritable: false,
                session: 0,
                tree_id: 0,
                file: ChainFile::None,
                responses: SmallVec::new(),
                held_bytes: 0,
                answered_bytes: 0,
            },
            now,
        );
    }

    /// Works on the elements of a compound in order, up to its end or to one that waits.
    pub(crate) fn run_chain(&mut self, connection: u64, mut chain: Chain, now: Monotonic) {
        if self.connections.get(connection).is_none() {
            return;
        }
        let message = chain.message.clone();
        while chain.at < message.len() {
            if chain.elements == ELEMENTS_MAX {
                self.flush_chain(connection, &mut chain);
                return self.disconnect_hostile(connection);
            }
            chain.elements += 1;
            let Ok((element, rest)) = smb::wire::split_compound(&message[chain.at..]) else {
                // What came before has been done and is answered; the rest makes no sense.
                self.flush_chain(connection, &mut chain);
                return self.disconnect_hostile(connection);
            };
            let element = Element { whole: &message, start: chain.at, end: chain.at + element.len() };
            chain.at = if rest.is_some() { element.end } else { message.len() };
            match self.start_request(connection, &mut chain, element, now) {
                Started::Answered | Started::Silent => {}
                Started::Waits => return,
                Started::Disconnect => {
                    self.flush_chain(connection, &mut chain);
                    return self.disconnect_hostile(connection);
                }
            }
            chain.first = false;
        }
        self.flush_chain(connection, &mut chain);
    }

    pub(crate) fn flush_chain(&mut self, connection: u64, chain: &mut Chain) {
        let responses = std::mem::take(&mut chain.responses);
        chain.held_bytes = 0;
        self.send(connection, responses, chain.sealed_by);
    }

    fn start_request(
        &mut self,
        connection: u64,
        chain: &mut Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Started {
        let Ok(header) = Header::parse(element.bytes()) else { return Started::Disconnect };
        if header.is_response() {
            return Started::Disconnect;
        }
        let Some(command) = header.command() else {
            return self.refuse_unknown_command(connection, chain, header);
        };
        let Some(found) = self.connections.get_mut(connection) else { return Started::Disconnect };
        match found.negotiation {
            Negotiation::Done(_) if command == Command::Negotiate => return Started::Disconnect,
            Negotiation::Nothing | Negotiation::Wildcard if command != Command::Negotiate => {
                return Started::Disconnect;
            }
            _ => {}
        }
        if command == Command::Cancel {
            self.handle_cancel(connection, header, element, now);
            return Started::Silent;
        }
        let is_smb3 = found.dialect().is_some_and(|dialect| dialect >= Dialect::Smb300);
        let charge = if found.large_mtu() { header.credit_charge.get().max(1) } else { 1 };
        if !found.window.take(header.message_id.get(), charge) {
            return Started::Disconnect;
        }
        let flags = header.flags();
        let related = flags.contains(HeaderFlags::RELATED_OPERATIONS);
        let invalidate = match found.info.transport {
            Transport::SmbDirect => registration_to_end(command, found.dialect(), element.bytes()),
            Transport::Tcp => None,
        };
        let mut context = Context {
            connection,
            to: ResponseTo {
                command,
                message_id: header.message_id.get(),
                session_id: header.session_id.get(),
                tree_id: header.tree_id.get(),
                credit_charge: header.credit_charge.get(),
                flags: flags & REPEATED_FLAGS,
            },
            credits_requested: header.credits.get(),
            session: header.session_id.get(),
            tree_id: header.tree_id.get(),
            open: 0,
            sealed_by: chain.sealed_by,
            proof: None,
            claims_signature: flags.contains(HeaderFlags::SIGNED),
            async_id: 0,
            channel_sequence: if is_smb3 { header.channel_sequence() } else { 0 },
            bytes: element.end - element.start,
            invalidate,
            counted: false,
        };
        self.counters.requests[command as usize] += 1;
        // What is encrypted by one session speaks for no other (MS-SMB2 3.3.5.2.1.1).
        let names_its_session = !related || chain.first;
        if names_its_session && chain.sealed_by != 0 && context.session != chain.sealed_by {
            return Started::Disconnect;
        }
        if related && !chain.first {
            context.session = chain.session;
            context.tree_id = chain.tree_id;
            context.to.session_id = chain.session;
            context.to.tree_id = chain.tree_id;
        } else {
            chain.session = context.session;
            chain.tree_id = context.tree_id;
            chain.file = ChainFile::None;
        }
        // What is related to nothing, or to what was itself refused, makes no sense (MS-SMB2 3.3.5.2.7.2).
        let authorized = if related && (chain.first || !chain.inheritable) {
            Err(NtStatus::INVALID_PARAMETER)
        } else if chain.answered_bytes > self.config.limits.bytes_in_flight_per_connection {
            // One message asks for more than may be on its way to a client.
            Err(NtStatus::INSUFFICIENT_RESOURCES)
        } else {
            self.authorize(&mut context, header, element, now)
        };
        chain.inheritable = authorized.is_ok();
        let step = authorized.and_then(|()| self.dispatch(&mut context, chain, element, now));
        let step = step.unwrap_or_else(|status| Step::Reply(status, Body::no_error_data()));
        self.take_step(context, step, chain, now)
    }

    /// Signature, encryption, session and tree.
    fn authorize(
        &mut self,
        context: &mut Context,
        header: &Header,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<(), NtStatus> {
        let command = context.to.command;
        if matches!(command, Command::Negotiate | Command::SessionSetup) {
            return Ok(());
        }
        if command == Command::Echo && context.session == 0 {
            return Ok(());
        }
        let signed = header.flags().contains(HeaderFlags::SIGNED);
        let session = self.sessions.get_mut(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if session.channel(context.connection).is_none() {
            // Another connection carries it.
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if context.sealed_by != 0 {
            assert!(context.sealed_by == context.session, "checked before the chain's element was begun");
        } else if signed {
            let (name, connection, id) = (context.session, context.connection, context.to.message_id);
            context.proof = Verified::by_channel(name, session, connection, element.bytes(), id);
            if context.proof.is_none() {
                self.counters.bad_signatures += 1;
                return Err(NtStatus::ACCESS_DENIED);
            }
        } else if session.signing_required {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if session.state != SessionState::Valid {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if session.encrypt && context.sealed_by == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        session.last_request_at = now;
        if matches!(command, Command::Logoff | Command::TreeConnect | Command::Echo) {
            return Ok(());
        }
        // An acknowledgment of a lease break belongs to no tree.
        if command == Command::OplockBreak {
            return Ok(());
        }
        let tree = session.tree(context.tree_id).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        if tree.encrypt && context.sealed_by == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        context: &mut Context,
        chain: &mut Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        match context.to.command {
            Command::Negotiate => self.handle_negotiate(context, element, now),
            Command::SessionSetup => self.handle_session_setup(context, element, now),
            Command::Logoff => self.handle_logoff(context),
            Command::TreeConnect => self.handle_tree_connect(context, element),
            Command::TreeDisconnect => self.handle_tree_disconnect(context, now),
            Command::Create => self.handle_create(context, element, now),
            Command::Close => self.handle_close(context, chain, element, now),
            Command::Flush => self.handle_flush(context, chain, element),
            Command::Read => self.handle_read(context, chain, element, now),
            Command::Write => self.handle_write(context, chain, element, now),
            Command::Lock => self.handle_lock(context, chain, element),
            Command::Ioctl => self.handle_ioctl(context, chain, element, now),
            Command::Cancel => Ok(Step::Disconnect),
            Command::Echo => self.handle_echo(element),
            Command::QueryDirectory => self.handle_query_directory(context, chain, element),
            Command::ChangeNotify => self.handle_change_notify(context, chain, element),
            Command::QueryInfo => self.handle_query_info(context, chain, element),
            Command::SetInfo => self.handle_set_info(context, chain, element),
            Command::OplockBreak => self.handle_oplock_break(context, chain, element),
        }
    }

    fn refuse_unknown_command(&mut self, connection: u64, chain: &mut Chain, header: &Header) -> Started {
        let Some(found) = self.connections.get_mut(connection) else { return Started::Disconnect };
        if found.dialect().is_none() || !found.window.take(header.message_id.get(), 1) {
            return Started::Disconnect;
        }
        let mut answer = *header;
        answer.status = NtStatus::INVALID_PARAMETER.0.into();
        answer.flags = HeaderFlags::SERVER_TO_REDIR.bits().into();
        answer.next_command = 0.into();
        answer.credits = found.window.grant(1).into();
        let response = Response {
            header: answer,
            body: Body::no_error_data(),
            proof: None,
            ends_session: 0,
            hashed: Hashed::No,
            invalidate: None,
        };
        self.hold(connection, chain, response);
        Started::Answered
    }

    /// The dialect of a connection that has one.
    pub(crate) fn dialect_of(&self, context: &Context) -> Dialect {
        self.connections
            .get(context.connection)
            .and_then(crate::connection::Connection::dialect)
            .unwrap_or(Dialect::Smb202)
    }
}

const _: () = assert!(crypto::TRANSFORM_HEADER_BYTES == TRANSFORM_HEADER_BYTES);
