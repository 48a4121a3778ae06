//! From a message to its requests: protocol, encryption, compounds, credits, signature, session, tree (MS-SMB2 3.3.5.2).

use super::Requests;
use super::chain::{Chain, Response};
use super::send;
use crate::commands;
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element};
use crate::remote::registration_to_end;
use crate::state::State;
use crate::state::client_figures::ClientSlot;
use crate::state::connections::{ConnectionId, Negotiation, Transport};
use crate::state::counters::RequestKind;
use crate::state::keys::SessionKey;
use crate::state::proof::Verified;
use crate::state::sessions::SessionState;
use smb::crypto;
use smb::wire::{
    Command, Dialect, Header, HeaderFlags, PROTOCOL_SMB1, PROTOCOL_SMB2, PROTOCOL_TRANSFORM, ResponseTo,
    TRANSFORM_HEADER_BYTES, TransformHeader, WRITE_REQUEST_DATA_OFFSET,
};
use sys::{Buf, BufMut};
use types::{Monotonic, NtStatus, PeerHost};
use volume::backend::Backend;

/// Limit of requests of one compound, including CANCELs and unknown commands: clients send at most ten.
/// MS-SMB2 names no status for more, and CANCEL could get none, so the connection ends.
const ELEMENTS_MAX: usize = 64;

/// Flags of a request that its answer repeats.
const REPEATED_FLAGS: HeaderFlags =
    HeaderFlags::RELATED_OPERATIONS.union(HeaderFlags::PRIORITY_MASK).union(HeaderFlags::REPLAY_OPERATION);

/// How far starting a request has come.
pub(super) enum Started {
    Answered,
    /// The volume or a timer continues the request; the chain went along.
    Waits,
    /// CANCEL has no answer.
    Silent,
    Disconnect,
}

impl Requests {
    /// Takes one whole message, without the transport's framing.
    pub fn handle_message<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        connection: ConnectionId,
        message: Buf,
        now: Monotonic,
    ) {
        let Some(found) = state.connections.get(connection) else { return };
        if found.closing {
            return;
        }
        state.counters.messages_received += 1;
        state.counters.bytes_received += message.len() as u64;
        if message.starts_with(&PROTOCOL_SMB2) {
            self.run_chain(state, connection, &mut Chain::of_message(message, None), now);
        } else if message.starts_with(&PROTOCOL_TRANSFORM) {
            match open_sealed(state, connection, message) {
                Some((plain, session)) => {
                    self.run_chain(state, connection, &mut Chain::of_message(plain, Some(session)), now);
                }
                None => disconnect_hostile(state, connection),
            }
        } else if message.starts_with(&PROTOCOL_SMB1) && found.negotiation == Negotiation::Nothing {
            match commands::answer_smb1(state, connection, &message, now) {
                Some((header, body)) => {
                    let response = Response::unsigned(header, body);
                    send::send(state, connection, &mut [response], None);
                }
                None => disconnect_hostile(state, connection),
            }
        } else {
            disconnect_hostile(state, connection);
        }
    }

    /// Processes the elements of a compound in order, up to its end or to one that waits.
    pub(super) fn run_chain<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        connection: ConnectionId,
        chain: &mut Chain,
        now: Monotonic,
    ) {
        if !state.connections.contains(connection) {
            return;
        }
        let message = chain.message.clone();
        while chain.at < message.len() {
            if chain.elements == ELEMENTS_MAX {
                send::flush(state, connection, chain);
                return disconnect_hostile(state, connection);
            }
            chain.elements += 1;
            let Ok((element, rest)) = smb::wire::split_compound(&message[chain.at..]) else {
                // Earlier elements have been carried out and are answered; the rest makes no sense.
                send::flush(state, connection, chain);
                return disconnect_hostile(state, connection);
            };
            let element = Element { whole: &message, start: chain.at, end: chain.at + element.len() };
            chain.at = if rest.is_some() { element.end } else { message.len() };
            match self.start_request(state, connection, chain, element, now) {
                Started::Answered | Started::Silent => {}
                Started::Waits => return,
                Started::Disconnect => {
                    send::flush(state, connection, chain);
                    return disconnect_hostile(state, connection);
                }
            }
            chain.first = false;
        }
        send::flush(state, connection, chain);
    }

    fn start_request<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        connection: ConnectionId,
        chain: &mut Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Started {
        let Ok(header) = Header::parse(element.bytes()) else { return Started::Disconnect };
        if header.is_response() {
            return Started::Disconnect;
        }
        let Some(command) = header.command() else {
            return refuse_unknown_command(state, connection, chain, header);
        };
        let Some(found) = state.connections.get(connection) else { return Started::Disconnect };
        match found.negotiation {
            Negotiation::Done(_) if command == Command::Negotiate => return Started::Disconnect,
            Negotiation::Nothing | Negotiation::Wildcard if command != Command::Negotiate => {
                return Started::Disconnect;
            }
            _ => {}
        }
        if command == Command::Cancel {
            self.cancel(state, connection, header, element, now);
            return Started::Silent;
        }
        let Some(mut context) = context_of(state, connection, command, header, element, chain, now) else {
            return Started::Disconnect;
        };
        state.counters.requests[command as usize] += 1;
        let related = header.flags().contains(HeaderFlags::RELATED_OPERATIONS);
        // A message encrypted by one session speaks for no other (MS-SMB2 3.3.5.2.1.1).
        let names_its_session = !related || chain.first;
        if names_its_session && chain.sealed_by.is_some() && context.session != chain.sealed_by {
            return Started::Disconnect;
        }
        relate(&mut context, chain, related);
        // A request related to none, or to a refused one, makes no sense (MS-SMB2 3.3.5.2.7.2).
        let authorized = if related && (chain.first || !chain.inheritable) {
            Err(NtStatus::INVALID_PARAMETER)
        } else if chain.answered_bytes > state.config.limits.bytes_in_flight_per_connection {
            // One message requests more than may be queued to a client.
            Err(NtStatus::INSUFFICIENT_RESOURCES)
        } else {
            authorize(state, &mut context, header, element, now)
        };
        chain.inheritable = authorized.is_ok();
        let step = authorized.and_then(|()| commands::start(state, &mut context, chain.file, element, now));
        self.wake(state, now);
        self.take_result(state, &mut context, step, chain, now)
    }
}

