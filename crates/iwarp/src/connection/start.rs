//! The start-up phase: requests, replies, and the agreement of the two ends by them.

use super::config::{Agreed, Config, CrcPolicy, LargeFpdus};
use super::{PostError, Role};
use crate::mpa::{DEPTH_NO_NEGOTIATION, Enhanced, Extension, FrameKind, LegacyDepths, StartFrame};
use crate::{TerminateCode, framing};

/// Read depth used towards a peer that says nothing of it.
const DEPTH_UNSAID: u16 = 1;
/// A peer that asks for more inbound reads than were offered gets at most this many; siw always asks
/// for 128.
const DEPTH_CONCEDED_MAX: u16 = 128;

/// The start-up frames of one end. It judges the peer's and makes our own; when the connection changes its state is the
/// connection's business.
///
/// At most one frame waits to be sent. A request of the peer is kept only by a responder, and only until its owner has answered.
pub(super) struct Start {
    role: Role,
    frame_out: Option<Vec<u8>>,
    request: Option<StartFrame>,
    /// A ready-to-receive message is still to come, which is not for the owner.
    awaits_ready: bool,
}

/// A reply that an initiator can live with, or may say why it cannot.
pub(super) enum Reply {
    Rejected {
        private_data: Vec<u8>,
    },
    Accepted {
        agreed: Agreed,
        /// The responder listens for FPDUs before it replies, as all do that know our extension.
        listens: bool,
        private_data: Vec<u8>,
        /// Reason to end the stream, now that FPDUs can carry it.
        unfit: Option<TerminateCode>,
    },
}

/// Terms of a start-up frame, whichever end sent it.
struct Terms<'a> {
    crc: bool,
    peer: &'a StartFrame,
    inbound_read_depth: u16,
    outbound_read_depth: u16,
    /// The peer behaves as software does ([`LargeFpdus::ToSoftware`]).
    software: bool,
    extension: Option<Extension>,
}

impl Start {
    /// Begins as initiator: the request is the first to be sent.
    pub(super) fn initiator(config: &Config, private_data: &[u8]) -> Self {
        let request = StartFrame {
            kind: FrameKind::Request,
            markers: false,
            crc: config.crc == CrcPolicy::On,
            reject: false,
            revision: config.revision.clamp(1, 2),
            enhanced: (config.revision >= 2).then(|| Enhanced {
                inbound_read_depth: config.inbound_read_depth.min(DEPTH_NO_NEGOTIATION - 1),
                outbound_read_depth: config.outbound_read_depth.min(DEPTH_NO_NEGOTIATION - 1),
                ..Enhanced::default()
            }),
            private_data: own_private_data(Role::Initiator, config, config.extension, private_data),
        };
        Self { role: Role::Initiator, frame_out: Some(request.encode()), request: None, awaits_ready: false }
    }

    /// Begins as responder: a request has to come first.
    pub(super) fn responder() -> Self {
        Self { role: Role::Responder, frame_out: None, request: None, awaits_ready: false }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether a frame waits to be sent, before all else.
    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.frame_out.is_some()
    }

