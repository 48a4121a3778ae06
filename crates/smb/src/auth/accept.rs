//! The accepting side: SPNEGO, around NTLM or a node's logon, or bare NTLMSSP in, tokens and a verdict out.

use super::node::{Heard, NodeAcceptor, NodeProver};
use super::ntlm::{Direction, NtlmAcceptor, NtlmStep, SIGNATURE, SecurityContext};
use super::spnego::{Mechanism, NegState, NegTokenInit, NegTokenResp, NegotiationToken, encode_resp};
use super::{
    Accepted, AccountLookup, AuthStep, Denied, DeniedReason, Identity, ServerNames, TOKEN_BYTES_MAX,
};
use crate::crypto::PreauthHash;
use std::sync::Arc;
use types::FileTime;

/// Longest encoded MechTypeList in bytes that is kept until the logon is over; 32 identifiers of common length fill half of it.
const MECHANISMS_BYTES_MAX: usize = 1024;

/// One logon of one client: fed with tokens until it is done or denied. Keeps a few KiB between them at most.
pub struct Acceptor {
    ntlm: NtlmAcceptor,
    /// Set on a node of a cluster.
    node: Option<NodeAcceptor>,
    /// Hashes of the messages around the next token.
    heard: Option<Heard>,
    framing: Framing,
}

/// How the client wraps its NTLM messages.
enum Framing {
    /// Nothing has come yet.
    Unknown,
    /// NTLMSSP without SPNEGO.
    Raw,
    /// SPNEGO.
    Negotiated {
        /// The client's encoded MechTypeList.
        mechanisms: Vec<u8>,
        /// NTLM was not what the client wanted most, so that its list has to be protected (RFC 4178 section 5).
        list_mic_required: bool,
    },
    /// SPNEGO around the logon of a node.
    Node,
    /// The verdict has been given.
    Over,
}

impl Acceptor {
    /// Begins a logon that takes NTLM alone; `names` go into its challenge (MS-NLMP 2.2.1.2).
    pub fn new(names: ServerNames) -> Self {
        Self { ntlm: NtlmAcceptor::new(names), node: None, heard: None, framing: Framing::Unknown }
    }

    /// Takes logons of nodes as well.
    #[must_use]
    pub fn with_nodes(self, prover: Arc<dyn NodeProver>) -> Self {
        Self { node: Some(NodeAcceptor::new(prover)), ..self }
    }

    /// Takes the preauthentication integrity hash before and behind the message that brings the next token.
    /// Without it, as before SMB 3.1.1, no node logs on.
    pub fn hear(&mut self, before: PreauthHash, behind: PreauthHash) {
        self.heard = Some(Heard { before, behind });
    }

    /// The user whose password the next token would have checked; `None`: of no user. So a caller can decide
    /// about the user before [`Self::step`] does about the password.
    pub fn claimed_user(&self, token: &[u8]) -> Option<String> {
        match &self.framing {
            Framing::Raw => self.ntlm.claimed_user(token),
            Framing::Negotiated { .. } => match NegotiationToken::parse(token) {
                Ok(NegotiationToken::Resp(resp)) => self.ntlm.claimed_user(resp.token?),
                _ => None,
            },
            Framing::Unknown | Framing::Node | Framing::Over => None,
        }
    }

