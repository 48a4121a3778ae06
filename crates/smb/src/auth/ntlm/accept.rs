//! The accepting side of NTLMv2 (MS-NLMP 3.2.5): NEGOTIATE in, CHALLENGE out, AUTHENTICATE in.
//!
//! Promises: NTProofStr is always compared, with any flags; a MIC is demanded if the client's own proof
//! announces one; a wrong password and an unknown user take the same way.

use super::Flags;
use super::keys::{NtHash, SecurityContext, equal, hmac_md5, nt_proof, ntowf_v2, rc4};
use super::messages::{
    MIC, av, decode_text, encode_challenge, encode_pairs, encode_text, parse_authenticate, parse_blob,
    parse_negotiate, utf16, value_of,
};
use crate::auth::{AccountLookup, Denied, DeniedReason, Identity, NTLM_BYTES_MAX, ServerNames};
use types::FileTime;
use zeroize::Zeroizing;

/// 100 ns units that a client may take from CHALLENGE to AUTHENTICATE: five minutes.
const ANSWER_WITHIN: u64 = 5 * 60 * 10_000_000;
/// 100 ns units that a client's clock may differ if it did not use the challenge's time: 36 hours (MS-NLMP 3.1.1.1).
const CLOCK_SKEW: u64 = 36 * 3600 * 10_000_000;
/// Longest NEGOTIATE in bytes, which is kept until the logon is over: a header, and two names of at most 255 characters in OEM.
const NEGOTIATE_BYTES_MAX: usize = 1024;
/// A response to NTLMv1 has exactly this many bytes.
const NTLM_V1_RESPONSE_BYTES: usize = 24;
const PROOF_BYTES: usize = 16;

enum State {
    Start,
    Challenged(Box<Challenged>),
    Finished,
}

struct Challenged {
    flags: Flags,
    server_challenge: [u8; 8],
    at: FileTime,
    negotiate: Vec<u8>,
    challenge: Vec<u8>,
}

pub(in crate::auth) enum NtlmStep {
    Continue(Vec<u8>),
    Done(Identity, SecurityContext),
}

pub(in crate::auth) struct NtlmAcceptor {
    names: ServerNames,
    state: State,
}

impl NtlmAcceptor {
    pub(in crate::auth) fn new(names: ServerNames) -> Self {
        Self { names, state: State::Start }
    }

    pub(in crate::auth) fn step(
        &mut self,
        token: &[u8],
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<NtlmStep, Denied> {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Start => {
                let challenged = self.challenge(token, now, random)?;
                let message = challenged.challenge.clone();
                self.state = State::Challenged(Box::new(challenged));
                Ok(NtlmStep::Continue(message))
            }
            State::Challenged(challenged) => self.authenticate(token, &challenged, accounts, now, random),
            State::Finished => Err(DeniedReason::OutOfSequence.into()),
        }
    }

    /// The user that an AUTHENTICATE names, if one is due.
    pub(in crate::auth) fn claimed_user(&self, message: &[u8]) -> Option<String> {
        let State::Challenged(challenged) = &self.state else { return None };
        if message.len() > NTLM_BYTES_MAX {
            return None;
        }
        let fields = parse_authenticate(message).ok()?;
        let user = decode_text(fields.user, challenged.flags & fields.flags).ok()?;
        let is_anonymous = user.is_empty() && fields.nt_response.is_empty();
        if is_anonymous { None } else { String::from_utf16(&user).ok() }
    }

