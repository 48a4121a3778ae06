//! The start-up phase: requests, replies, and what follows from them.

use super::*;
use crate::mpa::{DEPTH_NO_NEGOTIATION, Enhanced, FrameKind, LegacyDepths, StartFrame};

/// Read depth used towards a peer that says nothing of it.
const DEPTH_UNSAID: u16 = 1;
/// A peer that asks for more inbound reads than were offered gets so many at most; siw asks for 128 whatever it was told.
const DEPTH_CONCEDED_MAX: u16 = 128;

impl Connection {
    pub(super) fn request_frame(&self, private_data: &[u8]) -> StartFrame {
        let config = &self.config;
        StartFrame {
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
            private_data: self.own_private_data(config.extension, private_data),
        }
    }

    fn own_private_data(&self, extension: Option<Extension>, private_data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.config.legacy_depths && self.role == Role::Initiator && private_data.is_empty() {
            let depths = LegacyDepths {
                inbound: u32::from(self.config.inbound_read_depth),
                outbound: u32::from(self.config.outbound_read_depth),
            };
            out.extend_from_slice(&depths.encode());
        }
        out.extend(extension.iter().flat_map(|extension| extension.encode()));
        out.extend_from_slice(private_data);
        out
    }

    /// Takes start-up bytes; returns how many were used, or an error that closes the TCP connection without an answer.
    pub(super) fn handle_start(&mut self, bytes: &[u8], now: Monotonic) -> Result<usize, ()> {
        match self.state {
            State::AwaitRequest => {
                let Some((frame, used)) = StartFrame::parse(FrameKind::Request, bytes).map_err(|_| ())?
                else {
                    return Ok(0);
                };
                if bytes.len() > used {
                    // An initiator sends nothing before the reply (RFC 5044 section 7.1.2).
                    return Err(());
                }
                self.handle_request(frame);
                Ok(used)
            }
            State::AwaitReply => {
                let Some((frame, used)) = StartFrame::parse(FrameKind::Reply, bytes).map_err(|_| ())? else {
                    return Ok(0);
                };
                // A responder sends no FPDU before it has received one.
                if bytes.len() > used && !frame.reject {
                    return Err(());
                }
                self.handle_reply(frame, now)?;
                Ok(used)
            }
            // Bytes between request and accept: the initiator has to wait.
            _ => Err(()),
        }
    }

    fn handle_request(&mut self, frame: StartFrame) {
        self.state = State::AwaitAccept;
        self.deadline = None;
        let private_data = match Extension::parse(&frame.private_data) {
            Some((_, rest)) => rest,
            None => frame.private_data.clone(),
        };
        self.peer_start = Some(frame);
        self.events.push_back(Event::ConnectRequest { private_data });
    }