    /// Takes the client's next token. `random` fills a slice with bytes nobody can guess.
    pub fn step(
        &mut self,
        token: &[u8],
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> AuthStep {
        let outcome = if token.len() > TOKEN_BYTES_MAX {
            Err(DeniedReason::Malformed.into())
        } else {
            self.try_step(token, accounts, now, random)
        };
        self.heard = None;
        let step = outcome.unwrap_or_else(AuthStep::Denied);
        if !matches!(step, AuthStep::Continue(_)) {
            self.framing = Framing::Over;
        }
        step
    }

    fn try_step(
        &mut self,
        token: &[u8],
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<AuthStep, Denied> {
        if matches!(self.framing, Framing::Unknown) && token.starts_with(SIGNATURE) {
            self.framing = Framing::Raw;
        }
        match &self.framing {
            Framing::Over => Err(DeniedReason::OutOfSequence.into()),
            Framing::Raw => match self.ntlm.step(token, accounts, now, random)? {
                NtlmStep::Continue(answer) => Ok(AuthStep::Continue(answer)),
                NtlmStep::Done(identity, context) => Ok(done(identity, &context, Vec::new(), false)),
            },
            Framing::Unknown => match NegotiationToken::parse(token) {
                Ok(NegotiationToken::Init(init)) => self.first(&init, accounts, now, random),
                Ok(NegotiationToken::Resp(_)) => Err(DeniedReason::OutOfSequence.into()),
                Err(_) => Err(DeniedReason::Malformed.into()),
            },
            Framing::Node => match NegotiationToken::parse(token) {
                Ok(NegotiationToken::Resp(resp)) => self.node_proof(&resp, now),
                Ok(NegotiationToken::Init(_)) => Err(DeniedReason::OutOfSequence.into()),
                Err(_) => Err(DeniedReason::Malformed.into()),
            },
            Framing::Negotiated { .. } => match NegotiationToken::parse(token) {
                Ok(NegotiationToken::Resp(resp)) => self.next(&resp, accounts, now, random),
                Ok(NegotiationToken::Init(_)) => Err(DeniedReason::OutOfSequence.into()),
                Err(_) => Err(DeniedReason::Malformed.into()),
            },
        }
    }

    /// The client's list, and its first message if it guessed the mechanism right.
    fn first(
        &mut self,
        init: &NegTokenInit<'_>,
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<AuthStep, Denied> {
        if self.node.is_some() && init.mechanisms == [Some(Mechanism::CenoteNode)] {
            return self.node_hello(init, random);
        }
        if !init.mechanisms.contains(&Some(Mechanism::Ntlm)) {
            return Err(DeniedReason::Unsupported.into());
        }
        if init.mechanisms_encoded.len() > MECHANISMS_BYTES_MAX {
            return Err(DeniedReason::Malformed.into());
        }
        let preferred = init.mechanisms.first() == Some(&Some(Mechanism::Ntlm));
        self.framing = Framing::Negotiated {
            mechanisms: init.mechanisms_encoded.to_vec(),
            list_mic_required: !preferred,
        };
        let answer = match init.token {
            Some(token) if preferred => match self.ntlm.step(token, accounts, now, random)? {
                NtlmStep::Continue(answer) => Some(answer),
                NtlmStep::Done(..) => return Err(DeniedReason::OutOfSequence.into()),
            },
            // The token belongs to a mechanism that is not spoken here.
            _ => None,
        };
        Ok(AuthStep::Continue(encode_resp(&NegTokenResp {
            state: Some(if preferred { NegState::AcceptIncomplete } else { NegState::RequestMic }),
            mechanism: Some(Mechanism::Ntlm),
            token: answer.as_deref(),
            mechanism_list_mic: None,
        })))
    }

    /// A node begins: it proposes nothing else, so that there is no list to be changed on the way.
    fn node_hello(
        &mut self,
        init: &NegTokenInit<'_>,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<AuthStep, Denied> {
        let (Some(node), Some(token)) = (&mut self.node, init.token) else {
            return Err(DeniedReason::Malformed.into());
        };
        let answer = node.hello(token, self.heard, random)?;
        self.framing = Framing::Node;
        Ok(AuthStep::Continue(encode_resp(&NegTokenResp {
            state: Some(NegState::AcceptIncomplete),
            mechanism: Some(Mechanism::CenoteNode),
            token: Some(&answer),
            mechanism_list_mic: None,
        })))
    }

    fn node_proof(&mut self, resp: &NegTokenResp<'_>, now: FileTime) -> Result<AuthStep, Denied> {
        let (Some(node), Some(token)) = (&mut self.node, resp.token) else {
            return Err(DeniedReason::Malformed.into());
        };
        let (node, session_key) = node.proof(token, self.heard, now)?;
        let state = Some(NegState::AcceptCompleted);
        let token = encode_resp(&NegTokenResp { state, ..NegTokenResp::default() });
        Ok(AuthStep::Done(Box::new(Accepted {
            identity: Identity::Node(node),
            session_key,
            token,
            message_security: None,
        })))
    }

    fn next(
        &mut self,
        resp: &NegTokenResp<'_>,
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<AuthStep, Denied> {
        let Framing::Negotiated { mechanisms, list_mic_required } = &self.framing else {
            return Err(DeniedReason::OutOfSequence.into());
        };
        let token = resp.token.ok_or(DeniedReason::Malformed)?;
        let (identity, context) = match self.ntlm.step(token, accounts, now, random)? {
            NtlmStep::Continue(answer) => {
                return Ok(AuthStep::Continue(encode_resp(&NegTokenResp {
                    state: Some(NegState::AcceptIncomplete),
                    mechanism: None,
                    token: Some(&answer),
                    mechanism_list_mic: None,
                })));
            }
            NtlmStep::Done(identity, context) => (identity, context),
        };
        let our_mic = match resp.mechanism_list_mic {
            Some(mic) if context.verify_first(Direction::ClientToServer, mechanisms, mic) => {
                Some(context.sign_first(Direction::ServerToClient, mechanisms))
            }
            // Everybody knows an anonymous session's key: nothing is protected, and nothing claimed to be.
            None if !list_mic_required || identity == Identity::Anonymous => None,
            _ => return Err(name_denied(DeniedReason::WrongMechanismListMic, &identity)),
        };
        let token = encode_resp(&NegTokenResp {
            state: Some(NegState::AcceptCompleted),
            mechanism: None,
            token: None,
            mechanism_list_mic: our_mic.as_ref().map(|mic| &mic[..]),
        });
        Ok(done(identity, &context, token, our_mic.is_some()))
    }
}

fn done(identity: Identity, context: &SecurityContext, token: Vec<u8>, is_list_signed: bool) -> AuthStep {
    let message_security = context.message_security(is_list_signed);
    AuthStep::Done(Box::new(Accepted {
        identity,
        session_key: context.session_key().clone(),
        token,
        message_security,
    }))
}

fn name_denied(reason: DeniedReason, identity: &Identity) -> Denied {
    match identity {
        Identity::Anonymous | Identity::Node(_) => reason.into(),
        Identity::User { user, domain, .. } => {
            Denied { reason, user: Some(user.clone()), domain: Some(domain.clone()) }
        }
    }
}
