//! NEGOTIATE and SESSION_SETUP (MS-SMB2 3.2.4.2, 3.2.5.2, 3.2.5.3).

use super::{Binding, Ciphers, Connection, Event, Limits, Negotiated, Session, Transforms};
use crate::{ClientError, Encryption, Options, Signing};
use smb::auth::{Initiator, InitiatorStep};
use smb::crypto::{CipherId, KeySchedule, PreauthHash, SessionKeys, SigningAlgorithm};
use smb::wire::{
    CONTEXT_ENCRYPTION, CONTEXT_NETNAME, CONTEXT_PREAUTH_INTEGRITY, CONTEXT_RDMA_TRANSFORM, CONTEXT_SIGNING,
    Capabilities, Command, DIALECT_WILDCARD, Dialect, HeaderFlags, NegotiateRequestBody, NegotiateResponse,
    PreauthIntegrity, Put, RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING, SESSION_FLAG_BINDING,
    SecurityMode, SessionFlags, SessionSetupRequestBody, SessionSetupResponse, U16, U32, U64,
    ValidateNegotiateRequest, ValidateNegotiateResponse, counted_ids, put_context, put_counted_ids,
    put_rdma_transform_ids, rdma_transform_ids, write_negotiate_request, write_session_setup_request,
};
use std::cell::RefCell;
use std::rc::Rc;
use types::{FileTime, NtStatus};

/// Longest buffer of this client, even if a server offers more.
const TRANSFER_BYTES_MAX: u32 = 8 << 20;
/// Without multi-credit requests this is the most one request may carry (MS-SMB2 3.2.4.1.5).
const SINGLE_CREDIT_BYTES: u32 = 65536;

pub(super) struct Handshake {
    initiator: Initiator,
    hash: PreauthHash,
    now: FileTime,
    cipher: Option<CipherId>,
    signing: SigningAlgorithm,
    transforms: Transforms,
    session_id: u64,
    is_negotiated: bool,
    binding: Option<Binding>,
}

fn security_mode(options: &Options) -> SecurityMode {
    match options.signing {
        Signing::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        Signing::IfRequired => SecurityMode::SIGNING_ENABLED,
    }
}

fn capabilities(options: &Options) -> Capabilities {
    if options.newest >= Dialect::Smb300 {
        Capabilities::LARGE_MTU
            | Capabilities::LEASING
            | Capabilities::ENCRYPTION
            | Capabilities::MULTI_CHANNEL
            | Capabilities::PERSISTENT_HANDLES
    } else {
        Capabilities::empty()
    }
}

fn dialect_numbers(options: &Options) -> Vec<u16> {
    options.dialects().into_iter().map(|dialect| dialect as u16).collect()
}

/// Builds the input of FSCTL_VALIDATE_NEGOTIATE_INFO (MS-SMB2 3.2.5.5).
pub(super) fn validation_input(options: &Options) -> Vec<u8> {
    let dialects = dialect_numbers(options);
    let mut input = Vec::new();
    input.put(&ValidateNegotiateRequest {
        capabilities: U32::new(capabilities(options).bits()),
        guid: options.client_guid,
        security_mode: U16::new(security_mode(options).bits()),
        dialect_count: U16::new(dialects.len() as u16),
    });
    input.put_wide(&dialects);
    input
}

/// Builds the only answer to it that is accepted.
pub(super) fn validation_expected(negotiated: &Negotiated) -> Vec<u8> {
    let mut expected = Vec::new();
    expected.put(&ValidateNegotiateResponse {
        capabilities: U32::new(negotiated.capabilities.bits()),
        guid: negotiated.server_guid,
        security_mode: U16::new(negotiated.security_mode.bits()),
        dialect: U16::new(negotiated.dialect as u16),
    });
    expected
}

