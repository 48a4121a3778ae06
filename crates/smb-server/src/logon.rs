//! SESSION_SETUP and LOGOFF (MS-SMB2 3.3.5.5, 3.3.5.6): logon, logon anew, further channels; held and refused as the guard says.

use crate::directory::{Account, Directory};
use crate::dispatch::Element;
use crate::logon_audit::LogonAction;
use crate::logon_guard::{Admission, Attempt, Outcome, Ticket, UserName, lateness};
use crate::policy::Credential;
use crate::proof::{Bindings, CHALLENGE_BYTES, Challenge, Verified};
use crate::request::{Body, Context, Step, Work};
use crate::server::Server;
use crate::session::{Channel, Session, SessionState};
use crate::setups::{Setup, SetupId, SetupPurpose};
use smb::auth::{Accepted, AccountLookup, Identity, NtHash, ServerNames, Step as Verdict};
use smb::crypto::{KeySchedule, PreauthHash, SessionKeys, SigningAlgorithm};
use smb::wire::{
    Capabilities, Dialect, EmptyBody, Header, HeaderFlags, Put, SESSION_FLAG_BINDING, SecurityMode,
    SessionFlags, SessionSetupRequest, write_session_setup_response,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::{Monotonic, NtStatus};
use volume::backend::Backend;

pub(crate) use smb::auth::Acceptor;

/// Connections that carry one session.
const CHANNELS_PER_SESSION_MAX: usize = 32;

/// The directory as the authentication asks it: it knows only the user who was admitted.
struct Lookup<'a, D> {
    directory: &'a D,
    admitted: Option<&'a str>,
    /// A password's proof was looked at.
    was_asked: Cell<bool>,
    /// Whom it found: the directory may be another one a moment later.
    found: RefCell<Option<Account>>,
}

impl<D: Directory> AccountLookup for Lookup<'_, D> {
    fn nt_hash(&self, user: &str, domain: &str) -> Option<NtHash> {
        self.admitted.filter(|admitted| *admitted == user)?;
        self.was_asked.set(true);
        let account = self.directory.account(domain, user).filter(|account| account.enabled)?;
        let hash = NtHash::from_bytes(account.nt_hash);
        self.found.replace(Some(account));
        Some(hash)
    }
}

/// What a SESSION_SETUP says besides its token.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    signing_required: bool,
    /// Zero: none.
    previous_session: u64,
}

/// A password that may be looked at from now on.
struct Admitted {
    /// As the client wrote it.
    user: String,
    ticket: Ticket,
}