/// Takes the request's credits, and its context from the header. `None`: the credits are not the
/// client's to use.
#[inline]
fn context_of<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    command: Command,
    header: &Header,
    element: Element<'_>,
    chain: &Chain,
    now: Monotonic,
) -> Option<Context> {
    let found = state.connections.get_mut(connection)?;
    let is_smb3 = found.dialect().is_some_and(|dialect| dialect >= Dialect::Smb300);
    let charge = if found.large_mtu() { header.credit_charge.get().max(1) } else { 1 };
    if !found.window.take(header.message_id.get(), charge) {
        return None;
    }
    let flags = header.flags();
    Some(Context {
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
        session: SessionKey::from_number(header.session_id.get()),
        tree_id: header.tree_id.get(),
        open: None,
        sealed_by: chain.sealed_by,
        proof: None,
        claims_signature: flags.contains(HeaderFlags::SIGNED),
        async_id: None,
        channel_sequence: if is_smb3 { header.channel_sequence() } else { 0 },
        bytes: element.end - element.start,
        invalidate: match found.info.transport {
            Transport::SmbDirect => registration_to_end(command, found.dialect(), element.bytes()),
            Transport::Tcp => None,
        },
        counted: false,
        measured_since: Some(now),
    })
}

/// Lets a related request inherit the session and tree of the one before it; any other has its own.
#[inline]
fn relate(context: &mut Context, chain: &mut Chain, related: bool) {
    if related && !chain.first {
        context.session = chain.session;
        context.tree_id = chain.tree_id;
        context.to.session_id = chain.session.map_or(0, SessionKey::get);
        context.to.tree_id = chain.tree_id;
    } else {
        chain.session = context.session;
        chain.tree_id = context.tree_id;
        chain.file = ChainFile::None;
    }
}

/// Closes a connection whose peer broke the protocol.
pub(super) fn disconnect_hostile<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
) {
    state.counters.protocol_errors += 1;
    if let Some(found) = state.connections.get(connection) {
        tracing::debug!(peer = %found.info.peer, "connection closed for breaking the protocol");
    }
    state.connections.close(connection);
}

