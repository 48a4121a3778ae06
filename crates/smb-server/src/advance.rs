//! How a request goes on: answered, given to a volume, or left waiting; told that it takes long; cancelled; answered in its chain.

use crate::budget::{Charge, ChargeKind};
use crate::connection::Outgoing;
use crate::directory::Directory;
use crate::dispatch::{Element, Started};
use crate::request::{Body, Chain, ChainFile, Context, Hashed, REQUEST_BYTES, Request, Response, Step, Work};
use crate::server::Server;
use crate::waiting::may_wait;
use smallvec::SmallVec;
use smb::wire::{Command, HEADER_BYTES, Header, HeaderFlags};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, OperationId, Reply};

impl<B: Backend, D: Directory> Server<B, D> {
    /// Answers, submits or parks; the chain goes along with what waits.
    pub(crate) fn take_step(
        &mut self,
        context: Context,
        step: Step,
        chain: &mut Chain,
        now: Monotonic,
    ) -> Started {
        let (work, submit) = match step {
            Step::Reply(status, body) => {
                self.finish_element(&context, chain, status, body);
                return Started::Answered;
            }
            Step::Disconnect => return Started::Disconnect,
            Step::Submit { volume, operation, work } => (work, Some((volume, operation))),
            Step::Park(work) => (work, None),
        };
        let queued = matches!(work, Work::QueryDirectoryQueued(_));
        let reads_pipe = matches!(work, Work::PipeRead { .. });
        let fetch = if let Work::WriteRemote(work) = &work { Some(work.fetch()) } else { None };
        let volume = submit.as_ref().map(|(volume, _)| *volume);
        if volume.is_some_and(|volume| self.backend(volume).is_none()) {
            self.finish_element(&context, chain, NtStatus::NETWORK_NAME_DELETED, Body::no_error_data());
            return Started::Answered;
        }
        let due = work.due();
        // A message of one request needs no chain to go on with.
        let is_alone = chain.first && chain.at >= chain.message.len();
        let chain = (!is_alone).then(|| {
            Box::new(Chain {
                message: chain.message.clone(),
                responses: std::mem::take(&mut chain.responses),
                ..*chain
            })
        });
        let bytes = REQUEST_BYTES + context.bytes + chain.as_ref().map_or(0, |chain| chain.kept_bytes());
        let may_wait = may_wait(&work);
        let Some(connection) = self.connections.get_mut(context.connection) else {
            // Nobody waits for a further step.
            let mut rest = chain.map_or_else(|| Chain::of_one(&context), |chain| *chain);
            self.finish_element(&context, &mut rest, NtStatus::CANCELLED, Body::no_error_data());
            return Started::Answered;
        };
        connection.in_work += 1;
        connection.in_work_bytes += bytes;
        let charge = self.memory.work(connection.holder, bytes);
        let key = self.requests.insert(Request { context, work, volume, chain, charge });
        if may_wait {
            connection.waiting.insert(&context, key);
        }
        if queued && let Some(open) = self.opens.get_mut(context.open) {
            open.enumeration.queued.push_back(key);
        }
        if reads_pipe {
            self.wait_for_pipe(context.open, key, now);
        }
        if let Some((len_bytes, descriptors)) = fetch {
            self.enqueue(context.connection, Outgoing::RemoteRead { token: key, len_bytes, descriptors });
        }
        if let Some(due) = due {
            self.timers.push(std::cmp::Reverse((due, key)));
        }
        if let Some((volume, operation)) = submit
            && let Some(backend) = self.backend(volume)
        {
            backend.submit(OperationId(key), operation, now);
        }
        Started::Waits
    }

    /// Takes a request out of work: it holds nothing any more, and CANCEL does not find it.
    pub(crate) fn take_request(&mut self, key: u64) -> Option<Request> {
        let mut request = self.requests.remove(key)?;
        let charge = std::mem::replace(&mut request.charge, Charge::none());
        let Request { context, work, .. } = &request;
        if let Some(connection) = self.connections.get_mut(context.connection) {
            connection.in_work -= 1;
            connection.waiting.remove(context, work);
            match charge.kind {
                ChargeKind::InWork => connection.in_work_bytes -= charge.bytes,
                ChargeKind::Parked => connection.parked_bytes -= charge.bytes,
            }
        }
        if charge.kind == ChargeKind::Parked
            && let Some(session) = self.sessions.get_mut(context.session)
        {
            session.parked_bytes -= charge.bytes;
        }
        self.memory.release(charge);
        Some(request)
    }