    /// Responder: takes the connection. Receives should be posted before.
    ///
    /// # Errors
    /// `Closed` if no request waits.
    pub fn accept(&mut self, private_data: &[u8], now: Monotonic) -> Result<(), PostError> {
        let (State::AwaitAccept, Some(request)) = (self.state, self.peer_start.take()) else {
            return Err(PostError::Closed);
        };
        let offered = Extension::parse(&request.private_data);
        let extension = offered.as_ref().and(self.config.extension);
        let crc = request.crc || self.config.crc == CrcPolicy::On;
        let legacy = offered.as_ref().map_or(&request.private_data[..], |(_, rest)| rest);
        let (inbound, outbound) = self.depths(request.enhanced, LegacyDepths::parse(legacy));
        let enhanced = request.enhanced.map(|asked| {
            let answer = |asked: u16, value: u16| if asked == DEPTH_NO_NEGOTIATION { asked } else { value };
            let mut block = Enhanced {
                peer_to_peer: asked.peer_to_peer,
                inbound_read_depth: answer(asked.outbound_read_depth, inbound),
                outbound_read_depth: answer(asked.inbound_read_depth, outbound),
                ..Enhanced::default()
            };
            if asked.peer_to_peer {
                // Exactly one, in the order that siw prefers.
                block.rtr_write = asked.rtr_write;
                block.rtr_read = asked.rtr_read && !asked.rtr_write;
                block.rtr_send = asked.rtr_send && !asked.rtr_write && !asked.rtr_read;
                self.awaits_ready = block.rtr_write || block.rtr_read || block.rtr_send;
            }
            block
        });
        let reply = StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc,
            reject: false,
            // A request of revision 1 gets an answer of revision 1.
            revision: request.revision.clamp(1, 2),
            enhanced,
            private_data: self.own_private_data(extension, private_data),
        };
        let software =
            offered.is_some() || !request.crc && !request.enhanced.is_some_and(|block| block.peer_to_peer);
        let extension = offered.map(|(extension, _)| extension);
        self.agree(crc, &request, (inbound, outbound), software, extension);
        self.start_out = Some(reply.encode());
        self.state = State::AwaitFirst;
        self.deadline = Some(now.after(REQUEST_TIMEOUT));
        self.events.push_back(Event::Established { private_data: Vec::new() });
        Ok(())
    }

    /// Responder: refuses the connection.
    pub fn reject(&mut self, private_data: &[u8]) {
        let (State::AwaitAccept, Some(request)) = (self.state, self.peer_start.take()) else { return };
        let reply = StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: request.crc,
            reject: true,
            revision: request.revision.clamp(1, 2),
            enhanced: request.enhanced.map(|_| Enhanced::default()),
            private_data: private_data.to_vec(),
        };
        self.start_out = Some(reply.encode());
        self.state = State::Terminating;
    }

    fn handle_reply(&mut self, frame: StartFrame, now: Monotonic) -> Result<(), ()> {
        let offered = Extension::parse(&frame.private_data);
        let private_data = offered.as_ref().map_or(&frame.private_data[..], |(_, rest)| rest).to_vec();
        if frame.reject {
            self.events.push_back(Event::Rejected { private_data });
            return Err(());
        }
        // An enhanced answer comes to an enhanced request and to no other.
        if frame.enhanced.is_some() && self.config.revision < 2 {
            return Err(());
        }
        let crc = frame.crc || self.config.crc == CrcPolicy::On;
        let depths = self.depths(frame.enhanced, LegacyDepths::parse(&private_data));
        let extension = self.config.extension.and(offered.map(|(extension, _)| extension));
        let software = extension.is_some() || !frame.crc;
        self.agree(crc, &frame, depths, software, extension);
        self.state = State::Established;
        self.deadline = None;
        // Whoever answers with our extension listens before it answers.
        let is_held = extension.is_none() && !self.config.first_send_delay.is_zero();
        self.hold_until = is_held.then(|| now.after(self.config.first_send_delay));
        if let Some(code) = self.unfit_reply(frame.enhanced) {
            self.terminate(code.into(), now);
            return Ok(());
        }
        self.events.push_back(Event::Established { private_data });
        Ok(())
    }

    /// Why a reply cannot be lived with (RFC 6581 sections 6.2 and 9.1), once FPDUs may say so.
    fn unfit_reply(&mut self, enhanced: Option<Enhanced>) -> Option<TerminateCode> {
        let block = enhanced?;
        if block.peer_to_peer {
            // The responder would wait for a ready-to-receive message that was never offered.
            return Some(TerminateCode::MPA_NO_READY_TO_RECEIVE);
        }
        let wanted = block.outbound_read_depth;
        if wanted == DEPTH_NO_NEGOTIATION || wanted <= self.agreed.inbound_read_depth {
            return None;
        }
        if wanted > DEPTH_CONCEDED_MAX {
            return Some(TerminateCode::MPA_INSUFFICIENT_READ_DEPTH);
        }
        self.agreed.inbound_read_depth = wanted;
        None
    }

    /// (inbound, outbound) read depths: what the peer serves bounds what we ask, and our own wish bounds the rest.
    fn depths(&self, enhanced: Option<Enhanced>, legacy: Option<LegacyDepths>) -> (u16, u16) {
        let (inbound, outbound) = (self.config.inbound_read_depth, self.config.outbound_read_depth);
        let bound = |peer: u16, own: u16| if peer == DEPTH_NO_NEGOTIATION { own } else { own.min(peer) };
        match (enhanced, legacy) {
            (Some(peer), legacy) => {
                // MS-SMBD 6.1: the blob counts if MPA says nothing.
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

    fn agree(
        &mut self,
        crc: bool,
        peer: &StartFrame,
        depths: (u16, u16),
        software: bool,
        extension: Option<Extension>,
    ) {
        let large = match self.config.large_fpdus {
            LargeFpdus::Never => false,
            // No software asks for markers.
            LargeFpdus::ToSoftware => software && !peer.markers,
            LargeFpdus::Always => true,
        };
        let longest =
            extension.map_or(framing::ULPDU_BYTES_MAX, |extension| usize::from(extension.ulpdu_bytes_max));
        let fitting = match peer.markers {
            true => crate::markers::ulpdu_bytes_for_segment(self.config.segment_bytes),
            false => framing::ulpdu_bytes_for_segment(self.config.segment_bytes),
        };
        let both = |pick: fn(&Extension) -> bool| {
            extension.as_ref().is_some_and(pick) && self.config.extension.as_ref().is_some_and(pick)
        };
        self.agreed = Agreed {
            crc,
            markers: peer.markers,
            revision: peer.revision,
            inbound_read_depth: depths.0,
            outbound_read_depth: depths.1,
            ulpdu_bytes_max: if large { longest.clamp(128, framing::ULPDU_BYTES_MAX) } else { fitting },
            atomics_and_immediate: both(|extension| extension.atomics_and_immediate),
            flush: both(|extension| extension.flush),
        };
    }
}
