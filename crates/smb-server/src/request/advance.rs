//! Progress of a request: answered, given to a volume, or left waiting; marked as pending; cancelled;
//! answered in its chain.

use super::chain::{Chain, Hashed, Response};
use super::dispatch::{Started, disconnect_hostile};
use super::{REQUEST_BYTES, Request, Requests, breaks, send};
use crate::commands::{self, Work};
use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step, Until};
use crate::state::client_figures::ClientSlot;
use crate::state::connections::{Connection, ConnectionId, Outgoing};
use crate::state::counters::RequestKind;
use crate::state::keys::{RequestKey, SessionKey, VolumeSlot};
use crate::state::leases::Breaking;
use crate::state::parting::is_passing;
use crate::state::share_figures::FiguresSlot;
use crate::state::volumes::VOLUME_GONE;
use crate::state::{State, Wake};
use smallvec::SmallVec;
use smb::wire::{Command, Header, HeaderFlags};
use std::cmp::Reverse;
use sys::Buf;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Operation, Refusal, Reply};

/// Whether the request is not to be answered with an error that passes.
fn is_lasting<B: Backend, D: Directory>(state: &State<B, D>, context: &Context) -> bool {
    state.is_lasting(context.open, context.session, context.tree_id)
}

impl Requests {
    /// Answers, submits or parks; the chain goes along with a request that waits.
    pub(super) fn take_step<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &mut Context,
        step: Step<Work>,
        chain: &mut Chain,
        now: Monotonic,
    ) -> Started {
        match step {
            Step::Reply(status, body) => {
                finish_element(state, context, chain, status, body);
                Started::Answered
            }
            Step::Disconnect => Started::Disconnect,
            Step::Submit { volume, operation, work } => {
                self.submit(state, context, (volume, operation), work, chain, now)
            }
            Step::Park(work, until) => {
                if matches!(until, Until::Time(_) | Until::PipeSays) {
                    context.measured_since = None;
                }
                let Some(key) = self.put_in_work(state, context, None, work, chain) else {
                    return Started::Answered;
                };
                self.wait(state, context, key, until, now);
                Started::Waits
            }
        }
    }

    /// Takes a step, or answers with the status that a command refused its request with.
    #[inline]
    pub(super) fn take_result<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &mut Context,
        step: Result<Step<Work>, NtStatus>,
        chain: &mut Chain,
        now: Monotonic,
    ) -> Started {
        match step {
            Ok(step) => self.take_step(state, context, step, chain, now),
            Err(status) => {
                finish_element(state, context, chain, status, Body::no_error_data());
                Started::Answered
            }
        }
    }

    fn submit<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &Context,
        (volume, operation): (VolumeSlot, Operation),
        work: Work,
        chain: &mut Chain,
        now: Monotonic,
    ) -> Started {
        if state.volumes.get_mut(volume).is_none() {
            finish_element(state, context, chain, VOLUME_GONE, Body::no_error_data());
            return Started::Answered;
        }
        let Some(key) = self.put_in_work(state, context, Some(volume), work, chain) else {
            return Started::Answered;
        };
        if let Some(backend) = state.volumes.get_mut(volume) {
            backend.submit(key.into(), operation, now);
        }
        Started::Waits
    }

    /// Adds a request to those in work. `None`: its connection is lost, and the request is answered
    /// instead.
    #[inline]
    fn put_in_work<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &Context,
        volume: Option<VolumeSlot>,
        work: Work,
        chain: &mut Chain,
    ) -> Option<RequestKey> {
        // A message of one request needs no chain to continue with.
        let is_alone = chain.first && !chain.has_more();
        let chain = (!is_alone).then(|| {
            Box::new(Chain {
                message: chain.message.clone(),
                responses: std::mem::take(&mut chain.responses),
                ..*chain
            })
        });
        let bytes = REQUEST_BYTES + context.bytes + chain.as_ref().map_or(0, |chain| chain.kept_bytes());
        let may_wait = work.may_wait();
        let Some(connection) = state.connections.get_mut(context.connection) else {
            // No further step is needed.
            let mut rest = chain.map_or_else(|| Chain::of_one(context), |chain| *chain);
            finish_element(state, context, &mut rest, NtStatus::CANCELLED, Body::no_error_data());
            return None;
        };
        connection.in_work += 1;
        connection.in_work_bytes += bytes;
        let charge = state.memory.work(connection.holder(), bytes);
        let key = self.table.insert(Request { context: *context, work, volume, chain, charge });
        let key = RequestKey::of_slot(key);
        if may_wait {
            connection.waiting.insert(context.to.message_id, context.async_id, key);
        }
        Some(key)
    }

    /// Has a request continue when its wait is over.
    fn wait<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &Context,
        key: RequestKey,
        until: Until,
        now: Monotonic,
    ) {
        match until {
            Until::Time(due) => self.timers.push(Reverse((due, key))),
            Until::PipeSays => {
                if let Some(open) = context.open
                    && let Ok(pipe) = state.opens.pipe_mut(open)
                {
                    pipe.wait(key);
                    self.went_pending(state, key, now);
                }
            }
            Until::Turn => {
                if let Some(open) = context.open
                    && let Ok(open) = state.opens.get_mut(open)
                {
                    open.enumeration.queued.push_back(key);
                }
            }
            Until::Fetched { len_bytes, descriptors } => {
                let outgoing = Outgoing::RemoteRead { token: key.get(), len_bytes, descriptors };
                state.connections.enqueue(context.connection, outgoing, &mut state.memory);
            }
        }
    }

    /// Continues a request after the answer of its volume, or of another source that it waits for.
    pub fn complete<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
        result: Result<Reply, Refusal>,
        now: Monotonic,
    ) {
        let Some(mut request) = self.take(state, key) else {
            return;
        };
        if let Err(refusal) = &result
            && is_passing(refusal.status)
            && is_lasting(state, &request.context)
        {
            return self.leave_unanswered(state, &mut request.context, now);
        }
        let step = commands::resume(state, &mut request.context, request.work, result, now);
        self.wake(state, now);
        let mut alone;
        let chain = match &mut request.chain {
            Some(chain) => &mut **chain,
            None => {
                alone = Chain::of_one(&request.context);
                &mut alone
            }
        };
        let connection = request.context.connection;
        let was_pending = request.context.async_id.is_some();
        match self.take_result(state, &mut request.context, step, chain, now) {
            Started::Answered => {
                chain.first = false;
                if was_pending {
                    // The client waits for this answer: later ones get their own message.
                    send::flush(state, connection, chain);
                }
                self.run_chain(state, connection, chain, now);
            }
            // Still the same request to the client.
            Started::Waits => {}
            Started::Silent => self.run_chain(state, connection, chain, now),
            Started::Disconnect => disconnect_hostile(state, connection),
        }
    }

    /// Continues the requests that a command has made ready.
    #[inline]
    pub fn wake<B: Backend, D: Directory>(&mut self, state: &mut State<B, D>, now: Monotonic) {
        if !state.woken.is_empty() {
            for wake in std::mem::take(&mut state.woken) {
                self.wake_one(state, wake, now);
            }
        }
    }

    fn wake_one<B: Backend, D: Directory>(&mut self, state: &mut State<B, D>, wake: Wake, now: Monotonic) {
        match wake {
            Wake::Break(lease, step) => breaks::tell(state, Breaking::Lease(lease), step),
            Wake::Readers(open) => {
                while let Ok(pipe) = state.opens.pipe_mut(open)
                    && let Some(reader) = pipe.next_reader()
                {
                    self.complete(state, reader, Ok(Reply::Done), now);
                }
            }
            Wake::WaitedForClosed(requests) => {
                for request in requests {
                    self.complete(state, request, Err(NtStatus::FILE_CLOSED.into()), now);
                }
            }
            Wake::Enumeration(key) => {
                // A request that has ended meanwhile, or is refused, does not block those behind it.
                while let Ok(open) = state.opens.get_mut(key)
                    && !open.enumeration.busy
                    && let Some(next) = open.enumeration.queued.pop_front()
                {
                    self.complete(state, next, Ok(Reply::Done), now);
                }
            }
        }
    }

    /// Sends the client an interim response after the volume reports a long wait (MS-SMB2 3.3.4.2).
    pub fn went_pending<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
        now: Monotonic,
    ) {
        let Some(request) = self.get(key) else { return };
        let context = request.context;
        if context.async_id.is_some() {
            return;
        }
        if !state.connections.contains(context.connection) && request.work.is_replayable() {
            // The client finds it by its GUID.
            return;
        }
        let in_the_middle = request.chain.as_ref().is_some_and(|chain| chain.has_more());
        // In the middle of a compound a request waits as well, and later elements wait for it (MS-SMB2
        // 3.3.5.2.7.2): a rename between CREATE and CLOSE, as Linux and macOS send it, has to outlast the
        // break that it causes. A watch has no end, so later elements might never be answered: Windows
        // refuses it with this status, and smbtorture expects that.
        if in_the_middle && context.to.command == Command::ChangeNotify {
            self.refuse(state, key, NtStatus::INTERNAL_ERROR, now);
        } else if !self.park(state, key) {
            self.refuse(state, key, NtStatus::INSUFFICIENT_RESOURCES, now);
        } else {
            self.tell_pending(state, key, &context);
        }
    }

    /// Refuses a request in work: immediately, or when its volume has released it.
    fn refuse<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
        status: NtStatus,
        now: Monotonic,
    ) {
        let Some(request) = self.get_mut(key) else { return };
        request.work = Work::Refused(status);
        match request.volume {
            Some(volume) => state.volumes.cancel(volume, key),
            None => self.complete(state, key, Err(status.into()), now),
        }
    }

    /// Sends STATUS_PENDING, with the answers before it in its chain.
    fn tell_pending<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
        context: &Context,
    ) {
        let async_id = self.new_async_id();
        let granted = grant(state, context, NtStatus::PENDING);
        let mut header = context.to.header(NtStatus::PENDING, granted);
        header.set_async_id(async_id.get());
        let mut responses = SmallVec::new();
        if let Some(request) = self.get_mut(key) {
            request.context.async_id = Some(async_id);
            if request.work.may_wait() {
                request.context.measured_since = None;
            }
            if let Some(chain) = &mut request.chain {
                responses = std::mem::take(&mut chain.responses);
                chain.held_bytes = 0;
            }
        }
        if let Some(connection) = state.connections.get_mut(context.connection) {
            connection.waiting.told_pending(async_id, key);
        }
        // Never signed: its final answer has the same message identifier, and thus the same nonce.
        responses.push(Response::unsigned(header, Body::no_error_data()));
        send::send(state, context.connection, &mut responses, context.sealed_by);
    }

    /// Handles CANCEL (MS-SMB2 3.3.5.16), which takes no credit and has no answer.
    pub(super) fn cancel<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        connection: ConnectionId,
        header: &Header,
        element: Element<'_>,
        now: Monotonic,
    ) {
        state.counters.requests[Command::Cancel as usize] += 1;
        let session = SessionKey::from_number(header.session_id.get());
        if let Some(session) = session.and_then(|key| state.sessions.get(key))
            && header.flags().contains(HeaderFlags::SIGNED)
            && let Some(channel) = session.channel(connection)
        {
            let id = header.message_id.get();
            let genuine = channel.signing.verify(&[element.bytes()], id, false, true).is_ok()
                // Some clients leave the role's second bit out of AES-GMAC's nonce.
                || channel.signing.verify(&[element.bytes()], id, false, false).is_ok();
            if !genuine {
                state.counters.bad_signatures += 1;
                return;
            }
        }
        let found = state.connections.get(connection).and_then(|found| found.waiting.find(header));
        let Some(key) = found else { return };
        let Some(request) = self.get(key) else { return };
        match request.volume {
            Some(volume) => state.volumes.cancel(volume, key),
            None => {
                if request.work.can_be_cancelled_here() {
                    self.complete(state, key, Err(NtStatus::CANCELLED.into()), now);
                }
            }
        }
    }

    /// The transport's answer to [`Outgoing::RemoteRead`]. `None`: the client's memory could not be read.
    pub fn fetched<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        connection: ConnectionId,
        key: RequestKey,
        data: Option<Buf>,
        now: Monotonic,
    ) {
        let Some(request) = self.get_mut(key) else { return };
        if request.context.connection != connection || !request.work.waits_for_payload() {
            return;
        }
        let result = match data {
            Some(data) => {
                request.work.take_payload(data);
                Ok(Reply::Done)
            }
            None => Err(NtStatus::INVALID_PARAMETER.into()),
        };
        self.complete(state, key, result, now);
    }

    /// Continues the requests whose time has come.
    pub fn handle_timeout<B: Backend, D: Directory>(&mut self, state: &mut State<B, D>, now: Monotonic) {
        while let Some(key) = self.pop_due(now) {
            self.complete(state, key, Ok(Reply::Done), now);
        }
    }

    /// Ends the requests on a removed volume. Those on persistent opens, or that may make one, get no
    /// answer.
    pub fn end_volume<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        volume: VolumeSlot,
        now: Monotonic,
    ) {
        state.part_from_holders(volume);
        for key in self.of_volume(volume) {
            match self.get(key).is_some_and(|request| is_lasting(state, &request.context)) {
                true => {
                    if let Some(mut request) = self.take(state, key) {
                        self.leave_unanswered(state, &mut request.context, now);
                    }
                }
                false => self.complete(state, key, Err(NtStatus::FILE_FORCED_CLOSED.into()), now),
            }
        }
    }

    /// Ends a finished request without an answer: the client repeats it over another connection.
    fn leave_unanswered<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        context: &mut Context,
        now: Monotonic,
    ) {
        if let Some(session) = context.session {
            state.part_from(session);
        }
        if std::mem::take(&mut context.counted)
            && let Some(open) = context.open
            && let Ok(open) = state.opens.get_mut(open)
        {
            open.end_outstanding(context.channel_sequence);
        }
        self.wake(state, now);
    }

    /// Ends the requests of a lost connection, whose sessions without a further channel have not ended yet.
    pub fn end_connection<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        id: ConnectionId,
        gone: &Connection,
        now: Monotonic,
    ) {
        for key in self.of_connection(id, gone) {
            let context = self.get(key).map(|request| request.context);
            let session = context.and_then(|context| context.session(&state.sessions).ok());
            if session.is_none_or(|session| session.channels.is_empty()) {
                self.abandon(state, key);
            } else {
                self.lose_channel(state, key, now);
            }
        }
    }

    /// Ends a request without an answer, as its channel is lost, but not its session. It is counted like
    /// any other, so that a replay on another channel finds it done or not begun (MS-SMB2 3.3.5.2.10).
    fn lose_channel<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
        now: Monotonic,
    ) {
        let Some(request) = self.get(key) else { return };
        match request.volume {
            // Continues waiting: the replay finds it by its GUID.
            _ if request.work.is_replayable() => {}
            Some(volume) => state.volumes.cancel(volume, key),
            None => self.complete(state, key, Err(NtStatus::CANCELLED.into()), now),
        }
    }

    /// Forgets a request whose client is gone, and cancels it at its volume.
    fn abandon<B: Backend, D: Directory>(&mut self, state: &mut State<B, D>, key: RequestKey) {
        let Some(request) = self.take(state, key) else { return };
        if let Some(volume) = request.volume {
            state.volumes.cancel(volume, key);
        }
        if let Some(chain) = request.chain {
            send::end_logged_off(state, &chain.responses);
        }
    }
}