/// Writes a NEGOTIATE request from its body on (MS-SMB2 2.2.3). `server`: the name that the user knows the server by, if it is to hear it.
pub(crate) fn negotiate_request(options: &Options, server: Option<&str>, salt: &[u8; 32]) -> Vec<u8> {
    let dialects = dialect_numbers(options);
    let mut contexts = Vec::new();
    if dialects.contains(&(Dialect::Smb311 as u16)) {
        let ciphers: Vec<u16> = options.ciphers.iter().map(|cipher| cipher.to_wire()).collect();
        let signing: Vec<u16> = options.signing_algorithms.iter().map(|a| a.to_wire()).collect();
        contexts.push(put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(salt)));
        if !ciphers.is_empty() {
            contexts.push(put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&ciphers)));
        }
        if !signing.is_empty() {
            contexts.push(put_context(CONTEXT_SIGNING, &put_counted_ids(&signing)));
        }
        if options.rdma_transform {
            let ids = put_rdma_transform_ids(&[RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING]);
            contexts.push(put_context(CONTEXT_RDMA_TRANSFORM, &ids));
        }
        if let Some(server) = server {
            let name: Vec<u8> = server.encode_utf16().flat_map(u16::to_le_bytes).collect();
            contexts.push(put_context(CONTEXT_NETNAME, &name));
        }
    }
    let fixed = NegotiateRequestBody {
        security_mode: U16::new(security_mode(options).bits()),
        capabilities: U32::new(capabilities(options).bits()),
        client_guid: options.client_guid,
        ..Default::default()
    };
    let mut body = Vec::new();
    write_negotiate_request(&mut body, fixed, &dialects, &contexts);
    body
}

impl Connection {
    pub(super) fn begin(
        &mut self,
        initiator: Initiator,
        server: &str,
        now: FileTime,
        binding: Option<Binding>,
    ) {
        let mut salt = [0; 32];
        (self.random)(&mut salt);
        let body = negotiate_request(&self.options, Some(server), &salt);
        let mut handshake = Handshake {
            initiator,
            hash: PreauthHash::default(),
            now,
            cipher: None,
            signing: SigningAlgorithm::AesCmac,
            transforms: Transforms::default(),
            session_id: binding.as_ref().map_or(0, |binding| binding.session_id),
            is_negotiated: false,
            binding,
        };
        let message = self.transmit_plain(Command::Negotiate, 0, &body, None);
        handshake.hash.update(&message);
        self.handshake = Some(handshake);
    }

    /// Takes the answer to a message of the handshake.
    pub(super) fn handshake_answer(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let mut handshake = self.handshake.take().ok_or(Self::fail("an answer after the handshake"))?;
        let is_over = if handshake.is_negotiated {
            self.session_answer(&mut handshake, message)?
        } else {
            self.negotiate_answer(&mut handshake, message)?;
            false
        };
        if is_over {
            self.events.push_back(Event::Ready);
        } else {
            self.handshake = Some(handshake);
        }
        Ok(())
    }

