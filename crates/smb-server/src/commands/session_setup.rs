//! SESSION_SETUP (MS-SMB2 3.3.5.5): logon, repeated logon, further channels; the guard delays and
//! refuses.

use super::expect_done;
use crate::directory::{Account, Directory, Subject};
use crate::exchange::{Body, Context, Element, Step, Until};
use crate::logon::audit::LogonAction;
use crate::logon::guard::{Admission, Attempt, Outcome, Ticket, UserName, lateness};
use crate::logon::target;
use crate::state::State;
use crate::state::bindings::{Bindings, CHALLENGE_BYTES, Challenge};
use crate::state::keys::SessionKey;
use crate::state::policy;
use crate::state::proof::Verified;
use crate::state::sessions::{CHANNEL_BYTES, Channel, Session, SessionState};
use crate::state::setups::{Setup, SetupId, SetupPurpose};
use smb::auth::{Accepted, Acceptor, AccountLookup, AuthStep, Identity, NtHash, ServerNames};
use smb::crypto::{KeySchedule, PreauthHash, SessionKeys, SigningAlgorithm};
use smb::wire::{
    Capabilities, Dialect, Header, HeaderFlags, SESSION_FLAG_BINDING, SecurityMode, SessionFlags,
    SessionSetupRequest, write_session_setup_response,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Reply};

/// Connections that carry one session.
const CHANNELS_PER_SESSION_MAX: usize = 32;

/// The directory for the authentication: it contains only the admitted user.
struct Lookup<'a, D> {
    directory: &'a D,
    admitted: Option<&'a str>,
    /// Whether a password's proof was checked.
    was_asked: Cell<bool>,
    /// The account that it found: the directory may be another one a moment later.
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

/// The wishes of a SESSION_SETUP, besides its token.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    signing_required: bool,
    /// The session that the client has lost and that this one replaces.
    previous_session: Option<SessionKey>,
}

/// A password that may be checked from now on.
struct Admitted {
    /// The user's name as the client wrote it.
    user: String,
    ticket: Ticket,
}

/// A SESSION_SETUP that waits for a time.
pub(crate) enum SessionSetupWork {
    Held(Box<HeldLogon>),
    /// A failed logon with a delayed answer.
    Late(NtStatus),
}

/// A logon whose password is not checked yet.
pub(crate) struct HeldLogon {
    token: Box<[u8]>,
    wishes: Wishes,
    admitted: Admitted,
}

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    if element.bytes().len() != element.whole.len() {
        // A logon may wait, and the rest of its compound with it, for an unauthenticated peer. No client
        // sends such a compound.
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let request = SessionSetupRequest::parse(element.bytes())?;
    let token = request.security_buffer()?;
    let header = Header::parse(element.bytes())?;
    let dialect = context.dialect(&state.connections);
    let binding = request.flags & SESSION_FLAG_BINDING != 0;
    find_setup(state, context, header, element, binding, dialect, now)?;
    context.to.session_id = context.session_key()?.get();
    let setup = state.setups.get_mut(setup_id(context)?).ok_or(NtStatus::USER_SESSION_DELETED)?;
    if setup.is_held {
        return Err(NtStatus::REQUEST_NOT_ACCEPTED);
    }
    if dialect == Dialect::Smb311 {
        let before = setup.preauth;
        setup.preauth.update(element.bytes());
        setup.acceptor.hear(before, setup.preauth);
    }
    let wishes = Wishes {
        signing_required: request.security_mode & SecurityMode::SIGNING_REQUIRED.bits() as u8 != 0,
        previous_session: SessionKey::from_number(request.previous_session_id.get()),
    };
    let Some(user) = setup.acceptor.claimed_user(token) else {
        return judge_logon(state, context, token, wishes, None, now);
    };
    let attempt = attempt_of(state, context, &user)?;
    match state.logon_guard.admit(attempt, now) {
        Admission::Now(ticket) => {
            judge_logon(state, context, token, wishes, Some(Admitted { user, ticket }), now)
        }
        Admission::At(due, ticket) => {
            let admitted = Admitted { user, ticket };
            Ok(hold_logon(state, context, HeldLogon { token: token.into(), wishes, admitted }, due, now))
        }
        Admission::Refused => {
            // Clients report this status as a lockout, and do not ask for another password.
            let why = (NtStatus::ACCOUNT_LOCKED_OUT, "too many failures; its password was not looked at");
            refuse_logon(state, context, &user, why, now)
        }
    }
}

