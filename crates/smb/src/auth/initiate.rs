//! The initiating side: NTLMv2, or the logon of a node, inside SPNEGO.

use super::node::{Heard, NodeCredentials, NodeInitiator};
use super::ntlm::{Direction, NtlmInitiator, SecurityContext};
use super::spnego::{Mechanism, NegState, NegTokenResp, NegotiationToken, encode_init, encode_resp};
use super::{Credentials, InitiateError, SessionKey, TOKEN_BYTES_MAX};
use crate::crypto::PreauthHash;
use types::FileTime;

/// One logon at one server.
pub struct Initiator {
    way: Way,
    /// Hashes of the messages around the next token.
    heard: Option<Heard>,
    first: Vec<u8>,
    mechanisms: Vec<u8>,
    state: State,
}

enum Way {
    Ntlm(NtlmInitiator),
    Node(Box<NodeInitiator>),
}

enum State {
    AwaitChallenge,
    AwaitVerdict(SecurityContext),
    /// Of a node.
    AwaitWelcome(SessionKey),
    Over,
}

/// The next step after a server's token.
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
        Self { way: Way::Ntlm(ntlm), heard: None, first, mechanisms, state: State::AwaitChallenge }
    }

    /// One node's logon at another one.
    ///
    /// # Errors
    /// [`InitiateError`] if it is the node itself that is meant.
    pub fn of_node(
        credentials: NodeCredentials,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Self, InitiateError> {
        let node = Box::new(NodeInitiator::new(credentials, random)?);
        let (first, mechanisms) = encode_init(&[Mechanism::CenoteNode], node.hello());
        Ok(Self { way: Way::Node(node), heard: None, first, mechanisms, state: State::AwaitChallenge })
    }

    /// Whether it is a node's logon.
    pub fn is_of_node(&self) -> bool {
        matches!(self.way, Way::Node(_))
    }

    /// Takes the preauthentication integrity hash before and behind the message that brought the next
    /// token. Without it, as before SMB 3.1.1, no node logs on.
    pub fn hear(&mut self, before: PreauthHash, behind: PreauthHash) {
        self.heard = Some(Heard { before, behind });
    }

    /// The first token.
    pub fn first_token(&self) -> &[u8] {
        &self.first
    }

    /// The key of the session, once the last token was made: it signs the server's last answer.
    pub fn session_key(&self) -> Option<&SessionKey> {
        match &self.state {
            State::AwaitVerdict(context) => Some(context.session_key()),
            State::AwaitWelcome(key) => Some(key),
            State::AwaitChallenge | State::Over => None,
        }
    }

    /// The client's keys for messages, while the server has not answered the last token yet.
    #[cfg(test)]
    pub(crate) fn message_security(&self) -> Option<super::MessageSecurity> {
        match &self.state {
            State::AwaitVerdict(context) => {
                context.message_security(true).map(super::MessageSecurity::reversed)
            }
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
            State::AwaitWelcome(key) => welcomed(token, key),
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
        let own = if self.is_of_node() { Mechanism::CenoteNode } else { Mechanism::Ntlm };
        if resp.mechanism.is_some_and(|mechanism| mechanism != own) {
            return Err(InitiateError::Unsupported);
        }
        let challenge = resp.token.ok_or(InitiateError::Malformed)?;
        let ntlm = match &self.way {
            Way::Ntlm(ntlm) => ntlm,
            Way::Node(node) => {
                let (proof, key) = node.prove(challenge, self.heard.take(), now)?;
                self.state = State::AwaitWelcome(key);
                let token = Some(&proof[..]);
                return Ok(InitiatorStep::Send(encode_resp(&NegTokenResp {
                    token,
                    ..NegTokenResp::default()
                })));
            }
        };
        let (authenticate, context) = ntlm.authenticate(challenge, now, random)?;
        let mic = context.sign_first(Direction::ClientToServer, &self.mechanisms);
        let answer = encode_resp(&NegTokenResp {
            state: None,
            mechanism: None,
            token: Some(&authenticate),
            mechanism_list_mic: ntlm.has_key().then_some(&mic[..]),
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

/// The node is in. The proof that it came from the other node is the signature of the message with the session's key.
fn welcomed(token: &[u8], key: SessionKey) -> Result<InitiatorStep, InitiateError> {
    match parse_resp(token)?.state {
        Some(NegState::AcceptCompleted) => Ok(InitiatorStep::Done(key)),
        _ => Err(InitiateError::Rejected),
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