/// Queues the answer of one element with those before it, and remembers the file for those after it.
#[inline]
fn finish_element<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    chain: &mut Chain,
    status: NtStatus,
    body: Body,
) {
    let command = context.to.command;
    let (mut share, mut client) = (FiguresSlot::default(), ClientSlot::default());
    if let Some(key) = context.open
        && let Ok(open) = state.opens.get_mut(key)
    {
        if context.counted {
            open.end_outstanding(context.channel_sequence);
        }
        (share, client) = (open.figures, open.client);
        state.share_figures.of(share).requests[RequestKind::of(command) as usize] += 1;
    }
    if let Some(since) = context.measured_since {
        state.latencies.note(RequestKind::of(command), share, client, since);
    }
    // A logon that takes two exchanges has not failed.
    if status.is_error() && status != NtStatus::MORE_PROCESSING_REQUIRED {
        state.counters.errors[RequestKind::of(command) as usize] += 1;
        tracing::debug!(
            command = command.name(),
            session = context.to.session_id,
            message = context.to.message_id,
            %status,
            "request refused"
        );
    }
    match (command, context.open) {
        (Command::TreeConnect, _) => chain.tree_id = context.tree_id,
        // STATUS_STOPPED_ON_SYMLINK is a refusal, too, though its severity is that of a warning.
        (Command::Create, None) => chain.file = ChainFile::Failed(status),
        (_, Some(open)) => chain.file = ChainFile::Open(open),
        (_, None) => {}
    }
    let hashed = match (command, context.session) {
        (Command::Negotiate, _) => Hashed::Connection,
        (Command::SessionSetup, Some(session)) if status == NtStatus::MORE_PROCESSING_REQUIRED => {
            Hashed::Setup(session)
        }
        _ => Hashed::No,
    };
    let header = header_of_answer(state, context, status);
    let ends_session = context.session.filter(|_| command == Command::Logoff && !status.is_error());
    let (proof, invalidate) = (context.proof, context.invalidate);
    let response = Response { header, body, proof, ends_session, hashed, invalidate };
    send::hold(state, context.connection, chain, response);
}