/// Decrypts a message, with the payload of a WRITE in it at a page boundary.
fn open_sealed<B: Backend, D: Directory>(
    state: &State<B, D>,
    connection: ConnectionId,
    message: Buf,
) -> Option<(Buf, SessionKey)> {
    let header = TransformHeader::parse(&message).ok()?;
    let key = SessionKey::from_number(header.session_id.get())?;
    let session = state.sessions.get(key)?;
    session.channel(connection)?;
    let opening = session.opening.as_ref()?;
    let mut plain = BufMut::with_aligned(message.len() - TRANSFORM_HEADER_BYTES, WRITE_REQUEST_DATA_OFFSET);
    opening.open_into(&message, &mut plain).ok()?;
    // An encrypted message is one plain message or chain, nothing else.
    plain.starts_with(&PROTOCOL_SMB2).then(|| (plain.freeze(), key))
}

/// Checks a request's signature, encryption, session and tree.
#[inline]
fn authorize<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    header: &Header,
    element: Element<'_>,
    now: Monotonic,
) -> Result<(), NtStatus> {
    let command = context.to.command;
    if matches!(command, Command::Negotiate | Command::SessionSetup) {
        return Ok(());
    }
    if command == Command::Echo && context.session.is_none() {
        return Ok(());
    }
    let signed = header.flags().contains(HeaderFlags::SIGNED);
    let session = context.session_mut(&mut state.sessions)?;
    if session.channel(context.connection).is_none() {
        // Another connection carries it.
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    if context.sealed_by.is_some() {
        assert!(context.sealed_by == context.session, "checked before the chain's element was begun");
    } else if signed {
        let (name, connection, id) = (context.session_key()?, context.connection, context.to.message_id);
        context.proof = Verified::by_channel(name, session, connection, element.bytes(), id);
        if context.proof.is_none() {
            state.counters.bad_signatures += 1;
            return Err(NtStatus::ACCESS_DENIED);
        }
    } else if session.signing_required {
        tell_unsigned(state, context);
        return Err(NtStatus::ACCESS_DENIED);
    }
    if session.state != SessionState::Valid {
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    if session.encrypt && context.sealed_by.is_none() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    session.last_request_at = now;
    if session.client() == ClientSlot::SERVERS {
        state.counters.requests_of_servers[RequestKind::of(command) as usize] += 1;
    }
    if matches!(command, Command::Logoff | Command::TreeConnect | Command::Echo) {
        return Ok(());
    }
    // An acknowledgment of a lease break belongs to no tree.
    if command == Command::OplockBreak {
        return Ok(());
    }
    let tree = session.tree(context.tree_id).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    if tree.encrypt && context.sealed_by.is_none() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

/// Says in the log why a client is refused, whose user sees "access denied" only.
#[cold]
fn tell_unsigned<B: Backend, D: Directory>(state: &mut State<B, D>, context: &Context) {
    let Some(found) = state.connections.get(context.connection) else { return };
    let (peer, host) = (found.info.peer, PeerHost::from(found.info.peer.ip()));
    if !state.config.require_signing || state.told.unsigned.contains(&host) {
        return;
    }
    state.told.unsigned.insert(host, ());
    tracing::warn!(
        %peer,
        "a client's requests are refused, as they are not signed: it is an old one, or its signing is off. Servers that have to serve such \
         clients set smb.require_signing = false; others can then use logons of their users that they were handed"
    );
}

fn refuse_unknown_command<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    chain: &mut Chain,
    header: &Header,
) -> Started {
    let Some(found) = state.connections.get_mut(connection) else { return Started::Disconnect };
    if found.dialect().is_none() || !found.window.take(header.message_id.get(), 1) {
        return Started::Disconnect;
    }
    let mut answer = *header;
    answer.status = NtStatus::INVALID_PARAMETER.0.into();
    answer.flags = HeaderFlags::SERVER_TO_REDIR.bits().into();
    answer.next_command = 0.into();
    answer.credits = found.window.grant(1).into();
    send::hold(state, connection, chain, Response::unsigned(answer, Body::no_error_data()));
    Started::Answered
}

const _: () = assert!(crypto::TRANSFORM_HEADER_BYTES == TRANSFORM_HEADER_BYTES);