fn attempt_of<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    user: &str,
) -> Result<Attempt, NtStatus> {
    let found = state.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let user = UserName::from(user);
    // The session's key has protected a repeated logon and one over a further connection.
    let session = context.session(&state.sessions);
    let in_own_session = session.is_ok_and(|session| UserName::from(session.account.as_str()) == user);
    Ok(Attempt { user, host: found.info.peer.ip().into(), in_own_session })
}

fn hold_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    held: HeldLogon,
    due: Monotonic,
    now: Monotonic,
) -> Step<SessionSetupWork> {
    state.counters.logons_delayed += 1;
    let detail = format!("its password is looked at {} s later, after failures", due.since(now).as_secs());
    note_logon(state, context, LogonAction::Delayed, Some(&held.admitted.user), detail, now);
    if let Ok(id) = setup_id(context)
        && let Some(setup) = state.setups.get_mut(id)
    {
        setup.is_held = true;
    }
    context.bytes = held.token.len();
    Step::Park(SessionSetupWork::Held(Box::new(held)), Until::Time(due))
}

/// The time of a held logon has come.
fn judge_held_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    held: HeldLogon,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    let HeldLogon { token, wishes, admitted } = held;
    context.bytes = 0;
    let found = setup_id(context).ok().and_then(|id| state.setups.get_mut(id));
    let Some(setup) = found else {
        state.logon_guard.end_attempt(&admitted.ticket, Outcome::Unseen, now);
        return Err(NtStatus::USER_SESSION_DELETED);
    };
    setup.is_held = false;
    judge_logon(state, context, &token, wishes, Some(admitted), now)
}

pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: SessionSetupWork,
    result: Result<Reply, NtStatus>,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    match work {
        SessionSetupWork::Late(status) => Err(status),
        SessionSetupWork::Held(held) => {
            expect_done(result)?;
            judge_held_logon(state, context, *held, now)
        }
    }
}

/// Takes the exchange's next token. A password is checked only if its user was `admitted`.
fn judge_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    token: &[u8],
    wishes: Wishes,
    admitted: Option<Admitted>,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    if let Some(admitted) = admitted.as_ref().filter(|_| state.directory.is_behind()) {
        state.logon_guard.end_attempt(&admitted.ticket, Outcome::Unseen, now);
        let detail = "accounts have changed, and this server cannot read how";
        return refuse_logon(state, context, &admitted.user, (NtStatus::NO_LOGON_SERVERS, detail), now);
    }
    let wall = state.clock.at(now);
    let setup = state.setups.get_mut(setup_id(context)?).ok_or(NtStatus::USER_SESSION_DELETED)?;
    let (challenge, random) = (setup.challenge, &mut state.random);
    let wall = challenge.map_or(wall, |challenge| challenge.wall);
    let user = admitted.as_ref().map(|admitted| admitted.user.as_str());
    let lookup = Lookup {
        directory: &state.directory,
        admitted: user,
        was_asked: Cell::new(false),
        found: RefCell::default(),
    };
    let verdict = setup.acceptor.step(token, &lookup, wall, &mut |bytes| match challenge {
        // Of a logon's random values only its challenge is that long.
        Some(shared) if bytes.len() == CHALLENGE_BYTES => bytes.copy_from_slice(&shared.bytes),
        _ => random(bytes),
    });
    let outcome = match &verdict {
        AuthStep::Done(_) => Outcome::Right,
        AuthStep::Denied(_) if lookup.was_asked.get() => Outcome::Wrong,
        AuthStep::Continue(_) | AuthStep::Denied(_) => Outcome::Unseen,
    };
    let account = lookup.found.into_inner();
    let failures =
        admitted.map_or(0, |admitted| state.logon_guard.end_attempt(&admitted.ticket, outcome, now));
    match verdict {
        AuthStep::Continue(answer) => {
            let mut body = Vec::with_capacity(8 + answer.len());
            write_session_setup_response(&mut body, SessionFlags::empty(), &answer);
            Ok(Step::Reply(NtStatus::MORE_PROCESSING_REQUIRED, Body::Bytes(body)))
        }
        AuthStep::Done(accepted) => logged_on(state, context, wishes, *accepted, account, now),
        AuthStep::Denied(denied) => {
            state.counters.logons_failed += 1;
            let reason = denied.reason.to_string();
            note_logon(state, context, LogonAction::Failed, denied.user.as_deref(), reason, now);
            end_failed_logon(state, context, denied.status(), failures, now)
        }
    }
}