    /// Counts what a request holds as parked, which is to be told STATUS_PENDING; false: it may not wait.
    fn park(&mut self, key: u64) -> bool {
        let limits = &self.config.limits;
        let Some(request) = self.requests.get_mut(key) else { return false };
        let bytes = request.shrink();
        let Some(connection) = self.connections.get_mut(request.context.connection) else { return false };
        let Some(session) = self.sessions.get_mut(request.context.session) else { return false };
        if connection.waiting.pending() >= limits.pending_per_connection
            || connection.parked_bytes + bytes > limits.parked_bytes_per_connection
            || session.parked_bytes + bytes > limits.parked_bytes_per_session
        {
            return false;
        }
        let Some(charge) = self.memory.park(&session.token.user, bytes) else { return false };
        connection.parked_bytes += bytes;
        session.parked_bytes += bytes;
        let in_work = std::mem::replace(&mut request.charge, charge);
        connection.in_work_bytes -= in_work.bytes;
        self.memory.release(in_work);
        true
    }

    /// The volume (or a timer) has answered what the request named `key` waits for.
    pub(crate) fn complete(&mut self, key: u64, result: Result<Reply, NtStatus>, now: Monotonic) {
        let Some(request) = self.take_request(key) else {
            return;
        };
        let Request { mut context, work, chain, .. } = request;
        let step = self
            .finish_work(&mut context, work, result, now)
            .unwrap_or_else(|status| Step::Reply(status, Body::no_error_data()));
        let mut chain = chain.map_or_else(|| Chain::of_one(&context), |chain| *chain);
        let connection = context.connection;
        let async_id = context.async_id;
        match self.take_step(context, step, &mut chain, now) {
            Started::Answered => {
                chain.first = false;
                if async_id != 0 {
                    // The client waits for this one alone: what follows is a message of its own.
                    self.flush_chain(connection, &mut chain);
                }
                self.run_chain(connection, chain, now);
            }
            // Still the same request to the client.
            Started::Waits => {}
            Started::Silent => self.run_chain(connection, chain, now),
            Started::Disconnect => self.disconnect_hostile(connection),
        }
    }

    /// Queues the answer of one element with those before it, and remembers the file for those after it.
    fn finish_element(&mut self, context: &Context, chain: &mut Chain, status: NtStatus, body: Body) {
        if context.counted
            && let Some(open) = self.opens.get_mut(context.open)
        {
            if open.channel_sequence == context.channel_sequence {
                open.outstanding = open.outstanding.saturating_sub(1);
            } else {
                open.outstanding_before = open.outstanding_before.saturating_sub(1);
            }
        }
        let command = context.to.command;
        if status.is_error() {
            self.counters.errors += 1;
            tracing::debug!(
                command = command.name(),
                session = context.session,
                message = context.to.message_id,
                %status,
                "request refused"
            );
        }
        if command == Command::TreeConnect {
            chain.tree_id = context.tree_id;
        }
        if command == Command::Create {
            chain.file =
                if status.is_error() { ChainFile::Failed(status) } else { ChainFile::Open(context.open) };
        } else if context.open != 0 {
            chain.file = ChainFile::Open(context.open);
        }
        let hashed = match command {
            Command::Negotiate => Hashed::Connection,
            Command::SessionSetup if status == NtStatus::MORE_PROCESSING_REQUIRED => {
                Hashed::Setup(context.session)
            }
            _ => Hashed::No,
        };
        let granted = if context.async_id != 0 { 0 } else { self.grant(context.connection, context, status) };
        let mut header = context.to.header(status, granted);
        if context.async_id != 0 {
            header.set_async_id(context.async_id);
        }
        if context.claims_signature && context.proof.is_none() && context.sealed_by == 0 && status.is_error()
        {
            // No key to sign with: the flag alone tells a client that the answer belongs to what it signed.
            header.flags = (header.flags() | HeaderFlags::SIGNED).bits().into();
        }
        let ends_session = if command == Command::Logoff && !status.is_error() { context.session } else { 0 };
        let (proof, invalidate) = (context.proof, context.invalidate);
        let response = Response { header, body, proof, ends_session, hashed, invalidate };
        self.hold(context.connection, chain, response);
    }

    /// Adds an answer to those of its chain. What would make their message too long goes first, as one of its own: a server need not
    /// compound its answers (MS-SMB2 3.3.4.1.3).
    pub(crate) fn hold(&mut self, connection: u64, chain: &mut Chain, response: Response) {
        let bytes = (HEADER_BYTES + response.body.len_bytes()).next_multiple_of(8);
        if chain.held_bytes + bytes > self.config.limits.answer_bytes_max() && !chain.responses.is_empty() {
            self.flush_chain(connection, chain);
        }
        chain.held_bytes += bytes;
        chain.answered_bytes += bytes;
        chain.responses.push(response);
    }

