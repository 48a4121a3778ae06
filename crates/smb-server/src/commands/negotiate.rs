//! NEGOTIATE (MS-SMB2 3.3.5.3, 3.3.5.4) and FSCTL_VALIDATE_NEGOTIATE_INFO (3.3.5.15.12).

use crate::config::Config;
use crate::directory::Directory;
use crate::exchange::{Body, Context, Element, Step};
use crate::state::State;
use crate::state::connections::{ConnectionId, Negotiation, RdmaTransforms, Transport};
use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::{
    CONTEXT_ENCRYPTION, CONTEXT_PREAUTH_INTEGRITY, CONTEXT_RDMA_TRANSFORM, CONTEXT_SIGNING, Capabilities,
    Command, DIALECT_WILDCARD, Dialect, HASH_SHA_512, Header, HeaderFlags, NegotiateRequest,
    NegotiateResponseBody, PreauthIntegrity, RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_NONE,
    RDMA_TRANSFORM_SIGNING, ResponseTo, SecurityMode, Smb1Negotiate, counted_ids, put_context,
    put_counted_ids, put_rdma_transform_ids, rdma_transform_ids, write_negotiate_response,
};
use std::convert::Infallible;
use types::{FileTime, Monotonic, NtStatus};
use volume::backend::Backend;

/// The algorithms that the contexts of a 3.1.1 NEGOTIATE led to.
struct Chosen {
    cipher: Option<CipherId>,
    signing: Option<SigningAlgorithm>,
    rdma_transforms: RdmaTransforms,
}

/// Security mode that the server answers.
fn security_mode(config: &Config) -> SecurityMode {
    if config.require_signing {
        SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED
    } else {
        SecurityMode::SIGNING_ENABLED
    }
}

fn capabilities_for(config: &Config, dialect: Dialect, client: Capabilities) -> Capabilities {
    let mut own = Capabilities::empty();
    if dialect >= Dialect::Smb210 {
        own |= Capabilities::LEASING | Capabilities::LARGE_MTU;
    }
    if dialect >= Dialect::Smb300 {
        if config.multichannel {
            own |= Capabilities::MULTI_CHANNEL;
        }
        own |= Capabilities::DIRECTORY_LEASING | Capabilities::PERSISTENT_HANDLES;
        // In 3.1.1 the encryption context replaces it.
        if dialect < Dialect::Smb311
            && client.contains(Capabilities::ENCRYPTION)
            && config.ciphers.contains(&CipherId::Aes128Ccm.to_wire())
        {
            own |= Capabilities::ENCRYPTION;
        }
        // Capabilities that both sides must want are offered to clients that ask for them.
        own &= client | Capabilities::LEASING | Capabilities::LARGE_MTU;
    }
    own
}

/// Answers the multi-protocol NEGOTIATE of a client that may also speak SMB1. `None`: the connection has to end.
pub(crate) fn answer_smb1<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    message: &[u8],
    now: Monotonic,
) -> Option<(Header, Body)> {
    let offer = Smb1Negotiate::parse(message).ok()?;
    let (negotiation, revision, dialect) = if offer.smb_2_wildcard {
        (Negotiation::Wildcard, DIALECT_WILDCARD, Dialect::Smb210)
    } else if offer.smb_2_002 && state.config.dialect_min <= Dialect::Smb202 {
        (Negotiation::Done(Dialect::Smb202), Dialect::Smb202 as u16, Dialect::Smb202)
    } else {
        return None;
    };
    let capabilities = match negotiation {
        Negotiation::Wildcard => Capabilities::empty(),
        _ => capabilities_for(&state.config, dialect, Capabilities::empty()),
    };
    let body = negotiate_body(&state.config, state.clock.at(now), revision, dialect, capabilities, &[]);
    let to = ResponseTo {
        command: Command::Negotiate,
        message_id: 0,
        session_id: 0,
        tree_id: 0,
        credit_charge: 0,
        flags: HeaderFlags::empty(),
    };
    let found = state.connections.get_mut(connection)?;
    found.negotiation = negotiation;
    found.server_capabilities = capabilities;
    found.server_security_mode = security_mode(&state.config);
    // The SMB1 message counts as message identifier 0.
    let credits = if found.window.take(0, 1) { found.window.grant(1) } else { 0 };
    Some((to.header(NtStatus::SUCCESS, credits), Body::Bytes(body)))
}