/// A logon whose password is not looked at before `due`.
pub(crate) struct HeldLogon {
    pub due: Monotonic,
    token: Box<[u8]>,
    wishes: Wishes,
    admitted: Admitted,
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_session_setup(
        &mut self,
        context: &mut Context,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        if element.bytes().len() != element.whole.len() {
            // A logon may wait, and a compound would wait with it, of a peer who has proved nothing. No client sends it in one.
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let request = SessionSetupRequest::parse(element.bytes())?;
        let token = request.security_buffer()?;
        let header = Header::parse(element.bytes())?;
        let dialect = self.dialect_of(context);
        let binding = request.flags & SESSION_FLAG_BINDING != 0;
        self.find_setup(context, header, element, binding, dialect, now)?;
        context.to.session_id = context.session;
        let setup = self.setups.get_mut(setup_id(context)).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if setup.is_held {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if dialect == Dialect::Smb311 {
            setup.preauth.update(element.bytes());
        }
        let wishes = Wishes {
            signing_required: request.security_mode & SecurityMode::SIGNING_REQUIRED.bits() as u8 != 0,
            previous_session: request.previous_session_id.get(),
        };
        let Some(user) = setup.acceptor.claimed_user(token) else {
            return self.judge_logon(context, token, wishes, None, now);
        };
        let attempt = self.attempt_of(context, &user)?;
        match self.logon_guard.admit(attempt, now) {
            Admission::Now(ticket) => {
                self.judge_logon(context, token, wishes, Some(Admitted { user, ticket }), now)
            }
            Admission::At(due, ticket) => {
                let admitted = Admitted { user, ticket };
                Ok(self.hold_logon(context, HeldLogon { due, token: token.into(), wishes, admitted }, now))
            }
            Admission::Refused => self.refuse_logon(context, &user, now),
        }
    }

    fn attempt_of(&self, context: &Context, user: &str) -> Result<Attempt, NtStatus> {
        let found = self.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let user = UserName::from(user);
        // The session's key has protected the request of one who logs on anew, or over one more connection.
        let session = self.sessions.get(context.session);
        let in_own_session = session.is_some_and(|session| UserName::from(session.account.as_str()) == user);
        Ok(Attempt { user, host: found.info.peer.ip().into(), in_own_session })
    }

    fn hold_logon(&mut self, context: &mut Context, held: HeldLogon, now: Monotonic) -> Step {
        self.counters.logons_delayed += 1;
        let detail =
            format!("its password is looked at {} s later, after failures", held.due.since(now).as_secs());
        self.note_logon(context, LogonAction::Delayed, Some(&held.admitted.user), detail, now);
        if let Some(setup) = self.setups.get_mut(setup_id(context)) {
            setup.is_held = true;
        }
        context.bytes = held.token.len();
        Step::Park(Work::HeldLogon(Box::new(held)))
    }

    /// The time of a held logon has come.
    pub(crate) fn judge_held_logon(
        &mut self,
        context: &mut Context,
        held: HeldLogon,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let HeldLogon { token, wishes, admitted, .. } = held;
        context.bytes = 0;
        let Some(setup) = self.setups.get_mut(setup_id(context)) else {
            self.logon_guard.settle(&admitted.ticket, Outcome::Unseen, now);
            return Err(NtStatus::USER_SESSION_DELETED);
        };
        setup.is_held = false;
        self.judge_logon(context, &token, wishes, Some(admitted), now)
    }

    /// Takes the exchange's next token. A password is looked at only if its user was `admitted`.
    fn judge_logon(
        &mut self,
        context: &mut Context,
        token: &[u8],
        wishes: Wishes,
        admitted: Option<Admitted>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let wall = self.wall_clock(now);
        let setup = self.setups.get_mut(setup_id(context)).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let (challenge, random) = (setup.challenge, &mut self.random);
        let wall = challenge.map_or(wall, |challenge| challenge.wall);
        let user = admitted.as_ref().map(|admitted| admitted.user.as_str());
        let lookup = Lookup {
            directory: &self.directory,
            admitted: user,
            was_asked: Cell::new(false),
            found: RefCell::default(),
        };
        let verdict = setup.acceptor.step(token, &lookup, wall, &mut |bytes| match challenge {
            // Of what a logon takes at random only its challenge is that long.
            Some(shared) if bytes.len() == CHALLENGE_BYTES => bytes.copy_from_slice(&shared.bytes),
            _ => random(bytes),
        });
        let outcome = match &verdict {
            Verdict::Done(_) => Outcome::Right,
            Verdict::Denied(_) if lookup.was_asked.get() => Outcome::Wrong,
            Verdict::Continue(_) | Verdict::Denied(_) => Outcome::Unseen,
        };
        let account = lookup.found.into_inner();
        let failures = admitted.map_or(0, |admitted| self.logon_guard.settle(&admitted.ticket, outcome, now));
        match verdict {
            Verdict::Continue(answer) => {
                let mut body = Vec::with_capacity(8 + answer.len());
                write_session_setup_response(&mut body, SessionFlags::empty(), &answer);
                Ok(Step::Reply(NtStatus::MORE_PROCESSING_REQUIRED, Body::Bytes(body)))
            }
            Verdict::Done(accepted) => self.logged_on(context, wishes, *accepted, account, now),
            Verdict::Denied(denied) => {
                self.counters.logons_failed += 1;
                let reason = denied.reason.to_string();
                self.note_logon(context, LogonAction::Failed, denied.user.as_deref(), reason, now);
                self.end_failed_logon(context, denied.status(), failures, now)
            }
        }
    }

    fn note_logon(
        &mut self,
        context: &Context,
        action: LogonAction,
        user: Option<&str>,
        detail: String,
        now: Monotonic,
    ) {
        if let Some(found) = self.connections.get(context.connection) {
            self.logon_audit.note(action, user, found.info.peer, detail, now);
        }
    }

    /// Finds or begins the exchange that the request belongs to; `context.session` names it afterwards.
    fn find_setup(
        &mut self,
        context: &mut Context,
        header: &Header,
        element: Element<'_>,
        binding: bool,
        dialect: Dialect,
        now: Monotonic,
    ) -> Result<(), NtStatus> {
        let connection = context.connection;
        let begun = self.setups.get(setup_id(context)).map(|setup| setup.purpose);
        let (mut challenge, mut is_repeated) = (None, false);
        let purpose = if context.session == 0 {
            if binding {
                return Err(NtStatus::USER_SESSION_DELETED);
            }
            let is_used = |name| self.setups.names_session(name);
            context.session = self.sessions.unused_name(&mut self.random, is_used);
            SetupPurpose::New
        } else if binding {
            is_repeated = self.check_binding(context, header, element, dialect)?;
            if begun.is_none() {
                challenge = self.challenge_of_binding(context.session, now);
            }
            SetupPurpose::Binding
        } else if begun == Some(SetupPurpose::New) {
            // Only a first logon goes on without a key. A binding says in each leg that it is one, and each is verified.
            return Ok(());
        } else {
            let session = self.sessions.get(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
            if session.channel(connection).is_none() {
                return Err(NtStatus::USER_SESSION_DELETED);
            }
            // A logon anew is protected by the session it is in.
            if context.sealed_by == 0 {
                if header.flags().contains(HeaderFlags::SIGNED) {
                    let (name, id) = (context.session, context.to.message_id);
                    let proof = Verified::by_channel(name, session, connection, element.bytes(), id);
                    context.proof = Some(proof.ok_or(NtStatus::ACCESS_DENIED)?);
                } else if session.signing_required {
                    return Err(NtStatus::ACCESS_DENIED);
                }
            }
            SetupPurpose::Reauthentication
        };
        if let Some(setup) = self.setups.get_mut(setup_id(context)) {
            setup.is_repeated = is_repeated;
            return Ok(());
        }
        let found = self.connections.get_mut(connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let names = ServerNames::standalone(&self.config.server_name);
        let acceptor = Acceptor::new(names);
        let setup =
            Setup { acceptor, preauth: found.preauth, purpose, challenge, is_repeated, is_held: false };
        found.setups_begun = found.setups_begun.saturating_add(1);
        let host = found.info.peer.ip().into();
        let evicted = self.setups.begin(setup_id(context), host, found.setups_begun, setup, now);
        self.counters.setups_evicted += u64::from(evicted);
        Ok(())
    }

    /// The challenge of a logon that binds: shared if its answers are signed with a key that needs it.
    fn challenge_of_binding(&mut self, session: u64, now: Monotonic) -> Option<Challenge> {
        let wall = self.wall_clock(now);
        let session = self.sessions.get_mut(session)?;
        let needs_it = session.signing.as_ref()?.algorithm() == SigningAlgorithm::AesGmac;
        needs_it.then(|| session.bindings.shared_challenge(&mut self.random, wall)).flatten()
    }

    /// Whether this connection may become a channel of the session (MS-SMB2 3.3.5.5 step 4). Answers whether the request may have come
    /// before. A refusal is signed only if the request was genuine.
    fn check_binding(
        &mut self,
        context: &mut Context,
        header: &Header,
        element: Element<'_>,
        dialect: Dialect,
    ) -> Result<bool, NtStatus> {
        let session = self
            .sessions
            .get_mut(context.session)
            .filter(|session| session.state == SessionState::Valid)
            .ok_or(NtStatus::USER_SESSION_DELETED)?;
        let (name, connection, id) = (context.session, context.connection, context.to.message_id);
        let is_signed = header.flags().contains(HeaderFlags::SIGNED);
        if session.channel(connection).is_some() {
            // It is one already, and has a key of its own.
            let proof = Verified::by_channel(name, session, connection, element.bytes(), id);
            context.proof = proof.filter(|_| is_signed);
            let is_genuine = context.proof.is_some() || context.sealed_by != 0;
            return Err(if is_genuine { NtStatus::REQUEST_NOT_ACCEPTED } else { NtStatus::ACCESS_DENIED });
        }
        // Signed with the session's key, not with one of this channel, which has none yet.
        let verified =
            is_signed.then(|| Verified::by_session(name, session, connection, element.bytes(), id)).flatten();
        context.proof = verified.as_ref().map(|verified| verified.proof);
        self.check_channel_fits(context, header, dialect)?;
        let verified = verified.ok_or_else(|| {
            self.counters.bad_signatures += 1;
            NtStatus::ACCESS_DENIED
        })?;
        Ok(verified.is_repeated)
    }

    /// Whether the connection agreed on what the session's first one did.
    fn check_channel_fits(
        &self,
        context: &Context,
        header: &Header,
        dialect: Dialect,
    ) -> Result<(), NtStatus> {
        let connection = self.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let session = self.session_of(context)?;
        let key = session.signing.as_ref().ok_or(NtStatus::USER_SESSION_DELETED)?;
        let (theirs, ours) = (key.algorithm(), connection.signing);
        // AES-GMAC does not mix with the others, and each direction of the mix has its own refusal.
        if theirs != ours && theirs == SigningAlgorithm::AesGmac {
            return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE);
        }
        if theirs != ours && ours == SigningAlgorithm::AesGmac {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        if dialect < Dialect::Smb300 || !connection.server_capabilities.contains(Capabilities::MULTI_CHANNEL)
        {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if !header.flags().contains(HeaderFlags::SIGNED)
            || session.dialect != dialect
            || session.sealing.as_ref().map(smb::crypto::SealingKey::cipher) != connection.cipher
        {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if session.flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        if session.client_guid != connection.client_guid {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        Ok(())
    }

    fn refuse_logon(&mut self, context: &Context, user: &str, now: Monotonic) -> Result<Step, NtStatus> {
        self.counters.logons_refused += 1;
        let detail = "too many failures; its password was not looked at".to_owned();
        self.note_logon(context, LogonAction::Refused, Some(user), detail, now);
        // Clients say of this status that the user is locked out, and do not ask for another password.
        self.end_failed_logon(context, NtStatus::ACCOUNT_LOCKED_OUT, u32::MAX, now)
    }

    /// Ends the exchange, and answers the later, the more `failures` there were; at once if no password was looked at.
    fn end_failed_logon(
        &mut self,
        context: &Context,
        status: NtStatus,
        failures: u32,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        // A session whose user could not prove to be the same again ends.
        let setup = self.setups.end(setup_id(context));
        if setup.is_some_and(|setup| setup.purpose == SetupPurpose::Reauthentication) {
            self.end_session(context.session, true);
        }
        if failures == 0 {
            return Err(status);
        }
        let until = now.after(lateness(self.config.limits.logon_failure_delay, failures));
        Ok(Step::Park(Work::Delayed { until, status }))
    }

    fn logged_on(
        &mut self,
        context: &mut Context,
        wishes: Wishes,
        accepted: Accepted,
        account: Option<Account>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let key = context.session;
        let account = match &accepted.identity {
            Identity::Anonymous => None,
            Identity::User { .. } => account,
        };
        let Some(account) = account else {
            self.counters.logons_failed += 1;
            let detail = "anonymous logons are not allowed".to_owned();
            self.note_logon(context, LogonAction::Failed, None, detail, now);
            return self.end_failed_logon(context, NtStatus::ACCESS_DENIED, 0, now);
        };
        let found = self.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        found.setups_begun = 0;
        let setup = self.setups.end(setup_id(context)).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if setup.challenge.is_some() && setup.is_repeated {
            // The user's own proof would be new: somebody says again what was heard on another connection.
            return Err(NtStatus::ACCESS_DENIED);
        }
        let flags = match setup.purpose {
            SetupPurpose::New => self.establish(context, &setup.preauth, wishes, account, &accepted, now)?,
            SetupPurpose::Reauthentication => {
                let session = self.sessions.get_mut(key).ok_or(NtStatus::USER_SESSION_DELETED)?;
                session.credential = Credential::of(&account);
                session.token = account.token;
                session.account = account.name;
                let flags = session.flags;
                self.logged_on_anew(key, now);
                flags
            }
            SetupPurpose::Binding => {
                let session = self.sessions.get_mut(key).ok_or(NtStatus::USER_SESSION_DELETED)?;
                if session.token.user != account.token.user {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                // Refused no earlier: the first leg of every binding is answered alike (`Bindings`).
                if session.channels.len() >= CHANNELS_PER_SESSION_MAX {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES);
                }
                let found =
                    self.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
                let schedule = schedule(session.dialect, &setup.preauth);
                // Each channel has a key of its own, from its own logon.
                let keys = SessionKeys::new(schedule, &accepted.session_key[..]);
                let signing = Rc::new(keys.signing_key(found.signing));
                session.channels.push(Channel { connection: context.connection, signing });
                found.sessions.push(key);
                self.clients.insert(found, context.connection);
                session.flags
            }
        };
        self.counters.logons += 1;
        // The final answer is signed in any case: it proves the key to the client (MS-SMB2 3.3.5.5.3).
        context.proof = Some(Verified::by_logon(key, context.connection, &accepted));
        let mut body = Vec::with_capacity(8 + accepted.token.len());
        write_session_setup_response(&mut body, flags, &accepted.token);
        Ok(Step::ok(body))
    }

    /// Makes the session: keys, demands, and the end of the one it replaces.
    fn establish(
        &mut self,
        context: &Context,
        preauth: &PreauthHash,
        wishes: Wishes,
        account: Account,
        accepted: &Accepted,
        now: Monotonic,
    ) -> Result<SessionFlags, NtStatus> {
        let key = context.session;
        let previous = wishes.previous_session;
        if previous != 0
            && previous != key
            && let Some(old) = self.sessions.get(previous)
            && old.token.user == account.token.user
            && old.state == SessionState::Valid
        {
            // The client lost its connection before the server noticed: its durable opens wait for it.
            self.end_session(previous, false);
        }
        let require_encryption = self.config.require_encryption;
        let require_signing = self.config.require_signing;
        let found = self.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let dialect = found.dialect().ok_or(NtStatus::USER_SESSION_DELETED)?;
        let host = found.info.peer.ip().into();
        let mut session = Session::new(dialect, found.client_guid, account, host, now);
        let keys = SessionKeys::new(schedule(dialect, preauth), &accepted.session_key[..]);
        if let Some(cipher) = found.cipher {
            let pair = keys.server_ciphers(cipher).map_err(|_| NtStatus::INTERNAL_ERROR)?;
            session.sealing = Some(pair.0);
            session.opening = Some(pair.1);
        } else if require_encryption {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let signing = Rc::new(keys.signing_key(found.signing));
        session.signing = Some(signing.clone());
        session.bindings = Bindings::new(context.to.message_id);
        session.channels.push(Channel { connection: context.connection, signing });
        session.encrypt = require_encryption;
        session.signing_required = require_signing
            || wishes.signing_required
            || found.client_security_mode.contains(SecurityMode::SIGNING_REQUIRED);
        if session.encrypt {
            session.flags |= SessionFlags::ENCRYPT_DATA;
        }
        let flags = session.flags;
        self.sessions.insert(key, session)?;
        found.sessions.push(key);
        self.clients.insert(found, context.connection);
        Ok(flags)
    }

    pub(crate) fn handle_logoff(&mut self, context: &mut Context) -> Result<Step, NtStatus> {
        let mut body = Vec::new();
        body.put(&EmptyBody::default());
        // The answer still needs the key: the session ends when it is on its way (`Response::ends_session`).
        let session = self.sessions.get_mut(context.session).ok_or(NtStatus::USER_SESSION_DELETED)?;
        session.state = SessionState::Ended;
        Ok(Step::ok(body))
    }
}

/// The exchange that a SESSION_SETUP belongs to.
fn setup_id(context: &Context) -> SetupId {
    SetupId { connection: context.connection, session: context.session }
}

fn schedule<'a>(dialect: Dialect, preauth: &'a PreauthHash) -> KeySchedule<'a> {
    match dialect {
        Dialect::Smb202 | Dialect::Smb210 => KeySchedule::Smb2,
        Dialect::Smb300 | Dialect::Smb302 => KeySchedule::Smb30,
        Dialect::Smb311 => KeySchedule::Smb311(preauth),
    }
}
