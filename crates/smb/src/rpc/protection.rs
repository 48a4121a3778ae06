//! A logon in a pipe (MS-RPCE 3.3.1.5.2): NTLM, bare or in SPNEGO, and the signing and sealing of calls and answers that follow from it.
//!
//! The session below has proved who its user is, and a pipe acts for that user alone: a logon as anybody else is refused like a wrong
//! password, so that pipes are no place to try passwords at.

use super::pdu::{Header, RESPONSE_HEADER_BYTES, Security, TRAILER_BYTES, Trailer};
use super::{Directory, RpcCaller};
use crate::auth::{
    Acceptor, AccountLookup, AuthStep, Identity, MessageSecurity, NtHash, ServerNames, TOKEN_BYTES_MAX,
};
use std::ops::Range;

/// RPC_C_AUTHN_GSS_NEGOTIATE and RPC_C_AUTHN_WINNT (MS-RPCE 2.2.1.1.7).
const SPNEGO: u8 = 9;
const NTLM: u8 = 10;
/// RPC_C_AUTHN_LEVEL_CONNECT, PKT, PKT_INTEGRITY and PKT_PRIVACY (MS-RPCE 2.2.1.1.8).
const CONNECT: u8 = 2;
const PACKET: u8 = 4;
const INTEGRITY: u8 = 5;
const PRIVACY: u8 = 6;

enum State {
    LoggingOn(Box<Acceptor>),
    Done(Box<MessageSecurity>),
    Refused,
}

/// The outcome of a token.
pub(super) enum Progress {
    /// The token to send.
    Token(Vec<u8>),
    Refused,
}

/// Protection of a pipe's calls.
pub(super) struct Protection {
    terms: Security,
    pub(super) signs_headers: bool,
    state: State,
}

/// The session's user, who alone may log on.
struct SameUser<'a>(&'a RpcCaller);

impl AccountLookup for SameUser<'_> {
    fn nt_hash(&self, user: &str, _domain: &str) -> Option<NtHash> {
        let is_same = user.to_lowercase() == self.0.user.to_lowercase();
        self.0.nt_hash.clone().filter(|_| is_same)
    }
}

impl Protection {
    /// Begins a logon as a BIND asks for it; `None`: in a way that is not spoken.
    pub(super) fn begin(
        trailer: &Trailer<'_>,
        signs_headers: bool,
        directory: &dyn Directory,
    ) -> Option<Self> {
        let is_spoken = matches!(trailer.kind, SPNEGO | NTLM)
            && matches!(trailer.level, CONNECT | PACKET | INTEGRITY | PRIVACY);
        let names = ServerNames::standalone(&directory.server().name);
        is_spoken.then(|| Self {
            terms: Security { kind: trailer.kind, level: trailer.level, context_id: trailer.context_id },
            signs_headers,
            state: State::LoggingOn(Box::new(Acceptor::new(names))),
        })
    }

    pub(super) fn terms(&self) -> Security {
        self.terms
    }

    /// Takes the client's next token.
    pub(super) fn step(
        &mut self,
        trailer: &Trailer<'_>,
        caller: &RpcCaller,
        directory: &dyn Directory,
    ) -> Progress {
        let is_same = trailer.kind == self.terms.kind
            && trailer.level == self.terms.level
            && trailer.context_id == self.terms.context_id
            && trailer.value.len() <= TOKEN_BYTES_MAX;
        let state = std::mem::replace(&mut self.state, State::Refused);
        let State::LoggingOn(mut acceptor) = state else { return Progress::Refused };
        if !is_same {
            return Progress::Refused;
        }
        let mut random = |bytes: &mut [u8]| directory.random(bytes);
        match acceptor.step(trailer.value, &SameUser(caller), directory.now(), &mut random) {
            AuthStep::Continue(token) => {
                self.state = State::LoggingOn(acceptor);
                Progress::Token(token)
            }
            // Everybody knows the key of an anonymous logon.
            AuthStep::Done(accepted) if matches!(accepted.identity, Identity::User { .. }) => {
                let Some(security) = accepted.message_security else { return Progress::Refused };
                self.state = State::Done(Box::new(security));
                Progress::Token(accepted.token)
            }
            AuthStep::Done(_) | AuthStep::Denied(_) => Progress::Refused,
        }
    }

    fn is_signed(&self) -> bool {
        self.terms.level != CONNECT
    }

    /// Bytes of the PDU that its signature covers, when its stub with the padding is at `body`.
    fn signed(&self, body: &Range<usize>) -> Range<usize> {
        if self.signs_headers { 0..body.end + TRAILER_BYTES } else { body.clone() }
    }

    fn sealed(&self, body: &Range<usize>) -> Option<Range<usize>> {
        (self.terms.level == PRIVACY).then(|| body.clone())
    }

    /// Checks a call's PDU, decrypted in place, and answers where its stub is. `None`: it is not the client's, or not to be taken.
    pub(super) fn open(&mut self, header: &Header, pdu: &mut [u8], stub_at: usize) -> Option<Range<usize>> {
        let is_signed = self.is_signed();
        let trailer = Trailer::parse(header, pdu).ok()?;
        let State::Done(_) = &self.state else { return None };
        let Some(trailer) = trailer else { return (!is_signed).then_some(stub_at..pdu.len()) };
        let (at, padding) = (trailer.at, usize::from(trailer.padding));
        let terms = Security { kind: trailer.kind, level: trailer.level, context_id: trailer.context_id };
        let end = at.checked_sub(padding).filter(|end| *end >= stub_at)?;
        if terms != self.terms {
            return None;
        }
        if is_signed {
            let signature = trailer.value.to_vec();
            let body = stub_at..at;
            let (signed, sealed) = (self.signed(&body), self.sealed(&body));
            let State::Done(security) = &mut self.state else { return None };
            if !security.verify(pdu, signed, sealed, &signature) {
                return None;
            }
        }
        Some(stub_at..end)
    }

    /// The trailer of answers and the bytes of their signatures; `None`: answers are not protected.
    pub(super) fn of_answers(&self) -> Option<(Security, usize)> {
        let is_done = matches!(self.state, State::Done(_));
        (is_done && self.is_signed()).then_some((self.terms, MessageSecurity::SIGNATURE_BYTES))
    }

    /// Signs an answer, and encrypts it if that was agreed: the next one that the client reads.
    pub(super) fn close(&mut self, pdu: &mut [u8]) {
        let Some(signature_at) = pdu.len().checked_sub(MessageSecurity::SIGNATURE_BYTES) else { return };
        let body = RESPONSE_HEADER_BYTES..signature_at - TRAILER_BYTES;
        let (signed, sealed) = (self.signed(&body), self.sealed(&body));
        if let State::Done(security) = &mut self.state {
            let signature = security.protect(pdu, signed, sealed);
            pdu[signature_at..].copy_from_slice(&signature);
        }
    }
}
