//! NEGOTIATE (MS-SMB2 3.3.5.3, 3.3.5.4) and FSCTL_VALIDATE_NEGOTIATE_INFO (3.3.5.15.12).

use crate::connection::Negotiation;
use crate::directory::Directory;
use crate::dispatch::Element;
use crate::request::{Body, Context, Hashed, Response, Step};
use crate::server::Server;
use smallvec::SmallVec;
use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::{
    CONTEXT_ENCRYPTION, CONTEXT_PREAUTH_INTEGRITY, CONTEXT_SIGNING, Capabilities, Command, DIALECT_WILDCARD,
    Dialect, HASH_SHA_512, HeaderFlags, NegotiateRequest, NegotiateResponseBody, PreauthIntegrity, Put,
    ResponseTo, SecurityMode, Smb1Negotiate, ValidateNegotiateRequest, ValidateNegotiateResponse,
    counted_ids, put_context, put_counted_ids, write_negotiate_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::Backend;
use zerocopy::IntoBytes;

/// What the contexts of a 3.1.1 NEGOTIATE led to.
struct Chosen {
    cipher: Option<CipherId>,
    signing: Option<SigningAlgorithm>,
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// Security mode that the server answers.
    fn security_mode(&self) -> SecurityMode {
        if self.config.require_signing {
            SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED
        } else {
            SecurityMode::SIGNING_ENABLED
        }
    }

    fn capabilities_for(&self, dialect: Dialect, client: Capabilities) -> Capabilities {
        let mut own = Capabilities::empty();
        if dialect >= Dialect::Smb210 {
            own |= Capabilities::LEASING | Capabilities::LARGE_MTU;
        }
        if dialect >= Dialect::Smb300 {
            if self.config.multichannel {
                own |= Capabilities::MULTI_CHANNEL;
            }
            own |= Capabilities::DIRECTORY_LEASING;
            // 3.1.1 says it by the encryption context instead.
            if dialect < Dialect::Smb311
                && client.contains(Capabilities::ENCRYPTION)
                && self.config.ciphers.contains(&CipherId::Aes128Ccm.to_wire())
            {
                own |= Capabilities::ENCRYPTION;
            }
            // What both sides must want is given to those who ask for it.
            own &= client | Capabilities::LEASING | Capabilities::LARGE_MTU;
        }
        own
    }

    /// The multi-protocol NEGOTIATE of a client that may also speak SMB1.
    pub(crate) fn handle_smb1_negotiate(&mut self, connection: u64, message: &[u8], now: Monotonic) {
        let Ok(offer) = Smb1Negotiate::parse(message) else {
            return self.disconnect_hostile(connection);
        };
        let (negotiation, revision, dialect) = if offer.smb_2_wildcard {
            (Negotiation::Wildcard, DIALECT_WILDCARD, Dialect::Smb210)
        } else if offer.smb_2_002 && self.config.dialect_min <= Dialect::Smb202 {
            (Negotiation::Done(Dialect::Smb202), Dialect::Smb202 as u16, Dialect::Smb202)
        } else {
            return self.disconnect_hostile(connection);
        };
        let capabilities = match negotiation {
            Negotiation::Wildcard => Capabilities::empty(),
            _ => self.capabilities_for(dialect, Capabilities::empty()),
        };
        let security_mode = self.security_mode();
        let body = self.negotiate_body(connection, revision, dialect, capabilities, &[], now);
        let to = ResponseTo {
            command: Command::Negotiate,
            message_id: 0,
            session_id: 0,
            tree_id: 0,
            credit_charge: 0,
            flags: HeaderFlags::empty(),
        };
        let Some(found) = self.connections.get_mut(connection) else { return };
        found.negotiation = negotiation;
        found.server_capabilities = capabilities;
        found.server_security_mode = security_mode;
        // The SMB1 message stands for message identifier 0.
        let credits = if found.window.take(0, 1) { found.window.grant(1) } else { 0 };
        let response = Response {
            invalidate: None,
            header: to.header(NtStatus::SUCCESS, credits),
            body: Body::Bytes(body),
            sign_by: 0,
            hashed: Hashed::No,
        };
        self.send(connection, SmallVec::from_iter([response]), 0);
    }

    fn negotiate_body(
        &mut self,
        _connection: u64,
        revision: u16,
        dialect: Dialect,
        capabilities: Capabilities,
        contexts: &[Vec<u8>],
        now: Monotonic,
    ) -> Vec<u8> {
        let limits = &self.config.limits;
        // Without LARGE_MTU nothing is larger than 64 KiB.
        let bound = if dialect >= Dialect::Smb210 { u32::MAX } else { 64 << 10 };
        let body = NegotiateResponseBody {
            security_mode: self.security_mode().bits().into(),
            dialect_revision: revision.into(),
            server_guid: self.config.server_guid,
            capabilities: capabilities.bits().into(),
            max_transact_size: limits.transact_bytes.min(bound).into(),
            max_read_size: limits.read_bytes.min(bound).into(),
            max_write_size: limits.write_bytes.min(bound).into(),
            system_time: self.wall_clock(now).0.into(),
            ..Default::default()
        };
        let mut out = Vec::with_capacity(256);
        write_negotiate_response(
            &mut out,
            body,
            &smb::auth::server_hint(&[smb::auth::Mechanism::Ntlm]),
            contexts,
        );
        out
    }

    pub(crate) fn handle_negotiate(
        &mut self,
        context: &mut Context,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let invalid = |_| NtStatus::INVALID_PARAMETER;
        let request = NegotiateRequest::parse(element.bytes()).map_err(invalid)?;
        if request.dialect_count.get() == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let offered = request.dialects().map_err(invalid)?;
        let config = &self.config;
        let dialect = offered
            .filter_map(Dialect::from_wire)
            .filter(|dialect| (config.dialect_min..=config.dialect_max).contains(dialect))
            .max()
            .ok_or(NtStatus::NOT_SUPPORTED)?;
        let client = Capabilities::from_bits_retain(request.capabilities.get());
        let capabilities = self.capabilities_for(dialect, client);
        let mut contexts = Vec::new();
        let chosen = if dialect == Dialect::Smb311 {
            self.choose_contexts(&request, &mut contexts)?
        } else {
            Chosen {
                cipher: capabilities.contains(Capabilities::ENCRYPTION).then_some(CipherId::Aes128Ccm),
                signing: None,
            }
        };
        let security_mode = self.security_mode();
        let revision = dialect as u16;
        let body = self.negotiate_body(context.connection, revision, dialect, capabilities, &contexts, now);
        let found = self.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        found.negotiation = Negotiation::Done(dialect);
        found.client_capabilities = client;
        found.client_guid = if dialect >= Dialect::Smb210 { request.client_guid } else { Default::default() };
        found.client_security_mode = SecurityMode::from_bits_retain(request.security_mode.get());
        found.server_capabilities = capabilities;
        found.server_security_mode = security_mode;
        found.cipher = chosen.cipher;
        found.signing = chosen.signing.unwrap_or(if dialect >= Dialect::Smb300 {
            SigningAlgorithm::AesCmac
        } else {
            SigningAlgorithm::HmacSha256
        });
        if dialect == Dialect::Smb311 {
            found.preauth.update(element.bytes());
        }
        Ok(Step::ok(body))
    }

    fn choose_contexts(
        &mut self,
        request: &NegotiateRequest<'_>,
        contexts: &mut Vec<Vec<u8>>,
    ) -> Result<Chosen, NtStatus> {
        let invalid = |_| NtStatus::INVALID_PARAMETER;
        let mut preauth_seen = false;
        let mut cipher_seen = false;
        let mut signing_seen = false;
        let mut chosen = Chosen { cipher: None, signing: None };
        for offered in request.contexts() {
            let offered = offered.map_err(invalid)?;
            match offered.context_type {
                CONTEXT_PREAUTH_INTEGRITY => {
                    if std::mem::replace(&mut preauth_seen, true) {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    let preauth = PreauthIntegrity::parse(offered.data).map_err(invalid)?;
                    if !preauth.offers(HASH_SHA_512) {
                        return Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                    }
                    let mut salt = [0; 32];
                    (self.random)(&mut salt);
                    contexts.push(put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&salt)));
                }
                CONTEXT_ENCRYPTION => {
                    if std::mem::replace(&mut cipher_seen, true) {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    let ids = counted_ids(offered.data).map_err(invalid)?;
                    let wanted = self.config.ciphers.iter().copied();
                    let id = wanted.into_iter().find(|own| ids.clone().any(|id| id == *own));
                    chosen.cipher = id.and_then(CipherId::from_wire);
                    // 0: none in common.
                    let answer = chosen.cipher.map_or(0, CipherId::to_wire);
                    contexts.push(put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[answer])));
                }
                CONTEXT_SIGNING => {
                    if std::mem::replace(&mut signing_seen, true) {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    let ids = counted_ids(offered.data).map_err(invalid)?;
                    let wanted =
                        [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac, SigningAlgorithm::HmacSha256];
                    chosen.signing = wanted.into_iter().find(|own| ids.clone().any(|id| id == own.to_wire()));
                    if let Some(algorithm) = chosen.signing {
                        let answer = put_counted_ids(&[algorithm.to_wire()]);
                        contexts.push(put_context(CONTEXT_SIGNING, &answer));
                    }
                }
                _ => {}
            }
        }
        if preauth_seen { Ok(chosen) } else { Err(NtStatus::INVALID_PARAMETER) }
    }

    /// The client compares what it was told with this signed answer; where what it says it sent differs from what came, someone
    /// stood between: the connection ends.
    pub(crate) fn validate_negotiate(
        &self,
        context: &Context,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, NtStatus> {
        let found = self.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let (request, dialects) =
            ValidateNegotiateRequest::parse(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let dialect = found.dialect().ok_or(NtStatus::INVALID_PARAMETER)?;
        let config = &self.config;
        let chosen = dialects
            .filter_map(Dialect::from_wire)
            .filter(|dialect| (config.dialect_min..=config.dialect_max).contains(dialect))
            .max();
        if chosen != Some(dialect)
            || request.guid != found.client_guid
            || request.capabilities.get() != found.client_capabilities.bits()
            || request.security_mode.get() != found.client_security_mode.bits()
        {
            return Ok(None);
        }
        let answer = ValidateNegotiateResponse {
            capabilities: found.server_capabilities.bits().into(),
            guid: self.config.server_guid,
            security_mode: found.server_security_mode.bits().into(),
            dialect: (dialect as u16).into(),
        };
        let mut out = Vec::new();
        out.put(answer.as_bytes());
        Ok(Some(out))
    }
}