    pub(super) fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.frame_out.take()
    }

    /// Forgets the frame that waits: the connection is closed.
    pub(super) fn clear(&mut self) {
        self.frame_out = None;
    }

    /// Whether a ready-to-receive message is still to come.
    pub(super) fn awaits_ready(&self) -> bool {
        self.awaits_ready
    }

    /// Notes that the first message has come; says whether it was to be a ready-to-receive message.
    pub(super) fn take_awaits_ready(&mut self) -> bool {
        std::mem::take(&mut self.awaits_ready)
    }

    /// Responder: takes the request once it is whole. Returns the bytes used and the private data for the owner.
    ///
    /// # Errors
    /// The TCP connection has to be closed without an answer.
    pub(super) fn take_request(&mut self, bytes: &[u8]) -> Result<Option<(usize, Vec<u8>)>, ()> {
        debug_assert!(self.role == Role::Responder && self.request.is_none());
        let Some((frame, used)) = StartFrame::parse(FrameKind::Request, bytes).map_err(|_| ())? else {
            return Ok(None);
        };
        if bytes.len() > used {
            // An initiator sends nothing before the reply (RFC 5044 section 7.1.2).
            return Err(());
        }
        let private_data = match Extension::parse(&frame.private_data) {
            Some((_, rest)) => rest,
            None => frame.private_data.clone(),
        };
        self.request = Some(frame);
        Ok(Some((used, private_data)))
    }

    /// Responder: answers the request that waits, and returns what is agreed by that.
    ///
    /// # Errors
    /// `Closed` if no request waits.
    pub(super) fn accept(&mut self, config: &Config, private_data: &[u8]) -> Result<Agreed, PostError> {
        let request = self.request.take().ok_or(PostError::Closed)?;
        let offered = Extension::parse(&request.private_data);
        let extension = offered.as_ref().and(config.extension);
        let crc = request.crc || config.crc == CrcPolicy::On;
        let legacy = offered.as_ref().map_or(&request.private_data[..], |(_, rest)| rest);
        let (inbound, outbound) = depths(config, request.enhanced, LegacyDepths::parse(legacy));
        let enhanced = request.enhanced.map(|asked| answer(asked, inbound, outbound));
        self.awaits_ready = enhanced.is_some_and(|block| block.rtr_write || block.rtr_read || block.rtr_send);
        let reply = StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc,
            reject: false,
            // A request of revision 1 gets an answer of revision 1.
            revision: request.revision.clamp(1, 2),
            enhanced,
            private_data: own_private_data(self.role, config, extension, private_data),
        };
        self.frame_out = Some(reply.encode());
        let software =
            offered.is_some() || !request.crc && !request.enhanced.is_some_and(|block| block.peer_to_peer);
        let extension = offered.map(|(extension, _)| extension);
        let (inbound_read_depth, outbound_read_depth) = (inbound, outbound);
        let peer = &request;
        Ok(agree(config, Terms { crc, peer, inbound_read_depth, outbound_read_depth, software, extension }))
    }

    /// Responder: refuses the request that waits; `false` if there is none.
    pub(super) fn reject(&mut self, private_data: &[u8]) -> bool {
        let Some(request) = self.request.take() else { return false };
        let reply = StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: request.crc,
            reject: true,
            revision: request.revision.clamp(1, 2),
            enhanced: request.enhanced.map(|_| Enhanced::default()),
            private_data: private_data.to_vec(),
        };
        self.frame_out = Some(reply.encode());
        true
    }
}

/// Initiator: judges the reply once it is whole. Returns the bytes used and the outcome.
///
/// # Errors
/// The TCP connection has to be closed without a word.
pub(super) fn parse_reply(config: &Config, bytes: &[u8]) -> Result<Option<(usize, Reply)>, ()> {
    let Some((frame, used)) = StartFrame::parse(FrameKind::Reply, bytes).map_err(|_| ())? else {
        return Ok(None);
    };
    // A responder sends no FPDU before it has received one.
    if bytes.len() > used && !frame.reject {
        return Err(());
    }
    let offered = Extension::parse(&frame.private_data);
    let private_data = offered.as_ref().map_or(&frame.private_data[..], |(_, rest)| rest).to_vec();
    if frame.reject {
        return Ok(Some((used, Reply::Rejected { private_data })));
    }
    // Only an enhanced request gets an enhanced answer.
    if frame.enhanced.is_some() && config.revision < 2 {
        return Err(());
    }
    let crc = frame.crc || config.crc == CrcPolicy::On;
    let (inbound_read_depth, outbound_read_depth) =
        depths(config, frame.enhanced, LegacyDepths::parse(&private_data));
    let extension = config.extension.and(offered.map(|(extension, _)| extension));
    let software = extension.is_some() || !frame.crc;
    let terms = Terms { crc, peer: &frame, inbound_read_depth, outbound_read_depth, software, extension };
    let mut agreed = agree(config, terms);
    let unfit = concede_depth(frame.enhanced, &mut agreed).err();
    let listens = extension.is_some();
    Ok(Some((used, Reply::Accepted { agreed, listens, private_data, unfit })))
}