    /// Credits that the answer to this request gives (MS-SMB2 3.3.1.2).
    pub(crate) fn grant(&mut self, connection: u64, context: &Context, status: NtStatus) -> u16 {
        let Some(found) = self.connections.get_mut(connection) else { return 0 };
        let charge = if found.large_mtu() { context.to.credit_charge.max(1) } else { 1 };
        // Until someone has logged on there is no reason to send much at once.
        let more_allowed = match context.to.command {
            Command::Negotiate => false,
            Command::SessionSetup => !status.is_error() && status != NtStatus::MORE_PROCESSING_REQUIRED,
            _ => !found.sessions.is_empty(),
        };
        let more = if more_allowed { context.credits_requested.saturating_sub(1) } else { 0 };
        found.window.grant(charge.saturating_add(more))
    }

    /// The volume says that a request will take long: the client is told (MS-SMB2 3.3.4.2).
    pub(crate) fn went_pending(&mut self, key: u64, now: Monotonic) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if request.context.async_id != 0 {
            return;
        }
        let in_the_middle = request.chain.as_ref().is_some_and(|chain| chain.at < chain.message.len());
        let context = request.context;
        let volume = request.volume;
        if self.connections.get(context.connection).is_none()
            && matches!(&request.work, Work::Create(work) if work.is_replayable())
        {
            // The client finds it by its GUID.
            return;
        }
        let refusal = if in_the_middle && context.to.command != Command::Create {
            // Only the last request of a compound may wait, but for a CREATE that waits for a break.
            Some(NtStatus::INTERNAL_ERROR)
        } else if !self.park(key) {
            Some(NtStatus::INSUFFICIENT_RESOURCES)
        } else {
            None
        };
        if let Some(status) = refusal {
            if let Some(request) = self.requests.get_mut(key) {
                request.work = Work::Refused(status);
            }
            match volume {
                Some(volume) => {
                    if let Some(backend) = self.backend(volume) {
                        backend.cancel(OperationId(key));
                    }
                }
                None => self.complete(key, Err(status), now),
            }
            return;
        }
        let async_id = self.new_async_id();
        let granted = self.grant(context.connection, &context, NtStatus::PENDING);
        let mut header = context.to.header(NtStatus::PENDING, granted);
        header.set_async_id(async_id);
        let (hashed, invalidate) = (Hashed::No, None);
        // Never signed: its final answer has the same message identifier, and thus the same nonce.
        let (proof, ends_session, body) = (None, 0, Body::no_error_data());
        let interim = Response { header, body, proof, ends_session, hashed, invalidate };
        let mut responses = SmallVec::new();
        if let Some(request) = self.requests.get_mut(key) {
            request.context.async_id = async_id;
            if let Some(chain) = &mut request.chain {
                responses = std::mem::take(&mut chain.responses);
                chain.held_bytes = 0;
            }
        }
        if let Some(connection) = self.connections.get_mut(context.connection) {
            connection.waiting.told_pending(async_id, key);
        }
        responses.push(interim);
        self.send(context.connection, responses, context.sealed_by);
    }

    /// CANCEL (MS-SMB2 3.3.5.16): takes no credit, has no answer of its own.
    pub(crate) fn handle_cancel(
        &mut self,
        connection: u64,
        header: &Header,
        element: Element<'_>,
        now: Monotonic,
    ) {
        self.counters.requests[Command::Cancel as usize] += 1;
        if let Some(session) = self.sessions.get(header.session_id.get())
            && header.flags().contains(HeaderFlags::SIGNED)
            && let Some(channel) = session.channel(connection)
        {
            let id = header.message_id.get();
            let genuine = channel.signing.verify(&[element.bytes()], id, false, true).is_ok()
                // Some clients leave the role's second bit out of AES-GMAC's nonce.
                || channel.signing.verify(&[element.bytes()], id, false, false).is_ok();
            if !genuine {
                self.counters.bad_signatures += 1;
                return;
            }
        }
        let found = self.connections.get(connection).and_then(|found| found.waiting.find(header));
        let Some(key) = found else { return };
        let Some(request) = self.requests.get(key) else { return };
        match request.volume {
            Some(volume) => {
                if let Some(backend) = self.backend(volume) {
                    backend.cancel(OperationId(key));
                }
            }
            None => {
                if matches!(request.work, Work::PipeRead { .. }) {
                    self.complete(key, Err(NtStatus::CANCELLED), now);
                }
            }
        }
    }
}