fn negotiate_body(
    config: &Config,
    wall: FileTime,
    revision: u16,
    dialect: Dialect,
    capabilities: Capabilities,
    contexts: &[Vec<u8>],
) -> Vec<u8> {
    let limits = &config.limits;
    // Without LARGE_MTU nothing is larger than 64 KiB.
    let bound = if dialect >= Dialect::Smb210 { u32::MAX } else { 64 << 10 };
    let body = NegotiateResponseBody {
        security_mode: security_mode(config).bits().into(),
        dialect_revision: revision.into(),
        server_guid: config.server_guid,
        capabilities: capabilities.bits().into(),
        max_transact_size: limits.transact_bytes.min(bound).into(),
        max_read_size: limits.read_bytes.min(bound).into(),
        max_write_size: limits.write_bytes.min(bound).into(),
        system_time: wall.0.into(),
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

pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<Infallible>, NtStatus> {
    let request = NegotiateRequest::parse(element.bytes())?;
    if request.dialect_count.get() == 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let offered = request.dialects()?;
    let config = &state.config;
    let dialect = offered
        .filter_map(Dialect::from_wire)
        .filter(|dialect| (config.dialect_min..=config.dialect_max).contains(dialect))
        .max()
        .ok_or(NtStatus::NOT_SUPPORTED)?;
    let client = Capabilities::from_bits_retain(request.capabilities.get());
    let capabilities = capabilities_for(&state.config, dialect, client);
    let mut contexts = Vec::new();
    let chosen = if dialect == Dialect::Smb311 {
        choose_contexts(state, context.connection, &request, &mut contexts)?
    } else {
        Chosen {
            cipher: capabilities.contains(Capabilities::ENCRYPTION).then_some(CipherId::Aes128Ccm),
            signing: None,
            rdma_transforms: RdmaTransforms::default(),
        }
    };
    let security_mode = security_mode(&state.config);
    let revision = dialect as u16;
    let body = negotiate_body(&state.config, state.clock.at(now), revision, dialect, capabilities, &contexts);
    let found = state.connections.get_mut(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
    found.negotiation = Negotiation::Done(dialect);
    found.client_capabilities = client;
    found.client_guid = if dialect >= Dialect::Smb210 { request.client_guid } else { Default::default() };
    found.client_security_mode = SecurityMode::from_bits_retain(request.security_mode.get());
    found.server_capabilities = capabilities;
    found.server_security_mode = security_mode;
    found.cipher = chosen.cipher;
    found.rdma_transforms = chosen.rdma_transforms;
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

/// Chooses among the contexts of a 3.1.1 NEGOTIATE, of which each may come once, and answers them in their order (MS-SMB2 3.3.5.4).
fn choose_contexts<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    connection: ConnectionId,
    request: &NegotiateRequest<'_>,
    contexts: &mut Vec<Vec<u8>>,
) -> Result<Chosen, NtStatus> {
    let mut preauth_seen = false;
    let mut cipher_seen = false;
    let mut signing_seen = false;
    let mut chosen = Chosen { cipher: None, signing: None, rdma_transforms: RdmaTransforms::default() };
    let mut transforms = None;
    for offered in request.contexts() {
        let offered = offered?;
        match offered.context_type {
            CONTEXT_PREAUTH_INTEGRITY => {
                if std::mem::replace(&mut preauth_seen, true) {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let preauth = PreauthIntegrity::parse(offered.data)?;
                if !preauth.offers(HASH_SHA_512) {
                    return Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                }
                let mut salt = [0; 32];
                (state.random)(&mut salt);
                contexts.push(put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&salt)));
            }
            CONTEXT_ENCRYPTION => {
                if std::mem::replace(&mut cipher_seen, true) {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let ids = counted_ids(offered.data)?;
                let wanted = state.config.ciphers.iter().copied();
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
                let ids = counted_ids(offered.data)?;
                let wanted =
                    [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac, SigningAlgorithm::HmacSha256];
                chosen.signing = wanted.into_iter().find(|own| ids.clone().any(|id| id == own.to_wire()));
                if let Some(algorithm) = chosen.signing {
                    let answer = put_counted_ids(&[algorithm.to_wire()]);
                    contexts.push(put_context(CONTEXT_SIGNING, &answer));
                }
            }
            CONTEXT_RDMA_TRANSFORM => {
                let ids = rdma_transform_ids(offered.data)?;
                if transforms.replace(ids).is_some() {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
            }
            _ => {}
        }
    }
    let transport = state.connections.get(connection).map(|found| found.info.transport);
    if let Some(offered) = transforms.filter(|_| transport == Some(Transport::SmbDirect)) {
        let (transforms, answer) = choose_rdma_transforms(offered, chosen.cipher);
        chosen.rdma_transforms = transforms;
        contexts.push(answer);
    }
    if preauth_seen { Ok(chosen) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// Chooses the protection of payload by RDMA, and builds the context that announces it.
fn choose_rdma_transforms(
    offered: impl Iterator<Item = u16> + Clone,
    cipher: Option<CipherId>,
) -> (RdmaTransforms, Vec<u8>) {
    let offers = |id| offered.clone().any(|offered| offered == id);
    // A connection without a cipher encrypts nothing by RDMA either.
    let encryption = cipher.is_some() && offers(RDMA_TRANSFORM_ENCRYPTION);
    let signing = offers(RDMA_TRANSFORM_SIGNING);
    let mut ids = Vec::new();
    ids.extend(encryption.then_some(RDMA_TRANSFORM_ENCRYPTION));
    ids.extend(signing.then_some(RDMA_TRANSFORM_SIGNING));
    if ids.is_empty() {
        ids.push(RDMA_TRANSFORM_NONE);
    }
    let context = put_context(CONTEXT_RDMA_TRANSFORM, &put_rdma_transform_ids(&ids));
    (RdmaTransforms { encryption, signing }, context)
}