/// Says yes to as many inbound reads as the reply wants (RFC 6581 sections 6.2 and 9.1).
///
/// # Errors
/// The reply cannot be lived with.
fn concede_depth(enhanced: Option<Enhanced>, agreed: &mut Agreed) -> Result<(), TerminateCode> {
    let Some(block) = enhanced else { return Ok(()) };
    if block.peer_to_peer {
        // The responder would wait for a ready-to-receive message that was never offered.
        return Err(TerminateCode::MPA_NO_READY_TO_RECEIVE);
    }
    let wanted = block.outbound_read_depth;
    if wanted == DEPTH_NO_NEGOTIATION || wanted <= agreed.inbound_read_depth {
        return Ok(());
    }
    if wanted > DEPTH_CONCEDED_MAX {
        return Err(TerminateCode::MPA_INSUFFICIENT_READ_DEPTH);
    }
    agreed.inbound_read_depth = wanted;
    Ok(())
}

/// Puts depths and our extension before the owner's private data.
fn own_private_data(
    role: Role,
    config: &Config,
    extension: Option<Extension>,
    private_data: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    if config.legacy_depths && role == Role::Initiator && private_data.is_empty() {
        let depths = LegacyDepths {
            inbound: u32::from(config.inbound_read_depth),
            outbound: u32::from(config.outbound_read_depth),
        };
        out.extend_from_slice(&depths.encode());
    }
    out.extend(extension.iter().flat_map(|extension| extension.encode()));
    out.extend_from_slice(private_data);
    out
}

/// Answers what a request asks for in its enhanced block.
fn answer(asked: Enhanced, inbound: u16, outbound: u16) -> Enhanced {
    let depth = |asked: u16, value: u16| if asked == DEPTH_NO_NEGOTIATION { asked } else { value };
    let mut block = Enhanced {
        peer_to_peer: asked.peer_to_peer,
        inbound_read_depth: depth(asked.outbound_read_depth, inbound),
        outbound_read_depth: depth(asked.inbound_read_depth, outbound),
        ..Enhanced::default()
    };
    if asked.peer_to_peer {
        // Exactly one, in the order that siw prefers.
        block.rtr_write = asked.rtr_write;
        block.rtr_read = asked.rtr_read && !asked.rtr_write;
        block.rtr_send = asked.rtr_send && !asked.rtr_write && !asked.rtr_read;
    }
    block
}

/// Returns the (inbound, outbound) read depths: the peer's offer bounds our requests, and our own wish
/// bounds the rest.
fn depths(config: &Config, enhanced: Option<Enhanced>, legacy: Option<LegacyDepths>) -> (u16, u16) {
    let (inbound, outbound) = (config.inbound_read_depth, config.outbound_read_depth);
    let bound = |peer: u16, own: u16| if peer == DEPTH_NO_NEGOTIATION { own } else { own.min(peer) };
    match (enhanced, legacy) {
        (Some(peer), legacy) => {
            // MS-SMBD section 6.1: the blob counts if MPA says nothing.
            let served = match (peer.inbound_read_depth, legacy) {
                (0, Some(legacy)) => legacy.inbound.min(255) as u16,
                (depth, _) => depth,
            };
            (inbound, bound(served, outbound))
        }
        (None, Some(legacy)) => (inbound, outbound.min(legacy.inbound.min(255) as u16)),
        (None, None) => (inbound, outbound.min(DEPTH_UNSAID)),
    }
}

fn agree(config: &Config, terms: Terms<'_>) -> Agreed {
    let Terms { crc, peer, inbound_read_depth, outbound_read_depth, software, extension } = terms;
    let large = match config.large_fpdus {
        LargeFpdus::Never => false,
        // No software asks for markers.
        LargeFpdus::ToSoftware => software && !peer.markers,
        LargeFpdus::Always => true,
    };
    let longest =
        extension.map_or(framing::ULPDU_BYTES_MAX, |extension| usize::from(extension.ulpdu_bytes_max));
    let fitting = match peer.markers {
        true => crate::markers::ulpdu_bytes_for_segment(config.segment_bytes),
        false => framing::ulpdu_bytes_for_segment(config.segment_bytes),
    };
    let both = |pick: fn(&Extension) -> bool| {
        extension.as_ref().is_some_and(pick) && config.extension.as_ref().is_some_and(pick)
    };
    Agreed {
        crc,
        markers: peer.markers,
        revision: peer.revision,
        inbound_read_depth,
        outbound_read_depth,
        ulpdu_bytes_max: if large { longest.clamp(128, framing::ULPDU_BYTES_MAX) } else { fitting },
        atomics_and_immediate: both(|extension| extension.atomics_and_immediate),
        flush: both(|extension| extension.flush),
    }
}
