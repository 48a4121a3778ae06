//! The initiating side of NTLMv2 (MS-NLMP 3.1.5): NEGOTIATE out, CHALLENGE in, AUTHENTICATE with a MIC out.

use super::Flags;
use super::keys::{SecurityContext, hmac_md5, nt_proof, ntowf_v2, rc4};
use super::messages::{
    Authenticate, MIC, av, encode_authenticate, encode_blob, encode_negotiate, encode_pairs, encode_text,
    parse_challenge, parse_pairs, utf16, value_of,
};
use crate::auth::{Credentials, InitiateError};
use types::FileTime;
use zeroize::Zeroizing;

const OFFERED: Flags = Flags::UNICODE
    .union(Flags::REQUEST_TARGET)
    .union(Flags::SIGN)
    .union(Flags::SEAL)
    .union(Flags::NTLM)
    .union(Flags::ALWAYS_SIGN)
    .union(Flags::EXTENDED_SESSION_SECURITY)
    .union(Flags::TARGET_INFO)
    .union(Flags::VERSION)
    .union(Flags::KEY_128)
    .union(Flags::KEY_56)
    .union(Flags::KEY_EXCHANGE);

pub(in crate::auth) struct NtlmInitiator {
    credentials: Credentials,
    negotiate: Vec<u8>,
}

impl NtlmInitiator {
    pub(in crate::auth) fn new(credentials: Credentials) -> Self {
        Self { credentials, negotiate: encode_negotiate(OFFERED) }
    }

    /// Whether the session will have a key that others do not know.
    pub(in crate::auth) fn has_key(&self) -> bool {
        matches!(self.credentials, Credentials::User { .. })
    }

    /// The NEGOTIATE message.
    pub(in crate::auth) fn negotiate(&self) -> &[u8] {
        &self.negotiate
    }

    /// Answers CHALLENGE with AUTHENTICATE.
    pub(in crate::auth) fn authenticate(
        &self,
        message: &[u8],
        now: FileTime,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(Vec<u8>, SecurityContext), InitiateError> {
        let challenge = parse_challenge(message).map_err(|_| InitiateError::Malformed)?;
        let flags = challenge.flags & OFFERED;
        if !flags.contains(Flags::UNICODE | Flags::EXTENDED_SESSION_SECURITY | Flags::KEY_128) {
            return Err(InitiateError::Unsupported);
        }
        let Credentials::User { user, domain, workstation, hash, target_name } = &self.credentials else {
            return Ok(self.anonymous(flags));
        };

        let pairs = parse_pairs(challenge.target_info).map_err(|_| InitiateError::Malformed)?;
        let server_time = value_of(&pairs, av::TIMESTAMP).and_then(|value| value.first_chunk());
        let time = server_time.map_or(now, |value| FileTime(u64::from_le_bytes(*value)));
        let target_name = utf16(target_name);
        let mic_announced = (av::FLAG_MIC).to_le_bytes();
        let ours = [(av::FLAGS, &mic_announced[..]), (av::TARGET_NAME, &target_name[..])];
        let theirs = pairs.into_iter().filter(|(id, _)| !ours.iter().any(|(our, _)| our == id));
        let target_info = encode_pairs(theirs.chain(ours));
        let mut client_challenge = [0; 8];
        random(&mut client_challenge);
        let blob = encode_blob(time, client_challenge, &target_info);

        let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
        let response_key = ntowf_v2(hash, &units(user), &units(domain));
        let proof = nt_proof(&response_key, &challenge.server_challenge, &blob);
        let key_exchange_key = hmac_md5(&*response_key, &[&*proof]);
        let mut encrypted = [0; 16];
        let exported = if flags.contains(Flags::KEY_EXCHANGE) {
            let mut exported = Zeroizing::new([0; 16]);
            random(&mut *exported);
            encrypted = *exported;
            rc4(&*key_exchange_key, &mut encrypted);
            exported
        } else {
            key_exchange_key
        };
        let nt_response = [&proof[..], &blob].concat();
        let mut authenticate = encode_authenticate(&Authenticate {
            // With a time in the target information the LMv2 response is 24 zeros (MS-NLMP 3.1.5.1.2).
            lm_response: &[0; 24],
            nt_response: &nt_response,
            domain: &encode_text(domain, flags),
            user: &encode_text(user, flags),
            workstation: &encode_text(workstation, flags),
            encrypted_session_key: if flags.contains(Flags::KEY_EXCHANGE) { &encrypted } else { &[] },
            flags,
            payload_at: MIC.end,
        });
        let mic = hmac_md5(&*exported, &[&self.negotiate, message, &authenticate]);
        authenticate[MIC].copy_from_slice(&*mic);
        Ok((authenticate, SecurityContext::new(exported, flags)))
    }

    fn anonymous(&self, flags: Flags) -> (Vec<u8>, SecurityContext) {
        let flags = (flags | Flags::ANONYMOUS) & !Flags::KEY_EXCHANGE;
        let authenticate = encode_authenticate(&Authenticate {
            lm_response: &[0],
            nt_response: &[],
            domain: &[],
            user: &[],
            workstation: &[],
            encrypted_session_key: &[],
            flags,
            payload_at: MIC.end,
        });
        (authenticate, SecurityContext::new(Zeroizing::new([0; 16]), flags))
    }
}