#[inline]
fn header_of_answer<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    status: NtStatus,
) -> Header {
    // STATUS_PENDING has granted the credits of requests that are answered later.
    let granted = if context.async_id.is_some() { 0 } else { grant(state, context, status) };
    let mut header = context.to.header(status, granted);
    if let Some(async_id) = context.async_id {
        header.set_async_id(async_id.get());
    }
    if context.claims_signature && context.proof.is_none() && context.sealed_by.is_none() && status.is_error()
    {
        // No key to sign with: the flag alone shows a client that the answer belongs to its signed request.
        header.flags = (header.flags() | HeaderFlags::SIGNED).bits().into();
    }
    header
}

/// Grants the credits that the answer to this request gives (MS-SMB2 3.3.1.2).
#[inline]
fn grant<B: Backend, D: Directory>(state: &mut State<B, D>, context: &Context, status: NtStatus) -> u16 {
    let Some(found) = state.connections.get_mut(context.connection) else { return 0 };
    let charge = if found.large_mtu() { context.to.credit_charge.max(1) } else { 1 };
    // Before a logon there is no reason to send much at a time.
    let more_allowed = match context.to.command {
        Command::Negotiate => false,
        Command::SessionSetup => !status.is_error() && status != NtStatus::MORE_PROCESSING_REQUIRED,
        _ => !found.sessions.is_empty(),
    };
    let more = if more_allowed { context.credits_requested.saturating_sub(1) } else { 0 };
    found.window.grant(charge.saturating_add(more))
}