fn note_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    action: LogonAction,
    user: Option<&str>,
    detail: String,
    now: Monotonic,
) {
    if let Some(found) = state.connections.get(context.connection) {
        state.logon_audit.note(action, user, found.info.peer, detail, now);
    }
}

/// Finds or begins the exchange that the request belongs to; `context.session` names it afterwards.
fn find_setup<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    header: &Header,
    element: Element<'_>,
    binding: bool,
    dialect: Dialect,
    now: Monotonic,
) -> Result<(), NtStatus> {
    let connection = context.connection;
    let begun = setup_id(context).ok().and_then(|id| state.setups.get(id)).map(|setup| setup.purpose);
    let (mut challenge, mut is_repeated) = (None, false);
    let purpose = if context.session.is_none() {
        if binding {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        let is_used = |name| state.setups.names_session(name);
        context.session = Some(state.sessions.unused_name(&mut state.random, is_used));
        SetupPurpose::New
    } else if binding {
        is_repeated = check_binding(state, context, header, element, dialect)?;
        if begun.is_none() {
            challenge = challenge_of_binding(state, context.session_key()?, now);
        }
        SetupPurpose::Binding
    } else if begun == Some(SetupPurpose::New) {
        // Only a first logon continues without a key. A binding says in each leg that it is one, and each is verified.
        return Ok(());
    } else {
        let session = context.session(&state.sessions)?;
        if session.channel(connection).is_none() {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        // The session protects a repeated logon.
        if context.sealed_by.is_none() {
            if header.flags().contains(HeaderFlags::SIGNED) {
                let (name, id) = (context.session_key()?, context.to.message_id);
                let proof = Verified::by_channel(name, session, connection, element.bytes(), id);
                context.proof = Some(proof.ok_or(NtStatus::ACCESS_DENIED)?);
            } else if session.signing_required {
                return Err(NtStatus::ACCESS_DENIED);
            }
        }
        SetupPurpose::Reauthentication
    };
    let id = setup_id(context)?;
    if let Some(setup) = state.setups.get_mut(id) {
        setup.is_repeated = is_repeated;
        return Ok(());
    }
    let found = state.connections.get_mut(connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let names = ServerNames::standalone(&state.config.server_name);
    let mut acceptor = Acceptor::new(names);
    if let Some(prover) = state.directory.node_prover() {
        acceptor = acceptor.with_nodes(prover);
    }
    let setup = Setup { acceptor, preauth: found.preauth, purpose, challenge, is_repeated, is_held: false };
    found.setups_begun = found.setups_begun.saturating_add(1);
    let host = found.info.peer.ip().into();
    let evicted = state.setups.begin(id, host, found.setups_begun, setup, now);
    state.counters.setups_evicted += u64::from(evicted);
    Ok(())
}

/// The challenge of a logon that binds: shared if its answers are signed with a key that needs it.
fn challenge_of_binding<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    session: SessionKey,
    now: Monotonic,
) -> Option<Challenge> {
    let wall = state.clock.at(now);
    let session = state.sessions.get_mut(session)?;
    let needs_it = session.signing.as_ref()?.algorithm() == SigningAlgorithm::AesGmac;
    needs_it.then(|| session.bindings.shared_challenge(&mut state.random, wall)).flatten()
}

/// Checks that this connection may become a channel of the session (MS-SMB2 3.3.5.5 step 4). Returns
/// whether the request may be a repeated one. A refusal is signed only if the request was genuine.
fn check_binding<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    header: &Header,
    element: Element<'_>,
    dialect: Dialect,
) -> Result<bool, NtStatus> {
    let session = state
        .sessions
        .get(context.session_key()?)
        .filter(|session| session.state == SessionState::Valid)
        .ok_or(NtStatus::USER_SESSION_DELETED)?;
    let (name, connection, id) = (context.session_key()?, context.connection, context.to.message_id);
    let is_signed = header.flags().contains(HeaderFlags::SIGNED);
    if session.channel(connection).is_some() {
        // The connection is already a channel of the session, with its own key.
        let proof = Verified::by_channel(name, session, connection, element.bytes(), id);
        context.proof = proof.filter(|_| is_signed);
        let is_genuine = context.proof.is_some() || context.sealed_by.is_some();
        return Err(if is_genuine { NtStatus::REQUEST_NOT_ACCEPTED } else { NtStatus::ACCESS_DENIED });
    }
    // Signed with the session's key, since this channel has none yet.
    let verified = is_signed
        .then(|| Verified::by_session(name, &mut state.sessions, connection, element.bytes(), id))
        .flatten();
    context.proof = verified.as_ref().map(|verified| verified.proof);
    check_channel_fits(state, context, header, dialect)?;
    let verified = verified.ok_or_else(|| {
        state.counters.bad_signatures += 1;
        NtStatus::ACCESS_DENIED
    })?;
    Ok(verified.is_repeated)
}

/// Checks that the connection has negotiated the same as the session's first one.
fn check_channel_fits<B: Backend, D: Directory>(
    state: &State<B, D>,
    context: &Context,
    header: &Header,
    dialect: Dialect,
) -> Result<(), NtStatus> {
    let connection = state.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let session = context.session(&state.sessions)?;
    let key = session.signing.as_ref().ok_or(NtStatus::USER_SESSION_DELETED)?;
    let ours = connection.signing;
    // A node's session has a separate key for proofs, however its channels sign.
    let theirs = if session.is_node() { ours } else { key.algorithm() };
    // AES-GMAC does not mix with the others, and each direction of the mix has its own refusal.
    if theirs != ours && theirs == SigningAlgorithm::AesGmac {
        return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE);
    }
    if theirs != ours && ours == SigningAlgorithm::AesGmac {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if dialect < Dialect::Smb300 || !connection.server_capabilities.contains(Capabilities::MULTI_CHANNEL) {
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

fn refuse_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    user: &str,
    (status, detail): (NtStatus, &str),
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    state.counters.logons_refused += 1;
    note_logon(state, context, LogonAction::Refused, Some(user), detail.to_owned(), now);
    end_failed_logon(state, context, status, u32::MAX, now)
}

/// Ends the exchange, and delays the answer by the number of `failures`; answers immediately if no
/// password was checked.
fn end_failed_logon<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    status: NtStatus,
    failures: u32,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    // A session whose user could not prove to be the same again ends.
    let setup = state.setups.end(setup_id(context)?);
    if setup.is_some_and(|setup| setup.purpose == SetupPurpose::Reauthentication) {
        state.end_session(context.session_key()?);
    }
    if failures == 0 {
        return Err(status);
    }
    let until = now.after(lateness(state.config.limits.logon_failure_delay, failures));
    Ok(Step::Park(SessionSetupWork::Late(status), Until::Time(until)))
}

/// Truncates a client's name for the server to the length of a log entry.
fn shortened(target: &str) -> String {
    const CHARACTERS_MAX: usize = 128;
    target.chars().take(CHARACTERS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether to accept a logon for the service `target`. A man in the middle may pass on one for another
/// server: without signing he could use it. With signing it is of no use to anybody else, and `target`
/// is most likely a name of this server that is missing in its configuration.
fn is_welcome<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    user: &str,
    target: &str,
) -> bool {
    let Some(found) = state.connections.get(context.connection) else { return true };
    let config = &state.config;
    if target::is_ours(config, found.info.local.ip(), target) {
        return true;
    }
    let refused = config.refuse_other_names || !(config.require_signing || config.require_encryption);
    let name = shortened(target);
    if !state.told.other_names.contains(&name) {
        let peer = found.info.peer;
        let outcome =
            if refused { "it is refused" } else { "it is taken, as all it can do has to be signed" };
        tracing::warn!(
            %peer,
            user,
            meant_for = name,
            "a client logs on that looked for a server of another name; {outcome}. If it is a name of this server, add it to smb.names"
        );
        state.told.other_names.insert(name, ());
    }
    !refused
}

/// Finds the account and rights of a proven identity, or the reason why it is refused.
fn subject_of(
    directory: &impl Directory,
    identity: &Identity,
    account: Option<Account>,
) -> Result<Subject, &'static str> {
    match identity {
        Identity::Anonymous => Err("anonymous logons are not allowed"),
        Identity::User { .. } => {
            account.and_then(Subject::user).ok_or("this account does not log on by a password")
        }
        Identity::Node(node) => directory
            .node(*node)
            .map(|account| Subject::node(*node, account))
            .ok_or("the node is none of the cluster any more"),
    }
}

/// Ends a logon whose proof is right, but which is not taken.
fn turn_away<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    account: Option<&str>,
    why: String,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    state.counters.logons_failed += 1;
    note_logon(state, context, LogonAction::Failed, account, why, now);
    end_failed_logon(state, context, NtStatus::ACCESS_DENIED, 0, now)
}

