//! A forge for tests: NTLM messages with every field under the test's control.

use super::Flags;
use super::keys::{NtHash, hmac_md5, nt_proof, ntowf_v2, rc4};
use super::messages::*;
use types::FileTime;

pub(in crate::auth) struct Forgery {
    pub(in crate::auth) user: String,
    pub(in crate::auth) password: String,
    pub(in crate::auth) announce_mic: bool,
    pub(in crate::auth) leave_out_mic: bool,
    pub(in crate::auth) mic: Option<[u8; 16]>,
    pub(in crate::auth) proof: Option<[u8; 16]>,
    pub(in crate::auth) clear_flags: u32,
    pub(in crate::auth) set_flags: u32,
    pub(in crate::auth) oem: bool,
    pub(in crate::auth) nt_response_len: Option<usize>,
    pub(in crate::auth) lm_response: Vec<u8>,
    pub(in crate::auth) session_key_len: usize,
    pub(in crate::auth) time: FileTime,
    pub(in crate::auth) echo_target_info: bool,
    pub(in crate::auth) target_info: Option<Vec<u8>>,
}

impl Forgery {
    pub(in crate::auth) fn honest(user: &str, password: &str) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            announce_mic: true,
            leave_out_mic: false,
            mic: None,
            proof: None,
            clear_flags: 0,
            set_flags: 0,
            oem: false,
            nt_response_len: None,
            lm_response: vec![0; 24],
            session_key_len: 16,
            time: crate::auth::tests::NOW,
            echo_target_info: true,
            target_info: None,
        }
    }
}

pub(in crate::auth) mod forge {
    use super::*;

    pub(in crate::auth) fn negotiate(forgery: &Forgery) -> Vec<u8> {
        let text = if forgery.oem { Flags::OEM } else { Flags::UNICODE };
        encode_negotiate(Flags::from_bits_retain(0xE008_8234) | text)
    }

    pub(in crate::auth) fn authenticate(forgery: &Forgery, negotiate: &[u8], challenge: &[u8]) -> Vec<u8> {
        let parsed = parse_challenge(challenge).unwrap();
        let flags = Flags::from_bits_retain(parsed.flags.bits() & !forgery.clear_flags | forgery.set_flags);
        let mut pairs =
            if forgery.echo_target_info { parse_pairs(parsed.target_info).unwrap() } else { Vec::new() };
        if forgery.announce_mic {
            pairs.push((av::FLAGS, &[2, 0, 0, 0]));
        }
        let target_info = forgery.target_info.clone().unwrap_or_else(|| encode_pairs(pairs));
        let mut blob = encode_blob(forgery.time, [3; 8], &target_info);
        if forgery.target_info.is_some() {
            blob.truncate(blob.len() - 4);
        }
        let units: Vec<u16> = forgery.user.encode_utf16().collect();
        let hash = NtHash::from_password(&forgery.password);
        let key = ntowf_v2(&hash, &units, &[]);
        let proof = forgery.proof.unwrap_or_else(|| *nt_proof(&key, &parsed.server_challenge, &blob));
        let mut nt_response = [&proof[..], &blob].concat();
        if let Some(len) = forgery.nt_response_len {
            nt_response.truncate(len);
        }
        let base = hmac_md5(&*key, &[&proof]);
        let mut encrypted = [0x66; 16];
        let exported = if flags.contains(Flags::KEY_EXCHANGE) {
            rc4(&*base, &mut encrypted);
            [0x66; 16]
        } else {
            *base
        };
        let mut session_key = encrypted.to_vec();
        session_key.resize(forgery.session_key_len, 0);
        let mut message = encode_authenticate(&Authenticate {
            lm_response: &forgery.lm_response,
            nt_response: &nt_response,
            domain: &[],
            user: &encode_text(&forgery.user, flags),
            workstation: &[],
            encrypted_session_key: &session_key,
            flags,
            payload_at: MIC.end,
        });
        if forgery.leave_out_mic {
            message.drain(MIC);
            for at in [12, 20, 28, 36, 44, 52] {
                message[at + 4] -= 16;
            }
            return message;
        }
        let mic = forgery.mic.unwrap_or_else(|| *hmac_md5(&exported, &[negotiate, challenge, &message]));
        message[MIC].copy_from_slice(&mic);
        message
    }
}