    fn negotiate_answer(&mut self, handshake: &mut Handshake, message: &[u8]) -> Result<(), ClientError> {
        let header = smb::wire::Header::parse(message)?;
        if header.status() != NtStatus::SUCCESS {
            return Err(ClientError::Status { command: Command::Negotiate, status: header.status() });
        }
        let response = NegotiateResponse::parse(message)?;
        if self.options.server_guid.is_some_and(|expected| expected != response.server_guid) {
            return Err(ClientError::NotOffered(
                "the server that was asked before: another one answers there",
            ));
        }
        let number = response.dialect_revision.get();
        let dialect = Dialect::from_wire(number)
            .filter(|dialect| number != DIALECT_WILDCARD && self.options.dialects().contains(dialect))
            .ok_or(ClientError::NotOffered("any of the dialects"))?;
        handshake.hash.update(message);
        if dialect == Dialect::Smb311 {
            self.read_contexts(handshake, &response)?;
        } else if dialect >= Dialect::Smb300 {
            let caps = Capabilities::from_bits_retain(response.capabilities.get());
            handshake.cipher = caps.contains(Capabilities::ENCRYPTION).then_some(CipherId::Aes128Ccm);
        }
        let has_large = Capabilities::from_bits_retain(response.capabilities.get())
            .contains(Capabilities::LARGE_MTU)
            && dialect != Dialect::Smb202;
        let most = if has_large { TRANSFER_BYTES_MAX } else { SINGLE_CREDIT_BYTES };
        let limit = |offered: U32| offered.get().clamp(1, most);
        self.negotiated = Some(Negotiated {
            dialect,
            server_guid: response.server_guid,
            capabilities: Capabilities::from_bits_retain(response.capabilities.get()),
            security_mode: SecurityMode::from_bits_retain(response.security_mode.get()),
            limits: Limits {
                read_bytes: limit(response.max_read_size),
                write_bytes: limit(response.max_write_size),
                transact_bytes: limit(response.max_transact_size),
            },
            transforms: handshake.transforms,
        });
        if self.options.encryption == Encryption::Required && handshake.cipher.is_none() {
            return Err(ClientError::NotOffered("encryption"));
        }
        handshake.is_negotiated = true;
        let token = handshake.initiator.first_token().to_vec();
        self.session_request(handshake, &token);
        Ok(())
    }

    fn read_contexts(
        &self,
        handshake: &mut Handshake,
        response: &NegotiateResponse<'_>,
    ) -> Result<(), ClientError> {
        let mut has_hash = false;
        for context in response.contexts() {
            let context = context?;
            match context.context_type {
                CONTEXT_PREAUTH_INTEGRITY => has_hash = true,
                CONTEXT_ENCRYPTION => {
                    // Zero is the server's way to say that none of the ciphers will do.
                    let chosen = counted_ids(context.data)?.next().unwrap_or(0);
                    handshake.cipher =
                        CipherId::from_wire(chosen).filter(|cipher| self.options.ciphers.contains(cipher));
                }
                CONTEXT_SIGNING => {
                    let chosen = counted_ids(context.data)?.next().and_then(SigningAlgorithm::from_wire);
                    handshake.signing = chosen
                        .filter(|algorithm| self.options.signing_algorithms.contains(algorithm))
                        .ok_or(Self::fail("a signing algorithm that was not offered"))?;
                }
                CONTEXT_RDMA_TRANSFORM if self.options.rdma_transform => {
                    for id in rdma_transform_ids(context.data)? {
                        handshake.transforms.encryption |= id == RDMA_TRANSFORM_ENCRYPTION;
                        handshake.transforms.signing |= id == RDMA_TRANSFORM_SIGNING;
                    }
                }
                _ => {}
            }
        }
        if has_hash { Ok(()) } else { Err(Self::fail("3.1.1 without preauthentication integrity")) }
    }

    fn session_request(&mut self, handshake: &mut Handshake, token: &[u8]) {
        let mut body = Vec::new();
        write_session_setup_request(
            &mut body,
            SessionSetupRequestBody {
                flags: if handshake.binding.is_some() { SESSION_FLAG_BINDING } else { 0 },
                security_mode: security_mode(&self.options).bits() as u8,
                previous_session_id: U64::new(self.options.previous_session_id),
                ..Default::default()
            },
            token,
        );
        let proof = handshake.binding.as_ref().map(|binding| binding.proof.clone());
        let message =
            self.transmit_plain(Command::SessionSetup, handshake.session_id, &body, proof.as_deref());
        handshake.hash.update(&message);
    }

