//! The initiating side: NTLMv2 inside SPNEGO.

use super::ntlm::{Direction, NtlmInitiator, SecurityContext};
use super::spnego::{Mechanism, NegState, NegTokenResp, NegotiationToken, encode_init, encode_resp};
use super::{Credentials, InitiateError, SessionKey, TOKEN_BYTES_MAX};
use types::FileTime;

/// One logon at one server.
pub struct Initiator {
    ntlm: NtlmInitiator,
    first: Vec<u8>,
    mechanisms: Vec<u8>,
    state: State,
}

enum State {
    AwaitChallenge,
    AwaitVerdict(SecurityContext),
    Over,
}

/// What to do after a server's token.
pub enum InitiatorStep {
    /// Send the token in the next SESSION_SETUP.
    Send(Vec<u8>),
    /// The server accepted; the session has this key.
    Done(SessionKey),
}

impl Initiator {
    pub fn new(credentials: Credentials) -> Self {
        let ntlm = NtlmInitiator::new(credentials);
        let (first, mechanisms) = encode_init(&[Mechanism::Ntlm], ntlm.negotiate());
        Self { ntlm, first, mechanisms, state: State::AwaitChallenge }
    }

    /// The first token.
    pub fn first_token(&self) -> &[u8] {
        &self.first
    }

    /// The key of the session, from the moment that the last token was made: what signs the server's last answer.
    pub fn session_key(&self) -> Option<&SessionKey> {
        match &self.state {
            State::AwaitVerdict(context) => Some(context.session_key()),
            _ => None,
        }
    }

    /// Takes the server's next token; an empty one is fine as the last.
    ///
    /// # Errors
    /// [`InitiateError`]; the logon is then over.
    pub fn step(
        &mut self,
        token: &[u8],
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<InitiatorStep, InitiateError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(InitiateError::Malformed);
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitChallenge => self.challenged(token, now, random),
            State::AwaitVerdict(context) => self.verdict(token, &context),
            State::Over => Err(InitiateError::OutOfSequence),
        }
    }

    fn challenged(
        &mut self,
        token: &[u8],
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<InitiatorStep, InitiateError> {
        let resp = parse_resp(token)?;
        if resp.mechanism.is_some_and(|mechanism| mechanism != Mechanism::Ntlm) {
            return Err(InitiateError::Unsupported);
        }
        let challenge = resp.token.ok_or(InitiateError::Malformed)?;
        let (authenticate, context) = self.ntlm.authenticate(challenge, now, random)?;
        let mic = context.sign_first(Direction::ClientToServer, &self.mechanisms);
        let answer = encode_resp(&NegTokenResp {
            state: None,
            mechanism: None,
            token: Some(&authenticate),
            mechanism_list_mic: self.ntlm.has_key().then_some(&mic[..]),
        });
        self.state = State::AwaitVerdict(context);
        Ok(InitiatorStep::Send(answer))
    }

    fn verdict(&self, token: &[u8], context: &SecurityContext) -> Result<InitiatorStep, InitiateError> {
        if !token.is_empty() {
            let resp = parse_resp(token)?;
            if resp.state.is_some_and(|state| state != NegState::AcceptCompleted) {
                return Err(InitiateError::Rejected);
            }
            let right = resp
                .mechanism_list_mic
                .is_none_or(|mic| context.verify_first(Direction::ServerToClient, &self.mechanisms, mic));
            if !right {
                return Err(InitiateError::WrongMechanismListMic);
            }
        }
        Ok(InitiatorStep::Done(context.session_key().clone()))
    }
}

fn parse_resp(token: &[u8]) -> Result<NegTokenResp<'_>, InitiateError> {
    match NegotiationToken::parse(token) {
        Ok(NegotiationToken::Resp(resp)) if resp.state == Some(NegState::Reject) => {
            Err(InitiateError::Rejected)
        }
        Ok(NegotiationToken::Resp(resp)) => Ok(resp),
        _ => Err(InitiateError::Malformed),
    }
}