    fn challenge(
        &self,
        negotiate: &[u8],
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Challenged, Denied> {
        if negotiate.len() > NEGOTIATE_BYTES_MAX {
            return Err(DeniedReason::Malformed.into());
        }
        let asked = parse_negotiate(negotiate).map_err(|_| DeniedReason::Malformed)?;
        let text = if asked.contains(Flags::UNICODE) {
            Flags::UNICODE
        } else if asked.contains(Flags::OEM) {
            Flags::OEM
        } else {
            return Err(DeniedReason::Unsupported.into());
        };
        if !asked.contains(Flags::EXTENDED_SESSION_SECURITY) {
            return Err(DeniedReason::Unsupported.into());
        }
        let granted = asked
            & (Flags::REQUEST_TARGET
                | Flags::SIGN
                | Flags::SEAL
                | Flags::ALWAYS_SIGN
                | Flags::KEY_128
                | Flags::KEY_56
                | Flags::KEY_EXCHANGE
                | Flags::VERSION);
        let flags = granted
            | text
            | Flags::NTLM
            | Flags::EXTENDED_SESSION_SECURITY
            | Flags::TARGET_INFO
            | Flags::TARGET_TYPE_SERVER;
        let mut server_challenge = [0; 8];
        random(&mut server_challenge);
        let pairs = self.target_pairs(now);
        let target_info = encode_pairs(pairs.iter().map(|(id, value)| (*id, value.as_slice())));
        let target_name = encode_text(&self.names.netbios_domain, flags);
        let challenge = encode_challenge(flags, server_challenge, &target_name, &target_info);
        Ok(Challenged { flags, server_challenge, at: now, negotiate: negotiate.to_vec(), challenge })
    }

    fn target_pairs(&self, time: FileTime) -> [(u16, Vec<u8>); 5] {
        [
            (av::NETBIOS_DOMAIN_NAME, utf16(&self.names.netbios_domain)),
            (av::NETBIOS_COMPUTER_NAME, utf16(&self.names.netbios_computer)),
            (av::DNS_DOMAIN_NAME, utf16(&self.names.dns_domain)),
            (av::DNS_COMPUTER_NAME, utf16(&self.names.dns_computer)),
            (av::TIMESTAMP, time.0.to_le_bytes().to_vec()),
        ]
    }

    fn authenticate(
        &self,
        message: &[u8],
        challenged: &Challenged,
        accounts: &dyn AccountLookup,
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<NtlmStep, Denied> {
        if message.len() > NTLM_BYTES_MAX {
            return Err(DeniedReason::Malformed.into());
        }
        let fields = parse_authenticate(message).map_err(|_| DeniedReason::Malformed)?;
        // The client narrows what was offered and cannot widen it.
        let flags = challenged.flags & fields.flags;
        if !flags.contains(Flags::EXTENDED_SESSION_SECURITY) {
            return Err(DeniedReason::Unsupported.into());
        }
        let text = |bytes| decode_text(bytes, flags).map_err(|_| DeniedReason::Malformed);
        let (user, domain, workstation) =
            (text(fields.user)?, text(fields.domain)?, text(fields.workstation)?);

        // MS-NLMP 3.2.5.1.2: no user and no response is an anonymous logon; whether it is welcome is for the caller to say.
        if user.is_empty() && fields.nt_response.is_empty() && matches!(fields.lm_response, [] | [0]) {
            let context = session_context(Zeroizing::new([0; 16]), flags, fields.encrypted_session_key)?;
            return Ok(NtlmStep::Done(Identity::Anonymous, context));
        }

        let name = |units: &[u16]| String::from_utf16(units).map_err(|_| DeniedReason::Malformed);
        let (user_name, domain_name) = (name(&user)?, name(&domain)?);
        let deny =
            |reason| Denied { reason, user: Some(user_name.clone()), domain: Some(domain_name.clone()) };

        if now.0.saturating_sub(challenged.at.0) > ANSWER_WITHIN {
            return Err(deny(DeniedReason::Expired));
        }
        if fields.nt_response.len() <= NTLM_V1_RESPONSE_BYTES {
            return Err(deny(DeniedReason::NotNtlmV2));
        }
        let (proof, blob) =
            fields.nt_response.split_at_checked(PROOF_BYTES).ok_or_else(|| deny(DeniedReason::NotNtlmV2))?;
        let parsed = parse_blob(blob).map_err(|_| deny(DeniedReason::Malformed))?;

        // A user who does not exist is compared with a hash nobody has, so that the answer takes the same time.
        let found = accounts.nt_hash(&user_name, &domain_name);
        let is_known = found.is_some();
        let hash = found.unwrap_or_else(|| {
            let mut nobody = [0; 16];
            random(&mut nobody);
            NtHash::from_bytes(nobody)
        });
        let response_key = ntowf_v2(&hash, &user, &domain);
        let expected = nt_proof(&response_key, &challenged.server_challenge, blob);
        if !equal(&*expected, proof) || !is_known {
            return Err(deny(if is_known { DeniedReason::WrongPassword } else { DeniedReason::UnknownUser }));
        }

        self.check_target(&parsed.pairs, challenged.at).map_err(deny)?;
        if value_of(&parsed.pairs, av::TIMESTAMP).is_none() && parsed.time.0.abs_diff(now.0) > CLOCK_SKEW {
            return Err(deny(DeniedReason::Expired));
        }

        let key_exchange_key = hmac_md5(&*response_key, &[proof]);
        let context = session_context(key_exchange_key, flags, fields.encrypted_session_key).map_err(deny)?;
        if announces_mic(&parsed.pairs) && !mic_is_right(message, fields.payload_at, challenged, &context) {
            return Err(deny(DeniedReason::WrongMic));
        }

        let identity = Identity::User {
            user: user_name,
            domain: domain_name,
            workstation: String::from_utf16_lossy(&workstation),
            target_name: target_name(&parsed.pairs),
        };
        Ok(NtlmStep::Done(identity, context))
    }

    /// Checks that the target information which the client's proof repeats is ours: else it was meant for another server.
    fn check_target(&self, pairs: &[(u16, &[u8])], challenged_at: FileTime) -> Result<(), DeniedReason> {
        let ours = self.target_pairs(challenged_at);
        let same = ours.iter().all(|(id, value)| value_of(pairs, *id).is_none_or(|theirs| theirs == value));
        if same { Ok(()) } else { Err(DeniedReason::OtherTarget) }
    }
}

/// The exported session key: the client's own, encrypted, if keys are exchanged; else the key that follows from the proof.
fn session_context(
    key_exchange_key: Zeroizing<[u8; 16]>,
    flags: Flags,
    encrypted_session_key: &[u8],
) -> Result<SecurityContext, DeniedReason> {
    if !flags.contains(Flags::KEY_EXCHANGE) {
        return Ok(SecurityContext::new(key_exchange_key, flags));
    }
    let mut exported: Zeroizing<[u8; 16]> =
        Zeroizing::new(encrypted_session_key.try_into().map_err(|_| DeniedReason::Malformed)?);
    rc4(&*key_exchange_key, &mut *exported);
    Ok(SecurityContext::new(exported, flags))
}

fn mic_is_right(
    message: &[u8],
    payload_at: usize,
    challenged: &Challenged,
    context: &SecurityContext,
) -> bool {
    let (Some(before), Some(mic), Some(after)) =
        (message.get(..MIC.start), message.get(MIC), message.get(MIC.end..))
    else {
        return false;
    };
    // If contents begin before the end of the MIC there is no MIC, only bytes that happen to lie there.
    if payload_at < MIC.end {
        return false;
    }
    let key = context.session_key();
    let expected = hmac_md5(&**key, &[&challenged.negotiate, &challenged.challenge, before, &[0; 16], after]);
    equal(&*expected, mic)
}

/// Whether the client's proof says that a MIC is there (MS-NLMP 2.2.2.1, MsvAvFlags).
fn announces_mic(pairs: &[(u16, &[u8])]) -> bool {
    value_of(pairs, av::FLAGS)
        .and_then(|value| value.first_chunk())
        .is_some_and(|value| u32::from_le_bytes(*value) & av::FLAG_MIC != 0)
}

/// The service that the client believes to talk to.
fn target_name(pairs: &[(u16, &[u8])]) -> Option<String> {
    value_of(pairs, av::TARGET_NAME)
        .and_then(|value| decode_text(value, Flags::UNICODE).ok())
        .and_then(|units| String::from_utf16(&units).ok())
        .filter(|target| !target.is_empty())
}