    /// Whether the session is set up.
    fn session_answer(&mut self, handshake: &mut Handshake, message: &[u8]) -> Result<bool, ClientError> {
        let header = *smb::wire::Header::parse(message)?;
        let status = header.status();
        if status != NtStatus::SUCCESS && status != NtStatus::MORE_PROCESSING_REQUIRED {
            return Err(ClientError::Status { command: Command::SessionSetup, status });
        }
        let response = SessionSetupResponse::parse(message)?;
        let flags = SessionFlags::from_bits_retain(response.session_flags.get());
        let token = response.security_buffer()?.to_vec();
        if handshake.binding.is_none() {
            handshake.session_id = header.session_id.get();
        } else if handshake.session_id != header.session_id.get() {
            return Err(Self::fail("a channel of another session"));
        }
        if status == NtStatus::MORE_PROCESSING_REQUIRED {
            let before = handshake.hash;
            handshake.hash.update(message);
            if self.dialect() == Some(Dialect::Smb311) {
                handshake.initiator.hear(before, handshake.hash);
            }
            return match handshake.initiator.step(&token, handshake.now, &mut *self.random)? {
                InitiatorStep::Send(answer) => {
                    self.session_request(handshake, &answer);
                    Ok(false)
                }
                InitiatorStep::Done(_) => Err(Self::fail("more processing required after the logon")),
            };
        }

        let InitiatorStep::Done(key) = handshake.initiator.step(&token, handshake.now, &mut *self.random)?
        else {
            return Err(Self::fail("a session without a logon"));
        };
        self.session = Some(self.session_of(handshake, message, &header, flags, &*key)?);
        Ok(true)
    }

    /// The session that a logon led to: its keys, and that the server proved to have them.
    fn session_of(
        &self,
        handshake: &mut Handshake,
        message: &[u8],
        header: &smb::wire::Header,
        flags: SessionFlags,
        key: &[u8],
    ) -> Result<Session, ClientError> {
        let is_nobody = flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        let is_node = handshake.initiator.is_of_node();
        if is_nobody && (is_node || !self.options.allow_guest) {
            return Err(ClientError::NotOffered("a session of the user's own (only one as guest)"));
        }
        let negotiated = self.negotiated.as_ref().ok_or(Self::fail("a session before the dialect"))?;
        let schedule = match negotiated.dialect {
            Dialect::Smb202 | Dialect::Smb210 => KeySchedule::Smb2,
            Dialect::Smb300 | Dialect::Smb302 => KeySchedule::Smb30,
            Dialect::Smb311 => KeySchedule::Smb311(&handshake.hash),
        };
        let keys = SessionKeys::new(schedule, key);
        let mut session = Session {
            id: handshake.session_id,
            signing: None,
            proof: None,
            ciphers: None,
            must_sign: is_node
                || self.options.signing == Signing::Required
                || negotiated.security_mode.contains(SecurityMode::SIGNING_REQUIRED),
            must_encrypt: self.options.encryption == Encryption::Required
                || flags.contains(SessionFlags::ENCRYPT_DATA),
        };
        if !is_nobody {
            let signing = keys.signing_key(handshake.signing);
            // The last answer proves that the server knows the key, and on 3.1.1 that nobody changed earlier
            // messages.
            let is_signed = header.flags().contains(HeaderFlags::SIGNED);
            if is_signed {
                signing.verify(&[message], header.message_id.get(), true, false)?;
            } else if negotiated.dialect == Dialect::Smb311 || session.must_sign {
                return Err(smb::crypto::CryptoError::NotAuthentic.into());
            }
            let signing = Rc::new(signing);
            session.proof = Some(if is_node { Rc::new(keys.node_binding_key()) } else { signing.clone() });
            session.signing = Some(signing);
            if let Some(cipher) = handshake.cipher {
                let (seal, open) = keys.client_ciphers(cipher)?;
                session.ciphers = Some(Rc::new(Ciphers { seal: RefCell::new(seal), open }));
            }
        }
        if let Some(binding) = handshake.binding.take() {
            // The channel signs with a key of its own; everything else is the session's.
            session.proof = Some(binding.proof);
            session.ciphers = binding.ciphers;
            session.must_sign = binding.must_sign;
            session.must_encrypt = binding.must_encrypt;
        }
        if session.must_encrypt && session.ciphers.is_none() {
            return Err(ClientError::NotOffered("encryption"));
        }
        Ok(session)
    }
}