fn logged_on<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    wishes: Wishes,
    accepted: Accepted,
    account: Option<Account>,
    now: Monotonic,
) -> Result<Step<SessionSetupWork>, NtStatus> {
    let key = context.session_key()?;
    let subject = match subject_of(&state.directory, &accepted.identity, account) {
        Ok(subject) => subject,
        Err(why) => return turn_away(state, context, None, why.to_owned(), now),
    };
    if let Identity::User { target_name: Some(target), .. } = &accepted.identity
        && !is_welcome(state, context, &subject.name, target)
    {
        let detail = format!("the client meant to log on to {}", shortened(target));
        return turn_away(state, context, Some(&subject.name), detail, now);
    }
    let found = state.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    found.setups_begun = 0;
    let setup = state.setups.end(setup_id(context)?).ok_or(NtStatus::USER_SESSION_DELETED)?;
    if setup.challenge.is_some() && setup.is_repeated {
        // The user's own proof would be new: somebody repeats one recorded on another connection.
        return Err(NtStatus::ACCESS_DENIED);
    }
    let flags = match setup.purpose {
        SetupPurpose::New => establish(state, context, &setup.preauth, wishes, subject, &accepted, now)?,
        SetupPurpose::Reauthentication => {
            let session = state.sessions.get_mut(key).ok_or(NtStatus::USER_SESSION_DELETED)?;
            // A session stays as its first logon made it: of a node, with the demands on nodes, or not.
            if subject.is_node() || session.is_node() {
                return Err(NtStatus::ACCESS_DENIED);
            }
            session.credential = subject.credential;
            session.token = subject.token;
            session.account = subject.name;
            let flags = session.flags;
            for tree in policy::stand_on_new_logon(session) {
                state.end_tree(key, tree, now);
            }
            flags
        }
        SetupPurpose::Binding => {
            let has_room = state.sessions.has_room(key, CHANNEL_BYTES);
            let session = state.sessions.get_mut(key).ok_or(NtStatus::USER_SESSION_DELETED)?;
            if session.token.user != subject.token.user || session.is_node() != subject.is_node() {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // Refused no earlier: the first leg of every binding is answered alike (`Bindings`).
            if session.channels.len() >= CHANNELS_PER_SESSION_MAX || !has_room {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            let found =
                state.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
            let schedule = schedule(session.dialect, &setup.preauth);
            // Each channel has its own key, from its own logon.
            let keys = SessionKeys::new(schedule, &accepted.session_key[..]);
            let signing = Rc::new(keys.signing_key(found.signing));
            session.channels.push(Channel { connection: context.connection, signing });
            let flags = session.flags;
            state.sessions.recount(key);
            state.connections.carry(context.connection, key);
            flags
        }
    };
    state.counters.logons += 1;
    // The final answer is signed in any case: it proves the key to the client (MS-SMB2 3.3.5.5.3).
    context.proof = Some(Verified::by_logon(key, context.connection, &accepted));
    let mut body = Vec::with_capacity(8 + accepted.token.len());
    write_session_setup_response(&mut body, flags, &accepted.token);
    Ok(Step::ok(body))
}

/// Makes the session: keys, demands, and the end of the one it replaces.
fn establish<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &Context,
    preauth: &PreauthHash,
    wishes: Wishes,
    subject: Subject,
    accepted: &Accepted,
    now: Monotonic,
) -> Result<SessionFlags, NtStatus> {
    let key = context.session_key()?;
    if let Some(previous) = wishes.previous_session
        && previous != key
        && let Some(old) = state.sessions.get(previous)
        && old.token.user == subject.token.user
        && old.state == SessionState::Valid
    {
        // The client lost its connection before the server noticed: its durable opens wait for it.
        state.end_session(previous);
    }
    let require_encryption = state.config.require_encryption;
    let require_signing = state.config.require_signing;
    let found = state.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    let dialect = found.dialect().ok_or(NtStatus::USER_SESSION_DELETED)?;
    let host = found.info.peer.ip().into();
    if state.sessions.has_other_dialect(dialect, found.client_guid, &subject.token.user) {
        // One client has one dialect of SMB 3 (MS-SMB2 3.3.5.5.3). The user counts as well: a ClientGuid is no secret.
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    let mut session = Session::new(dialect, found.client_guid, subject, host, now);
    let keys = SessionKeys::new(schedule(dialect, preauth), &accepted.session_key[..]);
    if let Some(cipher) = found.cipher {
        let pair = keys.server_ciphers(cipher).map_err(|_| NtStatus::INTERNAL_ERROR)?;
        session.sealing = Some(pair.0);
        session.opening = Some(pair.1);
    } else if require_encryption {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let signing = Rc::new(keys.signing_key(found.signing));
    session.signing =
        Some(if session.is_node() { Rc::new(keys.node_binding_key()) } else { signing.clone() });
    session.bindings = Bindings::new(context.to.message_id);
    session.channels.push(Channel { connection: context.connection, signing });
    session.encrypt = require_encryption;
    session.signing_required |= require_signing
        || wishes.signing_required
        || found.client_security_mode.contains(SecurityMode::SIGNING_REQUIRED);
    if session.encrypt {
        session.flags |= SessionFlags::ENCRYPT_DATA;
    }
    let flags = session.flags;
    state.sessions.insert(key, session)?;
    state.connections.carry(context.connection, key);
    Ok(flags)
}

/// The exchange that a SESSION_SETUP belongs to.
fn setup_id(context: &Context) -> Result<SetupId, NtStatus> {
    Ok(SetupId { connection: context.connection, session: context.session_key()? })
}

fn schedule<'a>(dialect: Dialect, preauth: &'a PreauthHash) -> KeySchedule<'a> {
    match dialect {
        Dialect::Smb202 | Dialect::Smb210 => KeySchedule::Smb2,
        Dialect::Smb300 | Dialect::Smb302 => KeySchedule::Smb30,
        Dialect::Smb311 => KeySchedule::Smb311(preauth),
    }
}
